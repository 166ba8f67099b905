"""What an experiment leaves: settings, numbers, times, tables, figures and sentences.

Numbers repeat with the same seeds to the last bit; times do not, so they are kept apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


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
