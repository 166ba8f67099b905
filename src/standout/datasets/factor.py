"""The factor model of the paper's optimality section, with its population solution.

``y = m_y + U_b ψ + e`` and ``x = m_x + U_b χ_b + χ_s u_s + e``: target and background share the directions U_b, and
only the target has the direction u_s.
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
    """The dPCA of the population: one row for each ratio, in descending order.

    See Also
    --------
    standout.datasets.FactorModel : The model whose population it describes.
    standout.DPCA : Estimates the same from rows.

    Examples
    --------
    >>> from standout.datasets import FactorModel
    >>> population = FactorModel().population()
    >>> population.ratios[:3].round(2), population.patterns.shape
    (array([5., 1., 1.]), (12, 12))
    """

    ratios: Array  # (n_features,)
    components: Array  # (n_features, n_features): filters u of unit length and arbitrary sign
    patterns: Array  # (n_features, n_features): C_yy u / uᵀC_yy u, the change of the features per unit score


@dataclass(frozen=True)
class FactorSample:
    """Rows of both datasets with their cluster and outlier labels.

    See Also
    --------
    standout.datasets.FactorModel : The model that draws the rows.
    standout.robust_moments : Moments for rows with outliers.

    Examples
    --------
    >>> from standout.datasets import FactorModel
    >>> drawn = FactorModel(two_clusters=True).labelled_sample(100, 200)
    >>> drawn.target.shape, drawn.background.shape, drawn.cluster.shape
    ((100, 12), (200, 12), (100,))
    """

    target: Array  # (m, n_features)
    background: Array  # (n, n_features)
    cluster: NDArray[np.int64]  # (m,): 1 on the positive side of u_s, else 0
    outlier: NDArray[np.bool_]  # (m,): target rows that are outliers
    background_outlier: NDArray[np.bool_]  # (n,)


@dataclass(frozen=True)
class FactorModel:
    """A target with one specific direction, and directions that it shares with the background.

    Parameters
    ----------
    n_features : int
        Number of features D.
    background_sd : tuple of float
        σ_b: sd along each of the shared directions.
    signal_sd : float
        σ_s: sd of the target along its specific direction u_s.
    noise_sd : float
        σ_e: sd of the noise in every direction.
    oblique : float
        Cosine between u_s and the first shared direction; at 0, u_s is orthogonal to all of them.
    shared_growth : float
        Factor of the target's variance along the first shared direction.
    two_clusters : bool
        Whether the target takes the values ±σ_s along u_s instead of being normal.
    seed : int
        Seed of the directions.
    noise_scale : tuple of float
        Factor of the noise sd for each feature; empty for isotropic noise.
    units : tuple of float
        Scale of each feature, applied to signal, noise and means alike; empty for unit scales.
    outlier_share : float
        Probability that a row of either dataset is an outlier.
    outlier_size : float
        Sd of the displacement of an outlier, along one direction for each dataset.
    mean_sd : float
        Sd of the entries of the means m_x and m_y, which are drawn with each sample.

    See Also
    --------
    standout.datasets.FactorPopulation : The population solution.
    standout.datasets.FactorSample : Rows with their labels.
    standout.datasets.digits_over_tiles : Images instead of simulated rows.

    Examples
    --------
    >>> from standout.datasets import FactorModel
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
        size = self.n_features
        if not len(self.background_sd) < size:
            found = f"{len(self.background_sd)} shared directions leave none for the target among {size} features"
            raise InputError(f"background_sd: {found}. Give fewer, or a larger n_features.")
        for name in ("noise_scale", "units"):
            given = getattr(self, name)
            if len(given) not in (0, size) or not all(np.isfinite(x) and x > 0 for x in given):
                remedy = f"Give one positive number for each of the {size} features."
                raise InputError(f"{name}={given} is not valid. {remedy}")
        if not -1 <= self.oblique <= 1:
            raise InputError(f"oblique={self.oblique} is not a cosine. Give a number from -1 to 1.")
        if not 0 <= self.outlier_share <= 1:
            raise InputError(f"outlier_share={self.outlier_share} is not a probability. Give a number from 0 to 1.")

    @cached_property
    def directions(self) -> Array:
        """Shared directions, then the specific one, as columns of shape (n_features, n_shared + 1).

        They have unit length before the scales of the features are applied.
        """
        count = len(self.background_sd) + 1
        basis, _ = np.linalg.qr(np.random.default_rng(self.seed).normal(size=(self.n_features, count)))
        basis[:, -1] = self.oblique * basis[:, 0] + np.sqrt(1 - self.oblique**2) * basis[:, -1]
        return np.asarray(self._units[:, None] * basis)

    @cached_property
    def outlier_directions(self) -> Array:
        """Directions of the outliers of target and background, as columns of shape (n_features, 2)."""
        drawn = np.random.default_rng([self.seed, 1]).normal(size=(self.n_features, 2))
        return np.asarray(self._units[:, None] * (drawn / np.linalg.norm(drawn, axis=0)))

    @property
    def signal(self) -> Array:
        """The specific direction u_s of the target, of shape (n_features,)."""
        return self.directions[:, -1]

    @property
    def background_covariance(self) -> Array:
        """Population covariance C_yy of rows that are not outliers, of shape (n_features, n_features)."""
        return self._covariance(np.array([*self.background_sd, 0.0]))

    @property
    def target_covariance(self) -> Array:
        """Population covariance C_xx of rows that are not outliers, of shape (n_features, n_features)."""
        return self._covariance(np.array([*self._target_sd, self.signal_sd]))

    @property
    def top_ratio(self) -> float:
        """1 + σ_s²/σ_e², the population ratio of u_s if it is orthogonal to the shared directions."""
        return 1 + self.signal_sd**2 / self.noise_sd**2

    def population(self, outliers: bool = False) -> FactorPopulation:
        """Return all ratios, filters and patterns of the population, with or without outliers.

        Examples
        --------
        >>> model = FactorModel()
        >>> bool(abs(model.population().components[0] @ model.signal) > 0.999)
        True
        """
        C_xx, C_yy = self.target_covariance, self.background_covariance
        if outliers:
            added = [self.outlier_share * self.outlier_size**2 * np.outer(a, a) for a in self.outlier_directions.T]
            C_xx, C_yy = C_xx + added[0], C_yy + added[1]
        # With very different units C_yy is ill-conditioned, and eigh would lose the small features.
        scale = 1 / np.sqrt(np.diagonal(C_yy))
        ratios, vectors = linalg.eigh(*(scale[:, None] * C * scale for C in (C_xx, C_yy)))
        filters = scale * vectors.T[::-1]
        length = np.linalg.norm(filters, axis=1, keepdims=True)
        return FactorPopulation(ratios[::-1], filters / length, length * (filters @ C_yy))

    def sample(self, m: int, n: int, seed: int = 0) -> tuple[Array, Array]:
        """Draw m target rows and n background rows around random means.

        Examples
        --------
        >>> target, background = FactorModel(n_features=8).sample(100, 200)
        >>> target.shape, background.shape
        ((100, 8), (200, 8))
        """
        drawn = self.labelled_sample(m, n, seed)
        return drawn.target, drawn.background

    def labelled_sample(self, m: int, n: int, seed: int = 0) -> FactorSample:
        """Draw the rows of :meth:`sample` with their cluster and outlier labels.

        Examples
        --------
        >>> drawn = FactorModel(two_clusters=True, outlier_share=0.03).labelled_sample(1000, 2000)
        >>> int(drawn.cluster.sum()), int(drawn.outlier.sum()), int(drawn.background_outlier.sum())
        (537, 33, 53)
        """
        rng = np.random.default_rng(seed)
        shared, sd = self.directions[:, :-1], np.array(self.background_sd)
        signal = rng.choice([-1.0, 1.0], size=m) if self.two_clusters else rng.normal(size=m)
        target = (rng.normal(size=(m, len(sd))) * self._target_sd) @ shared.T
        target += np.outer(signal * self.signal_sd, self.signal)
        background = (rng.normal(size=(n, len(sd))) * sd) @ shared.T
        for rows in (target, background):
            noise = self._noise_sd * rng.normal(size=rows.shape)
            rows += noise + self._units * self.mean_sd * rng.normal(size=self.n_features)
        outliers = []
        for rows, direction in zip((target, background), self.outlier_directions.T, strict=True):
            outliers.append(rng.random(len(rows)) < self.outlier_share)
            rows[outliers[-1]] += self.outlier_size * rng.normal(size=(int(outliers[-1].sum()), 1)) * direction
        return FactorSample(target, background, (signal > 0).astype(np.int64), *outliers)

    @property
    def _units(self) -> Array:
        return np.array(self.units) if len(self.units) else np.ones(self.n_features)

    @property
    def _noise_sd(self) -> Array:
        scale = np.array(self.noise_scale) if len(self.noise_scale) else np.ones(self.n_features)
        return np.asarray(self.noise_sd * self._units * scale)

    @property
    def _target_sd(self) -> Array:
        return np.array(self.background_sd) * np.sqrt([self.shared_growth, *[1.0] * (len(self.background_sd) - 1)])

    def _covariance(self, sd: Array) -> Array:
        """Return the covariance of rows with this sd along each of the directions."""
        return (self.directions * sd**2) @ self.directions.T + np.diag(self._noise_sd**2)
