"""Sources for files: a table in memory, or a stream of blocks that is reopened for every pass."""

from __future__ import annotations

import copy
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout.errors import InputError
from standout.io.checkpoint import CheckpointFile, FileStamp
from standout.io.memory import SparseSource
from standout.io.options import Options
from standout.io.source import ArraySource, IdColumn, RowSource, Source, block_rows_of, report

RowMetadata = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Block:
    """A block of rows: their features, and the values of the columns that describe them."""

    numbers: NDArray[Any]  # (n_rows, n_features)
    about: RowMetadata  # column → one value for each row
    share: float | None = None  # fraction of the file up to the end of this block
    after: Callable[..., Any] | None = None  # returns, as JSON, the start of the next block


@dataclass(frozen=True)
class Layout:
    """Properties of a file that are known before its rows are read."""

    path: Path
    names: tuple[str, ...] | None  # features
    n_features: int
    aside: tuple[str, ...] = ()  # the other columns, which describe rows
    options: Options = field(default_factory=Options)  # ``ids``: as requested, or according to the file
    n_rows: int | None = None
    files: FileStamp | None = None  # the files, with their state when opened


@dataclass(frozen=True)
class ReadSummary:
    """Summary of how a dataset was read."""

    path: str
    rows: int  # rows that are used
    features: int
    rows_left_out: int = 0  # for a missing value
    features_left_out: tuple[str, ...] = ()  # for a missing value
    values_filled: int = 0
    filled_by: str = "means"  # or "draws"
    aside: tuple[str, ...] = ()  # columns that are not features
    missing: Mapping[str, int] = field(default_factory=dict)  # number of missing values, by feature


class _Described(Source):
    """A source of a file: its path, and the columns that describe rows."""

    handled: ReadSummary | None = None  # if missing values were handled
    index: Sequence[IdColumn] = ()  # of a data frame

    def __init__(self, layout: Layout):
        self.layout, self.path, self.names = layout, layout.path, layout.names
        self.aside = layout.aside  # columns that are not features

    labels = cached_property(lambda self: self._role(self.layout.options.label))
    groups = cached_property(lambda self: self.subjects(self._role(self.layout.options.groups)))
    row_ids = cached_property(lambda self: self._role(self.layout.options.ids))
    has_groups = property(lambda self: self.layout.options.groups is not None)

    def about(self, column: str) -> NDArray[Any]:
        """Return a column that describes rows."""
        raise NotImplementedError

    @property
    def account(self) -> ReadSummary:
        """Summary of how the data were read."""
        return self.handled or ReadSummary(str(self.path), self.n_rows or 0, self.n_features, aside=self.aside)

    def id_columns(self) -> list[IdColumn]:
        described = [IdColumn(self.about(name), name, explicit=name == self.layout.options.ids) for name in self.aside]
        return [*described, *self.index]

    def without_groups(self) -> Any:
        """Return the same rows without groups."""
        plain = copy.copy(self)
        plain.layout = replace(self.layout, options=replace(self.layout.options, groups=None))
        plain.__dict__.pop("groups", None)
        return plain

    def _role(self, column: str | None) -> NDArray[Any] | None:
        return None if column is None else self.about(column)

    def subjects(self, groups: NDArray[Any] | None) -> NDArray[Any] | None:
        """Return the part of each group that identifies the subject; missing groups remain missing."""
        match = self.layout.options.groups_match
        if groups is None or match is None:
            return groups
        names: dict[Any, str | None] = {None: None}
        for group in dict.fromkeys(group for group in groups.tolist() if group is not None):
            found = re.search(match, str(group))
            if found is None:
                problem = f"{self.path}: `groups_match={match!r}` does not match the group {group!r}"
                raise InputError(f"{problem}. Give a pattern that matches all of them.")
            names[group] = found[1] if found.re.groups else found[0]
        return np.array([names[group] for group in groups.tolist()], dtype=object)


class _InMemory(_Described, RowSource):
    """Mixin for the rows of a file in memory."""

    def __init__(self, layout: Layout, rows: Any, about: RowMetadata):
        super(_Described, self).__init__(rows)  # type: ignore[call-arg]
        _Described.__init__(self, layout)
        self._about = about
        _ = self.labels, self.groups, self.row_ids  # errors in these columns are raised here

    def about(self, column: str) -> NDArray[Any]:
        return self._about[column]

    def table_blocks(self, rows: int, columns: tuple[str, ...] | None = None) -> Iterator[Block]:
        """Yield the rows with the columns that describe them: all, or these."""
        start, chosen = 0, self.aside if columns is None else columns
        for numbers in self.blocks(rows):
            stop = start + len(numbers)
            yield Block(numbers, {name: self.about(name)[start:stop] for name in chosen})
            start = stop


class TableInMemory(_InMemory, ArraySource):
    """A file that fits into memory: features, names, and the columns that describe rows."""


class SparseInMemory(_InMemory, SparseSource):
    """A sparse file that fits into memory as a sparse matrix."""


class Stream(_Described):
    r"""A file too large for memory: every pass reopens it and reads it block by block.

    ``open_blocks(rows, columns, mark)`` yields :class:`Block`\ s of at most ``rows`` rows, in order; ``columns`` are
    the describing columns to read with them. ``mark`` is the position after the last block of an earlier pass, as
    returned by that block; None is the start of the file. Block boundaries do not depend on where a pass starts.
    The number of rows is known in advance, or after the first pass.
    """

    reads_ahead = rereadable = True
    column_index: NDArray[np.intp] | None = None  # indices of the columns used; None: all, or selected by name

    def __init__(self, layout: Layout, open_blocks: Callable[[int, tuple[str, ...], Any], Iterator[Block]]):
        super().__init__(layout)
        self.open_blocks, self.n_features, self.n_rows = open_blocks, layout.n_features, layout.n_rows
        self.memory = layout.options.memory
        self._kept: RowMetadata = {}

    @property
    def checkpoint(self) -> CheckpointFile | None:
        """The checkpoint from which a killed pass resumes."""
        path, files = self.layout.options.checkpoint, self.layout.files
        return None if path is None or files is None else CheckpointFile(path, files, self.layout.options)

    def table_blocks(self, rows: int, columns: tuple[str, ...] | None = None) -> Iterator[Block]:
        yield from self.read_blocks(rows, self.aside if columns is None else columns)

    def about(self, column: str) -> NDArray[Any]:
        """Return a column that describes rows; read it in a separate pass unless it is cached."""
        if column not in self._kept:
            deque(self.blocks(block_rows_of(self), column), maxlen=0)
        return self._kept[column]

    def blocks(self, rows: int, column: str | None = None) -> Iterator[NDArray[Any]]:
        """Yield the features; cache the values of labels, groups, ids and ``column`` once all rows have been read."""
        options = self.layout.options
        columns = (column, options.label, options.groups, options.ids)
        parts: dict[str, list[NDArray[Any]]] = {c: [] for c in columns if c is not None and c not in self._kept}
        for block in self.read_blocks(rows, tuple(parts)):
            for column, values in parts.items():
                values.append(block.about[column])
            yield block.numbers
        for column, values in parts.items():
            self._kept[column] = np.concatenate(values) if values else np.empty(0, dtype=object)

    def read_blocks(self, rows: int, columns: tuple[str, ...], mark: Any = None, seen: int = 0) -> Iterator[Block]:
        self._check_unchanged()
        for block in self.open_blocks(rows, columns, mark):
            seen += len(block.numbers)
            report(self.path.name, seen, block.share)
            yield block
        self._check_unchanged()
        self.n_rows = seen

    def _check_unchanged(self) -> None:
        if self.layout.files is not None:
            self.layout.files.check(str(self.path))
