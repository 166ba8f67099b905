"""Laws that hold for every dataset, and the random problems they are tested on.

Hypothesis draws seeds and sizes, not numbers: the problems are random but never degenerate, so
that a failure is a bug and not a numerical accident.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from helpers import covariance, sample_pair
from standout._dpca import DPCA
from standout.errors import ReplicateWarning, SerialWarning

quickly = settings(deadline=None, max_examples=25)


@dataclass(frozen=True)
class Problem:
    """A target, a background, and a generator for whatever a law does to them."""

    target: np.ndarray
    background: np.ndarray
    seed: int

    @property
    def size(self):
        return self.target.shape[1]

    @property
    def rng(self):
        return np.random.default_rng(self.seed + 1)

    @property
    def matrices(self):
        return covariance(self.target), covariance(self.background)

    def fit(self, n_components=None, **options):
        return fit(self.target, self.background, n_components, **options)


@st.composite
def problems(draw, min_features=1, max_features=6):
    """Draw a problem with enough rows for every covariance to be regular."""
    size = draw(st.integers(min_features, max_features))
    m, n = (draw(st.integers(3 * size + 5, 60)) for _ in range(2))
    seed = draw(st.integers(0, 2**31))
    return Problem(*sample_pair(np.random.default_rng(seed), m, n, size), seed)


def fit(target, background, n_components=None, **options):
    """Fit the paper's exact problem, all components."""
    with warnings.catch_warnings():
        for category in (ReplicateWarning, SerialWarning):  # repeated rows are part of the laws
            warnings.simplefilter("ignore", category)
        return DPCA(n_components, **{"shrinkage": None, **options}).fit(target, background=background)


def rounding(*matrices):
    """Return the error to expect in a ratio, relative to the largest ratio.

    Cholesky and a symmetric eigensolver are backward stable: their error is D·ε·cond of the
    background covariance, times the largest ratio. 1e−13 is 450 ε: room for D ≤ 7, for sums of some
    hundred rows and for means of a few sd.
    """
    return 1e-13 * max(np.linalg.cond(matrix) for matrix in matrices)


def same_ratios(found, expected, tolerance):
    """Return whether ratios agree to ``tolerance``, relative to the largest."""
    return len(found) == len(expected) and bool(np.abs(found - expected).max() <= tolerance * np.max(expected))


def same_directions(found, expected, background, ratios, tolerance):
    """Return whether filters (rows, of any length and sign) agree, each as accurately as its ratio is separated.

    Measured in background sd. A vector is as accurate as its ratio, divided by the distance to
    the nearest other ratio.
    """
    gaps = np.abs(ratios[:, None] - ratios[None, :]) + np.diag(np.full(len(ratios), np.inf))
    allowed = tolerance * ratios.max() / gaps.min(axis=1) + tolerance

    def unit(filters):
        return filters / np.sqrt(np.einsum("ij,jk,ik->i", filters, background, filters))[:, None]

    one, other = unit(found), unit(expected)
    other = other * np.sign(np.einsum("ij,jk,ik->i", one, background, other))[:, None]
    apart = one - other
    return bool(np.all(np.sqrt(np.einsum("ij,jk,ik->i", apart, background, apart).clip(0)) <= allowed))
