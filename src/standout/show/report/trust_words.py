"""What results of resampling say in plain words, and what they do to the verdict."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from standout.estimators.cpca import ContrastiveModel
from standout.estimators.kernel_model import KernelModel
from standout.model import Model
from standout.show.report.words import Verdict, verdict
from standout.show.text import number

if TYPE_CHECKING:
    from standout.inference import HeldOut, PermutationTest, Trust

_LEVEL = 0.05


def trusted_verdict(model: Model, trust: Trust | None) -> Verdict:
    """Say what the ratios are worth, with what resampling tells: where no formula does, the test decides."""
    said = verdict(model)
    if trust is None or not model.background_counts:
        return said
    if trust.test is not None:
        said = _with_test(said, model, trust.test)
    if trust.held_out is not None:
        said = _with_held_out(said, trust.held_out)
    return said


def _with_held_out(said: Verdict, held: HeldOut) -> Verdict:
    sentences = (*said.sentences, _held_out_sentence(held))
    if said.kind == "found" and not held.low[0] > 1:
        return replace(said, kind="unknown", headline="Signs of a finding, not confirmed", sentences=sentences)
    return replace(said, sentences=sentences)


def _with_test(said: Verdict, model: Model, test: PermutationTest) -> Verdict:
    result = _result(test, model)
    if isinstance(model, KernelModel):  # the test is one of directions, not of these functions
        return replace(said, sentences=(*said.sentences, result))
    impossible = test.smallest_p > _LEVEL
    if math.isnan(model.p_value):
        # The check that the verdict proposes otherwise is what has been done here.
        reason = said.sentences[:1]
        if impossible:
            what = "labellings" if not test.complete else test.permuted
            return Verdict("unknown", f"Too few {what} to tell this from noise", (result, *reason))
        if test.count():
            why = "No formula tells here what noise alone would reach, so this goes by the permutation test."
            return Verdict("found", "The target stands out from the background", (result, why), _units(said))
        return Verdict("nothing", "Nothing that can be told from noise", (result, *reason), _units(said))
    both = (*said.sentences, result)
    opposed = said.kind == ("nothing" if test.count() else "found")
    if opposed and not impossible:
        why = "The formula is for Gaussian data, which the permutation test does not ask for: trust that one more."
        return replace(said, kind="unknown", headline="Formula and permutation test disagree", sentences=(*both, why))
    return replace(said, sentences=both)


def _units(said: Verdict) -> tuple[str, ...]:
    return said.cautions[:1]


def _result(test: PermutationTest, model: Model) -> str:
    """Return the result of the test in a sentence or two."""
    whose = "of linear dPCA, not of this kernel" if isinstance(model, KernelModel) else "of dPCA"
    of = f" (that {whose})" if isinstance(model, KernelModel | ContrastiveModel) else ""
    largest = f"The permutation test: the largest ratio{of} is {number(float(test.ratios[0]))}"
    chance = f"p = {number(float(test.p_values[0]))}".replace(" ", "\N{NO-BREAK SPACE}")
    if test.smallest_p > _LEVEL:
        why = f"only {number(test.n_possible)} different labellings of the {test.permuted} exist"
        why = why if test.complete else f"only {test.null.shape[1]} labellings were looked at"
        remedy = f"Give more {test.permuted}" if test.complete else "Ask for more permutations"
        return (
            f"{largest} ({chance}), and no p-value below {number(test.smallest_p)} is possible, because {why}. So the "
            f"test cannot tell anything from noise at the 5 % level. {remedy}."
        )
    close = _closeness(test)
    if not test.count():
        return (
            f"{largest}, and reshuffled labels give as large a one too often to tell it from noise ({chance}).{close}"
        )
    several = f" {test.count()} of {len(test.ratios)} components tested stand out." if len(test.ratios) > 1 else ""
    several = several.replace("tested stand", "tested stands") if test.count() == 1 else several
    return f"{largest}; reshuffled labels rarely give as large a one ({chance}).{close}{several}"


def _closeness(test: PermutationTest) -> str:
    """Say so where other random labellings could put the p-value on the other side of the level."""
    p, looked = float(test.p_values[0]), test.null.shape[1]
    if test.complete or abs(p - _LEVEL) > 2 * math.sqrt(_LEVEL * (1 - _LEVEL) / looked) or p <= test.smallest_p:
        return ""
    return f" With {looked:,} random labellings that is too close to 5 % to be sure; ask for more permutations."


def _held_out_sentence(held: HeldOut) -> str:
    ratio, low, high = (float(values[0]) for values in (held.ratios, held.low, held.high))
    ends = (
        ""
        if math.isnan(low) or math.isnan(high)
        else f" ({100 * held.level:g} % interval {number(low)} to {number(high)})"
    )
    shown = "" if low > 1 else ", which does not show that it is above one"
    return (
        f"On {held.by} that were not used to find it, the first component has a ratio of {number(ratio)}{ends}{shown}."
    )


def reshuffled(test: PermutationTest) -> str:
    """Say what was reshuffled, and how often."""
    if test.complete:
        looked = f"all {test.n_possible:,.0f} different labellings were looked at"
    else:
        looked = f"{test.null.shape[1]:,} labellings were looked at"
    others = " + ".join(f"{units:,}" for units in test.units[1:])
    if test.permuted == "pairs":
        return f"Labels were swapped within {test.units[0]:,} pairs; {looked}."
    return (
        f"The labels of {test.permuted} were reshuffled ({test.units[0]:,} in the target, {others} in the background); "
        f"{looked}."
    )


def held_words(low: float, high: float) -> str:
    """Say what the interval of a held-out ratio tells."""
    if math.isnan(low) or math.isnan(high):
        return "not known"
    return "holds" if low > 1 else "does not hold" if high < 1 else "not shown to hold"
