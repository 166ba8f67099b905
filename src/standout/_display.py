"""Results as text, for the prompt, and as small HTML tables, for notebooks; numbers and counts in words.

Everything from the data is escaped: HTML in names of features and backgrounds, and control characters, which terminals
obey. The HTML has no style, so that it follows the theme of the notebook.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from standout.errors import visible

# A table in a notebook shows at most this many rows.
_MOST_ROWS = 20
# Notebooks would set text between dollar signs as formulas.
_DIV = '<div class="standout tex2jax_ignore mathjax_ignore">'
# Width of the names of facts, so that those of several results are aligned.
_FACT_WIDTH = 12


class Summary(str):
    """String whose repr is the text itself, without quotes, for the prompt; notebooks show its HTML, if it has any."""

    html: str | None

    def __new__(cls, text: str = "", html: str | None = None) -> Summary:
        """Escape control characters of the text."""
        summary = super().__new__(cls, visible(text))
        summary.html = html
        return summary

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str | None:
        return self.html


class Table(NamedTuple):
    """A table, of which the first column names the rows."""

    header: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def lines(self) -> list[str]:
        """Return the table as lines of text, with columns that are aligned to the right.

        Examples
        --------
        >>> Table(["component", "ratio"], [["dpca0", 2.0], ["dpca1", float("inf")]]).lines()
        ['  component  ratio', '      dpca0      2', '      dpca1      ∞']
        """
        cells = [list(self.header), *([visible(_cell(value), lines=False) for value in row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return ["".join(f"  {text:>{width}}" for text, width in zip(row, widths, strict=True)) for row in cells]

    def html(self) -> str:
        """Return the table as HTML; long tables are cut.

        Examples
        --------
        >>> print(Table(["component", "ratio"], [["<b>", 2.0]]).html())
        <table><thead><tr><th>component</th><th>ratio</th></tr></thead><tbody>
        <tr><th>&lt;b&gt;</th><td>2</td></tr>
        </tbody></table>
        """
        head = "".join(f"<th>{escape(name)}</th>" for name in self.header)
        lines = [f"<table><thead><tr>{head}</tr></thead><tbody>"]
        for row in self.rows[:_MOST_ROWS]:
            first, *rest = (escape(_cell(value)) for value in row)
            lines.append(f"<tr><th>{first}</th>" + "".join(f"<td>{value}</td>" for value in rest) + "</tr>")
        if len(self.rows) > _MOST_ROWS:
            more = len(self.rows) - _MOST_ROWS
            lines.append(f'<tr><td colspan="{len(self.header)}">… and {more} more</td></tr>')
        return "\n".join([*lines, "</tbody></table>"])


def _cell(value: Any) -> str:
    """Return a value as text: numbers with four digits, a dash for NaN."""
    if isinstance(value, float | np.floating):
        return f"{value:.4g}" if math.isfinite(value) else number(float(value))
    return str(value)


def display(title: str, *tables: Table, facts: Sequence[tuple[str, str]] = (), notes: Sequence[str] = ()) -> Summary:
    """Return a result as text and as HTML: its title, facts, tables and notes.

    Examples
    --------
    >>> found = display("A title", facts=[("rows", "3 < 4")], notes=["few rows"])
    >>> found
    A title
      rows        3 < 4
      ! few rows
    >>> print(found.html)
    <div class="standout tex2jax_ignore mathjax_ignore"><p><strong>A title</strong><br>rows: 3 &lt; 4</p>
    <ul><li>few rows</li></ul>
    </div>
    """
    width = max([_FACT_WIDTH, *(len(name) + 2 for name, _ in facts)])
    lines = [title, *(f"  {name:<{width}}{text}" for name, text in facts)]
    for table in tables:
        lines += ["", *table.lines()]
    lines += [f"  ! {note}" for note in notes]
    facts_html = (f"{escape(name)}: {escape(text)}" for name, text in facts)
    return Summary("\n".join(lines), to_html(title, *(table.html() for table in tables), facts=facts_html, notes=notes))


def to_html(title: str, *tables: str, facts: Iterable[str] = (), notes: Iterable[str] = ()) -> str:
    """Return a title, facts and tables, which are HTML already, and a list of notes as one piece of HTML."""
    heading = "<br>".join([f"<strong>{escape(title)}</strong>", *facts])
    listed = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return _DIV + "\n".join([f"<p>{heading}</p>", *tables, *([f"<ul>{listed}</ul>"] if listed else []), "</div>"])


def stacked(parts: Sequence[Summary]) -> Summary:
    """Return several results as one, below each other."""
    return Summary("\n\n".join(parts), _DIV + "\n".join([*(part.html or "" for part in parts), "</div>"]))


def number(value: float, *, trimmed: bool = True) -> str:
    """Format a number with at least three digits; ``trimmed=False`` keeps trailing zeros, for tables."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if 1000 <= abs(value) < 1e7:
        return f"{value:,.0f}".replace("-", "−")
    text = f"{value:.3g}" if trimmed or value == 0 else f"{value:#.3g}".rstrip(".")
    return text.replace("-", "−")


def interval(low: float, high: float, *, trimmed: bool = True) -> str:
    """Format an interval; a dash if it is undefined."""
    if math.isnan(low) or math.isnan(high):
        return number(math.nan)
    return f"{number(low, trimmed=trimmed)} to {number(high, trimmed=trimmed)}"


def count(amount: float, noun: str) -> str:
    """Format a count with its noun."""
    return f"{amount:,.0f} {noun}{'' if round(amount) == 1 else 's'}"


def joined(words: Sequence[str]) -> str:
    """Return words as a list with commas and "and"."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def capitalized(text: str) -> str:
    """Return text with an upper-case first letter."""
    return text[:1].upper() + text[1:]
