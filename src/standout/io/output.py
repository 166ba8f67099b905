"""Writing files so that nothing half-written is ever seen: to a temporary name first, then renamed.

Writing results row by row: csv, parquet or npy, whichever the name says, never more than a block in memory.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from standout._blas import Array
from standout.errors import MissingExtraError, OutputError, StandoutError
from standout.io.memory import is_missing

_WHY = {
    errno.ENOSPC: "the disk is full. Make room, or choose another place.",
    errno.EDQUOT: "the quota is used up. Make room, or choose another place.",
    errno.EROFS: "the file system is read-only. Choose another place.",
    errno.EACCES: "there is no permission to write there. Choose another place.",
    errno.EPERM: "there is no permission to write there. Choose another place.",
}
SUFFIXES = (".csv", ".tsv", ".parquet", ".npy")


def check_writable(path: str | os.PathLike[str], what: str = "output") -> Path:
    """Return a path that can be written, or say before any work is done why it cannot."""
    wanted = Path(os.path.realpath(Path(path).expanduser()))  # a link stays, and what it leads to is written
    if os.path.isdir(wanted):  # Path.is_dir raises where the name is too long or the parent may not be read
        raise OutputError(f"{what}: {wanted} is a directory. Give the name of a file.")
    if os.path.exists(wanted) and not os.path.isfile(wanted):
        raise OutputError(f"{what}: {wanted} is a device or a pipe. Give the name of a file.")
    if not os.path.isdir(wanted.parent):
        raise OutputError(f"{what}: there is no directory {wanted.parent}. Make it first, or choose another place.")
    if not os.access(wanted.parent, os.W_OK):
        raise OutputError(f"{what}: there is no permission to write into {wanted.parent}. Choose another place.")
    return wanted


def make_directory(path: Path, what: str = "output") -> None:
    """Make a directory for files, with those above it, or say why it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{what}: {path} cannot be made ({error.strerror}). Choose another place.") from error


@contextmanager
def replacing(path: str | os.PathLike[str], what: str = "output") -> Iterator[Path]:
    """Give a temporary file to write; it takes the place of ``path`` when all went well.

    Whatever goes wrong (an error, a full disk, Ctrl-C), what was at ``path`` before stays as it was and the
    temporary file is removed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "a.txt") as draft:
    ...         _ = draft.write_text("whole")
    ...     [(file.name, file.read_text()) for file in Path(folder).iterdir()]
    [('a.txt', 'whole')]
    """
    wanted = check_writable(path, what)
    # The name is chosen before the file is there, so that an interruption at any moment finds it to remove. Whole, it
    # might be too long a name.
    draft = wanted.with_name(f".{wanted.name[:40]}.{secrets.token_hex(4)}.part{wanted.suffix}")
    try:
        draft.touch(mode=0o600, exist_ok=False)
        yield draft
        _settle(draft, wanted)
    except OSError as error:
        if isinstance(error, StandoutError) or error.errno is None:
            raise
        why = _WHY.get(error.errno, f"{error.strerror}. Choose another place.")
        raise OutputError(f"{what}: {wanted} could not be written: {why}") from error
    finally:
        draft.unlink(missing_ok=True)


def _settle(draft: Path, wanted: Path) -> None:
    """Put the draft in its place: on disk before the rename, with the permissions a new file would have."""
    with draft.open("rb+") as file:
        os.fsync(file.fileno())
    mask = os.umask(0)
    os.umask(mask)
    try:
        mode = wanted.stat().st_mode & 0o777
    except FileNotFoundError:
        mode = 0o666 & ~mask
    draft.chmod(mode)
    draft.replace(wanted)


class TableWriter(Protocol):
    """Takes blocks of rows in order."""

    def add(self, numbers: Array, about: Mapping[str, NDArray[Any]]) -> None:
        """Write some rows: their numbers, and the columns that describe them."""
        ...


def check_table_path(path: str | os.PathLike[str], what: str = "output") -> Path:
    """Return a path that a table can be written to, or say why not, before any work is done."""
    wanted = check_writable(path, what)
    if wanted.suffix.lower() not in SUFFIXES:
        raise OutputError(
            f"{what}: files of the kind {wanted.suffix!r} are not written. Use a name that ends in one of "
            f"{', '.join(SUFFIXES)}."
        )
    return wanted


@contextmanager
def writing(
    path: str | os.PathLike[str], names: Sequence[str], about: Sequence[str] = (), what: str = "output"
) -> Iterator[TableWriter]:
    """Give a writer of tables with columns of numbers; the file appears when all rows are in it.

    The columns ``about`` describe rows: they are text, come first, and are empty where a block has none. An npy
    file holds the numbers alone.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with writing(Path(folder) / "scores.csv", ["dpca0"], ["id"]) as table:
    ...         table.add(np.array([[1.5], [2.0]]), {"id": np.array(["a", "b"], dtype=object)})
    ...     (Path(folder) / "scores.csv").read_text().split()
    ['"id","dpca0"', '"a",1.5', '"b",2']
    """
    wanted = check_table_path(path, what)
    with replacing(wanted, what) as draft:
        writer = _Npy(draft, len(names)) if wanted.suffix.lower() == ".npy" else _Arrow(draft, names, about)
        try:
            yield writer
        finally:
            writer.close()


class _Npy:
    """An npy file whose header is written again when the number of rows is known."""

    def __init__(self, draft: Path, width: int):
        self.width, self.rows = width, 0
        self.file = draft.open("wb")
        self._header()

    def _header(self) -> None:
        self.file.seek(0)
        # numpy pads its header so that the number of rows can grow in place.
        head = {"descr": "<f8", "fortran_order": False, "shape": (self.rows, self.width)}
        npy.write_array_header_1_0(self.file, head)

    def add(self, numbers: Array, about: Mapping[str, NDArray[Any]]) -> None:  # noqa: ARG002
        """Write the numbers."""
        self.file.write(np.ascontiguousarray(numbers, dtype="<f8").tobytes())
        self.rows += len(numbers)

    def close(self) -> None:
        """Put the number of rows into the header."""
        self._header()
        self.file.close()


class _Arrow:
    """A csv, tsv or parquet file."""

    def __init__(self, draft: Path, names: Sequence[str], about: Sequence[str]):
        try:
            import pyarrow as pa
        except ImportError as error:
            raise MissingExtraError(
                "writing tables needs pyarrow. Install it with: pip install 'standout[io]'"
            ) from error
        self.pa, self.names, self.about = pa, list(names), list(about)
        fields = [(free_name(name, names), pa.string()) for name in about] + [(name, pa.float64()) for name in names]
        self.schema = pa.schema(fields)
        self.writer = self._open(draft)

    def _open(self, draft: Path) -> Any:
        from pyarrow import csv, parquet

        if draft.suffix.lower() == ".parquet":
            return parquet.ParquetWriter(draft, self.schema)
        separator = "\t" if draft.suffix.lower() == ".tsv" else ","
        return csv.CSVWriter(draft, self.schema, write_options=csv.WriteOptions(delimiter=separator))

    def add(self, numbers: Array, about: Mapping[str, NDArray[Any]]) -> None:
        """Write some rows."""
        pa, nothing = self.pa, [None] * len(numbers)
        texts = [pa.array(_texts(about[name]) if name in about else nothing, pa.string()) for name in self.about]
        columns = [pa.array(np.ascontiguousarray(column)) for column in np.asarray(numbers, dtype=np.float64).T]
        self.writer.write_batch(pa.RecordBatch.from_arrays([*texts, *columns], schema=self.schema))

    def close(self) -> None:
        """Finish the file; one without rows still has its header."""
        self.writer.close()


def _texts(values: NDArray[Any]) -> list[str | None]:
    return [None if is_missing(value) else str(value) for value in values.tolist()]


def free_name(name: str, taken: Sequence[str]) -> str:
    """Return a name for a column that no other one has."""
    while name in taken:
        name = f"{name}_"
    return name
