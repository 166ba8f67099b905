"""Sources for Spark DataFrames: partitions are summed on the executors, and the sums are merged in a tree.

Only the DataFrame API is used, so classic sessions and Spark Connect share one code path. The driver receives one
result, whatever the number of partitions. standout must be installed on the executors, or shipped with
``--py-files``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from standout.distributed.reduce import DistributedSource, Result, check_fits
from standout.errors import FeatureError, InputError, MissingExtraError, RowsNeededError, listed
from standout.io.memory import check_names, checked_block, checked_table
from standout.io.options import Options, choose
from standout.io.source import ArraySource, Part, block_rows

if TYPE_CHECKING:
    from standout.distributed.spark_partitions import Reader


_NUMBERS = ("ByteType", "ShortType", "IntegerType", "LongType", "FloatType", "DoubleType", "DecimalType", "BooleanType")


@dataclass(frozen=True, eq=False)
class SparkSource(DistributedSource):
    """The rows of a Spark DataFrame, which stay on the cluster.

    Weights and groups are columns of the frame, given by name, because the rows of a frame have no defined order to
    which an array could be matched.
    """

    frame: Any  # with numbered columns, since names may contain dots or differ only in case
    fields: tuple[Any, ...]  # the columns as they were given
    features: tuple[int, ...]  # indices of the features
    aside: tuple[int, ...]  # indices of columns that describe rows, which transform keeps
    reader: Reader
    names: tuple[str, ...] | None
    # Columns that describe rows, by name: values cannot be matched to rows once rows have been collected.
    groups_column: str | None = None
    label_column: str | None = None
    ids_column: str | None = None

    ordered = False

    @property
    def n_features(self) -> int:  # type: ignore[override]
        """Number of features."""
        return self.reader.n_features

    def blocks(self, rows: int) -> Iterator[NDArray[Any]]:
        """Collect the rows on the driver, one partition at a time."""
        from standout.distributed.spark_partitions import Blocks

        made = self._columns(self.features).mapInArrow(Blocks(self.reader, rows), "bytes binary")
        for row in made.toLocalIterator():
            yield np.frombuffer(row["bytes"]).reshape(-1, self.n_features)

    def select(self, index: NDArray[np.intp]) -> SparkSource:
        """Return the source with the features at ``index``, in that order."""
        names = None if self.names is None else tuple(self.names[i] for i in index)
        if self.reader.width is None:
            reader = replace(self.reader, n_columns=len(index))
            return replace(self, features=tuple(self.features[i] for i in index), reader=reader, names=names)
        chosen = index if self.reader.index is None else self.reader.index[index]
        return replace(self, reader=replace(self.reader, index=chosen), names=names)

    def map_rows(self, function: Callable[[Any], NDArray[Any]], names: Sequence[str]) -> Any:
        """Return a lazy DataFrame of the non-feature columns and the columns computed by ``function``."""
        from pyspark.sql.types import DoubleType, StructField, StructType

        from standout.distributed.spark_partitions import Scores

        kept = [self.fields[i] for i in self.aside]
        twice = [field.name for field in kept if field.name in set(names)]
        if twice:
            raise InputError(
                f"{self.reader.role}: {listed(twice)} would stand twice in the result. Rename these columns first."
            )
        columns = (*(field.name for field in kept), *names)
        schema = StructType([*kept, *(StructField(name, DoubleType()) for name in names)])
        step = Scores(function, self.reader, self.names, columns)
        return self._columns((*self.features, *self.aside)).mapInArrow(step, schema)

    def reduce(
        self,
        function: Callable[[Part], Result],
        merge: Callable[[Result, Result], Result],
        weights: Any = None,
        groups: Any = None,
    ) -> Result:
        """Return ``function`` of every partition that has rows, merged on the executors in their order."""
        from standout.distributed.spark_partitions import WIRE, Failed, OfNode, OfPart, received

        groups = self.groups_column if groups is None else groups
        beside = {"weights": weights, "groups": groups}
        places = {name: self._place(name, given) for name, given in beside.items() if given is not None}
        if len(set(places.values())) < len(places):
            raise InputError(
                f"{self.reader.role}: the column {weights!r} is named for weights and for groups. Name two columns."
            )
        first = OfPart(function, merge, self.reader, self.names, tuple(places))
        rows = self._columns((*self.features, *places.values())).mapInArrow(first, WIRE)
        # The number of partitions is not known in advance: merge adjacent ones first, then the remaining results.
        for step in (OfNode(merge), OfNode(merge, last=True)):
            moved = rows.repartition(1) if step.last else rows.repartition("node")
            rows = moved.sortWithinPartitions("part", "place").mapInArrow(step, WIRE)
        pieces = [(0, bytes(row["bytes"])) for row in _collected(rows)]
        if not pieces:
            return function(Part(ArraySource(np.empty((0, self.n_features)), self.names)))
        result: Result | Failed = next(received(pieces))[1]
        if isinstance(result, Failed):
            raise result.error
        return result

    def compute(self, tables: Sequence[Any], role: str) -> list[NDArray[Any]]:  # noqa: ARG002
        """Raise an error, because the rows of a lazy table have no defined order."""
        raise RowsNeededError(
            f"{role}: the rows of a Spark DataFrame have no order. Bring them into memory first, with toPandas()."
        )

    def collect(self, role: str) -> NDArray[Any]:
        """Return all rows as one array, partition by partition, if they fit into memory."""
        parts, seen = [], 0
        for block in self.blocks(block_rows(self.n_features)):
            parts.append(checked_block(block, self.n_features, role))
            seen += len(block)
            check_fits(seen, self.n_features, role)
        return np.concatenate(parts) if parts else np.empty((0, self.n_features))

    def check_row_values(self, option: str, what: str) -> None:
        """Raise an error for columns that describe rows, because collecting rows loses their order."""
        column = getattr(self, f"{option}_column")
        if column is not None:
            raise RowsNeededError(
                f"{what}: the rows of a Spark DataFrame have no order, so the column {column!r} cannot be matched to "
                f"rows once they are collected. Bring rows and {what.split()[-1]} into memory together: "
                f"`standout.read(frame.toPandas(), {option}={column!r})`."
            )

    def _columns(self, places: Sequence[int]) -> Any:
        return self.frame.select(*(str(place) for place in places))

    def _place(self, what: str, given: Any) -> int:
        """Return the index of the column of weights or groups."""
        role = self.reader.role
        if not isinstance(given, str):
            raise InputError(
                f"{role} {what}: the rows of a Spark DataFrame have no order, so a {type(given).__name__} cannot say "
                f"which value belongs to which row. Name a column: `standout.read(frame, drop='w')` and {what}='w'."
            )
        names = [field.name for field in self.fields]
        if given not in names:
            raise InputError(f"{role} {what}: there is no column {given!r}. Use one of its columns: {listed(names)}.")
        if names.index(given) in self.features:
            raise InputError(
                f"{role} {what}: the column {given!r} is a feature too. Leave it out of the features with "
                f"`standout.read(frame, drop={given!r})`."
            )
        return names.index(given)


def open_collection(data: Any, role: str) -> SparkSource:
    """Return the source of a Spark DataFrame all of whose columns are features: numbers, or one vector."""
    frame = _frame_of(data, role)
    fields = tuple(frame.schema.fields)
    if len(fields) == 1 and _is_vector(fields[0].dataType):
        return _source(frame, (0,), (), role)
    text = [field for field in fields if type(field.dataType).__name__ not in _NUMBERS]
    if text:
        names = [field.name for field in text]
        how = f"frame.drop({', '.join(map(repr, names[:3]))})"
        if len(text) == 1 and _is_vector(text[0].dataType):
            how = f"`standout.read(frame, columns={names[0]!r})`, or the others"
        raise InputError(
            f"{role}: {len(text)} of {len(fields)} columns do not hold numbers: {listed(names)} "
            f"(type {text[0].dataType.simpleString()}). Leave them out, for instance with {how}, or name what they are "
            "in `standout.read(X, label=..., groups=..., ids=...)`."
        )
    return _source(frame, tuple(range(len(fields))), (), role)


def open_chosen(data: Any, options: Options, role: str) -> SparkSource:
    """Return the source of a Spark DataFrame with feature columns and columns that describe rows."""
    frame = _frame_of(data, role)
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    vectors = [name for name, kind in kinds.items() if _is_vector(kind)]
    numbers = {name for name, kind in kinds.items() if type(kind).__name__ in _NUMBERS}
    chosen = choose(tuple(kinds), numbers | set(vectors).intersection(options.columns or ()), options, role)
    if len(chosen.features) > 1 and set(vectors).intersection(chosen.features):
        raise FeatureError(f"{role}: a vector holds all features, and other columns were named too. Name one of both.")
    position = {name: i for i, name in enumerate(kinds)}
    features, aside = ([position[name] for name in names] for names in (chosen.features, chosen.aside))
    return replace(
        _source(frame, tuple(features), tuple(aside), role),
        groups_column=options.groups,
        label_column=options.label,
        ids_column=options.ids,
    )


def _frame_of(data: Any, role: str) -> Any:
    """Return a supported frame; raise an error for other data."""
    if hasattr(type(data), "to_spark"):  # pandas on Spark
        data = data.to_spark()
    if not hasattr(type(data), "mapInArrow"):
        raise InputError(f"{role}: a {type(data).__name__} of Spark is no table. Give a DataFrame.")
    if data.isStreaming:
        raise InputError(f"{role}: a stream never ends. Give a DataFrame of rows, or use partial_fit in foreachBatch.")
    try:
        import standout.distributed.spark_partitions  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"{role}: reading Spark DataFrames needs {error.name}. Install it with: pip install 'standout[spark]'"
        ) from error
    check_names(list(data.columns), role)
    return data


def _source(frame: Any, features: tuple[int, ...], aside: tuple[int, ...], role: str) -> SparkSource:
    from standout.distributed.spark_partitions import Reader

    if not features:
        checked_table(np.empty((1, 0)), role)
    fields = tuple(frame.schema.fields)
    numbered = frame.toDF(*map(str, range(len(fields))))
    width, names = None, tuple(fields[i].name for i in features) or None
    if _is_vector(fields[features[0]].dataType):
        width, names = _width(numbered, fields[features[0]], str(features[0]), role)
        if width == 0:
            checked_table(np.empty((1, 0)), role)
    return SparkSource(numbered, fields, features, aside, Reader(role, len(features), width), names)


def _is_vector(kind: Any) -> bool:
    """Return whether a type is a pyspark.ml vector or an array of numbers."""
    if type(kind).__name__ == "ArrayType":
        return type(kind.elementType).__name__ in _NUMBERS
    return type(kind).__name__ == "VectorUDT"


def _width(frame: Any, field: Any, column: str, role: str) -> tuple[int, tuple[str, ...] | None]:
    """Return the length of the vectors and their names, from pyspark.ml metadata or from one row."""
    noted = (field.metadata or {}).get("ml_attr", {})
    if "num_attrs" in noted:
        attributes = [attribute for kind in noted.get("attrs", {}).values() for attribute in kind]
        by_place = {attribute["idx"]: attribute["name"] for attribute in attributes if "name" in attribute}
        named = len(set(by_place.values())) == noted["num_attrs"]
        return noted["num_attrs"], tuple(by_place[i] for i in sorted(by_place)) if named else None
    row = frame.select(column).dropna().first()
    if row is None:
        raise InputError(f"{role}: it holds no rows, or only missing ones. Give a table with rows.")
    return len(row[0]), None


def _collected(frame: Any) -> list[Any]:
    """Run the job and return its rows."""
    try:
        rows: list[Any] = frame.collect()
    except Exception as error:
        if "No module named 'standout'" in str(error):
            raise MissingExtraError(
                "standout is not there on Spark's executors. Install it on them, or pass it with --py-files."
            ) from error
        raise
    return rows
