"""What rows are coloured by: classes, or a number that has many values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout.blas import Array
from standout.errors import InputError
from standout.sources.checks import is_missing

# Numbers with more values than this are a scale, with fewer they are names of classes.
MANY = 20


@dataclass(frozen=True, eq=False)
class Labels:
    """The label of each row, sorted into classes or kept as numbers."""

    names: tuple[str, ...]  # of the classes, in order; empty where labels are numbers
    codes: NDArray[np.intp]  # (n_rows,): the class of each row, −1 where the label is missing
    numbers: Array | None = None  # (n_rows,): where labels are numbers, NaN where missing

    @classmethod
    def of(cls, values: Any, n_rows: int, role: str = "labels") -> Labels:
        """Sort the labels of ``n_rows`` rows."""
        given = np.array(values, dtype=object) if isinstance(values, list | tuple) else np.asarray(values)
        if given.shape != (n_rows,):
            raise InputError(f"{role}: shape {given.shape} for {n_rows} rows. Give one label for each row.")
        gone = _missing(given)
        present = given[~gone]
        numbers = _as_numbers(present)
        if numbers is not None and len(np.unique(numbers)) > MANY:
            return cls((), np.full(n_rows, -1), _spread(np.where(np.isinf(numbers), np.nan, numbers), gone, np.nan))
        names, codes = _classes(present, numbers)
        return cls(names, _spread(codes, gone, -1))

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Which rows have no label."""
        return self.codes < 0 if self.numbers is None else np.isnan(self.numbers)

    def take(self, index: NDArray[np.intp]) -> Labels:
        """Return the labels of some rows, with the same classes."""
        return Labels(self.names, self.codes[index], None if self.numbers is None else self.numbers[index])


def _missing(given: NDArray[Any]) -> NDArray[np.bool_]:
    if given.dtype.kind == "f":
        return np.asarray(np.isnan(given))
    if given.dtype.kind in "biuUS":
        return np.zeros(len(given), dtype=bool)
    values = (value.item() if isinstance(value, np.generic) else value for value in given.tolist())
    return np.array([is_missing(value) for value in values], dtype=bool)


def _as_numbers(present: NDArray[Any]) -> Array | None:
    """Return labels as numbers if all of them are (truth values are classes)."""
    if present.dtype.kind in "fiu":
        return present.astype(np.float64)
    if present.dtype.kind != "O" or not len(present):
        return None
    numbers = all(isinstance(value, Real) and not isinstance(value, bool | np.bool_) for value in present)
    return present.astype(np.float64) if numbers else None


def _classes(present: NDArray[Any], numbers: Array | None) -> tuple[tuple[str, ...], NDArray[np.intp]]:
    if numbers is not None:
        kinds, codes = np.unique(numbers, return_inverse=True)
        return tuple(f"{kind:.12g}" for kind in kinds), codes
    place: dict[str, int] = {}
    met = np.array([place.setdefault(str(value) or "(empty)", len(place)) for value in present], dtype=np.intp)
    order = sorted(place, key=_natural)
    rank = np.empty(len(place), dtype=np.intp)
    rank[[place[name] for name in order]] = np.arange(len(order))
    return tuple(order), rank[met]


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts "day 10" after "day 9"."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part) if part.isdecimal() and part.isascii() else -1, part) for part in parts]


def _spread(values: NDArray[Any], gone: NDArray[np.bool_], fill: float) -> NDArray[Any]:
    """Put the values of the rows that have one among all rows."""
    full = np.full(len(gone), fill, dtype=values.dtype)
    full[~gone] = values
    return full
