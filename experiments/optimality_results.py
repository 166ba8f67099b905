"""Results of the optimality experiment: findings as sentences, tables, and figures.

Every number in a sentence comes from the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.optimality_sweeps import ALPHA, COMPARED_ROWS, METRICS, NAMES, Errors, Grown, Oblique, predicted
from experiments.record import Cell, Spread, Table
from standout.datasets.factor import FactorModel
from standout.plot import _style
from standout.plot._style import pyplot

_LOOKS = {
    "dpca": (_style.COLORS[0], "o"),
    "cpca": (_style.COLORS[1], "D"),
    "cpca_auto": (_style.COLORS[4], "^"),
    "pca": (_style.GREYS[1], "s"),
    "literal": (_style.COLORS[3], "v"),
}
_TITLES = {"plain": "angle in the features", "background": "angle in units of background sd"}
Numbers = Mapping[str, Any]

_MARGIN = 0.02  # relative difference below which two errors are called equal


def findings(numbers: Numbers) -> tuple[str, ...]:
    """Return the findings as sentences with the measured numbers."""
    return (
        _rate(numbers),
        _against_contrast(numbers),
        _alphas(numbers),
        _units(numbers),
        _others(numbers),
        _threshold(numbers),
        _oblique(numbers),
        _optimal(numbers["errata"]),
    )


def _rows(numbers: Numbers) -> list[int]:
    """Return the numbers of rows, ascending."""
    return sorted(int(key[2:]) for key in numbers["recovery"]["dpca"] if key.startswith("n_"))


def _last(numbers: Numbers, method: str) -> Any:
    return numbers["recovery"][method][f"n_{_rows(numbers)[-1]}"]


def _rate(numbers: Numbers) -> str:
    mine, rows = numbers["recovery"]["dpca"], _rows(numbers)
    predicted = numbers["predicted"]["dpca"]
    plain, background = (
        max(abs(predicted[f"measured_over_{metric}"][f"n_{size}"] - 1) for size in rows if size >= 400)
        for metric in ("plain", "background")
    )
    return (
        f"The error of dPCA falls with the number of rows to the power −{-mine['slope_plain']:.2f}: from "
        f"{mine[f'n_{rows[0]}']['plain']:.3f} with {rows[0]} rows to {mine[f'n_{rows[-1]}']['plain']:.3f} with "
        f"{rows[-1]}. Theory predicts −1/2, and from 400 rows on the error is within {plain:.0%} of its prediction "
        f"({predicted['plain']:.2f}/√N), and in units of background sd within {background:.0%} "
        f"({predicted['background']:.2f}/√N)."
    )


def _against_contrast(numbers: Numbers) -> str:
    mine, other = _last(numbers, "dpca"), _last(numbers, "cpca")
    parts = []
    for metric, where in (("plain", "in the features"), ("background", "in units of background sd")):
        parts.append(
            f"{where} its error is {other[metric] / mine[metric]:.2f} times that of dPCA ({_who(mine, other, metric)})"
        )
    return f"cPCA with alpha = {ALPHA:g}, a value that suits this model: {' and '.join(parts)}."


def _who(mine: Numbers, other: Numbers, metric: str) -> str:
    quotient = other[metric] / mine[metric]
    if abs(quotient - 1) < _MARGIN:
        return "no difference"
    return "dPCA is closer" if quotient > 1 else "cPCA is closer"


def _alphas(numbers: Numbers) -> str:
    steps = list(numbers["alphas"].values())
    level = numbers["recovery"]["dpca"][f"n_{COMPARED_ROWS}"]["plain"]
    better = [step["alpha"] for step in steps if step["plain"] < (1 - _MARGIN) * level]
    lost = [step["alpha"] for step in steps if step["plain"] > 0.5]
    good = f"cPCA is closer than dPCA in the features for {_listed(better)}" if better else "cPCA is never closer"
    bad = f"and does not find the direction at all for {_listed(lost)}" if lost else "and always finds it"
    return f"Of the alphas tried with {COMPARED_ROWS} rows, {good} {bad}. dPCA has no such parameter."


def _listed(alphas: list[float]) -> str:
    return "alpha = " + ", ".join(f"{alpha:g}" for alpha in alphas)


def _units(numbers: Numbers) -> str:
    mine, other, auto = (numbers["units"][name]["background"] for name in ("dpca", "cpca", "cpca_auto"))
    before = numbers["recovery"]["dpca"][f"n_{COMPARED_ROWS}"]["background"]
    changed = abs(mine / before - 1)
    same = "is unchanged to rounding" if changed < 1e-9 else f"changes by {changed:.1%}"
    return (
        "With features multiplied by factors from 0.1 to 10, the error of dPCA (in background sd, "
        f"{COMPARED_ROWS} rows) {same}: {mine:.3f}. That of cPCA becomes {other:.3f} with alpha = {ALPHA:g} and "
        f"{auto:.3f} with the automatic alpha."
    )


def _others(numbers: Numbers) -> str:
    pca, literal, mine = (_last(numbers, name) for name in ("pca", "literal", "dpca"))
    most = _rows(numbers)[-1]
    return (
        f"PCA {'never finds the direction' if pca['plain'] > 0.95 else 'finds part of the direction'} (error "
        f"{pca['plain']:.3f} with {most} rows). Algorithm 1 as printed has {literal['plain'] / mine['plain']:.1f} "
        f"times the error of dPCA in the features, {literal['background'] / mine['background']:.1f} times in "
        "background sd, although both have the same solution in the population."
    )


def _threshold(numbers: Numbers) -> str:
    found, own = numbers["threshold"], numbers["threshold"]["own_ratio"]
    below, above = found["ratio_4_5"], found["ratio_6"]
    as_said = below["first_own"].mean > 0.9 and above["first_own"].mean < 0.3 and above["second_own"].mean > 0.9
    return (
        f"The condition that the paper omits: no shared direction may have a larger ratio than the target's own "
        f"direction, {own:g} here. With a shared ratio of 4.5 the first component is the target's own (|cos| "
        f"{below['first_own'].mean:.3f}); with 6 it is the shared one ({above['first_shared'].mean:.3f}, own "
        f"{above['first_own'].mean:.3f}), and the second component is the target's own "
        f"({above['second_own'].mean:.3f})." + ("" if as_said else " These rows are too few to show it clearly.")
    )


def _oblique(numbers: Numbers) -> str:
    found = numbers["oblique"]
    straight, slanted = found["angle_90"], found["angle_45"]
    nearer = "filter" if straight["filter_sample"].mean > straight["pattern_sample"].mean else "pattern"
    exact = max(abs(one["ratio"] / one["ratio_formula"] - 1) for one in found.values())
    leans = "pattern" if slanted["literal"] > slanted["filter"] else "filter"
    return (
        "If the target's own direction is at 45° to a strong shared one, the filter is a different direction (|cos| "
        f"{slanted['filter']:.3f} in the population, {slanted['filter_sample'].mean:.3f} in samples), and the pattern "
        f"is the direction itself ({slanted['pattern']:.3f} and {slanted['pattern_sample'].mean:.3f}). At 90° they "
        f"agree in the population, and in samples the {nearer} is closer ({straight['filter_sample'].mean:.3f} against "
        f"{straight['pattern_sample'].mean:.3f} of filter and pattern). The ratio is 1 + σ_s² u_sᵀ C_yy⁻¹ u_s at every "
        f"angle, to {exact:.0e}. The singular vector of Algorithm 1 is closer to the {leans} (|cos| "
        f"{slanted['literal']:.3f} with the direction at 45°), and as a filter has {slanted['literal_share']:.0%} of "
        "the largest ratio: it may reveal the direction, but it does not maximise the ratio."
    )


def _optimal(errata: Numbers) -> str:
    fit, squares = errata["likelihood"], errata["least_squares"]
    held = "none" if fit["best_change"] < 0 else "some"
    return (
        f"The sense in which dPCA is optimal: it maximises the likelihood of x ~ N(0, WWᵀ + C_yy) ({held} of the "
        "perturbations tried increased it), that is, least squares in background units. One direction explains "
        f"{squares['explained_background_dpca']:.0%} of the target there ({squares['explained_background_pca']:.0%} by "
        f"PCA), and {squares['explained_plain_dpca']:.0%} by plain squares ({squares['explained_plain_pca']:.0%} by "
        "PCA)."
    )


def tables(numbers: Numbers) -> tuple[Table, ...]:
    """Return the numbers as tables."""
    return (
        _recovery_table(
            numbers, "plain", "recovery", "Error in the features: rms sine of the angle to the true direction"
        ),
        _recovery_table(numbers, "background", "recovery_background", "The same in units of background sd"),
        _alpha_table(numbers),
        _threshold_table(numbers),
        _oblique_table(numbers),
        _errata_table(numbers["errata"]),
    )


def _recovery_table(numbers: Numbers, metric: str, name: str, title: str) -> Table:
    rows = []
    for size in _rows(numbers):
        found = {method: numbers["recovery"][method][f"n_{size}"][metric] for method in NAMES}
        theory = {method: numbers["predicted"][method][metric] / np.sqrt(size) for method in ("dpca", "cpca")}
        others = (found[method] for method in ("cpca_auto", "pca", "literal"))
        rows.append((size, found["dpca"], theory["dpca"], found["cpca"], theory["cpca"], *others))
    slopes = {method: numbers["recovery"][method][f"slope_{metric}"] for method in NAMES}
    last = ("slope", slopes["dpca"], -0.5, slopes["cpca"], -0.5, slopes["cpca_auto"], slopes["pca"], slopes["literal"])
    columns = ("N", "dPCA", "predicted", NAMES["cpca"], "predicted", NAMES["cpca_auto"], "PCA", NAMES["literal"])
    return Table(name, title, columns, (*rows, last), note="", digits=3)


def _alpha_table(numbers: Numbers) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (f"alpha = {one['alpha']:g}", one["plain"], one["background"]) for one in numbers["alphas"].values()
    ]
    mine = numbers["recovery"]["dpca"][f"n_{COMPARED_ROWS}"]
    rows.append(("dPCA", mine["plain"], mine["background"]))
    rows += [
        (f"{NAMES[name]}, in mixed units", one["plain"], one["background"]) for name, one in numbers["units"].items()
    ]
    return Table(
        "alphas",
        f"cPCA at fixed alphas, and features in mixed units: rms sine with {COMPARED_ROWS} rows",
        ("method", "in the features", "in background sd"),
        tuple(rows),
        note="In mixed units: features multiplied by 0.1 to 10; the filter is converted back to the original units.",
        digits=3,
    )


def _threshold_table(numbers: Numbers) -> Table:
    found = [one for name, one in numbers["threshold"].items() if name.startswith("ratio_")]
    return Table(
        "threshold",
        "Components when a shared direction grows: |cos| of background scores",
        ("ratio of the shared direction", "first and own, population", "first and own", "first and shared",
         "second and own"),
        tuple(
            (f"{one['ratio']:g}", one["population"], one["first_own"], one["first_shared"], one["second_own"])
            for one in found
        ),
        note=f"The target's own ratio is {numbers['threshold']['own_ratio']:g}. Samples: mean and range over seeds.",
        digits=3,
    )  # fmt: skip


def _oblique_table(numbers: Numbers) -> Table:
    return Table(
        "oblique",
        "Filter and pattern by angle: |cos| with the target's own direction",
        ("angle", "ratio", "filter", "pattern", "filter, samples", "pattern, samples", "literal", "its share"),
        tuple(
            (f"{one['angle']:g}°", one["ratio"], one["filter"], one["pattern"], one["filter_sample"],
             one["pattern_sample"], one["literal"], one["literal_share"])
            for one in numbers["oblique"].values()
        ),
        note="Literal: the singular vector of Algorithm 1 in the population, and its share of the largest ratio.",
        digits=3,
    )  # fmt: skip


def _errata_table(errata: Numbers) -> Table:
    """Return a table of the formulas as printed and corrected."""
    svd, columns, root, removed = (errata[name] for name in ("singular_vectors", "columns", "plus_root", "removed"))
    equal, svd_of, combined, several = (
        errata[name] for name in ("equivalent", "indefinite", "combined", "several_components")
    )
    rows: tuple[tuple[Cell, ...], ...] = (
        ("Algorithm 1, 2 × 2 example: ratio", svd["ratio_literal"], svd["ratio"]),
        ("Algorithm 1, 2 features: median share of the best ratio", svd["share_2"], 1.0),
        ("Algorithm 1, 20 features: the same", svd["share_20"], 1.0),
        ("Algorithm 1, 77 features: the same", svd["share_77"], 1.0),
        ("(9), columns of U instead of rows: median share of the best ratio", columns["share"], 1.0),
        ("(13), whitening by +1/2: |cos| with the own direction", root["cos_literal"], root["cos_right"]),
        ("(13), size of a whitened shared direction (own: 1)", removed["size_literal"], removed["size_right"]),
        ("Remark 2, variance left in a shared direction (own: 5)", 0.0, removed["variance_shared"]),
        ("Section 3.2, cPCA at λ₁: median |cos| with the second component", 1.0, equal["cos_second"]),
        ("Introduction, SVD of C_xx − 10 C_yy: value reached", svd_of["value_svd"], svd_of["value_largest"]),
        ("Remark 1, backgrounds 5 sd apart: ratio", combined["ratio_stacked"], combined["ratio_own_means"]),
        ("d = 2, ratio of traces against ratio trace: sum of ratios", several["ratio_trace_trace_ratio"],
         several["ratio_trace_dpca"]),
    )  # fmt: skip
    return Table(
        "errata",
        "The paper's formulas as printed and corrected",
        ("where", "as printed", "corrected"),
        rows,
        note="Random pairs of covariances have variances from 1 to 100, evenly spaced in logarithm, about random axes.",
        digits=3,
    )


def draw_recovery(
    sizes: tuple[int, ...], found: Mapping[str, list[Errors]], alphas: Mapping[str, float], slopes: Mapping[str, float]
) -> Any:
    """Draw errors against the number of rows, with the lines c/√N of the methods in ``alphas``."""
    figure, panels = pyplot().subplots(1, 2, figsize=(9.6, 4.4), sharey=True, layout="constrained")
    rows = np.array(sizes, dtype=float)
    for axes, metric in zip(panels, METRICS, strict=True):
        for name, errors in found.items():
            color, marker = _LOOKS[name]
            label = NAMES[name] + (f" (slope −{-slopes[metric]:.2f})" if name == "dpca" else "")
            values = [one.overall(metric) for one in errors]
            line = "none" if name in alphas else "-"
            axes.plot(rows, values, color=color, marker=marker, linestyle=line, linewidth=1, label=label)
        for name, alpha in alphas.items():
            constant = predicted(FactorModel(), alpha, metric)
            label = f"predicted {constant:.2f} / √N"
            axes.plot(rows, constant / np.sqrt(rows), color=_LOOKS[name][0], linestyle="--", linewidth=1, label=label)
        axes.set(xscale="log", yscale="log", xlabel="N rows of target and of background", title=_TITLES[metric])
        axes.set_xticks(rows, [f"{size}" for size in sizes])
        axes.set_xticks([], minor=True)
        axes.legend(frameon=False, fontsize="small", loc="lower left")
    panels[0].set_ylabel("rms sine of the angle to the true direction")
    _plain_ticks(panels[0].yaxis, (0.02, 0.05, 0.1, 0.2, 0.5, 1))
    panels[0].set_ylim(0.008, 1.3)
    return figure


def draw_alphas(alphas: tuple[float, ...], errors: list[Errors], size: int, dpca: Errors) -> Any:
    """Draw the error of cPCA against alpha with its prediction, and the error of dPCA."""
    figure, panels = pyplot().subplots(1, 2, figsize=(9.6, 3.9), sharey=True, layout="constrained")
    model = FactorModel()
    fine = np.geomspace(1.02, max(alphas), 200)
    for axes, metric in zip(panels, METRICS, strict=True):
        color, marker = _LOOKS["cpca"]
        curve = [predicted(model, alpha, metric) / np.sqrt(size) for alpha in fine]
        axes.plot(fine, curve, color=color, linestyle="--", linewidth=1, label="predicted")
        values = [one.overall(metric) for one in errors]
        axes.plot(alphas, values, color=color, marker=marker, linestyle="none", label="cPCA")
        axes.axhline(dpca.overall(metric), color=_LOOKS["dpca"][0], linewidth=1.2, label="dPCA")
        axes.axvline(model.top_ratio, color=_style.MISSING, linestyle=":", label="alpha = λ₁")
        axes.set(xscale="log", yscale="log", xlabel="alpha", title=_TITLES[metric], ylim=(0.04, 1.3))
        _plain_ticks(axes.xaxis, (0.5, 1, 2, 5, 10, 20))
        axes.legend(frameon=False, fontsize="small", loc="upper center")
    panels[0].set_ylabel(f"rms sine, N = {size}")
    _plain_ticks(panels[0].yaxis, (0.05, 0.1, 0.2, 0.5, 1))
    return figure


def draw_threshold(found: list[Grown], own_ratio: float) -> Any:
    """Draw the cosines of the first two components against the ratio of a shared direction."""
    figure, axes = pyplot().subplots(figsize=(6.4, 4.6), layout="constrained")
    ratios = [one.ratio for one in found]
    for place, (name, label) in enumerate(
        (
            ("first_own", "first component with the target's own direction"),
            ("first_shared", "first component with the shared direction"),
        )
    ):
        _band(axes, ratios, [getattr(one, name) for one in found], label, _style.COLORS[place], _style.MARKERS[place])
    # Open markers, because these points nearly coincide with those of the shared direction.
    means = [one.second_own.mean for one in found]
    axes.plot(ratios, means, linestyle="none", marker="s", markersize=9, color=_style.COLORS[2], markerfacecolor="none",
              label="second component with the target's own direction")  # fmt: skip
    axes.axvline(own_ratio, color=_style.MISSING, linestyle=":")
    axes.annotate(f"own ratio {own_ratio:g}", (own_ratio, 1.01), (4, 0), textcoords="offset points", fontsize="small",
                  xycoords=axes.get_xaxis_transform(), color=_style.MISSING)  # fmt: skip
    axes.set(xlabel="ratio of the shared direction, target over background", ylabel="|cos|", ylim=(-0.03, 1.03))
    figure.legend(frameon=False, fontsize="small", loc="outside lower center")
    return figure


def draw_oblique(found: list[Oblique]) -> Any:
    """Draw the cosines of filter and pattern with the target-specific direction against its angle to a shared one."""
    figure, axes = pyplot().subplots(figsize=(6.4, 4.0), layout="constrained")
    angles = [one.angle for one in found]
    for place, name in enumerate(("pattern", "filter")):
        color, marker = _style.COLORS[place], _style.MARKERS[place]
        axes.plot(angles, [getattr(one, name) for one in found], color=color, linestyle="--", linewidth=1,
                  label=f"{name}, population")  # fmt: skip
        _band(axes, angles, [getattr(one, f"{name}_sample") for one in found], f"{name}, samples", color, marker)
    axes.set(xlabel="angle between the target's own direction and a shared one, degrees", ylim=(0, 1.05))
    axes.set_ylabel("|cos| with the target's own direction")
    axes.set_xticks(angles, [f"{angle:g}" for angle in angles])
    axes.legend(frameon=False, fontsize="small", loc="lower right")
    return figure


def _band(axes: Any, places: list[float], spreads: list[Spread], label: str, color: str, marker: str) -> None:
    """Draw means and the range over seeds."""
    low, high = ([getattr(one, end) for one in spreads] for end in ("low", "high"))
    axes.fill_between(places, low, high, color=color, alpha=0.18, linewidth=0)
    means = [one.mean for one in spreads]
    axes.plot(places, means, color=color, marker=marker, markersize=4, linewidth=1, label=label)


def _plain_ticks(axis: Any, values: tuple[float, ...]) -> None:
    """Label a logarithmic axis with plain numbers."""
    axis.set_ticks(values, [f"{value:g}" for value in values])
    axis.set_ticks([], minor=True)
