"""The section on trust: what reshuffled labels give, what holds on other rows, and what stays when rows are redrawn.

The sections of the page: each is a function of the contents that returns a heading, text and figures, or nothing.
"""

from __future__ import annotations

import math
import platform
from datetime import datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from standout._model import Model
from standout._report.contents import Contents, Section
from standout._report.figures import MOST_COMPONENTS, PointSet, point_sets, ratio_figure
from standout._report.page import render
from standout._report.text import account_sentences, caption, held_words, method_name, problem, reshuffled
from standout._version import __version__
from standout.inference.stability import stable_words
from standout.plot import _style
from standout.plot._style import count, has_patterns, null_histogram, number, shortened

if TYPE_CHECKING:
    from standout.inference.held_out import HeldOut
    from standout.inference.permutation import PermutationTest
    from standout.inference.stability import Stability

_MOST_COMPONENTS = 8
_TOP_FEATURES = 10
# A weight whose sign is kept in fewer of the samples than this is written pale.
_SURE = 0.95
# What a table shows before it says how many more there are.
_MOST_ROWS = 30
_MOST_PATTERNS = 8


def trust(contents: Contents) -> Section | None:
    """Return the permutation test, the held-out ratios and the stability, as far as they are known."""
    found = contents.trust
    parts = () if found is None else (found.test, found.held_out, found.stability)
    if found is None or all(part is None for part in parts):
        return None
    html = render(
        "trust.html.jinja",
        test=None if found.test is None else _test(found.test),
        held_out=None if found.held_out is None else _held_out(found.held_out),
        stability=None if found.stability is None else _stability(found.stability),
        notes=_notes(parts),
    )
    figures = {} if found.test is None else {"null": null_figure(found.test)}
    return Section("trust", "Is it real?", html, figures)


def _notes(parts: tuple[Any, ...]) -> list[str]:
    """Return the notes of all results; those that several share once."""
    texts = dict.fromkeys(text for part in parts if part is not None for text in part.notes)
    return [text[:1].upper() + text[1:] for text in texts]


def _value(value: float) -> str:
    return number(float(value), trimmed=False)


def _ends(low: float, high: float) -> str:
    return "–" if math.isnan(low) or math.isnan(high) else f"{_value(low)} to {_value(high)}"


def _test(test: PermutationTest) -> dict[str, Any]:
    columns = zip(test.ratios, test.edge(), test.p_values, strict=True)
    rows = [(str(k + 1), _value(ratio), _value(edge), number(float(p))) for k, (ratio, edge, p) in enumerate(columns)]
    shrunk = f"The background was shrunk by {number(test.shrinkage)}." if test.shrinkage else ""
    return {"rows": rows, "how": reshuffled(test), "problem": shrunk, "several": len(rows) > 1}


def _held_out(held: HeldOut) -> dict[str, Any]:
    with np.errstate(divide="ignore"):
        training = np.exp(np.log(held.training_ratios).mean(axis=0))
    rows = [
        (str(k + 1), _value(training[k]), _value(held.ratios[k]), _ends(low, high), held_words(low, high))
        for k, (low, high) in enumerate(zip(held.low, held.high, strict=True))
    ]
    folds = len(held.fold_ratios)
    others = " + ".join(f"{units:,}" for units in held.units[1:])
    split = f"{f'{folds} folds' if folds > 1 else 'One split'} by {held.by}: {held.units[0]:,} of the target, {others} "
    return {"rows": rows, "split": f"{split}of the background.", "interval": held.interval, "level": _percent(held)}


def _stability(found: Stability) -> dict[str, Any]:
    rows = [
        (str(k + 1), f"{found.median[k]:.2f}", f"{low:.2f} to {found.high[k]:.2f}", stable_words(float(low)))
        for k, low in enumerate(found.low)
    ]
    return {
        "rows": rows,
        "drawn": f"{count(len(found.correlations), 'bootstrap sample')} of {found.by}",
        "angle": f"{np.median(found.angles):.0f}°",
        "level": _percent(found),
        "components": [
            [_feature(feature) for feature in top] for top in found.top_features(_TOP_FEATURES)[:_MOST_COMPONENTS]
        ],
        "more": max(len(rows) - _MOST_COMPONENTS, 0),
    }


def _percent(found: Any) -> str:
    return f"{100 * found.level:g} %"


def _feature(feature: Any) -> dict[str, Any]:
    return {
        "name": str(feature.feature),
        "short": shortened(str(feature.feature), 28),
        "weight": _value(feature.weight),
        "ends": _ends(feature.low, feature.high),
        "kept": f"{math.floor(100 * feature.same_sign + 1e-9)} %",  # 99.9 % is not all
        "sure": feature.same_sign >= _SURE,
    }


def null_figure(test: PermutationTest) -> dict[str, Any]:
    """Return the first component's reshuffled ratios as bars, and the observed one as a line."""
    found = null_histogram(test, 0)
    low, high = found.edges[:-1], found.edges[1:]
    bars = {
        "type": "bar",
        "x": ((low + high) / 2).tolist(),
        "width": (high - low).tolist(),
        "y": found.counts.tolist(),
        "customdata": [f"{number(a)} to {number(b)}" for a, b in zip(low, high, strict=True)],
        "hovertemplate": "ratio %{customdata}<br>%{y} labellings<extra></extra>",
        "marker": {"color": _style.GREYS[0], "line": {"width": 0}},
    }
    scale = math.log10 if found.wide else float
    left, right = scale(float(low[0])), scale(max(float(high[-1]), found.place))
    margin = 0.06 * (right - left)
    xaxis = {"title": {"text": "ratio of component 1"}, "range": [left - margin, right + margin], "zeroline": False}
    if found.wide:
        ticks = _log_ticks(left - margin, right + margin)
        xaxis |= {"type": "log", "tickvals": ticks, "ticktext": [number(tick) for tick in ticks]}
    line = {"type": "line", "x0": found.place, "x1": found.place, "y0": 0, "y1": 1, "yref": "paper"}
    later = scale(found.place) > (left + right) / 2
    name = {
        "text": f"observed {number(float(test.ratios[0]))}", "x": scale(found.place), "y": 1, "yref": "paper",
        "xanchor": "right" if later else "left", "yanchor": "top", "xshift": -5 if later else 5, "showarrow": False,
        "font": {"color": _style.COLORS[1]},
    }  # fmt: skip
    return {
        "data": [bars],
        "layout": {
            "xaxis": xaxis,
            # Room above the bars for the name of the line.
            "yaxis": {"title": {"text": "labellings"}, "range": [0, 1.2 * float(found.counts.max())]},
            "shapes": [{**line, "line": {"color": _style.COLORS[1], "width": 2}}],
            "annotations": [name],
        },
    }


def _log_ticks(bottom: float, top: float) -> list[float]:
    powers = range(math.floor(bottom), math.ceil(top) + 1)
    steps = (1, 2, 5) if len(powers) <= 4 else (1,)
    return [step * 10.0**power for power in powers[:: math.ceil(len(powers) / 8)] for step in steps]


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
            plain = [model.unshrunk_ratios[k]] if model.regime == "shrunk" else []
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
