"""Sources with missing values that are drawn: what was observed in them, and filling them by another model."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from standout.blas import Array
from standout.errors import InputError, listed, named_features
from standout.sources.gaussian import Blocks, Observed, estimate
from standout.sources.locate import count_bad, explain_bad
from standout.sources.memory import ArraySource
from standout.sources.source import Source, has_rows
from standout.sources.views import ColumnView, RowView, select_columns


class Filling(Protocol):
    """A rule by which missing values are filled."""

    def rows(self, numbers: NDArray[Any], start: int = 0) -> Array:
        """Return rows with their missing values filled in; ``start`` is the number of rows before them."""
        ...

    def digest(self) -> str:
        """Return a text that differs where the fill does."""
        ...


@dataclass(frozen=True)
class AtMean:
    """Fill in given means."""

    mean: Array

    def rows(self, numbers: NDArray[Any], start: int = 0) -> Array:  # noqa: ARG002
        """Return rows with the means for missing values."""
        return np.where(np.isnan(numbers), self.mean, numbers)

    def digest(self) -> str:
        """Return a text that differs where the means do."""
        return self.mean.tobytes().hex()


def own_filling(blocks: Blocks, n_features: int, role: str, names: Sequence[str] | None) -> Filling:
    """Return how rows are filled by a model of these rows alone."""
    (found,) = estimate([observed(blocks, n_features, role, names)])
    assert found is not None
    return found


def observed(
    blocks: Blocks,
    n_features: int,
    role: str,
    names: Sequence[str] | None,
    place: int = 0,
    weights: Array | None = None,
) -> Observed:
    """Return what is observed in rows with missing values; refuse infinite values and features without any value."""
    found = Observed(blocks, n_features, place, weights)
    if not np.isfinite(found.variance).all():
        bad = count_bad(blocks(), n_features)
        raise explain_bad(replace(bad, nan=np.zeros_like(bad.nan)), names, role)
    check_seen(found.empty, names, role)
    return found


def check_seen(empty: NDArray[np.intp], names: Sequence[str] | None, role: str) -> None:
    """Refuse features without any value."""
    if len(empty):
        holds, them = ("feature holds", "it") if len(empty) == 1 else ("features hold", "them")
        raise InputError(
            f"{role}: {len(empty)} {holds} no value at all: {listed(named_features(names, empty))}. Leave {them} out "
            "of all datasets, with drop= of standout.read."
        )


class Incomplete:
    """What sources with missing values that are drawn have in common."""

    def raw_blocks(self) -> Iterator[NDArray[Any]]:
        """Yield the rows with NaN for missing values."""
        raise NotImplementedError


class FilledRows(ArraySource):
    """Rows in memory whose missing values were filled."""

    def __init__(self, filled: Array, like: Source):
        super().__init__(filled, like.names)
        self.labels, self.groups, self.row_ids = like.labels, like.groups, like.row_ids


class RefillableRows(Incomplete, FilledRows):
    """The same with what was observed, to fill some of the rows by another model."""

    def __init__(self, raw: NDArray[Any], filled: Array, like: Source):
        super().__init__(filled, like)
        self.raw = raw

    def raw_blocks(self) -> Iterator[NDArray[Any]]:
        """Yield the rows with NaN for missing values."""
        yield self.raw


def is_incomplete(source: Any) -> bool:
    """Return whether a source, or what it is a view of, has missing values that are drawn."""
    while isinstance(source, RowView | ColumnView):
        source = source.source
    return isinstance(source, Incomplete)


def raw_blocks(source: Any) -> Iterator[NDArray[Any]]:
    """Yield the rows of an incomplete source with NaN for missing values."""
    if isinstance(source, RowView):
        yield raw_rows(source.source)[source.index]
    elif isinstance(source, ColumnView):
        for block in raw_blocks(source.source):
            yield block[:, source.index]
    else:
        yield from source.raw_blocks()


def raw_rows(source: Any) -> NDArray[Any]:
    """Return all rows of an incomplete source with NaN for missing values."""
    blocks = list(raw_blocks(source))
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


def filled_by(source: Any, filling: Filling) -> Source:
    """Return an incomplete source with its missing values filled by a given rule."""
    columns: list[NDArray[np.intp]] = []
    inner = source
    while isinstance(inner, ColumnView):
        columns.insert(0, inner.index)
        inner = inner.source
    if has_rows(inner):
        raw = raw_rows(source)
        return RefillableRows(raw, filling.rows(raw), source)
    stream = copy.copy(inner)
    stream.filling, chosen = filling, np.arange(inner.n_features)
    for index in columns:
        chosen = chosen[index]
    stream.filled_columns = chosen if columns else None
    found: Source = stream
    for index in columns:
        found = select_columns(found, index)
    return found
