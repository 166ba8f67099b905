"""The sections of the page: each function returns a heading with text, tables and figures, or None."""

from __future__ import annotations

import math
import platform
from datetime import datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from standout._model import Model
from standout._report.contents import Contents
from standout._report.figures import MAX_AXES, null_figure, point_sets, ratio_figure
from standout._report.page import Section, render
from standout._report.text import (
    account_sentences,
    capitalized,
    caption,
    code_of,
    held_out_text,
    interval_text,
    method_name,
    permutation_text,
    problem,
)
from standout._version import __version__
from standout.inference.stability import stable_words
from standout.plot._components import STABLE_SIGN, has_patterns
from standout.plot._style import count, number

if TYPE_CHECKING:
    from standout.inference.held_out import HeldOut
    from standout.inference.permutation import PermutationTest
    from standout.inference.stability import Stability

_TOP_FEATURES = 10
# Limits beyond which a table or a row of cards only gives the number of further entries.
_MAX_CARDS = 8
_MAX_ROWS = 30


def _cell(value: float) -> str:
    return number(float(value), trimmed=False)


def scores(contents: Contents) -> Section:
    """Return one score plot per model, with a common legend."""
    total = sum(data.n_rows for data in contents.datasets)
    drawn = sum(len(data.positions) for data in contents.datasets)
    if drawn < total:
        parts = ", ".join(f"{len(data.positions):,} of {data.n_rows:,} {data.name} rows" for data in contents.datasets)
        sampling = f"{drawn:,} of {count(total, 'row')} are drawn, sampled at random with a fixed seed: {parts}."
    else:
        sampling = f"All {count(total, 'row')} are drawn." if total > 1 else ""
    panels = [
        {
            "name": panel.name,
            "caption": caption(panel.estimator, panel.model),
            "n_axes": min(panel.model.n_components, MAX_AXES),
            "more": max(panel.model.n_components - MAX_AXES, 0),
        }
        for panel in contents.panels
    ]
    html = render(
        "scores.html.jinja", panels=panels, legend=point_sets(contents), complete=drawn == total, sampling=sampling
    )
    return Section("scores", "Scores", html)


def inference(contents: Contents) -> Section | None:
    """Return the permutation test, the held-out ratios and the stability, as far as they were computed."""
    assessment = contents.assessment
    if assessment is None:
        return None
    test, held_out, stability = assessment.test, assessment.held_out, assessment.stability
    results = [result for result in (test, held_out, stability) if result is not None]
    if not results:
        return None
    html = render(
        "inference.html.jinja",
        test=None if test is None else _test(test),
        held_out=None if held_out is None else _held_out(held_out),
        stability=None if stability is None else _stability(stability),
        notes=[capitalized(text) for text in dict.fromkeys(text for result in results for text in result.notes)],
    )
    figures = {} if test is None else {"null": null_figure(test)}
    return Section("inference", "Significance and stability", html, figures)


def _test(test: PermutationTest) -> dict[str, Any]:
    edges = test.edge()
    return {
        "rows": [
            (k + 1, _cell(test.ratios[k]), _cell(edges[k]), number(float(test.p_values[k])))
            for k in range(len(test.ratios))
        ],
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
    header, rows = _ratio_table(model)
    compared = bool(model.background_counts)
    models = []
    if sum(bool(panel.model.background_counts) for panel in contents.panels) > 1:
        for panel in contents.panels:
            first = ", ".join(map(number, panel.model.ratios[:3])) or "–"
            kind = "" if panel.model.background_counts else "variances "  # PCA has no ratios
            models.append((panel.name, method_name(panel.model), problem(panel.model), f"{kind}{first}"))
    html = render(
        "ratios.html.jinja",
        header=header,
        rows=rows,
        undefined=any(number(math.nan) in row for row in rows),
        more=max(model.n_components - _MAX_ROWS, 0),
        compared=compared,
        edge=None if math.isnan(model.noise_edge) else number(model.noise_edge),
        shrunk=model.regime == "shrunk",
        main=contents.main.name,
        models=models,
    )
    title = "Ratios of target to background variance" if compared else "Variances of the target"
    return Section("ratios", title, html, {"ratios": ratio_figure(model)})


def _ratio_table(model: Model) -> tuple[list[str], list[list[str]]]:
    columns = {"target sd": np.sqrt(model.target_variance)}
    if not model.background_counts:
        columns = {"variance": model.ratios, **columns}
    else:
        shrunk = model.regime == "shrunk"
        columns = {
            "ratio": model.ratios,
            **({"unshrunk ratio": model.unshrunk_ratios} if shrunk else {}),
            "noise edge": np.full(model.n_components, model.noise_edge),
            "de-biased ratio": model.debiased_ratios,
            **columns,
            "background sd, shrunk" if shrunk else "background sd": np.sqrt(model.background_variance),
        }
    shown = range(min(model.n_components, _MAX_ROWS))
    return ["component", *columns], [[str(k + 1), *(_cell(values[k]) for values in columns.values())] for k in shown]


def patterns(contents: Contents) -> Section | None:
    """Return the top features of each component."""
    model = contents.main.model
    if model.n_components == 0:
        return None
    tops = model.top_features(_TOP_FEATURES)[:_MAX_CARDS] if has_patterns(model) else []
    html = render(
        "patterns.html.jinja",
        components=list(zip(model.ratios, tops, strict=False)),
        compared=bool(model.background_counts),
        more=max(model.n_components - _MAX_CARDS, 0),
        numbered=model.names is None,
    )
    return Section("patterns", "Patterns: top features of each component", html)


def data(contents: Contents) -> Section:
    """Return a description of the data and the method, with all notes."""
    estimator, model = contents.main.estimator, contents.main.model
    rows = [("target", model.target_counts, "")]
    rows += [
        (name, counts, f"{share:.1%}") for (name, counts), share in zip(model.background_counts, model.mix, strict=True)
    ]
    several = len(model.background_counts) > 1
    names = [f"{dataset.name}: " for dataset in contents.datasets]
    if len(names) != len(contents.accounts):
        names = [""] * len(contents.accounts)
    html = render(
        "data.html.jinja",
        header=["dataset", "rows", "independent units", *(["share"] if several else [])],
        rows=[
            (name, f"{counts.rows:,}", number(counts.units), *([share] if several else []))
            for name, counts, share in rows
        ],
        method={
            "Method": f"{method_name(model)}: {' '.join(repr(estimator).split())}",
            "Problem": problem(model),
            "Features": f"{estimator.n_features_in_:,}; the data span {count(model.rank, 'dimension')}",
            "Solver": model.solver,
        },
        accounts=[
            (f"{name}{account.path}", account_sentences(account))
            for name, account in zip(names, contents.accounts, strict=True)
        ],
        notes=[capitalized(text) for text in (*(note.text for note in model.notes), *contents.notes)],
    )
    return Section("data", "Data and method", html)


def glossary(contents: Contents) -> Section:
    """Return definitions of the terms on the page."""
    model = contents.main.model
    html = render(
        "glossary.html.jinja",
        compared=bool(model.background_counts),
        has_edge=not math.isnan(model.noise_edge),
        has_patterns=has_patterns(model),
        shrunk=model.regime == "shrunk",
        assessment=contents.assessment,
    )
    return Section("glossary", "Glossary", html)


def reproduce(contents: Contents) -> Section:
    """Return the code and the versions to reproduce the analysis with."""
    versions = {"standout": __version__, "Python": platform.python_version()}
    versions |= {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    main = contents.main
    html = render(
        "reproduce.html.jinja",
        command=contents.command,
        code=contents.code or code_of(main.estimator, main.model),
        versions=versions,
        date=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
    )
    return Section("reproduce", "Reproduce this analysis", html)


# In the order of the page.
SECTIONS = (scores, inference, ratios, patterns, data, glossary, reproduce)
