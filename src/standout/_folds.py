"""Held-out ratios over folds: the split by unit, the variance by unit, its expected logarithm and the interval.

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

# A held-out variance below this share of the training target's is rounding.
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
    number = {name: place for place, name in enumerate(dict.fromkeys(listed))}
    return np.array([number[name] for name in listed], dtype=np.intp), tuple(number)


def even_quotas(sets: Sequence[Units], folds: int) -> list[list[int]]:
    """Return how many units of each dataset each fold gets."""
    return [[len(part) for part in np.array_split(np.arange(own.count), folds)] for own in sets]


def assigned(sets: Sequence[Units], quotas: Sequence[Sequence[int]], rng: np.random.Generator) -> list[Index]:
    """Return the fold of each unit of each dataset; a group that is in several datasets is in one fold."""
    known: dict[Hashable, int] = {}
    folds = []
    for units, quota in zip(sets, quotas, strict=True):
        own = np.full(units.count, -1)
        for unit, name in enumerate(units.ids):
            own[unit] = known.get(name, -1)
        taken = np.bincount(own[own >= 0], minlength=len(quota))
        room, free = (np.array(quota) - taken).clip(min=0), own < 0
        while room.sum() > free.sum():  # groups of other datasets overfill some folds
            room[np.argmax(np.where(room > 0, room + taken, -1))] -= 1
        own[free] = rng.permutation(np.repeat(np.arange(len(quota)), room))
        known.update(zip(units.ids, own.tolist(), strict=bool(units.ids)))
        folds.append(own)
    return folds


@dataclass(frozen=True)
class Spread:
    """The variance of one dataset's scores within and between units, by a one-way analysis of variance.

    Rows have equal variances whatever their weights, which only say how much a row counts.
    """

    within: Array  # (k,); 0 where each row is a unit
    between: Array  # (k,); unbiased, so it can be negative, but never the sum of the two
    mean: Array  # (k,): of all rows
    sums: Array  # (3, n_units): of each unit's weights, their squares and their cubes

    @classmethod
    def of(cls, scores: Array, units: Index, weights: Array | None = None) -> Spread:
        """Split the variance of each column of the scores."""
        _, codes = np.unique(units, return_inverse=True)
        weights = np.ones(len(scores)) if weights is None else weights
        sums = np.array([np.bincount(codes, weights**power) for power in (1, 2, 3)])
        sizes, mean = sums[0], weights @ scores / weights.sum()
        means = np.zeros((len(sizes), scores.shape[1]))
        np.add.at(means, codes, weights[:, None] * (scores - mean))
        means /= sizes[:, None]
        own = cls(np.zeros(len(mean)), np.zeros(len(mean)), mean, sums)
        squares = sizes @ means**2
        if len(scores) == len(sizes):
            return cls(own.within, squares / own._divisor, mean, sums)
        within = weights @ (scores - mean - means[codes]) ** 2 / own._inside.sum()
        return cls(within, (squares - own._noise * within) / own._divisor, mean, sums)

    @property
    def total(self) -> Array:
        """The variance, unbiased."""
        return self.within + self.between

    @property
    def _inside(self) -> Array:
        """Expected sum of squares inside each unit, for a variance of one."""
        return np.asarray(self.sums[0] - self.sums[1] / self.sums[0])

    @property
    def _divisor(self) -> float:
        """Expected sum of squares of the units' means, for a variance of one between units."""
        sizes = self.sums[0]
        return float(sizes.sum() - (sizes**2).sum() / sizes.sum())

    @property
    def _noise(self) -> float:
        """The same, for a variance of one within units."""
        sizes, squares, _ = self.sums
        return float((squares / sizes).sum() - squares.sum() / sizes.sum())

    def terms(self, within: Array, between: Array) -> tuple[Array, Array]:
        """Return scales and degrees of freedom of the χ² terms of this variance, given the population's two parts."""
        sizes, squares, cubes = self.sums
        shares = (sizes / sizes.sum())[:, None]
        # Variance times size of each unit's mean; of their weighted squares, mean and variance (Satterthwaite).
        units = (squares / sizes)[:, None] * within + sizes[:, None] * between
        mean = (units * (1 - shares)).sum(axis=0)
        spread = (units**2 * (1 - 2 * shares)).sum(axis=0) + (units * shares).sum(axis=0) ** 2
        freedom = mean**2 / np.where(spread > 0, spread, 1.0)
        inside = self._inside.sum()
        of_inside = (squares - 2 * cubes / sizes + (squares / sizes) ** 2).sum()
        degrees = inside**2 / of_inside if of_inside > 0 else 1.0
        scales = np.array([mean / self._divisor, (1 - self._noise / self._divisor) * within])
        return scales.clip(min=0), np.array([np.where(mean > 0, freedom, 1.0), np.full(len(mean), max(degrees, 1.0))])

    def of_mean(self, within: Array, between: Array) -> Array:
        """Return the variance of the mean of all rows, given the population's two parts."""
        sizes, squares, _ = self.sums
        total = sizes.sum()
        return np.asarray(within * squares.sum() / total**2 + between * (sizes**2).sum() / total**2)


@dataclass(frozen=True)
class Fold:
    """Held-out scores of one fold."""

    target: Spread
    backgrounds: tuple[Spread, ...]
    shares: Array  # of the backgrounds
    unit: Array  # (k,): target variance on the training rows, the unit of the scores
    shift: Array | None = None  # (k,): squared distance of the means, where it counts as target variance

    @property
    def ratios(self) -> Array:
        """Held-out target variance over background variance; NaN where both are zero."""
        target = self.target.total + (0.0 if self.shift is None else self.shift)
        background = np.asarray(
            sum(share * own.total for share, own in zip(self.shares, self.backgrounds, strict=True))
        )
        first, second = (np.where(value <= _NEGLIGIBLE * self.unit, 0.0, value) for value in (target, background))
        with np.errstate(all="ignore"):
            return np.asarray(first / second)


def log_ratios(folds: Sequence[Fold]) -> Array:
    """Return log held-out ratios less what is expected of noise, (n_folds, k) for the components all folds have."""
    kept = min(len(fold.unit) for fold in folds)
    with np.errstate(all="ignore"):
        return np.stack([np.log(fold.ratios[:kept]) for fold in folds]) - _expected(folds, kept)


def _expected(folds: Sequence[Fold], kept: int) -> Array:
    """Return each fold's expected log ratio, (n_folds, kept), for Gaussian rows of equal population variances.

    Components of folds differ in scale, so variances are averaged over folds in units of the training target's.
    """
    units = [np.where(fold.unit > 0, fold.unit, 1.0)[:kept] for fold in folds]
    parts = []
    for spread in zip(*((fold.target, *fold.backgrounds) for fold in folds), strict=True):
        within = np.mean([one.within[:kept] / unit for one, unit in zip(spread, units, strict=True)], axis=0)
        between = np.mean([one.between[:kept] / unit for one, unit in zip(spread, units, strict=True)], axis=0)
        parts.append((within, np.maximum(between, 0.0)))
    return np.stack([_fold_expected(fold, parts) for fold in folds])


def _fold_expected(fold: Fold, parts: list[tuple[Array, Array]]) -> Array:
    totals = [within + between for within, between in parts]
    mixed = sum(share * total for share, total in zip(fold.shares, totals[1:], strict=True))

    def relative(values: Array, to: Array) -> Array:
        return np.asarray(values / np.where(to > 0, to, 1.0))

    scales, freedom = fold.target.terms(*parts[0])
    scales = relative(scales, totals[0])
    backgrounds = list(zip(fold.shares, fold.backgrounds, parts[1:], strict=True))
    if fold.shift is not None:
        shift = relative(fold.target.of_mean(*parts[0]), totals[0])
        for share, spread, part in backgrounds:
            shift = shift + share**2 * relative(spread.of_mean(*part), mixed)
        scales, freedom = np.vstack([scales, shift]), np.vstack([freedom, np.ones_like(shift)])
    first = mean_log_variance(scales, freedom)
    terms = [
        (share * scales, freedom) for share, spread, part in backgrounds for scales, freedom in [spread.terms(*part)]
    ]
    scales, freedom = (np.vstack(values) for values in zip(*terms, strict=True))
    return first - mean_log_variance(relative(scales, mixed), freedom)


def mean_over_folds(logs: Array) -> Array:
    """Return the mean log ratio of each component, (k,), without undefined folds (0/0); NaN where none is left."""
    defined = ~np.isnan(logs)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(defined, logs, 0.0).sum(axis=0) / defined.sum(axis=0))


@dataclass(frozen=True)
class Interval:
    """Interval of the mean log ratio of each component."""

    low: Array
    high: Array


def over_folds(logs: Array, level: float) -> Interval:
    """Return the t interval of the mean log ratio of each component, widened because training sets overlap.

    Undefined folds (0/0) are left out. Where some folds are infinite, the interval reaches to infinity, and its other
    end is that of the finite folds. The widening is that of Nadeau and Bengio (2003).

    Examples
    --------
    >>> over_folds(np.log([[2.0, np.inf], [2.0, 3.0], [np.nan, 3.0]]), 0.95).low.round(3)
    array([0.693, 1.099])
    """
    ends = [_over_folds(column[~np.isnan(column)], len(logs), level) for column in logs.T]
    return Interval(*np.array(ends).reshape(-1, 2).T)


def _over_folds(logs: Array, folds: int, level: float) -> tuple[float, float]:
    finite = logs[np.isfinite(logs)]
    low = high = math.nan
    if len(finite) > 1:
        error = finite.std(ddof=1) * math.sqrt(1 / len(finite) + 1 / (folds - 1))
        reach = student.ppf((1 + level) / 2, len(finite) - 1) * error
        low, high = finite.mean() - reach, finite.mean() + reach
    if len(finite) == len(logs):
        return low, high
    if len(finite) < 2:  # too few to estimate an end, unless no fold is undefined and all are equal
        return (logs.min(), logs.max()) if len(logs) == folds and logs.min() == logs.max() else (-math.inf, math.inf)
    return (-math.inf if logs.min() == -math.inf else low), (math.inf if logs.max() == math.inf else high)


def fold_notes(logs: Array) -> list[str]:
    """Return notes on folds in which a held-out variance is zero."""
    notes = []
    for number, column in enumerate(logs.T, start=1):
        for found, what in (
            (np.isnan(column), "neither the held-out target nor the background varies"),
            (column == math.inf, "the held-out background does not vary"),
            (column == -math.inf, "the held-out target does not vary"),
        ):
            if found.any():
                where = f"{found.sum()} of {len(column)} folds" if len(column) > 1 else "the split"
                notes.append(f"component {number}: {what} in {where}, {_effect(column, found)}")
    return notes


def _effect(column: Array, found: NDArray[np.bool_]) -> str:
    remedy = "Give more rows, or leave out features that hardly vary."
    if not np.isnan(column[found][0]):
        both = np.isposinf(column).any() and np.isneginf(column).any()
        ratio = "undefined" if both else "infinite" if column[found][0] > 0 else "zero"
        return f"so its ratio is {ratio}. {remedy}"
    if found.all():
        return f"so its ratio is undefined. {remedy}"
    return f"which are left out. {remedy}"
