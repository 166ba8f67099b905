"""``standout embed`` and ``standout denoise``: a stored model on files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from standout.cli.data import Reading, reading_options
from standout.cli.help import Page, option
from standout.cli.rows import write_rows
from standout.cli.session import Session, telling_options
from standout.errors import InputError
from standout.sources import read
from standout.sources.files.open import has_names
from standout.write import check_table_path

_EMBED_EXAMPLES = """
standout embed model.standout new_patients.csv -o scores.csv
standout embed model.standout day1.parquet day2.parquet -o scores.parquet
standout embed model.standout mice.csv --ids MouseID --missing drop_rows -o scores.npy
"""
_DENOISE_EXAMPLES = """
standout denoise model.standout patients.csv -o specific.csv
"""
_OUTPUT = option("-o", "--output", type=click.Path(path_type=Path), required=True, heading="Output",
                 help="Write here (.csv, .tsv, .parquet, .npy).")  # fmt: skip


@click.command(cls=Page, examples=_EMBED_EXAMPLES, short_help="Scores of new rows, by a stored model.")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("data", nargs=-1, required=True)
@reading_options(describing=False)
@_OUTPUT
@telling_options()
def embed(model: Path, data: tuple[str, ...], **given: Any) -> None:
    """Write the scores of the rows of DATA on the components of MODEL.

    Features are matched by name where both have names; other columns of numbers are left out, and columns that are
    not numbers (ids, labels) are carried along. Several files become one table with a column that names the file.
    """
    _apply(model, data, given, "embed")


@click.command(cls=Page, examples=_DENOISE_EXAMPLES, short_help="The target-specific part of each row.")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("data", nargs=-1, required=True)
@reading_options(describing=False)
@_OUTPUT
@telling_options()
def denoise(model: Path, data: tuple[str, ...], **given: Any) -> None:
    """Write the target-specific part of the rows of DATA, in the units of the data.

    What is left of each row when all that the background has too is taken away; MODEL must be of dPCA.
    """
    _apply(model, data, given, "denoise")


def _apply(model: Path, data: tuple[str, ...], given: dict[str, Any], what: str) -> None:
    from standout.store import load

    session = Session(given)
    output = check_table_path(given.pop("output"), "--output")
    estimator = load(model)
    names = _features(estimator)
    values, columns = _step(estimator, model, names, what)
    reading = Reading.of(given)
    with session.working():
        sources = {path: _opened(path, names, reading) for path in data}
        rows = write_rows(output, sources, columns, values, "--output")
    facts = {"command": what, "model": str(model), "rows": rows, "columns": columns}
    session.tell(facts, f"{rows} rows × {len(columns)} columns", {"output": output})


def _features(estimator: Any) -> list[str] | None:
    return [str(name) for name in estimator.feature_names_in_] if hasattr(estimator, "feature_names_in_") else None


def _step(estimator: Any, model: Path, names: list[str] | None, what: str) -> tuple[Callable[..., Any], list[str]]:
    if what == "embed":
        return estimator.transform, [str(name) for name in estimator.get_feature_names_out()]
    if not hasattr(estimator, "denoise"):
        raise InputError(f"{model}: a {type(estimator).__name__} does not denoise. Use a model of --method dpca.")
    return estimator.denoise, names or [f"x{i}" for i in range(estimator.n_features_in_)]


def _opened(path: str, names: list[str] | None, reading: Reading) -> Any:
    arguments = reading.arguments()
    if names is not None and has_names(path):
        arguments["columns"] = names
    source = read(path, role=path, **arguments)
    if "columns" in arguments and source.names != tuple(names or ()):
        raise InputError(f"{path}: it does not have the features of the model. Give a file that has them.")
    return source
