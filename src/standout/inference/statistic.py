"""Statistic of the permutation test: the largest ratio of rows, as a function of their labels.

It equals the first ratio of a fitted model: of the exact problem, or against the background estimate of
:mod:`standout._shrinkage`, which is computed for every labelling. With no more features than rows it is computed from
covariances, otherwise (always shrunk) from the Gram matrix of the rows. Every set is centred by its mean. Label 0 is
the target, k the k-th background.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg import blas, lapack

from standout._blas import Array, add_gram, add_outer, mirror, top_eigen
from standout._dataset import Mix, Mixture
from standout._moments import Counts
from standout._shrinkage import Evidence, GramShrinkage, factor_shrinkage, few_rows, intensity, shrinks, start_features
from standout.inference.exchange import Labels, Shuffle
from standout.inference.resampling import CONSTANT, along_target, equilibrated, in_their_span, panels, whitened
from standout.solvers import dense
from standout.solvers.gram import GramProblem, Span, gram_shrinkage

# A larger ratio is infinite: the background variance is rounding error.
_INFINITE = 1e12
# Multiply-adds (a fifth of a second) beyond which a Gram matrix is not computed for every labelling.
MOST_WORK = 4e9
# A background sd of white rows below this share of the largest is rounding error.
_SINGULAR = 1e-7


@dataclass(frozen=True)
class NullProblem:
    """How the backgrounds are mixed, and how the background is shrunk; None is the exact problem."""

    roles: tuple[str, ...]  # of the backgrounds
    mix: Mix
    shrinkage: str | float | None
    rank: int = 0  # joint rank of the rows, once settled
    spanned: int = 0  # the number of features, if rows are given by coordinates in their span
    _mixtures: dict[tuple[int, ...], Mixture] = field(default_factory=dict, repr=False)

    def mixture(self, sizes: tuple[int, ...]) -> Mixture:
        """Return the mixture of backgrounds of these sizes."""
        if sizes not in self._mixtures:
            self._mixtures[sizes] = Mixture.of([Counts(n, n, n, n) for n in sizes], self.mix, self.roles)
        return self._mixtures[sizes]

    def mixed_as(self, sizes: tuple[int, ...]) -> NullProblem:
        """Return the problem with the shares of backgrounds of these sizes, even if fewer rows are used."""
        if len(sizes) == 1 or not isinstance(self.mix, str) or self.mix != "pooled":
            return self
        return replace(self, mix=np.array(sizes, dtype=np.float64), _mixtures={})

    def settled(self, sizes: tuple[int, ...], rank: int, structural: bool = False) -> NullProblem:
        """Return the problem with "auto" decided, once for all labellings.

        ``structural`` means that the background does not vary in some direction: with enough rows the exact problem is
        then solved, as in a fit.
        """
        settled = replace(self, rank=rank)
        evidence = settled.evidence(self.mixture(sizes), rank, float(rank))
        if self.shrinkage == "auto":
            exact = not shrinks("auto", evidence) or (structural and not few_rows(evidence))
            return replace(settled, shrinkage=None if exact else "auto")
        if self.shrinkage in (None, 0.0):
            intensity(self.shrinkage, evidence)  # raises if the problem has no solution
            return replace(settled, shrinkage=None)
        return settled

    def background_variance(self, rows: Array, labels: NDArray[np.intp]) -> Array:
        """Return the variance of each feature in the mixed backgrounds of a labelling."""
        parts = [rows[labels == number] for number in range(1, 1 + len(self.roles))]
        return self.mixture(tuple(map(len, parts))).mixed([part.var(axis=0) for part in parts])

    def evidence(self, mixture: Mixture, n_varying: int, trace_squared: float) -> Evidence:
        """Return the input of the shrinkage rule, for a background correlation matrix with this tr S²."""
        return Evidence(mixture.rows, self.rank, mixture.effective, n_varying, trace_squared)


@dataclass(frozen=True)
class Earlier:
    """The rows before earlier components were removed.

    A small remainder must not be mistaken for the whole feature, nor the trace of a removed component for the
    variance of a feature that is constant in the background.
    """

    rows: Array  # the original rows
    removed: Array  # background variance of each feature explained by the removed components, under the true labels

    def constant(self, question: NullProblem, labels: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return which features were constant in the backgrounds of a labelling."""
        return question.background_variance(self.rows, labels) <= CONSTANT


class AmongFeatures:
    """Statistic from the covariances of a labelling, by a dense eigensolver."""

    def __init__(self, rows: Array, question: NullProblem, earlier: Earlier | None):
        self.rows, self.question, self.earlier = rows, question, earlier
        self.total = np.tril(rows.T @ rows).copy(order="F")
        self.sum = rows.sum(axis=0)

    def ratio(self, labels: Labels) -> float:
        """Return the largest ratio of target to (shrunk) background variance."""
        target, background, _ = self._pair(labels)
        factor, info = lapack.dpotrf(background, lower=1, overwrite_a=1)
        if info != 0:
            return math.inf
        found = largest_ratio(mirror(target), factor)
        return found if found < _INFINITE else math.inf

    def shrinkage(self, labels: Labels) -> float:
        """Return how much the background is shrunk."""
        return self._pair(labels)[2]

    def scores(self, labels: Labels) -> Array:
        """Return the scores of all rows along the first component."""
        target, background, _ = self._pair(labels)
        size = len(target)
        # Against the sum of both, which is positive definite even if the background is singular.
        _, vector = linalg.eigh(target, target + background, lower=True, subset_by_index=[size - 1, size - 1])
        return np.asarray(self.rows @ vector[:, 0])

    def _pair(self, labels: Labels) -> tuple[Array, Array, float]:
        """Return target and shrunk background covariance (lower triangles), and the shrinkage."""
        scatters, sizes = self._scatters(labels)
        mixture = self.question.mixture(sizes[1:])
        target = scatters[0] / sizes[0]
        background = scatters[1] * (mixture.shares[0] / sizes[1])
        for scatter, share, size in zip(scatters[2:], mixture.shares[1:], sizes[2:], strict=True):
            background += scatter * (share / size)
        shrinks = self.question.shrinkage is not None
        rho = self._shrink(target, background, mixture, labels) if shrinks else 0.0
        return target, background, rho

    def _scatters(self, labels: Labels) -> tuple[list[Array], tuple[int, ...]]:
        """Return the scatter of each set about its mean; that of the largest is the total minus the others."""
        sizes = np.bincount(labels)
        largest = int(np.argmax(sizes))
        rest, left = self.total.copy(order="F"), self.sum
        scatters = [rest] * len(sizes)
        for number, size in enumerate(sizes):
            if number == largest:
                continue
            part = self.rows[labels == number]
            mean = part.sum(axis=0) / size
            part -= mean
            scatter = blas.dsyrk(1.0, part.T, lower=1)
            scatters[number] = scatter
            rest -= scatter
            add_outer(rest, mean, -float(size))
            left = left - size * mean
        add_outer(rest, left, -1.0 / sizes[largest])
        return scatters, tuple(int(size) for size in sizes)

    def _shrink(self, target: Array, background: Array, mixture: Mixture, labels: Labels) -> float:
        """Replace the background (lower triangle) by its shrunk estimate in place; return the intensity."""
        diagonal, spread = np.diagonal(background), np.diagonal(target)
        whole = diagonal if self.earlier is None else diagonal + self.earlier.removed
        varies = whole > CONSTANT  # features have an overall variance of about one
        if self.earlier is not None:
            varies &= ~self.earlier.constant(self.question, labels)
        whole = np.where(varies, whole, spread)
        # Only one triangle is stored: off-diagonal entries count twice. The diagonal of S is one.
        weight = varies / np.where(whole > 0, whole, 1.0)
        off = float(weight @ (background * background) @ weight) - float(((weight * diagonal) ** 2).sum())
        evidence = self.question.evidence(mixture, int(varies.sum()), 2 * off + int(varies.sum()))
        if self.question.shrinkage == "auto":
            unit = np.sqrt(np.where(whole > 0, whole, 1.0))
            ours, theirs = (
                mirror(np.tril(matrix / unit / unit[:, None]).copy(order="F")) for matrix in (target, background)
            )
            n_target = int((labels == 0).sum())
            found = factor_shrinkage(ours, theirs, evidence, n_target - 1, len(self.rows))
            if found.n_factors:
                background[...] = found.of(theirs) * unit * unit[:, None]
                return found.rho
            rho = found.rho
        else:
            rho = intensity(self.question.shrinkage, evidence)
        background *= 1 - rho
        np.einsum("ii->i", background)[...] += rho * whole
        return rho


def largest_ratio(matrix: Array, factor: Array | None) -> float:
    """Return the largest ratio alone, by the faster solver."""
    if dense.pays_off(len(matrix), 1):
        found = dense.lanczos_pairs(matrix, factor, 1, vectors=False)
        if found is not None:
            return float(found[0][0])
    return float(dense.top_pairs(matrix, factor, 1, vectors=False)[0][0])


class _AmongRows:
    """Statistic from the Gram matrix of the rows."""

    def ratio(self, labels: Labels) -> float:
        """Return the largest ratio of target to shrunk background variance."""
        return self._reduced(labels).largest()

    def shrinkage(self, labels: Labels) -> float:
        """Return how much the background is shrunk."""
        return self._reduced(labels).rho

    def _reduced(self, labels: Labels) -> _Reduced:
        raise NotImplementedError


class Wide(_AmongRows):
    """More features than rows: the Gram matrix in background-sd units, computed for every labelling."""

    def __init__(self, rows: Array, question: NullProblem, earlier: Earlier | None):
        self.rows, self.question, self.earlier = rows, question, earlier

    def _reduced(self, labels: Labels) -> _Reduced:
        span = _LabelledSpan(self, labels)
        # The diagonal of S is one, whatever part of a feature is left.
        squared = _squared(span.gram, span.n_target) + span.lost_squared
        found = _shrinkage(self.question, self.question.evidence(span.mixture, span.n_varying, squared), span)
        return _Reduced(GramProblem(span.gram, span.n_target, found), span.roots, span.goal)

    def scores(self, labels: Labels) -> Array:
        """Return the scores of all rows along the first component."""
        reduced = self._reduced(labels)
        return np.asarray(self.rows @ ((_of_rows(reduced.coefficients(), labels) @ self.rows) / reduced.units))


class _LabelledSpan:
    """The rows of a labelling, set by set, in background-sd units."""

    def __init__(self, statistic: Wide, labels: Labels):
        self.rows, self.earlier = statistic.rows, statistic.earlier
        self.order = np.argsort(labels, kind="stable")
        self.sizes = np.bincount(labels)
        self.n_target = int(self.sizes[0])
        self.mixture = statistic.question.mixture(tuple(int(size) for size in self.sizes[1:]))
        self.shares = np.array([1.0, *self.mixture.shares]) / self.sizes
        self.roots = np.sqrt(np.repeat(self.shares, self.sizes))
        self.constant = None if self.earlier is None else self.earlier.constant(statistic.question, labels)
        n_features = self.rows.shape[1]
        self.goal = np.ones(n_features)  # what the squares of features are divided by
        self.varies = np.zeros(n_features, dtype=bool)
        self._in_target, self._in_background = np.empty(n_features), np.empty(n_features)
        gram = np.zeros((len(self.order), len(self.order)), order="F")
        for here, panel in self._panels():
            spread = [
                share * np.einsum("ij,ij->j", part, part)
                for part, share in zip(np.split(panel, np.cumsum(self.sizes)[:-1]), self.shares, strict=True)
            ]
            self._measure(here, spread[0], np.sum(spread[1:], axis=0))
            panel /= np.sqrt(self.goal[here])
            add_gram(gram, panel)
        self._finish(gram)

    def _panels(self) -> Iterator[tuple[slice, Array]]:
        """Yield columns of the centred rows."""
        for here in panels(*self.rows.shape):
            panel = self.rows[self.order, here]
            for part in np.split(panel, np.cumsum(self.sizes)[:-1]):
                part -= part.mean(axis=0)
            yield here, panel

    def _measure(self, here: slice, target: Array, background: Array) -> None:
        goal = background if self.earlier is None else background + self.earlier.removed[here]
        varies = goal > CONSTANT  # features have an overall variance of about one
        if self.constant is not None:
            varies &= ~self.constant[here]
        goal = np.where(varies, goal, target)
        goal[goal == 0] = 1.0
        self.goal[here], self.varies[here] = goal, varies
        self._in_target[here], self._in_background[here] = target, background

    def _finish(self, gram: Array, whole: Array | float = 1.0) -> None:
        """Set what the search for factors needs; ``whole`` are the variances of whole features."""
        self.gram = mirror(gram) * np.outer(self.roots, self.roots)
        first = start_features(self._in_target / self.goal)
        start = self.rows[np.ix_(self.order[: self.n_target], first)]
        self.leading = (start - start.mean(axis=0)) / np.sqrt(self.goal[first]) * self.roots[: self.n_target, None]
        lost = whole**2 - (self._in_background / self.goal) ** 2
        self.lost_squared = float(lost[self.varies].sum())

    @property
    def n_varying(self) -> int:
        """Number of features that vary in the background."""
        return int(self.varies.sum())

    def background_variance(self) -> Array:
        """Return the background variance of each feature; zero where it is constant."""
        return np.where(self.varies, self.goal, 0.0)

    def combine(self, coefficients: Sequence[Array]) -> list[Array]:
        """Return combinations of rows as vectors of features."""
        together = self.roots[:, None] * np.hstack(coefficients)
        result = np.empty((len(self.goal), together.shape[1]))
        for here, panel in self._panels():
            result[here] = (panel / np.sqrt(self.goal[here])).T @ together
        return np.split(result, np.cumsum([block.shape[1] for block in coefficients])[:-1], axis=1)

    def rescale(self, units: Array) -> None:
        """Divide features by ``units`` as well."""
        self.goal = self.goal * units**2
        gram = np.zeros((len(self.order), len(self.order)), order="F")
        for here, panel in self._panels():
            panel /= np.sqrt(self.goal[here])
            add_gram(gram, panel)
        self._finish(gram, 1 / units**2)


class Huge(_AmongRows):
    """Far more features than rows: features in units of their overall sd, and one Gram matrix for all labellings.

    Rows are coordinates in their span (:func:`in_their_span`). The background is shrunk toward its mean
    variance, in units of the overall sd.
    """

    def __init__(self, rows: Array, question: NullProblem, earlier: Earlier | None):
        self.gram, self.question, self.earlier = rows @ rows.T, question, earlier

    def _reduced(self, labels: Labels) -> _Reduced:
        order = np.argsort(labels, kind="stable")
        gram = self.gram[np.ix_(order, order)]
        sizes = np.bincount(labels)
        mixture = self.question.mixture(tuple(int(size) for size in sizes[1:]))
        for stop, size in zip(np.cumsum(sizes), sizes, strict=True):
            here = slice(stop - size, stop)
            gram[here] -= gram[here].mean(axis=0)
            gram[:, here] -= gram[:, here].mean(axis=1)[:, None]
        roots = np.sqrt(np.repeat([1.0, *mixture.shares] / sizes, sizes))
        gram *= np.outer(roots, roots)
        n_target, n_features = int(sizes[0]), self.question.spanned
        total = float(np.trace(gram[n_target:, n_target:]))
        if self.earlier is not None:
            total += float(self.earlier.removed.sum())
        gram /= total / n_features
        # Without features, the search for the target's axes starts from its largest rows.
        start = np.eye(n_target)[:, start_features(np.diagonal(gram)[:n_target])]
        evidence = self.question.evidence(mixture, n_features, _squared(gram, n_target))
        found = _shrinkage(self.question, evidence, _GramOnly(gram, start))
        return _Reduced(GramProblem(gram, n_target, found), roots)

    def scores(self, labels: Labels) -> Array:
        """Return the scores of all rows along the first component."""
        return np.asarray(self.gram @ _of_rows(self._reduced(labels).coefficients(), labels))


@dataclass
class _GramOnly:
    """Rows of which nothing but products is known: features keep their units."""

    gram: Array
    leading: Array
    lost_squared: float = 0.0

    def background_variance(self) -> None:
        """Return that features are unknown."""
        return

    def combine(self, coefficients: Sequence[Array]) -> list[Array]:
        """Refuse: features are unknown."""
        raise NotImplementedError

    def rescale(self, units: Array) -> None:
        """Refuse: features are unknown."""
        raise NotImplementedError


@dataclass(frozen=True)
class _Reduced:
    """The Gram problem of a labelling, rows sorted by set."""

    problem: GramProblem
    roots: Array  # row weights with which the Gram matrix is that of covariances
    units: Array | float = 1.0  # variances that features are scaled by

    @property
    def rho(self) -> float:
        """The shrinkage."""
        return self.problem.shrinkage.rho

    def largest(self) -> float:
        """Return the largest ratio."""
        return largest_ratio(self.problem.matrix(), None)

    def coefficients(self) -> Array:
        """Return the first component as a linear combination of the centred rows, sorted by set."""
        alpha = top_eigen(self.problem.matrix(), 1)[1]
        return np.asarray(self.roots * self.problem.coefficients(alpha)[:, 0])


def _shrinkage(question: NullProblem, evidence: Evidence, span: Span) -> GramShrinkage:
    if question.shrinkage == "auto":
        return gram_shrinkage(span, evidence, len(span.leading) - 1)
    return GramShrinkage(intensity(question.shrinkage, evidence))


def _of_rows(coefficients: Array, labels: Labels) -> Array:
    """Return the coefficients of the rows in their original order, given those of centred rows sorted by set."""
    result = np.empty_like(coefficients)
    result[np.argsort(labels, kind="stable")] = coefficients
    return np.asarray(result - (np.bincount(labels, result) / np.bincount(labels))[labels])


def _squared(gram: Array, n_target: int) -> float:
    """Return the trace of the squared background covariance."""
    inner = gram[n_target:, n_target:]
    return float(np.einsum("ij,ij->", inner, inner))


class Statistic(Protocol):
    """The largest ratio as a function of the labels of the rows."""

    def ratio(self, labels: Labels) -> float:
        """Return the largest ratio, possibly infinite."""
        ...

    def shrinkage(self, labels: Labels) -> float:
        """Return how much the background is shrunk."""
        ...

    def scores(self, labels: Labels) -> Array:
        """Return the scores of all rows along the first component, (n_rows,)."""
        ...


def prepared(rows: Array, question: NullProblem, shuffle: Shuffle) -> tuple[Array, NullProblem, int]:
    """Choose the method: return the aligned rows in suitable coordinates, the settled problem, and the joint rank.

    Rows are aligned feature by feature. For the exact problem, which is invariant under linear maps, they are aligned
    along the components under the true labels, so that p-values are invariant too.
    """
    n_target, *sizes = (int(size) for size in np.bincount(shuffle.row_labels))
    n_rows, n_features = rows.shape
    if n_features <= n_rows:
        white = whitened(rows)
        question = question.settled(tuple(sizes), white.shape[1], _structural(white, shuffle))
        chosen = along_target(white, n_target) if question.shrinkage is None else equilibrated(rows)
        return shuffle.aligned(chosen), question, white.shape[1]
    inside = in_their_span(rows)
    rank = inside.shape[1]
    question = question.settled(tuple(sizes), rank)
    if question.shrinkage is None:
        return shuffle.aligned(along_target(whitened(inside), n_target)), question, rank
    if float(n_rows) ** 2 * n_features > MOST_WORK:
        return shuffle.aligned(inside), replace(question, spanned=n_features), rank
    return shuffle.aligned(equilibrated(rows)), question, rank


def _structural(white: Array, shuffle: Shuffle) -> bool:
    """Return whether the backgrounds do not vary in some direction in which the rows do."""
    parts = [white[shuffle.row_labels == number] for number in np.unique(shuffle.row_labels)[1:]]
    if sum(map(len, parts)) - len(parts) < white.shape[1]:
        return False
    sizes = np.linalg.svd(np.concatenate([part - part.mean(axis=0) for part in parts]), compute_uv=False)
    return bool(sizes[-1] <= _SINGULAR * sizes[0])


def statistic_of(rows: Array, question: NullProblem, earlier: Earlier | None) -> Statistic:
    """Return the statistic for prepared rows and a settled problem, after earlier components were removed."""
    if question.shrinkage is None:
        return AmongFeatures(whitened(rows), question, None)
    if question.spanned:
        return Huge(rows, question, earlier)
    kind = Wide if rows.shape[1] > len(rows) else AmongFeatures
    return kind(rows, question, earlier)
