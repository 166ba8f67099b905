"""The target-specific part of each row, and its principal axes."""

import numpy as np
import pytest
from scipy import linalg, sparse
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score

from helpers import mixing, quiet
from standout._dpca import DPCA
from standout._moments import Moments
from standout._spectrum import debiased, noise_edge
from standout.datasets.factor import FactorModel
from standout.datasets.tiles import digits_over_tiles
from standout.errors import OverfitWarning


@pytest.fixture(scope="module")
def pair():
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(12, 12))
    scale = np.r_[6.0, 5.0, 4.0, np.ones(9)]
    return (rng.normal(size=(600, 12)) * scale) @ mix + 3, rng.normal(size=(1500, 12)) @ mix - 2


def same_up_to_sign(one, other, atol):
    sign = np.sign(np.sum(one * other, axis=0))
    np.testing.assert_allclose(one * sign, other, atol=atol * np.abs(other).max())


@quiet
@pytest.mark.parametrize("shrinkage", [None, "auto", "oas", 0.3])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_scores_on_signal_axes_are_those_of_a_pca_of_the_denoised_target(pair, shrinkage, count):
    model = DPCA(count, axes="signal", shrinkage=shrinkage).fit(pair[0], background=pair[1])
    scores = model.transform(pair[0])
    same_up_to_sign(PCA(count, svd_solver="full").fit_transform(model.denoise(pair[0])), scores, 1e-10)
    np.testing.assert_allclose(
        np.cov(scores.T, ddof=0).reshape(count, count), np.diag(model.target_variance_), atol=1e-9
    )


@quiet
def test_scores_on_signal_axes_are_a_pca_of_the_denoised_target_on_wide_data():
    rng = np.random.default_rng(1)
    target, background = rng.normal(size=(30, 80)), rng.normal(size=(25, 80))
    target[:, 0] *= 8
    for given in ((target, background), (Moments.of(target), Moments.of(background))):
        model = DPCA(2, axes="signal").fit(given[0], background=given[1])
        same_up_to_sign(PCA(2, svd_solver="full").fit_transform(model.denoise(target)), model.transform(target), 1e-9)


def test_denoising_is_the_wiener_estimate(pair):
    target, background = pair
    model = DPCA(2, axes="signal", shrinkage=None).fit(target, background=background)
    cxx, cyy = np.cov(target.T, ddof=0), np.cov(background.T, ddof=0)
    ratios, vectors = linalg.eigh(cxx, cyy)
    chosen = ratios > noise_edge(12, 600, 1500)
    assert chosen.sum() == 3
    population = debiased(ratios[chosen], 12, 600, 1500)
    U = vectors[:, chosen]
    expected = (target - target.mean(0)) @ U @ np.diag(1 - 1 / population) @ (cyy @ U).T
    np.testing.assert_allclose(model.denoise(target), expected, atol=1e-8)


def test_denoising_does_not_depend_on_the_axes(pair):
    by_ratio = DPCA(1).fit(pair[0], background=pair[1])
    by_signal = DPCA(3, axes="signal").fit(pair[0], background=pair[1])
    np.testing.assert_allclose(by_ratio.denoise(pair[0]), by_signal.denoise(pair[0]), atol=1e-9)
    batches = DPCA(1).partial_fit(pair[0]).partial_fit(background=pair[1])
    np.testing.assert_allclose(batches.denoise(pair[0]), by_signal.denoise(pair[0]), atol=1e-9)


def test_denoising_recovers_the_target_specific_part_better_than_pca():
    model = FactorModel(n_features=20, signal_sd=3.0)
    rng = np.random.default_rng(2)
    shared = (rng.normal(size=(2000, 4)) * model.background_sd) @ model.directions[:, :4].T
    own = np.outer(rng.normal(size=2000) * 3, model.signal)
    target = shared + own + rng.normal(size=shared.shape)
    _, background = model.sample(2, 4000, seed=3)
    denoised = DPCA(1, axes="signal").fit(target, background=background).denoise(target)
    pca = PCA(1).fit(target)
    error = np.mean((denoised - own) ** 2)
    assert error < 0.1 * np.mean((pca.inverse_transform(pca.transform(target)) - own) ** 2)
    assert error < 0.15 * np.mean(own**2)


def test_signal_axes_have_consistent_patterns_and_variances(pair):
    target, background = pair
    model = DPCA(3, axes="signal").fit(target, background=background)
    np.testing.assert_allclose(model.components_ @ model.patterns_.T, np.eye(3), atol=1e-10)
    np.testing.assert_allclose(model.transform(background).var(axis=0), model.background_variance_, rtol=1e-9)
    np.testing.assert_allclose(model.ratios_, model.target_variance_ / model.background_variance_, rtol=1e-12)
    unit = DPCA(3, axes="signal", normalize="background").fit(target, background=background)
    np.testing.assert_allclose(unit.transform(background).var(axis=0), 1, rtol=1e-9)
    assert np.all(np.diff(model.target_variance_) <= 0)


def test_a_component_with_infinite_ratio_is_not_attenuated():
    rng = np.random.default_rng(4)
    target, background = rng.normal(size=(300, 5)), rng.normal(size=(900, 5))
    target[:, 2] *= 3
    background[:, 2] = 7.0
    with pytest.warns(UserWarning, match="infinite"):
        model = DPCA(1, axes="signal").fit(target, background=background)
    centred = target[:, 2] - target[:, 2].mean()
    np.testing.assert_allclose(model.denoise(target)[:, 2], centred, rtol=1e-6)


def test_fewer_signal_axes_than_requested_give_a_warning(pair):
    with pytest.warns(OverfitWarning, match="only 3 are above the noise edge"):
        model = DPCA(5, axes="signal").fit(pair[0], background=pair[1])
    assert model.n_components_ == 3


def test_noise_has_no_signal():
    rng = np.random.default_rng(5)
    target = rng.normal(size=(200, 6))
    with pytest.warns(OverfitWarning, match="no component is above noise"):
        model = DPCA(2, axes="signal").fit(target, background=rng.normal(size=(600, 6)))
    assert model.transform(target).shape == (200, 0)
    np.testing.assert_array_equal(model.denoise(target), 0)


@pytest.mark.filterwarnings("ignore::standout.errors.ShrinkageWarning")
def test_a_warning_says_when_the_noise_edge_is_undefined():
    rng = np.random.default_rng(6)
    with pytest.warns(OverfitWarning, match="there is no noise edge"):
        DPCA(2, axes="signal").fit(rng.normal(size=(40, 30)) * 3, background=rng.normal(size=(20, 30)))


def test_without_a_background_signal_axes_are_pca(pair):
    model = DPCA(2, axes="signal").fit(pair[0])
    same_up_to_sign(PCA(2).fit_transform(pair[0]), model.transform(pair[0]), 1e-10)
    np.testing.assert_allclose(model.denoise(pair[0]), pair[0] - pair[0].mean(0))


def test_signal_axes_separate_the_groups_of_the_embedded_example():
    example = digits_over_tiles()
    scores = DPCA(2, axes="signal").fit(example.target, background=example.background).transform(example.target)
    found = KMeans(2, n_init=10, random_state=0).fit_predict(scores)
    assert adjusted_rand_score(example.digit, found) > 0.6


@pytest.mark.data
@quiet
def test_signal_axes_separate_digits_over_photographs_and_ratios_do_not(real_data):
    digits, frogs = np.load(real_data("mnist_6_9.npz")), np.load(real_data("cifar10_frogs_gray_6000.npz"))
    for seed in range(2):
        rng = np.random.default_rng(seed)
        chosen = np.concatenate([rng.permutation(np.flatnonzero(digits["labels"] == k))[:1000] for k in (6, 9)])
        images = frogs["images"][rng.permutation(6000)[:5000]] / 255.0
        corners = rng.integers(0, 5, size=(5000, 2))
        crops = [image[r : r + 28, c : c + 28] for image, (r, c) in zip(images, corners, strict=True)]
        photographs = np.array(crops).reshape(5000, -1)
        target = photographs[:2000] + 0.5 * digits["images"][chosen].reshape(2000, -1) / 255.0
        ari = {}
        for axes in ("ratio", "signal"):
            scores = DPCA(2, axes=axes).fit(target, background=photographs[2000:]).transform(target)
            found = KMeans(2, n_init=10, random_state=0).fit_predict(scores)
            ari[axes] = adjusted_rand_score(digits["labels"][chosen], found)
        assert 0.68 < ari["signal"] < 0.82
        assert ari["ratio"] < 0.25


@quiet
def test_denoising_uses_the_components_when_moments_have_fewer_dimensions_than_rows():
    rng = np.random.default_rng(0)
    mix = mixing(rng, 6, 1e9)
    target, background = rng.normal(size=(40, 6)) @ mix, rng.normal(size=(7, 6)) @ mix
    model = DPCA(6, shrinkage=None).fit(target, background=background)
    assert model.solver_ == "gsvd"
    gain = np.maximum(1 - 1 / model.ratios_, 0)
    expected = (target - model.mean_) @ model.components_.T * gain @ model.patterns_
    np.testing.assert_allclose(model.denoise(target), expected, rtol=1e-6, atol=1e-9 * np.abs(target).max())


@quiet
def test_a_target_with_less_variance_than_its_background_has_no_signal():
    rng = np.random.default_rng(3)
    target, background = rng.normal(size=(20, 60)) * 0.1, rng.normal(size=(25, 60))
    model = DPCA(2, axes="signal").fit(target, background=background)
    assert model.n_components_ == 0 and (model.denoise(target) == 0).all()
    target[:, 0] *= 100
    one = DPCA(2, axes="signal").fit(target, background=background)
    assert np.isfinite(one.patterns_).all() and np.isfinite(one.ratios_).all()
    np.testing.assert_allclose(one.components_ @ one.patterns_.T, np.eye(one.n_components_), atol=1e-8)


@quiet
def test_denoising_does_not_depend_on_the_solver_or_later_parameters():
    rng = np.random.default_rng(10)
    target, background = rng.normal(size=(300, 8)) * [5, 4, 1, 1, 1, 1, 1, 1], rng.normal(size=(900, 8))
    expected = DPCA(1, axes="signal").fit(target, background=background).denoise(target)
    by_rows = DPCA(1, solver="gsvd").fit(target, background=background)
    np.testing.assert_allclose(by_rows.denoise(target), expected, atol=1e-8)
    changed = DPCA(1).fit(target, background=background).set_params(shrinkage=0.9)
    np.testing.assert_allclose(changed.denoise(target), expected, atol=1e-8)
    basis = rng.normal(size=(5, 150))
    wide = (rng.normal(size=(30, 5)) * [1, 1, 1, 4, 6]) @ basis, rng.normal(size=(80, 5)) @ basis
    shown = DPCA(1).fit(wide[0], background=wide[1]).denoise(wide[0])
    np.testing.assert_allclose(
        shown, DPCA(1, axes="signal").fit(wide[0], background=wide[1]).denoise(wide[0]), atol=1e-8
    )


@quiet
def test_denoising_weights_each_component_by_its_unpenalised_ratio():
    rng = np.random.default_rng(11)
    size = 20
    rough, smooth = np.tile([1.0, -1.0], size // 2) / np.sqrt(size), np.ones(size) / np.sqrt(size)
    shared = np.outer(rng.normal(size=3000) * 8, smooth)
    background = rng.normal(size=(3000, size)) + shared
    target = rng.normal(size=(3000, size)) + shared + np.outer(rng.normal(size=3000) * 12, rough)
    chain = sparse.diags_array([np.ones(size - 1)] * 2, offsets=[-1, 1]).tocsr()
    model = DPCA(1, axes="signal", graph=chain, smoothness=1e4).fit(target, background=background)
    assert np.var(model.denoise(background)) < 0.1 * np.var(shared)


@quiet
def test_denoised_wide_noise_is_zero():
    rng = np.random.default_rng(12)
    basis = rng.normal(size=(5, 400))
    target, background = rng.normal(size=(80, 5)) @ basis, rng.normal(size=(200, 5)) @ basis
    shown = DPCA(1, shrinkage=None).fit(target, background=background)
    assert shown.ratios_[0] <= shown.noise_edge_
    np.testing.assert_array_equal(shown.denoise(target), 0)
    np.testing.assert_array_equal(
        DPCA(1, axes="signal", shrinkage=None).fit(target, background=background).denoise(target), 0
    )
