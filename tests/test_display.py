"""Results as text and, in notebooks, as small well-formed tables, with everything from the data escaped."""

import copy
import math
import pickle
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

import standout
from helpers import quiet
from standout import CPCA, DPCA, KernelDPCA
from standout._display import count, number
from standout.errors import visible

pytestmark = quiet

HOSTILE = "<script>alert('x')</script> & $a$ \"b\""
RNG = np.random.default_rng(0)
NAMES = [HOSTILE, "b", "c", "d", "e"]
TARGET = pd.DataFrame(RNG.normal(size=(120, 5)) * [4, 1, 1, 1, 1], columns=NAMES)
BACKGROUND = pd.DataFrame(RNG.normal(size=(200, 5)), columns=NAMES)


def parsed(html):
    """Return the root of well-formed HTML, in which no tag came from the data."""
    root = ElementTree.fromstring(html.replace("<br>", "<br/>"))
    tags = {element.tag for element in root.iter()}
    assert tags <= {"div", "p", "strong", "br", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"}
    assert "mathjax_ignore" in root.get("class")
    return root


def cells(html, tag="td"):
    return [element.text for element in parsed(html).iter(tag)]


def assessed():
    return standout.assess(TARGET, BACKGROUND, n_components=2, n_permutations=19, n_bootstrap=5)


@pytest.mark.parametrize("estimator", [DPCA(2), CPCA(2, alpha=1.0), KernelDPCA(2)], ids=["DPCA", "CPCA", "KernelDPCA"])
def test_a_summary_is_a_table_of_components(estimator):
    model = estimator.fit(TARGET, background={HOSTILE: BACKGROUND, "other": BACKGROUND[::-1]})
    summary = model.summary()
    html = summary._repr_html_()
    assert model.get_feature_names_out()[1] in cells(html, "th")
    assert f"{model.ratios_[0]:.4g}" in cells(html)
    assert HOSTILE not in html and "&lt;script&gt;" in html


def test_a_summary_without_background_is_a_table_of_variances():
    html = DPCA(2).fit(TARGET).summary()._repr_html_()
    assert cells(html, "th")[:3] == ["component", "variance", "sd"]


def test_a_summary_is_still_text():
    summary = DPCA(2).fit(TARGET).summary()
    assert isinstance(summary, str) and repr(summary) == str(summary) and not str(summary).startswith("<")
    for again in (pickle.loads(pickle.dumps(summary)), copy.deepcopy(summary)):
        assert again == summary and again._repr_html_() == summary._repr_html_()


def test_text_without_tables_has_no_html():
    assert DPCA(2).fit(TARGET).methods_text()._repr_html_() is None


def test_a_comparison_is_a_table_of_methods():
    found = standout.compare(TARGET, BACKGROUND, n_representatives=2)
    assert isinstance(found, list)
    html = found._repr_html_()
    assert {result.name for result in found} <= set(cells(html, "th"))
    assert f"{found[0].share:.1%}" in cells(html) and "held-out ratios" in found.summary()


def test_a_path_is_a_table_of_its_representatives():
    found = standout.path(TARGET.to_numpy(), BACKGROUND.to_numpy(), n_representatives=3)
    html = found._repr_html_()
    assert [cell for cell in cells(html, "th") if cell[0].isdigit()] == [
        f"{value:.4g}" for value in found.representative_values
    ]


def test_an_assessment_has_a_table_for_every_result_and_the_verdict():
    found = assessed()
    html = found._repr_html_()
    for part in (found.test, found.held_out, found.stability):
        assert parsed(part._repr_html_()).find(".//table") is not None
        assert part.summary()._repr_html_() == part._repr_html_()
    assert len(list(parsed(html).iter("table"))) >= 3
    assert found.verdict().headline in html
    assert HOSTILE not in html and "&lt;script&gt;" in found.stability._repr_html_()
    assert found.summary()._repr_html_() == html


def test_an_assessment_without_results_is_shown_too():
    assert parsed(standout.inference.Assessment()._repr_html_()) is not None


def test_replicates_are_shown_with_what_to_do():
    rows = np.repeat(RNG.normal(size=(9, 8)), 5, axis=0) + 0.3 * RNG.normal(size=(45, 8))
    finding = standout.find_replicates(rows, [f"m<b>{unit}_{run}" for unit in range(9) for run in range(5)])
    html = finding._repr_html_()
    assert cells(html, "th") == ["rows", "units", "45"] and cells(html) == ["9"]
    assert [note.text for note in parsed(html).iter("li")] == [finding.text]


def test_long_tables_are_cut():
    model = DPCA(None).fit(RNG.normal(size=(300, 60)), background=RNG.normal(size=(900, 60)))
    html = model.summary()._repr_html_()
    assert len(list(parsed(html).iter("tr"))) < 30 and "and 40 more" in html


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


def test_text_and_html_have_the_same_results():
    for found in (assessed().summary(), DPCA(2).fit(TARGET, background=BACKGROUND).summary()):
        shown = [cell for cell in cells(found.html) if cell is not None]
        assert shown and all(visible(cell, lines=False) in found for cell in shown)
