"""What the ratios of a solution are worth: edge, p-value, de-biased ratios, and a warning where it is little."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from standout.blas import Array
from standout.errors import OverfitWarning
from standout.mixture import Mixture
from standout.moments import Counts
from standout.solve import Note, Solution
from standout.spectrum import debiased, largest_root_p_value, noise_edge

# Beyond this share of dimensions to background units ratios are mostly noise.
_CROWDED = 0.5


@dataclass(frozen=True)
class Verdict:
    """What can be said about the ratios of the unshrunk problem; NaN where nothing can."""

    plain_ratios: Array  # (k,)
    noise_edge: float
    p_value: float
    debiased_ratios: Array  # (k,)
    notes: tuple[Note, ...] = ()


def judge(solution: Solution, target: Counts, backgrounds: Sequence[Counts], mixture: Mixture | None) -> Verdict:
    """Judge the ratios of a solution by the counts they rest on."""
    count = len(solution.ratios)
    plain = np.full(count, np.nan)
    if solution.axes == "ratio":  # the signal's axes are mixtures: no ratio of the exact problem is theirs
        plain[: len(solution.plain_ratios)] = solution.plain_ratios[:count]
    if mixture is None:
        return Verdict(plain, math.nan, math.nan, plain)
    counted = (solution.rank, target.units, mixture.units)
    first = float(solution.plain_ratios[0]) if len(solution.plain_ratios) else math.nan
    edge, p_value = noise_edge(*counted), largest_root_p_value(first, *counted)
    if solution.axes == "signal" and math.isnan(edge):
        text = ""  # the signal's own note has said it
    elif target.units < 2 and math.isnan(p_value) and not math.isnan(edge):
        text = _single_row(target)
    elif count == 0:
        text = _nothing_found(first, edge, p_value)
    else:
        grouped = any(counts.units < counts.rows for counts in backgrounds)
        rows = sum(counts.rows for counts in backgrounds)
        told = f"{mixture.units:.0f} independent background units" if grouped else f"{rows} background rows"
        text = _overfit(first, edge, p_value, solution.rank, mixture.units, f"{told} for {solution.rank} dimensions")
    notes = (Note(OverfitWarning, text),) if text else ()
    return Verdict(plain, edge, p_value, debiased(plain, *counted), notes)


def _overfit(first: float, edge: float, p_value: float, rank: int, units: float, told: str) -> str:
    """Say that ratios cannot be told from noise, or rest on too few background rows; else nothing."""
    if units - 1 <= rank:
        text = f"the ratios rest on {told}: so few give large ratios on pure noise, and no noise edge can be given."
    elif rank / (units - 1) > _CROWDED:
        text = f"the ratios rest on {told}: pure noise would reach a ratio of {edge:.3g}."
    elif first <= edge:
        text = (
            f"the largest ratio, {first:.3g}, is not above {edge:.3g}, which pure noise reaches with {told} "
            f"(p = {p_value:.2g})."
        )
    else:
        return ""
    return (
        f"{text} Judge them on rows the fit has not seen, with score(new_target, background=new_background), "
        "or give more background rows or fewer features."
    )


def _single_row(target: Counts) -> str:
    return (
        f"the target has {target.rows} rows worth {target.units:.2g} independent units, fewer than two, so no p-value "
        "can be given. Give more target rows, or weights that are less uneven."
    )


def _nothing_found(first: float, edge: float, p_value: float) -> str:
    return (
        f"found no component above noise: the largest ratio, {first:.3g}, cannot be told from it (edge {edge:.3g}, "
        f"p = {p_value:.2g}). Scores have no columns; use axes='ratio' with a number for n_components to see the "
        "components all the same."
    )
