"""Numbers and names as pictures and reports write them."""

from __future__ import annotations

import math


def number(value: float, *, trimmed: bool = True) -> str:
    """Write a number with three or more digits, for readers; in tables without trimming zeros at the end.

    Examples
    --------
    >>> [number(value) for value in (11.249, 0.00012345, 12345.6, 2.0, float("inf"), float("nan"))]
    ['11.2', '0.000123', '12,346', '2', '∞', '–']
    >>> number(0.1, trimmed=False), number(111, trimmed=False)
    ('0.100', '111')
    """
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if 1000 <= abs(value) < 1e7:
        return f"{value:,.0f}".replace("-", "−")
    text = f"{value:.3g}" if trimmed or value == 0 else f"{value:#.3g}".rstrip(".")
    return text.replace("-", "−")


def count(amount: float, noun: str) -> str:
    """Write how many there are of something.

    Examples
    --------
    >>> count(1, "row"), count(12000, "row")
    ('1 row', '12,000 rows')
    """
    return f"{amount:,.0f} {noun}{'' if round(amount) == 1 else 's'}"


def shortened(text: str, most: int = 40) -> str:
    """Cut a long name in the middle: names of one kind often differ at their end.

    Examples
    --------
    >>> shortened("phosphorylated_glycogen_synthase_kinase_3_beta", 21)
    'phosphoryl…ase_3_beta'
    """
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"
