"""Bad input gives an error that says what and where and ends with what to do, and nothing is lost."""

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from conftest import NAMES
from helpers import null_log_ratio
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import FeatureError, FeatureWarning, InputError, NonFiniteError, NotEnoughRowsError


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
def test_non_finite_values_are_located_wherever_they_are(data, form, refused):
    make, where = FORMS[form]
    bad = make(spoilt(data.target))
    told = ["2 NaN and 1 inf values in 2 of 5 features", *where]
    model = DPCA().fit(make(data.target), background=data.background)
    refused(lambda: DPCA().fit(bad, background=data.background), "target: ", *told, kind=NonFiniteError)
    refused(lambda: DPCA().fit(data.target, background=bad), "background: ", *told, kind=NonFiniteError)
    refused(lambda: DPCA().fit(bad), "target: ", *told, kind=NonFiniteError)
    refused(lambda: DPCA().partial_fit(background=bad), "background: ", *told, kind=NonFiniteError)
    refused(lambda: model.transform(bad), "X: ", *told, kind=NonFiniteError)
    refused(lambda: model.score(bad, background=data.background), "target: ", *told, kind=NonFiniteError)
    refused(lambda: model.score(make(data.target), background=bad), "background: ", *told, kind=NonFiniteError)


def test_the_background_with_the_bad_value_is_named(data, refused):
    several = {"vehicle": data.background, "sham": spoilt(data.background)}
    refused(lambda: fit(data, background=several), "background 'sham': 2 NaN", kind=NonFiniteError)
    refused(lambda: fit(data, background=list(several.values())), "background 1: 2 NaN", kind=NonFiniteError)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, pd.DataFrame])
def test_non_finite_values_are_located_with_more_features_than_rows(wide, form, refused):
    bad = spoilt(wide.target, range(7), [np.nan] * 6 + [np.inf])
    told = ["6 NaN and 1 inf values in 7 of 40 features", "0 (1)", "and 2 more"]
    refused(lambda: DPCA().fit(form(bad), background=wide.background), "target: ", *told, kind=NonFiniteError)
    refused(lambda: DPCA().fit(wide.target, background=form(bad)), "background: ", *told, kind=NonFiniteError)
    refused(lambda: DPCA().fit(form(bad)), "target: ", *told, kind=NonFiniteError)
    huge = spoilt(wide.background, [4], [1e200])
    refused(lambda: DPCA().fit(wide.target, background=form(huge)), "background: ", "overflow", "1e+200", "4")


def test_another_number_of_features_is_told(data, refused):
    refused(lambda: fit(data, background=data.background[:, :3]), "background: 3", "5", kind=FeatureError)
    model = fit(data)
    for call in (model.transform, lambda rows: model.score(rows, background=data.background), model.partial_fit):
        refused(lambda call=call: call(data.target[:, :3]), "X has 3 features", "expecting 5")


def test_missing_and_extra_features_are_listed(data, refused):
    other = frame(data.background, "abxdy")
    told = "2 features of the target are missing: 'c', 'e'; 2 features are not in the target: 'x', 'y'"
    refused(lambda: fit(data, frame(data.target), other), "background: ", told, "features='common'", kind=FeatureError)
    refused(lambda: fit(data, frame(data.target), {"sham": other}), "background 'sham': ", told, kind=FeatureError)


def test_columns_in_another_order_are_put_right(data):
    plain = fit(data)
    turned = frame(data.background)[list("ecadb")]
    model = fit(data, frame(data.target), turned)
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-12)
    assert model.score(frame(data.target), background=turned) == pytest.approx(
        plain.score(data.target, background=data.background)
    )
    parts = DPCA().partial_fit(frame(data.target)).partial_fit(background=turned)
    np.testing.assert_allclose(parts.ratios_, plain.ratios_, rtol=1e-10)


def test_moments_and_sources_in_another_order_are_put_right_or_refused(data):
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


def test_a_model_of_common_features_scores_the_datasets_it_was_fitted_to(data, common):
    expected = np.log(common.ratios_).mean() - null_log_ratio(200, 300)
    assert common.score(frame(data.target), background=frame(data.background, "xbcde")) == pytest.approx(expected)


def test_common_features_are_not_advised_to_those_who_ask_for_them(data):
    model = DPCA(features="common")
    try:
        model.partial_fit(frame(data.target), background=frame(data.background, "xbcde"))
    except FeatureError as error:
        assert "use features='common'" not in str(error)  # noqa: PT017


def test_no_common_feature_is_refused(data, refused):
    call = lambda: fit(data, frame(data.target), frame(data.background, "vwxyz"), given={"features": "common"})  # noqa: E731
    refused(call, "no feature in common", kind=FeatureError)


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, frame, lambda rows: pl.DataFrame(rows, schema=NAMES)])
def test_too_few_rows_are_refused(data, form, count, refused):
    refused(lambda: fit(data, form(data.target[:count])), "target: ", str(count))
    refused(lambda: fit(data, background=form(data.background[:count])), "background: ", str(count))
    refused(lambda: DPCA(1).fit(form(data.target[:count])), "target: ", str(count))


def test_scoring_rows_that_have_no_variance_is_refused(data, refused):
    model = fit(data)
    refused(lambda: model.score(data.target[:1], background=data.background), "target", "1", kind=NotEnoughRowsError)
    refused(lambda: model.score(data.target, background=data.background[:1]), "background", kind=NotEnoughRowsError)
    refused(lambda: model.score(None, background=data.background), "X")


def test_constant_data_are_refused(data, wide, refused):
    for rows in (data, wide):
        constant = np.full(rows.target.shape, 0.1)
        refused(lambda rows=rows, c=constant: fit(rows, c), "target: every feature is constant")
        refused(lambda rows=rows, c=constant: fit(rows, background=c), "background: every feature is constant")
        refused(lambda c=constant: DPCA().fit(c), "target: every feature is constant")
    several = {"sham": np.ones((20, 5)), "vehicle": np.ones((20, 5))}
    refused(lambda: fit(data, background=several), "background", "every feature is constant")


def test_more_components_than_dimensions_are_refused(data, wide, refused):
    refused(lambda: fit(data, given={"n_components": 6}), "n_components=6", "only 5 dimensions")
    refused(lambda: fit(wide, given={"n_components": 12}), "n_components=12", "only 11 dimensions", "40", "12")
    refused(lambda: DPCA(3).fit(data.target[:3]), "n_components=3", "only 2 dimensions")
    twice = [np.hstack([rows, rows]) for rows in data]
    refused(lambda: DPCA(6).fit(twice[0], background=twice[1]), "n_components=6", "only 5 dimensions")


TEXT = {
    "text": ["x", "y"] * 100,
    "categories": pd.Categorical(["x", "y"] * 100),
    "dates": pd.date_range("2020-01-01", periods=200),
    "durations": pd.to_timedelta(range(200), unit="D"),
    "complex": np.arange(200) * 1j,
    "lists": [[1, 2]] * 200,
}


@pytest.mark.parametrize("kind", TEXT)
def test_columns_that_are_not_numbers_are_named(data, kind, refused):
    bad = frame(data.target).assign(d=pd.Series(TEXT[kind]))
    refused(lambda: fit(data, bad), "target: 1 of 5 columns do not hold numbers: 'd'", "frame.drop(columns=['d'])")


def test_polars_text_is_named_and_the_advice_is_polars_too(data, refused):
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
        np.ones((2, 3, 5)),
        3.0,
        {"a": [1, 2]},
        (row for row in [[1.0, 2.0]]),
        pd.Series([1.0, 2.0]),
    ],
    ids=lambda rows: f"{type(rows).__name__} {getattr(rows, 'dtype', '')} {getattr(rows, 'ndim', '')}",
)
def test_what_is_not_a_table_of_numbers_is_refused_in_few_words(data, rows, refused):
    refused(lambda: fit(data, rows), "target: ")
    refused(lambda: fit(data, background=rows), "background")
    with pytest.raises(InputError) as error:
        fit(data, rows)
    assert len(str(error.value)) < 500  # not the rows themselves


def test_a_lazy_frame_is_told_apart(data, refused):
    refused(lambda: fit(data, pl.LazyFrame({"a": [1.0, 2.0]})), "target: ", "collect()")


def test_repeated_and_mixed_column_names_are_refused(data, refused):
    refused(lambda: fit(data, frame(data.target, "abcda")), "target: ", "'a'")
    mixed = frame(data.background, [*"abcd", 5])
    refused(lambda: fit(data, frame(data.target), mixed), "background: ", "5")


@pytest.mark.parametrize("path", ["rows.csv", Path("rows.npy"), b"rows.csv"])
def test_a_path_that_is_not_there_is_told(data, path, refused):
    refused(lambda: fit(data, path), "target: ", "rows.", "no such file")
    refused(lambda: fit(data, background=path), "background: ", "rows.", "no such file")
    refused(lambda: fit(data).transform(path), "X: ", "rows.", "no such file")
