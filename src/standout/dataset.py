"""A dataset as the solvers get it: rows with weights and groups, or moments alone."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from standout.blas import Array
from standout.errors import InputError
from standout.moments import Counts, Moments
from standout.sources import RowSource, RowView, Source, has_rows, read, select_columns
from standout.sources.weighted import check_weights, distinct_groups


@dataclass(frozen=True)
class Dataset:
    """One dataset under the name it has in messages."""

    role: str
    source: Source | None = None
    given: Moments | None = None
    weights: ArrayLike | None = None
    groups: Sequence[Hashable] | NDArray[Any] | None = None

    @classmethod
    def of(cls, role: str, data: Any, weights: ArrayLike | None = None, groups: Any = None) -> Dataset:
        """Read anything: rows in any form, or moments."""
        if isinstance(data, Moments):
            if weights is not None or groups is not None:
                raise InputError(
                    f"{role}: moments already hold their weights and groups. Give these to Moments.of instead."
                )
            return cls(role, given=data)
        return cls(role, read(data, role=role), weights=weights, groups=groups)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Feature names, where there are any."""
        return self.source.names if self.source is not None else self._moments_given.names

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.source.n_features if self.source is not None else self._moments_given.n_features

    @property
    def rows(self) -> RowSource | None:
        """The rows, where they can be read as often as needed."""
        return self.source if has_rows(self.source) else None

    @property
    def _moments_given(self) -> Moments:
        assert self.given is not None
        return self.given

    @cached_property
    def moments(self) -> Moments:
        """The moments: as given, or added up in one pass over the rows."""
        if self.given is not None:
            return self.given
        return Moments.of(self.source, weights=self.weights, groups=self.groups, role=self.role)

    @cached_property
    def row_weights(self) -> Array:
        """The weight of each row (ones where none were given)."""
        assert self.rows is not None and self.rows.n_rows is not None
        if self.weights is None:
            return np.ones(self.rows.n_rows)
        return check_weights(self.weights, self.rows.n_rows, self.role)

    @cached_property
    def counts(self) -> Counts:
        """How much data there is, without a pass over the rows where these are at hand."""
        if self.rows is None:
            return self.moments.counts
        groups = self.groups if self.groups is not None else self.rows.groups
        if self.weights is None and groups is None:
            n_rows = self.rows.n_rows or 0
            return Counts(n_rows, n_rows, n_rows, n_rows)
        weights = self.row_weights
        n_rows = int(np.count_nonzero(weights))
        total = float(weights.sum())
        effective = total**2 / float((weights * weights).sum())
        if groups is None:
            return Counts(n_rows, total, effective, effective)
        ids = distinct_groups(groups, self.weights, len(weights), self.role)
        return Counts(n_rows, total, effective, float(len(ids)))

    def counted(self) -> Dataset:
        """Return the dataset without its rows of weight zero."""
        if self.weights is None or self.rows is None or self.row_weights.all():
            return self
        index = np.flatnonzero(self.row_weights)
        groups = None if self.groups is None else np.asarray(self.groups)[index]
        return replace(self, source=RowView(self.rows, index), weights=self.row_weights[index], groups=groups)

    def select(self, index: NDArray[np.intp]) -> Dataset:
        """Return the dataset with the features at ``index``, in that order."""
        if self.source is not None:
            return replace(self, source=select_columns(self.source, index))
        return replace(self, given=self._moments_given.select(index))
