"""Telling how far a long read has come, to whoever watches: readers tell, a terminal may show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How far a pass over a file has come."""

    what: str  # the file
    rows: int  # rows so far
    share: float | None  # of the whole, from 0 to 1, where it is known


_watcher: ContextVar[Callable[[Progress], None] | None] = ContextVar("standout_progress", default=None)


@contextmanager
def watching(tell: Callable[[Progress], None]) -> Iterator[None]:
    """Have every reader inside tell its progress, block by block.

    Examples
    --------
    >>> seen = []
    >>> with watching(seen.append):
    ...     report("rows.csv", 10, 0.5)
    >>> seen
    [Progress(what='rows.csv', rows=10, share=0.5)]
    """
    before = _watcher.set(tell)
    try:
        yield
    finally:
        _watcher.reset(before)


def report(what: str, rows: int, share: float | None = None) -> None:
    """Tell the watcher, if there is one."""
    tell = _watcher.get()
    if tell is not None:
        tell(Progress(what, rows, share))
