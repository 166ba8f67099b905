"""What is inside an array file: which of its arrays holds the rows, what the others say, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout.errors import InputError, NotNumbersError, StandoutError, did_you_mean, listed
from standout.io.memory import NUMBERS

# Arrays of text under one of these names hold the names of the features.
NAMES = ("names", "feature_names", "columns", "features")

# What is packed takes more room in memory than in the file, but not without limit: a header that claims more is
# damaged, and is refused before anything is made that large.
_PACKED = 10_000
_SMALL = 10**7

Column = Callable[[], NDArray[Any]]


@dataclass(frozen=True)
class Member:
    """An array in a file, before it is read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    text: bool = False

    @property
    def numeric(self) -> bool:
        """Whether it is a table of numbers."""
        return len(self.shape) == 2 and self.dtype.kind in NUMBERS

    @property
    def nbytes(self) -> int:
        """What it takes in memory."""
        return math.prod(self.shape) * self.dtype.itemsize


@contextmanager
def readable(where: str, kind: str) -> Iterator[None]:
    """Turn whatever a reader raises into one line that names the file and says what to do."""
    try:
        yield
    except StandoutError:
        raise
    except PermissionError as error:
        raise InputError(f"{where}: there is no permission to read it. Ask for it, or give a copy.") from error
    except FileNotFoundError as error:
        raise InputError(f"{where}: a file of it is gone. Check the path.") from error
    except MemoryError as error:
        raise InputError(
            f"{where}: it takes more memory than there is. Use a smaller memory=, or give fewer columns."
        ) from error
    except Exception as error:
        told = (str(error).strip() or type(error).__name__).splitlines()[0][:150].rstrip(".")
        raise InputError(
            f"{where}: this cannot be read as {kind} ({told}). It is damaged, cut short or of another kind: give a "
            "whole copy."
        ) from error


def check_file(path: Path, where: str, packed: bool = False) -> None:
    """Refuse a file that is empty, or packed where packed files are not read; not every reader tells."""
    if path.is_file():
        with path.open("rb") as file:
            if not file.read(1):
                raise InputError(f"{where}: the file is empty. Give a whole copy.")
    if path.suffix.lower() == ".gz" and not packed:
        raise InputError(f"{where}: files of this kind are not read packed with gz. Give it unpacked.")


def check_no_key(options_key: str | None, where: str, kind: str) -> None:
    """Refuse the name of an array where a file holds just one."""
    if options_key is not None:
        raise InputError(f"{where}: key={options_key!r}, and {kind} holds one array only. Leave key= out.")


def check_matrix(member: Member, where: str) -> None:
    """Refuse what is not a table of numbers with at least one row and one column."""
    shape, kind = member.shape, member.dtype.kind
    if kind == "O" and not member.text:
        raise NotNumbersError(
            f"{where}: it holds Python objects, which are stored as pickles and could run any code, so they are not "
            "read. Convert it to numbers, for instance with array.astype(float), and save it again."
        )
    if kind == "c":
        raise NotNumbersError(
            f"{where}: complex numbers are not supported. Use the real and the imaginary part as two features."
        )
    if member.dtype.names is not None:
        raise NotNumbersError(
            f"{where}: it is a table of records ({listed(member.dtype.names)}), not an array of numbers. Load it as a "
            "data frame, and give that."
        )
    if kind not in NUMBERS:
        raise NotNumbersError(
            f"{where}: values of type {'text' if member.text else member.dtype} are not numbers. Convert them to "
            "numbers, or give another array."
        )
    if len(shape) != 2:
        raise InputError(
            f"{where}: its shape is {shape}, and rows × features is expected. Reshape it to two dimensions, even for "
            "one row or one feature."
        )
    if min(shape) < 1:
        what = "no rows" if shape[0] < 1 else "no features"
        raise InputError(f"{where}: its shape is {shape}: there are {what}. Give at least one row and one feature.")


def check_claim(claimed: int, there: int, where: str) -> None:
    """Refuse an array that claims to be far larger than what is there could hold, packed as it may be."""
    if claimed > _SMALL + _PACKED * there:
        raise InputError(
            f"{where}: it claims to hold {claimed:,} bytes, and there are only {there:,}. It is damaged: give a whole "
            "copy."
        )


def stored(path: Path) -> int:
    """Return the bytes of a file, or of all files of a directory."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def check_sparse_claim(shape: Sequence[int], there: int, where: str) -> None:
    """Refuse a sparse matrix with far more rows or columns than what is there could fill."""
    if len(shape) != 2 or min(shape) < 1:
        check_matrix(Member(tuple(shape), np.dtype(float)), where)
    if max(shape) > 10**5 + 10 * there:
        raise InputError(
            f"{where}: it claims to have {shape[0]:,} rows and {shape[1]:,} columns, in {there:,} bytes. It is "
            "damaged: give a whole copy."
        )


def check_held(nbytes: int, memory: int, where: str, why: str, remedy: str) -> None:
    """Refuse what must be held in memory as a whole and takes more of it than was allowed."""
    if nbytes > memory:
        raise InputError(
            f"{where}: {why}, so it must be held in memory as a whole, and it takes {nbytes / 1e6:,.0f} MB. Use "
            f"standout.read(..., memory='{math.ceil(nbytes / 1e6)}MB'), or {remedy}."
        )


def pick(members: Mapping[str, Member], key: str | None, where: str) -> str:
    """Return which array holds the rows: the one asked for, or the only table of numbers.

    Names of its features that lie beside it and cannot be used are refused: without them, columns would be matched
    by their places.

    Examples
    --------
    >>> flat, table = Member((9,), np.dtype(int)), Member((9, 4), np.dtype(float))
    >>> pick({"labels": flat, "rows": table}, None, "data.npz")
    'rows'
    """
    chosen = _picked(members, key, where)
    if len(members[chosen].shape) == 2:
        for path in _beside(members, chosen):
            if path.rpartition("/")[2] in NAMES:
                _check_names(members[path], members[chosen], f"{where}: {path!r}")
    return chosen


def _picked(members: Mapping[str, Member], key: str | None, where: str) -> str:
    if key is not None:
        wanted = key.strip("/")
        if wanted not in members:
            raise InputError(f"{where}: it holds no array {key!r}.{did_you_mean(wanted, members)} {_choose(members)}")
        return wanted
    tables = [name for name, member in members.items() if member.numeric]
    if len(tables) == 1:
        return tables[0]
    if len(members) == 1:  # what is wrong with it can be said exactly
        return next(iter(members))
    if not tables:
        raise InputError(f"{where}: it holds no table of numbers (rows × features). {_choose(members)}")
    raise InputError(f"{where}: it holds {len(tables)} tables of numbers. {_choose(members, tables)}")


def _check_names(names: Member, table: Member, where: str) -> None:
    """Refuse names that are not one text for each feature; one value for each row describes rows."""
    n_rows, n_features = table.shape
    remedy = "Give them as text, one for each feature: save them with .astype(str)."
    if names.dtype.kind == "O" and not names.text:
        raise NotNumbersError(
            f"{where} names the features, and it holds Python objects, which are stored as pickles and could run any "
            f"code, so they are not read. {remedy}"
        )
    if names.shape in ((n_features,), (n_rows,)):
        if names.text or names.shape == (n_rows,):
            return
        raise NotNumbersError(f"{where} names the features, and its values are {names.dtype}. {remedy}")
    if names.text:
        found = f"there are {names.shape[0]} for" if len(names.shape) == 1 else f"its shape is {names.shape} for"
        raise InputError(f"{where} names the features, and {found} {n_features} features. {remedy}")


def _beside(members: Mapping[str, Member], chosen: str) -> list[str]:
    """Return the other arrays in the folder of the chosen one."""
    folder = chosen.rpartition("/")[0]
    return [path for path in members if path != chosen and path.rpartition("/")[0] == folder]


def _choose(members: Mapping[str, Member], some: Sequence[str] | None = None) -> str:
    if not members:
        return "Give a file that does."
    named = [f"{name} {members[name].shape}" for name in (some if some is not None else members)]
    rest = f" and {len(named) - 8} more" if len(named) > 8 else ""
    return f"Choose one with key=: {', '.join(named[:8])}{rest}."


@dataclass(frozen=True)
class Beside:
    """What the other arrays of a file say: names of the features, and columns that describe rows."""

    names: tuple[str, ...] | None
    about: dict[str, Column]


def beside(members: Mapping[str, Member], chosen: str, read: Callable[[str], NDArray[Any]]) -> Beside:
    """Sort the arrays in the same folder as the chosen one.

    Text with one entry for each feature, under one of the names in ``NAMES``, names the features. Every other
    1-D array with one entry for each row describes rows.
    """
    n_rows, n_features = members[chosen].shape
    names: tuple[str, ...] | None = None
    about: dict[str, Column] = {}
    for path in _beside(members, chosen):
        member, name = members[path], path.rpartition("/")[2]
        if len(member.shape) != 1:
            continue
        if name in NAMES and member.text and member.shape[0] == n_features:
            names = as_names(read(path))
        elif member.shape[0] == n_rows and (member.text or member.dtype.kind in NUMBERS):
            about[name] = lambda path=path: as_text(read(path))  # type: ignore[misc]
    return Beside(names, about)


def as_names(values: Any) -> tuple[str, ...]:
    """Return names as a tuple of text."""
    return tuple(str(value) for value in as_text(np.asarray(values)).tolist())


def as_text(values: NDArray[Any]) -> NDArray[Any]:
    """Return text as text, whatever it was stored as; numbers as they are."""
    if values.dtype.kind in NUMBERS + "U":
        return values
    decoded = [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in values.tolist()]
    return np.array(decoded, dtype=object)
