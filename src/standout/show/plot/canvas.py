"""Where pictures are drawn, and how text from the data is written on them."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

from standout.errors import InputError, MissingExtraError
from standout.show.text import shortened


def pyplot() -> Any:
    """Return matplotlib's pyplot, or say how to get it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingExtraError("plots need matplotlib. Install it with: pip install 'standout[plot]'") from error
    return plt


def axes_or_new(axes: Any, size: tuple[float, float]) -> Any:
    """Return the axes given, or those of a new figure."""
    if axes is not None:
        return axes
    return pyplot().subplots(figsize=size, layout="constrained")[1]


def log_scale(axis: Any) -> None:
    """Make one axis logarithmic, with plain numbers on it."""
    from matplotlib.ticker import LogFormatter

    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_formatter(LogFormatter())
    axis.set_minor_formatter(LogFormatter())


def checked_component(component: Any, size: int, of: str) -> int:
    """Return which of ``size`` components is meant, or say which there are."""
    if isinstance(component, Integral) and not isinstance(component, bool) and 0 <= int(component) < size:
        return int(component)
    raise InputError(
        f"component={component!r} is not among the {size} components of the {of}, which count from 0. Use a whole "
        f"number from 0 to {size - 1}."
    )


def name_bars(axes: Any, features: Sequence[Any]) -> None:
    """Write the features beside horizontal bars, the first at the top, and draw the line the bars begin at."""
    axes.set_yticks(range(len(features)), [plain(shortened(str(feature))) for feature in features])
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def plain(text: str) -> str:
    r"""Return text that matplotlib writes as it stands: no formulas, and nothing that hides it from a legend.

    Examples
    --------
    >>> plain("$5 to $10")
    '\\$5 to \\$10'
    """
    shown = text.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown
