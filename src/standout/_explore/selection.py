"""Rows that a person selected: what they are, how they differ from other rows, and whether the difference holds.

Rows that were selected by looking at their scores differ from the others by construction, so a p-value of the
difference would mean nothing, and none is computed. What can be false is the axis: with many features, the scores of
the rows that chose an axis separate where those of new rows do not. The check therefore chooses the axis on one half of
the subjects and selects rows in the other half by the same region, and compares the rows that both axes select.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import t as student

from standout._blas import Array
from standout._folds import Index, Units
from standout.errors import InputError
from standout.io.source import RowSource

Mask = NDArray[np.bool_]
_LEVEL = 0.95
# Fewest rows on either side of a comparison: a variance needs two.
FEWEST_ROWS = 2
# Values of a panel of columns that are compared at a time.
_PANEL_VALUES = 4_000_000
# Agreement of the two halves, in excess of chance, from which the selection holds, and below which it does not. In 200
# simulations of noise (10 to 200 features) none held, and 5 % held in part. With fewer features axes agree by chance:
# of 30 selections in noise, 5 held with 5 features, and 24 with 2.
HOLDS, FAILS = 0.5, 1 / 3
FEWEST_FEATURES = 10
TOO_FEW_FEATURES = (
    f"With fewer than {FEWEST_FEATURES} features any two axes often agree by chance, so it cannot be checked whether "
    "the selection holds on rows that did not choose the axis."
)
CHOSEN_BY_LABEL = "The rows were chosen by label, not by score, so the intervals hold for these rows as they are."


def inside(points: Array, region: Array) -> Mask:
    """Return which points, (n, 2), lie inside the closed polygon with these corners, by the even-odd rule."""
    x, y = points.T
    found = np.zeros(len(points), dtype=bool)
    for (x0, y0), (x1, y1) in zip(region, np.roll(region, -1, axis=0), strict=True):
        crosses = (y0 > y) != (y1 > y)
        with np.errstate(divide="ignore", invalid="ignore"):
            found ^= crosses & (x < (x1 - x0) * (y - y0) / (y1 - y0) + x0)
    return found


@dataclass(frozen=True)
class Effects:
    """Differences between two sets of rows, one for each feature."""

    difference: Array  # of the means, in the units of the feature
    size: Array  # in sd within the sets; 0 where the feature does not vary
    low: Array  # of the 95 % interval of the size; NaN if one set has a single unit
    high: Array
    counts: tuple[int, int]  # rows of each set
    units: int  # independent units in both sets together

    def largest(self, count: int) -> Index:
        """Return the features with the largest effect sizes, the largest first."""
        return np.argsort(-np.abs(self.size), kind="stable")[:count]


def effects(rows: RowSource, units: Units, first: Mask, second: Mask) -> Effects:
    """Compare the means of two sets of rows, feature by feature, in sd within the sets.

    Intervals count units (subjects), not rows: the difference is a sum over units, and its variance that of the sums
    (a cluster-robust estimate), with the degrees of freedom of the smaller side, which is safe for small selections.
    The second term is the error of the sd, as for Cohen's d. A side with a single unit has no interval.
    """
    if min(first.sum(), second.sum()) < FEWEST_ROWS:
        raise InputError(f"a comparison needs {FEWEST_ROWS} rows on each side. Select more rows, or fewer.")
    chosen = np.flatnonzero(first | second)
    _, unit = np.unique(units.rows[chosen], return_inverse=True)
    n_units = int(unit.max()) + 1
    one = first[chosen]
    n_one, n_two = int(one.sum()), int((~one).sum())
    of_one, of_two = len(np.unique(unit[one])), len(np.unique(unit[~one]))
    weights = np.where(one, _spread(of_one) / n_one, -_spread(of_two) / n_two)[:, None]
    parts = []
    width = max(1, _PANEL_VALUES // (rows.n_rows or 1))
    for start in range(0, rows.n_features, width):
        values = np.asarray(rows.columns(start, min(start + width, rows.n_features)), dtype=np.float64)[chosen]
        means = values[one].mean(axis=0), values[~one].mean(axis=0)
        residuals = np.where(one[:, None], values - means[0], values - means[1])
        sd = np.sqrt((residuals**2).sum(axis=0) / max(len(chosen) - 2, 1))
        residuals *= weights
        sums = residuals
        if n_units < len(chosen):
            sums = np.zeros((n_units, values.shape[1]))
            np.add.at(sums, unit, residuals)
        parts.append((means[0] - means[1], sd, np.sqrt((sums**2).sum(axis=0))))
    difference, sd, error = (np.concatenate(column) for column in zip(*parts, strict=True))
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.where(sd > 0, difference / sd, 0.0)
        spread = np.sqrt(np.where(sd > 0, error / sd, 0.0) ** 2 + size**2 / (2 * max(n_units - 2, 1)))
    fewest = min(of_one, of_two)
    margin = spread * (float(student.ppf((1 + _LEVEL) / 2, fewest - 1)) if fewest > 1 else math.nan)
    return Effects(difference, size, size - margin, size + margin, (n_one, n_two), n_units)


def _spread(count: int) -> float:
    """Return the factor that corrects the residuals of so many units about their mean."""
    return math.sqrt(count / (count - 1)) if count > 1 else 1.0


@dataclass(frozen=True)
class HalfCheck:
    """Result of the split-half check of a selection."""

    again: float  # share of the rows selected by the axis of their own half that the axis of the other half selects too
    chance: float  # share of all rows that the axis of the other half selects
    size: Array  # effect sizes of the rows that the other half selects, a mean over splits; NaN if there are none
    low: Array
    high: Array

    @property
    def excess(self) -> float:
        """Agreement of the halves in excess of chance: 0 by chance alone, 1 if all rows are selected again."""
        return (self.again - self.chance) / (1 - self.chance) if self.chance < 1 else 0.0

    @property
    def kind(self) -> str:
        """Conclusion: "holds", "partly" or "fails"."""
        return "holds" if self.excess >= HOLDS else "fails" if self.excess < FAILS else "partly"

    def sentence(self) -> str:
        """Return what may be concluded, in one sentence."""
        shares = (
            f"the axis of the other half selects {self.again:.0%} of the rows that the axis of their own half selects "
            f"(by chance: {self.chance:.0%})"
        )
        if self.kind == "holds":
            return (
                f"The selection holds: {shares}. These rows differ in the features listed; whether they are a group "
                "of their own, or one end of a continuum, cannot be concluded."
            )
        if self.kind == "partly":
            return f"The selection holds in part: {shares}. Treat the features listed as a hint, and check new rows."
        return f"The selection does not hold: {shares}. Do not interpret the features listed."


Scorer = Callable[[list[Index]], Array]


def check_halves(
    rows: RowSource, sets: Sequence[Units], region: Array, shown: Array, fit: Scorer, n_splits: int
) -> HalfCheck:
    """Select target rows again by axes that other subjects chose, with random splits into halves.

    ``region`` is the polygon that selected rows by their scores on the screen, ``shown``, (n_rows, 2). ``sets`` are the
    units of the target and of each background, and ``fit`` returns the scores of all target rows, (n_rows, k), from a
    fit to these rows of each dataset.
    """
    again, chance, found = [], [], []
    for split in range(n_splits):
        rng = np.random.default_rng(split)
        halves = [_halves(units, rng) for units in sets]
        own, held = np.zeros((2, len(shown)), dtype=bool)
        for half in (False, True):
            fitted = [np.flatnonzero(each == half) for each in halves]
            chosen = inside(_like(fit(fitted), shown, fitted[0]), region)
            here = halves[0] == half
            own[here], held[~here] = chosen[here], chosen[~here]
        again.append(held[own].mean() if own.any() else 0.0)
        chance.append(held.mean())
        if min(held.sum(), (~held).sum()) >= FEWEST_ROWS:
            found.append(effects(rows, sets[0], held, ~held))
    sizes: list[Any] = [(each.size, each.low, each.high) for each in found] or [np.full((3, rows.n_features), math.nan)]
    return HalfCheck(float(np.mean(again)), float(np.mean(chance)), *np.mean(sizes, axis=0))


def _halves(units: Units, rng: np.random.Generator) -> Mask:
    """Assign half of the units to each half; return the half of each row."""
    number = units.rows if units.ids else np.arange(len(units.rows))
    side = np.arange(units.count) % 2 == 1
    return np.asarray(rng.permutation(side)[number])


def _like(scores: Array, shown: Array, fitted: Index) -> Array:
    """Return the columns of ``scores`` that correlate most with those on the screen, in the fitted rows."""
    one, two = shown[fitted] - shown[fitted].mean(axis=0), scores[fitted] - scores[fitted].mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = one.T @ two / np.outer(np.linalg.norm(one, axis=0), np.linalg.norm(two, axis=0))
    correlation = np.nan_to_num(correlation)
    places, chosen = linear_sum_assignment(-np.abs(correlation))
    placed = np.zeros_like(shown)
    placed[:, places] = scores[:, chosen] * np.where(correlation[places, chosen] < 0, -1.0, 1.0)
    return placed


def as_region(points: Any) -> Array:
    """Return the corners of a polygon that came from outside, or raise an error."""
    try:
        corners = np.array(points, dtype=np.float64)
    except (TypeError, ValueError):
        corners = np.empty(0)
    if corners.ndim != 2 or corners.shape[1] != 2 or not 3 <= len(corners) <= 10_000 or not np.isfinite(corners).all():
        raise InputError("selection: the region is not a polygon. Give three or more corners as [x, y].")
    return corners
