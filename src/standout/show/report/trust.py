"""The section on trust: what reshuffled labels give, what holds on other rows, and what stays when rows are redrawn."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from standout.inference.stability import stable_words
from standout.show import styles
from standout.show.histogram import null_histogram
from standout.show.report.contents import Contents, Section
from standout.show.report.page import render
from standout.show.report.trust_words import held_words, reshuffled
from standout.show.text import count, number, shortened

if TYPE_CHECKING:
    from standout.inference import HeldOut, PermutationTest, Stability

_MOST_COMPONENTS = 8
_TOP_FEATURES = 10
# A weight whose sign is kept in fewer of the samples than this is written pale.
_SURE = 0.95


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
        "marker": {"color": styles.GREYS[0], "line": {"width": 0}},
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
        "font": {"color": styles.COLORS[1]},
    }  # fmt: skip
    return {
        "data": [bars],
        "layout": {
            "xaxis": xaxis,
            # Room above the bars for the name of the line.
            "yaxis": {"title": {"text": "labellings"}, "range": [0, 1.2 * float(found.counts.max())]},
            "shapes": [{**line, "line": {"color": styles.COLORS[1], "width": 2}}],
            "annotations": [name],
        },
    }


def _log_ticks(bottom: float, top: float) -> list[float]:
    powers = range(math.floor(bottom), math.ceil(top) + 1)
    steps = (1, 2, 5) if len(powers) <= 4 else (1,)
    return [step * 10.0**power for power in powers[:: math.ceil(len(powers) / 8)] for step in steps]
