"""The text of a file, decompressed and decoded to UTF-8 while it is read, and standard input as a file.

Every stream here is read in pieces of bounded size, so that a file that expands a thousandfold costs time, not memory.
"""

from __future__ import annotations

import atexit
import codecs
import lzma
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from standout.errors import InputError, listed
from standout.io.source import readable

# Compressed files start with these bytes. pyarrow decompresses three of the formats, the standard library the others.
SIGNATURES = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".xz": b"\xfd7zXZ\0", ".zst": b"\x28\xb5\x2f\xfd", ".zip": b"PK\3\4"}
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
# Bytes to decompress or decode at once, and the largest dictionary of an xz file: `xz -9` needs 65 MB.
_PIECE = 2**20
_XZ_MEMORY = 2**28
# The types that standard input is recognised as; anything else is text.
_TABLES = {b"PAR1": ".parquet", b"ARROW1": ".arrow", b"\xff\xff\xff\xff": ".arrow"}


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
