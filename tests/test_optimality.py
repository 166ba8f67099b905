"""The factor model: what is recovered, how fast, and under which condition."""

import numpy as np
import pytest
from scipy import linalg

from standout._dpca import DPCA
from standout._spectrum import largest_root_p_value
from standout.datasets.factor import FactorModel
from test_spectrum import sample_ratios


def sine(u, v):
    return np.sqrt(max(0.0, 1 - (u @ v) ** 2 / (u @ u) / (v @ v)))


def test_the_population_ratio_is_one_plus_signal_over_noise():
    model = FactorModel(signal_sd=2.0, noise_sd=0.5)
    ratios = linalg.eigvalsh(model.target_covariance, model.background_covariance)[::-1]
    assert ratios[0] == pytest.approx(model.top_ratio)
    np.testing.assert_allclose(ratios[1:], 1, atol=1e-12)


def test_samples_have_the_population_covariances():
    model = FactorModel(oblique=0.5, shared_growth=2.0)
    target, background = model.sample(400_000, 400_000)
    np.testing.assert_allclose(np.cov(target.T), model.target_covariance, atol=0.5)
    np.testing.assert_allclose(np.cov(background.T), model.background_covariance, atol=0.3)


@pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
def test_the_error_of_the_direction_falls_with_the_root_of_the_rows():
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


def test_whitening_by_the_inverse_root_scales_the_background_and_the_plain_root_amplifies_it():
    """The paper's (13) with +1/2 finds the background; with −1/2 the target's own direction."""
    model = FactorModel()
    values, vectors = np.linalg.eigh(model.background_covariance)
    shared, signal = model.directions[:, 0], model.signal
    wrong, right = (vectors * values**power @ vectors.T for power in (0.5, -0.5))
    top = [np.linalg.eigh(root @ model.target_covariance @ root)[1][:, -1] for root in (wrong, right)]
    assert abs(top[0] @ shared) > 0.99 and abs(top[0] @ signal) < 0.01
    assert abs(top[1] @ signal) > 0.99
    # Background directions are brought to unit variance: none of them is removed.
    whitened = right @ model.background_covariance @ right
    np.testing.assert_allclose(whitened, np.eye(12), atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("p", "m", "n"), [(5, 50, 50), (10, 60, 40), (20, 100, 60), (50, 200, 100), (77, 267, 135)])
def test_the_size_of_the_largest_root_test_in_a_long_simulation(p, m, n):
    rng = np.random.default_rng(p)
    rejected = [largest_root_p_value(sample_ratios(p, m, n, rng)[0], p, m, n) < 0.05 for _ in range(10_000)]
    assert 0.035 < np.mean(rejected) < 0.07
