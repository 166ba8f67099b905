"""Multiplying blocks beside a thread that reads them: on threads of our own, each with a BLAS of one thread.

The threads of OpenBLAS spin while they wait for their next product, and take the core from the reader: with two
cores, reading ahead then takes longer than reading and multiplying in turns. Threads that wait asleep do not.

Adding up sparse rows as they are: a product of sparse matrices, where that is less work than dense blocks.

Nothing is shifted, because the zeros would be lost; so a feature far from zero (which cannot have many
zeros) sends the data back to the accumulator, which shifts dense blocks and loses no digits.

Adding up rows: around a pilot shift, so that a large mean costs no digits.

The shift moves with the data when the data drift. Non-finite values show in the sums, so there is no
pass for validation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas

from standout._blas import SMALL_WORK, Array, add_outer, add_scatter, blas_threads, mirror, threads_for
from standout.io.memory import check_weights, sparse_rows, with_values
from standout.io.source import Source

# Columns that a panel should have at least, and panels at most: each is one product of one thread.
_NARROW = 120
_PANELS = 8
# With more features a product takes so much longer than reading its rows that the spinning does not matter, and one
# call of BLAS for all columns is the fastest.
_WIDE = 2000
# A multiply-add of a sparse product costs as much as this many of a dense one.
DEARER = 150
# Rows of the scatter matrix that are made at once.
_PANEL = 256
# With |mean| / sd below this in every feature the raw sums lose at most one digit: no shift needed.
NEAR_ZERO = 3.0
# The shift is moved when a block lies further from it than this many sd: it costs three digits at most.
_FAR = 30.0
# With sd / |mean| above this, rounding of the mean is lost in the last digit of the scatter.
_STEADY = 1e-4
# Variances below this have lost digits to underflow.
SMALLEST = 1e-305


# Adds ``rows.T @ rows`` to the lower triangle of a matrix (F-ordered) in place, and returns it.
AddScatter = Callable[[Array, Array], Array]


@contextmanager
def scatter_adder(n_rows: int | None, n_features: int, reads_ahead: bool) -> Iterator[AddScatter]:
    """Give the function that adds up the products of blocks, for a pass over this many rows."""
    work = float(n_rows or 10**6) * n_features**2
    if not reads_ahead or work < SMALL_WORK or n_features > _WIDE:
        with threads_for(work):
            yield add_scatter
        return
    # The panels do not depend on the number of threads, so that the sums do not either.
    edges = _edges(n_features)
    threads = min(blas_threads(), len(edges) - 1)
    with threads_for(0.0), ThreadPoolExecutor(threads, "standout-product") as pool:
        yield partial(add_panels, edges=edges, pool=pool)


def add_panels(total: Array, rows: Array, edges: list[int], pool: Executor) -> Array:
    """Add ``rows.T @ rows`` to the lower triangle of ``total`` in place, panel by panel of its columns."""
    for done in [pool.submit(_add_panel, total, rows, start, stop) for start, stop in pairwise(edges)]:
        done.result()
    return total


def _add_panel(total: Array, rows: Array, start: int, stop: int) -> None:
    """Add the columns from ``start`` to ``stop``, on and below the diagonal. numpy lets other threads run meanwhile."""
    with np.errstate(all="ignore"):  # that of the caller is not known in this thread
        product = rows[:, start:stop].T @ rows[:, start:]
        corner = product[:, : stop - start]
        corner[...] = np.triu(corner)
        total.T[start:stop, start:] += product


def _edges(n_features: int) -> list[int]:
    """Return where panels of the lower triangle begin and end, such that all have about the same area."""
    panels = max(1, min(_PANELS, n_features // _NARROW))
    return [round(n_features * (1 - (1 - panel / panels) ** 0.5)) for panel in range(panels + 1)]


def sums_of_sparse(source: Source, weights: ArrayLike | None, role: str) -> Sums | None:
    """Add up a sparse source; None where it is not sparse (enough), or where raw sums would not do."""
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
    if not _pays_off(matrix):
        return None
    with np.errstate(all="ignore"):
        mean, scatter = _raw(matrix, root, weight)
        variance = np.diagonal(scatter) / weight - mean * mean
        good = math.isfinite(variance.sum()) and bool((mean * mean <= NEAR_ZERO**2 * variance).all())
        if not good or ((variance < SMALLEST) & (variance > 0)).any():
            return None
    for row, value in zip(scatter, mean, strict=True):  # row by row: no second matrix of this size
        row -= weight * (value * mean)
    return Sums(mean, 0.0, scatter.T, weight, squared, matrix.shape[0], np.empty(0, dtype=np.intp))


def _pays_off(matrix: Any) -> bool:
    """Tell whether pairs of entries in one row are few enough, against all pairs of features."""
    entries = np.diff(matrix.indptr).astype(np.float64)
    return bool(DEARER * (entries @ entries) < matrix.shape[0] * float(matrix.shape[1]) ** 2)


def _raw(matrix: Any, root: Array | None, weight: float) -> tuple[Array, Array]:
    """Return the mean, and the products of all pairs of features summed over the rows."""
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
    """What was added up: mean, scatter about it, and counts."""

    mean: Array
    residue: Array | float  # what rounding took from the mean: parts are merged about the mean that it was before
    scatter: Array
    weight: float
    weight_squared: float
    rows: int
    underflown: NDArray[np.intp]  # features that vary, but by so little that the squares are lost


class Accumulator:
    """Adds up rows in place: one triangle, one buffer, float64 whatever comes in."""

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
        """All but the arrays: with these, what an accumulator is made of."""
        return {name: getattr(self, name) for name in ("shifted", "weight", "weight_squared", "rows")}

    def arrays(self) -> Iterator[Array]:
        """Yield the arrays an accumulator is made of, each in one piece of memory: of the scatter, one triangle."""
        yield self.sum
        yield self.shift
        for start in range(self.n_features):
            yield self.scatter[start:, start]

    def add(self, block: NDArray[Any], weights: Array | None = None) -> bool:
        """Add a block of rows; return False when the sums are no longer finite."""
        if len(block) == 0:
            return True
        self._follow(block, weights)
        # Overflow and NaN are looked for in the sums, once a block: they need no warning of their own.
        with np.errstate(all="ignore"):
            self._add(block, weights)
            # One number tells: NaN and inf survive every sum.
            told = self.sum.sum() + np.einsum("ii->", self.scatter)
        return math.isfinite(told)

    def _add(self, block: NDArray[Any], weights: Array | None) -> None:
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

    def _centred(self, block: NDArray[Any], copy: bool) -> Array:
        """Return the block minus the shift, in the buffer; the block itself where that is free."""
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

    def _follow(self, block: NDArray[Any], weights: Array | None) -> None:
        """Choose the shift from a few rows of the first block; move it when a block lies far from it."""
        few = block[:: max(1, len(block) // 64)].astype(np.float64, copy=False)
        with np.errstate(all="ignore"):
            if weights is None:
                mean = few.sum(axis=0) / len(few)
                square = np.einsum("ij,ij->j", few, few) / len(few)
            else:  # one row may outweigh all others: look at every one
                share = weights / weights.sum()
                mean = np.einsum("i,ij->j", share, block)
                square = np.einsum("i,ij,ij->j", share, block, block)
            apart = (mean - self.shift) ** 2
            if self.weight > 0:
                spread = np.maximum(square - mean * mean, np.diagonal(self.scatter) / self.weight)
                if not (apart > _FAR**2 * spread).any():
                    return
            elif (apart * (1 + NEAR_ZERO**-2) <= square).all():
                return
            # A constant must be met exactly: the mean of equal numbers may be off by a rounding error.
            shift = np.where((few == few[0]).all(axis=0), few[0], mean)
        # Rows of long doubles have means of long doubles, and BLAS takes none of these.
        self._move(np.where(np.isfinite(shift), shift, 0.0).astype(np.float64, copy=False))

    def _move(self, shift: Array) -> None:
        """Measure what was added so far from another shift: the scatter about its own mean stays."""
        moved = self.sum - self.weight * (shift - self.shift)
        if self.weight > 0:
            add_outer(self.scatter, self.sum, -1.0 / self.weight)
            add_outer(self.scatter, moved, 1.0 / self.weight)
        self.sum, self.shift, self.shifted = moved, shift, True

    def _underflown(self) -> NDArray[np.intp]:
        square = np.diagonal(self.scatter)
        return np.flatnonzero((square < SMALLEST * self.weight) & ((square > 0) | (self.sum != 0)))

    def finish(self) -> Sums:
        """Remove what the shift left of the mean, and fill the other triangle; nothing can be added after."""
        mean, residue = self.shift, np.zeros(self.n_features)
        if self.weight > 0:
            mean, residue = _sum_and_rest(mean, self.sum / self.weight)
            add_outer(self.scatter, self.sum, -1.0 / self.weight)
        lost = self._underflown()
        mirror(self.scatter)
        diagonal = np.einsum("ii->i", self.scatter)
        np.maximum(diagonal, 0.0, out=diagonal)
        return Sums(mean, residue, self.scatter, self.weight, self.weight_squared, self.rows, lost)


def sums_of_block(block: NDArray[Any], weights: Array | None) -> Sums | None:
    """Add up data that is one block: two passes in the cache, which small data does not notice.

    None where that is not good enough (a mean far from zero, a constant, a value that is not finite):
    then the accumulator must do it.
    """
    with np.errstate(all="ignore"):
        weight = float(len(block)) if weights is None else float(weights.sum())
        total = block.sum(axis=0, dtype=np.float64) if weights is None else weights @ block
        mean = np.asarray(total / weight, dtype=np.float64)
        centred = np.subtract(block, mean, dtype=np.float64, casting="unsafe")
        squared = weight
        if weights is not None:
            centred *= np.sqrt(weights)[:, None]
            squared = float((weights * weights).sum())
        scatter = (centred.T @ centred).T  # symmetric; F-ordered, as LAPACK likes it
        square = np.diagonal(scatter)
        steady = square > (_STEADY * mean) ** 2 * weight + SMALLEST * weight
        if not (steady.all() and math.isfinite(square.sum())):
            return None
    return Sums(mean, 0.0, scatter, weight, squared, len(block), np.empty(0, dtype=np.intp))


def merge_sums(one: Sums, other: Sums) -> Sums:
    """Return the sums of two parts together; values that are not finite stay so."""
    if one.weight == 0 or other.weight == 0:
        return other if one.weight == 0 else one
    with np.errstate(all="ignore"):
        mean, residue, scatter = merged_scatter(one, other)
        weight = one.weight + other.weight
        square = np.diagonal(scatter)
        varies = (square > 0) | (one.mean != other.mean)
        varies[one.underflown] = varies[other.underflown] = True
        lost = np.flatnonzero((square < SMALLEST * weight) & varies)
    squared = one.weight_squared + other.weight_squared
    return Sums(mean, residue, scatter, weight, squared, one.rows + other.rows, lost)


class _Added(Protocol):
    """Anything with a weighted mean and the scatter about it."""

    @property
    def mean(self) -> Array: ...
    @property
    def residue(self) -> Array | float: ...
    @property
    def scatter(self) -> Array: ...
    @property
    def weight(self) -> float: ...


def merged_scatter(one: _Added, other: _Added) -> tuple[Array, Array, Array]:
    """Return the mean of two parts together, what rounding took from it, and the scatter about it, in new arrays."""
    # Means that lie close together, far from zero, have an exact difference: what counts is in the residues.
    shift = (other.mean - one.mean) + (other.residue - one.residue)
    share = other.weight / (one.weight + other.weight)
    scatter = np.asfortranarray(one.scatter + other.scatter)
    blas.dger(one.weight * share, shift, shift, a=scatter, overwrite_a=1)
    mean, residue = _sum_and_rest(one.mean, one.residue + shift * share)
    return mean, residue, scatter


def _sum_and_rest(one: Array, other: Array) -> tuple[Array, Array]:
    """Return the sum of two numbers as rounded, and exactly what rounding took from it (Knuth's two-sum)."""
    total = one + other
    added = total - one
    return total, (one - (total - added)) + (other - added)
