"""Sparse rows as they are: what lies behind a source, and blocks of it that share its memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from standout.sources.memory import SparseSource
from standout.sources.views import ColumnView, RowView

# One block of a sparse matrix has about this many entries: what is made of it stays in the cache.
_BLOCK_ENTRIES = 2**20


def sparse_rows(source: Any, index: NDArray[np.intp] | None = None) -> Any:
    """Return the rows of a source (those at ``index``) as a CSR matrix; None where they are not sparse.

    Without a copy where it is the whole of a sparse matrix; entries that stand twice are added up.
    """
    matrix = _matrix(source)
    if matrix is None:
        return None
    if index is not None:
        matrix = matrix[index]
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def is_sparse(source: Any) -> bool:
    """Tell whether the rows of a source are a sparse matrix in memory."""
    while isinstance(source, RowView | ColumnView):
        source = source.source
    return isinstance(source, SparseSource)


def _matrix(source: Any) -> Any:
    if isinstance(source, SparseSource):
        return source.by_row
    if isinstance(source, RowView | ColumnView) and (inner := _matrix(source.source)) is not None:
        return inner[source.index] if isinstance(source, RowView) else inner[:, source.index]
    return None


def sparse_blocks(matrix: Any, rows: int | None = None) -> Iterator[Any]:
    """Yield the rows in order, so many at a time, as CSR blocks that share the memory of the matrix."""
    n_rows = matrix.shape[0]
    if rows is None:
        rows = max(1, _BLOCK_ENTRIES * n_rows // max(matrix.nnz, 1))
    for start in range(0, n_rows, rows):
        yield row_block(matrix, start, min(start + rows, n_rows))


def row_block(matrix: Any, start: int, stop: int) -> Any:
    """Return rows ``start`` to ``stop`` of a CSR matrix, without a copy."""
    first, last = matrix.indptr[start], matrix.indptr[stop]
    pointers = matrix.indptr[start : stop + 1] - first
    shape = (stop - start, matrix.shape[1])
    return _assembled(sparse.csr_array, matrix.data[first:last], matrix.indices[first:last], pointers, shape)


def with_values(block: Any, values: NDArray[Any]) -> Any:
    """Return a block with other values in the same places."""
    return _assembled(type(block), values, block.indices, block.indptr, block.shape)


def transposed(block: Any) -> Any:
    """Return the transpose of a CSR or CSC block, without a copy."""
    other = sparse.csc_array if block.format == "csr" else sparse.csr_array
    return _assembled(other, block.data, block.indices, block.indptr, block.shape[::-1])


def _assembled(
    kind: Any, values: NDArray[Any], indices: NDArray[Any], pointers: NDArray[Any], shape: tuple[int, int]
) -> Any:
    block = kind(shape, dtype=values.dtype)
    # Set one by one: the constructor copies what is a small part of something larger.
    block.data, block.indices, block.indptr = values, indices, pointers
    return block
