"""What the rest of the library knows about data: a source of row blocks with names.

Everything after reading sees only blocks (or the moments a source adds up by itself), so that files
and clusters can be added here without touching the estimators.

Telling how far a long read has come, to whoever watches: readers tell, a terminal may show.

Reading ahead: the next blocks are read while the caller works on this one.

A part of a source: some of its rows, some of its columns in another order, without a copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from standout._moments import Moments

# One block of rows takes about this many bytes: small enough for the cache to help, large enough
# for BLAS to run at full speed.
BLOCK_BYTES = 8 * 2**20
# With this many rows a block's product costs much more than passing over the sums it is added to.
_ENOUGH = 512
T = TypeVar("T")
# One item is in use, one waits, one is being read: more would only take memory.
_DEPTH = 2
_END = object()


Result = TypeVar("Result")


class Source(Protocol):
    """Rows of numbers, in blocks. Derive from it to bring data of another kind.

    ``n_features`` and ``blocks`` are all that is needed. A source that can also give any rows and
    columns (``rows``, ``take``, ``columns``) lets solvers read it again; one with ``moments()`` adds
    up its own.

    Attributes
    ----------
    n_features : int
        Number of columns of every block.
    n_rows : int or None
        Number of rows, where it is known beforehand.
    names : tuple of str or None
        Feature names.
    labels, groups, row_ids : ndarray or None
        What the data says about each row besides the features.

    Examples
    --------
    >>> import numpy as np
    >>> from standout import Moments, Source
    >>> class Readings(Source):
    ...     n_features = 2
    ...
    ...     def blocks(self, rows):
    ...         for day in range(3):
    ...             yield np.arange(8.0).reshape(4, 2) + day
    >>> Moments.of(Readings()).rows
    12
    """

    names: tuple[str, ...] | None = None
    labels: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    row_ids: NDArray[Any] | None = None

    @property
    def n_features(self) -> int:
        """Number of columns of every block."""
        ...

    @property
    def n_rows(self) -> int | None:
        """Number of rows, where it is known beforehand."""
        return None

    def blocks(self, rows: int) -> Iterator[NDArray[Any]]:
        """Yield 2-D numeric arrays of at most ``rows`` rows each, in order."""
        ...


class RowSource(Source, Protocol):
    """A source whose rows can be read again and in any order: data in memory or on disk."""

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``start`` to ``stop`` as a dense array."""
        ...

    def take(self, index: NDArray[np.intp]) -> NDArray[Any]:
        """Return the rows at ``index`` as a dense array."""
        ...

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        """Return columns ``start`` to ``stop`` of every row as a dense array."""
        ...


class MomentSource(Source, Protocol):
    """A source that adds up its own moments, for instance on a cluster."""

    def moments(self) -> Moments:
        """Return the moments of all rows."""
        ...


@dataclass(frozen=True)
class Part:
    """Some rows of a lazy source where they lie: in the memory of one worker, with what goes with each row."""

    rows: Source
    weights: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None


class LazySource(Source, Protocol):
    """A source whose rows lie in parts on a cluster: functions go to the rows, not rows to the functions.

    Functions are sent to the workers, so pickle must know them. A part may have no rows.
    """

    def select(self, index: NDArray[np.intp]) -> LazySource:
        """Return the source with the columns at ``index``, in that order."""
        ...

    def mapped(self, function: Callable[[Source], NDArray[Any]], names: Sequence[str]) -> Any:
        """Return ``function`` of the rows, which gives one column for each name, as a table of the engine's own kind.

        Nothing is computed before the user asks for it.
        """
        ...

    def reduced(
        self,
        function: Callable[[Part], Result],
        merge: Callable[[Result, Result], Result],
        weights: Any = None,
        groups: Any = None,
    ) -> Result:
        """Return ``function`` of every part, merged on the workers: two neighbours at a time, in a fixed order.

        ``weights`` and ``groups`` (one value for each row) are cut into the same parts.
        """
        ...


# Whether an object is a source is told by its methods: looking at two names is fifty times faster
# than a runtime check of the whole protocol, and small fits would notice.


def is_source(data: Any) -> TypeGuard[Source]:
    """Tell whether data is a source of blocks."""
    # On the type: a data frame answers to the names of its columns.
    return callable(getattr(type(data), "blocks", None)) and hasattr(data, "n_features")


def has_rows(source: Any) -> TypeGuard[RowSource]:
    """Tell whether a source can be read again and in any order."""
    return hasattr(type(source), "take") and hasattr(type(source), "columns") and is_source(source)


def has_moments(source: Any) -> TypeGuard[MomentSource]:
    """Tell whether a source adds up its own moments."""
    return callable(getattr(type(source), "moments", None)) and is_source(source)


def is_lazy(source: Any) -> TypeGuard[LazySource]:
    """Tell whether the rows of a source lie on a cluster."""
    return hasattr(type(source), "mapped") and hasattr(type(source), "reduced") and is_source(source)


def reads_ahead(source: Any) -> bool:
    """Tell whether a thread reads the blocks of a source while the caller works."""
    return bool(getattr(source, "reads_ahead", False))


def block_rows(n_features: int, memory: int = 0) -> int:
    """Return how many rows a block of ``n_features`` columns should have, where blocks may take ``memory`` bytes.

    An eighth of it is for one block: some are read ahead, and one is worked on. Blocks of few rows cost a pass over
    the D × D sums each, so that wide data get more than a cache holds where the memory allows.

    Examples
    --------
    >>> block_rows(100), block_rows(10_000), block_rows(10_000, memory=256_000_000)
    (4096, 104, 400)
    """
    row = 8 * max(n_features, 1)
    return max(64, min(4096, max(BLOCK_BYTES // row, min(_ENOUGH, memory // 8 // row))))


def block_rows_of(source: Any) -> int:
    """Return how many rows the blocks of a source should have."""
    return block_rows(source.n_features, getattr(source, "memory", 0))


class InMemory:
    """What the sources in memory share: blocks are slices of the rows."""

    n_features: int
    n_rows: int
    names: tuple[str, ...] | None = None
    labels: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    row_ids: NDArray[Any] | None = None

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``start`` to ``stop`` as a dense array."""
        raise NotImplementedError

    def blocks(self, rows: int) -> Iterator[NDArray[Any]]:
        """Yield the rows in order, at most ``rows`` at a time."""
        for start in range(0, self.n_rows, rows):
            yield self.rows(start, min(start + rows, self.n_rows))


@dataclass(frozen=True)
class Progress:
    """How far a pass over a file has come."""

    what: str  # the file
    rows: int  # rows so far
    share: float | None  # of the whole, from 0 to 1, where it is known


_watcher: ContextVar[Callable[[Progress], None] | None] = ContextVar("standout_progress", default=None)


@contextmanager
def watching(tell: Callable[[Progress], None]) -> Iterator[None]:
    """Have every reader inside tell its progress, block by block.

    Examples
    --------
    >>> seen = []
    >>> with watching(seen.append):
    ...     report("rows.csv", 10, 0.5)
    >>> seen
    [Progress(what='rows.csv', rows=10, share=0.5)]
    """
    before = _watcher.set(tell)
    try:
        yield
    finally:
        _watcher.reset(before)


def report(what: str, rows: int, share: float | None = None) -> None:
    """Tell the watcher, if there is one."""
    tell = _watcher.get()
    if tell is not None:
        tell(Progress(what, rows, share))


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


Index = NDArray[np.intp]


class RowView(InMemory):
    """The rows of a source at ``index``."""

    def __init__(self, source: RowSource, index: Index):
        self.source, self.index = source, index
        self.n_rows, self.n_features = len(index), source.n_features
        self.names = source.names
        self.labels, self.groups, self.row_ids = (
            None if values is None else values[index] for values in (source.labels, source.groups, source.row_ids)
        )

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``start`` to ``stop`` of the view."""
        return self.source.take(self.index[start:stop])

    def take(self, index: Index) -> NDArray[Any]:
        """Return the view's rows at ``index``."""
        return self.source.take(self.index[index])

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        """Return columns ``start`` to ``stop`` of the view's rows."""
        return self.source.columns(start, stop)[self.index]


class ColumnView:
    """The columns of a source at ``index``; works for any source, block by block."""

    def __init__(self, source: Source, index: Index):
        self.source, self.index = source, index
        self.n_features = len(index)
        self.names = None if source.names is None else tuple(source.names[i] for i in index)

    # What a stream knows of its rows may cost a pass: it is asked when it is needed.

    @property
    def n_rows(self) -> int | None:
        """Number of rows, where it is known."""
        return self.source.n_rows

    @property
    def labels(self) -> NDArray[Any] | None:
        """The label of each row."""
        return self.source.labels

    @property
    def groups(self) -> NDArray[Any] | None:
        """The group of each row."""
        return self.source.groups

    @property
    def row_ids(self) -> NDArray[Any] | None:
        """The id of each row."""
        return self.source.row_ids

    @property
    def memory(self) -> int:
        """Bytes that blocks may take together."""
        return int(getattr(self.source, "memory", 0))

    @property
    def reads_ahead(self) -> bool:
        """Whether a thread reads the blocks while the caller works."""
        return reads_ahead(self.source)

    def blocks(self, rows: int) -> Iterator[NDArray[Any]]:
        """Yield blocks with the chosen columns."""
        for block in self.source.blocks(rows):
            yield block[:, self.index]


class MomentColumnView(ColumnView):
    """The columns at ``index`` of a source that adds up its own moments."""

    source: MomentSource

    def moments(self) -> Moments:
        """Return the moments of the chosen columns."""
        return self.source.moments().select(self.index)


class RowColumnView(ColumnView):
    """The columns at ``index`` of a source whose rows can be read again."""

    source: RowSource

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``start`` to ``stop`` with the chosen columns."""
        return self.source.rows(start, stop)[:, self.index]

    def take(self, index: Index) -> NDArray[Any]:
        """Return the rows at ``index`` with the chosen columns."""
        return self.source.take(index)[:, self.index]

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        """Return the chosen columns ``start`` to ``stop``; a run of neighbours is one slice."""
        wanted = self.index[start:stop]
        low, high = int(wanted.min()), int(wanted.max()) + 1
        if high - low <= 4 * len(wanted):
            return self.source.columns(low, high)[:, wanted - low]
        return np.column_stack([self.source.columns(int(i), int(i) + 1) for i in wanted])


def select_columns(source: Source, index: Index) -> Source:
    """Return ``source`` with the columns at ``index``, in that order."""
    if len(index) == source.n_features and np.array_equal(index, np.arange(len(index))):
        return source
    if callable(getattr(type(source), "select", None)):  # files that read only the columns they are asked for
        chosen: Source = source.select(index)  # type: ignore[attr-defined]
        return chosen
    view: Any = MomentColumnView if has_moments(source) else RowColumnView if has_rows(source) else ColumnView
    narrowed: Source = view(source, index)
    return narrowed
