"""What a component looks like in the features: bars of those that move most, or an image."""

from __future__ import annotations

from typing import Any

import numpy as np

from standout.errors import InputError
from standout.model import Model
from standout.parameters import check_count
from standout.show import styles
from standout.show.fitted import fitted_model, has_patterns
from standout.show.plot.canvas import axes_or_new, checked_component, name_bars


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
    >>> from standout.show import patterns
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
            "Use standout.show.scores to see what they show, or a DPCA."
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
    axes.barh(range(len(top)), weights, color=[styles.ABOVE if weight > 0 else styles.BELOW for weight in weights])
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
