"""Spark: inconsistent input is an error with a remedy, and subjects are the same ones wherever their rows are."""

import pickle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import standout
from conftest import NAMES, whole_numbers
from spark_session import spark_session
from standout._moments import Moments
from standout.distributed.reduce import add_up
from standout.errors import RowsNeededError

# One process holds the cluster, however many run the tests.
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.filterwarnings("ignore::ResourceWarning")]

TIGHT = {"rtol": 1e-12, "atol": 1e-9}
IDS = {
    "whole numbers": np.arange(200) // 20,
    "floats": np.arange(200) // 20 / 4,
    "text": [f"mouse {i // 20}" for i in range(200)],
    "truth values": np.arange(200) >= 110,
    "lists": [[i // 20, 1] for i in range(200)],
}


@pytest.fixture(scope="module")
def spark():
    return spark_session()


@pytest.fixture(scope="module")
def described():
    """Rows with their subject and weight."""
    rows = pd.DataFrame(whole_numbers().target, columns=NAMES)
    return rows.assign(g=np.arange(200) // 20, w=np.arange(200) % 4.0)


@pytest.mark.parametrize("kind", IDS)
def test_a_subject_with_rows_in_memory_and_on_a_cluster_counts_once(described, spark, kind):
    frame = described.assign(g=pd.Series(list(IDS[kind])))
    here = Moments.of(standout.read(frame[:110], groups="g", drop="w"))
    there = standout.read(spark.createDataFrame(pa.Table.from_pandas(frame[110:])), groups="g", drop="w")
    whole = here + Moments.of(there)
    assert whole.groups == {str(item) for item in frame["g"]}
    assert whole.units == frame["g"].astype(str).nunique()


@pytest.mark.parametrize("value", ["null", "double('NaN')"])
def test_missing_ids_are_refused(described, spark, refused, value):
    made = spark.createDataFrame(described).selectExpr(*NAMES, f"if(g = 3 and w = 1, {value}, g) as g")
    source = standout.read(made, groups="g", role="target")
    refused(lambda: Moments.of(source, role="target"), "target groups: 5 of", "no group id", "Give every row an id")


def test_groups_of_a_frame_without_order_cannot_be_collected(described, spark, refused):
    made = spark.createDataFrame(described)
    source = standout.read(made, groups="g", drop="w")
    message = ("target groups", "no order", "Bring rows and groups into memory", "toPandas()", "groups='g'")
    refused(lambda: source.row_values("groups", "target groups"), *message, kind=RowsNeededError)
    refused(
        lambda: source.select(np.array([1, 0])).row_values("groups", "target groups"), *message, kind=RowsNeededError
    )
    assert standout.read(made, drop=["g", "w"]).row_values("groups", "target groups") is None
    described = standout.read(made, label="g", ids="w")
    assert described.row_values("groups", "target groups") is None
    for option, column in (("label", "'g'"), ("ids", "'w'")):
        refused(lambda o=option: described.row_values(o, f"target {o}"), option, column, kind=RowsNeededError)


def test_features_whose_scatter_an_executor_cannot_hold_are_refused(spark, refused):
    from pyspark.ml.linalg import Vectors

    made = spark.createDataFrame([(Vectors.sparse(300_000, [i], [1.0]),) for i in range(4)], ["v"])
    refused(lambda: Moments.of(made, role="target"), "target", "300,000 features", "720.0 GB", "Choose fewer features")


def test_empty_vectors_are_refused(spark, refused):
    from pyspark.ml.linalg import Vectors

    for made in (
        spark.createDataFrame([([],), ([],)], "v array<double>"),
        spark.createDataFrame([(Vectors.dense([]),), (Vectors.dense([]),)], ["v"]),
    ):
        refused(lambda made=made: Moments.of(made, role="target"), "target", "0 feature(s)", "Give rows")


def test_one_column_is_not_both_weights_and_groups(described, spark, refused):
    source = standout.read(spark.createDataFrame(described), drop=["g", "w"], role="target")
    refused(lambda: Moments.of(source, weights="w", groups="w"), "target: the column 'w'", "weights and for groups")


def test_weights_that_are_text_are_refused(described, spark, refused):
    source = standout.read(spark.createDataFrame(described).selectExpr(*NAMES, "string(w) as w"), drop="w")
    refused(lambda: Moments.of(source, weights="w"), "weights", "not numbers", "Give one number for each row")


def test_a_partition_with_weights_and_groups_is_not_held_in_memory(described, monkeypatch):
    """As Spark's worker does it, without Spark: batches come one by one, and are gone when the next one comes."""
    from pyspark import TaskContext

    from standout.distributed.spark import BatchReader, _partition_pieces

    batch = pa.RecordBatch.from_pandas(described[[*NAMES, "w", "g"]], preserve_index=False)
    held = []

    def batches():
        for _ in range(50):
            held.append(pa.total_allocated_bytes())
            yield pa.ipc.open_stream(sent).read_next_batch()  # a separate copy
            held.append(pa.total_allocated_bytes())

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_batch(batch)
    sent = sink.getvalue()
    reader = BatchReader("target", NAMES, 5)
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(partitionId=lambda: 0))
    columns = ("weights", "groups")
    (piece,) = _partition_pieces(batches(), lambda part: add_up(part, "target"), reader, columns)
    found = pickle.loads(piece.column("bytes")[0].as_py())
    assert len(held) == 100 and max(held) - held[0] < 4 * batch.nbytes
    whole = np.tile(described[list(NAMES)].to_numpy(), (50, 1))
    plain = Moments.of(whole, weights=np.tile(described["w"], 50))
    np.testing.assert_allclose(found.sums.scatter, plain.scatter, **TIGHT)
    np.testing.assert_allclose(found.sums.mean, plain.mean, rtol=1e-13)
    assert found.sums.rows == plain.rows and found.seen == 10_000 and found.groups == {str(i) for i in range(10)}
