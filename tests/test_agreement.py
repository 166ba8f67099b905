"""Agreement with what others have written: scipy, scikit-learn, MNE's CSP, gcPCA, and LDA."""

import numpy as np
import pytest
from scipy import linalg
from sklearn.covariance import OAS
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from helpers import covariance, mixing, same_up_to_sign, sample_pair
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
def test_scipy_eigh_gives_the_same_ratios_and_vectors(rows, condition, solver):
    target, background = rows
    model = DPCA(4, shrinkage=None, solver=solver).fit(target, background=background)
    values, vectors = linalg.eigh(covariance(target), covariance(background))
    assert model.ratios_ == pytest.approx(values[::-1][:4], rel=agreed(condition))
    assert same_up_to_sign(model.components_, unit(vectors.T[::-1][:4]), 10 * agreed(condition))


def test_scipy_eigh_gives_the_same_for_a_shrunk_background():
    target, background = sample_pair(np.random.default_rng(3), 60, 40, 30)
    model = DPCA(5, shrinkage=0.2).fit(target, background=background)
    C_yy = covariance(background)
    values, vectors = linalg.eigh(covariance(target), 0.8 * C_yy + 0.2 * np.diag(np.diag(C_yy)))
    assert model.ratios_ == pytest.approx(values[::-1][:5], rel=1e-11)
    assert same_up_to_sign(model.components_, unit(vectors.T[::-1][:5]), 1e-9)


@pytest.mark.filterwarnings("ignore::standout.errors.ShrinkageWarning")
def test_shrinkage_is_the_published_formula_and_near_scikit_learns():
    background = sample_pair(np.random.default_rng(4), 60, 40, 30)[1]
    target = sample_pair(np.random.default_rng(5), 60, 40, 30)[0]
    model = DPCA(2, shrinkage="auto").fit(target, background=background)
    S, p, free = np.corrcoef(background.T), 30, 39
    square = np.trace(S @ S)
    # Chen, Wiesel, Eldar and Hero (2010), with one row less for the mean; tr S = p.
    published = ((1 - 2 / p) * square + p**2) / ((free + 1 - 2 / p) * (square - p))
    assert model.shrinkage_ == pytest.approx(published, rel=1e-12)
    # scikit-learn leaves the 2/p terms out and counts the mean's row in: a few percent.
    standard = (background - background.mean(axis=0)) / background.std(axis=0)
    assert model.shrinkage_ == pytest.approx(OAS().fit(standard).shrinkage_, rel=0.05)


@pytest.mark.parametrize("shape", [(200, 12), (30, 200)])
def test_scikit_learn_pca_gives_the_same_without_a_background(shape):
    m, size = shape
    target = sample_pair(np.random.default_rng(6), m, 5, size)[0]
    model, pca = DPCA(5).fit(target), PCA(5, svd_solver="full").fit(target)
    assert model.ratios_ == pytest.approx(pca.explained_variance_ * (m - 1) / m, rel=1e-11)
    assert same_up_to_sign(model.components_, pca.components_, 1e-9)
    assert model.mean_ == pytest.approx(pca.mean_, abs=1e-12)
    assert np.abs(model.transform(target)) == pytest.approx(np.abs(pca.transform(target)), abs=1e-9)


def test_scikit_learn_pca_of_the_whitened_target_gives_the_same_scores(rows, condition):
    target, background = rows
    model = DPCA(3, shrinkage=None, normalize="background").fit(target, background=background)
    whitener = PCA(whiten=True).fit(background)
    scores = PCA(3).fit_transform(whitener.transform(target) * np.sqrt(len(background) / (len(background) - 1)))
    size = np.abs(scores).max()
    assert np.abs(model.transform(target)) == pytest.approx(np.abs(scores), abs=10 * agreed(condition) * size)


@pytest.mark.filterwarnings("ignore::Warning:mne")
def test_mne_csp_gives_the_same_filters_and_bounded_ratios(rows, condition):
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
def test_gcpca_v2_gives_the_same_loadings(rows, condition):
    package = pytest.importorskip("generalized_contrastive_PCA")
    target, background = rows
    peer = package.gcPCA(method="v2", normalize_flag=False)
    peer.fit(target - target.mean(axis=0), background - background.mean(axis=0))
    model = DPCA(None, shrinkage=None).fit(target, background=background)
    assert same_up_to_sign(peer.loadings_.T, model.components_, 10 * agreed(condition))


@pytest.mark.parametrize("seed", [0, 1])
def test_linear_discriminant_analysis_is_the_case_of_residuals_as_background(seed, condition):
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
    # The remaining directions do not tell the classes apart.
    rest = DPCA(None, shrinkage=None).fit(data, background=data - means[labels]).ratios_[3:]
    assert rest == pytest.approx(np.ones(3), abs=10 * agreed(condition))
