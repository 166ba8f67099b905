"""Checkpoint files, and the state of data files at the time they were opened.

A checkpoint is written atomically. It consists of a line that identifies the format, a JSON header with its checksum,
arrays as they are in memory, and a checksum of everything.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from glob import escape
from hashlib import blake2b
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from numpy.typing import NDArray

from standout.errors import InputError
from standout.io.containers import readable
from standout.io.options import Options
from standout.io.output import replacing

_FORMAT = b"standout checkpoint "
_MAGIC = _FORMAT + b"1\n"
_DIGEST_SIZE = 32
_REMEDY = "Give another path as `checkpoint`, or delete the file to start again."

# Name, size and modification time. Without the directory: data mounted elsewhere are the same.
Stamp = tuple[str, int, int]


@dataclass(frozen=True)
class FileStamp:
    """The files of a dataset, with the size and modification time of each when it was opened."""

    files: tuple[Path, ...]
    stamps: tuple[Stamp, ...]

    @classmethod
    def of(cls, files: tuple[Path, ...], location: str) -> FileStamp:
        """Record the state of files, and of all files in directories (Zarr arrays)."""
        with readable(location, "a file"):
            return cls(files, tuple(_stamps(files)))

    def check(self, location: str) -> None:
        """Raise an error if a file has changed."""
        if FileStamp.of(self.files, location).stamps != self.stamps:
            raise InputError(
                f"{location}: it has changed since it was opened, so its rows and columns may differ from those "
                "already read. Load it again when no other program writes to it."
            )


def _stamps(files: tuple[Path, ...]) -> Iterator[Stamp]:
    for path in files:
        for file in sorted(part for part in path.rglob("*") if part.is_file()) if path.is_dir() else (path,):
            found = file.stat()
            yield file.name, found.st_size, found.st_mtime_ns


@dataclass(frozen=True)
class CheckpointFile:
    """The checkpoint of one dataset, with the files and options it is valid for."""

    path: Path
    files: FileStamp
    options: Options

    def told(self) -> dict[str, Any]:
        """Return the fingerprint of the dataset, as JSON: a pass is resumed only if it is the same."""
        options = {name: value for name, value in asdict(self.options).items() if name not in ("memory", "checkpoint")}
        stamps = [list(stamp) for stamp in self.files.stamps]
        return {"files": stamps, "options": {name: _as_json(value) for name, value in options.items()}}

    def save(self, header: dict[str, Any], arrays: Iterable[NDArray[Any]]) -> None:
        """Write a checkpoint; the previous one is replaced only when the new one is complete and on disk."""
        text = json.dumps(header, separators=(",", ":")).encode()
        start = _MAGIC + len(text).to_bytes(8, "little") + text
        start += _checksum(start).digest()
        with replacing(self.path, "checkpoint") as temporary, temporary.open("wb") as file:
            file.write(start)
            checksum = _checksum(start)
            for array in arrays:
                checksum.update(array.data)
                file.write(array.data)
            file.write(checksum.digest())

    def check(self, role: str) -> None:
        """Raise an error for a checkpoint that is damaged or belongs to other data, before any rows are read."""
        if (file := self._open(role)) is not None:
            with file:
                self._header(file, self.told(), role)

    def load(self, told: dict[str, Any], arrays: Iterable[NDArray[Any]], role: str) -> dict[str, Any] | None:
        """Fill the arrays from the checkpoint and return its header; None if there is no checkpoint yet.

        A checkpoint that is damaged, or has another fingerprint than ``told``, is an error and stays unchanged. Header
        and arrays come from one open file, because another process may replace the checkpoint at any time.
        """
        if (file := self._open(role)) is None:
            return None
        with file:
            header = self._header(file, told, role)
            size = file.tell()
            file.seek(0)
            checksum = _checksum(file.read(size))
            for array in arrays:
                file.readinto(array.data)  # a truncated array fails the checksum
                checksum.update(array.data)
            if file.read(_DIGEST_SIZE) != checksum.digest() or file.read(1):
                raise InputError(f"{self._location(role)} is damaged or truncated. {_REMEDY}")
            return header

    def sweep(self, before: float) -> None:
        """Remove temporary files of killed passes that were last modified before that time."""
        for file in self.path.parent.glob(f".{escape(self.path.name[:40])}.????????.part{escape(self.path.suffix)}"):
            with suppress(FileNotFoundError):  # another process may have renamed it
                if file.stat().st_mtime < before:
                    file.unlink()

    def _open(self, role: str) -> BufferedReader | None:
        with readable(self._location(role), "a checkpoint"), suppress(FileNotFoundError):
            return self.path.open("rb")
        return None

    def _header(self, file: BinaryIO, told: dict[str, Any], role: str) -> dict[str, Any]:
        """Read the header, or raise an error that gives the reason why the checkpoint cannot be used."""
        location = self._location(role)
        start = file.read(len(_MAGIC) + 8)
        if _FORMAT.startswith(start):
            raise InputError(f"{location} is {'damaged or truncated' if start else 'empty'}. {_REMEDY}")
        if not start.startswith(_FORMAT):
            raise InputError(f"{location} is not a checkpoint and stays unchanged. Give another path as `checkpoint`.")
        if not start.startswith(_MAGIC):
            raise InputError(f"{location} was written by another version of standout. {_REMEDY}")
        size = int.from_bytes(start[len(_MAGIC) :], "little")
        text = file.read(min(size, os.fstat(file.fileno()).st_size))
        if file.read(_DIGEST_SIZE) != _checksum(start + text).digest():
            raise InputError(f"{location} is damaged or truncated. {_REMEDY}")
        header: dict[str, Any] = json.loads(text)
        different = [name for name, value in told.items() if header["told"].get(name) != value]
        if different:
            raise InputError(f"{location} belongs to other data: different {', '.join(different)}. {_REMEDY}")
        return header

    def _location(self, role: str) -> str:
        return f"{role}: the checkpoint {self.path}"


def _checksum(data: bytes) -> Any:
    return blake2b(data, digest_size=_DIGEST_SIZE)


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: list(values) for name, values in value.items()}
    return list(value) if isinstance(value, tuple) else value
