"""Kernel dPCA on held-out rows, with features as given and in background sd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simulations.noise import Rng
from simulations.table import Rate, rate, repeat
from standout._kernel_dpca import KernelDPCA

Pair = tuple[np.ndarray, np.ndarray]
_ROWS = 300  # of target and background each, for fitting and for evaluation


@dataclass(frozen=True)
class Mean:
    """Mean over runs, with an optional lower bound."""

    what: str
    values: np.ndarray
    least: float | None = None
    header: str = "| case | mean | ± 2 standard errors | expected | met | runs |\n|---|---|---|---|---|---|"

    @property
    def holds(self) -> bool:
        return self.least is None or float(self.values.mean()) >= self.least

    def row(self) -> str:
        mean, error = self.values.mean(), self.values.std(ddof=1) / np.sqrt(len(self.values))
        wanted, verdict = ("", "") if self.least is None else (f"≥ {self.least:g}", "yes" if self.holds else "**no**")
        ends = f"{mean - 2 * error:.2f} to {mean + 2 * error:.2f}"
        return f"| {self.what} | {mean:.2f} | {ends} | {wanted} | {verdict} | {len(self.values)} |"


def _with_nuisance(rng: Rng, rows: np.ndarray, sd: float, correlation: float = 0.0) -> np.ndarray:
    """Append three features that have the same distribution in target and background."""
    common, own = rng.normal(size=(len(rows), 1)), rng.normal(size=(len(rows), 3))
    return np.hstack([rows, sd * (np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own)])


def rings(rng: Rng, n: int) -> Pair:
    """Rings of radius 1 and 2.5 in the target, one Gaussian cloud in the background; nuisance sd 3."""
    angle, radius = rng.uniform(0, 2 * np.pi, n), rng.choice([1.0, 2.5], n)
    target = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)]) + 0.15 * rng.normal(size=(n, 2))
    return _with_nuisance(rng, target, 3.0), _with_nuisance(rng, 0.6 * rng.normal(size=(n, 2)), 3.0)


def product(rng: Rng, n: int) -> Pair:
    """One feature is the product of two others in the background, and independent of them in the target."""

    def rows(related: bool) -> np.ndarray:
        x, y, z = rng.normal(size=(3, n))
        columns = np.column_stack([x, y, (x * y if related else z) + 0.07 * rng.normal(size=n)])
        return _with_nuisance(rng, columns, 3.0)

    return rows(False), rows(True)


def variance(rng: Rng, n: int) -> Pair:
    """Half of the target rows have 2.5 times the sd of the others and of the background in two features."""
    sd = rng.choice([0.5, 1.25], n)[:, None]
    target, background = sd * rng.normal(size=(n, 2)), 0.5 * rng.normal(size=(n, 2))
    return _with_nuisance(rng, target, 1.5), _with_nuisance(rng, background, 1.5)


def clusters(rng: Rng, n: int) -> Pair:
    """Four clusters at the corners of a square (XOR) in the target; correlated nuisance features of sd 5."""
    target = rng.choice([-1.0, 1.0], (n, 2)) + 0.3 * rng.normal(size=(n, 2))
    background = 0.6 * rng.normal(size=(n, 2))
    return _with_nuisance(rng, target, 5.0, 0.8), _with_nuisance(rng, background, 5.0, 0.8)


# Problem → sampler, and the lower bound of the mean held-out log ratio in background sd.
PROBLEMS: dict[str, tuple[Callable[[Rng, int], Pair], float]] = {
    "rings": (rings, 4.11),
    "product": (product, 4.40),
    "variance": (variance, 4.05),
    "clusters": (clusters, 1.99),
}


def held_out(problem: str) -> Callable[[Rng], tuple[float, float]]:
    """Return a run of one problem: held-out mean log ratios with features as given and in background sd."""

    def work(rng: Rng) -> tuple[float, float]:
        sample = PROBLEMS[problem][0]
        (target, background), (new_target, new_background) = sample(rng, _ROWS), sample(rng, _ROWS)
        models = [KernelDPCA(2, standardize=standardize) for standardize in (False, True)]
        logs = []
        for model in models:
            model.fit(target, background=background)
            variances = [model.transform(rows).var(axis=0) for rows in (new_target, new_background)]
            logs.append(float(np.log(variances[0] / variances[1]).mean()))
        return logs[0], logs[1]

    return work


def kernels(runs: int) -> list[Mean]:
    """Held-out mean log ratio of kernel dPCA (rbf, 300 + 300 rows), with features as given and in background sd."""
    results = []
    for name, (_, least) in PROBLEMS.items():
        logs = repeat(held_out(name), min(runs, 8), 41)
        results.append(Mean(f"{name}: features as given", logs[:, 0]))
        results.append(Mean(f"{name}: in background sd", logs[:, 1], least))
    return results


def _counted(rows: tuple[int, int, int], each: int = 1) -> Callable[[Rng], int]:
    """Return a run that counts components on noise; ``rows`` is target rows, background rows and features."""

    def work(rng: Rng) -> int:
        parts = [np.repeat(rng.normal(size=(n, rows[2])), each, axis=0) for n in rows[:2]]
        target, background = (part + (0.3 * rng.normal(size=part.shape) if each > 1 else 0.0) for part in parts)
        groups = [np.arange(len(part)) // each for part in parts]
        model = KernelDPCA("auto").fit(
            target, background=background, groups=groups[0], background_groups=groups[1] + len(target)
        )
        return int(model.n_components_)

    return work


def kernel_counts(runs: int) -> list[Rate]:
    """How often `KernelDPCA(n_components="auto")` reports at least one component on noise."""
    runs = min(runs, 200)
    cases = {"60 + 60 × 3": (60, 60, 3), "100 + 30 × 5": (100, 30, 5), "40 + 150 × 4": (40, 150, 4)}
    results = [
        rate(f"{name}: at least one component", repeat(_counted(rows), runs, 42) > 0, (0.0, 0.07))
        for name, rows in cases.items()
    ]
    found = repeat(_counted((18, 12, 4), 8), runs, 43) > 0
    return [*results, rate("18 × 8 + 12 × 8 replicates × 4: at least one component", found, (0.0, 0.07))]
