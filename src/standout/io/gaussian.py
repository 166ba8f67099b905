"""Imputation by draws from a Gaussian model of the observed values, the same model for all datasets.

The model has one mean per dataset and one covariance for all datasets, estimated by stochastic EM: impute the
missing values by draws from their conditional distribution given the observed values of the row, estimate the
model from the imputed rows, and repeat. Random draws preserve the variances, which imputation by a mean or a
regression would shrink. With one covariance for all datasets the imputation does not depend on which rows are
target rows: values drawn from a covariance of the target only would reproduce its sampling noise and inflate the
ratios (docs/evidence/simulations.md, "missing").
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.special import ndtri

from standout._blas import Array

Blocks = Callable[[], Iterator[NDArray[Any]]]
Mask = NDArray[np.bool_]

# EM iterations: burn-in, then iterations whose estimates are averaged.
_BURN_IN, _AVERAGE = 12, 8
# With more features than this, the covariance model has this many factors plus a specific variance per feature.
_MAX_EXACT, _N_FACTORS = 300, 100
# Added to the unit variances before inversion; regressions change by the same order, and draws get no extra noise.
_FLOOR = 1e-8
# Relative variance at the level of rounding error: features are linearly dependent along such directions.
_ROUNDING = 1e-10
# With fewer rows per feature than this, the covariance is shrunk toward its diagonal.
_ROWS_PER_FEATURE = 10
# Maximum number of elements in the stacked matrices processed at a time.
_BATCH = 4_000_000


@dataclass(frozen=True)
class Gaussian:
    """A covariance in the form needed for conditional draws; features are in units of ``scale``.

    A complete row z is drawn, and its missing entries are corrected by a regression on the differences of the observed
    values: z_m + Σ_mo Σ_oo⁻¹ (x_o − z_o) has the conditional distribution. If features are linearly dependent, z
    satisfies the same relations, and no noise is added.
    """

    scale: Array  # (n_features,)

    @property
    def n_normal(self) -> int:
        """Number of standard normal draws per row."""
        raise NotImplementedError

    def fill(self, rows: Array, normal: Array) -> Array:
        """Return centred rows with NaN replaced by draws conditional on the observed values of the row."""
        missing = np.isnan(rows)
        counts = missing.sum(axis=1)
        order = np.argsort(counts, kind="stable")[np.count_nonzero(counts == 0) :]
        filled, start = np.array(rows), 0
        while start < len(order):  # process rows with similar numbers of missing features together
            here = order[start : start + max(1, _BATCH // self._work(counts[order[start]]))]
            here = here[: max(1, _BATCH // self._work(counts[here[-1]]))]
            # Indices of missing features; rows with fewer are padded with observed ones, which are not valid.
            places = np.argsort(~missing[here], axis=1, kind="stable")[:, : counts[here[-1]]]
            valid = np.take_along_axis(missing[here], places, axis=1)
            observed = np.where(missing[here], 0.0, rows[here] / self.scale)
            drawn = self._drawn(observed, missing[here], places, valid, normal[here]) * self.scale[places]
            filled[np.repeat(here, counts[here]), places[valid]] = drawn[valid]
            start += len(here)
        return filled

    def _work(self, n_missing: int) -> int:
        """Return the number of elements processed per row."""
        raise NotImplementedError

    def _drawn(self, observed: Array, missing: Mask, places: NDArray[np.intp], valid: Mask, normal: Array) -> Array:
        """Return draws for the features at ``places`` of each row; only those of missing features are used."""
        raise NotImplementedError


@dataclass(frozen=True)
class Exact(Gaussian):
    """A covariance R with its inverse Ω: Σ_mo Σ_oo⁻¹ = −Ω_mm⁻¹Ω_mo."""

    precision: Array  # (n_features, n_features): Ω
    root: Array  # (n_features, n_features): symmetric root of R, which is unique
    related: Array  # (n_features, n_relations): N, with linear dependencies Nᵀx = 0

    @property
    def n_normal(self) -> int:
        """One draw per feature."""
        return len(self.scale)

    def _work(self, n_missing: int) -> int:
        return n_missing**2 + len(self.scale)

    def _drawn(self, observed: Array, missing: Mask, places: NDArray[np.intp], valid: Mask, normal: Array) -> Array:
        both = valid[:, :, None] & valid[:, None, :]
        inside = np.where(both, self.precision[places[:, :, None], places[:, None, :]], np.eye(places.shape[1]))
        rows = normal @ self.root
        apart = np.where(missing, 0.0, observed - rows)
        given = np.where(valid, -np.take_along_axis(apart @ self.precision, places, axis=1), 0.0)
        drawn = np.where(valid, np.take_along_axis(rows, places, axis=1) + _solved(inside, given), 0.0)
        if self.related.shape[1] == 0:
            return np.asarray(drawn)
        # Ω is accurate to about the square root of machine epsilon: restore the relations to full precision.
        here = np.where(valid[:, :, None], self.related[places], 0.0)
        off = (observed @ self.related)[:, :, None] + here.transpose(0, 2, 1) @ drawn[:, :, None]
        values, vectors = np.linalg.eigh(here.transpose(0, 2, 1) @ here)
        inverse = np.where(values > 1e-6, 1 / np.maximum(values, 1e-6), 0.0)  # only relations with a missing value
        fitted = here @ (vectors * inverse[:, None, :]) @ vectors.transpose(0, 2, 1) @ off
        return np.asarray(drawn - fitted[:, :, 0])


@dataclass(frozen=True)
class Factors(Gaussian):
    """Factor model for many features: a few factors, and a specific variance per feature."""

    loadings: Array  # (n_features, n_factors)
    own: Array  # (n_features,)

    @property
    def n_normal(self) -> int:
        """One draw per factor and per feature."""
        return sum(self.loadings.shape)

    def _work(self, n_missing: int) -> int:
        n_features, n_factors = self.loadings.shape
        return int(n_factors * (n_missing + n_factors) + n_features)

    def _drawn(self, observed: Array, missing: Mask, places: NDArray[np.intp], valid: Mask, normal: Array) -> Array:
        """Draw the factors given the observed features, then the features given the factors."""
        n_factors = self.loadings.shape[1]
        here = np.where(valid[:, :, None], self.loadings[places], 0.0)
        whole = (self.loadings / self.own[:, None]).T @ self.loadings + np.eye(n_factors)
        inside = whole - (here / self.own[places][:, :, None]).transpose(0, 2, 1) @ here
        factors = normal[:, :n_factors]
        alone = np.sqrt(np.where(self.own > _FLOOR, self.own, 0.0)) * normal[:, n_factors:]
        apart = np.where(missing, 0.0, observed - factors @ self.loadings.T - alone)
        factors = factors + _solved(inside, (apart / self.own) @ self.loadings)
        return np.asarray((here @ factors[:, :, None])[:, :, 0] + np.take_along_axis(alone, places, axis=1))


def _solved(matrices: Array, given: Array) -> Array:
    return np.asarray(np.linalg.solve(matrices, given[:, :, None])[:, :, 0])


def _of_covariance(covariance: Array, n_rows: float) -> Gaussian:
    """Return the model of a covariance that was estimated from ``n_rows`` rows."""
    scale = _scale(np.diagonal(covariance))
    count = len(scale)
    correlation = covariance / np.outer(scale, scale)
    rho = _shrinkage(float(np.einsum("ij,ij->", correlation, correlation)), count, n_rows)
    if count > _MAX_EXACT:
        correlation *= 1 - rho
        values, vectors = linalg.eigh(correlation, subset_by_index=[count - _N_FACTORS, count - 1])
        return _of_factors(scale, vectors * np.sqrt(np.maximum(values, 0.0)))
    values, vectors = linalg.eigh(correlation)
    # With more rows than features, directions without variance are linear dependencies, which are kept.
    related = (values <= _ROUNDING) & (n_rows > count + 10)
    inside = vectors[:, related] @ vectors[:, related].T
    correlation *= 1 - rho
    correlation += rho * (np.eye(count) - inside)
    if not related.any():
        np.einsum("ii->i", correlation)[...] = 1
    values, vectors = linalg.eigh(correlation)
    kept = np.where(values > _ROUNDING, values, 0.0)
    root = (vectors * np.sqrt(kept)) @ vectors.T
    return Exact(scale, (vectors / (kept + _FLOOR)) @ vectors.T, root, vectors[:, kept == 0])


def _of_rows(rows: Array, n_rows: float) -> Gaussian:
    """Return the model of the covariance ``rows.T @ rows``, with more features than rows.

    Only factors above the noise edge (Marchenko and Pastur) are used: a regression on all would fit noise.
    """
    scale = _scale(np.einsum("ij,ij->j", rows, rows))
    standard = rows / scale
    gram = standard @ standard.T
    values, vectors = linalg.eigh(gram, subset_by_index=[max(len(gram) - _N_FACTORS, 0), len(gram) - 1])
    clear = values > (1 + math.sqrt(len(scale) / n_rows)) ** 2
    return _of_factors(scale, standard.T @ vectors[:, clear])


def _of_factors(scale: Array, loadings: Array) -> Gaussian:
    # Fix the arbitrary signs of eigenvectors, because draws depend on them.
    top = np.take_along_axis(loadings, np.abs(loadings).argmax(axis=0, keepdims=True), axis=0)
    loadings = loadings * np.where(top < 0, -1.0, 1.0)
    own = np.maximum(1 - np.einsum("ij,ij->i", loadings, loadings), _FLOOR)
    return Factors(scale, loadings, own)


def _scale(variance: Array) -> Array:
    return np.asarray(np.sqrt(np.where(variance > 0, variance, 1.0)))


def _shrinkage(trace_squared: float, n_features: int, n_rows: float) -> float:
    """Return the OAS intensity for a correlation matrix with this tr R²; zero if there are enough rows."""
    spread = trace_squared - n_features
    if n_rows >= _ROWS_PER_FEATURE * n_features or n_features < 2:
        return 0.0
    top = (1 - 2 / n_features) * trace_squared + n_features**2
    return min(1.0, top / ((n_rows + 1 - 2 / n_features) * spread)) if spread > 1e-12 * n_features**2 else 1.0


@dataclass(frozen=True)
class Fill:
    """Imputation rule for one dataset. A row gets the same draws in every pass."""

    mean: Array
    model: Gaussian
    fixed: Mask  # (n_features,): features imputed by ``mean``, because they are constant
    seed: tuple[int, int]

    @classmethod
    def at(cls, mean: Array) -> Fill:
        """Return the rule that imputes these means, without draws."""
        return cls(mean, Gaussian(np.ones_like(mean)), np.ones(len(mean), dtype=bool), (0, 0))

    def rows(self, numbers: NDArray[Any], start: int = 0) -> Array:
        """Return rows with missing values imputed; ``start`` is the number of rows before them."""
        rows = np.where(np.isnan(numbers) & self.fixed, self.mean, np.asarray(numbers, dtype=np.float64))
        if not np.isnan(rows).any():
            return rows
        filled = self.model.fill(rows - self.mean, self._normal(start, len(rows))) + self.mean
        return np.where(np.isnan(rows), filled, rows)  # observed values are unchanged, bit for bit

    def _normal(self, start: int, count: int) -> Array:
        """Return standard normal draws for these rows, independent of the block size."""
        wide = self.model.n_normal
        steps = -(-wide // 4)  # the generator yields four numbers per step
        bits = np.random.Philox(key=np.array(self.seed, dtype=np.uint64)).advance(start * steps)
        uniform = np.random.Generator(bits).random((count, 4 * steps))[:, :wide]
        return np.asarray(ndtri(uniform + 2.0**-54))

    def digest(self) -> str:
        """Return a digest that identifies the draws."""
        parts = (self.mean, self.fixed, np.array(self.seed), *vars(self.model).values())
        return "-".join(f"{zlib.crc32(np.ascontiguousarray(part).tobytes()):08x}" for part in parts)


class CompleteRows:
    """Weight, mean and scatter of rows without missing values, from which EM starts."""

    def __init__(self, n_features: int):
        size = n_features if n_features <= _MAX_EXACT else 0
        self.rows = self.weight = 0.0
        self.mean, self.scatter = np.zeros(n_features), np.zeros((size, size))

    def add(self, rows: Array, weight: Array) -> None:
        """Add rows with their weights, (n, 1)."""
        total = float(weight.sum())
        if total == 0:
            return
        mean = (rows * weight).sum(axis=0) / total
        apart, both = mean - self.mean, self.weight + total
        centred = rows - mean
        self.scatter += centred.T @ (centred * weight) + np.outer(apart, apart) * (self.weight * total / both)
        self.rows += len(rows)
        self.mean, self.weight = self.mean + apart * (total / both), both


class Complete:
    """A dataset without missing values, given by its sums."""

    share = observed = 1.0

    def __init__(self, covariance: Array, variance: Array, n_rows: float):
        self.covariance, self.variance, self.n_rows = covariance, variance, n_rows
        self.complete = CompleteRows(len(variance))
        self.complete.scatter, self.complete.weight, self.complete.rows = covariance * n_rows, n_rows, n_rows

    def update(self, model: Gaussian, step: int, gain: float) -> None:
        """Do nothing: without missing values the sums do not change."""


class Observed:
    """A dataset with missing values.

    ``blocks()`` yields the rows, with NaN, once per pass; rows of weight zero are ignored. The seed depends on
    ``place`` (the position among the datasets), on the shape and on the pattern of missing values, but not on
    floating-point results, so that draws do not depend on units or memory order.
    """

    def __init__(self, blocks: Blocks, n_features: int, place: int = 0, weights: Array | None = None):
        self.blocks, self.weights = blocks, weights
        rows, share, self.weight, squared, self._key = 0, 0.0, 0.0, 0.0, zlib.crc32(bytes([place % 256]))
        seen, self.mean, square = np.zeros(n_features), np.zeros(n_features), np.zeros(n_features)
        low, high = np.full(n_features, np.inf), np.full(n_features, -np.inf)
        self.complete = CompleteRows(n_features)
        for every in blocks():
            self._key = zlib.crc32(np.packbits(np.isnan(every), axis=1).tobytes(), self._key)
            weight, kept = self._weights(rows, len(every))
            block, weight = every[kept], weight[kept][:, None]
            rows += len(every)
            here = ~np.isnan(block)
            count = (here * weight).sum(axis=0)
            both = np.where(seen + count > 0, seen + count, 1.0)
            with np.errstate(all="ignore"):  # infinite values are detected from the variance
                values = np.where(here, block, 0.0).astype(np.float64)
                fresh = (values * weight).sum(axis=0) / np.where(count > 0, count, 1.0)
                apart = np.where(count > 0, fresh - self.mean, 0.0)
                spread = np.where(here, values - fresh, 0.0)
                square += (weight * spread**2).sum(axis=0) + apart**2 * (seen * count / both)
                self.mean = self.mean + apart * (count / both)
                if n_features <= _MAX_EXACT:
                    self.complete.add(values[here.all(axis=1)], weight[here.all(axis=1)])
            low = np.fmin(low, np.where(here, block, np.inf).min(axis=0, initial=np.inf))
            high = np.fmax(high, np.where(here, block, -np.inf).max(axis=0, initial=-np.inf))
            seen += count
            share += float((here.mean(axis=1) ** 2 * weight[:, 0]).sum())
            self.weight += float(weight.sum())
            squared += float((weight**2).sum())
        self._key = zlib.crc32(str((rows, n_features)).encode(), self._key)
        self.empty = np.flatnonzero(seen == 0)
        constant = (low == high) & np.isfinite(low)
        self.mean = np.where(constant, low, self.mean)
        self.variance: Array = np.where(constant, 0.0, square / np.where(seen > 0, seen, 1.0))
        total = self.weight or 1.0
        self.n_rows = total**2 / (squared or 1.0)  # effective (Kish)
        # A feature that is observed in most rows, always with the same value, is treated as constant.
        self.fixed = constant & (seen >= total / 2) & (seen > total / max(rows, 1))
        self.share = share / total  # fraction of pairs of features that are observed
        self.observed = float(seen.sum()) / (n_features * total)
        self.covariance: Array = np.empty(0)  # set by the first update

    def _weights(self, start: int, count: int) -> tuple[Array, Mask]:
        """Return the weights of rows, and a mask of positive weights."""
        weights = np.ones(count) if self.weights is None else self.weights[start : start + count]
        return weights, weights > 0

    def fill(self, model: Gaussian, step: int = -1) -> Fill:
        """Return the imputation rule for one step of the estimation, or the final one."""
        return Fill(self.mean, model, self.fixed, (self._key, step % 2**32))

    def _filled(self, model: Gaussian, step: int) -> Iterator[tuple[Array, Array]]:
        """Yield the imputed, centred rows of positive weight, and their weights, which sum to one."""
        fill, start = self.fill(model, step), 0
        for block in self.blocks():
            weights, kept = self._weights(start, len(block))
            yield fill.rows(block, start)[kept] - self.mean, weights[kept] / self.weight
            start += len(block)

    def centred(self, model: Gaussian, step: int) -> Array:
        """Return all imputed rows, centred and scaled by the root of their weight; update the mean."""
        blocks, weights = zip(*self._filled(model, step), strict=True)
        rows, weight = np.concatenate(blocks), np.concatenate(weights)
        moved = weight @ rows
        self.mean = self.mean + moved
        return np.asarray((rows - moved) * np.sqrt(weight)[:, None])

    def update(self, model: Gaussian, step: int, gain: float) -> None:
        """Impute again, and move mean and covariance toward those of the imputed rows."""
        moved, square = np.zeros(len(self.mean)), np.zeros((len(self.mean),) * 2)
        for rows, weight in self._filled(model, step):
            moved += weight @ rows
            square += rows.T @ (rows * weight[:, None])
        fresh = square - np.outer(moved, moved)
        self.mean = self.mean + gain * moved
        self.covariance = fresh if gain == 1 else self.covariance + gain * (fresh - self.covariance)


# Maps the covariances of the datasets to those used for imputation; None: one covariance for all datasets.
Compare = Callable[[Sequence[Array]], Sequence[Array] | None]


def estimate(
    sets: Sequence[Observed | Complete],
    compare: Compare | None = None,
    burn_in: int = _BURN_IN,
    average: int = _AVERAGE,
) -> list[Fill | None]:
    """Estimate one covariance from the observed values of all datasets, and return their imputation rules.

    The rule of a complete dataset is None. If the datasets differ significantly, ``compare`` returns the covariance
    used to impute each of them. With more features than rows in all datasets together, none may be Complete.
    """
    counts = np.array([float(one.n_rows) for one in sets])
    # Plain EM weights a dataset by its observed fraction s, which pulls the dataset with more missing values too close
    # to the other: tests are conservative. Equal weights are anti-conservative; n·s^⅔ keeps the level in simulations.
    shares = counts / np.cbrt([one.share for one in sets])
    shares /= shares.sum()
    effective = sum(one.n_rows * one.observed for one in sets)
    pooled = _mixed([one.variance for one in sets], shares)
    incomplete = [one for one in sets if isinstance(one, Observed)]
    for part in incomplete:
        part.fixed = part.fixed | (pooled == 0)
    model = _initial_model(sets, pooled)
    if len(pooled) > counts.sum() and len(incomplete) == len(sets):
        for step in range(burn_in):
            rows = [one.centred(model, step) * math.sqrt(share) for one, share in zip(incomplete, shares, strict=True)]
            model = _of_rows(np.concatenate(rows), effective)
        return [one.fill(model) for one in incomplete]
    gains = [1.0] * burn_in + [1 / (step + 2) for step in range(average)]
    for step, gain in enumerate(gains):
        for one in sets:
            one.update(model, step, gain)
        model = _of_covariance(_mixed([one.covariance for one in sets], shares), effective)
    models = [model] * len(sets)
    for step, gain in enumerate(gains):
        apart = None if compare is None else compare([one.covariance for one in sets])
        if apart is None:
            break
        models = [_of_covariance(own, effective) for own in apart]
        for one, own in zip(sets, models, strict=True):
            one.update(own, step, gain)
    return [one.fill(own) if isinstance(one, Observed) else None for one, own in zip(sets, models, strict=True)]


def _initial_model(sets: Sequence[Observed | Complete], pooled: Array) -> Gaussian:
    """Return the model of the complete rows, or of independent features.

    EM reaches a linear dependency between features only in the limit. Complete rows satisfy it, so the covariance has
    it from the start, and the means, initially those of the observed values of each feature, are adjusted to it.
    """
    count, n_rows = len(pooled), sum(one.complete.rows for one in sets)
    if count > _MAX_EXACT or n_rows <= count + 10:
        return _of_factors(_scale(pooled), np.zeros((count, 0)))
    covariance = sum(one.complete.scatter for one in sets) / sum(one.complete.weight for one in sets)
    scale = _scale(np.diagonal(covariance))
    values, vectors = linalg.eigh(covariance / np.outer(scale, scale))
    related = vectors[:, values <= _ROUNDING]
    for one in sets:
        if isinstance(one, Observed) and one.complete.weight > 0:
            off = related.T @ ((one.complete.mean - one.mean) / scale)
            one.mean = np.where(one.fixed, one.mean, one.mean + scale * (related @ off))
    return _of_covariance(np.asarray(covariance), n_rows)


def _mixed(parts: Sequence[Array], shares: Array) -> Array:
    return np.asarray(sum(share * part for share, part in zip(shares, parts, strict=True)))
