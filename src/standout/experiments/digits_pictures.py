"""The pictures of the digits: what each method shows, its components as images, and how all goes with the weight."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from standout.blas import Array
from standout.experiments.digits_views import METHODS, Sample, View
from standout.experiments.record import Picture, Spread
from standout.experiments.table import written
from standout.show import styles
from standout.show.plot import pyplot, scores

_MEASURES = {"ari": "ARI of two clusters with the digits", "new_accuracy": "logistic accuracy on new digits"}
# The two by ratio, the two by signal and the two by cPCA go together.
_LINES = {"pca": ":", "ratio": "--", "signal_unit": "--", "cpca_search": "--", "kernel": "-.", "literal": "-."}
_COLORS = {
    "pca": 7, "ratio_exact": 1, "ratio": 1, "signal": 0, "signal_unit": 0, "cpca": 2, "cpca_search": 2, "kernel": 3,
    "literal": 4,
}  # fmt: skip


def pictures(
    samples: Mapping[str, Sample], views: Mapping[str, Mapping[str, View]], numbers: Mapping[str, Any], seed: int
) -> tuple[Picture, ...]:
    """Return the pictures; samples and views are those of the first seed, by weight."""
    middle = list(samples)[len(samples) // 2]
    return (
        Picture(
            "scores",
            f"The target by each method (seed {seed})",
            "Every point is a photograph with a digit over it. No method saw which digit it is. ARI: how well two "
            "clusters of the points match the digits (1 perfect, 0 chance).",
            lambda: draw_scores(samples, views),
        ),
        Picture(
            "weights",
            "How well the digits are seen, against how strong they are",
            "Mean over the seeds; bars go from the smallest to the largest.",
            lambda: draw_weights(numbers),
        ),
        Picture(
            "patterns",
            f"What the components look like (weight {middle}, seed {seed})",
            "By how much each pixel moves when the score moves by one target standard deviation (patterns, not "
            "filters): red up, blue down, each image on its own scale, the sign such that it goes with the difference "
            "of the two digits. Left: two rows of the target, one of the background, and that difference.",
            lambda: draw_patterns(samples[middle], views[middle]),
        ),
    )


def draw_scores(samples: Mapping[str, Sample], views: Mapping[str, Mapping[str, View]]) -> Any:
    """Draw the scores: a row for each method, a column for each weight."""
    high, wide = len(METHODS), len(samples)
    figure = pyplot().figure(figsize=(3.1 * wide + 1.7, 1.75 * high + 0.5), layout="constrained")
    grid = figure.subplots(high, wide, squeeze=False)
    for axes, method in zip(grid, METHODS, strict=True):
        for ax, weight in zip(axes, samples, strict=True):
            view = views[weight][method.key]
            told = f"ARI {written(view.measures['ari'])}, accuracy {view.measures['accuracy']:.2f}"
            if view.scores.shape[1]:
                scores(view.scores, samples[weight].digit, axes=ax, title=told)
            else:
                ax.set_title("no component above the noise edge")
            _quiet(ax)
        axes[0].set_ylabel(_broken(method.name), rotation=0, ha="right", va="center")
    for ax, weight in zip(grid[0], samples, strict=True):
        ax.set_title(f"weight {weight}\n{ax.get_title()}", fontsize=9)
    marks, names = grid[0, 0].collections, [f"digit {name}" for name in np.unique(next(iter(samples.values())).digit)]
    figure.legend(marks, names, loc="outside upper center", ncols=2, frameon=False, markerscale=2)
    return figure


def draw_weights(numbers: Mapping[str, Any]) -> Any:
    """Draw two measures of all methods against the weight."""
    figure, axes = pyplot().subplots(1, 2, figsize=(11, 4.6), layout="constrained", sharex=True)
    for ax, (measure, label) in zip(axes, _MEASURES.items(), strict=True):
        for place, method in enumerate(METHODS):
            _draw_line(ax, numbers[measure][method.key], method.key, method.name, place)
        weights = list(numbers[measure][METHODS[0].key])
        ax.set(xlabel="weight of the digits", ylabel=label, xticks=range(len(weights)))
        ax.set_xticklabels(weights)
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color="0.9")
        ax.set_axisbelow(True)
    axes[0].set_ylim(-0.05, 1.03)
    axes[1].set_ylim(0.45, 1.02)
    axes[1].axhline(0.5, color="0.6", linewidth=0.8)
    axes[1].annotate("chance", (0, 0.5), xytext=(0, -4), textcoords="offset points", va="top", color="0.4", fontsize=8)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    return figure


def draw_patterns(sample: Sample, views: Mapping[str, View]) -> Any:
    """Draw the two patterns of every method beside the data and the difference of the digits."""
    figure = pyplot().figure(figsize=(15, 3.4), layout="constrained")
    grid = figure.subplots(2, 2 + len(METHODS))
    for ax in grid.ravel():
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    difference = _draw_data(grid[:, :2], sample)
    for axes, method in zip(grid[:, 2:].T, METHODS, strict=True):
        axes[0].set_title(_broken(method.name), fontsize=8)
        for ax, pattern in zip(axes, views[method.key].patterns, strict=False):
            _draw_image(ax, pattern * np.sign(pattern @ difference))
    for number, ax in enumerate(grid[:, 2], start=1):
        ax.set_ylabel(f"component {number}", fontsize=8)
    return figure


def _draw_data(axes: Any, sample: Sample) -> Array:
    """Draw some rows, and the difference of the mean digits, which is returned."""
    kinds = np.unique(sample.digit)
    one, other = (sample.target[sample.digit == kind] for kind in kinds)
    difference = other.mean(axis=0) - one.mean(axis=0)
    titles = (f"a target row: {kinds[0]}", f"a target row: {kinds[1]}", "a background row")
    for ax, rows, title in zip(axes.ravel(), (one, other, sample.background), titles, strict=False):
        ax.imshow(_image(rows[0]), cmap="gray", interpolation="nearest")
        ax.set_title(title, fontsize=8)
    _draw_image(axes[1, 1], difference)
    axes[1, 1].set_title(f"mean {kinds[1]} − mean {kinds[0]}", fontsize=8)
    return np.asarray(difference)


def _draw_image(ax: Any, pixels: Array) -> None:
    limit = float(np.abs(pixels).max()) or 1.0
    ax.imshow(_image(pixels), cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")


def _draw_line(ax: Any, spreads: Mapping[str, Spread], key: str, name: str, place: int) -> None:
    look = styles.style(_COLORS[key])
    shift = 0.02 * (place - len(METHODS) / 2)  # side by side, so that no bar hides another
    mean = np.array([spread.mean for spread in spreads.values()])
    ends = np.array([[spread.low, spread.high] for spread in spreads.values()]).T
    ax.errorbar(
        np.arange(len(mean)) + shift, mean, yerr=np.abs(ends - mean), label=name, color=look.color,
        marker=(*styles.MARKERS, "<")[place], linestyle=_LINES.get(key, "-"), markersize=5, linewidth=1.4,
        elinewidth=1, capsize=2,
    )  # fmt: skip


def _quiet(ax: Any) -> None:
    """Take away what says nothing here: the units of the scores differ between methods."""
    ax.set(xticks=[], yticks=[], xlabel="", ylabel="")
    ax.title.set_fontsize(8)
    if ax.get_legend() is not None:
        ax.get_legend().remove()
    for points in ax.collections:
        points.set(rasterized=True, sizes=[5])


def _broken(name: str) -> str:
    return name.replace(" (", "\n(")


def _image(pixels: Array) -> Array:
    side = math.isqrt(len(pixels))
    return pixels.reshape(side, side)
