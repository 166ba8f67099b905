"""Generalised SVD solver: ratios from the rows, without squaring their condition number.

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

from standout._blas import Array, rank_tolerance, squared_norm, weighted_sum
from standout._dataset import Dataset
from standout._shrinkage import Covariances, Factors, Shrinkage, few_rows, own_share
from standout.io.memory import weighted_blocks
from standout.solvers import gram
from standout.solvers.problem import Problem, measure
from standout.solvers.solution import (
    Eigenpairs,
    FeatureScale,
    Solution,
    build_solution,
    shrinkage_notes,
    structural_notes,
)

_EPS = float(np.finfo(float).eps)


def row_factor(data: Dataset, frame: FeatureScale, about: Array) -> Array:
    """Return F with FᵀF the covariance of a dataset in the solver's coordinates; rows are taken relative to ``about``.

    Every block is centred at its mean, with an additional row for the difference between that and the mean so far.
    """
    assert data.source is not None
    size = len(frame.alive)
    mean, total, parts = np.zeros(size), 0.0, [np.empty((0, size))]
    for block in weighted_blocks(data.source, data.weights, data.role):
        if len(block.rows) == 0:
            continue
        rows, weights = (block.rows[:, frame.alive] - about[frame.alive]) / frame.alive_scale, block.weights
        rows = rows.astype(np.float64, copy=False)  # LAPACK does not support long double
        weight = float(len(rows)) if weights is None else float(weights.sum())
        own = weighted_sum(rows, weights) / weight
        centred = rows - own
        # Centre twice: the mean of equal numbers may have a rounding error, and a constant would not be exactly zero.
        rest = weighted_sum(centred, weights) / weight
        centred -= rest
        if weights is not None:
            centred *= np.sqrt(weights)[:, None]
        apart = own + rest - mean
        parts.append(centred)
        if total > 0:
            parts.append(apart[None] * np.sqrt(total * weight / (total + weight)))
        total += weight
        mean += apart * (weight / total)
        if sum(map(len, parts)) > 3 * size:
            parts = [_triangle(np.vstack(parts))]
    return np.asarray(_triangle(np.vstack(parts)) / np.sqrt(total))


def _triangle(factor: Array) -> Array:
    """Return a factor with the same FᵀF and no more rows than columns."""
    if len(factor) <= factor.shape[1]:
        return factor
    (triangle,) = linalg.qr(factor, mode="r", check_finite=False)
    return np.asarray(triangle[: factor.shape[1]])


@dataclass(frozen=True)
class Factored:
    """Target and background factors in the solver's coordinates, and the number of rows behind them."""

    target: Array
    background: Array
    n_rows: int
    rounding: Array | None = None  # (d,): rounding error of each feature, from float64 values far from zero


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
    rows = np.vstack([balance * pair.target, pair.background])
    left, values, right = linalg.svd(rows, full_matrices=False, check_finite=False)
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
    return np.asarray(linalg.svd(_triangle(matrix), full_matrices=True, check_finite=False)[2].T)


def solve_from_rows(problem: Problem) -> Solution:
    """Solve for more features than rows, without forming any matrix of size features × features."""
    rows = gram.row_span(problem)
    means = list(rows.means)
    frame, constant = measure(rows.variances[0], None if problem.mixture is None else rows.variances[1])
    if problem.mixture is None:
        count = problem.how_many(rows.rank)
        found = gram.solve(rows, Shrinkage(0.0), count[1])
        variance = rows.variances[0]
        return build_solution(problem, found, rows.frame, rows.rank, "span", count, means=means, variance=variance)
    n_varying = int(rows.varies.sum())
    inner = rows.gram[rows.n_target :, rows.n_target :]
    evidence = problem.evidence(rows.rank, n_varying, lambda: squared_norm(inner))
    # Among rows, Ψ is a multiple of the identity.
    unequal = problem.options.shrinkage == "auto" and own_share(problem.n_rows, n_varying) > 0
    if not unequal and not problem.has_edge(rows.rank):
        shrinkage = problem.background_estimate(evidence, lambda: rows, 0, lambda: False)
        count = problem.how_many(rows.rank)
        eigen = gram.solve(rows, shrinkage, count[1]) if shrinkage.rho > 0 else None
        # Directions in which the target does not vary are not combinations of its rows.
        if eigen is not None and eigen.ratios[-1] > rank_tolerance(rows.n_rows) * eigen.ratios[0]:
            notes = shrinkage_notes(problem, evidence, shrinkage)
            return build_solution(
                problem, eigen, rows.frame, rows.rank, "span", count,
                means=means, variance=rows.variances[0], scale=frame.scale, shrinkage=shrinkage, notes=notes,
            )  # fmt: skip
    return solve_from_factors(problem, frame, constant, means, rows.variances[0])


def solve_from_factors(
    problem: Problem,
    frame: FeatureScale,
    constant: tuple[int, ...],
    means: Sequence[Array] | None = None,
    variance: Array | None = None,
) -> Solution:
    """Solve from the rows by the generalised SVD; means and target variance are those of the moments by default."""
    if means is None:
        means = [data.moments.mean for data in (problem.target, *problem.backgrounds)]
    pair = factored(problem, frame, means)
    joint = joint_range(pair)
    rank = len(joint.values)
    evidence = problem.evidence(rank, len(frame.alive) - len(constant), lambda: _trace_squared(pair.background))
    # The rank from the rows may differ from that of the covariances, so the rule is applied here, not by the caller.
    exact = None if few_rows(evidence) and not problem.has_edge(rank) else solve(pair, joint)
    shrinkage = problem.background_estimate(
        evidence, lambda: _search(pair), problem.n_rows, lambda: exact is not None and exact.n_infinite > 0
    )
    own, own_frame = None, frame
    if shrinkage.rho > 0:
        eigen, own_frame, own = _solve_shrunk(pair, joint, shrinkage, frame)
        notes = shrinkage_notes(problem, evidence, shrinkage)
    else:
        eigen = exact = solve(pair, joint) if exact is None else exact
        notes = structural_notes(problem, eigen, frame, constant)
    plain = None if exact is None else exact.ratios
    return build_solution(
        problem, eigen, own_frame, rank, "gsvd", problem.how_many(rank, plain),
        means=means, variance=variance, scale=frame.scale, shrinkage=shrinkage, plain=plain, notes=notes, own=own,
        has_all=True,
    )  # fmt: skip


def factored(problem: Problem, frame: FeatureScale, means: Sequence[Array]) -> Factored:
    """Compute the factors of target and mixed background from the rows."""
    assert problem.mixture is not None
    data = (problem.target, *problem.backgrounds)
    target, *backgrounds = [row_factor(part, frame, mean) for part, mean in zip(data, means, strict=True)]
    shift = problem.shift(means)
    if shift is not None:
        target = np.vstack([target, (shift / frame.scale)[frame.alive]])
    shares = np.sqrt(problem.mixture.shares)
    background = np.vstack([share * factor for share, factor in zip(shares, backgrounds, strict=True)])
    rounding = _EPS * (np.abs(means).max(axis=0) / frame.scale)[frame.alive]
    return Factored(target, background, problem.n_rows, rounding)


def _trace_squared(factor: Array) -> float:
    """Return the trace of (FᵀF)²."""
    return squared_norm(factor @ factor.T if len(factor) < factor.shape[1] else factor.T @ factor)


def _search(pair: Factored) -> Covariances:
    """Return the search for factors, from the factors of the two covariances."""
    target, background = pair.target, pair.background

    def residual_squared(found: Factors, psi: Array | float) -> float:
        inside = background if found.units is None else background / found.units
        residual = inside - (inside @ found.axes) @ found.axes.T
        return _trace_squared(residual / np.sqrt(psi))

    return Covariances(
        target_times=lambda vectors: target.T @ (target @ vectors),
        background_times=lambda vectors: background.T @ (background @ vectors),
        columns=lambda first: target.T @ target[:, first],
        residual_squared=residual_squared,
        target_variance=np.einsum("ij,ij->j", target, target),
        varies=np.einsum("ij,ij->j", background, background) > 0,
        n_alive=target.shape[1],
    )


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
        scale = frame.scale.copy()
        scale[frame.alive] *= root
        frame = FeatureScale(frame.alive, scale)
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
