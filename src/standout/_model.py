"""Fitted models, and the assessment of their ratios by formula.

A model holds components, patterns and ratios, and computes scores, denoised rows and top features. Ratios are assessed
by noise edge, p-value and debiased ratios, with a warning if they are not distinguishable from noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from standout._blas import Array, threads_for
from standout._dataset import Dataset, Mixture
from standout._effective import count_effective_rows
from standout._moments import Counts
from standout._shrinkage import Regime
from standout._spectrum import debiased, largest_root_p_value, noise_edge
from standout.errors import InputError, OverfitWarning, listed
from standout.io.memory import checked_block, explain_non_finite, sparse_blocks, sparse_rows
from standout.io.source import AffineMap, ArraySource, Source, block_rows
from standout.solvers.choose import solve
from standout.solvers.problem import SolveOptions
from standout.solvers.solution import Note, Signal, Solution

# Above this ratio of dimensions to background units, variance ratios are mostly noise.
_CROWDED = 0.5
_REMEDY = " Evaluate the ratios on held-out rows, or give more background rows or fewer features."
# A product with few components is limited by memory: reading a value takes as long as this many multiply-adds.
_READING_COST = 16
# Largest allowed size of the terms whose difference is a score, relative to the sd of the scores.
_NEAR = 1e3


def assess_ratios(
    solution: Solution, target: Counts, backgrounds: Sequence[Counts], mixture: Mixture | None
) -> tuple[dict[str, Any], tuple[Note, ...]]:
    """Return the fields of a model that assess its ratios, NaN where not available, and notes on noise."""
    count, rank = len(solution.components.ratios), solution.rank
    plain = np.full(count, np.nan)
    if solution.axes == "ratio":  # signal axes are mixtures, without ratios of the exact problem
        plain[: len(solution.unshrunk_ratios)] = solution.unshrunk_ratios[:count]
    if mixture is None:
        return {"unshrunk_ratios": plain, "noise_edge": math.nan, "debiased_ratios": plain}, ()
    counted = (rank, target.units, mixture.units)
    first = float(solution.unshrunk_ratios[0]) if len(solution.unshrunk_ratios) else math.nan
    edge = noise_edge(*counted)
    grouped = any(counts.units < counts.rows for counts in backgrounds)
    rows = sum(counts.rows for counts in backgrounds)
    basis = f"{mixture.units:.0f} independent background units" if grouped else f"{rows} background rows"
    basis += f" for {rank} dimensions"
    text = ""
    if solution.axes == "signal" and math.isnan(edge):
        pass  # the note of the signal already covers this
    elif target.units < 2 - 1e-9 and not math.isnan(edge):
        text = f"the target has {target.rows} rows worth {target.units:.2g} independent units, fewer than two, so no "
        text += "p-value can be given. Give more target rows, or less uneven weights."
    elif count == 0:
        text = f"no component is above noise: the largest ratio is {first:.3g} (noise edge {edge:.3g}, "
        text += f"p = {largest_root_p_value(first, *counted):.2g}). Scores have no columns; use `axes='ratio'` with a "
        text += "number of components to see components anyway."
    elif math.isnan(edge):
        text = f"the ratios are based on {basis}: so few give large ratios on pure noise, and there is no noise edge."
        text += _REMEDY
    elif rank / (mixture.units - 1) > _CROWDED:
        text = f"the ratios are based on {basis}: pure noise would reach a ratio of {edge:.3g}.{_REMEDY}"
    elif first <= edge:
        text = f"the largest ratio, {first:.3g}, is not above the noise edge, {edge:.3g}, with {basis} "
        text += f"(p = {largest_root_p_value(first, *counted):.2g}).{_REMEDY}"
    found = {"unshrunk_ratios": plain, "noise_edge": edge, "top_ratio": first}
    found["debiased_ratios"] = debiased(plain, *counted)
    return found, (Note(OverfitWarning, text),) if text else ()


class TopFeature(NamedTuple):
    """A feature and its change, in background sd, per target sd of the score."""

    feature: str | int
    weight: float


@dataclass(frozen=True)
class Model:
    """A fitted model; its fields are the fitted attributes of the estimators without the trailing underscore."""

    components: Array  # (k, n_features): filters, by which data are multiplied
    patterns: Array  # (k, n_features): the pattern of each component in feature space
    ratios: Array  # (k,)
    unshrunk_ratios: Array  # (k,): of the unshrunk problem, NaN where undefined
    target_variance: Array  # (k,)
    background_variance: Array  # (k,)
    mean: Array  # (n_features,): subtracted by transform
    scale: Array  # (n_features,): background sd
    noise_edge: float
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
    used: NDArray[np.intp] | None = None  # indices of the features used, if some were dropped
    signal: Signal | None = None  # required for denoising, if requested
    n_factors: int = 0  # shared factors in the background estimate
    top_ratio: float = math.nan  # largest ratio of the unshrunk problem
    known_p_value: float | None = None  # of a model saved by an earlier version
    total_variance: float = math.nan  # of the target about its centre, all features together
    specific_shares: Array | None = None  # (k,): of the specific variance, in a saved model

    contrast_method: ClassVar[str] = "dPCA"  # the method if there is a background

    @cached_property
    def p_value(self) -> float:
        """Probability that noise alone gives a top ratio at least as large; computed when it is first read."""
        if self.known_p_value is not None:
            return self.known_p_value
        return largest_root_p_value(self.top_ratio, self.rank, self.target_counts.units, self.background_units)

    @property
    def method(self) -> str:
        """Name of the method: without a background every method is PCA."""
        if self.background_counts:
            return self.contrast_method
        return "kernel PCA" if self.contrast_method.startswith("kernel") else "PCA"

    @property
    def explained_variance(self) -> Array:
        """Variance of the target rows that each component restores; the sum over all is the total variance."""
        # Scores are uncorrelated in the target, so the covariance of the restored rows is Σ v p pᵀ.
        return np.asarray(self.target_variance * np.einsum("kj,kj->k", self.patterns, self.patterns))

    @property
    def component_names(self) -> list[str]:
        """Names of the components in texts, tables, plots and files: dpca0, dpca1, ..."""
        return [f"{self.method.replace(' ', '').lower()}{k}" for k in range(self.n_components)]

    @property
    def n_components(self) -> int:
        """Number of components."""
        return len(self.ratios)

    def shares_of(self, backgrounds: Sequence[str]) -> Array | str:
        """Return the shares of the named backgrounds in the fit."""
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
        """Return the model with components scaled to unit background variance."""
        length = np.where(self.background_variance > 0, np.sqrt(self.background_variance), 1.0)
        return replace(
            self,
            components=self.components / length[:, None],
            patterns=self.patterns * length[:, None],
            target_variance=self.target_variance / length**2,
            background_variance=self.background_variance / length**2,
        )

    @classmethod
    def of(cls, model: Model, **changes: Any) -> Self:
        """Return a model of this class with the values of another, except for the changes."""
        return cls(**{field.name: getattr(model, field.name) for field in fields(Model)} | changes)

    def widened(self, kept: NDArray[np.intp], names: Sequence[str]) -> Self:
        """Return the model on all features of the target; dropped features have zero weight."""

        def spread(values: Array, fill: float = 0.0) -> Array:
            wide = np.full((*values.shape[:-1], len(names)), fill)
            wide[..., kept] = values
            return wide

        signal = self.signal
        if signal is not None:
            filters, patterns = (np.ascontiguousarray(spread(each.T).T) for each in (signal.filters, signal.patterns))
            signal = replace(signal, filters=filters, patterns=patterns)
        return replace(
            self,
            components=spread(self.components),
            patterns=spread(self.patterns),
            mean=spread(self.mean),
            scale=spread(self.scale, 1.0),
            names=tuple(names),
            used=kept,
            signal=signal,
        )

    def narrowed(self) -> Model:
        """Return the model restricted to the features that are used."""
        if self.used is None:
            return self
        used = self.used
        return replace(
            self, components=self.components[:, used], mean=self.mean[used], scale=self.scale[used], used=None
        )

    def noted(self, notes: Sequence[Note]) -> Model:
        """Return the model with additional notes."""
        return replace(self, notes=(*self.notes, *notes)) if notes else self

    def project(self, source: Source, role: str = "X") -> Array:
        """Return the scores of rows: rows minus the mean, times the components."""
        offset = self.components @ self.mean
        basis = self.components.T
        parts = []
        # If the mean is small, it is subtracted after the product, with a loss of at most three digits: neither an
        # array nor a sparse matrix has to be copied.
        terms = np.abs(self.components) @ np.abs(self.mean)
        near = bool((terms <= _NEAR * np.sqrt(self.target_variance)).all())
        matrix = sparse_rows(source) if near else None
        work = basis.shape[0] * max(basis.shape[1], _READING_COST)
        blocks = _dense_blocks(source, role, whole=near) if matrix is None else sparse_blocks(matrix)
        for block in blocks:
            with np.errstate(all="ignore"), threads_for(float(block.shape[0]) * work):
                parts.append(block @ basis - offset if near else (block - self.mean) @ basis)
            if not np.isfinite(parts[-1]).all() or (self.n_components == 0 and not np.isfinite(block.sum())):
                raise explain_non_finite(source, block, role)
        if not parts:
            return np.empty((0, self.n_components))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    @property
    def projection(self) -> Callable[[Source], Any]:
        """The function of rows that returns their scores."""
        return AffineMap(self.project, self.mean, (self.components.T,))

    @property
    def contrast(self) -> Array:
        """The bounded index (λ − 1)/(λ + 1) of each ratio: −1 background only, 1 target only."""
        with np.errstate(invalid="ignore"):
            return np.where(np.isinf(self.ratios), 1.0, (self.ratios - 1) / (self.ratios + 1))

    def denoise(self, source: Source, role: str = "X") -> Array:
        """Return the target-specific part of rows; without a background, the rows minus the mean."""
        parts = [np.empty((0, len(self.mean)))]
        signal = self._denoising_signal
        for block in _dense_blocks(source, role, whole=True):
            with np.errstate(all="ignore"):
                centred = block - self.mean
                part = signal.of_rows(centred) if self.background_counts else centred
            if not np.isfinite(centred.sum()):
                raise explain_non_finite(source, block, role)
            parts.append(part)
        return np.concatenate(parts)

    @property
    def denoising(self) -> AffineMap:
        """The function of rows that returns their target-specific part."""
        signal = self._denoising_signal
        factors = (signal.filters * signal.gains, signal.patterns.T) if self.background_counts else ()
        return AffineMap(self.denoise, self.mean, factors)

    @property
    def _denoising_signal(self) -> Signal:
        """The signal model; without one, that of the components."""
        return self.signal or Signal.of(self.components.T, self.patterns.T, self.ratios)

    @property
    def restoration(self) -> AffineMap:
        """The function of scores that returns rows."""

        def restore(scores: Source) -> Array:
            return self.restore(scores.collect("scores"))

        return AffineMap(restore, 0.0, (self.patterns,), self.mean, checks=False)

    def restore(self, scores: Array) -> Array:
        """Return rows from scores: the mean plus scores times the patterns."""
        return self.mean + scores @ self.patterns

    def top_features(self, count: int) -> list[list[TopFeature]]:
        """Return the features that change most along each component."""
        labels: Sequence[str | int] = self.names if self.names is not None else range(len(self.mean))
        return rank_features(self.patterns, self.target_variance, self.scale, labels, count)


def rank_features(
    patterns: Array, target_variance: Array, scale: Array, labels: Sequence[str | int], count: int
) -> list[list[TopFeature]]:
    """Return the features that change most along each pattern, in units of ``scale`` per target sd of the score."""
    moves = patterns * np.sqrt(target_variance)[:, None] / scale
    order = np.argsort(-np.abs(moves), axis=1, kind="stable")[:, :count]
    return [
        [TopFeature(labels[j], float(move[j])) for j in row if move[j] != 0]
        for row, move in zip(order, moves, strict=True)
    ]


def _dense_blocks(source: Source, role: str, whole: bool) -> Iterator[Array]:
    """Yield dense blocks of float64 rows; with ``whole``, an array of float64 is one block."""
    array = source.array if whole and isinstance(source, ArraySource) else None
    if type(array) is np.ndarray and array.dtype == np.float64:
        yield array
        return
    for block in source.blocks(block_rows(source.n_features)):
        yield checked_block(block, source.n_features, role).astype(np.float64, copy=False)


def fit_model(datasets: Sequence[Dataset], options: SolveOptions) -> Model:
    """Solve for the target and the backgrounds, assess the ratios, and return the model."""
    target, *backgrounds = datasets
    count_effective_rows(datasets)
    size = target.n_features
    rows = sum(data.counts.rows for data in datasets)
    with threads_for(size**2 * (rows + 10.0 * size)):
        solution, mixture = solve(target, backgrounds, options)
    assessed, notes = assess_ratios(solution, target.counts, [data.counts for data in backgrounds], mixture)
    found = solution.components
    return Model(
        components=np.ascontiguousarray(found.filters.T),
        patterns=np.ascontiguousarray(found.patterns.T),
        ratios=found.ratios,
        target_variance=found.target_variance,
        background_variance=found.background_variance,
        mean=solution.mean,
        scale=solution.scale,
        shrinkage=solution.shrinkage.rho,
        n_factors=solution.shrinkage.n_factors,
        regime=solution.regime,
        mix=mixture.shares if mixture is not None else np.empty(0),
        rank=solution.rank,
        solver=solution.solver,
        target_counts=target.counts,
        background_counts=tuple((data.role, data.counts) for data in backgrounds),
        background_units=mixture.units if mixture is not None else math.nan,
        names=target.names,
        notes=(*solution.notes, *notes),
        signal=solution.signal,
        total_variance=solution.total_variance,
        **assessed,
    )
