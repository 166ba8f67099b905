"""Dense fits and transforms at the sizes of the paper and of current data; each case returns rows of the table."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg
from threadpoolctl import threadpool_limits

from benchmarks.measure import Result, at_least, at_most, extra_megabytes, interleaved
from standout._blas import cholesky
from standout._dpca import DPCA
from standout.solvers import dense


def _normal(rows: int, columns: int, seed: int, dtype: type = np.float64, offset: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    data = np.empty((rows, columns), dtype)
    for start in range(0, rows, 10_000):  # in blocks, so that generating the data does not set the memory peak
        part = data[start : start + 10_000]
        part[...] = rng.standard_normal(part.shape, dtype=np.float32) + offset
    return data


def _spiked(data: np.ndarray) -> np.ndarray:
    data[:, 0] *= 4
    data[:, 1] *= 3
    return data


def _large() -> tuple[np.ndarray, np.ndarray]:
    return _spiked(_normal(100_000, 784, 0)), _normal(100_000, 784, 1)


def _fit(target: np.ndarray, background: np.ndarray) -> DPCA:
    return DPCA(2).fit(target, background=background)


def large() -> list[Result]:
    """100,000 + 100,000 × 784 against the two bare products and one top-2 eigh."""
    target, background = _large()

    def bare() -> None:
        scipy.linalg.eigh(target.T @ target, background.T @ background, subset_by_index=[782, 783])

    ratio = interleaved(lambda: _fit(target, background), bare)
    small = target.astype(np.float32), background.astype(np.float32)
    single = interleaved(lambda: _fit(*small), lambda: _fit(target, background), pairs=9)
    memory = extra_megabytes(_large, _fit)
    return [
        at_most("100k + 100k × 784, fit against bare products + eigh", ratio, 1.15),
        Result("the same, peak memory above the input", memory, "MB", "≤ 50 MB", memory <= 50),
        at_most("the same in float32, against float64", single, 1.0),
    ]


def shrunk() -> list[Result]:
    """3,000 + 3,000 × 2,000, where the background is shrunk, against two covariances and one top-2 eigh."""

    def covariance(rows: np.ndarray) -> np.ndarray:
        centred = rows - rows.mean(axis=0)
        return centred.T @ centred / len(rows)

    rows = []
    rng = np.random.default_rng(10)
    for name in ("separated top ratio", "shared factors", "pure noise"):
        target, background = _normal(3000, 2000, 11), _normal(3000, 2000, 12)
        if name == "shared factors":
            loadings = rng.standard_normal((5, 2000))
            for data in (target, background):
                data += rng.standard_normal((3000, 5)) @ loadings
        if name != "pure noise":
            _spiked(target)

        def ours(target: np.ndarray = target, background: np.ndarray = background) -> None:
            _fit(target, background)

        def bare(target: np.ndarray = target, background: np.ndarray = background) -> None:
            scipy.linalg.eigh(covariance(target), covariance(background), subset_by_index=[1998, 1999])

        ratio = interleaved(ours, bare, 9)
        rows.append(at_most(f"3000 + 3000 × 2000, shrunk fit against two covariances + eigh, {name}", ratio, 1.25))
    return rows


def paper() -> list[Result]:
    """2000 + 3000 × 784, the size of the paper, against other packages."""
    from contrastive import CPCA
    from generalized_contrastive_PCA import gcPCA

    target, background = _spiked(_normal(2000, 784, 0)), _normal(3000, 784, 1)
    centred = target - target.mean(0), background - background.mean(0)

    def by_gcpca() -> None:
        gcPCA(method="v2", normalize_flag=False).fit(*centred)

    def by_contrastive() -> None:
        peer = CPCA(n_components=2, standardize=False)
        peer.fit_transform(target, background, alpha_selection="manual", alpha_value=2.0)

    def by_search() -> None:
        CPCA(n_components=2, standardize=False).fit_transform(target, background)

    def ours() -> None:
        _fit(target, background)

    return [
        at_least("2000 + 3000 × 784, fit against gcPCA v2", interleaved(ours, by_gcpca, 7), 5),
        at_least("the same, against contrastive with one alpha", interleaved(ours, by_contrastive, 11), 3),
        at_least("the same, against contrastive's automatic search", interleaved(ours, by_search, 1), 100),
    ]


def solve() -> list[Result]:
    """The top-2 solve at 4000 features against scipy's eigh with a subset."""
    rows, size = [], 4000
    for name, limit, spiked in (("separated top ratio", 0.25, True), ("pure noise", 0.5, False)):
        target, background = _normal(6000, size, 2, offset=0.0), _normal(9000, size, 3, offset=0.0)
        if spiked:
            _spiked(target)
        first, second = target.T @ target / 6000, background.T @ background / 9000

        def ours(first: np.ndarray = first, second: np.ndarray = second) -> None:
            factor = cholesky(second)
            assert factor is not None and dense.lanczos_pairs(first, factor[0], 2) is not None

        def bare(first: np.ndarray = first, second: np.ndarray = second) -> None:
            scipy.linalg.eigh(first, second, subset_by_index=[size - 2, size - 1])

        ratio = interleaved(ours, bare, 3)
        rows.append(at_most(f"top-2 of 4000 features against eigh, {name}", ratio, limit))
    return rows


def small() -> list[Result]:
    """267 + 135 × 76, the size of the mouse data: overhead of threads and validation."""
    target, background = _spiked(_normal(267, 76, 4)), _normal(135, 76, 5)

    def bare() -> None:
        # Two products and one eigh, a hundred times, to be measurable.
        for _ in range(100):
            scipy.linalg.eigh(target.T @ target, background.T @ background, subset_by_index=[74, 75])

    def exact() -> None:
        for _ in range(100):
            DPCA(2, shrinkage=None).fit(target, background=background)

    def default() -> None:
        # Few rows per feature: the background is estimated, and the unshrunk problem is solved as well.
        for _ in range(100):
            _fit(target, background)

    def alone() -> None:
        with threadpool_limits(1):
            bare()

    what = "267 + 135 × 76, {} fit against bare linear algebra on one thread (100 of each)"
    return [
        at_most(what.format("exact"), interleaved(exact, alone, 9), 2.2),
        at_most(what.format("default"), interleaved(default, alone, 9), 3),
    ]


def _wide() -> tuple[np.ndarray, np.ndarray]:
    return _spiked(_normal(500, 50_000, 6)), _normal(500, 50_000, 7)


def wide() -> list[Result]:
    """500 + 500 × 50,000 against one bare Gram product of the stacked rows."""
    target, background = _wide()
    stacked = np.vstack([target, background])
    ratio = interleaved(lambda: _fit(target, background), lambda: stacked @ stacked.T, 5)
    memory = extra_megabytes(_wide, _fit)
    square = 50_000**2 * 8 / 2**20
    return [
        at_most("500 + 500 × 50,000, fit against one bare Gram product", ratio, 2),
        Result(
            "the same, peak memory above the input", memory, "MB", f"≪ {square:.0f} MB (D × D)", memory < square / 20
        ),
    ]


def transform() -> list[Result]:
    """Transform against the bare matrix product."""
    target, background = _normal(100_000, 784, 8), _normal(5000, 784, 9)
    model = _fit(_spiked(target[:5000].copy()), background)
    basis = model.components_.T.copy()
    ratio = interleaved(lambda: model.transform(target), lambda: target @ basis, 15)
    return [at_most("transform of 100,000 × 784 against the bare product", ratio, 1.15)]


def single() -> list[Result]:
    """PCA of 200,000 × 100 in float32, with sums in float64, against float64 and against scikit-learn."""
    from sklearn.decomposition import PCA

    rows = _spiked(_normal(200_000, 100, 13, np.float32))
    double = rows.astype(np.float64)
    what = "200,000 × 100 without background in float32, {}"
    against = {"our float64": (DPCA, double, 1.0), "scikit-learn's PCA in float64": (PCA, double, 1.5)}
    against["scikit-learn's PCA in float32, whose sums are float32"] = (PCA, rows, 1.5)
    found = []
    for name, (kind, data, limit) in against.items():
        ratio = interleaved(lambda: DPCA(2).fit(rows), lambda kind=kind, data=data: kind(2).fit(data), 15)
        found.append(at_most(what.format(f"fit against {name}"), ratio, limit))
    ours, theirs = DPCA(2).fit(rows), PCA(2).fit(rows)
    ratio = interleaved(lambda: ours.transform(rows), lambda: theirs.transform(rows), 15)
    return [*found, at_most(what.format("transform against scikit-learn's PCA in float32"), ratio, 1.5)]


CASES: dict[str, Callable[[], list[Result]]] = {
    "small": small,
    "transform": transform,
    "single": single,
    "paper": paper,
    "wide": wide,
    "solve": solve,
    "shrunk": shrunk,
    "large": large,
}
