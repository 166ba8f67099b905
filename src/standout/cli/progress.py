"""Progress on the terminal: only where there is one, and only for what takes longer than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from standout.sources.progress import Progress, watching

# What is done sooner than this needs no bar.
_PATIENCE = 1.0


@contextmanager
def progress(quiet: bool) -> Iterator[None]:
    """Show how far reading has come, with rows per second and the time left."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    bar = _Bar()
    try:
        with watching(bar.tell):
            yield
    finally:
        bar.stop()


class _Bar:
    """One line for the pass that is under way."""

    def __init__(self) -> None:
        self.live: Any = None
        self.task: Any = None
        self.last: Progress | None = None
        self.began = time.monotonic()

    def tell(self, now: Progress) -> None:
        """Show a pass that has come so far."""
        if self.last is None or now.what != self.last.what or now.rows < self.last.rows:
            self._next()
        self.last = now
        if time.monotonic() - self.began < _PATIENCE:
            return
        if self.live is None:
            self._start()
        if self.task is None:
            self.task = self.live.add_task(now.what, total=None, told="")
        seconds = max(time.monotonic() - self.began, 1e-9)
        total = 1.0 if now.share is not None else None
        # A download counts no rows.
        told = f"{now.rows:,} rows {now.rows / seconds:,.0f} rows/s" if now.rows else ""
        self.live.update(self.task, completed=now.share or 0.0, total=total, told=told)

    def _next(self) -> None:
        self.began = time.monotonic()
        if self.live is not None and self.task is not None:
            self.live.remove_task(self.task)
        self.task = None

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Live

        self.live = Live(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[told]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self.live.start()

    def stop(self) -> None:
        """Take the line away."""
        if self.live is not None:
            self.live.stop()
