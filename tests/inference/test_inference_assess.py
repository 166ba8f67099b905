"""All questions at once, and what is said where one of them has no answer."""

import numpy as np
import pytest

from standout._cpca import CPCA
from standout._dpca import DPCA
from standout.errors import StandoutWarning
from standout.inference.assess import assess
from standout.inference.held_out import held_out_ratio
from standout.inference.permutation import permutation_test

quiet = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
LITTLE = {"n_permutations": 19, "n_bootstrap": 5}


@pytest.fixture
def pair():
    rng = np.random.default_rng(0)
    return rng.normal(size=(40, 4)) * [1, 1, 3, 1], rng.normal(size=(48, 4))


def test_the_parts_are_those_of_the_functions(pair):
    found = assess(*pair, estimator=DPCA(3, shrinkage="oas"), **LITTLE)
    alone = permutation_test(*pair, n_components=3, shrinkage="oas", n_permutations=19)
    np.testing.assert_array_equal(found.test.null, alone.null)
    assert len(found.held_out.ratios) == len(found.stability.median) == 3


def test_half_a_design_is_refused(pair, refused):
    refused(lambda: assess(*pair, background_pairs=range(48)), "background_pairs")
    both = {"pairs": range(40), "background_pairs": range(48)}
    refused(lambda: assess(*pair, **both, groups=range(40)), "both given")


@pytest.mark.parametrize("estimator", [CPCA(1, alpha=1.0), DPCA(1, centering="background")])
def test_a_test_that_says_nothing_of_the_components_is_left_out(pair, estimator):
    with pytest.warns(StandoutWarning, match="was left out"):
        found = assess(*pair, estimator=estimator, **LITTLE)
    assert found.test is None and found.held_out is not None


def test_what_is_impossible_does_not_take_the_rest_along(pair):
    groups = {"groups": np.arange(40) % 3, "background_groups": 9 + np.arange(48) % 3}
    with pytest.warns(StandoutWarning, match="held-out ratio was left out"):
        found = assess(*pair, **groups, **LITTLE)
    assert found.held_out is None and found.test is not None


@quiet
def test_a_background_that_does_not_vary_is_no_proof_of_nothing(pair):
    target, background = pair
    found = held_out_ratio(target, background * [1, 1, 0, 1] + 5, estimator=DPCA(1, shrinkage=None))
    assert np.isinf(found.fold_ratios).any()
    assert "does not vary" in found.summary() and "nothing specific" not in found.summary()


def test_of_subjects_with_many_rows_as_many_take_part_as_the_others_have(pair, remedy):
    target, background = pair
    groups = {"groups": np.arange(40) // 10, "background_groups": 9 + np.arange(48) // 2}
    found = permutation_test(target, background, n_permutations=19, **groups)
    (note,) = [text for text in found.notes if "take part" in text]
    assert note.startswith("56 of 88 rows take part, at most 2 of each subject")
    remedy(note)
    even = {"groups": np.arange(40) // 4, "background_groups": 99 + np.arange(48) // 4}
    assert not [
        text for text in permutation_test(target, background, n_permutations=19, **even).notes if "each" in text
    ]
