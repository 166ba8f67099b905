"""Spark DataFrames give the numbers, and the errors, of the same rows in memory: on a real local cluster."""

import os
import re
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sklearn

import standout
from conftest import NAMES, whole_numbers
from spark_session import spark_session
from standout._dpca import DPCA
from standout._kernel_dpca import KernelDPCA
from standout._moments import Moments
from standout.errors import (
    FeatureError,
    InputError,
    MissingExtraError,
    NonFiniteError,
    NotEnoughRowsError,
    RowsNeededError,
)

# One process holds the cluster, however many run the tests.
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module")
def spark():
    return spark_session()


@pytest.fixture(scope="module")
def rows():
    return whole_numbers()


@pytest.fixture
def frame(spark):
    """Return a maker of frames: these rows, in order, in so many partitions."""

    def make(values, partitions=2, names=NAMES):
        columns = dict(zip(names, np.asarray(values, dtype=float).T, strict=True))
        if partitions == 2:
            return spark.createDataFrame(pa.table(columns))
        numbered = spark.createDataFrame(pa.table(columns | {"place": np.arange(len(values))}))
        return numbered.repartitionByRange(partitions, "place").sortWithinPartitions("place").drop("place")

    return make


def same(model, plain):
    np.testing.assert_allclose(model.ratios_, plain.ratios_, rtol=1e-11)
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(model.mean_, plain.mean_, rtol=1e-13)


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_any_number_of_partitions_gives_the_model_of_the_rows_in_memory(rows, frame, partitions):
    model = DPCA().fit(frame(rows.target, partitions), background=frame(rows.background, partitions))
    same(model, DPCA().fit(rows.target, background=rows.background))
    assert list(model.feature_names_in_) == list(NAMES)


@pytest.fixture
def collected(spark, monkeypatch):
    """Record the results that the driver receives."""
    kind, got = type(spark.range(1)), []
    collect = kind.collect

    def watched(self):
        got.append(collect(self))
        return got[-1]

    monkeypatch.setattr(kind, "collect", watched)
    return got


def test_more_partitions_than_one_task_merges_and_empty_ones_come_to_the_driver_as_one_result(rows, spark, collected):
    few = rows.target[:36]
    scattered = spark.createDataFrame(spark.sparkContext.parallelize(few.tolist(), 40), list(NAMES))
    assert scattered.rdd.getNumPartitions() == 40
    collected.clear()  # Spark looked at a row to know the types
    found, plain = Moments.of(scattered), Moments.of(few)
    assert found.rows == 36 and found.names == NAMES
    np.testing.assert_allclose(found.mean, plain.mean, rtol=1e-14)
    np.testing.assert_allclose(found.scatter, plain.scatter, rtol=1e-12, atol=1e-9)
    assert [len(result) for result in collected] == [1]


def test_the_same_partitions_give_the_same_bits(rows, frame):
    one, other = Moments.of(frame(rows.target, 7)), Moments.of(frame(rows.target, 7))
    assert np.array_equal(one.scatter, other.scatter) and np.array_equal(one.mean, other.mean)


def test_a_mean_far_from_zero_costs_no_digits(rows, frame):
    far = rows.target / 7 + 1e7
    found = Moments.of(frame(far, 3)).covariance()
    np.testing.assert_allclose(found, np.cov((far - 1e7).T, ddof=0), rtol=1e-7, atol=1e-9)


def test_vectors_dense_sparse_and_mixed_and_arrays_are_features(rows, spark):
    from pyspark.ml.linalg import Vectors

    def vector(values, dense):
        found = np.flatnonzero(values)
        return Vectors.dense(values) if dense else Vectors.sparse(len(values), found, values[found])

    sparse = np.where(rows.target > 28, rows.target, 0.0)
    plain = Moments.of(sparse)
    for every in (1, 1000, 3):  # all dense, all but one sparse, mixed
        made = spark.createDataFrame([(vector(v, i % every == 1 % every),) for i, v in enumerate(sparse)], ["features"])
        found = Moments.of(made)
        assert found.rows == len(sparse) and found.names is None
        np.testing.assert_allclose(found.scatter, plain.scatter, rtol=1e-12, atol=1e-9)
    arrays = spark.createDataFrame([(values.tolist(),) for values in sparse], "features array<float>")
    np.testing.assert_allclose(Moments.of(arrays).scatter, plain.scatter, rtol=1e-12, atol=1e-9)


def test_assembled_vectors_keep_their_names_and_are_matched_by_them(rows, frame):
    from pyspark.ml.feature import VectorAssembler

    def assembled(values, names):
        return VectorAssembler(inputCols=list(names), outputCol="all").transform(frame(values)).select("all")

    model = DPCA().fit(assembled(rows.target, NAMES), background=assembled(rows.background, NAMES[::-1]))
    same(model, DPCA().fit(rows.target, background=rows.background))
    assert list(model.feature_names_in_) == list(NAMES)


def test_columns_of_any_numeric_type_and_name_are_features(rows, spark):
    kinds = ("byte", "float", "decimal(6,2)", "boolean", "long")
    odd = ("a.b", "A", "a", "two words", "`")  # Spark takes a and A for the same, and dots for fields
    made = spark.createDataFrame(pd.DataFrame(rows.target, columns=NAMES))
    made = made.selectExpr(*(f"cast({name} as {kind}) as {name}" for name, kind in zip(NAMES, kinds, strict=True)))
    found = Moments.of(made.toDF(*odd))
    expected = rows.target.copy()
    expected[:, 3] = expected[:, 3] != 0
    assert found.names == odd
    np.testing.assert_allclose(found.mean, expected.mean(axis=0), rtol=1e-13)


def test_several_backgrounds_batches_and_scores_take_frames(rows, frame):
    target, parts = frame(rows.target), [frame(rows.background[:140]), frame(rows.background[140:])]
    halves = {"one": rows.background[:140], "two": rows.background[140:]}
    plain = DPCA(mix="equal").fit(rows.target, background=halves)
    same(DPCA(mix="equal").fit(target, background=dict(zip(halves, parts, strict=True))), plain)
    same(DPCA(mix="equal").fit(target, background=parts), plain)
    whole = DPCA().fit(rows.target, background=rows.background)
    batches = DPCA().partial_fit(target, background=parts[0]).partial_fit(background=parts[1])
    same(batches, whole)
    assert batches.score(target, background=parts[0]) == pytest.approx(
        whole.score(rows.target, background=rows.background[:140]), rel=1e-9
    )


def test_weights_and_groups_are_columns_given_by_name(rows, frame, refused):
    weights = np.arange(200) % 4.0
    subjects = np.arange(200) // 8
    made = frame(np.column_stack([rows.target, weights, subjects]), 3, (*NAMES, "w", "subject"))
    source = standout.read(made, drop="w", groups="subject")
    found = Moments.of(source, weights="w")
    plain = Moments.of(rows.target, weights=weights, groups=subjects)
    assert found.units == plain.units == 25 and found.weight == plain.weight and found.rows == plain.rows
    np.testing.assert_allclose(found.scatter, plain.scatter, rtol=1e-12, atol=1e-9)
    assert Moments.of(standout.read(made, drop=["w", "subject"]), groups="subject").units == 25
    refused(lambda: Moments.of(source, weights=weights), "weights", "no order", "Name a column")
    refused(lambda: Moments.of(source, weights="a"), "'a' is a feature too", "Leave it out")
    refused(lambda: Moments.of(source, weights="v"), "no column 'v'", "Use one of its columns")


@pytest.mark.parametrize("kind", ["int", "double"])
def test_missing_weights_are_an_error(rows, frame, refused, kind):
    made = frame(rows.target).selectExpr("*", f"cast(if(a > 30, null, 1) as {kind}) as w")
    source = standout.read(made, drop="w", role="target")
    refused(lambda: Moments.of(source, weights="w"), "target weights", "none (null)", "0 to leave it out")


def test_an_operation_that_needs_rows_in_memory_is_an_error_with_a_remedy(rows, frame, refused):
    model = DPCA(2).fit(rows.target, background=rows.background)
    made = frame(rows.target)
    refused(lambda: model.inverse_transform(model.transform(made)), "DataFrame on a cluster", "toPandas")
    model.set_output(transform="pandas")
    refused(lambda: model.transform(made), "pandas data frame", "set_output(transform='default')")
    with sklearn.config_context(transform_output="polars"):
        plain = DPCA(2).fit(rows.target, background=rows.background)
        refused(lambda: plain.transform(made), "polars data frame", "toPandas()")
    kernel = KernelDPCA(1, n_landmarks=20)
    refused(lambda: kernel.fit(made, background=rows.background), "on a cluster", "toPandas()", kind=RowsNeededError)


def test_methods_are_compared_on_a_frame_as_on_its_rows(rows, frame, refused):
    made = frame(rows.target, 3)
    found = standout.compare(made, rows.background, n_representatives=2)
    plain = standout.compare(rows.target, rows.background, n_representatives=2)
    assert [view.name for view in found] == [view.name for view in plain]
    np.testing.assert_allclose([view.share for view in found], [view.share for view in plain], rtol=1e-9)
    labels = ["x", "y"] * 100
    message = ("labels", "no order", "toPandas()")
    refused(lambda: standout.compare(made, rows.background, labels=labels), *message, kind=RowsNeededError)


def spoiled(rows, places, value):
    bad = rows.copy()
    for row, column in places:
        bad[row, column] = value
    return bad


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200, None], ids=str)
def test_values_that_are_not_finite_are_refused_as_in_memory(rows, spark, frame, value):
    bad = spoiled(rows.target, [(3, 1), (150, 1), (199, 4)], np.nan if value is None else value)
    with pytest.raises(InputError) as plain:
        DPCA().fit(pd.DataFrame(bad, columns=NAMES), background=rows.background)
    made = frame(bad, 3)
    if value is None:
        made = made.selectExpr(*(f"nullif({name}, double('NaN')) as {name}" for name in NAMES))
    with pytest.raises(type(plain.value)) as error:
        DPCA().fit(made, background=rows.background)
    assert str(error.value) == str(plain.value)
    with pytest.raises(type(plain.value)) as error:
        DPCA().fit(rows.background, background=made)
    assert str(error.value) == str(plain.value).replace("target: ", "background: ", 1)


def test_missing_vectors_are_an_error(spark):
    made = spark.createDataFrame([([1.0, 2.0],), (None,), ([None, 3.0],)], "v array<double>")
    with pytest.raises(NonFiniteError, match=r"3 NaN and 0 inf values in 2 of 2 features: 0 \(2\), 1 \(1\)"):
        Moments.of(made)


def test_squares_that_underflow_and_frames_without_rows_are_refused_as_in_memory(rows, frame):
    for bad in (rows.target * [1, 1, 1e-200, 1, 1], rows.target[:0], rows.target[:1]):
        with pytest.raises(InputError) as plain:
            DPCA().fit(pd.DataFrame(bad, columns=NAMES), background=rows.background)
        with pytest.raises(type(plain.value)) as error:
            DPCA().fit(frame(bad, 3), background=rows.background)
        assert str(error.value) == str(plain.value)
    assert isinstance(plain.value, NotEnoughRowsError)


def test_other_features_are_refused_as_in_memory(rows, frame):
    target = pd.DataFrame(rows.target, columns=NAMES)
    for names in (("a", "b", "c", "d", "x"), NAMES[:4]):
        background = rows.background[:, : len(names)]
        with pytest.raises(FeatureError) as plain:
            DPCA().fit(target, background=pd.DataFrame(background, columns=names))
        with pytest.raises(FeatureError) as error:
            DPCA().fit(frame(rows.target), background=frame(background, names=names))
        assert str(error.value) == str(plain.value)
    model = DPCA().fit(rows.target, background=rows.background)
    with pytest.raises(FeatureError, match="4 features"):
        model.transform(frame(rows.target[:, :4], names=NAMES[:4]))


def test_a_frame_that_is_not_a_table_of_numbers_is_refused(rows, spark, frame, refused):
    made = frame(rows.target)
    text = made.selectExpr("*", "'x' as kind", "date'2020-01-01' as day")
    refused(
        lambda: standout.read(text, role="target"), "target: 2 of 7 columns", "'kind', 'day' (type string)", "Leave"
    )
    refused(lambda: standout.read(made.toDF("a", "b", "b", "d", "e")), "1 duplicate column name: 'b'")
    refused(lambda: standout.read(made.select()), "0 feature(s)")
    refused(lambda: standout.read(made.rdd, role="target"), "target: unsupported Spark object: RDD", "Give a DataFrame")
    refused(lambda: standout.read(spark.readStream.format("rate").load()), "a stream never ends", "Give")
    refused(lambda: standout.read(made, where={"a": 3}), "`where`", "on a cluster")
    both = made.selectExpr("a", "array(b, c) as v")
    refused(lambda: standout.read(both), "'v' (type array<double>)", "standout.read(frame, columns='v')")
    refused(lambda: standout.read(both, columns=["a", "v"]), "a vector holds all features", kind=FeatureError)
    ragged = spark.createDataFrame([([1.0, 2.0],), ([3.0],)], "v array<double>")
    refused(lambda: Moments.of(ragged, role="target"), "target: the rows have different lengths", "2 and of 1", "Give")
    refused(lambda: standout.read(ragged.where("size(v) > 5")), "it holds no rows", "Give a table")


def test_transform_is_lazy_and_keeps_the_order_and_the_other_columns(rows, spark, frame):
    model = DPCA().fit(rows.target, background=rows.background)
    numbered = frame(np.column_stack([np.arange(200), rows.target]), 3, ("row", *NAMES))
    made = numbered.selectExpr("*", "concat('r', int(row)) as name")
    spark.sparkContext.setJobGroup("transform", "")
    scores = model.transform(standout.read(made, ids="name", label="row"))
    assert not spark.sparkContext.statusTracker().getJobIdsForGroup("transform")
    assert scores.columns == ["row", "name", "dpca0", "dpca1"]
    assert scores.rdd.getNumPartitions() == 3
    found = scores.toPandas()
    assert found["row"].tolist() == list(range(200)) and found["name"].tolist() == [f"r{i}" for i in range(200)]
    np.testing.assert_allclose(found[["dpca0", "dpca1"]], model.transform(rows.target), rtol=1e-12, atol=1e-12)


def test_transform_matches_columns_by_name_and_denoise_gives_the_features(rows, frame):
    named = pd.DataFrame(rows.target, columns=NAMES)
    model = DPCA().fit(named, background=rows.background)
    backwards = frame(rows.target[:, ::-1], names=NAMES[::-1])
    scores = model.transform(backwards).toPandas()
    np.testing.assert_allclose(scores, model.transform(named), rtol=1e-12, atol=1e-12)
    denoised = model.denoise(frame(rows.target))
    assert denoised.columns == list(NAMES)
    np.testing.assert_allclose(denoised.toPandas(), model.denoise(named), rtol=1e-10, atol=1e-10)


def test_a_kept_column_with_the_name_of_a_score_is_refused(rows, frame, refused):
    model = DPCA().fit(rows.target, background=rows.background)
    clash = frame(np.column_stack([rows.target, rows.target[:, 0]]), names=(*NAMES, "dpca0"))
    refused(
        lambda: model.transform(standout.read(clash, ids="dpca0")), "duplicate columns in the result: 'dpca0'", "Rename"
    )


def test_blocks_come_to_the_driver_in_order(rows, frame):
    source = standout.read(frame(rows.target, 3))
    assert source.n_rows is None
    blocks = list(source.blocks(40))
    assert max(map(len, blocks)) <= 40
    np.testing.assert_array_equal(np.concatenate(blocks), rows.target)


def test_a_task_that_dies_and_is_run_again_changes_no_bit(rows, frame, tmp_path):
    made, mark = frame(rows.target, 5), str(tmp_path / "died")

    def dies_once(batches):
        from pyspark import TaskContext

        yield from batches
        if TaskContext.get().partitionId() == 3 and not os.path.exists(mark):
            open(mark, "w").close()
            os._exit(9)

    undisturbed = Moments.of(made.mapInArrow(lambda batches: batches, made.schema))
    found = Moments.of(made.mapInArrow(dies_once, made.schema))
    assert os.path.exists(mark)
    assert found.rows == 200 and np.array_equal(found.scatter, undisturbed.scatter)


def test_a_result_of_several_pieces_arrives_whole_and_once(frame, collected):
    wide = np.random.default_rng(0).normal(size=(40, 1100))
    found = Moments.of(frame(wide, 5, [f"f{i}" for i in range(1100)]))
    np.testing.assert_allclose(found.scatter, Moments.of(wide).scatter, rtol=1e-10, atol=1e-10)
    assert len(collected) == 1 and len(collected[0]) == 2
    assert sum(len(row["bytes"]) for row in collected[0]) < 1.01 * 8 * 1100**2


def test_a_missing_package_is_an_error_with_a_remedy(rows, spark, frame, monkeypatch, refused):
    from standout.distributed.spark import _collected

    def alone(_batches):
        raise ModuleNotFoundError("No module named 'standout'")

    refused(
        lambda: _collected(frame(rows.target).mapInArrow(alone, "a double")),
        "executors",
        "Install",
        kind=MissingExtraError,
    )
    made = frame(rows.target)
    monkeypatch.delitem(sys.modules, "standout.distributed.spark")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=re.escape("pip install 'standout[spark]'")):
        standout.read(made)


@pytest.mark.shows("Spark DataFrame", "groups")
def test_background_label_splits_rows_by_a_column_in_one_pass(rows, spark, refused):
    table = pd.DataFrame(np.vstack(rows), columns=NAMES).assign(
        state=["ill"] * 200 + ["well"] * 180 + ["old"] * 120, subject=np.arange(500) // 3, w=np.arange(500) % 3
    )
    made = spark.createDataFrame(pa.Table.from_pandas(table.sample(frac=1, random_state=0), preserve_index=False))
    labels = {"background_label": ["well", "old"]}
    source = standout.read(made.repartition(3), label="state", groups="subject", drop="w")
    model = DPCA(**labels).fit(source, sample_weight="w")
    plain = DPCA(**labels).fit(table[list(NAMES)], table["state"], sample_weight=table["w"])
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-10, atol=1e-10)
    own = [table[table["state"] == name] for name in ("ill", "well", "old")]
    parts = [Moments.of(part[list(NAMES)], weights=part["w"], groups=part["subject"]) for part in own]
    assert model.p_value_ == pytest.approx(DPCA().fit(parts[0], background=parts[1:]).p_value_, rel=1e-9)
    features = made.select(*NAMES)
    refused(lambda: DPCA(**labels).fit(features, table["state"]), "labels", "no order", "label='w'")
    refused(lambda: DPCA(**labels).fit(features), "background_label needs y", "label=")
