"""The paper's mice, resampled: significant and stable by row (135 in the background), not by animal (nine)."""

import numpy as np
import pytest

from helpers import Mice
from standout.inference.held_out import held_out_ratio
from standout.inference.permutation import permutation_test
from standout.inference.stability import stability

pytestmark = [pytest.mark.data, pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")]


@pytest.fixture(scope="module", params=["c-CS-s", "c-SC-s"])
def mice(request, real_data):
    return Mice(real_data("Data_Cortex_Nuclear.csv"), request.param)


def animals(mice):
    return {"groups": mice.mice, "background_groups": mice.background_mice}


def test_ratios_are_significant_by_row_and_far_less_by_animal(mice, remedy):
    by_row = permutation_test(mice.target, mice.background, n_permutations=199)
    by_animal = permutation_test(mice.target, mice.background, n_permutations=199, **animals(mice))
    assert by_row.p_values[0] == 0.005 and by_animal.p_values[0] > 5 * by_row.p_values[0]
    assert by_row.ratios[0] == pytest.approx(by_animal.ratios[0], rel=1e-12)
    assert by_animal.units == (18, 9)
    for note in by_animal.notes:  # where nothing is significant
        assert by_animal.p_values[0] > 0.05 and note.startswith("9 background groups leave 8 degrees of freedom")
        remedy(note)


def test_the_held_out_ratio_collapses_when_whole_animals_are_held_out(mice):
    by_row = held_out_ratio(mice.target, mice.background)
    by_animal = held_out_ratio(mice.target, mice.background, **animals(mice))
    assert by_row.low[0] > 10 * by_animal.low[0]
    assert by_animal.ratios[0] < by_row.ratios[0] / 10


def test_components_are_stable_by_row_and_unstable_by_animal(mice):
    by_row = stability(mice.target, mice.background, n_components=1, n_bootstrap=60)
    by_animal = stability(mice.target, mice.background, n_components=1, n_bootstrap=60, **animals(mice))
    assert by_row.low[0] > 0.85 > 0.8 > by_animal.low[0]
    assert np.median(by_animal.angles) > np.median(by_row.angles)
