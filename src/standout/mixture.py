"""Several backgrounds as one: each keeps its own mean and moments, and has a share in the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from standout.blas import Array
from standout.errors import InputError, listed
from standout.moments import Counts, Moments

Mix = str | ArrayLike | Mapping[Any, float]


@dataclass(frozen=True)
class Mixture:
    """The shares of the backgrounds, and what they are worth together.

    A weighted sum of covariances with νₖ degrees of freedom each has 1/Σ(ωₖ²/νₖ) of them, which is
    n − K for K pooled backgrounds.
    """

    shares: Array
    rows: float  # rows, less one for each background's mean
    effective: float  # degrees of freedom in effective rows
    units: float  # independent units, as if there were one background

    @classmethod
    def of(cls, counts: Sequence[Counts], mix: Mix, names: Sequence[str] = ()) -> Mixture:
        """Work out the shares: "pooled" by weight, "equal", or as given (a dict by the backgrounds' names)."""
        if isinstance(mix, Mapping):
            mix = _by_name(mix, names)
        shares = _shares(np.array([count.weight for count in counts]), mix)
        used = [(share, count) for share, count in zip(shares, counts, strict=True) if share > 0]
        return cls(
            shares,
            rows=float(sum(count.rows - 1 for _, count in used)),
            effective=_freedom([(share, count.effective) for share, count in used]),
            units=1 + _freedom([(share, count.units) for share, count in used]),
        )

    def covariance(self, parts: Sequence[Moments]) -> Array:
        """Return the mixed covariance; every background is centred by its own mean."""
        total: Array = parts[0].scatter * (self.shares[0] / parts[0].weight)
        for share, part in zip(self.shares[1:], parts[1:], strict=True):
            total += part.scatter * (share / part.weight)
        return total

    def mixed(self, rows: Sequence[Array]) -> Array:
        """Return the weighted average of one non-negative array per background (variances, products)."""
        return np.asarray(sum(share * row for share, row in zip(self.shares, rows, strict=True)))

    def mixed_means(self, means: Sequence[Array] | Array) -> Array:
        """Return the weighted average of the backgrounds' means: exactly c where every mean is c.

        Shares add up to one only up to rounding, so ``mixed`` may be off in the last digit, and a feature that is
        constant everywhere would seem to have moved. Hence m₀ + Σ ωₖ (mₖ − m₀), from the largest share.
        """
        first = means[int(np.argmax(self.shares))]
        return np.asarray(first + sum(share * (mean - first) for share, mean in zip(self.shares, means, strict=True)))


def _by_name(mix: Mapping[Any, float], names: Sequence[str]) -> list[float]:
    """Return the shares in the order of the backgrounds' names, which end with the key they were given under."""
    known = {f"background {key!r}": share for key, share in mix.items()}
    if set(known) != set(names):
        raise InputError(
            f"mix: shares for {listed(list(known))}, and the backgrounds are {listed(list(names))}. Give one share for "
            "each background, under its name."
        )
    return [known[name] for name in names]


def _freedom(used: Sequence[tuple[float, float]]) -> float:
    if any(size <= 1 for _, size in used):
        return 0.0
    return float(1 / sum(share**2 / (size - 1) for share, size in used))


def _shares(weights: Array, mix: str | ArrayLike) -> Array:
    if isinstance(mix, str):
        return np.asarray(weights / weights.sum()) if mix == "pooled" else np.full(len(weights), 1 / len(weights))
    given = np.asarray(mix)
    if given.dtype.kind not in "fiu":
        raise InputError(f"mix={mix!r} is not possible. Use 'pooled', 'equal' or one number for each background.")
    shares = given.astype(np.float64)
    if shares.shape != weights.shape:
        raise InputError(
            f"mix: {shares.size} shares for {len(weights)} backgrounds. Give one share for each background."
        )
    if not np.isfinite(shares).all() or (shares < 0).any() or shares.sum() <= 0:
        raise InputError(
            f"mix: shares {shares.tolist()} are not possible. Give finite shares, none negative and not all zero."
        )
    return np.asarray(shares / shares.sum())
