"""The exact distribution of the largest ratio of noise: other formulas, 60 digits, simulation and its laws."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, interpolate, stats

from helpers import sample_ratios
from standout._spectrum import critical_value, is_significant
from standout._spectrum import largest_root_p_value as p_value


def _squared_pfaffian(t, s, a, b):
    """Return Pf² of Chiani's matrix: de Bruijn's formula in powers of x, for the weight x^a·(1−x)^b on (0, t)."""
    scale = mp.beta(a + 1, b + 1)
    single = [mp.betainc(a + i + 1, b + 1, 0, t) / scale for i in range(s)]
    double = [mp.betainc(2 * a + k + 2, 2 * b + 2, 0, t) / scale**2 for k in range(2 * s)]
    matrix = mp.zeros(s + s % 2)
    for j in range(s):
        nested = single[j] ** 2 / 2
        for i in range(j, s - 1):
            nested = ((a + i + 1) * nested - double[i + j]) / (a + b + i + 2)
            matrix[j, i + 1] = single[j] * single[i + 1] - 2 * nested
            matrix[i + 1, j] = -matrix[j, i + 1]
    if s % 2:
        for i in range(s):
            matrix[i, s], matrix[s, i] = single[i], -single[i]
    return mp.det(matrix)


def _by_powers(ratio, p, m, n):
    """Return 1 − the distribution function, with enough digits for the cancellation of powers and of 1 − F."""
    with mp.workdps(60 + 10 * min(p, 30)):
        mh, ne = mp.mpf(m) - 1, mp.mpf(n) - 1
        s, a, b = int(min(p, mh)), (abs(mh - p) - 1) / 2, (ne - p - 1) / 2
        odds = mp.mpf(ratio) * m / n
        below = _squared_pfaffian(odds / (1 + odds), s, a, b) / _squared_pfaffian(mp.mpf(1), s, a, b)
        return float(1 - mp.sqrt(below))


CASES = [
    (1.3, 2, 40, 50),
    (6.0, 2, 40, 50),
    (60.0, 2, 3, 12),
    (3.0, 3, 30, 40),
    (1e7, 3, 30, 5),  # one spare degree of freedom
    (2.1, 5, 200, 500),
    (1.5, 5, 200, 500),
    (40.0, 5, 4, 60),  # fewer target units than dimensions
    (9.0, 20, 6, 60),
    (192.0, 6, 30, 15),
    (31.3, 10, 200, 30),
    (125.0, 10, 200, 30),
    (7.5, 10, 200, 30),
    (8.0, 10, 24.7, 60.3),  # effective units
    (300.0, 10, 24.7, 13.3),
    (1e5, 4, 60, 5.2),  # less than one spare degree of freedom
    (2.2, 7, 100, 2000),
    (12.0, 15, 60, 40),
    (60.0, 15, 60, 40),
    (4.5, 16, 90, 90),
    (10.0, 25, 100, 80),
    (30.0, 25, 100, 80),
    (25.0, 30, 12, 80),
    (400.0, 40, 100, 60),
]


@pytest.mark.parametrize("case", CASES)
def test_p_values_agree_with_powers_at_high_precision(case):
    assert p_value(*case) == pytest.approx(_by_powers(*case), rel=1e-6)


def test_the_cases_reach_far_into_the_tail():
    values = [p_value(*case) for case in CASES]
    assert len(CASES) >= 20
    assert min(values) < 1e-12 and sum(value < 1e-6 for value in values) >= 6 and max(values) > 0.1


@pytest.mark.parametrize(
    ("case", "published"),
    # The ratios divide by m and n, and are rounded to the digits given.
    [((125.0, 10, 200, 30), 1.1e-12), ((31.3, 10, 200, 30), 6.1e-7), ((192.0, 6, 30, 15), 8.0e-7)],
)
def test_p_values_agree_with_another_program(case, published):
    assert p_value(*case) == pytest.approx(published, rel=0.05)


@pytest.mark.parametrize("ratio", [0.01, 0.7, 2.0, 9.0, 300.0])
def test_one_dimension_is_the_f_test_and_one_degree_of_freedom_is_hotellings(ratio):
    m, n, p = 20.5, 15, 6
    unbiased = ratio * m * (n - 1) / ((m - 1) * n)
    assert p_value(ratio, 1, m, n) == pytest.approx(stats.f.sf(unbiased, m - 1, n - 1), rel=1e-9)
    squared = ratio * 2 * (n - 1) / n  # T² of two target rows
    hotelling = stats.f.sf(squared * (n - p) / ((n - 1) * p), p, n - p)
    assert p_value(ratio, p, 2, n) == pytest.approx(hotelling, rel=1e-9)


@pytest.mark.parametrize(("ratio", "m", "n"), [(1.5, 12, 30), (6.0, 12, 30), (40.0, 12, 30), (9.0, 5, 20.5)])
def test_two_dimensions_are_the_integral_of_the_joint_density(ratio, m, n):
    a, b = (m - 4) / 2, (n - 4) / 2
    odds = ratio * m / n

    def density(y, x):
        return (x * y) ** a * ((1 - x) * (1 - y)) ** b * (x - y)

    above, _ = integrate.dblquad(density, odds / (1 + odds), 1, 0, lambda x: x, epsabs=0, epsrel=1e-8)
    total, _ = integrate.dblquad(density, 0, 1, 0, lambda x: x, epsabs=0, epsrel=1e-8)
    assert p_value(ratio, 2, m, n) == pytest.approx(above / total, rel=1e-6)


@pytest.mark.parametrize(
    ("p", "m", "n"), [(2, 3, 6), (5, 50, 50), (8, 5, 20), (10, 60.5, 14.3), (20, 100, 60), (40, 90, 70)]
)
def test_noise_exceeds_the_critical_values_as_often_as_their_level(p, m, n):
    rng = np.random.default_rng(p)
    top = np.array([sample_ratios(p, m, n, rng)[0] for _ in range(4000)])
    for level in (0.01, 0.05, 0.3):
        tolerance = 3.5 * math.sqrt(level * (1 - level) / len(top))
        assert np.mean(top > critical_value(p, m, n, level)) == pytest.approx(level, abs=tolerance)


@pytest.mark.parametrize(("p", "m", "n"), [(1, 2, 10), (5, 50, 50), (5, 3.5, 20), (76, 267, 135), (300, 900, 301.5)])
@pytest.mark.parametrize("level", [0.5, 0.05, 1e-6])
def test_the_critical_value_has_its_level_as_p_value(p, m, n, level):
    assert p_value(critical_value(p, m, n, level), p, m, n) == pytest.approx(level, rel=1e-4)


sizes = st.tuples(st.integers(1, 120), st.floats(2, 2000), st.floats(1e-3, 2000))


@given(sizes, st.floats(-10, 20), st.floats(1e-3, 5))
def test_p_values_fall_as_the_ratio_grows(size, log_ratio, step):
    p, m, spare = size
    n = p + 1 + spare
    first, second = p_value(math.exp(log_ratio), p, m, n), p_value(math.exp(log_ratio + step), p, m, n)
    # Where the p-value is almost one it is set to one; rounding is far below.
    assert 0 <= second <= first * (1 + 1e-6) or first > 1 - 1e-3
    assert first <= 1


@given(sizes, st.floats(0.3, 12))
def test_p_values_are_continuous_in_the_units(size, digits):
    p, m, spare = size
    n = p + 1 + spare
    ratio = critical_value(p, m, n, 10**-digits)
    assert p_value(ratio, p, m * (1 + 1e-9), n * (1 + 1e-9)) == pytest.approx(10**-digits, rel=1e-3)


def test_large_problems_agree_with_johnstones_approximation():
    # The 5 % point of the Tracy-Widom law is 0.9793; the error of the approximation falls with the size.
    p, mh, ne = 1000, 3000, 4000
    gamma, phi = (2 * math.asin(math.sqrt((side - 0.5) / (mh + ne - 1))) for side in (p, mh))
    scale = 16 / ((mh + ne - 1) ** 2 * math.sin(phi + gamma) ** 2 * math.sin(phi) * math.sin(gamma))
    logit = 2 * math.log(math.tan((phi + gamma) / 2)) + 0.9793 * scale ** (1 / 3)
    assert p_value(math.exp(logit) * (ne + 1) / (mh + 1), p, mh + 1, ne + 1) == pytest.approx(0.05, rel=0.01)


@pytest.mark.parametrize(("p", "n"), [(10, 40), (30, 33), (30, 50), (100, 300)])
@pytest.mark.parametrize("level", [0.05, 1e-6])
def test_critical_values_of_fractional_units_lie_on_the_curve_through_those_of_integers(p, n, level):
    for m in (4, p // 2, p - 2):
        knots = np.array([m - 1, m, m + 1, m + 2])
        logs = [math.log(critical_value(p, k, n, level)) for k in knots]
        smooth = interpolate.BarycentricInterpolator(np.log(knots - 1.0), logs)(math.log(m - 0.5))
        assert math.log(critical_value(p, m + 0.5, n, level)) == pytest.approx(smooth, abs=0.005)


def test_p_values_and_critical_values_where_there_is_no_distribution():
    for p, m, n in [(30, 100, 31), (30, 100, 20), (5, 1.9, 100), (0, 10, 10)]:
        assert math.isnan(p_value(3.0, p, m, n)) and math.isnan(critical_value(p, m, n))
    assert math.isnan(p_value(math.nan, 5, 50, 50))
    assert p_value(math.inf, 5, 50, 50) == 0 and p_value(0.0, 5, 50, 50) == p_value(-1.0, 5, 50, 50) == 1
    assert p_value(1e300, 5, 50, 50) == 0


@given(sizes, st.floats(-0.05, 0.05) | st.floats(-4, 8))
def test_the_decision_at_five_percent_is_that_of_the_p_value(size, log_ratio):
    p, m, spare = size
    n = p + 1 + spare
    ratio = math.exp(log_ratio) * critical_value(p, m, n)
    assert is_significant(ratio, p, m, n) == (p_value(ratio, p, m, n) < 0.05)


@pytest.mark.parametrize("ratio", [math.nan, -1.0, 0.0, math.inf])
@pytest.mark.parametrize(("p", "m", "n"), [(5, 50, 50), (5, 50, 6), (5, 1.5, 50)])
def test_the_decision_at_five_percent_is_that_of_the_p_value_where_there_is_none(ratio, p, m, n):
    assert is_significant(ratio, p, m, n) == (p_value(ratio, p, m, n) < 0.05)
