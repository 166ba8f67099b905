"""Block Davidson solver for the top pairs of ``A v = λ ((1 − ρ) S + ρ I) v``, using only products with A and S.

Covariances are implicit (:class:`RowCovariance`): the rows stay as they are, and nothing D × D is formed. A product
is ``C v = Xᵀ W (X v − x̄ᵀv)``, minus x̄ times the sum of ``W (X v − x̄ᵀv)``: it is centred on both sides, so that a
large mean causes no loss of precision. Sparse rows are stored a second time, in blocks of rows in column order:
the random access of a product is then confined to one small block of scores instead of all vectors. Blocks are
multiplied on as many threads as there are cores. Dense rows are read block by block, and centred.

The residuals of the current pairs extend the space in which the projected problem is solved. The space is kept as
long as it may grow, because storing its vectors costs less than computing products. When it is full it is
restarted from the best pairs, with room for more vectors than before. The iteration always converges (Crouzeix,
Philippe and Sadkane 1994), although slowly if ratios are clustered. The space stores the images ``A V`` and
``S V``, which do not depend on ρ, so that the same space serves the shrunk and the exact problem.

A residual r in the 2-norm bounds the error of a ratio only by ‖r‖² / λ_min(S): if S is ill-conditioned, pairs may
seem to have converged while others with larger ratios were missed. λ_min(S) is therefore estimated during the
iteration, from the space and by Lanczos (:class:`Smallest`), and the tolerance on the residuals depends on it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import eigvalsh, eigvalsh_tridiagonal, lapack, solve_triangular

from standout._accumulate import SMALLEST
from standout._blas import Array, threads_for, top_eigen
from standout._dataset import Dataset
from standout.errors import InputError
from standout.io.memory import (
    explain_non_finite,
    explain_underflow,
    sparse_blocks,
    sparse_rows,
    transposed,
    weighted_blocks,
    with_values,
)

# A sparse matrix is split into this many parts for any number of cores, so that the order of summation is fixed.
_PARTS = 2
# Rows of a sparse block: the scores of a few vectors for this many rows fit in the cache of one core. If
# features have fewer entries than this in such a block, the block has more rows.
_BLOCK_ROWS = 1600
_LEAST_ENTRIES = 8
_EPS = float(np.finfo(float).eps)
# Tolerance on ‖A v − λ B v‖ / (λ ‖B v‖) for every pair, in the solver's units and in those of the data.
TOLERANCE = 1e-6
# Ratios below this fraction of the largest are accurate only to this fraction of it.
_FLOOR = 1e-6
# Initial capacity of the space in vectors, and its growth at every restart.
FIRST_ROOM = 300
_GROWTH = 1.5
# Restarts without progress before the result is accepted: rounding prevents further convergence.
_PATIENCE = 4
# New directions below this norm are rounding errors of those in the basis.
_NOTHING_NEW = 1e-10
# A background variance below this, in some direction of the space, counts as zero.
_SINGULAR = 1e-12
# A pair with a residual above this is rejected.
_WORST = 1e-2
# Lanczos steps after which the smallest eigenvalue of S is accurate enough.
MOST_STEPS = 100
# Steps between convergence checks of that eigenvalue.
_STEPS = 10


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())


if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_pool.cache_clear)


@dataclass(frozen=True)
class _Block:
    """A block of sparse rows in column order, and their weights."""

    columns: Any
    weights: Array


class RowCovariance:
    """Implicit covariance of one dataset (divided by the sum of weights), and mean and variance of each feature."""

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
        """Whether products use the sparse rows directly, on separate threads."""
        return self._blocks is not None

    @property
    def n_entries(self) -> float:
        """Number of matrix entries that one product reads."""
        if self._blocks is not None:
            return float(sum(block.columns.nnz for block in self._blocks))
        return float(self.data.counts.rows) * self.n_features

    def _sparse_blocks(self) -> list[_Block] | None:
        """Return sparse rows in column order, without rows of weight zero, whose values are ignored."""
        index = None if self._weights is None or self._weights.all() else np.flatnonzero(self._weights)
        matrix = None if self.data.rows is None else sparse_rows(self.data.rows, index)
        if matrix is None:
            return None
        weights = np.ones(matrix.shape[0]) if self._weights is None else self._weights[self._weights > 0]
        enough = _LEAST_ENTRIES * self.n_features * matrix.shape[0] // max(matrix.nnz, 1)
        rows = max(_BLOCK_ROWS, enough)
        starts = range(0, matrix.shape[0], rows)
        parts = zip(starts, sparse_blocks(matrix, rows), strict=True)
        return [_Block(block.tocsc(), weights[start : start + rows]) for start, block in parts]

    def _measure(self) -> tuple[Array, Array]:
        """Return mean and variance in two passes, with squares taken about the mean."""
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
            # Relative to the first row, so that the variance of a constant feature is exactly zero.
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
        # Entries that are not stored are zero. The mean is corrected for its rounding error, so that the variance of a
        # constant feature is exactly zero.
        absent = np.where(stored < sum(len(block.weights) for block in blocks), self.weight - seen, 0.0)
        off = (rest - absent * rough) / self.weight
        variance = (square + absent * rough**2) / self.weight - off**2
        return rough + off, np.maximum(variance, 0.0)

    def times(self, vectors: Array) -> Array:
        """Return the covariance times vectors of shape (n_features, k)."""
        return finished(self.begin(vectors))

    def begin(self, vectors: Array) -> list[Future[Array]]:
        """Start ``times`` on other threads if the rows are sparse; the parts sum to the product."""
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
    """Return the covariances of datasets; each sparse dataset is measured on a separate thread."""
    if all(data.rows is not None and data.rows.is_sparse for data in datasets):
        return list(_pool().map(RowCovariance, datasets))
    # Files are read on the caller's thread, so that Ctrl-C interrupts reading and progress is reported.
    return [RowCovariance(data) for data in datasets]


def finished(parts: list[Future[Array]]) -> Array:
    """Return the sum of the parts of a product, in a fixed order."""
    total = parts[0].result()
    for part in parts[1:]:
        total += part.result()
    return total


def _weighted_sum(rows: Array, weights: Array | None) -> Array:
    return np.asarray(rows.sum(axis=0) if weights is None else weights @ rows)


Products = Callable[[Array], tuple[Array, Array]]
Units = Callable[[Array], Array]


@dataclass(frozen=True)
class Pairs:
    """Approximate eigenpairs in a space, and their residuals."""

    ratios: Array  # (k,)
    vectors: Array  # (d, k), background variance one
    target_image: Array  # (d, k)
    background_image: Array  # (d, k): S times the vectors, not shrunk
    residuals: Array  # (k,)
    starts: int  # number of restarts

    def shrunk_image(self, rho: float) -> Array:
        """Return the image of the shrunk background."""
        return (1 - rho) * self.background_image + rho * self.vectors

    def with_images(self, target: Array, background: Array, rho: float, unit: Units) -> Pairs:
        """Return the pairs with new images of the same vectors, and the resulting residuals."""
        fresh = replace(self, target_image=target, background_image=background)
        return replace(fresh, residuals=_residuals(fresh, rho, unit))

    def trusted(self, rho: float, tolerance: float = TOLERANCE) -> Pairs:
        """Return the pairs; raise an error if the background variance along one is zero, or none converged."""
        variance = np.einsum("ij,ij->j", self.vectors, self.shrunk_image(rho))
        lengths = np.einsum("ij,ij->j", self.vectors, self.vectors)
        # Written this way round so that NaN is rejected too.
        if (variance >= _SINGULAR * lengths).all() and (self.residuals <= max(_WORST, tolerance)).all():
            return self
        raise SingularError


class Smallest:
    """Smallest eigenvalue of S by Lanczos, as one additional column in the products computed for the space.

    The start vector is random and so has a part in every direction. The space, in contrast, starts inside the range
    of A and S, and may never reach a direction in which both are tiny (a feature that nearly duplicates another). The
    value is an upper bound: a smoothly decaying spectrum takes many steps, but then the space itself reaches small
    values.
    """

    def __init__(self, products: Products, start: Array):
        self._products = products
        self._vector, self._last = start / np.linalg.norm(start), np.zeros_like(start)
        self.complete = False  # whether all reachable directions have been found
        self._diagonal: list[float] = []
        self._beside: list[float] = []

    @property
    def n_steps(self) -> int:
        """Number of steps so far."""
        return len(self._diagonal)

    def products(self, vectors: Array) -> tuple[Array, Array]:
        """Return the products with vectors, and make one step."""
        if self.complete or self.n_steps >= MOST_STEPS:
            return self._products(vectors)
        target, background = self._products(np.column_stack([vectors, self._vector]))
        self.step(background[:, -1])
        return target[:, :-1], background[:, :-1]

    def step(self, image: Array) -> None:
        """Make a step with the image of the current vector."""
        apart = image - (self._beside[-1] if self._beside else 0.0) * self._last
        self._diagonal.append(float(apart @ self._vector))
        apart -= self._diagonal[-1] * self._vector
        length = float(np.linalg.norm(apart))
        self._beside.append(length)
        self.complete = length <= _NOTHING_NEW * max(map(abs, self._diagonal))
        self._last, self._vector = self._vector, apart / (1.0 if self.complete else length)

    def finish(self, times: Callable[[Array], Array], most: int) -> float:
        """Return the eigenvalue after at most ``most`` further steps with products of S, fewer if it converges."""
        most, before = min(MOST_STEPS, self.n_steps + most), np.inf
        while not self.complete and self.n_steps < most and self.value < 0.9 * before:
            before, stop = self.value, min(self.n_steps + _STEPS, most)
            while not self.complete and self.n_steps < stop:
                self.step(times(self._vector[:, None])[:, 0])
        return self.value

    @property
    def value(self) -> float:
        """The smallest eigenvalue so far."""
        diagonal, beside = np.array(self._diagonal), np.array(self._beside[:-1])
        return float(eigvalsh_tridiagonal(diagonal, beside, select="i", select_range=(0, 0))[0])


class Space:
    """A growing orthonormal basis V, with A V, S V and the two projected matrices."""

    def __init__(self, products: Products, start: Array, most: int, watch: Smallest | None = None):
        """Start from some vectors; ``most`` is the largest number that fits in memory."""
        self.products = products if watch is None else watch.products
        self.watch = watch
        self.n_columns = 0
        self.most = max(min(most, len(start)), 1)
        self.room = min(self.most, max(FIRST_ROOM, 4 * start.shape[1]))
        self.n_features = len(start)
        self.size, self.n_starts = 0, 0
        self._reserve(self.room)
        self.add(_independent(start))

    def _reserve(self, room: int) -> None:
        self._basis, self._target, self._background = (np.empty((self.n_features, room), order="F") for _ in range(3))
        self._inner = np.empty((2, room, room))

    @property
    def basis(self) -> Array:
        """V."""
        return self._basis[:, : self.size]

    @property
    def images(self) -> tuple[Array, Array]:
        """A V and S V."""
        return self._target[:, : self.size], self._background[:, : self.size]

    def add(self, vectors: Array) -> None:
        """Add orthonormal vectors that are orthogonal to the basis, with their products."""
        self.n_columns += vectors.shape[1]
        self._put(vectors, *self.products(vectors))

    def _put(self, vectors: Array, target: Array, background: Array) -> None:
        old, new = self.size, self.size + vectors.shape[1]
        for store, columns in ((self._basis, vectors), (self._target, target), (self._background, background)):
            store[:, old:new] = columns
        self.size = new
        for inner, columns in zip(self._inner, (target, background), strict=True):
            cross = self.basis.T @ columns
            inner[:new, old:new] = cross
            inner[old:new, :old] = cross[:old].T

    def grow(self, residuals: Array, best: Array) -> bool:
        """Add new directions from the residuals; False if there are none. A restart keeps ``best`` (coefficients)."""
        fresh = self._outside(residuals)
        if fresh.shape[1] == 0:
            return False
        if self.size + fresh.shape[1] > self.room:
            self._start_again(best)
        self.add(fresh)
        return True

    def _outside(self, vectors: Array) -> Array:
        length = np.linalg.norm(vectors, axis=0)
        found = vectors[:, length > 0] / length[length > 0]
        for _ in range(2):  # a single pass does not give orthogonality to rounding
            found = _independent(found - self.basis @ (self.basis.T @ found))
        return np.asarray(found[:, : self.n_features - self.size])

    def _start_again(self, best: Array) -> None:
        kept, _ = np.linalg.qr(best)
        parts = [part @ kept for part in (self.basis, *self.images)]
        self.n_starts += 1
        self.room = max(min(self.most, int(_GROWTH * self.room)), 3 * best.shape[1])
        self.size = 0
        self._reserve(self.room)
        self._put(*parts)

    def smallest(self) -> float:
        """Return the smallest unshrunk background variance along a unit vector of the space."""
        inner = self._inner[1, : self.size, : self.size]
        return float(eigvalsh((inner + inner.T) / 2, subset_by_index=[0, 0])[0])

    def small_problem(self, rho: float) -> tuple[Array, Array]:
        """Return all pairs inside the space, largest first: ratios, and coefficients in the basis."""
        target, background = ((inner + inner.T) / 2 for inner in self._inner[:, : self.size, : self.size])
        background = (1 - rho) * background
        np.einsum("ii->i", background)[...] += rho
        with threads_for(self.size**3):  # avoid contention with the thread pool of the products
            factor, info = lapack.dpotrf(background, lower=1)
            if info != 0 or np.diagonal(factor).min() ** 2 < _SINGULAR:
                raise SingularError
            half = solve_triangular(factor, target, lower=True)
            inner = solve_triangular(factor, half.T, lower=True)
            values, turn = top_eigen((inner + inner.T) / 2, self.size)
            return values, np.asarray(solve_triangular(factor, turn, lower=True, trans=1))


def top_pairs(space: Space, rho: float, count: int, unit: Units, tolerance: float = TOLERANCE) -> Pairs:
    """Return the ``count`` largest pairs; ``unit`` converts images to the units of the data."""
    lowest, waited, starts = np.inf, 0, space.n_starts
    while True:
        found, coefficients = _inside(space, rho, count, unit)
        wrong = found.residuals > tolerance
        if not wrong.any() and len(found.ratios) == count:
            return found.trusted(rho, tolerance)
        if space.n_starts > starts:
            starts = space.n_starts
            waited = 0 if found.residuals.max() < 0.9 * lowest else waited + 1
            lowest = min(lowest, found.residuals.max())
        apart = found.target_image - found.shrunk_image(rho) * found.ratios
        if waited > _PATIENCE or not space.grow(apart[:, wrong], coefficients):
            return found.trusted(rho, tolerance)


def _inside(space: Space, rho: float, count: int, unit: Units) -> tuple[Pairs, Array]:
    """Return the best pairs inside the space, and the coefficients to keep at a restart."""
    ratios, coefficients = space.small_problem(rho)
    ratios, chosen = ratios[:count].clip(min=0.0), coefficients[:, :count]
    target, background = (image @ chosen for image in space.images)
    found = Pairs(ratios, space.basis @ chosen, target, background, np.zeros(len(ratios)), space.n_starts)
    found = replace(found, residuals=_residuals(found, rho, unit))
    return found, coefficients[:, : 2 * count + 10]


def _residuals(found: Pairs, rho: float, unit: Units) -> Array:
    """Return the relative residuals in the solver's units or in those of the data, whichever are larger."""
    image = found.shrunk_image(rho)
    apart = found.target_image - image * found.ratios
    image *= np.maximum(found.ratios, _FLOOR * found.ratios[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = [
            np.linalg.norm(ours, axis=0) / np.linalg.norm(whole, axis=0)
            for ours, whole in ((apart, image), (unit(apart), unit(image)))
        ]
    return np.asarray(np.nan_to_num(np.maximum(*sizes), nan=0.0, posinf=np.inf))


def _independent(vectors: Array) -> Array:
    """Return an orthonormal basis of vectors of about unit length."""
    if vectors.shape[1] == 0:
        return vectors
    basis, sizes, _ = np.linalg.svd(vectors, full_matrices=False)
    return np.asarray(basis[:, sizes > _NOTHING_NEW])


class SingularError(InputError):
    """The background is numerically singular for a reason other than constant features."""

    def __init__(self) -> None:
        super().__init__(
            "the background covariance is singular or too ill-conditioned for the matrix-free solver, and not only "
            "through features that are constant: in some direction the background varies so little that rounding "
            "hides it (a condition number of the rows from about 1e7 on is enough). Use `solver='gsvd'`, which keeps "
            "twice the digits, where the memory allows, or `shrinkage='oas'`."
        )
