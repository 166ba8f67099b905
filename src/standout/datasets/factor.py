"""The factor model of the paper's optimality section, with its population answer.

``y = m_y + U_b ψ + e`` and ``x = m_x + U_b χ_b + χ_s u_s + e``: both share the directions U_b, and only
the target has u_s.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from standout.blas import Array


@dataclass(frozen=True)
class FactorModel:
    """A target with one direction of its own among directions it shares with the background.

    Parameters
    ----------
    n_features : int
        D.
    background_sd : tuple of float
        σ_b: sd along each shared direction.
    signal_sd : float
        σ_s: sd of the target along its own direction u_s.
    noise_sd : float
        σ_e: sd of the noise in every direction.
    oblique : float
        Cosine between u_s and the first shared direction; 0 makes u_s orthogonal to them all.
    shared_growth : float
        What the target's variance along the first shared direction is multiplied by.
    two_clusters : bool
        Whether the target takes the values ±σ_s along u_s, instead of normal ones.
    seed : int
        Seed of the directions.

    Examples
    --------
    >>> model = FactorModel()
    >>> model.top_ratio
    5.0
    >>> target, background = model.sample(100, 200, seed=1)
    >>> target.shape, background.shape
    ((100, 12), (200, 12))
    """

    n_features: int = 12
    background_sd: tuple[float, ...] = (6.0, 5.0, 4.0, 3.0)
    signal_sd: float = 2.0
    noise_sd: float = 1.0
    oblique: float = 0.0
    shared_growth: float = 1.0
    two_clusters: bool = False
    seed: int = 0

    @cached_property
    def directions(self) -> Array:
        """Shared directions and the target's own, as columns: (n_features, n_shared + 1)."""
        count = len(self.background_sd) + 1
        basis, _ = np.linalg.qr(np.random.default_rng(self.seed).normal(size=(self.n_features, count)))
        basis[:, -1] = self.oblique * basis[:, 0] + np.sqrt(1 - self.oblique**2) * basis[:, -1]
        return basis

    @property
    def signal(self) -> Array:
        """u_s, the target's own direction: (n_features,)."""
        return self.directions[:, -1]

    @property
    def background_covariance(self) -> Array:
        """Population C_yy: (n_features, n_features)."""
        return self._shared(1.0) + self.noise_sd**2 * np.eye(self.n_features)

    @property
    def target_covariance(self) -> Array:
        """Population C_xx: (n_features, n_features)."""
        own = self.signal_sd**2 * np.outer(self.signal, self.signal)
        return self._shared(self.shared_growth) + own + self.noise_sd**2 * np.eye(self.n_features)

    @property
    def top_ratio(self) -> float:
        """1 + σ_s²/σ_e²: the population ratio of u_s when it is orthogonal to what is shared."""
        return 1 + self.signal_sd**2 / self.noise_sd**2

    def sample(self, m: int, n: int, seed: int = 0) -> tuple[Array, Array]:
        """Draw m target and n background rows, about means of their own."""
        rng = np.random.default_rng(seed)
        shared, sd = self.directions[:, :-1], np.array(self.background_sd)
        grown = sd * np.sqrt(np.where(np.arange(len(sd)) == 0, self.shared_growth, 1.0))
        own = rng.normal(size=m) if not self.two_clusters else rng.choice([-1.0, 1.0], size=m)
        target = (rng.normal(size=(m, len(sd))) * grown) @ shared.T + np.outer(own * self.signal_sd, self.signal)
        background = (rng.normal(size=(n, len(sd))) * sd) @ shared.T
        target += self.noise_sd * rng.normal(size=target.shape) + rng.normal(size=self.n_features)
        background += self.noise_sd * rng.normal(size=background.shape) + rng.normal(size=self.n_features)
        return target, background

    def _shared(self, growth: float) -> Array:
        variance = np.square(self.background_sd)
        variance[0] *= growth
        shared = self.directions[:, :-1]
        return np.asarray((shared * variance) @ shared.T)
