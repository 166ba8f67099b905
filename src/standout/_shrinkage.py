"""Background covariance estimate for few rows: shared factors are kept, other correlations are shrunk.

With few rows per feature, a sample covariance B is inaccurate in directions of small variance, and ratios
divide by these variances. The estimate is, in background-sd units (B is a correlation matrix),

    S = (1 − ρ)·B + ρ·(F + Ψ),    F = W (WᵀBW) Wᵀ,

a factor model plus a share of the sample covariance. W holds the *shared factors*: among axes of large
target variance, those along which the background varies far more than its average residual variance.
The axes are chosen independently of the background, so its sample variance along them is unbiased,
and it is kept along W. Ψ is diagonal: the residual variance of each feature, or the mean residual variance
if there are more features than rows. Correlations that no factor explains are shrunk by ρ, given by the
oracle approximating shrinkage (OAS) formula from traces of the residual. Without factors S is B shrunk
toward its diagonal by OAS. The result does not depend on the features' units.

If the factors explain more than half of the variance, residual variances differ strongly between features: their
mean is then neither a suitable reference for a factor nor a suitable Ψ. In that case features are scaled by their
residual sd, which makes the noise isotropic, and the factors are found a second time in these units. Between 50
and 80 % explained variance the units change continuously from background sd to residual sd.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from standout._blas import Array, product, symmetric, times, top_eigen
from standout.errors import NotEnoughRowsError

Regime = Literal["exact", "structural", "shrunk"]

# Up to this many background rows (less one) per joint dimension "auto" shrinks in full, and the user is warned.
ROWS_PER_DIMENSION = 10
# From this many on it does not shrink at all.
EXACT_ROWS_PER_DIMENSION = 50
# Target axes that are candidates for shared factors: at most this many, one per four background rows or features. There
# are at least two: a single axis would mix factor and signal.
_CANDIDATES, _PER_CANDIDATE, _FEWEST_CANDIDATES = 32, 4, 2
# Between these shares of explained variance, the units change from background sd to residual sd.
_MUCH_EXPLAINED, _MOST_EXPLAINED = 0.5, 0.8
# Weight of the mean in the residual variance used as unit of a feature: estimates from few rows are unreliable.
_MEAN_PART = 0.1
# A factor has at least this many times the variance that noise alone would have along the best axis.
_STRENGTH = 1.5
# Target axes with less variance than this fraction of the largest singular value are not candidates.
_WEAK = 1e-4
# A direction below this fraction of the largest is rounding error.
_ROUNDING = 1e-13
_QR_WORK = 64 * 2 * _CANDIDATES
# A residual variance below this fraction of the total is rounding error.
_NOTHING = 1e-10
# Above this shrinkage the estimate is close to diagonal.
_NEARLY_ONE = 0.9
# The fraction of its variance that every feature keeps in Ψ, regardless of how much the factors explain.
_UNEXPLAINED = 1e-4


@dataclass(frozen=True)
class Evidence:
    """Input of the shrinkage rule: the number of background rows and the number of dimensions."""

    rows: float  # background rows, less one for each background's mean
    rank: int  # joint rank of target and background
    effective: float  # effective background rows (Kish), less one for each mean
    n_varying: int  # features that vary in the background
    trace_squared: Callable[[], float]  # computes tr S² of the background correlation matrix S

    @property
    def rows_per_dimension(self) -> float:
        """Effective number of background rows per joint dimension."""
        return min(self.rows, self.effective) / self.rank if self.rank else math.inf


@dataclass(frozen=True)
class Shrinkage:
    """The estimate (1 − ρ)·B + ρ·(F + Ψ) of the background covariance B, in background-sd units.

    Among rows, the loadings are combinations of target rows, and Ψ is a multiple of the identity.
    """

    rho: float
    loadings: Array | None = None  # (d, q): F is their product; None without factors
    psi: Array | float = 1.0  # (d,): the diagonal of Ψ; a number if it is a multiple of the identity

    @property
    def n_factors(self) -> int:
        """Number of shared factors."""
        return 0 if self.loadings is None else self.loadings.shape[1]

    def of(self, background: Array) -> Array:
        """Return the estimate for a matrix B of shape (d, d)."""
        shrunk: Array = (1 - self.rho) * background
        if self.loadings is not None:
            scaled = self.rho * self.loadings
            for here in _panels(len(shrunk)):
                shrunk[:, here] += product(scaled, self.loadings[here].T)
        np.einsum("ii->i", shrunk)[...] += self.rho * self.psi
        return shrunk


@dataclass(frozen=True)
class Factors:
    """Orthonormal axes W along which the background is uncorrelated, and its products with them.

    Among rows, vectors are given by coefficients: W of the target rows, B W of the background rows.
    """

    axes: Array  # (d, q): W
    variances: Array  # (q,): of the background along W, largest first
    image: Array  # (d, q): B W
    units: Array | None = None  # (d,): divisor of features in addition to background sd; None is 1
    total: float = math.nan  # total background variance of all features, in these units

    def explained(self) -> Array:
        """Return the diagonal of B − R, with R = (I − WWᵀ) B (I − WWᵀ) the residual covariance."""
        return np.asarray(np.einsum("ij,ij->i", 2 * self.image - self.axes * self.variances, self.axes))

    def residual_squared(self, background: Array, psi: Array | float) -> float:
        """Return tr R² in units of Ψ, for B in background-sd units."""
        left = np.hstack([self.image - self.axes * self.variances, self.axes])
        right = np.hstack([self.axes, self.image])
        weight, total = 1 / np.broadcast_to(psi, len(background)), 0.0
        for here in _panels(len(background)):
            if self.units is None:
                residual = background[:, here] - product(left, right[here].T)
            else:
                residual = background[:, here] / self.units[:, None] / self.units[here]
                residual -= product(left, right[here].T)
            residual *= residual
            total += float(blas.dgemv(1.0, residual, weight, trans=1) @ weight[here])
        return total

    def estimate(self, pair: FactorSearch, evidence: Evidence, n_rows: float) -> Shrinkage:
        """Return the estimate that keeps these factors, in background-sd units; see :func:`auto_shrinkage`."""
        n_varying, count = evidence.n_varying, len(self.variances)
        left = self.total - float(self.variances.sum())
        mean = left / max(n_varying - count, 1)
        mean = (1 - _UNEXPLAINED) * mean + _UNEXPLAINED * self.total / n_varying
        psi: Array | float = mean
        trace = left / mean  # tr R in units of Ψ
        own = own_share(n_rows, n_varying)
        if own > 0 and pair.varies is not None:
            whole = np.ones(len(pair.varies)) if self.units is None else 1 / self.units**2
            rest = whole - np.where(pair.varies, self.explained(), 0.0)
            psi = own * ((1 - _UNEXPLAINED) * rest + _UNEXPLAINED * whole) + (1 - own) * mean
            trace = float((rest / psi)[pair.varies].sum())
        rho = fade(evidence)
        if trace > _NOTHING * (n_varying - count):  # otherwise the factors explain everything
            unit = (n_varying - count) / trace
            rho *= oas(n_varying - count, evidence.effective, pair.residual_squared(self, psi) * unit * unit)
        loadings = self.axes * np.sqrt(self.variances)
        if self.units is not None:
            loadings, psi = loadings * self.units[:, None], psi * self.units**2
        return Shrinkage(rho, np.asfortranarray(loadings), psi)


def _panels(size: int) -> list[slice]:
    """Return slices of columns that are small enough for temporary copies in the cache."""
    width = max(64, 2**18 // max(size, 1))
    return [slice(start, min(start + width, size)) for start in range(0, size, width)]


def oas(p: int, effective: float, trace_squared: float) -> float:
    """Return the OAS intensity for a correlation matrix of p features with this tr S², from ``effective`` rows."""
    spread = trace_squared - p
    if p < 2 or spread <= 1e-12 * p * p:  # already the identity: shrinking changes nothing
        return 1.0
    top = (1 - 2 / p) * trace_squared + p * p
    below = (effective + 1 - 2 / p) * spread
    return min(1.0, top / below) if below > 0 else 1.0


def fade(evidence: Evidence) -> float:
    """Return the factor by which "auto" reduces shrinkage with increasing number of rows, from 1 down to 0."""
    left = EXACT_ROWS_PER_DIMENSION - evidence.rows_per_dimension
    return min(1.0, max(0.0, left / (EXACT_ROWS_PER_DIMENSION - ROWS_PER_DIMENSION)))


def few_rows(evidence: Evidence) -> bool:
    """Return whether the background has so few rows that the user should be warned."""
    return evidence.rows_per_dimension < ROWS_PER_DIMENSION


def shrinks(shrinkage: str | float | None, evidence: Evidence) -> bool:
    """Return whether the OAS formula is used, which needs tr S²."""
    if shrinkage == "diagonal":
        return few_rows(evidence)
    few = evidence.rows_per_dimension < EXACT_ROWS_PER_DIMENSION
    return shrinkage == "oas" or (shrinkage == "auto" and few and evidence.rank > 1)


def intensity(shrinkage: str | float | None, evidence: Evidence) -> float:
    """Return ρ for a shrinkage option: "auto" without factors, "oas", "diagonal", a number, or None (exact problem).

    "diagonal" is OAS below ten rows per dimension and the exact problem from there on. It is meant for methods
    whose background estimate has to be linear in the background covariance.
    """
    if shrinks(shrinkage, evidence):
        rho = oas(evidence.n_varying, evidence.effective, evidence.trace_squared())
        return rho * (fade(evidence) if shrinkage == "auto" else 1.0)
    if shrinkage in ("auto", "diagonal"):
        return 0.0
    rho = 0.0 if shrinkage is None else float(shrinkage)
    if rho == 0 and evidence.rows < evidence.rank:
        raise NotEnoughRowsError(
            f"the exact problem (`shrinkage={shrinkage}`) has no answer: the background has "
            f"{evidence.rows + 1:.0f} rows, and {evidence.rank} dimensions need at least "
            f"{evidence.rank + 1}. Use `shrinkage='auto'`, or give more background rows or fewer features."
        )
    return rho


def estimate_text(rho: float, n_factors: int, within: str = "") -> str:
    """Return a description of how the background covariance was estimated.

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
    """Return the weight of each feature's residual variance in Ψ: zero with more features than rows.

    The residual variance of a rare feature is unreliable if there are few rows per feature. Between one and two
    rows of target and background per feature, the individual and the mean residual variance are interpolated.
    """
    return min(1.0, max(0.0, n_rows / n_features - 1)) if n_features else 1.0


def _most_candidates(n_features: int) -> int:
    return min(max(n_features // _PER_CANDIDATE, 1), _CANDIDATES)


def start_features(target_variance: Array, n_features: int | None = None) -> NDArray[np.intp]:
    """Return the features that vary most in the target, where the search for its axes starts.

    Variances that differ only by rounding count as equal and ties are broken by position, so that every solver starts
    from the same features. ``n_features`` is the total number of features, if these are a subset.
    """
    digits = np.round(np.log(np.maximum(target_variance, np.finfo(float).tiny)) * 1e8)
    return np.argsort(-digits, kind="stable")[: _most_candidates(n_features or len(digits))]


def target_axes(
    multiply: Callable[[Array], Array], start: Array, count: int, metric: Callable[[Array], Array] | None = None
) -> Array:
    """Return at most ``count`` orthonormal axes of large target variance: three steps of subspace iteration.

    The axes need not be exact eigenvectors, but they must be chosen independently of the background. ``multiply``
    multiplies vectors, of shape (d, b), by the target covariance; ``start`` are its columns of the features that vary
    most. If vectors are coefficients of rows, ``metric`` multiplies by the matrix of their inner product.
    """
    block = start
    for _ in range(2):
        block = multiply(_orthonormal(block, metric))
    basis = _orthonormal(block, metric)
    left, sizes, _, _ = lapack.dgesdd(product(basis.T, block if metric is None else metric(block)))
    kept = int((sizes[:count] > _WEAK * sizes[0]).sum()) if len(sizes) else 0
    return product(basis, np.asfortranarray(left[:, :kept]))


def _orthonormal(vectors: Array, metric: Callable[[Array], Array] | None) -> Array:
    """Return an orthonormal basis of the span of vectors, without directions at rounding level."""
    if metric is None:
        factor, _, scalars, _, _ = lapack.dgeqp3(vectors, lwork=_QR_WORK)
        sizes = np.abs(np.diagonal(factor))
        rank = int((sizes > _ROUNDING * sizes[0]).sum())
        basis, _, _ = lapack.dorgqr(factor[:, :rank], scalars[:rank], lwork=_QR_WORK)
        return np.asarray(basis)
    for _ in range(2):  # twice, for orthogonality to rounding
        inner = product(vectors.T, metric(vectors))
        sizes = np.sqrt(np.maximum(np.diagonal(inner), 0.0))
        unit = np.where(sizes > 0, 1 / np.where(sizes > 0, sizes, 1.0), 0.0)
        values, turn = top_eigen(unit[:, None] * inner * unit, len(inner))
        kept = values > _ROUNDING * values[:1]
        vectors = product(vectors, np.asfortranarray(unit[:, None] * turn[:, kept] / np.sqrt(values[kept])))
    return vectors


def _n_shared(variances: Array, evidence: Evidence, total: float) -> int:
    """Return how many of the uncorrelated axes are shared factors, from the background variances along them.

    From the largest background variance on, an axis counts while its variance exceeds what the largest of the
    remaining axes would have by chance (the Tracy–Widom edge of a white Wishart matrix in units of the mean
    residual variance), times a margin. ``total`` is the total background variance of all features.
    """
    left, count = total, 0
    while count < len(variances):
        if not _stands_out(variances, count, evidence, left / (evidence.n_varying - count)):
            break
        left -= float(variances[count])
        count += 1
    return count


def _stands_out(variances: Array, count: int, evidence: Evidence, noise: float) -> bool:
    """Return whether the axis after the first ``count`` is a factor, given the noise variance along it."""
    freedom = evidence.effective - count
    return freedom >= 2 and bool(variances[count] > _STRENGTH * noise * _edge(len(variances) - count, freedom))


def _residual_units(found: Factors, varies: NDArray[np.bool_], evidence: Evidence, weight: float) -> Array | None:
    """Return units of features that equalise their residual variances, from axes in background-sd units.

    An axis that loads mostly on features with a large residual variance would explain these features by themselves.
    An axis therefore counts here only if its variance also exceeds the mean of the features' residual variances,
    weighted by its squared loadings. Return None without any such axis. With ``weight`` 0 all units are the same.
    """
    left, count = np.ones(len(varies)), 0
    while count < len(found.variances):
        axis, size = found.axes[:, count], found.variances[count]
        mean = float(left[varies].sum()) / (evidence.n_varying - count)
        if not _stands_out(found.variances, count, evidence, max(mean, float(axis**2 @ (left * varies)))):
            break
        left -= np.where(varies, (2 * found.image[:, count] - size * axis) * axis, 0.0)
        np.maximum(left, 0.0, out=left)
        count += 1
    if count == 0:
        return None
    mean = float(left[varies].mean())
    return np.asarray(np.sqrt(weight * ((1 - _MEAN_PART) * left + _MEAN_PART * mean) + (1 - weight) * mean))


def _edge(dimensions: int, freedom: float) -> float:
    """Return the .99 quantile of the largest eigenvalue of a white Wishart matrix over its degrees of freedom."""
    a, b = math.sqrt(freedom - 0.5), math.sqrt(dimensions - 0.5)
    return float(((a + b) ** 2 + 2.02 * (a + b) * (1 / a + 1 / b) ** (1 / 3)) / freedom)


class FactorSearch(ABC):
    """Two covariances among whose axes shared factors are searched: of features, or among rows."""

    varies: NDArray[np.bool_] | None  # (d,): which features vary in the background; None if they are unknown
    residual_squared: Callable[[Factors, Any], float]  # returns tr R² in units of Ψ, both in the units of the factors

    @abstractmethod
    def candidates(self, count: int) -> Factors:
        """Return axes of large target variance along which the background is uncorrelated."""

    @abstractmethod
    def rescaled(self, units: Array) -> FactorSearch:
        """Return the covariances of features divided by ``units``, which may replace this one."""

    def in_features(self, found: Factors) -> Factors:
        """Return factors as vectors of features."""
        return found


@dataclass
class Covariances(FactorSearch):
    """Target and background covariance of features in background-sd units, as products with vectors."""

    target_times: Callable[[Array], Array]  # multiplies vectors, of shape (d, b)
    background_times: Callable[[Array], Array]
    columns: Callable[[NDArray[np.intp]], Array]  # returns columns of the target covariance
    residual_squared: Callable[[Factors, Any], float]
    target_variance: Array  # (d,)
    varies: NDArray[np.bool_]
    n_alive: int  # features that vary at all
    units: Array | None = None  # (d,): divisor of features in addition to background sd; None is 1

    def rescaled(self, units: Array) -> Covariances:
        """Return the covariances of features divided by ``units``."""
        unit = units[:, None]
        return replace(
            self,
            target_times=lambda vectors: np.asfortranarray(self.target_times(vectors / unit) / unit),
            background_times=lambda vectors: np.asfortranarray(self.background_times(vectors / unit) / unit),
            columns=lambda first: np.asfortranarray(self.columns(first) / unit / units[first]),
            target_variance=self.target_variance / units**2,
            units=units,
        )

    def candidates(self, count: int) -> Factors:
        """Return axes of large target variance along which the background is uncorrelated."""
        start = self.columns(start_features(self.target_variance, self.n_alive))
        axes = target_axes(self.target_times, start, count)
        images = self.background_times(axes)
        variances, turn = top_eigen(symmetric(product(axes.T, images)), axes.shape[1])
        return Factors(product(axes, turn), variances, product(images, turn), self.units)


def find_factors(pair: FactorSearch, evidence: Evidence, dimensions: int) -> Factors | None:
    """Return the factors that target and background share, or None; target rows span at most ``dimensions``."""
    most = min(_most_candidates(evidence.n_varying), dimensions, int(evidence.effective / _PER_CANDIDATE))
    if most < _FEWEST_CANDIDATES:
        return None
    found, total = pair.candidates(most), float(evidence.n_varying)
    count = _n_shared(found.variances, evidence, total)
    explained = float(found.variances[:count].sum()) / total
    weight = min(1.0, (explained - _MUCH_EXPLAINED) / (_MOST_EXPLAINED - _MUCH_EXPLAINED))
    if weight > 0 and pair.varies is not None:
        units = _residual_units(pair.in_features(found), pair.varies, evidence, weight)
        if units is not None:
            found = pair.rescaled(units).candidates(most)
            total = float((1 / units**2)[pair.varies].sum())
            count = _n_shared(found.variances, evidence, total)
    if count == 0:
        return None
    return Factors(found.axes[:, :count], found.variances[:count], found.image[:, :count], found.units, total)


def auto_shrinkage(pair: FactorSearch, evidence: Evidence, dimensions: int, n_rows: float = 0) -> Shrinkage:
    """Return the "auto" estimate of the background; target rows span at most ``dimensions``.

    With ``n_rows`` of target and background, features have their own residual variances in Ψ if these rows are enough.
    """
    found = find_factors(pair, evidence, dimensions)
    return Shrinkage(intensity("auto", evidence)) if found is None else found.estimate(pair, evidence, n_rows)


def covariance_search(target: Array, background: Array) -> Covariances:
    """Return the search for factors of covariances of shape (d, d) in background-sd units."""
    return Covariances(
        target_times=partial(times, target),
        background_times=partial(times, background),
        columns=lambda first: target[:, first],
        residual_squared=lambda found, psi: found.residual_squared(background, psi),
        target_variance=np.diagonal(target),
        varies=np.diagonal(background) > 0,
        n_alive=len(target),
    )
