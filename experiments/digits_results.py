"""Results of the digits experiment: findings as sentences, and figures.

Every number in a sentence comes from the run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments import Array
from experiments.digits_methods import METHODS, Sample, View
from experiments.record import Picture, Spread, written
from standout.plot import _style
from standout.plot._scores import scores
from standout.plot._style import pyplot

_MEASURES = {"ari": "ARI of two clusters with the digits", "new_accuracy": "logistic accuracy on new digits"}
# Related methods have related colours: by ratio, by signal, by cPCA.
_LINES = {"pca": ":", "ratio": "--", "signal_unit": "--", "cpca_search": "--", "kernel": "-.", "literal": "-."}
_COLORS = {
    "pca": 7, "ratio_exact": 1, "ratio": 1, "signal": 0, "signal_unit": 0, "cpca": 2, "cpca_search": 2, "kernel": 3,
    "literal": 4,
}  # fmt: skip
# From this ARI on the two digits count as clusters: halfway between chance and perfect.
TWO_CLUSTERS = 0.5

ByWeight = Mapping[str, Spread]
Numbers = Mapping[str, Mapping[str, ByWeight]]  # measure, method, weight
_NAMES = {method.key: method.name for method in METHODS}


def findings(numbers: Numbers, spectrum: Mapping[str, ByWeight], stand_in: bool = False) -> tuple[str, ...]:
    """Return the findings; the first concerns the method of the paper."""
    ari = numbers["ari"]
    about = {key: _about(key, by_weight) for key, by_weight in ari.items()}
    return (
        _paper(ari["ratio_exact"], "two clusters on this stand-in" if stand_in else "the paper's two clusters"),
        _why(spectrum),
        about["ratio"],
        about["signal"],
        about["signal_unit"],
        about["pca"],
        about["cpca"],
        f"{about['cpca_search']} It selects alpha {_values(spectrum['searched_alpha'], list(ari['cpca_search']), 1)}.",
        about["kernel"],
        about["literal"],
        _best(ari),
        _new(numbers),
    )


def _paper(exact: ByWeight, clusters: str) -> str:
    shown, hidden = _sides(exact)
    if not shown:
        low, high = min(spread.low for spread in exact.values()), max(spread.high for spread in exact.values())
        return (
            f"dPCA by the exact ratio, the paper's method, does not give {clusters} at any weight tried: "
            f"two clusters of its scores match the two digits with an ARI of {low:.2f} to {high:.2f}, where 1 is "
            "perfect and 0 is chance."
        )
    some, less = (" at some weights", f", and does not at others: ARI {_values(exact, hidden)}") if hidden else ("", "")
    return (
        f"dPCA by the exact ratio, the paper's method, gives {clusters}{some}: ARI "
        f"{_values(exact, shown)}{less}. 1 is perfect and 0 is chance."
    )


def _why(spectrum: Mapping[str, ByWeight]) -> str:
    weights = list(spectrum["largest_ratio"])
    middle = weights[len(weights) // 2]
    found = {name: by_weight[middle].mean for name, by_weight in spectrum.items()}
    calmer = found["calm_by_ratio"] < 0.5 * found["calm_by_signal"]
    reason = ": the largest ratios lie in fine detail, where photographs hardly vary" if calmer else ""
    return (
        f"At weight {middle} the largest ratio is {found['largest_ratio']:.1f}, the noise edge is "
        f"{found['noise_edge']:.1f}, and {found['above_edge']:.0f} components are above it. Along the first of them, "
        f"photographs have {found['calm_by_ratio']:.1%} of the variance that they have along an average direction "
        f"({found['calm_by_signal']:.1%} along the first axis by signal){reason}."
    )


def _about(key: str, ari: ByWeight) -> str:
    shown, hidden = _sides(ari)
    if not shown:
        return f"{_NAMES[key]} does not show the two digits: ARI {_values(ari, hidden)}."
    less = f", but not at others: ARI {_values(ari, hidden)}" if hidden else ""
    some = " at some weights" if hidden else ""
    return f"{_NAMES[key]} shows the two digits{some}: ARI {_values(ari, shown)}{less}.{_exceptions(ari, shown)}"


def _exceptions(ari: ByWeight, shown: Sequence[str]) -> str:
    """Return a sentence about seeds without digit clusters at weights that have them on average."""
    short = {weight: sum(value < TWO_CLUSTERS for value in ari[weight].values) for weight in shown}
    parts = [f"{count} of {len(ari[weight].values)} at weight {weight}" for weight, count in short.items() if count]
    return f" Not with every seed: the ARI is below {TWO_CLUSTERS} in {', '.join(parts)}." if parts else ""


def _best(ari: Mapping[str, ByWeight]) -> str:
    weights = next(iter(ari.values()))
    best = {weight: max(ari, key=lambda key: ari[key][weight].mean) for weight in weights}
    parts = ", ".join(f"{_NAMES[key]} at {weight} ({ari[key][weight].mean:.2f})" for weight, key in best.items())
    return f"The largest mean ARI at each weight: {parts}."


def _new(numbers: Numbers) -> str:
    gaps = {
        (key, weight): numbers["accuracy"][key][weight].mean - spread.mean
        for key, by_weight in numbers["new_accuracy"].items()
        for weight, spread in by_weight.items()
    }
    key, weight = max(gaps, key=lambda place: gaps[place])
    return (
        "On new digits over new photographs, not used for the axes, the mean logistic accuracy is at most "
        f"{max(gaps[key, weight], 0.0):.2f} below that on the target itself ({_NAMES[key]} at weight {weight})."
    )


def _sides(ari: ByWeight) -> tuple[list[str], list[str]]:
    """Return the weights at which the clusters match the digits, and the others."""
    shown = [weight for weight, spread in ari.items() if spread.mean >= TWO_CLUSTERS]
    return shown, [weight for weight in ari if weight not in shown]


def _values(spreads: ByWeight, weights: Sequence[str], digits: int = 2) -> str:
    """Return the means at some weights as text."""
    parts = [f"{written(spreads[weight].mean, digits)} at weight {weight}" for weight in weights]
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def pictures(
    samples: Mapping[str, Sample], views: Mapping[str, Mapping[str, View]], numbers: Mapping[str, Any], seed: int
) -> tuple[Picture, ...]:
    """Return the figures; samples and views are those of the first seed, by weight."""
    middle = list(samples)[len(samples) // 2]
    return (
        Picture(
            "scores",
            f"The target by each method (seed {seed})",
            "Every point is a photograph with a digit over it. No method uses the labels. ARI: agreement of two "
            "clusters of the points with the digits (1 is perfect, 0 is chance).",
            lambda: draw_scores(samples, views),
        ),
        Picture(
            "weights",
            "Separation of the digits against their weight",
            "Mean and range over the seeds.",
            lambda: draw_weights(numbers),
        ),
        Picture(
            "patterns",
            f"What the components look like (weight {middle}, seed {seed})",
            "Change of each pixel when the score increases by one target standard deviation (patterns, not filters): "
            "red is up, blue is down. Each image has its own scale, and the sign of its correlation with the "
            "difference of the two digits. Left: two rows of the target, one of the background, and that difference.",
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
            title = f"ARI {written(view.measures['ari'])}, accuracy {view.measures['accuracy']:.2f}"
            if view.scores.shape[1]:
                scores(view.scores, samples[weight].digit, axes=ax, title=title)
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
    """Draw some rows, the difference of the digits, and the two patterns of every method."""
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
    """Draw some rows and the difference of the mean digits; return the difference."""
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
    look = _style.style(_COLORS[key])
    shift = 0.02 * (place - len(METHODS) / 2)  # side by side, so that error bars do not overlap
    mean = np.array([spread.mean for spread in spreads.values()])
    ends = np.array([[spread.low, spread.high] for spread in spreads.values()]).T
    ax.errorbar(
        np.arange(len(mean)) + shift, mean, yerr=np.abs(ends - mean), label=name, color=look.color,
        marker=(*_style.MARKERS, "<")[place], linestyle=_LINES.get(key, "-"), markersize=5, linewidth=1.4,
        elinewidth=1, capsize=2,
    )  # fmt: skip


def _quiet(ax: Any) -> None:
    """Remove the ticks: the units of the scores differ between methods."""
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
