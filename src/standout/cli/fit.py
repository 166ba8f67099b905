"""``standout fit``, ``report``, ``compare`` and ``test``: fit models to files and write the results."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from standout._compare import compare as compare_methods
from standout._dpca import DPCA
from standout._summary import extremes_text, summarize, to_dict
from standout._verdict import verdict
from standout._version import __version__
from standout.cli import options
from standout.cli.data import Files, accounts, backgrounds, load
from standout.cli.embed import write_rows
from standout.cli.options import Page, contrast_options, fit_options, option, output_options, reading_options
from standout.cli.session import Session, check_outputs, command_line, draft
from standout.errors import visible
from standout.inference.assess import Assessment, assess
from standout.inference.permutation import PermutationTest

_OUTPUT, _RESAMPLING = "Output", "Resampling"
_FILE = click.Path(path_type=Path)
_FIT_EXAMPLES = """
standout fit patients.csv -b controls.csv -k 2 -o model.standout --report report.html
standout fit mice.csv --by class --target t-SC-m,t-SC-s -b c-CS-s,c-CS-m --missing auto \\
    --groups MouseID --groups-match '^[^_]+' -o mice.standout --scores scores.csv
standout fit task.h5 -b rest.h5 -b blink.h5 --mix minimax -o model.standout
standout fit stim.h5ad -b ctrl.h5ad --label cell_type --report report.html
standout fit 'runs/*.parquet' -b good.parquet --method cpca --alpha 2.5 --json
standout fit book.xlsx::Patients -b book.xlsx::Controls -b 'book.xlsx::Other clinic'
zcat patients.csv.gz | standout fit - -b controls.csv
"""
_REPORT_EXAMPLES = """
standout report patients.csv -b controls.csv --label subtype -o report.html
standout report mice.csv --by class -b c-CS-s --missing auto --groups MouseID --groups-match '^[^_]+' -o mice.html
"""
_COMPARE_EXAMPLES = """
standout compare patients.csv -b controls.csv --label subtype
standout compare mice.csv --by class --target t-SC-m,t-SC-s -b c-CS-s --missing auto \\
    --groups MouseID --groups-match '^[^_]+' -o compare.html
"""
_TEST_EXAMPLES = """
standout test patients.csv -b controls.csv -k 3
standout test mice.csv --by class --target t-SC-m,t-SC-s -b c-CS-s --missing auto \\
    --groups MouseID --groups-match '^[^_]+' -o mice.html
standout test after.csv -b before.csv --pairs subject --permutations 1999 --json
"""


@click.command(cls=Page, examples=_FIT_EXAMPLES, short_help="Fit a model to a target and backgrounds.")
@click.argument("target")
@fit_options
@option("-o", "--output", type=_FILE, heading=_OUTPUT, help="Write the model here.")
@option("--scores", type=_FILE, heading=_OUTPUT,
        help="Write the scores of all rows here, with ids and labels (.csv, .tsv, .parquet, .npy; - writes csv to "
        "standard output).")  # fmt: skip
@option("--report", "page", type=_FILE, heading=_OUTPUT, help="Write an HTML report here.")
@output_options
def fit(target: str, output: Path | None, scores: Path | None, page: Path | None, **given: Any) -> None:
    """Find the directions in which TARGET varies and the background does not.

    TARGET and backgrounds are files, sheets of a workbook (book.xlsx::Patients) or standard input (-), or rows of one
    file if --by is given. The summary shows the ratio of target to
    background variance along each component, the noise edge (the largest ratio expected from noise), and the features
    of each component.
    """
    _fit(target, given, page, output, scores)


@click.command(cls=Page, examples=_REPORT_EXAMPLES, short_help="Fit a model and write an HTML report.")
@click.argument("target")
@fit_options
@option("-o", "--output", "page", type=_FILE, default=Path("report.html"), show_default=True, heading=_OUTPUT,
        help="Write the report here.")  # fmt: skip
@option("--title", heading=_OUTPUT, help="Title of the report.")
@output_options
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
    outputs = {"--output": output, "--scores": scores, "the report": page}
    check_outputs(outputs, [target, *given["background"]], models=["--output"])
    estimator = options.take_estimator(given)
    with session.working():
        files = load(target, given)
        estimator.fit(files["target"].source, background=backgrounds(files))
        with ExitStack() as drafts:  # all files are renamed together when all are complete
            if output is not None:
                from standout._model_file import save

                about = {"command": command_line(), "data": accounts(files), "standout": __version__}
                save(estimator, drafts.enter_context(draft(output, "--output", ".standout")), about=about)
            if scores is not None:
                table = drafts.enter_context(draft(scores, "--scores", ".csv"))
                write_rows(table, files, list(estimator.get_feature_names_out()), estimator._scores, "--scores")
            if page is not None:
                write_page(estimator, files, drafts.enter_context(draft(page, "the report", ".html")), title)
        # Computing the scores takes another pass: only where the user has named the rows.
        ends = estimator.extremes(files["target"].source) if "ids" in files["target"].arguments else []
    command, model = command_to_test(), estimator._solved()
    judged = verdict(model, command=command).to_dict()
    result = {"command": "fit", "verdict": judged, "model": to_dict(estimator), "data": accounts(files)}
    lines = [model_text(estimator, command=command)]
    if ends:
        names = model.component_names
        lines += ["", extremes_text(names, ends)]
        result["extremes"] = [
            {"component": name, **{side: [row._asdict() for row in rows] for side, rows in each._asdict().items()}}
            for name, each in zip(names, ends, strict=True)
        ]
    text = "\n".join([*lines, *_reading_text(files)])
    written = {"model": output, "scores": scores, "report": page}
    session.show(result, text, written, [note.text for note in model.notes])


def command_to_test(context: click.Context | None = None) -> str:
    """Return the ``standout test`` on the data of a command, with the options that the two have in common."""
    context = click.get_current_context() if context is None else context
    words = ["standout", "test", context.params["target"]]
    for param in test.params:
        if getattr(param, "heading", None) in (_OUTPUT, _RESAMPLING):
            continue
        if param.name == "components" and not isinstance(context.params.get("components"), int):
            continue
        short = min(param.opts, key=len) if param.name in ("background", "components") else None
        words += options.given_words(param, context, short)
    return shlex.join(words)


def model_text(estimator: Any, count: int = 5, command: str | None = None) -> str:
    """Return the summary of a model with the top features of each component."""
    lines = [str(summarize(estimator._solved(), command))]
    if hasattr(estimator, "top_features") and estimator.n_components_:
        unit = "background sd" if estimator.mix_.size else "the units of the data"
        lines += ["", f"  top features of each component, in {unit}:"]
        for name, tops in zip(estimator.get_feature_names_out(), estimator.top_features(count), strict=True):
            shown = (f"{visible(str(top.feature), lines=False)} {top.weight:+.2g}" for top in tops)
            lines.append(f"  {name:<10} " + ", ".join(shown))
    return "\n".join(lines)


def _reading_text(files: Files) -> list[str]:
    """Return lines on the missing values of each dataset that has some."""
    from standout._report.report import account_text

    lines = []
    for role, account in ((file.role, file.account) for file in files.values()):
        if account.missing or account.rows_left_out or account.features_left_out:
            lines += ["", f"  {role}: {account_text(account)}"]
    return lines


def write_page(models: Any, files: Files, page: Path, title: str | None = None, trust: Any = None) -> None:
    """Write the HTML report of an estimator, or of the result of ``compare``."""
    from standout._report.report import report as write_report

    write_report(
        models, files["target"].source, backgrounds(files), path=page, trust=trust, command=command_line(),
        test_command=command_to_test(), spell=options.in_options,
        title=title or f"What is specific to {Path(files['target'].account.path).name}",
        code=_code(models[0].estimator if isinstance(models, list) else models, files),
        accounts=tuple(file.account for file in files.values()),
    )  # fmt: skip


def _code(estimator: Any, files: Files) -> str:
    """Return the Python code that fits the model."""
    target, *parts = (file.code() for file in files.values())
    several = ", ".join(f"{name!r}: {code}" for name, code in zip(list(files)[1:], parts, strict=True))
    background = f"background = {parts[0] if len(parts) == 1 else f'{{{several}}}'}\n" if parts else ""
    return (
        f"import standout\n\ntarget = {target}\n{background}model = standout.{' '.join(repr(estimator).split())}\n"
        f"model.fit(target{', background=background' if parts else ''})\nprint(model.summary())"
    )


@click.command(cls=Page, examples=_COMPARE_EXAMPLES, short_help="Compare PCA, cPCA and dPCA on the same data.")
@click.argument("target")
@reading_options
@contrast_options
@option("-o", "--output", "page", type=_FILE, heading=_OUTPUT,
        help="Write an HTML report with the scores of all methods here.")  # fmt: skip
@output_options
def compare(target: str, page: Path | None, **given: Any) -> None:
    """Compare PCA, contrastive PCA at several alphas, and dPCA on TARGET.

    dPCA is fitted with components ordered by ratio, and with the principal axes of the target-specific signal. Labels
    are used only to measure how well the scores separate them (silhouette, from -1 to 1).
    """
    session = Session(given)
    check_outputs({"--output": page}, [target, *given["background"]])
    parameters = options.take_parameters(given)
    with session.working():
        files = load(target, given)
        found = compare_methods(files["target"].source, backgrounds(files), **parameters)
        main = next(view for view in found if view.name == "dPCA by ratio")
        trust = Assessment(held_out=main.held_out)
        if page is not None:  # the first model is the subject of the report
            with draft(page, "--output", ".html") as temporary:
                write_page([main, *(view for view in found if view is not main)], files, temporary, trust=trust)
    judged = verdict(main.estimator._solved(), trust, command_to_test())
    views = []
    for view in found:
        held_out = None if view.held_out is None else view.held_out.ratios
        facts = {name: getattr(view, name) for name in ("name", "ratios", "sample_ratios", "share", "silhouette")}
        views.append({**facts, "held_out_ratios": held_out, "model": to_dict(view.estimator)})
    judged_facts = judged.to_dict()
    result = {"command": "compare", "verdict": judged_facts, "views": views, "data": accounts(files)}
    text = "\n".join([found.summary(), "", f"Verdict on {main.name}:", judged.summary(on_command_line=True)])
    session.show(result, text, {"report": page}, judged.reasons)


@click.command(cls=Page, examples=_TEST_EXAMPLES, short_help="Test significance, stability and held-out ratio.")
@click.argument("target")
@reading_options
@option("--pairs", metavar="COLUMN", heading="Columns",
        help="Subject of each row if every subject is in the target and in the background. Labels are swapped within "
        "subjects.")  # fmt: skip
@contrast_options
@option("--permutations", type=click.IntRange(min=0), default=999, show_default=True, heading=_RESAMPLING,
        help="Number of permutations of the labels target and background. 0 skips the test.")  # fmt: skip
@option("--folds", type=click.IntRange(min=0), default=5, show_default=True, heading=_RESAMPLING,
        help="Number of folds of rows (subjects) for the held-out ratio. 0 skips it.")  # fmt: skip
@option("--bootstrap", type=click.IntRange(min=0), default=200, show_default=True, heading=_RESAMPLING,
        help="Number of bootstrap samples of rows (subjects) for the stability. 0 skips it.")  # fmt: skip
@option("--seed", type=int, heading=_RESAMPLING, help="Random seed.")
@option("--jobs", type=click.IntRange(min=1), heading=_RESAMPLING, help="Number of processes. Default: one per core.")
@option("-o", "--output", "page", type=_FILE, heading=_OUTPUT, help="Write an HTML report with all results here.")
@output_options
def test(
    target: str, page: Path | None, permutations: int, folds: int, bootstrap: int, seed: int | None, jobs: int | None,
    pairs: str | None, **given: Any,
) -> None:  # fmt: skip
    """Test whether the components of TARGET against the background are real.

    Could these ratios arise if labels were random (permutation test, valid also with few background rows and heavy
    tails)? Do the ratios hold on held-out rows? Are the components stable under the bootstrap? Give --groups if
    several rows come from one subject: otherwise replicates look significant.
    """
    session = Session(given)
    check_outputs({"--output": page}, [target, *given["background"]])
    if folds == 1 or not (permutations or folds or bootstrap):
        raise click.UsageError("There is nothing to compute. Give --permutations, --bootstrap, or --folds 2 or more.")
    estimator = DPCA(**options.take_parameters(given))
    if pairs is not None and given["groups"] is not None:
        raise click.UsageError("--pairs and --groups cannot be used together. Give one of them.")
    given["groups"] = given["groups"] if pairs is None else pairs  # the column of pairs is read as groups
    with session.working():
        files = load(target, given)
        sources = [file.source for file in files.values()]
        paired: dict[str, Any] = {}
        if pairs is not None:
            ids = [source.groups for source in sources]
            paired = {"pairs": ids[0], "background_pairs": backgrounds(files, ids[1:])}
            sources = [source.without_groups() for source in sources]
        found = assess(
            sources[0], backgrounds(files, sources[1:]), estimator=estimator, n_permutations=permutations,
            n_bootstrap=bootstrap, folds=folds, random_state=seed, n_jobs=jobs, **paired,
        )  # fmt: skip
        assert found.estimator is not None
        if page is not None:
            with draft(page, "--output", ".html") as temporary:
                write_page(found.estimator, files, temporary, trust=found)
    judged = verdict(found.estimator._solved(), found, command_to_test())
    result = {
        "command": "test", "verdict": judged.to_dict(), "model": to_dict(found.estimator),
        "data": accounts(files), **_results(found),
    }  # fmt: skip
    parts = [str(part.summary()) for part in (found.test, found.held_out, found.stability) if part is not None]
    lines = ["\n\n".join(parts), *_reading_text(files), "", judged.summary(on_command_line=True)]
    session.show(result, "\n".join(lines), {"report": page}, judged.reasons)


def _test_values(test: PermutationTest) -> dict[str, Any]:
    values = {name: value for name, value in vars(test).items() if name not in ("null", "without_rare")}
    return {**values, "edge": test.edge(), "smallest_p": test.smallest_p}


def _results(found: Assessment) -> dict[str, Any]:
    """Return the results that were computed, for JSON."""
    results: dict[str, Any] = {}
    if found.test is not None:
        rest = found.test.without_rare
        results["permutation_test"] = _test_values(found.test)
        results["permutation_test"]["without_rare"] = None if rest is None else _test_values(rest)
    if found.held_out is not None:
        results["held_out"] = {name: value for name, value in vars(found.held_out).items() if name != "estimators"}
    if found.stability is not None:
        tops = [[asdict(top) for top in each] for each in found.stability.top_features(10)]
        values = {name: getattr(found.stability, name) for name in ("median", "low", "high", "by", "notes")}
        results["stability"] = {**values, "top_features": tops}
    results["replicates"] = [
        {"rows": each.n_rows, "units": each.n_units, "rule": each.rule, "text": each.text} for each in found.replicates
    ]
    return results
