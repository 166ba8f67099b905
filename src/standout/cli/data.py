"""Which data: the options that say it, and the sources they mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from standout.cli.help import option, together
from standout.errors import ColumnError, InputError
from standout.sources import read
from standout.sources.files.options import MISSING

_ROWS, _COLUMNS = "Which rows", "Which columns"


def reading_options(describing: bool = True) -> Callable[[Any], Any]:
    """Return the options on how files are read; ``describing``: also on what columns mean."""
    columns = [
        option("--features", multiple=True, metavar="NAMES", heading=_COLUMNS,
               help="Columns that are features, separated by commas; shell patterns such as '*_N' are fine. "
               "By default every column of numbers."),
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
    rest = [
        option("--ids", metavar="COLUMN", heading=_COLUMNS, help="The name of each row; it is not a feature."),
        option("--missing", type=click.Choice(MISSING), heading=_ROWS,
               help="What to do about missing values: leave out rows that have any, leave out features that have any, "
               "or fill in each dataset's own mean. By default they are an error."),
        option("--key", metavar="NAME", heading=_ROWS,
               help="The array inside a file that holds several (npz, h5, zarr), or the layer of an h5ad."),
        option("--memory", default="256MB", show_default=True, metavar="SIZE", heading=_ROWS,
               help="Files whose numbers take no more than this are kept in memory, which lets every solver read them "
               "again; larger ones are read in blocks."),
    ]  # fmt: skip
    return together(*(columns if describing else []), *rest)


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

    @classmethod
    def of(cls, given: dict[str, Any]) -> Reading:
        """Take what belongs to reading out of a command's options."""
        chosen = {name: given.pop(name) for name in cls.__dataclass_fields__ if name in given}
        for name in ("features", "drop"):
            chosen[name] = _split(chosen.get(name, ()))
        if chosen.get("groups_match") is not None:
            _check_pattern(chosen["groups_match"], chosen.get("groups"))
        return cls(**chosen)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``read`` that are not the usual ones."""
        given = {
            "missing": self.missing, "columns": list(self.features) or None, "drop": list(self.drop) or None,
            "label": self.label, "groups": self.groups, "ids": self.ids, "key": self.key,
            "memory": None if self.memory == "256MB" else self.memory,
        }  # fmt: skip
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class Side:
    """One dataset: where it comes from, how it is read, and its source."""

    role: str
    path: str
    arguments: dict[str, Any]
    source: Any = None

    def opened(self) -> Side:
        """Return the side with its source; a background need not have the columns of labels and ids."""
        try:
            return replace(self, source=read(self.path, role=self.role, **self.arguments))
        except ColumnError as error:
            if self.role == "target" or error.argument not in ("label", "ids"):
                raise
            rest = {name: value for name, value in self.arguments.items() if name != error.argument}
            return replace(self, arguments=rest).opened()

    def code(self) -> str:
        """Return how Python reads it."""
        arguments = "".join(f", {name}={value!r}" for name, value in self.arguments.items())
        return f"standout.read({self.path!r}{arguments})"


@dataclass(frozen=True)
class Data:
    """The target and the backgrounds, read."""

    target: Side
    backgrounds: dict[str, Side] = field(default_factory=dict)
    groups_match: str | None = None

    @property
    def sides(self) -> list[Side]:
        """All datasets, target first."""
        return [self.target, *self.backgrounds.values()]

    @property
    def background(self) -> Any:
        """The backgrounds as ``fit`` takes them."""
        sources = {name: side.source for name, side in self.backgrounds.items()}
        return None if not sources else sources if len(sources) > 1 else next(iter(sources.values()))

    def fit_arguments(self) -> dict[str, Any]:
        """Return what ``fit`` gets besides the target."""
        given: dict[str, Any] = {"background": self.background}
        if self.groups_match is not None:
            given["groups"] = self._subjects(self.target)
            subjects = {name: self._subjects(side) for name, side in self.backgrounds.items()}
            if subjects:
                given["background_groups"] = subjects if len(subjects) > 1 else next(iter(subjects.values()))
        return given

    def _subjects(self, side: Side) -> list[str]:
        assert self.groups_match is not None
        found = [(value, re.search(self.groups_match, str(value))) for value in side.source.groups]
        without = [value for value, match in found if match is None]
        if without:
            raise InputError(
                f"{side.role}: --groups-match {self.groups_match!r} does not match {len(without)} of {len(found)} "
                f"groups, such as {without[0]!r}. Give a pattern that matches all of them."
            )
        return [match[1] if match.re.groups else match[0] for _, match in found if match is not None]


def load(target: str, background: Sequence[str], by: str | None, labels: Sequence[str], reading: Reading) -> Data:
    """Read the target and the backgrounds."""
    if by is None:
        if labels:
            raise click.UsageError("--target names labels, and --by does not say in which column. Give --by COLUMN.")
        sides = _by_file(target, background, reading)
    else:
        sides = _by_label(target, background, by, labels, reading)
    opened = [side.opened() for side in sides.values()]
    opened = _without_common(opened)
    return Data(opened[0], dict(zip(list(sides)[1:], opened[1:], strict=True)), reading.groups_match)


def _by_file(target: str, background: Sequence[str], reading: Reading) -> dict[str, Side]:
    arguments = reading.arguments()
    names = _distinct([Path(path).name.split(".")[0] or path for path in background])
    sides = {"target": Side("target", target, arguments)}
    for name, path in zip(names, background, strict=True):
        sides[name if name != "target" else "background"] = Side(_role(name, background), path, arguments)
    return sides


def _by_label(
    path: str, background: Sequence[str], by: str, labels: Sequence[str], reading: Reading
) -> dict[str, Side]:
    arguments = reading.arguments()
    arguments.setdefault("label", by)
    wanted = {name: list(_split((name,))) for name in background}
    chosen = list(_split(labels)) or _others(path, by, arguments, [label for part in wanted.values() for label in part])
    sides = {"target": Side("target", path, {**arguments, "where": {by: chosen}})}
    for name, part in wanted.items():
        sides[f"background {name}" if name == "target" else name] = Side(
            _role(name, background), path, {**arguments, "where": {by: part}}
        )
    return sides


def _others(path: str, by: str, arguments: dict[str, Any], taken: list[str]) -> list[str]:
    """Return the labels that are not background: a pass over the file, whatever values are missing in it."""
    quick = {name: value for name, value in arguments.items() if name not in ("missing", "label")}
    labels = read(path, role="target", label=by, **quick).labels
    assert labels is not None
    rest = [label for label in dict.fromkeys(str(label) for label in labels) if label not in taken]
    if not rest:
        raise InputError(f"{path}: all rows are background ({by} is one of {', '.join(taken)}). Give fewer labels.")
    return rest


def _without_common(sides: list[Side]) -> list[Side]:
    """Leave a feature that was left out of one dataset, for its missing values, out of the others too."""
    lost = sorted({name for side in sides for name in side.source.account.features_left_out})
    if not lost:
        return sides
    return [replace(side, arguments=_dropping(side.arguments, lost)).opened() for side in sides]


def _dropping(arguments: dict[str, Any], lost: list[str]) -> dict[str, Any]:
    return {**arguments, "drop": [*arguments.get("drop", []), *lost]}


def _role(name: str, background: Sequence[str]) -> str:
    return "background" if len(background) == 1 else f"background {name!r}"


def _distinct(names: list[str]) -> list[str]:
    """Return the names, numbered where they are the same."""
    return [name if names.count(name) == 1 else f"{name} {number}" for number, name in enumerate(names, 1)]


def _split(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


def _check_pattern(pattern: str, groups: str | None) -> None:
    if groups is None:
        raise click.UsageError("--groups-match is about the groups column. Give --groups COLUMN too.")
    try:
        re.compile(pattern)
    except re.error as error:
        raise InputError(f"--groups-match {pattern!r} is not a regular expression ({error}). Check it.") from error
