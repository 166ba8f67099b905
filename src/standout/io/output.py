"""Write files atomically: to a temporary name first, then renamed.

Tables of results are written block by block (csv, tsv, parquet or npy, by the suffix), with one block in memory.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from standout._blas import Array
from standout.errors import MissingExtraError, OutputError, StandoutError
from standout.io.memory import is_missing

_REASONS = {
    errno.ENOSPC: "the disk is full. Make room, or choose another path.",
    errno.EDQUOT: "the disk quota is used up. Make room, or choose another path.",
    errno.EROFS: "the file system is read-only. Choose another path.",
    errno.EACCES: "no permission to write there. Choose another path.",
    errno.EPERM: "no permission to write there. Choose another path.",
}
SUFFIXES = (".csv", ".tsv", ".parquet", ".npy")


def check_writable(path: str | os.PathLike[str], what: str = "output") -> Path:
    """Return the resolved path, or raise an error if no file can be written there."""
    target = Path(os.path.realpath(Path(path).expanduser()))  # a symbolic link is kept, and its target written
    if os.path.exists(target) and not os.path.isfile(target):  # Path.is_file raises if the parent cannot be read
        found = "a directory" if os.path.isdir(target) else "a device or a pipe"
        raise OutputError(f"{what}: {target} is {found}. Give the name of a file.")
    if not os.path.isdir(target.parent):
        raise OutputError(f"{what}: there is no directory {target.parent}. Make it first, or choose another path.")
    if not os.access(target.parent, os.W_OK):
        raise OutputError(f"{what}: no permission to write to {target.parent}. Choose another path.")
    return target


def make_directory(path: Path, what: str = "output") -> None:
    """Create a directory and its parents, or raise an error that gives the reason."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{what}: {path} cannot be created ({error.strerror}). Choose another path.") from error


@contextmanager
def replacing(path: str | os.PathLike[str], what: str = "output") -> Iterator[Path]:
    """Yield a temporary path to write to; it is renamed to ``path`` if no error occurs.

    After an error, a full disk or Ctrl-C, an existing file at ``path`` is unchanged and the temporary file is removed.
    """
    target = check_writable(path, what)
    # The name is chosen before the file exists, so that an interruption at any time can remove it. It is shortened,
    # because the full name might exceed the limit of the file system.
    temporary = target.with_name(f".{target.name[:40]}.{secrets.token_hex(4)}.part{target.suffix}")
    try:
        temporary.touch(mode=0o600, exist_ok=False)
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(_mode(target))
        temporary.replace(target)
    except OSError as error:
        if isinstance(error, StandoutError) or error.errno is None:
            raise
        reason = _REASONS.get(error.errno, f"{error.strerror}. Choose another path.")
        raise OutputError(f"{what}: {target} could not be written: {reason}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _mode(target: Path) -> int:
    """Return the permissions of a file, or those that a new one would have."""
    try:
        return target.stat().st_mode & 0o777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def check_table_path(path: str | os.PathLike[str], what: str = "output") -> Path:
    """Return the resolved path, or raise an error if no table can be written there."""
    target = check_writable(path, what)
    if target.suffix.lower() not in SUFFIXES:
        problem = f"{what}: unsupported file type {target.suffix!r}"
        raise OutputError(f"{problem}. Use a name that ends in one of {', '.join(SUFFIXES)}.")
    return target


@contextmanager
def writing(
    path: str | os.PathLike[str], names: Sequence[str], about: Sequence[str] = (), what: str = "output"
) -> Iterator[_NpyWriter | _TableWriter]:
    """Yield a writer of a table; the file appears when the context ends without an error.

    ``names`` are columns of numbers. ``about`` are metadata columns, which are text and come first; an npy file has
    none.
    """
    target = check_table_path(path, what)
    with replacing(target, what) as temporary:
        is_npy = target.suffix.lower() == ".npy"
        writer = _NpyWriter(temporary, len(names)) if is_npy else _TableWriter(temporary, names, about)
        with closing(writer):
            yield writer


class _NpyWriter:
    """Write an npy file; the number of rows is written into its header at the end."""

    def __init__(self, path: Path, n_columns: int):
        self.n_columns, self.n_rows = n_columns, 0
        self.file = path.open("wb")
        self._write_header()

    def _write_header(self) -> None:
        self.file.seek(0)
        # numpy pads the header so that the number of rows can grow in place.
        header = {"descr": "<f8", "fortran_order": False, "shape": (self.n_rows, self.n_columns)}
        npy.write_array_header_1_0(self.file, header)

    def add(self, numbers: Array, about: Mapping[str, NDArray[Any]]) -> None:  # noqa: ARG002
        self.file.write(np.ascontiguousarray(numbers, dtype="<f8").tobytes())
        self.n_rows += len(numbers)

    def close(self) -> None:
        self._write_header()
        self.file.close()


class _TableWriter:
    """Write a csv, tsv or parquet file."""

    def __init__(self, path: Path, names: Sequence[str], about: Sequence[str]):
        try:
            import pyarrow as pa
            from pyarrow import csv, parquet
        except ImportError as error:
            raise MissingExtraError("writing tables needs pyarrow: pip install 'standout[io]'") from error
        self.pa, self.about = pa, list(about)
        fields = [(free_name(name, names), pa.string()) for name in about] + [(name, pa.float64()) for name in names]
        self.schema, suffix = pa.schema(fields), path.suffix.lower()
        if suffix == ".parquet":
            self.writer: Any = parquet.ParquetWriter(path, self.schema)
        else:
            options = csv.WriteOptions(delimiter="\t" if suffix == ".tsv" else ",")
            self.writer = csv.CSVWriter(path, self.schema, write_options=options)
        self.close = self.writer.close  # a table without rows still has a header

    def add(self, numbers: Array, about: Mapping[str, NDArray[Any]]) -> None:
        """Write some rows with their metadata; columns that are not in ``about`` stay empty."""
        empty = np.full(len(numbers), None)
        texts = [[None if is_missing(v) else str(v) for v in about.get(name, empty).tolist()] for name in self.about]
        columns = [*texts, *np.asarray(numbers, dtype=np.float64).T]
        arrays = [self.pa.array(values, field.type) for values, field in zip(columns, self.schema, strict=True)]
        self.writer.write_batch(self.pa.RecordBatch.from_arrays(arrays, schema=self.schema))


def free_name(name: str, taken: Sequence[str]) -> str:
    """Return ``name`` with underscores added until it differs from all names in ``taken``."""
    while name in taken:
        name = f"{name}_"
    return name
