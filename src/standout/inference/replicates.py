"""Search for replicates among rows: several measurements of one unit, under ids such as 309_1, 309_2.

Replicates are not independent, and p-values, intervals and folds that count them as independent rows are wrong: 135
rows of 9 mice count as 9.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.isotonic import isotonic_regression

from standout._blas import Array
from standout._folds import Index, coded
from standout.errors import InputError, ReplicateWarning, warn_user
from standout.inference.resampling import rows_by_unit, unit_means
from standout.io.read import read
from standout.io.source import block_rows, collect_values

# Rows look like replicates if their mean squared distance within units is below this share of that between units,
_MAX_RATIO = 0.9
# smaller than under any of this many random assignments of rows to units,
_N_RANDOM = 99
# and significantly so by a jackknife over this many blocks of units (one-sided t interval). Chosen by simulation.
_N_BLOCKS, _CONFIDENCE = 20, 0.9
# With two units, replicates cannot be distinguished from a drift.
_MIN_UNITS = 3
# Rows farther from the mean than this many times the median distance are moved to it: outliers are not evidence.
_MAX_DISTANCE = 2.0
# Limits of the rows whose pairs are compared, and of the values of these rows.
_MAX_ROWS, _MAX_VALUES = 2_000, 2_000_000
_SEPARATORS = "_-.:/|# "


@dataclass(frozen=True)
class ReplicateFinding:
    """Rows that look like replicates.

    Attributes
    ----------
    n_rows, n_units : int
        Number of rows, and of the units they seem to come from.
    rule : str
        How the unit follows from the id of a row.
    ratio : float
        Mean squared distance between rows of one unit over that between rows of different units, features
        in units of their sd and outlying rows moved toward the mean.
    groups : ndarray of shape (n_rows,)
        The unit of each row, for use as ``groups``.
    text : str
        The finding as text, with what to do.
    """

    n_rows: int
    n_units: int
    rule: str
    ratio: float
    groups: NDArray[np.str_]
    text: str


def replicates_of(target: Any, background: Any) -> tuple[ReplicateFinding, ...]:
    """Return the datasets without groups whose rows look like replicates, and warn about each."""
    backgrounds = list(background.values()) if isinstance(background, dict) else background
    found = []
    for data in (target, *(backgrounds if isinstance(backgrounds, list) else [background])):
        if getattr(data, "groups", None) is None and getattr(data, "row_ids", None) is not None:
            finding = find_replicates(data)
            if finding is not None:
                found.append(finding)
                warn_user(finding.text, ReplicateWarning)
    return tuple(found)


def find_replicates(rows: Any, ids: Any = None, labels: Any = None) -> ReplicateFinding | None:
    """Check whether rows look like replicates of fewer units.

    They do if ids share a part (309 of 309_1, 309_2, ...) for at least three units, and rows that share it
    are closer to each other than rows that do not. Pairs of rows are compared at the same lag in row order, so
    that a drift over time is not mistaken for units, and the evidence must come from several units, so that an
    outlying pair of rows is not. Differences between labels are removed, so that classes are not mistaken for
    units.

    Parameters
    ----------
    rows : path, array-like, frame, sparse matrix or Source, of shape (n_rows, n_features)
        The rows; missing values (NaN) are allowed.
    ids : array-like of shape (n_rows,), optional
        Id of each row; by default that of the source. Without ids the result is None.
    labels : array-like of shape (n_rows,), optional
        Class of each row; by default that of the source.

    Returns
    -------
    ReplicateFinding or None
        None if rows do not look like replicates.

    Examples
    --------
    >>> import numpy as np
    >>> from standout.inference import find_replicates
    >>> rng = np.random.default_rng(0)
    >>> ids = [f"mouse{mouse}_{run}" for mouse in range(9) for run in range(5)]
    >>> find_replicates(rng.normal(size=(45, 8)), ids) is None
    True
    >>> replicated = np.repeat(rng.normal(size=(9, 8)), 5, axis=0) + 0.3 * rng.normal(size=(45, 8))
    >>> finding = find_replicates(replicated, ids)
    >>> finding.n_units, finding.rule
    (9, "the part of the id before the last '_'")
    """
    from sklearn.metrics.pairwise import euclidean_distances  # takes long to import

    source = read(rows, role="rows")
    ids, labels = collect_values(ids, source, "ids"), collect_values(labels, source, "labels")
    if ids is None:
        source.check_row_values("ids", "ids")
    values = _first_rows(source)
    # Only now: the ids and labels in a file are read with its rows.
    names = _as_text(ids if ids is not None else source.row_values("ids", "ids"), source.n_rows, "ids")
    if names is None:
        return None
    kinds = _as_text(labels if labels is not None else source.row_values("label", "labels"), source.n_rows, "labels")
    classes = np.zeros(len(values), dtype=np.intp) if kinds is None else coded(kinds[: len(values)])[0]
    rules = _units_by_rule(names)
    if not rules:
        return None
    distance = np.asarray(euclidean_distances(_standardised(values, classes), squared=True))
    ratios = {}
    for units in rules:
        codes = coded(units[: len(values)])[0]
        ratio = _ratio_of_replicates(distance, codes) if codes.max() > classes.max() else None
        if ratio is not None:
            ratios[units] = ratio
    if not ratios:
        return None
    units = min(ratios, key=lambda found: ratios[found])
    ratio, rule = ratios[units], rules[units]
    count, times = len(set(units)), f"{1 / ratio:.2g}" if ratio > 0 else "infinitely many"
    text = (
        f"the {len(names)} rows look like replicates of {count} units, given by {rule} ({units[0]!r} of {names[0]!r}): "
        f"rows of one unit are {times} times closer (in squared distance) than rows of different units. Give the units "
        "as groups, so that units are counted instead of rows."
    )
    return ReplicateFinding(len(names), count, rule, ratio, np.array(units), text)


def _first_rows(source: Any) -> Array:
    """Return the first rows, with a subset of the features if these are many."""
    parts, seen = [], 0
    for block in source.blocks(block_rows(source.n_features)):
        parts.append(np.asarray(block, dtype=np.float64)[: _MAX_ROWS - seen])
        seen += len(parts[-1])
        if seen >= _MAX_ROWS:
            break
    values = np.concatenate(parts)
    return values[:, :: max(1, round(values.size / _MAX_VALUES))]


def _as_text(given: Any, n_rows: int | None, what: str) -> list[str] | None:
    """Return the ids or labels of the rows as text."""
    if given is None:
        return None
    values = np.asarray(given)
    if values.ndim != 1 or (n_rows is not None and len(values) != n_rows):
        raise InputError(f"{what}: shape {values.shape} for {n_rows} rows. Give one value for each row.")
    return [str(value) for value in values.tolist()]


def _units_by_rule(names: list[str]) -> dict[tuple[str, ...], str]:
    """Return units that may be derived from ids, and the rule: at least two units, with two rows each on average."""
    patterns = {"the id itself": "(.+)"}
    for mark, escaped in zip(_SEPARATORS, map(re.escape, _SEPARATORS), strict=True):
        patterns[f"the part of the id before the last {mark!r}"] = f"(.+){escaped}[^{escaped}]+"
        patterns[f"the part of the id before the first {mark!r}"] = f"([^{escaped}]+){escaped}.+"
    patterns["the id without its last letter"] = r"(.*\d)[A-Za-z]"
    found: dict[tuple[str, ...], str] = {}
    for rule, pattern in patterns.items():
        matches = [re.fullmatch(pattern, name, re.DOTALL) for name in names]
        units = tuple(match[1] for match in matches if match is not None)
        if len(units) == len(names) and 2 <= len(set(units)) <= len(names) / 2:
            found.setdefault(units, rule)
    return found


def _standardised(values: Array, classes: Index) -> Array:
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


def _ratio_of_replicates(distance: Array, units: Index) -> float | None:
    """Return the ratio of squared distances within and between units if it is clearly below one, else None.

    Three conditions must hold. The ratio is below ``_MAX_RATIO``. Relative to pairs of different units at the same lag
    in row order, pairs of one unit are closer than under any random assignment of rows to units, so that a drift over
    time, which makes adjacent rows similar, does not count. And the evidence is not due to a single unit: it also
    holds, with ``_CONFIDENCE``, by a jackknife over units (blocks of units, if there are many).
    """
    pairs = [rows[np.stack(np.triu_indices(len(rows), 1))] for rows in rows_by_unit(units)]
    first, second = np.concatenate(pairs, axis=1)
    n_rows, n_units = len(units), len(pairs)
    if n_units < _MIN_UNITS or len(first) == 0:
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
    lag, apart, size = np.abs(first - second), distance[first, second], len(distance)
    counts = lags[1] - np.bincount(lag, minlength=size)[1:]
    present = np.flatnonzero(counts > 0)
    if len(present) == 0:
        return 0.0
    sums = (lags[0] - np.bincount(lag, apart, size)[1:])[present]
    rising = isotonic_regression(sums / counts[present], sample_weight=counts[present])
    expected = float(np.interp(lag, present + 1, rising).sum())
    return float(np.log(max(float(apart.sum()) / expected, 1e-12))) if expected > 0 else 0.0
