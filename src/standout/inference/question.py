"""What is asked of labelled rows: how backgrounds are mixed, and how the background is shrunk."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from standout.blas import Array
from standout.inference.coordinates import CONSTANT
from standout.mixture import Mix, Mixture
from standout.moments import Counts
from standout.shrinkage import Evidence, few_rows, intensity, shrinks


@dataclass(frozen=True)
class Question:
    """How the backgrounds are mixed and how the background is shrunk: None is not at all."""

    roles: tuple[str, ...]  # of the backgrounds
    mix: Mix
    shrinkage: str | float | None
    rank: int = 0  # joint rank of the rows, once settled
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

    def settled(self, sizes: tuple[int, ...], rank: int, structural: bool = False) -> Question:
        """Return the question with "auto" decided by the rule, once and for all labellings.

        ``structural`` says that the background does not vary in some direction: with rows enough the exact problem is
        solved then, as in a fit.
        """
        settled = replace(self, rank=rank)
        evidence = settled.evidence(self.mixture(sizes), rank, float(rank))
        if self.shrinkage == "auto":
            exact = not shrinks("auto", evidence) or (structural and not few_rows(evidence))
            return replace(settled, shrinkage=None if exact else "auto")
        if self.shrinkage in (None, 0.0):
            intensity(self.shrinkage, evidence)  # refuses a problem that has no answer
            return replace(settled, shrinkage=None)
        return settled

    def background_variance(self, rows: Array, labels: NDArray[np.intp]) -> Array:
        """Return the variance of each feature in the mixed backgrounds of a labelling."""
        parts = [rows[labels == number] for number in range(1, 1 + len(self.roles))]
        return self.mixture(tuple(map(len, parts))).mixed([part.var(axis=0) for part in parts])

    def evidence(self, mixture: Mixture, n_varying: int, trace_squared: float) -> Evidence:
        """Return what the shrinkage rule looks at, for a background correlation matrix with this tr S²."""
        return Evidence(mixture.rows, self.rank, mixture.effective, n_varying, trace_squared)


@dataclass(frozen=True)
class Earlier:
    """What is known of the rows before earlier components were removed.

    A small remainder must not be mistaken for the whole feature, nor the trace of a removed component for the
    variance of a feature that is constant in the background.
    """

    rows: Array  # as they were
    removed: Array  # background variance of each feature that went with the components, under the true labels

    def constant(self, question: Question, labels: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return which features were constant in the backgrounds of a labelling."""
        return question.background_variance(self.rows, labels) <= CONSTANT
