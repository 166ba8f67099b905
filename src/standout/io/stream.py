"""Sources for files: a table in memory, or a stream of blocks that is reopened for every pass."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout.errors import InputError
from standout.io.checkpoint import CheckpointFile, FileStamp
from standout.io.memory import SparseSource
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
    label: str | None = None
    groups: str | None = None
    groups_match: str | None = None  # regular expression for the subject in a group
    ids: str | None = None
    n_rows: int | None = None
    memory: int = 0  # total bytes for blocks
    resumption: CheckpointFile | None = None  # checkpoint from which a killed pass resumes
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


class _Described:
    """Mixin for file sources: the path, and the columns that describe rows."""

    def __init__(self, layout: Layout):
        self.layout, self.path, self.names = layout, layout.path, layout.names
        self.aside = layout.aside  # columns that are not features
        self.index: list[IdColumn] = []  # of a data frame

    def about(self, column: str) -> NDArray[Any]:
        """Return a column that describes rows."""
        raise NotImplementedError

    @property
    def has_groups(self) -> bool:
        """Whether rows have groups."""
        return self.layout.groups is not None

    def id_columns(self) -> list[IdColumn]:
        """Return the columns that are not features, and the index of a data frame."""
        described = [IdColumn(self.about(name), name, explicit=name == self.layout.ids) for name in self.aside]
        return [*described, *self.index]

    def without_groups(self) -> Any:
        """Return the same rows without groups."""
        plain = copy.copy(self)
        plain.layout = replace(self.layout, groups=None)
        plain.__dict__.pop("groups", None)  # of rows in memory
        return plain

    def _role(self, column: str | None) -> NDArray[Any] | None:
        return None if column is None else self.about(column)

    def _subjects(self, groups: NDArray[Any] | None) -> NDArray[Any] | None:
        """Return the part of each group that identifies the subject; missing groups remain missing."""
        if groups is None or self.layout.groups_match is None:
            return groups
        pattern = re.compile(self.layout.groups_match)
        names: dict[Any, str | None] = {None: None}
        for group in dict.fromkeys(groups.tolist()):
            if group is None:
                continue
            found = pattern.search(str(group))
            if found is None:
                raise InputError(
                    f"{self.path}: `groups_match={pattern.pattern!r}` does not match the group {group!r}. Give a "
                    "pattern that matches all of them."
                )
            names[group] = found[1] if pattern.groups else found[0]
        return np.array([names[group] for group in groups.tolist()], dtype=object)


class _InMemory(_Described, RowSource):
    """Mixin for the rows of a file in memory."""

    def __init__(self, layout: Layout, rows: Any, about: RowMetadata, account: ReadSummary | None = None):
        super(_Described, self).__init__(rows)  # type: ignore[call-arg]
        _Described.__init__(self, layout)
        self._about = about
        self.labels, self.row_ids = map(self._role, (layout.label, layout.ids))
        self.groups = self._subjects(self._role(layout.groups))
        self.account = account or ReadSummary(str(self.path), self.n_rows or 0, self.n_features, aside=layout.aside)

    def about(self, column: str) -> NDArray[Any]:
        """Return a column that describes rows."""
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


class Stream(_Described, Source):
    r"""A file too large for memory: every pass reopens it and reads it block by block.

    ``open_blocks(rows, columns, mark)`` yields :class:`Block`\ s of at most ``rows`` rows, in order; ``columns`` are
    the describing columns to read with them. ``mark`` is the position after the last block of an earlier pass, as
    returned by that block; None is the start of the file. Block boundaries do not depend on where a pass starts.
    The number of rows is known in advance, or after the first pass.
    """

    reads_ahead = rereadable = True
    chosen: NDArray[np.intp] | None = None  # indices of the columns used; None: all, or selected by name

    def __init__(self, layout: Layout, open_blocks: Callable[[int, tuple[str, ...], Any], Iterator[Block]]):
        super().__init__(layout)
        self.open_blocks, self.n_features, self.n_rows = open_blocks, layout.n_features, layout.n_rows
        self.memory, self.checkpoint = layout.memory, layout.resumption
        self._kept: RowMetadata = {}

    @property
    def account(self) -> ReadSummary:
        """Summary of how the file was read."""
        return ReadSummary(str(self.path), self.n_rows or 0, self.n_features, aside=self.aside)

    @property
    def labels(self) -> NDArray[Any] | None:  # type: ignore[override]
        """The label of each row."""
        return self._role(self.layout.label)

    @property
    def groups(self) -> NDArray[Any] | None:  # type: ignore[override]
        """The group of each row."""
        return self._subjects(self._role(self.layout.groups))

    @property
    def row_ids(self) -> NDArray[Any] | None:  # type: ignore[override]
        """The id of each row."""
        return self._role(self.layout.ids)

    def blocks(self, rows: int) -> Iterator[NDArray[Any]]:
        """Yield the features, and cache labels, groups and ids."""
        yield from self._keeping(rows, self.layout.label, self.layout.groups, self.layout.ids)

    def table_blocks(self, rows: int, columns: tuple[str, ...] | None = None) -> Iterator[Block]:
        """Yield the rows with the columns that describe them: all, or these."""
        yield from self._pass(rows, self.aside if columns is None else columns)

    def blocks_after(self, rows: int, mark: Any, seen: int) -> Iterator[Block]:
        """Yield the blocks from ``mark`` on, with their groups; ``seen`` is the number of rows before them."""
        yield from self._pass(rows, () if self.layout.groups is None else (self.layout.groups,), mark, seen)

    def subjects_of(self, block: Block) -> NDArray[Any] | None:
        """Return the group of each row of a block."""
        return None if self.layout.groups is None else self._subjects(block.about[self.layout.groups])

    def about(self, column: str) -> NDArray[Any]:
        """Return a column that describes rows; read it in a separate pass unless it is cached."""
        if column not in self._kept:
            roles = (self.layout.label, self.layout.groups, self.layout.ids)  # these are read together
            for _ in self._keeping(block_rows_of(self), column, *roles):
                pass
        return self._kept[column]

    def _keeping(self, rows: int, *columns: str | None) -> Iterator[NDArray[Any]]:
        """Yield the features; cache the values of these columns once all rows have been read."""
        parts: dict[str, list[NDArray[Any]]] = {c: [] for c in columns if c is not None and c not in self._kept}
        for block in self._pass(rows, tuple(parts)):
            for column, values in parts.items():
                values.append(block.about[column])
            yield block.numbers
        for column, values in parts.items():
            self._kept[column] = np.concatenate(values) if values else np.empty(0, dtype=object)

    def _pass(self, rows: int, columns: tuple[str, ...], mark: Any = None, seen: int = 0) -> Iterator[Block]:
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

    def _check_unchanged_at(self, start: int) -> None:
        """Check for changed files in a pass by columns: once per panel of a file, once for a multi-file array."""
        if start == 0 or (self.layout.files is not None and len(self.layout.files.stamps) == 1):
            self._check_unchanged()
