"""Number of components detected, and power."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simulations.noise import Noise, Rng
from simulations.table import Rate, rate, repeat
from standout._dpca import DPCA
from standout.datasets.factor import FactorModel
from standout.inference.permutation import permutation_test

_LEVEL = 0.05


def _p_values(noise: Noise, count: int, **settings: Any) -> Callable[[Rng], np.ndarray]:
    def work(rng: Rng) -> np.ndarray:
        found = permutation_test(
            *noise.sample(rng), n_components=count, n_permutations=99, n_jobs=1, random_state=rng, **settings
        )
        return found.p_values

    return work


def steps(runs: int) -> list[Rate]:
    """Two real components and noise: how often the second component is detected, and how often a third one."""
    cases = {
        "100 + 120 × 10, exact": (Noise(100, 120, 10, ratios=(9.0, 6.0)), {}),
        "100 + 40 × 20, exact": (Noise(100, 40, 20, ratios=(60.0, 40.0)), {"shrinkage": None}),
        "60 + 40 × 20, shrunk": (Noise(60, 40, 20, ratios=(16.0, 9.0)), {}),
        "60 + 40 × 20, shrunk, t₅": (Noise(60, 40, 20, True, ratios=(16.0, 9.0)), {}),
        "30 + 20 × 100, shrunk": (Noise(30, 20, 100, ratios=(200.0, 100.0)), {}),
    }
    results = []
    for name, (noise, settings) in cases.items():
        p_values = repeat(_p_values(noise, 3, **settings), runs, 21)
        results.append(rate(f"{name}: second detected", p_values[:, 1] <= _LEVEL, (0.5, 1.0)))
        results.append(rate(f"{name}: third detected", p_values[:, 2] <= _LEVEL, (0.0, 0.07)))
    return results


def counts(runs: int) -> list[Rate]:
    """Number of components detected in the factor model of the paper, with one target-specific component (ratio 5)."""
    model = FactorModel()

    def work(rng: Rng) -> int:
        target, background = model.sample(100, 150, seed=int(rng.integers(2**31)))
        found = permutation_test(target, background, n_components=3, n_permutations=99, n_jobs=1, random_state=rng)
        return found.count()

    found = repeat(work, runs, 22)
    wanted: dict[int, tuple[float, float]] = {0: (0, 0.02), 1: (0.9, 1.0), 2: (0, 0.07), 3: (0, 0.02)}
    return [rate(f"factor model, 100 + 150 × 12: {n} components", found == n, wanted[n]) for n in range(4)]


def power(runs: int) -> list[Rate]:
    """Power of the permutation test and the analytic p-value, by population ratio."""
    results = []
    runs = min(runs, 300)
    for n in (20, 40, 80, 160):
        for ratio in (2.0, 3.0, 5.0, 8.0):
            noise = Noise(n, n, 10, ratios=(ratio,))

            def work(rng: Rng, noise: Noise = noise) -> tuple[bool, bool]:
                target, background = noise.sample(rng)
                found = permutation_test(target, background, n_permutations=99, n_jobs=1, random_state=rng)
                analytic = DPCA(1, shrinkage=None).fit(target, background=background).p_value_
                return found.p_values[0] <= _LEVEL, analytic < _LEVEL

            hits = repeat(work, runs, 23)
            name = f"{n} + {n} × 10, ratio {ratio:g}"
            results += [rate(f"{name}: permutation", hits[:, 0]), rate(f"{name}: analytic", hits[:, 1])]
    return results
