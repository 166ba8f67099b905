"""Moments are numpy's mean and covariance, however the rows come, and add up to those of the whole."""

import warnings
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from scipy import sparse

from conftest import NAMES, OneShot
from helpers import EPS, covariance
from standout._accumulate import Accumulator
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import (
    FeatureError,
    InputError,
    NonFiniteError,
    OverfitWarning,
)


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(500, 4)) @ rng.normal(size=(4, 4)) + [1, -2, 30, 0]


def close(moments, rows, weights=None, rtol=1e-12):
    """Check against numpy's own mean and covariance, entry by entry on the scale of the sd."""
    mean = np.average(rows, axis=0, weights=weights)
    covariance = np.cov(rows.T, aweights=weights, ddof=0)
    sd = np.sqrt(np.diagonal(covariance))
    np.testing.assert_allclose(moments.mean / sd, mean / sd, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(moments.covariance() / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=rtol)
    np.testing.assert_allclose(moments.variance(), sd**2, rtol=rtol)


def test_moments_agree_with_numpy(rows):
    moments = Moments.of(rows)
    close(moments, rows)
    np.testing.assert_allclose(moments.covariance(ddof=1), np.cov(rows.T), rtol=1e-12)
    np.testing.assert_array_equal(moments.scatter, moments.scatter.T)
    assert (moments.rows, moments.weight, moments.n_effective, moments.units) == (500, 500, 500, 500)


def test_moments_are_immutable(rows):
    moments = Moments.of(rows)
    with pytest.raises(FrozenInstanceError):
        moments.weight = 3.0


def test_adding_moments_changes_neither_the_rows_nor_the_parts(rows):
    before = rows.copy()
    one, other = Moments.of(rows[:9]), Moments.of(rows[9:], weights=np.ones(491))
    kept = one.scatter.copy(), one.mean.copy(), other.scatter.copy()
    _ = one + other, one.project(np.eye(4)), one.select(np.array([1, 0])), one.covariance()
    np.testing.assert_array_equal(rows, before)
    for now, then in zip((one.scatter, one.mean, other.scatter), kept, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("cuts", [[1], [1, 2, 3], [250], [499], range(1, 500)])
def test_moments_of_parts_add_up_to_those_of_the_whole(rows, cuts):
    first, *others = (Moments.of(part) for part in np.split(rows, cuts))
    for other in others:
        first = first + other
    close(first, rows)
    assert (first.rows, first.n_effective) == (500, 500)


def test_moments_can_be_summed(rows):
    parts = sum([Moments.of(rows[:50]), Moments.of(rows[50:90]), Moments.of(rows[90:])])
    np.testing.assert_allclose(parts.scatter, Moments.of(rows).scatter, rtol=1e-12)


def exact_covariance(whole):
    """Return the covariance of whole numbers by arithmetic without rounding."""
    table = whole.astype(object)
    total, n = table.sum(axis=0), len(table)
    return np.array((n * (table.T @ table) - np.outer(total, total)) / (n * n), dtype=float)


@pytest.mark.parametrize("offset", [0, 10**6, 10**8, 10**11])
@pytest.mark.parametrize("cuts", [[1], [50, 250], range(1, 500), range(7, 500, 7)])
def test_merging_parts_far_from_zero_loses_no_precision(offset, cuts):
    noise = np.random.default_rng(3).integers(-1000, 1000, size=(500, 3))
    whole = 1000 * offset + noise * [1, 1, 3] + np.cumsum(noise, axis=1)  # mean / sd is about the offset
    expected = exact_covariance(whole)
    scale = np.sqrt(np.outer(*[np.diagonal(expected)] * 2))
    parts = [Moments.of(part.astype(float)) for part in np.split(whole, cuts)]
    pairs = parts
    while len(pairs) > 1:  # as a tree, like a cluster
        pairs = [sum(pairs[i : i + 2]) for i in range(0, len(pairs), 2)]
    empty = Moments(np.zeros(3), np.zeros((3, 3)), 0.0, 0.0, 0)
    for merged in (sum(parts), sum(reversed(parts)), pairs[0], empty + sum([*parts[:-1], empty, parts[-1]])):
        assert (np.abs(merged.covariance() - expected) / scale).max() < 1e-12
        picked = merged.select(np.array([2, 0])) + merged.select(np.array([2, 0]))
        assert (np.abs(picked.covariance() - expected[::-2, ::-2]) / scale[::-2, ::-2]).max() < 1e-12


def test_projected_moments_are_those_of_the_projected_rows(rows):
    matrix = np.random.default_rng(1).normal(size=(4, 2))
    close(Moments.of(rows).project(matrix), rows @ matrix)


def test_selected_moments_are_those_of_the_selected_columns(rows):
    chosen = Moments.of(rows, names="abcd").select(np.array([2, 0]))
    close(chosen, rows[:, [2, 0]])
    assert chosen.names == ("c", "a")


def test_integer_weights_equal_repetition(rows):
    times = np.random.default_rng(2).integers(0, 4, size=500)
    moments = Moments.of(rows, weights=times)
    close(moments, np.repeat(rows, times, axis=0))
    assert moments.rows == np.count_nonzero(times) and moments.weight == times.sum()


def test_rows_of_weight_zero_are_not_counted(rows):
    weights = (np.arange(500) < 300) * 1.0
    groups = np.arange(500) // 100
    moments = Moments.of(rows, weights=weights, groups=groups)
    close(moments, rows[:300])
    assert (moments.rows, moments.n_effective, moments.units) == (300, 300, 3)


def test_the_effective_number_of_rows_is_that_of_kish(rows):
    weights = np.random.default_rng(3).exponential(size=500)
    moments = Moments.of(rows[:200], weights=weights[:200]) + Moments.of(rows[200:], weights=weights[200:])
    assert moments.n_effective == pytest.approx(weights.sum() ** 2 / (weights**2).sum(), rel=1e-13)
    assert Moments.of(rows, weights=7 * weights).n_effective == pytest.approx(moments.n_effective, rel=1e-13)
    close(moments, rows, weights)


def test_a_group_that_spans_batches_is_one_unit(rows):
    groups = np.array([f"mouse {i // 60}" for i in range(500)])
    parts = [Moments.of(rows[cut], groups=groups[cut]) for cut in (slice(0, 70), slice(70, 300), slice(300, 500))]
    whole = parts[0] + parts[1] + parts[2]
    assert [part.units for part in parts] == [2, 4, 4] and whole.units == 9


def test_a_missing_group_id_is_an_error(rows, remedy):
    for missing in (np.where(np.arange(500) < 3, np.nan, 1.0), np.array([None] * 3 + ["a"] * 497)):
        with pytest.raises(InputError, match=r"groups: .*3") as error:
            Moments.of(rows, groups=missing)
        remedy(error)


def test_adding_parts_with_and_without_groups_is_an_error(rows, remedy):
    with pytest.raises(InputError, match="one part has groups and the other has none") as error:
        Moments.of(rows, groups=np.arange(500)) + Moments.of(rows)
    remedy(error)


def test_adding_parts_with_different_features_is_an_error(rows, remedy):
    with pytest.raises(FeatureError, match="4 and of 3 features") as count:
        Moments.of(rows) + Moments.of(rows[:, :3])
    with pytest.raises(FeatureError, match=r"names.*'d', 'c'") as names:
        Moments.of(rows, names="abcd") + Moments.of(rows, names="abdc")
    remedy(count)
    remedy(names)
    assert (Moments.of(rows) + Moments.of(rows, names="abcd")).names == tuple("abcd")
    with pytest.raises(TypeError):
        Moments.of(rows) + 1


def test_moments_need_one_name_per_feature(rows, remedy):
    with pytest.raises(InputError, match=r"names.*3.*4|4.*names.*3") as error:
        Moments.of(rows, names="abc")
    remedy(error)


def test_a_projection_of_the_wrong_shape_is_an_error(rows, remedy):
    with pytest.raises(InputError, match=r"\(3, 2\) does not fit 4 features") as error:
        Moments.of(rows).project(np.ones((3, 2)))
    remedy(error)


@pytest.mark.parametrize("step", [1, 7, 5000])
@pytest.mark.parametrize("first", [1, 300])
def test_batches_with_a_drifting_mean_lose_no_precision(step, first):
    rng = np.random.default_rng(4)
    trend = np.linspace(0, 1e6, 5000)[:, None] * [1, -1, 0.5] + rng.normal(size=(5000, 3))
    for rows in (trend, np.sort(rng.normal(size=(5000, 3)), axis=0) + 1e5):
        batches = [rows[:first], *(rows[i : i + step] for i in range(first, 5000, step))]
        source = OneShot(rows)
        source.blocks = lambda _, batches=batches: iter(batches)
        close(Moments.of(source), rows, rtol=1e-10)


def test_moments_of_single_precision_rows_are_summed_in_double_precision():
    rows = (np.random.default_rng(6).normal(size=(50_000, 3)) + 1000).astype(np.float32)
    close(Moments.of(rows), rows.astype(np.float64), rtol=1e-11)


@pytest.mark.parametrize("value", [0.1, 1e8 + 1 / 3, -1 / 3, 1e-30, np.float32(0.1)])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_constant_feature_has_exactly_zero_variance(value, weighted):
    rng = np.random.default_rng(7)
    rows = np.column_stack([np.full(100_000, value), rng.normal(size=100_000) + 5])
    weights = rng.exponential(size=100_000) if weighted else None
    moments = Moments.of(rows, weights=weights)
    assert moments.variance()[0] == 0 and moments.scatter[0, 0] == 0 and moments.scatter[0, 1] == 0
    assert moments.mean[0] == value
    half = None if weights is None else weights[:500]
    assert (Moments.of(rows[:500], weights=half) + moments).variance()[0] == 0


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.uint16, np.int32, np.uint64])
def test_integers_near_their_limits_do_not_overflow(dtype):
    limit = np.iinfo(dtype)
    low, high = max(int(limit.min), -(2**52)), min(int(limit.max), 2**52)
    rows = np.array([[low, high], [high, low], [high, high], [high, low]] * 3000, dtype=dtype)
    close(Moments.of(rows), rows.astype(np.float64), rtol=1e-12)
    moved = rows // 2
    close(Moments.of(moved, weights=np.arange(len(rows))), moved.astype(np.float64), np.arange(len(rows)), rtol=1e-11)


@pytest.mark.parametrize("scale", [1e150, 1e-150, 1e-160, 1e-200, 1e200, 1e300])
def test_extreme_units_give_the_same_ratios_or_an_error(rows, scale, remedy):
    """Ratios do not depend on the unit: a unit either gives the same ratios, or a clear error; never fewer digits."""
    target, background = rows[:200] * [1, 1, 1, 5], rows[200:]
    expected = DPCA().fit(target, background=background).ratios_
    try:
        found = DPCA().fit(target * scale, background=background * scale).ratios_
    except InputError as error:
        assert scale < 1e-150 or scale > 1e150
        assert "overflow" in str(error) if scale > 1 else "underflow" in str(error)  # noqa: PT017
        remedy(error)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("feature", [0, 3])
def test_a_feature_too_small_to_square_is_not_treated_as_constant(rows, feature, remedy):
    unit = np.where(np.arange(4) == feature, 1e-200, 1.0)
    target, background = rows[:200] * [1, 1, 1, 5], rows[200:]
    expected = DPCA().fit(target, background=background).ratios_
    try:
        found = DPCA().fit(target * unit, background=background * unit).ratios_
    except InputError as error:
        assert "underflow" in str(error) and str(feature) in str(error)  # noqa: PT017
        remedy(error)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize(("up", "down"), [(1e80, 1.0), (1.0, 1e80), (1e80, 1e-80), (1e140, 1e-140)])
def test_very_different_units_of_target_and_background_give_the_ratio_or_an_error(rows, up, down, remedy):
    target, background = rows[:200] * [1, 1, 1, 5], rows[200:]
    settings = DPCA(1, shrinkage=None)
    if up / down < 1e150:
        expected = settings.fit(target, background=background).ratios_ * (up / down) ** 2
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OverfitWarning)  # a tiny ratio is not above noise
            found = settings.fit(target * up, background=background * down).ratios_
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    else:  # the ratio is beyond the largest number
        with pytest.raises(InputError, match="overflow") as error:
            settings.fit(target * up, background=background * down)
        remedy(error)


def test_a_value_too_large_to_square_is_located(rows, remedy):
    rows[17, 2] = 1e200
    with pytest.raises(InputError, match=r"data: .*squares overflow \(largest 1e\+200, in 1 features: 'c'\)") as error:
        Moments.of(rows, names=NAMES[:4])
    remedy(error)


def test_non_finite_values_are_counted_per_feature(rows, remedy):
    rows[[3, 4, 400], 1] = np.nan
    rows[7, 3] = -np.inf
    with pytest.raises(NonFiniteError, match=r"3 NaN and 1 inf values in 2 of 4 features: 1 \(3\), 3 \(1\)") as error:
        Moments.of(rows)
    remedy(error)
    with pytest.raises(NonFiniteError, match=r"the control: .*features: b \(3\), d \(1\)"):
        Moments.of(rows, names=NAMES[:4], role="the control")


def test_infinities_of_opposite_sign_are_found(rows):
    rows[3, 1], rows[4, 1] = np.inf, -np.inf
    with pytest.raises(NonFiniteError, match="0 NaN and 2 inf"):
        Moments.of(rows)
    with pytest.raises(NonFiniteError, match="0 NaN and 2 inf"):
        Moments.of(rows, weights=np.ones(500))


def test_extreme_weights_are_an_error_and_unequal_weights_lose_no_precision():
    for bad in (1e-170, 1e160):
        with pytest.raises(InputError, match="too far for sums"):
            DPCA().fit(np.random.default_rng(0).normal(size=(200, 4)), sample_weight=np.full(200, bad))
    rng = np.random.default_rng(4)
    rows, weights = rng.normal(size=(5000, 3)) + 1e3, np.ones(5000)
    weights[777] = 1e15
    moments = Moments.of(rows, weights=weights)
    centred = rows - rows[777]
    np.testing.assert_allclose(moments.scatter, (centred.T * weights) @ centred, rtol=1e-6)


KINDS = {
    "csr_array": sparse.csr_array,
    "csc_matrix": sparse.csc_matrix,
    "csr of bytes": lambda rows: sparse.csr_array(rows.astype("u1")),
    "csr of float32": lambda rows: sparse.csr_array(rows.astype("f4")),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_very_sparse_rows_are_summed_by_a_sparse_product(kind, weighted, monkeypatch):
    rows = np.random.default_rng(10).poisson(0.03, size=(900, 300)).astype(float)
    weights = np.random.default_rng(11).integers(0, 3, size=900) if weighted else None
    added = []
    monkeypatch.setattr(Accumulator, "add", lambda *_: added.append(1))
    found = Moments.of(KINDS[kind](rows), weights=weights)
    assert not added, "the rows were added up in dense blocks"
    expected = np.cov(rows.T, fweights=weights, ddof=0)
    np.testing.assert_allclose(found.covariance(), expected, rtol=1e-12, atol=1e-15)
    assert np.array_equal(found.scatter, found.scatter.T)
    assert found.mean == pytest.approx(np.average(rows, axis=0, weights=weights), rel=1e-13)
    assert found.rows == (900 if weights is None else np.count_nonzero(weights))


def test_a_sparse_feature_far_from_zero_loses_no_precision():
    rng = np.random.default_rng(12)
    rows = rng.poisson(0.02, size=(900, 300)).astype(float)
    rows[:, 7] = rng.integers(0, 8, size=900)
    shifted = rows.copy()
    shifted[:, 7] += 2.0**20
    found = Moments.of(sparse.csr_array(shifted)).covariance()
    np.testing.assert_allclose(found, covariance(rows), rtol=1e-11, atol=1e-13)


def test_non_finite_values_are_located_in_very_sparse_rows(refused):
    rows = sparse.csr_array(np.random.default_rng(13).poisson(0.02, size=(900, 300)).astype(float))
    rows.data[40] = np.inf
    where = str(rows.indices[40])
    refused(lambda: Moments.of(rows, role="counts"), "counts", "1 inf", f"{where} (1)", kind=NonFiniteError)
    model = DPCA(1).fit(np.eye(300) + 0.1)
    refused(lambda: model.transform(rows), "X", "1 inf", f"{where} (1)", kind=NonFiniteError)


@pytest.mark.parametrize("offset", [1e2, 1e4, 1e6, 1e8])
def test_adding_a_large_constant_does_not_change_the_covariance(offset):
    # Rows in steps of 2^−20 can be moved by whole numbers up to 2^32 without any rounding.
    rows = np.round(np.random.default_rng(7).normal(size=(9000, 5)) * 2**20) / 2**20
    plain, moved = Moments.of(rows), Moments.of(rows + offset)
    assert moved.mean - offset == pytest.approx(plain.mean, abs=2 * EPS * offset)
    assert moved.covariance() == pytest.approx(plain.covariance(), abs=1e-13)
    parts = [Moments.of(part) for part in np.array_split(rows + offset, 300)]
    assert sum(parts[1:], start=parts[0]).covariance() == pytest.approx(plain.covariance(), abs=1e-13)


def test_a_drifting_mean_does_not_reduce_accuracy():
    rows = np.random.default_rng(9).normal(size=(20_000, 3))
    rows += np.linspace(0, 1, 20_000)[:, None] * [0, 1e3, 1e6]
    exact = np.cov(rows.astype(np.longdouble).T, ddof=0).astype(float)
    size = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
    assert np.abs((Moments.of(rows).covariance() - exact) / size).max() < 1e-14


@pytest.mark.parametrize("n_left_out", [10, 3000, 5000])
@pytest.mark.parametrize("mingled", [False, True])
def test_rows_of_weight_zero_do_not_reduce_accuracy(n_left_out, mingled):
    rng = np.random.default_rng(26)
    rows = rng.normal(size=(3000, 4))
    whole = np.vstack([1e7 + rng.normal(size=(n_left_out, 4)), rows])  # left out because they are far off
    weights = np.r_[np.zeros(n_left_out), np.ones(3000)]
    order = rng.permutation(len(whole)) if mingled else np.arange(len(whole))
    moments = Moments.of(whole[order], weights=weights[order])
    assert moments.covariance() == pytest.approx(covariance(rows), abs=1e-12)
    assert moments.rows == moments.weight == 3000
