"""The python batches in which CIFAR-10 was published: pickles, in a directory or in one tar.gz.

A pickle may run any code, so only the names that rebuild a numpy array are allowed in it.
"""

from __future__ import annotations

import io
import pickle
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout.datasets.images import one_for_each
from standout.datasets.prepared import identified
from standout.errors import InputError, listed

FOLDER, ARCHIVE = "cifar-10-batches-py", "cifar-10-python.tar.gz"
BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_ALLOWED = {
    *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
}


@dataclass(frozen=True)
class Colours:
    """Photographs as published: red, green and blue planes, one after another."""

    planes: NDArray[np.uint8]  # (n, 3072)
    is_test: NDArray[np.bool_]  # (n,)
    source: str


def read_batches(folder: Path, label: int, remedy: str) -> Colours | None:
    """Return the photographs of one label, training before test; None where there is no batch."""
    for place in (folder / FOLDER, folder):
        there = [name for name in BATCHES if (place / name).is_file()]
        if there:
            _check_complete(there, str(place), remedy)
            contents = ((name, (place / name).read_bytes()) for name in BATCHES)
            return _joined(contents, label, str(place), identified(place / name for name in BATCHES), remedy)
    archive = folder / ARCHIVE
    if archive.is_file():
        return _joined(_unpacked(archive, remedy), label, str(archive), identified([archive]), remedy)
    return None


def _check_complete(there: list[str], what: str, remedy: str) -> None:
    missing = [name for name in BATCHES if name not in there]
    if missing:
        raise InputError(f"{what}: holds {listed(there) or 'no batch'}, but not {listed(missing)}. {remedy}")


def _unpacked(archive: Path, remedy: str) -> Iterator[tuple[str, bytes]]:
    """Yield the batches of the archive, in one pass; nothing is written to disk."""
    try:
        with tarfile.open(archive, "r|gz") as members:
            for member in members:
                name = PurePosixPath(member.name).name
                file = members.extractfile(member) if name in BATCHES else None
                if file is not None:
                    yield name, file.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise InputError(f"{archive}: cannot be unpacked ({error}). {remedy}") from error


def _joined(contents: Iterator[tuple[str, bytes]], label: int, what: str, source: str, remedy: str) -> Colours:
    parts = {name: _photographs(content, label, f"{what}: {name}", remedy) for name, content in contents}
    _check_complete(list(parts), what, remedy)
    planes = [parts[name] for name in BATCHES]
    is_test = np.repeat([name == "test_batch" for name in BATCHES], [len(part) for part in planes])
    return Colours(np.concatenate(planes), is_test, source)


def _photographs(content: bytes, label: int, what: str, remedy: str) -> NDArray[np.uint8]:
    """Return the planes (n, 3072) of one label in a batch."""
    try:
        batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
        named = {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
        planes, labels = named["data"], np.asarray(named["labels"])
    except Exception as error:  # a damaged pickle fails in many ways; what to do is always the same
        raise InputError(
            f"{what} is not a python batch of CIFAR-10 ({type(error).__name__}: {error}). {remedy}"
        ) from error
    if not isinstance(planes, np.ndarray) or planes.dtype != np.uint8 or planes.shape[1:] != (3072,):
        found = f"{planes.shape} of {planes.dtype}" if isinstance(planes, np.ndarray) else type(planes).__name__
        raise InputError(f"{what}: data are {found}, where (n, 3072) of uint8 were expected. {remedy}")
    return np.asarray(planes[one_for_each(planes, labels, "labels", what, remedy) == label])


class _ArraysOnly(pickle.Unpickler):
    """Reads dicts, lists, text, numbers and numpy arrays, and refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no batch needs")
        return super().find_class(module, name)
