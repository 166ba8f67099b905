"""Size with missing values: rejection rates of tests at the 5 % level under the null hypothesis."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from simulations.noise import Rng
from simulations.size import NOMINAL, rejects
from simulations.table import Rate, rate, repeat
from standout._dpca import DPCA
from standout.io.read import read

_LEVEL = 0.05
_ROWS = (120, 100)  # of target and background
_FEATURES = 8

# Where values are missing: features of the target, features of the background.
_ONE, _ALL, _NONE = slice(0, 1), slice(None), slice(0, 0)
PLACES = {
    "one background feature": (_NONE, _ONE),
    "all background features": (_NONE, _ALL),
    "all features of both": (_ALL, _ALL),
    "one target feature": (_ONE, _NONE),
    "all target features": (_ALL, _NONE),
}


def incomplete(rng: Rng, where: str, share: float, correlation: float = 0.6) -> list[np.ndarray]:
    """Return target and background from one Gaussian distribution, with values missing at random."""
    distance = np.abs(np.subtract.outer(np.arange(_FEATURES), np.arange(_FEATURES)))
    root = np.linalg.cholesky(correlation**distance)
    sides = []
    for n_rows, features in zip(_ROWS, PLACES[where], strict=True):
        rows = rng.normal(size=(n_rows, _FEATURES)) @ root.T
        part = rows[:, features]
        part[rng.random(part.shape) < share] = np.nan
        sides.append(rows)
    return sides


def formula(where: str, share: float, how: str = "auto") -> Callable[[Rng], bool]:
    """Return a run: fit noise with missing values and report whether the analytic p-value rejects."""

    def work(rng: Rng) -> bool:
        target, background = (read(rows, missing=how) for rows in incomplete(rng, where, share))
        return bool(DPCA(1, shrinkage=None).fit(target, background=background).p_value_ < _LEVEL)

    return work


def permuted(where: str, share: float, how: str = "auto") -> Callable[[Rng], bool]:
    """Return a run: test noise with missing values and report whether the permutation test rejects."""

    def work(rng: Rng) -> bool:
        target, background = (read(rows, missing=how) for rows in incomplete(rng, where, share))
        return rejects(target, background, random_state=rng)

    return work


def missing(runs: int) -> list[Rate]:
    """Size with values missing at random and `missing="auto"`; for comparison, `missing="mean"`."""
    results = []

    def add(name: str, where: str, share: float, wanted: tuple[float, float] | None, how: str = "auto") -> None:
        for what, work in (("permutation", permuted), ("analytic", formula)):
            results.append(rate(f"{name}: {what}", repeat(work(where, share, how), runs, 31), wanted))

    add("nothing missing", "one background feature", 0.0, NOMINAL)
    for where in PLACES:
        for share in (0.05, 0.2, 0.4):
            add(f"{share:.0%} of {where} missing", where, share, NOMINAL)
    add('40% of one background feature missing, `missing="mean"`', "one background feature", 0.4, None, "mean")
    return results
