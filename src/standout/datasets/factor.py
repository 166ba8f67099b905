"""The factor model of the paper's optimality section, with its population answer.

``y = m_y + U_b ψ + e`` and ``x = m_x + U_b χ_b + χ_s u_s + e``: both share the directions U_b, and only
the target has u_s.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from standout._blas import Array
from standout.errors import InputError


@dataclass(frozen=True)
class FactorPopulation:
    """What dPCA finds with endless data: one row for each ratio, from the largest to the smallest."""

    ratios: Array  # (n_features,)
    components: Array  # (n_features, n_features): filters u of unit length; their sign is free
    patterns: Array  # (n_features, n_features): C_yy u / uᵀC_yy u, what a score of one adds to the features


@dataclass(frozen=True)
class FactorSample:
    """Rows of both datasets, and what is true of each row."""

    target: Array  # (m, n_features)
    background: Array  # (n, n_features)
    cluster: NDArray[np.int64]  # (m,): 1 on the positive side of u_s, 0 on the other
    outlier: NDArray[np.bool_]  # (m,): which target rows were thrown out
    background_outlier: NDArray[np.bool_]  # (n,)


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
    noise_scale : tuple of float
        What the sd of the noise is multiplied by in each feature; empty: noise is the same in every direction.
    units : tuple of float
        What each feature is multiplied by at last, signal, noise and means alike; empty: nothing.
    outlier_share : float
        Probability that a row, of target or background, is an outlier.
    outlier_size : float
        Sd of what is added to an outlier, along a direction that outliers of the same dataset share.
    mean_sd : float
        Sd of the entries of the means m_x and m_y, which are drawn with each sample.

    Examples
    --------
    >>> model = FactorModel()
    >>> model.top_ratio
    5.0
    >>> target, background = model.sample(100, 200, seed=1)
    >>> target.shape, background.shape
    ((100, 12), (200, 12))
    >>> FactorModel(oblique=0.5).population().ratios.round(3)[:3]
    array([4.027, 1.   , 1.   ])
    """

    n_features: int = 12
    background_sd: tuple[float, ...] = (6.0, 5.0, 4.0, 3.0)
    signal_sd: float = 2.0
    noise_sd: float = 1.0
    oblique: float = 0.0
    shared_growth: float = 1.0
    two_clusters: bool = False
    seed: int = 0
    noise_scale: tuple[float, ...] = ()
    units: tuple[float, ...] = ()
    outlier_share: float = 0.0
    outlier_size: float = 60.0
    mean_sd: float = 1.0

    def __post_init__(self) -> None:
        if not len(self.background_sd) < self.n_features:
            raise InputError(
                f"background_sd: {len(self.background_sd)} shared directions leave no room for another among "
                f"{self.n_features} features. Give fewer, or make n_features larger."
            )
        for name in ("noise_scale", "units"):
            given = getattr(self, name)
            if len(given) not in (0, self.n_features) or not all(np.isfinite(x) and x > 0 for x in given):
                raise InputError(
                    f"{name}: {given} was given. Give one positive number for each of the {self.n_features} features."
                )
        if not -1 <= self.oblique <= 1:
            raise InputError(f"oblique: {self.oblique} was given. Give a cosine, from -1 to 1.")
        if not 0 <= self.outlier_share <= 1:
            raise InputError(f"outlier_share: {self.outlier_share} was given. Give a share, from 0 to 1.")

    @cached_property
    def directions(self) -> Array:
        """Shared directions and the target's own, as columns: (n_features, n_shared + 1).

        They have unit length before they are written in the units of the features.
        """
        count = len(self.background_sd) + 1
        basis, _ = np.linalg.qr(np.random.default_rng(self.seed).normal(size=(self.n_features, count)))
        basis[:, -1] = self.oblique * basis[:, 0] + np.sqrt(1 - self.oblique**2) * basis[:, -1]
        return np.asarray(self._units[:, None] * basis)

    @cached_property
    def outlier_directions(self) -> Array:
        """Where outliers of the target and of the background are thrown, as columns: (n_features, 2)."""
        drawn = np.random.default_rng([self.seed, 1]).normal(size=(self.n_features, 2))
        return np.asarray(self._units[:, None] * (drawn / np.linalg.norm(drawn, axis=0)))

    @property
    def signal(self) -> Array:
        """u_s, the target's own direction: (n_features,)."""
        return self.directions[:, -1]

    @property
    def background_covariance(self) -> Array:
        """Population C_yy of the rows that are no outliers: (n_features, n_features)."""
        return self._shared(1.0) + self._noise

    @property
    def target_covariance(self) -> Array:
        """Population C_xx of the rows that are no outliers: (n_features, n_features)."""
        own = self.signal_sd**2 * np.outer(self.signal, self.signal)
        return self._shared(self.shared_growth) + own + self._noise

    @property
    def top_ratio(self) -> float:
        """1 + σ_s²/σ_e²: the population ratio of u_s when it is orthogonal to what is shared."""
        return 1 + self.signal_sd**2 / self.noise_sd**2

    def population(self, outliers: bool = False) -> FactorPopulation:
        """Return all ratios, filters and patterns of the population, without or with its outliers."""
        C_xx, C_yy = self.target_covariance, self.background_covariance
        if outliers:
            added = [self.outlier_share * self.outlier_size**2 * np.outer(a, a) for a in self.outlier_directions.T]
            C_xx, C_yy = C_xx + added[0], C_yy + added[1]
        # In units far apart C_yy is far from round, and eigh would lose the small features.
        scale = 1 / np.sqrt(np.diagonal(C_yy))
        ratios, vectors = linalg.eigh(*(scale[:, None] * C * scale for C in (C_xx, C_yy)))
        filters = scale * vectors.T[::-1]
        length = np.linalg.norm(filters, axis=1, keepdims=True)
        return FactorPopulation(ratios[::-1], filters / length, length * (filters @ C_yy))

    def sample(self, m: int, n: int, seed: int = 0) -> tuple[Array, Array]:
        """Draw m target and n background rows, about means of their own."""
        drawn = self.labelled_sample(m, n, seed)
        return drawn.target, drawn.background

    def labelled_sample(self, m: int, n: int, seed: int = 0) -> FactorSample:
        """Draw the rows of :meth:`sample`, with the cluster of each and whether it is an outlier.

        Examples
        --------
        >>> drawn = FactorModel(two_clusters=True, outlier_share=0.03).labelled_sample(1000, 2000)
        >>> int(drawn.cluster.sum()), int(drawn.outlier.sum()), int(drawn.background_outlier.sum())
        (537, 33, 53)
        """
        rng = np.random.default_rng(seed)
        shared, sd = self.directions[:, :-1], np.array(self.background_sd)
        grown = sd * np.sqrt(np.where(np.arange(len(sd)) == 0, self.shared_growth, 1.0))
        own = rng.normal(size=m) if not self.two_clusters else rng.choice([-1.0, 1.0], size=m)
        target = (rng.normal(size=(m, len(sd))) * grown) @ shared.T + np.outer(own * self.signal_sd, self.signal)
        background = (rng.normal(size=(n, len(sd))) * sd) @ shared.T
        for rows in (target, background):
            noise = self._noise_sd * rng.normal(size=rows.shape)
            rows += noise + self._units * self.mean_sd * rng.normal(size=self.n_features)
        out = [
            self._throw_out(rows, a, rng)
            for rows, a in zip((target, background), self.outlier_directions.T, strict=True)
        ]
        return FactorSample(target, background, (own > 0).astype(np.int64), *out)

    def _throw_out(self, rows: Array, direction: Array, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Make outliers of some rows, and return of which."""
        chosen = rng.random(len(rows)) < self.outlier_share
        rows[chosen] += self.outlier_size * rng.normal(size=(int(chosen.sum()), 1)) * direction
        return chosen

    @property
    def _units(self) -> Array:
        return np.array(self.units) if len(self.units) else np.ones(self.n_features)

    @property
    def _noise_sd(self) -> Array:
        scale = np.array(self.noise_scale) if len(self.noise_scale) else np.ones(self.n_features)
        return np.asarray(self.noise_sd * self._units * scale)

    @property
    def _noise(self) -> Array:
        return np.diag(self._noise_sd**2)

    def _shared(self, growth: float) -> Array:
        variance = np.square(self.background_sd)
        variance[0] *= growth
        shared = self.directions[:, :-1]
        return np.asarray((shared * variance) @ shared.T)
