"""Tensors: arrays of PyTorch, CuPy, JAX and any other library that implements the array API standard.

Moments and scores are computed on the device that holds the rows, in blocks of float64; only the moments are moved to
the CPU, where the eigenproblem is solved. Scores, restored and denoised rows are tensors on the same device.

Everything else reads the rows as numpy arrays, as it does with other data: a sample of them for the checks of the data,
all of them for resampling, kernels, and fits with more features than rows. So does a device without float64 (Apple MPS,
and JAX unless ``jax_enable_x64`` is set), one block at a time.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from standout._blas import Array, symmetric
from standout.errors import InputError, NotNumbersError
from standout.io.memory import (
    NUMBERS,
    check_integers,
    check_weights,
    checked_table,
    distinct_groups,
    explain_non_finite,
    explain_underflow,
    large_values,
)
from standout.io.source import AffineMap, ArraySource, Index, Names, RowSource, Source, import_extra

if TYPE_CHECKING:
    from standout._moments import Moments

# A block of float64 rows takes about this many bytes on the device, and has at least this many rows: each block costs a
# pass over the scatter.
_BLOCK_BYTES, _LEAST_ROWS = 32 * 2**20, 1024


def open_tensor(data: Any, role: str) -> TensorSource:
    """Return the source of a tensor of rows; raise an error for other shapes and types."""
    source = TensorSource(data, role)
    if len(data.shape) != 2 or 0 in data.shape:  # the error for an array of this shape
        checked_table(np.broadcast_to(np.zeros(()), tuple(data.shape)), role)
    if source.is_integer:
        large = large_values(source.rows(0, 1)[0]).tolist()
        check_integers({i: source.columns(i, i + 1)[:, 0] for i in large}, role)
    return source


def to_numpy(tensor: Any) -> NDArray[Any]:
    """Return a tensor on any device as a numpy array; as float32 if numpy does not have its type, such as bfloat16."""
    if hasattr(tensor, "detach"):  # PyTorch
        small = tensor.is_floating_point() and tensor.element_size() < 4
        return np.asarray((tensor.float() if small else tensor).numpy(force=True))
    if hasattr(tensor, "get"):  # CuPy
        return np.asarray(tensor.get())
    if hasattr(tensor, "addressable_shards"):  # JAX
        found = np.asarray(tensor)
        return found if found.dtype.kind in NUMBERS + "c" else found.astype(np.float32)
    return np.from_dlpack(tensor)


class TensorSource(RowSource):
    """The rows of a tensor, on its device."""

    n_rows: int

    def __init__(self, data: Any, role: str):
        compat = import_extra("array_api_compat", role, "array-api")
        if hasattr(data, "detach") and str(data.layout) != "torch.strided":
            remedy = "Call to_dense() on it, or give a scipy sparse matrix."
            raise InputError(f"{role}: sparse tensors are not supported. {remedy}")
        self.data = data.detach() if hasattr(data, "detach") else data  # gradients are not tracked
        self._xp: Any = compat.array_namespace(data)
        if self._is("complex floating"):
            checked_table(np.zeros((1, 1), dtype=complex), role)
        if not self._is("bool", "integral", "real floating"):
            raise NotNumbersError(f"{role}: values of type {data.dtype} are not numbers. Give numbers.")
        device = compat.device(data)
        self._device = None if hasattr(device, "device_set") else device  # JAX places constants for sharded arrays
        self.n_rows, self.n_features = (*map(int, data.shape), 0, 0)[:2]

    def _is(self, *kinds: str) -> bool:
        """Return whether the values are of one of these kinds of the array API."""
        try:
            return bool(self._xp.isdtype(self.data.dtype, kinds))
        except TypeError:  # not a numeric type at all, such as the random keys of JAX
            return False

    @property
    def is_integer(self) -> bool:
        """Whether the values are integers."""
        return self._is("integral")

    @cached_property
    def _has_float64(self) -> bool:
        """Whether the device computes in float64."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # JAX warns that it returns float32
                return str(self._xp.astype(self.data[:1, :], self._xp.float64).dtype).endswith("float64")
        except (TypeError, ValueError, RuntimeError):
            return False

    def take(self, index: Index | slice) -> NDArray[Any]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self.n_rows)
            return to_numpy(self.data[start:stop:step, :])
        return to_numpy(self._rows_at(self.data, index))

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        return to_numpy(self.data[:, start : min(stop, self.n_features)])

    def collect(self, role: str) -> NDArray[Any]:  # noqa: ARG002
        return to_numpy(self.data)

    def in_memory(self, role: str) -> RowSource:
        return ArraySource(self.collect(role))

    def collect_mapped(self, functions: Sequence[Callable[[Source], Any]], role: str) -> list[NDArray[Any]]:  # noqa: ARG002
        return [to_numpy(function(self)) for function in functions]

    def moments(self, weights: Any = None, groups: Any = None, *, names: Names = None, role: str = "data") -> Moments:
        if not self._has_float64:
            return super().moments(weights, groups, names=names, role=role)
        from standout._accumulate import SMALLEST, two_sum  # at the time of the call: the core imports this package
        from standout._moments import Moments

        checked = None if weights is None else check_weights(weights, self.n_rows, role)
        with np.errstate(all="ignore"):  # numpy computes for array-api-strict
            weight, first, offset, scatter = self._sums(checked)
            square = np.diagonal(scatter)
            if not math.isfinite(offset.sum() + square.sum()):
                raise explain_non_finite(self, np.empty((0, self.n_features)), role, names)
        used = slice(None) if checked is None else np.flatnonzero(checked)
        small = np.flatnonzero(square < SMALLEST * weight).tolist()
        lost = [i for i in small if len(np.unique(self.columns(i, i + 1)[used])) > 1]
        if lost:
            raise explain_underflow(lost, names, role)
        ids = None if groups is None else distinct_groups(groups, checked, self.n_rows, role)
        mean, residue = two_sum(first, offset)
        rows, squared = (self.n_rows, weight) if checked is None else (len(checked[used]), float(checked @ checked))
        return Moments(mean, scatter, weight, squared, rows, ids, names, residue)

    def _sums(self, weights: Array | None) -> tuple[float, Array, Array, Array]:
        """Return the total weight, the first row, the mean less the first row, and the scatter about the mean.

        All rows are taken relative to the first one, so that a large mean causes no loss of precision. The mean and
        the scatter of each block are merged into those of the blocks before, as moments are.
        """
        xp, total = self._xp, 0.0
        first: Any = None
        mean: Any = 0.0
        scatter: Any = 0.0
        for rows, own in self._device_blocks(weights):
            first = rows[0, :] if first is None else first
            rows = rows - first
            if own is None:
                weight, block_mean = float(rows.shape[0]), xp.mean(rows, axis=0)
            else:
                weight = float(xp.sum(own))
                block_mean = xp.sum(rows * own, axis=0) / weight
            rows -= block_mean
            if own is not None:
                rows *= xp.sqrt(own)
            shift, share = block_mean - mean, weight / (total + weight)
            scatter = rows.T @ rows + scatter
            scatter += (total * share) * (shift[:, None] * shift[None, :])
            mean = mean + share * shift
            total += weight
        # Symmetric, and in the order of LAPACK.
        return total, to_numpy(first), to_numpy(mean), symmetric(to_numpy(scatter)).T

    def _device_blocks(self, weights: Array | None = None) -> Iterator[tuple[Any, Any]]:
        """Yield blocks of float64 rows on the device, with a column of weights; rows of weight zero are left out."""
        xp, step = self._xp, max(_LEAST_ROWS, _BLOCK_BYTES // (8 * max(self.n_features, 1)))
        for start in range(0, self.n_rows, step):
            rows, own = self.data[start : min(start + step, self.n_rows), :], None
            if weights is not None:
                part = weights[start : start + step]
                kept = np.flatnonzero(part)
                if len(kept) == 0:
                    continue
                if len(kept) < len(part):
                    rows = self._rows_at(rows, kept)
                own = self._constant(part[kept, None])
            yield xp.astype(rows, xp.float64, copy=False), own

    def _rows_at(self, rows: Any, index: Index) -> Any:
        kind = np.int32 if self.n_rows < 2**31 else np.int64  # some devices have no int64
        return self._xp.take(rows, self._constant(index.astype(kind)), axis=0)

    def _constant(self, values: NDArray[Any]) -> Any:
        """Return an array on the device of the rows."""
        return self._xp.asarray(np.array(values, order="C"), device=self._device)

    def map_rows(self, function: Callable[[Source], Any], names: Sequence[str]) -> Any:  # noqa: ARG002
        """Return ``function`` of the rows as a tensor on their device: float32 if the rows are, otherwise float64."""
        single = str(self.data.dtype).endswith(".float32") or str(self.data.dtype) == "float32"
        if isinstance(function, AffineMap) and self._has_float64:
            return self._affine(function, self._xp.float32 if single else self._xp.float64)
        return self._constant(function(self).astype(np.float32 if single or not self._has_float64 else np.float64))

    def _affine(self, function: AffineMap, dtype: Any) -> Any:
        """Return an affine function of the rows, computed on the device."""
        xp = self._xp
        centre, offset, *factors = map(self._constant, (function.centre, function.offset, *function.factors))
        parts = []
        with np.errstate(all="ignore"):  # numpy computes for array-api-strict
            for rows, _ in self._device_blocks():
                part = centred = rows - centre
                for factor in factors:
                    part = part @ factor
                part = part + offset
                checked = part if part.shape[1] else centred
                if function.checks and not bool(xp.all(xp.isfinite(checked))):
                    raise explain_non_finite(self, np.empty((0, self.n_features)), "X")
                parts.append(xp.astype(part, dtype, copy=False))
        return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)
