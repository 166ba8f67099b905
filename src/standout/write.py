"""Writing results row by row: csv, parquet or npy, whichever the name says, never more than a block in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from standout.blas import Array
from standout.errors import MissingExtraError, OutputError
from standout.output import check_writable, replacing
from standout.sources.checks import is_missing

SUFFIXES = (".csv", ".tsv", ".parquet", ".npy")


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
