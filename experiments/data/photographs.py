"""Data of the digits experiment: digits superimposed on photographs, and other photographs as background."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import Array
from experiments.data.cifar10 import load_cifar10
from experiments.data.images import Images
from experiments.data.mnist import check_digits, load_mnist
from standout._inputs import check_count
from standout.errors import InputError, NotEnoughRowsError
from standout.io.source import Progress

_SIDE = 28


@dataclass(frozen=True)
class DigitsOverPhotographs:
    """Target photographs with a digit, background photographs without, and held-out photographs with digits."""

    target: Array  # (n_digits · n_each, 784), from 0 to 1 + weight
    digit: NDArray[np.int64]  # (n_digits · n_each,): the digit over each
    background: Array  # (n_background, 784), from 0 to 1
    new: Array  # (n_digits · n_new, 784): like the target, from other digits and photographs
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
    """Superimpose digits of MNIST on photographs of CIFAR-10; other photographs are the background.

    Digits and photographs are scaled from 0 to 1, and photographs are cropped at random to 28×28. No digit and no
    photograph is used twice.

    Parameters
    ----------
    weight : float
        Weight of the digits.
    n_each : int
        Number of images of each digit in the target.
    n_background : int
        Number of background photographs.
    n_new : int
        Number of held-out images of each digit; it does not affect target and background.
    digits : tuple of int
        The digits.
    photographs : str
        The class of CIFAR-10.
    data_dir : path, optional
        Directory of the files; see :func:`load_mnist` and :func:`load_cifar10`.
    seed : int
        Seed for the selection of digits and photographs and for the crops.
    progress : callable, optional
        Called while a download is in progress.

    Returns
    -------
    DigitsOverPhotographs

    Examples
    --------
    >>> from experiments.data import digits_over_photographs
    >>> example = digits_over_photographs(weight=0.5, data_dir="data")  # doctest: +SKIP
    >>> example.target.shape, example.background.shape  # doctest: +SKIP
    ((2000, 784), (3000, 784))
    """
    chosen = _check_request(digits, n_each=n_each, n_background=n_background, n_new=n_new or 1)
    rng = np.random.default_rng(seed)
    written = load_mnist(data_dir, digits=chosen, progress=progress)
    taken = load_cifar10(data_dir, photographs=photographs, progress=progress)
    over, over_new = _split([np.flatnonzero(written.labels == digit) for digit in chosen], n_each, n_new, rng)
    under, background, under_new = _crops(taken, (len(over), n_background, len(over_new)), photographs, rng)
    return DigitsOverPhotographs(
        target=under + weight * _strokes(written, over),
        digit=written.labels[over],
        background=background,
        new=under_new + weight * _strokes(written, over_new),
        new_digit=written.labels[over_new],
        source=f"{written.source}; {taken.source}",
    )


def _check_request(digits: Any, **counts: int) -> tuple[int, ...]:
    for name, count in counts.items():
        check_count(name, count)
    chosen = check_digits(digits)
    if len(set(chosen)) != len(chosen):
        raise InputError(f"digits: {chosen} was given. Name each digit once.")
    return chosen


def _split(
    places: list[NDArray[np.intp]], n_each: int, n_new: int, rng: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Draw the images of each digit for the target and the held-out set."""
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


def _strokes(written: Images, places: NDArray[np.intp]) -> Array:
    """Return the digits at these indices as rows from 0 to 1."""
    return np.asarray(written.images[places].reshape(-1, _SIDE**2) / 255.0)


def _crops(taken: Images, counts: tuple[int, ...], photographs: str, rng: np.random.Generator) -> list[Array]:
    """Draw these numbers of photographs without replacement, and crop each."""
    needed = sum(counts)
    if needed > len(taken.images):
        raise NotEnoughRowsError(
            f"n_each, n_background, n_new: {needed} photographs are needed, and there are {len(taken.images)} of "
            f"{photographs!r}. Ask for fewer."
        )
    drawn = rng.permutation(len(taken.images))[:needed]
    return np.split(_cropped(taken.images[drawn], rng), np.cumsum(counts)[:-1])


def _cropped(images: NDArray[np.uint8], rng: np.random.Generator) -> Array:
    """Crop each image to 28×28 at a random position, as rows from 0 to 1."""
    corners = rng.integers(0, images.shape[1] - _SIDE + 1, size=(len(images), 2))
    reach = np.arange(_SIDE)
    rows, columns = corners[:, :1] + reach, corners[:, 1:] + reach
    pieces = images[np.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None, :]]
    return np.asarray(pieces.reshape(len(images), -1) / 255.0)
