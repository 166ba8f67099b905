"""``standout fit``, ``report`` and ``compare``: fit models to files and write the results."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from standout._compare import Comparison
from standout._compare import compare as compare_methods
from standout._model import to_dict
from standout._version import __version__
from standout.cli.data import Data, checkpoint_option, load, reading_options
from standout.cli.embed import write_rows
from standout.cli.options import (
    Page,
    contrast_options,
    method_options,
    option,
    take_estimator,
    take_parameters,
    telling_options,
)
from standout.cli.session import Session, check_outputs, command_line
from standout.inference.replicates import replicates_of
from standout.io.output import replacing

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
_COMPARE_EXAMPLES = """
standout compare patients.csv -b controls.csv --label subtype
standout compare mice.csv --by class --target t-SC-m,t-SC-s -b c-CS-s --missing auto -o compare.html
"""


@click.command(cls=Page, examples=_FIT_EXAMPLES, short_help="Fit a model to a target and backgrounds.")
@click.argument("target")
@reading_options()
@checkpoint_option()
@method_options()
@option("-o", "--output", type=click.Path(path_type=Path), heading=_OUTPUT, help="Write the model here.")
@option("--scores", type=click.Path(path_type=Path), heading=_OUTPUT,
        help="Write the scores of all rows here, with ids and labels (.csv, .tsv, .parquet, .npy).")  # fmt: skip
@option("--report", "page", type=click.Path(path_type=Path), heading=_OUTPUT, help="Write an HTML report here.")
@telling_options()
def fit(target: str, output: Path | None, scores: Path | None, page: Path | None, **given: Any) -> None:
    """Find the directions in which TARGET varies and the background does not.

    TARGET and backgrounds are files, or rows of one file if --by is given. The summary shows the ratio of target to
    background variance along each component, the noise edge (the largest ratio expected from noise), and the features
    of each component.
    """
    _fit(target, given, page, output, scores)


@click.command(cls=Page, examples=_REPORT_EXAMPLES, short_help="Fit a model and write an HTML report.")
@click.argument("target")
@reading_options()
@checkpoint_option()
@method_options()
@option("-o", "--output", "page", type=click.Path(path_type=Path), default=Path("report.html"), show_default=True,
        heading=_OUTPUT, help="Write the report here.")  # fmt: skip
@option("--title", heading=_OUTPUT, help="Title of the report.")
@telling_options()
def report(target: str, page: Path, title: str | None, **given: Any) -> None:
    """Fit a model to TARGET and the backgrounds, and write a self-contained HTML report.

    The report shows the scores next to those of a PCA, the ratios with the noise edge, the features of each
    component, how missing values were handled, and the command and code to reproduce it. It opens offline.
    """
    _fit(target, given, page, title=title)


def _fit(
    target: str, given: dict[str, Any], page: Path | None, output: Path | None = None, scores: Path | None = None,
    title: str | None = None,
) -> None:  # fmt: skip
    """Check all options and outputs, then read, fit and write."""
    session = Session(given)
    check_outputs({"--output": output, "--scores": scores, "the report": page}, [target, *given["background"]])
    estimator = take_estimator(given)
    with session.working():
        data = load(target, given)
        estimator.fit(data.target.source, background=data.background)
        replicates_of(data.target.source, data.background)  # warns
        with ExitStack() as drafts:  # all files are renamed together when all are complete
            if output is not None:
                from standout._model_file import save

                about = {"command": command_line(), "data": data.accounts(), "standout": __version__}
                save(estimator, drafts.enter_context(replacing(output, "--output")), about=about)
            if scores is not None:
                draft = drafts.enter_context(replacing(scores, "--scores"))
                files = {"target": data.target, **data.backgrounds}
                write_rows(draft, files, list(estimator.get_feature_names_out()), estimator.transform, "--scores")
            if page is not None:
                write_page(estimator, data, drafts.enter_context(replacing(page, "the report")), title)
    session.summarize(notes_of(estimator))
    facts = {"command": "fit", "model": to_dict(estimator), "data": data.accounts()}
    text = "\n".join([text_of(estimator), *text_of_reading(data)])
    session.tell(facts, text, {"model": output, "scores": scores, "report": page})


def notes_of(*estimators: Any) -> list[str]:
    """Return the notes that the summaries of fitted estimators contain."""
    return [note.text for estimator in estimators for note in estimator._solved().notes]


def text_of(estimator: Any, count: int = 5) -> str:
    """Return the summary of a model with the top features of each component."""
    lines = [str(estimator.summary())]
    if hasattr(estimator, "top_features") and estimator.n_components_:
        unit = "background sd" if estimator.mix_.size else "the units of the data"
        lines += ["", f"  top features of each component, in {unit}:"]
        for name, tops in zip(estimator.get_feature_names_out(), estimator.top_features(count), strict=True):
            lines.append(f"  {name:<10} " + ", ".join(f"{top.feature} {top.weight:+.2g}" for top in tops))
    return "\n".join(lines)


def text_of_reading(data: Data) -> list[str]:
    """Return lines on the missing values of each dataset that has some."""
    from standout._report.text import account_sentences

    lines = []
    for file in data.files:
        account = file.account
        if account.missing or account.rows_left_out or account.features_left_out:
            lines += ["", f"  {file.role}: {' '.join(account_sentences(account))}"]
    return lines


def write_page(models: Any, data: Data, page: Path, title: str | None = None, trust: Any = None) -> None:
    """Write the HTML report of an estimator, or of several by name."""
    from standout._report.report import report as write_report

    write_report(
        models,
        data.target.source,
        data.background,
        path=page,
        title=title or f"What is specific to {Path(data.target.path).name}",
        command=command_line(),
        code=_code(next(iter(models.values())) if isinstance(models, dict) else models, data),
        accounts=tuple(file.account for file in data.files),
        trust=trust,
    )


def _code(estimator: Any, data: Data) -> str:
    """Return the Python code that fits the model."""
    lines = ["import standout", "", f"target = {data.target.code()}"]
    parts = {name: file.code() for name, file in data.backgrounds.items()}
    if parts:
        several = "{" + ", ".join(f"{name!r}: {code}" for name, code in parts.items()) + "}"
        lines.append(f"background = {several if len(parts) > 1 else next(iter(parts.values()))}")
    return "\n".join([
        *lines,
        f"model = standout.{' '.join(repr(estimator).split())}",
        f"model.fit(target{', background=background' if parts else ''})",
        "print(model.summary())",
    ])  # fmt: skip


@click.command(cls=Page, examples=_COMPARE_EXAMPLES, short_help="Compare PCA, cPCA and dPCA on the same data.")
@click.argument("target")
@reading_options()
@contrast_options()
@option("-o", "--output", "page", type=click.Path(path_type=Path), heading=_OUTPUT,
        help="Write an HTML report with the scores of all methods here.")  # fmt: skip
@telling_options()
def compare(target: str, page: Path | None, **given: Any) -> None:
    """Compare PCA, contrastive PCA at several alphas, and dPCA on TARGET.

    dPCA is fitted with components ordered by ratio, and with the principal axes of the target-specific signal. Labels
    are used only to measure how well the scores separate them (silhouette, from -1 to 1).
    """
    session = Session(given)
    check_outputs({"--output": page}, [target, *given["background"]])
    parameters = take_parameters(given)
    with session.working():
        data = load(target, given)
        found = compare_methods(data.target.source, data.background, **parameters)
        models = {view.name: view.estimator for view in found}
        if page is not None:  # the first model is the subject of the report
            write_page({"dPCA by ratio": models["dPCA by ratio"], **models}, data, page)
    session.summarize(notes_of(*models.values()))
    names = ("name", "ratios", "share", "silhouette")
    views = [{**{n: getattr(view, n) for n in names}, "model": to_dict(view.estimator)} for view in found]
    facts = {"command": "compare", "views": views, "data": data.accounts()}
    session.tell(facts, _table(found), {"report": page})


def _table(found: list[Comparison]) -> str:
    edge = found[0].estimator.noise_edge_
    labelled = any(view.silhouette == view.silhouette for view in found)
    lines = [f"{'':<22}{'target variance':>17}" + ("  silhouette" if labelled else "") + "   ratios"]
    for view in found:
        ratios = ", ".join(f"{ratio:.3g}" for ratio in view.ratios[:5]) or "none above the noise edge"
        quality = f"{view.silhouette:>12.2f}" if labelled else ""
        lines.append(f"{view.name:<22}{view.share:>16.1%} {quality}   {ratios}")
    missing = "No noise edge: the background has too few independent rows for its dimensions."
    return "\n".join([*lines, "", f"Noise edge {edge:.3g}." if edge == edge else missing])
