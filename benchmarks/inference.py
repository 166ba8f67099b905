"""Resampling against the bare linear algebra it requires, in one process on one thread."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg
from threadpoolctl import threadpool_limits

from benchmarks.cases import _fit, _normal, _spiked
from benchmarks.measure import Result, at_most, interleaved
from standout.inference.permutation import permutation_test
from standout.inference.stability import stability


def _mice() -> tuple[np.ndarray, np.ndarray]:
    return _spiked(_normal(267, 76, 4)), _normal(135, 76, 5)


def permutations() -> list[Result]:
    """1,000 permutations of 267 + 135 × 76 against 1,000 bare eigh calls for the top ratio."""
    target, background = _mice()
    pair = np.cov(target.T), np.cov(background.T)

    def bare() -> None:
        with threadpool_limits(1):
            for _ in range(1000):
                scipy.linalg.eigh(*pair, subset_by_index=[75, 75])

    rows = []
    for name, shrinkage in (("", "auto"), (", exact", None)):

        def ours(shrinkage: str | None = shrinkage) -> None:
            permutation_test(target, background, n_permutations=1000, shrinkage=shrinkage, n_jobs=1)

        what = f"267 + 135 × 76{name}: 1,000 permutations against 1,000 bare top-1 eigh calls"
        rows.append(at_most(what, interleaved(ours, bare, 5), 4))
    return rows


def bootstrap() -> list[Result]:
    """200 bootstrap samples of 267 + 135 × 76 against 200 fits."""
    target, background = _mice()

    def fits() -> None:
        for _ in range(200):
            _fit(target, background)

    ratio = interleaved(lambda: stability(target, background, n_jobs=1), fits, 5)
    return [at_most("267 + 135 × 76: stability by 200 bootstrap samples against 200 fits", ratio, 3)]


CASES: dict[str, Callable[[], list[Result]]] = {"permutations": permutations, "bootstrap": bootstrap}
