"""What partial_fit keeps between batches: moments of the target and of each background."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from standout.dataset import Dataset
from standout.inputs import Inputs, Matched
from standout.moments import Moments
from standout.solve import Note


@dataclass(frozen=True)
class Sums:
    """Moments so far; adding a batch gives new sums and leaves these as they are."""

    target: Moments | None
    backgrounds: dict[str, Moments]
    kept: NDArray[np.intp] | None = None
    notes: tuple[Note, ...] = ()

    @staticmethod
    def known(batch: Matched) -> bool:
        """Tell whether the moments of a batch are there without another pass over its rows."""
        parts = (batch.inputs.target, *batch.inputs.backgrounds.values())
        return all(data is not None and ("moments" in data.__dict__ or data.given is not None) for data in parts)

    @classmethod
    def of(cls, batch: Matched) -> Sums:
        """Return the sums of a first batch."""
        inputs = batch.inputs
        target = None if inputs.target is None else inputs.target.moments
        backgrounds = {name: data.moments for name, data in inputs.backgrounds.items()}
        return cls(target, backgrounds, batch.kept, batch.notes)

    def plus(self, batch: Matched) -> Sums:
        """Return the sums with one more batch."""
        new = Sums.of(batch)
        target = _added(self.target, new.target)
        names = dict.fromkeys([*self.backgrounds, *new.backgrounds])
        merged = {name: _added(self.backgrounds.get(name), new.backgrounds.get(name)) for name in names}
        return Sums(target, {name: part for name, part in merged.items() if part is not None}, self.kept, self.notes)

    def matched(self) -> Matched:
        """Return the sums as inputs of a fit."""
        target = None if self.target is None else Dataset("target", given=self.target)
        backgrounds = {name: Dataset(name, given=part) for name, part in self.backgrounds.items()}
        return Matched(Inputs(target, backgrounds), self.kept, self.notes)


def _added(one: Moments | None, other: Moments | None) -> Moments | None:
    if one is None or other is None:
        return one if other is None else other
    return one + other
