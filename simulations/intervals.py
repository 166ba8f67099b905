"""Coverage: how often intervals hold what they are intervals for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import stats

from simulations.noise import Noise, Rng
from simulations.table import Rate, rate, repeat
from standout import DPCA
from standout.inference import held_out_ratio

_NOMINAL = (0.93, 0.97)


def _true_ratios(noise: Noise, found) -> np.ndarray:
    """The population ratio along the first component of each fold."""
    return np.array([noise.true_ratio(fitted.components_[0]) for fitted in found.estimators])


def split(runs: int) -> list[Rate]:
    """One split: the F interval holds the population ratio along the component that was found."""

    def work(noise: Noise) -> Callable[[Rng], bool]:
        def run(rng: Rng) -> bool:
            found = held_out_ratio(*noise.sample(rng), split=0.5, random_state=rng)
            return bool(found.low[0] <= _true_ratios(noise, found)[0] <= found.high[0])

        return run

    cases = {
        "noise, 60 + 50 × 10": (Noise(60, 50, 10), _NOMINAL),
        "ratio 5, 60 + 50 × 10": (Noise(60, 50, 10, ratios=(5.0,)), _NOMINAL),
        "ratio 50, 40 + 30 × 60, shrunk": (Noise(40, 30, 60, ratios=(50.0,)), _NOMINAL),
        "ratio 5, 60 + 50 × 10, t₅": (Noise(60, 50, 10, True, ratios=(5.0,)), None),
    }
    return [
        rate(f"F interval, {name}", repeat(work(noise), runs, 31), wanted) for name, (noise, wanted) in cases.items()
    ]


def folds(runs: int) -> list[Rate]:
    """Five folds: the widened t interval, and the usual one, for the geometric mean of the true ratios."""

    def work(noise: Noise) -> Callable[[Rng], tuple[bool, bool]]:
        def run(rng: Rng) -> tuple[bool, bool]:
            found = held_out_ratio(*noise.sample(rng), random_state=rng)
            true = np.log(_true_ratios(noise, found)).mean()
            logs = np.log(found.fold_ratios[:, 0])
            usual = stats.ttest_1samp(logs, true).pvalue > 0.05
            return bool(np.log(found.low[0]) <= true <= np.log(found.high[0])), bool(usual)

        return run

    results = []
    for name, noise in (
        ("noise, 60 + 50 × 10", Noise(60, 50, 10)),
        ("ratio 5, 60 + 50 × 10", Noise(60, 50, 10, ratios=(5.0,))),
        ("ratio 5, 60 + 50 × 10, t₅", Noise(60, 50, 10, True, ratios=(5.0,))),
        ("ratio 50, 40 + 30 × 60, shrunk", Noise(40, 30, 60, ratios=(50.0,))),
    ):
        hits = repeat(work(noise), runs, 32)
        results.append(rate(f"widened t interval over 5 folds, {name}", hits[:, 0], (0.93, 1.0)))
        results.append(rate(f"usual t interval over 5 folds, {name}", hits[:, 1]))
    return results


def bootstrap(runs: int) -> list[Rate]:
    """The percentile interval of the largest ratio: why stability is of directions only."""
    noise = Noise(100, 100, 20, ratios=(4.0,))

    def ratio(target: np.ndarray, background: np.ndarray) -> float:
        return float(DPCA(1, shrinkage=None).fit(target, background=background).ratios_[0])

    def work(rng: Rng) -> bool:
        target, background = noise.sample(rng)
        drawn = [
            ratio(target[rng.integers(100, size=100)], background[rng.integers(100, size=100)]) for _ in range(100)
        ]
        low, high = np.quantile(drawn, [0.025, 0.975])
        return bool(low <= 4.0 <= high)

    runs = min(runs, 200)
    return [rate("percentile interval of the largest ratio, true 4, 100 + 100 × 20", repeat(work, runs, 33), (0, 0.05))]
