"""Writing something for each row of some files, with the columns that describe the row carried along."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from standout.blas import Array
from standout.errors import NonFiniteError
from standout.sources import ArraySource, Source, block_rows
from standout.write import writing


def write_rows(
    path: Path, sources: dict[str, Any], names: Sequence[str], values: Callable[[Source], Array], what: str
) -> int:
    """Write ``values`` of the rows of every source, block by block; return how many rows that were."""
    columns = list(dict.fromkeys(column for source in sources.values() for column in source.aside))
    about = [*(["dataset"] if len(sources) > 1 else []), *(columns or ["row"])]
    count = 0
    with writing(path, names, about, what) as table:
        for name, source in sources.items():
            seen = 0
            for block in source.table_blocks(block_rows(source.n_features)):
                size = len(block.numbers)
                told = {"dataset": np.full(size, name, dtype=object), "row": np.arange(seen + 1, seen + size + 1)}
                with _errors_of(source):
                    table.add(values(ArraySource(block.numbers, source.names)), {**told, **block.about})
                seen += size
            count += seen
    return count


@contextmanager
def _errors_of(source: Any) -> Iterator[None]:
    """Put the file's name before an error about its rows."""
    try:
        yield
    except NonFiniteError as error:
        told = str(error).removeprefix("X: ").split(". ")[0]
        raise NonFiniteError(f"{source.path}: {told}. Use --missing to say what to do about them.") from error
