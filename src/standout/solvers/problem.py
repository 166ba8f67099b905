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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from standout._blas import WORST_CONDITION, Array, above_rounding, cholesky, default_budget, rank_tolerance, top_eigen
from standout._dataset import Dataset, Mix, Mixture
from standout._shrinkage import Evidence, FactorSearch, Shrinkage, auto_shrinkage, few_rows, intensity, shrinks
from standout._spectrum import count_components, noise_edge
from standout.errors import InputError, NotEnoughRowsError, listed, named_features
from standout.solvers.dense import joint_rank
from standout.solvers.solution import FeatureScale

# Sums of ratios above this may overflow.
_LARGEST = 1e300


@dataclass(frozen=True)
class SolveOptions:
    """Options set by the user."""

    n_components: int | float | str | None = 2  # a float is a share of the target's variance
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
        self.eigensolver = (options.solver, options.seed)
        # Whether all ratios are needed, not only those of the requested components.
        self.needs_all_ratios = options.n_components == "auto" or options.axes == "signal"

    def evidence(self, rank: int, n_varying: int, trace_squared: Callable[[], float]) -> Evidence:
        """Return the input of the shrinkage rule."""
        assert self.mixture is not None
        return Evidence(self.mixture.rows, rank, self.mixture.effective, n_varying, trace_squared)

    def background_estimate(
        self, evidence: Evidence, search: Callable[[], FactorSearch], n_rows: float, structural: Callable[[], bool]
    ) -> Shrinkage:
        """Return the requested estimate of the background; "auto" keeps shared factors if rows are few.

        With enough rows "auto" does not shrink a background that is singular where the target varies (``structural``).
        """
        asked = self.options.shrinkage
        if self.fixed_shrinkage is not None or asked != "auto" or not shrinks("auto", evidence):
            return self.fixed_shrinkage or Shrinkage(intensity(asked, evidence))
        if self.options.intensity is None and not few_rows(evidence) and structural():
            return Shrinkage(0.0)
        found = auto_shrinkage(search(), evidence, self.target_dimensions, n_rows)
        return found if self.options.intensity is None else replace(found, rho=self.options.intensity)

    def shift(self, means: Sequence[Array] | Array) -> Array | None:
        """Return the target's mean less the background's, if the target is centred there; None at its own mean."""
        if self.mixture is None or self.options.own_centre:
            return None
        return np.asarray(means[0] - self.mixture.mixed_means(means[1:]))

    def units(self) -> tuple[float, float]:
        """Return the number of independent units of target and background."""
        return self.target.counts.units, self.mixture.units if self.mixture is not None else np.nan

    def has_edge(self, rank: int) -> bool:
        """Return whether edge and p-value are defined: more background units than dimensions."""
        return self.mixture is not None and self.mixture.units - 1 > rank

    def above_edge(self, rank: int, plain: Array) -> int:
        """Return how many components are above the noise edge, given the ratios of the unshrunk problem."""
        return min(int((plain > noise_edge(rank, *self.units())).sum()), rank, self.target_dimensions)

    def how_many(self, rank: int, plain: Array | None = None) -> tuple[int, int]:
        """Return how many components to return, and from how many these are computed (for signal axes).

        ``rank`` is the joint rank, and ``plain`` are ratios of the unshrunk problem.
        """
        requested, limit = self.options.n_components, min(rank, self.target_dimensions)
        judged = plain if self.has_edge(rank) else None
        shown = limit
        if requested == "auto":
            if judged is None:
                raise NotEnoughRowsError(_no_auto(self.mixture, rank))
            shown = min(count_components(judged, rank, *self.units()), limit)
        elif isinstance(requested, float):  # all are computed, and build_solution selects the first ones
            if self.mixture is not None:
                raise InputError(_no_share(requested))
        elif requested is not None:
            shown = int(requested)
            if shown > limit:
                raise too_many(shown, limit, self)
        if judged is None or self.options.axes != "signal":
            return shown, shown
        kept = self.above_edge(rank, judged)
        return min(shown, kept), kept

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


def _no_auto(mixture: Mixture | None, rank: int) -> str:
    if mixture is None:
        return "`n_components='auto'` compares target and background. Give a background, or a number of components."
    counted = f"{mixture.units:.0f} independent unit{'s leave' if mixture.units >= 1.5 else ' leaves'}"
    return (
        f"`n_components='auto'` needs more degrees of freedom in the background than the {rank} dimensions of the "
        f"data, and {counted} {mixture.units - 1:.0f}: no formula separates ratios from noise. Give a number of "
        "components, more background rows or fewer features."
    )


def _no_share(share: float) -> str:
    return (
        f"`n_components={share}` is a share of the target's variance, which selects components without a background "
        "only. With a background use a whole number, or 'auto' for those above noise."
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
    background: Array  # (d, d)
    frame: FeatureScale
    constant: tuple[int, ...]  # features that vary in the target only
    n_varying: int  # features that vary in the background

    @classmethod
    def of(cls, problem: Problem) -> CovariancePair:
        """Compute the covariances from moments."""
        assert problem.mixture is not None
        target, *backgrounds = [data.moments for data in (problem.target, *problem.backgrounds)]
        covariance, variance = target.covariance(), target.variance()
        if not problem.options.own_centre:
            shift = target.mean - problem.mixture.mixed_means([part.mean for part in backgrounds])
            covariance += np.outer(shift, shift)
            variance = variance + shift**2
        frame, constant = measure(variance, problem.mixture.mixed([part.variance() for part in backgrounds]))
        background = scaled(problem.mixture.covariance(backgrounds), frame)
        return cls(scaled(covariance, frame), background, frame, constant, len(frame.alive) - len(constant))

    @cached_property
    def factor(self) -> tuple[Array, float] | None:
        """Cholesky factor and reciprocal condition number of the background; None if it is singular."""
        found = None if self.constant else cholesky(self.background)
        return found if found is not None and found[1] > rank_tolerance(len(self.background)) else None

    @cached_property
    def rank(self) -> int:
        """The joint rank of target and background."""
        return len(self.target) if self.factor is not None else joint_rank(self.target, self.background)

    @property
    def well_conditioned(self) -> bool:
        """Whether covariances suffice for an accurate result."""
        return self.factor is not None and self.factor[1] >= 1 / WORST_CONDITION

    def structural(self) -> bool:
        """Return whether the target varies in some direction in which the background does not."""
        if self.factor is not None or self.constant:
            return bool(self.constant)
        values, _ = top_eigen(self.background, len(self.background), vectors=False)
        return int(above_rounding(values).sum()) < self.rank


def measure(target_variance: Array, background_variance: Array | None) -> tuple[FeatureScale, tuple[int, ...]]:
    """Return the solver's coordinates, and the features that vary in the target only; data units without background."""
    size = len(target_variance)
    if background_variance is None:
        return FeatureScale(np.flatnonzero(check_varies(target_variance, "target")), np.ones(size)), ()
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
    return FeatureScale(alive, scale), tuple(constant.tolist())


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
    if len(frame.alive) < len(frame.scale):
        matrix = matrix[np.ix_(frame.alive, frame.alive)]
    inverse = 1 / frame.scale[frame.alive]
    matrix *= inverse[:, None]
    matrix *= inverse
    return matrix


def laplacian(graph: Any, n_features: int, kept: NDArray[np.intp] | None = None) -> Any:
    """Return the Laplacian (CSR) of a graph given by its adjacency or Laplacian, or of its subgraph on some features.

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
    if edges.nnz > 0 and edges.min() < 0:
        if edges.max() > 0 or np.abs(matrix.sum(axis=0)).max() > 1e-8 * abs(matrix).max():
            raise InputError(
                "graph: neither an adjacency (weights from 0 on) nor a Laplacian (rows that sum to 0). Give one of "
                "these, for instance sklearn.feature_extraction.image.grid_to_graph for pixels."
            )
        edges = -edges
    if kept is not None:
        edges = edges[kept][:, kept]
    return sparse.csr_array(sparse.diags_array(np.asarray(edges.sum(axis=0)).ravel()) - edges)
