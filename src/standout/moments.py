"""Moments: count, mean and scatter of a dataset, the only thing the solvers need to know of it.

Moments of two halves add up to the moments of the whole, so data in memory, on disk and on many
machines give the same numbers. The accumulator adds up rows around a pilot shift, so that a large
mean costs no digits; the shift moves with the data when the data drift.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas

from standout.blas import Array, add_outer, add_scatter, mirror, threads_for
from standout.errors import FeatureError, InputError, listed
from standout.sources import Source, block_rows, has_moments, read
from standout.sources.locate import explain_non_finite

# With |mean| / sd below this in every feature the raw sums lose at most one digit: no shift needed.
_NEAR_ZERO = 3.0
# The shift is moved when the running mean is further from it than this many sd.
_DRIFT = 3.0
_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Counts:
    """How much data there is: rows, their weight, and what it is worth."""

    rows: int  # rows with a positive weight
    weight: float  # sum of the weights
    effective: float  # Kish's effective number of rows
    units: float  # independent units: distinct groups where given, effective rows otherwise


@dataclass(frozen=True, eq=False)
class Moments:
    """The moments of a dataset.

    Attributes
    ----------
    mean : ndarray of shape (n_features,)
        Weighted mean of the rows.
    scatter : ndarray of shape (n_features, n_features)
        Weighted sum of ``(x - mean)(x - mean)ᵀ``: raw, not divided by anything.
    weight, weight_squared : float
        Sum of the weights, and of their squares.
    rows : int
        Number of rows with a positive weight.
    groups : frozenset or None
        The distinct group ids seen, where groups were given.
    names : tuple of str or None
        Feature names.

    Examples
    --------
    >>> import numpy as np
    >>> from standout import Moments
    >>> rows = np.arange(12.0).reshape(6, 2) ** 1.5
    >>> whole = Moments.of(rows[:2]) + Moments.of(rows[2:])
    >>> np.allclose(whole.covariance(), np.cov(rows.T, ddof=0))
    True
    """

    mean: Array
    scatter: Array
    weight: float
    weight_squared: float
    rows: int
    groups: frozenset[Hashable] | None = None
    names: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls,
        data: Any,
        *,
        weights: ArrayLike | None = None,
        groups: Sequence[Hashable] | NDArray[Any] | None = None,
        names: Sequence[str] | None = None,
        role: str = "data",
    ) -> Moments:
        """Add up the moments of some rows.

        Parameters
        ----------
        data : array-like or Source, of shape (n_rows, n_features)
            Anything :func:`standout.read` understands.
        weights : array-like of shape (n_rows,), optional
            Non-negative row weights; a weight of 2 counts as the row twice.
        groups : sequence of shape (n_rows,), optional
            Id of the independent unit (subject) each row belongs to.
        names : sequence of str, optional
            Feature names; by default the source's own.
        role : str
            What the data is called in messages.

        Returns
        -------
        Moments
        """
        source = read(data, role=role)
        if weights is None and groups is None and has_moments(source):
            return source.moments()
        if groups is None:
            groups = source.groups
        accumulator = Accumulator(source.n_features)
        with threads_for((source.n_rows or 10**6) * source.n_features**2):
            for block in weighted_blocks(source, weights, role):
                if not accumulator.add(block.rows, block.weights):
                    raise explain_non_finite(source, block.rows, role)
        ids = None if groups is None else distinct_groups(groups, weights, accumulator.seen, role)
        return accumulator.moments(ids, tuple(names) if names is not None else source.names)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.mean)

    @property
    def n_effective(self) -> float:
        """Kish's effective number of rows: ``weight² / weight_squared``."""
        return self.weight**2 / self.weight_squared if self.weight_squared > 0 else 0.0

    @property
    def units(self) -> float:
        """Number of independent units: distinct groups where given, effective rows otherwise."""
        return float(len(self.groups)) if self.groups is not None else self.n_effective

    @property
    def counts(self) -> Counts:
        """The counts alone."""
        return Counts(self.rows, self.weight, self.n_effective, self.units)

    def covariance(self, ddof: float = 0.0) -> Array:
        """Return ``scatter / (weight - ddof)``; the default divides by the count, as the paper does."""
        return self.scatter / (self.weight - ddof)

    def variance(self) -> Array:
        """Return the variance of each feature; what is only rounding around the mean counts as zero."""
        variance = np.maximum(np.diagonal(self.scatter) / self.weight, 0.0)
        return np.where(variance <= (10 * _EPS * self.mean) ** 2, 0.0, variance)

    def project(self, matrix: ArrayLike) -> Moments:
        """Return the moments of ``rows @ matrix``, for a matrix of shape (n_features, k)."""
        basis = np.asarray(matrix, dtype=np.float64)
        if basis.ndim != 2 or len(basis) != self.n_features:
            raise InputError(
                f"matrix: shape {basis.shape} does not fit {self.n_features} features. Give one row for each feature."
            )
        scatter = basis.T @ self.scatter @ basis
        return replace(self, mean=self.mean @ basis, scatter=(scatter + scatter.T) / 2, names=None)

    def select(self, index: NDArray[np.intp]) -> Moments:
        """Return the moments of the features at ``index``, in that order."""
        names = None if self.names is None else tuple(self.names[i] for i in index)
        return replace(self, mean=self.mean[index], scatter=self.scatter[np.ix_(index, index)], names=names)

    def __add__(self, other: Moments) -> Moments:
        """Merge with the moments of other rows on the same features."""
        if not isinstance(other, Moments):
            return NotImplemented
        self._check_same_features(other)
        weight = self.weight + other.weight
        if weight == 0:
            return self
        shift = other.mean - self.mean
        share = other.weight / weight
        scatter = self.scatter + other.scatter + np.outer(shift, shift * (self.weight * share))
        return Moments(
            mean=self.mean + shift * share,
            scatter=scatter,
            weight=weight,
            weight_squared=self.weight_squared + other.weight_squared,
            rows=self.rows + other.rows,
            groups=_merged(self, other),
            names=self.names if self.names is not None else other.names,
        )

    def _check_same_features(self, other: Moments) -> None:
        if self.n_features != other.n_features:
            raise FeatureError(
                f"moments of {self.n_features} and of {other.n_features} features cannot be added. "
                "Use the same features in every part."
            )
        if self.names is not None and other.names is not None and self.names != other.names:
            unlike = [b for a, b in zip(self.names, other.names, strict=True) if a != b]
            raise FeatureError(
                f"moments with other feature names cannot be added: {listed(unlike)}. "
                "Bring the parts to the same features in the same order with select()."
            )


def _merged(one: Moments, other: Moments) -> frozenset[Hashable] | None:
    # A part of weight zero (nothing added yet) says nothing about groups.
    if one.rows == 0 or other.rows == 0:
        return one.groups if other.rows == 0 else other.groups
    if (one.groups is None) != (other.groups is None):
        raise InputError(
            "one part has groups and the other has none, so the independent units cannot be counted. "
            "Give groups for every part or for none."
        )
    return None if one.groups is None or other.groups is None else one.groups | other.groups


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
        self.seen = 0
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
        self.seen += len(block)
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

    def moments(self, groups: frozenset[Hashable] | None = None, names: tuple[str, ...] | None = None) -> Moments:
        """Finish: remove what the shift left of the mean, fill the other triangle."""
        shift = np.zeros(self.n_features) if self.shift is None else self.shift
        if self.weight > 0:
            shift = shift + self.sum / self.weight
            add_outer(self.scatter, self.sum, -1.0 / self.weight)
        mirror(self.scatter)
        diagonal = np.einsum("ii->i", self.scatter)
        np.maximum(diagonal, 0.0, out=diagonal)
        return Moments(shift, self.scatter, self.weight, self.weight_squared, self.rows, groups, names)


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


@dataclass(frozen=True)
class WeightedBlock:
    """Some rows, and their weights where there are any."""

    rows: NDArray[Any]
    weights: Array | None


def weighted_blocks(source: Source, weights: ArrayLike | None, role: str) -> Iterable[WeightedBlock]:
    """Yield the blocks of a source with their weights."""
    checked = None if weights is None else check_weights(weights, source.n_rows, role)
    start = 0
    for rows in source.blocks(block_rows(source.n_features)):
        stop = start + len(rows)
        yield WeightedBlock(rows, None if checked is None else checked[start:stop])
        start = stop
    if checked is not None and start != len(checked):
        raise InputError(f"{role} weights: {len(checked)} weights for {start} rows. Give one for each row.")


def check_weights(weights: ArrayLike, n_rows: int | None, role: str) -> Array:
    """Return weights as a float array, or say what is wrong with them."""
    checked = np.asarray(weights, dtype=np.float64)
    if checked.ndim != 1 or (n_rows is not None and len(checked) != n_rows):
        raise InputError(f"{role} weights: shape {checked.shape} for {n_rows} rows. Give one weight for each row.")
    if not np.isfinite(checked).all():
        raise InputError(f"{role} weights: {np.sum(~np.isfinite(checked))} are NaN or inf. Give finite weights.")
    if (checked < 0).any():
        raise InputError(
            f"{role} weights: {np.sum(checked < 0)} are negative (smallest {checked.min():g}). "
            "Weights count rows: use 0 to leave a row out."
        )
    if not checked.any():
        raise InputError(f"{role} weights: all are zero, so no row is left. Give some row a positive weight.")
    return checked


def distinct_groups(
    groups: Sequence[Hashable] | NDArray[Any], weights: ArrayLike | None, n_rows: int, role: str
) -> frozenset[Hashable]:
    """Return the distinct group ids of the rows with a positive weight."""
    ids = np.asarray(groups)
    if ids.ndim != 1 or len(ids) != n_rows:
        raise InputError(f"{role} groups: shape {ids.shape} for {n_rows} rows. Give one group id for each row.")
    if weights is not None:
        ids = ids[np.asarray(weights) > 0]
    return frozenset(ids.tolist())
