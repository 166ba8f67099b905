"""Tables as sources: in memory where they fit, a stream of blocks otherwise.

Every table format supplies a :class:`Table`, whose batches of rows can be read as often as needed. The choice of rows
with ``where=``, the text of metadata columns, blocks of equal size and resumed passes are the same for all formats
and for data frames.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout.errors import FeatureWarning, InputError, StandoutWarning, did_you_mean, listed, warn_user
from standout.io.memory import FrameSource, check_names, is_missing, may_be_numbers
from standout.io.options import Options, choose
from standout.io.source import ahead, report
from standout.io.stream import Block, Layout, RowMetadata, Stream, TableInMemory

# Distinct values of a column that are remembered. Columns with more are ids, of which hardly any are equal.
_MAX_DISTINCT = 2**16
# A table is tried in memory if its estimated number of rows exceeds what fits by at most this factor.
_ESTIMATE_ERROR = 1.5
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)


@dataclass(frozen=True)
class Coded:
    """A metadata column: its distinct values as text, and the position of each row's value among them."""

    codes: NDArray[np.intp]
    values: Sequence[str | None]  # None: missing
    typed: bool = False  # the file stores numbers or booleans: 3 and 3.0 are equal
    written: bool = False  # the file stores text only: 3 and 3.0 may be equal

    @classmethod
    def of(cls, items: Iterable[Any], typed: bool = False) -> Coded:
        """Encode items of any type as text.

        Examples
        --------
        >>> Coded.of([3, None, 3]).values
        ['3', None]
        """
        positions: dict[str | None, int] = {}
        codes = np.fromiter((positions.setdefault(as_text(item), len(positions)) for item in items), dtype=np.intp)
        return cls(codes, list(positions), typed)

    def select(self, mask: NDArray[np.bool_] | None) -> Coded:
        """Return the column for the rows in ``mask`` (None: all)."""
        return self if mask is None else replace(self, codes=self.codes[mask])


def as_text(item: Any) -> str | None:
    """Return a single value as text; None if it is missing."""
    if isinstance(item, str):
        return str(item)
    if is_missing(item):
        return None
    return item.decode("utf-8", "backslashreplace") if isinstance(item, bytes) else str(item)


class Texts:
    """Decode a column so that equal values are one object in all batches: 8 bytes a row."""

    def __init__(self) -> None:
        self._distinct: dict[str | None, str | None] = {None: None}
        self.nbytes = 0

    def of(self, column: Coded) -> NDArray[Any]:
        """Return one object for each row."""
        values = np.empty(len(column.values), dtype=object)
        values[:] = [self._shared(value) for value in column.values]
        text: NDArray[Any] = values[column.codes]
        self.nbytes += text.nbytes
        return text

    def _shared(self, value: str | None) -> str | None:
        if value in self._distinct:
            return self._distinct[value]
        self.nbytes += sys.getsizeof(value)
        if len(self._distinct) < _MAX_DISTINCT:
            self._distinct[value] = value
        return value


class RowFilter:
    """Select rows by the values of metadata columns (``where=``), and report values that never occur.

    Text files may write a number differently from the request: pandas writes 1.0 for 1 in a column with missing
    values. A value that occurs exactly as requested takes precedence over such spellings.
    """

    def __init__(self, wanted: Mapping[str, tuple[str, ...]], location: str):
        self._wanted, self._location = wanted, location
        self._met: dict[str, dict[str, None]] = {column: {} for column in wanted}  # values that occur
        self._exact: dict[str, set[str]] = {column: set() for column in wanted}  # requested values that occur
        self._found: dict[str, set[str]] = {column: set() for column in wanted}  # those that occur in another spelling
        self._alike: dict[str, dict[str, str]] = {column: {} for column in wanted}  # requested → other spelling, used
        self._skipped: dict[str, dict[str, str]] = {column: {} for column in wanted}  # the same, not used
        self._kept = 0

    def mask(self, metadata: Mapping[str, Coded]) -> NDArray[np.bool_] | None:
        """Return which rows are selected; None for all."""
        mask: NDArray[np.bool_] | None = None
        for column in self._wanted:
            coded = metadata[column]
            self._exact[column].update(set(self._wanted[column]).intersection(coded.values))
            matches = np.array([self._matches(column, value, coded) for value in coded.values], dtype=bool)
            mask = matches[coded.codes] if mask is None else mask & matches[coded.codes]
        self._kept += 0 if mask is None else int(mask.sum())
        return mask

    def _matches(self, column: str, value: str | None, coded: Coded) -> bool:
        if value is None:
            return False
        if len(self._met[column]) < _MAX_DISTINCT:
            self._met[column][value] = None
        exact = self._exact[column]
        if value in exact:
            return True
        if not (coded.typed or coded.written):
            return False
        equal = {wanted for wanted in self._wanted[column] if _equal_values(wanted, value)}
        if coded.written:
            for wanted in equal:
                (self._skipped if wanted in exact else self._alike)[column].setdefault(wanted, value)
            equal -= exact
        self._found[column] |= equal
        return bool(equal)

    def state(self) -> dict[str, Any]:
        """Return the state of a pass, as JSON."""
        sets = {name: {c: sorted(v) for c, v in getattr(self, name).items()} for name in ("_found", "_exact")}
        plain = {name: getattr(self, name) for name in ("_alike", "_skipped", "_kept")}
        return {**sets, **plain, "_met": {c: list(v) for c, v in self._met.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of an interrupted pass."""
        for name in ("_found", "_exact"):
            setattr(self, name, {column: set(values) for column, values in state[name].items()})
        self._alike, self._skipped, self._kept = state["_alike"], state["_skipped"], state["_kept"]
        self._met = {column: dict.fromkeys(values) for column, values in state["_met"].items()}

    def check(self) -> None:
        """Raise an error, at the end of a pass, if a value did not occur or no row is selected."""
        for column, wanted in self._wanted.items():
            self._check_spellings(column)
            absent = [value for value in wanted if value not in self._found[column] | self._exact[column]]
            if absent:
                met = list(self._met[column])
                raise InputError(
                    f"{self._location}: where: no row has {absent[0]!r} in column {column!r}."
                    f"{did_you_mean(absent[0], met)} Use values that occur: {listed(met)}."
                )
        if self._wanted and not self._kept:
            conditions = ", ".join(f"{column} = {listed(values)}" for column, values in self._wanted.items())
            raise InputError(
                f"{self._location}: where: every value occurs, but no row meets all conditions ({conditions}). Leave "
                "one of the conditions out."
            )

    def _check_spellings(self, column: str) -> None:
        """Raise an error or warn if the file writes a requested number in several ways."""
        for wanted, value in self._alike[column].items():
            if wanted in self._exact[column]:
                raise InputError(
                    f"{self._location}: where: column {column!r} has {value!r} in some rows and {wanted!r} in later "
                    "ones; it is not clear whether both are meant. Name both in `where` if they are; otherwise rename "
                    "one of them in the file."
                )
        for wanted, value in self._skipped[column].items():
            warn_user(
                f"{self._location}: where: rows with {value!r} in column {column!r} are not selected, because "
                f"{wanted!r} occurs exactly as given. Name both in `where` if both are meant.",
                StandoutWarning,
            )


def _equal_values(one: str, other: str) -> bool:
    """Return whether two texts are the same number or boolean: 3 and 3.0, true and True."""
    if _NUMBER.fullmatch(one) and _NUMBER.fullmatch(other):
        return Decimal(one) == Decimal(other)  # float would merge neighbouring long ids
    return one.lower() == other.lower() and one.lower() in ("true", "false")


@dataclass(frozen=True)
class RowBatch:
    """Some rows as read from a file."""

    numbers: NDArray[np.float64]  # (n_rows, n_features)
    metadata: Mapping[str, Coded]
    share: float | None = None  # of the whole pass, up to the end of this batch
    position: tuple[int, ...] = ()  # where it begins, for a pass that is resumed


@dataclass(frozen=True)
class Table:
    """A table that can be read as often as needed.

    ``batches(features, metadata, position)`` starts a pass over these columns, from the ``position`` of a batch of an
    earlier pass (``()``: from the beginning).
    """

    path: Path  # a file, a directory or a pattern
    location: str  # the start of messages
    columns: tuple[str, ...]
    numeric: frozenset[str]
    batches: Callable[[tuple[str, ...], tuple[str, ...], tuple[int, ...]], Iterator[RowBatch]]
    index: tuple[str, ...] = ()  # columns of row ids, according to the file
    n_rows: int | None = None  # where the file stores it
    estimated_rows: float | None = None  # where it does not


def open_table(table: Table, options: Options) -> TableInMemory | Stream:
    """Return a table as a source: in memory if its numbers fit, otherwise a stream."""
    chosen = choose(table.columns, table.numeric, options, table.location, table.index)
    layout = Layout(
        table.path, chosen.features, len(chosen.features), chosen.aside, chosen.unasked, options.label, options.groups,
        chosen.ids, None if options.where else table.n_rows, memory=options.memory,
    )  # fmt: skip
    source: TableInMemory | Stream | None = _load(table, layout, options)
    if source is None:

        def open_blocks(rows: int, columns: tuple[str, ...], mark: Any = None) -> Iterator[Block]:
            texts = {column: Texts() for column in columns}
            return _blocks_of(_selected_rows(table, layout, options, texts, mark), rows)

        source = Stream(layout, open_blocks)
    if options.columns is None:
        warn_aside(layout)
    return source


def warn_aside(layout: Layout) -> None:
    """Warn about non-numeric columns that no argument names."""
    if layout.unasked:
        count = len(layout.unasked)
        subject = f"{count} non-numeric columns of {layout.path.name} are"
        if count == 1:
            subject = f"1 non-numeric column of {layout.path.name} is"
        warn_user(
            f"{subject} not used as features: {listed(layout.unasked)}. Name them in `label`, `groups` or `ids` of "
            "standout.read to use them, or in `drop` to leave them out.",
            FeatureWarning,
        )


def _load(table: Table, layout: Layout, options: Options) -> TableInMemory | None:
    """Read a table into memory; return None as soon as it does not fit."""
    max_rows = options.memory // (8 * layout.n_features)
    expected, error = (table.n_rows, 1.0) if table.n_rows is not None else (table.estimated_rows, _ESTIMATE_ERROR)
    if max_rows == 0 or (expected is not None and not options.where and expected > error * max_rows):
        return None
    texts = {column: Texts() for column in layout.aside}
    metadata: dict[str, list[NDArray[Any]]] = {column: [] for column in layout.aside}
    buffer = np.empty((min(max_rows, int(1.05 * (expected or 0)) + 1024), layout.n_features))
    filled = 0
    for block in _selected_rows(table, layout, options, texts):
        stop = filled + len(block.numbers)
        nbytes = 8 * stop * layout.n_features + sum(text.nbytes for text in texts.values())
        if stop > max_rows or nbytes > options.memory:
            return None
        if stop > len(buffer):
            larger = np.empty((min(max_rows, 2 * stop), layout.n_features))
            larger[:filled] = buffer[:filled]
            buffer = larger
        buffer[filled:stop] = block.numbers
        filled = stop
        for column, values in block.about.items():
            metadata[column].append(values)
        report(layout.path.name, filled, block.share)
    if filled == 0:
        raise InputError(f"{table.location}: it has no rows. Give a table with rows.")
    # Pages that were never written take no memory: copy only if most of the buffer is unused.
    numbers = buffer[:filled] if 2 * filled > len(buffer) else buffer[:filled].copy()
    return TableInMemory(layout, numbers, {column: np.concatenate(parts) for column, parts in metadata.items()})


def _selected_rows(
    table: Table, layout: Layout, options: Options, texts: Mapping[str, Texts], mark: Any = None
) -> Iterator[Block]:
    """Make one pass over the rows that ``where=`` selects, with the text of some columns."""
    assert layout.names is not None
    row_filter = RowFilter(options.where, table.location)
    position, skip = (), 0
    if mark is not None:
        position, skip = tuple(mark["place"]), mark["rows"]
        row_filter.restore(mark["where"])
    for batch in ahead(table.batches(layout.names, tuple(dict.fromkeys((*texts, *options.where))), position)):
        mask = row_filter.mask(batch.metadata)
        metadata: RowMetadata = {name: text.of(batch.metadata[name].select(mask)) for name, text in texts.items()}
        numbers = batch.numbers if mask is None else batch.numbers[mask]
        done = min(skip, len(numbers))
        skip -= done
        after = partial(_mark_after, row_filter, batch.position, done)
        yield _slice(Block(numbers, metadata, batch.share, after), done, len(numbers))
    row_filter.check()


def _mark_after(row_filter: RowFilter, position: tuple[int, ...], done: int, rows: int) -> dict[str, Any]:
    """Return where to resume after ``rows`` rows of a batch, ``done`` of which an earlier pass had used."""
    return {"place": position, "rows": done + rows, "where": row_filter.state()}


def _blocks_of(batches: Iterable[Block], rows: int) -> Iterator[Block]:
    """Split and join batches into blocks of exactly ``rows`` rows, so that results do not depend on the batches."""
    parts: list[Block] = []
    count = 0
    for batch in batches:
        start = 0
        while start < len(batch.numbers):
            part = _slice(batch, start, start + rows - count)
            count, start = count + len(part.numbers), start + len(part.numbers)
            parts.append(part if batch.after is None else replace(part, after=partial(batch.after, start)))
            if count == rows:
                yield _join(parts)
                parts, count = [], 0
    if parts:
        yield _join(parts)


def _slice(block: Block, start: int, stop: int) -> Block:
    metadata = {column: values[start:stop] for column, values in block.about.items()}
    return Block(block.numbers[start:stop], metadata, block.share, block.after)


def _join(parts: list[Block]) -> Block:
    if len(parts) == 1:
        return parts[0]
    metadata = {column: np.concatenate([part.about[column] for part in parts]) for column in parts[0].about}
    return Block(np.concatenate([part.numbers for part in parts]), metadata, parts[-1].share, parts[-1].after)


def open_frame(frame: Any, options: Options, role: str) -> TableInMemory:
    """Return the source of a data frame (any that narwhals supports)."""
    import narwhals.stable.v2 as nw

    given = list(getattr(frame, "column_names", None) or frame.columns)  # pyarrow's ``columns`` are the data
    check_names(given, role)
    table = nw.from_native(frame, eager_only=True)
    names = [str(name) for name in given]  # column names may be numbers
    types = dict(zip(names, table.schema.values(), strict=True))
    numeric = {str(name) for name, kind in table.schema.items() if may_be_numbers(kind, table, name)}
    chosen = choose(names, numeric, options, role)
    position = {name: i for i, name in enumerate(names)}
    metadata = {
        name: Coded.of(table[:, position[name]].to_list(), types[name].is_numeric() or types[name] == nw.Boolean)
        for name in chosen.aside
    }
    row_filter = RowFilter(options.where, role)
    mask = row_filter.mask(metadata)
    row_filter.check()
    numbers = FrameSource(table[:, [position[name] for name in chosen.features]], role).rows(0, table.shape[0])
    if len(numbers) == 0:
        raise InputError(f"{role}: it has no rows. Give a table with rows.")
    layout = Layout(
        Path(role), chosen.features if isinstance(given[0], str) else None, len(chosen.features), chosen.aside,
        chosen.unasked, options.label, options.groups, options.ids,
    )  # fmt: skip
    if options.columns is None:
        warn_aside(layout)
    texts = {column: Texts().of(values.select(mask)) for column, values in metadata.items()}
    return TableInMemory(layout, numbers if mask is None else numbers[mask], texts)
