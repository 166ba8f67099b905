"""What the user should know about how the components were found: counts, features and a remedy."""

from __future__ import annotations

import numpy as np

from standout.errors import ConditionWarning, RankWarning, ShrinkageWarning, StructuralWarning, listed, named_features
from standout.shrinkage import ROWS_PER_DIMENSION, Evidence, estimate_text, few_rows
from standout.solve import split
from standout.solve.result import Eigen, Frame, Note
from standout.solve.task import Task

# Sums have 16 digits of a variance, so 8 of an sd.
_UNTOLD = 1e-7
_REMEDY = {False: "bring the rows into memory for the generalized SVD", True: "use solver='gsvd'"}


def shrinkage_notes(
    task: Task, evidence: Evidence, rho: float, n_factors: int = 0, error: float = 0.0
) -> tuple[Note, ...]:
    """Warn that "auto" has shrunk the background much, and why; ``error`` is relative, where ρ is an estimate."""
    if task.wanted.shrinkage not in ("auto", "diagonal") or not few_rows(evidence):
        return ()
    return (
        Note(
            ShrinkageWarning,
            f"{_counted(task)} are few for {evidence.rank} dimensions (fewer than {ROWS_PER_DIMENSION} for each), so "
            f"the background covariance was estimated by {estimate_text(rho, n_factors, _within(error))}. More "
            "background rows or fewer features need less shrinkage; shrinkage=None solves the exact problem.",
        ),
    )


def _within(error: float) -> str:
    return f" (estimated from random vectors, to {100 * error:.2g} %)" if error > 0 else ""


def _counted(task: Task) -> str:
    """Return how many background rows there are, and what they are worth where that is less."""
    assert task.mixture is not None
    rows = sum(data.counts.rows for data in task.backgrounds)
    worth = task.mixture.effective + len(task.backgrounds)
    return f"{rows} background rows" + (f" (worth {worth:.0f})" if worth < 0.95 * rows else "")


def condition_note(reciprocal: float) -> Note:
    """Say that the covariances do not carry enough digits."""
    condition = f"about {1 / reciprocal:.1e}" if reciprocal > 0 else f"above {split.WORST_CONDITION:.0e}"
    return Note(
        ConditionWarning,
        f"the condition number of the background covariance is {condition}: from moments alone the ratios have "
        "few correct digits. Give the rows themselves (solver='auto' then uses the generalized SVD), or shrink.",
    )


def lost_note(task: Task, count: int) -> Note:
    """Say that sums show no variance in some directions, where the rows might."""
    directions = "1 direction is" if count == 1 else f"{count} directions are"
    return Note(
        RankWarning,
        f"{directions} left out, in which neither target nor background varies by more than about {_UNTOLD:.0e} of the "
        "sd of its features: sums do not tell less from rounding. That is right for a feature that stands twice or "
        f"shares that add up to one; where it is not, {_REMEDY[task.rows_at_hand]}, or give differences of features "
        "that are almost the same.",
    )


def structural_notes(task: Task, eigen: Eigen, frame: Frame, constant: tuple[int, ...]) -> list[Note]:
    """Say where the infinite ratios come from."""
    count = eigen.n_infinite
    if count == 0:
        return []
    if count <= len(constant):
        named = listed(named_features(task.names, constant))
        one = len(constant) == 1
        where = f"the feature{'' if one else 's'} {named} {'is' if one else 'are'} constant in the background"
    else:
        weight = np.abs(eigen.vectors[:, :count]).max(axis=1)
        order = np.argsort(-weight, kind="stable")
        heavy = frame.alive[order[weight[order] > 0.1 * weight.max()]]
        where = f"the background satisfies an exact linear relation between {listed(named_features(task.names, heavy))}"
        if not task.rows_at_hand:
            where += f" (exact to {_UNTOLD:.0e} of their sd, as sums tell no more)"
    ratios = "1 ratio is" if count == 1 else f"{count} ratios are"
    return [
        Note(
            StructuralWarning,
            f"{ratios} infinite: {where}, while the target varies there. If that is an artefact of how the background "
            "was recorded, leave these features out or use shrinkage='oas'.",
        )
    ]
