"""What to do about missing values, as the user chose: leave rows out, leave features out, or fill in the mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from standout.blas import Array
from standout.errors import InputError
from standout.sources.files.source import About, Account, Block, Layout, Stream, TableInMemory
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
    filled = np.array(numbers, dtype=np.float64)
    total = np.where(gone, 0.0, numbers).sum(axis=0, dtype=np.float64)
    means = _means(total, source.n_rows - count, source, role)
    filled[gone] = np.broadcast_to(means, filled.shape)[gone]
    return TableInMemory(source.layout, filled, about, replace(account, values_filled=int(count.sum())))


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
        # The pass is told once: by this stream, not by the one it reads.
        streamed = isinstance(self._source, Stream)
        blocks = self._source.open_blocks(rows, columns, mark) if streamed else self._source.table_blocks(rows, columns)
        for block in map(self._change, blocks):
            if len(block.numbers):
                yield block


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
    means = _means(found.total, found.n_rows - found.count, source, role)
    account = replace(account, values_filled=int(found.count.sum()))

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
            "missing='mean' or missing='drop_features', or leave out the columns that are mostly empty."
        )


def _left_features(count: NDArray[np.int64], source: Any, role: str) -> NDArray[np.intp]:
    index = np.flatnonzero(count == 0)
    if len(index) == 0:
        raise InputError(
            f"{role}: each of the {source.n_features} features has a missing value, so missing='drop_features' leaves "
            "none. Use missing='drop_rows' or missing='mean'."
        )
    return index


def _narrowed(source: Any, index: NDArray[np.intp]) -> Any:
    names = None if source.names is None else tuple(source.names[i] for i in index)
    return replace(source.layout, names=names, n_features=len(index))


def _without(account: Account, count: NDArray[np.int64], source: Any) -> Account:
    lost = tuple(_name(source, int(i)) for i in np.flatnonzero(count))
    return replace(account, features=source.n_features - len(lost), features_left_out=lost)


def _means(total: Array, seen: NDArray[np.int64], source: Any, role: str) -> Array:
    empty = np.flatnonzero(seen == 0)
    if len(empty):
        raise InputError(
            f"{role}: {len(empty)} features hold no value at all, so they have no mean: "
            f"{', '.join(_name(source, int(i)) for i in empty[:5])}. Leave these columns out."
        )
    return np.asarray(total / seen)
