"""Matrix-free solver for sparse or very wide data, using only products with the rows.

No matrix of size features × features is formed. All computations are in background-sd units (target sd if the
background is constant), in which the background is a correlation matrix S and shrinkage is ``B = (1 − ρ) S + ρ I``.
The joint rank is unknown here: its upper bound, the number of features that vary or the number of rows less one
for each mean, replaces it in the rules for shrinkage and noise edge.

The OAS formula needs tr S². It is computed exactly, as ‖S‖² column by column, if that costs no more than a solve.
Otherwise it is estimated from random sign vectors g: ``tr S² − 2 tr S + p = ‖S − I‖² = E ‖(S − I) g‖²``, with the few
directions in which S is large projected out first and added exactly (Hutch++). The estimate is unbiased,
reproducible for a given seed, and comes with its standard error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from standout._blas import WORST_CONDITION, Array, rank_tolerance, threads_for, top_eigen
from standout._shrinkage import Covariances, Evidence, Shrinkage, few_rows, find_factors, shrinks
from standout.errors import ConditionWarning, InputError
from standout.solvers import davidson
from standout.solvers.davidson import Pairs, SingularError, Smallest, Space, finished, measured, top_pairs
from standout.solvers.problem import (
    Problem,
    check_varies,
    how_many,
    measure,
    too_many,
)
from standout.solvers.solution import (
    Eigenpairs,
    FeatureScale,
    Note,
    Solution,
    build_solution,
    components,
    shrinkage_notes,
    structural_notes,
)

# Largest cost of the exact sum, in multiply-adds.
EXACT_WORK = 5e9
# Columns multiplied at once; random vectors to find the large directions; random vectors to estimate the rest.
_WIDTH = 64
_LARGE = 12
_PROBES = 8
# The error of a ratio is about the square of that of its vector: three digits, to test ratios whose sampling error
# is larger anyway.
_VALUES_TOLERANCE = 3e-2
# Shrinkage above this bounds the condition number of the background well enough.
_FAINT = 1e-6
# Tolerated relative error of a ratio: the squared residual divided by the smallest variance of the background.
_ERROR = 1e-7
# Multiplying this many vectors at once costs hardly more than one.
_LEAST_BLOCK = 4


@dataclass(frozen=True)
class TraceSquared:
    """tr S² and its standard error, which is zero if the value is exact."""

    value: float
    error: float = 0.0
    n_varying: int = 0

    @property
    def relative_error(self) -> float:
        """Relative standard error of ``tr S² − p``, which is that of the OAS intensity."""
        return self.error / (self.value - self.n_varying) if self.error else 0.0


def trace_squared(
    times: Callable[[Array], Array], varying: Array, work: float, seed: int, trace: float
) -> TraceSquared:
    """Return tr S² for a correlation matrix, or a matrix with this ``trace``, given by its products.

    ``varying`` is 1 for features that vary in the background and 0 elsewhere; ``work`` is the number of matrix entries
    that one product with one vector reads.
    """
    columns = np.flatnonzero(varying)
    if 2 * work * len(columns) <= EXACT_WORK:
        return TraceSquared(_exact(times, columns, len(varying)))
    return _estimated(times, varying, len(columns), seed, trace)


def _exact(times: Callable[[Array], Array], columns: NDArray[np.intp], size: int) -> float:
    total = 0.0
    for start in range(0, len(columns), _WIDTH):
        here = columns[start : start + _WIDTH]
        units = np.zeros((size, len(here)))
        units[here, np.arange(len(here))] = 1.0
        image = times(units)
        total += float(np.einsum("ij,ij->", image, image))
    return total


def _estimated(times: Callable[[Array], Array], varying: Array, p: int, seed: int, trace: float) -> TraceSquared:
    rng = np.random.default_rng([seed, 1])

    def signs(count: int) -> Array:
        return rng.choice([-1.0, 1.0], size=(len(varying), count)) * varying[:, None]

    basis = signs(_LARGE)
    for _ in range(2):
        basis, _ = np.linalg.qr(times(basis))
    apart = times(basis) - basis
    large = float(np.einsum("ij,ij->", apart, apart))
    probes = signs(_PROBES)
    probes -= basis @ (basis.T @ probes)
    apart = times(probes) - probes
    rest = np.einsum("ij,ij->j", apart, apart)
    error = float(rest.std(ddof=1) / np.sqrt(_PROBES))
    return TraceSquared(2 * trace - p + large + float(rest.mean()), error, p)


# The search for that variance may take at most this fraction of additional products, or this many multiply-adds.
_EXTRA, _EXTRA_WORK = 0.03, 2e7


def solve_matrix_free(task: Problem) -> Solution:
    """Find the components of a problem whose covariances are too large to form."""
    _check_possible(task)
    system = System(task)
    # Sparse products use a separate thread pool, and idle BLAS threads would compete with it.
    with threads_for(0.0 if system.all_sparse else math.inf):
        return _solved(task, system)


def _solved(task: Problem, system: System) -> Solution:
    rank = min(system.n_alive, task.target_dimensions + (0 if task.mixture is None else int(task.mixture.rows)))
    count = how_many(task, min(rank, task.target_dimensions), None, rank)
    shrinkage, notes = _shrinkage(system, rank)
    rho = shrinkage.rho
    if rho > 0:
        system.turn_to(shrinkage)
        space = system.space(count.kept, rho)
        found, least = system.pairs(space, count.kept, rho)
        eigen, residual = _eigen(found, rho)
        eigen = eigen if system.turn is None else system.turn.back(eigen)
        plain = _plain(system, space, count.kept) if task.has_edge(rank) else None
    else:
        eigen, residual, least = exact(system, count.kept)
        notes += structural_notes(task, eigen, system.frame, system.constant)
        plain = eigen.ratios
    # Orthogonalisation leaves rounding errors in features that do not vary.
    alive = (system.inverse > 0)[:, None]
    images = eigen.target_image * alive, eigen.background_image * alive
    eigen = replace(eigen, vectors=eigen.vectors * alive, target_image=images[0], background_image=images[1])
    if len(eigen.ratios) < count.kept:
        raise too_many(count.kept, len(eigen.ratios), task)
    if residual > _tolerance(least) or least < 1 / WORST_CONDITION:
        notes.append(_not_converged(residual, least))
    return build_solution(
        task, components(eigen, system.frame, count.kept), system.frame, rank, "matrix_free", count, system.means,
        rho=rho if task.mixture is not None else 0.0, n_factors=shrinkage.n_factors, plain=plain, notes=notes,
        n_infinite=eigen.n_infinite,
    )  # fmt: skip


def _shrinkage(system: System, rank: int) -> tuple[Shrinkage, list[Note]]:
    """Return the background estimate; the identity without a background."""
    task, error, shrinkage = system.task, 0.0, None
    if task.mixture is None:
        return Shrinkage(1.0), []
    evidence = task.evidence(rank, int(np.count_nonzero(system.spread)), math.nan)
    if task.finds_factors(evidence):
        if system.constant and not few_rows(evidence) and task.wanted.intensity is None:
            return Shrinkage(0.0), []  # structural
        shrinkage, error = system.factors(evidence)
    if shrinkage is None:
        if task.settled is None and shrinks(task.wanted.shrinkage, evidence):
            varies = (system.spread > 0).astype(float)
            trace = system.trace_squared(system.background_times, float(evidence.n_varying), varies)
            evidence, error = replace(evidence, trace_squared=trace.value), trace.relative_error
        shrinkage = task.plain_shrinkage(evidence)
    shrinkage = task.kept(shrinkage)
    if shrinkage.rho == 0:
        return shrinkage, []
    return shrinkage, list(shrinkage_notes(task, evidence, shrinkage.rho, shrinkage.n_factors, error))


def _eigen(found: Pairs, rho: float) -> tuple[Eigenpairs, float]:
    """Return pairs in the common format of all solvers, and their largest residual."""
    eigen = Eigenpairs(found.ratios, found.vectors, found.target_image, found.shrunk_image(rho))
    return eigen, float(found.residuals.max())


def _check_possible(task: Problem) -> None:
    asked = f"`n_components={task.wanted.n_components!r}`"
    if isinstance(task.wanted.n_components, int) and task.wanted.axes == "ratio":
        return
    if isinstance(task.wanted.n_components, int):
        asked = f"`axes={task.wanted.axes!r}`"
    raise InputError(
        f"{asked} asks for every ratio, and the matrix-free solver finds the few largest. Give n_components as a "
        f"number with `axes='ratio'`, choose fewer features, or use `solver='dense'`, which takes "
        f"{task.covariance_bytes / 1e9:.3g} GB for {task.target.n_features} features."
    )


class System:
    """Target and background as products with vectors, in background-sd units."""

    def __init__(self, task: Problem):
        self.task = task
        self.mixture = task.mixture
        self.parts = measured([task.target, *task.backgrounds])
        self.means: Sequence[Array] = [part.mean for part in self.parts]
        variance = self.parts[0].variance
        self.shift: Array | None = None
        self.constant: tuple[int, ...] = ()
        self.spread = np.zeros_like(variance)
        if self.mixture is None:
            frame = FeatureScale(
                np.flatnonzero(check_varies(variance, "target")), np.ones(len(variance)), len(variance)
            )
        else:
            if not task.wanted.own_centre:
                self.shift = self.means[0] - self.mixture.mixed_means(self.means[1:])
                variance = variance + self.shift**2
            self.spread = self.mixture.mixed([part.variance for part in self.parts[1:]])
            frame, self.constant = measure(variance, self.spread)
        self.n_alive = len(frame.alive)
        self.unit = frame.scale
        self.variance = variance / frame.scale**2  # target variance in background-sd units
        self.turn: Turn | None = None
        # All features are kept; those that do not vary are multiplied by zero.
        self.frame = FeatureScale(np.arange(frame.n_features), frame.scale, frame.n_features)
        self.inverse = np.zeros(frame.n_features)
        self.inverse[frame.alive] = 1 / frame.alive_scale

    @property
    def all_sparse(self) -> bool:
        """Whether all datasets use sparse products."""
        return all(part.is_sparse for part in self.parts)

    def target_times(self, vectors: Array) -> Array:
        """Return the scaled target covariance times vectors."""
        return self._target(self.parts[0].begin(vectors * self.inverse[:, None]), vectors)

    def background_times(self, vectors: Array) -> Array:
        """Return the background correlation matrix times vectors."""
        scaled = vectors * self.inverse[:, None]
        return self._background([part.begin(scaled) for part in self.parts[1:]], vectors)

    def products(self, vectors: Array) -> tuple[Array, Array]:
        """Return both products, computed concurrently."""
        scaled = vectors * self.inverse[:, None]
        begun = [part.begin(scaled) for part in self.parts]
        return self._target(begun[0], vectors), self._background(begun[1:], vectors)

    def _target(self, begun: list[Future[Array]], vectors: Array) -> Array:
        result = finished(begun)
        result *= self.inverse[:, None]
        if self.shift is not None:
            shift = self.shift * self.inverse
            result += np.multiply.outer(shift, shift @ vectors)
        return result

    def _background(self, begun: list[list[Future[Array]]], vectors: Array) -> Array:
        if self.mixture is None:
            return np.zeros_like(vectors)
        result = self.mixture.mixed([finished(parts) for parts in begun])
        # Only rounding errors are left for features that are constant in the background.
        result *= np.where(self.spread > 0, self.inverse, 0.0)[:, None]
        return result

    def trace_squared(self, multiply: Callable[[Array], Array], trace: float, features: Array) -> TraceSquared:
        """Return the trace of the squared covariance of some features (1 for these, 0 elsewhere)."""
        work = sum(part.n_entries for part in self.parts[1:])
        return trace_squared(multiply, features, work, self.task.wanted.seed, trace)

    def factors(self, evidence: Evidence) -> tuple[Shrinkage | None, float]:
        """Return the "auto" estimate with shared factors (None without any), and the relative error of its ρ."""
        pair = Covariances(
            self.target_times, self.background_times, self._columns, self.variance, self.spread, self.n_alive
        )
        found = find_factors(pair, evidence, self.task.target_dimensions)
        if found is None:
            return None, 0.0
        axes, varies, errors = found.axes, (self.spread > 0).astype(float), []
        units = np.ones((len(varies), 1)) if found.units is None else found.units[:, None]
        alive = (self.inverse > 0).astype(float)  # factors may load on features that are constant in the background

        def squared(psi: Array | float) -> float:
            unit = 1 / np.sqrt(np.broadcast_to(psi, varies.shape))[:, None]

            def residual(vectors: Array) -> Array:
                inside = vectors * unit
                result = self.background_times((inside - axes @ (axes.T @ inside)) / units) / units
                return np.asarray((result - axes @ (axes.T @ result)) * unit)

            left = varies / units[:, 0] ** 2 - found.explained()
            total = self.trace_squared(residual, float((left / psi).sum()), alive)
            errors.append(total.relative_error)
            return total.value

        return found.estimate(varies, evidence, self.task.n_rows, squared), errors[0]

    def _columns(self, features: NDArray[np.intp]) -> Array:
        """Return columns of the target covariance."""
        units = np.zeros((len(self.unit), len(features)))
        units[features, np.arange(len(features))] = 1.0
        return self.target_times(units)

    def turn_to(self, shrinkage: Shrinkage) -> None:
        """Switch to coordinates in which F + Ψ, toward which the background is shrunk, is the identity."""
        if shrinkage.loadings is None:
            return
        root = np.sqrt(np.broadcast_to(shrinkage.psi, len(self.unit)))[:, None]
        left, sizes, _ = np.linalg.svd(shrinkage.loadings / root, full_matrices=False)
        self.turn = Turn(root, left, np.sqrt(1 + sizes**2)[:, None])

    def turned_products(self, vectors: Array) -> tuple[Array, Array]:
        """Return the products in the solver's coordinates."""
        if self.turn is None:
            return self.products(vectors)
        target, background = self.products(self.turn.vectors(vectors))
        return self.turn.solver_image(target), self.turn.solver_image(background)

    def in_units(self, image: Array) -> Array:
        """Return an image in the units of the data."""
        return (image if self.turn is None else self.turn.image(image)) * self.unit[:, None]

    def space(self, count: int, rho: float = 0.0, products: davidson.Products | None = None) -> Space:
        """Return a search space for ``count`` pairs; it starts inside the range of the two covariances."""
        products = products or self.turned_products
        rng = np.random.default_rng(self.task.wanted.seed)
        random = rng.normal(size=(len(self.unit), max(count, _LEAST_BLOCK)))
        target, background = products(random / np.sqrt(len(random)))
        start = _unit_columns(target) + _unit_columns(background)
        most = self.task.memory_budget // 2 // (3 * 8 * len(self.unit))
        watch = Smallest(products, rng.normal(size=len(random)) * (self.spread > 0)) if rho <= _FAINT else None
        return Space(products, start, max(most, 4 * start.shape[1] + 20), watch)

    def pairs(
        self,
        space: Space,
        count: int,
        rho: float,
        products: davidson.Products | None = None,
        tolerance: float = davidson.TOLERANCE,
    ) -> tuple[Pairs, float]:
        """Return the top pairs, and the smallest background variance in any direction if it may be small."""
        found, least = top_pairs(space, rho, count, self.in_units, tolerance), 1.0
        if space.watch is not None and tolerance <= davidson.TOLERANCE:
            work = 2 * sum(part.n_entries for part in self.parts[1:])
            more = int(max(_EXTRA * space.n_columns, _EXTRA_WORK / work))
            least = min(space.smallest(), space.watch.finish(self.background_times, more))
            least = (1 - rho) * max(least, 0.0) + rho
            if least >= 1 / WORST_CONDITION and found.residuals.max() > _tolerance(least):
                try:
                    found = top_pairs(space, rho, count, self.in_units, _tolerance(least))
                except SingularError:  # keep the previous result; a note reports its accuracy
                    least = 0.0
        return self.verified(found, rho, products, tolerance), least

    def verified(
        self, found: Pairs, rho: float, products: davidson.Products | None = None, tolerance: float = davidson.TOLERANCE
    ) -> Pairs:
        """Return the pairs; after restarts, images and hence residuals are recomputed from the rows."""
        if found.starts == 0:
            return found
        images = (products or self.turned_products)(found.vectors)
        return found.with_images(*images, rho, self.in_units).trusted(rho, tolerance)


@dataclass(frozen=True)
class Turn:
    """Coordinates x = Gᵀ v in which G Gᵀ = F + Ψ is the identity, with G = Ψ^½ (I + U (r − 1) Uᵀ)."""

    root: Array  # (d, 1): square root of Ψ
    axes: Array  # (d, q): U
    stretch: Array  # (q, 1): r

    def vectors(self, turned: Array) -> Array:
        """Return vectors v from x."""
        return self._along(turned, 1 / self.stretch - 1) / self.root

    def solver_image(self, image: Array) -> Array:
        """Return an image in the coordinates of x."""
        return self._along(image / self.root, 1 / self.stretch - 1)

    def image(self, turned: Array) -> Array:
        """Return an image from the coordinates of x."""
        return self._along(turned, self.stretch - 1) * self.root

    def back(self, eigen: Eigenpairs) -> Eigenpairs:
        """Return pairs in background-sd units."""
        return replace(
            eigen,
            vectors=self.vectors(eigen.vectors),
            target_image=self.image(eigen.target_image),
            background_image=self.image(eigen.background_image),
        )

    def _along(self, columns: Array, factor: Array) -> Array:
        return np.asarray(columns + self.axes @ (factor * (self.axes.T @ columns)))


@dataclass(frozen=True)
class Infinite:
    """Directions in which the target varies, among the features that are constant in the background."""

    vectors: Array  # (d, q), orthonormal
    image: Array  # (d, q): target covariance times the vectors
    coupling: Array  # (d, q): the vectors, scaled to unit target variance
    coupled: Array  # (d, q): target covariance times the coupling vectors
    inside: Array  # (d,): 1 for the other features

    @classmethod
    def of(cls, system: System) -> Infinite:
        """Find the directions by a PCA of the target on these features."""
        where = np.array(system.constant, dtype=np.intp)
        size = len(system.unit)
        if 8 * 8 * size * len(where) > system.task.memory_budget:
            raise InputError(
                f"{len(where)} of {size} features are constant in the background and vary in the target: so many "
                "infinite ratios are more than the memory allows. Leave these features out, or use `shrinkage='oas'`."
            )
        units = np.zeros((size, len(where)))
        units[where, np.arange(len(where))] = 1.0
        image = system.target_times(units)
        values, axes = top_eigen(image[where], len(where))
        varies = values > rank_tolerance(size) * values[0]
        axes = axes[:, varies]
        stretched = axes / np.sqrt(values[varies])
        inside = np.ones(size)
        inside[where] = 0.0
        return cls(units @ axes, image @ axes, units @ stretched, image @ stretched, inside)

    def products(self, system: System) -> davidson.Products:
        """Return products of the finite problem: the part of the target explained by infinite directions is removed."""

        def times(vectors: Array) -> tuple[Array, Array]:
            target, background = system.products(vectors * self.inside[:, None])
            target -= self.coupled @ (self.coupled.T @ vectors)
            return target * self.inside[:, None], background

        return times


def exact(system: System, count: int, tolerance: float = davidson.TOLERANCE) -> tuple[Eigenpairs, float, float]:
    """Solve the exact problem, infinite ratios first; also return the largest residual and the smallest variance."""
    if not system.constant:
        found, least = system.pairs(system.space(count), count, 0.0, tolerance=tolerance)
        return *_eigen(found, 0.0), least
    infinite = Infinite.of(system)
    q = infinite.vectors.shape[1]
    ratios, parts, residual, least = np.full(q, np.inf), [], 0.0, 1.0
    if count > q:
        times = infinite.products(system)
        found, least = system.pairs(system.space(count - q, 0.0, times), count - q, 0.0, times, tolerance)
        vectors = found.vectors - infinite.coupling @ (infinite.coupled.T @ found.vectors)
        parts = [(vectors, found.target_image, found.background_image)]
        ratios, residual = np.concatenate([ratios, found.ratios]), float(found.residuals.max())
    columns = zip((infinite.vectors, infinite.image, np.zeros_like(infinite.image)), *parts, strict=True)
    vectors, target, background = (np.hstack(pieces) for pieces in columns)
    return Eigenpairs(ratios, vectors, target, background, n_infinite=q), residual, least


def _plain(system: System, space: Space, count: int) -> Array | None:
    """Return the ratios of the unshrunk problem, used to separate signal from noise; None if it is singular."""
    try:
        if system.constant:
            return exact(system, count, _VALUES_TOLERANCE)[0].ratios
        return top_pairs(space, 0.0, count, system.in_units, _VALUES_TOLERANCE).ratios
    except SingularError:
        return None


def _unit_columns(vectors: Array) -> Array:
    length = np.linalg.norm(vectors, axis=0)
    return np.asarray(vectors / np.where(length > 0, length, 1.0))


def _tolerance(least: float) -> float:
    """Return the tolerance on residuals, from the smallest variance of the background in any direction."""
    return min(davidson.TOLERANCE, math.sqrt(_ERROR * least))


def _not_converged(residual: float, least: float) -> Note:
    if least < 1 / WORST_CONDITION:
        what = (
            f"the condition number of the background covariance is above {WORST_CONDITION:.0e} (estimated): products "
            "with the rows carry no correct digits in its smallest directions, and components there may be missed."
        )
    else:
        what = (
            f"the components are found to a residual of {residual:.1e}, not {_tolerance(least):.1e}: rounding allows "
            "no better for a background covariance that is so close to singular."
        )
    return Note(ConditionWarning, f"{what} Use `shrinkage='oas'`, or `solver='gsvd'` where the memory allows.")
