"""The "auto" rule: exact, structural, shrunk; the OAS formula; and no cliff between them."""

import numpy as np
import pytest
from scipy import linalg
from sklearn.covariance import OAS

from standout import DPCA, Moments
from standout.errors import ShrinkageWarning

IGNORE = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")


def background_with_structure(p, rng):
    """A population of five strong directions in white noise, and a signal of its own for the target."""
    basis, _ = np.linalg.qr(rng.normal(size=(p, 6)))
    background = np.eye(p) + (basis[:, :5] * [36, 25, 16, 9, 4]) @ basis[:, :5].T
    return background, background + 8 * np.outer(basis[:, 5], basis[:, 5])


def reached(model, target, background):
    """The share of the best population ratio that the first component reaches."""
    u = model.components_[0]
    best = linalg.eigvalsh(target, background)[-1]
    return (u @ target @ u) / (u @ background @ u) / best


def drawn(covariance, rows, rng):
    return rng.multivariate_normal(np.zeros(len(covariance)), covariance, size=rows, method="cholesky")


@IGNORE
@pytest.mark.parametrize("n", [25, 40, 150])
def test_the_intensity_is_scikit_learns_oas_on_the_correlation_matrix(n):
    rng = np.random.default_rng(n)
    target, background = rng.normal(size=(60, 30)), rng.normal(size=(n, 30)) @ rng.normal(size=(30, 30))
    model = DPCA(shrinkage="oas").fit(target, background=background)
    standardised = (background - background.mean(0)) / background.std(0)
    # scikit-learn counts n where the formula for data with an estimated mean has n - 1 degrees of freedom.
    p, S = 30, np.corrcoef(background.T)
    top = (1 - 2 / p) * np.sum(S * S) + p**2
    expected = min(1.0, top / ((n - 2 / p) * (np.sum(S * S) - p)))
    assert model.shrinkage_ == pytest.approx(expected, rel=1e-12)
    assert model.shrinkage_ == pytest.approx(OAS().fit(standardised).shrinkage_, rel=3 / n)


@IGNORE
def test_shrinkage_is_the_same_from_moments_from_rows_and_in_the_span_of_rows():
    rng = np.random.default_rng(0)
    target, background = rng.normal(size=(20, 60)), rng.normal(size=(25, 60)) @ rng.normal(size=(60, 60))
    by_rows = DPCA().fit(target, background=background)
    by_moments = DPCA().fit(Moments.of(target), background=Moments.of(background))
    by_gsvd = DPCA(solver="gsvd").fit(target, background=background)
    assert (by_rows.solver_, by_moments.solver_, by_gsvd.solver_) == ("span", "dense", "gsvd")
    for other in (by_moments, by_gsvd):
        assert other.shrinkage_ == pytest.approx(by_rows.shrinkage_, rel=1e-10)
        np.testing.assert_allclose(other.ratios_, by_rows.ratios_, rtol=1e-9)
        np.testing.assert_allclose(other.components_, by_rows.components_, atol=1e-8)
        np.testing.assert_allclose(other.patterns_, by_rows.patterns_, atol=1e-8)


@IGNORE
def test_a_fixed_intensity_solves_the_problem_it_says():
    rng = np.random.default_rng(1)
    target, background = rng.normal(size=(80, 10)) * 3, rng.normal(size=(30, 10)) @ rng.normal(size=(10, 10))
    model = DPCA(3, shrinkage=0.3).fit(target, background=background)
    cxx, cyy = np.cov(target.T, ddof=0), np.cov(background.T, ddof=0)
    shrunk = 0.7 * cyy + 0.3 * np.diag(np.diag(cyy))
    np.testing.assert_allclose(model.ratios_, linalg.eigvalsh(cxx, shrunk)[::-1][:3], rtol=1e-10)
    variance = np.einsum("kj,jl,kl->k", model.components_, shrunk, model.components_)
    np.testing.assert_allclose(model.background_variance_, variance, rtol=1e-10)


@IGNORE
def test_full_shrinkage_is_pca_in_background_sd_units():
    rng = np.random.default_rng(2)
    target, background = rng.normal(size=(80, 6)) * 3, rng.normal(size=(30, 6)) * [1, 2, 3, 4, 5, 6]
    model = DPCA(2, shrinkage=1.0).fit(target, background=background)
    scaled = np.cov((target / background.std(0)).T, ddof=0)
    np.testing.assert_allclose(model.ratios_, np.linalg.eigvalsh(scaled)[::-1][:2], rtol=1e-10)


@pytest.mark.parametrize(("n", "regime"), [(300, "shrunk"), (301, "exact"), (1000, "exact")])
@IGNORE
def test_exact_from_ten_rows_for_each_dimension(n, regime):
    rng = np.random.default_rng(3)
    model = DPCA().fit(rng.normal(size=(100, 30)), background=rng.normal(size=(n, 30)))
    assert model.regime_ == regime
    assert (model.shrinkage_ > 0) == (regime == "shrunk")


def test_the_warning_names_the_counts_and_the_remedy():
    rng = np.random.default_rng(4)
    with pytest.warns(ShrinkageWarning, match=r"100 background rows are few for 20 dimensions.*[Mm]ore background"):
        DPCA().fit(rng.normal(size=(100, 20)) * 2, background=rng.normal(size=(100, 20)))


@IGNORE
def test_there_is_no_cliff_from_half_a_row_to_twenty_rows_for_each_feature():
    p, m, repeats = 50, 400, 12
    sizes = [25, 40, 49, 50, 51, 52, 60, 75, 100, 150, 300, 499, 502, 700, 1000]
    rng = np.random.default_rng(5)
    shares = np.empty((repeats, len(sizes)))
    for i in range(repeats):
        background, target = background_with_structure(p, rng)
        rows, most = drawn(target, m, rng), drawn(background, max(sizes), rng)
        # Nested samples: more rows are the same rows and some more.
        shares[i] = [reached(DPCA(1).fit(rows, background=most[:n]), target, background) for n in sizes]
    mean = shares.mean(axis=0)
    # Each step against the best so far, with the standard error of that difference.
    for j in range(1, len(sizes)):
        best = int(np.argmax(mean[:j]))
        drop = shares[:, best] - shares[:, j]
        noise = drop.std(ddof=1) / np.sqrt(repeats)
        assert drop.mean() < max(3 * noise, 0.02), f"from n={sizes[best]} to n={sizes[j]}: {mean}"
    assert mean[0] > 0.4
    assert mean[-1] > 0.9
