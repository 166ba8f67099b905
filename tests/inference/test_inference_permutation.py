"""The permutation test against brute force: the same labels, raw covariances and scipy's eigh."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import linalg

from helpers import mixing
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import InputError, NotEnoughRowsError, RowsNeededError
from standout.inference import resampling, statistic
from standout.inference.permutation import PermutationTest, permutation_test
from standout.inference.resampling import Shuffle, balanced_rows
from standout.io.source import watching

pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")


def noise(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape) + rng.normal(size=shape[1]) for shape in shapes]


def covariance(rows):
    return np.cov(rows.T, ddof=0)


def oas(correlation, dof):
    p, square = len(correlation), (correlation**2).sum()
    return min(1.0, ((1 - 2 / p) * square + p**2) / ((dof + 1 - 2 / p) * (square - p)))


def raw_ratio(sets, shares=(1.0,), shrunk=False):
    """Return the largest ratio by its definition: covariances, the background shrunk toward its diagonal by OAS."""
    target = covariance(sets[0])
    background = sum(share * covariance(rows) for share, rows in zip(shares, sets[1:], strict=True))
    if shrunk:
        sd = np.sqrt(np.diag(background))
        dof = 1 / sum(share**2 / (len(rows) - 1) for share, rows in zip(shares, sets[1:], strict=True))
        rho = oas(background / np.outer(sd, sd), dof)
        background = (1 - rho) * background + rho * np.diag(sd**2)
    return linalg.eigh(target, background, eigvals_only=True)[-1]


def raw_aligned(sets, units, exact=False):
    """Return all rows without the shift between sets, with the variance of unit means restored.

    The shift is the median of all differences between rows, feature by feature; for the exact problem along its
    components. Units of several rows: the difference between the means of units.
    """
    if exact:
        axes = linalg.eigh(covariance(sets[0]), covariance(sets[1]))[1]
        sets = [rows @ axes for rows in sets]
    total = sum(len(set(ids)) for ids in units)
    means = [
        pd.DataFrame(rows).groupby(np.asarray(ids)).mean().to_numpy() for rows, ids in zip(sets, units, strict=True)
    ]
    if total < sum(map(len, sets)):
        shifts, middle = [part.mean(axis=0) for part in means], 0.0
    else:
        shifts = [np.median([one - other for one in part for other in means[0]], axis=0) for part in means]
        middle = np.median(np.vstack([part - shift for part, shift in zip(means, shifts, strict=True)]), axis=0)
    parts = []
    for rows, ids, shift in zip(sets, units, shifts, strict=True):
        rows = rows - shift - middle
        count = len(set(ids))
        factor = math.sqrt(count / (count - 1) * (total - 1) / total)
        own = pd.DataFrame(rows).groupby(np.asarray(ids)).transform("mean").to_numpy()
        parts.append(rows - own + factor * own)
    return np.vstack(parts)


def by_label(rows, labels):
    return [rows[labels == label] for label in range(labels.max() + 1)]


def drawn(count, seed, draw):
    """Return the labels of ``count`` permutations: ten for each child of the seed."""
    children = np.random.SeedSequence(seed).spawn(math.ceil(count / 10))
    generators = [np.random.default_rng(child) for child in children]
    return [draw(generators[number // 10]) for number in range(count)]


@pytest.mark.parametrize(("shrinkage", "shape"), [(None, (40, 30, 8)), ("oas", (40, 30, 8)), ("auto", (12, 15, 40))])
def test_permuting_rows_by_hand_gives_the_same_ratios(shrinkage, shape):
    m, n, size = shape
    sets = noise(0, (m, size), (n, size))
    found = permutation_test(*sets, n_permutations=23, shrinkage=shrinkage, random_state=5)
    labels = np.repeat([0, 1], [m, n])
    shrunk = shrinkage is not None
    rows = raw_aligned(sets, [range(m), range(n)], exact=not shrunk)
    expected = [
        raw_ratio(by_label(rows, new), shrunk=shrunk) for new in drawn(23, 5, lambda rng: rng.permutation(labels))
    ]
    np.testing.assert_allclose(found.null[0], expected, rtol=1e-9)
    assert found.ratios[0] == pytest.approx(raw_ratio(sets, shrunk=shrunk), rel=1e-9)
    assert found.p_values[0] == (1 + np.sum(np.array(expected) >= found.ratios[0])) / 24


@pytest.mark.parametrize("shape", [(40, 30, 120), (40, 30, 60), (40, 30, 20)])
def test_the_statistic_is_the_first_ratio_of_a_fit_where_shared_factors_dominate(shape):
    m, n, size = shape
    rng = np.random.default_rng(size)
    loadings = 2 * rng.lognormal(size=size)
    sets = [rng.normal(size=(rows, size)) + np.outer(rng.normal(size=rows), loadings) for rows in (m, n)]
    found = permutation_test(*sets, n_permutations=5, random_state=5)
    rows, labels = raw_aligned(sets, [range(m), range(n)]), np.repeat([0, 1], [m, n])
    drawn_sets = [by_label(rows, new) for new in drawn(5, 5, lambda rng: rng.permutation(labels))]
    fits = [DPCA(1).fit(target, background=background) for target, background in drawn_sets]
    assert min(fit.n_factors_ for fit in fits) >= 1
    np.testing.assert_allclose(found.null[0], [fit.ratios_[0] for fit in fits], rtol=1e-8)


def test_groups_are_permuted_as_a_whole():
    sizes = [[3, 5, 2, 4, 6], [4, 2, 6, 5, 3]]
    sets = noise(1, (20, 4), (20, 4))
    groups = [np.repeat([f"{name}{i}" for i in range(5)], part) for name, part in zip("ab", sizes, strict=True)]
    found = permutation_test(
        *sets, n_permutations=15, shrinkage="oas", groups=groups[0], background_groups=groups[1], random_state=2
    )
    rows, units = raw_aligned(sets, groups), np.repeat(np.arange(10), sizes[0] + sizes[1])
    labels = np.repeat([0, 1], 5)
    expected = [
        raw_ratio(by_label(rows, new[units]), shrunk=True) for new in drawn(15, 2, lambda rng: rng.permutation(labels))
    ]
    np.testing.assert_allclose(found.null[0], expected, rtol=1e-9)
    assert found.permuted == "groups" and found.units == (5, 5)


@pytest.mark.parametrize("shift", [0.0, 7.0])
@pytest.mark.parametrize("size", [8, 80])
def test_sparse_counts_are_permuted_unchanged(size, shift):
    # Most values are equal, so that the estimated shift is exact.
    rng = np.random.default_rng(0)
    target, background = rng.poisson(0.1, size=(2, 30, size)).astype(float)
    found = permutation_test(target + shift, background, n_permutations=23, shrinkage="oas", random_state=5)
    rows, labels = np.vstack([target, background]), np.repeat([0, 1], 30)
    expected = [sparse_ratio(by_label(rows, new)) for new in drawn(23, 5, lambda rng: rng.permutation(labels))]
    np.testing.assert_allclose(found.null[0], expected, rtol=1e-9)


def sparse_ratio(sets):
    """Return ``raw_ratio``, shrunk; features that are constant in the background are in units of the target's sd."""
    target, background = (covariance(rows) for rows in sets)
    varies = np.ptp(sets[1], axis=0) > 0
    present = np.ptp(np.vstack(sets), axis=0) > 0
    sd = np.sqrt(np.where(varies, np.diag(background), np.diag(target)))
    sd[~present] = 1.0
    correlation = background / np.outer(sd, sd)
    rho = oas(correlation[np.ix_(varies, varies)], len(sets[1]) - 1)
    shrunk = (1 - rho) * correlation + rho * np.eye(len(sd))
    return linalg.eigh(target / np.outer(sd, sd), shrunk, eigvals_only=True)[-1]


def test_outliers_do_not_make_noise_significant():
    # With centring by means, outliers shift every row of their set, and a quarter of such noise is rejected.
    rejected = 0
    for seed in range(80):
        sets = np.random.default_rng(seed).standard_t(1.5, size=(2, 15, 10))
        rejected += permutation_test(*sets, n_permutations=19, n_jobs=1).p_values[0] <= 0.05
    assert rejected <= 11  # more have a chance of 0.001 at the nominal rate


def test_the_shift_between_sets_is_the_median_of_all_differences():
    rng = np.random.default_rng(3)
    sets = [rng.gamma(1.0, size=(count, 4)) + shift for count, shift in ((80, 0.0), (40, 3.0), (45, -2.0))]
    labels = np.repeat([0, 1, 2], [80, 40, 45])
    shuffle = Shuffle(labels, np.arange(165), "rows")
    rows = shuffle.aligned(np.vstack(sets))
    np.testing.assert_allclose(np.median(rows, axis=0), 0.0, atol=1e-12)
    for label in (1, 2):  # the median difference of aligned sets is zero; 80 rows are represented by 51 quantiles
        left = np.median(rows[labels == label][:, None] - rows[labels == 0], axis=(0, 1))
        np.testing.assert_allclose(left, 0.0, atol=0.02)
    exact = Shuffle(labels[80:] - 1, np.arange(85), "rows").aligned(np.vstack(sets[1:]))
    left = np.median(exact[40:][:, None] - exact[:40], axis=(0, 1))
    np.testing.assert_allclose(left, 0.0, atol=1e-12)


def test_too_many_infinite_ratios_are_reported(remedy):
    target, background = np.random.default_rng(1).poisson(0.05, size=(2, 60, 5)).astype(float)
    found = permutation_test(target, background, n_permutations=99, shrinkage=None)
    share = np.isinf(found.null[0]).mean()
    assert found.shrinkage == 0 and share > 0.05
    rare, note = found.notes
    assert "vary in few rows" in rare
    assert f"{100 * share:.0f} % of the permutations" in note and "shrinkage='oas'" in note
    remedy(note)
    assert permutation_test(target, background, n_permutations=99, shrinkage="oas").notes == (rare,)


@pytest.mark.parametrize("mix", ["pooled", "equal", [0.2, 0.8]])
def test_several_backgrounds_keep_their_means_and_shares(mix):
    sets = noise(2, (20, 5), (30, 5), (15, 5))
    found = permutation_test(sets[0], sets[1:], n_permutations=12, shrinkage="oas", mix=mix, random_state=3)
    shares = {"pooled": (2 / 3, 1 / 3), "equal": (0.5, 0.5)}.get(mix if isinstance(mix, str) else "", (0.2, 0.8))
    labels, rows = np.repeat([0, 1, 2], [20, 30, 15]), raw_aligned(sets, [range(20), range(30), range(15)])
    expected = [
        raw_ratio(by_label(rows, new), shares, shrunk=True) for new in drawn(12, 3, lambda rng: rng.permutation(labels))
    ]
    np.testing.assert_allclose(found.null[0], expected, rtol=1e-9)
    assert found.ratios[0] == pytest.approx(raw_ratio(sets, shares, shrunk=True), rel=1e-9)


@pytest.mark.parametrize("size", [5, 60])
def test_a_background_with_share_zero_is_permuted_but_not_measured(size):
    sets = noise(21, (20, size), (18, size), (15, size))
    found = permutation_test(sets[0], sets[1:], n_permutations=9, mix=[1, 0], n_components=2)
    model = DPCA(2, mix=[1, 0]).fit(sets[0], background=sets[1:])
    assert found.ratios[0] == pytest.approx(model.ratios_[0], rel=1e-9)
    assert np.isfinite(found.null).all()


def test_unused_rows_have_no_effect():
    sets = noise(22, (50, 4), (24, 4))
    groups = np.arange(50) // 10, 100 + np.arange(24) // 3
    found = permutation_test(*sets, n_permutations=9, groups=groups[0], background_groups=groups[1], random_state=3)
    shuffle = Shuffle(np.repeat([0, 1], [5, 8]), np.concatenate([groups[0], groups[1] - 95]), "groups")
    kept = balanced_rows(shuffle, 3)
    np.testing.assert_array_equal(np.bincount(shuffle.units[kept]), 3)
    np.testing.assert_array_equal(kept[kept >= 50], np.arange(50, 74))
    mine = kept[kept < 50]
    alone = permutation_test(
        sets[0][mine], sets[1], n_permutations=9, groups=groups[0][mine], background_groups=groups[1], random_state=3
    )
    np.testing.assert_allclose(found.null, alone.null, rtol=1e-12)
    assert found.ratios[0] == pytest.approx(alone.ratios[0], rel=1e-12)
    assert balanced_rows(Shuffle(shuffle.labels, np.repeat(np.arange(13), 4), "groups"), 0) is None


def test_each_pair_uses_as_many_rows_as_its_smaller_side_has():
    sizes = np.array([4, 2, 1, 3, 3, 5])  # the first three units are the target's
    shuffle = Shuffle(np.repeat([0, 1], 3), np.repeat(np.arange(6), sizes), "pairs", np.arange(6).reshape(2, 3).T)
    kept = balanced_rows(shuffle, 0)
    np.testing.assert_array_equal(np.bincount(shuffle.units[kept]), [3, 2, 1, 3, 2, 1])


def test_groups_are_balanced_by_rank():
    sizes = np.array([8, 2, 30, 4, 1, 2])  # 8, 2, 30 against 4, 1, 2
    shuffle = Shuffle(np.repeat([0, 1], 3), np.repeat(np.arange(6), sizes), "groups")
    np.testing.assert_array_equal(np.bincount(shuffle.units[balanced_rows(shuffle, 0)]), [2, 1, 4, 4, 1, 2])


def test_balanced_groups_have_equal_mean_sizes_for_any_number_of_groups():
    sizes = np.array([1, 1, 1, 1, 30, 30, 1, 1, 30, 30])  # six groups against four
    shuffle = Shuffle(np.repeat([0, 1], [6, 4]), np.repeat(np.arange(10), sizes), "groups")
    left = np.bincount(shuffle.units[balanced_rows(shuffle, 0)])
    np.testing.assert_array_equal(left, [1, 1, 1, 1, 30, 30, 1, 1, 10, 30])
    assert left[:6].mean() == pytest.approx(left[6:].mean(), rel=0.05)


def test_five_rows_per_subject_against_four_are_not_significant():
    # The largest exact ratio depends steeply on the number of background rows: unbalanced, two of five are rejected.
    given = {"groups": np.repeat(np.arange(10), 5), "background_groups": 10 + np.repeat(np.arange(10), 4)}
    rejected = sum(
        permutation_test(*noise(seed, (50, 30), (40, 30)), n_permutations=19, shrinkage=None, **given).p_values[0]
        <= 0.05
        for seed in range(40)
    )
    assert rejected <= 8


def test_one_subject_with_most_of_the_rows_does_not_shift_the_others():
    # Centred by the mean of rows, every small subject has the deviation of the large one: a quarter is rejected.
    ids = np.repeat(np.arange(12), [60] + [2] * 11)
    rejected = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        sets = [rng.normal(size=(12, 4))[ids] + 0.2 * rng.normal(size=(len(ids), 4)) for _ in range(2)]
        rejected += permutation_test(*sets, n_permutations=19, pairs=ids, background_pairs=ids).p_values[0] <= 0.05
    assert rejected <= 8


def test_a_missing_value_is_found_whichever_rows_are_drawn(refused):
    target, background = noise(1, (60, 5), (12, 5))
    target[0, 0] = np.nan
    given = {"groups": np.arange(60) // 20, "background_groups": 10 + np.arange(12)}
    for seed in range(4):
        refused(
            lambda seed=seed: permutation_test(target, background, random_state=seed, **given), "NaN", kind=ValueError
        )


def test_too_few_rows_after_balancing_are_refused_with_the_reason(refused):
    sets = noise(1, (60, 5), (12, 5))
    given = {"groups": np.arange(60) // 20, "background_groups": 10 + np.arange(12)}
    refused(
        lambda: permutation_test(*sets, n_components=3, **given), "15 of 72 rows are used", "only 2 dimensions",
        kind=NotEnoughRowsError,
    )  # fmt: skip


def test_pooled_backgrounds_keep_their_shares_when_rows_are_dropped():
    target, first, second = noise(4, (20, 4), (200, 4), (20, 4))
    given = {
        "groups": np.arange(20) // 2,
        "background_groups": [100 + np.arange(200) // 20, 200 + np.arange(20) // 2],
    }
    pooled, explicit = (
        permutation_test(target, [first, second], n_permutations=9, mix=mix, **given) for mix in ("pooled", [200, 20])
    )
    np.testing.assert_array_equal(pooled.ratios, explicit.ratios)
    np.testing.assert_array_equal(pooled.null, explicit.null)


@pytest.mark.parametrize("paired", [False, True], ids=["groups", "pairs"])
def test_many_rows_per_subject_on_one_side_are_not_significant(paired):
    # Ten subjects with twenty rows against ten with two, hardly any difference between subjects: unbalanced, more
    # than half of such noise is rejected.
    ids = np.repeat(np.arange(10), 20), np.repeat(np.arange(10), 2)
    given = {"pairs": ids[0], "background_pairs": ids[1]}
    if not paired:
        given = {"groups": ids[0], "background_groups": ids[1] + 10}
    rejected = 0
    for seed in range(40):
        sets = noise(100 + seed, (200, 8), (20, 8))
        rejected += permutation_test(*sets, n_permutations=19, n_jobs=1, **given).p_values[0] <= 0.05
    assert rejected <= 8  # more have a chance of 0.0001 at the nominal rate


def test_pairs_need_a_subject_for_every_row(refused):
    sets = noise(3, (4, 2), (4, 2))
    pairs = {"pairs": ["a", None, "b", "b"], "background_pairs": ["a", "a", "b", "b"]}
    refused(lambda: permutation_test(*sets, **pairs), "target pairs: 1 of 4 rows have no group id")
    pairs["pairs"] = ["a", np.nan, "b", "b"]  # as an array NaN would be the text 'nan'
    refused(lambda: permutation_test(*sets, **pairs), "target pairs: 1 of 4 rows have no group id")
    groups = {"groups": pairs["pairs"], "background_groups": list("cdef")}
    refused(lambda: permutation_test(*sets, **groups), "1 of 4 rows have no group id")


def test_pair_ids_that_differ_in_type_only_are_reported(refused):
    sets = noise(3, (4, 2), (4, 2))
    pairs = {"pairs": [1, 1, 2, 2], "background_pairs": ["1", "1", "2", "2"]}
    refused(lambda: permutation_test(*sets, **pairs), "1 in the target and '1' there may be the same")


def test_all_swaps_of_a_few_pairs_are_evaluated():
    sets = noise(3, (10, 3), (10, 3))
    subjects = np.repeat(list("abcde"), 2)
    turned = np.repeat([3, 1, 4, 0, 2], 2) * 2 + np.tile([0, 1], 5)  # the background in another order
    found = permutation_test(
        sets[0], sets[1][turned], shrinkage=None, pairs=subjects, background_pairs=subjects[turned]
    )
    rows = raw_aligned(sets, [subjects, subjects], exact=True)
    expected = []
    for swaps in itertools.product([0, 1], repeat=5):
        flip = np.repeat(swaps, 2)
        if any(swaps):  # the observed labels count once, by the observed ratio
            expected.append(raw_ratio(by_label(rows, np.concatenate([flip, 1 - flip]))))
    assert found.complete and found.n_possible == 32 and found.permuted == "pairs"
    np.testing.assert_allclose(np.sort(found.null[0]), np.sort(expected), rtol=1e-9)
    assert found.p_values[0] == (1 + np.sum(np.array(expected) >= found.ratios[0])) / 32


def test_all_assignments_of_a_few_groups_are_evaluated():
    sets = noise(4, (12, 3), (9, 3))
    groups = np.repeat(np.arange(4), 3), np.repeat(np.arange(4, 7), 3)
    found = permutation_test(*sets, groups=groups[0], background_groups=groups[1], shrinkage=None)
    rows, units = raw_aligned(sets, groups, exact=True), np.concatenate(groups)
    expected = [
        raw_ratio(by_label(rows, (~np.isin(units, chosen)).astype(int)))
        for chosen in itertools.combinations(range(7), 4)
        if chosen != (0, 1, 2, 3)
    ]
    assert found.complete and found.n_possible == 35 == math.comb(7, 4)
    np.testing.assert_allclose(np.sort(found.null[0]), np.sort(expected), rtol=1e-9)
    assert found.p_values[0] == (1 + np.sum(np.array(expected) >= found.ratios[0])) / 35
    sets[0][:, 0] = np.repeat([-50.0, 50.0], 6)  # no other labelling has a similar ratio
    assert permutation_test(*sets, groups=groups[0], background_groups=groups[1]).p_values[0] == 1 / 35


def test_a_note_reports_that_no_p_value_below_5_percent_is_possible(remedy):
    sets = noise(5, (8, 3), (4, 3))
    found = permutation_test(*sets, groups=np.repeat([0, 1, 2, 3], 2), background_groups=np.repeat([4, 5], 2))
    assert found.n_possible == 15
    assert any("no p-value below 0.067 is possible" in note for note in found.notes)
    for note in found.notes:
        remedy(note)
    assert "no p-value below" in found.summary()


def wide_pair():
    target, background = noise(6, (20, 150), (16, 150))
    target[:, 4] *= 30
    target[:, 9] *= 20
    return target, background


@pytest.mark.parametrize("shrinkage", [None, "auto"])
def test_observed_ratios_are_those_of_the_model(shrinkage):
    target, background = noise(7, (80, 6), (90, 6))
    target[:, 2] *= 4
    found = permutation_test(target, background, n_components=3, n_permutations=9, shrinkage=shrinkage)
    model = DPCA(3, shrinkage=shrinkage).fit(target, background=background)
    np.testing.assert_allclose(found.ratios, model.ratios_, rtol=1e-9 if shrinkage is None else 0.03)
    np.testing.assert_allclose(found.ratios[0], model.ratios_[0], rtol=1e-9)
    assert found.shrinkage == pytest.approx(model.shrinkage_, abs=1e-12)


def test_wide_observed_ratios_are_those_of_the_model():
    target, background = wide_pair()
    found = permutation_test(target, background, n_components=3, n_permutations=39)
    model = DPCA(3).fit(target, background=background)
    assert found.ratios[0] == pytest.approx(model.ratios_[0], rel=1e-9)
    np.testing.assert_allclose(found.ratios, model.ratios_, rtol=0.03)
    assert found.count() == 2


def test_a_gram_matrix_for_all_labels_is_the_problem_in_overall_sd(monkeypatch):
    monkeypatch.setattr(statistic, "MOST_WORK", 0.0)
    sets = noise(8, (12, 40), (15, 40))
    found = permutation_test(*sets, n_permutations=11, random_state=1)
    assert any("overall sd" in note for note in found.notes)
    centred = np.vstack([rows - rows.mean(axis=0) for rows in sets])
    labels = np.repeat([0, 1], [12, 15])
    sd = np.sqrt((centred**2).mean(axis=0))
    axes = np.linalg.svd(centred / sd, full_matrices=False)[2]  # the shift is estimated along principal axes
    inflated = raw_aligned(by_label(centred / sd @ axes.T, labels), [range(12), range(15)]) @ axes

    def ratio(rows, new):
        # In any orthonormal basis of the span of the rows, features in overall sd.
        target, background = (covariance(part) for part in by_label(rows, new))
        level = np.trace(background) / 40
        rho = oas(background / level, 14)
        return linalg.eigh(target, (1 - rho) * background + rho * level * np.eye(40), eigvals_only=True)[-1]

    assert found.ratios[0] == pytest.approx(ratio(centred / sd, labels), rel=1e-9)
    expected = [ratio(inflated, new) for new in drawn(11, 1, lambda rng: rng.permutation(labels))]
    np.testing.assert_allclose(found.null[0], expected, rtol=1e-9)


def test_the_next_component_is_tested_on_the_remaining_generalised_eigenvectors():
    target, background = noise(9, (40, 6), (50, 6))
    found = permutation_test(target, background, n_components=3, n_permutations=7, shrinkage=None)
    _, vectors = linalg.eigh(covariance(target), covariance(background))
    rest = vectors[:, ::-1][:, 2:]
    alone = permutation_test(target @ rest, background @ rest, n_permutations=7, shrinkage=None)
    np.testing.assert_allclose(found.null[2], alone.null[0], rtol=1e-8)
    assert found.ratios[2] == pytest.approx(alone.ratios[0], rel=1e-8)
    assert (np.diff(found.p_values) >= 0).all()


def test_exact_ratios_are_invariant_under_linear_maps_of_the_features():
    sets = noise(10, (40, 6), (70, 6))
    matrix = mixing(np.random.default_rng(0), 6, 1e3)
    plain, mapped = (permutation_test(*pair, n_permutations=19, shrinkage=None, n_components=2)
                     for pair in (sets, [rows @ matrix for rows in sets]))  # fmt: skip
    np.testing.assert_allclose(mapped.null, plain.null, rtol=1e-6)
    np.testing.assert_array_equal(mapped.p_values, plain.p_values)


@pytest.mark.parametrize("shape", [(40, 30, 8), (12, 15, 40)])
def test_neither_means_nor_units_of_measurement_matter(shape):
    m, n, size = shape
    sets = noise(11, (m, size), (n, size))
    scale = np.geomspace(1e-3, 1e3, size)
    plain = permutation_test(*sets, n_permutations=19, n_components=2)
    moved = permutation_test(sets[0] * scale + 1e4 * scale, sets[1] * scale - 3.0, n_permutations=19, n_components=2)
    np.testing.assert_allclose(moved.null, plain.null, rtol=1e-6)
    np.testing.assert_allclose(moved.ratios, plain.ratios, rtol=1e-6)


def test_the_order_of_rows_does_not_matter():
    sets = noise(12, (12, 3), (12, 3))
    groups = np.repeat([0, 1, 2], 4), np.repeat([3, 4, 5], 4)
    order = np.random.default_rng(0).permutation(12)
    plain = permutation_test(*sets, groups=groups[0], background_groups=groups[1])
    turned = permutation_test(
        sets[0][order], sets[1][order], groups=groups[0][order], background_groups=groups[1][order]
    )
    assert turned.p_values[0] == plain.p_values[0]
    np.testing.assert_allclose(np.sort(turned.null[0]), np.sort(plain.null[0]), rtol=1e-10)


def test_the_number_of_processes_does_not_matter(monkeypatch):
    sets = noise(13, (30, 5), (40, 5))
    one = permutation_test(*sets, n_permutations=45, n_jobs=1, random_state=4)
    monkeypatch.setattr(resampling, "_WORTH_PROCESSES", 0.0)
    two = permutation_test(*sets, n_permutations=45, n_jobs=2, random_state=4)
    np.testing.assert_array_equal(one.null, two.null)
    other = permutation_test(*sets, n_permutations=45, n_jobs=1, random_state=5)
    assert (other.null != one.null).any()


def test_p_values_are_above_zero_and_at_most_one():
    target, background = noise(14, (40, 4), (60, 4))
    for scale in (1e-4, 1.0, 1e4):
        found = permutation_test(target * scale, background, n_permutations=19, n_components=4)
        assert ((found.p_values > 0) & (found.p_values <= 1)).all()
    assert found.p_values[0] == 0.05


def test_a_feature_that_is_constant_in_the_background_has_an_infinite_ratio():
    target, background = noise(15, (60, 3), (90, 3))
    background[:, 1] = 7.0
    found = permutation_test(target, background, n_permutations=99, n_components=2)
    assert found.ratios[0] == math.inf and np.isfinite(found.ratios[1]) and np.isfinite(found.null).all()
    assert found.p_values[0] == 0.01 and found.p_values[1] > 0.05


def test_a_duplicate_feature_changes_nothing():
    target, background = noise(16, (40, 4), (60, 4))
    twice = [np.hstack([rows, rows[:, :1]]) for rows in (target, background)]
    plain, doubled = (permutation_test(*pair, n_permutations=19, shrinkage=None, n_components=2)
                      for pair in ((target, background), twice))  # fmt: skip
    np.testing.assert_allclose(doubled.null, plain.null, rtol=1e-8)
    assert doubled.rank == plain.rank == 4


def test_progress_is_reported():
    sets = noise(17, (20, 3), (30, 3))
    seen, own = [], []
    with watching(seen.append):
        permutation_test(*sets, n_permutations=25)
        permutation_test(*sets, n_permutations=25, progress=own.append)
    assert [(one.what, one.rows, one.share) for one in seen] == [
        ("permutations", 10, 0.4),
        ("permutations", 20, 0.8),
        ("permutations", 25, 1.0),
    ]
    assert own == seen


def test_frames_are_matched_by_name():
    target, background = noise(18, (30, 3), (40, 3))
    one = pd.DataFrame(target, columns=list("abc"))
    other = pd.DataFrame(background[:, [2, 0, 1]], columns=list("cab"))
    plain = permutation_test(target, background, n_permutations=9)
    named = permutation_test(one, other, n_permutations=9)
    np.testing.assert_allclose(named.null, plain.null, rtol=1e-12)
    common = permutation_test(one, other[["a", "b"]], n_permutations=9, features="common")
    assert common.rank == 2 and any("'c'" in note for note in common.notes)


def test_noise_exceeds_the_edge_with_the_given_probability():
    null = np.arange(1.0, 101.0)[None]
    found = PermutationTest(np.array([96.0]), np.array([0.05]), null, "rows", (5, 5), 2, 252.0, False, 0.0, ())
    assert (null > found.edge(0.05)).sum() == 4 and found.edge(0.1) == 91.0  # of 100 draws
    assert found.count() == 1 and found.count(0.01) == 0


def test_the_summary_states_ratio_critical_value_and_p_and_no_verdict():
    found = permutation_test(*noise(19, (60, 4), (60, 4)), n_permutations=99)
    (line,) = [line.split() for line in found.summary().splitlines() if line.strip().startswith("dpca0")]
    assert line[1:] == [f"{found.ratios[0]:.4g}", f"{found.edge()[0]:.4g}", f"{found.p_values[0]:.3g}"]
    assert "rows: 60 in the target, 60 in the background" in found.summary() and "stand" not in found.summary()


PAIR = noise(20, (20, 3), (24, 3))
BAD = {
    "moments": (lambda: permutation_test(Moments.of(PAIR[0]), PAIR[1]), ["target", "moments"], RowsNeededError),
    "background moments": (
        lambda: permutation_test(PAIR[0], Moments.of(PAIR[1])),
        ["background", "moments"],
        RowsNeededError,
    ),
    "no background": (lambda: permutation_test(PAIR[0], None), ["the background is missing"], InputError),
    "no target": (lambda: permutation_test(None, PAIR[1]), ["target"], InputError),
    "a group in both": (
        lambda: permutation_test(*PAIR, groups=[1] * 10 + [2] * 10, background_groups=[2] * 12 + [3] * 12),
        ["1 groups occur in the target and in the background", "2", "pairs="],
        InputError,
    ),
    "groups on one side": (
        lambda: permutation_test(*PAIR, groups=[1] * 10 + [2] * 10),
        ["background: it has no groups"],
        InputError,
    ),
    "one group": (
        lambda: permutation_test(*PAIR, groups=[1] * 20, background_groups=[2] * 12 + [3] * 12),
        ["target: 1 of the groups"],
        NotEnoughRowsError,
    ),
    "pairs on one side": (lambda: permutation_test(*PAIR, pairs=range(20)), ["must be given together"], InputError),
    "unlike pairs": (
        lambda: permutation_test(*PAIR, pairs=range(20), background_pairs=range(24)),
        ["4 of the subjects", "20, 21, 22, 23"],
        InputError,
    ),
    "too few pair ids": (
        lambda: permutation_test(*PAIR, pairs=range(5), background_pairs=range(24)),
        ["target pairs", "(5,)", "20 rows"],
        InputError,
    ),
    "pairs and groups": (
        lambda: permutation_test(
            *PAIR, pairs=range(20), background_pairs=range(24), groups=range(20), background_groups=range(24)
        ),
        ["both given"],
        InputError,
    ),
    "NaN": (
        lambda: permutation_test(np.where(PAIR[0] > 1, np.nan, PAIR[0]), PAIR[1]),
        ["target", "NaN"],
        InputError,
    ),
    "constant": (lambda: permutation_test(PAIR[0], np.ones((9, 3))), ["background: every feature"], InputError),
    "no permutations": (lambda: permutation_test(*PAIR, n_permutations=0), ["n_permutations=0"], InputError),
    "components": (lambda: permutation_test(*PAIR, n_components="auto"), ["n_components='auto'"], InputError),
    "too many components": (lambda: permutation_test(*PAIR, n_components=4), ["only 3 dimensions"], InputError),
    "minimax": (lambda: permutation_test(*PAIR, mix="minimax"), ["mix='minimax'", "'pooled'"], InputError),
    "n_jobs": (lambda: permutation_test(*PAIR, n_jobs=0), ["n_jobs=0"], InputError),
    "shrinkage": (lambda: permutation_test(*PAIR, shrinkage=2), ["shrinkage=2"], InputError),
    "exact without rows": (
        lambda: permutation_test(*noise(0, (9, 9), (5, 9)), shrinkage=None),
        ["the exact problem", "5 rows"],
        NotEnoughRowsError,
    ),
    "features": (lambda: permutation_test(PAIR[0], PAIR[1][:, :2]), ["2 features"], InputError),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_arguments_are_refused_with_a_remedy(kind, refused):
    call, words, error = BAD[kind]
    refused(call, *words, kind=error)


@pytest.mark.parametrize(("rows", "features"), [(30, 200), (60, 40)])
def test_the_remainder_of_a_removed_component_is_not_a_second_component(rows, features):
    # Removing the planted component leaves a trace of it in features that are constant in the background.
    found = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        target, background = rng.poisson(0.05, size=(2, rows, features)).astype(float)
        target[:, :8] += 4 * rng.normal(size=(rows, 1))
        background[:, :8] += 0.3 * rng.normal(size=(rows, 8))
        found.append(permutation_test(target, background, n_components=2, n_permutations=39, random_state=0))
    assert sum(one.p_values[0] <= 0.05 for one in found) >= 7
    assert sum(one.p_values[1] <= 0.05 for one in found) <= 3
    assert max(one.ratios[1] for one in found) < 1e3


def test_one_degree_of_freedom_is_written_in_the_singular():
    rng = np.random.default_rng(0)
    target, background = rng.normal(size=(12, 3)), rng.normal(size=(2, 3))
    found = permutation_test(target, background, n_permutations=50, n_components=1)
    assert "leave 1 degree of freedom for 3 dimensions" in " ".join(found.notes)
    assert "leave 1 degree of freedom for 3 dimensions" in DPCA(1).fit(target, background=background).summary()


@pytest.mark.parametrize(("rows", "others", "features"), [(60, 40, 20), (25, 20, 60)])
def test_noise_is_not_significant_after_two_real_components_were_removed(rows, others, features):
    found = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        target, background = rng.normal(size=(rows, features)), rng.normal(size=(others, features))
        target[:, :6] += 6 * rng.normal(size=(rows, 1))
        target[:, 6:12] += 4 * rng.normal(size=(rows, 1))
        found.append(permutation_test(target, background, n_components=3, n_permutations=39, random_state=0).p_values)
    assert sum(p[1] <= 0.05 for p in found) == 10
    assert sum(p[2] <= 0.05 for p in found) <= 3
