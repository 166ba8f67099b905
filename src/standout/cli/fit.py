"""``standout fit`` and ``standout report``: from files to a model, its scores and a page about it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from standout.cli.data import Data, Reading, checkpoint_option, load, reading_options, sides_options
from standout.cli.help import Page, option
from standout.cli.method import method_options, take_method
from standout.cli.page import reading_in_words, text_of, write_page
from standout.cli.rows import write_rows
from standout.cli.session import Session, about, accounts, check_apart, telling_options
from standout.facts import facts_of
from standout.inference import replicates_of
from standout.output import check_writable, replacing
from standout.write import check_table_path

_OUTPUT = "Output"
_FIT_EXAMPLES = """
standout fit patients.csv -b controls.csv -k 2 -o model.standout --report report.html
standout fit mice.csv --by class --target t-SC-m,t-SC-s -b c-CS-s,c-CS-m --missing auto \\
    --groups MouseID --groups-match '^[^_]+' -o mice.standout --scores scores.csv
standout fit task.h5 -b rest.h5 -b blink.h5 --mix minimax -o model.standout
standout fit stim.h5ad -b ctrl.h5ad --label cell_type --report report.html
standout fit 'runs/*.parquet' -b good.parquet --method cpca --alpha 2.5 --json
"""
_REPORT_EXAMPLES = """
standout report patients.csv -b controls.csv --label subtype -o report.html
standout report mice.csv --by class -b c-CS-s --missing auto -o mice.html
"""


@click.command(cls=Page, examples=_FIT_EXAMPLES, short_help="Fit a model to a target against backgrounds.")
@click.argument("target")
@sides_options()
@reading_options()
@checkpoint_option()
@method_options()
@option("-o", "--output", type=click.Path(path_type=Path), heading=_OUTPUT, help="Write the model here.")
@option("--scores", type=click.Path(path_type=Path), heading=_OUTPUT,
        help="Write the scores of all rows here (.csv, .tsv, .parquet, .npy), with their ids and labels.")  # fmt: skip
@option("--report", "page", type=click.Path(path_type=Path), heading=_OUTPUT,
        help="Write a page to look at and to send here (.html).")  # fmt: skip
@telling_options()
def fit(target: str, **given: Any) -> None:
    """Find what varies in TARGET and not in the background.

    TARGET and backgrounds are files; with --by they are rows of one file. The summary tells the ratio of target to
    background variance along each component, with the ratio that noise alone would reach beside it, and the
    features that make up each component.
    """
    output, scores, page = given.pop("output"), given.pop("scores"), given.pop("page")
    _fit(target, given, output, scores, page, None)


@click.command(cls=Page, examples=_REPORT_EXAMPLES, short_help="Write a page about a target against backgrounds.")
@click.argument("target")
@sides_options()
@reading_options()
@checkpoint_option()
@method_options()
@option("-o", "--output", "page", type=click.Path(path_type=Path), default=Path("report.html"), show_default=True,
        heading=_OUTPUT, help="Write the page here.")  # fmt: skip
@option("--title", heading=_OUTPUT, help="Title of the page.")
@telling_options()
def report(target: str, **given: Any) -> None:
    """Fit, and write one self-contained page that a colleague can open.

    It shows the scores beside a PCA, the ratios with the noise edge, the features of each component, what was done
    to the data, and how to repeat it. It needs no network and opens from a mail.
    """
    page, title = given.pop("page"), given.pop("title")
    _fit(target, given, None, None, page, title)


def _fit(
    target: str, given: dict[str, Any], output: Path | None, scores: Path | None, page: Path | None, title: str | None
) -> None:
    """Do what both commands do: everything that can be refused is refused before anything is read."""
    session = Session(given)
    _check_outputs(output, scores, page)
    check_apart({"--output": output, "--scores": scores, "the report": page}, [target, *given["background"]])
    estimator = take_method(given)
    _check_background(given, click.get_current_context().params["method"])
    reading = Reading.of(given)
    with session.working():
        data = load(target, given["background"], given["by"], given["target_labels"], reading)
        estimator.fit(data.target.source, background=data.background)
        replicates_of(data.target.source, data.background)  # warns, and the warning is told as a note
        _write(estimator, data, output, scores, page, title)
    session.told_by(estimator)
    facts = {"command": "fit", "model": facts_of(estimator), "data": accounts(data)}
    text = "\n".join([text_of(estimator), *reading_in_words(data)])
    session.tell(facts, text, {"model": output, "scores": scores, "report": page})


def _check_outputs(output: Path | None, scores: Path | None, page: Path | None) -> None:
    if output is not None:
        check_writable(output, "--output")
    if scores is not None:
        check_table_path(scores, "--scores")
    if page is not None:
        check_writable(page, "the report")


def _check_background(given: dict[str, Any], method: str) -> None:
    if method == "pca" and given["background"]:
        raise click.UsageError(
            "--method pca looks at the target alone. Leave the background out, or use another method."
        )
    if method != "pca" and not given["background"]:
        raise click.UsageError("There is no background to compare with. Give one with -b, or use --method pca.")


def _write(
    estimator: Any, data: Data, output: Path | None, scores: Path | None, page: Path | None, title: str | None
) -> None:
    """Write all files as drafts; they take their places together, when all are whole."""
    with ExitStack() as drafts:
        if output is not None:
            from standout.store import save

            save(estimator, drafts.enter_context(replacing(output, "--output")), about=about(data))
        if scores is not None:
            sides = {"target": data.target, **data.backgrounds}
            draft = drafts.enter_context(replacing(scores, "--scores"))
            write_rows(draft, sides, list(estimator.get_feature_names_out()), estimator.transform, "--scores")
        if page is not None:
            write_page(estimator, data, drafts.enter_context(replacing(page, "the report")), title)
