"""Passes over files that have a checkpoint: one that was killed goes on where it was last saved, to the same bits.

For that the sums are saved as they are, neither divided nor mirrored, with the place in the file and the size of the
blocks, as sums depend on where blocks are cut.
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

# Seconds between two saves, and the share of the time that saving may take.
_EVERY = 30.0
_SHARE = 0.02
# Seconds after which a draft that does not change is that of a killed pass, and not of one that is at work.
_STALE = 600.0


@dataclass(frozen=True)
class Position:
    """How far a pass has come."""

    rows: int = 0  # rows done, those of weight zero among them
    groups: tuple[Hashable, ...] | None = None  # distinct ones so far
    block_rows: int = 0
    mark: Any = None  # where the next block begins, as the file's source tells it; None: at the beginning
    finished: bool = False


# How far a pass has come, and how its source tells that place; to ask for it is not free.
Step = tuple[Position, Callable[[], Any]]


@dataclass
class CheckpointedPass:
    """The pass over one dataset that has a checkpoint."""

    source: Source
    stream: Stream
    resumption: CheckpointFile
    views: list[NDArray[Any]]  # columns to take of a block, one choice after the other
    counting: bool  # whether groups are counted, or were given by the user
    groups: frozenset[Hashable] | None = None  # the distinct ones, known after the pass
    unsaved: bool = False  # whether a checkpoint could not be written

    @classmethod
    def of(cls, source: Source, counting: bool) -> CheckpointedPass:
        """Return the pass over a source that has a checkpoint."""
        stream: Any = source
        views: list[NDArray[Any]] = []
        while isinstance(stream, ColumnView):
            views.insert(0, stream.index)
            stream = stream.source
        return cls(source, stream, stream.checkpoint, views, counting)

    def added_up(
        self, weights: ArrayLike | None, names: Sequence[str] | None, role: str, add: AddScatter
    ) -> tuple[Sums, int]:
        """Add up all blocks that no earlier pass has; also count the rows, those of weight zero included."""
        checked = None if weights is None else check_weights(weights, self.source.n_rows, role)
        told, accumulator = self._told(checked), Accumulator(self.source.n_features, add)
        place = self._loaded(accumulator, told, role) or Position(block_rows=block_rows_of(self.source))
        if not place.finished:
            with closing(self._steps(place, checked, accumulator, names, role)) as steps:
                place = self._walked(steps, place, accumulator, told)
            check_all_used(checked, place.rows, role)
            self._save(accumulator, replace(place, finished=True), told)
        self.stream.note_rows(place.rows)
        self.groups = None if place.groups is None else frozenset(place.groups)
        return accumulator.finish(), place.rows

    def _walked(
        self, steps: Generator[Step], place: Position, accumulator: Accumulator, told: dict[str, Any]
    ) -> Position:
        """Go through all steps, save now and then, and return the last place."""
        saved, cost = time.monotonic(), 0.0
        for place, after in steps:
            if time.monotonic() - saved >= max(_EVERY, cost / _SHARE):
                start = time.monotonic()
                self._save(accumulator, replace(place, mark=after()), told)
                saved = time.monotonic()
                cost = saved - start
        self.resumption.sweep(time.time() - _STALE)
        return place

    def _steps(
        self, begin: Position, weights: Array | None, accumulator: Accumulator, names: Sequence[str] | None, role: str
    ) -> Generator[Step]:
        """Add block after block, and tell how far that has come."""
        rows, groups = begin.rows, begin.groups
        for block in self.stream.blocks_after(begin.block_rows, begin.mark, rows):
            numbers = block.numbers
            for index in self.views:
                numbers = numbers[:, index]
            part = weighted(checked_block(numbers, self.source.n_features, role), weights, rows, role)
            if not accumulator.add(part.rows, part.weights):
                raise explain_non_finite(self.source, part.rows, role, names)
            here = None if weights is None else weights[rows : rows + part.seen]
            rows, groups = rows + part.seen, self._merged(groups, block, here, role)
            assert block.after is not None
            yield Position(rows, groups, begin.block_rows), block.after

    def _merged(
        self, before: tuple[Hashable, ...] | None, block: Block, weights: Array | None, role: str
    ) -> tuple[Hashable, ...] | None:
        """Return the distinct groups so far with those of a block."""
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
        """Return, as JSON, what must be the same for a pass to go on."""
        chosen = [index.tolist() for index in (*self.views, self.stream.chosen) if index is not None]
        features = [self.source.n_features, self.source.names, chosen]
        filling = getattr(self.stream, "filling", None)
        if filling is not None:  # what is drawn depends on the other datasets, too
            features.append(filling.digest())
        return {
            **self.resumption.told(),
            "features": sha256(json.dumps(features).encode()).hexdigest(),
            "groups": [self.counting, self.stream.layout.groups_match],
            "weights": None if weights is None else sha256(weights.tobytes()).hexdigest(),
        }

    def _save(self, accumulator: Accumulator, place: Position, told: dict[str, Any]) -> None:
        """Write how far the pass has come. What cannot be written must not cost the sums that are there."""
        header = {"told": told, "place": vars(place), "sums": accumulator.counts}
        try:
            self.resumption.save(header, accumulator.arrays())
        except OutputError as error:
            if not self.unsaved:
                warn_user(f"the fit goes on without saving how far it has come: {error}", StandoutWarning)
            self.unsaved = True

    def _loaded(self, accumulator: Accumulator, told: dict[str, Any], role: str) -> Position | None:
        """Fill the accumulator with what was saved, and return how far that had come; None where nothing was."""
        header = self.resumption.load(told, accumulator.arrays(), role)
        if header is None:
            return None
        for name, value in header["sums"].items():
            setattr(accumulator, name, value)
        groups = header["place"].pop("groups")
        return Position(**header["place"], groups=None if groups is None else tuple(groups))


def check_apart(sources: Mapping[str, Source | None]) -> None:
    """Refuse datasets (role → source) that share a checkpoint, before one of them has been read to its end."""
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
    """Tell that a source has a checkpoint which this fit will not use; ``why`` ends with what to do about it."""
    if source is not None and source.checkpoint is not None:
        warn_user(f"{role}: the checkpoint {source.checkpoint.path} is not used: {why}", StandoutWarning)
