"""Plots of components: ratios, patterns, the permutation null distribution and bootstrap stability."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from standout._base import BaseContrast
from standout._blas import Array
from standout._display import number
from standout._inputs import check_count
from standout._model import Model, TopFeature
from standout._verdict import critical_ratio
from standout.errors import InputError
from standout.inference.permutation import PermutationTest
from standout.inference.stability import Stability
from standout.plot import _style
from standout.plot._style import axes_or_new, label_bars, log_scale

# Share of bootstrap samples in which a weight must keep its sign to count as stable.
STABLE_SIGN = 0.95
# Histograms whose axis spans more than this factor are logarithmic.
_LOG_SPAN = 10.0
_MIN_BINS, _MAX_BINS = 6, 40


def ratios(model: Any, *, axes: Any = None) -> Any:
    """Plot the ratios of a fitted model on a log axis, with the noise edge as a line.

    The noise edge is the largest ratio expected from noise; pure noise exceeds it in about 6–15 % of fits, and the 5 %
    critical value, the dotted line, in 5 % of them.
    Infinite ratios are drawn at the top edge. If the background was shrunk, the unshrunk ratios, to which the
    noise edge applies, are drawn too. Without a background the variances are drawn instead.

    Parameters
    ----------
    model : DPCA, CPCA or KernelDPCA
        A fitted estimator.
    axes : matplotlib axes, optional
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    matplotlib axes

    See Also
    --------
    standout.plot.null : Plot of the ratios under permuted labels.
    standout.plot.patterns : Plot of the pattern of a component.
    standout.DPCA : Fits the ratios.

    Examples
    --------
    >>> from standout import DPCA, datasets, plot
    >>> target, background = datasets.FactorModel().sample(100, 300)
    >>> model = DPCA(n_components=None).fit(target, background=background)
    >>> axes = plot.ratios(model)
    >>> axes.get_yscale(), axes.lines[0].get_ydata()[0] == model.noise_edge_
    ('log', True)
    """
    solved = fitted_model(model)
    axes = axes_or_new(axes, (5, 3.6))
    axes.set_xlabel("component")
    margin = max(0.5, 0.02 * solved.n_components)
    axes.set_xlim(1 - margin, max(solved.n_components, 1) + margin)
    axes.xaxis.get_major_locator().set_params(integer=True)
    names = dict(enumerate(solved.component_names, start=1))
    axes.xaxis.set_major_formatter(lambda position, _: names.get(position, ""))
    if solved.n_components == 0:
        text = "no component above the noise edge"
        axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=_style.MISSING)
    elif solved.background_counts:
        axes.set_ylabel("ratio of target to background variance")
        _draw_ratios(solved, axes)
    else:
        axes.set_ylabel("variance")
        components = np.arange(1, solved.n_components + 1)
        axes.plot(components, solved.target_variance, "o-", color=_style.COLORS[0], label="variance")
    return axes


def _draw_ratios(model: Model, axes: Any) -> None:
    shrunk = model.regime == "shrunk"
    label = f"ratio (background shrunk by {number(model.shrinkage)})" if shrunk else "ratio"
    _draw_points(axes, model.ratios, label, marker="o", color=_style.COLORS[0])
    if shrunk and np.isfinite(model.unshrunk_ratios).any():
        hollow = {"marker": "o", "facecolors": "none", "edgecolors": _style.COLORS[1]}
        _draw_points(axes, model.unshrunk_ratios, "unshrunk ratio", **hollow)
    edge, critical = model.noise_edge, critical_ratio(model)
    edge_label = f"noise edge {number(edge)}{' (unshrunk)' if shrunk else ''}"
    for level, line, label in (edge, "--", edge_label), (critical, ":", f"5 % critical value {number(critical)}"):
        if not math.isnan(level):
            axes.axhline(level, color=_style.MISSING, linestyle=line, label=label, zorder=1)
    log_scale(axes.yaxis)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** 0.25)  # room for the legend
    title = "no noise edge for these data" if math.isnan(edge) else None
    axes.legend(title=title, loc="upper right", frameon=False, alignment="left")


def _draw_points(axes: Any, values: Array, label: str, **style: Any) -> None:
    """Draw one point for each component, infinite values at the top edge and zeros at the bottom edge."""
    components = np.arange(1, len(values) + 1)
    positive = np.isfinite(values) & (values > 0)
    axes.scatter(components[positive], values[positive], label=label, zorder=2, **style)
    edges = axes.get_xaxis_transform()
    for chosen, height, text in ((np.isposinf(values), 0.95, "∞"), (values == 0, 0.05, "0")):
        if chosen.any():
            axes.scatter(components[chosen], np.full(chosen.sum(), height), transform=edges, **style)
        for at in components[chosen]:
            axes.annotate(text, (at, height), (7, 0), edges, "offset points", va="center")


def patterns(
    model: Any, component: int = 0, *, count: int = 15, shape: tuple[int, int] | None = None, axes: Any = None
) -> Any:
    """Plot the pattern of a component: bars of its top features, or all features as an image.

    Parameters
    ----------
    model : DPCA or CPCA
        A fitted estimator.
    component : int, default=0
        Index of the component.
    count : int, default=15
        Number of features. The bars are the weights of ``top_features``: the change of a feature, in background
        sd, when the score changes by one target sd.
    shape : (int, int), optional
        Height and width of an image. Every feature is a pixel, which shows the change of the feature, in its own
        units, when the score changes by one target sd.
    axes : matplotlib axes, optional
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    matplotlib axes

    See Also
    --------
    standout.plot.stability : Plot of the same weights with intervals.
    standout.plot.scores : Plot of the scores.
    standout.plot.ratios : Plot of the ratios of all components.

    Examples
    --------
    >>> from standout import DPCA, datasets, plot
    >>> target, background = datasets.FactorModel().sample(100, 300)
    >>> model = DPCA().fit(target, background=background)
    >>> axes = plot.patterns(model)
    >>> bool(axes.patches[0].get_width() == model.top_features(1)[0][0].weight)
    True
    """
    solved = fitted_model(model)
    if solved.n_components == 0:
        raise InputError("the model has no components and no pattern to draw. Fit it with `n_components=2`.")
    if not has_patterns(solved):
        kind = type(model).__name__
        raise InputError(f"{kind} has no patterns: its components are nonlinear functions. Use standout.plot.scores.")
    index = _component_index(component, solved.n_components, "model")
    axes = axes_or_new(axes, (5, 4.5))
    axes.set_title(solved.component_names[index])
    if shape is not None:
        _draw_image(solved, index, shape, axes)
        return axes
    draw_top_features(solved.top_features(check_count("count", count))[index], bool(solved.background_counts), axes)
    return axes


def draw_top_features(top: Sequence[TopFeature], contrasted: bool, axes: Any) -> None:
    """Draw the weights of features as bars; ``contrasted``: whether there is a background, whose sd is the unit."""
    colors = [_style.ABOVE if weight > 0 else _style.BELOW for _, weight in top]
    axes.barh(range(len(top)), [weight for _, weight in top], color=colors)
    label_bars(axes, [feature for feature, _ in top])
    units = "background sd" if contrasted else "the feature's units"
    axes.set_xlabel(f"change per target sd of the score ({units})")


def _draw_image(model: Model, index: int, shape: Any, axes: Any) -> None:
    sides = np.asarray(shape)
    size = model.patterns.shape[1]
    if sides.shape != (2,) or sides.dtype.kind not in "iu" or (sides < 1).any() or sides.prod() != size:
        raise InputError(f"shape={shape!r} is not that of an image of {size} features. Give its height and width.")
    image = (model.patterns[index] * np.sqrt(model.target_variance[index])).reshape(*sides)
    limit = float(np.abs(image).max()) or 1.0
    # A diverging map, safe for colour-blind readers, with white at zero.
    drawn = axes.imshow(image, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.figure.colorbar(drawn, ax=axes, label="change per target sd of the score")


def null(test: PermutationTest, component: int = 0, *, axes: Any = None) -> Any:
    """Plot the permutation distribution of a component's ratio, with the observed ratio as a line.

    The axis is logarithmic if the ratios span more than a factor of ten. An infinite observed ratio is drawn to the
    right of all others.

    Parameters
    ----------
    test : PermutationTest
        Result of :func:`standout.permutation_test`.
    component : int, default=0
        Index of the component.
    axes : matplotlib axes, optional
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    matplotlib axes

    See Also
    --------
    standout.permutation_test : Compute the test.
    standout.plot.ratios : Plot of the fitted ratios with the noise edge.

    Examples
    --------
    >>> from standout import datasets, permutation_test, plot
    >>> test = permutation_test(*datasets.FactorModel().sample(50, 60), n_permutations=99)
    >>> plot.null(test).get_title()
    'dpca0: p = 0.01'
    """
    _check_result(test, "test", PermutationTest, "permutation_test")
    index = _component_index(component, len(test.ratios), "result")
    edges, counts, observed, log = null_histogram(test, index)
    axes = axes_or_new(axes, (5, 3.6))
    axes.stairs(counts, edges, fill=True, color=_style.GREYS[0], label="permuted labels")
    axes.axvline(observed, color=_style.COLORS[1], linewidth=2, label=f"observed {number(test.ratios[index])}")
    if log:
        log_scale(axes.xaxis)
    title = f"dpca{index}: p = {number(test.p_values[index])}"
    axes.set(title=title, xlabel="ratio of target to background variance", ylabel="permutations")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(edgecolor="none")  # with a pale background, because it may cover the line of the observed ratio
    return axes


def null_histogram(test: PermutationTest, component: int) -> tuple[Array, Array, float, bool]:
    """Return bin edges and counts of the permuted ratios, the observed ratio, and whether the axis is logarithmic.

    Infinite permuted ratios are counted in the last bin; an infinite observed ratio lies to the right of all others.
    """
    null, observed = test.null[component], float(test.ratios[component])
    finite = null[np.isfinite(null)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (1.0, 2.0)
    if not high > low * (1 + 1e-9):
        low, high = 0.95 * low, 1.05 * high or 1.0
    right = max(high, observed) if math.isfinite(observed) else 1.3 * high
    log = low > 0 and right / low > _LOG_SPAN
    n_bins = min(max(math.ceil(math.sqrt(len(null))), _MIN_BINS), _MAX_BINS)
    edges = np.geomspace(low, high, n_bins + 1) if log else np.linspace(low, high, n_bins + 1)
    edges[0], edges[-1] = low, high  # geomspace rounds its ends
    counts = np.histogram(np.clip(null, low, high), edges)[0]
    return edges, counts, observed if math.isfinite(observed) else right, log


def stability(found: Stability, component: int = 0, *, count: int = 15, axes: Any = None) -> Any:
    """Plot the weights of a component's top features with their bootstrap intervals.

    Bars whose sign is the same in fewer than 95 % of the bootstrap samples are pale and hatched.

    Parameters
    ----------
    found : Stability
        Result of :func:`standout.stability`.
    component : int, default=0
        Index of the component.
    count : int, default=15
        Number of features.
    axes : matplotlib axes, optional
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    matplotlib axes

    See Also
    --------
    standout.stability : Compute the intervals.
    standout.plot.patterns : Plot of the weights of a fitted model.

    Examples
    --------
    >>> from standout import datasets, plot, stability
    >>> found = stability(*datasets.FactorModel().sample(100, 300), n_components=1, n_bootstrap=20)
    >>> axes = plot.stability(found)
    >>> bool(axes.patches[0].get_width() == found.top_features(1)[0][0].weight)
    True
    """
    _check_result(found, "found", Stability, "stability")
    index = _component_index(component, len(found.median), "result")
    top = found.top_features(check_count("count", count))[index]
    axes = axes_or_new(axes, (5.5, 4.5))
    for row, feature in enumerate(top):
        color = _style.ABOVE if feature.weight > 0 else _style.BELOW
        pale = {"facecolor": "white", "edgecolor": color, "hatch": "////", "alpha": 0.5}
        axes.barh(row, feature.weight, **({"color": color} if feature.same_sign >= STABLE_SIGN else pale))
    lows, highs = [feature.low for feature in top], [feature.high for feature in top]
    axes.hlines(range(len(top)), lows, highs, color="black", linewidth=1.2, zorder=3)
    label_bars(axes, [feature.feature for feature in top])
    axes.set_xlabel(f"change per target sd of the score (background sd)\nlines: {100 * found.level:g} % intervals")
    interval = f"{found.low[index]:.2f} to {found.high[index]:.2f}"
    axes.set_title(f"dpca{index}: correlation {found.median[index]:.2f} ({interval})")
    return axes


def fitted_model(estimator: Any, role: str = "model") -> Model:
    """Return the model of a fitted estimator, or raise an error that names what was given."""
    if not isinstance(estimator, BaseContrast):
        kind = type(estimator).__name__
        raise InputError(f"{role}: {kind} is not a standout estimator. Give a fitted DPCA, CPCA or KernelDPCA.")
    return estimator._solved()


def has_patterns(model: Model) -> bool:
    """Return whether components are directions among the features; those of a kernel are not."""
    return bool(model.patterns.shape[1])


def _component_index(component: Any, size: int, owner: str) -> int:
    if isinstance(component, Integral) and not isinstance(component, bool) and 0 <= int(component) < size:
        return int(component)
    raise InputError(f"component={component!r}: the {owner} has {size} components. Use a number from 0 to {size - 1}.")


def _check_result(given: Any, role: str, kind: type, function: str) -> None:
    if not isinstance(given, kind):
        found = type(given).__name__
        raise InputError(f"{role}: unsupported type {found}. Give the result of standout.inference.{function}.")
