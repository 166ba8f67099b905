"""Load the handwritten digits of MNIST from idx files, a prepared npz file, or OpenML.

An idx file holds a magic number, the shape, and the bytes of one array.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.data.images import Images, check_collection, read_npz, write_npz
from standout.datasets.fetch import Public, first_file, identified, obtain
from standout.errors import InputError, listed
from standout.io.source import Progress

IDX_FILES = "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte"
_UNSIGNED_BYTES = 0x08
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

    They are searched for in ``data_dir``, in the directory in the environment variable ``STANDOUT_DATA`` and in the
    cache, and otherwise downloaded from OpenML.

    Parameters
    ----------
    data_dir : path, optional
        A directory with the four idx files (plain or .gz), or with ``mnist_6_9.npz``.
    digits : int or iterable of int, optional
        The digits to load; by default all in the files.
    progress : callable, optional
        Called with the progress of a download; by default the callback that is currently set.

    Returns
    -------
    Images
        ``images`` (n, 28, 28), ``labels`` (n,) from 0 to 9, ``is_test`` (n,), and ``source``, the files they are from.

    Examples
    --------
    >>> from experiments.data import load_mnist
    >>> load_mnist("data", digits=[6, 9]).images.shape  # doctest: +SKIP
    (13834, 28, 28)
    """
    wanted = None if digits is None else check_digits(digits)
    return obtain(_MNIST, data_dir, partial(_read, wanted=wanted), progress)


def check_digits(digits: Any) -> tuple[int, ...]:
    """Return one or several digits as a tuple, or raise if they are not valid."""
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
    """Read the digits from the smallest sufficient files of a directory; return None if there are none."""
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


def read_idx_folder(folder: Path, remedy: str) -> Images | None:
    """Return the images of the four files, training before test, or None if there are no such files."""
    wanted = IDX_FILES.split(", ")
    paths = [first_file(folder, _spellings(name)) for name in wanted]
    there = [path for path in paths if path is not None]
    if not there:
        return None
    if len(there) < len(wanted):
        missing = [name for name, path in zip(wanted, paths, strict=True) if path is None]
        raise InputError(
            f"{folder}: holds {listed([path.name for path in there])}, but not {listed(missing)}. {remedy}"
        )
    parts = [read_idx(path, rank, remedy) for path, rank in zip(there, (3, 1, 3, 1), strict=True)]
    for (images, labels), path in zip((parts[:2], parts[2:]), there[::2], strict=True):
        if len(images) != len(labels):
            raise InputError(f"{path}: {len(images)} images, but {len(labels)} labels. {remedy}")
        if images.shape[1:] != parts[0].shape[1:]:
            sizes = " and ".join("{}×{}".format(*part.shape[1:]) for part in parts[::2])
            raise InputError(f"{path}: training and test images have different sizes, {sizes}. {remedy}")
    images, labels = np.concatenate(parts[::2]), np.concatenate(parts[1::2]).astype(np.int64)
    return Images(images, labels, np.arange(len(labels)) >= len(parts[1]), identified(there))


def _spellings(name: str) -> list[str]:
    return [spelt + packed for spelt in (name, name.replace("-idx", ".idx")) for packed in ("", ".gz")]


def read_idx(path: Path, rank: int, remedy: str) -> NDArray[Any]:
    """Return the array of bytes in an idx file, compressed or not."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be unpacked ({error}). {remedy}") from error
    head = 4 + 4 * rank
    if len(content) < head or content[:4] != bytes([0, 0, _UNSIGNED_BYTES, rank]):
        raise InputError(
            f"{path}: starts with {content[:4].hex() or 'nothing'}, where an idx file of bytes with {rank} "
            f"dimensions starts with {bytes([0, 0, _UNSIGNED_BYTES, rank]).hex()}. {remedy}"
        )
    shape = tuple(int(size) for size in np.frombuffer(content[4:head], ">u4"))
    expected = int(np.prod(shape, dtype=object))
    if len(content) - head != expected:
        raise InputError(f"{path}: {len(content) - head} bytes of data, where {expected} were announced. {remedy}")
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)
