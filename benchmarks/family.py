"""Contrastive PCA: the automatic search and paths, at the size of the paper."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.cases import _fit, _normal, _spiked
from benchmarks.measure import Result, at_least, at_most, interleaved
from standout._cpca import CPCA, path


def _pair() -> tuple[np.ndarray, np.ndarray]:
    return _spiked(_normal(2000, 784, 0)), _normal(3000, 784, 1)


def search() -> list[Result]:
    """The automatic search over the same 41 alphas, against the package that published it."""
    import contrastive

    target, background = _pair()

    def ours() -> None:
        CPCA(grid="abid", affinity="scores").fit(target, background=background)

    def theirs() -> None:
        contrastive.CPCA(standardize=False).fit_transform(target, background)

    what = "2000 + 3000 × 784, cPCA's search over 41 alphas against contrastive's"
    return [at_least(what, interleaved(ours, theirs, 3), 10)]


def paths() -> list[Result]:
    """A whole path against one fit."""
    target, background = _pair()

    def one() -> None:
        _fit(target, background)

    rows = []
    for over, values in (("alpha", np.geomspace(0.01, 10, 40)), ("shrinkage", np.geomspace(0.001, 1, 40))):

        def whole(over: str = over, values: np.ndarray = values) -> None:
            path(target, background, over=over, values=values)

        rows.append(
            at_most(f"the same, a path of 40 steps over {over} against one fit", interleaved(whole, one, 7), 15)
        )
    natural = interleaved(lambda: path(target, background), one, 7)
    return [*rows, at_most("the same over alpha, on the natural grid", natural, 15)]


CASES: dict[str, Callable[[], list[Result]]] = {"search": search, "paths": paths}
