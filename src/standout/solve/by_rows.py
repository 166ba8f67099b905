"""Solving from the rows themselves: more features than rows, or too ill-conditioned for covariances."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from standout.blas import Array, rank_tolerance
from standout.shrinkage import GramShrinkage, Shrinkage, few_rows, own_share
from standout.solve import gsvd, span
from standout.solve.finish import solution
from standout.solve.notes import shrinkage_notes, structural_notes
from standout.solve.pair import check_varies, measure
from standout.solve.result import Frame, Note, Solution, components
from standout.solve.sparse_span import row_span
from standout.solve.task import Task, above_edge, how_many

_EPS = float(np.finfo(float).eps)


def by_rows(task: Task) -> Solution:
    """More features than rows: never form anything features × features."""
    rows = row_span(task.target, task.backgrounds, task.mixture, task.wanted.own_centre)
    columns = rows.columns
    if task.mixture is None:
        check_varies(columns.target_variance, "target")
        count = how_many(task, min(rows.rank, task.target_dimensions), None)
        found = components(span.solve(rows, GramShrinkage(0.0), count.kept), rows.frame, count.kept)
        return solution(task, found, rows.frame, rows.rank, "span", count, columns.means)
    frame, constant = measure(columns.target_variance, columns.background_variance)
    varying = int((columns.background_variance > 0).sum())
    evidence = task.evidence(rows.rank, varying, rows.correlation_trace_squared())
    if not task.finds_factors(evidence):
        shrinkage = GramShrinkage(task.plain_shrinkage(evidence).rho)
    elif own_share(task.n_rows, varying) > 0:
        # Features in units of their own residual variance would need another Gram matrix.
        return by_factors(task, frame, constant, columns.means)
    else:
        shrinkage = task.kept(span.gram_shrinkage(rows.gram, rows.leading, evidence, task.target_dimensions))
    if shrinkage.rho == 0 or task.has_edge(rows.rank):
        return by_factors(task, frame, constant, columns.means)
    count = how_many(task, min(rows.rank, task.target_dimensions), None)
    eigen = span.solve(rows, shrinkage, count.kept)
    if eigen.ratios[-1] <= rank_tolerance(rows.n_rows) * eigen.ratios[0]:
        # Directions in which the target does not vary are no combinations of its rows.
        return by_factors(task, frame, constant, columns.means)
    found = components(eigen, rows.frame, count.kept)
    notes = shrinkage_notes(task, evidence, shrinkage.rho, shrinkage.n_factors)
    return solution(
        task, found, frame, rows.rank, "span", count, columns.means,
        rho=shrinkage.rho, n_factors=shrinkage.n_factors, notes=notes,
    )  # fmt: skip


def by_factors(task: Task, frame: Frame, constant: tuple[int, ...], means: Sequence[Array]) -> Solution:
    """Solve from the rows themselves, by the generalized SVD."""
    assert task.mixture is not None
    data = (task.target, *task.backgrounds)
    factors = [gsvd.row_factor(part, frame, mean) for part, mean in zip(data, means, strict=True)]
    target = [factors[0]]
    if not task.wanted.own_centre:
        shift = means[0] - task.mixture.mixed_means(means[1:])
        target.append((shift / frame.scale)[None, frame.alive])
    shares = np.sqrt(task.mixture.shares)
    backgrounds = [share * factor for share, factor in zip(shares, factors[1:], strict=True)]
    rounding = _EPS * (np.abs(means).max(axis=0) / frame.scale)[frame.alive]
    pair = gsvd.Factored.stack(target, backgrounds, task.n_rows, rounding)
    joint = gsvd.joint_range(pair)
    inner = pair.background @ pair.background.T if len(pair.background) < pair.background.shape[1] else (
        pair.background.T @ pair.background
    )  # fmt: skip
    evidence = task.evidence(joint.rank, len(frame.alive) - len(constant), float(np.einsum("ij,ij->", inner, inner)))
    # The rows may show another rank than the covariances did: the rule is applied here, not by the caller.
    many = not few_rows(evidence)
    eigen = plain_eigen = gsvd.solve(pair, joint) if many or task.has_edge(joint.rank) else None
    if not task.finds_factors(evidence):
        shrinkage = task.plain_shrinkage(evidence)
    elif many and task.wanted.intensity is None and plain_eigen is not None and plain_eigen.n_infinite:
        shrinkage = Shrinkage(0.0)  # structural
    else:
        shrinkage = task.kept(gsvd.shrinkage_of(pair, evidence, task.target_dimensions))
    rho, n_rows = shrinkage.rho, len(pair.background)
    if rho > 0:
        pair = gsvd.shrunk(pair, joint, shrinkage)
        # A multiple of the identity stays within the joint range: what is beyond it is rounding.
        most = joint.rank if isinstance(shrinkage.psi, float) else None
        eigen = gsvd.solve(pair, gsvd.joint_range(pair, most))
        notes: Sequence[Note] = shrinkage_notes(task, evidence, rho, shrinkage.n_factors)
    else:
        eigen = plain_eigen = gsvd.solve(pair, joint) if plain_eigen is None else plain_eigen
        notes = structural_notes(task, eigen, frame, constant)
    assert eigen is not None
    plain = None if plain_eigen is None else plain_eigen.ratios
    limit = min(joint.rank, task.target_dimensions)
    count = how_many(task, limit, plain, joint.rank)
    own = None
    if 0 < rho < 1:
        seen = pair.background[:n_rows] @ eigen.vectors / np.sqrt(1 - rho)
        own = _own_ratios(eigen.ratios, seen)
    more = components(eigen, frame, above_edge(task, limit, plain, joint.rank) or 0)
    return solution(
        task, components(eigen, frame, count.kept), frame, joint.rank, "gsvd", count, means,
        rho=rho, n_factors=shrinkage.n_factors, plain=plain, notes=notes, n_infinite=eigen.n_infinite, own=own,
        more=more,
    )  # fmt: skip


def _own_ratios(ratios: Array, seen: Array) -> Array:
    """Return the ratios of components against the background as it is, whose rows they see like this."""
    with np.errstate(divide="ignore"):
        return np.asarray(ratios / np.einsum("ik,ik->k", seen, seen))
