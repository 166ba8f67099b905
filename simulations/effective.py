"""Size and power of the formula with groups, by three counts of independent rows: all rows, groups, effective rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from scipy.stats import binomtest

from simulations.noise import Rng
from simulations.table import repeat
from standout._dpca import DPCA
from standout._spectrum import largest_root_p_value

_LEVEL = 0.05
_NOMINAL, _POWER = (0.02, 0.08), (0.7, 1.0)
_INTRACLASS = (0.0, 0.1, 0.3, 0.5, 0.9, 1.0)
UNEVEN = tuple(int(size) for size in np.linspace(1, 40, 18))

Rows = Callable[[Rng], tuple[np.ndarray, np.ndarray]]  # rows and the group of each


@dataclass(frozen=True)
class Counts:
    """Rejection rates of the formula by all rows, by groups and by effective rows; NaN if it has no p-value."""

    what: str
    freedom: tuple[float, float]  # median effective degrees of freedom of target and background
    by_rows: float
    by_groups: float
    hits: int
    runs: int
    answers: int  # runs in which effective rows suffice for a p-value
    wanted: tuple[float, float]
    header: str = (
        "| case | ν | by rows | by groups | by ν | 95 % interval | expected | met | runs |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )

    @property
    def value(self) -> float:
        return self.hits / self.runs

    @property
    def holds(self) -> bool:
        return self.answers == 0 or self.wanted[0] <= self.value <= self.wanted[1]

    def row(self) -> str:
        ends = binomtest(self.hits, self.runs).proportion_ci()
        by_freedom, interval = f"{100 * self.value:.1f} %", f"{100 * ends.low:.1f} to {100 * ends.high:.1f} %"
        verdict = "yes" if self.holds else "**no**"
        if self.answers == 0:
            by_freedom, interval, verdict = "–", "–", "no p-value"
        rates = [f"{100 * rate:.1f} %" if rate == rate else "–" for rate in (self.by_rows, self.by_groups)]
        freedom = ", ".join(f"{value:.0f}" for value in self.freedom)
        wanted = f"{100 * self.wanted[0]:g} to {100 * self.wanted[1]:g} %"
        cells = [self.what, freedom, *rates, by_freedom, interval, wanted, verdict, str(self.runs)]
        return f"| {' | '.join(cells)} |"


def grouped(sizes: Sequence[int], n_features: int, intraclass: float) -> Rows:
    """Return a sampler of Gaussian rows of unit variance with this correlation within groups."""
    ids = np.repeat(np.arange(len(sizes)), sizes)

    def draw(rng: Rng) -> tuple[np.ndarray, np.ndarray]:
        shared = rng.normal(size=(len(sizes), n_features))[ids]
        return np.sqrt(intraclass) * shared + np.sqrt(1 - intraclass) * rng.normal(size=shared.shape), ids

    return draw


def trials(count: int, length: int, n_features: int, coefficient: float) -> Rows:
    """Return a sampler of trials of a stationary AR(1) process of unit variance."""
    ids = np.repeat(np.arange(count), length)

    def draw(rng: Rng) -> tuple[np.ndarray, np.ndarray]:
        rows = rng.normal(size=(count, length, n_features))
        for t in range(1, length):
            rows[:, t] = coefficient * rows[:, t - 1] + np.sqrt(1 - coefficient**2) * rows[:, t]
        return rows.reshape(-1, n_features), ids

    return draw


def _p_values(target: Rows, background: Rows, ratio: float) -> Callable[[Rng], Any]:
    def work(rng: Rng) -> tuple[float, ...]:
        (X, own), (Y, others) = target(rng), background(rng)
        X[:, 0] *= np.sqrt(ratio)
        fitted = DPCA(1, shrinkage=None).fit(X, background=Y, groups=own, background_groups=others)
        model, top = fitted._solved(), float(fitted.ratios_[0])
        by_rows = largest_root_p_value(top, model.rank, len(X), len(Y))
        by_groups = largest_root_p_value(top, model.rank, own[-1] + 1, others[-1] + 1)
        freedom = (model.target_counts.units - 1, model.background_units - 1)
        return by_rows, by_groups, float(fitted.p_value_), *freedom

    return work


def _counts(
    what: str, target: Rows, background: Rows, runs: int, wanted: tuple[float, float] = _NOMINAL, ratio: float = 1.0
) -> Counts:
    found = repeat(_p_values(target, background, ratio), runs, crc32(what.encode()))  # independent runs in every case
    p_values = found[:, :3]
    rates = np.where(np.isnan(p_values).all(axis=0), np.nan, (p_values < _LEVEL).mean(axis=0))
    answers = int((~np.isnan(p_values[:, 2])).sum())
    freedom = np.median(found[:, 3:], axis=0)
    hits = int((p_values[:, 2] < _LEVEL).sum())
    return Counts(what, (freedom[0], freedom[1]), rates[0], rates[1], hits, runs, answers, wanted)


def effective(runs: int) -> list[Counts]:
    """The formula at the 5 % level with groups: rejection rates of noise by all rows, by groups, and by ν, the
    effective degrees of freedom of target and background that `fit` uses. Rows are Gaussian; "uneven" is 18 groups of 1
    to 40 rows in both datasets. The last row is the power at a population ratio of 2. A dash: no p-value, because the
    background has fewer degrees of freedom than there are features.
    """
    designs = {
        "40 × 10 + 50 × 10 rows × 5": ([10] * 40, [10] * 50, 5),
        "40 × 10 + 50 × 10 rows × 20": ([10] * 40, [10] * 50, 20),
        "50 × 10 + 50 × 10 rows × 50": ([10] * 50, [10] * 50, 50),
        "18 × 15 + 9 × 15 rows × 5": ([15] * 18, [15] * 9, 5),
        "18 × 15 + 9 × 15 rows × 10": ([15] * 18, [15] * 9, 10),
        "uneven × 5": (UNEVEN, UNEVEN, 5),
        "uneven × 10": (UNEVEN, UNEVEN, 10),
    }
    results = []
    for name, (sizes, others, n_features) in designs.items():
        for intraclass in _INTRACLASS:
            target, background = (grouped(part, n_features, intraclass) for part in (sizes, others))
            results.append(_counts(f"{name}, intraclass {intraclass:g}", target, background, runs))
    for count, length, n_features in ((40, 50, 16), (40, 100, 8)):
        for coefficient in (0.5, 0.9):
            rows = trials(count, length, n_features, coefficient)
            name = f"2 × {count} trials × {length} rows × {n_features}, AR(1) {coefficient:g}"
            results.append(_counts(name, rows, rows, runs))
    sizes = grouped([10] * 40, 20, 0.3), grouped([10] * 50, 20, 0.3)
    return [*results, _counts("40 × 10 + 50 × 10 rows × 20, intraclass 0.3, ratio 2", *sizes, runs, _POWER, 2.0)]
