"""compare: ratios, explained variance and silhouettes are correct for data in memory, on a cluster, and noise."""

import numpy as np
import pytest

import standout
from standout._cpca import CPCA
from standout._dpca import DPCA
from standout.errors import InputError
from standout.inference.held_out import held_out_ratio

da = pytest.importorskip("dask.array", reason="dask is not installed")


def by_hand(rows, estimator):
    """Return the share of the variance in rows rebuilt from their scores."""
    rebuilt = estimator.inverse_transform(estimator.transform(rows))
    return rebuilt.var(axis=0).sum() / rows.var(axis=0).sum()


def test_shares_and_ratios_are_those_of_the_rebuilt_rows(data):
    for result in standout.compare(data.target, data.background, n_representatives=2):
        assert result.share == pytest.approx(by_hand(data.target, result.estimator), rel=1e-9)
        of_target, of_background = (result.estimator.transform(rows).var(axis=0) for rows in data)
        np.testing.assert_allclose(result.sample_ratios, of_target / of_background, rtol=1e-9)
        np.testing.assert_array_equal(result.ratios, result.estimator.ratios_)
        assert np.isnan(result.silhouette)


def test_every_method_is_held_out_by_the_same_folds(data):
    found = {result.name: result for result in standout.compare(data.target, data.background, n_representatives=2)}
    for name, estimator in (("PCA", CPCA(alpha=0.0)), ("dPCA by ratio", DPCA())):
        expected = held_out_ratio(data.target, data.background, estimator=estimator)
        np.testing.assert_allclose(found[name].held_out.ratios, expected.ratios, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
def test_no_method_has_a_larger_sample_ratio_than_dpca_has_without_shrinkage():
    rng = np.random.default_rng(0)
    target, background = rng.normal(size=(60, 12)), rng.normal(size=(40, 12))  # few rows: dPCA shrinks
    largest = DPCA(1, shrinkage=None).fit(target, background=background).ratios_[0]
    found = {result.name: result for result in standout.compare(target, background)}
    assert all(result.sample_ratios[0] <= largest * (1 + 1e-9) for result in found.values() if len(result.ratios))
    assert found["dPCA by ratio"].ratios[0] < found["dPCA by ratio"].sample_ratios[0]  # against a shrunk background


def test_rows_on_a_cluster_of_unknown_number_give_the_results_of_rows_in_memory(data):
    labels = (data.target[:, 2] > 30).astype(int)
    rows = da.from_array(data.target, chunks=(61, 3))
    plain = standout.compare(data.target, data.background, labels=labels, n_representatives=2)
    for lazy in (rows, rows[rows[:, 0] > -1]):
        found = standout.compare(lazy, data.background, labels=da.from_array(labels), n_representatives=2)
        for one, other in zip(found, plain, strict=True):
            assert one.name == other.name
            assert one.share == pytest.approx(other.share, rel=1e-9)
            assert one.silhouette == pytest.approx(other.silhouette, rel=1e-6)
            np.testing.assert_allclose(one.ratios, other.ratios, rtol=1e-9)
            assert one.held_out is None and other.held_out is not None  # rows are not collected


def test_a_method_that_finds_no_component_has_share_zero():
    rng = np.random.default_rng(0)
    target, background = rng.normal(size=(300, 5)), rng.normal(size=(400, 5))
    for rows in (target, da.from_array(target, chunks=(100, -1))):
        results = standout.compare(rows, background, labels=[0, 1] * 150)
        last = results[-1]
        assert last.name == "dPCA by signal" and last.estimator.n_components_ == 0
        assert last.share == 0 and len(last.ratios) == 0 and np.isnan(last.silhouette)
        assert all(result.share > 0 and np.isfinite(result.silhouette) for result in results[:-1])


def test_scoring_a_model_without_components_is_refused(remedy):
    rng = np.random.default_rng(0)
    target, background = rng.normal(size=(300, 5)), rng.normal(size=(400, 5))
    with pytest.warns(standout.errors.StandoutWarning):
        model = DPCA(2, axes="signal").fit(target, background=background)
    with pytest.raises(InputError, match="no components") as error:
        model.score(target, background=background)
    remedy(error)
