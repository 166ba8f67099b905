"""Dask: inconsistent input is an error with a remedy, and subjects are the same ones wherever their rows are."""

import asyncio

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from conftest import NAMES
from standout import _blas
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import InputError
from standout.io.read import read

dask = pytest.importorskip("dask", reason="dask is not installed: everything about Dask is left out")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
bags = pytest.importorskip("dask.bag")
distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.xdist_group("dask")

TIGHT = {"rtol": 1e-10, "atol": 1e-10}
IDS = {
    "whole numbers": np.arange(200) // 20,
    "floats": np.arange(200) // 20 / 4,
    "text": np.array([f"mouse {i // 20}" for i in range(200)], dtype=object),
    "truth values": np.arange(200) >= 110,
    "days": pd.to_datetime("2020-01-01") + pd.to_timedelta(np.arange(200) // 20, unit="D"),
    "categories": pd.Categorical([f"c{i // 20}" for i in range(200)]),
}


@pytest.fixture(autouse=True)
def _here():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture
def rows(data):
    return da.from_array(data.target, chunks=(50, -1))


@pytest.fixture
def described(data):
    """Rows with their subject, weight and kind."""
    return pd.DataFrame(data.target, columns=NAMES).assign(
        g=np.arange(200) // 20, w=np.arange(200) % 4.0, kind=np.where(np.arange(200) % 2, "x", "y")
    )


def test_chunks_of_columns_with_different_rows_are_refused(rows, refused):
    few, every = rows[rows[:, 0] > 30][:, :3], rows[rows[:, 0] > -99][:, 3:]
    mixed = da.concatenate([few, every], axis=1, allow_unknown_chunksizes=True)
    refused(
        lambda: Moments.of(mixed, role="target"),
        "target",
        "adjacent chunks of columns",
        "and 50 rows",
        "Choose the same rows",
    )
    none = rows[rows[:, 0] > 99][:, :3]
    for pieces in ([none, every], [every, none]):
        mixed = da.concatenate(pieces, axis=1, allow_unknown_chunksizes=True)
        refused(lambda mixed=mixed: Moments.of(mixed), "0 and 50 rows")


def test_a_chunk_without_columns_is_ignored(data, rows):
    model = DPCA(2).fit(rows.rechunk(((200,), (2, 0, 3))), background=data.background)
    plain = DPCA(2).fit(data.target, background=data.background)
    np.testing.assert_allclose(model.components_, plain.components_, **TIGHT)
    scores = model.transform(rows.rechunk(((80, 120), (0, 5))))
    np.testing.assert_allclose(scores.compute(), plain.transform(data.target), **TIGHT)


@pytest.mark.parametrize("chunks", [(50, -1), (50, 2), (2, -1)], ids=["rows", "rows and columns", "shared tasks"])
def test_masked_values_are_refused_whatever_the_chunks(data, refused, chunks):
    masked = da.from_array(np.ma.array(data.target, mask=np.arange(1000).reshape(200, 5) == 7), chunks=chunks)
    refused(lambda: Moments.of(masked, role="target"), "target: 1 values are masked", "Drop those rows")


def test_masked_weights_are_missing_wherever_they_are(data, rows, refused):
    weights = np.ma.array(np.ones(200), mask=np.arange(200) < 7)
    message = ("are masked, that is, missing", "Give every row a weight")
    refused(lambda: Moments.of(data.target, weights=weights, role="target"), "target weights: 7 of 200", *message)
    refused(lambda: DPCA().fit(data.target, background=data.background, sample_weight=weights), *message)
    refused(lambda: Moments.of(rows, weights=weights, role="target"), "target weights: 7 of 200", *message)
    there = da.from_array(weights, chunks=50)
    refused(lambda: Moments.of(rows, weights=there, role="target"), "target weights: 7 of 50", *message)
    unmasked = np.ma.array(np.arange(200) % 3.0, mask=False)
    for given in (unmasked, da.from_array(unmasked, chunks=50)):
        assert Moments.of(rows, weights=given).weight == unmasked.sum()


@pytest.mark.parametrize("kind", IDS)
def test_a_subject_with_rows_in_memory_and_on_a_cluster_counts_once(described, kind):
    frame = described.assign(g=IDS[kind])
    here = Moments.of(read(frame[:110], groups="g", drop=["w", "kind"]))
    there = read(dd.from_pandas(frame[110:], npartitions=3), groups="g", drop=["w", "kind"])
    whole = here + Moments.of(there)
    assert whole.units == frame["g"].nunique()
    assert whole.groups == Moments.of(read(frame, groups="g", drop=["w", "kind"])).groups
    assert there.row_values("groups", "target groups").tolist() == [str(item) for item in frame["g"][110:]]


@pytest.mark.parametrize("kind", ["Int64", "Float64", "float64", "string", "object"])
def test_missing_ids_of_a_column_are_refused(described, refused, kind):
    frame = described.assign(g=described["g"].astype("Int64").mask(described.index == 3).astype(kind))
    source = read(dd.from_pandas(frame, npartitions=3), groups="g", drop=["w", "kind"], role="target")
    refused(lambda: Moments.of(source, role="target"), "target groups", "1 of 67 rows have no group id", "Give every")


def test_columns_that_describe_rows_are_fetched_on_access(described, data):
    frame = dd.from_pandas(described, npartitions=3)
    source = read(frame, label="kind", ids="w", groups="g")
    plain = read(described, label="kind", ids="w", groups="g")
    seen = []
    with dask.callbacks.Callback(pretask=lambda key, *_: seen.append(str(key))):
        ungrouped = read(frame, label="kind", ids="w", drop="g")
        DPCA(2).fit(ungrouped, background=data.background).transform(ungrouped)
        assert seen and not [key for key in seen if "texts" in key]
        assert len(ungrouped.labels) == 200 and [key for key in seen if "texts" in key]
    for chosen in (source, source.select(np.array([3, 1]))):
        assert chosen.labels.tolist() == plain.labels.tolist()
        assert chosen.row_ids.tolist() == plain.row_ids.tolist()
        assert chosen.groups.tolist() == plain.groups.tolist() == chosen.row_values("groups", "target groups").tolist()
    bare = read(frame[list(NAMES)])
    assert bare.labels is bare.row_ids is bare.groups is bare.row_values("groups", "target groups") is None
    assert plain.row_values("groups", "target groups") is plain.groups
    assert read(data.target).row_values("groups", "target groups") is None


def test_chunks_with_fewer_rows_than_the_array_are_an_error(data, refused):
    few = da.from_delayed(dask.delayed(data.target[:50]), (200, 5), float)
    for groups in (None, np.arange(200)):
        refused(lambda groups=groups: Moments.of(few, groups=groups), "have 50 rows", "array has 200", "Give the shape")
    with pytest.raises(InputError):
        Moments.of(few, weights=np.ones(200))


def test_weights_of_zero_are_counted(rows, refused):
    short = da.concatenate([da.zeros(40, chunks=40), da.ones(150, chunks=50)])
    short = short[short >= 0]  # now dask does not know how many there are
    refused(lambda: Moments.of(rows, weights=short), "weights", "(40,) for 50 rows", "Give one weight")
    unknown = rows[rows[:, 0] > -99]
    refused(lambda: Moments.of(unknown, weights=short), "weights", "40", "50 rows", "Give one weight")


def test_features_whose_scatter_a_worker_cannot_hold_are_refused(data, refused, monkeypatch):
    made = da.from_delayed(dask.delayed(sparse.csr_array)((10, 60_000)), (10, 60_000), float)
    refused(lambda: Moments.of(made, role="target"), "target", "60,000 features", "28.8 GB", "Choose fewer features")
    monkeypatch.setattr(_blas, "_LEAST", 8 * 5**2 - 1)
    monkeypatch.setattr(_blas, "_MOST", 8 * 5**2 - 1)
    rows = da.from_array(data.target, chunks=(61, -1))
    refused(lambda: DPCA().fit(rows, background=data.background), "5 features", "bring the rows into memory")
    assert Moments.of(rows[:, :4]).n_features == 4


def test_a_string_names_a_column_of_a_frame_and_is_an_error_for_an_array(described, rows, refused):
    frame = dd.from_pandas(described, npartitions=3)
    source, plain = read(frame, drop=["w", "g", "kind"]), described[list(NAMES)]
    found = Moments.of(source, weights="w", groups="g")
    expected = Moments.of(plain, weights=described["w"], groups=described["g"])
    np.testing.assert_allclose(found.scatter, expected.scatter, **TIGHT)
    assert found.groups == {str(i) for i in range(10)} and found.weight == expected.weight
    for what in ("weights", "groups"):
        refused(lambda w=what: Moments.of(rows, **{w: "w"}), what, "no column names", "Give the values", "df['w']")
        refused(lambda w=what: Moments.of(source, **{w: "v"}), what, "no column 'v'", "Use one of its columns")
        refused(lambda w=what: Moments.of(source, **{w: "a"}), what, "'a' is a feature too", "drop='a'")


def test_values_that_are_not_one_for_each_row_are_refused(described, rows, refused):
    frame = dd.from_pandas(described, npartitions=3)
    bag = bags.from_sequence(range(200))
    for given in (dask.delayed(np.ones)(200), bag, frame[["w"]], frame["w"].sum()):
        for data in (rows, frame[list(NAMES)]):
            for what in ("weights", "groups"):
                message = (what, "not one value for each row", "Give a dask array")
                refused(lambda d=data, w=what, g=given: Moments.of(d, **{w: g}), *message)


def test_an_unknown_number_of_columns_is_an_error(rows, refused):
    message = ("target: the number of columns is unknown", "Call compute_chunk_sizes()")
    refused(lambda: Moments.of(rows[:, rows[0] > -99], role="target"), *message)
    assert Moments.of(rows[:, rows[0] > -99].compute_chunk_sizes()).n_features == 5


@pytest.mark.parametrize(
    "chunk", [[[1.0, 2.0], [2.0, 1.0]], None, np.float64(3), np.ones(2)], ids=["list", "None", "number", "1-D"]
)
def test_a_chunk_that_is_not_an_array_is_refused(chunk, refused):
    made = da.from_delayed(dask.delayed(lambda: chunk)(), (2, 2), float)
    refused(lambda: Moments.of(made, role="target"), "target: a chunk", type(chunk).__name__, "Make every chunk")


def test_ids_that_cannot_be_compared_are_refused_everywhere(data, rows, refused):
    lists = [[i] for i in range(200)]
    for given in (data.target, rows):
        refused(lambda g=given: Moments.of(g, groups=lists), "groups", "unhashable", "Give ids that are text")
    there = da.from_array(np.fromiter(lists, dtype=object), chunks=50)
    refused(lambda: Moments.of(rows, groups=there), "groups", "unhashable", "Give ids that are text")
    pairs = [("left", i // 20) for i in range(200)]
    assert Moments.of(data.target, groups=pairs).units == Moments.of(rows, groups=pairs).units == 10


def test_a_client_that_cannot_compute_is_an_error(rows, refused):
    async def ask():
        async with distributed.Client(asynchronous=True, processes=False, dashboard_address=":0", n_workers=1):
            with dask.config.set(scheduler=None):
                refused(lambda: Moments.of(rows, role="target"), "target: dask cannot", "asynchronous", "Start a")
                refused(lambda: next(read(rows).blocks(9)), "asynchronous", "Start a")

    asyncio.run(ask())
    client = distributed.Client(processes=False, dashboard_address=":0", n_workers=1)
    client.close()
    with dask.config.set(scheduler=client):
        refused(lambda: Moments.of(rows), "Client is closed", "Start a distributed.Client")
    with dask.config.set(scheduler="distributed"):
        refused(lambda: Moments.of(rows), "no Client", "Start a distributed.Client")
