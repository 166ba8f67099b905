"""Bringing rows that lie on a cluster, and what goes with them, to this process.

Adding up rows that lie on a cluster: each part where it lies, and the results merged in a fixed order.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout._accumulate import Accumulator, Sums, merge_sums
from standout._blas import default_budget, physical_memory
from standout.errors import InputError, RowsNeededError
from standout.io.memory import (
    ArraySource,
    BadValues,
    check_all_used,
    check_each_weight,
    check_weights,
    checked_block,
    checked_table,
    count_bad,
    distinct_groups,
    explain_bad,
    explain_underflow,
    weighted_blocks,
)
from standout.io.read import is_on_cluster
from standout.io.source import LazySource, Part, Source, block_rows, is_lazy, is_source

# What is worked on must fit beside what is fetched.
_SHARE = 0.25
# Option of read that names a column → where a source keeps what it says of each row.
_KEPT = {"label": "labels", "groups": "groups", "ids": "row_ids"}


def collect_rows(source: Source, role: str) -> NDArray[Any]:
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
        super().__init__(collect_rows(source, role), source.names)
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


def collect_values(values: Any, source: Any, what: str) -> Any:
    """Return one value for each row of a source; what lies on a cluster is fetched."""
    if values is None:
        return None
    if not has_order(source):
        raise RowsNeededError(
            f"{what}: the rows of a Spark DataFrame have no order, so that these values cannot be told to belong to "
            "them. Bring both into memory together first, with toPandas()."
        )
    return np.asarray(values) if is_on_cluster(values) else values


def collect_column(source: Source, option: str, what: str) -> NDArray[Any] | None:
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
    from standout.distributed.dask import computed_together

    return [np.asarray(array) for array in computed_together(arrays, role)]


def _all_rows(source: Source) -> NDArray[Any]:
    return _joined([np.asarray(block) for block in source.blocks(block_rows(source.n_features))], source)


def _joined(blocks: list[NDArray[Any]], source: Source) -> NDArray[Any]:
    return np.concatenate(blocks) if blocks else np.empty((0, source.n_features))


@dataclass(frozen=True)
class PartialSums:
    """What some parts add up to, the groups seen in them, and their rows, those of weight zero included."""

    sums: Sums
    groups: frozenset[Hashable] | None
    seen: int


def reduce_sums(source: LazySource, weights: Any, groups: Any, names: Sequence[str] | None, role: str) -> PartialSums:
    """Add up a source on the workers that hold its rows."""
    _check_width(source.n_features, role)
    ids = None
    if _at_hand(weights):
        weights = check_weights(weights, source.n_rows, role)
    if _at_hand(groups) and source.n_rows is not None and (weights is None or _at_hand(weights)):
        ids, groups = distinct_groups(groups, weights, source.n_rows, role), None
    found = source.reduced(partial(add_up, role=role), merge, weights, groups)
    if found.seen == 0:
        checked_table(np.empty((0, source.n_features)), role)
    if not math.isfinite(found.sums.mean.sum() + np.einsum("ii->", found.sums.scatter)):
        raise explain_bad(source.reduced(_bad_values, BadValues.__add__), names, role)
    if source.n_rows is not None and found.seen != source.n_rows:
        raise InputError(
            f"{role}: the chunks of the dask array have {found.seen} rows, and the array says {source.n_rows}. Give "
            "the shape that the chunks have where the array is made, for instance in dask.array.from_delayed."
        )
    if weights is not None and found.sums.weight == 0:
        check_weights([0.0], None, role)
    if len(found.sums.underflown):
        raise explain_underflow(found.sums.underflown, names, role)
    return found if ids is None else replace(found, groups=ids)


def _check_width(n_features: int, role: str) -> None:
    """Refuse features of which no worker should be asked to hold the table of products."""
    size, budget = 8 * n_features**2, default_budget()
    if size > budget:
        raise InputError(
            f"{role}: the products of {n_features:,} features are a table of {size / 1e9:,.1f} GB on every worker, and "
            f"{budget / 1e9:.1f} GB may be used for it. Choose fewer features, or bring the rows into memory "
            "(compute() of dask, toPandas() of Spark), where the matrix-free solver needs no such table."
        )


def _at_hand(values: Any) -> bool:
    """Tell whether one value for each row was given, and not where the cluster has them."""
    return values is not None and not isinstance(values, str) and not is_on_cluster(values)


def add_up(part: Part, role: str) -> PartialSums:
    """Add up one part; values that are not finite show in its sums."""
    accumulator, seen = Accumulator(part.rows.n_features), 0
    # A part may have rows of weight zero only, a whole dataset may not.
    weights = None if part.weights is None else check_each_weight(part.weights, part.rows.n_rows, role)
    nothing = weights is not None and not weights.any()
    with np.errstate(all="ignore"):
        for block in weighted_blocks(part.rows, None if nothing else weights, role):
            seen += block.seen
            if not nothing and not accumulator.add(block.rows, block.weights):
                return PartialSums(accumulator.finish(), None, seen)
        sums = accumulator.finish()
    check_all_used(weights, seen, role)
    groups = None if part.groups is None else distinct_groups(part.groups, weights, seen, role)
    return PartialSums(sums, groups, seen)


def merge(one: PartialSums, other: PartialSums) -> PartialSums:
    """Return what two parts add up to."""
    groups = None if one.groups is None or other.groups is None else one.groups | other.groups
    return PartialSums(merge_sums(one.sums, other.sums), groups, one.seen + other.seen)


def _bad_values(part: Part) -> BadValues:
    return count_bad(part.rows.blocks(block_rows(part.rows.n_features)), part.rows.n_features)
