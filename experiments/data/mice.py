"""Data of the mice experiment: target, controls and missing values.

The paper states "267 points", "135 healthy mice" and "77 proteins". The rows are fifteen replicates per mouse, two
classes of nine mice match its "healthy", and 49 of the proteins have missing values, so there are several readings.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import Array
from standout.datasets.mice import Mice

# Two of the paper's proteins are the same column.
TWIN = "ARC_N"
# The three rows that the paper excluded (135 + 132 = 267) have this many missing proteins.
_MANY_MISSING = 43
_TREATED, _UNTREATED = "t-SC-m", "t-SC-s"
CONTROLS = ("c-CS-s", "c-SC-s")

# Simulated data have the counts of the paper: two classes of nine target mice and nine background mice, 15 rows each.
_PER_CLASS, _REPLICATES, _FEATURES = 9, 15, 76
_FACTORS, _WITHIN, _EFFECT = 12, 0.3, 0.6


@dataclass(frozen=True, eq=False)
class Reading:
    """Target and background rows in one reading of the paper, with their mice."""

    name: str
    target: Array
    background: Array
    kinds: NDArray[Any]  # (n_target,): class of each target row, not used by the methods
    mice: NDArray[Any]
    background_mice: NDArray[Any]
    features: tuple[str, ...]

    @property
    def subjects(self) -> dict[str, Any]:
        """The mouse of each row, as keyword arguments."""
        return {"groups": self.mice, "background_groups": self.background_mice}

    def without(self, features: Collection[str]) -> Reading:
        """Return the reading without some features."""
        return self.ordered([place for place, name in enumerate(self.features) if name not in features])

    def ordered(self, places: Sequence[int] | NDArray[np.intp]) -> Reading:
        """Return the reading with the features at these indices, in this order."""
        return replace(
            self,
            target=self.target[:, places],
            background=self.background[:, places],
            features=tuple(self.features[place] for place in places),
        )


def paper_readings(mice: Mice) -> list[Reading]:
    """Return the paper's target against both controls, without proteins with missing values and the duplicate."""
    target = mice.rows(_TREATED, _UNTREATED)
    return [_complete(control, target, mice.rows(control)).without([TWIN]) for control in CONTROLS]


def other_readings(mice: Mice) -> list[Reading]:
    """Return the same two with missing values imputed, and the rows that the authors of cPCA used."""
    imputed = [replace(all_proteins(mice, control).without([TWIN]), name=f"{control} imputed") for control in CONTROLS]
    notebook = _complete("cPCA's rows", mice.rows("c-SC-s", _UNTREATED), mice.rows("c-CS-s"))
    return [*imputed, notebook.without([TWIN])]


def all_proteins(mice: Mice, control: str) -> Reading:
    """Return the paper's target against one control with all 77 proteins; missing values are imputed by means."""
    found = _reading(control, mice.rows(_TREATED, _UNTREATED), mice.rows(control))
    return replace(found, target=_imputed(found.target), background=_imputed(found.background))


def _complete(name: str, target: Mice, background: Mice) -> Reading:
    found = _reading(name, target, background)
    missing = np.isnan(np.concatenate([found.target, found.background])).any(axis=0)
    return found.without([found.features[place] for place in np.flatnonzero(missing)])


def _reading(name: str, target: Mice, background: Mice) -> Reading:
    target = target.where(np.isnan(target.proteins).sum(axis=1) < _MANY_MISSING)
    return Reading(
        name=name,
        target=target.proteins,
        background=background.proteins,
        kinds=target.label,
        mice=target.mouse,
        background_mice=background.mouse,
        features=target.names,
    )


def _imputed(rows: Array) -> Array:
    return np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows)


def stand_in(seed: int) -> Reading:
    """Return simulated rows like those of the paper: 18 + 9 subjects with 15 replicates, and a duplicate feature.

    Subjects of target and background have the same distribution, and replicates are close to their subject. Only a weak
    effect on half of the target subjects is specific to the target.
    """
    rng = np.random.default_rng(seed)
    loadings = rng.normal(size=(_FACTORS, _FEATURES)) * np.geomspace(1.0, 0.3, _FACTORS)[:, None]
    direction = rng.normal(size=_FEATURES)
    subjects = rng.normal(size=(3 * _PER_CLASS, _FACTORS)) @ loadings
    subjects += 0.5 * rng.normal(size=subjects.shape)
    subjects[:_PER_CLASS] += _EFFECT * direction
    rows = np.repeat(subjects, _REPLICATES, axis=0)
    rows += _WITHIN * rng.normal(size=rows.shape)
    rows = np.column_stack([rows, rows[:, -1]])
    mice = np.repeat([f"subject {number + 1}" for number in range(3 * _PER_CLASS)], _REPLICATES)
    cut = 2 * _PER_CLASS * _REPLICATES
    return Reading(
        name="made up",
        target=rows[:cut],
        background=rows[cut:],
        kinds=np.repeat(["treated", "untreated"], cut // 2),
        mice=mice[:cut],
        background_mice=mice[cut:],
        features=(*(f"feature {number + 1}" for number in range(_FEATURES)), TWIN),
    )
