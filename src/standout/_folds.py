"""Held-out ratios over folds: assignment of units to folds, variance components, bias correction and intervals.

A unit is what is independent: a group (subject) where groups are given, a row otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from standout._blas import Array
from standout._spectrum import mean_log_variance
from standout.io.memory import as_ids

Index = NDArray[np.intp]

# A held-out variance below this share of the training target's is rounding error.
_NEGLIGIBLE = 1e-24


@dataclass(frozen=True)
class Units:
    """The independent units of one dataset."""

    rows: Index  # (n_rows,): the unit of each row, from 0 on
    ids: tuple[Hashable, ...]  # group ids; empty where each row is a unit

    @property
    def count(self) -> int:
        """Number of units."""
        return len(self.ids) or len(self.rows)


def coded(ids: Any) -> tuple[Index, tuple[Hashable, ...]]:
    """Return a number for each id, in order of appearance, and the distinct ids."""
    listed = as_ids(ids).tolist()
    number = {name: position for position, name in enumerate(dict.fromkeys(listed))}
    return np.array([number[name] for name in listed], dtype=np.intp), tuple(number)


def unit_means(rows: Array, units: Index) -> Array:
    """Return the mean of each unit's rows, (n_units, n_features)."""
    counts = np.bincount(units)
    if len(counts) == len(units):
        means = np.empty_like(rows)
        means[units] = rows
        return means
    order = np.argsort(units, kind="stable")
    starts = np.cumsum(counts) - counts
    return np.asarray(np.add.reduceat(rows[order], starts, axis=0) / counts[:, None])


def rows_by_unit(units: Index) -> list[Index]:
    """Return the row numbers of each unit."""
    return np.split(np.argsort(units, kind="stable"), np.cumsum(np.bincount(units))[:-1])


def even_quotas(sets: Sequence[Units], folds: int) -> list[list[int]]:
    """Return the number of units of each dataset in each fold, as equal as possible."""
    return [[len(part) for part in np.array_split(np.arange(own.count), folds)] for own in sets]


def assigned(sets: Sequence[Units], quotas: Sequence[Sequence[int]], rng: np.random.Generator) -> list[Index]:
    """Return the fold of each unit of each dataset; a group that is in several datasets is in one fold."""
    fold_of_group: dict[Hashable, int] = {}
    folds = []
    for units, quota in zip(sets, quotas, strict=True):
        own = np.full(units.count, -1)
        for unit, name in enumerate(units.ids):
            own[unit] = fold_of_group.get(name, -1)
        taken = np.bincount(own[own >= 0], minlength=len(quota))
        room, free = (np.array(quota) - taken).clip(min=0), own < 0
        while room.sum() > free.sum():  # groups of other datasets overfill some folds
            room[np.argmax(np.where(room > 0, room + taken, -1))] -= 1
        own[free] = rng.permutation(np.repeat(np.arange(len(quota)), room))
        fold_of_group.update(zip(units.ids, own.tolist(), strict=bool(units.ids)))
        folds.append(own)
    return folds


@dataclass(frozen=True)
class Spread:
    """Variance components of one dataset's scores, within and between units, by a one-way analysis of variance.

    Rows have equal variances whatever their weights; a weight only counts a row several times.
    """

    within: Array  # (k,); 0 where each row is a unit
    between: Array  # (k,); unbiased, so it can be negative, but the sum of the two cannot
    mean: Array  # (k,): of all rows
    sums: Array  # (3, n_units): of each unit's weights, their squares and their cubes
    # Expected sums of squares for variance components of one: within units, and of the unit means due to the variance
    # between and within units.
    expected: tuple[float, float, float]

    @classmethod
    def of(cls, scores: Array, units: Index, weights: Array | None = None) -> Spread:
        """Estimate the components for each column of the scores."""
        _, codes = np.unique(units, return_inverse=True)
        weights = np.ones(len(scores)) if weights is None else weights
        sizes, squares, cubes = (np.bincount(codes, weights**power) for power in (1, 2, 3))
        total = sizes.sum()
        inside, divisor = (sizes - squares / sizes).sum(), total - (sizes**2).sum() / total
        noise = (squares / sizes).sum() - squares.sum() / total
        mean = weights @ scores / total
        means = np.zeros((len(sizes), scores.shape[1]))
        np.add.at(means, codes, weights[:, None] * (scores - mean))
        means /= sizes[:, None]
        within = np.zeros(len(mean))
        if len(scores) > len(sizes):
            within = weights @ (scores - mean - means[codes]) ** 2 / inside
        between = (sizes @ means**2 - noise * within) / divisor
        return cls(within, between, mean, np.array([sizes, squares, cubes]), (inside, divisor, noise))

    @property
    def total(self) -> Array:
        """The variance, unbiased."""
        return self.within + self.between

    def terms(self, within: Array, between: Array) -> tuple[Array, Array]:
        """Return scales and degrees of freedom of the χ² terms of this variance, given the population's components."""
        sizes, squares, cubes = self.sums
        inside, divisor, noise = self.expected
        shares = (sizes / sizes.sum())[:, None]
        # Variance times size of each unit's mean; of their weighted squares, mean and variance (Satterthwaite).
        units = (squares / sizes)[:, None] * within + sizes[:, None] * between
        mean = (units * (1 - shares)).sum(axis=0)
        spread = (units**2 * (1 - 2 * shares)).sum(axis=0) + (units * shares).sum(axis=0) ** 2
        freedom = mean**2 / np.where(spread > 0, spread, 1.0)
        of_inside = (squares - 2 * cubes / sizes + (squares / sizes) ** 2).sum()
        degrees = inside**2 / of_inside if of_inside > 0 else 1.0
        scales = np.array([mean / divisor, (1 - noise / divisor) * within])
        return scales.clip(min=0), np.array([np.where(mean > 0, freedom, 1.0), np.full(len(mean), max(degrees, 1.0))])

    def of_mean(self, within: Array, between: Array) -> Array:
        """Return the variance of the mean of all rows, given the population's components."""
        sizes, squares, _ = self.sums
        return np.asarray((within * squares.sum() + between * (sizes**2).sum()) / sizes.sum() ** 2)


@dataclass(frozen=True)
class Fold:
    """Variances of the held-out scores of one fold."""

    target: Spread
    backgrounds: tuple[Spread, ...]
    shares: Array  # of the backgrounds
    unit: Array  # (k,): target variance on the training rows, the unit of the scores
    shift: Array | None = None  # (k,): squared distance of the means, where it counts as target variance

    @property
    def ratios(self) -> Array:
        """Held-out target variance over background variance; NaN where both are zero."""
        target = self.target.total + (0.0 if self.shift is None else self.shift)
        background = sum(share * own.total for share, own in zip(self.shares, self.backgrounds, strict=True))
        first, second = (np.where(value <= _NEGLIGIBLE * self.unit, 0.0, value) for value in (target, background))
        with np.errstate(all="ignore"):
            return np.asarray(first / second)


def log_ratios(folds: Sequence[Fold]) -> Array:
    """Return bias-corrected log held-out ratios, (n_folds, k) for the components that all folds have.

    The bias is the expected log ratio of Gaussian rows with equal population variances. Components of different folds
    differ in scale, so variances are averaged over folds in units of the training target's.
    """
    k = min(len(fold.unit) for fold in folds)
    units = [np.where(fold.unit > 0, fold.unit, 1.0)[:k] for fold in folds]
    population = []  # the variance components of the target and of each background
    for parts in zip(*((fold.target, *fold.backgrounds) for fold in folds), strict=True):
        own = [(part.within[:k] / unit, part.between[:k] / unit) for part, unit in zip(parts, units, strict=True)]
        within, between = np.mean(own, axis=0)
        population.append((within, np.maximum(between, 0.0)))
    with np.errstate(all="ignore"):
        logs = np.stack([np.log(fold.ratios[:k]) for fold in folds])
        return logs - np.stack([_expected_log_ratio(fold, population) for fold in folds])


def _expected_log_ratio(fold: Fold, population: list[tuple[Array, Array]]) -> Array:
    """Return the expected log ratio of a fold, given the variance components of the population."""
    total, *totals = (within + between for within, between in population)
    mixed = np.asarray(sum(share * own for share, own in zip(fold.shares, totals, strict=True)))
    units = [np.where(unit > 0, unit, 1.0) for unit in (total, *[mixed] * len(totals))]
    own, *others = ((within / unit, between / unit) for (within, between), unit in zip(population, units, strict=True))
    scales, freedom = fold.target.terms(*own)
    backgrounds = list(zip(fold.shares, fold.backgrounds, others, strict=True))
    if fold.shift is not None:
        shift = fold.target.of_mean(*own) + sum(share**2 * spread.of_mean(*part) for share, spread, part in backgrounds)
        scales, freedom = np.vstack([scales, shift]), np.vstack([freedom, np.ones_like(shift)])
    terms = [(share, *spread.terms(*part)) for share, spread, part in backgrounds]
    background = mean_log_variance(
        np.vstack([share * scales for share, scales, _ in terms]), np.vstack([freedom for _, _, freedom in terms])
    )
    return mean_log_variance(scales, freedom) - background


def mean_over_folds(logs: Array) -> Array:
    """Return the mean log ratio of each component, (k,), without undefined folds (0/0); NaN if all are undefined."""
    defined = ~np.isnan(logs)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(defined, logs, 0.0).sum(axis=0) / defined.sum(axis=0))


def over_folds(logs: Array, level: float) -> Array:
    """Return the t interval of the mean log ratio of each component, (2, k), widened because training sets overlap.

    Undefined folds (0/0) are left out. If some folds are infinite, the interval extends to infinity, and its other
    end is that of the finite folds. The widening is that of Nadeau and Bengio (2003).

    Examples
    --------
    >>> over_folds(np.log([[2.0, np.inf], [2.0, 3.0], [np.nan, 3.0]]), 0.95)[0].round(3)
    array([0.693, 1.099])
    """
    ends = [_over_folds(column[~np.isnan(column)], len(logs), level) for column in logs.T]
    return np.array(ends).reshape(-1, 2).T


def _over_folds(logs: Array, folds: int, level: float) -> tuple[float, float]:
    finite = logs[np.isfinite(logs)]
    low = high = math.nan
    if len(finite) > 1:
        error = finite.std(ddof=1) * math.sqrt(1 / len(finite) + 1 / (folds - 1))
        low, high = finite.mean() + student.ppf([(1 - level) / 2, (1 + level) / 2], len(finite) - 1) * error
    if len(finite) == len(logs):
        return low, high
    if len(finite) < 2:  # too few to estimate an end, unless no fold is undefined and all are equal
        return (logs.min(), logs.max()) if len(logs) == folds and logs.min() == logs.max() else (-math.inf, math.inf)
    return (-math.inf if logs.min() == -math.inf else low), (math.inf if logs.max() == math.inf else high)


def fold_notes(logs: Array, names: Sequence[str]) -> list[str]:
    """Return notes on folds in which a held-out variance is zero, given the names of the components."""
    notes = []
    for name, column in zip(names, logs.T, strict=False):
        both = np.isposinf(column).any() and np.isneginf(column).any()
        for found, what, ratio in (
            (np.isnan(column), "neither the held-out target nor the background varies", "undefined"),
            (column == math.inf, "the held-out background does not vary", "undefined" if both else "infinite"),
            (column == -math.inf, "the held-out target does not vary", "undefined" if both else "zero"),
        ):
            if found.any():
                where = f"{found.sum()} of {len(column)} folds" if len(column) > 1 else "the split"
                left_out = np.isnan(column[found]).all() and not found.all()
                effect = "which are left out" if left_out else f"so its ratio is {ratio}"
                notes.append(
                    f"{name}: {what} in {where}, {effect}. Give more rows, or leave out features that hardly vary."
                )
    return notes
