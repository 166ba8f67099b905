"""A part of a source: some of its rows, some of its columns in another order, without a copy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from standout.sources.source import InMemory, MomentSource, RowSource, Source, has_moments, has_rows, reads_ahead

if TYPE_CHECKING:
    from standout.moments import Moments

Index = NDArray[np.intp]


class RowView(InMemory):
    """The rows of a source at ``index``."""

    def __init__(self, source: RowSource, index: Index):
        self.source, self.index = source, index
        self.n_rows, self.n_features = len(index), source.n_features
        self.names = source.names
        self.labels, self.groups, self.row_ids = (
            None if values is None else values[index] for values in (source.labels, source.groups, source.row_ids)
        )

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``start`` to ``stop`` of the view."""
        return self.source.take(self.index[start:stop])

    def take(self, index: Index) -> NDArray[Any]:
        """Return the view's rows at ``index``."""
        return self.source.take(self.index[index])

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        """Return columns ``start`` to ``stop`` of the view's rows."""
        return self.source.columns(start, stop)[self.index]


class ColumnView:
    """The columns of a source at ``index``; works for any source, block by block."""

    def __init__(self, source: Source, index: Index):
        self.source, self.index = source, index
        self.n_features = len(index)
        self.names = None if source.names is None else tuple(source.names[i] for i in index)

    # What a stream knows of its rows may cost a pass: it is asked when it is needed.

    @property
    def n_rows(self) -> int | None:
        """Number of rows, where it is known."""
        return self.source.n_rows

    @property
    def labels(self) -> NDArray[Any] | None:
        """The label of each row."""
        return self.source.labels

    @property
    def groups(self) -> NDArray[Any] | None:
        """The group of each row."""
        return self.source.groups

    @property
    def row_ids(self) -> NDArray[Any] | None:
        """The id of each row."""
        return self.source.row_ids

    @property
    def memory(self) -> int:
        """Bytes that blocks may take together."""
        return int(getattr(self.source, "memory", 0))

    @property
    def reads_ahead(self) -> bool:
        """Whether a thread reads the blocks while the caller works."""
        return reads_ahead(self.source)

    def blocks(self, rows: int) -> Iterator[NDArray[Any]]:
        """Yield blocks with the chosen columns."""
        for block in self.source.blocks(rows):
            yield block[:, self.index]


class MomentColumnView(ColumnView):
    """The columns at ``index`` of a source that adds up its own moments."""

    source: MomentSource

    def moments(self) -> Moments:
        """Return the moments of the chosen columns."""
        return self.source.moments().select(self.index)


class RowColumnView(ColumnView):
    """The columns at ``index`` of a source whose rows can be read again."""

    source: RowSource

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``start`` to ``stop`` with the chosen columns."""
        return self.source.rows(start, stop)[:, self.index]

    def take(self, index: Index) -> NDArray[Any]:
        """Return the rows at ``index`` with the chosen columns."""
        return self.source.take(index)[:, self.index]

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        """Return the chosen columns ``start`` to ``stop``; a run of neighbours is one slice."""
        wanted = self.index[start:stop]
        low, high = int(wanted.min()), int(wanted.max()) + 1
        if high - low <= 4 * len(wanted):
            return self.source.columns(low, high)[:, wanted - low]
        return np.column_stack([self.source.columns(int(i), int(i) + 1) for i in wanted])


def select_columns(source: Source, index: Index) -> Source:
    """Return ``source`` with the columns at ``index``, in that order."""
    if len(index) == source.n_features and np.array_equal(index, np.arange(len(index))):
        return source
    if callable(getattr(type(source), "select", None)):  # files that read only the columns they are asked for
        chosen: Source = source.select(index)  # type: ignore[attr-defined]
        return chosen
    view: Any = MomentColumnView if has_moments(source) else RowColumnView if has_rows(source) else ColumnView
    narrowed: Source = view(source, index)
    return narrowed
