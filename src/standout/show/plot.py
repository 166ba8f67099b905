"""Plots with matplotlib: each takes axes and returns them, so that they compose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from standout.errors import MissingExtraError

# Okabe and Ito's colours, which colour-blind readers can tell apart; every class has a marker too.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
MARKERS = ("o", "D", "^", "s", "v", "P", "X", "*")


def pyplot() -> Any:
    """Return matplotlib's pyplot, or say how to get it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingExtraError("plots need matplotlib. Install it with: pip install 'standout[plot]'") from error
    return plt


def scores(
    values: ArrayLike,
    labels: Sequence[Any] | ArrayLike | None = None,
    *,
    axes: Any = None,
    title: str = "",
    names: Sequence[str] = ("component 1", "component 2"),
) -> Any:
    """Draw the first two scores of each row, coloured by label.

    Parameters
    ----------
    values : array-like of shape (n_rows, n_components)
        Scores, at least two columns.
    labels : sequence of shape (n_rows,), optional
        What to colour by.
    axes : matplotlib axes, optional
        Where to draw; by default a new figure.
    title : str
        Title of the axes.
    names : sequence of str
        Names of the two axes.

    Returns
    -------
    matplotlib axes
    """
    points = np.asarray(values)
    if axes is None:
        _, axes = pyplot().subplots(figsize=(5, 4.5), layout="constrained")
    kinds = np.zeros(len(points), dtype=int) if labels is None else np.asarray(labels)
    for number, kind in enumerate(np.unique(kinds)):
        chosen = points[kinds == kind]
        axes.scatter(
            chosen[:, 0], chosen[:, 1], s=16, alpha=0.75, linewidths=0,
            c=COLORS[number % len(COLORS)], marker=MARKERS[number % len(MARKERS)],
            label=str(kind) if labels is not None else None,
        )  # fmt: skip
    axes.set(title=title, xlabel=names[0], ylabel=names[1])
    if labels is not None:
        axes.legend(frameon=False)
    return axes
