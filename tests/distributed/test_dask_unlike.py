"""Dask collections that contradict their metadata, and operations that a cluster does not support."""

import numpy as np
import pandas as pd
import pytest
import sklearn

from conftest import NAMES
from standout._dpca import DPCA
from standout._kernel_dpca import KernelDPCA
from standout._moments import Moments
from standout.errors import FeatureError, RowsNeededError
from standout.io.read import read

dask = pytest.importorskip("dask", reason="dask is not installed: everything about Dask is left out")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

TIGHT = {"rtol": 1e-10, "atol": 1e-10}


@pytest.fixture(autouse=True)
def _here():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture
def model(data):
    return DPCA(2).fit(data.target, background=data.background)


@pytest.fixture
def files(data, tmp_path):
    """Return a maker of a frame of two files, the second with these columns."""

    def make(columns):
        whole = pd.DataFrame(data.target, columns=NAMES)
        whole[:90].to_csv(tmp_path / "1.csv", index=False)
        whole[90:].reindex(columns=columns, fill_value=7.0).to_csv(tmp_path / "2.csv", index=False)
        return dd.read_csv([tmp_path / "1.csv", tmp_path / "2.csv"])

    return make


def test_partitions_with_columns_in_another_order_are_matched_by_name(data, files):
    frame = files(["e", "d", "c", "b", "a"])
    whole = pd.DataFrame(data.target, columns=NAMES)
    inside = DPCA(2).fit(whole, background=pd.DataFrame(data.background, columns=NAMES))
    outside = DPCA(2).fit(frame, background=pd.DataFrame(data.background, columns=NAMES))
    np.testing.assert_allclose(outside.ratios_, inside.ratios_, **TIGHT)
    np.testing.assert_allclose(outside.components_, inside.components_, **TIGHT)
    np.testing.assert_allclose(outside.transform(frame).compute(), inside.transform(whole), **TIGHT)
    chosen = Moments.of(read(frame, columns=["d", "a"]))
    np.testing.assert_allclose(chosen.mean, whole[list(chosen.names)].mean(), rtol=1e-12)


@pytest.mark.parametrize(
    ("columns", "differing"),
    [(["a", "b", "c", "d", "x"], "columns 'e', 'x'"), (NAMES[:4], "columns 'e'"), ((*NAMES, "x"), "columns 'x'")],
)
def test_partitions_of_other_columns_are_refused_by_name(columns, differing, model, files, refused):
    frame = files(list(columns))
    refused(
        lambda: Moments.of(frame, role="target"),
        "target: only some partitions",
        differing,
        "Give all",
        kind=FeatureError,
    )
    refused(lambda: model.transform(frame).compute(), differing, kind=FeatureError)


@pytest.mark.parametrize("width", [4, 6])
def test_chunks_of_another_width_than_the_array_are_refused(width, model, data, refused):
    narrow = da.from_delayed(dask.delayed(data.target[:, : width - 1]), (200, width), float)
    refused(lambda: Moments.of(narrow, role="target"), "target", f"has {width - 1} columns", f"array has {width}")
    lying = da.from_delayed(dask.delayed(data.target[:, :3]), (200, 5), float)
    refused(lambda: model.transform(lying).compute(), "has 3 columns", "array has 5", "Give the shape")


@pytest.mark.parametrize(
    "groups",
    [["a", np.nan] * 100, ["a", None] * 100, np.ma.array(np.arange(200), mask=np.arange(200) == 3)],
    ids=["NaN", "None", "masked"],
)
def test_missing_group_ids_are_refused_whatever_the_weights_are(groups, data, refused):
    rows = da.from_array(data.target, chunks=(61, 3))
    for weights in (None, np.ones(200), da.ones(200, chunks=50)):
        refused(lambda w=weights: Moments.of(rows, weights=w, groups=groups), "groups", "no group id")


def test_missing_group_ids_on_the_cluster_are_refused_too(data, refused):
    rows = da.from_array(data.target, chunks=(61, 3))
    masked = da.ma.masked_equal(da.arange(200, chunks=50), 3)
    refused(lambda: Moments.of(rows, groups=masked), "groups", "1 of 61 rows have no group id")


def test_the_error_for_weights_of_a_frame_of_unknown_rows_has_a_remedy(data, refused):
    frame = dd.from_pandas(pd.DataFrame(data.target, columns=NAMES), npartitions=3)
    how = "to_dask_array(lengths=True)"
    refused(lambda: Moments.of(frame, weights=np.ones(200)), "weights", how, "series of the same data frame")
    weights = np.arange(200) % 3.0
    counted = Moments.of(frame.to_dask_array(lengths=True), weights=weights)
    np.testing.assert_allclose(counted.scatter, Moments.of(data.target, weights=weights).scatter, **TIGHT)


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_scores_on_a_cluster_are_not_converted_to_a_data_frame(container, model, data, refused):
    rows = da.from_array(data.target, chunks=(61, 3))
    expected = model.transform(data.target)
    with sklearn.config_context(transform_output=container):
        refused(lambda: model.transform(rows), f"{container} data frame", "transform='default'", "compute()")
    model.set_output(transform=container)
    refused(lambda: model.transform(rows), f"{container} data frame")
    assert type(model.transform(data.target)).__module__.startswith(container)
    model.set_output(transform="default")
    np.testing.assert_allclose(model.transform(rows).compute(), expected, **TIGHT)


def test_scores_in_a_dask_data_frame_become_rows_lazily(model, data, refused):
    scores = model.transform(data.target)
    frame = dd.from_pandas(pd.DataFrame(scores, columns=["one", "two"]), npartitions=3)
    seen = []
    with dask.callbacks.Callback(pretask=lambda key, *_: seen.append(key)):
        rows = model.inverse_transform(frame)
    assert not seen and isinstance(rows, da.Array)
    np.testing.assert_allclose(rows.compute(), model.inverse_transform(scores), **TIGHT)
    refused(lambda: model.inverse_transform(frame[["one"]]), "do not fit 2 components")
    refused(lambda: model.inverse_transform(frame["one"]), "do not fit 2 components")
    refused(lambda: model.inverse_transform(dask.delayed(scores)), "on a cluster is not supported", "Give a dask array")


def test_a_kernel_needs_the_rows_in_memory(data, refused):
    rows = da.from_array(data.target, chunks=(61, 3))
    kernel = KernelDPCA(1, n_landmarks=20, random_state=0)
    refused(lambda: kernel.fit(rows, background=data.background), "target", "compute()", kind=RowsNeededError)
    kernel.fit(data.target, background=data.background)
    refused(lambda: kernel.score(rows, background=data.background), "on a cluster", "compute()", kind=RowsNeededError)
