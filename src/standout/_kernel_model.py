"""Kernels, landmarks, the features that reduce kernel dPCA to linear dPCA, and the fitted model.

Kernels are evaluated in background-sd units: each feature is divided by its sd in the background, so that a
nuisance feature with a large variance does not dominate the distance between rows.

With landmarks z and K = k(z, z) = G Gᵀ, the features φ(x) = G⁻¹ k(z, x) have the kernel as their inner
product (exactly on the span of the landmarks). Means, covariances and ratios of φ are those of the
kernel's feature space, so all functions of moments apply to them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import blas, lapack
from scipy.spatial.distance import cdist

from standout._blas import Array, cholesky, regular_factor, threads_for, top_eigen
from standout._dataset import Dataset, Mixture
from standout._model import Model, fit_model
from standout._moments import Moments
from standout._shrinkage import ROWS_PER_DIMENSION, oas
from standout.errors import (
    ConditionWarning,
    InputError,
    NotEnoughRowsError,
    OverfitWarning,
    RankWarning,
    StructuralWarning,
)
from standout.io.memory import NUMBERS, checked_block, explain_non_finite
from standout.io.source import Source
from standout.solvers.dense import top_pairs
from standout.solvers.minimax import minimax_shares
from standout.solvers.problem import SolveOptions
from standout.solvers.solution import Note, signs

KERNELS = ("rbf", "poly", "linear", "cosine")
# Kernels without a width, which may have fewer dimensions than there are rows: the exact problem is then well-posed.
_BOUNDED = ("linear", "poly", "cosine")

# Eigenvalues below this fraction of the largest are rounding errors.
_NEGLIGIBLE = 1e-12
# Only eigenvalues with some correct digits are counted as dimensions, so that the order of the rows
# cannot change their number and hence the shrinkage.
_DIMENSION = 1e-10
# A kernel matrix with eigenvalues below minus this fraction is not positive semidefinite up to rounding.
_NEGATIVE = 1e-8
# Exponents of rbf whose terms are larger than this lose too many digits to cancellation.
_CANCELLATION = 1e6
# A feature of a row below this fraction of its norm counts as zero.
_UNDERFLOW = 1e-100
# Kernel values whose squares are outside this range cannot be summed, and ratios of variances above this not be used.
_SMALLEST, _LARGEST, _LARGEST_RATIO = 1e-280, 1e300, 1e200
# A kernel matrix is nearly the identity if half of the landmarks have no other landmark with at least this
# similarity (among this many of them).
_SIMILAR, _INSPECTED = 0.05, 200
# Largest number of components considered by n_components="auto".
_MOST_AUTO = 10
# Notes of linear dPCA in the words of a kernel, whose dimensions have no names.
_NOTES = {
    StructuralWarning: "some ratios are infinite: the background does not vary at all in some dimensions of the kernel "
    "in which the target does. If that is an artefact of how the background was recorded, use `shrinkage='oas'`.",
    ConditionWarning: "the background hardly varies in some dimensions of the kernel, so the exact ratios have few "
    "correct digits. Use `shrinkage='oas'`, or a kernel with fewer dimensions.",
}
_ISOLATED = (
    "the kernel matrix is nearly the identity: most rows resemble no other row, so components describe single rows and "
    "the ratios do not carry over to new ones."
)


@dataclass(frozen=True)
class Kernel:
    """A kernel function with its parameters."""

    kind: str | Callable[[Array, Array], Any]
    gamma: float = 1.0
    degree: int = 2
    coef0: float = 1.0

    @property
    def name(self) -> str:
        """The kernel with its parameters, for a summary."""
        if self.kind == "rbf":
            return f"rbf, gamma {self.gamma:.3g}"
        if self.kind == "poly":
            return f"poly, degree {self.degree}, gamma {self.gamma:.3g}, coef0 {self.coef0:g}"
        return self.kind if isinstance(self.kind, str) else getattr(self.kind, "__name__", "callable")

    def between(self, rows: Array, others: Array) -> Array:
        """Return k(x, z) for rows x and others z, of shape (n_rows, n_others), in a new array."""
        if self.kind == "rbf":
            return _rbf(rows, others, self.gamma)
        if self.kind == "linear":
            return _products(rows, others)
        if self.kind == "cosine":
            return _products(_unit(rows), _unit(others))
        if self.kind == "poly":
            base = _products(rows, others, self.gamma)
            base += self.coef0
            return _power(base, self.degree)
        assert callable(self.kind)
        values, shape = np.asarray(self.kind(rows, others)), (len(rows), len(others))
        if values.shape != shape or values.dtype.kind not in NUMBERS:
            raise InputError(
                f"kernel: the callable returned an array of shape {values.shape} and type {values.dtype} for "
                f"{shape[0]} and {shape[1]} rows. Make it return one number for each pair, an array of shape {shape}."
            )
        # A copy, since later steps work in place and the callable may keep its result.
        return np.array(values, dtype=np.float64, order="C")


def _products(rows: Array, others: Array, factor: float = 1.0) -> Array:
    """Return factor·x·z for all pairs; by scipy's BLAS, because numpy's uses another thread pool."""
    product: Array = blas.dgemm(factor, others.T, rows.T, trans_a=1)
    return product.T


def _rbf(rows: Array, others: Array, gamma: float) -> Array:
    """Return exp(−γ|x − z|²); if accurate, the exponent is one product of rows with two additional columns."""
    # The kernel is invariant to shifts, and squares lose fewer digits for centred rows.
    centre = others.mean(axis=0)
    size = rows.shape[1]
    left, right = np.empty((len(rows), size + 2)), np.empty((len(others), size + 2))
    np.subtract(rows, centre, out=left[:, :size])
    left[:, size] = np.einsum("ij,ij->i", left[:, :size], left[:, :size])
    left[:, size + 1] = 1.0
    np.subtract(others, centre, out=right[:, :size])
    right[:, size + 1] = -gamma * np.einsum("ij,ij->i", right[:, :size], right[:, :size])
    right[:, size] = -gamma
    right[:, :size] *= 2 * gamma
    # |x|² − 2x·z + |z|² cancels for rows that are far from the centre and close to each other.
    largest = gamma * left[:, size].max(initial=0.0) - right[:, size + 1].min(initial=0.0)
    exponent = _products(left, right) if largest < _CANCELLATION else -gamma * cdist(rows, others, "sqeuclidean")
    return np.exp(exponent, out=exponent)


def _unit(rows: Array) -> Array:
    length = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return np.asarray(rows / np.where(length > 0, length, 1.0)[:, None])


def _power(base: Array, degree: int) -> Array:
    """Return base**degree by squaring: numpy's power is twenty times slower."""
    if degree == 1:
        return base
    half = _power(base, degree // 2)
    return half * half if degree % 2 == 0 else half * half * base


@dataclass(frozen=True)
class Landmarks:
    """Some rows and a kernel; maps rows to their kernel columns k(x, z)."""

    kernel: Kernel
    rows: Array  # (n_landmarks, n_features), as given
    scale: Array | None = None  # (n_features,): divisor of the rows; None uses them as given

    def columns(self, block: Array) -> Array:
        """Return k(block, landmarks), of shape (n_rows, n_landmarks)."""
        if self.scale is None:
            return self.kernel.between(block, self.rows)
        return self.kernel.between(block / self.scale, self.rows / self.scale)


@dataclass(frozen=True)
class Features:
    """The map φ(x) = G⁻¹ k(z, x): G is triangular if the kernel matrix has full rank, else a basis of its range."""

    landmarks: Landmarks
    at_landmarks: Array  # G, (n_landmarks, rank): row i is φ of landmark i
    inverse: Array | None  # (n_landmarks, rank) such that φ = k @ inverse; None if G is triangular

    @classmethod
    def of(cls, landmarks: Landmarks) -> Features:
        """Factor the landmarks' kernel matrix; directions at rounding level are left out."""
        with threads_for(10.0 * len(landmarks.rows) ** 3), np.errstate(all="ignore"):
            gram = landmarks.columns(landmarks.rows)
            check_finite(gram, "the rows")
            if 0 < np.trace(gram) < _SMALLEST:
                raise InputError(
                    "the kernel gives values so small that their squares underflow. Multiply the features by a common "
                    "factor, or use a larger gamma."
                )
            gram = np.asfortranarray((gram + gram.T) / 2)
            found = cholesky(gram)
            # The 1-norm condition number is never smaller than the spectral one, so this follows the same rule.
            if found is not None and found[1] > _NEGLIGIBLE:
                return cls(landmarks, np.asfortranarray(np.tril(found[0])), None)
            values, vectors = top_eigen(gram, len(gram))
        if values[-1] < -_NEGATIVE * abs(values[0]):
            raise InputError(
                f"kernel: its matrix has a negative eigenvalue ({values[-1]:.3g}, the largest is {values[0]:.3g}), so "
                "it is not an inner product. Use a positive semi-definite kernel."
            )
        kept = values > max(_NEGLIGIBLE * values[0], 0.0)
        root = np.sqrt(values[kept])
        return cls(landmarks, vectors[:, kept] * root, np.asfortranarray(vectors[:, kept] / root))

    @property
    def n_columns(self) -> int:
        """Number of features φ."""
        return int(self.at_landmarks.shape[1])

    def columns(self, block: Array) -> Array:
        """Return φ of the rows of a block, of shape (n_rows, rank)."""
        kernel = self.landmarks.columns(block)
        far = len(kernel) > 0 and kernel.min() < _UNDERFLOW
        result: Array
        if self.inverse is None:
            result = blas.dtrsm(1.0, self.at_landmarks, kernel.T, lower=1, overwrite_b=1)
        else:
            result = blas.dgemm(1.0, self.inverse, kernel.T, trans_a=1)
        if far:  # rows far from a landmark: squares of the remaining values would underflow
            result[np.abs(result) < _UNDERFLOW * np.linalg.norm(self.at_landmarks[0])] = 0.0
        return result.T

    def moments(self, data: Dataset) -> Dataset:
        """Return a dataset with the moments of φ of its rows."""
        assert data.rows is not None
        source = KernelSource(data.rows, self.columns, self.n_columns, data.role)
        moments = Moments.of(source, weights=data.weights, groups=data.group_ids, role=data.role)
        return Dataset(data.role, given=moments)

    def coefficients(self, vectors: Array) -> Array:
        """Return the coefficients over the landmarks, (n_landmarks, k), of directions in feature space."""
        if self.inverse is not None:
            return self.inverse @ vectors
        solved: Array
        solved, _ = lapack.dtrtrs(self.at_landmarks, vectors, lower=1, trans=1)
        return solved

    @property
    def isolated(self) -> bool:
        """Whether the kernel matrix is nearly the identity, because its width is too small for the data."""
        if self.landmarks.kernel.kind in _BOUNDED:  # these have no width
            return False
        unit = _unit(self.at_landmarks)
        some = slice(None, None, max(1, len(unit) // _INSPECTED))
        similarity = _products(unit[some], unit)
        which = np.unique(self.landmarks.rows, axis=0, return_inverse=True)[1].ravel()
        similarity[which[some, None] == which] = 0.0  # the row itself, and copies of it
        return bool(np.median(similarity.max(axis=1)) < _SIMILAR)


class KernelSource(Source):
    """The rows of a source as kernel columns or features, block by block."""

    def __init__(self, source: Source, columns: Callable[[Array], Array], n_columns: int, role: str):
        self.source, self.columns, self.role = source, columns, role
        self.n_features, self.n_rows = n_columns, source.n_rows

    def blocks(self, rows: int) -> Iterator[Array]:
        """Yield the columns of at most ``rows`` rows at a time."""
        for block in self.source.blocks(rows):
            checked_block(block, self.source.n_features, self.role)
            values = np.ascontiguousarray(block, dtype=np.float64)
            with np.errstate(all="ignore"):
                # exp(−∞) is finite, so non-finite rows must be detected before the kernel is applied.
                if not math.isfinite(np.einsum("ij,ij->", values, values)):
                    raise explain_non_finite(self.source, block, self.role)
                with threads_for(float(len(values)) * self.n_features * (values.shape[1] + self.n_features)):
                    columns = self.columns(values)
            check_finite(columns, self.role)
            yield columns


def check_finite(columns: Array, role: str) -> None:
    """Raise an error for kernel values that are NaN, infinite, or too large to be squared."""
    with np.errstate(all="ignore"):
        if not np.einsum("ij,ij->", columns, columns) < _LARGEST:
            raise InputError(
                f"{role}: the kernel gives values that are not finite or whose squares overflow. Divide the features "
                "by a common factor, or use a smaller gamma or degree."
            )


@dataclass(frozen=True, kw_only=True)
class KernelModel(Model):
    """A model whose components are coefficients over landmarks."""

    landmarks: Landmarks

    contrast_method: ClassVar[str] = "kernel dPCA"

    def project(self, source: Source, role: str = "X") -> Array:
        """Return the scores of rows: kernel columns minus their mean over the target, times the coefficients."""
        columns = KernelSource(source, self.landmarks.columns, len(self.landmarks.rows), role)
        return super().project(columns, role)

    @property
    def projection(self) -> Callable[[Source], Any]:
        """The function of rows that returns their scores, which is not affine."""
        return self.project

    @property
    def feature_scale(self) -> Array:
        """Divisor of each feature before the kernel is applied."""
        return np.ones(self.landmarks.rows.shape[1]) if self.landmarks.scale is None else self.landmarks.scale


def solve_kernel(
    data: Sequence[Dataset], features: Features, options: SolveOptions, names: tuple[str, ...] | None
) -> KernelModel:
    """Solve in the features φ, whose moments the datasets (target first) hold, and expand over the landmarks."""
    model = _solve(data, features, options)
    vectors = model.components.T
    # The landmark with the largest absolute score gets a positive one, so that the sign does not depend on row order.
    sign = signs(features.at_landmarks @ vectors - model.mean @ vectors)
    notes = []
    for note in model.notes:
        if note.category is not RankWarning:  # landmarks may be linearly dependent; this loses nothing
            text = note.text.replace("fewer features", "a kernel with fewer dimensions")
            notes.append(Note(note.category, _NOTES.get(note.category, text)))
    if len(data) > 1 and features.isolated:
        remedy = "`gamma='cv'` or a smaller gamma" if features.landmarks.kernel.kind == "rbf" else "a wider kernel"
        notes.append(Note(OverfitWarning, f"{_ISOLATED} Use {remedy}."))
    return KernelModel.of(
        model,
        components=np.ascontiguousarray(features.coefficients(vectors * sign).T),
        patterns=np.empty((model.n_components, 0)),
        mean=features.at_landmarks @ model.mean,
        scale=np.ones(len(features.landmarks.rows)),
        names=names,
        notes=tuple(notes),
        landmarks=features.landmarks,
    )


def _solve(data: Sequence[Dataset], features: Features, options: SolveOptions) -> Model:
    """Solve the exact problem if the kernel has few dimensions, otherwise against the shrunk background."""
    target, *parts = [part.moments for part in data]
    covariance = target.covariance()
    _check_varies("target", covariance, target.mean)
    if not parts:
        return _exact(data, covariance, options)
    counts, names = [part.counts for part in parts], [part.role for part in data[1:]]
    # The weights of "minimax" depend on the shrinkage, which is that of the pooled backgrounds.
    minimax = isinstance(options.mix, str) and options.mix == "minimax"
    mixture = Mixture.of(counts, "pooled" if minimax else options.mix, names)
    background = mixture.covariance(parts)
    _check_varies("background", background, parts[0].mean)
    sizes = np.trace(covariance), np.trace(background)
    if not sizes[0] < _LARGEST_RATIO * sizes[1]:
        raise InputError(
            "the target's kernel values vary so much more than the background's that the ratio of their variances "
            "would overflow. Bring target and background to the same units."
        )
    joint = covariance / sizes[0] + background / sizes[1]
    rank = _count_dimensions(joint)
    kernel, full_rank = features.landmarks.kernel.kind, features.n_columns >= len(features.landmarks.rows)
    exact = options.shrinkage in (None, 0.0)
    if exact and (full_rank or kernel == "rbf"):
        raise InputError(
            f"`shrinkage={options.shrinkage}` requests the exact problem, and this kernel has as many dimensions as "
            "there are rows: in most of them the background rows do not vary, and each has an infinite ratio. Use "
            "`shrinkage='auto'` or a number above 0."
        )
    if exact and mixture.rows < rank:
        raise NotEnoughRowsError(
            f"`shrinkage={options.shrinkage}` requests the exact problem, and the background's "
            f"{sum(count.rows for count in counts)} rows are too few for the {rank} dimensions of this kernel. Use "
            "`shrinkage='auto'`, more background rows or a kernel with fewer dimensions."
        )
    many = kernel in _BOUNDED and not full_rank and mixture.rows >= ROWS_PER_DIMENSION * rank
    if exact or (options.shrinkage == "auto" and many):
        return _exact(data, joint, options)
    if isinstance(options.shrinkage, str):
        # OAS for the background scaled to unit mean variance, not the "auto" of the linear methods: kernel features
        # have no preferred axes.
        squared = float(np.einsum("ij,ij->", background, background) * (rank / sizes[1]) ** 2)
        rho = oas(rank, mixture.effective, squared)
    else:
        rho = float(options.shrinkage or 0.0)
    if minimax and len(parts) > 1:
        shrunk = [_ridged(part.covariance(), rho, rank) for part in parts]
        mixture = Mixture.of(counts, minimax_shares(covariance, shrunk)[0])
        background = mixture.covariance(parts)
    return _shrunk(data, covariance, _ridged(background, rho, rank), mixture, rho, rank, options)


def _check_varies(role: str, covariance: Array, mean: Array) -> None:
    if np.trace(covariance) <= 1e-20 * (mean @ mean):
        raise InputError(
            f"{role}: every feature is constant, or the kernel does not distinguish its rows, so there is no variance "
            "to compare. Check that the right rows were given, or use a larger gamma."
        )


def _count_dimensions(joint: Array) -> int:
    """Count the non-negligible eigenvalues; a Cholesky factor often shows much faster that all are."""
    found = cholesky(joint)
    if found is not None and found[1] > _DIMENSION:
        return len(joint)
    values, _ = top_eigen(joint, len(joint), vectors=False)
    return int((values > _DIMENSION * values[0]).sum())


def _ridged(background: Array, rho: float, rank: int) -> Array:
    """Return (1 − ρ)·C + ρ·μ·I: kernel features have no preferred axes, so a diagonal target is meaningless."""
    shrunk = (1 - rho) * background
    np.einsum("ii->i", shrunk)[...] += rho * np.trace(background) / rank
    return shrunk


def _exact(data: Sequence[Dataset], joint: Array, options: SolveOptions) -> Model:
    """Solve the exact problem within the directions in which the rows vary.

    Functions that are constant on all rows are left out. With them, each component would have an
    arbitrary constant part, and scaling it to unit norm would scale its scores arbitrarily.
    """
    values, vectors = top_eigen(joint, len(joint))
    basis = vectors[:, values > _NEGLIGIBLE * values[0]]
    count = _how_many(options, basis.shape[1], data[0])
    options = replace(options, n_components=count, shrinkage=None, solver="dense")
    model = fit_model([Dataset(part.role, given=part.moments.project(basis)) for part in data], options)
    return replace(model, components=model.components @ basis.T, mean=data[0].moments.mean)


def _shrunk(
    data: Sequence[Dataset], target: Array, background: Array, mixture: Mixture, rho: float, rank: int,
    options: SolveOptions,
) -> Model:  # fmt: skip
    """Solve against the shrunk background, for which no noise edge is known."""
    count = _how_many(options, rank, data[0])
    ratios, vectors = top_pairs(target, regular_factor(background), count)
    length = np.sqrt(np.einsum("ij,ij->j", vectors, vectors))
    undefined = np.full(count, np.nan)
    return Model(
        components=(vectors / length).T,
        patterns=np.empty((count, 0)),
        ratios=ratios,
        unshrunk_ratios=undefined,
        target_variance=ratios / length**2,
        background_variance=1 / length**2,
        mean=data[0].moments.mean,
        scale=np.ones(len(vectors)),
        noise_edge=math.nan,
        top_ratio=math.nan,
        debiased_ratios=undefined,
        shrinkage=rho,
        regime="shrunk",
        mix=mixture.shares,
        rank=rank,
        solver="dense",
        target_counts=data[0].counts,
        background_counts=tuple((part.role, part.counts) for part in data[1:]),
        background_units=mixture.units,
        names=None,
        notes=(),
    )


def _how_many(options: SolveOptions, rank: int, target: Dataset) -> int:
    """Return the number of components; raise an error if fewer than requested exist."""
    limit = min(rank, target.counts.rows - 1)
    if options.n_components is None:
        return limit
    if options.n_components == "auto":
        return min(_MOST_AUTO, limit)
    assert isinstance(options.n_components, int)
    if options.n_components > limit:
        raise InputError(
            f"`n_components={options.n_components}`, but the kernel features of these data have only "
            f"{limit} dimension{'s' if limit != 1 else ''} (target n_samples={target.counts.rows}). Ask for at most "
            f"{limit}, or use another kernel or more landmarks."
        )
    return options.n_components
