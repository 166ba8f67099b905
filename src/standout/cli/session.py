"""Run a command: progress, notes and output, and arguments of the library shown as options."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from standout._model import plain
from standout.errors import OutputError, StandoutWarning, spell_arguments
from standout.io.output import check_table_path, check_writable
from standout.io.source import Progress, watching

# Seconds before a pass over a file shows a progress bar.
_DELAY = 1.0
# Arguments of the library whose option has the same name, and the others.
_SAME = (
    "missing", "label", "groups", "ids", "drop", "key", "memory", "checkpoint", "shrinkage", "axes", "mix", "normalize",
    "centering", "solver", "alpha", "kernel", "gamma",
)  # fmt: skip
_OPTIONS = {name: f"--{name}" for name in _SAME} | {
    "columns": "--features", "n_components": "-k", "n_landmarks": "--landmarks", "groups_match": "--groups-match",
    "random_state": "--seed", "where": "--by",
}  # fmt: skip


def in_options(message: str) -> str:
    """Return a message of the library with its arguments shown as options.

    Examples
    --------
    >>> in_options("Use `missing='auto'`, `n_components=None` or `features='common'`.")
    'Use --missing auto, -k all or --common.'
    """
    return spell_arguments(message, _option)


def _option(name: str, value: object) -> str | None:
    if (name, value) == ("features", "common"):
        return "--common"
    if name not in _OPTIONS or value is ...:
        return _OPTIONS.get(name)
    if value is None:
        value = "all" if name == "n_components" else "none"
    return f"{_OPTIONS[name]} {value if isinstance(value, str) and ' ' not in value else repr(value)}"


class Session:
    """Runs the work of a command and prints its result.

    Parameters
    ----------
    given : dict
        The options of the command; those of :func:`telling_options` are removed from it.
    """

    def __init__(self, given: dict[str, Any]):
        self.as_json, self.quiet = given.pop("as_json"), given.pop("quiet")
        given.pop("debug")
        self.notes: dict[str, None] = {}  # in the order of their first occurrence
        self.summarized: list[str] = []

    @contextmanager
    def working(self) -> Iterator[None]:
        """Show progress, and collect the warnings of the library as notes."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", StandoutWarning)
            with progress(self.quiet or self.as_json):
                yield
        self.notes |= {str(warning.message): None for warning in caught}

    def summarize(self, notes: Iterable[str]) -> None:
        """Register notes that the printed summary contains, so that they are not repeated after it."""
        self.summarized += notes

    def tell(self, facts: dict[str, Any], text: str, written: Mapping[str, Path | None]) -> None:
        """Print the result: ``facts`` as JSON, or ``text``, the files written and the notes."""
        files = {name: str(path) for name, path in written.items() if path is not None}
        if self.as_json:
            whole = {**facts, "files": files, "warnings": list(self.notes)}
            click.echo(json.dumps(plain(whole), indent=2, ensure_ascii=False))
            return
        if text:
            click.echo("\n".join(map(in_options, text.split("\n"))))
        if files:
            width = max(map(len, files))
            click.echo("\n" + "\n".join(f"{name:<{width}}  {path}" for name, path in files.items()))
        if not self.quiet:
            for note in self.notes:
                if note not in self.summarized:
                    click.echo(f"note: {in_options(note)}", err=True)


@contextmanager
def progress(quiet: bool) -> Iterator[None]:
    """Show a progress bar on a terminal while files are read."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    bar = _ProgressBar()
    try:
        with watching(bar.update):
            yield
    finally:
        bar.live.stop()


class _ProgressBar:
    """One line with the current pass over a file: rows per second and the time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Live

        self.live = Live(
            TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(), console=Console(stderr=True), transient=True,
        )  # fmt: skip
        self.task: Any = None
        self.last: Progress | None = None
        self.began = time.monotonic()

    def update(self, now: Progress) -> None:
        """Show how far the pass is, once it takes longer than a second."""
        if self.last is None or now.what != self.last.what or now.rows < self.last.rows:  # a new pass
            self.began = time.monotonic()
            if self.task is not None:
                self.live.remove_task(self.task)
            self.task = None
        self.last = now
        seconds = max(time.monotonic() - self.began, 1e-9)
        if seconds < _DELAY:
            return
        if self.task is None:
            self.live.start()
            self.task = self.live.add_task(now.what, total=None, speed="")
        total = 1.0 if now.share is not None else None
        # A download reports no rows.
        speed = f"{now.rows:,} rows {now.rows / seconds:,.0f} rows/s" if now.rows else ""
        self.live.update(self.task, completed=now.share or 0.0, total=total, speed=speed)


def check_outputs(
    outputs: Mapping[str, Path | None], inputs: Sequence[str | Path], tables: Collection[str] = ("--scores",)
) -> None:
    """Refuse an output that cannot be written, or that would overwrite an input or another output."""
    taken = {os.path.realpath(os.path.expanduser(given)): "an input" for given in inputs}
    for name, path in outputs.items():
        if path is None:
            continue
        wanted = str((check_table_path if name in tables else check_writable)(path, name))
        if wanted in taken:
            raise OutputError(f"{name}: {path} is also {taken[wanted]} and would be overwritten. Give another name.")
        taken[wanted] = name


def command_line() -> str:
    """Return the command as the user gave it."""
    return shlex.join(["standout", *click.get_current_context().find_root().obj])
