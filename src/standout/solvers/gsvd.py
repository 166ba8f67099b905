"""Generalized SVD solver: ratios from the rows, without squaring their condition number.

It is used if there are more features than rows, or if the problem is too ill-conditioned for covariances. Forming a
covariance squares the condition number: at cond(rows) = 1e8 no correct digits are left. Working on the triangular
factors of the centred rows keeps ratios accurate to 1e−7 even at 1e12. It costs about five times as much as a
covariance and needs another pass over the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from standout._blas import Array, rank_tolerance, weighted_sum
from standout._dataset import Dataset
from standout._shrinkage import (
    Covariances,
    Evidence,
    GramShrinkage,
    Shrinkage,
    few_rows,
    find_factors,
    intensity,
    own_share,
)
from standout.io.memory import weighted_blocks
from standout.solvers import gram
from standout.solvers.problem import Problem, above_edge, check_varies, how_many, measure
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

_EPS = float(np.finfo(float).eps)


class RowFactor:
    """Accumulate a factor F of the scatter, FᵀF = Σ w (x − mean)(x − mean)ᵀ, block by block."""

    def __init__(self, n_features: int):
        self.n_features = n_features
        self.mean = np.zeros(n_features)
        self.weight = 0.0
        self._parts: list[Array] = []

    def add(self, rows: Array, weights: Array | None) -> None:
        """Add rows: the block centred at its mean, and one row for the difference between the means."""
        if len(rows) == 0:
            return
        weight = float(len(rows)) if weights is None else float(weights.sum())
        mean = weighted_sum(rows, weights) / weight
        centred = rows - mean
        # Centre twice: the mean of equal numbers may have a rounding error, and a constant would not be exactly zero.
        rest = weighted_sum(centred, weights) / weight
        centred -= rest
        if weights is not None:
            centred *= np.sqrt(weights)[:, None]
        total, apart = self.weight + weight, mean + rest - self.mean
        between = apart * np.sqrt(self.weight * weight / total)
        self._parts.append(np.vstack([centred, between]) if self._parts else centred)
        self.mean += apart * (weight / total)
        self.weight = total
        if sum(map(len, self._parts)) > 3 * self.n_features:
            self._parts = [self.factor()]

    def factor(self) -> Array:
        """Return F, reduced to at most ``n_features`` rows."""
        stacked = np.vstack(self._parts)
        if len(stacked) <= self.n_features:
            return stacked
        (triangle,) = linalg.qr(stacked, mode="r", check_finite=False, overwrite_a=True)
        return np.asarray(triangle[: self.n_features])


def row_factor(data: Dataset, frame: FeatureScale, mean: Array) -> Array:
    """Return F with FᵀF the covariance of a dataset in the solver's coordinates."""
    assert data.source is not None
    total = RowFactor(len(frame.alive))
    about = mean[frame.alive]
    for block in weighted_blocks(data.source, data.weights, data.role):
        rows = (block.rows[:, frame.alive] - about) / frame.alive_scale
        total.add(rows.astype(np.float64, copy=False), block.weights)  # LAPACK does not support long double
    return np.asarray(total.factor() / np.sqrt(total.weight))


@dataclass(frozen=True)
class Factored:
    """Target and background factors in the solver's coordinates, and the number of rows behind them."""

    target: Array
    background: Array
    n_rows: int
    rounding: Array | None = None  # (d,): rounding error of each feature, from float64 values far from zero

    @classmethod
    def stack(cls, target: Sequence[Array], backgrounds: Sequence[Array], n_rows: int) -> Factored:
        """Stack the parts: the covariance of a stack is the sum of the covariances."""
        return cls(np.vstack(target), np.vstack(backgrounds), n_rows)


@dataclass(frozen=True)
class JointRange:
    """The range of target and background together: singular values and an orthonormal basis."""

    values: Array  # (r,), r the joint rank
    basis: Array  # (d, r)
    left: Array  # (rows of target and background, r)
    balance: float  # factor by which the target rows were multiplied
    tolerance: float


def joint_range(pair: Factored, most: int | None = None) -> JointRange:
    """Find the directions in which target or background varies, at most ``most`` if the rank is known."""
    size = float(np.linalg.norm(pair.target))
    # The variances of target and background may differ by orders of magnitude: neither may mask the other.
    balance = float(np.linalg.norm(pair.background)) / size if size > 0 else 1.0
    stacked = np.vstack([balance * pair.target, pair.background])
    left, values, right = linalg.svd(stacked, full_matrices=False, check_finite=False)
    tolerance = max(pair.n_rows, pair.target.shape[1]) * _EPS
    kept = values > tolerance * values[0]
    if most is not None:
        kept[most:] = False
    if pair.rounding is not None:
        # A linear relation between features far from zero (parts of a whole) holds only up to rounding of the rows.
        kept &= values > 10 * max(balance, 1.0) * np.sqrt(right**2 @ pair.rounding**2)
    return JointRange(values[kept], right[kept].T, left[:, kept], balance, tolerance)


def solve(pair: Factored, joint: JointRange) -> Eigenpairs:
    """Return all pairs, infinite ratios first, from the cosines and sines of the joint range."""
    upper, lower = np.split(joint.left, [len(pair.target)])
    turn = _right_vectors(upper)
    cosine = np.linalg.norm(upper @ turn, axis=0)
    # If the cosine is near one the sine is inaccurate: compute it from the background factor.
    big = int((cosine**2 >= 0.5).sum())
    if big:
        turn = np.hstack([turn[:, :big] @ _right_vectors(lower @ turn[:, :big])[:, ::-1], turn[:, big:]])
    cosines, sines = upper @ turn, lower @ turn
    cosine, sine = np.linalg.norm(cosines, axis=0), np.linalg.norm(sines, axis=0)
    spread = joint.values[0] / joint.values[-1]
    noise = min(1e-6, np.sqrt(len(joint.values)) * max(100 * joint.tolerance, 10 * _EPS * spread))
    with np.errstate(divide="ignore"):
        ratios = np.where(sine <= noise, np.inf, (cosine / sine / joint.balance) ** 2)
    ratios[cosine <= noise] = 0.0
    order = np.argsort(-ratios, kind="stable")
    norm = np.where(np.isinf(ratios), 1.0, sine)[order]
    return Eigenpairs(
        ratios=ratios[order],
        vectors=joint.basis @ (turn[:, order] / joint.values[:, None]) / norm,
        target_image=pair.target.T @ (cosines[:, order] / norm / joint.balance),
        background_image=pair.background.T @ (sines[:, order] / norm),
        n_infinite=int(np.isinf(ratios).sum()),
    )


def _right_vectors(matrix: Array) -> Array:
    """Return all right singular vectors, largest first."""
    rows, columns = matrix.shape
    if rows > columns:
        (matrix,) = linalg.qr(matrix, mode="r", check_finite=False)
        matrix = matrix[:columns]
    return np.asarray(linalg.svd(matrix, full_matrices=True, check_finite=False)[2].T)


def solve_from_rows(problem: Problem) -> Solution:
    """Solve for more features than rows, without forming any matrix of size features × features."""
    rows = gram.row_span(problem.target, problem.backgrounds, problem.mixture, problem.options.own_centre)
    if problem.mixture is None:
        check_varies(rows.variances[0], "target")
        count = how_many(problem, min(rows.rank, problem.target_dimensions), None)
        found = components(gram.solve(rows, GramShrinkage(0.0), count.kept), rows.frame, count.kept)
        return build_solution(problem, found, rows.frame, rows.rank, "span", count, list(rows.means))
    frame, constant = measure(*rows.variances)
    n_varying = int((rows.variances[1] > 0).sum())
    inner = rows.gram[rows.n_target :, rows.n_target :]
    evidence = problem.evidence(rows.rank, n_varying, float(np.einsum("ij,ij->", inner, inner)))
    shrinkage = GramShrinkage(0.0)
    if not problem.keeps_factors(evidence):
        shrinkage = GramShrinkage(problem.diagonal_shrinkage(evidence).rho)
    elif own_share(problem.n_rows, n_varying) == 0:  # otherwise Ψ is not a multiple of the identity
        shrinkage = problem.with_intensity(gram.gram_shrinkage(rows, evidence, problem.target_dimensions))
    if shrinkage.rho == 0 or problem.has_edge(rows.rank):
        return solve_from_factors(problem, frame, constant, list(rows.means))
    count = how_many(problem, min(rows.rank, problem.target_dimensions), None)
    eigen = gram.solve(rows, shrinkage, count.kept)
    if eigen.ratios[-1] <= rank_tolerance(rows.n_rows) * eigen.ratios[0]:
        # Directions in which the target does not vary are not combinations of its rows.
        return solve_from_factors(problem, frame, constant, list(rows.means))
    return build_solution(
        problem, components(eigen, rows.frame, count.kept), frame, rows.rank, "span", count, list(rows.means),
        rho=shrinkage.rho, n_factors=shrinkage.n_factors,
        notes=shrinkage_notes(problem, evidence, shrinkage.rho, shrinkage.n_factors),
    )  # fmt: skip


def solve_from_factors(
    problem: Problem, frame: FeatureScale, constant: tuple[int, ...], means: Sequence[Array]
) -> Solution:
    """Solve from the rows by the generalized SVD."""
    pair = _factored(problem, frame, means)
    joint = joint_range(pair)
    rank = len(joint.values)
    evidence = problem.evidence(rank, len(frame.alive) - len(constant), _trace_squared(pair.background))
    # The rank from the rows may differ from that of the covariances, so the rule is applied here, not by the caller.
    many = not few_rows(evidence)
    exact = solve(pair, joint) if many or problem.has_edge(rank) else None
    if not problem.keeps_factors(evidence):
        shrinkage = problem.diagonal_shrinkage(evidence)
    elif many and problem.options.intensity is None and exact is not None and exact.n_infinite:
        shrinkage = Shrinkage(0.0)  # structural
    else:
        shrinkage = problem.with_intensity(_estimate_background(pair, evidence, problem.target_dimensions))
    rho, own, own_frame = shrinkage.rho, None, frame
    if rho > 0:
        eigen, own_frame, own = _solve_shrunk(pair, joint, shrinkage, frame)
        notes: Sequence[Note] = shrinkage_notes(problem, evidence, rho, shrinkage.n_factors)
    else:
        eigen = exact = solve(pair, joint) if exact is None else exact
        notes = structural_notes(problem, eigen, frame, constant)
    plain = None if exact is None else exact.ratios
    limit = min(rank, problem.target_dimensions)
    count = how_many(problem, limit, plain, rank)
    return build_solution(
        problem, components(eigen, own_frame, count.kept), frame, rank, "gsvd", count, means,
        rho=rho, n_factors=shrinkage.n_factors, plain=plain, notes=notes, n_infinite=eigen.n_infinite, own=own,
        more=components(eigen, own_frame, above_edge(problem, limit, plain, rank) or 0),
    )  # fmt: skip


def _factored(problem: Problem, frame: FeatureScale, means: Sequence[Array]) -> Factored:
    """Compute the factors of target and mixed background from the rows."""
    assert problem.mixture is not None
    data = (problem.target, *problem.backgrounds)
    target, *backgrounds = [row_factor(part, frame, mean) for part, mean in zip(data, means, strict=True)]
    if not problem.options.own_centre:
        shift = means[0] - problem.mixture.mixed_means(means[1:])
        target = np.vstack([target, (shift / frame.scale)[frame.alive]])
    shares = np.sqrt(problem.mixture.shares)
    background = np.vstack([share * factor for share, factor in zip(shares, backgrounds, strict=True)])
    rounding = _EPS * (np.abs(means).max(axis=0) / frame.scale)[frame.alive]
    return Factored(target, background, problem.n_rows, rounding)


def _trace_squared(factor: Array) -> float:
    """Return the trace of (FᵀF)²."""
    inner = factor @ factor.T if len(factor) < factor.shape[1] else factor.T @ factor
    return float(np.einsum("ij,ij->", inner, inner))


def _estimate_background(pair: Factored, evidence: Evidence, dimensions: int) -> Shrinkage:
    """Return the "auto" estimate of the background, from the factors of the two covariances."""
    target, background = pair.target, pair.background
    variance = np.einsum("ij,ij->j", background, background)
    covariances = Covariances(
        lambda vectors: target.T @ (target @ vectors),
        lambda vectors: background.T @ (background @ vectors),
        lambda first: target.T @ target[:, first],
        np.einsum("ij,ij->j", target, target), variance, len(variance),
    )  # fmt: skip
    found = find_factors(covariances, evidence, dimensions)
    if found is None:
        return Shrinkage(intensity("auto", evidence))
    inside = background if found.units is None else background / found.units
    residual = inside - (inside @ found.axes) @ found.axes.T
    return found.estimate(variance, evidence, pair.n_rows, lambda psi: _trace_squared(residual / np.sqrt(psi)))


def _solve_shrunk(
    pair: Factored, joint: JointRange, shrinkage: Shrinkage, frame: FeatureScale
) -> tuple[Eigenpairs, FeatureScale, Array | None]:
    """Solve against the shrunk background: its rows, the shared factors as rows, and Ψ.

    Also return the coordinates of the pairs, and their ratios against the unshrunk background.
    """
    rho, psi, loadings = shrinkage.rho, shrinkage.psi, shrinkage.loadings
    if not isinstance(psi, float) and loadings is not None and len(pair.target) + len(pair.background) < len(psi):
        # In units of Ψ the shrinkage target is the identity, which stays within the joint range.
        root = np.sqrt(psi)
        frame = frame.rescaled(root)
        pair = Factored(pair.target / root, pair.background / root, pair.n_rows)
        loadings, psi = loadings / root[:, None], 1.0
        joint = joint_range(pair, len(joint.values))
    # A multiple of the identity stays within the joint range: anything outside it is rounding.
    inside = isinstance(psi, float)
    extra = [np.sqrt(rho * psi) * joint.basis.T if inside else np.diag(np.sqrt(rho * psi))]
    if loadings is not None:
        extra.append(np.sqrt(rho) * loadings.T)
    shrunk = Factored(pair.target, np.vstack([np.sqrt(1 - rho) * pair.background, *extra]), pair.n_rows)
    eigen = solve(shrunk, joint_range(shrunk, len(joint.values) if inside else None))
    if rho == 1:
        return eigen, frame, None
    seen = pair.background @ eigen.vectors
    with np.errstate(divide="ignore"):
        return eigen, frame, np.asarray(eigen.ratios / np.einsum("ik,ik->k", seen, seen))
