"""Where pictures are drawn, and how text from the data is written on them."""

from __future__ import annotations

from typing import Any

from standout.errors import MissingExtraError


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


def plain(text: str) -> str:
    r"""Return text that matplotlib writes as it stands: no formulas, and nothing that hides it from a legend.

    Examples
    --------
    >>> plain("$5 to $10")
    '\\$5 to \\$10'
    """
    shown = text.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown
