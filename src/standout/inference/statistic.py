"""Statistic of the permutation test: the largest ratio of rows, as a function of their labels.

It equals the first ratio of a fitted model, with the background estimated for every labelling. With no more features
than rows it is computed from covariances, otherwise (always shrunk) from the Gram matrix of the rows. Every set is
centred by its mean. Label 0 is the target, k the k-th background.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg import blas, lapack

from standout._blas import Array, add_outer, add_scatter, mirror, rank_tolerance, squared_norm, top_eigen
from standout._dataset import Mix, Mixture
from standout._folds import Index
from standout._moments import Counts
from standout._shrinkage import (
    Evidence,
    Shrinkage,
    auto_shrinkage,
    covariance_search,
    few_rows,
    intensity,
    shrinks,
    start_features,
)
from standout.inference.resampling import Shuffle, panels
from standout.solvers import dense
from standout.solvers.gram import GramProblem, Span

# A larger ratio is infinite: the background variance is rounding error.
_INFINITE = 1e12
# Multiply-adds (a fifth of a second) beyond which a Gram matrix is not computed for every labelling.
MOST_WORK = 4e9
# A background sd of white rows below this share of the largest is rounding error.
_SINGULAR = 1e-7
# A background variance below this share of the overall variance is rounding error: the feature is constant there.
_CONSTANT = 1e-13
# A feature whose sd falls below this share when a component is removed was explained by it; the rest is rounding error.
_EXPLAINED = 1e-10
_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class NullProblem:
    """How the backgrounds are mixed, and how the background is shrunk; None is the exact problem."""

    roles: tuple[str, ...]  # of the backgrounds
    mix: Mix
    shrinkage: str | float | None
    rank: int = 0  # joint rank of the rows, once settled
    spanned: int = 0  # the number of features, if rows are given by coordinates in their span
    # Once components were removed: the original rows, and the background variance of each feature that the components
    # explained under the true labels. A small remainder must not be mistaken for the whole feature, nor the trace of a
    # removed component for the variance of a feature that is constant in the background.
    original: Array | None = None
    removed: Array | None = None
    _mixtures: dict[tuple[int, ...], Mixture] = field(default_factory=dict, repr=False)

    def mixture(self, sizes: Index) -> Mixture:
        """Return the mixture of backgrounds of these sizes."""
        key = tuple(sizes.tolist())
        if key not in self._mixtures:
            self._mixtures[key] = Mixture.of([Counts(n, n, n, n) for n in key], self.mix, self.roles)
        return self._mixtures[key]

    def evidence(self, sizes: Index, n_varying: int, trace_squared: float) -> Evidence:
        """Return the input of the shrinkage rule, for a background correlation matrix with this tr S²."""
        mixture = self.mixture(sizes)
        return Evidence(mixture.rows, self.rank, mixture.effective, n_varying, lambda: trace_squared)

    def background_variance(self, rows: Array, labels: Index) -> Array:
        """Return the variance of each feature in the mixed backgrounds of a labelling."""
        mixture = self.mixture(np.bincount(labels)[1:])
        return mixture.mixed([rows[labels == number].var(axis=0) for number in range(1, 1 + len(self.roles))])

    def constant(self, labels: Index) -> NDArray[np.bool_] | None:
        """Return which original features are constant in the backgrounds of a labelling."""
        return None if self.original is None else self.background_variance(self.original, labels) <= _CONSTANT

    def unit_variance(
        self, target: Array, background: Array, constant: NDArray[np.bool_] | None, here: slice = slice(None)
    ) -> tuple[Array, NDArray[np.bool_]]:
        """Return the variances that features are divided by, and which of them vary in the background."""
        # Of the whole feature in the background, or in the target if the background is constant; overall about one.
        whole = background if self.removed is None else background + self.removed[here]
        varies = whole > _CONSTANT
        if constant is not None:
            varies &= ~constant[here]
        whole = np.where(varies, whole, target)
        return np.where(whole > 0, whole, 1.0), varies

    def settled(self, sizes: Index, rank: int, structural: bool = False) -> NullProblem:
        """Return the problem with "auto" decided, once for all labellings; exact as in a fit if ``structural``."""
        settled = replace(self, rank=rank)
        evidence = settled.evidence(sizes, rank, float(rank))
        exact = self.shrinkage in (None, 0.0)
        if exact:
            intensity(self.shrinkage, evidence)  # raises if the problem has no solution
        elif self.shrinkage == "auto":
            exact = not shrinks("auto", evidence) or (structural and not few_rows(evidence))
        return replace(settled, shrinkage=None) if exact else settled


def prepared(rows: Array, problem: NullProblem, shuffle: Shuffle) -> tuple[Array, NullProblem]:
    """Choose the method: return the aligned rows in suitable coordinates, and the settled problem."""
    # Along the components the exact problem, and with it p-values, is invariant under linear maps of the features.
    labels, (n_rows, n_features) = shuffle.row_labels, rows.shape
    sizes = np.bincount(labels)[1:]
    if n_features <= n_rows:
        white = _whitened(rows)
        problem = problem.settled(sizes, white.shape[1], _structural(white, labels))
        chosen = _along_target(white, labels) if problem.shrinkage is None else _equilibrated(rows)
        return shuffle.aligned(chosen), problem
    inside = _in_their_span(rows)
    problem = problem.settled(sizes, inside.shape[1])
    if problem.shrinkage is None:
        return shuffle.aligned(_along_target(_whitened(inside), labels)), problem
    if float(n_rows) ** 2 * n_features > MOST_WORK:
        return shuffle.aligned(inside), replace(problem, spanned=n_features)
    return shuffle.aligned(_equilibrated(rows)), problem


def _sd(rows: Array) -> Array:
    return np.asarray(np.sqrt(np.einsum("ij,ij->j", rows, rows) / len(rows)))


def _equilibrated(rows: Array) -> Array:
    """Return the features that vary, each divided by its overall sd."""
    sd = _sd(rows)
    varies = sd > 0
    return np.ascontiguousarray(rows[:, varies] / sd[varies])


def _whitened(rows: Array) -> Array:
    """Return coordinates in which all rows together are white; exact ratios are invariant under this map."""
    scaled = _equilibrated(rows)
    triangle = linalg.qr(scaled, mode="r", check_finite=False)[0][: scaled.shape[1]]
    _, values, right = linalg.svd(triangle, full_matrices=False, check_finite=False)
    kept = values > max(rows.shape) * _EPS * values[0]
    return np.asarray(scaled @ (right[kept].T / values[kept]))


def _along_target(white: Array, labels: Index) -> Array:
    """Return jointly white rows along the principal axes of the target: the components of the exact problem."""
    target = white[labels == 0]
    return np.asarray(white @ linalg.eigh(target.T @ target)[1])


def _in_their_span(rows: Array) -> Array:
    """Return coordinates of wide rows in an orthonormal basis of their span, features in units of their overall sd."""
    gram = np.zeros((len(rows), len(rows)), order="F")
    for columns in panels(*rows.shape):
        add_scatter(gram, _equilibrated(rows[:, columns]).T)
    values, basis = top_eigen(mirror(gram), len(gram))
    kept = values > rank_tolerance(len(gram)) * values[0]
    return np.ascontiguousarray(basis[:, kept] * np.sqrt(values[kept]))


def _structural(white: Array, labels: Index) -> bool:
    """Return whether the backgrounds do not vary in some direction in which the rows do."""
    parts = [white[labels == number] for number in np.unique(labels)[1:]]
    if sum(map(len, parts)) - len(parts) < white.shape[1]:
        return False
    sizes = np.linalg.svd(np.concatenate([part - part.mean(axis=0) for part in parts]), compute_uv=False)
    return bool(sizes[-1] <= _SINGULAR * sizes[0])


def deflated(rows: Array, scores: Array, labels: Index) -> Array:
    """Remove a component, given its scores, from the rows of all sets; other components keep their scores."""
    target = labels == 0
    centred = scores[target] - scores[target].mean()
    pattern = (centred @ rows[target]) / (centred @ centred)
    rest = rows - np.outer(scores, pattern)
    rest[:, _sd(rest) <= _EXPLAINED * _sd(rows)] = 0.0
    return np.asarray(rest)


def statistic_of(rows: Array, problem: NullProblem) -> Statistic:
    """Return the statistic for prepared rows and a settled problem."""
    if problem.shrinkage is None:
        return Statistic(_whitened(rows), problem)
    return (_GramStatistic if problem.spanned or rows.shape[1] > len(rows) else Statistic)(rows, problem)


class Statistic:
    """The largest ratio as a function of the labels of the rows, from covariances and by a dense eigensolver."""

    def __init__(self, rows: Array, problem: NullProblem):
        self.rows, self.problem = rows, problem
        self.total = np.tril(rows.T @ rows).copy(order="F")
        self.sum = rows.sum(axis=0)

    def ratio(self, labels: Index) -> float:
        """Return the largest ratio of target to (shrunk) background variance, possibly infinite."""
        target, background, _, _ = self._pair(labels)
        factor, info = lapack.dpotrf(background, lower=1, overwrite_a=1)
        found = _largest(target, factor) if info == 0 else math.inf
        return found if found < _INFINITE else math.inf

    def component(self, labels: Index) -> tuple[Array, float]:
        """Return the scores of all rows along the first component, (n_rows,), and the shrinkage of the background."""
        target, background, unit, rho = self._pair(labels)
        last = len(target) - 1
        # Against the sum of both, which is positive definite even if the background is singular.
        _, vector = linalg.eigh(target, target + background, lower=True, subset_by_index=[last, last])
        return self.rows @ (vector[:, 0] / unit), rho

    def _pair(self, labels: Index) -> tuple[Array, Array, Array | float, float]:
        """Return target and (shrunk) background covariance (its lower triangle), units of features, and shrinkage."""
        scatters, sizes = self._scatters(labels)
        target = mirror(scatters[0] / sizes[0])
        weights = self.problem.mixture(sizes[1:]).shares / sizes[1:]
        background = scatters[1] * weights[0]
        for scatter, weight in zip(scatters[2:], weights[1:], strict=True):
            background += scatter * weight
        if self.problem.shrinkage is None:
            return target, background, 1.0, 0.0
        variance, varies = self.problem.unit_variance(
            np.diagonal(target), np.diagonal(background), self.problem.constant(labels)
        )
        unit, n_varying = np.sqrt(variance), int(varies.sum())
        scale = np.outer(1 / unit, 1 / unit).T  # in the memory order of the covariances
        target *= scale
        background *= scale
        inner = background if n_varying == len(varies) else background[np.ix_(varies, varies)]
        diagonal = np.diagonal(inner)
        # Off-diagonal entries count twice. The diagonal of S is one, whatever part of a feature is left.
        off_diagonal = 2 * float(np.einsum("ij,ij->", inner, inner) - diagonal @ diagonal)
        evidence = self.problem.evidence(sizes[1:], n_varying, off_diagonal + n_varying)
        if self.problem.shrinkage == "auto":
            search = covariance_search(target, mirror(background))
            found = auto_shrinkage(search, evidence, int(sizes[0]) - 1, len(self.rows))
        else:
            found = Shrinkage(intensity(self.problem.shrinkage, evidence))
        return target, found.of(background), unit, found.rho

    def _scatters(self, labels: Index) -> tuple[list[Array], Index]:
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
            scatters[number] = blas.dsyrk(1.0, part.T, lower=1)
            rest -= scatters[number]
            add_outer(rest, mean, -float(size))
            left = left - size * mean
        add_outer(rest, left, -1.0 / sizes[largest])
        return scatters, sizes


def _largest(matrix: Array, factor: Array | None) -> float:
    return float(dense.best_pairs(matrix, factor, 1, vectors=False)[0][0])


class _GramStatistic(Statistic):
    """Statistic from the Gram matrix of the rows of each labelling; if features are very many, one serves them all."""

    def __init__(self, rows: Array, problem: NullProblem):
        self.rows, self.problem = rows, problem
        self.gram = rows @ rows.T if problem.spanned else None

    def ratio(self, labels: Index) -> float:
        return _largest(self._solved(labels)[1].matrix(), None)

    def component(self, labels: Index) -> tuple[Array, float]:
        span, problem = self._solved(labels)
        first = top_eigen(problem.matrix(), 1)[1]
        coefficients = np.empty(len(labels))  # of the rows, from those of the centred rows sorted by set
        coefficients[span.order] = span.roots * problem.coefficients(first)[:, 0]
        coefficients -= (np.bincount(labels, coefficients) / span.sizes)[labels]
        if self.gram is not None:
            scores = self.gram @ coefficients
        else:
            scores = self.rows @ ((coefficients @ self.rows) / span.unit_variance)
        return scores, problem.shrinkage.rho

    def _solved(self, labels: Index) -> tuple[_LabelledSpan, GramProblem]:
        """Return the rows of a labelling, and its problem in row coordinates."""
        span = _LabelledSpan(self.rows, self.gram, self.problem, labels)
        inner = span.gram[span.n_target :, span.n_target :]
        squared = squared_norm(inner) + span.lost_squared
        evidence = self.problem.evidence(span.sizes[1:], span.n_varying, squared)
        if self.problem.shrinkage == "auto":
            found = auto_shrinkage(span, evidence, span.n_target - 1)
        else:
            found = Shrinkage(intensity(self.problem.shrinkage, evidence))
        return span, GramProblem(span.gram, span.n_target, found)


class _LabelledSpan(Span):
    """The rows of a labelling sorted by set."""

    def __init__(self, rows: Array, gram: Array | None, problem: NullProblem, labels: Index):
        self.rows, self.problem = rows, problem
        self.order, self.sizes = np.argsort(labels, kind="stable"), np.bincount(labels)
        self.n_target = int(self.sizes[0])
        self.shares = np.array([1.0, *problem.mixture(self.sizes[1:]).shares]) / self.sizes
        self.roots = np.sqrt(np.repeat(self.shares, self.sizes))
        if gram is not None:
            self._scale_by_mean(gram)
            return
        self._constant = problem.constant(labels)
        self.unit_variance = np.empty(rows.shape[1])
        self.rescaled(np.ones(rows.shape[1]))

    def _scale_by_mean(self, gram: Array) -> None:
        """Divide the rows, of which only products are used, by the mean background sd of all features."""
        self.n_varying, self.lost_squared = self.problem.spanned, 0.0
        self.gram = gram[np.ix_(self.order, self.order)]
        for side in (self.gram, self.gram.T):
            for part in self._parts(side):
                part -= part.mean(axis=0)
        self.gram *= np.outer(self.roots, self.roots)
        total = float(np.trace(self.gram[self.n_target :, self.n_target :]))
        if self.problem.removed is not None:
            total += float(self.problem.removed.sum())
        self.gram /= total / self.n_varying
        # Without features, the search for the target's axes starts from its largest rows.
        self.leading = np.eye(self.n_target)[:, start_features(np.diagonal(self.gram)[: self.n_target])]

    def _parts(self, rows: Array) -> list[Array]:
        """Return the rows of each set."""
        return np.split(rows, np.cumsum(self.sizes)[:-1])

    def _panels(self) -> Iterator[tuple[slice, Array]]:
        """Yield columns of the centred rows."""
        for here in panels(*self.rows.shape):
            panel = self.rows[self.order, here]
            for part in self._parts(panel):
                part -= part.mean(axis=0)
            yield here, panel

    def combine(self, coefficients: Array) -> Array:
        weighted = self.roots[:, None] * coefficients
        result = np.empty((len(self.unit_variance), weighted.shape[1]))
        for here, panel in self._panels():
            result[here] = (panel / np.sqrt(self.unit_variance[here])).T @ weighted
        return result

    def rescaled(self, units: Array) -> _LabelledSpan:
        """Compute variances and the Gram matrix, of features in background-sd units times ``units``."""
        self.gram = np.zeros((len(self.order), len(self.order)), order="F")
        target, background = np.empty_like(units), np.empty_like(units)
        self.varies = varies = np.empty(len(units), dtype=bool)
        for here, panel in self._panels():
            target[here], *backgrounds = (
                share * np.einsum("ij,ij->j", part, part)
                for part, share in zip(self._parts(panel), self.shares, strict=True)
            )
            background[here] = np.sum(backgrounds, axis=0)
            variance, varies[here] = self.problem.unit_variance(target[here], background[here], self._constant, here)
            self.unit_variance[here] = variance * units[here] ** 2
            panel /= np.sqrt(self.unit_variance[here])
            add_scatter(self.gram, panel.T)
        self.gram = mirror(self.gram) * np.outer(self.roots, self.roots)
        first = start_features(target / self.unit_variance)
        start = self.rows[np.ix_(self.order[: self.n_target], first)]
        start = (start - start.mean(axis=0)) / np.sqrt(self.unit_variance[first])
        self.leading = start * self.roots[: self.n_target, None]
        # The diagonal of S is one, whatever part of a feature is left.
        self.n_varying = int(varies.sum())
        self.lost_squared = float(((1 / units**2) ** 2 - (background / self.unit_variance) ** 2)[varies].sum())
        return self
