"""Rows in the coordinates that resampling works in, and rows without a component."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import linalg

from standout.blas import Array, add_gram, mirror, rank_tolerance, top_eigen

# What is left of a feature that a component explains is rounding below this share of its sd.
NOTHING = 1e-10
# A background variance below this share of the overall variance is rounding: the feature is constant there.
CONSTANT = 1e-13
_PANEL_BYTES = 8 * 2**20
_EPS = float(np.finfo(float).eps)


def equilibrated(rows: Array) -> Array:
    """Return the features that vary, each divided by its overall sd."""
    sd = _sd(rows)
    alive = sd > 0
    return np.ascontiguousarray(rows[:, alive] / sd[alive])


def whitened(rows: Array) -> Array:
    """Return the rows in coordinates in which all sets together are white: exact ratios do not notice."""
    scaled = equilibrated(rows)
    triangle = linalg.qr(scaled, mode="r", check_finite=False)[0][: scaled.shape[1]]
    _, values, right = linalg.svd(triangle, full_matrices=False, check_finite=False)
    kept = values > max(rows.shape) * _EPS * values[0]
    return np.asarray(scaled @ (right[kept].T / values[kept]))


def along_target(white: Array, n_target: int) -> Array:
    """Return jointly white rows along the principal axes of the target: the components of the exact problem."""
    target = white[:n_target]
    return np.asarray(white @ linalg.eigh(target.T @ target)[1])


def in_their_span(rows: Array) -> Array:
    """Return coordinates of wide rows in an orthonormal basis of their span, features in overall sd."""
    gram = np.zeros((len(rows), len(rows)), order="F")
    for here in panels(*rows.shape):
        add_gram(gram, equilibrated(rows[:, here]))
    values, basis = top_eigen(mirror(gram), len(gram))
    kept = values > rank_tolerance(len(gram)) * values[0]
    return np.ascontiguousarray(basis[:, kept] * np.sqrt(values[kept]))


def panels(n_rows: int, n_features: int) -> Iterator[slice]:
    """Yield runs of features small enough for the cache to help."""
    width = max(16, _PANEL_BYTES // (8 * n_rows))
    for start in range(0, n_features, width):
        yield slice(start, min(start + width, n_features))


def deflated(rows: Array, scores: Array, n_target: int) -> Array:
    """Return rows without what moves with a component: nothing of it is left in either set.

    All other components of the same problem keep their scores, as if both sets were projected on them.
    """
    own = scores[:n_target] - scores[:n_target].mean()
    pattern = (own @ rows[:n_target]) / (own @ own)
    rest = rows - np.outer(scores, pattern)
    rest[:, _sd(rest) <= NOTHING * _sd(rows)] = 0.0
    return np.asarray(rest)


def _sd(rows: Array) -> Array:
    return np.asarray(np.sqrt(np.einsum("ij,ij->j", rows, rows) / len(rows)))
