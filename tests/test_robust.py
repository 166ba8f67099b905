"""Robust moments: their fixed point, equivariance under linear maps, and robustness to outliers."""

import numpy as np
import pytest
from scipy import linalg, sparse, stats
from sklearn.covariance import MinCovDet

from helpers import OptionalPackage, cosine, covariance, mixing
from standout._dpca import DPCA
from standout._moments import Moments
from standout._robust import robust_moments
from standout.datasets.factor import FactorModel
from standout.errors import InputError, NonFiniteError, NotEnoughRowsError, RowsNeededError

pd = OptionalPackage("pandas")

MODEL = FactorModel(signal_sd=np.sqrt(8.0))  # the largest population ratio is 9


def spoiled(rows, seed, share=0.03, size=200.0):
    """Move a few rows far out along one direction."""
    rng = np.random.default_rng(seed)
    count = int(share * len(rows))
    direction = np.linalg.qr(rng.normal(size=(rows.shape[1], 1)))[0].T
    dirty = rows.copy()
    dirty[:count] += size * rng.normal(size=(count, 1)) * direction
    return dirty


@pytest.fixture(scope="module")
def clean():
    return MODEL.sample(1000, 2000, seed=3)


@pytest.fixture(scope="module")
def dirty(clean):
    return spoiled(clean[0], 1), spoiled(clean[1], 2)


@pytest.mark.parametrize("size", [2, 5, 20])
def test_directions_have_mean_zero_and_isotropic_covariance_and_squared_lengths_a_chi_square_median(size):
    rng = np.random.default_rng(size)
    rows = stats.multivariate_t(shape=np.eye(size), df=2, seed=rng).rvs(400) @ rng.normal(size=(size, size)) + 7
    found = robust_moments(rows)
    white = linalg.solve_triangular(
        linalg.cholesky(found.covariance(), lower=True), (rows - found.mean).T, lower=True
    ).T
    length = np.linalg.norm(white, axis=1)
    unit = white / length[:, None]
    # The iteration stops at a step of 1e-10; the remaining distance is a few times as long.
    assert unit.mean(axis=0) == pytest.approx(np.zeros(size), abs=1e-8)
    assert size * unit.T @ unit / len(rows) == pytest.approx(np.eye(size), abs=1e-8)
    assert np.median(length**2) == pytest.approx(stats.chi2(size).median(), rel=1e-10)


def test_one_feature_gives_median_and_median_absolute_deviation():
    rows = np.random.default_rng(0).standard_t(2, size=(501, 1)) * 3 + 5
    found = robust_moments(rows)
    assert found.mean[0] == np.median(rows)
    assert np.sqrt(found.variance()[0]) == pytest.approx(
        stats.median_abs_deviation(rows[:, 0], scale="normal"), rel=1e-6
    )


@pytest.mark.parametrize("condition", [1.0, 10.0, 1e3])
def test_moments_are_equivariant_and_ratios_invariant_under_linear_maps(dirty, condition):
    rng = np.random.default_rng(4)
    matrix, shift = mixing(rng, 12, condition), rng.normal(size=12)
    plain = [robust_moments(rows) for rows in dirty]
    mapped = [robust_moments(rows @ matrix + shift) for rows in dirty]
    for one, other in zip(plain, mapped, strict=True):
        expected = matrix.T @ one.covariance() @ matrix
        assert np.abs(other.covariance() - expected).max() < 1e-8 * np.abs(expected).max()
        assert other.mean == pytest.approx(one.mean @ matrix + shift, abs=1e-7)
    ratios = [DPCA(12).fit(target, background=background).ratios_ for target, background in (plain, mapped)]
    assert ratios[1] == pytest.approx(ratios[0], rel=1e-8)


def test_three_percent_of_outliers_ruin_the_classical_ratio_and_not_the_robust_one(dirty):
    classical = DPCA(1, shrinkage=None).fit(dirty[0], background=dirty[1])
    robust = DPCA(1, shrinkage=None).fit(*map(robust_moments, dirty[:1]), background=robust_moments(dirty[1]))
    assert not 0.1 < classical.ratios_[0] / MODEL.top_ratio < 10
    assert cosine(classical.components_[0], MODEL.signal) < 0.5
    assert robust.ratios_[0] == pytest.approx(MODEL.top_ratio, rel=0.25)
    assert cosine(robust.components_[0], MODEL.signal) > 0.95


def test_the_size_of_outliers_hardly_matters(clean):
    near, far = (robust_moments(spoiled(clean[0], 1, size=size)).covariance() for size in (1e3, 1e9))
    assert np.abs(near - far).max() < 0.01 * np.abs(near).max()


def test_on_gaussian_rows_it_is_close_to_the_covariance():
    rng = np.random.default_rng(5)
    population = mixing(rng, 8, 10.0)
    rows = rng.normal(size=(20_000, 8)) @ population
    whiten = np.linalg.inv(population)
    # Its standard error is that of the covariance times √(1 + 2/D): 0.01 here, for each of 36 entries.
    for estimate, allowed in ((robust_moments(rows).covariance(), 0.04), (covariance(rows), 0.035)):
        assert np.abs(whiten.T @ estimate @ whiten - np.eye(8)).max() < allowed
    assert robust_moments(rows).mean @ whiten == pytest.approx(np.zeros(8), abs=0.04)


def test_the_direction_agrees_with_the_minimum_covariance_determinant(dirty):
    peer = [MinCovDet(random_state=0).fit(rows).covariance_ for rows in dirty]
    values, vectors = linalg.eigh(*peer)
    ours = DPCA(1).fit(robust_moments(dirty[0]), background=robust_moments(dirty[1]))
    assert cosine(ours.components_[0], vectors[:, -1]) > 0.95
    assert ours.ratios_[0] == pytest.approx(values[-1], rel=0.25)


def test_counts_groups_and_names_are_kept(clean):
    names = [f"f{i}" for i in range(12)]
    groups = np.arange(1000) // 10
    found = robust_moments(pd.DataFrame(clean[0], columns=names), groups=groups)
    assert (found.rows, found.weight, found.units, found.names) == (1000, 1000.0, 100.0, tuple(names))
    assert robust_moments(clean[0], names=names).names == tuple(names)


def test_integer_weights_repeat_rows_and_zero_drops_them(clean):
    rows = clean[0][:300]
    weights = np.random.default_rng(6).integers(0, 4, 300)
    holes = np.where(weights[:, None] == 0, np.nan, rows)
    weighted, repeated = robust_moments(holes, weights=weights), robust_moments(np.repeat(rows, weights, axis=0))
    assert weighted.covariance() == pytest.approx(repeated.covariance(), rel=1e-8, abs=1e-8)
    assert weighted.mean == pytest.approx(repeated.mean, abs=1e-8)
    assert weighted.weight == repeated.weight and weighted.rows == np.count_nonzero(weights)


def test_sparse_rows_and_lists_give_the_same_moments(clean):
    rows = clean[0].round(2)
    expected = robust_moments(rows).covariance()
    assert robust_moments(sparse.csr_array(rows)).covariance() == pytest.approx(expected, rel=1e-9)
    assert robust_moments(rows.tolist()).covariance() == pytest.approx(expected, rel=1e-9)


def test_constant_and_duplicate_features_are_kept(clean):
    rows = clean[0]
    wide = np.column_stack([rows, rows[:, 0], np.full(1000, 3.0), rows[:, 1] + rows[:, 2]])
    found, plain = robust_moments(wide), robust_moments(rows)
    extra = np.zeros((12, 3))
    extra[0, 0] = extra[1, 2] = extra[2, 2] = 1
    matrix = np.hstack([np.eye(12), extra])
    expected = matrix.T @ plain.covariance() @ matrix
    assert np.abs(found.covariance() - expected).max() < 1e-8 * np.abs(expected).max()
    assert found.mean[13] == 3.0 and found.variance()[13] == 0.0


def test_too_few_rows_are_an_error(clean, refused):
    refused(lambda: robust_moments(clean[0][:12]), "12 rows for 12 features", kind=NotEnoughRowsError)


def test_a_feature_that_varies_only_in_outliers_is_refused_by_name(clean, refused):
    rows = clean[0].copy()
    rows[:, 4] = np.where(np.arange(1000) < 40, rows[:, 4], 0.0)
    names = [f"gene {i}" for i in range(12)]
    refused(lambda: robust_moments(pd.DataFrame(rows, columns=names)), "same value", "'gene 4'")


def test_an_iteration_that_does_not_converge_is_an_error(clean, refused):
    refused(lambda: robust_moments(clean[0], max_iter=2), "did not converge in 2 steps", "max_iter")
    rows = clean[0].copy()
    rows[:950, 0] = rows[:950, 1]  # nearly all rows lie in a subspace that no single feature reveals
    refused(lambda: robust_moments(rows), "did not converge")


@pytest.mark.parametrize(("name", "value"), [("max_iter", 0), ("max_iter", 2.5), ("tol", 0), ("tol", "small")])
def test_bad_settings_are_an_error(clean, name, value, refused):
    refused(lambda: robust_moments(clean[0], **{name: value}), f"{name}={value!r}")


def test_bad_rows_are_an_error(clean, refused):
    rows = clean[0].copy()
    rows[5, 3] = np.nan
    refused(lambda: robust_moments(rows), "1 NaN", kind=NonFiniteError)
    refused(lambda: robust_moments(np.ones((9, 2))), "constant")
    refused(lambda: robust_moments(clean[0], weights=np.ones(3)), "weights", kind=InputError)
    refused(lambda: robust_moments(Moments.of(clean[0])), "rows", kind=RowsNeededError)
