"""Read the datasets of a command: its options, and the sources that they describe."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from standout.cli.options import option, together
from standout.errors import ColumnError, InputError
from standout.io.options import MISSING
from standout.io.output import make_directory
from standout.io.read import read
from standout.io.stream import ReadSummary

_ROWS, _COLUMNS = "Rows", "Columns"
_MEMORY = "256MB"
_FILES = (
    option("--ids", metavar="COLUMN", heading=_COLUMNS, help="Name of each row. Not used as a feature."),
    option("--key", metavar="NAME", heading=_ROWS,
           help="Array to read from a file with several (npz, h5, zarr), or layer of an h5ad file."),
    option("--memory", default=_MEMORY, show_default=True, metavar="SIZE", heading=_ROWS,
           help="Read files up to this size into memory, where every solver can be used. Larger files are read in "
           "blocks of at most this size."),
)  # fmt: skip


def new_rows_options() -> Callable[[Any], Any]:
    """Return the options for files that a stored model is applied to."""
    missing = option("--missing", type=click.Choice(["auto", "drop_rows", "mean"]), heading=_ROWS,
                     help="How to handle missing values: fill them with the model's mean of the feature (auto, mean) "
                     "or leave out their rows. Default: an error.")  # fmt: skip
    return together(missing, *_FILES)


def reading_options() -> Callable[[Any], Any]:
    """Return the options for target and background files."""
    return together(
        option("-b", "--background", multiple=True, metavar="FILE|LABELS", heading=_ROWS,
               help="Background: a file, directory or glob pattern; with --by, labels separated by commas. Repeat for "
               "several backgrounds, each centered at its own mean."),
        option("--by", metavar="COLUMN", heading=_ROWS,
               help="Split one file into target and background by the labels in this column. Give the labels with "
               "--target and --background."),
        option("--target", "target_labels", multiple=True, metavar="LABELS", heading=_ROWS,
               help="With --by: labels of the target rows, separated by commas. Default: all rows that are not "
               "background."),
        option("--missing", type=click.Choice(MISSING), heading=_ROWS,
               help="How to handle missing values: impute them by draws from a model of the observed values (auto; "
               "p-values stay valid), leave out their rows or features, or fill them with the mean of the feature "
               "(mean; p-values become too small). Default: an error."),
        option("--features", multiple=True, metavar="NAMES", heading=_COLUMNS,
               help="Columns to use as features, separated by commas (write \\, for a comma in a name). Glob patterns "
               "such as '*_N' are allowed. Default: all numeric columns."),
        option("--drop", multiple=True, metavar="NAMES", heading=_COLUMNS,
               help="Columns to leave out: names or glob patterns, separated by commas."),
        option("--label", metavar="COLUMN", heading=_COLUMNS,
               help="Color rows by this column. Not used as a feature."),
        option("--groups", metavar="COLUMN", heading=_COLUMNS,
               help="Independent unit (subject, batch) of each row, so that 135 rows of 9 mice count as 9. Not used as "
               "a feature."),
        option("--groups-match", metavar="REGEX", heading=_COLUMNS,
               help="Part of the groups column that identifies the subject: '^[^_]+' assigns 309_1 and 309_2 to "
               "subject 309."),
        *_FILES,
    )  # fmt: skip


def checkpoint_option() -> Callable[[Any], Any]:
    """Return the option for a fit that can be interrupted and resumed."""
    return option("--checkpoint", type=click.Path(path_type=Path), metavar="DIRECTORY", heading=_ROWS,
                  help="Directory for checkpoints, one for each file larger than --memory. A fit that was killed "
                  "resumes from them and gives the same result.")  # fmt: skip


def take_reading(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the reading options from ``given`` and return them as arguments of :func:`standout.read`."""
    arguments: dict[str, Any] = {"missing": given.pop("missing")}
    arguments["columns"] = split(given.pop("features", ()))
    arguments["drop"] = split(given.pop("drop", ()))
    arguments |= {name: given.pop(name, None) for name in ("label", "groups", "groups_match", "ids", "key")}
    if arguments["groups_match"] is not None and arguments["groups"] is None:
        raise click.UsageError("--groups-match applies to the groups column. Give --groups COLUMN too.")
    memory = given.pop("memory")
    arguments["memory"] = None if memory == _MEMORY else memory
    return _without_empty(arguments)


def _without_empty(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value not in (None, [])}


@dataclass(frozen=True)
class InputFile:
    """A dataset: its role, its file, and the arguments and the result of :func:`standout.read`."""

    role: str
    path: str
    arguments: dict[str, Any]
    source: Any = None
    dropped: dict[str, int] = field(default_factory=dict)  # features left out: missing values in all datasets

    def opened(self) -> InputFile:
        """Return the dataset with its source. Only the target must have the label and ids columns."""
        try:
            return replace(self, source=read(self.path, role=self.role, **self.arguments))
        except ColumnError as error:
            if error.argument == "drop" and error.column in self.arguments["drop"]:
                rest = [name for name in self.arguments["drop"] if name != error.column]
                return self.reading(drop=rest).opened()
            if self.role != "target" and error.argument in ("label", "ids"):
                return self.reading(**{error.argument: None}).opened()
            raise

    def reading(self, **changed: Any) -> InputFile:
        """Return the dataset with other arguments of ``read``."""
        return replace(self, arguments=_without_empty({**self.arguments, **changed}))

    @property
    def account(self) -> ReadSummary:
        """Rows, features and missing values that were read, left out or filled."""
        account: ReadSummary = self.source.account
        if not self.dropped:
            return account
        missing = {name: count for name, count in self.dropped.items() if count}
        return replace(account, features_left_out=tuple(self.dropped), missing=missing)

    @property
    def has_all_rows(self) -> bool:
        """Whether every row of the file is used."""
        return "where" not in self.arguments and not self.source.account.rows_left_out

    def code(self) -> str:
        """Return the Python code that reads the dataset."""
        arguments = "".join(f", {name}={value!r}" for name, value in self.arguments.items())
        return f"standout.read({self.path!r}{arguments})"


@dataclass(frozen=True)
class Data:
    """The target and the backgrounds."""

    target: InputFile
    backgrounds: dict[str, InputFile] = field(default_factory=dict)

    @property
    def files(self) -> list[InputFile]:
        """All datasets, target first."""
        return [self.target, *self.backgrounds.values()]

    @property
    def background(self) -> Any:
        """The backgrounds as ``fit`` takes them."""
        return self.as_background([file.source for file in self.backgrounds.values()])

    def as_background(self, values: list[Any]) -> Any:
        """Return one value for each background in the form that the library takes."""
        if len(values) < 2:
            return values[0] if values else None
        return dict(zip(self.backgrounds, values, strict=True))

    def accounts(self) -> list[dict[str, Any]]:
        """Return what was read of each dataset, for JSON."""
        return [{"role": file.role, **asdict(file.account)} for file in self.files]


def load(target: str, given: dict[str, Any]) -> Data:
    """Remove the options on data from ``given`` and read the target and the backgrounds."""
    background, by, labels = (given.pop(name) for name in ("background", "by", "target_labels"))
    checkpoint, arguments = given.pop("checkpoint", None), take_reading(given)
    if by is not None:
        files = _split_by_label(target, background, by, labels, arguments)
    elif labels:
        raise click.UsageError("--target gives labels, but not their column. Give --by COLUMN too.")
    else:
        names = distinct([Path(path).name.split(".")[0] or path for path in background])
        roles = zip(names, _roles(names), background, strict=True)
        files = {"target": InputFile("target", target, arguments)}
        files |= {name: InputFile(role, path, arguments) for name, role, path in roles}
    if checkpoint is not None:
        make_directory(checkpoint, "--checkpoint")
        for number, (name, file) in enumerate(files.items()):
            plain = re.sub(r"[^\w.-]", "_", name)[:80]
            files[name] = file.reading(checkpoint=str(checkpoint / f"{number}-{plain}.checkpoint"))
    opened = [file.opened() for file in files.values()]
    _check_dropped(arguments.get("drop", ()), opened)
    opened = _drop_together(opened)
    return Data(opened[0], dict(zip(list(files)[1:], opened[1:], strict=True)))


def _split_by_label(
    path: str, background: Sequence[str], by: str, labels: Sequence[str], arguments: dict[str, Any]
) -> dict[str, InputFile]:
    arguments = {"label": by, **arguments}
    parts = [split((name,)) for name in background]
    taken = [label for part in parts for label in part]
    chosen = split(labels) or _other_labels(path, by, arguments, taken)
    every = [*chosen, *taken]
    duplicates = sorted({label for label in every if every.count(label) > 1})
    if duplicates:
        raise InputError(f"the label {duplicates[0]!r} is given twice. Give each label once, to target or background.")
    names = distinct(background)
    files = {"target": InputFile("target", path, {**arguments, "where": {by: chosen}})}
    for name, role, part in zip(names, _roles(names), parts, strict=True):
        files[name] = InputFile(role, path, {**arguments, "where": {by: part}})
    return files


def _other_labels(path: str, by: str, arguments: dict[str, Any], taken: list[str]) -> list[str]:
    """Return the labels that are not background. Rows without a label are in neither."""
    needed = {name: value for name, value in arguments.items() if name != "missing"}
    labels = InputFile("target", path, {**needed, "label": by}).opened().source.labels
    rest = [label for label in dict.fromkeys(labels) if label is not None and label not in taken]
    if not rest:
        raise InputError(f"{path}: all rows are background ({by} is one of {', '.join(taken)}). Give fewer labels.")
    return rest


def _check_dropped(names: Sequence[str], files: list[InputFile]) -> None:
    """Raise an error if a column to drop is in none of the datasets."""
    for name in names:
        if not any(name in file.arguments.get("drop", []) for file in files):
            read(files[0].path, role="target", **{**files[0].arguments, "drop": [name]})


def _drop_together(files: list[InputFile]) -> list[InputFile]:
    """Leave features that one dataset lost to missing values out of the other datasets too."""
    dropped: dict[str, int] = {}
    for account in (file.source.account for file in files):
        for name in account.features_left_out:
            dropped[name] = dropped.get(name, 0) + account.missing.get(name, 0)
    if not dropped:
        return files
    shorter = [file.reading(drop=[*file.arguments.get("drop", []), *dropped]).opened() for file in files]
    return [replace(file, dropped=dropped) for file in shorter]


def _roles(names: Sequence[str]) -> list[str]:
    return ["background"] if len(names) == 1 else [f"background {name!r}" for name in names]


def distinct(names: Sequence[str]) -> list[str]:
    """Return the names with numbers added so that they differ from each other and from 'target'."""
    found = ["target"]
    for name in names:
        number, new = 2, "background" if name == "target" else name
        while new in found:
            new, number = f"{name} ({number})", number + 1
        found.append(new)
    return found[1:]


def split(values: Sequence[str]) -> list[str]:
    r"""Split names at commas; ``\,`` is a comma within a name."""
    parts = (part for value in values for part in re.split(r"(?<!\\),", value))
    return [part.strip().replace("\\,", ",") for part in parts if part.strip()]
