"""The span of sparse rows: a sparse Gram matrix, from which the means are taken off afterwards.

With rows x and centres c, in background-sd units, (x − c)·(y − d) = x·y − x·d − c·y + c·d: the zeros stay zeros, and
nothing of the size of the dense rows is made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from standout.accumulate import NEAR_ZERO
from standout.blas import Array
from standout.dataset import Dataset
from standout.mixture import Mixture
from standout.shrinkage import start_features
from standout.solve.span import Columns, RowSpan
from standout.sources.csr import row_block, sparse_rows, transposed, with_values
from standout.sparse_sums import DEARER

# Rows of the Gram matrix that are made at once.
_PANEL = 256


def row_span(target: Dataset, backgrounds: Sequence[Dataset], mixture: Mixture | None, own: bool) -> RowSpan:
    """Return the span of rows: of sparse ones as they are where that is less work, of all others in dense panels."""
    matrices = [None if data.rows is None else sparse_rows(data.counted().rows) for data in (target, *backgrounds)]
    if all(matrix is not None for matrix in matrices) and _pays_off(matrices):
        found = SparseSpan(target, backgrounds, mixture, own, matrices)
        if found.near_zero:
            return found
    return RowSpan(target, backgrounds, mixture, own)


def _pays_off(matrices: Sequence[Any]) -> bool:
    """Tell whether pairs of entries in one column are few enough, against all pairs of rows."""
    n_rows, n_features = sum(matrix.shape[0] for matrix in matrices), matrices[0].shape[1]
    entries = np.zeros(n_features)
    for matrix in matrices:
        entries += np.bincount(matrix.indices, minlength=n_features)
    return bool(DEARER * (entries @ entries) < float(n_rows) ** 2 * n_features)


class SparseSpan(RowSpan):
    """The span of sparse rows. Where ``near_zero`` is False, means would cost digits and there is no Gram matrix."""

    def __init__(
        self,
        target: Dataset,
        backgrounds: Sequence[Dataset],
        mixture: Mixture | None,
        own: bool,
        matrices: Sequence[Any],
    ):
        self.matrices = [with_values(matrix, matrix.data.astype(np.float64, copy=False)) for matrix in matrices]
        self.near_zero = True
        super().__init__(target, backgrounds, mixture, own)

    def _measure(self) -> Columns:
        with np.errstate(all="ignore"):
            means = [transposed(rows) @ share for rows, share in zip(self.matrices, self.weights, strict=True)]
            self._centres = self._centres_of(np.stack(means))
            parts = [self._variance(number, mean) for number, mean in enumerate(means)]
            background = self.mixture.mixed(parts[1:]) if self.mixture is not None else np.zeros(self.n_features)
            variances = np.stack([parts[0], background])
            scale = self._scale(variances)
            self._check(variances)
        columns = Columns(tuple(means), variances[0], variances[1], scale)
        if self.near_zero:
            self.matrices = [with_values(rows, rows.data / scale[rows.indices]) for rows in self.matrices]
            self._centres /= scale
            self._multiply()
            self._take_off_centres()
            first = start_features(variances[0] / scale**2, int(np.count_nonzero(variances.sum(axis=0))))
            leading = transposed(transposed(self.matrices[0]).tocsr()[first]).toarray() - self._centres[0, first]
            self.leading = leading * self.roots[: self.n_target, None]
        return columns

    def _centres_of(self, means: Array) -> Array:
        """Return what is taken off the rows of each dataset."""
        if self.own_centre or self.mixture is None:
            return means
        return np.vstack([self.mixture.mixed_means(means[1:]), means[1:]])

    def _variance(self, number: int, mean: Array) -> Array:
        """Return the mean square about the centre; note where the centre is so far from zero that it costs digits."""
        rows, centre, weights = self.matrices[number], self._centres[number], self.weights[number]
        square = transposed(with_values(rows, rows.data * rows.data)) @ weights
        variance = np.asarray(square - centre * (2 * mean - centre))
        if (centre * centre > NEAR_ZERO**2 * variance).any():
            self.near_zero = False
        return variance

    def _check(self, variances: Array) -> None:
        told = variances.sum(axis=0)
        if not math.isfinite(told.sum()):
            worst = int(np.flatnonzero(~np.isfinite(told))[0])
            raise self._explained(worst, worst + 1)

    def _multiply(self) -> None:
        """Fill the Gram matrix with products of rows, one panel of its columns at a time."""
        starts = np.concatenate([[0], np.cumsum(self.sizes)])

        def fill(number: int, start: int) -> None:
            stop = min(start + _PANEL, self.sizes[number])
            panel = transposed(row_block(self.matrices[number], start, stop)).tocsr()
            here = slice(starts[number] + start, starts[number] + stop)
            for other in range(number, len(self.matrices)):
                first = start if other == number else 0
                product = (row_block(self.matrices[other], first, self.sizes[other]) @ panel).toarray()
                below = slice(starts[other] + first, starts[other + 1])
                self.gram[below, here] = product
                self.gram[here, below] = product.T

        with ThreadPoolExecutor() as pool:
            tasks = [
                pool.submit(fill, number, start)
                for number, size in enumerate(self.sizes)
                for start in range(0, size, _PANEL)
            ]
            for task in tasks:
                task.result()

    def _take_off_centres(self) -> None:
        """Turn products of rows into products of centred rows that add up to covariances."""
        whose = np.repeat(np.arange(len(self.sizes)), self.sizes)
        seen = np.vstack([rows @ self._centres.T for rows in self.matrices])  # row · centre of each dataset
        for row, number in enumerate(whose):  # row by row: no second matrix of this size
            self.gram[:, row] -= seen[:, number] + seen[row, whose] - (self._centres @ self._centres[number])[whose]
        self.gram *= self.roots[:, None]
        self.gram *= self.roots

    def combine(self, coefficients: Sequence[Array]) -> list[Array]:
        """Return ``Zᵀ c`` for each block of row coefficients, Z the centred and scaled rows."""
        together = self.roots[:, None] * np.hstack(coefficients)
        result = np.zeros((self.n_features, together.shape[1]))
        for rows, centre, part in zip(self.matrices, self._centres, self._parts(together), strict=True):
            result += transposed(rows) @ part
            result -= np.outer(centre, part.sum(axis=0))
        return np.split(result, np.cumsum([block.shape[1] for block in coefficients])[:-1], axis=1)
