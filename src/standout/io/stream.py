"""What files become: a table in memory, or a stream of blocks that is opened anew for every pass."""

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
from standout.io.source import ArraySource, Source, block_rows_of, report

RowMetadata = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Block:
    """Some rows: their numbers, and what other columns say about them."""

    numbers: NDArray[Any]  # (n_rows, n_features)
    about: RowMetadata  # column → one value for each row
    share: float | None = None  # of the file, up to the end of this block
    after: Callable[..., Any] | None = None  # gives, as JSON, where the next block begins


@dataclass(frozen=True)
class Layout:
    """What is known of a file before its rows are read."""

    path: Path
    names: tuple[str, ...] | None  # features
    n_features: int
    aside: tuple[str, ...] = ()  # the other columns, which describe rows
    unasked: tuple[str, ...] = ()  # those of them that nobody named: they turned out not to be numbers
    label: str | None = None
    groups: str | None = None
    ids: str | None = None
    n_rows: int | None = None
    groups_match: str | None = None  # the part of a group that names the subject
    memory: int = 0  # bytes that blocks may take together
    resumption: CheckpointFile | None = None  # where a pass is kept that may be killed
    files: FileStamp | None = None  # what is read, as it was when it was opened


@dataclass(frozen=True)
class ReadSummary:
    """What reading did to a dataset."""

    path: str
    rows: int  # rows that are used
    features: int
    rows_left_out: int = 0  # for a missing value
    features_left_out: tuple[str, ...] = ()  # for a missing value
    values_filled: int = 0
    filled_by: str = "means"  # or "draws"
    aside: tuple[str, ...] = ()  # columns that are not features
    missing: Mapping[str, int] = field(default_factory=dict)  # missing values met, by feature


def _matched(groups: NDArray[Any], layout: Layout) -> NDArray[Any]:
    """Return the part of each group that names the subject; a missing group stays missing."""
    pattern = re.compile(layout.groups_match or "")
    names: dict[Any, str | None] = {None: None}
    for group in dict.fromkeys(groups.tolist()):
        if group is None:
            continue
        found = pattern.search(str(group))
        if found is None:
            raise InputError(
                f"{layout.path}: `groups_match={layout.groups_match!r}` does not match the group {group!r}. Give a "
                "pattern that matches all of them."
            )
        names[group] = found[1] if pattern.groups else found[0]
    return np.array([names[group] for group in groups.tolist()], dtype=object)


class _Described:
    """What both kinds of source share: where they come from, and the columns that describe rows."""

    layout: Layout

    @property
    def path(self) -> Path:
        """The file."""
        return self.layout.path

    @property
    def aside(self) -> tuple[str, ...]:
        """Columns that are not features."""
        return self.layout.aside

    def about(self, column: str) -> NDArray[Any]:
        """Return a column that describes rows."""
        raise NotImplementedError

    def name_subjects(self, pattern: str) -> None:
        """Take the part of each group that the pattern matches as the name of the subject."""
        self.layout = replace(self.layout, groups_match=pattern)
        if "groups" in self.__dict__:  # kept in memory, and not asked for again
            self.__dict__["groups"] = self._subjects()

    def without_groups(self) -> Any:
        """Return the same rows with nothing said about groups."""
        plain = copy.copy(self)
        plain.layout = replace(self.layout, groups=None)
        if "groups" in plain.__dict__:
            plain.__dict__["groups"] = None
        return plain

    def _role(self, column: str | None) -> NDArray[Any] | None:
        return None if column is None else self.about(column)

    def _subjects(self) -> NDArray[Any] | None:
        groups = self._role(self.layout.groups)
        return groups if groups is None or self.layout.groups_match is None else _matched(groups, self.layout)


class TableInMemory(_Described, ArraySource):
    """A file that was small enough to be kept: numbers, names, and the columns that describe rows."""

    def __init__(self, layout: Layout, numbers: NDArray[Any], about: RowMetadata, account: ReadSummary | None = None):
        super().__init__(numbers, layout.names)
        self.layout, self._about = layout, about
        self.labels, self.row_ids = map(self._role, (layout.label, layout.ids))
        self.groups = self._subjects()
        self.account = account or ReadSummary(str(layout.path), self.n_rows, self.n_features, aside=layout.aside)

    def about(self, column: str) -> NDArray[Any]:
        """Return a column that describes rows."""
        return self._about[column]

    def table_blocks(self, rows: int, columns: tuple[str, ...] | None = None) -> Iterator[Block]:
        """Yield the rows with what describes them: all of it, or these columns."""
        wanted = self.aside if columns is None else columns
        for start in range(0, self.n_rows, rows):
            stop = min(start + rows, self.n_rows)
            yield Block(self.rows(start, stop), {name: self.about(name)[start:stop] for name in wanted})


class SparseInMemory(_Described, SparseSource):
    """A sparse file that was small enough to be kept sparse in memory."""

    def __init__(self, layout: Layout, matrix: Any, about: RowMetadata):
        super().__init__(matrix)
        self.names = layout.names
        self.layout, self._about = layout, about
        self.labels, self.row_ids = map(self._role, (layout.label, layout.ids))
        self.groups = self._subjects()
        self.account = ReadSummary(str(layout.path), self.n_rows, self.n_features, aside=layout.aside)

    about = TableInMemory.about
    table_blocks = TableInMemory.table_blocks


class Stream(_Described, Source):
    r"""A file too large to be kept: every pass opens it anew and reads it block by block.

    ``open_blocks(rows, columns, mark)`` yields :class:`Block`\ s of at most ``rows`` rows, in order; ``columns`` are
    the describing columns that are wanted with them. ``mark`` is what the last block of an earlier pass said of the
    place after it; None is the beginning. Blocks are cut at the same places wherever a pass begins.
    """

    reads_ahead = True
    chosen: NDArray[np.intp] | None = None  # places of the columns that are used; None: all of them, or told by name

    def __init__(self, layout: Layout, open_blocks: Callable[[int, tuple[str, ...], Any], Iterator[Block]]):
        self.layout, self.open_blocks = layout, open_blocks
        self.names, self.n_features = layout.names, layout.n_features
        self._seen: int | None = layout.n_rows
        self._kept: RowMetadata = {}

    @property
    def n_rows(self) -> int | None:  # type: ignore[override]
        """Number of rows: known beforehand, or after the first pass."""
        return self._seen

    @property
    def memory(self) -> int:  # type: ignore[override]
        """Bytes that blocks may take together."""
        return self.layout.memory

    @property
    def checkpoint(self) -> CheckpointFile | None:
        """The file that a long pass resumes from."""
        return self.layout.resumption

    @property
    def account(self) -> ReadSummary:
        """What reading did."""
        return ReadSummary(str(self.path), self.n_rows or 0, self.n_features, aside=self.aside)

    def table_blocks(self, rows: int, columns: tuple[str, ...] | None = None) -> Iterator[Block]:
        """Yield the rows with what describes them: all of it, or these columns."""
        yield from self._pass(rows, self.aside if columns is None else columns)

    def blocks_after(self, rows: int, mark: Any, seen: int) -> Iterator[Block]:
        """Yield the blocks from ``mark`` on, which ``seen`` rows come before, with their groups."""
        yield from self._pass(rows, () if self.layout.groups is None else (self.layout.groups,), mark, seen)

    def subjects_of(self, block: Block) -> NDArray[Any] | None:
        """Return the group of each row of a block."""
        if self.layout.groups is None:
            return None
        groups = block.about[self.layout.groups]
        return groups if self.layout.groups_match is None else _matched(groups, self.layout)

    def note_rows(self, count: int) -> None:
        """Take over the number of rows from an earlier pass."""
        self._seen = count

    def blocks(self, rows: int) -> Iterator[NDArray[Any]]:
        """Yield the numbers, and keep labels, groups and ids on the way."""
        yield from self._keeping(rows, self.layout.label, self.layout.groups, self.layout.ids)

    @property
    def labels(self) -> NDArray[Any] | None:  # type: ignore[override]
        """The label of each row."""
        return self._role(self.layout.label)

    @property
    def groups(self) -> NDArray[Any] | None:  # type: ignore[override]
        """The group of each row."""
        return self._subjects()

    @property
    def row_ids(self) -> NDArray[Any] | None:  # type: ignore[override]
        """The id of each row."""
        return self._role(self.layout.ids)

    def about(self, column: str) -> NDArray[Any]:
        """Return a column that describes rows; a pass of its own where none has kept it."""
        if column not in self._kept:
            roles = (self.layout.label, self.layout.groups, self.layout.ids)  # whoever asks for one wants all of them
            for _ in self._keeping(block_rows_of(self), column, *roles):
                pass
        return self._kept[column]

    def _keeping(self, rows: int, *columns: str | None) -> Iterator[NDArray[Any]]:
        """Yield the numbers; what these columns say is kept when all rows have been read."""
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
        self._seen = seen

    def _check_unchanged(self) -> None:
        if self.layout.files is not None:
            self.layout.files.check(str(self.path))

    def _check_unchanged_at(self, start: int) -> None:
        """Do so in a pass by columns: for each panel of a file, for the first one of the many files of an array."""
        if start == 0 or (self.layout.files is not None and len(self.layout.files.stamps) == 1):
            self._check_unchanged()


def name_subjects(source: Any, groups: str | None, pattern: str) -> None:
    """Have the groups of a source be the part of their column that the pattern matches."""
    if groups is None:
        raise InputError("groups_match is about the groups column, and none was given. Give `groups` too.")
    try:
        re.compile(pattern)
    except re.error as error:
        raise InputError(f"`groups_match={pattern!r}` is not a regular expression ({error}). Check it.") from error
    source.name_subjects(pattern)
