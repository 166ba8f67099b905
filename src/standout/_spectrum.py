"""Significance of ratios: noise edge, de-biasing and number of components above noise.

Even if target and background come from the same distribution, the largest of p sample ratios is above one, and far
above it if the background has few rows. All functions here are pure functions of the ratios and of p (dimensions), m
and n (independent units of target and background), for covariances that divide by m and n; ratios may be infinite.
They return NaN if the result is undefined (n − 1 ≤ p).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from standout import _largest_root
from standout._blas import Array

# Nodes t = eˣ of the trapezoidal rule in mean_log_variance: the integrand is analytic in x, so that the error is
# at rounding level.
_STEP = 0.2
_NODES = np.exp(np.arange(-40.0, 80.0, _STEP))

# The name under which the significance of the largest ratio is used elsewhere.
largest_root_p_value = _largest_root.p_value


@dataclass(frozen=True)
class _Aspect:
    """The two aspect ratios of the problem, and h of Wachter's law."""

    y1: float
    y2: float
    h: float
    unbiased: float  # factor that converts a ratio of 1/m, 1/n covariances to ddof = 1


def _aspect(p: float, m: float, n: float) -> _Aspect | None:
    if not (p >= 1 and m > 1 and n - 1 > p):
        return None
    y1, y2 = p / (m - 1), p / (n - 1)
    return _Aspect(y1, y2, math.sqrt(y1 + y2 - y1 * y2), m * (n - 1) / ((m - 1) * n))


def noise_edge(p: float, m: float, n: float) -> float:
    """Return the largest ratio expected from pure noise: the upper edge of Wachter's law.

    Examples
    --------
    >>> round(noise_edge(50, 200, 100), 1)
    13.2
    >>> noise_edge(50, 200, 40)
    nan
    """
    aspect = _aspect(p, m, n)
    if aspect is None:
        return math.nan
    return ((1 + aspect.h) / (1 - aspect.y2)) ** 2 / aspect.unbiased


def debiased(ratios: ArrayLike, p: float, m: float, n: float) -> Array:
    """Return estimates of the population ratios for sample ratios above the noise edge.

    The inverse of the spiked-F limit ``λ = a(a − 1 + y1)/(a − 1 − a·y2)``; NaN for ratios at or below the edge, which
    cannot be distinguished from noise.

    Examples
    --------
    >>> debiased([10.8, 2.0], p=50, m=200, n=150).round(1)
    array([6.2, nan])
    """
    sample = np.asarray(ratios, dtype=np.float64)
    aspect = _aspect(p, m, n)
    if aspect is None:
        return np.full(sample.shape, np.nan)
    edge = noise_edge(p, m, n)
    population = np.full(sample.shape, np.nan)
    for i, ratio in enumerate(sample.tolist()):  # few ratios: arithmetic of arrays would take longer
        if ratio == math.inf:
            population[i] = math.inf
        elif ratio > edge:
            scaled = ratio * aspect.unbiased
            q = scaled * (1 - aspect.y2) + 1 - aspect.y1
            population[i] = q * (1 + math.sqrt(max(0.0, 1 - 4 * (scaled / q) / q))) / 2
    return population


def visibility_threshold(p: float, m: float, n: float) -> float:
    """Return the population ratio below which a component cannot be distinguished from noise.

    Examples
    --------
    >>> round(visibility_threshold(50, 200, 150), 2)
    2.57
    """
    aspect = _aspect(p, m, n)
    return math.nan if aspect is None else (1 + aspect.h) / (1 - aspect.y2)


def count_components(ratios: ArrayLike, p: int, m: float, n: float) -> int:
    """Return how many ratios are above noise, by sequential tests at the 5 % level from the largest.

    The (k+1)-th ratio is tested against p − k dimensions; the first non-significant ratio stops the test. ``ratios``
    are all p sample ratios, largest first.

    Examples
    --------
    >>> count_components([9.0, 1.2, 1.1, 1.0, 0.9], p=5, m=200, n=200)
    1
    """
    sample = np.asarray(ratios, dtype=np.float64)
    count = 0
    while count < len(sample) and _largest_root.is_significant(float(sample[count]), p - count, m, n):
        count += 1
    return count


def mean_log_variance(scales: ArrayLike, freedom: ArrayLike) -> Array:
    """Return E log(Σ sᵢ·χ²ᵢ/νᵢ) for independent χ²ᵢ with νᵢ degrees of freedom.

    Such a sum has the distribution of a variance estimate from Gaussian rows. Its log is biased downward: for one
    term the bias is ψ(ν/2) − ln(ν/2). In general, with M(t) the Laplace transform of the sum divided by its mean,

        E log = log(mean) + ∫ (e⁻ᵗ − M(t))/t dt.

    ``scales`` and ``freedom``, of shape (n_terms, ...), are sᵢ ≥ 0 and νᵢ > 0. If all scales are 0 the result is 0.
    """
    scales, freedom = np.broadcast_arrays(np.asarray(scales, dtype=np.float64), np.asarray(freedom, dtype=np.float64))
    mean = scales.sum(axis=0)
    zero = mean == 0
    shares = np.where(zero, 1.0, scales) / np.where(zero, len(scales), mean)
    rates = (2 * shares / freedom)[..., None] * _NODES
    transform = np.exp(-(freedom[..., None] * np.log1p(rates)).sum(axis=0) / 2)
    # Beyond the last node the transform decays as t to the power of minus half the degrees of freedom.
    power = np.where(shares > 0, freedom, 0.0).sum(axis=0) / 2
    rest = transform[..., -1] / np.expm1(_STEP * np.minimum(power, 1e3))
    integral = (np.exp(-_NODES) - transform).sum(axis=-1) * _STEP - rest * _STEP
    return np.asarray(np.where(zero, 0.0, np.log(np.where(zero, 1.0, mean)) + integral))
