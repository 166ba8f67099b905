"""Missing values drawn from a Gaussian model of what is observed, the same model for every dataset.

The model has one mean for each dataset and one covariance for all of them, estimated by stochastic
EM: fill the missing values with draws from their distribution given the observed values of the row,
estimate the model from the filled rows, and repeat. Drawing keeps the variances, which filling in a
mean or a regression would shrink. One covariance for all datasets keeps the fill blind to which rows
are target: values drawn from a covariance of the target alone would repeat its sampling noise, and
the ratios would be taken for findings (docs/simulations.md, "missing").
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

from standout.blas import Array

Blocks = Callable[[], Iterator[NDArray[Any]]]

# Iterations of EM: the first ones forget the start, the estimates of the others are averaged.
_FORGET, _AVERAGE = 12, 8
# With more features than this, the covariance is that of so many factors and an own variance of each feature.
_MANY, _FACTORS = 300, 100
# Smallest variance, of one, of a feature given all others.
_FLOOR = 1e-8
# Below this many rows for each feature the covariance is shrunk toward its diagonal.
_ROWS_PER_FEATURE = 10
# Numbers in the stacked matrices that are worked on at a time.
_AT_A_TIME = 4_000_000


@dataclass(frozen=True)
class Gaussian:
    """A covariance, as what conditional draws need; features are in units of ``scale``."""

    scale: Array  # (n_features,)

    @property
    def n_normal(self) -> int:
        """How many standard normal numbers a row needs."""
        raise NotImplementedError

    def fill(self, rows: Array, normal: Array) -> Array:
        """Return centred rows with draws, given what is observed in the row, for NaN."""
        gone = np.isnan(rows)
        counts = gone.sum(axis=1)
        order = np.argsort(counts, kind="stable")[np.count_nonzero(counts == 0) :]
        filled = np.array(rows)
        start = 0
        while start < len(order):  # rows that lack about as many features at a time
            here = order[start : start + max(1, _AT_A_TIME // self._work(counts[order[start]]))]
            here = here[: max(1, _AT_A_TIME // self._work(counts[here[-1]]))]
            most = counts[here[-1]]
            # The places of missing features; rows with fewer are padded with places that are observed.
            places = np.argsort(~gone[here], axis=1, kind="stable")[:, :most]
            lacks = np.take_along_axis(gone[here], places, axis=1)
            observed = np.where(gone[here], 0.0, rows[here] / self.scale)
            drawn = self._drawn(observed, places, lacks, normal[here])
            values = np.take_along_axis(observed, places, axis=1)
            np.put_along_axis(observed, places, np.where(lacks, drawn, values), axis=1)
            filled[here] = np.where(gone[here], observed * self.scale, rows[here])
            start += len(here)
        return filled

    def _work(self, n_missing: int) -> int:
        """Return how many numbers are worked on for a row."""
        raise NotImplementedError

    def _drawn(self, observed: Array, places: NDArray[np.intp], lacks: NDArray[np.bool_], normal: Array) -> Array:
        """Return draws for the features at ``places`` of each row; only those that it lacks count."""
        raise NotImplementedError


@dataclass(frozen=True)
class Exact(Gaussian):
    """The covariance by its inverse Ω: missing given observed values have the precision Ω_mm and mean −Ω_mm⁻¹Ω_mo x."""

    precision: Array  # (n_features, n_features)

    @property
    def n_normal(self) -> int:
        """One for each feature."""
        return len(self.scale)

    def _work(self, n_missing: int) -> int:
        return n_missing**2 + len(self.scale)

    def _drawn(self, observed: Array, places: NDArray[np.intp], lacks: NDArray[np.bool_], normal: Array) -> Array:
        both = lacks[:, :, None] & lacks[:, None, :]
        inside = np.where(both, self.precision[places[:, :, None], places[:, None, :]], np.eye(places.shape[1]))
        given = np.where(lacks, -np.take_along_axis(observed @ self.precision, places, axis=1), 0.0)
        return _solution(inside, given, normal[:, : places.shape[1]])


@dataclass(frozen=True)
class Factors(Gaussian):
    """Many features: a few factors, and the rest of each feature's variance its own."""

    loadings: Array  # (n_features, n_factors)
    own: Array  # (n_features,)

    @property
    def n_normal(self) -> int:
        """One for each factor and each feature."""
        return sum(self.loadings.shape)

    def _work(self, n_missing: int) -> int:
        n_features, n_factors = self.loadings.shape
        return int(n_factors * (n_missing + n_factors) + n_features)

    def _drawn(self, observed: Array, places: NDArray[np.intp], lacks: NDArray[np.bool_], normal: Array) -> Array:
        """Draw the factors given the observed features, then the features given the factors."""
        n_factors = self.loadings.shape[1]
        here = np.where(lacks[:, :, None], self.loadings[places], 0.0)
        whole = (self.loadings / self.own[:, None]).T @ self.loadings + np.eye(n_factors)
        inside = whole - (here / self.own[places][:, :, None]).transpose(0, 2, 1) @ here
        factors = _solution(inside, (observed / self.own) @ self.loadings, normal[:, :n_factors])
        alone = np.sqrt(self.own)[places] * normal[:, n_factors : n_factors + places.shape[1]]
        return np.asarray((here @ factors[:, :, None])[:, :, 0] + alone)


def _solution(precision: Array, given: Array, normal: Array) -> Array:
    """Draw from the Gaussians with these precisions P and means P⁻¹·given: P⁻¹(given + L·normal), where P = LLᵀ."""
    lower = np.linalg.cholesky(precision)
    right = given[:, :, None] + lower @ normal[:, :, None]
    return np.asarray(np.linalg.solve(precision, right)[:, :, 0])


def _of_covariance(covariance: Array, n_rows: float) -> Gaussian:
    """Return the model of a covariance that was estimated from so many rows."""
    scale = _scale(np.diagonal(covariance))
    count = len(scale)
    correlation = covariance / np.outer(scale, scale)
    rho = _shrinkage(float(np.einsum("ij,ij->", correlation, correlation)), count, n_rows)
    correlation *= 1 - rho
    if count > _MANY:
        values, vectors = linalg.eigh(correlation, subset_by_index=[count - _FACTORS, count - 1])
        return _of_factors(scale, vectors * np.sqrt(np.maximum(values, 0.0)))
    np.einsum("ii->i", correlation)[...] = 1 + _FLOOR
    return Exact(scale, linalg.inv(correlation))


def _of_rows(rows: Array, n_rows: float) -> Gaussian:
    """Return the model of the covariance ``rows.T @ rows``, with more features than rows.

    Only factors above the edge of noise (Marchenko and Pastur) count: a regression on all would fit noise.
    """
    scale = _scale(np.einsum("ij,ij->j", rows, rows))
    standard = rows / scale
    gram = standard @ standard.T
    values, vectors = linalg.eigh(gram, subset_by_index=[max(len(gram) - _FACTORS, 0), len(gram) - 1])
    clear = values > (1 + math.sqrt(len(scale) / n_rows)) ** 2
    return _of_factors(scale, standard.T @ vectors[:, clear])


def _of_factors(scale: Array, loadings: Array) -> Gaussian:
    own = np.maximum(1 - np.einsum("ij,ij->i", loadings, loadings), _FLOOR)
    return Factors(scale, loadings, own)


def _scale(variance: Array) -> Array:
    return np.asarray(np.sqrt(np.where(variance > 0, variance, 1.0)))


def _shrinkage(trace_squared: float, n_features: int, n_rows: float) -> float:
    """Return the OAS intensity for a correlation matrix with this tr R², zero with rows enough."""
    spread = trace_squared - n_features
    if n_rows >= _ROWS_PER_FEATURE * n_features or n_features < 2:
        return 0.0
    top = (1 - 2 / n_features) * trace_squared + n_features**2
    return min(1.0, top / ((n_rows + 1 - 2 / n_features) * spread)) if spread > 1e-12 * n_features**2 else 1.0


@dataclass(frozen=True)
class Fill:
    """How the missing values of one dataset are drawn. The same row gets the same draws in every pass."""

    mean: Array
    model: Gaussian
    seed: tuple[int, int]

    def rows(self, numbers: NDArray[Any], start: int = 0) -> Array:
        """Return rows with their missing values filled in; ``start`` is the number of rows before them."""
        rows = np.array(numbers, dtype=np.float64)
        if not np.isnan(rows).any():
            return rows
        filled = self.model.fill(rows - self.mean, self._normal(start, len(rows))) + self.mean
        return np.where(np.isnan(rows), filled, rows)  # what was observed keeps its bits

    def _normal(self, start: int, count: int) -> Array:
        """Return standard normal numbers for these rows, whatever blocks they are read in."""
        wide = self.model.n_normal
        steps = -(-wide // 4)  # the generator makes four numbers in a step
        bits = np.random.Philox(key=np.array(self.seed, dtype=np.uint64)).advance(start * steps)
        uniform = np.random.Generator(bits).random((count, 4 * steps))[:, :wide]
        return np.asarray(ndtri(uniform + 2.0**-54))

    def digest(self) -> str:
        """Return a text that differs where the draws do."""
        parts = (self.mean, *vars(self.model).values())
        return "-".join(f"{zlib.crc32(np.ascontiguousarray(part).tobytes()):08x}" for part in parts)


class Complete:
    """A dataset without missing values, of which only the sums are needed."""

    share = observed = 1.0

    def __init__(self, covariance: Array, n_rows: float):
        self.covariance, self.n_rows = covariance, n_rows
        self.variance: Array = np.diagonal(covariance)

    def update(self, model: Gaussian, step: int, gain: float) -> None:
        """Nothing to fill in: the sums stay as they are."""


class Observed:
    """A dataset with missing values: ``blocks()`` returns its rows, with NaN, once more."""

    def __init__(self, blocks: Blocks, n_features: int):
        self.blocks = blocks
        self.n_rows, share = 0, 0.0
        seen, self.mean, square = np.zeros(n_features), np.zeros(n_features), np.zeros(n_features)
        for block in blocks():
            here = ~np.isnan(block)
            count = here.sum(axis=0)
            both = np.maximum(seen + count, 1)
            with np.errstate(all="ignore"):  # infinite values show in the variance
                fresh = np.where(here, block, 0.0).sum(axis=0, dtype=np.float64) / np.maximum(count, 1)
                apart = np.where(count > 0, fresh - self.mean, 0.0)
                square += (np.where(here, block - fresh, 0.0) ** 2).sum(axis=0) + apart**2 * (seen * count / both)
                self.mean = self.mean + apart * (count / both)
            seen += count
            share += float((here.mean(axis=1) ** 2).sum())
            self.n_rows += len(block)
        self.empty = np.flatnonzero(seen == 0)
        self.variance: Array = square / np.maximum(seen, 1)
        n_rows = max(self.n_rows, 1)
        self.share = share / n_rows  # of the pairs of features, those that are observed
        self.observed = float(seen.sum()) / (n_features * n_rows)
        self.covariance: Array = np.empty(0)  # known after the first update
        self._key = zlib.crc32(self.mean.tobytes())

    def fill(self, model: Gaussian, step: int = -1) -> Fill:
        """Return how values are drawn in one step of the estimate, or for good."""
        return Fill(self.mean, model, (self._key, step % 2**32))

    def _filled(self, model: Gaussian, step: int) -> Iterator[Array]:
        """Yield all rows, filled, minus the mean."""
        fill, start = self.fill(model, step), 0
        for block in self.blocks():
            yield fill.rows(block, start) - self.mean
            start += len(block)

    def centred(self, model: Gaussian, step: int) -> Array:
        """Return all rows, filled, about their mean; this mean becomes that of the dataset."""
        rows = np.concatenate(list(self._filled(model, step)))
        moved = rows.mean(axis=0)
        self.mean = self.mean + moved
        return np.asarray(rows - moved)

    def update(self, model: Gaussian, step: int, gain: float) -> None:
        """Fill once more, and move mean and covariance toward those of the filled rows."""
        total, square = np.zeros(len(self.mean)), np.zeros((len(self.mean),) * 2)
        for rows in self._filled(model, step):
            total += rows.sum(axis=0)
            square += rows.T @ rows
        moved = total / self.n_rows
        fresh = square / self.n_rows - np.outer(moved, moved)
        self.mean = self.mean + gain * moved
        self.covariance = fresh if gain == 1 else self.covariance + gain * (fresh - self.covariance)


# Takes the covariance of each dataset, and returns the one it is filled by; None: one covariance is good for all.
Compare = Callable[[Sequence[Array]], Sequence[Array] | None]


def estimate(
    sets: Sequence[Observed | Complete],
    compare: Compare | None = None,
    forget: int = _FORGET,
    average: int = _AVERAGE,
) -> list[Fill | None]:
    """Estimate one covariance from the observed values of all datasets, and return how each is filled.

    Parameters
    ----------
    sets : sequence of Observed or Complete
        The datasets; with more features than rows in all of them together, none may be Complete.
    compare : function, optional
        Where the datasets clearly differ, it returns the covariance each of them is filled by.
    forget, average : int
        Number of iterations.

    Returns
    -------
    list of Fill
        None for those without missing values.
    """
    n_features = len(sets[0].variance)
    counts = np.array([float(one.n_rows) for one in sets])
    # EM by itself counts a dataset by the share s of what it has observed, which draws the dataset that lacks more too
    # close to the other: tests reject too rarely. Equal shares reject too often; n·s^⅔ keeps the level in simulations.
    shares = counts / np.cbrt([one.share for one in sets])
    shares /= shares.sum()
    effective = sum(one.n_rows * one.observed for one in sets)
    pooled = _mixed([one.variance for one in sets], shares)
    model: Gaussian = _of_factors(_scale(pooled), np.zeros((n_features, 0)))
    lacking = [one for one in sets if isinstance(one, Observed)]
    if n_features > counts.sum() and len(lacking) == len(sets):
        for step in range(forget):
            rows = [
                one.centred(model, step) * math.sqrt(share / one.n_rows)
                for one, share in zip(lacking, shares, strict=True)
            ]
            model = _of_rows(np.concatenate(rows), effective)
        return [one.fill(model) for one in lacking]
    gains = [1.0] * forget + [1 / (step + 2) for step in range(average)]
    for step in range(forget + average):
        for one in sets:
            one.update(model, step, gains[step])
        model = _of_covariance(_mixed([one.covariance for one in sets], shares), effective)
    models = [model] * len(sets)
    for step in range(forget + average):
        apart = None if compare is None else compare([one.covariance for one in sets])
        if apart is None:
            break
        models = [_of_covariance(own, effective) for own in apart]
        for one, own in zip(sets, models, strict=True):
            one.update(own, step, gains[step])
    return [one.fill(own) if isinstance(one, Observed) else None for one, own in zip(sets, models, strict=True)]


def _mixed(parts: Sequence[Array], shares: Array) -> Array:
    return np.asarray(sum(share * part for share, part in zip(shares, parts, strict=True)))
