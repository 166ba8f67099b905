"""Methods side by side: each view says what its components hold, whatever the data are and wherever they lie."""

import numpy as np
import pytest

import standout
from standout._dpca import DPCA
from standout.errors import InputError

da = pytest.importorskip("dask.array", reason="dask is not installed")


def by_hand(rows, estimator):
    """Return the share of the variance that is kept when rows are rebuilt from their scores."""
    rebuilt = estimator.inverse_transform(estimator.transform(rows))
    return rebuilt.var(axis=0).sum() / rows.var(axis=0).sum()


def test_shares_and_ratios_are_those_of_the_reconstructed_rows(data):
    for view in standout.compare(data.target, data.background, n_representatives=2):
        assert view.share == pytest.approx(by_hand(data.target, view.estimator), rel=1e-9)
        of_target, of_background = (view.estimator.transform(rows).var(axis=0) for rows in data)
        np.testing.assert_allclose(view.ratios, of_target / of_background, rtol=1e-9)
        assert np.isnan(view.silhouette)


def test_dask_rows_of_unknown_number_compare_as_in_memory(data):
    labels = (data.target[:, 2] > 30).astype(int)
    rows = da.from_array(data.target, chunks=(61, 3))
    plain = standout.compare(data.target, data.background, labels=labels, n_representatives=2)
    for spread in (rows, rows[rows[:, 0] > -1]):
        found = standout.compare(spread, data.background, labels=da.from_array(labels), n_representatives=2)
        for one, other in zip(found, plain, strict=True):
            assert one.name == other.name
            assert one.share == pytest.approx(other.share, rel=1e-9)
            assert one.silhouette == pytest.approx(other.silhouette, rel=1e-6)
            np.testing.assert_allclose(one.ratios, other.ratios, rtol=1e-9)


def test_a_method_without_components_has_share_zero():
    rng = np.random.default_rng(0)
    target, background = rng.normal(size=(300, 5)), rng.normal(size=(400, 5))
    for rows in (target, da.from_array(target, chunks=(100, -1))):
        views = standout.compare(rows, background, labels=[0, 1] * 150)
        last = views[-1]
        assert last.name == "dPCA by signal" and last.estimator.n_components_ == 0
        assert last.share == 0 and len(last.ratios) == 0 and np.isnan(last.silhouette)
        assert all(view.share > 0 and np.isfinite(view.silhouette) for view in views[:-1])


def test_scoring_a_model_without_components_is_an_error(remedy):
    rng = np.random.default_rng(0)
    target, background = rng.normal(size=(300, 5)), rng.normal(size=(400, 5))
    with pytest.warns(standout.errors.StandoutWarning):
        model = DPCA(2, axes="signal").fit(target, background=background)
    with pytest.raises(InputError, match="no components") as told:
        model.score(target, background=background)
    remedy(told)
