"""Solvers for covariance matrices: dense, Lanczos, and dense with a singular background.

The dense solver uses a Cholesky factor of the background and a symmetric eigenproblem (the paper's (4)). It works
in equilibrated coordinates, where the error is ε·cond(background) and does not depend on the features' units.

The Lanczos solver computes a few top components of many features (the paper's Remark 3). The whitened target
L⁻¹ A L⁻ᵀ is applied to vectors and never formed, which saves most of the work if only a few components are wanted.

For a singular background, the null space is deflated. Directions in the null space in which the target varies have
an infinite ratio; those in which neither varies (for example from a duplicated feature) are dropped. The finite
ratios are those of the Schur complement on the background's range.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import blas, eigh_tridiagonal, lapack

from standout._blas import (
    WORST_CONDITION,
    Array,
    above_rounding,
    product,
    rank_tolerance,
    solver_threads,
    symmetric,
    top_eigen,
)
from standout.solvers.solution import Eigenpairs

# Up to this size two triangular solves are faster than LAPACK's reduction, although it needs half the operations.
_SMALL = 128
# Lanczos is faster from this many features on, if few components are wanted.
FROM_FEATURES = 600
_TOLERANCE = 1e-12
# The error of an eigenvalue is the square of that of its vector: without vectors half the digits suffice.
_VALUES_TOLERANCE = 1e-7
# Steps between checks for convergence, and the largest number of steps: so many, or one per this many features. More
# would take longer than the dense solver.
_CHECKED = 8
_LEAST_STEPS = 300
_FEATURES_PER_STEP = 4
# A Krylov space is exhausted if the next vector is this small: only rounding errors are left.
_EXHAUSTED = 1e-13
_EPS = float(np.finfo(float).eps)


def top_pairs(target: Array, factor: Array | None, count: int, vectors: bool = True) -> tuple[Array, Array]:
    """Return the ``count`` largest ratios and their vectors of shape (d, count), with unit background variance.

    ``factor`` is the lower Cholesky factor L of the background covariance; None is the identity.
    """
    whitened = target  # L⁻¹ A L⁻ᵀ: the target in coordinates that whiten the background
    if factor is not None and len(target) <= _SMALL:
        half = blas.dtrsm(1.0, factor, target, lower=1)
        whitened = blas.dtrsm(1.0, factor, half, side=1, lower=1, trans_a=1, overwrite_b=1)
    elif factor is not None:
        whitened, _ = lapack.dsygst(target, factor, itype=1, lower=1)
    values, basis = top_eigen(whitened, count, vectors)
    if factor is not None and vectors:
        basis, _ = lapack.dtrtrs(factor, basis, lower=1, trans=1)
    return values.clip(min=0.0), basis


def best_pairs(
    target: Array, factor: Array | None, count: int, solver: str = "auto", seed: int = 0, vectors: bool = True
) -> tuple[Array, Array, str]:
    """Return the largest ratios, their vectors, and the solver: that requested, or for "auto" the faster one."""
    with solver_threads(len(target)):
        if count < len(target) and (solver == "lanczos" or (solver == "auto" and pays_off(len(target), count))):
            found = lanczos_pairs(target, factor, count, seed, vectors)
            if found is not None:
                return *found, "lanczos"
        return *top_pairs(target, factor, count, vectors), "dense"


def pays_off(n_features: int, count: int) -> bool:
    """Return whether Lanczos is faster than the dense solver for ``count`` of ``n_features`` components."""
    return n_features >= FROM_FEATURES and count <= n_features // 100


def lanczos_pairs(
    target: Array, factor: Array | None, count: int, seed: int = 0, vectors: bool = True
) -> tuple[Array, Array] | None:
    """Return the largest ratios and vectors as the dense solver does; None if the iteration did not converge.

    The Krylov space is not restarted: storing and orthogonalising its vectors costs little compared with products, and
    a restarted iteration (ARPACK's) needs up to twice as many products.
    """
    size = len(target)
    if not target.flags.f_contiguous:
        target = target.T if target.flags.c_contiguous else np.asfortranarray(target)  # avoids copies in BLAS calls

    def whitened(vector: Array) -> Array:
        if factor is None:
            return np.asarray(blas.dsymv(1.0, target, vector, lower=1))
        back = blas.dtrsv(factor, vector, lower=1, trans=1)
        return np.asarray(blas.dtrsv(factor, blas.dsymv(1.0, target, back, lower=1), lower=1))

    most = min(size, max(_LEAST_STEPS, size // _FEATURES_PER_STEP))
    tolerance = _TOLERANCE if vectors else _VALUES_TOLERANCE
    rng = np.random.default_rng(seed)
    space = np.empty((size, most), order="F")
    diagonal, off_diagonal = np.empty(most), np.empty(most)  # of the target on the space, which is tridiagonal
    fresh = rng.normal(size=size)
    for step in range(1, most + 1):
        space[:, step - 1] = fresh / blas.dnrm2(fresh)
        known = space[:, :step]
        fresh, along = _apart(known, whitened(known[:, -1]))
        diagonal[step - 1], off_diagonal[step - 1] = along[-1], blas.dnrm2(fresh)
        if step > count and (step % _CHECKED == 0 or step == most):
            values, inside = eigh_tridiagonal(
                diagonal[:step], off_diagonal[: step - 1], select="i", select_range=(step - count, step - 1)
            )
            residuals = off_diagonal[step - 1] * np.abs(inside[-1])
            if (residuals <= np.maximum(tolerance * np.abs(values), _EPS * np.abs(values).max())).all():
                break
        if off_diagonal[step - 1] <= _EXHAUSTED * np.abs(diagonal[:step]).max():
            # The space is invariant. Equal eigenvalues have vectors outside it: continue from a random vector.
            fresh, off_diagonal[step - 1] = _apart(known, rng.normal(size=size))[0], 0.0
    else:
        return None
    values = values[::-1].clip(min=0.0)
    if not vectors:
        return values, np.empty((size, 0))
    basis = product(known, np.asfortranarray(inside[:, ::-1]))
    if factor is not None:
        basis, _ = lapack.dtrtrs(factor, basis, lower=1, trans=1)
    return values, basis


def _apart(basis: Array, vector: Array) -> tuple[Array, Array]:
    """Return the part of a vector that is orthogonal to a basis, and its coefficients along the basis."""
    along = np.zeros(basis.shape[1])
    for _ in range(2):  # a single pass does not give orthogonality to rounding
        inner = blas.dgemv(1.0, basis, vector, trans=1)
        vector = blas.dgemv(-1.0, basis, inner, beta=1.0, y=vector)
        along += inner
    return vector, along


def solve(target: Array, background: Array) -> tuple[Eigenpairs, bool]:
    """Solve ``A v = λ B v`` for a singular B: all pairs within the joint range, infinite ratios first.

    Also return whether the null space of B was clearly separated from its range.
    """
    size = len(background)
    values, basis = top_eigen(background, size)
    noise = rank_tolerance(size)
    n_range = int(above_rounding(values).sum())
    clear = n_range == 0 or bool(values[n_range - 1] > max(1 / WORST_CONDITION, 100 * noise) * values[0])
    inside = basis[:, :n_range] / np.sqrt(values[:n_range])
    infinite, coupling = _null_space(target, basis[:, n_range:])
    # Schur complement: the target covariance on the range, minus the part explained by the null space.
    image = target @ inside
    explained = coupling.T @ image
    ratios, turn = top_eigen(symmetric(inside.T @ image - explained.T @ explained), n_range)
    finite = inside @ turn - coupling @ (explained @ turn)
    vectors = np.hstack([infinite, finite])
    q = infinite.shape[1]
    eigen = Eigenpairs(
        ratios=np.concatenate([np.full(q, np.inf), ratios.clip(min=0.0)]),
        vectors=vectors,
        target_image=target @ vectors,
        background_image=background @ vectors,
        n_infinite=q,
    )
    return eigen, clear


def joint_rank(target: Array, background: Array) -> int:
    """Return the number of dimensions in which target or background varies."""
    balance = np.trace(background) / np.trace(target)
    values, _ = top_eigen(balance * target + background, len(target), vectors=False)
    return int(above_rounding(values).sum())


def _null_space(target: Array, null: Array) -> tuple[Array, Array]:
    """Return the null directions in which the target varies: orthonormal, and scaled to unit target variance."""
    if null.shape[1] == 0:
        return null, null
    inner = symmetric(null.T @ target @ null)
    values, axes = top_eigen(inner, len(inner))
    varies = values > rank_tolerance(len(target)) * np.trace(target)
    infinite = null @ axes[:, varies]
    return infinite, infinite / np.sqrt(values[varies])
