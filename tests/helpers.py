"""Shared helpers: data, covariances as the paper defines them, exact ratios, and comparisons."""

import csv
from functools import cache
from importlib import import_module

import numpy as np
import pytest
from scipy import linalg, stats
from scipy.stats import binomtest, wishart

from standout._dpca import DPCA
from standout._moments import Moments


class OptionalPackage:
    """A package that is imported when it is used: without it, only the tests that use it are skipped."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        if attribute.startswith("__"):  # inspection by pytest is not a use
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)


mpmath = OptionalPackage("mpmath")
EPS = float(np.finfo(float).eps)
quiet = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")


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
    """Return target and background rows: correlated features, different means, well-separated ratios."""
    mix = mixing(rng, size, condition)
    sd = np.geomspace(3, 0.5, size)
    target = (rng.normal(size=(m, size)) * sd) @ mix + rng.normal(size=size)
    background = rng.normal(size=(n, size)) @ mix + rng.normal(size=size)
    return target, background


def same_up_to_sign(found, expected, tolerance):
    """Return whether the rows of two matrices agree, each up to its sign and relative to its length."""
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


def likelihood_gain(model, target, background):
    """Return the mean log-density of target rows under the fitted ratios less that under the background's variance."""
    claimed = np.where(np.isnan(model.debiased_ratios_), model.ratios_, model.debiased_ratios_)
    sd = np.sqrt(np.maximum(claimed, 1))
    m, n = len(target), len(background)
    scores = [(rows - rows.mean(axis=0)) @ model.components_.T for rows in (target, background)]
    # The variance of the target is unbiased, and so is the inverse of the variance of the background.
    units = scores[0] / scores[1].std(axis=0) * np.sqrt(m / (m - 1) * (n - 3) / n)
    return float((stats.norm.logpdf(units, scale=sd) - stats.norm.logpdf(units)).sum(axis=1).mean())


def possible(one):
    """Return whether the number of hits is consistent with the expected rate (99.9 %)."""
    ends = binomtest(one.hits, one.runs).proportion_ci(0.999)
    return ends.low <= one.wanted[1] and ends.high >= one.wanted[0]


SIZE, TOP = 50, 5


@cache
def ill_conditioned(k, seed=0):
    """Return target and background times a mixing matrix of condition 10^k, and their exact ratios."""
    rng = np.random.default_rng(100 * seed + k)
    sd = np.ones(SIZE)
    sd[:TOP] = [6, 5, 4, 3, 2]
    mix = mixing(rng, SIZE, 10.0**k)
    target, background = (rng.normal(size=(200, SIZE)) * sd) @ mix, rng.normal(size=(200, SIZE)) @ mix
    return target, background, exact_ratios(target, background, TOP)


def agree(models, tolerance):
    first, *others = models
    for other in others:
        assert other.ratios_ == pytest.approx(first.ratios_, rel=tolerance)
        assert other.shrinkage_ == pytest.approx(first.shrinkage_, rel=1e-11)
        for name in ("components_", "patterns_"):
            one, two = getattr(first, name), getattr(other, name)
            assert same_up_to_sign(two, one, 100 * tolerance)
            assert np.all(np.einsum("ij,ij->i", one, two) > 0)
        assert other.mean_ == pytest.approx(first.mean_, abs=1e-12)
        for name in ("target_variance_", "background_variance_"):
            assert getattr(other, name) == pytest.approx(getattr(first, name), rel=100 * tolerance)
        assert other.noise_edge_ == pytest.approx(first.noise_edge_, rel=1e-12, nan_ok=True)


def readme_toy(seed):
    """The example in the README of ``contrastive``: four groups under strong shared variation."""
    rng = np.random.default_rng(seed)
    gap = 3
    background = np.hstack([rng.normal(0, sd, (400, 10)) for sd in (10, 3, 1)])
    target = np.zeros((400, 30))
    target[:, :10] = rng.normal(0, 10, (400, 10))
    for group in range(4):
        rows = slice(100 * group, 100 * group + 100)
        target[rows, 10:20] = rng.normal(2 * gap * (group // 2), 1, (100, 10))
        target[rows, 20:] = rng.normal(gap * (group % 2), 1, (100, 10))
    return target, background


def few_rows(seed=0, m=12, n=15, size=40):
    rng = np.random.default_rng(seed)
    sd = np.where(np.arange(size) == 7, 5.0, 1.0)
    return rng.normal(size=(m, size)) * sd + 3, rng.normal(size=(n, size)) - 2


def top_of(target, background, alpha, count):
    """The raw definition: the last columns of eigh."""
    values, vectors = linalg.eigh(covariance(target) - alpha * covariance(background))
    return values[::-1][:count], vectors[:, ::-1][:, :count].T


def same_subspace(one, other, tolerance=1e-9):
    return np.sin(linalg.subspace_angles(one.T, other.T)).max() < tolerance


def ridge(target, background, rho, count):
    """The raw definition on explicit features: ratios and unit vectors against (1 − ρ)·C + ρ·(tr C / rank)·I."""
    C_xx, C_yy = covariance(target), covariance(background)
    rank = np.linalg.matrix_rank(C_xx / np.trace(C_xx) + C_yy / np.trace(C_yy), tol=1e-10)
    shrunk = (1 - rho) * C_yy + rho * np.trace(C_yy) / rank * np.eye(len(C_yy))
    values, vectors = linalg.eigh(C_xx, shrunk)
    top = vectors[:, ::-1][:, :count]
    return values[::-1][:count], top / np.linalg.norm(top, axis=0)


def second_order(rows, gamma, coef0):
    """The explicit features of (γ x·z + c)²."""
    first, second = np.triu_indices(rows.shape[1])
    pairs = rows[:, first] * rows[:, second] * np.where(first == second, 1.0, np.sqrt(2)) * gamma
    return np.hstack([np.full((len(rows), 1), coef0), np.sqrt(2 * gamma * coef0) * rows, pairs])


class Mice:
    """Proteins without missing values, the class and the mouse of each row."""

    def __init__(self, path, background):
        with path.open(encoding="utf-8-sig", newline="") as file:
            header, *rows = csv.reader(file)
        proteins = slice(1, header.index("Genotype"))
        values = np.array([[float(cell) if cell else np.nan for cell in row[proteins]] for row in rows])
        kind = np.array([row[header.index("class")] for row in rows])
        mouse = np.array([row[0].split("_")[0] for row in rows])
        chosen = [np.isin(kind, ["t-SC-m", "t-SC-s"]) & (np.isnan(values).sum(axis=1) < 43), kind == background]
        whole = ~np.isnan(values[chosen[0] | chosen[1]]).any(axis=0)
        self.names = tuple(np.array(header[proteins])[whole])
        self.target, self.background = (values[rows][:, whole] for rows in chosen)
        self.mice, self.background_mice = (mouse[rows] for rows in chosen)

    def fit(self, **settings):
        return DPCA(**settings).fit(self.target, background=self.background)


def sample_ratios(p, m, n, rng, population=None):
    """All ratios of one pair of Gaussian samples, covariances divided by m and n."""
    scale = np.ones(p) if population is None else np.asarray(population)
    target = wishart.rvs(m - 1, np.diag(scale), random_state=rng) if m - 1 >= p else None
    if target is None:
        rows = rng.normal(size=(m - 1, p)) * np.sqrt(scale)
        target = rows.T @ rows
    background = wishart.rvs(n - 1, np.eye(p), random_state=rng)
    return linalg.eigvalsh(target / m, background / n)[::-1]
