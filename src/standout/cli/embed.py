"""``standout embed`` and ``standout denoise``: apply a stored model to files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from standout._blas import Array
from standout.cli.data import InputFile, distinct, take_reading
from standout.cli.options import Page, file_options, option, output_options, together
from standout.cli.session import Session, check_outputs, draft, is_stdout
from standout.errors import InputError, NonFiniteError
from standout.io.output import check_writable, free_name, writing
from standout.io.read import has_names
from standout.io.source import ArraySource, Source, block_rows_of

_EMBED_EXAMPLES = """
standout embed model.standout new_patients.csv -o scores.csv
standout embed model.standout day1.parquet day2.parquet -o scores.parquet
standout embed model.standout mice.csv --ids MouseID --missing drop_rows -o scores.npy
zcat new_patients.csv.gz | standout embed model.standout - -o - | head
"""
_DENOISE_EXAMPLES = """
standout denoise model.standout patients.csv -o specific.csv
"""
_ARGUMENTS = together(
    click.argument("model", type=click.Path(path_type=Path)),
    click.argument("data", nargs=-1, required=True),
    option("--missing", type=click.Choice(["auto", "drop_rows", "mean"]), heading="Rows",
           help="How to handle missing values: fill them with the model's mean of the feature (auto, mean) or leave "
           "out their rows. Default: an error."),
    file_options,
    option("-o", "--output", type=click.Path(path_type=Path), required=True, heading="Output",
           help="Write the table here (.csv, .tsv, .parquet, .npy). - writes csv to standard output, and -.parquet "
           "parquet."),
    output_options,
)  # fmt: skip

Transform = Callable[[Source], Array]


@click.command(cls=Page, examples=_EMBED_EXAMPLES, short_help="Compute the scores of new rows.")
@_ARGUMENTS
def embed(model: Path, data: tuple[str, ...], **given: Any) -> None:
    """Write the scores of the rows of DATA on the components of MODEL.

    DATA are files, or - for standard input. Features are matched by name if both the model and the file have names;
    other numeric columns are ignored. Non-numeric columns (ids, labels) are copied to the output. Several files are
    written to one table, with a column for the name of the file.
    """
    _apply(model, data, given, "embed")


@click.command(cls=Page, examples=_DENOISE_EXAMPLES, short_help="Compute the target-specific part of new rows.")
@_ARGUMENTS
def denoise(model: Path, data: tuple[str, ...], **given: Any) -> None:
    """Write the target-specific part of the rows of DATA, in the units of the data.

    The variation that the background shares is removed from each row. MODEL must be a dPCA model.
    """
    _apply(model, data, given, "denoise")


def _apply(model: Path, data: tuple[str, ...], given: dict[str, Any], command: str) -> None:
    from standout._model_file import load

    session = Session(given)
    output: Path = given.pop("output")
    check_outputs({"--output": output}, [model, *data], tables=["--output"])
    output = output if is_stdout(output) else check_writable(output, "--output")
    estimator = load(model)
    names = [str(name) for name in getattr(estimator, "feature_names_in_", ())]
    transform: Transform
    if command == "embed":
        transform, columns = estimator._scores, [str(name) for name in estimator.get_feature_names_out()]
    elif hasattr(estimator, "denoise"):
        transform, columns = estimator.denoise, names or [f"x{i}" for i in range(estimator.n_features_in_)]
    else:
        raise InputError(f"{model}: a {type(estimator).__name__} model cannot denoise. Use a model of --method dpca.")
    if given["missing"] in ("auto", "mean"):
        given["missing"] = None
        transform = _filling(transform, estimator, model)
    arguments = take_reading(given)
    with session.working():
        files = {name: _opened(path, names, arguments) for name, path in zip(distinct(data), data, strict=True)}
        with draft(output, "--output", ".csv") as temporary:
            rows = write_rows(temporary, files, columns, transform, "--output")
    result = {"command": command, "model": str(model), "rows": rows, "columns": columns}
    session.show(result, f"{rows} rows × {len(columns)} columns", {"output": output})


def _filling(transform: Transform, estimator: Any, model: Path) -> Transform:
    """Fill missing values with the model's means, so that the score of a row does not depend on other rows."""
    if len(estimator.mean_) != estimator.n_features_in_:
        raise InputError(f"{model}: a kernel model has no feature means to fill with. Use --missing drop_rows.")

    def fill(source: Source) -> Array:
        assert isinstance(source, ArraySource)
        rows = np.where(np.isnan(source.array), estimator.mean_, source.array)
        return transform(ArraySource(rows, source.names))

    return fill


def _opened(path: str, names: list[str], arguments: dict[str, Any]) -> InputFile:
    """Open a file; if both it and the model have names, with the model's features only, in their order."""
    file = InputFile("data", path, arguments)
    chosen = file.reading(columns=names)
    if not names or has_names(path):
        return chosen.opened()
    found = file.opened()
    return found if found.source.names is None else chosen.opened()


def write_rows(
    path: Path, files: dict[str, InputFile], names: Sequence[str], transform: Transform, option_name: str
) -> int:
    """Write the transformed rows of every dataset with their ids and labels, block by block; return their number."""
    columns = list(dict.fromkeys(column for file in files.values() for column in file.source.aside))
    dataset, number = (free_name(name, [*columns, *names]) for name in ("dataset", "row"))
    about = [*([dataset] if len(files) > 1 else []), *columns]
    # If rows were left out, row numbers would not be those of the file.
    whole = all("where" not in file.arguments and not file.source.account.rows_left_out for file in files.values())
    if not columns and whole:
        about.append(number)
    count = 0
    with writing(path, names, about, option_name) as table:
        for name, source in ((name, file.source) for name, file in files.items()):
            seen = 0
            for block in source.table_blocks(block_rows_of(source)):
                size = len(block.numbers)
                added = {dataset: np.full(size, name, dtype=object), number: np.arange(seen + 1, seen + size + 1)}
                try:
                    table.add(transform(ArraySource(block.numbers, source.names)), {**block.about, **added})
                except NonFiniteError as error:
                    found = str(error).removeprefix("X: ").split(". ")[0]
                    remedy = "Use --missing to fill them or leave their rows out."
                    raise NonFiniteError(f"{source.path}: {found}. {remedy}") from error
                seen += size
            count += seen
    return count
