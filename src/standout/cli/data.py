"""Read the datasets of a command: the sources that its options describe."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from standout.cli.options import MEMORY
from standout.errors import ColumnError, InputError
from standout.io.output import make_directory
from standout.io.read import read, split_key
from standout.io.stream import ReadSummary


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

    def code(self) -> str:
        """Return the Python code that reads the dataset."""
        arguments = "".join(f", {name}={value!r}" for name, value in self.arguments.items())
        return f"standout.read({self.path!r}{arguments})"


# Options that are passed to `read` as they are.
_TEXTS = ("label", "groups", "groups_match", "ids", "key", "header", "encoding", "censored")
Files = dict[str, InputFile]  # the datasets of a command by name, the target first


def backgrounds(files: Files, values: Sequence[Any] | None = None) -> Any:
    """Return the backgrounds, or one value for each of them, in the form that the library takes."""
    names = list(files)[1:]
    values = [files[name].source for name in names] if values is None else values
    if len(names) < 2:
        return values[0] if names else None
    return dict(zip(names, values, strict=True))


def accounts(files: Files) -> list[dict[str, Any]]:
    """Return what was read of each dataset, for JSON."""
    return [{"role": file.role, **asdict(file.account)} for file in files.values()]


def load(target: str, given: dict[str, Any]) -> Files:
    """Remove the options on data from ``given`` and read the target and the backgrounds."""
    background, by, labels = (given.pop(name) for name in ("background", "by", "target_labels"))
    checkpoint, arguments = given.pop("checkpoint", None), take_reading(given)
    if by is None and labels:
        raise click.UsageError("--target gives labels, but not their column. Give --by COLUMN too.")
    if by is None:
        names = distinct([_short_name(path) for path in background])
        inputs = [(path, arguments) for path in (target, *background)]
    else:
        names = distinct(background)
        inputs = [(target, part) for part in _split_by_label(target, background, by, labels, arguments)]
    roles = ["background"] if len(names) == 1 else [f"background {name!r}" for name in names]
    files = [InputFile(role, *each) for role, each in zip(["target", *roles], inputs, strict=True)]
    names = ["target", *names]
    if checkpoint is not None:
        make_directory(checkpoint, "--checkpoint")
        for i, name in enumerate(names):
            plain = re.sub(r"[^\w.-]", "_", name)[:80]
            files[i] = files[i].reading(checkpoint=str(checkpoint / f"{i}-{plain}.checkpoint"))
    files = [file.opened() for file in files]
    for name in arguments.get("drop", ()):
        if not any(name in file.arguments.get("drop", []) for file in files):  # raises, because no dataset has it
            read(files[0].path, role="target", **{**files[0].arguments, "drop": [name]})
    return dict(zip(names, _drop_together(files), strict=True))


def _short_name(given: str) -> str:
    """Return the name of a dataset: its sheet, or its file without suffixes."""
    path, key = split_key(given)
    return key or Path(path).name.split(".")[0] or path


def take_reading(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the reading options from ``given`` and return them as arguments of :func:`standout.read`."""
    arguments: dict[str, Any] = {"missing": given.pop("missing")}
    arguments["columns"] = split(given.pop("features", ()))
    arguments["drop"] = split(given.pop("drop", ()))
    arguments |= {name: given.pop(name) or None for name in ("transpose", "cube")}
    arguments |= {name: given.pop(name, None) for name in _TEXTS}
    if arguments["groups_match"] is not None and arguments["groups"] is None:
        raise click.UsageError("--groups-match applies to the groups column. Give --groups COLUMN too.")
    memory = given.pop("memory")
    return _without_empty({**arguments, "memory": None if memory == MEMORY else memory})


def _without_empty(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value not in (None, [])}


def _split_by_label(
    path: str, background: Sequence[str], by: str, labels: Sequence[str], arguments: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the arguments of ``read`` that select the rows of the target and of each background."""
    arguments = {"label": by, **arguments}
    parts = [split((name,)) for name in background]
    taken, chosen = [label for part in parts for label in part], split(labels)
    if not chosen:  # all labels that are not background; rows without a label are in neither
        found = InputFile("target", path, arguments).reading(missing=None, label=by).opened().source.labels
        chosen = [label for label in dict.fromkeys(found) if label is not None and label not in taken]
        if not chosen:
            raise InputError(f"{path}: all rows are background ({by} is one of {', '.join(taken)}). Give fewer labels.")
    duplicates = sorted(label for label, times in Counter([*chosen, *taken]).items() if times > 1)
    if duplicates:
        raise InputError(f"the label {duplicates[0]!r} is given twice. Give each label once, to target or background.")
    return [{**arguments, "where": {by: part}} for part in (chosen, *parts)]


def _drop_together(files: list[InputFile]) -> list[InputFile]:
    """Leave features that one dataset lost to missing values out of the other datasets too."""
    dropped: Counter[str] = Counter()
    for account in (file.source.account for file in files):
        dropped.update({name: account.missing.get(name, 0) for name in account.features_left_out})
    if not dropped:
        return files
    shorter = [file.reading(drop=[*file.arguments.get("drop", []), *dropped]).opened() for file in files]
    return [replace(file, dropped=dropped) for file in shorter]


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
