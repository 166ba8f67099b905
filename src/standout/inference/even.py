"""Units that are exchanged must be alike: as many rows of each take part.

A set of subjects with ten rows each is more even than one with two, whatever the subjects are: reshuffled as
they come, sets with many rows for each subject on one side are taken for a finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from standout.blas import Array
from standout.errors import InputError, NotEnoughRowsError
from standout.folds import Index
from standout.inference.resample import Sample, Samples
from standout.inference.shuffle import Shuffle
from standout.sources import ArraySource

# Sets of groups that have up to this many times more rows than their like keep the level of the test as they are.
_NEARLY = 1.05


@dataclass(frozen=True)
class Evened:
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


def evened(samples: Samples, shuffle: Shuffle, seed: int) -> Evened:
    """Return samples and shuffle with as many rows of each unit as those it is exchanged for, and a note of it."""
    kept = even_rows(shuffle, seed)
    if kept is None:
        return Evened(samples, shuffle)
    starts = np.cumsum([0, *(sample.n_rows for sample in samples.sets)])
    sets = [
        _some_of(sample, kept[(kept >= start) & (kept < start + sample.n_rows)] - start)
        for sample, start in zip(samples.sets, starts, strict=False)
    ]
    fewer = replace(shuffle, units=shuffle.units[kept])
    told = f"{len(kept)} of {len(shuffle.units)} rows take part"
    notes = (*samples.notes, _note(told, int(np.bincount(fewer.units).max())))
    return Evened(replace(samples, target=sets[0], backgrounds=tuple(sets[1:]), notes=notes), fewer, told)


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
