"""What the estimators share: labels, batches, scores, scikit-learn's interface, and failures that change nothing."""

import pickle
import warnings
from contextlib import contextmanager
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
import sklearn
from scipy import linalg, sparse, stats
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import standout
import standout._dpca as home
from conftest import NAMES
from helpers import OptionalPackage, likelihood_gain, quiet, sample_pair
from reports import Page
from standout._cpca import CPCA
from standout._dpca import DPCA
from standout._kernel_dpca import KernelDPCA
from standout._moments import Moments
from standout.datasets.factor import FactorModel
from standout.errors import (
    InputError,
    NotEnoughRowsError,
    StandoutWarning,
)

pd = OptionalPackage("pandas")
pl = OptionalPackage("polars")


@pytest.fixture
def model(data):
    return DPCA().fit(data.target, background=data.background)


@pytest.fixture
def together(data):
    """Target and background rows in one table, with a label each."""
    return np.vstack(data), np.repeat(["case", "control"], [len(data.target), len(data.background)])


def test_background_label_is_equivalent_to_background(data, together, model):
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


def test_the_estimator_works_in_a_pipeline_and_in_cross_validation(together, data):
    X, y = together
    pipeline = make_pipeline(StandardScaler(), DPCA(1, background_label="control"))
    scores = cross_val_score(pipeline, X, y, cv=StratifiedKFold(4, shuffle=True, random_state=0))
    whole = np.log(linalg.eigh(*(np.cov(rows.T, ddof=0) for rows in data), eigvals_only=True)[-1])
    assert scores.shape == (4,) and 0.6 * whole < scores.mean() < 1.1 * whole
    assert pipeline.fit(X, y).transform(X).shape == (500, 1)
    assert list(pipeline.get_feature_names_out()) == ["dpca0"]


@quiet
def test_a_grid_search_over_shrinkage_improves_the_held_out_score():
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


def test_a_model_survives_pickle_and_joblib(data, tmp_path):
    model = DPCA(shrinkage=None).fit(data.target, background=data.background)
    joblib.dump(model, tmp_path / "model.joblib")
    for other in (pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model.joblib")):
        same(model, other)
        np.testing.assert_array_equal(other.transform(data.target), model.transform(data.target))
        other.partial_fit(data.target, background=data.background)
        np.testing.assert_allclose(other.ratios_, model.ratios_, rtol=1e-9)
    unsolved = pickle.loads(pickle.dumps(DPCA(shrinkage=None).partial_fit(data.target, background=data.background)))
    np.testing.assert_allclose(unsolved.ratios_, model.ratios_, rtol=1e-12)


def test_the_same_input_gives_bitwise_equal_results(data, wide):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StandoutWarning)
        for rows in (data, wide):
            for settings in ({}, {"solver": "lanczos"}, {"solver": "gsvd"}):
                same(*(DPCA(**settings).fit(rows.target, background=rows.background) for _ in range(2)))


@pytest.mark.parametrize(("kind", "library"), [("pandas", pd), ("polars", pl)])
def test_transform_can_return_data_frames(model, data, kind, library):
    scores = clone(model).set_output(transform=kind).fit(data.target, background=data.background).transform(data.target)
    assert isinstance(scores, library.DataFrame) and list(scores.columns) == ["dpca0", "dpca1"]
    np.testing.assert_array_equal(scores.to_numpy(), model.transform(data.target))
    assert model.get_feature_names_out().tolist() == ["dpca0", "dpca1"]
    np.testing.assert_allclose(model.inverse_transform(scores), model.inverse_transform(scores.to_numpy()))


@contextmanager
def output_container(kind, how):
    """Yield a function that requests scores as data frames: on an estimator, or everywhere."""
    if how == "set_output":
        yield lambda estimator: estimator.set_output(transform=kind)
    else:
        with sklearn.config_context(transform_output=kind):
            yield lambda estimator: estimator


@pytest.mark.parametrize("how", ["set_output", "config_context"])
@pytest.mark.parametrize("kind", ["pandas", "polars"])
@pytest.mark.parametrize("method", [DPCA(2), CPCA(2, alpha=1.0), KernelDPCA(2, gamma=0.1)])
@pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
def test_the_library_does_not_depend_on_the_container_of_scores(data, tmp_path, method, kind, how):
    def results(estimator):
        fitted = clone(estimator).fit(data.target, background=data.background)
        yield fitted.score(data.target, background=data.background)
        yield standout.held_out_ratio(*data, estimator=estimator, folds=2).fold_ratios
        found = standout.assess(*data, estimator=estimator, n_permutations=9, n_bootstrap=5, folds=3, random_state=0)
        yield found.held_out.ratios
        if found.stability is not None:
            yield found.stability.correlations
        yield Page(standout.report(fitted, *data, path=tmp_path / "page.html")).scores
        for result in standout.compare(*data, labels=data.target[:, 2] > 30):
            yield (result.share, result.silhouette, *result.ratios)

    expected = list(results(clone(method)))
    with output_container(kind, how) as framed:
        found = list(results(framed(clone(method))))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_transform_accepts_every_table_type_and_any_batch(data):
    frame = pd.DataFrame(data.target, columns=NAMES)
    model = DPCA().fit(frame, background=data.background)
    expected = (data.target - model.mean_) @ model.components_.T
    for rows in (frame, frame.astype(np.float32), pl.DataFrame(data.target, schema=NAMES)):
        scores = model.transform(rows)  # of float32 rows: the float64 scores, rounded once
        np.testing.assert_allclose(scores, expected.astype(scores.dtype), rtol=1e-10, atol=1e-11)
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


def test_partial_fit_continues_after_fit(data, model):
    half = DPCA().fit(data.target[:100], background=data.background[:100])
    half.partial_fit(data.target[100:]).partial_fit(background=data.background[100:])
    np.testing.assert_allclose(half.ratios_, model.ratios_, rtol=1e-10)
    np.testing.assert_allclose(half.components_, model.components_, rtol=1e-9, atol=1e-11)
    np.testing.assert_array_equal(half.fit(data.target, background=data.background).ratios_, model.ratios_)


def test_backgrounds_may_arrive_before_the_target(data):
    parts = [data.background[:90], data.background[90:]]
    whole = DPCA().fit(data.target, background=parts)
    stream = DPCA().partial_fit(background=parts).partial_fit(data.target)
    assert stream.n_features_in_ == 5
    np.testing.assert_allclose(stream.ratios_, whole.ratios_, rtol=1e-10)


def test_named_backgrounds_keep_their_names_across_batches(data):
    whole = DPCA(mix="equal").fit(data.target, background={"a": data.background[:90], "b": data.background[90:]})
    stream = DPCA(mix="equal").partial_fit(background={"a": data.background[:20], "b": data.background[90:]})
    stream.partial_fit(data.target, background={"a": data.background[20:90]})
    np.testing.assert_allclose(stream.ratios_, whole.ratios_, rtol=1e-10)
    np.testing.assert_allclose(stream.mix_, [0.5, 0.5])
    assert "background 'a'" in stream.summary()


def test_the_score_is_the_mean_gain_in_log_density_of_the_target_rows(model):
    rng = np.random.default_rng(5)
    target, background = rng.normal(size=(80, 5)) + 20, rng.normal(size=(70, 5)) * 2
    expected = likelihood_gain(model, target, background)
    assert model.score(target, background=background) == pytest.approx(expected, rel=1e-12)
    assert model.score(Moments.of(target), background=Moments.of(background)) == pytest.approx(expected, rel=1e-10)


def test_in_sample_the_gain_of_an_exact_fit_is_that_of_the_likelihood_ratio():
    # All ratios are above one and all components are taken, so that N(0, C_x) is compared with N(0, C_y).
    rng = np.random.default_rng(6)
    mixing = rng.normal(size=(3, 3))
    target, background = 4 * rng.normal(size=(5000, 3)) @ mixing, rng.normal(size=(6000, 3)) @ mixing
    model = DPCA(3, shrinkage=None).fit(target, background=background)
    densities = [
        stats.multivariate_normal(cov=np.cov(rows.T, ddof=0)).logpdf(target - target.mean(axis=0)).mean()
        for rows in (target, background)
    ]
    assert model.score(target, background=background) == pytest.approx(densities[0] - densities[1], rel=1e-3)
    lambdas = model.ratios_
    assert np.sum(lambdas - 1 - np.log(lambdas)) / 2 == pytest.approx(densities[0] - densities[1], rel=1e-9)


@quiet
@pytest.mark.parametrize(
    ("m", "n", "centering"), [(50, 8, "own"), (5, 50, "background"), (8, 8, "own"), (8, 8, "background")]
)
def test_the_score_of_noise_is_unbiased(m, n, centering):
    rng = np.random.default_rng(1)
    model = DPCA(1, centering=centering).fit(rng.normal(size=(50, 2)), background=rng.normal(size=(60, 2)))
    scores = [model.score(rng.normal(size=(m, 2)), background=rng.normal(size=(n, 2))) for _ in range(2000)]
    error = np.std(scores) / np.sqrt(2000)
    assert abs(np.mean(scores) - gain_at_one(model.ratios_)) < 4 * error and error < 0.02
    assert gain_at_one(model.ratios_) < 0


def gain_at_one(claimed):
    """Return the expected score of rows whose population ratio is one."""
    return float(np.sum(1 - 1 / claimed - np.log(claimed)) / 2)


@quiet
def test_the_score_of_noise_is_unbiased_with_several_backgrounds_and_with_weights():
    rng = np.random.default_rng(2)
    first, second = rng.normal(size=(60, 2)), 3 * rng.normal(size=(60, 2)) + 5
    model = DPCA(1, mix="equal").fit(3 * rng.normal(size=(50, 2)), background=[first, second])
    weights = np.tile([2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 0.5, 0.5], 4)
    scores = []
    for _ in range(1500):
        parts = [rng.normal(size=(6, 2)), 3 * rng.normal(size=(9, 2))]
        target = np.sqrt(5) * rng.normal(size=(32, 2))  # the mean of the two variances
        scores.append(model.score(target, background=parts, sample_weight=weights))
    # A sum of two variances is χ² only approximately, and so is a variance of weighted rows.
    assert np.mean(scores) == pytest.approx(gain_at_one(model.ratios_), abs=0.03)


def test_a_score_against_unit_variance_is_unbiased():
    rng = np.random.default_rng(3)
    model = CPCA(1, alpha=0.0).fit(3 * rng.normal(size=(50, 2)))
    scores = [model.score(rng.normal(size=(4, 2))) for _ in range(800)]
    assert abs(np.mean(scores) - gain_at_one(model.ratios_)) < 4 * np.std(scores) / np.sqrt(800)


def chosen_components(seed, planted, features=20, rows=200):
    """Return the number of components that a grid search over 1 to 6 finds."""
    rng = np.random.default_rng(seed)
    mixing = np.eye(features) + rng.normal(size=(features, features)) / np.sqrt(features)
    sd = np.where(np.arange(features) < planted, 2.5, 1.0)
    X = np.vstack([rng.normal(size=(rows, features)) * sd, rng.normal(size=(rows, features))]) @ mixing
    y = np.repeat(["case", "control"], rows)
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    search = GridSearchCV(DPCA(background_label="control"), {"n_components": range(1, 7)}, cv=folds)
    return search.fit(X, y).best_params_["n_components"]


@quiet
def test_a_grid_search_over_the_number_of_components_finds_the_planted_ones():
    counts = np.array([chosen_components(seed, planted=3) for seed in range(20)])
    assert (counts == 3).mean() > 0.5 and (np.abs(counts - 3) <= 1).sum() >= 18


@quiet
def test_a_grid_search_on_noise_prefers_few_components():
    counts = np.array([chosen_components(seed, planted=0) for seed in range(20)])
    assert (counts == 1).sum() >= 16 and counts.max() <= 3


def test_score_needs_a_background(data, refused):
    model = DPCA().fit(data.target, background=data.background)
    refused(lambda: model.score(data.target), "no background was given")


def test_columns_of_a_file_that_were_not_in_the_fit_are_named(tmp_path, refused):
    path = tmp_path / "rows.csv"
    path.write_text("a,b,digit\n1,2,6\n3,5,9\n2,2,6\n", encoding="utf-8")
    model = DPCA(1).fit(standout.read(path, drop="digit"))
    refused(lambda: model.transform(path), "X has 3 features", "expecting 2", "not in the fit: 'digit'")


def test_inverse_transform_and_top_features_check_their_arguments(data, refused):
    model = DPCA().fit(data.target, background=data.background)
    refused(lambda: model.inverse_transform(data.target), "(200, 5)", "2 components")
    refused(lambda: model.inverse_transform([["a", "b"]]), "scores")
    for count in (0, 1.5, "all", True):
        refused(lambda count=count: model.top_features(count), f"count={count!r}")


def test_fit_and_partial_fit_need_rows(data, refused):
    refused(lambda: DPCA().partial_fit(), "neither X nor background")
    refused(lambda: DPCA().fit(None, background=data.background), "X: no target rows")


OTHER = np.random.default_rng(9).normal(size=(50, 7))
BAD = np.where(np.arange(7) == 6, np.nan, OTHER)
FRAME = {"columns": list("pqrstuv")}
FAILURES = {
    "NaN in the target": lambda model, _: model.fit(pd.DataFrame(BAD, **FRAME), background=OTHER),
    "NaN in the background": lambda model, _: model.fit(pd.DataFrame(OTHER, **FRAME), background=BAD),
    "other features": lambda model, _: model.fit(OTHER, background=OTHER[:, :6]),
    "too many components": lambda model, _: model.set_params(n_components=8).fit(OTHER, background=OTHER[::2]),
    "bad weights": lambda model, _: model.fit(OTHER, background=OTHER, sample_weight=-np.ones(50)),
    "constant background": lambda model, _: model.fit(OTHER, background=np.ones((9, 7))),
    "batch with NaN": lambda model, data: model.partial_fit(data.target * np.nan, background=data.background),
    "batch with NaN behind": lambda model, data: model.partial_fit(data.target, background=data.background * np.nan),
    "batch with other features": lambda model, _: model.partial_fit(OTHER, background=OTHER),
    "batch with other background features": lambda model, data: model.partial_fit(data.target, background=OTHER),
    "batch with groups": lambda model, data: model.partial_fit(data.target, groups=np.arange(200)),
}


@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_a_failed_fit_leaves_the_estimator_unchanged(data, how, named):
    target = pd.DataFrame(data.target, columns=NAMES) if named else data.target
    model = DPCA(shrinkage=None).fit(target, background=data.background)
    before = model.components_.copy(), model.transform(target), model.n_features_in_
    with pytest.raises(ValueError):  # noqa: PT011
        FAILURES[how](model, data)
    model.set_params(n_components=2)
    assert hasattr(model, "feature_names_in_") == named and model.n_features_in_ == before[2]
    np.testing.assert_array_equal(model.components_, before[0])
    np.testing.assert_array_equal(model.transform(target), before[1])
    more = model.partial_fit(target, background=data.background)
    np.testing.assert_allclose(
        more.ratios_, DPCA(shrinkage=None).fit(target, background=data.background).ratios_, rtol=1e-9
    )


def test_a_failed_first_batch_leaves_the_estimator_unfitted(data):
    model = DPCA()
    with pytest.raises(InputError):
        model.partial_fit(data.target * np.nan)
    assert not hasattr(model, "n_features_in_")
    model.partial_fit(data.target[:, :3]).partial_fit(background=data.background[:, :3])
    assert model.components_.shape == (2, 3)


def test_an_unfitted_estimator_asks_for_fit(data):
    for model in (DPCA(), DPCA().partial_fit(background=data.background)):
        with pytest.raises(ValueError, match=r"(not fitted yet|no target rows yet)\. Call fit"):
            model.transform(data.target)
        assert not hasattr(model, "ratios_")


def test_scoring_fewer_than_two_rows_is_an_error(data, refused):
    model = DPCA().fit(data.target, background=data.background)
    refused(lambda: model.score(data.target[:1], background=data.background), "target", "1", kind=NotEnoughRowsError)
    refused(lambda: model.score(data.target, background=data.background[:1]), "background", kind=NotEnoughRowsError)
    refused(lambda: model.score(None, background=data.background), "X")


RNG = np.random.default_rng(0)
T, A, B = RNG.normal(size=(200, 4)) * [3, 1, 1, 1], RNG.normal(size=(150, 4)), RNG.normal(size=(90, 4)) * [9, 1, 1, 1]


def test_fitted_attributes_cannot_be_set():
    model = DPCA().fit(T)
    with pytest.raises(AttributeError, match="Fit again"):
        model.ratios_ = 3


@quiet
def test_warnings_point_to_the_line_of_the_caller():
    with pytest.warns(UserWarning, match="background rows") as caught:
        DPCA().fit_transform(T, background=A[:20])
    assert {warning.filename for warning in caught} == {__file__}


@quiet
def test_a_constant_feature_stays_constant_over_batches_of_several_backgrounds():
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


def plain(rows):
    return rows


@quiet
@pytest.mark.parametrize("offset", [0.0, 1e3])
@pytest.mark.parametrize("form", [plain, sparse.csr_array, Moments.of])
@pytest.mark.parametrize("solver", ["auto", "dense"])
@pytest.mark.parametrize("relation", ["a sum", "a constant", "fewer dimensions"])
def test_a_component_without_background_variance_scores_infinity(relation, solver, form, offset):
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
        # If new background rows do vary there, the claim is the fitted target variance, over the variance of these.
        other = rng.normal(size=(100, 6)) @ mix + offset
        scores = [(part - part.mean(axis=0)) @ model.components_.T for part in (new, other)]
        variance = scores[1].var(axis=0)
        claimed = np.where(np.isinf(model.ratios_), model.target_variance_ / variance, model.debiased_ratios_)
        claimed = np.maximum(np.where(np.isnan(claimed), model.ratios_, claimed), 1)
        ratios = scores[0].var(axis=0, ddof=1) / (variance * 100 / 97)
        expected = np.sum(ratios * (1 - 1 / claimed) - np.log(claimed)) / 2
        assert model.score(form(new), background=form(other)) == pytest.approx(expected, rel=1e-6)


@quiet
@pytest.mark.parametrize("unit", [1e-30, 1e30])
def test_scores_are_finite_in_extreme_units(unit):
    rng = np.random.default_rng(5)
    target, background = unit * rng.normal(size=(80, 4)), unit * rng.normal(size=(90, 4))
    assert np.isfinite(DPCA(2).fit(target).score(target))
    for estimator in (DPCA(2), CPCA(2, alpha=1.0), KernelDPCA(2)):
        assert np.isfinite(estimator.fit(target, background=background).score(target, background=background))


@quiet
def test_scoring_data_without_any_variance_is_an_error():
    rng = np.random.default_rng(4)
    rows, background = rng.normal(size=(50, 3)), rng.normal(size=(60, 3))
    model = DPCA(1).fit(rows, background=background)
    same = np.repeat(rows[:1], 30, axis=0)
    with pytest.raises(InputError, match="neither target nor background"):
        model.score(same, background=same)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("offset", [0, 1e4, 1e6, 1e8])
def test_scores_of_rows_with_a_large_mean_are_accurate(offset, kind):
    target, background = sample_pair(np.random.default_rng(8), 300, 400, 8)
    model = DPCA(3).fit(kind(target + offset), background=kind(background + offset))
    exact = ((target + offset).astype(np.longdouble) - model.mean_) @ model.components_.T.astype(np.longdouble)
    np.testing.assert_allclose(model.transform(kind(target + offset)), exact.astype(float), rtol=1e-12, atol=1e-12)
    one_by_one = np.vstack([model.transform(row[None]) for row in target + offset])
    np.testing.assert_allclose(one_by_one, exact.astype(float), rtol=1e-12, atol=1e-12)
