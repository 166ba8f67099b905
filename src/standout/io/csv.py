"""Tables as text (csv, tsv, txt), one file or many, compressed or not.

pyarrow parses chunks of whole rows; finding where rows end makes memory bounded, passes resumable and errors precise:
they name the line and the value. The first chunk determines which columns are numeric, and whether decimals have a
comma. Text in a numeric column, in that chunk or later, is an error; so are censored values such as ``<0.5``, unless
they are to be missing values.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

from standout.errors import InputError, NotNumbersError, StandoutError
from standout.io.options import Options, choose
from standout.io.source import first_line
from standout.io.stream import Stream, TableInMemory
from standout.io.tables import Columns, RowBatch, TableFile, check_same, coded, is_number, numbers_of, open_table
from standout.io.text import SIGNATURES, number_pattern, opened_text, parse_header

# Bytes read first to find the header, and the longest header.
_HEADER_BYTES = 2**18
_MAX_HEADER_BYTES = 64 * 2**20
# A row or a quoted value longer than this (bytes) is taken as an unclosed quote.
_MAX_ROW_BYTES = 128 * 2**20
# Bytes to decompress at once where the beginning of a compressed file is skipped.
_SKIP_BYTES = 2**24
# The smallest chunk, however little memory is allowed, and the largest one from which types are inferred.
_MIN_CHUNK_BYTES = 2 * 2**20
_MAX_CHUNK_BYTES = 32 * 2**20
# The usual spellings of a missing value; the commonest also after a space.
_MISSING = (*arrow_csv.ConvertOptions().null_values, " ", " NA", " NaN", " nan")
_BOOLEANS = frozenset(arrow_csv.ConvertOptions().true_values + arrow_csv.ConvertOptions().false_values)
# Numbers with one comma, which may be a decimal comma, and numbers whose commas may separate thousands.
_ONE_COMMA = r"^\s*[+-]?[0-9]*,[0-9]+(?:[eE][+-]?[0-9]+)?\s*$"
_THOUSANDS = r"^\s*[+-]?[1-9][0-9]{0,2}(?:,[0-9]{3})+\s*$"
# Numbers in other notations: thousands (one sign for these, another for decimals) or percent. Groups of other than
# three digits are dates, versions or phone numbers.
_GROUPED = r"(?:,[0-9]{3})+(?:\.[0-9]+)?|(?:\.[0-9]{3})+(?:,[0-9]+)?|(?:'[0-9]{3})+(?:[.,][0-9]+)?"
_LIKE_NUMBER = rf"^\s*[+-]?(?:[0-9]*[.,]?[0-9]+|[1-9][0-9]{{0,2}}(?:{_GROUPED}))\s*%?\s*$"
# Values outside the range of an instrument: <0.5, >1000, <LOD, ND (not detected), BDL (below detection limit).
_CENSORED = r"(?i)^\s*(?:[<>≤≥].+|n\.?d\.?|bdl|[bu]?l{0,2}lo[dq]|blq|bql|oor.*|not detected|below .*)\s*$"
_REMEDY = "name the column in `standout.read(X, label=..., groups=..., ids=..., drop=...)`."
_DROP = "`standout.read(X, drop=...)`"


def open_csv(paths: tuple[Path, ...], shown: Path, options: Options, role: str) -> TableInMemory | Stream:
    """Return the source of one or more text files with the same columns."""
    given = [shown] if len(paths) == 1 else paths
    files = [TextFile(path, f"{role}: {name}") for path, name in zip(paths, given, strict=True)]
    return open_texts(files, shown, options, role)


def open_texts(given: Sequence[TextFile], shown: Path, options: Options, role: str) -> TableInMemory | Stream:
    """Return the source of one or more files that are read as text."""
    files = [_read_header(file, options) for file in given]
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

    unit: ClassVar[str] = "line"  # as messages call it

    path: Path
    location: str
    names: Columns = ()
    index: Columns = ()  # the first column, if its name is empty
    size: int = 0
    separator: str = ","
    header_bytes: int = 0
    header_lines: int = 0
    encoding: str = "utf-8"
    types: Mapping[str, Any] = field(default_factory=dict)  # of the numeric columns
    decimal: str = "."
    missing: Columns = _MISSING  # spellings of a missing value
    allows_censored: bool = False  # censored values are missing values
    max_bytes: int = _MAX_CHUNK_BYTES
    estimated_rows: float = 0

    def opened(self) -> AbstractContextManager[tuple[Any, Any]]:
        """Open the stream of the text, and the file, whose position is the progress."""
        return opened_text(self.path, self.location, self.encoding)

    @property
    def chunk_bytes(self) -> int:
        """Bytes to read at a time: a few hundred rows, and a few megabytes."""
        return min(max(_MIN_CHUNK_BYTES, 256 * self.header_bytes), _MAX_CHUNK_BYTES)

    def without(self, censored: Mapping[str, Counter[str]]) -> TextFile:
        """Return the same file with these censored values as missing values."""
        return replace(self, missing=(*self.missing, *(value for counts in censored.values() for value in counts)))

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
        with self.opened() as (stream, file):
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
                    problem = f"the row that begins in {self.unit} {line} does not end"
                    raise InputError(f"{self.location}: {problem}. Check for a quote that is never closed.")
                end = len(rest) if at_end else end
                if end:
                    data = self._without_comments(rest[:end], line)
                    yield Chunk(data, line, start, file.tell() / self.size)
                    line += rest.count(b"\n", 0, end)
                    rest, start = rest[end:], start + end

    def _without_comments(self, data: bytes, line: int) -> bytes:
        """Return rows with empty lines instead of comments, which begin with ``#`` and have other than a row's values.

        A line that may be either is an error, unless all rows begin with ``#``.
        """
        if b"#" not in data or not (data.startswith(b"#") or b"\n#" in data):  # the first test is ten times as fast
            return data
        parts: list[bytes] = []
        rest, quotes, unclear = 0, 0, None
        for found in re.finditer(rb"^#(?!N/?A\b)[^\r\n]*", data, re.MULTILINE):
            parts.append(data[rest : found.start()])
            quotes += parts[-1].count(b'"')
            rest = found.start() if quotes % 2 else found.end()  # within quotes it is text
            values = next(csv.reader([found[0].decode(errors="replace")], delimiter=self.separator))
            if quotes % 2 == 0 and len(values) == len(self.names) > 1 and unclear is None:
                unclear = found.start()
        plain = b"".join([*parts, data[rest:]])
        if unclear is None or not plain.strip():
            return plain if unclear is None else data
        line += data.count(b"\n", 0, unclear)
        problem = f"it begins with '#' and has {len(self.names)} values, and may be a comment or a row"
        remedy = "Drop the line, or put its first value in quotes."
        raise InputError(f"{self.location}, {self.unit} {line}: {problem}. {remedy}")


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


def _read_header(file: TextFile, options: Options) -> TextFile:
    """Return a file with the separator and the column names."""
    file, start = _read_start(replace(file, encoding=options.encoding or "utf-8"), options)
    bom = len(codecs.BOM_UTF8) if start.startswith(codecs.BOM_UTF8) else 0
    lines = list(io.StringIO(_decode(start[bom:], file, 1, final=False), newline=""))
    header = parse_header(lines, file.path, file.location, file.unit, options.header)
    size = bom + len("".join(lines[: header.lines]).encode())
    return replace(
        file, names=header.names, index=header.row_ids, separator=header.separator, header_bytes=size,
        header_lines=header.lines, allows_censored=options.censored == "missing",
    )  # fmt: skip


def _read_start(file: TextFile, options: Options) -> tuple[TextFile, bytes]:
    """Return a file with its size and encoding, and its start, long enough for the header and a row."""
    with file.opened() as (stream, _):
        start: bytes = stream.read(_HEADER_BYTES)
        while b"\0" not in start and not _has_rows(start, options.header, 2) and (more := stream.read(len(start))):
            start += more
            if len(start) > _MAX_HEADER_BYTES:
                if _has_rows(start, options.header, 1):
                    break
                problem = f"its first {file.unit} is longer than {len(start) >> 20} MB"
                remedy = f"Give a table with column names in its first {file.unit}."
                raise InputError(f"{file.location}: {problem}. {remedy}")
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and options.encoding is None:
        return _read_start(replace(file, encoding="utf-16"), replace(options, encoding="utf-16"))
    packed = next((suffix for suffix, mark in SIGNATURES.items() if start.startswith(mark)), None)
    problem = ""
    if packed is not None:
        problem = f"the file is compressed. Rename it to {file.path.name}{packed}."
    elif b"\0" in start:
        problem = "this is a binary file, not text. Check the file, and give a table as text"
        problem += ", or `encoding='utf-16-le'` if it is UTF-16." if start.count(b"\0") * 3 > len(start) else "."
    elif not start.strip(codecs.BOM_UTF8 + b" \t\r\n"):
        problem = f"the file is empty. Give a table with column names in its first {file.unit}."
    if problem:
        raise InputError(f"{file.location}: {problem}")
    return replace(file, size=file.path.stat().st_size), start


def _has_rows(start: bytes, header: int | None, count: int) -> bool:
    """Return whether the start of a file has so many rows, the header included."""
    lines = start[: end_of_rows(start, ",")].splitlines()[(header or 1) - 1 :]
    return sum(1 for line in lines if line.strip() and not line.startswith(b"#")) >= count


def _decode(data: bytes, file: TextFile, line: int, final: bool = True) -> str:
    """Return text; its last character may be incomplete unless ``final``."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data, final)
    except UnicodeDecodeError as error:
        line += data.count(b"\n", 0, error.start)
        word = re.search(rb"[^\s,;\"]*\Z", data[max(error.start - 20, 0) : error.start])
        rest = re.match(rb"[^\s,;\"]*", data[error.start : error.start + 20])
        shown = ((word[0] if word else b"") + (rest[0] if rest else b"")).decode("cp1252", "replace")
        problem = f"line {line} is not UTF-8 text; in Windows-1252 it has {shown!r}"
        remedy = "If that is right, give `encoding='cp1252'`; otherwise the encoding that the file was written in."
        raise InputError(f"{file.location}: {problem}. {remedy}") from error


# Parsing, and errors that name the line


def _parse(chunk: Chunk, file: TextFile, types: Mapping[str, Any], columns: Sequence[str]) -> Any:
    """Return the rows of a chunk as a record batch, or None if it has only empty lines."""
    if not chunk.data or chunk.data.isspace():
        return None
    # The whole chunk is one block for pyarrow, so that no row spans two.
    reading = arrow_csv.ReadOptions(column_names=file.names, block_size=len(chunk.data) + 1)
    parsing = arrow_csv.ParseOptions(delimiter=file.separator, newlines_in_values=b'"' in chunk.data)
    conversion = arrow_csv.ConvertOptions(
        column_types=types, include_columns=columns, null_values=file.missing, decimal_point=file.decimal
    )
    table = arrow_csv.read_csv(pa.BufferReader(chunk.data), reading, parsing, conversion)
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else None


def _rows(chunk: Chunk, file: TextFile) -> Any:
    """Return a reader of the rows of a chunk as text; text that is not UTF-8 is an error."""
    return csv.reader(io.StringIO(_decode(chunk.data, file, chunk.line), newline=""), delimiter=file.separator)


def _parse_or_explain(chunk: Chunk, file: TextFile, types: Mapping[str, Any], columns: Sequence[str]) -> Any:
    try:
        return _parse(chunk, file, types, columns)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        censored = _censored_numbers(chunk, file, types) if file.allows_censored else {}
        if not censored:
            raise _explain(error, chunk, file, types) from error
    return _parse_or_explain(chunk, file.without(censored), types, columns)


def _texts(chunk: Chunk, file: TextFile, names: Sequence[str]) -> dict[str, Any]:
    """Return the values of columns as text, without missing ones; {} if the rows cannot be parsed."""
    try:
        batch = _parse(chunk, file, dict.fromkeys(names, pa.string()), names) if names else None
    except pa.ArrowException:
        batch = None
    if batch is None:
        return {}
    known = pa.array(file.missing)
    return {name: batch.column(name).filter(pc.invert(pc.is_in(batch.column(name), known))) for name in names}


def _censored_values(texts: Mapping[str, Any]) -> dict[str, Counter[str]]:
    """Return the censored values of columns, with their counts, where there are some."""
    found = {name: Counter(v.filter(pa.array(_matches(v, _CENSORED))).to_pylist()) for name, v in texts.items()}
    return {name: counts for name, counts in found.items() if counts}


def _censored_numbers(chunk: Chunk, file: TextFile, types: Mapping[str, Any]) -> dict[str, Counter[str]]:
    """Return the censored values of the numeric columns."""
    return _censored_values(_texts(chunk, file, [name for name, kind in types.items() if kind != pa.string()]))


def _censored_error(found: Mapping[str, Counter[str]], chunk: Chunk, file: TextFile) -> NotNumbersError:
    """Return an error that counts censored values by column."""
    counts = [f"{name!r} ({each.total()}, such as {each.most_common(1)[0][0]!r})" for name, each in found.items()]
    rest = f" and {len(counts) - 5} more" if len(counts) > 5 else ""
    where = f"{file.unit}s {chunk.line} to {chunk.line + chunk.data.rstrip().count(bytes([10]))}"
    columns = f"{len(counts)} column{'s' * (len(counts) != 1)}"
    problem = f"censored values in {columns}: {', '.join(counts[:5])}{rest}"
    remedy = "Give `censored='missing'` to treat them as missing values, or replace them in the file"
    return NotNumbersError(f"{file.location}, {where}: {problem}. {remedy}.")


def _explain(error: Exception, chunk: Chunk, file: TextFile, types: Mapping[str, Any]) -> StandoutError:
    """Return an error for the first value of a chunk that does not have the type of its column."""
    number, n_columns = re.compile(number_pattern(file.decimal)), len(file.names)
    kinds = [(position, name, types.get(name, pa.string())) for position, name in enumerate(file.names)]
    numeric = [column for column in kinds if column[2] != pa.string()]
    reader, line = _rows(chunk, file), chunk.line
    try:
        for row in reader:
            if row and len(row) != n_columns:
                found = f"{len(row)} value{'s' * (len(row) != 1)}, but the header names {n_columns} column"
                remedy = "Give every row one value for each column, and quote values that contain the separator."
                if len(row) > n_columns:
                    remedy += f" If the names are in another {file.unit} than {file.header_lines}, give `header`."
                return InputError(f"{file.location}, {file.unit} {line}: {found}{'s' * (n_columns != 1)}. {remedy}")
            for position, name, kind in numeric if row else ():
                value = row[position]
                valid = value in _BOOLEANS if kind == pa.bool_() else number.match(value) is not None
                if not valid and value not in file.missing:
                    if re.match(_CENSORED, value) and (censored := _censored_numbers(chunk, file, types)):
                        return _censored_error(censored, chunk, file)
                    shown = value if len(value) <= 40 else f"{value[:40]}..."
                    found = f"{file.unit} {line}: column {name!r} is numeric, but {shown!r} is not a number"
                    remedy = f"Leave the cell empty if it is missing, or {_REMEDY}"
                    return NotNumbersError(f"{file.location}, {found}. {remedy}")
            line = chunk.line + reader.line_num
    except csv.Error:
        pass  # a value too long for this reader: report pyarrow's message
    problem = f"a row in or after {file.unit} {chunk.line} cannot be read ({first_line(error)})"
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
        text = _texts(chunk, file, [name for name in features if batch.field(name).type == pa.string()])
        censored = {k: v for k, v in _censored_values(text).items() if _has_numbers(text[k], v.total())}
        if censored and not file.allows_censored:
            raise _censored_error(censored, chunk, file)
        if censored:
            file = file.without(censored)
            text |= _texts(chunk, file, list(censored))
        commas = [name for name, values in text.items() if _has_decimal_commas(values, name, file)]
        if censored:  # the same values stay text in other columns
            metadata += [name for name in text if name not in censored and name not in commas]
            batch = _parse_inferred(chunk, file, metadata)
        types = _numeric_types(batch)
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
    texts, number = dict.fromkeys(metadata, pa.string()), re.compile(number_pattern(file.decimal))
    # pyarrow tries a dozen types for every column. A guess from five rows saves that for all but a few columns.
    guess = {}
    try:
        rows = [row for row in islice(_rows(chunk, file), 5) if len(row) == len(file.names)]
        for name, values in zip(file.names, zip(*rows, strict=True), strict=bool(rows)):
            if all(number.match(value) or value in file.missing for value in values):
                guess[name] = pa.float64()
        return _parse(chunk, file, guess | texts, file.names)
    except (csv.Error, pa.ArrowException):
        return _parse_or_explain(chunk, file, texts, file.names)


def _numeric_types(batch: Any) -> dict[str, Any]:
    """Return the numeric columns: float64, but for booleans, which are words."""
    kinds = {field.name: field.type for field in batch.schema if is_number(field.type)}
    return {name: kind if pa.types.is_boolean(kind) else pa.float64() for name, kind in kinds.items()}


def _has_numbers(values: Any, n_censored: int) -> bool:
    """Return whether a column with censored values has numbers too, and hardly any other text."""
    numbers = int((_matches(values, number_pattern()) | _matches(values, _LIKE_NUMBER)).sum())
    return numbers > 0 and 2 * (numbers + n_censored) > len(values)


def _matches(values: Any, pattern: str) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = pc.match_substring_regex(values, pattern).to_numpy(zero_copy_only=False).astype(bool)
    return found


def _has_decimal_commas(values: Any, name: str, file: TextFile) -> bool:
    """Return whether text values are numbers with decimal commas; ambiguous commas are an error."""
    one, thousands = _matches(values, _ONE_COMMA), _matches(values, _THOUSANDS)
    either = one | thousands
    if not either.any() or np.mean(either | _matches(values, number_pattern())) <= 0.5:
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
    plain, like = _matches(values, number_pattern(file.decimal)), _matches(values, _LIKE_NUMBER)
    if 2 * plain.sum() > len(plain):
        raise _explain(ValueError(f"column {name!r} has numbers and text"), chunk, file, {name: pa.float64()})
    if 2 * like.sum() > len(like):
        example = values[int(np.argmax(like & ~plain))].as_py()
        found = f"column {name!r} has numbers in an unsupported notation, such as {example!r}"
        raise NotNumbersError(f"{file.location}: {found}. Convert them to plain numbers such as 1234.5, or {_REMEDY}")
