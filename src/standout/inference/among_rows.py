"""The largest ratio through the Gram matrix of the rows: more features than rows, always shrunk."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import blas, lapack

from standout.blas import Array, add_gram, mirror, top_eigen
from standout.inference.among_features import largest_ratio
from standout.inference.coordinates import CONSTANT, panels
from standout.inference.question import Question
from standout.inference.shuffle import Labels


class _AmongRows:
    """What the two ways through the Gram matrix of the rows share."""

    def ratio(self, labels: Labels) -> float:
        """Return the largest ratio of target to shrunk background variance."""
        return self._reduced(labels).largest()

    def shrinkage(self, labels: Labels) -> float:
        """Return how much the background is shrunk."""
        return self._reduced(labels).rho

    def _reduced(self, labels: Labels) -> _Reduced:
        raise NotImplementedError


class Wide(_AmongRows):
    """More features than rows: the Gram matrix of the rows in background-sd units, anew for every labelling."""

    def __init__(self, rows: Array, question: Question, removed: Array):
        self.rows, self.question, self.removed = rows, question, removed

    def _reduced(self, labels: Labels) -> _Reduced:
        order = np.argsort(labels, kind="stable")
        sizes = np.bincount(labels)
        mixture = self.question.mixture(tuple(int(size) for size in sizes[1:]))
        shares = np.array([1.0, *mixture.shares]) / sizes
        gram = np.zeros((len(order), len(order)), order="F")
        varying, diagonal_squared, units = 0, 0.0, np.empty(self.rows.shape[1])
        for here in panels(*self.rows.shape):
            panel = self.rows[order, here]
            spread = []
            for part, share in zip(np.split(panel, np.cumsum(sizes)[:-1]), shares, strict=True):
                part -= part.mean(axis=0)
                spread.append(share * np.einsum("ij,ij->j", part, part))
            own = np.sum(spread[1:], axis=0)
            goal = own + self.removed[here]
            varies = goal > CONSTANT  # features have an overall variance of about one
            goal = np.where(varies, goal, spread[0])
            goal[goal == 0] = 1.0
            units[here] = goal
            panel /= np.sqrt(goal)
            add_gram(gram, panel)
            varying += int(varies.sum())
            diagonal_squared += float(((own / goal)[varies] ** 2).sum())
        problem = _Problem(mirror(gram), np.sqrt(np.repeat(shares, sizes)), int(sizes[0]))
        # The diagonal of S is one, whatever part of a feature is left.
        square = problem.trace_squared - diagonal_squared + varying
        return _Reduced(problem, self.question.intensity(mixture, varying, square), 1.0, units)

    def scores(self, labels: Labels) -> Array:
        """Return the scores of all rows along the first component."""
        reduced = self._reduced(labels)
        return np.asarray(self.rows @ ((_of_rows(reduced.coefficients(), labels) @ self.rows) / reduced.units))


class Huge(_AmongRows):
    """The same where that would take too long: features in overall sd, and one Gram matrix for all labellings.

    Rows are coordinates in their span (:func:`in_their_span`). The background is shrunk toward its mean
    variance, in units of the overall sd.
    """

    def __init__(self, rows: Array, question: Question, removed: float):
        self.gram, self.question, self.removed = rows @ rows.T, question, removed

    def _reduced(self, labels: Labels) -> _Reduced:
        order = np.argsort(labels, kind="stable")
        gram = self.gram[np.ix_(order, order)]
        sizes = np.bincount(labels)
        mixture = self.question.mixture(tuple(int(size) for size in sizes[1:]))
        for stop, size in zip(np.cumsum(sizes), sizes, strict=True):
            here = slice(stop - size, stop)
            gram[here] -= gram[here].mean(axis=0)
            gram[:, here] -= gram[:, here].mean(axis=1)[:, None]
        problem = _Problem(gram, np.sqrt(np.repeat([1.0, *mixture.shares] / sizes, sizes)), int(sizes[0]))
        n_features = self.question.spanned
        level = (float(np.trace(problem.background)) + self.removed) / n_features
        rho = self.question.intensity(mixture, n_features, problem.trace_squared / level**2)
        return _Reduced(problem, rho, level)

    def scores(self, labels: Labels) -> Array:
        """Return the scores of all rows along the first component."""
        return np.asarray(self.gram @ _of_rows(self._reduced(labels).coefficients(), labels))


@dataclass(frozen=True)
class _Problem:
    """The Gram matrix of centred rows, set by set, and what rows are multiplied by to make covariances."""

    gram: Array
    roots: Array
    n_target: int

    @cached_property
    def _scaled(self) -> Array:
        return np.asarray(self.gram * np.outer(self.roots, self.roots))

    @property
    def target(self) -> Array:
        """K_xx."""
        return self._scaled[: self.n_target, : self.n_target]

    @property
    def cross(self) -> Array:
        """K_yx."""
        return self._scaled[self.n_target :, : self.n_target]

    @property
    def background(self) -> Array:
        """K_yy."""
        return self._scaled[self.n_target :, self.n_target :]

    @property
    def trace_squared(self) -> float:
        """The trace of the squared background covariance."""
        return float(np.einsum("ij,ij->", self.background, self.background))


@dataclass(frozen=True)
class _Reduced:
    """The problem among the rows: A v = λ ((1 − ρ) B + ρ·level·I) v through the rows' Gram matrix.

    With c = 1 − ρ and t = ρ·level the ratios are the eigenvalues of (K_xx − c·K_xy (t I + c K_yy)⁻¹ K_yx)/t.
    """

    problem: _Problem
    rho: float
    level: float
    units: Array | float = 1.0  # what the squares of features are divided by

    @cached_property
    def _explained(self) -> Array:
        """(t I + c K_yy)⁻¹ K_yx, times c."""
        regular = (1 - self.rho) * self.problem.background
        np.einsum("ii->i", regular)[...] += self.rho * self.level
        factor, _ = lapack.dpotrf(regular, lower=1, overwrite_a=1)
        solved, _ = lapack.dpotrs(factor, self.problem.cross, lower=1)
        return np.asarray((1 - self.rho) * solved)

    @property
    def _matrix(self) -> Array:
        """The reduced matrix, times t."""
        return np.asfortranarray(self.problem.target - blas.dgemm(1.0, self.problem.cross, self._explained, trans_a=1))

    def largest(self) -> float:
        """Return the largest ratio."""
        return largest_ratio(self._matrix, None) / (self.rho * self.level)

    def coefficients(self) -> Array:
        """Return the first component as a combination of the centred rows, set by set."""
        alpha = top_eigen(self._matrix, 1)[1]
        weights = np.vstack([alpha, -self._explained @ alpha])[:, 0]
        return np.asarray(self.problem.roots * weights)


def _of_rows(coefficients: Array, labels: Labels) -> Array:
    """Return the coefficients of rows, in their order, from those of centred rows, set by set."""
    result = np.empty_like(coefficients)
    result[np.argsort(labels, kind="stable")] = coefficients
    return np.asarray(result - (np.bincount(labels, result) / np.bincount(labels))[labels])
