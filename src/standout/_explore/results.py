"""Results that are computed once, shared by threads, and dropped when they take too much memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from standout.io.source import Source

# What a result takes besides its arrays: its key, its object, its texts. Roughly.
_OVERHEAD = 10_000
_T = TypeVar("_T")
_Method = TypeVar("_Method", bound=Callable[..., Any])


class Results:
    """Results by key. The first thread that asks computes one; the others wait for it.

    Together they take at most ``limit`` bytes, apart from the newest one: the least recently used are dropped, and
    computed again when they are needed. Errors are not kept.

    Examples
    --------
    >>> results = Results(limit=50_000)
    >>> results.once("a", lambda: 1), results.once("a", lambda: 2)
    (1, 1)
    """

    def __init__(self, limit: float):
        self.limit = limit
        self._lock = threading.Lock()
        self._found: OrderedDict[Any, Future[Any]] = OrderedDict()  # the least recently used first
        self._sizes: dict[Any, int] = {}  # of those that are complete

    def once(self, key: Any, compute: Callable[[], _T]) -> _T:
        """Return the result for a key, computed by the first thread that asks."""
        with self._lock:
            found = self._found.get(key)
            first = found is None
            if found is None:
                found = self._found[key] = Future()
            self._found.move_to_end(key)
        if first:
            try:
                result = compute()
            except BaseException as error:
                with self._lock:
                    del self._found[key]  # the next thread tries again
                found.set_exception(error)
            else:
                self._keep(key, _OVERHEAD + array_bytes(result))
                found.set_result(result)
        answer: _T = found.result()
        return answer

    def _keep(self, key: Any, size: int) -> None:
        with self._lock:
            self._sizes[key] = size
            excess = sum(self._sizes.values()) - self.limit
            for old in [each for each in self._found if each in self._sizes and each != key]:
                if excess <= 0:
                    break
                excess -= self._sizes.pop(old)
                del self._found[old]


def kept(method: _Method) -> _Method:
    """Keep the results of a method in ``self.results``, by its arguments."""

    @wraps(method)
    def once(self: Any, *arguments: Any) -> Any:
        return self.results.once((method.__name__, *arguments), lambda: method(self, *arguments))

    return once  # type: ignore[return-value]


def array_bytes(value: Any) -> int:
    """Return the size of all arrays in an object, its attributes and its items, but not of rows; each counts once.

    Examples
    --------
    >>> array_bytes({"one": np.zeros(10), "more": [np.zeros(5), "text"]})
    120
    """
    seen: set[int] = set()
    rest, total = [value], 0
    while rest:
        item = rest.pop()
        if id(item) in seen or isinstance(item, str | bytes | type | Source):
            continue
        seen.add(id(item))
        if isinstance(item, np.ndarray):
            total += item.nbytes
        elif isinstance(item, Mapping):
            rest += item.values()
        elif isinstance(item, list | tuple | set | frozenset):
            rest += item
        else:
            rest += getattr(item, "__dict__", {}).values()
    return total
