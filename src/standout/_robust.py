"""Moments that outliers do not move: location and scatter from the directions of the rows, not their lengths.

Tyler's scatter together with the location that goes with it (Hettmansperger and Randles): with
yᵢ = C^(−1/2)(xᵢ − μ), find μ and C such that the unit vectors yᵢ/|yᵢ| have mean zero and covariance I/D. A row
counts by its direction alone, however far out it lies. Both follow every linear map of the data, so the
ratios of two datasets do not depend on the coordinates. The size of C comes from the median of |yᵢ|².
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas
from scipy.special import gammaincinv

from standout._blas import Array, add_scatter, cholesky, mirror, rank_tolerance, threads_for, top_eigen
from standout._moments import Moments
from standout.errors import InputError, NotEnoughRowsError, RowsNeededError, listed, named_features
from standout.io.read import read
from standout.io.source import collect_values

# Rows closer to the centre than this share of the median distance count as if they were that far: a row that
# is the centre itself has no direction.
_CLOSEST = 1e-6


def robust_moments(
    rows: Any,
    *,
    weights: ArrayLike | None = None,
    groups: Sequence[Hashable] | NDArray[Any] | None = None,
    names: Sequence[str] | None = None,
    max_iter: int = 1000,
    tol: float = 1e-10,
    role: str = "data",
) -> Moments:
    """Return moments of rows that a few gross outliers do not move, for use wherever moments are.

    Tyler's scatter about the Hettmansperger–Randles centre, of such a size that it estimates the covariance
    of Gaussian data. It follows linear maps of the data as the covariance does. Unlike other moments, those
    of two halves do not add up to those of the whole.

    Parameters
    ----------
    rows : array-like, frame, sparse matrix or Source, of shape (n_rows, n_features)
        The rows, more of them than features; they are held in memory. Rows on a cluster are brought to this process.
    weights : array-like of shape (n_rows,), optional
        Non-negative row weights; a weight of 2 counts as the row twice.
    groups : sequence of shape (n_rows,), optional
        Id of the independent unit (subject) each row belongs to.
    names : sequence of str, optional
        Feature names; by default the source's own.
    max_iter : int
        Most steps of the iteration; a few dozen are usual.
    tol : float
        The iteration ends when a step changes the centre and the scatter by less than this, in units of the
        scatter itself.
    role : str
        What the data is called in messages.

    Returns
    -------
    Moments
        Robust mean and scatter, with the counts of the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from standout import Moments
    >>> from standout.robust import robust_moments
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(1000, 3)) * [1, 2, 3]
    >>> rows[:30] += 100                                        # outliers
    >>> np.sqrt(Moments.of(rows).variance()).round()
    array([17., 17., 18.])
    >>> np.sqrt(robust_moments(rows).variance()).round()
    array([1., 2., 3.])
    """
    _check_iteration(max_iter, tol)
    if isinstance(rows, Moments):
        raise RowsNeededError(f"{role}: outliers can be told only among rows, and moments were given. Give the rows.")
    source = read(rows, role=role)
    weights, groups = (
        collect_values(weights, source, f"{role} weights"),
        collect_values(groups, source, f"{role} groups"),
    )
    if groups is None:
        source.check_row_values("groups", f"{role} groups")
    table = source.collect(role).astype(np.float64)
    named = source.names if names is None else names
    groups = groups if groups is not None else source.row_values("groups", f"{role} groups")
    # The classical moments check values, weights, groups and names, and hold the counts.
    plain = Moments.of(table, weights=weights, groups=groups, names=named, role=role)
    share = np.ones(len(table)) if weights is None else np.asarray(weights, dtype=np.float64)
    table, share = table[share > 0], share[share > 0] / plain.weight
    _check_enough(plain, role)
    with threads_for(20.0 * table.size * plain.n_features):
        frame = _Frame.of(table, share, plain.names, role)
        found = _joint_fixed_point(frame.coordinates, share, max_iter, tol, role)
    mean, covariance = frame.back(found)
    return replace(plain, mean=mean, residue=0.0, scatter=covariance * plain.weight)


@dataclass(frozen=True)
class _Estimate:
    """Centre and scatter in the coordinates of the iteration."""

    centre: Array  # (r,)
    factor: Array  # (r, r): lower, the scatter is factor @ factor.T


@dataclass(frozen=True)
class _Frame:
    """Coordinates in which the rows have full rank and are roughly round: x = origin + basis @ t."""

    coordinates: Array  # (n_rows, r)
    origin: Array  # (n_features,)
    basis: Array  # (n_features, r)

    @classmethod
    def of(cls, table: Array, share: Array, names: Sequence[str] | None, role: str) -> _Frame:
        """Choose them; features that are constant or repeat others are expressed by the rest."""
        middle = np.median(table, axis=0)
        scale = _scale(table, middle, names, role)
        # A row near the middle, and not the middle, is the origin: rows lie in an affine subspace, medians need not.
        away = (table - middle) / scale
        origin = table[np.argmin(np.einsum("ij,ij->i", away, away))]
        centred = (table - origin) / scale
        length = np.sqrt(np.einsum("ij,ij->i", centred, centred))
        # Directions only: an outlier must not hide a dimension behind its length.
        unit = centred * (np.sqrt(share) / np.where(length > 0, length, 1.0))[:, None]
        values, axes = top_eigen(np.asfortranarray(unit.T @ unit), table.shape[1])
        kept = values > rank_tolerance(len(values)) * values[0]
        root = np.sqrt(values[kept])
        return cls((centred @ axes[:, kept]) / root, origin, scale[:, None] * axes[:, kept] * root)

    def back(self, found: _Estimate) -> tuple[Array, Array]:
        """Return mean and covariance among the features."""
        half = self.basis @ found.factor
        return self.origin + self.basis @ found.centre, half @ half.T


def _scale(table: Array, middle: Array, names: Sequence[str] | None, role: str) -> Array:
    """Return a robust size of each feature (its median distance from the middle), one for constants."""
    size = np.median(np.abs(table - middle), axis=0)
    varies = table.max(axis=0) > table.min(axis=0)
    if not varies.any():
        raise InputError(
            f"{role}: every feature is constant ({table.shape[1]} features), so there is no scatter. Check that the "
            "right rows were given."
        )
    same = (table == middle).mean(axis=0)
    stuck = np.flatnonzero(varies & (same >= 1 - 1 / max(varies.sum(), 2)))
    if len(stuck):
        raise InputError(
            f"{role}: {len(stuck)} features have the same value in nearly all rows, and vary only in what would count "
            f"as outliers: {listed(named_features(names, stuck))}. Leave these features out, or use Moments.of."
        )
    spread = np.where(size > 0, size, table.std(axis=0))
    return np.where(varies, np.where(spread > 0, spread, 1.0), 1.0)


def _joint_fixed_point(rows: Array, share: Array, max_iter: int, tol: float, role: str) -> _Estimate:
    """Find centre and scatter of rows of full rank, and bring the scatter to the size of a covariance."""
    size = rows.shape[1]
    centre, factor = np.median(rows, axis=0), np.eye(size, order="F")
    if size == 1:  # directions are signs: the centre is the median, and the size below is the whole scatter
        centre = np.array([_weighted_median(rows[:, 0], share)])
        return _sized(_Estimate(centre, factor), rows, share)
    change = np.inf
    for _ in range(max_iter):
        white = _whitened(rows, centre, factor)
        length = np.sqrt(np.einsum("ij,ij->i", white, white))
        np.maximum(length, _CLOSEST * np.median(length), out=length)
        pull = share / length
        step = blas.dgemv(1.0, white.T, pull) / pull.sum()
        white *= np.sqrt(share * size)[:, None] / length[:, None]
        spread = mirror(add_scatter(np.zeros((size, size), order="F"), white))
        change = max(float(np.abs(step).max()), float(np.abs(spread - np.eye(size)).max()))
        turn = cholesky(spread)
        if turn is None or not np.isfinite(change):
            break
        centre = centre + factor @ step
        factor = np.asfortranarray(factor @ np.tril(turn[0]))
        if change <= tol:
            return _sized(_Estimate(centre, factor), rows, share)
    raise InputError(
        f"{role}: the robust scatter did not settle in {max_iter} steps (last change {change:.1g}): too many rows lie "
        f"in fewer than {size} dimensions, or there are few rows for the features. Give more rows or fewer features, "
        "leave out features with mostly equal values, or use a larger max_iter or tol."
    )


def _whitened(rows: Array, centre: Array, factor: Array) -> Array:
    """Return C^(−1/2)(x − μ) for every row, by one triangular solve."""
    solved: Array = blas.dtrsm(1.0, factor, (rows - centre).T, lower=1, overwrite_b=1)
    return solved.T


def _sized(found: _Estimate, rows: Array, share: Array) -> _Estimate:
    """Bring the scatter to the size of a Gaussian covariance, whose squared lengths have a χ² median."""
    white = _whitened(rows, found.centre, found.factor)
    middle = _weighted_median(np.einsum("ij,ij->i", white, white), share)
    expected = 2 * float(gammaincinv(rows.shape[1] / 2, 0.5))
    return _Estimate(found.centre, found.factor * np.sqrt(middle / expected))


def _weighted_median(values: Array, share: Array) -> float:
    """Return the median where shares count rows: the middle of the two middle values."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(share[order])
    half = below[-1] / 2
    low = np.searchsorted(below, half * (1 - 1e-12))
    high = np.searchsorted(below, half * (1 + 1e-12))
    return float(values[order[low]] + values[order[min(high, len(values) - 1)]]) / 2


def _check_enough(plain: Moments, role: str) -> None:
    # With fewer the fixed point is not settled, or not the same after a linear map.
    least = 2 * plain.n_features + 2
    if plain.rows < least:
        raise NotEnoughRowsError(
            f"{role}: {plain.rows} rows for {plain.n_features} features, and a robust scatter needs at least {least}, "
            "more than twice as many rows as features. Give more rows or fewer features, or use Moments.of."
        )


def _check_iteration(max_iter: Any, tol: Any) -> None:
    if isinstance(max_iter, bool) or not isinstance(max_iter, int | np.integer) or max_iter < 1:
        raise InputError(f"max_iter={max_iter!r} is not possible. Use a whole number from 1 on.")
    if isinstance(tol, bool) or not isinstance(tol, float | int | np.floating) or not 0 < tol < 1:
        raise InputError(f"tol={tol!r} is not possible. Use a number between 0 and 1.")
