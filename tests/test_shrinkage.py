"""The "auto" rule: exact, structural, shrunk; shared factors; the OAS formula; and no cliff between them."""

import warnings
from functools import partial

import numpy as np
import pytest
from scipy import linalg, sparse
from simulations import background
from simulations.table import repeat
from sklearn.covariance import OAS

from helpers import quiet, same_up_to_sign, sample_pair
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import (
    ConditionWarning,
    NotEnoughRowsError,
    ShrinkageWarning,
)


def background_with_structure(p, rng):
    """A population of five strong directions in white noise, and a signal in the target only."""
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


@quiet
@pytest.mark.parametrize("n", [25, 40, 150])
def test_the_intensity_is_oas_of_the_correlation_matrix(n):
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


@quiet
def test_shrinkage_is_the_same_from_rows_and_from_moments():
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


@quiet
def test_a_fixed_intensity_solves_the_problem_of_its_definition():
    rng = np.random.default_rng(1)
    target, background = rng.normal(size=(80, 10)) * 3, rng.normal(size=(30, 10)) @ rng.normal(size=(10, 10))
    model = DPCA(3, shrinkage=0.3).fit(target, background=background)
    cxx, cyy = np.cov(target.T, ddof=0), np.cov(background.T, ddof=0)
    shrunk = 0.7 * cyy + 0.3 * np.diag(np.diag(cyy))
    values, vectors = linalg.eigh(cxx, shrunk)
    assert model.ratios_ == pytest.approx(values[::-1][:3], rel=1e-11)
    vectors = vectors.T[::-1][:3]
    assert same_up_to_sign(model.components_, vectors / np.linalg.norm(vectors, axis=1)[:, None], 1e-9)
    variance = np.einsum("kj,jl,kl->k", model.components_, shrunk, model.components_)
    np.testing.assert_allclose(model.background_variance_, variance, rtol=1e-10)


@quiet
def test_full_shrinkage_is_pca_in_background_sd_units():
    rng = np.random.default_rng(2)
    target, background = rng.normal(size=(80, 6)) * 3, rng.normal(size=(30, 6)) * [1, 2, 3, 4, 5, 6]
    model = DPCA(2, shrinkage=1.0).fit(target, background=background)
    scaled = np.cov((target / background.std(0)).T, ddof=0)
    np.testing.assert_allclose(model.ratios_, np.linalg.eigvalsh(scaled)[::-1][:2], rtol=1e-10)


@pytest.mark.parametrize(("n", "regime"), [(300, "shrunk"), (1500, "shrunk"), (1501, "exact")])
@quiet
def test_the_fit_is_exact_from_50_rows_per_dimension(n, regime):
    rng = np.random.default_rng(3)
    model = DPCA().fit(rng.normal(size=(100, 30)), background=rng.normal(size=(n, 30)))
    assert model.regime_ == regime
    assert (model.shrinkage_ > 0) == (regime == "shrunk")


@pytest.mark.parametrize(("n", "regime"), [(300, "shrunk"), (301, "structural")])
@quiet
def test_a_constant_background_feature_has_an_infinite_ratio_from_10_rows_per_dimension(n, regime):
    rng = np.random.default_rng(3)
    target, background = rng.normal(size=(100, 30)), rng.normal(size=(n, 30))
    background[:, 4] = 1.0
    for solver in ("auto", "gsvd", "matrix_free"):
        model = DPCA(solver=solver).fit(target, background=background)
        assert model.regime_ == regime
        assert np.isinf(model.ratios_[0]) == (regime == "structural")


@pytest.mark.parametrize("n", [299, 301])
def test_few_rows_give_a_warning_below_10_per_dimension(n):
    rng = np.random.default_rng(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        DPCA().fit(2 * rng.normal(size=(100, 30)), background=rng.normal(size=(n, 30)))
    assert any(issubclass(warning.category, ShrinkageWarning) for warning in caught) == (n < 300)


def test_the_shrinkage_warning_gives_the_counts_and_a_remedy():
    rng = np.random.default_rng(4)
    with pytest.warns(ShrinkageWarning, match=r"100 background rows are few for 20 dimensions.*[Mm]ore background"):
        DPCA().fit(rng.normal(size=(100, 20)) * 2, background=rng.normal(size=(100, 20)))


@quiet
def test_performance_never_drops_from_half_a_row_to_20_rows_per_feature():
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


def with_factors(rng, m, n, p, strengths, signal=4.0):
    """Rows that share some factors, one signal of the target's own, and both as scores of the target rows."""
    basis, _ = np.linalg.qr(rng.normal(size=(p, len(strengths) + 1)))
    roots = np.sqrt(strengths)

    def rows(count):
        scores = rng.normal(size=(count, len(strengths)))
        return rng.normal(size=(count, p)) + (scores * roots) @ basis[:, :-1].T, scores

    (target, factors), (background, _) = rows(m), rows(n)
    own = rng.normal(size=m)
    target += signal * np.outer(own, basis[:, -1])
    return target, background, factors, own


def correlation(model, target, scores):
    return np.abs(np.corrcoef(model.transform(target)[:, 0], scores)[0, 1])


@quiet
@pytest.mark.parametrize("seed", range(4))
def test_a_strong_factor_that_both_share_is_not_the_first_component(seed):
    rng = np.random.default_rng(seed)
    target, background, factors, own = with_factors(rng, 160, 150, 3000, [100.0])
    model = DPCA(1).fit(target, background=background)
    shrunk = DPCA(1, shrinkage="oas").fit(target, background=background)
    assert (model.n_factors_, shrunk.n_factors_) == (1, 0)
    assert correlation(model, target, factors[:, 0]) < 0.1 < 0.7 < correlation(shrunk, target, factors[:, 0])
    assert correlation(model, target, own) > 0.8 > 0.6 > correlation(shrunk, target, own)


@quiet
def test_factors_are_kept_among_many_more_features_than_rows():
    for seed in range(3):
        rng = np.random.default_rng(seed)
        target, background, _, own = with_factors(rng, 200, 200, 5000, [150.0, 100.0, 60.0], signal=4.5)
        model = DPCA(1).fit(target, background=background)
        assert model.n_factors_ == 3
        assert correlation(model, target, own) > 0.9
        assert correlation(DPCA(1, shrinkage="oas").fit(target, background=background), target, own) < 0.5


def edge(count, freedom):
    a, b = np.sqrt(freedom - 0.5), np.sqrt(count - 0.5)
    return ((a + b) ** 2 + 2.02 * (a + b) * (1 / a + 1 / b) ** (1 / 3)) / freedom


def candidate_axes(A, B, m, freedom):
    """Axes of large target variance, uncorrelated in the background, and its variances along them."""
    most = min(len(A) // 4, 32)
    count = min(int(freedom / 4), m - 1, most)
    block = A[:, np.argsort(-np.diag(A), kind="stable")[:most]]
    for _ in range(2):
        block = A @ linalg.orth(block, rcond=1e-10)
    E = np.linalg.svd(block, full_matrices=False)[0][:, :count]
    values, turn = np.linalg.eigh(E.T @ B @ E)
    return E @ turn[:, ::-1], values[::-1]


def outside(W):
    return np.eye(len(W)) - W @ W.T


def estimated(target, background, own):
    """The definition of the estimate, step by step: S in background-sd units, ρ and the factors."""
    m, n, sd = len(target), len(background), background.std(axis=0)
    A, B = np.cov((target / sd).T, ddof=0), np.cov((background / sd).T, ddof=0)
    p, freedom = len(A), n - 1

    def n_factors(values, total):
        q = 0
        while q < len(values):
            noise = (total - values[:q].sum()) / (p - q)
            if values[q] <= 1.5 * edge(len(values) - q, freedom - q) * noise:
                break
            q += 1
        return q

    W, values = candidate_axes(A, B, m, freedom)
    q = n_factors(values, p)
    weight = np.clip((values[:q].sum() / p - 0.5) / 0.3, 0, 1)
    unit = np.ones(p)
    if weight > 0:  # the second stage: features in units of their residual sd
        certain, left = 0, np.ones(p)
        while certain < len(values):
            noise = max(left.sum() / (p - certain), W[:, certain] ** 2 @ left)
            if values[certain] <= 1.5 * edge(len(values) - certain, freedom - certain) * noise:
                break
            certain += 1
            rest = outside(W[:, :certain])
            left = np.diag(rest @ B @ rest)
        unit = np.sqrt(weight * (0.9 * left + 0.1 * left.mean()) + (1 - weight) * left.mean())
        W, values = candidate_axes(A / np.outer(unit, unit), B / np.outer(unit, unit), m, freedom)
        q = n_factors(values, np.sum(unit**-2))
    inner, whole = B / np.outer(unit, unit), unit**-2
    W = W[:, :q]
    F, R = W @ W.T @ inner @ W @ W.T, outside(W) @ inner @ outside(W)
    mean = (1 - 1e-4) * np.trace(R) / (p - q) + 1e-4 * whole.mean()
    psi = own * ((1 - 1e-4) * np.diag(R) + 1e-4 * whole) + (1 - own) * mean
    Rc = R / np.sqrt(np.outer(psi, psi))
    d = p - q
    t2 = np.sum(Rc * Rc) * (d / np.trace(Rc)) ** 2
    rho = min(1.0, ((1 - 2 / d) * t2 + d**2) / ((freedom + 1 - 2 / d) * (t2 - d)))
    return (1 - rho) * B + rho * (F + np.diag(psi)) * np.outer(unit, unit), A, rho, q


@quiet
@pytest.mark.parametrize("solver", ["auto", "dense", "gsvd", "span", "matrix_free", "moments"])
@pytest.mark.parametrize(("m", "n", "p", "own"), [(40, 30, 90, 0.0), (60, 50, 80, 0.375), (150, 120, 40, 1.0)])
def test_every_solver_finds_the_components_of_the_factor_estimate(m, n, p, own, solver):
    rng = np.random.default_rng(p)
    target, background, _, _ = with_factors(rng, m, n, p, [30.0, 20.0, 4.0])
    target[:, 1:], background[:, 1:] = (rows[:, 1:] + 0.6 * rows[:, :-1] for rows in (target, background))
    units = 10 ** rng.uniform(-3, 3, p)
    agrees_with_the_definition(target, background, own, solver, units)


@quiet
@pytest.mark.parametrize("solver", ["auto", "dense", "gsvd", "span", "sparse", "matrix_free", "moments"])
@pytest.mark.parametrize("strength", [1.0, 1.5, 8.0])
@pytest.mark.parametrize(("m", "n", "p", "own"), [(40, 40, 130, 0.0), (60, 50, 80, 0.375), (150, 120, 40, 1.0)])
def test_every_solver_agrees_where_factors_explain_most_of_the_variance(m, n, p, own, strength, solver):
    target, background, _, _ = dominated(p, m, n, p, strength, 3, signal=6.0)
    target[:, 1:], background[:, 1:] = (rows[:, 1:] + 0.8 * rows[:, :-1] for rows in (target, background))
    agrees_with_the_definition(target, background, own, solver, 10 ** np.random.default_rng(p).uniform(-3, 3, p))


def agrees_with_the_definition(target, background, own, solver, units):
    S, A, rho, q = estimated(target, background, own)
    assert 0 < rho < 1 and q >= 1
    given = (target * units, background * units)
    if solver == "sparse":  # few entries in a column pay off
        given, solver = tuple(map(sparse.csr_array, given)), "auto"
    if solver == "moments":
        given = tuple(map(Moments.of, given))
    model = DPCA(3, solver="auto" if solver == "moments" else solver).fit(given[0], background=given[1])
    assert model.shrinkage_ == pytest.approx(rho, rel=1e-9) and model.n_factors_ == q
    values, vectors = linalg.eigh(A, S)
    assert model.ratios_ == pytest.approx(values[::-1][:3], rel=1e-8)
    ours = model.components_ * units * background.std(axis=0)
    theirs = vectors[:, ::-1][:, :3].T
    cosine = np.abs(np.sum(ours * theirs, axis=1)) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)
    np.testing.assert_allclose(cosine, 1.0, atol=1e-10)
    # Background variance along the components is that of the estimate.
    assert model.target_variance_ / model.background_variance_ == pytest.approx(model.ratios_)


@quiet
def test_without_factors_auto_is_oas():
    rng = np.random.default_rng(7)
    target, background = rng.normal(size=(60, 30)), rng.normal(size=(50, 30))
    auto, oas = (DPCA(shrinkage=name).fit(target, background=background) for name in ("auto", "oas"))
    assert auto.n_factors_ == 0 and auto.shrinkage_ == oas.shrinkage_
    np.testing.assert_array_equal(auto.components_, oas.components_)


@quiet
def test_order_and_units_of_features_do_not_matter_to_the_factor_estimate():
    rng = np.random.default_rng(8)
    target, background, _, _ = with_factors(rng, 50, 40, 70, [40.0, 10.0])
    model = DPCA().fit(target, background=background)
    order, units = rng.permutation(70), 10 ** rng.uniform(-4, 4, 70)
    other = DPCA().fit((target * units)[:, order], background=(background * units)[:, order])
    assert model.n_factors_ == other.n_factors_ > 0
    np.testing.assert_allclose(other.ratios_, model.ratios_, rtol=1e-9)
    scores = model.transform(target), other.transform((target * units)[:, order])
    for ours, theirs in zip(scores[0].T, scores[1].T, strict=True):
        assert abs(np.corrcoef(ours, theirs)[0, 1]) == pytest.approx(1.0, abs=1e-9)


@quiet
def test_shrinkage_fades_out_from_10_to_50_rows_per_dimension():
    rng = np.random.default_rng(9)
    target, rows = rng.normal(size=(300, 10)), rng.normal(size=(600, 10)) @ rng.normal(size=(10, 10))
    for n, factor in ((80, 1.0), (101, 1.0), (201, 0.75), (301, 0.5), (500, 0.0025), (501, 0.0)):
        found = DPCA().fit(target, background=rows[:n])
        full = estimated(target, rows[:n], 1.0)
        assert found.n_factors_ == full[3] or factor == 0
        assert found.shrinkage_ == pytest.approx(factor * full[2], rel=1e-9)


@quiet
@pytest.mark.parametrize("p", [3, 5, 7])
def test_a_single_candidate_axis_is_never_a_factor(p):
    # It would mix factor and signal: with few features "auto" is OAS.
    rng = np.random.default_rng(p)
    target, background, _, _ = with_factors(rng, 60, 9 * p, p, [20.0], signal=4.0)
    auto, oas = (DPCA(1, shrinkage=name).fit(target, background=background) for name in ("auto", "oas"))
    assert auto.n_factors_ == 0 and auto.shrinkage_ == oas.shrinkage_


def dominated(seed, m, n, p, strength, n_factors, signal, loadings="normal"):
    """Rows that factors dominate, with a signal of the target in a few features; also the scores of both."""
    rng = np.random.default_rng(seed)
    normal = rng.normal(size=(p, n_factors))
    weights = strength * {"normal": normal, "equal": np.ones_like(normal), "lognormal": np.exp(normal)}[loadings]
    pattern = np.zeros(p)
    chosen = rng.choice(p, max(p // 60, 5), replace=False)
    pattern[chosen] = signal / np.sqrt(len(chosen)) * rng.choice([-1, 1], len(chosen))
    factors, own = rng.normal(size=(m, weights.shape[1])), rng.normal(size=m)
    target = factors @ weights.T + np.outer(own, pattern) + rng.normal(size=(m, p))
    background = rng.normal(size=(n, weights.shape[1])) @ weights.T + rng.normal(size=(n, p))
    return target, background, factors, own


@quiet
@pytest.mark.parametrize(
    ("n_factors", "loadings"), [(5, "normal"), (1, "normal"), (1, "equal"), (1, "lognormal")], ids=str
)
@pytest.mark.parametrize("strength", [0.5, 1.0, 1.2, 2.0, 4.0, 10.0, 30.0])
def test_the_signal_is_found_however_strong_the_shared_factors_are(n_factors, loadings, strength):
    target, background, factors, own = dominated(200, 160, 150, 1000, strength, n_factors, 4.2, loadings)
    model = DPCA(1).fit(target, background=background)
    assert model.n_factors_ == n_factors
    assert correlation(model, target, own) > 0.85
    assert max(correlation(model, target, factor) for factor in factors.T) < 0.25


@quiet
@pytest.mark.parametrize("strength", [1.5, 6.0])
def test_there_is_no_cliff_where_rows_become_as_many_as_features(strength):
    target, background, _, own = dominated(301, 300, 80, 310, strength, 5, 2.6)
    reached = [
        correlation(DPCA(1).fit(target[:m], background=background), target[:m], own[:m])
        for m in (200, 228, 230, 231, 232, 234, 260, 300)
    ]
    assert min(reached) > 0.8
    assert np.abs(np.diff(reached[1:6])).max() < 0.02


@quiet
def test_there_is_no_cliff_in_the_strength_of_a_factor():
    strengths = np.geomspace(0.5, 20, 25)
    models = [dominated(7, 100, 90, 400, strength, 2, 4.0) for strength in strengths]
    reached = [correlation(DPCA(1).fit(t, background=b), t, own) for t, b, _, own in models]
    assert min(reached) > 0.85 and np.abs(np.diff(reached)).max() < 0.03


@quiet
def test_constant_features_do_not_change_the_factor_estimate():
    rng = np.random.default_rng(4)
    target, background, _, _ = with_factors(rng, 50, 40, 60, [40.0, 10.0])
    wide = [np.hstack([rows, np.ones((len(rows), 300))]) for rows in (target, background)]
    for solver in ("auto", "dense", "gsvd", "matrix_free"):
        plain = DPCA(solver=solver).fit(target, background=background)
        padded = DPCA(solver=solver).fit(wide[0], background=wide[1])
        assert padded.n_factors_ == plain.n_factors_ > 0
        np.testing.assert_allclose(padded.ratios_, plain.ratios_, rtol=1e-8)


@quiet
def test_rounding_beyond_the_joint_range_is_not_a_component():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        target, background = rng.poisson(1.5, size=(2, 3, 7)).astype(float)
        if not (target.std(axis=0).any() and background.std(axis=0).any()):
            continue
        ours, theirs = (DPCA(1, solver=solver).fit(target, background=background) for solver in ("gsvd", "dense"))
        assert ours.ratios_ == pytest.approx(theirs.ratios_, rel=1e-6)


@quiet
def test_the_summary_shows_how_the_background_was_estimated():
    rng = np.random.default_rng(10)
    target, background, _, _ = with_factors(rng, 80, 60, 200, [100.0, 60.0])
    text = str(DPCA().fit(target, background=background).summary())
    assert "estimated by 2 shared factors and" in text
    plain = DPCA().fit(rng.normal(size=(40, 200)), background=rng.normal(size=(30, 200)))
    assert plain.shrinkage_ > 0.9 and "nearly PCA in background-sd units" in str(plain.summary())
    exact = str(DPCA(shrinkage=None).fit(target[:, :5], background=background[:, :5]).summary())
    assert "problem     exact" in exact


def test_one_feature_has_no_correlations_to_shrink():
    rng = np.random.default_rng(11)
    target, background = 2 * rng.normal(size=(60, 1)), rng.normal(size=(12, 1))
    model = DPCA(1).fit(target, background=background)
    assert (model.regime_, model.shrinkage_) == ("exact", 0.0)
    assert model.ratios_[0] == pytest.approx(target.var() / background.var())


def test_few_background_rows_are_shrunk_with_a_warning(data):
    with pytest.warns(ShrinkageWarning, match=r"^40 background rows are few for 5 dim.* shrunk by 0\.\d+") as found:
        model = DPCA().fit(data.target, background=data.background[:40])
    assert model.regime_ == "shrunk" and 0 < model.shrinkage_ < 1
    assert "More background rows or fewer features need less shrinkage" in str(found[0].message)
    assert f"shrunk by {model.shrinkage_:.3g}" in model.summary() and "unshrunk" in model.summary()
    # Shrinkage that was requested gives no warning.
    assert DPCA(shrinkage=0.3).fit(data.target, background=data.background).shrinkage_ == 0.3
    assert DPCA(shrinkage=None).fit(data.target, background=data.background).regime_ == "exact"


@quiet
def test_rows_of_negligible_weight_do_not_count_as_evidence():
    rng = np.random.default_rng(1)
    target, background = rng.normal(size=(200, 50)), rng.normal(size=(3000, 50))
    weights = np.r_[np.ones(60), np.full(2940, 1e-9)]
    light = DPCA().fit(target, background=background, background_sample_weight=weights)
    assert light.regime_ == "shrunk"
    np.testing.assert_allclose(light.ratios_, DPCA().fit(target, background=background[:60]).ratios_, rtol=1e-3)
    lopsided = DPCA(mix=[0.999, 0.001]).fit(target, background=[background[:60], background])
    assert lopsided.regime_ == "shrunk"


@quiet
def test_shrinkage_is_between_0_and_1_with_one_varying_feature():
    rng = np.random.default_rng(2)
    for _ in range(40):
        for solver in ("auto", "gsvd", "span"):
            model = DPCA(1, solver=solver).fit(rng.normal(size=(5, 1)), background=rng.normal(size=(3, 1)))
            assert 0 <= model.shrinkage_ <= 1
        background = np.ones((2, 4))
        background[:, 0] = rng.normal(size=2)
        assert np.isfinite(DPCA(1).fit(rng.normal(size=(9, 4)), background=background).ratios_).all()


@quiet
def test_very_small_shrinkage_uses_gsvd_or_gives_a_warning():
    rng = np.random.default_rng(3)
    target, background = rng.normal(size=(60, 30)), rng.normal(size=(20, 30))
    by_rows = DPCA(1, shrinkage=1e-13).fit(target, background=background)
    assert by_rows.solver_ == "gsvd"
    with pytest.warns(ConditionWarning):
        DPCA(1, shrinkage=1e-9).fit(Moments.of(target), background=Moments.of(background))


SOME = (
    "1 factor, strength 100",
    "3 factors, unequal unique variances",
    "correlated genes in modules",
    "raw counts with library depth",
    "no factor, neighbours correlated",
    "1 dominant factor, log-normal loadings × 10",
    "5 dominant factors, normal loadings × 1.2",
)


@pytest.mark.parametrize("per_feature", [0.15, 1, 10])
def test_keeping_shared_factors_reaches_more_of_the_best_ratio_than_oas(per_feature):
    changes = []
    for index, what in enumerate(SOME):
        work = partial(background.one_run, what, per_feature)
        oas, auto, _ = repeat(work, 12, 7000 + index).T
        changes.append(np.mean(auto - oas))
    assert np.mean(changes) > 0.02
    assert min(changes) > -0.02, dict(zip(SOME, changes, strict=True))


@pytest.mark.slow
def test_auto_beats_oas_for_every_number_of_rows_in_the_full_simulation():
    assert all(row.holds for row in background.estimates(20))


@pytest.mark.filterwarnings("ignore::standout.errors.OverfitWarning")
@pytest.mark.parametrize(("size", "solver"), [(40, "dense"), (200, "span")])
def test_with_fewer_background_rows_than_features_the_fit_is_shrunk_and_independent_of_units(size, solver):
    rng = np.random.default_rng(14)
    target, background = sample_pair(rng, 60, 30, size)
    units = 10 ** rng.uniform(-5, 5, size=size)
    with pytest.warns(ShrinkageWarning, match="30 background rows are few"):
        model = DPCA(3).fit(target, background=background)
    with pytest.warns(ShrinkageWarning):
        other = DPCA(3).fit(target * units, background=background * units)
    assert (model.regime_, model.solver_, other.solver_) == ("shrunk", solver, solver)
    assert other.shrinkage_ == pytest.approx(model.shrinkage_, rel=1e-12)
    assert other.ratios_ == pytest.approx(model.ratios_, rel=1e-11)
    back = other.components_ * units
    assert same_up_to_sign(back / np.linalg.norm(back, axis=1)[:, None], model.components_, 1e-9)
    assert np.all(np.einsum("ij,ij->i", back, model.components_) > 0)


def test_an_exact_fit_with_fewer_background_rows_than_features_is_an_error():
    target, background = sample_pair(np.random.default_rng(15), 60, 30, 40)
    with pytest.raises(NotEnoughRowsError, match="30 rows, and 40 dimensions"):
        DPCA(3, shrinkage=None).fit(target, background=background)
