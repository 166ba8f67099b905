"""Options of :func:`standout.read`: validation, and the choice of columns and rows."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from standout import errors
from standout.errors import ColumnError, FeatureError, InputError, did_you_mean, listed, warn_user
from standout.io.memory import check_distinct, is_missing
from standout.io.output import check_writable

MISSING = ("auto", "drop_rows", "drop_features", "mean")
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
# Distinct values of a column that are remembered for messages.
_MAX_DISTINCT = 2**16
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)


@dataclass(frozen=True)
class Options:
    """The validated options of :func:`standout.read`."""

    missing: str | None = None
    columns: tuple[str, ...] | None = None  # features, by name or pattern with * or ?; None: every numeric column
    drop: tuple[str, ...] = ()  # columns to leave out, by name or pattern with * or ?
    label: str | None = None
    groups: str | None = None
    groups_match: str | None = None  # regular expression for the subject in a group
    ids: str | None = None
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # rows to select: column → values, as text
    key: str | None = None  # the array or sheet in a file that holds several
    header: int | None = None  # the line with the column names, from 1; None: the first that is not a comment
    encoding: str | None = None  # of text; None: UTF-8, or UTF-16 with a byte-order mark
    censored: str | None = None  # "missing": values such as <0.5 are missing values
    transpose: bool = False  # whether the columns of the table are rows
    cube: bool = False  # whether the array has the dimensions height × width × bands
    memory: int = 256 * 10**6  # bytes: data up to this size are loaded; blocks of larger data take no more
    checkpoint: Path | None = None

    @classmethod
    def of(cls, **given: Any) -> Options:
        """Validate the arguments of :func:`standout.read`."""
        columns, drop, checkpoint, missing = map(given.get, ("columns", "drop", "checkpoint", "missing"))
        if missing not in (None, *MISSING):
            raise InputError(f"`missing={missing!r}` is not valid. Use None or one of {listed(MISSING)}.")
        if checkpoint is not None and not isinstance(checkpoint, str | os.PathLike):
            raise InputError(f"`checkpoint={checkpoint!r}` is not a path. Give the name of a file, or None.")
        given |= {
            "columns": None if columns is None else _names("columns", columns),
            "drop": () if drop is None else _names("drop", drop),
            "where": {column: _values(column, values) for column, values in (given.get("where") or {}).items()},
            "memory": as_bytes(given.get("memory", cls.memory)),
            "checkpoint": None if checkpoint is None else check_writable(checkpoint, "checkpoint"),
        }
        options = cls(**given)
        _check_text(options)
        if options.transpose and set(options.roles.values()) - {"ids"}:
            problem = "with `transpose=True` columns become rows, and no column can describe rows"
            raise InputError(f"{problem}. Leave `label`, `groups` and `where` out.")
        if options.transpose and options.cube:
            raise InputError("`cube` and `transpose` exclude each other. Give a cube of height × width × bands.")
        pattern = options.groups_match
        if pattern is not None and options.groups is None:
            raise InputError("`groups_match` needs the column of the groups. Give `groups` too.")
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise InputError(f"`groups_match={pattern!r}` is not a regular expression ({error}). Check it.") from error
        return options

    @property
    def for_text(self) -> list[str]:
        """The options that only text and spreadsheets have."""
        return [name for name in ("header", "encoding", "censored") if getattr(self, name) is not None]

    @property
    def roles(self) -> dict[str, str]:
        """The requested metadata columns, with the argument that names each."""
        named = {"label": self.label, "groups": self.groups, "ids": self.ids}
        chosen = {column: argument for argument, column in named.items() if column is not None}
        return chosen | {column: "where" for column in self.where if column not in chosen}

    @property
    def is_default(self) -> bool:
        """Whether all options but ``memory`` have their defaults."""
        return self == Options(memory=self.memory)


def _check_text(options: Options) -> None:
    """Raise an error for an option of text files that is not valid."""
    if options.censored not in (None, "missing"):
        raise InputError(f"`censored={options.censored!r}` is not valid. Use None or 'missing'.")
    if options.header is not None and (not isinstance(options.header, int) or options.header < 1):
        raise InputError(f"`header={options.header!r}` is not a line. Give its number, from 1.")
    try:
        "".encode(options.encoding or "utf-8")
    except (LookupError, TypeError) as error:
        problem = f"`encoding={options.encoding!r}` is not known"
        raise InputError(f"{problem}. Give an encoding such as 'cp1252', 'latin-1' or 'shift_jis'.") from error


def as_bytes(memory: str | float) -> int:
    """Return an amount of memory, such as 1000 or "1.5GB", in bytes."""
    if isinstance(memory, int | float) and not isinstance(memory, bool) and 0 <= memory < 2**62:
        return int(memory)
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", memory) if isinstance(memory, str) else None
    if found is None or found[2].lower() not in _UNITS:
        raise InputError(f"`memory={memory!r}` is not an amount. Use bytes, or text such as '512MB' or '2GB'.")
    return int(float(found[1]) * _UNITS[found[2].lower()])


def _names(argument: str, given: str | Iterable[str]) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"{argument}={given!r} is not valid. Give one name or a list of names.")
    return names


def _values(column: str, given: Any) -> tuple[str, ...]:
    values = given if isinstance(given, list | tuple | set | frozenset) else [given]
    if not values:
        raise InputError(f"where: no value for column {column!r}. Give at least one of its values.")
    return tuple(str(value) for value in values)


# Columns


class Chosen(NamedTuple):
    """The columns of a table, by use."""

    features: tuple[str, ...]
    aside: tuple[str, ...]  # metadata columns
    ids: str | None  # the column of row ids: as requested, or according to the file


def choose(
    columns: Sequence[str], numeric: Collection[str], options: Options, location: str, index: Collection[str] = ()
) -> Chosen:
    """Divide columns into features, metadata and columns to leave out; warn of those that no argument names.

    ``index`` are columns that hold row ids according to the file. They are features only if ``columns=`` names them.
    """
    check_distinct(columns, location)
    known, roles = dict.fromkeys(columns), options.roles  # a dict, as there may be thousands of names
    for column, argument in roles.items():
        if column not in known:
            raise _no_column(f"{location}: {argument} column {column!r}", argument, column, columns)
    dropped: set[str] = set()
    for pattern in options.drop:
        matched = matching(pattern, known)
        if not matched:
            raise _no_column(f"{location}: `drop={pattern!r}`", "drop", pattern, columns)
        dropped.update(matched)
    dropped -= set(roles)
    rows = [c for c in index if c not in dropped and c not in (options.columns or ())]
    if options.transpose:
        texts = [c for c in columns if c not in numeric and c not in dropped and c not in (*rows, *roles)]
        if options.ids is None and not rows:
            rows, texts = texts[:1], texts[1:]
        if texts:
            problem = f"with `transpose=True` columns become rows, and {len(texts)} of them hold text: {listed(texts)}"
            remedy = "Name the column of feature names in `ids`, and the others in `drop`."
            raise FeatureError(f"{location}: {problem}. {remedy}")
    numeric = set(numeric).difference(rows)
    if options.columns is None:
        features = [c for c in columns if c in numeric and c not in roles and c not in dropped]
    else:
        features = _requested_features(options.columns, columns, numeric, location, set(roles) | dropped)
    aside = [c for c in columns if c in roles or (c not in numeric and c not in dropped)]
    if not features:
        problem = f"no features are left: {len(numeric)} of {len(columns)} columns are numeric"
        raise FeatureError(f"{location}: {problem}. Check the file, and which columns `columns` and `drop` leave.")
    unused = [c for c in aside if c not in roles and c not in rows]
    if options.columns is None and unused:
        found = f"{len(unused)} non-numeric column{'s' * (len(unused) != 1)} left out of the features: {listed(unused)}"
        remedy = "Use `label`, `groups` or `ids` for columns that describe rows, and `drop` for the others."
        warn_user(f"{location}: {found}. {remedy}", errors.FeatureWarning)
    return Chosen(tuple(features), tuple(aside), rows[0] if options.ids is None and len(rows) == 1 else options.ids)


def _requested_features(
    patterns: Iterable[str], columns: Sequence[str], numeric: Collection[str], location: str, taken: set[str]
) -> list[str]:
    """Return the features that ``columns=`` names, in that order; those of a pattern in the order of the file."""
    found: dict[str, None] = {}
    known = dict.fromkeys(columns)
    for pattern in patterns:
        every = matching(pattern, known)
        matched = [c for c in every if c in numeric]
        if every == [pattern] and not matched:
            raise FeatureError(f"{location}: column {pattern!r} is not numeric. Leave it out of `columns`.")
        if not matched:
            raise FeatureError(f"{location}: no numeric column is called {pattern!r}.{_hint(pattern, columns)}")
        found |= dict.fromkeys(c for c in matched if c not in taken)
    return list(found)


def matching(pattern: str, columns: Collection[str]) -> list[str]:
    """Return the column of that name, or those that match a pattern; only ``*`` and ``?`` are wildcards."""
    if pattern in columns:
        return [pattern]
    shell = pattern.replace("[", "[[]")
    return [c for c in columns if fnmatchcase(c, shell)] if "*" in pattern or "?" in pattern else []


def _no_column(what: str, argument: str, column: str, columns: Sequence[str]) -> ColumnError:
    return ColumnError(f"{what} is not one of its columns.{_hint(column, columns)}", argument, column)


def _hint(name: str, columns: Sequence[str]) -> str:
    return f"{did_you_mean(name, columns)} Use one of its columns: {listed(columns)}."


# Rows


@dataclass(frozen=True)
class Coded:
    """A metadata column: its distinct values as text, and the position of each row's value among them."""

    codes: NDArray[np.intp]
    values: Sequence[str | None]  # None: missing
    typed: bool = False  # the file stores numbers or booleans: 3 and 3.0 are equal
    written: bool = False  # the file stores text only: 3 and 3.0 may be equal

    @classmethod
    def of(cls, items: Iterable[Any], typed: bool = False) -> Coded:
        """Encode items of any type as text."""
        positions: dict[str | None, int] = {}
        codes = np.fromiter((positions.setdefault(as_text(item), len(positions)) for item in items), dtype=np.intp)
        return cls(codes, list(positions), typed)

    def texts(self, mask: NDArray[np.bool_] | None = None) -> NDArray[Any]:
        """Return the text of each row in ``mask`` (None: all), 8 bytes a row."""
        values = np.empty(len(self.values), dtype=object)
        values[:] = self.values
        if len(self.values) <= max(64, len(self.codes) // 8):  # labels: equal ones are one object in all batches
            values[:] = [value and sys.intern(value) for value in self.values]
        text: NDArray[Any] = values[self.codes if mask is None else self.codes[mask]]
        return text


def as_text(item: Any) -> str | None:
    """Return a single value as text; None if it is missing."""
    if isinstance(item, str):
        return str(item)
    if is_missing(item):
        return None
    return item.decode("utf-8", "backslashreplace") if isinstance(item, bytes) else str(item)


class RowFilter:
    """Select rows by the values of metadata columns (``where=``), and report values that never occur.

    Text files may write a number differently from the request: pandas writes 1.0 for 1 in a column with missing
    values. A value that occurs exactly as requested takes precedence over such spellings.

    ``state`` is what a pass has found so far, as JSON, by column: the values, the requested values that occur as
    given, and those that occur in another spelling, which is selected or skipped.
    """

    def __init__(self, where: Mapping[str, tuple[str, ...]], location: str, state: dict[str, Any] | None = None):
        self._where, self._location = where, location
        parts = ("values", "exact", "selected", "skipped")
        self.state = state or {"rows": 0, **{part: {column: {} for column in where} for part in parts}}

    def mask(self, metadata: Mapping[str, Coded]) -> NDArray[np.bool_] | None:
        """Return which rows are selected; None for all."""
        mask: NDArray[np.bool_] | None = None
        for column in self._where:
            matches = self._matches(column, metadata[column])[metadata[column].codes]
            mask = matches if mask is None else mask & matches
        self.state["rows"] += 0 if mask is None else int(mask.sum())
        return mask

    def _matches(self, column: str, coded: Coded) -> NDArray[np.bool_]:
        """Return which distinct values are selected."""
        requested = self._where[column]
        values, exact = self.state["values"][column], self.state["exact"][column]
        selected, skipped = self.state["selected"][column], self.state["skipped"][column]
        exact.update(dict.fromkeys(set(requested).intersection(coded.values)))
        matches = np.zeros(len(coded.values), dtype=bool)
        for position, value in enumerate(coded.values):
            if value is None:
                continue
            if len(values) < _MAX_DISTINCT:
                values[value] = None
            equal = [name for name in requested if _equal_values(name, value)] if coded.typed or coded.written else []
            if value in exact:
                matches[position] = True
            elif coded.typed:
                exact.update(dict.fromkeys(equal))
                matches[position] = bool(equal)
            else:
                for name in equal:
                    (skipped if name in exact else selected).setdefault(name, value)
                    matches[position] |= name not in exact
        return matches

    def check(self) -> None:
        """Raise an error, at the end of a pass, if a value did not occur or no row is selected."""
        location, remedy = f"{self._location}: where", "Name both in `where` if both are meant"
        for column, requested in self._where.items():
            exact, selected = self.state["exact"][column], self.state["selected"][column]
            for name, value in selected.items():  # the file writes a requested number in several ways
                if name in exact:
                    found = f"column {column!r} has {value!r} in some rows and {name!r} in later ones"
                    raise InputError(f"{location}: {found}. {remedy}; otherwise rename one of them in the file.")
            for name, value in self.state["skipped"][column].items():
                found = f"rows with {value!r} in column {column!r} are not selected, because {name!r} occurs as given"
                warn_user(f"{location}: {found}. {remedy}.", errors.StandoutWarning)
            absent = [value for value in requested if value not in exact and value not in selected]
            if absent:
                values = list(self.state["values"][column])
                hint = f"{did_you_mean(absent[0], values)} Use values that occur: {listed(values)}."
                raise InputError(f"{location}: no row has {absent[0]!r} in column {column!r}.{hint}")
        if self._where and not self.state["rows"]:
            conditions = ", ".join(f"{column} = {listed(values)}" for column, values in self._where.items())
            problem = f"every value occurs, but no row meets all conditions ({conditions})"
            raise InputError(f"{location}: {problem}. Leave one of the conditions out.")


def _equal_values(one: str, other: str) -> bool:
    """Return whether two texts are the same number or boolean: 3 and 3.0, true and True."""
    if _NUMBER.fullmatch(one) and _NUMBER.fullmatch(other):
        return Decimal(one) == Decimal(other)  # float would merge neighbouring long ids
    return one.lower() == other.lower() and one.lower() in ("true", "false")
