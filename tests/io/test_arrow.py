"""Tables of other libraries are streamed: lazy frames, queries, datasets and readers, with the options of files."""

import contextlib
import sqlite3
import subprocess
import sys
import weakref

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

import standout
from conftest import NAMES, whole_numbers
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import FeatureError, FeatureWarning, InputError, RowsNeededError
from standout.io.stream import Stream, TableInMemory


def duckdb_relation(table, _folder):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    return duckdb.connect().from_arrow(table)


def ibis_table(table, _folder):
    ibis = pytest.importorskip("ibis", reason="ibis is not installed")
    return ibis.memtable(table)


def hugging_face(table, _folder):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    return datasets.Dataset(datasets.table.InMemoryTable(table))


def hugging_face_rows(table, folder):
    return hugging_face(table, folder).to_iterable_dataset()


def parquet_scan(table, folder):
    pa.parquet.write_table(table, folder / "rows.parquet", row_group_size=100)
    return pl.scan_parquet(folder / "rows.parquet")


def arrow_dataset(table, folder):
    pa.parquet.write_table(table, folder / "rows.parquet", row_group_size=100)
    return pa.dataset.dataset(folder / "rows.parquet")


class ArrowStream:
    """A table that only exports the Arrow C stream, as often as needed."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


KINDS = {
    "polars LazyFrame": lambda table, _folder: pl.from_arrow(table).lazy(),
    "polars scan": parquet_scan,
    "narwhals LazyFrame": lambda table, _folder: nw.from_native(pl.from_arrow(table).lazy()),
    "DuckDB relation": duckdb_relation,
    "Ibis table": ibis_table,
    "Hugging Face Dataset": hugging_face,
    "Hugging Face IterableDataset": hugging_face_rows,
    "pyarrow Dataset": arrow_dataset,
    "pyarrow RecordBatchReader": lambda table, _folder: table.to_reader(max_chunksize=70),
    "object with an Arrow C stream": lambda table, _folder: ArrowStream(table),
}
AGAIN = [kind for kind in KINDS if not kind.endswith("Reader")]  # can be read more than once
SHOWN = [
    kind if kind == "polars scan" else pytest.param(kind, marks=pytest.mark.shows(kind, "accepted", "names", "groups"))
    for kind in KINDS
]


@pytest.fixture(scope="module")
def frame():
    """500 rows with labels, subjects, ids, a column to leave out, and missing values in another."""
    target, background = whole_numbers()
    frame = pd.DataFrame(np.vstack([target, background]), columns=NAMES)
    frame["state"] = ["ill"] * 200 + ["well"] * 300
    frame["subject"] = [f"s{i // 4}" for i in range(500)]
    frame["row"] = [f"r{i}" for i in range(500)]
    frame["age"] = np.arange(500)
    frame["gaps"] = np.where(np.arange(500) % 50 == 0, np.nan, np.sin(np.arange(500.0)))
    return frame


@pytest.fixture(scope="module")
def table(frame):
    return pa.Table.from_pandas(frame, preserve_index=False)


OPTIONS = {"label": "state", "groups": "subject", "ids": "row", "drop": "age"}


@pytest.mark.parametrize("memory", ["256MB", 0])
@pytest.mark.parametrize("kind", SHOWN)
def test_rows_names_and_options_are_those_of_a_data_frame(frame, table, kind, memory, tmp_path):
    options = OPTIONS | {"where": {"state": "ill"}, "columns": ["c", "a", "gaps"]}
    found = standout.read(KINDS[kind](table, tmp_path), memory=memory, **options)
    expected = standout.read(frame, **options)
    rows = np.vstack(list(found.blocks(64)))
    np.testing.assert_array_equal(rows, expected.array)
    assert found.names == expected.names
    assert found.n_rows == 200
    for name in ("labels", "groups", "row_ids"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize("missing", ["auto", "drop_rows", "drop_features", "mean"])
@pytest.mark.parametrize("kind", AGAIN)
@pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
def test_missing_values_are_handled_as_in_a_data_frame(frame, table, kind, missing, tmp_path):
    def fit(data, memory):
        parts = ({"where": {"state": state}, "missing": missing, "memory": memory} for state in ("ill", "well"))
        target, background = (standout.read(data, **OPTIONS, **part) for part in parts)
        return DPCA(2).fit(target, background=background)

    model, plain = fit(KINDS[kind](table, tmp_path), 0), fit(frame, "1GB")
    assert model.feature_names_in_.tolist() == plain.feature_names_in_.tolist()
    rtol = 1e-8 if missing != "auto" else 0.05  # draws of blocks differ from those of a table in memory
    np.testing.assert_allclose(model.ratios_, plain.ratios_, rtol=rtol)


@pytest.mark.parametrize("kind", AGAIN)
def test_a_table_larger_than_memory_is_read_again_for_every_pass(table, kind, tmp_path):
    numbers = table.select(list(NAMES))
    small, large = (standout.read(KINDS[kind](numbers, tmp_path), memory=memory) for memory in ("1MB", 1000))
    assert isinstance(small, TableInMemory)
    assert isinstance(large, Stream)
    for _ in range(2):
        np.testing.assert_array_equal(np.vstack(list(large.blocks(64))), small.array)


def test_a_reader_that_fits_into_memory_can_be_used_repeatedly(data):
    reader = pa.table(dict(zip(NAMES, data.target.T, strict=True))).to_reader(max_chunksize=9)
    source = standout.read(reader)
    plain = DPCA(2).fit(data.target, background=data.background)
    for _ in range(2):
        model = DPCA(2).fit(source, background=data.background)
        np.testing.assert_allclose(model.ratios_, plain.ratios_, rtol=1e-10)


class Counted:
    """A reader of batches that are made when they are read, and how many of them were alive at once."""

    def __init__(self, n_batches=200, rows=500):
        self.alive, self.most, self.read, self.n_batches, self.rows = 0, 0, 0, n_batches, rows

    def reader(self):
        schema = pa.schema([("subject", pa.string()), *((name, pa.float64()) for name in NAMES)])
        return pa.RecordBatchReader.from_batches(schema, self._batches(schema))

    def array(self):
        return np.vstack([self._numbers(number) for number in range(self.n_batches)])

    def groups(self):
        return np.repeat([f"s{number}" for number in range(self.n_batches)], self.rows)

    def _numbers(self, number):
        return np.random.default_rng(number).normal(size=(self.rows, 5)) * [1, 2, 3, 4, 5]

    def _batches(self, schema):
        for number in range(self.n_batches):
            subject = pa.array([f"s{number}"] * self.rows)
            columns = [subject, *map(pa.array, np.ascontiguousarray(self._numbers(number).T))]
            batch = pa.RecordBatch.from_arrays(columns, schema=schema)
            weakref.finalize(batch, self._gone)
            self.alive, self.read = self.alive + 1, self.read + 1
            self.most = max(self.most, self.alive)
            yield batch
            del batch

    def _gone(self):
        self.alive -= 1


@pytest.mark.shows("pyarrow RecordBatchReader", "out of core", "lazy")
def test_a_reader_larger_than_memory_gives_moments_in_one_pass_with_few_batches_in_memory(data):
    for memory, most in ((0, 8), (20 * 24_000, 32)):  # a batch has about 24 kB
        counted = Counted()
        source = standout.read(counted.reader(), groups="subject", memory=memory)
        moments = Moments.of(source)
        expected = Moments.of(counted.array(), groups=counted.groups())
        np.testing.assert_allclose(moments.scatter, expected.scatter, rtol=1e-10, atol=1e-6)
        assert moments.groups == expected.groups
        assert counted.read == 200
        assert counted.most <= most


def test_a_fit_and_scores_need_one_pass_over_a_reader(data):
    plain = DPCA(2).fit(Counted().array(), background=data.background)
    reader = standout.read(Counted().reader(), drop="subject", memory=0)
    model = DPCA(2).fit(reader, background=data.background)
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-9, atol=1e-9)
    scores = model.transform(standout.read(Counted().reader(), drop="subject", memory=0))
    np.testing.assert_allclose(scores, plain.transform(Counted().array()), rtol=1e-8, atol=1e-8)


def test_columns_in_another_order_need_no_second_pass_over_a_reader(data):
    plain = DPCA(2).fit(data.target, background=data.background)
    sides = (data.target, NAMES), (data.background[:, ::-1], NAMES[::-1])
    tables = [pa.table(dict(zip(names, np.ascontiguousarray(rows.T), strict=True))) for rows, names in sides]
    target, background = (standout.read(table.to_reader(max_chunksize=10), memory=0) for table in tables)
    np.testing.assert_allclose(DPCA(2).fit(target, background=background).ratios_, plain.ratios_, rtol=1e-9)


def test_a_second_pass_over_a_reader_larger_than_memory_is_an_error(data, refused):
    source = standout.read(Counted().reader(), drop="subject", memory=0)
    Moments.of(source)
    refused(lambda: Moments.of(source), "RecordBatchReader", "can be read only once", "`memory`")
    refused(lambda: standout.read(Counted().reader(), missing="mean", memory=0), "`missing`", "only once")


def test_non_finite_values_in_a_reader_are_reported_without_a_second_pass(data, refused):
    rows = data.target.copy()
    rows[150, 2] = np.nan
    table = pa.table(dict(zip(NAMES, np.ascontiguousarray(rows.T), strict=True)))
    source = standout.read(table.to_reader(max_chunksize=10), memory=0)
    refused(lambda: DPCA().fit(source, background=data.background), "1 NaN", "c (1)")


def test_an_exhausted_or_empty_reader_is_an_error(table, refused):
    reader = table.select(list(NAMES)).to_reader()
    reader.read_all()
    refused(lambda: standout.read(reader), "RecordBatchReader", "no rows", "only once")
    refused(lambda: standout.read(reader, memory=0), "RecordBatchReader", "no rows", "only once")


# datasets does not make an IterableDataset without rows
@pytest.mark.parametrize("kind", [kind for kind in AGAIN if "Iterable" not in kind])
@pytest.mark.parametrize("memory", ["256MB", 0])
def test_a_table_without_rows_or_numbers_is_an_error(table, kind, memory, tmp_path, refused):
    empty = table.select(list(NAMES)).slice(0, 0)
    refused(lambda: DPCA().fit(standout.read(KINDS[kind](empty, tmp_path), memory=memory)), "no rows")
    text = table.select(["state", "row"])
    refused(lambda: standout.read(KINDS[kind](text, tmp_path), memory=memory), "no features", kind=FeatureError)
    nested = pa.table({"pair": [[1, 2], [3, 4]]})  # lists of floating-point numbers are features
    refused(lambda: standout.read(KINDS[kind](nested, tmp_path)), "pair", "nested", kind=FeatureError)


def test_a_nested_column_next_to_numbers_is_not_a_feature(table):
    nested = table.select(list(NAMES)).append_column("pair", pa.array([[1, 2]] * 500))
    with pytest.warns(FeatureWarning, match="'pair'"):
        source = standout.read(pl.from_arrow(nested).lazy())
    assert source.names == NAMES
    with pytest.raises(InputError, match="'pair' is not numeric"):
        standout.read(pl.from_arrow(nested).lazy(), columns="pair")


def test_duplicate_names_and_unknown_columns_are_errors(table, refused):
    numbers = table.select(list(NAMES))
    twice = numbers.rename_columns(["a", "b", "a", "d", "e"])
    refused(lambda: standout.read(twice.to_reader()), "1 duplicate column name", "'a'")
    refused(lambda: standout.read(pl.from_arrow(numbers).lazy(), groups="donor"), "'donor'")


def test_a_query_that_fails_is_an_error_with_its_reason(table, tmp_path, refused):
    frame = pl.from_arrow(table).lazy().select(pl.col("nowhere"))
    refused(lambda: standout.read(frame), "LazyFrame", "nowhere")
    refused(lambda: standout.read(pl.scan_parquet(tmp_path / "none.parquet")), "LazyFrame", "cannot be read")

    def bad(batch):
        raise ValueError("a sensor failed")

    late = pl.from_arrow(table.select(list(NAMES))).lazy().map_batches(bad, schema=dict.fromkeys(NAMES, pl.Float64))
    refused(lambda: standout.read(late), "LazyFrame", "a sensor failed")


def test_a_polars_that_does_not_report_failures_is_refused(table, monkeypatch, refused):
    monkeypatch.setattr(pl, "__version__", "1.36.1")
    refused(lambda: standout.read(pl.from_arrow(table).lazy()), "LazyFrame needs polars 1.37", "1.36.1", "Install it")


def test_a_closed_duckdb_connection_is_an_error(table, refused):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    connection = duckdb.connect()
    relation = connection.from_arrow(table.select(list(NAMES)))
    source = standout.read(relation, memory=0)
    connection.close()
    refused(lambda: standout.read(relation), "DuckDBPyRelation", "cannot be read", "connection")
    refused(lambda: Moments.of(source), "DuckDBPyRelation", "cannot be read", "connection")


def test_a_table_that_changes_between_passes_is_an_error(table, refused):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    connection = duckdb.connect()
    connection.sql("CREATE TABLE numbers AS SELECT i::DOUBLE AS a, sin(i) AS b FROM range(1000) t(i)")
    source = standout.read(connection.table("numbers"), memory=0)
    assert Moments.of(source).rows == 1000
    connection.execute("DELETE FROM numbers WHERE a > 500")
    refused(lambda: Moments.of(source), "501 rows", "1000 before")


def test_target_and_background_can_be_queries_of_one_connection(data):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    connection = duckdb.connect()
    frame = pd.DataFrame(np.vstack(data), columns=NAMES).assign(state=["ill"] * 200 + ["well"] * 300)
    connection.register("cohort", frame)
    query = "SELECT {} FROM cohort WHERE state = '{}'"
    target = connection.sql(query.format("a, b, c, d, e", "ill"))
    background = connection.sql(query.format("e, d, c, b, a", "well"))
    plain = DPCA(2).fit(data.target, background=data.background)
    for memory in ("1MB", 0):
        model = DPCA(2).fit(standout.read(target, memory=memory), background=standout.read(background, memory=memory))
        np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-9, atol=1e-10)


def test_rows_are_read_in_the_thread_of_the_caller_as_sqlite_requires(data, tmp_path):
    ibis = pytest.importorskip("ibis", reason="ibis is not installed")
    with contextlib.closing(sqlite3.connect(tmp_path / "cohort.db")) as database:
        pd.DataFrame(data.target, columns=NAMES).to_sql("cohort", database, index=False)
    table = ibis.sqlite.connect(tmp_path / "cohort.db").table("cohort")
    for memory in ("1MB", 0):
        source = standout.read(table, memory=memory)
        np.testing.assert_array_equal(np.vstack(list(source.blocks(64))), data.target)


def test_column_names_that_need_quotes_are_read_from_a_query():
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    names = ['with "quotes"', "with, comma", "Select"]
    table = pa.table(dict(zip(names, np.eye(3), strict=True)))
    source = standout.read(duckdb.connect().from_arrow(table), memory=0)
    assert source.names == tuple(names)
    np.testing.assert_array_equal(np.vstack(list(source.blocks(2))), np.eye(3))


def test_several_hugging_face_splits_are_several_backgrounds(data):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    splits = {"one": data.background[:150], "two": data.background[150:]}
    named = {
        name: datasets.Dataset.from_dict(dict(zip(NAMES, rows.T.tolist(), strict=True)))
        for name, rows in splits.items()
    }
    model = DPCA(2).fit(data.target, background=datasets.DatasetDict(named))
    np.testing.assert_allclose(model.ratios_, DPCA(2).fit(data.target, background=splits).ratios_, rtol=1e-10)


@pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
@pytest.mark.parametrize("kind", ["lazy", "csv", "csv with a checkpoint"])
def test_rows_that_are_streamed_are_split_by_label(frame, kind, tmp_path):
    described = frame.drop(columns=["gaps", "age"])
    described.to_csv(tmp_path / "rows.csv", index=False)
    table = pl.from_pandas(described).lazy() if kind == "lazy" else tmp_path / "rows.csv"
    options = {"memory": 0} | ({"checkpoint": tmp_path / "sums"} if "checkpoint" in kind else {})
    weights = np.random.default_rng(0).integers(0, 3, 500)
    for chosen in ({}, {"sample_weight": weights}, {"groups": frame["subject"]}):
        expected = DPCA(1, background_label="well").fit(frame[list(NAMES)], frame["state"], **chosen)
        rows = standout.read(table, columns=list(NAMES), **options)
        found = DPCA(1, background_label="well").fit(rows, frame["state"], **chosen)
        np.testing.assert_allclose(found.ratios_, expected.ratios_, rtol=1e-10)
        if "groups" not in chosen:  # the rows show how alike those of a group are, the moments do not
            np.testing.assert_allclose(found.noise_edge_, expected.noise_edge_, rtol=1e-10)
    labelled = standout.read(table, **options, label="state", groups="subject", drop="row")
    again = DPCA(1, background_label="well").fit(labelled)
    np.testing.assert_allclose(again.ratios_, expected.ratios_, rtol=1e-10)
    assert list(again.feature_names_in_) == list(NAMES)
    assert again.noise_edge_ == found.noise_edge_


def test_a_reader_larger_than_memory_is_not_split_by_label(table, refused):
    rows = standout.read(table.to_reader(64), memory=0, label="state", drop=["subject", "row", "gaps"])
    refused(lambda: DPCA(1, background_label="well").fit(rows), "read more than once", kind=RowsNeededError)


def test_a_dict_of_datasets_is_not_one_target(data, refused):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    split = datasets.Dataset.from_dict(dict(zip(NAMES, data.target.T.tolist(), strict=True)))
    refused(lambda: DPCA().fit(datasets.DatasetDict(train=split)), "target: a dict of datasets, 'train'", "Give one")


def test_columns_of_any_type_may_stand_next_to_the_features():
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    query = "select x, x * x as y, to_days(x::int) as age, {'a': x} as pair, uuid() as id from range(5) t(x)"
    with pytest.warns(FeatureWarning, match="'age', 'pair', 'id'"):
        assert standout.read(duckdb.sql(query)).names == ("x", "y")


@pytest.mark.parametrize("form", ["Table", "RecordBatch"])
def test_scores_of_arrow_columns_of_float32_are_float32(data, form):
    table = pa.table(dict(zip(NAMES, data.target.astype(np.float32).T, strict=True)))
    rows = table if form == "Table" else table.to_batches()[0]
    model = DPCA(1).fit(rows, background=pa.table(dict(zip(NAMES, data.background.T, strict=True))))
    assert model.transform(rows).dtype == np.float32
    half = table.set_column(0, NAMES[0], pa.array(data.target[:, 0]))
    assert model.transform(half).dtype == np.float64


def test_selected_and_shuffled_rows_of_a_hugging_face_dataset_are_read_in_that_order(data):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    rows = datasets.Dataset.from_dict(dict(zip(NAMES, data.target.T.tolist(), strict=True)))
    order = [5, 3, 99, 3]
    source = standout.read(rows.select(order), memory=0)
    np.testing.assert_array_equal(np.vstack(list(source.blocks(64))), data.target[order])


@pytest.mark.shows("xarray Dataset", "accepted", "names", "groups")
def test_coordinates_of_xarray_rows_can_be_groups_labels_and_ids(data):
    import xarray as xr

    donors, rows = np.repeat(np.arange(40), 5), [f"r{i}" for i in range(200)]
    coordinates = {"donor": ("cell", donors), "cell": rows}
    array = xr.DataArray(data.target, dims=("cell", "gene"), coords={"gene": list(NAMES), **coordinates})
    variables = {name: ("cell", data.target[:, i]) for i, name in enumerate(NAMES)}
    for table in (array, xr.Dataset(variables, coords=coordinates)):
        source = standout.read(table, groups="donor", ids="cell")
        assert source.names == NAMES
        assert source.groups.tolist() == list(map(str, donors))
        assert source.row_ids.tolist() == rows
        background = {"background": data.background, "background_groups": np.arange(300)}
        model, plain = DPCA(2).fit(source, **background), DPCA(2).fit(data.target, groups=donors, **background)
        np.testing.assert_allclose([*model.ratios_, model.p_value_], [*plain.ratios_, plain.p_value_], rtol=1e-9)


# Rows of 24 numbers, 240 MB in all; sampled after every block, without pages of mapped files.
MEMORY = """
import re, sys
import numpy as np
from pathlib import Path
import standout
from standout.io.source import watching

def anonymous():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1000

parquet, few_rows, arrow = sys.argv[1:]
{make}
standout.Moments.of(standout.read(small, memory=0))  # what the library itself takes
before, seen = anonymous(), []
with watching(lambda _: seen.append(anonymous())):
    moments = standout.Moments.of(standout.read(table, memory="16MB"))
assert moments.rows >= 1_250_000, moments.rows
print(max(seen) - before)
"""
COLUMNS = ", ".join(f"sin(i * {1 + j}.7) AS x{j}" for j in range(24))
QUERIES = f"table, small = (sql(f'SELECT {COLUMNS} FROM range({{n}}) t(i)') for n in (1250000, 9999))"
BOUNDED = {  # kind: package, code
    "DuckDB relation": ("duckdb", f"import duckdb; sql = duckdb.sql; {QUERIES}"),
    "Ibis table": ("ibis", f"import ibis; sql = ibis.duckdb.connect().sql; {QUERIES}"),
    "polars LazyFrame": ("polars", "from polars import scan_parquet as p; table, small = p(parquet), p(few_rows)"),
    "pyarrow Dataset": ("pyarrow", "from pyarrow.dataset import dataset as d; table, small = d(parquet), d(few_rows)"),
    "pyarrow Dataset, a union": (
        "pyarrow",
        "from pyarrow.dataset import dataset as d; table, small = d([d(parquet), d(few_rows)]), d(few_rows)",
    ),
    "Hugging Face Dataset": (
        "datasets",
        "from datasets import Dataset; table = Dataset.from_file(arrow); small = table.select(range(9999))",
    ),
}


@pytest.fixture(scope="module")
def large_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    names = [f"x{j}" for j in range(24)]
    part = pa.table(dict(zip(names, np.random.default_rng(0).normal(size=(24, 50_000)), strict=True)))
    pa.parquet.write_table(part.slice(0, 9999), folder / "few rows.parquet")
    with (
        pa.parquet.ParquetWriter(folder / "rows.parquet", part.schema, compression="none") as parquet,
        pa.OSFile(str(folder / "rows.arrow"), "wb") as file,
        pa.ipc.new_stream(file, part.schema) as arrow,
    ):
        for _ in range(25):
            parquet.write_table(part, row_group_size=10_000)
            arrow.write_table(part, max_chunksize=10_000)
    return folder / "rows.parquet", folder / "few rows.parquet", folder / "rows.arrow"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc")
@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.shows(k.split(",")[0], "out of core", "lazy")) for k in BOUNDED]
)
def test_rows_that_are_streamed_take_a_fraction_of_their_size_in_memory(kind, large_files):
    package, make = BOUNDED[kind]
    pytest.importorskip(package, reason=f"{package} is not installed")
    command = [sys.executable, "-W", "ignore", "-c", MEMORY.replace("{make}", make), *map(str, large_files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) < 80  # MB, of 240
