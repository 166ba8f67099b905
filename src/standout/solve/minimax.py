"""Several backgrounds, the hardest mixture: shares ω that make the largest ratio as small as possible.

min over ω of λ_max(C_xx, Σ ωₖCₖ) is convex. With ν = λω it is a linear problem with a matrix constraint,
minimise Σ νₖ subject to Σ νₖCₖ ⪰ C_xx, and every direction u gives one linear cut
Σ νₖ uᵀCₖu ≥ uᵀC_xxu. Cuts are added at the top eigenvectors until the linear problem and the
eigenvalue agree: the first is a lower bound, the second an upper one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from standout.blas import Array, cholesky
from standout.errors import InputError, NotEnoughRowsError
from standout.solve import dense

_GAP = 1e-9
_STEPS = 200
# So many eigenvectors give cuts in each step: where top ratios meet, one alone would go back and forth.
_CUTS = 4


@dataclass(frozen=True)
class Minimax:
    """The shares, the largest ratio they leave, and how far that may be from the smallest possible."""

    shares: Array
    ratio: float
    gap: float


def minimax_shares(target: Array, backgrounds: Sequence[Array]) -> Minimax:
    """Return the shares of the backgrounds that leave the smallest largest ratio.

    Parameters
    ----------
    target : ndarray of shape (d, d)
        Target covariance.
    backgrounds : sequence of ndarray of shape (d, d)
        Background covariances, whose sum must be positive definite.

    Returns
    -------
    Minimax
    """
    from scipy.optimize import linprog

    count = len(backgrounds)
    best = Minimax(np.full(count, 1 / count), np.inf, np.inf)
    shares, lower = best.shares, 0.0
    sizes: list[Array] = []
    wanted: list[float] = []
    for _ in range(_STEPS):
        ratios, vectors = _top(target, backgrounds, shares)
        if ratios[0] < best.ratio:
            best = Minimax(shares, float(ratios[0]), 0.0)
        if best.ratio - lower <= _GAP * best.ratio:
            break
        for vector in vectors.T:
            sizes.append(np.array([vector @ part @ vector for part in backgrounds]))
            wanted.append(float(vector @ target @ vector))
        scale = np.maximum(np.abs(sizes).max(axis=1), 1e-300)
        answer = linprog(
            np.ones(count),
            A_ub=-(np.array(sizes) / scale[:, None]),
            b_ub=-np.array(wanted) / scale,
            method="highs",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if answer.status != 0:  # pragma: no cover - cuts at eigenvectors always have a solution
            raise InputError(f"mix='minimax' did not converge ({answer.message}). Use mix='pooled' or 'equal'.")
        lower = max(lower, float(answer.x.sum()))
        # A step toward the linear problem's answer, held back a little: pure cutting planes zigzag.
        shares = 0.9 * answer.x / answer.x.sum() + 0.1 * best.shares
        shares = shares / shares.sum()
    return Minimax(best.shares, best.ratio, (best.ratio - lower) / best.ratio)


def _top(target: Array, backgrounds: Sequence[Array], shares: Array) -> tuple[Array, Array]:
    """Return the top ratios and vectors against a mixture; a singular mixture gets a little of the others."""
    for blend in (0.0, 1e-9, 1e-6, 1e-3):
        used = (1 - blend) * shares + blend / len(shares)
        factor = cholesky(np.einsum("k,kij->ij", used, np.asarray(backgrounds)))
        if factor is not None and factor[1] > 1e-14:
            return dense.top_pairs(target, factor[0], min(_CUTS, len(target)))
    raise NotEnoughRowsError(
        "mix='minimax' needs backgrounds that vary in every direction together, and they do not. Use "
        "shrinkage='oas', or mix='pooled'."
    )
