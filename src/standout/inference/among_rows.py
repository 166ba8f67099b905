"""The largest ratio through the Gram matrix of the rows: more features than rows, always shrunk."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from standout.blas import Array, add_gram, mirror, top_eigen
from standout.inference.among_features import largest_ratio
from standout.inference.coordinates import CONSTANT, panels
from standout.inference.question import Earlier, Question
from standout.inference.shuffle import Labels
from standout.shrinkage import Evidence, GramShrinkage, intensity, start_features
from standout.solve.span import GramProblem, gram_shrinkage


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

    def __init__(self, rows: Array, question: Question, earlier: Earlier | None):
        self.rows, self.question, self.earlier = rows, question, earlier

    def _reduced(self, labels: Labels) -> _Reduced:
        order = np.argsort(labels, kind="stable")
        sizes = np.bincount(labels)
        mixture = self.question.mixture(tuple(int(size) for size in sizes[1:]))
        shares = np.array([1.0, *mixture.shares]) / sizes
        gram = np.zeros((len(order), len(order)), order="F")
        varying, diagonal_squared, units = 0, 0.0, np.empty(self.rows.shape[1])
        sizes_in_target = np.empty(self.rows.shape[1])
        constant = None if self.earlier is None else self.earlier.constant(self.question, labels)
        for here in panels(*self.rows.shape):
            panel = self.rows[order, here]
            spread = []
            for part, share in zip(np.split(panel, np.cumsum(sizes)[:-1]), shares, strict=True):
                part -= part.mean(axis=0)
                spread.append(share * np.einsum("ij,ij->j", part, part))
            own = np.sum(spread[1:], axis=0)
            goal = own if self.earlier is None else own + self.earlier.removed[here]
            varies = goal > CONSTANT  # features have an overall variance of about one
            if constant is not None:
                varies &= ~constant[here]
            goal = np.where(varies, goal, spread[0])
            goal[goal == 0] = 1.0
            units[here] = goal
            sizes_in_target[here] = spread[0] / goal
            panel /= np.sqrt(goal)
            add_gram(gram, panel)
            varying += int(varies.sum())
            diagonal_squared += float(((own / goal)[varies] ** 2).sum())
        roots = np.sqrt(np.repeat(shares, sizes))
        gram = mirror(gram) * np.outer(roots, roots)
        n_target = int(sizes[0])
        # The diagonal of S is one, whatever part of a feature is left.
        lost = varying - diagonal_squared
        first = start_features(sizes_in_target)
        start = self.rows[np.ix_(order[:n_target], first)]
        start = (start - start.mean(axis=0)) / np.sqrt(units[first]) * roots[:n_target, None]
        evidence = self.question.evidence(mixture, varying, _squared(gram, n_target) + lost)
        found = _shrinkage(self.question, evidence, gram, start, lost)
        return _Reduced(GramProblem(gram, n_target, found), roots, units)

    def scores(self, labels: Labels) -> Array:
        """Return the scores of all rows along the first component."""
        reduced = self._reduced(labels)
        return np.asarray(self.rows @ ((_of_rows(reduced.coefficients(), labels) @ self.rows) / reduced.units))


class Huge(_AmongRows):
    """The same where that would take too long: features in overall sd, and one Gram matrix for all labellings.

    Rows are coordinates in their span (:func:`in_their_span`). The background is shrunk toward its mean
    variance, in units of the overall sd.
    """

    def __init__(self, rows: Array, question: Question, earlier: Earlier | None):
        self.gram, self.question, self.earlier = rows @ rows.T, question, earlier

    def _reduced(self, labels: Labels) -> _Reduced:
        order = np.argsort(labels, kind="stable")
        gram = self.gram[np.ix_(order, order)]
        sizes = np.bincount(labels)
        mixture = self.question.mixture(tuple(int(size) for size in sizes[1:]))
        for stop, size in zip(np.cumsum(sizes), sizes, strict=True):
            here = slice(stop - size, stop)
            gram[here] -= gram[here].mean(axis=0)
            gram[:, here] -= gram[:, here].mean(axis=1)[:, None]
        roots = np.sqrt(np.repeat([1.0, *mixture.shares] / sizes, sizes))
        gram *= np.outer(roots, roots)
        n_target, n_features = int(sizes[0]), self.question.spanned
        total = float(np.trace(gram[n_target:, n_target:]))
        if self.earlier is not None:
            total += float(self.earlier.removed.sum())
        gram /= total / n_features
        # Without features, the search for the target's axes starts from its largest rows.
        start = np.eye(n_target)[:, start_features(np.diagonal(gram)[:n_target])]
        evidence = self.question.evidence(mixture, n_features, _squared(gram, n_target))
        return _Reduced(GramProblem(gram, n_target, _shrinkage(self.question, evidence, gram, start, 0.0)), roots)

    def scores(self, labels: Labels) -> Array:
        """Return the scores of all rows along the first component."""
        return np.asarray(self.gram @ _of_rows(self._reduced(labels).coefficients(), labels))


@dataclass(frozen=True)
class _Reduced:
    """The problem of a labelling among its rows, set by set."""

    problem: GramProblem
    roots: Array  # what rows are multiplied by to make covariances
    units: Array | float = 1.0  # what the squares of features are divided by

    @property
    def rho(self) -> float:
        """The shrinkage."""
        return self.problem.shrinkage.rho

    def largest(self) -> float:
        """Return the largest ratio."""
        return largest_ratio(self.problem.matrix(), None)

    def coefficients(self) -> Array:
        """Return the first component as a combination of the centred rows, set by set."""
        alpha = top_eigen(self.problem.matrix(), 1)[1]
        return np.asarray(self.roots * self.problem.coefficients(alpha)[:, 0])


def _shrinkage(
    question: Question, evidence: Evidence, gram: Array, start: Array, removed_squared: float
) -> GramShrinkage:
    if question.shrinkage == "auto":
        return gram_shrinkage(gram, start, evidence, len(start) - 1, removed_squared)
    return GramShrinkage(intensity(question.shrinkage, evidence))


def _of_rows(coefficients: Array, labels: Labels) -> Array:
    """Return the coefficients of rows, in their order, from those of centred rows, set by set."""
    result = np.empty_like(coefficients)
    result[np.argsort(labels, kind="stable")] = coefficients
    return np.asarray(result - (np.bincount(labels, result) / np.bincount(labels))[labels])


def _squared(gram: Array, n_target: int) -> float:
    """Return the trace of the squared background covariance."""
    inner = gram[n_target:, n_target:]
    return float(np.einsum("ij,ij->", inner, inner))
