"""Identities and closed forms of the exact problem C_xx u = λ C_yy u, on random problems."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import EPS, covariance, mixing, moments_of, same_up_to_sign
from laws import Problem, fit, problems, quickly, rounding, same_directions, same_ratios
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import ConditionWarning, TableWarning

pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.OverfitWarning")


@quickly
@given(problems())
def test_ratios_do_not_change_under_affine_maps_and_filters_map_by_the_inverse_transpose(problem: Problem):
    rng, plain = problem.rng, problem.fit()
    M = mixing(rng, problem.size, 30.0) * 5
    b, c = rng.normal(size=(2, problem.size)) * 10
    background = problem.background @ M.T + c
    mapped = fit(problem.target @ M.T + b, background)
    # The maps themselves round: ε·(mean/sd) in the data, made worse by cond(M).
    tolerance = rounding(problem.matrices[1], covariance(background))
    assert same_ratios(mapped.ratios_, plain.ratios_, tolerance)
    expected = plain.components_ @ np.linalg.inv(M)
    assert same_directions(mapped.components_, expected, covariance(background), plain.ratios_, tolerance)


@quickly
@given(problems(), st.floats(-8, 8))
def test_scaling_the_target_by_s_multiplies_the_ratios_by_s_squared(problem: Problem, power):
    s, plain = 10**power, problem.fit()
    scaled = fit(s * problem.target, problem.background)
    assert same_ratios(scaled.ratios_, s**2 * plain.ratios_, rounding(problem.matrices[1]))


@quickly
@given(problems())
def test_swapping_target_and_background_inverts_the_ratios(problem: Problem):
    plain, swapped = problem.fit(), fit(problem.background, problem.target)
    tolerance = rounding(*problem.matrices)
    # Small ratios are known relative to the largest, so their inverses are worse by λ₁/λ_D.
    spread = plain.ratios_[0] / plain.ratios_[-1]
    assert same_ratios(swapped.ratios_, 1 / plain.ratios_[::-1], tolerance * spread)
    assert same_directions(
        swapped.components_[::-1], plain.components_, problem.matrices[1], plain.ratios_, tolerance * spread
    )


@quickly
@given(problems(), st.integers(2, 4), st.integers(1, 3))
def test_replicated_rows_change_nothing(problem: Problem, times, others):
    plain = problem.fit()
    again = fit(np.tile(problem.target, (times, 1)), np.repeat(problem.background, others, axis=0))
    tolerance = rounding(problem.matrices[1])
    assert same_ratios(again.ratios_, plain.ratios_, tolerance)
    assert same_directions(again.components_, plain.components_, problem.matrices[1], plain.ratios_, tolerance)


@quickly
@given(problems())
def test_the_order_of_rows_changes_nothing(problem: Problem):
    rng, plain = problem.rng, problem.fit()
    shuffled = fit(rng.permutation(problem.target), rng.permutation(problem.background))
    tolerance = rounding(problem.matrices[1])
    assert same_ratios(shuffled.ratios_, plain.ratios_, tolerance)
    assert same_directions(shuffled.components_, plain.components_, problem.matrices[1], plain.ratios_, tolerance)
    assert np.all(np.einsum("ij,ij->i", shuffled.components_, plain.components_) > 0)


@quickly
@given(problems(min_features=2))
def test_the_order_of_columns_permutes_filters_and_patterns(problem: Problem):
    order, plain = problem.rng.permutation(problem.size), problem.fit()
    moved = fit(problem.target[:, order], problem.background[:, order])
    background = problem.matrices[1][np.ix_(order, order)]
    tolerance = rounding(background)
    assert same_ratios(moved.ratios_, plain.ratios_, tolerance)
    assert same_directions(moved.components_, plain.components_[:, order], background, plain.ratios_, tolerance)
    assert np.all(np.einsum("ij,ij->i", moved.patterns_, plain.patterns_[:, order]) > 0)


@quickly
@given(problems(), st.booleans())
def test_a_duplicate_column_does_not_change_the_ratios(problem: Problem, from_moments):
    plain, column = problem.fit(), problem.rng.integers(problem.size)
    twice = [np.column_stack([rows, rows[:, column]]) for rows in (problem.target, problem.background)]
    with pytest.warns(ConditionWarning, match=f"identical features: {column} = {problem.size}"):
        doubled = fit(*(map(Moments.of, twice) if from_moments else twice))
    assert same_ratios(doubled.ratios_, plain.ratios_, rounding(problem.matrices[1]))
    assert doubled.regime_ == "exact"


@quickly
@given(problems(max_features=4))
def test_integer_weights_are_repetition(problem: Problem):
    rng = problem.rng
    weights = rng.integers(1, 4, size=len(problem.target))
    others = rng.integers(1, 4, size=len(problem.background))
    weights[0] = others[-1] = 0
    weighted = DPCA(None, shrinkage=None).fit(
        problem.target, background=problem.background, sample_weight=weights, background_sample_weight=others
    )
    repeated = fit(np.repeat(problem.target, weights, axis=0), np.repeat(problem.background, others, axis=0))
    background = covariance(np.repeat(problem.background, others, axis=0))
    assert same_ratios(weighted.ratios_, repeated.ratios_, rounding(background))
    assert same_directions(
        weighted.components_, repeated.components_, background, repeated.ratios_, rounding(background)
    )
    assert weighted.mean_ == pytest.approx(repeated.mean_, abs=1e-12)


@quickly
@given(problems())
def test_product_and_sum_of_ratios_are_determinant_and_trace(problem: Problem):
    C_xx, C_yy = problem.matrices
    ratios, tolerance = problem.fit().ratios_, rounding(C_yy)
    assert ratios.sum() == pytest.approx(np.trace(np.linalg.solve(C_yy, C_xx)), rel=problem.size * tolerance)
    # In the product every ratio counts with its own relative error, the smallest with the largest.
    worst = tolerance * (ratios[0] / ratios).sum() + rounding(C_xx)
    assert np.log(ratios).sum() == pytest.approx(np.linalg.slogdet(C_xx)[1] - np.linalg.slogdet(C_yy)[1], abs=worst)


@quickly
@given(problems())
def test_the_variances_of_the_scores_have_the_ratios(problem: Problem):
    model, tolerance = problem.fit(), rounding(problem.matrices[1])
    target, background = model.transform(problem.target).var(axis=0), model.transform(problem.background).var(axis=0)
    assert same_ratios(target / background, model.ratios_, tolerance)
    assert background == pytest.approx(model.background_variance_, rel=tolerance)
    assert model.target_variance_ / model.background_variance_ == pytest.approx(model.ratios_, rel=1e-14)


@quickly
@given(problems())
def test_a_dataset_against_itself_has_all_ratios_one(problem: Problem):
    n_rows = len(problem.background)
    with pytest.warns(TableWarning, match=f"all {n_rows} rows are also in the target"):
        ratios = fit(problem.background, problem.background.copy()).ratios_
    assert np.abs(ratios - 1).max() <= rounding(problem.matrices[1])


@quickly
@given(problems())
def test_a_white_background_is_pca(problem: Problem):
    against_white = fit(Moments.of(problem.target), moments_of(np.eye(problem.size)))
    alone = DPCA(None).fit(problem.target)
    tolerance = rounding(np.eye(problem.size))
    assert same_ratios(against_white.ratios_, np.linalg.eigvalsh(problem.matrices[0])[::-1], tolerance)
    assert same_ratios(alone.ratios_, against_white.ratios_, tolerance)
    assert same_directions(against_white.components_, alone.components_, np.eye(problem.size), alone.ratios_, tolerance)


@quickly
@given(problems(), st.floats(0, 100))
def test_target_plus_c_times_background_adds_c_to_every_ratio(problem: Problem, c):
    (C_xx, C_yy), plain = problem.matrices, problem.fit()
    added = fit(moments_of(C_xx + c * C_yy), moments_of(C_yy))
    assert same_ratios(added.ratios_, plain.ratios_ + c, rounding(C_yy))


@quickly
@given(problems(min_features=2))
def test_fewer_features_never_have_a_larger_top_ratio(problem: Problem):
    kept = problem.rng.permutation(problem.size)[: problem.rng.integers(1, problem.size)]
    fewer = fit(problem.target[:, kept], problem.background[:, kept])
    assert fewer.ratios_[0] <= problem.fit().ratios_[0] * (1 + rounding(problem.matrices[1]))


@quickly
@given(problems(max_features=1))
def test_one_feature_has_the_ratio_of_variances(problem: Problem):
    model = problem.fit()
    assert model.ratios_ == pytest.approx([problem.target.var() / problem.background.var()], rel=1e-13)
    assert model.components_ == pytest.approx(np.ones((1, 1)))


@quickly
@given(problems(min_features=2), st.floats(-2, 2))
def test_rank_one_addition_has_its_closed_form(problem: Problem, power):
    C_yy, s2 = problem.matrices[1], 10**power
    a = problem.rng.normal(size=problem.size)
    model = fit(moments_of(C_yy + s2 * np.outer(a, a)), moments_of(C_yy))
    filtered = np.linalg.solve(C_yy, a)
    gain, tolerance = s2 * a @ filtered, rounding(C_yy)
    # C_yy itself is rounded next to s²aaᵀ, which moves λ₁ − 1 by cond(C_yy)·ε of λ₁.
    assert model.ratios_[0] == pytest.approx(1 + gain, rel=tolerance)
    assert np.abs(model.ratios_[1:] - 1).max() <= tolerance * (1 + gain)
    known = tolerance * np.linalg.cond(C_yy) ** 0.5 * (1 + gain) / gain
    assert same_up_to_sign(model.components_[:1], filtered[None] / np.linalg.norm(filtered), known)
    pattern = a[None] * np.linalg.norm(filtered) / (a @ filtered)
    assert same_up_to_sign(model.patterns_[:1], pattern, known)


@quickly
@given(problems())
def test_filters_and_patterns_are_dual_and_patterns_are_images_of_filters(problem: Problem):
    (C_xx, C_yy), model = problem.matrices, problem.fit()
    tolerance = rounding(C_yy)
    lengths = np.linalg.norm(model.patterns_, axis=1)
    # Off the diagonal the error is that of the vectors: divided by how far the ratios are apart.
    gaps = np.abs(model.ratios_[:, None] - model.ratios_) + np.diag(model.ratios_)
    allowed = tolerance * lengths * (1 + model.ratios_[0] / gaps) * np.linalg.cond(C_xx) ** 0.5
    assert np.all(np.abs(model.components_ @ model.patterns_.T - np.eye(problem.size)) <= allowed)
    images = model.components_ @ C_yy / model.background_variance_[:, None]
    assert same_up_to_sign(model.patterns_, images, tolerance * model.ratios_[0] / model.ratios_[-1])


@quickly
@given(problems(min_features=2), st.sampled_from([None, "background"]))
def test_rows_on_the_span_of_the_patterns_are_restored_from_their_scores(problem: Problem, normalize):
    count = int(problem.rng.integers(1, problem.size + 1))
    model = problem.fit(count, normalize=normalize)
    scores = problem.rng.normal(size=(9, count)) * np.sqrt(model.target_variance_)
    rows = model.inverse_transform(scores)
    size = np.abs(model.patterns_).max() * np.abs(model.components_).max()
    allowed = rounding(*problem.matrices) * (1 + size) * np.abs(scores).max()
    assert model.transform(rows) == pytest.approx(scores, abs=allowed)
    assert model.inverse_transform(model.transform(rows)) == pytest.approx(rows, abs=allowed * np.abs(rows).max())


@quickly
@given(problems(min_features=2), st.integers(0, 2**31))
def test_with_oas_the_units_of_features_and_the_order_of_rows_change_nothing(problem: Problem, seed):
    rng = np.random.default_rng(seed)
    plain = problem.fit(shrinkage="oas")
    units = 10 ** rng.uniform(-6, 6, size=problem.size)
    other = fit(rng.permutation(problem.target) * units, rng.permutation(problem.background) * units, shrinkage="oas")
    # Measured in background sd the problem is the same: only rounding of the products is left.
    C_yy = problem.matrices[1]
    sd = np.sqrt(np.diag(C_yy))
    tolerance = rounding(C_yy / np.outer(sd, sd))
    assert other.shrinkage_ == pytest.approx(plain.shrinkage_, rel=1000 * EPS)
    assert same_ratios(other.ratios_, plain.ratios_, tolerance)
    shrunk = (1 - plain.shrinkage_) * C_yy + plain.shrinkage_ * np.diag(sd**2)
    assert same_directions(other.components_ * units, plain.components_, shrunk, plain.ratios_, tolerance)
    assert np.all(np.einsum("ij,ij->i", other.patterns_ / units, plain.patterns_) > 0)
