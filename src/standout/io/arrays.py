"""Array files: npy and npz, Matrix Market, HDF5 and Zarr.

npy files are read, not memory-mapped: mapped pages count as memory of the process, and reading a map of a truncated
file kills it. Python objects are stored as pickles, which can run code, and are never read. h5py and zarr are imported
when a file needs them.
"""

from __future__ import annotations

import gzip
import math
import struct
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from io import RawIOBase
from pathlib import Path
from typing import IO, Any, cast
from zipfile import ZIP_STORED, ZipFile, ZipInfo, is_zipfile

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from scipy import io as scipy_io
from scipy import sparse

from standout.errors import InputError
from standout.io import matrix as files
from standout.io.matrix import ChunkedReader, InMemoryReader, MatrixFile, MatrixReader, Member, as_source
from standout.io.memory import SPARSE_PARTS, sparse_from_parts
from standout.io.options import Options
from standout.io.source import Source, import_extra, readable

_FORTRAN = ("it is in Fortran order", "save it in C order, with np.ascontiguousarray")
# Longer lines of a Matrix Market file, and members of a Zarr archive that expand to more, are damage.
_MAX_LINE = 2**20
_MAX_MEMBER, _MAX_MEMBER_EXPANSION = 64 * 2**20, 100
_AS_CSR = "convert it to h5ad in CSR, which can"


@dataclass(frozen=True)
class NpyHeader(Member):
    """The header of an npy array."""

    fortran: bool = False
    offset: int = 0  # of the first number

    @property
    def pixels(self) -> NpyHeader:
        """A cube in C order as a matrix of pixels × bands; a matrix as it is."""
        return replace(self, shape=(math.prod(self.shape[:-1]), self.shape[-1]))

    def check_complete(self, size: int, location: str) -> None:
        """Raise an error if a file of ``size`` bytes is shorter than its header claims."""
        if self.offset + self.nbytes > size:
            claimed = f"its header claims {self.nbytes:,} bytes ({self.shape} of {self.dtype})"
            follow = f"only {max(size - self.offset, 0):,} follow"
            raise InputError(f"{location}: it is truncated: {claimed}, but {follow}. Give an intact copy.")


def open_npy(path: Path, options: Options, role: str) -> Source:
    """Return the source of an ``.npy`` file of any version, order, byte order and numeric type."""
    location = f"{role}: {path}"
    files.check_no_key(options.key, location, "an npy file")
    with readable(location, "npy", path), path.open("rb") as file:
        header = _read_header(file)
        files.check_matrix(header, location, options.cube)
        header.check_complete(path.stat().st_size, location)
        reader: MatrixReader = NpyReader(path, header.pixels)
        if header.fortran and options.cube:
            files.check_fits(header.nbytes, options.memory, location, *_FORTRAN)
            file.seek(0)
            reader = InMemoryReader(npy.read_array(file, allow_pickle=False).reshape(-1, header.shape[-1]))
    return as_source(MatrixFile(path, "npy", reader), options, role)


def _read_header(file: IO[bytes]) -> NpyHeader:
    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"unknown npy version {version[0]}.{version[1]}")
    # Version 3 differs from 2 only in the encoding of field names, and structured arrays are not read.
    shape, fortran, dtype = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(file)
    if min(shape, default=0) < 0:
        raise ValueError(f"its header has the shape {shape}")
    return NpyHeader(shape, dtype, dtype.kind in "US", fortran, file.tell())


class NpyReader(MatrixReader):
    """An uncompressed array in C or Fortran order.

    A Fortran-ordered array is a C-ordered one with rows and columns exchanged. A *line* is what is contiguous.
    """

    def __init__(self, path: Path, header: NpyHeader):
        super().__init__(header.shape, header.dtype)
        self.path, self.header = path, header
        self._lines, self._length = self.shape[::-1] if header.fortran else self.shape
        self.chunk_rows = max(1, files.GAP_BYTES // (self.dtype.itemsize * (1 if header.fortran else self.shape[1])))

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        return self._read_across(start, stop).T if self.header.fortran else self._read_lines(start, stop)

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        return self._read_lines(start, stop).T if self.header.fortran else self._read_across(start, stop)

    def _read_lines(self, start: int, stop: int) -> NDArray[Any]:
        count = (stop - start) * self._length
        with self.path.open("rb") as file:
            file.seek(self.header.offset + start * self._length * self.dtype.itemsize)
            found = np.fromfile(file, self.dtype, count)
        if len(found) < count:
            raise EOFError("the file has become shorter")
        return found.reshape(stop - start, self._length)

    def _read_across(self, start: int, stop: int) -> NDArray[Any]:
        """Read a slice of every line: short lines completely, long ones by seeking."""
        if (self._length - (stop - start)) * self.dtype.itemsize <= files.GAP_BYTES:
            step = max(1, 16 * files.GAP_BYTES // (self._length * self.dtype.itemsize))
            edges = range(0, self._lines, step)
            return np.concatenate([self._read_lines(i, min(i + step, self._lines))[:, start:stop] for i in edges])
        found = np.empty((self._lines, stop - start), self.dtype)
        with self.path.open("rb", buffering=0) as file:
            for line in range(self._lines):
                file.seek(self.header.offset + (line * self._length + start) * self.dtype.itemsize)
                if file.readinto(found[line].data) < found[line].nbytes:
                    raise EOFError("the file has become shorter")
        return found


def open_npz(path: Path, options: Options, role: str) -> Source:
    """Return the source of an ``.npz`` file, also one of :func:`scipy.sparse.save_npz`.

    ``key`` names the array; the default is the only 2-D array of numbers. Text under one of ``FEATURE_NAMES`` holds
    feature names, and 1-D arrays with one value for each row are metadata.
    """
    location = f"{role}: {path}"
    with readable(location, "npz", path), ZipFile(path) as archive:
        infos = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if {"format", "shape", "data"} <= set(infos):
            files.check_no_key(options.key, location, "a sparse matrix")
            return as_source(_read_sparse_npz(path, infos, options, location), options, role)
        headers: dict[str, NpyHeader] = {}
        for name, info in infos.items():
            if info.filename.endswith(".npy"):
                with archive.open(info) as file:
                    headers[name] = _read_header(file)
                files.check_size(info.file_size, info.compress_size, f"{location}: {name}")
                if headers[name].dtype.kind != "O":
                    headers[name].check_complete(info.file_size, f"{location}: {name}")
        chosen = files.choose_array(headers, options.key, location, options.cube)
        files.check_matrix(headers[chosen], f"{location}: {chosen}", options.cube)
        reader = _npz_reader(path, infos[chosen], headers[chosen], options, location)
        names, metadata = files.sibling_columns(headers, chosen, lambda name: _read_member(path, infos[name]), location)
    return as_source(MatrixFile(path, "npz", reader, names, metadata, tuple(metadata)), options, role)


def _npz_reader(path: Path, info: ZipInfo, header: NpyHeader, options: Options, location: str) -> MatrixReader:
    """Return a reader of an array in an archive: random access, sequential, or in memory."""
    if info.compress_type == ZIP_STORED and header.nbytes > options.memory and not (header.fortran and options.cube):
        with path.open("rb") as file:  # the local header of the zip format has two fields of variable length
            file.seek(info.header_offset + 26)
            name, extra = struct.unpack("<HH", file.read(4))
        stored = replace(header, offset=info.header_offset + 30 + name + extra + header.offset)
        stored.check_complete(path.stat().st_size, location)
        return NpyReader(path, stored.pixels)
    if not header.fortran:
        return _CompressedNpyReader(path, info, header.pixels)
    files.check_fits(header.nbytes, options.memory, location, *_FORTRAN)
    return InMemoryReader(_read_member(path, info).reshape(-1, header.shape[-1]))


class _CompressedNpyReader(MatrixReader):
    """A compressed array in an npz file, decompressed from its start in every pass."""

    random_access = False

    def __init__(self, path: Path, info: ZipInfo, header: NpyHeader):
        super().__init__(header.shape, header.dtype)
        self.path, self.name, self.offset = path, info.filename, header.offset
        self.file: Any = None  # the decompressed bytes, during a pass

    @contextmanager
    def opened(self) -> Iterator[MatrixReader]:
        reader = copy(self)
        with ZipFile(self.path) as archive, archive.open(self.name) as reader.file:
            reader.file.read(self.offset)
            yield reader

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        row_bytes = self.shape[1] * self.dtype.itemsize
        if self.file.tell() != self.offset + start * row_bytes:
            self.file.seek(self.offset + start * row_bytes)
        data = self.file.read((stop - start) * row_bytes)
        return np.frombuffer(data, self.dtype).reshape(stop - start, self.shape[1])


def _read_member(path: Path, info: ZipInfo) -> NDArray[Any]:
    with ZipFile(path) as archive, archive.open(info) as file:
        header = _read_header(file)
        if (
            header.dtype.kind != "O" and header.offset + header.nbytes > info.file_size
        ):  # numpy would allocate the claim
            raise ValueError(f"{info.filename} is shorter than its header claims")
        file.seek(0)
        return np.asarray(npy.read_array(file, allow_pickle=False))


def _read_sparse_npz(path: Path, infos: dict[str, ZipInfo], options: Options, location: str) -> MatrixFile:
    """Read a file of scipy.sparse.save_npz and check its indices, which scipy does not."""
    size = sum(info.file_size for info in infos.values())
    files.check_fits(size, options.memory, location, "a sparse npz file cannot be read in blocks", _AS_CSR)
    shape = _read_member(path, infos["shape"])
    files.check_sparse_shape([int(length) for length in shape.ravel()], path.stat().st_size, location)
    form = _read_member(path, infos["format"]).item()
    form = form.decode("ascii") if isinstance(form, bytes) else str(form)
    names = SPARSE_PARTS.get(form, ())
    parts = {name: _read_member(path, infos[name]) for name in names if name in infos}
    found = sparse_from_parts(form, parts, [int(length) for length in shape.ravel()])
    files.check_matrix(Member(found.shape, found.dtype), location)
    return MatrixFile(path, "npz", InMemoryReader(found.tocsr()))


def open_mtx(path: Path, options: Options, role: str) -> Source:
    """Return the source of a Matrix Market file, plain or gzip-compressed, sparse if the file is.

    Files of 10x Genomics have genes as rows, and lists of them (``features.tsv`` or ``genes.tsv``) and of cells
    (``barcodes.tsv``) in the same directory. With these lists, the matrix is transposed if needed, so that cells are
    rows, and the lists are names and row ids. A gene is called by its symbol, or by its id if several genes share it.
    ``key`` chooses one of several feature types.
    """
    location = f"{role}: {path}"
    with readable(location, "Matrix Market", path):
        _check_mtx_header(path, options, location)
        with (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rb") as file:
            text = _MtxText(file)
            found: Any = scipy_io.mmread(text)
        if text.damaged:
            raise ValueError("its text contains zero bytes or a line that does not end")
        files.check_matrix(Member(found.shape, found.dtype), location)
        genes, cells = _read_list(path, "features", "genes"), _read_list(path, "barcodes")
        names, metadata, subset = None, {}, None
        if (genes is None) != (cells is None):
            problem = "its directory has only one of the lists features.tsv and barcodes.tsv"
            raise InputError(f"{location}: {problem}. Add the other, or leave both out.")
        if genes is None or cells is None:
            files.check_no_key(options.key, location, "an mtx file")
        else:
            if found.shape == (len(genes), len(cells)):  # also if both orders fit: 10x Genomics writes genes × cells
                found = found.T
            elif found.shape != (len(cells), len(genes)):
                lists = f"the lists in its directory have {len(genes)} features and {len(cells)} barcodes"
                remedy = "Check that they belong together, or leave the lists out."
                raise InputError(f"{location}: its shape is {found.shape}, but {lists}. {remedy}")
            ids, symbols, types = ([gene[min(i, len(gene) - 1)] for gene in genes] for i in range(3))
            types = types if len(genes[0]) > 2 else []
            genomics = import_module("standout.io.genomics")  # which imports this module
            names, subset = genomics.choose_genes(ids, symbols, types, (), options.key, location)
            metadata = {"barcodes": partial(np.array, [cell[0] for cell in cells], dtype=object)}
        reader = InMemoryReader(sparse.csr_array(found) if sparse.issparse(found) else np.asarray(found))
    row_ids = "barcodes" if metadata else None
    matrix = MatrixFile(path, "Matrix Market", reader, names, metadata, (), row_ids, subset=subset)
    return as_source(matrix, options, role)


class _MtxText(RawIOBase):
    """The text of a file up to the first damage, with a newline at its end.

    Zero bytes may crash scipy's reader, and a line of any length is kept in memory.
    """

    def __init__(self, file: Any):
        self.file, self.damaged, self._line = file, False, 0  # bytes of the current line

    def read(self, size: int = -1) -> bytes:
        found: bytes = b"" if self.damaged else self.file.read(size)
        self._line = len(found) - found.rfind(b"\n") - 1 + (0 if b"\n" in found else self._line)
        self.damaged |= b"\0" in found or self._line > _MAX_LINE
        if not found and self._line:
            self._line, found = 0, b"\n"
        return found.replace(b"\0", b" ")


def _check_mtx_header(path: Path, options: Options, location: str) -> None:
    """Raise an error for a header that claims more than the file can hold, or more than ``memory``."""
    n_rows, n_columns, entries, form, _, symmetry = scipy_io.mminfo(str(path))
    size, repeats = path.stat().st_size, 1 if symmetry == "general" else 2
    max_bytes = size * (1032 if path.suffix.lower() == ".gz" else 1)  # the largest ratio of gzip
    if 2 * entries > max_bytes * repeats:
        problem = f"it is truncated: its header claims {entries:,} entries, but the file has {size:,} bytes"
        raise InputError(f"{location}: {problem}. Give an intact copy.")
    if form == "coordinate":
        files.check_sparse_shape((n_rows, n_columns), size, location)
    else:
        files.check_size(8 * n_rows * n_columns, size, location)
    in_memory = entries * repeats * (16 if form == "coordinate" else 8)
    files.check_fits(in_memory, options.memory, location, "a Matrix Market file cannot be read in blocks", _AS_CSR)


def _read_list(path: Path, *names: str) -> list[list[str]] | None:
    """Return the rows of a list in the directory of a matrix; ``a_features.tsv`` belongs to ``a_matrix.mtx``."""
    stem = path.name.removesuffix(".gz").removesuffix(".mtx")
    prefix = stem.removesuffix("matrix") if stem.endswith("matrix") else ""
    candidates = [path.with_name(f"{prefix}{name}{suffix}") for name in names for suffix in (".tsv", ".tsv.gz")]
    found = next(filter(Path.is_file, candidates), None)
    if found is None:
        return None
    with (gzip.open if found.suffix == ".gz" else open)(found, "rt", encoding="utf-8") as file:
        return [line.rstrip("\r\n").split("\t") for line in file if line.strip()]


def open_hdf5(path: Path, options: Options, role: str) -> Source:
    """Return the source of an HDF5 file; files of Cell Ranger, loom and MATLAB have layouts of their own.

    ``key`` is the path of the dataset; the default is the only 2-D dataset of numbers. Feature names are text under one
    of ``FEATURE_NAMES``, an attribute of the dataset or a 1-D dataset of the same group. Other 1-D datasets of the
    group, with one value for each row, are metadata.
    """
    location = f"{role}: {path}"
    store = import_extra("standout.io.hdf5", location).HDF5Store(path, location)
    h5py = import_extra("h5py", location)
    with readable(location, "HDF5", path), store.open() as file:
        items: dict[str, Any] = {}
        file.visititems(items.__setitem__)
        arrays = {k: v for k, v in items.items() if isinstance(v, h5py.Dataset) and v.shape is not None}
        text = {key for key, array in arrays.items() if h5py.check_string_dtype(array.dtype) is not None}
        members = {key: Member(array.shape, array.dtype, key in text) for key, array in arrays.items()}
        suffix, matrix = path.suffix.lower(), None
        if suffix in (".mat", ".loom"):
            store.check_links()
        if suffix == ".mat":
            matrix = import_module("standout.io.matlab").stored_matrix(store, items, options)
        elif not options.cube and not store.external:  # layouts in which a link could be followed
            matrix = import_module("standout.io.genomics").stored_matrix(store, file, options)
        if matrix is not None:
            return as_source(matrix, options, role)
        _check_foreign_hdf5(file, items, members, options.key, location)
        matrix = _chunked_matrix(store, "HDF5", arrays, members, options)
    return as_source(matrix, options, role)


def _check_foreign_hdf5(
    file: Any, items: Mapping[str, Any], members: Mapping[str, Member], key: str | None, location: str
) -> None:
    """Raise an error for files of other programs that only look like arrays."""
    if "encoding-type" in file.attrs and file.attrs["encoding-type"] == "anndata":
        raise InputError(f"{location}: this is an h5ad file. Rename it to end in .h5ad.")
    frames = [name for name, item in items.items() if "pandas_type" in item.attrs]
    if frames and (key is None or any(key.strip("/").startswith(name) for name in frames)):
        found = f"it contains pandas data frames ({', '.join(frames[:3])})"
        raise InputError(f"{location}: {found}. Load one with pandas.read_hdf(path, {frames[0]!r}), and give that.")
    parts = {"data", "indices", "indptr"}
    groups = [name for name, item in items.items() if hasattr(item, "keys") and parts <= set(item)]
    if groups and key is None and not any(member.is_numeric() for member in members.values()):
        raise InputError(
            f"{location}: it contains a sparse matrix ({groups[0]}), for which HDF5 has no standard. Load it with the "
            "program that wrote it, and give that, or convert it to h5ad."
        )


def open_zarr(path: Path, options: Options, role: str) -> Source:
    """Return the source of a Zarr array (version 2 or 3, a directory or a zip file), or of one in a group.

    ``key`` is the path of the array in its group; names and metadata are found as in HDF5 files. An AnnData in Zarr is
    read as one.
    """
    location = f"{role}: {path}"
    zarr = import_extra("zarr", location)
    store = _ZarrStore(path, location)
    with readable(location, "Zarr", path):
        if path.is_file() and not is_zipfile(path):
            raise InputError(f"{location}: this is neither a directory nor a zip file. Give a Zarr store.")
        _check_members(path, location)
        with store.open() as root:
            if isinstance(root, zarr.Array):
                files.check_no_key(options.key, location, "this store")
                arrays = {"": root}
            else:
                arrays = {name: item for name, item in root.members(max_depth=None) if isinstance(item, zarr.Array)}
            if root.attrs.get("encoding-type") == "anndata":
                h5ad = import_extra("standout.io.h5ad", location, "anndata")
                return cast(Source, h5ad.open_store(store, options, role))
            members = {name: Member(item.shape, item.dtype, item.dtype.kind in "UST") for name, item in arrays.items()}
            matrix = _chunked_matrix(store, "Zarr", arrays, members, options)
    return as_source(matrix, options, role)


def _check_members(path: Path, location: str) -> None:
    """Raise an error for a zip file with a member that expands a lot: zarr reads members as a whole."""
    if not path.is_file():
        return
    with ZipFile(path) as archive:
        for info in archive.infolist():
            if info.compress_size > 1000 + 1.01 * info.file_size:  # Python would expand all of it before it finds out
                raise ValueError(f"{info.filename} is larger than its archive claims")
            if info.file_size > _MAX_MEMBER + _MAX_MEMBER_EXPANSION * info.compress_size:
                problem = f"{info.filename} expands from {info.compress_size:,} to {info.file_size:,} bytes"
                raise InputError(
                    f"{location}: {problem}. Give an intact copy, or the unpacked directory if this is right."
                )


class Store:
    """An HDF5 file or Zarr store. It is opened for every read, so no file stays open and readers can be pickled."""

    def __init__(self, path: Path, location: str):
        self.path, self.location = path, location

    def open(self) -> AbstractContextManager[Any]:
        """Open the store."""
        raise NotImplementedError

    def check(self, item: Any) -> None:
        """Raise an error for an array, or one in a group, that is damaged or not safe to read."""
        raise NotImplementedError

    @cached_property
    def size(self) -> int:
        """Bytes on disk."""
        return files.size_on_disk(self.path)

    def check_size(self, array: Any) -> None:
        """Raise an error for an array that claims far more bytes than the store can hold."""
        if not getattr(array, "is_virtual", False):  # stored in other files
            claimed = max(math.prod(array.shape), math.prod(array.chunks or ())) * array.dtype.itemsize
            name = str(array.name or "").strip("/")
            files.check_size(claimed, self.size, f"{self.location}: {name}" if name else self.location)

    @contextmanager
    def item(self, key: str) -> Iterator[Any]:
        """Open the array or group at ``key`` (empty: the store itself)."""
        with self.open() as root:
            yield root[key] if key else root

    def read(self, key: str) -> NDArray[Any]:
        """Return the values of an array of numbers or text."""
        with self.item(key) as item:
            self.check(item)
            if item.dtype.names is not None:
                raise ValueError(f"{key} is a structured array")
            return np.asarray(item[...])


class _ZarrStore(Store):
    @contextmanager
    def open(self) -> Iterator[Any]:
        storage, path = import_module("zarr.storage"), self.path
        store = storage.ZipStore(path, mode="r") if path.is_file() else storage.LocalStore(path, read_only=True)
        try:
            yield import_module("zarr").open(store, mode="r")
        finally:
            store.close()

    def check(self, item: Any) -> None:
        parts = [part for _, part in item.members(max_depth=None)] if hasattr(item, "members") else [item]
        for array in (part for part in parts if hasattr(part, "shape")):
            self.check_size(array)
            metadata = array.metadata
            codecs = [*(getattr(metadata, "filters", None) or ()), getattr(metadata, "compressor", None)]
            if any(getattr(codec, "codec_id", "") == "pickle" for codec in codecs):  # which version 2 allows
                raise InputError(
                    f"{self.location}: {array.path or 'its array'} is stored as pickles. Loading a pickle can run any "
                    "code, so it is not read. Convert it to numbers or text, and save it again."
                )


def _chunked_matrix(
    store: Store, kind: str, arrays: Mapping[str, Any], members: Mapping[str, Member], options: Options
) -> MatrixFile:
    """Choose the array of an open HDF5 or Zarr store, and find its names and metadata."""
    location = store.location
    chosen = files.choose_array(members, options.key, location, options.cube)
    array, where = arrays[chosen], f"{location}: {chosen}" if chosen else location
    files.check_matrix(members[chosen], where, options.cube)
    store.check(array)
    names, metadata = files.sibling_columns(members, chosen, store.read, location)
    for attribute in files.FEATURE_NAMES:
        if attribute in array.attrs:
            given, values = array.attrs[attribute], np.asarray(array.attrs[attribute])
            # The attributes of Zarr are JSON: a list of any values. Those of HDF5 have a type.
            if values.shape == array.shape[-1:] and (isinstance(given, list) or values.dtype.kind in "OUS"):
                names = files.as_names(values)
                break
    reader = ChunkedReader(partial(store.item, chosen), array)
    return MatrixFile(store.path, kind, reader, names, metadata, tuple(metadata))
