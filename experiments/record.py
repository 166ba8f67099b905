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
    """What to run: which seeds, how large, and on which data."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    reduced: bool = False  # small enough for every test run; the conclusions must still hold
    data_dir: Path | None = None  # where the paper's data is; None: STANDOUT_DATA, the cache, a download
    embedded: bool = False  # do without the paper's data: what comes with scikit-learn, or is made up, stands in


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
        """The smallest of them."""
        return float(np.min(self.values))

    @property
    def high(self) -> float:
        """The largest of them."""
        return float(np.max(self.values))

    def facts(self) -> dict[str, Any]:
        """Return mean, range and values, for JSON."""
        return {"mean": self.mean, "low": self.low, "high": self.high, "values": list(self.values)}


Cell = str | int | float | Spread | None


@dataclass(frozen=True)
class Table:
    """One table; the first column heads the rows."""

    name: str  # for files and marks: lower case, "_" between words
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    digits: int = 2  # decimals of the numbers in it


@dataclass(frozen=True)
class Picture:
    """One figure: drawn when it is written."""

    name: str
    title: str
    caption: str
    draw: Callable[[], Any]  # returns a matplotlib Figure of its own


@dataclass(frozen=True)
class Record:
    """One experiment, run."""

    name: str
    title: str
    claim: str  # what the paper says, in a sentence or two
    findings: tuple[str, ...]  # what came out, in sentences with numbers put in by the code
    settings: Mapping[str, Any]
    numbers: Mapping[str, Any]  # JSON: str keys, floats, ints, lists, Spread; the same bits for the same seeds
    times: Mapping[str, Any] = field(default_factory=dict)  # JSON: seconds and their ratios
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()

    @property
    def caution(self) -> str:
        """What stands between this run and the paper's: other data, a smaller size; nothing where there is none."""
        said = []
        if self.settings.get("embedded"):
            said.append(f"Not the paper's data: {self.settings.get('data', 'made up')} stands in.")
        if self.settings.get("reduced"):
            said.append("Reduced size: fewer rows and seeds than the paper's experiment.")
        return " ".join(said)


def written(cell: Cell, digits: int = 2) -> str:
    """Return a cell as text; what several seeds gave is its mean with the range.

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
    """Return the cells of a table as text, row by row, without the heads of its columns.

    Examples
    --------
    >>> as_rows(Table("t", "T", ("method", "ARI"), (("PCA", Spread((0.0, 0.1))),)))
    [['PCA', '0.05 (0.00 to 0.10)']]
    """
    return [[written(cell, table.digits) for cell in row] for row in table.rows]


def as_text(table: Table) -> str:
    """Return a table for the terminal: its title, the columns under each other, the note below.

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
    r"""Return a table as Markdown, without its title; the note is a paragraph below.

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
    """Return a table for JSON; :func:`table_from` makes it a table again."""
    return {
        "title": table.title,
        "columns": list(table.columns),
        "rows": [[cell.facts() if isinstance(cell, Spread) else cell for cell in row] for row in table.rows],
        "note": table.note,
        "digits": table.digits,
    }


def table_from(name: str, facts: Mapping[str, Any]) -> Table:
    """Return a table from what stands in the JSON of an experiment, so that docs show what a command wrote.

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
    """Return numbers from JSON, where those without a meaning are null and infinite ones are text."""
    return tuple(math.nan if value is None else float(value) for value in values)


def _number(value: float, digits: int) -> str:
    if math.isnan(value):
        return _NOTHING
    return f"{value:.1e}" if abs(value) >= 1e6 else f"{round(value, digits) + 0.0:.{digits}f}"  # no minus before zero
