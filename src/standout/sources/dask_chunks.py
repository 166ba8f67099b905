"""What happens to the chunks of a dask collection on the worker that holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout.blas import threads_for
from standout.errors import InputError
from standout.sources import read
from standout.sources.memory import ArraySource
from standout.sources.source import InMemory, Part, Result, Source
from standout.sources.views import select_columns
from standout.sources.weighted import as_ids, as_weights


@dataclass(frozen=True)
class Opener:
    """Makes a source of chunks in memory; small, because it travels with every task."""

    n_features: int
    role: str
    index: NDArray[np.intp] | None  # the columns that are wanted; None: all

    def __call__(self, grid: Sequence[Sequence[Any]]) -> Source:
        """Return the source of neighbouring chunks: one list for each chunk of rows, of its chunks of columns."""
        rows = [self._row(pieces) for pieces in grid]
        source: Any = rows[0] if len(rows) == 1 else _Stacked(rows)
        return source if self.index is None else select_columns(source, self.index)

    def _row(self, pieces: Sequence[Any]) -> Any:
        lengths = [self._rows_of(piece) for piece in pieces]
        if min(lengths) != max(lengths):
            raise InputError(
                f"{self.role}: chunks of columns that stand side by side have {min(lengths)} and {max(lengths)} rows, "
                "so it is not known which values make a row. Choose the same rows in all columns."
            )
        if lengths[0] == 0:
            return ArraySource(np.empty((0, self.n_features)))
        sources = [read(_in_scipy(piece), role=self.role) for piece in pieces if piece.shape[1:] != (0,)]
        found = sum(source.n_features for source in sources)
        if found != self.n_features:
            raise InputError(
                f"{self.role}: a chunk of the dask array has {found} columns, and the array says {self.n_features}. "
                "Give the shape that the chunks have where the array is made, for instance in dask.array.from_delayed."
            )
        return sources[0] if len(sources) == 1 else _SideBySide(sources, self.n_features)

    def _rows_of(self, piece: Any) -> int:
        if not getattr(piece, "shape", ()):
            raise InputError(
                f"{self.role}: a chunk of the dask array is a {type(piece).__name__}, without rows and columns. Make "
                "every chunk an array, for instance with numpy.asarray in the function that reads it."
            )
        return int(piece.shape[0])


def map_chunk(pieces: Sequence[Any], function: Callable[[Source], NDArray[Any]], opener: Opener) -> NDArray[Any]:
    """Return a function of the rows of one chunk."""
    # Tasks run side by side already; and one thread gives the same bits wherever the task runs.
    with threads_for(0):
        return function(opener([pieces]))


def reduce_part(
    function: Callable[[Part], Result],
    opener: Opener,
    grid: Sequence[Sequence[Any]],
    weights: Sequence[Any] | None,
    groups: Sequence[Any] | None,
) -> Result:
    """Return a function of neighbouring chunks and of what goes with their rows."""
    with threads_for(0):
        given = partial(as_weights, role=opener.role)
        return function(Part(opener(grid), _joined(weights, given), _joined(groups, as_ids)))


def _joined(pieces: Sequence[Any] | None, array: Callable[[Any], NDArray[Any]]) -> NDArray[Any] | None:
    return None if pieces is None else np.concatenate([array(piece) for piece in pieces])


def _in_scipy(piece: Any) -> Any:
    """Return a chunk of the package sparse as a scipy matrix, all else as it is."""
    return piece.to_scipy_sparse() if hasattr(piece, "to_scipy_sparse") else piece


class _Stacked:
    """Chunks of rows, one after the other."""

    names = labels = groups = row_ids = None

    def __init__(self, sources: Sequence[Any]):
        self.sources = sources
        self.n_rows, self.n_features = sum(source.n_rows for source in sources), sources[0].n_features

    def blocks(self, rows: int) -> Iterator[NDArray[Any]]:
        """Yield the blocks of each chunk in turn."""
        for source in self.sources:
            yield from source.blocks(rows)


class _SideBySide(InMemory):
    """Chunks of columns; put together one block at a time."""

    def __init__(self, sources: Sequence[Any], n_features: int):
        self.sources = sources
        self.n_rows, self.n_features = sources[0].n_rows, n_features

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``start`` to ``stop`` of all columns."""
        return np.concatenate([source.rows(start, stop) for source in self.sources], axis=1)
