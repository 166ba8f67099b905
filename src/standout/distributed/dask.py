"""Sources for dask arrays and data frames: functions run on the workers, and only results are fetched.

A collection is held as a dask array of unconverted chunks: arrays, sparse matrices or frames. Chunks are opened only on
the worker that holds them, and columns that describe rows are computed only on access.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import add, methodcaller
from typing import Any, cast
from uuid import uuid4

import dask
import dask.array as da
import numpy as np
from dask import compute
from dask.base import get_scheduler
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray
from scipy import sparse

from standout._blas import threads_for
from standout.distributed.reduce import WRONG_SHAPE, DistributedSource, Part, Result, check_column, check_fits
from standout.errors import FeatureError, InputError, listed
from standout.io import memory
from standout.io.memory import NUMBERS, FrameSource, as_ids, as_weights, checked_table
from standout.io.options import Coded, Options, choose
from standout.io.read import is_on_cluster, read
from standout.io.source import ArraySource, Source, select_columns

# Accumulating this many rows takes several times as long as merging two results; smaller chunks share a task.
_ROWS_PER_TASK = 1024
_UNKNOWN_ROWS = (
    "the number of rows of each chunk is unknown, so the values cannot be split into chunks. Call "
    "compute_chunk_sizes() on the dask array first (to_dask_array(lengths=True) on a data frame), or give a dask array "
    "in the same chunks or a series of the same data frame."
)


def open_collection(data: Any, options: Options, role: str) -> DaskSource:
    """Return the source of a dask array or data frame; by default all columns are features."""
    if not options.is_default:
        return _open_frame(_chosen_features(data, options, role), data, options, role)
    if not isinstance(data, da.Array):
        return _open_frame(data, data, options, role)
    return open_array(data, role)


def open_array(
    data: da.Array, role: str, names: tuple[str, ...] | None = None, options: Options | None = None,
    about: Mapping[str, NDArray[Any]] | None = None,
) -> DaskSource:  # fmt: skip
    """Return the source of a dask array; ``about`` are columns in memory that describe its rows, as in ``options``."""
    if data.ndim == 2 and math.isnan(data.shape[1]):
        remedy = "Call compute_chunk_sizes() on the dask array first."
        raise InputError(f"{role}: the number of columns is unknown. {remedy}")
    _check_shape(data.shape, data.dtype, role)
    return DaskSource(data, role, names, options=options, about=about)


def _chosen_features(data: Any, options: Options, role: str) -> Any:
    if not hasattr(type(data), "columns"):
        problem = f"columns are chosen by name, and a dask {type(data).__name__} has no column names"
        raise InputError(f"{role}: {problem}. Give a data frame, or choose the columns first.")
    import narwhals.stable.v2 as nw

    memory.check_names(list(data.columns), role)
    numeric = memory.numeric_columns(nw.from_native(data._meta, eager_only=True))
    label_of = {str(name): name for name in data.columns}
    chosen = choose(list(label_of), set(map(str, numeric)), options, role)
    return data[[label_of[name] for name in chosen.features]]


def _open_frame(features: Any, frame: Any, options: Options, role: str) -> DaskSource:
    if not _is_partitioned(features):
        remedy = "Make it an array or a data frame first, for instance with dask.array.from_delayed or to_dataframe()."
        raise InputError(f"{role}: a {type(features).__name__} of dask has no rows and columns. {remedy}")
    if features.ndim != 2:
        _check_shape((1,), np.dtype(float), role)
    empty = FrameSource(features._meta, role)
    _check_shape((1, empty.n_features), np.dtype(float), role)
    in_order = partial(_in_order, columns=list(features.columns), role=role)
    chunks = _chunks_of(features, np.empty((0, empty.n_features)), in_order)
    return DaskSource(chunks, role, empty.names, empty.unnamed, frame, options)


def _is_partitioned(data: Any) -> bool:
    """Return whether data is a dask data frame or series, by its type: a delayed object has every attribute."""
    return hasattr(type(data), "map_partitions") and hasattr(type(data), "ndim")


def _check_shape(shape: tuple[Any, ...], dtype: np.dtype[Any], role: str) -> None:
    """Apply the checks for data in memory: number of dimensions, number of rows, numeric dtype."""
    if not (len(shape) == 2 and dtype.kind in NUMBERS + "O" and 0 not in shape):
        sizes = [1 if math.isnan(size) else size for size in shape]
        checked_table(np.broadcast_to(np.zeros((), dtype), sizes), role)


def _chunks_of(frame: Any, like: NDArray[Any], function: Callable[[Any], Any] = lambda part: part) -> da.Array:
    """Return a function of the partitions of a data frame or series as the chunks of an array."""
    return frame.map_partitions(function, meta=like, enforce_metadata=False)


def _in_order(partition: Any, columns: list[Any], role: str) -> Any:
    """Return a partition with its columns in the order of the whole frame, because dask matches them by name."""
    found = list(partition.columns)
    if found == columns:
        return partition
    unlike = [name for name in (*columns, *found) if name not in columns or name not in found]
    if unlike:
        problem = f"only some partitions of the data frame have the columns {listed(unlike)}"
        raise FeatureError(f"{role}: {problem}. Give all partitions the same columns.")
    return partition[columns]


def _texts(partition: Any) -> NDArray[Any]:
    """Return values as strings, consistent with frames and files read into memory: 5 is the id "5"."""
    import narwhals.stable.v2 as nw

    return Coded.of(nw.from_native(partition, series_only=True).to_list()).texts()


@dataclass(frozen=True)
class ChunkReader:
    """Conversion of adjacent chunks to a source, on a worker; small, because it is sent with every task."""

    n_columns: int
    role: str
    index: NDArray[np.intp] | None = None  # the columns to select; None: all

    def __call__(self, grid: Sequence[Sequence[Any]]) -> Source:
        """Return the source of chunks; ``grid`` has one list of column chunks per row chunk."""
        tables = [table for table in map(self._row, grid) if table is not None]
        if not tables:
            return ArraySource(np.empty((0, self.n_columns if self.index is None else len(self.index))))
        source = read(self._joined(tables, axis=0), role=self.role)
        return source if self.index is None else select_columns(source, self.index)

    def _row(self, pieces: Sequence[Any]) -> Any:
        """Return adjacent column chunks as one table; None if they have no rows."""
        odd = [type(piece).__name__ for piece in pieces if len(getattr(piece, "shape", ())) != 2]
        if odd:
            remedy = "Make every chunk an array, for instance with numpy.asarray in the function that reads it."
            raise InputError(f"{self.role}: a chunk of the dask array is a {odd[0]} without rows and columns. {remedy}")
        lengths, width = [int(piece.shape[0]) for piece in pieces], sum(piece.shape[1] for piece in pieces)
        if min(lengths) != max(lengths):
            problem = f"adjacent chunks of columns have {min(lengths)} and {max(lengths)} rows"
            raise InputError(f"{self.role}: {problem}. Choose the same rows in all columns.")
        if lengths[0] and width != self.n_columns:
            problem = f"a chunk of the dask array has {width} columns, but the array has {self.n_columns}"
            raise InputError(f"{self.role}: {problem}. {WRONG_SHAPE}")
        return self._joined([piece for piece in pieces if piece.shape[1]], axis=1) if lengths[0] else None

    def _joined(self, tables: Sequence[Any], axis: int) -> Any:
        # Sparse arrays of other packages are converted to scipy's.
        tables = [table.to_scipy_sparse() if hasattr(table, "to_scipy_sparse") else table for table in tables]
        if len(tables) == 1:
            return tables[0]
        tables = [checked_table(table, self.role) for table in tables]
        if any(map(sparse.issparse, tables)):
            return sparse.hstack(tables) if axis else sparse.vstack(tables)
        return np.concatenate(tables, axis)


def map_chunk(pieces: Sequence[Any], function: Callable[[Source], NDArray[Any]], reader: ChunkReader) -> NDArray[Any]:
    """Return a function of the rows of one chunk."""
    # Tasks already run in parallel, and one thread gives bit-identical results on every worker.
    with threads_for(0):
        return function(reader([pieces]))


def reduce_part(
    function: Callable[[Part], Result], reader: ChunkReader, grid: Sequence[Sequence[Any]],
    weights: Sequence[Any] | None, groups: Sequence[Any] | None, labels: Sequence[Any] | None,
) -> Result:  # fmt: skip
    """Return a function of adjacent chunks and the weights, groups and labels of their rows."""
    with threads_for(0):
        by_row = None if weights is None else np.concatenate([as_weights(piece, reader.role) for piece in weights])
        ids = None if groups is None else np.concatenate([*map(as_ids, groups)])
        # As objects: in an array of text, a number would become text.
        names = None if labels is None else np.concatenate([np.asarray(piece, dtype=object) for piece in labels])
        return function(Part(reader(grid), by_row, ids, names))


class DaskSource(DistributedSource):
    """The rows of a dask array or data frame, in chunks of any size and kind."""

    def __init__(
        self,
        chunks: da.Array,
        role: str,
        names: tuple[str, ...] | None = None,
        unnamed: tuple[Any, ...] | None = None,
        frame: Any = None,  # with all columns; None for an array
        options: Options | None = None,  # that name the columns that describe rows
        about: Mapping[str, NDArray[Any]] | None = None,  # those of them that are in memory
    ):
        self._chunks, self._role, self._frame, self._options = chunks, role, frame, options or Options()
        self._about = about or {}
        self.n_rows = None if math.isnan(chunks.shape[0]) else int(chunks.shape[0])
        self.n_features, self.names, self.unnamed = int(chunks.shape[1]), names, unnamed
        self._reader = ChunkReader(self.n_features, role)

    def select(self, index: NDArray[np.intp]) -> DaskSource:
        chosen, before = copy(self), self._reader.index
        chosen.names = None if self.names is None else tuple(self.names[i] for i in index)
        chosen.n_features = len(index)
        chosen._reader = replace(self._reader, index=index if before is None else before[index])
        return chosen

    # Each is a pass over one column, made on access and not during a fit.
    labels = cached_property(lambda self: self._fetch("label"))
    groups = cached_property(lambda self: self._fetch("groups"))
    row_ids = cached_property(lambda self: self._fetch("ids"))

    def _fetch(self, option: str) -> NDArray[Any] | None:
        column = getattr(self._options, option)
        if column is None or column in self._about:
            return self._about.get(column)
        return np.asarray(_computed([self._column(column, as_text=True)], self._role)[0], dtype=object)

    def _column(self, column: str, as_text: bool) -> da.Array:
        series = self._frame[next(name for name in self._frame.columns if str(name) == column)]
        return _chunks_of(series, np.empty(0, object), _texts) if as_text else _chunks_of(series, np.empty(0))

    def blocks(self, rows: int) -> Iterator[NDArray[Any]]:
        for pieces in self._chunks.__dask_keys__():
            key = (f"standout-fetch-{uuid4().hex}", 0)
            yield from self._run({key: (self._reader, [pieces])}, key, [self._chunks]).blocks(rows)

    def map_rows(self, function: Callable[[Source], NDArray[Any]], names: Sequence[str]) -> da.Array:
        """Return ``function`` of the rows as a lazy dask array."""
        sent_once = dask.delayed(function, pure=False)  # one key, independent of the number of chunks
        return da.blockwise(
            map_chunk, "ik", self._chunks, "ij", sent_once, None, reader=self._reader, new_axes={"k": len(names)},
            concatenate=False, align_arrays=False, dtype=np.float64, meta=np.empty((0, 0)),
        )  # fmt: skip

    def collect(self, role: str) -> NDArray[Any]:
        """Return all rows as one array, in one pass, if they fit into memory."""
        names = [str(i) for i in range(self.n_features)]
        (rows,) = self.collect_mapped([lambda source: source.map_rows(methodcaller("collect", ""), names)], role)
        return memory.checked_block(rows, self.n_features, role)

    def collect_mapped(self, functions: Sequence[Callable[[Source], Any]], role: str) -> list[NDArray[Any]]:
        tables = [function(self) for function in functions]
        check_fits(self.n_rows, sum(table.shape[1] for table in tables), role)
        return [np.asarray(array) for array in _computed(tables, role)]

    def reduce(
        self, function: Callable[[Part], Result], weights: Any = None, groups: Any = None, labels: Any = None
    ) -> Result:
        groups = self._options.groups if groups is None else groups
        given = {"weights": weights, "groups": groups, "labels": labels}
        values = [self._split(each, what) for what, each in given.items()]
        keys = [None if array is None else array.__dask_keys__() for array in (self._chunks, *values)]
        name = uuid4().hex
        tasks: dict[Any, Any] = {}
        for number, some in enumerate(_shared_tasks(self._chunks.chunks[0], self.n_features)):
            pieces = [None if those is None else those[some] for those in keys]
            tasks[f"standout-part-{name}", number] = (reduce_part, function, self._reader, *pieces)
        parts = list(tasks)
        while len(parts) > 1:
            pairs = [(add, one, other) for one, other in zip(parts[::2], parts[1::2], strict=False)]
            merged = {(f"standout-merge-{name}", len(tasks) + number): pair for number, pair in enumerate(pairs)}
            tasks |= merged
            parts = [*merged, *parts[2 * len(pairs) :]]
        last = (f"standout-all-{name}", 0)
        tasks[last] = tasks.pop(parts[0])
        return cast(Result, self._run(tasks, last, [self._chunks, *(array for array in values if array is not None)]))

    def _run(self, tasks: dict[Any, Any], key: tuple[str, int], inputs: Sequence[da.Array]) -> Any:
        """Compute one task of a graph."""
        graph = HighLevelGraph.from_collections(key[0], tasks, dependencies=inputs)
        # As an array, because dask then fuses opening a chunk with its processing.
        return _computed([da.Array(graph, key[0], chunks=((1,),), dtype=object)], self._role)[0]

    def _split(self, given: Any, what: str) -> da.Array | None:
        """Return one value per row, in the chunks of the rows."""
        if given is None:
            return None
        rows, values = self._chunks.chunks[0], self._row_array(given, what)
        known = self.n_rows is not None and not math.isnan(values.shape[0])
        if values.ndim != 1 or (known and values.shape[0] != self.n_rows):
            problem = f"{self._role} {what}: shape {values.shape} for {self.n_rows} rows"
            raise InputError(f"{problem}. Give one value for each row.")
        if known:
            return values.rechunk((rows,))
        if len(values.chunks[0]) != len(rows):
            raise InputError(f"{self._role} {what}: {_UNKNOWN_ROWS}")
        return values

    def _row_array(self, values: Any, what: str) -> da.Array:
        """Return one value per row as a dask array with any chunks."""
        name = f"{self._role} {what}"
        if isinstance(values, str) and values in self._about:
            values = self._about[values]
        if isinstance(values, str):
            if self._frame is None:
                remedy = f"Give the values themselves, for instance the series df[{values!r}]."
                raise InputError(f"{name}: {values!r} names a column, and a dask array has no column names. {remedy}")
            features = [str(feature) for feature in self.names or self.unnamed or ()]
            check_column(values, [str(column) for column in self._frame.columns], features, name)
            return self._column(values, as_text=what != "weights")
        if isinstance(values, da.Array):
            return values
        if _is_partitioned(values) and values.ndim == 1:
            return _chunks_of(values, np.empty(0))
        if is_on_cluster(values):
            problem = f"a {type(values).__name__} is not one value for each row"
            raise InputError(f"{name}: {problem}. Give a dask array, or a series of the same data frame.")
        if self.n_rows is None:
            raise InputError(f"{name}: {_UNKNOWN_ROWS}")
        if what == "labels":
            return da.from_array(np.asarray(values), chunks=-1)
        return da.from_array(as_ids(values) if what == "groups" else as_weights(values, self._role), chunks=-1)


def _shared_tasks(chunks: Sequence[float], n_features: int) -> Iterator[slice]:
    """Yield slices of adjacent row chunks that share a task; a chunk of unknown size has a separate task."""
    enough = min(n_features, _ROWS_PER_TASK)
    start, rows = 0, 0.0
    for stop, more in enumerate(chunks, 1):
        rows += more
        if stop == len(chunks) or not rows + chunks[stop] <= enough:
            yield slice(start, stop)
            start, rows = stop, 0.0


def _computed(arrays: Sequence[da.Array], role: str) -> tuple[Any, ...]:
    """Compute arrays with the scheduler or cluster of the user, with shared tasks run once."""
    reachable = False
    try:
        get_scheduler(collections=arrays)  # raises RuntimeError for an asynchronous client, or none
        reachable = True
        found: tuple[Any, ...] = compute(*arrays, traverse=False)
        return found
    except Exception as error:
        if reachable and type(error).__name__ != "ClosedClientError":  # of distributed, which may not be installed
            raise
        start = "Start a distributed.Client that is open and not asynchronous"
        remedy = f"{start}, or use dask.config.set(scheduler='threads')."
        raise InputError(f"{role}: dask cannot compute here ({str(error).rstrip('.')}). {remedy}") from error
