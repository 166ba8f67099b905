"""Tables as text: csv, tsv and txt, one file or many, packed or not.

The first few megabytes say which columns are numbers; the whole is then read so. A column of numbers in which text
turns up, there or later, is an error that says where.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

from standout.errors import InputError, NotNumbersError
from standout.sources.files.batches import is_number, piece_of
from standout.sources.files.columns import check_same, choose
from standout.sources.files.csv_head import Head, read_head
from standout.sources.files.csv_rows import MISSING, Chunk, Dialect, chunks, explain, not_utf8, parsed
from standout.sources.files.options import Options
from standout.sources.files.source import Stream, TableInMemory
from standout.sources.files.tables import Piece, Table, open_table

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
