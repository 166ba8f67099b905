"""Sources for dask arrays and data frames: functions run on the workers, and only results are fetched.

Internally, a collection is a dask array of unconverted chunks: arrays, sparse matrices or frames. Chunks are opened
only on the worker that holds them. Columns that describe rows are computed only on access. A collection whose graph
embeds the data, instead of loading them on the workers, causes a warning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Any, cast
from uuid import uuid4

import dask
import dask.array as da
import numpy as np
from dask import compute, local, threaded
from dask.base import get_scheduler
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray
from scipy import sparse

from standout._blas import threads_for
from standout.distributed.reduce import DistributedSource, Result
from standout.errors import FeatureError, GraphWarning, InputError, listed, warn_user
from standout.io.memory import (
    NUMBERS,
    FrameSource,
    as_ids,
    as_weights,
    check_names,
    checked_table,
    may_be_numbers,
)
from standout.io.options import Coded, Options, choose
from standout.io.read import is_on_cluster, read
from standout.io.source import ArraySource, Part, Source, select_columns

# Data embedded in the graph are sent via the scheduler to the workers; below this size, do not warn.
_WORTH_A_WORD = 10_000_000
# Number of tasks of a graph to inspect: embedded data are in the first tasks.
_TASKS = 10_000
# Accumulating this many rows takes several times as long as merging two results; smaller chunks share a task.
_ROWS_OF_A_TASK = 1024
_ROWS_UNKNOWN = (
    "how many rows each chunk has is not known, so the values cannot be cut to the chunks. Call compute_chunk_sizes() "
    "on the dask array first (make one of a data frame with to_dask_array(lengths=True)), or give a dask array in the "
    "same chunks or a series of the same data frame."
)


def computed(array: da.Array, role: str) -> Any:
    """Compute an array with the scheduler or cluster of the user."""
    return computed_together([array], role)[0]


def computed_together(arrays: Sequence[da.Array], role: str) -> tuple[Any, ...]:
    """Compute arrays, with shared tasks run once; raise a helpful error if no scheduler is usable."""
    _scheduler(arrays[0], role)
    try:
        found: tuple[Any, ...] = compute(*arrays, traverse=False)
        return found
    except Exception as error:
        if type(error).__name__ != "ClosedClientError":  # from distributed, which may not be installed
            raise
        raise _no_cluster(error, role) from error


def _scheduler(collection: Any, role: str) -> Any:
    try:
        return get_scheduler(collections=[collection])
    except RuntimeError as error:  # an asynchronous client, or none
        raise _no_cluster(error, role) from error


def _no_cluster(error: Exception, role: str) -> InputError:
    return InputError(
        f"{role}: dask cannot compute here ({str(error).rstrip('.')}). Start a distributed.Client that is open and not "
        "asynchronous, or use dask.config.set(scheduler='threads')."
    )


def warn_of_embedded_data(collection: Any, role: str) -> None:
    """Warn if data are embedded in the graph of a collection and would be sent to other processes."""
    if _scheduler(collection, role) in (threaded.get, local.get_sync):
        return
    size = 0
    for value in _values(collection.__dask_graph__()):
        size += _bytes_of(value)
        if size > _WORTH_A_WORD:
            warn_user(
                f"{role}: the data themselves stand in the graph (more than {_WORTH_A_WORD // 10**6} MB), so that they "
                "go through the scheduler to the workers, many times slower than when workers read them. Make the "
                "collection of what workers can open (dask.array.from_zarr or from_delayed, dask.dataframe."
                "read_parquet), or give the array, memory map or frame itself to fit.",
                GraphWarning,
            )
            return


def _values(graph: Any) -> Iterator[Any]:
    """Yield the values in the tasks of a graph, without materialising its layers."""
    for layer in getattr(graph, "layers", {"": graph}).values():
        if not getattr(layer, "is_materialized", lambda: True)():
            yield from (value for value, index in getattr(layer, "indices", ()) if index is None)
            continue
        for task in islice(layer.values(), _TASKS):
            yield from _inside(task, 3)


def _inside(task: Any, depth: int) -> Iterator[Any]:
    """Yield a task's data and arguments, and those of the tasks fused into it."""
    yield getattr(task, "value", task)
    if depth == 0:
        return
    inner = task if isinstance(task, list | tuple) else getattr(task, "args", ())
    for argument in inner.values() if isinstance(inner, dict) else inner:
        yield from _inside(argument, depth - 1)


def _bytes_of(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    if sparse.issparse(value):
        return int(value.data.nbytes)
    if hasattr(value, "memory_usage") and hasattr(value, "iloc"):
        return int(np.sum(value.memory_usage()))
    return 0


@dataclass(frozen=True, eq=False)
class RowColumns:
    """A data frame and the names of its columns that describe rows."""

    frame: Any
    label: str | None = None
    groups: str | None = None
    ids: str | None = None

    def weights(self, column: str) -> da.Array:
        """Return a column, unconverted."""
        return values_of(self._series(column))

    def texts(self, column: str) -> da.Array:
        """Return a column as strings, consistent with frames and files read into memory: 5 is the id "5"."""
        return chunks_of(self._series(column), np.empty(0, dtype=object), _texts)

    def _series(self, column: str) -> Any:
        return self.frame[next(name for name in self.frame.columns if str(name) == column)]

    def check_named(self, column: str, features: tuple[Any, ...], what: str) -> None:
        """Raise an error if a column does not exist or is a feature; ``what`` is its purpose."""
        names = [str(name) for name in self.frame.columns]
        if column not in names:
            raise InputError(f"{what}: there is no column {column!r}. Use one of its columns: {listed(names)}.")
        if column in [str(name) for name in features]:
            raise InputError(
                f"{what}: the column {column!r} is a feature too. Leave it out of the features with "
                f"`standout.read(frame, drop={column!r})`."
            )


def in_partitions(data: Any) -> bool:
    """Return whether data is a dask data frame or series, as opposed to a delayed object, bag or scalar."""
    # Check the type: a delayed object has every attribute.
    return hasattr(type(data), "map_partitions") and hasattr(type(data), "ndim")


def chunks_of(frame: Any, like: NDArray[Any], made: Callable[[Any], Any]) -> da.Array:
    """Return the mapped partitions of a data frame or series as the chunks of an array."""
    return frame.map_partitions(made, meta=like, enforce_metadata=False)


def values_of(series: Any) -> da.Array:
    """Return the partitions of a series as the chunks of an array."""
    return chunks_of(series, np.empty(0), _as_it_is)


def _as_it_is(partition: Any) -> Any:
    return partition


def _texts(partition: Any) -> NDArray[Any]:
    import narwhals.stable.v2 as nw

    return Coded.of(nw.from_native(partition, series_only=True).to_list()).texts()


@dataclass(frozen=True)
class Opener:
    """Opener of chunks in memory as a source; small, because it is sent with every task."""

    n_features: int
    role: str
    index: NDArray[np.intp] | None  # the columns to select; None: all

    def __call__(self, grid: Sequence[Sequence[Any]]) -> Source:
        """Return the source of adjacent chunks; ``grid`` has one list of column chunks per row chunk."""
        rows = [self._row(pieces) for pieces in grid]
        source: Any = rows[0] if len(rows) == 1 else _Stacked(rows)
        return source if self.index is None else select_columns(source, self.index)

    def _row(self, pieces: Sequence[Any]) -> Any:
        lengths = [self._rows_of(piece) for piece in pieces]
        if min(lengths) != max(lengths):
            raise InputError(
                f"{self.role}: chunks of columns that stand side by side have {min(lengths)} and {max(lengths)} rows, "
                "so it is not known which values make a row. Choose the same rows in all columns."
            )
        if lengths[0] == 0:
            return ArraySource(np.empty((0, self.n_features)))
        sources = [read(_in_scipy(piece), role=self.role) for piece in pieces if piece.shape[1:] != (0,)]
        found = sum(source.n_features for source in sources)
        if found != self.n_features:
            raise InputError(
                f"{self.role}: a chunk of the dask array has {found} columns, and the array says {self.n_features}. "
                "Give the shape that the chunks have where the array is made, for instance in dask.array.from_delayed."
            )
        return sources[0] if len(sources) == 1 else _SideBySide(sources, self.n_features)

    def _rows_of(self, piece: Any) -> int:
        if not getattr(piece, "shape", ()):
            raise InputError(
                f"{self.role}: a chunk of the dask array is a {type(piece).__name__}, without rows and columns. Make "
                "every chunk an array, for instance with numpy.asarray in the function that reads it."
            )
        return int(piece.shape[0])


def map_chunk(pieces: Sequence[Any], function: Callable[[Source], NDArray[Any]], opener: Opener) -> NDArray[Any]:
    """Return a function of the rows of one chunk."""
    # Tasks already run in parallel, and one thread gives bit-identical results on every worker.
    with threads_for(0):
        return function(opener([pieces]))


def reduce_part(
    function: Callable[[Part], Result],
    opener: Opener,
    grid: Sequence[Sequence[Any]],
    weights: Sequence[Any] | None,
    groups: Sequence[Any] | None,
) -> Result:
    """Return a function of adjacent chunks and the weights and groups of their rows."""
    with threads_for(0):
        given = partial(as_weights, role=opener.role)
        return function(Part(opener(grid), _joined(weights, given), _joined(groups, as_ids)))


def _joined(pieces: Sequence[Any] | None, array: Callable[[Any], NDArray[Any]]) -> NDArray[Any] | None:
    return None if pieces is None else np.concatenate([array(piece) for piece in pieces])


def _in_scipy(piece: Any) -> Any:
    """Convert a chunk of the package sparse to a scipy matrix; return other chunks unchanged."""
    return piece.to_scipy_sparse() if hasattr(piece, "to_scipy_sparse") else piece


class _Stacked(Source):
    """Vertically stacked chunks of rows."""

    def __init__(self, sources: Sequence[Any]):
        self.sources = sources
        self.n_rows, self.n_features = sum(source.n_rows for source in sources), sources[0].n_features

    def blocks(self, rows: int) -> Iterator[NDArray[Any]]:
        """Yield the blocks of each chunk in turn."""
        for source in self.sources:
            yield from source.blocks(rows)


class _SideBySide(Source):
    """Horizontally stacked chunks of columns, joined one block at a time."""

    n_rows: int

    def __init__(self, sources: Sequence[Any], n_features: int):
        self.sources = sources
        self.n_rows, self.n_features = sources[0].n_rows, n_features

    def blocks(self, rows: int) -> Iterator[NDArray[Any]]:
        """Yield the rows in order, at most ``rows`` at a time."""
        for start in range(0, self.n_rows, rows):
            stop = min(start + rows, self.n_rows)
            yield np.concatenate([source.rows(start, stop) for source in self.sources], axis=1)


def open_collection(data: Any, role: str, described: RowColumns | None = None) -> DaskSource:
    """Return the source of a dask array or data frame, with the columns that describe its rows."""
    if isinstance(data, da.Array):
        if data.ndim == 2 and math.isnan(data.shape[1]):
            raise InputError(
                f"{role}: the number of columns is not known. Call compute_chunk_sizes() on the dask array first."
            )
        _check_kind(data.shape, data.dtype, role)
        return DaskSource(data, role)
    if not in_partitions(data):
        raise InputError(
            f"{role}: a {type(data).__name__} of dask has no rows and columns. Make it an array or a data frame first, "
            "for instance with dask.array.from_delayed or to_dataframe()."
        )
    if data.ndim != 2:
        _check_kind((1,), np.dtype(float), role)
    frame = FrameSource(data._meta, role)
    _check_kind((1, frame.n_features), np.dtype(float), role)
    in_order = partial(_in_order, columns=list(data.columns), role=role)
    chunks = chunks_of(data, np.empty((0, frame.n_features)), in_order)
    return DaskSource(chunks, role, frame.names, frame.unnamed, described or RowColumns(data))


def open_chosen(data: Any, options: Options, role: str) -> DaskSource:
    """Return the source of a dask data frame with feature columns and columns that describe rows."""
    if not hasattr(type(data), "columns"):
        raise InputError(
            f"{role}: columns are chosen by name, and a dask {type(data).__name__} has no column names. Give a data "
            "frame, or choose the columns first."
        )
    import narwhals.stable.v2 as nw

    check_names(list(data.columns), role)
    empty = nw.from_native(data._meta, eager_only=True)
    label_of = {str(name): name for name in data.columns}
    numeric = {str(name) for name, kind in empty.schema.items() if may_be_numbers(kind, empty, name)}
    chosen = choose(list(label_of), numeric, options, role)
    described = RowColumns(data, options.label, options.groups, options.ids)
    return open_collection(data[[label_of[name] for name in chosen.features]], role, described)


class DaskSource(DistributedSource):
    """The rows of a dask array or data frame, in chunks of any size and kind."""

    def __init__(
        self,
        chunks: da.Array,
        role: str,
        names: tuple[str, ...] | None = None,
        unnamed: tuple[Any, ...] | None = None,
        described: RowColumns | None = None,  # None for an array
        index: NDArray[np.intp] | None = None,
    ):
        self._chunks, self._role, self._index = chunks, role, index
        self.n_rows = None if _unknown(chunks) else int(chunks.shape[0])
        self.n_features = int(chunks.shape[1]) if index is None else len(index)
        self.names, self.unnamed = names, unnamed
        self._described = described
        self._opener = Opener(int(chunks.shape[1]), role, index)

    def select(self, index: NDArray[np.intp]) -> DaskSource:
        """Return the source with the columns at ``index``, in that order."""
        names = None if self.names is None else tuple(self.names[i] for i in index)
        inner = index if self._index is None else self._index[index]
        return DaskSource(self._chunks, self._role, names, self.unnamed, self._described, inner)

    # Each is a pass over one column, made on access and not during a fit.

    @cached_property
    def labels(self) -> NDArray[Any] | None:  # type: ignore[override]
        """The label of each row."""
        return self._fetched("label")

    @cached_property
    def groups(self) -> NDArray[Any] | None:  # type: ignore[override]
        """The group of each row."""
        return self._fetched("groups")

    @cached_property
    def row_ids(self) -> NDArray[Any] | None:  # type: ignore[override]
        """The id of each row."""
        return self._fetched("ids")

    def blocks(self, rows: int) -> Iterator[NDArray[Any]]:
        """Fetch the rows, one row chunk at a time."""
        for pieces in self._chunks.__dask_keys__():
            key = (f"standout-fetch-{uuid4().hex}", 0)
            yield from self._run({key: (self._opener, [pieces])}, key, [self._chunks]).blocks(rows)

    def map_rows(self, function: Callable[[Source], NDArray[Any]], names: Sequence[str]) -> da.Array:
        """Return ``function`` of the rows as a lazy dask array."""
        return da.blockwise(
            map_chunk,
            "ik",
            self._chunks,
            "ij",
            dask.delayed(function, pure=False),  # one key, independent of the number of chunks
            None,
            opener=self._opener,
            new_axes={"k": len(names)},
            concatenate=False,
            align_arrays=False,
            dtype=np.float64,
            meta=np.empty((0, 0)),
        )

    def reduce(
        self,
        function: Callable[[Part], Result],
        merge: Callable[[Result, Result], Result],
        weights: Any = None,
        groups: Any = None,
    ) -> Result:
        """Return ``function`` of every part, merged on the workers in a fixed order."""
        warn_of_embedded_data(self._chunks, self._role)
        if groups is None and self._described is not None:
            groups = self._described.groups
        beside = [self._cut(values, what) for values, what in ((weights, "weights"), (groups, "groups"))]
        keys = [None if values is None else values.__dask_keys__() for values in (self._chunks, *beside)]
        name = uuid4().hex
        tasks: dict[Any, Any] = {}
        for number, some in enumerate(_shared_tasks(self._chunks.chunks[0], self.n_features)):
            pieces = [None if those is None else those[some] for those in keys]
            tasks[f"standout-part-{name}", number] = (reduce_part, function, self._opener, *pieces)
        parts = list(tasks)
        while len(parts) > 1:
            pairs = [(merge, one, other) for one, other in zip(parts[::2], parts[1::2], strict=False)]
            merged = {(f"standout-merge-{name}", len(tasks) + number): pair for number, pair in enumerate(pairs)}
            tasks |= merged
            parts = [*merged, *parts[2 * len(pairs) :]]
        last = (f"standout-all-{name}", 0)
        tasks[last] = tasks.pop(parts[0])
        held = [self._chunks, *(values for values in beside if values is not None)]
        return cast(Result, self._run(tasks, last, held))

    def compute(self, tables: Sequence[Any], role: str) -> list[NDArray[Any]]:
        """Return lazy tables of this source as arrays, in one pass over its rows."""
        return [np.asarray(array) for array in computed_together(tables, role)]

    def _run(self, tasks: dict[Any, Any], key: tuple[str, int], held: Sequence[da.Array]) -> Any:
        """Compute one task of a graph with the scheduler or cluster of the user."""
        graph = HighLevelGraph.from_collections(key[0], tasks, dependencies=held)
        # As an array, because dask then fuses opening a chunk with its processing.
        return computed(da.Array(graph, key[0], chunks=((1,),), dtype=object), self._role)

    def _fetched(self, option: str) -> NDArray[Any] | None:
        """Fetch the column named by an option of ``read``, as strings."""
        column = getattr(self._described, option, None)
        if self._described is None or column is None:
            return None
        return np.asarray(computed(self._described.texts(column), self._role), dtype=object)

    def _beside(self, values: Any, what: str) -> da.Array:
        """Return one value per row as a dask array with any chunks."""
        name = f"{self._role} {what}"
        if isinstance(values, str):
            if self._described is None:
                raise InputError(
                    f"{name}: {values!r} names a column, and a dask array has no column names. Give the values "
                    f"themselves, for instance the series df[{values!r}]."
                )
            self._described.check_named(values, self.names or self.unnamed or (), name)
            return self._described.texts(values) if what == "groups" else self._described.weights(values)
        if isinstance(values, da.Array):
            return values
        if in_partitions(values) and values.ndim == 1:
            return values_of(values)
        if is_on_cluster(values):
            raise InputError(
                f"{name}: a {type(values).__name__} is not one value for each row. Give a dask array, or a series of "
                "the same data frame."
            )
        if self.n_rows is None:
            raise InputError(f"{name}: {_ROWS_UNKNOWN}")
        return da.from_array(as_ids(values) if what == "groups" else as_weights(values, self._role), chunks=-1)

    def _cut(self, given: Any, what: str) -> da.Array | None:
        """Return one value per row, in the chunks of the rows."""
        if given is None:
            return None
        rows, values = self._chunks.chunks[0], self._beside(given, what)
        known = self.n_rows is not None and not _unknown(values)
        if values.ndim != 1 or (known and values.shape[0] != self.n_rows):
            raise InputError(
                f"{self._role} {what}: shape {values.shape} for {self.n_rows} rows. Give one value for each row."
            )
        if known:
            return values.rechunk((rows,))
        if len(values.chunks[0]) != len(rows):
            raise InputError(f"{self._role} {what}: {_ROWS_UNKNOWN}")
        return values


def _check_kind(shape: tuple[Any, ...], dtype: np.dtype[Any], role: str) -> None:
    """Apply the checks for data in memory: number of dimensions, number of rows, numeric dtype."""
    if len(shape) == 2 and dtype.kind in NUMBERS + "O" and 0 not in shape:
        return
    known = [1 if math.isnan(size) else size for size in shape]
    checked_table(np.broadcast_to(np.zeros((), dtype), known), role)


def _unknown(array: da.Array) -> bool:
    return any(math.isnan(rows) for rows in array.chunks[0])


def _in_order(partition: Any, columns: list[Any], role: str) -> Any:
    """Return a partition with its columns in the order of the whole frame, because dask matches them by name."""
    own = list(partition.columns)
    if own == columns:
        return partition
    lacking, more = ([name for name in one if name not in other] for one, other in ((columns, own), (own, columns)))
    if lacking or more:
        unlike = [f"{what} {listed(names)}" for what, names in (("without", lacking), ("with", more)) if names]
        raise FeatureError(
            f"{role}: the partitions of the data frame have unlike columns: one is {' and '.join(unlike)}. Make the "
            "columns of all partitions the same first."
        )
    return partition[columns]


def _shared_tasks(chunks: Sequence[float], n_features: int) -> Iterator[slice]:
    """Yield slices of adjacent row chunks that share a task; a chunk of unknown size has a separate task."""
    enough = min(n_features, _ROWS_OF_A_TASK)
    start, rows = 0, 0.0
    for stop, more in enumerate(chunks, 1):
        rows += more
        if stop == len(chunks) or not rows + chunks[stop] <= enough:
            yield slice(start, stop)
            start, rows = stop, 0.0
