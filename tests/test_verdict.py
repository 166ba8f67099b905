"""The verdict follows its table of cases; numbers, counts and p-values as text."""

import re
from dataclasses import replace
from itertools import product
from typing import get_args

import numpy as np
import pytest

from standout._spectrum import count_components
from standout._verdict import Kind, p_text, verdict
from standout.inference import ReplicateFinding
from standout.inference.assess import Assessment
from verdict_cases import (
    ABOVE,
    CASES,
    NOISE,
    REPLICATES,
    SERIAL,
    SIGNIFICANT,
    TABLE,
    dpca,
    held_out,
    permutation,
    stability,
)


@pytest.mark.parametrize(
    ("value", "text"), [(3e-12, "p = 3e-12"), (0.0, "p < 1e-12"), (0.02, "p = 0.02"), (0.0321, "p = 0.032")]
)
def test_p_values_are_formatted_no_smaller_than_they_are_accurate(value, text):
    assert p_text(replace(dpca(), known_p_value=value)) == text
    grouped = replace(dpca(), known_p_value=value, target_counts=replace(dpca().target_counts, units=40.5))
    assert p_text(grouped) == ("p < 1e-4" if value < 1e-4 else text)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.evidence)
def test_the_verdict_follows_the_table_of_cases(case):
    found = verdict(case.model, case.assessment)
    assert (found.kind, found.n_established) == (case.kind, case.n_established)
    assert found.headline.startswith(case.start)


def test_every_kind_has_a_case():
    assert {case.kind for case in CASES} == set(get_args(Kind))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.evidence)
def test_without_a_test_nothing_stands_out(case):
    assessment = case.assessment and replace(case.assessment, test=None)
    assert verdict(case.model, assessment).kind != "stands_out"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.evidence)
def test_doubts_are_the_first_reasons_and_the_most_serious_comes_first(case):
    doubts = [note.text for note in (REPLICATES, SERIAL, TABLE) if note in case.model.notes]
    found = verdict(case.model, case.assessment)
    assert list(found.reasons[: found.n_doubts]) == doubts


@pytest.mark.parametrize("p_values", list(product((0.01, 0.4), repeat=3)))
@pytest.mark.parametrize("low", list(product((0.5, 3.0), repeat=3)))
def test_no_component_is_both_supported_and_not_established(p_values, low):
    sequential = np.maximum.accumulate(p_values)
    found = verdict(dpca(), Assessment(permutation(*sequential), held_out(*low)))
    expected = 0
    while expected < 3 and sequential[expected] <= 0.05 and low[expected] > 1:
        expected += 1
    sentences = [reason for reason in found.reasons if "significant in the permutation test" in reason]
    if found.kind != "stands_out":
        assert sentences == [] and expected == 0
        return
    (sentence,) = sentences
    supported, _, rest = sentence.partition(";")
    assert found.n_established == expected
    assert re.findall("dpca[0-9]", found.headline) == re.findall("dpca[0-9]", supported)
    assert re.findall("dpca[0-9]", supported + rest) == ["dpca0", "dpca1", "dpca2"]
    assert len(re.findall("dpca[0-9]", supported)) == expected


def test_the_formula_supports_as_many_components_as_its_sequential_tests():
    model = dpca()
    units = model.target_counts.units, model.background_units
    expected = count_components(model.unshrunk_ratios, model.rank, *units)
    assert expected == 2
    reasons = " ".join(verdict(model).reasons)
    assert "Components dpca0 and dpca1 are significant by the formula; dpca2 is not established." in reasons


def test_a_formula_that_the_test_contradicts_is_a_reason():
    disagree = "the test decides"
    for model, test, expected in ((dpca(), NOISE, True), (dpca(0.3), SIGNIFICANT, True), (dpca(), SIGNIFICANT, False)):
        assert (disagree in " ".join(verdict(model, Assessment(test, ABOVE)).reasons)) == expected


def test_an_unstable_direction_is_a_caution_if_its_component_is_supported():
    found = verdict(dpca(), Assessment(SIGNIFICANT, ABOVE, stability(0.3, 0.95, 0.1)))
    unstable = [reason for reason in found.reasons if "varies between bootstrap samples" in reason]
    assert len(unstable) == 1 and "dpca0" in unstable[0] and "do not interpret its features" in unstable[0]


def test_the_next_step_is_given_in_python_and_as_a_command():
    step = verdict(dpca(), command="standout test a.csv -b b.csv").next_step
    assert step.text() == "To confirm it: standout.assess(target, background, n_components=3)"
    assert step.text(on_command_line=True) == "To confirm it: standout test a.csv -b b.csv"
    more = verdict(
        dpca(), Assessment(permutation(0.1, permutations=9), ABOVE), "standout test a.csv -b b.csv"
    ).next_step
    assert "n_permutations=999" in more.python and more.command.endswith("b.csv --permutations 999")
    grouped = verdict(dpca(notes=(REPLICATES,)), command="standout test a.csv -b b.csv").next_step
    assert "groups=groups" in grouped.python and grouped.command.endswith("--groups COLUMN")
    assert verdict(dpca(), Assessment(SIGNIFICANT, ABOVE)).next_step is None


def test_a_p_value_too_close_to_the_level_asks_for_more_permutations():
    near = verdict(dpca(), Assessment(permutation(0.04, 0.6, permutations=99), ABOVE))
    assert "too close to 5 %" in near.reasons[0] and "--permutations 999" in near.next_step.command
    far = verdict(dpca(), Assessment(SIGNIFICANT, ABOVE))
    assert "too close" not in " ".join(far.reasons)


def test_replicates_found_by_the_assessment_count_once():
    finding = ReplicateFinding(45, 9, "a rule", 0.1, np.array(["a"] * 45), REPLICATES.text)
    for model in (dpca(), dpca(notes=(REPLICATES,))):
        found = verdict(model, Assessment(SIGNIFICANT, ABOVE, replicates=(finding,)))
        assert found.kind == "not_judged" and found.reasons.count(REPLICATES.text) == 1


def test_the_noise_edge_is_not_called_a_five_percent_line():
    (reason,) = [reason for reason in verdict(dpca()).reasons if "noise edge" in reason]
    assert "exceeded by pure noise in about 6–15 % of fits" in reason
