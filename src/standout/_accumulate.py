"""Accumulation of means and scatter matrices over blocks of rows.

Dense rows are accumulated about a pilot shift, so that a large mean causes no loss of precision. The shift is updated
when the data drift. Non-finite values propagate to the sums, so no separate validation pass is needed.

Sparse rows are accumulated by sparse matrix products where these are cheaper than dense blocks. They are not shifted,
because shifting would destroy sparsity; if a feature is far from zero, shifted dense blocks are accumulated instead.

While a thread reads ahead, and for arrays with few features, products run on a separate thread pool, with
single-threaded BLAS in each thread. Waiting OpenBLAS threads spin and take a core from the reader and from other
programs; waiting threads of the pool sleep.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas

from standout._blas import SMALL_WORK, Array, add_outer, add_scatter, blas_threads, mirror, threads_for
from standout.io.memory import check_weights, sparse_rows, with_values
from standout.io.source import Source

if TYPE_CHECKING:
    from standout._moments import Moments

# Minimum number of columns per panel, and maximum number of panels; each panel is one product on one thread.
_MIN_PANEL = 120
_MAX_PANELS = 8
# With more features the product takes so much longer than reading the rows that spinning does not matter, and a single
# BLAS call for all columns is fastest.
_MAX_PANEL_FEATURES = 2000
# With at most this many features, a product of one block is so short that threads of BLAS mostly wait for each other:
# each thread multiplies a part of the rows instead.
_MAX_NARROW = 240
# Cost of a multiply-add in a sparse product, relative to a dense product.
SPARSE_COST = 150
# Rows of the scatter matrix that are computed at once.
_PANEL = 256
# If |mean| / sd is below this for every feature, raw sums lose at most one digit and need no shift.
NEAR_ZERO = 3.0
# The shift is updated when a block is further from it than this many sd, so at most three digits are lost.
_MAX_SHIFT = 30.0
# Variances below this have lost precision to underflow.
SMALLEST = 1e-305

# Adds ``rows.T @ rows`` to the lower triangle of a matrix (F-ordered) in place, and returns it.
AddScatter = Callable[[Array, Array], Array]


@contextmanager
def scatter_adder(n_rows: int | None, n_features: int, reads_ahead: bool) -> Iterator[AddScatter]:
    """Yield the function that accumulates the products of blocks in a pass over this many rows."""
    work = float(n_rows or 10**6) * n_features**2
    threads = blas_threads()
    if not reads_ahead and work >= SMALL_WORK and n_features <= _MAX_NARROW and threads > 1:
        with threads_for(0.0), ThreadPoolExecutor(threads, "standout-product") as pool:

            def add_parts(total: Array, rows: Array) -> Array:
                for product in pool.map(_product, np.array_split(rows, threads)):
                    total += np.tril(product)
                return total

            yield add_parts
        return
    if not reads_ahead or work < SMALL_WORK or n_features > _MAX_PANEL_FEATURES:
        with threads_for(work):
            yield add_scatter
        return
    # Panels of the lower triangle have about the same area. They are independent of the number of threads, so that the
    # sums are as well.
    panels = max(1, min(_MAX_PANELS, n_features // _MIN_PANEL))
    edges = [round(n_features * (1 - (1 - panel / panels) ** 0.5)) for panel in range(panels + 1)]
    threads = min(threads, panels)
    with threads_for(0.0), ThreadPoolExecutor(threads, "standout-product") as pool:

        def add(total: Array, rows: Array) -> Array:
            for done in [pool.submit(_add_panel, total, rows, start, stop) for start, stop in pairwise(edges)]:
                done.result()
            return total

        yield add


def _product(rows: Array) -> Array:
    """Return ``rows.T @ rows``. numpy releases the GIL during the product."""
    with np.errstate(all="ignore"):  # the caller's state does not apply in this thread
        return np.asarray(rows.T @ rows)


def _add_panel(total: Array, rows: Array, start: int, stop: int) -> None:
    """Add columns ``start`` to ``stop``, on and below the diagonal. numpy releases the GIL during the product."""
    with np.errstate(all="ignore"):  # the caller's state does not apply in this thread
        product = rows[:, start:stop].T @ rows[:, start:]
        corner = product[:, : stop - start]
        corner[...] = np.triu(corner)
        total.T[start:stop, start:] += product


def sums_of_sparse(source: Source, weights: ArrayLike | None, role: str) -> Sums | None:
    """Accumulate a sparse source; None if it is not sparse (enough) or raw sums are not accurate."""
    matrix = sparse_rows(source)
    if matrix is None:
        return None
    weight, squared = float(matrix.shape[0]), float(matrix.shape[0])
    root = None
    if weights is not None:
        checked = check_weights(weights, matrix.shape[0], role)
        index = np.flatnonzero(checked)
        checked, matrix = checked[index], matrix[index] if len(index) < len(checked) else matrix
        weight, squared, root = float(checked.sum()), float((checked * checked).sum()), np.sqrt(checked)
    # Pairs of entries within rows must be few relative to all pairs of features.
    entries = np.diff(matrix.indptr).astype(np.float64)
    if SPARSE_COST * (entries @ entries) >= matrix.shape[0] * float(matrix.shape[1]) ** 2:
        return None
    with np.errstate(all="ignore"):
        mean, scatter = _raw_sums(matrix, root, weight)
        variance = np.diagonal(scatter) / weight - mean * mean
        good = math.isfinite(variance.sum()) and bool((mean * mean <= NEAR_ZERO**2 * variance).all())
        if not good or ((variance < SMALLEST) & (variance > 0)).any():
            return None
    for row, value in zip(scatter, mean, strict=True):  # row by row, to avoid a second matrix of this size
        row -= weight * (value * mean)
    return Sums(mean, 0.0, scatter.T, weight, squared, matrix.shape[0])


def _raw_sums(matrix: Any, root: Array | None, weight: float) -> tuple[Array, Array]:
    """Return the mean, and the products of all pairs of features, summed over the rows."""
    values = matrix.data.astype(np.float64, copy=False)
    if root is not None:
        values = values * np.repeat(root, np.diff(matrix.indptr))
    rows = with_values(matrix, values)
    columns = rows.T.tocsr()
    mean = columns @ (np.ones(matrix.shape[0]) if root is None else root) / weight
    scatter = np.empty((matrix.shape[1],) * 2)

    def fill(start: int) -> None:
        scatter[start : start + _PANEL] = (columns[start : start + _PANEL] @ rows).toarray()

    with ThreadPoolExecutor() as pool:
        _ = list(pool.map(fill, range(0, len(scatter), _PANEL)))
    return np.asarray(mean), scatter


@dataclass(frozen=True)
class Sums:
    """Accumulated mean, scatter about the mean, and counts."""

    mean: Array
    residue: Array | float  # rounding error of the mean: parts are merged about mean + residue
    scatter: Array
    weight: float
    weight_squared: float
    rows: int
    underflown: Sequence[int] = ()  # features whose variation is so small that its squares underflow


class Accumulator:
    """Accumulator of rows in place: one triangle, one buffer, always float64."""

    def __init__(self, n_features: int, add: AddScatter = add_scatter):
        self.n_features, self._add_scatter = n_features, add
        self.scatter = np.zeros((n_features, n_features), order="F")
        self.sum = np.zeros(n_features)
        self.shift = np.zeros(n_features)
        self.shifted = False
        self.weight = self.weight_squared = 0.0
        self.rows = 0
        self._buffer: Array | None = None

    @property
    def counts(self) -> dict[str, Any]:
        """The state of the accumulator except its arrays."""
        return {name: getattr(self, name) for name in ("shifted", "weight", "weight_squared", "rows")}

    def arrays(self) -> Iterator[Array]:
        """Yield the arrays of the state, each contiguous; one triangle of the scatter."""
        yield self.sum
        yield self.shift
        for start in range(self.n_features):
            yield self.scatter[start:, start]

    def add(self, block: NDArray[Any], weights: Array | None = None) -> bool:
        """Add a block of rows; return False when the sums are no longer finite."""
        if len(block) == 0:
            return True
        self._update_shift(block, weights)
        # The sums are checked for overflow and NaN once per block, so numpy warnings are not needed.
        with np.errstate(all="ignore"):
            centred = self._centred(block, copy=weights is not None)
            if weights is None:
                self.sum += centred.sum(axis=0)
                self.weight += len(block)
                self.weight_squared += len(block)
                self.rows += len(block)
            else:
                root = np.sqrt(weights)
                centred *= root[:, None]
                self.sum += blas.dgemv(1.0, centred.T, root)
                self.weight += float(weights.sum())
                self.weight_squared += float((weights * weights).sum())
                self.rows += int(np.count_nonzero(weights))
            self._add_scatter(self.scatter, centred)
            # One number suffices: NaN and inf propagate through every sum.
            return math.isfinite(self.sum.sum() + np.einsum("ii->", self.scatter))

    def _centred(self, block: NDArray[Any], copy: bool) -> Array:
        """Return the block minus the shift, in the buffer; the block itself if no copy is needed."""
        if not self.shifted and not copy and block.dtype == np.float64 and block.flags.c_contiguous:
            return block
        if self._buffer is None or len(self._buffer) < len(block):
            self._buffer = np.empty((len(block), self.n_features))
        out = self._buffer[: len(block)]
        if self.shifted:
            np.subtract(block, self.shift, out=out, casting="unsafe")
        else:
            out[...] = block
        return out

    def _update_shift(self, block: NDArray[Any], weights: Array | None) -> None:
        """Choose the shift from a few rows of the first block; update it when a block is far from it."""
        few = block[:: max(1, len(block) // 64)].astype(np.float64, copy=False)
        with np.errstate(all="ignore"):
            if weights is None:
                mean = few.sum(axis=0) / len(few)
                square = np.einsum("ij,ij->j", few, few) / len(few)
            else:  # one row may outweigh all others, so use all rows
                share = weights / weights.sum()
                mean = np.einsum("i,ij->j", share, block)
                square = np.einsum("i,ij,ij->j", share, block, block)
            apart = (mean - self.shift) ** 2
            if self.weight > 0:
                spread = np.maximum(square - mean * mean, np.diagonal(self.scatter) / self.weight)
                if not (apart > _MAX_SHIFT**2 * spread).any():
                    return
            elif (apart * (1 + NEAR_ZERO**-2) <= square).all():
                return
            # For a constant feature the shift must be exact; the mean of equal numbers may have a rounding error.
            shift = np.where((few == few[0]).all(axis=0), few[0], mean)
        # The mean of long doubles is a long double, which BLAS does not support.
        shift = np.where(np.isfinite(shift), shift, 0.0).astype(np.float64, copy=False)
        moved = self.sum - self.weight * (shift - self.shift)
        if self.weight > 0:  # the scatter about the mean does not change
            add_outer(self.scatter, self.sum, -1.0 / self.weight)
            add_outer(self.scatter, moved, 1.0 / self.weight)
        self.sum, self.shift, self.shifted = moved, shift, True

    def finish(self) -> Sums:
        """Correct for the remaining mean and fill the other triangle; no rows can be added afterwards."""
        mean, residue = self.shift, np.zeros(self.n_features)
        if self.weight > 0:
            mean, residue = two_sum(mean, self.sum / self.weight)
            add_outer(self.scatter, self.sum, -1.0 / self.weight)
        diagonal = np.einsum("ii->i", self.scatter)
        lost = np.flatnonzero((diagonal < SMALLEST * self.weight) & ((diagonal > 0) | (self.sum != 0))).tolist()
        mirror(self.scatter)
        np.maximum(diagonal, 0.0, out=diagonal)
        return Sums(mean, residue, self.scatter, self.weight, self.weight_squared, self.rows, lost)


def merge_sums(one: Sums, other: Sums) -> Sums:
    """Return the merged sums of two parts; non-finite values are preserved."""
    if one.weight == 0 or other.weight == 0:
        return other if one.weight == 0 else one
    with np.errstate(all="ignore"):
        mean, residue, scatter = merged_scatter(one, other)
        weight = one.weight + other.weight
        square = np.diagonal(scatter)
        varies = (square > 0) | (one.mean != other.mean)
        varies[[*one.underflown, *other.underflown]] = True
        lost = np.flatnonzero((square < SMALLEST * weight) & varies).tolist()
    squared = one.weight_squared + other.weight_squared
    return Sums(mean, residue, scatter, weight, squared, one.rows + other.rows, lost)


def merged_scatter(one: Sums | Moments, other: Sums | Moments) -> tuple[Array, Array, Array]:
    """Return the merged mean of two parts, its rounding error, and the scatter about it, in new arrays."""
    # Means that are close together and far from zero have an exact difference; the residues supply the rest.
    shift = (other.mean - one.mean) + (other.residue - one.residue)
    share = other.weight / (one.weight + other.weight)
    scatter = np.asfortranarray(one.scatter + other.scatter)
    blas.dger(one.weight * share, shift, shift, a=scatter, overwrite_a=1)
    mean, residue = two_sum(one.mean, one.residue + shift * share)
    return mean, residue, scatter


def two_sum(one: Array, other: Array) -> tuple[Array, Array]:
    """Return the rounded sum of two numbers and its exact rounding error (Knuth's two-sum)."""
    total = one + other
    added = total - one
    return total, (one - (total - added)) + (other - added)
