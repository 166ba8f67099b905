"""Bias and coverage of held-out ratios, scores and intervals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import stats

from simulations.noise import Noise, Rng
from simulations.table import Mean, Rate, mean, rate, repeat
from standout._dpca import DPCA
from standout.inference.held_out import held_out_ratio
from standout.inference.stability import stability

_NOMINAL = (0.93, 0.97)
_UNBIASED = (-0.05, 0.05)
_SOME = np.random.default_rng(1).normal(size=(120, 3))  # rows of the model that is scored


def _true_ratios(noise: Noise, found) -> np.ndarray:
    """Return the population ratio along the first component of each fold."""
    return np.array([noise.true_ratio(fitted.components_[0]) for fitted in found.estimators])


def null(runs: int) -> list[Mean]:
    """Mean held-out log ratio of noise, and mean score minus its expectation, with few rows and groups; expected: 0."""

    def rows(m: int, n: int) -> Callable[[Rng], float]:
        def run(rng: Rng) -> float:
            found = held_out_ratio(*Noise(m, n, 3).sample(rng), n_components=3, random_state=rng)
            return float(np.log(found.ratios).mean())

        return run

    def groups(sizes: tuple[list[int], list[int]], intraclass: float) -> Callable[[Rng], float]:
        ids = [np.repeat(np.arange(len(part)), part) for part in sizes]

        def run(rng: Rng) -> float:
            sets = [
                np.sqrt(intraclass) * rng.normal(size=(len(part), 3))[own]
                + np.sqrt(1 - intraclass) * rng.normal(size=(len(own), 3))
                for part, own in zip(sizes, ids, strict=True)
            ]
            found = held_out_ratio(
                *sets, n_components=3, random_state=rng, groups=ids[0], background_groups=ids[1] + 1000
            )
            return float(np.log(found.ratios).mean())

        return run

    def score(m: int, n: int) -> Callable[[Rng], float]:
        model = DPCA(3, shrinkage=None).fit(9 * _SOME[:60], background=_SOME[60:])
        expected = np.sum(1 - 1 / model.debiased_ratios_ - np.log(model.debiased_ratios_)) / 2
        return lambda rng: model.score(rng.normal(size=(m, 3)), background=rng.normal(size=(n, 3))) - expected

    results = [
        mean(f"held-out, {m} + {n} rows", repeat(rows(m, n), runs, 34), _UNBIASED)
        for m, n in ((200, 20), (400, 12), (20, 200))
    ]
    mice, unequal = ([15] * 18, [15] * 9), ([15] * 18, [40, 20, 10, 5, 5, 2, 2, 1, 1])
    for name, sizes in (("18 × 15 + 9 × 15 rows", mice), ("18 × 15 + 9 unequal groups", unequal)):
        results += [
            mean(
                f"held-out, {name}, intraclass correlation {intraclass:g}",
                repeat(groups(sizes, intraclass), runs, 35),
                _UNBIASED,
            )
            for intraclass in (0.0, 0.5, 0.9, 1.0)
        ]
    results += [
        mean(f"score, {m} + {n} rows", repeat(score(m, n), runs, 36), _UNBIASED) for m, n in ((50, 12), (5, 50))
    ]
    return results


def split(runs: int) -> list[Rate]:
    """One split: coverage of the F interval for the population ratio along the estimated component."""

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
    """Five folds: coverage of the widened and the usual t interval for the geometric mean of the true ratios."""

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


def weights(runs: int) -> list[Rate]:
    """Coverage of the `stability` interval for the largest true weight and the largest estimated weight."""

    def work(noise: Noise) -> Callable[[Rng], tuple[bool, bool]]:
        axis = noise.axes()[:, 0] * np.sqrt(noise.ratios[0])  # every background feature has unit variance

        def run(rng: Rng) -> tuple[bool, bool]:
            found = stability(*noise.sample(rng), n_components=1, n_bootstrap=100, n_jobs=1, random_state=rng)
            true = axis * np.sign(found.weights[0] @ axis)
            covered = (found.weight_low[0] <= true) & (true <= found.weight_high[0])
            return bool(covered[np.abs(axis).argmax()]), bool(covered[np.abs(found.weights[0]).argmax()])

        return run

    results = []
    for name, noise in (
        ("ratio 5, 100 + 120 × 10", Noise(100, 120, 10, ratios=(5.0,))),
        ("ratio 5, 60 + 50 × 10", Noise(60, 50, 10, ratios=(5.0,))),
        ("ratio 50, 40 + 30 × 60, shrunk", Noise(40, 30, 60, ratios=(50.0,))),
    ):
        hits = repeat(work(noise), min(runs, 300), 37)
        results.append(rate(f"{name}: largest true weight", hits[:, 0], (0.93, 1.0)))
        results.append(rate(f"{name}: largest estimated weight", hits[:, 1]))
    return results


def bootstrap(runs: int) -> list[Rate]:
    """Coverage of the percentile interval of the largest ratio: why `stability` does not bootstrap ratios."""
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
