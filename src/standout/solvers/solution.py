"""Solver results, their conversion to the units of the data, and the signal model used for denoising.

The target-specific part of a row is a Wiener estimate from the significant components. With u the filters, p their
patterns (uᵢᵀpⱼ = δᵢⱼ) and a the population ratios, the part of a centred row that the background does not explain is
Σ p (1 − 1/a) uᵀx. This is the posterior mean of the model x ~ N(0, WWᵀ + C_yy), whose maximum likelihood solution is
discriminative PCA (residual component analysis). Its principal axes are the ``axes="signal"`` of the estimator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from standout._blas import Array
from standout._shrinkage import Regime
from standout.errors import StandoutWarning


@dataclass(frozen=True)
class Eigenpairs:
    """Generalized eigenpairs in the solver's coordinates, largest ratio first.

    All vectors with an infinite ratio come first, in an arbitrary basis; the others have unit
    background variance. Patterns are computed from the images ``A v`` and ``B v``.
    """

    ratios: Array  # (k,)
    vectors: Array  # (d, k)
    target_image: Array  # (d, k)
    background_image: Array  # (d, k)
    n_infinite: int = 0


@dataclass(frozen=True)
class FeatureScale:
    """The solver's coordinates: the features that vary, in units of ``scale``."""

    alive: NDArray[np.intp]
    scale: Array  # (n_features,), 1 for features that do not vary
    n_features: int

    @cached_property
    def alive_scale(self) -> Array:
        """The scale of the features that vary."""
        return self.scale[self.alive]

    def rescaled(self, units: Array) -> FeatureScale:
        """Return coordinates in which the features that vary are additionally divided by ``units``."""
        scale = self.scale.copy()
        scale[self.alive] *= units
        return FeatureScale(self.alive, scale, self.n_features)

    def spread(self, values: Array) -> Array:
        """Expand rows for the features that vary to all features."""
        if len(self.alive) == self.n_features:
            return values
        full = np.zeros((self.n_features, values.shape[1]))
        full[self.alive] = values
        return full

    def filters(self, vectors: Array) -> Array:
        """Convert vectors to filters in the units of the data."""
        return self.spread(vectors / self.alive_scale[:, None])

    def images(self, images: Array) -> Array:
        """Convert covariance images to the units of the data."""
        return self.spread(images * self.alive_scale[:, None])


@dataclass(frozen=True)
class Note:
    """A warning for the user."""

    category: type[StandoutWarning]
    text: str


@dataclass(frozen=True)
class Solution:
    """The components in the units of the data, and how they were found."""

    ratios: Array  # (k,)
    filters: Array  # (n_features, k), unit norm
    patterns: Array  # (n_features, k)
    target_variance: Array  # (k,)
    background_variance: Array  # (k,)
    unshrunk_ratios: Array  # ratios of the unshrunk problem, largest first; empty if undefined
    mean: Array  # (n_features,) centre of the target
    scale: Array  # (n_features,) background sd, target sd if the background is constant
    rank: int
    n_infinite: int
    shrinkage: float
    n_factors: int  # shared factors in the background estimate
    regime: Regime
    solver: str
    notes: tuple[Note, ...] = field(default=())
    signal: Signal | None = None
    axes: str = "ratio"


@dataclass(frozen=True)
class Components:
    """Filters, patterns and variances in the units of the data."""

    ratios: Array
    filters: Array
    patterns: Array
    target_variance: Array
    background_variance: Array


def components(eigen: Eigenpairs, frame: FeatureScale, count: int) -> Components:
    """Convert the first ``count`` eigenpairs to the units of the data, with unit-norm filters and fixed signs."""
    eigen = _ordered_infinite(eigen, frame)
    filters = frame.filters(eigen.vectors[:, :count])
    ratios = eigen.ratios[:count]
    infinite = np.arange(len(ratios)) < eigen.n_infinite
    target = frame.images(eigen.target_image[:, :count])
    background = frame.images(eigen.background_image[:, :count])
    # A u = λ B u: both sides give the pattern; use the one that is not close to zero.
    patterns = np.where(infinite | (ratios >= 1), target, background)
    patterns /= (filters * patterns).sum(axis=0)
    length = np.sqrt((filters * filters).sum(axis=0))
    raw_target = (filters * target).sum(axis=0)
    sign = signs(patterns / frame.scale[:, None])
    return Components(
        ratios=ratios,
        filters=filters * (sign / length),
        patterns=patterns * (sign * length),
        target_variance=np.where(infinite, raw_target, ratios) / length**2,
        background_variance=np.where(infinite, 0.0, 1.0) / length**2,
    )


def signs(patterns: Array) -> Array:
    """Return ±1 for each column, such that its largest entry becomes positive.

    Entries within rounding error of the largest count as equal and the first of them determines the sign, so
    that the order of summation cannot flip a component.
    """
    size = np.abs(patterns)
    first = np.argmax(size >= (1 - 1e-6) * size.max(axis=0, initial=0.0), axis=0)
    chosen = patterns[first, np.arange(patterns.shape[1])]
    return np.where(chosen < 0, -1.0, 1.0)


def _ordered_infinite(eigen: Eigenpairs, frame: FeatureScale) -> Eigenpairs:
    """Order the infinite block by target variance, with a PCA of the target inside it."""
    q = eigen.n_infinite
    if q == 0:
        return eigen
    filters = frame.filters(eigen.vectors[:, :q])
    _, triangle = np.linalg.qr(filters)
    turn = np.linalg.inv(triangle)
    inside = turn.T @ (filters.T @ frame.images(eigen.target_image[:, :q])) @ turn
    _, axes = np.linalg.eigh((inside + inside.T) / 2)
    turn = turn @ axes[:, ::-1]

    def turned(columns: Array) -> Array:
        return np.hstack([columns[:, :q] @ turn, columns[:, q:]])

    return Eigenpairs(
        eigen.ratios,
        turned(eigen.vectors),
        turned(eigen.target_image),
        turned(eigen.background_image),
        q,
    )


@dataclass(frozen=True)
class Signal:
    """Signal model for denoising: filters, patterns and gains of the significant components."""

    filters: Array  # (n_features, k)
    patterns: Array  # (n_features, k)
    gains: Array  # (k,): 1 − 1/a; 1 for an infinite ratio

    def of_rows(self, centred: Array) -> Array:
        """Return the target-specific part of centred rows, of the same shape."""
        return np.asarray((centred @ (self.filters * self.gains)) @ self.patterns.T)


def gains(ratios: Array) -> Array:
    """Return 1 − 1/a for population ratios a; ratios below one have zero gain."""
    return np.asarray(1 - 1 / np.maximum(ratios, 1.0))


def signal_axes(found: Components, signal: Signal, scale: Array, count: int) -> Components:
    """Return the principal axes of the denoised target as components.

    The denoised target has covariance P·diag(g² v)·Pᵀ with v the target variance along each filter. Its axes
    E come from a thin SVD, and the filters U·diag(g)·PᵀE give the scores of its PCA.
    """
    spread = signal.patterns * (signal.gains * np.sqrt(found.target_variance))
    axes, _, _ = np.linalg.svd(spread, full_matrices=False)
    mix = signal.gains[:, None] * (signal.patterns.T @ axes[:, :count])  # (k, count): axes in terms of the filters
    target = np.einsum("kc,k->c", mix**2, found.target_variance)
    background = np.einsum("kc,k->c", mix**2, found.background_variance)
    patterns = (found.patterns @ (mix * found.target_variance[:, None])) / target
    sign = signs(patterns / scale[:, None])
    with np.errstate(divide="ignore"):
        ratios = np.where(background > 0, target / np.where(background > 0, background, 1.0), np.inf)
    return Components(
        ratios=ratios,
        filters=(found.filters @ mix) * sign,
        patterns=patterns * sign,
        target_variance=target,
        background_variance=background,
    )
