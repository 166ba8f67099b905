"""Results of the mice experiment: findings as sentences, tables, and figures.

Every number in a sentence comes from the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.data.mice import CONTROLS, Reading
from experiments.mice_measures import (
    BEST,
    DEFAULT,
    EXACT,
    LITERAL,
    PCA,
    Found,
    Separation,
    Singular,
    Worth,
    paired_p,
)
from experiments.record import Cell, Spread, Table, written
from standout.plot import _style
from standout.plot._style import plain, pyplot

_LETTERS = "c: control, t: trisomic (as in Down syndrome); CS: stimulated to learn, SC: not; m: memantine, s: saline. "
_IMPUTED = "Imputed: missing values are replaced by the mean of all rows of their dataset, held-out mice included. "
_COLUMNS = 3
_LEVEL = 0.05
_CHANCE = 0.5
_FAR = 5.0  # ratios from here on are called far above 1


def findings(found: Found) -> list[str]:
    """Return the findings; those on ratios come first."""
    worth = {(one.reading, one.problem): one for one in found.worth}
    return [
        *(_pseudo_replication(worth[reading.name, "exact"], reading) for reading, _ in found.main),
        *(_shrunk(worth[reading.name, "default"], reading) for reading, _ in found.main),
        *(_separated(reading, methods, found.chance[reading.name]) for reading, methods in found.main),
        _alphas(found),
        *(_duplicate(one) for one in found.singular),
    ]


def _pseudo_replication(one: Worth, reading: Reading) -> str:
    return (
        f"{one.reading}: the largest ratio of the exact problem is {one.ratio:,.0f} on the rows of the fit, with "
        f"p = {one.p_by_rows:.0e} if all rows were independent. It is {one.held_out_by_rows.mean:,.0f} on other rows "
        f"of the same mice and {_over_splits(one.held_out_by_mouse, 1)} on other mice: {_verdict(one, reading)}."
    )


def _shrunk(one: Worth, reading: Reading) -> str:
    return (
        f"{one.reading}: with a shrunk background, the default, the ratio on other mice is "
        f"{_over_splits(one.held_out_by_mouse, 1)}: {_verdict(one, reading)}."
    )


def _verdict(one: Worth, reading: Reading) -> str:
    """Return a sentence on the held-out ratio and the permutation test, which need not agree."""
    held = one.held_out_by_mouse
    count = len(held.values)
    if held.low > 1:
        sentence = f"held out, it stays {'far ' if held.low > _FAR else ''}above 1"
    else:
        sentence = "held out, it is not above 1" + (" in every split" if held.high > 1 else "")
    if one.intervals_with_1:
        which = f" in {one.intervals_with_1} of {count} splits" if count > 1 else ""
        sentence = f"{sentence} (the 95 % interval includes 1{which})"
    if one.p_shuffled_mice <= _LEVEL:
        turn = "and" if held.low > 1 else "but"
        return f"{sentence}, {turn} the permutation test by mouse is significant ({p_value(one.p_shuffled_mice)})"
    rows, animals = len(reading.background), len(set(reading.background_mice))
    return (
        f"{sentence}, {'but' if held.low > 1 else 'and'} the permutation test by mouse is not significant "
        f"({p_value(one.p_shuffled_mice)}); the {rows} background rows come from only {animals} animals"
    )


def _separated(reading: Reading, methods: list[Separation], chance: Spread) -> str:
    by_name = {one.method: one for one in methods}
    exact, default = by_name[EXACT], by_name[DEFAULT]
    best, second = sorted(methods, key=lambda one: one.unseen.mean, reverse=True)[:2]
    p = paired_p(best.by_mouse - second.by_mouse)
    return (
        f"{reading.name}: on mice used for neither the axes nor the classifier, PCA separates the classes with "
        f"accuracy {by_name[PCA].unseen.mean:.2f}, exact dPCA with {exact.unseen.mean:.2f} ({_to_pca(exact)}), the "
        f"default with {default.unseen.mean:.2f} ({_to_pca(default)}) and Algorithm 1 as printed with "
        f"{by_name[LITERAL].unseen.mean:.2f}. The best method, {best.method}, reaches {best.unseen.mean:.2f}, "
        f"{'' if p <= _LEVEL else 'not '}significantly more than {second.method} ({second.unseen.mean:.2f}, "
        f"{p_value(p)} over mice). {_by_chance(exact, chance)} {_overstated(methods)}"
    )


def _to_pca(one: Separation) -> str:
    """Return a comparison of an accuracy with that of PCA; accuracies below chance are not compared."""
    if one.unseen.mean < _CHANCE:
        return "below chance"
    if one.p_to_pca > _LEVEL:
        return f"not significantly different from PCA, {p_value(one.p_to_pca)}"
    # The sign of the statistic tested, in which every mouse has the same weight.
    return f"{'better' if one.gain > 0 else 'worse'} than PCA, {p_value(one.p_to_pca)}"


def _by_chance(exact: Separation, chance: Spread) -> str:
    count = len(chance.values)
    as_good = sum(value >= exact.unseen.mean for value in chance.values)
    sentence = (
        f"With classes permuted over mice, exact dPCA has an accuracy of {chance.low:.2f} to {chance.high:.2f}, and at "
        f"least that of the true classes in {as_good} of {count} permutations of one split"
    )
    if exact.unseen.mean < _CHANCE:
        return (
            f"{sentence}: an accuracy below chance is an artefact of cross-validation with few mice and not evidence "
            "that PCA is better."
        )
    verdict = "may be" if (1 + as_good) / (1 + count) > _LEVEL else "is unlikely to be"
    return f"{sentence}: the separation {verdict} due to chance."


def _overstated(methods: list[Separation]) -> str:
    """Return a sentence on the method that gains most if its axes include the held-out mice."""
    gains = {
        one.method: Spread(tuple(seen - new for seen, new in zip(one.seen.values, one.unseen.values, strict=True)))
        for one in methods
    }
    most = max(gains, key=lambda name: gains[name].mean)
    if gains[most].mean < 0.005:
        return "No method gains from axes that are fitted to the held-out mice as well."
    return f"Axes fitted to the held-out mice as well overstate {most} most, by {_over_splits(gains[most], 2)}."


def _over_splits(spread: Spread, digits: int) -> str:
    """Return mean and range over splits, or the number alone if there is one split."""
    sentence = written(spread, digits)
    return f"{sentence[:-1]} over splits)" if sentence.endswith(")") else sentence


def _alphas(found: Found) -> str:
    grid = found.grid
    kept = "; ".join(
        f"{', '.join(f'{alpha:.3g}' for alpha in found.alphas[reading.name])} ({reading.name})"
        for reading, _ in found.main
    )
    reached = ", ".join(
        f"{one.unseen.mean:.2f} ({reading.name})"
        for reading, methods in found.main
        for one in methods
        if one.method == BEST
    )
    return (
        f"The paper's alphas, {' and '.join(f'{alpha:.4f}' for alpha in grid.alphas)}, are not among the 15 that it "
        f"states (the nearest are {' and '.join(f'{alpha:.3g}' for alpha in grid.nearest)}); a grid from 0.001 to "
        f"1000 that contains both has at least {grid.smallest_grid} values. The search selects {kept}; of these "
        f"four, the one that separates the training mice best reaches {reached} on held-out mice."
    )


def _duplicate(one: Singular) -> str:
    scipy = f"scipy.linalg.eigh raises an error in {one.scipy_raises}"
    if one.scipy_ratios:
        error = max(abs(ratio / one.ratio - 1) for ratio in one.scipy_ratios)
        scipy = f"{scipy} and is correct to {error:.0e} in the others"
    literal = "Algorithm 1 cannot invert C_yy in any"
    if one.literal_cosines:
        literal = (
            f"Algorithm 1 fails in {one.literal_refuses} and in the others returns, without a warning, an axis that "
            f"has |cos| {min(one.literal_cosines):.2f} to {max(one.literal_cosines):.2f} with the axis without the "
            "duplicate"
        )
    return (
        f"{one.reading}, all {one.n_features} features: one is a duplicate, so C_yy has rank {one.rank} and the "
        f"assumption of full rank fails. Over {one.n_orders} orders of the columns, {scipy}; {literal}. standout "
        f"gives the ratios of the data without the duplicate to {one.difference:.0e}."
    )


def tables(found: Found) -> list[Table]:
    """Return the results as tables."""
    parts: dict[str, Callable[[Separation], Cell]] = {
        "silhouette": lambda one: one.silhouette,
        "accuracy": lambda one: one.seen,
        "held-out mice": lambda one: one.unseen,
        "against PCA": lambda one: None if one.method == PCA else p_value(one.p_to_pca),
    }
    several = len(found.worth[0].held_out_by_mouse.values) > 1
    result = [
        Table("separation", "Do the scores separate the classes?", *_compared(found.main, parts), note=_note(found)),
        _worth_table(found.worth, several, bool(found.others)),
        _singular_table(found.singular),
    ]
    if found.others:
        del parts["accuracy"], parts["against PCA"]
        title = "The same with missing values imputed, and on the rows of the example in the cPCA paper"
        result.append(Table("other_readings", title, *_compared(found.others, parts), note=_IMPUTED.strip()))
    return result


def p_value(value: float) -> str:
    """Return a p-value as text."""
    return f"p = {value:.3f}" if value >= 0.001 else "p < 0.001"


def _note(found: Found) -> str:
    reading, methods = found.main[0]
    letters = _LETTERS if reading.name in CONTROLS else ""
    over = "mean and range over splits" if len(methods[0].unseen.values) > 1 else "of one split"
    chance = ", ".join(f"{one.low:.2f} to {one.high:.2f} ({name})" for name, one in found.chance.items())
    return (
        f"{letters}Silhouette of the scores in units of their sd. Accuracy of a logistic regression on two scores, "
        "with all replicates of a mouse in one fold: with axes fitted to all mice, and (held-out mice) with axes "
        f"fitted without the held-out target mice; {over}. Against PCA: p-value of a sign-flip test of the difference "
        "in accuracy on held-out mice, with the mouse as the unit; not corrected for the number of methods. With "
        f"classes permuted over mice, the accuracy of '{EXACT}' is {chance}: an accuracy below 0.5 is an artefact of "
        f"cross-validation with few mice and not evidence that PCA is better. '{BEST}': of the four alphas that "
        "represent the 15, the one with the best silhouette on the training mice; with axes fitted to all mice, it was "
        "also selected with the classes of the held-out mice."
    )


def _compared(
    found: list[tuple[Reading, list[Separation]]], parts: Mapping[str, Callable[[Separation], Cell]]
) -> tuple[tuple[str, ...], tuple[tuple[Cell, ...], ...]]:
    """Return columns and rows of a table with some measures of separation for each reading."""
    columns = ("method", *(f"{reading.name}: {part}" for reading, _ in found for part in parts))
    rows = [
        (same[0].method, *(part(one) for one in same for part in parts.values()))
        for same in zip(*(methods for _, methods in found), strict=True)
    ]
    return columns, tuple(rows)


def _worth_table(found: list[Worth], several: bool, imputed: bool) -> Table:
    columns = (
        "background, problem", "in the sample", "noise edge by rows", "p by rows", "held out by rows",
        "held out by mouse", "intervals that include 1", "p, rows permuted", "p, mice permuted",
    )  # fmt: skip
    rows = [
        (
            f"{one.reading}, {one.problem}", one.ratio, one.noise_edge, f"{one.p_by_rows:.1g}",
            one.held_out_by_rows, one.held_out_by_mouse,
            f"{one.intervals_with_1} of {len(one.held_out_by_mouse.values)}",
            f"{one.p_shuffled_rows:.3f}", f"{one.p_shuffled_mice:.3f}",
        )
        for one in found
    ]  # fmt: skip
    over = (
        "; mean and range over splits, which is not a confidence interval because all splits use the same mice"
        if several
        else ""
    )
    note = (
        "Largest ratio of target to background variance, computed without shrinkage; for 'default', the direction was "
        f"found with a shrunk background. {_IMPUTED if imputed else ''}Held out: geometric mean over folds{over}. "
        "Intervals that include 1: number of splits by mouse in which the 95 % interval over folds includes 1."
    )
    return Table("ratios", "The largest ratio, in the sample and held out", columns, tuple(rows), note, digits=1)


def _singular_table(found: list[Singular]) -> Table:
    columns = (
        "background", "features", "rank", "standout: largest ratio", "relative difference without the duplicate",
        "errors of scipy.linalg.eigh", "errors of Algorithm 1", "|cos| of its axis with the axis without the duplicate",
    )  # fmt: skip
    rows = [
        (
            one.reading, one.n_features, one.rank, one.ratio, f"{one.difference:.0e}",
            f"{one.scipy_raises} of {one.n_orders}", f"{one.literal_refuses} of {one.n_orders}",
            Spread(one.literal_cosines) if one.literal_cosines else None,
        )
        for one in found
    ]  # fmt: skip
    note = (
        "All features, with missing values replaced by the mean of their dataset; one feature is a duplicate, so C_yy "
        "is singular. Whether scipy and Algorithm 1 fail depends on rounding: errors are counted over orders of the "
        "columns, and other machines give other counts."
    )
    return Table("singular", "Effect of a duplicate feature on the exact problem", columns, tuple(rows), note)


def draw_scores(reading: Reading, found: Sequence[Separation]) -> Any:
    """Draw the scores of each method, with a line from every row to the mean of its mouse."""
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
    if scores.shape[1] == 1:  # there may be a single signal axis
        scores = np.column_stack([scores, np.zeros(len(scores))])
    for number, kind in enumerate(np.unique(reading.kinds)):
        look = _style.style(number)
        inside = reading.kinds == kind
        centres = np.stack([scores[reading.mice == mouse].mean(axis=0) for mouse in reading.mice[inside]])
        # One line with gaps for all rows; many separate lines would be slow to draw.
        ties = np.stack([scores[inside], centres, np.full(centres.shape, np.nan)], axis=1).reshape(-1, 2)
        axes.plot(*ties.T, color=look.color, linewidth=0.4, alpha=0.5)
        axes.scatter(*scores[inside].T, s=7, color=look.color, alpha=0.6, linewidths=0)
        label = plain(f"{kind}: mean and rows of a mouse")
        axes.scatter(
            *np.unique(centres, axis=0).T, s=34, color=look.color, marker=look.marker, edgecolors="white",
            linewidths=0.6, label=label, zorder=3,
        )  # fmt: skip
    axes.set_title(f"{found.method}\naccuracy on held-out mice {found.unseen.mean:.2f}", fontsize=10)
    axes.set(xlabel="score 1 / sd", ylabel="score 2 / sd")


def draw_ratios(found: Sequence[Worth]) -> Any:
    """Draw the largest ratio of each problem in the sample, on held-out rows and on held-out mice."""
    figure, axes = pyplot().subplots(figsize=(8.4, 0.52 * len(found) + 1.9), layout="constrained")
    places = np.arange(len(found))[::-1]
    kinds = (
        ("rows of the fit", [(one.ratio, one.ratio, one.ratio) for one in found]),
        ("other rows of the same mice", [_ends(one.held_out_by_rows) for one in found]),
        ("rows of other mice", [_ends(one.held_out_by_mouse) for one in found]),
    )
    for number, (name, values) in enumerate(kinds):
        look = _style.style(number)
        low, mean, high = np.array(values).T
        spread = [mean - low, high - mean]
        axes.errorbar(
            mean, places, xerr=spread, fmt=look.marker, color=look.color, label=name, markersize=7, linewidth=1.2,
            capsize=2,
        )  # fmt: skip
    axes.axvline(1, color=_style.GREYS[1], linewidth=1)
    axes.annotate("same variance as the background", (1, 0), (3, 4), xycoords=("data", "axes fraction"),
                  textcoords="offset points", fontsize=8, color=_style.GREYS[1])  # fmt: skip
    axes.set_yticks(places, [plain(f"{one.reading}\n{one.problem}") for one in found])
    axes.set(xscale="log", xlabel="largest ratio of target to background variance, measured on …")
    axes.set_ylim(-0.9, len(found) - 0.4)
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return figure


def _ends(spread: Any) -> tuple[float, float, float]:
    return spread.low, spread.mean, spread.high


def draw_accuracies(readings: Sequence[str], found: Sequence[Sequence[Separation]]) -> Any:
    """Draw the accuracy of each method, with axes that include and exclude the held-out mice."""
    figure, grid = pyplot().subplots(
        1, len(found), figsize=(4.6 * len(found) + 1.4, 4.2), layout="constrained", sharey=True, squeeze=False
    )
    for axes, name, methods in zip(grid[0], readings, found, strict=True):
        places = np.arange(len(methods))[::-1]
        for number, kind in enumerate(("seen", "unseen")):
            low, mean, high = np.array([_ends(getattr(one, kind)) for one in methods]).T
            look = _style.style(number)
            label = "axes fitted to all mice" if kind == "seen" else "axes fitted without held-out mice"
            axes.errorbar(
                mean, places + 0.14 - 0.28 * number, xerr=[mean - low, high - mean], fmt=look.marker, color=look.color,
                label=label, markersize=6, linewidth=1.2, capsize=2,
            )  # fmt: skip
        axes.axvline(0.5, color=_style.GREYS[1], linewidth=1, linestyle=":")
        axes.set_yticks(places, [one.method for one in methods])
        axes.set(title=plain(name), xlabel="accuracy (dotted: chance)", xlim=(0, 1.03))
        axes.grid(axis="x", alpha=0.3)
    handles, names = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=2, frameon=False)
    return figure
