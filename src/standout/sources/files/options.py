"""How a dataset is to be read: which columns are what, what to do about missing values, how much memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from standout.errors import InputError
from standout.output import check_writable

MISSING = ("auto", "drop_rows", "drop_features", "mean")
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}


@dataclass(frozen=True)
class Options:
    """What :func:`standout.read` was asked for, checked."""

    missing: str | None = None
    columns: tuple[str, ...] | None = None  # features, by name or pattern with * or ?; None: every column of numbers
    drop: tuple[str, ...] = ()  # columns that take no part, by name or pattern with * or ?
    label: str | None = None
    groups: str | None = None
    ids: str | None = None
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # rows to keep: column → values, as text
    key: str | None = None  # the array inside a file that holds several
    memory: int = 256 * 10**6  # numbers that take no more than this are kept in memory; blocks take no more either
    checkpoint: Path | None = None  # where a pass is kept that may be killed

    @classmethod
    def of(
        cls,
        *,
        missing: str | None = None,
        columns: str | Iterable[str] | None = None,
        drop: str | Iterable[str] | None = None,
        label: str | None = None,
        groups: str | None = None,
        ids: str | None = None,
        where: Mapping[str, Any] | None = None,
        key: str | None = None,
        memory: str | float = "256MB",
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Options:
        """Check what was given."""
        if missing is not None and missing not in MISSING:
            raise InputError(
                f"missing={missing!r} is not possible. Use None or one of {', '.join(map(repr, MISSING))}."
            )
        return cls(
            missing=missing,
            columns=None if columns is None else _names("columns", columns),
            drop=() if drop is None else _names("drop", drop),
            label=label,
            groups=groups,
            ids=ids,
            where={column: _values(column, values) for column, values in (where or {}).items()},
            key=key,
            memory=as_bytes(memory),
            checkpoint=None if checkpoint is None else _checkpoint(checkpoint),
        )

    @property
    def roles(self) -> dict[str, str]:
        """The columns that describe rows, with the argument that names them."""
        named = {"label": self.label, "groups": self.groups, "ids": self.ids}
        chosen = {column: argument for argument, column in named.items() if column is not None}
        return chosen | {column: "where" for column in self.where if column not in chosen}

    @property
    def is_default(self) -> bool:
        """Whether nothing but memory was asked for."""
        return self == Options(memory=self.memory)


def as_bytes(memory: str | float) -> int:
    """Return an amount of memory in bytes.

    Examples
    --------
    >>> as_bytes("1.5GB"), as_bytes(1000)
    (1500000000, 1000)
    """
    if isinstance(memory, int | float) and not isinstance(memory, bool) and 0 <= memory < 2**62:
        return int(memory)
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", memory) if isinstance(memory, str) else None
    if found is None or found[2].lower() not in _UNITS:
        raise InputError(f"memory={memory!r} is not an amount. Use bytes, or text such as '512MB' or '2GB'.")
    return int(float(found[1]) * _UNITS[found[2].lower()])


def _checkpoint(given: str | os.PathLike[str]) -> Path:
    if not isinstance(given, str | os.PathLike):
        raise InputError(f"checkpoint={given!r} is not a path. Give the name of a file, or None for no checkpoint.")
    return check_writable(given, "checkpoint")


def _names(argument: str, given: str | Iterable[str]) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"{argument}={given!r} is not possible. Give one name or a list of names.")
    return names


def _values(column: str, given: Any) -> tuple[str, ...]:
    values = list(given) if isinstance(given, list | tuple | set | frozenset) else [given]
    if not values:
        raise InputError(f"where: no value for column {column!r}. Give at least one value of it.")
    return tuple(str(value) for value in values)
