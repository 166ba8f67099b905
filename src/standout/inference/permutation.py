"""The permutation test: how often labels that mean nothing give so large a ratio.

It answers where no formula does: heavy tails, fewer background rows than features, a shrunk
background, rows that come in groups or in pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from standout._blas import Array, threads_for
from standout._inputs import check_choice, check_count, solve_options
from standout._model import Summary
from standout.errors import InputError
from standout.inference.exchange import Labels, Shuffle, balance_units, shuffle_of
from standout.inference.resampling import Chunk, Samples, collect_samples, deflated, in_chunks
from standout.inference.statistic import Earlier, NullProblem, Statistic, prepared, statistic_of
from standout.io.source import Progress, watching
from standout.solvers.problem import check_varies

_EPS = float(np.finfo(float).eps)
# Two ways to the same ratio agree to this: as large as the observed one is not smaller by less.
_TIE = 1e-9
_LEVEL = 0.05


@dataclass(frozen=True)
class PermutationTest:
    """What a permutation test found.

    Attributes
    ----------
    ratios : ndarray of shape (n_components,)
        The observed ratios: each the largest that is left without the components before it.
    p_values : ndarray of shape (n_components,)
        The share of labellings, the one as it is among them, that give as large a ratio; made not to fall
        from one component to the next.
    null : ndarray of shape (n_components, n_permutations)
        The ratios of the reshufflings; the labels as they are do not count as one.
    permuted : "rows", "groups" or "pairs"
        What was reshuffled.
    units : tuple of int
        How many rows, groups or pairs the target and each background have.
    rank : int
        The number of dimensions in which target and backgrounds vary.
    n_possible : float
        How many different labellings there are, the one as it is among them.
    complete : bool
        Whether all of them were looked at: the p-values then have no error from drawing labellings.
    shrinkage : float
        How much the background was shrunk for the first observed ratio; 0 for the exact problem.
    notes : tuple of str
        What one should know.
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

    @property
    def smallest_p(self) -> float:
        """The smallest p-value that so many reshufflings can give."""
        return float(1 / (self.null.shape[1] + 1))

    def count(self, level: float = _LEVEL) -> int:
        """Return how many components stand out at this level, tested one after the other."""
        passed = self.p_values <= level
        return len(passed) if passed.all() else int(np.argmin(passed))

    def edge(self, level: float = _LEVEL) -> Array:
        """Return the ratio that reshuffled labels exceed with probability ``level``, for each component."""
        return np.asarray(np.quantile(self.null, 1 - level, axis=1, method="higher"))

    def summary(self) -> Summary:
        """Return the result in words."""
        return _in_words(self)


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
    """Test whether the largest ratios could come from labels that mean nothing.

    The null hypothesis is that target and background have the same distribution up to a shift. The shift is
    estimated and removed, the labels "target" and "background" are permuted, every new set is centred by its own
    mean, and the largest ratio is found as :class:`standout.DPCA` finds it, with the shrinkage estimated again each
    time. Differences in location do not matter. For the next component the previous one is removed from both sets
    and the test is repeated.

    Parameters
    ----------
    target : path, array-like, frame, sparse matrix or Source, of shape (n_rows, n_features)
        The target. Rows are held in memory. Rows on a cluster are brought to this process.
    background : dataset, or list or dict of datasets
        The background(s), on the same features. With several, labels are reshuffled over all sets.
    n_permutations : int, default=999
        How many reshufflings. Where there are no more different ones than this, each is looked at once.
    n_components : int, default=1
        How many components to test, one after the other.
    shrinkage : "auto", "oas", None or float in [0, 1], default="auto"
        As in :class:`standout.DPCA`; the rule "auto" is asked once, and the intensity found anew for every
        reshuffling.
    mix : "pooled", "equal", dict or array-like of shape (n_backgrounds,), default="pooled"
        Shares of several backgrounds.
    groups, background_groups : array-like of shape (n_rows,), optional
        The subject of each row: subjects are then reshuffled as a whole. For several backgrounds a list or
        dict.
    pairs, background_pairs : array-like of shape (n_rows,), optional
        The subject of each row, where every subject is in the target and in the background: labels are then
        swapped within subjects.
    features : "all" or "common", default="all"
        What to do when target and background have other feature names.
    random_state : int or None, default=None
        Seed; None is 0.
    n_jobs : int or None, default=None
        How many processes, where the work is worth more than one; None takes all cores. The result does not
        depend on it.
    progress : callable, optional
        Told how many reshufflings are done; by default whoever is :func:`~standout.io.source.watching`.

    Returns
    -------
    PermutationTest

    Notes
    -----
    The shift is the median of all differences between target and background rows (the Hodges–Lehmann estimate):
    feature by feature where the background is shrunk, along the components for the exact problem, along principal
    axes where features are measured in their overall sd. For groups and pairs of several rows it is the difference
    between the means of the subjects. Up to the error of that estimate the test is exact. In simulations
    (``python -m simulations``) it rejects Gaussian noise, tails down to t with 1.5 degrees of freedom and counts at
    its nominal rate, and less often with few groups.

    Equal covariances are not enough: where the background has heavier tails than the target the test can reject
    although no direction has a larger variance (10 to 17 % for Gaussian against t₄ rows of equal covariance, at a
    level of 5 %).

    For sparse counts the exact ratio is infinite whenever a labelling leaves a feature constant in the background.
    Where more than 5 % of the labellings do so the test cannot reject at that level; a note says so.

    Subjects can be exchanged only for subjects with as many rows. Of a pair as many rows of each side take part as
    the sparser side has. With groups as many take part as make the numbers of rows per subject spread alike in every
    set: the largest subjects compared with the largest, and so on. They are drawn at random, and the ratios are those
    of these rows; a note says so. The largest exact ratio is steep in the number of rows, so that even 5 rows for each
    subject against 4 would reject noise in two of five cases otherwise.

    With far more features than rows (rows² × features above 4e9) features are measured in their overall
    sd instead of the background's, and the background is shrunk toward its mean variance: one Gram
    matrix then serves all reshufflings. Such a test sees signals spread over many features, and hardly
    those in a few; a note says so.

    Examples
    --------
    >>> import numpy as np
    >>> from standout.inference import permutation_test
    >>> rng = np.random.default_rng(0)
    >>> background = rng.standard_t(5, size=(60, 5)) * [9, 3, 1, 1, 1]
    >>> target = rng.standard_t(5, size=(40, 5)) * [9, 3, 1, 4, 1]      # the fourth varies more
    >>> found = permutation_test(target, background, n_components=2, n_permutations=199)
    >>> found.p_values[0]
    np.float64(0.005)
    >>> found.count()
    1
    """
    wanted = solve_options(
        n_components=check_count("n_components", n_components),
        shrinkage=shrinkage,
        mix=mix,
        features=features,
        random_state=random_state,
    )
    if isinstance(mix, str):
        check_choice("mix", mix, ("pooled", "equal"))
    plan = _Plan(check_count("n_permutations", n_permutations), n_components, wanted.seed, n_jobs)
    samples = collect_samples(target, background, groups, background_groups, features, "permutation_test")
    shuffle = shuffle_of(samples, pairs, background_pairs)
    question = NullProblem(tuple(sample.role for sample in samples.backgrounds), wanted.mix, wanted.shrinkage)
    with watching(progress) if progress is not None else nullcontext():
        return _tested(samples, shuffle, question, plan)


@dataclass(frozen=True)
class _Plan:
    """How much to do, and how."""

    n_permutations: int
    n_components: int
    seed: int
    n_jobs: int | None


def _tested(samples: Samples, shuffle: Shuffle, question: NullProblem, plan: _Plan) -> PermutationTest:
    whole = tuple(sample.n_rows for sample in samples.backgrounds)
    chosen = balance_units(samples, shuffle, plan.seed)
    samples, shuffle = chosen.samples, chosen.shuffle
    if chosen.told:
        question = question.mixed_as(whole)
    labels = shuffle.row_labels
    possible = shuffle.count()
    complete = possible - 1 <= plan.n_permutations
    labellings = [new for new in shuffle.all() if (new != labels).any()] if complete else None
    with threads_for(0):
        with chosen.explaining():
            rows, question, rank = prepared(_centred(samples, shuffle), question, shuffle)
            _check_components(plan.n_components, min(rank, samples.target.n_rows - 1))
        original, own = rows, question.background_variance(rows, labels)
        steps, rho = [], 0.0
        for number in range(plan.n_components):
            earlier = None
            if number:
                removed = np.maximum(own - question.background_variance(rows, labels), 0.0)
                earlier = Earlier(original, removed)
            here = statistic_of(rows, question, earlier)
            rho = here.shrinkage(labels) if number == 0 else rho
            there = statistic_of(shuffle.inflated(rows), question, earlier)
            steps.append((here.ratio(labels), _reshuffled(there, shuffle, labellings, plan, number)))
            if number + 1 < plan.n_components:
                rows = deflated(rows, here.scores(labels), samples.target.n_rows)
    ratios, null = np.array([ratio for ratio, _ in steps]), np.stack([null for _, null in steps])
    reached = (null >= ratios[:, None] * (1 - _TIE)).sum(axis=1)
    found = PermutationTest(
        ratios=ratios,
        p_values=np.maximum.accumulate((1 + reached) / (1 + null.shape[1])),
        null=null,
        permuted=shuffle.kind,
        units=tuple(int(size) for size in np.bincount(shuffle.labels)),
        rank=rank,
        n_possible=possible,
        complete=complete,
        shrinkage=rho,
        notes=samples.notes,
    )
    return replace(found, notes=(*found.notes, *_notes(found, question)))


def _centred(samples: Samples, shuffle: Shuffle) -> Array:
    """Return all rows, each set centred by the mean of its units; rounding errors of constant features become zero.

    Centring by the mean of the rows would give every small unit the deviation of a large one, under the true labels
    only.
    """
    parts, n_units = [], len(shuffle.labels)
    counts = np.bincount(shuffle.units, minlength=n_units)[shuffle.units]
    weights = np.split(1 / counts, np.cumsum([sample.n_rows for sample in samples.sets])[:-1])
    for sample, weight in zip(samples.sets, weights, strict=True):
        rows = sample.rows()
        mean = np.average(rows, axis=0, weights=weight)
        rows -= mean
        rows -= np.average(rows, axis=0, weights=weight)
        rows[:, np.sqrt(np.einsum("ij,ij->j", rows, rows) / len(rows)) <= 10 * _EPS * np.abs(mean)] = 0.0
        check_varies(np.einsum("ij,ij->j", rows, rows), sample.role)
        parts.append(rows)
    return np.concatenate(parts)


def _check_components(wanted: int, limit: int) -> None:
    if wanted > limit:
        raise InputError(
            f"n_components={wanted}, and the data has only {limit} dimension{'s' if limit != 1 else ''} to offer. Ask "
            f"for at most {limit}."
        )


def _reshuffled(
    statistic: Statistic, shuffle: Shuffle, labellings: list[Labels] | None, plan: _Plan, number: int
) -> Array:
    """Return the ratios of all labellings, or of as many as were asked for."""

    def work(chunk: Chunk) -> list[float]:
        if labellings is not None:
            return [statistic.ratio(labels) for labels in labellings[chunk.start : chunk.stop]]
        rng = np.random.default_rng(chunk.seed)
        return [statistic.ratio(shuffle.draw(rng)) for _ in range(chunk.start, chunk.stop)]

    count = plan.n_permutations if labellings is None else len(labellings)
    what = "permutations" + (f", component {number + 1}" if plan.n_components > 1 else "")
    return np.array(in_chunks(work, count, plan.seed, plan.n_jobs, what))


def _notes(found: PermutationTest, question: NullProblem) -> list[str]:
    notes = []
    if found.smallest_p > _LEVEL:
        what = f"only {found.n_possible:.0f} different labellings exist" if found.complete else "so few were asked for"
        remedy = f"Give more {found.permuted}" if found.complete else "Use more permutations"
        notes.append(
            f"no p-value below {found.smallest_p:.2g} is possible, because {what}: the test cannot tell anything from "
            f"noise at the 5 % level. {remedy}."
        )
    dof = sum(found.units[1:]) - len(found.units[1:])
    if dof < found.rank and found.count() == 0:
        notes.append(
            f"{sum(found.units[1:])} background {found.permuted} leave {dof} degree{'s' if dof != 1 else ''} of "
            f"freedom for {found.rank} dimensions: so few give large ratios on noise, and only a very large one could "
            f"stand out. Give more background {found.permuted}, or choose fewer features (without looking at the "
            "labels)."
        )
    infinite = float(np.isinf(found.null[0]).mean())
    if infinite >= _LEVEL and found.count() == 0:
        notes.append(
            f"{100 * infinite:.0f} % of the permutations leave the background constant along some direction, and the "
            "ratio infinite: the test cannot reject at the 5 % level. Use shrinkage='oas' for finite ratios, or leave "
            "out features that rarely vary."
        )
    if question.spanned:
        notes.append(
            f"with {question.spanned} features each was measured in its overall sd, not the background's, to be quick: "
            "a signal in a few features alone may be missed. Choose fewer features to have them measured in the "
            "background's."
        )
    return notes


def _in_words(found: PermutationTest) -> Summary:
    sets = ["target", *(["background"] if len(found.units) == 2 else _numbered(len(found.units) - 1))]
    counted = ", ".join(f"{count} in the {name}" for count, name in zip(found.units, sets, strict=True))
    if found.permuted == "pairs":
        counted = f"labels within {found.units[0]} pairs"
    looked = f"all {found.n_possible:.0f}" if found.complete else f"{found.null.shape[1]} of {found.n_possible:.3g}"
    looked = f"{looked} labellings"
    shrunk = f"background shrunk by {found.shrinkage:.3g}" if found.shrinkage else "exact"
    lines = [
        "Permutation test: could so large a ratio come from labels that mean nothing?",
        f"  reshuffled  {'' if found.permuted == 'pairs' else found.permuted + ': '}{counted}; {looked}",
        f"  problem     {shrunk}",
        "",
        f"  {'component':>9}  {'ratio':>9}  {'5 % of noise is above':>21}  {'p':>7}",
    ]
    for number, (ratio, edge, p) in enumerate(zip(found.ratios, found.edge(), found.p_values, strict=True)):
        lines.append(f"  {number + 1:>9}  {ratio:>9.4g}  {edge:>21.4g}  {p:>7.3g}")
    return Summary("\n".join([*lines, "", f"  {_verdict(found)}", *(f"  ! {note}" for note in found.notes)]))


def _numbered(count: int) -> list[str]:
    return [f"background {number + 1}" for number in range(count)]


def _verdict(found: PermutationTest) -> str:
    count, tested = found.count(), len(found.ratios)
    if count == 0:
        return "Nothing stands out: reshuffled labels give as large a ratio too often (5 % level)."
    told = "The component stands" if tested == 1 else f"{count} of {tested} components stand{'s' if count == 1 else ''}"
    return f"{told} out: reshuffled labels rarely give as large a ratio (5 % level)."
