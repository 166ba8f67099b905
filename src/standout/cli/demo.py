"""``standout demo``: the embedded example, as files to try the other commands on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from standout.cli.help import Page, option
from standout.cli.session import Session, telling_options
from standout.output import make_directory

_EXAMPLES = """
standout demo
standout demo -o /tmp/demo --seed 3
"""


@click.command(cls=Page, examples=_EXAMPLES, short_help="The embedded example, with files to try.")
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
    from standout.demo import run_demo

    session = Session(given)
    make_directory(output, "--output")
    with session.working():
        found = run_demo(output, seed)
    session.notes = []
    session.tell(found.facts, found.text, found.files)
    if not session.as_json:
        files = f"{output / 'target.csv'} -b {output / 'background.csv'} --label digit"
        click.echo(f"\nGo on with:\n  standout fit {files} -o digits.standout\n  standout compare {files}")
