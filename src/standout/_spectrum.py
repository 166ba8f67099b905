"""Significance of ratios: noise edge, p-value, de-biasing and number of components above noise.

Even if target and background come from the same distribution, the largest of p sample ratios is above one, and far
above it if the background has few rows. All functions here are pure functions of the ratios and of p (dimensions), m
and n (independent units of target and background), for covariances that divide by m and n; ratios may be infinite.
They return NaN if the result is undefined (n − 1 ≤ p).

The p-value is that of Roy's largest-root test. For Gaussian rows with equal covariances, the roots
θ = λ·mh/(λ·mh + ne) of the ratios λ (ddof = 1, mh = m − 1, ne = n − 1) form the real Jacobi ensemble: s = min(p, mh)
roots with density ∝ ∏ θ^((α−1)/2)·(1−θ)^((β−1)/2)·∏|θᵢ − θⱼ|, α = |mh − p| and β = ne − p. By de Bruijn's formula, no
root is above t with probability Pf M(t)/Pf M(1),

    M(t)ⱼₖ = ∫∫ (fⱼ(x)fₖ(y) − fₖ(x)fⱼ(y)) dx dy over x < y < t,   fₖ(x) = x^((α−1)/2)·(1−x)^((β−1)/2)·pₖ(x),

for any basis p of the polynomials of degree below s. Chiani (2016) takes powers, which loses all digits in the tail.
For the orthonormal Jacobi polynomials of weight x^α·(1−x)^β, the inverse of M(1) is tridiagonal and known (Adler,
Forrester, Nagao and van Moerbeke 2000), and E = M(1) − M(t) is an integral over the tail x > t only. In
P(largest root > t) = 1 − √det(I − M(1)⁻¹E) no digits cancel, however small the result.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import betainc, betaln, eval_legendre, expit, log_expit, roots_legendre

from standout._blas import Array

# Quadrature nodes on the tail, and the range they cover: the functions fall by e⁻²⁴ over their exponential tail, and
# by as much over 11 times Johnstone's scale if they fall like the Airy function.
_NODES = 64
_EXPONENTIAL, _AIRY = 24.0, 11.0
# Polynomials are rescaled every so many degrees, so that the first may underflow without the last.
_RESCALED = 16
# Below this trace of M(1)⁻¹E, its square is negligible, and the rounding error of the determinant is not.
_SMALL = 1e-8
# The 5 % point is 0.56 to 2.90 scales above Johnstone's centre, on a grid of 1 to 500 dimensions and 1e-4 to 1e5 spare
# degrees of freedom.
_LEVEL, _NEVER, _ALWAYS = 0.05, 0.3, 3.5
# No data have as many units; squares of such counts overflow.
_MOST_UNITS = 1e100
# Rounding tolerance on the number of effective rows: two rows of equal weight count as two.
_ROUNDING = 1e-9
# Nodes t = eˣ of the trapezoidal rule in mean_log_variance: the integrand is analytic in x, so that the error is
# at rounding level.
_STEP = 0.2
_LAPLACE = np.exp(np.arange(-40.0, 80.0, _STEP))


def _aspect(p: float, m: float, n: float) -> tuple[float, float, float, float]:
    """Return y₁, y₂ and h of Wachter's law, and the factor that converts ratios to ddof = 1; NaN if undefined."""
    if not (p >= 1 and m > 1 and n - 1 > p):
        return math.nan, math.nan, math.nan, math.nan
    y1, y2 = p / (m - 1), p / (n - 1)
    return y1, y2, math.sqrt(y1 + y2 - y1 * y2), m * (n - 1) / ((m - 1) * n)


def noise_edge(p: float, m: float, n: float) -> float:
    """Return the largest ratio expected from pure noise: the upper edge of Wachter's law.

    Examples
    --------
    >>> round(noise_edge(50, 200, 100), 1)
    13.2
    >>> noise_edge(50, 200, 40)
    nan
    """
    _, y2, h, unbiased = _aspect(p, m, n)
    return ((1 + h) / (1 - y2)) ** 2 / unbiased


def debiased(ratios: ArrayLike, p: float, m: float, n: float) -> Array:
    """Return estimates of the population ratios for sample ratios above the noise edge.

    The inverse of the spiked-F limit ``λ = a(a − 1 + y₁)/(a − 1 − a·y₂)``; NaN for ratios at or below the edge, which
    cannot be distinguished from noise.

    Examples
    --------
    >>> debiased([10.8, 2.0], p=50, m=200, n=150).round(1)
    array([6.2, nan])
    """
    sample = np.asarray(ratios, dtype=np.float64)
    edge = noise_edge(p, m, n)
    y1, y2, _, unbiased = _aspect(p, m, n)
    population = np.full(sample.shape, np.nan)
    for i, ratio in enumerate(sample.tolist()):  # few ratios: arithmetic of arrays would take longer
        if ratio == math.inf and not math.isnan(edge):
            population[i] = math.inf
        elif ratio > edge:
            scaled = ratio * unbiased
            q = scaled * (1 - y2) + 1 - y1
            population[i] = q * (1 + math.sqrt(max(0.0, 1 - 4 * (scaled / q) / q))) / 2
    return population


def largest_root_p_value(ratio: float, p: int, m: float, n: float) -> float:
    """Return the probability that noise alone gives a top ratio at least this large: Roy's largest-root test.

    It is exact for Gaussian data, however small, and anti-conservative (too small) under heavy tails. Units need not be
    integers; with fewer target units than dimensions, where only integers have a distribution, the logarithm is
    interpolated between them, at the same distance from Johnstone's centre. NaN also for ``m < 2``: a target with less
    than one degree of freedom has no distribution.

    Examples
    --------
    >>> f"{largest_root_p_value(125.0, 10, 200, 30):.2g}"
    '1.1e-12'
    """
    mh, ne = m - 1, n - 1
    if math.isnan(ratio) or not (p >= 1 and mh >= 1 - _ROUNDING and ne > p and max(m, n) < _MOST_UNITS):
        return math.nan
    if ratio <= 0:
        return 1.0
    if math.isinf(ratio):
        return 0.0
    logit = math.log(ratio) + math.log(m / n)
    if mh >= p or abs(mh - round(mh)) <= _ROUNDING:
        return _upper_tail(logit, p, mh if mh >= p else round(mh), ne)
    low = math.floor(mh)
    centre, spread = _location(p, mh, ne)
    (centre_0, spread_0), (centre_1, spread_1) = (_location(p, whole, ne) for whole in (low, low + 1))
    at = (logit - centre) / spread
    below = _upper_tail(centre_0 + at * spread_0, p, low, ne)
    above = _upper_tail(centre_1 + at * spread_1, p, low + 1, ne)
    return float(below ** (low + 1 - mh) * above ** (mh - low))


def critical_value(p: int, m: float, n: float, level: float = _LEVEL) -> float:
    """Return the ratio that the largest ratio of noise exceeds with this probability; NaN where the p-value is.

    Examples
    --------
    >>> round(critical_value(10, 200, 30), 2)
    7.5
    """
    if math.isnan(largest_root_p_value(1.0, p, m, n)):
        return math.nan

    def excess(logit: float) -> float:
        return math.log(max(largest_root_p_value(math.exp(logit) * n / m, p, m, n), 1e-300) / level)

    centre, spread = _location(p, m - 1, n - 1)
    low, high = centre, centre + 1.5 * spread
    while excess(low) < 0:
        low, high = low - spread, low
    while excess(high) > 0:
        low, high = high, high + 2 * (high - low)
    return math.exp(brentq(excess, low, high, xtol=1e-9, rtol=1e-9)) * n / m


def is_significant(ratio: float, p: int, m: float, n: float) -> bool:
    """Return whether the p-value is below 5 %, without computing it if the ratio is far from the critical value."""
    if not (0 < ratio < math.inf and p >= 1 and m >= 2 and n - 1 > p):
        return largest_root_p_value(ratio, p, m, n) < _LEVEL
    centre, spread = _location(p, m - 1, n - 1)
    at = (math.log(ratio * m / n) - centre) / spread
    return at > _NEVER and (at > _ALWAYS or largest_root_p_value(ratio, p, m, n) < _LEVEL)


def _upper_tail(logit: float, p: int, mh: float, ne: float) -> float:
    """Return the probability that the largest root is above t, given log(t/(1 − t))."""
    s = int(min(p, mh))
    alpha, beta = abs(mh - p), ne - p
    if s == 1:
        return float(betainc((beta + 1) / 2, (alpha + 1) / 2, expit(-logit)))
    centre, spread = _location(p, mh, ne)
    if logit < centre - min(3.5 + 1.2 * beta, 14) * spread:
        return 1.0  # to 1e-3 with two roots, to 1e-5 with more
    nodes, sign = _rule()
    length = 2 * _EXPONENTIAL / (beta + 1) + _AIRY * spread + max(centre - logit, 0.0)
    x = logit + length * nodes
    # Three-term recurrence bₖ₊₁·pₖ₊₁ = (x − aₖ)·pₖ − bₖ·pₖ₋₁, multiplied by the weight and dx/d(logit) at the end.
    k = np.arange(1.0, s + 1)
    d = 2 * k + alpha + beta
    a = (1 + (alpha - beta) * (alpha + beta) / ((d - 2) * d)) / 2
    b = np.sqrt(k * (k + alpha) * (k + beta) * (k + alpha + beta) / (d - 1) / (d + 1)) / d
    forward, back = (expit(x) - a[:, None]) / b[:, None], np.r_[0.0, b[:-1]] / b
    norm = betaln(alpha + 1, beta + 1) / 2
    log_weight = (alpha + 1) / 2 * log_expit(x) + (beta + 1) / 2 * log_expit(-x) - norm + math.log(length)
    weight = np.exp(log_weight)
    f = np.empty((s, _NODES))
    previous, current = np.zeros(_NODES), np.ones(_NODES)
    for degree in range(s):
        f[degree] = current * weight
        previous, current = current, forward[degree] * current - back[degree] * previous
        if degree % _RESCALED == _RESCALED - 1:
            size = np.maximum(np.abs(current), 1.0)
            previous, current, log_weight = previous / size, current / size, log_weight + np.log(size)
            weight = np.exp(log_weight)
    # M(1)⁻¹ has the entries cₖ next to its diagonal. E is V·sign·Vᵀ, where V has the integrals of f over (0, 1) and the
    # values of f at the nodes as columns. det(I − M(1)⁻¹E) = det(I − VᵀM(1)⁻¹V·sign), whose order does not grow with s.
    # The product of M(1)⁻¹ and the integrals is zero except in its last element.
    c = (k * 2 + alpha + beta)[:-1] * b[:-1] / 4
    logs = np.log(c)
    last = betaln((alpha + 1) / 2, (beta + 1) / 2) - norm + logs[::2].sum() - logs[1::2].sum()
    half = np.zeros_like(sign)
    half[1:, 0] = math.exp(-last if s % 2 else last) * f[-1]
    half[1:, 1:] = (f[1:].T * c) @ f[:-1]
    product = (half - half.T) @ sign
    trace = float(np.trace(product))
    if trace < _SMALL:
        return max(trace, 0.0) / 2
    positive, log_determinant = np.linalg.slogdet(np.eye(len(product)) - product)
    return min(-math.expm1(log_determinant / 2), 1.0) if positive > 0 else 1.0


def _location(p: int, mh: float, ne: float) -> tuple[float, float]:
    """Return centre and scale of the logit of the largest root (Johnstone 2008)."""
    ne = max(ne, p + 1)  # both diverge for ne → p, the root does not
    total = mh + ne - 1
    gamma = 2 * math.asin(math.sqrt((min(p, mh) - 0.5) / total))
    phi = 2 * math.asin(math.sqrt((max(p, mh) - 0.5) / total))
    centre = 2 * math.log(math.tan((phi + gamma) / 2))
    return centre, (16 / (total**2 * math.sin(phi + gamma) ** 2 * math.sin(phi) * math.sin(gamma))) ** (1 / 3)


@cache
def _rule() -> tuple[Array, Array]:
    """Return Gauss-Legendre nodes on (0, 1) and the matrix of the skew form of E in the values at the nodes.

    With F the integral of f over (0, 1) and G(y) that over (y, 1), E = F·G(t)ᵀ − G(t)·Fᵀ − ∫ (G·fᵀ − f·Gᵀ) dy.
    """
    x, weights = roots_legendre(_NODES)
    degree = np.arange(_NODES)
    legendre = eval_legendre(np.arange(_NODES + 1), x[:, None])
    integrals = np.column_stack([1 - x, (legendre[:, :-2] - legendre[:, 2:]) / (2 * degree[1:] + 1)])  # from x to 1
    cumulative = integrals @ ((degree[:, None] + 0.5) * legendre[:, :-1].T * weights) / 2
    sign = np.zeros((_NODES + 1, _NODES + 1))
    sign[0, 1:] = weights / 2
    sign[1:, 1:] = weights[:, None] / 2 * cumulative
    return (x + 1) / 2, sign - sign.T


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
    while count < len(sample) and is_significant(float(sample[count]), p - count, m, n):
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
    rates = (2 * shares / freedom)[..., None] * _LAPLACE
    transform = np.exp(-(freedom[..., None] * np.log1p(rates)).sum(axis=0) / 2)
    # Beyond the last node the transform decays as t to the power of minus half the degrees of freedom.
    power = np.where(shares > 0, freedom, 0.0).sum(axis=0) / 2
    rest = transform[..., -1] / np.expm1(_STEP * np.minimum(power, 1e3))
    integral = (np.exp(-_LAPLACE) - transform).sum(axis=-1) * _STEP - rest * _STEP
    return np.asarray(np.where(zero, 0.0, np.log(np.where(zero, 1.0, mean)) + integral))
