"""Test whether rows of one unit are closer to each other than rows of different units."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from standout._blas import Array
from standout._folds import Index, rows_by_unit, unit_means

# Rows look like replicates if their mean squared distance within units is below this share of that between units,
_MAX_RATIO = 0.9
# smaller than under any of this many random assignments of rows to units,
_N_RANDOM = 99
# and significantly so by a jackknife over this many blocks of units (one-sided t interval). Chosen by simulation.
_N_BLOCKS, _CONFIDENCE = 20, 0.9
# With two units, replicates cannot be distinguished from a drift.
MIN_UNITS = 3
# Rows farther from the mean than this many times the median distance are moved to it: outliers are not evidence.
_MAX_DISTANCE = 2.0


def standardised(values: Array, classes: Index) -> Array:
    """Return rows centred by class, features in units of their sd; missing values are replaced by the mean.

    Outlying rows are moved toward the mean. This is done twice, because they also move the mean and inflate the sd.
    """
    missing = ~np.isfinite(values)
    observed = unit_means((~missing).astype(np.float64), classes)
    rows = np.where(missing, 0.0, values)
    for _ in range(2):
        means = unit_means(rows, classes) / np.where(observed > 0, observed, 1.0)
        rows = np.where(missing, 0.0, rows - means[classes])
        sd = np.sqrt((rows**2).mean(axis=0))
        varies = sd > 1e-12 * np.abs(means).max(axis=0)
        rows = np.where(varies, rows / np.where(varies, sd, 1.0), 0.0)
        length = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        limit = _MAX_DISTANCE * (np.median(length[length > 0]) if length.any() else 1.0)
        rows *= np.minimum(1.0, limit / np.where(length > 0, length, limit))[:, None]
    return np.asarray(rows)


def ratio_of_replicates(distance: Array, units: Index) -> float | None:
    """Return the ratio of squared distances within and between units if it is clearly below one, else None.

    Three conditions must hold. The ratio is below ``_MAX_RATIO``. Relative to pairs of different units at the same lag
    in row order, pairs of one unit are closer than under any random assignment of rows to units, so that a drift over
    time, which makes adjacent rows similar, does not count. And the evidence is not due to a single unit: it also
    holds, with ``_CONFIDENCE``, by a jackknife over units (blocks of units, if there are many).
    """
    pairs = [rows[np.stack(np.triu_indices(len(rows), 1))] for rows in rows_by_unit(units)]
    first, second = np.concatenate(pairs, axis=1)
    n_rows, n_units = len(units), len(pairs)
    if n_units < MIN_UNITS or len(first) == 0:
        return None
    lags = _lag_sums(distance, np.arange(n_rows))
    within = float(distance[first, second].sum())
    between = (lags[0].sum() - within) / (lags[1].sum() - len(first))
    ratio = within / len(first) / between if between > 0 else 1.0
    if ratio >= _MAX_RATIO:
        return None
    observed = _log_closeness(distance, lags, first, second)
    rng = np.random.default_rng(0)
    for _ in range(_N_RANDOM):
        moved = rng.permutation(n_rows)
        if _log_closeness(distance, lags, moved[first], moved[second]) <= observed:
            return None
    count = min(n_units, _N_BLOCKS)
    block, without = (np.arange(n_units) * count // n_units)[units], []
    for number in range(count):
        kept = block != number
        left = kept[first]
        if left.any():
            lags = _lag_sums(distance, np.flatnonzero(kept))
            without.append(_log_closeness(distance, lags, first[left], second[left]))
    if len(without) < 2:
        return None
    error = np.sqrt((len(without) - 1) * np.var(without))
    return ratio if observed < -stats.t.ppf(_CONFIDENCE, len(without) - 1) * error else None


def _lag_sums(distance: Array, rows: Index) -> tuple[NDArray[Any], Index]:
    """Return sums and numbers of the squared distances of all pairs of rows, by difference of row numbers from 1 on."""
    first, second = (rows[index] for index in np.triu_indices(len(rows), 1))
    lag, size = second - first, len(distance)
    return np.bincount(lag, distance[first, second], size)[1:], np.bincount(lag, minlength=size)[1:]


def _log_closeness(distance: Array, lags: tuple[NDArray[Any], Index], first: Index, second: Index) -> float:
    """Return the log squared distance of some pairs relative to that expected of all other pairs at the same lags.

    The expectation is monotone in the lag (isotonic regression), as it is under any drift.
    """
    from sklearn.isotonic import isotonic_regression  # takes long to import

    lag, apart, size = np.abs(first - second), distance[first, second], len(distance)
    counts = lags[1] - np.bincount(lag, minlength=size)[1:]
    present = np.flatnonzero(counts > 0)
    if len(present) == 0:
        return 0.0
    sums = (lags[0] - np.bincount(lag, apart, size)[1:])[present]
    rising = isotonic_regression(sums / counts[present], sample_weight=counts[present])
    expected = float(np.interp(lag, present + 1, rising).sum())
    return float(np.log(max(float(apart.sum()) / expected, 1e-12))) if expected > 0 else 0.0
