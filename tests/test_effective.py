"""Effective numbers of rows: between all rows and one row per group, and serially correlated rows."""

import numpy as np
import pytest
from scipy import sparse

import standout
from helpers import OptionalPackage, quiet
from standout import DPCA
from standout._effective import degrees_of_freedom, serial_correlation
from standout.errors import SerialWarning

pd = OptionalPackage("pandas")
pl = OptionalPackage("polars")


def grouped(rng, sizes, n_features, correlation):
    """Rows with this correlation within groups, and the group of each."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    shared = rng.normal(size=(len(sizes), n_features))[groups]
    return np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * rng.normal(size=shared.shape), groups


def series(rng, n_trials, length, n_features, coefficient):
    """Trials of a stationary AR(1) process of unit variance, and the trial of each row."""
    rows = rng.normal(size=(n_trials, length, n_features))
    for t in range(1, length):
        rows[:, t] = coefficient * rows[:, t - 1] + np.sqrt(1 - coefficient**2) * rows[:, t]
    return rows.reshape(-1, n_features), np.repeat(np.arange(n_trials), length)


def test_copies_count_once_and_independent_rows_count_each():
    rng = np.random.default_rng(0)
    ones = np.ones(400)
    found = []
    for correlation in (1.0, 0.5, 0.0):
        rows, groups = grouped(rng, [10] * 40, 6, correlation)
        found.append(degrees_of_freedom(rows, ones, groups))
    assert found[0] == pytest.approx(39, rel=0.1)
    assert 39 < found[1] < 250 < found[2] <= 399 + 1e-9


def test_the_variance_of_a_covariance_is_that_of_as_many_independent_rows():
    # By definition: E‖Ĉ − C‖² = (tr C² + tr² C)/ν, here with C = I and the expectation over 400 draws.
    rng, size = np.random.default_rng(1), 4
    errors, estimates = [], []
    for _ in range(400):
        rows, groups = grouped(rng, [8] * 50, size, 0.4)
        rows -= rows.mean(axis=0)
        errors.append(((rows.T @ rows / len(rows) - np.eye(size)) ** 2).sum())
        estimates.append(degrees_of_freedom(rows, np.ones(len(rows)), groups))
    assert np.mean(estimates) == pytest.approx((size + size**2) / np.mean(errors), rel=0.1)


def test_the_estimate_does_not_depend_on_rotations_shifts_and_the_scale_of_weights():
    rng = np.random.default_rng(2)
    rows, groups = grouped(rng, [7] * 20, 5, 0.3)
    weights = rng.uniform(0.5, 2, size=len(rows))
    rotation, _ = np.linalg.qr(rng.normal(size=(5, 5)))
    expected = degrees_of_freedom(rows, weights, groups)
    assert degrees_of_freedom(3 * rows @ rotation + 9, 5 * weights, groups) == pytest.approx(expected, rel=1e-9)
    moved = rng.permutation(len(rows))
    assert degrees_of_freedom(rows[moved], weights[moved], groups[moved]) == pytest.approx(expected, rel=1e-9)


UNEVEN = np.linspace(1, 40, 18).astype(int)


@quiet
@pytest.mark.parametrize(
    ("sizes", "n_features", "correlation"),
    [
        ((UNEVEN, UNEVEN), 5, 0.3),
        ((UNEVEN, UNEVEN), 10, 0.5),
        (([15] * 18, [15] * 9), 5, 0.5),
        (([15] * 18, [15] * 9), 5, 1.0),
        (([10] * 40, [10] * 50), 20, 0.1),
    ],
)
def test_grouped_noise_is_rarely_significant(sizes, n_features, correlation):
    rng = np.random.default_rng(3)
    rejected = 0
    for _ in range(60):
        (X, own), (Y, other) = (grouped(rng, size, n_features, correlation) for size in sizes)
        model = DPCA(1, shrinkage=None).fit(X, background=Y, groups=own, background_groups=other)
        rejected += model.p_value_ < 0.05
    assert rejected <= 9  # at most 8 % of runs: P(more than 9 of 60) = 2.5 %


@quiet
def test_independent_samples_in_trials_keep_their_power():
    rng = np.random.default_rng(4)
    target, trials = grouped(rng, [100] * 40, 32, 0.0)
    background, others = grouped(rng, [100] * 50, 32, 0.0)
    target[:, 0] *= np.sqrt(18)
    model = DPCA(1).fit(target, background=background, groups=trials, background_groups=others)
    assert model.p_value_ < 1e-6 and model.ratios_[0] > model.noise_edge_


@quiet
def test_correlated_groups_keep_power_that_counting_groups_loses():
    rng, found = np.random.default_rng(5), 0
    for _ in range(20):
        (X, own), (Y, other) = grouped(rng, [10] * 40, 20, 0.3), grouped(rng, [10] * 50, 20, 0.3)
        X[:, 0] *= np.sqrt(2)
        found += DPCA(1, shrinkage=None).fit(X, background=Y, groups=own, background_groups=other).p_value_ < 0.05
    assert found >= 11  # power about .7; counting groups finds none


@quiet
def test_trials_of_a_time_series_are_rarely_significant():
    rng, rejected = np.random.default_rng(6), 0
    for _ in range(40):
        (X, own), (Y, other) = series(rng, 30, 40, 6, 0.9), series(rng, 30, 40, 6, 0.9)
        rejected += DPCA(1, shrinkage=None).fit(X, background=Y, groups=own, background_groups=other).p_value_ < 0.05
    assert rejected <= 7


@quiet
def test_shrinkage_counts_alike_rows_once():
    rng = np.random.default_rng(7)
    background, groups = grouped(rng, [15] * 30, 6, 1.0)
    target, own = grouped(rng, [15] * 30, 6, 1.0)
    by_rows = DPCA(1).fit(target, background=background)
    by_groups = DPCA(1).fit(target, background=background, groups=own, background_groups=groups)
    assert by_rows.shrinkage_ == 0 < by_groups.shrinkage_


def test_serial_correlation_is_found_and_sorted_classes_are_not_taken_for_it():
    rng = np.random.default_rng(8)
    classes = np.repeat(rng.normal(size=(3, 8)) * 2, 100, axis=0)
    assert serial_correlation(series(rng, 1, 300, 8, 0.9)[0]) == pytest.approx(0.75, abs=0.2)
    assert serial_correlation(series(rng, 1, 300, 8, 0.5)[0]) == pytest.approx(0.5, abs=0.15)
    for rows in (rng.normal(size=(300, 8)), classes + rng.normal(size=(300, 8)), np.zeros((300, 8))):
        assert serial_correlation(rows) == 0


@pytest.mark.filterwarnings("ignore::standout.errors.OverfitWarning")
@pytest.mark.parametrize(
    "kind",
    [
        lambda rows: pd.DataFrame(rows),
        lambda rows: pl.DataFrame(rows),
        sparse.csr_array,
        lambda rows: standout.read(pd.DataFrame(rows)),
    ],
    ids=["pandas", "polars", "sparse", "source"],
)
def test_serial_correlation_is_found_in_every_container(kind):
    rng = np.random.default_rng(9)
    X, Y = (kind(series(rng, 1, length, 4, 0.9)[0]) for length in (300, 50))
    with (
        pytest.warns(SerialWarning, match="target: consecutive rows"),
        pytest.warns(SerialWarning, match="background: "),
    ):
        DPCA(1).fit(X, background=Y)


@pytest.mark.filterwarnings("ignore::standout.errors.OverfitWarning")
def test_a_fit_warns_of_serial_correlation_and_groups_end_it():
    rng = np.random.default_rng(9)
    (X, own), (Y, other) = series(rng, 10, 60, 4, 0.9), series(rng, 10, 60, 4, 0.9)
    with pytest.warns(SerialWarning, match=r"consecutive rows are correlated.*`groups=`"):
        model = DPCA(1).fit(X, background=Y)
    assert any(note.category is SerialWarning for note in model._model.notes)
    model = DPCA(1).fit(X, background=Y, groups=own, background_groups=other)
    assert not any(note.category is SerialWarning for note in model._model.notes)
