"""Kernel dPCA with landmarks against a linear fit with as many features as landmarks."""

from __future__ import annotations

import numpy as np

from benchmarks.measure import Result, at_most, extra_megabytes, interleaved
from standout._dpca import DPCA
from standout._kernel_dpca import KernelDPCA

_ROWS, _FEATURES, _LANDMARKS = 25_000, 50, 500


def _pair(columns: int = _FEATURES) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    target, background = rng.standard_normal((_ROWS, columns)), rng.standard_normal((_ROWS, columns))
    target[:, 0] *= 3
    return target, background


def _fit(target: np.ndarray, background: np.ndarray) -> KernelDPCA:
    return KernelDPCA(2, n_landmarks=_LANDMARKS).fit(target, background=background)


def landmarks() -> list[Result]:
    """25,000 + 25,000 × 50 with 500 landmarks, against a linear fit of 25,000 + 25,000 × 500."""
    target, background = _pair()
    wide = _pair(_LANDMARKS)
    ratio = interleaved(lambda: _fit(target, background), lambda: DPCA(2).fit(wide[0], background=wide[1]), 9)
    memory = extra_megabytes(_pair, _fit)
    what = "KernelDPCA, 25k + 25k × 50 with 500 landmarks"
    return [
        at_most(f"{what}, against DPCA of 25k + 25k × 500", ratio, 4),
        Result("the same, peak memory above the input", memory, "MB", "≤ 100 MB", memory <= 100),
    ]


CASES = {"landmarks": landmarks}
