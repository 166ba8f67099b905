"""How far results can be trusted: what reshuffled labels give, and how sure the features of a component are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from standout.errors import InputError
from standout.parameters import check_count
from standout.show import styles
from standout.show.histogram import null_histogram
from standout.show.plot.canvas import axes_or_new, checked_component, log_scale, name_bars
from standout.show.text import number

if TYPE_CHECKING:
    from standout.inference import PermutationTest, Stability

# A weight whose sign is kept in fewer of the samples than this is drawn pale.
SURE = 0.95


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
    >>> from standout.show import null
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
    axes.stairs(found.counts, found.edges, fill=True, color=styles.GREYS[0], label="reshuffled labels")
    observed = f"observed {number(test.ratios[place])}"
    axes.axvline(found.place, color=styles.COLORS[1], linewidth=2, label=observed)
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
        color = styles.ABOVE if feature.weight > 0 else styles.BELOW
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
