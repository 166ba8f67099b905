"""Passes over files with a checkpoint: a killed pass resumes where it was last saved, with bit-identical results.

To this end the raw sums are saved, neither normalised nor symmetrised, with the position in the file and the block
size, because sums depend on the block boundaries.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike, NDArray

from standout._accumulate import Accumulator, AddScatter, Sums
from standout._blas import Array
from standout.errors import InputError, OutputError, StandoutWarning, warn_user
from standout.io.checkpoint import CheckpointFile
from standout.io.memory import (
    check_all_used,
    check_weights,
    checked_block,
    distinct_groups,
    explain_non_finite,
    weighted,
)
from standout.io.source import ColumnView, Source, block_rows_of
from standout.io.stream import Block, Stream

# Seconds between two saves, and the fraction of the time that saving may take.
_EVERY = 30.0
_SHARE = 0.02
# Seconds after which an unchanged temporary file is attributed to a killed pass, not to a running one.
_STALE = 600.0


@dataclass(frozen=True)
class Position:
    """Progress of a pass."""

    rows: int = 0  # rows read, including those of weight zero
    groups: tuple[Hashable, ...] | None = None  # distinct groups so far
    block_rows: int = 0
    mark: Any = None  # start of the next block, in the form used by the source; None: start of the file
    finished: bool = False


# Progress of a pass, and a function that returns the mark of the source; the call is not free.
Step = tuple[Position, Callable[[], Any]]


@dataclass
class CheckpointedPass:
    """A pass over one dataset with a checkpoint."""

    source: Source
    stream: Stream
    resumption: CheckpointFile
    views: list[NDArray[Any]]  # column selections applied to a block, in order
    counting: bool  # whether groups are read from the file, as opposed to given by the user
    groups: frozenset[Hashable] | None = None  # distinct groups, set after the pass
    unsaved: bool = False  # whether a checkpoint could not be written

    @classmethod
    def of(cls, source: Source, counting: bool) -> CheckpointedPass:
        """Create the pass over a source with a checkpoint."""
        stream: Any = source
        views: list[NDArray[Any]] = []
        while isinstance(stream, ColumnView):
            views.insert(0, stream.index)
            stream = stream.source
        return cls(source, stream, stream.checkpoint, views, counting)

    def added_up(
        self, weights: ArrayLike | None, names: Sequence[str] | None, role: str, add: AddScatter
    ) -> tuple[Sums, int]:
        """Accumulate all blocks not covered by an earlier pass; count rows, including those of weight zero."""
        checked = None if weights is None else check_weights(weights, self.source.n_rows, role)
        fingerprint, accumulator = self._told(checked), Accumulator(self.source.n_features, add)
        position = self._loaded(accumulator, fingerprint, role) or Position(block_rows=block_rows_of(self.source))
        if not position.finished:
            with closing(self._steps(position, checked, accumulator, names, role)) as steps:
                position = self._walked(steps, position, accumulator, fingerprint)
            check_all_used(checked, position.rows, role)
            self._save(accumulator, replace(position, finished=True), fingerprint)
        self.stream.n_rows = position.rows
        self.groups = None if position.groups is None else frozenset(position.groups)
        return accumulator.finish(), position.rows

    def _walked(
        self, steps: Generator[Step], position: Position, accumulator: Accumulator, fingerprint: dict[str, Any]
    ) -> Position:
        """Run all steps, save periodically, and return the final position."""
        saved, cost = time.monotonic(), 0.0
        for position, after in steps:
            if time.monotonic() - saved >= max(_EVERY, cost / _SHARE):
                start = time.monotonic()
                self._save(accumulator, replace(position, mark=after()), fingerprint)
                saved = time.monotonic()
                cost = saved - start
        self.resumption.sweep(time.time() - _STALE)
        return position

    def _steps(
        self, begin: Position, weights: Array | None, accumulator: Accumulator, names: Sequence[str] | None, role: str
    ) -> Generator[Step]:
        """Accumulate block by block and yield the progress."""
        rows, groups = begin.rows, begin.groups
        for block in self.stream.blocks_after(begin.block_rows, begin.mark, rows):
            numbers = block.numbers
            for index in self.views:
                numbers = numbers[:, index]
            part = weighted(checked_block(numbers, self.source.n_features, role), weights, rows, role)
            if not accumulator.add(part.rows, part.weights):
                raise explain_non_finite(self.source, part.rows, role, names)
            block_weights = None if weights is None else weights[rows : rows + part.seen]
            rows, groups = rows + part.seen, self._merged(groups, block, block_weights, role)
            assert block.after is not None
            yield Position(rows, groups, begin.block_rows), block.after

    def _merged(
        self, before: tuple[Hashable, ...] | None, block: Block, weights: Array | None, role: str
    ) -> tuple[Hashable, ...] | None:
        """Return the distinct groups so far, including those of a block."""
        groups = self.stream.subjects_of(block) if self.counting else None
        if groups is None:
            return None
        known = before or ()
        new = distinct_groups(groups, weights, len(groups), role).difference(known)
        unlike = [group for group in new if not isinstance(group, str | int | float)]
        if unlike:
            raise InputError(
                f"{role} groups: {unlike[0]!r} is neither text nor a number, and cannot be kept in a checkpoint. "
                "Convert the groups to text."
            )
        return (*known, *new)

    def _told(self, weights: Array | None) -> dict[str, Any]:
        """Return, as JSON, the fingerprint that must match for a pass to be resumed."""
        chosen = [index.tolist() for index in (*self.views, self.stream.chosen) if index is not None]
        features = [self.source.n_features, self.source.names, chosen]
        filling = getattr(self.stream, "filling", None)
        if filling is not None:  # imputed values also depend on the other datasets
            features.append(filling.digest())
        return {
            **self.resumption.told(),
            "features": sha256(json.dumps(features).encode()).hexdigest(),
            "groups": [self.counting, self.stream.layout.groups_match],
            "weights": None if weights is None else sha256(weights.tobytes()).hexdigest(),
        }

    def _save(self, accumulator: Accumulator, position: Position, fingerprint: dict[str, Any]) -> None:
        """Save the progress of the pass. A failed write must not discard the sums in memory."""
        header = {"told": fingerprint, "place": vars(position), "sums": accumulator.counts}
        try:
            self.resumption.save(header, accumulator.arrays())
        except OutputError as error:
            if not self.unsaved:
                warn_user(f"the fit goes on without saving how far it has come: {error}", StandoutWarning)
            self.unsaved = True

    def _loaded(self, accumulator: Accumulator, fingerprint: dict[str, Any], role: str) -> Position | None:
        """Restore the accumulator and return the saved position; None if there is no checkpoint."""
        header = self.resumption.load(fingerprint, accumulator.arrays(), role)
        if header is None:
            return None
        for name, value in header["sums"].items():
            setattr(accumulator, name, value)
        groups = header["place"].pop("groups")
        return Position(**header["place"], groups=None if groups is None else tuple(groups))


def check_apart(sources: Mapping[str, Source | None]) -> None:
    """Raise an error if datasets (role → source) share a checkpoint, before any of them is read."""
    seen: dict[Path, str] = {}
    for role, source in sources.items():
        if source is None or source.checkpoint is None:
            continue
        path = source.checkpoint.path
        if path in seen:
            raise InputError(
                f"{role}: the checkpoint {path} is that of the {seen[path]} too, and each dataset needs one of its "
                "own. Give another path as `checkpoint`."
            )
        seen[path] = role


def warn_unused(source: Source | None, role: str, why: str) -> None:
    """Warn that this fit does not use the checkpoint of a source; ``why`` ends with what to do about it."""
    if source is not None and source.checkpoint is not None:
        warn_user(f"{role}: the checkpoint {source.checkpoint.path} is not used: {why}", StandoutWarning)
