"""From record batches of pyarrow to numbers and text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from standout.sources.files.tables import Coded, Piece, as_text

# A moment that has no fraction of a second, with or without a time zone behind it.
_NO_FRACTION = r"\.0+([^0-9]|$)"


def piece_of(batch: Any, features: tuple[str, ...], about: tuple[str, ...], share: float | None) -> Piece:
    """Return some rows with these columns as numbers and those as text."""
    described = {column: coded(batch.column(column)) for column in about}
    return Piece(numbers_of(batch.select(list(features))), described, share)


def numbers_of(batch: Any) -> NDArray[np.float64]:
    """Return columns of numbers as one array, row after row; missing entries become NaN."""
    double = pa.float64()
    if any(kind != double for kind in batch.schema.types):
        columns = [column if column.type == double else column.cast(double, safe=False) for column in batch.columns]
        batch = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    numbers: NDArray[np.float64] = batch.to_tensor(null_to_nan=True).to_numpy()
    return numbers


def is_number(kind: Any) -> bool:
    """Tell whether a column of this type is fed to the maths: numbers, truth values, and columns of nothing."""
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_boolean(kind)
        or types.is_null(kind)
    )


def coded(column: Any) -> Coded:
    """Return a column of any type as text."""
    try:
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    except pa.ArrowNotImplementedError:  # lists, structs and the like
        return Coded.of(column.to_pylist())
    kind = encoded.dictionary.type
    values = _written(encoded.dictionary, kind)
    # Rows without a value point to one more value, which is none.
    codes = encoded.indices.cast(pa.int64()).fill_null(len(values)).to_numpy(zero_copy_only=False)
    return Coded(codes.astype(np.intp, copy=False), [*values, None], typed=is_number(kind))


def _written(values: Any, kind: Any) -> list[str | None]:
    if pa.types.is_temporal(kind):
        values = pc.replace_substring_regex(pc.cast(values, pa.string()), _NO_FRACTION, r"\1")
    written: list[Any] = values.to_pylist()
    return written if values.type == pa.string() else [as_text(value) for value in written]
