"""What a report draws: models, the scores and labels of the rows that are drawn, and the figures as data for plotly.

Every row is read once for each model; only the rows that are drawn are kept.
"""

from __future__ import annotations

import math
import warnings
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from standout._base import BaseContrast
from standout._blas import Array
from standout._compare import Comparison
from standout._dataset import Dataset
from standout._display import number
from standout._dpca import DPCA
from standout._inputs import FitArguments, Inputs, align, background_name, parse_inputs
from standout._model import Model
from standout._summary import Extremes, extreme_rows
from standout._verdict import critical_ratio
from standout.errors import InputError, RowsNeededError, StandoutWarning, listed
from standout.inference.permutation import PermutationTest
from standout.io.source import RowSource, Source
from standout.io.stream import ReadSummary
from standout.plot import _style
from standout.plot._components import fitted_model, null_histogram
from standout.plot._scores import Labels
from standout.plot._style import shortened

# Points on the whole page. A panel with more points than SVG can draw takes three of the sixteen WebGL contexts of a
# browser, so a page with more panels than that draws few points in each.
_MAX_POINTS = 100_000
_MAX_SVG_POINTS = 5_000
_MAX_WEBGL_PANELS = 5
# Components that can be chosen as axes.
_MAX_AXES = 10
# Rows listed at each end of a component.
_N_EXTREMES = 10
# A covariance matrix of more features than this takes gigabytes.
_MAX_FEATURES = 12_000
# Legend entries for the classes of the target; rarer classes share one entry.
_MAX_CLASSES = 40
# A background with more classes than this has one legend entry.
_MAX_BACKGROUND_CLASSES = 6
_OTHER = "#444444"
# Magnitudes that float32 represents to seven digits, more than a screen shows.
_SMALL, _LARGE = 1e-30, 1e30
# Plotly interprets some HTML tags, LaTeX between dollar signs and variables after a percent sign: escape them all.
_LITERAL = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;", "%": "&#37;", "\n": " ", "\r": " "})


class Panel(NamedTuple):
    """A model and the scores of the rows that are drawn."""

    name: str
    estimator: BaseContrast
    model: Model
    scores: list[Array]  # of each dataset, (n_drawn, n_components)
    sample_ratios: Array  # of the variances of the scores, by which all models can be compared; may be empty
    held_out_ratios: Array  # empty if they were not computed

    @property
    def n_axes(self) -> int:
        """Number of components that can be chosen as axes."""
        return min(self.model.n_components, _MAX_AXES)


class DrawnRows(NamedTuple):
    """The rows of one dataset that are drawn."""

    name: str
    n_rows: int  # of the whole dataset
    positions: NDArray[np.intp]  # of the rows that are drawn
    labels: Labels | None
    ids: list[str] | None


class Contents(NamedTuple):
    """The models and the data that a report shows."""

    panels: list[Panel]  # the model that the report describes first
    datasets: list[DrawnRows]  # the target first
    accounts: list[ReadSummary]
    notes: list[str]
    extremes: list[Extremes]  # target rows at the ends of each component, if rows have ids


def collect_contents(
    models: Any, target: Any, background: Any, *, labels: Any, background_labels: Any, ids: Any,
    accounts: Sequence[ReadSummary], notes: Sequence[str],
) -> Contents:  # fmt: skip
    """Compute the scores of all rows and keep those that are drawn."""
    estimators, held_out = _estimators(models)
    sources, messages = _sources(parse_inputs(FitArguments(target, background=background)))
    labels_of = {"target": labels, **_background_labels(background_labels, list(sources)[1:])}
    main = next(iter(estimators.values()))._solved()
    used = {name: _used_features(main, name, source) for name, source in sources.items()}
    if len(estimators) == 1 and main.background_counts:
        pca, refused = _pca(main, used["target"])
        estimators |= pca
        messages += refused
    transforms = [_transform(estimator) for estimator in estimators.values()]
    scores = [source.collect_mapped(transforms, name) for name, source in used.items()]
    sizes = [len(by_model[0]) for by_model in scores]
    n_panels = len(estimators)
    most = _MAX_POINTS // n_panels if n_panels <= _MAX_WEBGL_PANELS else _MAX_SVG_POINTS
    drawn = sample_rows(sizes, most)
    panels = []
    for k, (name, estimator) in enumerate(estimators.items()):
        own = [by_model[k] for by_model in scores]
        ratios = _sample_ratios(own, main.mix) if 0 < len(main.mix) == len(sources) - 1 else np.empty(0)
        kept = [values[rows] for values, rows in zip(own, drawn, strict=True)]
        panels.append(Panel(name, estimator, estimator._solved(), kept, ratios, held_out.get(name, np.empty(0))))
    ids_of = [
        _row_ids(name, source, ids if name == "target" else None, size)
        for (name, source), size in zip(sources.items(), sizes, strict=True)
    ]
    datasets = [
        _drawn_rows(name, source, labels_of.get(name), names, size, index)
        for (name, source), names, size, index in zip(sources.items(), ids_of, sizes, drawn, strict=True)
    ]
    extremes = [] if ids_of[0] is None else extreme_rows(scores[0][0], ids_of[0], _N_EXTREMES)
    recorded = [getattr(source, "account", None) for source in sources.values()]
    read = list(accounts) or [account for account in recorded if isinstance(account, ReadSummary)]
    return Contents(panels, datasets, read, [*notes, *messages], extremes)


def _estimators(models: Any) -> tuple[dict[str, BaseContrast], dict[str, Array]]:
    """Return the estimators, and the held-out ratios of those that ``compare`` measured, by name."""
    held_out = {}
    if isinstance(models, list) and models and all(isinstance(view, Comparison) for view in models):
        held_out = {view.name: view.held_out.ratios for view in models if view.held_out}
        models = {view.name: view.estimator for view in models}
    if not isinstance(models, Mapping):
        return {fitted_model(models, "models").method: models}, held_out
    if not models:
        raise InputError("models: the dict is empty. Give at least one fitted estimator.")
    for name, model in models.items():
        fitted_model(model, f"models[{name!r}]")
    return {str(name): model for name, model in models.items()}, held_out


def _sample_ratios(scores: list[Array], shares: Array) -> Array:
    """Return target over background variance of the scores."""
    target, *parts = (own.var(axis=0) for own in scores)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(target / sum(share * part for share, part in zip(shares, parts, strict=True)))


def _sources(inputs: Inputs) -> tuple[dict[str, Source], list[str]]:
    """Return the rows of each dataset, and a message for each background without rows."""
    target = inputs.target
    if target is None or target.source is None:
        raise RowsNeededError("target: a report needs rows to draw, and none were given. Give the rows of the target.")
    backgrounds = {data.role: data.source for data in inputs.backgrounds}
    sources = {"target": target.source} | {name: source for name, source in backgrounds.items() if source is not None}
    for name, source in sources.items():  # before anything is computed on a cluster
        source.check_order(name)
    return sources, [
        f"{name} was given as moments, so it has no rows to draw." for name in backgrounds if name not in sources
    ]


def _background_labels(given: Any, names: list[str]) -> dict[str, Any]:
    """Return the labels of each background under its name."""
    if given is None:
        return {}
    if names == ["background"]:
        return {"background": given}
    items = given.items() if isinstance(given, Mapping) else enumerate(given)
    labels = {background_name(key): values for key, values in items}
    unknown = [name for name in labels if name not in names]
    if unknown:
        found = f"{listed(unknown)} is not among the backgrounds {listed(names)}"
        raise InputError(f"background_labels: {found}. Give one entry for each background, under its name.")
    return labels


def _used_features(main: Model, name: str, source: Source) -> Source:
    """Return a dataset with the features of the model; features="common" may have dropped some."""
    if main.used is None or main.names is None:
        return source
    names = tuple(main.names[index] for index in main.used)
    aligned = align(Dataset(name, source), names, len(names), "common").source
    assert aligned is not None
    return aligned


def _transform(estimator: BaseContrast) -> Callable[[Source], Any]:
    """Return the transform of rows that have only the features of the model."""
    model = estimator._solved()
    if model.used is None:
        return estimator._scores
    project, names = model.narrowed().project, estimator.get_feature_names_out()
    return lambda source: source.map_rows(project, names)


def _pca(main: Model, target: Source) -> tuple[dict[str, BaseContrast], list[str]]:
    """Fit a PCA of the target to compare a single model with, or return the reason why there is none."""
    rows, size = main.target_counts.rows, target.n_features
    reason = f"a covariance matrix of {size:,} features would take too much memory."
    if size <= _MAX_FEATURES or (isinstance(target, RowSource) and rows <= size):
        for n_components in (max(min(max(main.n_components, 2), size, rows - 1), 1), 1):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", StandoutWarning)
                try:
                    return {"PCA": DPCA(n_components).fit(target)}, []
                except InputError as error:  # the rank of the target may be lower
                    reason = str(error)
    return {}, [f"PCA is not shown for comparison: {reason}"]


def sample_rows(sizes: Sequence[int], most: int) -> list[NDArray[np.intp]]:
    """Choose the rows to draw: an equal share of each dataset, or all rows of a dataset smaller than its share."""
    remaining = most
    rng = np.random.default_rng(0)
    shares = [0] * len(sizes)
    for done, smallest in enumerate(np.argsort(sizes, kind="stable")):
        shares[smallest] = min(sizes[smallest], remaining // (len(sizes) - done))
        remaining -= shares[smallest]
    return [
        np.arange(size) if share == size else np.sort(rng.choice(size, share, replace=False))
        for size, share in zip(sizes, shares, strict=True)
    ]


def _row_ids(name: str, source: Source, ids: Any, size: int) -> NDArray[Any] | None:
    """Return the given ids of rows or those of the source, which a stream has only after it was read."""
    ids = source.row_values("ids", f"{name}: ids") if ids is None else ids
    if ids is not None and np.shape(ids) != (size,):
        raise InputError(f"{name}: ids of shape {np.shape(ids)} for {size} rows. Give one id for each row.")
    return None if ids is None else np.asarray(ids)


def _drawn_rows(
    name: str, source: Source, labels: Any, ids: NDArray[Any] | None, size: int, index: NDArray[np.intp]
) -> DrawnRows:
    """Return the rows to draw."""
    labels = source.row_values("label", f"{name}: labels") if labels is None else labels
    encoded = None if labels is None else Labels.of(labels, size, f"{name}: labels").take(index)
    return DrawnRows(name, size, index, encoded, None if ids is None else [str(value) for value in ids[index].tolist()])


class PointSet(NamedTuple):
    """Rows of one dataset with one style and one legend entry."""

    name: str
    dataset: int  # index among the datasets
    rows: NDArray[np.intp]  # among the rows of the dataset that are drawn
    color: str
    symbol: str
    background: bool = False
    texts: list[str] | None = None  # labels of the rows, where they differ
    values: Array | None = None  # continuous labels


def point_sets(contents: Contents) -> list[PointSet]:
    """Return the sets in the order of the legend: the classes of the target, then the backgrounds."""
    target, *backgrounds = contents.datasets
    sets = list(_target_sets(target))
    first = len(sets)
    for dataset, drawn in enumerate(backgrounds, start=1):
        sets += _background_sets(drawn, dataset, len(sets) - first)
    return sets


def _target_sets(drawn: DrawnRows) -> Iterator[PointSet]:
    labels, rows = drawn.labels, np.arange(len(drawn.positions))
    if labels is None:
        yield PointSet("target", 0, rows, _style.COLORS[0], _style.SYMBOLS[0])
        return
    names, codes, numbers = labels
    if numbers is not None:
        present = rows[~labels.missing]
        yield PointSet("target", 0, present, "", _style.SYMBOLS[0], values=numbers[present])
    sizes = np.bincount(codes[codes >= 0], minlength=len(names))
    shown = np.flatnonzero(sizes)
    if len(shown) > _MAX_CLASSES:
        shown = np.sort(np.argsort(-sizes, kind="stable")[: _MAX_CLASSES - 1])
    for index, code in enumerate(shown):
        style = _style.style(index)
        yield PointSet(names[code], 0, rows[codes == code], style.color, style.symbol)
    rest = rows[~np.isin(codes, [-1, *shown])]
    if len(rest):
        texts = [names[code] for code in codes[rest]]
        yield PointSet(f"{len(set(texts))} other labels", 0, rest, _OTHER, "circle-open", texts=texts)
    if labels.missing.any():
        yield PointSet("missing", 0, rows[labels.missing], _style.MISSING, "x-thin-open")


def _background_sets(drawn: DrawnRows, dataset: int, first: int) -> Iterator[PointSet]:
    """Yield a background as one set, or as one set per class if there are few classes."""
    labels, rows, texts = drawn.labels, np.arange(len(drawn.positions)), None
    if labels is not None and labels.numbers is not None:
        texts = ["missing" if math.isnan(value) else number(value) for value in labels.numbers]
    elif labels is not None and (len(labels.names) > _MAX_BACKGROUND_CLASSES or labels.missing.any()):
        texts = ["missing" if code < 0 else labels.names[code] for code in labels.codes]
    if labels is None or texts is not None:
        classes = [(drawn.name, rows)]
    else:
        classes = [(f"{drawn.name}: {name}", rows[labels.codes == code]) for code, name in enumerate(labels.names)]
    for index, (name, chosen) in enumerate(classes, start=first):
        if len(chosen):
            style = _style.grey(index)
            yield PointSet(name, dataset, chosen, style.color, style.symbol, True, texts)


def scores_data(contents: Contents, sets: list[PointSet]) -> dict[str, Any]:
    """Return what the script of the page draws: sets of points, and their coordinates in each panel."""
    total = sum(len(drawn.positions) for drawn in contents.datasets)
    several = sum(bool(panel.model.background_counts) for panel in contents.panels) > 1
    return {
        "sets": [_set_data(points, contents.datasets[points.dataset], total) for points in sets],
        # The drawing order: backgrounds first, behind the target.
        "order": sorted(range(len(sets)), key=lambda index: not sets[index].background),
        "panels": [_panel_data(panel, sets, total, several) for panel in contents.panels],
    }


def _set_data(points: PointSet, drawn: DrawnRows, total: int) -> dict[str, Any]:
    # A large background does not make the points of the target smaller.
    magnitude = math.log10(max(total if points.background else len(drawn.positions), 100))
    data: dict[str, Any] = {
        "label": _literal(points.name),
        "short": _literal(points.name, 16),
        "color": points.color,
        "symbol": points.symbol,
        "size": round(10.5 - 1.6 * magnitude, 1),
        "opacity": round((0.8 if points.background else 1.08) - 0.15 * magnitude, 2),
    }
    if drawn.ids is None:
        data["rows"] = packed(drawn.positions[points.rows] + 1)
    else:
        data["ids"] = [_literal(drawn.ids[row]) for row in points.rows]
    if points.texts is not None:
        data["texts"] = [_literal(text) for text in points.texts]
    if points.values is not None:
        data["values"] = packed(points.values)
    return data


def _panel_data(panel: Panel, sets: list[PointSet], total: int, several: bool) -> dict[str, Any]:
    quantity, values = "ratio" if panel.model.background_counts else "variance", panel.model.ratios
    if several:  # a ratio by which the models can be compared
        for name, found in (("held-out ratio", panel.held_out_ratios), ("sample ratio", panel.sample_ratios)):
            if len(found) >= panel.n_axes > 0:
                quantity, values = name, found
                break
    rng = np.random.default_rng(0)
    coordinates = []
    for index, points in enumerate(sets):
        scores = panel.scores[points.dataset][points.rows]
        columns = [packed(scores[:, axis]) for axis in range(panel.n_axes)]
        if panel.n_axes == 1:  # one strip per set, with vertical jitter
            columns.append(packed(len(sets) - 1 - index + rng.uniform(-0.3, 0.3, len(scores))))
        coordinates.append(columns)
    axes = zip(panel.model.component_names, values[: panel.n_axes], strict=False)
    return {
        "webgl": total > _MAX_SVG_POINTS,
        "strips": panel.n_axes == 1,
        "axes": [f"{name} ({quantity} {number(ratio)})" for name, ratio in axes],
        "coordinates": coordinates,
    }


def packed(values: NDArray[Any]) -> dict[str, str]:
    """Return an array as plotly's typed array, in base64."""
    dtype = "i4"
    if values.dtype.kind == "f":
        largest = float(np.abs(values).max(initial=0.0))
        dtype = "f4" if largest == 0 or _SMALL < largest < _LARGE else "f8"
    return {"dtype": dtype, "bdata": b64encode(values.astype(f"<{dtype}").tobytes()).decode("ascii")}


def _literal(text: str, most: int = 60) -> str:
    """Cut long text, and escape it so that plotly renders it literally."""
    return shortened(text, most).translate(_LITERAL)


def ratio_figure(model: Model) -> dict[str, Any]:
    """Return the ratios on a log axis, with the unshrunk ones if the background was shrunk; or the variances."""
    names = model.component_names
    # Room at the right for the labels of the lines.
    room = [-0.5, 1.35 * len(names) - 0.5]
    xaxis = {"title": {"text": "component"}, "type": "category", "range": room}
    if not model.background_counts:
        trace = {**_points(names, model.ratios, model.ratios, "variance", "circle"), "mode": "lines+markers"}
        return {"data": [trace], "layout": {"xaxis": xaxis, "yaxis": {"title": {"text": "variance"}}}}
    # The axis includes the noise edge and a ratio of one. Infinite ratios lie at its top, zeros at its bottom.
    edge, critical = model.noise_edge, critical_ratio(model)
    values = np.concatenate([model.ratios, model.unshrunk_ratios, [edge, critical, 1.0]])
    positive = values[np.isfinite(values) & (values > 0)]
    room = max(positive.max() / positive.min(), 2.0) ** 0.12
    bottom, top = float(positive.min() / room), float(positive.max() * room)
    shown = [("ratio", model.ratios, "circle")]
    if model.regime == "shrunk" and not np.isnan(model.unshrunk_ratios).all():
        shown.append(("unshrunk ratio", model.unshrunk_ratios, "diamond-open"))
    traces = []
    for name, values, symbol in shown:
        text = ["∞" if math.isinf(value) else "0" if value == 0 else "" for value in values]
        labels = {"mode": "markers+text", "text": text, "textposition": "middle right"}
        traces.append({**_points(names, values, np.clip(values, bottom, top), name, symbol), **labels})
    levels = [("noise edge", edge, "dash"), ("5 % critical value", critical, "dot")]
    shapes, annotations = [], []
    for name, level, dash in levels:
        if math.isnan(level):
            continue
        line = {"color": _style.MISSING, "dash": dash, "width": 1.5}
        shapes.append({"type": "line", "x0": 0, "x1": 1, "xref": "paper", "y0": level, "y1": level, "line": line})
        annotations.append({
            "text": f"{name} {number(level)}", "x": 1, "xref": "paper", "xanchor": "right", "y": math.log10(level),
            "yanchor": "top" if level < max(edge, critical) else "bottom", "showarrow": False,
            "font": {"color": _style.MISSING},
        })  # fmt: skip
    layout = {
        "xaxis": xaxis, "yaxis": {"title": {"text": "ratio"}, **_log_axis(bottom, top, 0.05)},
        "showlegend": len(traces) > 1, "shapes": shapes, "annotations": annotations,
    }  # fmt: skip
    return {"data": traces, "layout": layout}


def _points(components: list[str], values: Array, heights: Array, name: str, symbol: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "name": name,
        "x": components,
        "y": [None if math.isnan(height) else float(height) for height in heights],
        "customdata": [number(float(value)) for value in values],
        "hovertemplate": f"%{{x}}<br>{name} %{{customdata}}<extra></extra>",
        "marker": {"color": _style.COLORS[0 if symbol == "circle" else 1], "symbol": symbol, "size": 10},
    }


def null_figure(test: PermutationTest) -> dict[str, Any]:
    """Return the permuted ratios of the first component as bars, and the observed one as a line."""
    edges, counts, observed, log = null_histogram(test, 0)
    low, high = edges[:-1], edges[1:]
    bars = {
        "type": "bar",
        "x": ((low + high) / 2).tolist(),
        "width": (high - low).tolist(),
        "y": counts.tolist(),
        "customdata": [f"{number(start)} to {number(end)}" for start, end in zip(low, high, strict=True)],
        "hovertemplate": "ratio %{customdata}<br>%{y} permutations<extra></extra>",
        "marker": {"color": _style.GREYS[0], "line": {"width": 0}},
    }
    left, right = float(edges[0]), max(float(edges[-1]), observed)
    axis = _log_axis(left, right, 0.06) if log else _linear_axis(left, right, 0.06)
    position = math.log10(observed) if log else observed
    at_right = position > sum(axis["range"]) / 2
    line = {"color": _style.COLORS[1], "width": 2}
    layout = {
        "xaxis": {"title": {"text": "tested ratio of dpca0"}, **axis},
        # Room above the bars for the label of the line.
        "yaxis": {"title": {"text": "permutations"}, "range": [0, 1.2 * float(counts.max())]},
        "shapes": [{"type": "line", "x0": observed, "x1": observed, "y0": 0, "y1": 1, "yref": "paper", "line": line}],
        "annotations": [
            {
                "text": f"observed {number(float(test.ratios[0]))}", "x": position, "y": 1, "yref": "paper",
                "xanchor": "right" if at_right else "left", "yanchor": "top", "xshift": -5 if at_right else 5,
                "showarrow": False, "font": {"color": _style.COLORS[1]},
            }
        ],
    }  # fmt: skip
    return {"data": [bars], "layout": layout}


def _linear_axis(low: float, high: float, margin: float) -> dict[str, Any]:
    pad = margin * (high - low)
    return {"range": [low - pad, high + pad], "zeroline": False}


def _log_axis(low: float, high: float, margin: float) -> dict[str, Any]:
    """Return a logarithmic axis with a margin at both ends and round numbers as ticks."""
    axis = _linear_axis(math.log10(low), math.log10(high), margin)
    powers = range(math.floor(axis["range"][0]), math.ceil(axis["range"][1]) + 1)
    steps = (1, 2, 5) if len(powers) <= 4 else (1,)
    ticks = [step * 10.0**power for power in powers[:: math.ceil(len(powers) / 8)] for step in steps]
    return {**axis, "type": "log", "tickvals": ticks, "ticktext": [number(tick) for tick in ticks]}
