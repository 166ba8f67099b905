"""What a report is made of: the views, the rows that are drawn, and what is said about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from standout.blas import Array
from standout.estimators.base import Contrast
from standout.model import Model
from standout.show.labels import Labels
from standout.sources.files.source import Account

if TYPE_CHECKING:
    from standout.inference import Trust


@dataclass(frozen=True)
class View:
    """One method's look at the data."""

    name: str
    estimator: Contrast
    model: Model
    scores: tuple[Array, ...]  # of each part, (n_drawn, n_components)


@dataclass(frozen=True)
class Part:
    """The rows of one dataset that are drawn."""

    name: str
    n_rows: int  # all of them
    drawn: NDArray[np.intp]  # positions of those that are drawn
    labels: Labels | None  # of those drawn
    ids: tuple[str, ...] | None  # of those drawn


@dataclass(frozen=True)
class Contents:
    """Everything a report tells."""

    title: str
    views: tuple[View, ...]  # the main one first
    parts: tuple[Part, ...]  # the target first
    accounts: tuple[Account, ...]
    notes: tuple[str, ...]
    command: str | None
    code: str
    trust: Trust | None = None

    @property
    def main(self) -> View:
        """The view the report is about."""
        return self.views[0]


@dataclass(frozen=True)
class Section:
    """A part of the page: a heading, what stands under it, and the figures in it.

    A figure called ``name`` is drawn in the element ``figure-name``: ``{"data": [...], "layout": {...}}`` as plotly
    has it.
    """

    key: str
    title: str
    html: str  # safe: what comes from the data is escaped in it
    figures: dict[str, Any] = field(default_factory=dict)
