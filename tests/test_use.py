"""DPCA as people use it: in pipelines and searches, in batches, on disk, and read by eye."""

import pickle
import warnings
from types import SimpleNamespace

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from scipy import linalg
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import standout._dpca as home
from conftest import NAMES
from helpers import null_log_ratio
from standout._cpca import CPCA
from standout._dpca import DPCA
from standout._moments import Moments
from standout.datasets.factor import FactorModel
from standout.errors import OverfitWarning, ShrinkageWarning, StandoutWarning, StructuralWarning


@pytest.fixture
def model(data):
    return DPCA().fit(data.target, background=data.background)


@pytest.fixture
def together(data):
    """Target and background rows in one table, with a label each."""
    return np.vstack(data), np.repeat(["case", "control"], [len(data.target), len(data.background)])


def test_labels_say_the_same_as_a_background(data, together, model):
    labelled = DPCA(background_label="control").fit(*together)
    np.testing.assert_allclose(labelled.components_, model.components_, rtol=1e-10)
    assert labelled.score(*together) == pytest.approx(model.score(data.target, background=data.background))
    stream = DPCA(background_label="control")
    for start in range(0, 500, 30):
        stream.partial_fit(together[0][start : start + 30], together[1][start : start + 30])
    np.testing.assert_allclose(stream.ratios_, model.ratios_, rtol=1e-10)
    several = DPCA(background_label=["control", "sham"])
    X, y = np.vstack([together[0], data.background[:50]]), np.append(together[1], ["sham"] * 50)
    np.testing.assert_allclose(several.fit(X, y).mix_, [300 / 350, 50 / 350])


def test_it_works_in_a_pipeline_and_cross_validation(together, data):
    X, y = together
    pipeline = make_pipeline(StandardScaler(), DPCA(1, background_label="control"))
    scores = cross_val_score(pipeline, X, y, cv=StratifiedKFold(4, shuffle=True, random_state=0))
    whole = np.log(linalg.eigh(*(np.cov(rows.T, ddof=0) for rows in data), eigvals_only=True)[-1])
    assert scores.shape == (4,) and 0.6 * whole < scores.mean() < 1.1 * whole
    assert pipeline.fit(X, y).transform(X).shape == (500, 1)
    assert list(pipeline.get_feature_names_out()) == ["dpca0"]


@pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
def test_a_search_shrinks_where_rows_are_few_for_the_features():
    factors = FactorModel(n_features=30, signal_sd=2.0)
    target, background = factors.sample(300, 60, seed=0)
    X, y = np.vstack([target, background]), np.repeat([1, 0], [300, 60])
    grid = {"dpca__shrinkage": [0.0, 0.1, 0.3, 0.6, 0.9]}
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    search = GridSearchCV(make_pipeline(StandardScaler(), DPCA(1, background_label=0)), grid, cv=folds).fit(X, y)
    assert search.best_params_["dpca__shrinkage"] >= 0.1
    exact, best = DPCA(1, shrinkage=None), DPCA(1, shrinkage=search.best_params_["dpca__shrinkage"])
    new = factors.sample(5000, 5000, seed=1)
    exact, best = (m.fit(target, background=background).score(new[0], background=new[1]) for m in (exact, best))
    assert best > exact + 0.1


def test_background_is_routed_as_metadata(data):
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(DPCA().set_fit_request(background=True))
        pipeline.fit(data.target, background=data.background)
        np.testing.assert_array_equal(pipeline[-1].ratios_, DPCA().fit(data.target, background=data.background).ratios_)
        scored = DPCA(1).set_fit_request(background=True).set_score_request(background=True)
        found = cross_val_score(scored, data.target, cv=3, params={"background": data.background[:200]})
        assert (found > 0.5).all()


def test_a_clone_has_the_parameters_and_no_fit(model):
    chosen = DPCA(3, shrinkage=0.25, mix=[1.0, 2.0], normalize="background", background_label=["a", "b"])
    assert clone(chosen).get_params() == chosen.get_params() and repr(clone(chosen)) == repr(chosen)
    assert not hasattr(clone(model), "ratios_") and not hasattr(clone(model), "n_features_in_")


def same(one, other):
    for name in ("ratios_", "components_", "patterns_", "mean_", "debiased_ratios_", "noise_edge_", "p_value_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_it_survives_pickle_joblib_and_copies(data, tmp_path):
    model = DPCA(shrinkage=None).fit(data.target, background=data.background)
    joblib.dump(model, tmp_path / "model.joblib")
    for other in (pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model.joblib")):
        same(model, other)
        np.testing.assert_array_equal(other.transform(data.target), model.transform(data.target))
        other.partial_fit(data.target, background=data.background)
        np.testing.assert_allclose(other.ratios_, model.ratios_, rtol=1e-9)
    unsolved = pickle.loads(pickle.dumps(DPCA(shrinkage=None).partial_fit(data.target, background=data.background)))
    np.testing.assert_allclose(unsolved.ratios_, model.ratios_, rtol=1e-12)


def test_the_same_input_gives_the_same_bits(data, wide):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StandoutWarning)
        for rows in (data, wide):
            for settings in ({}, {"solver": "lanczos"}, {"solver": "gsvd"}):
                same(*(DPCA(**settings).fit(rows.target, background=rows.background) for _ in range(2)))


@pytest.mark.parametrize(("kind", "frame"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame)])
def test_scores_can_be_frames(model, data, kind, frame):
    scores = clone(model).set_output(transform=kind).fit(data.target, background=data.background).transform(data.target)
    assert isinstance(scores, frame) and list(scores.columns) == ["dpca0", "dpca1"]
    np.testing.assert_array_equal(scores.to_numpy(), model.transform(data.target))
    assert model.get_feature_names_out().tolist() == ["dpca0", "dpca1"]
    np.testing.assert_allclose(model.inverse_transform(scores), model.inverse_transform(scores.to_numpy()))


def test_transform_takes_every_form_and_any_batch(data):
    frame = pd.DataFrame(data.target, columns=NAMES)
    model = DPCA().fit(frame, background=data.background)
    expected = (data.target - model.mean_) @ model.components_.T
    for rows in (frame, frame.astype(np.float32), pl.DataFrame(data.target, schema=NAMES)):
        np.testing.assert_allclose(model.transform(rows), expected, rtol=1e-10, atol=1e-11)
    parts = [model.transform(part) for part in (frame[:1], frame[1:50], frame[50:])]
    np.testing.assert_allclose(np.concatenate(parts), expected, rtol=1e-10, atol=1e-11)


@pytest.fixture
def solved(monkeypatch):
    """Count how often the eigenproblem is solved."""
    seen = SimpleNamespace(times=0)

    def spy(*given, _plain=home.fit_model):
        seen.times += 1
        return _plain(*given)

    monkeypatch.setattr(home, "fit_model", spy)
    return seen


def test_batches_are_solved_when_an_attribute_is_first_read(data, model, solved):
    stream = DPCA()
    for start in range(0, 300, 30):
        stream.partial_fit(background=data.background[start : start + 30])
        if start < 200:
            stream.partial_fit(data.target[start : start + 1]).partial_fit(data.target[start + 1 : start + 30])
    assert solved.times == 0
    np.testing.assert_allclose(stream.ratios_, model.ratios_, rtol=1e-10)
    stream.transform(data.target), stream.components_, stream.summary()
    assert solved.times == 1
    stream.partial_fit(data.target[:1])
    assert solved.times == 1 and stream.n_components_ == 2 and solved.times == 2


def test_partial_fit_after_fit_goes_on(data, model):
    half = DPCA().fit(data.target[:100], background=data.background[:100])
    half.partial_fit(data.target[100:]).partial_fit(background=data.background[100:])
    np.testing.assert_allclose(half.ratios_, model.ratios_, rtol=1e-10)
    np.testing.assert_allclose(half.components_, model.components_, rtol=1e-9, atol=1e-11)
    np.testing.assert_array_equal(half.fit(data.target, background=data.background).ratios_, model.ratios_)


def test_several_backgrounds_may_come_before_the_target(data):
    parts = [data.background[:90], data.background[90:]]
    whole = DPCA().fit(data.target, background=parts)
    stream = DPCA().partial_fit(background=parts).partial_fit(data.target)
    assert stream.n_features_in_ == 5
    np.testing.assert_allclose(stream.ratios_, whole.ratios_, rtol=1e-10)


def test_named_backgrounds_keep_their_names_over_batches(data):
    whole = DPCA(mix="equal").fit(data.target, background={"a": data.background[:90], "b": data.background[90:]})
    stream = DPCA(mix="equal").partial_fit(background={"a": data.background[:20], "b": data.background[90:]})
    stream.partial_fit(data.target, background={"a": data.background[20:90]})
    np.testing.assert_allclose(stream.ratios_, whole.ratios_, rtol=1e-10)
    np.testing.assert_allclose(stream.mix_, [0.5, 0.5])
    assert "background 'a'" in stream.summary()


def test_groups_change_the_verdict_and_not_the_ratios(data, model):
    groups = {"groups": np.arange(200) // 10, "background_groups": np.arange(300) // 15}
    grouped = DPCA().fit(data.target, background=data.background, **groups)
    np.testing.assert_array_equal(grouped.ratios_, model.ratios_)
    assert grouped.noise_edge_ > 2 * model.noise_edge_ and grouped.p_value_ > 1e3 * model.p_value_
    stream = DPCA().partial_fit(data.target, groups=groups["groups"])
    for cut in (slice(0, 100), slice(100, 300)):  # the seventh mouse is in both batches
        stream.partial_fit(background=data.background[cut], background_groups=groups["background_groups"][cut])
    assert stream.noise_edge_ == pytest.approx(grouped.noise_edge_)


def test_135_rows_of_9_mice_are_9():
    rng = np.random.default_rng(0)
    target, background = rng.normal(size=(270, 12)), rng.normal(size=(135, 12))
    with pytest.warns(OverfitWarning, match="9 independent background units for 12 dimensions") as found:
        model = DPCA(shrinkage=None).fit(target, background=background, background_groups=np.arange(135) // 15)
    assert np.isnan(model.noise_edge_) and np.isnan(model.p_value_) and np.isnan(model.debiased_ratios_).all()
    assert model.ratios_.shape == (2,) and "score(" in str(found[0].message)
    assert "135 rows worth 9 independent units" in model.summary()


def test_score_is_the_mean_log_ratio_of_the_definition(model):
    rng = np.random.default_rng(5)
    target, background = rng.normal(size=(80, 5)) + 20, rng.normal(size=(70, 5)) * 2
    variance = [np.var(rows @ model.components_.T, axis=0) for rows in (target, background)]
    expected = np.mean(np.log(variance[0] / variance[1])) - null_log_ratio(80, 70)
    assert model.score(target, background=background) == pytest.approx(expected, rel=1e-12)
    assert model.score(Moments.of(target), background=Moments.of(background)) == pytest.approx(expected, rel=1e-10)


def test_patterns_undo_components(model, data):
    np.testing.assert_allclose(model.components_ @ model.patterns_.T, np.eye(2), atol=1e-12)
    scores = model.transform(data.target)
    restored = model.inverse_transform(scores)
    np.testing.assert_allclose(restored, model.mean_ + scores @ model.patterns_)
    np.testing.assert_allclose(model.transform(restored), scores, atol=1e-10)
    everything = DPCA(None).fit(data.target, background=data.background)
    np.testing.assert_allclose(everything.inverse_transform(everything.transform(data.target)), data.target, atol=1e-10)


def test_top_features_move_by_so_many_background_sd(data):
    frame = pd.DataFrame(data.target, columns=NAMES)
    model = DPCA(1).fit(frame, background=data.background)
    scores = model.transform(frame)[:, 0]
    moves = [np.cov(scores, column, ddof=0)[0, 1] / scores.std() for column in data.target.T] / data.background.std(
        axis=0
    )
    order = np.argsort(-np.abs(moves))
    top = model.top_features(3)[0]
    assert [name for name, _ in top] == [NAMES[i] for i in order[:3]]
    np.testing.assert_allclose([weight for _, weight in top], moves[order[:3]], rtol=1e-10)
    assert top[0].weight > 0 and len(model.top_features(99)[0]) == 5


def test_normalize_gives_the_background_variance_one(data):
    model = DPCA(shrinkage=None).fit(data.target, background=data.background)
    unit = DPCA(normalize="background", shrinkage=None).fit(data.target, background=data.background)
    np.testing.assert_allclose(np.var(unit.transform(data.background), axis=0), 1, rtol=1e-10)
    np.testing.assert_allclose(np.var(unit.transform(data.target), axis=0), model.ratios_, rtol=1e-10)
    np.testing.assert_allclose(np.linalg.norm(model.components_, axis=1), 1, rtol=1e-12)


def test_centering_by_the_background_keeps_the_shift():
    rng = np.random.default_rng(0)
    target, background = rng.normal([0, 0, 9, 0], size=(300, 4)), rng.normal(size=(400, 4))
    model = DPCA(1, centering="background", shrinkage=None).fit(target, background=background)
    about = target - background.mean(axis=0)
    expected = linalg.eigh(about.T @ about / 300, np.cov(background.T, ddof=0), eigvals_only=True)[-1]
    np.testing.assert_allclose(model.ratios_, [expected], rtol=1e-10)
    np.testing.assert_allclose(model.mean_, background.mean(axis=0), rtol=1e-12)
    assert abs(model.components_[0, 2]) > 0.99
    # Of noise, the second moment about the background's mean is a sum of two χ² variates.
    noise = rng.chisquare(299, 10**6) / 300 + (1 / 300 + 1 / 400) * rng.chisquare(1, 10**6)
    null = np.log(noise).mean() - np.log(rng.chisquare(399, 10**6) / 400).mean()
    assert model.score(target, background=background) == pytest.approx(np.log(expected) - null, abs=1e-3)


@pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
@pytest.mark.parametrize("centering", ["own", "background"])
@pytest.mark.parametrize(("m", "n"), [(50, 5), (5, 50), (4, 4)])
def test_the_score_of_noise_is_zero_on_average(m, n, centering):
    rng = np.random.default_rng(1)
    model = DPCA(1, centering=centering).fit(rng.normal(size=(50, 2)), background=rng.normal(size=(60, 2)))
    scores = [model.score(rng.normal(size=(m, 2)), background=rng.normal(size=(n, 2))) for _ in range(1500)]
    assert abs(np.mean(scores)) < 4 * np.std(scores) / np.sqrt(1500) and np.std(scores) / np.sqrt(1500) < 0.04


@pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
def test_the_score_of_noise_is_zero_with_several_backgrounds_and_with_weights():
    rng = np.random.default_rng(2)
    first, second = rng.normal(size=(60, 2)), 3 * rng.normal(size=(60, 2)) + 5
    model = DPCA(1, mix="equal").fit(rng.normal(size=(50, 2)), background=[first, second])
    weights = np.tile([2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 0.5, 0.5], 4)
    scores = []
    for _ in range(1500):
        parts = [rng.normal(size=(4, 2)), 3 * rng.normal(size=(5, 2))]
        target = np.sqrt(5) * rng.normal(size=(32, 2))  # the mean of the two variances
        scores.append(model.score(target, background=parts, sample_weight=weights))
    assert abs(np.mean(scores)) < 0.08  # a variance of weighted rows is χ² only approximately


def test_a_score_against_unit_variance_is_zero_on_average():
    rng = np.random.default_rng(3)
    model = CPCA(1, alpha=0.0).fit(rng.normal(size=(50, 2)))
    scores = [model.score(rng.normal(size=(4, 2))) for _ in range(1500)]
    assert abs(np.mean(scores)) < 4 * np.std(scores) / np.sqrt(1500)


def test_few_rows_are_shrunk_with_a_warning_that_counts_them(data):
    with pytest.warns(ShrinkageWarning, match=r"^40 background rows are few for 5 dim.* shrunk by 0\.\d+") as found:
        model = DPCA().fit(data.target, background=data.background[:40])
    assert model.regime_ == "shrunk" and 0 < model.shrinkage_ < 1
    assert "More background rows or fewer features need less shrinkage" in str(found[0].message)
    assert f"shrunk by {model.shrinkage_:.3g}" in model.summary() and "unshrunk" in model.summary()
    # Who asks for a shrinkage is not warned of it.
    assert DPCA(shrinkage=0.3).fit(data.target, background=data.background).shrinkage_ == 0.3
    assert DPCA(shrinkage=None).fit(data.target, background=data.background).regime_ == "exact"


def test_noise_is_told_with_the_edge_and_a_remedy(remedy):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(400, 6))
    with pytest.warns(
        OverfitWarning, match=r"largest ratio, [\d.]+, is not above [\d.]+.*200 background rows"
    ) as found:
        model = DPCA().fit(rows[:200], background=rows[200:])
    assert model.p_value_ > 0.05 and np.isnan(model.debiased_ratios_).all()
    remedy(found[0].message)


def test_a_constant_background_feature_is_named_and_comes_first(data, remedy):
    frames = [pd.DataFrame(rows, columns=NAMES) for rows in data]
    with pytest.warns(StructuralWarning, match=r"1 ratio is infinite: the feature 'b' is constant") as found:
        model = DPCA().fit(frames[0], background=frames[1].assign(b=3.0))
    remedy(found[0].message)
    assert model.regime_ == "structural" and np.isinf(model.ratios_[0]) and np.isfinite(model.ratios_[1])
    assert "p = 0 " not in model.summary()  # no test is that sure


def test_a_summary_shows_ratios_beside_the_noise_edge(model):
    text = model.summary()
    assert repr(text) == str(text)
    for k, ratio in enumerate(model.ratios_):
        (line,) = [line for line in text.splitlines() if line.strip().startswith(f"dpca{k}")]
        assert f"{ratio:.4g}" in line and f"{model.noise_edge_:.4g}" in line
    assert "200 rows" in text and "300 rows" in text and "noise edge" in text
    with pytest.warns(StandoutWarning):
        lost = DPCA().fit(np.random.default_rng(0).normal(size=(9, 5)), background=np.eye(5))
    assert "No noise edge" in lost.summary() and "nan" not in lost.summary()
    assert "this is PCA" in DPCA().fit(np.random.default_rng(0).normal(size=(9, 5))).summary()
