"""Solutions in the units of the data: components, signal model, and notes for the user.

Solvers find generalised eigenpairs in scaled coordinates (:class:`FeatureScale`). These are converted to filters and
patterns here, rotated to the signal axes if these were requested, and assembled with a record of what was done. Notes
state counts, the features concerned and a remedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from standout._blas import WORST_CONDITION, Array
from standout._shrinkage import ROWS_PER_DIMENSION, Evidence, Regime, Shrinkage, estimate_text, few_rows
from standout._spectrum import debiased
from standout.errors import (
    ConditionWarning,
    OverfitWarning,
    RankWarning,
    ShrinkageWarning,
    StandoutWarning,
    StructuralWarning,
    listed,
    named_features,
)

if TYPE_CHECKING:
    from standout.solvers.problem import Problem

# Sums have 16 digits of a variance, hence 8 of an sd: a smaller relative sd is not resolved by moments.
_RESOLUTION = 1e-7
_EXACT = Shrinkage(0.0)
# Relative difference up to which moments of two features are equal.
_IDENTICAL = 1e-12
# Relative difference up to which a cumulative variance equals the requested share.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Eigenpairs:
    """Generalised eigenpairs in the solver's coordinates, largest ratio first.

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

    @property
    def alive_scale(self) -> Array:
        """The scale of the features that vary."""
        return self.scale[self.alive]

    def filters(self, vectors: Array) -> Array:
        """Convert vectors to filters in the units of the data."""
        return self._spread(vectors / self.scale[self.alive, None])

    def images(self, images: Array) -> Array:
        """Convert covariance images to the units of the data."""
        return self._spread(images * self.scale[self.alive, None])

    def _spread(self, values: Array) -> Array:
        """Expand rows for the features that vary to all features."""
        if len(self.alive) == len(self.scale):
            return values
        full = np.zeros((len(self.scale), values.shape[1]))
        full[self.alive] = values
        return full


@dataclass(frozen=True)
class Note:
    """A warning for the user."""

    category: type[StandoutWarning]
    text: str


@dataclass(frozen=True)
class Components:
    """Filters, patterns and variances in the units of the data."""

    ratios: Array  # (k,)
    filters: Array  # (n_features, k), unit norm
    patterns: Array  # (n_features, k)
    target_variance: Array  # (k,)
    background_variance: Array  # (k,)

    def take(self, chosen: NDArray[np.bool_]) -> Components:
        """Return the chosen components."""
        return Components(*(getattr(self, each.name)[..., chosen] for each in fields(self)))


@dataclass(frozen=True)
class Solution:
    """The components in the units of the data, and how they were found."""

    components: Components
    unshrunk_ratios: Array  # ratios of the unshrunk problem, largest first; empty if undefined
    mean: Array  # (n_features,) centre of the target
    scale: Array  # (n_features,) background sd, target sd if the background is constant
    rank: int
    shrinkage: Shrinkage
    regime: Regime
    solver: str
    notes: tuple[Note, ...]
    signal: Signal | None
    axes: str
    total_variance: float  # of the target about its centre


def components(eigen: Eigenpairs, frame: FeatureScale, count: int) -> Components:
    """Convert the first ``count`` eigenpairs to the units of the data, with unit-norm filters and fixed signs."""
    if eigen.n_infinite:
        eigen = _ordered_infinite(eigen, frame)
    filters = frame.filters(eigen.vectors[:, :count])
    ratios = eigen.ratios[:count]
    target = frame.images(eigen.target_image[:, :count])
    background = frame.images(eigen.background_image[:, :count])
    # A u = λ B u: both sides give the pattern; use the one that is not close to zero.
    patterns = np.where(ratios >= 1, target, background)
    patterns /= (filters * patterns).sum(axis=0)
    length = np.sqrt((filters * filters).sum(axis=0))
    sign = signs(patterns / frame.scale[:, None])
    target_variance, background_variance = ratios / length**2, 1 / length**2
    if (infinite := eigen.n_infinite) > 0:
        target_variance[:infinite] = ((filters * target).sum(axis=0) / length**2)[:infinite]
        background_variance[:infinite] = 0.0
    return Components(
        ratios, filters * (sign / length), patterns * (sign * length), target_variance, background_variance
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
    filters = frame.filters(eigen.vectors[:, :q])
    _, triangle = np.linalg.qr(filters)
    turn = np.linalg.inv(triangle)
    inside = turn.T @ (filters.T @ frame.images(eigen.target_image[:, :q])) @ turn
    _, axes = np.linalg.eigh((inside + inside.T) / 2)
    turn = turn @ axes[:, ::-1]
    vectors, target, background = (
        np.hstack([columns[:, :q] @ turn, columns[:, q:]])
        for columns in (eigen.vectors, eigen.target_image, eigen.background_image)
    )
    return Eigenpairs(eigen.ratios, vectors, target, background, q)


@dataclass(frozen=True)
class Signal:
    """Signal model for denoising: filters, patterns and gains of the significant components."""

    filters: Array  # (n_features, k)
    patterns: Array  # (n_features, k)
    gains: Array  # (k,): 1 − 1/a; 1 for an infinite ratio

    @classmethod
    def of(cls, filters: Array, patterns: Array, ratios: Array) -> Signal:
        """Return the signal of components with population ratios a: gains 1 − 1/a, zero for ratios below one."""
        return cls(filters, patterns, 1 - 1 / np.maximum(ratios, 1.0))

    def of_rows(self, centred: Array) -> Array:
        """Return the target-specific part of centred rows, of the same shape."""
        return np.asarray((centred @ (self.filters * self.gains)) @ self.patterns.T)


def _signal_axes(found: Components, signal: Signal, scale: Array, count: int) -> Components:
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
    return Components(ratios, (found.filters @ mix) * sign, patterns * sign, target, background)


def build_solution(
    problem: Problem,
    eigen: Eigenpairs,
    frame: FeatureScale,
    rank: int,
    solver: str,
    count: tuple[int, int],
    *,
    means: Sequence[Array] | None = None,
    variance: Array | None = None,
    scale: Array | None = None,
    shrinkage: Shrinkage = _EXACT,
    plain: Array | None = None,
    notes: Sequence[Note] = (),
    own: Array | None = None,
    has_all: bool = False,
) -> Solution:
    """Assemble a solution from pairs in the coordinates ``frame``, ``count`` as in :meth:`Problem.how_many`.

    ``means`` are those of the datasets, ``variance`` that of the target's features, and ``scale`` the background sd; by
    default they are those of the moments and of the coordinates. ``plain`` are ratios of the unshrunk problem; ``own``
    are the ratios of the components against the unshrunk background, if it was shrunk. With ``has_all`` the pairs
    include all components above the edge, which denoising needs.
    """
    shown, kept = count
    if means is None:
        means = [data.moments.mean for data in (problem.target, *problem.backgrounds)]
    if variance is None:
        moments = problem.target.moments
        total = float(moments.scatter.trace() / moments.weight)
        if not problem.options.own_centre and (shift := problem.shift(means)) is not None:
            total += float(shift @ shift)
    else:
        total = float(variance.sum())
    if isinstance(share := problem.options.n_components, float):
        shown = kept = min(int((np.cumsum(eigen.ratios) <= share * total * (1 + _ROUNDING)).sum()) + 1, kept)
    found = components(eigen, frame, kept)
    scale = frame.scale if scale is None else scale
    judged = plain if plain is not None and problem.has_edge(rank) else np.empty(0)
    signal_axes = problem.options.axes == "signal" and problem.mixture is not None
    signal = None
    if signal_axes or (has_all and len(judged)):
        every = found if signal_axes else components(eigen, frame, problem.above_edge(rank, judged))
        population = every.ratios
        if len(judged):
            population = debiased(judged[: len(population)], rank, *problem.units())
            if own is not None:  # bounded by the ratio against the unshrunk background
                population = np.fmin(population, own[: len(population)])
        every = every.take(population > 1)
        signal = Signal.of(every.filters, every.patterns, population[population > 1])
        if signal_axes:
            shown = min(shown, len(signal.gains))
            notes = [*notes, *_signal_notes(problem, rank, shown, bool(len(judged)))]
            found = _signal_axes(every, signal, scale, shown)
    mean = means[0]
    if problem.mixture is not None and not problem.options.own_centre:
        mean = problem.mixture.mixed_means(means[1:])
    return Solution(
        components=found,
        unshrunk_ratios=judged,
        mean=mean,
        scale=scale,
        rank=rank,
        shrinkage=shrinkage,
        regime="shrunk" if shrinkage.rho > 0 else "structural" if eigen.n_infinite > 0 else "exact",
        solver=solver,
        notes=tuple(notes),
        signal=signal,
        axes="signal" if signal_axes else "ratio",
        total_variance=total,
    )


def _signal_notes(problem: Problem, rank: int, shown: int, judged: bool) -> list[Note]:
    """Return a note if the signal has fewer axes than requested, or could not be separated from noise."""
    assert problem.mixture is not None
    wanted = problem.options.n_components
    if not judged:
        text = (
            f"the signal has {shown} axes, computed from all ratios above one: with {problem.mixture.units:.0f} "
            f"independent background units for {rank} dimensions there is no noise edge. Give more background rows or "
            "fewer features to select and de-bias the components."
        )
    elif isinstance(wanted, int) and 0 < shown < wanted:
        text = (
            f"`n_components={wanted}`, but only {shown} are above the noise edge: the signal has no more axes. "
            "Request as many, or use `axes='ratio'` to see components below the edge."
        )
    else:
        return []
    return [Note(OverfitWarning, text)]


def shrinkage_notes(problem: Problem, evidence: Evidence, shrinkage: Shrinkage, error: float = 0.0) -> list[Note]:
    """Return warnings that "auto" shrank the background strongly; ``error`` is relative, if ρ is an estimate."""
    if shrinkage.rho == 0 or problem.options.shrinkage not in ("auto", "diagonal") or not few_rows(evidence):
        return []
    assert problem.mixture is not None
    rows = sum(data.counts.rows for data in problem.backgrounds)
    effective = problem.mixture.effective + len(problem.backgrounds)
    worth = f" (worth {effective:.0f})" if effective < 0.95 * rows else ""
    within = f" (estimated from random vectors, to {100 * error:.2g} %)" if error > 0 else ""
    possible = "; `shrinkage=None` solves the exact problem" if evidence.rows >= evidence.rank else ""
    estimate = estimate_text(shrinkage.rho, shrinkage.n_factors, within)
    text = (
        f"{rows} background rows{worth} are few for {evidence.rank} dimensions (fewer than {ROWS_PER_DIMENSION} for "
        f"each), so the background covariance was estimated by {estimate}. More background rows or fewer features need "
        f"less shrinkage{possible}."
    )
    return [Note(ShrinkageWarning, text)]


def condition_note(reciprocal: float) -> Note:
    """Return a note that the covariances are too ill-conditioned for an accurate answer."""
    condition = f"about {1 / reciprocal:.1e}" if reciprocal > 0 else f"above {WORST_CONDITION:.0e}"
    return Note(
        ConditionWarning,
        f"the condition number of the background covariance is {condition}: from moments alone the ratios have "
        "few correct digits. Give the rows (`solver='auto'` then uses the generalised SVD), or shrink.",
    )


def lost_note(problem: Problem, count: int) -> Note:
    """Return a note that moments show no variance in directions where the rows might."""
    groups = _identical_features(problem)
    if groups and count <= sum(len(group) - 1 for group in groups):
        return identical_note(problem.names, groups)
    directions = "1 direction is" if count == 1 else f"{count} directions are"
    remedy = "use `solver='gsvd'`" if problem.has_rows else "bring the rows into memory for the generalised SVD"
    return Note(
        RankWarning,
        f"{directions} left out, in which neither target nor background varies by more than about {_RESOLUTION:.0e} of "
        "the sd of its features, the resolution of sums. That is right for a duplicated feature or shares that add up "
        f"to one; otherwise {remedy}, or give differences of features that are almost equal.",
    )


def identical_note(names: tuple[str, ...] | None, groups: Sequence[Sequence[int]]) -> Note:
    """Return a note that names features which are equal in every row."""
    found = [" = ".join(listed([name]) for name in named_features(names, group)) for group in groups]
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    text = f"identical features: {', '.join(found[:5])}{more}. They count as one, and share its weight."
    return Note(RankWarning, f"{text} Leave all but one of them out to give it the whole weight.")


def _identical_features(problem: Problem) -> list[list[int]]:
    """Return groups of features that are equal in every row: equal means and variances, and a correlation of one."""
    parts = [data.moments for data in (problem.target, *problem.backgrounds)]
    order = np.argsort(np.diagonal(parts[0].scatter), kind="stable")
    first, second = order[:-1], order[1:]
    same = np.diagonal(parts[0].scatter)[first] > 0
    for part in parts:
        variance, mean = np.diagonal(part.scatter), part.mean
        same &= np.isclose(part.scatter[first, second], variance[first], rtol=_IDENTICAL, atol=0)
        same &= np.isclose(variance[first], variance[second], rtol=_IDENTICAL, atol=0)
        same &= np.isclose(mean[first], mean[second], rtol=_IDENTICAL, atol=0)
    groups = np.split(order, np.flatnonzero(~same) + 1)
    return sorted(sorted(group.tolist()) for group in groups if len(group) > 1)


def structural_notes(problem: Problem, eigen: Eigenpairs, frame: FeatureScale, constant: tuple[int, ...]) -> list[Note]:
    """Return notes on the cause of infinite ratios."""
    count = eigen.n_infinite
    if count == 0:
        return []
    if count <= len(constant):
        one = len(constant) == 1
        named = listed(named_features(problem.names, constant))
        where = f"the feature{'' if one else 's'} {named} {'is' if one else 'are'} constant in the background"
    else:
        weight = np.abs(eigen.vectors[:, :count]).max(axis=1)
        order = np.argsort(-weight, kind="stable")
        heavy = frame.alive[order[weight[order] > 0.1 * weight.max()]]
        where = (
            f"the background satisfies an exact linear relation between {listed(named_features(problem.names, heavy))}"
        )
        if not problem.has_rows:
            where += f" (exact to {_RESOLUTION:.0e} of their sd, the resolution of sums)"
    ratios = "1 ratio is" if count == 1 else f"{count} ratios are"
    text = (
        f"{ratios} infinite: {where}, while the target varies there. If that is an artefact of how the background "
        "was recorded, leave these features out or use `shrinkage='oas'`."
    )
    return [Note(StructuralWarning, text)]
