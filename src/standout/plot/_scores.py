"""Scatter plots of scores, coloured by label: one model, or a path of models as small multiples."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from standout._blas import Array
from standout._cpca import SubspacePath
from standout._display import number
from standout._inputs import are_several
from standout.errors import InputError, RowsNeededError
from standout.io.memory import as_numpy, checked_block, is_missing
from standout.io.read import is_on_cluster, read
from standout.io.source import block_rows
from standout.plot import _style
from standout.plot._style import axes_or_new, plain, pyplot, shortened

# Numeric labels with more distinct values than this are continuous; a legend has no more entries than this.
_MAX_CLASSES = 20
# Plots with more points than this draw them smaller; with five times as many, they are rasterized and the legend is
# placed outside, because matplotlib's search for a free corner is slow.
_MANY_POINTS = 2000
# Legends with more entries than this are placed outside the axes.
_SHORT_LEGEND = 8
_PANELS_PER_ROW = 4


class Labels(NamedTuple):
    """The label of each row, as the code of a class or as a number."""

    names: list[str]  # of the classes, sorted; empty for continuous labels
    codes: NDArray[np.intp]  # (n_rows,): class of each row, −1 where the label is missing
    numbers: Array | None = None  # (n_rows,): continuous labels, NaN where missing

    @classmethod
    def of(cls, values: Any, n_rows: int, role: str = "labels") -> Labels:
        """Encode the labels of ``n_rows`` rows."""
        given = np.array(values, dtype=object) if isinstance(values, list | tuple) else as_numpy(values)
        if given.shape != (n_rows,):
            raise InputError(f"{role}: shape {given.shape} for {n_rows} rows. Give one label for each row.")
        plain = (value.item() if isinstance(value, np.generic) else value for value in given.tolist())
        present = np.array([not is_missing(value) for value in plain], dtype=bool)
        numbers = _as_numbers(given[present])
        codes = np.full(n_rows, -1, dtype=np.intp)
        if numbers is None:
            texts = [str(value) or "(empty)" for value in given[present]]
            names = sorted(set(texts), key=_natural)
            code = {name: index for index, name in enumerate(names)}
            codes[present] = [code[text] for text in texts]
            return cls(names, codes)
        distinct, inverse = np.unique(numbers, return_inverse=True)
        if len(distinct) > _MAX_CLASSES:
            continuous = np.full(n_rows, np.nan)
            continuous[present] = np.where(np.isinf(numbers), np.nan, numbers)
            return cls([], codes, continuous)
        codes[present] = inverse
        return cls([f"{value:.12g}" for value in distinct], codes)

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Mask of the rows without a label."""
        return self.codes < 0 if self.numbers is None else np.isnan(self.numbers)

    def take(self, index: NDArray[np.intp]) -> Labels:
        """Return the labels of some rows, with the same classes."""
        return Labels(self.names, self.codes[index], None if self.numbers is None else self.numbers[index])


def _as_numbers(present: NDArray[Any]) -> Array | None:
    """Return labels as floats if all are numeric; booleans are classes."""
    numeric = present.dtype.kind in "fiu"
    if present.dtype.kind == "O" and len(present):
        numeric = all(isinstance(value, Real) and not isinstance(value, bool | np.bool_) for value in present)
    return present.astype(np.float64) if numeric else None


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts "day 10" after "day 9"."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part) if part.isdecimal() and part.isascii() else -1, part) for part in parts]


class _Layer(NamedTuple):
    """Points with one style and one legend entry."""

    name: str
    points: Array  # (n_points, n_components)
    style: dict[str, Any]
    n_labels: int = 1


def scores(
    values: ArrayLike,
    labels: Sequence[Any] | ArrayLike | None = None,
    *,
    background: Any = None,
    axes: Any = None,
    title: str = "",
    names: Sequence[str] | None = None,
) -> Any:
    """Plot the first two scores of each row, coloured by label; a single score is drawn as one strip per label.

    Parameters
    ----------
    values : array-like of shape (n_rows, n_components)
        Scores of the target rows. The first two columns are drawn.
    labels : sequence of shape (n_rows,), optional
        Labels to colour by. Numeric labels with more than 20 distinct values use a colour map; rows without a
        label (None or NaN) are shown as "missing".
    background : array-like of shape (n_rows, n_components), or list or dict of them, optional
        Scores of background rows, drawn in grey behind the target.
    axes : matplotlib axes, optional
        Axes to draw on; by default those of a new figure.
    title : str
        Title of the axes.
    names : sequence of str, optional
        Labels of the two axes; by default the column names of a data frame.

    Returns
    -------
    matplotlib axes

    See Also
    --------
    standout.plot.patterns : Plot of the features behind a score.
    standout.plot.gallery : Plot of the scores along a path.
    standout.report : HTML report with interactive plots.

    Examples
    --------
    >>> from standout import DPCA, datasets, plot
    >>> drawn = datasets.FactorModel(two_clusters=True).labelled_sample(100, 300)
    >>> model = DPCA().fit(drawn.target, background=drawn.background)
    >>> axes = plot.scores(model.transform(drawn.target), drawn.cluster, background=model.transform(drawn.background))
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['background', '0', '1']
    """
    points = _checked_scores(values, "values")
    layers = [*_background_layers(background, points.shape[1]), *_target_layers(points, labels)]
    axes = axes_or_new(axes, (5, 4.5))
    if names is None:
        names = [str(name) for name in getattr(values, "columns", ("component 0", "component 1"))]
    axes.set(title=title, xlabel=names[0])
    if points.shape[1] == 1:
        rng = np.random.default_rng(0)  # vertical jitter
        for row, layer in enumerate(layers):
            jittered = np.column_stack([layer.points[:, 0], row + rng.uniform(-0.3, 0.3, len(layer.points))])
            layers[row] = layer._replace(points=jittered)
        axes.set_yticks(range(len(layers)), [plain(shortened(layer.name)) for layer in layers])
    else:
        axes.set_ylabel(names[1])
    total = sum(len(layer.points) for layer in layers)
    crowded = total > 5 * _MANY_POINTS
    shrink = min(1.0, _MANY_POINTS / max(total, 1))
    common = {"s": max(16 * shrink**0.5, 1.0), "alpha": max(0.75 * shrink**0.2, 0.2), "linewidths": 0}
    drawn = []
    for layer in layers:
        artist = axes.scatter(*layer.points[:, :2].T, **{**common, "rasterized": crowded, **layer.style})
        if "cmap" in layer.style:
            axes.figure.colorbar(artist, ax=axes)
        else:
            drawn.append((artist, layer))
    if drawn and points.shape[1] > 1 and (len(layers) > 1 or labels is not None):
        _draw_legend(axes, drawn, outside=crowded)
    return axes


def _checked_scores(values: Any, role: str) -> Array:
    if isinstance(values, BaseEstimator):
        raise InputError(f"{role}: {type(values).__name__} is a model, not scores. Give model.transform(rows).")
    if is_on_cluster(values) and not hasattr(type(values), "__array__"):
        raise RowsNeededError(f"{role}: the scores are on Spark. Bring them into memory with toPandas().to_numpy().")
    points = as_numpy(values)
    if points.ndim != 2 or points.dtype.kind not in "fiu":
        found = f"shape {points.shape} and type {points.dtype}"
        raise InputError(f"{role}: expected a numeric 2-D array, got {found}. Give the scores that transform returns.")
    if points.shape[1] == 0:
        raise InputError(f"{role}: no columns, because the model has no components. Fit it with `n_components=2`.")
    return points


def _background_layers(background: Any, n_components: int) -> Iterator[_Layer]:
    if background is None:
        return
    if isinstance(background, Mapping):
        named = {str(name): values for name, values in background.items()}
    elif are_several(background):
        named = {f"background {i}": values for i, values in enumerate(background)}
    else:
        named = {"background": background}
    for index, (name, values) in enumerate(named.items()):
        points = _checked_scores(values, name)
        if points.shape[1] < min(n_components, 2):
            found = f"{points.shape[1]} score per row, but the target has {n_components}"
            raise InputError(f"{name}: {found}. Give the scores of the same components.")
        style = _style.grey(index)
        yield _Layer(name, points[:, :n_components], {"c": style.color, "marker": style.marker})


def _target_layers(points: Array, labels: Any) -> Iterator[_Layer]:
    """Yield the rows without a label, then one layer per class, or one layer with a colour map."""
    if labels is None:
        yield _Layer("target", points, {"c": _style.COLORS[0], "marker": _style.MARKERS[0]})
        return
    names, codes, numbers = encoded = Labels.of(labels, len(points))
    if encoded.missing.any():
        yield _Layer("missing", points[encoded.missing], {"c": _style.MISSING, "marker": "x", "linewidths": 1})
    if numbers is not None:
        present = ~encoded.missing
        yield _Layer("target", points[present], {"c": numbers[present], "cmap": _style.COLORMAP})
    for code, name in enumerate(names[: _style.DISTINCT]):
        style = _style.style(code)
        yield _Layer(name, points[codes == code], {"c": style.color, "marker": style.marker})
    more = len(names) - _style.DISTINCT
    if more > 0:
        rest = points[codes >= _style.DISTINCT]
        yield _Layer(f"{more} other labels", rest, {"c": _style.MISSING, "marker": "."}, n_labels=more)


def _draw_legend(axes: Any, drawn: list[tuple[Any, _Layer]], *, outside: bool) -> None:
    entries = [(artist, plain(shortened(layer.name))) for artist, layer in drawn[:_MAX_CLASSES]]
    more = sum(layer.n_labels for _, layer in drawn[_MAX_CLASSES:])
    if more > 0:
        from matplotlib.lines import Line2D

        entries.append((Line2D([], [], linestyle="none"), f"and {more} more"))
    outside = outside or len(entries) > _SHORT_LEGEND
    position = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if outside else {}
    axes.legend(*zip(*entries, strict=True), frameon=False, **position)


def gallery(path: Any, data: Any, labels: Any = None, *, figure: Any = None) -> Any:
    """Plot the scores of rows at the representatives of a path, and the affinity of its neighbouring steps.

    Parameters
    ----------
    path : SubspacePath
        Result of :func:`standout.path`, or ``path_`` of ``CPCA(alpha="auto")``.
    data : path of a file, array-like, data frame, sparse matrix or Source, of shape (n_rows, n_features)
        The rows, which are centred by their own mean. They are read once.
    labels : sequence of shape (n_rows,), optional
        Labels to colour by; by default those of the source.
    figure : matplotlib figure or subfigure, optional
        Figure to draw on; by default a new one.

    Returns
    -------
    matplotlib figure

    See Also
    --------
    standout.path : Compute a path.
    standout.CPCA : Chooses alpha along a path.
    standout.plot.scores : Plot of the scores of one model.

    Examples
    --------
    >>> from standout import datasets, path, plot
    >>> target, background = datasets.FactorModel().sample(100, 300)
    >>> figure = plot.gallery(path(target, background, n_representatives=3), target)
    >>> figure.axes[0].get_title()
    'alpha = 0 (PCA)'
    """
    if not isinstance(path, SubspacePath):
        raise InputError(f"path: unsupported type {type(path).__name__}. Give the result of standout.path.")
    source = read(data, role="data")
    panels = _path_scores(path, source)
    labels = source.labels if labels is None else labels
    columns = min(len(panels), _PANELS_PER_ROW)
    rows = math.ceil(len(panels) / columns)
    if figure is None:
        figure = pyplot().figure(figsize=(3.4 * columns, 3.2 * rows + 1.8), layout="constrained")
    grid = figure.add_gridspec(rows + 1, columns, height_ratios=[*[3.0] * rows, 1.2])
    special = {("alpha", 0.0): " (PCA)", ("shrinkage", 0.0): " (exact)", ("shrinkage", 1.0): " (PCA, in background sd)"}
    for index, (step, values) in enumerate(zip(path.representatives, panels, strict=True)):
        axes = figure.add_subplot(grid[index // columns, index % columns])
        value = path.values[step]
        title = f"{path.over} = {number(value)}{special.get((path.over, float(value)), '')}"
        scores(values, labels, axes=axes, title=title)
        # One legend, at the end of the first row, where there is room for a long one.
        if index != columns - 1 and axes.get_legend() is not None:
            axes.get_legend().remove()
    _draw_affinity(path, figure.add_subplot(grid[rows, :]))
    return figure


def _path_scores(path: SubspacePath, source: Any) -> list[Array]:
    """Return the centred scores of all rows at each representative, in one pass."""
    filters = path.components[path.representatives]
    if source.n_features != filters.shape[2]:
        found = f"{source.n_features} features, but the path was computed on {filters.shape[2]}"
        raise InputError(f"data: {found}. Give rows with the features of the path, in the same order.")
    basis = filters.reshape(-1, filters.shape[2]).T
    blocks = source.blocks(block_rows(source.n_features))
    values = np.concatenate([checked_block(block, source.n_features, "data") @ basis for block in blocks])
    if not np.isfinite(values).all():
        raise InputError("data: some rows contain NaN or infinite values. Drop these rows, or impute the values.")
    return np.split(values - values.mean(axis=0), len(filters), axis=1)


def _draw_affinity(path: SubspacePath, axes: Any) -> None:
    steps = np.arange(len(path.values))
    axes.plot(steps[:-1] + 0.5, np.diagonal(path.similarity, offset=1), color=_style.COLORS[0], marker=".")
    for step in path.representatives:
        axes.axvline(step, color=_style.COLORS[1], linestyle=":")
    ticks = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), 9)).round().astype(int))
    axes.set_xticks(ticks, [number(path.values[step]) for step in ticks])
    axes.set(ylim=(-0.05, 1.05), xlabel=f"{path.over} (dotted lines: panels above)", ylabel="affinity of\nneighbours")
