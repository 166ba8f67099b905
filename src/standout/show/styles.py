"""Colours and markers: every class has both, so that pictures also read in grey and without colour vision."""

from __future__ import annotations

from dataclasses import dataclass

# Okabe and Ito's colours, which colour-blind readers can tell apart; yellow is hard to see on white and comes late.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
MARKERS = ("o", "D", "^", "s", "v", "P", "X", "*")
# The same markers by the names that plotly has for them.
SYMBOLS = ("circle", "diamond", "triangle-up", "square", "triangle-down", "cross", "x", "star")
GREYS = ("#9aa0a6", "#5f6368", "#bdc1c6")
MISSING = "#6b7280"
ABOVE, BELOW = COLORS[0], COLORS[1]
NUMBERS = "viridis"  # the colour map of labels that are numbers: it reads in grey too

# Classes with a style of their own.
DISTINCT = len(COLORS) * len(MARKERS)


@dataclass(frozen=True)
class Style:
    """The look of a class."""

    color: str
    marker: str
    symbol: str


def style(number: int) -> Style:
    """Return the style of a class by its number: when the colours repeat, the markers move on.

    Examples
    --------
    >>> style(0), style(8)
    (Style(color='#0072B2', marker='o', symbol='circle'), Style(color='#0072B2', marker='D', symbol='diamond'))
    >>> len({style(number) for number in range(DISTINCT)}) == DISTINCT
    True
    """
    place = (number + number // len(COLORS)) % len(MARKERS)
    return Style(COLORS[number % len(COLORS)], MARKERS[place], SYMBOLS[place])


def grey(number: int) -> Style:
    """Return the style of a background by its number.

    Examples
    --------
    >>> grey(1)
    Style(color='#5f6368', marker='D', symbol='diamond')
    """
    place = number % len(MARKERS)
    return Style(GREYS[number % len(GREYS)], MARKERS[place], SYMBOLS[place])
