"""Sources for data in memory: arrays and memory maps, sparse matrices, data frames."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout.errors import InputError, listed
from standout.sources.checks import check_integers, is_missing, large_values
from standout.sources.source import InMemory


class ArraySource(InMemory):
    """A numpy array of any numeric type, order and stride, or a memory map."""

    def __init__(self, array: NDArray[Any], names: tuple[str, ...] | None = None):
        self.array = array
        self.n_rows, self.n_features = array.shape
        self.names = names

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``start`` to ``stop`` without a copy."""
        return self.array[start:stop]

    def take(self, index: NDArray[np.intp]) -> NDArray[Any]:
        """Return the rows at ``index``."""
        return self.array[index]

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        """Return columns ``start`` to ``stop`` without a copy."""
        return self.array[:, start:stop]


class SparseSource(InMemory):
    """A scipy sparse matrix or array; only one block of it is dense at a time."""

    def __init__(self, matrix: Any):
        self.by_row = matrix.tocsr()
        self.n_rows, self.n_features = matrix.shape
        self._by_column: Any = None

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``start`` to ``stop`` as a dense array."""
        dense: NDArray[Any] = self.by_row[start:stop].toarray()
        return dense

    def take(self, index: NDArray[np.intp]) -> NDArray[Any]:
        """Return the rows at ``index`` as a dense array."""
        dense: NDArray[Any] = self.by_row[index].toarray()
        return dense

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        """Return columns ``start`` to ``stop`` as a dense array."""
        if self._by_column is None:
            self._by_column = self.by_row.tocsc()
        dense: NDArray[Any] = self._by_column[:, start:stop].toarray()
        return dense


class FrameSource(InMemory):
    """A pandas or polars data frame (any frame narwhals knows), with its column names."""

    def __init__(self, frame: Any, role: str):
        import narwhals.stable.v2 as nw

        # A pyarrow table keeps its columns themselves under that name.
        check_names(list(getattr(frame, "column_names", None) or frame.columns), role)
        self.frame = nw.from_native(frame, eager_only=True)
        self.n_rows, self.n_features = self.frame.shape
        columns = list(self.frame.columns)
        self.names = tuple(columns) if columns and isinstance(columns[0], str) else None
        # Labels that are no names (numbers, dates): they must at least agree.
        self.unnamed = None if self.names is not None else tuple(columns)
        _check_numeric(self.frame, role)
        if self.n_rows:
            large = [columns[i] for i in large_values(_numbers(self.frame[:1])[0])]
            whole = [name for name in large if self.frame.schema[name] in (nw.Int64, nw.UInt64)]
            check_integers({name: self.frame[name].drop_nulls().to_numpy() for name in whole}, role)

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``start`` to ``stop`` as a dense array."""
        return _numbers(self.frame[start:stop])

    def take(self, index: NDArray[np.intp]) -> NDArray[Any]:
        """Return the rows at ``index`` as a dense array."""
        return _numbers(self.frame[index])

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        """Return columns ``start`` to ``stop`` as a dense array."""
        return _numbers(self.frame[:, start:stop])


def check_names(columns: list[Any], role: str) -> None:
    """Refuse column names that are partly no text, or that stand more than once."""
    kinds = {isinstance(name, str) for name in columns}
    if len(kinds) > 1:
        odd = [name for name in columns if not isinstance(name, str)]
        raise InputError(
            f"{role}: {len(odd)} of {len(columns)} column names are not text: {listed(odd)}. Make all column names "
            "text, for instance with frame.columns = frame.columns.astype(str)."
        )
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if twice:
        raise InputError(
            f"{role}: {len(twice)} column names stand more than once: {listed(twice)}. "
            "Rename or drop the repeated columns."
        )


def _check_numeric(frame: Any, role: str) -> None:
    """Refuse columns that are not numbers, by name: text is never fed to the maths."""
    schema = frame.schema
    text = [name for name, kind in schema.items() if not may_be_numbers(kind, frame, name)]
    if text:
        raise InputError(
            f"{role}: {len(text)} of {len(schema)} columns do not hold numbers: {listed(text)} "
            f"(type {schema[text[0]]}). Leave them out, for instance with {_how_to_drop(frame, text[:3])}, "
            "and give labels as y or groups."
        )


def _how_to_drop(frame: Any, columns: list[Any]) -> str:
    return f"frame.drop({'columns=' if frame.implementation.is_pandas_like() else ''}{columns!r})"


def may_be_numbers(kind: Any, frame: Any, name: Any) -> bool:
    """Tell whether a column of this kind holds numbers; columns of objects are looked at."""
    import narwhals.stable.v2 as nw

    if kind.is_numeric() or kind == nw.Boolean:
        return True
    if kind not in (nw.Object, nw.Unknown):
        return False
    try:
        _as_float(frame[name].to_numpy())
    except (TypeError, ValueError):
        return False
    return True


def _as_float(values: NDArray[Any]) -> NDArray[np.float64]:
    if values.dtype.kind == "c":
        raise TypeError("complex numbers")
    return np.asarray(values, dtype=np.float64)


def _numbers(frame: Any) -> NDArray[Any]:
    """Return a frame as one numeric array; missing entries of nullable columns become NaN."""
    block: NDArray[Any] = frame.to_numpy()
    if block.dtype.kind in "fiub":
        return block
    # Columns of unlike types (or nullable ones) come back as objects: convert each by itself.
    result = np.empty(frame.shape, order="F")
    for position, name in enumerate(frame.columns):
        values = frame[name].to_numpy()
        if values.dtype == object:
            values = np.array([np.nan if is_missing(v) else v for v in values], dtype=np.float64)
        result[:, position] = values
    return result
