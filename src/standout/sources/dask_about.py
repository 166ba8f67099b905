"""What a dask data frame says about its rows besides the features: nothing of it is computed before it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from standout.errors import InputError, listed
from standout.sources.files.tables import Coded, Texts


@dataclass(frozen=True, eq=False)
class RowColumns:
    """A data frame, and which of its columns describe rows."""

    frame: Any
    label: str | None = None
    groups: str | None = None
    ids: str | None = None

    def weights(self, column: str) -> da.Array:
        """Return a column as it is."""
        return values_of(self._series(column))

    def texts(self, column: str) -> da.Array:
        """Return a column as text, as it is where frames and files are read into memory: 5 is the id "5" everywhere."""
        return chunks_of(self._series(column), np.empty(0, dtype=object), _texts)

    def _series(self, column: str) -> Any:
        return self.frame[next(name for name in self.frame.columns if str(name) == column)]

    def check_named(self, column: str, features: tuple[Any, ...], what: str) -> None:
        """Refuse the name of a column that is not there, or that is a feature; ``what`` it was named for."""
        names = [str(name) for name in self.frame.columns]
        if column not in names:
            raise InputError(f"{what}: there is no column {column!r}. Use one of its columns: {listed(names)}.")
        if column in [str(name) for name in features]:
            raise InputError(
                f"{what}: the column {column!r} is a feature too. Leave it out of the features with "
                f"standout.read(frame, drop={column!r})."
            )


def in_partitions(data: Any) -> bool:
    """Tell a data frame or series of dask from a delayed object, a bag and a single value."""
    # On the type: a delayed object has any attribute one asks it for.
    return hasattr(type(data), "map_partitions") and hasattr(type(data), "ndim")


def chunks_of(frame: Any, like: NDArray[Any], made: Callable[[Any], Any]) -> da.Array:
    """Return what is made of the partitions of a data frame or series as the chunks of an array."""
    return frame.map_partitions(made, meta=like, enforce_metadata=False)


def values_of(series: Any) -> da.Array:
    """Return the partitions of a series as the chunks of an array."""
    return chunks_of(series, np.empty(0), _as_it_is)


def _as_it_is(partition: Any) -> Any:
    return partition


def _texts(partition: Any) -> NDArray[Any]:
    import narwhals.stable.v2 as nw

    return Texts().of(Coded.of(nw.from_native(partition, series_only=True).to_list()))
