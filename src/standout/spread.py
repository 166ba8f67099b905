"""Adding up rows that lie on a cluster: each part where it lies, and the results merged in a fixed order."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from standout.accumulate import Accumulator, Sums, merge_sums
from standout.errors import InputError
from standout.memory import default_budget
from standout.sources import LazySource, Part, is_on_cluster
from standout.sources.checks import checked_table
from standout.sources.locate import BadValues, count_bad, explain_bad, explain_underflow
from standout.sources.source import block_rows
from standout.sources.weighted import (
    check_all_used,
    check_each_weight,
    check_weights,
    distinct_groups,
    weighted_blocks,
)


@dataclass(frozen=True)
class Gathered:
    """What some parts add up to, the groups seen in them, and their rows, those of weight zero included."""

    sums: Sums
    groups: frozenset[Hashable] | None
    seen: int


def gather(source: LazySource, weights: Any, groups: Any, names: Sequence[str] | None, role: str) -> Gathered:
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


def add_up(part: Part, role: str) -> Gathered:
    """Add up one part; values that are not finite show in its sums."""
    accumulator, seen = Accumulator(part.rows.n_features), 0
    # A part may have rows of weight zero only, a whole dataset may not.
    weights = None if part.weights is None else check_each_weight(part.weights, part.rows.n_rows, role)
    nothing = weights is not None and not weights.any()
    with np.errstate(all="ignore"):
        for block in weighted_blocks(part.rows, None if nothing else weights, role):
            seen += block.seen
            if not nothing and not accumulator.add(block.rows, block.weights):
                return Gathered(accumulator.finish(), None, seen)
        sums = accumulator.finish()
    check_all_used(weights, seen, role)
    groups = None if part.groups is None else distinct_groups(part.groups, weights, seen, role)
    return Gathered(sums, groups, seen)


def merge(one: Gathered, other: Gathered) -> Gathered:
    """Return what two parts add up to."""
    groups = None if one.groups is None or other.groups is None else one.groups | other.groups
    return Gathered(merge_sums(one.sums, other.sums), groups, one.seen + other.seen)


def _bad_values(part: Part) -> BadValues:
    return count_bad(part.rows.blocks(block_rows(part.rows.n_features)), part.rows.n_features)
