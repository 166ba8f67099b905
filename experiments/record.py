"""The record of an experiment: settings, numbers, times, tables, figures and findings.

Numbers are bit-for-bit reproducible from the seeds and times are not, so the two are stored separately. A table can be
written as text for the terminal, as Markdown for the docs, and as JSON.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

_NOTHING = "–"


@dataclass(frozen=True)
class Plan:
    """What to run: seeds, size and data."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    reduced: bool = False  # small enough for the tests; the conclusions must still hold
    data_dir: Path | None = None  # directory of the paper's data; None: STANDOUT_DATA, the cache, or a download
    embedded: bool = False  # run on data from scikit-learn or on simulated data instead of the paper's


@dataclass(frozen=True)
class Spread:
    """One quantity over several seeds."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return float(np.mean(self.values))

    @property
    def low(self) -> float:
        """The smallest value."""
        return float(np.min(self.values))

    @property
    def high(self) -> float:
        """The largest value."""
        return float(np.max(self.values))

    def facts(self) -> dict[str, Any]:
        """Return mean, range and values, for JSON."""
        return {"mean": self.mean, "low": self.low, "high": self.high, "values": list(self.values)}


Cell = str | int | float | Spread | None


@dataclass(frozen=True)
class Table:
    """A table; the first column holds the row headers."""

    name: str  # used in file names and marks: lower case, with underscores
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    digits: int = 2  # decimals of its numbers


@dataclass(frozen=True)
class Picture:
    """A figure, drawn when it is written."""

    name: str
    title: str
    caption: str
    draw: Callable[[], Any]  # returns a new matplotlib Figure


@dataclass(frozen=True)
class Record:
    """The results of one experiment."""

    name: str
    title: str
    claim: str  # claim of the paper, in one or two sentences
    findings: tuple[str, ...]  # sentences with numbers inserted by the code
    settings: Mapping[str, Any]
    numbers: Mapping[str, Any]  # JSON: str keys, floats, ints, lists, Spread; reproducible bit for bit from the seeds
    times: Mapping[str, Any] = field(default_factory=dict)  # JSON: seconds and their ratios
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()

    @property
    def caution(self) -> str:
        """How this run differs from that of the paper: other data, smaller size; empty if it does not."""
        parts = []
        if self.settings.get("embedded"):
            parts.append(f"Not the paper's data but a substitute: {self.settings.get('data', 'simulated')}.")
        if self.settings.get("reduced"):
            parts.append("Reduced size: fewer rows and seeds than the paper's experiment.")
        return " ".join(parts)


def written(cell: Cell, digits: int = 2) -> str:
    """Return a cell as text; a quantity over several seeds is written as mean and range.

    Examples
    --------
    >>> written(Spread((0.72, 0.74, 0.78))), written(Spread((0.5,))), written(1234), written(float("nan"))
    ('0.75 (0.72 to 0.78)', '0.50', '1234', '–')
    >>> written(-0.001), written(2.5e7, 1), written(float("inf"))
    ('0.00', '2.5e+07', 'inf')
    """
    if isinstance(cell, Spread):
        mean = written(cell.mean, digits)
        return (
            mean if len(cell.values) == 1 else f"{mean} ({_number(cell.low, digits)} to {_number(cell.high, digits)})"
        )
    if cell is None:
        return _NOTHING
    return _number(cell, digits) if isinstance(cell, float) else str(cell)


def as_rows(table: Table) -> list[list[str]]:
    """Return the cells of a table as text, row by row, without the column headers.

    Examples
    --------
    >>> as_rows(Table("t", "T", ("method", "ARI"), (("PCA", Spread((0.0, 0.1))),)))
    [['PCA', '0.05 (0.00 to 0.10)']]
    """
    return [[written(cell, table.digits) for cell in row] for row in table.rows]


def as_text(table: Table) -> str:
    """Return a table for the terminal: title, aligned columns, note.

    Examples
    --------
    >>> print(as_text(Table("t", "How well", ("method", "ARI"), (("PCA", 0.0), ("dPCA", 0.754)))))
    How well
    method   ARI
    PCA     0.00
    dPCA    0.75
    """
    rows = [list(table.columns), *as_rows(table)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            text.rjust(width) if place else text.ljust(width) for place, (text, width) in enumerate(cells)
        ).rstrip()
        for cells in (list(zip(row, widths, strict=True)) for row in rows)
    ]
    return "\n".join([table.title, *lines, *([table.note] if table.note else [])])


def as_markdown(table: Table) -> str:
    r"""Return a table as Markdown, without its title; the note follows as a paragraph.

    Examples
    --------
    >>> print(as_markdown(Table("t", "How well", ("method", "ARI"), (("a|b", 0.754),))))
    | method | ARI |
    |---|---:|
    | a\|b | 0.75 |
    """
    rows = [list(table.columns), *as_rows(table)]
    head, *body = ["| " + " | ".join(text.replace("|", "\\|") for text in row) + " |" for row in rows]
    rule = "|---|" + "---:|" * (len(table.columns) - 1)
    return "\n".join([head, rule, *body, *(["", table.note] if table.note else [])])


def table_facts(table: Table) -> dict[str, Any]:
    """Return a table for JSON; :func:`table_from` is the inverse."""
    return {
        "title": table.title,
        "columns": list(table.columns),
        "rows": [[cell.facts() if isinstance(cell, Spread) else cell for cell in row] for row in table.rows],
        "note": table.note,
        "digits": table.digits,
    }


def table_from(name: str, facts: Mapping[str, Any]) -> Table:
    """Return a table from the JSON of an experiment.

    Examples
    --------
    >>> table = Table("t", "How well", ("method", "ARI"), (("PCA", Spread((0.0, 0.1))), ("dPCA", None)))
    >>> table_from("t", table_facts(table)) == table
    True
    """
    rows = tuple(
        tuple(Spread(_floats(cell["values"])) if isinstance(cell, Mapping) else cell for cell in row)
        for row in facts["rows"]
    )
    return Table(name, facts["title"], tuple(facts["columns"]), rows, facts["note"], facts["digits"])


def _floats(values: Sequence[Any]) -> tuple[float, ...]:
    """Return numbers from JSON, where NaN is null and infinity is text."""
    return tuple(math.nan if value is None else float(value) for value in values)


def _number(value: float, digits: int) -> str:
    if math.isnan(value):
        return _NOTHING
    return f"{value:.1e}" if abs(value) >= 1e6 else f"{round(value, digits) + 0.0:.{digits}f}"  # avoid a negative zero
