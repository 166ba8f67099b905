"""Exchangeable units: which labels a permutation may assign, and how rows are prepared for it.

Under the null hypothesis all sets have the same distribution up to a shift. The shift is estimated and removed, and the
labels of the aligned rows are permuted: over whole units (groups where given, else rows), or within pairs. A unit is
exchangeable only with units that have as many rows, because the covariance of a set depends on how its rows are
distributed over units. Rows of larger units are therefore dropped at random first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout._blas import Array
from standout._folds import Index, coded
from standout.errors import InputError, NotEnoughRowsError, listed
from standout.inference.resampling import Samples, panels, unit_means
from standout.io.memory import as_ids, is_missing
from standout.io.source import ArraySource, collect_values

# Sets of groups keep all rows if none has more than this many times the balanced number of rows.
_BALANCE_TOLERANCE = 1.05
# The shift is the median difference between this many quantiles of each set (all rows of a smaller set).
_MAX_QUANTILES = 51

Labels = NDArray[np.intp]


@dataclass(frozen=True)
class Shuffle:
    """The units of all sets, the set each belongs to, and the blocks within which labels are permuted."""

    labels: Labels  # (n_units,): 0 is the target, k the k-th background
    units: Index  # (n_rows,): the unit of each row
    kind: str  # "rows", "groups" or "pairs"
    blocks: Index | None = None  # (n_pairs, n_sets): the units of each pair; None: all units are one block

    @property
    def row_labels(self) -> Labels:
        """The observed labels of the rows."""
        return self.labels[self.units]

    def draw(self, rng: np.random.Generator) -> Labels:
        """Return permuted labels of the rows."""
        if self.blocks is None:
            return rng.permutation(self.labels)[self.units]
        labels = np.empty_like(self.labels)
        labels[self.blocks] = rng.permuted(self.labels[self.blocks], axis=1)
        return labels[self.units]

    def count(self) -> float:
        """Return the number of distinct labellings, rounded to a float."""
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
        """Remove the shift between the sets, feature by feature, in place.

        The shift is the median of all differences between rows of a background and of the target (the
        Hodges–Lehmann estimate). A difference of means would leave a trace of the true labels in every row: an outlier
        moves all other rows of its set, and values that are equal in both sets, such as the zeros of sparse counts,
        become unequal. The median difference ignores outliers, and is exactly zero where most values are equal. The
        median of all aligned rows becomes zero.

        Rows that are already centred by set stay as they are where units have several rows: there are few units, and
        the median of few differences is noisy (three groups against three: 1 % rejected instead of 5).
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
        """Restore the variance between units that was lost by estimating the shift.

        The G unit means of a set have lost about one of G degrees of freedom to the location of the set, and lose as
        much again, over all units, when they are centred under other labels. The variance within units is unchanged.
        Without this correction the test rejects too often with few groups (11 % instead of 5 for three against
        three); with it, slightly too rarely.
        """
        sizes = np.bincount(self.labels)
        total = sizes.sum()
        factor = np.sqrt(sizes / (sizes - 1) * ((total - 1) / total))[self.labels]
        if len(self.units) == total:
            return np.asarray(residuals * factor[self.units][:, None])
        extra = unit_means(residuals, self.units) * (factor - 1)[:, None]
        return np.asarray(residuals + extra[self.units])


def _quantiles(rows: Array) -> Array:
    """Return equally spaced quantiles of each feature; all rows of a small set."""
    if len(rows) <= _MAX_QUANTILES:
        return rows
    levels = (np.arange(_MAX_QUANTILES) + 0.5) / _MAX_QUANTILES
    return np.asarray(np.quantile(rows, levels, axis=0, method="hazen"))  # symmetric under a change of sign


def _arrangements(n_units: int, sizes: list[int]) -> Iterator[Labels]:
    """Yield every assignment of labels to units in which ``sizes[k]`` units have the label k."""

    def fill(free: tuple[int, ...], label: int, labels: Labels) -> Iterator[Labels]:
        if label == len(sizes) - 1:
            labels[list(free)] = label
            yield labels.copy()
            return
        for chosen in itertools.combinations(free, sizes[label]):
            labels[list(chosen)] = label
            yield from fill(tuple(unit for unit in free if unit not in chosen), label + 1, labels)

    yield from fill(tuple(range(n_units)), 0, np.zeros(n_units, dtype=np.intp))


def balance_units(samples: Samples, shuffle: Shuffle, seed: int) -> tuple[Samples, Shuffle, str]:
    """Balance the numbers of rows of exchangeable units.

    Returns
    -------
    samples : Samples
        The rows that are used, with a note if rows were dropped.
    shuffle : Shuffle
        The units of these rows.
    used : str
        How many rows are used; empty if all are.
    """
    kept = balanced_rows(shuffle, seed)
    if kept is None:
        return samples, shuffle, ""
    sets, start = [], 0
    for sample in samples.sets:
        index = kept[(kept >= start) & (kept < start + sample.n_rows)] - start
        start += sample.n_rows
        # All rows are read and checked: whether a missing value is reported must not depend on the seed.
        rows = ArraySource(sample.rows()[index], sample.source.names)
        sets.append(replace(sample, source=rows, units=sample.units[index]))
    used = f"{len(kept)} of {len(shuffle.units)} rows are used"
    shuffle = replace(shuffle, units=shuffle.units[kept])
    note = (
        f"{used}, at most {np.bincount(shuffle.units).max()} of each subject, drawn at random: subjects are "
        "exchangeable only with subjects that have as many rows. Another seed draws other rows and gives another p. "
        "Give the same number of rows for each subject in every set to use them all."
    )
    notes = (*samples.notes, note)
    return replace(samples, target=sets[0], backgrounds=tuple(sets[1:]), notes=notes), shuffle, used


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
    sets is the common distribution, however many units the sets have; a unit that covers several of its steps gets
    their mean. Nothing is dropped if every set would lose less than a twentieth.
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


def shuffle_of(samples: Samples, pairs: Any, background_pairs: Any) -> Shuffle:
    """Return what is permuted: labels within pairs where given, else labels of groups, else of rows."""
    if (pairs is None) != (background_pairs is None):
        raise InputError("pairs= and background_pairs= must be given together. Give the subject of each row of both.")
    shuffle = _unpaired(samples) if pairs is None else _paired(samples, pairs, background_pairs)
    sizes = np.bincount(shuffle.labels)
    if sizes.min() < 2:
        role = samples.sets[int(np.argmin(sizes))].role
        raise NotEnoughRowsError(
            f"{role}: {sizes.min()} of the {shuffle.kind} to permute, and a variance between them needs at least 2. "
            f"Give more {shuffle.kind}."
        )
    return shuffle


def _unpaired(samples: Samples) -> Shuffle:
    """Permute groups or rows over all sets."""
    ungrouped = [sample.role for sample in samples.sets if not sample.ids]
    grouped = len(ungrouped) < len(samples.sets)
    if grouped and ungrouped:
        raise InputError(
            f"groups are given for some sets, but not for {listed(ungrouped)}: whole groups cannot be exchanged for "
            "single rows. Give groups for every set, or for none."
        )
    for one, other in itertools.combinations(samples.sets, 2):
        shared = [name for name in one.ids if name in set(other.ids)]
        if shared:
            raise InputError(
                f"{len(shared)} groups occur in the {one.role} and in the {other.role}: {listed(shared)}. If these are "
                "the same subjects, give their ids as pairs= and background_pairs= instead of groups; if not, give "
                "them different ids."
            )
    starts = np.cumsum([0, *(sample.n_units for sample in samples.sets)])
    units = np.concatenate([sample.units + start for sample, start in zip(samples.sets, starts, strict=False)])
    labels = np.repeat(np.arange(len(samples.sets)), np.diff(starts))
    return Shuffle(labels, units, "groups" if grouped else "rows")


def _paired(samples: Samples, pairs: Any, background_pairs: Any) -> Shuffle:
    """Permute labels within each subject."""
    if any(sample.ids for sample in samples.sets):
        raise InputError("pairs and groups are both given, and a pair is already a group. Give one of them.")
    given = [pairs, *_for_each_background(samples, background_pairs)]
    subjects = [
        _subjects(collect_values(ids, sample.source, f"{sample.role} pairs"), sample.n_rows, sample.role)
        for ids, sample in zip(given, samples.sets, strict=True)
    ]
    order = subjects[0][1]
    for sample, (_, ids) in zip(samples.sets[1:], subjects[1:], strict=True):
        unpaired = [name for name in dict.fromkeys([*order, *ids]) if (name in order) != (name in ids)]
        if unpaired:
            raise InputError(
                f"pairs: {len(unpaired)} of the subjects are not in both the target and the {sample.role}: "
                f"{listed(unpaired)}{_type_mismatch(order, ids, unpaired)}. Leave their rows out, or use `groups` if "
                "no subject is in both."
            )
    position = {name: number for number, name in enumerate(order)}
    n_sets, n_pairs = len(samples.sets), len(order)
    units = [
        np.array([position[name] for name in ids])[codes] + number * n_pairs
        for number, (codes, ids) in enumerate(subjects)
    ]
    blocks = np.arange(n_sets * n_pairs).reshape(n_sets, n_pairs).T
    return Shuffle(np.repeat(np.arange(n_sets), n_pairs), np.concatenate(units), "pairs", blocks)


def _for_each_background(samples: Samples, background_pairs: Any) -> list[Any]:
    """Return the ids of each background in order."""
    if samples.keys is None:
        return [background_pairs]
    if isinstance(background_pairs, dict) and set(background_pairs) == set(samples.keys):
        return [background_pairs[key] for key in samples.keys]
    if isinstance(background_pairs, list | tuple) and len(background_pairs) == len(samples.keys):
        return list(background_pairs)
    raise InputError(
        f"background_pairs does not match the {len(samples.keys)} backgrounds {listed(list(samples.keys))}. Give a "
        "list or dict with one entry for each background."
    )


def _subjects(ids: Any, n_rows: int, role: str) -> tuple[Index, tuple[Any, ...]]:
    """Return the number of each row's subject, and the ids of the subjects."""
    if np.ndim(ids) != 1 or len(ids) != n_rows:
        raise InputError(f"{role} pairs: shape {np.shape(ids)} for {n_rows} rows. Give one subject for each row.")
    missing = sum(is_missing(name) for name in as_ids(ids).tolist())
    if missing:
        raise InputError(
            f"{role} pairs: {missing} of {n_rows} rows lack a subject. Give each row its subject, or leave it out."
        )
    return coded(ids)


def _type_mismatch(order: tuple[Any, ...], ids: tuple[Any, ...], unpaired: list[Any]) -> str:
    """Return a hint for ids that differ only in type, such as 1 and '1'."""
    in_background = {_as_text(name): name for name in ids if name in unpaired}
    for name in order:
        if name in unpaired and _as_text(name) in in_background:
            other = in_background[_as_text(name)]
            return f" ({name!r} in the target and {other!r} there may be the same: convert ids to one type first)"
    return ""


def _as_text(name: Any) -> str:
    if isinstance(name, bytes):
        return name.decode(errors="replace")
    return str(int(name)) if isinstance(name, float) and name.is_integer() else str(name)
