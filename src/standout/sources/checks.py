"""Telling tables of numbers from everything else, without a pass over the data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout.errors import InputError, NotNumbersError, listed

# Floats, integers and booleans; everything else is not fed to the maths.
NUMBERS = "fiub"
# Integers up to this are exact in float64; beyond it, a feature needs this many distinguishable values.
_EXACT = 2**53
_DISTINCT = 1e4

# What scikit-learn or numpy say, what it means here, and what to do.
_REMEDIES = (
    ("Complex data not supported", "Complex data not supported. Use the real and the imaginary part as two features."),
    (
        "inhomogeneous",
        "the rows have different lengths. Give every row the same number of values.",
    ),
    (
        "convert string",
        "it holds text where numbers are expected. Leave such columns out, and give labels as y or groups.",
    ),
    (
        "dtype='numeric'",
        "it holds text or dates where numbers are expected. Convert them, or leave such columns out.",
    ),
    ("1D array", "Expected 2D array, got 1D array. Reshape your data: rows × features, even for one row or feature."),
    ("scalar array", "Expected 2D array, got a single value. Give a table of rows × features."),
)


def checked_table(data: Any, role: str) -> Any:
    """Return an array or sparse matrix of numbers, or say what the data is instead."""
    # Arrays of plain numbers are the common case and must not pay for the general check.
    if type(data) is np.ndarray and data.ndim == 2 and data.dtype.kind in NUMBERS and data.size:
        if data.dtype.kind in "iu" and data.dtype.itemsize == 8:
            check_integers({int(i): data[:, i] for i in large_values(data[0])}, role)
        return data
    if isinstance(data, np.ma.MaskedArray):
        data = _unmasked(data, role)
    if isinstance(data, np.matrix):
        data = np.asarray(data)
    kind = getattr(getattr(data, "dtype", None), "kind", "O")
    if kind not in NUMBERS + "OUSc":
        raise NotNumbersError(
            f"{role}: values of type {data.dtype} are not numbers. Convert them to numbers, or leave them out."
        )
    from sklearn.utils import check_array

    try:
        return check_array(data, accept_sparse=("csr", "csc"), dtype="numeric", ensure_all_finite=False)
    except TypeError as error:
        raise NotNumbersError(f"{role}: {_explained(str(error), data)}") from error
    except ValueError as error:
        raise InputError(f"{role}: {_explained(str(error), data)}") from error


def large_values(row: NDArray[Any]) -> NDArray[np.intp]:
    """Return where a row is beyond 2⁵³: large integers that differ by little are large in the first row already."""
    return np.flatnonzero(np.abs(row.astype(np.float64)) >= _EXACT)


def check_integers(columns: Mapping[Any, NDArray[Any]], role: str) -> None:
    """Refuse integers beyond 2⁵³ that differ by so little that float64 cannot hold the differences."""
    for feature, values in columns.items():
        low, high = int(values.min()), int(values.max())
        spacing = float(np.spacing(float(max(abs(low), abs(high)))))
        if max(abs(low), abs(high)) >= _EXACT and 0 < high - low < _DISTINCT * spacing:
            raise InputError(
                f"{role}: feature {listed([feature])} holds integers of about {float(high):.3g} that differ by at most "
                f"{high - low}, and float64 keeps only multiples of {spacing:g} there. Give the feature less "
                "a constant (subtracted as integers, the same in target and background), or leave it out."
            )


def checked_block(block: NDArray[Any], n_features: int, role: str) -> NDArray[Any]:
    """Return a block of a source, or say what is wrong with it."""
    if block.ndim == 2 and block.shape[1] == n_features and block.dtype.kind in NUMBERS:
        return block
    raise InputError(
        f"{role}: its source gave a block of shape {block.shape} and type {block.dtype}, and blocks must be numbers "
        f"of shape (rows, {n_features}). Make blocks() yield such arrays."
    )


def is_missing(value: Any) -> bool:
    """Tell whether a single value stands for nothing: None, NaN, or a missing value of pandas."""
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(value, float) and math.isnan(value)


def _unmasked(data: np.ma.MaskedArray[Any, Any], role: str) -> NDArray[Any]:
    masked = int(np.ma.getmaskarray(data).sum())
    if masked:
        raise InputError(
            f"{role}: {masked} values are masked, that is, missing. Drop those rows or features, or fill the values "
            "in with filled()."
        )
    return np.asarray(data)


def _explained(message: str, data: Any) -> str:
    for mark, text in _REMEDIES:
        if mark in message:
            return text
    first = message.strip().splitlines()[0].rstrip(".")
    if "minimum of" in first:
        return f"{first}. Give rows with at least one feature."
    return f"{first[:200]} (type {type(data).__name__}). Give a table of numbers, rows × features."
