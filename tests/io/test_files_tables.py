"""Tables in files give the models of their arrays, in memory and streamed, with metadata."""

import bz2
import gzip
import lzma
import subprocess
import sys
import warnings
import zipfile

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

import standout
from conftest import NAMES
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import FeatureWarning, InputError, NonFiniteError, StandoutWarning
from standout.io.csv import end_of_rows
from standout.io.options import as_bytes
from standout.io.source import block_rows, watching
from standout.io.stream import Stream, TableInMemory

noise = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
quiet = pytest.mark.filterwarnings("ignore::standout.errors.FeatureWarning")


def table(rows, names=NAMES):
    return pd.DataFrame(np.asarray(rows), columns=list(names))


def packed(frame, path):
    with gzip.open(path, "wt") as file:
        frame.to_csv(file, index=False)


def members(frame, path):
    """Write a file of several gzip members, as bgzip does."""
    half = len(frame) // 2
    parts = (frame[:half].to_csv(index=False), frame[half:].to_csv(index=False, header=False))
    path.write_bytes(b"".join(gzip.compress(part.encode()) for part in parts))


def zipped(frame, path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__MACOSX/._table.csv", b"junk of a Mac")
        archive.writestr("table.csv", frame.to_csv(index=False))


def squeezed(compress, frame, path):
    """Write a file of several compressed streams, as parallel compressors do."""
    half = len(frame) // 2
    parts = (frame[:half].to_csv(index=False), frame[half:].to_csv(index=False, header=False))
    path.write_bytes(b"".join(compress(part.encode()) for part in parts))


def write_table(frame, separator=" ", quote='"'):
    """Return the bytes that ``write.table(frame, sep=separator)`` of R writes: no name for the row names."""
    lines = [separator.join(f"{quote}{name}{quote}" for name in frame.columns)]
    for number, row in enumerate(frame.itertuples(index=False), 1):
        lines.append(separator.join([f"{quote}{number}{quote}", *(f"{value:.15g}" for value in row)]))
    return "\n".join([*lines, ""]).encode()


def commented(frame):
    first, *rest = frame.to_csv(index=False).splitlines()
    half = len(rest) // 2
    return "\n".join(
        ["# instrument 7, 2 Hz", "#", "", first, "# start", *rest[:half], "#stopped", *rest[half:], "# end"]
    )


def ipc_stream(frame, path):
    whole = pa.Table.from_pandas(frame)
    with pa.ipc.new_stream(path, whole.schema) as writer:
        writer.write_table(whole, max_chunksize=40)


# format → (suffix, writer)
KINDS = {
    "csv": ("csv", lambda f, p: f.to_csv(p, index=False)),
    "csv with an index": ("csv", lambda f, p: f.to_csv(p)),
    "csv of Excel": ("csv", lambda f, p: f.to_csv(p, index=False, encoding="utf-8-sig", lineterminator="\r\n")),
    "csv, all quoted": ("csv", lambda f, p: f.to_csv(p, index=False, quoting=1)),
    "csv with decimal commas": ("csv", lambda f, p: f.to_csv(p, index=False, sep=";", decimal=",")),
    "csv without an end": ("csv", lambda f, p: p.write_text(f.to_csv(index=False).rstrip())),
    "tsv": ("tsv", lambda f, p: f.to_csv(p, index=False, sep="\t")),
    "txt with semicolons": ("txt", lambda f, p: f.to_csv(p, index=False, sep=";")),
    "txt with spaces": ("txt", lambda f, p: f.to_csv(p, index=False, sep=" ")),
    "txt with decimal commas": ("txt", lambda f, p: (f + 0.5).to_csv(p, index=False, sep="\t", decimal=",")),
    "csv of Excel, Unicode": ("csv", lambda f, p: f.to_csv(p, index=False, encoding="utf-16")),
    "csv of numpy": ("csv", lambda f, p: np.savetxt(p, f, delimiter=",", header=",".join(f.columns))),
    "csv with comments": ("csv", lambda f, p: p.write_text(commented(f))),
    "R table": ("txt", lambda f, p: p.write_bytes(write_table(f))),
    "R table, tabs": ("tsv", lambda f, p: p.write_bytes(write_table(f, "\t", ""))),
    "R table, commas": ("csv", lambda f, p: p.write_bytes(write_table(f, ","))),
    "csv.bz2": ("csv.bz2", lambda f, p: squeezed(bz2.compress, f, p)),
    "csv.xz": ("csv.xz", lambda f, p: squeezed(lzma.compress, f, p)),
    "csv.zst": ("csv.zst", lambda f, p: squeezed(lambda b: pa.Codec("zstd").compress(b).to_pybytes(), f, p)),
    "csv.zip": ("csv.zip", zipped),
    "csv.gz": ("csv.gz", packed),
    "csv.gz in members": ("CSV.GZ", members),
    "parquet": ("parquet", lambda f, p: f.to_parquet(p)),
    "parquet, row groups": ("pq", lambda f, p: f.to_parquet(p, row_group_size=33)),
    "parquet with an index": ("parquet", lambda f, p: f.set_index(pd.Index(range(len(f))[::-1])).to_parquet(p)),
    "parquet, float32": ("parquet", lambda f, p: f.astype("float32").to_parquet(p)),
    "parquet, whole numbers": ("parquet", lambda f, p: f.astype("int64").to_parquet(p)),
    "feather": ("feather", lambda f, p: pa.feather.write_feather(f, p, chunksize=50)),
    "arrow stream": ("arrow", ipc_stream),
    "arrow of polars": ("arrow", lambda f, p: pl.from_pandas(f).write_ipc(p)),
}


def written(kind, rows, folder, name="rows"):
    ending, write = KINDS[kind]
    path = folder / f"{name}.{ending}"
    write(table(rows), path)
    return path


def assert_same(model, expected):
    np.testing.assert_allclose(model.ratios_, expected.ratios_, rtol=1e-12)
    np.testing.assert_allclose(model.components_, expected.components_, rtol=1e-12, atol=1e-12)


SHOWN = {"csv of Excel, Unicode": "csv, UTF-16", "R table": "R table"}
SHOWN |= {f"csv.{ending}": f"csv.{ending}" for ending in ("gz", "bz2", "xz", "zst", "zip")}


def shown(kind):
    marks = [pytest.mark.shows(SHOWN[kind], "accepted", "names", "out of core")] if kind in SHOWN else []
    return pytest.param(kind, marks=marks)


@pytest.mark.parametrize("kind", [shown(kind) for kind in KINDS])
def test_a_file_gives_the_model_of_the_array_it_holds(data, kind, tmp_path):
    target, background = (written(kind, rows, tmp_path, name) for rows, name in zip(data, "tb", strict=True))
    expected = DPCA(n_components=2).fit(data.target, background=data.background)
    model = DPCA(n_components=2).fit(target, background=str(background))
    assert_same(model, expected)
    assert tuple(model.feature_names_in_) == NAMES
    np.testing.assert_allclose(model.transform(target), expected.transform(data.target), rtol=0, atol=1e-10)
    streams = [standout.read(path, memory=0) for path in (target, background)]
    assert all(isinstance(stream, Stream) for stream in streams)
    assert_same(DPCA(n_components=2).fit(streams[0], background=streams[1]), expected)


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet", "feather"])
@pytest.mark.parametrize("memory", ["1GB", 0])
def test_a_directory_or_pattern_is_one_dataset_in_the_order_of_file_names(data, kind, memory, tmp_path):
    for place, part in enumerate(np.array_split(data.target, 3)):
        written(kind, part, tmp_path, f"part-{place}")
    for given in (tmp_path, tmp_path / "part-*"):
        source = standout.read(given, memory=memory)
        np.testing.assert_array_equal(np.concatenate(list(source.blocks(64))), data.target)


def test_files_of_one_dataset_may_differ_in_column_order(data, tmp_path):
    frame = table(data.target)
    frame[:50].to_csv(tmp_path / "1.csv", index=False)
    frame[50:][list("edcba")].to_csv(tmp_path / "2.csv", index=False, sep=";")
    np.testing.assert_array_equal(standout.read(tmp_path).array, data.target)


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet, row groups", "feather", "arrow stream"])
def test_block_sizes_do_not_depend_on_the_batches_of_the_file(data, kind, tmp_path):
    path = written(kind, data.target, tmp_path)
    for rows in (1, 7, 50, 64, 10**6):
        for memory in ("1GB", 0):
            blocks = list(standout.read(path, memory=memory).blocks(rows))
            assert [len(block) for block in blocks[:-1]] == [rows] * (len(blocks) - 1) and len(blocks[-1]) <= rows
            np.testing.assert_array_equal(np.concatenate(blocks), data.target)


@quiet
def test_every_column_type_is_numeric_or_text_as_in_pandas(tmp_path):
    frame = pd.DataFrame({
        "whole": [1, 2, 3], "real": [0.5, np.nan, -1e-3], "truth": [True, False, True], "big": [2**60, 1, 2],
        "text": ["x", "", "z"], "kind": pd.Categorical(["u", "v", "u"]), "empty": [np.nan] * 3,
        "day": pd.to_datetime(["2020-01-01 00:00:00", "2020-01-02 12:30:00", None]), "list": [[1, 2], None, [3]],
    })  # fmt: skip
    whole = pa.Table.from_pandas(frame)
    for name, column in (
        ("null", pa.array([1, None, 3])),
        ("decimal", pa.array(["1.50", None, "3"]).cast(pa.decimal128(9, 2))),
        ("maybe", pa.array([True, None, False])),
    ):
        whole = whole.append_column(name, column)
    pa.parquet.write_table(whole, tmp_path / "a.parquet")
    source = standout.read(tmp_path / "a.parquet")
    assert source.names == ("whole", "real", "truth", "big", "empty", "null", "decimal", "maybe")
    expected = [[1, 0.5, 1, 2**60, np.nan, 1, 1.5, 1], [2, np.nan, 0, 1, np.nan, np.nan, np.nan, np.nan],
                [3, -1e-3, 1, 2, np.nan, 3, 3, 0]]  # fmt: skip
    np.testing.assert_array_equal(source.array, expected)
    assert source.aside == ("text", "kind", "day", "list")
    assert source.about("text").tolist() == ["x", "", "z"] and source.about("kind").tolist() == ["u", "v", "u"]
    assert source.about("day").tolist() == ["2020-01-01 00:00:00", "2020-01-02 12:30:00", None]
    assert source.about("list").tolist() == ["[1, 2]", None, "[3]"]
    frame.drop(columns=["list"]).to_csv(tmp_path / "a.csv", index=False)
    as_csv = standout.read(tmp_path / "a.csv")
    np.testing.assert_array_equal(as_csv.array, np.array(expected)[:, :5])
    assert as_csv.about("text").tolist() == ["x", None, "z"]


def test_only_the_usual_spellings_of_missing_values_are_missing(tmp_path, refused):
    spellings = ["", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "#N/A", "-nan", " NA"]
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "".join(f"{spelling},1\n" for spelling in spellings) + "7,1\n")
    source = standout.read(path)
    np.testing.assert_array_equal(source.array[:, 0], [*[np.nan] * len(spellings), 7])
    path.write_text("a,b\n1,1\n2,1\n.,2\n")
    refused(lambda: standout.read(path), "a.csv, line 4: ", "column 'a'", "'.'", "Leave the cell empty")


def test_an_empty_column_is_a_feature_of_missing_values(tmp_path, refused):
    path = tmp_path / "a.csv"
    path.write_text("a,b,c\n" + "1,,3\n2,,5\n" * 5)
    refused(lambda: Moments.of(path), "10 NaN", "b (10)", kind=NonFiniteError)
    assert standout.read(path, drop="b").names == ("a", "c")


def test_metadata_columns_keep_the_text_of_the_file(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('id,x,class,g\n007,1,1.50,NA\n"a,b",2, spaced,\n1e3,3,"two\nlines",7\n')
    for memory in ("1GB", 0):
        source = standout.read(path, ids="id", label="class", groups="g", memory=memory)
        assert source.names == ("x",)
        assert source.row_ids.tolist() == ["007", "a,b", "1e3"]
        assert source.labels.tolist() == ["1.50", " spaced", "two\nlines"]
        assert source.groups.tolist() == ["NA", None, "7"]


def test_non_numeric_columns_give_one_warning_at_the_users_line(data, tmp_path, remedy):
    path = tmp_path / "mice.csv"
    table(data.target).assign(sex="f", cage="c7").to_csv(path, index=False)
    calls = [lambda: standout.read(path), lambda: DPCA(n_components=1).fit(path, background=data.background)]
    for call in calls:
        with pytest.warns(FeatureWarning, match="mice.csv: 2 non-numeric columns .*'sex', 'cage'") as reported:
            call()
        assert len(reported) == 1 and reported[0].filename == __file__
        remedy(reported[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = standout.read(path, label="sex", drop="cage")
        standout.read(path, columns=["a", "b"])
    assert source.aside == ("sex",)


@pytest.mark.parametrize("memory", ["1GB", 0])
@pytest.mark.parametrize("kind", ["csv", "parquet", "feather", "pandas", "polars"])
def test_rows_are_selected_by_metadata(data, kind, memory, tmp_path, refused):
    rng = np.random.default_rng(0)
    frame = table(data.target).assign(
        kind=rng.choice(["ill", "well", "odd"], 200), day=rng.integers(0, 4, 200), dose=rng.choice([1.0, 2.5], 200),
        late=rng.choice([True, False], 200),
    )  # fmt: skip

    def chosen(**where):
        given = {"pandas": frame, "polars": pl.from_pandas(frame)}.get(kind, tmp_path / f"a.{kind}")
        if isinstance(given, type(tmp_path)):
            KINDS[kind][1](frame, given)
        source = standout.read(given, where=where, label="kind", drop=["day", "dose", "late"], memory=memory)
        return np.concatenate(list(source.blocks(30))), source.labels

    for wanted, kept in (
        ({"kind": "ill"}, frame.kind == "ill"),
        ({"kind": ["ill", "odd"], "day": [0, 3]}, frame.kind.isin(["ill", "odd"]) & frame.day.isin([0, 3])),
        ({"day": "2", "dose": 2.5, "late": True}, (frame.day == 2) & (frame.dose == 2.5) & frame.late),
    ):
        rows, labels = chosen(**wanted)
        np.testing.assert_array_equal(rows, data.target[kept])
        assert labels.tolist() == frame.kind[kept].tolist()
    np.testing.assert_array_equal(chosen(dose=1)[0], data.target[frame.dose == 1])
    refused(lambda: chosen(kind=["ill", "wel"]), "no row has 'wel' in column 'kind'", "Did you mean 'well'?", "'odd'")
    refused(lambda: chosen(colour="red"), "where column 'colour' is not one of its columns")
    frame.loc[frame.kind == "ill", "day"] = 0
    refused(lambda: chosen(kind="ill", day="2"), "no row meets all conditions", "Leave one of the conditions out")


@pytest.mark.filterwarnings("ignore:.*missing='mean'` filled:standout.errors.StandoutWarning")
@pytest.mark.parametrize("memory", ["1GB", 0])
@pytest.mark.parametrize("how", ["drop_rows", "drop_features", "mean"])
@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet", "feather", "pandas"])
def test_missing_values_are_handled_as_in_pandas(data, kind, how, memory, tmp_path):
    frame = table(data.target)
    frame[["a", "c"]] = frame[["a", "c"]].mask(np.random.default_rng(1).random((200, 2)) < 0.2)
    labelled = frame.assign(state=np.where(np.arange(200) % 3, "on", "off"), who=[f"m{i}" for i in range(200)])
    on = labelled.state == "on"
    expected = {"drop_rows": frame[on].dropna(), "drop_features": frame[on].dropna(axis=1),
                "mean": frame[on].fillna(frame[on].mean())}[how]  # fmt: skip
    if kind == "pandas":
        given = labelled
    else:
        KINDS[kind][1](labelled, given := tmp_path / f"a.{kind}")
    source = standout.read(given, where={"state": "on"}, ids="who", missing=how, memory=memory)
    blocks = list(source.blocks(16))
    np.testing.assert_allclose(np.concatenate(blocks), expected.to_numpy(), rtol=1e-13)
    assert source.names == tuple(expected.columns)
    assert source.row_ids.tolist() == labelled.who[expected.index].tolist()
    assert source.n_rows == source.account.rows == len(expected)
    assert source.account.missing == {name: int(frame[on][name].isna().sum()) for name in "ac"}


@pytest.mark.data
@pytest.mark.filterwarnings("ignore:.*missing='mean'` filled:standout.errors.StandoutWarning")
@pytest.mark.parametrize("memory", ["1GB", 0])
def test_the_mice_are_read_as_by_pandas(real_data, memory):
    path = real_data("Data_Cortex_Nuclear.csv")
    frame = pd.read_csv(path, encoding="utf-8-sig")
    here = frame[frame["class"].isin(["t-SC-m", "t-SC-s"])]
    numbers = here.filter(like="_N")
    with pytest.warns(FeatureWarning, match="3 non-numeric columns .* 'Genotype', 'Treatment', 'Behavior'"):
        source = standout.read(
            path, where={"class": ["t-SC-m", "t-SC-s"]}, label="class", ids="MouseID", missing="mean", memory=memory
        )
    rows = np.concatenate(list(source.blocks(100)))
    np.testing.assert_allclose(rows, numbers.fillna(numbers.mean()).to_numpy(), rtol=1e-12)
    assert source.names == tuple(numbers.columns)
    assert source.labels.tolist() == here["class"].tolist() and source.row_ids.tolist() == here["MouseID"].tolist()


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_numeric_groups_count_units_like_text_groups(data, kind, tmp_path):
    subjects = np.arange(200) // 4
    KINDS[kind][1](table(data.target).assign(subject=subjects), path := tmp_path / f"a.{kind}")
    for memory in ("1GB", 0):
        source = standout.read(path, groups="subject", memory=memory)
        assert source.names == NAMES
        assert Moments.of(source).units == 50 == Moments.of(data.target, groups=subjects).units
        assert source.groups.tolist() == [str(subject) for subject in subjects]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_labels_take_eight_bytes_a_row(kind, tmp_path):
    labels = np.array(["a rather long name of a class", "another"])[np.arange(50_000) % 2]
    frame = pd.DataFrame({"x": np.arange(50_000.0), "class": labels})
    KINDS[kind][1](frame, path := tmp_path / f"a.{kind}")
    for memory in ("1GB", 0):
        found = standout.read(path, label="class", memory=memory).labels
        assert found.dtype == object and found.nbytes == 400_000
        assert len({id(label) for label in found}) == 2


def test_a_table_that_does_not_fit_in_memory_is_streamed(tmp_path):
    rows = np.random.default_rng(0).normal(size=(60_000, 4)).round(3)
    table(rows, "abcd").to_csv(path := tmp_path / "a.csv", index=False)
    assert isinstance(standout.read(path, memory=rows.nbytes), TableInMemory)
    # Slightly too little memory: loading is tried and abandoned.
    for memory in (rows.nbytes - 1, 0.8 * rows.nbytes, 0.1 * rows.nbytes):
        source = standout.read(path, memory=memory)
        assert isinstance(source, Stream)
        np.testing.assert_array_equal(np.concatenate(list(source.blocks(4096))), rows)
        assert source.n_rows == len(rows)


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet, row groups", "feather", "arrow stream"])
def test_progress_goes_from_0_to_1(data, kind, tmp_path):
    for place, part in enumerate(np.array_split(np.tile(data.target, (40, 1)), 2)):
        written(kind, part, tmp_path, f"part{place}")
    for memory in ("1GB", 0):
        reported = []
        with watching(reported.append):
            sum(len(block) for block in standout.read(tmp_path / "part*", memory=memory).blocks(500))
        shares = [progress.share for progress in reported]
        assert shares == sorted(shares) and 0 < shares[0] < 1 and shares[-1] == pytest.approx(1, abs=1e-3)
        assert reported[-1].rows == 8000


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_numbers_and_metadata_are_read_in_one_pass(data, kind, tmp_path):
    frame = table(data.target).assign(kind="x", who=range(200), cage=np.arange(200) // 4)
    KINDS[kind][1](frame, path := tmp_path / f"a.{kind}")
    source = standout.read(path, label="kind", ids="who", groups="cage", memory=0)
    reported = []
    with watching(reported.append):
        assert sum(len(block) for block in source.blocks(1000)) == 200
        assert len(source.labels) == len(source.row_ids) == len(source.groups) == source.n_rows == 200
    assert len(reported) == 1
    again = standout.read(path, label="kind", ids="who", groups="cage", memory=0)
    with watching(reported.append):
        assert again.row_ids[-1] == "199" and again.labels[0] == "x" and again.groups[4] == "1"
    assert len(reported) == 2


def test_numbered_and_unnamed_columns_have_predictable_names(tmp_path):
    path = tmp_path / "a.csv"
    frame = pd.DataFrame(np.arange(12.0).reshape(3, 4))
    for how in ({}, {"index": False}):  # ,0,1,2,3 and 0,1,2,3
        frame.to_csv(path, **how)
        source = standout.read(path)
        assert source.names == ("0", "1", "2", "3")
        np.testing.assert_array_equal(source.array, frame.to_numpy())
        assert source.row_ids is None if how else source.row_ids.tolist() == ["0", "1", "2"]
    frame.to_csv(path)
    assert standout.read(path, columns=["index", "2"]).names == ("index", "2")
    assert standout.read(path, drop="index").aside == ()
    path.write_text("a,,c\n1,2,3\n4,5,6\n")
    assert standout.read(path).names == ("a", "column 2", "c")
    path.write_text("sample,1100,1102.5,1105\ns1,2,3,4\ns2,5,6,7\n")  # wavelengths
    assert standout.read(path, ids="sample").names == ("1100", "1102.5", "1105")
    path.write_text("1,2,4,8,16,32,64,128\n2,3,4,5,6,7,8,9\n")
    assert standout.read(path).n_rows == 1


@quiet
def test_a_data_frame_has_the_options_of_a_file(data):
    frame = table(data.target).assign(kind=["x", "y"] * 100, who=range(200))
    for given in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        source = standout.read(given, label="kind", ids="who", columns=["c", "a*", "b"])
        assert source.names == ("c", "a", "b")
        np.testing.assert_array_equal(source.array, data.target[:, [2, 0, 1]])
        assert source.labels.tolist() == ["x", "y"] * 100 and source.row_ids[:2].tolist() == ["0", "1"]
    with pytest.warns(StandoutWarning, match="`missing='mean'` filled 1 values"):
        numbered = standout.read(pd.DataFrame([[1.0, np.nan], [3.0, 4.0]]), missing="mean")
    np.testing.assert_array_equal(numbered.array, [[1, 4], [3, 4]])
    assert numbered.names is None
    with pytest.raises(InputError, match="no rows"):
        standout.read(frame[:0], label="kind")


READ = """
import resource, sys, standout
start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
source = standout.read(sys.argv[1], label="kind")
assert sum(len(block) for block in source.blocks(4096)) == source.n_rows == len(source.labels)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) / 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_larger_than_memory_is_read_in_a_few_hundred_megabytes(kind, tmp_path):
    rows = np.random.default_rng(0).normal(size=(1_000_000, 40))  # one row group, 320 MB
    frame = pa.table({f"x{i}": column for i, column in enumerate(rows.T)} | {"kind": ["a", "b"] * 500_000})
    path = tmp_path / f"a.{kind}"
    pa.csv.write_csv(frame, path) if kind == "csv" else pa.parquet.write_table(frame, path, row_group_size=len(frame))
    peak = subprocess.run([sys.executable, "-c", READ, path], capture_output=True, text=True, check=True).stdout
    assert float(peak) < 300


def test_wide_tables_are_read_in_blocks(tmp_path):
    rows = np.random.default_rng(0).normal(size=(70, 3000)).round(2)
    names = [f"gene{i}" for i in range(3000)]
    table(rows, names).to_csv(path := tmp_path / "a.csv", index=False)
    source = standout.read(path, memory=0, columns=names[::-1])
    np.testing.assert_array_equal(np.concatenate(list(source.blocks(block_rows(3000)))), rows[:, ::-1])


def test_newlines_in_quoted_values_do_not_end_a_row():
    assert end_of_rows(b'1,"a\nb"\n2,"c\n', ",") == 8
    assert end_of_rows(b'1,"a', ",") == 0


def test_memory_is_given_in_bytes_or_with_a_unit():
    assert (as_bytes("1.5GB"), as_bytes("2 KiB"), as_bytes(1000)) == (1_500_000_000, 2048, 1000)
