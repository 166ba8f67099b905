"""Exchangeable units: which labels a permutation may assign, and how rows are prepared for it.

Under the null hypothesis all sets have the same distribution up to a shift. The shift is estimated and removed, and the
labels of the aligned rows are permuted: over whole units (groups where given, else rows), or within pairs. A unit is
exchangeable only with units that have as many rows, because the covariance of a set depends on how its rows are
distributed over units. Rows of larger units are therefore dropped at random first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from standout._blas import Array
from standout._folds import Index, unit_means
from standout.errors import InputError, NotEnoughRowsError, listed
from standout.inference.resampling import Samples, panels
from standout.io.source import ArraySource

# Sets of groups keep all rows if none has more than this many times the balanced number of rows.
_BALANCE_TOLERANCE = 1.05
# The shift is the median difference between this many quantiles of each set (all rows of a smaller set).
_MAX_QUANTILES = 51


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
        labels = np.empty_like(self.labels)
        labels[self.blocks] = rng.permuted(self.labels[self.blocks], axis=1)
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
            return
        orders = list(itertools.permutations(range(self.blocks.shape[1])))
        for chosen in itertools.product(orders, repeat=len(self.blocks)):
            labels = np.empty_like(self.labels)
            labels[self.blocks] = chosen
            yield labels[self.units]

    def aligned(self, rows: Array) -> Array:
        """Remove the shift between the sets, feature by feature, in place.

        The shift is the median of all differences between rows of a background and of the target (the Hodges–Lehmann
        estimate): it ignores outliers, and is exactly zero where most values are equal, as in sparse counts. A
        difference of means would leave a trace of the true labels in every row. Where units have several rows, rows
        stay centred by set: the median of few differences is noisy (three groups against three: 1 % rejected
        instead of 5).
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
        much again, over all units, when they are centred under other labels. Without this correction the test rejects
        too often with few groups (11 % instead of 5 for three against three); with it, slightly too rarely.
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
    blocks = _pair_blocks(samples, starts) if paired else None
    if not paired:
        _check_disjoint(samples)
    shuffle = Shuffle(np.repeat(np.arange(len(sizes)), sizes), units, "pairs" if paired else samples.unit_kind, blocks)
    if sizes.min() < 2:
        role = samples.sets[int(np.argmin(sizes))].role
        raise NotEnoughRowsError(
            f"{role}: {sizes.min()} of the {shuffle.kind} to permute, and a variance between them needs at least 2. "
            f"Give more {shuffle.kind}."
        )
    return shuffle


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
    others = {_as_text(name): name for name in extra}
    for name in lacking:
        if _as_text(name) in others:
            other = others[_as_text(name)]
            return f" ({name!r} in the target and {other!r} there may be the same: convert ids to one type first)"
    return ""


def _as_text(name: Any) -> str:
    if isinstance(name, bytes):
        return name.decode(errors="replace")
    return str(int(name)) if isinstance(name, float) and name.is_integer() else str(name)


def _check_disjoint(samples: Samples) -> None:
    """Check that no group is in two sets."""
    for one, other in itertools.combinations(samples.sets, 2):
        in_other = set(other.units.ids)
        shared = [name for name in one.units.ids if name in in_other]
        if shared:
            raise InputError(
                f"{len(shared)} groups occur in the {one.role} and in the {other.role}: {listed(shared)}. If these are "
                "the same subjects, give their ids as pairs= and background_pairs= instead of groups; if not, give "
                "them different ids."
            )


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
