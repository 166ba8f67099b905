"""Sources for Spark DataFrames: partitions are summed on the executors, and the sums are merged in a tree.

Only the DataFrame API is used, so classic sessions and Spark Connect share one code path. The driver receives one
result, whatever the number of partitions: results are pickled and split into pieces that fit into Spark rows. standout
must be installed on the executors, or shipped with ``--py-files``.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain, combinations, groupby
from operator import add
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from standout._blas import Array
from standout.errors import FeatureError, InputError, MissingExtraError, RowsNeededError, StandoutError, listed

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as error:
    install = "Install it with: pip install 'standout[spark]'"
    raise MissingExtraError(f"reading Spark DataFrames needs {error.name}. {install}") from error

from standout.distributed.reduce import DistributedSource, Part, Result, check_column, check_fits
from standout.io.memory import check_names, checked_block, checked_table
from standout.io.options import Options, choose
from standout.io.source import NO_ORDER, ArraySource, Source, block_rows
from standout.io.tables import coded, numbers_of

_NUMBERS = ("ByteType", "ShortType", "IntegerType", "LongType", "FloatType", "DoubleType", "DecimalType", "BooleanType")
# Number of adjacent results merged by one task. Two rounds merge a thousand partitions.
_FAN = 32
# Spark rows are limited to 2 GB, and a batch of them to 64 MB.
_PIECE_BYTES = 8 * 2**20
# A result as Spark rows: the number of its partition, the position of each piece, and the piece.
_PIECES = "part long, place long, bytes binary"


def open_collection(data: Any, options: Options, role: str) -> SparkSource:
    """Return the source of a Spark DataFrame; by default all columns are features: numbers, or one vector."""
    frame = _checked_frame(data, role)
    fields = tuple(frame.schema.fields)
    position = {field.name: i for i, field in enumerate(fields)}
    vectors = {field.name for field in fields if _is_vector(field.dataType)}
    numbers = {field.name for field in fields if type(field.dataType).__name__ in _NUMBERS}
    features, aside = list(range(len(fields))), list[int]()
    if not options.is_default:
        chosen = choose(tuple(position), numbers | vectors.intersection(options.columns or ()), options, role)
        if len(chosen.features) > 1 and vectors.intersection(chosen.features):
            problem = "a vector holds all features, and other columns were named too"
            raise FeatureError(f"{role}: {problem}. Name one of both.")
        features, aside = ([position[name] for name in columns] for columns in (chosen.features, chosen.aside))
    elif len(numbers) < len(fields) and not (len(fields) == 1 and vectors):
        raise _not_numbers([field for field in fields if field.name not in numbers], len(fields), role)
    numbered = frame.toDF(*map(str, range(len(fields))))
    names: tuple[str, ...] | None = tuple(fields[i].name for i in features)
    width = None
    if features and (field := fields[features[0]]).name in vectors:
        numbered = numbered if hasattr(field.dataType, "elementType") else _with_lists(numbered, str(features[0]))
        width, names = _width(numbered, field, str(features[0]), role)
    if width == 0 or not features:
        checked_table(np.empty((1, 0)), role)
    return SparkSource(numbered, fields, features, aside, options, BatchReader(role, names, len(features), width))


def _not_numbers(others: Sequence[Any], n_columns: int, role: str) -> InputError:
    names, kind = [field.name for field in others], others[0].dataType
    how = f"frame.drop({', '.join(map(repr, names[:3]))})"
    if len(others) == 1 and _is_vector(kind):
        how = f"`standout.read(frame, columns={names[0]!r})`, or the others"
    return InputError(
        f"{role}: {len(others)} of {n_columns} columns do not hold numbers: {listed(names)} (type "
        f"{kind.simpleString()}). Leave them out, for instance with {how}, or name what they are in "
        "`standout.read(X, label=..., groups=..., ids=...)`."
    )


def _checked_frame(data: Any, role: str) -> Any:
    if hasattr(type(data), "to_spark"):  # pandas on Spark
        data = data.to_spark()
    if not hasattr(type(data), "mapInArrow"):
        raise InputError(f"{role}: unsupported Spark object: {type(data).__name__}. Give a DataFrame.")
    if data.isStreaming:
        raise InputError(f"{role}: a stream never ends. Give a DataFrame of rows, or use partial_fit in foreachBatch.")
    check_names(list(data.columns), role)
    return data


def _is_vector(kind: Any) -> bool:
    """Return whether a type is a pyspark.ml vector or an array of numbers."""
    if type(kind).__name__ == "ArrayType":
        return type(kind.elementType).__name__ in _NUMBERS
    return type(kind).__name__ == "VectorUDT"


def _with_lists(frame: Any, column: str) -> Any:
    """Return the frame with a column of pyspark.ml vectors as lists."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql.functions import col, when

    return frame.withColumn(column, when(col(column).isNotNull(), vector_to_array(col(column))))


def _width(frame: Any, field: Any, column: str, role: str) -> tuple[int, tuple[str, ...] | None]:
    """Return the length of the vectors and their names, from pyspark.ml metadata or from one row."""
    metadata = (field.metadata or {}).get("ml_attr", {})
    if "num_attrs" in metadata:
        attributes = [attribute for kind in metadata.get("attrs", {}).values() for attribute in kind]
        names = {attribute["idx"]: attribute["name"] for attribute in attributes if "name" in attribute}
        complete = len(set(names.values())) == metadata["num_attrs"]
        return metadata["num_attrs"], tuple(names[i] for i in sorted(names)) if complete else None
    row = frame.select(column).dropna().first()
    if row is None:
        raise InputError(f"{role}: it holds no rows, or only missing ones. Give a table with rows.")
    return len(row[0]), None


class SparkSource(DistributedSource):
    """The rows of a Spark DataFrame, which stay on the cluster.

    Weights and groups are columns of the frame, given by name, because the rows of a frame have no defined order to
    which an array could be matched.
    """

    ordered = False

    def __init__(
        self,
        frame: Any,  # with numbered columns, since names may contain dots or differ only in case
        fields: Sequence[Any],  # the columns as they were given
        features: Sequence[int],  # indices of the features
        aside: Sequence[int],  # indices of columns that describe rows, which transform keeps
        options: Options,  # that name the columns that describe rows
        reader: BatchReader,
    ):
        self._frame, self._fields, self._features, self._aside = frame, fields, features, aside
        self._options, self._reader = options, reader
        self.names, self.n_features = reader.names, reader.n_features

    def blocks(self, rows: int) -> Iterator[NDArray[Any]]:
        step = partial(_block_bytes, reader=self._reader, rows=rows)
        for row in self._columns(self._features).mapInArrow(step, "bytes binary").toLocalIterator():
            yield np.frombuffer(row["bytes"]).reshape(-1, self.n_features)

    def select(self, index: NDArray[np.intp]) -> SparkSource:
        names = None if self.names is None else tuple(self.names[i] for i in index)
        features = self._features
        if self._reader.width is None:
            features = [features[i] for i in index]
            reader = replace(self._reader, n_columns=len(index), names=names)
        else:
            chosen = index if self._reader.index is None else self._reader.index[index]
            reader = replace(self._reader, index=chosen, names=names)
        return SparkSource(self._frame, self._fields, features, self._aside, self._options, reader)

    def map_rows(self, function: Callable[[Any], NDArray[Any]], names: Sequence[str]) -> Any:
        """Return a lazy DataFrame of the non-feature columns and the columns computed by ``function``."""
        from pyspark.sql.types import DoubleType, StructField, StructType

        kept = [self._fields[i] for i in self._aside]
        duplicates = [field.name for field in kept if field.name in set(names)]
        if duplicates:
            found = f"duplicate columns in the result: {listed(duplicates)}"
            raise InputError(f"{self._reader.role}: {found}. Rename these columns first.")
        schema = StructType([*kept, *(StructField(name, DoubleType()) for name in names)])
        step = partial(_mapped_batches, function=function, reader=self._reader, columns=schema.names)
        return self._columns((*self._features, *self._aside)).mapInArrow(step, schema)

    def reduce(
        self, function: Callable[[Part], Result], weights: Any = None, groups: Any = None, labels: Any = None
    ) -> Result:
        from pyspark.sql.functions import expr

        given = {"weights": weights, "groups": self._options.groups if groups is None else groups, "labels": labels}
        columns = {what: self._row_column(what, name) for what, name in given.items() if name is not None}
        for one, other in combinations(columns, 2):
            if columns[one] == columns[other]:
                problem = f"the column {given[one]!r} is named for {one} and for {other}"
                raise InputError(f"{self._reader.role}: {problem}. Name a column for each.")
        what = tuple(columns)
        step = partial(_partition_pieces, function=function, reader=self._reader, row_values=what)
        pieces = self._columns((*self._features, *columns.values())).mapInArrow(step, _PIECES)
        # The number of partitions is unknown in advance: merge adjacent ones first, then the remaining results.
        for by, fan in ((expr(f"part div {_FAN}"), _FAN), (1, None)):
            pieces = pieces.repartition(by).sortWithinPartitions("part", "place")
            pieces = pieces.mapInArrow(partial(_added_pieces, fan=fan), _PIECES)
        packed = b"".join(bytes(row["bytes"]) for row in _collected(pieces))
        if not packed:
            return function(Part(ArraySource(np.empty((0, self.n_features)), self.names)))
        result: Result | StandoutError = pickle.loads(packed)
        if isinstance(result, StandoutError):
            raise result
        return result

    def collect_mapped(self, functions: Sequence[Callable[[Source], Any]], role: str) -> list[NDArray[Any]]:
        self.check_order(role)
        return super().collect_mapped(functions, role)

    def collect(self, role: str) -> NDArray[Any]:
        parts, seen = [], 0
        for block in self.blocks(block_rows(self.n_features)):
            parts.append(checked_block(block, self.n_features, role))
            seen += len(block)
            check_fits(seen, self.n_features, role)
        return np.concatenate(parts) if parts else np.empty((0, self.n_features))

    def check_row_values(self, option: str, what: str) -> None:
        column = getattr(self._options, option)
        if column is not None:
            raise RowsNeededError(
                f"{what}: {NO_ORDER}, so the column {column!r} cannot be matched to collected rows. Bring rows and "
                f"{what.split()[-1]} into memory together: `standout.read(frame.toPandas(), {option}={column!r})`."
            )

    def _columns(self, places: Sequence[int]) -> Any:
        return self._frame.select(*(str(place) for place in places))

    def _row_column(self, what: str, column: Any) -> int:
        """Return the index of the column of weights or groups."""
        role = f"{self._reader.role} {what}"
        if not isinstance(column, str):
            option, argument = ("label", "") if what == "labels" else ("drop", f" and {what}='w'")
            remedy = f"Name a column: `standout.read(frame, {option}='w')`{argument}."
            raise InputError(f"{role}: {NO_ORDER}, so a {type(column).__name__} cannot be matched to them. {remedy}")
        names = [field.name for field in self._fields]
        check_column(column, names, [names[i] for i in self._features], role)
        return names.index(column)


def _collected(frame: Any) -> list[Any]:
    """Run the job and return its rows."""
    try:
        rows: list[Any] = frame.collect()
    except Exception as error:
        if "No module named 'standout'" in str(error):
            remedy = "Install it on them, or pass it with --py-files."
            raise MissingExtraError(f"standout is not installed on Spark's executors. {remedy}") from error
        raise
    return rows


# The rest runs on the executors.


@dataclass(frozen=True)
class BatchReader:
    """Conversion of record batches to arrays: the first columns are the features, or one vector of all features."""

    role: str
    names: tuple[str, ...] | None
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
        numbers = _from_lists(batch.column(0), self.width, self.role)
        return numbers if self.index is None else numbers[:, self.index]


class Partition(Source):
    """The rows of one Spark partition; rows from an iterator can be read only once."""

    def __init__(self, batches: Iterable[Any], reader: BatchReader):
        self._batches, self._reader = batches, reader
        self.names, self.n_features = reader.names, reader.n_features

    def blocks(self, rows: int) -> Iterator[Array]:
        for batch in self._batches:
            for start in range(0, batch.num_rows, rows):
                yield self._reader.numbers(batch.slice(start, rows))


def _block_bytes(batches: Iterable[Any], reader: BatchReader, rows: int) -> Iterator[Any]:
    """Yield blocks of at most ``rows`` rows as bytes."""
    for block in Partition(batches, reader).blocks(rows):
        yield pa.RecordBatch.from_arrays([pa.array([np.ascontiguousarray(block).tobytes()])], names=["bytes"])


def _mapped_batches(
    batches: Iterable[Any], function: Callable[[Any], NDArray[Any]], reader: BatchReader, columns: Sequence[str]
) -> Iterator[Any]:
    """Yield the non-feature columns and a function of the rows, one batch per input batch."""
    for batch in batches:
        kept = batch.columns[reader.n_columns :]
        scores = function(Partition([batch], reader)).T
        made = [pa.array(np.ascontiguousarray(column), pa.float64()) for column in scores]
        yield pa.RecordBatch.from_arrays([*kept, *made], names=list(columns))


def _partition_pieces(
    batches: Iterable[Any], function: Callable[[Part], Any], reader: BatchReader, row_values: Sequence[str]
) -> Iterator[Any]:
    """Yield the pieces of a function of a partition or of its error, and none for a partition without rows.

    ``row_values`` are the columns after the features: weights, groups.
    """
    from pyspark import TaskContext

    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return
    try:
        if row_values:
            # One batch at a time: reading all weights before the rows would require the whole partition in memory.
            result = reduce(add, (function(_part(batch, reader, row_values)) for batch in chain([first], filled)))
        else:
            result = function(Part(Partition(chain([first], filled), reader)))
    except StandoutError as error:
        result = error
    yield from _pieces(cast(Any, TaskContext.get()).partitionId(), result)


def _part(batch: Any, reader: BatchReader, row_values: Sequence[str]) -> Part:
    values = {}
    for what, column in zip(row_values, batch.columns[reader.n_columns :], strict=True):
        if what != "weights":  # as strings, consistent with frames and files read into memory: 5 is the id "5"
            values[what] = coded(column).texts()
            continue
        if column.null_count:
            problem = f"{reader.role} weights: some rows have none (null)"
            raise InputError(f"{problem}. Give every row a weight, 0 to leave it out.")
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.float64(), safe=False)
        values[what] = np.asarray(column.to_numpy(zero_copy_only=False))
    return Part(Partition([batch], reader), **values)


def _pieces(part: int, result: Any) -> Iterator[Any]:
    """Yield a serialised result as record batches."""
    packed = pickle.dumps(result, protocol=5)
    for place, start in enumerate(range(0, len(packed), _PIECE_BYTES)):
        columns = [[part], [place], [packed[start : start + _PIECE_BYTES]]]
        yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=["part", "place", "bytes"])


def _added_pieces(batches: Iterable[Any], fan: int | None) -> Iterator[Any]:
    """Add up each ``fan`` adjacent results (None: all), whose pieces are sorted, and yield the pieces of the sums."""
    pieces = (pair for batch in batches for pair in zip(*map(batch.column, ("part", "bytes")), strict=True))
    by_part = groupby(pieces, key=lambda pair: pair[0].as_py())
    results = ((part, pickle.loads(b"".join(piece.as_py() for _, piece in own))) for part, own in by_part)
    for node, some in groupby(results, key=lambda item: 0 if fan is None else item[0] // fan):
        yield from _pieces(node, reduce(_added, (result for _, result in some)))


def _added(one: Any, other: Any) -> Any:
    """Add two results; an error takes precedence, the first of two."""
    if isinstance(one, StandoutError):
        return one
    return other if isinstance(other, StandoutError) else one + other


def _from_lists(column: Any, width: int, role: str) -> Array:
    there = column.is_valid().to_numpy(zero_copy_only=False)
    _check_width(pc.list_value_length(column).filter(column.is_valid()), width, role)
    numbers = np.full((len(column), width), np.nan)
    values = column.flatten().cast(pa.float64(), safe=False)
    numbers[there] = values.to_numpy(zero_copy_only=False).reshape(-1, width)
    return numbers


def _check_width(lengths: Any, width: int, role: str) -> None:
    wrong = lengths.filter(pc.not_equal(lengths, width))
    if len(wrong):
        problem = f"the rows have different lengths: vectors of {width} and of {wrong[0]} numbers"
        raise InputError(f"{role}: {problem}. Give every row the same number of values.")
