"""Span solver for many more features than rows, based on the Gram matrix of the rows.

Every component with a positive ratio is a combination of rows, so it suffices to solve a problem of the size of the
rows, and nothing of size features × features is ever formed. One pass over panels of columns (centre, scale by the
background sd, multiply) builds the Gram matrix; a second one turns row coefficients into components. The background
is always shrunk here (ρ > 0), which makes the Gram matrix accurate enough.

Sparse rows have a sparse Gram matrix, from which the means are subtracted afterwards. With rows x and centres c, in
background-sd units, (x − c)·(y − d) = x·y − x·d − c·y + c·d: sparsity is preserved, and the rows are never stored as
a dense matrix.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import blas, block_diag, cho_factor, cho_solve

from standout._accumulate import NEAR_ZERO, SPARSE_COST
from standout._blas import (
    Array,
    add_scatter,
    constant_features,
    mirror,
    n_above,
    product,
    rank_tolerance,
    squared_norm,
    symmetric,
    threads_for,
    times,
    top_eigen,
)
from standout._dataset import Dataset
from standout._shrinkage import Factors, FactorSearch, Shrinkage, start_features, target_axes
from standout.io.memory import explain_non_finite, row_block, sparse_rows, transposed, with_values
from standout.solvers.dense import best_pairs, pays_off
from standout.solvers.problem import Problem
from standout.solvers.solution import Eigenpairs, FeatureScale

# Approximate bytes of one panel of columns: larger panels need fewer passes over the Gram matrix.
_PANEL_BYTES = 32 * 2**20
# Rows of a sparse Gram matrix computed at once.
_GRAM_ROWS = 256
# Returns the result for a key, computed at most once.
Once = Callable[[Any, Callable[[], Any]], Any]
_once: ContextVar[Once | None] = ContextVar("once", default=None)


class Span(FactorSearch):
    """Scaled rows, target rows first, weighted such that their products sum to covariances."""

    gram: Array  # (n_rows, n_rows)
    leading: Array  # (n_target, b): combinations of target rows that start the search for the target's axes
    varies: NDArray[np.bool_] | None = None
    lost_squared = 0.0  # sum of squares of the variance missing from each feature

    @abstractmethod
    def combine(self, coefficients: Array) -> Array:
        """Return combinations of the rows, of shape (n_rows, k), as vectors of features."""

    def candidates(self, count: int) -> Factors:
        """Return axes of large target variance, uncorrelated in the background, with coefficients of the rows."""
        gram, n_target = self.gram, len(self.leading)
        multiply = partial(times, np.asfortranarray(gram[:n_target, :n_target]))
        axes = target_axes(multiply, self.leading, count, metric=multiply)
        seen = product(gram[n_target:, :n_target], axes)  # scores of the background rows
        variances, turn = top_eigen(symmetric(product(seen.T, seen)), axes.shape[1])
        return Factors(product(axes, turn), variances, product(seen, turn))

    def in_features(self, found: Factors) -> Factors:
        """Return factors as vectors of features."""
        vectors, images = np.split(self.combine(block_diag(found.axes, found.image)), 2, axis=1)
        return Factors(vectors, found.variances, images)

    def residual_squared(self, found: Factors, psi: float) -> float:
        """Return tr R² in units of Ψ, in the units of the features."""
        rest = self.gram[len(found.axes) :, len(found.axes) :] - product(found.image, found.image.T)
        return (squared_norm(rest) + self.lost_squared) / psi**2


class RowSpan(Span):
    """The rows of target and backgrounds, and their Gram matrix in background-sd units."""

    def __init__(self, problem: Problem, standardised: bool = True):
        """Read the rows; without ``standardised`` in the units of the data."""
        self.problem, self.mixture, self.standardised = problem, problem.mixture, standardised
        self.datasets = tuple(data.counted() for data in (problem.target, *problem.backgrounds))
        self.n_features = problem.target.n_features
        self.sizes = [len(data.row_weights) for data in self.datasets]
        self.n_target, self.n_rows = self.sizes[0], sum(self.sizes)
        shares = [1.0, *(self.mixture.shares if self.mixture is not None else ())]
        self.weights = [data.row_weights / data.row_weights.sum() for data in self.datasets]
        # Row weights such that products of the weighted rows are covariances.
        self.roots = np.sqrt(np.concatenate([s * w for s, w in zip(shares, self.weights, strict=True)]))
        self.means = np.empty((len(self.datasets), self.n_features))
        self.variances = np.empty((2, self.n_features))  # of target and background
        self.scale = np.empty(self.n_features)  # background sd, target sd where that is zero, 1 where both are
        with np.errstate(all="ignore"):
            self._measure(np.ones(self.n_features))
        self.varies: NDArray[np.bool_] = self.variances[1] > 0

    @property
    def frame(self) -> FeatureScale:
        """The solver's coordinates: every feature, in background-sd units."""
        return FeatureScale(np.arange(self.n_features), self.scale)

    @cached_property
    def rank(self) -> int:
        """The joint rank of target and background."""
        balanced, _ = self.balanced()
        largest, _, _ = best_pairs(balanced, None, 1, vectors=False)
        return n_above(balanced, rank_tolerance(self.n_rows) * float(largest[0]))

    def balanced(self) -> tuple[Array, Array]:
        """Return the Gram matrix of rows divided by the size of target or background, and the divisor of each row."""
        split = self.n_target
        sizes = np.sqrt([np.trace(self.gram[:split, :split]), np.trace(self.gram[split:, split:])])
        norm = np.repeat(np.where(sizes > 0, sizes, 1.0), [split, self.n_rows - split])
        balanced = self.gram / norm
        balanced /= norm[:, None]
        return balanced, norm

    def rescaled(self, units: Array) -> RowSpan:
        """Return this span, of features in background-sd units times ``units``."""
        self._measure(units)
        return self

    def _measure(self, units: Array) -> None:
        """Compute means, variances and the Gram matrix, of features in background-sd units times ``units``."""
        self.gram = np.zeros((self.n_rows, self.n_rows), order="F")
        leading, sizes = np.empty((self.n_target, 0)), np.empty(0)
        for here, panel in self._panels():
            self._standardise(here, panel, units)
            add_scatter(self.gram, panel.T)
            if not math.isfinite(self.variances[:, here].sum() + np.einsum("ii->", self.gram)):
                raise self._non_finite(here)
            # Keep the features that vary most in the target so far, in their order.
            sizes = np.concatenate([sizes, self.variances[0, here] / self.scale[here] ** 2])
            kept, old = np.sort(start_features(sizes, self.n_features)), leading.shape[1]
            new = panel[: self.n_target, kept[kept >= old] - old]
            leading, sizes = np.hstack([leading[:, kept[kept < old]], new]), sizes[kept]
        mirror(self.gram)
        self._finish(leading, sizes)

    def _standardise(self, here: slice, panel: Array, units: Array) -> None:
        """Centre and scale a panel in place, and set means, variances and scale of its features."""
        parts = self._parts(panel)
        for mean, part, weights in zip(self.means, parts, self.weights, strict=True):
            # Relative to the first row, so that a constant feature is exactly zero. scipy's BLAS, not numpy's: two
            # thread pools in one loop compete for cores.
            first = part[0].copy()
            part -= first
            rest = blas.dgemv(1.0, part.T, weights)
            part -= rest
            mean[here] = first + rest
        shift = self.problem.shift(self.means[:, here])
        if shift is not None:
            parts[0] += shift
        variances = [_mean_square(part, weights) for part, weights in zip(parts, self.weights, strict=True)]
        for variance, mean, part in zip(variances, self.means[:, here], parts, strict=True):
            constant = constant_features(variance, mean)
            variance[constant] = 0.0
            part[:, constant] = 0.0
        self._set_scale(here, variances, units)
        panel *= 1 / self.scale[here]

    def _panels(self) -> Iterator[tuple[slice, Array]]:
        """Yield panels of columns of all rows, target rows first; a panel is invalid after the next one is yielded."""
        width = max(16, _PANEL_BYTES // (8 * self.n_rows))
        room = np.empty(self.n_rows * width)
        for start in range(0, self.n_features, width):
            stop = min(start + width, self.n_features)
            panel = room[: self.n_rows * (stop - start)].reshape(self.n_rows, stop - start)
            for data, part in zip(self.datasets, self._parts(panel), strict=True):
                assert data.rows is not None
                part[...] = data.rows.columns(start, stop)
            yield slice(start, stop), panel

    def _parts(self, rows: Array) -> list[Array]:
        """Return the rows of each dataset, as views."""
        return np.split(rows, np.cumsum(self.sizes)[:-1])

    def _centres(self, means: Array) -> Array:
        """Return the centre of each dataset: its mean, or the background's mean for the target if requested."""
        if self.problem.options.own_centre or self.mixture is None:
            return means
        return np.vstack([self.mixture.mixed_means(means[1:]), means[1:]])

    def _set_scale(self, here: slice, variances: Sequence[Array], units: Array) -> None:
        """Set variances and scale of features, from their variances in each dataset."""
        target, background, sd = variances[0], np.zeros_like(variances[0]), np.ones_like(variances[0])
        if self.mixture is not None:
            background = self.mixture.mixed(variances[1:])
        if self.mixture is not None and self.standardised:
            sd = np.sqrt(np.where(background > 0, background, target))
        self.variances[:, here] = target, background
        self.scale[here] = np.where(sd > 0, sd, 1.0) * units[here]

    def _finish(self, leading: Array, sizes: Array) -> None:
        """Multiply rows by their weights; ``leading`` are features with the largest target variances, ``sizes``."""
        n_alive = int(np.count_nonzero(self.variances.sum(axis=0)))
        self.leading = leading[:, start_features(sizes, n_alive)] * self.roots[: self.n_target, None]
        self.gram *= self.roots[:, None]
        self.gram *= self.roots

    def combine(self, coefficients: Array) -> Array:
        """Return ``Zᵀ c`` for row coefficients c, Z the centred and scaled rows."""
        result, weighted = np.empty((self.n_features, coefficients.shape[1])), self.roots[:, None] * coefficients
        centres, factor = self._centres(self.means), (self.variances.sum(axis=0) > 0) / self.scale
        for here, panel in self._panels():
            for part, centre in zip(self._parts(panel), centres[:, here], strict=True):
                part -= centre
            result[here] = (panel.T @ weighted) * factor[here, None]
        return result

    def _non_finite(self, here: slice) -> Exception:
        """Return the error for the dataset with unusable values in these columns."""

        def largest(data: Dataset) -> float:
            assert data.rows is not None
            values = np.asarray(data.rows.columns(here.start, here.stop), dtype=np.float64)
            return float(np.nan_to_num(np.abs(values).max(), nan=np.inf))

        worst = max(self.datasets, key=largest)
        assert worst.rows is not None
        return explain_non_finite(worst.rows, np.empty((0, self.n_features)), worst.role)


def _mean_square(rows: Array, weights: Array) -> Array:
    """Return the weighted mean square of each column; equal weights take half the time."""
    if (weights == weights[0]).all():
        return np.asarray(weights[0] * np.einsum("ij,ij->j", rows, rows))
    return np.asarray(np.einsum("ij,ij,i->j", rows, rows, weights))


class SparseSpan(RowSpan):
    """Span of sparse rows; no Gram matrix if ``near_zero`` is False, because centring would lose precision."""

    def __init__(self, matrices: Sequence[Any], problem: Problem, standardised: bool):
        self.given = matrices
        super().__init__(problem, standardised)

    def _measure(self, units: Array) -> None:
        squares = []
        for rows, weights, mean in zip(self.given, self.weights, self.means, strict=True):
            mean[...] = transposed(rows) @ weights
            squares.append(transposed(with_values(rows, rows.data.astype(np.float64) ** 2)) @ weights)
        centres = self._centres(self.means)
        variances = np.asarray(squares) - centres * (2 * self.means - centres)  # about the centres
        self.near_zero = not (centres**2 > NEAR_ZERO**2 * variances).any()
        self._set_scale(slice(None), list(variances), units)
        bad = np.flatnonzero(~np.isfinite(self.variances.sum(axis=0)))
        if len(bad):
            raise self._non_finite(slice(bad[0], bad[0] + 1))
        if self.near_zero:
            scaled = [with_values(rows, rows.data / self.scale[rows.indices]) for rows in self.given]
            self.matrix, self.centres = sparse.vstack(scaled, format="csr"), centres / self.scale
            self._multiply_rows()
            sizes = self.variances[0] / self.scale**2
            first = np.sort(start_features(sizes))
            self._finish(scaled[0][:, first].toarray() - self.centres[0, first], sizes[first])

    def _multiply_rows(self) -> None:
        """Compute the products of centred rows, one panel of columns of the Gram matrix at a time."""
        self.gram = np.empty((self.n_rows, self.n_rows), order="F")

        def fill(start: int) -> None:
            stop = min(start + _GRAM_ROWS, self.n_rows)
            panel = transposed(row_block(self.matrix, start, stop)).tocsr()
            inner = (row_block(self.matrix, start, self.n_rows) @ panel).toarray()
            self.gram[start:, start:stop] = inner
            self.gram[start:stop, start:] = inner.T

        with ThreadPoolExecutor() as pool:
            list(pool.map(fill, range(0, self.n_rows, _GRAM_ROWS)))  # the list re-raises errors of the threads
        whose = np.repeat(np.arange(len(self.sizes)), self.sizes)
        seen = self.matrix @ self.centres.T  # row · centre of each dataset
        between = self.centres @ self.centres.T
        for row, number in enumerate(whose):  # row by row, to avoid a second matrix of this size
            self.gram[:, row] -= seen[:, number] + seen[row, whose] - between[number, whose]

    def combine(self, coefficients: Array) -> Array:
        """Return ``Zᵀ c`` for row coefficients c, Z the centred and scaled rows."""
        weighted = self.roots[:, None] * coefficients
        sums = np.vstack([part.sum(axis=0) for part in self._parts(weighted)])
        return np.asarray(transposed(self.matrix) @ weighted - self.centres.T @ sums)


@contextmanager
def sharing(once: Once) -> Iterator[None]:
    """Compute what depends on the rows alone once for all fits in this context, with results kept by ``once``."""
    token = _once.set(once)
    try:
        yield
    finally:
        _once.reset(token)


def shared(what: str, problem: Problem, standardised: bool, compute: Callable[[], Any]) -> Any:
    """Return a result that depends on the rows and the shares of a problem only."""
    once = _once.get()
    if once is None:
        return compute()
    # What is kept refers to the problem, so that no other object gets the ids of its sources.
    data = [(id(part.source), id(part.weights)) for part in (problem.target, *problem.backgrounds)]
    shares = None if problem.mixture is None else tuple(problem.mixture.shares)
    key = (what, *data, shares, problem.options.own_centre, standardised)
    return once(key, lambda: (problem, compute()))[1]


def row_span(problem: Problem, standardised: bool = True) -> RowSpan:
    """Return the span of the rows, which may be rescaled."""
    span: RowSpan = copy(shared("span", problem, standardised, lambda: _row_span(problem, standardised)))
    span.means, span.variances, span.scale = span.means.copy(), span.variances.copy(), span.scale.copy()
    return span


def _row_span(problem: Problem, standardised: bool) -> RowSpan:
    """Return the span of rows, with sparse products if these are cheaper, otherwise with dense panels."""
    parts = [data.counted().rows for data in (problem.target, *problem.backgrounds)]
    matrices = [sparse_rows(rows) for rows in parts if rows is not None]
    if all(matrix is not None for matrix in matrices) and _pays_off(matrices):
        found = SparseSpan(matrices, problem, standardised)
        if found.near_zero:
            return found
    return RowSpan(problem, standardised)


def _pays_off(matrices: Sequence[Any]) -> bool:
    """Return whether pairs of entries in the same column are few compared with all pairs of rows."""
    entries = np.bincount(np.concatenate([matrix.indices for matrix in matrices])).astype(float)
    n_rows, n_features = sum(matrix.shape[0] for matrix in matrices), matrices[0].shape[1]
    return bool(SPARSE_COST * (entries @ entries) < float(n_rows) ** 2 * n_features)


class GramProblem:
    """``A v = λ ((1 − ρ) B + ρ (F + ψI)) v`` in row coordinates, a problem of the size of the target rows.

    Let K be the Gram matrix of the rows, with background rows multiplied by √(1 − ρ) and followed by the factors as
    rows multiplied by √ρ, and t = ρψ. The ratios are the eigenvalues of (K_xx − K_xy (t I + K_yy)⁻¹ K_yx)/t.
    """

    def __init__(self, gram: Array, n_target: int, shrinkage: Shrinkage):
        self.gram, self.n_target, self.shrinkage = gram, n_target, shrinkage
        rho, self.ridge = shrinkage.rho, float(shrinkage.rho * shrinkage.psi)
        cross, outer = math.sqrt(1 - rho) * gram[n_target:, :n_target], (1 - rho) * gram[n_target:, n_target:]
        self.factors = None if shrinkage.loadings is None else math.sqrt(rho) * shrinkage.loadings
        if self.factors is not None:
            cross = np.vstack([cross, self.factors.T @ gram[:n_target, :n_target]])
            through = cross @ self.factors
            outer = np.block([[outer, through[: len(outer)]], [through.T]])
        np.einsum("ii->i", outer)[...] += self.ridge
        factor = cho_factor(outer, lower=True, overwrite_a=True, check_finite=False)
        self.cross = cross  # K_yx
        self.solved = np.asarray(cho_solve(factor, cross, check_finite=False))  # (t I + K_yy)⁻¹ K_yx

    def matrix(self) -> Array:
        """Return the matrix whose eigenvalues are the ratios."""
        apart = self.gram[: self.n_target, : self.n_target] - blas.dgemm(1.0, self.cross, self.solved, trans_a=1)
        return np.asfortranarray(apart / self.ridge)

    def coefficients(self, alpha: Array) -> Array:
        """Return components as combinations of rows, (n_rows, k), from eigenvectors of the matrix."""
        explained = self.solved @ alpha
        n_background = len(self.gram) - self.n_target
        target = alpha if self.factors is None else alpha - self.factors @ explained[n_background:]
        background = -math.sqrt(1 - self.shrinkage.rho) * explained[:n_background]
        return np.vstack([target, background]) / self.ridge


def solve(span: RowSpan, shrinkage: Shrinkage, count: int) -> Eigenpairs:
    """Return the top pairs against the shrunk background, or of the target alone without a background."""
    split = span.n_target
    if span.mixture is None:
        ratios, weights, _ = best_pairs(span.gram, None, count, seed=span.problem.options.seed)
    else:
        problem = GramProblem(span.gram, split, shrinkage)
        ratios, alpha, _ = best_pairs(problem.matrix(), None, count, seed=span.problem.options.seed)
        weights = problem.coefficients(alpha)
    ratios = ratios.clip(min=0.0)
    # v = Zᵀ w has background variance λ if α = Z_x v has length λ: scale it to one.
    safe = np.where(ratios > 0, ratios, 1.0)
    weights = weights * np.where(ratios > 0, 1 / np.sqrt(safe), 0.0)
    return _eigenpairs(span, [ratios], weights)[0][0]


def _eigenpairs(span: RowSpan, ratios: Sequence[Array], weights: Array) -> tuple[list[Eigenpairs], Array]:
    """Return pairs for each set of ratios, and all target scores, from pairs as combinations of rows, side by side."""
    image = np.zeros_like(weights)
    image[: span.n_target] = span.gram[: span.n_target] @ weights
    vectors, images = np.split(span.combine(np.hstack([weights, image])), 2, axis=1)
    steps = zip(ratios, np.split(vectors, len(ratios), axis=1), np.split(images, len(ratios), axis=1), strict=True)
    pairs = [
        Eigenpairs(values, own, of_target, of_target / np.where(values > 0, values, 1.0))
        for values, own, of_target in steps
    ]
    return pairs, image[: span.n_target]


def solve_along(span: RowSpan, intensities: Array, count: int, seed: int) -> tuple[list[Eigenpairs], Array, Array]:
    """Return the top pairs for each intensity ρ > 0 of the shrinkage toward the diagonal.

    Also return the pairs as combinations of rows, (n, n_rows, k), and their target scores, (n, n_target, k). There are
    no pairs if the target does not vary along all of them.

    With K_yy = Q diag(μ) Qᵀ and W = Qᵀ K_yx, the matrix of :class:`GramProblem` is K_xx − Wᵀ diag((1 − ρ)/s) W, over ρ,
    with s = (1 − ρ) μ + ρ: the background is decomposed once for all ρ.
    """
    split, gram = span.n_target, span.gram
    sizes, axes = top_eigen(gram[split:, split:], span.n_rows - split)
    seen = np.asfortranarray(product(axes.T, gram[split:, :split]))
    ratios, weights = [], []
    for rho in intensities:
        factors = (1 - rho) / ((1 - rho) * sizes.clip(min=0.0) + rho)
        apart = np.array(gram[:split, :split], order="F")
        apart = blas.dsyrk(-1.0, np.sqrt(factors)[:, None] * seen, beta=1.0, c=apart, trans=1, lower=1, overwrite_c=1)
        # A single matrix-vector product is too little work for a second thread.
        with threads_for(float(split) ** 2 if pays_off(split, count) else math.inf):
            values, alpha, _ = best_pairs(apart, None, count, seed=seed)
        if values[-1] <= rank_tolerance(span.n_rows) * values[0]:
            return [], np.empty(0), np.empty(0)
        coefficients = np.vstack([alpha, -product(axes, factors[:, None] * product(seen, alpha))])
        ratios.append(values / rho)
        weights.append(coefficients / np.sqrt(rho * values))  # such that the background variance is one
    pairs, scores = _eigenpairs(span, ratios, np.hstack(weights))
    return pairs, np.stack(weights), np.stack(np.split(scores, len(ratios), axis=1))
