"""Rows that look like replicates of fewer units: several measurements of one subject under ids such as 309_1, 309_2.

Such rows are not independent, and ratios, p-values and folds that count them as if they were are worth
little: 135 rows of 9 mice are 9.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout.blas import Array
from standout.errors import InputError
from standout.inference.resample import Index, coded, unit_means
from standout.sources import block_rows, read
from standout.sources.here import check_column, column_here, values_here

# Rows of a unit must be closer (in squared distance) than rows of different units by this factor ...
_CLOSE = 0.7
# ... and closer than under any of so many random assignments of rows to units.
_RANDOM = 199
# This many rows and values are enough to tell.
_MOST_ROWS, _MOST_VALUES = 20_000, 2_000_000
_SEPARATORS = "_-.:/|# "


@dataclass(frozen=True)
class ReplicateFinding:
    """Rows that look like replicates.

    Attributes
    ----------
    n_rows, n_units : int
        Rows, and the units they seem to come from.
    rule : str
        How the unit is told from the row's id.
    ratio : float
        Mean squared distance between rows of one unit over that between rows of different units, features
        in units of their sd.
    groups : ndarray of shape (n_rows,)
        The unit of each row, as ``groups`` wants it.
    text : str
        The finding in words, with what to do.
    """

    n_rows: int
    n_units: int
    rule: str
    ratio: float
    groups: NDArray[np.str_]
    text: str


def find_replicates(rows: Any, ids: Any = None, labels: Any = None) -> ReplicateFinding | None:
    """Tell whether rows look like replicates of fewer units.

    They do when ids share a part (309 of 309_1, 309_2, ...) and rows that share it are far closer to each
    other than rows that do not. Differences between labels take no part, so that classes are not mistaken
    for units.

    Parameters
    ----------
    rows : path, array-like, frame, sparse matrix or Source, of shape (n_rows, n_features)
        The rows; missing values (NaN) do not matter.
    ids : array-like of shape (n_rows,), optional
        Name of each row; by default those of the source. Without any, nothing can be told.
    labels : array-like of shape (n_rows,), optional
        Class of each row; by default that of the source.

    Returns
    -------
    ReplicateFinding or None
        None where rows do not look replicated.

    Examples
    --------
    >>> import numpy as np
    >>> from standout.inference import find_replicates
    >>> rng = np.random.default_rng(0)
    >>> ids = [f"mouse{mouse}_{run}" for mouse in range(9) for run in range(5)]
    >>> find_replicates(rng.normal(size=(45, 8)), ids) is None
    True
    >>> replicated = np.repeat(rng.normal(size=(9, 8)), 5, axis=0) + 0.3 * rng.normal(size=(45, 8))
    >>> finding = find_replicates(replicated, ids)
    >>> finding.n_units, finding.rule
    (9, "the part of the id before the last '_'")
    """
    source = read(rows, role="rows")
    ids, labels = values_here(ids, source, "ids"), values_here(labels, source, "labels")
    if ids is None:
        check_column(source, "ids", "ids")
    values = _first_rows(source)
    # After the rows: a file tells its ids and labels while it is read.
    names = _described(ids if ids is not None else column_here(source, "ids", "ids"), source.n_rows, "ids")
    if names is None or len(names) < 4:
        return None
    labels = labels if labels is not None else column_here(source, "label", "labels")
    kinds = _described(labels, source.n_rows, "labels")
    classes = np.zeros(len(values), dtype=np.intp) if kinds is None else coded(kinds[: len(values)])[0]
    standardised = _standardised(values, classes)
    found: list[tuple[float, str, list[str]]] = []
    for rule, units in _candidates(names):
        ratio = _convincing(standardised, coded(units[: len(values)])[0], classes)
        if ratio is not None:
            found.append((ratio, rule, units))
    if not found:
        return None
    ratio, rule, units = min(found, key=lambda one: one[0])
    return _finding(ratio, rule, names, units)


def _finding(ratio: float, rule: str, names: list[str], units: list[str]) -> ReplicateFinding:
    count = len(set(units))
    times = f"{1 / ratio:.2g}" if ratio > 0 else "infinitely many"
    text = (
        f"the {len(names)} rows look like replicates of {count} units, told by {rule} ({units[0]!r} of {names[0]!r}): "
        f"rows of one unit are {times} times closer (in squared distance) than rows of different units. Give the units "
        "as groups, so that they are counted and not the rows."
    )
    return ReplicateFinding(len(names), count, rule, ratio, np.array(units), text)


def _first_rows(source: Any) -> Array:
    """Return the first rows, and of many features some."""
    parts, seen = [], 0
    for block in source.blocks(block_rows(source.n_features)):
        parts.append(np.asarray(block, dtype=np.float64)[: _MOST_ROWS - seen])
        seen += len(parts[-1])
        if seen >= _MOST_ROWS:
            break
    values = np.concatenate(parts)
    step = max(1, round(values.size / _MOST_VALUES))
    return values[:, ::step]


def _described(given: Any, n_rows: int | None, what: str) -> list[str] | None:
    """Return what is said about each row as text."""
    if given is None:
        return None
    values = np.asarray(given)
    if values.ndim != 1 or (n_rows is not None and len(values) != n_rows):
        raise InputError(f"{what}: shape {values.shape} for {n_rows} rows. Give one for each row.")
    return [str(value) for value in values.tolist()]


def _standardised(values: Array, classes: Index) -> Array:
    """Return rows about the mean of their class, features in units of their sd; what is missing is the mean."""
    missing = ~np.isfinite(values)
    centred = np.where(missing, 0.0, values)
    counts = unit_means((~missing).astype(np.float64), classes)
    means = unit_means(centred, classes) / np.where(counts > 0, counts, 1.0)
    centred = np.where(missing, 0.0, centred - means[classes])
    sd = np.sqrt((centred**2).mean(axis=0))
    varies = sd > 1e-12 * np.abs(means).max(axis=0)
    return np.asarray(centred[:, varies] / sd[varies])


def _candidates(names: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the ways in which ids may tell a unit: at least two units, with two rows each on average."""
    rules: dict[str, Callable[[str], str | None]] = {"the id itself": lambda name: name}
    for mark in _SEPARATORS:
        rules[f"the part of the id before the last {mark!r}"] = partial(_before, mark=mark, last=True)
        rules[f"the part of the id before the first {mark!r}"] = partial(_before, mark=mark, last=False)
    rules["the id without its last letter"] = _without_letter
    seen = set()
    for rule, unit_of in rules.items():
        units = [unit_of(name) for name in names]
        told = [unit for unit in units if unit]
        if len(told) < len(names) or not 2 <= len(set(told)) <= len(names) / 2 or tuple(told) in seen:
            continue
        seen.add(tuple(told))
        yield rule, told


def _before(name: str, mark: str, last: bool) -> str | None:
    unit, found, rest = name.rpartition(mark) if last else name.partition(mark)
    return unit if found and rest else None


def _without_letter(name: str) -> str | None:
    match = re.fullmatch(r"(.*\d)[A-Za-z]", name)
    return match.group(1) if match else None


def _convincing(rows: Array, units: Index, classes: Index) -> float | None:
    """Return the ratio of squared distances, where it is small and smaller than chance makes it."""
    n_classes, n_units = len(np.unique(classes)), len(np.unique(units))
    if rows.shape[1] == 0 or n_units <= n_classes or len(rows) <= n_units:
        return None
    observed = _ratio(rows, units, n_classes)
    if observed >= _CLOSE:
        return None
    rng = np.random.default_rng(0)
    by_chance = min(_ratio(rows, rng.permutation(units), n_classes) for _ in range(_RANDOM))
    return observed if observed < by_chance else None


def _ratio(rows: Array, units: Index, n_classes: int) -> float:
    """Return the mean squared distance within units over that between them, from the variances."""
    sizes = np.bincount(units)
    between = float((sizes[:, None] * unit_means(rows, units) ** 2).sum())
    within = float((rows**2).sum()) - between
    n_rows, n_units = len(rows), len(sizes)
    inside = within / (n_rows - n_units)
    typical = (n_rows - float((sizes**2).sum()) / n_rows) / (n_units - 1)
    apart = max(between / (n_units - n_classes) - inside, 0.0) / typical
    return inside / (inside + apart) if inside + apart > 0 else 1.0
