"""``standout explore``: the explorer on files, or on the data of a stored model."""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from standout._cpca import CPCA
from standout._explore.export import shown_estimator
from standout._explore.session import Exploration, Origin, View
from standout.cli import options
from standout.cli.data import backgrounds, load
from standout.cli.options import Page, fit_options, option
from standout.cli.session import Session, echo

_EXAMPLES = """
standout explore patients.csv -b controls.csv --label subtype
standout explore mice.csv --by class --target t-SC-m,t-SC-s -b c-CS-s -b c-SC-s --missing auto \\
    --groups MouseID --groups-match '^[^_]+'
standout explore model.standout
"""


@click.command(cls=Page, examples=_EXAMPLES, short_help="Explore target and backgrounds in the browser.")
@click.argument("target")
@fit_options
@option("--port", type=click.IntRange(0, 65535), heading="Page",
        help="Port of the page on this machine. Default: 8765, or the next one that is free.")  # fmt: skip
@option("--no-browser", is_flag=True, heading="Page", help="Print the address, and do not open a browser.")
@option("--title", heading="Page", help="Title of the page.")
@option("--quiet", is_flag=True, heading="Output", help="Do not show progress or notes.")
@option("--debug", is_flag=True, heading="Output", help="Show the traceback of an error.")
def explore(target: str, port: int | None, no_browser: bool, title: str | None, **given: Any) -> None:
    """Open a page that shows TARGET and the backgrounds in two linked plots.

    The page compares PCA, dPCA and cPCA, moves along shrinkage or alpha, shows which features make selected rows
    different, runs the permutation test, and exports scores, model, report and code. It is served on this machine
    only, until Ctrl-C. TARGET is read as by `standout fit`. If it is a model file, the data it was fitted to are read
    again.
    """
    context = click.get_current_context()
    if Path(target).suffix == ".standout":
        context = _stored(Path(target), context)
        target = context.params["target"]
        given = {**_reading(context), "quiet": given["quiet"], "debug": given["debug"]}
    given["as_json"] = False
    session = Session(given)
    with context.scope(cleanup=False):
        if not given["background"]:
            raise click.UsageError("There is no background to compare with. Give one with -b.")
        estimator = options.take_estimator(given)
    with session.working():
        from standout._explore.launch import Explorer, open_page, web_server

        web_server()
        files = load(target, given)
        names = list(files)[1:]
        origin = Origin(
            files["target"].code(), tuple(files[name].code() for name in names), from_python=False,
            command=_command(context), spell=options.in_options,
        )  # fmt: skip
        exploration = Exploration(
            files["target"].source, backgrounds(files), estimator=estimator, origin=origin,
            title=title or f"What is specific to {Path(files['target'].account.path).name}",
        )  # fmt: skip
    for note in session.notes if not session.quiet else ():
        echo(f"note: {options.in_options(note)}", err=True)
    with suppress(KeyboardInterrupt), Explorer(exploration, port) as explorer:
        echo(f"The explorer is at {explorer.url}\nPress Ctrl-C to stop.")
        if not no_browser and not open_page(explorer.url):
            echo("No browser was found. Open the address in one.")
        explorer.wait()
    echo("Stopped.")


def _stored(model: Path, context: click.Context) -> click.Context:
    """Return the context of the command that wrote a model file."""
    from standout._model_file import header
    from standout.cli.fit import fit

    names = [name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    extra = [name for name in names if name not in ("target", "port", "no_browser", "title", "quiet", "debug")]
    if extra:
        raise click.UsageError("The data of a model file are read as it was fitted. Leave the other options out.")
    words = shlex.split((header(model).get("about") or {}).get("command") or "")
    if words[:2] != ["standout", "fit"]:
        raise click.UsageError(
            f"{model} does not say which files it was fitted to: it was not written by `standout fit`. Give the files."
        )
    return fit.make_context("fit", words[2:])


def _reading(context: click.Context) -> dict[str, Any]:
    """Return the options of a stored command that `explore` has too."""
    known = {param.name for param in explore.params} | {"quiet", "debug"}
    return {name: value for name, value in context.params.items() if name in known and name != "target"}


def _command(context: click.Context) -> Any:
    """Return the function that writes the command for a view: the data as given, the method as on the screen."""
    shared = [
        options.given_words(param, context)
        for param in context.command.params
        if param.name != "background" and getattr(param, "heading", None) not in ("Output", "Page", "Method")
    ]
    parts, target = context.params["background"], context.params["target"]
    allowed = {name: _names_of(name) for name in ("fit", "test")}

    def command(exploration: Exploration, view: View, name: str) -> str | None:
        if name == "test" and view.method not in ("dpca", "signal"):
            return None
        method = _method_words(exploration, view, allowed[name])
        chosen = [] if "pca" in method[:2] else [word for n in view.on for word in ("-b", parts[n])]
        words = [word for each in shared if each and each[0] in allowed[name] for word in each]
        return shlex.join(["standout", name, target, *chosen, *words, *method])

    return command


def _method_words(exploration: Exploration, view: View, allowed: set[str]) -> list[str]:
    """Return the options that give the estimator of a view, as far as a command has them."""
    estimator = shown_estimator(exploration, view)[0]
    count, is_fit = estimator.n_components, "--method" in allowed
    if not is_fit and not isinstance(count, int):  # a test needs a number
        count = max(1, exploration.fitted(*view.model).n_components_)
    words = ["-k", "all" if count is None else str(count)]
    if view.method == "pca" and not isinstance(estimator, CPCA):
        return ["--method", "pca", *words]
    method = {"pca": "cpca", "cpca": "cpca", "kernel": "kernel-dpca"}.get(view.method)
    if is_fit and method is not None:
        words = ["--method", method, *words]
    given, defaults = estimator.get_params(), type(estimator)().get_params()
    for name, parameter in options.PARAMETERS.items():
        if f"--{name}" not in allowed or parameter not in given or given[parameter] == defaults[parameter]:
            continue
        value = given[parameter]
        if parameter == "features":
            words.append("--common")
        elif value is None:
            words += [f"--{name}", "none"]
        elif isinstance(value, dict | list):
            words += [f"--{name}", ",".join(map(repr, value.values() if isinstance(value, dict) else value))]
        else:
            words += [f"--{name}", str(value)]
    return words


def _names_of(name: str) -> set[str]:
    from standout.cli import fit as commands

    return {opt for param in getattr(commands, name).params for opt in param.opts}
