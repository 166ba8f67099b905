"""``standout reproduce``: the paper's experiments, each as one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from standout.cli.help import Page, option
from standout.cli.session import Session, telling_options
from standout.errors import DataMissingError, StandoutError
from standout.experiments import ALL, EXPERIMENTS
from standout.output import make_directory

if TYPE_CHECKING:
    from standout.experiments.run import Outcome

_BAD_INPUT = 2
_EXAMPLES = """
standout reproduce digits --data-dir data
standout reproduce all --data-dir data -o evidence
standout reproduce digits --embedded --quick
"""


@click.command(cls=Page, examples=_EXAMPLES, short_help="The experiments of the paper, run anew.")
@click.argument("name", type=click.Choice([*EXPERIMENTS, ALL]), metavar="NAME")
@option("--data-dir", type=click.Path(path_type=Path, file_okay=False, exists=True), heading="Data",
        help="Where the paper's data is; by default the directory named by STANDOUT_DATA, or a download.")  # fmt: skip
@option("--embedded", is_flag=True, heading="Data",
        help="Do without the paper's data: what comes with scikit-learn, or is made up, stands in.")  # fmt: skip
@option("--seeds", type=click.IntRange(min=1), default=6, show_default=True, heading="How much work", metavar="N",
        help="How many seeds: 0 to N-1. The same seeds give the same numbers.")  # fmt: skip
@option("--quick", is_flag=True, heading="How much work",
        help="Fewer rows, and one or two seeds for the digits: seconds instead of minutes.")  # fmt: skip
@option("-o", "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("standout-reproduce"),
        show_default=True, heading="Output", help="Write the files into this directory.")  # fmt: skip
@telling_options()
def reproduce(name: str, data_dir: Path | None, out: Path, **given: Any) -> None:
    """Run an experiment of the paper anew, and say what holds.

    NAME is digits (Fig. 1: digits over photographs), mice (Fig. 2: proteins), runtime (against contrastive PCA),
    optimality (the factor model), or all. Prints tables and findings, and writes for each experiment a page
    (NAME.html), the numbers (NAME.json) and the figures (PNG and SVG); for all also index.html, which leads to them.
    One that fails does not stop the others.
    """
    from standout.experiments.record import Plan
    from standout.experiments.run import attempt, check_places, chosen, write_index

    session = Session(given)
    plan = Plan(tuple(range(given["seeds"])), given["quick"], data_dir, given["embedded"])
    make_directory(out, "--out")
    check_places(chosen(name), out)
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
    """Print what an experiment found, as soon as it is known."""
    from standout.experiments.table import as_text

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
    """Tell the files, or everything as JSON; then what failed, which also shows in the exit status."""
    from standout.experiments.write import record_facts

    failed = {outcome.name: outcome.error for outcome in outcomes if outcome.error is not None}
    if len(outcomes) == len(failed) == 1:
        raise _with_a_way_out(next(iter(failed.values())))
    facts = {
        "command": "reproduce",
        "experiments": {one.name: record_facts(one.record) for one in outcomes if one.record is not None},
        "failed": {name: str(_with_a_way_out(error)) for name, error in failed.items()},
    }
    session.tell(facts, "", written)
    for name, error in failed.items():
        click.echo(f"standout: {name} did not run: {' '.join(str(_with_a_way_out(error)).split())}", err=True)
    for error in failed.values():
        if not isinstance(error, StandoutError):
            raise error
    if failed:
        raise SystemExit(_BAD_INPUT)


def _with_a_way_out(error: Exception) -> Exception:
    """Return an error about missing data that also tells what runs without it."""
    if not isinstance(error, DataMissingError):
        return error
    found = DataMissingError(f"{error} Add --embedded to run it without that data, on a stand-in.")
    return found.with_traceback(error.__traceback__)
