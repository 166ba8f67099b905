"""Agreement with what others have written: scipy, scikit-learn, MNE's CSP, gcPCA, and LDA."""

import numpy as np
import pytest
from scipy import linalg, optimize
from scipy.linalg import subspace_angles
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from helpers import covariance, mixing, quiet, same_up_to_sign, sample_pair
from standout._cpca import CPCA
from standout._dpca import DPCA

pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.OverfitWarning")


# Mixing matrices of these conditions make covariances with their squares: random, and nearly singular.
CONDITIONS = [10.0, 1e4]


def agreed(condition):
    """Return what two programs can agree on: ε·cond of the covariances, times 45 for the sums.

    Vectors are known ten times less well than ratios here: the ratios are that far apart.
    """
    return 1e-14 * condition**2


def unit(vectors):
    """Return rows of length one."""
    return vectors / np.linalg.norm(vectors, axis=1)[:, None]


@pytest.fixture(params=CONDITIONS, ids=lambda condition: f"{condition:.0e}")
def condition(request):
    return request.param


@pytest.fixture(params=[0, 1, 2])
def rows(request, condition):
    return sample_pair(np.random.default_rng(request.param), 150, 250, 8, condition)


@pytest.mark.parametrize("solver", ["dense", "lanczos", "gsvd"])
def test_ratios_and_components_agree_with_scipy_eigh(rows, condition, solver):
    target, background = rows
    model = DPCA(4, shrinkage=None, solver=solver).fit(target, background=background)
    values, vectors = linalg.eigh(covariance(target), covariance(background))
    assert model.ratios_ == pytest.approx(values[::-1][:4], rel=agreed(condition))
    assert same_up_to_sign(model.components_, unit(vectors.T[::-1][:4]), 10 * agreed(condition))


@pytest.mark.parametrize("shape", [(200, 12), (30, 200)])
def test_without_a_background_the_fit_agrees_with_scikit_learn_pca(shape):
    m, size = shape
    target = sample_pair(np.random.default_rng(6), m, 5, size)[0]
    model, pca = DPCA(5).fit(target), PCA(5, svd_solver="full").fit(target)
    assert model.ratios_ == pytest.approx(pca.explained_variance_ * (m - 1) / m, rel=1e-11)
    assert same_up_to_sign(model.components_, pca.components_, 1e-9)
    assert model.mean_ == pytest.approx(pca.mean_, abs=1e-12)
    assert np.abs(model.transform(target)) == pytest.approx(np.abs(pca.transform(target)), abs=1e-9)


def test_scores_agree_with_scikit_learn_pca_of_the_whitened_target(rows, condition):
    target, background = rows
    model = DPCA(3, shrinkage=None, normalize="background").fit(target, background=background)
    whitener = PCA(whiten=True).fit(background)
    scores = PCA(3).fit_transform(whitener.transform(target) * np.sqrt(len(background) / (len(background) - 1)))
    size = np.abs(scores).max()
    assert np.abs(model.transform(target)) == pytest.approx(np.abs(scores), abs=10 * agreed(condition) * size)


@pytest.mark.filterwarnings("ignore::Warning:mne")
def test_filters_and_patterns_agree_with_mne_csp(rows, condition):
    mne = pytest.importorskip("mne")
    target, background = (part[:150] - part[:150].mean(axis=0) for part in rows)
    # One epoch of 150 time points for each class; CSP's covariances of both must count alike.
    epochs = np.stack([background.T, target.T, background.T, target.T])
    csp = mne.decoding.CSP(n_components=8, component_order="alternate", cov_est="concat", rank="full")
    with mne.utils.use_log_level("ERROR"):
        csp.fit(epochs, np.array([1, 0, 1, 0]))
    model = DPCA(None, shrinkage=None).fit(target, background=background)
    # CSP solves C_x u = c² (C_x + C_y) u: the same vectors, and c² = λ/(1 + λ). It takes both ends in turn.
    order = np.argsort(-csp.evals_)
    assert csp.evals_[order] == pytest.approx(model.ratios_ / (1 + model.ratios_), rel=10 * agreed(condition))
    assert same_up_to_sign(unit(csp.filters_[order]), model.components_, 10 * agreed(condition))
    # Its patterns are the inverse of the filters: ours up to the filters' lengths.
    assert same_up_to_sign(unit(csp.patterns_[order]), unit(model.patterns_), 10 * agreed(condition))


@pytest.mark.filterwarnings("ignore::Warning")
def test_components_agree_with_gcpca_v2(rows, condition):
    package = pytest.importorskip("generalized_contrastive_PCA")
    target, background = rows
    peer = package.gcPCA(method="v2", normalize_flag=False)
    peer.fit(target - target.mean(axis=0), background - background.mean(axis=0))
    model = DPCA(None, shrinkage=None).fit(target, background=background)
    assert same_up_to_sign(peer.loadings_.T, model.components_, 10 * agreed(condition))


@pytest.mark.filterwarnings("ignore::Warning")
def test_components_agree_with_gcpca_v4():
    package = pytest.importorskip("generalized_contrastive_PCA")
    target, background = sample_pair(np.random.default_rng(0), 300, 400, 8)
    peer = package.gcPCA(method="v4", normalize_flag=False)
    peer.fit(target - target.mean(axis=0), background - background.mean(axis=0))
    model = DPCA(3, shrinkage=None).fit(target, background=background)
    assert same_up_to_sign(model.components_, peer.loadings_[:, :3].T, 1e-7)


@pytest.mark.parametrize("seed", [0, 1])
def test_linear_discriminant_analysis_is_dpca_with_within_class_residuals_as_background(seed, condition):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, size=300)
    centres = rng.normal(size=(4, 6)) * 3
    data = (centres[labels] + rng.normal(size=(300, 6))) @ mixing(rng, 6, condition)
    means = np.array([data[labels == label].mean(axis=0) for label in range(4)])
    model = DPCA(3, shrinkage=None).fit(data, background=data - means[labels])
    lda = LinearDiscriminantAnalysis(solver="eigen").fit(data, labels)
    assert same_up_to_sign(unit(lda.scalings_[:, :3].T), model.components_, 10 * agreed(condition))
    # All variance over variance within: one more than variance between over variance within.
    between = model.ratios_ - 1
    assert lda.explained_variance_ratio_[:3] == pytest.approx(between / between.sum(), rel=10 * agreed(condition))
    # The remaining directions do not separate the classes.
    rest = DPCA(None, shrinkage=None).fit(data, background=data - means[labels]).ratios_[3:]
    assert rest == pytest.approx(np.ones(3), abs=10 * agreed(condition))


@pytest.fixture(scope="module")
def pair():
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(6, 6))
    return (rng.normal(size=(300, 6)) * [4, 2, 1, 1, 1, 1]) @ mix + 1, rng.normal(size=(900, 6)) @ mix


def covariances(pair):
    return np.cov(pair[0].T, ddof=0), np.cov(pair[1].T, ddof=0)


def test_the_contrast_index_is_that_of_gcpca(pair):
    cxx, cyy = covariances(pair)
    model = DPCA(None, shrinkage=None).fit(pair[0], background=pair[1])
    np.testing.assert_allclose(model.contrast_, linalg.eigvalsh(cxx - cyy, cxx + cyy)[::-1], atol=1e-10)
    with pytest.warns(UserWarning, match="infinite"):
        constant = DPCA(1).fit(pair[0], background=np.c_[pair[1][:, :5], np.ones(900)])
    assert constant.contrast_[0] == 1.0


def test_cpca_plus_plus_is_dpca_centred_at_the_background_mean(pair):
    cxx, cyy = covariances(pair)
    shift = pair[0].mean(0) - pair[1].mean(0)
    expected = linalg.eigvalsh(cxx + np.outer(shift, shift), cyy)[::-1][:2]
    model = DPCA(2, shrinkage=None, centering="background").fit(pair[0], background=pair[1])
    np.testing.assert_allclose(model.ratios_, expected, rtol=1e-10)


def test_minimum_noise_fraction_is_dpca_with_differences_of_neighbours_as_background():
    rng = np.random.default_rng(1)
    smooth = 9 * np.sin(np.linspace(0, 60, 4000))[:, None]  # changes little from row to row
    noise = rng.normal(size=(4000, 5)) @ rng.normal(size=(5, 5))
    image = smooth @ rng.normal(size=(1, 5)) + noise
    model = DPCA(1, shrinkage=None).fit(image, background=np.diff(image, axis=0) / np.sqrt(2))
    noise_ratio = model.transform(image).var() / ((noise - noise.mean(0)) @ model.components_[0]).var()
    assert model.ratios_[0] == pytest.approx(noise_ratio, rel=0.1)  # signal-to-noise ratio plus one
    assert abs(np.corrcoef(model.transform(image)[:, 0], smooth[:, 0])[0, 1]) > 0.99


def test_the_components_maximise_the_likelihood_of_residual_component_analysis(pair):
    """W = C_yy U (Λ − I)^½ maximises the likelihood of N(0, WWᵀ + C_yy), and each component adds λ − 1 − log λ."""
    cxx, cyy = covariances(pair)
    model = DPCA(2, shrinkage=None, normalize="background").fit(pair[0], background=pair[1])
    W = (cyy @ model.components_.T) * np.sqrt(model.ratios_ - 1)

    def loss(W):
        covariance = W.reshape(6, 2) @ W.reshape(6, 2).T + cyy
        return np.linalg.slogdet(covariance)[1] + np.trace(linalg.solve(covariance, cxx))

    base = np.linalg.slogdet(cyy)[1] + np.trace(linalg.solve(cyy, cxx))
    assert base - loss(W) == pytest.approx(np.sum(model.ratios_ - 1 - np.log(model.ratios_)), rel=1e-9)
    assert np.abs(optimize.approx_fprime(W.ravel(), loss, 1e-6)).max() < 1e-3
    rng = np.random.default_rng(2)
    assert all(loss(W + 0.1 * rng.normal(size=W.shape)) > loss(W) for _ in range(50))


@quiet
def test_unique_component_analysis_is_contrastive_pca_at_the_alpha_of_its_multiplier(pair):
    """Maximise vᵀAv with ‖v‖ = 1 and vᵀBv ≤ b: its multiplier is an alpha."""
    cxx, cyy = covariances(pair)
    bound = 0.5 * np.linalg.eigvalsh(cyy)[-1]
    dual = optimize.minimize_scalar(
        lambda tau: np.linalg.eigvalsh(cxx - tau * cyy)[-1] + tau * bound, bounds=(0, 1e3), options={"xatol": 1e-10}
    )
    v = CPCA(1, alpha=dual.x).fit(pair[0], background=pair[1]).components_[0]
    assert v @ cyy @ v <= bound * (1 + 1e-5)
    rng = np.random.default_rng(3)
    others = rng.normal(size=(20000, 6))
    others /= np.linalg.norm(others, axis=1, keepdims=True)
    allowed = others[np.einsum("ij,jk,ik->i", others, cyy, others) <= bound]
    assert np.einsum("ij,jk,ik->i", allowed, cxx, allowed).max() <= v @ cxx @ v * (1 + 1e-6)
    assert v @ cxx @ v == pytest.approx(dual.fun, rel=1e-6)  # strong duality: the bound is met


peer = pytest.importorskip("cpca", reason="the package ccpca is in the extra 'peers'")


@pytest.fixture(scope="module")
def ten_features():
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(10, 10))
    return (rng.normal(size=(300, 10)) * np.r_[4, 3, np.ones(8)]) @ mix, rng.normal(size=(800, 10)) @ mix


def unbiased(m, n):
    """What an alpha between covariances that divide by n − 1 is for those that divide by n."""
    return (m - 1) / m * n / (n - 1)


@pytest.mark.parametrize("alpha", [0.0, 0.7, 3.0])
def test_the_subspace_at_a_given_alpha_agrees_with_ccpca(ten_features, alpha):
    theirs = peer.CPCA(n_components=2, standardize=False).fit(*ten_features, alpha=alpha)
    ours = CPCA(2, alpha=alpha * unbiased(300, 800)).fit(ten_features[0], background=ten_features[1])
    assert subspace_angles(ours.components_.T, theirs.components_).max() < 1e-7


def test_the_best_alpha_of_ccpca_is_the_trace_ratio(ten_features):
    theirs = peer.CPCA(n_components=2, standardize=False)
    theirs.fit(*ten_features, eta=1e-12, convergence_ratio=1e-14, max_iter=100)
    ours = CPCA(2, alpha="trace_ratio").fit(ten_features[0], background=ten_features[1])
    assert ours.alpha_ == pytest.approx(theirs.best_alpha_ * unbiased(300, 800), rel=1e-6)
    assert subspace_angles(ours.components_.T, theirs.components_).max() < 1e-4
