"""Reshuffled ratios sorted into bins, beside the observed one: what pictures of a permutation test are made of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from standout.blas import Array

if TYPE_CHECKING:
    from standout.inference import PermutationTest

# Ratios that span more than this factor are drawn on a log axis.
_WIDE = 10.0
_FEWEST_BINS, _MOST_BINS = 6, 40


@dataclass(frozen=True, eq=False)
class Histogram:
    """How many reshufflings gave which ratio, and where the observed one lies."""

    edges: Array  # (n_bins + 1,)
    counts: Array  # (n_bins,)
    place: float  # of the observed ratio on the axis; an infinite one stands right of all others
    wide: bool  # whether a log axis is needed, of which the bins take equal parts


def null_histogram(test: PermutationTest, component: int) -> Histogram:
    """Sort the reshuffled ratios of a component into bins; infinite ones are put into the last."""
    null, observed = test.null[component], float(test.ratios[component])
    finite = null[np.isfinite(null)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (1.0, 2.0)
    if not high > low * (1 + 1e-9):
        low, high = 0.95 * low, 1.05 * high or 1.0
    right = max(high, observed) if math.isfinite(observed) else 1.3 * high
    wide = low > 0 and right / low > _WIDE
    n_bins = min(max(math.ceil(math.sqrt(len(null))), _FEWEST_BINS), _MOST_BINS)
    edges = np.geomspace(low, high, n_bins + 1) if wide else np.linspace(low, high, n_bins + 1)
    # Powers do not quite give the ends back.
    edges[0], edges[-1] = low, high
    counts = np.histogram(np.clip(null, low, high), edges)[0]
    return Histogram(edges, counts, observed if math.isfinite(observed) else right, wide)
