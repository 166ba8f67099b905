"""Building blocks of resampling: samples and their independent units, and seeded parallel work.

A unit is what is independent: a group (subject) where groups are given, a row otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, TypeVar, cast

import numpy as np
from joblib import cpu_count  # type: ignore[import-untyped]

from standout._blas import Array, threads_for
from standout._dataset import Dataset
from standout._folds import Index, Units, coded
from standout._inputs import (
    FitArguments,
    are_several,
    background_name,
    check_choice,
    check_count,
    match_features,
    parse_inputs,
)
from standout._replicates import replicate_notes
from standout._table_checks import table_notes
from standout.errors import DoubtWarning, InputError, RareFeatureWarning, RowsNeededError, warn_user
from standout.io.memory import distinct_groups, explain_non_finite
from standout.io.missing import FilledRows, raw_rows
from standout.io.read import is_dataset, open_data
from standout.io.source import RowSource, collect_values, report, select_columns

_PANEL_BYTES = 8 * 2**20
# Number of replications that share a seed: fixed, so that results do not depend on the number of processes.
_CHUNK = 10
# Start other processes only for more than this many seconds of work.
_WORTH_PROCESSES = 10.0

_Result = TypeVar("_Result")
Work = Callable[[np.random.Generator, range], list[_Result]]


@dataclass(frozen=True)
class Sample:
    """The rows of one set, and the unit that each of them belongs to."""

    role: str
    source: RowSource
    units: Units

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.units.rows)

    def rows(self) -> Array:
        """Return all rows as one array of float64, all finite."""
        rows = np.array(self.source.rows(0, self.n_rows), dtype=np.float64, order="C")
        with np.errstate(all="ignore"):
            if not np.isfinite(np.einsum("ij,ij->", rows, rows)):
                raise explain_non_finite(self.source, rows, self.role)
        return rows

    def size_text(self) -> str:
        """Return the number of rows and groups in words."""
        return f"{self.n_rows} rows" + (f" of {self.units.count} groups" if self.units.ids else "")


@dataclass(frozen=True)
class Samples:
    """The target and the backgrounds, in this order, on the same features."""

    sets: tuple[Sample, ...]
    keys: tuple[Any, ...] | None  # the keys of several backgrounds; None for a single one
    notes: tuple[str, ...] = ()

    @property
    def unit_kind(self) -> str:
        """What is resampled: "groups" or "rows"."""
        return "groups" if any(sample.units.ids for sample in self.sets) else "rows"

    def select(self, index: Index) -> Samples:
        """Return the samples with the features at ``index``."""
        sets = (replace(sample, source=cast(RowSource, select_columns(sample.source, index))) for sample in self.sets)
        return replace(self, sets=tuple(sets))

    def as_background(self, parts: Sequence[Any]) -> Any:
        """Return one part for each background as ``fit`` expects them: alone, or in a dict."""
        return parts[0] if self.keys is None else dict(zip(self.keys, parts, strict=True))


def collect_samples(
    target: Any, background: Any, groups: Any, background_groups: Any, features: str, purpose: str
) -> Samples:
    """Read target and backgrounds, match their features, and determine the unit of each row."""
    check_choice("features", features, ("all", "common"))
    inputs = parse_inputs(
        FitArguments(target, background=background, groups=groups, background_groups=background_groups)
    )
    if inputs.target is None:
        raise InputError("target: no rows were given. Give the rows of the target.")
    if not inputs.backgrounds:
        raise InputError(f"{purpose} compares target and background, and the background is missing. Give its rows.")
    matched = match_features(inputs, features)
    sets = tuple(_sample(data, purpose) for data in matched.datasets)
    notes = replicate_notes(inputs.datasets)
    for note in notes:
        warn_user(note.text, note.category)
    found = [
        note for note in table_notes(matched.datasets) if issubclass(note.category, DoubtWarning | RareFeatureWarning)
    ]
    keys = None
    if [data.role for data in inputs.backgrounds] != ["background"]:
        keys = tuple(background) if isinstance(background, Mapping) else tuple(range(len(background)))
    return Samples(sets, keys, tuple(note.text for note in (*notes, *found, *matched.notes)))


def _sample(data: Dataset, purpose: str) -> Sample:
    if data.source is None:
        raise RowsNeededError(f"{data.role}: {purpose} resamples rows, but moments were given. Give the rows.")
    what = f"{data.role} groups"
    groups = collect_values(data.groups, data.source, what)
    given = groups is not None
    if not given:
        data.source.check_row_values("groups", what)
    rows = data.source.in_memory(data.role)
    n_rows = rows.n_rows or 0
    if data.is_incomplete and data.rows is None:
        rows = FilledRows(rows.rows(0, n_rows), data.source, raw_rows(data.source))
    if not given:  # only now: the groups in a file are read with its rows
        groups = data.source.row_values("groups", what)
    if groups is None:
        return Sample(data.role, rows, Units(np.arange(n_rows), ()))
    distinct_groups(groups, None, n_rows, data.role)
    return Sample(data.role, rows, Units(*coded(groups)))


def collect_sides(target: Any, background: Any) -> tuple[Any, Any]:
    """Return target and backgrounds with rows on a cluster collected, so that several analyses fetch them once."""
    if not are_several(background):
        collected: Any = _collected(background, "background")
    elif isinstance(background, Mapping):
        collected = {key: _collected(data, background_name(key)) for key, data in background.items()}
    else:
        collected = [_collected(data, background_name(number)) for number, data in enumerate(background)]
    return _collected(target, "target"), collected


def _collected(data: Any, role: str) -> Any:
    """Return a dataset as a source; rows on a cluster in memory, with groups, ids and labels."""
    if not is_dataset(data):
        return data
    source = open_data(data, role)
    if source.is_local:
        return source
    groups = source.row_values("groups", f"{role} groups")  # raises before any row is fetched
    rows: Any = source.in_memory(role)
    rows.groups, rows.row_ids, rows.id_columns = groups, source.row_ids, source.id_columns
    rows.labels = None if rows.row_ids is None else source.labels  # only find_replicates uses labels, with ids
    return rows


def panels(n_rows: int, n_features: int) -> Iterator[slice]:
    """Yield slices of features whose columns fit into the cache."""
    width = max(16, _PANEL_BYTES // (8 * n_rows))
    for start in range(0, n_features, width):
        yield slice(start, min(start + width, n_features))


def check_level(level: Any) -> float:
    """Return the nominal coverage of an interval as a float between 0 and 1."""
    if not (isinstance(level, Real) and 0 < float(level) < 1):
        raise InputError(f"level={level!r} is not possible. Use a number between 0 and 1, for instance 0.95.")
    return float(level)


def run_chunks(work: Work[_Result], count: int, seed: int, n_jobs: Any, what: str) -> list[_Result]:
    """Run ``count`` replications in chunks, in several processes where that saves time; return their results in order.

    ``work`` returns the results of a range of replications, given a random generator. Every chunk has a separate
    generator, so that results do not depend on ``n_jobs``. The first chunk is timed to decide whether other processes
    are worth their start. Threads are not an alternative: scipy's eigensolvers hold the global interpreter lock.
    """
    processes = cpu_count() if n_jobs is None or n_jobs == -1 else check_count("n_jobs", n_jobs)
    chunks = [range(start, min(start + _CHUNK, count)) for start in range(0, count, _CHUNK)]
    jobs = list(zip(np.random.SeedSequence(seed).spawn(len(chunks)), chunks, strict=True))
    began = time.perf_counter()
    results = _run_chunk(work, *jobs[0])
    expected = (time.perf_counter() - began) * (len(chunks) - 1)
    report(what, chunks[0].stop, chunks[0].stop / count)
    rest: Iterable[list[_Result]] = (_run_chunk(work, *job) for job in jobs[1:])
    if processes > 1 and expected > _WORTH_PROCESSES:
        from sklearn.utils.parallel import Parallel, delayed

        pool = Parallel(n_jobs=processes, return_as="generator")
        rest = pool(delayed(_run_chunk)(work, *job) for job in jobs[1:])
    for chunk, result in zip(chunks[1:], rest, strict=True):
        results.extend(result)
        report(what, chunk.stop, chunk.stop / count)
    return results


def _run_chunk(work: Work[_Result], seed: np.random.SeedSequence, chunk: range) -> list[_Result]:
    """Run one chunk with BLAS on one thread: parallel replications gain more than threads within each."""
    with threads_for(0):
        return work(np.random.default_rng(seed), chunk)
