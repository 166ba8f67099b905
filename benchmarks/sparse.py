"""Sparse and very wide data: time against scikit-learn's sparse PCA or a Gram product, residuals and memory."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
from scipy import sparse as sp

from benchmarks.measure import Result, at_most, extra_megabytes, interleaved, seconds
from standout._dpca import DPCA

_ROWS, _FEATURES, _DENSITY = 100_000, 20_000, 0.03
_COMPONENTS = 10
_COMMON, _SPECIFIC = 10, 10  # programs common to both datasets, and specific to the target


def counts(rows: int, features: int, density: float, own: int, seed: int) -> sp.csr_array:
    """Return Poisson counts with low-rank rates: each row mixes a base profile, common and specific programs.

    A Poisson variable with rate Σ_f w_f h_fj is a sum over programs, and the counts of a program are distributed
    over features by its profile. So only non-zero counts are drawn.
    """
    shape = np.random.default_rng(1)  # same profiles for target and background
    base = shape.lognormal(0, 1, features)
    programs = base * np.vstack([np.ones(features), shape.lognormal(0, 1, (_COMMON + _SPECIFIC, features))])
    profiles = np.cumsum(programs[: 1 + _COMMON + own], axis=1)
    rng = np.random.default_rng(seed)
    weights = rng.gamma(0.5, 2.0, (rows, len(profiles)))
    weights[:, 0] = 4.0
    # Some entries are drawn twice, so slightly more counts than entries are needed.
    totals = rng.poisson(weights * (1.06 * density * features / (3 + len(profiles))))
    parts = []
    for start in range(0, rows, 10_000):
        block = totals[start : start + 10_000]
        row = [np.repeat(np.arange(len(block), dtype=np.int32), number) for number in block.T]
        column = [
            np.searchsorted(profile, rng.random(len(index)) * profile[-1]).astype(np.int32)
            for profile, index in zip(profiles, row, strict=True)
        ]
        indices = np.concatenate(row), np.concatenate(column)
        parts.append(sp.coo_array((np.ones(len(indices[0])), indices), shape=(len(block), features)).tocsr())
    return sp.vstack(parts, format="csr")


def _pair() -> tuple[sp.csr_array, sp.csr_array]:
    size = (_ROWS, _FEATURES, _DENSITY)
    return counts(*size, own=_SPECIFIC, seed=2), counts(*size, own=0, seed=3)


def _fit(target: sp.csr_array, background: sp.csr_array, shrinkage: str | None = "auto") -> DPCA:
    return DPCA(_COMPONENTS, shrinkage=shrinkage).fit(target, background=background)


def _covariance(rows: sp.csr_array, vectors: np.ndarray) -> np.ndarray:
    mean = rows.mean(axis=0)
    seen = rows @ vectors - mean @ vectors
    return (rows.T @ seen - np.outer(mean, seen.sum(axis=0))) / rows.shape[0]


def _residual(model: DPCA, target: sp.csr_array, background: sp.csr_array) -> float:
    """Return the largest ‖C_xx u − λ C_yy(ρ) u‖ / (λ ‖C_yy(ρ) u‖), computed from the rows; C_yy(ρ) has no factors."""
    vectors, rho = model.components_.T, model.shrinkage_
    squares = background.multiply(background).mean(axis=0) - background.mean(axis=0) ** 2
    image = (1 - rho) * _covariance(background, vectors) + rho * squares[:, None] * vectors
    residual = _covariance(target, vectors) - image * model.ratios_
    return float((np.linalg.norm(residual, axis=0) / (model.ratios_ * np.linalg.norm(image, axis=0))).max())


def sparse() -> list[Result]:
    """100,000 + 100,000 × 20,000 at 3 %, ten components, against scikit-learn's sparse PCA of both matrices."""
    from sklearn.decomposition import PCA

    pair = _pair()

    def peer() -> None:
        for rows in pair:
            PCA(_COMPONENTS, svd_solver="arpack").fit(rows)

    fitted: dict[str | None, DPCA] = {}

    def ours(shrinkage: str | None) -> None:
        fitted[shrinkage] = _fit(*pair, shrinkage)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        times = np.array([[seconds(w) for w in (partial(ours, "auto"), peer, partial(ours, None))] for _ in range(3)])
        # The estimate of "auto" also keeps shared factors, which a fitted model does not expose.
        ours("oas")
        worst = {shrinkage: _residual(fitted[shrinkage], *pair) for shrinkage in ("oas", None)}
    auto, theirs, exact = np.median(times, axis=0)
    held = sum(rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes for rows in pair) / 2**20
    memory = extra_megabytes(_pair, _fit) + held
    density = pair[0].nnz / (_ROWS * _FEATURES)
    what = f"sparse {_ROWS:,} × {_FEATURES:,} at {100 * density:.1f} %, twice, k = {_COMPONENTS}"
    shrunk = float(np.median(times[:, 0] / times[:, 1])), auto, theirs
    plain = float(np.median(times[:, 2] / times[:, 1])), exact, theirs
    return [
        at_most(f"{what}: fit against scikit-learn's arpack PCA of both", shrunk, 1.0, fitted["auto"].solver_),
        at_most("the same, not shrunk", plain, 2.0),
        *(
            Result(f"the same, largest residual (shrinkage={key!r})", found, "", "≤ 1e-6", found <= 1e-6)
            for key, found in worst.items()
        ),
        Result("the same, peak memory", memory / held, "× the input", "≤ 3 ×", memory <= 3 * held, f"{held:.0f} MB"),
    ]


def _wide() -> tuple[np.ndarray, np.ndarray]:
    pair = []
    for seed in (4, 5):
        rng = np.random.default_rng(seed)
        rows = np.empty((1000, 100_000))
        for part in np.split(rows, 10):  # in blocks, so that generating the data does not set the memory peak
            part[...] = rng.standard_normal(part.shape, dtype=np.float32)
        pair.append(rows)
    pair[0][:, :2] *= 4
    return pair[0], pair[1]


def very_wide() -> list[Result]:
    """1,000 + 1,000 × 100,000 dense against one bare Gram product of the stacked rows."""
    target, background = _wide()
    stacked = np.vstack([target, background])
    ratio = interleaved(lambda: DPCA(2).fit(target, background=background), lambda: stacked @ stacked.T, 3)
    return [at_most("1,000 + 1,000 × 100,000, fit against one bare Gram product", ratio, 1.5)]


def _wide_counts() -> tuple[sp.csr_array, sp.csr_array]:
    size = (2000, 200_000, 0.01)
    return counts(*size, own=_SPECIFIC, seed=6), counts(*size, own=0, seed=7)


def wide_sparse() -> list[Result]:
    """2,000 + 2,000 × 200,000 at 1 %, as in chromatin accessibility data, against one bare sparse Gram product."""
    target, background = _wide_counts()
    stacked = sp.vstack([target, background], format="csr")
    ratio = interleaved(lambda: _fit(target, background), lambda: stacked @ stacked.T, 3)
    memory, dense = extra_megabytes(_wide_counts, _fit), stacked.shape[0] * stacked.shape[1] * 8 / 2**20
    density = stacked.nnz / (stacked.shape[0] * stacked.shape[1])
    return [
        at_most(f"sparse 2 × 2,000 × 200,000 at {100 * density:.1f} %, fit against one bare sparse Gram product", ratio,
                1.5, _fit(target, background).solver_),
        Result("the same, peak memory above the input", memory, "MB", f"≤ a tenth of {dense:.0f} MB (dense)",
               memory <= dense / 10),
    ]  # fmt: skip


CASES = {"sparse": sparse, "very_wide": very_wide, "wide_sparse": wide_sparse}
