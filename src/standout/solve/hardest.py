"""``mix="minimax"``: the shares of several backgrounds, from their moments.

Shrinking the mixture toward its own diagonal by a fixed ρ is shrinking every background toward its own, so the
shrunk problem is linear in the shares too and the answer is minimax for what is solved. ρ is that of the pooled
backgrounds. No shared factors are kept here: they would depend on the units, which change with the shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from standout.blas import Array, rank_tolerance, top_eigen
from standout.dataset import Dataset
from standout.errors import InputError
from standout.mixture import Mixture
from standout.shrinkage import Shrinkage, intensity
from standout.solve.minimax import minimax_shares
from standout.solve.pair import Pair, scaled
from standout.solve.task import Task, Wanted

# Beyond this many features the covariances of several backgrounds are too large to hold.
_MOST = 10_000


@dataclass(frozen=True)
class Hardest:
    """The shares, and the shrinkage they were found at."""

    shares: Array
    shrinkage: Shrinkage | None  # None with one background, where nothing has to be found


@dataclass(frozen=True)
class _Covariances:
    """Target and each background, shrunk toward its own diagonal, in some common coordinates."""

    target: Array
    backgrounds: list[Array]
    shrinkage: Shrinkage


def hardest_shares(target: Dataset, backgrounds: Sequence[Dataset], wanted: Wanted) -> Hardest:
    """Return the shares that make the largest ratio as small as possible, in the regime of the pooled problem."""
    for name, clash in (("centering='background'", not wanted.own_centre), ("a graph", wanted.graph is not None)):
        if clash:
            raise InputError(
                f"mix='minimax' cannot be combined with {name}: the problem is no longer linear in the shares. Give "
                "the shares as mix=[...]."
            )
    pooled = Mixture.of([data.counts for data in backgrounds], "pooled")
    task = Task(target, backgrounds, pooled, wanted)
    if target.n_features > _MOST:
        raise InputError(
            f"mix='minimax' works on matrices of features × features, and {target.n_features} are more than {_MOST}. "
            "Choose fewer features, or give the shares as mix=[...]."
        )
    if len(backgrounds) == 1:
        return Hardest(np.ones(1), None)
    found = _by_moments(task)
    inside = _joint_range(found)
    return Hardest(minimax_shares(inside.target, inside.backgrounds).shares, found.shrinkage)


def _by_moments(task: Task) -> _Covariances:
    parts = [data.moments for data in task.backgrounds]
    pair = Pair.of(task.target.moments, parts, task.mixture, task.wanted.own_centre)
    asked = "diagonal" if task.wanted.shrinkage == "auto" else task.wanted.shrinkage
    shrinkage = Shrinkage(intensity(asked, pair.evidence()))
    constant = np.isin(pair.frame.alive, pair.constant)
    shrunk = []
    for part in parts:
        covariance = scaled(part.covariance(), pair.frame)
        # A feature constant in every background is measured by the target's sd, which is one here.
        diagonal = np.where(constant, 1.0, np.diagonal(covariance))
        shrunk.append(replace(shrinkage, psi=diagonal).of(covariance))
    return _Covariances(pair.target, shrunk, shrinkage)


def _joint_range(found: _Covariances) -> _Covariances:
    """Leave out directions in which nothing varies (a feature that stands twice); refuse infinite ratios."""
    size = len(found.target)
    total = np.asarray(sum(found.backgrounds)) / len(found.backgrounds)
    values, basis = top_eigen(total, size)
    varies = values > rank_tolerance(size) * values[0]
    if varies.all():
        return found
    left = basis[:, ~varies]
    if np.trace(left.T @ found.target @ left) > 1e-9 * np.trace(found.target):
        raise InputError(
            "mix='minimax': in some direction the target varies and no background does, so the largest ratio is "
            "infinite whatever the shares. Leave such features out, or use shrinkage='oas'."
        )
    kept = basis[:, varies]
    return _Covariances(
        kept.T @ found.target @ kept, [kept.T @ part @ kept for part in found.backgrounds], found.shrinkage
    )
