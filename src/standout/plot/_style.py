"""Numbers and names as pictures and reports write them.

Colours and markers: every class has both, so that pictures also read in grey and without colour vision.

What rows are coloured by: classes, or a number that has many values.

Reshuffled ratios sorted into bins, beside the observed one: what pictures of a permutation test are made of.

The fitted model behind an estimator: what the pictures and the report are made of.

Where pictures are drawn, and how text from the data is written on them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from standout._base import BaseContrast
from standout._blas import Array
from standout._model import Model
from standout.errors import InputError, MissingExtraError
from standout.io.memory import is_missing

if TYPE_CHECKING:
    from standout.inference.permutation import PermutationTest

# Okabe and Ito's colours, which colour-blind readers can tell apart; yellow is hard to see on white and comes late.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
MARKERS = ("o", "D", "^", "s", "v", "P", "X", "*")
# The same markers by the names that plotly has for them.
SYMBOLS = ("circle", "diamond", "triangle-up", "square", "triangle-down", "cross", "x", "star")
GREYS = ("#9aa0a6", "#5f6368", "#bdc1c6")
MISSING = "#6b7280"
NUMBERS = "viridis"  # the colour map of labels that are numbers: it reads in grey too
# Classes with a style of their own.
DISTINCT = len(COLORS) * len(MARKERS)
# Numbers with more values than this are a scale, with fewer they are names of classes.
MANY = 20
# Ratios that span more than this factor are drawn on a log axis.
_WIDE = 10.0


def number(value: float, *, trimmed: bool = True) -> str:
    """Write a number with three or more digits, for readers; in tables without trimming zeros at the end.

    Examples
    --------
    >>> [number(value) for value in (11.249, 0.00012345, 12345.6, 2.0, float("inf"), float("nan"))]
    ['11.2', '0.000123', '12,346', '2', '∞', '–']
    >>> number(0.1, trimmed=False), number(111, trimmed=False)
    ('0.100', '111')
    """
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if 1000 <= abs(value) < 1e7:
        return f"{value:,.0f}".replace("-", "−")
    text = f"{value:.3g}" if trimmed or value == 0 else f"{value:#.3g}".rstrip(".")
    return text.replace("-", "−")


def count(amount: float, noun: str) -> str:
    """Write how many there are of something.

    Examples
    --------
    >>> count(1, "row"), count(12000, "row")
    ('1 row', '12,000 rows')
    """
    return f"{amount:,.0f} {noun}{'' if round(amount) == 1 else 's'}"


def shortened(text: str, most: int = 40) -> str:
    """Cut a long name in the middle: names of one kind often differ at their end.

    Examples
    --------
    >>> shortened("phosphorylated_glycogen_synthase_kinase_3_beta", 21)
    'phosphoryl…ase_3_beta'
    """
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


ABOVE, BELOW = COLORS[0], COLORS[1]


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


@dataclass(frozen=True, eq=False)
class Labels:
    """The label of each row, sorted into classes or kept as numbers."""

    names: tuple[str, ...]  # of the classes, in order; empty where labels are numbers
    codes: NDArray[np.intp]  # (n_rows,): the class of each row, −1 where the label is missing
    numbers: Array | None = None  # (n_rows,): where labels are numbers, NaN where missing

    @classmethod
    def of(cls, values: Any, n_rows: int, role: str = "labels") -> Labels:
        """Sort the labels of ``n_rows`` rows."""
        given = np.array(values, dtype=object) if isinstance(values, list | tuple) else np.asarray(values)
        if given.shape != (n_rows,):
            raise InputError(f"{role}: shape {given.shape} for {n_rows} rows. Give one label for each row.")
        gone = _missing(given)
        present = given[~gone]
        numbers = _as_numbers(present)
        if numbers is not None and len(np.unique(numbers)) > MANY:
            return cls((), np.full(n_rows, -1), _spread(np.where(np.isinf(numbers), np.nan, numbers), gone, np.nan))
        names, codes = _classes(present, numbers)
        return cls(names, _spread(codes, gone, -1))

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Which rows have no label."""
        return self.codes < 0 if self.numbers is None else np.isnan(self.numbers)

    def take(self, index: NDArray[np.intp]) -> Labels:
        """Return the labels of some rows, with the same classes."""
        return Labels(self.names, self.codes[index], None if self.numbers is None else self.numbers[index])


def _missing(given: NDArray[Any]) -> NDArray[np.bool_]:
    if given.dtype.kind == "f":
        return np.asarray(np.isnan(given))
    if given.dtype.kind in "biuUS":
        return np.zeros(len(given), dtype=bool)
    values = (value.item() if isinstance(value, np.generic) else value for value in given.tolist())
    return np.array([is_missing(value) for value in values], dtype=bool)


def _as_numbers(present: NDArray[Any]) -> Array | None:
    """Return labels as numbers if all of them are (truth values are classes)."""
    if present.dtype.kind in "fiu":
        return present.astype(np.float64)
    if present.dtype.kind != "O" or not len(present):
        return None
    numbers = all(isinstance(value, Real) and not isinstance(value, bool | np.bool_) for value in present)
    return present.astype(np.float64) if numbers else None


def _classes(present: NDArray[Any], numbers: Array | None) -> tuple[tuple[str, ...], NDArray[np.intp]]:
    if numbers is not None:
        kinds, codes = np.unique(numbers, return_inverse=True)
        return tuple(f"{kind:.12g}" for kind in kinds), codes
    place: dict[str, int] = {}
    met = np.array([place.setdefault(str(value) or "(empty)", len(place)) for value in present], dtype=np.intp)
    order = sorted(place, key=_natural)
    rank = np.empty(len(place), dtype=np.intp)
    rank[[place[name] for name in order]] = np.arange(len(order))
    return tuple(order), rank[met]


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts "day 10" after "day 9"."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part) if part.isdecimal() and part.isascii() else -1, part) for part in parts]


def _spread(values: NDArray[Any], gone: NDArray[np.bool_], fill: float) -> NDArray[Any]:
    """Put the values of the rows that have one among all rows."""
    full = np.full(len(gone), fill, dtype=values.dtype)
    full[~gone] = values
    return full


_FEWEST_BINS, _MOST_BINS = 6, 40


@dataclass(frozen=True, eq=False)
class Histogram:
    """How many reshufflings gave which ratio, and where the observed one lies."""

    edges: Array  # (n_bins + 1,)
    counts: Array  # (n_bins,)
    place: float  # of the observed ratio on the axis; an infinite one stands right of all others
    wide: bool  # whether a log axis is needed, of which the bins take equal parts


def null_histogram(test: PermutationTest, component: int) -> Histogram:
    """Sort the reshuffled ratios of a component into bins; infinite ones are put into the last."""
    null, observed = test.null[component], float(test.ratios[component])
    finite = null[np.isfinite(null)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (1.0, 2.0)
    if not high > low * (1 + 1e-9):
        low, high = 0.95 * low, 1.05 * high or 1.0
    right = max(high, observed) if math.isfinite(observed) else 1.3 * high
    wide = low > 0 and right / low > _WIDE
    n_bins = min(max(math.ceil(math.sqrt(len(null))), _FEWEST_BINS), _MOST_BINS)
    edges = np.geomspace(low, high, n_bins + 1) if wide else np.linspace(low, high, n_bins + 1)
    # Powers do not quite give the ends back.
    edges[0], edges[-1] = low, high
    counts = np.histogram(np.clip(null, low, high), edges)[0]
    return Histogram(edges, counts, observed if math.isfinite(observed) else right, wide)


def checked_estimator(model: Any, role: str = "model") -> BaseContrast:
    """Return an estimator, or say what was given instead."""
    if not isinstance(model, BaseContrast):
        raise InputError(
            f"{role}: a {type(model).__name__} was given, which is no estimator of standout. "
            "Give a fitted DPCA, CPCA or KernelDPCA."
        )
    return model


def fitted_model(model: Any, role: str = "model") -> Model:
    """Return the model of a fitted estimator; one that is not fitted says so itself."""
    return checked_estimator(model, role)._solved()


def has_patterns(model: Model) -> bool:
    """Tell whether components look like something in the features; those of a kernel do not."""
    return bool(model.patterns.shape[1])


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
