"""The attributes that users of scikit-learn's PCA expect, and their counterparts with a background."""

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import standout
from standout import CPCA, DPCA, KernelDPCA, Moments
from standout.errors import InputError

NAMES = ("explained_variance_", "explained_variance_ratio_", "singular_values_", "noise_variance_")
TALL, WIDE, SQUARE = (300, 12), (12, 40), (20, 20)


def rows_of(shape, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape) @ rng.normal(size=(shape[1], shape[1])) + 3


def pair(seed=0, n_features=8):
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(n_features, n_features))
    background = rng.normal(size=(2000, n_features)) @ mixing
    sd = np.ones(n_features)
    sd[:2] = 4, 3
    return (rng.normal(size=(1500, n_features)) * sd) @ mixing, background


@pytest.mark.parametrize("estimator", [DPCA, CPCA])
@pytest.mark.parametrize("shape", [TALL, WIDE, SQUARE])
@pytest.mark.parametrize("count", [1, 3])
def test_without_a_background_the_attributes_equal_those_of_scikit_learn(estimator, shape, count):
    rows = rows_of(shape)
    ours, theirs = estimator(count).fit(rows), PCA(count, svd_solver="full").fit(rows)
    for name in NAMES:
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-9, err_msg=name)
    np.testing.assert_allclose(ours.get_covariance(), theirs.get_covariance(), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(ours.get_precision(), theirs.get_precision(), rtol=1e-7, atol=1e-9)


def test_all_components_leave_no_noise_variance():
    rows = rows_of(TALL)
    model = DPCA(None).fit(rows)
    assert model.noise_variance_ == 0
    np.testing.assert_allclose(model.explained_variance_ratio_.sum(), 1, rtol=1e-12)
    np.testing.assert_allclose(model.get_covariance(), np.cov(rows.T), rtol=1e-9)
    np.testing.assert_allclose(model.get_precision(), np.linalg.inv(np.cov(rows.T)), rtol=1e-7)


def test_variances_of_standout_divide_by_m_and_those_named_as_in_scikit_learn_by_m_minus_1():
    rows = rows_of(TALL)
    model = DPCA(2).fit(rows)
    np.testing.assert_allclose(model.target_variance_, model.transform(rows).var(axis=0))
    np.testing.assert_allclose(model.explained_variance_, model.transform(rows).var(axis=0, ddof=1))


def test_the_attributes_do_not_depend_on_how_the_rows_are_given():
    rows = rows_of(TALL)
    expected = DPCA(3).fit(rows)
    batches = DPCA(3).partial_fit(rows[:100]).partial_fit(rows[100:])
    for other in (
        batches,
        DPCA(3).fit(Moments.of(rows)),
        DPCA(3).fit(sparse.csr_array(rows)),
        DPCA(3, solver="matrix_free").fit(rows),
        DPCA(3, solver="span").fit(rows),
        DPCA(3).fit(rows, sample_weight=np.full(len(rows), 0.1)),
    ):
        for name in NAMES:
            np.testing.assert_allclose(getattr(other, name), getattr(expected, name), rtol=1e-7, err_msg=name)


def test_a_saved_model_keeps_the_attributes(tmp_path):
    model = DPCA(3).fit(rows_of(TALL))
    standout.save(model, tmp_path / "model.standout")
    loaded = standout.load(tmp_path / "model.standout")
    for name in NAMES:
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name))
    np.testing.assert_array_equal(loaded.get_covariance(), model.get_covariance())


def test_features_without_a_counterpart_do_not_change_the_attributes():
    pandas = pytest.importorskip("pandas")
    rows = rows_of(TALL)
    frame = pandas.DataFrame(rows, columns=[f"f{i}" for i in range(12)])
    background = pandas.DataFrame(rows_of((500, 10), 1), columns=[f"f{i}" for i in range(10)])
    with pytest.warns(standout.errors.StandoutWarning):
        model = DPCA(10, features="common", shrinkage=None).fit(frame, background=background)
    np.testing.assert_allclose(model.explained_variance_ratio_.sum(), 1, rtol=1e-9)


@pytest.mark.parametrize("share", [0.2, 0.7, 0.95, 0.999999])
@pytest.mark.parametrize("shape", [TALL, WIDE])
@pytest.mark.parametrize("estimator", [DPCA, CPCA])
def test_a_share_of_variance_gives_as_many_components_as_scikit_learn(estimator, shape, share):
    rows = rows_of(shape)
    ours, theirs = estimator(share).fit(rows), PCA(share, svd_solver="full").fit(rows)
    assert ours.n_components_ == theirs.n_components_
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-9)
    assert ours.transform(rows).shape == (len(rows), theirs.n_components_)


def test_a_share_of_variance_works_in_batches_and_on_rows_of_low_rank():
    rows = rows_of((200, 3)) @ np.random.default_rng(1).normal(size=(3, 9))
    whole = DPCA(0.999).fit(rows)
    assert whole.n_components_ <= 3
    assert DPCA(0.999).partial_fit(rows[:50]).partial_fit(rows[50:]).n_components_ == whole.n_components_


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, 1.5, float("nan"), True])
def test_a_share_outside_0_to_1_is_an_error(share):
    with pytest.raises(InputError, match="n_components"):
        DPCA(share).fit(rows_of(TALL))


def test_a_share_of_variance_needs_a_fit_without_background():
    target, background = pair()
    for estimator in (DPCA(0.5), CPCA(0.5)):
        with pytest.raises(InputError, match=r"`n_components=0.5`.*without a background.*'auto'|whole number"):
            estimator.fit(target, background=background)
    with pytest.raises(InputError, match="n_components"):
        KernelDPCA(0.5).fit(target[:50])


@pytest.mark.parametrize("options", [{}, {"normalize": "background"}, {"shrinkage": 0.3}, {"centering": "background"}])
def test_the_shares_of_all_components_add_up_to_the_variance_of_the_target(options):
    target, background = pair()
    model = DPCA(None, **options).fit(target, background=background)
    np.testing.assert_allclose(model.explained_variance_ratio_.sum(), 1, rtol=1e-9)
    if options.get("centering") is None:
        total = target.var(axis=0, ddof=1).sum()
        np.testing.assert_allclose(model.explained_variance_.sum(), total, rtol=1e-9)


def test_the_explained_variance_is_that_of_the_rows_that_a_component_restores():
    target, background = pair()
    model = DPCA(3).fit(target, background=background)
    for k in range(3):
        scores = model.transform(target)
        scores[:, np.arange(3) != k] = 0
        restored = model.inverse_transform(scores).var(axis=0, ddof=1).sum()
        np.testing.assert_allclose(model.explained_variance_[k], restored, rtol=1e-9)


def test_the_explained_variance_of_cpca_is_that_along_its_orthonormal_components():
    target, background = pair()
    model = CPCA(2, alpha=1.0).fit(target, background=background)
    np.testing.assert_allclose(model.explained_variance_, model.transform(target).var(axis=0, ddof=1), rtol=1e-9)
    total = target.var(axis=0, ddof=1).sum()
    np.testing.assert_allclose(model.explained_variance_ratio_, model.explained_variance_ / total, rtol=1e-9)


def test_the_specific_variance_is_shared_by_the_components_above_the_noise_edge():
    target, background = pair()
    every = DPCA(None).fit(target, background=background)
    shares = every.specific_variance_ratio_
    above = every.ratios_ > every.noise_edge_
    assert above.sum() == 2
    np.testing.assert_allclose(shares.sum(), 1, rtol=1e-12)
    assert (shares[~above] == 0).all()
    expected = every.explained_variance_[above] * (1 - 1 / every.debiased_ratios_[above])
    np.testing.assert_allclose(shares[above], expected / expected.sum(), rtol=1e-12)
    # A fit with fewer components gives the same shares, and batches give the same shares.
    one = DPCA(1).fit(target, background=background)
    np.testing.assert_allclose(one.specific_variance_ratio_, shares[:1], rtol=1e-9)
    batches = DPCA(1).partial_fit(target).partial_fit(background=background)
    np.testing.assert_allclose(batches.specific_variance_ratio_, shares[:1], rtol=1e-9)


def test_the_specific_variance_of_signal_axes_is_the_variance_of_the_denoised_target():
    target, background = pair()
    model = DPCA(1, axes="signal").fit(target, background=background)
    denoised = model.denoise(target)
    expected = model.transform(target).var() / denoised.var(axis=0).sum()
    np.testing.assert_allclose(model.specific_variance_ratio_, [expected], rtol=1e-6)


def test_without_specific_variance_every_share_is_zero():
    rng = np.random.default_rng(3)
    with pytest.warns(standout.errors.OverfitWarning):
        model = DPCA(2).fit(rng.normal(size=(500, 6)), background=rng.normal(size=(900, 6)))
    assert model.specific_variance_ratio_.tolist() == [0, 0]


@pytest.mark.parametrize("name", ["singular_values_", "noise_variance_"])
def test_attributes_of_pca_are_missing_if_there_is_a_background(name):
    target, background = pair()
    model = DPCA(2).fit(target, background=background)
    assert not hasattr(model, name)
    with pytest.raises(AttributeError, match="without a background"):
        getattr(model, name)
    for method in (model.get_covariance, model.get_precision):
        with pytest.raises(InputError, match="without a background"):
            method()


def test_the_specific_variance_needs_a_background_and_moments():
    rows = rows_of(TALL)
    assert not hasattr(DPCA(2).fit(rows), "specific_variance_ratio_")
    rng = np.random.default_rng(0)
    with pytest.warns(standout.errors.StandoutWarning):
        wide = DPCA(2).fit(rng.normal(size=(20, 100)), background=rng.normal(size=(30, 100)))
    with pytest.raises(AttributeError, match="moments"):
        _ = wide.specific_variance_ratio_


def test_attributes_of_an_unfitted_estimator_are_missing():
    for name in (*NAMES, "specific_variance_ratio_"):
        assert not hasattr(DPCA(), name)


def test_transform_input_transforms_the_background_in_fit_but_not_in_score():
    """The trap in the documentation: if scikit-learn closes it, the page must change."""
    target, background = (rows + 50 for rows in pair())
    with sklearn.config_context(enable_metadata_routing=True):
        step = DPCA(1).set_fit_request(background=True).set_score_request(background=True)
        pipeline = Pipeline([("scale", StandardScaler()), ("dpca", step)], transform_input=["background"])
        pipeline.fit(target, background=background)
        scaler = StandardScaler().fit(target)
        rows, scaled = scaler.transform(target), scaler.transform(background)
        alone = DPCA(1).fit(rows, background=scaled)
        np.testing.assert_allclose(pipeline[-1].ratios_, alone.ratios_)
        wrong, right = pipeline.score(target, background=background), alone.score(rows, background=scaled)
        np.testing.assert_allclose(wrong, alone.score(rows, background=background))
        assert wrong < right / 2
        np.testing.assert_allclose(pipeline.score(target, background=pipeline[:-1].transform(background)), right)


def test_a_label_for_the_background_is_scored_correctly_in_a_pipeline():
    target, background = (rows + 50 for rows in pair())
    rows, labels = np.vstack([target, background]), np.repeat(["a", "b"], [len(target), len(background)])
    pipeline = make_pipeline(StandardScaler(), DPCA(1, background_label="b")).fit(rows, labels)
    scaled = StandardScaler().fit_transform(rows)
    expected = DPCA(1).fit(scaled[labels == "a"], background=scaled[labels == "b"])
    np.testing.assert_allclose(
        pipeline.score(rows, labels), expected.score(scaled[labels == "a"], background=scaled[labels == "b"])
    )
