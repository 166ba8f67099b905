"""The first line of a csv file: what separates values, and what the columns are called.

The rows of a csv file, some megabytes of whole rows at a time, and what is wrong with those that cannot be read.

Tables as text: csv, tsv and txt, one file or many, packed or not.

The first few megabytes say which columns are numbers; the whole is then read so. A column of numbers in which text
turns up, there or later, is an error that says where.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

from standout.errors import InputError, NotNumbersError, StandoutError
from standout.io.arrow import is_number, piece_of
from standout.io.containers import readable
from standout.io.options import Options, check_distinct, check_same, choose
from standout.io.stream import Stream, TableInMemory
from standout.io.tables import Piece, Table, open_table

# What an empty first name becomes: pandas and R leave it empty above the names of the rows.
INDEX = "index"
_HEAD = 2**18
_LONGEST_HEADER = 64 * 2**20
# What may separate values, by preference where several occur equally often.
_SEPARATORS = {".csv": ",;\t", ".tsv": "\t,;", ".txt": "\t;, "}
# So many numbers in increasing or decreasing order are a scale and not a row of data; fewer must be evenly spaced.
_SCALE = 8
# A row, or a quoted value, that is longer than this is taken for a quote that was never closed.
_LONGEST = 128 * 2**20
# So much is unpacked at once where the beginning of a packed file is left out.
_UNPACKED = 2**24
# The usual spellings of a missing value; the commonest also after the space that some write behind the separator.
MISSING = [*arrow_csv.ConvertOptions().null_values, " ", " NA", " NaN", " nan"]
_TRUTH = frozenset(arrow_csv.ConvertOptions().true_values + arrow_csv.ConvertOptions().false_values)
# Numbers with one comma, which may be a decimal one, and numbers whose commas may separate thousands.
_COMMA = r"^\s*[+-]?[0-9]*,[0-9]+(?:[eE][+-]?[0-9]+)?\s*$"
_THOUSANDS = r"^\s*[+-]?[1-9][0-9]{0,2}(?:,[0-9]{3})+\s*$"
# Numbers that are not written plainly: with separated thousands (one sign for these, another for decimals) or percent.
# Groups other than of three digits make a date, a version or a phone number.
_GROUPED = r"(?:,[0-9]{3})+(?:\.[0-9]+)?|(?:\.[0-9]{3})+(?:,[0-9]+)?|(?:'[0-9]{3})+(?:[.,][0-9]+)?"
_LIKE_NUMBER = rf"^\s*[+-]?(?:[0-9]*[.,]?[0-9]+|[1-9][0-9]{{0,2}}(?:{_GROUPED}))\s*%?\s*$"
# Bytes of text that are read at once: at least, however little memory there is, and at most to see what is inside.
_CHUNK = 2 * 2**20
_PROBED = 32 * 2**20


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
            if len(start) > _LONGEST_HEADER:
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


_NEWLINE, _RETURN, _QUOTE = b'\n\r"'


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


@dataclass(frozen=True)
class Probe:
    """What the first rows say."""

    decimal: str
    kinds: dict[str, Any]  # columns that hold numbers → the type they are read as
    rows_per_byte: float


def open_csv(paths: tuple[Path, ...], shown: Path, options: Options, role: str) -> TableInMemory | Stream:
    """Return the source of one or more files of text with the same columns."""
    heads = [read_head(path, f"{role}: {path}") for path in paths]
    for head in heads[1:]:
        check_same(head.names, heads[0].names, options, head.where, heads[0].path.name)
    probe = next((probe for head in heads if (probe := _probe(head, options)) is not None), None)
    if probe is None:
        raise InputError(f"{role}: {shown}: it has names, but no rows. Give a table with rows.")
    table = Table(
        path=shown,
        where=f"{role}: {shown}",
        columns=heads[0].names,
        numeric=frozenset(probe.kinds),
        pieces=partial(_pieces, heads, probe, max(options.memory // 16, _CHUNK)),
        index=heads[0].index,
        likely_rows=probe.rows_per_byte * sum(head.file_size for head in heads),
    )
    return open_table(table, options)


def _pieces(
    heads: Sequence[Head],
    probe: Probe,
    most: int,
    features: tuple[str, ...],
    about: tuple[str, ...],
    place: tuple[int, ...],
) -> Iterator[Piece]:
    """Make one pass over all files, or over what is left of them from a file, a byte and a line of it on."""
    first = place[0] if place else 0
    total, done = sum(head.file_size for head in heads), sum(head.file_size for head in heads[:first])
    kinds = {name: probe.kinds[name] for name in features}
    for number, head in enumerate(heads[first:], first):
        dialect = Dialect(head.separator, probe.decimal)
        convert = _conversion(kinds | dict.fromkeys(about, pa.string()), dialect, [*features, *about])
        for chunk in _chunks(head, most, *place[1:]):
            batch = _read(chunk, head, dialect, convert, kinds)
            if batch is not None:
                piece = piece_of(batch, features, about, (done + chunk.position) / total)
                yield _as_written(replace(piece, place=(number, chunk.start, chunk.line)))
        done, place = done + head.file_size, ()


def _as_written(piece: Piece) -> Piece:
    """Take blank text as missing, and any text for what may write a number."""
    about = {
        name: replace(text, values=[value or None for value in text.values], written=True)
        for name, text in piece.about.items()
    }
    return replace(piece, about=about)


def _chunks(head: Head, most: int, start: int | None = None, line: int | None = None) -> Iterator[Chunk]:
    """Yield the rows of a file, ``most`` bytes at a time: after its header, or from a byte on, in ``line``."""
    start, line = (head.nbytes, head.lines + 1) if start is None or line is None else (start, line)
    return chunks(head.path, head.where, min(head.size, most), start, line, head.separator)


def _conversion(kinds: dict[str, Any], dialect: Dialect, columns: Sequence[str]) -> Any:
    return arrow_csv.ConvertOptions(
        column_types=kinds, include_columns=columns, null_values=MISSING, decimal_point=dialect.decimal
    )


def _read(chunk: Chunk, head: Head, dialect: Dialect, convert: Any, kinds: dict[str, Any]) -> Any:
    """Return the rows of a chunk, or say which of its values cannot be read."""
    try:
        return parsed(chunk, head.names, dialect, convert)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise explain(error, chunk, head.names, dialect, kinds, head.where) from error


def _probe(head: Head, options: Options) -> Probe | None:
    """Look at the first rows of a file; None where it has none."""
    dialect = Dialect(head.separator)
    wanted = choose(head.names, frozenset(head.names), options, head.where, head.index).features
    described = [name for name in (*options.roles, *head.index) if name not in wanted]
    for chunk in _chunks(head, _PROBED):
        batch = _inferred(chunk, head, dialect, described)
        if batch is None:
            continue
        kinds = _kinds(batch)
        text = [name for name in wanted if batch.schema.field(name).type == pa.string()]
        commas = [name for name in text if _has_commas(batch.column(name), name, head)]
        if commas:
            dialect = replace(dialect, decimal=",")
            kinds, points = _kinds(_inferred(chunk, head, dialect, described)), kinds
            _check_one_decimal(commas[0], [name for name in points if name not in kinds], head.where)
        for name in text:
            if name not in kinds and _mostly(_matches(batch.column(name), dialect.number)):
                error = ValueError(f"column {name!r} holds numbers and text")
                raise explain(error, chunk, head.names, dialect, {name: pa.float64()}, head.where)
            if name not in kinds:
                _check_not_like_numbers(batch.column(name), name, dialect, head)
        return Probe(dialect.decimal, kinds, batch.num_rows / chunk.position)
    return None


def _inferred(chunk: Chunk, head: Head, dialect: Dialect, described: Sequence[str]) -> Any:
    """Return the rows of a chunk with the types they seem to have; columns that describe rows are text."""
    try:
        text = chunk.data.decode()
    except UnicodeDecodeError as wrong:
        raise not_utf8(head.where, chunk.line + chunk.data.count(b"\n", 0, wrong.start)) from wrong
    known = dict.fromkeys(described, pa.string())
    # pyarrow tries a dozen types for every column: where there are thousands, it should have to for a few only.
    guess = _conversion(_guessed(text, head, dialect) | known, dialect, head.names)
    try:
        return parsed(chunk, head.names, dialect, guess)
    except pa.ArrowException:
        return _read(chunk, head, dialect, _conversion(known, dialect, head.names), {})


def _guessed(text: str, head: Head, dialect: Dialect) -> dict[str, Any]:
    """Return the columns that hold numbers in the first few rows."""
    number, names = re.compile(dialect.number), head.names
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=dialect.separator)
    try:
        rows = [row for row in islice(reader, 5) if len(row) == len(names)]
    except csv.Error:
        return {}
    return {
        name: pa.float64()
        for name, values in zip(names, zip(*rows, strict=True), strict=bool(rows))
        if all(number.match(value) or value in MISSING for value in values)
    }


def _kinds(batch: Any) -> dict[str, Any]:
    """Return the columns that hold numbers: all as float64 but for truth values, which are written out."""
    return {
        field.name: field.type if pa.types.is_boolean(field.type) else pa.float64()
        for field in batch.schema
        if is_number(field.type)
    }


def _matches(column: Any, pattern: str) -> NDArray[np.bool_]:
    """Return which of the values that are not missing look like a pattern."""
    there = column.filter(pc.invert(pc.is_in(column, pa.array(MISSING))))
    found: NDArray[np.bool_] = pc.match_substring_regex(there, pattern).to_numpy(zero_copy_only=False).astype(bool)
    return found


def _mostly(found: NDArray[np.bool_]) -> bool:
    return 2 * int(found.sum()) > len(found)


def _has_commas(column: Any, name: str, head: Head) -> bool:
    """Tell whether a column of text holds numbers with a decimal comma; refuse commas that may separate thousands."""
    one, several = _matches(column, _COMMA), _matches(column, _THOUSANDS)
    plain = _matches(column, Dialect().number)
    if not (one | several).any() or not _mostly(one | several | plain):
        return False
    # Where semicolons separate, it is because commas do not; else a comma before three digits may be either.
    decimal = head.separator == ";" or (head.separator != "," and (one & ~several).any())
    if not decimal or (several & ~one).any():
        raise InputError(
            f"{head.where}: column {name!r} holds numbers with commas, such as "
            f"{_first(column, one | several)!r}, and it is not clear whether they separate decimals or thousands. "
            "Convert them to a decimal point and no other separator, or name the column in drop= of standout.read."
        )
    return True


def _check_not_like_numbers(column: Any, name: str, dialect: Dialect, head: Head) -> None:
    """Refuse a column that mostly holds numbers with thousands apart or percent: they are no labels."""
    like = _matches(column, _LIKE_NUMBER)
    if _mostly(like):
        raise NotNumbersError(
            f"{head.where}: column {name!r} holds numbers that cannot be read, such as "
            f"{_first(column, like & ~_matches(column, dialect.number))!r}. Convert them to plain numbers such as "
            "1234.5, or name the column in label=, groups=, ids= or drop= of standout.read."
        )


def _first(column: Any, found: NDArray[np.bool_]) -> str:
    there = column.filter(pc.invert(pc.is_in(column, pa.array(MISSING))))
    return str(there[int(np.argmax(found))].as_py())


def _check_one_decimal(comma: str, points: Sequence[str], where: str) -> None:
    if points:
        raise InputError(
            f"{where}: column {comma!r} has decimal commas, and column {points[0]!r} decimal points. Convert one of "
            "them, or name it in drop= of standout.read."
        )
