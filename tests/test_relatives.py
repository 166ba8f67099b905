"""The relatives: methods with names of their own that are cases of the same eigenproblem.

Linear discriminant analysis, CSP and gcPCA are compared with their packages in test_agreement.py.
"""

import numpy as np
import pytest
from scipy import linalg, optimize

from standout._cpca import CPCA
from standout._dpca import DPCA

IGNORE = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")


@pytest.fixture(scope="module")
def pair():
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(6, 6))
    return (rng.normal(size=(300, 6)) * [4, 2, 1, 1, 1, 1]) @ mix + 1, rng.normal(size=(900, 6)) @ mix


def covariances(pair):
    return np.cov(pair[0].T, ddof=0), np.cov(pair[1].T, ddof=0)


def test_the_contrast_index_is_that_of_gcpca_and_bounded(pair):
    cxx, cyy = covariances(pair)
    model = DPCA(None, shrinkage=None).fit(pair[0], background=pair[1])
    np.testing.assert_allclose(model.contrast_, linalg.eigvalsh(cxx - cyy, cxx + cyy)[::-1], atol=1e-10)
    with pytest.warns(UserWarning, match="infinite"):
        constant = DPCA(1).fit(pair[0], background=np.c_[pair[1][:, :5], np.ones(900)])
    assert constant.contrast_[0] == 1.0


def test_cpca_plus_plus_is_centring_by_the_background(pair):
    cxx, cyy = covariances(pair)
    shift = pair[0].mean(0) - pair[1].mean(0)
    expected = linalg.eigvalsh(cxx + np.outer(shift, shift), cyy)[::-1][:2]
    model = DPCA(2, shrinkage=None, centering="background").fit(pair[0], background=pair[1])
    np.testing.assert_allclose(model.ratios_, expected, rtol=1e-10)


def test_minimum_noise_fraction_is_the_case_of_neighbours_differences_as_background():
    rng = np.random.default_rng(1)
    smooth = 9 * np.sin(np.linspace(0, 60, 4000))[:, None]  # changes little from row to row
    noise = rng.normal(size=(4000, 5)) @ rng.normal(size=(5, 5))
    image = smooth @ rng.normal(size=(1, 5)) + noise
    model = DPCA(1, shrinkage=None).fit(image, background=np.diff(image, axis=0) / np.sqrt(2))
    noise_ratio = model.transform(image).var() / ((noise - noise.mean(0)) @ model.components_[0]).var()
    assert model.ratios_[0] == pytest.approx(noise_ratio, rel=0.1)  # signal-to-noise ratio plus one
    assert abs(np.corrcoef(model.transform(image)[:, 0], smooth[:, 0])[0, 1]) > 0.99


def test_residual_component_analysis_is_its_likelihood(pair):
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


@IGNORE
def test_unique_component_analysis_is_contrastive_pca_at_its_own_alpha(pair):
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
