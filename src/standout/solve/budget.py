"""How much memory covariances may take, and what they would take."""

from __future__ import annotations

import os

from standout.solve.task import Task

# A quarter of the machine's memory (all of it, not what is free now: the same data must take the same road
# tomorrow), and no more than lets a dense eigenproblem end in minutes.
_SHARE = 0.25
_LEAST, _MOST = 10**9, 8 * 10**9


def memory_budget(task: Task) -> int:
    """Return the bytes that covariances may take: the default, or what a source was read with where that is more."""
    given = [int(getattr(data.source, "memory", None) or 0) for data in (task.target, *task.backgrounds)]
    return max(_default(), *given)


def covariance_bytes(task: Task) -> int:
    """Return what the road over covariances holds: one of each dataset, two scaled, one shrunk, one factor."""
    return (5 + len(task.backgrounds)) * 8 * task.target.n_features**2


def too_wide(task: Task) -> bool:
    """Tell whether matrices of features × features are beyond the budget."""
    return covariance_bytes(task) > memory_budget(task)


def too_long(task: Task) -> bool:
    """Tell whether matrices of rows × rows are beyond the budget."""
    return 3 * 8 * task.n_rows**2 > memory_budget(task)


def _default() -> int:
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not told here
        physical = 0
    return int(min(max(_SHARE * physical, _LEAST), _MOST))
