"""Handling of missing values: random draws given the observed values, the mean, or dropping rows or features.

Values are drawn from a Gaussian model with one mean per dataset and one covariance for all datasets, estimated by
stochastic EM: impute the missing values by draws from their conditional distribution given the observed values of the
row, estimate the model from the imputed rows, and repeat. Random draws preserve the variances, which imputation by a
mean or a regression would shrink. With one covariance for all datasets the imputation does not depend on which rows are
target rows: values drawn from a covariance of the target only would reproduce its sampling noise and inflate the ratios
(docs/evidence/simulations.md, "missing"). Sources keep the observed values, to be imputed again by another model.
"""

from __future__ import annotations

import copy
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.special import ndtri

from standout._blas import Array
from standout.errors import InputError, StandoutWarning, listed, named_features, warn_user
from standout.io.memory import at_file, count_bad, explain_bad
from standout.io.source import ArraySource, ColumnView, Names, RowSource, RowView, Source, block_rows_of, select_columns
from standout.io.stream import Block, Stream, TableInMemory

Blocks = Callable[[], Iterator[NDArray[Any]]]
Mask = NDArray[np.bool_]
# Maps the covariances of the datasets to those used for imputation; None: one covariance for all datasets.
Compare = Callable[[Sequence[Array]], Sequence[Array] | None]

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


class Gaussian:
    """A covariance in the form needed for conditional draws; features are in units of ``scale``.

    A complete row z is drawn, and its missing entries are corrected by a regression on the differences of the observed
    values: z_m + Σ_mo Σ_oo⁻¹ (x_o − z_o) has the conditional distribution. If features are linearly dependent, z
    satisfies the same relations, and no noise is added.
    """

    def fill(self: Any, rows: Array, normal: Array) -> Array:
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


@dataclass(frozen=True)
class Exact(Gaussian):
    """A covariance R with its inverse Ω: Σ_mo Σ_oo⁻¹ = −Ω_mm⁻¹Ω_mo."""

    scale: Array  # (n_features,)
    precision: Array  # (n_features, n_features): Ω
    root: Array  # (n_features, n_features): symmetric root of R, which is unique
    related: Array  # (n_features, n_relations): N, with linear dependencies Nᵀx = 0

    @property
    def n_normal(self) -> int:
        """Number of standard normal draws per row: one per feature."""
        return len(self.scale)

    def _work(self, n_missing: int) -> int:
        """Return the number of elements processed per row."""
        return n_missing**2 + len(self.scale)

    def _drawn(self, observed: Array, missing: Mask, places: NDArray[np.intp], valid: Mask, normal: Array) -> Array:
        """Return draws for the features at ``places`` of each row; only those of missing features are used."""
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

    scale: Array  # (n_features,)
    loadings: Array  # (n_features, n_factors)
    own: Array  # (n_features,)

    @property
    def n_normal(self) -> int:
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


def _of_covariance(covariance: Array, n_rows: float) -> Exact | Factors:
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


def _of_rows(rows: Array, n_rows: float) -> Exact | Factors:
    """Return the model of the covariance ``rows.T @ rows``, with more features than rows.

    Only factors above the noise edge (Marchenko and Pastur) are used: a regression on all would fit noise.
    """
    scale = _scale(np.einsum("ij,ij->j", rows, rows))
    standard = rows / scale
    gram = standard @ standard.T
    values, vectors = linalg.eigh(gram, subset_by_index=[max(len(gram) - _N_FACTORS, 0), len(gram) - 1])
    clear = values > (1 + math.sqrt(len(scale) / n_rows)) ** 2
    return _of_factors(scale, standard.T @ vectors[:, clear])


def _of_factors(scale: Array, loadings: Array) -> Exact | Factors:
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
    model: Exact | Factors
    fixed: Mask  # (n_features,): features imputed by ``mean``, because they are constant
    seed: tuple[int, int]

    @classmethod
    def at(cls, mean: Array) -> Fill:
        """Return the rule that imputes these means, without draws."""
        model = _of_factors(np.ones_like(mean), np.zeros((len(mean), 0)))
        return cls(mean, model, np.ones(len(mean), dtype=bool), (0, 0))

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

    def update(self, *_: Any) -> None:
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
        for start, every, weights in self._weighted():
            self._key = zlib.crc32(np.packbits(np.isnan(every), axis=1).tobytes(), self._key)
            block, weight, rows = every[weights > 0], weights[weights > 0][:, None], start + len(every)
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

    def checked(self, role: str, names: Names) -> Observed:
        """Return the dataset itself; raise an error for infinite values and features without any value."""
        if not np.isfinite(self.variance).all():
            bad = count_bad(self.blocks(), len(self.mean))
            raise explain_bad(replace(bad, nan=np.zeros_like(bad.nan)), names, role)
        _check_observed(self.empty, names, role)
        return self

    def _weighted(self) -> Iterator[tuple[int, NDArray[Any], Array]]:
        """Yield blocks of rows with the number of rows before them and their weights."""
        start = 0
        for block in self.blocks():
            stop = start + len(block)
            yield start, block, np.ones(len(block)) if self.weights is None else self.weights[start:stop]
            start = stop

    def fill(self, model: Exact | Factors, step: int = -1) -> Fill:
        """Return the imputation rule for one step of the estimation, or the final one."""
        return Fill(self.mean, model, self.fixed, (self._key, step % 2**32))

    def _filled(self, model: Exact | Factors, step: int) -> Iterator[tuple[Array, Array]]:
        """Yield the imputed, centred rows of positive weight, and their weights, which sum to one."""
        fill = self.fill(model, step)
        for start, block, weights in self._weighted():
            yield fill.rows(block, start)[weights > 0] - self.mean, weights[weights > 0] / self.weight

    def centred(self, model: Exact | Factors, step: int) -> Array:
        """Return all imputed rows, centred and scaled by the root of their weight; update the mean."""
        blocks, weights = zip(*self._filled(model, step), strict=True)
        rows, weight = np.concatenate(blocks), np.concatenate(weights)
        moved = weight @ rows
        self.mean = self.mean + moved
        return np.asarray((rows - moved) * np.sqrt(weight)[:, None])

    def update(self, model: Exact | Factors, step: int, gain: float) -> None:
        """Impute again, and move mean and covariance toward those of the imputed rows."""
        moved, square = np.zeros(len(self.mean)), np.zeros((len(self.mean),) * 2)
        for rows, weight in self._filled(model, step):
            moved += weight @ rows
            square += rows.T @ (rows * weight[:, None])
        fresh = square - np.outer(moved, moved)
        self.mean = self.mean + gain * moved
        self.covariance = fresh if gain == 1 else self.covariance + gain * (fresh - self.covariance)


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


def _initial_model(sets: Sequence[Observed | Complete], pooled: Array) -> Exact | Factors:
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


# Sources with missing values


class FilledRows(ArraySource):
    """Imputed rows in memory; with the original rows, some of them can be imputed by another model."""

    def __init__(self, filled: Array, like: Source, raw: NDArray[Any] | None = None):
        super().__init__(filled, like.names)
        self.labels, self.groups, self.row_ids = like.labels, like.groups, like.row_ids
        self.raw, self.is_incomplete, self.imputes_means = raw, raw is not None, like.imputes_means


class IncompleteTable(TableInMemory):
    """A table with missing values, which are imputed when the rows are first read."""

    is_incomplete = True
    _filled: Array | None = None

    @property
    def array(self) -> NDArray[Any]:
        """The rows, imputed from the observed values of this table."""
        if self._filled is None:
            self._filled = _own_filling(self).rows(self.raw)
        return self._filled

    @array.setter
    def array(self, numbers: NDArray[Any]) -> None:
        self.raw = numbers  # with NaN


class IncompleteStream(Stream):
    """A stream with missing values, which are imputed during reading, by default from its own rows only."""

    is_incomplete = True
    filling: Fill | None = None
    filled_columns: Any = slice(None)

    def read_blocks(self, rows: int, columns: tuple[str, ...], mark: Any = None, seen: int = 0) -> Iterator[Block]:
        self.filling = self.filling or _own_filling(self)
        for block in super().read_blocks(rows, columns, mark, seen):
            numbers = np.array(block.numbers, dtype=np.float64)
            numbers[:, self.filled_columns] = self.filling.rows(numbers[:, self.filled_columns], seen)
            seen += len(numbers)
            yield replace(block, numbers=numbers)


def raw_blocks(source: Any) -> Iterator[NDArray[Any]]:
    """Yield the rows of an incomplete source with NaN for missing values."""
    if isinstance(source, RowView):
        yield raw_rows(source.source)[source.index]
    elif isinstance(source, ColumnView):
        for numbers in raw_blocks(source.source):
            yield numbers[:, source.index]
    elif isinstance(source, IncompleteStream):
        for block in source.open_blocks(block_rows_of(source), (), None):
            yield block.numbers
    else:
        yield source.raw


def raw_rows(source: Any) -> NDArray[Any]:
    """Return all rows of an incomplete source with NaN for missing values."""
    blocks = list(raw_blocks(source))
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


def filled_by(source: Any, filling: Fill) -> Source:
    """Return an incomplete source with missing values imputed by a given rule."""
    if isinstance(source, RowSource):
        raw = raw_rows(source)
        return FilledRows(filling.rows(raw), source, raw)
    is_view = isinstance(source, ColumnView)
    stream = copy.copy(source.source if is_view else source)
    stream.filling, stream.filled_columns = filling, source.index if is_view else slice(None)
    return select_columns(stream, source.index) if is_view else cast(Source, stream)


def _own_filling(source: Any) -> Fill:
    """Return the imputation rule from the rows of this source only."""
    own = Observed(lambda: raw_blocks(source), source.n_features).checked(str(source.path), source.names)
    return Fill.at(own.mean) if source.imputes_means else cast(Fill, estimate([own])[0])


def _check_observed(empty: NDArray[np.intp], names: Sequence[str] | None, role: str) -> None:
    """Raise an error for features without any observed value."""
    if len(empty):
        found = f"{len(empty)} feature{'s' * (len(empty) > 1)} without any value"
        remedy = "Leave out such features in all datasets, with `standout.read(X, drop=...)`."
        raise InputError(f"{role}: {found}: {listed(named_features(names, empty))}. {remedy}")


def handle_missing(source: Any, how: str, role: str) -> Source:
    """Return the source of a file without missing values, imputed from its own rows only.

    One pass counts the missing values. Rows and values are dropped or imputed at once in memory, or in every later
    pass over a file.
    """
    is_table = isinstance(source, TableInMemory)
    count, n_rows, complete = np.zeros(source.n_features, dtype=np.int64), 0, 0  # missing values, rows, complete rows
    for numbers in source.blocks(max(source.n_rows, 1) if is_table else block_rows_of(source)):
        missing = np.isnan(numbers)
        count += missing.sum(axis=0)
        n_rows += len(numbers)
        complete += int((~missing.any(axis=1)).sum())
    if not count.any():
        return cast(Source, source)  # unchanged, to keep random access to the file
    by_name = {source.names[i] if source.names else str(i): int(count[i]) for i in np.flatnonzero(count)}
    layout = replace(source.layout, n_rows=n_rows)
    account = replace(source.account, rows=n_rows, missing=by_name)
    index = np.flatnonzero(count == 0) if how == "drop_features" else None
    if (how == "drop_rows" and not complete) or (how == "drop_features" and count.all()):
        what, other = ("rows", "drop_features") if how == "drop_rows" else ("features", "drop_rows")
        problem = f"all {what} have missing values, so `missing={how!r}` leaves none"
        remedy = f"Use `missing='auto'` or `missing={other!r}`, or leave out columns that are mostly empty."
        raise InputError(f"{role}: {problem}. {remedy}")
    if how == "drop_rows":
        layout = replace(layout, n_rows=complete)
        account = replace(account, rows=complete, rows_left_out=n_rows - complete)
    elif index is not None:
        names = None if source.names is None else tuple(source.names[i] for i in index)
        layout = replace(layout, names=names, n_features=len(index))
        account = replace(account, features=len(index), features_left_out=tuple(by_name))
    elif how == "mean":
        _check_observed(np.flatnonzero(count == n_rows), source.names, at_file(source, role))
        account = replace(account, values_filled=int(count.sum()))
        warn_user(
            f"{role}: `missing='mean'` filled {account.values_filled} values with the mean of their feature, which "
            "shrinks variances and correlations. Ratios are too large and p-values too small: with 40 % of one "
            "background feature missing, p is below 0.05 in 28 % of simulated fits to noise. Use `missing='auto'`.",
            StandoutWarning,
        )
    else:
        account = replace(account, values_filled=int(count.sum()), filled_by="draws")
    imputes = how in ("auto", "mean")
    result: Any
    if is_table:
        block = _changed(Block(source.array, {name: source.about(name) for name in source.aside}), how, index)
        result = (IncompleteTable if imputes else TableInMemory)(layout, block.numbers, block.about)
    else:
        result = (IncompleteStream if imputes else Stream)(layout, partial(_changed_blocks, source, how, index))
    result.handled, result.imputes_means = account, how == "mean"
    return cast(Source, result)


def _changed_blocks(
    source: Any, how: str, index: NDArray[np.intp] | None, rows: int, columns: tuple[str, ...], mark: Any = None
) -> Iterator[Block]:
    # Progress is reported only by the new stream, not by the underlying one.
    streamed = isinstance(source, Stream)
    blocks = source.open_blocks(rows, columns, mark) if streamed else source.table_blocks(rows, columns)
    return (changed for block in blocks if len((changed := _changed(block, how, index)).numbers))


def _changed(block: Block, how: str, index: NDArray[np.intp] | None) -> Block:
    """Return a block without its incomplete rows or without features."""
    if how == "drop_rows":
        kept = ~np.isnan(block.numbers).any(axis=1)
        metadata = {name: values[kept] for name, values in block.about.items()}
        return replace(block, numbers=block.numbers[kept], about=metadata)
    return block if index is None else replace(block, numbers=block.numbers[:, index])
