"""The paper's mice, counted by animal: 267 and 135 rows, but 18 and 9 animals."""

import numpy as np
import pytest

from helpers import Mice, quiet
from standout._dpca import DPCA
from standout.errors import OverfitWarning, RankWarning

pytestmark = pytest.mark.data


@pytest.fixture(scope="module", params=["c-CS-s", "c-SC-s"])
def mice(request, real_data):
    return Mice(real_data("Data_Cortex_Nuclear.csv"), request.param)


def test_the_rows_are_those_of_the_paper(mice):
    assert len(mice.target) == 267 and len(mice.background) == 135
    assert len(set(mice.mice)) == 18 and len(set(mice.background_mice)) == 9
    assert 60 < len(mice.names) < 78


@quiet
def test_a_duplicated_protein_changes_nothing(mice):
    twin, other = mice.names.index("ARC_N"), mice.names.index("pS6_N")
    np.testing.assert_array_equal(mice.target[:, twin], mice.target[:, other])
    kept = mice.fit(n_components=5, shrinkage=None)
    alone = DPCA(5, shrinkage=None).fit(
        np.delete(mice.target, other, axis=1), background=np.delete(mice.background, other, axis=1)
    )
    np.testing.assert_allclose(kept.ratios_, alone.ratios_, rtol=1e-10)
    assert np.isfinite(kept.ratios_).all() and kept.regime_ == "exact"


def test_135_rows_of_9_mice_count_between_9_and_135_units(mice):
    with (
        pytest.warns(OverfitWarning, match="independent background units"),
        pytest.warns(RankWarning, match="identical"),
    ):
        model = DPCA(shrinkage=None).fit(
            mice.target, background=mice.background, groups=mice.mice, background_groups=mice.background_mice
        )
    assert np.isnan(model.noise_edge_) and np.isnan(model.p_value_)
    (_, counts), *_ = model._model.background_counts
    assert counts.rows == 135 and 9 <= counts.units < 68


@quiet
def test_the_ratio_in_the_sample_is_far_above_the_one_held_out_by_mouse(mice):
    inside, outside = [], []
    animals, others = np.unique(mice.mice), np.unique(mice.background_mice)
    for fold in range(3):
        left = np.isin(mice.mice, animals[fold::3]), np.isin(mice.background_mice, others[fold::3])
        model = DPCA(1, shrinkage=None).fit(mice.target[~left[0]], background=mice.background[~left[1]])
        inside.append(np.log(model.ratios_[0]))
        held_out = [model.transform(rows[out]) for rows, out in zip((mice.target, mice.background), left, strict=True)]
        outside.append(np.log(held_out[0].var() / held_out[1].var()))
    assert np.mean(inside) > np.mean(outside) + np.log(10)
