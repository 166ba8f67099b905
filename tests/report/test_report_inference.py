"""The section on significance and stability: its tables hold the numbers of the results, which change the verdict."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from reports import HOSTILE, written
from standout._dpca import DPCA
from standout._kernel_dpca import KernelDPCA
from standout._verdict import number, verdict
from standout.inference import ReplicateFinding
from standout.inference.assess import Assessment, assess
from standout.inference.permutation import permutation_test
from standout.inference.stability import stable_words

pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")

NAMES = [f"{HOSTILE[i]}{i}" for i in range(5)]
RNG = np.random.default_rng(0)
BACKGROUND = pd.DataFrame(RNG.normal(size=(90, 5)), columns=NAMES)
TARGET = pd.DataFrame(RNG.normal(size=(70, 5)) * [1, 1, 4, 2, 1], columns=NAMES)
FEW = RNG.normal(size=(8, 30)), RNG.normal(size=(10, 30))  # fewer rows than features: no noise edge


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


@pytest.fixture(scope="module")
def without_edge():
    model = DPCA(1).fit(FEW[0], background=FEW[1])
    assert np.isnan(model.p_value_)
    return model._solved()


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
    expected = [[str(k + 1), cell(test.ratios[k]), cell(edges[k]), number(float(test.p_values[k]))] for k in range(2)]
    assert table(page, "observed ratio") == expected


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
        assert row[:4] == [str(k + 1), cell(training[k]), cell(held.ratios[k]), ends]
        assert (row[4] == "above one") == (held.low[k] > 1)
    assert held.interval in page.text


def test_the_tables_of_stability_hold_correlations_and_the_features_with_their_signs(page, trust):
    found = trust.stability
    for k, row in enumerate(table(page, "correlation")):
        ends = f"{found.low[k]:.2f} to {found.high[k]:.2f}"
        assert row == [str(k + 1), f"{found.median[k]:.2f}", ends, stable_words(found.low[k])]
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


def test_replicated_rows_are_reported_above_the_verdict(page):
    assert "The rows look replicated" in page.text
    assert page.text.index("The rows look replicated") < page.text.index("Significant target-specific variation")


def test_with_a_noise_edge_the_verdict_adds_the_test_and_the_held_out_ratio(page):
    assert "p = 0.02" in page.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "On held-out rows the first component has a ratio of" in page.text


def test_without_a_noise_edge_the_test_decides(without_edge):
    test = permutation_test(*FEW, n_permutations=39)
    assert test.count() == 0
    result = verdict(without_edge, Assessment(test))
    chance = f"(p = {number(float(test.p_values[0]))})".replace(" ", "\N{NO-BREAK SPACE}")
    assert result.kind == "nothing" and chance in result.sentences[0]
    assert result.sentences[0].startswith("Permutation test") and "not significant" in result.sentences[0]
    found = verdict(without_edge, Assessment(replace(test, p_values=np.array([1 / 40]))))
    assert found.kind == "found" and "which is significant" in found.sentences[0]
    assert verdict(without_edge, None).kind == "unknown"


def test_too_few_units_for_a_small_p_value_make_the_verdict_unknown(without_edge):
    groups, others = np.repeat([0, 1], 4), np.repeat([2, 3, 4], [4, 3, 3])
    test = permutation_test(*FEW, groups=groups, background_groups=others)
    assert test.complete and test.smallest_p == 0.1
    result = verdict(without_edge, Assessment(test))
    assert (result.kind, result.headline) == ("unknown", "Too few groups to assess significance")
    assert "No p-value below 0.1 is possible, because only 10 distinct labellings of the groups" in result.sentences[0]


def test_a_noise_edge_that_the_test_contradicts_is_not_significant(model, trust):
    contradicted = Assessment(replace(trust.test, p_values=np.array([0.6, 0.6])))
    result = verdict(model._solved(), contradicted)
    assert (result.kind, result.headline) == ("unknown", "Noise edge and permutation test disagree")
    assert verdict(model._solved(), Assessment(trust.test)).kind == "found"


def test_a_significant_ratio_that_is_not_above_one_on_held_out_rows_is_not_confirmed(model, trust):
    weak = replace(trust.held_out, low=np.array([0.8, 0.8]))
    result = verdict(model._solved(), Assessment(trust.test, weak))
    assert (result.kind, result.headline) == ("unknown", "Significant, but not confirmed on held-out rows")


def test_a_p_value_too_close_to_the_level_is_reported_as_inconclusive(model, trust):
    near = replace(trust.test, p_values=np.array([0.04, 0.6]))
    assert any("too close to 5 %" in text for text in verdict(model._solved(), Assessment(near)).sentences)
    assert not any("too close" in text for text in verdict(model._solved(), Assessment(trust.test)).sentences)


def test_a_linear_test_does_not_change_the_verdict_on_a_kernel(trust):
    kernel = KernelDPCA(1).fit(TARGET.to_numpy(), background=BACKGROUND.to_numpy())
    result = verdict(kernel._solved(), Assessment(trust.test))
    assert result.headline == verdict(kernel._solved(), None).headline
    assert "linear dPCA, not of this kernel" in result.sentences[-1]


def test_another_object_than_an_assessment_is_refused(model, trust, refused, tmp_path):
    refused(
        lambda: written(tmp_path / "page.html", model, TARGET, BACKGROUND, trust=trust.test), "trust", "Permutation"
    )
