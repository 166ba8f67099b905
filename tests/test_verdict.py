"""Numbers, counts and p-values as text."""

import math

import pytest

from standout._verdict import count, number, p_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (11.249, "11.2"),
        (0.00012345, "0.000123"),
        (12345.6, "12,346"),
        (2.0, "2"),
        (-2.5, "−2.5"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (math.nan, "–"),
    ],
)
def test_numbers_have_three_digits_or_all_of_a_large_number(value, text):
    assert number(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.1, "0.100"), (111, "111"), (0, "0"), (12345.6, "12,346")])
def test_numbers_of_a_table_keep_trailing_zeros(value, text):
    assert number(value, trimmed=False) == text


def test_counts_agree_with_their_noun():
    assert [count(amount, "row") for amount in (1, 2, 12000)] == ["1 row", "2 rows", "12,000 rows"]


@pytest.mark.parametrize(("value", "text"), [(3e-12, "p < 0.0001"), (0.02, "p = 0.02"), (0.0321, "p = 0.032")])
def test_p_values_are_formatted_no_smaller_than_they_are_accurate(value, text):
    assert p_text(value) == text.replace(" ", "\N{NO-BREAK SPACE}")
