"""A background covariance that is singular: split its null space off, solve what is left.

Directions in the null space of the background in which the target varies have an infinite ratio;
those in which neither varies are nothing at all (a feature that stands twice). The finite ratios
are those of the Schur complement on the background's range.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from standout.blas import Array, rank_tolerance, top_eigen
from standout.solve.result import Eigen

# Beyond this condition number covariances no longer give seven digits.
WORST_CONDITION = 1e12


@dataclass(frozen=True)
class Split:
    """The eigenpairs, the joint rank, and whether the null space was clear to see."""

    eigen: Eigen
    rank: int
    clear: bool


def solve(target: Array, background: Array) -> Split:
    """Solve ``A v = λ B v`` for a singular B, all pairs, infinite ratios first."""
    size = len(background)
    values, basis = top_eigen(background, size)
    noise = rank_tolerance(size)
    n_range = int((values > noise * values[0]).sum())
    clear = n_range == 0 or bool(values[n_range - 1] > max(1 / WORST_CONDITION, 100 * noise) * values[0])
    inside = basis[:, :n_range] / np.sqrt(values[:n_range])
    infinite, coupling = _null_space(target, basis[:, n_range:])
    # Schur complement: what the target varies inside, less what the null space explains of it.
    image = target @ inside
    explained = coupling.T @ image
    ratios, turn = top_eigen(_symmetric(inside.T @ image - explained.T @ explained), n_range)
    finite = inside @ turn - coupling @ (explained @ turn)
    vectors = np.hstack([infinite, finite])
    q = infinite.shape[1]
    eigen = Eigen(
        ratios=np.concatenate([np.full(q, np.inf), ratios.clip(min=0.0)]),
        vectors=vectors,
        target_image=target @ vectors,
        background_image=background @ vectors,
        n_infinite=q,
    )
    return Split(eigen, rank=n_range + q, clear=clear)


def joint_rank(target: Array, background: Array) -> int:
    """Return the number of dimensions in which target or background vary."""
    size = len(target)
    balance = np.trace(background) / np.trace(target)
    values, _ = top_eigen(balance * target + background, size, vectors=False)
    return int((values > rank_tolerance(size) * values[0]).sum())


def _null_space(target: Array, null: Array) -> tuple[Array, Array]:
    """Return the null directions in which the target varies: orthonormal, and with target variance one."""
    if null.shape[1] == 0:
        return null, null
    inner = _symmetric(null.T @ target @ null)
    values, axes = top_eigen(inner, len(inner))
    varies = values > rank_tolerance(len(target)) * np.trace(target)
    infinite = null @ axes[:, varies]
    return infinite, infinite / np.sqrt(values[varies])


def _symmetric(matrix: Array) -> Array:
    return (matrix + matrix.T) / 2
