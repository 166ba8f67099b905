"""Which rows and columns of a matrix are used, by name and by what describes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout.errors import ColumnError, InputError, did_you_mean, listed
from standout.sources.checks import NUMBERS
from standout.sources.files.columns import choose
from standout.sources.files.inside import Column
from standout.sources.files.options import Options
from standout.sources.files.tables import Coded, Where

Index = NDArray[np.intp]


def chosen_features(
    names: tuple[str, ...] | None, about: Collection[str], options: Options, where: str
) -> tuple[Index | None, tuple[str, ...] | None]:
    """Return the places of the features asked for (None: all of them) and their names."""
    if names is None:
        for argument, given in (("columns", options.columns), ("drop", options.drop)):
            if given:
                raise InputError(
                    f"{where}: {argument}={listed(given)}, and its columns have no names. Leave {argument}= out, or "
                    "give a file or data frame with names."
                )
        return None, None
    # A column that describes rows goes before a feature of the same name.
    taken = [column for column in options.roles if column in names and column not in about]
    plain = replace(options, label=None, groups=None, ids=None, where={}, drop=(*options.drop, *taken))
    chosen = choose(names, frozenset(names), plain, where).features
    if chosen == names:
        return None, names
    place = {name: i for i, name in enumerate(names)}
    return np.array([place[name] for name in chosen], dtype=np.intp), chosen


def described(
    about: Mapping[str, Column],
    names: Sequence[str] | None,
    read_column: Callable[[int], NDArray[Any]],
    options: Options,
    where: str,
) -> dict[str, Column]:
    """Return how to read every column that describes rows, features that were asked for as such among them."""
    found = dict(about)
    for column, argument in options.roles.items():
        if column in found:
            continue
        if names is None or column not in names:
            told = f"{where}: {argument} column {column!r} is not there.{_known(column, about)}"
            raise ColumnError(told, argument, column)
        found[column] = partial(read_column, names.index(column))
    return found


def _known(column: str, about: Mapping[str, Column]) -> str:
    if not about:
        return " The file has no columns that describe rows: leave it out, or give a file that has."
    return f"{did_you_mean(column, about)} Use one of the columns that describe rows: {listed(list(about))}."


def chosen_rows(about: Mapping[str, Column], options: Options, where: str) -> Index | None:
    """Return the places of the rows to keep, in order (None: all of them)."""
    rows = Where(options.where, where)
    values = {column: about[column]() for column in options.where}
    kept = rows.mask({name: Coded.of(column.tolist(), column.dtype.kind in NUMBERS) for name, column in values.items()})
    rows.check()
    return None if kept is None or kept.all() else np.flatnonzero(kept)
