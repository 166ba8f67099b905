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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.linalg import blas, cho_factor, cho_solve

from standout._accumulate import NEAR_ZERO, SPARSE_COST
from standout._blas import (
    Array,
    add_gram,
    constant_features,
    mirror,
    n_above,
    product,
    rank_tolerance,
    times,
    top_eigen,
)
from standout._dataset import Dataset, Mixture
from standout._shrinkage import (
    Evidence,
    Factors,
    GramShrinkage,
    find_factors,
    intensity,
    residual_intensity,
    start_features,
    target_axes,
    uncorrelated,
)
from standout.io.memory import explain_non_finite, row_block, sparse_rows, transposed, with_values
from standout.solvers.dense import lanczos_pairs, pays_off
from standout.solvers.solution import Eigenpairs, FeatureScale

# Approximate bytes of one panel of columns: larger panels need fewer passes over the Gram matrix.
_PANEL_BYTES = 32 * 2**20
# Rows of a sparse Gram matrix computed at once.
_GRAM_ROWS = 256


class Span:
    """Scaled rows, target rows first, weighted such that their products sum to covariances."""

    gram: Array  # (n_rows, n_rows)
    leading: Array  # (n_target, b): combinations of target rows that start the search for the target's axes
    lost_squared = 0.0  # sum of squares of the variance missing from each feature

    @property
    def background_variance(self) -> Array | None:
        """The background variance of each feature, zero if it is constant; None if features are unknown."""
        raise NotImplementedError

    def combine(self, coefficients: Sequence[Array]) -> list[Array]:
        """Return combinations of rows as vectors of features."""
        raise NotImplementedError

    def rescaled(self, units: Array) -> Span:
        """Return the span of features divided by ``units``, which may replace this one."""
        raise NotImplementedError

    def candidates(self, count: int) -> Factors:
        """Return axes of large target variance, uncorrelated in the background, with coefficients of the rows."""
        gram, n_target = self.gram, len(self.leading)
        multiply = partial(times, np.asfortranarray(gram[:n_target, :n_target]))
        axes = target_axes(multiply, self.leading, count, metric=multiply)
        seen = product(gram[n_target:, :n_target], axes)  # scores of the background rows
        variances, turn = uncorrelated(product(seen.T, seen))
        return Factors(product(axes, turn), variances, product(seen, turn))

    def in_features(self, found: Factors) -> Factors:
        """Return factors as vectors of features."""
        n_target, n_background = len(found.axes), len(found.image)
        padded = np.pad(found.axes, ((0, n_background), (0, 0))), np.pad(found.image, ((n_target, 0), (0, 0)))
        vectors, images = self.combine(padded)
        return Factors(vectors, found.variances, images)


class RowSpan(Span):
    """The rows of target and backgrounds, and their Gram matrix in background-sd units."""

    def __init__(self, target: Dataset, backgrounds: Sequence[Dataset], mixture: Mixture | None, own: bool):
        self.datasets = tuple(data.counted() for data in (target, *backgrounds))
        self.mixture = mixture
        self.own_centre = own or mixture is None
        self.n_features = target.n_features
        self.sizes = [len(data.row_weights) for data in self.datasets]
        self.n_target, self.n_rows = self.sizes[0], sum(self.sizes)
        shares = [1.0, *(mixture.shares if mixture is not None else ())]
        self.weights = [data.row_weights / data.row_weights.sum() for data in self.datasets]
        # Row weights such that products of the weighted rows are covariances.
        self.roots = np.sqrt(np.concatenate([s * w for s, w in zip(shares, self.weights, strict=True)]))
        self.means = np.empty((len(self.datasets), self.n_features))
        self.variances = np.empty((2, self.n_features))  # of target and background
        self.scale = np.empty(self.n_features)  # background sd, target sd where that is zero, 1 where both are
        with np.errstate(all="ignore"):
            self._measure(np.ones(self.n_features))

    @property
    def frame(self) -> FeatureScale:
        """The solver's coordinates: every feature, in background-sd units."""
        return FeatureScale(np.arange(self.n_features), self.scale, self.n_features)

    @cached_property
    def rank(self) -> int:
        """The joint rank, from the Gram matrix with target and background scaled to similar size."""
        split = self.n_target
        sizes = np.sqrt([np.trace(self.gram[:split, :split]), np.trace(self.gram[split:, split:])])
        norm = np.repeat(np.where(sizes > 0, sizes, 1.0), [split, self.n_rows - split])
        balanced = self.gram / norm
        balanced /= norm[:, None]
        found = lanczos_pairs(balanced, None, 1, vectors=False) if pays_off(self.n_rows, 1) else None
        largest = (top_eigen(balanced, 1, vectors=False) if found is None else found)[0][0]
        return n_above(balanced, rank_tolerance(self.n_rows) * float(largest))

    @property
    def background_variance(self) -> Array:
        """The background variance of each feature, in the units of the data."""
        return np.asarray(self.variances[1])

    def combine(self, coefficients: Sequence[Array]) -> list[Array]:
        """Return ``Zᵀ c`` for each block of row coefficients, Z the centred and scaled rows."""
        result = self._combine(self.roots[:, None] * np.hstack(coefficients))
        return np.split(result, np.cumsum([block.shape[1] for block in coefficients])[:-1], axis=1)

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
            add_gram(self.gram, panel)
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
        if not self.own_centre:
            parts[0] += self.means[0, here] - self._centres(self.means[:, here])[0]
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
        if self.own_centre or self.mixture is None:
            return means
        return np.vstack([self.mixture.mixed_means(means[1:]), means[1:]])

    def _set_scale(self, here: slice, variances: Sequence[Array], units: Array) -> None:
        """Set variances and scale of features, from their variances in each dataset."""
        target, background, sd = variances[0], np.zeros_like(variances[0]), np.ones_like(variances[0])
        if self.mixture is not None:
            background = self.mixture.mixed(variances[1:])
            sd = np.sqrt(np.where(background > 0, background, target))
        self.variances[:, here] = target, background
        self.scale[here] = np.where(sd > 0, sd, 1.0) * units[here]

    def _finish(self, leading: Array, sizes: Array) -> None:
        """Multiply rows by their weights; ``leading`` are features with the largest target variances, ``sizes``."""
        n_alive = int(np.count_nonzero(self.variances.sum(axis=0)))
        self.leading = leading[:, start_features(sizes, n_alive)] * self.roots[: self.n_target, None]
        self.gram *= self.roots[:, None]
        self.gram *= self.roots

    def _combine(self, coefficients: Array) -> Array:
        result = np.empty((self.n_features, coefficients.shape[1]))
        centres, factor = self._centres(self.means), (self.variances.sum(axis=0) > 0) / self.scale
        for here, panel in self._panels():
            for part, centre in zip(self._parts(panel), centres[:, here], strict=True):
                part -= centre
            result[here] = (panel.T @ coefficients) * factor[here, None]
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

    def __init__(self, matrices: Sequence[Any], *data: Any):
        self.given = matrices
        super().__init__(*data)

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
            self.matrices = [with_values(rows, rows.data / self.scale[rows.indices]) for rows in self.given]
            self.centres = centres / self.scale
            self._multiply_rows()
            sizes = self.variances[0] / self.scale**2
            first = np.sort(start_features(sizes))
            self._finish(self.matrices[0][:, first].toarray() - self.centres[0, first], sizes[first])

    def _multiply_rows(self) -> None:
        """Compute the products of centred rows, one panel of columns of the Gram matrix at a time."""
        self.gram = np.empty((self.n_rows, self.n_rows), order="F")
        starts = np.concatenate([[0], np.cumsum(self.sizes)])

        def fill(number: int, start: int) -> None:
            stop = min(start + _GRAM_ROWS, self.sizes[number])
            panel = transposed(row_block(self.matrices[number], start, stop)).tocsr()
            here = slice(starts[number] + start, starts[number] + stop)
            for other in range(number, len(self.matrices)):
                first = start if other == number else 0
                inner = (row_block(self.matrices[other], first, self.sizes[other]) @ panel).toarray()
                below = slice(starts[other] + first, starts[other + 1])
                self.gram[below, here] = inner
                self.gram[here, below] = inner.T

        panels = [(number, start) for number, size in enumerate(self.sizes) for start in range(0, size, _GRAM_ROWS)]
        with ThreadPoolExecutor() as pool:
            list(pool.map(fill, *zip(*panels, strict=True)))  # the list re-raises errors of the threads
        whose = np.repeat(np.arange(len(self.sizes)), self.sizes)
        seen = np.vstack([rows @ self.centres.T for rows in self.matrices])  # row · centre of each dataset
        between = self.centres @ self.centres.T
        for row, number in enumerate(whose):  # row by row, to avoid a second matrix of this size
            self.gram[:, row] -= seen[:, number] + seen[row, whose] - between[number, whose]

    def _combine(self, coefficients: Array) -> Array:
        result = np.zeros((self.n_features, coefficients.shape[1]))
        for rows, centre, part in zip(self.matrices, self.centres, self._parts(coefficients), strict=True):
            result += transposed(rows) @ part
            result -= np.outer(centre, part.sum(axis=0))
        return result


def row_span(target: Dataset, backgrounds: Sequence[Dataset], mixture: Mixture | None, own: bool) -> RowSpan:
    """Return the span of rows, with sparse products if these are cheaper, otherwise with dense panels."""
    parts = [data.counted().rows for data in (target, *backgrounds)]
    matrices = [sparse_rows(rows) for rows in parts if rows is not None]
    if all(matrix is not None for matrix in matrices) and _pays_off(matrices):
        found = SparseSpan(matrices, target, backgrounds, mixture, own)
        if found.near_zero:
            return found
    return RowSpan(target, backgrounds, mixture, own)


def _pays_off(matrices: Sequence[Any]) -> bool:
    """Return whether pairs of entries in the same column are few compared with all pairs of rows."""
    entries = np.bincount(np.concatenate([matrix.indices for matrix in matrices])).astype(float)
    n_rows, n_features = sum(matrix.shape[0] for matrix in matrices), matrices[0].shape[1]
    return bool(SPARSE_COST * (entries @ entries) < float(n_rows) ** 2 * n_features)


def gram_shrinkage(span: Span, evidence: Evidence, dimensions: int) -> GramShrinkage:
    """Return the "auto" estimate of the background: :func:`standout._shrinkage.factor_shrinkage` among rows.

    ``dimensions`` is the largest number of dimensions that the target rows can span. Features of the span are rescaled
    to residual units if the factors explain most of the variance.
    """
    found = find_factors(span, evidence, dimensions)
    if found is None:
        return GramShrinkage(intensity("auto", evidence))
    n_target, seen = len(found.axes), found.image
    level, trace = found.mean_residual(evidence)
    rest = span.gram[n_target:, n_target:] - product(seen, seen.T)
    squared = (float(np.einsum("ij,ij->", rest, rest)) + span.lost_squared) / level**2
    rho = residual_intensity(evidence, len(found.variances), trace, squared)
    return GramShrinkage(rho, level, found.axes * np.sqrt(found.variances))


@dataclass(frozen=True)
class GramProblem:
    """``A v = λ ((1 − ρ) B + ρ (F + level·I)) v`` in row coordinates, a problem of the size of the target rows.

    Let K be the Gram matrix of the rows, with background rows multiplied by √(1 − ρ) and followed by the factors as
    rows multiplied by √ρ, and t = ρ·level. The ratios are the eigenvalues of (K_xx − K_xy (t I + K_yy)⁻¹ K_yx)/t.
    """

    gram: Array
    n_target: int
    shrinkage: GramShrinkage

    @cached_property
    def _factors(self) -> Array | None:
        factors = self.shrinkage.factors
        return None if factors is None else math.sqrt(self.shrinkage.rho) * factors

    @cached_property
    def _background(self) -> tuple[Array, Array]:
        """K_yx and (t I + K_yy)⁻¹ K_yx."""
        rho, split = self.shrinkage.rho, self.n_target
        cross, outer = math.sqrt(1 - rho) * self.gram[split:, :split], (1 - rho) * self.gram[split:, split:]
        if self._factors is not None:
            cross = np.vstack([cross, self._factors.T @ self.gram[:split, :split]])
            through = cross @ self._factors
            outer = np.block([[outer, through[: len(outer)]], [through.T]])
        np.einsum("ii->i", outer)[...] += rho * self.shrinkage.level
        factor = cho_factor(outer, lower=True, overwrite_a=True, check_finite=False)
        return cross, np.asarray(cho_solve(factor, cross, check_finite=False))

    def matrix(self) -> Array:
        """Return the matrix whose eigenvalues are the ratios."""
        apart = self.gram[: self.n_target, : self.n_target] - blas.dgemm(1.0, *self._background, trans_a=1)
        return np.asfortranarray(apart / (self.shrinkage.rho * self.shrinkage.level))

    def coefficients(self, alpha: Array) -> Array:
        """Return components as combinations of rows, (n_rows, k), from eigenvectors of the matrix."""
        explained = self._background[1] @ alpha
        n_background = len(self.gram) - self.n_target
        target = alpha if self._factors is None else alpha - self._factors @ explained[n_background:]
        background = -math.sqrt(1 - self.shrinkage.rho) * explained[:n_background]
        return np.vstack([target, background]) / (self.shrinkage.rho * self.shrinkage.level)


def solve(span: RowSpan, shrinkage: GramShrinkage, count: int) -> Eigenpairs:
    """Return the top pairs against the shrunk background, or of the target alone without a background."""
    split = span.n_target
    if span.mixture is None:
        ratios, weights = top_eigen(span.gram, count)
    else:
        problem = GramProblem(span.gram, split, shrinkage)
        ratios, alpha = top_eigen(problem.matrix(), count)
        weights = problem.coefficients(alpha)
    ratios = ratios.clip(min=0.0)
    # v = Zᵀ w has background variance λ if α = Z_x v has length λ: scale it to one.
    safe = np.where(ratios > 0, ratios, 1.0)
    weights = weights * np.where(ratios > 0, 1 / np.sqrt(safe), 0.0)
    image = np.zeros_like(weights)
    image[:split] = span.gram[:split] @ weights
    vectors, target_image = span.combine([weights, image])
    return Eigenpairs(ratios, vectors, target_image, target_image / safe)
