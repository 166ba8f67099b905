"""A path as small multiples: the scores at each step that stands for others, and how alike neighbours are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from standout.blas import Array
from standout.errors import InputError
from standout.paths import Path
from standout.show import styles
from standout.show.plot.canvas import pyplot
from standout.show.plot.points import scores
from standout.show.text import number
from standout.sources import block_rows, read
from standout.sources.checks import checked_block

_COLUMNS = 4


def gallery(path: Any, data: Any, labels: Any = None, *, figure: Any = None) -> Any:
    """Draw the scores of rows at the representatives of a path, and the affinity of its neighbouring steps.

    Parameters
    ----------
    path : Path
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
    >>> from standout.show import gallery
    >>> rng = np.random.default_rng(0)
    >>> background = rng.normal(size=(500, 4)) * [9, 3, 1, 1]
    >>> target = rng.normal(size=(500, 4)) * [9, 3, 1, 4]
    >>> found = standout.path(target, background, n_representatives=3)
    >>> figure = gallery(found, target)
    >>> [axes.get_title() for axes in figure.axes][0]
    'alpha = 0 (PCA)'
    """
    if not isinstance(path, Path):
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


def _title(path: Path, step: int) -> str:
    value = path.values[step]
    known = {("alpha", 0.0): " (PCA)", ("shrinkage", 0.0): " (exact)", ("shrinkage", 1.0): " (PCA, in background sd)"}
    return f"{path.over} = {number(value)}{known.get((path.over, float(value)), '')}"


def _scores(path: Path, source: Any) -> list[Array]:
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


def _draw_affinity(path: Path, axes: Any) -> None:
    steps = np.arange(len(path.values))
    alike = np.diagonal(path.similarity, offset=1)
    axes.plot(steps[:-1] + 0.5, alike, color=styles.COLORS[0], marker=".")
    for place in path.representatives:
        axes.axvline(place, color=styles.COLORS[1], linestyle=":")
    shown = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), 9)).round().astype(int))
    axes.set_xticks(shown, [number(path.values[step]) for step in shown])
    axes.set(ylim=(-0.05, 1.05), xlabel=f"{path.over} (dotted: the steps above)", ylabel="affinity of\nneighbours")
