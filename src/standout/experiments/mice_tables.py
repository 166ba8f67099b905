"""The tables of the mice experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from standout.experiments.mice_measures import BEST, EXACT, PCA, Found, Separation, Singular, Worth
from standout.experiments.mice_readings import CONTROLS, Reading
from standout.experiments.record import Cell, Spread, Table

_LETTERS = "c: control, t: trisomic, as in Down syndrome; CS: stimulated to learn, SC: not; m: memantine, s: saline. "
_IMPUTED = "Imputed: missing values stand at the mean of all rows of their set, held-out mice included. "


def tables(found: Found) -> list[Table]:
    """Return what was found as tables."""
    parts: dict[str, Callable[[Separation], Cell]] = {
        "silhouette": lambda one: one.silhouette,
        "accuracy": lambda one: one.seen,
        "unseen mice": lambda one: one.unseen,
        "to PCA": lambda one: None if one.method == PCA else p_value(one.p_to_pca),
    }
    several = len(found.worth[0].held_out_by_mouse.values) > 1
    told = [
        Table("separation", "Do the scores show the classes?", *_compared(found.main, parts), note=_note(found)),
        _worth_table(found.worth, several, bool(found.others)),
        _singular_table(found.singular),
    ]
    if found.others:
        del parts["accuracy"], parts["to PCA"]
        title = "The same in other readings: missing values imputed, and the rows of cPCA's own example"
        told.append(Table("other_readings", title, *_compared(found.others, parts), note=_IMPUTED.strip()))
    return told


def p_value(value: float) -> str:
    """Return a p-value as one writes it."""
    return f"p = {value:.3f}" if value >= 0.001 else "p < 0.001"


def _note(found: Found) -> str:
    reading, methods = found.main[0]
    letters = _LETTERS if reading.name in CONTROLS else ""
    over = "mean and range over splits" if len(methods[0].unseen.values) > 1 else "of one split"
    chance = ", ".join(f"{one.low:.2f} to {one.high:.2f} ({name})" for name, one in found.chance.items())
    return (
        f"{letters}Silhouette of the scores in units of their sd. Accuracy of a logistic regression on two scores, "
        "replicates of a mouse never split: of axes that saw all mice, and of axes found without the held-out target "
        f"mice; {over}. To PCA: how often the accuracies on unseen mice would differ as much if, mouse by mouse, it "
        "were chance which of the two is better; not corrected for the number of methods. With the classes reshuffled "
        f"over mice the accuracy of '{EXACT}' on them is {chance}: one below 0.5 is an artefact of cross-validation "
        f"with few mice, and no evidence that PCA is better. '{BEST}': the one of the four alphas that stand for 15 "
        "with the best silhouette of the known mice; where its axes saw all mice, they saw the classes of the held-out "
        "ones too."
    )


def _compared(
    found: list[tuple[Reading, list[Separation]]], parts: Mapping[str, Callable[[Separation], Cell]]
) -> tuple[tuple[str, ...], tuple[tuple[Cell, ...], ...]]:
    """Return columns and rows of a table with some parts of the separation in each reading."""
    columns = ("method", *(f"{reading.name}: {part}" for reading, _ in found for part in parts))
    rows = [
        (same[0].method, *(part(one) for one in same for part in parts.values()))
        for same in zip(*(methods for _, methods in found), strict=True)
    ]
    return columns, tuple(rows)


def _worth_table(found: list[Worth], several: bool, imputed: bool) -> Table:
    columns = (
        "background, problem", "in the sample", "noise edge by rows", "p by rows", "held out by rows",
        "held out by mouse", "intervals with 1", "p, rows reshuffled", "p, mice reshuffled",
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
    over = ", mean and range over splits, which is no confidence interval: all are of the same mice" if several else ""
    note = (
        "Largest ratio of target to background variance, always of the rows as they are; 'default' found its direction "
        f"against a shrunk background. {_IMPUTED if imputed else ''}Held out: geometric mean over folds{over}. "
        "Intervals with 1: in how many splits by mouse the 95 % interval over folds holds 1."
    )
    return Table("ratios", "What is the largest ratio worth?", columns, tuple(rows), note, digits=1)


def _singular_table(found: list[Singular]) -> Table:
    columns = (
        "background", "features", "rank", "standout: largest ratio", "differs without the twin by",
        "scipy.linalg.eigh refuses", "Algorithm 1 refuses", "|cos| of its axis to the one without the twin",
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
        "All features, missing values at the mean of their set; one feature stands twice, so C_yy is singular. What "
        "scipy and Algorithm 1 do is rounding: it is counted over orders of the columns, and another machine counts "
        "otherwise."
    )
    return Table("singular", "What a feature that stands twice does to the exact problem", columns, tuple(rows), note)
