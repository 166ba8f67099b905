"""numpy's own files: ``.npy`` (one array) and ``.npz`` (several, or a sparse matrix of scipy).

They are read, never mapped: the pages of a map count as memory of the process, and a map of a file that
shrinks meanwhile ends the process. Python objects are pickles, which can run code, and are never read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from scipy import sparse

from standout.errors import InputError
from standout.io.containers import (
    Member,
    beside,
    check_claim,
    check_file,
    check_held,
    check_matrix,
    check_no_key,
    check_sparse_claim,
    pick,
    readable,
)
from standout.io.matrix import HeldNumbers, Matrix, Numbers, Passed, as_source
from standout.io.options import Options
from standout.io.source import Source

# Less than this between two reads costs no more than a read of its own.
_NEAR = 256 * 2**10


@dataclass(frozen=True)
class Header(Member):
    """The header of an array: shape, type, order, and where its numbers begin."""

    fortran: bool = False
    offset: int = field(default=0)


def open_npy(path: Path, options: Options, role: str) -> Source:
    """Return the source of an ``.npy`` file: any version, order, byte order and type of number."""
    where = f"{role}: {path}"
    check_no_key(options.key, where, "an npy file")
    with readable(where, "npy"):
        check_file(path, where)
        with path.open("rb") as file:
            header = read_header(file, where)
        check_matrix(header, where)
        check_whole(header, path.stat().st_size, where)
    return as_source(Matrix(path, "npy", ArrayFile(path, header)), options, role)


def open_npz(path: Path, options: Options, role: str) -> Source:
    """Return the source of an ``.npz`` file.

    ``key`` names the array. Without it the only table of numbers is taken. Text under the name ``names``,
    ``feature_names``, ``columns`` or ``features`` names the features, and 1-D arrays with one value for each row
    describe rows. Files of :func:`scipy.sparse.save_npz` are known by what they hold.
    """
    where = f"{role}: {path}"
    with readable(where, "npz"):
        check_file(path, where)
        with ZipFile(path) as archive:
            infos = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            if {"format", "shape", "data"} <= set(infos):
                check_no_key(options.key, where, "a sparse matrix")
                return as_source(_sparse(path, infos, options, where), options, role)
            members = {
                name: _member_header(archive, info, where)
                for name, info in infos.items()
                if info.filename.endswith(".npy")
            }
        chosen = pick(members, options.key, where)
        check_matrix(members[chosen], f"{where}: {chosen}")
        numbers = _numbers(path, infos[chosen], members[chosen], options, where)
        others = beside(members, chosen, partial(_whole, path, infos))
        matrix = Matrix(path, "npz", numbers, others.names, others.about, tuple(others.about))
    return as_source(matrix, options, role)


def read_header(file: IO[bytes], where: str) -> Header:
    """Read the header of an array; what follows it is not touched."""
    start = file.read(npy.MAGIC_LEN)
    if start[:-2] != npy.MAGIC_PREFIX:
        raise InputError(f"{where}: this is not an npy file (it begins with {start[:6]!r}). Give one, or rename it.")
    version = tuple(start[-2:])
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise InputError(f"{where}: npy version {version[0]}.{version[1]} is not known. Give a whole copy.")
    # Version 3 differs from 2 only in the letters that names of records may have, and records are not read.
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if any(length < 0 for length in shape):
        raise InputError(f"{where}: its header has the shape {shape}. It is damaged: give a whole copy.")
    return Header(shape, dtype, dtype.kind in "US", fortran, file.tell())


def check_whole(header: Header, size: int, where: str) -> None:
    """Refuse an array that ends before its header says so."""
    if header.offset + header.nbytes > size:
        raise InputError(
            f"{where}: it is cut short: its header promises {header.nbytes:,} bytes ({header.shape} of "
            f"{header.dtype}), and {max(size - header.offset, 0):,} follow. Give a whole copy."
        )


class ArrayFile(Numbers):
    """Numbers that lie in a file as they are, row after row or column after column.

    A file in Fortran order is one in C order with rows and columns exchanged: lines are what lies in one piece.
    """

    def __init__(self, path: Path, header: Header):
        self.path, self.header = path, header
        self.shape, self.dtype, self.nbytes = (header.shape[0], header.shape[1]), header.dtype, header.nbytes
        self._lines, self._length = self.shape[::-1] if header.fortran else self.shape
        row = self.dtype.itemsize * (1 if header.fortran else self.shape[1])
        self.grain = max(1, _NEAR // row)

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``start`` to ``stop``."""
        return self._across(start, stop).T if self.header.fortran else self._along(start, stop)

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        """Return columns ``start`` to ``stop`` of every row."""
        return self._along(start, stop).T if self.header.fortran else self._across(start, stop)

    def _along(self, start: int, stop: int) -> NDArray[Any]:
        """Read whole lines."""
        count = (stop - start) * self._length
        with self.path.open("rb") as file:
            file.seek(self.header.offset + start * self._length * self.dtype.itemsize)
            found = np.fromfile(file, self.dtype, count)
        if len(found) < count:
            raise EOFError("the file has become shorter")
        return found.reshape(stop - start, self._length)

    def _across(self, start: int, stop: int) -> NDArray[Any]:
        """Read a piece of every line: short lines as a whole, of long ones only the piece."""
        if (self._length - (stop - start)) * self.dtype.itemsize <= _NEAR:
            step = max(1, 16 * _NEAR // (self._length * self.dtype.itemsize))
            parts = [self._along(i, min(i + step, self._lines))[:, start:stop] for i in range(0, self._lines, step)]
            return np.concatenate(parts)
        found = np.empty((self._lines, stop - start), self.dtype)
        with self.path.open("rb", buffering=0) as file:
            for line in range(self._lines):
                file.seek(self.header.offset + (line * self._length + start) * self.dtype.itemsize)
                if file.readinto(found[line].data) < found[line].nbytes:
                    raise EOFError("the file has become shorter")
        return found


class PackedArray(Passed):
    """An array that is packed in an npz file: unpacked from its start, in every pass."""

    grain = 1

    def __init__(self, path: Path, info: ZipInfo, header: Header):
        self.path, self.name, self.header = path, info.filename, header
        self.shape, self.dtype, self.nbytes = (header.shape[0], header.shape[1]), header.dtype, header.nbytes

    def parts(self, step: int) -> Iterator[NDArray[Any]]:
        """Yield all rows, ``step`` at a time."""
        with ZipFile(self.path) as archive, archive.open(self.name) as file:
            file.read(self.header.offset)
            for start in range(0, self.shape[0], step):
                count = min(step, self.shape[0] - start)
                packed = file.read(count * self.shape[1] * self.dtype.itemsize)
                yield np.frombuffer(packed, self.dtype).reshape(count, self.shape[1])


def _member_header(archive: ZipFile, info: ZipInfo, where: str) -> Header:
    with archive.open(info) as file:
        header = read_header(file, f"{where}: {info.filename}")
    check_claim(info.file_size, info.compress_size, f"{where}: {info.filename}")
    if header.dtype.kind != "O":
        check_whole(header, info.file_size, f"{where}: {info.filename}")
    return header


def _numbers(path: Path, info: ZipInfo, header: Header, options: Options, where: str) -> Passed:
    """Return how to read an array in an archive: as if in a file of its own, by unpacking it, or at once."""
    if info.compress_type == ZIP_STORED and header.nbytes > options.memory:
        return ArrayFile(path, _moved(path, info, header))
    if not header.fortran:
        return PackedArray(path, info, header)
    check_held(
        header.nbytes, options.memory, where, "its rows do not follow each other (Fortran order) and are packed",
        "save it with np.savez, which does not pack",
    )  # fmt: skip
    return HeldNumbers(_whole(path, {"": info}, ""))


def _moved(path: Path, info: ZipInfo, header: Header) -> Header:
    """Return the header of an array that is stored as it is, with its place in the archive."""
    with path.open("rb") as file:
        file.seek(info.header_offset + 26)
        name, extra = struct.unpack("<HH", file.read(4))
    moved = Header(header.shape, header.dtype, header.text, header.fortran,
                   info.header_offset + 30 + name + extra + header.offset)  # fmt: skip
    check_whole(moved, path.stat().st_size, str(path))
    return moved


def _whole(path: Path, infos: dict[str, ZipInfo], name: str) -> NDArray[Any]:
    """Read an array of an archive; never a pickle."""
    with ZipFile(path) as archive, archive.open(infos[name]) as file:
        return np.asarray(npy.read_array(file, allow_pickle=False))


def _sparse(path: Path, infos: dict[str, ZipInfo], options: Options, where: str) -> Matrix:
    """Read a file of scipy.sparse.save_npz, and check its indices: scipy takes them as they are."""
    check_held(
        sum(info.file_size for info in infos.values()), options.memory, where, "a sparse npz is not read in blocks",
        "convert it to h5ad in CSR, which is",
    )  # fmt: skip
    shape = _whole(path, infos, "shape")
    check_sparse_claim([int(length) for length in shape.ravel()], path.stat().st_size, where)
    found = sparse.load_npz(path)
    if hasattr(found, "check_format"):
        found.check_format(full_check=True)
    check_matrix(Member(found.shape, found.dtype), where)
    return Matrix(path, "npz", HeldNumbers(found.tocsr()))
