"""From record batches of pyarrow to numbers and text.

Tables of Apache Arrow: parquet, feather and arrow files, one record batch at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
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
from standout.io.tables import Coded, Piece, Table, as_text, open_table

# A moment that has no fraction of a second, with or without a time zone behind it.
_NO_FRACTION = r"\.0+([^0-9]|$)"
# Pages of a column are read through a buffer of this size, so that a row group need not fit in memory as a whole.
_BUFFER = 2**16
# A record batch that may be larger than this is mapped into memory: where it is not packed, it then takes no more of
# it than the rows in use.
_LARGE = 64 * 2**20


def piece_of(batch: Any, features: tuple[str, ...], about: tuple[str, ...], share: float | None) -> Piece:
    """Return some rows with these columns as numbers and those as text."""
    described = {column: coded(batch.column(column)) for column in about}
    return Piece(numbers_of(batch.select(list(features))), described, share)


def numbers_of(batch: Any) -> NDArray[np.float64]:
    """Return columns of numbers as one array, row after row; missing entries become NaN."""
    double = pa.float64()
    if any(kind != double for kind in batch.schema.types):
        columns = [column if column.type == double else column.cast(double, safe=False) for column in batch.columns]
        batch = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    numbers: NDArray[np.float64] = batch.to_tensor(null_to_nan=True).to_numpy()
    return numbers


def is_number(kind: Any) -> bool:
    """Tell whether a column of this type is fed to the maths: numbers, truth values, and columns of nothing."""
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_boolean(kind)
        or types.is_null(kind)
    )


def coded(column: Any) -> Coded:
    """Return a column of any type as text."""
    try:
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    except pa.ArrowNotImplementedError:  # lists, structs and the like
        return Coded.of(column.to_pylist())
    kind = encoded.dictionary.type
    values = _written(encoded.dictionary, kind)
    # Rows without a value point to one more value, which is none.
    codes = encoded.indices.cast(pa.int64()).fill_null(len(values)).to_numpy(zero_copy_only=False)
    return Coded(codes.astype(np.intp, copy=False), [*values, None], typed=is_number(kind))


def _written(values: Any, kind: Any) -> list[str | None]:
    if pa.types.is_temporal(kind):
        values = pc.replace_substring_regex(pc.cast(values, pa.string()), _NO_FRACTION, r"\1")
    written: list[Any] = values.to_pylist()
    return written if values.type == pa.string() else [as_text(value) for value in written]


@dataclass(frozen=True)
class Sheet:
    """What a file says of itself before its rows are read."""

    path: Path
    where: str
    kind: str
    schema: Any
    n_rows: int | None = None
    likely_rows: float | None = None


# path, columns, rows at a time, rows to leave out → batches, each with the row it begins with and how much of the file
# has been read. Batches that lie before the first row wanted need not be given.
Reader = Callable[[Path, Sequence[str], int, int], Iterator[tuple[Any, int, float]]]


def open_parquet(paths: tuple[Path, ...], shown: Path, options: Options, role: str) -> TableInMemory | Stream:
    """Return the source of one or more parquet files with the same columns."""
    return _open([_look_at_parquet(path, f"{role}: {path}") for path in paths], _parquet, shown, options, role)


def open_feather(paths: tuple[Path, ...], shown: Path, options: Options, role: str) -> TableInMemory | Stream:
    """Return the source of one or more feather or arrow files with the same columns."""
    return _open([_look_at_feather(path, f"{role}: {path}") for path in paths], _feather, shown, options, role)


def _open(sheets: Sequence[Sheet], reader: Reader, shown: Path, options: Options, role: str) -> TableInMemory | Stream:
    first, where = sheets[0], f"{role}: {shown}"
    columns = tuple(first.schema.names)
    for sheet in sheets[1:]:
        check_same(sheet.schema.names, columns, options, sheet.where, first.path.name)
    counts = [sheet.n_rows for sheet in sheets if sheet.n_rows is not None]
    likely = [sheet.likely_rows for sheet in sheets if sheet.likely_rows is not None]
    known = len(counts) == len(sheets)
    if known and sum(counts) <= 0:
        raise InputError(f"{where}: it holds no rows. Give a table with rows.")
    table = Table(
        path=shown,
        where=where,
        columns=columns,
        numeric=_numeric(sheets, options),
        pieces=partial(_pieces, sheets, reader),
        index=_index(first),
        n_rows=sum(counts) if known else None,
        likely_rows=sum(likely) if len(likely) == len(sheets) else None,
    )
    return open_table(table, options)


def _pieces(
    sheets: Sequence[Sheet], reader: Reader, features: tuple[str, ...], about: tuple[str, ...], place: tuple[int, ...]
) -> Iterator[Piece]:
    """Make one pass over all files, or over what is left of them from a file and a row of it on."""
    wanted, step = tuple(dict.fromkeys((*features, *about))), block_rows(len(features))
    first, skip = place or (0, 0)
    for number, sheet in enumerate(sheets[first:], first):
        with readable(sheet.where, sheet.kind):
            for batch, row, share in reader(sheet.path, wanted, step, skip):
                # pyarrow trusts what is written in a file: without this, damage could end the whole process.
                batch.validate(full=True)
                left = batch.slice(max(skip - row, 0))
                begins = (number, row + batch.num_rows - left.num_rows)
                yield replace(piece_of(left, features, about, (number + share) / len(sheets)), place=begins)
        skip = 0


def _numeric(sheets: Sequence[Sheet], options: Options) -> frozenset[str]:
    """Return the columns that hold numbers in every file; refuse features that do so only in some."""
    first, columns = sheets[0], tuple(sheets[0].schema.names)
    wanted = set(choose(columns, frozenset(columns), options, first.where, _index(first)).features)
    numeric = set(columns)
    for sheet in sheets:
        numeric -= {field.name for field in sheet.schema if not is_number(field.type)}
    unsure = wanted - numeric if len(sheets) > 1 else set()
    for sheet in sheets:
        for field in sheet.schema:
            if field.name in unsure and is_number(field.type) and not pa.types.is_null(field.type):
                raise NotNumbersError(
                    f"{sheet.where}: column {field.name!r} holds numbers here and not in all of the {len(sheets)} "
                    "files. Convert it in all of them, or name it in drop= of standout.read."
                )
    return frozenset(numeric)


def _index(sheet: Sheet) -> tuple[str, ...]:
    """Return the columns that pandas wrote for the names of the rows."""
    with readable(sheet.where, sheet.kind):
        written = (sheet.schema.pandas_metadata or {}).get("index_columns", ())
        return tuple(name for name in written if isinstance(name, str) and name in sheet.schema.names)


def _look_at_parquet(path: Path, where: str) -> Sheet:
    with readable(where, "parquet"):
        check_file(path, where)
        with pq.ParquetFile(path) as file:
            return Sheet(path, where, "parquet", file.schema_arrow, n_rows=file.metadata.num_rows)


def _parquet(path: Path, columns: Sequence[str], step: int, skip: int) -> Iterator[tuple[Any, int, float]]:
    with pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False) as file:
        total, seen, group = file.metadata.num_rows, 0, 0
        while group < file.num_row_groups and seen + (rows := file.metadata.row_group(group).num_rows) <= skip:
            seen, group = seen + rows, group + 1
        left = range(group, file.num_row_groups)
        for batch in file.iter_batches(batch_size=step, columns=list(columns), row_groups=left):
            seen += batch.num_rows
            if seen > skip:
                yield batch, seen - batch.num_rows, seen / total


def _look_at_feather(path: Path, where: str) -> Sheet:
    with readable(where, "feather"):
        check_file(path, where)
        with pa.OSFile(str(path)) as file:
            if file.read(4) == b"FEA1":
                raise InputError(f"{where}: this is feather of version 1. Convert it to version 2, or to parquet.")
            reader, likely = _ipc_reader(file), None
            if reader.schema.names and (count := _count(reader)):
                likely = float(count * _ipc_reader(file, [0]).get_batch(0).num_rows)
            return Sheet(path, where, "feather", reader.schema, likely_rows=likely)


def _feather(path: Path, columns: Sequence[str], step: int, skip: int) -> Iterator[tuple[Any, int, float]]:
    with pa.OSFile(str(path)) as file:
        reader = _ipc_reader(file)
        fields = [reader.schema.get_field_index(name) for name in columns]
        count, size = _count(reader), file.size()
    large = count > 0 and size / count > _LARGE
    seen = 0
    with pa.memory_map(str(path)) if large else pa.OSFile(str(path)) as file:
        for number, batch in enumerate(_ipc_batches(_ipc_reader(file, None if large else fields)), 1):
            share = number / count if count else file.tell() / size
            batch = batch.select(list(columns))
            for start in range(0, batch.num_rows, step):
                part = batch.slice(start, step)
                seen += part.num_rows
                if seen > skip:
                    yield part, seen - part.num_rows, share


def _count(reader: Any) -> int:
    """Return the number of batches, which only the file format knows; 0 for the stream format."""
    return getattr(reader, "num_record_batches", 0)


def _ipc_reader(file: Any, fields: Sequence[int] | None = None) -> Any:
    """Open the file format or the stream format, whichever it is."""
    options = ipc.IpcReadOptions(included_fields=fields)
    file.seek(0)
    whole = file.read(6) == b"ARROW1"
    file.seek(0)
    return ipc.open_file(file, options=options) if whole else ipc.open_stream(file, options=options)


def _ipc_batches(reader: Any) -> Iterator[Any]:
    return map(reader.get_batch, range(_count(reader))) if hasattr(reader, "get_batch") else iter(reader)
