"""Data frames in memory, read like files: columns that describe rows, rows to keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from standout.errors import InputError
from standout.sources.files.columns import choose
from standout.sources.files.options import Options
from standout.sources.files.source import Layout, TableInMemory
from standout.sources.files.tables import Coded, Texts, Where, warn_aside
from standout.sources.memory import FrameSource, check_names, may_be_numbers


def open_frame(frame: Any, options: Options, role: str) -> TableInMemory:
    """Return the source of a data frame (pandas, polars, any that narwhals knows)."""
    import narwhals.stable.v2 as nw

    given = list(getattr(frame, "column_names", None) or frame.columns)  # pyarrow's columns are the data
    check_names(given, role)
    table = nw.from_native(frame, eager_only=True)
    # Columns may be numbered; in messages and options they are called by their number.
    names = [str(name) for name in given]
    kinds = dict(zip(names, table.schema.values(), strict=True))
    numeric = {str(name) for name, kind in table.schema.items() if may_be_numbers(kind, table, name)}
    chosen = choose(names, numeric, options, role)
    place = {name: i for i, name in enumerate(names)}

    def coded(column: str) -> Coded:
        kind = kinds[column]
        return Coded.of(table[:, place[column]].to_list(), typed=kind.is_numeric() or kind == nw.Boolean)

    where = Where(options.where, role)
    about = {column: coded(column) for column in chosen.aside}
    kept = where.mask(about)
    where.check()
    numbers = FrameSource(table[:, [place[name] for name in chosen.features]], role).rows(0, table.shape[0])
    if len(numbers) == 0:
        raise InputError(f"{role}: it holds no rows. Give a table with rows.")
    layout = Layout(
        Path(role), chosen.features if isinstance(given[0], str) else None, len(chosen.features), chosen.aside,
        chosen.unasked, options.label, options.groups, options.ids,
    )  # fmt: skip
    if options.columns is None:
        warn_aside(layout)
    text = {column: Texts().of(values.taken(kept)) for column, values in about.items()}
    return TableInMemory(layout, numbers if kept is None else numbers[kept], text)
