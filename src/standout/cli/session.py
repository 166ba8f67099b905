"""What every command does around its work: progress, notes, and telling the result to a person or a script."""

from __future__ import annotations

import json
import os
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from standout._version import __version__
from standout.cli.help import option, together
from standout.cli.progress import progress
from standout.cli.words import in_options
from standout.errors import OutputError, StandoutWarning
from standout.facts import plain

_HEADING = "Output"


def telling_options() -> Callable[[Any], Any]:
    """Return the options that every command has."""
    return together(
        option("--json", "as_json", is_flag=True, heading=_HEADING, help="Tell the result as JSON, for scripts."),
        option("--quiet", is_flag=True, heading=_HEADING, help="No progress, no notes."),
        option("--debug", is_flag=True, heading=_HEADING, help="Show where in the code an error came from."),
    )  # fmt: skip


class Session:
    """Collects notes while a command works."""

    def __init__(self, given: dict[str, Any]):
        self.as_json, self.quiet = given.pop("as_json"), given.pop("quiet")
        given.pop("debug")
        self.notes: list[str] = []

    @contextmanager
    def working(self) -> Iterator[None]:
        """Show progress, and keep what the library warns of."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", StandoutWarning)
            with progress(self.quiet or self.as_json):
                yield
        self.notes += [text for text in dict.fromkeys(str(w.message) for w in caught) if text not in self.notes]

    def told_by(self, *estimators: Any) -> None:
        """Leave out the notes that a model's own summary has."""
        own = {note.text for estimator in estimators for note in estimator._solved().notes}
        if not self.as_json:
            self.notes = [text for text in self.notes if text not in own]

    def tell(self, facts: dict[str, Any], text: str, written: dict[str, Any]) -> None:
        """Print the result: facts for a script, text for a person."""
        files = {name: str(path) for name, path in written.items() if path is not None}
        if self.as_json:
            whole = {**facts, "files": files, "warnings": self.notes}
            click.echo(json.dumps(plain(whole), indent=2, ensure_ascii=False))
            return
        if text:
            click.echo(in_options(text))
        if files:
            width = max(map(len, files))
            click.echo("\n" + "\n".join(f"{name:<{width}}  {path}" for name, path in files.items()))
        if not self.quiet:
            for note in self.notes:
                click.echo(f"note: {in_options(note)}", err=True)


def about(data: Any) -> dict[str, Any]:
    """Return what a stored model should know of its making."""
    return {"command": command_line(), "data": accounts(data), "standout": __version__}


def accounts(data: Any) -> list[dict[str, Any]]:
    """Return what reading did to each dataset."""
    return [{"role": side.role, **asdict(side.account)} for side in data.sides]


def check_apart(outputs: Mapping[str, Path | None], inputs: Sequence[str | Path]) -> None:
    """Refuse an output that would take the place of an input or of another output."""
    taken = {os.path.realpath(os.path.expanduser(given)): "an input" for given in inputs}
    for what, path in outputs.items():
        if path is None:
            continue
        place = os.path.realpath(path.expanduser())
        if place in taken:
            raise OutputError(f"{what}: {path} is {taken[place]} too and would be lost. Give another name.")
        taken[place] = what


def command_line() -> str:
    """Return the command as it was given."""
    return shlex.join(["standout", *click.get_current_context().find_root().obj])
