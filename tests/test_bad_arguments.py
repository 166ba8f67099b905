"""Bad arguments (parameters, weights, groups, labels) are refused with what is possible; a failure changes nothing."""

import numpy as np
import pandas as pd
import pytest

from conftest import NAMES
from helpers import null_log_ratio
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import InputError, NotEnoughRowsError, RowsNeededError, StandoutError

PARAMETERS = [
    *[("n_components", value, "whole number") for value in (0, -1, 2.5, 2.0, "many", True, [2], np.nan)],
    *[("shrinkage", value, "0 to 1") for value in (-1, 2, "lw", True, np.nan, [0.1])],
    *[("mix", value, "") for value in ("maximin", [1, 2], [-1], [np.nan], [0], ["a"], {"a": 1}, None, 1.0)],
    ("solver", "qr", "'gsvd'"),
    ("axes", "pattern", "'ratio'"),
    ("normalize", "target", "'background'"),
    ("normalize", True, "'background'"),
    ("centering", None, "'own'"),
    ("features", "some", "'common'"),
    ("random_state", "seed", "whole number"),
    ("random_state", 1.5, "whole number"),
]


@pytest.mark.parametrize(("name", "value", "possible"), PARAMETERS)
def test_a_bad_parameter_is_refused_with_what_is_possible(data, name, value, possible, refused):
    estimator = DPCA(**{name: value})
    refused(lambda: estimator.fit(data.target, background=data.background), name, possible)


def test_shares_must_be_one_for_each_background(data, refused):
    two = [data.background[:150], data.background[150:]]
    refused(lambda: DPCA(mix=[1]).fit(data.target, background=two), "mix: 1 shares for 2 backgrounds")
    refused(lambda: DPCA(mix=[1, -1]).fit(data.target, background=two), "mix", "-1")


@pytest.mark.parametrize("value", [np.int64(2), np.uint8(2)])
def test_numpy_numbers_are_numbers(data, value):
    model = DPCA(value, shrinkage=np.float32(0.5)).fit(data.target, background=data.background)
    assert model.n_components_ == 2 and model.shrinkage_ == 0.5


WEIGHTS = {
    "negative": (-np.ones(200), ["200 are negative", "-1"]),
    "all zero": (np.zeros(200), ["all are zero"]),
    "too short": (np.ones(5), ["(5,)", "200 rows"]),
    "too long": (np.ones(500), ["(500,)", "200 rows"]),
    "two columns": (np.ones((200, 2)), ["(200, 2)", "200 rows"]),
    "NaN": (np.where(np.arange(200) < 3, np.nan, 1.0), ["3 are NaN or inf"]),
    "inf": (np.where(np.arange(200) < 3, np.inf, 1.0), ["3 are NaN or inf"]),
    "text": (["a"] * 200, ["a"]),
    "complex": (np.ones(200) * (1 + 1j), ["complex"]),
    "one number": (2.0, ["200 rows"]),
}


@pytest.mark.parametrize("kind", WEIGHTS)
def test_bad_weights_are_refused(data, kind, refused):
    weights, words = WEIGHTS[kind]
    half = data.background[:200]
    model = DPCA().fit(data.target, background=half)
    fit = DPCA().fit
    refused(lambda: fit(data.target, background=half, sample_weight=weights), "target weights: ", *words)
    refused(lambda: fit(half, background=data.target, background_sample_weight=weights), "background weights: ", *words)
    refused(lambda: model.score(data.target, background=half, sample_weight=weights), "target weights: ", *words)
    refused(lambda: DPCA().partial_fit(data.target, sample_weight=weights), "target weights: ", *words)


@pytest.mark.parametrize("kind", ["negative", "too short", "NaN"])
def test_bad_weights_are_refused_with_more_features_than_rows(kind, refused):
    rng = np.random.default_rng(0)
    target, background = rng.normal(size=(200, 450)), rng.normal(size=(200, 450))
    weights, words = WEIGHTS[kind]
    refused(lambda: DPCA().fit(target, background=background, sample_weight=weights), "target weights: ", *words)


@pytest.mark.parametrize("ids", [np.arange(5), np.ones((200, 2)), 7], ids=["too short", "two columns", "one number"])
def test_bad_groups_are_refused(data, ids, refused):
    shape = str(np.shape(ids))
    fit = DPCA().fit
    half = data.background[:200]
    refused(lambda: fit(data.target, background=half, groups=ids), "target groups: ", shape, "200 rows")
    refused(lambda: fit(data.target, background=half, background_groups=ids), "background groups: ", shape)


@pytest.mark.parametrize("missing", [np.nan, None, pd.NA])
def test_rows_without_a_group_are_refused(data, missing, refused):
    ids = pd.Series(["m1"] * 100 + ["m2"] * 97 + [missing] * 3, dtype=object)
    refused(lambda: DPCA().fit(data.target, background=data.background, groups=ids), "target groups: ", "3")


def test_weights_and_groups_of_a_background_need_a_background(data, refused):
    refused(lambda: DPCA().fit(data.target, background_sample_weight=np.ones(3)), "without a background")
    refused(lambda: DPCA().fit(data.target, background_groups=np.ones(3)), "without a background")


def test_weights_of_several_backgrounds_must_fit_them(data, refused):
    several = {"sham": data.background[:150], "vehicle": data.background[150:]}
    ones = np.ones(150)
    fit = DPCA().fit
    for given in (ones, [ones], {"shame": ones}, [ones, ones, ones]):
        call = lambda given=given: fit(data.target, background=several, background_sample_weight=given)  # noqa: E731
        refused(call, "background_sample_weight: ", "2 backgrounds")
    refused(lambda: fit(data.target, background=several, background_sample_weight={"sham": -ones}), "'sham' weights")


def test_a_background_given_twice_or_empty_is_refused(data, refused):
    y = np.arange(200) % 2
    refused(lambda: DPCA().fit(data.target, background=[]), "background: an empty list")
    refused(lambda: DPCA().fit(data.target, background={}), "background: an empty list or dict")
    twice = DPCA(background_label=0)
    refused(lambda: twice.fit(data.target, y, background=data.background), "both background= and background_label=0")
    refused(lambda: twice.fit(data.target), "background_label=0 needs y")
    refused(lambda: twice.fit(data.target, y[:5]), "y: shape (5,) for 200 rows")
    refused(lambda: twice.fit(data.target, y, background_groups=y), "groups cover the background rows too")
    refused(lambda: twice.fit(data.target, y, sample_weight=np.ones(3)), "sample_weight: shape (3,) for 200 rows")
    refused(lambda: twice.fit(data.target, 0 * y), "only background rows (0)")


def test_a_label_that_does_not_occur_is_refused_with_those_that_do(data, refused):
    y = np.repeat(["control", "treated"], 100)
    fit = lambda label, y=y: DPCA(background_label=label).fit(data.target, y)  # noqa: E731
    refused(lambda: fit("contrl"), "background_label='contrl'", "'control', 'treated'", "Did you mean 'control'?")
    refused(lambda: fit("sham"), "background_label='sham'", "'control', 'treated'")
    refused(lambda: fit(["control", "sham"]), "background_label='sham'")
    refused(lambda: fit([]), "background_label")


@pytest.mark.parametrize(
    ("label", "y", "right"), [("0", [0, 1], "0"), (0, ["0", "1"], "'0'"), ("True", [True, False], "True")]
)
def test_a_label_of_another_type_is_shown_as_it_must_be_written(data, label, y, right, refused):
    estimator = DPCA(background_label=label)
    refused(lambda: estimator.fit(data.target, np.repeat(y, 100)), f"Did you mean {right}?")


def test_moments_are_refused_where_rows_are_needed(data, refused):
    target, background = Moments.of(data.target), Moments.of(data.background)
    model = DPCA(shrinkage=None).fit(target, background=background)
    np.testing.assert_allclose(
        model.ratios_, DPCA(shrinkage=None).fit(data.target, background=data.background).ratios_, rtol=1e-12
    )
    expected = np.log(model.ratios_).mean() - null_log_ratio(200, 300)
    assert model.score(target, background=background) == pytest.approx(expected)
    refused(lambda: model.transform(target), "transform works on rows", kind=RowsNeededError)
    labelled = DPCA(background_label=0)
    refused(lambda: labelled.fit(target, np.ones(200)), "background_label splits rows", kind=RowsNeededError)
    for solver in ("gsvd", "span"):
        refused(lambda s=solver: DPCA(solver=s).fit(target, background=background), solver, kind=RowsNeededError)
    refused(
        lambda: DPCA().fit(target, background=background, sample_weight=np.ones(200)), "weights", kind=StandoutError
    )


def test_score_without_a_background_is_refused(data, refused):
    model = DPCA().fit(data.target, background=data.background)
    refused(lambda: model.score(data.target), "no background was given")


def test_scores_that_do_not_fit_are_refused(data, refused):
    model = DPCA().fit(data.target, background=data.background)
    refused(lambda: model.inverse_transform(data.target), "(200, 5)", "2 components")
    refused(lambda: model.inverse_transform([["a", "b"]]), "scores")
    for count in (0, 1.5, "all", True):
        refused(lambda count=count: model.top_features(count), f"count={count!r}")


def test_nothing_to_add_is_refused(data, refused):
    refused(lambda: DPCA().partial_fit(), "neither X nor background")
    refused(lambda: DPCA().fit(None, background=data.background), "X: no target rows")


def test_automatic_counting_needs_something_to_compare(data, wide, refused):
    refused(lambda: DPCA("auto").fit(data.target), "n_components='auto'", "there is none")
    refused(lambda: DPCA("auto").fit(wide.target, background=wide.background), "'auto'", "15", kind=NotEnoughRowsError)
    exact = DPCA(shrinkage=None)
    refused(
        lambda: exact.fit(wide.target, background=wide.background), "15 rows", "25 dimensions", kind=NotEnoughRowsError
    )


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
def test_a_failure_leaves_the_estimator_as_it_was(data, how, named):
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


def test_an_unfitted_estimator_says_what_to_call(data):
    for model in (DPCA(), DPCA().partial_fit(background=data.background)):
        with pytest.raises(ValueError, match=r"(not fitted yet|no target rows yet)\. Call fit"):
            model.transform(data.target)
        assert not hasattr(model, "ratios_")
