"""``standout test``: significance, held-out ratio and stability."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from standout._dpca import DPCA
from standout._model import to_dict
from standout.cli.data import Data, load, reading_options
from standout.cli.fit import notes_of, text_of_reading, write_page
from standout.cli.options import Page, contrast_options, option, take_parameters, telling_options
from standout.cli.session import Session, check_outputs
from standout.inference.assess import Assessment, assess

_HEADING = "Resampling"
_EXAMPLES = """
standout test patients.csv -b controls.csv -k 3
standout test mice.csv --by class --target t-SC-m,t-SC-s -b c-CS-s --missing auto \\
    --groups MouseID --groups-match '^[^_]+' -o mice.html
standout test after.csv -b before.csv --pairs subject --permutations 1999 --json
"""


@click.command(cls=Page, examples=_EXAMPLES, short_help="Test significance, stability and held-out ratio.")
@click.argument("target")
@reading_options()
@option("--pairs", metavar="COLUMN", heading="Columns",
        help="Subject of each row if every subject is in the target and in the background. Labels are swapped within "
        "subjects.")  # fmt: skip
@contrast_options()
@option("--permutations", type=click.IntRange(min=0), default=999, show_default=True, heading=_HEADING,
        help="Number of permutations of the labels target and background. 0 skips the test.")  # fmt: skip
@option("--folds", type=click.IntRange(min=0), default=5, show_default=True, heading=_HEADING,
        help="Number of folds of rows (subjects) for the held-out ratio. 0 skips it.")  # fmt: skip
@option("--bootstrap", type=click.IntRange(min=0), default=200, show_default=True, heading=_HEADING,
        help="Number of bootstrap samples of rows (subjects) for the stability. 0 skips it.")  # fmt: skip
@option("--seed", type=int, heading=_HEADING, help="Random seed.")
@option("--jobs", type=click.IntRange(min=1), heading=_HEADING, help="Number of processes. Default: one per core.")
@option("-o", "--output", "page", type=click.Path(path_type=Path), heading="Output",
        help="Write an HTML report with all results here.")  # fmt: skip
@telling_options()
def test(target: str, page: Path | None, **given: Any) -> None:
    """Test whether the components of TARGET against the background are real.

    Could these ratios arise if labels were random (permutation test, valid also with few background rows and heavy
    tails)? Do the ratios hold on held-out rows? Are the components stable under the bootstrap? Give --groups if
    several rows come from one subject: otherwise replicates look significant.
    """
    session = Session(given)
    check_outputs({"--output": page}, [target, *given["background"]])
    work = {name: given.pop(name) for name in ("permutations", "folds", "bootstrap", "seed", "jobs")}
    if work["folds"] == 1 or not any(work[name] for name in ("permutations", "folds", "bootstrap")):
        raise click.UsageError("There is nothing to compute. Give --permutations, --bootstrap, or --folds 2 or more.")
    estimator = DPCA(**take_parameters(given))
    paired = given["pairs"] is not None
    if paired and given["groups"] is not None:
        raise click.UsageError("--pairs and --groups cannot be used together. Give one of them.")
    given["groups"] = given.pop("pairs") if paired else given["groups"]
    with session.working():
        data = load(target, given)
        estimator.fit(data.target.source, background=data.background)
        found = _assess(estimator, data, work, paired)
        if page is not None:
            write_page(estimator, data, page, trust=found)
    session.summarize([*notes_of(estimator), *(finding.text for finding in found.replicates)])
    text = "\n".join([str(found.summary()), *text_of_reading(data)])
    session.tell(_facts(estimator, found, data), text, {"report": page})


def _assess(estimator: DPCA, data: Data, work: dict[str, Any], paired: bool) -> Assessment:
    sources = [file.source for file in data.files]
    pairs: dict[str, Any] = {}
    if paired:  # the column of pairs was read as groups
        ids = [source.groups for source in sources]
        pairs = {"pairs": ids[0], "background_pairs": data.as_background(ids[1:])}
        sources = [source.without_groups() for source in sources]
    return assess(
        sources[0], data.as_background(sources[1:]), estimator=estimator, n_permutations=work["permutations"],
        n_bootstrap=work["bootstrap"], folds=work["folds"], random_state=work["seed"], n_jobs=work["jobs"], **pairs,
    )  # fmt: skip


def _facts(estimator: DPCA, found: Assessment, data: Data) -> dict[str, Any]:
    facts: dict[str, Any] = {"command": "test", "model": to_dict(estimator), "data": data.accounts()}
    if found.test is not None:
        test = {name: value for name, value in asdict(found.test).items() if name != "null"}
        facts["permutation_test"] = {**test, "edge": found.test.edge(), "smallest_p": found.test.smallest_p}
    if found.held_out is not None:
        names = (name for name in found.held_out.__dataclass_fields__ if name != "estimators")
        facts["held_out"] = {name: getattr(found.held_out, name) for name in names}
    if found.stability is not None:
        facts["stability"] = {
            **{name: getattr(found.stability, name) for name in ("median", "low", "high", "by", "notes")},
            "top_features": [[asdict(top) for top in tops] for tops in found.stability.top_features(10)],
        }
    facts["replicates"] = [
        {"rows": finding.n_rows, "units": finding.n_units, "rule": finding.rule, "text": finding.text}
        for finding in found.replicates
    ]
    return facts
