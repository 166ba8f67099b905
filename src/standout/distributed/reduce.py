"""Rows on a cluster: a source whose partitions are summed on the workers, and collected only if they fit.

Each worker accumulates its own partitions, and the partial sums are merged in a fixed order, so that the result does
not depend on scheduling.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from standout._accumulate import Accumulator, Sums, merge_sums
from standout._blas import default_budget, physical_memory
from standout._inputs import check_no_missing, count_missing, equal_labels
from standout._moments import Moments
from standout.errors import InputError, listed
from standout.io import memory
from standout.io.memory import BadValues, check_weights, distinct_groups
from standout.io.options import Options
from standout.io.read import is_on_cluster
from standout.io.source import IdColumn, Names, RowView, Source, block_rows

# The fraction of the memory that collected rows may take.
_SHARE = 0.25
WRONG_SHAPE = "Give the shape of the chunks where the array is made, for instance in dask.array.from_delayed."
# Distinct labels that a message may list.
_MOST_LABELS = 20
Result = TypeVar("Result")


@dataclass(frozen=True)
class Part:
    """The rows of one partition on the worker that holds it, with their weights, groups and labels."""

    rows: Source
    weights: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    labels: NDArray[Any] | None = None

    def split(self, wanted: Sequence[Any]) -> dict[int, Part]:
        """Return the rows with each wanted label, by its index, and the other rows as -1; only those that occur."""
        rows, labels = self.rows.in_memory(""), self.labels
        assert labels is not None
        if len(labels) != rows.n_rows:
            raise InputError(f"y: {len(labels)} labels for a partition of {rows.n_rows} rows. Give one for each row.")
        masks = [equal_labels(labels, label) for label in wanted]
        every = {-1: ~np.any(masks, axis=0), **dict(enumerate(masks))}
        parts = {}
        for number, mask in every.items():
            if mask.any():
                cut = (None if values is None else values[mask] for values in (self.weights, self.groups))
                parts[number] = Part(RowView(rows, np.flatnonzero(mask)), *cut)
        return parts


class DistributedSource(Source):
    """Rows in partitions on a cluster. Functions are sent to the workers, so they must be picklable."""

    is_local = False
    _options: Options  # that name the columns that describe rows

    @property
    def has_groups(self) -> bool:
        return self._options.groups is not None

    def id_columns(self) -> list[IdColumn]:
        return [] if self.row_ids is None else [IdColumn(self.row_ids, self._options.ids, explicit=True)]

    @abstractmethod
    def reduce(
        self, function: Callable[[Part], Result], weights: Any = None, groups: Any = None, labels: Any = None
    ) -> Result:
        """Return the sum of ``function`` over all partitions, added up on the workers, adjacent partitions first.

        ``weights``, ``groups`` and ``labels`` (one value for each row) are split into the same partitions.
        """

    def moments(self, weights: Any = None, groups: Any = None, *, names: Names = None, role: str = "data") -> Moments:
        self._check_size(role)
        ids = None
        if _in_memory(weights):
            weights = check_weights(weights, self.n_rows, role)
        if _in_memory(groups) and self.n_rows is not None and (weights is None or _in_memory(weights)):
            ids, groups = distinct_groups(groups, weights, self.n_rows, role), None
        found = self.reduce(partial(add_up, role=role), weights, groups)
        if found.seen == 0:
            memory.checked_table(np.empty((0, self.n_features)), role)
        if ids is not None:
            found = replace(found, groups=ids)
        moments = self._checked(found, weights, names, role, lambda: self.reduce(_bad_values))
        if self.n_rows is not None and found.seen != self.n_rows:
            problem = f"the chunks of the dask array have {found.seen} rows, but the array has {self.n_rows}"
            raise InputError(f"{role}: {problem}. {WRONG_SHAPE}")
        return moments

    def moments_by_label(
        self, labels: Any, wanted: Sequence[Any], weights: Any, groups: Any, roles: Sequence[str]
    ) -> tuple[dict[int, Moments], list[Any]]:
        self._check_size("X")
        roles = [*roles, "target"]
        labels = self._options.label if labels is None else labels
        if labels is None:
            raise InputError("background_label needs y. Give y, or name its column in `standout.read(X, label=...)`.")
        if _in_memory(weights):
            weights = check_weights(weights, self.n_rows, "X")
        found = self.reduce(partial(add_up_by_label, wanted=wanted, roles=roles), weights, groups, labels)
        check_no_missing(found.missing, found.seen)
        moments = {}
        for number, sums in sorted(found.parts.items()):
            bad = partial(self.reduce, partial(_bad_values_of_label, wanted=wanted, number=number), labels=labels)
            moments[number] = self._checked(sums, weights, self.names, roles[number], bad)
        return moments, list(found.labels)

    def _check_size(self, role: str) -> None:
        size, budget = 8 * self.n_features**2, default_budget()
        if size > budget:
            need = f"the scatter matrix of {self.n_features:,} features takes {size / 1e9:,.1f} GB on every worker"
            remedy = "bring the rows into memory (compute() of dask, toPandas() of Spark) for the matrix-free solver"
            raise InputError(
                f"{role}: {need}, more than the {budget / 1e9:.1f} GB allowed. Choose fewer features, or {remedy}."
            )

    def _checked(
        self, found: PartialSums, weights: Any, names: Names, role: str, bad: Callable[[], BadValues]
    ) -> Moments:
        """Return sums as moments, or raise an error that explains why they are not usable."""
        if not math.isfinite(found.sums.mean.sum() + np.einsum("ii->", found.sums.scatter)):
            raise memory.explain_bad(bad(), names, role)
        if weights is not None and found.sums.weight == 0:
            check_weights([0.0], None, role)
        if len(found.sums.underflown):
            raise memory.explain_underflow(found.sums.underflown, names, role)
        return Moments.from_sums(found.sums, found.groups, names)


def _in_memory(values: Any) -> bool:
    """Return whether row values are given in memory, as opposed to by reference to data on the cluster."""
    return values is not None and not isinstance(values, str) and not is_on_cluster(values)


def check_fits(n_rows: int | None, n_columns: int, role: str) -> None:
    """Raise an error if the rows, where their number is known, do not fit into the memory of this process."""
    size, most = 8 * (n_rows or 0) * n_columns, _SHARE * physical_memory()
    if size > most > 0:
        need = f"this needs {n_rows:,} rows of {n_columns:,} numbers in this process ({size / 1e9:,.1f} GB)"
        limit = f"more than a quarter of its memory ({most / 1e9:,.1f} GB)"
        raise InputError(f"{role}: {need}, {limit}. Choose some of the rows at random first, or fewer features.")


def check_column(column: str, columns: Sequence[str], features: Sequence[str], what: str) -> None:
    """Raise an error if a column of weights or groups does not exist or is a feature; ``what`` is its purpose."""
    if column not in columns:
        raise InputError(f"{what}: there is no column {column!r}. Use one of its columns: {listed(columns)}.")
    if column in features:
        remedy = f"Leave it out of the features with `standout.read(frame, drop={column!r})`."
        raise InputError(f"{what}: the column {column!r} is a feature too. {remedy}")


@dataclass(frozen=True)
class PartialSums:
    """The sums of some partitions, their distinct groups, and their rows, including those of weight zero."""

    sums: Sums
    groups: frozenset[Hashable] | None
    seen: int

    def __add__(self, other: PartialSums) -> PartialSums:
        groups = None if self.groups is None or other.groups is None else self.groups | other.groups
        return PartialSums(merge_sums(self.sums, other.sums), groups, self.seen + other.seen)


def add_up(part: Part, role: str) -> PartialSums:
    """Accumulate one partition; non-finite values propagate to its sums."""
    accumulator, seen = Accumulator(part.rows.n_features), 0
    # All rows of a partition may have weight zero, but not all rows of a dataset.
    weights = None if part.weights is None else check_weights(part.weights, part.rows.n_rows, role, partial=True)
    nothing = weights is not None and not weights.any()
    with np.errstate(all="ignore"):
        for block in memory.weighted_blocks(part.rows, None if nothing else weights, role):
            seen += block.seen
            if not nothing and not accumulator.add(block.rows, block.weights):
                return PartialSums(accumulator.finish(), None, seen)
        sums = accumulator.finish()
    memory.check_all_used(weights, seen, role)
    groups = None if part.groups is None else distinct_groups(part.groups, weights, seen, role)
    return PartialSums(sums, groups, seen)


def _bad_values(part: Part) -> BadValues:
    return memory.count_bad(part.rows.blocks(block_rows(part.rows.n_features)), part.rows.n_features)


@dataclass(frozen=True)
class LabelledSums:
    """The sums of rows by label: the index of a wanted label, or -1 for rows with another label."""

    parts: dict[int, PartialSums]
    labels: tuple[Any, ...]  # some of those that occur, for messages
    missing: int  # rows without a label
    seen: int

    def __add__(self, other: LabelledSums) -> LabelledSums:
        parts = dict(self.parts)
        for number, sums in other.parts.items():
            parts[number] = parts[number] + sums if number in parts else sums
        labels = tuple(dict.fromkeys((*self.labels, *other.labels)))[:_MOST_LABELS]
        return LabelledSums(parts, labels, self.missing + other.missing, self.seen + other.seen)


def add_up_by_label(part: Part, wanted: Sequence[Any], roles: Sequence[str]) -> LabelledSums:
    """Accumulate one partition by label; ``roles`` are those of the wanted labels and, last, of the other rows."""
    assert part.labels is not None
    distinct = tuple(dict.fromkeys(part.labels.tolist()))[:_MOST_LABELS]
    missing = count_missing(part.labels)
    parts = {} if missing else part.split(wanted)
    sums = {number: add_up(rows, roles[number]) for number, rows in parts.items()}
    return LabelledSums(sums, distinct, missing, len(part.labels))


def _bad_values_of_label(part: Part, wanted: Sequence[Any], number: int) -> BadValues:
    rows = part.split(wanted).get(number)
    return memory.count_bad([], part.rows.n_features) if rows is None else _bad_values(rows)
