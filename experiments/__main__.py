"""Command line of the experiments: ``python -m experiments digits|mice|runtime|optimality|all``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from experiments import ALL, EXPERIMENTS
from experiments.record import Plan, as_text
from experiments.run import Outcome, attempt, check_outputs, chosen, write_index
from experiments.write import record_facts
from standout.cli.app import run
from standout.cli.options import Page, option, output_options
from standout.cli.session import Session
from standout.errors import DataMissingError, StandoutError
from standout.io.output import make_directory

_BAD_INPUT = 2
_EXAMPLES = """
python -m experiments digits --data-dir data
python -m experiments all --data-dir data -o results
python -m experiments digits --embedded --quick
"""


@click.command(cls=Page, examples=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", type=click.Choice([*EXPERIMENTS, ALL]), metavar="NAME")
@option("--data-dir", type=click.Path(path_type=Path, file_okay=False, exists=True), heading="Data",
        help="Directory of the paper's data. Default: the directory in STANDOUT_DATA, or a download.")  # fmt: skip
@option("--embedded", is_flag=True, heading="Data",
        help="Use data from scikit-learn or simulated data instead of the paper's.")  # fmt: skip
@option("--seeds", type=click.IntRange(min=1), default=6, show_default=True, heading="Size", metavar="N",
        help="Number of seeds: 0 to N-1. The same seeds give the same numbers.")  # fmt: skip
@option("--quick", is_flag=True, heading="Size",
        help="Use fewer rows, and one or two seeds for the digits; takes seconds instead of minutes.")  # fmt: skip
@option("-o", "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("paper-results"),
        show_default=True, heading="Output", help="Write the files into this directory.")  # fmt: skip
@output_options
def reproduce(name: str, data_dir: Path | None, out: Path, **given: Any) -> None:
    """Run an experiment of the paper and print its tables and findings.

    NAME is digits (Fig. 1: digits over photographs), mice (Fig. 2: proteins), runtime (against contrastive PCA),
    optimality (the factor model), or all. Each experiment writes a page (NAME.html), its numbers (NAME.json) and its
    figures (PNG and SVG); all also writes index.html. If one experiment fails, the others still run.
    """
    session = Session(given)
    plan = Plan(tuple(range(given["seeds"])), given["quick"], data_dir, given["embedded"])
    make_directory(out, "--out")
    check_outputs(chosen(name), out)
    outcomes = []
    for one in chosen(name):
        with session.working():
            outcomes.append(attempt(one, plan, out))
        if not session.as_json:
            click.echo("\n" * (len(outcomes) > 1), nl=False)
            _show(outcomes[-1])
    written = {f"{outcome.name} {what}": path for outcome in outcomes for what, path in outcome.files.items()}
    if name == ALL:
        written = {"index": write_index(outcomes, out), **written}
    _finish(session, outcomes, written)


def _show(outcome: Outcome) -> None:
    """Print the tables and findings of an experiment."""
    record = outcome.record
    if record is None:
        return
    click.echo(f"{record.title}\n{'=' * len(record.title)}\nThe paper: {record.claim}\n")
    if record.caution:
        click.echo(f"{record.caution}\n")
    for table in record.tables:
        click.echo(f"{as_text(table)}\n")
    click.echo("\n".join(f"- {finding}" for finding in record.findings))


def _finish(session: Session, outcomes: list[Outcome], written: dict[str, Path]) -> None:
    """Print the file names, or everything as JSON; report failures and set the exit code."""
    failed = {outcome.name: outcome.error for outcome in outcomes if outcome.error is not None}
    if len(outcomes) == len(failed) == 1:
        raise _with_options(next(iter(failed.values())))
    facts = {
        "command": "experiments",
        "experiments": {one.name: record_facts(one.record) for one in outcomes if one.record is not None},
        "failed": {name: str(_with_options(error)) for name, error in failed.items()},
    }
    session.show(facts, "", written)
    for name, error in failed.items():
        click.echo(f"standout: {name} did not run: {' '.join(str(_with_options(error)).split())}", err=True)
    for error in failed.values():
        if not isinstance(error, StandoutError):
            raise error
    if failed:
        raise SystemExit(_BAD_INPUT)


def _with_options(error: Exception) -> Exception:
    """Mention the relevant options in an error about missing data."""
    if not isinstance(error, DataMissingError):
        return error
    found = DataMissingError(f"{error} Name the directory with --data-dir, or add --embedded to run without that data.")
    return found.with_traceback(error.__traceback__)


def main(arguments: list[str]) -> int:
    """Run the command and return its exit code."""
    return run(arguments, reproduce, "python -m experiments")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
