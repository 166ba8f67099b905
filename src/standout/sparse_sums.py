"""Adding up sparse rows as they are: a product of sparse matrices, where that is less work than dense blocks.

Nothing is shifted, because the zeros would be lost; so a feature far from zero (which cannot have many
zeros) sends the data back to the accumulator, which shifts dense blocks and loses no digits.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from standout.accumulate import NEAR_ZERO, SMALLEST, Sums
from standout.blas import Array
from standout.sources import Source
from standout.sources.csr import sparse_rows, with_values
from standout.sources.weighted import check_weights

# A multiply-add of a sparse product costs as much as this many of a dense one.
DEARER = 150
# Rows of the scatter matrix that are made at once.
_PANEL = 256


def sums_of_sparse(source: Source, weights: ArrayLike | None, role: str) -> Sums | None:
    """Add up a sparse source; None where it is not sparse (enough), or where raw sums would not do."""
    matrix = sparse_rows(source)
    if matrix is None:
        return None
    weight, squared = float(matrix.shape[0]), float(matrix.shape[0])
    root = None
    if weights is not None:
        checked = check_weights(weights, matrix.shape[0], role)
        index = np.flatnonzero(checked)
        checked, matrix = checked[index], matrix[index] if len(index) < len(checked) else matrix
        weight, squared, root = float(checked.sum()), float((checked * checked).sum()), np.sqrt(checked)
    if not _pays_off(matrix):
        return None
    with np.errstate(all="ignore"):
        mean, scatter = _raw(matrix, root, weight)
        variance = np.diagonal(scatter) / weight - mean * mean
        good = math.isfinite(variance.sum()) and bool((mean * mean <= NEAR_ZERO**2 * variance).all())
        if not good or ((variance < SMALLEST) & (variance > 0)).any():
            return None
    for row, value in zip(scatter, mean, strict=True):  # row by row: no second matrix of this size
        row -= weight * (value * mean)
    return Sums(mean, 0.0, scatter.T, weight, squared, matrix.shape[0], np.empty(0, dtype=np.intp))


def _pays_off(matrix: Any) -> bool:
    """Tell whether pairs of entries in one row are few enough, against all pairs of features."""
    entries = np.diff(matrix.indptr).astype(np.float64)
    return bool(DEARER * (entries @ entries) < matrix.shape[0] * float(matrix.shape[1]) ** 2)


def _raw(matrix: Any, root: Array | None, weight: float) -> tuple[Array, Array]:
    """Return the mean, and the products of all pairs of features summed over the rows."""
    values = matrix.data.astype(np.float64, copy=False)
    if root is not None:
        values = values * np.repeat(root, np.diff(matrix.indptr))
    rows = with_values(matrix, values)
    columns = rows.T.tocsr()
    mean = columns @ (np.ones(matrix.shape[0]) if root is None else root) / weight
    scatter = np.empty((matrix.shape[1],) * 2)

    def fill(start: int) -> None:
        scatter[start : start + _PANEL] = (columns[start : start + _PANEL] @ rows).toarray()

    with ThreadPoolExecutor() as pool:
        _ = list(pool.map(fill, range(0, len(scatter), _PANEL)))
    return np.asarray(mean), scatter
