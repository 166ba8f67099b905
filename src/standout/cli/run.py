"""From arguments to an exit code: every error in one line, nothing half-written, no traceback unless asked for."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import Any, NoReturn

import click

from standout.cli.app import app
from standout.cli.words import in_options
from standout.errors import StandoutError

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
