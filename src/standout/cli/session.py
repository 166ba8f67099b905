"""Run a command: progress, notes, output, and the checks before any work."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import time
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from standout._summary import plain
from standout.cli.options import in_options
from standout.errors import DoubtWarning, OutputError, StandoutWarning, visible
from standout.io.output import SUFFIXES, check_table_path, check_writable, replacing
from standout.io.read import split_key
from standout.io.source import Progress, watching

# Seconds before a pass over a file shows a progress bar.
_DELAY = 1.0


class Session:
    """Runs the work of a command and prints its result; takes ``output_options`` from the given options."""

    def __init__(self, given: dict[str, Any]):
        self.as_json, self.quiet = given.pop("as_json"), given.pop("quiet")
        given.pop("debug")
        self.notes: dict[str, Any] = {}  # the category of each, in the order of their first occurrence

    @contextmanager
    def working(self) -> Iterator[None]:
        """Show progress on a terminal, and collect the warnings of the library as notes."""
        hidden = self.quiet or self.as_json or sys.stderr is None or not sys.stderr.isatty()
        with warnings.catch_warnings(record=True) as caught, nullcontext() if hidden else _progress_bar():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", StandoutWarning)
            yield
        self.notes |= {str(warning.message): warning.category for warning in caught}

    def show(
        self, result: dict[str, Any], text: str, written: Mapping[str, Path | None], noted: Collection[str] = ()
    ) -> None:
        """Print the result as JSON, or ``text``, the files written and the notes that are not in ``noted``.

        Doubts about the data are printed to stderr in any case: neither --quiet nor --json hides them.
        """
        files = {name: str(path) for name, path in written.items() if path is not None and not is_stdout(path)}
        err = any(is_stdout(path) for path in written.values())  # standard output has the data alone
        if self.as_json:
            whole = {**result, "files": files, "warnings": list(self.notes)}
            echo(json.dumps(plain(whole), indent=2, ensure_ascii=False))
        elif text:
            echo("\n".join(map(in_options, text.split("\n"))), err=err)
        if files and not self.as_json:
            width = max(map(len, files))
            lines = (f"{name:<{width}}  {visible(path, lines=False)}" for name, path in files.items())
            echo("\n" + "\n".join(lines), err=err)
        hidden, noted = self.quiet or self.as_json, {visible(text, lines=False) for text in noted}  # as warnings are
        for note, kind in self.notes.items():
            shown = issubclass(kind, DoubtWarning) if hidden else note not in noted
            if shown:
                echo(f"note: {in_options(note)}", err=True)


def echo(text: str, *, err: bool = False) -> None:
    """Print text: the only way to the terminal, so that nothing in a file or its name can control it."""
    click.echo(visible(text), err=err)


@contextmanager
def _progress_bar() -> Iterator[None]:
    """Show one line with the current pass over a file, once it takes longer than a second."""
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}", markup=False), progress.BarColumn(),
        progress.TextColumn("{task.fields[speed]}"), progress.TimeRemainingColumn(),
    )  # fmt: skip
    live = progress.Progress(*columns, console=Console(stderr=True), transient=True)
    last, began, bar = Progress("", 0, None), 0.0, None

    def update(now: Progress) -> None:
        nonlocal last, began, bar
        if now.what != last.what or now.rows < last.rows:  # a new pass
            began = time.monotonic()
            if bar is not None:
                live.remove_task(bar)
            bar = None
        last = now
        seconds = max(time.monotonic() - began, 1e-9)
        if seconds < _DELAY:
            return
        if bar is None:
            live.start()
            bar = live.add_task(visible(now.what, lines=False), total=None, speed="")
        # A download reports no rows.
        speed = f"{now.rows:,} rows {now.rows / seconds:,.0f} rows/s" if now.rows else ""
        live.update(bar, completed=now.share or 0.0, total=None if now.share is None else 1.0, speed=speed)

    try:
        with watching(update):
            yield
    finally:
        live.stop()


def check_outputs(
    outputs: Mapping[str, Path | None], inputs: Sequence[str | Path], tables: Collection[str] = ("--scores",),
    models: Collection[str] = (),
) -> None:  # fmt: skip
    """Refuse an output that cannot be written, or that would overwrite an input or another output."""
    if [str(given) for given in inputs].count("-") > 1:
        raise click.UsageError("Standard input (-) can be one of the inputs only. Give files for the others.")
    taken = {os.path.realpath(os.path.expanduser(split_key(given)[0])): "an input" for given in inputs}
    for name, path in outputs.items():
        if path is None:
            continue
        if is_stdout(path):
            _check_stdout(name, path, name in tables, name in models)
        resolved = "-" if is_stdout(path) else str((check_table_path if name in tables else check_writable)(path, name))
        if resolved in taken:
            raise OutputError(f"{name}: {path} is also {taken[resolved]} and would be overwritten. Give another name.")
        taken[resolved] = name


def is_stdout(path: Path | None) -> bool:
    """Return whether a path means standard output: ``-``, or ``-`` with the suffix of a format."""
    return path is not None and path.name == str(path) and path.stem == "-"


def _check_stdout(name: str, path: Path, is_table: bool, is_model: bool) -> None:
    """Refuse to write to standard output what it cannot take."""
    if click.get_current_context().params.get("as_json"):
        raise click.UsageError(f"{name} - and --json both write to standard output. Give a file to one of them.")
    suffix = path.suffix.lower()
    if suffix and not (is_table and suffix in SUFFIXES):
        usual = f"-, or -{', -'.join(SUFFIXES)}" if is_table else "-"
        raise OutputError(f"{name}: {path} is not a type for standard output. Use {usual}.")
    if sys.stdout is None or (sys.stdout.isatty() and (is_model or suffix in (".parquet", ".npy"))):
        raise OutputError(f"{name}: a terminal cannot show binary data. Give a file, or redirect standard output.")


@contextmanager
def draft(path: Path, what: str, suffix: str = "") -> Iterator[Path]:
    """Yield a temporary path to write to; it is renamed to ``path``, or copied to standard output, without an error.

    ``suffix`` is that of standard output (-), which has none.
    """
    if not is_stdout(path):
        with replacing(path, what) as temporary:
            yield temporary
        return
    with TemporaryDirectory(prefix="standout-") as folder:
        temporary = Path(folder) / f"output{path.suffix or suffix}"
        yield temporary
        with temporary.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)


def command_line() -> str:
    """Return the command as the user gave it."""
    return shlex.join(["standout", *click.get_current_context().find_root().obj])
