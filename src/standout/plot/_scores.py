"""The scores of rows as points: target rows coloured by label, background rows behind them in grey.

A path as small multiples: the scores at each step that stands for others, and how alike neighbours are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from standout._blas import Array
from standout._path import SubspacePath
from standout.errors import InputError, RowsNeededError
from standout.io.memory import checked_block
from standout.io.read import is_on_cluster, read
from standout.io.source import block_rows
from standout.plot import _style
from standout.plot._style import MANY, Labels, axes_or_new, number, plain, pyplot, shortened

# Beyond this many points they get smaller, and the legend no longer looks for a free corner (which takes long).
_CROWD = 2000
# A legend with more entries than this covers too much of the picture, and stands beside it.
_SHORT_LEGEND = 8
_COLUMNS = 4


@dataclass(frozen=True)
class _Layer:
    """Points that look alike."""

    name: str
    points: Array  # (n_points, n_components)
    look: dict[str, Any]
    n_labels: int = 1


def scores(
    values: ArrayLike,
    labels: Sequence[Any] | ArrayLike | None = None,
    *,
    background: Any = None,
    axes: Any = None,
    title: str = "",
    names: Sequence[str] = ("component 1", "component 2"),
) -> Any:
    """Draw the first two scores of each row, coloured by label; of a single score, a strip for each label.

    Parameters
    ----------
    values : array-like of shape (n_rows, n_components)
        Scores of the target's rows. The first two columns are drawn.
    labels : sequence of shape (n_rows,), optional
        What to colour by. Numbers with more than 20 values become a scale of colours; rows without a
        label (None or NaN) are shown as "missing".
    background : array-like of shape (n_rows, n_components), or list or dict of them, optional
        Scores of background rows, drawn behind in grey.
    axes : matplotlib axes, optional
        Where to draw; by default a new figure.
    title : str
        Title of the axes.
    names : sequence of str
        Names of the two axes.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> import numpy as np
    >>> from standout import DPCA
    >>> from standout.plot import scores
    >>> rng = np.random.default_rng(0)
    >>> control, patients = rng.normal(size=(300, 4)), rng.normal(size=(100, 4)) * [1, 1, 3, 1]
    >>> model = DPCA().fit(patients, background=control)
    >>> axes = scores(
    ...     model.transform(patients), patients[:, 2] > 0, background=model.transform(control), title="patients"
    ... )
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['background', 'False', 'True']
    """
    points = _checked(values, "values")
    front = list(_front(points, labels))
    layers = [*_behind(background, points.shape[1]), *front]
    axes = axes_or_new(axes, (5, 4.5))
    axes.set(title=title, xlabel=names[0])
    if points.shape[1] == 1:
        layers = _strips(layers)
        axes.set_yticks(range(len(layers)), [plain(shortened(layer.name)) for layer in layers])
    else:
        axes.set_ylabel(names[1])
    total = sum(len(layer.points) for layer in layers)
    crowd = min(1.0, _CROWD / max(total, 1))
    look = {"s": max(16 * crowd**0.5, 1.0), "alpha": max(0.75 * crowd**0.2, 0.2), "linewidths": 0}
    drawn = [
        axes.scatter(*layer.points[:, :2].T, **{**look, "rasterized": total > 5 * _CROWD, **layer.look})
        for layer in layers
    ]
    for artist, layer in zip(drawn, layers, strict=True):
        if "cmap" in layer.look:
            axes.figure.colorbar(artist, ax=axes)
    if points.shape[1] > 1:
        _legend(axes, drawn, layers, total, labelled=labels is not None)
    return axes


def _checked(values: Any, role: str) -> Array:
    if isinstance(values, BaseEstimator):
        raise InputError(
            f"{role}: a {type(values).__name__} is a model, and scores are drawn. Give model.transform(rows)."
        )
    if is_on_cluster(values) and not hasattr(type(values), "__array__"):
        raise RowsNeededError(
            f"{role}: a {type(values).__name__} of Spark lies on a cluster. Bring the scores into memory first, with "
            "toPandas().to_numpy()."
        )
    points = np.asarray(values)
    if points.ndim != 2 or points.dtype.kind not in "fiu":
        raise InputError(
            f"{role}: an array of shape {points.shape} and type {points.dtype} is no table of scores. "
            "Give one row of numbers for each row of the data, as transform returns them."
        )
    if points.shape[1] == 0:
        raise InputError(
            f"{role}: the scores have no columns, because the model has no components. Fit it with n_components=2, or "
            "draw its ratios instead: use standout.plot.ratios(model)."
        )
    return points


def _behind(background: Any, n_components: int) -> Iterator[_Layer]:
    """Yield the backgrounds, each in a grey of its own."""
    if background is None:
        return
    if isinstance(background, Mapping):
        named = {str(name): values for name, values in background.items()}
    elif isinstance(background, list | tuple) and len(background) and _is_table(background[0]):
        named = {f"background {number}": values for number, values in enumerate(background)}
    else:
        named = {"background": background}
    for index, (name, values) in enumerate(named.items()):
        points = _checked(values, name)
        if points.shape[1] < min(n_components, 2):
            raise InputError(
                f"{name}: {points.shape[1]} score for each row, and the target's rows have {n_components}. "
                "Give the scores of the same components."
            )
        look = _style.grey(index)
        yield _Layer(name, points[:, :n_components], {"c": look.color, "marker": look.marker})


def _is_table(values: Any) -> bool:
    return is_on_cluster(values) or np.ndim(values) == 2


def _front(points: Array, labels: Any) -> Iterator[_Layer]:
    """Yield the target's rows: those without a label, then class by class, or all on one scale of colours."""
    if labels is None:
        yield _Layer("target", points, {"c": _style.COLORS[0], "marker": _style.MARKERS[0]})
        return
    about = Labels.of(labels, len(points))
    if about.missing.any():
        yield _Layer("missing", points[about.missing], {"c": _style.MISSING, "marker": "x", "linewidths": 1})
    if about.numbers is not None:
        known = ~about.missing
        yield _Layer("target", points[known], {"c": about.numbers[known], "cmap": _style.NUMBERS})
        return
    for index, name in enumerate(about.names[: _style.DISTINCT]):
        look = _style.style(index)
        yield _Layer(name, points[about.codes == index], {"c": look.color, "marker": look.marker})
    more = len(about.names) - _style.DISTINCT
    if more > 0:
        rest = points[about.codes >= _style.DISTINCT]
        yield _Layer(f"{more} other labels", rest, {"c": _style.MISSING, "marker": "."}, n_labels=more)


def _strips(layers: list[_Layer]) -> list[_Layer]:
    """Give each layer a strip of its own, its points scattered a little so that they do not hide each other."""
    rng = np.random.default_rng(0)
    return [
        replace(layer, points=np.column_stack([layer.points[:, 0], place + rng.uniform(-0.3, 0.3, len(layer.points))]))
        for place, layer in enumerate(layers)
    ]


def _legend(axes: Any, drawn: list[Any], layers: list[_Layer], total: int, *, labelled: bool) -> None:
    named = [(artist, layer) for artist, layer in zip(drawn, layers, strict=True) if "cmap" not in layer.look]
    if not named or (len(layers) == 1 and not labelled):
        return
    entries = [(artist, plain(shortened(layer.name))) for artist, layer in named[:MANY]]
    more = sum(layer.n_labels for _, layer in named[MANY:])
    if more > 0:
        from matplotlib.lines import Line2D

        entries.append((Line2D([], [], linestyle="none"), f"and {more} more"))
    beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
    place = beside if len(entries) > _SHORT_LEGEND or total > 5 * _CROWD else {}
    axes.legend(*zip(*entries, strict=True), frameon=False, **place)


def gallery(path: Any, data: Any, labels: Any = None, *, figure: Any = None) -> Any:
    """Draw the scores of rows at the representatives of a path, and the affinity of its neighbouring steps.

    Parameters
    ----------
    path : SubspacePath
        What :func:`standout.path` returns, or ``CPCA(alpha="auto")`` has as ``path_``.
    data : path of a file, array-like, frame, sparse matrix or Source, of shape (n_rows, n_features)
        The rows to draw, centred by their own mean; read once.
    labels : sequence of shape (n_rows,), optional
        What to colour by; by default the source's own labels.
    figure : matplotlib figure or subfigure, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib figure

    Examples
    --------
    >>> import numpy as np
    >>> import standout
    >>> from standout.plot import gallery
    >>> rng = np.random.default_rng(0)
    >>> background = rng.normal(size=(500, 4)) * [9, 3, 1, 1]
    >>> target = rng.normal(size=(500, 4)) * [9, 3, 1, 4]
    >>> found = standout.path(target, background, n_representatives=3)
    >>> figure = gallery(found, target)
    >>> [axes.get_title() for axes in figure.axes][0]
    'alpha = 0 (PCA)'
    """
    if not isinstance(path, SubspacePath):
        raise InputError(f"path: a {type(path).__name__} was given. Give what standout.path returns.")
    source = read(data, role="data")
    views = _scores(path, source)
    labels = source.labels if labels is None else labels
    wide = min(len(views), _COLUMNS)
    high = math.ceil(len(views) / wide)
    if figure is None:
        figure = pyplot().figure(figsize=(3.4 * wide, 3.2 * high + 1.8), layout="constrained")
    grid = figure.add_gridspec(high + 1, wide, height_ratios=[*[3.0] * high, 1.2])
    for place, (step, values) in enumerate(zip(path.representatives, views, strict=True)):
        axes = figure.add_subplot(grid[place // wide, place % wide])
        scores(values, labels, axes=axes, title=_title(path, int(step)))
        # One legend is enough; a long one stands beside its axes, so at the end of the row.
        if place != wide - 1 and axes.get_legend() is not None:
            axes.get_legend().remove()
    _draw_affinity(path, figure.add_subplot(grid[high, :]))
    return figure


def _title(path: SubspacePath, step: int) -> str:
    value = path.values[step]
    known = {("alpha", 0.0): " (PCA)", ("shrinkage", 0.0): " (exact)", ("shrinkage", 1.0): " (PCA, in background sd)"}
    return f"{path.over} = {number(value)}{known.get((path.over, float(value)), '')}"


def _scores(path: SubspacePath, source: Any) -> list[Array]:
    """Return the scores of all rows at each representative, from one pass over them."""
    filters = path.components[path.representatives]
    if source.n_features != filters.shape[2]:
        raise InputError(
            f"data: {source.n_features} features, and the path was found on {filters.shape[2]}. "
            "Give rows with the features of the path, in their order."
        )
    basis = filters.reshape(-1, filters.shape[2]).T
    blocks = source.blocks(block_rows(source.n_features))
    found = np.concatenate([checked_block(block, source.n_features, "data") @ basis for block in blocks])
    if not np.isfinite(found).all():
        raise InputError("data: there are NaN or infinite values among the rows. Leave them out, or fill them in.")
    return np.split(found - found.mean(axis=0), len(filters), axis=1)


def _draw_affinity(path: SubspacePath, axes: Any) -> None:
    steps = np.arange(len(path.values))
    alike = np.diagonal(path.similarity, offset=1)
    axes.plot(steps[:-1] + 0.5, alike, color=_style.COLORS[0], marker=".")
    for place in path.representatives:
        axes.axvline(place, color=_style.COLORS[1], linestyle=":")
    shown = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), 9)).round().astype(int))
    axes.set_xticks(shown, [number(path.values[step]) for step in shown])
    axes.set(ylim=(-0.05, 1.05), xlabel=f"{path.over} (dotted: the steps above)", ylabel="affinity of\nneighbours")
