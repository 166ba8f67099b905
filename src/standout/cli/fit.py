"""A model in words and as a page, for the commands that show one.

``standout fit`` and ``standout report``: from files to a model, its scores and a page about it.

``standout compare``: several methods on the same data, side by side.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from standout._compare import Comparison
from standout._compare import compare as compare_methods
from standout._model import to_dict
from standout.cli.data import Data, Reading, checkpoint_option, load, reading_options, sides_options
from standout.cli.embed import write_rows
from standout.cli.options import (
    Page,
    Session,
    about,
    accounts,
    check_apart,
    command_line,
    contrast_options,
    method_options,
    option,
    take_method,
    telling_options,
    was_given,
)
from standout.inference.assess import replicates_of
from standout.io.output import check_table_path, check_writable, replacing
from standout.io.stream import ReadSummary

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
_EXAMPLES = """
standout compare patients.csv -b controls.csv --label subtype
standout compare mice.csv --by class --target t-SC-m,t-SC-s -b c-CS-s --missing auto -o compare.html
"""


def write_page(models: Any, data: Data, page: Path, title: str | None, trust: Any = None) -> None:
    """Write the report."""
    from standout._report.report import report as write_report

    write_report(
        models,
        data.target.source,
        data.background,
        path=page,
        title=title or f"What is specific to {Path(data.target.path).name}",
        command=command_line(),
        code=_code(models, data),
        accounts=tuple(side.account for side in data.sides),
        trust=trust,
    )


def _code(models: Any, data: Data) -> str:
    estimator = next(iter(models.values())) if isinstance(models, dict) else models
    lines = ["import standout", "", f"target = {data.target.code()}"]
    if data.backgrounds:
        parts = {name: side.code() for name, side in data.backgrounds.items()}
        whole = (
            next(iter(parts.values()))
            if len(parts) == 1
            else "{" + ", ".join(f"{n!r}: {c}" for n, c in parts.items()) + "}"
        )
        lines.append(f"background = {whole}")
    given = ", background=background" if data.backgrounds else ""
    lines += [
        f"model = standout.{' '.join(repr(estimator).split())}",
        f"model.fit(target{given})",
        "print(model.summary())",
    ]
    return "\n".join(lines)


def text_of(estimator: Any, count: int = 5) -> str:
    """Return a model in words: its summary, and the features that make up each component."""
    lines = [str(estimator.summary())]
    if hasattr(estimator, "top_features") and estimator.n_components_:
        unit = "background sd" if estimator.mix_.size else "the units of the data"
        lines += ["", f"  features that move most with each component, in {unit}:"]
        for name, tops in zip(estimator.get_feature_names_out(), estimator.top_features(count), strict=True):
            lines.append(f"  {name:<10} " + ", ".join(f"{top.feature} {top.weight:+.2g}" for top in tops))
    return "\n".join(lines)


def reading_in_words(data: Data) -> list[str]:
    """Return what reading did to each dataset, where it did more than to read it."""
    from standout._report.text import account_sentences

    told = [(side, account_sentences(side.account)) for side in data.sides if _changed(side.account)]
    return [line for side, said in told for line in ("", f"  {side.role}: {' '.join(said)}")]


def _changed(account: ReadSummary) -> bool:
    return bool(account.missing or account.rows_left_out or account.features_left_out)


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
    facts = {"command": "fit", "model": to_dict(estimator), "data": accounts(data)}
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
            from standout._model_file import save

            save(estimator, drafts.enter_context(replacing(output, "--output")), about=about(data))
        if scores is not None:
            sides = {"target": data.target, **data.backgrounds}
            draft = drafts.enter_context(replacing(scores, "--scores"))
            write_rows(draft, sides, list(estimator.get_feature_names_out()), estimator.transform, "--scores")
        if page is not None:
            write_page(estimator, data, drafts.enter_context(replacing(page, "the report")), title)


@click.command(cls=Page, examples=_EXAMPLES, short_help="PCA, cPCA and dPCA side by side.")
@click.argument("target")
@sides_options()
@reading_options()
@contrast_options()
@option("-o", "--output", "page", type=click.Path(path_type=Path), heading="Output",
        help="Write a page with all views here (.html).")  # fmt: skip
@telling_options()
def compare(target: str, **given: Any) -> None:
    """Look at TARGET by PCA, by contrastive PCA at the alphas that stand for its search, and by dPCA.

    dPCA comes by ratio (what is relatively large) and by signal (what is large of the target-specific part). Labels
    are only used to judge how well each view shows them (silhouette, from -1 to 1).
    """
    session = Session(given)
    page = given.pop("page")
    if page is not None:
        check_writable(page, "--output")
        check_apart({"--output": page}, [target, *given["background"]])
    if not given["background"]:
        raise click.UsageError("There is no background to compare with. Give one with -b.")
    parameters = _parameters(given)
    with session.working():
        data = load(target, given["background"], given["by"], given["target_labels"], Reading.of(given))
        found = compare_methods(data.target.source, data.background, **parameters)
        models = {view.name: view.estimator for view in found}
        if page is not None:
            # dPCA is what the page is about; the others stand beside it.
            write_page({name: models[name] for name in _main_first(models)}, data, page, None)
    session.told_by(*models.values())
    session.tell(_facts(found, data), _table(found), {"report": page})


def _parameters(given: dict[str, Any]) -> dict[str, Any]:
    components = given.pop("components")
    if not isinstance(components, int):
        raise click.UsageError("compare shows the same number of components of each method. Give -k a whole number.")
    chosen: dict[str, Any] = {"n_components": components}
    for name in ("shrinkage", "mix"):
        value = given.pop(name)
        if was_given(name):
            chosen[name] = value
    if given.pop("common"):
        chosen["features"] = "common"
    return chosen


def _main_first(models: dict[str, Any]) -> list[str]:
    return ["dPCA by ratio", *(name for name in models if name != "dPCA by ratio")]


def _facts(found: list[Comparison], data: Any) -> dict[str, Any]:
    views = [
        {
            "name": view.name,
            "ratios": view.ratios,
            "share": view.share,
            "silhouette": view.silhouette,
            "model": to_dict(view.estimator),
        }
        for view in found
    ]
    return {"command": "compare", "views": views, "data": accounts(data)}


def _table(found: list[Comparison]) -> str:
    edge = found[0].estimator.noise_edge_
    judged = any(view.silhouette == view.silhouette for view in found)
    lines = [f"{'':<22}{'target variance':>17}" + ("  silhouette" if judged else "") + "   ratios"]
    for view in found:
        ratios = ", ".join(f"{ratio:.3g}" for ratio in view.ratios[:5]) or "none above the noise edge"
        quality = f"{view.silhouette:>12.2f}" if judged else ""
        lines.append(f"{view.name:<22}{view.share:>16.1%} {quality}   {ratios}")
    told = f"Noise alone reaches a ratio of {edge:.3g} in its best direction." if edge == edge else (
        "There is no noise edge: the background has too few independent rows for its dimensions."
    )  # fmt: skip
    return "\n".join([*lines, "", told])
