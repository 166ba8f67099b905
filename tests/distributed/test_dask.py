"""Dask arrays and data frames give the numbers of the fit in memory, whatever their chunks."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from conftest import NAMES, whole_numbers
from standout._cpca import CPCA
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import FeatureError, FeatureWarning, InputError, NonFiniteError
from standout.io.read import read

dask = pytest.importorskip("dask", reason="dask is not installed: everything about Dask is left out")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.xdist_group("dask")  # one cluster for all of them

TIGHT = {"rtol": 1e-10, "atol": 1e-10}
CHUNKS = {
    "one chunk": -1,
    "rows": (37, -1),
    "columns": (-1, 2),
    "rows and columns": (61, 3),
    "few rows each": (7, -1),
    "one column each": (20, 1),
    "an empty chunk": ((50, 0, 150), (5,)),
    "uneven": ((1, 120, 79), (1, 4)),
}


def chunked(rows, chunks=(61, 3)):
    return da.from_array(rows, chunks=chunks)


def unknown(rows, chunks=(61, -1)):
    """Return the same rows in chunks of unknown length."""
    array = da.from_array(np.column_stack([rows, np.ones(len(rows))]), chunks=chunks)
    return array[array[:, -1] > 0][:, :-1]


def each_chunk(make):
    return lambda rows: da.from_array(rows, chunks=(61, -1)).map_blocks(make, dtype=rows.dtype)


class Foreign:
    """A sparse array of another package, which can be converted to one of scipy."""

    def __init__(self, rows):
        self.rows, self.shape, self.dtype, self.ndim = rows, rows.shape, rows.dtype, rows.ndim

    def to_scipy_sparse(self):
        return sparse.coo_array(self.rows)


KINDS = {
    **{name: (lambda rows, chunks=chunks: da.from_array(rows, chunks=chunks)) for name, chunks in CHUNKS.items()},
    "float32": lambda rows: chunked(rows.astype("f4")),
    "bytes": lambda rows: chunked(rows.astype("u1")),
    "big-endian": lambda rows: chunked(rows.astype(">i4")),
    "objects": lambda rows: chunked(rows.astype(object)),
    "F order": each_chunk(np.asfortranarray),
    "a lazy expression": lambda rows: (chunked(rows) * 2 + 6) / 2 - 3,
    "csr_matrix": each_chunk(sparse.csr_matrix),
    "csc_array": each_chunk(sparse.csc_array),
    "coo_array": each_chunk(sparse.coo_array),
    "foreign sparse": each_chunk(Foreign),
    "sparse, rows and columns": lambda rows: chunked(rows).map_blocks(sparse.csr_array),
    "unknown rows": unknown,
    "unknown rows, columns": lambda rows: unknown(rows, (61, 2)),
    "data frame": lambda rows: dd.from_pandas(pd.DataFrame(rows), npartitions=3),
    "data frame, named": lambda rows: dd.from_pandas(pd.DataFrame(rows, columns=NAMES), npartitions=3),
    "values of a data frame": lambda rows: dd.from_pandas(pd.DataFrame(rows), npartitions=3).values,
    "nullable columns": lambda rows: dd.from_pandas(
        pd.DataFrame({n: pd.array(rows[:, i], dtype="Int64") for i, n in enumerate(NAMES)}), npartitions=2
    ),
    "columns of unlike types": lambda rows: dd.from_pandas(
        pd.DataFrame(rows, columns=NAMES).astype({"a": "u1", "d": "f4"}), npartitions=2
    ),
}


@pytest.fixture(autouse=True)
def _here():
    """Run in this process unless a test requests a scheduler: faster, with short tracebacks."""
    with dask.config.set(scheduler="synchronous"):
        yield


def started(**how):
    return distributed.LocalCluster(dashboard_address=":0", threads_per_worker=1, **how)


@pytest.fixture(scope="module")
def cluster():
    """A real cluster: two worker processes of one thread each."""
    with started(n_workers=2) as made:
        yield made


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster) as client, dask.config.set(scheduler=client):
        yield client


def assert_same(one, other):
    np.testing.assert_allclose(one.ratios_, other.ratios_, **TIGHT)
    np.testing.assert_allclose(one.components_, other.components_, **TIGHT)
    np.testing.assert_allclose(one.mean_, other.mean_, **TIGHT)
    assert one.p_value_ == pytest.approx(other.p_value_, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_every_chunking_and_kind_gives_the_components_of_the_fit_in_memory(kind, data):
    make = KINDS[kind]
    inside = DPCA(2).fit(data.target, background=data.background)
    outside = DPCA(2).fit(make(data.target), background=da.from_array(data.background, chunks=(99, 4)))
    assert_same(outside, inside)
    scores = outside.transform(make(data.target)).compute()
    assert scores.dtype == (np.float32 if kind == "float32" else np.float64)
    # Scores of float32 rows are the float64 scores, rounded once.
    np.testing.assert_allclose(scores, inside.transform(data.target).astype(scores.dtype), **TIGHT)


def test_a_large_mean_and_a_drift_cost_no_digits(data):
    rows = data.target + 1e7 * np.arange(1, 6) + np.linspace(0, 1e4, len(data.target))[:, None]
    inside, outside = Moments.of(rows), Moments.of(chunked(rows))
    np.testing.assert_allclose(outside.mean, inside.mean, rtol=1e-14)
    np.testing.assert_allclose(outside.scatter, np.cov(rows.T, ddof=0) * len(rows), rtol=1e-9)


def test_many_small_chunks_share_a_task(data):
    rows = np.random.default_rng(0).normal(size=(400, 100))
    seen = []
    with dask.callbacks.Callback(pretask=lambda key, *_: seen.append(str(key))):
        moments = Moments.of(da.from_array(rows, chunks=(10, -1)))
    np.testing.assert_allclose(moments.covariance(), np.cov(rows.T, ddof=0), **TIGHT)
    assert sum("standout-part" in key for key in seen) == 4


def test_data_frames_are_matched_by_name(data):
    target, background = (pd.DataFrame(rows, columns=NAMES) for rows in data)
    inside = DPCA(2).fit(target, background=background)
    mixed = dd.from_pandas(background[["c", "a", "e", "b", "d"]], npartitions=3)
    outside = DPCA(2).fit(dd.from_pandas(target, npartitions=2), background=mixed)
    assert_same(outside, inside)
    assert list(outside.feature_names_in_) == list(NAMES)
    np.testing.assert_allclose(outside.transform(mixed).compute(), inside.transform(background), **TIGHT)
    assert outside.score(dd.from_pandas(target, npartitions=3), background=mixed) == pytest.approx(
        inside.score(target, background=background), rel=1e-12
    )


def test_parquet_partitions_and_common_features(data, tmp_path):
    target, background = (pd.DataFrame(rows, columns=NAMES) for rows in data)
    dd.from_pandas(target.assign(more=1.0), npartitions=3).to_parquet(tmp_path)
    with pytest.warns(FeatureWarning, match="more"):
        outside = DPCA(2, features="common").fit(dd.read_parquet(tmp_path), background=background)
    inside = DPCA(2).fit(target, background=background)
    np.testing.assert_allclose(outside.ratios_, inside.ratios_, **TIGHT)
    np.testing.assert_allclose(
        outside.transform(dd.read_parquet(tmp_path)).compute(), inside.transform(target), **TIGHT
    )


def test_a_target_on_a_cluster_with_several_backgrounds_in_memory_and_on_the_cluster(data):
    halves = {"one": data.background[:120], "other": data.background[120:]}
    inside = DPCA(2, mix="equal").fit(data.target, background=halves)
    outside = DPCA(2, mix="equal").fit(
        chunked(data.target), background={"one": chunked(halves["one"]), "other": halves["other"]}
    )
    assert_same(outside, inside)
    listed = DPCA(2, mix="equal").fit(chunked(data.target), background=[chunked(part) for part in halves.values()])
    np.testing.assert_allclose(listed.ratios_, inside.ratios_, **TIGHT)


def test_batches_of_partial_fit_add_up_to_the_fit(data):
    model = DPCA(2)
    model.partial_fit(chunked(data.target[:90]), background=unknown(data.background))
    model.partial_fit(data.target[90:])
    assert_same(model, DPCA(2).fit(data.target, background=data.background))


def test_contrastive_pca_gives_the_components_of_the_fit_in_memory(data):
    inside = CPCA(2, alpha=1.0).fit(data.target, background=data.background)
    outside = CPCA(2, alpha=1.0).fit(chunked(data.target), background=chunked(data.background))
    np.testing.assert_allclose(outside.components_, inside.components_, **TIGHT)


WEIGHTS = {
    "in memory": (chunked, lambda values: values),
    "as a list": (chunked, lambda values: values.tolist()),
    "dask, other chunks": (chunked, lambda values: da.from_array(values, chunks=23)),
    "dask, unknown rows": (unknown, lambda values: unknown(values[:, None], (61, -1))[:, 0]),
    "a series": (
        lambda rows: dd.from_pandas(pd.DataFrame(rows), npartitions=3),
        lambda values: dd.from_pandas(pd.Series(values), npartitions=3),
    ),
}


@pytest.mark.parametrize("kind", WEIGHTS)
def test_weights_and_groups_are_matched_to_their_rows(kind, data):
    rows, values = WEIGHTS[kind]
    weights = np.random.default_rng(0).integers(0, 4, len(data.target)).astype(float)
    weights[:61] = 0  # nothing of the first chunk counts
    groups = np.arange(len(data.target)) // 7
    inside = Moments.of(data.target, weights=weights, groups=groups)
    outside = Moments.of(rows(data.target), weights=values(weights), groups=values(groups))
    np.testing.assert_allclose(outside.scatter, inside.scatter, **TIGHT)
    assert outside.counts == inside.counts
    assert outside.groups == inside.groups


def test_columns_that_describe_rows_are_chosen_as_in_memory(data):
    frame = pd.DataFrame(data.target, columns=NAMES).assign(mouse=np.arange(200) // 20, kind="t")
    source = read(dd.from_pandas(frame, npartitions=3), groups="mouse", drop="kind")
    assert source.names == NAMES
    assert Moments.of(source).units == Moments.of(read(frame, groups="mouse", drop="kind")).units == 10
    with pytest.warns(FeatureWarning, match="kind"):
        source = read(dd.from_pandas(frame, npartitions=3), columns=None, drop=["mouse"])
    assert source.names == NAMES


def counted():
    """Count the tasks that dask runs."""
    seen = []
    return seen, dask.callbacks.Callback(pretask=lambda key, *_: seen.append(key))


def test_transform_is_lazy_and_carries_the_model_once(data):
    model = DPCA(2).fit(data.target, background=data.background)
    rows = chunked(data.target, (20, 2))
    seen, counter = counted()
    with counter:
        scores = model.transform(rows)
        clean = model.denoise(rows)
        again = model.inverse_transform(scores)
    assert not seen, "something was computed"
    assert scores.chunks == ((20,) * 10, (2,)) and scores.dtype == np.float64
    assert clean.shape == again.shape == data.target.shape
    keys = [key for key, value in dict(scores.dask).items() if "project" in str(key)]
    assert len(keys) == 1
    np.testing.assert_allclose(scores.compute(), model.transform(data.target), **TIGHT)
    np.testing.assert_allclose(clean.compute(), model.denoise(data.target), **TIGHT)
    np.testing.assert_allclose(again.compute(), model.inverse_transform(model.transform(data.target)), **TIGHT)
    np.testing.assert_allclose(
        scores[:30].sum(axis=0).compute(), model.transform(data.target[:30]).sum(axis=0), **TIGHT
    )


def bad(rows, *places, value=np.nan):
    rows = rows.copy()
    for place in places:
        rows[place] = value
    return rows


BAD = {
    "NaN": lambda rows: bad(rows, (3, 1), (190, 1), (7, 4)),
    "inf": lambda rows: bad(rows, (150, 2), value=np.inf),
    "overflow": lambda rows: bad(rows, (10, 0), value=1e200),
    "underflow": lambda rows: np.where(np.arange(5) == 2, rows * 1e-170, rows),
    "complex": lambda rows: rows.astype(complex),
    "dates": lambda rows: rows.astype("datetime64[s]"),
    "text": lambda rows: rows.astype(str),
    "one dimension": lambda rows: rows[:, 0],
    "four dimensions": lambda rows: rows[:, :, None, None],
    "no rows": lambda rows: rows[:0],
    "no columns": lambda rows: rows[:, :0],
    "one row": lambda rows: rows[:1],
    "other features": lambda rows: rows[:, :4],
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_rows_are_refused_as_in_memory(kind, data, remedy):
    rows = BAD[kind](data.target)
    with pytest.raises(InputError) as inside:
        DPCA().fit(rows, background=data.background)
    with pytest.raises(InputError) as outside:
        DPCA().fit(da.from_array(rows, chunks=61), background=chunked(data.background))
    assert type(outside.value) is type(inside.value)
    assert str(outside.value) == str(inside.value)
    remedy(outside)


def test_an_empty_selection_of_rows_is_an_error(data, refused):
    array = chunked(data.target)
    refused(lambda: DPCA().fit(array[array[:, 0] > 1e9], background=data.background), "target", "0 sample")


def test_bad_frames_are_refused_as_in_memory(data, remedy):
    frames = [
        pd.DataFrame(data.target, columns=NAMES).assign(kind="t"),
        pd.DataFrame(bad(data.target, (199, 4)), columns=NAMES),
        pd.DataFrame(data.target, columns=["a", "b", "c", "d", 4]),
        pd.DataFrame(data.target[:, :4], columns=NAMES[:4]),
    ]
    for frame in frames:
        with pytest.raises(InputError) as inside:
            DPCA().fit(frame, background=pd.DataFrame(data.background, columns=NAMES))
        with pytest.raises(InputError) as outside:
            DPCA().fit(dd.from_pandas(frame, npartitions=3), background=pd.DataFrame(data.background, columns=NAMES))
        assert type(outside.value) is type(inside.value)
        assert str(outside.value).split(" (type")[0] == str(inside.value).split(" (type")[0]
        remedy(outside)


@pytest.mark.parametrize("weights", [[-1.0] * 200, [np.nan] * 200, [0.0] * 200, [1.0] * 7, ["a"] * 200])
def test_bad_weights_are_refused_as_in_memory(weights, data, remedy):
    with pytest.raises(InputError) as inside:
        Moments.of(data.target, weights=weights)
    with pytest.raises(InputError) as outside:
        Moments.of(chunked(data.target), weights=weights)
    assert str(outside.value) == str(inside.value)
    with pytest.raises(InputError) as outside:
        Moments.of(chunked(data.target), weights=da.from_array(np.array(weights), chunks=50))
    remedy(outside)


def test_unsupported_input_is_an_error_with_a_remedy(data, refused):
    model = DPCA(1).fit(data.target, background=data.background)
    rows = chunked(data.target)
    with pytest.raises(NonFiniteError, match="1 NaN"):
        model.transform(chunked(bad(data.target, (3, 1)))).compute()
    refused(lambda: model.transform(rows[:, :4]), "4 features", kind=FeatureError)
    refused(lambda: Moments.of(unknown(data.target), weights=np.ones(200)), "weights", "is unknown", "compute_chunk")
    refused(lambda: Moments.of(unknown(data.target), groups=da.ones(200, chunks=9)), "groups", "is unknown")
    refused(lambda: Moments.of(rows, weights=da.ones((200, 1))), "shape (200, 1)")
    refused(lambda: DPCA().fit(dask.delayed(data.target)), "Delayed", "from_delayed")
    refused(lambda: read(rows, columns=["a"]), "no column names")
    refused(lambda: read(rows, missing="mean"), "`missing`")
    refused(lambda: read(dd.from_pandas(pd.Series([1.0, 2.0]), npartitions=1)), "1D array")


def test_blocks_of_a_collection_can_be_fetched(data):
    for kind in ("rows and columns", "sparse, rows and columns", "unknown rows", "nullable columns"):
        make = KINDS[kind]
        np.testing.assert_array_equal(np.vstack(list(read(make(data.target)).blocks(7))), data.target)


def test_dask_is_not_imported_for_arrays():
    code = (
        "import sys, numpy, standout; rows = numpy.random.default_rng(0).normal(size=(50, 3))\n"
        "standout.DPCA(1).fit(rows, background=rows[:30] * 2).transform(rows); assert 'dask' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


# Older releases of Dask warn if another scheduler is chosen while a client is open, as this test does on purpose.
@pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler:UserWarning")
def test_every_scheduler_gives_the_same_bits(client):
    rows = np.random.default_rng(0).normal(size=(5000, 40)) + 3
    array = da.from_array(rows, chunks=(700, 17))
    found = [Moments.of(array).scatter.tobytes()]
    for scheduler in ("synchronous", "threads"):
        with dask.config.set(scheduler=scheduler):
            found.append(Moments.of(array).scatter.tobytes())
    with (
        started(n_workers=3, processes=False) as other,
        distributed.Client(other) as own,
        dask.config.set(scheduler=own),
    ):
        found.append(Moments.of(array).scatter.tobytes())
    assert len(set(found)) == 1


def test_bad_rows_on_workers_are_refused_as_in_memory(client, data):
    rows = bad(data.target, (3, 1), (190, 1), (7, 4))
    with pytest.raises(NonFiniteError) as inside:
        DPCA().fit(rows, background=data.background)
    with pytest.raises(NonFiniteError) as outside:
        DPCA().fit(chunked(rows), background=chunked(data.background))
    assert str(outside.value) == str(inside.value)


def slow_chunks(folder, n_chunks=24, n_features=30):
    """An array whose chunks are made on the workers, each of which leaves its process id where it was made."""

    def load(number):
        (folder / f"{number}-{os.getpid()}").touch()
        time.sleep(0.05)
        return np.random.default_rng(number).normal(size=(500, n_features)) + number

    parts = [da.from_delayed(dask.delayed(load)(i), (500, n_features), dtype=float) for i in range(n_chunks)]
    return da.concatenate(parts)


def test_a_worker_killed_in_the_middle_changes_no_bit(tmp_path):
    for name in ("quiet", "target", "background"):
        (tmp_path / name).mkdir()
    background = slow_chunks(tmp_path / "background", n_chunks=4)
    quiet = DPCA(3).fit(slow_chunks(tmp_path / "quiet"), background=background)
    killed = []

    def kill():
        while len(made := sorted((tmp_path / "target").iterdir(), key=lambda path: path.stat().st_mtime)) < 8:
            time.sleep(0.005)
        killed.append(int(made[-1].name.split("-")[1]))
        os.kill(killed[0], signal.SIGKILL)

    # By name, because a new worker is sent this configuration, and a client cannot be sent.
    with started(n_workers=2) as cluster, distributed.Client(cluster), dask.config.set(scheduler="distributed"):
        killer = threading.Thread(target=kill)
        killer.start()
        disturbed = DPCA(3).fit(slow_chunks(tmp_path / "target"), background=background)
        killer.join()
    made = [tuple(map(int, path.name.split("-"))) for path in (tmp_path / "target").iterdir()]
    lost = {number for number, process in made if process == killed[0]}
    assert len(lost) < 24, "the other worker had nothing to do"
    assert lost & {number for number, process in made if process != killed[0]}, "nothing was made again"
    assert disturbed.components_.tobytes() == quiet.components_.tobytes()
    assert disturbed.ratios_.tobytes() == quiet.ratios_.tobytes()


def test_dask_warns_of_data_embedded_in_a_graph_and_of_nothing_else(client, tmp_path):
    """The advice not to send data through the scheduler is dask's own; reading on the workers gives none."""
    rows = np.random.default_rng(0).normal(size=(150_000, 10))
    frame = pd.DataFrame(rows, columns=[f"f{i}" for i in range(10)])
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    embedded = [
        da.from_array(rows, chunks=(50_000, -1)),
        da.from_array(rows, chunks=-1) + 1,
        da.from_array(mapped, chunks=(50_000, -1)),
        da.from_array(mapped, chunks=(50_000, -1), inline_array=True),
        da.from_delayed(dask.delayed(rows), rows.shape, dtype=float),
        dd.from_pandas(frame, npartitions=3),
    ]
    for collection in embedded:
        with pytest.warns(UserWarning, match=r"Sending large graph(?s:.)*Consider loading the data with Dask directly"):
            Moments.of(collection)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Moments.of(da.from_array(rows[:1000], chunks=(100, -1)))
        with dask.config.set(scheduler="threads"):
            Moments.of(embedded[0])
        load = dask.delayed(np.load)
        Moments.of(da.from_delayed(load(tmp_path / "rows.npy"), rows.shape, dtype=float))


def test_whole_numbers_of_another_seed_agree_on_the_cluster(client):
    data = whole_numbers(seed=3)
    inside = DPCA(2).fit(data.target, background=data.background)
    outside = DPCA(2).fit(chunked(data.target), background=dd.from_pandas(pd.DataFrame(data.background), npartitions=2))
    assert_same(outside, inside)
    np.testing.assert_allclose(
        outside.transform(chunked(data.target)).compute(), inside.transform(data.target), **TIGHT
    )


@pytest.fixture(scope="module")
def labelled():
    """Rows of a target and two backgrounds in mixed order, with labels, weights and groups."""
    target, background = whole_numbers()
    labels = np.array(["ill"] * 200 + ["well"] * 180 + ["old"] * 120)
    order = np.random.default_rng(0).permutation(500)
    weights = np.random.default_rng(1).integers(0, 3, size=500)
    return np.vstack([target, background])[order], labels[order], weights, np.arange(500) // 3


LABELS = {
    "array in memory": lambda labels: labels,
    "list": lambda labels: labels.tolist(),
    "series": pd.Series,
    "same chunks": lambda labels: da.from_array(labels, chunks=61),
    "other chunks": lambda labels: da.from_array(labels.astype(object), chunks=100),
}


@pytest.mark.parametrize("label", ["well", ["well", "old"]])
@pytest.mark.parametrize("kind", LABELS)
def test_background_label_splits_the_rows_of_an_array_as_in_memory(labelled, kind, label):
    rows, labels, weights, groups = labelled
    plain = DPCA(3, background_label=label).fit(rows, labels)
    model = DPCA(3, background_label=label).fit(chunked(rows), LABELS[kind](labels))
    np.testing.assert_allclose(model.components_, plain.components_, **TIGHT)
    np.testing.assert_allclose([*model.ratios_, model.noise_edge_], [*plain.ratios_, plain.noise_edge_], **TIGHT)
    assert model.score(chunked(rows), labels) == pytest.approx(plain.score(rows, labels), rel=1e-10)
    given = {"sample_weight": weights, "groups": groups}
    weighted = DPCA(3, background_label=label).fit(chunked(rows), LABELS[kind](labels), **given)
    lazy = {name: da.from_array(values, chunks=61) for name, values in given.items()}
    np.testing.assert_allclose(
        weighted.ratios_, DPCA(3, background_label=label).fit(rows, labels, **given).ratios_, **TIGHT
    )
    parts = {name: labels == name for name in ("well", "old") if name in label}
    target = ~np.any(list(parts.values()), axis=0)
    moments = [Moments.of(rows[mask], weights=weights[mask], groups=groups[mask]) for mask in (target, *parts.values())]
    by_moments = DPCA(3).fit(moments[0], background=moments[1] if len(parts) == 1 else moments[1:])
    assert weighted.p_value_ == pytest.approx(by_moments.p_value_, rel=1e-9)
    again = DPCA(3, background_label=label).fit(chunked(rows), LABELS[kind](labels), **lazy)
    np.testing.assert_allclose(again.ratios_, weighted.ratios_, **TIGHT)


@pytest.mark.parametrize("kind", ["csr_matrix", "unknown rows", "rows", "few rows each", "an empty chunk"])
def test_background_label_works_for_every_kind_of_chunk(labelled, kind):
    rows, labels, *_ = labelled
    plain = DPCA(2, background_label="well").fit(rows[:200], labels[:200])
    array = KINDS[kind](rows[:200])
    y = da.from_array(labels[:200], chunks=61) if kind == "unknown rows" else labels[:200]
    model = DPCA(2, background_label="well").fit(array, y)
    np.testing.assert_allclose(model.components_, plain.components_, **TIGHT)


@pytest.mark.shows("Dask DataFrame", "groups")
def test_background_label_splits_a_data_frame_by_a_column(labelled):
    rows, labels, weights, groups = labelled
    frame = pd.DataFrame(rows, columns=NAMES).assign(state=labels, w=weights, subject=groups)
    options = {"label": "state", "groups": "subject", "drop": "w"}
    collection = dd.from_pandas(frame, npartitions=4)
    plain = DPCA(2, background_label=["well", "old"]).fit(read(frame, **options))
    model = DPCA(2, background_label=["well", "old"]).fit(read(collection, **options))
    np.testing.assert_allclose(model.components_, plain.components_, **TIGHT)
    assert model.feature_names_in_.tolist() == list(NAMES)
    parts = [Moments.of(rows[labels == name], groups=groups[labels == name]) for name in ("ill", "well", "old")]
    assert model.p_value_ == pytest.approx(DPCA(2).fit(parts[0], background=parts[1:]).p_value_, rel=1e-9)
    features = collection[list(NAMES)]
    by_series = DPCA(2, background_label=["well", "old"]).fit(features, collection["state"])
    np.testing.assert_allclose(by_series.components_, plain.components_, **TIGHT)
    weighted = DPCA(2, background_label="well").fit(read(collection, **options), sample_weight="w")
    expected = DPCA(2, background_label="well").fit(rows, labels, sample_weight=weights)
    np.testing.assert_allclose(weighted.components_, expected.components_, **TIGHT)


@pytest.mark.shows("Dask array", "lazy")
def test_background_label_reads_every_chunk_once_and_fetches_no_rows(labelled):
    rows, labels, *_ = labelled
    read_chunks = []

    def chunk(block, block_info=None):
        read_chunks.append(block_info[0]["chunk-location"] if block_info else None)
        return block

    array = da.from_array(rows, chunks=(61, -1)).map_blocks(chunk, dtype=float, meta=np.empty((0, 0)))
    with dask.config.set(scheduler="synchronous"):
        DPCA(2, background_label=["well", "old"]).fit(array, da.from_array(labels, chunks=61))
    assert sorted(read_chunks) == [(i, 0) for i in range(9)]


@pytest.mark.shows("Dask array", "out of core")
@pytest.mark.filterwarnings("ignore::standout.errors.OverfitWarning")  # the rows are noise
def test_few_chunks_are_in_memory_at_once():
    alive = most = made = 0

    def gone():
        nonlocal alive
        alive -= 1

    def chunk(block, block_info=None):
        nonlocal alive, most, made
        rows = np.random.default_rng(block_info[None]["chunk-location"][0]).normal(size=block.shape)
        weakref.finalize(rows, gone)
        alive, made = alive + 1, made + 1
        most = max(most, alive)
        return rows

    array = da.zeros((40_000, 5), chunks=(1_000, -1)).map_blocks(chunk, dtype=float, meta=np.empty((0, 0)))
    labels = da.from_array(np.array(["a", "b"])[np.arange(40_000) % 2], chunks=1_000)
    with dask.config.set(scheduler="synchronous"):
        Moments.of(array)
        DPCA(2, background_label="b").fit(array, labels)
    assert (made, most <= 3) == (80, True), (made, most)


def test_labels_in_batches_are_added_up(labelled):
    rows, labels, *_ = labelled
    model = DPCA(2, background_label="well")
    order = np.argsort(labels)  # the first batches have no background
    for part in np.array_split(order, 4):
        model.partial_fit(chunked(rows[part]), labels[part])
    plain = DPCA(2, background_label="well").fit(rows, labels)
    np.testing.assert_allclose(model.components_, plain.components_, **TIGHT)


def test_bad_labels_are_errors_as_in_memory(labelled, refused):
    rows, labels, *_ = labelled
    array = chunked(rows)

    def fit(y, label="well", rows=array):
        return lambda: DPCA(background_label=label).fit(rows, y)

    refused(fit(None), "needs y")
    refused(fit(labels, "Well"), "background_label='Well'", "Did you mean 'well'?")
    refused(fit(["well"] * 500), "only background rows")
    refused(fit(labels[:99]), "labels", "(99,)", "500 rows")
    gaps = labels.astype(object)
    gaps[[3, 400]] = None
    refused(fit(gaps), "2 of 500 rows have no label")
    refused(fit(labels, rows=unknown(rows)), "labels", "compute_chunk_sizes")
    bad_rows = rows.copy()
    bad_rows[np.flatnonzero(labels == "well")[:2], 2] = np.nan
    refused(fit(labels, rows=chunked(bad_rows)), "background", "2 NaN", kind=NonFiniteError)
    refused(fit(labels, "ill", rows=chunked(bad_rows)), "target", "2 NaN", kind=NonFiniteError)
    shifted = da.from_array(labels, chunks=((50, 450),))
    few = unknown(rows, chunks=(250, -1))
    refused(fit(shifted, rows=few), "labels for a partition")
