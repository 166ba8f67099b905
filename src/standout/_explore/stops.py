"""The stops of a dial: the scores of one method along its parameter, computed once.

A dial moves along the shrinkage of dPCA or the alpha of cPCA. Stop 0 is the value that the library chooses; the others
are the steps of :func:`standout.path`. One pass over each dataset projects its rows on the components of all stops, so
that moving the dial only looks results up. From stop to stop every component keeps its place and sign on the screen,
also where two components change their order by ratio.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from standout._blas import Array, threads_for
from standout._folds import Index, Units
from standout.io.source import RowSource, block_rows

# Components that can be chosen as axes.
MOST_COMPONENTS = 5
# Rows of a block in one product with the components of all stops.
_ROWS = 2048


class ShownRows(NamedTuple):
    """The rows of one dataset on the features of the models, and those that are drawn."""

    name: str
    source: RowSource
    units: Units
    drawn: Index
    scored: RowSource | None = None  # the rows as ``transform`` fills them, if values are missing

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.units.rows)


class Projection(NamedTuple):
    """Scores of one dataset on q directions."""

    drawn: NDArray[np.float32]  # (n_drawn, q)
    covariance: Array  # (q, q), of all rows
    cross: Array | None  # (n_features, q), covariance of the features with the scores


def blocks(rows: RowSource) -> Iterator[Any]:
    """Yield the rows in order, as dense arrays or, where the rows are sparse, as sparse matrices."""
    matrix = rows.sparse()
    if matrix is None:
        for block in rows.blocks(min(_ROWS, block_rows(rows.n_features))):
            yield np.asarray(block, dtype=np.float64)
    else:
        for start in range(0, matrix.shape[0], _ROWS):
            yield matrix[start : start + _ROWS]


def scores(rows: RowSource, filters: Array, mean: Array) -> Array:
    """Return the scores of all rows on the filters, (n_rows, q)."""
    with threads_for(float(rows.n_rows or 0) * filters.size):
        return np.concatenate([_scores(block, filters, mean) for block in blocks(rows)])


def _scores(block: Any, filters: Array, mean: Array) -> Array:
    """Return the scores of a block. A sparse block is centred after the product, because its zeros would be filled."""
    if isinstance(block, np.ndarray):
        return np.asarray((block - mean) @ filters.T)
    return np.asarray(block @ filters.T) - filters @ mean


def project(rows: ShownRows, filters: Array, mean: Array, *, with_features: bool, centred: bool = True) -> Projection:
    """Project all rows on the filters, and keep the scores of those that are drawn.

    Covariances are about the mean of the rows, or, if not ``centred``, about ``mean``.
    """
    count, size = filters.shape
    total, gram = np.zeros(count), np.zeros((count, count))
    sums, cross = np.zeros(size), np.zeros((size, count))
    kept = np.zeros(rows.n_rows, dtype=bool)
    kept[rows.drawn] = True
    drawn, start = [], 0
    with threads_for(float(rows.n_rows) * filters.size):
        for block in blocks(rows.source):
            values = _scores(block, filters, mean)
            drawn.append(values[kept[start : start + len(values)]].astype(np.float32))
            total += values.sum(axis=0)
            gram += values.T @ values
            if with_features:
                dense = isinstance(block, np.ndarray)
                block = block - mean if dense else block
                sums += np.asarray(block.sum(axis=0)).ravel() - (0.0 if dense else len(values) * mean)
                cross += np.asarray(block.T @ values) - (0.0 if dense else np.outer(mean, values.sum(axis=0)))
            start += len(values)
    centre = total / rows.n_rows if centred else np.zeros(count)
    covariance = gram / rows.n_rows - np.outer(centre, centre)
    if rows.scored is not None:
        drawn = [scores(rows.scored, filters, mean)[rows.drawn].astype(np.float32)]
    return Projection(
        np.concatenate(drawn) if drawn else np.empty((0, count), np.float32),
        covariance,
        cross / rows.n_rows - np.outer(sums / rows.n_rows, centre) if with_features else None,
    )


@dataclass(frozen=True)
class Stops:
    """The stops of one method. Arrays are ordered by place on the screen, which follows a component along the dial."""

    parameter: str | None  # what the dial changes; None if there is only one stop
    values: tuple[float | None, ...]  # of the parameter; that of stop 0 is chosen by the library
    representatives: tuple[int, ...]  # stops
    filters: Array  # (n_stops, k, n_features)
    order: NDArray[np.intp]  # (n_stops, k): the component at each place
    signs: Array  # (n_stops, k): of the scores on the screen against those of the library
    drawn: tuple[NDArray[np.float32], ...]  # of each dataset, (n_drawn, n_stops, k)
    target_variance: Array  # (n_stops, k)
    background_variance: tuple[Array, ...]  # of each dataset but the target, (n_stops, k)
    moves: NDArray[np.float32] | None  # (n_stops, k, n_features): change per target sd of the score
    ratios: Array | None = None  # (n_stops, k), as the library gives them; None for the ratios of the variances

    @property
    def n_components(self) -> int:
        """Number of components."""
        return int(self.order.shape[1])

    @property
    def directions(self) -> Array:
        """The filters in the order and with the signs of the screen."""
        placed = np.take_along_axis(self.filters, self.order[:, :, None], axis=1)
        return placed * self.signs[:, :, None]

    def scaled(self, factors: Array) -> Stops:
        """Return the stops with scores multiplied by positive factors, (n_stops, k)."""
        of_filters = np.empty_like(factors)
        np.put_along_axis(of_filters, self.order, factors, axis=1)
        return replace(
            self,
            filters=self.filters * of_filters[:, :, None],
            drawn=tuple(each * factors.astype(np.float32) for each in self.drawn),
            target_variance=self.target_variance * factors**2,
            background_variance=tuple(each * factors**2 for each in self.background_variance),
        )


def collect(
    rows: Sequence[ShownRows], filters: Array, mean: Array, scale: Array, values: Sequence[float | None],
    *, parameter: str | None = None, representatives: Sequence[int] = (), centred: bool = True,
) -> Stops:  # fmt: skip
    """Project all datasets on the filters of all stops, (n_stops, k, n_features).

    The variances of the target are about its mean, or, if not ``centred``, about the mean of the background.
    """
    n_stops, count, size = filters.shape
    flat = filters.reshape(-1, size)
    target = project(rows[0], flat, mean, with_features=True, centred=centred)
    others = [project(each, flat, mean, with_features=False) for each in rows[1:]]
    blocks_of = target.covariance.reshape(n_stops, count, n_stops, count).transpose(0, 2, 1, 3)
    order, signs = follow(blocks_of)
    assert target.cross is not None
    moves = np.empty((n_stops, count, size), np.float32)
    for stop in range(n_stops):
        # The patterns are the regression of the features on the scores, C U (Uᵀ C U)⁻¹.
        inside = blocks_of[stop, stop]
        patterns = target.cross[:, stop * count : (stop + 1) * count] @ np.linalg.pinv(inside, hermitian=True)
        moves[stop] = (patterns * np.sqrt(np.diagonal(inside).clip(min=0.0)) / scale[:, None]).T
    place = order[:, :, None]
    variances = [np.diagonal(each.covariance).reshape(n_stops, count).clip(min=0.0) for each in (target, *others)]
    of_target, *of_background = (np.take_along_axis(each, order, axis=1) for each in variances)
    sign = signs.astype(np.float32)
    drawn = tuple(
        np.take_along_axis(each.drawn.reshape(-1, n_stops, count), order[None], axis=2) * sign
        for each in (target, *others)
    )
    moves = np.take_along_axis(moves, place, axis=1) * sign[:, :, None]
    return Stops(
        parameter, tuple(values), tuple(representatives), filters, order, signs, drawn, of_target, tuple(of_background),
        moves,
    )  # fmt: skip


def of_scores(rows: Sequence[ShownRows], found: Sequence[Array]) -> Stops:
    """Return the single stop of a model that has scores but no filters of the features, such as kernel dPCA."""
    count = found[0].shape[1]
    of_target, *of_background = (each.var(axis=0)[None] for each in found)
    return Stops(
        None, (None,), (), np.empty((1, count, 0)), np.arange(count)[None], np.ones((1, count)),
        tuple(each[part.drawn][:, None].astype(np.float32) for each, part in zip(found, rows, strict=True)),
        of_target, tuple(of_background), None,
    )  # fmt: skip


def follow(covariance: Array) -> tuple[NDArray[np.intp], Array]:
    """Return the component at each place and its sign at each stop, given the covariances between stops.

    ``covariance`` has shape (n_stops, n_stops, k, k): that of the target's scores at two stops. Stop 0 keeps its order
    and signs. The stop nearest to it follows, and from there the others, in both directions along the dial.
    """
    n_stops, _, count, _ = covariance.shape
    sd = np.sqrt(np.einsum("sskk->sk", covariance).clip(min=np.finfo(float).tiny))
    correlation = covariance / (sd[:, None, :, None] * sd[None, :, None, :])
    order, signs = np.tile(np.arange(count), (n_stops, 1)), np.ones((n_stops, count))

    def place(stop: int, after: int) -> None:
        between = correlation[after, stop][order[after]]
        _, chosen = linear_sum_assignment(-np.abs(between))
        order[stop] = chosen
        signs[stop] = np.where(between[np.arange(count), chosen] * signs[after] < 0, -1.0, 1.0)

    if n_stops > 1:
        first = 1 + int(np.argmax((correlation[0, 1:] ** 2).sum(axis=(1, 2))))
        place(first, 0)
        for stop in range(first + 1, n_stops):
            place(stop, stop - 1)
        for stop in range(first - 1, 0, -1):
            place(stop, stop + 1)
    return order, signs
