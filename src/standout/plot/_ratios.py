"""The ratios of a model with the edge that noise reaches; without a background, its variances.

What a component looks like in the features: bars of those that move most, or an image.

How far results can be trusted: what reshuffled labels give, and how sure the features of a component are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from standout._blas import Array
from standout._inputs import check_count
from standout._model import Model
from standout.errors import InputError
from standout.plot import _style
from standout.plot._style import (
    axes_or_new,
    checked_component,
    fitted_model,
    has_patterns,
    log_scale,
    name_bars,
    null_histogram,
    number,
)

if TYPE_CHECKING:
    from standout.inference.permutation import PermutationTest
    from standout.inference.stability import Stability

# A weight whose sign is kept in fewer of the samples than this is drawn pale.
SURE = 0.95


def ratios(model: Any, *, axes: Any = None) -> Any:
    """Draw the ratios of a fitted model on a log axis, with the noise edge as a line.

    Infinite ratios stand at the top. Where the background was shrunk, the unshrunk ratios (of which the
    noise edge speaks) are drawn too. Without a background the variances are drawn instead.

    Parameters
    ----------
    model : DPCA, CPCA or KernelDPCA
        A fitted estimator.
    axes : matplotlib axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> import numpy as np
    >>> from standout import DPCA
    >>> from standout.plot import ratios
    >>> rng = np.random.default_rng(0)
    >>> control, patients = rng.normal(size=(300, 4)), rng.normal(size=(100, 4)) * [1, 1, 3, 1]
    >>> model = DPCA(n_components=None).fit(patients, background=control)
    >>> axes = ratios(model)
    >>> axes.get_yscale(), axes.lines[0].get_ydata()[0] == model.noise_edge_
    ('log', True)
    """
    found = fitted_model(model)
    axes = axes_or_new(axes, (5, 3.6))
    axes.set_xlabel("component")
    axes.set_xlim(1 - _margin(found), max(found.n_components, 1) + _margin(found))
    axes.xaxis.get_major_locator().set_params(integer=True)
    if found.n_components == 0:
        _say(axes, "no component above noise")
    elif found.background_counts:
        axes.set_ylabel("ratio, target over background")
        _draw_ratios(found, axes)
    else:
        axes.set_ylabel("variance")
        axes.plot(_places(found), found.target_variance, "o-", color=_style.COLORS[0], label="variance")
    return axes


def _margin(model: Model) -> float:
    """Return the room beside the first and the last component."""
    return max(0.5, 0.02 * model.n_components)


def _places(model: Model) -> NDArray[np.intp]:
    return np.arange(1, model.n_components + 1)


def _draw_ratios(model: Model, axes: Any) -> None:
    edge = model.noise_edge
    shrunk = model.regime == "shrunk"
    own = f"ratio (background shrunk by {number(model.shrinkage)})" if shrunk else "ratio"
    _points(axes, model, model.ratios, own, {"marker": "o", "color": _style.COLORS[0]})
    if shrunk and np.isfinite(model.unshrunk_ratios).any():
        look = {"marker": "o", "facecolors": "none", "edgecolors": _style.COLORS[1]}
        _points(axes, model, model.unshrunk_ratios, "unshrunk ratio", look)
    if math.isnan(edge):
        title = "no noise edge: what noise alone\nwould reach cannot be told"
    else:
        title = None
        label = f"noise edge {number(edge)}{' (unshrunk)' if shrunk else ''}"
        axes.axhline(edge, color=_style.MISSING, linestyle="--", label=label, zorder=1)
    _log_scale(axes)
    axes.legend(title=title, loc="upper right", frameon=False, alignment="left")


def _log_scale(axes: Any) -> None:
    """Make the ratios' axis logarithmic, with room for the legend above."""
    log_scale(axes.yaxis)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** 0.25)


def _points(axes: Any, model: Model, values: Array, label: str, look: dict[str, Any]) -> None:
    """Draw values, the infinite ones at the top edge and those of zero at the bottom."""
    places = _places(model)
    inside = np.isfinite(values) & (values > 0)
    axes.scatter(places[inside], values[inside], label=label, zorder=2, **look)
    for chosen, height, text in ((np.isposinf(values), 0.95, "∞"), (values == 0, 0.05, "0")):
        if chosen.any():
            axes.scatter(places[chosen], np.full(chosen.sum(), height), transform=axes.get_xaxis_transform(), **look)
            for place in places[chosen]:
                axes.annotate(
                    text, (place, height), xycoords=axes.get_xaxis_transform(), textcoords="offset points",
                    xytext=(7, 0), va="center",
                )  # fmt: skip


def _say(axes: Any, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=_style.MISSING)


def patterns(
    model: Any, component: int = 0, *, count: int = 15, shape: tuple[int, int] | None = None, axes: Any = None
) -> Any:
    """Draw the pattern of a component: the features that move most with it, or all of them as an image.

    Parameters
    ----------
    model : DPCA or CPCA
        A fitted estimator.
    component : int, default=0
        Which component.
    count : int, default=15
        How many features; their bars are the weights of ``top_features``: by how many background sd a
        feature moves when the score moves by one target sd.
    shape : (int, int), optional
        Height and width of an image: every feature is a pixel, and shows by how much it moves, in its own
        units, when the score moves by one target sd.
    axes : matplotlib axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> import numpy as np
    >>> from standout import DPCA
    >>> from standout.plot import patterns
    >>> rng = np.random.default_rng(0)
    >>> control, patients = rng.normal(size=(300, 4)), rng.normal(size=(100, 4)) * [1, 1, 3, 1]
    >>> model = DPCA().fit(patients, background=control)
    >>> axes = patterns(model)
    >>> bool(axes.patches[0].get_width() == model.top_features(1)[0][0].weight)
    True
    """
    found = fitted_model(model)
    if not has_patterns(found) and found.n_components:
        raise InputError(
            f"{type(model).__name__} has no patterns: its components are functions, not directions among the features. "
            "Use standout.plot.scores to see what they show, or a DPCA."
        )
    if found.n_components == 0:
        raise InputError("the model has no components, so there is no pattern to draw. Fit it with n_components=2.")
    place = checked_component(component, found.n_components, "model")
    axes = axes_or_new(axes, (5, 4.5))
    if shape is None:
        _draw_bars(found, place, check_count("count", count), axes)
    else:
        _draw_image(found, place, shape, axes)
    axes.set_title(f"component {place + 1}")
    return axes


def _draw_bars(model: Model, place: int, count: int, axes: Any) -> None:
    top = model.top_features(count)[place]
    weights = [weight for _, weight in top]
    axes.barh(range(len(top)), weights, color=[_style.ABOVE if weight > 0 else _style.BELOW for weight in weights])
    name_bars(axes, [feature for feature, _ in top])
    units = "background sd" if model.background_counts else "the feature's units"
    axes.set_xlabel(f"change for one target sd of the score, in {units}")


def _draw_image(model: Model, place: int, shape: Any, axes: Any) -> None:
    sides = np.asarray(shape)
    size = model.patterns.shape[1]
    if sides.shape != (2,) or sides.dtype.kind not in "iu" or (sides < 1).any() or sides.prod() != size:
        raise InputError(
            f"shape={shape!r} does not hold the {size} features of the model. Give the height and the width of the "
            "image, two whole numbers with that product."
        )
    image = (model.patterns[place] * np.sqrt(model.target_variance[place])).reshape(*sides)
    limit = float(np.abs(image).max()) or 1.0
    # Blue to red by way of white: readable without colour vision, and zero is white.
    drawn = axes.imshow(image, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.figure.colorbar(drawn, ax=axes, label="change for one target sd of the score")


def null(test: PermutationTest, component: int = 0, *, axes: Any = None) -> Any:
    """Draw the ratios that reshuffled labels give, with the observed one as a line.

    The axis is logarithmic where ratios span more than a factor of ten. An infinite ratio stands right of all
    others.

    Parameters
    ----------
    test : PermutationTest
        What :func:`standout.inference.permutation_test` returns.
    component : int, default=0
        Which component.
    axes : matplotlib axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> import numpy as np
    >>> from standout.inference import permutation_test
    >>> from standout.plot import null
    >>> rng = np.random.default_rng(0)
    >>> control, patients = rng.normal(size=(60, 4)), rng.normal(size=(50, 4)) * [1, 1, 3, 1]
    >>> test = permutation_test(patients, control, n_permutations=99)
    >>> null(test).get_title()
    'component 1: p = 0.01'
    """
    _check_given(test, "test", "null", "permutation_test")
    place = checked_component(component, len(test.ratios), "result")
    found = null_histogram(test, place)
    axes = axes_or_new(axes, (5, 3.6))
    axes.stairs(found.counts, found.edges, fill=True, color=_style.GREYS[0], label="reshuffled labels")
    observed = f"observed {number(test.ratios[place])}"
    axes.axvline(found.place, color=_style.COLORS[1], linewidth=2, label=observed)
    if found.wide:
        log_scale(axes.xaxis)
    axes.set(xlabel="ratio, target over background", ylabel="labellings")
    axes.set_title(f"component {place + 1}: p = {number(test.p_values[place])}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return axes


def stability(found: Stability, component: int = 0, *, count: int = 15, axes: Any = None) -> Any:
    """Draw the weights of a component's top features, with the intervals that drawing rows anew gives.

    Bars whose sign is kept in fewer than 95 % of the samples are pale and hatched.

    Parameters
    ----------
    found : Stability
        What :func:`standout.inference.stability` returns.
    component : int, default=0
        Which component.
    count : int, default=15
        How many features.
    axes : matplotlib axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> import numpy as np
    >>> from standout import inference, show
    >>> rng = np.random.default_rng(0)
    >>> control, patients = rng.normal(size=(300, 4)), rng.normal(size=(100, 4)) * [1, 1, 3, 1]
    >>> found = inference.stability(patients, control, n_components=1, n_bootstrap=20)
    >>> axes = show.stability(found)
    >>> bool(axes.patches[0].get_width() == found.weights[0, 2])
    True
    """
    _check_given(found, "found", "same_sign", "stability")
    place = checked_component(component, len(found.median), "result")
    top = found.top_features(check_count("count", count))[place]
    axes = axes_or_new(axes, (5.5, 4.5))
    for row, feature in enumerate(top):
        sure = feature.same_sign >= SURE
        color = _style.ABOVE if feature.weight > 0 else _style.BELOW
        look = {"color": color} if sure else {"facecolor": "white", "edgecolor": color, "hatch": "////", "alpha": 0.5}
        axes.barh(row, feature.weight, **look)
    lows, highs = np.array([f.low for f in top]), np.array([f.high for f in top])
    axes.hlines(range(len(top)), lows, highs, color="black", linewidth=1.2, zorder=3)
    name_bars(axes, [feature.feature for feature in top])
    axes.set_xlabel(f"change for one target sd of the score, in background sd; lines hold {100 * found.level:g} %")
    ends = f"{found.low[place]:.2f} to {found.high[place]:.2f}"
    axes.set_title(f"component {place + 1}: correlation {found.median[place]:.2f} ({ends})")
    return axes


def _check_given(given: Any, role: str, attribute: str, maker: str) -> None:
    if not hasattr(given, attribute) or not hasattr(given, "notes"):
        raise InputError(
            f"{role}: a {type(given).__name__} was given. Give what standout.inference.{maker} returns."
        )  # fmt: skip
