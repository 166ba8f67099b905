"""All assessments of components in one call, and a search for replicates among the rows.

Replicates are several measurements of one subject, under ids such as 309_1, 309_2. They are not independent, and
p-values, intervals and folds that count them as independent rows are wrong: 135 rows of 9 mice count as 9.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.base import clone
from sklearn.isotonic import isotonic_regression

from standout._base import BaseContrast
from standout._blas import Array
from standout._dpca import DPCA
from standout._folds import Index, coded
from standout._inputs import check_count
from standout._model import Summary
from standout.errors import InputError, NotEnoughRowsError, ReplicateWarning, StandoutWarning, warn_user
from standout.inference.held_out import HeldOut, held_out_ratio
from standout.inference.permutation import PermutationTest, permutation_test
from standout.inference.resampling import collect_sides, unit_means
from standout.inference.stability import Stability, stability
from standout.io.read import read
from standout.io.source import block_rows, collect_values

# The mean squared distance within units must be below this share of that between units,
_CLOSE = 0.9
# smaller than under any of this many random assignments of rows to units,
_RANDOM = 99
# With two units, replicates cannot be distinguished from a drift.
_LEAST_UNITS = 3
# Rows farther from the mean than this many times the median distance are moved to it: outliers are not evidence.
_FARTHEST = 2.0
_SEPARATORS = "_-.:/|# "


# and significantly so by a jackknife over this many blocks of units (one-sided t interval). Chosen by simulation.
_BLOCKS, _CONFIDENCE = 20, 0.9
# Limits of the rows whose pairs are compared, and of the values of these rows.
_MOST_ROWS, _MOST_VALUES = 2_000, 2_000_000


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
    source = read(rows, role="rows")
    ids, labels = collect_values(ids, source, "ids"), collect_values(labels, source, "labels")
    if ids is None:
        source.check_row_values("ids", "ids")
    values = _first_rows(source)
    # Only now: the ids and labels in a file are read with its rows.
    names = _described(ids if ids is not None else source.row_values("ids", "ids"), source.n_rows, "ids")
    if names is None or len(names) < 4:
        return None
    labels = labels if labels is not None else source.row_values("label", "labels")
    kinds = _described(labels, source.n_rows, "labels")
    classes = np.zeros(len(values), dtype=np.intp) if kinds is None else coded(kinds[: len(values)])[0]
    distance = _squared_distances(_standardised(values, classes))
    found: list[tuple[float, str, list[str]]] = []
    for rule, units in _candidates(names):
        codes = coded(units[: len(values)])[0]
        ratio = _convincing(distance, codes) if len(np.unique(codes)) > len(np.unique(classes)) else None
        if ratio is not None:
            found.append((ratio, rule, units))
    if not found:
        return None
    ratio, rule, units = min(found, key=lambda one: one[0])
    return _finding(ratio, rule, names, units)


def _finding(ratio: float, rule: str, names: list[str], units: list[str]) -> ReplicateFinding:
    count = len(set(units))
    times = f"{1 / ratio:.2g}" if ratio > 0 else "infinitely many"
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
        parts.append(np.asarray(block, dtype=np.float64)[: _MOST_ROWS - seen])
        seen += len(parts[-1])
        if seen >= _MOST_ROWS:
            break
    values = np.concatenate(parts)
    step = max(1, round(values.size / _MOST_VALUES))
    return values[:, ::step]


def _described(given: Any, n_rows: int | None, what: str) -> list[str] | None:
    """Return the ids or labels of the rows as text."""
    if given is None:
        return None
    values = np.asarray(given)
    if values.ndim != 1 or (n_rows is not None and len(values) != n_rows):
        raise InputError(f"{what}: shape {values.shape} for {n_rows} rows. Give one value for each row.")
    return [str(value) for value in values.tolist()]


def _standardised(values: Array, classes: Index) -> Array:
    """Return rows centred by class, features in units of their sd; missing values are replaced by the mean.

    Outlying rows are moved toward the mean. This is done twice, because they also move the mean and inflate the sd.
    """
    missing = ~np.isfinite(values)
    counts = unit_means((~missing).astype(np.float64), classes)
    rows = np.where(missing, 0.0, values)
    for _ in range(2):
        means = unit_means(rows, classes) / np.where(counts > 0, counts, 1.0)
        rows = np.where(missing, 0.0, rows - means[classes])
        sd = np.sqrt((rows**2).mean(axis=0))
        varies = sd > 1e-12 * np.abs(means).max(axis=0)
        rows = np.where(varies, rows / np.where(varies, sd, 1.0), 0.0)
        length = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        limit = _FARTHEST * (np.median(length[length > 0]) if length.any() else 1.0)
        rows *= np.minimum(1.0, limit / np.where(length > 0, length, limit))[:, None]
    return np.asarray(rows)


def _candidates(names: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield rules that derive units from ids, and the units: at least two, with two rows each on average."""
    rules: dict[str, Callable[[str], str | None]] = {"the id itself": lambda name: name}
    for mark in _SEPARATORS:
        rules[f"the part of the id before the last {mark!r}"] = partial(_before, mark=mark, last=True)
        rules[f"the part of the id before the first {mark!r}"] = partial(_before, mark=mark, last=False)
    rules["the id without its last letter"] = _without_letter
    seen = set()
    for rule, unit_of in rules.items():
        units = [unit_of(name) for name in names]
        told = [unit for unit in units if unit]
        if len(told) < len(names) or not 2 <= len(set(told)) <= len(names) / 2 or tuple(told) in seen:
            continue
        seen.add(tuple(told))
        yield rule, told


def _before(name: str, mark: str, last: bool) -> str | None:
    unit, found, rest = name.rpartition(mark) if last else name.partition(mark)
    return unit if found and rest else None


def _without_letter(name: str) -> str | None:
    match = re.fullmatch(r"(.*\d)[A-Za-z]", name)
    return match.group(1) if match else None


def _convincing(distance: Array, units: Index) -> float | None:
    """Return the ratio of squared distances within and between units if it is clearly below one, else None.

    Three conditions must hold. The ratio is below ``_CLOSE``. Relative to pairs of different units at the same lag in
    row order, pairs of one unit are closer than under any random assignment of rows to units, so that a drift over
    time, which makes adjacent rows similar, does not count. And the evidence is not due to a single unit: it also
    holds, with ``_CONFIDENCE``, by a jackknife over units.
    """
    first, second = _pairs_within(units)
    n_rows, n_units = len(units), int(units.max()) + 1
    if n_units < _LEAST_UNITS or len(first) == 0:
        return None
    everything = _ByLag.of(distance, np.arange(n_rows))
    within = float(distance[first, second].sum())
    apart = (everything.sums.sum() - within) / (everything.counts.sum() - len(first))
    ratio = within / len(first) / apart if apart > 0 else 1.0
    if ratio >= _CLOSE:
        return None
    observed = everything.closeness(distance, first, second)
    rng = np.random.default_rng(0)
    for _ in range(_RANDOM):
        moved = rng.permutation(n_rows)
        if everything.closeness(distance, moved[first], moved[second]) <= observed:
            return None
    return ratio if _holds_without_any(distance, units, observed) else None


def _holds_without_any(distance: Array, units: Index, observed: float) -> bool:
    """Test by a jackknife over units (blocks of units, if there are many) whether the log closeness is below zero."""
    first, second = _pairs_within(units)
    n_units = int(units.max()) + 1
    count = min(n_units, _BLOCKS)
    block = (np.arange(n_units) * count // n_units)[units]
    logs = []
    for number in range(count):
        kept = block != number
        pairs = kept[first] & kept[second]
        if pairs.any():
            rest = _ByLag.of(distance, np.flatnonzero(kept))
            logs.append(_log(rest.closeness(distance, first[pairs], second[pairs])))
    if len(logs) < 2:
        return False
    error = np.sqrt((len(logs) - 1) * np.var(logs))
    return bool(_log(observed) < -stats.t.ppf(_CONFIDENCE, len(logs) - 1) * error)


def _log(closeness: float) -> float:
    return float(np.log(max(closeness, 1e-12)))


@dataclass(frozen=True)
class _ByLag:
    """Sums and counts of the squared distances of all pairs of rows, by lag (difference of positions) from 1 on."""

    sums: NDArray[Any]
    counts: NDArray[Any]

    @classmethod
    def of(cls, distance: Array, rows: Index) -> _ByLag:
        first, second = (rows[index] for index in np.triu_indices(len(rows), 1))
        lag, size = second - first, len(distance)
        return cls(np.bincount(lag, distance[first, second], size)[1:], np.bincount(lag, minlength=size)[1:])

    def closeness(self, distance: Array, first: Index, second: Index) -> float:
        """Return the squared distance of some pairs over that expected of all other pairs at the same lags.

        The expectation is monotone in the lag (isotonic regression), as it is under any drift.
        """
        lag, apart = np.abs(first - second), distance[first, second]
        size = len(self.sums) + 1
        counts = self.counts - np.bincount(lag, minlength=size)[1:]
        known = np.flatnonzero(counts > 0)
        if len(known) == 0:
            return 1.0
        sums = (self.sums - np.bincount(lag, apart, size)[1:])[known]
        rising = isotonic_regression(sums / counts[known], sample_weight=counts[known])
        expected = float(np.interp(lag, known + 1, rising).sum())
        return float(apart.sum()) / expected if expected > 0 else 1.0


def _pairs_within(units: Index) -> tuple[Index, Index]:
    """Return the first and second row of every pair within a unit."""
    order = np.argsort(units, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(units))[:-1])
    first, second = np.concatenate([rows[np.stack(np.triu_indices(len(rows), 1))] for rows in parts], axis=1)
    return first, second


def _squared_distances(rows: Array) -> Array:
    gram = rows @ rows.T
    squares = np.diagonal(gram)
    return np.asarray(np.maximum(squares[:, None] + squares - 2 * gram, 0.0))


_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Assessment:
    """Significance, held-out ratios and stability of components; None for what was not computed.

    Attributes
    ----------
    test : PermutationTest or None
        Whether the ratios could arise if labels were random.
    held_out : HeldOut or None
        The ratios on rows that the components were not fitted on.
    stability : Stability or None
        How much the components vary between bootstrap samples.
    replicates : tuple of ReplicateFinding
        Datasets without groups whose rows look like replicates of fewer units.
    """

    test: PermutationTest | None = None
    held_out: HeldOut | None = None
    stability: Stability | None = None
    replicates: tuple[ReplicateFinding, ...] = ()

    def summary(self) -> Summary:
        """Return the results as text, one after the other."""
        parts = [f"! {finding.text}" for finding in self.replicates]
        parts += [str(found.summary()) for found in (self.test, self.held_out, self.stability) if found is not None]
        return Summary("\n\n".join(parts))


def assess(
    target: Any,
    background: Any,
    *,
    estimator: BaseContrast | None = None,
    n_components: int | None = None,
    n_permutations: int = 999,
    n_bootstrap: int = 200,
    folds: int = 5,
    groups: Any = None,
    background_groups: Any = None,
    pairs: Any = None,
    background_pairs: Any = None,
    random_state: int | None = None,
    n_jobs: int | None = None,
) -> Assessment:
    """Test significance, held-out ratio and stability of components, and look for replicates.

    Parameters
    ----------
    target : path, array-like, frame, sparse matrix or Source, of shape (n_rows, n_features)
        The target. Rows are held in memory. Rows on a cluster are collected into this process.
    background : dataset, or list or dict of datasets
        The background(s), on the same features.
    estimator : DPCA, optional
        Estimator whose parameters (shrinkage, mix, features, axes, ...) are used; ``DPCA(n_components)`` by default.
        The permutation test applies to DPCA with ``centering="own"`` and is skipped, with a warning, otherwise.
    n_components : int, optional
        Number of components; by default that of the estimator, or 2.
    n_permutations, n_bootstrap, folds : int
        Number of permutations, bootstrap samples and folds; 0 skips the analysis.
    groups, background_groups : array-like of shape (n_rows,), optional
        The subject of each row; by default the groups of the source.
    pairs, background_pairs : array-like of shape (n_rows,), optional
        The subject of each row, if every subject is in the target and in the background.
    random_state : int, optional
        Seed; None is 0.
    n_jobs : int or None, default=None
        Number of processes; None uses all cores.

    Returns
    -------
    Assessment

    Examples
    --------
    >>> import numpy as np
    >>> from standout.inference import assess
    >>> rng = np.random.default_rng(0)
    >>> background = rng.normal(size=(200, 5)) * [9, 3, 1, 1, 1]
    >>> target = rng.normal(size=(150, 5)) * [9, 3, 1, 4, 1]      # the fourth varies more
    >>> found = assess(target, background, n_components=1, n_permutations=99, n_bootstrap=20)
    >>> float(found.test.p_values[0]), bool(found.held_out.low[0] > 1), bool(found.stability.low[0] > 0.9)
    (0.01, True, True)
    """
    if (pairs is None) != (background_pairs is None):
        raise InputError("pairs and background_pairs must be given together. Give both, or neither.")
    paired = pairs is not None
    if paired and (groups is not None or background_groups is not None):
        raise InputError("pairs and groups are both given, and a pair is already a group. Give one of them.")
    estimator = DPCA(n_components or 2) if estimator is None else estimator
    if n_components is None:
        n_components = check_count("n_components", estimator.n_components)
    parameters = {**estimator.get_params(), "n_components": n_components, "random_state": random_state}
    exchanged: dict[str, Any] = {"groups": groups, "background_groups": background_groups}
    units = exchanged
    if paired:  # rows of a pair are held out and drawn together
        exchanged = {"pairs": pairs, "background_pairs": background_pairs}
        units = {"groups": pairs, "background_groups": background_pairs}
    target, background = collect_sides(target, background)
    test = held_out = stable = None
    if n_permutations and not (isinstance(estimator, DPCA) and estimator.centering == "own"):
        warn_user(
            "the permutation test was skipped, because it applies only to DPCA with `centering='own'`. Use that for a "
            "test.",
            StandoutWarning,
        )
    elif n_permutations:
        names = ("n_components", "shrinkage", "mix", "features", "random_state")
        test = _unless_too_few_rows(
            permutation_test, target, background, n_permutations=n_permutations, n_jobs=n_jobs, **exchanged,
            **{name: parameters[name] for name in names},
        )  # fmt: skip
    if folds:
        unseeded = clone(estimator).set_params(n_components=n_components, random_state=None)
        held_out = _unless_too_few_rows(
            held_out_ratio, target, background, estimator=unseeded, folds=folds, random_state=random_state, **units
        )
    if n_bootstrap and isinstance(estimator, DPCA):
        stable = _unless_too_few_rows(
            stability, target, background, n_bootstrap=n_bootstrap, n_jobs=n_jobs, **units, **parameters
        )
    replicates = replicates_of(target, background) if groups is None and not paired else ()
    return Assessment(test, held_out, stable, replicates)


def _unless_too_few_rows(analysis: Callable[..., _Found], *data: Any, **options: Any) -> _Found | None:
    """Run an analysis; if the rows are too few for it, warn and return None, so that the other results are not lost."""
    try:
        return analysis(*data, **options)
    except NotEnoughRowsError as error:
        warn_user(f"{analysis.__name__} was skipped: {error}", StandoutWarning)
        return None


def replicates_of(target: Any, background: Any) -> tuple[ReplicateFinding, ...]:
    """Return the datasets without groups whose rows look like replicates, and warn about each."""
    several = list(background.values()) if isinstance(background, dict) else background
    backgrounds = several if isinstance(several, list) else [] if background is None else [background]
    found = []
    for data in (target, *backgrounds):
        if getattr(data, "groups", None) is None and getattr(data, "row_ids", None) is not None:
            finding = find_replicates(data)
            if finding is not None:
                found.append(finding)
                warn_user(finding.text, ReplicateWarning)
    return tuple(found)
