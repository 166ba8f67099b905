"""The points of the score plots: which rows look alike, their legend, and their coordinates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout.blas import Array
from standout.show import styles
from standout.show.labels import Labels
from standout.show.report.contents import Contents, Part, View
from standout.show.report.encode import label_text, packed
from standout.show.report.gather import MOST_ONE_BY_ONE
from standout.show.text import number, shortened

# Classes with an entry in the legend; rarer ones share one.
_MOST_CLASSES = 40
# Labels of one background that get an entry each.
_MOST_BACKGROUND_CLASSES = 6
# Components to choose the axes from.
MOST_COMPONENTS = 10
_OTHER = "#444444"


@dataclass(frozen=True)
class PointSet:
    """Rows of one dataset that look alike and have one entry in the legend."""

    name: str
    place: int  # of the dataset, among the parts
    rows: NDArray[np.intp]  # among the rows of the part that are drawn
    color: str
    symbol: str
    behind: bool
    texts: tuple[str, ...] | None = None  # labels of the rows, where they differ
    values: Array | None = None  # where colours are a scale


def point_sets(contents: Contents) -> list[PointSet]:
    """Return the sets in the order of the legend: the target's classes, then the backgrounds."""
    target, *backgrounds = contents.parts
    sets = list(_target_sets(target))
    for place, part in enumerate(backgrounds, start=1):
        sets += _background_sets(part, place, sum(found.behind for found in sets))
    return sets


def _target_sets(part: Part) -> Iterator[PointSet]:
    labels = part.labels
    everything = np.arange(len(part.drawn))
    if labels is None:
        yield PointSet("target", 0, everything, styles.COLORS[0], styles.SYMBOLS[0], False)
        return
    if labels.numbers is not None:
        known = everything[~labels.missing]
        yield PointSet("target", 0, known, "", styles.SYMBOLS[0], False, values=labels.numbers[known])
    else:
        yield from _classes(labels)
    if labels.missing.any():
        yield PointSet("missing", 0, everything[labels.missing], styles.MISSING, "x-thin-open", False)


def _classes(labels: Labels) -> Iterator[PointSet]:
    sizes = np.bincount(labels.codes[labels.codes >= 0], minlength=len(labels.names))
    shown = np.flatnonzero(sizes)
    if len(shown) > _MOST_CLASSES:
        shown = np.sort(np.argsort(-sizes, kind="stable")[: _MOST_CLASSES - 1])
    for place, code in enumerate(shown):
        look = styles.style(place)
        yield PointSet(labels.names[code], 0, np.flatnonzero(labels.codes == code), look.color, look.symbol, False)
    rest = np.flatnonzero(~np.isin(labels.codes, [-1, *shown]))
    if len(rest):
        texts = tuple(labels.names[code] for code in labels.codes[rest])
        yield PointSet(f"{len(set(texts))} other labels", 0, rest, _OTHER, "circle-open", False, texts)


def _background_sets(part: Part, place: int, before: int) -> list[PointSet]:
    """Return a background as one set, or one for each label where there are few."""
    labels = part.labels
    everything = np.arange(len(part.drawn))
    look = styles.grey(before)
    if labels is None:
        return [PointSet(part.name, place, everything, look.color, look.symbol, True)]
    if labels.numbers is not None or len(labels.names) > _MOST_BACKGROUND_CLASSES or labels.missing.any():
        return [PointSet(part.name, place, everything, look.color, look.symbol, True, _texts(labels))]
    greys = [styles.grey(before + code) for code in range(len(labels.names))]
    return [
        PointSet(f"{part.name}: {name}", place, np.flatnonzero(labels.codes == code), grey.color, grey.symbol, True)
        for code, (name, grey) in enumerate(zip(labels.names, greys, strict=True))
        if (labels.codes == code).any()
    ]


def _texts(labels: Labels) -> tuple[str, ...]:
    if labels.numbers is not None:
        return tuple("missing" if math.isnan(value) else number(value) for value in labels.numbers)
    return tuple("missing" if code < 0 else labels.names[code] for code in labels.codes)


def scores_data(contents: Contents) -> dict[str, Any]:
    """Return what the page's script draws: the sets, which all views share, and their coordinates in each view."""
    sets = point_sets(contents)
    total = sum(len(part.drawn) for part in contents.parts)
    # In drawing order: backgrounds first, so that they lie behind.
    order = sorted(range(len(sets)), key=lambda place: not sets[place].behind)
    return {
        "sets": [_set_data(found, contents.parts[found.place], total) for found in sets],
        "order": order,
        "views": [_view_data(view, sets, total) for view in contents.views],
    }


def _set_data(found: PointSet, part: Part, total: int) -> dict[str, Any]:
    # Backgrounds may be large; the target's own rows decide how its points look.
    crowd = math.log10(max(total if found.behind else len(part.drawn), 100))
    data: dict[str, Any] = {
        "label": label_text(shortened(found.name, 60)),
        "short": label_text(shortened(found.name, 16)),
        "color": found.color,
        "symbol": found.symbol,
        "size": round(10.5 - 1.6 * crowd, 1),
        "opacity": round((0.8 if found.behind else 1.08) - 0.15 * crowd, 2),
    }
    if part.ids is None:
        data["rows"] = packed(part.drawn[found.rows] + 1)
    else:
        data["ids"] = [label_text(shortened(part.ids[row], 60)) for row in found.rows]
    if found.texts is not None:
        data["texts"] = [label_text(shortened(text, 60)) for text in found.texts]
    if found.values is not None:
        data["values"] = packed(found.values)
    return data


def _view_data(view: View, sets: list[PointSet], total: int) -> dict[str, Any]:
    shown = min(view.model.n_components, MOST_COMPONENTS)
    rng = np.random.default_rng(0)
    coordinates = []
    for place, found in enumerate(sets):
        scores = view.scores[found.place][found.rows]
        columns = [packed(scores[:, component]) for component in range(shown)]
        if shown == 1:  # a strip for each set, its points scattered a little
            columns.append(packed(len(sets) - 1 - place + rng.uniform(-0.3, 0.3, len(scores))))
        coordinates.append(columns)
    return {
        "webgl": total > MOST_ONE_BY_ONE,
        "strips": shown == 1,
        "axes": [label_text(axis_name(view, component)) for component in range(shown)],
        "coordinates": coordinates,
    }


def axis_name(view: View, component: int) -> str:
    """Return the name of a component with what it is worth."""
    model = view.model
    kind = "ratio" if model.background_counts else "variance"
    return f"component {component + 1} ({kind} {number(model.ratios[component])})"
