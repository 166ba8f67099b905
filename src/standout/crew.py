"""Multiplying blocks beside a thread that reads them: on threads of our own, each with a BLAS of one thread.

The threads of OpenBLAS spin while they wait for their next product, and take the core from the reader: with two
cores, reading ahead then takes longer than reading and multiplying in turns. Threads that wait asleep do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import pairwise

import numpy as np

from standout.blas import SMALL_WORK, Array, add_scatter, blas_threads, threads_for

# Adds ``rows.T @ rows`` to the lower triangle of a matrix (F-ordered) in place, and returns it.
AddScatter = Callable[[Array, Array], Array]

# Columns that a panel should have at least, and panels at most: each is one product of one thread.
_NARROW = 120
_PANELS = 8
# With more features a product takes so much longer than reading its rows that the spinning does not matter, and one
# call of BLAS for all columns is the fastest.
_WIDE = 2000


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
