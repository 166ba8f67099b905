"""How a dataset is to be read: which columns are what, what to do about missing values, how much memory.

Which columns of a file are features, which describe rows, and which take no part.
"""

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
    """What :func:`standout.read` was asked for, checked."""

    missing: str | None = None
    columns: tuple[str, ...] | None = None  # features, by name or pattern with * or ?; None: every column of numbers
    drop: tuple[str, ...] = ()  # columns that take no part, by name or pattern with * or ?
    label: str | None = None
    groups: str | None = None
    ids: str | None = None
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # rows to keep: column → values, as text
    key: str | None = None  # the array inside a file that holds several
    memory: int = 256 * 10**6  # numbers that take no more than this are kept in memory; blocks take no more either
    checkpoint: Path | None = None  # where a pass is kept that may be killed

    @classmethod
    def of(
        cls,
        *,
        missing: str | None = None,
        columns: str | Iterable[str] | None = None,
        drop: str | Iterable[str] | None = None,
        label: str | None = None,
        groups: str | None = None,
        ids: str | None = None,
        where: Mapping[str, Any] | None = None,
        key: str | None = None,
        memory: str | float = "256MB",
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Options:
        """Check what was given."""
        if missing is not None and missing not in MISSING:
            raise InputError(
                f"missing={missing!r} is not possible. Use None or one of {', '.join(map(repr, MISSING))}."
            )
        return cls(
            missing=missing,
            columns=None if columns is None else _names("columns", columns),
            drop=() if drop is None else _names("drop", drop),
            label=label,
            groups=groups,
            ids=ids,
            where={column: _values(column, values) for column, values in (where or {}).items()},
            key=key,
            memory=as_bytes(memory),
            checkpoint=None if checkpoint is None else _checkpoint(checkpoint),
        )

    @property
    def roles(self) -> dict[str, str]:
        """The columns that describe rows, with the argument that names them."""
        named = {"label": self.label, "groups": self.groups, "ids": self.ids}
        chosen = {column: argument for argument, column in named.items() if column is not None}
        return chosen | {column: "where" for column in self.where if column not in chosen}

    @property
    def is_default(self) -> bool:
        """Whether nothing but memory was asked for."""
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
        raise InputError(f"memory={memory!r} is not an amount. Use bytes, or text such as '512MB' or '2GB'.")
    return int(float(found[1]) * _UNITS[found[2].lower()])


def _checkpoint(given: str | os.PathLike[str]) -> Path:
    if not isinstance(given, str | os.PathLike):
        raise InputError(f"checkpoint={given!r} is not a path. Give the name of a file, or None for no checkpoint.")
    return check_writable(given, "checkpoint")


def _names(argument: str, given: str | Iterable[str]) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"{argument}={given!r} is not possible. Give one name or a list of names.")
    return names


def _values(column: str, given: Any) -> tuple[str, ...]:
    values = list(given) if isinstance(given, list | tuple | set | frozenset) else [given]
    if not values:
        raise InputError(f"where: no value for column {column!r}. Give at least one value of it.")
    return tuple(str(value) for value in values)


@dataclass(frozen=True)
class Chosen:
    """The columns of a file, sorted by what they are for."""

    features: tuple[str, ...]
    aside: tuple[str, ...]  # columns that describe rows
    unasked: tuple[str, ...]  # those of them that were set aside because they are not numbers
    ids: str | None = None  # the column that names rows: as asked for, or by the file's own account


def choose(
    columns: Sequence[str], numeric: Collection[str], options: Options, where: str, index: Collection[str] = ()
) -> Chosen:
    """Sort the columns of the file ``where``, of which ``numeric`` hold numbers.

    ``index`` are columns that name rows by the file's own account: they are features only where ``columns=`` says
    so by name.

    Examples
    --------
    >>> choose(["id", "a", "b"], {"a", "b"}, Options(ids="id", drop=("b",)), "rows.csv")
    Chosen(features=('a',), aside=('id',), unasked=(), ids='id')
    >>> choose(["index", "a", "b"], {"index", "a", "b"}, Options(), "rows.csv", index=["index"])
    Chosen(features=('a', 'b'), aside=('index',), unasked=(), ids='index')
    """
    check_distinct(columns, where)
    roles = options.roles
    for column, argument in roles.items():
        if column not in columns:
            raise ColumnError(
                f"{where}: {argument} column {column!r} is not among its columns.{_hint(column, columns)}",
                argument, column,
            )  # fmt: skip
    dropped = _dropped(options.drop, columns, where) - set(roles)
    rows = [c for c in index if c not in dropped and c not in (options.columns or ())]
    numeric = set(numeric).difference(rows)
    if options.columns is None:
        features = [c for c in columns if c in numeric and c not in roles and c not in dropped]
    else:
        features = _asked(options.columns, columns, numeric, where, set(roles) | dropped)
    aside = [c for c in columns if c in roles or (c not in numeric and c not in dropped)]
    if not features:
        raise FeatureError(
            f"{where}: no column is left to be a feature: of {len(columns)} columns {len(numeric)} hold numbers. "
            "Check what the file holds, and what columns= and drop= leave of it."
        )
    ids = rows[0] if options.ids is None and len(rows) == 1 else options.ids
    return Chosen(tuple(features), tuple(aside), tuple(c for c in aside if c not in roles and c not in rows), ids)


def check_distinct(columns: Sequence[str], where: str) -> None:
    """Refuse names that stand more than once."""
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if twice:
        raise InputError(
            f"{where}: {len(twice)} column names stand more than once: {listed(twice)}. Rename or drop the repeated "
            "columns."
        )


def check_same(columns: Sequence[str], first: Sequence[str], options: Options, where: str, like: str) -> None:
    """Refuse a file of several that has other columns than the first, ``like``; columns that are dropped may differ."""
    ignored = {c for pattern in options.drop for c in (pattern, *_like(pattern, first))}
    known, there = frozenset(first), frozenset(columns)
    missing = [c for c in first if c not in there and c not in ignored]
    extra = [c for c in columns if c not in known] if options.columns is None else []
    if missing or extra:
        parts = [f"{listed(missing)} missing"] * bool(missing) + [f"{listed(extra)} not there"] * bool(extra)
        raise FeatureError(
            f"{where}: its columns are not those of {like}: {', '.join(parts)}. Give files with the same columns, or "
            "name those to use in columns=."
        )


def _asked(
    patterns: Iterable[str], columns: Sequence[str], numeric: Collection[str], where: str, taken: set[str]
) -> list[str]:
    """Return the features asked for, in the order asked for; patterns in the order of the file."""
    found: dict[str, None] = {}
    known = frozenset(columns)  # there may be thousands, all of them asked for by name
    for pattern in patterns:
        exact = [pattern] if pattern in known else []
        matched = exact or [c for c in _like(pattern, columns) if c in numeric]
        if not matched:
            raise FeatureError(f"{where}: no column of numbers is called {pattern!r}.{_hint(pattern, columns)}")
        text = [c for c in exact if c not in numeric]
        if text:
            raise FeatureError(f"{where}: column {pattern!r} does not hold numbers. Leave it out of columns=.")
        found |= dict.fromkeys(c for c in matched if c not in taken)
    return list(found)


def _dropped(patterns: Iterable[str], columns: Sequence[str], where: str) -> set[str]:
    found: set[str] = set()
    known = frozenset(columns)
    for pattern in patterns:
        matched = [pattern] if pattern in known else _like(pattern, columns)
        if not matched:
            raise ColumnError(
                f"{where}: drop={pattern!r} is not among its columns.{_hint(pattern, columns)}", "drop", pattern
            )
        found |= set(matched)
    return found


def _like(pattern: str, columns: Iterable[str]) -> list[str]:
    """Return the columns that a pattern means; only ``*`` and ``?`` make one, as names may hold brackets."""
    if "*" not in pattern and "?" not in pattern:
        return []
    shell = pattern.replace("[", "[[]")
    return [column for column in columns if fnmatchcase(column, shell)]


def _hint(name: str, columns: Sequence[str]) -> str:
    return f"{did_you_mean(name, columns)} Use one of its columns: {listed(columns)}."
