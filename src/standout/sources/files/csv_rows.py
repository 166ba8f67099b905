"""The rows of a csv file, some megabytes of whole rows at a time, and what is wrong with those that cannot be read."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from standout.errors import InputError, NotNumbersError, StandoutError
from standout.sources.files.inside import readable

# A row, or a quoted value, that is longer than this is taken for a quote that was never closed.
_LONGEST = 128 * 2**20
# So much is unpacked at once where the beginning of a packed file is left out.
_UNPACKED = 2**24
_NEWLINE, _RETURN, _QUOTE = b'\n\r"'

# The usual spellings of a missing value; the commonest also after the space that some write behind the separator.
MISSING = [*arrow_csv.ConvertOptions().null_values, " ", " NA", " NaN", " nan"]
_TRUTH = frozenset(arrow_csv.ConvertOptions().true_values + arrow_csv.ConvertOptions().false_values)


@dataclass(frozen=True)
class Dialect:
    """How a file writes its rows."""

    separator: str = ","
    decimal: str = "."

    @property
    def number(self) -> str:
        """What a number looks like, as a pattern."""
        point = re.escape(self.decimal)
        digits = rf"(?:[0-9]+{point}?[0-9]*|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?"
        return rf"^\s*[+-]?(?:{digits}|(?i:inf|infinity))\s*$"


@dataclass(frozen=True)
class Chunk:
    """Some whole rows of a file."""

    data: bytes
    line: int  # of the file, of the first row
    position: int  # bytes of the file that were read for it; packed, where it is packed
    start: int = 0  # bytes of text before its first row; unpacked, where it is packed


@contextmanager
def opened(path: Path, where: str) -> Iterator[tuple[Any, Any]]:
    """Open a file that may be packed: the stream of its text, and the file whose position tells the progress."""
    with readable(where, "text packed with gzip" if packed(path) else "text"), pa.OSFile(str(path)) as file:
        yield (pa.CompressedInputStream(file, "gzip") if packed(path) else file), file


def packed(path: Path) -> bool:
    """Tell whether a file is packed, by its name."""
    return path.suffix.lower() == ".gz"


def chunks(path: Path, where: str, size: int, skip: int, line: int, separator: str) -> Iterator[Chunk]:
    """Yield the rows of a file after its first ``skip`` bytes; the first one stands in ``line``."""
    with opened(path, where) as (stream, file):
        _pass_over(stream, skip, path)
        rest, ended = b"", False
        while not ended:
            piece = stream.read(max(size, len(rest)))  # more and more, while a long row does not end
            ended = not piece
            rest += piece
            end = end_of_rows(rest, separator)
            if (end == 0 and len(rest) > _LONGEST) or (ended and end_of_rows(rest + b"\n", separator) <= len(rest)):
                begins = line + rest.count(b"\n", 0, end)
                raise InputError(
                    f"{where}: the row that begins in line {begins} does not end. Check whether a quote in it is never "
                    "closed."
                )
            end = len(rest) if ended else end
            if end:
                yield Chunk(rest[:end], line, file.tell(), skip)
                line += rest.count(b"\n", 0, end)
                rest, skip = rest[end:], skip + end


def _pass_over(stream: Any, count: int, path: Path) -> None:
    """Leave out the first bytes of a text: at once, or by unpacking them."""
    if not packed(path):
        stream.seek(count)
        return
    while count > 0 and (piece := stream.read(min(count, _UNPACKED))):
        count -= len(piece)


def end_of_rows(data: bytes, separator: str) -> int:
    r"""Return where the last whole row ends, knowing that newlines between quotes end no row; 0 where none does.

    Examples
    --------
    >>> end_of_rows(b'1,"a\nb"\n2,"c\n', ",")
    8
    """
    end = data.rfind(b"\n") + 1
    if b'"' not in data:
        return end
    codes = np.frombuffer(data, dtype=np.uint8)
    quotes = np.flatnonzero(codes == _QUOTE)
    # A quote counts only at the start of a value. Where every second one opens a value (or is the other half of a
    # doubled one), all of them count, and the number of quotes before a newline says whether it ends a row.
    opening = quotes[::2]
    before = codes[opening[opening > 0] - 1]
    if not np.isin(before, (ord(separator), _NEWLINE, _RETURN, _QUOTE)).all():
        return _end_by_value(data, separator)
    while end and (inside := int(np.searchsorted(quotes, end))) % 2:
        end = data.rfind(b"\n", 0, int(quotes[inside - 1])) + 1
    return end


def _end_by_value(data: bytes, separator: str) -> int:
    """Do the same value by value, for text in which some quotes are just text."""
    quoted = re.compile(rb'(?:\A|(?<=[%s\r\n]))"(?:[^"]|"")*(?:"|\Z)' % re.escape(separator.encode()))
    end = start = 0
    for value in quoted.finditer(data):
        end = max(end, data.rfind(b"\n", start, value.start()) + 1)
        start = value.end()
    return max(end, data.rfind(b"\n", start) + 1)


def parsed(chunk: Chunk, names: tuple[str, ...], dialect: Dialect, convert: Any) -> Any:
    """Return the rows of a chunk as a record batch, or None where it holds only empty lines."""
    if not chunk.data or chunk.data.isspace():
        return None
    # The whole chunk is one block for pyarrow, so that no row can lie across two.
    reading = arrow_csv.ReadOptions(column_names=names, block_size=len(chunk.data) + 1)
    parsing = arrow_csv.ParseOptions(delimiter=dialect.separator, newlines_in_values=b'"' in chunk.data)
    table = arrow_csv.read_csv(pa.BufferReader(chunk.data), reading, parsing, convert)
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else None


def explain(
    error: Exception, chunk: Chunk, names: tuple[str, ...], dialect: Dialect, kinds: Mapping[str, Any], where: str
) -> StandoutError:
    """Find out which value of a chunk cannot be read; ``kinds`` are the columns that should be numbers or truth."""
    try:
        text = chunk.data.decode()
    except UnicodeDecodeError as wrong:
        return not_utf8(where, chunk.line + chunk.data.count(b"\n", 0, wrong.start))
    number = re.compile(dialect.number)
    wanted = [(place, name, kinds[name]) for place, name in enumerate(names) if name in kinds]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=dialect.separator)
    line = chunk.line
    try:
        for row in reader:
            if row and len(row) != len(names):
                return ragged(f"{where}, line {line}", len(row), len(names))
            for place, name, kind in wanted if row else ():
                value = row[place]
                fits = value in _TRUTH if kind == pa.bool_() else number.match(value) is not None
                if not fits and value not in MISSING:
                    return mixed(f"{where}, line {line}", name, value)
            line = chunk.line + reader.line_num
    except csv.Error:
        pass  # a value too long for this reader: what pyarrow says must do
    told = str(error).splitlines()[0][:150].rstrip(".")
    return InputError(f"{where}: from line {chunk.line} on, some row cannot be read ({told}). Check these rows.")


def mixed(place: str, column: str, value: str) -> NotNumbersError:
    """Return the error for text in a column of numbers."""
    shown = value if len(value) <= 40 else f"{value[:40]}..."
    return NotNumbersError(
        f"{place}: column {column!r} holds numbers, and {shown!r} is not one. Leave the cell empty if it is missing, "
        "or name the column in label=, groups=, ids= or drop= of standout.read."
    )


def ragged(place: str, found: int, expected: int) -> InputError:
    """Return the error for a row with too few or too many values."""
    return InputError(
        f"{place}: {found} value{'s' * (found != 1)}, and the first line names {expected} column"
        f"{'s' * (expected != 1)}. Give every row one value for each name, and quote values that hold the separator."
    )


def not_utf8(where: str, line: int) -> InputError:
    """Return the error for text in another encoding."""
    return InputError(
        f"{where}: line {line} is not UTF-8 text; it may be Latin-1 or Windows-1252. Convert the file, for instance "
        "with iconv -f WINDOWS-1252 -t UTF-8."
    )


def check_text(head: bytes, path: Path, where: str) -> None:
    """Refuse a file whose beginning is not UTF-8 text."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"{where}: this is UTF-16 text. Convert it to UTF-8, for instance with iconv -f UTF-16.")
    if head.startswith(b"\x1f\x8b"):
        raise InputError(f"{where}: this is packed with gzip. Rename it to {path.name}.gz.")
    if b"\0" in head:
        raise InputError(f"{where}: this is not text but a binary file. Check what it is, and give a table as text.")
    if not head.strip(b"\xef\xbb\xbf \t\r\n"):
        raise InputError(f"{where}: the file is empty. Give a table with names in its first line.")
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError as wrong:
        raise not_utf8(where, 1 + head.count(b"\n", 0, wrong.start)) from wrong
