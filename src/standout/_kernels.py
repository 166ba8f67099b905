"""Kernels, landmarks, and the features that reduce kernel dPCA to linear dPCA.

Kernels are evaluated in background-sd units: each feature is divided by its sd in the background, so that a
nuisance feature with a large variance does not dominate the distance between rows.

With landmarks z and K = k(z, z) = G Gᵀ, the features φ(x) = G⁻¹ k(z, x) have the kernel as their inner
product (exactly on the span of the landmarks). Means, covariances and ratios of φ are those of the
kernel's feature space, so all functions of moments apply to them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack
from scipy.spatial.distance import cdist, pdist

from standout._blas import Array, cholesky, threads_for, top_eigen
from standout._dataset import Dataset, Mixture
from standout.errors import InputError
from standout.io.memory import NUMBERS, checked_block, explain_non_finite, weighted_blocks
from standout.io.source import Source

KERNELS = ("rbf", "poly", "linear", "cosine")

# Directions of the landmarks' kernel matrix below this fraction of the largest are rounding errors.
_NEGLIGIBLE = 1e-12
# Exponents of rbf whose terms are larger than this lose too many digits to cancellation.
_FAR = 1e6
# A kernel matrix with eigenvalues below minus this fraction is not positive semidefinite up to rounding.
_NEGATIVE = 1e-8
# An sd below this fraction of the mean is rounding error: the feature is constant.
_CONSTANT = 10 * float(np.finfo(np.float64).eps)
# A feature of a row below this fraction of its norm counts as zero.
_NOTHING = 1e-100
# Kernel values whose squares are outside this range cannot be summed.
_SMALLEST, _LARGEST = 1e-280, 1e300
# A kernel matrix is nearly the identity if half of the landmarks have no other landmark with at least this
# similarity (among this many of them).
_SIMILAR = 0.05
_INSPECTED = 200


@dataclass(frozen=True)
class Kernel:
    """A kernel function with its parameters.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[0.0, 0.0], [3.0, 4.0]])
    >>> Kernel("poly", gamma=1.0, degree=2, coef0=1.0).between(rows, rows)
    array([[  1.,   1.],
           [  1., 676.]])
    """

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
        return _checked(self.kind(rows, others), (len(rows), len(others)))


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
    exponent = _products(left, right) if largest < _FAR else -gamma * cdist(rows, others, "sqeuclidean")
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


def _checked(values: Any, shape: tuple[int, int]) -> Array:
    array = np.asarray(values)
    if array.shape != shape or array.dtype.kind not in NUMBERS:
        raise InputError(
            f"kernel: the callable returned values of type {array.dtype} and shape {array.shape} for {shape[0]} and "
            f"{shape[1]} rows. Make it return one number for each pair, an array of shape {shape}."
        )
    # A copy, since later steps work in place and the callable may keep its result.
    return np.array(array, dtype=np.float64, order="C")


@dataclass(frozen=True)
class Landmarks:
    """Some rows and a kernel; maps rows to their kernel columns k(x, z)."""

    kernel: Kernel
    rows: Array  # (n_landmarks, n_features), as given
    scale: Array | None = None  # (n_features,): divisor of the rows; None uses them as given

    @property
    def n_columns(self) -> int:
        """Number of landmarks."""
        return len(self.rows)

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
        with threads_for(10.0 * landmarks.n_columns**3), np.errstate(all="ignore"):
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
        far = len(kernel) > 0 and kernel.min() < _NOTHING
        result: Array
        if self.inverse is None:
            result = blas.dtrsm(1.0, self.at_landmarks, kernel.T, lower=1, overwrite_b=1)
        else:
            result = blas.dgemm(1.0, self.inverse, kernel.T, trans_a=1)
        if far:  # rows far from a landmark: squares of the remaining values would underflow
            result[np.abs(result) < _NOTHING * np.linalg.norm(self.at_landmarks[0])] = 0.0
        return result.T

    def coefficients(self, vectors: Array) -> Array:
        """Return the coefficients over the landmarks, (n_landmarks, k), of directions in feature space."""
        if self.inverse is not None:
            return self.inverse @ vectors
        solved: Array
        solved, _ = lapack.dtrtrs(self.at_landmarks, vectors, lower=1, trans=1)
        return solved

    @property
    def full_rank(self) -> bool:
        """Whether all landmarks are linearly independent: the kernel then has as many dimensions as there are rows."""
        return self.n_columns >= self.landmarks.n_columns

    @property
    def isolated(self) -> bool:
        """Whether the kernel matrix is nearly the identity, because its width is too small for the data."""
        if self.landmarks.kernel.kind in ("linear", "poly", "cosine"):  # these have no width
            return False
        unit = _unit(self.at_landmarks)
        some = slice(None, None, max(1, len(unit) // _INSPECTED))
        similarity = _products(unit[some], unit)
        which = np.unique(self.landmarks.rows, axis=0, return_inverse=True)[1].ravel()
        similarity[which[some, None] == which] = 0.0  # the row itself, and copies of it
        return bool(np.median(similarity.max(axis=1)) < _SIMILAR)


class KernelSource(Source):
    """The rows of a source as kernel columns or features, block by block."""

    def __init__(self, source: Source, onto: Landmarks | Features, role: str):
        self.source, self.onto, self.role = source, onto, role
        self.n_features, self.n_rows = onto.n_columns, source.n_rows

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
                    columns = self.onto.columns(values)
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


def background_scale(target: Dataset, backgrounds: Sequence[Dataset], mixture: Mixture) -> Array:
    """Return the sd of each feature in the mixture of the backgrounds, which scales rows before the kernel.

    It is the target's sd if no background varies, and one if nothing varies.

    Examples
    --------
    >>> target = Dataset.of("target", np.array([[0.0, 0.0, 5.0], [6.0, 1.0, 5.0]]))
    >>> background = Dataset.of("background", np.array([[0.0, 7.0, 5.0], [4.0, 7.0, 5.0]]))
    >>> background_scale(target, [background], Mixture.of([background.counts], "pooled"))
    array([2. , 0.5, 1. ])
    """
    variance = mixture.mixed([_variance(data) for data in backgrounds])
    if not variance.all():
        variance = np.where(variance > 0, variance, _variance(target))
    return np.sqrt(np.where(variance > 0, variance, 1.0))


def _variance(data: Dataset) -> Array:
    """Return the variance of each feature in one pass; blocks are centred at their means and merged."""
    assert data.rows is not None
    total, first = 0.0, None
    for block in weighted_blocks(data.rows, data.weights, data.role):
        if not len(block.rows):
            continue
        rows = np.asarray(block.rows, dtype=np.float64)
        weights = np.ones(len(rows)) if block.weights is None else block.weights
        if first is None:
            first, mean, scatter = rows[0].copy(), np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
        with np.errstate(all="ignore"):
            rows = rows - first  # a constant feature is exactly zero from here on
            own, weight = weights @ rows / weights.sum(), weights.sum()
            rows -= own
            shift, share = own - mean, weight / (total + weight)
            scatter += np.einsum("i,ij,ij->j", weights, rows, rows) + total * share * shift**2
            mean += share * shift
            total += weight
        if not np.isfinite(scatter).all():
            raise explain_non_finite(data.rows, block.rows, data.role, data.names)
    assert first is not None
    variance = scatter / total
    return np.where(np.sqrt(variance) <= _CONSTANT * np.abs(first + mean), 0.0, variance)


def choose_landmarks(sizes: Sequence[int], count: int | None, rng: np.random.Generator) -> list[NDArray[np.intp]]:
    """Return which rows of target and backgrounds are landmarks: all, or ``count`` chosen at random.

    Half of them are target rows, the other half background rows in proportion to the sizes of the backgrounds.
    If a set is too small, the remainder is taken from the other.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> [len(rows) for rows in choose_landmarks([50, 300, 100], 20, rng)]
    [10, 8, 2]
    >>> [len(rows) for rows in choose_landmarks([5, 300, 100], 20, rng)]
    [5, 11, 4]
    """
    total, others = sum(sizes), sum(sizes[1:])
    if count is None or count >= total:
        return [np.arange(size) for size in sizes]
    of_target = min(sizes[0], max((count + 1) // 2, count - others))
    bounds = np.round(np.cumsum([0, *sizes[1:]]) * ((count - of_target) / max(others, 1))).astype(int)
    counts = [of_target, *np.diff(bounds)]
    return [np.sort(rng.choice(size, number, replace=False)) for size, number in zip(sizes, counts, strict=True)]


def median_gamma(rows: Array, weights: Array) -> float:
    """Return one over the median squared distance between distinct rows (the median heuristic).

    A row of weight two counts as two rows.

    Examples
    --------
    >>> median_gamma(np.array([[0.0], [2.0], [2.0]]), np.ones(3))
    0.25
    """
    distances = pdist(rows, "sqeuclidean")
    first, second = np.triu_indices(len(rows), 1)
    pairs = weights[first] * weights[second] * (distances > 0)
    if not pairs.any():
        raise InputError(
            "every feature is constant: all rows are the same, so there is no distance for `gamma='median'`. Check "
            "that the right rows were given."
        )
    order = np.argsort(distances, kind="stable")
    below = np.cumsum(pairs[order])
    # The lower median, computed from the counts, so that repeating every row changes nothing.
    middle = np.searchsorted(below, below[-1] / 2 * (1 - 1e-12))
    return float(1 / distances[order[middle]])
