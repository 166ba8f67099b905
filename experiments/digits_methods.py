"""Methods of the digits experiment: scores of each method, and how well they separate the digits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from experiments import Array, judge
from experiments.literal import Literal
from standout._cpca import CPCA
from standout._dpca import DPCA
from standout._kernel_dpca import KernelDPCA
from standout._moments import Moments

# Half of them are target rows. Four times as many take ten times as long and still do not show the digits as clusters.
LANDMARKS = 500


class Sample(Protocol):
    """Digits over photographs: labelled target rows, background photographs, and labelled held-out rows."""

    @property
    def target(self) -> Array:
        """Rows to fit: (n_rows, n_pixels)."""

    @property
    def digit(self) -> NDArray[np.int64]:
        """Digit in each row: (n_rows,)."""

    @property
    def background(self) -> Array:
        """Photographs without digits: (n_background, n_pixels)."""

    @property
    def new(self) -> Array:
        """Held-out rows: (n_new, n_pixels)."""

    @property
    def new_digit(self) -> NDArray[np.int64]:
        """Digit in each held-out row: (n_new,)."""


@dataclass(frozen=True)
class Method:
    """A named method: how to create it for a seed, and what it is fitted to."""

    key: str
    name: str
    make: Callable[[int], Any]
    alone: bool = False  # uses the target only
    rows: bool = False  # needs rows; the others share the moments


METHODS = (
    Method("pca", "PCA", lambda _: DPCA(2), alone=True),
    Method("ratio_exact", "dPCA by ratio (exact)", lambda _: DPCA(2, shrinkage=None)),
    Method("ratio", "dPCA by ratio (default)", lambda _: DPCA(2)),
    Method("signal", "dPCA by signal", lambda _: DPCA(2, axes="signal")),
    Method("signal_unit", "dPCA by signal (unit background)", lambda _: DPCA(2, axes="signal", normalize="background")),
    Method("cpca", "cPCA (alpha 2)", lambda _: CPCA(2, alpha=2.0)),
    Method("cpca_search", "cPCA (alpha searched)", lambda seed: CPCA(2, random_state=seed)),
    Method("kernel", "kernel dPCA", lambda s: KernelDPCA(2, n_landmarks=LANDMARKS, random_state=s), rows=True),
    Method("literal", "Algorithm 1 as printed", lambda _: Literal()),
)


@dataclass(frozen=True)
class View:
    """Scores, patterns and measures of one method on one sample."""

    scores: Array  # (n_rows, 2); fewer columns if fewer components are above the noise edge
    patterns: Array  # (2, n_pixels): change of the pixels for one target sd of the score
    measures: dict[str, float]
    seconds: float  # seconds of the fit, excluding the moments


@dataclass(frozen=True)
class Seen:
    """Views of one sample by every method, and the spectrum of the exact problem."""

    views: dict[str, View]
    spectrum: dict[str, float]


def see(sample: Sample, seed: int) -> Seen:
    """Fit every method to a sample, and evaluate it with the digits, which no method uses."""
    target, background = Moments.of(sample.target), Moments.of(sample.background)
    views, fitted = {}, {}
    for method in METHODS:
        data, other = (sample.target, sample.background) if method.rows else (target, background)
        began = time.perf_counter()
        model = method.make(seed).fit(data, background=None if method.alone else other)
        seconds = time.perf_counter() - began
        views[method.key], fitted[method.key] = _view(model, sample, seed, seconds), model
    every = DPCA(None, shrinkage=None).fit(target, background=background)
    spectrum = {
        "largest_ratio": float(every.ratios_[0]),
        "noise_edge": float(every.noise_edge_),
        "above_edge": int((every.ratios_ > every.noise_edge_).sum()),
        "default_shrinkage": float(fitted["ratio"].shrinkage_),
        "searched_alpha": float(fitted["cpca_search"].alpha_),
        "calm_by_ratio": _calm(every, background),
        "calm_by_signal": _calm(fitted["signal"], background),
    }
    return Seen(views, spectrum)


def _calm(model: DPCA, background: Moments) -> float:
    """Return the background variance along the first component, relative to the average over directions."""
    if model.n_components_ == 0:
        return float("nan")
    C_yy, u = background.covariance(), model.components_[0]
    return float(u @ C_yy @ u / (u @ u) / (np.trace(C_yy) / len(u)))


def _view(model: Any, sample: Sample, seed: int, seconds: float) -> View:
    scores, new = model.transform(sample.target), model.transform(sample.new)
    patterns = _patterns(sample.target, scores)
    measures = {
        "ari": judge.ari(scores, sample.digit, seed),
        "silhouette": judge.silhouette(scores, sample.digit),
        "accuracy": judge.accuracy(scores, sample.digit, seed=seed),
        "new_accuracy": judge.accuracy_on(scores, sample.digit, new, sample.new_digit),
    }
    return View(scores, patterns, measures, seconds)


def _patterns(rows: Array, scores: Array) -> Array:
    """Return the regression of rows on scores, per sd of each score; it is defined for every method."""
    centred = scores - scores.mean(axis=0)
    slopes = np.linalg.lstsq(centred, rows - rows.mean(axis=0), rcond=None)[0]
    return np.asarray(slopes * centred.std(axis=0)[:, None])
