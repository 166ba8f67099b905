"""Code that runs on Spark executors: reading partitions as blocks, serialising results, and merging them.

Results are pickled and split into pieces that fit into Spark rows, whatever the number of features. standout must be
installed on the executors, or shipped with ``--py-files``.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from standout._blas import Array
from standout.errors import InputError, StandoutError
from standout.io.source import Part, Source
from standout.io.tables import coded, numbers_of

# Number of adjacent results merged by one task. Two rounds merge a thousand partitions.
FAN = 32
# Spark rows are limited to 2 GB, and a batch of them to 64 MB.
_PIECE = 8 * 2**20

WIRE = "node long, part long, place long, bytes binary"


@dataclass(frozen=True)
class Reader:
    """Conversion of record batches to arrays: the first columns are the features, or one vector of all features."""

    role: str
    n_columns: int  # number of feature columns; 1 for a vector
    width: int | None = None  # length of each vector
    index: NDArray[np.intp] | None = None  # entries of the vector that are features

    @property
    def n_features(self) -> int:
        """Number of features."""
        if self.width is None:
            return self.n_columns
        return self.width if self.index is None else len(self.index)

    def numbers(self, batch: Any) -> Array:
        """Return the features of a batch, one row per record; missing values become NaN."""
        if self.width is None:
            return numbers_of(batch.select(list(range(self.n_columns))))
        column = batch.column(0)
        made = _from_vectors if pa.types.is_struct(column.type) else _from_lists
        numbers = made(column, self.width, self.role)
        return numbers if self.index is None else numbers[:, self.index]


class Partition(Source):
    """The rows of one Spark partition; rows from an iterator can be read only once."""

    def __init__(self, batches: Iterable[Any], reader: Reader, names: tuple[str, ...] | None):
        self._batches, self._reader = batches, reader
        self.names = names
        self.n_features = reader.n_features

    def blocks(self, rows: int) -> Iterator[Array]:
        """Yield the rows in order, at most ``rows`` at a time."""
        for batch in self._batches:
            for start in range(0, batch.num_rows, rows):
                yield self._reader.numbers(batch.slice(start, rows))


@dataclass(frozen=True)
class Failed:
    """An error in a partition, to be raised on the driver."""

    error: StandoutError


@dataclass(frozen=True)
class OfPart:
    """First step: apply ``function`` to a partition and serialise the result."""

    function: Callable[[Part], Any]
    merge: Callable[[Any, Any], Any]
    reader: Reader
    names: tuple[str, ...] | None
    beside: tuple[str, ...]  # columns after the features: weights, groups

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield one result, or none for a partition without rows."""
        from pyspark import TaskContext

        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return
        task = TaskContext.get()
        assert task is not None
        yield from sent(task.partitionId(), self._result(chain([first], batches)))

    def _result(self, batches: Iterable[Any]) -> Any:
        try:
            if not self.beside:
                return self.function(Part(Partition(batches, self.reader, self.names)))
            # A few batches at a time: reading all weights before the rows would require the whole partition in memory.
            return reduce(self.merge, (self.function(self._part(some)) for some in self._runs(batches)))
        except StandoutError as error:
            return Failed(error)

    def _runs(self, batches: Iterable[Any]) -> Iterator[list[Any]]:
        """Yield lists of batches with at least as many rows as features, so that merging is cheap in comparison."""
        some: list[Any] = []
        for batch in batches:
            some.append(batch)
            if sum(one.num_rows for one in some) >= self.reader.n_features:
                yield some
                some = []
        if some:
            yield some

    def _part(self, batches: Sequence[Any]) -> Part:
        values = {
            name: np.concatenate([self._values(name, batch.column(place)) for batch in batches])
            for place, name in enumerate(self.beside, self.reader.n_columns)
        }
        return Part(Partition(batches, self.reader, self.names), **values)

    def _values(self, name: str, column: Any) -> NDArray[Any]:
        # Groups as strings, consistent with frames and files read into memory: 5 is the id "5".
        return _weights(column, self.reader.role) if name == "weights" else coded(column).texts()


@dataclass(frozen=True)
class OfNode:
    """Later steps: merge adjacent results in order."""

    merge: Callable[[Any, Any], Any]
    last: bool = False  # whether all results belong to one node

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield one result per node; the rows are sorted by part and position."""
        for node, parts in groupby(received(_pieces(batches)), key=lambda item: 0 if self.last else item[0] // FAN):
            yield from sent(node, reduce(self._merged, (result for _, result in parts)))

    def _merged(self, one: Any, other: Any) -> Any:
        if isinstance(one, Failed):
            return one
        return other if isinstance(other, Failed) else self.merge(one, other)


@dataclass(frozen=True)
class Scores:
    """A function of the rows as new columns, in addition to the non-feature columns."""

    function: Callable[[Any], NDArray[Any]]
    reader: Reader
    names: tuple[str, ...] | None
    columns: tuple[str, ...]  # column names of the result: kept columns, then scores

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield one batch per input batch."""
        for batch in batches:
            scores = self.function(Partition([batch], self.reader, self.names))
            kept = batch.columns[self.reader.n_columns :]
            made = [pa.array(np.ascontiguousarray(column), pa.float64()) for column in scores.T]
            yield pa.RecordBatch.from_arrays([*kept, *made], names=list(self.columns))


@dataclass(frozen=True)
class Blocks:
    """The rows as blocks of bytes, for operations that need them on the driver."""

    reader: Reader
    rows: int

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield one row per block."""
        for block in Partition(batches, self.reader, None).blocks(self.rows):
            yield pa.RecordBatch.from_arrays([pa.array([np.ascontiguousarray(block).tobytes()])], names=["bytes"])


def sent(part: int, result: Any) -> Iterator[Any]:
    """Yield a serialised result as rows."""
    packed = pickle.dumps(result, protocol=5)
    for place, start in enumerate(range(0, len(packed), _PIECE)):
        columns = [[part // FAN], [part], [place], [packed[start : start + _PIECE]]]
        yield pa.RecordBatch.from_arrays(
            [pa.array(column) for column in columns], names=["node", "part", "place", "bytes"]
        )


def received(pieces: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, Any]]:
    """Yield parts and their results from ordered pieces."""
    for part, own in groupby(pieces, key=lambda piece: piece[0]):
        yield part, pickle.loads(b"".join(piece for _, piece in own))


def _pieces(batches: Iterable[Any]) -> Iterator[tuple[int, bytes]]:
    for batch in batches:
        for part, piece in zip(batch.column("part"), batch.column("bytes"), strict=True):
            yield part.as_py(), piece.as_py()


def _weights(column: Any, role: str) -> NDArray[Any]:
    if column.null_count:
        raise InputError(f"{role} weights: some rows have none (null). Give every row a weight, 0 to leave it out.")
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64(), safe=False)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _from_lists(column: Any, width: int, role: str) -> Array:
    there = column.is_valid().to_numpy(zero_copy_only=False)
    _check_width(pc.list_value_length(column).filter(column.is_valid()), width, role)
    numbers = np.full((len(column), width), np.nan)
    values = column.flatten().cast(pa.float64(), safe=False)
    numbers[there] = values.to_numpy(zero_copy_only=False).reshape(-1, width)
    return numbers


def _from_vectors(column: Any, width: int, role: str) -> Array:
    """Return pyspark.ml vectors, each dense or sparse, as an array."""
    kind, size, indices, values = column.flatten()
    if column.null_count == 0 and pc.all(pc.equal(kind, 1)).as_py():
        return _from_lists(values, width, role)
    there = column.is_valid().to_numpy(zero_copy_only=False)
    dense = kind.fill_null(0).to_numpy(zero_copy_only=False) == 1
    counts = pc.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False)
    _check_width(pa.array(np.where(dense, counts, size.fill_null(width).to_numpy(zero_copy_only=False))), width, role)
    columns = np.empty(counts.sum(), dtype=np.intp)
    filled = np.repeat(dense, counts)
    columns[filled] = np.tile(np.arange(width), np.count_nonzero(dense))
    columns[~filled] = indices.flatten().to_numpy(zero_copy_only=False)
    numbers = np.zeros((len(column), width))
    numbers[np.repeat(np.arange(len(column)), counts), columns] = values.flatten().to_numpy(zero_copy_only=False)
    numbers[~there] = np.nan
    return numbers


def _check_width(lengths: Any, width: int, role: str) -> None:
    wrong = lengths.filter(pc.not_equal(lengths, width))
    if len(wrong):
        raise InputError(
            f"{role}: the rows have different lengths: vectors of {width} and of {wrong[0]} numbers. Give every row "
            "the same number of values."
        )
