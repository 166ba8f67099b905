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
from dataclasses import replace

import numpy as np

from standout._blas import WORST_CONDITION, Array, cholesky, rank_tolerance, regular_factor, threads_for, times
from standout._dataset import Dataset, Mixture
from standout._shrinkage import Evidence, Shrinkage, factor_shrinkage, few_rows
from standout.errors import RowsNeededError
from standout.io.checkpoint import warn_unused
from standout.solvers import dense
from standout.solvers.gsvd import solve_from_factors, solve_from_rows
from standout.solvers.matrix_free import solve_matrix_free
from standout.solvers.minimax import minimax_mixture
from standout.solvers.problem import Count, CovariancePair, Problem, SolveOptions, check_rows, how_many, too_many
from standout.solvers.solution import (
    Eigenpairs,
    Solution,
    build_solution,
    components,
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


def solve(target: Dataset, backgrounds: Sequence[Dataset], wanted: SolveOptions) -> tuple[Solution, Mixture | None]:
    """Find the components of the target against the backgrounds; also return the mixture of backgrounds."""
    for data in (target, *backgrounds):
        if data.counts.rows < 2:
            check_rows(data.role, data.counts.rows)
    mixture, settled = None, None
    if backgrounds:
        shares = wanted.mix
        if isinstance(shares, str) and shares == "minimax":
            found = minimax_mixture(target, backgrounds, wanted)
            shares, settled = found.shares, found.shrinkage
            if settled is not None and wanted.intensity is not None:
                settled = replace(settled, rho=wanted.intensity)
        mixture = Mixture.of([data.counts for data in backgrounds], shares, [data.role for data in backgrounds])
    task = Problem(target, backgrounds, mixture, wanted, settled)
    solver = _chosen(task)
    if solver not in ("span", "matrix_free"):
        return _solve_covariances(task), mixture
    for data in (target, *backgrounds):
        warn_unused(data.source, data.role, _NO_CHECKPOINT)
    if solver == "matrix_free":
        return solve_matrix_free(task), mixture
    # With more features than rows the cost depends on the number of rows, so it is less than the caller assumes.
    with threads_for(task.n_rows**2 * (target.n_features + 10.0 * task.n_rows)):
        return solve_from_rows(task), mixture


def _chosen(task: Problem) -> str:
    """Return the requested solver; for "auto", a solver that forms no covariances if these would be too large."""
    solver = task.wanted.solver
    if solver in ("gsvd", "span", "matrix_free") and not task.rows_at_hand:
        raise RowsNeededError(
            f"`solver={solver!r}` works on the rows, and moments (or rows that can be read only once) "
            "were given. Give the rows, or use `solver='auto'`."
        )
    if solver == "auto" and task.rows_at_hand and not task.smooths:
        too_large = task.covariance_bytes > (budget := task.memory_budget)
        if task.target.n_features > task.n_rows and not (too_large and 3 * 8 * task.n_rows**2 > budget):
            return "span"
        if too_large:
            return "matrix_free"
    return solver


def _solve_covariances(task: Problem) -> Solution:
    """Solve from covariances, with a dense or Lanczos eigensolver (the default path)."""
    target, *backgrounds = [data.moments for data in (task.target, *task.backgrounds)]
    pair = CovariancePair.of(target, backgrounds, task.mixture, task.wanted.own_centre)
    if task.mixture is None:
        return _principal(task, pair)
    evidence = pair.evidence(task.mixture)
    means = [part.mean for part in (target, *backgrounds)]
    if task.wanted.solver == "gsvd":
        return solve_from_factors(task, pair.frame, pair.constant, means)
    shrinkage = _shrinkage(task, pair, evidence)
    if shrinkage.rho < _NEGLIGIBLE and not task.smooths:
        if (
            task.rows_at_hand
            and task.wanted.solver == "auto"
            and not pair.well_conditioned
            and not _only_constant(pair)
        ):
            return solve_from_factors(task, pair.frame, pair.constant, means)
        if shrinkage.rho == 0:
            return _exact(task, pair) if pair.factor is not None else _singular(task, pair)
    return _regular(task, pair, evidence, shrinkage)


def _shrinkage(task: Problem, pair: CovariancePair, evidence: Evidence) -> Shrinkage:
    """Return the background estimate; no shrinkage if the background has enough rows but is singular."""
    if not task.finds_factors(evidence):
        return task.plain_shrinkage(evidence)
    if not few_rows(evidence) and task.wanted.intensity is None and pair.structural:
        return Shrinkage(0.0)
    assert pair.background is not None
    return task.kept(factor_shrinkage(pair.target, pair.background, evidence, task.target_dimensions, task.n_rows))


def _only_constant(pair: CovariancePair) -> bool:
    """Return whether the background is singular only because of constant features, so that its rank is certain."""
    if not pair.constant:
        return False
    assert pair.background is not None
    inner = np.searchsorted(pair.frame.alive, np.setdiff1d(pair.frame.alive, pair.constant))
    factor = cholesky(pair.background[np.ix_(inner, inner)])
    return factor is not None and factor[1] >= 1 / WORST_CONDITION


def _top(
    task: Problem, target: Array, factor: Array | None, count: int, vectors: bool = True
) -> tuple[Array, Array, str]:
    """Return the top eigenpairs and the name of the solver used (Lanczos or dense)."""
    solver = task.wanted.solver
    if solver == "lanczos" or (solver == "auto" and dense.pays_off(len(target), count)):
        found = dense.lanczos_pairs(target, factor, count, task.wanted.seed, vectors) if count < len(target) else None
        if found is not None:
            return *found, "lanczos"
    return *dense.top_pairs(target, factor, count, vectors), "dense"


def _principal(task: Problem, pair: CovariancePair) -> Solution:
    """Solve without a background: PCA, with the identity as background covariance."""
    size = len(pair.target)
    limit = min(size, task.target_dimensions)
    count = how_many(task, limit, None)
    ratios, vectors, solver = _top(task, pair.target, None, count.kept)
    rank = int((ratios > rank_tolerance(size) * ratios[0]).sum())
    if task.wanted.n_components is None:
        count = Count(rank, rank)
    elif rank == count.kept:
        rank = limit  # at least as many as were computed; the others may be zero
    if rank < count.kept:
        raise too_many(count.kept, rank, task)
    found = components(Eigenpairs(ratios, vectors, vectors * ratios, vectors), pair.frame, count.kept)
    return build_solution(task, found, pair.frame, rank, solver, count)


def _exact(task: Problem, pair: CovariancePair) -> Solution:
    """Solve the paper's problem without shrinkage, for enough rows and a nonsingular background."""
    assert pair.factor is not None and pair.background is not None
    factor, reciprocal = pair.factor
    plain = _unshrunk(task, pair) if task.judges_all else None
    count = how_many(task, min(pair.rank, task.target_dimensions), plain, pair.rank)
    ratios, vectors, solver = _top(task, pair.target, factor, max(count.kept, 1))
    eigen = Eigenpairs(ratios, vectors, times(pair.target, vectors), times(pair.background, vectors))
    notes = () if pair.well_conditioned else (condition_note(reciprocal),)
    plain = ratios if plain is None else plain
    found = components(eigen, pair.frame, count.kept)
    return build_solution(task, found, pair.frame, pair.rank, solver, count, plain=plain, notes=notes)


def _singular(task: Problem, pair: CovariancePair) -> Solution:
    """Solve the exact problem with a singular background, from the covariances."""
    assert pair.background is not None
    parts = dense.solve(pair.target, pair.background)
    eigen, plain = parts.eigen, parts.eigen.ratios
    notes = [] if parts.clear else [condition_note(0.0)]
    notes += structural_notes(task, eigen, pair.frame, pair.constant)
    if parts.clear and parts.rank < len(pair.target):
        notes.append(lost_note(task, len(pair.target) - parts.rank))
    count = how_many(task, min(parts.rank, task.target_dimensions), plain, parts.rank)
    found = components(eigen, pair.frame, count.kept)
    return build_solution(
        task, found, pair.frame, parts.rank, "dense", count,
        plain=plain, notes=notes, n_infinite=eigen.n_infinite,
    )  # fmt: skip


def _regular(task: Problem, pair: CovariancePair, evidence: Evidence, shrinkage: Shrinkage) -> Solution:
    """Solve against the regularised background: shrunk, with a graph penalty, or both."""
    assert pair.background is not None
    plain = _unshrunk(task, pair) if task.has_edge(pair.rank) else None
    count = how_many(task, min(pair.rank, task.target_dimensions), plain, pair.rank)
    background, rho = shrinkage.of(pair.background), shrinkage.rho
    if task.smooths:
        alive = pair.frame.alive
        background += task.wanted.smoothness * task.wanted.graph[alive][:, alive].toarray()
    ratios, vectors, solver = _top(task, pair.target, regular_factor(background), max(count.kept, 1))
    eigen = Eigenpairs(ratios, vectors, times(pair.target, vectors), times(background, vectors))
    found = components(eigen, pair.frame, count.kept)
    with np.errstate(divide="ignore"):
        own = ratios / np.einsum("jk,jk->k", vectors, times(pair.background, vectors))
    notes = shrinkage_notes(task, evidence, rho, shrinkage.n_factors) if rho > 0 else ()
    if rho < _NEGLIGIBLE and not task.smooths and not pair.well_conditioned:
        notes = (*notes, condition_note(pair.factor[1] if pair.factor is not None else 0.0))
    return build_solution(
        task, found, pair.frame, pair.rank, solver, count,
        rho=rho, n_factors=shrinkage.n_factors, plain=plain, notes=notes, own=own,
    )  # fmt: skip


def _unshrunk(task: Problem, pair: CovariancePair) -> Array:
    """Return ratios of the unshrunk problem, as many as the significance tests need."""
    assert pair.background is not None
    if pair.factor is None:
        return dense.solve(pair.target, pair.background).eigen.ratios
    wanted = task.wanted.n_components
    some = isinstance(wanted, int) and not task.judges_all
    count = min(int(wanted or 0), len(pair.target)) if some else len(pair.target)
    return _top(task, pair.target, pair.factor[0], count, vectors=False)[0]
