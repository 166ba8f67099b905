"""The dense solver: Cholesky of the background, then a symmetric eigenproblem (the paper's (4)).

Works in equilibrated coordinates, where the error is ε·cond(background) and does not depend on
the features' units.
"""

from __future__ import annotations

from scipy.linalg import blas, lapack

from standout.blas import Array, top_eigen

# Up to this size two triangular solves are faster than LAPACK's reduction, which has half the work.
_SMALL = 128


def top_pairs(target: Array, factor: Array | None, count: int) -> tuple[Array, Array]:
    """Return the largest ratios and their vectors, background variance one.

    Parameters
    ----------
    target : ndarray of shape (d, d)
        Target covariance.
    factor : ndarray of shape (d, d) or None
        Lower Cholesky factor L of the background covariance; None for the identity.
    count : int
        How many.

    Returns
    -------
    ratios : ndarray of shape (count,)
    vectors : ndarray of shape (d, count)
    """
    values, basis = top_eigen(_whitened(target, factor), count)
    return values.clip(min=0.0), _unwhitened(basis, factor)


def top_ratios(target: Array, factor: Array | None, count: int) -> Array:
    """Return the largest ratios alone."""
    values, _ = top_eigen(_whitened(target, factor), count, vectors=False)
    return values.clip(min=0.0)


def _whitened(target: Array, factor: Array | None) -> Array:
    """Return the target covariance in coordinates where the background is white: L⁻¹ A L⁻ᵀ."""
    if factor is None:
        return target
    whitened: Array
    if len(target) <= _SMALL:
        half = blas.dtrsm(1.0, factor, target, lower=1)
        whitened = blas.dtrsm(1.0, factor, half, side=1, lower=1, trans_a=1, overwrite_b=1)
        return whitened
    whitened, _ = lapack.dsygst(target, factor, itype=1, lower=1)
    return whitened


def _unwhitened(basis: Array, factor: Array | None) -> Array:
    if factor is None:
        return basis
    vectors: Array
    vectors, _ = lapack.dtrtrs(factor, basis, lower=1, trans=1)
    return vectors
