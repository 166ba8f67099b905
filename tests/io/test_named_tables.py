"""Tables with named columns of every library are matched by name: the order of columns does not matter."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr

import standout
from conftest import NAMES
from standout._dpca import DPCA
from standout.io.read import is_array_like


class ArrowStream:
    """A table that only exports the Arrow C stream, as those of ibis and DuckDB do."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


class Interchange:
    """A table that only exports the data frame interchange protocol, as that of vaex does."""

    def __init__(self, table):
        self._table = table

    def __dataframe__(self, nan_as_null=False, allow_copy=True):
        return self._table.__dataframe__(nan_as_null, allow_copy)


def arrow(frame):
    return pa.Table.from_pandas(frame, preserve_index=False)


def data_array(frame):
    return xr.DataArray(frame.to_numpy(), dims=("cell", "gene"), coords={"gene": list(frame.columns)})


def dataset(frame):
    # A coordinate that is not an index describes rows and is not a feature.
    columns = {name: ("cell", frame[name].to_numpy()) for name in frame.columns}
    return xr.Dataset(columns, coords={"donor": ("cell", np.arange(len(frame)))})


KINDS = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "Table": arrow,
    "RecordBatch": lambda frame: pa.RecordBatch.from_pandas(frame, preserve_index=False),
    "RecordBatchReader": lambda frame: arrow(frame).to_reader(max_chunksize=7),
    "Arrow stream": lambda frame: ArrowStream(arrow(frame)),
    "interchange": lambda frame: Interchange(arrow(frame)),
    "DataArray": data_array,
    "Dataset": dataset,
}
ORDER = [3, 0, 4, 2, 1]


@pytest.fixture
def frames(data):
    return [pd.DataFrame(rows, columns=NAMES) for rows in data]


def permuted(frame):
    return frame.iloc[:, ORDER]


@pytest.mark.parametrize("kind", KINDS)
def test_columns_in_another_order_give_the_same_model(data, frames, kind):
    target, background = frames
    make = KINDS[kind]
    plain = DPCA().fit(data.target, background=data.background)
    for model in (
        DPCA().fit(make(target), background=make(permuted(background))),
        DPCA().fit(make(target), background=permuted(background)),
        DPCA().fit(target, background=make(permuted(background))),
        DPCA().fit(make(target), background={"one": make(permuted(background)), "two": background}),
        DPCA().partial_fit(make(target)).partial_fit(background=make(permuted(background))),
    ):
        assert model.feature_names_in_.tolist() == list(NAMES)
        np.testing.assert_allclose(model.ratios_, plain.ratios_, rtol=1e-9)
        np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-8, atol=1e-10)
    turned = DPCA().fit(make(permuted(target)), background=make(background))
    np.testing.assert_allclose(turned.components_, plain.components_[:, ORDER], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not is_array_like(KINDS[kind](pd.DataFrame({"a": [1.0]})))])
def test_new_rows_are_matched_by_name_without_a_warning(frames, kind):
    target, background = frames
    make, model = KINDS[kind], DPCA().fit(target, background=background)
    np.testing.assert_allclose(model.transform(make(permuted(target))), model.transform(target), rtol=1e-10)
    expected = model.score(target, background=background)
    assert model.score(make(permuted(target)), background=make(permuted(background))) == pytest.approx(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_every_function_matches_columns_by_name(frames, kind):
    target, background = frames
    make = KINDS[kind]

    def results(target, background):
        yield standout.held_out_ratio(target(), background(), random_state=0).ratios
        found = standout.assess(target(), background(), n_permutations=9, n_bootstrap=3, random_state=0)
        yield found.held_out.ratios
        yield found.test.p_values
        yield [one.share for one in standout.compare(target(), background())]
        yield standout.read(target(), columns=["a", "c"]).rows(0, 3)

    plain = results(lambda: target, lambda: background)
    matched = results(lambda: make(target), lambda: make(permuted(background)))
    for one, other in zip(matched, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_other_features_are_an_error(frames, refused, kind):
    target, background = frames
    given = KINDS[kind](background.rename(columns={"b": "z"}))
    refused(
        lambda: DPCA().fit(target, background=given),
        "missing features of the target (1): 'b'",
        "not in the target (1): 'z'",
    )


def test_arrays_without_coordinates_are_matched_by_position(data):
    target, background = (xr.DataArray(rows, dims=("cell", "gene")) for rows in data)
    np.testing.assert_array_equal(
        DPCA().fit(target, background=background).ratios_, DPCA().fit(data.target, background=data.background).ratios_
    )


def test_numbers_as_coordinates_must_agree(data, refused):
    target, background = (xr.DataArray(rows, dims=("cell", "time"), coords={"time": range(5)}) for rows in data)
    DPCA().fit(target, background=background)
    refused(lambda: DPCA().fit(target, background=background[:, ORDER]), "column")


def test_datasets_without_one_row_dimension_and_columns_without_a_table_are_errors(data, refused):
    image = xr.Dataset({"a": (("x", "y"), data.target)})
    refused(lambda: DPCA().fit(image), "xarray Dataset", "one dimension")
    refused(lambda: DPCA().fit(xr.Dataset({"a": ("x", [1.0]), "b": ("y", [2.0])})), "xarray Dataset", "one dimension")
    refused(lambda: DPCA().fit(ArrowStream(pa.chunked_array([[1.0, 2.0]]))), "ArrowStream cannot be read", "non-struct")
