"""Help that reads like a page: options under headings, examples at the end.

Progress on the terminal: only where there is one, and only for what takes longer than a second.

What the library says about its arguments, in the words of the command line.

What every command does around its work: progress, notes, and telling the result to a person or a script.

Which method: the options that say it, and the estimator they mean.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from standout._cpca import CPCA
from standout._dpca import DPCA
from standout._kernel_dpca import KernelDPCA
from standout._kernels import KERNELS
from standout._model import plain
from standout._version import __version__
from standout.errors import OutputError, StandoutWarning
from standout.io.source import Progress, watching

# What is done sooner than this needs no bar.
_PATIENCE = 1.0
_OPTIONS = {
    "columns": "--features", "n_components": "-k", "n_landmarks": "--landmarks", "groups_match": "--groups-match",
    "random_state": "--seed", "where": "--by",
    **{name: f"--{name}" for name in (
        "missing", "label", "groups", "ids", "drop", "key", "memory", "checkpoint", "shrinkage", "axes", "mix",
        "normalize", "centering", "solver", "alpha", "kernel", "gamma",
    )},
}  # fmt: skip
_ARGUMENT = re.compile(rf"(?<![\w.])({'|'.join(_OPTIONS)})=('[^']*'|[-+.\w]+)?")
_WHOLE = {
    "features='common'": "--common",
    "standout.read(X, missing='auto') for arrays, data frames and files": "--missing auto",
    " of standout.read (--missing on the command line)": "",
    " of standout.read": "",
    "None (all) or 'auto'": "all or auto",
    "None (all)": "all",
}
_HEADING = "Output"
_METHOD = "Method"
METHODS = ("dpca", "cpca", "kernel-dpca", "pca")
# Which options belong to which methods, and the estimator's own name for them.
_BELONGS = {
    "shrinkage": ("dpca", "kernel-dpca"),
    "axes": ("dpca",),
    "mix": ("dpca", "cpca", "kernel-dpca"),
    "normalize": ("dpca",),
    "centering": ("dpca", "cpca"),
    "solver": ("dpca",),
    "alpha": ("cpca",),
    "kernel": ("kernel-dpca",),
    "gamma": ("kernel-dpca",),
    "landmarks": ("kernel-dpca",),
    "common": ("dpca", "cpca"),
    "seed": ("dpca", "cpca", "kernel-dpca"),
}
_NAMES = {"landmarks": "n_landmarks", "seed": "random_state", "common": "features"}


class Option(click.Option):
    """An option that stands under a heading of the help."""

    def __init__(self, *args: Any, heading: str = "Options", **rest: Any):
        super().__init__(*args, **rest)
        self.heading = heading


class Page(click.Command):
    """A command whose help groups its options and ends with examples."""

    def __init__(self, *args: Any, examples: str = "", **rest: Any):
        super().__init__(*args, **rest)
        self.examples = examples.strip("\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings, in the order in which these first come."""
        headings: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and not isinstance(param, click.Argument):
                headings.setdefault(getattr(param, "heading", "Options"), []).append(record)
        for heading, records in headings.items():
            with formatter.section(heading):
                formatter.write_dl(records, col_max=26)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples as they stand."""
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples.splitlines():
                    formatter.write(f"  {line}\n" if line else "\n")


def option(*names: str, heading: str, **rest: Any) -> Callable[[Any], Any]:
    """Declare an option under a heading."""
    return click.option(*names, cls=Option, heading=heading, **rest)


def together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make one decorator of several options, in the order in which they stand."""

    def decorate(command: Any) -> Any:
        for declare in reversed(options):
            command = declare(command)
        return command

    return decorate


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


def in_options(text: str) -> str:
    """Return a message with options in the place of arguments.

    Examples
    --------
    >>> in_options("Use missing='auto', or drop= the column; shrinkage=None gives the exact problem.")
    'Use --missing auto, or --drop the column; --shrinkage none gives the exact problem.'
    """
    for said, told in _WHOLE.items():
        text = text.replace(said, told)
    return _ARGUMENT.sub(_option, text)


def _option(found: re.Match[str]) -> str:
    name, value = _OPTIONS[found[1]], found[2]
    if value is None:
        return name
    if value == "None":
        return f"{name} {'all' if name == '-k' else 'none'}"
    return f"{name} {value[1:-1] if value[0] == chr(39) and ' ' not in value else value}"


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


class _NumberOr(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """A number, or one of some words."""

    def __init__(self, *words: str, whole: bool = False):
        self.words, self.whole = words, whole
        self.name = "|".join([*words, "NUMBER"])

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the number or the word; 'none' and 'all' are None."""
        if value in self.words:
            return None if value in ("none", "all") else value
        try:
            return int(value) if self.whole else float(value)
        except (TypeError, ValueError):
            self.fail(f"{value!r} is not possible. Use {' or '.join(self.words)}, or a number.", param, ctx)


def _shares(_ctx: Any, _param: Any, value: str | None) -> Any:
    if value is None or value in ("pooled", "equal", "minimax"):
        return value
    try:
        return [float(part) for part in value.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not possible. Use pooled, equal, minimax, or numbers separated by commas."
        ) from None


def components_option() -> Callable[[Any], Any]:
    """Return the option on how many components."""
    return option("-k", "--components", type=_NumberOr("auto", "all", whole=True), default="2", show_default=True,
                  heading=_METHOD, help="How many components; auto counts those that pass a test.")  # fmt: skip


def contrast_options() -> Callable[[Any], Any]:
    """Return the options that several methods share."""
    return together(
        components_option(),
        option("--shrinkage", type=_NumberOr("auto", "oas", "none"), heading=_METHOD,
               help="How the background covariance is estimated: auto (keep shared factors, shrink the rest), "
                    "oas or a number from 0 to 1 (shrink toward its diagonal), none (as it is)."),
        option("--mix", callback=_shares, metavar="MIX", heading=_METHOD,
               help="Shares of several backgrounds: pooled (by their rows), equal, minimax (what stands out against "
               "each), or numbers separated by commas."),
        option("--common", is_flag=True, default=None, heading=_METHOD,
               help="Use the features that target and background have in common, when they have others."),
    )  # fmt: skip


def method_options() -> Callable[[Any], Any]:
    """Return all options on the method."""
    return together(
        option("--method", type=click.Choice(METHODS), default="dpca", show_default=True, heading=_METHOD,
               help="Discriminative PCA, contrastive PCA, kernel dPCA, or PCA of the target alone."),
        contrast_options(),
        option("--axes", type=click.Choice(["ratio", "signal"]), heading=_METHOD,
               help="dPCA: largest ratio first, or the principal axes of what is specific to the target."),
        option("--normalize", type=click.Choice(["background"]), heading=_METHOD,
               help="dPCA: give the background variance 1 on every axis."),
        option("--centering", type=click.Choice(["own", "background"]), heading=_METHOD,
               help="The target's centre: its own mean, or the background's, which keeps a shift between them."),
        option("--alpha", type=_NumberOr("auto", "trace_ratio"), heading=_METHOD,
               help="cPCA: how much of the background is subtracted; auto searches."),
        option("--kernel", type=click.Choice(KERNELS), heading=_METHOD, help="Kernel dPCA: the kernel."),
        option("--gamma", type=_NumberOr("median", "cv"), heading=_METHOD,
               help="Kernel dPCA: width of rbf and poly; cv chooses it by held-out ratio."),
        option("--landmarks", type=click.IntRange(min=1), heading=_METHOD,
               help="Kernel dPCA: how many rows carry the components; a few hundred serve any number of rows."),
        option("--solver", type=click.Choice(["auto", "dense", "lanczos", "gsvd", "span", "matrix_free"]),
               heading=_METHOD, help="dPCA: how the problem is solved; auto knows."),
        option("--seed", type=int, heading=_METHOD, help="Seed of what is random."),
    )  # fmt: skip


def take_method(given: dict[str, Any]) -> Any:
    """Take what belongs to the method out of a command's options and return the estimator."""
    method, components = given.pop("method"), given.pop("components")
    chosen = {name: given.pop(name) for name in _BELONGS if name in given}
    # None can be a value (--shrinkage none): what counts is whether the option was given.
    asked = {name: value for name, value in chosen.items() if was_given(name)}
    for name in asked:
        if method not in _BELONGS[name]:
            methods = " or ".join(_BELONGS[name])
            raise click.UsageError(f"--{name} has no meaning with --method {method}. Use it with {methods}.")
    if asked.pop("common", None):
        asked["common"] = "common"
    parameters = {_NAMES.get(name, name): value for name, value in asked.items()}
    kinds = {"dpca": DPCA, "pca": DPCA, "cpca": CPCA, "kernel-dpca": KernelDPCA}
    return kinds[method](n_components=components, **parameters)


def was_given(name: str) -> bool:
    """Tell whether an option was given, whatever its value."""
    source = click.get_current_context().get_parameter_source(name)
    return source is not click.core.ParameterSource.DEFAULT
