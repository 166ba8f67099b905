"""Checkpoints: a killed pass over a file resumes where it was last saved, with bit-identical results.

To this end the raw sums are saved, neither normalised nor symmetrised, with the position in the file and the block
size, because sums depend on the block boundaries. A checkpoint is written atomically. It consists of a line that
identifies the format, a JSON header with its checksum, arrays as they are in memory, and a checksum of everything.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Hashable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from glob import escape
from hashlib import blake2b, sha256
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from numpy.typing import NDArray

from standout.errors import InputError, OutputError, StandoutWarning, warn_user
from standout.io.memory import (
    check_all_used,
    check_weights,
    checked_block,
    distinct_groups,
    explain_non_finite,
    weighted,
)
from standout.io.options import Options
from standout.io.output import replacing
from standout.io.source import ColumnView, Source, block_rows_of, readable

if TYPE_CHECKING:
    from standout._accumulate import Accumulator

_FORMAT = b"standout checkpoint "
_MAGIC = _FORMAT + b"2\n"
_DIGEST_SIZE = 32
_REMEDY = "Give another path as `checkpoint`, or delete the file to start again."
# Seconds between two saves, and the fraction of the time that saving may take.
_INTERVAL = 30.0
_SHARE = 0.02
# Seconds after which an unchanged temporary file is attributed to a killed pass, not to a running one.
_STALE = 600.0


@dataclass(frozen=True)
class FileStamp:
    """The files of a dataset, with the name, size and modification time of each when it was opened.

    The directory is not recorded: data mounted elsewhere are the same.
    """

    files: tuple[Path, ...]
    stamps: tuple[tuple[str, int, int], ...]

    @classmethod
    def of(cls, files: tuple[Path, ...], location: str) -> FileStamp:
        """Record the state of files, and of all files in directories (Zarr arrays)."""
        with readable(location, "a file"):
            every = [filter(Path.is_file, sorted(path.rglob("*"))) if path.is_dir() else (path,) for path in files]
            found = [(path.name, path.stat()) for path in chain.from_iterable(every)]
        return cls(files, tuple((name, status.st_size, status.st_mtime_ns) for name, status in found))

    def check(self, location: str) -> None:
        """Raise an error if a file has changed."""
        if FileStamp.of(self.files, location).stamps != self.stamps:
            remedy = "Load it again when no other program writes to it."
            raise InputError(f"{location}: it has changed since it was opened. {remedy}")


@dataclass(frozen=True)
class CheckpointFile:
    """The checkpoint of one dataset, with the files and options it is valid for."""

    path: Path
    files: FileStamp
    options: Options

    def fingerprint(self) -> dict[str, Any]:
        """Return the identity of the dataset, in the form in which JSON returns it."""
        options = {name: value for name, value in asdict(self.options).items() if name not in ("memory", "checkpoint")}
        plain: dict[str, Any] = json.loads(json.dumps({"files": self.files.stamps, "options": options}))
        return plain

    def save(self, header: dict[str, Any], arrays: Iterable[NDArray[Any]]) -> None:
        """Write a checkpoint; the previous one is replaced only when the new one is complete and on disk."""
        text = json.dumps(header, separators=(",", ":")).encode()
        start = _MAGIC + len(text).to_bytes(8, "little") + text
        start += _checksum(start).digest()
        with replacing(self.path, "checkpoint") as temporary, temporary.open("wb") as file:
            file.write(start)
            checksum = _checksum(start)
            for array in arrays:
                checksum.update(array.data)
                file.write(array.data)
            file.write(checksum.digest())

    def load(self, fingerprint: dict[str, Any], arrays: Iterable[Any] | None, role: str) -> dict[str, Any] | None:
        """Fill the arrays (if any) from the checkpoint and return its header; None if there is no checkpoint yet.

        A checkpoint that is damaged, or has another fingerprint, is an error and stays unchanged. Header and arrays
        come from one open file, because another process may replace the checkpoint at any time.
        """
        location = f"{role}: the checkpoint {self.path}"
        with readable(location, "a checkpoint"):
            try:
                file = self.path.open("rb")
            except FileNotFoundError:
                return None
        with file:
            header = self._header(file, fingerprint, location)
            if arrays is None:
                return header
            size = file.tell()
            file.seek(0)
            checksum = _checksum(file.read(size))
            for array in arrays:
                file.readinto(array.data)  # a truncated array fails the checksum
                checksum.update(array.data)
            if file.read(_DIGEST_SIZE) != checksum.digest() or file.read(1):
                raise InputError(f"{location} is damaged or truncated. {_REMEDY}")
            return header

    def _header(self, file: BinaryIO, fingerprint: dict[str, Any], location: str) -> dict[str, Any]:
        """Read the header, or raise an error that gives the reason why the checkpoint cannot be used."""
        start = file.read(len(_MAGIC) + 8)
        if _FORMAT.startswith(start):
            raise InputError(f"{location} is {'damaged or truncated' if start else 'empty'}. {_REMEDY}")
        if not start.startswith(_FORMAT):
            raise InputError(f"{location} is not a checkpoint and stays unchanged. Give another path as `checkpoint`.")
        if not start.startswith(_MAGIC):
            raise InputError(f"{location} was written by another version of standout. {_REMEDY}")
        size = int.from_bytes(start[len(_MAGIC) :], "little")
        text = file.read(min(size, os.fstat(file.fileno()).st_size))
        if file.read(_DIGEST_SIZE) != _checksum(start + text).digest():
            raise InputError(f"{location} is damaged or truncated. {_REMEDY}")
        try:
            header: dict[str, Any] = json.loads(text)
            found = dict(header["fingerprint"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:  # correct checksums, but made by hand
            raise InputError(f"{location} is damaged or truncated. {_REMEDY}") from error
        different = [name for name, value in fingerprint.items() if found.get(name) != value]
        if different:
            raise InputError(f"{location} belongs to other data: different {', '.join(different)}. {_REMEDY}")
        return header

    def sweep(self, before: float) -> None:
        """Remove temporary files of killed passes that were last modified before that time."""
        for file in self.path.parent.glob(f".{escape(self.path.name[:40])}.????????.part{escape(self.path.suffix)}"):
            with suppress(FileNotFoundError):  # another process may have renamed it
                if file.stat().st_mtime < before:
                    file.unlink()


def _checksum(data: bytes) -> Any:
    return blake2b(data, digest_size=_DIGEST_SIZE)


class CheckpointedPass:
    """A pass over one dataset that adds its rows to an accumulator and saves its progress.

    Groups are counted from the file if ``counting``; otherwise they were given by the user.
    """

    def __init__(self, source: Source, accumulator: Accumulator, weights: Any, counting: bool, names: Any, role: str):
        self.source, self.accumulator, self.counting, self.names, self.role = source, accumulator, counting, names, role
        self.weights = None if weights is None else check_weights(weights, source.n_rows, role)
        self.stream: Any = source.source if isinstance(source, ColumnView) else source
        self.columns = source.index if isinstance(source, ColumnView) else None  # of the stream; None: all
        self.file: CheckpointFile = self.stream.checkpoint
        self.fingerprint = self._fingerprint()
        self._unsaved = False  # whether a checkpoint could not be written
        self.position: dict[str, Any] = {
            "block_rows": block_rows_of(source),
            "rows": 0,  # read so far, including those of weight zero
            "groups": None,  # distinct groups so far
            "mark": None,  # start of the next block, in the form used by the source; None: start of the file
            "finished": False,
        }

    def run(self) -> tuple[int, frozenset[Hashable] | None]:
        """Add all blocks not covered by an earlier pass; return the number of rows and the distinct groups."""
        header = self.file.load(self.fingerprint, self.accumulator.arrays(), self.role)
        if header is None:
            return self._run()
        location = f"{self.role}: the checkpoint {self.file.path}"
        if not self._is_valid(header):
            raise InputError(f"{location} is damaged. {_REMEDY}")
        vars(self.accumulator).update(header["sums"])
        self.position = header["position"]
        with readable(location, "a checkpoint"):  # a mark that does not lead to a block
            return self._run()

    def _is_valid(self, header: dict[str, Any]) -> bool:
        """Return whether a header has the entries of a checkpoint, of the right types."""
        position, sums, counts = header.get("position"), header.get("sums"), self.accumulator.counts
        if not isinstance(position, dict) or not isinstance(sums, dict) or set(position) != set(self.position):
            return False
        groups, numbers = position["groups"], (position["block_rows"], position["rows"])
        return (
            {name: type(value) for name, value in sums.items()} == {name: type(value) for name, value in counts.items()}
            and all(type(number) is int and 0 <= number < 2**63 for number in numbers)
            and (groups is None or (isinstance(groups, list) and all(isinstance(g, str | int | float) for g in groups)))
            and isinstance(position["mark"], dict | None)
            and type(position["finished"]) is bool
        )

    def _run(self) -> tuple[int, frozenset[Hashable] | None]:
        position, column = self.position, self.stream.layout.options.groups
        if not position["finished"]:
            saved, cost = time.monotonic(), 0.0
            start = position["block_rows"], () if column is None else (column,), position["mark"], position["rows"]
            with closing(self.stream.read_blocks(*start)) as blocks:
                for block in blocks:
                    self._add(block, column if self.counting else None)
                    if time.monotonic() - saved >= max(_INTERVAL, cost / _SHARE):
                        begin = time.monotonic()
                        self._save(mark=block.after())
                        saved = time.monotonic()
                        cost = saved - begin
            self.file.sweep(time.time() - _STALE)
            check_all_used(self.weights, position["rows"], self.role)
            self._save(finished=True)
        self.stream.n_rows = position["rows"]
        return position["rows"], None if position["groups"] is None else frozenset(position["groups"])

    def _add(self, block: Any, group_column: str | None) -> None:
        """Add a block to the sums and to the position."""
        numbers = block.numbers if self.columns is None else block.numbers[:, self.columns]
        start = self.position["rows"]
        part = weighted(checked_block(numbers, self.source.n_features, self.role), self.weights, start, self.role)
        if not self.accumulator.add(part.rows, part.weights):
            raise explain_non_finite(self.source, part.rows, self.role, self.names)
        self.position["rows"] += part.seen
        if group_column is not None:
            groups, known = self.stream.subjects(block.about[group_column]), self.position["groups"] or ()
            weights = None if self.weights is None else self.weights[start : start + part.seen]
            new = distinct_groups(groups, weights, part.seen, self.role).difference(known)
            unlike = [group for group in new if not isinstance(group, str | int | float)]
            if unlike:
                problem = f"{unlike[0]!r} is neither text nor a number, and cannot be kept in a checkpoint"
                raise InputError(f"{self.role} groups: {problem}. Convert the groups to text.")
            self.position["groups"] = (*known, *new)

    def _fingerprint(self) -> dict[str, Any]:
        """Return, as JSON, what must be equal for a pass to be resumed."""
        chosen = [index.tolist() for index in (self.columns, self.stream.column_index) if index is not None]
        features = [self.source.n_features, self.source.names, chosen]
        filling = getattr(self.stream, "filling", None)
        if filling is not None:  # imputed values also depend on the other datasets
            features.append(filling.digest())
        return {
            **self.file.fingerprint(),
            "features": sha256(json.dumps(features).encode()).hexdigest(),
            "groups": [self.counting, self.stream.layout.options.groups_match],
            "weights": None if self.weights is None else sha256(self.weights.tobytes()).hexdigest(),
        }

    def _save(self, **last: Any) -> None:
        """Save the progress of the pass. A failed write must not discard the sums in memory."""
        position = self.position | last
        header = {"fingerprint": self.fingerprint, "position": position, "sums": self.accumulator.counts}
        try:
            self.file.save(header, self.accumulator.arrays())
        except OutputError as error:
            if not self._unsaved:
                warn_user(f"the fit continues without a checkpoint: {error}", StandoutWarning)
            self._unsaved = True


def check_apart(sources: Mapping[str, Source | None]) -> None:
    """Raise an error if datasets (role → source) share a checkpoint, before any of them is read."""
    seen: dict[Path, str] = {}
    for role, source in sources.items():
        if source is None or source.checkpoint is None:
            continue
        path = source.checkpoint.path
        if path in seen:
            problem = f"{role}: the checkpoint {path} is that of the {seen[path]} too"
            raise InputError(f"{problem}. Give each dataset another path as `checkpoint`.")
        seen[path] = role


def warn_unused(source: Source | None, role: str, why: str) -> None:
    """Warn that this fit does not use the checkpoint of a source; ``why`` ends with what to do about it."""
    if source is not None and source.checkpoint is not None:
        warn_user(f"{role}: the checkpoint {source.checkpoint.path} is not used: {why}", StandoutWarning)
