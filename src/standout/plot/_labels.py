"""Labels of rows: classes, or a continuous variable where numeric labels take many values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout._blas import Array
from standout.errors import InputError
from standout.io.memory import is_missing

# Numeric labels with more distinct values than this are continuous; a legend has no more entries than this.
MAX_CLASSES = 20


@dataclass(frozen=True, eq=False)
class Labels:
    """The label of each row, as the code of a class or as a number."""

    names: tuple[str, ...]  # of the classes, sorted; empty for continuous labels
    codes: NDArray[np.intp]  # (n_rows,): class of each row, −1 where the label is missing
    numbers: Array | None = None  # (n_rows,): continuous labels, NaN where missing

    @classmethod
    def of(cls, values: Any, n_rows: int, role: str = "labels") -> Labels:
        """Encode the labels of ``n_rows`` rows."""
        given = np.array(values, dtype=object) if isinstance(values, list | tuple) else np.asarray(values)
        if given.shape != (n_rows,):
            raise InputError(f"{role}: shape {given.shape} for {n_rows} rows. Give one label for each row.")
        present = ~_missing(given)
        numbers = _as_numbers(given[present])
        codes = np.full(n_rows, -1, dtype=np.intp)
        if numbers is None:
            texts = [str(value) or "(empty)" for value in given[present]]
            names = tuple(sorted(set(texts), key=_natural))
            code = {name: index for index, name in enumerate(names)}
            codes[present] = [code[text] for text in texts]
            return cls(names, codes)
        distinct, inverse = np.unique(numbers, return_inverse=True)
        if len(distinct) > MAX_CLASSES:
            continuous = np.full(n_rows, np.nan)
            continuous[present] = np.where(np.isinf(numbers), np.nan, numbers)
            return cls((), codes, continuous)
        codes[present] = inverse
        return cls(tuple(f"{value:.12g}" for value in distinct), codes)

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Mask of the rows without a label."""
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
    """Return labels as floats if all are numeric; booleans are classes."""
    if present.dtype.kind == "O":
        numeric = len(present) > 0 and all(
            isinstance(value, Real) and not isinstance(value, bool | np.bool_) for value in present
        )
    else:
        numeric = present.dtype.kind in "fiu"
    return present.astype(np.float64) if numeric else None


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts "day 10" after "day 9"."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part) if part.isdecimal() and part.isascii() else -1, part) for part in parts]
