"""The file of a model: a zip archive of a JSON header and arrays, with checksums at its very end.

Members are stored as they are, so numpy opens the file as an npz. The archive's comment holds the SHA-256 of
the header and, last, that of all bytes before it: nothing is decoded before its checksum was found right. What
is decoded is still not trusted: sizes are checked against the file, and only plain numbers become arrays.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from typing import Any, BinaryIO
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray

HEADER = "header.json"
_HEADER_START = 30 + len(HEADER)  # a zip begins with 30 bytes on its first member, and the member's name
_SIZE = slice(18, 22)  # where among them its size is
_START = b"PK\x03\x04"
_COMMENT = "standout model; header sha256 {}; file sha256 "
_DIGEST = 64
_SEAL = re.compile(re.escape(_COMMENT).replace(r"\{\}", "([0-9a-f]{64})").encode() + b"([0-9a-f]{64})")
_SEAL_SIZE = len(_COMMENT) - 2 + 2 * _DIGEST
# Booleans, whole numbers and floats of 1 to 8 bytes; nothing that holds objects.
_NUMBERS = re.compile(r"\|b1|\|[iu]1|[<>][iu][248]|[<>]f[248]")
# What zipfile may raise on bytes that nobody wrote with care.
_BAD_ZIP = (BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, KeyError, OSError, struct.error)


class MalformedError(ValueError):
    """What a file holds is not what save writes; the user gets to see it as a ModelFileError with the file's name."""


@dataclass(frozen=True)
class Content:
    """What is in a file: the header, and arrays under the names by which the header speaks of them."""

    header: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def can_hold(code: Any) -> bool:
    """Tell whether a type of numbers, by its code in an npy file, can be kept."""
    return isinstance(code, str) and _NUMBERS.fullmatch(code) is not None


def is_shape(value: Any) -> bool:
    """Tell whether some JSON is the shape of an array."""
    return isinstance(value, list) and len(value) <= 8 and all(type(n) is int and 0 <= n < 2**40 for n in value)


def seems_ours(file: BinaryIO) -> bool:
    """Tell by its two ends whether a file was written by pack, whatever has become of it since."""
    start = file.read(_HEADER_START)
    file.seek(max(0, file.seek(0, 2) - _SEAL_SIZE))
    return (start.startswith(_START) and start.endswith(HEADER.encode())) or _SEAL.fullmatch(file.read()) is not None


def pack(content: Content) -> bytes:
    """Return the bytes of a file; the same content always gives the same bytes."""
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
    """Return what is in a file, or raise MalformedError."""
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
    """Return the header of a file by reading its two ends alone, or raise MalformedError."""
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
    # The date and the system of the writer would make other bytes of the same model.
    member = ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    member.create_system = 3
    member.external_attr = 0o644 << 16
    return member


def _described(array: NDArray[Any]) -> dict[str, Any]:
    # The order matters to the last bit: products of arrays may be summed along their memory.
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    return {"dtype": array.dtype.str, "shape": list(array.shape), "fortran_order": bool(fortran)}


def _npy_start(entry: Mapping[str, Any]) -> bytes:
    """Return the first bytes of an npy file (format 1.0), up to where the numbers begin."""
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
    """Return the array of a member, which must begin just as the header has it and be of the right length."""
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
