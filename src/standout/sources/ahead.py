"""Reading ahead: the next blocks are read while the caller works on this one."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar, cast

T = TypeVar("T")

# One item is in use, one waits, one is being read: more would only take memory.
_DEPTH = 2
_END = object()


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the items of an iterator, the next two of which another thread is getting meanwhile.

    What the iterator raises is raised here, in its turn. When the caller stops early (an error, Ctrl-C), the read
    under way is waited for and the iterator is closed, files and all.

    Examples
    --------
    >>> list(ahead(iter("abc")))
    ['a', 'b', 'c']
    """
    # Reads are asked for one by one, so that no thread ever waits for room: there is nothing to hang on at exit.
    pool = ThreadPoolExecutor(1, thread_name_prefix="standout-reader")
    asked: deque[Future[Any]] = deque(pool.submit(next, items, _END) for _ in range(_DEPTH))
    try:
        while (item := asked.popleft().result()) is not _END:
            asked.append(pool.submit(next, items, _END))
            yield cast(T, item)
            del item  # the caller's copy is the only one while the next is waited for
    finally:
        pool.shutdown(cancel_futures=True)
        if isinstance(items, Generator):
            items.close()
