"""Reading: anything that holds rows of numbers becomes a :class:`Source` of blocks with names."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from standout.errors import InputError
from standout.sources.memory import ArraySource, FrameSource, SparseSource
from standout.sources.source import MomentSource, RowSource, Source, block_rows, has_moments, has_rows, is_source
from standout.sources.views import RowView, select_columns

__all__ = [
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
        return ArraySource(_checked(data, role))
    if is_source(data):
        return data
    if sparse.issparse(data):
        return SparseSource(_checked(data, role))
    if is_frame(data):
        source = FrameSource(data, role)
        if 0 in (source.n_rows, source.n_features):
            _checked(np.empty((source.n_rows, source.n_features)), role)
        return source
    if isinstance(data, str | bytes) or hasattr(data, "__fspath__"):
        raise InputError(
            f"{role}: {data!r} is a path, and files are not read yet in this version. Load it first, "
            "for instance with numpy.load(path, mmap_mode='r') or pandas.read_csv(path)."
        )
    return ArraySource(_checked(data, role))


def is_frame(data: Any) -> bool:
    """Tell whether data is a table with named columns (pandas, polars, pyarrow, ...)."""
    if not hasattr(data, "columns"):
        return False
    import narwhals.stable.v2 as nw

    return isinstance(nw.from_native(data, eager_only=True, pass_through=True), nw.DataFrame)


def _checked(data: Any, role: str) -> Any:
    """Check shape and type without a pass over the data; non-finite values show later in the sums."""
    # Arrays of plain numbers are the common case and must not pay for the general check.
    if isinstance(data, np.ndarray) and data.ndim == 2 and data.dtype.kind in "fiub" and data.size:
        return data
    from sklearn.utils import check_array

    try:
        return check_array(
            data, accept_sparse=("csr", "csc"), dtype="numeric", ensure_all_finite=False, input_name=role
        )
    except ValueError as error:
        raise InputError(f"{role}: {_with_remedy(str(error))}") from error


def _with_remedy(message: str) -> str:
    if "could not convert string" in message:
        return (
            f"{message}. It holds text where numbers are expected: leave such columns out, "
            "and give labels as y or groups."
        )
    if "Complex data not supported" in message:
        return f"{message.strip()} Use the real and the imaginary part as two features."
    return message
