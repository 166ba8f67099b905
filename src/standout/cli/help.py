"""Help that reads like a page: options under headings, examples at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


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
