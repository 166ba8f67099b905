"""The sections of the page: each function returns a heading, the values for a template and figures, or None."""

from __future__ import annotations

import math
import platform
from datetime import datetime
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from standout._cpca import ContrastiveModel
from standout._kernel_model import KernelModel
from standout._model import Model
from standout._report.contents import Contents, Panel
from standout._report.figures import null_figure, point_sets, ratio_figure
from standout._verdict import (
    capitalized,
    count,
    held_out_text,
    interval_text,
    method_name,
    number,
    permutation_text,
    problem,
)
from standout._version import __version__
from standout.errors import listed
from standout.inference.held_out import HeldOut
from standout.inference.permutation import PermutationTest
from standout.inference.stability import Stability, stable_words
from standout.io.stream import ReadSummary
from standout.plot._components import STABLE_SIGN, has_patterns

_TOP_FEATURES = 10
# Limits beyond which a table or a row of cards only gives the number of further entries.
_MAX_CARDS = 8
_MAX_ROWS = 30


class Section(NamedTuple):
    """A section of the page, rendered by the template ``key.html.jinja``."""

    key: str
    title: str
    values: dict[str, Any]  # for the template, in addition to those of `common_values`
    figures: dict[str, Any] = {}  # noqa: RUF012 - plotly figures by name; ``name`` is drawn in ``figure-name``


def common_values(model: Model) -> dict[str, Any]:
    """Return the values that every template can use."""
    return {
        "model": model,
        "compared": bool(model.background_counts),
        "shrunk": model.regime == "shrunk",
        "has_edge": not math.isnan(model.noise_edge),
        "has_patterns": has_patterns(model),
    }


def _cell(value: float) -> str:
    return number(float(value), trimmed=False)


def scores(contents: Contents) -> Section:
    """Return one score plot per model, with a common legend."""
    total = sum(data.n_rows for data in contents.datasets)
    drawn = sum(len(data.positions) for data in contents.datasets)
    sampling = f"All {count(total, 'row')} are drawn." if total > 1 else ""
    if drawn < total:
        parts = ", ".join(f"{len(data.positions):,} of {data.n_rows:,} {data.name} rows" for data in contents.datasets)
        sampling = f"{drawn:,} of {count(total, 'row')} are drawn, sampled at random with a fixed seed: {parts}."
    values = {"legend": point_sets(contents), "complete": drawn == total, "sampling": sampling}
    return Section("scores", "Scores", {"panels": contents.panels, "caption": _caption, **values})


def _caption(panel: Panel) -> str:
    """Return what the components of a method are."""
    model = panel.model
    largest_variance = "directions of largest target variance, whether or not the background varies there too."
    if not model.background_counts:
        return capitalized(largest_variance)
    if isinstance(model, ContrastiveModel):
        if model.alpha == 0:
            return f"alpha = 0: {largest_variance}"
        search = "" if model.path is None else f"; alpha was chosen from {count(len(model.path.values), 'value')}"
        return f"Directions of largest target variance minus {number(model.alpha)} times background variance{search}."
    if isinstance(model, KernelModel):
        kernel = f"kernel {model.landmarks.kernel.name}; {count(len(model.landmarks.rows), 'landmark')}"
        return f"Functions of the features with the largest ratios of target to background variance ({kernel})."
    if getattr(panel.estimator, "axes", "ratio") == "signal":
        return "Directions of largest variance in the part of the target that is specific to it."
    return "Directions with the largest ratios of target to background variance."


def inference(contents: Contents) -> Section | None:
    """Return the permutation test, the held-out ratios and the stability, as far as they were computed."""
    assessment = contents.assessment
    if assessment is None:
        return None
    test, held_out, stability = assessment.test, assessment.held_out, assessment.stability
    results = [result for result in (test, held_out, stability) if result is not None]
    if not results:
        return None
    values = {
        "test": None if test is None else _test(test),
        "held_out": None if held_out is None else _held_out(held_out),
        "stability": None if stability is None else _stability(stability),
        "notes": [capitalized(text) for text in dict.fromkeys(text for result in results for text in result.notes)],
    }
    figures = {} if test is None else {"null": null_figure(test)}
    return Section("inference", "Significance and stability", values, figures)


def _test(test: PermutationTest) -> dict[str, Any]:
    columns = zip(test.ratios, test.edge(), test.p_values, strict=True)
    return {
        "rows": [(k, _cell(ratio), _cell(edge), number(float(p))) for k, (ratio, edge, p) in enumerate(columns, 1)],
        "permutations": permutation_text(test),
        "shrinkage": f"The background was shrunk by {number(test.shrinkage)}." if test.shrinkage else "",
    }


def _held_out(held: HeldOut) -> dict[str, Any]:
    with np.errstate(divide="ignore"):
        training = np.exp(np.log(held.training_ratios).mean(axis=0))
    folds = len(held.fold_ratios)
    backgrounds = " + ".join(f"{units:,}" for units in held.units[1:])
    return {
        "rows": [
            (k + 1, _cell(training[k]), _cell(held.ratios[k]), interval_text(low, high), held_out_text(low, high))
            for k, (low, high) in enumerate(zip(held.low, held.high, strict=True))
        ],
        "split": f"{f'{folds} folds' if folds > 1 else 'One split'} by {held.by}: {held.units[0]:,} of the target, "
        f"{backgrounds} of the background.",
        "interval": held.interval,
        "level": f"{100 * held.level:g} %",
    }


def _stability(found: Stability) -> dict[str, Any]:
    return {
        "rows": [
            (k + 1, f"{found.median[k]:.2f}", f"{low:.2f} to {found.high[k]:.2f}", stable_words(float(low)))
            for k, low in enumerate(found.low)
        ],
        "samples": f"{count(len(found.correlations), 'bootstrap sample')} of {found.by}",
        "angle": f"{np.median(found.angles):.0f}°",
        "level": f"{100 * found.level:g} %",
        "components": found.top_features(_TOP_FEATURES)[:_MAX_CARDS],
        "stable_sign": STABLE_SIGN,
        "more": max(len(found.low) - _MAX_CARDS, 0),
    }


def ratios(contents: Contents) -> Section | None:
    """Return the ratios with the noise edge, as a figure and as a table, and a comparison of the models."""
    model = contents.main.model
    if model.n_components == 0:
        return None
    columns = _ratio_columns(model)
    shown = range(min(model.n_components, _MAX_ROWS))
    rows = [[str(k + 1), *(_cell(values[k]) for values in columns.values())] for k in shown]
    models = []
    if sum(bool(panel.model.background_counts) for panel in contents.panels) > 1:
        for panel in contents.panels:
            first = ", ".join(map(number, panel.model.ratios[:3])) or "–"
            kind = "" if panel.model.background_counts else "variances "  # PCA has no ratios
            models.append((panel.name, method_name(panel.model), problem(panel.model), f"{kind}{first}"))
    values = {
        "header": ["component", *columns],
        "rows": rows,
        "undefined": any(number(math.nan) in row for row in rows),
        "more": max(model.n_components - _MAX_ROWS, 0),
        "main": contents.main.name,
        "models": models,
    }
    title = "Ratios of target to background variance" if model.background_counts else "Variances of the target"
    return Section("ratios", title, values, {"ratios": ratio_figure(model)})


def _ratio_columns(model: Model) -> dict[str, Any]:
    target = {"target sd": np.sqrt(model.target_variance)}
    if not model.background_counts:
        return {"variance": model.ratios, **target}
    shrunk = model.regime == "shrunk"
    return {
        "ratio": model.ratios,
        **({"unshrunk ratio": model.unshrunk_ratios} if shrunk else {}),
        "noise edge": np.full(model.n_components, model.noise_edge),
        "de-biased ratio": model.debiased_ratios,
        **target,
        "background sd, shrunk" if shrunk else "background sd": np.sqrt(model.background_variance),
    }


def patterns(contents: Contents) -> Section | None:
    """Return the top features of each component."""
    model = contents.main.model
    if model.n_components == 0:
        return None
    tops = model.top_features(_TOP_FEATURES)[:_MAX_CARDS] if has_patterns(model) else []
    values = {
        "components": list(zip(model.ratios, tops, strict=False)),
        "more": max(model.n_components - _MAX_CARDS, 0),
    }
    return Section("patterns", "Patterns: top features of each component", values)


def data(contents: Contents) -> Section:
    """Return a description of the data and the method, with all notes."""
    estimator, model = contents.main.estimator, contents.main.model
    several = len(model.background_counts) > 1
    datasets = (("target", model.target_counts), *model.background_counts)
    shares = ["", *(f"{share:.1%}" for share in model.mix)]
    names = [f"{dataset.name}: " for dataset in contents.datasets]
    if len(names) != len(contents.accounts):
        names = [""] * len(contents.accounts)
    values = {
        "header": ["dataset", "rows", "independent units", *(["share"] if several else [])],
        "rows": [
            (name, f"{counts.rows:,}", number(counts.units), *([share] if several else []))
            for (name, counts), share in zip(datasets, shares, strict=True)
        ],
        "method": {
            "Method": f"{method_name(model)}: {' '.join(repr(estimator).split())}",
            "Problem": problem(model),
            "Features": f"{estimator.n_features_in_:,}; the data span {count(model.rank, 'dimension')}",
            "Solver": model.solver,
        },
        "accounts": [
            (f"{name}{account.path}", account_text(account))
            for name, account in zip(names, contents.accounts, strict=True)
        ],
        "notes": [capitalized(text) for text in (*(note.text for note in model.notes), *contents.notes)],
    }
    return Section("data", "Data and method", values)


def account_text(account: ReadSummary) -> str:
    """Return what reading did to a dataset."""
    dropped = account.features_left_out
    sentences = [f"{count(account.rows, 'row')} and {count(account.features, 'feature')} were used."]
    if account.missing:
        features = sorted(account.missing, key=lambda name: -account.missing[name])
        total = _amount(sum(account.missing.values()), "value")
        sentences.append(f"{total} missing, in {count(len(features), 'feature')}: {listed(features)}.")
    if account.values_filled:
        how = "the mean of the feature" if account.filled_by == "means" else "draws from a model of the observed values"
        sentences.append(f"{_amount(account.values_filled, 'value')} filled in with {how}.")
    if account.rows_left_out:
        sentences.append(f"{_amount(account.rows_left_out, 'row')} dropped because of missing values.")
    if dropped:
        sentences.append(f"{_amount(len(dropped), 'feature')} dropped because of missing values: {listed(dropped)}.")
    if account.aside:
        sentences.append(f"{_amount(len(account.aside), 'column')} not used as features: {listed(account.aside)}.")
    return " ".join(sentences)


def _amount(amount: int, noun: str) -> str:
    return f"{count(amount, noun)} {'was' if amount == 1 else 'were'}"


def glossary(contents: Contents) -> Section:
    """Return definitions of the terms on the page."""
    return Section("glossary", "Glossary", {"assessment": contents.assessment})


def reproduce(contents: Contents) -> Section:
    """Return the code and the versions to reproduce the analysis with."""
    versions = {"standout": __version__, "Python": platform.python_version()}
    versions |= {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    values = {
        "command": contents.command,
        "code": contents.code or _code(contents.main),
        "versions": versions,
        "date": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
    }
    return Section("reproduce", "Reproduce this analysis", values)


def _code(panel: Panel) -> str:
    """Return Python code that fits such a model."""
    name = type(panel.estimator).__name__
    arguments = "target, background=background" if panel.model.background_counts else "target"
    return (
        f"from standout import {name}\n\nmodel = {' '.join(repr(panel.estimator).split())}.fit({arguments})\n"
        "scores = model.transform(target)\nprint(model.summary())"
    )


# In the order of the page.
SECTIONS = (scores, inference, ratios, patterns, data, glossary, reproduce)
