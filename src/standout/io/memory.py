"""Sources for data in memory (arrays, sparse matrices, data frames), weights and groups, and the checks of all of them.

Input types are validated without a pass over the data. Non-finite values are located (which features, how many) only
after they have appeared in the sums. Sparse blocks share the memory of their matrix.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from standout._blas import Array
from standout.errors import InputError, NonFiniteError, NotNumbersError, listed, named_features
from standout.io.source import IdColumn, Index, RowSource, Source, block_rows, block_rows_of

# Floats, integers and booleans; other dtypes are not numeric.
NUMBERS = "fiub"
# Integers up to this are exact in float64; above it, a feature needs this many distinguishable values.
_EXACT = 2**53
_DISTINCT = 1e4
# Part of a message of scikit-learn or numpy → what it means, and what to do.
_REMEDIES = {
    "Complex data not supported": "Complex data not supported. Use the real and the imaginary part as two features.",
    "inhomogeneous": "the rows have different lengths. Give every row the same number of values.",
    "convert string": "it holds text where numbers are expected. Leave such columns out; give labels as y or groups.",
    "dtype='numeric'": "it holds text or dates where numbers are expected. Convert them, or leave such columns out.",
    "1D array": "Expected 2D array, got 1D array. Reshape your data: rows × features, even for one row or feature.",
    "dim 3": "three dimensions. Give rows × features; standout.mne.read takes arrays of epochs × channels × times.",
    "scalar array": "Expected 2D array, got a single value. Give a table of rows × features.",
}
_IMPUTE = "Use `standout.read(X, missing='auto')`, or drop those rows or features."
_CORRECT = "Drop those rows or features, correct the values, or mark them as missing (NaN)."
# Approximate number of entries in a block of a sparse matrix, chosen so that temporaries fit into the cache.
_BLOCK_ENTRIES = 2**20


def checked_table(data: Any, role: str) -> Any:
    """Return a numeric array or sparse matrix; raise an error for other data."""
    if type(data) is np.ndarray and data.ndim == 2 and data.dtype.kind in NUMBERS and data.size:
        if data.dtype.kind in "iu" and data.dtype.itemsize == 8:
            check_integers({int(i): data[:, i] for i in large_values(data[0])}, role)
        return data
    if isinstance(data, np.ma.MaskedArray) and (masked := int(np.ma.getmaskarray(data).sum())):
        raise InputError(f"{role}: {masked} values are masked (missing). Drop those rows or features, or use filled().")
    if isinstance(data, np.ma.MaskedArray | np.matrix):
        data = np.asarray(data)
    kind = getattr(getattr(data, "dtype", None), "kind", "O")
    if kind not in NUMBERS + "OUSc":
        raise NotNumbersError(f"{role}: values of type {data.dtype} are not numbers. Convert them, or leave them out.")
    from sklearn.utils import check_array

    try:
        return check_array(data, accept_sparse=("csr", "csc"), dtype="numeric", ensure_all_finite=False)
    except (TypeError, ValueError) as error:
        kind = NotNumbersError if isinstance(error, TypeError) else InputError
        raise kind(f"{role}: {_explained(str(error), data)}") from error


def is_tensor(data: Any) -> bool:
    """Return whether data is an array of PyTorch, CuPy, JAX or another library of the array API standard."""
    kind = type(data)
    if issubclass(kind, np.ndarray | np.generic | list | tuple) or kind.__module__.startswith("sparse."):
        return False
    packages = {base.__module__.split(".")[0] for base in kind.__mro__}
    return hasattr(kind, "__array_namespace__") or (bool(packages & {"torch", "cupy"}) and hasattr(kind, "shape"))


def as_numpy(values: Any) -> NDArray[Any]:
    """Return values as a numpy array; those of a tensor from its device."""
    if not is_tensor(values):
        return np.asarray(values)
    from standout.io.tensors import to_numpy

    return to_numpy(values)


def _explained(message: str, data: Any) -> str:
    for mark, text in _REMEDIES.items():
        if mark in message:
            return text
    first = message.strip().splitlines()[0].rstrip(".")
    if "minimum of" in first:
        return f"{first}. Give rows with at least one feature."
    return f"{first[:200]} (type {type(data).__name__}). Give a table of numbers, rows × features."


def large_values(row: NDArray[Any]) -> NDArray[np.intp]:
    """Return the indices of values beyond 2⁵³; large integers with small differences show in the first row."""
    return np.flatnonzero(np.abs(row.astype(np.float64)) >= _EXACT)


def check_integers(columns: Mapping[Any, NDArray[Any]], role: str) -> None:
    """Raise an error for integers beyond 2⁵³ whose differences cannot be represented in float64."""
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
    """Return a block of a source; raise an error if it is invalid."""
    if block.ndim == 2 and block.shape[1] == n_features and block.dtype.kind in NUMBERS:
        return block
    found = f"its source gave a block of shape {block.shape} and type {block.dtype}"
    raise InputError(f"{role}: {found}. Make blocks() yield numbers of shape (rows, {n_features}).")


def is_missing(value: Any) -> bool:
    """Return whether a single value is missing: None, NaN, or a missing value of pandas."""
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(value, float) and math.isnan(value)


def explain_non_finite(source: Source, seen: NDArray[Any], role: str, names: Sequence[str] | None = None) -> InputError:
    """Return the error for a source whose sums are not finite.

    ``seen`` is the block in which this was detected; if the source can be read again, all rows are counted.
    """
    is_file = _path(source) is not None
    again = (isinstance(source, RowSource) or is_file) and source.rereadable
    found = count_bad(source.blocks(block_rows(source.n_features)) if again else [seen], source.n_features)
    remedy = "Use `standout.read(X, missing='auto')`, 'drop_rows' or 'drop_features'." if is_file else _IMPUTE
    where = "" if again else " (in the block where it first showed)"
    return explain_bad(found, names or source.names, at_file(source, role), remedy, where)


def at_file(source: Any, role: str) -> str:
    """Return the role with the path of the file from which a source, or its underlying source, was read."""
    path = _path(source)
    return role if path is None or str(path) in (role, "data") else f"{role}: {path}"


def _path(source: Any) -> Any:
    while not hasattr(source, "path") and hasattr(source, "source"):
        source = source.source
    return getattr(source, "path", None)


def explain_underflow(features: Sequence[int] | NDArray[np.intp], names: Sequence[str] | None, role: str) -> InputError:
    """Return the error for features whose squares underflow to zero."""
    found = f"{len(features)} features whose squares underflow: {listed(named_features(names, features))}"
    return InputError(f"{role}: {found}. Multiply them by a common factor in target and background alike.")


@dataclass(frozen=True)
class BadValues:
    """Number of non-finite values per feature, and the largest finite value; partial counts can be added."""

    nan: NDArray[np.int64]
    infinite: NDArray[np.int64]
    largest: NDArray[np.float64]

    def __add__(self, other: BadValues) -> BadValues:
        largest = np.maximum(self.largest, other.largest)
        return BadValues(self.nan + other.nan, self.infinite + other.infinite, largest)


def count_bad(blocks: Iterable[NDArray[Any]], n_features: int) -> BadValues:
    """Count non-finite values."""
    zeros = np.zeros(n_features, dtype=np.int64)
    found = BadValues(zeros, zeros, np.zeros(n_features))
    for block in blocks:
        values = block.astype(np.float64, copy=False)
        with np.errstate(invalid="ignore"):
            largest = np.fmax.reduce(np.abs(values), axis=0, initial=0.0)
        found += BadValues(np.isnan(values).sum(axis=0), np.isinf(values).sum(axis=0), largest)
    return found


def explain_bad(
    found: BadValues, names: Sequence[str] | None, role: str, remedy: str = _IMPUTE, where: str = ""
) -> InputError:
    """Return the error for non-finite values, or values whose squares overflow."""
    count = found.nan + found.infinite
    bad = np.flatnonzero(count)
    if len(bad) == 0:
        huge = np.flatnonzero(found.largest > 1e100)
        where = f"largest {found.largest.max():.3g}, in {len(huge)} features: {listed(named_features(names, huge))}"
        remedy = "Divide these features by a common factor in target and background alike."
        return InputError(f"{role}: the values are finite, but their squares overflow ({where}). {remedy}")
    order = bad[np.argsort(-count[bad], kind="stable")]
    named = [f"{name} ({count[i]})" for name, i in zip(named_features(names, order), order, strict=True)]
    more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
    values = f"{found.nan.sum()} NaN and {found.infinite.sum()} inf values in {len(bad)} of {len(count)} features"
    remedy = remedy if found.nan.any() else _CORRECT
    return NonFiniteError(f"{role}: {values}{where}: {', '.join(named[:5])}{more}. {remedy}")


def sparse_rows(source: Source, index: NDArray[np.intp] | None = None) -> Any:
    """Return the rows of a source (at ``index``) as a CSR matrix without duplicate entries; None if not sparse."""
    matrix = source.sparse()
    if matrix is None:
        return None
    if index is not None:
        matrix = matrix[index]
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


# The arrays of each sparse format that files contain.
SPARSE_PARTS = {
    "csr": ("data", "indices", "indptr"), "csc": ("data", "indices", "indptr"), "bsr": ("data", "indices", "indptr"),
    "coo": ("data", "row", "col"), "dia": ("data", "offsets"),
}  # fmt: skip


def sparse_from_parts(form: str, parts: Mapping[str, Any], shape: Sequence[int]) -> Any:
    """Return a sparse array from the arrays of a file, or raise ValueError if they do not describe one.

    scipy follows pointers and indices without a check, or with one that a negative last pointer skips, and would read
    outside of the arrays.
    """
    if form not in SPARSE_PARTS or set(parts) != set(SPARSE_PARTS[form]):
        raise ValueError("a sparse matrix of this format is not supported, or incomplete")
    data, *index = (np.asarray(parts[name]) for name in SPARSE_PARTS[form])
    if data.dtype.kind not in "biuf" or any(part.ndim != 1 or part.dtype.kind not in "iu" for part in index):
        raise ValueError("a sparse matrix has values that are not numbers, or indices that are not integers")
    if len(shape) != 2 or min(shape) < 0 or data.ndim != {"bsr": 3, "dia": 2}.get(form, 1):
        raise ValueError("a sparse matrix has the wrong number of dimensions")
    if form == "dia":
        if len(index[0]) != len(data) or _outside(index[0], 1 - shape[0], shape[1]) or len(set(index[0])) < len(data):
            raise ValueError("a sparse matrix has diagonals outside itself, or twice the same")
        return sparse.dia_array((data, index[0]), shape=tuple(shape))
    if any(len(part) != len(data) for part in index[: 2 if form == "coo" else 1]):
        raise ValueError("a sparse matrix has different numbers of values and indices")
    if form == "coo":
        if _outside(index[0], 0, shape[0]) or _outside(index[1], 0, shape[1]):
            raise ValueError("a sparse matrix has indices outside its shape")
        return sparse.coo_array((data, tuple(index)), shape=tuple(shape))
    size = data.shape[1:] if form == "bsr" else (1, 1)
    if min(size) < 1 or shape[0] % size[0] or shape[1] % size[1]:
        raise ValueError("a sparse matrix is not divided into blocks of its size")
    major, minor = (shape[0] // size[0], shape[1] // size[1])[:: -1 if form == "csc" else 1]
    indices, pointers = index
    rising = len(pointers) == major + 1 and (pointers[1:] >= pointers[:-1]).all()
    if not rising or pointers[0] != 0 or pointers[-1] != len(data):
        raise ValueError("the pointers of a sparse matrix are invalid")
    if _outside(indices, 0, minor):
        raise ValueError("a sparse matrix has indices outside its shape")
    kind: Any = getattr(sparse, f"{form}_array")
    return kind((data, indices, pointers), shape=tuple(shape))


def _outside(index: NDArray[Any], low: int, stop: int) -> bool:
    return len(index) > 0 and (int(index.min()) < low or int(index.max()) >= stop)


def sparse_blocks(matrix: Any, rows: int | None = None) -> Iterator[Any]:
    """Yield up to ``rows`` rows at a time, in order, as CSR blocks that share the memory of the matrix."""
    n_rows = matrix.shape[0]
    rows = rows or max(1, _BLOCK_ENTRIES * n_rows // max(matrix.nnz, 1))
    for start in range(0, n_rows, rows):
        yield row_block(matrix, start, min(start + rows, n_rows))


def row_block(matrix: Any, start: int, stop: int) -> Any:
    """Return rows ``start`` to ``stop`` of a CSR matrix, without a copy."""
    first, last = matrix.indptr[start], matrix.indptr[stop]
    pointers, shape = matrix.indptr[start : stop + 1] - first, (stop - start, matrix.shape[1])
    return _assembled(sparse.csr_array, matrix.data[first:last], matrix.indices[first:last], pointers, shape)


def with_values(block: Any, values: NDArray[Any]) -> Any:
    """Return a block with other values at the same positions."""
    return _assembled(type(block), values, block.indices, block.indptr, block.shape)


def transposed(block: Any) -> Any:
    """Return the transpose of a CSR or CSC block, without a copy."""
    other = sparse.csc_array if block.format == "csr" else sparse.csr_array
    return _assembled(other, block.data, block.indices, block.indptr, block.shape[::-1])


def _assembled(kind: Any, values: Any, indices: Any, pointers: Any, shape: tuple[int, int]) -> Any:
    block = kind(shape, dtype=values.dtype)
    # Set attributes directly, because the constructor copies small views of larger arrays.
    block.data, block.indices, block.indptr = values, indices, pointers
    return block


class SparseSource(RowSource):
    """A scipy sparse matrix or array; only one block of it is dense at a time."""

    is_sparse = True
    n_rows: int

    def __init__(self, matrix: Any):
        self._by_row = matrix.tocsr()
        self.n_rows, self.n_features = matrix.shape

    @cached_property
    def _by_column(self) -> Any:
        return self._by_row.tocsc()

    def take(self, index: Index | slice) -> NDArray[Any]:
        return np.asarray(self._by_row[index].toarray())

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        return np.asarray(self._by_column[:, start:stop].toarray())

    def sparse(self) -> Any:
        return self._by_row


class FrameSource(RowSource):
    """A pandas or polars data frame (any frame narwhals supports), with its column names."""

    n_rows: int

    def __init__(self, frame: Any, role: str):
        import narwhals.stable.v2 as nw

        # In a pyarrow table this attribute holds the columns themselves.
        check_names(list(getattr(frame, "column_names", None) or frame.columns), role)
        self.frame = nw.from_native(frame, eager_only=True)
        self.n_rows, self.n_features = self.frame.shape
        columns = list(self.frame.columns)
        self.names = tuple(columns) if columns and isinstance(columns[0], str) else None
        # Labels that are not strings (numbers, dates) must at least agree.
        self.unnamed = None if self.names is not None else tuple(columns)
        numeric = set(numeric_columns(self.frame))
        text = [name for name in columns if name not in numeric]
        if text:
            argument = f"{'columns=' if self.frame.implementation.is_pandas_like() else ''}{text[:3]!r}"
            raise InputError(
                f"{role}: {len(text)} of {len(columns)} columns do not hold numbers: {listed(text)} (type "
                f"{self.frame.schema[text[0]]}). Leave them out, for instance with frame.drop({argument}), and give "
                "labels as y or groups."
            )
        if self.n_rows:
            large = [columns[i] for i in large_values(_numbers(self.frame[:1])[0])]
            whole = [name for name in large if self.frame.schema[name] in (nw.Int64, nw.UInt64)]
            check_integers({name: self.frame[name].drop_nulls().to_numpy() for name in whole}, role)
        self._index = index_columns(frame)
        self.row_ids = self._index[0].values if len(self._index) == 1 else None

    def id_columns(self) -> list[IdColumn]:
        return self._index

    def take(self, index: Index | slice) -> NDArray[Any]:
        return _numbers(self.frame[index])

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        return _numbers(self.frame[:, start:stop])


def index_columns(frame: Any) -> list[IdColumn]:
    """Return the levels of the index of a pandas frame, unless it only numbers the rows; [] for other frames."""
    index = getattr(frame, "index", None)
    if index is None or not hasattr(index, "nlevels") or type(index).__name__ == "RangeIndex":
        return []
    columns, single = [], index.nlevels == 1
    for level, name in enumerate(index.names):
        values = np.asarray(index.get_level_values(level))
        code = "X.index" if single else f"X.index.get_level_values({level if name is None else name!r})"
        repeats = (
            single and values.dtype.kind in "iu" and not index.is_unique
        )  # such whole numbers are ids, not classes
        columns.append(IdColumn(values, name if isinstance(name, str) else None, code, explicit=repeats))
    return columns


def check_names(columns: list[Any], role: str) -> None:
    """Raise an error for duplicate column names, or names of which only some are strings."""
    odd = [name for name in columns if not isinstance(name, str)]
    if 0 < len(odd) < len(columns):
        remedy = "Make all of them text, for instance with frame.columns = frame.columns.astype(str)."
        raise InputError(f"{role}: {len(odd)} of {len(columns)} column names are not text: {listed(odd)}. {remedy}")
    check_distinct(columns, role)


def check_distinct(names: Iterable[Any], role: str) -> None:
    """Raise an error for duplicate names."""
    duplicates = [name for name, count in Counter(names).items() if count > 1]
    if duplicates:
        count = f"{len(duplicates)} duplicate column name{'s' * (len(duplicates) > 1)}"
        raise InputError(f"{role}: {count}: {listed(duplicates)}. Rename or drop them.")


def numeric_columns(frame: Any) -> list[Any]:
    """Return the numeric columns of a narwhals frame; the values of object columns are inspected."""
    import narwhals.stable.v2 as nw

    def holds_numbers(name: Any, kind: Any) -> bool:
        if kind not in (nw.Object, nw.Unknown):
            return bool(kind.is_numeric() or kind == nw.Boolean)
        values = frame[name].to_numpy()
        if values.dtype.kind == "c":
            return False
        try:
            np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            return False
        return True

    return [name for name, kind in frame.schema.items() if holds_numbers(name, kind)]


def _numbers(frame: Any) -> NDArray[Any]:
    """Return a frame as one numeric array; missing entries of nullable columns become NaN."""
    block: NDArray[Any] = frame.to_numpy()
    if block.dtype.kind in NUMBERS:
        return block
    # Columns of mixed or nullable dtypes are returned as objects: convert each separately.
    result = np.empty(frame.shape, order="F")
    for position, name in enumerate(frame.columns):
        values = frame[name].to_numpy()
        if values.dtype == object:
            values = np.array([np.nan if is_missing(v) else v for v in values], dtype=np.float64)
        result[:, position] = values
    return result


@dataclass(frozen=True)
class WeightedBlock:
    """Rows, their weights if any, and the number of rows before those of weight zero were dropped."""

    rows: NDArray[Any]
    weights: Array | None
    seen: int


def weighted_blocks(source: Source, weights: ArrayLike | None, role: str) -> Iterable[WeightedBlock]:
    """Yield the blocks of a source with their weights."""
    checked = None if weights is None else check_weights(weights, source.n_rows, role)
    start = 0
    for rows in source.blocks(block_rows_of(source)):
        yield weighted(checked_block(rows, source.n_features, role), checked, start, role)
        start += len(rows)
    check_all_used(checked, start, role)


def weighted(rows: NDArray[Any], weights: Array | None, start: int, role: str) -> WeightedBlock:
    """Return rows with their weights, without rows of weight zero; ``start`` is the index of the first row."""
    if weights is None:
        return WeightedBlock(rows, None, len(rows))
    stop = start + len(rows)
    if stop > len(weights):
        raise InputError(f"{role} weights: {len(weights)} weights for more rows. Give one weight for each row.")
    kept = weights[start:stop] > 0
    return WeightedBlock(rows if kept.all() else rows[kept], weights[start:stop][kept], len(rows))


def check_all_used(weights: Array | None, n_rows: int, role: str) -> None:
    """Raise an error if there are more weights than rows."""
    if weights is not None and n_rows != len(weights):
        raise InputError(f"{role} weights: {len(weights)} weights for {n_rows} rows. Give one weight for each row.")


def check_weights(weights: ArrayLike, n_rows: int | None, role: str, partial: bool = False) -> Array:
    """Return weights as a float array, or raise an error; only weights of a ``partial`` dataset may all be zero."""
    given, problem = as_weights(weights, role), ""
    if given.dtype.kind not in NUMBERS:
        raise InputError(f"{role} weights: values of type {given.dtype} are not numbers. Give one number for each row.")
    checked = given.astype(np.float64, copy=False)
    positive = checked[checked > 0]
    if checked.ndim != 1 or (n_rows is not None and len(checked) != n_rows):
        problem = f"shape {checked.shape} for {n_rows} rows. Give one weight for each row."
    elif not np.isfinite(checked).all():
        problem = f"{np.sum(~np.isfinite(checked))} are NaN or inf. Give finite weights."
    elif (checked < 0).any():
        problem = f"{np.sum(checked < 0)} are negative (smallest {checked.min():g}). Use 0 to leave a row out."
    elif len(positive) == 0 and not partial:
        problem = "all are zero, so no row is left. Give some row a positive weight."
    elif len(positive) and (positive.max() > 1e100 or positive.min() < 1e-100):
        extent = f"they go from {positive.min():.3g} to {positive.max():.3g}, too far for sums"
        problem = f"{extent}. Divide all weights by a common factor, or use 0 to leave a row out."
    if problem:
        raise InputError(f"{role} weights: {problem}")
    return checked


def as_weights(weights: ArrayLike, role: str) -> NDArray[Any]:
    """Return weights as an array; masked weights are an error."""
    if isinstance(weights, np.ma.MaskedArray) and (masked := int(np.ma.getmaskarray(weights).sum())):
        found = f"{masked} of {np.size(weights)} are masked, that is, missing"
        raise InputError(f"{role} weights: {found}. Give every row a weight, 0 to leave it out.")
    return as_numpy(weights)


def as_ids(ids: Any) -> NDArray[Any]:
    """Return ids as an array that preserves types: NaN in a list of strings must not become a string."""
    if isinstance(ids, np.ma.MaskedArray):
        kept = np.array(ids.data, dtype=object)
        kept[np.ma.getmaskarray(ids)] = None
        return kept
    if isinstance(ids, list | tuple):
        return np.fromiter(ids, dtype=object, count=len(ids))  # a tuple is also a valid id
    return as_numpy(ids)


def distinct_groups(
    groups: Sequence[Hashable] | NDArray[Any], weights: ArrayLike | None, n_rows: int, role: str
) -> frozenset[Hashable]:
    """Return the distinct group ids of the rows with a positive weight."""
    ids = as_ids(groups)
    if ids.ndim != 1 or len(ids) != n_rows:
        raise InputError(f"{role} groups: shape {ids.shape} for {n_rows} rows. Give one group id for each row.")
    missing = sum(is_missing(item) for item in ids.tolist())
    if missing:
        remedy = "Give every row an id, a unique one to a row that is an independent unit."
        raise InputError(f"{role} groups: {missing} of {n_rows} rows have no group id (None or NaN). {remedy}")
    if weights is not None:
        ids = ids[np.asarray(weights) > 0]
    try:
        return frozenset(ids.tolist())
    except TypeError as error:  # unhashable ids such as lists and dicts
        raise InputError(f"{role} groups: {error}. Give ids that are text or numbers.") from error
