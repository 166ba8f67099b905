"""Tables as text (csv, tsv, txt), one file or many, gzip-compressed or not.

pyarrow parses chunks of whole rows; finding where rows end makes memory bounded, passes resumable and errors precise:
they name the line and the value. The first chunk determines which columns are numeric, and whether decimals have a
comma. Text in a numeric column, in that chunk or later, is an error.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

from standout.errors import InputError, NotNumbersError, StandoutError
from standout.io.memory import check_distinct
from standout.io.options import Options, choose
from standout.io.source import first_line, readable
from standout.io.stream import Stream, TableInMemory
from standout.io.tables import Columns, RowBatch, TableFile, check_same, coded, is_number, numbers_of, open_table

# Bytes read first to find the header, and the longest header.
_HEADER_BYTES = 2**18
_MAX_HEADER_BYTES = 64 * 2**20
# Possible separators, in order of preference if several occur equally often.
_SEPARATORS = {".csv": ",;\t", ".tsv": "\t,;", ".txt": "\t;, "}
# This many increasing or decreasing numbers in a header are a scale such as wavelengths; fewer must be evenly spaced.
_MIN_SCALE = 8
# A row or a quoted value longer than this (bytes) is taken as an unclosed quote.
_MAX_ROW_BYTES = 128 * 2**20
# Bytes to decompress at once where the beginning of a compressed file is skipped.
_SKIP_BYTES = 2**24
# The smallest chunk, however little memory is allowed, and the largest one from which types are inferred.
_MIN_CHUNK_BYTES = 2 * 2**20
_MAX_CHUNK_BYTES = 32 * 2**20
# The usual spellings of a missing value; the commonest also after a space.
_MISSING = [*arrow_csv.ConvertOptions().null_values, " ", " NA", " NaN", " nan"]
_BOOLEANS = frozenset(arrow_csv.ConvertOptions().true_values + arrow_csv.ConvertOptions().false_values)
# Numbers with one comma, which may be a decimal comma, and numbers whose commas may separate thousands.
_ONE_COMMA = r"^\s*[+-]?[0-9]*,[0-9]+(?:[eE][+-]?[0-9]+)?\s*$"
_THOUSANDS = r"^\s*[+-]?[1-9][0-9]{0,2}(?:,[0-9]{3})+\s*$"
# Numbers in other notations: thousands (one sign for these, another for decimals) or percent. Groups of other than
# three digits are dates, versions or phone numbers.
_GROUPED = r"(?:,[0-9]{3})+(?:\.[0-9]+)?|(?:\.[0-9]{3})+(?:,[0-9]+)?|(?:'[0-9]{3})+(?:[.,][0-9]+)?"
_LIKE_NUMBER = rf"^\s*[+-]?(?:[0-9]*[.,]?[0-9]+|[1-9][0-9]{{0,2}}(?:{_GROUPED}))\s*%?\s*$"
_REMEDY = "name the column in `standout.read(X, label=..., groups=..., ids=..., drop=...)`."
_DROP = "`standout.read(X, drop=...)`"


def _number_pattern(decimal: str = ".") -> str:
    point = re.escape(decimal)
    digits = rf"(?:[0-9]+{point}?[0-9]*|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?"
    return rf"^\s*[+-]?(?:{digits}|(?i:inf|infinity))\s*$"


def open_csv(paths: tuple[Path, ...], shown: Path, options: Options, role: str) -> TableInMemory | Stream:
    """Return the source of one or more text files with the same columns."""
    files = [_read_header(path, f"{role}: {path}") for path in paths]
    check_same(files, options)
    inferred = next((found for file in files if (found := _infer_types(file, options)) is not None), None)
    if inferred is None:
        raise InputError(f"{role}: {shown}: it has column names, but no rows. Give a table with rows.")
    types, decimal, rows_per_byte = inferred
    known: dict[str, Any] = {
        "types": types,
        "decimal": decimal,
        "max_bytes": max(options.memory // 16, _MIN_CHUNK_BYTES),
    }
    files = [replace(file, **known, estimated_rows=rows_per_byte * file.size) for file in files]
    return open_table(files, types, options, shown, role)


@dataclass(frozen=True)
class Chunk:
    """Some whole rows of a file."""

    data: bytes
    line: int  # of the first row
    start: int  # bytes of text before the first row
    share: float  # of the (compressed) file read so far


@dataclass(frozen=True)
class TextFile(TableFile):
    """A text file: the contents of its header, and the notation of its numbers."""

    path: Path
    location: str
    names: Columns
    index: Columns  # the first column, if its name is empty
    size: int
    separator: str
    header_bytes: int
    header_lines: int
    types: Mapping[str, Any] = field(default_factory=dict)  # of the numeric columns
    decimal: str = "."
    max_bytes: int = _MAX_CHUNK_BYTES
    estimated_rows: float = 0

    @property
    def chunk_bytes(self) -> int:
        """Bytes to read at a time: a few hundred rows, and a few megabytes."""
        return min(max(_MIN_CHUNK_BYTES, 256 * self.header_bytes), _MAX_CHUNK_BYTES)

    def batches(self, features: Columns, metadata: Columns, position: Sequence[int]) -> Iterator[RowBatch]:
        types = {name: self.types[name] for name in features} | dict.fromkeys(metadata, pa.string())
        for chunk in self.chunks(*position):
            batch = _parse_or_explain(chunk, self, types, [*features, *metadata])
            if batch is not None:
                numbers = numbers_of(batch.select(list(features)))
                columns = {name: coded(batch.column(name)) for name in metadata}
                # Blank text is missing, and any text may be a number.
                about = {k: replace(c, values=[v or None for v in c.values], written=True) for k, c in columns.items()}
                yield RowBatch(numbers, about, chunk.share, (chunk.start, chunk.line))

    def chunks(self, start: int = 0, line: int = 0) -> Iterator[Chunk]:
        """Yield whole rows after the header, or from byte ``start``, in ``line``, on: a few megabytes at a time."""
        start, line = start or self.header_bytes, line or self.header_lines + 1
        with _opened(self.path, self.location) as (stream, file):
            if stream is file:
                file.seek(start)
            else:
                skip = start
                while skip > 0 and (piece := stream.read(min(skip, _SKIP_BYTES))):
                    skip -= len(piece)
            rest, at_end = b"", False
            while not at_end:
                piece = stream.read(max(min(self.chunk_bytes, self.max_bytes), len(rest)))  # more for a long row
                at_end = not piece
                rest += piece
                end = end_of_rows(rest, self.separator)
                unclosed = at_end and end_of_rows(rest + b"\n", self.separator) <= len(rest)
                if unclosed or (end == 0 and len(rest) > _MAX_ROW_BYTES):
                    line += rest.count(b"\n", 0, end)
                    problem = f"the row that begins in line {line} does not end"
                    raise InputError(f"{self.location}: {problem}. Check for a quote that is never closed.")
                end = len(rest) if at_end else end
                if end:
                    yield Chunk(rest[:end], line, start, file.tell() / self.size)
                    line += rest.count(b"\n", 0, end)
                    rest, start = rest[end:], start + end


@contextmanager
def _opened(path: Path, location: str) -> Iterator[tuple[Any, Any]]:
    """Open a file: the stream of its text, and the file itself, whose position is the progress."""
    gzip = path.suffix.lower() == ".gz"
    with readable(location, "gzip-compressed text" if gzip else "text"), pa.OSFile(str(path)) as file:
        yield (pa.CompressedInputStream(file, "gzip") if gzip else file), file


def end_of_rows(data: bytes, separator: str) -> int:
    """Return where the last complete row ends (0 if there is none); newlines in quoted values do not end a row."""
    end = data.rfind(b"\n") + 1
    if b'"' not in data:
        return end
    text = np.frombuffer(data, dtype=np.uint8)
    quotes = np.flatnonzero(text == ord('"'))
    # A quote counts only at the start of a value. If every second one opens a value (or doubles the one before), all
    # of them count, and a newline ends a row if the number of quotes before it is even.
    opening = quotes[::2]
    before = text[opening[opening > 0] - 1]
    if not np.isin(before, (ord(separator), *b'\n\r"')).all():
        return _end_by_value(data, separator)
    while end and (count := int(np.searchsorted(quotes, end))) % 2:
        end = data.rfind(b"\n", 0, int(quotes[count - 1])) + 1
    return end


def _end_by_value(data: bytes, separator: str) -> int:
    """Do the same value by value, for text in which some quotes are ordinary characters."""
    quoted = re.compile(rb'(?:\A|(?<=[%s\r\n]))"(?:[^"]|"")*(?:"|\Z)' % re.escape(separator.encode()))
    end = start = 0
    for value in quoted.finditer(data):
        end = max(end, data.rfind(b"\n", start, value.start()) + 1)
        start = value.end()
    return max(end, data.rfind(b"\n", start) + 1)


# The header


def _read_header(path: Path, location: str) -> TextFile:
    """Return a file with the separator and the names in its first line."""
    start, size = _read_start(path, location)
    bom = len(codecs.BOM_UTF8) if start.startswith(codecs.BOM_UTF8) else 0
    text = _decode(start[bom:], location, 1, final=False)
    separator = _find_separator(text, path)
    lines = list(io.StringIO(text, newline=""))
    reader = csv.reader(lines, delimiter=separator)
    try:
        found = [name.strip() for name in next(row for row in reader if row)]
    except csv.Error as error:
        raise InputError(f"{location}: its first line cannot be read ({error}). Check its quotes.") from error
    names = [name or f"column {position}" for position, name in enumerate(found, 1)]
    index: Columns = ()
    if not found[0] and len(found) > 1:  # pandas and R leave the name of the index empty
        names[0] = names[0] if "index" in names else "index"
        index = (names[0],)
    check_distinct(names, location)
    _check_header(names[len(index) :], location, bool(index))
    header_bytes = bom + len("".join(lines[: reader.line_num]).encode())
    return TextFile(path, location, tuple(names), index, size, separator, header_bytes, reader.line_num)


def _read_start(path: Path, location: str) -> tuple[bytes, int]:
    """Return the start of a text file, long enough for its first line, and the size of the file."""
    with _opened(path, location) as (stream, file):
        start: bytes = stream.read(_HEADER_BYTES)
        while b"\0" not in start and not end_of_rows(start.lstrip(), ",") and (more := stream.read(len(start))):
            start += more
            if len(start) > _MAX_HEADER_BYTES:
                problem = f"its first line is longer than {len(start) >> 20} MB"
                raise InputError(f"{location}: {problem}. Give a table with column names in its first line.")
        size: int = file.size()
    problem = ""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        problem = "this is UTF-16 text. Convert it to UTF-8, for instance with iconv -f UTF-16."
    elif start.startswith(b"\x1f\x8b"):
        problem = f"the file is gzip-compressed. Rename it to {path.name}.gz."
    elif b"\0" in start:
        problem = "this is a binary file, not text. Check the file, and give a table as text."
    elif not start.strip(codecs.BOM_UTF8 + b" \t\r\n"):
        problem = "the file is empty. Give a table with column names in its first line."
    if problem:
        raise InputError(f"{location}: {problem}")
    return start, size


def _decode(data: bytes, location: str, line: int, final: bool = True) -> str:
    """Return text; its last character may be incomplete unless ``final``."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data, final)
    except UnicodeDecodeError as error:
        line += data.count(b"\n", 0, error.start)
        problem = f"line {line} is not UTF-8 text; it may be Latin-1 or Windows-1252"
        remedy = "Convert the file, for instance with iconv -f WINDOWS-1252 -t UTF-8."
        raise InputError(f"{location}: {problem}. {remedy}") from error


def _find_separator(text: str, path: Path) -> str:
    """Return the separator of the suffix, unless another one occurs more often in the first line."""
    line = next(iter(re.sub(r'"[^"]*"', "", text.lstrip()).splitlines()), "")
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() in _SEPARATORS]
    usual = _SEPARATORS[suffixes[-1] if suffixes else ".txt"]
    counts = {separator: line.count(separator) for separator in usual}
    if any(counts[separator] for separator in usual if separator != " "):
        counts[" "] = 0  # names may contain spaces; they are separators only without any other
    return max(usual, key=lambda separator: counts[separator])


def _check_header(names: Sequence[str], location: str, has_index: bool) -> None:
    """Raise an error for a first line that is a row: half of it or more are numbers, and no column count or scale.

    A scale, such as wavelengths or years, is monotonic, and has many values or is evenly spaced.
    """
    numbers = [name for name in names if re.match(_number_pattern(), name)]
    values = np.array(numbers, dtype=float)
    steps, least = np.diff(values), _MIN_SCALE if len(values) == len(names) else 3
    monotonic = len(values) >= least and (np.all(steps > 0) or np.all(steps < 0))
    is_scale = monotonic and (len(values) >= _MIN_SCALE or np.ptp(steps) <= 1e-3 * abs(steps[0]))
    numbered = (len(values) > 2 or has_index) and np.array_equal(values, range(len(names)))  # by pandas
    if 2 * len(values) >= len(names) and not is_scale and not numbered:
        found = f"{len(values)} of {len(names)} entries are numbers, such as {numbers[0]!r}"
        remedy = "Add a line of names, or name numbered columns 0, 1, 2 and so on."
        raise InputError(f"{location}: the first line must contain column names, but {found}. {remedy}")


# Parsing, and errors that name the line


def _parse(chunk: Chunk, file: TextFile, types: Mapping[str, Any], columns: Sequence[str]) -> Any:
    """Return the rows of a chunk as a record batch, or None if it has only empty lines."""
    if not chunk.data or chunk.data.isspace():
        return None
    # The whole chunk is one block for pyarrow, so that no row spans two.
    reading = arrow_csv.ReadOptions(column_names=file.names, block_size=len(chunk.data) + 1)
    parsing = arrow_csv.ParseOptions(delimiter=file.separator, newlines_in_values=b'"' in chunk.data)
    conversion = arrow_csv.ConvertOptions(
        column_types=types, include_columns=columns, null_values=_MISSING, decimal_point=file.decimal
    )
    table = arrow_csv.read_csv(pa.BufferReader(chunk.data), reading, parsing, conversion)
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else None


def _rows(chunk: Chunk, file: TextFile) -> Any:
    """Return a reader of the rows of a chunk as text; text that is not UTF-8 is an error."""
    return csv.reader(io.StringIO(_decode(chunk.data, file.location, chunk.line), newline=""), delimiter=file.separator)


def _parse_or_explain(chunk: Chunk, file: TextFile, types: Mapping[str, Any], columns: Sequence[str]) -> Any:
    try:
        return _parse(chunk, file, types, columns)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _explain(error, chunk, file, types) from error


def _explain(error: Exception, chunk: Chunk, file: TextFile, types: Mapping[str, Any]) -> StandoutError:
    """Return an error for the first value of a chunk that does not have the type of its column."""
    number, n_columns = re.compile(_number_pattern(file.decimal)), len(file.names)
    kinds = [(position, name, types.get(name, pa.string())) for position, name in enumerate(file.names)]
    numeric = [column for column in kinds if column[2] != pa.string()]
    reader, line = _rows(chunk, file), chunk.line
    try:
        for row in reader:
            if row and len(row) != n_columns:
                found = f"{len(row)} value{'s' * (len(row) != 1)}, but the first line names {n_columns} column"
                remedy = "Give every row one value for each column, and quote values that contain the separator."
                return InputError(f"{file.location}, line {line}: {found}{'s' * (n_columns != 1)}. {remedy}")
            for position, name, kind in numeric if row else ():
                value = row[position]
                valid = value in _BOOLEANS if kind == pa.bool_() else number.match(value) is not None
                if not valid and value not in _MISSING:
                    shown = value if len(value) <= 40 else f"{value[:40]}..."
                    found = f"line {line}: column {name!r} is numeric, but {shown!r} is not a number"
                    remedy = f"Leave the cell empty if it is missing, or {_REMEDY}"
                    return NotNumbersError(f"{file.location}, {found}. {remedy}")
            line = chunk.line + reader.line_num
    except csv.Error:
        pass  # a value too long for this reader: report pyarrow's message
    problem = f"a row in or after line {chunk.line} cannot be read ({first_line(error)})"
    return InputError(f"{file.location}: {problem}. Check these rows.")


# Types and decimal commas, from the first chunk


def _infer_types(file: TextFile, options: Options) -> tuple[dict[str, Any], str, float] | None:
    """Return the types of the numeric columns, the decimal sign and the rows per byte; None for a file without rows."""
    features = choose(file.names, file.names, options, file.location, file.index).features
    metadata = [name for name in (*options.roles, *file.index) if name not in features]
    for chunk in file.chunks():
        batch = _parse_inferred(chunk, file, metadata)
        if batch is None:
            continue
        types = _numeric_types(batch)
        text = {name: batch.column(name) for name in features if batch.schema.field(name).type == pa.string()}
        text = {name: column.filter(pc.invert(pc.is_in(column, pa.array(_MISSING)))) for name, column in text.items()}
        commas = [name for name, values in text.items() if _has_decimal_commas(values, name, file)]
        if commas:
            file, with_points = replace(file, decimal=","), types
            types = _numeric_types(_parse_inferred(chunk, file, metadata))
            points = [name for name in with_points if name not in types]
            if points:
                found = f"column {commas[0]!r} has decimal commas, but column {points[0]!r} has decimal points"
                raise InputError(f"{file.location}: {found}. Convert one of them, or name it in {_DROP}.")
        for name, values in text.items():
            if name not in types:
                _check_not_numbers(values, name, chunk, file)
        return types, file.decimal, batch.num_rows / (chunk.share * file.size)
    return None


def _parse_inferred(chunk: Chunk, file: TextFile, metadata: Sequence[str]) -> Any:
    """Return the rows of a chunk with inferred types; metadata columns are text."""
    texts, number = dict.fromkeys(metadata, pa.string()), re.compile(_number_pattern(file.decimal))
    # pyarrow tries a dozen types for every column. A guess from five rows saves that for all but a few columns.
    guess = {}
    try:
        rows = [row for row in islice(_rows(chunk, file), 5) if len(row) == len(file.names)]
        for name, values in zip(file.names, zip(*rows, strict=True), strict=bool(rows)):
            if all(number.match(value) or value in _MISSING for value in values):
                guess[name] = pa.float64()
        return _parse(chunk, file, guess | texts, file.names)
    except (csv.Error, pa.ArrowException):
        return _parse_or_explain(chunk, file, texts, file.names)


def _numeric_types(batch: Any) -> dict[str, Any]:
    """Return the numeric columns: float64, but for booleans, which are words."""
    kinds = {field.name: field.type for field in batch.schema if is_number(field.type)}
    return {name: kind if pa.types.is_boolean(kind) else pa.float64() for name, kind in kinds.items()}


def _matches(values: Any, pattern: str) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = pc.match_substring_regex(values, pattern).to_numpy(zero_copy_only=False).astype(bool)
    return found


def _has_decimal_commas(values: Any, name: str, file: TextFile) -> bool:
    """Return whether text values are numbers with decimal commas; ambiguous commas are an error."""
    one, thousands = _matches(values, _ONE_COMMA), _matches(values, _THOUSANDS)
    either = one | thousands
    if not either.any() or np.mean(either | _matches(values, _number_pattern())) <= 0.5:
        return False
    # With semicolons as separators, commas are decimal. Otherwise a comma before three digits is ambiguous.
    decimal = file.separator == ";" or (file.separator != "," and (one & ~thousands).any())
    if not decimal or (thousands & ~one).any():
        found = f"column {name!r} has numbers with commas, such as {values[int(np.argmax(either))].as_py()!r}"
        remedy = f"Convert them to a decimal point alone, or name the column in {_DROP}."
        raise InputError(f"{file.location}: {found}, which may separate decimals or thousands. {remedy}")
    return True


def _check_not_numbers(values: Any, name: str, chunk: Chunk, file: TextFile) -> None:
    """Raise an error for a text column that consists mostly of numbers: it is not a label."""
    plain, like = _matches(values, _number_pattern(file.decimal)), _matches(values, _LIKE_NUMBER)
    if 2 * plain.sum() > len(plain):
        raise _explain(ValueError(f"column {name!r} has numbers and text"), chunk, file, {name: pa.float64()})
    if 2 * like.sum() > len(like):
        example = values[int(np.argmax(like & ~plain))].as_py()
        found = f"column {name!r} has numbers in an unsupported notation, such as {example!r}"
        raise NotNumbersError(f"{file.location}: {found}. Convert them to plain numbers such as 1234.5, or {_REMEDY}")
