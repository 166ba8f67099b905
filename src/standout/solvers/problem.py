"""Problem definition shared by all solvers: data, options, number of components and covariances.

Target and background covariance are computed from moments, in the coordinates used by all solvers. Features are
scaled by the background sd (target sd if the background is constant), which makes the background a correlation
matrix and costs no accuracy; features that do not vary are left out. Without a background, the identity in the
units of the data replaces it.

With a graph of features, components are penalised if neighbours have different weights: γ·L is added to the
background covariance, L the graph's Laplacian, in background-sd units. Along u the denominator becomes
uᵀC_yyu + γ Σ wᵢⱼ(sᵢuᵢ − sⱼuⱼ)², so that rough components are penalised and the result does not depend on the features'
units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from standout._blas import (
    WORST_CONDITION,
    Array,
    above_rounding,
    cholesky,
    default_budget,
    rank_tolerance,
    top_eigen,
)
from standout._dataset import Dataset, Mix, Mixture
from standout._moments import Moments
from standout._shrinkage import Evidence, GramShrinkage, Shrinkage, intensity, shrinks
from standout._spectrum import count_components, noise_edge
from standout.errors import InputError, NotEnoughRowsError, listed, named_features
from standout.solvers.dense import joint_rank
from standout.solvers.solution import FeatureScale

_S = TypeVar("_S", Shrinkage, GramShrinkage)
# Sums of ratios above this may overflow.
_LARGEST = 1e300


@dataclass(frozen=True)
class SolveOptions:
    """Options set by the user."""

    n_components: int | str | None = 2
    shrinkage: str | float | None = "auto"
    intensity: float | None = None  # ρ of shrinkage="auto", if fixed to that of another fit
    mix: Mix = "pooled"
    own_centre: bool = True
    solver: str = "auto"
    axes: str = "ratio"
    graph: Any = None  # Laplacian of a graph of features
    smoothness: float = 0.0
    seed: int = 0


@dataclass(eq=False)
class Problem:
    """The data and the options of one fit, as passed to the solvers."""

    target: Dataset
    backgrounds: Sequence[Dataset]
    mixture: Mixture | None
    options: SolveOptions
    fixed_shrinkage: Shrinkage | None = None  # the shrinkage with which the shares were found, if any

    def __post_init__(self) -> None:
        datasets, options, compared = (self.target, *self.backgrounds), self.options, self.mixture is not None
        self.names = self.target.names
        self.n_rows = sum(data.counts.rows for data in datasets)
        # Whether every dataset can be read again.
        self.has_rows = all(data.rows is not None for data in datasets)
        # The largest number of dimensions that the centred target rows can span.
        self.target_dimensions = self.target.counts.rows - (options.own_centre or not compared)
        # Whether rough components are penalised.
        self.has_penalty = compared and options.graph is not None and options.smoothness > 0
        # Whether all ratios are needed, not only those of the requested components.
        self.needs_all_ratios = options.n_components == "auto" or options.axes == "signal"

    def evidence(self, rank: int, n_varying: int, trace_squared: float) -> Evidence:
        """Return the input of the shrinkage rule."""
        assert self.mixture is not None
        return Evidence(self.mixture.rows, rank, self.mixture.effective, n_varying, trace_squared)

    def keeps_factors(self, evidence: Evidence) -> bool:
        """Return whether the background estimate keeps shared factors, as "auto" does if rows are few."""
        return self.fixed_shrinkage is None and self.options.shrinkage == "auto" and shrinks("auto", evidence)

    def with_intensity(self, found: _S) -> _S:
        """Return the estimate, with the intensity of another fit if that is fixed."""
        return found if self.options.intensity is None else replace(found, rho=self.options.intensity)

    def diagonal_shrinkage(self, evidence: Evidence) -> Shrinkage:
        """Return the requested shrinkage toward the diagonal, or the one determined earlier."""
        return self.fixed_shrinkage or Shrinkage(intensity(self.options.shrinkage, evidence))

    def units(self) -> tuple[float, float]:
        """Return the number of independent units of target and background."""
        return self.target.counts.units, self.mixture.units if self.mixture is not None else np.nan

    def has_edge(self, rank: int) -> bool:
        """Return whether edge and p-value are defined: more background units than dimensions."""
        return self.mixture is not None and self.mixture.units - 1 > rank

    @property
    def memory_budget(self) -> int:
        """Memory budget for covariances in bytes: the default, or that of a source if it is larger."""
        given = [int(getattr(data.source, "memory", None) or 0) for data in (self.target, *self.backgrounds)]
        return max(default_budget(), *given)


def check_rows(role: str, rows: int) -> None:
    """Raise an error if a dataset has too few rows to have a variance."""
    if rows < 2:
        raise NotEnoughRowsError(
            f"{role}: n_samples={rows} row{'s' if rows != 1 else ''} with a positive weight, and a variance "
            "needs at least 2. Give more rows."
        )


@dataclass(frozen=True)
class Count:
    """Number of components returned, and number of components they are computed from."""

    shown: int
    kept: int


def how_many(problem: Problem, limit: int, plain: Array | None, rank: int | None = None) -> Count:
    """Return how many components to return and, for signal axes, how many are above the noise edge."""
    requested, shown = problem.options.n_components, limit
    if requested == "auto":
        if rank is None or plain is None or not problem.has_edge(rank):
            raise NotEnoughRowsError(_no_auto(problem, rank))
        shown = min(count_components(plain, rank, *problem.units()), limit)
    elif requested is not None:
        shown = int(requested)
        if shown > limit:
            raise too_many(shown, limit, problem)
    kept = above_edge(problem, limit, plain, rank) if problem.options.axes == "signal" else None
    return Count(shown, shown) if kept is None else Count(min(shown, kept), kept)


def above_edge(problem: Problem, limit: int, plain: Array | None, rank: int | None) -> int | None:
    """Return how many components are above the noise edge; None if there is no edge."""
    if plain is None or rank is None or not problem.has_edge(rank):
        return None
    return min(int((plain > noise_edge(rank, *problem.units())).sum()), limit)


def _no_auto(problem: Problem, rank: int | None) -> str:
    if problem.mixture is None:
        return "`n_components='auto'` compares target and background. Give a background, or a number of components."
    dimensions = f"the {rank} dimensions of the data" if rank is not None else "dimensions of the data"
    units = problem.mixture.units
    counted = f"{units:.0f} independent unit{'s leave' if units >= 1.5 else ' leaves'} {units - 1:.0f}"
    return (
        f"`n_components='auto'` needs more degrees of freedom in the background than {dimensions}, and {counted}: no "
        "formula separates ratios from noise. Give a number of components, more background rows or fewer features."
    )


def too_many(wanted: int, limit: int, problem: Problem) -> InputError:
    """Return the error for requesting more components than exist."""
    features, rows = problem.target.n_features, problem.target.counts.rows
    return (NotEnoughRowsError if rows <= features else InputError)(
        f"`n_components={wanted}`, but the data have only {limit} dimension{'s' if limit != 1 else ''} "
        f"(n_features={features}, target n_samples={rows}). Use at most {limit}."
    )


@dataclass(frozen=True)
class CovariancePair:
    """The two covariances of the eigenproblem ``A v = λ B v``, in background-sd units."""

    target: Array  # (d, d)
    background: Array | None  # (d, d); None is the identity
    frame: FeatureScale
    constant: tuple[int, ...] = ()  # features that vary in the target only

    @classmethod
    def of(cls, target: Moments, backgrounds: Sequence[Moments], mixture: Mixture | None, own: bool) -> CovariancePair:
        """Build the pair; ``own`` centres the target at its mean, otherwise at the background's."""
        covariance, variance = target.covariance(), target.variance()
        if mixture is None:
            alive = np.flatnonzero(check_varies(variance, "target"))
            frame = FeatureScale(alive, np.ones(len(variance)), len(variance))
            return cls(scaled(covariance, frame), None, frame)
        if not own:
            shift = target.mean - mixture.mixed_means([part.mean for part in backgrounds])
            covariance += np.outer(shift, shift)
            variance = variance + shift**2
        frame, constant = measure(variance, mixture.mixed([part.variance() for part in backgrounds]))
        background = scaled(mixture.covariance(backgrounds), frame)
        return cls(scaled(covariance, frame), background, frame, constant)

    @cached_property
    def factor(self) -> tuple[Array, float] | None:
        """Cholesky factor and reciprocal condition number of the background; None if it is singular."""
        assert self.background is not None
        found = None if self.constant else cholesky(self.background)
        return found if found is not None and found[1] > rank_tolerance(len(self.background)) else None

    @cached_property
    def rank(self) -> int:
        """The joint rank of target and background."""
        if self.background is None or self.factor is not None:
            return len(self.target)
        return joint_rank(self.target, self.background)

    @property
    def well_conditioned(self) -> bool:
        """Whether covariances suffice for an accurate result."""
        return self.factor is not None and self.factor[1] >= 1 / WORST_CONDITION

    def evidence(self, mixture: Mixture) -> Evidence:
        """Return the input of the shrinkage rule."""
        assert self.background is not None
        squared = float(np.einsum("ij,ij->", self.background, self.background))
        return Evidence(mixture.rows, self.rank, mixture.effective, len(self.target) - len(self.constant), squared)

    @property
    def structural(self) -> bool:
        """Whether the target varies in some direction in which the background does not."""
        if self.background is None or self.factor is not None:
            return False
        if self.constant:
            return True
        values, _ = top_eigen(self.background, len(self.background), vectors=False)
        return int(above_rounding(values).sum()) < self.rank


def measure(target_variance: Array, background_variance: Array) -> tuple[FeatureScale, tuple[int, ...]]:
    """Return the solver's coordinates, and the features that vary in the target only."""
    size = len(background_variance)
    if target_variance.any() and background_variance.all():
        alive, scale, constant = np.arange(size), np.sqrt(background_variance), np.empty(0, dtype=np.intp)
    else:
        check_varies(target_variance, "target")
        check_varies(background_variance, "background")
        variance = np.where(background_variance > 0, background_variance, target_variance)
        alive, scale = np.flatnonzero(variance > 0), np.sqrt(np.where(variance > 0, variance, 1.0))
        constant = np.flatnonzero((background_variance == 0) & (target_variance > 0))
    with np.errstate(over="ignore"):
        ratio = target_variance / scale / scale
    if not (ratio.sum() < _LARGEST):
        worst = int(np.argmax(ratio))
        raise InputError(
            f"target and background are in units so different that the ratio of their variances would overflow "
            f"(feature {worst}: sd {np.sqrt(target_variance[worst]):.3g} against {scale[worst]:.3g}). "
            "Convert both to the same units."
        )
    return FeatureScale(alive, scale, size), tuple(constant.tolist())


def check_varies(variance: Array, role: str) -> NDArray[np.bool_]:
    """Raise an error if every feature of a dataset is constant."""
    varies = variance > 0
    if not varies.any():
        some = listed(named_features(None, range(len(variance))))
        raise InputError(
            f"{role}: every feature is constant ({len(variance)} features: {some}), so there is no variance "
            "to compare. Check that the right rows were given."
        )
    return varies


def scaled(matrix: Array, frame: FeatureScale) -> Array:
    """Return the covariance of the features that vary, in the solver's units (modifies its argument)."""
    if len(frame.alive) < frame.n_features:
        matrix = matrix[np.ix_(frame.alive, frame.alive)]
    inverse = 1 / frame.scale[frame.alive]
    matrix *= inverse[:, None]
    matrix *= inverse
    return matrix


def laplacian(graph: Any, n_features: int) -> Any:
    """Return the Laplacian (CSR) of a graph given by its adjacency or by its Laplacian.

    Parameters
    ----------
    graph : array-like or sparse matrix of shape (n_features, n_features)
        Symmetric; non-negative weights between features (adjacency), or a Laplacian.
    n_features : int
        Number of features of the data.

    Returns
    -------
    sparse matrix of shape (n_features, n_features)

    Examples
    --------
    >>> laplacian([[0, 1, 0], [1, 0, 1], [0, 1, 0]], 3).toarray().tolist()
    [[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]]
    """
    try:
        given = sparse.csr_array(graph)
        kind = given.dtype.kind
    except (TypeError, ValueError):
        kind = "O"
    if kind not in "fiub":
        raise InputError("graph: not a matrix of real numbers. Give an adjacency or a Laplacian, dense or sparse.")
    matrix = sparse.csr_array(given, dtype=np.float64)
    if matrix.shape != (n_features, n_features):
        raise InputError(
            f"graph: shape {matrix.shape} for {n_features} features. Give one row and one column for each feature."
        )
    if not np.isfinite(matrix.data).all():
        raise InputError("graph: some weights are NaN or inf. Give finite weights.")
    if abs(matrix - matrix.T).max() > 1e-10 * abs(matrix).max():
        raise InputError("graph: the matrix is not symmetric. Give (graph + graph.T) / 2, or check the edges.")
    edges = matrix - sparse.diags_array(matrix.diagonal())
    if edges.nnz == 0 or edges.min() >= 0:
        degree = np.asarray(edges.sum(axis=0)).ravel()
        return sparse.csr_array(sparse.diags_array(degree) - edges)
    if edges.max() <= 0 and np.abs(matrix.sum(axis=0)).max() <= 1e-8 * abs(matrix).max():
        return matrix
    raise InputError(
        "graph: neither an adjacency (weights from 0 on) nor a Laplacian (rows that sum to 0). Give one of these, "
        "for instance sklearn.feature_extraction.image.grid_to_graph for pixels."
    )


def graph_of(graph: Any, n_features: int, kept: NDArray[np.intp] | None) -> Any:
    """Return the Laplacian of a graph of features, or of its subgraph on the kept features."""
    whole = laplacian(graph, n_features)
    if kept is None:
        return whole
    adjacency = -whole[kept][:, kept]
    adjacency.setdiag(0)
    return laplacian(adjacency, len(kept))
