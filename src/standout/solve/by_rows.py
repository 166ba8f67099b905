"""Solving from the rows themselves: more features than rows, or too ill-conditioned for covariances."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from standout.blas import Array, rank_tolerance
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
        found = components(span.solve(rows, 0.0, count.kept), rows.frame, count.kept)
        return solution(task, found, rows.frame, rows.rank, "span", count, columns.means)
    frame, constant = measure(columns.target_variance, columns.background_variance)
    varying = int((columns.background_variance > 0).sum())
    evidence = task.evidence(rows.rank, varying, rows.correlation_trace_squared())
    rho = task.intensity(evidence)
    if rho == 0 or task.has_edge(rows.rank):
        return by_factors(task, frame, constant, columns.means)
    count = how_many(task, min(rows.rank, task.target_dimensions), None)
    eigen = span.solve(rows, rho, count.kept)
    if eigen.ratios[-1] <= rank_tolerance(rows.n_rows) * eigen.ratios[0]:
        # Directions in which the target does not vary are no combinations of its rows.
        return by_factors(task, frame, constant, columns.means)
    found = components(eigen, rows.frame, count.kept)
    notes = shrinkage_notes(task, evidence, rho)
    return solution(task, found, frame, rows.rank, "span", count, columns.means, rho=rho, notes=notes)


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
    # The rows may know another rank than the covariances did: the rule is asked here, not by the caller.
    rho = task.intensity(evidence)
    eigen = plain_eigen = gsvd.solve(pair, joint) if rho == 0 or task.has_edge(joint.rank) else None
    if rho > 0:
        pair = gsvd.shrunk(pair, joint, rho)
        eigen = gsvd.solve(pair, gsvd.joint_range(pair))
        notes: Sequence[Note] = shrinkage_notes(task, evidence, rho)
    else:
        assert eigen is not None
        notes = structural_notes(task, eigen, frame, constant)
    assert eigen is not None
    plain = None if plain_eigen is None else plain_eigen.ratios
    limit = min(joint.rank, task.target_dimensions)
    count = how_many(task, limit, plain, joint.rank)
    own = None
    if 0 < rho < 1:
        seen = pair.background[: -joint.rank] @ eigen.vectors / np.sqrt(1 - rho)
        own = _own_ratios(eigen.ratios, seen)
    more = components(eigen, frame, above_edge(task, limit, plain, joint.rank) or 0)
    return solution(
        task, components(eigen, frame, count.kept), frame, joint.rank, "gsvd", count, means,
        rho=rho, plain=plain, notes=notes, n_infinite=eigen.n_infinite, own=own, more=more,
    )  # fmt: skip


def _own_ratios(ratios: Array, seen: Array) -> Array:
    """Return the ratios of components against the background as it is, whose rows they see like this."""
    with np.errstate(divide="ignore"):
        return np.asarray(ratios / np.einsum("ik,ik->k", seen, seen))
