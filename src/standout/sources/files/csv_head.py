"""The first line of a csv file: what separates values, and what the columns are called."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from standout.errors import InputError
from standout.sources.files.columns import check_distinct
from standout.sources.files.csv_rows import Dialect, check_text, end_of_rows, opened

# What an empty first name becomes: pandas and R leave it empty above the names of the rows.
INDEX = "index"

_HEAD = 2**18
_LONGEST = 64 * 2**20
# What may separate values, by preference where several occur equally often.
_SEPARATORS = {".csv": ",;\t", ".tsv": "\t,;", ".txt": "\t;, "}
# So many numbers in increasing or decreasing order are a scale and not a row of data; fewer must be evenly spaced.
_SCALE = 8


@dataclass(frozen=True)
class Head:
    """What the first line of a file says."""

    path: Path
    where: str
    names: tuple[str, ...]
    index: tuple[str, ...]  # the column whose name was left empty, if it is the first
    separator: str
    nbytes: int  # of the first line, and of what stands before it
    lines: int
    file_size: int

    @property
    def size(self) -> int:
        """How many bytes of rows to read at a time: some hundred rows, and some megabytes."""
        return min(max(2 * 2**20, 256 * self.nbytes), 32 * 2**20)


def read_head(path: Path, where: str) -> Head:
    """Read the first line of a file."""
    start, file_size = _beginning(path, where)
    check_text(start, path, where)
    mark = len(codecs.BOM_UTF8) if start.startswith(codecs.BOM_UTF8) else 0
    text = codecs.getincrementaldecoder("utf-8")().decode(start[mark:])
    separator = _separator(text, path)
    lines = list(io.StringIO(text, newline=""))
    reader = csv.reader(lines, delimiter=separator)
    try:
        first = next(row for row in reader if row)
    except csv.Error as error:
        raise InputError(f"{where}: its first line cannot be read ({error}). Check the quotes in it.") from error
    nbytes = mark + len("".join(lines[: reader.line_num]).encode())
    names, index = _names([name.strip() for name in first])
    check_distinct(names, where)
    _check_names(names, index, where)
    return Head(path, where, names, index, separator, nbytes, reader.line_num, file_size)


def _beginning(path: Path, where: str) -> tuple[bytes, int]:
    """Return the start of a file, long enough for its first line, and the size of the file."""
    with opened(path, where) as (stream, file):
        start: bytes = stream.read(_HEAD)
        while b"\0" not in start and not end_of_rows(start.lstrip(), ","):
            if len(start) > _LONGEST:
                raise InputError(
                    f"{where}: its first line does not end for {len(start) >> 20} MB. Give a table with names in its "
                    "first line and rows in the others."
                )
            more = stream.read(len(start))
            if not more:
                break
            start += more
        return start, file.size()


def _separator(text: str, path: Path) -> str:
    """Return what separates the names: what the suffix says, unless something else stands there more often."""
    line = next(iter(re.sub(r'"[^"]*"', "", text.lstrip()).splitlines()), "")
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() in _SEPARATORS]
    usual = _SEPARATORS[suffixes[-1] if suffixes else ".txt"]
    counts = {separator: line.count(separator) for separator in usual}
    if " " in counts and any(counts[separator] for separator in usual if separator != " "):
        counts[" "] = 0  # names may hold spaces; they separate only where nothing else does
    return max(usual, key=lambda separator: counts[separator])


def _names(found: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Name the columns that have no name: the first one names rows, the others have a number."""
    names = [name or f"column {place}" for place, name in enumerate(found, 1)]
    if found[0] or len(found) == 1:
        return tuple(names), ()
    if INDEX not in names:
        names[0] = INDEX
    return tuple(names), (names[0],)


def _check_names(names: tuple[str, ...], index: tuple[str, ...], where: str) -> None:
    """Refuse a first line that looks like a row: half of it or more are numbers, and they are no count and no scale."""
    own = [name for name in names if name not in index]
    numbers = [name for name in own if re.match(Dialect().number, name)]
    values = [float(name) for name in numbers]
    if 2 * len(values) < len(own) or _is_scale(values, least=_SCALE if len(values) == len(own) else 3):
        return
    if values == list(range(len(own))) and (len(values) > 2 or index):
        return  # as pandas numbers columns
    raise InputError(
        f"{where}: its first line must hold the names of the columns, and {len(values)} of {len(own)} there are "
        f"numbers, such as {numbers[0]!r}. Add a line of names, or name numbered columns 0, 1, 2 and so on."
    )


def _is_scale(values: Sequence[float], least: int) -> bool:
    """Tell whether numbers are so many and so regular that they are a scale: wavelengths, years."""
    steps = [b - a for a, b in pairwise(values)]
    if len(values) < least or not (all(step > 0 for step in steps) or all(step < 0 for step in steps)):
        return False
    return len(values) >= _SCALE or max(steps) - min(steps) <= 1e-3 * abs(steps[0])
