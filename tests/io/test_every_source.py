"""One suite for every kind of source: the same components, the same scores, the same errors on the same bad input.

A new kind is one more entry of ``SOURCES``: a function of the rows, a separate directory and the names of the
features, which gives something that ``fit`` takes.
"""

from uuid import uuid4

import anndata
import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import zarr
from scipy import linalg, sparse

import standout
from conftest import NAMES, memory_map, whole_numbers
from spark_session import spark_session
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import FeatureError, InputError, NonFiniteError


def on_disk(write, suffix):
    """Return a source that never holds the file in memory."""

    def make(rows, folder, names):
        path = folder / f"{uuid4()}{suffix}"
        write(rows, path, names)
        return standout.read(path, memory=0)

    return make


def frame(rows, names):
    return pd.DataFrame(rows, columns=list(names))


def write_hdf5(rows, path, names):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=rows, chunks=(500, rows.shape[1])).attrs["names"] = list(names)


def write_zarr(rows, path, names):
    array = zarr.create_array(path, shape=rows.shape, chunks=(700, rows.shape[1]), dtype=rows.dtype)
    array[...] = rows
    array.attrs["names"] = list(names)


def write_h5ad(rows, path, names):
    obs = pd.DataFrame(index=[f"c{i}" for i in range(len(rows))])
    anndata.AnnData(sparse.csr_matrix(rows), obs=obs, var=pd.DataFrame(index=list(names))).write_h5ad(path)


def write_folder(rows, path, names):
    path.mkdir()
    for number, part in enumerate(np.array_split(rows, 3)):
        frame(part, names).to_parquet(path / f"{number}.parquet", index=False)


def dask_array(rows, _folder, _names):
    da = pytest.importorskip("dask.array", reason="dask is not installed: everything about Dask is left out")
    return da.from_array(rows, chunks=(2_000, 3))


def dask_frame(rows, _folder, names):
    dd = pytest.importorskip("dask.dataframe", reason="dask is not installed: everything about Dask is left out")
    return dd.from_pandas(frame(rows, names), npartitions=3)


def spark_frame(rows, _folder, names):
    # From an arrow table: from pandas NaN would arrive as null.
    return spark_session().createDataFrame(pa.table(dict(zip(names, rows.T, strict=True))))


SOURCES = {
    "array": lambda rows, _folder, _names: rows,
    "memory map": lambda rows, folder, _names: memory_map(rows, folder),
    "CSR": lambda rows, _folder, _names: sparse.csr_array(rows),
    "pandas": lambda rows, _folder, names: frame(rows, names),
    "polars": lambda rows, _folder, names: pl.DataFrame(rows, schema=list(names)),
    "npy": on_disk(lambda rows, path, _names: np.save(path, rows), ".npy"),
    "npy, columns first": on_disk(lambda rows, path, _names: np.save(path, np.asfortranarray(rows)), ".npy"),
    "npz, packed": on_disk(lambda rows, path, names: np.savez_compressed(path, x=rows, names=list(names)), ".npz"),
    "hdf5": on_disk(write_hdf5, ".h5"),
    "zarr": on_disk(write_zarr, ".zarr"),
    "h5ad, sparse": on_disk(write_h5ad, ".h5ad"),
    "csv": on_disk(lambda rows, path, names: frame(rows, names).to_csv(path, index=False), ".csv"),
    "csv, packed": on_disk(lambda rows, path, names: frame(rows, names).to_csv(path, index=False), ".csv.gz"),
    "parquet": on_disk(lambda rows, path, names: frame(rows, names).to_parquet(path, row_group_size=999), ".parquet"),
    "parquet, several": on_disk(write_folder, ""),
    "feather": on_disk(lambda rows, path, names: frame(rows, names).to_feather(path, chunksize=999), ".feather"),
    "dask array": dask_array,
    "dask frame": dask_frame,
    "Spark": spark_frame,
}
# One process holds the cluster that several tests share.
PARAMETERS = [
    pytest.param(name, marks=pytest.mark.xdist_group("spark")) if name == "Spark" else name for name in SOURCES
]


def computed(scores):
    """Return scores as an array, wherever they are."""
    return scores.toPandas().to_numpy() if hasattr(scores, "toPandas") else np.asarray(scores)


def is_lazy(data):
    return is_spark(data) or type(data).__module__.startswith("dask")


def needs_arrays(data):
    """Skip a kind whose rows an array of weights cannot be cut to."""
    if is_spark(data):
        pytest.skip("rows of a Spark frame have no order: weights and groups are columns there, see test_spark.py")
    if is_lazy(data) and not hasattr(data, "chunks"):
        pytest.skip("nobody knows how many rows a part of a dask frame has: see test_dask.py for weights")


def is_spark(data):
    return type(data).__module__.startswith("pyspark")


@pytest.fixture(params=PARAMETERS)
def make(request, tmp_path):
    """Return a function that makes a source of rows."""
    return lambda rows, names=NAMES: SOURCES[request.param](rows, tmp_path, names)


@pytest.fixture(scope="module")
def data():
    """More rows than one block of any source holds."""
    target, background = whole_numbers(9_000, 9_500)
    return target + 0.25, background


def test_the_components_are_those_of_the_arrays(data, make):
    model = DPCA(3).fit(make(data[0]), background=make(data[1]))
    plain = DPCA(3).fit(data[0], background=data[1])
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(model.mean_, plain.mean_, rtol=1e-12)
    covariance = [np.cov(rows.T, ddof=0) for rows in data]
    np.testing.assert_allclose(model.ratios_, linalg.eigh(*covariance, eigvals_only=True)[::-1][:3], rtol=1e-10)


def test_a_mean_a_hundred_million_times_the_sd_costs_no_source_a_digit_more_than_the_arrays(data, make):
    target, background = ((rows - rows.mean(axis=0)) / rows.std(axis=0) + 1e8 for rows in data)
    model = DPCA(3).fit(make(target), background=make(background))
    plain = DPCA(3).fit(target, background=background)
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(model.ratios_, plain.ratios_, rtol=1e-12)


def test_the_components_are_those_of_the_arrays_with_weights_and_groups(data, make):
    rng = np.random.default_rng(0)
    weights, groups = rng.integers(0, 3, size=9_000), rng.integers(0, 40, size=9_000)
    given = {"sample_weight": weights, "groups": groups, "background_groups": np.arange(len(data[1])) // 9}
    needs_arrays(make(data[0][:999]))
    model = DPCA(3).fit(make(data[0]), background=make(data[1]), **given)
    plain = DPCA(3).fit(data[0], background=data[1], **given)
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-10, atol=1e-10)
    if model._sums is not None and not standout.read(make(data[0][:999])).rereadable:
        target = Moments.of(data[0], weights=weights, groups=groups)
        plain = DPCA(3).fit(target, background=Moments.of(data[1], groups=given["background_groups"]))  # counts groups
    np.testing.assert_allclose([model.noise_edge_, model.p_value_], [plain.noise_edge_, plain.p_value_], rtol=1e-9)


def test_the_scores_are_those_of_the_arrays(data, make):
    model, plain = (DPCA(2).fit(kind(data[0]), background=kind(data[1])) for kind in (make, np.asarray))
    scores = computed(model.transform(make(data[0])))
    np.testing.assert_allclose(scores, plain.transform(data[0]), rtol=1e-10, atol=1e-9)
    found = model.score(make(data[0]), background=make(data[1]))
    assert found == pytest.approx(plain.score(data[0], background=data[1]), rel=1e-10)


def spoilt(rows, value, column=2):
    bad = rows.copy()
    bad[[10, 8_000], column] = value
    return bad


BAD = {
    "NaN": (np.nan, NonFiniteError, "2 NaN and 0 inf values in 1 of 5 features: {} (2)"),
    "inf": (np.inf, NonFiniteError, "0 NaN and 2 inf values in 1 of 5 features: {} (2)"),
    "overflow": (1e200, InputError, "their squares overflow (largest 1e+200, in 1 features: {})"),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_values_are_reported_by_feature_and_count(data, make, bad, refused):
    value, kind, message = BAD[bad]
    target = make(spoilt(data[0], value))
    # A source without names calls a feature by its place.
    name = "c" if standout.read(target).names is not None else "2"
    expected = message.format(repr(name) if bad == "overflow" and name == "c" else name)
    refused(lambda: DPCA().fit(target, background=make(data[1])), "target", expected, kind=kind)
    refused(lambda: DPCA().fit(make(data[1]), background=target), "background", expected, kind=kind)


def test_values_whose_squares_underflow_are_an_error(data, make, refused):
    scale = np.array([1, 1, 1e-200, 1, 1])
    refused(lambda: DPCA().fit(make(data[0] * scale), background=make(data[1])), "target", "squares underflow")


def test_bad_values_are_an_error_when_scores_are_computed(data, make, refused):
    model = DPCA(2).fit(make(data[0]), background=make(data[1]))
    scores = model.transform(make(spoilt(data[0], np.nan))) if is_lazy(make(data[0][:999])) else None
    if scores is not None:  # raised when the rows are read, for the rows that are present
        with pytest.raises(Exception, match=r"[12] NaN and 0 inf"):
            computed(scores)
        return
    refused(lambda: model.transform(make(spoilt(data[0], np.nan))), "2 NaN and 0 inf", kind=NonFiniteError)


def test_other_features_in_the_background_are_refused(data, make, refused):
    few = make(np.ascontiguousarray(data[1][:, :4]), NAMES[:4])
    refused(lambda: DPCA().fit(make(data[0]), background=few), "background", kind=FeatureError)
    model = DPCA(2).fit(make(data[0]), background=make(data[1]))
    with pytest.raises(ValueError, match=r"X: |X has 4 features|feature names should match"):
        computed(model.transform(few))


def test_features_are_matched_by_name_where_there_are_names(data, make):
    other = make(np.ascontiguousarray(data[1][:, ::-1]), NAMES[::-1])
    target = make(data[0])
    if standout.read(target).names is None:
        pytest.skip("this kind of source has no names")
    model = DPCA(2).fit(target, background=other)
    plain = DPCA(2).fit(data[0], background=data[1])
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-10, atol=1e-10)


def test_weights_that_do_not_fit_are_refused(data, make, refused):
    weights = np.ones(8_999)
    needs_arrays(make(data[0][:999]))
    refused(lambda: DPCA().fit(make(data[0]), background=make(data[1]), sample_weight=weights), "weights", "8999")
