"""What the rest of the library knows about data: a source of row blocks with names.

Everything after reading sees only blocks (or the moments a source adds up by itself), so that files
and clusters can be added here without touching the estimators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from standout.moments import Moments

Result = TypeVar("Result")

# One block of rows takes about this many bytes: small enough for the cache to help, large enough
# for BLAS to run at full speed.
BLOCK_BYTES = 8 * 2**20
# With this many rows a block's product costs much more than passing over the sums it is added to.
_ENOUGH = 512


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
