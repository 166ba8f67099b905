"""The handwritten digits of MNIST, from idx files, from a prepared npz, or from OpenML."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from standout.datasets.idx import IDX_FILES, read_idx_folder
from standout.datasets.images import Images, check_collection
from standout.datasets.places import Public, obtain
from standout.datasets.prepared import first_file, identified, read_npz, write_npz
from standout.errors import InputError, listed
from standout.sources.progress import Progress

_SIDE = 28
_SOME = "mnist_6_9.npz"
_KEPT = "mnist_openml.npz"
_N_TRAIN = 60000
_TRAIN = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
_TEST = (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)
_COUNTS = dict(enumerate(zip(_TRAIN, _TEST, strict=True)))  # training and test
_SOME_COUNTS = {digit: _COUNTS[digit] for digit in (6, 9)}


def load_mnist(
    data_dir: str | os.PathLike[str] | None = None,
    *,
    digits: int | Iterable[int] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Images:
    """Load the handwritten digits of MNIST.

    They are looked for in ``data_dir``, in the directory that the environment variable ``STANDOUT_DATA`` names and in
    the cache, and otherwise downloaded from OpenML.

    Parameters
    ----------
    data_dir : path, optional
        A directory with the four idx files (plain or .gz), or with ``mnist_6_9.npz``.
    digits : int or iterable of int, optional
        Which digits; by default all that the files hold.
    progress : callable, optional
        Told that a download goes on; by default whoever is :func:`~standout.sources.progress.watching`.

    Returns
    -------
    Images
        ``images`` (n, 28, 28), ``labels`` (n,) from 0 to 9, ``is_test`` (n,), and ``source``, the files they are from.

    Examples
    --------
    >>> from standout.datasets import load_mnist
    >>> load_mnist("data", digits=[6, 9]).images.shape  # doctest: +SKIP
    (13834, 28, 28)
    """
    wanted = None if digits is None else check_digits(digits)
    return obtain(_MNIST, data_dir, partial(_read, wanted=wanted), progress)


def check_digits(digits: Any) -> tuple[int, ...]:
    """Return one digit or several as a tuple, or say what is wrong."""
    try:
        chosen = tuple(digits)
    except TypeError:
        chosen = (digits,)
    if not chosen or not all(_is_digit(one) for one in chosen):
        raise InputError(f"digits: {chosen} was given. Choose from the whole numbers 0 to 9.")
    return chosen


def _is_digit(one: object) -> bool:
    return isinstance(one, Integral) and not isinstance(one, bool) and one in _COUNTS


def _read(folder: Path, wanted: tuple[int, ...] | None) -> Images | None:
    """Return the digits wanted from the files of a directory, the smallest that suffice; None where it has none."""
    some = first_file(folder, [_SOME])
    if some is not None and wanted is not None and set(wanted) <= set(_SOME_COUNTS):
        return _chosen(_read_npz(some), wanted)
    found = read_idx_folder(folder, _MNIST.remedy)
    if found is None:
        kept = first_file(folder, [_KEPT, _SOME])
        return None if kept is None else _chosen(_read_npz(kept), wanted)
    return _chosen(check_collection(found, _SIDE, _COUNTS, str(folder), _MNIST.remedy), wanted)


def _read_npz(path: Path) -> Images:
    images, labels, is_test = read_npz(path, ("images", "labels", "is_test"), _MNIST.remedy)
    found = Images(images, labels, is_test, identified([path]))
    counts = _SOME_COUNTS if path.name == _SOME else _COUNTS
    return check_collection(found, _SIDE, counts, str(path), _MNIST.remedy)


def _chosen(found: Images, wanted: tuple[int, ...] | None) -> Images:
    if wanted is None:
        return found
    held = np.unique(found.labels).tolist()
    absent = sorted(set(wanted) - set(held))
    if absent:
        raise InputError(
            f"digits: {found.source} holds the digits {listed(held, 10)}, but not {listed(absent, 10)}. Ask for those "
            f"it holds, or give a directory with the four idx files of MNIST ({IDX_FILES})."
        )
    return found.only(wanted)


def _keep(bunch: Any, folder: Path) -> None:
    labels = np.asarray(bunch.target).astype(np.int64)
    images = np.asarray(bunch.data).reshape(len(labels), -1)
    what = f"{_MNIST.openml} of OpenML"
    if images.shape[1] != _SIDE**2:
        raise InputError(f"{what}: {images.shape[1]} features, where {_SIDE**2} were expected. {_MNIST.remedy}")
    shaped = images.astype(np.uint8).reshape(-1, _SIDE, _SIDE)
    found = Images(shaped, labels, np.arange(len(labels)) >= _N_TRAIN)
    check_collection(found, _SIDE, _COUNTS, what, _MNIST.remedy)
    write_npz(folder / _KEPT, images=found.images, labels=found.labels, is_test=found.is_test)


_MNIST = Public("MNIST", f"the four idx files of MNIST ({IDX_FILES}) or {_SOME}", "mnist_784", 1, _keep)
