"""Writing something for each row of some files, with the columns that describe the row carried along.

``standout embed`` and ``standout denoise``: a stored model on files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from standout._blas import Array
from standout.cli.data import Reading, Side, distinct, new_rows_options
from standout.cli.options import Page, Session, check_apart, option, telling_options
from standout.errors import InputError, NonFiniteError
from standout.io.output import check_table_path, free_name, writing
from standout.io.read import has_names
from standout.io.source import ArraySource, Source, block_rows_of

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


def write_rows(
    path: Path, sides: dict[str, Side], names: Sequence[str], values: Callable[[Source], Array], what: str
) -> int:
    """Write ``values`` of the rows of every dataset, block by block; return how many rows that were."""
    columns = list(dict.fromkeys(column for side in sides.values() for column in side.source.aside))
    dataset, number = (free_name(name, [*columns, *names]) for name in ("dataset", "row"))
    about = [*([dataset] if len(sides) > 1 else []), *columns]
    # Where rows were left out, their numbers would be those of other rows: nothing is better than that.
    if not columns and all(side.whole for side in sides.values()):
        about.append(number)
    count = 0
    with writing(path, names, about, what) as table:
        for name, side in sides.items():
            seen = 0
            for block in side.source.table_blocks(block_rows_of(side.source)):
                size = len(block.numbers)
                told = {dataset: np.full(size, name, dtype=object), number: np.arange(seen + 1, seen + size + 1)}
                with _errors_of(side.source):
                    table.add(values(ArraySource(block.numbers, side.source.names)), {**block.about, **told})
                seen += size
            count += seen
    return count


@contextmanager
def _errors_of(source: Any) -> Iterator[None]:
    """Put the file's name before an error about its rows."""
    try:
        yield
    except NonFiniteError as error:
        told = str(error).removeprefix("X: ").split(". ")[0]
        raise NonFiniteError(f"{source.path}: {told}. Use --missing to say what to do about them.") from error


Step = Callable[[Source], Array]


@click.command(cls=Page, examples=_EMBED_EXAMPLES, short_help="Scores of new rows, by a stored model.")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("data", nargs=-1, required=True)
@new_rows_options()
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
@new_rows_options()
@_OUTPUT
@telling_options()
def denoise(model: Path, data: tuple[str, ...], **given: Any) -> None:
    """Write the target-specific part of the rows of DATA, in the units of the data.

    What is left of each row when all that the background has too is taken away; MODEL must be of dPCA.
    """
    _apply(model, data, given, "denoise")


def _apply(model: Path, data: tuple[str, ...], given: dict[str, Any], what: str) -> None:
    from standout._model_file import load

    session = Session(given)
    output = check_table_path(given.pop("output"), "--output")
    check_apart({"--output": output}, [model, *data])
    estimator = load(model)
    names = _features(estimator)
    step, columns = _step(estimator, model, names, what)
    if given["missing"] in ("auto", "mean"):
        given["missing"] = None
        step = _filled(step, estimator, model)
    reading = Reading.of(given)
    with session.working():
        sides = {name: _opened(path, names, reading) for name, path in zip(distinct(data), data, strict=True)}
        rows = write_rows(output, sides, columns, step, "--output")
    facts = {"command": what, "model": str(model), "rows": rows, "columns": columns}
    session.tell(facts, f"{rows} rows × {len(columns)} columns", {"output": output})


def _features(estimator: Any) -> list[str] | None:
    return [str(name) for name in estimator.feature_names_in_] if hasattr(estimator, "feature_names_in_") else None


def _step(estimator: Any, model: Path, names: list[str] | None, what: str) -> tuple[Step, list[str]]:
    if what == "embed":
        return estimator.transform, [str(name) for name in estimator.get_feature_names_out()]
    if not hasattr(estimator, "denoise"):
        raise InputError(f"{model}: a {type(estimator).__name__} does not denoise. Use a model of --method dpca.")
    return estimator.denoise, names or [f"x{i}" for i in range(estimator.n_features_in_)]


def _filled(step: Step, estimator: Any, model: Path) -> Step:
    """Fill missing values in with the model's means, so that a row's score is its own, whatever rows lie beside it."""
    if len(estimator.mean_) != estimator.n_features_in_:
        raise InputError(f"{model}: a kernel model has no means of the features. Use --missing drop_rows.")

    def fill(source: Source) -> Array:
        assert isinstance(source, ArraySource)
        rows = np.where(np.isnan(source.array), estimator.mean_, source.array)
        return step(ArraySource(rows, source.names))

    return fill


def _opened(path: str, names: list[str] | None, reading: Reading) -> Side:
    """Open a file with the features of the model alone, in their order, where both have names."""
    side = Side("data", path, reading.arguments())
    if names is None:
        return side.opened()
    chosen = replace(side, arguments={**side.arguments, "columns": names})
    if has_names(path):
        return chosen.opened()
    found = side.opened()
    return found if found.source.names is None else chosen.opened()
