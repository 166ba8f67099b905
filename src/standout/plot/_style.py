"""Colours, markers, text formatting and axes shared by the plots and the report."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from standout.errors import MissingExtraError

# Okabe and Ito's palette, safe for colour-blind readers; yellow has little contrast on white and comes late.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
MARKERS = ("o", "D", "^", "s", "v", "P", "X", "*")
# The same markers under plotly's names.
SYMBOLS = ("circle", "diamond", "triangle-up", "square", "triangle-down", "cross", "x", "star")
GREYS = ("#9aa0a6", "#5f6368", "#bdc1c6")
MISSING = "#6b7280"
ABOVE, BELOW = COLORS[0], COLORS[1]  # bars of positive and negative weights
COLORMAP = "viridis"  # of numeric labels; its lightness is monotone, so it also works in grey
# Number of classes that differ in colour or marker.
DISTINCT = len(COLORS) * len(MARKERS)


class Style(NamedTuple):
    """Colour and marker of a class; both differ, so that plots can be read without colour vision."""

    color: str
    marker: str
    symbol: str


def style(index: int) -> Style:
    """Return the style of a class by its index; when the colours repeat, the markers shift."""
    shape = (index + index // len(COLORS)) % len(MARKERS)
    return Style(COLORS[index % len(COLORS)], MARKERS[shape], SYMBOLS[shape])


def grey(index: int) -> Style:
    """Return the style of a background by its index."""
    shape = index % len(MARKERS)
    return Style(GREYS[index % len(GREYS)], MARKERS[shape], SYMBOLS[shape])


def shortened(text: str, most: int = 40) -> str:
    """Cut a long name in the middle, because related names often differ at the end."""
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


def plain(text: str) -> str:
    """Escape text so that matplotlib renders it literally, in legends too."""
    escaped = text.replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped  # legends omit labels with a leading underscore


def import_for(what: str, module: str, extra: str) -> Any:
    """Import an optional package; the error names the extra to install."""
    try:
        return import_module(module)
    except ImportError as error:
        install = f"pip install 'standout[{extra}]'"
        raise MissingExtraError(f"{what} need {module.partition('.')[0]}. Install it with: {install}") from error


def pyplot() -> Any:
    """Return matplotlib's pyplot."""
    return import_for("plots", "matplotlib.pyplot", "plot")


def axes_or_new(axes: Any, size: tuple[float, float]) -> Any:
    """Return the given axes, or the axes of a new figure of this size in inches."""
    return pyplot().subplots(figsize=size, layout="constrained")[1] if axes is None else axes


def log_scale(axis: Any) -> None:
    """Make an axis logarithmic, with plain numbers instead of powers of ten."""
    from matplotlib.ticker import LogFormatter

    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_formatter(LogFormatter())
    axis.set_minor_formatter(LogFormatter())


def label_bars(axes: Any, features: Sequence[Any]) -> None:
    """Label horizontal bars with features, the first at the top, and draw the zero line."""
    axes.set_yticks(range(len(features)), [plain(shortened(str(feature))) for feature in features])
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
