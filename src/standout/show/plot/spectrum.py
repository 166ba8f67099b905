"""The ratios of a model with the edge that noise reaches; without a background, its variances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout.blas import Array
from standout.model import Model
from standout.show import styles
from standout.show.fitted import fitted_model
from standout.show.plot.canvas import axes_or_new, log_scale
from standout.show.text import number


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
    >>> from standout.show import ratios
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
        axes.plot(_places(found), found.target_variance, "o-", color=styles.COLORS[0], label="variance")
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
    _points(axes, model, model.ratios, own, {"marker": "o", "color": styles.COLORS[0]})
    if shrunk and np.isfinite(model.plain_ratios).any():
        look = {"marker": "o", "facecolors": "none", "edgecolors": styles.COLORS[1]}
        _points(axes, model, model.plain_ratios, "unshrunk ratio", look)
    if math.isnan(edge):
        title = "no noise edge: what noise alone\nwould reach cannot be told"
    else:
        title = None
        label = f"noise edge {number(edge)}{' (unshrunk)' if shrunk else ''}"
        axes.axhline(edge, color=styles.MISSING, linestyle="--", label=label, zorder=1)
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
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=styles.MISSING)
