"""The command ``standout``: its group of commands, and how their errors become messages and exit codes."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

from standout._summary import to_dict
from standout._verdict import verdict
from standout._version import __version__
from standout.cli.embed import denoise, embed
from standout.cli.explore import explore
from standout.cli.fit import command_to_test, compare, fit, model_text, report, test
from standout.cli.options import Page, in_options, option, output_options
from standout.cli.session import Session, echo
from standout.errors import StandoutError, visible
from standout.io.output import make_directory

_INTERNAL_ERROR, _BAD_INPUT, _INTERRUPTED, _TERMINATED = 1, 2, 130, 143
_DEMO_EXAMPLES = """
standout demo
standout demo -o /tmp/demo --seed 3
"""
_INFO_EXAMPLES = """
standout info model.standout
standout info model.standout --methods
standout info model.standout --json | jq '.model.components[0].ratio'
"""
_COMPLETION_EXAMPLES = """
standout completion bash >> ~/.bashrc
standout completion zsh >> ~/.zshrc
standout completion fish > ~/.config/fish/completions/standout.fish
"""


@click.command(cls=Page, examples=_DEMO_EXAMPLES, short_help="Run an example and write its data.")
@option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), default=Path("standout-demo"),
        show_default=True, heading="Output", help="Write the files to this directory.")  # fmt: skip
@option("--seed", type=int, default=0, show_default=True, heading="Output",
        help="Random seed of the split into target and background.")  # fmt: skip
@output_options
def demo(output: Path, seed: int, **given: Any) -> None:
    """Compare PCA and dPCA on handwritten digits hidden in tiles of a photograph.

    Writes target.csv, background.csv, demo.png and report.html, and prints commands to try next.
    """
    from standout._demo import run_demo

    session = Session(given)
    make_directory(output, "--output")
    with session.working():
        result = run_demo(output, seed)
    session.notes.clear()
    session.show(*result)
    if not session.as_json:
        files = f"{output / 'target.csv'} -b {output / 'background.csv'} --label digit"
        echo(f"\nTry next:\n  standout test {files}\n  standout compare {files}")


@click.command(cls=Page, examples=_INFO_EXAMPLES, short_help="Show a stored model.")
@click.argument("model", type=click.Path(path_type=Path))
@option("--top", type=click.IntRange(min=1), default=10, show_default=True, heading="Output",
        help="Number of features to show for each component.")  # fmt: skip
@option("--methods", is_flag=True, heading="Output",
        help="Show the methods paragraph for a paper, with references, instead of the summary.")  # fmt: skip
@output_options
def info(model: Path, top: int, methods: bool, **given: Any) -> None:
    """Show the origin of MODEL, its ratios with the noise edge, and the features of each component."""
    from standout._model_file import header, load

    session = Session(given)
    head, estimator = header(model), load(model)
    command = (head.get("about") or {}).get("command")
    tested = None
    words = shlex.split(command or "")
    if words[:2] == ["standout", "fit"]:
        with suppress(click.ClickException):  # written by another version, with other options
            tested = command_to_test(fit.make_context("fit", words[2:]))
    judged = verdict(estimator._solved(), command=tested).to_dict()
    result = {"command": "info", "file": head, "verdict": judged, "model": to_dict(estimator, top)}
    origin = f"written by standout {head.get('standout', '?')} on {head.get('created', '?')}\n"
    origin += f"command: {visible(command, lines=False)}\n" if command else ""
    session.show(result, estimator.methods_text() if methods else f"{origin}\n{model_text(estimator, top, tested)}", {})


@click.command(cls=Page, examples=_COMPLETION_EXAMPLES, short_help="Print a completion script for a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands, options and files in SHELL."""
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root()
    echo(kind(root.command, {}, "standout", "_STANDOUT_COMPLETE").source())


class _InOrder(click.Group):
    """A group that lists its commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.commands)


@click.group(cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="standout")
def app() -> None:
    """Find what is specific to one dataset.

    Give a target (patients, task, failing parts) and one or more backgrounds measured on the same features
    (controls, rest, good parts). standout finds the directions in which the target varies and the backgrounds
    do not, and tests whether they are real.

    File types: csv, tsv, txt (also gz, bz2, xz, zst, zip), xlsx, parquet, feather, arrow, npy, npz, h5, zarr, h5ad,
    mtx, loom, mat, gct, bed, directories of 10x Genomics, and - for standard input. Directories and glob patterns of
    tables are read as one table. Non-numeric columns are not used as features.

    Exit codes: 0 success, 1 internal error, 2 bad input or usage, 130 interrupted. If a command fails, existing
    files are not changed.
    """


for command in (fit, test, explore, embed, denoise, info, compare, report, demo, completion):
    app.add_command(command)


def run(arguments: list[str], command: click.Command = app, name: str = "standout") -> int:
    """Run a command and return its exit code; print an error as one line."""
    # An exception at SIGTERM, so that drafts are removed.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    try:
        command.main(arguments, prog_name=name, standalone_mode=False, obj=arguments)
        if sys.stdout is not None:  # None if the parent process closed it
            sys.stdout.flush()
    except click.exceptions.Exit as error:
        return error.exit_code
    except SystemExit as error:
        return int(error.code or 0)
    except BrokenPipeError:  # the reader of our output is gone, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except click.exceptions.NoArgsIsHelpError as error:
        echo(error.format_message(), err=True)
        return _BAD_INPUT
    except (Exception, KeyboardInterrupt) as error:
        text, code = _explain(error)
        if "--debug" in arguments and code != _INTERRUPTED:
            echo(traceback.format_exc(), err=True)
        echo(f"standout: {' '.join(text.split())}", err=True)
        return code
    finally:
        if "standout.io.text" in sys.modules:  # not at exit, because main may end the process at once
            sys.modules["standout.io.text"].remove_standard_input()
        signal.signal(signal.SIGTERM, before)
    return 0


def _explain(error: BaseException) -> tuple[str, int]:
    """Return the message and the exit code of an error."""
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return "interrupted. Output files are complete or unchanged.", _INTERRUPTED
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx is not None else "standout"
        return f"{error.format_message()} See '{command} --help'.", _BAD_INPUT
    if isinstance(error, click.ClickException):
        return error.format_message(), _BAD_INPUT
    if isinstance(error, StandoutError):
        return in_options(str(error)), _BAD_INPUT
    if isinstance(error, MemoryError):
        return "not enough memory. Use fewer features, or a smaller --memory.", _BAD_INPUT
    if isinstance(error, OSError):
        where = error.filename or "standard output"
        return f"{where}: {error.strerror or error}. Check the path and the disk.", _BAD_INPUT
    found = f"{type(error).__name__}: {error}"
    return f"internal error in standout ({found}). Run again with --debug and report it.", _INTERNAL_ERROR
