"""The figure of the ratios, with the edge that noise reaches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from standout.blas import Array
from standout.model import Model
from standout.show import styles
from standout.show.text import number


@dataclass(frozen=True)
class _Span:
    """The axis of the ratios: what lies within, and where infinite ratios and those of zero are put."""

    bottom: float
    top: float

    @classmethod
    def of(cls, model: Model) -> _Span:
        """Return a span that holds all ratios, the noise edge, and a ratio of one: as much as the background."""
        values = np.concatenate([model.ratios, model.plain_ratios, [model.noise_edge, 1.0]])
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
    if model.regime == "shrunk" and not np.isnan(model.plain_ratios).all():
        traces.append(_ratios(model.plain_ratios, span, "unshrunk ratio", "diamond-open"))
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
    color = styles.COLORS[0] if symbol == "circle" else styles.COLORS[1]
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
    return {"type": "line", **ends, "line": {"color": styles.MISSING, "dash": "dash", "width": 1.5}}


def _line_name(height: float) -> dict[str, Any]:
    place = {"x": 1, "xref": "paper", "xanchor": "right", "y": math.log10(height), "yanchor": "bottom"}
    return {"text": f"noise edge {number(height)}", **place, "showarrow": False, "font": {"color": styles.MISSING}}
