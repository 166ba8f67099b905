"""``standout compare``: several methods on the same data, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from standout.cli.data import Reading, load, reading_options, sides_options
from standout.cli.help import Page, option
from standout.cli.method import contrast_options, was_given
from standout.cli.page import write_page
from standout.cli.session import Session, accounts, check_apart, telling_options
from standout.comparison import Compared
from standout.comparison import compare as compare_methods
from standout.facts import facts_of
from standout.output import check_writable

_EXAMPLES = """
standout compare patients.csv -b controls.csv --label subtype
standout compare mice.csv --by class --target t-SC-m,t-SC-s -b c-CS-s --missing auto -o compare.html
"""


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


def _facts(found: list[Compared], data: Any) -> dict[str, Any]:
    views = [
        {
            "name": view.name,
            "ratios": view.ratios,
            "share": view.share,
            "silhouette": view.silhouette,
            "model": facts_of(view.estimator),
        }
        for view in found
    ]
    return {"command": "compare", "views": views, "data": accounts(data)}


def _table(found: list[Compared]) -> str:
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
