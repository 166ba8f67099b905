"""Text before it is parsed: its bytes, decompressed and decoded to UTF-8; standard input as a file; its header.

Every stream here is read in pieces of bounded size, so that a file that expands a thousandfold costs time, not memory.
Comments and titles may precede the header of a table, and R leaves out the name of the column with row names.
"""

from __future__ import annotations

import atexit
import codecs
import csv
import lzma
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from standout.errors import InputError, listed
from standout.io.memory import check_distinct
from standout.io.source import readable

# Compressed files start with these bytes. pyarrow decompresses three of the formats, the standard library the others.
SIGNATURES = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".xz": b"\xfd7zXZ\0", ".zst": b"\x28\xb5\x2f\xfd", ".zip": b"PK\3\4"}
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
# Bytes to decompress or decode at once, and the largest dictionary of an xz file: `xz -9` needs 65 MB.
_PIECE = 2**20
_XZ_MEMORY = 2**28
# The types that standard input is recognised as; anything else is text.
_TABLES = {b"PAR1": ".parquet", b"ARROW1": ".arrow", b"\xff\xff\xff\xff": ".arrow"}
# Possible separators, in order of preference if several occur equally often.
_SEPARATORS = {".csv": ",;\t", ".tsv": "\t,;", ".txt": "\t;, "}
# This many increasing or decreasing numbers in a header are a scale such as wavelengths; fewer must be evenly spaced.
_MIN_SCALE = 8
# A header is looked for in this many lines below a title.
_TITLE_LINES = 20


class Pieces:
    """A stream of bytes from an iterator of pieces."""

    def __init__(self, pieces: Iterable[bytes]):
        self._pieces, self._rest = iter(pieces), b""

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes, or fewer at the end."""
        parts, count = [self._rest], len(self._rest)
        while count < size and (piece := next(self._pieces, None)) is not None:
            parts.append(piece)
            count += len(piece)
        data = b"".join(parts)
        self._rest = data[size:]
        return data[:size]


@contextmanager
def opened_text(path: Path, location: str, encoding: str = "utf-8") -> Iterator[tuple[Any, Any]]:
    """Open a text file: the stream of its text as UTF-8, and the file itself, whose position is the progress.

    Text in UTF-8 is not checked, and the stream of an uncompressed file is the file itself.
    """
    suffix = path.suffix.lower()
    kind = f"{suffix.removeprefix('.')}-compressed text" if suffix in SIGNATURES else "text"
    native = suffix not in (".xz", ".zip")
    with readable(location, kind), pa.OSFile(str(path)) if native else path.open("rb") as file:
        stream: Any = file
        if suffix in _CODECS:
            stream = pa.CompressedInputStream(file, _CODECS[suffix])
        elif suffix == ".xz":
            lzma.LZMADecompressor(memlimit=_XZ_MEMORY).decompress(file.read(_PIECE), 1)  # LZMAFile has no limit
            file.seek(0)
            stream = lzma.LZMAFile(file)  # noqa: SIM115
        elif suffix == ".zip":
            stream = _only_member(file, location)
        if codecs.lookup(encoding).name != "utf-8":
            stream = Pieces(_decoded(stream, encoding, location))
        yield stream, file


def _only_member(file: BinaryIO, location: str) -> Any:
    """Open the only file in a zip archive; its checksum is verified at the end."""
    archive = zipfile.ZipFile(file)
    members = [item for item in archive.infolist() if not item.is_dir() and not item.filename.startswith("__MACOSX/")]
    if any(item.filename == "[Content_Types].xml" for item in members):
        raise InputError(f"{location}: this is a workbook or another Office file. Give the .xlsx file itself.")
    if len(members) != 1:
        found = f"{len(members)} files ({listed([item.filename for item in members])})" if members else "no file"
        raise InputError(f"{location}: the archive holds {found}. Give an archive of one table, or unpack it.")
    if members[0].flag_bits & 1:
        raise InputError(f"{location}: the archive is encrypted. Give the unpacked table.")
    return archive.open(members[0])


def _decoded(stream: Any, encoding: str, location: str) -> Iterator[bytes]:
    """Decode text; a sequence of bytes that the encoding does not have is an error."""
    decoder, at_end = codecs.getincrementaldecoder(encoding)(), False
    while not at_end:
        data = stream.read(_PIECE)
        at_end = not data
        try:
            yield decoder.decode(data, at_end).encode()
        except UnicodeError as error:
            problem = f"this is not text in the encoding {encoding} ({str(error)[:150]})"
            raise InputError(f"{location}: {problem}. Give another `encoding`.") from error


# Standard input

_spooled: list[Path] = []  # the copy of standard input, if it has been read


def standard_input(where: str) -> Path:
    """Return a temporary copy of standard input, because data are read more than once; one for the whole process."""
    if _spooled:
        return _spooled[0]
    stream: Any = getattr(sys.stdin, "buffer", None)
    if stream is None or sys.stdin.isatty():
        problem = "nothing is connected to standard input" if stream is None else "standard input is the terminal"
        raise InputError(f"{where}: {problem}. Give a file, or pipe a table into the command.")
    start = stream.read(8)
    if not start:
        raise InputError(f"{where}: standard input is empty. Give a file, or pipe a table into the command.")
    table = next((suffix for mark, suffix in _TABLES.items() if start.startswith(mark)), ".txt")
    packed = next((suffix for suffix, mark in SIGNATURES.items() if start.startswith(mark)), "")
    path = Path(tempfile.mkdtemp(prefix="standout-")) / f"standard input{table}{packed}"
    _spooled.append(path)  # removed at exit, whatever happens
    atexit.register(remove_standard_input)
    try:
        with path.open("wb") as file:
            file.write(start)
            shutil.copyfileobj(stream, file, _PIECE)
    except OSError as error:
        remove_standard_input()
        problem = f"standard input cannot be copied to {path.parent.parent} ({error.strerror})"
        raise InputError(f"{where}: {problem}. Make room there, or set TMPDIR to another directory.") from error
    return path


def remove_standard_input() -> None:
    """Remove the temporary copy of standard input, if there is one."""
    while _spooled:
        shutil.rmtree(_spooled.pop().parent, ignore_errors=True)


# The header of a table: the line that has it, the separator, and the names of columns and row ids


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
