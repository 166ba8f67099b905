"""Handling of missing values: random draws given the observed values, the mean, or dropping rows or features.

Sources whose missing values are drawn keep the observed values, so that they can be imputed again by another model.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from standout._blas import Array
from standout.errors import InputError, StandoutWarning, listed, named_features, warn_user
from standout.io.gaussian import Blocks, Fill, Observed, estimate
from standout.io.memory import at_file, count_bad, explain_bad
from standout.io.source import ArraySource, ColumnView, RowSource, RowView, Source, block_rows_of, select_columns
from standout.io.stream import Block, Stream, TableInMemory


class FilledRows(ArraySource):
    """Imputed rows in memory; with the original rows, some of them can be imputed by another model."""

    def __init__(self, filled: Array, like: Source, raw: NDArray[Any] | None = None):
        super().__init__(filled, like.names)
        self.labels, self.groups, self.row_ids = like.labels, like.groups, like.row_ids
        self.raw, self.is_incomplete, self.imputes_means = raw, raw is not None, like.imputes_means


class IncompleteTable(TableInMemory):
    """A table with missing values, which are imputed when the rows are first read."""

    is_incomplete = True
    _filled: Array | None = None

    @property
    def array(self) -> NDArray[Any]:
        """The rows, imputed from the observed values of this table."""
        if self._filled is None:
            self._filled = _own_filling(self).rows(self.raw)
        return self._filled

    @array.setter
    def array(self, numbers: NDArray[Any]) -> None:
        self.raw = numbers  # with NaN


class IncompleteStream(Stream):
    """A stream with missing values, which are imputed during reading, by default from its own rows only."""

    is_incomplete = True
    filling: Fill | None = None
    filled_columns: Any = slice(None)

    def read_blocks(self, rows: int, columns: tuple[str, ...], mark: Any = None, seen: int = 0) -> Iterator[Block]:
        self.filling = self.filling or _own_filling(self)
        for block in super().read_blocks(rows, columns, mark, seen):
            numbers = np.array(block.numbers, dtype=np.float64)
            numbers[:, self.filled_columns] = self.filling.rows(numbers[:, self.filled_columns], seen)
            seen += len(numbers)
            yield replace(block, numbers=numbers)


def raw_blocks(source: Any) -> Iterator[NDArray[Any]]:
    """Yield the rows of an incomplete source with NaN for missing values."""
    if isinstance(source, RowView):
        yield raw_rows(source.source)[source.index]
    elif isinstance(source, ColumnView):
        for numbers in raw_blocks(source.source):
            yield numbers[:, source.index]
    elif isinstance(source, IncompleteStream):
        for block in source.open_blocks(block_rows_of(source), (), None):
            yield block.numbers
    else:
        yield source.raw


def raw_rows(source: Any) -> NDArray[Any]:
    """Return all rows of an incomplete source with NaN for missing values."""
    blocks = list(raw_blocks(source))
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


def filled_by(source: Any, filling: Fill) -> Source:
    """Return an incomplete source with missing values imputed by a given rule."""
    if isinstance(source, RowSource):
        raw = raw_rows(source)
        return FilledRows(filling.rows(raw), source, raw)
    is_view = isinstance(source, ColumnView)
    stream = copy.copy(source.source if is_view else source)
    stream.filling, stream.filled_columns = filling, source.index if is_view else slice(None)
    return select_columns(stream, source.index) if is_view else cast(Source, stream)


def _own_filling(source: Any) -> Fill:
    """Return the imputation rule from the rows of this source only."""
    own = observed(lambda: raw_blocks(source), source.n_features, str(source.path), source.names)
    if source.imputes_means:
        return Fill.at(own.mean)
    (found,) = estimate([own])
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
    _check_observed(found.empty, names, role)
    return found


def _check_observed(empty: NDArray[np.intp], names: Sequence[str] | None, role: str) -> None:
    """Raise an error for features without any observed value."""
    if len(empty):
        raise InputError(
            f"{role}: {len(empty)} feature{'s' * (len(empty) > 1)} without any value: "
            f"{listed(named_features(names, empty))}. Leave out such features in all datasets, with "
            "`standout.read(X, drop=...)`."
        )


def handle_missing(source: Any, how: str, role: str) -> Source:
    """Return the source of a file without missing values, imputed from its own rows only.

    One pass counts the missing values. Rows and values are dropped or imputed at once in memory, or in every later
    pass over a file.
    """
    is_table = isinstance(source, TableInMemory)
    count, n_rows, complete = _count(source, source.n_rows if is_table else block_rows_of(source))
    if not count.any():
        return cast(Source, source)  # unchanged, to keep random access to the file
    by_name = {source.names[i] if source.names else str(i): int(count[i]) for i in np.flatnonzero(count)}
    layout = replace(source.layout, n_rows=n_rows)
    account = replace(source.account, rows=n_rows, missing=by_name)
    index = None
    if how == "drop_rows":
        _check_any_left(complete, n_rows, "rows", "features", role)
        layout = replace(layout, n_rows=complete)
        account = replace(account, rows=complete, rows_left_out=n_rows - complete)
    elif how == "drop_features":
        index = np.flatnonzero(count == 0)
        _check_any_left(len(index), len(count), "features", "rows", role)
        names = None if source.names is None else tuple(source.names[i] for i in index)
        layout = replace(layout, names=names, n_features=len(index))
        account = replace(account, features=len(index), features_left_out=tuple(by_name))
    elif how == "mean":
        _check_observed(np.flatnonzero(count == n_rows), source.names, at_file(source, role))
        account = replace(account, values_filled=int(count.sum()))
        warn_user(
            f"{role}: `missing='mean'` filled {account.values_filled} values with the mean of their feature, which "
            "shrinks variances and correlations. Ratios are too large and p-values too small: with 40 % of one "
            "background feature missing, p is below 0.05 in 28 % of simulated fits to noise. Use `missing='auto'`.",
            StandoutWarning,
        )
    else:
        account = replace(account, values_filled=int(count.sum()), filled_by="draws")
    imputes = how in ("auto", "mean")
    result: Any
    if is_table:
        block = _changed(Block(source.array, {name: source.about(name) for name in source.aside}), how, index)
        result = (IncompleteTable if imputes else TableInMemory)(layout, block.numbers, block.about)
    else:
        result = (IncompleteStream if imputes else Stream)(layout, partial(_changed_blocks, source, how, index))
    result.handled, result.imputes_means = account, how == "mean"
    return cast(Source, result)


def _count(source: Any, rows: int) -> tuple[NDArray[np.int64], int, int]:
    """Return the number of missing values by feature, of rows, and of complete rows."""
    count = np.zeros(source.n_features, dtype=np.int64)
    n_rows = complete = 0
    for numbers in source.blocks(max(rows, 1)):
        missing = np.isnan(numbers)
        count += missing.sum(axis=0)
        n_rows += len(numbers)
        complete += int((~missing.any(axis=1)).sum())
    return count, n_rows, complete


def _check_any_left(kept: int, count: int, what: str, other: str, role: str) -> None:
    if kept == 0:
        raise InputError(
            f"{role}: each of the {count} {what} has a missing value, so `missing='drop_{what}'` leaves none. Use "
            f"`missing='auto'` or `missing='drop_{other}'`, or leave out columns that are mostly empty."
        )


def _changed_blocks(
    source: Any, how: str, index: NDArray[np.intp] | None, rows: int, columns: tuple[str, ...], mark: Any = None
) -> Iterator[Block]:
    # Progress is reported only by the new stream, not by the underlying one.
    streamed = isinstance(source, Stream)
    blocks = source.open_blocks(rows, columns, mark) if streamed else source.table_blocks(rows, columns)
    return (changed for block in blocks if len((changed := _changed(block, how, index)).numbers))


def _changed(block: Block, how: str, index: NDArray[np.intp] | None) -> Block:
    """Return a block without its incomplete rows or without features."""
    if how == "drop_rows":
        kept = ~np.isnan(block.numbers).any(axis=1)
        metadata = {name: values[kept] for name, values in block.about.items()}
        return replace(block, numbers=block.numbers[kept], about=metadata)
    return block if index is None else replace(block, numbers=block.numbers[:, index])
