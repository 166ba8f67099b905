"""Filling the missing values of target and backgrounds together, by one model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import linalg

from standout.blas import Array
from standout.dataset import Dataset
from standout.sources import Source, has_rows
from standout.sources.gaussian import Complete, Fill, Observed, estimate
from standout.sources.incomplete import AtMean, FilledRows, filled_by, is_incomplete, observed, raw_blocks, raw_rows
from standout.sources.locate import at_file
from standout.sources.source import block_rows_of
from standout.sources.weighted import check_weights
from standout.spectrum import largest_root_p_value

# Target and background are filled by variances of their own along directions whose ratio noise reaches this rarely.
# Below the level of the tests: they reject in such a case already, so that it does not change how often they do.
_CLEARLY = 0.01
# Iterations where each is a pass over a file.
_PASSES = {"forget": 6, "average": 4}


def fill_together(target: Dataset | None, backgrounds: Sequence[Dataset]) -> list[Dataset | None]:
    """Return the datasets, target first, with the missing values of all drawn from one model."""
    given = [data for data in (target, *backgrounds) if data is not None]
    if not any(is_incomplete(data.source) for data in given):
        return [target, *backgrounds]
    fills = _fills(given, compared=target is not None and bool(backgrounds))
    filled: list[Dataset | None] = [
        replace(data, source=filled_by(data.source, fill)) if is_incomplete(data.source) and fill is not None else data
        for data, fill in zip(given, fills, strict=True)
    ]
    return filled if target is not None else [None, *filled]


def fill_by_training(training: Sequence[Any], held_out: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Fill training and held-out rows, target first, by a model of the training rows."""
    if not any(map(is_incomplete, (*training, *held_out))):
        return list(training), list(held_out)
    fills = _fills([Dataset("training rows", source) for source in training], compared=True, every=True)
    parts: list[list[Any]] = []
    for sources, step in ((training, -1), (held_out, -2)):  # held-out rows get draws that were not trained on
        parts.append([])
        for source, fill in zip(sources, fills, strict=True):
            assert fill is not None
            seeded = replace(fill, seed=(fill.seed[0], step % 2**32))
            raw = raw_rows(source) if is_incomplete(source) else None
            parts[-1].append(source if raw is None else FilledRows(seeded.rows(raw), source))
    return parts[0], parts[1]


def _fills(given: Sequence[Dataset], compared: bool, every: bool = False) -> list[Fill | None]:
    """Return how each dataset is filled; None where nothing is missing, unless ``every`` dataset is to have one."""
    at_hand = all(has_rows(data.source) for data in given)
    n_rows = sum(data.source.n_rows or 0 for data in given if data.source is not None)
    every = every or (at_hand and given[0].n_features > n_rows)  # the model is made of the rows then, not of sums
    sets = [_observed(data, every, place) for place, data in enumerate(given)]
    compare = _comparison(given, [one.n_rows for one in sets]) if compared else None
    streamed = any(is_incomplete(data.source) and not has_rows(data.source) for data in given)
    return estimate(sets, compare, **(_PASSES if streamed else {}))


def _observed(data: Dataset, every: bool, place: int) -> Observed | Complete:
    source: Any = data.source
    if not is_incomplete(source):
        if not (every and has_rows(source)):
            moments = data.moments
            return Complete(moments.covariance(), moments.variance(), moments.n_effective)
        return Observed(lambda: source.blocks(block_rows_of(source)), data.n_features, place, _weights(data))
    role = at_file(source, data.role)
    return observed(lambda: raw_blocks(source), data.n_features, role, data.names, place, _weights(data))


def _weights(data: Dataset) -> Array | None:
    n_rows = None if data.source is None else data.source.n_rows
    return None if data.weights is None else check_weights(data.weights, n_rows, data.role)


def _comparison(
    given: Sequence[Dataset], n_rows: Sequence[float]
) -> Callable[[Sequence[Array]], list[Array] | None] | None:
    """Return what finds the directions along which target and background clearly differ.

    With one covariance for all, draws for the background would have part of the target's own variance, and ratios
    that are clear would become smaller. Target and background covariance are T = Σ tᵢ pᵢpᵢᵀ and B = Σ bᵢ pᵢpᵢᵀ, and
    their pooled one is P = Σ pᵢpᵢᵀ; where tᵢ/bᵢ is clear of noise, tᵢ and bᵢ take the place of 1.
    """
    units = [_units(data, rows) for data, rows in zip(given, n_rows, strict=True)]
    n_features = given[0].n_features
    m, n = units[0], sum(units[1:])
    if math.isnan(largest_root_p_value(1.0, n_features, m, n)):
        return None
    own = n_rows[0] / sum(n_rows)

    def compare(covariances: Sequence[Array]) -> list[Array] | None:
        others = sum(rows * part for rows, part in zip(n_rows[1:], covariances[1:], strict=True)) / sum(n_rows[1:])
        pooled = own * covariances[0] + (1 - own) * others
        scale = np.sqrt(np.where(np.diagonal(pooled) > 0, np.diagonal(pooled), 1.0))
        values, whitening = linalg.eigh(pooled / np.outer(scale, scale))
        varies = values > 1e-10  # features may depend on each other
        whitening = whitening[:, varies] / np.sqrt(values[varies]) / scale[:, None]
        target, vectors = linalg.eigh(whitening.T @ covariances[0] @ whitening)
        vectors = whitening @ vectors
        background = np.maximum((1 - own * target) / (1 - own), 1e-12)
        ratios = target / background
        clear = np.array([largest_root_p_value(ratio, n_features, m, n) < _CLEARLY for ratio in ratios])
        if not clear.any():
            return None
        patterns = pooled @ vectors[:, clear]
        own_target, own_background = (
            pooled + (patterns * (variance[clear] - 1)) @ patterns.T for variance in (target, background)
        )
        return [own_target, *[own_background] * (len(covariances) - 1)]

    return compare


def _units(data: Dataset, n_rows: float) -> float:
    groups = data.groups if data.groups is not None or data.source is None else data.source.groups
    return n_rows if groups is None else float(len(set(np.asarray(groups).tolist())))


def at_means(source: Source, mean: Array) -> Source:
    """Return rows with given means for missing values that would be drawn: a score depends on its own row only."""
    return filled_by(source, AtMean(mean)) if is_incomplete(source) else source
