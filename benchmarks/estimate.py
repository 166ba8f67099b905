"""The background estimate of shrinkage="auto": accuracy with many genes, and cost relative to "oas"."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from scipy import sparse
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from benchmarks.measure import Result, at_most, interleaved
from standout._dpca import DPCA


def cells(seed: int, genes: int = 18_000, target: int = 300, background: int = 300) -> tuple[np.ndarray, ...]:
    """Return raw counts of target and control cells, the target cells with an active programme, and library depths.

    Depth is log-normal with sd 0.4 in both. The programme, active in a fifth of the target cells, multiplies 100 of the
    2,000 most expressed genes by 3.5 and divides 100 others by 3.5.
    """
    rng = np.random.default_rng(seed)
    mean = rng.lognormal(0.0, 1.5, genes)
    mean *= 10_000 / mean.sum()
    chosen = rng.permutation(np.argsort(-mean)[:2000])[:200]
    change = np.ones(genes)
    change[chosen[:100]], change[chosen[100:]] = 3.5, 1 / 3.5

    def counts(depth: np.ndarray, active: np.ndarray) -> np.ndarray:
        rate = depth[:, None] * mean * np.where(active[:, None], change, 1.0)
        return rng.poisson(rate * rng.gamma(5.0, 0.2, rate.shape)).astype(float)

    depths = [np.sort(rng.lognormal(0.0, 0.4, size)) for size in (target, background)]
    active = np.arange(target) % 5 == 2  # one of five cells, at every depth
    return counts(depths[0], active), counts(depths[1], np.zeros(background, dtype=bool)), active, depths[0]


def programme() -> list[Result]:
    """18,000 genes, 300 + 300 cells: whether the first component shows the programme or the depth."""
    found: dict[str, list[tuple[float, float]]] = {"oas": [], "auto": []}
    for seed in range(8):
        rows, control, active, depth = cells(seed)
        for shrinkage, results in found.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                scores = DPCA(1, shrinkage=shrinkage).fit(rows, background=control).transform(rows)[:, 0]
            area = roc_auc_score(active, scores)
            results.append((max(area, 1 - area), abs(np.corrcoef(scores, depth)[0, 1])))
    (areas, depths), (old_areas, old_depths) = (np.array(found[name]).T for name in ("auto", "oas"))
    what = "18,000 genes, 300 + 300 cells, 8 seeds"
    return [
        Result(
            f"{what}: smallest AUC of the first component for the programme", areas.min(), "", "≥ 0.99",
            bool(areas.min() >= 0.99), f"shrinkage='oas': {old_areas.min():.2f} to {old_areas.max():.2f}",
        ),
        Result(
            "the same, largest absolute correlation with library depth", depths.max(), "", "≤ 0.15",
            bool(depths.max() <= 0.15), f"shrinkage='oas': {old_depths.min():.2f} to {old_depths.max():.2f}",
        ),
    ]  # fmt: skip


def _with_factors(rows: int, features: int, seed: int) -> np.ndarray:
    """Return rows with three shared factors; seed 0, the target, also has two signals."""
    rng = np.random.default_rng(seed)
    loadings = np.random.default_rng(features).normal(size=(5, features)) * np.sqrt(180 / features)
    count = 5 if seed == 0 else 3
    return rng.normal(size=(rows, features)) + rng.normal(size=(rows, count)) @ loadings[:count]


def _cost(what: str, target: object, background: object, repeats: int = 1, **parameters: object) -> Result:
    def fit(shrinkage: str) -> Callable[[], None]:
        def work() -> None:
            for _ in range(repeats):
                DPCA(2, shrinkage=shrinkage, **parameters).fit(target, background=background)

        return work

    return at_most(f"{what}: shrinkage='auto' against 'oas'", interleaved(fit("auto"), fit("oas")), 1.2)


def cost() -> list[Result]:
    """Cost of estimating factors, for every solver."""
    results = []
    with threadpool_limits(1):
        results.append(_cost("267 + 135 × 76 (100 fits)", _with_factors(267, 76, 0), _with_factors(135, 76, 1), 100))
    for rows, others, features in ((2000, 3000, 784), (3000, 3000, 2000), (500, 500, 50_000)):
        pair = _with_factors(rows, features, 0), _with_factors(others, features, 1)
        results.append(_cost(f"{rows:,} + {others:,} × {features:,}", *pair))
    pair = _with_factors(600, 200, 0), _with_factors(500, 200, 1)
    results.append(_cost("600 + 500 × 200, solver='gsvd'", *pair, solver="gsvd"))
    rare = [
        sparse.random_array((20_000, 6000), density=0.03, format="csr", random_state=np.random.default_rng(seed))
        for seed in (0, 1)
    ]
    results.append(_cost("sparse, 2 × 20,000 × 6,000, solver='matrix_free'", *rare, solver="matrix_free"))
    return results


CASES = {"programme": programme, "estimate": cost}
