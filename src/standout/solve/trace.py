"""tr S² of a background correlation matrix that is never formed: what the OAS formula needs to know.

Exactly, ‖S‖² column by column, where that costs no more than a solve. Beyond that from random signs g:
``tr S² − 2 tr S + p = ‖S − I‖² = E ‖(S − I) g‖²``, the few directions in which S is large taken out first and added
exactly (Hutch++). The estimate is unbiased, the same for the same seed, and comes with its standard error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from standout.blas import Array

# Multiply-adds that the exact sum may cost.
EXACT_WORK = 5e9
# Columns multiplied at once; random vectors that find the large directions; those that measure the rest.
_WIDTH = 64
_LARGE = 12
_PROBES = 8


@dataclass(frozen=True)
class TraceSquared:
    """tr S², and the standard error of it: zero where it is exact."""

    value: float
    error: float = 0.0
    n_varying: int = 0

    @property
    def relative_error(self) -> float:
        """The standard error of ``tr S² − p``, relative to it: that of the OAS intensity."""
        return self.error / (self.value - self.n_varying) if self.error else 0.0


def trace_squared(
    times: Callable[[Array], Array], varying: Array, work: float, seed: int, trace: float
) -> TraceSquared:
    """Return tr S² for a correlation matrix, or one with this ``trace``, given by its products.

    ``varying`` is 1 for features that vary in the background and 0 elsewhere; ``work`` how many numbers one product
    with one vector looks at.
    """
    columns = np.flatnonzero(varying)
    if 2 * work * len(columns) <= EXACT_WORK:
        return TraceSquared(_exact(times, columns, len(varying)))
    return _estimated(times, varying, len(columns), seed, trace)


def _exact(times: Callable[[Array], Array], columns: NDArray[np.intp], size: int) -> float:
    total = 0.0
    for start in range(0, len(columns), _WIDTH):
        here = columns[start : start + _WIDTH]
        units = np.zeros((size, len(here)))
        units[here, np.arange(len(here))] = 1.0
        image = times(units)
        total += float(np.einsum("ij,ij->", image, image))
    return total


def _estimated(times: Callable[[Array], Array], varying: Array, p: int, seed: int, trace: float) -> TraceSquared:
    rng = np.random.default_rng([seed, 1])

    def signs(count: int) -> Array:
        return rng.choice([-1.0, 1.0], size=(len(varying), count)) * varying[:, None]

    basis = signs(_LARGE)
    for _ in range(2):
        basis, _ = np.linalg.qr(times(basis))
    apart = times(basis) - basis
    large = float(np.einsum("ij,ij->", apart, apart))
    probes = signs(_PROBES)
    probes -= basis @ (basis.T @ probes)
    apart = times(probes) - probes
    rest = np.einsum("ij,ij->j", apart, apart)
    error = float(rest.std(ddof=1) / np.sqrt(_PROBES))
    return TraceSquared(2 * trace - p + large + float(rest.mean()), error, p)
