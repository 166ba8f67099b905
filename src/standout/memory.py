"""How much memory this machine has, and how much of it tables of features × features may take."""

from __future__ import annotations

import os

# A quarter of the machine's memory (all of it, not what is free now: the same data must take the same road
# tomorrow), and no more than lets a dense eigenproblem end in minutes.
_SHARE = 0.25
_LEAST, _MOST = 10**9, 8 * 10**9


def default_budget() -> int:
    """Return the bytes that covariances may take where nothing else was said."""
    return int(min(max(_SHARE * physical_memory(), _LEAST), _MOST))


def physical_memory() -> int:
    """Return the bytes of memory that this machine has; 0 where it does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0
