"""Dask arrays and data frames: functions are sent to the chunks, and only small results come back.

Inside, a collection is a dask array of chunks as they are: arrays, sparse matrices or frames. Only
:mod:`standout.sources.dask_chunks` looks into a chunk, on the worker that holds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import dask
import dask.array as da
import numpy as np
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray

from standout.errors import FeatureError, InputError, listed
from standout.sources import is_on_cluster
from standout.sources.checks import NUMBERS, checked_table
from standout.sources.dask_about import RowColumns, chunks_of, in_partitions, values_of
from standout.sources.dask_chunks import Opener, map_chunk, reduce_part
from standout.sources.dask_graph import computed, warn_of_embedded_data
from standout.sources.files.columns import choose
from standout.sources.files.options import Options
from standout.sources.files.source import Layout
from standout.sources.files.tables import warn_aside
from standout.sources.memory import FrameSource, check_names, may_be_numbers
from standout.sources.source import Part, Result, Source
from standout.sources.weighted import as_ids, as_weights

# Adding up this many rows takes several times as long as merging two results: smaller chunks share a task.
_ROWS_OF_A_TASK = 1024


def open_collection(data: Any, role: str, described: RowColumns | None = None) -> DaskSource:
    """Return the source of a dask array or data frame, and of the columns by which its rows are described."""
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
    """Return the source of a dask data frame some of whose columns are features, and others describe rows."""
    if not hasattr(type(data), "columns"):
        raise InputError(
            f"{role}: columns are chosen by name, and a dask {type(data).__name__} has no column names. Give a data "
            "frame, or choose the columns first."
        )
    import narwhals.stable.v2 as nw

    check_names(list(data.columns), role)
    empty = nw.from_native(data._meta, eager_only=True)
    place = {str(name): name for name in data.columns}
    numeric = {str(name) for name, kind in empty.schema.items() if may_be_numbers(kind, empty, name)}
    chosen = choose(list(place), numeric, options, role)
    described = RowColumns(data, options.label, options.groups, options.ids)
    source = open_collection(data[[place[name] for name in chosen.features]], role, described)
    if options.columns is None:
        warn_aside(Layout(Path(role), source.names, source.n_features, chosen.aside, chosen.unasked))
    return source


class DaskSource:
    """The rows of a dask array or data frame, in chunks of any size and kind."""

    def __init__(
        self,
        chunks: da.Array,
        role: str,
        names: tuple[str, ...] | None = None,
        unnamed: tuple[Any, ...] | None = None,
        described: RowColumns | None = None,  # of an array nothing but the numbers is known
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

    # A pass over a column each: made when somebody asks, and not for a fit.

    @cached_property
    def labels(self) -> NDArray[Any] | None:
        """The label of each row."""
        return self._fetched("label")

    @cached_property
    def groups(self) -> NDArray[Any] | None:
        """The group of each row."""
        return self._fetched("groups")

    @cached_property
    def row_ids(self) -> NDArray[Any] | None:
        """The id of each row."""
        return self._fetched("ids")

    def blocks(self, rows: int) -> Iterator[NDArray[Any]]:
        """Fetch the rows, one chunk of rows after the other."""
        for pieces in self._chunks.__dask_keys__():
            key = (f"standout-fetch-{uuid4().hex}", 0)
            yield from self._run({key: (self._opener, [pieces])}, key, [self._chunks]).blocks(rows)

    def mapped(self, function: Callable[[Source], NDArray[Any]], names: Sequence[str]) -> da.Array:
        """Return ``function`` of the rows as a dask array that is not computed yet."""
        return da.blockwise(
            map_chunk,
            "ik",
            self._chunks,
            "ij",
            dask.delayed(function, pure=False),  # under one key, whatever the number of chunks
            None,
            opener=self._opener,
            new_axes={"k": len(names)},
            concatenate=False,
            align_arrays=False,
            dtype=np.float64,
            meta=np.empty((0, 0)),
        )

    def reduced(
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

    def _run(self, tasks: dict[Any, Any], key: tuple[str, int], held: Sequence[da.Array]) -> Any:
        """Compute one task of a graph, as the user's own scheduler or cluster would."""
        graph = HighLevelGraph.from_collections(key[0], tasks, dependencies=held)
        # As an array, because dask then fuses opening a chunk with what is done to it.
        return computed(da.Array(graph, key[0], chunks=((1,),), dtype=object), self._role)

    def _fetched(self, option: str) -> NDArray[Any] | None:
        """Bring the column named by an option of ``read`` here, as text."""
        column = getattr(self._described, option, None)
        if self._described is None or column is None:
            return None
        return np.asarray(computed(self._described.texts(column), self._role), dtype=object)

    def _beside(self, values: Any, what: str) -> da.Array:
        """Return one value for each row as a dask array in any chunks."""
        told = f"{self._role} {what}"
        if isinstance(values, str):
            if self._described is None:
                raise InputError(
                    f"{told}: {values!r} names a column, and a dask array has no column names. Give the values "
                    f"themselves, for instance the series df[{values!r}]."
                )
            self._described.check_named(values, self.names or self.unnamed or (), told)
            return self._described.texts(values) if what == "groups" else self._described.weights(values)
        if isinstance(values, da.Array):
            return values
        if in_partitions(values) and values.ndim == 1:
            return values_of(values)
        if is_on_cluster(values):
            raise InputError(
                f"{told}: a {type(values).__name__} is not one value for each row. Give a dask array, or a series of "
                "the same data frame."
            )
        if self.n_rows is None:
            raise InputError(f"{told}: {_ROWS_UNKNOWN}")
        return da.from_array(as_ids(values) if what == "groups" else as_weights(values, self._role), chunks=-1)

    def _cut(self, given: Any, what: str) -> da.Array | None:
        """Return one value for each row, in the chunks of the rows."""
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


_ROWS_UNKNOWN = (
    "how many rows each chunk has is not known, so the values cannot be cut to the chunks. Call compute_chunk_sizes() "
    "on the dask array first (make one of a data frame with to_dask_array(lengths=True)), or give a dask array in the "
    "same chunks or a series of the same data frame."
)


def _check_kind(shape: tuple[Any, ...], dtype: np.dtype[Any], role: str) -> None:
    """Refuse what would be refused in memory: another number of dimensions, no rows, no numbers."""
    if len(shape) == 2 and dtype.kind in NUMBERS + "O" and 0 not in shape:
        return
    known = [1 if math.isnan(size) else size for size in shape]
    checked_table(np.broadcast_to(np.zeros((), dtype), known), role)


def _unknown(array: da.Array) -> bool:
    return any(math.isnan(rows) for rows in array.chunks[0])


def _in_order(partition: Any, columns: list[Any], role: str) -> Any:
    """Return a partition with its columns in the order of the whole frame: dask goes by their names."""
    own = list(partition.columns)
    if own == columns:
        return partition
    lacking, more = ([name for name in one if name not in other] for one, other in ((columns, own), (own, columns)))
    if lacking or more:
        told = [f"{what} {listed(names)}" for what, names in (("without", lacking), ("with", more)) if names]
        raise FeatureError(
            f"{role}: the partitions of the data frame have unlike columns: one is {' and '.join(told)}. Make the "
            "columns of all partitions the same first."
        )
    return partition[columns]


def _shared_tasks(chunks: Sequence[float], n_features: int) -> Iterator[slice]:
    """Yield runs of neighbouring chunks of rows that share a task; a chunk of unknown size has its own."""
    enough = min(n_features, _ROWS_OF_A_TASK)
    start, rows = 0, 0.0
    for stop, more in enumerate(chunks, 1):
        rows += more
        if stop == len(chunks) or not rows + chunks[stop] <= enough:
            yield slice(start, stop)
            start, rows = stop, 0.0
