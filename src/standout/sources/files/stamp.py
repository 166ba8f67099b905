"""Files as they were when they were opened: one that changes afterwards must not be taken for what it was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from standout.errors import InputError
from standout.sources.files.inside import readable

# Name, bytes and time of the last change. Names without directories: data that are mounted elsewhere are the same.
Stamp = tuple[str, int, int]


@dataclass(frozen=True)
class Stamped:
    """The files of a dataset, and what was known of them before anything in them was read."""

    files: tuple[Path, ...]
    stamps: tuple[Stamp, ...]

    @classmethod
    def of(cls, files: tuple[Path, ...], where: str) -> Stamped:
        """Look at files (and at all files in directories, which are arrays of Zarr)."""
        with readable(where, "a file"):
            return cls(files, tuple(_stamps(files)))

    def check(self, where: str) -> None:
        """Refuse to go on with files that are not those that were opened."""
        if Stamped.of(self.files, where).stamps != self.stamps:
            raise InputError(
                f"{where}: it has changed since it was opened, so that what is known of its rows and columns may be "
                "wrong. Give it again when nobody writes to it any more."
            )


def _stamps(files: tuple[Path, ...]) -> Iterator[Stamp]:
    for path in files:
        for file in sorted(part for part in path.rglob("*") if part.is_file()) if path.is_dir() else (path,):
            found = file.stat()
            yield file.name, found.st_size, found.st_mtime_ns
