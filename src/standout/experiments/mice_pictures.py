"""Pictures of the mice experiment: scores with every row tied to its mouse, and ratios in and out of the sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from standout.experiments.mice_measures import Separation, Worth
from standout.experiments.mice_readings import Reading
from standout.show import styles
from standout.show.plot.canvas import plain, pyplot

_COLUMNS = 3


def draw_scores(reading: Reading, found: Sequence[Separation]) -> Any:
    """Draw the scores of each method: a line ties every row to the mean of its mouse."""
    high = -(-len(found) // _COLUMNS)
    figure, grid = pyplot().subplots(high, _COLUMNS, figsize=(10.5, 3.1 * high + 0.4), layout="constrained")
    for axes, one in zip(grid.flat, found, strict=False):
        _draw_method(axes, reading, one)
    for axes in grid.flat[len(found) :]:
        axes.set_visible(False)
    handles, names = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(names), frameon=False)
    return figure


def _draw_method(axes: Any, reading: Reading, found: Separation) -> None:
    scores = found.scores / found.scores.std(axis=0)
    if scores.shape[1] == 1:  # the signal may have a single axis
        scores = np.column_stack([scores, np.zeros(len(scores))])
    for number, kind in enumerate(np.unique(reading.kinds)):
        look = styles.style(number)
        inside = reading.kinds == kind
        centres = np.stack([scores[reading.mice == mouse].mean(axis=0) for mouse in reading.mice[inside]])
        # One line for all rows, lifted from the paper after each: many lines would take long to draw.
        ties = np.stack([scores[inside], centres, np.full(centres.shape, np.nan)], axis=1).reshape(-1, 2)
        axes.plot(*ties.T, color=look.color, linewidth=0.4, alpha=0.5)
        axes.scatter(*scores[inside].T, s=7, color=look.color, alpha=0.6, linewidths=0)
        label = plain(f"{kind}: a mouse's mean, and its rows")
        axes.scatter(
            *np.unique(centres, axis=0).T, s=34, color=look.color, marker=look.marker, edgecolors="white",
            linewidths=0.6, label=label, zorder=3,
        )  # fmt: skip
    axes.set_title(f"{found.method}\naccuracy on unseen mice {found.unseen.mean:.2f}", fontsize=10)
    axes.set(xlabel="score 1 / sd", ylabel="score 2 / sd")


def draw_ratios(found: Sequence[Worth]) -> Any:
    """Draw the largest ratio of each problem on its own rows, on other rows and on other mice."""
    figure, axes = pyplot().subplots(figsize=(8.4, 0.52 * len(found) + 1.9), layout="constrained")
    places = np.arange(len(found))[::-1]
    kinds = (
        ("the rows it was found on", [(one.ratio, one.ratio, one.ratio) for one in found]),
        ("other rows of the same mice", [_ends(one.held_out_by_rows) for one in found]),
        ("rows of other mice", [_ends(one.held_out_by_mouse) for one in found]),
    )
    for number, (name, values) in enumerate(kinds):
        look = styles.style(number)
        low, mean, high = np.array(values).T
        spread = [mean - low, high - mean]
        axes.errorbar(
            mean, places, xerr=spread, fmt=look.marker, color=look.color, label=name, markersize=7, linewidth=1.2,
            capsize=2,
        )  # fmt: skip
    axes.axvline(1, color=styles.GREYS[1], linewidth=1)
    axes.annotate("no more than background", (1, 0), (3, 4), xycoords=("data", "axes fraction"),
                  textcoords="offset points", fontsize=8, color=styles.GREYS[1])  # fmt: skip
    axes.set_yticks(places, [plain(f"{one.reading}\n{one.problem}") for one in found])
    axes.set(xscale="log", xlabel="largest ratio of target to background variance, measured on …")
    axes.set_ylim(-0.9, len(found) - 0.4)
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return figure


def _ends(spread: Any) -> tuple[float, float, float]:
    return spread.low, spread.mean, spread.high


def draw_accuracies(readings: Sequence[str], found: Sequence[Sequence[Separation]]) -> Any:
    """Draw the accuracy of each method, with axes that saw the held-out mice and with axes that did not."""
    figure, grid = pyplot().subplots(
        1, len(found), figsize=(4.6 * len(found) + 1.4, 4.2), layout="constrained", sharey=True, squeeze=False
    )
    for axes, name, methods in zip(grid[0], readings, found, strict=True):
        places = np.arange(len(methods))[::-1]
        for number, kind in enumerate(("seen", "unseen")):
            low, mean, high = np.array([_ends(getattr(one, kind)) for one in methods]).T
            look = styles.style(number)
            label = "axes saw all mice" if kind == "seen" else "axes saw no held-out mouse"
            axes.errorbar(
                mean, places + 0.14 - 0.28 * number, xerr=[mean - low, high - mean], fmt=look.marker, color=look.color,
                label=label, markersize=6, linewidth=1.2, capsize=2,
            )  # fmt: skip
        axes.axvline(0.5, color=styles.GREYS[1], linewidth=1, linestyle=":")
        axes.set_yticks(places, [one.method for one in methods])
        axes.set(title=plain(name), xlabel="accuracy (dotted: a guess)", xlim=(0, 1.03))
        axes.grid(axis="x", alpha=0.3)
    handles, names = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=2, frameon=False)
    return figure
