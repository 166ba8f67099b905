"""Reading: anything that holds rows of numbers becomes a :class:`Source` of blocks with names."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from standout.errors import InputError
from standout.sources.checks import checked_table
from standout.sources.memory import ArraySource, FrameSource, SparseSource
from standout.sources.source import MomentSource, RowSource, Source, block_rows, has_moments, has_rows, is_source
from standout.sources.views import RowView, select_columns

__all__ = [
    "ArraySource",
    "MomentSource",
    "RowSource",
    "RowView",
    "Source",
    "block_rows",
    "has_moments",
    "has_rows",
    "is_frame",
    "is_source",
    "read",
    "select_columns",
]


def read(data: Any, *, role: str = "data") -> Source:
    """Turn data into a source of row blocks.

    Parameters
    ----------
    data : array-like, data frame, sparse matrix, memory map or Source, of shape (n_rows, n_features)
        The rows. Frames (pandas, polars) keep their column names; sparse matrices are never made
        dense as a whole; memory maps are read in blocks.
    role : str
        What the data is called in messages.

    Returns
    -------
    Source
        The same rows, in blocks.

    Examples
    --------
    >>> import standout
    >>> source = standout.read([[1, 2], [3, 4], [5, 6]])
    >>> source.n_rows, source.n_features
    (3, 2)
    >>> [block.shape for block in source.blocks(2)]
    [(2, 2), (1, 2)]
    """
    if isinstance(data, np.ndarray):
        return ArraySource(checked_table(data, role))
    if is_source(data):
        lacking = [name for name in ("names", "n_rows", "labels", "groups", "row_ids") if not hasattr(data, name)]
        if lacking:
            raise InputError(
                f"{role}: the source {type(data).__name__} has no {', '.join(lacking)}. Derive it from "
                "standout.Source, which has them."
            )
        return data
    if _is_lazy(data):
        raise InputError(f"{role}: a lazy frame has no rows yet. Call collect() on it first.")
    if sparse.issparse(data):
        return SparseSource(checked_table(data, role))
    if is_frame(data):
        source = FrameSource(data, role)
        if 0 in (source.n_rows, source.n_features):
            checked_table(np.empty((source.n_rows, source.n_features)), role)
        return source
    if isinstance(data, str | bytes) or hasattr(data, "__fspath__"):
        raise InputError(
            f"{role}: {data!r} is a path, and files are not read yet in this version. Load it first, "
            "for instance with numpy.load(path, mmap_mode='r') or pandas.read_csv(path)."
        )
    return ArraySource(checked_table(data, role))


def is_frame(data: Any) -> bool:
    """Tell whether data is a table with named columns (pandas, polars, pyarrow, ...)."""
    if isinstance(data, np.ndarray | list | tuple) or _is_lazy(data) or not hasattr(data, "columns"):
        return False
    from narwhals.stable.v2 import dependencies

    return bool(dependencies.is_into_dataframe(data))


def _is_lazy(data: Any) -> bool:
    return type(data).__name__ == "LazyFrame" and hasattr(data, "collect")
