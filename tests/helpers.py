"""What several test files need: data, covariances as the paper writes them, and exact answers."""

import mpmath
import numpy as np
from scipy import linalg
from scipy.special import digamma
from scipy.stats import binomtest

from standout._moments import Moments

EPS = float(np.finfo(float).eps)


def covariance(rows):
    """Return (1/n) Σ (x − mean)(x − mean)ᵀ."""
    centred = rows - rows.mean(axis=0)
    return centred.T @ centred / len(rows)


def moments_of(matrix, n=100_000, mean=None):
    """Return moments whose covariance is ``matrix``: a population instead of a sample."""
    matrix = np.asarray(matrix, dtype=float)
    mean = np.zeros(len(matrix)) if mean is None else mean
    return Moments(mean=mean, scatter=matrix * n, weight=n, weight_squared=n, rows=n)


def ratio(u, target, background):
    """Return the paper's objective: target variance over background variance along u."""
    return (u @ target @ u) / (u @ background @ u)


def cosine(a, b):
    """Return |cos| of the angle between two vectors."""
    return abs(a @ b) / np.linalg.norm(a) / np.linalg.norm(b)


def rotation(rng, size):
    """Return a random orthogonal matrix."""
    return np.linalg.qr(rng.normal(size=(size, size)))[0]


def mixing(rng, size, condition):
    """Return a random matrix with singular values spread evenly (in logarithm) over ``condition``."""
    return rotation(rng, size) * np.geomspace(1, 1 / condition, size) @ rotation(rng, size)


def sample_pair(rng, m, n, size, condition=10.0):
    """Return target and background rows: correlated features, means of their own, ratios well apart."""
    mix = mixing(rng, size, condition)
    sd = np.geomspace(3, 0.5, size)
    target = (rng.normal(size=(m, size)) * sd) @ mix + rng.normal(size=size)
    background = rng.normal(size=(n, size)) @ mix + rng.normal(size=size)
    return target, background


def same_up_to_sign(found, expected, tolerance):
    """Tell whether the rows of two matrices agree, each up to its sign and relative to its length."""
    turned = expected * np.where(np.einsum("ij,ij->i", found, expected) < 0, -1.0, 1.0)[:, None]
    length = np.linalg.norm(expected, axis=1)
    return bool(np.all(np.linalg.norm(found - turned, axis=1) <= tolerance * length))


def _whole(array):
    """Return floats as whole numbers of units of 2^unit: whole numbers add and multiply without error."""
    _, exponents = np.frexp(array[array != 0])
    unit = int(exponents.min()) - 53
    pairs = (float(value).as_integer_ratio() for value in array.ravel())
    whole = [p * 2**-unit // q if unit < 0 else p // (q * 2**unit) for p, q in pairs]
    return np.array(whole, dtype=object).reshape(array.shape), unit


def _mapped_covariance(rows, matrix):
    """Return the covariance of ``rows @ matrix`` without any rounding, as a matrix of mpmath numbers."""
    (whole, unit), (basis, power) = _whole(rows), _whole(matrix)
    total = whole.sum(axis=0)
    scatter = len(rows) * (whole.T @ whole) - np.outer(total, total)
    scale = mpmath.mpf(2) ** (2 * (unit + power)) / len(rows) ** 2
    return np.vectorize(lambda value: mpmath.mpf(value) * scale, otypes=[object])(basis.T @ scatter @ basis)


def exact_ratios(target, background, count=None):
    """Return the ratios of float rows to full double accuracy, however ill-conditioned they are.

    Ratios do not change under linear maps, so any rough whitening, applied in whole numbers and thus
    without error, leaves them as they are and makes the problem easy. All ratios then come from an
    80-digit eigensolver; of a large problem the top ``count`` come from Rayleigh quotients of
    double-precision vectors, whose error is the square of the vectors' error.
    """
    triangle = np.linalg.qr(background - background.mean(axis=0), mode="r")
    whiten = np.linalg.inv(triangle)
    with mpmath.workdps(80):
        A, B = (_mapped_covariance(rows, whiten) for rows in (target, background))
        if count is not None:
            _, vectors = linalg.eigh(A.astype(float), B.astype(float))
            top = vectors[:, ::-1][:, :count].T.astype(object)
            return np.array([float(ratio(v, A, B)) for v in top])
        inverse = mpmath.inverse(mpmath.cholesky(mpmath.matrix(B.tolist())))
        white = inverse * mpmath.matrix(A.tolist()) * inverse.T
        values = mpmath.eigsy((white + white.T) / 2, eigvals_only=True)
        return np.array([float(value) for value in values])[::-1]


def null_log_ratio(m, n):
    """Return the expected log ratio of variances that divide by m and n, of Gaussian rows that vary alike."""
    return digamma((m - 1) / 2) - np.log(m / 2) - (digamma((n - 1) / 2) - np.log(n / 2))


def possible(one):
    """Whether the wanted rate could have given so many hits (99.9 %)."""
    ends = binomtest(one.hits, one.runs).proportion_ci(0.999)
    return ends.low <= one.wanted[1] and ends.high >= one.wanted[0]
