"""Writing something for each row of some files, with the columns that describe the row carried along."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from standout.blas import Array
from standout.cli.data import Side
from standout.errors import NonFiniteError
from standout.sources import ArraySource, Source
from standout.sources.source import block_rows_of
from standout.write import free_name, writing


def write_rows(
    path: Path, sides: dict[str, Side], names: Sequence[str], values: Callable[[Source], Array], what: str
) -> int:
    """Write ``values`` of the rows of every dataset, block by block; return how many rows that were."""
    columns = list(dict.fromkeys(column for side in sides.values() for column in side.source.aside))
    dataset, number = (free_name(name, [*columns, *names]) for name in ("dataset", "row"))
    about = [*([dataset] if len(sides) > 1 else []), *columns]
    # Where rows were left out, their numbers would be those of other rows: nothing is better than that.
    if not columns and all(side.whole for side in sides.values()):
        about.append(number)
    count = 0
    with writing(path, names, about, what) as table:
        for name, side in sides.items():
            seen = 0
            for block in side.source.table_blocks(block_rows_of(side.source)):
                size = len(block.numbers)
                told = {dataset: np.full(size, name, dtype=object), number: np.arange(seen + 1, seen + size + 1)}
                with _errors_of(side.source):
                    table.add(values(ArraySource(block.numbers, side.source.names)), {**block.about, **told})
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
