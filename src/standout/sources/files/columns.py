"""Which columns of a file are features, which describe rows, and which take no part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from standout.errors import ColumnError, FeatureError, InputError, did_you_mean, listed
from standout.sources.files.options import Options


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
