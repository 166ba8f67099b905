"""Solver selection, and the steps shared by the covariance-based solvers.

====================================================  =================================================
input                                                  solver
====================================================  =================================================
rows available, more features than rows, shrunk        ``span`` (Gram matrix of the rows)
rows available, more features than rows, exact         ``gsvd``
rows available, D × D exceeds the memory budget        ``matrix_free`` (products with the rows)
well-conditioned background, few of many components    ``lanczos`` (from 600 features on)
well-conditioned background otherwise                  ``dense``
singular only because of constant features             ``dense`` (null space deflated)
ill-conditioned or singular, rows available            ``gsvd``
ill-conditioned or singular, moments only              ``dense`` (null space deflated), with a warning
====================================================  =================================================

The memory budget for matrices of features × features (or rows × rows, for ``span``) is a quarter of the
machine's memory, clipped to between 1 and 8 GB, or the budget a source was read with (``read(..., memory=)``)
if that is larger. "Well-conditioned" means a condition number of at most 1e12 after equilibration. A background
shrunk by more than 1e-6 is always well-conditioned.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from scipy.linalg import blas

from standout._blas import (
    WORST_CONDITION,
    Array,
    cholesky,
    rank_tolerance,
    regular_factor,
    solver_threads,
    squared_norm,
    threads_for,
    times,
)
from standout._dataset import Dataset, Mixture
from standout._shrinkage import Evidence, Shrinkage, covariance_search
from standout.errors import RowsNeededError
from standout.io.checkpoint import warn_unused
from standout.solvers import dense
from standout.solvers.gsvd import solve_from_factors, solve_from_rows
from standout.solvers.matrix_free import solve_matrix_free
from standout.solvers.minimax import minimax_mixture
from standout.solvers.problem import CovariancePair, Problem, SolveOptions, check_rows, measure, scaled, too_many
from standout.solvers.solution import (
    Eigenpairs,
    Solution,
    build_solution,
    condition_note,
    lost_note,
    shrinkage_notes,
    structural_notes,
)

# Shrinkage below this value does not improve the condition number of the background.
_NEGLIGIBLE = 1e-6
_NO_CHECKPOINT = (
    "there are more features than rows, or the solver works on rows, and such a fit reads the rows repeatedly instead "
    "of accumulating them once. Leave `checkpoint` out, or use `solver='dense'` if the memory suffices."
)


def solve(target: Dataset, backgrounds: Sequence[Dataset], options: SolveOptions) -> tuple[Solution, Mixture | None]:
    """Find the components of the target against the backgrounds; also return the mixture of backgrounds."""
    for data in (target, *backgrounds):
        if data.counts.rows < 2:
            check_rows(data.role, data.counts.rows)
    mixture, fixed_shrinkage, shares = None, None, options.mix
    if backgrounds:
        if isinstance(shares, str) and shares == "minimax":
            shares, fixed_shrinkage = minimax_mixture(target, backgrounds, options)
        mixture = Mixture.of([data.counts for data in backgrounds], shares, [data.role for data in backgrounds])
    problem = Problem(target, backgrounds, mixture, options, fixed_shrinkage)
    solver = _chosen(problem)
    if solver not in ("span", "matrix_free"):
        return _solve_covariances(problem), mixture
    for data in (target, *backgrounds):
        warn_unused(data.source, data.role, _NO_CHECKPOINT)
    if solver == "matrix_free":
        return solve_matrix_free(problem), mixture
    # With more features than rows the cost depends on the number of rows, so it is less than the caller assumes.
    with threads_for(problem.n_rows**2 * (target.n_features + 10.0 * problem.n_rows)):
        return solve_from_rows(problem), mixture


def _chosen(problem: Problem) -> str:
    """Return the requested solver; for "auto", a solver that forms no covariances if these would be too large."""
    solver = problem.options.solver
    if solver in ("gsvd", "span", "matrix_free") and not problem.has_rows:
        raise RowsNeededError(
            f"`solver={solver!r}` works on the rows, and moments (or rows that can be read only once) "
            "were given. Give the rows, or use `solver='auto'`."
        )
    if solver == "auto" and problem.has_rows and not problem.has_penalty:
        n_features, budget = problem.target.n_features, problem.memory_budget
        # Matrices of features × features: one per dataset, two scaled, one shrunk, one factor.
        too_large = (5 + len(problem.backgrounds)) * 8 * n_features**2 > budget
        if n_features > problem.n_rows and not (too_large and 3 * 8 * problem.n_rows**2 > budget):
            return "span"
        if too_large:
            return "matrix_free"
    return solver


def _solve_covariances(problem: Problem) -> Solution:
    """Solve from covariances, with a dense or Lanczos eigensolver (the default path)."""
    if problem.mixture is None:
        return _principal(problem)
    pair = CovariancePair.of(problem)
    solver, threads = problem.options.solver, solver_threads(len(pair.target))
    if solver == "gsvd":
        return solve_from_factors(problem, pair.frame, pair.constant)
    with threads:
        evidence = problem.evidence(pair.rank, pair.n_varying, lambda: squared_norm(pair.background))
        search = partial(covariance_search, pair.target, pair.background)
        shrinkage = problem.background_estimate(evidence, search, problem.n_rows, pair.structural)
        exact = shrinkage.rho < _NEGLIGIBLE and not problem.has_penalty
        may_read = problem.has_rows and solver == "auto"
        by_rows = exact and may_read and not pair.well_conditioned and not _only_constant(pair)
    if by_rows:
        return solve_from_factors(problem, pair.frame, pair.constant)
    with threads:
        if exact and shrinkage.rho == 0:
            return _exact(problem, pair) if pair.factor is not None else _singular(problem, pair)
        return _regular(problem, pair, evidence, shrinkage)


def _only_constant(pair: CovariancePair) -> bool:
    """Return whether the background is singular only because of constant features, so that its rank is certain."""
    if not pair.constant:
        return False
    inner = np.searchsorted(pair.frame.alive, np.setdiff1d(pair.frame.alive, pair.constant))
    factor = cholesky(pair.background[np.ix_(inner, inner)])
    return factor is not None and factor[1] >= 1 / WORST_CONDITION


def _principal(problem: Problem) -> Solution:
    """Solve without a background: PCA, with the identity as background covariance."""
    moments = problem.target.moments
    frame, _ = measure(moments.variance(), None)
    covariance = scaled(moments.covariance(), frame)
    size = len(covariance)
    shown, kept = problem.how_many(size)
    ratios, vectors, solver = dense.best_pairs(covariance, None, kept, *problem.eigensolver)
    rank = int((ratios > rank_tolerance(size) * ratios[0]).sum())
    if not isinstance(problem.options.n_components, int):
        shown = kept = rank
    elif rank == kept:
        rank = min(size, problem.target_dimensions)  # at least as many as were computed; the others may be zero
    if rank < kept:
        raise too_many(kept, rank, problem)
    eigen = Eigenpairs(ratios, vectors, vectors * ratios, vectors)
    return build_solution(problem, eigen, frame, rank, solver, (shown, kept))


def _exact(problem: Problem, pair: CovariancePair) -> Solution:
    """Solve the paper's problem without shrinkage, for enough rows and a nonsingular background."""
    assert pair.factor is not None
    factor, reciprocal = pair.factor
    plain = _unshrunk(problem, pair) if problem.needs_all_ratios else None
    count = problem.how_many(pair.rank, plain)
    ratios, vectors, solver = dense.best_pairs(pair.target, factor, max(count[1], 1), *problem.eigensolver)
    eigen = Eigenpairs(ratios, vectors, times(pair.target, vectors), times(pair.background, vectors))
    notes = () if pair.well_conditioned else (condition_note(reciprocal),)
    plain = ratios if plain is None else plain
    return build_solution(problem, eigen, pair.frame, pair.rank, solver, count, plain=plain, notes=notes)


def _singular(problem: Problem, pair: CovariancePair) -> Solution:
    """Solve the exact problem with a singular background, from the covariances."""
    eigen, clear = dense.solve(pair.target, pair.background)
    plain, rank = eigen.ratios, len(eigen.ratios)
    notes = [] if clear else [condition_note(0.0)]
    notes += structural_notes(problem, eigen, pair.frame, pair.constant)
    if clear and rank < len(pair.target):
        notes.append(lost_note(problem, len(pair.target) - rank))
    count = problem.how_many(rank, plain)
    return build_solution(problem, eigen, pair.frame, rank, "dense", count, plain=plain, notes=notes)


def _regular(problem: Problem, pair: CovariancePair, evidence: Evidence, shrinkage: Shrinkage) -> Solution:
    """Solve against the regularised background: shrunk, with a graph penalty, or both."""
    plain = _unshrunk(problem, pair) if problem.has_edge(pair.rank) else None
    count = problem.how_many(pair.rank, plain)
    background = shrinkage.of(pair.background)
    if problem.has_penalty:
        alive = pair.frame.alive
        background += problem.options.smoothness * problem.options.graph[alive][:, alive].toarray()
    factor = regular_factor(background)
    ratios, vectors, solver = dense.best_pairs(pair.target, factor, max(count[1], 1), *problem.eigensolver)
    image = blas.dtrmm(1.0, factor, blas.dtrmm(1.0, factor, vectors, lower=1, trans_a=1), lower=1)
    eigen = Eigenpairs(ratios, vectors, times(pair.target, vectors), image)
    with np.errstate(divide="ignore"):
        own = ratios / np.einsum("jk,jk->k", vectors, times(pair.background, vectors))
    notes = shrinkage_notes(problem, evidence, shrinkage)
    if shrinkage.rho < _NEGLIGIBLE and not problem.has_penalty and not pair.well_conditioned:
        notes.append(condition_note(pair.factor[1] if pair.factor is not None else 0.0))
    return build_solution(
        problem, eigen, pair.frame, pair.rank, solver, count, shrinkage=shrinkage, plain=plain, notes=notes, own=own
    )


def _unshrunk(problem: Problem, pair: CovariancePair) -> Array:
    """Return ratios of the unshrunk problem, as many as the significance tests need."""
    if pair.factor is None:
        return dense.solve(pair.target, pair.background)[0].ratios
    wanted = problem.options.n_components
    some = isinstance(wanted, int) and not problem.needs_all_ratios
    count = min(int(wanted or 0), len(pair.target)) if some else len(pair.target)
    return dense.best_pairs(pair.target, pair.factor[0], count, *problem.eigensolver, vectors=False)[0]
