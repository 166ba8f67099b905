"""Model file format: a zip archive of a JSON header and arrays, followed by checksums.

Members are stored uncompressed, so numpy can open the file as an npz. The archive comment holds the SHA-256 of the
header and, at the end, that of all preceding bytes: nothing is decoded before its checksum is verified. Decoded content
is still not trusted: sizes are checked against the file, and only arrays of plain numbers are created.

Parameters and models are encoded as JSON with a closed set of kinds, so that a file cannot create other types. JSON
values are encoded as themselves. Everything else is an object with one key, its kind: ``{"tuple": [...]}``,
``{"array": name}`` for numeric arrays, which are stored separately from the header, and so on. Records are the
dataclasses of a model; they are not allowed in parameters.

Files that are not models are identified by their first bytes, for error messages.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from hashlib import sha256
from io import BytesIO
from typing import Any, BinaryIO
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from standout import errors
from standout._cpca import ContrastiveModel
from standout._kernel_model import KERNELS, Kernel, KernelModel, Landmarks
from standout._model import Model
from standout._moments import Counts
from standout._path import SubspacePath
from standout.errors import InputError, StandoutWarning, listed
from standout.solvers.solution import Note, Signal

HEADER = "header.json"
_HEADER_START = 30 + len(HEADER)  # a zip starts with a 30-byte header of its first member, and the member's name
_SIZE = slice(18, 22)  # position of the size in that header
_START = b"PK\x03\x04"
_COMMENT = "standout model; header sha256 {}; file sha256 "
_DIGEST = 64
_SEAL = re.compile(re.escape(_COMMENT).replace(r"\{\}", "([0-9a-f]{64})").encode() + b"([0-9a-f]{64})")
_SEAL_SIZE = len(_COMMENT) - 2 + 2 * _DIGEST
# Booleans, integers and floats of 1 to 8 bytes; no object dtypes.
_NUMBERS = re.compile(r"\|b1|\|[iu]1|[<>][iu][248]|[<>]f[248]")
# Exceptions that zipfile may raise for malformed bytes.
_BAD_ZIP = (BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, KeyError, OSError, struct.error)
_FIT = "Fit the model and save it with standout.save."
_DATA = "Use standout.read for data, and give load a file that standout.save wrote."
_PICKLE = (
    "and pickles are never loaded, since loading one can run any code. Fit the model and save it with standout.save."
)
_STARTS = (
    (b"PK\x03\x04", f"a zip archive (an npz or the like), but none that standout.save wrote. {_DATA}"),
    (b"\x93NUMPY", f"an array in numpy's format. {_DATA}"),
    (b"\x89HDF", f"an HDF5 file. {_DATA}"),
    (b"PAR1", f"a parquet file. {_DATA}"),
    (b"\x1f\x8b", f"packed with gzip; if joblib packed it, it is a pickle, {_PICKLE}"),
    (b"\x78", f"packed with zlib; if joblib packed it, it is a pickle, {_PICKLE}"),
    (b"BZh", f"packed with bzip2; if joblib packed it, it is a pickle, {_PICKLE}"),
    (b"\xfd7zXZ", f"packed with xz; if joblib packed it, it is a pickle, {_PICKLE}"),
)
_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"ccopy_reg\n")
_TEXT = frozenset({9, 10, 13, *range(32, 127), *range(128, 256)})
RECORDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (Model, ContrastiveModel, KernelModel, Signal, SubspacePath, Landmarks, Kernel, Counts, Note)
}
# Former names of records and their fields, in files of earlier versions.
_FORMER_NAMES = {"Path": "SubspacePath", "plain_ratios": "unshrunk_ratios"}

_WARNINGS = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, StandoutWarning)
}
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
# The arrays of each sparse format; formats not listed are stored as CSR.
_SPARSE = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "coo": ("data", "row", "col"),
    "dia": ("data", "offsets"),
}
_AS_CSR = ("bsr", "dok", "lil")
_CLASSES = {f"{form}_{kind}" for form in (*_SPARSE, *_AS_CSR) for kind in ("array", "matrix")}
# A string array pads every entry to the longest, so a short file could request a lot of memory.
_MOST_TEXT = 2**22


class MalformedError(ValueError):
    """Raised for invalid file content; reported to the user as a ModelFileError with the file name."""


@dataclass(frozen=True)
class Content:
    """Content of a file: the header, and arrays by the names used in the header."""

    header: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def can_hold(code: Any) -> bool:
    """Return whether a dtype, given by its code in an npy file, is supported."""
    return isinstance(code, str) and _NUMBERS.fullmatch(code) is not None


def is_shape(value: Any) -> bool:
    """Return whether a JSON value is a valid array shape."""
    return isinstance(value, list) and len(value) <= 8 and all(type(n) is int and 0 <= n < 2**40 for n in value)


def seems_ours(file: BinaryIO) -> bool:
    """Return whether a file, judged by its start and end, was written by pack, even if damaged since."""
    start = file.read(_HEADER_START)
    file.seek(max(0, file.seek(0, 2) - _SEAL_SIZE))
    return (start.startswith(_START) and start.endswith(HEADER.encode())) or _SEAL.fullmatch(file.read()) is not None


def pack(content: Content) -> bytes:
    """Return the bytes of a file; they are deterministic for the same content."""
    table = {name: _described(array) for name, array in content.arrays.items()}
    text = json.dumps({**content.header, "arrays": table}, allow_nan=False, separators=(",", ":")).encode("ascii")
    buffer = BytesIO()
    with ZipFile(buffer, "w", ZIP_STORED) as archive:
        archive.writestr(_member(HEADER), text)
        for name, array in content.arrays.items():
            archive.writestr(_member(f"{name}.npy"), _npy_start(table[name]) + array.tobytes("A"))
        archive.comment = _COMMENT.format(_hex(text)).encode() + b"0" * _DIGEST
    body = buffer.getvalue()[:-_DIGEST]
    return body + _hex(body).encode()


def unpack(blob: bytes) -> Content:
    """Return the content of a file, or raise MalformedError."""
    if blob[-_DIGEST:] != _hex(memoryview(blob)[:-_DIGEST]).encode():
        raise MalformedError("its checksum does not match its content")
    header = peek(BytesIO(blob))
    table = header.pop("arrays")
    try:
        with ZipFile(BytesIO(blob)) as archive:
            _check_members(archive, table, len(blob))
            arrays = {name: _array(archive.read(f"{name}.npy"), entry) for name, entry in table.items()}
    except MalformedError:
        raise
    except _BAD_ZIP as error:
        raise MalformedError("its archive cannot be read") from error
    return Content(header, arrays)


def peek(file: BinaryIO) -> dict[str, Any]:
    """Return the header of a file, reading only its start and end, or raise MalformedError."""
    size = file.seek(0, 2)
    file.seek(max(0, size - _SEAL_SIZE))
    seal = _SEAL.fullmatch(file.read())
    file.seek(0)
    start = file.read(_HEADER_START)
    if seal is None or not start.startswith(_START) or not start.endswith(HEADER.encode()):
        raise MalformedError("its first or last bytes are not those of a whole model")
    text = file.read(min(int.from_bytes(start[_SIZE], "little"), size))
    if _hex(text).encode() != seal[1]:
        raise MalformedError("the checksum of its header does not match")
    try:
        header = json.loads(text.decode("ascii"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise MalformedError("its header is not JSON") from error
    if not isinstance(header, dict) or not isinstance(header.get("arrays"), dict):
        raise MalformedError("its header does not list arrays")
    return header


def _hex(data: bytes | memoryview) -> str:
    return sha256(data).hexdigest()


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _member(name: str) -> ZipInfo:
    # Date and system of the writer would make the bytes non-deterministic.
    member = ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    member.create_system = 3
    member.external_attr = 0o644 << 16
    return member


def _described(array: NDArray[Any]) -> dict[str, Any]:
    # Memory order affects the last bit, because products may be summed in memory order.
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    return {"dtype": array.dtype.str, "shape": list(array.shape), "fortran_order": bool(fortran)}


def _npy_start(entry: Mapping[str, Any]) -> bytes:
    """Return the header bytes of an npy file (format 1.0), up to the start of the data."""
    shape = tuple(entry["shape"])
    text = f"{{'descr': '{entry['dtype']}', 'fortran_order': {entry['fortran_order']}, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("ascii")


def _check_members(archive: ZipFile, table: dict[str, Any], size: int) -> None:
    members = archive.infolist()
    if [member.filename for member in members] != [HEADER, *(f"{name}.npy" for name in table)]:
        raise MalformedError("its members are not those its header lists")
    if any(member.compress_type != ZIP_STORED or member.compress_size != member.file_size for member in members):
        raise MalformedError("its members are packed")
    if sum(member.file_size for member in members) > size:
        raise MalformedError("its members are larger than the file")


def _array(data: bytes, entry: Any) -> NDArray[Any]:
    """Return the array of a member, whose npy header must match the JSON header and whose length must be right."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "fortran_order"}:
        raise MalformedError("an array is not described")
    code, shape, fortran = entry["dtype"], entry["shape"], entry["fortran_order"]
    if not (can_hold(code) and is_shape(shape) and isinstance(fortran, bool)):
        raise MalformedError("an array is not one of numbers")
    start, dtype = _npy_start(entry), np.dtype(code)
    if not data.startswith(start) or len(data) != len(start) + math.prod(shape) * dtype.itemsize:
        raise MalformedError("an array is not of the size its header has")
    flat = np.frombuffer(data, dtype, offset=len(start))
    return flat.reshape(shape, order="F" if fortran else "C").copy(order="K")


def what_it_is(head: bytes) -> str:
    r"""Return, from its first bytes, what a file that is not a model is, and what to do.

    Examples
    --------
    >>> what_it_is(b"")
    'it is empty. Fit the model and save it with standout.save.'
    >>> what_it_is(b"name,weight\r\n")
    'it is a text file. Use standout.read for data, and give load a file that standout.save wrote.'
    """
    if not head:
        return f"it is empty. {_FIT}"
    if head.startswith(_PICKLES):
        return f"it is a {'joblib' if b'joblib' in head else 'pickle'} file, {_PICKLE}"
    text = set(head) <= _TEXT  # "x,y" also starts with the zlib byte
    for start, what in _STARTS:
        if head.startswith(start) and not text:
            return f"it is {what}"
    if text:
        return f"it is a text file. {_DATA}"
    return f"it is not a model. {_DATA}"


@dataclass
class Encoder:
    """Encoder of values as JSON; numeric arrays are collected by name, and records are accepted if allowed."""

    arrays: dict[str, NDArray[Any]]
    records: Mapping[str, Any] = field(default_factory=dict)

    def encode(self, value: Any, name: str) -> Any:
        """Return a value as JSON; ``name`` is its path, used for its arrays and in messages."""
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if kind is list:
            return self._items(value, name)
        if kind is tuple:
            return {"tuple": self._items(value, name)}
        if kind is dict:
            return {"dict": [self._items(pair, f"{name}.{i}") for i, pair in enumerate(value.items())]}
        if kind is np.ndarray:
            return self._array(value, name)
        if kind is np.str_:
            return {"scalar": ["U", str(value)]}
        if isinstance(value, np.generic) and can_hold(value.dtype.str):
            return {"scalar": [value.dtype.str, self.encode(value.item(), name)]}
        if sparse.issparse(value) and value.ndim == 2 and can_hold(value.dtype.str):
            return {"sparse": self._sparse(value, name)}
        if self.records.get(kind.__name__) is kind:
            own = {item.name: self.encode(getattr(value, item.name), f"{name}.{item.name}") for item in fields(value)}
            return {"record": [kind.__name__, own]}
        if self.records and isinstance(value, type) and value in _WARNINGS.values():
            return {"warning": value.__name__}
        raise _refused(value, name)

    def _items(self, values: Any, name: str) -> list[Any]:
        return [self.encode(value, f"{name}.{i}") for i, value in enumerate(values)]

    def _array(self, value: NDArray[Any], name: str) -> Any:
        if value.dtype.kind in "OU":
            items = self._items(value.ravel().tolist(), name)
            return {"labels": [value.dtype.kind, list(value.shape), items]}
        if not can_hold(value.dtype.str):
            raise _refused(value, name)
        self.arrays[name] = value
        return {"array": name}

    def _sparse(self, value: Any, name: str) -> list[Any]:
        kind = f"{value.format}_{'array' if isinstance(value, sparse.sparray) else 'matrix'}"
        kept = value.tocsr() if value.format in _AS_CSR else value
        parts = {part: self._array(getattr(kept, part), f"{name}.{part}") for part in _SPARSE[kept.format]}
        return [kind, [int(n) for n in value.shape], parts]


def _refused(value: Any, name: str) -> InputError:
    where = name.split(".")[1]
    what = f"an array of type {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
    if where == "kernel":
        what, remedy = "a function", f"Use one of the kernels {listed(KERNELS)} for a model that is to be kept."
    elif isinstance(value, np.random.Generator | np.random.RandomState):
        remedy = f"Call set_params({where}=0), or another whole number: the fit stays as it is."
    else:
        remedy = f"Call set_params({where}=...) with numbers, text, lists, dicts or numpy arrays of the same meaning."
    return InputError(f"{where}: a model file cannot hold {what}. {remedy}")


@dataclass
class Decoder:
    """Decoder of values from JSON; each array can be used once, and records are accepted only if allowed."""

    arrays: dict[str, NDArray[Any]]
    records: Mapping[str, Any] = field(default_factory=dict)

    def decode(self, code: Any) -> Any:
        """Return the decoded value, or raise MalformedError."""
        if code is None or isinstance(code, bool | int | float | str):
            return code
        if isinstance(code, list):
            return [self.decode(item) for item in code]
        if not isinstance(code, dict) or len(code) != 1:
            raise MalformedError("a value is of no known kind")
        ((kind, content),) = code.items()
        known: dict[str, Callable[[Any], Any]] = {
            "float": _float, "tuple": self._tuple, "dict": self._dict, "array": self._array, "labels": self._labels,
            "scalar": self._scalar, "sparse": self._sparse,
        }  # fmt: skip
        if self.records:
            known |= {"record": self._record, "warning": _warning}
        if kind not in known:
            raise MalformedError("a value is of no known kind")
        return known[kind](content)

    def _tuple(self, content: Any) -> tuple[Any, ...]:
        return tuple(self.decode(_list(content)))

    def _dict(self, content: Any) -> dict[Any, Any]:
        return dict(self.decode([_list(pair, 2) for pair in _list(content)]))

    def _array(self, content: Any) -> NDArray[Any]:
        if not isinstance(content, str) or content not in self.arrays:
            raise MalformedError("an array is missing")
        return self.arrays.pop(content)

    def _labels(self, content: Any) -> NDArray[Any]:
        kind, shape, items = _list(content, 3)
        values = self.decode(_list(items))
        if kind not in ("O", "U") or not is_shape(shape) or math.prod(shape) != len(values):
            raise MalformedError("labels do not fit their shape")
        if kind == "U":
            if not all(isinstance(value, str) and len(value) * len(values) <= _MOST_TEXT for value in values):
                raise MalformedError("labels are not text, or too long")
            return np.array(values, dtype=str).reshape(shape)
        array = np.empty(len(values), dtype=object)
        for i, value in enumerate(values):
            array[i] = value
        return array.reshape(shape)

    def _scalar(self, content: Any) -> Any:
        code, value = _list(content, 2)
        value = self.decode(value)
        if code == "U" and isinstance(value, str):
            return np.str_(value)
        if not can_hold(code) or not isinstance(value, bool | int | float):
            raise MalformedError("a number is of no known type")
        return np.dtype(code).type(value)

    def _sparse(self, content: Any) -> Any:
        name, shape, parts = _list(content, 3)
        form = str(name).partition("_")[0]
        kept = "csr" if form in _AS_CSR else form
        if name not in _CLASSES or not is_shape(shape) or len(shape) != 2 or not isinstance(parts, dict):
            raise MalformedError("a sparse matrix is of no known kind")
        if set(parts) != set(_SPARSE[kept]):
            raise MalformedError("a sparse matrix lacks a part")
        data, *index = (self.decode(parts[part]) for part in _SPARSE[kept])
        if not isinstance(data, np.ndarray) or not all(isinstance(part, np.ndarray) for part in index):
            raise MalformedError("a sparse matrix is not made of arrays")
        if any(part.dtype.kind != "i" or part.ndim != 1 for part in index):
            raise MalformedError("a sparse matrix has places that are no whole numbers")
        matrix = _made(kept, name.endswith("array"), data, index, tuple(shape))
        return matrix.asformat(form)

    def _record(self, content: Any) -> Any:
        name, codes = _list(content, 2)
        name = _FORMER_NAMES.get(name, name) if isinstance(name, str) else name
        if not isinstance(name, str) or name not in self.records or not isinstance(codes, dict):
            raise MalformedError("a record is of no known kind")
        codes = {_FORMER_NAMES.get(field, field): code for field, code in codes.items()}
        kind = self.records[name]
        own = {item.name: item for item in fields(kind)}
        needed = {name for name, item in own.items() if item.default is MISSING}
        if not needed <= set(codes) <= set(own):
            raise MalformedError(f"a {name} has other fields than are known")
        return kind(**{name: self.decode(code) for name, code in codes.items()})


def _made(form: str, is_array: bool, data: NDArray[Any], index: list[NDArray[Any]], shape: tuple[int, ...]) -> Any:
    """Return a sparse matrix from its parts, after checking that all indices are in range."""
    make = getattr(sparse, f"{form}_{'array' if is_array else 'matrix'}")
    if form == "coo":
        return make((data, (index[0], index[1])), shape=shape)
    if form == "dia":
        if data.ndim != 2 or ((index[0] <= -max(shape)) | (index[0] >= max(shape))).any():
            raise MalformedError("a sparse matrix has diagonals outside itself")
        return make((data, index[0]), shape=shape)
    matrix = make((data, index[0], index[1]), shape=shape)
    matrix.check_format(full_check=True)
    return matrix


def _list(content: Any, length: int | None = None) -> list[Any]:
    if not isinstance(content, list) or (length is not None and len(content) != length):
        raise MalformedError("a list is missing or of another length")
    return content


def _float(content: Any) -> float:
    if not isinstance(content, str) or content not in _NOT_FINITE:
        raise MalformedError("a number is not one")
    return _NOT_FINITE[content]


def _warning(content: Any) -> type[StandoutWarning]:
    if not isinstance(content, str) or content not in _WARNINGS:
        raise MalformedError("a warning is of no known kind")
    return _WARNINGS[content]
