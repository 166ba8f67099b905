"""Files in a directory: which are there, what they were, and arrays that were prepared as npz."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout.errors import InputError, listed
from standout.output import replacing


def first_file(folder: Path, names: Iterable[str]) -> Path | None:
    """Return the first of these files that the directory holds."""
    return next((folder / name for name in names if (folder / name).is_file()), None)


def identified(paths: Iterable[Path]) -> str:
    """Name files and the beginning of their sha256, without the directory they are in."""
    return ", ".join(f"{path.name} (sha256 {digest(path)[:12]})" for path in paths)


def digest(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_npz(path: Path, names: Sequence[str], remedy: str) -> list[NDArray[Any]]:
    """Return these arrays of a npz file, or say what is wrong with it."""
    try:
        # Opened here, because numpy leaves a file that is no archive open.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            missing = [name for name in names if name not in archive]
            if missing:
                raise InputError(f"{path}: holds {listed(list(archive))}, but not {listed(missing)}. {remedy}")
            return [archive[name] for name in names]
    except (OSError, ValueError, EOFError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot be read as a npz file ({error}). {remedy}") from error


def write_npz(path: Path, **arrays: NDArray[Any]) -> None:
    """Keep arrays for the next time."""
    with replacing(path, "cache") as draft, draft.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
