"""Assemble a solution from components, with notes for the user.

A solution holds the components (along the signal axes if requested), the centre and a record of what was done.
Notes state counts, the features concerned and a remedy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from standout._blas import Array
from standout._shrinkage import ROWS_PER_DIMENSION, Evidence, estimate_text, few_rows
from standout._spectrum import debiased
from standout.errors import (
    ConditionWarning,
    OverfitWarning,
    RankWarning,
    ShrinkageWarning,
    StructuralWarning,
    listed,
    named_features,
)
from standout.solvers import dense
from standout.solvers.problem import Count, Problem
from standout.solvers.solution import Components, Eigenpairs, FeatureScale, Note, Signal, Solution, gains, signal_axes

# Sums carry 16 digits of a variance, hence 8 of an sd.
_UNTOLD = 1e-7
_REMEDY = {False: "bring the rows into memory for the generalized SVD", True: "use `solver='gsvd'`"}


def shrinkage_notes(
    task: Problem, evidence: Evidence, rho: float, n_factors: int = 0, error: float = 0.0
) -> tuple[Note, ...]:
    """Return warnings that "auto" shrank the background strongly; ``error`` is relative, if ρ is an estimate."""
    if task.wanted.shrinkage not in ("auto", "diagonal") or not few_rows(evidence):
        return ()
    possible = "; `shrinkage=None` solves the exact problem" if evidence.rows >= evidence.rank else ""
    return (
        Note(
            ShrinkageWarning,
            f"{_counted(task)} are few for {evidence.rank} dimensions (fewer than {ROWS_PER_DIMENSION} for each), so "
            f"the background covariance was estimated by {estimate_text(rho, n_factors, _within(error))}. More "
            f"background rows or fewer features need less shrinkage{possible}.",
        ),
    )


def _within(error: float) -> str:
    return f" (estimated from random vectors, to {100 * error:.2g} %)" if error > 0 else ""


def _counted(task: Problem) -> str:
    """Return the number of background rows, and the effective number if it is smaller."""
    assert task.mixture is not None
    rows = sum(data.counts.rows for data in task.backgrounds)
    worth = task.mixture.effective + len(task.backgrounds)
    return f"{rows} background rows" + (f" (worth {worth:.0f})" if worth < 0.95 * rows else "")


def condition_note(reciprocal: float) -> Note:
    """Return a note that the covariances are too ill-conditioned for an accurate answer."""
    condition = f"about {1 / reciprocal:.1e}" if reciprocal > 0 else f"above {dense.WORST_CONDITION:.0e}"
    return Note(
        ConditionWarning,
        f"the condition number of the background covariance is {condition}: from moments alone the ratios have "
        "few correct digits. Give the rows themselves (`solver='auto'` then uses the generalized SVD), or shrink.",
    )


def lost_note(task: Problem, count: int) -> Note:
    """Return a note that moments show no variance in directions where the rows might."""
    directions = "1 direction is" if count == 1 else f"{count} directions are"
    return Note(
        RankWarning,
        f"{directions} left out, in which neither target nor background varies by more than about {_UNTOLD:.0e} of the "
        "sd of its features: sums do not tell less from rounding. That is right for a feature that stands twice or "
        f"shares that add up to one; where it is not, {_REMEDY[task.rows_at_hand]}, or give differences of features "
        "that are almost the same.",
    )


def structural_notes(task: Problem, eigen: Eigenpairs, frame: FeatureScale, constant: tuple[int, ...]) -> list[Note]:
    """Return notes on the cause of infinite ratios."""
    count = eigen.n_infinite
    if count == 0:
        return []
    if count <= len(constant):
        named = listed(named_features(task.names, constant))
        one = len(constant) == 1
        where = f"the feature{'' if one else 's'} {named} {'is' if one else 'are'} constant in the background"
    else:
        weight = np.abs(eigen.vectors[:, :count]).max(axis=1)
        order = np.argsort(-weight, kind="stable")
        heavy = frame.alive[order[weight[order] > 0.1 * weight.max()]]
        where = f"the background satisfies an exact linear relation between {listed(named_features(task.names, heavy))}"
        if not task.rows_at_hand:
            where += f" (exact to {_UNTOLD:.0e} of their sd, as sums tell no more)"
    ratios = "1 ratio is" if count == 1 else f"{count} ratios are"
    return [
        Note(
            StructuralWarning,
            f"{ratios} infinite: {where}, while the target varies there. If that is an artefact of how the background "
            "was recorded, leave these features out or use `shrinkage='oas'`.",
        )
    ]


def build_solution(
    task: Problem,
    found: Components,
    frame: FeatureScale,
    rank: int,
    solver: str,
    count: Count,
    means: Sequence[Array] | None = None,
    *,
    rho: float = 0.0,
    n_factors: int = 0,
    plain: Array | None = None,
    notes: Sequence[Note] = (),
    n_infinite: int = 0,
    own: Array | None = None,
    more: Components | None = None,
) -> Solution:
    """Assemble a solution.

    ``own`` are the ratios of the components against the unshrunk background, if it was shrunk. ``more`` are all
    components above the edge, which denoising needs, if the solver computed them anyway.
    """
    if means is None:
        means = [data.moments.mean for data in (task.target, *task.backgrounds)]
    by_itself = task.mixture is None or task.wanted.own_centre
    judged = plain if plain is not None and task.has_edge(rank) else np.empty(0)
    signal = None
    if task.wanted.axes == "signal" and task.mixture is not None:
        signal, found = _specific(*_signal(task, found, judged, rank, own))
        shown = min(count.shown, len(signal.gains))
        if len(judged) == 0:
            notes = [*notes, _unjudged(task, rank, shown)]
        elif 0 < shown < _number(task.wanted.n_components):
            notes = [*notes, _fewer(shown, task)]
        found = signal_axes(found, signal, frame.scale, shown)
    elif more is not None and len(judged):
        signal, _ = _specific(*_signal(task, more, judged, rank, own))
    return Solution(
        ratios=found.ratios,
        filters=found.filters,
        patterns=found.patterns,
        target_variance=found.target_variance,
        background_variance=found.background_variance,
        unshrunk_ratios=judged,
        mean=means[0] if by_itself or task.mixture is None else task.mixture.mixed_means(means[1:]),
        scale=frame.scale,
        rank=rank,
        n_infinite=min(n_infinite, len(found.ratios)),
        shrinkage=rho,
        n_factors=n_factors,
        regime="shrunk" if rho > 0 else "structural" if n_infinite > 0 else "exact",
        solver=solver,
        notes=tuple(notes),
        signal=signal,
        axes=task.wanted.axes if task.mixture is not None else "ratio",
    )


def _signal(task: Problem, found: Components, judged: Array, rank: int, own: Array | None) -> tuple[Signal, Components]:
    """Return the signal model for denoising: gains from the de-biased ratios, or from the ratios without an edge."""
    count = len(found.ratios)
    ratios = found.ratios
    if len(judged):
        ratios = debiased(judged[:count], rank, *task.units())
        if own is not None:  # bounded by the ratio against the unshrunk background
            ratios = np.fmin(ratios, own[:count])
    return Signal(found.filters, found.patterns, gains(ratios)), found


def _specific(signal: Signal, found: Components) -> tuple[Signal, Components]:
    """Drop components that are not specific to the target."""
    kept = signal.gains > 0
    if kept.all():
        return signal, found
    cut = Components(
        found.ratios[kept],
        found.filters[:, kept],
        found.patterns[:, kept],
        found.target_variance[kept],
        found.background_variance[kept],
    )
    return Signal(signal.filters[:, kept], signal.patterns[:, kept], signal.gains[kept]), cut


def _number(n_components: int | str | None) -> int:
    return n_components if isinstance(n_components, int) else 0


def _fewer(shown: int, task: Problem) -> Note:
    return Note(
        OverfitWarning,
        f"`n_components={task.wanted.n_components}`, and only {shown} above the noise edge: the signal has no more "
        "axes. Ask for as many, or use `axes='ratio'` to see components below the edge.",
    )


def _unjudged(task: Problem, rank: int, shown: int) -> Note:
    assert task.mixture is not None
    return Note(
        OverfitWarning,
        f"the signal has {shown} axes, made of the largest ratios as they are (those above one): with "
        f"{task.mixture.units:.0f} independent background units for {rank} dimensions no noise edge can tell which "
        "components are real. Give more background rows or fewer features to have them chosen and de-biased.",
    )
