"""Missing values: draw them from what is observed, fill in the mean, or leave rows or features out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from standout.blas import Array
from standout.errors import InputError, StandoutWarning, warn_user
from standout.sources.files.source import About, Account, Block, Layout, Stream, TableInMemory
from standout.sources.incomplete import Filling, Incomplete, check_seen, own_filling
from standout.sources.locate import at_file
from standout.sources.source import Source, block_rows_of


def handle_missing(source: Any, how: str, role: str) -> Source:
    """Return a file's source without missing values; each dataset by itself, from its own rows."""
    if isinstance(source, TableInMemory):
        return _in_memory(source, how, role)
    # A cast, because what a stream says about its rows is read-only.
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
    """A stream whose missing values are handled on the way, with an account of it."""

    def __init__(self, source: Any, layout: Layout, change: Callable[[Block], Block], account: Account):
        super().__init__(layout, self._changed)
        self._source, self._change, self._account = source, change, account

    @property
    def account(self) -> Account:
        """What reading did."""
        return self._account

    def _changed(self, rows: int, columns: tuple[str, ...], mark: Any = None) -> Iterator[Block]:
        # Progress is reported once: by this stream, not by the one it reads.
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
        """The rows, filled from what is observed in this table."""
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
    """A stream with missing values, which are drawn while it is read; by itself, from its own rows."""

    filling: Filling | None = None
    filled_columns: NDArray[np.intp] | None = None  # the columns that are filled; None: all

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
    """What is missing in a stream."""

    count: NDArray[np.int64]  # missing values, by feature
    total: Array  # sum of the others
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
    """Count missing values (and means) in one pass; then leave out or fill in while passing."""
    found = _counted(source)
    if not found.count.any():
        return source  # as it is: a file with random access keeps it
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
    about: About = {name: values[kept] for name, values in block.about.items()}
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
            f"{role}: each of the {n_rows} rows has a missing value, so missing='drop_rows' leaves none. Use "
            "missing='auto' or missing='drop_features', or leave out the columns that are mostly empty."
        )


def _left_features(count: NDArray[np.int64], source: Any, role: str) -> NDArray[np.intp]:
    index = np.flatnonzero(count == 0)
    if len(index) == 0:
        raise InputError(
            f"{role}: each of the {source.n_features} features has a missing value, so missing='drop_features' leaves "
            "none. Use missing='auto' or missing='drop_rows'."
        )
    return index


def _narrowed(source: Any, index: NDArray[np.intp]) -> Any:
    names = None if source.names is None else tuple(source.names[i] for i in index)
    return replace(source.layout, names=names, n_features=len(index))


def _without(account: Account, count: NDArray[np.int64], source: Any) -> Account:
    lost = tuple(_name(source, int(i)) for i in np.flatnonzero(count))
    return replace(account, features=source.n_features - len(lost), features_left_out=lost)


def _means(total: Array, seen: NDArray[np.int64], source: Any, role: str) -> Array:
    check_seen(np.flatnonzero(seen == 0), source.names, at_file(source, role))
    return np.asarray(total / seen)


def _warn_of_means(account: Account, role: str) -> None:
    """Warn that p-values do not hold."""
    warn_user(
        f"{role}: missing='mean' filled {account.values_filled} values with the mean of their feature, which shrinks "
        "variances and correlations. Ratios are too large and p-values too small: with 40 % of one background feature "
        "missing, p is below 0.05 in 28 % of simulated fits to noise. Use missing='auto'.",
        StandoutWarning,
    )
