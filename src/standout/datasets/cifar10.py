"""The photographs of CIFAR-10 in gray, one class at a time: from python batches, a prepared npz, or OpenML."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout.datasets.batches import ARCHIVE, FOLDER, read_batches
from standout.datasets.images import Images, check_collection, one_for_each
from standout.datasets.places import Public, obtain
from standout.datasets.prepared import first_file, identified, read_npz, write_npz
from standout.errors import InputError, did_you_mean, listed
from standout.sources.progress import Progress

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_SIDE = 32
_FROGS = "cifar10_frogs_gray_6000.npz"
_KEPT = "cifar10_gray_openml.npz"
_N_TRAIN = 50000
_TEST_BATCH = 6
_COUNTS = dict.fromkeys(range(len(CLASSES)), (5000, 1000))  # training and test
_FROG_COUNTS = {CLASSES.index("frog"): (5000, 1000)}
_ROWS = 5000  # turned gray at a time


def load_cifar10(
    data_dir: str | os.PathLike[str] | None = None,
    *,
    photographs: str = "frog",
    progress: Callable[[Progress], None] | None = None,
) -> Images:
    """Load the photographs of one class of CIFAR-10, in gray.

    They are looked for in ``data_dir``, in the directory that the environment variable ``STANDOUT_DATA`` names and in
    the cache, and otherwise downloaded from OpenML. Gray is 0.299 red + 0.587 green + 0.114 blue.

    Parameters
    ----------
    data_dir : path, optional
        A directory with ``cifar-10-python.tar.gz``, the batches in it, or ``cifar10_frogs_gray_6000.npz``.
    photographs : str
        Which class: airplane, automobile, bird, cat, deer, dog, frog, horse, ship or truck.
    progress : callable, optional
        Told that a download goes on; by default whoever is :func:`~standout.sources.progress.watching`.

    Returns
    -------
    Images
        ``images`` (6000, 32, 32), ``labels`` (6000,), the number of the class, ``is_test`` (6000,), and ``source``.

    Examples
    --------
    >>> from standout.datasets import load_cifar10
    >>> load_cifar10("data", photographs="frog").images.shape  # doctest: +SKIP
    (6000, 32, 32)
    """
    if photographs not in CLASSES:
        raise InputError(
            f"photographs: {photographs!r} is no class of CIFAR-10.{did_you_mean(photographs, CLASSES)} Choose from "
            f"{listed(CLASSES, 10)}."
        )
    return obtain(_CIFAR10, data_dir, partial(_read, wanted=photographs), progress)


def _read(folder: Path, wanted: str) -> Images | None:
    """Return the class wanted from the files of a directory, the smallest that suffice; None where it has none."""
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
    """Turn red, green and blue planes (n, 3072) into gray images (n, 32, 32).

    The weights 0.299, 0.587 and 0.114 are in units of 2⁻¹⁶, as in pillow: whole numbers round alike everywhere.

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
