"""How the background covariance is estimated when rows are few: keep shared factors, shrink the rest.

With few rows for its features, a sample covariance B is poorly known in its small directions, and a
ratio divides by those. The estimate is, in background-sd units (B is a correlation matrix),

    S = (1 − ρ)·B + ρ·(F + Ψ),    F = W (WᵀBW) Wᵀ,

a factor model plus a share of the sample covariance. W holds the *shared factors*: axes of the target
along which the background varies far more than its average residual variance. They are chosen without
looking at the background, so its sample variance along them is unbiased and is kept as it is. Ψ is
diagonal: what the factors leave of each feature's variance, or the mean of that where there are more
features than rows. Correlations that no factor explains are shrunk by ρ, which the oracle
approximating formula (OAS) gives from traces of the residual. Without factors S is B shrunk toward its
diagonal by OAS. S is linear in B once W and ρ are known, and the result does not depend on the
features' units.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from standout.blas import Array, product, times, top_eigen
from standout.errors import NotEnoughRowsError

Regime = Literal["exact", "structural", "shrunk"]

# Below this many background rows (less one) for each joint dimension the user is warned.
ROWS_PER_DIMENSION = 10
# "auto" shrinks in full up to so many rows for each dimension, and not at all from twice as many on.
_FULL = 50
# Target axes that are candidates for shared factors: at most so many, and one for four background rows.
_CANDIDATES = 32
_ROWS_PER_CANDIDATE = 4
# A factor has at least this many times the variance that noise alone would show along the best axis.
_STRENGTH = 1.5
# Target axes with less variance than this part of the largest singular value are not candidates.
_WEAK = 1e-4
# A residual variance below this part of the whole is rounding.
_NOTHING = 1e-10
# Beyond this much shrinkage little but the features' own variances is left.
_NEARLY_ONE = 0.9
# The share of its whole variance that every feature keeps in Ψ, however much of it the factors explain.
_UNEXPLAINED = 0.01


@dataclass(frozen=True)
class Evidence:
    """What the rule looks at: how many rows the background has, and how many dimensions there are."""

    rows: float  # background rows, less one for each background's mean
    rank: int  # joint rank of target and background
    effective: float  # effective background rows (Kish), less one for each mean
    n_varying: int  # features that vary in the background
    trace_squared: float  # tr S² of the background correlation matrix S

    @property
    def rows_per_dimension(self) -> float:
        """Background rows for each joint dimension; rows with little weight count for little."""
        return min(self.rows, self.effective) / self.rank if self.rank else math.inf


@dataclass(frozen=True)
class Shrinkage:
    """The estimate S as a linear map of the background covariance B, in background-sd units."""

    rho: float
    axes: Array | None = None  # (d, q): W, orthonormal; None where the target of shrinkage is the diagonal
    own: float = 1.0  # the share of each feature's own residual variance in Ψ; the rest is their mean
    n_varying: int = 0

    @property
    def n_factors(self) -> int:
        """Number of shared factors."""
        return 0 if self.axes is None else self.axes.shape[1]

    def factors(self, image: Array) -> Array:
        """Return WᵀBW from the image BW."""
        assert self.axes is not None
        inner = product(self.axes.T, image)
        return np.asarray((inner + inner.T) / 2)

    def _left(self, variance: Array, image: Array, whole: Array | float) -> Array:
        """Return what the factors leave of the variance of each feature."""
        assert self.axes is not None
        explained = 2 * np.einsum("ij,ij->i", image, self.axes)
        explained -= np.einsum("ij,ij->i", product(self.axes, self.factors(image)), self.axes)
        return np.asarray(whole - np.where(variance > 0, explained, 0.0))

    def diagonal(self, variance: Array, image: Array, whole: Array | float = 1.0) -> Array:
        """Return Ψ from the diagonal of B and the image BW.

        ``whole`` is the variance toward which each feature is shrunk. It is more than the diagonal of B for a
        feature that is constant in the background, or partly explained by earlier components.
        """
        whole = np.broadcast_to(whole, variance.shape)
        if self.n_factors == 0:
            return np.array(whole)
        total = float(whole[variance > 0].sum())
        mean = mean_residual(total, float(np.trace(self.factors(image))), self.n_varying, self.n_factors)
        if self.own == 0.0:
            return np.full(len(variance), mean)
        psi = (1 - _UNEXPLAINED) * self._left(variance, image, whole) + _UNEXPLAINED * whole
        return np.asarray(self.own * psi + (1 - self.own) * mean)

    def settled(
        self,
        variance: Array,
        image: Array,
        evidence: Evidence,
        squared: Callable[[Array], float],
        whole: Array | float = 1.0,
    ) -> Shrinkage:
        """Return the estimate with ρ found.

        ``squared`` returns tr R² of the residual covariance R = (I − WWᵀ) B (I − WWᵀ) in units of Ψ.
        """
        psi = self.diagonal(variance, image, whole)
        if self.own > 0:
            trace = float((self._left(variance, image, whole) / psi)[variance > 0].sum())
        else:
            total = float(np.broadcast_to(whole, variance.shape)[variance > 0].sum())
            trace = (total - float(np.trace(self.factors(image)))) / psi[0]
        return replace(self, rho=residual_intensity(evidence, self.n_factors, trace, squared(psi)))

    def of(self, background: Array, whole: Array | float = 1.0) -> Array:
        """Return S for a symmetric matrix B of shape (d, d)."""
        shrunk: Array = (1 - self.rho) * background
        variance = np.diagonal(background)
        if self.n_factors:
            assert self.axes is not None
            image = times(background, self.axes)
            loadings = self.rho * (product(self.axes, self.factors(image)))
            for here in _panels(len(shrunk)):
                shrunk[:, here] += product(loadings, self.axes[here].T)
        else:
            image = np.empty((len(shrunk), 0))
        np.einsum("ii->i", shrunk)[...] += self.rho * self.diagonal(variance, image, whole)
        return shrunk

    def residual_squared(self, background: Array, image: Array, psi: Array) -> float:
        """Return tr R² of the residual covariance in units of Ψ, from B itself."""
        assert self.axes is not None
        left = np.hstack([image - product(self.axes, self.factors(image)), self.axes])
        right = np.hstack([self.axes, image])
        weight, total = 1 / psi, 0.0
        for here in _panels(len(background)):
            residual = background[:, here] - product(left, right[here].T)
            residual *= residual
            total += float(blas.dgemv(1.0, residual, weight, trans=1) @ weight[here])
        return total


@dataclass(frozen=True)
class GramShrinkage:
    """The background estimate (1 − ρ) B + ρ (F + level·I), with F as combinations of target rows."""

    rho: float
    level: float = 1.0
    # (n_target, q): combinations of target rows, the squares of which add up to F.
    factors: Array | None = None

    @property
    def n_factors(self) -> int:
        """Number of shared factors."""
        return 0 if self.factors is None else self.factors.shape[1]


def _panels(size: int) -> list[slice]:
    """Return runs of columns that are small enough for temporary copies."""
    width = max(64, 2**21 // max(size, 1))
    return [slice(start, min(start + width, size)) for start in range(0, size, width)]


def mean_residual(total: float, explained: float, n_varying: int, n_factors: int) -> float:
    """Return the mean variance that factors leave to a feature; never less than a small part of the whole."""
    mean = (total - explained) / max(n_varying - n_factors, 1)
    return (1 - _UNEXPLAINED) * mean + _UNEXPLAINED * total / n_varying


def oas(evidence: Evidence) -> float:
    """Return the OAS intensity for a correlation matrix.

    Examples
    --------
    >>> few = Evidence(rows=20, rank=10, effective=20, n_varying=10, trace_squared=15.0)
    >>> many = Evidence(rows=2000, rank=10, effective=2000, n_varying=10, trace_squared=15.0)
    >>> oas(few) > 100 * oas(many) / 2 > 0
    True
    """
    p, trace = evidence.n_varying, float(evidence.n_varying)
    spread = evidence.trace_squared - trace * trace / p
    if p < 2 or spread <= 1e-12 * trace * trace:  # already the identity: shrinking changes nothing
        return 1.0
    top = (1 - 2 / p) * evidence.trace_squared + trace * trace
    return min(1.0, top / ((evidence.effective + 1 - 2 / p) * spread))


def residual_intensity(evidence: Evidence, n_factors: int, trace: float, trace_squared: float) -> float:
    """Return ρ of "auto": OAS for the residual correlations, faded out where rows are plenty."""
    dimensions = evidence.n_varying - n_factors
    if dimensions < 1 or trace <= _NOTHING * dimensions:  # the factors explain everything
        return fade(evidence)
    unit = dimensions / trace
    return fade(evidence) * oas(replace(evidence, n_varying=dimensions, trace_squared=trace_squared * unit * unit))


def fade(evidence: Evidence) -> float:
    """Return the factor by which "auto" shrinks less when there are rows enough: 1, falling to 0."""
    return min(1.0, max(0.0, 2 - evidence.rows_per_dimension / _FULL))


def few_rows(evidence: Evidence) -> bool:
    """Tell whether the background has so few rows that the user should know."""
    return evidence.rows_per_dimension < ROWS_PER_DIMENSION


def shrinks(shrinkage: str | float | None, evidence: Evidence) -> bool:
    """Tell whether the OAS formula is used, which needs tr S²."""
    if shrinkage == "diagonal":
        return few_rows(evidence)
    return shrinkage == "oas" or (shrinkage == "auto" and fade(evidence) > 0)


def intensity(shrinkage: str | float | None, evidence: Evidence) -> float:
    """Return ρ for what was asked: "auto" without factors, "oas", "diagonal", a number, or None (the exact problem).

    "diagonal" is OAS below ten rows for each dimension and the exact problem from there on: for methods whose
    background estimate has to be linear in the background covariance.
    """
    if shrinks(shrinkage, evidence):
        return oas(evidence) * (fade(evidence) if shrinkage == "auto" else 1.0)
    if shrinkage in ("auto", "diagonal"):
        return 0.0
    rho = 0.0 if shrinkage is None else float(shrinkage)
    if rho == 0 and evidence.rows < evidence.rank:
        raise NotEnoughRowsError(
            f"the exact problem (shrinkage={shrinkage}) has no answer: the background has "
            f"{evidence.rows + 1:.0f} rows, and {evidence.rank} dimensions need at least "
            f"{evidence.rank + 1}. Use shrinkage='auto', or give more background rows or fewer features."
        )
    return rho


def estimate_text(rho: float, n_factors: int, within: str = "") -> str:
    """Return in words how the background covariance was estimated.

    Examples
    --------
    >>> estimate_text(0.2, 0)
    'its sample covariance with all correlations shrunk by 0.2'
    >>> estimate_text(0.97, 2)
    '2 shared factors and independent features (other correlations shrunk by 0.97)'
    """
    shrunk = f"correlations shrunk by {rho:.3g}{within}"
    factors = f"{n_factors} shared factor{'s' if n_factors != 1 else ''}"
    if rho > _NEARLY_ONE and n_factors:
        return f"{factors} and independent features (other {shrunk})"
    if rho > _NEARLY_ONE:
        return f"independent features ({shrunk}: this is nearly PCA in background-sd units)"
    if n_factors:
        return f"{factors} and its sample covariance with all other {shrunk}"
    return f"its sample covariance with all {shrunk}"


def own_share(n_rows: float, n_features: int) -> float:
    """Return how far Ψ follows each feature's own residual variance: not at all with more features than rows.

    The residual variance of a rare feature is unreliable when few rows have to serve many features. Between
    one and two rows of target and background for each feature the two are blended.
    """
    return min(1.0, max(0.0, n_rows / n_features - 1)) if n_features else 1.0


def n_candidates(evidence: Evidence, target_dimensions: int) -> int:
    """Return how many target axes are looked at."""
    most = min(evidence.n_varying // 2, target_dimensions, _CANDIDATES)
    return max(min(int(evidence.effective / _ROWS_PER_CANDIDATE), most), min(most, 1))


def start_features(target_variance: Array) -> NDArray[np.intp]:
    """Return the features that vary most in the target, where the search for its axes starts.

    Variances that differ by rounding count as equal, and the first of them come first, so that every solver starts
    from the same features.
    """
    digits = np.round(np.log(np.maximum(target_variance, np.finfo(float).tiny)) * 1e8)
    return np.argsort(-digits, kind="stable")[:_CANDIDATES]


def target_axes(
    multiply: Callable[[Array], Array], start: Array, count: int, metric: Callable[[Array], Array] | None = None
) -> Array:
    """Return at most ``count`` axes of large target variance: three steps of subspace iteration.

    The axes need not be exact eigenvectors: what matters is that they are chosen without the background.

    Parameters
    ----------
    multiply : callable
        Multiplies vectors, of shape (d, b), by the target covariance A.
    start : ndarray of shape (d, b)
        The columns of A of the features that vary most.
    count : int
        How many axes.
    metric : callable, optional
        Multiplies vectors by the matrix of their inner product, where they are coefficients of rows.

    Returns
    -------
    ndarray of shape (d, k), k ≤ count
        Orthonormal in the metric, largest variance first.
    """
    block = start
    for _ in range(2):
        block = multiply(_orthonormal(block, metric))
    basis = _orthonormal(block, metric)
    left, sizes, _, _ = lapack.dgesdd(product(basis.T, block if metric is None else metric(block)))
    kept = int((sizes[:count] > _WEAK * sizes[0]).sum()) if len(sizes) else 0
    return product(basis, np.asfortranarray(left[:, :kept]))


def _orthonormal(vectors: Array, metric: Callable[[Array], Array] | None) -> Array:
    """Return an orthonormal basis of the span of vectors; twice, for orthogonality to rounding."""
    for _ in range(2):
        inner = product(vectors.T, vectors if metric is None else metric(vectors))
        sizes = np.sqrt(np.maximum(np.diagonal(inner), 0.0))
        unit = np.where(sizes > 0, 1 / np.where(sizes > 0, sizes, 1.0), 0.0)
        values, turn = top_eigen(unit[:, None] * inner * unit, len(inner))
        kept = values > 1e-13 * values[:1]
        vectors = product(vectors, np.asfortranarray(unit[:, None] * turn[:, kept] / np.sqrt(values[kept])))
    return vectors


def shared_factors(inner: Array, evidence: Evidence) -> Array:
    """Return the turn, of shape (k, q), of k candidate axes E into q shared factors, from ``inner`` = EᵀBE.

    From the largest background variance on, an axis counts while its variance exceeds what the largest of the
    remaining axes would show by chance (the Tracy–Widom edge of a white Wishart matrix in units of the mean
    residual variance), times a margin.
    """
    values, turn = top_eigen((inner + inner.T) / 2, len(inner))
    n_axes, left, count = len(values), float(evidence.n_varying), 0
    for number, value in enumerate(values):
        freedom = evidence.effective - number
        if freedom < 2 or not value > _STRENGTH * left / (evidence.n_varying - number) * _edge(
            n_axes - number, freedom
        ):
            break
        left -= value
        count += 1
    return np.asfortranarray(turn[:, :count])


def _edge(dimensions: int, freedom: float) -> float:
    """Return the .99 quantile of the largest eigenvalue of a white Wishart matrix, divided by its freedom."""
    a, b = math.sqrt(freedom - 0.5), math.sqrt(dimensions - 0.5)
    return float(((a + b) ** 2 + 2.02 * (a + b) * (1 / a + 1 / b) ** (1 / 3)) / freedom)


def factor_shrinkage(
    target: Array, background: Array, evidence: Evidence, dimensions: int, n_rows: float, whole: Array | float = 1.0
) -> Shrinkage:
    """Return the "auto" estimate for covariances in background-sd units.

    Parameters
    ----------
    target, background : ndarray of shape (d, d)
        Covariances; the diagonal of the background is one, or less where ``whole`` says so.
    evidence : Evidence
        How much background there is.
    dimensions : int
        How many dimensions the target's rows can have.
    n_rows : float
        Rows of target and background together.
    whole : ndarray of shape (d,) or float
        As in :meth:`Shrinkage.diagonal`.
    """
    count = n_candidates(evidence, dimensions)
    plain = Shrinkage(0.0, None, own_share(n_rows, evidence.n_varying), evidence.n_varying)
    if count == 0:
        return replace(plain, rho=intensity("auto", evidence))
    start = target[:, start_features(np.diagonal(target))]
    axes = target_axes(lambda vectors: times(target, vectors), start, count)
    images = times(background, axes)
    turn = shared_factors(product(axes.T, images), evidence)
    if turn.shape[1] == 0:
        return replace(plain, rho=intensity("auto", evidence))
    found = replace(plain, axes=product(axes, turn))
    image = product(images, turn)
    return found.settled(
        np.diagonal(background), image, evidence, lambda psi: found.residual_squared(background, image, psi), whole
    )
