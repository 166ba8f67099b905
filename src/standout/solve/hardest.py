"""``mix="minimax"``: the shares of several backgrounds, from moments or from rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from standout.blas import Array
from standout.dataset import Dataset
from standout.mixture import Mixture
from standout.shrinkage import Evidence, intensity
from standout.solve import gsvd
from standout.solve.minimax import minimax_shares
from standout.solve.pair import Pair, measure, scaled
from standout.solve.span import RowSpan
from standout.solve.task import Task, Wanted


@dataclass(frozen=True)
class _Covariances:
    """Target and each background in the pooled background's sd, and how much to shrink."""

    target: Array
    backgrounds: list[Array]
    rho: float


def hardest_shares(target: Dataset, backgrounds: Sequence[Dataset], wanted: Wanted) -> Array:
    """Return the shares that make the largest ratio as small as possible, in the regime of the pooled problem."""
    if len(backgrounds) == 1:
        return np.ones(1)
    pooled = Mixture.of([data.counts for data in backgrounds], "pooled")
    task = Task(target, backgrounds, pooled, wanted)
    wide = task.rows_at_hand and target.n_features > task.n_rows
    found = _by_rows(task) if wide else _by_moments(task)
    eye = found.rho * np.eye(len(found.target))
    return minimax_shares(found.target, [(1 - found.rho) * part + eye for part in found.backgrounds]).shares


def _by_moments(task: Task) -> _Covariances:
    parts = [data.moments for data in task.backgrounds]
    pair = Pair.of(task.target.moments, parts, task.mixture, task.wanted.own_centre)
    rho = intensity(task.wanted.shrinkage, pair.evidence())
    return _Covariances(pair.target, [scaled(part.covariance(), pair.frame) for part in parts], rho)


def _by_rows(task: Task) -> _Covariances:
    """More features than rows: covariances in a basis of the rows' span."""
    assert task.mixture is not None
    rows = RowSpan(task.target, task.backgrounds, task.mixture, task.wanted.own_centre)
    frame, _ = measure(rows.columns.target_variance, rows.columns.background_variance)
    data = (task.target, *task.backgrounds)
    factors = [gsvd.row_factor(part, frame, mean) for part, mean in zip(data, rows.columns.means, strict=True)]
    joint = gsvd.joint_range(gsvd.Factored.stack(factors[:1], factors[1:], task.n_rows))
    inside = [factor @ joint.basis for factor in factors]
    evidence = Evidence(
        rows=task.mixture.rows,
        rank=joint.rank,
        effective=task.mixture.effective,
        n_varying=int((rows.columns.background_variance > 0).sum()),
        trace_squared=rows.correlation_trace_squared(),
    )
    covariances = [part.T @ part for part in inside]
    return _Covariances(covariances[0], covariances[1:], intensity(task.wanted.shrinkage, evidence))
