"""Bringing rows that lie on a cluster, and what goes with them, to this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout.errors import InputError, RowsNeededError
from standout.memory import physical_memory
from standout.sources import is_lazy, is_on_cluster
from standout.sources.checks import checked_block
from standout.sources.memory import ArraySource
from standout.sources.source import Source, block_rows, is_source

# What is worked on must fit beside what is fetched.
_SHARE = 0.25
# Option of read that names a column → where a source keeps what it says of each row.
_KEPT = {"label": "labels", "groups": "groups", "ids": "row_ids"}


def rows_here(source: Source, role: str) -> NDArray[Any]:
    """Return all rows of a source as one array; those of a cluster in one go, so that no step there is taken twice."""
    if is_lazy(source) and has_order(source):
        check_fits(source.n_rows, source.n_features, role)
        columns = [str(place) for place in range(source.n_features)]
        (rows,) = computed([source.mapped(_all_rows, columns)], role)
        return checked_block(rows, source.n_features, role)
    parts, seen = [], 0
    for block in source.blocks(block_rows(source.n_features)):
        parts.append(checked_block(np.asarray(block), source.n_features, role))
        seen += len(parts[-1])
        if is_lazy(source):
            check_fits(seen, source.n_features, role)
    return _joined(parts, source)


class Fetched(ArraySource):
    """All rows of a source that were brought here."""

    def __init__(self, source: Source, role: str):
        super().__init__(rows_here(source, role), source.names)
        self.unnamed = getattr(source, "unnamed", None)
        self.ordered = has_order(source)


def has_order(source: Any) -> bool:
    """Tell whether the rows of a source have an order that an array can follow: those of a Spark frame have none."""
    # A data frame answers to the names of its columns.
    return not is_source(source) or bool(getattr(source, "ordered", not hasattr(type(source), "groups_column")))


def check_order(source: Any, role: str) -> None:
    """Refuse rows without an order where every row is shown or judged."""
    if not has_order(source):
        raise RowsNeededError(
            f"{role}: every row is needed here, with its label, and the rows of a Spark DataFrame stay on the cluster "
            "and have no order. Bring them into memory first, with toPandas()."
        )


def values_here(values: Any, source: Any, what: str) -> Any:
    """Return one value for each row of a source; what lies on a cluster is fetched."""
    if values is None:
        return None
    if not has_order(source):
        raise RowsNeededError(
            f"{what}: the rows of a Spark DataFrame have no order, so that these values cannot be told to belong to "
            "them. Bring both into memory together first, with toPandas()."
        )
    return np.asarray(values) if is_on_cluster(values) else values


def column_here(source: Source, option: str, what: str) -> NDArray[Any] | None:
    """Return what the column named by an option of ``read`` says of each row; None where none was named."""
    check_column(source, option, what)
    found: NDArray[Any] | None = getattr(source, _KEPT[option])
    return found


def check_column(source: Any, option: str, what: str) -> None:
    """Refuse such a column of rows without an order, before anything is fetched."""
    # A data frame answers to the names of its columns.
    column = getattr(source, f"{option}_column", None) if is_source(source) else None
    if column is not None:
        raise RowsNeededError(
            f"{what}: the rows of a Spark DataFrame have no order, so the column {column!r} cannot say what belongs to "
            f"which row once the rows are brought here. Bring rows and {what.split()[-1]} into memory together: "
            f"standout.read(frame.toPandas(), {option}={column!r})."
        )


def check_fits(n_rows: int | None, n_columns: int, role: str) -> None:
    """Refuse numbers on a cluster that are too many for this process, where it is known how many there are."""
    size, most = 8 * (n_rows or 0) * n_columns, _SHARE * physical_memory()
    if size > most > 0:
        raise InputError(
            f"{role}: {n_rows:,} rows of {n_columns:,} numbers must be brought from the cluster to this process for "
            f"this, and take {size / 1e9:,.1f} GB, more than a quarter of the memory here ({most / 1e9:,.1f} GB). "
            "Choose some of the rows at random first, or fewer features."
        )


def computed(arrays: Sequence[Any], role: str) -> list[NDArray[Any]]:
    """Return Dask arrays of one source in memory; the source is gone over once for all of them."""
    from standout.sources.dask_graph import computed_together

    return [np.asarray(array) for array in computed_together(arrays, role)]


def _all_rows(source: Source) -> NDArray[Any]:
    return _joined([np.asarray(block) for block in source.blocks(block_rows(source.n_features))], source)


def _joined(blocks: list[NDArray[Any]], source: Source) -> NDArray[Any]:
    return np.concatenate(blocks) if blocks else np.empty((0, source.n_features))
