"""Effective number of independent rows: rows of one group, and consecutive rows, may be alike.

The largest-root test, the noise edge, de-biasing and shrinkage need the number ν for which a sample covariance varies
as if it were computed from ν + 1 independent Gaussian rows. Counting rows is wrong if rows of a group are alike;
counting groups discards almost everything if they are not. ν is therefore estimated from the rows, by a cluster-robust
variance of their covariance. With rows z (centred, and whitened by the pooled covariance of target and background),
their covariance Ĉ, and groups g of total weight W_g,

    V = G/(G − 1) · Σ_g ‖Σ_{i∈g} wᵢ(zᵢzᵢᵀ − Ĉ)‖² / W²,    ν = ((tr Ĉ² + tr² Ĉ)/V − 1) · (G − 1)/(G + 1).

G = W²/Σ W_g² is the effective number of groups. V estimates E‖Ĉ − C‖², which is (tr C² + tr² C)/ν for ν independent
Gaussian rows; the −1 removes V from tr Ĉ², and the last factor removes the bias of V with few groups. ν is at least
G − 1 and at most the (Kish) number of rows less one; it is reduced where V rests on few entries, and is G − 1 for fewer
than five groups, whose variation cannot be estimated. The identity holds for any linear map of the rows, so that many
features can be reduced by a random projection.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout._blas import Array, rank_tolerance, top_eigen
from standout._dataset import Dataset
from standout._folds import coded, rows_by_unit
from standout.errors import SerialWarning
from standout.io.memory import as_numpy, check_weights
from standout.io.source import ArraySource, RowSource, Source, block_rows_of
from standout.solvers.solution import Note

# Fewest effective groups for an estimate, and the reduction of ν for the uncertainty of V; both by simulation.
_LEAST_GROUPS, _CAUTION = 5.0, 4.0
# Dimensions in which groups are compared: enough for an accurate ν, and a small part of the cost of a covariance.
_DIMENSIONS = 50
# Above this many features, whitening would take longer than the fit gains from it.
_MOST_WHITENED = 3000
# Limit of the values of projected rows held in memory.
_MOST_VALUES = 25_000_000
# Most and fewest rows compared for serial correlation, features that are compared first, and the lag at which only
# slow changes (classes, drifts) remain.
_SERIAL_ROWS, _SERIAL_LEAST, _SERIAL_FEATURES, _FAR_LAG = 4096, 24, 8, 20
# Serial correlation is reported if neighbours correlate by more than this beyond distant rows,
_SERIAL_CORRELATION = 0.1
# and by more than this many standard errors.
_SERIAL_SIGMAS = 6.0


def degrees_of_freedom(rows: Array, weights: Array, groups: NDArray[np.intp]) -> float:
    """Return ν of (a linear map of) rows of positive weight, given the group of each as a number from 0 on."""
    share = weights / weights.sum()
    centred = rows - share @ rows
    covariance = (centred * share[:, None]).T @ centred
    group_shares = np.bincount(groups, share)
    n_groups = 1 / float(group_shares @ group_shares)
    most = 1 / float(share @ share) - 1
    variance = 0.0
    for inside in rows_by_unit(groups):
        part = (centred[inside] * share[inside, None]).T @ centred[inside] - share[inside].sum() * covariance
        variance += float(np.einsum("ij,ij->", part, part))
    size = float(np.einsum("ij,ij->", covariance, covariance)) + float(np.trace(covariance)) ** 2
    if n_groups < _LEAST_GROUPS or variance <= 0 or size <= 0:
        return min(max(n_groups - 1, 0.0), most)
    variance *= n_groups / (n_groups - 1)
    entries = (n_groups - 1) * rows.shape[1] * (rows.shape[1] + 1) / 2
    found = (size / variance - 1) * (n_groups - 1) / (n_groups + 1) * entries / (entries + _CAUTION)
    return float(min(max(found, n_groups - 1), most))


def count_effective_rows(datasets: Sequence[Dataset]) -> None:
    """Set the counts of datasets with groups to their effective number of rows, where rows can be read again."""
    sources = [data.source for data in datasets if data.source is not None and data.source.rereadable]
    # Groups of one row each are rows.
    grouped = [data for data in datasets if data.source in sources and 1 < data.counts.units < data.counts.rows]
    grouped = [data for data in grouped if data.group_ids is not None]
    if not grouped:
        return
    basis = _comparison_basis(datasets, sources)
    for data in grouped:
        assert data.source is not None
        blocks = data.source.blocks(block_rows_of(data.source))
        with np.errstate(all="ignore"):  # bad values are located by the solver
            rows = np.concatenate([np.asarray(block, np.float64) @ basis for block in blocks])
        weights = np.ones(len(rows)) if data.weights is None else check_weights(data.weights, len(rows), data.role)
        if np.isfinite(rows).all():
            groups, _ = coded(as_numpy(data.group_ids)[weights > 0])
            freedom = degrees_of_freedom(rows[weights > 0], weights[weights > 0], groups)
            effective = min(data.counts.effective, freedom + 1)
            data.counts = replace(data.counts, effective=effective, units=freedom + 1)


def _comparison_basis(datasets: Sequence[Dataset], sources: Sequence[Source]) -> Array:
    """Return the map, (n_features, q), to the coordinates in which groups are compared: white, at most _DIMENSIONS.

    With more features than rows, whitening would make all rows orthogonal: features are scaled by their sd instead.
    """
    n_rows, size = sum(data.counts.rows for data in datasets), datasets[0].n_features
    whitens = 2 * size < n_rows and size <= _MOST_WHITENED
    if whitens:
        parts = [data.moments for data in datasets]
        covariance = sum(part.scatter for part in parts) / sum(part.weight for part in parts)
        scale = _reciprocal(np.sqrt(np.diagonal(covariance)))
        values, vectors = top_eigen(np.asfortranarray(scale[:, None] * covariance * scale), size)
        kept = values > rank_tolerance(size) * values[0]
        basis = scale[:, None] * vectors[:, kept] / np.sqrt(values[kept])
    else:
        scale = _reciprocal(np.sqrt(np.mean([feature_variance(source) for source in sources], axis=0)))
        basis = np.diag(scale) if size <= _DIMENSIONS else np.empty((size, 0))
    most = max(2, min(_DIMENSIONS, _MOST_VALUES // max(n_rows, 1)))
    if 0 < basis.shape[1] <= most:
        return np.asarray(basis)
    width = basis.shape[1] or size
    projection = np.random.default_rng(0).normal(size=(width, most)) / np.sqrt(width)
    return np.asarray(basis @ projection if basis.shape[1] else scale[:, None] * projection)


def feature_variance(source: Source) -> Array:
    """Return the variance of each feature, in one pass over the rows and about the first of them."""
    first, total, squares, seen = None, np.zeros(source.n_features), np.zeros(source.n_features), 0
    with np.errstate(all="ignore"):
        for block in source.blocks(block_rows_of(source)):
            rows = np.asarray(block, dtype=np.float64)
            first = rows[0] if first is None else first
            rows = rows - first
            total, squares, seen = total + rows.sum(axis=0), squares + (rows * rows).sum(axis=0), seen + len(rows)
        return np.maximum(squares / seen - (total / seen) ** 2, 0.0)


def _reciprocal(values: Array) -> Array:
    return np.divide(1.0, values, out=np.zeros(len(values)), where=values > 0)


def serial_notes(datasets: Sequence[Dataset]) -> tuple[Note, ...]:
    """Return a warning for each dataset without groups, and not on a cluster, whose first rows are correlated."""
    notes = []
    for data in datasets:
        source = data.source
        grouped = data.groups is not None or (source is not None and source.has_groups)
        if source is None or grouped or not source.rereadable or data.is_incomplete:
            continue
        found = serial_correlation(_first_rows(source))
        if found > 0:
            text = (
                f"{data.role}: consecutive rows are correlated (lag-1 correlation {found:.2g} above that of distant "
                "rows), as in a time series or in replicates, so p-values that count rows are too small. Give the "
                "subject, the trial, or blocks of rows much longer than the correlation as `groups=`."
            )
            notes.append(Note(SerialWarning, text))
    return tuple(notes)


def _first_rows(source: Source) -> NDArray[Any]:
    """Return the first rows of a source; of a sparse matrix a sample of the features, so that little becomes dense."""
    if source.is_sparse and (matrix := source.sparse()) is not None:
        return np.asarray(matrix[:_SERIAL_ROWS][:, :: max(1, source.n_features // 64)].toarray())
    count = min(_SERIAL_ROWS, _MOST_VALUES // 10 // max(source.n_features, 1))
    if type(source) is ArraySource:
        return np.asarray(source.array[:count])
    if isinstance(source, RowSource):
        return np.asarray(source.rows(0, min(source.n_rows or 0, count)))
    return np.asarray(next(iter(source.blocks(max(count, 1))), np.empty((0, source.n_features))))


def serial_correlation(rows: NDArray[Any]) -> float:
    """Return the correlation of neighbouring rows beyond that of distant ones; 0 if it is not significant.

    Rows that are sorted by class, or drift slowly, are about as similar at lag 20 as at lag 1, and do not count.
    Without serial correlation, the mean over n rows and p features of the products of standardised rows at one lag has
    a standard error of ``sqrt(tr C² / n) / p``.
    """
    n_rows, size = rows.shape
    if n_rows < _SERIAL_LEAST or rows.dtype.kind not in "fiub":
        return 0.0
    with np.errstate(all="ignore"):
        if size > 4 * _SERIAL_FEATURES:  # a sample of the features shows whether the others are worth the time
            few = rows[:, :: size // _SERIAL_FEATURES]
            if not _lagged_excess(_standardised(few)) > _SERIAL_CORRELATION / 2:
                return 0.0
        centred = _standardised(rows)
        excess = _lagged_excess(centred)
        if not excess > _SERIAL_CORRELATION:
            return 0.0
        inner = centred @ centred[:: max(1, n_rows // 256)].T  # a sample of the products suffices for tr C²
        error = math.sqrt(2 * float((inner**2).mean()) / n_rows) / size
    return excess if excess > _SERIAL_SIGMAS * error else 0.0


def _standardised(rows: NDArray[Any]) -> Array:
    """Return rows with mean zero and unit variance in every feature that varies."""
    centred = np.array(rows, dtype=np.float64, order="C")
    share = np.full(len(rows), 1 / len(rows))
    centred -= share @ centred
    centred *= _reciprocal(np.sqrt(share @ (centred * centred)))
    return centred


def _lagged_excess(rows: Array) -> float:
    """Return the mean product of neighbouring rows minus that of distant rows."""
    lags = (1, min(_FAR_LAG, len(rows) // 3))
    near, far = (float(np.vdot(rows[:-lag], rows[lag:])) / (len(rows) - lag) for lag in lags)
    return (near - far) / int(rows.shape[1])
