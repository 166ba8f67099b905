"""What a model says in plain words: the verdict, what each view shows, what reading did.

What results of resampling say in plain words, and what they do to the verdict.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from standout._base import BaseContrast
from standout._cpca import ContrastiveModel
from standout._kernel_model import KernelModel
from standout._model import Model
from standout._shrinkage import estimate_text
from standout.errors import listed
from standout.io.stream import ReadSummary
from standout.plot._style import count, number

if TYPE_CHECKING:
    from standout.inference.assess import Assessment
    from standout.inference.held_out import HeldOut
    from standout.inference.permutation import PermutationTest

# The level at which n_components="auto" tells a component from noise.
_LEVEL = 0.05
# The approximation behind the p-value says no more than this about its tail.
_SMALLEST_P = 1e-4
_LEVEL = 0.05


@dataclass(frozen=True)
class Verdict:
    """What can be said, in one line and in a few sentences."""

    kind: Literal["found", "nothing", "unknown", "plain"]
    headline: str
    sentences: tuple[str, ...]
    cautions: tuple[str, ...] = ()


def verdict(model: Model) -> Verdict:
    """Say what the ratios are worth, for every way in which the problem can be posed."""
    if not model.background_counts:
        return _without_background(model)
    if math.isnan(model.noise_edge) or math.isnan(model.p_value):
        return _without_edge(model)
    if model.n_components == 0:
        said = f"Noise alone would reach a ratio of {number(model.noise_edge)}, and no direction of the target can be "
        said += f"told from that ({p_text(model.p_value)}). There are no components to show."
        return Verdict("nothing", "Nothing stands out from noise", (said,), _cautions(model))
    if np.isinf(model.ratios).any():
        return _infinite(model)
    return _with_edge(model)


def _without_background(model: Model) -> Verdict:
    name = "kernel PCA" if isinstance(model, KernelModel) else "PCA"
    said = (
        "No background was given, so nothing is compared.",
        "The components show where the target varies most, whether or not that is specific to it. Give a background, "
        "measured on the same features, to find what is.",
    )
    return Verdict("plain", f"This is {name} of the target", said)


def _without_edge(model: Model) -> Verdict:
    check = (
        "Judge it on rows that the fit has not seen: score(new_target, background=new_background) is zero when there "
        "is nothing specific."
    )
    largest = f"The largest ratio is {number(model.ratios[0])}" if model.n_components else "There are no components"
    if model.regime == "shrunk" and model.n_components:
        largest += f", against the background {_estimated(model)}"
    if isinstance(model, KernelModel):
        why = "A flexible kernel gives large ratios on pure noise too, so the ratios alone prove nothing."
        return Verdict("unknown", "Whether this is more than noise is not known", (f"{largest}. {why}", check))
    if model.target_counts.units < 2:
        why = "The target has fewer than two independent units"
    else:
        units = model.background_units
        why = f"{count(units, 'independent background unit')} leave {units - 1:.0f} "
        why += f"{'degree' if round(units - 1) == 1 else 'degrees'} of freedom for "
        why += f"{count(model.rank, 'dimension')}"
    said = f"{why}, so it cannot be said what noise alone would reach. {largest}; noise may do the same."
    return Verdict("unknown", "Too little data to tell this from noise", (said, check), _cautions(model)[:1])


def _infinite(model: Model) -> Verdict:
    infinite = int(np.isinf(model.ratios).sum())
    said = [
        f"Along {infinite} of the {count(model.n_components, 'component')} the target varies and the background does "
        "not vary at all, so the ratio is infinite. That is either the strongest possible finding, or an artefact of "
        "how the background was recorded: a feature that is constant there, or computed from others.",
    ]
    rest = model.ratios[np.isfinite(model.ratios)]
    if len(rest):
        said.append(
            f"Of the other components the largest ratio is {number(rest[0])}; noise alone would reach "
            f"{number(model.noise_edge)}."
        )
    return Verdict("unknown", "Infinite ratios: a finding, or an artefact", tuple(said), _cautions(model)[:1])


def _with_edge(model: Model) -> Verdict:
    found = model.p_value < _LEVEL
    edge = f"Noise alone would reach a ratio of {number(model.noise_edge)}"
    chance = p_text(model.p_value)
    top = model.unshrunk_ratios[0]
    if isinstance(model, ContrastiveModel) or math.isnan(top):
        # These components do not maximise the ratio; edge and p-value speak of those that do.
        said = [
            f"{edge} in its best direction. In the best direction of this target, that of dPCA, the ratio is "
            f"{'more than chance gives' if found else 'no more than chance may give'} ({chance}). The components "
            f"shown here have ratios of up to {number(model.ratios.max())}."
        ]
    else:
        # A feature graph makes rough components pay, of which edge and p-value know nothing.
        priced = model.regime != "shrunk" and not math.isclose(top, model.ratios[0], rel_tol=1e-6)
        kind = "unshrunk ratio" if model.regime == "shrunk" else "ratio without the graph" if priced else "ratio"
        above = int((model.unshrunk_ratios > model.noise_edge).sum())
        said = [f"{edge}; the largest {kind} is {number(top)} ({chance})."]
        if model.n_components > 1 and found:
            said.append(f"{_of(above, model.n_components)} above that edge.")
        if model.regime == "shrunk":
            said.append(f"Against the background {_estimated(model)} the largest ratio is {number(model.ratios[0])}.")
        if priced:
            said.append(f"With the price that the graph puts on rough components it is {number(model.ratios[0])}.")
    if found:
        return Verdict("found", "The target stands out from the background", tuple(said), _cautions(model))
    return Verdict("nothing", "Nothing that can be told from noise", tuple(said), _cautions(model))


def _of(above: int, shown: int) -> str:
    if above == shown:
        return "Both components shown are" if shown == 2 else f"All {shown} components shown are"
    return f"Of the {shown} components shown, {above} {'is' if above == 1 else 'are'}"


def _cautions(model: Model) -> tuple[str, ...]:
    """Say what the edge and the p-value rest on."""
    counts = [model.target_counts, *(counts for _, counts in model.background_counts)]
    grouped = any(round(part.units) < part.rows for part in counts)
    independent = (
        "Rows of one group were counted as one independent unit."
        if grouped
        else "Each row was counted as independent. If several rows come from one subject, give groups: otherwise noise "
        "looks like a finding."
    )
    what = "features of the kernel" if isinstance(model, KernelModel) else "data"
    return (independent, f"The p-value is for Gaussian {what}; heavy tails make it too small.")


def p_text(value: float) -> str:
    r"""Write a p-value, as far down as its approximation can be trusted.

    Examples
    --------
    >>> p_text(3e-12), p_text(0.0321)
    ('p\xa0<\xa00.0001', 'p\xa0=\xa00.032')
    """
    text = f"p < {_SMALLEST_P:.4f}" if value < _SMALLEST_P else f"p = {value:.2g}"
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def method_name(model: Model) -> str:
    """Return what a method is called."""
    kernel = "kernel " if isinstance(model, KernelModel) else ""
    if not model.background_counts:
        return f"{kernel}PCA"
    return "cPCA" if isinstance(model, ContrastiveModel) else f"{kernel}dPCA"


def caption(estimator: BaseContrast, model: Model) -> str:
    """Say what a view shows."""
    if not model.background_counts:
        return "Where the target varies most, whether or not the background does too."
    if isinstance(model, ContrastiveModel):
        if model.alpha == 0:
            return "alpha = 0: where the target varies most, whether or not the background does too."
        found = "" if model.path is None else f", found among {count(len(model.path.values), 'step')}"
        return f"Target variance minus {number(model.alpha)} times background variance (alpha{found})."
    if isinstance(model, KernelModel):
        return f"Functions of the features that vary in the target more than in the background ({_kernel(model)})."
    if getattr(estimator, "axes", "ratio") == "signal":
        return "The largest variation in that part of the target which the background does not have."
    return "Where the target varies more than the background, largest ratio first."


def _estimated(model: Model) -> str:
    """Say how the background covariance was estimated, where it was shrunk."""
    if isinstance(model, KernelModel):
        return f"shrunk by {number(model.shrinkage)} toward the identity, in the kernel's norm"
    if isinstance(model, ContrastiveModel):
        return f"shrunk by {number(model.shrinkage)} toward its diagonal"
    return f"estimated by {estimate_text(model.shrinkage, model.n_factors)}"


def problem(model: Model) -> str:
    """Say which problem was solved."""
    if not model.background_counts:
        return "no background"
    if isinstance(model, ContrastiveModel) and model.regime != "shrunk":
        path = model.path
        found = "" if path is None else f", the pick of {len(path.representatives)} representatives of the search"
        return f"alpha = {number(model.alpha)}{found}"
    if model.regime == "shrunk":
        return f"background covariance {_estimated(model)}"
    if model.regime == "structural":
        return "exact; the background does not vary in some directions"
    return "exact, nothing was shrunk"


def _kernel(model: KernelModel) -> str:
    return f"kernel {model.landmarks.kernel.name}; {count(len(model.landmarks.rows), 'landmark')}"


def account_sentences(account: ReadSummary) -> list[str]:
    """Say what reading did to a dataset."""
    said = [f"{count(account.rows, 'row')} and {count(account.features, 'feature')} were used."]
    if account.missing:
        total = sum(account.missing.values())
        most = sorted(account.missing, key=lambda name: -account.missing[name])
        said.append(
            f"{count(total, 'value')} {'was' if total == 1 else 'were'} missing, in "
            f"{count(len(account.missing), 'feature')}: {listed(most)}."
        )
    if account.values_filled:
        how = "the mean of the feature" if account.filled_by == "means" else "draws from a model of what is observed"
        said.append(f"{count(account.values_filled, 'value')} filled in with {how}.")
    if account.rows_left_out:
        said.append(f"{count(account.rows_left_out, 'row')} left out for a missing value.")
    if account.features_left_out:
        lost = account.features_left_out
        said.append(f"{count(len(lost), 'feature')} left out for a missing value: {listed(lost)}.")
    if account.aside:
        said.append(f"{count(len(account.aside), 'column')} set aside as no features: {listed(account.aside)}.")
    return said


def code_of(estimator: BaseContrast, model: Model) -> str:
    """Return the lines of Python that fit such a model."""
    name = type(estimator).__name__
    given = "target, background=background" if model.background_counts else "target"
    return (
        f"from standout import {name}\n\nmodel = {' '.join(repr(estimator).split())}.fit({given})\n"
        "scores = model.transform(target)\nprint(model.summary())"
    )


def trusted_verdict(model: Model, trust: Assessment | None) -> Verdict:
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
