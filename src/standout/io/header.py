"""The header of a table in text: the line that has it, the separator, and the names of columns and row ids.

Comments and titles may precede it, and R leaves out the name of the column with row names.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from standout.errors import InputError
from standout.io.memory import check_distinct

# Possible separators, in order of preference if several occur equally often.
_SEPARATORS = {".csv": ",;\t", ".tsv": "\t,;", ".txt": "\t;, "}
# This many increasing or decreasing numbers in a header are a scale such as wavelengths; fewer must be evenly spaced.
_MIN_SCALE = 8
# A header is looked for in this many lines below a title.
_TITLE_LINES = 20


class Header(NamedTuple):
    """The header of a text file."""

    names: tuple[str, ...]  # of all columns
    row_ids: tuple[str, ...]  # the first column, if its name is empty or left out
    separator: str
    lines: int  # up to its end


def number_pattern(decimal: str = ".") -> str:
    """Return the regular expression of a number."""
    point = re.escape(decimal)
    digits = rf"(?:[0-9]+{point}?[0-9]*|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?"
    return rf"^\s*[+-]?(?:{digits}|(?i:inf|infinity))\s*$"


def parse_header(lines: Sequence[str], path: Path, location: str, unit: str, header: int | None) -> Header:
    """Find the header in the first lines of a file; ``header`` is the number of its line, if it is known.

    ``unit`` is what messages call a line.
    """
    first = _find_line(lines, path, location, unit) if header is None else header - 1
    if first >= len(lines) or not lines[first].strip():
        raise InputError(f"{location}: `header={header}`, but there is no text in this {unit}. Give another number.")
    separator = _find_separator(lines[first], path)
    # Names in a comment: `# a,b,c` of numpy, `#CHROM` of genome tools.
    reader = csv.reader([_uncommented(lines[first]), *lines[first + 1 :]], delimiter=separator)
    try:
        found = [name.strip() for name in next(row for row in reader if row)]
    except csv.Error as error:
        raise InputError(f"{location}: its first {unit} cannot be read ({error}). Check its quotes.") from error
    end = first + reader.line_num
    if header is None and found[0] and not any(found[1:]):
        _check_no_title(lines, first, separator, location, unit)
    if _lacks_a_name(found, [line for line in lines[end:] if line.strip() and line[0] != "#"], separator):
        found = ["", *found]
    names = [name or f"column {position}" for position, name in enumerate(found, 1)]
    index: tuple[str, ...] = ()
    if not found[0] and len(found) > 1:  # pandas and R leave the name of the index empty
        names[0] = names[0] if "index" in names else "index"
        index = (names[0],)
    check_distinct(names, location)
    _check_names(names[len(index) :], location, f"{unit} {header}" if header else f"the first {unit}", bool(index))
    return Header(tuple(names), index, separator, end)


def _find_line(lines: Sequence[str], path: Path, location: str, unit: str) -> int:
    """Return the position of the line with the names: the first that is neither empty nor a comment.

    The comment before it has the names if it has as many of them as the line has values, and one of these is a number.
    """
    first = next((i for i, line in enumerate(lines) if line.strip() and line[0] != "#"), None)
    if first is None:
        problem = f"it has comments, but no {unit} of column names"
        raise InputError(f"{location}: {problem}. Give a table with names and rows.")
    if first and lines[first - 1].startswith("#"):
        separator = _find_separator(lines[first], path)
        comment, values = (line.split(separator) for line in (_uncommented(lines[first - 1]), lines[first]))
        number = re.compile(number_pattern())
        if len(comment) == len(values) > 1 and any(map(number.match, values)) and not any(map(number.match, comment)):
            return first - 1
    return first


def _lacks_a_name(names: Sequence[str], below: Sequence[str], separator: str) -> bool:
    """Return whether rows start with a row name that the header has no name for, as ``write.table`` of R does.

    Without quotes, a number before a comma may be the first half of a decimal number.
    """
    try:
        row = next(csv.reader(below, delimiter=separator), [])
    except csv.Error:
        return False
    has_numbers = any(re.match(number_pattern(decimal), value) for value in row[1:] for decimal in ".,")
    if len(row) != len(names) + 1 or len(names) < 2 or not row[-1].strip() or not has_numbers:
        return False
    return separator != "," or below[0].startswith('"') or not re.match(number_pattern(), row[0])


def _check_no_title(lines: Sequence[str], first: int, separator: str, location: str, unit: str) -> None:
    """Raise an error for a single value with several values in a line below: it is a title."""
    for position, line in enumerate(lines[first + 1 : first + _TITLE_LINES], first + 2):
        bare = _unquoted(line.rstrip())
        count = max(bare.count(each) for each in {separator, *",;\t"})
        if count and line[0] != "#":
            problem = f"{unit} {first + 1} has a single value, and {unit} {position} has {count + 1}"
            raise InputError(f"{location}: {problem}. Give `header={position}` if the column names are there.")


def _uncommented(line: str) -> str:
    return re.sub("^#+ *", "", line)


def _unquoted(line: str) -> str:
    return re.sub(r'"[^"]*"', "", line)


def _find_separator(line: str, path: Path) -> str:
    """Return the separator of the suffix, unless another one occurs more often in the header."""
    line = _unquoted(_uncommented(line).strip(" \r\n"))
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() in _SEPARATORS]
    usual = _SEPARATORS[suffixes[-1] if suffixes else ".txt"]
    counts = {separator: line.count(separator) for separator in usual}
    if any(counts[separator] for separator in usual if separator != " "):
        counts[" "] = 0  # names may contain spaces; they are separators only without any other
    return max(usual, key=lambda separator: counts[separator])


def _check_names(names: Sequence[str], location: str, line: str, has_index: bool) -> None:
    """Raise an error for a header that is a row: half of it or more are numbers, and no column count or scale.

    A scale, such as wavelengths or years, is monotonic, and has many values or is evenly spaced.
    """
    numbers = [name for name in names if re.match(number_pattern(), name)]
    values = np.array(numbers, dtype=float)
    steps, least = np.diff(values), _MIN_SCALE if len(values) == len(names) else 3
    monotonic = len(values) >= least and (np.all(steps > 0) or np.all(steps < 0))
    is_scale = monotonic and (len(values) >= _MIN_SCALE or np.ptp(steps) <= 1e-3 * abs(steps[0]))
    numbered = (len(values) > 2 or has_index) and np.array_equal(values, range(len(names)))  # by pandas
    if 2 * len(values) >= len(names) and not is_scale and not numbered:
        found = f"{len(values)} of {len(names)} entries are numbers, such as {numbers[0]!r}"
        remedy = "Add names, give `header` if they are in another place, or name numbered columns 0, 1, 2 and so on."
        raise InputError(f"{location}: {line} must contain column names, but {found}. {remedy}")
