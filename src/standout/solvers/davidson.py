"""Block Davidson iteration for the top pairs of ``A v = λ ((1 − ρ) S + ρ I) v``, using only products with A and S.

Covariances are implicit (:class:`RowCovariance`): the rows stay as they are, and nothing D × D is formed.

The residuals of the current pairs extend the space in which the projected problem is solved. The space is kept as
long as it may grow, because storing its vectors costs less than computing products. When it is full it is
restarted from the best pairs, with room for more vectors than before. The iteration always converges (Crouzeix,
Philippe and Sadkane 1994), although slowly if ratios are clustered. The space stores the images ``A V`` and
``S V``, which do not depend on ρ, so that the same space serves the shrunk and the exact problem.

A residual r in the 2-norm bounds the error of a ratio only by ‖r‖² / λ_min(S): if S is ill-conditioned, pairs may
seem to have converged while others with larger ratios were missed. λ_min(S) is therefore estimated during the
iteration, from the space and by Lanczos (:class:`SmallestEigenvalue`), and the tolerance on the residuals depends on
it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial, reduce
from operator import iadd
from typing import Any

import numpy as np
from scipy.linalg import eigvalsh, eigvalsh_tridiagonal, lapack

from standout._accumulate import SMALLEST
from standout._blas import Array, constant_features, symmetric, threads_for, weighted_sum
from standout._dataset import Dataset
from standout.errors import InputError
from standout.io.memory import (
    explain_non_finite,
    explain_underflow,
    row_block,
    sparse_rows,
    transposed,
    weighted_blocks,
    with_values,
)
from standout.solvers import dense
from standout.solvers.solution import Eigenpairs

# A sparse matrix is split into this many parts for any number of cores, so that the order of summation is fixed.
_PARTS = 2
# Rows of a sparse block: the scores of a few vectors for this many rows fit in the cache of one core. If
# features have fewer entries than this in such a block, the block has more rows.
_BLOCK_ROWS = 1600
_LEAST_ENTRIES = 8
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
# Lanczos steps after which the smallest eigenvalue of S is accurate enough, and steps between convergence checks.
_MOST_STEPS = 100
_STEPS = 10


class RowCovariance:
    """Implicit covariance of one dataset (divided by the sum of weights), and mean and variance of each feature.

    A product is ``C v = Xᵀ W (X v − x̄ᵀv)``, minus x̄ times the sum of ``W (X v − x̄ᵀv)``: it is centred on both sides,
    so that a large mean causes no loss of precision. Sparse rows are stored a second time, in blocks of rows in column
    order: the random access of a product is then confined to one small block of scores instead of all vectors. Blocks
    are multiplied on as many threads as there are cores. Dense rows are read block by block, and centred.
    """

    def __init__(self, data: Dataset):
        assert data.rows is not None
        self.data, self.n_features = data, data.n_features
        self._weights = None if data.weights is None else data.row_weights
        self.weight = float(data.rows.n_rows or 0) if self._weights is None else float(self._weights.sum())
        self.blocks = self._sparse_blocks()  # None if the rows are dense
        # Number of matrix entries that one product reads.
        self.n_entries = float(data.counts.rows) * self.n_features
        if self.blocks is not None:
            self.n_entries = float(sum(columns.nnz for columns, _ in self.blocks))
        with np.errstate(all="ignore"):
            self.mean, self.variance = self._measure_dense() if self.blocks is None else self._measure_sparse()
        if not math.isfinite(self.mean.sum() + self.variance.sum()):
            raise explain_non_finite(data.rows, np.empty((0, self.n_features)), data.role, data.names)
        self.variance[constant_features(self.variance, self.mean)] = 0.0
        lost = np.flatnonzero((self.variance > 0) & (self.variance < SMALLEST))
        if len(lost):
            raise explain_underflow(lost, data.names, data.role)

    def _sparse_blocks(self) -> list[tuple[Any, Array]] | None:
        """Return blocks of sparse rows in column order, without rows of weight zero, and their weights."""
        assert self.data.rows is not None
        index = None if self._weights is None or self._weights.all() else np.flatnonzero(self._weights)
        matrix = sparse_rows(self.data.rows, index)
        if matrix is None:
            return None
        n_rows = matrix.shape[0]
        weights = np.ones(n_rows) if self._weights is None else self._weights[self._weights > 0]
        step = max(_BLOCK_ROWS, _LEAST_ENTRIES * self.n_features * n_rows // max(matrix.nnz, 1))
        return [
            (row_block(matrix, start, min(start + step, n_rows)).tocsc(), weights[start : start + step])
            for start in range(0, n_rows, step)
        ]

    def _dense_blocks(self) -> Iterator[tuple[Array, Array | None]]:
        assert self.data.rows is not None
        for block in weighted_blocks(self.data.rows, self.data.weights, self.data.role):
            if len(block.rows):
                yield block.rows.astype(np.float64, copy=False), block.weights

    def _measure_dense(self) -> tuple[Array, Array]:
        """Return mean and variance in two passes, with squares taken about the mean."""
        total, square = np.zeros(self.n_features), np.zeros(self.n_features)
        first: Array | None = None
        for rows, weights in self._dense_blocks():
            # Relative to the first row, so that the variance of a constant feature is exactly zero.
            first = rows[0].copy() if first is None else first
            total += weighted_sum(rows - first, weights)
        assert first is not None
        mean = first + total / self.weight
        for rows, weights in self._dense_blocks():
            square += weighted_sum((rows - mean) ** 2, weights)
        return mean, square / self.weight

    def _measure_sparse(self) -> tuple[Array, Array]:
        """Return mean and variance in two passes; entries that are not stored are zero."""
        total, seen, stored, rest, square = (np.zeros(self.n_features) for _ in range(5))
        blocks = self.blocks or []
        for columns, weights in blocks:
            total += transposed(columns) @ weights
            seen += transposed(with_values(columns, np.ones(columns.nnz))) @ weights
            stored += np.diff(columns.indptr)
        rough = total / self.weight
        for columns, weights in blocks:
            apart = columns.data - np.repeat(rough, np.diff(columns.indptr))
            rest += transposed(with_values(columns, apart)) @ weights
            square += transposed(with_values(columns, apart * apart)) @ weights
        # The mean is corrected for its rounding error, so that the variance of a constant feature is exactly zero.
        absent = np.where(stored < sum(len(weights) for _, weights in blocks), self.weight - seen, 0.0)
        off = (rest - absent * rough) / self.weight
        variance = (square + absent * rough**2) / self.weight - off**2
        return rough + off, np.maximum(variance, 0.0)

    def start(self, vectors: Array) -> Callable[[], Array]:
        """Start a product with vectors (n_features, k), on other threads if rows are sparse; return how to get it."""
        vectors = np.ascontiguousarray(vectors)
        if self.blocks is None:
            return partial(self._times_dense, vectors)
        step = -(-len(self.blocks) // _PARTS)
        parts = [self.blocks[start : start + step] for start in range(0, len(self.blocks), step)]
        products = thread_pool().map(partial(self._times_sparse, vectors), parts)
        return lambda: reduce(iadd, products)

    def _times_sparse(self, vectors: Array, blocks: Sequence[tuple[Any, Array]]) -> Array:
        result, left, inside = np.zeros_like(vectors), np.zeros(vectors.shape[1]), self.mean @ vectors
        for columns, weights in blocks:
            seen = columns @ vectors
            seen -= inside
            if self._weights is not None:
                seen *= weights[:, None]
            left += seen.sum(axis=0)
            result += transposed(columns) @ seen
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
        result /= self.weight
        return result


@cache
def thread_pool() -> ThreadPoolExecutor:
    """Return the threads that multiply sparse blocks."""
    return ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())


if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=thread_pool.cache_clear)


@dataclass(frozen=True)
class Operator:
    """Target covariance A and background covariance S in the solver's coordinates, as products with vectors."""

    products: Callable[[Array], tuple[Array, Array]]  # A v and S v, for vectors of shape (d, k)
    background: Callable[[Array], Array]  # S v
    in_units: Callable[[Array], Array]  # converts images to the units of the data


class SmallestEigenvalue:
    """Smallest eigenvalue of S by Lanczos, as one additional column in the products computed for the space.

    The start vector is random and so has a part in every direction. The space, in contrast, starts inside the range
    of A and S, and may never reach a direction in which both are tiny (a feature that nearly duplicates another). The
    value is an upper bound: a smoothly decaying spectrum takes many steps, but then the space itself reaches small
    values.
    """

    def __init__(self, start: Array):
        self.vector, self._last = start / np.linalg.norm(start), np.zeros_like(start)
        self._diagonal: list[float] = []
        self._off_diagonal = [0.0]
        self._exhausted = False  # whether all reachable directions have been found

    @property
    def is_done(self) -> bool:
        """Whether further steps are of no use."""
        return self._exhausted or len(self._diagonal) >= _MOST_STEPS

    def step(self, image: Array) -> None:
        """Make a step with the image of the current vector."""
        apart = image - self._off_diagonal[-1] * self._last
        self._diagonal.append(float(apart @ self.vector))
        apart -= self._diagonal[-1] * self.vector
        length = float(np.linalg.norm(apart))
        self._off_diagonal.append(length)
        self._exhausted = length <= _NOTHING_NEW * max(map(abs, self._diagonal))
        self._last, self.vector = self.vector, apart / (1.0 if self._exhausted else length)

    def finish(self, background: Callable[[Array], Array], most: int) -> float:
        """Return the eigenvalue after at most ``most`` further steps, fewer if it converges."""
        value, before = self._value(), np.inf
        while most > 0 and not self.is_done and value < 0.9 * before:
            for _ in range(min(_STEPS, most)):
                if not self.is_done:
                    self.step(background(self.vector[:, None])[:, 0])
            most -= _STEPS
            value, before = self._value(), value
        return value

    def _value(self) -> float:
        off_diagonal = self._off_diagonal[1:-1]
        return float(eigvalsh_tridiagonal(self._diagonal, off_diagonal, select="i", select_range=(0, 0))[0])


class Space:
    """A growing orthonormal basis V, with A V, S V and the two projected matrices."""

    def __init__(self, operator: Operator, start: Array, most: int, watch: SmallestEigenvalue | None = None):
        """Start from some vectors; ``most`` is the largest number that fits in memory."""
        self.operator, self.watch = operator, watch
        self.n_products = self.n_restarts = 0
        self.n_features = len(start)
        self.most = max(min(most, len(start)), 1)
        self._reserve(min(self.most, max(FIRST_ROOM, 4 * start.shape[1])))
        self._add(_independent(start))

    def _reserve(self, room: int) -> None:
        """Start an empty basis with room for so many vectors."""
        self.room, self.size = room, 0
        self._stored = [np.empty((self.n_features, room), order="F") for _ in range(3)]
        self._inner = np.empty((2, room, room))

    @property
    def parts(self) -> list[Array]:
        """V, A V and S V."""
        return [stored[:, : self.size] for stored in self._stored]

    def _add(self, vectors: Array) -> None:
        """Add orthonormal vectors that are orthogonal to the basis, with their products."""
        self.n_products += vectors.shape[1]
        if self.watch is None or self.watch.is_done:
            self._append([vectors, *self.operator.products(vectors)])
            return
        target, background = self.operator.products(np.column_stack([vectors, self.watch.vector]))
        self.watch.step(background[:, -1])
        self._append([vectors, target[:, :-1], background[:, :-1]])

    def _append(self, parts: Sequence[Array]) -> None:
        old, new = self.size, self.size + parts[0].shape[1]
        for stored, columns in zip(self._stored, parts, strict=True):
            stored[:, old:new] = columns
        self.size = new
        for inner, columns in zip(self._inner, parts[1:], strict=True):
            cross = self._stored[0][:, :new].T @ columns
            inner[:new, old:new] = cross
            inner[old:new, :old] = cross[:old].T

    def grow(self, residuals: Array, best: Array) -> bool:
        """Add new directions from the residuals; False if there are none. A restart keeps ``best`` (coefficients)."""
        length = np.linalg.norm(residuals, axis=0)
        fresh, basis = residuals[:, length > 0] / length[length > 0], self.parts[0]
        for _ in range(2):  # a single pass does not give orthogonality to rounding
            fresh = _independent(fresh - basis @ (basis.T @ fresh))
        fresh = fresh[:, : self.n_features - self.size]
        if fresh.shape[1] == 0:
            return False
        if self.size + fresh.shape[1] > self.room:
            self._restart(best)
        self._add(fresh)
        return True

    def _restart(self, best: Array) -> None:
        kept, _ = np.linalg.qr(best)
        parts = [part @ kept for part in self.parts]
        self.n_restarts += 1
        self._reserve(max(min(self.most, int(_GROWTH * self.room)), 3 * best.shape[1]))
        self._append(parts)

    def smallest(self) -> float:
        """Return the smallest unshrunk background variance along a unit vector of the space."""
        inner = self._inner[1, : self.size, : self.size]
        return float(eigvalsh(symmetric(inner), subset_by_index=[0, 0])[0])

    def projected_pairs(self, rho: float, count: int) -> tuple[Array, Array]:
        """Return at most ``count`` largest ratios inside the space, and the coefficients of vectors in the basis."""
        target, background = (symmetric(inner) for inner in self._inner[:, : self.size, : self.size])
        background *= 1 - rho
        np.einsum("ii->i", background)[...] += rho
        with threads_for(self.size**3):  # avoid contention with the thread pool of the products
            factor, info = lapack.dpotrf(background, lower=1)
            if info != 0 or np.diagonal(factor).min() ** 2 < _SINGULAR:
                raise SingularError
            return dense.top_pairs(target, factor, min(count, self.size))


def top_pairs(space: Space, rho: float, count: int, tolerance: float = TOLERANCE) -> tuple[Eigenpairs, float]:
    """Return the ``count`` largest pairs against the shrunk background, and their largest residual."""
    lowest, waited, restarts = np.inf, 0, space.n_restarts
    while True:
        ratios, coefficients = space.projected_pairs(rho, 2 * count + 10)
        found = _shrunk(ratios[:count], [part @ coefficients[:, :count] for part in space.parts], rho)
        residuals = _residuals(found, space.operator)
        wrong = residuals > tolerance
        if not wrong.any() and len(found.ratios) == count:
            break
        if space.n_restarts > restarts:
            restarts = space.n_restarts
            waited = 0 if residuals.max() < 0.9 * lowest else waited + 1
            lowest = min(lowest, residuals.max())
        apart = found.target_image - found.background_image * found.ratios
        if waited > _PATIENCE or not space.grow(apart[:, wrong], coefficients):
            break
    if space.n_restarts:  # restarts accumulate rounding errors in the images
        found = _shrunk(found.ratios, [found.vectors, *space.operator.products(found.vectors)], rho)
        residuals = _residuals(found, space.operator)
    variance = np.einsum("ij,ij->j", found.vectors, found.background_image)
    lengths = np.einsum("ij,ij->j", found.vectors, found.vectors)
    # Written this way round so that NaN is rejected too.
    if (variance >= _SINGULAR * lengths).all() and (residuals <= max(_WORST, tolerance)).all():
        return found, float(residuals.max())
    raise SingularError


def _shrunk(ratios: Array, parts: Sequence[Array], rho: float) -> Eigenpairs:
    """Return pairs with the image of the shrunk background, from vectors v, A v and S v."""
    vectors, target, background = parts
    return Eigenpairs(ratios, vectors, target, (1 - rho) * background + rho * vectors)


def _residuals(found: Eigenpairs, operator: Operator) -> Array:
    """Return the relative residuals in the solver's units or in those of the data, whichever are larger."""
    apart = found.target_image - found.background_image * found.ratios
    image = found.background_image * np.maximum(found.ratios, _FLOOR * found.ratios[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = [
            np.linalg.norm(ours, axis=0) / np.linalg.norm(whole, axis=0)
            for ours, whole in ((apart, image), (operator.in_units(apart), operator.in_units(image)))
        ]
    return np.asarray(np.nan_to_num(np.maximum(*sizes), nan=0.0, posinf=np.inf))


def _independent(vectors: Array) -> Array:
    """Return an orthonormal basis of vectors of about unit length."""
    basis, sizes, _ = np.linalg.svd(vectors, full_matrices=False)
    return np.asarray(basis[:, sizes > _NOTHING_NEW])


class SingularError(InputError):
    """The background is numerically singular for a reason other than constant features."""

    def __init__(self) -> None:
        super().__init__(
            "the background covariance is singular or too ill-conditioned for the matrix-free solver, and not only "
            "through constant features (the condition number of the rows is above about 1e7). Use `shrinkage='oas'`, "
            "or `solver='gsvd'`, which keeps twice the digits, where the memory allows."
        )
