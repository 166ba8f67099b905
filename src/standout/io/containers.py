"""Checks on files before they are read, and the choice of one array among several in a file.

Headers of damaged or hostile files claim any size. What a header claims is compared with the size of the file before
memory is allocated, and every error of a reader becomes one line that names the file and a remedy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout.errors import InputError, MissingExtraError, NotNumbersError, StandoutError, did_you_mean, listed
from standout.io.memory import NUMBERS
from standout.io.source import Names

# Arrays of text with one of these names hold feature names.
FEATURE_NAMES = ("names", "feature_names", "columns", "features")
# Compressed data may expand by this factor. Below the second limit (bytes) any claim is accepted.
_MAX_EXPANSION = 10_000
_ANY_CLAIM = 10**7
_PICKLES = "contains Python objects, which are stored as pickles. Loading a pickle can run any code, so it is not read."

Column = Callable[[], NDArray[Any]]  # reads one metadata column


@dataclass(frozen=True)
class Member:
    """Shape and type of an array in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    text: bool = False

    @property
    def numeric(self) -> bool:
        """Whether it is a 2-D array of numbers."""
        return len(self.shape) == 2 and self.dtype.kind in NUMBERS

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return math.prod(self.shape) * self.dtype.itemsize


@contextmanager
def readable(location: str, kind: str, path: Path | None = None) -> Iterator[None]:
    """Convert any error of a reader into an :class:`InputError` of one line that starts with ``location``.

    With a ``path``, an empty file is an error, and so is a gzip file, except of Matrix Market.
    """
    try:
        if path is not None and path.is_file():
            with path.open("rb") as file:
                if not file.read(1):
                    raise InputError(f"{location}: the file is empty. Give an intact copy.")
            if path.suffix.lower() == ".gz" and kind != "Matrix Market":
                raise InputError(f"{location}: gzip is not supported for this file type. Give the uncompressed file.")
        yield
    except StandoutError:
        raise
    except PermissionError as error:
        raise InputError(f"{location}: no permission to read it. Ask for access, or give a copy.") from error
    except FileNotFoundError as error:
        raise InputError(f"{location}: the file no longer exists. Check the path.") from error
    except MemoryError as error:
        raise InputError(f"{location}: not enough memory. Use a smaller `memory`, or give fewer columns.") from error
    except Exception as error:
        problem = f"cannot be read as {kind} ({first_line(error)}). The file is damaged, truncated or of another type"
        raise InputError(f"{location}: {problem}: give an intact copy.") from error


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, short enough for a message of ours."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:150].rstrip(".")


def import_extra(package: str, location: str, extra: str = "io") -> Any:
    """Import an optional package, or raise an error that names the extra to install."""
    try:
        return import_module(package)
    except ImportError as error:
        install = f"pip install 'standout[{extra}]'"
        raise MissingExtraError(f"{location}: reading this needs {error.name}. Install it with: {install}") from error


def check_no_key(key: str | None, location: str, kind: str) -> None:
    """Raise an error for ``key=`` where a file holds a single array."""
    if key is not None:
        raise InputError(f"{location}: `key={key!r}` was given, but {kind} holds a single array. Leave `key` out.")


def check_matrix(member: Member, location: str) -> None:
    """Raise an error unless an array is 2-D, numeric and not empty."""
    shape, kind = member.shape, member.dtype.kind
    if kind == "O" and not member.text:
        problem = f"it {_PICKLES} Convert it to numbers, for instance with array.astype(float), and save it again."
    elif kind == "c":
        problem = "complex numbers are not supported. Use the real and the imaginary part as two features."
    elif member.dtype.names is not None:
        problem = f"it is a structured array ({listed(member.dtype.names)}). Load it as a data frame, and give that."
    elif kind not in NUMBERS:
        found = "text" if member.text else member.dtype
        problem = f"values of type {found} are not numbers. Convert them to numbers, or give another array."
    elif len(shape) != 2:
        raise InputError(f"{location}: its shape is {shape}. Reshape it to two dimensions, rows × features.")
    elif min(shape) < 1:
        lacking = "no rows" if shape[0] < 1 else "no features"
        raise InputError(f"{location}: its shape is {shape}: {lacking}. Give at least one row and one feature.")
    else:
        return
    raise NotNumbersError(f"{location}: {problem}")


def check_size(claimed: int, available: int, location: str) -> None:
    """Raise an error for an array that claims far more bytes than ``available`` bytes can expand to."""
    if claimed > _ANY_CLAIM + _MAX_EXPANSION * available:
        problem = f"its header claims {claimed:,} bytes, but the file has only {available:,}. It is damaged"
        raise InputError(f"{location}: {problem}: give an intact copy.")


def check_sparse_shape(shape: Sequence[int], available: int, location: str) -> None:
    """Raise an error for a sparse matrix with far more rows or columns than ``available`` bytes can fill."""
    if len(shape) != 2 or min(shape) < 1:
        check_matrix(Member(tuple(shape), np.dtype(float)), location)
    if max(shape) > 10**5 + 10 * available:
        problem = f"its header claims {shape[0]:,} rows and {shape[1]:,} columns in {available:,} bytes. It is damaged"
        raise InputError(f"{location}: {problem}: give an intact copy.")


def check_fits(nbytes: int, memory: int, location: str, reason: str, remedy: str) -> None:
    """Raise an error for data that cannot be read in blocks and take more than ``memory`` bytes."""
    if nbytes > memory:
        raise InputError(
            f"{location}: {reason}, so it must fit in memory, and it takes {nbytes / 1e6:,.0f} MB. Use "
            f"`standout.read(..., memory='{math.ceil(nbytes / 1e6)}MB')`, or {remedy}."
        )


def size_on_disk(path: Path) -> int:
    """Return the size of a file, or of all files in a directory."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def choose_array(members: Mapping[str, Member], key: str | None, location: str) -> str:
    """Return the name of the array that holds the rows: ``key``, or the only 2-D array of numbers.

    Examples
    --------
    >>> labels, rows = Member((9,), np.dtype(int)), Member((9, 4), np.dtype(float))
    >>> choose_array({"labels": labels, "rows": rows}, None, "data.npz")
    'rows'
    """
    tables = [name for name, member in members.items() if member.numeric]
    candidates, name = list(members), None if key is None else key.strip("/")
    if name is not None:
        if name in members:
            return name
        problem = f"no array {key!r}.{did_you_mean(name, members)}"
    elif len(tables) == 1 or len(members) == 1:  # check_matrix reports what is wrong with a single array
        return (tables or candidates)[0]
    elif not tables:
        problem = "no two-dimensional numeric array (rows × features)."
    else:
        problem, candidates = f"{len(tables)} two-dimensional numeric arrays.", tables
    shown = listed([f"{name} {members[name].shape}" for name in candidates], most=8)
    remedy = f"Choose one with `key`: {shown}." if shown else "Give a file that has one."
    raise InputError(f"{location}: it has {problem} {remedy}")


def sibling_columns(
    members: Mapping[str, Member], chosen: str, read: Callable[[str], NDArray[Any]], location: str
) -> tuple[Names, dict[str, Column]]:
    """Return feature names and row metadata (1-D arrays with one entry a row) from the group of the chosen array.

    Feature names that do not fit are an error. If they were ignored, columns would be matched by position.
    """
    n_rows, n_features = members[chosen].shape
    names: Names = None
    metadata: dict[str, Column] = {}
    for path, member in members.items():
        group, _, name = path.rpartition("/")
        if path == chosen or group != chosen.rpartition("/")[0]:
            continue
        if name in FEATURE_NAMES and member.text and member.shape == (n_features,):
            names = as_names(read(path))
            continue
        if name in FEATURE_NAMES:
            where = f"{location}: {path!r} should hold feature names"
            remedy = "Give one text for each feature: save them with .astype(str)."
            if member.dtype.kind == "O" and not member.text:
                raise NotNumbersError(f"{where}, but {_PICKLES} {remedy}")
            if member.shape != (n_rows,) and (member.text or member.shape == (n_features,)):
                found = f"its shape is {member.shape} for {n_features} features, and its type is {member.dtype}"
                raise InputError(f"{where}, but {found}. {remedy}")
        if member.shape == (n_rows,) and (member.text or member.dtype.kind in NUMBERS):
            metadata[name] = lambda path=path: decode(read(path))  # type: ignore[misc]
    return names, metadata


@contextmanager
def open_item(open_root: Callable[[], AbstractContextManager[Any]], key: str) -> Iterator[Any]:
    """Open an HDF5 or Zarr store and yield the array or group at ``key`` (empty: the store itself)."""
    with open_root() as root:
        yield root[key] if key else root


def as_names(values: Any) -> tuple[str, ...]:
    """Return names as a tuple of text."""
    return tuple(str(value) for value in decode(values).tolist())


def decode(column: Any) -> NDArray[Any]:
    """Return a column as an array: bytes as text, categories by name, all other values unchanged."""
    values = np.asarray(column)
    if values.dtype.kind in NUMBERS + "U":
        return values
    decoded = [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in values.tolist()]
    return np.array(decoded, dtype=object)
