"""Model file format: a zip archive of a JSON header and arrays, followed by checksums.

Members are stored uncompressed, so numpy can open the file as an npz. The archive comment holds the SHA-256 of the
header and, at the end, that of all preceding bytes: nothing is decoded before its checksum is verified. Decoded content
is still not trusted: sizes are checked against the file, and only arrays of plain numbers are created.

Parameters and models are encoded as JSON with a closed set of kinds, so that a file cannot create other types. JSON
values are encoded as themselves. Everything else is an object with one key, its kind: ``{"tuple": [...]}``,
``{"array": name}`` for numeric arrays, which are stored separately from the header, and so on. Records are the
dataclasses of a model; they are not allowed in parameters.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from hashlib import sha256
from io import BytesIO
from typing import Any, BinaryIO
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from standout import errors
from standout._cpca import ContrastiveModel, SubspacePath
from standout._kernel_model import KERNELS, Kernel, KernelModel, Landmarks
from standout._model import Model
from standout._moments import Counts
from standout.errors import InputError, ModelFileError, StandoutWarning, listed
from standout.io.memory import SPARSE_PARTS, sparse_from_parts
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

# First bytes of other files, for error messages.
_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"ccopy_reg\n")
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x78": "zlib", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
_DATA = {
    _START: "a zip archive that is not a model", b"\x93NUMPY": "an array in numpy's format",
    b"\x89HDF": "an HDF5 file", b"PAR1": "a parquet file",
}  # fmt: skip
_TEXT = frozenset({9, 10, 13, *range(32, 127), *range(128, 256)})

RECORDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (Model, ContrastiveModel, KernelModel, Signal, SubspacePath, Landmarks, Kernel, Counts, Note)
}
# Former names of records and their fields, in files of earlier versions.
_FORMER_NAMES = {"Path": "SubspacePath", "plain_ratios": "unshrunk_ratios", "p_value": "known_p_value"}
_WARNINGS = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, StandoutWarning)
}
# Sparse matrices are stored as CSR. Files of earlier versions hold other forms, and CSR for these.
_FORMERLY_AS_CSR = ("bsr", "dok", "lil")
# A string array pads every entry to the longest, so a short file could request a lot of memory.
_MAX_TEXT = 2**22


class MalformedError(ValueError):
    """Raised for invalid file content; reported to the user as a ModelFileError with the file name."""


def pack(header: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the bytes of a file; they are deterministic for the same content."""
    # Memory order affects the last bit, because products may be summed in memory order.
    table = {
        name: {
            "dtype": array.dtype.str,
            "shape": list(array.shape),
            "fortran_order": bool(array.flags.f_contiguous and not array.flags.c_contiguous),
        }
        for name, array in arrays.items()
    }
    text = json.dumps({**header, "arrays": table}, allow_nan=False, separators=(",", ":")).encode("ascii")
    buffer = BytesIO()
    with ZipFile(buffer, "w", ZIP_STORED) as archive:
        archive.writestr(_member(HEADER), text)
        for name, array in arrays.items():
            archive.writestr(_member(f"{name}.npy"), _npy_start(table[name]) + array.tobytes("A"))
        archive.comment = _COMMENT.format(_hex(text)).encode() + b"0" * _DIGEST
    body = buffer.getvalue()[:-_DIGEST]
    return body + _hex(body).encode()


def unpack(file: BinaryIO) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return header and arrays of a file, or raise MalformedError."""
    header = peek(file)
    table = header.pop("arrays")
    file.seek(0)
    blob = file.read()
    if blob[-_DIGEST:] != _hex(memoryview(blob)[:-_DIGEST]).encode():
        raise MalformedError("its checksum does not match its content")
    try:
        with ZipFile(BytesIO(blob)) as archive:
            _check_members(archive, table, len(blob))
            return header, {name: _array(archive.read(f"{name}.npy"), entry) for name, entry in table.items()}
    except MalformedError:
        raise
    except _BAD_ZIP as error:
        raise MalformedError("its archive cannot be read") from error


def peek(file: BinaryIO) -> dict[str, Any]:
    """Return the header of a file, reading only its start and end; raise an error if it is damaged or not a model."""
    size = file.seek(0, 2)
    file.seek(max(0, size - _SEAL_SIZE))
    seal = _SEAL.fullmatch(file.read())
    file.seek(0)
    start = file.read(_HEADER_START)
    starts = start.startswith(_START) and start.endswith(HEADER.encode())
    if seal is None and not starts:
        raise ModelFileError(describe_other_file(start + file.read(4096)))
    if seal is None or not starts:
        raise MalformedError("its first or last bytes are missing")
    text = file.read(min(int.from_bytes(start[_SIZE], "little"), size))
    if _hex(text).encode() != seal[1]:
        raise MalformedError("the checksum of its header does not match")
    try:
        header = json.loads(text.decode("ascii"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise MalformedError("its header is not JSON") from error
    if not isinstance(header, dict) or not isinstance(header.get("arrays"), dict):
        raise MalformedError("its header does not list arrays")
    return header


def _hex(data: bytes | memoryview) -> str:
    return sha256(data).hexdigest()


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _member(name: str) -> ZipInfo:
    # Date and system of the writer would make the bytes non-deterministic.
    member = ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    member.create_system = 3
    member.external_attr = 0o644 << 16
    return member


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
        raise MalformedError("its members are compressed")
    if sum(member.file_size for member in members) > size:
        raise MalformedError("its members are larger than the file")


def _array(data: bytes, entry: Any) -> NDArray[Any]:
    """Return the array of a member, whose npy header must match the JSON header and whose length must be right."""
    match entry:
        case {"dtype": code, "shape": shape, "fortran_order": bool(fortran), **rest} if not rest:
            if not (_is_numeric(code) and _is_shape(shape)):
                raise MalformedError("an array is not numeric")
        case _:
            raise MalformedError("the description of an array is not valid")
    start, dtype = _npy_start(entry), np.dtype(code)
    if not data.startswith(start) or len(data) != len(start) + math.prod(shape) * dtype.itemsize:
        raise MalformedError("the size of an array differs from its header")
    flat = np.frombuffer(data, dtype, offset=len(start))
    return flat.reshape(shape, order="F" if fortran else "C").copy(order="K")


def _is_numeric(code: Any) -> bool:
    """Return whether a dtype, given by its code in an npy file, is supported."""
    return isinstance(code, str) and _NUMBERS.fullmatch(code) is not None


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= 8 and all(type(n) is int and 0 <= n < 2**40 for n in value)


def describe_other_file(head: bytes) -> str:
    """Return, from its first bytes, what a file that is not a model is, and what to do."""
    fit = "Fit the model and save it with standout.save."
    pickles = f"and pickles are never loaded, since loading one can run any code. {fit}"
    if not head:
        return f"it is empty. {fit}"
    if head.startswith(_PICKLES):
        return f"it is a {'joblib' if b'joblib' in head else 'pickle'} file, {pickles}"
    found = "a text file" if set(head) <= _TEXT else "not a model"
    if found == "not a model":  # "x,y" also starts with the zlib byte
        for start, method in _COMPRESSED.items():
            if head.startswith(start):
                return f"it is compressed with {method}; if joblib wrote it, it is a pickle, {pickles}"
        found = next((what for start, what in _DATA.items() if head.startswith(start)), found)
    return f"it is {found}. Use standout.read for data, and give load a file that standout.save wrote."


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
        if isinstance(value, np.generic) and _is_numeric(value.dtype.str):
            return {"scalar": [value.dtype.str, self.encode(value.item(), name)]}
        if sparse.issparse(value) and value.ndim == 2 and _is_numeric(value.dtype.str):
            return {"sparse": self._sparse(value, name)}
        if self.records.get(kind.__name__) is kind:
            own = {item.name: self.encode(getattr(value, item.name), f"{name}.{item.name}") for item in fields(value)}
            return {"record": [kind.__name__, own]}
        if self.records and isinstance(value, type) and value in _WARNINGS.values():
            return {"warning": value.__name__}
        raise _unsupported(value, name)

    def _items(self, values: Any, name: str) -> list[Any]:
        return [self.encode(value, f"{name}.{i}") for i, value in enumerate(values)]

    def _array(self, value: NDArray[Any], name: str) -> Any:
        if value.dtype.kind in "OU":
            return {"labels": [value.dtype.kind, list(value.shape), self._items(value.ravel().tolist(), name)]}
        if not _is_numeric(value.dtype.str):
            raise _unsupported(value, name)
        self.arrays[name] = value
        return {"array": name}

    def _sparse(self, value: Any, name: str) -> list[Any]:
        kind, stored = "csr_array" if isinstance(value, sparse.sparray) else "csr_matrix", value.tocsr()
        parts = {part: self._array(getattr(stored, part), f"{name}.{part}") for part in SPARSE_PARTS["csr"]}
        return [kind, [int(n) for n in value.shape], parts]


def _unsupported(value: Any, name: str) -> InputError:
    parameter = name.split(".")[1]
    what = f"an array of type {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
    remedy = f"Call set_params({parameter}=...) with numbers, text, lists, dicts or numpy arrays of the same meaning."
    if parameter == "kernel":
        what, remedy = "a function", f"Use one of the kernels {listed(KERNELS)} for a model that is to be saved."
    elif isinstance(value, np.random.Generator | np.random.RandomState):
        remedy = f"Call set_params({parameter}=0), or another integer: the fit does not change."
    return InputError(f"{parameter}: a model file cannot hold {what}. {remedy}")


@dataclass
class Decoder:
    """Decoder of values from JSON; each array can be used once, and records are accepted only if allowed."""

    arrays: dict[str, NDArray[Any]]
    records: Mapping[str, Any] = field(default_factory=dict)

    def decode(self, code: Any) -> Any:
        """Return the decoded value, or raise MalformedError."""
        if isinstance(code, dict) and len(code) != 1:  # patterns of mappings ignore other keys
            raise MalformedError("a value is not supported")
        match code:
            case None | bool() | int() | float() | str():
                return code
            case list():
                return [self.decode(item) for item in code]
            case {"float": "nan" | "inf" | "-inf" as number}:
                return float(number)
            case {"tuple": list(items)}:
                return tuple(self.decode(items))
            case {"dict": list(pairs)} if all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
                return dict(self.decode(pairs))
            case {"array": str(name)} if name in self.arrays:
                return self.arrays.pop(name)
            case {"labels": ["O" | "U" as kind, shape, list(items)]} if _is_shape(shape):
                return _labels(kind, shape, self.decode(items))
            case {"scalar": ["U", str(text)]}:
                return np.str_(text)
            case {"scalar": [dtype, number]} if _is_numeric(dtype):
                value = self.decode(number)
                if isinstance(value, bool | int | float):
                    return np.dtype(dtype).type(value)
            case {"sparse": [str(kind), [_, _] as shape, dict(parts)]} if _is_shape(shape):
                return _sparse(kind, tuple(shape), {name: self.decode(part) for name, part in parts.items()})
            case {"record": [str(name), dict(codes)]}:
                return self._record(_FORMER_NAMES.get(name, name), codes)
            case {"warning": str(name)} if self.records and name in _WARNINGS:
                return _WARNINGS[name]
        raise MalformedError("a value is not supported")

    def _record(self, name: str, codes: dict[str, Any]) -> Any:
        if name not in self.records:
            raise MalformedError("a record is not supported")
        codes = {_FORMER_NAMES.get(field, field): code for field, code in codes.items()}
        own = fields(self.records[name])
        required = {item.name for item in own if item.default is MISSING}
        if not required <= set(codes) <= {item.name for item in own}:
            raise MalformedError(f"a {name} has missing or unknown fields")
        return self.records[name](**{name: self.decode(code) for name, code in codes.items()})


def _labels(kind: str, shape: list[int], values: list[Any]) -> NDArray[Any]:
    if math.prod(shape) != len(values):
        raise MalformedError("labels do not fit their shape")
    if kind == "U":
        if not all(isinstance(value, str) and len(value) * len(values) <= _MAX_TEXT for value in values):
            raise MalformedError("labels are not text, or too long")
        return np.array(values, dtype=str).reshape(shape)
    return np.fromiter(values, dtype=object, count=len(values)).reshape(shape)


def _sparse(kind: str, shape: tuple[int, ...], parts: dict[str, Any]) -> Any:
    """Return a sparse matrix of this kind from its parts, after checking that all indices are in range."""
    form, _, container = kind.partition("_")
    if form not in (*SPARSE_PARTS, *_FORMERLY_AS_CSR) or container not in ("array", "matrix"):
        raise MalformedError("a sparse matrix is not supported")
    if not all(isinstance(part, np.ndarray) for part in parts.values()):
        raise MalformedError("a sparse matrix is not made of arrays")
    stored = "csr" if form in _FORMERLY_AS_CSR else form
    return getattr(sparse, f"{stored}_{container}")(sparse_from_parts(stored, parts, shape)).asformat(form)
