"""The figures of the optimality experiment: error against rows and alpha, the threshold, filter and pattern."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from standout.datasets import FactorModel
from standout.experiments.optimality_sweeps import METRICS, NAMES, Errors, Grown, Oblique, predicted
from standout.experiments.record import Spread
from standout.show import styles
from standout.show.plot import pyplot

_LOOKS = {
    "dpca": (styles.COLORS[0], "o"),
    "cpca": (styles.COLORS[1], "D"),
    "cpca_auto": (styles.COLORS[4], "^"),
    "pca": (styles.GREYS[1], "s"),
    "literal": (styles.COLORS[3], "v"),
}
_TITLES = {"plain": "angle in the features", "background": "angle in units of background sd"}


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
    panels[0].set_ylabel("rms sine of the angle to the truth")
    _plain_ticks(panels[0].yaxis, (0.02, 0.05, 0.1, 0.2, 0.5, 1))
    panels[0].set_ylim(0.008, 1.3)
    return figure


def draw_alphas(alphas: tuple[float, ...], errors: list[Errors], size: int, dpca: Errors) -> Any:
    """Draw the error of cPCA against alpha, with its prediction, and that of dPCA, which has no alpha."""
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
        axes.axvline(model.top_ratio, color=styles.MISSING, linestyle=":", label="alpha = λ₁")
        axes.set(xscale="log", yscale="log", xlabel="alpha", title=_TITLES[metric], ylim=(0.04, 1.3))
        _plain_ticks(axes.xaxis, (0.5, 1, 2, 5, 10, 20))
        axes.legend(frameon=False, fontsize="small", loc="upper center")
    panels[0].set_ylabel(f"rms sine, N = {size}")
    _plain_ticks(panels[0].yaxis, (0.05, 0.1, 0.2, 0.5, 1))
    return figure


def draw_threshold(found: list[Grown], own_ratio: float) -> Any:
    """Draw what the first two components are against the ratio of a shared direction."""
    figure, axes = pyplot().subplots(figsize=(6.4, 4.6), layout="constrained")
    ratios = [one.ratio for one in found]
    for place, (name, label) in enumerate(
        (
            ("first_own", "first component with the target's own direction"),
            ("first_shared", "first component with the shared direction"),
        )
    ):
        _band(axes, ratios, [getattr(one, name) for one in found], label, styles.COLORS[place], styles.MARKERS[place])
    # Almost the same numbers as those of the shared direction: open markers leave both to be seen.
    means = [one.second_own.mean for one in found]
    axes.plot(ratios, means, linestyle="none", marker="s", markersize=9, color=styles.COLORS[2], markerfacecolor="none",
              label="second component with the target's own direction")  # fmt: skip
    axes.axvline(own_ratio, color=styles.MISSING, linestyle=":")
    axes.annotate(f"own ratio {own_ratio:g}", (own_ratio, 1.01), (4, 0), textcoords="offset points", fontsize="small",
                  xycoords=axes.get_xaxis_transform(), color=styles.MISSING)  # fmt: skip
    axes.set(xlabel="ratio of the shared direction, target over background", ylabel="|cos|", ylim=(-0.03, 1.03))
    figure.legend(frameon=False, fontsize="small", loc="outside lower center")
    return figure


def draw_oblique(found: list[Oblique]) -> Any:
    """Draw how near filter and pattern come to the target's own direction, by its angle to a shared one."""
    figure, axes = pyplot().subplots(figsize=(6.4, 4.0), layout="constrained")
    angles = [one.angle for one in found]
    for place, name in enumerate(("pattern", "filter")):
        color, marker = styles.COLORS[place], styles.MARKERS[place]
        axes.plot(angles, [getattr(one, name) for one in found], color=color, linestyle="--", linewidth=1,
                  label=f"{name}, population")  # fmt: skip
        _band(axes, angles, [getattr(one, f"{name}_sample") for one in found], f"{name}, samples", color, marker)
    axes.set(xlabel="angle between the target's own direction and a shared one, degrees", ylim=(0, 1.05))
    axes.set_ylabel("|cos| with the target's own direction")
    axes.set_xticks(angles, [f"{angle:g}" for angle in angles])
    axes.legend(frameon=False, fontsize="small", loc="lower right")
    return figure


def _band(axes: Any, places: list[float], spreads: list[Spread], label: str, color: str, marker: str) -> None:
    """Draw means, and the range over seeds behind them."""
    low, high = ([getattr(one, end) for one in spreads] for end in ("low", "high"))
    axes.fill_between(places, low, high, color=color, alpha=0.18, linewidth=0)
    means = [one.mean for one in spreads]
    axes.plot(places, means, color=color, marker=marker, markersize=4, linewidth=1, label=label)


def _plain_ticks(axis: Any, values: tuple[float, ...]) -> None:
    """Write plain numbers on a logarithmic axis."""
    axis.set_ticks(values, [f"{value:g}" for value in values])
    axis.set_ticks([], minor=True)
