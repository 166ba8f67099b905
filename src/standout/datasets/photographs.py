"""The paper's first experiment: handwritten digits laid over photographs, against other photographs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from standout.blas import Array
from standout.datasets.cifar10 import load_cifar10
from standout.datasets.mnist import load_mnist
from standout.errors import InputError, NotEnoughRowsError
from standout.parameters import check_count
from standout.sources.progress import Progress

_SIDE = 28


@dataclass(frozen=True)
class DigitsOverPhotographs:
    """Target photographs with a digit over them, background photographs without, and further ones with digits."""

    target: Array  # (n_digits · n_each, 784), from 0 to 1 + weight
    digit: NDArray[np.int64]  # (n_digits · n_each,): which digit is over each
    background: Array  # (n_background, 784), from 0 to 1
    new: Array  # (n_digits · n_new, 784): made as the target, of digits and photographs of their own
    new_digit: NDArray[np.int64]  # (n_digits · n_new,)
    source: str  # the files of digits and photographs


def digits_over_photographs(
    weight: float = 0.5,
    n_each: int = 1000,
    n_background: int = 3000,
    n_new: int = 0,
    *,
    digits: tuple[int, ...] = (6, 9),
    photographs: str = "frog",
    data_dir: str | os.PathLike[str] | None = None,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> DigitsOverPhotographs:
    """Lay digits of MNIST over photographs of CIFAR-10; the background is other photographs.

    Digits and photographs go from 0 to 1, and photographs are cropped at random to 28×28. No digit and no photograph
    is used twice.

    Parameters
    ----------
    weight : float
        How strong the digits are.
    n_each : int
        How many of each digit are in the target.
    n_background : int
        How many photographs are the background.
    n_new : int
        How many more of each digit are kept for judging; they do not change target and background.
    digits : tuple of int
        Which digits.
    photographs : str
        Which class of CIFAR-10.
    data_dir : path, optional
        Where the files are; see :func:`load_mnist` and :func:`load_cifar10`.
    seed : int
        Which digits and photographs are which, and how they are cropped.
    progress : callable, optional
        Told that a download goes on.

    Returns
    -------
    DigitsOverPhotographs

    Examples
    --------
    >>> from standout.datasets import digits_over_photographs
    >>> example = digits_over_photographs(weight=0.5, data_dir="data")  # doctest: +SKIP
    >>> example.target.shape, example.background.shape  # doctest: +SKIP
    ((2000, 784), (3000, 784))
    """
    for name, count in (("n_each", n_each), ("n_background", n_background), ("n_new", n_new or 1)):
        check_count(name, count)
    if len(set(digits)) != len(digits):
        raise InputError(f"digits: {digits} was given. Name each digit once.")
    rng = np.random.default_rng(seed)
    written = load_mnist(data_dir, digits=digits, progress=progress)
    taken = load_cifar10(data_dir, photographs=photographs, progress=progress)
    over, over_new = _split([np.flatnonzero(written.labels == digit) for digit in digits], n_each, n_new, rng)
    n_target = len(over)
    needed = n_target + n_background + len(over_new)
    if needed > len(taken.images):
        raise NotEnoughRowsError(
            f"n_each, n_background, n_new: {needed} photographs are needed, and there are {len(taken.images)} of "
            f"{photographs!r}. Ask for fewer."
        )
    under = rng.permutation(len(taken.images))[:needed]
    crops = _cropped(taken.images[under], rng)
    strokes = written.images.reshape(-1, _SIDE**2)
    return DigitsOverPhotographs(
        target=crops[:n_target] + weight * (strokes[over] / 255.0),
        digit=written.labels[over],
        background=crops[n_target : n_target + n_background],
        new=crops[n_target + n_background :] + weight * (strokes[over_new] / 255.0),
        new_digit=written.labels[over_new],
        source=f"{written.source}; {taken.source}",
    )


def _split(
    places: list[NDArray[np.intp]], n_each: int, n_new: int, rng: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Draw, of each digit, those for the target and those that are kept for judging."""
    short = min(len(place) for place in places)
    if n_each + n_new > short:
        raise NotEnoughRowsError(
            f"n_each, n_new: {n_each + n_new} images of each digit are needed, and there are {short} of one of them. "
            "Ask for fewer."
        )
    drawn = [rng.permutation(place) for place in places]
    return (
        np.concatenate([place[:n_each] for place in drawn]),
        np.concatenate([place[n_each : n_each + n_new] for place in drawn]),
    )


def _cropped(images: NDArray[np.uint8], rng: np.random.Generator) -> Array:
    """Cut a 28×28 piece out of each image, at a place of its own, as rows from 0 to 1."""
    corners = rng.integers(0, images.shape[1] - _SIDE + 1, size=(len(images), 2))
    reach = np.arange(_SIDE)
    rows, columns = corners[:, :1] + reach, corners[:, 1:] + reach
    pieces = images[np.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None, :]]
    return np.asarray(pieces.reshape(len(images), -1) / 255.0)
