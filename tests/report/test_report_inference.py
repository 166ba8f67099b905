"""The section on significance and stability: its tables hold the numbers of the results, which change the verdict."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from reports import HOSTILE, written
from standout._display import number
from standout._dpca import DPCA
from standout._verdict import stable_words, verdict
from standout.inference import ReplicateFinding
from standout.inference.assess import Assessment, assess

pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")

NAMES = [f"{HOSTILE[i]}{i}" for i in range(5)]
RNG = np.random.default_rng(0)
BACKGROUND = pd.DataFrame(RNG.normal(size=(90, 5)), columns=NAMES)
TARGET = pd.DataFrame(RNG.normal(size=(70, 5)) * [1, 1, 4, 2, 1], columns=NAMES)


@pytest.fixture(scope="module")
def model():
    return DPCA(2).fit(TARGET, background=BACKGROUND)


@pytest.fixture(scope="module")
def trust():
    found = assess(TARGET, BACKGROUND, n_permutations=49, n_bootstrap=20)
    finding = ReplicateFinding(70, 7, "a rule", 0.1, np.array(["a"] * 70), f"the rows look replicated {HOSTILE[0]}")
    return replace(found, test=replace(found.test, notes=HOSTILE), replicates=(finding,))


@pytest.fixture(scope="module")
def page(model, trust, tmp_path_factory):
    return written(tmp_path_factory.mktemp("report") / "page.html", model, TARGET, BACKGROUND, trust=trust)


def table(page, *headings):
    return next(table[1:] for table in page.tables if set(headings) <= set(table[0]))


def cell(value):
    return number(float(value), trimmed=False)


def test_the_section_follows_the_scores_and_is_absent_without_an_assessment(page, model, tmp_path):
    sections = [attributes["id"] for attributes in page.all("section") if "id" in attributes]
    assert sections[:3] == ["scores", "inference", "ratios"]
    without = written(tmp_path / "page.html", model, TARGET, BACKGROUND)
    assert "Significance and stability" in page.text and "Significance and stability" not in without.text
    assert "null" in page.figures and "null" not in without.figures
    only = written(tmp_path / "only.html", model, TARGET, BACKGROUND, trust=Assessment())
    assert "Significance and stability" not in only.text


def test_the_table_of_the_test_holds_ratio_quantile_and_p(page, trust):
    test = trust.test
    edges = np.quantile(test.null, 0.95, axis=1, method="higher")
    expected = [[f"dpca{k}", cell(test.ratios[k]), cell(edges[k]), number(float(test.p_values[k]))] for k in range(2)]
    assert table(page, "tested ratio") == expected


def test_the_figure_counts_every_permutation_and_marks_the_observed_ratio(page, trust):
    figure = page.figures["null"]
    (bars,) = figure["data"]
    assert sum(bars["y"]) == 49
    x, width = np.array(bars["x"]), np.array(bars["width"])
    edges = np.append(x - width / 2, x[-1] + width[-1] / 2)
    assert np.isclose(edges[[0, -1]], [trust.test.null[0].min(), trust.test.null[0].max()]).all()
    assert figure["layout"]["shapes"][0]["x0"] == trust.test.ratios[0]
    assert figure["layout"]["annotations"][0]["text"] == f"observed {number(trust.test.ratios[0])}"


def test_the_table_of_held_out_ratios_holds_both_ratios_and_the_interval(page, trust):
    held = trust.held_out
    training = np.prod(held.training_ratios, axis=0) ** (1 / len(held.training_ratios))
    for k, row in enumerate(table(page, "held-out ratio")):
        ends = f"{cell(held.low[k])} to {cell(held.high[k])}"
        assert row[:4] == [f"dpca{k}", cell(training[k]), cell(held.ratios[k]), ends]
        assert (row[4] == "above one") == (held.low[k] > 1)
    assert held.interval in page.text


def test_the_tables_of_stability_hold_correlations_and_the_features_with_their_signs(page, trust):
    found = trust.stability
    for k, row in enumerate(table(page, "correlation")):
        ends = f"{found.low[k]:.2f} to {found.high[k]:.2f}"
        assert row == [f"dpca{k}", f"{found.median[k]:.2f}", ends, stable_words(found.low[k])]
        assert row[3] in str(found.summary())
    tables = [table[1:] for table in page.tables if "same sign in" in table[0]]
    assert len(tables) == 2
    for k, rows in enumerate(tables):
        order = np.argsort(-np.abs(found.weights[k]))
        assert [row[1] for row in rows] == [cell(found.weights[k, j]) for j in order]
        ends = [f"{cell(found.weight_low[k, j])} to {cell(found.weight_high[k, j])}" for j in order]
        assert [row[2] for row in rows] == ends
        assert [row[3] for row in rows] == [f"{int(100 * found.same_sign[k, j] + 1e-9)} %" for j in order]
    titles = [attributes["title"] for attributes in page.all("th") if "title" in attributes]
    assert titles[: len(NAMES)] == [NAMES[j] for j in np.argsort(-np.abs(found.weights[0]))]


def test_text_of_notes_names_and_replicates_is_escaped(page):
    assert page.all("img") == [] and len(page.all("script")) == 3
    shown = " ".join(page.text.split())
    for text in HOSTILE:
        assert " ".join(text.split()) in shown


def test_replicates_withhold_the_tick_and_are_the_first_reason(page):
    assert "verdict not_judged" in [attributes.get("class") for attributes in page.all("section")]
    headline, doubt = page.text.index("Cannot be judged: rows look"), page.text.index("The rows look replicated")
    assert headline < doubt < page.text.index("Permutation test: p = 0.02")
    assert page.text.count("The rows look replicated") == 1


def test_the_page_has_the_verdict_of_all_results_and_the_next_step(model, trust, tmp_path):
    clean = replace(trust, replicates=())
    page = written(tmp_path / "page.html", model, TARGET, BACKGROUND, trust=clean)
    found = verdict(model._solved(), clean)
    assert found.kind == "stands_out" and found.headline in page.text
    assert all(reason in page.text for reason in found.reasons)
    fitted = written(tmp_path / "fit.html", model, TARGET, BACKGROUND, test_command="standout test a.csv -b b.csv")
    assert "May stand out" in fitted.text and "standout test a.csv -b b.csv" in fitted.text
    assert "To confirm it: standout.assess(" in " ".join(
        written(tmp_path / "python.html", model, TARGET, BACKGROUND).text.split()
    )


def test_another_object_than_an_assessment_is_refused(model, trust, refused, tmp_path):
    refused(
        lambda: written(tmp_path / "page.html", model, TARGET, BACKGROUND, trust=trust.test), "trust", "Permutation"
    )
