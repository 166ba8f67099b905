"""Parquet, feather and arrow files, read one record batch at a time.

Files are read with ``ParquetFile.iter_batches`` and ``pyarrow.ipc``. A scanner of ``pyarrow.dataset`` decodes a whole
row group at once (600 MB for a row group of 400 MB, against 70 MB), does not read the stream format of arrow, and has
no row positions to resume from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import ipc
from pyarrow import parquet as pq

from standout.errors import InputError, NotNumbersError
from standout.io.containers import check_file, readable
from standout.io.options import Options, check_same, choose
from standout.io.source import block_rows
from standout.io.stream import Stream, TableInMemory
from standout.io.tables import Coded, RowBatch, Table, as_text, open_table

# A time without a fraction of a second, with or without a time zone after it.
_NO_FRACTION = r"\.0+([^0-9]|$)"
# Column chunks are read through a buffer of this size, so that a row group need not fit in memory.
_BUFFER_BYTES = 2**16
# Record batches larger than this are memory-mapped: uncompressed ones then take only the memory of the rows in use.
_MAP_BYTES = 64 * 2**20


def numbers_of(batch: Any) -> NDArray[np.float64]:
    """Return numeric columns as one array in row order; missing entries become NaN."""
    double = pa.float64()
    if any(kind != double for kind in batch.schema.types):
        columns = [column if column.type == double else column.cast(double, safe=False) for column in batch.columns]
        batch = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    numbers: NDArray[np.float64] = batch.to_tensor(null_to_nan=True).to_numpy()
    return numbers


def is_number(kind: Any) -> bool:
    """Return whether columns of this type can be features: numbers, booleans, and columns without any value."""
    types = pa.types
    tests = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null)
    return any(test(kind) for test in tests)


def coded(column: Any) -> Coded:
    """Return a column of any type as text."""
    try:
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    except pa.ArrowNotImplementedError:  # lists, structs and similar types
        return Coded.of(column.to_pylist())
    values, kind = encoded.dictionary, encoded.dictionary.type
    if pa.types.is_temporal(kind):
        values = pc.replace_substring_regex(pc.cast(values, pa.string()), _NO_FRACTION, r"\1")
    texts = values.to_pylist() if values.type == pa.string() else [as_text(value) for value in values.to_pylist()]
    # Rows without a value refer to an additional entry, None.
    codes = encoded.indices.cast(pa.int64()).fill_null(len(texts)).to_numpy(zero_copy_only=False)
    return Coded(codes.astype(np.intp, copy=False), [*texts, None], typed=is_number(kind))


@dataclass(frozen=True)
class _File:
    """The schema of a file, and how to read it.

    ``read(path, columns, step, skip)`` yields batches of at most ``step`` rows, each with the position of its first
    row and the share of the file read so far. Batches that lie before row ``skip`` may be left out.
    """

    path: Path
    location: str
    kind: str
    schema: Any
    read: Callable[[Path, Sequence[str], int, int], Iterator[tuple[Any, int, float]]]
    n_rows: int | None = None
    estimated_rows: float | None = None


def open_parquet(paths: tuple[Path, ...], shown: Path, options: Options, role: str) -> TableInMemory | Stream:
    """Return the source of one or more parquet files with the same columns."""
    return _open([_inspect_parquet(path, f"{role}: {path}") for path in paths], shown, options, role)


def open_feather(paths: tuple[Path, ...], shown: Path, options: Options, role: str) -> TableInMemory | Stream:
    """Return the source of one or more feather or arrow files with the same columns."""
    return _open([_inspect_feather(path, f"{role}: {path}") for path in paths], shown, options, role)


def _open(files: Sequence[_File], shown: Path, options: Options, role: str) -> TableInMemory | Stream:
    first, location = files[0], f"{role}: {shown}"
    columns = tuple(first.schema.names)
    for file in files[1:]:
        check_same(file.schema.names, columns, options, file.location, first.path.name)
    with readable(first.location, first.kind):  # pandas records the columns that hold its index
        recorded = (first.schema.pandas_metadata or {}).get("index_columns", ())
        index = tuple(name for name in recorded if isinstance(name, str) and name in columns)
    counts = [file.n_rows for file in files if file.n_rows is not None]
    estimates = [file.estimated_rows for file in files if file.estimated_rows is not None]
    known = len(counts) == len(files)
    if known and sum(counts) <= 0:
        raise InputError(f"{location}: it has no rows. Give a table with rows.")
    table = Table(
        path=shown,
        location=location,
        columns=columns,
        numeric=_numeric_columns(files, index, options),
        batches=partial(_batches, files),
        index=index,
        n_rows=sum(counts) if known else None,
        estimated_rows=sum(estimates) if len(estimates) == len(files) else None,
    )
    return open_table(table, options)


def _batches(
    files: Sequence[_File], features: tuple[str, ...], metadata: tuple[str, ...], position: tuple[int, ...]
) -> Iterator[RowBatch]:
    """Make one pass over all files, starting at a file and one of its rows."""
    columns, step = tuple(dict.fromkeys((*features, *metadata))), block_rows(len(features))
    first, skip = position or (0, 0)
    for number, file in enumerate(files[first:], first):
        with readable(file.location, file.kind):
            for batch, row, share in file.read(file.path, columns, step, skip):
                batch.validate(full=True)  # pyarrow does not check files: invalid offsets would crash the process
                rest = batch.slice(max(skip - row, 0))
                yield RowBatch(
                    numbers_of(rest.select(list(features))),
                    {column: coded(rest.column(column)) for column in metadata},
                    (number + share) / len(files),
                    (number, row + batch.num_rows - rest.num_rows),
                )
        skip = 0


def _numeric_columns(files: Sequence[_File], index: tuple[str, ...], options: Options) -> frozenset[str]:
    """Return the columns that are numeric in every file; features that are so only in some are an error."""
    columns = tuple(files[0].schema.names)
    wanted = set(choose(columns, frozenset(columns), options, files[0].location, index).features)
    numeric = set(columns)
    for file in files:
        numeric -= {field.name for field in file.schema if not is_number(field.type)}
    mixed = wanted - numeric if len(files) > 1 else set()
    for file in files:
        for field in file.schema:
            if field.name in mixed and is_number(field.type) and not pa.types.is_null(field.type):
                raise NotNumbersError(
                    f"{file.location}: column {field.name!r} is numeric in this file, but not in all {len(files)} "
                    "files. Convert it in all of them, or name it in `standout.read(X, drop=...)`."
                )
    return frozenset(numeric)


def _inspect_parquet(path: Path, location: str) -> _File:
    with readable(location, "parquet"):
        check_file(path, location)
        with pq.ParquetFile(path) as file:
            return _File(path, location, "parquet", file.schema_arrow, _read_parquet, n_rows=file.metadata.num_rows)


def _read_parquet(path: Path, columns: Sequence[str], step: int, skip: int) -> Iterator[tuple[Any, int, float]]:
    with pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
        total, seen, group = file.metadata.num_rows, 0, 0
        while group < file.num_row_groups and seen + (rows := file.metadata.row_group(group).num_rows) <= skip:
            seen, group = seen + rows, group + 1
        groups = range(group, file.num_row_groups)
        for batch in file.iter_batches(batch_size=step, columns=list(columns), row_groups=groups):
            seen += batch.num_rows
            if seen > skip:
                yield batch, seen - batch.num_rows, seen / total


def _inspect_feather(path: Path, location: str) -> _File:
    with readable(location, "feather"):
        check_file(path, location)
        with pa.OSFile(str(path)) as file:
            if file.read(4) == b"FEA1":
                raise InputError(f"{location}: feather version 1 is not supported. Convert it to version 2 or parquet.")
            reader, estimate = _ipc_reader(file), None
            if reader.schema.names and (count := _batch_count(reader)):
                estimate = float(count * _ipc_reader(file, [0]).get_batch(0).num_rows)
            return _File(path, location, "feather", reader.schema, _read_feather, estimated_rows=estimate)


def _read_feather(path: Path, columns: Sequence[str], step: int, skip: int) -> Iterator[tuple[Any, int, float]]:
    with pa.OSFile(str(path)) as file:
        reader = _ipc_reader(file)
        fields = [reader.schema.get_field_index(name) for name in columns]
        count, size = _batch_count(reader), file.size()
    mapped = count > 0 and size / count > _MAP_BYTES
    seen = 0
    with pa.memory_map(str(path)) if mapped else pa.OSFile(str(path)) as file:
        reader = _ipc_reader(file, None if mapped else fields)
        batches = map(reader.get_batch, range(count)) if hasattr(reader, "get_batch") else reader
        for number, batch in enumerate(batches, 1):
            share = number / count if count else file.tell() / size
            batch = batch.select(list(columns))
            for start in range(0, batch.num_rows, step):
                part = batch.slice(start, step)
                seen += part.num_rows
                if seen > skip:
                    yield part, seen - part.num_rows, share


def _batch_count(reader: Any) -> int:
    """Return the number of record batches, which only the file format stores; 0 for the stream format."""
    return getattr(reader, "num_record_batches", 0)


def _ipc_reader(file: Any, fields: Sequence[int] | None = None) -> Any:
    """Open a file in the file format or the stream format of arrow."""
    options = ipc.IpcReadOptions(included_fields=fields)
    file.seek(0)
    is_file_format = file.read(6) == b"ARROW1"
    file.seek(0)
    return ipc.open_file(file, options=options) if is_file_format else ipc.open_stream(file, options=options)
