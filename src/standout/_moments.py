"""Moments of a dataset: count, mean and scatter, which are sufficient for the solvers.

The moments of two parts can be merged into the moments of the whole, so data in memory, on disk and on
several machines give the same results.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from standout._accumulate import (
    SMALLEST,
    Accumulator,
    AddScatter,
    Sums,
    merged_scatter,
    scatter_adder,
    sums_of_sparse,
)
from standout._blas import Array, constant_features, symmetric
from standout.errors import FeatureError, InputError, listed
from standout.io.checkpoint import CheckpointedPass
from standout.io.memory import distinct_groups, explain_non_finite, explain_underflow, weighted_blocks
from standout.io.read import open_data
from standout.io.source import Source

# If sd / |mean| is above this, the rounding error of the mean is negligible in the scatter.
_MIN_VARIATION = 1e-4


@dataclass(frozen=True)
class Counts:
    """Number of rows, their total weight, and effective sample sizes."""

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
        Weighted sum of ``(x - mean)(x - mean)ᵀ``, not normalised.
    weight, weight_squared : float
        Sum of the weights, and of their squares.
    rows : int
        Number of rows with a positive weight.
    groups : frozenset or None
        The distinct group ids, if groups were given.
    names : tuple of str or None
        Feature names.
    residue : ndarray of shape (n_features,) or 0.0
        Rounding error of the mean (compensation term), if known. Moments are merged about ``mean + residue``, so
        that merging loses no precision if the mean is large relative to the spread.

    See Also
    --------
    standout.robust_moments : Moments that are robust to outliers.
    standout.read : Open files and other data whose moments are to be computed.
    standout.DPCA : Accepts moments instead of rows.

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
    residue: Array | float = 0.0

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
        """Compute the moments of rows.

        Parameters
        ----------
        data : array-like or Source, of shape (n_rows, n_features)
            Any data supported by :func:`standout.read`.
        weights : array-like of shape (n_rows,), optional
            Non-negative row weights; a weight of 2 is equivalent to repeating the row.
        groups : sequence of shape (n_rows,), optional
            Id of the independent unit (subject) of each row.
        names : sequence of str, optional
            Feature names; by default those of the source.
        role : str
            Name of the data in messages.

        Returns
        -------
        Moments

        Examples
        --------
        >>> from standout import Moments
        >>> moments = Moments.of([[1, 2], [3, 6]], weights=[1, 3], groups=["anna", "ben"])
        >>> moments.mean, moments.rows, moments.units
        (array([2.5, 5. ]), 2, 2.0)
        """
        if isinstance(data, Moments):
            raise InputError(f"{role}: these are moments already. Use them as they are.")
        source = open_data(data, role)
        if names is not None and len(names) != source.n_features:
            what = f"{len(names)} names for {source.n_features} features"
            raise FeatureError(f"{role} names: {what}. Give one for each feature.")
        named = source.names if names is None else tuple(names)
        return source.moments(weights, groups, names=named, role=role)

    @classmethod
    def from_sums(cls, sums: Sums, groups: frozenset[Hashable] | None, names: tuple[str, ...] | None) -> Moments:
        """Return the moments of accumulated rows."""
        return cls(sums.mean, sums.scatter, sums.weight, sums.weight_squared, sums.rows, groups, names, sums.residue)

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
        """The counts, without the arrays."""
        return Counts(self.rows, self.weight, self.n_effective, self.units)

    def covariance(self, ddof: float = 0.0) -> Array:
        """Return ``scatter / (weight - ddof)``; the default divides by the count, as the paper does.

        Examples
        --------
        >>> from standout import Moments
        >>> Moments.of([[1, 2], [3, 6]]).covariance()
        array([[1., 2.],
               [2., 4.]])
        """
        return self.scatter / (self.weight - ddof)

    def variance(self) -> Array:
        """Return the variance of each feature; values within rounding error of the mean count as zero.

        Examples
        --------
        >>> from standout import Moments
        >>> Moments.of([[1, 2], [3, 6]]).variance()
        array([1., 4.])
        """
        variance = np.maximum(self.scatter.diagonal() / self.weight, 0.0)
        return np.where(constant_features(variance, self.mean), 0.0, variance)

    def project(self, matrix: ArrayLike) -> Moments:
        """Return the moments of ``rows @ matrix``, for a matrix of shape (n_features, k).

        Examples
        --------
        >>> from standout import Moments
        >>> total = Moments.of([[1, 2], [3, 6]]).project([[1], [1]])      # the sum of both features
        >>> total.mean, total.variance()
        (array([6.]), array([9.]))
        """
        basis = np.asarray(matrix, dtype=np.float64)
        if basis.ndim != 2 or len(basis) != self.n_features:
            raise InputError(
                f"matrix: shape {basis.shape} does not fit {self.n_features} features. Give one row for each feature."
            )
        scatter = symmetric(basis.T @ self.scatter @ basis)
        return replace(self, mean=self.mean @ basis, scatter=scatter, names=None, residue=0.0)

    def select(self, index: NDArray[np.intp]) -> Moments:
        """Return the moments of the features at ``index``, in that order.

        Examples
        --------
        >>> from standout import Moments
        >>> moments = Moments.of([[1, 2], [3, 6]], names=["height", "weight"])
        >>> moments.select([1]).names, moments.select([1]).mean
        (('weight',), array([4.]))
        """
        names = None if self.names is None else tuple(self.names[i] for i in index)
        residue = np.broadcast_to(self.residue, self.mean.shape)[index]
        scatter = self.scatter[np.ix_(index, index)]
        return replace(self, mean=self.mean[index], scatter=scatter, names=names, residue=residue)

    def __radd__(self, other: object) -> Moments:
        """Support ``sum`` of a list of moments, which starts from zero."""
        return self if other == 0 else NotImplemented

    def __add__(self, other: Moments) -> Moments:
        """Merge with the moments of other rows on the same features."""
        if not isinstance(other, Moments):
            return NotImplemented
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
        groups, names = _merged_groups(self, other), self.names or other.names
        if self.weight == 0 or other.weight == 0:
            return replace(other if self.weight == 0 else self, groups=groups, names=names)
        mean, residue, scatter = merged_scatter(self, other)
        weight, squared = self.weight + other.weight, self.weight_squared + other.weight_squared
        return Moments(mean, scatter, weight, squared, self.rows + other.rows, groups, names, residue)


def sums_of_block(block: NDArray[Any], weights: Array | None = None) -> Sums | None:
    """Accumulate data of a single block in two passes, which is cheap for data that fit into the cache.

    Return None if that is not accurate (a mean far from zero, a constant, a non-finite value); the
    accumulator must then be used.
    """
    with np.errstate(all="ignore"):
        weight = float(len(block)) if weights is None else float(weights.sum())
        total = np.add.reduce(block, axis=0, dtype=np.float64) if weights is None else weights @ block
        mean = np.asarray(total / weight, dtype=np.float64)
        centred = np.subtract(block, mean, dtype=np.float64, casting="unsafe")
        squared = weight
        if weights is not None:
            centred *= np.sqrt(weights)[:, None]
            squared = float((weights * weights).sum())
        scatter = (centred.T @ centred).T  # symmetric; F-ordered for LAPACK
        square = scatter.diagonal()
        steady = square > (_MIN_VARIATION * mean) ** 2 * weight + SMALLEST * weight
        if not (steady.all() and math.isfinite(square.sum())):
            return None
    return Sums(mean, 0.0, scatter, weight, squared, len(block))


def sum_rows(
    source: Source, weights: ArrayLike | None, groups: Any, names: tuple[str, ...] | None, role: str
) -> Moments:
    """Return the moments of a source in one pass over its blocks, resumed from its checkpoint if it has one."""
    ids = None
    with scatter_adder(source.n_rows, source.n_features, source.reads_ahead) as add:
        if source.checkpoint is None:
            sums, seen = _added_up(source, weights, names, role, add)
            groups = source.groups if groups is None else groups  # after the pass, which reads the groups of files
        else:
            accumulator = Accumulator(source.n_features, add)
            seen, ids = CheckpointedPass(source, accumulator, weights, groups is None, names, role).run()
            sums = accumulator.finish()
    if len(sums.underflown):
        raise explain_underflow(sums.underflown, names, role)
    if groups is not None:
        ids = distinct_groups(groups, weights, seen, role)
    return Moments.from_sums(sums, ids, names)


def _added_up(
    source: Source, weights: ArrayLike | None, names: Sequence[str] | None, role: str, add: AddScatter
) -> tuple[Sums, int]:
    """Accumulate all blocks of a source and count its rows, including those of weight zero."""
    if (found := sums_of_sparse(source, weights, role)) is not None:
        return found, source.n_rows or 0
    accumulator, seen = None, 0
    for block in weighted_blocks(source, weights, role):
        seen += block.seen
        if accumulator is None:
            whole = seen == source.n_rows and len(block.rows) > 0
            if whole and (sums := sums_of_block(block.rows, block.weights)) is not None:
                return sums, seen
            accumulator = Accumulator(source.n_features, add)
        if not accumulator.add(block.rows, block.weights):
            raise explain_non_finite(source, block.rows, role, names)
    return (accumulator or Accumulator(source.n_features)).finish(), seen


def _merged_groups(one: Moments, other: Moments) -> frozenset[Hashable] | None:
    # Ignore the groups of a part of weight zero (nothing added yet).
    if one.rows == 0 or other.rows == 0:
        return one.groups if other.rows == 0 else other.groups
    if (one.groups is None) != (other.groups is None):
        raise InputError(
            "one part has groups and the other has none, so the independent units cannot be counted. "
            "Give groups for every part or for none."
        )
    return None if one.groups is None or other.groups is None else one.groups | other.groups
