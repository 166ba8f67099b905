"""``standout demo``: the embedded example, as files to try the other commands on.

``standout info``: what a stored model holds.

``standout completion``: what a shell needs to complete commands, options and files.

The commands, in one group.

From arguments to an exit code: every error in one line, nothing half-written, no traceback unless asked for.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

import click
from click.shell_completion import get_completion_class

from standout._model import to_dict
from standout._version import __version__
from standout.cli.embed import denoise, embed
from standout.cli.fit import compare, fit, report, text_of
from standout.cli.options import Page, Session, in_options, option, telling_options
from standout.cli.test import test
from standout.errors import StandoutError
from standout.io.output import make_directory

_DEMO_EXAMPLES = """
standout demo
standout demo -o /tmp/demo --seed 3
"""
_INFO_EXAMPLES = """
standout info model.standout
standout info model.standout --json | jq '.model.components[0].ratio'
"""
_COMPLETION_EXAMPLES = """
standout completion bash >> ~/.bashrc
standout completion zsh >> ~/.zshrc
standout completion fish > ~/.config/fish/completions/standout.fish
"""


@click.command(cls=Page, examples=_DEMO_EXAMPLES, short_help="The embedded example, with files to try.")
@option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), default=Path("standout-demo"),
        show_default=True, heading="Output", help="Write the files into this directory.")  # fmt: skip
@option(
    "--seed", type=int, default=0, show_default=True, heading="Output", help="Which tiles are target and background."
)
@telling_options()
def demo(output: Path, seed: int, **given: Any) -> None:
    """Show PCA and dPCA on digits hidden in pieces of a photograph, and write the data to try on.

    Writes target.csv, background.csv, demo.png and report.html, and prints commands to go on with.
    """
    from standout._demo import run_demo

    session = Session(given)
    make_directory(output, "--output")
    with session.working():
        found = run_demo(output, seed)
    session.notes = []
    session.tell(found.facts, found.text, found.files)
    if not session.as_json:
        files = f"{output / 'target.csv'} -b {output / 'background.csv'} --label digit"
        click.echo(f"\nGo on with:\n  standout fit {files} -o digits.standout\n  standout compare {files}")


@click.command(cls=Page, examples=_INFO_EXAMPLES, short_help="What a stored model holds.")
@click.argument("model", type=click.Path(path_type=Path))
@option("--top", type=click.IntRange(min=1), default=10, show_default=True, heading="Output",
        help="How many features of each component.")  # fmt: skip
@telling_options()
def info(model: Path, top: int, **given: Any) -> None:
    """Tell what MODEL holds: how it was made, its ratios and the noise edge, and the features of each component."""
    from standout._model_file import header, load

    session = Session(given)
    head = header(model)
    estimator = load(model)
    facts = {"command": "info", "file": head, "model": to_dict(estimator, top)}
    session.tell(facts, f"{_origin(head)}\n\n{text_of(estimator, top)}", {})


def _origin(head: dict[str, Any]) -> str:
    told = head.get("about") or {}
    lines = [f"written by standout {head.get('standout', '?')} on {head.get('created', '?')}"]
    if told.get("command"):
        lines.append(f"command: {told['command']}")
    return "\n".join(lines)


@click.command(cls=Page, examples=_COMPLETION_EXAMPLES, short_help="Completion for your shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the lines that make SHELL complete commands, options and files."""
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root()
    click.echo(kind(root.command, {}, "standout", "_STANDOUT_COMPLETE").source())


class _InOrder(click.Group):
    """Commands in the order in which they were added: that of use, not of the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of the commands."""
        return list(self.commands)


@click.group(cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="standout")
def app() -> None:
    """Find what is specific to one dataset.

    Give a target (patients, task, failing parts) and one or more backgrounds measured on the same features
    (controls, rest, good parts). standout finds the few directions in which the target varies and the backgrounds
    do not, and says how sure one can be that they are real.

    Files: csv, tsv (also .gz), parquet, feather, arrow, npy, npz, h5, zarr, h5ad, mtx; directories and patterns of
    tables. Columns that are not numbers are set aside as labels.

    Exit codes: 0 done, 2 bad input or usage (one line says what and what to do), 130 interrupted, 1 a fault of
    standout. Files are written whole or not at all.
    """


for command in (fit, test, embed, denoise, info, compare, report, demo, completion):
    app.add_command(command)


OK, FAULT, BAD_INPUT, INTERRUPTED, ENDED = 0, 1, 2, 130, 143


def run(arguments: list[str], command: click.Command = app, name: str = "standout") -> int:
    """Run a command and return its exit code."""
    debug = "--debug" in arguments
    before = signal.signal(signal.SIGTERM, _ended)
    try:
        command.main(arguments, prog_name=name, standalone_mode=False, obj=arguments)
        if sys.stdout is not None:  # None where whoever started us has closed it
            sys.stdout.flush()
    except (KeyboardInterrupt, click.Abort):
        return _say("interrupted: every file is whole, new or as it was before.", INTERRUPTED)
    except click.exceptions.Exit as error:
        return int(error.exit_code)
    except SystemExit as error:
        return int(error.code or OK)
    except BrokenPipeError:
        return _quiet()
    except (click.ClickException, StandoutError, MemoryError, OSError) as error:
        if debug:
            traceback.print_exc()
        return _refused(error)
    except Exception as error:  # whatever else it is, it is our fault, and the user gets one line about it
        if debug:
            traceback.print_exc()
        told = f"{type(error).__name__}: {_one_line(str(error))}"
        return _say(f"this is a fault of standout, not of yours ({told}). Run it with --debug and report it.", FAULT)
    finally:
        signal.signal(signal.SIGTERM, before)
    return OK


def _refused(error: Exception) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return BAD_INPUT
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx is not None else "standout"
        return _say(f"{_one_line(error.format_message())} See '{command} --help'.", BAD_INPUT)
    if isinstance(error, click.ClickException):
        return _say(_one_line(error.format_message()), BAD_INPUT)
    if isinstance(error, MemoryError):
        return _say("there is not enough memory for this. Use fewer features, or a smaller --memory.", BAD_INPUT)
    if isinstance(error, OSError) and not isinstance(error, StandoutError):
        where = error.filename or "standard output"
        return _say(f"{where}: {error.strerror or error}. Check the path and the disk.", BAD_INPUT)
    return _say(_one_line(in_options(str(error))), BAD_INPUT)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _say(text: str, code: int) -> int:
    click.echo(f"standout: {text}", err=True)
    return code


def _quiet() -> int:
    """Whoever read our output has gone, as ``| head`` does: that is no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return OK


def _ended(_number: int, _frame: Any) -> NoReturn:
    """Leave by way of an exception, so that drafts are removed."""
    raise SystemExit(ENDED)
