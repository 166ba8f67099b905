"""Files as they were when they were opened: one that changes afterwards must not be taken for what it was.

Checkpoints on disk: where a pass over files is kept, of which files and options it is, and what the file looks like.

A checkpoint is written whole before it takes the place of the one before. It is a line that says what it is, a JSON
header with its checksum, arrays as they are in memory, and the checksum of all.
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

_MAGIC = b"standout checkpoint 1\n"
_KIND = b"standout checkpoint "
_DIGEST = 32
_REMEDY = "Give another path as checkpoint=, or delete the file to start anew."


# Name, bytes and time of the last change. Names without directories: data that are mounted elsewhere are the same.
Stamp = tuple[str, int, int]


@dataclass(frozen=True)
class FileStamp:
    """The files of a dataset, and what was known of them before anything in them was read."""

    files: tuple[Path, ...]
    stamps: tuple[Stamp, ...]

    @classmethod
    def of(cls, files: tuple[Path, ...], where: str) -> FileStamp:
        """Look at files (and at all files in directories, which are arrays of Zarr)."""
        with readable(where, "a file"):
            return cls(files, tuple(_stamps(files)))

    def check(self, where: str) -> None:
        """Refuse to go on with files that are not those that were opened."""
        if FileStamp.of(self.files, where).stamps != self.stamps:
            raise InputError(
                f"{where}: it has changed since it was opened, so that what is known of its rows and columns may be "
                "wrong. Give it again when nobody writes to it any more."
            )


def _stamps(files: tuple[Path, ...]) -> Iterator[Stamp]:
    for path in files:
        for file in sorted(part for part in path.rglob("*") if part.is_file()) if path.is_dir() else (path,):
            found = file.stat()
            yield file.name, found.st_size, found.st_mtime_ns


@dataclass(frozen=True)
class CheckpointFile:
    """The checkpoint of one dataset, and what it is told by."""

    path: Path
    files: FileStamp
    options: Options

    def told(self) -> dict[str, Any]:
        """Return, as JSON, what must be the same for a pass to go on."""
        options = {name: value for name, value in asdict(self.options).items() if name not in ("memory", "checkpoint")}
        stamps = [list(stamp) for stamp in self.files.stamps]
        return {"files": stamps, "options": {name: _plain(value) for name, value in options.items()}}

    def save(self, header: dict[str, Any], arrays: Iterable[NDArray[Any]]) -> None:
        """Write a checkpoint; the one before stays until this one is whole and on the disk."""
        text = json.dumps(header, separators=(",", ":")).encode()
        start = _MAGIC + len(text).to_bytes(8, "little") + text
        start += _seal(start).digest()
        with replacing(self.path, "checkpoint") as draft, draft.open("wb") as file:
            file.write(start)
            seal = _seal(start)
            for array in arrays:
                seal.update(array.data)
                file.write(array.data)
            file.write(seal.digest())

    def check(self, role: str) -> None:
        """Refuse a checkpoint that is damaged or of other data, before any work is done."""
        told = self.told()
        if (file := self._opened(role)) is not None:
            with file:
                self._header(file, told, role)

    def load(self, told: dict[str, Any], arrays: Iterable[NDArray[Any]], role: str) -> dict[str, Any] | None:
        """Read the arrays that were saved into those given, and return the header; None: no checkpoint yet.

        One that is damaged, or of other data than ``told``, is refused, and stays as it is. Header and arrays come
        from one open file: another process may put a newer checkpoint in its place at any moment.
        """
        if (file := self._opened(role)) is None:
            return None
        with file:
            header = self._header(file, told, role)
            size = file.tell()
            file.seek(0)
            seal = _seal(file.read(size))
            for array in arrays:
                file.readinto(array.data)  # one that is cut short shows in the checksum
                seal.update(array.data)
            if file.read(_DIGEST) != seal.digest() or file.read(1):
                raise InputError(f"{self._where(role)} is damaged or cut short. {_REMEDY}")
            return header

    def _opened(self, role: str) -> BufferedReader | None:
        with readable(self._where(role), "a checkpoint"), suppress(FileNotFoundError):
            return self.path.open("rb")
        return None

    def _header(self, file: BinaryIO, told: dict[str, Any], role: str) -> dict[str, Any]:
        header = _header(file, self._where(role))
        unlike = [name for name, value in told.items() if header["told"].get(name) != value]
        if unlike:
            raise InputError(f"{self._where(role)} is of other data: not the same {', '.join(unlike)}. {_REMEDY}")
        return header

    def sweep(self, before: float) -> None:
        """Remove the drafts that killed passes left: those that last changed before that time."""
        for draft in self.path.parent.glob(f".{escape(self.path.name[:40])}.????????.part{escape(self.path.suffix)}"):
            with suppress(FileNotFoundError):  # another process may have put it in its place
                if draft.stat().st_mtime < before:
                    draft.unlink()

    def _where(self, role: str) -> str:
        return f"{role}: the checkpoint {self.path}"


def _header(file: BinaryIO, where: str) -> dict[str, Any]:
    """Read the header of a checkpoint, or say why it cannot be used."""
    start = file.read(len(_MAGIC) + 8)
    if _KIND.startswith(start):
        raise InputError(f"{where} is {'damaged or cut short' if start else 'empty'}. {_REMEDY}")
    if not start.startswith(_KIND):
        raise InputError(f"{where} is a file of another kind, and stays as it is. Give another path as checkpoint=.")
    if not start.startswith(_MAGIC):
        raise InputError(f"{where} was written by another version of standout. {_REMEDY}")
    size = int.from_bytes(start[len(_MAGIC) :], "little")
    text = file.read(min(size, os.fstat(file.fileno()).st_size))
    if file.read(_DIGEST) != _seal(start + text).digest():
        raise InputError(f"{where} is damaged or cut short. {_REMEDY}")
    header: dict[str, Any] = json.loads(text)
    return header


def _seal(data: bytes) -> Any:
    return blake2b(data, digest_size=_DIGEST)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: list(values) for name, values in value.items()}
    return list(value) if isinstance(value, tuple) else value
