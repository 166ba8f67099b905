"""Missing values: drawn from a model of what is observed, so that noise is not taken for a finding."""

import warnings
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
from scipy import linalg, stats
from simulations.missing import formula, incomplete, permuted
from simulations.size import NOMINAL
from simulations.table import rate, repeat

import standout
from helpers import possible
from standout._cpca import CPCA
from standout._dataset import fill_by_training
from standout._dpca import DPCA
from standout._kernel_dpca import KernelDPCA
from standout._moments import Moments
from standout.errors import InputError, NonFiniteError, StandoutWarning
from standout.inference.assess import assess
from standout.inference.held_out import held_out_ratio
from standout.inference.permutation import permutation_test
from standout.io.missing import Exact, Factors, Observed, estimate
from standout.io.read import read

pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.OverfitWarning")


def gaps(rows, share, seed=0):
    """Return a copy of rows with NaN at random."""
    return np.where(np.random.default_rng(seed).random(rows.shape) < share, np.nan, rows)


def correlated(seed, n_rows, n_features=6, correlation=0.6):
    distance = np.abs(np.subtract.outer(np.arange(n_features), np.arange(n_features)))
    return np.random.default_rng(seed).normal(size=(n_rows, n_features)) @ np.linalg.cholesky(correlation**distance).T


def drawn_rows(data, **how):
    return np.concatenate(list(read(data, missing="auto", **how).blocks(50)))


def log_ratios(model):
    return np.log(model.ratios_)


@pytest.mark.parametrize("kind", ["exact", "factors"])
def test_draws_have_the_conditional_distribution_of_a_gaussian(kind):
    rng = np.random.default_rng(0)
    loadings, own, scale = rng.normal(size=(5, 2)), rng.uniform(0.2, 1, size=5), rng.uniform(0.5, 3, size=5)
    covariance = loadings @ loadings.T + np.diag(own)
    exact = Exact(scale, np.linalg.inv(covariance), linalg.sqrtm(covariance), np.zeros((5, 0)))
    model = exact if kind == "exact" else Factors(scale, loadings, own)
    row = rng.normal(size=5) * scale
    row[[1, 4]] = np.nan
    other = rng.normal(size=5) * scale
    other[2] = np.nan
    rows = np.tile([row, other], (40_000, 1))
    filled = model.fill(rows, rng.normal(size=(len(rows), model.n_normal)))
    whole = covariance * np.outer(scale, scale)
    for part, gone in ((filled[::2], [1, 4]), (filled[1::2], [2])):
        seen = np.setdiff1d(np.arange(5), gone)
        weights = np.linalg.solve(whole[np.ix_(seen, seen)], whole[np.ix_(seen, gone)])
        spread = whole[np.ix_(gone, gone)] - whole[np.ix_(gone, seen)] @ weights
        np.testing.assert_array_equal(part[:, seen], np.broadcast_to(part[0, seen], (40_000, len(seen))))
        np.testing.assert_allclose(part[:, gone].mean(axis=0), part[0, seen] @ weights, atol=0.05)
        np.testing.assert_allclose(np.cov(part[:, gone].T), np.squeeze(spread), rtol=0.04, atol=0.03)


def test_the_estimate_is_the_maximum_of_the_likelihood():
    # With x complete and y missing in some rows it has a closed form (Anderson, 1957).
    x, y = correlated(3, 4000, 2, 0.8).T
    lacks = np.random.default_rng(4).random(4000) < np.where(x > 0, 0.6, 0.1)  # so that the observed mean is wrong
    rows = np.column_stack([x, np.where(lacks, np.nan, y)])
    found = Observed(lambda: iter([rows[:1000], rows[1000:]]), 2)
    estimate([found])
    slope, level = np.polyfit(x[~lacks], y[~lacks], 1)
    left = np.var(y[~lacks] - slope * x[~lacks] - level)
    np.testing.assert_allclose(found.mean, [x.mean(), level + slope * x.mean()], atol=0.03)
    expected = [[x.var(), slope * x.var()], [slope * x.var(), slope**2 * x.var() + left]]
    np.testing.assert_allclose(found.covariance, expected, atol=0.04)
    assert y[~lacks].mean() < -0.2


@pytest.mark.parametrize("where", ["one background feature", "all features of both"])
def test_missing_values_are_not_taken_for_a_finding(where):
    for work in (formula, permuted):
        assert possible(rate(where, repeat(work(where, 0.4), 50, 41), NOMINAL))


def test_means_make_noise_a_finding_and_warn_of_it():
    # What missing="auto" is for: the same noise with the mean filled in.
    for work in (formula, permuted):
        assert repeat(work("one background feature", 0.4, "mean"), 40, 41).mean() > 0.15
    with pytest.warns(
        StandoutWarning, match=r"background: `missing='mean'` filled \d+ values.*p-values.*Use `missing='aut"
    ):
        read(incomplete(np.random.default_rng(0), "one background feature", 0.4)[1], missing="mean", role="background")


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_a_clear_signal_keeps_its_ratio(share):
    target, background = correlated(0, 300), correlated(1, 300)
    target[:, 2] += 5 * np.random.default_rng(2).normal(size=300)
    whole = DPCA(1).fit(target, background=background)
    sides = [read(gaps(rows, share, seed), missing="auto") for seed, rows in enumerate((target, background))]
    found = DPCA(1).fit(sides[0], background=sides[1])
    assert log_ratios(found) == pytest.approx(log_ratios(whole), abs=0.35)
    assert abs(found.components_[0] @ whole.components_[0]) > 0.95
    assert found.p_value_ < 1e-6


def test_held_out_ratios_of_noise_are_about_one():
    logs = []
    for seed in range(16):
        sides = incomplete(np.random.default_rng([9, seed]), "all features of both", 0.3)
        target, background = (read(rows, missing="auto") for rows in sides)
        logs.append(np.log(held_out_ratio(target, background, folds=3, estimator=DPCA(1)).ratios[0]))
    error = np.std(logs) / 4
    assert abs(np.mean(logs)) < 3 * error + 0.05 < 0.35


def test_held_out_rows_take_no_part_in_the_fill_of_training_rows():
    training = [read(gaps(correlated(seed, 80), 0.3), missing="auto") for seed in (0, 1)]
    results = []
    for scale in (1.0, 50.0):
        held_out = [read(gaps(correlated(seed, 20) * scale, 0.3), missing="auto") for seed in (2, 3)]
        results.append(fill_by_training(training, held_out))
    for one, other in zip(results[0][0], results[1][0], strict=True):
        np.testing.assert_array_equal(one.array, other.array)
    values = results[0][1][0].array[np.isnan(gaps(correlated(2, 20), 0.3))]
    assert stats.kstest(values, "norm").pvalue > 1e-3  # drawn by the variance of the training rows
    assert np.isfinite(results[0][1][1].array).all()


def test_the_fill_does_not_depend_on_how_a_file_is_read(tmp_path):
    rows = gaps(correlated(0, 500), 0.2)
    pd.DataFrame(rows, columns=list("abcdef")).to_csv(tmp_path / "a.csv", index=False)
    source = read(tmp_path / "a.csv", missing="auto", memory=0)
    first, second = (np.concatenate(list(source.blocks(size))) for size in (7, 200))
    np.testing.assert_allclose(first, second, rtol=1e-9)
    seen = ~np.isnan(rows)
    np.testing.assert_array_equal(first[seen], rows[seen])
    kept = drawn_rows(tmp_path / "a.csv")
    np.testing.assert_array_equal(kept, drawn_rows(tmp_path / "a.csv"))
    assert np.corrcoef(first[~seen], kept[~seen])[0, 1] > 0.95  # fewer iterations, the same draws
    assert source.account.values_filled == (~seen).sum() and source.account.filled_by == "draws"


def test_files_larger_than_memory_give_the_same_components(tmp_path):
    target, background = gaps(correlated(0, 400) * [1, 4, 1, 1, 1, 1], 0.15), gaps(correlated(1, 500), 0.15, 1)
    pd.DataFrame(target, columns=list("abcdef")).to_csv(tmp_path / "t.csv", index=False)
    pd.DataFrame(background, columns=list("abcdef"))[list("fedcba")].to_csv(tmp_path / "b.csv", index=False)
    models = [
        DPCA(1).fit(*[read(tmp_path / "t.csv", missing="auto", memory=memory)],
                    background=read(tmp_path / "b.csv", missing="auto", memory=memory))
        for memory in ("256MB", 0)
    ]  # fmt: skip
    assert log_ratios(models[0]) == pytest.approx(log_ratios(models[1]), abs=0.1)
    sources = [read(tmp_path / f"{name}.csv", missing="auto", memory=0) for name in "tb"]
    assert permutation_test(*sources, n_permutations=39, n_jobs=1).p_values[0] == 1 / 40
    assert held_out_ratio(*sources).low[0] > 1


def test_a_checkpoint_belongs_to_the_fill(tmp_path):
    rows = gaps(correlated(0, 300), 0.2)
    pd.DataFrame(rows, columns=list("abcdef")).to_csv(tmp_path / "a.csv", index=False)
    how = {"missing": "auto", "memory": 0}

    def fitted(seed, **kept):
        background = read(gaps(correlated(seed, 200), 0.2), missing="auto")
        return DPCA(1).fit(read(tmp_path / "a.csv", **how, **kept), background=background)

    undisturbed = fitted(1).ratios_
    first, second = (fitted(1, checkpoint=tmp_path / "c").ratios_ for _ in range(2))  # the second uses what is kept
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, undisturbed, rtol=1e-12)
    with pytest.raises(InputError, match="checkpoint"):
        fitted(2, checkpoint=tmp_path / "c")


def test_one_dataset_may_be_complete_moments_or_sparse():
    from scipy import sparse

    background = correlated(1, 300)
    target = read(gaps(correlated(0, 200), 0.2), missing="auto")
    expected = DPCA(1).fit(target, background=background).ratios_
    for other in (Moments.of(background), sparse.csr_array(background)):
        np.testing.assert_allclose(DPCA(1).fit(target, background=other).ratios_, expected, rtol=1e-6)
    assert DPCA(1).fit(target).n_components_ == 1  # PCA


def test_rows_are_split_by_label_before_they_are_filled():
    frame = pd.DataFrame(gaps(np.vstack([correlated(0, 150), correlated(1, 150)]), 0.2), columns=list("abcdef"))
    frame["kind"] = ["case"] * 150 + ["control"] * 150
    apart = [read(frame, where={"kind": kind}, label="kind", missing="auto") for kind in ("case", "control")]
    expected = DPCA(1).fit(apart[0], background=apart[1])
    found = DPCA(1, background_label="control").fit(read(frame, label="kind", missing="auto"))
    np.testing.assert_allclose(found.ratios_, expected.ratios_, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
def test_more_features_than_rows_can_have_missing_values():
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(3, 400))
    complete = [rng.normal(size=(60, 3)) @ loadings + 0.5 * rng.normal(size=(60, 400)) for _ in range(2)]
    complete[0] += 3 * rng.normal(size=(60, 1)) * np.repeat([1.0, 0.0], [20, 380])
    target, background = (gaps(rows, 0.2, seed) for seed, rows in enumerate(complete))
    sides = [read(rows, missing="auto") for rows in (target, background)]
    model = DPCA(1).fit(sides[0], background=sides[1])
    whole = DPCA(1).fit(complete[0], background=complete[1])
    assert abs(np.corrcoef(model.transform(complete[0])[:, 0], whole.transform(complete[0])[:, 0])[0, 1]) > 0.95
    lacks = np.isnan(target)
    drawn = drawn_rows(target)[lacks]
    assert np.corrcoef(drawn, complete[0][lacks])[0, 1] > 0.6  # the factors are known from the other features


def test_noise_with_more_features_than_rows_is_not_taken_for_a_finding():
    loadings = np.random.default_rng(1).normal(size=(3, 120))

    def work(rng):
        target, background = (rng.normal(size=(40, 3)) @ loadings + rng.normal(size=(40, 120)) for _ in range(2))
        lacking = read(gaps(target, 0.3, rng), missing="auto")
        return permutation_test(lacking, background, n_permutations=39, n_jobs=1).p_values[0] <= 0.05

    assert possible(rate("wide", repeat(work, 60, 43), NOMINAL))


def test_scores_of_incomplete_rows_are_at_the_means_of_the_model():
    rows = gaps(correlated(0, 100), 0.2)
    source = read(rows, missing="auto")
    model = DPCA(2).fit(source, background=correlated(1, 100))
    expected = model.transform(np.where(np.isnan(rows), model.mean_, rows))
    np.testing.assert_allclose(model.transform(source), expected, rtol=1e-12)


@pytest.mark.filterwarnings("ignore::standout.errors.ShrinkageWarning", "ignore::standout.errors.OverfitWarning")
def test_everything_takes_incomplete_rows():
    sides = [read(gaps(correlated(seed, 60), 0.1, seed), missing="auto") for seed in (0, 1)]
    found = assess(*sides, n_permutations=9, n_bootstrap=5, folds=2, n_jobs=1)
    assert np.isfinite(found.held_out.ratios).all() and np.isfinite(found.stability.median).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StandoutWarning)
        for model in (CPCA(1), KernelDPCA(1), DPCA(1)):
            model.fit(sides[0], background=sides[1])
            assert np.isfinite(model.transform(sides[0])).all()
            assert np.isfinite(model.score(sides[0], background=sides[1]))


def test_what_cannot_be_filled_is_refused():
    rows = gaps(correlated(0, 50), 0.2)
    with pytest.raises(NonFiniteError, match=r"NaN.*Use `standout\.read\(X, missing='auto'\)`"):
        DPCA(1).fit(rows, background=correlated(1, 50))
    infinite = rows.copy()
    infinite[3, 1] = np.inf
    with pytest.raises(
        NonFiniteError, match=r"target: 0 NaN and 1 inf values in 1 of 6 features.*1 \(1\).*correct the values"
    ):
        DPCA(1).fit(read(infinite, missing="auto"), background=correlated(1, 50))
    rows[:, 4] = np.nan
    with pytest.raises(InputError, match=r"^target: 1 feature without any value: 4\. Leave out such.*drop="):
        DPCA(1).fit(read(rows, missing="auto"), background=correlated(1, 50))
    assert standout.read(correlated(0, 50), missing="auto").n_rows == 50


def null_pair(seed, n_features=4):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(200, n_features)), rng.normal(size=(300, n_features))


def fitted(target, background, **how):
    return DPCA(1, **how).fit(read(target, missing="auto"), background=read(background, missing="auto"))


@pytest.mark.parametrize("share", [(0.02, 0.0), (0.1, 0.1), (0.0, 0.1)])
def test_a_feature_that_is_the_sum_of_others_is_filled_by_that_sum(share):
    for seed in range(3):
        sides = null_pair(seed)
        for rows in sides:
            rows[:, 3] = 10 * (rows[:, 0] + rows[:, 1]) + 7
        lacking = [gaps(rows, part, seed + k) for k, (rows, part) in enumerate(zip(sides, share, strict=True))]
        found, whole = fitted(*lacking), fitted(*sides)
        assert log_ratios(found) == pytest.approx(log_ratios(whole), abs=0.1)
        assert found.p_value_ > 1e-3
        found, whole = (fitted(*rows, shrinkage=None) for rows in (lacking, sides))
        assert log_ratios(found) == pytest.approx(log_ratios(whole), abs=0.1)
        filled = drawn_rows(lacking[0])
        np.testing.assert_allclose(filled[:, 3], 10 * (filled[:, 0] + filled[:, 1]) + 7, atol=1e-10)


@pytest.mark.parametrize(("value", "other"), [(5.0, 5.0), (5.0, 7.0), (0.1, 0.1), (1e-7, 1e7)])
def test_a_constant_feature_is_filled_with_the_constant(value, other):
    target, background = null_pair(0)
    target[:, 1], background[:, 1] = value, other
    lacking = gaps(target, 0.1, 1), gaps(background, 0.1, 2)
    np.testing.assert_array_equal(drawn_rows(lacking[0])[:, 1], value)
    without = fitted(*[rows[:, [0, 2, 3]] for rows in lacking])
    with pytest.warns(standout.errors.TableWarning, match="1 .disjoint") if value != other else nullcontext():
        found = fitted(*lacking)
    assert found.p_value_ > 1e-3 and found.components_[0, 1] == 0
    assert log_ratios(found) == pytest.approx(log_ratios(without), abs=0.1)


def test_a_feature_constant_in_the_background_alone_is_structural():
    target, background = null_pair(3)
    background[:, 1] = 7
    with pytest.warns(standout.errors.StructuralWarning):
        found = fitted(gaps(target, 0.1, 1), gaps(background, 0.1, 2))
    assert found.ratios_[0] == np.inf and abs(found.components_[0, 1]) > 0.99 * np.linalg.norm(found.components_[0])


@pytest.mark.parametrize("n_features", [4, 320])
def test_draws_do_not_depend_on_units_shifts_or_memory_order(n_features):
    rng = np.random.default_rng(0)
    rows = gaps(rng.normal(size=(400, n_features)) @ rng.normal(size=(n_features, n_features)), 0.1)
    expected = drawn_rows(rows)
    np.testing.assert_allclose(drawn_rows(np.asfortranarray(rows)), expected, rtol=1e-6, atol=1e-6)
    units, shift = 10.0 ** rng.integers(-6, 7, size=n_features), rng.normal(size=n_features)
    found = drawn_rows((rows + shift) * units) / units - shift
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_the_p_value_does_not_depend_on_units():
    lacking = [gaps(rows, 0.1, seed) for seed, rows in enumerate(null_pair(5))]
    expected = fitted(*lacking).p_value_
    for units in (1e-5, [1e-6, 1, 1e3, 1e6]):
        assert fitted(*(rows * units for rows in lacking)).p_value_ == pytest.approx(expected, rel=1e-5)


def test_target_and_background_get_different_draws():
    rows = gaps(correlated(0, 200), 0.2)
    with pytest.warns(standout.errors.TableWarning, match="all 200 rows are also in the target"):
        found = fitted(rows, rows)
    assert not np.allclose(found.ratios_, 1, atol=1e-6)


def test_rows_of_weight_zero_take_no_part_in_the_fill():
    target, background = (gaps(rows, 0.1, seed) for seed, rows in enumerate(null_pair(6)))
    results = []
    for value in (0.5, 1e6, np.inf):
        for role in ("sample_weight", "background_sample_weight"):
            rows = {"sample_weight": target.copy(), "background_sample_weight": background.copy()}
            rows[role][3, 1] = value
            rows[role][3, 2] = 0.0
            weights = {name: (np.arange(len(part)) != 3).astype(float) for name, part in rows.items()}
            sides = [read(part, missing="auto") for part in rows.values()]
            results.append(DPCA(1).fit(sides[0], background=sides[1], **weights).ratios_[0])
    assert results[::2] == pytest.approx([results[0]] * 3, rel=1e-12)
    assert results[1::2] == pytest.approx([results[1]] * 3, rel=1e-12)


def test_weights_count_rows_in_the_model_of_the_fill():
    x, y = correlated(3, 3000, 2, 0.8).T
    weights = np.where(y > 0, 3.0, 1.0)
    lacks = np.random.default_rng(4).random(3000) < 0.3
    rows = np.column_stack([x, np.where(lacks, np.nan, y)])
    found = Observed(lambda: iter([rows[:1000], rows[1000:]]), 2, weights=weights)
    estimate([found])
    np.testing.assert_allclose(found.mean, np.average(np.column_stack([x, y]), axis=0, weights=weights), atol=0.03)
    np.testing.assert_allclose(found.covariance, np.cov(x, y, aweights=weights), atol=0.05)


def test_frames_with_missing_values_are_to_be_read():
    frame = pd.DataFrame(gaps(correlated(0, 50), 0.2), columns=list("abcdef"))
    with pytest.raises(NonFiniteError, match=r"^target: .*Use `standout\.read\(X, missing='auto'\)`"):
        DPCA(1).fit(frame, background=frame)


@pytest.mark.parametrize("memory", ["256MB", 0])
def test_what_cannot_be_filled_names_the_file(memory, tmp_path):
    rows = gaps(correlated(0, 50), 0.2)
    rows[:, 4] = np.nan
    frame = pd.DataFrame(rows, columns=list("abcdef"))
    frame.to_csv(tmp_path / "empty.csv", index=False)
    frame.assign(e=1.0, b=np.inf).to_csv(tmp_path / "inf.csv", index=False)
    background = correlated(1, 50)
    with pytest.raises(InputError, match=r"^target: .*empty\.csv: 1 feature without any value: 'e'.*drop="):
        DPCA(1).fit(read(tmp_path / "empty.csv", missing="auto", memory=memory), background=background)
    with pytest.raises(NonFiniteError, match=r"^target: .*inf\.csv: 0 NaN and 50 inf values in 1 of 6.*correct the"):
        DPCA(1).fit(read(tmp_path / "inf.csv", missing="auto", memory=memory), background=background)
    with pytest.raises(InputError, match=r"^side: .*empty\.csv: 1 feature without any value: 'e'.*drop="):
        read(tmp_path / "empty.csv", missing="mean", memory=memory, role="side")


def test_batches_that_were_to_be_filled_together_are_refused():
    lacking = read(gaps(correlated(0, 50), 0.2), missing="auto")
    with pytest.raises(InputError, match=r"^target: `missing='auto'`.*partial_fit.*Use fit"):
        DPCA(1).partial_fit(lacking)
    with pytest.raises(InputError, match=r"^background: `missing='auto'`.*partial_fit.*Use fit"):
        DPCA(1).partial_fit(correlated(1, 50), background=lacking)
    whole = read(correlated(0, 100), missing="auto")
    assert DPCA(1).partial_fit(whole, background=correlated(1, 100)).n_components_ == 1


@pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
@pytest.mark.parametrize("estimator", [DPCA(2), CPCA(2), KernelDPCA(2)])
def test_the_score_of_an_incomplete_row_does_not_depend_on_its_batch(estimator):
    rows = gaps(correlated(0, 60), 0.2)
    sides = [read(part, missing="auto") for part in (rows, gaps(correlated(1, 60), 0.1, 1))]
    model = estimator.fit(sides[0], background=sides[1])
    together = model.transform(sides[0])
    alone = np.concatenate([model.transform(read(row[None], missing="auto")) for row in rows[:8]])
    np.testing.assert_allclose(alone, together[:8], rtol=1e-9, atol=1e-12)
