"""What is only rounding never becomes a finding, and what float64 cannot hold is refused by name."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from helpers import null_log_ratio
from standout._cpca import CPCA
from standout._dataset import Mixture
from standout._dpca import DPCA
from standout._kernel_dpca import KernelDPCA
from standout._moments import Moments
from standout._spectrum import largest_root_p_value
from standout.errors import InputError, OverfitWarning

pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")

ROUTES = {
    "dense": (lambda: DPCA(2, centering="background"), 6, 100),
    "gsvd": (lambda: DPCA(2, centering="background", solver="gsvd"), 6, 100),
    "matrix_free": (lambda: DPCA(2, centering="background", solver="matrix_free"), 6, 100),
    "span": (lambda: DPCA(2, centering="background", solver="span"), 60, 20),
    "wide gsvd": (lambda: DPCA(2, centering="background", solver="gsvd"), 60, 20),
    "cPCA": (lambda: CPCA(2, centering="background", alpha=1.0), 6, 100),
    "wide cPCA": (lambda: CPCA(2, centering="background", alpha=1.0), 60, 20),
}


@pytest.mark.parametrize("n_backgrounds", [1, 3])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("route", ROUTES)
def test_a_feature_that_is_constant_everywhere_has_no_weight_in_any_component(route, make, n_backgrounds):
    estimator, features, rows = ROUTES[route]
    for seed in range(25):
        rng = np.random.default_rng(seed)
        constant = rng.normal() * 10.0 ** rng.integers(-3, 4)

        def data(count, rng=rng, constant=constant):
            table = rng.normal(size=(count, features)) + rng.normal(size=features)
            table[:, 1] = constant
            return make(table)

        target = data(rows)
        backgrounds = [data(rows + 3 + 7 * k) for k in range(n_backgrounds)]
        model = estimator().fit(target, background=backgrounds)
        assert np.isfinite(model.ratios_).all(), seed
        assert np.all(model.components_[:, 1] == 0) and np.all(model.patterns_[:, 1] == 0), seed
        assert model.mean_[1] == constant


def test_a_constant_stays_constant_when_batches_with_several_backgrounds_are_added_up():
    for seed in range(25):
        rng = np.random.default_rng(seed)
        constant = rng.normal()
        model = DPCA(2, centering="background")
        for _ in range(3):
            parts = [rng.normal(size=(40 + 9 * k, 5)) for k in range(4)]
            for part in parts:
                part[:, 2] = constant
            model.partial_fit(parts[0], background=parts[1:])
        assert np.isfinite(model.ratios_).all() and np.all(model.components_[:, 2] == 0)


@pytest.mark.parametrize(("mean", "sd"), [(20, 5), (20, 1e-3), (20, 1e-5), (1e6, 1)])
@pytest.mark.parametrize("large", [False, True])
def test_parts_of_a_whole_have_one_dimension_less_however_far_from_zero_they_are(mean, sd, large):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        parts = [sd * rng.normal(size=(count, 4)) * spread + mean for count, spread in ((100, [1, 2, 1, 1]), (300, 1))]
        whole = [np.column_stack([rows, 5 * mean - rows.sum(axis=1)]) for rows in parts]
        if large:  # one feature far from zero must not hide what others tell
            whole = [np.column_stack([rows, 1e12 + rng.normal(size=len(rows))]) for rows in whole]
            parts = [np.column_stack([part, rows[:, -1] - 1e12]) for part, rows in zip(parts, whole, strict=True)]
        found, expected = (DPCA(4, shrinkage=None).fit(data[0], background=data[1]) for data in (whole, parts))
        assert found.solver_ == "gsvd" and expected.solver_ == "dense"
        np.testing.assert_allclose(found.ratios_, expected.ratios_, rtol=1e-4)


def test_the_mixed_mean_of_equal_means_is_that_mean_and_of_others_their_weighted_average():
    rng = np.random.default_rng(0)
    for _ in range(300):
        shares = rng.dirichlet(np.ones(rng.integers(1, 6)))
        mixture = Mixture(shares, 10.0, 10.0, 10.0)
        same = rng.normal(size=3)
        assert np.all(mixture.mixed_means([same] * len(shares)) == same)
        means = rng.normal(size=(len(shares), 3)) * 10.0 ** rng.integers(-8, 8, size=(len(shares), 1))
        size = np.abs(shares[:, None] * means).max(axis=0)
        expected = [math.fsum(shares * column) for column in means.T]
        assert np.all(np.abs(mixture.mixed_means(means) - expected) <= 1e-14 * size)


@pytest.mark.parametrize("weights", [[1, 0.2, 0, 0], [1, 1e-6, 0, 0], [1, 0.25, 1e-3, 1e-3]])
def test_a_target_worth_fewer_than_two_rows_is_fitted_without_a_p_value(weights):
    rng = np.random.default_rng(0)
    with pytest.warns(OverfitWarning, match="fewer than two"):
        model = DPCA(1).fit(rng.normal(size=(4, 3)), background=rng.normal(size=(50, 3)), sample_weight=weights)
    assert np.isfinite(model.ratios_).all() and np.isnan(model.p_value_)
    assert "fewer than two" in str(model.summary())


def test_the_p_value_exists_from_two_units_on():
    for units in (1.0, 1.2, 1.5, 1.9):
        assert math.isnan(largest_root_p_value(3.0, 5, units, 100))
    for units in (2.0, 2 - 1e-15, 2.1, 3.0):
        assert 0 < largest_root_p_value(3.0, 5, units, 100) < 1


@pytest.mark.parametrize("kind", ["f2", "f4", ">f8", "longdouble", "i2", "i8", "u8"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("solver", ["auto", "dense", "gsvd", "matrix_free"])
@pytest.mark.parametrize("sizes", [(70, 90), (4, 12)])
def test_every_kind_of_number_gives_the_components_of_the_same_numbers_in_float64(kind, weighted, solver, sizes):
    rng = np.random.default_rng(1)
    target, background = (np.round(20 * rng.normal(size=(rows, 5)) + 100).astype(kind) for rows in sizes)
    background[:, 2] = 7  # structural: the target varies here and the background does not
    weights = [rng.uniform(0.5, 2, size=len(rows)) if weighted else None for rows in (target, background)]
    models = [
        DPCA(3, shrinkage=None, solver=solver).fit(
            target.astype(to), background=background.astype(to),
            sample_weight=weights[0], background_sample_weight=weights[1],
        )
        for to in (kind, "f8")
    ]  # fmt: skip
    assert np.isinf(models[0].ratios_[0])
    np.testing.assert_allclose(models[0].ratios_, models[1].ratios_, rtol=1e-10)
    np.testing.assert_allclose(models[0].components_, models[1].components_, atol=1e-8)


@pytest.mark.parametrize("container", [np.asarray, pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("kind", ["i8", "u8"])
def test_integers_whose_differences_float64_cannot_hold_are_refused_by_name(container, kind, refused):
    rng = np.random.default_rng(2)
    rows = rng.integers(0, 300, size=(60, 3)).astype(kind)
    rows[:, 1] += 2**60
    columns = {"a": rows[:, 0], "id": rows[:, 1], "b": rows[:, 2]}
    data = rows if container is np.asarray else container(columns)
    name = "1" if container is np.asarray else "'id'"
    refused(lambda: DPCA(2).fit(data), f"feature {name} holds integers of about 1.15e+18", "less a constant")
    rows[:, 1] -= 2**60
    DPCA(2).fit(rows)


def test_large_integers_that_differ_by_much_are_as_good_as_floats():
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 10**9, size=(200, 3))
    large = rows.copy()
    large[:, 1] += 1_700_000_000 * 10**9  # nanoseconds since 1970, over one second
    found, expected = (DPCA(3).fit(table).ratios_ for table in (large, rows))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def plain(rows):
    return rows


@pytest.mark.parametrize("offset", [0.0, 1e3])
@pytest.mark.parametrize("form", [plain, sparse.csr_array, Moments.of])
@pytest.mark.parametrize("solver", ["auto", "dense"])
@pytest.mark.parametrize("relation", ["a sum", "a constant", "fewer dimensions"])
def test_a_component_that_the_background_lacks_scores_infinity_on_old_and_new_rows(relation, solver, form, offset):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        mix = rng.normal(size=(6, 6))

        def background(count, rng=rng, mix=mix):
            rows = rng.normal(size=(count, 6))
            if relation == "fewer dimensions":
                return rows[:, :4] @ mix[:4] + offset
            rows = rows @ mix
            rows[:, 3] = rows[:, :3] @ [1.0, -2.0, 0.5] if relation == "a sum" else 0.1
            return rows + offset

        rows, new = (2 * rng.normal(size=(count, 6)) @ mix + offset for count in (200, 150))
        old = background(300)
        model = DPCA(2, shrinkage=None, solver=solver).fit(rows, background=old)
        assert np.isinf(model.ratios_[0])
        assert model.score(form(rows), background=form(old)) == np.inf
        assert model.score(form(new), background=form(background(170))) == np.inf
        # New background rows that do vary there give a finite score, by the definition.
        other = rng.normal(size=(100, 6)) @ mix + offset
        scores = [(part - part.mean(axis=0)) @ model.components_.T for part in (new, other)]
        expected = np.log(scores[0].var(axis=0) / scores[1].var(axis=0)).mean() - null_log_ratio(150, 100)
        assert model.score(form(new), background=form(other)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("unit", [1e-30, 1e30])
def test_the_units_of_the_data_do_not_make_a_score_rounding(unit):
    rng = np.random.default_rng(5)
    target, background = unit * rng.normal(size=(80, 4)), unit * rng.normal(size=(90, 4))
    assert np.isfinite(DPCA(2).fit(target).score(target))
    for estimator in (DPCA(2), CPCA(2, alpha=1.0), KernelDPCA(2)):
        assert np.isfinite(estimator.fit(target, background=background).score(target, background=background))


def test_neither_side_varying_is_still_refused():
    rng = np.random.default_rng(4)
    rows, background = rng.normal(size=(50, 3)), rng.normal(size=(60, 3))
    model = DPCA(1).fit(rows, background=background)
    same = np.repeat(rows[:1], 30, axis=0)
    with pytest.raises(InputError, match="neither target nor background"):
        model.score(same, background=same)
