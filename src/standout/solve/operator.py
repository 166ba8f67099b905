"""A covariance as something that multiplies vectors: the rows stay as they are, and nothing D × D is formed.

``C v = Xᵀ W (X v − x̄ᵀv)``, less x̄ times the sum of what stands in the middle: centred on both sides,
so that a large mean costs no digits. Sparse rows are kept once more, in blocks of rows stored by column:
what a product jumps about in is then one small block of scores, and not all of the vectors. Blocks are
multiplied on as many threads as there are cores. Dense rows are read block by block, and centred.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from standout.accumulate import SMALLEST
from standout.blas import Array
from standout.dataset import Dataset
from standout.sources.csr import is_sparse, sparse_blocks, sparse_rows, transposed, with_values
from standout.sources.locate import explain_non_finite, explain_underflow
from standout.sources.weighted import weighted_blocks

# A sparse matrix is cut into this many parts, however many cores there are: the sums keep their order.
_PARTS = 2
# Rows of a sparse block: the scores of a few vectors for so many stay in the cache of one core. Where
# features have fewer entries than this in such a block, it has more rows.
_BLOCK_ROWS = 1600
_LEAST_ENTRIES = 8
_EPS = float(np.finfo(float).eps)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())


if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_pool.cache_clear)


@dataclass(frozen=True)
class _Block:
    """Some sparse rows, stored by column, and their weights."""

    columns: Any
    weights: Array


class RowCovariance:
    """The covariance of one dataset (divided by the sum of its weights), and mean and variance of each feature."""

    def __init__(self, data: Dataset):
        assert data.rows is not None
        self.data = data
        self.n_features = data.n_features
        weights = None if data.weights is None else data.row_weights
        self.weight = float(data.rows.n_rows or 0) if weights is None else float(weights.sum())
        self._weights = weights
        self._blocks = self._sparse_blocks()
        self.mean, self.variance = self._measure()

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are multiplied as they are, on threads of their own."""
        return self._blocks is not None

    @property
    def n_entries(self) -> float:
        """How many numbers one product looks at."""
        if self._blocks is not None:
            return float(sum(block.columns.nnz for block in self._blocks))
        return float(self.data.counts.rows) * self.n_features

    def _sparse_blocks(self) -> list[_Block] | None:
        """Return sparse rows by column, without those of weight zero: whatever they hold, they are not there."""
        index = None if self._weights is None or self._weights.all() else np.flatnonzero(self._weights)
        matrix = sparse_rows(self.data.rows, index)
        if matrix is None:
            return None
        weights = np.ones(matrix.shape[0]) if self._weights is None else self._weights[self._weights > 0]
        enough = _LEAST_ENTRIES * self.n_features * matrix.shape[0] // max(matrix.nnz, 1)
        rows = max(_BLOCK_ROWS, enough)
        starts = range(0, matrix.shape[0], rows)
        parts = zip(starts, sparse_blocks(matrix, rows), strict=True)
        return [_Block(block.tocsc(), weights[start : start + rows]) for start, block in parts]

    def _measure(self) -> tuple[Array, Array]:
        """Return mean and variance by two passes: the squares are taken about the mean."""
        with np.errstate(all="ignore"):
            if self._blocks is None:
                mean, variance = self._measure_dense()
            else:
                mean, variance = self._measure_sparse(self._blocks)
        if not math.isfinite(mean.sum() + variance.sum()):
            source = self.data.rows
            assert source is not None
            raise explain_non_finite(source, np.empty((0, self.n_features)), self.data.role, self.data.names)
        variance[np.sqrt(variance) <= 10 * _EPS * np.abs(mean)] = 0.0
        lost = np.flatnonzero((variance > 0) & (variance < SMALLEST))
        if len(lost):
            raise explain_underflow(lost, self.data.names, self.data.role)
        return mean, variance

    def _measure_dense(self) -> tuple[Array, Array]:
        total, square = np.zeros(self.n_features), np.zeros(self.n_features)
        first: Array | None = None
        for rows, weights in self._dense_blocks():
            # From the first row on, so that a constant is met exactly.
            first = rows[0].copy() if first is None else first
            total += _weighted_sum(rows - first, weights)
        assert first is not None
        mean = first + total / self.weight
        for rows, weights in self._dense_blocks():
            rows = rows - mean
            square += _weighted_sum(rows * rows, weights)
        return mean, square / self.weight

    def _dense_blocks(self) -> Iterator[tuple[Array, Array | None]]:
        assert self.data.rows is not None
        for block in weighted_blocks(self.data.rows, self.data.weights, self.data.role):
            if len(block.rows):
                yield block.rows.astype(np.float64, copy=False), block.weights

    def _measure_sparse(self, blocks: Sequence[_Block]) -> tuple[Array, Array]:
        total, seen, stored, rest, square = (np.zeros(self.n_features) for _ in range(5))
        for block in blocks:
            total += transposed(block.columns) @ block.weights
            present = transposed(with_values(block.columns, np.ones(block.columns.nnz)))
            seen += present @ block.weights
            stored += np.diff(block.columns.indptr)
        rough = total / self.weight
        for block in blocks:
            apart = block.columns.data - np.repeat(rough, np.diff(block.columns.indptr))
            rest += transposed(with_values(block.columns, apart)) @ block.weights
            square += transposed(with_values(block.columns, apart * apart)) @ block.weights
        # What is not stored is zero. The mean is put right by what its rounding left: a constant is met exactly.
        absent = np.where(stored < sum(len(block.weights) for block in blocks), self.weight - seen, 0.0)
        off = (rest - absent * rough) / self.weight
        variance = (square + absent * rough**2) / self.weight - off**2
        return rough + off, np.maximum(variance, 0.0)

    def times(self, vectors: Array) -> Array:
        """Return the covariance times vectors of shape (n_features, k)."""
        return finished(self.begin(vectors))

    def begin(self, vectors: Array) -> list[Future[Array]]:
        """Start ``times`` on other threads where the rows are sparse; the parts add up to the product."""
        vectors = np.ascontiguousarray(vectors)
        if self._blocks is None:
            done: Future[Array] = Future()
            done.set_result(self._times_dense(vectors))
            return [done]
        half = -(-len(self._blocks) // _PARTS)
        parts = [self._blocks[start : start + half] for start in range(0, len(self._blocks), half)]
        return [_pool().submit(self._times_part, vectors, part) for part in parts]

    def _times_part(self, vectors: Array, blocks: Sequence[_Block]) -> Array:
        result = np.zeros_like(vectors)
        inside = self.mean @ vectors
        left = np.zeros(vectors.shape[1])
        for block in blocks:
            seen = block.columns @ vectors
            seen -= inside
            if self._weights is not None:
                seen *= block.weights[:, None]
            left += seen.sum(axis=0)
            result += transposed(block.columns) @ seen
        result -= np.multiply.outer(self.mean, left)
        result /= self.weight
        return result

    def _times_dense(self, vectors: Array) -> Array:
        result = np.zeros_like(vectors)
        for rows, weights in self._dense_blocks():
            rows = rows - self.mean
            seen = rows @ vectors
            if weights is not None:
                seen *= weights[:, None]
            result += rows.T @ seen
        return np.asarray(result / self.weight)


def measured(datasets: Sequence[Dataset]) -> list[RowCovariance]:
    """Return the covariances of datasets, sparse ones each measured on a thread of its own."""
    if all(is_sparse(data.rows) for data in datasets):
        return list(_pool().map(RowCovariance, datasets))
    # What is read from files must stop with the caller (Ctrl-C), and tell it how far it has come.
    return [RowCovariance(data) for data in datasets]


def finished(parts: list[Future[Array]]) -> Array:
    """Return the sum of the parts of a product, in their order."""
    total = parts[0].result()
    for part in parts[1:]:
        total += part.result()
    return total


def _weighted_sum(rows: Array, weights: Array | None) -> Array:
    return np.asarray(rows.sum(axis=0) if weights is None else weights @ rows)
