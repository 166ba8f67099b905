"""How much memory covariances may take, and what they would take."""

from __future__ import annotations

from standout.memory import default_budget
from standout.solve.task import Task


def memory_budget(task: Task) -> int:
    """Return the bytes that covariances may take: the default, or what a source was read with where that is more."""
    given = [int(getattr(data.source, "memory", None) or 0) for data in (task.target, *task.backgrounds)]
    return max(default_budget(), *given)


def covariance_bytes(task: Task) -> int:
    """Return what the road over covariances holds: one of each dataset, two scaled, one shrunk, one factor."""
    return (5 + len(task.backgrounds)) * 8 * task.target.n_features**2


def too_wide(task: Task) -> bool:
    """Tell whether matrices of features × features are beyond the budget."""
    return covariance_bytes(task) > memory_budget(task)


def too_long(task: Task) -> bool:
    """Tell whether matrices of rows × rows are beyond the budget."""
    return 3 * 8 * task.n_rows**2 > memory_budget(task)
