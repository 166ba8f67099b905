"""Matrices in files as sources: in memory where they fit, on disk otherwise.

Every array format supplies a :class:`MatrixReader`, which reads some rows or columns; the rest is the same for all.
Headers of damaged or hostile files claim any size, so claims are compared with the size of the file before memory is
allocated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from standout.errors import ColumnError, InputError, NotNumbersError, did_you_mean, listed
from standout.io.memory import NUMBERS, sparse_from_parts
from standout.io.options import Coded, Options, RowFilter, choose
from standout.io.source import BLOCK_BYTES, Index, Names, RowSource, Source, ahead, block_rows_of, readable, report
from standout.io.stream import Block, Layout, SparseInMemory, Stream, TableInMemory

Open = Callable[[], AbstractContextManager[Any]]  # opens an array, or a group of arrays
Column = Callable[[], NDArray[Any]]  # reads one metadata column

# Bytes of one read: adjacent rows of compressed chunks, or the next columns of all rows.
_READ_BYTES = 64 * 2**20
# Skipping fewer bytes than this costs more than reading them.
GAP_BYTES = 256 * 2**10
_CHUNK_BYTES = 2**10
# Rows of a sparse matrix are read in parts of about this size.
_SPARSE_BYTES = 8 * 2**20
CSR_ARRAYS = ("data", "indices", "indptr")
# Arrays of text with one of these names hold feature names.
FEATURE_NAMES = ("names", "feature_names", "columns", "features")
# Compressed data may expand by this factor. Below the second limit (bytes) any claim is accepted.
_MAX_EXPANSION = 10_000
_ANY_CLAIM = 10**7
_PICKLES = "contains Python objects, which are stored as pickles. Loading a pickle can run any code, so it is not read."


@dataclass(frozen=True)
class Member:
    """Shape and type of an array in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    text: bool = False

    def is_numeric(self, dimensions: int = 2) -> bool:
        """Return whether it is an array of numbers with so many dimensions."""
        return len(self.shape) == dimensions and self.dtype.kind in NUMBERS

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return math.prod(self.shape) * self.dtype.itemsize


def check_no_key(key: str | None, location: str, kind: str) -> None:
    """Raise an error for ``key=`` where a file holds a single array."""
    if key is not None:
        raise InputError(f"{location}: `key={key!r}` was given, but {kind} holds a single array. Leave `key` out.")


def check_matrix(member: Member, location: str, cube: bool = False) -> None:
    """Raise an error unless an array is 2-D (a cube: 3-D), numeric and not empty."""
    shape, kind = member.shape, member.dtype.kind
    if kind == "O" and not member.text:
        problem = f"it {_PICKLES} Convert it to numbers, for instance with array.astype(float), and save it again."
    elif kind == "c":
        problem = "complex numbers are not supported. Use the real and the imaginary part as two features."
    elif member.dtype.names is not None:
        problem = f"it is a structured array ({listed(member.dtype.names)}). Load it as a data frame, and give that."
    elif kind not in NUMBERS:
        found = "text" if member.text else member.dtype
        problem = f"values of type {found} are not numbers. Convert them to numbers, or give another array."
    elif len(shape) != 2 + cube:
        remedy = "Reshape it to rows × features; if it is height × width × bands, use `standout.read(X, cube=True)`"
        remedy = "Leave `cube` out, which is for height × width × bands" if cube else remedy
        raise InputError(f"{location}: its shape is {shape}. {remedy}.")
    elif min(shape) < 1:
        lacking = "no rows" if shape[0] < 1 else "no features"
        raise InputError(f"{location}: its shape is {shape}: {lacking}. Give at least one row and one feature.")
    else:
        return
    raise NotNumbersError(f"{location}: {problem}")


def check_size(claimed: int, available: int, location: str) -> None:
    """Raise an error for an array that claims far more bytes than ``available`` bytes can expand to."""
    if claimed > _ANY_CLAIM + _MAX_EXPANSION * available:
        problem = f"its header claims {claimed:,} bytes, but the file has only {available:,}. It is damaged"
        raise InputError(f"{location}: {problem}: give an intact copy.")


def check_sparse_shape(shape: Sequence[int], available: int, location: str) -> None:
    """Raise an error for a sparse matrix with far more rows or columns than ``available`` bytes can fill."""
    if len(shape) != 2 or min(shape) < 1:
        check_matrix(Member(tuple(shape), np.dtype(float)), location)
    if max(shape) > 10**5 + 10 * available:
        problem = f"its header claims {shape[0]:,} rows and {shape[1]:,} columns in {available:,} bytes. It is damaged"
        raise InputError(f"{location}: {problem}: give an intact copy.")


def check_sparse_parts(group: Any, shape: Sequence[int], available: int, location: str) -> None:
    """Raise an error unless the arrays of a stored CSR or CSC matrix can have this shape in ``available`` bytes."""
    check_sparse_shape(shape, available, location)
    check_matrix(Member(tuple(shape), group["data"].dtype), location)
    for part in CSR_ARRAYS:
        check_size(int(group[part].nbytes), available, location)


def check_fits(nbytes: int, memory: int, location: str, reason: str, remedy: str) -> None:
    """Raise an error for data that cannot be read in blocks and take more than ``memory`` bytes."""
    if nbytes > memory:
        raise InputError(
            f"{location}: {reason}, so it must fit in memory, and it takes {nbytes / 1e6:,.0f} MB. Use "
            f"`standout.read(..., memory='{math.ceil(nbytes / 1e6)}MB')`, or {remedy}."
        )


def size_on_disk(path: Path) -> int:
    """Return the size of a file, or of all files in a directory."""
    if path.is_file():
        return path.stat().st_size
    parts = [part for part in path.rglob("*") if not part.is_dir()]
    if not all(part.is_file() for part in parts):
        raise ValueError("its directory contains a device or a named pipe")
    return sum(part.stat().st_size for part in parts)


def choose_array(members: Mapping[str, Member], key: str | None, location: str, cube: bool = False) -> str:
    """Return the name of the array that holds the rows: ``key``, or the only 2-D (a cube: 3-D) array of numbers."""
    tables = [name for name, member in members.items() if member.is_numeric(2 + cube)]
    wanted = "three-dimensional" if cube else "two-dimensional"
    candidates, name = list(members), None if key is None else key.strip("/")
    if name is not None:
        if name in members:
            return name
        problem = f"no array {key!r}.{did_you_mean(name, members)}"
    elif len(tables) == 1 or len(members) == 1:  # check_matrix reports what is wrong with a single array
        return (tables or candidates)[0]
    elif not tables:
        problem = f"no {wanted} numeric array ({'height × width × bands' if cube else 'rows × features'})."
    else:
        problem, candidates = f"{len(tables)} {wanted} numeric arrays.", tables
    shown = listed([f"{name} {members[name].shape}" for name in candidates], most=8)
    remedy = f"Choose one with `key`: {shown}." if shown else "Give a file that has one."
    raise InputError(f"{location}: it has {problem} {remedy}")


def sibling_columns(
    members: Mapping[str, Member], chosen: str, read: Callable[[str], NDArray[Any]], location: str
) -> tuple[Names, dict[str, Column]]:
    """Return feature names and row metadata (1-D arrays with one entry a row) from the group of the chosen array.

    Metadata of a cube may also be images of its height and width. Feature names that do not fit are an error. If they
    were ignored, columns would be matched by position.
    """
    *image, n_features = members[chosen].shape
    n_rows = math.prod(image)
    names: Names = None
    metadata: dict[str, Column] = {}
    for path, member in members.items():
        group, _, name = path.rpartition("/")
        if path == chosen or group != chosen.rpartition("/")[0]:
            continue
        if name in FEATURE_NAMES and member.text and member.shape == (n_features,):
            names = as_names(_complete(read, path, n_features))
            continue
        if name in FEATURE_NAMES:
            where = f"{location}: {path!r} should hold feature names"
            remedy = "Give one text for each feature: save them with .astype(str)."
            if member.dtype.kind == "O" and not member.text:
                raise NotNumbersError(f"{where}, but {_PICKLES} {remedy}")
            if member.shape != (n_rows,) and (member.text or member.shape == (n_features,)):
                found = f"its shape is {member.shape} for {n_features} features, and its type is {member.dtype}"
                raise InputError(f"{where}, but {found}. {remedy}")
        if member.shape in ((n_rows,), tuple(image)) and (member.text or member.dtype.kind in NUMBERS):
            metadata[name] = partial(_complete, read, path, n_rows)
    return names, metadata


def _complete(read: Callable[[str], NDArray[Any]], path: str, count: int) -> NDArray[Any]:
    """Return the values of an array, which must be as many as its description claims."""
    found = decode(read(path)).ravel()
    if len(found) != count:
        raise ValueError(f"{path} has {len(found)} values instead of {count}")
    return found


def as_names(values: Any) -> tuple[str, ...]:
    """Return names as a tuple of text."""
    return tuple(str(value) for value in decode(values).tolist())


def decode(column: Any) -> NDArray[Any]:
    """Return a column as an array: bytes as text, categories by name, all other values unchanged."""
    values = np.asarray(column)
    if values.dtype.kind in NUMBERS + "U":
        return values
    decoded = [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in values.tolist()]
    return np.array(decoded, dtype=object)


class MatrixReader:
    """Read any rows or columns of a matrix; with ``random_access = False``, rows only in order, while it is opened."""

    chunk_rows = 1  # rows that are best read together
    random_access = True

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]):
        self.shape, self.dtype = (shape[0], shape[1]), dtype
        self.nbytes = shape[0] * shape[1] * dtype.itemsize  # in memory, as stored

    def rows(self, start: int, stop: int) -> Any:
        """Return rows ``start`` to ``stop`` as an array or a CSR matrix."""
        raise NotImplementedError

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        """Return columns ``start`` to ``stop`` of every row as an array: by default in a pass over the rows."""
        n_rows, found = self.shape[0], np.empty((self.shape[0], stop - start), self.dtype)
        step = max(1, _READ_BYTES // 8 * n_rows // max(self.nbytes, 1))
        with self.opened() as reader:
            for first in range(0, n_rows, step):
                last = min(first + step, n_rows)
                found[first:last] = _dense(reader.rows(first, last)[:, start:stop])
        return found

    @contextmanager
    def opened(self) -> Iterator[MatrixReader]:
        """Yield the reader for a pass over the rows."""
        yield self


class ChunkedReader(MatrixReader):
    """An h5py or zarr array. It is opened for every read, so no file stays open and the reader can be pickled.

    The rows of a 3-D array, a cube of height × width × bands, are its pixels. With ``reverse``, the axes are stored in
    reverse order: features × rows.
    """

    def __init__(self, open_array: Open, array: Any, reverse: bool = False):
        order = -1 if reverse else 1
        *image, n_features = array.shape[::order]
        super().__init__((math.prod(image), n_features), array.dtype)
        if array.chunks:  # HDF5 needs memory for each chunk that it reads, however small
            self.nbytes = max(
                self.nbytes, _CHUNK_BYTES * math.prod(map(math.ceil, np.divide(array.shape, array.chunks)))
            )
        self._open, self._reverse, self._width = open_array, reverse, math.prod(image[1:])  # width of an image, or 1
        # A piece of every stored line is read for some rows of a reversed array: many rows cost as little as one.
        together = array.chunks[::order][0] if array.chunks else GAP_BYTES // array.dtype.itemsize if reverse else 1
        self.chunk_rows = max(1, together) * self._width

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        first, last = start // self._width, -(-stop // self._width)
        with self._open() as array:
            found = np.asarray(array[..., first:last]).T if self._reverse else np.asarray(array[first:last])
        return found.reshape(-1, self.shape[1])[start - first * self._width : stop - first * self._width]

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        with self._open() as array:
            found = np.asarray(array[start:stop]).T if self._reverse else np.asarray(array[..., start:stop])
        return found.reshape(-1, stop - start)


class CSRReader(MatrixReader):
    """A CSR matrix on disk: its row pointers are in memory, data and indices are read for the requested rows.

    Indices are checked at every read: scipy does not, and an invalid one would write outside the array.
    """

    def __init__(self, open_group: Open, group: Any, shape: tuple[int, int]):
        stored = group["data"].dtype
        # scipy supports neither half precision nor the other byte order.
        super().__init__(shape, np.dtype(np.float32) if stored == np.float16 else stored.newbyteorder("="))
        self._open, self._pointers = open_group, np.asarray(group["indptr"][...], dtype=np.int64)
        count, indices = group["data"].shape[0], group["indices"]
        if (
            len(self._pointers) != shape[0] + 1
            or self._pointers[0] != 0
            or self._pointers[-1] > min(count, indices.shape[0])
            or (np.diff(self._pointers) < 0).any()
        ):
            raise ValueError("its row pointers are invalid")
        self.nbytes = count * (self.dtype.itemsize + indices.dtype.itemsize) + self._pointers.nbytes
        self.chunk_rows = max(1, _SPARSE_BYTES * shape[0] // self.nbytes)

    def rows(self, start: int, stop: int) -> Any:
        first, last = self._pointers[start], self._pointers[stop]
        with self._open() as group:
            data = np.asarray(group["data"][first:last], dtype=self.dtype)
            indices = np.asarray(group["indices"][first:last])
        shape = (stop - start, self.shape[1])
        parts = {"data": data, "indices": indices, "indptr": self._pointers[start : stop + 1] - first}
        return sparse_from_parts("csr", parts, shape)


class InMemoryReader(MatrixReader):
    """An array or CSR matrix in memory, which is always loaded as a whole."""

    def __init__(self, matrix: Any):
        super().__init__(matrix.shape, matrix.dtype)
        self.matrix, self.nbytes = matrix, 0  # in addition to the matrix itself

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        return _dense(self.matrix[:, start:stop])


@dataclass(frozen=True)
class MatrixFile:
    """A matrix with its feature names and row metadata."""

    path: Path
    kind: str
    reader: MatrixReader
    names: Names = None
    metadata: Mapping[str, Column] = field(default_factory=dict)
    aside: tuple[str, ...] = ()  # metadata columns that are part of the source without being requested
    ids: str | None = None  # the default column of row ids
    deferred: bool = False  # whether metadata columns are read on first use, also if the matrix is in memory
    subset: Index | None = None  # positions of the columns that ``names`` describes; None: all


def chosen_part(
    matrix: MatrixFile, options: Options, location: str
) -> tuple[Index | None, Names, dict[str, Column], Index | None]:
    """Return positions (None: all) and names of the requested features, the metadata, and the rows (None: all)."""
    with readable(location, matrix.kind):
        columns, names = _choose_features(matrix, options, location)
        metadata = _requested_metadata(matrix, options, location)
        return columns, names, metadata, _choose_rows(metadata, options, location)


def as_source(matrix: MatrixFile, options: Options, role: str) -> Source:
    """Return the requested rows and columns of a matrix: in memory where they fit, on disk otherwise."""
    location = f"{role}: {matrix.path}"
    reader = matrix.reader
    if options.cube:  # the pixels are numbered row by row, so that scores can be put back into the image
        pixels: dict[str, Column] = {"pixel": partial(np.arange, reader.shape[0])}
        matrix = replace(matrix, metadata={**matrix.metadata, **pixels}, ids="pixel")
    columns, names, metadata, rows = chosen_part(matrix, options, location)
    ids = (matrix.ids,) if matrix.ids else ()
    layout = Layout(
        matrix.path,
        names,
        n_features=reader.shape[1] if columns is None else len(columns),
        aside=tuple(dict.fromkeys((*options.roles, *ids, *matrix.aside))),
        options=replace(options, ids=options.ids or matrix.ids),
        n_rows=reader.shape[0] if rows is None else len(rows),
    )
    kind = OnDisk if reader.random_access else SequentialMatrix
    source = kind(location, layout, matrix, metadata, rows, columns)
    return source.load() if source.nbytes <= options.memory else source


def _choose_features(matrix: MatrixFile, options: Options, location: str) -> tuple[Index | None, Names]:
    """Return positions (None: all) and names of the requested features."""
    names = matrix.names
    if names is None:
        for argument, given in (("columns", options.columns), ("drop", options.drop)):
            if given:
                problem = f"{argument}={listed(given)} was given, but its columns have no names"
                remedy = f"Leave {argument}= out, or give a file or data frame with names."
                raise InputError(f"{location}: {problem}. {remedy}")
        return matrix.subset, None
    # A feature that is requested as metadata is dropped, unless a metadata column has the same name.
    taken = [column for column in options.roles if column in names and column not in matrix.metadata]
    plain = replace(options, label=None, groups=None, ids=None, where={}, drop=(*options.drop, *taken))
    chosen = choose(names, frozenset(names), plain, location).features
    if chosen == names:
        return matrix.subset, names
    position = {name: i for i, name in enumerate(names)}
    index = np.array([position[name] for name in chosen], dtype=np.intp)
    return index if matrix.subset is None else matrix.subset[index], chosen


def _requested_metadata(matrix: MatrixFile, options: Options, location: str) -> dict[str, Column]:
    """Return the readers of all metadata columns, including features that are requested as metadata."""
    known = dict(matrix.metadata)
    for column, argument in options.roles.items():
        if column in matrix.metadata:
            continue
        if matrix.names is None or column not in matrix.names:
            remedy = f" The file has no metadata columns: leave {argument}= out, or give a file that has them."
            if matrix.metadata:
                candidates = list(matrix.metadata)
                remedy = f"{did_you_mean(column, candidates)} Use one of its metadata columns: {listed(candidates)}."
            raise ColumnError(f"{location}: {argument} column {column!r} does not exist.{remedy}", argument, column)
        index = matrix.names.index(column)
        position = index if matrix.subset is None else int(matrix.subset[index])
        known[column] = partial(_column, matrix.reader, position)
    return known


def _choose_rows(metadata: Mapping[str, Column], options: Options, location: str) -> Index | None:
    """Return the positions of the rows that ``where=`` selects, in order (None: all)."""
    row_filter = RowFilter(options.where, location)
    values = {column: metadata[column]() for column in options.where}
    mask = row_filter.mask({name: Coded.of(v.tolist(), v.dtype.kind in NUMBERS) for name, v in values.items()})
    row_filter.check()
    return None if mask is None or mask.all() else np.flatnonzero(mask)


def _column(reader: MatrixReader, position: int) -> NDArray[Any]:
    return np.asarray(reader.columns(position, position + 1)[:, 0])


class _LazyColumns(dict[str, NDArray[Any]]):
    """Metadata columns, each read on first use."""

    def __init__(self, location: str, kind: str, readers: Mapping[str, Column], rows: Index | None):
        super().__init__()
        self._location, self._kind, self._readers, self._rows = location, kind, readers, rows

    def __missing__(self, column: str) -> NDArray[Any]:
        with readable(self._location, self._kind):
            values = self._readers[column]()
        self[column] = values if self._rows is None else values[self._rows]
        return self[column]


class SequentialMatrix(Stream):
    """A matrix in a file that is read from its first row to its last.

    ``row_index`` (increasing) and ``column_index`` are the rows and columns in use; None: all of them.
    """

    def __init__(
        self, location: str, layout: Layout, matrix: MatrixFile, metadata: Mapping[str, Column],
        row_index: Index | None, column_index: Index | None,
    ):  # fmt: skip
        super().__init__(layout, self._blocks)
        self.location, self.matrix, self.reader, self.metadata = location, matrix, matrix.reader, metadata
        self.row_index, self.column_index = row_index, column_index
        self._kept = _LazyColumns(location, matrix.kind, metadata, row_index)
        self._total = layout.n_rows or 0

    @property
    def nbytes(self) -> int:
        """Approximate size of the chosen rows and columns in memory."""
        n_rows, n_columns = self.reader.shape
        return self.reader.nbytes * self._total // n_rows * self.n_features // n_columns

    def about(self, column: str) -> NDArray[Any]:
        return self._kept[column]  # without a pass over the numbers

    def load(self) -> TableInMemory | SparseInMemory:
        """Read the chosen rows and columns into memory; sparse rows stay sparse."""
        deferred = self.matrix.metadata if self.matrix.deferred else {}
        metadata = _LazyColumns(self.location, self.matrix.kind, deferred, self.row_index)
        metadata.update((name, self.about(name)) for name in self.aside if name not in deferred)
        if isinstance(self.reader, InMemoryReader):
            whole = self.reader.matrix if self.row_index is None else self.reader.matrix[self.row_index]
            whole = whole if self.column_index is None else whole[:, self.column_index]
        else:
            whole = self._read_all()
        return (SparseInMemory if sparse.issparse(whole) else TableInMemory)(self.layout, whole, metadata)

    def _read_all(self) -> Any:
        array, parts = None, []
        for seen, part in self._all_parts():
            stop = seen + part.shape[0]
            report(self.path.name, stop, stop / self._total)
            if sparse.issparse(part):
                parts.append(part)
                continue
            if array is None:
                array = np.empty((self._total, self.n_features), self.reader.dtype.newbyteorder("="))
            array[seen:stop] = part
        return sparse.vstack(parts, format="csr") if array is None else array

    def _blocks(self, rows: int, columns: tuple[str, ...], mark: Any = None) -> Iterator[Block]:
        """Yield dense blocks; parts that are prefetched stay sparse until they are needed."""
        # A resumed pass reads the same parts as the interrupted one, whatever its memory.
        begin, step = (0, self._part_rows(rows)) if mark is None else (mark["rows"], mark["step"])
        for seen, part in ahead(self._parts(step, begin)):
            # Blocks of equal size: a last one of a few rows would cost as much as a whole one.
            edges = np.linspace(0, part.shape[0], -(-part.shape[0] // rows) + 1).astype(int)
            for first, last in pairwise(edges):
                start, stop = seen + int(first), seen + int(last)
                if start < begin:
                    continue
                metadata = {column: self.about(column)[start:stop] for column in columns}
                after = partial(dict[str, int], rows=stop, step=step)
                yield Block(_dense(part[first:last]), metadata, stop / self._total, after)

    def _all_parts(self) -> Iterator[tuple[int, Any]]:
        return ahead(self._parts(self._part_rows(block_rows_of(self)), 0))

    def _parts(self, step: int, begin: int) -> Iterator[tuple[int, Any]]:
        """Yield chosen rows and columns as stored, ``step`` rows of the file at a time.

        Each part comes with the number of chosen rows before it. Parts that end before row ``begin`` are not read.
        """
        seen = 0
        with readable(self.location, self.matrix.kind), self.reader.opened() as reader:
            for start in range(0, self.reader.shape[0], step):
                chosen = self._rows_between(start, start + step)
                if len(chosen) and seen + len(chosen) > begin:
                    yield seen, self._read(reader, chosen)
                seen += len(chosen)

    def _rows_between(self, start: int, stop: int) -> Index | range:
        """Return the chosen rows of the file from ``start`` to ``stop``."""
        if self.row_index is None:
            return range(start, min(stop, self.reader.shape[0]))
        low, high = np.searchsorted(self.row_index, (start, stop))
        return self.row_index[low:high]

    def _read(self, reader: MatrixReader, rows: Index | range) -> Any:
        """Return the chosen columns of the file's rows at ``rows``, which increase.

        Rows of the same or the next chunk are one read.
        """
        runs: list[Any] = [rows]
        if not isinstance(rows, range):
            far = (np.diff(rows) > reader.chunk_rows) | (np.diff(rows // self._max_rows) > 0)
            runs = np.split(rows, np.flatnonzero(far) + 1)
        parts = []
        for run in runs:
            first, stop = (int(run[0]), int(run[-1]) + 1) if len(run) else (0, 0)
            with readable(self.location, self.matrix.kind):
                part = reader.rows(first, stop)
            parts.append(part if part.shape[0] == len(run) else part[run - first])
        whole = parts[0]
        if len(parts) > 1:
            whole = sparse.vstack(parts, format="csr") if sparse.issparse(whole) else np.concatenate(parts)
        return whole if self.column_index is None else whole[:, self.column_index]

    def _part_rows(self, rows: int) -> int:
        """Return how many rows of the file to read for ``rows`` chosen ones: whole chunks, unless too large."""
        needed, chunk = rows * self.reader.shape[0] // self._total, self.reader.chunk_rows
        return min(max(needed // chunk, 1) * chunk, max(rows, self._max_rows))

    @property
    def _max_rows(self) -> int:
        """The largest number of rows in one read."""
        most = min(_READ_BYTES, max(self.memory // 8, BLOCK_BYTES))
        return max(1, most * self.reader.shape[0] // max(self.reader.nbytes, 1))


class OnDisk(SequentialMatrix, RowSource):
    """A matrix in a file of which any rows and columns can be read; never all of it at once."""

    _panel: tuple[int, NDArray[Any]] | None = None  # position and values of the columns read last

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        chosen = range(start, min(stop, self._total)) if self.row_index is None else self.row_index[start:stop]
        return _dense(self._read(self.reader, chosen))

    def take(self, index: Index | slice) -> NDArray[Any]:
        index = np.arange(*index.indices(self._total)) if isinstance(index, slice) else index
        ordered, inverse = np.unique(index if self.row_index is None else self.row_index[index], return_inverse=True)
        return _dense(self._read(self.reader, ordered))[inverse]

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        """Return columns ``start`` to ``stop`` of every row; the columns after them are prefetched."""
        panel = self._panel  # another thread may replace it at any time
        if panel is None or start < panel[0] or stop > panel[0] + panel[1].shape[1]:
            prefetched = start + _READ_BYTES // (self.reader.dtype.itemsize * self._total)
            last = min(max(stop, prefetched), self.n_features)
            panel = self._panel = start, self._read_columns(start, last)
            report(self.path.name, self._total, last / self.n_features)
        first, values = panel
        return values[:, start - first : stop - first]

    def select(self, index: Index) -> OnDisk:
        columns = index if self.column_index is None else self.column_index[index]
        names = None if self.names is None else tuple(self.names[i] for i in index)
        layout = replace(self.layout, names=names, n_features=len(index))
        return OnDisk(self.location, layout, self.matrix, self.metadata, self.row_index, columns)

    def _read_columns(self, start: int, stop: int) -> NDArray[Any]:
        files = self.layout.files
        if start == 0 or (files is not None and len(files.stamps) == 1):  # an array of many files is checked once
            self._check_unchanged()
        chosen = np.arange(start, stop) if self.column_index is None else self.column_index[start:stop]
        low, high = int(chosen.min()), int(chosen.max()) + 1
        if high - low > 2 * len(chosen):  # far apart: one pass over the rows
            return np.concatenate([_dense(part[:, start:stop]) for _, part in self._all_parts()])
        with readable(self.location, self.matrix.kind):
            panel = self.reader.columns(low, high)
        panel = panel if np.array_equal(chosen, np.arange(low, high)) else panel[:, chosen - low]
        return panel if self.row_index is None else panel[self.row_index]


def _dense(part: Any) -> NDArray[Any]:
    return np.asarray(part.toarray()) if sparse.issparse(part) else np.asarray(part)
