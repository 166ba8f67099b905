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
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from standout._blas import WORST_CONDITION, Array, rank_tolerance, squared_norm, threads_for, top_eigen
from standout._shrinkage import Covariances, Factors, Shrinkage
from standout.errors import ConditionWarning, InputError
from standout.solvers import davidson
from standout.solvers.davidson import Operator, RowCovariance, SingularError, SmallestEigenvalue, Space, top_pairs
from standout.solvers.problem import Problem, measure, too_many
from standout.solvers.solution import (
    Eigenpairs,
    FeatureScale,
    Note,
    Solution,
    build_solution,
    shrinkage_notes,
    structural_notes,
)

# Largest cost of an exact tr S², in multiply-adds.
EXACT_WORK = 5e9
# Columns multiplied at once; random vectors to find the large directions; random vectors to estimate the rest.
_WIDTH = 64
_LARGE = 12
_PROBES = 8
# The error of a ratio is about the square of that of its vector: three digits, to test ratios whose sampling error
# is larger anyway.
_VALUES_TOLERANCE = 3e-2
# Shrinkage above this bounds the condition number of the background well enough.
_WELL_CONDITIONED = 1e-6
# Tolerated relative error of a ratio: the squared residual divided by the smallest variance of the background.
_ERROR = 1e-7
# The search for that variance may take at most this fraction of additional products, or this many multiply-adds.
_EXTRA, _EXTRA_WORK = 0.03, 2e7
# Multiplying this many vectors at once costs hardly more than one.
_LEAST_BLOCK = 4


def solve_matrix_free(problem: Problem) -> Solution:
    """Find the components of a problem whose covariances are too large to form."""
    options = problem.options
    if not isinstance(options.n_components, int) or options.axes != "ratio":
        name = "axes" if isinstance(options.n_components, int) else "n_components"
        raise InputError(
            f"`{name}={getattr(options, name)!r}` needs every ratio, and the matrix-free solver finds the few largest. "
            "Give n_components as a number with `axes='ratio'`, choose fewer features, or use `solver='dense'` where "
            "the memory allows."
        )
    system = System(problem)
    # Sparse products use a separate thread pool, and idle BLAS threads would compete with it.
    with threads_for(0.0 if all(part.blocks is not None for part in system.parts) else math.inf):
        return _solve(problem, system)


def _solve(problem: Problem, system: System) -> Solution:
    n_background = 0 if problem.mixture is None else int(problem.mixture.rows)
    rank = min(system.n_alive, problem.target_dimensions + n_background)
    shown, kept = problem.how_many(rank)
    shrinkage, notes = _shrinkage(system, rank)
    if shrinkage.rho > 0:
        operator, back = _in_factor_coordinates(system.operator, shrinkage)
        space = system.space(operator, kept, shrinkage.rho)
        eigen, residual, least = _converged(system, space, kept, shrinkage.rho)
        eigen = back(eigen)
        plain = _unshrunk_ratios(system, space, kept) if problem.has_edge(rank) else None
    else:
        eigen, residual, least = _exact(system, kept)
        notes += structural_notes(problem, eigen, system.frame, system.constant)
        plain = eigen.ratios
    if len(eigen.ratios) < kept:
        raise too_many(kept, len(eigen.ratios), problem)
    if residual > _tolerance(least) or least < 1 / WORST_CONDITION:
        notes.append(_not_converged(residual, least))
    # Orthogonalisation leaves rounding errors in features that do not vary.
    for columns in (eigen.vectors, eigen.target_image, eigen.background_image):
        columns[system.inverse == 0] = 0.0
    return build_solution(
        problem, eigen, system.frame, rank, "matrix_free", (shown, kept), means=system.means,
        variance=system.variance * system.frame.scale**2, plain=plain, notes=notes,
        shrinkage=shrinkage if problem.mixture is not None else Shrinkage(0.0),
    )  # fmt: skip


def _shrinkage(system: System, rank: int) -> tuple[Shrinkage, list[Note]]:
    """Return the background estimate; the identity without a background."""
    problem, errors = system.problem, [0.0]
    if problem.mixture is None:
        return Shrinkage(1.0), []
    size, varies = len(system.inverse), system.background_variance > 0
    alive = (system.inverse > 0).astype(float)  # factors may load on features that are constant in the background

    def squared(times: Callable[[Array], Array], features: Array, trace: float) -> float:
        total, error = trace_squared(times, features, system.background_entries, problem.options.seed, trace)
        errors.append(error)
        return total

    def residual_squared(found: Factors, psi: Array | float) -> float:
        axes, unit = found.axes, 1 / np.sqrt(np.broadcast_to(psi, size))[:, None]
        units = np.ones((size, 1)) if found.units is None else found.units[:, None]

        def residual(vectors: Array) -> Array:
            inside = vectors * unit
            result = system.background_times((inside - axes @ (axes.T @ inside)) / units) / units
            return np.asarray((result - axes @ (axes.T @ result)) * unit)

        left = varies / units[:, 0] ** 2 - found.explained()
        return squared(residual, alive, float((left / psi).sum()))

    search = Covariances(
        target_times=system.target_times,
        background_times=system.background_times,
        columns=lambda first: system.target_times(_unit_vectors(size, first)),
        residual_squared=residual_squared,
        target_variance=system.variance,
        varies=varies,
        n_alive=system.n_alive,
    )
    n_varying = int(varies.sum())
    evidence = problem.evidence(
        rank, n_varying, lambda: squared(system.background_times, varies.astype(float), float(n_varying))
    )
    shrinkage = problem.background_estimate(evidence, lambda: search, problem.n_rows, lambda: bool(system.constant))
    return shrinkage, shrinkage_notes(problem, evidence, shrinkage, errors[-1])


def _converged(
    system: System, space: Space, count: int, rho: float, tolerance: float = davidson.TOLERANCE
) -> tuple[Eigenpairs, float, float]:
    """Return the top pairs, their largest residual, and the smallest background variance in any direction."""
    found, residual = top_pairs(space, rho, count, tolerance)
    if space.watch is None or tolerance > davidson.TOLERANCE:
        return found, residual, 1.0
    steps = int(max(_EXTRA * space.n_products, _EXTRA_WORK / (2 * system.background_entries)))
    least = min(space.smallest(), space.watch.finish(space.operator.background, steps))
    least = (1 - rho) * max(least, 0.0) + rho
    if least >= 1 / WORST_CONDITION and residual > _tolerance(least):
        try:
            found, residual = top_pairs(space, rho, count, _tolerance(least))
        except SingularError:  # keep the previous result; a note reports its accuracy
            least = 0.0
    return found, residual, least


def _tolerance(least: float) -> float:
    """Return the tolerance on residuals, from the smallest variance of the background in any direction."""
    return min(davidson.TOLERANCE, math.sqrt(_ERROR * least))


def _exact(system: System, count: int, tolerance: float = davidson.TOLERANCE) -> tuple[Eigenpairs, float, float]:
    """Solve the exact problem, infinite ratios first; also return the largest residual and the smallest variance."""
    if not system.constant:
        return _converged(system, system.space(system.operator, count), count, 0.0, tolerance)
    vectors, image, sd = _infinite_directions(system)
    q = len(sd)
    ratios, coupled = np.full(q, np.inf), image / sd
    if count <= q:
        return Eigenpairs(ratios, vectors, image, np.zeros_like(image), q), 0.0, 1.0
    inside = np.ones((len(image), 1))
    inside[list(system.constant)] = 0.0

    def products(columns: Array) -> tuple[Array, Array]:
        """Remove the part of the target that the infinite directions explain (Schur complement)."""
        target, background = system.products(columns * inside)
        target -= coupled @ (coupled.T @ columns)
        return target * inside, background

    space = system.space(replace(system.operator, products=products), count - q)
    found, residual, least = _converged(system, space, count - q, 0.0, tolerance)
    finite = found.vectors - (vectors / sd) @ (coupled.T @ found.vectors)
    eigen = Eigenpairs(
        np.concatenate([ratios, found.ratios]),
        np.hstack([vectors, finite]),
        np.hstack([image, found.target_image]),
        np.hstack([np.zeros_like(image), found.background_image]),
        q,
    )
    return eigen, residual, least


def _infinite_directions(system: System) -> tuple[Array, Array, Array]:
    """Return the principal axes of the target among the features that are constant in the background.

    Also return the target covariance times these axes, and the target sd along them.
    """
    where, size = np.array(system.constant, dtype=np.intp), len(system.inverse)
    if 8 * 8 * size * len(where) > system.problem.memory_budget:
        raise InputError(
            f"{len(where)} of {size} features are constant in the background and vary in the target: so many "
            "infinite ratios are more than the memory allows. Leave these features out, or use `shrinkage='oas'`."
        )
    units = _unit_vectors(size, where)
    image = system.target_times(units)
    values, axes = top_eigen(image[where], len(where))
    varies = values > rank_tolerance(size) * values[0]
    axes = axes[:, varies]
    return units @ axes, image @ axes, np.sqrt(values[varies])


def _unshrunk_ratios(system: System, space: Space, count: int) -> Array | None:
    """Return the ratios of the unshrunk problem, used to separate signal from noise; None if it is singular."""
    try:
        if system.constant:
            return _exact(system, count, _VALUES_TOLERANCE)[0].ratios
        return top_pairs(space, 0.0, count, _VALUES_TOLERANCE)[0].ratios
    except SingularError:
        return None


def _not_converged(residual: float, least: float) -> Note:
    what = (
        f"the components are found to a residual of {residual:.1e}, not {_tolerance(least):.1e}: rounding allows no "
        "better for a background covariance that is so close to singular."
    )
    if least < 1 / WORST_CONDITION:
        what = (
            f"the condition number of the background covariance is above {WORST_CONDITION:.0e} (estimated), and "
            "components in its smallest directions may be missed."
        )
    return Note(ConditionWarning, f"{what} Use `shrinkage='oas'`, or `solver='gsvd'` where the memory allows.")


class System:
    """Target and background as products with vectors, in background-sd units."""

    def __init__(self, problem: Problem):
        self.problem, self.mixture = problem, problem.mixture
        datasets = [problem.target, *problem.backgrounds]
        sparse = all(data.rows is not None and data.rows.is_sparse for data in datasets)
        # Files are read on the caller's thread, so that Ctrl-C interrupts reading and progress is reported.
        self.parts = list((davidson.thread_pool().map if sparse else map)(RowCovariance, datasets))
        self.means: Sequence[Array] = [part.mean for part in self.parts]
        variance = self.parts[0].variance
        self.shift = problem.shift(self.means)
        self.constant: tuple[int, ...] = ()
        self.background_variance = np.zeros_like(variance)
        if self.mixture is None:
            frame, _ = measure(variance, None)
        else:
            if self.shift is not None:
                variance = variance + self.shift**2
            self.background_variance = self.mixture.mixed([part.variance for part in self.parts[1:]])
            frame, self.constant = measure(variance, self.background_variance)
        self.n_alive = len(frame.alive)
        self.variance = variance / frame.scale**2  # target variance in background-sd units
        # All features are kept; those that do not vary are multiplied by zero.
        self.frame = FeatureScale(np.arange(len(variance)), frame.scale)
        self.inverse = np.zeros(len(variance))
        self.inverse[frame.alive] = 1 / frame.alive_scale
        self.operator = Operator(self.products, self.background_times, lambda image: image * frame.scale[:, None])
        self.background_entries = sum(part.n_entries for part in self.parts[1:])

    def products(self, vectors: Array) -> tuple[Array, Array]:
        """Return both products, computed concurrently."""
        scaled = vectors * self.inverse[:, None]
        started = [part.start(scaled) for part in self.parts]
        return self._target(started[0](), vectors), self._background([result() for result in started[1:]], vectors)

    def target_times(self, vectors: Array) -> Array:
        """Return the scaled target covariance times vectors."""
        return self._target(self.parts[0].start(vectors * self.inverse[:, None])(), vectors)

    def background_times(self, vectors: Array) -> Array:
        """Return the background correlation matrix times vectors."""
        scaled = vectors * self.inverse[:, None]
        started = [part.start(scaled) for part in self.parts[1:]]
        return self._background([result() for result in started], vectors)

    def _target(self, product: Array, vectors: Array) -> Array:
        product *= self.inverse[:, None]
        if self.shift is not None:
            shift = self.shift * self.inverse
            product += np.multiply.outer(shift, shift @ vectors)
        return product

    def _background(self, products: Sequence[Array], vectors: Array) -> Array:
        if self.mixture is None:
            return np.zeros_like(vectors)
        result = self.mixture.mixed(products)
        # Only rounding errors are left for features that are constant in the background.
        result *= np.where(self.background_variance > 0, self.inverse, 0.0)[:, None]
        return result

    def space(self, operator: Operator, count: int, rho: float = 0.0) -> Space:
        """Return a search space for ``count`` pairs; it starts inside the range of the two covariances."""
        size = len(self.inverse)
        rng = np.random.default_rng(self.problem.options.seed)
        random = rng.normal(size=(size, max(count, _LEAST_BLOCK)))
        images = operator.products(random / np.sqrt(size))
        start = np.asarray(sum(image / np.maximum(np.linalg.norm(image, axis=0), 1e-300) for image in images))
        most = self.problem.memory_budget // 2 // (3 * 8 * size)
        watch = None
        if rho <= _WELL_CONDITIONED:
            watch = SmallestEigenvalue(rng.normal(size=size) * (self.background_variance > 0))
        return Space(operator, start, max(most, 4 * start.shape[1] + 20), watch)


def _in_factor_coordinates(
    plain: Operator, shrinkage: Shrinkage
) -> tuple[Operator, Callable[[Eigenpairs], Eigenpairs]]:
    """Return the covariances in coordinates x = Gᵀ v in which F + Ψ = G Gᵀ is the identity, and a way back for pairs.

    The background is shrunk toward F + Ψ, and G = Ψ^½ (I + U (r − 1) Uᵀ).
    """
    if shrinkage.loadings is None:
        return plain, lambda eigen: eigen
    root = np.sqrt(np.broadcast_to(shrinkage.psi, len(shrinkage.loadings)))[:, None]
    axes, sizes, _ = np.linalg.svd(shrinkage.loadings / root, full_matrices=False)
    stretch = np.sqrt(1 + sizes**2)[:, None]  # r

    def along(columns: Array, factor: Array) -> Array:
        return np.asarray(columns + axes @ (factor * (axes.T @ columns)))

    def vectors(x: Array) -> Array:  # G⁻ᵀ x
        return np.asarray(along(x, 1 / stretch - 1) / root)

    def turned(image: Array) -> Array:  # G⁻¹ times an image
        return along(image / root, 1 / stretch - 1)

    def image(turned: Array) -> Array:
        return np.asarray(along(turned, stretch - 1) * root)

    def products(x: Array) -> tuple[Array, Array]:
        target, background = plain.products(vectors(x))
        return turned(target), turned(background)

    def background(x: Array) -> Array:
        return turned(plain.background(vectors(x)))

    def back(eigen: Eigenpairs) -> Eigenpairs:
        images = image(eigen.target_image), image(eigen.background_image)
        return Eigenpairs(eigen.ratios, vectors(eigen.vectors), *images)

    return Operator(products, background, lambda x: plain.in_units(image(x))), back


def trace_squared(
    times: Callable[[Array], Array], varying: Array, work: float, seed: int, trace: float
) -> tuple[float, float]:
    """Return tr S² for a correlation matrix, or a matrix with this ``trace``, given by its products.

    Also return the relative standard error of ``tr S² − p``, which is that of the OAS intensity; zero if the value is
    exact. ``varying`` is 1 for features that vary in the background and 0 elsewhere; ``work`` is the number of matrix
    entries that one product with one vector reads.
    """
    size, features = len(varying), np.flatnonzero(varying)
    if 2 * work * len(features) <= EXACT_WORK:
        starts = range(0, len(features), _WIDTH)
        return sum(squared_norm(times(_unit_vectors(size, features[i : i + _WIDTH]))) for i in starts), 0.0
    rng = np.random.default_rng([seed, 1])

    def signs(count: int) -> Array:
        return rng.choice([-1.0, 1.0], size=(size, count)) * varying[:, None]

    basis = signs(_LARGE)
    for _ in range(2):
        basis, _ = np.linalg.qr(times(basis))
    large = squared_norm(times(basis) - basis)
    probes = signs(_PROBES)
    probes -= basis @ (basis.T @ probes)
    apart = times(probes) - probes
    rest = np.einsum("ij,ij->j", apart, apart)
    value = 2 * trace - len(features) + large + float(rest.mean())
    return value, float(rest.std(ddof=1) / np.sqrt(_PROBES)) / (value - len(features))


def _unit_vectors(size: int, features: NDArray[np.intp]) -> Array:
    """Return the unit vectors of some features, (size, len(features))."""
    units = np.zeros((size, len(features)))
    units[features, np.arange(len(features))] = 1.0
    return units
