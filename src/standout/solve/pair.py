"""Target and background covariance from moments, in the coordinates all solvers work in.

Features are measured in background sd (target sd where the background is constant), which makes the
background a correlation matrix and costs nothing in accuracy; features that vary nowhere are left
out. Without a background its place is taken by the identity in the data's own units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from standout.blas import Array, cholesky, rank_tolerance, top_eigen
from standout.errors import InputError, listed, named_features
from standout.mixture import Mixture
from standout.moments import Moments
from standout.shrinkage import Evidence
from standout.solve.result import Frame
from standout.solve.split import WORST_CONDITION, joint_rank

# Ratios above this leave no room for sums of them.
_LARGEST = 1e300


@dataclass(frozen=True)
class Pair:
    """The two covariances of the eigenproblem ``A v = λ B v``."""

    target: Array  # (d, d)
    background: Array | None  # (d, d); None is the identity
    frame: Frame
    constant: tuple[int, ...]  # features that vary in the target only
    mixture: Mixture | None

    @classmethod
    def of(cls, target: Moments, backgrounds: Sequence[Moments], mixture: Mixture | None, own: bool) -> Pair:
        """Build the pair; ``own`` centres the target by its own mean, else by the background's."""
        covariance, variance = target.covariance(), target.variance()
        if mixture is not None and not own:
            shift = target.mean - mixture.mixed_means([part.mean for part in backgrounds])
            covariance += np.outer(shift, shift)
            variance = variance + shift**2
        if mixture is None:
            alive = np.flatnonzero(check_varies(variance, "target"))
            frame = Frame(alive, np.ones(len(variance)), len(variance))
            return cls(_cut(covariance, frame), None, frame, (), None)
        spread = mixture.mixed([part.variance() for part in backgrounds])
        frame, constant = measure(variance, spread)
        check_comparable(variance, frame)
        return cls(
            scaled(covariance, frame),
            scaled(mixture.covariance(backgrounds), frame),
            frame,
            constant,
            mixture,
        )

    @cached_property
    def factor(self) -> tuple[Array, float] | None:
        """Cholesky factor and reciprocal condition of the background; None when it is singular."""
        assert self.background is not None
        if self.constant:
            return None
        found = cholesky(self.background)
        return found if found is not None and found[1] > rank_tolerance(len(self.background)) else None

    @property
    def well_conditioned(self) -> bool:
        """Whether covariances are enough for an accurate answer."""
        return self.factor is not None and self.factor[1] >= 1 / WORST_CONDITION

    @cached_property
    def rank(self) -> int:
        """The joint rank of target and background."""
        if self.background is None or self.factor is not None:
            return len(self.target)
        return joint_rank(self.target, self.background)

    @cached_property
    def structural(self) -> bool:
        """Whether the target varies in some direction in which the background does not."""
        if self.background is None or self.factor is not None:
            return False
        if self.constant:
            return True
        values, _ = top_eigen(self.background, len(self.background), vectors=False)
        return int((values > rank_tolerance(len(values)) * values[0]).sum()) < self.rank

    def evidence(self) -> Evidence:
        """Return what the shrinkage rule looks at."""
        assert self.background is not None and self.mixture is not None
        return Evidence(
            rows=self.mixture.rows,
            rank=self.rank,
            effective=self.mixture.effective,
            n_varying=len(self.target) - len(self.constant),
            trace_squared=float(np.einsum("ij,ij->", self.background, self.background)),
        )


def measure(target_variance: Array, background_variance: Array) -> tuple[Frame, tuple[int, ...]]:
    """Return the solver's coordinates, and the features that vary in the target only."""
    check_varies(target_variance, "target")
    if background_variance.all():
        return Frame(np.arange(len(background_variance)), np.sqrt(background_variance), len(background_variance)), ()
    check_varies(background_variance, "background")
    variance = np.where(background_variance > 0, background_variance, target_variance)
    alive = np.flatnonzero(variance > 0)
    scale = np.sqrt(np.where(variance > 0, variance, 1.0))
    constant = np.flatnonzero((background_variance == 0) & (target_variance > 0))
    return Frame(alive, scale, len(scale)), tuple(int(i) for i in constant)


def check_varies(variance: Array, role: str) -> NDArray[np.bool_]:
    """Refuse a dataset in which every feature is constant."""
    varies = variance > 0
    if not varies.any():
        some = listed(named_features(None, range(len(variance))))
        raise InputError(
            f"{role}: every feature is constant ({len(variance)} features: {some}), so there is no variance "
            "to compare. Check that the right rows were given."
        )
    return varies


def check_comparable(target_variance: Array, frame: Frame) -> None:
    """Refuse a target whose variance is too far from the background's for their ratio to be a number."""
    with np.errstate(over="ignore"):
        ratio = target_variance / frame.scale / frame.scale
    if not (ratio.sum() < _LARGEST):
        worst = int(np.argmax(ratio))
        raise InputError(
            f"target and background are in units so far apart that the ratio of their variances would overflow "
            f"(feature {worst}: sd {np.sqrt(target_variance[worst]):.3g} against {frame.scale[worst]:.3g}). "
            "Bring both to the same units."
        )


def _cut(matrix: Array, frame: Frame) -> Array:
    if len(frame.alive) == frame.n_features:
        return matrix
    return matrix[np.ix_(frame.alive, frame.alive)]


def scaled(matrix: Array, frame: Frame) -> Array:
    """Return the covariance of the alive features in the solver's units (changes its argument)."""
    matrix = _cut(matrix, frame)
    inverse = 1 / frame.alive_scale
    matrix *= inverse[:, None]
    matrix *= inverse
    return matrix
