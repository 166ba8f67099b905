"""BLAS and LAPACK calls of the hot loops, their number of threads, and the memory budget.

The numpy and scipy wheels each ship an OpenBLAS with a separate thread pool. Two pools that are used alternately in
one loop compete for the cores, and threads slow small problems down. Hot loops therefore call only scipy's BLAS, and
small problems run on one thread. The memory budget limits matrices of size features × features.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from standout.errors import InputError

# Below this many multiply-adds a second thread costs more than it saves.
SMALL_WORK = 2e8
# Up to this size, a second thread saves a factorisation or an eigenproblem milliseconds at most, and costs up to a
# second if another program uses one of the cores: the threads wait for each other at every step.
_SMALL_MATRIX = 1000
# Beyond this condition number covariances give fewer than seven digits.
WORST_CONDITION = 1e12
_EPS = float(np.finfo(float).eps)

Array = NDArray[np.float64]


# Limits of the memory budget in bytes; the upper one keeps a dense eigenproblem within minutes.
_LEAST, _MOST = 10**9, 8 * 10**9


def default_budget() -> int:
    """Return the default memory budget for covariances: a quarter of the memory of the machine, within limits.

    The total memory counts, not the free memory, so that the same data always use the same solver.
    """
    return int(min(max(physical_memory() / 4, _LEAST), _MOST))


@cache
def physical_memory() -> int:
    """Return the physical memory of this machine in bytes; 0 if unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


@cache
def _setters() -> list[Any]:
    """Return the functions that set the number of threads of each BLAS library."""
    # Recent versions of threadpoolctl let only one thread set limits, for which _OneThread has its own lock.
    libraries = _controller().lib_controllers
    return [getattr(library, "_real_set_num_threads", library.set_num_threads) for library in libraries]


class _OneThread:
    """Context manager that keeps BLAS on one thread; the first entry sets the limit, the last exit lifts it.

    Equivalent to the limit of threadpoolctl, without the overhead that would slow down a small fit, and
    safe if several threads fit concurrently.
    """

    lock = threading.Lock()
    inside = 0
    before: ClassVar[list[int]] = []

    def __enter__(self) -> None:
        with self.lock:
            if _OneThread.inside == 0:
                _OneThread.before = [library.num_threads for library in _controller().lib_controllers]
                for set_threads in _setters():
                    set_threads(1)
            _OneThread.inside += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            _OneThread.inside -= 1
            if _OneThread.inside == 0:
                for set_threads, count in zip(_setters(), self.before, strict=True):
                    set_threads(count)


def threads_for(work: float) -> AbstractContextManager[None]:
    """Return a context manager that keeps BLAS on one thread if ``work`` (multiply-adds) is small."""
    return _OneThread() if work < SMALL_WORK else nullcontext()


def solver_threads(size: int) -> AbstractContextManager[None]:
    """Return a context manager that keeps BLAS on one thread for LAPACK routines on a matrix of this size."""
    return _OneThread() if size <= _SMALL_MATRIX else nullcontext()


def blas_threads() -> int:
    """Return the current number of BLAS threads."""
    with _OneThread.lock:
        now = _OneThread.before if _OneThread.inside else [lib.num_threads for lib in _controller().lib_controllers]
    return max(now, default=1)


def add_scatter(total: Array, rows: Array) -> Array:
    """Add ``rows.T @ rows`` to the lower triangle of ``total`` (F-ordered) in place."""
    if rows.flags.c_contiguous:
        result = blas.dsyrk(1.0, rows.T, beta=1.0, c=total, lower=1, overwrite_c=1)
    else:
        result = blas.dsyrk(1.0, rows, beta=1.0, c=total, trans=1, lower=1, overwrite_c=1)
    return _same(total, result)


def add_outer(total: Array, vector: Array, factor: float) -> Array:
    """Add ``factor * outer(vector, vector)`` to the lower triangle of ``total`` in place."""
    return _same(total, blas.dsyr(factor, vector, a=total, lower=1, overwrite_a=1))


def _same(total: Array, result: Array) -> Array:
    # f2py works in place only on an F-ordered float64 array; any other array would be copied silently.
    if result is not total and not np.shares_memory(result, total):
        total[...] = result
    return total


def times(matrix: Array, vectors: Array) -> Array:
    """Return ``matrix @ vectors`` for a symmetric matrix, with the BLAS that the solvers use."""
    return np.asarray(blas.dsymm(1.0, matrix, vectors, lower=1))


def product(left: Array, right: Array) -> Array:
    """Return ``left @ right`` with the BLAS that the solvers use, without copying C- or F-ordered matrices."""
    plain = [matrix.flags.f_contiguous for matrix in (left, right)]
    sides = [matrix if is_plain else matrix.T for matrix, is_plain in zip((left, right), plain, strict=True)]
    return np.asarray(blas.dgemm(1.0, *sides, trans_a=not plain[0], trans_b=not plain[1]))


def mirror(lower: Array, step: int = 256) -> Array:
    """Fill the upper triangle, which must be zero, from the lower one, in place and in small blocks."""
    size = len(lower)
    for start in range(0, size, step):
        stop = min(start + step, size)
        corner = lower[start:stop, start:stop]
        diagonal = corner.diagonal().copy()
        corner += corner.T
        np.einsum("ii->i", corner)[...] = diagonal
        lower[start:stop, stop:] = lower[stop:, start:stop].T
    return lower


def regular_factor(matrix: Array) -> Array:
    """Return the lower Cholesky factor of a regularised matrix, which it overwrites; raise an error if singular."""
    factor: Array
    with solver_threads(len(matrix)):
        factor, info = lapack.dpotrf(matrix, lower=1, overwrite_a=1)
    if info != 0:
        raise InputError(
            "the background covariance is singular to working precision, with this little shrinkage. Use "
            "`shrinkage='oas'`, or more of it."
        )
    return factor


def cholesky(matrix: Array) -> tuple[Array, float] | None:
    """Return the lower Cholesky factor of a symmetric matrix and its reciprocal condition number (1-norm).

    Return None if the matrix is not numerically positive definite.
    """
    with solver_threads(len(matrix)):
        factor, info = lapack.dpotrf(matrix, lower=1)
        if info != 0:
            return None
        reciprocal, _ = lapack.dpocon(factor, lapack.dlange("1", matrix), uplo="L")
    return factor, float(reciprocal)


def top_eigen(matrix: Array, count: int, vectors: bool = True) -> tuple[Array, Array]:
    """Return the ``count`` largest eigenvalues (descending) and vectors of a symmetric matrix."""
    size = len(matrix)
    if count < size or not vectors:
        with solver_threads(size):
            values, basis, found, _, info = lapack.dsyevr(
                matrix, compute_v=int(vectors), range="I", il=size - count + 1, iu=size, lower=1
            )
        if info == 0 and found == count and (not vectors or np.vdot(basis.T, basis.T) > count - 0.5):
            return values[:count][::-1], basis[:, :count][:, ::-1]
    # Either all eigenvalues are wanted, and divide and conquer is several times faster; or some are so close together
    # (a target equal to the background) that bisection failed, or silently lost one.
    with solver_threads(size):
        values, basis, info = lapack.dsyevd(matrix, lower=1)
    if info != 0:  # pragma: no cover - LAPACK fails only on non-finite input
        raise np.linalg.LinAlgError(f"the symmetric eigensolver did not converge (info={info})")
    return values[::-1][:count], basis[:, ::-1][:, :count]


def n_above(matrix: Array, threshold: float) -> int:
    """Return how many eigenvalues of a symmetric matrix are larger than a threshold.

    By Sylvester's law of inertia this is the number of positive pivots of ``matrix − threshold I``, which cost a tenth
    of the eigenvalues.
    """
    shifted = np.array(matrix, order="F")
    np.einsum("ii->i", shifted)[...] -= threshold
    with solver_threads(len(shifted)):
        factor, pivots, _ = lapack.dsytrf(shifted, lower=1, lwork=64 * len(shifted), overwrite_a=1)
    # 2 × 2 pivots have one positive and one negative eigenvalue, and are marked in both rows.
    single = pivots > 0
    return int((np.diagonal(factor)[single] > 0).sum() + (~single).sum() // 2)


def rank_tolerance(size: int) -> float:
    """Return the relative eigenvalue below which a covariance direction is rounding error."""
    return max(1e-14, size * _EPS)


def above_rounding(values: Array) -> NDArray[np.bool_]:
    """Return which eigenvalues of a covariance, all of them and the largest first, are not only rounding error."""
    return np.asarray(values > rank_tolerance(len(values)) * values[:1])


def constant_features(variance: Array, mean: Array) -> NDArray[np.bool_]:
    """Return the features whose variance is at most the rounding error of values of this mean."""
    return np.asarray(np.sqrt(variance) <= 10 * _EPS * np.abs(mean))


def symmetric(matrix: Array) -> Array:
    """Return a matrix without the asymmetry that rounding leaves in a product."""
    return (matrix + matrix.T) / 2


def squared_norm(matrix: Array) -> float:
    """Return the sum of squares; for a symmetric matrix M this is tr M²."""
    return float(np.einsum("ij,ij->", matrix, matrix))


def weighted_sum(rows: Array, weights: Array | None) -> Array:
    """Return the sum of rows, each times its weight if there are weights."""
    return np.asarray(rows.sum(axis=0) if weights is None else weights @ rows)
