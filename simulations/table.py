"""Rates and means over many seeded runs, as rows of a table."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import binomtest

from standout.errors import StandoutWarning

# Below this many runs, parallel processes do not pay off.
_SERIAL_RUNS = 200


@dataclass(frozen=True)
class Rate:
    """A rate over runs, with its expected range."""

    what: str
    hits: int
    runs: int
    wanted: tuple[float, float] | None = None  # lowest and highest expected rate; None if only reported

    @property
    def value(self) -> float:
        return self.hits / self.runs

    @property
    def holds(self) -> bool:
        return self.wanted is None or self.wanted[0] <= self.value <= self.wanted[1]

    def row(self) -> str:
        ends = binomtest(self.hits, self.runs).proportion_ci()
        wanted = "" if self.wanted is None else f"{100 * self.wanted[0]:g} to {100 * self.wanted[1]:g} %"
        verdict = "" if self.wanted is None else "yes" if self.holds else "**no**"
        interval = f"{100 * ends.low:.1f} to {100 * ends.high:.1f} %"
        return f"| {self.what} | {100 * self.value:.1f} % | {interval} | {wanted} | {verdict} | {self.runs} |"


@dataclass(frozen=True)
class Mean:
    """A mean over runs, with its expected range."""

    what: str
    value: float
    error: float  # standard error of the mean
    runs: int
    wanted: tuple[float, float]
    header: str = "| case | mean | 95 % interval | expected | met | runs |\n|---|---|---|---|---|---|"

    @property
    def holds(self) -> bool:
        return self.wanted[0] <= self.value <= self.wanted[1]

    def row(self) -> str:
        low, high = self.value - 1.96 * self.error, self.value + 1.96 * self.error
        wanted = f"{self.wanted[0]:g} to {self.wanted[1]:g}"
        verdict = "yes" if self.holds else "**no**"
        return f"| {self.what} | {self.value:.3f} | {low:.3f} to {high:.3f} | {wanted} | {verdict} | {self.runs} |"


HEADER = "| case | rate | 95 % interval | expected | met | runs |\n|---|---|---|---|---|---|"


def repeat(work: Callable[[np.random.Generator], Any], runs: int, seed: int) -> np.ndarray:
    """Return the result of ``work`` in each run; every run has its own seed."""
    if runs < _SERIAL_RUNS:
        return np.array([_run(work, seed, number) for number in range(runs)])
    return np.array(Parallel(n_jobs=-1)(delayed(_run)(work, seed, number) for number in range(runs)))


def _run(work: Callable[[np.random.Generator], Any], seed: int, number: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StandoutWarning)
        return work(np.random.default_rng([seed, number]))


def rate(what: str, hits: np.ndarray, wanted: tuple[float, float] | None = None) -> Rate:
    return Rate(what, int(np.sum(hits)), len(hits), wanted)


def mean(what: str, values: np.ndarray, wanted: tuple[float, float]) -> Mean:
    return Mean(what, float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values))), len(values), wanted)
