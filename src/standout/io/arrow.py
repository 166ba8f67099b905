"""Tables of other libraries, read as Arrow record batches: lazy frames, queries, datasets and readers.

Each library supplies :class:`Batches`, and from there the road is that of files (:mod:`standout.io.tables`): the rows
are kept in memory if they fit into ``memory``; otherwise they are streamed, and a query runs again for every pass.

A reader can be read only once. Its batches are held as long as they fit into ``memory``; if more follow, one pass is
possible, which is enough for the moments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from standout.errors import FeatureError, InputError, StandoutError, listed
from standout.io.options import Options
from standout.io.read import open_data
from standout.io.source import ColumnView, Source, first_line
from standout.io.tables import ArrowFile, open_table


@dataclass(frozen=True)
class Batches:
    """How a table is read."""

    schema: Any
    open: Callable[[list[str], int], Iterable[Any]]  # columns and rows at once → record batches or tables, in order
    n_rows: int = 0  # 0: unknown
    first: Any = None  # the first batch of a reader, which cannot be read again


class ArrowTable(ArrowFile):
    """A table of another library, read one record batch at a time."""

    _pass: Any = None  # the one that was opened last
    reads_ahead = False  # SQLite allows only the thread that opened it, and engines prefetch by themselves

    def __init__(self, batches: Batches, kind: str, role: str):
        self.path, self.location, self.kind, self.size = Path(role), role, kind, 1
        self.schema, self.n_rows, self._open, self._first = batches.schema, batches.n_rows, batches.open, batches.first
        self._rows_before = batches.n_rows or None
        with self._readable():
            self._set_names()

    def _readable(self) -> AbstractContextManager[None]:
        return _reading(self.location, self.kind)

    def _samples(self, column: str) -> Iterable[Any]:
        return super()._samples(column) if self._first is None else [self._first]

    def _read(self, columns: list[str], step: int, skip: int) -> Iterator[tuple[Any, int, float | None]]:  # noqa: ARG002
        # End a pass that stopped at a bad value, because a connection may allow only one open result.
        getattr(self._pass, "close", lambda: None)()
        seen, opened = 0, self._open(columns, step)
        self._pass = opened
        try:
            for part in opened:
                table = pa.Table.from_batches([part]) if isinstance(part, pa.RecordBatch) else part
                for batch in table.select(columns).to_batches(max_chunksize=step):
                    yield batch, seen, (seen + batch.num_rows) / self.n_rows if self.n_rows else None
                    seen += batch.num_rows
        finally:
            getattr(opened, "close", lambda: None)()
        if self._pass is not opened or self._rows_before not in (None, seen):
            before = self._rows_before or "more"
            problem = f"this {self.kind} gave {seen} rows, and {before} before: it changed, or ended early"
            raise InputError(f"{self.location}: {problem}. Give a table that can be read again, or more `memory`.")
        self._rows_before = seen


@contextmanager
def _reading(location: str, kind: str) -> Iterator[None]:
    """Convert any error of a library into an :class:`InputError` of one line."""
    try:
        yield
    except StandoutError:
        raise
    except Exception as error:
        problem = f"this {kind} cannot be read ({first_line(error)})"
        raise InputError(
            f"{location}: {problem}. Check its data, its columns and, for a query, its connection."
        ) from error


def open_foreign(data: Any, options: Options, role: str) -> Source:
    """Return the source of a table of another library, or of any object with an Arrow C stream."""
    packages = [base.__module__.split(".")[0].removeprefix("_") for base in type(data).__mro__]
    if "narwhals" in packages:
        return open_data(data.to_native(), role, options)
    kind, once = type(data).__name__, False
    with _reading(role, kind):
        if isinstance(data, pa.RecordBatchReader) or hasattr(type(data), "__next__"):
            batches, once = _of_reader(pa.RecordBatchReader.from_stream(data), kind, options.memory, role)
        else:
            library = next(filter(_LIBRARIES.get, packages), "")
            batches = _LIBRARIES.get(library, _of_stream)(data, role)
    if once and options.missing:
        problem = f"`missing` needs several passes, and this {kind} has more rows than fit into `memory`"
        raise InputError(f"{role}: {problem} and can be read only once. {_READ_ONCE}")
    table = ArrowTable(batches, kind, role)
    nested = [field for field in batches.schema if pa.types.is_nested(field.type)]
    if nested and not table.numeric:
        problem = f"the columns {listed([field.name for field in nested])} hold nested values ({nested[0].type})"
        raise FeatureError(f"{role}: {problem}, and no column holds numbers. Give one column for each number.")
    # The only pass of a reader is not spent on an attempt to keep it in memory.
    options = replace(options, memory=0) if once else options
    source = open_table([table], table.numeric, options, Path(role), role)
    return ReadOnce(source) if once else source


# Libraries


def _of_polars(frame: Any, role: str) -> Batches:
    release = import_module("polars").__version__
    if tuple(map(int, release.split(".")[:2])) < (1, 37):  # there, a query that fails may just give fewer rows
        problem = f"a LazyFrame needs polars 1.37 or newer, and this is {release}"
        raise InputError(f"{role}: {problem}. Install it, or call collect() first.")

    def read(columns: list[str], step: int) -> Iterator[Any]:
        for part in frame.select(columns).collect_batches(chunk_size=step, lazy=True):
            yield part.to_arrow()

    return Batches(frame.collect_schema().to_frame().to_arrow().schema, read)


def _of_duckdb(relation: Any, _role: str) -> Batches:
    def reader(query: Any, step: int) -> Any:
        return query.to_arrow_reader(step) if hasattr(query, "to_arrow_reader") else query.fetch_record_batch(step)

    def read(columns: list[str], step: int) -> Any:
        return reader(relation.select(", ".join('"' + name.replace('"', '""') + '"' for name in columns)), step)

    return Batches(reader(relation.limit(0), 1).schema, read)


def _of_ibis(table: Any, _role: str) -> Batches:
    schema = table.schema().to_pyarrow()
    return Batches(schema, lambda columns, step: table.select(columns).to_pyarrow_batches(chunk_size=step))


def _of_hugging_face(dataset: Any, _role: str) -> Batches:
    rows = dataset.with_format("arrow")
    schema = next(iter(rows.iter(1))).schema if rows.features is None else rows.features.arrow_schema
    n_rows = len(dataset) if hasattr(dataset, "__len__") else 0
    return Batches(schema, lambda columns, step: rows.select_columns(columns).iter(step), n_rows)


def _of_dataset(dataset: Any, _role: str) -> Batches:
    from pyarrow.dataset import ParquetFileFormat, ParquetFragmentScanOptions

    # By default, a scanner reads many batches ahead, and all of a parquet file.
    few: dict[str, Any] = {"batch_readahead": 0, "fragment_readahead": 0, "use_threads": False}
    parts = getattr(dataset, "children", [dataset])
    if all(isinstance(getattr(part, "format", None), ParquetFileFormat) for part in parts):
        few["fragment_scan_options"] = ParquetFragmentScanOptions(pre_buffer=False)
    return Batches(dataset.schema, lambda columns, step: dataset.to_batches(columns=columns, batch_size=step, **few))


def _of_stream(table: Any, _role: str) -> Batches:
    """Return the batches of an object with an Arrow C stream, which is exported again for every pass."""
    export = pa.RecordBatchReader.from_stream
    first = [export(table)]
    return Batches(first[0].schema, lambda _columns, _step: first.pop() if first else export(table))


_LIBRARIES: dict[str, Callable[[Any, str], Batches]] = {
    "polars": _of_polars, "duckdb": _of_duckdb, "ibis": _of_ibis, "datasets": _of_hugging_face, "pyarrow": _of_dataset,
}  # fmt: skip


# Readers

_READ_ONCE = "Give more `memory`, or an object that can be read again: a table, a query or a file."


def _of_reader(reader: Any, kind: str, memory: int, role: str) -> tuple[Batches, bool]:
    """Return the batches of a reader, and whether there are more than fit into memory, to be read only once."""
    held: deque[Any] = deque()
    size = n_rows = 0
    for batch in reader:
        held.append(batch)
        size, n_rows = size + batch.nbytes, n_rows + batch.num_rows
        if size > memory:
            break
    else:
        if not n_rows:
            problem = f"this {kind} has no rows: it is empty, or was read before"
            raise InputError(f"{role}: {problem}. Give a new one, because a reader can be read only once.")
        return Batches(reader.schema, lambda _columns, _step: iter(held), n_rows), False

    def release() -> Iterator[Any]:
        while held:  # each is freed when the next is read
            yield held.popleft()
        yield from reader

    passes = [release()]

    def read(_columns: list[str], _step: int) -> Iterator[Any]:
        if not passes:
            problem = f"this {kind} has more rows than fit into `memory` and can be read only once"
            raise InputError(f"{role}: {problem}, and this needs another pass. {_READ_ONCE}")
        return passes.pop()

    return Batches(reader.schema, read, first=held[0]), True


class ReadOnce(ColumnView):
    """The rows of a reader that do not fit into memory: one pass gives their moments or their scores."""

    def __init__(self, stream: Source):
        super().__init__(stream, np.arange(stream.n_features))
        self.rereadable = False
