"""Contrastive PCA: against its definition, against other packages, and without their bugs."""

import warnings

import numpy as np
import pytest
from scipy import linalg
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.utils.estimator_checks import parametrize_with_checks

from conftest import NAMES, OneShot
from helpers import (
    OptionalPackage,
    cosine,
    covariance,
    few_rows,
    likelihood_gain,
    moments_of,
    quiet,
    readme_toy,
    same_subspace,
    same_up_to_sign,
    sample_pair,
    top_of,
)
from standout._cpca import CPCA
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import OverfitWarning, StandoutError

pd = OptionalPackage("pandas")
contrastive = OptionalPackage("contrastive")

pytestmark = quiet


def pair(seed=0, m=300, n=400, size=8):
    return sample_pair(np.random.default_rng(seed), m, n, size)


def fit(target, background, count=2, **parameters):
    return CPCA(count, **parameters).fit(target, background=background)


@parametrize_with_checks([CPCA(), CPCA(1, alpha="trace_ratio", centering="background"), CPCA(alpha=2.0)])
def test_scikit_learn_estimator_checks_pass(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        check(estimator)


# --- the definition -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0, 0.3, 2.0, 9.0, 1e4])
@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_components_are_the_top_eigenvectors_of_the_difference(alpha, count):
    target, background = pair()
    model = fit(target, background, count, alpha=alpha)
    assert same_up_to_sign(model.components_, top_of(target, background, alpha, count)[1], 1e-9)
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(count), atol=1e-12)
    assert model.alpha_ == alpha and model.path_ is None


@pytest.mark.parametrize("alpha", [0.0, 1.0, 30.0, 5000.0])
def test_lanczos_from_600_features_agrees_with_eigh(alpha):
    rng = np.random.default_rng(3)
    target, background = rng.normal(size=(1500, 620)), rng.normal(size=(1500, 620))
    target[:, 0] *= 4
    target[:, 1] *= 3
    model = fit(target, background, alpha=alpha)
    assert model.solver_ == "lanczos"
    assert same_subspace(model.components_, top_of(target, background, alpha, 2)[1], 1e-8)


def test_eigenvalues_are_ordered_algebraically_and_not_by_magnitude():
    target, background = moments_of(np.diag([10, 37.5, 0.3])), moments_of(np.diag([1, 5, 0.1]))
    model = fit(target, background, 3, alpha=10)  # eigenvalues 0, −12.5 and −0.7
    np.testing.assert_allclose(model.components_, np.eye(3)[[0, 2, 1]], atol=1e-12)
    np.testing.assert_allclose(model.ratios_, [10, 3, 7.5])
    by_magnitude = np.linalg.svd(np.diag([10, 37.5, 0.3]) - 10 * np.diag([1, 5, 0.1]))[2][0]
    assert cosine(by_magnitude, model.components_[0]) < 1e-12


def test_the_ith_dpca_component_is_the_ith_eigenvector_at_alpha_equal_to_its_ratio():
    target, background = pair()
    dpca = DPCA(None, shrinkage=None).fit(target, background=background)
    size = np.linalg.norm(covariance(target))
    for number, (ratio, u) in enumerate(zip(dpca.ratios_, dpca.components_, strict=True)):
        values, _ = top_of(target, background, ratio, 8)
        assert (values > 1e-9 * size).sum() == number and abs(values[number]) < 1e-9 * size
        model = fit(target, background, number + 1, alpha=ratio)
        assert cosine(model.components_[number], u) > 1 - 1e-9
    second = fit(target, background, 2, alpha=dpca.ratios_[0]).components_[1]
    assert cosine(second, dpca.components_[1]) < 0.99  # cPCA at λ₁ is dPCA for the first component only


def test_ratios_variances_and_patterns_follow_their_definitions():
    target, background = pair()
    model = fit(target, background, 3, alpha=2.0)
    scores, against = model.transform(target), (background - background.mean(0)) @ model.components_.T
    np.testing.assert_allclose(model.target_variance_, scores.var(axis=0))
    np.testing.assert_allclose(model.background_variance_, against.var(axis=0))
    np.testing.assert_allclose(model.ratios_, scores.var(axis=0) / against.var(axis=0))
    np.testing.assert_allclose(model.patterns_ @ model.components_.T, np.eye(3), atol=1e-12)
    regression = np.linalg.lstsq(scores, target - target.mean(0), rcond=None)[0]
    np.testing.assert_allclose(model.patterns_, regression, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.transform(model.inverse_transform(scores)), scores, atol=1e-10)
    np.testing.assert_allclose(model.inverse_transform(scores), target.mean(0) + scores @ regression, rtol=1e-9)
    assert np.isnan(model.debiased_ratios_).all()


def test_noise_edge_and_p_value_are_those_of_dpca():
    target, background = pair()
    model, dpca = fit(target, background), DPCA().fit(target, background=background)
    assert (model.noise_edge_, model.p_value_) == (dpca.noise_edge_, dpca.p_value_)


def test_pure_noise_gives_a_warning_unless_alpha_is_zero():
    rng = np.random.default_rng(0)
    target, background = rng.normal(size=(200, 5)), rng.normal(size=(300, 5))
    with pytest.warns(OverfitWarning, match="not above"):
        fit(target, background, alpha=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(target, background, alpha=0)


# --- other packages -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.5, 2.0, 7.5])
def test_the_subspace_agrees_with_the_package_contrastive(alpha):
    target, background = readme_toy(0)
    theirs = contrastive.CPCA(n_components=2, standardize=False).fit_transform(
        target, background, alpha_selection="manual", alpha_value=alpha
    )
    m, n = len(target), len(background)
    # They divide by n − 1, which is another alpha for us.
    model = fit(target, background, alpha=alpha * (m - 1) / m * n / (n - 1))
    assert same_subspace(model.transform(target).T, theirs.T, 1e-8)


# --- the bugs of other packages -------------------------------------------------------------------------------------


def test_one_component_works():
    target, background = readme_toy(0)
    model = fit(target, background, 1)
    assert model.transform(target).shape == (400, 1)
    with pytest.raises(IndexError):
        contrastive.CPCA(n_components=1, standardize=False).fit_transform(target, background)


@pytest.mark.parametrize("given", [True, False])
def test_alpha_zero_and_no_background_are_pca(given):
    target, background = pair()
    model = CPCA(3, alpha=0 if given else "auto").fit(target, background=background if given else None)
    pca = PCA(3).fit(target)
    assert same_up_to_sign(model.components_, pca.components_, 1e-9) and model.alpha_ == 0
    np.testing.assert_allclose(model.target_variance_, pca.explained_variance_ * 299 / 300)
    assert given or model.path_ is None


@pytest.mark.parametrize("alpha", [0, 1.0, 50.0])
def test_wide_data_give_real_scores_and_the_components_of_the_definition(alpha):
    target, background = few_rows()
    model = fit(target, background, 3, alpha=alpha)
    assert model.solver_ == "span" and model.transform(target).dtype == np.float64
    assert same_up_to_sign(model.components_, top_of(target, background, alpha, 3)[1], 1e-8)
    whole = fit(Moments.of(target), Moments.of(background), 3, alpha=alpha)
    np.testing.assert_allclose(whole.components_, model.components_, atol=1e-9)
    np.testing.assert_allclose(whole.patterns_, model.patterns_, atol=1e-8)


@pytest.mark.parametrize("alpha", [0, 1.0, 50.0])
def test_components_stay_orthonormal_when_one_row_dominates(alpha):
    target, background = few_rows()
    target[0], background[0] = target[0] * 1e5, background[0] * 1e5  # more than a Gram matrix of the rows can bear
    u = fit(target, background, 3, alpha=alpha).components_
    matrix = covariance(target) - alpha * covariance(background)
    np.testing.assert_allclose(u @ u.T, np.eye(3), atol=1e-12)
    values = u @ matrix @ u.T
    size = np.linalg.norm(matrix, 2)
    np.testing.assert_allclose(matrix @ u.T, u.T @ values, atol=1e-14 * size)
    np.testing.assert_allclose(np.diagonal(values), linalg.eigvalsh(matrix)[::-1][:3], atol=1e-14 * size)


def test_signs_do_not_depend_on_the_batch():
    target, background = readme_toy(0)
    model = fit(target, background)
    halves = np.vstack([model.transform(target[:200]), model.transform(target[200:])])
    np.testing.assert_allclose(halves, model.transform(target), atol=1e-12)
    turned = fit(target[::-1], background[::-1])
    np.testing.assert_allclose(turned.components_, model.components_, atol=1e-9)
    peer = contrastive.CPCA(standardize=False)
    peer.fit(target, background)
    theirs = [
        peer.transform(part, alpha_selection="manual", alpha_value=2.0) for part in (target, target[:200], target[200:])
    ]
    assert not np.allclose(np.vstack(theirs[1:]), theirs[0])


def test_transform_centres_and_equals_fit_transform():
    target, background = pair()
    model = CPCA()
    first = model.fit_transform(target, background=background)
    np.testing.assert_allclose(model.transform(target), first, atol=1e-12)
    np.testing.assert_allclose(first.mean(axis=0), 0, atol=1e-10)


def test_duplicate_features_give_no_component_without_variance():
    target, background = pair()
    twice = [np.hstack([rows, rows[:, :3]]) for rows in (target, background)]
    for alpha in (2.0, 1e3):
        values, _ = top_of(*twice, alpha, 1)
        model = fit(*twice, 3, alpha=alpha)
        assert (model.target_variance_ > 1e-3).all() and (model.background_variance_ > 1e-4).all()
        assert alpha == 2.0 or abs(values[0]) < 1e-9  # what eigh alone would have found
    assert CPCA(None, alpha=1.0).fit(twice[0], background=twice[1]).n_components_ == 8


# --- the data -------------------------------------------------------------------------------------------------------


def test_several_backgrounds_are_mixed_by_their_covariances():
    target, background = pair()
    first, second = background[:100] + 5, background[100:]
    for mix, share in (("pooled", 0.25), ("equal", 0.5), ([3, 1], 0.75)):
        model = fit(target, {"a": first, "b": second}, alpha=1.5, mix=mix)
        mixed = share * covariance(first) + (1 - share) * covariance(second)
        vectors = linalg.eigh(covariance(target) - 1.5 * mixed)[1][:, ::-1][:, :2]
        assert same_up_to_sign(model.components_, vectors.T, 1e-9)
        np.testing.assert_allclose(model.mix_, [share, 1 - share])


@pytest.mark.parametrize("wide", [False, True])
def test_centring_at_the_background_mean_keeps_the_shift(wide):
    target, background = few_rows() if wide else pair()
    model = fit(target, background, alpha=0.5, centering="background")
    shift = target.mean(0) - background.mean(0)
    matrix = covariance(target) + np.outer(shift, shift) - 0.5 * covariance(background)
    assert same_up_to_sign(model.components_, linalg.eigh(matrix)[1][:, ::-1][:, :2].T, 1e-8)
    np.testing.assert_allclose(model.mean_, background.mean(0))


@pytest.mark.parametrize("wide", [False, True])
def test_constant_features_have_no_weight(wide):
    target, background = few_rows() if wide else pair()
    padded = [np.insert(rows, 2, 1e6, axis=1) for rows in (target, background)]
    for alpha in (1.0, "auto", "trace_ratio"):
        model, plain = fit(*padded, alpha=alpha), fit(target, background, alpha=alpha)
        assert (model.components_[:, 2] == 0).all() and (model.patterns_[:, 2] == 0).all()
        np.testing.assert_allclose(np.delete(model.components_, 2, axis=1), plain.components_, atol=1e-6)


# With few rows dPCA's rule for shrinking looks at their number, which repetition changes and weights do not.
@pytest.mark.parametrize(("alpha", "wide"), [(2.0, False), ("auto", False), ("trace_ratio", False), (2.0, True)])
def test_integer_weights_equal_repeated_rows(alpha, wide):
    target, background = few_rows(size=60) if wide else pair()
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 3, len(target)), rng.integers(0, 3, len(background))
    model = CPCA(alpha=alpha).fit(
        target, background=background, sample_weight=counts[0], background_sample_weight=counts[1]
    )
    repeated = np.repeat(target, counts[0], axis=0), np.repeat(background, counts[1], axis=0)
    np.testing.assert_allclose(model.components_, fit(*repeated, alpha=alpha).components_, atol=1e-8)


@pytest.mark.parametrize("alpha", [2.0, "auto", "trace_ratio"])
def test_batches_moments_and_one_pass_sources_give_the_fit_of_the_rows(alpha):
    target, background = pair()
    model = fit(target, background, alpha=alpha)
    batches = CPCA(alpha=alpha)
    for start in range(0, 400, 37):
        some = slice(start, start + 37)
        batches.partial_fit(target[some] if start < 300 else None, background=background[some])
    others = [
        batches,
        fit(Moments.of(target), Moments.of(background), alpha=alpha),
        fit(OneShot(target), OneShot(background), alpha=alpha),
        CPCA(alpha=alpha, background_label="b").fit(np.vstack([target, background]), ["t"] * 300 + ["b"] * 400),
    ]
    for other in others:
        np.testing.assert_allclose(other.components_, model.components_, atol=1e-9)
        np.testing.assert_allclose(other.alpha_, model.alpha_, rtol=1e-9)


def test_common_features_are_used_and_the_path_covers_all_features():
    target, background = pair(size=5)
    frame = pd.DataFrame(target, columns=NAMES)
    other = pd.DataFrame(background[:, :4], columns=NAMES[:4])
    model = CPCA(features="common").fit(frame, background=other)
    assert model.components_.shape == (2, 5) and (model.components_[:, 4] == 0).all()
    assert model.path_.components.shape == (41, 2, 5)
    expected = likelihood_gain(model, target, np.hstack([background[:, :4], np.zeros((400, 1))]))
    assert model.score(frame, background=other) == pytest.approx(expected)


def test_a_clone_gives_the_same_fit():
    target, background = readme_toy(1)
    model = CPCA(3, grid=[0, 1, 2, 4, 8], n_representatives=3, random_state=4).fit(target, background=background)
    again = clone(model).fit(target, background=background)
    np.testing.assert_array_equal(again.components_, model.components_)
    np.testing.assert_array_equal(again.path_.labels, model.path_.labels)


def test_the_summary_shows_alpha():
    target, background = readme_toy(0)
    assert "cPCA (alpha = 2)" in fit(target, background, alpha=2).summary()


def test_a_component_along_which_the_target_does_not_vary_is_its_own_pattern():
    target, background = moments_of(np.diag([4.0, 1.0, 0.0])), moments_of(np.diag([2.0, 2.0, 0.01]))
    model = fit(target, background, 2, alpha=100.0)
    np.testing.assert_allclose(model.components_[0], [0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(model.patterns_ @ model.components_.T, np.eye(2), atol=1e-12)
    assert model.ratios_[0] == 0


# --- bad arguments --------------------------------------------------------------------------------------------------


PARAMETERS = [
    *[("n_components", bad, "whole number") for bad in (0, -1, 2.5, "auto", True, [2])],
    *[("alpha", bad, "'trace_ratio'") for bad in (-1, "best", None, True, np.nan, np.inf, [1.0])],
    *[
        ("grid", bad, "from 0 on" if not isinstance(bad, str) else "'natural'")
        for bad in ("log", [], [[1.0]], [-1.0], [np.nan], ["a"], None, 3.0)
    ],
    ("affinity", "angles", "'scores'"),
    *[("n_representatives", bad, "Use") for bad in (0, 1, 2.5, "all")],
    ("mix", "some", "'equal'"),
    ("centering", None, "'own'"),
    ("features", "some", "'common'"),
    ("random_state", "seed", "whole number"),
]


@pytest.mark.parametrize(("name", "bad", "possible"), PARAMETERS)
def test_a_bad_parameter_raises_an_error_with_the_allowed_values(data, name, bad, possible, refused):
    estimator = CPCA(**{name: bad})
    refused(lambda: estimator.fit(data.target, background=data.background), name, possible)


def test_too_many_components_are_an_error(data, wide, refused):
    refused(lambda: CPCA(6).fit(data.target, background=data.background), "n_components=6", "5 dimensions")
    refused(lambda: CPCA(12).fit(wide.target, background=wide.background), "n_components=12", "11 dimensions")


@pytest.mark.parametrize("shape", ["data", "wide"])
@pytest.mark.parametrize("which", ["target", "background"])
def test_missing_values_are_an_error(shape, which, request, refused):
    given = request.getfixturevalue(shape)._asdict()
    given[which] = given[which].copy()
    given[which][3, 2] = np.nan
    refused(lambda: CPCA().fit(given["target"], background=given["background"]), which, "NaN")


def test_transform_of_moments_is_an_error(data, remedy):
    model = CPCA().fit(data.target, background=data.background)
    with pytest.raises(StandoutError) as error:
        model.transform(Moments.of(data.target))
    remedy(error)
