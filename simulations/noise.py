"""Samples of target and background that differ only as requested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Rng = np.random.Generator


@dataclass(frozen=True)
class Noise:
    """Rows of independent features: Gaussian, or Student's t with five degrees of freedom."""

    m: int
    n: int
    size: int
    heavy: bool = False
    shift: float = 0.0  # between the means of target and background
    ratios: tuple[float, ...] = ()  # population ratios of the target-specific directions

    def rows(self, rng: Rng, count: int) -> np.ndarray:
        return rng.standard_t(5, size=(count, self.size)) if self.heavy else rng.normal(size=(count, self.size))

    def sample(self, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
        target, background = self.rows(rng, self.m), self.rows(rng, self.n)
        axes = self.axes()
        target += (target @ axes) * (np.sqrt(self.ratios) - 1) @ axes.T
        return target + self.shift, background

    def axes(self) -> np.ndarray:
        """Return the target-specific directions, (n_features, n_directions).

        They are not aligned with features, which would favour shrinkage toward the diagonal.
        """
        return np.linalg.qr(np.random.default_rng(0).normal(size=(self.size, len(self.ratios))))[0]

    def true_ratio(self, direction: np.ndarray) -> float:
        """Return the population ratio along a direction."""
        own = (self.axes().T @ direction) ** 2 @ (np.array(self.ratios) - 1)
        return float(1 + own / (direction @ direction))


def replicated(rng: Rng, sizes: Sequence[int], features: int, within: float, heavy: bool = False) -> np.ndarray:
    """Return rows of subjects with ``sizes`` replicates each; ``within`` is the sd within subjects."""
    draw = Noise(0, 0, features, heavy).rows
    subjects = np.repeat(np.arange(len(sizes)), sizes)
    return draw(rng, len(sizes))[subjects] + within * draw(rng, len(subjects))
