"""Sheets of an Excel workbook, read as the text that a spreadsheet program would export.

One row of the sheet is one line, so that columns, missing and censored values, errors with row numbers, blocks and
resumed passes are those of text files. openpyxl streams the rows. Readers that hold a sheet as a dense rectangle, such
as calamine, need 500 GB for a workbook with a forgotten value in its last cell.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar

import openpyxl

from standout.errors import InputError, StandoutWarning, did_you_mean, listed, warn_user
from standout.io.csv import TextFile, open_texts
from standout.io.options import Options
from standout.io.source import readable
from standout.io.stream import Stream, TableInMemory
from standout.io.text import Pieces

# Bytes of text, formats and other parts of a workbook, which are read at once; sheets are streamed.
_MAX_PARTS = 2**29
# The start of old workbooks (.xls) and of encrypted ones.
_OLE = b"\xd0\xcf\x11\xe0"
# Rows that determine the first column in use.
_FIRST_ROWS = 100


def open_excel(paths: tuple[Path, ...], shown: Path, options: Options, role: str) -> TableInMemory | Stream:
    """Return the source of one sheet, the first or the one that ``key`` names, of one or more workbooks."""
    files = [_choose_sheet(path, options.key, f"{role}: {path}") for path in paths]
    return open_texts(files, shown, options, role)


@dataclass(frozen=True)
class Sheet(TextFile):
    """A sheet as text; its rows have at least as many values as the header."""

    unit: ClassVar[str] = "row"
    sheet: str = ""

    @contextmanager
    def opened(self) -> Iterator[tuple[Any, Any]]:
        with readable(self.location, "an Excel workbook"), self.path.open("rb") as file, _workbook(file) as book:
            yield Pieces(self._lines(book[self.sheet])), file

    def _lines(self, sheet: Any) -> Iterator[bytes]:
        sheet.reset_dimensions()  # some programs write wrong ones
        rows = sheet.iter_rows(values_only=True)
        start = list(islice(rows, _FIRST_ROWS))
        filled = [next((i for i, value in enumerate(row) if _text(value)), None) for row in start]
        first = min((i for i in filled if i is not None), default=0)
        for number, row in enumerate(chain(start, rows), 1):
            values = [_text(value) for value in row[first:]]
            while values and not values[-1]:
                values.pop()
            if values and number > self.header_lines:
                values += [""] * (len(self.names) - len(values))
            yield f"{','.join(values)}\n".encode()


def _text(value: Any) -> str:
    """Return a cell as it stands in a csv file; all text is quoted."""
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, datetime) and value.time() == time():
        value = value.date()
    text = " ".join((value.isoformat() if isinstance(value, date | time) else str(value)).split())
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if text else ""


@contextmanager
def _workbook(file: Any) -> Iterator[Any]:
    """Open a workbook; formulas have the values that were calculated when it was saved."""
    # Not in catch_warnings, which is not safe in the thread that reads ahead.
    warnings.filterwarnings("ignore", category=UserWarning, module="openpyxl")
    with closing(openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)) as book:
        yield book


def _choose_sheet(path: Path, key: str | None, location: str) -> Sheet:
    """Return the sheet of that name, or the first; other sheets are mentioned."""
    with readable(location, "an Excel workbook", path), path.open("rb") as file:
        if file.read(4) == _OLE:
            problem = "it is an encrypted or an old (.xls) workbook"
            raise InputError(f"{location}: {problem}. Convert it to .xlsx, without a password.")
        with zipfile.ZipFile(file) as archive:
            parts = [part for part in archive.infolist() if not part.filename.startswith("xl/worksheets/")]
        for part in parts:
            if part.compress_size > 1000 + 1.01 * part.file_size:  # Python would expand all of it before it finds out
                raise ValueError(f"{part.filename} is larger than its archive claims")
        if sum(part.file_size for part in parts) > _MAX_PARTS:
            problem = f"its text and formats take more than {_MAX_PARTS >> 20} MB"
            raise InputError(f"{location}: {problem}. Convert the sheet to csv.")
        with _workbook(file) as book:
            names = [sheet.title for sheet in book.worksheets]
    if not names:
        raise InputError(f"{location}: it has no sheets with cells. Give a workbook with a table.")
    if key is not None and key not in names:
        hint = f"{did_you_mean(key, names)} Use one of its sheets: {listed(names)}."
        raise InputError(f"{location}: it has no sheet {key!r}.{hint}")
    if key is None and len(names) > 1:
        problem = f"it has {len(names)} sheets ({listed(names)}), and the first one is read"
        warn_user(f"{location}: {problem}. Name the sheet in `key`, or after the path as in {path.name}::{names[0]}.",
                  StandoutWarning)  # fmt: skip
    name = names[0] if key is None else key
    return Sheet(path, f"{location}, sheet {name!r}", sheet=name)
