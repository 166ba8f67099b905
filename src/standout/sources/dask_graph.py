"""Telling a dask collection that is a way to the data from one whose graph holds the data themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import dask.array as da
import numpy as np
from dask import compute, local, threaded
from dask.base import get_scheduler
from scipy import sparse

from standout.errors import GraphWarning, InputError, warn_user

# Data in the graph go from here through the scheduler to the workers; less than this is not worth a word.
_WORTH_A_WORD = 10_000_000
# Graphs are looked at only so far: data that stand in them stand in their first tasks.
_TASKS = 10_000


def computed(array: da.Array, role: str) -> Any:
    """Compute an array with the user's own scheduler or cluster."""
    return computed_together([array], role)[0]


def computed_together(arrays: Sequence[da.Array], role: str) -> tuple[Any, ...]:
    """Compute arrays, what they share once, and say what to do where there is no scheduler that can."""
    _scheduler(arrays[0], role)
    try:
        found: tuple[Any, ...] = compute(*arrays, traverse=False)
        return found
    except Exception as error:
        if type(error).__name__ != "ClosedClientError":  # of distributed, which need not be there
            raise
        raise _no_cluster(error, role) from error


def _scheduler(collection: Any, role: str) -> Any:
    try:
        return get_scheduler(collections=[collection])
    except RuntimeError as error:  # an asynchronous client, or none
        raise _no_cluster(error, role) from error


def _no_cluster(error: Exception, role: str) -> InputError:
    return InputError(
        f"{role}: dask cannot compute here ({str(error).rstrip('.')}). Start a distributed.Client that is open and not "
        "asynchronous, or use dask.config.set(scheduler='threads')."
    )


def warn_of_embedded_data(collection: Any, role: str) -> None:
    """Warn when the graph of a collection holds the data, and these would be sent to other processes."""
    if _scheduler(collection, role) in (threaded.get, local.get_sync):
        return
    size = 0
    for value in _values(collection.__dask_graph__()):
        size += _bytes_of(value)
        if size > _WORTH_A_WORD:
            warn_user(
                f"{role}: the data themselves stand in the graph (more than {_WORTH_A_WORD // 10**6} MB), so that they "
                "go through the scheduler to the workers, many times slower than when workers read them. Make the "
                "collection of what workers can open (dask.array.from_zarr or from_delayed, dask.dataframe."
                "read_parquet), or give the array, memory map or frame itself to fit.",
                GraphWarning,
            )
            return


def _values(graph: Any) -> Iterator[Any]:
    """Yield what stands in the tasks of a graph, without writing out layers that are only described."""
    for layer in getattr(graph, "layers", {"": graph}).values():
        if not getattr(layer, "is_materialized", lambda: True)():
            yield from (value for value, index in getattr(layer, "indices", ()) if index is None)
            continue
        for task in islice(layer.values(), _TASKS):
            yield from _inside(task, 3)


def _inside(task: Any, depth: int) -> Iterator[Any]:
    """Yield a task's data and arguments, and those of the tasks fused into it."""
    yield getattr(task, "value", task)
    if depth == 0:
        return
    inner = task if isinstance(task, list | tuple) else getattr(task, "args", ())
    for argument in inner.values() if isinstance(inner, dict) else inner:
        yield from _inside(argument, depth - 1)


def _bytes_of(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    if sparse.issparse(value):
        return int(value.data.nbytes)
    if hasattr(value, "memory_usage") and hasattr(value, "iloc"):
        return int(np.sum(value.memory_usage()))
    return 0
