"""Results as small HTML tables, for notebooks.

Everything that is shown is escaped: names of features and backgrounds come from the data. The tables have no style of
their own, so they follow the theme of the notebook.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

# A table in a notebook shows at most this many rows.
_MOST_ROWS = 20
# Notebooks would set text between dollar signs as formulas.
_PLAIN = "tex2jax_ignore mathjax_ignore"


def cell(value: Any) -> str:
    """Return a value as escaped text: numbers with four digits, a dash for NaN.

    Examples
    --------
    >>> cell(1.23456), cell(float("nan")), cell(float("inf")), cell("<b>")
    ('1.235', '–', '∞', '&lt;b&gt;')
    """
    if isinstance(value, float | np.floating):
        if math.isnan(value):
            return "–"
        return f"{value:.4g}" if math.isfinite(value) else "∞" if value > 0 else "−∞"
    return escape(str(value))


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table, of which the first column names the rows; long tables are cut.

    Examples
    --------
    >>> print(table(["component", "ratio"], [["dpca0", 2.0]]))
    <table><thead><tr><th>component</th><th>ratio</th></tr></thead><tbody>
    <tr><th>dpca0</th><td>2</td></tr>
    </tbody></table>
    """
    every = list(rows)
    lines = ["<table><thead><tr>" + "".join(f"<th>{cell(name)}</th>" for name in header) + "</tr></thead><tbody>"]
    for first, *rest in every[:_MOST_ROWS]:
        lines.append(f"<tr><th>{cell(first)}</th>" + "".join(f"<td>{cell(value)}</td>" for value in rest) + "</tr>")
    if len(every) > _MOST_ROWS:
        lines.append(f'<tr><td colspan="{len(header)}">… and {len(every) - _MOST_ROWS} more</td></tr>')
    return "\n".join([*lines, "</tbody></table>"])


def fragment(title: str, *tables: str, facts: Iterable[tuple[str, str]] = (), notes: Iterable[str] = ()) -> str:
    """Return a title, facts, tables and notes as one piece of HTML; tables are HTML already.

    Examples
    --------
    >>> print(fragment("A title", facts=[("rows", "3 < 4")]))
    <div class="standout tex2jax_ignore mathjax_ignore"><p><strong>A title</strong><br>rows: 3 &lt; 4</p>
    </div>
    """
    lines = [f"<strong>{escape(title)}</strong>", *(f"{escape(name)}: {escape(text)}" for name, text in facts)]
    listed = "".join(f"<li>{escape(note)}</li>" for note in notes)
    parts = [f"<p>{'<br>'.join(lines)}</p>", *tables, *([f"<ul>{listed}</ul>"] if listed else []), "</div>"]
    return f'<div class="standout {_PLAIN}">' + "\n".join(parts)
