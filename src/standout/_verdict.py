"""The verdict on significance, and the words and numbers in which results are reported.

All prose on significance is here, so that the page, the command line, JSON and the plots use the same words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from standout._cpca import ContrastiveModel
from standout._kernel_model import KernelModel
from standout._model import Model
from standout._shrinkage import estimate_text

if TYPE_CHECKING:
    from standout.inference.assess import Assessment
    from standout.inference.held_out import HeldOut
    from standout.inference.permutation import PermutationTest

# The level of significance, as for n_components="auto".
_LEVEL = 0.05
# The approximation of the p-value is not accurate farther out in the tail.
_SMALLEST_P = 1e-4
_EDGE = "the noise edge, the largest ratio expected from noise alone, is"
_SIGNIFICANT = "Significant target-specific variation"
_NOT_SIGNIFICANT = "No significant target-specific variation"


@dataclass(frozen=True)
class Verdict:
    """What can be concluded from the ratios."""

    kind: Literal["found", "nothing", "unknown", "plain"]
    headline: str
    sentences: tuple[str, ...]
    cautions: tuple[str, ...] = ()  # assumptions behind the noise edge and the p-value


def verdict(model: Model, assessment: Assessment | None = None) -> Verdict:
    """Return the verdict on a model; without a noise edge, the permutation test of the assessment decides."""
    result = _model_verdict(model)
    if assessment is None or not model.background_counts:
        return result
    if assessment.test is not None:
        result = _with_test(result, model, assessment.test)
    if assessment.held_out is not None:
        result = _with_held_out(result, assessment.held_out)
    return result


def _model_verdict(model: Model) -> Verdict:
    if not model.background_counts:
        sentences = (
            "No background was given, so nothing is compared.",
            "The components show where the target varies most, whether or not that variation is specific to it. Give a "
            "background measured on the same features to find what is specific.",
        )
        return Verdict("plain", f"{method_name(model)} of the target, without a background", sentences)
    if math.isnan(model.noise_edge) or math.isnan(model.p_value):
        return _without_edge(model)
    if model.n_components == 0:
        sentence = (
            f"{capitalized(_EDGE)} {number(model.noise_edge)}. No direction of the target is significantly above it "
            f"({p_text(model.p_value)}), so the model has no components."
        )
        return Verdict("nothing", _NOT_SIGNIFICANT, (sentence,), _cautions(model))
    if np.isinf(model.ratios).any():
        return _infinite(model)
    return _with_edge(model)


def _without_edge(model: Model) -> Verdict:
    advice = (
        "Evaluate the components on new rows: score(new_target, background=new_background) is not above zero if "
        "nothing is specific to the target."
    )
    largest = f"The largest ratio is {number(model.ratios[0])}" if model.n_components else "There are no components"
    if model.regime == "shrunk" and model.n_components:
        largest += f", with the background covariance {_background_estimate(model)}"
    if isinstance(model, KernelModel):
        reason = "A flexible kernel gives large ratios on pure noise too, so the ratios alone are not evidence."
        return Verdict("unknown", "Significance cannot be computed for this kernel", (f"{largest}. {reason}", advice))
    if model.target_counts.units < 2:
        reason = "The target has fewer than two independent units, so no p-value can be computed"
    else:
        units, freedom = round(model.background_units), round(model.background_units - 1)
        reason = (
            f"{count(units, 'independent background unit')} leave{'s' if units == 1 else ''} {freedom} degree"
            f"{'' if freedom == 1 else 's'} of freedom for {count(model.rank, 'dimension')}, so no noise edge can be "
            "computed"
        )
    sentence = f"{reason}. {largest}; noise alone may reach this."
    return Verdict("unknown", "Too little data to assess significance", (sentence, advice), _cautions(model)[:1])


def _infinite(model: Model) -> Verdict:
    sentences = [
        f"Along {np.isinf(model.ratios).sum()} of the {count(model.n_components, 'component')} the target varies and "
        "the background does not vary at all, so the ratio is infinite. This is either the strongest possible effect "
        "or an artefact of the background data: a feature that is constant there, or computed from other features."
    ]
    finite = model.ratios[np.isfinite(model.ratios)]
    if len(finite):
        sentences.append(f"The largest finite ratio is {number(finite[0])}; {_EDGE} {number(model.noise_edge)}.")
    headline = "Infinite ratios: a real effect or an artefact"
    return Verdict("unknown", headline, tuple(sentences), _cautions(model)[:1])


def _with_edge(model: Model) -> Verdict:
    significant = model.p_value < _LEVEL
    edge, p = f"{_EDGE} {number(model.noise_edge)}", p_text(model.p_value)
    first, largest = model.unshrunk_ratios[0], number(model.ratios[0])
    shrunk = model.regime == "shrunk"
    if isinstance(model, ContrastiveModel) or math.isnan(first):
        # These components do not maximise the ratio; the noise edge and the p-value refer to the one that does.
        sentences = [
            f"{capitalized(edge)}. The largest ratio among all directions, which dPCA finds, is "
            f"{'significant' if significant else 'not significant'} ({p}). The components shown have ratios of up to "
            f"{number(model.ratios.max())}."
        ]
    else:
        # The noise edge and the p-value do not account for a penalty on the feature graph.
        penalised = not shrunk and not math.isclose(first, model.ratios[0], rel_tol=1e-6)
        kind = "unshrunk ratio" if shrunk else "ratio without the graph penalty" if penalised else "ratio"
        sentences = [f"The largest {kind} is {number(first)} ({p}); {edge}."]
        if model.n_components > 1 and significant:
            above = int((model.unshrunk_ratios > model.noise_edge).sum())
            sentences.append(f"{_components_above(above, model.n_components)} above the noise edge.")
        if shrunk:
            sentences.append(
                f"With the background covariance {_background_estimate(model)}, the largest ratio is {largest}."
            )
        if penalised:
            sentences.append(f"With the graph penalty on rough components, the largest ratio is {largest}.")
    if significant:
        return Verdict("found", _SIGNIFICANT, tuple(sentences), _cautions(model))
    return Verdict("nothing", _NOT_SIGNIFICANT, tuple(sentences), _cautions(model))


def _components_above(above: int, shown: int) -> str:
    if above == shown:
        return "Both components shown are" if shown == 2 else f"All {shown} components shown are"
    return f"{above} of the {shown} components shown {'is' if above == 1 else 'are'}"


def _cautions(model: Model) -> tuple[str, ...]:
    """Return the assumptions behind the noise edge and the p-value: independence, then the distribution."""
    counts = [model.target_counts, *(counts for _, counts in model.background_counts)]
    independence = (
        "Rows of the same group are counted as one independent unit."
        if any(round(part.units) < part.rows for part in counts)
        else "Every row is counted as independent. If several rows come from one subject, give groups; otherwise the "
        "p-value is too small."
    )
    what = "Gaussian kernel features" if isinstance(model, KernelModel) else "Gaussian data"
    return (independence, f"The p-value assumes {what}; it is anti-conservative under heavy tails.")


def _with_test(result: Verdict, model: Model, test: PermutationTest) -> Verdict:
    """Add the permutation test to a verdict; it decides where there is no noise edge."""
    outcome = _test_outcome(test, model)
    if isinstance(model, KernelModel):  # the test is for linear directions, not for these functions
        return replace(result, sentences=(*result.sentences, outcome))
    conclusive = test.smallest_p <= _LEVEL
    if math.isnan(model.p_value):
        reason = result.sentences[:1]  # without the advice to test
        cautions = result.cautions[:1]
        if not conclusive:
            what = test.permuted if test.complete else "permutations"
            return Verdict("unknown", f"Too few {what} to assess significance", (outcome, *reason))
        if test.count():
            basis = "No noise edge can be computed for these data, so the verdict rests on the permutation test."
            return Verdict("found", _SIGNIFICANT, (outcome, basis), cautions)
        return Verdict("nothing", _NOT_SIGNIFICANT, (outcome, *reason), cautions)
    sentences = (*result.sentences, outcome)
    contradicted = result.kind == ("nothing" if test.count() else "found")
    if contradicted and conclusive:
        advice = "The noise edge assumes Gaussian data and the permutation test does not: rely on the test."
        headline = "Noise edge and permutation test disagree"
        return replace(result, kind="unknown", headline=headline, sentences=(*sentences, advice))
    return replace(result, sentences=sentences)


def _test_outcome(test: PermutationTest, model: Model) -> str:
    owner = ""
    if isinstance(model, KernelModel):
        owner = " (of linear dPCA, not of this kernel)"
    elif isinstance(model, ContrastiveModel):
        owner = " (of dPCA)"
    p, drawn = float(test.p_values[0]), test.null.shape[1]
    p_value = f"p = {number(p)}".replace(" ", "\N{NO-BREAK SPACE}")
    outcome = f"Permutation test: the largest ratio{owner} is {number(float(test.ratios[0]))}"
    if test.smallest_p > _LEVEL:
        if test.complete:
            reason = f"only {number(test.n_possible)} distinct labellings of the {test.permuted} exist"
            remedy = f"Give more {test.permuted}"
        else:
            reason, remedy = f"only {drawn} permutations were drawn", "Use more permutations"
        return (
            f"{outcome} ({p_value}). No p-value below {number(test.smallest_p)} is possible, because {reason}, so the "
            f"test cannot be significant at the 5 % level. {remedy}."
        )
    n_significant = test.count()
    text = f"{outcome}, which is {'significant' if n_significant else 'not significant'} ({p_value})."
    # Other random permutations could move the p-value across the level.
    uncertain = abs(p - _LEVEL) <= 2 * math.sqrt(_LEVEL * (1 - _LEVEL) / drawn)
    if uncertain and not test.complete and p > test.smallest_p:
        text += f" With {count(drawn, 'permutation')} that is too close to 5 % to be conclusive; use more permutations."
    if n_significant and len(test.ratios) > 1:
        verb = "is" if n_significant == 1 else "are"
        text += f" {n_significant} of the {len(test.ratios)} components tested {verb} significant."
    return text


def _with_held_out(result: Verdict, held: HeldOut) -> Verdict:
    ratio, low, high = (float(values[0]) for values in (held.ratios, held.low, held.high))
    known = not (math.isnan(low) or math.isnan(high))
    interval = f" ({100 * held.level:g} % interval {number(low)} to {number(high)})" if known else ""
    unclear = "" if low > 1 else ", which is not clearly above one"
    sentence = f"On held-out {held.by} the first component has a ratio of {number(ratio)}{interval}{unclear}."
    sentences = (*result.sentences, sentence)
    if result.kind == "found" and unclear:
        headline = f"Significant, but not confirmed on held-out {held.by}"
        return replace(result, kind="unknown", headline=headline, sentences=sentences)
    return replace(result, sentences=sentences)


def held_out_text(low: float, high: float) -> str:
    """Return where the interval of a held-out ratio lies."""
    if math.isnan(low) or math.isnan(high):
        return "unknown"
    return "above one" if low > 1 else "below one" if high < 1 else "not clearly above one"


def permutation_text(test: PermutationTest) -> str:
    """Return what was permuted, and how often."""
    drawn = f"All {test.n_possible:,.0f} distinct" if test.complete else f"{test.null.shape[1]:,} random"
    if test.permuted == "pairs":
        return f"{drawn} swaps of labels within {test.units[0]:,} pairs were evaluated."
    backgrounds = " + ".join(f"{units:,}" for units in test.units[1:])
    return (
        f"{drawn} labellings of the {test.permuted} ({test.units[0]:,} in the target, {backgrounds} in the background) "
        "were evaluated."
    )


def p_text(value: float) -> str:
    """Format a p-value, no smaller than its approximation is accurate."""
    text = f"p < {_SMALLEST_P:.4f}" if value < _SMALLEST_P else f"p = {value:.2g}"
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def interval_text(low: float, high: float) -> str:
    """Format an interval for a table; a dash if it is undefined."""
    if math.isnan(low) or math.isnan(high):
        return number(math.nan)
    return f"{number(low, trimmed=False)} to {number(high, trimmed=False)}"


def capitalized(text: str) -> str:
    """Return text with an upper-case first letter."""
    return text[:1].upper() + text[1:]


def method_name(model: Model) -> str:
    """Return the name of the method."""
    kernel = "kernel " if isinstance(model, KernelModel) else ""
    if not model.background_counts:
        return f"{kernel}PCA"
    return "cPCA" if isinstance(model, ContrastiveModel) else f"{kernel}dPCA"


def _background_estimate(model: Model) -> str:
    """Return how a background covariance that was shrunk was estimated."""
    if isinstance(model, KernelModel):
        return f"shrunk by {number(model.shrinkage)} towards the identity in the kernel's norm"
    if isinstance(model, ContrastiveModel):
        return f"shrunk by {number(model.shrinkage)} towards its diagonal"
    return f"estimated by {estimate_text(model.shrinkage, model.n_factors)}"


def problem(model: Model) -> str:
    """Return which problem was solved."""
    if not model.background_counts:
        return "no background"
    if model.regime == "shrunk":
        return f"background covariance {_background_estimate(model)}"
    if isinstance(model, ContrastiveModel):
        path = model.path
        search = "" if path is None else f", chosen from {len(path.representatives)} representatives of the search"
        return f"alpha = {number(model.alpha)}{search}"
    if model.regime == "structural":
        return "exact; the background does not vary in some directions"
    return "exact, without shrinkage"


def number(value: float, *, trimmed: bool = True) -> str:
    """Format a number with at least three digits; ``trimmed=False`` keeps trailing zeros, for tables."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if 1000 <= abs(value) < 1e7:
        return f"{value:,.0f}".replace("-", "−")
    text = f"{value:.3g}" if trimmed or value == 0 else f"{value:#.3g}".rstrip(".")
    return text.replace("-", "−")


def count(amount: float, noun: str) -> str:
    """Format a count with its noun."""
    return f"{amount:,.0f} {noun}{'' if round(amount) == 1 else 's'}"
