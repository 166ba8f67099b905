"""What the user should know about how the components were found: counts, features and a remedy."""

from __future__ import annotations

import numpy as np

from standout.errors import ConditionWarning, ShrinkageWarning, StructuralWarning, listed, named_features
from standout.shrinkage import ROWS_PER_DIMENSION, Evidence
from standout.solve import split
from standout.solve.result import Eigen, Frame, Note
from standout.solve.task import Task


def shrinkage_notes(task: Task, evidence: Evidence, rho: float) -> tuple[Note, ...]:
    """Say that "auto" has shrunk the background, and why."""
    if task.wanted.shrinkage != "auto":
        return ()
    return (
        Note(
            ShrinkageWarning,
            f"the background covariance was shrunk toward its diagonal by {rho:.3g}, because "
            f"{evidence.rows + 1:.0f} background rows are few for {evidence.rank} dimensions (fewer than "
            f"{ROWS_PER_DIMENSION} for each). More background rows or fewer features would make the ratios exact; "
            "shrinkage=None gives the exact problem as it is.",
        ),
    )


def condition_note(reciprocal: float) -> Note:
    """Say that the covariances do not carry enough digits."""
    condition = f"about {1 / reciprocal:.1e}" if reciprocal > 0 else f"above {split.WORST_CONDITION:.0e}"
    return Note(
        ConditionWarning,
        f"the condition number of the background covariance is {condition}: from moments alone the ratios have "
        "few correct digits. Give the rows themselves (solver='auto' then uses the generalized SVD), or shrink.",
    )


def structural_notes(task: Task, eigen: Eigen, frame: Frame, constant: tuple[int, ...]) -> list[Note]:
    """Say where the infinite ratios come from."""
    if eigen.n_infinite == 0:
        return []
    if eigen.n_infinite <= len(constant):
        where = f"the features {listed(named_features(task.names, constant))} are constant in the background"
    else:
        weight = np.abs(eigen.vectors[:, : eigen.n_infinite]).max(axis=1)
        heavy = frame.alive[np.argsort(-weight, kind="stable")[:5]]
        where = (
            "the background satisfies an exact linear relation, in which "
            f"{listed(named_features(task.names, heavy))} have the largest weights"
        )
    return [
        Note(
            StructuralWarning,
            f"{eigen.n_infinite} ratios are infinite: {where}, while the target varies there. If that is an "
            "artefact of how the background was recorded, leave these features out or use shrinkage='oas'.",
        )
    ]
