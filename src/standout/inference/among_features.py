"""The largest ratio through covariances: no more features than rows."""

from __future__ import annotations

import math

import numpy as np
from scipy import linalg
from scipy.linalg import blas, lapack

from standout.blas import Array, add_outer, mirror
from standout.inference.coordinates import CONSTANT
from standout.inference.question import Earlier, Question
from standout.inference.shuffle import Labels
from standout.mixture import Mixture
from standout.shrinkage import factor_shrinkage, intensity
from standout.solve import dense, lanczos

# Ratios beyond this are rounding: the background does not vary there.
_INFINITE = 1e12


class AmongFeatures:
    """The covariances of a labelling, and a dense eigenproblem."""

    def __init__(self, rows: Array, question: Question, earlier: Earlier | None):
        self.rows, self.question, self.earlier = rows, question, earlier
        self.total = np.tril(rows.T @ rows).copy(order="F")
        self.sum = rows.sum(axis=0)

    def ratio(self, labels: Labels) -> float:
        """Return the largest ratio of target to (shrunk) background variance."""
        target, background, _ = self._pair(labels)
        factor, info = lapack.dpotrf(background, lower=1, overwrite_a=1)
        if info != 0:
            return math.inf
        found = largest_ratio(mirror(target), factor)
        return found if found < _INFINITE else math.inf

    def shrinkage(self, labels: Labels) -> float:
        """Return how much the background is shrunk."""
        return self._pair(labels)[2]

    def scores(self, labels: Labels) -> Array:
        """Return the scores of all rows along the first component."""
        target, background, _ = self._pair(labels)
        size = len(target)
        # Against the sum of both, which is regular even where the background is not.
        _, vector = linalg.eigh(target, target + background, lower=True, subset_by_index=[size - 1, size - 1])
        return np.asarray(self.rows @ vector[:, 0])

    def _pair(self, labels: Labels) -> tuple[Array, Array, float]:
        """Return target and shrunk background covariance (lower triangles), and the shrinkage."""
        scatters, sizes = self._scatters(labels)
        mixture = self.question.mixture(sizes[1:])
        target = scatters[0] / sizes[0]
        background = scatters[1] * (mixture.shares[0] / sizes[1])
        for scatter, share, size in zip(scatters[2:], mixture.shares[1:], sizes[2:], strict=True):
            background += scatter * (share / size)
        shrinks = self.question.shrinkage is not None
        rho = self._shrink(target, background, mixture, labels) if shrinks else 0.0
        return target, background, rho

    def _scatters(self, labels: Labels) -> tuple[list[Array], tuple[int, ...]]:
        """Return the scatter of each set about its mean; that of the largest is what the others leave."""
        sizes = np.bincount(labels)
        largest = int(np.argmax(sizes))
        rest, left = self.total.copy(order="F"), self.sum
        scatters = [rest] * len(sizes)
        for number, size in enumerate(sizes):
            if number == largest:
                continue
            part = self.rows[labels == number]
            mean = part.sum(axis=0) / size
            part -= mean
            scatter = blas.dsyrk(1.0, part.T, lower=1)
            scatters[number] = scatter
            rest -= scatter
            add_outer(rest, mean, -float(size))
            left = left - size * mean
        add_outer(rest, left, -1.0 / sizes[largest])
        return scatters, tuple(int(size) for size in sizes)

    def _shrink(self, target: Array, background: Array, mixture: Mixture, labels: Labels) -> float:
        """Replace the background (lower triangle) by its estimate; also return the intensity."""
        diagonal, spread = np.diagonal(background), np.diagonal(target)
        whole = diagonal if self.earlier is None else diagonal + self.earlier.removed
        varies = whole > CONSTANT  # features have an overall variance of about one
        if self.earlier is not None:
            varies &= ~self.earlier.constant(self.question, labels)
        whole = np.where(varies, whole, spread)
        # One triangle: what is off the diagonal stands once and counts twice, and the diagonal of S is one.
        weight = varies / np.where(whole > 0, whole, 1.0)
        off = float(weight @ (background * background) @ weight) - float(((weight * diagonal) ** 2).sum())
        evidence = self.question.evidence(mixture, int(varies.sum()), 2 * off + int(varies.sum()))
        if self.question.shrinkage == "auto":
            unit = np.sqrt(np.where(whole > 0, whole, 1.0))
            ours, theirs = (
                mirror(np.tril(matrix / unit / unit[:, None]).copy(order="F")) for matrix in (target, background)
            )
            n_target = int((labels == 0).sum())
            found = factor_shrinkage(ours, theirs, evidence, n_target - 1, len(self.rows))
            if found.n_factors:
                background[...] = found.of(theirs) * unit * unit[:, None]
                return found.rho
            rho = found.rho
        else:
            rho = intensity(self.question.shrinkage, evidence)
        background *= 1 - rho
        np.einsum("ii->i", background)[...] += rho * whole
        return rho


def largest_ratio(matrix: Array, factor: Array | None) -> float:
    """Return the largest ratio alone, by the solver that is quicker at it."""
    if lanczos.pays_off(len(matrix), 1):
        found = lanczos.top_pairs(matrix, factor, 1, vectors=False)
        if found is not None:
            return float(found[0][0])
    return float(dense.top_ratios(matrix, factor, 1)[0])
