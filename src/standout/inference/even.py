"""Units that are exchanged must be alike: as many rows of each take part.

A set of subjects with ten rows each is more even than one with two, whatever the subjects are: reshuffled as
they come, sets with many rows for each subject on one side are taken for a finding.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from standout.inference.resample import Index, Sample, Samples
from standout.inference.shuffle import Shuffle
from standout.sources import RowView

# Sets whose units have up to this many times more rows than their like keep their level as they are.
_UNEVEN = 1.25


def evened(samples: Samples, shuffle: Shuffle, seed: int) -> tuple[Samples, Shuffle]:
    """Return samples and shuffle with as many rows of each unit as those it is exchanged for, and a note of it."""
    kept = even_rows(shuffle, seed)
    if kept is None:
        return samples, shuffle
    starts = np.cumsum([0, *(sample.n_rows for sample in samples.sets)])
    sets = [
        _some_of(sample, kept[(kept >= start) & (kept < start + sample.n_rows)] - start)
        for sample, start in zip(samples.sets, starts, strict=False)
    ]
    fewer = replace(shuffle, units=shuffle.units[kept])
    notes = (*samples.notes, _note(fewer, len(shuffle.units)))
    return replace(samples, target=sets[0], backgrounds=tuple(sets[1:]), notes=notes), fewer


def _some_of(sample: Sample, index: Index) -> Sample:
    return replace(sample, source=RowView(sample.source, index), units=sample.units[index])


def _note(shuffle: Shuffle, n_rows: int) -> str:
    most = int(np.bincount(shuffle.units).max())
    return (
        f"{len(shuffle.units)} of {n_rows} rows took part, at most {most} of each subject, drawn at random: the "
        "sets do not have as many rows for each subject, and subjects can be exchanged only for their like. Give about "
        "as many rows for each subject in every set to use them all."
    )


def even_rows(shuffle: Shuffle, seed: int) -> Index | None:
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
    """Return for each unit the smallest number of rows that units of its rank have in any set.

    The largest tenth of every set is then alike, and so is the smallest. Sets that are alike but for a few rows
    are left as they are.
    """
    sets = [np.flatnonzero(shuffle.labels == label) for label in range(shuffle.labels.max() + 1)]
    sets = [units[np.argsort(sizes[units], kind="stable")] for units in sets]
    most = sizes.copy()
    for units in sets:
        rank = (np.arange(len(units)) + 0.5) / len(units)
        alike = [sizes[other][(rank * len(other)).astype(np.intp)] for other in sets]
        most[units] = np.min(alike, axis=0)
    spared = [sizes[units].sum() <= _UNEVEN * most[units].sum() for units in sets]
    return sizes if all(spared) else most
