"""Options of :func:`standout.read`: validation, and the choice of feature and metadata columns."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from standout.errors import ColumnError, FeatureError, InputError, did_you_mean, listed
from standout.io.output import check_writable

MISSING = ("auto", "drop_rows", "drop_features", "mean")
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}


@dataclass(frozen=True)
class Options:
    """The validated options of :func:`standout.read`."""

    missing: str | None = None
    columns: tuple[str, ...] | None = None  # features, by name or pattern with * or ?; None: every numeric column
    drop: tuple[str, ...] = ()  # columns to leave out, by name or pattern with * or ?
    label: str | None = None
    groups: str | None = None
    ids: str | None = None
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # rows to select: column → values, as text
    key: str | None = None  # the array in a file that holds several
    memory: int = 256 * 10**6  # bytes: data up to this size are loaded; blocks of larger data take no more
    checkpoint: Path | None = None

    @classmethod
    def of(
        cls,
        *,
        missing: str | None = None,
        columns: str | Iterable[str] | None = None,
        drop: str | Iterable[str] | None = None,
        where: Mapping[str, Any] | None = None,
        memory: str | float = "256MB",
        checkpoint: str | os.PathLike[str] | None = None,
        **names: str | None,
    ) -> Options:
        """Validate the arguments of :func:`standout.read`; ``names`` are label, groups, ids and key."""
        if missing is not None and missing not in MISSING:
            raise InputError(f"`missing={missing!r}` is not valid. Use None or one of {', '.join(map(repr, MISSING))}.")
        if checkpoint is not None and not isinstance(checkpoint, str | os.PathLike):
            raise InputError(f"`checkpoint={checkpoint!r}` is not a path. Give the name of a file, or None.")
        return cls(
            missing=missing,
            columns=None if columns is None else _names("columns", columns),
            drop=() if drop is None else _names("drop", drop),
            where={column: _values(column, values) for column, values in (where or {}).items()},
            memory=as_bytes(memory),
            checkpoint=None if checkpoint is None else check_writable(checkpoint, "checkpoint"),
            **names,
        )

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


def as_bytes(memory: str | float) -> int:
    """Return an amount of memory in bytes.

    Examples
    --------
    >>> as_bytes("1.5GB"), as_bytes(1000)
    (1500000000, 1000)
    """
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
    values = list(given) if isinstance(given, list | tuple | set | frozenset) else [given]
    if not values:
        raise InputError(f"where: no value for column {column!r}. Give at least one of its values.")
    return tuple(str(value) for value in values)


@dataclass(frozen=True)
class Chosen:
    """The columns of a table, by use."""

    features: tuple[str, ...]
    aside: tuple[str, ...]  # metadata columns
    unasked: tuple[str, ...]  # those of them that no argument names: they are not numeric
    ids: str | None = None  # the column of row ids: as requested, or according to the file


def choose(
    columns: Sequence[str], numeric: Collection[str], options: Options, location: str, index: Collection[str] = ()
) -> Chosen:
    """Divide columns into features, metadata and columns to leave out.

    Parameters
    ----------
    columns : sequence of str
        All columns of the table.
    numeric : collection of str
        Those that hold numbers.
    options : Options
        The options of :func:`standout.read`.
    location : str
        The start of error messages.
    index : collection of str
        Columns that hold row ids according to the file. They are features only if ``columns=`` names them.

    Examples
    --------
    >>> choose(["id", "a", "b"], {"a", "b"}, Options(ids="id", drop=("b",)), "rows.csv")
    Chosen(features=('a',), aside=('id',), unasked=(), ids='id')
    >>> choose(["index", "a", "b"], {"index", "a", "b"}, Options(), "rows.csv", index=["index"])
    Chosen(features=('a', 'b'), aside=('index',), unasked=(), ids='index')
    """
    check_distinct(columns, location)
    known, roles = frozenset(columns), options.roles  # there may be thousands of names
    for column, argument in roles.items():
        if column not in known:
            raise _no_column(f"{location}: {argument} column {column!r}", argument, column, columns)
    dropped: set[str] = set()
    for pattern in options.drop:
        matched = [pattern] if pattern in known else _matching(pattern, columns)
        if not matched:
            raise _no_column(f"{location}: `drop={pattern!r}`", "drop", pattern, columns)
        dropped.update(matched)
    dropped -= set(roles)
    rows = [c for c in index if c not in dropped and c not in (options.columns or ())]
    numeric = set(numeric).difference(rows)
    if options.columns is None:
        features = [c for c in columns if c in numeric and c not in roles and c not in dropped]
    else:
        features = _requested_features(options.columns, columns, numeric, location, set(roles) | dropped)
    aside = [c for c in columns if c in roles or (c not in numeric and c not in dropped)]
    if not features:
        raise FeatureError(
            f"{location}: no features are left: {len(numeric)} of {len(columns)} columns are numeric. Check the "
            "contents of the file, and which columns `columns` and `drop` leave."
        )
    ids = rows[0] if options.ids is None and len(rows) == 1 else options.ids
    return Chosen(tuple(features), tuple(aside), tuple(c for c in aside if c not in roles and c not in rows), ids)


def check_distinct(columns: Sequence[str], location: str) -> None:
    """Raise an error for duplicate column names."""
    duplicates = [name for name, count in Counter(columns).items() if count > 1]
    if duplicates:
        plural = "s" * (len(duplicates) > 1)
        raise InputError(
            f"{location}: {len(duplicates)} duplicate column name{plural}: {listed(duplicates)}. Rename or drop the "
            "duplicates."
        )


def check_same(columns: Sequence[str], first: Sequence[str], options: Options, location: str, like: str) -> None:
    """Raise an error if one of several files has other columns than the first, ``like``; dropped columns may differ."""
    ignored = {c for pattern in options.drop for c in (pattern, *_matching(pattern, first))}
    known, found = frozenset(first), frozenset(columns)
    missing = [c for c in first if c not in found and c not in ignored]
    extra = [c for c in columns if c not in known] if options.columns is None else []
    if missing or extra:
        parts = [f"{listed(missing)} missing"] * bool(missing) + [f"{listed(extra)} added"] * bool(extra)
        raise FeatureError(
            f"{location}: its columns differ from those of {like}: {', '.join(parts)}. Give files with the same "
            "columns, or name those to use in `columns`."
        )


def _requested_features(
    patterns: Iterable[str], columns: Sequence[str], numeric: Collection[str], location: str, taken: set[str]
) -> list[str]:
    """Return the features that ``columns=`` names, in that order; those of a pattern in the order of the file."""
    found: dict[str, None] = {}
    known = frozenset(columns)
    for pattern in patterns:
        if pattern in known and pattern not in numeric:
            raise FeatureError(f"{location}: column {pattern!r} is not numeric. Leave it out of `columns`.")
        matched = [pattern] if pattern in known else [c for c in _matching(pattern, columns) if c in numeric]
        if not matched:
            raise FeatureError(f"{location}: no numeric column is called {pattern!r}.{_hint(pattern, columns)}")
        found |= dict.fromkeys(c for c in matched if c not in taken)
    return list(found)


def _matching(pattern: str, columns: Sequence[str]) -> list[str]:
    """Return the columns that match a pattern; only ``*`` and ``?`` are wildcards, as names may contain brackets."""
    if "*" not in pattern and "?" not in pattern:
        return []
    shell = pattern.replace("[", "[[]")
    return [column for column in columns if fnmatchcase(column, shell)]


def _no_column(what: str, argument: str, column: str, columns: Sequence[str]) -> ColumnError:
    return ColumnError(f"{what} is not one of its columns.{_hint(column, columns)}", argument, column)


def _hint(name: str, columns: Sequence[str]) -> str:
    return f"{did_you_mean(name, columns)} Use one of its columns: {listed(columns)}."
