"""The data and the question on their way through the solvers, and how many components that makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from standout.blas import Array
from standout.dataset import Dataset
from standout.errors import InputError, NotEnoughRowsError
from standout.mixture import Mix, Mixture
from standout.shrinkage import Evidence, GramShrinkage, Shrinkage, intensity, shrinks
from standout.spectrum import count_components, noise_edge

_S = TypeVar("_S", Shrinkage, GramShrinkage)


@dataclass(frozen=True)
class Wanted:
    """What the user asked for."""

    n_components: int | str | None = 2
    shrinkage: str | float | None = "auto"
    intensity: float | None = None  # ρ of shrinkage="auto", where that of another fit is kept
    mix: Mix = "pooled"
    own_centre: bool = True
    solver: str = "auto"
    axes: str = "ratio"
    graph: Any = None  # Laplacian of a graph of features
    smoothness: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Task:
    """The data and the question, on their way through the solvers."""

    target: Dataset
    backgrounds: Sequence[Dataset]
    mixture: Mixture | None
    wanted: Wanted
    settled: Shrinkage | None = None  # where the shares of the backgrounds were found with it

    def evidence(self, rank: int, n_varying: int, trace_squared: float) -> Evidence:
        """Return what the shrinkage rule looks at."""
        assert self.mixture is not None
        return Evidence(self.mixture.rows, rank, self.mixture.effective, n_varying, trace_squared)

    def finds_factors(self, evidence: Evidence) -> bool:
        """Whether the background estimate keeps shared factors: what "auto" does where rows are few."""
        return self.settled is None and self.wanted.shrinkage == "auto" and shrinks("auto", evidence)

    def kept(self, found: _S) -> _S:
        """Return the estimate with the intensity of another fit, where that is kept."""
        return found if self.wanted.intensity is None else replace(found, rho=self.wanted.intensity)

    def plain_shrinkage(self, evidence: Evidence) -> Shrinkage:
        """Return the shrinkage toward the diagonal that was asked for, or the one settled before."""
        return self.settled or Shrinkage(intensity(self.wanted.shrinkage, evidence))

    @property
    def rows_at_hand(self) -> bool:
        """Whether every dataset can be read again."""
        return all(data.rows is not None for data in (self.target, *self.backgrounds))

    @property
    def target_dimensions(self) -> int:
        """How many dimensions the target's rows can have about their centre."""
        own = self.mixture is None or self.wanted.own_centre
        return self.target.counts.rows - (1 if own else 0)

    @property
    def smooths(self) -> bool:
        """Whether rough components pay."""
        return self.wanted.graph is not None and self.wanted.smoothness > 0 and self.mixture is not None

    @property
    def names(self) -> tuple[str, ...] | None:
        """Feature names, where there are any."""
        return self.target.names

    @property
    def n_rows(self) -> int:
        """Rows of target and backgrounds together."""
        return sum(data.counts.rows for data in (self.target, *self.backgrounds))

    @property
    def judges_all(self) -> bool:
        """Whether every ratio must be known, not only those asked for."""
        return self.wanted.n_components == "auto" or self.wanted.axes == "signal"

    def units(self) -> tuple[float, float]:
        """Independent units of target and background."""
        background = self.mixture.units if self.mixture is not None else np.nan
        return self.target.counts.units, background

    def has_edge(self, rank: int) -> bool:
        """Whether edge and p-value have a meaning: more background units than dimensions."""
        return self.mixture is not None and self.mixture.units - 1 > rank


@dataclass(frozen=True)
class Count:
    """How many components are shown, and how many are kept to make them of."""

    shown: int
    kept: int


def how_many(task: Task, limit: int, plain: Array | None, rank: int | None = None) -> Count:
    """Return how many components to give, and for the signal's axes how many are above the noise edge."""
    shown = _asked(task, limit, plain, rank)
    kept = above_edge(task, limit, plain, rank) if task.wanted.axes == "signal" else None
    return Count(shown, shown) if kept is None else Count(min(shown, kept), kept)


def above_edge(task: Task, limit: int, plain: Array | None, rank: int | None) -> int | None:
    """Return how many components are above the noise edge; None where there is no edge."""
    if plain is None or rank is None or not task.has_edge(rank):
        return None
    return min(int((plain > noise_edge(rank, *task.units())).sum()), limit)


def _asked(task: Task, limit: int, plain: Array | None, rank: int | None) -> int:
    """Return the number asked for, all, or as many as pass the test."""
    wanted = task.wanted.n_components
    if wanted is None:
        return limit
    if wanted == "auto":
        m, n = task.units()
        if rank is None or plain is None or not task.has_edge(rank):
            raise NotEnoughRowsError(_no_auto(task, rank))
        return min(count_components(plain, rank, m, n), limit)
    assert isinstance(wanted, int)
    if wanted > limit:
        raise too_many(wanted, limit, task)
    return wanted


def _no_auto(task: Task, rank: int | None) -> str:
    if task.mixture is None:
        return "n_components='auto' compares target with background, and there is none. Give a background or a number."
    dimensions = f"the {rank} dimensions of the data" if rank is not None else "dimensions of the data"
    return (
        f"n_components='auto' needs more degrees of freedom in the background than {dimensions}, and "
        f"{task.mixture.units:.0f} independent units leave {task.mixture.units - 1:.0f}: no ratio can be told from "
        "noise by a formula. Give a number of components, more background rows or fewer features."
    )


def too_many(wanted: int, limit: int, task: Task) -> InputError:
    """Return the error for more components than the data can have."""
    features, rows = task.target.n_features, task.target.counts.rows
    return InputError(
        f"n_components={wanted}, and the data has only {limit} dimension{'s' if limit != 1 else ''} to offer "
        f"(n_features={features}, target n_samples={rows}). Ask for at most {limit}."
    )
