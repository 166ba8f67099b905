"""Size: rejection rates of tests at the 5 % level under the null hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np

from simulations.noise import Noise, Rng, replicated
from simulations.table import Rate, rate, repeat
from standout._dpca import DPCA
from standout._replicates import find_replicates
from standout.inference.permutation import permutation_test

# With 99 permutations p = 0.05 is attainable, so the test at the 5 % level is exact.
_PERMUTATIONS = 99
_LEVEL = 0.05
NOMINAL = (0.03, 0.07)


def rejects(target: Any, background: Any, **settings: Any) -> bool:
    found = permutation_test(target, background, n_permutations=_PERMUTATIONS, n_jobs=1, **settings)
    return bool(found.p_values[-1] <= _LEVEL)


def _permuted(noise: Noise, **settings: Any) -> Callable[[Rng], bool]:
    return lambda rng: rejects(*noise.sample(rng), random_state=rng, **settings)


def _analytic(noise: Noise) -> Callable[[Rng], bool]:
    def work(rng: Rng) -> bool:
        target, background = noise.sample(rng)
        return bool(DPCA(1, shrinkage=None).fit(target, background=background).p_value_ < _LEVEL)

    return work


def _analytic_answers(noise: Noise) -> Callable[[Rng], bool]:
    def work(rng: Rng) -> bool:
        target, background = noise.sample(rng)
        return not np.isnan(DPCA(1).fit(target, background=background).p_value_)

    return work


def rows(runs: int) -> list[Rate]:
    """Independent rows: analytic p-value and permutation test, light and heavy tails, few background rows."""
    cases = {
        "100 + 120 × 10": (Noise(100, 120, 10), {}),
        "60 + 40 × 10, exact problem": (Noise(60, 40, 10), {"shrinkage": None}),
        "60 + 15 × 10, exact problem": (Noise(60, 15, 10), {"shrinkage": None}),
        "60 + 40 × 20, shrunk": (Noise(60, 40, 20), {}),
    }
    results = []
    for name, (noise, settings) in cases.items():
        for heavy in (False, True):
            data = Noise(noise.m, noise.n, noise.size, heavy)
            tails = "t₅" if heavy else "Gaussian"
            results.append(rate(f"{tails} {name}: permutation", repeat(_permuted(data, **settings), runs, 1), NOMINAL))
            analytic = repeat(_analytic(data), runs, 1)
            results.append(rate(f"{tails} {name}: analytic", analytic, None if heavy else NOMINAL))
    shifted = Noise(60, 40, 10, shift=5.0)
    results.append(
        rate("means differ by 5 sd, 60 + 40 × 10: permutation", repeat(_permuted(shifted), runs, 2), NOMINAL)
    )
    return results


def few(runs: int) -> list[Rate]:
    """Fewer background rows than features, where the analytic p-value is not available."""
    results = []
    for heavy in (False, True):
        tails = "t₅" if heavy else "Gaussian"
        narrow, wide = Noise(50, 20, 40, heavy), Noise(20, 15, 100, heavy)
        results.append(rate(f"{tails} 50 + 20 × 40: permutation", repeat(_permuted(narrow), runs, 3), NOMINAL))
        results.append(rate(f"{tails} 20 + 15 × 100: permutation", repeat(_permuted(wide), runs, 4), NOMINAL))
        results.append(
            rate(f"{tails} 20 + 15 × 100 in overall sd: permutation", repeat(_in_overall_sd(wide), runs, 4), NOMINAL)
        )
    answered = repeat(_analytic_answers(Noise(50, 20, 40)), min(runs, 50), 3)
    return [*results, rate("Gaussian 50 + 20 × 40: analytic p-value available", answered, (0.0, 0.0))]


def _in_overall_sd(noise: Noise) -> Callable[[Rng], bool]:
    def work(rng: Rng) -> bool:
        with patch("standout.inference.statistic.MOST_WORK", 0.0):
            return rejects(*noise.sample(rng), random_state=rng)

    return work


_TAILS: dict[str, Callable[[Rng, tuple[int, int]], np.ndarray]] = {
    "Gaussian": lambda rng, shape: rng.normal(size=shape),
    "t₅": lambda rng, shape: rng.standard_t(5, size=shape),
    "t₃": lambda rng, shape: rng.standard_t(3, size=shape),
    "t₁.₅": lambda rng, shape: rng.standard_t(1.5, size=shape),
    "Poisson(0.05)": lambda rng, shape: rng.poisson(0.05, size=shape).astype(float),
    "Poisson(0.5)": lambda rng, shape: rng.poisson(0.5, size=shape).astype(float),
    "Bernoulli(0.1)": lambda rng, shape: (rng.random(shape) < 0.1).astype(float),
    "zero-inflated Poisson(3), 80 % zeros": lambda rng, shape: rng.poisson(3, size=shape) * (rng.random(shape) < 0.2),
    "t₄ of variance 1": lambda rng, shape: rng.standard_t(4, size=shape) / np.sqrt(2),
}


def _drawn(target: str, background: str, size: tuple[int, int, int], shift: float = 0.0) -> Callable[[Rng], bool]:
    m, n, features = size

    def work(rng: Rng) -> bool:
        rows = _TAILS[target](rng, (m, features)) + shift
        return rejects(rows, _TAILS[background](rng, (n, features)), random_state=rng)

    return work


def heavy(runs: int) -> list[Rate]:
    """The permutation test with heavy tails and counts, exact (5 features) and shrunk (10 features).

    The test keeps its level if target and background have the same distribution up to a shift, but not if only their
    covariances are equal. With sparse counts the exact ratio is often infinite under permuted labels too, and the test
    hardly ever rejects.
    """
    results = []
    for size in ((60, 60, 5), (60, 40, 10)):
        shape = f"{size[0]} + {size[1]} × {size[2]}"
        for name in list(_TAILS)[:-1]:
            wanted = None if (name, size[2]) == ("Poisson(0.05)", 5) else NOMINAL
            results.append(rate(f"{name} {shape}", repeat(_drawn(name, name, size), runs, 18), wanted))
        for name in ("t₁.₅", "Poisson(0.5)"):
            shifted = repeat(_drawn(name, name, size, shift=5.0), runs, 18)
            results.append(rate(f"{name} {shape}, locations differ by 5", shifted, NOMINAL))
        results += [
            rate(f"{pair[0]} against {pair[1]}, {shape}", repeat(_drawn(*pair, size), runs, 18))
            for pair in (("Gaussian", "t₄ of variance 1"), ("t₄ of variance 1", "Gaussian"))
        ]
    return results


def _grouped(
    sizes: tuple[list[int], list[int]],
    features: int,
    heavy: bool = False,
    grouped: bool = True,
    within: float = 0.3,
    **settings: Any,
) -> Callable[[Rng], bool]:
    ids = [np.repeat(np.arange(len(part)), part) for part in sizes]

    def work(rng: Rng) -> bool:
        sets = [replicated(rng, part, features, within, heavy) for part in sizes]
        groups = {"groups": ids[0], "background_groups": ids[1] + 1000} if grouped else {}
        return rejects(*sets, random_state=rng, **groups, **settings)

    return work


def groups(runs: int) -> list[Rate]:
    """Replicates: 9 background subjects of 15 rows each count as 9 units."""
    mice, three, four = ([15] * 18, [15] * 9), ([10] * 3, [10] * 3), ([10] * 4, [10] * 4)
    uneven = ([2, 9, 4, 5, 1, 7, 3, 8, 2, 4], [3, 6, 1, 9, 4, 2])
    unlike = {"10 × 20 + 10 × 2": ([20] * 10, [2] * 10), "30 × 2 + 10 × 10": ([2] * 30, [10] * 10)}
    nearly = ([5] * 10, [4] * 10)
    return [
        rate("18 × 15 + 9 × 15 replicates × 12, exact", repeat(_grouped(mice, 12, shrinkage=None), runs, 5), NOMINAL),
        rate("the same × 20, shrunk", repeat(_grouped(mice, 20), runs, 5), NOMINAL),
        rate("the same × 100, shrunk", repeat(_grouped(mice, 100), min(runs, 400), 5), NOMINAL),
        rate("the same × 20, without groups", repeat(_grouped(mice, 20, grouped=False), min(runs, 200), 5), (0.9, 1.0)),
        rate("3 × 10 + 3 × 10 replicates × 5, exact", repeat(_grouped(three, 5, shrinkage=None), runs, 6), NOMINAL),
        rate("4 × 10 + 4 × 10 replicates × 20, shrunk", repeat(_grouped(four, 20), runs, 6), NOMINAL),
        rate("16 unequal groups × 5, shrunk", repeat(_grouped(uneven, 5), runs, 7), NOMINAL),
        rate("16 unequal groups × 5, shrunk, t₅", repeat(_grouped(uneven, 5, heavy=True), runs, 7), NOMINAL),
        *(
            rate(f"{name} rows × 8, sd {within:g} within subjects", repeat(work, runs, 14), NOMINAL)
            for name, sizes in unlike.items()
            for within in (0.3, 2.0)
            for work in [_grouped(sizes, 8, within=within)]
        ),
        rate(
            "10 × 5 + 10 × 4 rows × 30, exact",
            repeat(_grouped(nearly, 30, within=9.0, shrinkage=None), runs, 16),
            NOMINAL,
        ),
    ]


def _paired(
    subjects: int,
    replicates: tuple[int | list[int], int | list[int]],
    features: int,
    heavy: bool = False,
    within: float = 0.3,
) -> Callable[[Rng], bool]:
    sizes = [np.broadcast_to(each, subjects) for each in replicates]
    ids = [np.repeat(np.arange(subjects), each) for each in sizes]

    def work(rng: Rng) -> bool:
        common = Noise(0, 0, features, heavy).rows(rng, subjects)
        sets = [
            common[part] + replicated(rng, each, features, within, heavy) for part, each in zip(ids, sizes, strict=True)
        ]
        return rejects(*sets, random_state=rng, pairs=ids[0], background_pairs=ids[1])

    return work


def pairs(runs: int) -> list[Rate]:
    """Pairs: the same subjects in target and background."""
    large = [60] + [2] * 11
    return [
        rate("30 pairs × 10", repeat(_paired(30, (1, 1), 10), runs, 8), NOMINAL),
        rate("12 pairs, 5 rows each, × 10", repeat(_paired(12, (5, 5), 10), runs, 9), NOMINAL),
        rate("30 pairs × 10, t₅", repeat(_paired(30, (1, 1), 10, heavy=True), runs, 10), NOMINAL),
        rate(
            "10 pairs of 20 and 2 rows × 8, sd 2 within", repeat(_paired(10, (20, 2), 8, within=2.0), runs, 15), NOMINAL
        ),
        rate("12 pairs, one of 60 rows, eleven of 2, × 4", repeat(_paired(12, (large, large), 4), runs, 17), NOMINAL),
    ]


def _several(mix: str, heavy: bool) -> Callable[[Rng], bool]:
    def work(rng: Rng) -> bool:
        noise = Noise(50, 40, 8, heavy)
        target, first = noise.sample(rng)
        return rejects(target, [first, noise.rows(rng, 25) + 3.0], random_state=rng, mix=mix)

    return work


def backgrounds(runs: int) -> list[Rate]:
    """Two backgrounds with different means."""
    return [
        rate(
            f"50 + (40, 25) × 8, mix={mix!r}{', t₅' if heavy else ''}", repeat(_several(mix, heavy), runs, 11), NOMINAL
        )
        for mix, heavy in (("pooled", False), ("equal", False), ("equal", True))
    ]


def replicates(runs: int) -> list[Rate]:
    """Detection of replicates: false positives for independent rows with serial ids, and power."""

    def found(rows: np.ndarray, each: int) -> bool:
        return find_replicates(rows, [f"s{row // each}_{row % each}" for row in range(len(rows))]) is not None

    def independent(changed: Callable[[Rng, np.ndarray], Any] | None = None) -> Callable[[Rng], bool]:
        def work(rng: Rng) -> bool:
            n_rows, size, each = rng.integers(8, 60), rng.integers(1, 20), rng.integers(2, 6)
            rows = rng.standard_t(5, size=(n_rows, size))
            if changed is not None:
                rows = changed(rng, rows)
            return found(rows, int(each))

        return work

    def trend(rng: Rng, rows: np.ndarray) -> np.ndarray:
        return rows + 3 * np.linspace(-1, 1, len(rows))[:, None] * rng.normal(size=rows.shape[1])

    def walk(rng: Rng, rows: np.ndarray) -> np.ndarray:
        return rows + rng.normal(size=rows.shape).cumsum(axis=0)

    def outlying_pair(rng: Rng) -> bool:
        rows = rng.normal(size=(40, 10))
        first = 2 * int(rng.integers(20))
        rows[first : first + 2] += 20 * rng.normal(size=10)
        return found(rows, 2)

    def real(within: float, drift: float = 0.0) -> Callable[[Rng], bool]:
        def work(rng: Rng) -> bool:
            each = int(rng.integers(3, 10))
            rows = replicated(rng, [each] * 10, 10, within)
            return found(rows + drift * np.linspace(-1, 1, len(rows))[:, None] * rng.normal(size=10), each)

        return work

    rare, often = (0.0, 0.05), (0.9, 1.0)
    return [
        rate("independent rows, ids s0_0, s0_1, ...: false positive", repeat(independent(), runs, 12), (0, 0.02)),
        rate("a linear trend over the rows: false positive", repeat(independent(trend), runs, 12), rare),
        rate("a random walk over the rows: false positive", repeat(independent(walk), runs, 12), rare),
        rate("one pair of outlying rows: false positive", repeat(outlying_pair, runs, 12), rare),
        rate("10 subjects with 3 to 9 replicates, sd 0.6 within: found", repeat(real(0.6), runs, 13), (0.95, 1.0)),
        rate("the same, sd 1.5 within: found", repeat(real(1.5), runs, 13), often),
        rate("the same, sd 1 within, with a linear trend: found", repeat(real(1.0, 3.0), runs, 13), often),
    ]
