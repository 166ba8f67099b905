"""MATLAB files: version 5 (also called 6 and 7), and version 7.3, which is HDF5.

Only numeric, logical and sparse arrays are read as rows, and only text is read from cell arrays. MATLAB stores columns
one after the other, so that HDF5 has the axes in reverse order. A vector with one value for each row is a metadata
column, whether it is a row or a column.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout.errors import InputError
from standout.io import matrix as files
from standout.io.arrays import Store, open_hdf5
from standout.io.matrix import ChunkedReader, InMemoryReader, MatrixFile, MatrixReader, Member
from standout.io.memory import sparse_from_parts
from standout.io.options import Options
from standout.io.source import Source, readable

# The classes of MATLAB by number in version 5 (sparse matrices are of doubles or logicals), and types of numbers.
_CLASSES = {4: "char", 1: "cell", 5: "sparse", 6: "double", 7: "single"}
_CLASSES |= {8 + i: f"{'u' * (i % 2)}int{8 << i // 2}" for i in range(8)}
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_NUMERIC = ("sparse", "logical", "double", "single", *list(_CLASSES.values())[5:])
_COMPRESSED, _MAX_HEADER, _MAX_TEXT = 15, 2**12, 2**28  # type; bytes of the header of a variable, and of text
_Elements = list[tuple[int, bytes]]  # types and bytes
_Variable = tuple[str, tuple[int, ...], Member, int]  # class, shape, description, and position in the file


def open_mat(path: Path, options: Options, role: str) -> Source:
    """Return the source of a MATLAB file; ``key`` names the variable, by default the only matrix."""
    location = f"{role}: {path}"
    with readable(location, "MATLAB", path):
        with path.open("rb") as file:
            header = file.read(128)
        if header.startswith((b"\x89HDF", b"MATLAB 7.3 ")):
            return open_hdf5(path, options, role)
        if header[124:] not in (b"\0\1IM", b"\1\0MI"):
            problem = "this is not a MATLAB file of version 5 to 7.3"
            raise InputError(f"{location}: {problem}. Give an intact copy, or one saved with save(..., '-v7').")
        file5 = _File5(path, "<" if header[126:] == b"IM" else ">")
        members = {name: member for name, (_, _, member, _) in file5.variables().items()}
        matrix = _described(path, members, file5.column, file5.reader, options, location)
    return files.as_source(matrix, options, role)


def _described(
    path: Path, members: Mapping[str, Member], read: Callable[[str], NDArray[Any]],
    reader_of: Callable[[str, Options, str], MatrixReader], options: Options, location: str,
) -> MatrixFile:  # fmt: skip
    """Choose the variable that holds the rows, and find its names and metadata among the others."""
    key = None if options.key is None else options.key.strip("/")
    vectors = {
        name: replace(member, shape=(math.prod(member.shape),))
        for name, member in members.items()
        if len(member.shape) == 2 and 1 in member.shape and name != key
    }
    if key is None and not any(member.is_numeric(2 + options.cube) for member in {**members, **vectors}.values()):
        vectors = {name: member for name, member in vectors.items() if member.text}  # a single feature, or a single row
    known = {**members, **vectors}
    chosen = files.choose_array(known, options.key, location, options.cube)
    where = f"{location}: {chosen}"
    files.check_matrix(known[chosen], where, options.cube)
    reader = reader_of(chosen, options, where)
    names, metadata = files.sibling_columns(known, chosen, read, location)
    aside: list[str] = []
    for name, column in metadata.items():
        with suppress(ValueError):  # cells may hold anything
            aside += [name] if len(column()) else []
    return MatrixFile(path, "MATLAB", reader, names, metadata, tuple(aside), deferred=True)


@dataclass(frozen=True)
class _File5:
    """A file of version 5: a sequence of elements, each with its type and length; arrays are elements of elements.

    scipy is not used, as it crashes on damaged files and on cells that are nested deeply.
    """

    path: Path
    order: str  # of bytes

    def variables(self) -> dict[str, _Variable]:
        """Return the variables that are numbers or text."""
        found: dict[str, _Variable] = {}
        start, size = 128, self.path.stat().st_size
        while start < size:
            (flags, dims, named), end = self._elements_at(start, _MAX_HEADER, 3)
            if end > size:
                raise ValueError("it is truncated")
            bits, shape = (struct.unpack(f"{self.order}{len(each) // 4}i", each) for _, each in (flags, dims))
            kind, name = _CLASSES.get(bits[0] & 255, ""), named[1].decode("latin-1")
            if kind and name.isidentifier() and min(shape, default=-1) >= 0 and not (kind == "sparse" and 1 in shape):
                text = kind in ("char", "cell")
                dtype = object if text else complex if bits[0] & 0x800 else "f8" if kind == "sparse" else kind
                member = Member(shape[:1] if kind == "char" else shape, np.dtype(dtype), text)
                found[name] = (kind, shape, member, start)
            start = end
        return found

    def _elements_at(self, start: int, limit: int, most: int | None = None) -> tuple[_Elements, int]:
        """Return the elements of the variable at ``start``, from so many bytes of it at most, and where it ends."""
        with self.path.open("rb") as file:
            file.seek(start)
            kind, count = struct.unpack(f"{self.order}II", file.read(8))
            body = file.read(min(count, limit))
        body = zlib.decompressobj().decompress(body, limit)[8:] if kind == _COMPRESSED else body
        return self._elements(body, most), start + 8 + count

    def _elements(self, body: bytes, most: int | None = None) -> _Elements:
        """Return the elements in some bytes; up to four bytes are stored in the tag itself."""
        found: _Elements = []
        start = 0
        while start + 8 <= len(body) and len(found) != most:
            kind, count = struct.unpack_from(f"{self.order}II", body, start)
            small = kind >> 16
            first, count = (start + 4, small) if small else (start + 8, count)
            found.append((kind & 0xFFFF, body[first : first + count]))
            start = start + 8 if small else first + count + -count % 8
        return found

    def column(self, name: str) -> NDArray[Any]:
        """Return the values of a vector or image: numbers, or text as an array of strings."""
        kind, shape, _, start = self.variables()[name]
        parts = self._elements_at(start, _MAX_TEXT)[0]
        if kind == "cell":
            return np.array(["".join(self._texts(self._elements(cell))) for _, cell in parts[3:]], dtype=object)
        if kind == "char":
            return np.array(self._texts(parts), dtype=object)
        return self._numbers(parts[3]).reshape(shape, order="F")

    def reader(self, name: str, options: Options, location: str) -> InMemoryReader:
        """Return the reader of a matrix or cube."""
        kind, shape, member, start = self.variables()[name]
        nbytes = size = self.path.stat().st_size
        if kind == "sparse":
            files.check_sparse_shape(shape, size, location)
        else:
            files.check_size(math.prod(shape), size, location)  # small whole numbers take one byte
            nbytes = member.nbytes
        reason = "a MATLAB file of version 5 cannot be read in blocks"
        files.check_fits(nbytes, options.memory, location, reason, "save it with save(..., '-v7.3'), which can")
        limit = _MAX_HEADER + (options.memory if kind == "sparse" else nbytes)
        parts = [self._numbers(part) for part in self._elements_at(start, limit)[0][3:6]]
        if kind != "sparse":
            return InMemoryReader(parts[0].reshape(shape, order="F").reshape(-1, shape[-1]))
        indices, indptr, data = parts
        found = {"data": data[: indptr[-1]], "indices": indices[: indptr[-1]], "indptr": indptr}
        return InMemoryReader(sparse_from_parts("csc", found, shape).tocsr())

    def _numbers(self, part: tuple[int, bytes]) -> NDArray[Any]:
        stored = np.frombuffer(part[1], f"{self.order}{_STORED[part[0]]}")
        return stored.astype(stored.dtype.newbyteorder("="), copy=False)

    def _texts(self, parts: _Elements) -> list[str]:
        """Return the rows of an array of characters."""
        (_, flags), (_, dims), _, (kind, data) = parts[:4]
        if flags[0 if self.order == "<" else 3] != 4:
            raise ValueError("a cell array contains values that are not text")
        suffix = "-le" if self.order == "<" else "-be"
        codec = {16: "utf-8", 4: f"utf-16{suffix}", 17: f"utf-16{suffix}", 18: f"utf-32{suffix}"}.get(kind, "latin-1")
        shape = struct.unpack(f"{self.order}{len(dims) // 4}i", dims)
        letters = np.array(list(data.decode(codec)), dtype=object).reshape(shape[:2], order="F")
        return ["".join(line).rstrip() for line in letters]


# Version 7.3


def stored_matrix(store: Store, items: Mapping[str, Any], options: Options) -> MatrixFile:
    """Return the matrix of an open file of version 7.3, whose variables are the ``items`` of its root."""
    members: dict[str, Member] = {}
    for name, item in items.items():
        kind = files.as_names([item.attrs.get("MATLAB_class", "")])[0]
        if "/" in name or item.attrs.get("MATLAB_empty", 0):  # a part of a structure, cell or sparse matrix
            continue
        shape = (getattr(item, "shape", None) or ())[::-1]
        if "MATLAB_sparse" in item.attrs and "data" in item:
            shape = (int(item.attrs["MATLAB_sparse"]), item["jc"].shape[0] - 1)
            members |= {} if 1 in shape else {name: Member(shape, item["data"].dtype)}
        elif kind in ("char", "cell") and len(shape) == 2:
            members[name] = Member(shape[:1] if kind == "char" else shape, np.dtype(object), text=True)
        elif shape and (kind in _NUMERIC or not kind):
            complex_number = item.dtype.names == ("real", "imag")
            members[name] = Member(shape, np.dtype(complex) if complex_number else item.dtype)
    read, reader_of = partial(_read_stored, store), partial(_stored_reader, store, items)
    return _described(store.path, members, read, reader_of, options, store.location)


def _read_stored(store: Store, name: str) -> NDArray[Any]:
    """Return a vector or an image of numbers, or text as an array of strings."""
    with store.open() as root:
        item = root[name]
        store.check(item)
        kind = files.as_names([item.attrs.get("MATLAB_class", "")])[0]
        values = np.asarray(item[...]).T
        if kind == "char":
            return np.array([_text(line) for line in values], dtype=object)
        if kind != "cell":
            return values if min(values.shape) > 1 else values.ravel()
        texts = [root[reference] for reference in values.ravel()]
        if any(files.as_names([text.attrs.get("MATLAB_class", "")]) != ("char",) for text in texts):
            raise ValueError(f"{name} contains values that are not text")
        for text in texts:
            store.check(text)
        return np.array([_text(text[...]) if not text.attrs.get("MATLAB_empty") else "" for text in texts], object)


def _text(codes: Any) -> str:
    return "".join(map(chr, np.asarray(codes).ravel())).rstrip()


def _stored_reader(store: Store, items: Mapping[str, Any], name: str, options: Options, location: str) -> MatrixReader:
    """Return the reader of an array on disk; a sparse matrix is stored by columns and loaded into memory."""
    item = items[name]
    if "MATLAB_sparse" not in item.attrs:
        store.check(item)
        return ChunkedReader(partial(store.item, name), item, reverse=True)
    shape = (int(item.attrs["MATLAB_sparse"]), item["jc"].shape[0] - 1)
    stored = {"data": item["data"], "indices": item["ir"], "indptr": item["jc"]}
    files.check_sparse_parts(stored, shape, store.size, location)
    nbytes = sum(int(part.nbytes) for part in stored.values())
    reason, remedy = "a sparse MATLAB matrix cannot be read in blocks of rows", "convert it to h5ad in CSR, which can"
    files.check_fits(nbytes, options.memory, location, reason, remedy)
    with store.item(name) as group:
        parts = {part: np.asarray(group[key][...]) for part, key in zip(stored, ("data", "ir", "jc"), strict=True)}
    return InMemoryReader(sparse_from_parts("csc", parts, shape).tocsr())
