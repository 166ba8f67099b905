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
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, cho_factor, cho_solve

from standout._accumulate import NEAR_ZERO, SPARSE_COST
from standout._blas import Array, add_gram, mirror, n_above, product, rank_tolerance, times, top_eigen
from standout._dataset import Dataset, Mixture
from standout._shrinkage import (
    Evidence,
    Factors,
    GramShrinkage,
    intensity,
    mean_residual,
    n_candidates,
    n_shared,
    residual_intensity,
    residual_units,
    residual_weight,
    start_features,
    target_axes,
    uncorrelated,
)
from standout.io.memory import explain_non_finite, row_block, sparse_rows, transposed, with_values
from standout.solvers.dense import lanczos_pairs, pays_off
from standout.solvers.solution import Eigenpairs, FeatureScale

# Approximate bytes of one panel of columns: larger panels need fewer passes over the Gram matrix.
_PANEL_BYTES = 32 * 2**20
_EPS = float(np.finfo(float).eps)
# Rows of the Gram matrix computed at once.
_PANEL = 256


@dataclass(frozen=True)
class Columns:
    """Means and scale of every feature."""

    means: tuple[Array, ...]  # one for each dataset
    target_variance: Array
    background_variance: Array
    scale: Array  # background sd, target sd where the background is constant, 1 where both are


class RowSpan:
    """The rows of target and backgrounds, and their Gram matrix in background-sd units."""

    def __init__(self, target: Dataset, backgrounds: Sequence[Dataset], mixture: Mixture | None, own: bool):
        self.datasets = tuple(data.counted() for data in (target, *backgrounds))
        self.mixture = mixture
        self.own_centre = own
        self.n_features = target.n_features
        self.sizes = [len(data.row_weights) for data in self.datasets]
        self.n_target = self.sizes[0]
        self.n_rows = sum(self.sizes)
        shares = [1.0, *(mixture.shares if mixture is not None else ())]
        self.weights = [data.row_weights / data.row_weights.sum() for data in self.datasets]
        # Row weights such that products of the weighted rows are covariances.
        self.roots = np.sqrt(np.concatenate([s * w for s, w in zip(shares, self.weights, strict=True)]))
        self.gram = np.zeros((self.n_rows, self.n_rows), order="F")
        # The features that vary most in the target, from which the search for shared factors starts.
        self.leading = np.empty((self.n_target, 0))
        self.lost_squared = 0.0
        self.columns = self._measure()

    @property
    def frame(self) -> FeatureScale:
        """The solver's coordinates: every feature, in background-sd units."""
        return FeatureScale(np.arange(self.n_features), self.columns.scale, self.n_features)

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

    def _measure(self) -> Columns:
        """Compute means, variances and the Gram matrix of the scaled rows in one pass over the columns."""
        means = np.empty((len(self.datasets), self.n_features))
        variances = np.empty((2, self.n_features))
        scale = np.empty(self.n_features)
        leading, sizes = np.empty((self.n_target, 0)), np.empty(0)
        with np.errstate(all="ignore"):
            for start, stop, panel in self._panels():
                here = slice(start, stop)
                for number, part in enumerate(self._parts(panel)):
                    # Relative to the first row, so that a constant feature is exactly zero. scipy's BLAS,
                    # not numpy's: two thread pools in one loop compete for cores.
                    first = part[0].copy()
                    part -= first
                    mean = blas.dgemv(1.0, part.T, self.weights[number])
                    part -= mean
                    means[number, here] = first + mean
                if not self.own_centre and self.mixture is not None:
                    panel[: self.n_target] += means[0, here] - self.mixture.mixed_means(means[1:, here])
                variances[:, here] = self._variances(panel, means[:, here])
                scale[here] = self._scale(variances[:, here])
                panel /= scale[here]
                add_gram(self.gram, panel)
                sizes = np.concatenate([sizes, variances[0, here] / scale[here] ** 2])
                first, known = (
                    np.sort(start_features(sizes, self.n_features)),
                    leading.shape[1],
                )  # in the order of the features
                new = panel[: self.n_target, first[first >= known] - known]
                leading, sizes = np.hstack([leading[:, first[first < known]], new]), sizes[first]
                if not math.isfinite(variances[:, here].sum() + np.einsum("ii->", self.gram)):
                    raise self._explained(start, stop)
        mirror(self.gram)
        n_alive = int(np.count_nonzero(variances.sum(axis=0)))
        self.leading = leading[:, start_features(sizes, n_alive)] * self.roots[: self.n_target, None]
        self.gram *= self.roots[:, None]
        self.gram *= self.roots
        return Columns(tuple(means), variances[0], variances[1], scale)

    def _panels(self) -> Iterator[tuple[int, int, Array]]:
        """Yield panels of columns of all rows, target rows first; a panel is invalid after the next one is yielded."""
        width = max(16, _PANEL_BYTES // (8 * self.n_rows))
        room = np.empty(self.n_rows * width)
        for start in range(0, self.n_features, width):
            stop = min(start + width, self.n_features)
            panel = room[: self.n_rows * (stop - start)].reshape(self.n_rows, stop - start)
            for data, part in zip(self.datasets, self._parts(panel), strict=True):
                assert data.rows is not None
                part[...] = data.rows.columns(start, stop)
            yield start, stop, panel

    def _parts(self, panel: Array) -> list[Array]:
        """Return the rows of each dataset in a panel."""
        return np.split(panel, np.cumsum(self.sizes)[:-1])

    def _centre(self, panel: Array, means: Array) -> None:
        """Subtract the mean of each dataset, or the background's mean from the target if requested."""
        centres = means
        if not self.own_centre and self.mixture is not None:
            centres = np.vstack([self.mixture.mixed_means(means[1:]), means[1:]])
        for part, centre in zip(self._parts(panel), centres, strict=True):
            part -= centre

    def _variances(self, panel: Array, means: Array) -> Array:
        """Return target and background variances; values at rounding level are set to zero."""
        parts = [
            np.einsum("ij,ij,i->j", part, part, weights)
            for part, weights in zip(self._parts(panel), self.weights, strict=True)
        ]
        for variance, mean, part in zip(parts, means, self._parts(panel), strict=True):
            constant = np.sqrt(variance) <= 10 * _EPS * np.abs(mean)
            variance[constant] = 0.0
            part[:, constant] = 0.0
        background = self.mixture.mixed(parts[1:]) if self.mixture is not None else np.zeros(panel.shape[1])
        return np.stack([parts[0], background])

    def _scale(self, variances: Array) -> Array:
        if self.mixture is None:
            return np.ones(variances.shape[1])
        sd = np.sqrt(np.where(variances[1] > 0, variances[1], variances[0]))
        return np.where(sd > 0, sd, 1.0)

    def _explained(self, start: int, stop: int) -> Exception:
        """Return the error for the dataset with unusable values in these columns."""

        def badness(data: Dataset) -> float:
            assert data.rows is not None
            largest = np.abs(np.asarray(data.rows.columns(start, stop), dtype=np.float64)).max()
            return np.inf if np.isnan(largest) else float(largest)

        worst = max(self.datasets, key=badness)
        assert worst.rows is not None
        return explain_non_finite(worst.rows, np.empty((0, self.n_features)), worst.role)

    def combine(self, coefficients: Sequence[Array]) -> list[Array]:
        """Return ``Zᵀ c`` for each block of row coefficients, Z the centred and scaled rows."""
        together = self.roots[:, None] * np.hstack(coefficients)
        result = np.empty((self.n_features, together.shape[1]))
        means = np.stack(self.columns.means)
        alive = self.columns.target_variance + self.columns.background_variance > 0
        for start, stop, panel in self._panels():
            self._centre(panel, means[:, start:stop])
            factor = alive[start:stop] / self.columns.scale[start:stop]
            result[start:stop] = (panel.T @ together) * factor[:, None]
        return np.split(result, np.cumsum([block.shape[1] for block in coefficients])[:-1], axis=1)

    def background_variance(self) -> Array:
        """Return the background variance of each feature, in the units of the data."""
        return self.columns.background_variance

    def rescale(self, units: Array) -> None:
        """Additionally divide features by ``units``; this takes another pass for the Gram matrix."""
        columns = self.columns = replace(self.columns, scale=self.columns.scale * units)
        means, alive = np.stack(columns.means), columns.target_variance + columns.background_variance > 0
        first = self._leading_features()
        self.leading = np.empty((self.n_target, len(first)))
        self.gram = np.zeros((self.n_rows, self.n_rows), order="F")
        for start, stop, panel in self._panels():
            self._centre(panel, means[:, start:stop])
            panel *= alive[start:stop] / columns.scale[start:stop]
            add_gram(self.gram, panel)
            here = (first >= start) & (first < stop)
            self.leading[:, here] = panel[: self.n_target, first[here] - start]
        mirror(self.gram)
        self.leading *= self.roots[: self.n_target, None]
        self.gram *= self.roots[:, None]
        self.gram *= self.roots

    def _leading_features(self) -> NDArray[np.intp]:
        """Return the features that vary most in the target."""
        variances = self.columns.target_variance, self.columns.background_variance
        n_alive = int(np.count_nonzero(variances[0] + variances[1]))
        return start_features(variances[0] / self.columns.scale**2, n_alive)

    def correlation_trace_squared(self) -> float:
        """Return tr S² of the background correlation matrix, from its Gram matrix."""
        inner = self.gram[self.n_target :, self.n_target :]
        return float(np.einsum("ij,ij->", inner, inner))


class Span(Protocol):
    """Scaled rows, target rows first, weighted such that their products sum to covariances."""

    gram: Array  # (n_rows, n_rows)
    leading: Array  # (n_target, b): combinations of target rows that start the search for the target's axes
    lost_squared: float  # sum of squares of the variance missing from each feature

    def background_variance(self) -> Array | None:
        """Return the background variance of each feature, zero if it is constant; None if features are unknown."""
        ...

    def combine(self, coefficients: Sequence[Array]) -> list[Array]:
        """Return combinations of rows as vectors of features."""
        ...

    def rescale(self, units: Array) -> None:
        """Divide features by ``units``."""
        ...


def gram_shrinkage(span: Span, evidence: Evidence, dimensions: int) -> GramShrinkage:
    """Return the "auto" estimate of the background: :func:`standout._shrinkage.factor_shrinkage` among rows.

    Parameters
    ----------
    span : Span
        The rows in background-sd units. Features are rescaled to residual units if the factors explain most of
        the variance.
    evidence : Evidence
        Size of the background.
    dimensions : int
        Largest number of dimensions the target rows can span.
    """
    most = n_candidates(evidence, dimensions)
    none = GramShrinkage(intensity("auto", evidence))
    if most == 0:
        return none
    n_varying, total = evidence.n_varying, float(evidence.n_varying)
    axes, seen, variances = _candidates(span, most)
    count = n_shared(variances, evidence, total)
    weight = residual_weight(float(variances[:count].sum()) / total)
    variance = span.background_variance() if weight > 0 else None
    if variance is not None:
        n_target, n_background = len(axes), len(seen)
        vectors, images = span.combine(
            [np.pad(axes, ((0, n_background), (0, 0))), np.pad(seen, ((n_target, 0), (0, 0)))]
        )
        units = residual_units(Factors(vectors, variances, images), variance, evidence, weight)
        if units is not None:
            span.rescale(units)
            total = float((1 / units**2)[variance > 0].sum())
            axes, seen, variances = _candidates(span, most)
            count = n_shared(variances, evidence, total)
    if count == 0:
        return none
    axes, seen, variances = axes[:, :count], seen[:, :count], variances[:count]
    explained, n_target = float(variances.sum()), len(axes)
    level = mean_residual(n_varying, explained, count, total)
    rest = span.gram[n_target:, n_target:] - product(seen, seen.T)
    squared = (float(np.einsum("ij,ij->", rest, rest)) + span.lost_squared) / level**2
    rho = residual_intensity(evidence, count, (total - explained) / level, squared)
    return GramShrinkage(rho, level, axes * np.sqrt(variances))


def _candidates(span: Span, count: int) -> tuple[Array, Array, Array]:
    """Return axes of large target variance, uncorrelated in the background, as combinations of target rows.

    Also return the scores of the background rows along them, and the background variances, largest first.
    """
    gram, n_target = span.gram, len(span.leading)
    inner, cross = np.asfortranarray(gram[:n_target, :n_target]), gram[n_target:, :n_target]
    multiply = partial(times, inner)
    axes = target_axes(multiply, span.leading, count, metric=multiply)
    seen = product(cross, axes)
    variances, turn = uncorrelated(product(seen.T, seen))
    return product(axes, turn), product(seen, turn), variances


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
    def _cross(self) -> Array:
        """K_yx, with the rows of the factors last."""
        cross = math.sqrt(1 - self.shrinkage.rho) * self.gram[self.n_target :, : self.n_target]
        return cross if self._factors is None else np.vstack([cross, self._factors.T @ self._inner])

    @property
    def _inner(self) -> Array:
        return self.gram[: self.n_target, : self.n_target]

    @cached_property
    def _factors(self) -> Array | None:
        factors = self.shrinkage.factors
        return None if factors is None else math.sqrt(self.shrinkage.rho) * factors

    @cached_property
    def _explained(self) -> Array:
        """(t I + K_yy)⁻¹ K_yx."""
        rho = self.shrinkage.rho
        outer = (1 - rho) * self.gram[self.n_target :, self.n_target :]
        if self._factors is not None:
            through = self._cross @ self._factors
            outer = np.block([[outer, through[: len(outer)]], [through.T]])
        np.einsum("ii->i", outer)[...] += rho * self.shrinkage.level
        factor = cho_factor(outer, lower=True, overwrite_a=True, check_finite=False)
        return np.asarray(cho_solve(factor, self._cross, check_finite=False))

    def matrix(self) -> Array:
        """Return the matrix whose eigenvalues are the ratios."""
        explained = blas.dgemm(1.0, self._cross, self._explained, trans_a=1)
        return np.asfortranarray((self._inner - explained) / (self.shrinkage.rho * self.shrinkage.level))

    def coefficients(self, alpha: Array) -> Array:
        """Return components as combinations of rows, (n_rows, k), from eigenvectors of the matrix."""
        explained = self._explained @ alpha
        n_background = len(self.gram) - self.n_target
        target = alpha if self._factors is None else alpha - self._factors @ explained[n_background:]
        background = math.sqrt(1 - self.shrinkage.rho) * explained[:n_background]
        return np.vstack([target, -background]) / (self.shrinkage.rho * self.shrinkage.level)


def solve(span: RowSpan, shrinkage: GramShrinkage, count: int) -> Eigenpairs:
    """Return the top pairs against the shrunk background, or of the target alone without a background."""
    split = span.n_target
    if span.mixture is None:
        ratios, alpha = top_eigen(span.gram[:split, :split], count)
        weights = np.vstack([alpha])
    else:
        problem = GramProblem(span.gram, split, shrinkage)
        ratios, alpha = top_eigen(problem.matrix(), count)
        weights = problem.coefficients(alpha)
    ratios = ratios.clip(min=0.0)
    # v = Zᵀ w has background variance λ if α = Z_x v has length λ: scale it to one.
    with np.errstate(divide="ignore", invalid="ignore"):
        length = np.where(ratios > 0, 1 / np.sqrt(ratios), 0.0)
    seen_target = (span.gram @ weights)[:split] * length
    image = np.zeros_like(weights)
    image[:split] = seen_target
    vectors, target_image = span.combine([weights * length, image])
    safe = np.where(ratios > 0, ratios, 1.0)
    return Eigenpairs(ratios, vectors, target_image, target_image / safe)


def row_span(target: Dataset, backgrounds: Sequence[Dataset], mixture: Mixture | None, own: bool) -> RowSpan:
    """Return the span of rows, with sparse products if these are cheaper, otherwise with dense panels."""
    parts = [data.counted().rows for data in (target, *backgrounds)]
    matrices = [None if rows is None else sparse_rows(rows) for rows in parts]
    if all(matrix is not None for matrix in matrices) and _pays_off(matrices):
        found = SparseSpan(target, backgrounds, mixture, own, matrices)
        if found.near_zero:
            return found
    return RowSpan(target, backgrounds, mixture, own)


def _pays_off(matrices: Sequence[Any]) -> bool:
    """Return whether pairs of entries in the same column are few compared with all pairs of rows."""
    n_rows, n_features = sum(matrix.shape[0] for matrix in matrices), matrices[0].shape[1]
    entries = np.zeros(n_features)
    for matrix in matrices:
        entries += np.bincount(matrix.indices, minlength=n_features)
    return bool(SPARSE_COST * (entries @ entries) < float(n_rows) ** 2 * n_features)


class SparseSpan(RowSpan):
    """Span of sparse rows; no Gram matrix if ``near_zero`` is False, because centring would lose precision."""

    def __init__(
        self,
        target: Dataset,
        backgrounds: Sequence[Dataset],
        mixture: Mixture | None,
        own: bool,
        matrices: Sequence[Any],
    ):
        self.matrices = [with_values(matrix, matrix.data.astype(np.float64, copy=False)) for matrix in matrices]
        self.near_zero = True
        super().__init__(target, backgrounds, mixture, own)

    def _measure(self) -> Columns:
        with np.errstate(all="ignore"):
            means = [transposed(rows) @ share for rows, share in zip(self.matrices, self.weights, strict=True)]
            self._centres = self._centres_of(np.stack(means))
            parts = [self._variance(number, mean) for number, mean in enumerate(means)]
            background = self.mixture.mixed(parts[1:]) if self.mixture is not None else np.zeros(self.n_features)
            variances = np.stack([parts[0], background])
            scale = self._scale(variances)
            self._check(variances)
        self.columns = Columns(tuple(means), variances[0], variances[1], scale)
        if self.near_zero:
            self._divide(scale)
        return self.columns

    def rescale(self, units: Array) -> None:
        """Additionally divide features by ``units``; this recomputes the Gram matrix."""
        self.columns = replace(self.columns, scale=self.columns.scale * units)
        self._divide(units)

    def _divide(self, scale: Array) -> None:
        """Divide features by a scale, and compute the Gram matrix."""
        self.matrices = [with_values(rows, rows.data / scale[rows.indices]) for rows in self.matrices]
        self._centres /= scale
        self._multiply()
        self._take_off_centres()
        first = self._leading_features()
        leading = transposed(transposed(self.matrices[0]).tocsr()[first]).toarray() - self._centres[0, first]
        self.leading = leading * self.roots[: self.n_target, None]

    def _centres_of(self, means: Array) -> Array:
        """Return the centre of each dataset."""
        if self.own_centre or self.mixture is None:
            return means
        return np.vstack([self.mixture.mixed_means(means[1:]), means[1:]])

    def _variance(self, number: int, mean: Array) -> Array:
        """Return the mean square about the centre; record whether the centre is so large that precision is lost."""
        rows, centre, weights = self.matrices[number], self._centres[number], self.weights[number]
        square = transposed(with_values(rows, rows.data * rows.data)) @ weights
        variance = np.asarray(square - centre * (2 * mean - centre))
        if (centre * centre > NEAR_ZERO**2 * variance).any():
            self.near_zero = False
        return variance

    def _check(self, variances: Array) -> None:
        told = variances.sum(axis=0)
        if not math.isfinite(told.sum()):
            worst = int(np.flatnonzero(~np.isfinite(told))[0])
            raise self._explained(worst, worst + 1)

    def _multiply(self) -> None:
        """Fill the Gram matrix with products of rows, one panel of its columns at a time."""
        starts = np.concatenate([[0], np.cumsum(self.sizes)])

        def fill(number: int, start: int) -> None:
            stop = min(start + _PANEL, self.sizes[number])
            panel = transposed(row_block(self.matrices[number], start, stop)).tocsr()
            here = slice(starts[number] + start, starts[number] + stop)
            for other in range(number, len(self.matrices)):
                first = start if other == number else 0
                product = (row_block(self.matrices[other], first, self.sizes[other]) @ panel).toarray()
                below = slice(starts[other] + first, starts[other + 1])
                self.gram[below, here] = product
                self.gram[here, below] = product.T

        with ThreadPoolExecutor() as pool:
            tasks = [
                pool.submit(fill, number, start)
                for number, size in enumerate(self.sizes)
                for start in range(0, size, _PANEL)
            ]
            for task in tasks:
                task.result()

    def _take_off_centres(self) -> None:
        """Turn products of rows into products of centred, weighted rows."""
        whose = np.repeat(np.arange(len(self.sizes)), self.sizes)
        seen = np.vstack([rows @ self._centres.T for rows in self.matrices])  # row · centre of each dataset
        for row, number in enumerate(whose):  # row by row, to avoid a second matrix of this size
            self.gram[:, row] -= seen[:, number] + seen[row, whose] - (self._centres @ self._centres[number])[whose]
        self.gram *= self.roots[:, None]
        self.gram *= self.roots

    def combine(self, coefficients: Sequence[Array]) -> list[Array]:
        """Return ``Zᵀ c`` for each block of row coefficients, Z the centred and scaled rows."""
        together = self.roots[:, None] * np.hstack(coefficients)
        result = np.zeros((self.n_features, together.shape[1]))
        for rows, centre, part in zip(self.matrices, self._centres, self._parts(together), strict=True):
            result += transposed(rows) @ part
            result -= np.outer(centre, part.sum(axis=0))
        return np.split(result, np.cumsum([block.shape[1] for block in coefficients])[:-1], axis=1)
