"""Adding up rows: around a pilot shift, so that a large mean costs no digits.

The shift moves with the data when the data drift. Non-finite values show in the sums, so there is no
pass for validation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from standout.blas import Array, add_outer, add_scatter, mirror

# With |mean| / sd below this in every feature the raw sums lose at most one digit: no shift needed.
_NEAR_ZERO = 3.0
# The shift is moved when the running mean is further from it than this many sd.
_DRIFT = 3.0
_EPS = float(np.finfo(float).eps)
# Variances below this have lost digits to underflow.
_SMALLEST = 1e-305


@dataclass(frozen=True)
class Sums:
    """What was added up: mean, scatter about it, and counts."""

    mean: Array
    scatter: Array
    weight: float
    weight_squared: float
    rows: int


class Accumulator:
    """Adds up rows in place: one triangle, one buffer, float64 whatever comes in."""

    def __init__(self, n_features: int):
        self.n_features = n_features
        self.scatter = np.zeros((n_features, n_features), order="F")
        self.sum = np.zeros(n_features)
        self.shift: Array | None = None
        self.shifted = True
        self.weight = self.weight_squared = 0.0
        self.rows = 0
        self._buffer: Array | None = None

    def add(self, block: NDArray[Any], weights: Array | None = None) -> bool:
        """Add a block of rows; return False when the sums are no longer finite."""
        if len(block) == 0:
            return True
        if self.shift is None:
            self.shift, self.shifted = _pilot(block)
        else:
            self._follow_drift()
        # Overflow and NaN are looked for in the sums, once a block: they need no warning of their own.
        with np.errstate(all="ignore"):
            self._add(block, weights)
            # One number tells: NaN and inf survive every sum.
            told = self.sum.sum() + np.einsum("ii->", self.scatter)
        return math.isfinite(told)

    def _add(self, block: NDArray[Any], weights: Array | None) -> None:
        centred = self._centred(block, copy=weights is not None)
        if weights is None:
            self.sum += centred.sum(axis=0)
            self.weight += len(block)
            self.weight_squared += len(block)
            self.rows += len(block)
        else:
            root = np.sqrt(weights)
            centred *= root[:, None]
            self.sum += blas.dgemv(1.0, centred.T, root)
            self.weight += float(weights.sum())
            self.weight_squared += float((weights * weights).sum())
            self.rows += int(np.count_nonzero(weights))
        add_scatter(self.scatter, centred)

    def _centred(self, block: NDArray[Any], copy: bool) -> Array:
        """Return the block minus the shift, in the buffer; the block itself where that is free."""
        if not self.shifted and not copy and block.dtype == np.float64 and block.flags.c_contiguous:
            return block
        if self._buffer is None or len(self._buffer) < len(block):
            self._buffer = np.empty((len(block), self.n_features))
        out = self._buffer[: len(block)]
        if self.shifted and self.shift is not None:
            np.subtract(block, self.shift, out=out, casting="unsafe")
        else:
            out[...] = block
        return out

    def _follow_drift(self) -> None:
        """Move the shift to the running mean when the mean has left it by many sd."""
        assert self.shift is not None
        if self.weight <= 0:
            return
        offset = self.sum / self.weight
        spread = np.diagonal(self.scatter) / self.weight
        far = offset**2 * (1 + _DRIFT**-2) > spread
        if (far & (np.abs(offset) > 100 * _EPS * np.abs(self.shift))).any():
            self._rebase(offset)

    def _rebase(self, offset: Array) -> None:
        assert self.shift is not None
        add_outer(self.scatter, self.sum, -1.0 / self.weight)
        self.shift = self.shift + offset
        self.shifted = True
        self.sum = np.zeros(self.n_features)

    def underflown(self) -> NDArray[np.intp]:
        """Return the features that vary, but by so little that the squares are lost."""
        square = np.diagonal(self.scatter)
        return np.flatnonzero((square < _SMALLEST * self.weight) & ((square > 0) | (self.sum != 0)))

    def finish(self) -> Sums:
        """Remove what the shift left of the mean, and fill the other triangle; nothing can be added after."""
        mean = np.zeros(self.n_features) if self.shift is None else self.shift
        if self.weight > 0:
            mean = mean + self.sum / self.weight
            add_outer(self.scatter, self.sum, -1.0 / self.weight)
        mirror(self.scatter)
        diagonal = np.einsum("ii->i", self.scatter)
        np.maximum(diagonal, 0.0, out=diagonal)
        return Sums(mean, self.scatter, self.weight, self.weight_squared, self.rows)


def _pilot(block: NDArray[Any]) -> tuple[Array, bool]:
    """Guess the mean from a few rows; tell whether the sums need to be shifted by it at all."""
    few = block[:: max(1, len(block) // 64)].astype(np.float64)
    with np.errstate(all="ignore"):
        mean = few.sum(axis=0) / len(few)
        square = np.einsum("ij,ij->j", few, few) / len(few)
        if (mean * mean * (1 + _NEAR_ZERO**-2) <= square).all():
            return np.zeros(len(mean)), False
        # A constant must be met exactly: the mean of equal numbers may be off by a rounding error.
        shift = np.where((few == few[0]).all(axis=0), few[0], mean)
    return np.where(np.isfinite(shift), shift, 0.0), True
