"""What is asked of labelled rows: how backgrounds are mixed, and how the background is shrunk."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from standout.mixture import Mix, Mixture
from standout.moments import Counts
from standout.shrinkage import Evidence, intensity, needs_rows, oas


@dataclass(frozen=True)
class Question:
    """How the backgrounds are mixed and how the background is shrunk: None is not at all."""

    roles: tuple[str, ...]  # of the backgrounds
    mix: Mix
    shrinkage: str | float | None
    spanned: int = 0  # the number of features, where rows are given by coordinates in their span
    _mixtures: dict[tuple[int, ...], Mixture] = field(default_factory=dict, repr=False)

    def mixture(self, sizes: tuple[int, ...]) -> Mixture:
        """Return the mixture of backgrounds of these sizes."""
        if sizes not in self._mixtures:
            self._mixtures[sizes] = Mixture.of([Counts(n, n, n, n) for n in sizes], self.mix, self.roles)
        return self._mixtures[sizes]

    def mixed_as(self, sizes: tuple[int, ...]) -> Question:
        """Return the question with the shares that backgrounds of these sizes have, whatever is drawn of them."""
        if len(sizes) == 1 or not isinstance(self.mix, str) or self.mix != "pooled":
            return self
        return replace(self, mix=np.array(sizes, dtype=np.float64), _mixtures={})

    def settled(self, sizes: tuple[int, ...], rank: int) -> Question:
        """Return the question with "auto" decided by the rule, once and for all labellings."""
        mixture = self.mixture(sizes)
        evidence = Evidence(mixture.rows, rank, mixture.effective, rank, float(rank))
        if self.shrinkage == "auto":
            return replace(self, shrinkage="oas" if needs_rows(evidence) else None)
        if self.shrinkage in (None, 0.0):
            intensity(self.shrinkage, evidence)  # refuses a problem that has no answer
            return replace(self, shrinkage=None)
        return self

    def intensity(self, mixture: Mixture, n_varying: int, trace_squared: float) -> float:
        """Return how much to shrink a background whose correlation matrix has this tr S²."""
        if isinstance(self.shrinkage, str):
            return oas(Evidence(mixture.rows, 0, mixture.effective, n_varying, trace_squared))
        return float(self.shrinkage or 0.0)
