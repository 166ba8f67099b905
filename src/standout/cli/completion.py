"""``standout completion``: what a shell needs to complete commands, options and files."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from standout.cli.help import Page

_EXAMPLES = """
standout completion bash >> ~/.bashrc
standout completion zsh >> ~/.zshrc
standout completion fish > ~/.config/fish/completions/standout.fish
"""


@click.command(cls=Page, examples=_EXAMPLES, short_help="Completion for your shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the lines that make SHELL complete commands, options and files."""
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root()
    click.echo(kind(root.command, {}, "standout", "_STANDOUT_COMPLETE").source())
