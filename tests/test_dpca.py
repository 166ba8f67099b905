"""DPCA: its parameters, its regimes, and what a fit warns about."""

import warnings

import numpy as np
import pytest
from scipy import linalg
from sklearn.decomposition import PCA
from sklearn.utils.estimator_checks import parametrize_with_checks

from conftest import NAMES
from helpers import OptionalPackage, likelihood_gain, quiet
from standout._dpca import DPCA
from standout._moments import Moments
from standout.datasets.factor import FactorModel
from standout.errors import (
    InputError,
    NotEnoughRowsError,
    OverfitWarning,
    RowsNeededError,
    StandoutError,
    StructuralWarning,
)

pd = OptionalPackage("pandas")


@parametrize_with_checks(
    [DPCA(), DPCA(n_components=1, normalize="background", centering="background"), DPCA(axes="signal", mix="minimax")]
)
def test_scikit_learn_estimator_checks_pass(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        check(estimator)


PARAMETERS = [
    *[("n_components", value, "whole number") for value in (0, -1, 2.5, 2.0, "many", True, [2], np.nan)],
    *[("shrinkage", value, "0 to 1") for value in (-1, 2, "lw", True, np.nan, [0.1])],
    *[("mix", value, "") for value in ("maximin", [1, 2], [-1], [np.nan], [0], ["a"], {"a": 1}, None, 1.0)],
    ("solver", "qr", "'gsvd'"),
    ("axes", "pattern", "'ratio'"),
    ("normalize", "target", "'background'"),
    ("normalize", True, "'background'"),
    ("centering", None, "'own'"),
    ("features", "some", "'common'"),
    ("random_state", "seed", "whole number"),
    ("random_state", 1.5, "whole number"),
]


@pytest.mark.parametrize(("name", "value", "possible"), PARAMETERS)
def test_a_bad_parameter_raises_an_error_with_the_allowed_values(data, name, value, possible, refused):
    estimator = DPCA(**{name: value})
    refused(lambda: estimator.fit(data.target, background=data.background), name, possible)


@pytest.mark.parametrize("value", [np.int64(2), np.uint8(2)])
def test_numpy_scalars_are_accepted_as_numbers(data, value):
    model = DPCA(value, shrinkage=np.float32(0.5)).fit(data.target, background=data.background)
    assert model.n_components_ == 2 and model.shrinkage_ == 0.5


def test_moments_are_an_error_where_rows_are_needed(data, refused):
    target, background = Moments.of(data.target), Moments.of(data.background)
    model = DPCA(shrinkage=None).fit(target, background=background)
    np.testing.assert_allclose(
        model.ratios_, DPCA(shrinkage=None).fit(data.target, background=data.background).ratios_, rtol=1e-12
    )
    expected = likelihood_gain(model, data.target, data.background)
    assert model.score(target, background=background) == pytest.approx(expected)
    refused(lambda: model.transform(target), "transform works on rows", kind=RowsNeededError)
    labelled = DPCA(background_label=0)
    refused(lambda: labelled.fit(target, np.ones(200)), "background_label splits rows", kind=RowsNeededError)
    refused(
        lambda: DPCA().fit(target, background=background, sample_weight=np.ones(200)), "weights", kind=StandoutError
    )


def test_counting_components_needs_a_background_with_enough_rows(data, wide, refused):
    refused(lambda: DPCA("auto").fit(data.target), "n_components='auto'", "Give a background")
    refused(lambda: DPCA("auto").fit(wide.target, background=wide.background), "'auto'", "15", kind=NotEnoughRowsError)
    exact = DPCA(shrinkage=None)
    refused(
        lambda: exact.fit(wide.target, background=wide.background), "15 rows", "25 dimensions", kind=NotEnoughRowsError
    )


def test_more_components_than_dimensions_are_an_error(data, wide, refused):
    refused(lambda: DPCA(6).fit(data.target, background=data.background), "n_components=6", "only 5 dimensions")
    refused(
        lambda: DPCA(12).fit(wide.target, background=wide.background),
        "n_components=12",
        "only 11 dimensions",
        "40",
        "12",
    )
    refused(lambda: DPCA(3).fit(data.target[:3]), "n_components=3", "only 2 dimensions")
    twice = [np.hstack([rows, rows]) for rows in data]
    refused(lambda: DPCA(6).fit(twice[0], background=twice[1]), "n_components=6", "only 5 dimensions")


@pytest.fixture
def model(data):
    return DPCA().fit(data.target, background=data.background)


@quiet
def test_groups_change_the_noise_edge_and_not_the_ratios(data):
    target, background = np.repeat(data.target[:30], 10, axis=0), np.repeat(data.background[:40], 15, axis=0)
    groups = {"groups": np.arange(300) // 10, "background_groups": np.arange(600) // 15}
    by_rows = DPCA(shrinkage=None).fit(target, background=background)
    grouped = DPCA(shrinkage=None).fit(target, background=background, **groups)
    np.testing.assert_array_equal(grouped.ratios_, by_rows.ratios_)
    assert grouped.noise_edge_ > 2 * by_rows.noise_edge_ and grouped.p_value_ > 1e3 * by_rows.p_value_
    # Copies count once: the same as the rows without copies, and as the number of groups, to which batches are limited.
    once = DPCA(shrinkage=None).fit(data.target[:30], background=data.background[:40])
    assert grouped.noise_edge_ == pytest.approx(once.noise_edge_, rel=0.2)
    stream = DPCA(shrinkage=None).partial_fit(target, groups=groups["groups"])
    for cut in (slice(0, 100), slice(100, 600)):  # the seventh mouse is in both batches
        stream.partial_fit(background=background[cut], background_groups=groups["background_groups"][cut])
    assert stream.noise_edge_ == pytest.approx(once.noise_edge_)


def test_copies_leave_too_few_independent_rows_for_a_noise_edge():
    rng = np.random.default_rng(0)
    target, background = rng.normal(size=(270, 12)), np.repeat(rng.normal(size=(9, 12)), 15, axis=0)
    background += 1e-3 * rng.normal(size=background.shape)
    own = {"groups": np.arange(270), "background_groups": np.arange(135) // 15}
    with pytest.warns(OverfitWarning, match="9 independent background units for 12 dimensions") as found:
        model = DPCA(shrinkage=None).fit(target, background=background, **own)
    assert np.isnan(model.noise_edge_) and np.isnan(model.p_value_) and np.isnan(model.debiased_ratios_).all()
    assert model.ratios_.shape == (2,) and "held-out rows" in str(found[0].message)
    assert "135 rows worth 9" in model.summary()


def test_centering_at_the_background_mean_keeps_the_shift():
    rng = np.random.default_rng(0)
    target, background = rng.normal([0, 0, 9, 0], size=(300, 4)), rng.normal(size=(400, 4))
    model = DPCA(1, centering="background", shrinkage=None).fit(target, background=background)
    about = target - background.mean(axis=0)
    expected = linalg.eigh(about.T @ about / 300, np.cov(background.T, ddof=0), eigvals_only=True)[-1]
    np.testing.assert_allclose(model.ratios_, [expected], rtol=1e-10)
    np.testing.assert_allclose(model.mean_, background.mean(axis=0), rtol=1e-12)
    assert abs(model.components_[0, 2]) > 0.99
    # Of noise, the second moment about the background's mean is a sum of two χ² variates.
    noise = rng.chisquare(299, 10**6) / 300 + (1 / 300 + 1 / 400) * rng.chisquare(1, 10**6)
    ratio = expected / (noise.mean() * (400 / rng.chisquare(399, 10**6)).mean())
    claimed = model.debiased_ratios_[0]
    gain = (ratio * (1 - 1 / claimed) - np.log(claimed)) / 2
    assert model.score(target, background=background) == pytest.approx(gain, rel=1e-3)


def test_pure_noise_gives_a_warning_with_the_noise_edge_and_a_remedy(remedy):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(400, 6))
    with pytest.warns(
        OverfitWarning, match=r"largest ratio, [\d.]+, is not above the noise edge, [\d.]+.*200 background rows"
    ) as found:
        model = DPCA().fit(rows[:200], background=rows[200:])
    assert model.p_value_ > 0.05 and np.isnan(model.debiased_ratios_).all()
    remedy(found[0].message)


def test_a_constant_background_feature_is_named_in_the_warning_and_ranked_first(data, remedy):
    frames = [pd.DataFrame(rows, columns=NAMES) for rows in data]
    with pytest.warns(StructuralWarning, match=r"1 ratio is infinite: the feature 'b' is constant") as found:
        model = DPCA().fit(frames[0], background=frames[1].assign(b=3.0))
    remedy(found[0].message)
    assert model.regime_ == "structural" and np.isinf(model.ratios_[0]) and np.isfinite(model.ratios_[1])
    assert "p = 0 " not in model.summary()  # no test is that sure


RNG = np.random.default_rng(0)
T, A, B = RNG.normal(size=(200, 4)) * [3, 1, 1, 1], RNG.normal(size=(150, 4)), RNG.normal(size=(90, 4)) * [9, 1, 1, 1]


@quiet
def test_centring_at_the_background_mean_adds_a_dimension():
    rng = np.random.default_rng(5)
    model = DPCA(2, centering="background").fit(rng.normal(size=(2, 5)), background=rng.normal(size=(100, 5)))
    assert model.ratios_[1] > 0


def test_more_principal_components_than_the_rank_are_an_error():
    flat = T[:, :2] @ np.random.default_rng(6).normal(size=(2, 6))
    with pytest.raises(InputError, match="only 2 dimensions"):
        DPCA(3).fit(flat)
    assert DPCA(None).fit(flat).n_components_ == 2
    assert "joint rank 4" in DPCA(2).fit(T).summary()


def test_components_with_infinite_ratio_are_ordered_by_target_variance():
    rng = np.random.default_rng(7)
    target, background = rng.normal(size=(400, 6)) * [1, 5, 1, 2, 1, 9], rng.normal(size=(900, 6))
    background[:, [1, 3, 5]] = 4.0
    with pytest.warns(StructuralWarning, match="3 ratios are infinite: the features 1, 3, 5 are constant"):
        model = DPCA(3, shrinkage=None).fit(target, background=background)
    inside = PCA(3).fit(target[:, [1, 3, 5]])
    np.testing.assert_allclose(np.abs(model.components_[:, [1, 3, 5]]), np.abs(inside.components_), atol=1e-8)
    with pytest.warns(StructuralWarning, match="relation between 0, 1,|relation between 1, 0,"):
        DPCA().fit(target, background=np.c_[rng.normal(size=(900, 1)).repeat(2, axis=1), rng.normal(size=(900, 4))])


def sine(u, v):
    return np.sqrt(max(0.0, 1 - (u @ v) ** 2 / (u @ u) / (v @ v)))


@quiet
def test_the_error_of_the_direction_falls_with_the_square_root_of_the_number_of_rows():
    model = FactorModel()
    sizes = np.array([200, 400, 800, 1600, 3200])
    errors = []
    for size in sizes:
        sines = []
        for seed in range(40):
            target, background = model.sample(size, size, seed=seed)
            found = DPCA(1, shrinkage=None).fit(target, background=background)
            sines.append(sine(found.components_[0], model.signal))
        errors.append(np.sqrt(np.mean(np.square(sines))))
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert -0.6 < slope < -0.4
