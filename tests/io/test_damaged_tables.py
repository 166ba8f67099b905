"""Damaged, foreign and unusual tables give an error of one line with the location and a remedy."""

import gzip
import io
import os
import shutil
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

import standout
from conftest import NAMES
from standout.errors import (
    ColumnError,
    FeatureError,
    FeatureWarning,
    InputError,
    NotNumbersError,
    StandoutError,
    StandoutWarning,
)
from standout.io.csv import TextFile
from standout.io.read import has_names

quiet = pytest.mark.filterwarnings("ignore::standout.errors.FeatureWarning")
ROWS = np.arange(60.0).reshape(12, 5)


@pytest.fixture
def rejected(refused):
    """Return a check that a file gives an error of one line with its name, these words and a remedy."""

    def check(path, *words, kind=InputError, **how):
        for memory in ("1GB", 0):
            refused(
                lambda memory=memory: list(standout.read(path, role="target", memory=memory, **how).blocks(5)),
                "target: ", path.name, *words, kind=kind,
            )  # fmt: skip
        with pytest.raises(StandoutError) as error:
            list(standout.read(path, memory=0, **how).blocks(5))
        assert "\n" not in str(error.value)

    return check


def npy_bytes():
    np.save(whole := io.BytesIO(), ROWS)
    return whole.getvalue()


TEXTS = {
    "empty": ("", ["the file is empty", "Give"]),
    "blank": ("\n \n\t\n", ["the file is empty", "Give"]),
    "a mark alone": (b"\xef\xbb\xbf", ["the file is empty", "Give"]),
    "names alone": ("a,b,c\n", ["names, but no rows", "Give a table with rows"]),
    "a quoted name alone": ('"a b"', ["names, but no rows", "Give a table with rows"]),
    "names and blank lines": ("a,b,c\n\n\n", ["names, but no rows", "Give a table with rows"]),
    "a picture": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(99), ["binary file, not text", "Check"]),
    "npy": (npy_bytes(), ["binary file, not text", "Check"]),
    "utf-16 without a mark": ("a,b\n1,2\n".encode("utf-16-le"), ["binary file", "`encoding='utf-16-le'`"]),
    "half of utf-16": ("a,b\n1,2\n".encode("utf-16")[:-1], ["not text in the encoding utf-16", "Give another"]),
    "latin-1": ("a,größe\n1,2\n".encode("latin-1"), ["line 1 is not UTF-8", "'größe'", "`encoding='cp1252'`"]),
    "latin-1 below": ("a,b\n1,2\nx,ä\n".encode("latin-1"), ["line 3 is not UTF-8", "`encoding='cp1252'`"]),
    "comments alone": ("# a\n#b,c\n\n", ["comments, but no line of column names", "Give a table"]),
    "a comment or a row": ("id,x\ns1,1\n#s2,2\ns3,3\n", ["line 3", "begins with '#' and has 2 values", "Drop"]),
    "a title": ("Study 7\n\nid,x,y\ns1,1,2\n", ["line 1 has a single value, and line 3 has 3", "`header=3`"]),
    "a title of Excel": ("Study 7,,\nid,x,y\ns1,1,2\n", ["line 1 has a single value, and line 2 has 3", "`header=2`"]),
    "a longer title": ("Study,seven\nid,x,y\ns1,1,2\n", ["names 2 columns", "in another line than 1, give `header`"]),
    "too few": ("a,b,c\n1,2,3\n4,5\n6,7,8\n", [", line 3: 2 values", "names 3 columns", "Give every row"]),
    "too many": ("a,b,c\n1,2,3\n4,5,6\n6,7,8,9\n", ["line 4: 4 values", "names 3 columns", "Give every row"]),
    "rows with numbers": ("a,b\n1,5,2\n3,5,4\n", ["line 2: 3 values", "names 2 columns", "Give every row"]),
    "rows with an end": ("a,b\nr1,2,\nr2,4,\n", ["line 2: 3 values", "names 2 columns", "Give every row"]),
    "after lines": ('a,b\n"x\ny",2\n\n4,5,6\n', ["line 5: 3 values", "names 2 columns"]),
    "names twice": ("a,b,a\n1,2,3\n", ["1 duplicate column name: 'a'", "Rename"]),
    "no names": ("0.5,1.5,0.2\n1,2,3\n", ["must contain column names", "3 of 3", "'0.5'", "Add names"]),
    "no names, two whole": ("0,1\n1,0\n", ["first line must contain column names", "Add names"]),
    "no names but an id": ("m1,0.5,1.5,0.2\nm2,2,3,4\n", ["3 of 4 entries are numbers", "Add names"]),
    "text": ("a,b\nx,y\nz,w\n", ["no features are left", "Check"]),
    "mixed": ("a,b\n1,2\n?,3\n4,5\n", [", line 3: column 'a'", "'?' is not a number", "Leave the cell empty"]),
    "hexadecimal": ("a,b\n1,2\n0x1F,3\n4,5\n", ["line 3: column 'a'", "'0x1F' is not a number"]),
    "truth and numbers": ("a,b\nTrue,2\nFalse,3\n0.5,4\n0.5,4\n0.7,2\n", ["line 2: column 'a'", "'True' is not"]),
    "thousands": ('a,b\n"1,234",2\n"5,678",3\n', ["column 'a'", "'1,234'", "decimals or thousands", "Convert them"]),
    "commas and points": ("a;b\n1,5;2.5\n3,5;4.5\n", ["'a' has decimal commas", "'b' has decimal", "Convert one"]),
    "never closed": ('a,b\n5,6\n1,"2\n3,4\n', ["begins in line 3 does not end", "Check for a quote"]),
    "packed under a plain name": (gzip.compress(b"a,b\n1,2\n"), ["compressed", "Rename it to rows.csv.gz"]),
    "zstd under a plain name": (pa.compress(b"a,b\n1,2\n", "zstd").to_pybytes(), ["Rename it to rows.csv.zst"]),
}  # fmt: skip


@quiet
@pytest.mark.parametrize("what", TEXTS)
def test_text_that_is_not_a_table_is_an_error(what, holding, rejected):
    content, words = TEXTS[what]
    rejected(holding(content), *words)


@quiet
def test_text_in_a_numeric_column_is_an_error_with_its_line(holding, rejected):
    lines = ["a,b,c"] + ["1.250000000000000000,2,"] * 110_000  # two chunks
    for line, cells, column, value in ((109_000, "1,2 g,", "b", "2 g"), (100_001, "1,2,late", "c", "late")):
        changed = lines.copy()
        changed[line - 1] = cells
        rejected(holding("\n".join(changed)), f"line {line}: column {column!r}", repr(value), kind=NotNumbersError)
    changed[100_000] = "1,2"
    rejected(holding("\n".join(changed)), "line 100001: 2 values")
    changed[100_000] = "1,2,\xe4"
    rejected(holding("\n".join(changed).encode("latin-1")), "line 100001 is not UTF-8")
    assert standout.read(holding("\n".join(changed)), drop="c").names == ("a", "b")


NUMBER_LIKE = {
    "percent": ["1%", "12 %", "-3.5%", ""],
    "points and commas": ["1.234,5", "1.234.567,25", "12,5"],
    "Swiss": ["1'234", "-2'345.5", "12"],
    "a few words": ["5%", "6%", "7%", "unknown"],
    "commas and points": ["1,234.5", "2,345,678.25", "7.5"],
}


@quiet
@pytest.mark.parametrize("what", NUMBER_LIKE)
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_numbers_in_other_notations_are_errors_and_not_labels(what, separator, holding, rejected):
    values = NUMBER_LIKE[what]
    path = holding(pd.DataFrame({"x": range(len(values)), "part": values}).to_csv(index=False, sep=separator))
    rejected(path, "column 'part'", repr(values[0]), "drop=", kind=InputError)
    assert standout.read(path, drop="part").names == ("x",)
    assert standout.read(path, label="part").labels[0] == values[0]


@pytest.mark.parametrize(
    "values",
    [
        ["2024-01-02", "2024-01-03"], ["01.02.2024", "13.12.2023"], ["309_1", "309_2"], ["A12", "B7"],
        ["555-123-4567", "555-123-4568"], ["555.123.4567", "+49 30 123456"], ["1.2.3", "1.10.0"], ["12:30", "13:45"],
        ["192.168.1.1", "10.0.0.12"], ["5 mg", "6 mg"], ["1/2", "3/4"], ["%", "'"],
    ],
)  # fmt: skip
def test_dates_codes_and_phone_numbers_are_labels(values, holding):
    path = holding("x,what\n" + "".join(f"{i},{value}\n" for i, value in enumerate(values)))
    with pytest.warns(FeatureWarning, match="'what'"):
        assert standout.read(path).names == ("x",)


def test_a_column_with_text_can_be_named_or_dropped(holding):
    path = holding("chromosome,x\n1,2\n2,3\nX,4\n")
    with pytest.raises(NotNumbersError, match="'X' is not a number"):
        standout.read(path)
    assert standout.read(path, drop="chromosome").names == ("x",)
    assert standout.read(path, label="chromosome").labels.tolist() == ["1", "2", "X"]
    assert standout.read(path, columns="x").names == ("x",)


def test_unknown_columns_are_errors_with_the_nearest_name(holding, rejected):
    path = holding("id,Height,width\nx,1,2\ny,3,4\n")
    rejected(path, "label column 'ID'", "Did you mean 'id'?", "Use one of its columns", kind=ColumnError, label="ID")
    rejected(path, "'heigth'", "Did you mean 'Height'?", kind=FeatureError, columns=["heigth"])
    rejected(path, "drop='widht'", "Did you mean 'width'?", kind=ColumnError, drop="widht")
    rejected(path, "column 'id' is not numeric", "Leave it out", kind=FeatureError, columns=["id", "width"])


@pytest.mark.parametrize("ending", ["csv", "parquet", "feather"])
def test_files_with_different_columns_are_an_error(ending, tmp_path, rejected):
    first = pd.DataFrame(ROWS, columns=list(NAMES))
    write = {"csv": lambda f, p: f.to_csv(p, index=False)}.get(ending, lambda f, p: getattr(f, f"to_{ending}")(p))
    write(first, tmp_path / f"1.{ending}")
    write(first.rename(columns={"c": "C"}), tmp_path / f"2.{ending}")
    rejected(tmp_path, f"2.{ending}: its columns differ from those of 1.{ending}: 'c' missing, 'C' added", "Give files",
         kind=FeatureError)  # fmt: skip
    write(first.astype({"c": str}).assign(c="text"), tmp_path / f"2.{ending}")
    rejected(tmp_path, "column 'c'", kind=NotNumbersError)
    assert standout.read(tmp_path, drop="c").n_rows == 24
    write(first[:0], tmp_path / f"1.{ending}")  # a part without rows
    write(first, tmp_path / f"2.{ending}")
    assert standout.read(tmp_path).n_rows == 12


@pytest.mark.parametrize("ending", ["parquet", "feather", "arrow", "csv.gz", "tsv.gz", "csv.xz", "csv.bz2", "csv.zip"])
def test_damaged_empty_and_foreign_files_are_errors(ending, tmp_path, holding, rejected):
    path = tmp_path / f"rows.{ending}"
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(500, 5)), columns=list(NAMES))
    if "sv" in ending:
        frame.to_csv(path, index=False, sep="\t" if "tsv" in ending else ",")
    else:
        getattr(frame, "to_parquet" if ending == "parquet" else "to_feather")(path)
    whole = path.read_bytes()
    rejected(holding(whole[: len(whole) // 2], path.name), "truncated", "give an intact copy")
    rejected(holding(b"a,b\n1,2\n" * 99, path.name), "cannot be read", "give an intact copy")
    rejected(holding(b"", path.name), "")


def test_tables_without_rows_or_of_old_versions_are_errors(tmp_path, holding, rejected):
    empty = pa.table({"a": pa.array([], pa.float64())})
    pa.parquet.write_table(empty, tmp_path / "rows.parquet")
    rejected(tmp_path / "rows.parquet", "no rows", "Give a table with rows")
    rejected(holding(b"FEA1" + bytes(99), "rows.feather"), "version 1", "Convert it")
    rejected(
        holding(gzip.compress(b"PAR1"), "rows.parquet.gz"), "compression is not supported", "Give the uncompressed file"
    )


def test_a_feather_file_without_rows_is_an_error(tmp_path, refused):
    pa.feather.write_feather(pa.table({"a": pa.array([], pa.float64())}), tmp_path / "rows.feather")
    refused(lambda: standout.read(tmp_path / "rows.feather"), "no rows")


@pytest.mark.parametrize("ending", ["csv", "parquet", "feather"])
def test_a_file_deleted_between_passes_is_an_error(ending, tmp_path, refused):
    path = tmp_path / f"rows.{ending}"
    frame = pd.DataFrame(ROWS, columns=list(NAMES))
    frame.to_csv(path, index=False) if ending == "csv" else getattr(frame, f"to_{ending}")(path)
    source = standout.read(path, memory=0)
    assert sum(len(block) for block in source.blocks(5)) == 12
    path.unlink()
    refused(lambda: list(source.blocks(5)), str(path), "no longer exists", "Check the path")


@pytest.mark.skipif(not hasattr(os, "seteuid") or os.geteuid() != 0, reason="only root can give up its rights")
@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet", "feather"])
def test_a_table_without_read_permission_is_an_error(ending, refused):
    folder = Path(tempfile.mkdtemp())
    path = folder / f"rows.{ending}"
    path.write_bytes(b"a,b\n1,2\n")
    folder.chmod(0o755)
    path.chmod(0)
    os.seteuid(65534)
    try:
        refused(lambda: standout.read(path), str(path), "no permission", "Ask for access")
    finally:
        os.seteuid(0)
        shutil.rmtree(folder)


def test_long_lines_and_large_values_are_read(holding):
    path = holding("x,note\n1," + "n" * 3_000_000 + "\n2,short\n", "long.csv")
    source = standout.read(path, label="note")
    assert [len(label) for label in source.labels] == [3_000_000, 5]
    names = ",".join(f"feature_{i}" for i in range(30_000))  # a header longer than the first read
    source = standout.read(holding(f"{names}\n{','.join(['1.5'] * 30_000)}\n", "wide.csv"))
    assert source.array.shape == (1, 30_000)


@pytest.mark.parametrize("memory", ["1GB", 0])
def test_unusual_but_valid_text_is_read(memory, holding):
    def rows(content, name="rows.csv", **how):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StandoutWarning)
            return np.concatenate(list(standout.read(holding(content, name), memory=memory, **how).blocks(2))).tolist()

    assert rows('\n\na, b\n1, 2\n\n3,"4"\n') == [[1, 2], [3, 4]]
    assert rows("a\r1\r2\r") == [[1], [2]]
    assert rows('"a ""x""","b,c"\r\n1,2\r\n') == [[1, 2]]
    assert rows('size 5",b\n1,2\n') == [[1, 2]]
    assert rows('t,b\n5" pipe,2\n"7"" pipe\n",3\n') == [[2], [3]]
    assert rows("a;b\n1;2\n") == [[1, 2]]
    assert rows("a\tb\n1\t2\n") == [[1, 2]]
    assert rows("a\n1e-3\n-inf\n+.5\n") == [[1e-3], [-np.inf], [0.5]]
    assert rows("x;y\n0,5;1\n;2,25\n", missing="mean") == [[0.5, 1], [0.5, 2.25]]


def pairs(text):
    """Return the rows of two values that pyarrow finds in some text, valid or not."""
    if not text.strip():
        return []
    found = pa.csv.read_csv(
        pa.BufferReader(text),
        pa.csv.ReadOptions(column_names=["a", "b"], block_size=len(text) + 1),
        pa.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda _: "skip"),
        pa.csv.ConvertOptions(column_types={"a": pa.string(), "b": pa.string()}),
    )
    return list(zip(found["a"].to_pylist(), found["b"].to_pylist(), strict=True))


@given(st.text(alphabet='a1,"\n', max_size=60), st.integers(1, 20))
def test_chunks_never_split_a_row(tmp_path_factory, text, size):
    path = tmp_path_factory.getbasetemp() / "cut.csv"
    path.write_text(text)
    ends = pairs(f"{text}\nend,end\n".encode())[-1:] == [("end", "end")]  # if not, a quote is unclosed
    file = TextFile(path, "cut.csv", ("a", "b"), (), len(text), ",", 0, 0, max_bytes=size)
    try:
        parts = [chunk.data for chunk in file.chunks()]
    except InputError:
        assert not ends
        return
    assert ends
    assert b"".join(parts) == text.encode()
    assert [row for part in parts for row in pairs(part)] == pairs(text.encode())


def test_invalid_paths_are_errors_with_a_hint(tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    hint = "If it is a label, name its column in `where`."
    refused(lambda: standout.read("sham", role="background sham"), "no such file", hint)
    for name, role in (("sham", "target"), ("sham.csv", "background")):
        with pytest.raises(InputError, match="no such file") as error:
            standout.read(name, role=role)
        assert hint not in str(error.value)
    (tmp_path / "Rows.CSV").write_text("a\n1\n2\n")
    refused(lambda: standout.read("ROWZ.csv"), "no such file", "Did you mean 'Rows.CSV'?", "Check the path")


def test_a_directory_in_the_home_directory_has_names(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "runs").mkdir()
    assert has_names("~/runs") and not has_names("~/runz")


def test_a_column_name_of_any_length_is_shortened_in_messages(holding):
    path = holding(f"id{'[' * 50_000},a\n1,2\n3,4\n".encode())
    with pytest.raises(ColumnError) as error:
        standout.read(path, ids="id")
    assert "'id[[[" in str(error.value) and len(str(error.value)) < 1000
