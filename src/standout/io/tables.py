"""Tables in files as sources: in memory where they fit, a stream of blocks otherwise; parquet, feather and arrow.

Every format supplies a :class:`TableFile`, whose batches of rows can be read as often as needed. The choice of rows
with ``where=``, the text of metadata columns, blocks of equal size and resumed passes are the same for all formats.

Files are read with ``ParquetFile.iter_batches`` and ``pyarrow.ipc``. A scanner of ``pyarrow.dataset`` decodes a whole
row group at once (600 MB for a row group of 400 MB, against 70 MB), does not read the stream format of arrow, and has
no row positions to resume from.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
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

from standout.errors import FeatureError, InputError, NotNumbersError, listed
from standout.io.options import Coded, Options, RowFilter, as_text, choose, matching
from standout.io.source import ahead, block_rows, readable, report
from standout.io.stream import Block, Layout, Stream, TableInMemory

# A table is tried in memory if its estimated number of rows exceeds what fits by at most this factor.
_ESTIMATE_ERROR = 1.5
# Vectors of up to so many elements are accepted in a file of any size.
_ANY_WIDTH = 10**5
# A time without a fraction of a second, with or without a time zone after it.
_NO_FRACTION = r"\.0+([^0-9]|$)"
# Column chunks are read through a buffer of this size, so that a row group need not fit in memory.
_BUFFER_BYTES = 2**16
# Record batches larger than this are memory-mapped: uncompressed ones then take only the memory of the rows in use.
_MAP_BYTES = 64 * 2**20

Columns = tuple[str, ...]


@dataclass(frozen=True)
class RowBatch:
    """Some rows as read from a file."""

    numbers: NDArray[np.float64]  # (n_rows, n_features)
    metadata: Mapping[str, Coded]
    share: float | None  # of the file, up to the end of this batch; None: unknown
    position: tuple[int, ...]  # where it begins, for a pass that is resumed


class TableFile(ABC):
    """A file with a table."""

    path: Path
    location: str  # the start of messages
    names: Columns  # of all columns
    index: Columns  # columns of row ids, according to the file
    size: int
    n_rows: int = 0  # if the file stores it
    estimated_rows: float = 0  # if it does not
    reads_ahead = True  # whether another thread may read it

    @abstractmethod
    def batches(self, features: Columns, metadata: Columns, position: Sequence[int]) -> Iterator[RowBatch]:
        """Read these columns, from the ``position`` of a batch of an earlier pass on (empty: from the start)."""


def check_same(files: Sequence[TableFile], options: Options) -> None:
    """Raise an error if one of several files has other columns than the first; dropped columns may differ."""
    first = dict.fromkeys(files[0].names)
    ignored = {c for pattern in options.drop for c in matching(pattern, first)}
    for file in files[1:]:
        found = frozenset(file.names) | ignored
        missing = [c for c in first if c not in found]
        extra = [c for c in file.names if c not in first] if options.columns is None else []
        if missing or extra:
            parts = [f"{listed(missing)} missing"] * bool(missing) + [f"{listed(extra)} added"] * bool(extra)
            problem = f"its columns differ from those of {files[0].path.name}: {', '.join(parts)}"
            remedy = "Give files with the same columns, or name those to use in `columns`."
            raise FeatureError(f"{file.location}: {problem}. {remedy}")


def open_table(
    files: Sequence[TableFile], numeric: Collection[str], options: Options, shown: Path, role: str
) -> TableInMemory | Stream:
    """Return files with the same columns as one source: in memory if the numbers fit, otherwise a stream.

    ``shown`` is the path as given: a file, a directory or a pattern; for data without a path, the role.
    """
    n_rows, estimated_rows = sum(file.n_rows for file in files), sum(file.estimated_rows for file in files)
    location = role if str(shown) == role else f"{role}: {shown}"
    chosen = choose(files[0].names, numeric, options, location, files[0].index)
    known = n_rows if n_rows > 0 and not options.where else None
    described = replace(options, ids=chosen.ids)
    layout = Layout(shown, chosen.features, len(chosen.features), chosen.aside, described, known)
    open_blocks = partial(_blocks, files, chosen.features, options.where, location)
    max_rows = options.memory // (8 * layout.n_features)
    expected, error = (n_rows, 1.0) if n_rows > 0 else (estimated_rows, _ESTIMATE_ERROR)
    if max_rows and (options.where or expected <= error * max_rows):
        first_rows = min(max_rows, int(1.05 * expected) + 1024)
        loaded = _load(open_blocks(None, chosen.aside), layout, max_rows, first_rows)
        if loaded is not None:
            return loaded
    return Stream(layout, open_blocks)


def _load(blocks: Iterator[Block], layout: Layout, max_rows: int, first_rows: int) -> TableInMemory | None:
    """Read a table into memory; return None as soon as it does not fit."""
    metadata: dict[str, list[NDArray[Any]]] = {column: [] for column in layout.aside}
    buffer, filled, nbytes = np.empty((first_rows, layout.n_features)), 0, 0
    for block in blocks:
        stop = filled + len(block.numbers)
        nbytes += block.numbers.nbytes
        nbytes += sum(text.nbytes + sum(map(sys.getsizeof, set(text.tolist()))) for text in block.about.values())
        if stop > max_rows or nbytes > layout.options.memory:
            return None
        if stop > len(buffer):
            larger = np.empty((min(max_rows, 2 * stop), layout.n_features))
            larger[:filled] = buffer[:filled]
            buffer = larger
        buffer[filled:stop] = block.numbers
        filled = stop
        for column, values in block.about.items():
            metadata[column].append(values)
        report(layout.path.name, filled, block.share)
    # Pages that were never written take no memory: copy only if most of the buffer is unused.
    numbers = buffer[:filled] if 2 * filled > len(buffer) else buffer[:filled].copy()
    return TableInMemory(layout, numbers, {column: np.concatenate(parts) for column, parts in metadata.items()})


def _blocks(
    files: Sequence[TableFile], features: Columns, where: Mapping[str, Columns], location: str,
    rows: int | None, columns: Columns, mark: Mapping[str, Any] | None = None,
) -> Iterator[Block]:  # fmt: skip
    """Make one pass over the rows that ``where`` selects, with the text of some columns.

    Blocks have exactly ``rows`` rows, so that results do not depend on the batches of a file; None: as they are read.
    """
    position, skip, found = ((), 0, None) if mark is None else (mark["place"], mark["rows"], mark["where"])
    row_filter = RowFilter(where, location, found)
    parts: list[Block] = []
    count = total = 0
    batches = _batches(files, features, tuple(dict.fromkeys((*columns, *where))), position)
    for batch in ahead(batches) if files[0].reads_ahead else batches:
        mask = row_filter.mask(batch.metadata)
        numbers = batch.numbers if mask is None else batch.numbers[mask]
        about = {name: batch.metadata[name].texts(mask) for name in columns}
        total += len(numbers)
        start = min(skip, len(numbers))
        skip -= start
        while start < len(numbers):
            stop = len(numbers) if rows is None else min(start + rows - count, len(numbers))
            after: Callable[..., Any] = partial(dict, place=batch.position, rows=stop, where=row_filter.state)
            part = {name: values[start:stop] for name, values in about.items()}
            parts.append(Block(numbers[start:stop], part, batch.share, after))
            count, start = count + stop - start, stop
            if rows is None or count == rows:
                yield _join(parts)
                parts, count = [], 0
    row_filter.check()
    if not total and mark is None:
        raise InputError(f"{location}: it has no rows. Give a table with rows.")
    if parts:
        yield _join(parts)


def _join(parts: list[Block]) -> Block:
    if len(parts) == 1:
        return parts[0]
    about = {column: np.concatenate([part.about[column] for part in parts]) for column in parts[0].about}
    return replace(parts[-1], numbers=np.concatenate([part.numbers for part in parts]), about=about)


def _batches(
    files: Sequence[TableFile], features: Columns, metadata: Columns, position: Sequence[int]
) -> Iterator[RowBatch]:
    """Make one pass over all files, starting at a file and a position in it."""
    first, *start = position or (0,)
    done, total = sum(file.size for file in files[:first]), sum(file.size for file in files)
    for number, file in enumerate(files[first:], first):
        for batch in file.batches(features, metadata, start):
            share = None if batch.share is None else (done + batch.share * file.size) / total
            yield replace(batch, share=share, position=(number, *batch.position))
        done, start = done + file.size, []


# Columns of pyarrow


def numbers_of(batch: Any) -> NDArray[np.float64]:
    """Return numeric columns as one array in row order; missing entries become NaN."""
    double = pa.float64()
    if any(kind != double for kind in batch.schema.types):
        columns = [column if column.type == double else column.cast(double, safe=False) for column in batch.columns]
        batch = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    numbers: NDArray[np.float64] = batch.to_tensor(null_to_nan=True).to_numpy()
    return numbers


def is_vector(kind: Any) -> bool:
    """Return whether columns of this type hold vectors, such as embeddings: lists of floating-point numbers."""
    tests = ("is_list", "is_large_list", "is_fixed_size_list")
    return any(getattr(pa.types, test)(kind) for test in tests) and pa.types.is_floating(kind.value_type)


def is_number(kind: Any) -> bool:
    """Return whether columns of this type can be features: numbers, booleans, and columns without any value."""
    tests = ("is_integer", "is_floating", "is_decimal", "is_boolean", "is_null")
    return any(getattr(pa.types, test)(kind) for test in tests)


def coded(column: Any) -> Coded:
    """Return a column of any type as text."""
    try:
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    except pa.ArrowNotImplementedError:  # lists, structs and similar types
        return Coded.of(column.to_pylist())
    values, kind = encoded.dictionary, encoded.dictionary.type
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        values = pc.replace_substring_regex(pc.cast(values, pa.string()), _NO_FRACTION, r"\1")
    texts = values.to_pylist() if values.type == pa.string() else [as_text(value) for value in values.to_pylist()]
    # Rows without a value refer to an additional entry, None.
    codes = encoded.indices.cast(pa.int64()).fill_null(len(texts)).to_numpy(zero_copy_only=False)
    return Coded(codes.astype(np.intp, copy=False), [*texts, None], typed=is_number(kind))


# Parquet, feather and arrow


class ArrowFile(TableFile):
    """A file that pyarrow reads one record batch at a time."""

    kind: str
    schema: Any

    def __init__(self, path: Path, location: str):
        self.path, self.location = path, location
        with readable(self.location, self.kind, path):
            self.size = path.stat().st_size
            self._inspect()
            self._set_names()

    def _set_names(self) -> None:
        """Set the names of the columns; a column of vectors has one for each element."""
        self.elements: dict[str, tuple[str, int]] = {}  # name → column of vectors, and place in them
        self.widths: dict[str, int] = {}  # column of vectors → their length
        names: list[str] = []
        for field in self.schema:
            width = self._width(field) if is_vector(field.type) else 0
            if width > _ANY_WIDTH + self.size:
                raise ValueError(f"{field.name!r} claims vectors of {width:,} elements in {self.size:,} bytes")
            found = {f"{field.name}[{i}]": (field.name, i) for i in range(width)}
            self.elements |= found
            self.widths[field.name] = width
            names += found or [field.name]
        self.names = tuple(names)
        self.numeric = {field.name for field in self.schema if is_number(field.type)} | set(self.elements)
        # pandas records the columns that hold its index
        recorded = (self.schema.pandas_metadata or {}).get("index_columns", ())
        self.index = tuple(name for name in recorded if isinstance(name, str) and name in self.names)

    def _readable(self) -> AbstractContextManager[None]:
        """Return the context that converts errors while rows are read."""
        return readable(self.location, self.kind)

    def _width(self, field: Any) -> int:
        """Return the length of the vectors in a column, which is that of the first; 0 if there is none."""
        if pa.types.is_fixed_size_list(field.type):
            return int(field.type.list_size)
        for batch in self._samples(field.name):
            batch.validate(full=True)
            lengths = pc.list_value_length(batch.column(field.name)).drop_null()
            if len(lengths):
                return int(lengths[0].as_py())
        return 0

    def _samples(self, column: str) -> Iterable[Any]:
        """Return batches that hold the first rows of a column."""
        return (batch for batch, *_ in self._read([column], 1, 0))

    def _numbers(self, batch: Any, features: Columns) -> NDArray[np.float64]:
        """Return columns of numbers, and elements of vectors, as one array in row order."""
        if not self.elements:
            return numbers_of(batch.select(list(features)))
        found = np.empty((batch.num_rows, len(features)))
        plain = [i for i, name in enumerate(features) if name not in self.elements]
        if plain:
            found[:, plain] = numbers_of(batch.select([features[i] for i in plain]))
        vectors: dict[str, list[tuple[int, int]]] = {}  # column → place in the result and in the vector
        for i, name in enumerate(features):
            if name in self.elements:
                column, element = self.elements[name]
                vectors.setdefault(column, []).append((i, element))
        for column, places in vectors.items():
            into, elements = np.array(places).T
            found[:, into] = self._vectors(batch.column(column), column)[:, elements]
        return found

    def _vectors(self, column: Any, name: str) -> NDArray[np.float64]:
        """Return a column of vectors as rows; a missing vector is a row of NaN."""
        width = self.widths[name]
        lengths = pc.list_value_length(column).fill_null(width).to_numpy(zero_copy_only=False)
        unlike = np.flatnonzero(lengths != width)
        if len(unlike):
            problem = f"column {name!r} holds vectors of {width} and of {lengths[unlike[0]]} values"
            remedy = f"Give vectors of one length, or leave them out with `drop={name + '[*]'!r}`"
            raise FeatureError(f"{self.location}: {problem}. {remedy}.")
        found = np.full((len(column), width), np.nan)
        values = column.drop_null().flatten().cast(pa.float64()).to_numpy(zero_copy_only=False)
        found[column.is_valid().to_numpy(zero_copy_only=False)] = values.reshape(-1, width)
        return found

    def batches(self, features: Columns, metadata: Columns, position: Sequence[int]) -> Iterator[RowBatch]:
        owners = (self.elements.get(name, (name,))[0] for name in features)
        columns, step = list(dict.fromkeys((*owners, *metadata))), block_rows(len(features))
        skip = position[0] if position else 0
        with self._readable():
            for batch, row, share in self._read(columns, step, skip):
                if row + batch.num_rows <= skip:
                    continue
                batch.validate(full=True)  # pyarrow does not check files: invalid offsets would crash the process
                rest = batch.slice(max(skip - row, 0))
                about = {column: coded(rest.column(column)) for column in metadata}
                yield RowBatch(self._numbers(rest, features), about, share, (max(row, skip),))

    def _inspect(self) -> None:
        """Set the schema, and the number of rows or an estimate of it."""
        raise NotImplementedError

    def _read(self, columns: list[str], step: int, skip: int) -> Iterator[tuple[Any, int, float | None]]:
        """Yield batches of at most ``step`` rows, their first row and the share read; rows before ``skip`` may lack."""
        raise NotImplementedError


class ParquetFile(ArrowFile):
    """A parquet file."""

    kind = "parquet"

    def _inspect(self) -> None:
        with pq.ParquetFile(self.path) as file:
            self.schema, self.n_rows = file.schema_arrow, file.metadata.num_rows

    def _read(self, columns: list[str], step: int, skip: int) -> Iterator[tuple[Any, int, float | None]]:
        with pq.ParquetFile(self.path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
            total, seen, group = file.metadata.num_rows, 0, 0
            while group < file.num_row_groups and seen + (rows := file.metadata.row_group(group).num_rows) <= skip:
                seen, group = seen + rows, group + 1
            groups = range(group, file.num_row_groups)
            for batch in file.iter_batches(batch_size=step, columns=columns, row_groups=groups):
                yield batch, seen, (seen + batch.num_rows) / total
                seen += batch.num_rows


class FeatherFile(ArrowFile):
    """A feather or arrow file, in the file format or the stream format."""

    kind = "feather"
    n_batches = 0  # stored only in the file format

    def _inspect(self) -> None:
        with pa.OSFile(str(self.path)) as file:
            if file.read(4) == b"FEA1":
                raise InputError(f"{self.location}: feather version 1 is not supported. Convert it to version 2.")
            reader = _ipc_reader(file)
            self.schema, self.n_batches = reader.schema, getattr(reader, "num_record_batches", 0)
            if self.schema.names and self.n_batches:
                self.estimated_rows = self.n_batches * _ipc_reader(file, [0]).get_batch(0).num_rows

    def _read(self, columns: list[str], step: int, skip: int) -> Iterator[tuple[Any, int, float | None]]:  # noqa: ARG002
        fields = [self.schema.get_field_index(name) for name in columns]
        mapped = self.n_batches > 0 and self.size / self.n_batches > _MAP_BYTES
        seen = 0
        with pa.memory_map(str(self.path)) if mapped else pa.OSFile(str(self.path)) as file:
            reader = _ipc_reader(file, None if mapped else fields)
            batches = map(reader.get_batch, range(self.n_batches)) if hasattr(reader, "get_batch") else reader
            for number, batch in enumerate(batches, 1):
                share = number / self.n_batches if self.n_batches else file.tell() / self.size
                batch = batch.select(columns)
                for start in range(0, batch.num_rows, step):
                    part = batch.slice(start, step)
                    yield part, seen, share
                    seen += part.num_rows


def _ipc_reader(file: Any, fields: Sequence[int] | None = None) -> Any:
    """Open a file in the file format or the stream format of arrow."""
    options = ipc.IpcReadOptions(included_fields=fields)
    file.seek(0)
    is_file_format = file.read(6) == b"ARROW1"
    file.seek(0)
    return ipc.open_file(file, options=options) if is_file_format else ipc.open_stream(file, options=options)


def _open_arrow(
    kind: type[ArrowFile], paths: tuple[Path, ...], shown: Path, options: Options, role: str
) -> TableInMemory | Stream:
    """Return the source of one or more files with the same columns."""
    given = [shown] if len(paths) == 1 else paths
    files = [kind(path, f"{role}: {name}") for path, name in zip(paths, given, strict=True)]
    check_same(files, options)
    return open_table(files, _numeric_columns(files, options), options, shown, role)


open_parquet = partial(_open_arrow, ParquetFile)
open_feather = partial(_open_arrow, FeatherFile)


def _numeric_columns(files: Sequence[ArrowFile], options: Options) -> set[str]:
    """Return the columns that are numeric in every file; features that are so only in some are an error."""
    first = files[0]
    features = set(choose(first.names, first.names, options, first.location, first.index).features)
    numeric = set(first.names).intersection(*(file.numeric for file in files))
    mixed = features - numeric
    for file in files:
        for field in file.schema:
            if field.name in mixed and is_number(field.type) and not pa.types.is_null(field.type):
                problem = f"column {field.name!r} is numeric in this file, but not in all {len(files)} files"
                remedy = "Convert it in all of them, or name it in `standout.read(X, drop=...)`."
                raise NotNumbersError(f"{file.location}: {problem}. {remedy}")
    return numeric
