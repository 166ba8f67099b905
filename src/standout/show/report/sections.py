"""The sections of the page: each is a function of the contents that returns a heading, text and figures, or nothing."""

from __future__ import annotations

import math
import platform
from datetime import datetime
from importlib.metadata import version
from typing import Any

from standout._version import __version__
from standout.model import Model
from standout.show.fitted import has_patterns
from standout.show.report.contents import Contents, Section
from standout.show.report.page import render
from standout.show.report.points import MOST_COMPONENTS, PointSet, point_sets
from standout.show.report.spectrum import ratio_figure
from standout.show.report.trust import trust
from standout.show.report.words import account_sentences, caption, method_name, problem
from standout.show.text import count, number, shortened

# What a table shows before it says how many more there are.
_MOST_ROWS = 30
_MOST_PATTERNS = 8
_TOP_FEATURES = 10


def scores(contents: Contents) -> Section:
    """Return the score plots, one for each view, under one legend."""
    sets = point_sets(contents)
    views = [
        {
            "name": view.name,
            "caption": caption(view.estimator, view.model),
            "components": min(view.model.n_components, MOST_COMPONENTS),
            "more": max(view.model.n_components - MOST_COMPONENTS, 0),
        }
        for view in contents.views
    ]
    html = render("scores.html.jinja", views=views, legend=_legend(sets, contents), drawn=_drawn(contents))
    return Section("scores", "The rows", html)


def _legend(sets: list[PointSet], contents: Contents) -> list[dict[str, Any]]:
    whole = all(len(part.drawn) == part.n_rows for part in contents.parts)
    entries = []
    for found in sets:
        entry: dict[str, Any] = {
            "name": found.name, "short": shortened(found.name), "color": found.color, "symbol": found.symbol,
            "rows": count(len(found.rows), "row") if whole else f"{len(found.rows):,} drawn",
        }  # fmt: skip
        if found.values is not None and len(found.values):
            entry["scale"] = [number(float(found.values.min())), number(float(found.values.max()))]
        entries.append(entry)
    return entries


def _drawn(contents: Contents) -> str:
    total, drawn = sum(part.n_rows for part in contents.parts), sum(len(part.drawn) for part in contents.parts)
    if drawn == total:
        return f"All {count(total, 'row')} are drawn." if total > 1 else ""
    parts = ", ".join(f"{len(part.drawn):,} of {part.n_rows:,} {part.name} rows" for part in contents.parts)
    return f"{drawn:,} of {count(total, 'row')} are drawn, chosen at random with a fixed seed: {parts}."


def ratios(contents: Contents) -> Section | None:
    """Return the ratios with the noise edge, as a figure and as a table."""
    model = contents.main.model
    if model.n_components == 0:
        return None
    compared = bool(model.background_counts)
    rows = _rows(model)
    html = render(
        "ratios.html.jinja",
        columns=_columns(model),
        rows=rows,
        dashes=any(number(math.nan) in row["values"] for row in rows),
        more=max(model.n_components - _MOST_ROWS, 0),
        compared=compared,
        edge=number(model.noise_edge),
        has_edge=not math.isnan(model.noise_edge),
        shrunk=model.regime == "shrunk",
        main=contents.main.name,
        views=_side_by_side(contents),
    )
    title = "How much the target stands out" if compared else "How much the target varies"
    return Section("ratios", title, html, {"ratios": ratio_figure(model)})


def _columns(model: Model) -> list[str]:
    if not model.background_counts:
        return ["component", "variance", "target sd"]
    shrunk = model.regime == "shrunk"
    plain = ["unshrunk ratio"] if shrunk else []
    background = "background sd, shrunk" if shrunk else "background sd"
    return ["component", "ratio", *plain, "noise edge", "de-biased ratio", "target sd", background]


def _rows(model: Model) -> list[dict[str, Any]]:
    rows = []
    for k in range(min(model.n_components, _MOST_ROWS)):
        sd = math.sqrt(model.target_variance[k])
        values = [model.ratios[k], sd]
        if model.background_counts:
            plain = [model.plain_ratios[k]] if model.regime == "shrunk" else []
            other = math.sqrt(model.background_variance[k])
            values = [model.ratios[k], *plain, model.noise_edge, model.debiased_ratios[k], sd, other]
        rows.append({"name": str(k + 1), "values": [number(float(value), trimmed=False) for value in values]})
    return rows


def _side_by_side(contents: Contents) -> list[dict[str, str]]:
    """Return the views in a few words each, where there is more to compare than a PCA."""
    if sum(bool(view.model.background_counts) for view in contents.views) < 2:
        return []
    return [
        {
            "name": view.name,
            "method": method_name(view.model),
            "problem": problem(view.model),
            "ratios": ", ".join(number(value) for value in view.model.ratios[:3]) or "no components",
        }
        for view in contents.views
    ]


def features(contents: Contents) -> Section | None:
    """Return the features that move most with each component."""
    model = contents.main.model
    if model.n_components == 0:
        return None
    title = "What the components look like"
    if not has_patterns(model):
        return Section("features", title, render("no_features.html.jinja"))
    components = []
    for place, top in enumerate(model.top_features(_TOP_FEATURES)[:_MOST_PATTERNS]):
        most = max((abs(weight) for _, weight in top), default=1.0)
        bars = [_bar(str(feature), weight, most) for feature, weight in top]
        components.append({"name": str(place + 1), "ratio": number(model.ratios[place]), "bars": bars})
    html = render(
        "features.html.jinja",
        components=components,
        compared=bool(model.background_counts),
        more=max(model.n_components - _MOST_PATTERNS, 0),
        numbered=model.names is None,
    )
    return Section("features", title, html)


def _bar(feature: str, weight: float, most: float) -> dict[str, Any]:
    return {
        "name": feature,
        "short": shortened(feature, 28),
        "weight": number(weight, trimmed=False),
        "share": round(100 * abs(weight) / most, 1),
        "negative": weight < 0,
    }


def data(contents: Contents) -> Section:
    """Return what was done to the data, and what the user should know about it."""
    view = contents.main
    model = view.model
    counts = [("target", model.target_counts, None), *_background_counts(model)]
    facts = {
        "Method": f"{method_name(model)}: {' '.join(repr(view.estimator).split())}",
        "Problem": problem(model),
        "Features": f"{view.estimator.n_features_in_:,}, in which the data vary in {count(model.rank, 'dimension')}",
        "Solver": model.solver,
    }
    notes = [text[:1].upper() + text[1:] for text in (*(note.text for note in model.notes), *contents.notes)]
    html = render(
        "data.html.jinja",
        parts=[
            {"name": name, "rows": f"{part.rows:,}", "units": number(part.units), "share": share}
            for name, part, share in counts
        ],
        several=len(model.background_counts) > 1,
        facts=facts,
        accounts=_accounts(contents),
        notes=notes,
    )
    return Section("data", "What was done to the data", html)


def _accounts(contents: Contents) -> list[tuple[str, list[str]]]:
    """Return what reading did, under the dataset's name where there is one account for each."""
    names = [f"{part.name}: " for part in contents.parts]
    if len(names) != len(contents.accounts):
        names = [""] * len(contents.accounts)
    return [
        (f"{name}{account.path}", account_sentences(account))
        for name, account in zip(names, contents.accounts, strict=True)
    ]


def _background_counts(model: Model) -> list[tuple[str, Any, str]]:
    return [
        (name, part, f"{share:.1%}") for (name, part), share in zip(model.background_counts, model.mix, strict=True)
    ]


def reading(contents: Contents) -> Section:
    """Return how to read the report."""
    model = contents.main.model
    html = render(
        "reading.html.jinja",
        compared=bool(model.background_counts),
        has_edge=not math.isnan(model.noise_edge),
        has_patterns=has_patterns(model),
        shrunk=model.regime == "shrunk",
        trust=contents.trust,
    )
    return Section("reading", "How to read this", html)


def repeating(contents: Contents) -> Section:
    """Return how to get the same again."""
    packages = ("numpy", "scipy", "scikit-learn")
    versions = {"standout": __version__, "Python": platform.python_version()}
    versions |= {name: version(name) for name in packages}
    now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    html = render("repeating.html.jinja", command=contents.command, code=contents.code, versions=versions, date=now)
    return Section("repeating", "How to repeat it", html)


# The page, from top to bottom.
SECTIONS = (scores, trust, ratios, features, data, reading, repeating)
