"""Building blocks of resampling: samples, their exchangeable units, and seeded parallel work.

A unit is what is independent: a group (subject) where groups are given, a row otherwise. Under the null hypothesis of
the permutation test all sets have the same distribution up to a shift. The shift is estimated and removed, and the
labels of the aligned rows are permuted: over whole units, or within pairs. A unit is exchangeable only with units that
have as many rows, because the covariance of a set depends on how its rows are distributed over units. Rows of larger
units are therefore dropped at random first.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, TypeVar, cast

import numpy as np
from joblib import cpu_count  # type: ignore[import-untyped]
from numpy.typing import ArrayLike
from sklearn.utils.parallel import Parallel, delayed

from standout import _inputs
from standout._blas import Array, threads_for
from standout._dataset import Dataset
from standout._folds import Index, Units, coded, unit_means
from standout._replicates import replicate_notes
from standout._table_checks import table_notes
from standout.errors import (
    DoubtWarning,
    InputError,
    NotEnoughRowsError,
    RareFeatureWarning,
    RowsNeededError,
    listed,
    warn_user,
)
from standout.io.memory import distinct_groups, explain_non_finite
from standout.io.missing import FilledRows, raw_rows
from standout.io.read import is_dataset, open_data
from standout.io.source import ArraySource, RowSource, collect_values, report, select_columns

# Sets of groups keep all rows if none has more than this many times the balanced number of rows.
_BALANCE_TOLERANCE = 1.05
# The shift is the median difference between this many quantiles of each set (all rows of a smaller set).
_MAX_QUANTILES = 51
_PANEL_BYTES = 8 * 2**20
# Number of replications that share a seed: fixed, so that results do not depend on the number of processes.
_CHUNK = 10
# Start other processes only for more than this many seconds of work.
_WORTH_PROCESSES = 10.0

_Result = TypeVar("_Result")
Work = Callable[[np.random.Generator, int], _Result]  # given the number of the replication


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
    keys: tuple[Any, ...] | None  # as of ``background_keys``
    notes: tuple[str, ...] = ()

    @property
    def unit_kind(self) -> str:
        """What is resampled: "groups" or "rows"."""
        return "groups" if any(sample.units.ids for sample in self.sets) else "rows"

    def select(self, index: Index) -> Samples:
        """Return the samples with the features at ``index``."""
        sets = (replace(sample, source=cast(RowSource, select_columns(sample.source, index))) for sample in self.sets)
        return replace(self, sets=tuple(sets))


def collect_samples(
    target: Any, background: Any, groups: Any, background_groups: Any, features: str, purpose: str
) -> Samples:
    """Read target and backgrounds, match their features, and determine the unit of each row."""
    _inputs.check_choice("features", features, ("all", "common"))
    given = _inputs.FitArguments(target, background=background, groups=groups, background_groups=background_groups)
    inputs = _inputs.parse_inputs(given)
    if inputs.target is None:
        raise InputError("target: no rows were given. Give the rows of the target.")
    if not inputs.backgrounds:
        raise InputError(f"{purpose} compares target and background, and the background is missing. Give its rows.")
    matched = _inputs.match_features(inputs, features)
    sets = tuple(_sample(data, purpose) for data in matched.datasets)
    notes = replicate_notes(inputs.datasets)
    for note in notes:
        warn_user(note.text, note.category)
    serious = DoubtWarning | RareFeatureWarning
    notes += tuple(note for note in table_notes(matched.datasets) if issubclass(note.category, serious))
    return Samples(sets, background_keys(background), tuple(note.text for note in (*notes, *matched.notes)))


def background_keys(background: Any) -> tuple[Any, ...] | None:
    """Return the keys of several backgrounds; None for a single one."""
    if not _inputs.are_several(background):
        return None
    return tuple(background) if isinstance(background, Mapping) else tuple(range(len(background)))


def as_background(keys: tuple[Any, ...] | None, parts: Sequence[Any]) -> Any:
    """Return one part for each background as ``fit`` expects them: alone, or in a dict."""
    return parts[0] if keys is None else dict(zip(keys, parts, strict=True))


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
    keys = background_keys(background)
    if keys is None:
        return _collected(target, "target"), _collected(background, "background")
    named = {key: _collected(background[key], _inputs.background_name(key)) for key in keys}
    return _collected(target, "target"), named


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


def check_pairs(pairs: Any, background_pairs: Any, grouped: bool) -> None:
    """Check that pairs are given for both sides, and without groups."""
    if (pairs is None) != (background_pairs is None):
        raise InputError("pairs= and background_pairs= must be given together. Give the subject of each row of both.")
    if pairs is not None and grouped:
        raise InputError("pairs and groups are both given, and a pair is already a group. Give one of them.")


@dataclass(frozen=True)
class Shuffle:
    """The units of all sets, the set each belongs to, and the blocks within which labels are permuted."""

    labels: Index  # (n_units,): 0 is the target, k the k-th background
    units: Index  # (n_rows,): the unit of each row
    kind: str  # "rows", "groups" or "pairs"
    blocks: Index | None = None  # (n_pairs, n_sets): the units of each pair; None: all units are one block

    @property
    def row_labels(self) -> Index:
        """The observed labels of the rows."""
        return self.labels[self.units]

    def draw(self, rng: np.random.Generator) -> Index:
        """Return permuted labels of the rows."""
        if self.blocks is None:
            return rng.permutation(self.labels)[self.units]
        return self._in_blocks(rng.permuted(self.labels[self.blocks], axis=1))

    def _in_blocks(self, new: ArrayLike) -> Index:
        """Return the labels of the rows, given those of the units of each pair."""
        labels = np.empty_like(self.labels)
        labels[self.blocks] = new
        return labels[self.units]

    def count(self) -> float:
        """Return the number of distinct labellings, rounded to a float."""
        if self.blocks is not None:
            logarithm = len(self.blocks) * math.lgamma(self.blocks.shape[1] + 1)
        else:
            logarithm = math.lgamma(len(self.labels) + 1) - sum(math.lgamma(n + 1) for n in np.bincount(self.labels))
        return float(round(math.exp(logarithm))) if logarithm < 30 else math.exp(min(logarithm, 709.0))

    def all(self) -> Iterator[Index]:
        """Yield every labelling of the rows once."""
        if self.blocks is None:
            yield from (np.array(new)[self.units] for new in _arrangements(np.bincount(self.labels).tolist()))
        else:
            orders = list(itertools.permutations(range(self.blocks.shape[1])))
            yield from map(self._in_blocks, itertools.product(orders, repeat=len(self.blocks)))

    def aligned(self, rows: Array) -> Array:
        """Remove the shift between the sets, feature by feature, in place.

        The median of all differences ignores outliers, and is exactly zero where most values are equal, as in sparse
        counts; a difference of means would leave a trace of the true labels in every row. Where units have several
        rows, rows stay centred by set, because the median of few differences is noisy.
        """
        if len(self.units) > len(self.labels):
            return rows
        labels = self.row_labels
        for columns in panels(_MAX_QUANTILES**2, rows.shape[1]):
            panel = rows[:, columns]
            target = _quantiles(panel[labels == 0])
            for label in range(1, int(labels.max()) + 1):
                background = panel[labels == label]
                differences = _quantiles(background)[:, None] - target
                panel[labels == label] = background - np.median(differences.reshape(-1, panel.shape[1]), axis=0)
            panel -= np.median(panel, axis=0)
        return rows

    def inflated(self, residuals: Array) -> Array:
        """Restore the variance between units that was lost by estimating the shift: about one of G degrees of freedom.

        Otherwise the test rejects too often with few groups (11 % instead of 5 for three against three).
        """
        sizes, total = np.bincount(self.labels), len(self.labels)
        factor = np.sqrt(sizes / (sizes - 1) * ((total - 1) / total))[self.labels]
        if len(self.units) == total:
            return np.asarray(residuals * factor[self.units][:, None])
        extra = unit_means(residuals, self.units) * (factor - 1)[:, None]
        return np.asarray(residuals + extra[self.units])


def _arrangements(sizes: list[int]) -> Iterator[list[int]]:
    """Yield every sequence of labels in which the label k occurs ``sizes[k]`` times."""
    if not any(sizes):
        yield []
    for label, size in enumerate(sizes):
        if size:
            for rest in _arrangements([*sizes[:label], size - 1, *sizes[label + 1 :]]):
                yield [label, *rest]


def _quantiles(rows: Array) -> Array:
    """Return equally spaced quantiles of each feature; all rows of a small set."""
    if len(rows) <= _MAX_QUANTILES:
        return rows
    levels = (np.arange(_MAX_QUANTILES) + 0.5) / _MAX_QUANTILES
    return np.asarray(np.quantile(rows, levels, axis=0, method="hazen"))  # symmetric under a change of sign


def shuffle_of(samples: Samples, paired: bool) -> Shuffle:
    """Return what is permuted: labels within pairs (groups that occur in all sets), else of groups, else of rows."""
    starts = np.cumsum([0, *(sample.units.count for sample in samples.sets)])
    sizes = np.diff(starts)
    units = np.concatenate([sample.units.rows + start for sample, start in zip(samples.sets, starts, strict=False)])
    blocks, kind = (_pair_blocks(samples, starts), "pairs") if paired else (None, samples.unit_kind)
    for one, other in () if paired else itertools.combinations(samples.sets, 2):
        in_other = set(other.units.ids)
        shared = [name for name in one.units.ids if name in in_other]
        if shared:
            raise InputError(
                f"{len(shared)} groups occur in the {one.role} and in the {other.role}: {listed(shared)}. If these are "
                "the same subjects, give their ids as pairs= and background_pairs= instead of groups; if not, give "
                "them different ids."
            )
    if sizes.min() < 2:
        role = samples.sets[int(np.argmin(sizes))].role
        raise NotEnoughRowsError(
            f"{role}: {sizes.min()} of the {kind} to permute, and a variance between them needs at least 2. Give more "
            f"{kind}."
        )
    return Shuffle(np.repeat(np.arange(len(sizes)), sizes), units, kind, blocks)


def _pair_blocks(samples: Samples, starts: Index) -> Index:
    """Return the units of each pair, (n_pairs, n_sets)."""
    order, blocks = samples.sets[0].units.ids, []
    subjects = set(order)
    for sample, start in zip(samples.sets, starts, strict=False):
        number = {name: start + unit for unit, name in enumerate(sample.units.ids)}
        lacking = [name for name in order if name not in number]
        extra = [name for name in number if name not in subjects]
        if lacking or extra:
            raise InputError(
                f"pairs: {len(lacking + extra)} of the subjects are not in both the target and the {sample.role}: "
                f"{listed(lacking + extra)}{_type_mismatch(lacking, extra)}. Leave their rows out, or use `groups` if "
                "no subject is in both."
            )
        blocks.append([number[name] for name in order])
    return np.array(blocks).T


def _type_mismatch(lacking: Iterable[Any], extra: Iterable[Any]) -> str:
    """Return a hint for ids that differ only in type, such as 1 and '1'."""

    def as_text(name: Any) -> str:
        if isinstance(name, bytes):
            return name.decode(errors="replace")
        return str(int(name)) if isinstance(name, float) and name.is_integer() else str(name)

    others = {as_text(name): name for name in extra}
    for name in filter(lambda name: as_text(name) in others, lacking):
        other = others[as_text(name)]
        return f" ({name!r} in the target and {other!r} there may be the same: convert ids to one type first)"
    return ""


def balance_units(samples: Samples, shuffle: Shuffle, seed: int) -> tuple[Samples, Shuffle, str]:
    """Balance the numbers of rows of exchangeable units; also return how many rows are used (empty if all are)."""
    kept = balanced_rows(shuffle, seed)
    if kept is None:
        return samples, shuffle, ""
    sets, start = [], 0
    for sample in samples.sets:
        index = kept[(kept >= start) & (kept < start + sample.n_rows)] - start
        start += sample.n_rows
        # All rows are read and checked: whether a missing value is reported must not depend on the seed.
        rows = ArraySource(sample.rows()[index], sample.source.names)
        sets.append(replace(sample, source=rows, units=replace(sample.units, rows=sample.units.rows[index])))
    used = f"{len(kept)} of {len(shuffle.units)} rows are used"
    shuffle = replace(shuffle, units=shuffle.units[kept])
    note = (
        f"{used}, at most {np.bincount(shuffle.units).max()} of each subject, drawn at random: subjects are "
        "exchangeable only with subjects that have as many rows. Another seed draws other rows and gives another p. "
        "Give the same number of rows for each subject in every set to use them all."
    )
    return replace(samples, sets=tuple(sets), notes=(*samples.notes, note)), shuffle, used


def balanced_rows(shuffle: Shuffle, seed: int) -> Index | None:
    """Draw rows at random such that exchangeable units have equally many; return None if they already do."""
    if shuffle.kind == "rows":
        return None
    sizes = np.bincount(shuffle.units)
    if shuffle.blocks is None:
        balanced = _balanced_by_rank(shuffle, sizes)
    else:  # the smallest size in each pair: swapping labels then changes no count
        balanced = np.empty_like(sizes)
        balanced[shuffle.blocks] = sizes[shuffle.blocks].min(axis=1, keepdims=True)
    if (balanced == sizes).all():
        return None
    order = np.random.default_rng([seed, 1]).permutation(len(shuffle.units))
    order = order[np.argsort(shuffle.units[order], kind="stable")]
    position = np.arange(len(order)) - (np.cumsum(sizes) - sizes)[shuffle.units[order]]
    return np.sort(order[position < balanced[shuffle.units[order]]])


def _balanced_by_rank(shuffle: Shuffle, sizes: Index) -> Index:
    """Return the number of rows to use of each unit, so that sizes have the same distribution in every set.

    The sizes of a set, sorted, are a step function of the rank from 0 to 1. The minimum of these functions over all
    sets is the common distribution; a unit that covers several of its steps gets their mean.
    """
    sets = [np.flatnonzero(shuffle.labels == label) for label in range(shuffle.labels.max() + 1)]
    sets = [units[np.argsort(sizes[units], kind="stable")] for units in sets]
    ranks = [np.round(np.arange(len(units) + 1) / len(units), 12) for units in sets]
    edges = np.unique(np.concatenate(ranks))
    middle = (edges[1:] + edges[:-1]) / 2
    lowest = np.min([sizes[units][(middle * len(units)).astype(np.intp)] for units in sets], axis=0)
    integral = np.concatenate([[0.0], np.cumsum(lowest * np.diff(edges))])
    balanced = sizes.copy()
    for units, own in zip(sets, ranks, strict=True):
        area = np.diff(np.interp(own, edges, integral))
        balanced[units] = np.maximum(np.floor(area * len(units) + 1e-6), 1)
    similar = all(sizes[units].sum() <= _BALANCE_TOLERANCE * balanced[units].sum() for units in sets)
    return sizes if similar else balanced


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

    Every chunk has a separate generator, so that results do not depend on ``n_jobs``. Processes, because scipy's
    eigensolvers hold the global interpreter lock.
    """
    processes = cpu_count() if n_jobs is None or n_jobs == -1 else _inputs.check_count("n_jobs", n_jobs)
    chunks = [range(start, min(start + _CHUNK, count)) for start in range(0, count, _CHUNK)]
    jobs = list(zip(np.random.SeedSequence(seed).spawn(len(chunks)), chunks, strict=True))
    began = time.perf_counter()
    results = _run_chunk(work, *jobs[0])
    expected = (time.perf_counter() - began) * (len(chunks) - 1)
    report(what, chunks[0].stop, chunks[0].stop / count)
    pool = Parallel(n_jobs=processes if expected > _WORTH_PROCESSES else 1, return_as="generator")
    rest = pool(delayed(_run_chunk)(work, *job) for job in jobs[1:])
    for chunk, result in zip(chunks[1:], rest, strict=True):
        results.extend(result)
        report(what, chunk.stop, chunk.stop / count)
    return results


def _run_chunk(work: Work[_Result], seed: np.random.SeedSequence, chunk: range) -> list[_Result]:
    """Run one chunk with BLAS on one thread: parallel replications gain more than threads within each."""
    rng = np.random.default_rng(seed)
    with threads_for(0):
        return [work(rng, number) for number in chunk]
