"""Generalized SVD solver: ratios from the rows, without squaring their condition number.

It is used if there are more features than rows, or if the problem is too ill-conditioned for covariances. Forming a
covariance squares the condition number: at cond(rows) = 1e8 no correct digits are left. Working on the triangular
factors of the centred rows keeps ratios accurate to 1e−7 even at 1e12. It costs about five times as much as a
covariance and needs another pass over the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from standout._blas import Array, rank_tolerance
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
from standout.solvers.gram import row_span
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
        self._held = 0

    def add(self, rows: Array, weights: Array | None) -> None:
        """Add rows: the block centred at its mean, and one row for the difference between the means."""
        if len(rows) == 0:
            return
        weight = float(len(rows)) if weights is None else float(weights.sum())
        mean = rows.mean(axis=0) if weights is None else (weights @ rows) / weight
        centred = rows - mean
        # Centre twice: the mean of equal numbers may have a rounding error, and a constant would not be exactly zero.
        rest = centred.mean(axis=0) if weights is None else (weights @ centred) / weight
        centred -= rest
        mean = mean + rest
        if weights is not None:
            centred *= np.sqrt(weights)[:, None]
        total = self.weight + weight
        apart = (mean - self.mean) * np.sqrt(self.weight * weight / total)
        self.mean += (mean - self.mean) * (weight / total)
        self.weight = total
        self._hold(np.vstack([centred, apart]) if self._parts else centred)

    def _hold(self, rows: Array) -> None:
        self._parts.append(rows)
        self._held += len(rows)
        if self._held > 3 * self.n_features:
            self._parts = [self.factor()]
            self._held = len(self._parts[0])

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
    scale, about = frame.scale[frame.alive], mean[frame.alive]
    for block in weighted_blocks(data.source, data.weights, data.role):
        rows = (block.rows[:, frame.alive] - about) / scale
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
    def stack(
        cls, target: Sequence[Array], backgrounds: Sequence[Array], n_rows: int, rounding: Array | None = None
    ) -> Factored:
        """Stack the parts: the covariance of a stack is the sum of the covariances."""
        return cls(np.vstack(target), np.vstack(backgrounds), n_rows, rounding)


@dataclass(frozen=True)
class JointRange:
    """The range of target and background together: singular values and an orthonormal basis."""

    values: Array
    basis: Array  # (d, r)
    left: Array  # (rows of target and background, r)
    balance: float
    tolerance: float

    @property
    def rank(self) -> int:
        """The joint rank."""
        return len(self.values)


def joint_range(pair: Factored, most: int | None = None) -> JointRange:
    """Find the directions in which target or background varies, at most ``most`` if the rank is known."""
    size = float(np.linalg.norm(pair.target))
    # The variances of target and background may differ by orders of magnitude: neither may mask the other.
    balance = float(np.linalg.norm(pair.background)) / size if size > 0 else 1.0
    left, values, right = linalg.svd(
        np.vstack([balance * pair.target, pair.background]), full_matrices=False, check_finite=False
    )
    tolerance = max(pair.n_rows, pair.target.shape[1]) * _EPS
    kept = values > tolerance * values[0]
    if most is not None:
        kept[most:] = False
    if pair.rounding is not None:
        # A linear relation between features far from zero (parts of a whole) holds only up to rounding of the rows.
        kept &= values > 10 * max(balance, 1.0) * np.sqrt(right**2 @ pair.rounding**2)
    return JointRange(values[kept], right[kept].T, left[:, kept], balance, tolerance)


def shrinkage_of(pair: Factored, evidence: Evidence, dimensions: int) -> Shrinkage:
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

    def squared(psi: Array | float) -> float:
        rest = residual / np.sqrt(psi)
        inner = rest @ rest.T if len(rest) < rest.shape[1] else rest.T @ rest
        return float(np.einsum("ij,ij->", inner, inner))

    return found.estimate(variance, evidence, pair.n_rows, squared)


def shrunk(pair: Factored, joint: JointRange, shrinkage: Shrinkage) -> Factored:
    """Shrink the background by extra rows: the shared factors, and Ψ."""
    rho, psi = shrinkage.rho, shrinkage.psi
    # Stay within the joint range if Ψ is a multiple of the identity.
    extra = [np.sqrt(rho * psi) * joint.basis.T if isinstance(psi, float) else np.diag(np.sqrt(rho * psi))]
    if shrinkage.loadings is not None:
        extra.append(np.sqrt(rho) * shrinkage.loadings.T)
    return Factored(pair.target, np.vstack([np.sqrt(1 - rho) * pair.background, *extra]), pair.n_rows)


def solve(pair: Factored, joint: JointRange) -> Eigenpairs:
    """Return all pairs, infinite ratios first, from the cosines and sines of the joint range."""
    n_target, rank = len(pair.target), joint.rank
    upper, lower = joint.left[:n_target], joint.left[n_target:]
    turn = _right_vectors(upper)
    cosine = np.linalg.norm(upper @ turn, axis=0)
    # If the cosine is near one the sine is inaccurate: compute it from the background factor.
    big = int((cosine**2 >= 0.5).sum())
    if big:
        turn = np.hstack([turn[:, :big] @ _right_vectors(lower @ turn[:, :big])[:, ::-1], turn[:, big:]])
    cosines, sines = upper @ turn, lower @ turn
    cosine, sine = np.linalg.norm(cosines, axis=0), np.linalg.norm(sines, axis=0)
    spread = joint.values[0] / joint.values[-1]
    noise = min(1e-6, max(100 * np.sqrt(rank) * joint.tolerance, 10 * np.sqrt(rank) * _EPS * spread))
    with np.errstate(divide="ignore"):
        ratios = np.where(sine <= noise, np.inf, (cosine / sine / joint.balance) ** 2)
    ratios[cosine <= noise] = 0.0
    order = np.argsort(-ratios, kind="stable")
    norm = np.where(np.isinf(ratios), 1.0, sine)[order]
    vectors = joint.basis @ (turn[:, order] / joint.values[:, None]) / norm
    return Eigenpairs(
        ratios=ratios[order],
        vectors=vectors,
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
    _, _, right = linalg.svd(matrix, full_matrices=True, check_finite=False)
    return np.asarray(right.T)


def solve_from_rows(task: Problem) -> Solution:
    """Solve for more features than rows, without forming any matrix of size features × features."""
    rows = row_span(task.target, task.backgrounds, task.mixture, task.wanted.own_centre)
    columns = rows.columns
    if task.mixture is None:
        check_varies(columns.target_variance, "target")
        count = how_many(task, min(rows.rank, task.target_dimensions), None)
        found = components(gram.solve(rows, GramShrinkage(0.0), count.kept), rows.frame, count.kept)
        return build_solution(task, found, rows.frame, rows.rank, "span", count, columns.means)
    frame, constant = measure(columns.target_variance, columns.background_variance)
    varying = int((columns.background_variance > 0).sum())
    evidence = task.evidence(rows.rank, varying, rows.correlation_trace_squared())
    if not task.finds_factors(evidence):
        shrinkage = GramShrinkage(task.plain_shrinkage(evidence).rho)
    elif own_share(task.n_rows, varying) > 0:
        # Scaling features by their residual variance would need another Gram matrix.
        return solve_from_factors(task, frame, constant, columns.means)
    else:
        shrinkage = task.kept(gram.gram_shrinkage(rows, evidence, task.target_dimensions))
    if shrinkage.rho == 0 or task.has_edge(rows.rank):
        return solve_from_factors(task, frame, constant, columns.means)
    count = how_many(task, min(rows.rank, task.target_dimensions), None)
    eigen = gram.solve(rows, shrinkage, count.kept)
    if eigen.ratios[-1] <= rank_tolerance(rows.n_rows) * eigen.ratios[0]:
        # Directions in which the target does not vary are not combinations of its rows.
        return solve_from_factors(task, frame, constant, columns.means)
    found = components(eigen, rows.frame, count.kept)
    notes = shrinkage_notes(task, evidence, shrinkage.rho, shrinkage.n_factors)
    return build_solution(
        task, found, frame, rows.rank, "span", count, columns.means,
        rho=shrinkage.rho, n_factors=shrinkage.n_factors, notes=notes,
    )  # fmt: skip


def solve_from_factors(
    task: Problem, frame: FeatureScale, constant: tuple[int, ...], means: Sequence[Array]
) -> Solution:
    """Solve from the rows by the generalized SVD."""
    assert task.mixture is not None
    data = (task.target, *task.backgrounds)
    factors = [row_factor(part, frame, mean) for part, mean in zip(data, means, strict=True)]
    target = [factors[0]]
    if not task.wanted.own_centre:
        shift = means[0] - task.mixture.mixed_means(means[1:])
        target.append((shift / frame.scale)[None, frame.alive])
    shares = np.sqrt(task.mixture.shares)
    backgrounds = [share * factor for share, factor in zip(shares, factors[1:], strict=True)]
    rounding = _EPS * (np.abs(means).max(axis=0) / frame.scale)[frame.alive]
    pair = Factored.stack(target, backgrounds, task.n_rows, rounding)
    joint = joint_range(pair)
    inner = pair.background @ pair.background.T if len(pair.background) < pair.background.shape[1] else (
        pair.background.T @ pair.background
    )  # fmt: skip
    evidence = task.evidence(joint.rank, len(frame.alive) - len(constant), float(np.einsum("ij,ij->", inner, inner)))
    # The rank from the rows may differ from that of the covariances, so the rule is applied here, not by the caller.
    many = not few_rows(evidence)
    eigen = plain_eigen = solve(pair, joint) if many or task.has_edge(joint.rank) else None
    if not task.finds_factors(evidence):
        shrinkage = task.plain_shrinkage(evidence)
    elif many and task.wanted.intensity is None and plain_eigen is not None and plain_eigen.n_infinite:
        shrinkage = Shrinkage(0.0)  # structural
    else:
        shrinkage = task.kept(shrinkage_of(pair, evidence, task.target_dimensions))
    rho, n_rows = shrinkage.rho, len(pair.background)
    own_frame = frame
    if rho > 0:
        if not isinstance(shrinkage.psi, float) and len(pair.target) + n_rows < len(shrinkage.psi):
            # In units of Ψ the shrinkage target is the identity, which stays within the joint range.
            root = np.sqrt(shrinkage.psi)
            own_frame = frame.rescaled(root)
            pair = Factored(pair.target / root, pair.background / root, pair.n_rows)
            assert shrinkage.loadings is not None
            shrinkage = replace(shrinkage, loadings=shrinkage.loadings / root[:, None], psi=1.0)
            joint = joint_range(pair, joint.rank)
        pair = shrunk(pair, joint, shrinkage)
        # A multiple of the identity stays within the joint range: anything outside it is rounding.
        most = joint.rank if isinstance(shrinkage.psi, float) else None
        eigen = solve(pair, joint_range(pair, most))
        notes: Sequence[Note] = shrinkage_notes(task, evidence, rho, shrinkage.n_factors)
    else:
        eigen = plain_eigen = solve(pair, joint) if plain_eigen is None else plain_eigen
        notes = structural_notes(task, eigen, frame, constant)
    assert eigen is not None
    plain = None if plain_eigen is None else plain_eigen.ratios
    limit = min(joint.rank, task.target_dimensions)
    count = how_many(task, limit, plain, joint.rank)
    own = None
    if 0 < rho < 1:
        seen = pair.background[:n_rows] @ eigen.vectors / np.sqrt(1 - rho)
        own = _own_ratios(eigen.ratios, seen)
    more = components(eigen, own_frame, above_edge(task, limit, plain, joint.rank) or 0)
    return build_solution(
        task, components(eigen, own_frame, count.kept), frame, joint.rank, "gsvd", count, means,
        rho=rho, n_factors=shrinkage.n_factors, plain=plain, notes=notes, n_infinite=eigen.n_infinite, own=own,
        more=more,
    )  # fmt: skip


def _own_ratios(ratios: Array, seen: Array) -> Array:
    """Return the ratios of components against the unshrunk background, from the scores ``seen`` of its rows."""
    with np.errstate(divide="ignore"):
        return np.asarray(ratios / np.einsum("ik,ik->k", seen, seen))
