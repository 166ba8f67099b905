"""``standout test``: is it real, does it hold on other rows, how stable is it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from standout._dpca import DPCA
from standout._model import to_dict
from standout.cli.data import Data, Reading, load, reading_options, sides_options
from standout.cli.fit import reading_in_words, write_page
from standout.cli.options import (
    Page,
    Session,
    accounts,
    check_apart,
    contrast_options,
    option,
    telling_options,
    was_given,
)
from standout.inference.assess import Assessment, assess
from standout.io.output import check_writable

_HEADING = "How much work"
_EXAMPLES = """
standout test patients.csv -b controls.csv -k 3
standout test mice.csv --by class --target t-SC-m,t-SC-s -b c-CS-s --missing auto \\
    --groups MouseID --groups-match '^[^_]+' -o mice.html
standout test after.csv -b before.csv --pairs subject --permutations 1999 --json
"""


@click.command(cls=Page, examples=_EXAMPLES, short_help="Is it real, how stable, and on new rows.")
@click.argument("target")
@sides_options()
@reading_options()
@option("--pairs", metavar="COLUMN", heading="Which columns",
        help="The subject of each row, where every subject is in the target and in the background: labels are swapped "
        "within subjects.")  # fmt: skip
@contrast_options()
@option("--permutations", type=click.IntRange(min=0), default=999, show_default=True, heading=_HEADING,
        help="How often the labels target and background are reshuffled; 0 leaves the test out.")  # fmt: skip
@option("--folds", type=click.IntRange(min=0), default=5, show_default=True, heading=_HEADING,
        help="Into how many parts the rows (subjects) are cut, each held out once; 0 leaves it out.")  # fmt: skip
@option("--bootstrap", type=click.IntRange(min=0), default=200, show_default=True, heading=_HEADING,
        help="How often rows (subjects) are drawn anew, to see which components stay; 0 leaves it out.")  # fmt: skip
@option("--seed", type=int, heading=_HEADING, help="Seed of what is random; the same seed gives the same numbers.")
@option(
    "--jobs", type=click.IntRange(min=1), heading=_HEADING, help="How many processes; by default one for each core."
)
@option("-o", "--output", "page", type=click.Path(path_type=Path), heading="Output",
        help="Write a page with all of it here (.html).")  # fmt: skip
@telling_options()
def test(target: str, **given: Any) -> None:
    """Tell whether what varies in TARGET and not in the background is real.

    Three questions. Could labels that mean nothing give such ratios (a permutation test, valid also where the
    background has few rows and for heavy tails)? Do the ratios hold on rows that the components were not found on? Do
    the components stay the same when rows are drawn anew? Give --groups whenever several rows come from one subject:
    without it, replicates look like a finding.
    """
    session = Session(given)
    page = given.pop("page")
    if page is not None:
        check_writable(page, "--output")
        check_apart({"--output": page}, [target, *given["background"]])
    work = {name: given.pop(name) for name in ("permutations", "folds", "bootstrap", "seed", "jobs")}
    if work["folds"] == 1 or not any(work[name] for name in ("permutations", "folds", "bootstrap")):
        raise click.UsageError("There is nothing left to ask. Give --permutations, --bootstrap, or --folds from 2 on.")
    estimator, paired = _estimator(given), _paired(given)
    with session.working():
        data = load(target, given["background"], given["by"], given["target_labels"], Reading.of(given))
        estimator.fit(data.target.source, background=data.background)
        found = _assessed(estimator, data, work, paired)
        if page is not None:
            write_page(estimator, data, page, None, trust=found)
    session.told_by(estimator)
    session.notes = [text for text in session.notes if text not in {finding.text for finding in found.replicates}]
    text = "\n".join([str(found.summary()), *reading_in_words(data)])
    session.tell(_facts(estimator, found, data), text, {"report": page})


def _estimator(given: dict[str, Any]) -> DPCA:
    if not given["background"]:
        raise click.UsageError("There is no background to compare with. Give one with -b.")
    components = given.pop("components")
    if not isinstance(components, int):
        raise click.UsageError("test looks at a given number of components, one after the other. Give -k a number.")
    chosen = {name: given[name] for name in ("shrinkage", "mix") if was_given(name)}
    if given.pop("common"):
        chosen["features"] = "common"
    return DPCA(components, **chosen)


def _paired(given: dict[str, Any]) -> bool:
    """Read the column of pairs as the column of groups, which it is, on both sides."""
    pairs = given.pop("pairs")
    if pairs is None:
        return False
    if given["groups"] is not None:
        raise click.UsageError("--pairs and --groups both say which rows belong together. Give one of them.")
    given["groups"] = pairs
    return True


def _assessed(estimator: DPCA, data: Data, work: dict[str, Any], paired: bool) -> Assessment:
    assert isinstance(estimator.n_components, int)
    sources = [side.source for side in data.sides]
    pairs: dict[str, Any] = {}
    if paired:
        ids = [source.groups for source in sources]
        pairs = {"pairs": ids[0], "background_pairs": _as_background(data, ids[1:])}
        sources = [source.without_groups() for source in sources]
    return assess(
        sources[0], _as_background(data, sources[1:]), estimator=estimator, n_components=estimator.n_components,
        n_permutations=work["permutations"], n_bootstrap=work["bootstrap"], folds=work["folds"],
        random_state=work["seed"], n_jobs=work["jobs"], **pairs,
    )  # fmt: skip


def _as_background(data: Data, parts: list[Any]) -> Any:
    """Return one thing for each background as the library takes them."""
    return parts[0] if len(parts) == 1 else dict(zip(data.backgrounds, parts, strict=True))


def _facts(estimator: DPCA, found: Assessment, data: Data) -> dict[str, Any]:
    facts: dict[str, Any] = {"command": "test", "model": to_dict(estimator), "data": accounts(data)}
    if found.test is not None:
        test = {name: value for name, value in asdict(found.test).items() if name != "null"}
        facts["permutation_test"] = {**test, "edge": found.test.edge(), "smallest_p": found.test.smallest_p}
    if found.held_out is not None:
        parts = {name: getattr(found.held_out, name) for name in found.held_out.__dataclass_fields__}
        parts.pop("estimators")
        facts["held_out"] = parts
    if found.stability is not None:
        stable = found.stability
        facts["stability"] = {
            "median": stable.median, "low": stable.low, "high": stable.high, "by": stable.by, "notes": stable.notes,
            "top_features": [[asdict(top) for top in tops] for tops in stable.top_features(10)],
        }  # fmt: skip
    facts["replicates"] = [
        {"rows": finding.n_rows, "units": finding.n_units, "rule": finding.rule, "text": finding.text}
        for finding in found.replicates
    ]
    return facts
