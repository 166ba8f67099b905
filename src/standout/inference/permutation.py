"""Permutation test of the largest ratios: how often random labels give a ratio as large.

The test applies where no formula does: heavy tails, fewer background rows than features, a shrunk background, rows in
groups or in pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from standout._blas import Array, constant_features, threads_for
from standout._display import Summary, Table, count, display
from standout._folds import Index
from standout._inputs import check_choice, check_count, solve_options
from standout._table_checks import rare_features
from standout._verdict import LEVEL
from standout.errors import InputError, NotEnoughRowsError, listed, named_features
from standout.inference.resampling import (
    Samples,
    Shuffle,
    balance_units,
    check_pairs,
    collect_samples,
    run_chunks,
    shuffle_of,
)
from standout.inference.statistic import NullProblem, Statistic, deflated, prepared, statistic_of
from standout.io.missing import FilledRows, raw_rows
from standout.io.source import Progress, watching
from standout.solvers.problem import SolveOptions, check_varies

# A permuted ratio that is smaller than the observed one by less than this relative difference counts as equal.
_TIE = 1e-9
# Numbers of labellings above this overflow, and are not given.
_MOST_LABELLINGS = 1e300
# A feature hardly varies if at most this share of its values differ from the usual one.
_HARDLY_VARIES = 0.05
# The null distribution is bimodal if a gap in the log ratios, with this share and number of them on either side, is
# wider than this many sd within the modes. Fewer ratios show no distribution.
_SHARE_IN_MODE, _FEWEST_IN_MODE, _MODE_GAP, _FEWEST_NULL = 0.05, 5, 2.0, 50


@dataclass(frozen=True)
class PermutationTest:
    """Result of a permutation test.

    Attributes
    ----------
    ratios : ndarray of shape (n_components,)
        Observed ratios, each the largest after the components before it were removed.
    p_values : ndarray of shape (n_components,)
        Share of the labellings, the observed one included, that give a ratio as large; non-decreasing from one
        component to the next.
    null : ndarray of shape (n_components, n_permutations)
        Ratios of the permuted labellings, the observed one excluded.
    permuted, units : "rows", "groups" or "pairs", tuple of int
        What was permuted, and its number in the target and in each background.
    rank : int
        Number of dimensions in which target and backgrounds vary.
    n_possible, complete : float, bool
        Number of distinct labellings, the observed one included, and whether all were evaluated; the p-values then
        have no Monte Carlo error.
    shrinkage : float
        Shrinkage of the background for the first observed ratio; 0 for the exact problem.
    notes : tuple of str
        Caveats.
    rare : tuple of str or int
        Features that vary in few rows.
    without_rare : PermutationTest or None
        The test without these features; None if there are none.

    See Also
    --------
    standout.permutation_test, standout.plot.null

    Examples
    --------
    >>> from standout import datasets, permutation_test
    >>> target, background = datasets.FactorModel().sample(100, 200)
    >>> test = permutation_test(target, background, n_components=2, n_permutations=99)
    >>> test.ratios.round(1), test.p_values
    (array([5.4, 1.7]), array([0.01, 0.9 ]))
    >>> test.count(), test.edge().round(1)
    (1, array([2.5, 2.4]))
    """

    ratios: Array
    p_values: Array
    null: Array
    permuted: str
    units: tuple[int, ...]
    rank: int
    n_possible: float
    complete: bool
    shrinkage: float
    notes: tuple[str, ...]
    rare: tuple[str | int, ...] = ()
    without_rare: PermutationTest | None = None

    @property
    def smallest_p(self) -> float:
        """Smallest p-value that this number of permutations can give."""
        return float(1 / (self.null.shape[1] + 1))

    def count(self, level: float = LEVEL) -> int:
        """Return the number of components that are significant at this level, tested one after the other."""
        return int(np.argmin([*(self.p_values <= level), False]))

    def edge(self, level: float = LEVEL) -> Array:
        """Return the ratio that permuted labels exceed with probability ``level``, for each component."""
        return np.asarray(np.quantile(self.null, 1 - level, axis=1, method="higher"))

    def summary(self) -> Summary:
        """Return the result as text."""
        permuted = f"labels within {self.units[0]} pairs"
        if self.permuted != "pairs":
            numbers = [""] if len(self.units) == 2 else [f" {number}" for number in range(1, len(self.units))]
            sets = ["target", *(f"background{number}" for number in numbers)]
            counts = (f"{count} in the {name}" for count, name in zip(self.units, sets, strict=True))
            permuted = f"{self.permuted}: {', '.join(counts)}"
        total = f"{self.n_possible:.0f}" if self.complete else f"{self.n_possible:.3g}"
        total = total if self.n_possible < _MOST_LABELLINGS else f"more than {_MOST_LABELLINGS:.0e}"
        labellings = f"all {total}" if self.complete else f"{self.null.shape[1]} of {total}"
        facts = [
            ("permuted", f"{permuted}; {labellings} labellings"),
            ("problem", f"background shrunk by {self.shrinkage:.3g}" if self.shrinkage else "exact"),
        ]
        if self.without_rare is not None:
            rest = self.without_rare
            text = f"without {_few(self.rare)}: ratio {rest.ratios[0]:.4g}, p = {rest.p_values[0]:.3g}"
            facts.append(("rare", text))
        columns = zip(self.ratios, self.edge(), self.p_values, strict=True)
        rows = [(f"dpca{k}", ratio, edge, f"{p:.3g}") for k, (ratio, edge, p) in enumerate(columns)]
        table = Table(["component", "tested ratio", "5 % critical value", "p"], rows)
        title = "Permutation test: could this ratio arise if labels were random?"
        return display(title, table, facts=facts, notes=self.notes)

    def _repr_html_(self) -> str | None:
        return self.summary().html


def permutation_test(
    target: Any,
    background: Any,
    *,
    n_permutations: int = 999,
    n_components: int = 1,
    shrinkage: str | float | None = "auto",
    mix: str | ArrayLike = "pooled",
    groups: Any = None,
    background_groups: Any = None,
    pairs: Any = None,
    background_pairs: Any = None,
    features: str = "all",
    random_state: Any = None,
    n_jobs: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> PermutationTest:
    """Test whether the largest ratios could arise if labels were random.

    The null hypothesis is that target and background have the same distribution up to a shift. The shift is
    estimated and removed, the labels "target" and "background" are permuted, every permuted set is centred by its
    mean, and the largest ratio is computed as in :class:`standout.DPCA`, with the shrinkage estimated again each time.
    For the next component the previous one is removed from all sets and the test is repeated.

    Parameters
    ----------
    target : path, array-like, frame, sparse matrix or Source, of shape (n_rows, n_features)
        The target. Rows are held in memory. Rows on a cluster are collected into this process.
    background : dataset, or list or dict of datasets
        The background(s), on the same features. With several, labels are permuted over all sets.
    n_permutations : int, default=999
        Number of permutations. If no more distinct ones exist, each is evaluated once.
    n_components : int, default=1
        Number of components to test, one after the other.
    shrinkage : "auto", "oas", None or float in [0, 1], default="auto"
        As in :class:`standout.DPCA`. With "auto", whether to shrink is decided once; the intensity is estimated for
        every permutation.
    mix : "pooled", "equal", dict or array-like of shape (n_backgrounds,), default="pooled"
        Shares of several backgrounds.
    groups, background_groups : array-like of shape (n_rows,), optional
        The subject of each row; subjects are then permuted as a whole. For several backgrounds a list or dict.
    pairs, background_pairs : array-like of shape (n_rows,), optional
        The subject of each row, if every subject is in the target and in the background; labels are then permuted
        within subjects.
    features : "all" or "common", default="all"
        What to do if target and background have different feature names.
    random_state : int or None, default=None
        Seed; None is 0.
    n_jobs : int or None, default=None
        Number of processes, if the work is long enough for more than one; None uses all cores. The result does not
        depend on it.
    progress : callable, optional
        Called with the number of permutations done.

    Returns
    -------
    PermutationTest

    See Also
    --------
    standout.assess, standout.held_out_ratio, standout.stability, standout.plot.null

    Notes
    -----
    The shift is the median of all differences between target and background rows (the Hodges–Lehmann estimate); for
    groups and pairs of several rows it is the difference between the means of the subjects. Up to the error of that
    estimate the test is exact. Equal covariances are not enough: if the background has heavier tails than the target
    the test can reject although no direction has a larger variance.

    Subjects are exchangeable only with subjects that have as many rows: with 5 rows for each subject against 4, noise
    would be rejected in two of five cases. Of each pair both sides therefore use as many rows as the smaller side has,
    and with groups, rows are dropped at random until the number of rows per subject has the same distribution in every
    set. The ratios are those of the rows used; a note reports it.

    With far more features than rows (rows² × features above 4e9) features are scaled by their overall sd instead of
    the background's, and the background is shrunk toward its mean variance, so that one Gram matrix serves all
    permutations. Such a test detects signals in many features, and hardly those in a few; a note reports it.

    Examples
    --------
    >>> import numpy as np
    >>> from standout import permutation_test
    >>> rng = np.random.default_rng(0)
    >>> background = rng.standard_t(5, size=(60, 5)) * [9, 3, 1, 1, 1]
    >>> target = rng.standard_t(5, size=(40, 5)) * [9, 3, 1, 4, 1]      # the fourth varies more
    >>> permutation_test(target, background, n_permutations=199).p_values
    array([0.005])
    """
    n_components = check_count("n_components", n_components)
    n_permutations = check_count("n_permutations", n_permutations)
    options = solve_options(
        n_components=n_components, shrinkage=shrinkage, mix=mix, features=features, random_state=random_state
    )
    if isinstance(mix, str):
        check_choice("mix", mix, ("pooled", "equal"))
    paired = pairs is not None
    check_pairs(pairs, background_pairs, groups is not None or background_groups is not None)
    units = (pairs, background_pairs) if paired else (groups, background_groups)
    try:
        samples = collect_samples(target, background, *units, features, "permutation_test")
    except InputError as error:
        if not paired:
            raise
        raise type(error)(str(error).replace("groups: ", "pairs: ")) from error  # pairs are read as groups
    with_gaps = [
        np.asarray(raw_rows(sample.source) if sample.source.is_incomplete else sample.source.rows(0, sample.n_rows))
        for sample in samples.sets
    ]
    if any(sample.source.is_incomplete for sample in samples.sets):
        samples = _with_usual_values(samples, with_gaps)
    rare = rare_features(with_gaps[1:], with_gaps[0])
    kept = np.setdiff1d(np.arange(samples.sets[0].source.n_features), list(rare))
    with watching(progress) if progress is not None else nullcontext():
        found = _tested(samples, paired, options, n_permutations, n_components, n_jobs)
        if not rare or len(kept) == 0:
            return found
        try:
            rest = _tested(samples.select(kept), paired, options, n_permutations, min(n_components, len(kept)), n_jobs)
        except InputError:  # too few rows, or a dataset that is constant in all other features
            return found
    named = tuple(named_features(samples.sets[0].source.names, rare))
    rest = replace(rest, notes=rest.notes[len(samples.notes) :])
    return replace(found, rare=named, without_rare=rest, notes=(*found.notes, *_rare_notes(found, rest, named)))


def _with_usual_values(samples: Samples, with_gaps: list[Array]) -> Samples:
    """Replace missing values of features that hardly vary by their usual value; a mean of a set would mark its rows."""
    together = np.concatenate(with_gaps)
    usual = np.nanmedian(together, axis=0)
    share = (together == usual).sum(axis=0) / np.maximum(np.isfinite(together).sum(axis=0), 1)
    constant = np.flatnonzero(share >= 1 - _HARDLY_VARIES)
    sets = []
    for sample, raw in zip(samples.sets, with_gaps, strict=True):
        filled = sample.rows()
        filled[:, constant] = np.where(np.isnan(raw[:, constant]), usual[constant], raw[:, constant])
        source = FilledRows(filled, sample.source, raw) if sample.source.is_incomplete else sample.source
        sets.append(replace(sample, source=source))
    return replace(samples, sets=tuple(sets))


def _tested(
    samples: Samples, paired: bool, options: SolveOptions, n_permutations: int, n_components: int, n_jobs: int | None
) -> PermutationTest:
    """Return the test of all features of the samples."""
    shuffle = shuffle_of(samples, paired)
    sizes = [sample.n_rows for sample in samples.sets[1:]]
    samples, shuffle, used = balance_units(samples, shuffle, options.seed)
    # Pooled backgrounds keep their shares when rows are dropped.
    shares = sizes if used and isinstance(options.mix, str) and options.mix == "pooled" else options.mix
    problem = NullProblem(tuple(sample.role for sample in samples.sets[1:]), shares, options.shrinkage)
    labels, n_possible = shuffle.row_labels, shuffle.count()
    complete = n_possible - 1 <= n_permutations
    labellings = [new for new in shuffle.all() if (new != labels).any()] if complete else None
    n_drawn = n_permutations if labellings is None else len(labellings)
    with threads_for(0):
        try:
            rows, problem = prepared(_centred(samples, shuffle), problem, shuffle)
            limit = min(problem.rank, samples.sets[0].n_rows - 1)
            if n_components > limit:
                only = f"only {count(limit, 'dimension')}. Ask for at most {limit}."
                raise InputError(f"`n_components={n_components}`, but the data have {only}")
        except InputError as error:
            if not used:
                raise
            raise NotEnoughRowsError(f"{used}, so that exchangeable subjects have equally many: {error}") from error
        original, variance = rows, problem.background_variance(rows, labels)
        ratios, null, shrunk = [], [], []
        for step in range(n_components):
            statistic = statistic_of(rows, problem)
            ratios.append(statistic.ratio(labels))
            work = partial(_null_ratio, statistic_of(shuffle.inflated(rows), problem), shuffle, labellings)
            what = f"permutations, dpca{step}" if n_components > 1 else "permutations"
            null.append(run_chunks(work, n_drawn, options.seed, n_jobs, what))
            scores, rho = statistic.component(labels)
            shrunk.append(rho)
            if step + 1 < n_components:
                rows = deflated(rows, scores, labels)
                removed = np.maximum(variance - problem.background_variance(rows, labels), 0.0)
                problem = replace(problem, original=original, removed=removed)
    exceeding = (np.array(null) >= np.array(ratios)[:, None] * (1 - _TIE)).sum(axis=1)
    found = PermutationTest(
        ratios=np.array(ratios),
        p_values=np.maximum.accumulate((1 + exceeding) / (1 + len(null[0]))),
        null=np.array(null),
        permuted=shuffle.kind,
        units=tuple(np.bincount(shuffle.labels).tolist()),
        rank=problem.rank,
        n_possible=n_possible,
        complete=complete,
        shrinkage=shrunk[0],
        notes=(),
    )
    return replace(found, notes=(*samples.notes, *_notes(found, problem)))


def _null_ratio(
    statistic: Statistic, shuffle: Shuffle, labellings: list[Index] | None, rng: np.random.Generator, number: int
) -> float:
    """Return the ratio of a random labelling, or of one of all labellings."""
    return statistic.ratio(shuffle.draw(rng) if labellings is None else labellings[number])


def _centred(samples: Samples, shuffle: Shuffle) -> Array:
    """Return all rows, each set centred by the mean of its unit means; constant features become exactly 0."""
    # The mean of the rows would give every small unit the deviation of a large one, under the true labels only.
    parts = []
    counts = np.bincount(shuffle.units)[shuffle.units]
    weights = np.split(1 / counts, np.cumsum([sample.n_rows for sample in samples.sets])[:-1])
    for sample, weight in zip(samples.sets, weights, strict=True):
        rows = sample.rows()
        mean = np.average(rows, axis=0, weights=weight)
        rows -= mean
        rows -= np.average(rows, axis=0, weights=weight)
        squares = np.einsum("ij,ij->j", rows, rows)
        constant = constant_features(squares / len(rows), mean)
        rows[:, constant] = 0.0
        check_varies(np.where(constant, 0.0, squares), sample.role)
        parts.append(rows)
    return np.concatenate(parts)


def null_modes(null: Array) -> tuple[float, float] | None:
    """Return the medians of two separate groups of null ratios; None unless the distribution is clearly bimodal.

    Null distributions of Gaussian rows, counts and genotypes never are (0 of 470 tests each), those of lognormal rows
    in 0.2 % of tests, and those of heavy tails due to their outliers (t₃: 2 %).
    """
    logs = np.log(np.sort(null[np.isfinite(null) & (null > 0)]))
    edge = max(_FEWEST_IN_MODE, math.ceil(_SHARE_IN_MODE * len(logs)))
    if len(logs) < 2 * edge or len(logs) < _FEWEST_NULL:
        return None
    gaps = np.diff(logs)[edge - 1 : len(logs) - edge]
    split = edge + int(np.argmax(gaps))
    low, high = logs[:split], logs[split:]
    within = math.sqrt((low.var() * len(low) + high.var() * len(high)) / len(logs))
    if gaps.max() <= _MODE_GAP * within:
        return None
    return float(np.exp(np.median(low))), float(np.exp(np.median(high)))


def _few(rare: Sequence[str | int]) -> str:
    return f"{listed(rare)}, which var{'ies' if len(rare) == 1 else 'y'} in few rows"


def _rare_notes(found: PermutationTest, rest: PermutationTest, rare: Sequence[str | int]) -> list[str]:
    """Return a note if the tests with and without rare features disagree."""
    if bool(found.count()) == bool(rest.count()):
        return []
    p = f"p = {found.p_values[0]:.2g} with {_few(rare)}, and p = {rest.p_values[0]:.2g} without"
    if found.count():
        return [f"{p}: the finding rests on a handful of rows. Leave such features out, or give more background rows."]
    return [f"{p}: such features hide the finding, because permutations move these rows. Leave them out."]


def _notes(found: PermutationTest, problem: NullProblem) -> list[str]:
    """Return caveats on the power of the test."""
    notes = []
    if found.smallest_p > LEVEL:
        why = f"only {found.n_possible:.0f} distinct labellings exist" if found.complete else "of too few permutations"
        remedy = f"Give more {found.permuted}" if found.complete else "Use more permutations"
        notes.append(
            f"no p-value below {found.smallest_p:.2g} is possible, because {why}: the test cannot reject at the 5 % "
            f"level. {remedy}."
        )
    n_background = sum(found.units[1:])
    dof = n_background - len(found.units[1:])
    if dof < found.rank and found.count() == 0:
        notes.append(
            f"{n_background} background {found.permuted} leave {count(dof, 'degree')} of freedom for "
            f"{found.rank} dimensions: noise alone then gives large ratios, and only a very large one can be "
            f"significant. Give more background {found.permuted}, or choose fewer features (without looking at the "
            "labels)."
        )
    modes = null_modes(found.null[0])
    if modes is not None:
        notes.append(
            f"the null distribution is bimodal, with ratios of about {modes[0]:.3g} and {modes[1]:.3g}: in some "
            "permutations a few rows determine the background variance in some direction, so that the noise edge "
            "depends on these rows. Check for outliers and for features that rarely vary, and leave these out."
        )
    infinite = float(np.isinf(found.null[0]).mean())
    if infinite >= LEVEL and found.count() == 0:
        notes.append(
            f"{100 * infinite:.0f} % of the permutations leave the background constant along some direction, and the "
            "ratio infinite: the test cannot reject at the 5 % level. Use `shrinkage='oas'` for finite ratios, or "
            "leave out features that rarely vary."
        )
    if problem.spanned:
        notes.append(
            f"with {problem.spanned} features, each was scaled by its overall sd instead of the background's to save "
            "time: a signal in a few features may be missed. Choose fewer features to scale them by the background's."
        )
    return notes
