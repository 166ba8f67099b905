"""How much to shrink the background covariance, and when.

With few rows for its features, a background covariance is poorly known in its small directions, and
those are the ones a ratio divides by. The remedy is to shrink it toward its diagonal,
``C(ρ) = (1 − ρ)·C + ρ·diag(s²)``, with ρ by the oracle approximating formula (OAS), which needs only
traces. In background-sd units that is the correlation matrix shrunk toward the identity, so the
result does not depend on the features' units.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from standout.errors import NotEnoughRowsError

Regime = Literal["exact", "structural", "shrunk"]

# Exact while there are at least this many background rows (less one) for each joint dimension.
ROWS_PER_DIMENSION = 10


@dataclass(frozen=True)
class Evidence:
    """What the rule looks at: how many rows the background has, and how many dimensions there are."""

    rows: float  # background rows, less one for each background's mean
    rank: int  # joint rank of target and background
    effective: float  # effective background rows (Kish), less one for each mean
    n_varying: int  # features that vary in the background
    trace_squared: float  # tr S² of the background correlation matrix S


def oas(evidence: Evidence) -> float:
    """Return the OAS intensity for a correlation matrix.

    Examples
    --------
    >>> few = Evidence(rows=20, rank=10, effective=20, n_varying=10, trace_squared=15.0)
    >>> many = Evidence(rows=2000, rank=10, effective=2000, n_varying=10, trace_squared=15.0)
    >>> oas(few) > 100 * oas(many) / 2 > 0
    True
    """
    p, trace = evidence.n_varying, float(evidence.n_varying)
    spread = evidence.trace_squared - trace * trace / p
    if p < 2 or spread <= 1e-12 * trace * trace:  # already the identity: shrinking changes nothing
        return 1.0
    top = (1 - 2 / p) * evidence.trace_squared + trace * trace
    return min(1.0, top / ((evidence.effective + 1 - 2 / p) * spread))


def needs_rows(evidence: Evidence) -> bool:
    """Tell whether the background has too few rows for the exact problem to be trusted."""
    # Rows that hardly weigh, or hardly have a share, are no evidence.
    return min(evidence.rows, evidence.effective) < ROWS_PER_DIMENSION * evidence.rank


def shrinks(shrinkage: str | float | None, evidence: Evidence) -> bool:
    """Tell whether the OAS formula is asked, which needs to know tr S²."""
    return shrinkage == "oas" or (shrinkage == "auto" and needs_rows(evidence))


def intensity(shrinkage: str | float | None, evidence: Evidence) -> float:
    """Return ρ for what the user asked: "auto", "oas", a number, or None (the exact problem)."""
    if shrinks(shrinkage, evidence):
        return oas(evidence)
    if shrinkage == "auto":
        return 0.0
    rho = 0.0 if shrinkage is None else float(shrinkage)
    if rho == 0 and evidence.rows < evidence.rank:
        raise NotEnoughRowsError(
            f"the exact problem (shrinkage={shrinkage}) has no answer: the background has "
            f"{evidence.rows + 1:.0f} rows, and {evidence.rank} dimensions need at least "
            f"{evidence.rank + 1}. Use shrinkage='auto', or give more background rows or fewer features."
        )
    return rho
