"""Held-out ratios of kernel models over folds: to choose gamma and shrinkage, and to count components.

The formula behind the noise edge does not apply to a kernel, because the background never has enough rows for the
dimensions of the kernel. Held-out rows need no formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from standout.blas import Array
from standout.dataset import Dataset
from standout.errors import NotEnoughRowsError
from standout.estimators.kernel_model import KernelModel
from standout.folds import (
    Fold,
    Index,
    Spread,
    Units,
    assigned,
    coded,
    even_quotas,
    fold_notes,
    log_ratios,
    mean_over_folds,
    over_folds,
)
from standout.mixture import Mixture
from standout.sources import RowView

Fit = Callable[[Sequence[Dataset]], KernelModel]
Choice = TypeVar("Choice")

_FOLDS = 5
# The choice looks at so many components at most: later ones are mostly noise.
FIRST = 2
# A log ratio beyond this is as good as infinite.
_LARGEST = 50.0


def best(
    choices: Iterable[Choice], fit: Callable[[Choice], Fit], data: Sequence[Dataset], seed: int, first: int
) -> Choice:
    """Return the choice with the largest mean held-out log ratio of the first components; among equals the first."""
    folds = split(data, seed)
    found: tuple[float, Choice] | None = None
    for choice in choices:
        logs = held_out_logs(fit(choice), data, folds)[:, :first].clip(-_LARGEST, _LARGEST)
        value = float(np.nan_to_num(mean_over_folds(logs)).mean())
        if found is None or value > found[0]:
            found = value, choice
    assert found is not None
    return found[1]


def count_above_one(fit: Fit, data: Sequence[Dataset], seed: int, level: float = 0.95) -> tuple[int, list[str]]:
    """Return how many leading components have a held-out ratio above one, and notes on folds without a finite one.

    A component counts where the lower end of the interval of ``held_out_ratio`` is above one.
    """
    logs = held_out_logs(fit, data, split(data, seed))
    count = int(np.argmin([*(over_folds(logs, level).low > 0), False]))
    return count, fold_notes(logs[:, : count + 1])


def split(data: Sequence[Dataset], seed: int) -> list[list[Index]]:
    """Return the rows of each dataset that are held out in each fold; rows of one group stay together."""
    units = [_units(part) for part in data]
    fewest = min(own.count for own in units)
    count = min(_FOLDS, fewest // 2)
    fold_of = assigned(units, even_quotas(units, max(count, 1)), np.random.default_rng(seed))
    if count < 2 or min(np.bincount(own, minlength=count).min() for own in fold_of) < 2:
        raise NotEnoughRowsError(
            f"{fewest} independent units (groups where given, else rows) in the smallest dataset are too few for "
            "held-out ratios: each fold needs two of every dataset. Give more rows, or give gamma, shrinkage and "
            "n_components as numbers."
        )
    return [
        [np.flatnonzero((own == fold)[unit.rows]) for own, unit in zip(fold_of, units, strict=True)]
        for fold in range(count)
    ]


def _units(data: Dataset) -> Units:
    """Return the independent units of a dataset: its groups, or its rows."""
    assert data.rows is not None
    groups = data.groups if data.groups is not None else data.rows.groups
    return Units(np.arange(data.counts.rows), ()) if groups is None else Units(*coded(groups))


def held_out_logs(fit: Fit, data: Sequence[Dataset], folds: Sequence[Sequence[Index]]) -> Array:
    """Return log held-out ratios without their small-sample bias, of shape (n_folds, n_components)."""
    return log_ratios([_of_fold(fit, data, held) for held in folds])


def _of_fold(fit: Fit, data: Sequence[Dataset], held: Sequence[Index]) -> Fold:
    model = fit(
        [_part(part, np.setdiff1d(np.arange(part.counts.rows), index)) for part, index in zip(data, held, strict=True)]
    )
    tests = [_part(part, index) for part, index in zip(data, held, strict=True)]
    spread = []
    for test in tests:
        assert test.rows is not None
        spread.append(Spread.of(model.project(test.rows, test.role), _units(test).rows, test.row_weights))
    mixture = Mixture.of([test.counts for test in tests[1:]], model.mix)
    return Fold(spread[0], tuple(spread[1:]), mixture.shares, model.target_variance)


def _part(data: Dataset, index: Index) -> Dataset:
    """Return some rows of a dataset."""
    assert data.rows is not None
    weights = None if data.weights is None else data.row_weights[index]
    groups = None if data.groups is None else np.asarray(data.groups, dtype=object)[index]
    return replace(data, source=RowView(data.rows, index), weights=weights, groups=groups)
