"""AnnData as a source: an h5ad file (or one in Zarr), or an AnnData in memory, backed or a view.

Rows are cells and features are genes: names come from ``var_names``, ids from ``obs_names``, and the columns of
``obs`` describe rows. Only what is asked for is read, and sparse stays sparse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from anndata.io import read_elem
from numpy.typing import NDArray
from scipy import sparse

from standout.errors import InputError, NotNumbersError, did_you_mean, listed
from standout.io.containers import (
    Column,
    Member,
    as_names,
    as_text,
    check_claim,
    check_file,
    check_held,
    check_matrix,
    check_sparse_claim,
    readable,
    stored,
)
from standout.io.matrix import ChunkedNumbers, HeldNumbers, Matrix, Numbers, as_source
from standout.io.memory import NUMBERS, checked_table
from standout.io.options import Options
from standout.io.source import Source

OBS_NAMES = "obs_names"  # what the index of obs is called as a column that describes rows
# What a column of obs may be stored as, that can be told as text; what is older says nothing of it.
_TOLD = ("array", "string-array", "categorical", "nullable-integer", "nullable-boolean", "nullable-string-array", "")
_COMPRESSED = ("data", "indices", "indptr")
# Rows of this many bytes are read at once from a sparse matrix.
_READ = 8 * 2**20

Open = Callable[[], AbstractContextManager[Any]]


def open_h5ad(path: Path, options: Options, role: str) -> Source:
    """Return the source of an h5ad file.

    ``key`` is a layer (``"counts"`` or ``"layers/counts"``), ``"X"`` (the default) or ``"raw"``. Dense and CSR
    matrices are read by blocks of rows; CSC only where it fits the memory allowed.
    """
    with readable(f"{role}: {path}", "h5ad"):
        check_file(path, f"{role}: {path}")
    return open_store(path, partial(h5py.File, path, "r"), options, role)


def open_store(path: Path, opened: Open, options: Options, role: str) -> Source:
    """Return the source of an AnnData in a store that ``opened`` opens: h5py or zarr."""
    where = f"{role}: {path}"
    with readable(where, "h5ad"):
        with opened() as root:
            _check_tables(root, where)
            key = _located(root, options.key, where)
            frame = "raw/var" if key == "raw/X" else "var"
            names = as_names(_column(root, frame, None))
            columns = [str(name) for name in root["obs"].attrs.get("column-order", ())]
            carried = tuple(name for name in columns if _can_be_told(root["obs"], name))
            numbers = _numbers(path, partial(_item, opened, key), root[key], options, f"{where}: {key}")
        _check_shape(numbers, names, where)
        n_rows = numbers.shape[0]
        about: dict[str, Column] = {name: partial(_read_column, opened, name, n_rows) for name in columns}
        about[OBS_NAMES] = partial(_read_column, opened, None, n_rows)
    return as_source(Matrix(path, "h5ad", numbers, names, about, ids=OBS_NAMES, carried=carried), options, role)


def from_anndata(adata: Any, options: Options, role: str) -> Source:
    """Return the source of an AnnData: its matrix is not copied, and a backed one stays on disk."""
    raw = options.key in ("raw", "raw/X")
    if raw and adata.raw is None:
        raise InputError(f"{role}: this AnnData has no raw. Leave key= out, or set adata.raw.")
    layer = None if raw or options.key in (None, "X") else str(options.key).removeprefix("layers/")
    if layer is not None and layer not in adata.layers:
        raise InputError(f"{role}: {_no_layer(layer, list(adata.layers))}")
    holder = adata.raw if raw else adata
    where = f"{role}: {adata.filename}" if adata.isbacked else role
    with readable(where, "AnnData"):
        matrix = holder.X if layer is None else adata.layers[layer]
        numbers = _in_memory(matrix, where) if not _is_backed(matrix) else _backed(matrix, options, where)
        names = as_names(holder.var_names)
        _check_shape(numbers, names, where)
    about: dict[str, Column] = {str(name): partial(_decoded, adata.obs[name]) for name in adata.obs.columns}
    about[OBS_NAMES] = partial(np.asarray, adata.obs_names, dtype=object)
    carried = tuple(str(name) for name in adata.obs.columns if adata.obs[name].dtype.kind in NUMBERS + "OU")
    path = Path(adata.filename) if adata.isbacked else Path("AnnData")
    return as_source(Matrix(path, "AnnData", numbers, names, about, ids=OBS_NAMES, carried=carried), options, role)


class SparseRows(Numbers):
    """A CSR matrix on disk: its row pointers are held, data and indices are read where rows are wanted.

    Indices are checked whenever they are read: scipy takes them as they are, and a wrong one would write
    outside the array.
    """

    def __init__(self, opened: Open, group: Any, shape: tuple[int, int]):
        self._open, self.shape = opened, shape
        kept = group["data"].dtype
        # scipy knows neither half precision nor the other byte order.
        self.dtype = np.dtype(np.float32) if kept == np.float16 else kept.newbyteorder("=")
        self._pointers = np.asarray(group["indptr"][...], dtype=np.int64)
        count, indices = group["data"].shape[0], group["indices"]
        if (
            len(self._pointers) != shape[0] + 1
            or self._pointers[0] != 0
            or self._pointers[-1] > min(count, indices.shape[0])
            or (np.diff(self._pointers) < 0).any()
        ):
            raise ValueError("the row pointers do not fit the matrix")
        self.nbytes = count * (self.dtype.itemsize + indices.dtype.itemsize) + self._pointers.nbytes
        self.grain = max(1, _READ * shape[0] // self.nbytes)

    def rows(self, start: int, stop: int) -> Any:
        """Return rows ``start`` to ``stop`` as a CSR matrix."""
        first, last = self._pointers[start], self._pointers[stop]
        with self._open() as group:
            data = np.asarray(group["data"][first:last], dtype=self.dtype)
            indices = np.asarray(group["indices"][first:last])
        shape = (stop - start, self.shape[1])
        found = sparse.csr_array((data, indices, self._pointers[start : stop + 1] - first), shape=shape)
        found.check_format(full_check=True)
        return found

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        """Return columns ``start`` to ``stop`` of every row: a pass over the file."""
        found = np.empty((self.shape[0], stop - start), self.dtype)
        for number, part in enumerate(self.parts(self.grain)):
            part[:, start:stop].toarray(out=found[number * self.grain : number * self.grain + part.shape[0]])
        return found


def _located(root: Any, key: str | None, where: str) -> str:
    """Return the path of the matrix meant by ``key``."""
    layers = list(root["layers"]) if "layers" in root else []
    if key in ("raw", "raw/X"):
        if "raw" not in root or "X" not in root["raw"]:
            raise InputError(f"{where}: it has no raw. Leave key= out, or use one of {listed(['X', *layers])}.")
        return "raw/X"
    if key is None or key == "X":
        if "X" not in root:
            hint = f"Use key= with one of its layers: {listed(layers)}." if layers else "Give a file that has."
            raise InputError(f"{where}: it has no X. {hint}")
        return "X"
    layer = key.removeprefix("layers/")
    if layer not in layers:
        raise InputError(f"{where}: {_no_layer(layer, layers)}")
    return f"layers/{layer}"


def _no_layer(layer: str, layers: list[str]) -> str:
    return f"there is no layer {layer!r}.{did_you_mean(layer, layers)} Use one of {listed(['X', *layers])}."


def _check_tables(root: Any, where: str) -> None:
    for name in ("obs", "var"):
        if name not in root:
            raise InputError(f"{where}: it has no {name}, so it is not an AnnData. Give a whole copy, or rename it.")
        if not hasattr(root[name], "keys"):
            raise InputError(
                f"{where}: it was written by anndata before 0.7. Convert it with "
                "anndata.read_h5ad(path).write_h5ad(path)."
            )


def _check_shape(numbers: Any, names: tuple[str, ...], where: str) -> None:
    if numbers.shape[1] != len(names):
        raise InputError(
            f"{where}: {numbers.shape[1]} columns, and {len(names)} var_names. It is damaged: give a whole copy."
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(
            f"{where}: {len(twice)} var_names stand more than once: {listed(twice)}. Call "
            "adata.var_names_make_unique() first."
        )


@contextmanager
def _item(opened: Open, key: str) -> Iterator[Any]:
    with opened() as root:
        yield root[key]


def _column(root: Any, frame: str, name: str | None) -> NDArray[Any]:
    """Read a column of a table, or its index."""
    table = root[frame]
    return _decoded(read_elem(table[table.attrs["_index"] if name is None else name]))


def _can_be_told(table: Any, name: str) -> bool:
    """Tell whether a column is there and holds numbers, truth values, text or categories."""
    return name in table and str(table[name].attrs.get("encoding-type", "")) in _TOLD


def _read_column(opened: Open, name: str | None, n_rows: int) -> NDArray[Any]:
    """Read a column of obs, or its index."""
    with opened() as root:
        found = _column(root, "obs", name)
    if found.shape != (n_rows,):
        raise ValueError(f"{len(found)} values of obs for {n_rows} rows")
    return found


def _decoded(values: Any) -> NDArray[Any]:
    """Return a column as plain values: categories by their name, missing ones as NaN."""
    return as_text(np.asarray(values))


def _numbers(path: Path, opened: Open, item: Any, options: Options, where: str) -> Any:
    """Return how to read a matrix of a store: dense, CSR, or CSC as a whole."""
    there = stored(path)
    if hasattr(item, "shape"):
        check_matrix(Member(tuple(item.shape), item.dtype), where)
        check_claim(int(item.nbytes), there, where)
        return ChunkedNumbers(opened, item)
    kind = str(item.attrs.get("encoding-type", item.attrs.get("h5sparse_format", ""))).removesuffix("_matrix")
    if kind not in ("csr", "csc") or not all(part in item for part in _COMPRESSED):
        raise InputError(f"{where}: this is neither an array nor a sparse matrix. Give a whole copy.")
    shape = tuple(int(length) for length in item.attrs.get("shape", item.attrs.get("h5sparse_shape", ())))
    check_sparse_claim(shape, there, where)
    check_matrix(Member(shape, item["data"].dtype), where)
    for part in _COMPRESSED:
        check_claim(int(item[part].nbytes), there, where)
    if kind == "csr":
        return SparseRows(opened, item, (shape[0], shape[1]))
    check_held(
        sum(int(item[part].nbytes) for part in _COMPRESSED), options.memory, where,
        "a CSC matrix cannot be read by rows", "convert it to CSR (adata.X = adata.X.tocsr(), then write it again)",
    )  # fmt: skip
    return _by_columns(item, (shape[0], shape[1]))


def _by_columns(item: Any, shape: tuple[int, int]) -> HeldNumbers:
    """Load a CSC matrix and turn it."""
    data, indices, pointers = (np.asarray(item[part][...]) for part in _COMPRESSED)
    found = sparse.csc_array((data, indices, pointers), shape=shape)
    found.check_format(full_check=True)
    return HeldNumbers(found.tocsr())


def _is_backed(matrix: Any) -> bool:
    """Tell whether a matrix of an AnnData is still on disk."""
    return isinstance(matrix, h5py.Dataset) or hasattr(matrix, "group")


def _backed(matrix: Any, options: Options, where: str) -> Any:
    """Return how to read a matrix of a backed AnnData, through the file it keeps open."""
    item = matrix.group if hasattr(matrix, "group") else matrix
    return _numbers(Path(item.file.filename), partial(nullcontext, item), item, options, where)


def _in_memory(matrix: Any, where: str) -> HeldNumbers:
    """Take the matrix of an AnnData as it is."""
    if matrix is None:
        raise InputError(f"{where}: this AnnData has no X. Use key= with one of its layers, or set X.")
    if sparse.issparse(matrix):
        # Views of anndata are subclasses that copy whenever they are touched: scipy's own class does not.
        plain = sparse.csc_array if matrix.format == "csc" else sparse.csr_array
        return HeldNumbers(checked_table(plain(matrix), where).tocsr())
    if not isinstance(matrix, np.ndarray):
        raise NotNumbersError(
            f"{where}: its matrix is of the kind {type(matrix).__name__}, which is not in memory. Call "
            "adata.to_memory() first."
        )
    return HeldNumbers(checked_table(np.asarray(matrix), where))
