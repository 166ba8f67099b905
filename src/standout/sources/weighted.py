"""Rows with their weights, block by block."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from standout.blas import Array
from standout.errors import InputError
from standout.sources.checks import checked_block, is_missing
from standout.sources.source import Source, block_rows_of


@dataclass(frozen=True)
class WeightedBlock:
    """Some rows, their weights where there are any, and how many rows it was before those of weight zero left."""

    rows: NDArray[Any]
    weights: Array | None
    seen: int


def weighted_blocks(source: Source, weights: ArrayLike | None, role: str) -> Iterable[WeightedBlock]:
    """Yield the blocks of a source with their weights."""
    checked = None if weights is None else check_weights(weights, source.n_rows, role)
    start = 0
    for rows in source.blocks(block_rows_of(source)):
        checked_block(rows, source.n_features, role)
        yield weighted(rows, checked, start, role)
        start += len(rows)
    check_all_used(checked, start, role)


def weighted(rows: NDArray[Any], weights: Array | None, start: int, role: str) -> WeightedBlock:
    """Return some rows, of which ``start`` come before, with their part of the weights."""
    stop = start + len(rows)
    if weights is not None and stop > len(weights):
        raise InputError(f"{role} weights: {len(weights)} weights for more rows. Give one weight for each row.")
    return _counted(rows, None if weights is None else weights[start:stop])


def check_all_used(weights: Array | None, n_rows: int, role: str) -> None:
    """Refuse more weights than there were rows."""
    if weights is not None and n_rows != len(weights):
        raise InputError(f"{role} weights: {len(weights)} weights for {n_rows} rows. Give one weight for each row.")


def _counted(rows: NDArray[Any], weights: Array | None) -> WeightedBlock:
    """Leave out rows of weight zero: whatever they hold, they are not there."""
    if weights is None or weights.all():
        return WeightedBlock(rows, weights, len(rows))
    return WeightedBlock(rows[weights > 0], weights[weights > 0], len(rows))


def check_weights(weights: ArrayLike, n_rows: int | None, role: str) -> Array:
    """Return weights as a float array, or say what is wrong with them."""
    checked = check_each_weight(weights, n_rows, role)
    if not checked.any():
        raise InputError(f"{role} weights: all are zero, so no row is left. Give some row a positive weight.")
    return checked


def check_each_weight(weights: ArrayLike, n_rows: int | None, role: str) -> Array:
    """Return weights, of which all may be zero, as a float array, or say what is wrong with them."""
    given = as_weights(weights, role)
    if given.dtype.kind not in "fiub":
        raise InputError(f"{role} weights: values of type {given.dtype} are not numbers. Give one number for each row.")
    checked = given.astype(np.float64, copy=False)
    if checked.ndim != 1 or (n_rows is not None and len(checked) != n_rows):
        raise InputError(f"{role} weights: shape {checked.shape} for {n_rows} rows. Give one weight for each row.")
    if not np.isfinite(checked).all():
        raise InputError(f"{role} weights: {np.sum(~np.isfinite(checked))} are NaN or inf. Give finite weights.")
    if (checked < 0).any():
        raise InputError(
            f"{role} weights: {np.sum(checked < 0)} are negative (smallest {checked.min():g}). "
            "Weights count rows: use 0 to leave a row out."
        )
    positive = checked[checked > 0]
    if len(positive) and (positive.max() > 1e100 or positive.min() < 1e-100):
        raise InputError(
            f"{role} weights: they go from {positive.min():.3g} to {positive.max():.3g}, too far for sums. "
            "Divide all weights by a common factor, or use 0 to leave a row out."
        )
    return checked


def as_weights(weights: ArrayLike, role: str) -> NDArray[Any]:
    """Return weights as an array; those behind a mask are missing."""
    masked = int(np.ma.getmaskarray(weights).sum()) if isinstance(weights, np.ma.MaskedArray) else 0
    if masked:
        raise InputError(
            f"{role} weights: {masked} of {np.size(weights)} are masked, that is, missing. Give every row a weight, 0 "
            "to leave it out."
        )
    return np.asarray(weights)


def as_ids(ids: Any) -> NDArray[Any]:
    """Return ids as an array that keeps each as it is: a list of text and NaN must not become text."""
    if isinstance(ids, np.ma.MaskedArray):
        kept = np.array(ids.data, dtype=object)
        kept[np.ma.getmaskarray(ids)] = None
        return kept
    if isinstance(ids, list | tuple):
        return np.fromiter(ids, dtype=object, count=len(ids))  # a tuple is an id, too
    return np.asarray(ids)


def distinct_groups(
    groups: Sequence[Hashable] | NDArray[Any], weights: ArrayLike | None, n_rows: int, role: str
) -> frozenset[Hashable]:
    """Return the distinct group ids of the rows with a positive weight."""
    ids = as_ids(groups)
    if ids.ndim != 1 or len(ids) != n_rows:
        raise InputError(f"{role} groups: shape {ids.shape} for {n_rows} rows. Give one group id for each row.")
    missing = sum(is_missing(item) for item in ids.tolist())
    if missing:
        raise InputError(
            f"{role} groups: {missing} of {n_rows} rows have no group id (None or NaN). Give every row an id, one of "
            "its own where it stands alone."
        )
    if weights is not None:
        ids = ids[np.asarray(weights) > 0]
    try:
        return frozenset(ids.tolist())
    except TypeError as error:  # lists, dicts and the like
        raise InputError(
            f"{role} groups: an id cannot be compared with others ({error}). Give ids that are text or numbers."
        ) from error
