"""The points of the score plots: which rows look alike, their legend, and their coordinates.

The figure of the ratios, with the edge that noise reaches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout._blas import Array
from standout._model import Model
from standout._report.contents import MOST_ONE_BY_ONE, Contents, Part, View
from standout._report.page import label_text, packed
from standout.plot import _style
from standout.plot._style import Labels, number, shortened

# Classes with an entry in the legend; rarer ones share one.
_MOST_CLASSES = 40
# Labels of one background that get an entry each.
_MOST_BACKGROUND_CLASSES = 6
# Components to choose the axes from.
MOST_COMPONENTS = 10
_OTHER = "#444444"


@dataclass(frozen=True)
class PointSet:
    """Rows of one dataset that look alike and have one entry in the legend."""

    name: str
    place: int  # of the dataset, among the parts
    rows: NDArray[np.intp]  # among the rows of the part that are drawn
    color: str
    symbol: str
    behind: bool
    texts: tuple[str, ...] | None = None  # labels of the rows, where they differ
    values: Array | None = None  # where colours are a scale


def point_sets(contents: Contents) -> list[PointSet]:
    """Return the sets in the order of the legend: the target's classes, then the backgrounds."""
    target, *backgrounds = contents.parts
    sets = list(_target_sets(target))
    for place, part in enumerate(backgrounds, start=1):
        sets += _background_sets(part, place, sum(found.behind for found in sets))
    return sets


def _target_sets(part: Part) -> Iterator[PointSet]:
    labels = part.labels
    everything = np.arange(len(part.drawn))
    if labels is None:
        yield PointSet("target", 0, everything, _style.COLORS[0], _style.SYMBOLS[0], False)
        return
    if labels.numbers is not None:
        known = everything[~labels.missing]
        yield PointSet("target", 0, known, "", _style.SYMBOLS[0], False, values=labels.numbers[known])
    else:
        yield from _classes(labels)
    if labels.missing.any():
        yield PointSet("missing", 0, everything[labels.missing], _style.MISSING, "x-thin-open", False)


def _classes(labels: Labels) -> Iterator[PointSet]:
    sizes = np.bincount(labels.codes[labels.codes >= 0], minlength=len(labels.names))
    shown = np.flatnonzero(sizes)
    if len(shown) > _MOST_CLASSES:
        shown = np.sort(np.argsort(-sizes, kind="stable")[: _MOST_CLASSES - 1])
    for place, code in enumerate(shown):
        look = _style.style(place)
        yield PointSet(labels.names[code], 0, np.flatnonzero(labels.codes == code), look.color, look.symbol, False)
    rest = np.flatnonzero(~np.isin(labels.codes, [-1, *shown]))
    if len(rest):
        texts = tuple(labels.names[code] for code in labels.codes[rest])
        yield PointSet(f"{len(set(texts))} other labels", 0, rest, _OTHER, "circle-open", False, texts)


def _background_sets(part: Part, place: int, before: int) -> list[PointSet]:
    """Return a background as one set, or one for each label where there are few."""
    labels = part.labels
    everything = np.arange(len(part.drawn))
    look = _style.grey(before)
    if labels is None:
        return [PointSet(part.name, place, everything, look.color, look.symbol, True)]
    if labels.numbers is not None or len(labels.names) > _MOST_BACKGROUND_CLASSES or labels.missing.any():
        return [PointSet(part.name, place, everything, look.color, look.symbol, True, _texts(labels))]
    greys = [_style.grey(before + code) for code in range(len(labels.names))]
    return [
        PointSet(f"{part.name}: {name}", place, np.flatnonzero(labels.codes == code), grey.color, grey.symbol, True)
        for code, (name, grey) in enumerate(zip(labels.names, greys, strict=True))
        if (labels.codes == code).any()
    ]


def _texts(labels: Labels) -> tuple[str, ...]:
    if labels.numbers is not None:
        return tuple("missing" if math.isnan(value) else number(value) for value in labels.numbers)
    return tuple("missing" if code < 0 else labels.names[code] for code in labels.codes)


def scores_data(contents: Contents) -> dict[str, Any]:
    """Return what the page's script draws: the sets, which all views share, and their coordinates in each view."""
    sets = point_sets(contents)
    total = sum(len(part.drawn) for part in contents.parts)
    # In drawing order: backgrounds first, so that they lie behind.
    order = sorted(range(len(sets)), key=lambda place: not sets[place].behind)
    return {
        "sets": [_set_data(found, contents.parts[found.place], total) for found in sets],
        "order": order,
        "views": [_view_data(view, sets, total) for view in contents.views],
    }


def _set_data(found: PointSet, part: Part, total: int) -> dict[str, Any]:
    # Backgrounds may be large; the target's own rows decide how its points look.
    crowd = math.log10(max(total if found.behind else len(part.drawn), 100))
    data: dict[str, Any] = {
        "label": label_text(shortened(found.name, 60)),
        "short": label_text(shortened(found.name, 16)),
        "color": found.color,
        "symbol": found.symbol,
        "size": round(10.5 - 1.6 * crowd, 1),
        "opacity": round((0.8 if found.behind else 1.08) - 0.15 * crowd, 2),
    }
    if part.ids is None:
        data["rows"] = packed(part.drawn[found.rows] + 1)
    else:
        data["ids"] = [label_text(shortened(part.ids[row], 60)) for row in found.rows]
    if found.texts is not None:
        data["texts"] = [label_text(shortened(text, 60)) for text in found.texts]
    if found.values is not None:
        data["values"] = packed(found.values)
    return data


def _view_data(view: View, sets: list[PointSet], total: int) -> dict[str, Any]:
    shown = min(view.model.n_components, MOST_COMPONENTS)
    rng = np.random.default_rng(0)
    coordinates = []
    for place, found in enumerate(sets):
        scores = view.scores[found.place][found.rows]
        columns = [packed(scores[:, component]) for component in range(shown)]
        if shown == 1:  # a strip for each set, its points scattered a little
            columns.append(packed(len(sets) - 1 - place + rng.uniform(-0.3, 0.3, len(scores))))
        coordinates.append(columns)
    return {
        "webgl": total > MOST_ONE_BY_ONE,
        "strips": shown == 1,
        "axes": [label_text(axis_name(view, component)) for component in range(shown)],
        "coordinates": coordinates,
    }


def axis_name(view: View, component: int) -> str:
    """Return the name of a component with what it is worth."""
    model = view.model
    kind = "ratio" if model.background_counts else "variance"
    return f"component {component + 1} ({kind} {number(model.ratios[component])})"


@dataclass(frozen=True)
class _Span:
    """The axis of the ratios: what lies within, and where infinite ratios and those of zero are put."""

    bottom: float
    top: float

    @classmethod
    def of(cls, model: Model) -> _Span:
        """Return a span that holds all ratios, the noise edge, and a ratio of one: as much as the background."""
        values = np.concatenate([model.ratios, model.unshrunk_ratios, [model.noise_edge, 1.0]])
        inside = values[np.isfinite(values) & (values > 0)]
        room = max(inside.max() / inside.min(), 2.0) ** 0.12
        return cls(float(inside.min() / room), float(inside.max() * room))

    @property
    def range(self) -> list[float]:
        """The ends of the axis, in powers of ten."""
        margin = 0.05 * math.log10(self.top / self.bottom)
        return [math.log10(self.bottom) - margin, math.log10(self.top) + margin]

    @property
    def ticks(self) -> list[float]:
        """Round numbers to write at the axis, not too many."""
        powers = range(math.floor(self.range[0]), math.ceil(self.range[1]) + 1)
        steps = (1, 2, 5) if len(powers) <= 4 else (1,)
        every = math.ceil(len(powers) / 8)
        return [step * 10.0**power for power in powers[::every] for step in steps]


def ratio_figure(model: Model) -> dict[str, Any]:
    """Return the ratios (of a shrunk problem also the unshrunk ones) on a log axis; without a background, variances."""
    xaxis = {"title": {"text": "component"}, "dtick": 1 if model.n_components <= 12 else None}
    if not model.background_counts:
        trace = {**_points(model.ratios, model.ratios, "variance", "circle"), "mode": "lines+markers"}
        return {"data": [trace], "layout": {"xaxis": xaxis, "yaxis": {"title": {"text": "variance"}}}}
    span = _Span.of(model)
    traces = [_ratios(model.ratios, span, "ratio", "circle")]
    if model.regime == "shrunk" and not np.isnan(model.unshrunk_ratios).all():
        traces.append(_ratios(model.unshrunk_ratios, span, "unshrunk ratio", "diamond-open"))
    ticks = {"tickvals": span.ticks, "ticktext": [number(tick) for tick in span.ticks]}
    yaxis = {"title": {"text": "ratio"}, "type": "log", "range": span.range, "zeroline": False, **ticks}
    layout: dict[str, Any] = {"xaxis": xaxis, "yaxis": yaxis, "showlegend": len(traces) > 1}
    if not math.isnan(model.noise_edge):
        layout |= {"shapes": [_line(model.noise_edge)], "annotations": [_line_name(model.noise_edge)]}
    return {"data": traces, "layout": layout}


def _ratios(values: Array, span: _Span, kind: str, symbol: str) -> dict[str, Any]:
    """Return ratios as points; infinite ones stand at the top, with their sign, and those of zero at the bottom."""
    heights = np.where(np.isposinf(values), span.top, np.maximum(values, span.bottom))
    trace = _points(values, heights, kind, symbol)
    text = ["∞" if math.isinf(value) else "0" if value == 0 else "" for value in values]
    return {**trace, "mode": "markers+text", "text": text, "textposition": "middle right"}


def _points(values: Array, heights: Array, kind: str, symbol: str) -> dict[str, Any]:
    color = _style.COLORS[0] if symbol == "circle" else _style.COLORS[1]
    return {
        "type": "scatter",
        "name": kind,
        "x": list(range(1, len(values) + 1)),
        "y": [None if math.isnan(height) else float(height) for height in heights],
        "customdata": [number(float(value)) for value in values],
        "hovertemplate": f"component %{{x}}<br>{kind} %{{customdata}}<extra></extra>",
        "marker": {"color": color, "symbol": symbol, "size": 10},
    }


def _line(height: float) -> dict[str, Any]:
    ends = {"x0": 0, "x1": 1, "xref": "paper", "y0": height, "y1": height}
    return {"type": "line", **ends, "line": {"color": _style.MISSING, "dash": "dash", "width": 1.5}}


def _line_name(height: float) -> dict[str, Any]:
    place = {"x": 1, "xref": "paper", "xanchor": "right", "y": math.log10(height), "yanchor": "bottom"}
    return {"text": f"noise edge {number(height)}", **place, "showarrow": False, "font": {"color": _style.MISSING}}
