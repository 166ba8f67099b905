"""The arguments of fit: tables, names, labels, weights, groups and backgrounds, and errors with a remedy."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from conftest import NAMES
from helpers import OptionalPackage, likelihood_gain, quiet
from standout import CPCA, DPCA, KernelDPCA
from standout._dataset import Mixture
from standout._moments import Counts, Moments
from standout.errors import (
    FeatureError,
    FeatureWarning,
    InputError,
    NonFiniteError,
)

pd = OptionalPackage("pandas")
pl = OptionalPackage("polars")


def fit(data, target=None, background=None, *, given=None, **named):
    chosen = data.target if target is None else target
    return DPCA(**(given or {})).fit(chosen, background=data.background if background is None else background, **named)


def frame(rows, names=NAMES):
    return pd.DataFrame(rows, columns=list(names))


def spoilt(rows, columns=(1, 1, 3), values=(np.nan, np.nan, -np.inf)):
    rows = rows.copy()
    for row, (column, value) in enumerate(zip(columns, values, strict=True)):
        rows[row, column] = value
    return rows


FORMS = {
    "array": (np.asarray, ["1 (2)", "3 (1)"]),
    "single precision": (lambda rows: rows.astype(np.float32), ["1 (2)", "3 (1)"]),
    "sparse": (sparse.csr_array, ["1 (2)", "3 (1)"]),
    "list": (np.ndarray.tolist, ["1 (2)", "3 (1)"]),
    "pandas": (frame, ["b (2)", "d (1)"]),
    "polars": (lambda rows: pl.DataFrame(rows, schema=NAMES), ["b (2)", "d (1)"]),
}


@pytest.mark.parametrize("form", FORMS)
def test_non_finite_values_are_located_in_every_table_type(data, form, refused):
    make, where = FORMS[form]
    bad = make(spoilt(data.target))
    message = ["2 NaN and 1 inf values in 2 of 5 features", *where]
    model = DPCA().fit(make(data.target), background=data.background)
    refused(lambda: DPCA().fit(bad, background=data.background), "target: ", *message, kind=NonFiniteError)
    refused(lambda: DPCA().fit(data.target, background=bad), "background: ", *message, kind=NonFiniteError)
    refused(lambda: DPCA().fit(bad), "target: ", *message, kind=NonFiniteError)
    refused(lambda: DPCA().partial_fit(background=bad), "background: ", *message, kind=NonFiniteError)
    refused(lambda: model.transform(bad), "X: ", *message, kind=NonFiniteError)
    refused(lambda: model.score(bad, background=data.background), "target: ", *message, kind=NonFiniteError)
    refused(lambda: model.score(make(data.target), background=bad), "background: ", *message, kind=NonFiniteError)


def test_an_error_names_the_background_that_has_the_bad_value(data, refused):
    several = {"vehicle": data.background, "sham": spoilt(data.background)}
    refused(lambda: fit(data, background=several), "background 'sham': 2 NaN", kind=NonFiniteError)
    refused(lambda: fit(data, background=list(several.values())), "background 1: 2 NaN", kind=NonFiniteError)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, lambda rows: pd.DataFrame(rows)])
def test_non_finite_values_are_located_on_wide_data(wide, form, refused):
    bad = spoilt(wide.target, range(7), [np.nan] * 6 + [np.inf])
    message = ["6 NaN and 1 inf values in 7 of 40 features", "0 (1)", "and 2 more"]
    refused(lambda: DPCA().fit(form(bad), background=wide.background), "target: ", *message, kind=NonFiniteError)
    refused(lambda: DPCA().fit(wide.target, background=form(bad)), "background: ", *message, kind=NonFiniteError)
    refused(lambda: DPCA().fit(form(bad)), "target: ", *message, kind=NonFiniteError)
    huge = spoilt(wide.background, [4], [1e200])
    refused(lambda: DPCA().fit(wide.target, background=form(huge)), "background: ", "overflow", "1e+200", "4")


def test_a_different_number_of_features_is_an_error(data, refused):
    refused(lambda: fit(data, background=data.background[:, :3]), "background: 3", "5", kind=FeatureError)
    model = fit(data)
    for call in (model.transform, lambda rows: model.score(rows, background=data.background), model.partial_fit):
        refused(lambda call=call: call(data.target[:, :3]), "X has 3 features", "expecting 5")


def test_missing_and_extra_features_are_listed(data, refused):
    other = frame(data.background, "abxdy")
    message = "missing features of the target (2): 'c', 'e'; features that are not in the target (2): 'x', 'y'"
    refused(
        lambda: fit(data, frame(data.target), other), "background: ", message, "features='common'", kind=FeatureError
    )
    refused(lambda: fit(data, frame(data.target), {"sham": other}), "background 'sham': ", message, kind=FeatureError)


def test_columns_in_a_different_order_are_matched_by_name(data):
    plain = fit(data)
    turned = frame(data.background)[list("ecadb")]
    model = fit(data, frame(data.target), turned)
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-12)
    assert model.score(frame(data.target), background=turned) == pytest.approx(
        plain.score(data.target, background=data.background)
    )
    parts = DPCA().partial_fit(frame(data.target)).partial_fit(background=turned)
    np.testing.assert_allclose(parts.ratios_, plain.ratios_, rtol=1e-10)


def test_moments_in_a_different_order_are_matched_by_name_or_an_error(data):
    model = fit(data, frame(data.target))
    turned = Moments.of(frame(data.target)[list("ecadb")])
    try:
        found = model.score(turned, background=data.background)
    except FeatureError:
        return
    assert found == pytest.approx(model.score(frame(data.target), background=data.background))


@pytest.fixture
def common(data):
    with pytest.warns(FeatureWarning, match=r"1 of 5 target features .* take no part: 'a'.*Add them"):
        return fit(
            data, frame(data.target), frame(data.background, "xbcde"), given={"features": "common", "shrinkage": None}
        )


def test_common_features_are_used_on_request(data, common):
    np.testing.assert_allclose(
        common.ratios_, DPCA(shrinkage=None).fit(data.target[:, 1:], background=data.background[:, 1:]).ratios_
    )
    assert common.n_features_in_ == 5 and (common.components_[:, 0] == 0).all()
    assert common.transform(frame(data.target)).shape == (200, 2)


def test_a_model_of_common_features_scores_its_training_data(data, common):
    expected = likelihood_gain(common, data.target, data.background)
    assert common.score(frame(data.target), background=frame(data.background, "xbcde")) == pytest.approx(expected)


def test_an_error_does_not_suggest_common_features_when_they_are_already_used(data):
    model = DPCA(features="common")
    try:
        model.partial_fit(frame(data.target), background=frame(data.background, "xbcde"))
    except FeatureError as error:
        assert "use features='common'" not in str(error)  # noqa: PT017


def test_no_common_feature_is_an_error(data, refused):
    call = lambda: fit(data, frame(data.target), frame(data.background, "vwxyz"), given={"features": "common"})  # noqa: E731
    refused(call, "no feature in common", kind=FeatureError)


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, frame, lambda rows: pl.DataFrame(rows, schema=NAMES)])
def test_fewer_than_two_rows_are_an_error(data, form, count, refused):
    refused(lambda: fit(data, form(data.target[:count])), "target: ", str(count))
    refused(lambda: fit(data, background=form(data.background[:count])), "background: ", str(count))
    refused(lambda: DPCA(1).fit(form(data.target[:count])), "target: ", str(count))


def test_constant_data_are_an_error(data, wide, refused):
    for rows in (data, wide):
        constant = np.full(rows.target.shape, 0.1)
        refused(lambda rows=rows, c=constant: fit(rows, c), "target: every feature is constant")
        refused(lambda rows=rows, c=constant: fit(rows, background=c), "background: every feature is constant")
        refused(lambda c=constant: DPCA().fit(c), "target: every feature is constant")
    several = {"sham": np.ones((20, 5)), "vehicle": np.ones((20, 5))}
    refused(lambda: fit(data, background=several), "background", "every feature is constant")


TEXT = {
    "text": lambda: ["x", "y"] * 100,
    "categories": lambda: pd.Categorical(["x", "y"] * 100),
    "dates": lambda: pd.date_range("2020-01-01", periods=200),
    "durations": lambda: pd.to_timedelta(range(200), unit="D"),
    "complex": lambda: np.arange(200) * 1j,
    "lists": lambda: [[1, 2]] * 200,
}


@pytest.mark.parametrize("kind", TEXT)
def test_non_numeric_columns_are_named(data, kind, refused):
    bad = frame(data.target).assign(d=pd.Series(TEXT[kind]()))
    refused(lambda: fit(data, bad), "target: 1 of 5 columns do not hold numbers: 'd'", "frame.drop(columns=['d'])")


def test_advice_about_non_numeric_polars_columns_is_valid_polars(data, refused):
    bad = pl.DataFrame(data.target, schema=NAMES).with_columns(d=pl.Series(["x", "y"] * 100))
    refused(lambda: fit(data, bad), "target: 1 of 5 columns do not hold numbers: 'd' (type String)")
    with pytest.raises(InputError) as error:
        fit(data, bad)
    assert "drop(columns=" not in str(error.value)  # polars has no such argument


@pytest.mark.parametrize(
    "rows",
    [
        np.full((9, 5), "x"),
        np.full((9, 5), "x", dtype=object),
        [["x", 1.0]] * 9,
        np.zeros((9, 5), dtype="M8[D]"),
        np.ones((9, 5), dtype="m8[s]"),
        np.ones((9, 5)) * 1j,
        np.zeros((9, 5), dtype=[("f", float)]),
        [[1, 2], [3]],
        np.ones(5),
        np.ones((2, 3, 5, 2)),
        3.0,
        {"a": [1, 2]},
        (row for row in [[1.0, 2.0]]),
        lambda: pd.Series([1.0, 2.0]),
    ],
    ids=lambda rows: f"{type(rows).__name__} {getattr(rows, 'dtype', '')} {getattr(rows, 'ndim', '')}",
)
def test_anything_but_a_numeric_table_is_an_error_with_a_short_message(data, rows, refused):
    rows = rows() if callable(rows) else rows
    refused(lambda: fit(data, rows), "target: ")
    refused(lambda: fit(data, background=rows), "background")
    with pytest.raises(InputError) as error:
        fit(data, rows)
    assert len(str(error.value)) < 500  # not the rows themselves


def test_duplicate_and_mixed_column_names_are_an_error(data, refused):
    refused(lambda: fit(data, frame(data.target, "abcda")), "target: ", "'a'")
    mixed = frame(data.background, [*"abcd", 5])
    refused(lambda: fit(data, frame(data.target), mixed), "background: ", "5")


@pytest.mark.parametrize("path", ["rows.csv", Path("rows.npy"), b"rows.csv"])
def test_a_missing_file_is_an_error(data, path, refused):
    refused(lambda: fit(data, path), "target: ", "rows.", "no such file")
    refused(lambda: fit(data, background=path), "background: ", "rows.", "no such file")
    refused(lambda: fit(data).transform(path), "X: ", "rows.", "no such file")


def test_mix_needs_one_share_per_background(data, refused):
    two = [data.background[:150], data.background[150:]]
    refused(lambda: DPCA(mix=[1]).fit(data.target, background=two), "mix: 1 shares for 2 backgrounds")
    refused(lambda: DPCA(mix=[1, -1]).fit(data.target, background=two), "mix", "-1")


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
def test_bad_weights_raise_an_error(data, kind, refused):
    weights, words = WEIGHTS[kind]
    half = data.background[:200]
    model = DPCA().fit(data.target, background=half)
    fit = DPCA().fit
    refused(lambda: fit(data.target, background=half, sample_weight=weights), "target weights: ", *words)
    refused(lambda: fit(half, background=data.target, background_sample_weight=weights), "background weights: ", *words)
    refused(lambda: model.score(data.target, background=half, sample_weight=weights), "target weights: ", *words)
    refused(lambda: DPCA().partial_fit(data.target, sample_weight=weights), "target weights: ", *words)


@pytest.mark.parametrize("kind", ["negative", "too short", "NaN"])
def test_bad_weights_raise_an_error_on_wide_data(kind, refused):
    rng = np.random.default_rng(0)
    target, background = rng.normal(size=(200, 450)), rng.normal(size=(200, 450))
    weights, words = WEIGHTS[kind]
    refused(lambda: DPCA().fit(target, background=background, sample_weight=weights), "target weights: ", *words)


@pytest.mark.parametrize("ids", [np.arange(5), np.ones((200, 2)), 7], ids=["too short", "two columns", "one number"])
def test_bad_groups_raise_an_error(data, ids, refused):
    shape = str(np.shape(ids))
    fit = DPCA().fit
    half = data.background[:200]
    good = np.arange(200) // 2
    given = {"groups": ids, "background_groups": good}
    refused(lambda: fit(data.target, background=half, **given), "target groups: ", shape, "200 rows")
    given = {"groups": good, "background_groups": ids}
    refused(lambda: fit(data.target, background=half, **given), "background groups: ", shape)


@pytest.mark.parametrize("missing", [lambda: np.nan, lambda: None, lambda: pd.NA], ids=["NaN", "None", "NA"])
def test_missing_group_ids_raise_an_error(data, missing, refused):
    ids = pd.Series(["m1"] * 100 + ["m2"] * 97 + [missing()] * 3, dtype=object)
    given = {"groups": ids, "background_groups": np.arange(300) // 2}
    refused(lambda: DPCA().fit(data.target, background=data.background, **given), "target groups: ", "3")


def test_background_weights_and_groups_need_a_background(data, refused):
    refused(lambda: DPCA().fit(data.target, background_sample_weight=np.ones(3)), "without a background")
    refused(lambda: DPCA().fit(data.target, background_groups=np.ones(3)), "without a background")


def test_weights_of_several_backgrounds_must_match_them(data, refused):
    several = {"sham": data.background[:150], "vehicle": data.background[150:]}
    ones = np.ones(150)
    fit = DPCA().fit
    for given in (ones, [ones], {"shame": ones}, [ones, ones, ones]):
        call = lambda given=given: fit(data.target, background=several, background_sample_weight=given)  # noqa: E731
        refused(call, "background_sample_weight: ", "2 backgrounds")
    refused(lambda: fit(data.target, background=several, background_sample_weight={"sham": -ones}), "'sham' weights")


def test_an_empty_or_doubly_given_background_is_an_error(data, refused):
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


def test_an_unknown_background_label_lists_the_labels_that_occur(data, refused):
    y = np.repeat(["control", "treated"], 100)
    fit = lambda label, y=y: DPCA(background_label=label).fit(data.target, y)  # noqa: E731
    refused(lambda: fit("contrl"), "background_label='contrl'", "'control', 'treated'", "Did you mean 'control'?")
    refused(lambda: fit("sham"), "background_label='sham'", "'control', 'treated'")
    refused(lambda: fit(["control", "sham"]), "background_label='sham'")
    refused(lambda: fit([]), "background_label")


@pytest.mark.parametrize(
    ("label", "y", "right"), [("0", [0, 1], "0"), (0, ["0", "1"], "'0'"), ("True", [True, False], "True")]
)
def test_a_label_of_the_wrong_type_is_shown_in_the_right_type(data, label, y, right, refused):
    estimator = DPCA(background_label=label)
    refused(lambda: estimator.fit(data.target, np.repeat(y, 100)), f"Did you mean {right}?")


RNG = np.random.default_rng(0)
T, A, B = RNG.normal(size=(200, 4)) * [3, 1, 1, 1], RNG.normal(size=(150, 4)), RNG.normal(size=(90, 4)) * [9, 1, 1, 1]


@quiet
def test_shares_are_matched_to_backgrounds_by_name():
    whole = DPCA(mix={"a": 0.9, "b": 0.1}).fit(T, background={"a": A, "b": B})
    np.testing.assert_allclose(whole.ratios_, DPCA(mix=[0.9, 0.1]).fit(T, background=[A, B]).ratios_)
    batches = DPCA(mix={"a": 0.9, "b": 0.1}).partial_fit(T, background={"b": B}).partial_fit(background={"a": A})
    np.testing.assert_allclose(batches.ratios_, whole.ratios_, rtol=1e-10)
    with pytest.raises(InputError, match="mix as a dict"):
        DPCA(mix=[0.9, 0.1]).partial_fit(T, background={"b": B}).partial_fit(background={"a": A})
    with pytest.raises(InputError, match="shares for"):
        DPCA(mix={"a": 1, "c": 1}).fit(T, background={"a": A, "b": B})
    one, other = (whole.score(T, background=both) for both in ({"a": A, "b": B}, {"b": B, "a": A}))
    assert one == pytest.approx(other)
    with pytest.raises(InputError, match="same backgrounds"):
        whole.score(T, background=A)


@quiet
def test_the_order_of_labelled_backgrounds_does_not_depend_on_the_batches():
    X, y = np.vstack([T, A, B]), np.repeat(["t", "c", "d"], [200, 150, 90])
    whole = DPCA(mix=[0.1, 0.9], background_label=["c", "d"]).fit(X, y)
    batches = DPCA(mix=[0.1, 0.9], background_label=np.array(["c", "d"]))
    for label in "dtc":
        batches.partial_fit(X[y == label], y[y == label])
    np.testing.assert_allclose(batches.ratios_, whole.ratios_, rtol=1e-10)


def test_a_background_label_that_is_given_twice_counts_once():
    X, y = np.vstack([T, A]), np.repeat(["t", "c"], [200, 150])
    once, twice = (DPCA(background_label=label).fit(X, y) for label in ("c", ["c", "c"]))
    assert twice.ratios_.tolist() == once.ratios_.tolist()
    assert twice.noise_edge_ == once.noise_edge_


def test_a_background_label_that_never_occurred_is_an_error():
    model = DPCA(background_label="C").partial_fit(T, ["c"] * 100 + ["t"] * 100)
    with pytest.raises(InputError, match="no row with background_label='C'"):
        _ = model.ratios_


@pytest.mark.parametrize("missing", [lambda: None, lambda: np.nan, lambda: pd.NA], ids=["None", "NaN", "NA"])
def test_missing_labels_are_an_error(missing):
    y = np.array(["c"] * 100 + ["t"] * 99 + [missing()], dtype=object)
    with pytest.raises(InputError, match="1 of 200 rows have no label"):
        DPCA(background_label="c").fit(T, y)


def test_integer_column_labels_in_a_different_order_are_an_error():
    frame = pd.DataFrame(A)
    with pytest.raises(FeatureError, match="not matched"):
        DPCA().fit(pd.DataFrame(T), background=frame[[3, 2, 1, 0]])


@quiet
def test_common_features_may_be_all_features_and_other_columns_are_not_checked():
    frame, other = pd.DataFrame(T, columns=list("abcd")), pd.DataFrame(A, columns=list("abcd"))
    model = DPCA(features="common").fit(frame, background=other)
    with pytest.raises(FeatureError, match=r"missing features of the target \(1\): 'd'"):
        model.score(frame, background=other[list("abc")])
    part = DPCA(features="common").fit(frame.assign(d=np.nan), background=other[list("abc")])
    assert np.isfinite(part.transform(frame.assign(d=np.nan))).all()


@quiet
def test_sparse_frames_and_dok_matrices_are_accepted_as_background():
    expected = DPCA().fit(T, background=A).ratios_
    np.testing.assert_allclose(DPCA().fit(T, background=sparse.dok_array(A)).ratios_, expected, rtol=1e-10)
    frame = pd.DataFrame(A).astype(pd.SparseDtype(float))
    np.testing.assert_allclose(DPCA().fit(T, background=frame).ratios_, expected, rtol=1e-10)


def test_labels_of_a_source_are_used():
    source = standout_source()
    model = DPCA(background_label="c").fit(source)
    np.testing.assert_allclose(model.ratios_, DPCA().fit(T, background=A).ratios_, rtol=1e-10)


def test_the_effective_counts_of_a_mixture_follow_from_its_shares():
    counts = [Counts(101, 101.0, 51.0, 11.0), Counts(301, 301.0, 301.0, 301.0)]
    mixture = Mixture.of(counts, [0.5, 0.5])
    assert mixture.rows == 400
    assert mixture.effective == pytest.approx(1 / (0.25 / 50 + 0.25 / 300))
    assert mixture.units == pytest.approx(1 + 1 / (0.25 / 10 + 0.25 / 300))
    pooled = Mixture.of([Counts(100, 100.0, 100.0, 100.0)] * 3, "pooled")
    assert pooled.units == pytest.approx(1 + 297)


def standout_source():
    from standout.io.read import read

    source = read(np.vstack([T, A]))
    source.labels = np.repeat(["t", "c"], [200, 150])
    return source


@quiet
def test_the_mean_of_a_mixture_is_the_weighted_mean():
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


@quiet
@pytest.mark.parametrize("container", [np.asarray, lambda columns: pd.DataFrame(columns), lambda c: pl.DataFrame(c)])
@pytest.mark.parametrize("kind", ["i8", "u8"])
def test_integers_that_float64_cannot_distinguish_are_an_error(container, kind, refused):
    rng = np.random.default_rng(2)
    rows = rng.integers(0, 300, size=(60, 3)).astype(kind)
    rows[:, 1] += 2**60
    columns = {"a": rows[:, 0], "id": rows[:, 1], "b": rows[:, 2]}
    data = rows if container is np.asarray else container(columns)
    name = "1" if container is np.asarray else "'id'"
    refused(lambda: DPCA(2).fit(data), f"feature {name} holds integers of about 1.15e+18", "less a constant")
    rows[:, 1] -= 2**60
    DPCA(2).fit(rows)


@quiet
def test_large_integers_with_large_differences_are_accepted():
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 10**9, size=(200, 3))
    large = rows.copy()
    large[:, 1] += 1_700_000_000 * 10**9  # nanoseconds since 1970, over one second
    found, expected = (DPCA(3).fit(table).ratios_ for table in (large, rows))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("estimator", [DPCA(1), CPCA(1), KernelDPCA(1)])
@pytest.mark.parametrize(
    "background",
    [
        lambda rows: rows,
        lambda rows: rows[:, :1],
        lambda rows: rows[:50, 0],
        lambda rows: pd.DataFrame(rows),
        lambda rows: rows.tolist(),
        lambda rows: [rows, rows[:9]],
        lambda rows: {"control": rows},
        lambda rows: Moments.of(rows),
        lambda rows: sparse.csr_array(rows),
        lambda _: "control.csv",
    ],
)
def test_a_background_in_the_place_of_labels_is_an_error_that_names_the_argument(data, estimator, background):
    given = background(data.background)
    for method in (estimator.fit, estimator.fit_transform):
        with pytest.raises(InputError, match=r"y: .* Give a background as `background=`"):
            method(data.target, given)


def test_labels_that_are_not_used_are_accepted(data):
    expected = DPCA(1).fit(data.target).components_
    for y in (np.arange(len(data.target)), ["a"] * len(data.target), pd.Series(np.zeros(len(data.target)))):
        np.testing.assert_array_equal(DPCA(1).fit(data.target, y).components_, expected)
