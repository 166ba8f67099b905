"""What ratios mean: edges, tests and counts against simulation, tables and the raw definitions."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate
from scipy.special import digamma

from helpers import quiet, sample_ratios
from standout._dpca import DPCA
from standout._spectrum import (
    count_components,
    debiased,
    largest_root_p_value,
    mean_log_variance,
    noise_edge,
)
from standout.errors import OverfitWarning


@pytest.mark.parametrize(
    ("n", "edge"), [(52, 10328), (55, 709), (60, 162), (75, 33), (100, 13.1), (200, 4.9), (500, 3.0)]
)
def test_the_noise_edge_is_the_published_one(n, edge):
    # The table has unbiased covariances; ours divide by m and n.
    m = 200
    unbiased = noise_edge(50, m, n) * m * (n - 1) / ((m - 1) * n)
    assert unbiased == pytest.approx(edge, rel=0.02)


def test_the_noise_edge_is_the_end_of_wachters_density():
    p, m, n = 30, 120, 200
    y1, y2 = p / (m - 1), p / (n - 1)
    unbiased = noise_edge(p, m, n) * m * (n - 1) / ((m - 1) * n)
    h = math.sqrt(y1 + y2 - y1 * y2)
    low = ((1 - h) / (1 - y2)) ** 2

    def density(x):
        return (1 - y2) * math.sqrt((unbiased - x) * (x - low)) / (2 * math.pi * x * (y1 + x * y2))

    mass, _ = integrate.quad(density, low, unbiased)
    assert mass == pytest.approx(1.0, abs=1e-6)


def test_the_largest_ratio_of_noise_is_just_below_the_edge():
    rng = np.random.default_rng(0)
    for p, m, n in [(40, 200, 160), (60, 50, 150)]:  # also fewer target rows than dimensions
        top = [sample_ratios(p, m, n, rng)[0] for _ in range(40)]
        assert 0.75 < np.mean(top) / noise_edge(p, m, n) < 1.0


@pytest.mark.parametrize(("p", "m", "n"), [(5, 50, 50), (10, 60, 40), (20, 100, 60)])
def test_the_largest_root_test_keeps_its_size_on_gaussian_noise(p, m, n):
    # 1200 draws distinguish 0.05 from 0.03 and 0.075 by three standard errors (0.0063 each).
    rng = np.random.default_rng(p)
    rejected = [largest_root_p_value(sample_ratios(p, m, n, rng)[0], p, m, n) < 0.05 for _ in range(1200)]
    assert 0.03 < np.mean(rejected) < 0.075


def test_p_values_are_monotone_and_bounded():
    values = [largest_root_p_value(x, 20, 100, 80) for x in (0.0, 0.5, 1, 2, 4, 8, 16, 1e3, 1e6, math.inf)]
    assert values[0] == 1.0
    assert values[-1] == 0.0
    assert all(0 <= value <= 1 for value in values)
    assert all(a >= b for a, b in itertools.pairwise(values))


def test_debiasing_recovers_the_population_ratio():
    p, m, n = 50, 200, 150
    rng = np.random.default_rng(1)
    for true in (6.0, 10.0, 20.0):
        spiked = np.r_[true, np.ones(p - 1)]
        raw = np.array([sample_ratios(p, m, n, rng, spiked)[0] for _ in range(60)])
        assert np.mean(raw) > 1.5 * true
        assert np.nanmean(debiased(raw, p, m, n)) == pytest.approx(true, rel=0.06)


def test_debiasing_inverts_the_limit_exactly():
    p, m, n = 50, 200, 150
    y1, y2 = p / (m - 1), p / (n - 1)
    unbiased = m * (n - 1) / ((m - 1) * n)
    for a in (3.0, 7.0, 100.0):
        limit = a * (a - 1 + y1) / (a - 1 - a * y2) / unbiased
        assert debiased([limit], p, m, n)[0] == pytest.approx(a, rel=1e-12)


def test_ratios_below_the_edge_are_not_debiased():
    edge = noise_edge(50, 200, 150)
    values = debiased([2 * edge, 0.99 * edge, math.inf], 50, 200, 150)
    assert np.isfinite(values[0])
    assert math.isnan(values[1])
    assert math.isinf(values[2])


@pytest.mark.parametrize("n", [20, 30, 31])
def test_edge_p_value_and_debiasing_are_undefined_with_too_few_background_units(n):
    assert math.isnan(noise_edge(30, 100, n))
    assert math.isnan(largest_root_p_value(50.0, 30, 100, n))
    assert np.isnan(debiased([50.0], 30, 100, n)).all()


def test_infinite_ratios_are_counted():
    assert count_components([math.inf, math.inf, 1.0, 0.9], 4, 100, 100) == 2


def _auto(target, background):
    return DPCA("auto", shrinkage=None).fit(target, background=background).n_components_


@quiet
def test_auto_finds_nothing_in_noise_and_everything_well_above_the_threshold():
    p, m, n = 20, 300, 400
    rng = np.random.default_rng(2)
    y1, y2 = p / (m - 1), p / (n - 1)
    threshold = (1 + math.sqrt(y1 + y2 - y1 * y2)) / (1 - y2)  # population ratios below it are hidden by noise
    scale = np.sqrt(np.r_[2.0 * threshold, 2.5 * threshold, 4.0 * threshold, np.ones(p - 3)])
    on_noise, on_signal = [], []
    for _ in range(60):
        background = rng.normal(size=(n, p))
        on_noise.append(_auto(rng.normal(size=(m, p)), background))
        on_signal.append(_auto(rng.normal(size=(m, p)) * scale, background))
    assert np.mean(np.array(on_noise) == 0) >= 0.87  # 95 % less three standard errors
    assert np.min(on_signal) >= 3
    assert np.mean(np.array(on_signal) == 3) >= 0.87


def test_auto_gives_a_warning_when_it_finds_no_component():
    rng = np.random.default_rng(3)
    target, background = rng.normal(size=(100, 5)), rng.normal(size=(200, 5))
    with pytest.warns(UserWarning, match="no component is above noise"):
        model = DPCA("auto").fit(target, background=background)
    assert model.transform(target).shape == (100, 0)
    assert model.get_feature_names_out().shape == (0,)
    assert "0 components" in str(model.summary())


@pytest.mark.parametrize("freedom", [0.3, 1.0, 2.5, 40.0, 1e5])
def test_the_mean_log_of_one_variance_is_the_digamma_function(freedom):
    expected = np.log(2) + digamma(freedom / 2) - np.log(freedom / 2)
    assert mean_log_variance([2.0], [freedom]) == pytest.approx(expected, rel=1e-8)
    # Two parts with scales in proportion to their degrees of freedom are one; a part of scale 0 is none.
    parts = mean_log_variance([0.6, 1.4, 0.0], [0.3 * freedom, 0.7 * freedom, 9.0])
    assert parts == pytest.approx(expected, rel=1e-8)


def test_the_mean_log_of_a_sum_of_variances_agrees_with_simulation():
    rng = np.random.default_rng(0)
    draws = 0.7 * rng.chisquare(1, 10**6) + 0.3 * rng.chisquare(9, 10**6) / 9 + rng.chisquare(2, 10**6) / 2
    assert mean_log_variance([0.7, 0.3, 1.0], [1, 9, 2]) == pytest.approx(np.log(draws).mean(), abs=4e-3)
    assert mean_log_variance([[0.0], [0.0]], [[1], [2]]) == 0  # nothing varies: no log to correct


@quiet
@pytest.mark.parametrize("weights", [[1, 0.2, 0, 0], [1, 1e-6, 0, 0], [1, 0.25, 1e-3, 1e-3]])
def test_a_target_with_fewer_than_two_effective_rows_has_no_p_value(weights):
    rng = np.random.default_rng(0)
    with pytest.warns(OverfitWarning, match="fewer than two"):
        model = DPCA(1).fit(rng.normal(size=(4, 3)), background=rng.normal(size=(50, 3)), sample_weight=weights)
    assert np.isfinite(model.ratios_).all() and np.isnan(model.p_value_)
    assert "fewer than two" in str(model.summary())


@quiet
def test_the_p_value_is_defined_from_two_units():
    for units in (1.0, 1.2, 1.5, 1.9):
        assert math.isnan(largest_root_p_value(3.0, 5, units, 100))
    for units in (2.0, 2 - 1e-15, 2.1, 3.0):
        assert 0 < largest_root_p_value(3.0, 5, units, 100) < 1


@pytest.mark.slow
@pytest.mark.parametrize(("p", "m", "n"), [(5, 50, 50), (10, 60, 40), (20, 100, 60), (50, 200, 100), (77, 267, 135)])
def test_the_largest_root_test_keeps_its_size_in_a_long_simulation(p, m, n):
    rng = np.random.default_rng(p)
    rejected = [largest_root_p_value(sample_ratios(p, m, n, rng)[0], p, m, n) < 0.05 for _ in range(10_000)]
    assert 0.035 < np.mean(rejected) < 0.07
