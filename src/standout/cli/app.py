"""The commands, in one group."""

from __future__ import annotations

import click

from standout._version import __version__
from standout.cli.compare import compare
from standout.cli.completion import completion
from standout.cli.demo import demo
from standout.cli.embed import denoise, embed
from standout.cli.fit import fit, report
from standout.cli.info import info
from standout.cli.test import test


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
