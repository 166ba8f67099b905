"""The factor model with all its options: its population solution agrees with algebra and with large samples."""

import numpy as np
import pytest
from scipy import linalg

from helpers import cosine, moments_of
from standout._dpca import DPCA
from standout.datasets.factor import FactorModel

RNG = np.random.default_rng(0)
OPTIONS = {
    "plain": {},
    "oblique": {"oblique": 0.7},
    "uneven noise": {"noise_scale": tuple(RNG.uniform(0.3, 3, size=12))},
    "units": {"units": tuple(10 ** RNG.uniform(-2, 2, size=12))},
    "two clusters": {"two_clusters": True, "signal_sd": 3.0},
    "all of them": {
        "oblique": -0.4,
        "noise_scale": tuple(RNG.uniform(0.3, 3, size=12)),
        "units": tuple(10 ** RNG.uniform(-2, 2, size=12)),
        "two_clusters": True,
        "mean_sd": 5.0,
        "noise_sd": 0.5,
        "seed": 7,
    },
}


@pytest.fixture(params=OPTIONS.values(), ids=OPTIONS.keys())
def options(request):
    return request.param


def relative(covariance, like):
    """Return a covariance in units of the standard deviations of the features."""
    scale = np.sqrt(np.diagonal(like))
    return covariance / np.outer(scale, scale)


def test_a_specific_direction_adds_one_ratio_and_leaves_the_others_at_one(options):
    """C_xx = C_yy + σ_s² a aᵀ: λ_1 = 1 + σ_s² aᵀ C_yy⁻¹ a, u ∝ C_yy⁻¹ a, and the pattern is a."""
    model = FactorModel(**options)
    a, population = model.signal, model.population()
    filtered = linalg.solve(model.background_covariance, a, assume_a="pos")
    assert population.ratios[0] == pytest.approx(1 + model.signal_sd**2 * a @ filtered, rel=1e-10)
    np.testing.assert_allclose(population.ratios[1:], 1, atol=1e-10)
    assert cosine(population.components[0], filtered) == pytest.approx(1, abs=1e-12)
    assert cosine(population.patterns[0], a) == pytest.approx(1, abs=1e-12)


def test_filters_have_unit_length_and_patterns_are_their_duals(options):
    population = FactorModel(**options, shared_growth=3.0).population()
    np.testing.assert_allclose(np.linalg.norm(population.components, axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(population.components @ population.patterns.T, np.eye(12), atol=1e-9)


def test_with_growing_shared_variance_the_population_agrees_with_scipy(options):
    model = FactorModel(**options, shared_growth=2.5)
    C_xx, C_yy, population = model.target_covariance, model.background_covariance, model.population()
    expected = linalg.eigvals(linalg.solve(C_yy, C_xx)).real
    np.testing.assert_allclose(population.ratios, np.sort(expected)[::-1], rtol=1e-8)
    for ratio, u in zip(population.ratios, population.components, strict=True):
        np.testing.assert_allclose(u @ C_xx @ u / (u @ C_yy @ u), ratio, rtol=1e-10)
    u = population.components[0]
    np.testing.assert_allclose(C_xx @ u, population.ratios[0] * C_yy @ u, rtol=1e-7, atol=1e-9 * np.abs(C_yy @ u).max())


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_large_samples_have_the_covariances_of_the_population(options, share):
    model = FactorModel(**options, shared_growth=2.0, outlier_share=share, outlier_size=10.0)
    rows = model.sample(100_000, 100_000, seed=1)
    thrown = [share * 100 * np.outer(a, a) for a in model.outlier_directions.T]
    expected = [model.target_covariance + thrown[0], model.background_covariance + thrown[1]]
    for found, known in zip(rows, expected, strict=True):
        np.testing.assert_allclose(relative(np.cov(found.T), known), relative(known, known), atol=0.03)
    ratios = linalg.eigvalsh(*(relative(np.cov(found.T), expected[1]) for found in rows))[::-1]
    np.testing.assert_allclose(ratios, model.population(outliers=True).ratios, rtol=0.06)


def test_units_change_filters_and_patterns_but_not_ratios():
    units = tuple(10 ** np.random.default_rng(3).uniform(-3, 3, size=12))
    plain, scaled = (
        FactorModel(oblique=0.6, shared_growth=2.0),
        FactorModel(oblique=0.6, shared_growth=2.0, units=units),
    )
    one, other = plain.population(), scaled.population()
    np.testing.assert_allclose(other.ratios, one.ratios, rtol=1e-10)
    assert cosine(other.components[0] * units, one.components[0]) == pytest.approx(1, abs=1e-12)
    assert cosine(other.patterns[0] / units, one.patterns[0]) == pytest.approx(1, abs=1e-12)
    for rows, same in zip(scaled.sample(50, 60, seed=2), plain.sample(50, 60, seed=2), strict=True):
        np.testing.assert_allclose(rows, same * units, rtol=1e-9, atol=1e-12 * max(units))


def test_a_fit_of_the_population_moments_finds_its_solution(options):
    model = FactorModel(**options, shared_growth=1.5)
    target, background = moments_of(model.target_covariance), moments_of(model.background_covariance)
    fitted = DPCA(1, shrinkage=None).fit(target, background=background)
    population = model.population()
    assert fitted.ratios_[0] == pytest.approx(population.ratios[0], rel=1e-8)
    assert cosine(fitted.components_[0], population.components[0]) == pytest.approx(1, abs=1e-9)
    assert cosine(fitted.patterns_[0], population.patterns[0]) == pytest.approx(1, abs=1e-9)


def test_without_options_the_rows_follow_the_formula():
    """The formula with the same order of draws, so that a seed gives the same rows in every version."""
    rng = np.random.default_rng(5)
    basis, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(12, 5)))
    sd, signal = np.array([6.0, 5, 4, 3]), rng.normal(size=30)
    target = (rng.normal(size=(30, 4)) * sd) @ basis[:, :4].T + np.outer(2 * signal, basis[:, 4])
    background = (rng.normal(size=(40, 4)) * sd) @ basis[:, :4].T
    target = target + (rng.normal(size=(30, 12)) + rng.normal(size=12))
    background = background + (rng.normal(size=(40, 12)) + rng.normal(size=12))
    found = FactorModel().sample(30, 40, seed=5)
    np.testing.assert_allclose(found[0], target, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(found[1], background, rtol=1e-13, atol=1e-13)


def test_clusters_are_the_two_sides_of_the_specific_direction():
    model = FactorModel(two_clusters=True, noise_sd=0.01, oblique=0.5)
    drawn = model.labelled_sample(400, 10, seed=2)
    scores = (drawn.target - drawn.target.mean(axis=0)) @ model.population().components[0]
    scores *= np.sign(model.population().components[0] @ model.signal)
    np.testing.assert_array_equal(scores > scores.min() / 2 + scores.max() / 2, drawn.cluster == 1)
    assert 150 < drawn.cluster.sum() < 250
    normal = FactorModel().labelled_sample(400, 10)
    assert set(normal.cluster) == {0, 1} and not normal.outlier.any() and not normal.background_outlier.any()


def test_outliers_are_labelled_rows_moved_along_one_direction():
    spoiled = FactorModel(outlier_share=0.1, outlier_size=50.0)
    drawn, clean = spoiled.labelled_sample(3000, 2000, seed=4), FactorModel().labelled_sample(3000, 2000, seed=4)
    for name, out, a in zip(
        ("target", "background"), (drawn.outlier, drawn.background_outlier), spoiled.outlier_directions.T, strict=True
    ):
        moved = getattr(drawn, name) - getattr(clean, name)
        assert not moved[~out].any() and out.mean() == pytest.approx(0.1, abs=0.03)
        np.testing.assert_allclose(moved[out], np.outer(moved[out] @ a, a), atol=1e-10)
        assert (moved[out] @ a).std() == pytest.approx(50, rel=0.2)
    assert abs(spoiled.outlier_directions[:, 0] @ spoiled.outlier_directions[:, 1]) < 0.9


def test_means_have_the_given_sd():
    near, far = (FactorModel(mean_sd=sd).sample(20, 20, seed=1) for sd in (0.0, 1e6))
    offsets = [rows - same for rows, same in zip(far, near, strict=True)]
    for offset in offsets:
        np.testing.assert_allclose(offset, np.tile(offset[0], (20, 1)), atol=1e-8)
        assert 2e5 < np.std(offset[0]) < 3e6
    assert not np.allclose(offsets[0][0], offsets[1][0])


def test_invalid_options_are_refused(refused):
    refused(lambda: FactorModel(units=(1.0, 2.0)), "units=(1.0, 2.0)", "12 features")
    refused(lambda: FactorModel(noise_scale=(0.0,) * 12), "noise_scale")
    refused(lambda: FactorModel(oblique=1.5), "oblique=1.5")
    refused(lambda: FactorModel(outlier_share=-0.1), "outlier_share=-0.1")
    refused(lambda: FactorModel(n_features=4), "background_sd: 4 shared directions")


def test_the_population_ratio_is_one_plus_signal_over_noise():
    model = FactorModel(signal_sd=2.0, noise_sd=0.5)
    ratios = linalg.eigvalsh(model.target_covariance, model.background_covariance)[::-1]
    assert ratios[0] == pytest.approx(model.top_ratio)
    np.testing.assert_allclose(ratios[1:], 1, atol=1e-12)
