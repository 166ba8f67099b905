"""Contrastive PCA: the largest eigenvectors of ``C_xx − α C_yy``, in the units of the data.

A difference of covariances is indefinite. In directions in which neither target nor background varies its
eigenvalue is zero, which for a large α is the largest one, although such directions are meaningless. The problem
is therefore first reduced to the joint range of target and background. With more features than rows that is the
span of the rows, and no matrix of size features × features is formed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from standout._blas import Array, above_rounding, cholesky, rank_tolerance, symmetric, threads_for, top_eigen
from standout.solvers import dense, gram, gsvd
from standout.solvers.problem import CovariancePair, Problem, measure
from standout.solvers.solution import Components, FeatureScale, signs

_EPS = float(np.finfo(float).eps)
# Dinkelbach's iteration converges superlinearly: it rarely needs as many as ten steps.
_MOST_STEPS = 100
# Down to this eigenvalue (relative to the largest) a Gram matrix gives a basis that is orthonormal to 1e−10.
_GRAM_ACCURATE = 1e-6


@dataclass(frozen=True)
class Reduced:
    """Target and background covariance on an orthonormal basis of the directions in which they vary."""

    target: Array  # (r, r)
    background: Array  # (r, r)
    basis: Array | None  # (d, r), for the features that vary; None if it spans all directions
    frame: FeatureScale  # the features that vary, and their scale
    scale: Array  # (n_features,): background sd, target sd where the background is constant
    by_rows: bool  # whether it was computed from the rows, without feature covariances
    images: Array | None = None  # (d, r): the target covariance times the basis, if not in its span

    @property
    def rank(self) -> int:
        """The number of directions."""
        return len(self.target)

    def lifted(self, vectors: Array) -> Array:
        """Map vectors from the reduced basis to the features that vary."""
        return vectors if self.basis is None else np.asarray(self.basis @ vectors)

    def solver(self, count: int) -> str:
        """Return the name of the solver used for ``count`` vectors."""
        return "span" if self.by_rows else "lanczos" if dense.pays_off(self.rank, count) else "dense"


def threads(problem: Problem) -> AbstractContextManager[None]:
    """Return a context with the number of threads that suits the size of the problem."""
    small, large = sorted((problem.target.n_features, problem.n_rows))
    return threads_for(small**2 * (large + 10.0 * small))


def reduced(problem: Problem, *, standardised: bool = False) -> Reduced:
    """Reduce a problem to its joint range, in the units of the data or in those of the background sd."""
    if not by_rows(problem):
        return _from_moments(problem, standardised)
    found: Reduced = gram.shared("reduced", problem, standardised, lambda: _from_rows(problem, standardised))
    return found


def by_rows(problem: Problem) -> bool:
    """Return whether a problem is solved in the span of its rows: there are more features."""
    return problem.has_rows and problem.target.n_features > problem.n_rows


def _from_moments(problem: Problem, standardised: bool) -> Reduced:
    pair = CovariancePair.of(problem)
    target, background, frame, basis = pair.target, pair.background, pair.frame, None
    if pair.rank < len(target):
        # The rank is determined in background-sd units, so that it does not depend on the units of the features.
        balance = np.trace(background) / np.trace(target)
        _, basis = top_eigen(balance * target + background, pair.rank)
    if not standardised:
        units = frame.alive_scale
        target, background = (matrix * units * units[:, None] for matrix in (target, background))
        basis = None if basis is None else np.linalg.qr(units[:, None] * basis)[0]
        frame = FeatureScale(frame.alive, np.ones(len(frame.scale)))
    if basis is not None:
        target, background = (symmetric(basis.T @ matrix @ basis) for matrix in (target, background))
    return Reduced(target, background, basis, frame, pair.frame.scale, by_rows=False)


def _from_rows(problem: Problem, standardised: bool) -> Reduced:
    """Reduce a problem to the span of its rows, from their Gram matrix.

    It squares the condition number of the rows, so it is used only if the basis is still orthonormal.
    """
    rows = gram.row_span(problem, standardised)
    frame, _ = measure(*rows.variances)
    scale = frame.scale
    if not standardised:
        frame = FeatureScale(frame.alive, np.ones(len(scale)))
    balanced, norm = rows.balanced()
    values, left = top_eigen(balanced, rows.n_rows)
    kept = above_rounding(values)
    if values[kept][-1] < _GRAM_ACCURATE * values[0]:
        pair = gsvd.factored(problem, frame, list(rows.means))
        joint = gsvd.joint_range(pair)
        target, background = np.split(joint.left * joint.values, [len(pair.target)])
        target, basis = target / joint.balance, joint.basis
    else:
        roots = np.sqrt(values[kept])
        target, background = np.split(left[:, kept] * roots * norm[:, None], [rows.n_target])
        basis = rows.combine(left[:, kept] / roots / norm[:, None])[frame.alive]
    return Reduced(target.T @ target, background.T @ background, basis, frame, scale, by_rows=True)


def top_vectors(problem: Reduced, alpha: float, count: int, seed: int) -> Array:
    """Return orthonormal eigenvectors of ``C_xx − α C_yy``, (r, count), algebraically largest eigenvalue first."""
    # Dividing by 1 + α does not change the eigenvectors and avoids overflow for large α.
    share = 1 / (1 + alpha)
    matrix = share * problem.target - (alpha * share) * problem.background
    if dense.pays_off(problem.rank, count):
        # At α = λ₁ the largest eigenvalue is zero, where a relative tolerance cannot be met: shift the spectrum.
        np.einsum("ii->i", matrix)[...] += share * np.trace(problem.target) / problem.rank
    vectors = top_pairs(matrix, count, seed)[1]
    return np.asarray(linalg.qr(vectors, mode="economic", check_finite=False)[0])


def top_pairs(matrix: Array, count: int, seed: int) -> tuple[Array, Array]:
    """Return the largest eigenvalues (clipped at zero) and eigenvectors, with the Lanczos or dense solver."""
    # A single matrix-vector product is too little work for a second thread.
    with threads_for(float(len(matrix)) ** 2 if dense.pays_off(len(matrix), count) else math.inf):
        return dense.best_pairs(matrix, None, count, seed=seed)[:2]


def trace_ratio(problem: Reduced, count: int, seed: int) -> tuple[float, Array]:
    """Maximise ``tr(VᵀC_xxV) / tr(VᵀC_yyV)`` over orthonormal V, (r, count); return that ratio and V.

    By Dinkelbach's iteration: the optimal V are the top eigenvectors of ``C_xx − α C_yy`` at the α at which their
    eigenvalues sum to zero, and that α is the ratio. With one component this is the first component of dPCA. The ratio
    is infinite if the target varies in ``count`` directions in which the background does not.
    """
    free = _without_background(problem)
    if free is not None and free.shape[1] >= count:
        inside = symmetric(free.T @ problem.target @ free)
        return math.inf, free @ top_eigen(inside, count)[1]
    alpha, vectors = 0.0, top_vectors(problem, 0.0, count, seed)
    for _ in range(_MOST_STEPS):
        target, background = (
            float(np.einsum("ik,ij,jk->", vectors, matrix, vectors, optimize=True))
            for matrix in (problem.target, problem.background)
        )
        found = target / max(background, np.finfo(float).tiny)
        # The ratio increases with every step, up to rounding error.
        if found <= alpha * (1 + 4 * _EPS):
            break
        alpha, vectors = found, top_vectors(problem, found, count, seed)
    return alpha, vectors


def _without_background(problem: Reduced) -> Array | None:
    """Return an orthonormal basis of the directions in which only the target varies; None if there are none.

    In the joint range, the target varies where the background does not.
    """
    # Scale each feature by its sd, so that a feature with small values is not mistaken for a constant one.
    units = np.sqrt(np.diagonal(problem.background))
    units = np.where(units > 0, units, 1.0)
    scaled = problem.background / units / units[:, None]
    factor = cholesky(scaled)
    if factor is not None and factor[1] > rank_tolerance(problem.rank):
        return None
    values, axes = top_eigen(scaled, problem.rank)
    return np.linalg.qr(axes[:, ~above_rounding(values)] / units[:, None])[0]


def shrunk(problem: Reduced, rho: float) -> Reduced:
    """Shrink the background toward its diagonal, as dPCA does if background rows are few.

    If the reduced problem has fewer dimensions than features, it moves to the span of dPCA's filters,
    ``diag(s²)⁻¹`` times the joint range: the shrunk background varies in every direction, including those in which
    the data do not vary.
    """
    if rho == 0:
        return problem
    variance = (problem.scale[problem.frame.alive] / problem.frame.alive_scale) ** 2
    if problem.basis is None:
        background = (1 - rho) * problem.background
        np.einsum("ii->i", background)[...] += rho * variance
        return replace(problem, background=background)
    basis = np.linalg.qr(problem.basis / variance[:, None])[0]
    turn = problem.basis.T @ basis
    background = (1 - rho) * (turn.T @ problem.background @ turn) + rho * (basis.T @ (variance[:, None] * basis))
    target, images = symmetric(turn.T @ problem.target @ turn), problem.basis @ (problem.target @ turn)
    return replace(problem, target=target, background=symmetric(background), basis=basis, images=images)


def components(problem: Reduced, vectors: Array) -> Components:
    """Map orthonormal vectors to the features, with patterns, variances and a deterministic sign.

    The patterns are ``C_xx U (Uᵀ C_xx U)⁻¹``: the regression of the target on its scores, so that
    ``uᵢᵀ pⱼ = δᵢⱼ``. A component along which the target does not vary is its own pattern.
    """
    return components_along(problem, [vectors])[0]


def components_along(problem: Reduced, bases: Sequence[Array]) -> list[Components]:
    """Return the components of each of several sets of k vectors; all are mapped in one product."""
    flat = np.hstack(bases)
    images = problem.target @ flat
    filters, full = np.split(problem.lifted(np.hstack([flat, images])), 2, axis=1)
    full = full if problem.images is None else problem.images @ flat
    parts = zip(*(np.split(part, len(bases), axis=1) for part in (images, filters, full)), strict=True)
    return [_components(problem, *each) for each in zip(bases, parts, strict=True)]


def _components(problem: Reduced, vectors: Array, mapped: tuple[Array, Array, Array]) -> Components:
    image, filters, full_image = mapped
    inside = symmetric(vectors.T @ image)
    inverse = linalg.pinvh(inside, rtol=rank_tolerance(problem.rank), check_finite=False)
    patterns = full_image @ inverse + filters @ (np.eye(len(inside)) - inside @ inverse)
    filters, patterns = problem.frame.filters(filters), problem.frame.images(patterns)
    target_variance = np.diagonal(inside).clip(min=0.0)
    background_variance = _variance(problem.background, vectors)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(background_variance > 0, target_variance / background_variance, np.inf)
    sign = signs(patterns / problem.scale[:, None])
    return Components(ratios, filters * sign, patterns * sign, target_variance, background_variance)


def _variance(matrix: Array, vectors: Array) -> Array:
    """Return the variance along each vector; values at rounding level are set to zero."""
    variance = np.einsum("ik,ik->k", vectors, matrix @ vectors)
    size, tolerance = np.abs(vectors), rank_tolerance(len(matrix))
    rounding = tolerance * np.einsum("ik,ik->k", size, np.abs(matrix) @ size)
    # The vectors are rounded too; their error enters squared.
    return np.where(variance > rounding + tolerance**2 * np.trace(matrix), variance, 0.0)


def subspace_similarity(bases: Array, metric: Array | None = None) -> Array:
    """Return the pairwise products of the cosines of the principal angles between n subspaces, (n, n).

    ``bases`` of shape (n, d, k) need not be orthonormal; for orthonormal ones the product is ``|det(QᵢᵀQⱼ)|``.
    ``metric`` is the matrix of the inner product (Euclidean by default). With the covariance of some rows, the spaces
    of their scores are compared.
    """
    number, size, count = bases.shape
    flat = bases.transpose(1, 0, 2).reshape(size, number * count)
    inner = flat.T @ (flat if metric is None else metric @ flat)
    blocks = inner.reshape(number, count, number, count).transpose(0, 2, 1, 3)
    own = blocks[np.arange(number), np.arange(number)]
    values, turn = np.linalg.eigh((own + own.transpose(0, 2, 1)) / 2)
    # Angles are undefined for a subspace on which the metric is singular.
    singular = values <= count * _EPS * values[:, -1:]
    roots = turn * np.where(singular, 0.0, 1 / np.sqrt(np.where(singular, 1.0, values)))[:, None, :]
    cosines = np.abs(np.linalg.det(roots.transpose(0, 2, 1)[:, None] @ blocks @ roots[None]))
    similarity = np.minimum((cosines + cosines.T) / 2, 1.0)
    similarity[similarity > 1 - 1e-9] = 1.0  # same subspace: the clustering must not depend on rounding
    np.einsum("ii->i", similarity)[...] = 1.0
    return np.asarray(similarity)
