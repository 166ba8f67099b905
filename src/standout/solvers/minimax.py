"""Minimax mixture of several backgrounds (``mix="minimax"``): shares ω that minimise the largest ratio.

min over ω of λ_max(C_xx, Σ ωₖCₖ) is convex. With ν = λω it is a linear program with a matrix constraint,
minimise Σ νₖ subject to Σ νₖCₖ ⪰ C_xx, and every direction u gives one linear cut
Σ νₖ uᵀCₖu ≥ uᵀC_xxu. Cuts are added at the top eigenvectors until the linear program and the
eigenvalue agree: the first is a lower bound, the second an upper bound.

The shares are computed from the moments of the backgrounds. Shrinking the mixture toward its diagonal by a fixed ρ
is the same as shrinking every background toward its diagonal, so the shrunk problem is also linear in the shares
and the solution is minimax for the problem that is solved. ρ is that of the pooled backgrounds. No shared factors
are kept here: they would depend on the units, which change with the shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from standout._blas import Array, above_rounding, cholesky, squared_norm, top_eigen
from standout._dataset import Dataset, Mixture
from standout._shrinkage import Shrinkage, intensity
from standout.errors import InputError, NotEnoughRowsError
from standout.solvers import dense
from standout.solvers.problem import CovariancePair, Problem, SolveOptions, scaled

# Relative gap between the bounds at convergence, and the largest number of linear programs.
_GAP = 1e-9
_STEPS = 200
# Number of eigenvectors that give cuts in each step: with nearly equal top ratios, a single cut would oscillate.
_CUTS = 4
# Beyond this many features the covariances of several backgrounds are too large to hold.
_MOST_FEATURES = 10_000


def minimax_mixture(
    target: Dataset, backgrounds: Sequence[Dataset], options: SolveOptions
) -> tuple[Array, Shrinkage | None]:
    """Return the shares that minimise the largest ratio, and the shrinkage of the pooled backgrounds they are for."""
    for name, clash in (("`centering='background'`", not options.own_centre), ("a graph", options.graph is not None)):
        if clash:
            raise InputError(
                f"`mix='minimax'` cannot be combined with {name}: the problem is no longer linear in the shares. Give "
                "the shares as `mix`."
            )
    if target.n_features > _MOST_FEATURES:
        raise InputError(
            f"`mix='minimax'` works on matrices of features × features, and {target.n_features} are more than "
            f"{_MOST_FEATURES}. Choose fewer features, or give the shares as `mix`."
        )
    if len(backgrounds) == 1:
        return np.ones(1), None
    pooled = Mixture.of([data.counts for data in backgrounds], "pooled")
    problem = Problem(target, backgrounds, pooled, options)
    pair = CovariancePair.of(problem)
    asked = "diagonal" if options.shrinkage == "auto" else options.shrinkage
    evidence = problem.evidence(pair.rank, pair.n_varying, lambda: squared_norm(pair.background))
    shrinkage = Shrinkage(intensity(asked, evidence))
    constant = np.isin(pair.frame.alive, pair.constant)
    shrunk = []
    for data in backgrounds:
        covariance = scaled(data.moments.covariance(), pair.frame)
        # A feature that is constant in every background is scaled by the target's sd, which is one here.
        diagonal = np.where(constant, 1.0, np.diagonal(covariance))
        shrunk.append(replace(shrinkage, psi=diagonal).of(covariance))
    shares = minimax_shares(*_in_joint_range(pair.target, shrunk))[0]
    if options.intensity is not None:
        shrinkage = replace(shrinkage, rho=options.intensity)
    return shares, shrinkage


def _in_joint_range(target: Array, backgrounds: list[Array]) -> tuple[Array, list[Array]]:
    """Drop directions in which nothing varies (a duplicated feature); raise an error for infinite ratios."""
    values, basis = top_eigen(np.asarray(sum(backgrounds)) / len(backgrounds), len(target))
    varies = above_rounding(values)
    if varies.all():
        return target, backgrounds
    left, kept = basis[:, ~varies], basis[:, varies]
    if np.trace(left.T @ target @ left) > 1e-9 * np.trace(target):
        raise InputError(
            "`mix='minimax'`: in some direction the target varies and no background does, so the largest ratio is "
            "infinite whatever the shares. Leave such features out, or use `shrinkage='oas'`."
        )
    return kept.T @ target @ kept, [kept.T @ part @ kept for part in backgrounds]


def minimax_shares(target: Array, backgrounds: Sequence[Array]) -> tuple[Array, float, float]:
    """Return the shares that minimise the largest ratio, that ratio, and a bound on its relative excess.

    The covariances have shape (d, d), and the sum of those of the backgrounds must be positive definite.
    """
    from scipy.optimize import linprog

    count = len(backgrounds)
    shares = best = np.full(count, 1 / count)
    lower, upper = 0.0, np.inf
    sizes: list[Array] = []
    bounds: list[float] = []
    for _ in range(_STEPS):
        ratios, vectors = _top(target, backgrounds, shares)
        if ratios[0] < upper:
            best, upper = shares, float(ratios[0])
        if upper - lower <= _GAP * upper:
            break
        for vector in vectors.T:
            sizes.append(np.array([vector @ part @ vector for part in backgrounds]))
            bounds.append(float(vector @ target @ vector))
        scale = np.maximum(np.abs(sizes).max(axis=1), 1e-300)
        answer = linprog(
            np.ones(count),
            A_ub=-(np.array(sizes) / scale[:, None]),
            b_ub=-np.array(bounds) / scale,
            method="highs",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if answer.status != 0:  # pragma: no cover - cuts at eigenvectors always have a solution
            raise InputError(f"`mix='minimax'` did not converge ({answer.message}). Use `mix='pooled'` or 'equal'.")
        lower = max(lower, float(answer.x.sum()))
        # A damped step toward the solution of the linear program: pure cutting planes zigzag.
        shares = 0.9 * answer.x / answer.x.sum() + 0.1 * best
        shares = shares / shares.sum()
    return best, upper, (upper - lower) / upper


def _top(target: Array, backgrounds: Sequence[Array], shares: Array) -> tuple[Array, Array]:
    """Return the top ratios and vectors against a mixture; to a singular one add a little of all backgrounds."""
    for blend in (0.0, 1e-9, 1e-6, 1e-3):
        used = (1 - blend) * shares + blend / len(shares)
        factor = cholesky(np.einsum("k,kij->ij", used, np.asarray(backgrounds)))
        if factor is not None and factor[1] > 1e-14:
            return dense.top_pairs(target, factor[0], min(_CUTS, len(target)))
    raise NotEnoughRowsError(
        "`mix='minimax'` needs backgrounds that together vary in every direction, and these do not. Use "
        "`shrinkage='oas'`, or `mix='pooled'`."
    )
