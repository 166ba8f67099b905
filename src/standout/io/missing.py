"""Handling of missing values: random draws given the observed values, the mean, or dropping rows or features.

Sources whose missing values are drawn keep the observed values, so that they can be imputed again by another model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from standout._blas import Array
from standout.errors import InputError, StandoutWarning, listed, named_features, warn_user
from standout.io.gaussian import Blocks, Observed, estimate
from standout.io.memory import at_file, count_bad, explain_bad
from standout.io.source import ArraySource, ColumnView, RowSource, RowView, Source, block_rows_of, select_columns
from standout.io.stream import Block, Layout, ReadSummary, RowMetadata, Stream, TableInMemory


class Filling(Protocol):
    """Rule for imputing missing values."""

    def rows(self, numbers: NDArray[Any], start: int = 0) -> Array:
        """Return rows with their missing values filled in; ``start`` is the number of rows before them."""
        ...

    def digest(self) -> str:
        """Return a digest that identifies the imputation rule."""
        ...


@dataclass(frozen=True)
class AtMean:
    """Imputation by given means."""

    mean: Array

    def rows(self, numbers: NDArray[Any], start: int = 0) -> Array:  # noqa: ARG002
        """Return rows with missing values replaced by the means."""
        return np.where(np.isnan(numbers), self.mean, numbers)

    def digest(self) -> str:
        """Return a digest of the means."""
        return self.mean.tobytes().hex()


def own_filling(blocks: Blocks, n_features: int, role: str, names: Sequence[str] | None) -> Filling:
    """Return the imputation rule from a model of these rows only."""
    (found,) = estimate([observed(blocks, n_features, role, names)])
    assert found is not None
    return found


def observed(
    blocks: Blocks,
    n_features: int,
    role: str,
    names: Sequence[str] | None,
    place: int = 0,
    weights: Array | None = None,
) -> Observed:
    """Return the observed part of rows with missing values; raise an error for infinite values and empty features."""
    found = Observed(blocks, n_features, place, weights)
    if not np.isfinite(found.variance).all():
        bad = count_bad(blocks(), n_features)
        raise explain_bad(replace(bad, nan=np.zeros_like(bad.nan)), names, role)
    check_seen(found.empty, names, role)
    return found


def check_seen(empty: NDArray[np.intp], names: Sequence[str] | None, role: str) -> None:
    """Raise an error for features without any observed value."""
    if len(empty):
        holds, them = ("feature holds", "it") if len(empty) == 1 else ("features hold", "them")
        raise InputError(
            f"{role}: {len(empty)} {holds} no value at all: {listed(named_features(names, empty))}. Leave {them} out "
            "of all datasets, with `standout.read(X, drop=...)`."
        )


class Incomplete:
    """Mixin for a source whose missing values are imputed by random draws."""

    is_incomplete = True

    def raw_blocks(self) -> Iterator[NDArray[Any]]:
        """Yield the rows with NaN for missing values."""
        raise NotImplementedError


class FilledRows(ArraySource):
    """Rows in memory with imputed missing values."""

    def __init__(self, filled: Array, like: Source):
        super().__init__(filled, like.names)
        self.labels, self.groups, self.row_ids = like.labels, like.groups, like.row_ids


class RefillableRows(Incomplete, FilledRows):
    """Imputed rows with the original rows, so that some of them can be imputed by another model."""

    def __init__(self, raw: NDArray[Any], filled: Array, like: Source):
        super().__init__(filled, like)
        self.raw = raw

    def raw_blocks(self) -> Iterator[NDArray[Any]]:
        """Yield the rows with NaN for missing values."""
        yield self.raw


def raw_blocks(source: Any) -> Iterator[NDArray[Any]]:
    """Yield the rows of an incomplete source with NaN for missing values."""
    if isinstance(source, RowView):
        yield raw_rows(source.source)[source.index]
    elif isinstance(source, ColumnView):
        for block in raw_blocks(source.source):
            yield block[:, source.index]
    else:
        yield from source.raw_blocks()


def raw_rows(source: Any) -> NDArray[Any]:
    """Return all rows of an incomplete source with NaN for missing values."""
    blocks = list(raw_blocks(source))
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


def filled_by(source: Any, filling: Filling) -> Source:
    """Return an incomplete source with missing values imputed by a given rule."""
    columns: list[NDArray[np.intp]] = []
    inner = source
    while isinstance(inner, ColumnView):
        columns.insert(0, inner.index)
        inner = inner.source
    if isinstance(inner, RowSource):
        raw = raw_rows(source)
        return RefillableRows(raw, filling.rows(raw), source)
    stream = copy.copy(inner)
    stream.filling, chosen = filling, np.arange(inner.n_features)
    for index in columns:
        chosen = chosen[index]
    stream.filled_columns = chosen if columns else None
    found: Source = stream
    for index in columns:
        found = select_columns(found, index)
    return found


def handle_missing(source: Any, how: str, role: str) -> Source:
    """Return the source of a file without missing values, imputed from its own rows only."""
    if isinstance(source, TableInMemory):
        return _in_memory(source, how, role)
    # A cast, because the row metadata of a stream are read-only.
    return cast(Source, _streamed(source, how, role))


def _in_memory(source: TableInMemory, how: str, role: str) -> TableInMemory:
    numbers = source.array
    gone = _missing(numbers)
    count = gone.sum(axis=0)
    account = replace(source.account, missing=_by_name(count, source))
    if not count.any():
        return source
    if how == "drop_rows":
        kept = ~gone.any(axis=1)
        _check_left(int(kept.sum()), source.n_rows, role)
        about = {name: source.about(name)[kept] for name in source.aside}
        account = replace(account, rows=int(kept.sum()), rows_left_out=int((~kept).sum()))
        return TableInMemory(source.layout, numbers[kept], about, account)
    about = {name: source.about(name) for name in source.aside}
    if how == "drop_features":
        index = _left_features(count, source, role)
        return TableInMemory(_narrowed(source, index), numbers[:, index], about, _without(account, count, source))
    account = replace(account, values_filled=int(count.sum()))
    if how == "auto":
        return IncompleteTable(source.layout, numbers, about, replace(account, filled_by="draws"))
    filled = np.array(numbers, dtype=np.float64)
    total = np.where(gone, 0.0, numbers).sum(axis=0, dtype=np.float64)
    means = _means(total, source.n_rows - count, source, role)
    _warn_of_means(account, role)
    filled[gone] = np.broadcast_to(means, filled.shape)[gone]
    return TableInMemory(source.layout, filled, about, account)


class _Handled(Stream):
    """A stream whose missing values are handled while reading, with a summary."""

    def __init__(self, source: Any, layout: Layout, change: Callable[[Block], Block], account: ReadSummary):
        super().__init__(layout, self._changed)
        self._source, self._change, self._account = source, change, account

    @property
    def account(self) -> ReadSummary:
        """Summary of how the file was read."""
        return self._account

    def _changed(self, rows: int, columns: tuple[str, ...], mark: Any = None) -> Iterator[Block]:
        # Progress is reported only by this stream, not by the underlying one.
        streamed = isinstance(self._source, Stream)
        blocks = self._source.open_blocks(rows, columns, mark) if streamed else self._source.table_blocks(rows, columns)
        for block in map(self._change, blocks):
            if len(block.numbers):
                yield block


class IncompleteTable(Incomplete, TableInMemory):
    """A table with missing values, which are drawn when the rows are first read."""

    _filled: Array | None = None

    @property
    def array(self) -> NDArray[Any]:
        """The rows, imputed from the observed values of this table."""
        if self._filled is None:
            self._filled = own_filling(self.raw_blocks, self.n_features, str(self.path), self.names).rows(self.raw)
        return self._filled

    @array.setter
    def array(self, numbers: NDArray[Any]) -> None:
        self.raw = numbers  # with NaN

    def raw_blocks(self) -> Iterator[NDArray[Any]]:
        """Yield the rows with NaN."""
        yield self.raw


class IncompleteStream(Incomplete, _Handled):
    """A stream with missing values, which are drawn during reading, by default from its own rows only."""

    filling: Filling | None = None
    filled_columns: NDArray[np.intp] | None = None  # the imputed columns; None: all

    def raw_blocks(self) -> Iterator[NDArray[Any]]:
        """Yield the rows with NaN."""
        for block in self._changed(block_rows_of(self), ()):
            yield block.numbers

    def _pass(self, rows: int, columns: tuple[str, ...], mark: Any = None, seen: int = 0) -> Iterator[Block]:
        if self.filling is None:
            self.filling = own_filling(self.raw_blocks, self.n_features, str(self.path), self.names)
        chosen = slice(None) if self.filled_columns is None else self.filled_columns
        for block in super()._pass(rows, columns, mark, seen):
            numbers = np.array(block.numbers, dtype=np.float64)
            numbers[:, chosen] = self.filling.rows(numbers[:, chosen], seen)
            seen += len(numbers)
            yield replace(block, numbers=numbers)


@dataclass(frozen=True)
class _Counted:
    """Counts of missing values in a stream."""

    count: NDArray[np.int64]  # missing values, by feature
    total: Array  # sum of the observed values
    n_rows: int
    whole: int  # rows without a missing value


def _counted(source: Any) -> _Counted:
    count = np.zeros(source.n_features, dtype=np.int64)
    total = np.zeros(source.n_features)
    n_rows = whole = 0
    for numbers in source.blocks(block_rows_of(source)):
        gone = _missing(numbers)
        count += gone.sum(axis=0)
        total += np.where(gone, 0.0, numbers).sum(axis=0, dtype=np.float64)
        n_rows += len(numbers)
        whole += int((~gone.any(axis=1)).sum())
    return _Counted(count, total, n_rows, whole)


def _streamed(source: Any, how: str, role: str) -> Any:
    """Count missing values and compute means in one pass; drop or impute during later passes."""
    found = _counted(source)
    if not found.count.any():
        return source  # unchanged, to keep random access to the file
    account = replace(source.account, rows=found.n_rows, missing=_by_name(found.count, source))
    layout = replace(source.layout, n_rows=found.n_rows)
    if how == "drop_rows":
        _check_left(found.whole, found.n_rows, role)
        layout = replace(layout, n_rows=found.whole)
        account = replace(account, rows=found.whole, rows_left_out=found.n_rows - found.whole)
        return _Handled(source, layout, _drop_rows, account)
    if how == "drop_features":
        index = _left_features(found.count, source, role)
        layout = replace(_narrowed(source, index), n_rows=found.n_rows)
        account = _without(account, found.count, source)
        return _Handled(source, layout, lambda block: replace(block, numbers=block.numbers[:, index]), account)
    account = replace(account, values_filled=int(found.count.sum()))
    if how == "auto":
        return IncompleteStream(source, layout, lambda block: block, replace(account, filled_by="draws"))
    means = _means(found.total, found.n_rows - found.count, source, role)
    _warn_of_means(account, role)

    def fill(block: Block) -> Block:
        return replace(block, numbers=np.where(_missing(block.numbers), means, block.numbers))

    return _Handled(source, layout, fill, account)


def _drop_rows(block: Block) -> Block:
    kept = ~_missing(block.numbers).any(axis=1)
    about: RowMetadata = {name: values[kept] for name, values in block.about.items()}
    return replace(block, numbers=block.numbers[kept], about=about)


def _missing(numbers: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isnan(numbers) if numbers.dtype.kind == "f" else np.zeros(numbers.shape, dtype=bool)


def _by_name(count: NDArray[np.int64], source: Any) -> dict[str, int]:
    return {_name(source, int(i)): int(count[i]) for i in np.flatnonzero(count)}


def _name(source: Any, position: int) -> str:
    return source.names[position] if source.names is not None else str(position)


def _check_left(kept: int, n_rows: int, role: str) -> None:
    if kept == 0:
        raise InputError(
            f"{role}: each of the {n_rows} rows has a missing value, so `missing='drop_rows'` leaves none. Use "
            "`missing='auto'` or `missing='drop_features'`, or leave out the columns that are mostly empty."
        )


def _left_features(count: NDArray[np.int64], source: Any, role: str) -> NDArray[np.intp]:
    index = np.flatnonzero(count == 0)
    if len(index) == 0:
        raise InputError(
            f"{role}: each of the {source.n_features} features has a missing value, so `missing='drop_features'` "
            "leaves none. Use `missing='auto'` or `missing='drop_rows'`."
        )
    return index


def _narrowed(source: Any, index: NDArray[np.intp]) -> Any:
    names = None if source.names is None else tuple(source.names[i] for i in index)
    return replace(source.layout, names=names, n_features=len(index))


def _without(account: ReadSummary, count: NDArray[np.int64], source: Any) -> ReadSummary:
    lost = tuple(_name(source, int(i)) for i in np.flatnonzero(count))
    return replace(account, features=source.n_features - len(lost), features_left_out=lost)


def _means(total: Array, seen: NDArray[np.int64], source: Any, role: str) -> Array:
    check_seen(np.flatnonzero(seen == 0), source.names, at_file(source, role))
    return np.asarray(total / seen)


def _warn_of_means(account: ReadSummary, role: str) -> None:
    """Warn that p-values are not valid."""
    warn_user(
        f"{role}: `missing='mean'` filled {account.values_filled} values with the mean of their feature, which shrinks "
        "variances and correlations. Ratios are too large and p-values too small: with 40 % of one background feature "
        "missing, p is below 0.05 in 28 % of simulated fits to noise. Use `missing='auto'`.",
        StandoutWarning,
    )
