"""Held-out ratios of kernel models over folds: to choose gamma and shrinkage, and to count components.

The formula behind the noise edge does not apply to a kernel, because the background never has enough rows for the
dimensions of the kernel. Held-out rows need no formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma
from scipy.stats import t as student

from standout.blas import Array
from standout.dataset import Dataset
from standout.errors import NotEnoughRowsError
from standout.estimators.kernel_model import KernelModel
from standout.mixture import Mixture
from standout.sources import RowView

Index = NDArray[np.intp]
Fit = Callable[[Sequence[Dataset]], KernelModel]
Choice = TypeVar("Choice")

_FOLDS = 5
# The choice looks at so many components: later ones are mostly noise.
_FIRST = 2
# A log ratio beyond this is as good as infinite.
_LARGEST = 50.0


def best(choices: Iterable[Choice], fit: Callable[[Choice], Fit], data: Sequence[Dataset], seed: int) -> Choice:
    """Return the choice with the largest mean held-out log ratio; among equals the first."""
    folds = split(data, seed)
    found: tuple[float, Choice] | None = None
    for choice in choices:
        value = float(held_out_logs(fit(choice), data, folds)[:, :_FIRST].mean())
        if found is None or value > found[0]:
            found = value, choice
    assert found is not None
    return found[1]


def count_above_one(fit: Fit, data: Sequence[Dataset], seed: int, level: float = 0.95) -> int:
    """Return how many leading components have a held-out ratio above one.

    A component counts where the lower end of the t interval of its mean log ratio is above zero. The interval is
    widened for overlapping training sets (Nadeau and Bengio 2003), as that of ``held_out_ratio``.
    """
    logs = held_out_logs(fit, data, split(data, seed))
    folds = len(logs)
    error = logs.std(axis=0, ddof=1) * math.sqrt(1 / folds + 1 / (folds - 1))
    above = logs.mean(axis=0) > student.ppf((1 + level) / 2, folds - 1) * error
    return int(np.argmin([*above, False]))


def split(data: Sequence[Dataset], seed: int) -> list[list[Index]]:
    """Return the rows of each dataset that are held out in each fold; rows of one group stay together."""
    units = _units(data)
    fewest = min(len(np.unique(own)) for own in units)
    count = min(_FOLDS, fewest // 2)
    rng = np.random.default_rng(seed)
    fold_of = np.full(1 + max(int(own.max()) for own in units), -1)
    for own in units:
        unique = rng.permutation(np.unique(own))
        # A group that is in several datasets is in one fold.
        sizes = np.bincount(fold_of[unique][fold_of[unique] >= 0], minlength=max(count, 1))
        for unit in unique[fold_of[unique] < 0]:
            fold_of[unit] = np.argmin(sizes)
            sizes[fold_of[unit]] += 1
    folds = [[np.flatnonzero(fold_of[own] == fold) for own in units] for fold in range(count)]
    inside = [len(np.unique(own[held])) for fold in folds for own, held in zip(units, fold, strict=True)]
    if count < 2 or min(inside) < 2:
        raise NotEnoughRowsError(
            f"{fewest} independent units (groups where given, else rows) in the smallest dataset are too few for "
            "held-out ratios: each fold needs two of every dataset. Give more rows, or give gamma, shrinkage and "
            "n_components as numbers."
        )
    return folds


def _units(data: Sequence[Dataset]) -> list[Index]:
    """Return the number of the independent unit of each row: of its group, or of the row itself."""
    codes: dict[Hashable, int] = {}
    found = []
    for part in data:
        assert part.rows is not None
        groups = part.groups if part.groups is not None else part.rows.groups
        keys = [object() for _ in range(part.counts.rows)] if groups is None else list(groups)
        found.append(np.array([codes.setdefault(key, len(codes)) for key in keys], dtype=np.intp))
    return found


def held_out_logs(fit: Fit, data: Sequence[Dataset], folds: Sequence[Sequence[Index]]) -> Array:
    """Return log held-out ratios without their small-sample bias, of shape (n_folds, n_components)."""
    logs = [_of_fold(fit, data, held) for held in folds]
    kept = min(map(len, logs))
    return np.stack([row[:kept] for row in logs])


def _of_fold(fit: Fit, data: Sequence[Dataset], held: Sequence[Index]) -> Array:
    model = fit(
        [_part(part, np.setdiff1d(np.arange(part.counts.rows), index)) for part, index in zip(data, held, strict=True)]
    )
    tests = [_part(part, index) for part, index in zip(data, held, strict=True)]
    variances, counts = [], []
    for test, units in zip(tests, _units(tests), strict=True):
        assert test.rows is not None
        codes = np.unique(units, return_inverse=True)[1]
        variances.append(_variance(model.project(test.rows, test.role), test.row_weights, codes))
        counts.append(replace(test.counts, units=float(codes.max() + 1)))
    mixture = Mixture.of(counts[1:], model.mix)
    with np.errstate(all="ignore"):
        logs = np.log(variances[0]) - np.log(mixture.mixed(variances[1:]))
    # The log of a mean square with a degrees of freedom is off by ψ(a/2) − log(a/2) on average.
    bias = _log_bias(counts[0].units - 1) - _log_bias(mixture.units - 1)
    # Scores that do not vary give infinite logs, which have no mean and no interval.
    return np.clip(np.nan_to_num(logs - bias, nan=0.0, posinf=_LARGEST, neginf=-_LARGEST), -_LARGEST, _LARGEST)


def _log_bias(freedom: float) -> float:
    return float(digamma(freedom / 2) - math.log(freedom / 2))


def _variance(scores: Array, weights: Array, units: Index) -> Array:
    """Return the variance of each column, unbiased in the number of units."""
    total = np.bincount(units, weights)
    sums = np.zeros((len(total), scores.shape[1]))
    np.add.at(sums, units, weights[:, None] * scores)
    means = (sums / total[:, None])[units]
    mean = weights @ scores / weights.sum()
    within, between = weights @ (scores - means) ** 2, weights @ (means - mean) ** 2
    return np.asarray((within + between * (len(total) / (len(total) - 1))) / weights.sum())


def _part(data: Dataset, index: Index) -> Dataset:
    """Return some rows of a dataset."""
    assert data.rows is not None
    weights = None if data.weights is None else data.row_weights[index]
    groups = None if data.groups is None else np.asarray(data.groups, dtype=object)[index]
    return replace(data, source=RowView(data.rows, index), weights=weights, groups=groups)
