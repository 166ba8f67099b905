"""Columns of vectors, as tables of embeddings have: every element is a feature."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import feather
from pyarrow import parquet as pq

import standout
from standout import DPCA
from standout.errors import FeatureError, FeatureWarning


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(300, 6)) * [4, 1, 1, 1, 1, 1], rng.normal(size=(400, 6))


def table(rows, kind=None, **columns):
    vectors = pa.array(list(rows), type=kind or pa.list_(pa.float64()))
    return pa.table({"text": [f"document {i}" for i in range(len(rows))], "embedding": vectors, **columns})


WRITERS = {
    "parquet": lambda data, path: pq.write_table(data, path, row_group_size=70),
    "feather": lambda data, path: feather.write_feather(data, path, chunksize=70),
}
KINDS = {
    "lists": pa.list_(pa.float64()),
    "large lists": pa.large_list(pa.float64()),
    "fixed size": pa.list_(pa.float64(), 6),
    "half precision": pa.list_(pa.float32(), 6),
}


@pytest.mark.parametrize("memory", ["256MB", 0])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.shows("table of vectors (embeddings)", "accepted", "names", "out of core")
def test_elements_of_vectors_are_features(rows, tmp_path, suffix, kind, memory):
    for name, part in zip(("target", "background"), rows, strict=True):
        WRITERS[suffix](table(part, KINDS[kind]), tmp_path / f"{name}.{suffix}")
    read = [
        standout.read(tmp_path / f"{name}.{suffix}", ids="text", memory=memory) for name in ("target", "background")
    ]
    model = DPCA(1).fit(read[0], background=read[1])
    exact = kind != "half precision"
    plain = DPCA(1).fit(*[part if exact else part.astype(np.float32) for part in rows][:1], background=rows[1])
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-10 if exact else 1e-5, atol=1e-6)
    assert list(model.feature_names_in_) == [f"embedding[{i}]" for i in range(6)]
    assert model.extremes(read[0])[0].low[0].label.startswith("document ")


def test_vectors_and_numbers_are_chosen_by_name(rows, tmp_path):
    pq.write_table(table(rows[0], length=np.arange(300.0)), tmp_path / "x.parquet")
    source = standout.read(tmp_path / "x.parquet", columns=["embedding[4]", "length", "embedding[0]"], ids="text")
    np.testing.assert_array_equal(source.collect("x")[:5, 1], np.arange(5.0))
    np.testing.assert_allclose(source.collect("x")[:, [2, 0]], rows[0][:, [0, 4]])
    rest = standout.read(tmp_path / "x.parquet", drop="embedding[*]", ids="text")
    assert rest.names == ("length",)


STREAMS = {
    "reader": lambda data: data.to_reader(max_chunksize=50),
    "polars lazy": lambda data: pl.from_arrow(data).lazy(),
}


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("memory", ["256MB", 2_000])
def test_vectors_of_streams_are_features(rows, stream, memory):
    read = [standout.read(STREAMS[stream](table(part)), ids="text", memory=memory) for part in rows]
    model = DPCA(1).fit(read[0], background=read[1])
    np.testing.assert_allclose(model.ratios_, DPCA(1).fit(rows[0], background=rows[1]).ratios_, rtol=1e-10)


def test_missing_vectors_are_missing_rows(rows, tmp_path):
    vectors = [*rows[0][:5].tolist(), None, *rows[0][5:].tolist()]
    vectors[8] = [*vectors[8][:5], None]
    pq.write_table(pa.table({"embedding": pa.array(vectors, pa.list_(pa.float64()))}), tmp_path / "x.parquet")
    with pytest.raises(standout.errors.NonFiniteError, match=r"7 NaN and 0 inf values in 6 of 6 features"):
        DPCA(1).fit(tmp_path / "x.parquet")
    assert standout.read(tmp_path / "x.parquet", missing="drop_rows").n_rows == 299


def test_vectors_of_different_lengths_are_an_error(tmp_path, refused):
    data = pa.table({"x": np.arange(4.0), "v": [[1.0, 2.0], [3.0, 4.0], [5.0], [6.0, 7.0]]})
    pq.write_table(data, tmp_path / "x.parquet")
    refused(
        lambda: standout.read(tmp_path / "x.parquet"),
        "x.parquet", "column 'v' holds vectors of 2 and of 1 values", "drop='v[*]'", kind=FeatureError,
    )  # fmt: skip
    assert standout.read(tmp_path / "x.parquet", drop="v[*]").names == ("x",)


def test_lists_of_integers_are_not_vectors(tmp_path):
    data = pa.table({"x": np.arange(4.0), "tokens": [[1, 2], [3], [4, 5, 6], []]})
    pq.write_table(data, tmp_path / "x.parquet")
    with pytest.warns(FeatureWarning, match="'tokens'"):
        assert standout.read(tmp_path / "x.parquet").names == ("x",)


def test_a_column_without_any_vector_is_not_used(tmp_path):
    data = pa.table({"x": np.arange(3.0), "v": pa.array([None, None, None], pa.list_(pa.float64()))})
    pq.write_table(data, tmp_path / "x.parquet")
    with pytest.warns(FeatureWarning, match="'v'"):
        assert standout.read(tmp_path / "x.parquet").names == ("x",)


def test_a_pandas_frame_of_vectors_is_read_from_its_parquet_file(rows, tmp_path):
    frame = pd.DataFrame({"text": [f"d{i}" for i in range(300)], "embedding": list(rows[0])})
    frame.to_parquet(tmp_path / "x.parquet")
    np.testing.assert_array_equal(standout.read(tmp_path / "x.parquet", ids="text").collect("x"), rows[0])


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_vectors_that_are_longer_than_the_file_are_an_error_at_once(tmp_path, suffix, refused):
    table = pa.table({"vector": pa.array([], pa.list_(pa.float32(), 2**31 - 1))})
    path = tmp_path / f"a.{suffix}"
    (pq.write_table if suffix == "parquet" else feather.write_feather)(table, path)
    refused(lambda: standout.read(path), path.name, "2,147,483,647 elements", "intact copy")
