"""Which data: the options that say it, and the sources they mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from standout.cli.options import option, together
from standout.errors import ColumnError, InputError
from standout.io.options import MISSING
from standout.io.output import make_directory
from standout.io.read import read
from standout.io.stream import ReadSummary

_ROWS, _COLUMNS = "Which rows", "Which columns"


_FILES = (
    option("--ids", metavar="COLUMN", heading=_COLUMNS, help="The name of each row; it is not a feature."),
    option("--key", metavar="NAME", heading=_ROWS,
           help="The array inside a file that holds several (npz, h5, zarr), or the layer of an h5ad."),
    option("--memory", default="256MB", show_default=True, metavar="SIZE", heading=_ROWS,
           help="Files whose numbers take no more than this are kept in memory, which lets every solver read them "
           "again; larger ones are read in blocks, which take no more either."),
)  # fmt: skip


def new_rows_options() -> Callable[[Any], Any]:
    """Return the options on how files are read whose rows a model is applied to."""
    missing = option("--missing", type=click.Choice(["auto", "drop_rows", "mean"]), heading=_ROWS,
                     help="What to do about missing values: fill in the mean that the model has of the feature (auto "
                     "or mean), or leave out rows that have any. By default they are an error.")  # fmt: skip
    return together(missing, *_FILES)


def reading_options() -> Callable[[Any], Any]:
    """Return the options on how files are read, and on what their columns mean."""
    columns = [
        option("--features", multiple=True, metavar="NAMES", heading=_COLUMNS,
               help="Columns that are features, separated by commas (a comma inside a name: \\,); patterns such as "
               "'*_N' are fine. By default every column of numbers."),
        option("--drop", multiple=True, metavar="NAMES", heading=_COLUMNS,
               help="Columns that take no part; names or patterns."),
        option("--label", metavar="COLUMN", heading=_COLUMNS,
               help="Colour rows by this column; it is not a feature."),
        option("--groups", metavar="COLUMN", heading=_COLUMNS,
               help="The independent unit (subject, batch) of each row; it is not a feature. 135 rows of 9 mice "
               "count as 9."),
        option("--groups-match", metavar="REGEX", heading=_COLUMNS,
               help="The part of the groups column that names the subject: '^[^_]+' makes 309_1 and 309_2 one "
               "subject, 309."),
    ]  # fmt: skip
    missing = option("--missing", type=click.Choice(MISSING), heading=_ROWS,
                     help="What to do about missing values: draw them from a model of what is observed in all datasets "
                     "(auto, which keeps p-values valid), leave out rows that have any, leave out features that have "
                     "any, or fill in each dataset's own mean, which makes p-values too small. By default they are an "
                     "error.")  # fmt: skip
    return together(*columns, missing, *_FILES)


def checkpoint_option() -> Callable[[Any], Any]:
    """Return the option that lets a long fit be killed and go on."""
    return option("--checkpoint", type=click.Path(path_type=Path), metavar="DIRECTORY", heading=_ROWS,
                  help="Keep the sums of files that are larger than --memory here, one file for each dataset. A fit "
                  "that was killed and is started again goes on from them, to the same result.")  # fmt: skip


def sides_options() -> Callable[[Any], Any]:
    """Return the options on what is target and what is background."""
    return together(
        option("-b", "--background", multiple=True, metavar="FILE|LABELS", heading=_ROWS,
               help="A background: a file, directory or pattern; with --by, labels separated by commas. Repeat it for "
               "several backgrounds, each of which keeps its own mean."),
        option("--by", metavar="COLUMN", heading=_ROWS,
               help="One file for all: this column says which rows are which. Give their labels with --target and "
               "--background."),
        option("--target", "target_labels", multiple=True, metavar="LABELS", heading=_ROWS,
               help="With --by: the labels of the target rows, separated by commas. By default all rows that are not "
               "background."),
    )  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """How files are read: the arguments of :func:`standout.read`."""

    features: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    label: str | None = None
    groups: str | None = None
    groups_match: str | None = None
    ids: str | None = None
    missing: str | None = None
    key: str | None = None
    memory: str = "256MB"
    checkpoint: Path | None = None  # a directory

    @classmethod
    def of(cls, given: dict[str, Any]) -> Reading:
        """Take what belongs to reading out of a command's options."""
        chosen = {name: given.pop(name) for name in cls.__dataclass_fields__ if name in given}
        for name in ("features", "drop"):
            chosen[name] = split(chosen.get(name, ()))
        if chosen.get("groups_match") is not None and chosen.get("groups") is None:
            raise click.UsageError("--groups-match is about the groups column. Give --groups COLUMN too.")
        return cls(**chosen)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``read`` that are not the usual ones."""
        given = {
            "missing": self.missing, "columns": list(self.features) or None, "drop": list(self.drop) or None,
            "label": self.label, "groups": self.groups, "groups_match": self.groups_match, "ids": self.ids,
            "key": self.key,
            "memory": None if self.memory == "256MB" else self.memory,
        }  # fmt: skip
        return {name: value for name, value in given.items() if value is not None}

    def kept(self, number: int, name: str) -> dict[str, str]:
        """Return the argument of ``read`` that says where the pass over a dataset is kept; names may be alike."""
        if self.checkpoint is None:
            return {}
        plain = re.sub(r"[^\w.-]", "_", name)[:80]
        return {"checkpoint": str(self.checkpoint / f"{number}-{plain}.checkpoint")}


@dataclass(frozen=True)
class Side:
    """One dataset: where it comes from, how it is read, its source, and what reading did to it."""

    role: str
    path: str
    arguments: dict[str, Any]
    source: Any = None
    lost: dict[str, int] = field(default_factory=dict)  # features left out for missing values, here or elsewhere

    def opened(self) -> Side:
        """Return the side with its source; a background need not have every column that is named."""
        try:
            return replace(self, source=read(self.path, role=self.role, **self.arguments))
        except ColumnError as error:
            if error.argument == "drop" and error.column in self.arguments["drop"]:
                rest = [name for name in self.arguments["drop"] if name != error.column]
                return self._reading(drop=rest).opened()
            if self.role != "target" and error.argument in ("label", "ids"):
                return self._reading(**{error.argument: None}).opened()
            raise

    def _reading(self, **changed: Any) -> Side:
        arguments = {**self.arguments, **changed}
        return replace(self, arguments={name: value for name, value in arguments.items() if value not in (None, [])})

    def keeping(self, kept: dict[str, str]) -> Side:
        """Return the side with the place where its pass is kept, if there is one."""
        return replace(self, arguments={**self.arguments, **kept})

    def without(self, lost: dict[str, int]) -> Side:
        """Return the side without features that have missing values in some dataset."""
        return replace(self._reading(drop=[*self.arguments.get("drop", []), *lost]).opened(), lost=lost)

    @property
    def account(self) -> ReadSummary:
        """What reading did."""
        account: ReadSummary = self.source.account
        if not self.lost:
            return account
        return replace(account, features_left_out=tuple(self.lost), missing={n: c for n, c in self.lost.items() if c})

    @property
    def whole(self) -> bool:
        """Whether every row of the file is used."""
        return "where" not in self.arguments and not self.source.account.rows_left_out

    def code(self) -> str:
        """Return how Python reads it."""
        arguments = "".join(f", {name}={value!r}" for name, value in self.arguments.items())
        return f"standout.read({self.path!r}{arguments})"


@dataclass(frozen=True)
class Data:
    """The target and the backgrounds, read."""

    target: Side
    backgrounds: dict[str, Side] = field(default_factory=dict)

    @property
    def sides(self) -> list[Side]:
        """All datasets, target first."""
        return [self.target, *self.backgrounds.values()]

    @property
    def background(self) -> Any:
        """The backgrounds as ``fit`` takes them."""
        sources = {name: side.source for name, side in self.backgrounds.items()}
        return None if not sources else sources if len(sources) > 1 else next(iter(sources.values()))


def load(target: str, background: Sequence[str], by: str | None, labels: Sequence[str], reading: Reading) -> Data:
    """Read the target and the backgrounds."""
    if by is None:
        if labels:
            raise click.UsageError("--target names labels, and --by does not say in which column. Give --by COLUMN.")
        sides = _by_file(target, background, reading)
    else:
        sides = _by_label(target, background, by, labels, reading)
    if reading.checkpoint is not None:
        make_directory(reading.checkpoint, "--checkpoint")
    opened = [side.keeping(reading.kept(number, name)).opened() for number, (name, side) in enumerate(sides.items())]
    _check_dropped(reading.drop, opened)
    opened = _without_lost(opened)
    return Data(opened[0], dict(zip(list(sides)[1:], opened[1:], strict=True)))


def _by_file(target: str, background: Sequence[str], reading: Reading) -> dict[str, Side]:
    arguments = reading.arguments()
    names = distinct([Path(path).name.split(".")[0] or path for path in background])
    sides = {"target": Side("target", target, arguments)}
    return sides | {
        name: Side(_role(name, background), path, arguments) for name, path in zip(names, background, strict=True)
    }


def _by_label(
    path: str, background: Sequence[str], by: str, labels: Sequence[str], reading: Reading
) -> dict[str, Side]:
    arguments = reading.arguments()
    arguments.setdefault("label", by)
    parts = [list(split((name,))) for name in background]
    taken = [label for part in parts for label in part]
    chosen = list(split(labels)) or _others(path, by, arguments, taken)
    _check_apart([*chosen, *taken])
    sides = {"target": Side("target", path, {**arguments, "where": {by: chosen}})}
    for name, part in zip(distinct(list(background)), parts, strict=True):
        sides[name] = Side(_role(name, background), path, {**arguments, "where": {by: part}})
    return sides


def _check_apart(labels: list[str]) -> None:
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise InputError(
            f"the label {twice[0]!r} is given twice, so its rows would be on both sides or count twice. Give each "
            "label once."
        )


def _others(path: str, by: str, arguments: dict[str, Any], taken: list[str]) -> list[str]:
    """Return the labels that are not background; rows without a label are neither."""
    quick = {name: value for name, value in arguments.items() if name not in ("missing", "label")}
    labels = Side("target", path, {**quick, "label": by}).opened().source.labels
    rest = [label for label in dict.fromkeys(labels) if label is not None and label not in taken]
    if not rest:
        raise InputError(f"{path}: all rows are background ({by} is one of {', '.join(taken)}). Give fewer labels.")
    return rest


def _check_dropped(asked: Sequence[str], sides: list[Side]) -> None:
    """Refuse a column to drop that no dataset has."""
    for name in asked:
        if not any(name in side.arguments.get("drop", []) for side in sides):
            read(sides[0].path, role="target", **{**sides[0].arguments, "drop": [name]})  # says so, with a hint


def _without_lost(sides: list[Side]) -> list[Side]:
    """Leave a feature that was left out of one dataset, for its missing values, out of the others too."""
    lost: dict[str, int] = {}
    for side in sides:
        account = side.source.account
        for name in account.features_left_out:
            lost[name] = lost.get(name, 0) + account.missing.get(name, 0)
    return [side.without(lost) for side in sides] if lost else sides


def _role(name: str, background: Sequence[str]) -> str:
    return "background" if len(background) == 1 else f"background {name!r}"


def distinct(names: Sequence[str]) -> list[str]:
    """Return the names, made unlike each other and the target's."""
    found = ["target"]
    for name in names:
        number, new = 2, "background" if name == "target" else name
        while new in found:
            new, number = f"{name} ({number})", number + 1
        found.append(new)
    return found[1:]


def split(values: Sequence[str]) -> tuple[str, ...]:
    r"""Return names that were given separated by commas; a comma inside a name is written as ``\,``."""
    parts = (part for value in values for part in re.split(r"(?<!\\),", value))
    return tuple(part.strip().replace("\\,", ",") for part in parts if part.strip())
