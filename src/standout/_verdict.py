"""The verdict: the only place that turns evidence into a conclusion, with its reasons and the next step.

Summaries, the command line, JSON, the report and the plots use these words and numbers, and word no verdict themselves.
The specification is the table of cases in ``tests/verdict_cases.py``, which docs/explanation/is-it-real.md shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from standout._display import Summary, count, interval, joined, number, to_html
from standout._model import Model
from standout._moments import Counts
from standout._shrinkage import estimate_text
from standout._spectrum import count_components, critical_value
from standout.errors import DoubtWarning, ReplicateWarning, SerialWarning, TableWarning, listed, visible
from standout.solvers.solution import Note

if TYPE_CHECKING:
    from standout.inference.assess import Assessment
    from standout.inference.held_out import HeldOut
    from standout.inference.permutation import PermutationTest

Kind = Literal["stands_out", "may_stand_out", "noise", "not_judged", "no_background"]

# The level of significance, as for n_components="auto".
LEVEL = 0.05
# How far into the tail p-values are printed: as far as the exact distribution was checked, and less far where the
# formula is an approximation, with groups or weights.
_SMALLEST_EXACT, _SMALLEST_APPROXIMATE = "1e-12", "1e-4"
# Lower ends of the bootstrap correlation above which a component is stable, or can at least be interpreted.
_STABLE, _INTERPRETABLE = 0.9, 0.5
# What the noise edge is, wherever a line is drawn or explained. It is not the critical value of a 5 % test.
EDGE = "the largest ratio expected from noise (exceeded by pure noise in about 6–15 % of fits)"
_COMMAND = "standout test TARGET -b BACKGROUND"
# Doubts about the data, the most serious first: dependent rows invalidate every p-value that counts rows.
_DOUBTS = {
    ReplicateWarning: "rows look like replicates of fewer independent units",
    SerialWarning: "consecutive rows are correlated",
    TableWarning: "the tables need a check first",
    DoubtWarning: "the data need a check first",
}
_DEPENDENT = (ReplicateWarning, SerialWarning)


@dataclass(frozen=True)
class NextStep:
    """What to do next, as a Python call and as a command; None where the command line has no counterpart."""

    purpose: str
    python: str
    command: str | None

    def text(self, *, on_command_line: bool = False) -> str:
        """Return the step in the language of the user."""
        return f"To {self.purpose}: {self.command if on_command_line and self.command else self.python}"


@dataclass(frozen=True)
class Verdict:
    """What can be concluded, and why."""

    kind: Kind
    headline: str
    reasons: tuple[str, ...]  # in order of weight: doubts about the data first
    next_step: NextStep | None = None
    n_established: int | None = None  # number of leading components that the evidence supports; None if unknown
    n_doubts: int = 0  # how many of the reasons are doubts about the data

    def summary(self, notes: Sequence[str] = (), *, on_command_line: bool = False) -> Summary:
        """Return the verdict and further notes as text and as HTML."""
        step = [] if self.next_step is None else [self.next_step.text(on_command_line=on_command_line)]
        marks = ["!"] * self.n_doubts + ["-"] * (len(self.reasons) - self.n_doubts)
        lines = [self.headline, *(f"  {mark} {reason}" for mark, reason in zip(marks, self.reasons, strict=True))]
        lines += [*(f"  {each}" for each in step), *(f"  ! {note}" for note in notes)]
        lines = [visible(line, lines=False) for line in lines]  # a command can name a file with a line break
        return Summary("\n".join(lines), to_html(self.headline, notes=[*self.reasons, *step, *notes]))

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict for the JSON of the command line."""
        step = None if self.next_step is None else self.next_step.text(on_command_line=True)
        return {"kind": self.kind, "headline": self.headline, "reasons": list(self.reasons), "next_step": step}


def verdict(model: Model, assessment: Assessment | None = None, command: str | None = None) -> Verdict:
    """Return the verdict on a model; ``command`` tests the same data, for the next step.

    A permutation test decides, and is confirmed by the held-out ratio. Without a test the formula can support
    "May stand out" at most. Doubts about the data withhold a positive verdict.
    """
    if not model.background_counts:
        reason = (
            "Nothing is compared: the components show where the target varies most, whether or not that variation is "
            "specific to it. Give a background measured on the same features to find what is specific."
        )
        return Verdict("no_background", f"{model.method} of the target, no background", (reason,))
    test, held_out = (None, None) if assessment is None else (assessment.test, assessment.held_out)
    linear = test if _is_linear(model) else None  # the test is of linear directions, not of a kernel's functions
    kind, why = _by_formula(model, held_out) if linear is None else _by_test(model, linear, held_out)
    established = _n_established(model, linear, held_out, kind)
    doubts = _doubts(model, assessment)
    dependent = bool(doubts) and issubclass(doubts[0].category, _DEPENDENT)
    if (doubts and kind in ("stands_out", "may_stand_out")) or (dependent and kind == "not_judged"):
        kind = "not_judged" if dependent else "may_stand_out"
        why = next(phrase for category, phrase in _DOUBTS.items() if issubclass(doubts[0].category, category))
    reasons = [note.text for note in doubts]
    if test is not None:
        reasons.append(_test_reason(model, test))
    if held_out is not None:
        reasons.append(_held_out_reason(model, held_out))
    reasons.append(_formula_reason(model, linear))
    if kind in ("stands_out", "may_stand_out"):
        reasons += _component_reasons(model, established, linear, assessment) if established else []
        reasons += _cautions(model, linear)
    headline = f"May stand out: {why}"
    if kind == "stands_out":
        headline = "Stands out" + (f": {_listed(model.component_names[:established])}" if established else "")
    elif kind == "noise":
        headline = "Cannot be told from noise"
    elif kind == "not_judged":
        headline, established = f"Cannot be judged: {why}", None
    step = _next_step(model, kind, linear, held_out, dependent, command or _COMMAND)
    return Verdict(kind, headline, tuple(reasons), step, established, len(doubts))


def _counts(model: Model) -> list[Counts]:
    return [model.target_counts, *(counts for _, counts in model.background_counts)]


def _is_linear(model: Model) -> bool:
    return not model.method.startswith("kernel")


def _maximises_ratio(model: Model) -> bool:
    """Return whether the components are those that the formula and the permutation test refer to."""
    return model.method != "cPCA" and not (_has_edge(model) and np.isnan(model.unshrunk_ratios[:1]).any())


def _has_edge(model: Model) -> bool:
    return not (math.isnan(model.noise_edge) or math.isnan(model.p_value))


def _is_infinite(model: Model) -> bool:
    """Return whether the target varies where the background does not, also if shrinkage hides that."""
    return bool(np.isinf(model.ratios).any() or np.isinf(model.unshrunk_ratios).any())


def _by_test(model: Model, test: PermutationTest, held_out: HeldOut | None) -> tuple[Kind, str]:
    """Return the kind of the verdict and the rest of its headline, from a permutation test."""
    if test.smallest_p > LEVEL:
        return "not_judged", f"too few {test.permuted if test.complete else 'permutations'} for a test at the 5 % level"
    rest = test.without_rare
    if test.count(LEVEL) == 0:
        if rest is not None and rest.count(LEVEL):
            return "may_stand_out", f"significant only without {listed(test.rare)}, which vary in few rows"
        return "noise", ""
    if rest is not None and rest.count(LEVEL) == 0:
        return "may_stand_out", f"significant only with {listed(test.rare)}, which vary in few rows"
    if _is_near_level(test):
        return "may_stand_out", "the p-value is too close to 5 % for this number of permutations"
    if _is_infinite(model):
        return "may_stand_out", "infinite ratios, from a strong effect or an artefact"
    if model.method == "cPCA":
        return "may_stand_out", "the permutation test is of the components of dPCA, not of these"
    if held_out is None:
        return "may_stand_out", "significant, but the held-out ratio was not computed"
    if not held_out.low[0] > 1:
        return "may_stand_out", f"significant, but not confirmed on held-out {held_out.by}"
    return "stands_out", ""


def _by_formula(model: Model, held_out: HeldOut | None) -> tuple[Kind, str]:
    """Return the same without a test: never more than "may stand out"."""
    confirmed = held_out is not None and bool(held_out.low[0] > 1)
    if _has_edge(model) and model.n_components and model.p_value < LEVEL:
        if _is_infinite(model):
            return "may_stand_out", "infinite ratios, from a strong effect or an artefact"
        if model.method == "cPCA":
            return "may_stand_out", "the formula refers to the components of dPCA, not to these"
        if held_out is not None and not confirmed:
            return "may_stand_out", f"significant by the formula, but not confirmed on held-out {held_out.by}"
        return "may_stand_out", f"significant by the formula ({p_text(model)}){_also(held_out)}, not yet tested"
    if held_out is not None and confirmed:
        return "may_stand_out", f"above one on held-out {held_out.by}, but without a permutation test"
    if _has_edge(model):
        return "noise", ""
    if not _is_linear(model):
        return "not_judged", "no formula and no test applies to this kernel"
    side = "target" if model.target_counts.units < 2 else "background"
    return "not_judged", f"too few independent {side} rows for the formula, and no permutation test"


def _n_established(model: Model, test: PermutationTest | None, held_out: HeldOut | None, kind: Kind) -> int | None:
    """Return the number of leading components that sequential tests support; None if they are other components."""
    if kind == "noise":
        return 0
    if not _maximises_ratio(model) or (test is None and not _has_edge(model)):
        return None
    if test is None:
        units = (model.target_counts.units, model.background_units)
        number_above = count_components(model.unshrunk_ratios, model.rank, *units)
    else:
        number_above = min(test.count(LEVEL), model.n_components)
    if held_out is not None:
        number_above = int(np.argmin([*(held_out.low[:number_above] > 1), False]))
    return number_above


def _doubts(model: Model, assessment: Assessment | None) -> list[Note]:
    """Return the findings that withhold a positive verdict, the most serious first."""
    replicates = () if assessment is None else assessment.replicates
    notes = (*model.notes, *(Note(ReplicateWarning, finding.text) for finding in replicates))
    found = {note.text: note for note in notes if issubclass(note.category, DoubtWarning)}
    return sorted(found.values(), key=lambda note: [not issubclass(note.category, kind) for kind in _DOUBTS])


def _test_reason(model: Model, test: PermutationTest) -> str:
    owner = "" if _is_linear(model) else " of linear dPCA, not of this kernel"
    labellings = f"all {number(test.n_possible)}" if test.complete else f"{test.null.shape[1]:,} random"
    by = f"{labellings} labellings of the {test.permuted}"
    text = f"Permutation test{owner}: p = {number(float(test.p_values[0]))} for the largest ratio, by {by}."
    if test.smallest_p > LEVEL:
        remedy = f"Give more {test.permuted}" if test.complete else "Use more permutations"
        return f"{text} No p-value below {number(test.smallest_p)} is possible with so few. {remedy}."
    if _is_near_level(test):
        text += " That is too close to 5 % to be conclusive; use more permutations."
    return text


def _is_near_level(test: PermutationTest) -> bool:
    """Return whether other random permutations could move the p-value across the level."""
    p, error = float(test.p_values[0]), math.sqrt(LEVEL * (1 - LEVEL) / test.null.shape[1])
    return not test.complete and p > test.smallest_p and abs(p - LEVEL) <= 2 * error


def _held_out_reason(model: Model, held: HeldOut) -> str:
    ratio, low, high = (float(values[0]) for values in (held.ratios, held.low, held.high))
    unclear = "" if low > 1 else ", which is not clearly above one"
    return f"The held-out ratio of {model.component_names[0]} is {ratio_text(ratio, low, high, held.level)}{unclear}."


def ratio_text(ratio: float, low: float, high: float, level: float) -> str:
    """Format a held-out ratio, with its interval if it is defined."""
    known = not (math.isnan(low) or math.isnan(high))
    return number(ratio) + (f" ({100 * level:g} % interval {interval(low, high)})" if known else "")


def _formula_reason(model: Model, test: PermutationTest | None) -> str:
    """Return the ratio with its noise edge and p-value, or why there are none, and whether the test disagrees."""
    ratio = f"The ratio of {model.component_names[0]} is {number(model.ratios[0])}" if model.n_components else ""
    if not _has_edge(model) and not _is_linear(model):
        return f"{ratio}. A flexible kernel gives large ratios on pure noise too."
    if not _has_edge(model):
        return f"{ratio or 'There are no components'}; {_no_edge(model)}."
    edge, p = f"the noise edge, {EDGE}, is {number(model.noise_edge)}", p_text(model)
    if model.n_components == 0:
        text = f"No ratio is significant by the formula ({p}); {edge}."
    elif np.isinf(model.ratios).any():
        text = (
            f"Along {_listed([n for n, r in zip(model.component_names, model.ratios, strict=True) if np.isinf(r)])} "
            "the target varies and the background does not, so the ratio is infinite: a strong effect, or an artefact "
            "such as a feature that is constant in the background or computed from other features."
        )
    elif not _maximises_ratio(model):
        text = f"{ratio}. By the formula, the largest ratio among all directions has {p}; {edge}."
    else:
        first = float(model.unshrunk_ratios[0])
        if model.regime == "shrunk":
            text = f"{ratio}, the unshrunk ratio {number(first)} ({p} by the formula); {edge}."
        elif math.isclose(first, model.ratios[0], rel_tol=1e-6):
            text = f"{ratio} ({p} by the formula); {edge}."
        else:  # a penalty on the feature graph, which the formula does not account for
            text = f"{ratio}, without the graph penalty {number(first)} ({p} by the formula); {edge}."
    if test is not None and test.smallest_p <= LEVEL and (test.count(LEVEL) > 0) != (model.p_value < LEVEL):
        text += " The formula assumes Gaussian data and the permutation test does not: the test decides."
    return text


def _no_edge(model: Model) -> str:
    if model.target_counts.units < 2:
        return f"the target has {number(model.target_counts.units)} independent units, so no p-value can be computed"
    units, freedom = round(model.background_units), round(model.background_units - 1)
    return (
        f"{count(units, 'independent background unit')} leave{'s' if units == 1 else ''} "
        f"{count(freedom, 'degree')} of freedom for {count(model.rank, 'dimension')}, so no noise edge can be "
        "computed, and noise alone may reach such a ratio"
    )


def _component_reasons(
    model: Model, established: int, test: PermutationTest | None, assessment: Assessment | None
) -> list[str]:
    """Return which components are supported, and which of these are unstable."""
    names, reasons = model.component_names, []
    supported, rest = names[:established], names[established:]
    if len(names) > 1:
        by = "by the formula" if test is None else "in the permutation test"
        also = _also(None if assessment is None else assessment.held_out)
        not_established = f"; {_listed(rest)} {_be(rest)} not established" if rest else ""
        noun = "Component" if len(supported) == 1 else "Components"
        reasons.append(f"{noun} {_listed(supported)} {_be(supported)} significant {by}{also}{not_established}.")
    if assessment is not None and assessment.stability is not None:
        reasons += [
            f"The direction of {name} varies between bootstrap samples (correlation {low:.2f} to {high:.2f}): do not "
            "interpret its features."
            for name, low, high in zip(supported, assessment.stability.low, assessment.stability.high, strict=False)
            if low < _INTERPRETABLE
        ]
    return reasons


def _also(held_out: HeldOut | None) -> str:
    return "" if held_out is None else f" and above one on held-out {held_out.by}"


def _cautions(model: Model, test: PermutationTest | None) -> list[str]:
    """Return the assumptions behind a positive verdict."""
    cautions = []
    if all(round(part.units) == part.rows for part in _counts(model)) and (test is None or test.permuted == "rows"):
        remedy = "If several rows come from one subject, give `groups=`; otherwise the p-value is too small."
        cautions.append(f"Every row is counted as independent. {remedy}")
    if test is None and _has_edge(model):
        what = "Gaussian data" if _is_linear(model) else "Gaussian kernel features"
        cautions.append(f"The formula assumes {what}; under heavy tails its p-value is too small.")
    return cautions


def _next_step(
    model: Model, kind: Kind, test: PermutationTest | None, held_out: HeldOut | None, dependent: bool, command: str
) -> NextStep | None:
    groups = ("groups=groups", "background_groups=background_groups")
    grouped = groups if any(round(part.units) < part.rows == part.weight for part in _counts(model)) else ()
    size = f"n_components={max(model.n_components, 1)}"
    if dependent and kind == "not_judged":
        given = command if "--groups" in command else f"{command} --groups COLUMN"
        return NextStep("test again with the independent unit of each row", _call("assess", size, *groups), given)
    if not _is_linear(model):
        call = _call("held_out_ratio", "estimator=model", *grouped)
        return None if held_out is not None else NextStep("measure the ratio on held-out rows", call, None)
    if test is None:
        purpose = {"may_stand_out": "confirm it", "noise": "check it without assuming Gaussian data"}
        return NextStep(purpose.get(kind, "test it"), _call("assess", size, *grouped), command)
    if not test.complete and (test.smallest_p > LEVEL or _is_near_level(test)):
        permutations = max(999, 10 * test.null.shape[1])
        call = _call("assess", size, f"n_permutations={permutations}", *grouped)
        return NextStep("use more permutations", call, f"{command} --permutations {permutations}")
    if kind == "may_stand_out" and held_out is None:
        return NextStep("measure the held-out ratio", _call("held_out_ratio", size, *grouped), command)
    return None


def _call(function: str, *arguments: str) -> str:
    return f"standout.{function}({', '.join(['target', 'background', *arguments])})"


def _listed(names: Sequence[str]) -> str:
    return f"{names[0]} to {names[-1]}" if len(names) > 3 else joined(names)


def _be(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def problem_text(model: Model) -> str:
    """Return which problem was solved."""
    if model.regime == "shrunk":
        return f"background covariance {background_estimate(model)}"
    if model.regime == "structural":
        return "exact; the background does not vary in some directions (infinite ratios)"
    return "exact"


def background_estimate(model: Model) -> str:
    """Return how a background covariance that was shrunk was estimated."""
    if not _is_linear(model):
        return f"shrunk by {number(model.shrinkage)} toward the identity in the kernel's norm"
    if model.method == "cPCA":
        return f"shrunk by {number(model.shrinkage)} toward its diagonal"
    return f"estimated by {estimate_text(model.shrinkage, model.n_factors)}"


def stable_words(low: float) -> str:
    """Describe the stability of a component, given the lower end of its correlation."""
    return "stable" if low >= _STABLE else "varies between samples" if low >= _INTERPRETABLE else "unstable"


def p_text(model: Model) -> str:
    """Format the p-value of the formula, no smaller than it is accurate: with groups or weights it is approximate."""
    parts = _counts(model)
    exact = len(parts) == 2 and all(part.units == part.rows for part in parts)
    smallest = _SMALLEST_EXACT if exact else _SMALLEST_APPROXIMATE
    return f"p < {smallest}" if model.p_value < float(smallest) else f"p = {model.p_value:.2g}"


def critical_ratio(model: Model) -> float:
    """Return the ratio that the largest ratio of Gaussian noise exceeds in 5 % of fits; NaN if there is none."""
    if not (model.background_counts and _has_edge(model)):
        return math.nan
    return critical_value(model.rank, model.target_counts.units, model.background_units, LEVEL)
