"""Load one class of CIFAR-10 in grey from the Python batches, a prepared npz file, or OpenML.

The batches are pickles, in a directory or in one tar.gz. A pickle can run arbitrary code, so the unpickler accepts only
the names that rebuild a numpy array.
"""

from __future__ import annotations

import io
import os
import pickle
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.data.images import Images, check_collection, one_for_each, read_npz, write_npz
from standout.datasets.fetch import Public, first_file, identified, obtain
from standout.errors import InputError, did_you_mean, listed
from standout.io.source import Progress

FOLDER, ARCHIVE = "cifar-10-batches-py", "cifar-10-python.tar.gz"
BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_ALLOWED = {
    *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
}
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_SIDE = 32
_FROGS = "cifar10_frogs_gray_6000.npz"
_KEPT = "cifar10_gray_openml.npz"
_N_TRAIN = 50000
_TEST_BATCH = 6
_COUNTS = dict.fromkeys(range(len(CLASSES)), (5000, 1000))  # training and test
_FROG_COUNTS = {CLASSES.index("frog"): (5000, 1000)}
_ROWS = 5000  # number converted to grey at a time


def load_cifar10(
    data_dir: str | os.PathLike[str] | None = None,
    *,
    photographs: str = "frog",
    progress: Callable[[Progress], None] | None = None,
) -> Images:
    """Load the photographs of one class of CIFAR-10, in grey.

    They are searched for in ``data_dir``, in the directory in the environment variable ``STANDOUT_DATA`` and in the
    cache, and otherwise downloaded from OpenML. Grey is 0.299 red + 0.587 green + 0.114 blue.

    Parameters
    ----------
    data_dir : path, optional
        A directory with ``cifar-10-python.tar.gz``, its unpacked batches, or ``cifar10_frogs_gray_6000.npz``.
    photographs : str
        The class: airplane, automobile, bird, cat, deer, dog, frog, horse, ship or truck.
    progress : callable, optional
        Called with the progress of a download; by default the callback that is currently set.

    Returns
    -------
    Images
        ``images`` (6000, 32, 32), ``labels`` (6000,), the number of the class, ``is_test`` (6000,), and ``source``.

    Examples
    --------
    >>> from experiments.data import load_cifar10
    >>> load_cifar10("data", photographs="frog").images.shape  # doctest: +SKIP
    (6000, 32, 32)
    """
    if photographs not in CLASSES:
        raise InputError(
            f"photographs: {photographs!r} is not a class of CIFAR-10.{did_you_mean(photographs, CLASSES)} Choose from "
            f"{listed(CLASSES, 10)}."
        )
    return obtain(_CIFAR10, data_dir, partial(_read, wanted=photographs), progress)


def _read(folder: Path, wanted: str) -> Images | None:
    """Read the class from the smallest sufficient files of a directory; return None if there are none."""
    frogs = first_file(folder, [_FROGS])
    if frogs is not None and wanted == "frog":
        return _read_frogs(frogs)
    number = CLASSES.index(wanted)
    kept = first_file(folder, [_KEPT])
    if kept is not None:
        return _read_kept(kept).only(number)
    colours = read_batches(folder, number, _CIFAR10.remedy)
    if colours is not None:
        labels = np.full(len(colours.planes), number, dtype=np.int64)
        found = Images(gray(colours.planes), labels, colours.is_test, colours.source)
        return check_collection(found, _SIDE, {number: _COUNTS[number]}, str(folder), _CIFAR10.remedy)
    if frogs is not None:
        raise InputError(
            f"photographs: {frogs.name} holds frogs, but no {wanted}. Ask for 'frog', or give a directory with "
            f"{ARCHIVE} or {FOLDER}."
        )
    return None


def _read_frogs(path: Path) -> Images:
    images, batch = read_npz(path, ("images", "batch"), _CIFAR10.remedy)
    batch = one_for_each(images, batch, "batch", str(path), _CIFAR10.remedy)
    labels = np.full(len(batch), CLASSES.index("frog"), dtype=np.int64)
    found = Images(images, labels, batch == _TEST_BATCH, identified([path]))
    return check_collection(found, _SIDE, _FROG_COUNTS, str(path), _CIFAR10.remedy)


def _read_kept(path: Path) -> Images:
    images, labels, is_test = read_npz(path, ("images", "labels", "is_test"), _CIFAR10.remedy)
    return check_collection(
        Images(images, labels, is_test, identified([path])), _SIDE, _COUNTS, str(path), _CIFAR10.remedy
    )


def gray(planes: NDArray[Any]) -> NDArray[np.uint8]:
    """Convert red, green and blue planes (n, 3072) to grey images (n, 32, 32).

    The weights 0.299, 0.587 and 0.114 are integers in units of 2⁻¹⁶, as in pillow, so that rounding is portable.

    Examples
    --------
    >>> import numpy as np
    >>> int(gray(np.full((1, 3072), 200, np.uint8))[0, 0, 0])
    200
    """
    out = np.empty((len(planes), _SIDE, _SIDE), dtype=np.uint8)
    for start in range(0, len(planes), _ROWS):
        part = slice(start, start + _ROWS)
        red, green, blue = planes[part].astype(np.uint32).reshape(-1, 3, _SIDE, _SIDE).transpose(1, 0, 2, 3)
        out[part] = (19595 * red + 38470 * green + 7471 * blue + (1 << 15)) >> 16
    return out


def _keep(bunch: Any, folder: Path) -> None:
    labels = np.asarray(bunch.target).astype(np.int64)
    planes = np.asarray(bunch.data)
    what = f"{_CIFAR10.openml} of OpenML"
    if planes.shape != (len(labels), 3 * _SIDE**2):
        raise InputError(f"{what}: a table of shape {planes.shape}, not (60000, {3 * _SIDE**2}). {_CIFAR10.remedy}")
    found = Images(gray(planes), labels, np.arange(len(labels)) >= _N_TRAIN)
    check_collection(found, _SIDE, _COUNTS, what, _CIFAR10.remedy)
    write_npz(folder / _KEPT, images=found.images, labels=found.labels, is_test=found.is_test)


_CIFAR10 = Public("CIFAR-10", f"{ARCHIVE}, the directory {FOLDER} in it, or {_FROGS}", "CIFAR_10", 1, _keep)


@dataclass(frozen=True)
class Colours:
    """Photographs as published: red, green and blue planes in sequence."""

    planes: NDArray[np.uint8]  # (n, 3072)
    is_test: NDArray[np.bool_]  # (n,)
    source: str


def read_batches(folder: Path, label: int, remedy: str) -> Colours | None:
    """Return the photographs of one label, training before test, or None if there is no batch."""
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
    except Exception as error:  # a damaged pickle can raise almost any exception; the remedy is the same
        raise InputError(
            f"{what} is not a python batch of CIFAR-10 ({type(error).__name__}: {error}). {remedy}"
        ) from error
    if not isinstance(planes, np.ndarray) or planes.dtype != np.uint8 or planes.shape[1:] != (3072,):
        found = f"{planes.shape} of {planes.dtype}" if isinstance(planes, np.ndarray) else type(planes).__name__
        raise InputError(f"{what}: data are {found}, where (n, 3072) of uint8 were expected. {remedy}")
    return np.asarray(planes[one_for_each(planes, labels, "labels", what, remedy) == label])


class _ArraysOnly(pickle.Unpickler):
    """Unpickler for dicts, lists, text, numbers and numpy arrays; rejects everything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"unexpected reference to {module}.{name}")
        return super().find_class(module, name)
