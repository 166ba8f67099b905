"""What the array formats share: a matrix on disk as a source, and when it is held in memory instead.

A format says how to read some rows and some columns (:class:`Numbers`). Which of them are used, what
describes them, progress, and the choice between memory and disk are the same for all formats, and live here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from standout.io.containers import Column, readable
from standout.io.options import Options
from standout.io.source import BLOCK_BYTES, RowSource, Source, ahead, block_rows_of, report
from standout.io.stream import Block, Layout, SparseInMemory, Stream, TableInMemory
from standout.io.tables import chosen_features, chosen_rows, described

Index = NDArray[np.intp]

# The most that is read at once: neighbouring rows that are packed together, or the next columns of all rows.
_AHEAD = 64 * 2**20


class Passed(Protocol):
    """Numbers that are read from their start, in order."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    nbytes: int  # in memory, as they are stored
    grain: int  # rows that are best read together

    def parts(self, step: int) -> Iterator[Any]:
        """Yield all rows, ``step`` at a time, as an array or a CSR matrix."""
        ...


class Numbers(Passed, Protocol):
    """Numbers of which any rows and columns can be read."""

    def rows(self, start: int, stop: int) -> Any:
        """Return rows ``start`` to ``stop`` as an array or a CSR matrix."""
        ...

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        """Return columns ``start`` to ``stop`` of every row as an array."""
        ...

    def parts(self, step: int) -> Iterator[Any]:
        """Yield all rows, ``step`` at a time."""
        for start in range(0, self.shape[0], step):
            yield self.rows(start, min(start + step, self.shape[0]))


class ChunkedNumbers(Numbers):
    """An array of h5py or zarr, opened for every read: nothing stays open, and it can go to another process."""

    def __init__(self, open_array: Callable[[], AbstractContextManager[Any]], array: Any):
        self._open = open_array
        self.shape, self.dtype = tuple(array.shape), array.dtype
        self.nbytes = self.shape[0] * self.shape[1] * self.dtype.itemsize
        self.grain = array.chunks[0] if array.chunks else 1

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``start`` to ``stop``."""
        with self._open() as array:
            return np.asarray(array[start:stop])

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        """Return columns ``start`` to ``stop`` of every row."""
        with self._open() as array:
            return np.asarray(array[:, start:stop])


class HeldNumbers(Numbers):
    """An array or CSR matrix that is in memory already."""

    grain = 1

    def __init__(self, whole: Any):
        self.whole = whole
        self.shape, self.dtype = whole.shape, whole.dtype
        self.nbytes = 0  # no more than is held already

    def rows(self, start: int, stop: int) -> Any:
        """Return rows ``start`` to ``stop``."""
        return self.whole[start:stop]

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        """Return columns ``start`` to ``stop`` of every row."""
        return _dense(self.whole[:, start:stop])


@dataclass(frozen=True)
class Matrix:
    """A matrix as a file has it: numbers, names, and the columns that describe rows."""

    path: Path
    kind: str
    numbers: Passed
    names: tuple[str, ...] | None = None
    about: Mapping[str, Column] = field(default_factory=dict)  # read when they are wanted
    kept: tuple[str, ...] = ()  # columns that describe rows and are kept though nobody asks for them
    carried: tuple[str, ...] = ()  # the same, but not read before somebody wants them
    ids: str | None = None  # the column that names rows, where the user names none


def as_source(matrix: Matrix, options: Options, role: str) -> Source:
    """Return the rows and columns asked for: in memory where they take little of it, on disk otherwise."""
    where = f"{role}: {matrix.path}"
    n_rows, n_features = matrix.numbers.shape
    with readable(where, matrix.kind):
        columns, names = chosen_features(matrix.names, set(matrix.about), options, where)
        about = described(matrix.about, matrix.names, _column(matrix.numbers), options, where)
        rows = chosen_rows(about, options, where)
    used = dict.fromkeys((*options.roles, *matrix.kept, *([matrix.ids] if matrix.ids else []), *matrix.carried))
    layout = Layout(
        path=matrix.path,
        names=names,
        n_features=n_features if columns is None else len(columns),
        aside=tuple(used),
        unasked=tuple(name for name in matrix.kept if name not in options.roles),
        label=options.label,
        groups=options.groups,
        ids=options.ids or matrix.ids,
        n_rows=n_rows if rows is None else len(rows),
        memory=options.memory,
    )
    kind = OnDisk if hasattr(matrix.numbers, "columns") else OneWay
    source = kind(where, layout, matrix, about, Picked(rows, columns))
    # A cast, because what a source says about its rows is read-only here.
    return cast(Source, source.held() if source.nbytes <= options.memory else source)


def _column(numbers: Any) -> Callable[[int], NDArray[Any]]:
    """Return how to read one column of numbers, for one that describes rows."""

    def read(place: int) -> NDArray[Any]:
        if hasattr(numbers, "columns"):
            return np.asarray(numbers.columns(place, place + 1)[:, 0])
        return np.concatenate([part[:, place] for part in numbers.parts(4096)])

    return read


class Columns(dict[str, NDArray[Any]]):
    """Columns that describe rows: each is read when it is first wanted, and kept."""

    def __init__(self, where: str, kind: str, read: Mapping[str, Column], rows: Index | None):
        super().__init__()
        self._where, self._kind, self._read, self._rows = where, kind, read, rows

    def __missing__(self, column: str) -> NDArray[Any]:
        with readable(self._where, self._kind):
            values = self._read[column]()
        self[column] = values if self._rows is None else values[self._rows]
        return self[column]

    def later(self, names: Collection[str]) -> Columns:
        """Return the columns with those already read; of the others only ``names`` can still be read."""
        read = {name: self._read[name] for name in names if name not in self}
        columns = Columns(self._where, self._kind, read, self._rows)
        columns.update(self)
        return columns


@dataclass(frozen=True)
class Picked:
    """The rows (in increasing order) and columns of a file that are used; None: all of them."""

    rows: Index | None = None
    columns: Index | None = None

    def between(self, start: int, stop: int) -> Index | None:
        """Return the chosen rows of the file from ``start`` to ``stop``."""
        if self.rows is None:
            return None
        low, high = np.searchsorted(self.rows, (start, stop))
        return self.rows[low:high]


class OneWay(Stream):
    """A matrix in a file that can only be read from its start: what describes its rows is known before."""

    _kept: Columns

    def __init__(self, where: str, layout: Layout, matrix: Matrix, about: Mapping[str, Column], picked: Picked):
        super().__init__(layout, self._blocks)
        self.where, self.matrix, self.picked, self.chosen = where, matrix, picked, picked.columns
        self._describing = about
        self._kept = Columns(where, matrix.kind, about, picked.rows)
        self._total = layout.n_rows or 0

    @property
    def nbytes(self) -> int:
        """About what the chosen rows and columns take in memory."""
        numbers = self.matrix.numbers
        return numbers.nbytes * self._total // numbers.shape[0] * self.n_features // numbers.shape[1]

    def about(self, column: str) -> NDArray[Any]:
        """Return a column that describes rows, without a pass over the numbers."""
        return self._kept[column]

    def held(self) -> TableInMemory | SparseInMemory:
        """Return the same rows, held in memory: dense as a table, sparse as they are."""
        for column in self.aside:
            if column not in self.matrix.carried:
                self.about(column)
        about = self._kept.later(self.matrix.carried)
        whole = getattr(self.matrix.numbers, "whole", None)
        if whole is None:
            parts = self._told()
            first = next(parts)
            if not sparse.issparse(first):
                return TableInMemory(self.layout, self._filled(first, parts), about)
            whole = sparse.vstack([first, *parts], format="csr")
        else:
            whole = whole if self.picked.rows is None else whole[self.picked.rows]
            whole = whole if self.picked.columns is None else whole[:, self.picked.columns]
        return (SparseInMemory if sparse.issparse(whole) else TableInMemory)(self.layout, whole, about)

    def _filled(self, first: NDArray[Any], rest: Iterator[Any]) -> NDArray[Any]:
        array = np.empty((self._total, self.n_features), self.matrix.numbers.dtype.newbyteorder("="))
        array[: len(first)] = first
        start = len(first)
        for part in rest:
            array[start : start + len(part)] = part
            start += len(part)
        return array

    def _blocks(self, rows: int, columns: tuple[str, ...], mark: Any = None) -> Iterator[Block]:
        """Yield dense blocks; what is read ahead stays as it is stored until it is their turn."""
        # A pass that goes on reads the parts of the one before, whatever memory it is given.
        begin, step = (0, self._step(rows)) if mark is None else (mark["rows"], mark["step"])
        for seen, part in ahead(self._stored(step, begin)):
            # Equal pieces: a last one of a few rows would cost as much as a whole block.
            edges = np.linspace(0, part.shape[0], -(-part.shape[0] // rows) + 1).astype(int)
            for first, last in pairwise(edges):
                here = slice(seen + int(first), seen + int(last))
                if here.start < begin:
                    continue
                about = {column: self.about(column)[here] for column in columns}
                done = here.stop / self._total
                yield Block(_dense(part[first:last]), about, done, partial(dict, rows=here.stop, step=step))

    def _told(self) -> Iterator[Any]:
        """Yield the parts of a pass, and tell how far it has come."""
        for seen, part in self._parts():
            done = seen + part.shape[0]
            report(self.path.name, done, done / self._total)
            yield part

    def _parts(self) -> Iterator[tuple[int, Any]]:
        """Yield all parts."""
        return ahead(self._stored(self._step(block_rows_of(self)), 0))

    def _stored(self, step: int, begin: int) -> Iterator[tuple[int, Any]]:
        """Yield the chosen rows and columns as they are stored, ``step`` rows of the file at a time.

        With each part comes how many rows are before it. Those that end before the row ``begin`` are left out.
        """
        parts, seen = None, 0
        for start in range(0, self.matrix.numbers.shape[0], step):
            with readable(self.where, self.matrix.kind):
                parts = self.matrix.numbers.parts(step) if parts is None else parts
                part = next(parts)
            chosen = self.picked.between(start, start + step)
            part = part if chosen is None else part[chosen - start]
            if part.shape[0] and seen + part.shape[0] > begin:
                yield seen, self._cut(part)
            seen += part.shape[0]

    def _step(self, rows: int) -> int:
        """Return how many rows of the file make a block: whole grains, as long as they are not too large."""
        numbers = self.matrix.numbers
        wanted = rows * numbers.shape[0] // self._total  # where few rows are chosen, a block of these
        return min(max(wanted // numbers.grain, 1) * numbers.grain, max(rows, self._ahead))

    @property
    def _ahead(self) -> int:
        """How many rows may be read ahead."""
        numbers = self.matrix.numbers
        most = min(_AHEAD, max(self.memory // 8, BLOCK_BYTES))
        return max(1, most * numbers.shape[0] // max(numbers.nbytes, 1))

    def _cut(self, part: Any) -> Any:
        return part if self.picked.columns is None else part[:, self.picked.columns]


class OnDisk(OneWay, RowSource):
    """A matrix in a file of which any rows and columns can be read again, never all of it at once."""

    _panel: tuple[int, NDArray[Any]] | None = None  # the columns read last, and where they start

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``start`` to ``stop`` as a dense array."""
        if self.picked.rows is not None:
            return self._gathered(self.picked.rows[start:stop])
        return _dense(self._cut(self._read(start, min(stop, self._total))))

    def take(self, index: Index) -> NDArray[Any]:
        """Return the rows at ``index`` as a dense array."""
        wanted = np.asarray(index) if self.picked.rows is None else self.picked.rows[index]
        ordered, back = np.unique(wanted, return_inverse=True)
        return self._gathered(ordered)[back]

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        """Return columns ``start`` to ``stop`` of every row; the next ones are read with them."""
        held = self._panel  # another thread may put its own there at any moment
        if held is None or start < held[0] or stop > held[0] + held[1].shape[1]:
            ahead = _AHEAD // (self.matrix.numbers.dtype.itemsize * self._total)
            last = min(max(stop, start + ahead), self.n_features)
            held = self._panel = start, self._read_columns(start, last)
            report(self.path.name, self._total, last / self.n_features)
        first, panel = held
        return panel[:, start - first : stop - first]

    def select(self, index: Index) -> OnDisk:
        """Return the source with the columns at ``index``, in that order."""
        columns = index if self.picked.columns is None else self.picked.columns[index]
        names = None if self.names is None else tuple(self.names[i] for i in index)
        layout = replace(self.layout, names=names, n_features=len(index))
        return OnDisk(self.where, layout, self.matrix, self._describing, replace(self.picked, columns=columns))

    def _stored(self, step: int, begin: int) -> Iterator[tuple[int, Any]]:
        seen, total = 0, self.matrix.numbers.shape[0]
        for start in range(0, total, step):  # what holds no chosen row is not read, nor what was done before
            stop = min(start + step, total)
            chosen = self.picked.between(start, stop)
            count = stop - start if chosen is None else len(chosen)
            if count and seen + count > begin:
                part = self._read(start, stop) if chosen is None else _stacked(self._runs(chosen))
                yield seen, self._cut(part)
            seen += count

    def _gathered(self, ordered: Index) -> NDArray[Any]:
        return _dense(self._cut(_stacked(self._runs(ordered))))

    def _runs(self, ordered: Index) -> Iterator[Any]:
        """Yield the file's rows at ``ordered``: neighbours in one read, and no more between them than a grain."""
        apart = (np.diff(ordered) > self.matrix.numbers.grain) | (np.diff(ordered // self._ahead) > 0)
        for run in np.split(ordered, np.flatnonzero(apart) + 1):
            if len(run) == 0:
                yield np.empty((0, self.matrix.numbers.shape[1]), self.matrix.numbers.dtype)
                continue
            part = self._read(int(run[0]), int(run[-1]) + 1)
            yield part if part.shape[0] == len(run) else part[run - run[0]]

    def _read(self, start: int, stop: int) -> Any:
        numbers: Any = self.matrix.numbers
        with readable(self.where, self.matrix.kind):
            return numbers.rows(start, stop)

    def _read_columns(self, start: int, stop: int) -> NDArray[Any]:
        self._check_unchanged_at(start)
        wanted = np.arange(start, stop) if self.picked.columns is None else self.picked.columns[start:stop]
        low, high = int(wanted.min()), int(wanted.max()) + 1
        numbers: Any = self.matrix.numbers
        if high - low > 2 * len(wanted):  # far apart: one pass over the rows
            return np.concatenate([_dense(part[:, start:stop]) for _, part in self._parts()])
        with readable(self.where, self.matrix.kind):
            panel: NDArray[Any] = numbers.columns(low, high)
        panel = panel if np.array_equal(wanted, np.arange(low, high)) else panel[:, wanted - low]
        return panel if self.picked.rows is None else panel[self.picked.rows]


def _stacked(parts: Iterator[Any]) -> Any:
    held = list(parts)
    if len(held) == 1:
        return held[0]
    return sparse.vstack(held, format="csr") if sparse.issparse(held[0]) else np.concatenate(held)


def _dense(part: Any) -> NDArray[Any]:
    return np.asarray(part.toarray()) if sparse.issparse(part) else np.asarray(part)
