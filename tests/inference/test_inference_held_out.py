"""The held-out ratio against its definition: fit on some rows, variances of scores on the others, scipy's F and t."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma

from standout._cpca import CPCA
from standout._dpca import DPCA
from standout._folds import Spread, fold_notes, mean_over_folds, over_folds
from standout._kernel_dpca import KernelDPCA
from standout._moments import Moments
from standout._spectrum import mean_log_variance
from standout.errors import InputError, NotEnoughRowsError, RowsNeededError
from standout.inference.held_out import held_out_ratio

pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")


def pair(seed=0, m=60, n=50, size=6, signal=3.0):
    rng = np.random.default_rng(seed)
    target, background = rng.normal(size=(m, size)), rng.normal(size=(n, size)) + 2.0
    target[:, 1] *= signal
    return target, background


def test_one_split_matches_the_definition_and_scipys_f():
    target, background = pair()
    found = held_out_ratio(target, background, n_components=2, split=0.4, random_state=3, level=0.9)
    (fitted,) = found.estimators
    # The split is drawn unit by unit, target first.
    rng = np.random.default_rng(3)
    held = [rng.permutation(np.repeat([0, 1], [round(0.4 * n), n - round(0.4 * n)])) == 0 for n in (60, 50)]
    again = DPCA(2).fit(target[~held[0]], background=background[~held[1]])
    np.testing.assert_allclose(again.components_, fitted.components_, rtol=1e-10)
    scores = again.transform(target[held[0]]), again.transform(background[held[1]])
    ratio = scores[0].var(axis=0, ddof=1) / scores[1].var(axis=0, ddof=1)
    # The log of a variance of ν degrees of freedom is too small by ln(ν/2) − ψ(ν/2) on average.
    bias = np.exp(digamma(23 / 2) - np.log(23 / 2) - (digamma(19 / 2) - np.log(19 / 2)))
    np.testing.assert_allclose(found.ratios, ratio / bias, rtol=1e-10)
    np.testing.assert_allclose(found.training_ratios[0], again.ratios_, rtol=1e-10)
    np.testing.assert_allclose(found.low, ratio / stats.f.ppf(0.95, 23, 19), rtol=1e-10)
    np.testing.assert_allclose(found.high, ratio / stats.f.ppf(0.05, 23, 19), rtol=1e-10)
    assert "F distribution" in found.interval


def test_every_row_is_held_out_once_and_log_ratios_are_averaged():
    target, background = pair(1)
    target[:, 0], background[:, 0] = np.arange(60), np.arange(50)  # the first feature identifies the row
    seen = []

    class Spy(DPCA):
        def _scores(self, X):
            seen.append(np.asarray(X.rows(0, X.n_rows))[:, 0])
            return super()._scores(X)

    found = held_out_ratio(target, background, estimator=Spy(2), folds=4)
    assert found.fold_ratios.shape == (4, 2)
    np.testing.assert_array_equal(np.sort(np.concatenate(seen[0::2])), np.arange(60))
    np.testing.assert_array_equal(np.sort(np.concatenate(seen[1::2])), np.arange(50))
    logs = np.log(found.fold_ratios)
    np.testing.assert_allclose(np.log(found.ratios), logs.mean(axis=0))
    reach = stats.t.ppf(0.975, 3) * np.sqrt((1 / 4 + 1 / 3) * logs.var(axis=0, ddof=1))
    np.testing.assert_allclose(np.log(found.high), logs.mean(axis=0) + reach)
    np.testing.assert_allclose(np.log(found.low), logs.mean(axis=0) - reach)


def test_a_subject_is_never_on_both_sides_of_a_split():
    target, background = pair(2)
    # Subjects 0 to 9 are in both sets; 10 to 14 in the background alone.
    groups, others = np.arange(60) % 10, np.arange(50) % 15
    target[:, 0], background[:, 0] = groups, others
    trained, held = [], []

    class Spy(DPCA):
        def fit(self, X, **given):
            trained.append(set(X.rows(0, X.n_rows)[:, 0]) | set(given["background"].rows(0, 10**6)[:, 0]))
            return super().fit(X, **given)

        def _scores(self, X):
            held.append(set(X.rows(0, X.n_rows)[:, 0]))
            return super()._scores(X)

    found = held_out_ratio(target, background, estimator=Spy(1), groups=groups, background_groups=others, folds=3)
    assert found.by == "groups" and len(trained) == 3
    for fold in range(3):
        assert not trained[fold] & (held[2 * fold] | held[2 * fold + 1])


def variance_by_unit(scores, units):
    spread = Spread.of(scores, units)
    return spread.within + spread.between


def test_the_variance_by_unit_is_the_sample_variance_of_rows_and_of_means_of_copies():
    scores = np.random.default_rng(0).normal(size=(12, 3))
    np.testing.assert_allclose(variance_by_unit(scores, np.arange(12)), scores.var(axis=0, ddof=1))
    copies = np.repeat(scores, 5, axis=0)
    np.testing.assert_allclose(variance_by_unit(copies, np.repeat(np.arange(12), 5)), scores.var(axis=0, ddof=1))


def grouped(rng, sizes, intraclass, size=2):
    """Return rows of variance one with this intraclass correlation."""
    units = np.repeat(np.arange(len(sizes)), sizes)
    shared, own = rng.normal(size=(len(sizes), size)), rng.normal(size=(len(units), size))
    return np.sqrt(intraclass) * shared[units] + np.sqrt(1 - intraclass) * own, units


@pytest.mark.parametrize("intraclass", [0.0, 0.5, 1.0])
def test_the_variance_by_unit_is_unbiased_for_groups_of_unequal_size(intraclass):
    rng = np.random.default_rng(0)
    found = [variance_by_unit(*grouped(rng, [9, 5, 2, 1, 1], intraclass, 50)) for _ in range(200)]
    assert np.mean(found) == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("intraclass", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("sizes", [[15, 15], [9, 4, 2]])
def test_the_expected_log_of_a_grouped_variance_matches_a_simulation(sizes, intraclass):
    rng = np.random.default_rng(1)
    wide = grouped(rng, sizes, intraclass, 40_000)
    simulated = np.log(variance_by_unit(*wide)).mean()
    parts = np.array([1 - intraclass]), np.array([intraclass])
    expected = mean_log_variance(*Spread.of(*wide).terms(*parts))
    # Exact for equal sizes; the means of uneven groups are combined by Satterthwaite's approximation.
    assert expected[0] == pytest.approx(simulated, abs=0.02 if sizes[0] == sizes[1] else 0.06)


NULL = {"200 + 20": (200, 20), "400 + 12": (400, 12), "20 + 200": (20, 200)}


@pytest.mark.parametrize("design", NULL)
def test_the_held_out_log_ratio_of_noise_is_zero_on_average(design):
    logs = []
    for run in range(80):
        rng = np.random.default_rng([1, run])
        sets = [rng.normal(size=(count, 2)) for count in NULL[design]]
        logs.append(np.log(held_out_ratio(*sets, n_components=2, random_state=run).ratios))
    # Without the correction 0.36, 1.0 and -0.33.
    assert abs(np.mean(logs)) < min(0.25, 4 * np.std(logs) / np.sqrt(160))


@pytest.mark.parametrize("intraclass", [0.0, 0.5, 1.0])
def test_the_held_out_log_ratio_of_noise_in_groups_is_zero_on_average(intraclass):
    logs = []
    for run in range(80):
        rng = np.random.default_rng([2, run])
        (target, mice), (background, others) = (grouped(rng, [15] * count, intraclass) for count in (18, 9))
        found = held_out_ratio(
            target, background, n_components=2, groups=mice, background_groups=others + 18, random_state=run
        )
        logs.append(np.log(found.ratios))
    # Without the correction 0.8 for an intraclass correlation of 1; as if each group were a row, -0.76 for 0.
    assert abs(np.mean(logs)) < min(0.35, 4 * np.std(logs) / np.sqrt(160))


def test_copies_of_rows_in_one_group_change_nothing():
    target, background = pair(3)
    rows = held_out_ratio(target, background, split=0.5, groups=np.arange(60), background_groups=np.arange(50))
    copied = held_out_ratio(
        np.repeat(target, 4, axis=0),
        np.repeat(background, 4, axis=0),
        estimator=DPCA(1, shrinkage=rows.estimators[0].shrinkage_ or None),
        split=0.5,
        groups=np.repeat(np.arange(60), 4),
        background_groups=np.repeat(np.arange(50), 4),
    )
    for name in ("ratios", "low", "high"):
        np.testing.assert_allclose(getattr(copied, name), getattr(rows, name), rtol=1e-8)


@pytest.mark.parametrize("estimator", [CPCA(2, alpha=2.0), KernelDPCA(2, kernel="poly"), DPCA(2, axes="signal")])
def test_every_estimator_can_be_measured(estimator):
    target, background = pair(4, m=90, n=90)
    found = held_out_ratio(target, {"a": background[:40], "b": background[40:] - 9.0}, estimator=estimator)
    assert found.low[0] > 1 and len(found.estimators) == 5
    assert not hasattr(estimator, "n_features_in_")  # it was copied
    assert found.fold_ratios.shape[1] == min(fitted.n_components_ for fitted in found.estimators)


def test_several_backgrounds_are_mixed_by_their_shares():
    target, background = pair(5)
    parts = {"a": background[:20], "b": 3 * background[20:]}
    found = held_out_ratio(target, parts, estimator=DPCA(1, mix={"a": 0.9, "b": 0.1}), split=0.5, random_state=1)
    rng = np.random.default_rng(1)
    held = [rng.permutation(np.repeat([0, 1], [n // 2, n - n // 2])) == 0 for n in (60, 20, 30)]
    (fitted,) = found.estimators
    spread = [
        fitted.transform(rows[mask]).var(axis=0, ddof=1)
        for rows, mask in zip((target, *parts.values()), held, strict=True)
    ]
    shares = np.array([0.9 * spread[1], 0.1 * spread[2]])
    null = np.log(rng.chisquare(29, 10**6) / 29).mean()
    null -= np.log(
        (shares / shares.sum() * np.array([[1 / 9], [1 / 14]]) * rng.chisquare([[9], [14]], (2, 10**6))).sum(0)
    ).mean()
    np.testing.assert_allclose(np.log(found.ratios), np.log(spread[0] / shares.sum()) - null, atol=2e-3)


def test_noise_has_a_large_training_ratio_and_a_held_out_ratio_near_one():
    target, background = pair(6, m=60, n=40, size=30, signal=1.0)
    found = held_out_ratio(target, background, estimator=DPCA(1, shrinkage=None))
    assert found.training_ratios.min() > 10 and found.low[0] < 1 < found.high[0]
    assert "5 folds by rows" in found.summary() and f"{found.ratios[0]:.4g}" in found.summary()
    assert held_out_ratio(*pair(7)).low[0] > 1


def test_the_shift_counts_if_the_estimator_centres_by_the_background():
    target, background = pair(8, signal=1.0)
    far = target + 20.0
    found = held_out_ratio(far, background, estimator=DPCA(1, centering="background"), split=0.5)
    assert found.ratios[0] > 100 and np.isnan(found.low[0]) and "none" in found.interval
    assert held_out_ratio(far, background, split=0.5).ratios[0] < 10


def test_few_groups_give_fewer_folds_and_a_note(remedy):
    target, background = pair(9)
    found = held_out_ratio(target, background, groups=np.arange(60) % 12, background_groups=np.arange(50) % 7)
    assert len(found.fold_ratios) == 3 and found.units == (12, 7)
    (note,) = found.notes
    assert note.startswith("3 folds instead of 5")
    remedy(note)


SPARSE = {11: ("3 of 5", 1.165, True), 7: ("3 of 5", np.inf, False), 8: ("5 of 5", np.nan, False)}


@pytest.mark.parametrize("seed", SPARSE)
def test_undefined_folds_are_left_out_and_counted(seed, remedy):
    rng = np.random.default_rng(seed)
    found = held_out_ratio((rng.random((40, 3)) < 0.04) * 1.0, (rng.random((40, 3)) < 0.04) * 1.0)
    count, ratio, finite = SPARSE[seed]
    assert int(np.isnan(found.fold_ratios).sum()) == int(count[0])
    what = "so its ratio is undefined" if np.isnan(ratio) else "which are left out"
    rare, note = found.notes[:2]
    assert "in few rows" in rare
    assert f"neither the held-out target nor the background varies in {count} folds, {what}" in note
    assert found.ratios[0] == pytest.approx(ratio, rel=1e-3, nan_ok=True)
    assert np.isfinite(found.high[0]) == finite and not found.low[0] > 1
    assert "The component is above one" not in found.summary()
    for note in found.notes:
        remedy(note)


def test_infinite_folds_give_an_infinite_ratio_and_the_lower_end_of_the_finite_ones():
    ratios = [[2, np.inf, np.nan, 0], [3, 2, np.nan, 2], [np.nan, 3, np.nan, 3], [4, 4, np.nan, np.inf]]
    with np.errstate(divide="ignore"):
        logs = np.log(np.array(ratios, dtype=float))
    lows, highs = over_folds(logs, 0.9)
    finite = np.log([2.0, 3.0, 4.0])
    reach = stats.t.ppf(0.95, 2) * finite.std(ddof=1) * np.sqrt(1 / 3 + 1 / 3)
    low = finite.mean() - reach
    np.testing.assert_allclose(lows, [low, low, np.nan, -np.inf])
    np.testing.assert_allclose(highs, [finite.mean() + reach, np.inf, np.nan, np.inf])
    np.testing.assert_allclose(mean_over_folds(logs), [finite.mean(), np.inf, np.nan, np.nan])
    np.testing.assert_array_equal(over_folds(np.full((3, 1), np.inf), 0.9)[0], [np.inf])
    notes = fold_notes(logs, [f"dpca{k}" for k in range(4)])
    assert len(notes) == 5 and "dpca1: the held-out background does not vary in 1 of 4 folds" in notes[1]
    assert "in 4 of 4 folds, so its ratio is undefined" in notes[2]


@pytest.mark.parametrize("options", [{}, {"split": 0.5}])
def test_a_constant_background_has_an_infinite_ratio_and_a_note(options):
    target, background = pair()
    background[:, 1] = 2.0
    found = held_out_ratio(target, background, estimator=DPCA(1, shrinkage=None), **options)
    assert found.ratios[0] == found.low[0] == found.high[0] == np.inf
    assert "the held-out background does not vary" in found.notes[-1] and found.notes[-1] in found.summary()


def test_weights_count_rows_and_the_weighted_variance_by_unit_is_unbiased():
    rng = np.random.default_rng(3)
    scores, units = grouped(rng, [9, 5, 2, 1, 1], 0.5, 20_000)
    weights = rng.uniform(0.2, 3.0, len(units))
    spread = Spread.of(scores, units, weights)
    assert spread.within.mean() == pytest.approx(0.5, abs=0.02)
    assert spread.between.mean() == pytest.approx(0.5, abs=0.03)
    scaled = Spread.of(scores, units, 7 * weights)
    np.testing.assert_allclose(scaled.total, spread.total)
    terms = spread.terms(np.array([0.5]), np.array([0.5]))
    assert mean_log_variance(*terms)[0] == pytest.approx(np.log(spread.total).mean(), abs=0.06)


def test_the_split_depends_on_the_seed_alone():
    data = pair(10)
    first, again, other = (held_out_ratio(*data, random_state=seed).ratios[0] for seed in (1, 1, 2))
    assert first == again != other


BAD = {
    "moments": (lambda x, y: held_out_ratio(Moments.of(x), y), ["target", "moments"], RowsNeededError),
    "split": (lambda x, y: held_out_ratio(x, y, split=1.0), ["split=1.0"], InputError),
    "tiny split": (lambda x, y: held_out_ratio(x, y[:5], split=0.2), ["background", "split=0.2"], NotEnoughRowsError),
    "folds": (lambda x, y: held_out_ratio(x, y, folds=0), ["folds=0"], InputError),
    "level": (lambda x, y: held_out_ratio(x, y, level=95), ["level=95"], InputError),
    "three rows": (lambda x, y: held_out_ratio(x, y[:3]), ["background", "cannot be split"], NotEnoughRowsError),
    "no estimator": (lambda x, y: held_out_ratio(x, y, estimator=stats), ["estimator", "module"], InputError),
    "by label": (
        lambda x, y: held_out_ratio(x, y, estimator=DPCA(background_label="c")),
        ["background_label='c'"],
        InputError,
    ),
    "no background": (lambda x, _: held_out_ratio(x, None), ["the background is missing"], InputError),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_arguments_are_refused_with_a_remedy(kind, refused):
    call, words, error = BAD[kind]
    refused(lambda: call(*pair()), *words, kind=error)
