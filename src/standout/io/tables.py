"""What tables share, whatever they come from: pieces of rows become a table in memory or a stream of blocks.

Data frames in memory, read like files: columns that describe rows, rows to keep.

Which rows and columns of a matrix are used, by name and by what describes them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout.errors import ColumnError, FeatureWarning, InputError, StandoutWarning, did_you_mean, listed, warn_user
from standout.io.containers import Column
from standout.io.memory import NUMBERS, FrameSource, check_names, is_missing, may_be_numbers
from standout.io.options import Options, choose
from standout.io.source import ahead, report
from standout.io.stream import Block, Layout, RowMetadata, Stream, TableInMemory

# Equal text is kept once, up to this many distinct values; beyond, they are ids and hardly any are equal.
_MOST_SHARED = 2**16
# A guess of the number of rows that is this much too high still lets the file be tried in memory.
_DOUBT = 1.5
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)


@dataclass(frozen=True)
class Coded:
    """A column that describes rows: the distinct values as text, and for each row the place of its value."""

    codes: NDArray[np.intp]
    values: Sequence[str | None]  # None: missing
    typed: bool = False  # numbers or truth values in the file, where 3 and 3.0 mean the same
    written: bool = False  # text of a file that has nothing else: 3 and 3.0 may mean the same

    @classmethod
    def of(cls, items: Iterable[Any], typed: bool = False) -> Coded:
        """Write items of any kind as text.

        Examples
        --------
        >>> Coded.of([3, None, 3]).values
        ['3', None]
        """
        places: dict[str | None, int] = {}
        codes = np.fromiter((places.setdefault(as_text(item), len(places)) for item in items), dtype=np.intp)
        return cls(codes, list(places), typed)

    def taken(self, kept: NDArray[np.bool_] | None) -> Coded:
        """Return the column for the rows that are kept."""
        return self if kept is None else replace(self, codes=self.codes[kept])


@dataclass(frozen=True)
class Piece:
    """Some rows as a file gives them."""

    numbers: NDArray[np.float64]  # (n_rows, n_features)
    about: Mapping[str, Coded]
    share: float | None = None  # of all that is to be read, up to the end of this piece
    place: tuple[int, ...] = ()  # where it begins, for a later pass that is to begin there


@dataclass(frozen=True)
class Table:
    """A table that can be read as often as needed.

    ``pieces(features, about, place)`` starts a pass that gives these columns as numbers and those as text, from
    the ``place`` of a piece of an earlier pass on (``()``: from the beginning).
    """

    path: Path  # what was asked for: a file, a directory, a pattern
    where: str  # the same, as messages begin
    columns: tuple[str, ...]
    numeric: frozenset[str]
    pieces: Callable[[tuple[str, ...], tuple[str, ...], tuple[int, ...]], Iterator[Piece]]
    index: tuple[str, ...] = ()  # columns that name rows, by the file's own account
    n_rows: int | None = None  # where the file says it
    likely_rows: float | None = None  # a guess, where it does not


def open_table(table: Table, options: Options) -> TableInMemory | Stream:
    """Return a table as a source: kept where its numbers fit the memory asked for, else a stream."""
    chosen = choose(table.columns, table.numeric, options, table.where, table.index)
    layout = Layout(
        table.path, chosen.features, len(chosen.features), chosen.aside, chosen.unasked, options.label, options.groups,
        chosen.ids, None if options.where else table.n_rows, memory=options.memory,
    )  # fmt: skip
    source: TableInMemory | Stream | None = _kept(table, layout, options)
    if source is None:

        def open_blocks(rows: int, columns: tuple[str, ...], mark: Any = None) -> Iterator[Block]:
            return _blocks(_wanted(table, layout, options, {column: Texts() for column in columns}, mark), rows)

        source = Stream(layout, open_blocks)
    if options.columns is None:
        warn_aside(layout)
    return source


def warn_aside(layout: Layout) -> None:
    """Tell which columns are set aside though nobody said so."""
    if layout.unasked:
        count = len(layout.unasked)
        columns, are = ("columns", "are") if count > 1 else ("column", "is")
        warn_user(
            f"{count} {columns} of {layout.path.name} {are} not numbers and {are} set aside as labels: "
            f"{listed(layout.unasked)}. Name them in label=, groups= or ids= of standout.read to use them, or in drop= "
            "to leave them out.",
            FeatureWarning,
        )


def as_text(item: Any) -> str | None:
    """Write a single value as text; None where it is missing."""
    if isinstance(item, str):
        return str(item)
    if is_missing(item):
        return None
    return item.decode("utf-8", "backslashreplace") if isinstance(item, bytes) else str(item)


class Texts:
    """Text of a column in which equal values are one object, whatever piece they come from: 8 bytes a row."""

    def __init__(self) -> None:
        self._known: dict[str | None, str | None] = {None: None}
        self.nbytes = 0

    def of(self, column: Coded) -> NDArray[Any]:
        """Return one object for each row."""
        values = np.empty(len(column.values), dtype=object)
        values[:] = [self._once(value) for value in column.values]
        text: NDArray[Any] = values[column.codes]
        self.nbytes += text.nbytes
        return text

    def _once(self, value: str | None) -> str | None:
        if value in self._known:
            return self._known[value]
        self.nbytes += sys.getsizeof(value)
        if len(self._known) < _MOST_SHARED:
            self._known[value] = value
        return value


class Where:
    """The rows to keep; what comes by is remembered, so that a value which never does is told.

    In a file of text, numbers and truth values may be written in another way than they are asked for: pandas writes
    1.0 for 1 where some value is missing. What stands there as it was asked for goes first: nothing else is meant.
    """

    def __init__(self, wanted: Mapping[str, tuple[str, ...]], where: str):
        self._wanted, self._where = wanted, where
        self._met: dict[str, dict[str, None]] = {column: {} for column in wanted}
        self._found: dict[str, set[str]] = {column: set() for column in wanted}
        self._exact: dict[str, set[str]] = {column: set() for column in wanted}
        self._alike: dict[str, dict[str, str]] = {column: {} for column in wanted}  # asked for → what was taken for it
        self._skipped: dict[str, dict[str, str]] = {column: {} for column in wanted}  # asked for → what was not
        self._kept = 0

    def mask(self, about: Mapping[str, Coded]) -> NDArray[np.bool_] | None:
        """Return which rows are kept; None for all."""
        mask: NDArray[np.bool_] | None = None
        for column in self._wanted:
            coded = about[column]
            self._exact[column].update(set(self._wanted[column]).intersection(coded.values))
            fits = np.array([self._fits(column, value, coded) for value in coded.values], dtype=bool)
            mask = fits[coded.codes] if mask is None else mask & fits[coded.codes]
        self._kept += 0 if mask is None else int(mask.sum())
        return mask

    def _fits(self, column: str, value: str | None, coded: Coded) -> bool:
        if value is None:
            return False
        if len(self._met[column]) < _MOST_SHARED:
            self._met[column][value] = None
        if value in self._exact[column]:
            return True
        if not (coded.typed or coded.written):
            return False
        same = {given for given in self._wanted[column] if _alike(given, value)}
        if coded.written:
            for given in same:
                told = self._skipped if given in self._exact[column] else self._alike
                told[column].setdefault(given, value)
            same -= self._exact[column]
        self._found[column] |= same
        return bool(same)

    def state(self) -> dict[str, Any]:
        """Return what came by so far, as JSON."""
        sets = {name: {c: sorted(v) for c, v in getattr(self, name).items()} for name in ("_found", "_exact")}
        kept = {name: getattr(self, name) for name in ("_alike", "_skipped", "_kept")}
        return {**sets, **kept, "_met": {c: list(v) for c, v in self._met.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what came by in an earlier pass, up to where this one begins."""
        for name in ("_found", "_exact"):
            setattr(self, name, {column: set(values) for column, values in state[name].items()})
        self._alike, self._skipped, self._kept = state["_alike"], state["_skipped"], state["_kept"]
        self._met = {column: dict.fromkeys(values) for column, values in state["_met"].items()}

    def check(self) -> None:
        """Refuse, at the end of a pass, values that did not occur, and a choice that leaves no row."""
        for column, wanted in self._wanted.items():
            self._check_written(column)
            unknown = [value for value in wanted if value not in self._found[column] | self._exact[column]]
            if unknown:
                met = list(self._met[column])
                raise InputError(
                    f"{self._where}: where: no row has {unknown[0]!r} in column {column!r}."
                    f"{did_you_mean(unknown[0], met)} Use values that occur: {listed(met)}."
                )
        if self._wanted and not self._kept:
            raise InputError(
                f"{self._where}: where: each of the values occurs, but no row has them all "
                f"({', '.join(f'{column} = {listed(values)}' for column, values in self._wanted.items())}). "
                "Leave one of the conditions out."
            )

    def _check_written(self, column: str) -> None:
        """Tell of a number that the file writes in several ways, as only those written as asked for are meant."""
        for given, value in self._alike[column].items():
            if given in self._exact[column]:
                raise InputError(
                    f"{self._where}: where: column {column!r} has {value!r} in some rows and {given!r} in later ones, "
                    f"and it is not clear whether both are meant. Name both in where= if they are, or else rename one "
                    "of them in the file."
                )
        for given, value in self._skipped[column].items():
            warn_user(
                f"{self._where}: where: rows with {value!r} in column {column!r} are not kept, as {given!r} occurs as "
                "written. Name both in where= if both are meant.",
                StandoutWarning,
            )


def _alike(one: str, other: str) -> bool:
    """Tell whether two texts are the same number or truth value: 3 and 3.0, true and True."""
    if _NUMBER.fullmatch(one) and _NUMBER.fullmatch(other):
        return Decimal(one) == Decimal(other)  # not float, which takes neighbouring long ids for one
    return one.lower() == other.lower() and one.lower() in ("true", "false")


def _wanted(
    table: Table, layout: Layout, options: Options, texts: Mapping[str, Texts], mark: Any = None
) -> Iterator[Block]:
    """Make one pass over the rows that are wanted, with the text of some columns."""
    assert layout.names is not None
    where = Where(options.where, table.where)
    place, left = (), 0
    if mark is not None:
        place, left = tuple(mark["place"]), mark["rows"]
        where.restore(mark["where"])
    for piece in ahead(table.pieces(layout.names, tuple(dict.fromkeys((*texts, *options.where))), place)):
        kept = where.mask(piece.about)
        about: RowMetadata = {column: text.of(piece.about[column].taken(kept)) for column, text in texts.items()}
        numbers = piece.numbers if kept is None else piece.numbers[kept]
        done = min(left, len(numbers))
        left -= done
        yield _cut(Block(numbers, about, piece.share, partial(_mark, where, piece.place, done)), done, len(numbers))
    where.check()


def _mark(where: Where, place: tuple[int, ...], done: int, rows: int) -> dict[str, Any]:
    """Say where a pass has to begin to go on after ``rows`` more of a piece, of which ``done`` were done before."""
    return {"place": place, "rows": done + rows, "where": where.state()}


def _blocks(pieces: Iterable[Block], rows: int) -> Iterator[Block]:
    """Cut and join pieces to blocks of exactly ``rows`` rows, so that it does not matter how a file is divided."""
    held: list[Block] = []
    count = 0
    for piece in pieces:
        start = 0
        while start < len(piece.numbers):
            part = _cut(piece, start, start + rows - count)
            count, start = count + len(part.numbers), start + len(part.numbers)
            held.append(part if piece.after is None else replace(part, after=partial(piece.after, start)))
            if count == rows:
                yield _joined(held)
                held, count = [], 0
    if held:
        yield _joined(held)


def _cut(block: Block, start: int, stop: int) -> Block:
    about = {column: values[start:stop] for column, values in block.about.items()}
    return Block(block.numbers[start:stop], about, block.share, block.after)


def _joined(parts: list[Block]) -> Block:
    if len(parts) == 1:
        return parts[0]
    about = {column: np.concatenate([part.about[column] for part in parts]) for column in parts[0].about}
    return Block(np.concatenate([part.numbers for part in parts]), about, parts[-1].share, parts[-1].after)


def _kept(table: Table, layout: Layout, options: Options) -> TableInMemory | None:
    """Read a table into memory; None as soon as it turns out not to fit."""
    most = options.memory // (8 * layout.n_features)
    likely = table.n_rows if table.n_rows is not None else table.likely_rows
    doubt = 1.0 if table.n_rows is not None else _DOUBT
    if most == 0 or (likely is not None and not options.where and likely > doubt * most):
        return None
    texts = {column: Texts() for column in layout.aside}
    about: dict[str, list[NDArray[Any]]] = {column: [] for column in layout.aside}
    room = np.empty((min(most, int(1.05 * (likely or 0)) + 1024), layout.n_features))
    filled = 0
    for block in _wanted(table, layout, options, texts):
        stop = filled + len(block.numbers)
        if stop > most or 8 * stop * layout.n_features + sum(text.nbytes for text in texts.values()) > options.memory:
            return None
        if stop > len(room):
            room = _grown(room, filled, min(most, 2 * stop))
        room[filled:stop] = block.numbers
        filled = stop
        for column, values in block.about.items():
            about[column].append(values)
        report(layout.path.name, filled, block.share)
    if filled == 0:
        raise InputError(f"{table.where}: it holds no rows. Give a table with rows.")
    # What was never written to takes no memory: a copy is only worth it where most of the room is left over.
    numbers = room[:filled] if 2 * filled > len(room) else room[:filled].copy()
    return TableInMemory(layout, numbers, {column: np.concatenate(parts) for column, parts in about.items()})


def _grown(room: NDArray[np.float64], filled: int, rows: int) -> NDArray[np.float64]:
    larger = np.empty((rows, room.shape[1]))
    larger[:filled] = room[:filled]
    return larger


def open_frame(frame: Any, options: Options, role: str) -> TableInMemory:
    """Return the source of a data frame (pandas, polars, any that narwhals knows)."""
    import narwhals.stable.v2 as nw

    given = list(getattr(frame, "column_names", None) or frame.columns)  # pyarrow's columns are the data
    check_names(given, role)
    table = nw.from_native(frame, eager_only=True)
    # Columns may be numbered; in messages and options they are called by their number.
    names = [str(name) for name in given]
    kinds = dict(zip(names, table.schema.values(), strict=True))
    numeric = {str(name) for name, kind in table.schema.items() if may_be_numbers(kind, table, name)}
    chosen = choose(names, numeric, options, role)
    place = {name: i for i, name in enumerate(names)}

    def coded(column: str) -> Coded:
        kind = kinds[column]
        return Coded.of(table[:, place[column]].to_list(), typed=kind.is_numeric() or kind == nw.Boolean)

    where = Where(options.where, role)
    about = {column: coded(column) for column in chosen.aside}
    kept = where.mask(about)
    where.check()
    numbers = FrameSource(table[:, [place[name] for name in chosen.features]], role).rows(0, table.shape[0])
    if len(numbers) == 0:
        raise InputError(f"{role}: it holds no rows. Give a table with rows.")
    layout = Layout(
        Path(role), chosen.features if isinstance(given[0], str) else None, len(chosen.features), chosen.aside,
        chosen.unasked, options.label, options.groups, options.ids,
    )  # fmt: skip
    if options.columns is None:
        warn_aside(layout)
    text = {column: Texts().of(values.taken(kept)) for column, values in about.items()}
    return TableInMemory(layout, numbers if kept is None else numbers[kept], text)


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
