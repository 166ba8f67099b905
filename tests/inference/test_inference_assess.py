"""assess: all analyses at once, and warnings for those that cannot run."""

import numpy as np
import pandas as pd
import pytest

from standout._cpca import CPCA
from standout._dpca import DPCA
from standout.errors import StandoutWarning
from standout.inference.assess import assess
from standout.inference.held_out import held_out_ratio
from standout.inference.permutation import permutation_test

quiet = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
FAST = {"n_permutations": 19, "n_bootstrap": 5}


@pytest.fixture
def pair():
    rng = np.random.default_rng(0)
    return rng.normal(size=(40, 4)) * [1, 1, 3, 1], rng.normal(size=(48, 4))


def test_the_summary_ends_with_the_verdict_on_all_results(pair):
    found = assess(*pair, n_permutations=99, n_bootstrap=5)
    text = found.summary()
    assert found.verdict().kind == "stands_out"
    parts = [str(part.summary()) for part in (found.test, found.held_out, found.stability)]
    assert text == "\n\n".join([*parts, found.verdict().summary()])
    assert not any("stand" in part for part in parts)
    np.testing.assert_allclose(found.estimator.ratios_, DPCA().fit(pair[0], background=pair[1]).ratios_)


def test_assess_returns_what_the_single_functions_return(pair):
    found = assess(*pair, estimator=DPCA(3, shrinkage="oas"), **FAST)
    alone = permutation_test(*pair, n_components=3, shrinkage="oas", n_permutations=19)
    np.testing.assert_array_equal(found.test.null, alone.null)
    assert len(found.held_out.ratios) == len(found.stability.median) == 3


@quiet
def test_every_analysis_uses_the_common_features_if_the_estimator_does(pair):
    target, background = (
        pd.DataFrame(rows, columns=list(names)) for rows, names in zip(pair, ("abcd", "abce"), strict=True)
    )
    found = assess(target, background, estimator=DPCA(1, features="common"), **FAST)
    assert found.test.rank == found.held_out.estimators[0].n_features_in_ == found.stability.weights.shape[1] == 3


def test_incomplete_or_conflicting_pairs_and_groups_are_refused(pair, refused):
    refused(lambda: assess(*pair, background_pairs=range(48)), "background_pairs")
    both = {"pairs": range(40), "background_pairs": range(48)}
    refused(lambda: assess(*pair, **both, groups=range(40)), "both given")


@pytest.mark.parametrize("estimator", [CPCA(1, alpha=1.0), DPCA(1, centering="background")])
def test_the_permutation_test_is_skipped_for_estimators_it_does_not_apply_to(pair, estimator):
    with pytest.warns(StandoutWarning, match="permutation test was skipped"):
        found = assess(*pair, estimator=estimator, **FAST)
    assert found.test is None and found.held_out is not None


@quiet
def test_an_analysis_with_too_few_rows_is_skipped_and_the_others_run(pair):
    groups = {"groups": np.arange(40) % 3, "background_groups": 9 + np.arange(48) % 3}
    with pytest.warns(StandoutWarning, match="held_out_ratio was skipped"):
        found = assess(*pair, **groups, **FAST)
    assert found.held_out is None and found.test is not None


@quiet
def test_a_constant_background_is_not_reported_as_nothing_specific(pair):
    target, background = pair
    found = held_out_ratio(target, background * [1, 1, 0, 1] + 5, estimator=DPCA(1, shrinkage=None))
    assert np.isinf(found.fold_ratios).any()
    assert "does not vary" in found.summary() and "nothing specific" not in found.summary()


def test_subjects_with_many_rows_use_as_many_as_the_others_have(pair, remedy):
    target, background = pair
    groups = {"groups": np.arange(40) // 10, "background_groups": 9 + np.arange(48) // 2}
    found = permutation_test(target, background, n_permutations=19, **groups)
    (note,) = [text for text in found.notes if "are used" in text]
    assert note.startswith("56 of 88 rows are used, at most 2 of each subject")
    remedy(note)
    equal = {"groups": np.arange(40) // 4, "background_groups": 99 + np.arange(48) // 4}
    assert not [
        text for text in permutation_test(target, background, n_permutations=19, **equal).notes if "each" in text
    ]
