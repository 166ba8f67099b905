"""Sources: a dataset as blocks of rows with names, and views of its rows and columns.

A source is all that the library sees of a dataset. Arrays, files and clusters differ only in the methods they
override, so that a new kind of data needs no change in the estimators. Readers also share the progress reports, the
prefetching and the conversion of errors defined here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from standout._blas import threads_for
from standout.errors import InputError, MissingExtraError, RowsNeededError, StandoutError

if TYPE_CHECKING:
    from standout._moments import Moments

Index = NDArray[np.intp]
Names = tuple[str, ...] | None  # of features; None: they have none
T = TypeVar("T")
# One block takes about this many bytes: small enough for the cache to help, large enough for BLAS to run at full speed.
BLOCK_BYTES = 8 * 2**20
# With this many rows a block's product costs much more than passing over the sums it is added to.
_ENOUGH_ROWS = 512
# Items to prefetch. One is in use, one waits, one is being read: more would only use memory.
_DEPTH = 2
_END = object()
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
NO_ORDER = "the rows of a Spark DataFrame have no order"


@dataclass(frozen=True)
class IdColumn:
    """A column that may identify the unit that each row belongs to."""

    values: NDArray[Any]
    name: str | None = None
    code: str = ""  # Python code for the values of a frame X that are not a column, such as its index
    explicit: bool = False  # whether the user named these values as ids


class AffineMap:
    """An affine function of rows: rows minus a centre, times matrices, plus an offset.

    It is called with a source, like any other function of rows. A source whose rows are not numpy arrays can compute it
    from ``centre``, ``factors`` and ``offset`` instead. Values must be finite if ``checks`` is set.
    """

    def __init__(
        self,
        function: Callable[[Source], Any],
        centre: Any,
        factors: Sequence[NDArray[Any]],
        offset: Any = 0.0,
        checks: bool = True,
    ):
        self.function, self.centre, self.factors = function, centre, factors
        self.offset, self.checks = offset, checks
        self.__name__ = function.__name__  # dask names its tasks by it

    def __call__(self, source: Source) -> Any:
        return self.function(source)


class Source(ABC):
    """A dataset as rows of numbers, read in blocks. Derive from it to add another kind of data.

    A subclass sets ``n_features`` and implements ``blocks``. It overrides the other methods where it does
    something better than one pass over the blocks: a cluster reduces on its workers and maps lazily, and sets
    ``is_local`` to False so that moments are preferred to rows.

    Attributes
    ----------
    n_features : int
        Number of columns of every block.
    n_rows : int or None
        Number of rows, where it is known in advance.
    names : tuple of str or None
        Feature names.
    labels, groups, row_ids : ndarray or None
        Label, group (independent unit) and id of each row.
    rereadable : bool
        Whether ``blocks`` can be called more than once, as the checks for replicates and serial correlation require.

    See Also
    --------
    standout.read : Open files, arrays and data frames as a source.
    standout.Moments : Count, mean and scatter of the rows of a source.

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

    n_features: int
    n_rows: int | None = None
    names: Names = None
    labels: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    row_ids: NDArray[Any] | None = None
    unnamed: tuple[Any, ...] | None = None  # column labels that are not text, which cannot be matched by name
    ordered: bool = True  # whether rows have an order that labels in an array can follow
    memory: int = 0  # bytes that blocks may take together; 0 for the default
    reads_ahead: bool = False  # whether a thread prefetches blocks
    checkpoint: Any = None  # the file that a long pass resumes from
    is_sparse: bool = False
    is_incomplete: bool = False  # whether there are missing values to impute
    imputes_means: bool = False  # whether they become means of the dataset; otherwise they are drawn
    rereadable: bool = False  # whether the blocks can be read more than once
    is_checked: bool = False  # whether replicates were looked for among the rows that these are part of
    is_local: bool = True  # False on a cluster, where only moments and lazy tables are cheap
    given: Moments | None = None  # the moments of a source without rows, such as a covariance

    @abstractmethod
    def blocks(self, rows: int) -> Iterator[NDArray[Any]]:
        """Yield 2-D numeric arrays of at most ``rows`` rows each, in order."""

    def moments(self, weights: Any = None, groups: Any = None, *, names: Names = None, role: str = "data") -> Moments:
        """Return the moments of all rows: by default in one pass over the blocks."""
        from standout._moments import sum_rows  # at the time of the call: the core imports this module

        return sum_rows(self, weights, groups, names or self.names, role)

    def moments_by_label(self, labels: Any, wanted: Any, weights: Any, groups: Any, roles: Any) -> Any:  # noqa: ARG002
        """Return the moments of rows with each wanted label, by index, and of others (-1), and some labels that occur.

        ``roles`` are the names of the wanted parts in messages. Only a cluster implements this, in one pass.
        """
        raise RowsNeededError("background_label needs rows that can be read more than once. Use background= instead.")

    def map_rows(self, function: Callable[[Source], Any], names: Sequence[str]) -> Any:  # noqa: ARG002
        """Return ``function`` of the rows, one column for each name; a cluster returns its own lazy table."""
        return function(self)

    def select(self, index: Index) -> Source:
        """Return the source with the columns at ``index``, in that order."""
        return ColumnView(self, index)

    def collect(self, role: str) -> NDArray[Any]:  # noqa: ARG002
        """Return all rows as one array."""
        parts = [np.asarray(block) for block in self.blocks(block_rows(self.n_features))]
        return np.concatenate(parts) if parts else np.empty((0, self.n_features))

    def check_order(self, role: str) -> None:
        """Raise if rows have no order, so that values such as labels cannot be matched to them."""
        if not self.ordered:
            problem = f"{NO_ORDER}, so labels and other values cannot be matched to them"
            raise RowsNeededError(f"{role}: {problem}. Bring both into memory together first, with toPandas().")

    def collect_mapped(self, functions: Sequence[Callable[[Source], Any]], role: str) -> list[NDArray[Any]]:  # noqa: ARG002
        """Return several functions of the rows as arrays in memory; a cluster computes all of them in one pass."""
        return [np.asarray(function(self)) for function in functions]

    def in_memory(self, role: str) -> RowSource:
        """Return the rows as a source that can be read again and in any order."""
        rows = ArraySource(self.collect(role), self.names)
        rows.unnamed, rows.ordered = self.unnamed, self.ordered
        return rows

    def row_values(self, option: str, what: str) -> NDArray[Any] | None:
        """Return labels, groups or ids: the values of the column that an option of ``read`` names, else None."""
        self.check_row_values(option, what)
        found: NDArray[Any] | None = getattr(self, {"label": "labels", "groups": "groups", "ids": "row_ids"}[option])
        return found

    @property
    def has_groups(self) -> bool:
        """Whether rows have groups; of a file or a cluster without reading them."""
        return self.groups is not None

    def id_columns(self) -> list[IdColumn]:
        """Return the row ids and the columns that are not features: they may identify units."""
        return [] if self.row_ids is None else [IdColumn(self.row_ids, explicit=True)]

    def check_row_values(self, option: str, what: str) -> None:  # noqa: B027
        """Raise where such values cannot be matched to rows once these are collected."""

    def sparse(self) -> Any:
        """Return the rows as a CSR matrix where they are sparse and in memory, else None."""
        return None


class RowSource(Source):
    """A source whose rows can be read again and in any order: data in memory or on disk."""

    rereadable = True

    @abstractmethod
    def take(self, index: Index | slice) -> NDArray[Any]:
        """Return the rows at ``index`` as a dense array."""

    @abstractmethod
    def columns(self, start: int, stop: int) -> NDArray[Any]:
        """Return columns ``start`` to ``stop`` of every row as a dense array."""

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``start`` to ``stop`` as a dense array; an array returns a view."""
        return self.take(slice(start, stop))

    def blocks(self, rows: int) -> Iterator[NDArray[Any]]:
        n_rows = self.n_rows or 0
        for start in range(0, n_rows, rows):
            yield self.rows(start, min(start + rows, n_rows))

    def select(self, index: Index) -> Source:
        return _RowColumnView(self, index)

    def in_memory(self, role: str) -> RowSource:  # noqa: ARG002
        return self


class ArraySource(RowSource):
    """A numpy array of any numeric type, order and stride, or a memory map."""

    n_rows: int

    def __init__(self, array: NDArray[Any], names: Names = None):
        self.array, self.names = array, names
        self.n_rows, self.n_features = array.shape

    def take(self, index: Index | slice) -> NDArray[Any]:
        return self.array[index]

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        return self.array[:, start:stop]

    def moments(self, weights: Any = None, groups: Any = None, *, names: Names = None, role: str = "data") -> Moments:
        from standout._moments import Moments, sums_of_block

        if weights is None and groups is None and self.groups is None and self.n_rows <= block_rows(self.n_features):
            with threads_for(float(self.n_rows) * self.n_features**2):
                sums = sums_of_block(self.array)  # one block needs no accumulator
            if sums is not None:
                return Moments.from_sums(sums, None, names or self.names)
        return super().moments(weights, groups, names=names, role=role)


def block_rows(n_features: int, memory: int = 0) -> int:
    """Return how many rows a block of ``n_features`` columns should have, where blocks may take ``memory`` bytes.

    One block takes at most an eighth of it, because several are prefetched. Each block costs a pass over the
    D × D sums, so blocks of wide data exceed the cache where ``memory`` allows.
    """
    row = 8 * max(n_features, 1)
    return max(64, min(4096, max(BLOCK_BYTES // row, min(_ENOUGH_ROWS, memory // 8 // row))))


def block_rows_of(source: Source) -> int:
    """Return how many rows the blocks of a source should have."""
    return block_rows(source.n_features, source.memory)


@dataclass(frozen=True)
class Progress:
    """Progress of a pass over a file."""

    what: str  # the file
    rows: int  # rows so far
    share: float | None  # of the whole, from 0 to 1, where it is known


_watcher: ContextVar[Callable[[Progress], None] | None] = ContextVar("standout_progress", default=None)


@contextmanager
def watching(callback: Callable[[Progress], None]) -> Iterator[None]:
    """Call ``callback`` with the progress of every reader inside, block by block."""
    before = _watcher.set(callback)
    try:
        yield
    finally:
        _watcher.reset(before)


def report(what: str, rows: int, share: float | None = None) -> None:
    """Report progress to the callback of :func:`watching`, if any."""
    callback = _watcher.get()
    if callback is not None:
        callback(Progress(what, rows, share))


@contextmanager
def readable(location: str, kind: str, path: Path | None = None) -> Iterator[None]:
    """Convert any error of a reader into an :class:`InputError` of one line that starts with ``location``.

    With a ``path``, an empty file is an error, and so is a compressed one of a type that is not read compressed.
    """
    try:
        if path is not None and path.is_file():
            with path.open("rb") as file:
                if not file.read(1):
                    raise InputError(f"{location}: the file is empty. Give an intact copy.")
            if path.suffix.lower() in _COMPRESSED and kind not in ("Matrix Market", "GCT"):
                problem = "compression is not supported for this file type"
                raise InputError(f"{location}: {problem}. Give the uncompressed file.")
        yield
    except StandoutError:
        raise
    except PermissionError as error:
        raise InputError(f"{location}: no permission to read it. Ask for access, or give a copy.") from error
    except FileNotFoundError as error:
        raise InputError(f"{location}: the file no longer exists. Check the path.") from error
    except MemoryError as error:
        raise InputError(f"{location}: not enough memory. Use a smaller `memory`, or give fewer columns.") from error
    except Exception as error:
        problem = f"cannot be read as {kind} ({first_line(error)}). The file is damaged, truncated or of another type"
        raise InputError(f"{location}: {problem}: give an intact copy.") from error


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, short enough for a message of ours."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:150].rstrip(".")


def import_extra(package: str, location: str, extra: str = "io") -> Any:
    """Import an optional package, or raise an error that names the extra to install."""
    try:
        return import_module(package)
    except ImportError as error:
        install = f"pip install 'standout[{extra}]'"
        raise MissingExtraError(f"{location}: reading this needs {error.name}. Install it with: {install}") from error


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the items of an iterator while another thread prefetches the next two.

    Its exceptions are raised here, in order. When the caller stops early (an error, Ctrl-C), the current read is waited
    for and the iterator is closed with its files.
    """
    # Reads are submitted one by one, so that no thread ever blocks on a full queue at exit.
    pool = ThreadPoolExecutor(1, thread_name_prefix="standout-reader")
    pending: deque[Future[Any]] = deque(pool.submit(next, items, _END) for _ in range(_DEPTH))
    try:
        while (item := pending[0].result()) is not _END:
            pending.popleft()
            pending.append(pool.submit(next, items, _END))
            yield cast(T, item)
            del item  # the caller's copy is the only one while the next is waited for
    finally:
        # Wait for the reads, not for the thread: until Python 3.12 a join may wait forever in the garbage collector,
        # which closes generators even while another thread starts and holds a lock that the join needs.
        pool.shutdown(wait=False, cancel_futures=True)
        while pending:
            if not (read := pending.popleft()).cancelled():
                read.exception()
        if isinstance(items, Generator):
            items.close()


class RowView(RowSource):
    """The rows of a source at ``index``."""

    def __init__(self, source: RowSource, index: Index):
        self.source, self.index = source, index
        self.n_rows, self.n_features = len(index), source.n_features
        self.names, self.unnamed, self.is_sparse = source.names, source.unnamed, source.is_sparse
        self.is_incomplete, self.imputes_means = source.is_incomplete, source.imputes_means
        self.labels, self.groups, self.row_ids = (
            None if values is None else values[index] for values in (source.labels, source.groups, source.row_ids)
        )

    def id_columns(self) -> list[IdColumn]:
        return [replace(column, values=column.values[self.index]) for column in self.source.id_columns()]

    def take(self, index: Index | slice) -> NDArray[Any]:
        return self.source.take(self.index[index])

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        return self.source.columns(start, stop)[self.index]

    def sparse(self) -> Any:
        matrix = self.source.sparse()
        return None if matrix is None else matrix[self.index]


class ColumnView(Source):
    """The columns of a source at ``index``, block by block. A view of a view is one of the source."""

    source: Any
    # These may cost a pass over a file, so they are read when they are needed.
    n_rows = property(attrgetter("source.n_rows"))
    labels = property(attrgetter("source.labels"))
    groups = property(attrgetter("source.groups"))
    row_ids = property(attrgetter("source.row_ids"))
    has_groups = property(attrgetter("source.has_groups"))
    id_columns = property(attrgetter("source.id_columns"))

    def __init__(self, source: Any, index: Index):
        kept = ("memory", "reads_ahead", "checkpoint", "ordered", "rereadable", "is_local", "is_sparse")
        for name in (*kept, "is_incomplete", "imputes_means"):
            setattr(self, name, getattr(source, name))
        if isinstance(source, ColumnView):
            source, index = source.source, source.index[index]
        self.source, self.index = source, index
        self.n_features = len(index)
        self.names = None if source.names is None else tuple(source.names[i] for i in index)

    def blocks(self, rows: int) -> Iterator[NDArray[Any]]:
        for block in self.source.blocks(rows):
            yield block[:, self.index]

    def moments(self, weights: Any = None, groups: Any = None, *, names: Names = None, role: str = "data") -> Moments:
        if self.is_local:
            return super().moments(weights, groups, names=names, role=role)
        found: Moments = self.source.moments(weights, groups, role=role).select(self.index)
        return found

    def sparse(self) -> Any:
        matrix = self.source.sparse()
        return None if matrix is None else matrix[:, self.index]


class _RowColumnView(ColumnView, RowSource):
    """The columns at ``index`` of a source whose rows can be read again."""

    def take(self, index: Index | slice) -> NDArray[Any]:
        return np.asarray(self.source.take(index)[:, self.index])

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        chosen = self.index[start:stop]
        low, high = int(chosen.min()), int(chosen.max()) + 1
        if high - low <= 4 * len(chosen):  # a run of neighbours is one slice
            return np.asarray(self.source.columns(low, high)[:, chosen - low])
        return np.column_stack([self.source.columns(int(i), int(i) + 1) for i in chosen])


def select_columns(source: Source, index: Index) -> Source:
    """Return ``source`` with the columns at ``index``, in that order."""
    if len(index) == source.n_features and np.array_equal(index, np.arange(len(index))):
        return source
    return source.select(index)


def collect_values(values: Any, source: Source, what: str) -> Any:
    """Return one value for each row of a source as given; values on a cluster as an array."""
    if values is None:
        return None
    source.check_order(what)
    return values if isinstance(values, np.ndarray | list | tuple) else np.asarray(values)
