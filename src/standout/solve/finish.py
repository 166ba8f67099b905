"""From components to a solution: the signal's own axes where asked, the centre, and what was done."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from standout.blas import Array
from standout.errors import OverfitWarning
from standout.solve.result import Components, Frame, Note, Solution
from standout.solve.signal import Signal, gains, signal_axes
from standout.solve.task import Count, Task
from standout.spectrum import debiased


def solution(
    task: Task,
    found: Components,
    frame: Frame,
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
    """Put a solution together.

    ``own`` are the ratios of the components against the background as it is, where it was shrunk;
    ``more`` all components above the edge, where the solver has them anyway: what denoising needs.
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
        plain_ratios=judged,
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


def _signal(task: Task, found: Components, judged: Array, rank: int, own: Array | None) -> tuple[Signal, Components]:
    """Return what denoising needs: gains by the de-biased ratios, by the ratios themselves without an edge."""
    count = len(found.ratios)
    ratios = found.ratios
    if len(judged):
        ratios = debiased(judged[:count], rank, *task.units())
        if own is not None:  # no component is worth more than its own ratio against the plain background
            ratios = np.fmin(ratios, own[:count])
    return Signal(found.filters, found.patterns, gains(ratios)), found


def _specific(signal: Signal, found: Components) -> tuple[Signal, Components]:
    """Leave out components that are nothing specific to the target."""
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


def _fewer(shown: int, task: Task) -> Note:
    return Note(
        OverfitWarning,
        f"n_components={task.wanted.n_components}, and only {shown} above the noise edge: the signal has no more "
        "axes. Ask for as many, or use axes='ratio' to see components below the edge.",
    )


def _unjudged(task: Task, rank: int, shown: int) -> Note:
    assert task.mixture is not None
    return Note(
        OverfitWarning,
        f"the signal has {shown} axes, made of the largest ratios as they are (those above one): with "
        f"{task.mixture.units:.0f} independent background units for {rank} dimensions no noise edge can tell which "
        "components are real. Give more background rows or fewer features to have them chosen and de-biased.",
    )
