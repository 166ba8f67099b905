"""``standout info``: what a stored model holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from standout.cli.help import Page, option
from standout.cli.page import text_of
from standout.cli.session import Session, telling_options
from standout.facts import facts_of

_EXAMPLES = """
standout info model.standout
standout info model.standout --json | jq '.model.components[0].ratio'
"""


@click.command(cls=Page, examples=_EXAMPLES, short_help="What a stored model holds.")
@click.argument("model", type=click.Path(path_type=Path))
@option("--top", type=click.IntRange(min=1), default=10, show_default=True, heading="Output",
        help="How many features of each component.")  # fmt: skip
@telling_options()
def info(model: Path, top: int, **given: Any) -> None:
    """Tell what MODEL holds: how it was made, its ratios and the noise edge, and the features of each component."""
    from standout.store import header, load

    session = Session(given)
    head = header(model)
    estimator = load(model)
    facts = {"command": "info", "file": head, "model": facts_of(estimator, top)}
    session.tell(facts, f"{_origin(head)}\n\n{text_of(estimator, top)}", {})


def _origin(head: dict[str, Any]) -> str:
    told = head.get("about") or {}
    lines = [f"written by standout {head.get('standout', '?')} on {head.get('created', '?')}"]
    if told.get("command"):
        lines.append(f"command: {told['command']}")
    return "\n".join(lines)
