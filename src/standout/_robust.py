"""Robust moments: location and scatter from the directions of the rows, not their lengths.

Tyler's scatter with the Hettmansperger–Randles location: with yᵢ = C^(−1/2)(xᵢ − μ), find μ and C such that the unit
vectors yᵢ/|yᵢ| have mean zero and covariance I/D. Only the direction of a row counts, so an outlier has bounded
influence. Both are equivariant under linear maps, so the ratios of two datasets do not depend on the coordinates. C is
scaled by the median of |yᵢ|².
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas
from scipy.special import gammaincinv

from standout._blas import Array, above_rounding, add_scatter, cholesky, mirror, threads_for, top_eigen
from standout._moments import Moments
from standout.errors import InputError, NotEnoughRowsError, RowsNeededError, listed, named_features
from standout.io.read import read
from standout.io.source import collect_values

# Rows closer to the centre than this share of the median distance count as that far away, because a row at the
# centre has no direction.
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
    """Estimate moments that are robust to outliers, for use wherever moments are accepted.

    The scatter is Tyler's about the Hettmansperger–Randles centre, scaled to estimate the covariance of Gaussian data.
    It is equivariant under linear maps, as the covariance is. Unlike other moments, those of two halves do not add up
    to those of the whole.

    Parameters
    ----------
    rows : array-like, frame, sparse matrix or Source, of shape (n_rows, n_features)
        The rows, more than twice as many as features; they are held in memory. Rows on a cluster are collected into
        this process.
    weights : array-like of shape (n_rows,), optional
        Non-negative row weights; a weight of 2 counts as the row twice.
    groups : sequence of shape (n_rows,), optional
        Id of the independent unit (subject) each row belongs to.
    names : sequence of str, optional
        Feature names; by default those of the source.
    max_iter : int
        Maximum number of iterations; a few dozen are usual.
    tol : float
        The iteration ends when a step changes centre and scatter by less than this, in units of the scatter.
    role : str
        Name of the data in messages.

    Returns
    -------
    Moments
        Robust mean and scatter, with the counts of the rows.

    See Also
    --------
    standout.Moments : The result, and classical moments by ``Moments.of``.
    standout.DPCA : Accepts moments instead of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from standout import Moments, robust_moments
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(1000, 3)) * [1, 2, 3]
    >>> rows[:30] += 100                                        # outliers
    >>> np.sqrt(Moments.of(rows).variance()).round()
    array([17., 17., 18.])
    >>> np.sqrt(robust_moments(rows).variance()).round()
    array([1., 2., 3.])
    """
    if isinstance(max_iter, bool) or not isinstance(max_iter, int | np.integer) or max_iter < 1:
        raise InputError(f"max_iter={max_iter!r} is not possible. Use a whole number from 1 on.")
    if isinstance(tol, bool) or not isinstance(tol, float | int | np.floating) or not 0 < tol < 1:
        raise InputError(f"tol={tol!r} is not possible. Use a number between 0 and 1.")
    if isinstance(rows, Moments):
        raise RowsNeededError(f"{role}: robust moments need rows, but moments were given. Give the rows.")
    source = read(rows, role=role)
    weights = collect_values(weights, source, f"{role} weights")
    groups = collect_values(groups, source, f"{role} groups")
    if groups is None:
        source.check_row_values("groups", f"{role} groups")
    table = source.collect(role).astype(np.float64)
    if groups is None:
        groups = source.row_values("groups", f"{role} groups")
    # The classical moments check values, weights, groups and names, and provide the counts.
    names = source.names if names is None else names
    classical = Moments.of(table, weights=weights, groups=groups, names=names, role=role)
    required = 2 * classical.n_features + 2  # with fewer the fixed point may not exist, or not be equivariant
    if classical.rows < required:
        raise NotEnoughRowsError(
            f"{role}: {classical.rows} rows for {classical.n_features} features, but a robust scatter needs more than "
            f"twice as many, at least {required}. Give more rows or fewer features, or use Moments.of."
        )
    share = np.ones(len(table)) if weights is None else np.asarray(weights, dtype=np.float64)
    table, share = table[share > 0], share[share > 0] / classical.weight
    with threads_for(20.0 * table.size * classical.n_features):
        coordinates, origin, basis = _coordinates(table, share, classical.names, role)
        centre, factor = _joint_fixed_point(coordinates, share, max_iter, tol, role)
        # Scale the scatter to a Gaussian covariance, whose squared lengths have a χ² median.
        white = _whitened(coordinates, centre, factor)
        median = _weighted_median(np.einsum("ij,ij->i", white, white), share)
        factor = factor * np.sqrt(median / (2 * float(gammaincinv(len(centre) / 2, 0.5))))
    half = basis @ factor
    return replace(classical, mean=origin + basis @ centre, residue=0.0, scatter=half @ half.T * classical.weight)


def _coordinates(table: Array, share: Array, names: Sequence[str] | None, role: str) -> tuple[Array, Array, Array]:
    """Return coordinates of full rank and roughly equal scale, with origin and basis: x = origin + basis @ t.

    Features that are constant or linear combinations of others are expressed by the rest.
    """
    median = np.median(table, axis=0)
    scale = _scale(table, median, names, role)
    # The origin is the row nearest to the median: rows lie in an affine subspace, and the median need not.
    centred = (table - median) / scale
    origin = table[np.argmin(np.einsum("ij,ij->i", centred, centred))]
    centred = (table - origin) / scale
    length = np.sqrt(np.einsum("ij,ij->i", centred, centred))
    # Directions only: the length of an outlier must not make the other dimensions negligible.
    unit = centred * (np.sqrt(share) / np.where(length > 0, length, 1.0))[:, None]
    values, axes = top_eigen(np.asfortranarray(unit.T @ unit), table.shape[1])
    kept = above_rounding(values)
    root = np.sqrt(values[kept])
    return (centred @ axes[:, kept]) / root, origin, scale[:, None] * axes[:, kept] * root


def _scale(table: Array, median: Array, names: Sequence[str] | None, role: str) -> Array:
    """Return the median absolute deviation of each feature; one for constant features."""
    deviation = np.median(np.abs(table - median), axis=0)
    varies = table.max(axis=0) > table.min(axis=0)
    if not varies.any():
        raise InputError(
            f"{role}: every feature is constant ({table.shape[1]} features), so the scatter is zero. Check that the "
            "right rows were given."
        )
    equal = (table == median).mean(axis=0)
    stuck = np.flatnonzero(varies & (equal >= 1 - 1 / max(varies.sum(), 2)))
    if len(stuck):
        raise InputError(
            f"{role}: {len(stuck)} features have the same value in nearly all rows, and vary only in rows that count "
            f"as outliers: {listed(named_features(names, stuck))}. Leave these features out, or use Moments.of."
        )
    scale = np.where(deviation > 0, deviation, table.std(axis=0))
    return np.where(varies, np.where(scale > 0, scale, 1.0), 1.0)


def _joint_fixed_point(rows: Array, share: Array, max_iter: int, tol: float, role: str) -> tuple[Array, Array]:
    """Return centre and lower factor of the scatter, up to its scale, of rows of full rank."""
    size = rows.shape[1]
    centre, factor = np.median(rows, axis=0), np.eye(size, order="F")
    if size == 1:  # directions are signs: the centre is the median, and the scatter is only its scale
        return np.array([_weighted_median(rows[:, 0], share)]), factor
    change = np.inf
    for _ in range(max_iter):
        white = _whitened(rows, centre, factor)
        length = np.sqrt(np.einsum("ij,ij->i", white, white))
        np.maximum(length, _CLOSEST * np.median(length), out=length)
        pull = share / length
        step = blas.dgemv(1.0, white.T, pull) / pull.sum()
        white *= np.sqrt(share * size)[:, None] / length[:, None]
        scatter = mirror(add_scatter(np.zeros((size, size), order="F"), white))
        change = max(float(np.abs(step).max()), float(np.abs(scatter - np.eye(size)).max()))
        update = cholesky(scatter)
        if update is None or not np.isfinite(change):
            break
        centre = centre + factor @ step
        factor = np.asfortranarray(factor @ np.tril(update[0]))
        if change <= tol:
            return centre, factor
    raise InputError(
        f"{role}: the robust scatter did not converge in {max_iter} steps (last change {change:.1g}): too many rows "
        f"lie in fewer than {size} dimensions, or there are few rows for the features. Give more rows or fewer "
        "features, leave out features with mostly equal values, or use a larger max_iter or tol."
    )


def _whitened(rows: Array, centre: Array, factor: Array) -> Array:
    """Return C^(−1/2)(x − μ) for every row, by one triangular solve."""
    solved: Array = blas.dtrsm(1.0, factor, (rows - centre).T, lower=1, overwrite_b=1)
    return solved.T


def _weighted_median(values: Array, share: Array) -> float:
    """Return the median of values with frequency weights: the mean of the two middle values."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(share[order])
    half = below[-1] / 2
    low = np.searchsorted(below, half * (1 - 1e-12))
    high = np.searchsorted(below, half * (1 + 1e-12))
    return float(values[order[low]] + values[order[min(high, len(values) - 1)]]) / 2
