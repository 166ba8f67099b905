"""What a model says in plain words: the verdict, what each view shows, what reading did."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from standout.errors import listed
from standout.estimators.base import Contrast
from standout.estimators.cpca import ContrastiveModel
from standout.estimators.kernel_model import KernelModel
from standout.model import Model
from standout.show.text import count, number
from standout.shrinkage import estimate_text
from standout.sources.files.source import Account

# The level at which n_components="auto" tells a component from noise.
_LEVEL = 0.05
# The approximation behind the p-value says no more than this about its tail.
_SMALLEST_P = 1e-4


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
    top = model.plain_ratios[0]
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
        above = int((model.plain_ratios > model.noise_edge).sum())
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


def caption(estimator: Contrast, model: Model) -> str:
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


def account_sentences(account: Account) -> list[str]:
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


def code_of(estimator: Contrast, model: Model) -> str:
    """Return the lines of Python that fit such a model."""
    name = type(estimator).__name__
    given = "target, background=background" if model.background_counts else "target"
    return (
        f"from standout import {name}\n\nmodel = {' '.join(repr(estimator).split())}.fit({given})\n"
        "scores = model.transform(target)\nprint(model.summary())"
    )
