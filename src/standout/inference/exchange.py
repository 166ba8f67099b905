"""Units that are exchanged must be alike: as many rows of each take part.

A set of subjects with ten rows each is more even than one with two, whatever the subjects are: reshuffled as
they come, sets with many rows for each subject on one side are taken for a finding.

Which labels a reshuffling may give: of whole units, over all sets or within pairs.

Under the null hypothesis the sets have the same distribution up to a shift. The shift is estimated and removed, the
aligned rows are reshuffled, and every set is centred by its own mean under the new labels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout._blas import Array
from standout._folds import Index, coded
from standout.errors import InputError, NotEnoughRowsError, listed
from standout.inference.resampling import Sample, Samples, panels, unit_means
from standout.io.memory import as_ids, is_missing
from standout.io.source import ArraySource, collect_values

# Sets of groups that have up to this many times more rows than their like keep the level of the test as they are.
_NEARLY = 1.05
# Rows of a set whose differences are formed for the shift; of larger sets, this many quantiles.
_MOST_DIFFERENCES = 51


@dataclass(frozen=True)
class BalancedUnits:
    """What takes part in the exchange, and how many rows that is of how many."""

    samples: Samples
    shuffle: Shuffle
    told: str = ""  # what was left out, in words; nothing where all rows take part

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Let errors about too few rows say where the others went."""
        try:
            yield
        except InputError as error:
            if not self.told:
                raise
            text = f"{self.told}, so that subjects that are exchanged have as many: {error}"
            raise NotEnoughRowsError(text) from error


def balance_units(samples: Samples, shuffle: Shuffle, seed: int) -> BalancedUnits:
    """Return samples and shuffle with as many rows of each unit as those it is exchanged for, and a note of it."""
    kept = balanced_rows(shuffle, seed)
    if kept is None:
        return BalancedUnits(samples, shuffle)
    starts = np.cumsum([0, *(sample.n_rows for sample in samples.sets)])
    sets = [
        _some_of(sample, kept[(kept >= start) & (kept < start + sample.n_rows)] - start)
        for sample, start in zip(samples.sets, starts, strict=False)
    ]
    fewer = replace(shuffle, units=shuffle.units[kept])
    told = f"{len(kept)} of {len(shuffle.units)} rows take part"
    notes = (*samples.notes, _note(told, int(np.bincount(fewer.units).max())))
    return BalancedUnits(replace(samples, target=sets[0], backgrounds=tuple(sets[1:]), notes=notes), fewer, told)


def _some_of(sample: Sample, index: Index) -> Sample:
    # All rows are read first: a missing value must not depend on which are drawn.
    rows = ArraySource(sample.rows()[index], sample.source.names)
    return replace(sample, source=rows, units=sample.units[index])


def _note(told: str, most: int) -> str:
    return (
        f"{told}, at most {most} of each subject, drawn at random: subjects differ in their number of rows, and can be "
        "exchanged only for their like. Another seed draws other rows, and p changes with them. Give as many rows for "
        "each subject in every set to use them all."
    )


def balanced_rows(shuffle: Shuffle, seed: int) -> Index | None:
    """Return rows such that units that are exchanged have as many, drawn at random; None: they have already."""
    sizes = np.bincount(shuffle.units)
    if shuffle.kind == "rows":
        return None
    most = _least_of_pair(shuffle.blocks, sizes) if shuffle.blocks is not None else _least_of_rank(shuffle, sizes)
    if (most == sizes).all():
        return None
    order = np.random.default_rng([seed, 1]).permutation(len(shuffle.units))
    order = order[np.argsort(shuffle.units[order], kind="stable")]
    place = np.arange(len(order)) - (np.cumsum(sizes) - sizes)[shuffle.units[order]]
    return np.sort(order[place < most[shuffle.units[order]]])


def _least_of_pair(blocks: Index, sizes: Index) -> Index:
    """Return for each unit the smallest number of rows in its pair: swapped labels change no count then."""
    most = np.empty_like(sizes)
    most[blocks] = sizes[blocks].min(axis=1, keepdims=True)
    return most


def _least_of_rank(shuffle: Shuffle, sizes: Index) -> Index:
    """Return for each unit as many rows as units of its rank have in the set with the fewest.

    Sorted by size, the units of a set are steps from rank 0 to 1. Below the lowest of all sets' steps the sets are
    alike, however many units they have; a unit that reaches over several of these steps gets their mean. Sets that
    would lose only a row in twenty are left whole.
    """
    sets = [np.flatnonzero(shuffle.labels == label) for label in range(shuffle.labels.max() + 1)]
    sets = [units[np.argsort(sizes[units], kind="stable")] for units in sets]
    edges = np.unique(np.concatenate([_ranks(len(units)) for units in sets]))
    middle = (edges[1:] + edges[:-1]) / 2
    lowest = np.min([sizes[units][(middle * len(units)).astype(np.intp)] for units in sets], axis=0)
    below = np.concatenate([[0.0], np.cumsum(lowest * np.diff(edges))])
    most = sizes.copy()
    for units in sets:
        area = np.diff(np.interp(_ranks(len(units)), edges, below))
        most[units] = np.maximum(np.floor(area * len(units) + 1e-6), 1)
    nearly = all(sizes[units].sum() <= _NEARLY * most[units].sum() for units in sets)
    return sizes if nearly else most


def _ranks(count: int) -> Array:
    return np.asarray(np.round(np.arange(count + 1) / count, 12))


Labels = NDArray[np.intp]


@dataclass(frozen=True)
class Shuffle:
    """The units of all sets, the set each belongs to, and the blocks that labels are reshuffled in."""

    labels: Labels  # (n_units,): 0 is the target, k the k-th background
    units: Index  # (n_rows,): the unit of each row
    kind: str  # "rows", "groups" or "pairs"
    blocks: Index | None = None  # (n_pairs, n_sets): the units of each pair; None: all units are one block

    @property
    def row_labels(self) -> Labels:
        """The labels of the rows as they are."""
        return self.labels[self.units]

    def draw(self, rng: np.random.Generator) -> Labels:
        """Return reshuffled labels of the rows."""
        if self.blocks is None:
            return rng.permutation(self.labels)[self.units]
        labels = np.empty_like(self.labels)
        labels[self.blocks] = rng.permuted(self.labels[self.blocks], axis=1)
        return labels[self.units]

    def count(self) -> float:
        """Return how many different labellings there are; inf beyond the largest float."""
        if self.blocks is not None:
            logarithm = len(self.blocks) * math.lgamma(self.blocks.shape[1] + 1)
        else:
            sizes = np.bincount(self.labels)
            logarithm = math.lgamma(sizes.sum() + 1) - sum(math.lgamma(size + 1) for size in sizes)
        return float(round(math.exp(logarithm))) if logarithm < 30 else math.exp(min(logarithm, 709.0))

    def all(self) -> Iterator[Labels]:
        """Yield every labelling of the rows once."""
        if self.blocks is None:
            for labels in _arrangements(len(self.labels), np.bincount(self.labels).tolist()):
                yield labels[self.units]
            return
        orders = list(itertools.permutations(range(self.blocks.shape[1])))
        for chosen in itertools.product(orders, repeat=len(self.blocks)):
            labels = np.empty_like(self.labels)
            labels[self.blocks] = chosen
            yield labels[self.units]

    def aligned(self, rows: Array) -> Array:
        """Remove the shift between the sets, feature by feature, in place; rows are centred by set already.

        The shift is the median of all differences between rows of a background and of the target (Hodges and
        Lehmann). Means leave a trace of the true labels in every row: an outlier moves all other rows of its
        set, and values that are equal in both sets, such as the zeros of sparse counts, become unequal. The median
        difference ignores outliers, and is exactly zero where most values are equal. The median of all aligned rows
        becomes zero.

        Units of several rows keep their means: there are few of them, and the median of few differences is noisy
        (three groups against three: 1 % rejected instead of 5).
        """
        if len(self.units) > len(self.labels):
            return rows
        labels = self.row_labels
        for here in panels(_MOST_DIFFERENCES**2, rows.shape[1]):
            panel = rows[:, here]
            target = panel[labels == 0]
            for label in range(1, int(labels.max()) + 1):
                background = panel[labels == label]
                panel[labels == label] = background - _median_difference(background, target)
            panel -= np.median(panel, axis=0)
        return rows

    def inflated(self, residuals: Array) -> Array:
        """Restore the spread between units that estimating the shift has removed.

        The G means of a set's units have lost about one of G degrees of freedom to the set's location, and lose
        as much again, over all units, when they are centred under other labels. The variation within a unit is
        unchanged. Without this the test rejects too often with few groups (11 % instead of 5 for three against
        three); with it, slightly too seldom.
        """
        sizes = np.bincount(self.labels)
        total = sizes.sum()
        factor = np.sqrt(sizes / (sizes - 1) * ((total - 1) / total))[self.labels]
        if len(self.units) == total:
            return np.asarray(residuals * factor[self.units][:, None])
        extra = unit_means(residuals, self.units) * (factor - 1)[:, None]
        return np.asarray(residuals + extra[self.units])


def _median_difference(rows: Array, others: Array) -> Array:
    """Return the median of all differences between two sets, feature by feature."""
    rows, others = _quantiles(rows), _quantiles(others)
    return np.asarray(np.median((rows[:, None] - others).reshape(-1, rows.shape[1]), axis=0))


def _quantiles(rows: Array) -> Array:
    """Return evenly spaced quantiles of each feature; all rows where there are few."""
    if len(rows) <= _MOST_DIFFERENCES:
        return rows
    levels = (np.arange(_MOST_DIFFERENCES) + 0.5) / _MOST_DIFFERENCES
    return np.asarray(np.quantile(rows, levels, axis=0, method="hazen"))  # symmetric: a sign does not matter


def _arrangements(n_units: int, sizes: list[int]) -> Iterator[Labels]:
    """Yield every way to give each of the units a label, ``sizes[k]`` of them the label k."""

    def fill(free: tuple[int, ...], label: int, labels: Labels) -> Iterator[Labels]:
        if label == len(sizes) - 1:
            labels[list(free)] = label
            yield labels.copy()
            return
        for chosen in itertools.combinations(free, sizes[label]):
            labels[list(chosen)] = label
            yield from fill(tuple(unit for unit in free if unit not in chosen), label + 1, labels)

    yield from fill(tuple(range(n_units)), 0, np.zeros(n_units, dtype=np.intp))


def shuffle_of(samples: Samples, pairs: Any, background_pairs: Any) -> Shuffle:
    """Return what may be reshuffled: pairs where given, else groups, else rows."""
    shuffle = _paired(samples, pairs, background_pairs) if _is_paired(pairs, background_pairs) else _free(samples)
    sizes = np.bincount(shuffle.labels)
    if sizes.min() < 2:
        few = samples.sets[int(np.argmin(sizes))]
        raise NotEnoughRowsError(
            f"{few.role}: {sizes.min()} of the {shuffle.kind} that are reshuffled, and a spread between them needs at "
            f"least 2. Give more {shuffle.kind}."
        )
    return shuffle


def _is_paired(pairs: Any, background_pairs: Any) -> bool:
    if (pairs is None) != (background_pairs is None):
        raise InputError("pairs= and background_pairs= belong together. Give the subject of each row of every set.")
    return pairs is not None


def _free(samples: Samples) -> Shuffle:
    """Reshuffle groups or rows over all sets."""
    grouped = [sample for sample in samples.sets if sample.ids]
    if grouped and len(grouped) < len(samples.sets):
        lacking = [sample.role for sample in samples.sets if not sample.ids]
        raise InputError(
            f"groups were given, and none for {listed(lacking)}: whole groups cannot be exchanged for single rows. "
            "Give groups for every set, or for none."
        )
    if grouped:
        _check_apart(samples)
    starts = np.cumsum([0, *(sample.n_units for sample in samples.sets)])
    units = np.concatenate([sample.units + start for sample, start in zip(samples.sets, starts, strict=False)])
    labels = np.repeat(np.arange(len(samples.sets)), np.diff(starts))
    return Shuffle(labels, units, "groups" if grouped else "rows")


def _check_apart(samples: Samples) -> None:
    for one, other in itertools.combinations(samples.sets, 2):
        shared = [name for name in one.ids if name in set(other.ids)]
        if shared:
            raise InputError(
                f"{len(shared)} groups occur in the {one.role} and in the {other.role}: {listed(shared)}. If these are "
                "the same subjects, give their ids as pairs= and background_pairs= instead of groups; if not, give "
                "them ids of their own."
            )


def _paired(samples: Samples, pairs: Any, background_pairs: Any) -> Shuffle:
    """Reshuffle labels within each subject."""
    if any(sample.ids for sample in samples.sets):
        raise InputError("pairs and groups were both given, and a pair is a group already. Give one of them.")
    given = [
        collect_values(ids, sample.source, f"{sample.role} pairs")
        for ids, sample in zip((pairs, *_for_each(samples, background_pairs)), samples.sets, strict=True)
    ]
    subjects = [_subjects(ids, sample.n_rows, sample.role) for ids, sample in zip(given, samples.sets, strict=True)]
    order = subjects[0][1]
    for sample, (_, ids) in zip(samples.sets[1:], subjects[1:], strict=True):
        alone = [name for name in dict.fromkeys([*order, *ids]) if (name in order) != (name in ids)]
        if alone:
            raise InputError(
                f"pairs: {len(alone)} of the subjects are not in both the target and the {sample.role}: {listed(alone)}"
                f"{_other_kind(order, ids, alone)}. Leave their rows out, or use groups= if no subject is in both."
            )
    place = {name: number for number, name in enumerate(order)}
    n_sets, n_pairs = len(samples.sets), len(order)
    units = [
        np.array([place[name] for name in ids])[codes] + number * n_pairs
        for number, (codes, ids) in enumerate(subjects)
    ]
    blocks = np.arange(n_sets * n_pairs).reshape(n_sets, n_pairs).T
    return Shuffle(np.repeat(np.arange(n_sets), n_pairs), np.concatenate(units), "pairs", blocks)


def _other_kind(order: tuple[Any, ...], ids: tuple[Any, ...], alone: list[Any]) -> str:
    """Say where ids differ only in being text or numbers."""
    mine, theirs = ([name for name in names if name in alone] for names in (order, ids))
    here = {_as_text(name): name for name in theirs}
    alike = [(name, here[_as_text(name)]) for name in mine if _as_text(name) in here]
    if not alike:
        return ""
    one, other = alike[0]
    return f" ({one!r} in the target may be meant with {other!r} there: make ids of one kind first)"


def _as_text(name: Any) -> str:
    if isinstance(name, bytes):
        return name.decode(errors="replace")
    return str(int(name)) if isinstance(name, float) and name.is_integer() else str(name)


def _for_each(samples: Samples, background_pairs: Any) -> list[Any]:
    """Return the ids of each background in order."""
    if samples.keys is None:
        return [background_pairs]
    if isinstance(background_pairs, dict) and set(background_pairs) == set(samples.keys):
        return [background_pairs[key] for key in samples.keys]
    if isinstance(background_pairs, list | tuple) and len(background_pairs) == len(samples.keys):
        return list(background_pairs)
    raise InputError(
        f"background_pairs: they do not fit the {len(samples.keys)} backgrounds {listed(list(samples.keys))}. Give a "
        "list or dict with one entry for each background."
    )


def _subjects(ids: Any, n_rows: int, role: str) -> tuple[Index, tuple[Any, ...]]:
    if np.ndim(ids) != 1 or len(ids) != n_rows:
        raise InputError(f"{role} pairs: shape {np.shape(ids)} for {n_rows} rows. Give one subject for each row.")
    missing = sum(is_missing(name) for name in as_ids(ids).tolist())
    if missing:
        raise InputError(
            f"{role} pairs: {missing} of {n_rows} rows have no subject. Give each row its subject, or leave it out."
        )
    return coded(ids)
