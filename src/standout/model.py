"""What a fit returns: components, patterns, ratios and what they are worth; and what to do with them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from standout.blas import Array, threads_for
from standout.dataset import Dataset
from standout.errors import InputError, listed
from standout.judge import judge
from standout.moments import Counts
from standout.shrinkage import Regime
from standout.solve import Note, Wanted, solve
from standout.solve.signal import Signal, gains
from standout.sources import ArraySource, Source, block_rows
from standout.sources.checks import checked_block
from standout.sources.csr import sparse_blocks, sparse_rows
from standout.sources.locate import explain_non_finite

# Scores are differences of terms that may be this many times larger than the sd of the scores.
_NEAR = 1e3


class TopFeature(NamedTuple):
    """A feature and how far it moves, in background sd, when the score moves by one target sd."""

    feature: str | int
    weight: float


@dataclass(frozen=True)
class Model:
    """A fitted model; the attributes of the estimators, without their trailing underscore."""

    components: Array  # (k, n_features): filters, what one multiplies data with
    patterns: Array  # (k, n_features): what each component looks like in the features
    ratios: Array  # (k,)
    plain_ratios: Array  # (k,): of the unshrunk problem, NaN where it has no meaning
    target_variance: Array  # (k,)
    background_variance: Array  # (k,)
    mean: Array  # (n_features,): what transform subtracts
    scale: Array  # (n_features,): background sd
    noise_edge: float
    p_value: float
    debiased_ratios: Array  # (k,)
    shrinkage: float
    regime: Regime
    mix: Array  # shares of the backgrounds
    rank: int
    solver: str
    target_counts: Counts
    background_counts: tuple[tuple[str, Counts], ...]
    background_units: float
    names: tuple[str, ...] | None
    notes: tuple[Note, ...]
    used: NDArray[np.intp] | None = None  # the features that take part, where some were left out
    signal: Signal | None = None  # what denoising needs, where it was asked for
    n_factors: int = 0  # shared factors that the background estimate keeps

    @property
    def n_components(self) -> int:
        """Number of components."""
        return len(self.ratios)

    def shares_of(self, backgrounds: Sequence[str]) -> Array | str:
        """Return the shares that backgrounds of these names had in the fit."""
        shares = dict(zip((name for name, _ in self.background_counts), self.mix, strict=True))
        if len(shares) <= 1:
            return "pooled"
        if set(backgrounds) != set(shares):
            raise InputError(
                f"the model was fitted to {listed(list(shares))}, and {listed(list(backgrounds))} was given. "
                "Give the same backgrounds under the same names."
            )
        return np.array([shares[name] for name in backgrounds])

    def with_unit_background(self) -> Model:
        """Return the model with components along which the background has variance one."""
        length = np.where(self.background_variance > 0, np.sqrt(self.background_variance), 1.0)
        return replace(
            self,
            components=self.components / length[:, None],
            patterns=self.patterns * length[:, None],
            target_variance=self.target_variance / length**2,
            background_variance=self.background_variance / length**2,
        )

    def widened(self, kept: NDArray[np.intp], names: Sequence[str]) -> Model:
        """Return the model among all features of the target; those not kept have no weight."""

        def spread(values: Array, fill: Array) -> Array:
            fill[..., kept] = values
            return fill

        wide = (self.n_components, len(names))
        signal = self.signal
        if signal is not None:
            tall = (len(names), len(signal.gains))
            filters, patterns = np.zeros(tall), np.zeros(tall)
            filters[kept], patterns[kept] = signal.filters, signal.patterns
            signal = replace(signal, filters=filters, patterns=patterns)
        return replace(
            self,
            components=spread(self.components, np.zeros(wide)),
            patterns=spread(self.patterns, np.zeros(wide)),
            mean=spread(self.mean, np.zeros(len(names))),
            scale=spread(self.scale, np.ones(len(names))),
            names=tuple(names),
            used=kept,
            signal=signal,
        )

    def narrowed(self) -> Model:
        """Return the model on the features that take part."""
        if self.used is None:
            return self
        used = self.used
        return replace(
            self, components=self.components[:, used], mean=self.mean[used], scale=self.scale[used], used=None
        )

    def noted(self, notes: Sequence[Note]) -> Model:
        """Return the model with more notes for the user."""
        return replace(self, notes=(*self.notes, *notes)) if notes else self

    def project(self, source: Source, role: str = "X") -> Array:
        """Return the scores of rows: rows minus the mean, times the components."""
        offset = self.components @ self.mean
        basis = self.components.T
        parts = []
        # Blocks keep what is not in memory, sparse or of another type from being copied as a whole.
        near = self._mean_is_near
        for block in _multiplied_blocks(source, role) if near else _dense_blocks(source, role):
            with np.errstate(all="ignore"), threads_for(float(block.shape[0]) * basis.size):
                parts.append(block @ basis - offset if near else (block - self.mean) @ basis)
            if not np.isfinite(parts[-1]).all():
                raise explain_non_finite(source, block, role)
            if self.n_components == 0 and not np.isfinite(block.sum()):
                raise explain_non_finite(source, block, role)
        if not parts:
            return np.empty((0, self.n_components))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    @property
    def _mean_is_near(self) -> bool:
        """Whether the mean may be taken off after the products, at a cost of three digits at most."""
        terms = np.abs(self.components) @ np.abs(self.mean)
        return bool((terms <= _NEAR * np.sqrt(self.target_variance)).all())

    @property
    def contrast(self) -> Array:
        """The bounded index (λ − 1)/(λ + 1) of each ratio: −1 background only, 1 target only."""
        with np.errstate(invalid="ignore"):
            return np.where(np.isinf(self.ratios), 1.0, (self.ratios - 1) / (self.ratios + 1))

    def denoise(self, source: Source, role: str = "X") -> Array:
        """Return the target-specific part of rows; without a background, all that is not the mean."""
        parts = [np.empty((0, len(self.mean)))]
        for block in _projected_blocks(source, role):
            with np.errstate(all="ignore"):
                centred = block - self.mean
                part = centred if not self.background_counts else _signal_of(self).of_rows(centred)
            if not np.isfinite(centred.sum()):
                raise explain_non_finite(source, block, role)
            parts.append(part)
        return np.concatenate(parts)

    def restore(self, scores: Array) -> Array:
        """Return rows from scores: the mean plus scores times the patterns."""
        return self.mean + scores @ self.patterns

    def top_features(self, count: int) -> list[list[TopFeature]]:
        """Return the features that move most with each component."""
        moves = self.patterns * np.sqrt(self.target_variance)[:, None] / self.scale
        order = np.argsort(-np.abs(moves), axis=1, kind="stable")[:, :count]
        labels: Sequence[str | int] = self.names if self.names is not None else range(len(self.mean))
        return [
            [TopFeature(labels[j], float(move[j])) for j in row if move[j] != 0]
            for row, move in zip(order, moves, strict=True)
        ]


def _projected_blocks(source: Source, role: str) -> Iterator[Array]:
    if isinstance(source, ArraySource) and type(source.array) is np.ndarray and source.array.dtype == np.float64:
        yield source.array
        return
    yield from _dense_blocks(source, role)


def _dense_blocks(source: Source, role: str) -> Iterator[Array]:
    for block in source.blocks(block_rows(source.n_features)):
        yield checked_block(block, source.n_features, role).astype(np.float64, copy=False)


def _multiplied_blocks(source: Source, role: str) -> Iterator[Any]:
    """Yield blocks that are only multiplied: sparse ones as they are."""
    matrix = sparse_rows(source)
    if matrix is None:
        yield from _projected_blocks(source, role)
        return
    yield from sparse_blocks(matrix)


def _signal_of(model: Model) -> Signal:
    """Return what denoising needs; a model that kept no more than its components makes do with these."""
    if model.signal is not None:
        return model.signal
    return Signal(model.components.T, model.patterns.T, gains(model.ratios))


def fit_model(target: Dataset, backgrounds: dict[str, Dataset], wanted: Wanted) -> Model:
    """Solve, judge the ratios, and put everything a user may ask for into one model."""
    parts = list(backgrounds.values())
    size = target.n_features
    rows = sum(data.counts.rows for data in (target, *parts))
    with threads_for(size**2 * (rows + 10.0 * size)):
        solution, mixture = solve(target, parts, wanted)
    verdict = judge(solution, target.counts, [data.counts for data in parts], mixture)
    return Model(
        components=np.ascontiguousarray(solution.filters.T),
        patterns=np.ascontiguousarray(solution.patterns.T),
        ratios=solution.ratios,
        plain_ratios=verdict.plain_ratios,
        target_variance=solution.target_variance,
        background_variance=solution.background_variance,
        mean=solution.mean,
        scale=solution.scale,
        noise_edge=verdict.noise_edge,
        p_value=verdict.p_value,
        debiased_ratios=verdict.debiased_ratios,
        shrinkage=solution.shrinkage,
        n_factors=solution.n_factors,
        regime=solution.regime,
        mix=mixture.shares if mixture is not None else np.empty(0),
        rank=solution.rank,
        solver=solution.solver,
        target_counts=target.counts,
        background_counts=tuple((name, data.counts) for name, data in backgrounds.items()),
        background_units=mixture.units if mixture is not None else math.nan,
        names=target.names,
        notes=(*solution.notes, *verdict.notes),
        signal=solution.signal,
    )


def mean_log_ratio(target: Array, background: Array, expected: Array | float = 0.0) -> float:
    """Return the mean over components of log(target variance / background variance), less what is expected of noise."""
    if len(target) == 0:
        raise InputError(
            "the model has no components, so there is nothing to score. Fit it with n_components=1 or more."
        )
    if ((target == 0) & (background == 0)).any():
        raise InputError("neither target nor background rows vary along some component. Give rows that vary.")
    with np.errstate(divide="ignore"):
        return float(np.mean(np.log(target) - np.log(background) - expected))
