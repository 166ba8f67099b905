"""Rows in the coordinates that resampling works in, and rows without a component.

What everything that resamples shares: the rows of every set, the units they belong to, and work in chunks.

A unit is what is independent: a group (subject) where groups are given, a row otherwise.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeVar

import numpy as np
from scipy import linalg

from standout._blas import Array, add_gram, mirror, rank_tolerance, threads_for, top_eigen
from standout._dataset import Dataset
from standout._folds import Index, coded
from standout._inputs import FitArguments, background_name, check_choice, match_features, parse_inputs
from standout.errors import InputError, RowsNeededError
from standout.io.memory import distinct_groups, explain_non_finite
from standout.io.missing import RefillableRows, raw_rows
from standout.io.read import is_on_cluster, open_data
from standout.io.source import ArraySource, RowSource, Source, collect_values, report

# What is left of a feature that a component explains is rounding below this share of its sd.
NOTHING = 1e-10
# A background variance below this share of the overall variance is rounding: the feature is constant there.
CONSTANT = 1e-13
_PANEL_BYTES = 8 * 2**20
_EPS = float(np.finfo(float).eps)
# Pieces of work that share a seed: fixed, so that results do not depend on the number of processes.
_CHUNK = 10
# Seconds of work from which other processes gain more than their start costs.
_WORTH_PROCESSES = 10.0


def equilibrated(rows: Array) -> Array:
    """Return the features that vary, each divided by its overall sd."""
    sd = _sd(rows)
    alive = sd > 0
    return np.ascontiguousarray(rows[:, alive] / sd[alive])


def whitened(rows: Array) -> Array:
    """Return the rows in coordinates in which all sets together are white: exact ratios do not notice."""
    scaled = equilibrated(rows)
    triangle = linalg.qr(scaled, mode="r", check_finite=False)[0][: scaled.shape[1]]
    _, values, right = linalg.svd(triangle, full_matrices=False, check_finite=False)
    kept = values > max(rows.shape) * _EPS * values[0]
    return np.asarray(scaled @ (right[kept].T / values[kept]))


def along_target(white: Array, n_target: int) -> Array:
    """Return jointly white rows along the principal axes of the target: the components of the exact problem."""
    target = white[:n_target]
    return np.asarray(white @ linalg.eigh(target.T @ target)[1])


def in_their_span(rows: Array) -> Array:
    """Return coordinates of wide rows in an orthonormal basis of their span, features in overall sd."""
    gram = np.zeros((len(rows), len(rows)), order="F")
    for here in panels(*rows.shape):
        add_gram(gram, equilibrated(rows[:, here]))
    values, basis = top_eigen(mirror(gram), len(gram))
    kept = values > rank_tolerance(len(gram)) * values[0]
    return np.ascontiguousarray(basis[:, kept] * np.sqrt(values[kept]))


def panels(n_rows: int, n_features: int) -> Iterator[slice]:
    """Yield runs of features small enough for the cache to help."""
    width = max(16, _PANEL_BYTES // (8 * n_rows))
    for start in range(0, n_features, width):
        yield slice(start, min(start + width, n_features))


def deflated(rows: Array, scores: Array, n_target: int) -> Array:
    """Return rows without what moves with a component: nothing of it is left in either set.

    All other components of the same problem keep their scores, as if both sets were projected on them.
    """
    own = scores[:n_target] - scores[:n_target].mean()
    pattern = (own @ rows[:n_target]) / (own @ own)
    rest = rows - np.outer(scores, pattern)
    rest[:, _sd(rest) <= NOTHING * _sd(rows)] = 0.0
    return np.asarray(rest)


def _sd(rows: Array) -> Array:
    return np.asarray(np.sqrt(np.einsum("ij,ij->j", rows, rows) / len(rows)))


_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Sample:
    """The rows of one set, and the unit that each of them belongs to."""

    role: str
    source: RowSource
    units: Index  # (n_rows,): from 0 on
    ids: tuple[Hashable, ...]  # the ids of the groups; empty where every row is a unit of its own

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.units)

    @property
    def n_units(self) -> int:
        """Number of independent units."""
        return len(self.ids) or len(self.units)

    def rows(self) -> Array:
        """Return all rows as one array of float64, all finite."""
        rows = np.array(self.source.rows(0, self.n_rows), dtype=np.float64, order="C")
        with np.errstate(all="ignore"):
            if not np.isfinite(np.einsum("ij,ij->", rows, rows)):
                raise explain_non_finite(self.source, rows, self.role)
        return rows

    def counted(self) -> str:
        """Say how many rows and groups there are."""
        return f"{self.n_rows} rows" + (f" of {self.n_units} groups" if self.ids else "")


@dataclass(frozen=True)
class Samples:
    """Target and backgrounds on the same features."""

    target: Sample
    backgrounds: tuple[Sample, ...]
    keys: tuple[Any, ...] | None  # what several backgrounds were given under; None for a single one
    notes: tuple[str, ...] = ()

    @property
    def sets(self) -> tuple[Sample, ...]:
        """The target and the backgrounds."""
        return (self.target, *self.backgrounds)

    def as_background(self, parts: Sequence[Any]) -> Any:
        """Return one thing for each background in the form the backgrounds were given in."""
        return parts[0] if self.keys is None else dict(zip(self.keys, parts, strict=True))


def collect_samples(
    target: Any, background: Any, groups: Any, background_groups: Any, features: str, purpose: str
) -> Samples:
    """Read target and backgrounds, bring them to the same features, and note their groups."""
    check_choice("features", features, ("all", "common"))
    inputs = parse_inputs(
        FitArguments(target, background=background, groups=groups, background_groups=background_groups)
    )
    if inputs.target is None:
        raise InputError("target: no rows were given. Give the target's rows.")
    if not inputs.backgrounds:
        raise InputError(f"{purpose} compares target and background, and there is none. Give background rows.")
    matched = match_features(inputs, inputs.target.names, inputs.target.n_features, features)
    assert matched.inputs.target is not None
    samples = [_sample(data, purpose) for data in (matched.inputs.target, *matched.inputs.backgrounds.values())]
    keys = None
    if list(inputs.backgrounds) != ["background"]:
        keys = tuple(background) if isinstance(background, Mapping) else tuple(range(len(background)))
    return Samples(samples[0], tuple(samples[1:]), keys, tuple(note.text for note in matched.notes))


def _sample(data: Dataset, purpose: str) -> Sample:
    if data.source is None:
        raise RowsNeededError(f"{data.role}: {purpose} resamples rows, and moments were given. Give the rows.")
    what = f"{data.role} groups"
    given = collect_values(data.groups, data.source, what)
    if given is None:
        data.source.check_row_values("groups", what)
    rows = data.rows
    if rows is None:
        rows = ArraySource(data.source.collect(data.role), data.source.names)
        rows.unnamed, rows.ordered = data.source.unnamed, data.source.ordered
        if data.is_incomplete:
            rows = RefillableRows(raw_rows(data.source), rows.array, data.source)
    n_rows = rows.n_rows or 0
    # After the rows: a file tells its groups while it is read.
    groups = given if given is not None else data.source.row_values("groups", what)
    if groups is None:
        return Sample(data.role, rows, np.arange(n_rows), ())
    distinct_groups(groups, None, n_rows, data.role)
    return Sample(data.role, rows, *coded(groups))


def held(data: Any, role: str) -> Any:
    """Return rows on a cluster as a source in memory, with what describes them, and all else as it is."""
    if not (is_on_cluster(data) or isinstance(data, Source)):
        return data
    source = open_data(data, role)
    return source if source.is_local else source.in_memory(role)


def held_sides(target: Any, background: Any) -> tuple[Any, Any]:
    """Return target and backgrounds in memory, for more than one question: a cluster is asked once."""
    if isinstance(background, Mapping):
        others: Any = {key: held(data, background_name(key)) for key, data in background.items()}
    elif isinstance(background, list | tuple):
        others = [held(data, background_name(number)) for number, data in enumerate(background)]
    else:
        others = held(background, "background")
    return held(target, "target"), others


def unit_means(rows: Array, units: Index) -> Array:
    """Return the mean of each unit's rows, (n_units, n_features)."""
    counts = np.bincount(units)
    if len(counts) == len(units):
        means = np.empty_like(rows)
        means[units] = rows
        return means
    order = np.argsort(units, kind="stable")
    starts = np.cumsum(counts) - counts
    return np.asarray(np.add.reduceat(rows[order], starts, axis=0) / counts[:, None])


def n_processes(n_jobs: Any) -> int:
    """Return how many processes may be used: all cores for None and -1."""
    if n_jobs is None or (isinstance(n_jobs, Integral) and int(n_jobs) == -1):
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if isinstance(n_jobs, Integral) and not isinstance(n_jobs, bool) and int(n_jobs) >= 1:
        return int(n_jobs)
    raise InputError(f"n_jobs={n_jobs!r} is not possible. Use a whole number from 1 on, or None for all cores.")


@dataclass(frozen=True)
class Chunk:
    """A few pieces of work: which, and their seed."""

    start: int
    stop: int
    seed: np.random.SeedSequence


def in_chunks(work: Callable[[Chunk], list[_Result]], count: int, seed: int, n_jobs: Any, what: str) -> list[_Result]:
    """Do ``count`` like pieces of work, a few at a time; the results come in order and do not depend on ``n_jobs``.

    Each chunk has a seed of its own. How long the first one takes tells whether other processes are worth
    starting. Threads would not do: scipy's eigensolvers keep the interpreter's lock.
    """
    processes = n_processes(n_jobs)
    starts = range(0, count, _CHUNK)
    seeds = np.random.SeedSequence(seed).spawn(len(starts))
    chunks = [Chunk(start, min(start + _CHUNK, count), seed) for start, seed in zip(starts, seeds, strict=True)]
    began = time.perf_counter()
    results = _alone(work, chunks[0])
    expected = (time.perf_counter() - began) * (len(chunks) - 1)
    report(what, chunks[0].stop, chunks[0].stop / count)
    rest: Iterable[list[_Result]] = (_alone(work, chunk) for chunk in chunks[1:])
    if processes > 1 and expected > _WORTH_PROCESSES:
        from sklearn.utils.parallel import Parallel, delayed

        pool = Parallel(n_jobs=processes, return_as="generator")
        rest = pool(delayed(_alone)(work, chunk) for chunk in chunks[1:])
    for chunk, result in zip(chunks[1:], rest, strict=True):
        results.extend(result)
        report(what, chunk.stop, chunk.stop / count)
    return results


def _alone(work: Callable[[Chunk], list[_Result]], chunk: Chunk) -> list[_Result]:
    """Do one chunk with BLAS on one thread: many problems side by side gain more than each by itself."""
    with threads_for(0):
        return work(chunk)
