"""Finding bad values after the sums have shown that there are some: which features, how many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout.errors import InputError, NonFiniteError, listed, named_features
from standout.sources.source import Source, block_rows, has_rows

_FILL_IN = "Use standout.read(X, missing='auto') for arrays, data frames and files, or drop those rows or features."
_CORRECT = "Drop those rows or features, correct the values, or mark them as missing (NaN)."


def explain_non_finite(source: Source, seen: NDArray[Any], role: str, names: Sequence[str] | None = None) -> InputError:
    """Return the error for a source whose sums are not finite.

    ``seen`` is the block in which it showed; a source that can be read again is counted as a whole.
    """
    path = _path(source)
    again = has_rows(source) or path is not None
    blocks = source.blocks(block_rows(source.n_features)) if again else [seen]
    remedy = _FILL_IN
    if path is not None:
        role = at_file(source, role)
        remedy = "Use missing='auto', 'drop_rows' or 'drop_features' of standout.read (--missing on the command line)."
    where = "" if again else " (in the block where it first showed)"
    return explain_bad(count_bad(blocks, source.n_features), names or source.names, role, remedy, where)


def at_file(source: Any, role: str) -> str:
    """Return the role with the path of the file that a source, or what it is a view of, was read from."""
    path = _path(source)
    return role if path is None or str(path) in (role, "data") else f"{role}: {path}"


def _path(source: Any) -> Any:
    while source is not None and not hasattr(source, "path"):
        source = getattr(source, "source", None)
    return getattr(source, "path", None)


def explain_underflow(features: NDArray[np.intp], names: Sequence[str] | None, role: str) -> InputError:
    """Return the error for features whose squares are too small to be told from zero."""
    return InputError(
        f"{role}: {len(features)} features vary by so little that their squares underflow: "
        f"{listed(named_features(names, features))}. Multiply these features by a common factor in target and "
        "background alike."
    )


@dataclass(frozen=True)
class BadValues:
    """How many values of each feature are not finite, and the largest of the others; parts add up."""

    nan: NDArray[np.int64]
    infinite: NDArray[np.int64]
    largest: NDArray[np.float64]

    def __add__(self, other: BadValues) -> BadValues:
        largest = np.maximum(self.largest, other.largest)
        return BadValues(self.nan + other.nan, self.infinite + other.infinite, largest)


def count_bad(blocks: Iterable[NDArray[Any]], n_features: int) -> BadValues:
    """Count the values that are not finite."""
    nan = np.zeros(n_features, dtype=np.int64)
    infinite = np.zeros(n_features, dtype=np.int64)
    largest = np.zeros(n_features)
    for block in blocks:
        if len(block) == 0:
            continue
        values = block.astype(np.float64, copy=False)
        nan += np.isnan(values).sum(axis=0)
        infinite += np.isinf(values).sum(axis=0)
        with np.errstate(invalid="ignore"):
            np.fmax(largest, np.abs(values).max(axis=0), out=largest)
    return BadValues(nan, infinite, largest)


def explain_bad(
    found: BadValues, names: Sequence[str] | None, role: str, remedy: str = _FILL_IN, where: str = ""
) -> InputError:
    """Return the error for values that are not finite, or whose squares are not."""
    nan, infinite = found.nan, found.infinite
    bad = np.flatnonzero(nan + infinite)
    if len(bad) == 0:
        return _overflow(found.largest, names, role)
    order = bad[np.argsort(-(nan + infinite)[bad], kind="stable")]
    named = [f"{name} ({nan[i] + infinite[i]})" for name, i in zip(named_features(names, order), order, strict=True)]
    more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
    remedy = remedy if nan.any() else _CORRECT
    return NonFiniteError(
        f"{role}: {nan.sum()} NaN and {infinite.sum()} inf values in {len(bad)} of {len(nan)} "
        f"features{where}: {', '.join(named[:5])}{more}. {remedy}"
    )


def _overflow(largest: NDArray[np.float64], names: Sequence[str] | None, role: str) -> InputError:
    huge = np.flatnonzero(largest > 1e100)
    return InputError(
        f"{role}: the values are finite, but their squares overflow (largest {largest.max():.3g}, in "
        f"{len(huge)} features: {listed(named_features(names, huge))}). Divide these features by a common "
        "factor in target and background alike."
    )
