"""Text as people have it: encodings, comments, titles, tables of R, archives, censored values."""

import lzma
import subprocess
import sys
import zipfile
from contextlib import ExitStack

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import standout
from conftest import NAMES
from standout.errors import NotNumbersError
from standout.io.stream import Stream

quiet = pytest.mark.filterwarnings("ignore::standout.errors.FeatureWarning")


def rows(source):
    return np.concatenate(list(source.blocks(3))).tolist()


def both(path, **options):
    """Return the rows in memory and streamed, which must be equal."""
    kept, streamed = (standout.read(path, memory=memory, **options) for memory in ("1GB", 0))
    assert isinstance(streamed, Stream) or options.get("transpose")
    assert rows(kept) == rows(streamed) and kept.names == streamed.names
    return kept


@quiet
@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-32", "cp1251", "utf-8-sig"])
def test_the_names_and_labels_of_other_encodings_are_read_with_the_option(encoding, holding):
    name = "вес" if encoding == "cp1251" else "größe"
    path = holding(f"{name},klasse\n1.5,{name}\n2.5,{name}\n".encode(encoding))
    source = standout.read(path, encoding=encoding, label="klasse")
    assert source.names == (name,) and source.labels.tolist() == [name] * 2
    assert rows(standout.read(path, encoding=encoding, memory=0)) == [[1.5], [2.5]]


@pytest.mark.shows("csv, UTF-16", "groups")
@pytest.mark.parametrize("mark", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_recognised_by_its_mark_even_when_it_is_compressed(mark, holding, tmp_path):
    text = "größe,id\n" + "".join(f"{i}.25,ä{i % 5}\n" for i in range(99))
    data = text.encode(mark) if mark == "utf-16" else "\ufeff".encode(mark) + text.encode(mark)
    plain = standout.read(holding(data), groups="id")
    packed = standout.read(holding(lzma.compress(data), "rows.csv.xz"), groups="id", memory=0)
    assert plain.names == packed.names == ("größe",)
    assert rows(packed) == rows(plain) == [[i + 0.25] for i in range(99)]
    assert packed.groups[7] == "ä2"


def test_characters_split_between_pieces_are_decoded(holding):
    text = "x,größe\n" + "".join(f"{i},ä€𝄞{'ö' * (i % 7)}\n" for i in range(120_000))
    source = standout.read(holding(text.encode("utf-16")), label="größe", memory=0)
    assert source.labels[119_999] == "ä€𝄞" + "ö" * (119_999 % 7) and len(source.labels) == 120_000


def test_unknown_encodings_headers_and_treatments_are_errors(holding, refused):
    path = holding("a,b\n1,2\n")
    refused(lambda: standout.read(path, encoding="base64"), "`encoding='base64'` is not known", "Give an encoding")
    refused(lambda: standout.read(path, encoding="klingon"), "`encoding='klingon'` is not known")
    refused(lambda: standout.read(path, header=0), "`header=0` is not a line", "Give its number")
    refused(lambda: standout.read(path, header=9), "`header=9`, but there is no text in this line", "Give another")
    refused(lambda: standout.read(path, censored="half"), "`censored='half'` is not valid", "Use None")
    refused(lambda: standout.read(np.ones((3, 2)), header=1), "`header` is for files", "leave `header` out")
    np.save(path.with_name("x.npy"), np.ones((3, 2)))
    refused(lambda: standout.read(path.with_name("x.npy"), encoding="cp1252"), "`encoding` is for text files", "Leave")
    refused(lambda: standout.read(f"{path}::Sheet1"), "a single table", "Leave '::Sheet1' out")
    for kind in (".xls", ".ods"):
        refused(
            lambda kind=kind: standout.read(holding(b"x", f"a{kind}")), f"unsupported file type {kind!r}", "Convert"
        )


# Comments, titles and headers


def test_comments_before_the_header_and_between_rows_are_skipped_and_counted_as_lines(holding, refused):
    text = '# run 7\n#a,b,c\n\nx,y\n1,2\n# paused, then, resumed\n\n3,4\n#"quoted"\n5,6\n#'
    assert rows(both(holding(text))) == [[1, 2], [3, 4], [5, 6]]
    refused(lambda: standout.read(holding(text.replace("5,6", "5,six"))), "line 10: column 'y'", kind=NotNumbersError)


@quiet
def test_a_number_sign_in_a_value_is_not_a_comment(holding):
    source = both(holding("id,note,x\n#1,a,1\n#2,b,2\n"), ids="id")
    assert source.row_ids.tolist() == ["#1", "#2"] and rows(source) == [[1], [2]]
    source = both(holding('id,x\n"#1",1\n2,2\n'), ids="id")
    assert source.row_ids.tolist() == ["#1", "2"]
    source = both(holding('note,x\n"two\n#lines",1\n# no row\nb,2\n'), label="note")
    assert source.labels.tolist() == ["two\n#lines", "b"] and rows(source) == [[1], [2]]


@quiet
@pytest.mark.parametrize("text", ["# id, x, y\ns1,1,2\n", "## version 2\n#id,x,y\ns1,1,2\n", "#id\tx\ty\ns1\t1\t2\n"])
def test_a_comment_with_a_name_for_each_value_is_the_header(text, holding):
    source = both(holding(text), ids="id")
    assert source.names == ("x", "y") and rows(source) == [[1, 2]]


@quiet
def test_header_names_the_line_of_the_names_below_titles(holding):
    path = holding("Study 7\nexported,2024-01-01,by me\n\nid,x,y\ns1,1,2\ns2,3,4\n")
    assert both(path, header=4).names == ("x", "y")
    assert both(path, header=4).n_rows == 2


def test_a_line_of_numbers_given_as_the_header_is_named(holding, refused):
    path = holding("x,y\n1.5,2\n3,4\n")
    refused(lambda: standout.read(path, header=2), "rows.csv: line 2 must contain column names", "give `header`")


def test_the_names_that_numpy_writes_above_columns_separated_by_spaces_are_the_header(tmp_path):
    np.savetxt(tmp_path / "rows.txt", [[1, 2, 4], [3, 4, 5]], header="run 7\nx y z")
    source = both(tmp_path / "rows.txt")
    assert source.names == ("x", "y", "z") and rows(source) == [[1, 2, 4], [3, 4, 5]]


# Tables of R


@pytest.mark.shows("R table", "groups")
def test_row_names_of_r_are_ids_and_a_text_column_can_be_the_groups(holding):
    text = '"x" "y" "who"\n"r 1" 1.5 2 "a"\n"r 2" NA 4 "b"\n"r 3" 5 6 "b"\n'
    source = both(holding(text, "r.txt"), groups="who", missing="drop_rows")
    assert source.names == ("x", "y") and rows(source) == [[1.5, 2], [5, 6]]
    source = standout.read(holding(text, "r.txt"), groups="who")
    assert source.row_ids.tolist() == ["r 1", "r 2", "r 3"] and source.groups.tolist() == ["a", "b", "b"]


def test_a_gene_table_of_r_is_read_with_transpose(data, holding):
    genes = pd.DataFrame(data.target.T, index=list(NAMES), columns=[f"s{i}" for i in range(len(data.target))])
    text = '"' + '"\t"'.join(genes.columns) + '"\n'
    text += "".join(f'"{gene}"\t' + "\t".join(map(str, row)) + "\n" for gene, row in genes.iterrows())
    source = standout.read(holding(text, "genes.tsv"), transpose=True)
    assert source.names == NAMES and source.row_ids.tolist() == list(genes.columns)
    np.testing.assert_array_equal(source.rows(0, len(data.target)), data.target)


def test_a_wide_table_of_r_with_a_header_longer_than_the_first_read_is_recognised(holding):
    names = "\t".join(f"feature_{i}" for i in range(40_000))
    source = standout.read(holding(f"{names}\nr1\t" + "\t".join(["1.5"] * 40_000) + "\n", "wide.tsv"))
    assert source.array.shape == (1, 40_000) and source.row_ids.tolist() == ["r1"]


# Archives


def test_an_archive_of_several_tables_or_of_none_is_an_error(tmp_path, refused):
    path = tmp_path / "rows.csv.zip"
    for names, found in ((["a.csv", "b.csv"], "2 files ('a.csv', 'b.csv')"), ([], "no file")):
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, "a,b\n1,2\n")
        refused(lambda: standout.read(path), f"the archive holds {found}", "Give an archive of one table")


def test_a_workbook_with_the_suffix_of_another_type_is_an_error_that_names_the_type(tmp_path, refused):
    pd.DataFrame({"a": [1, 2]}).to_excel(tmp_path / "book.xlsx")
    (tmp_path / "book.xlsx").rename(tmp_path / "book.csv.zip")
    refused(lambda: standout.read(tmp_path / "book.csv.zip"), "this is a workbook", "Give the .xlsx file")


BOMB = """
import sys, standout
assert sum(len(block) for block in standout.read(sys.argv[1], memory=0).blocks(1000)) == 1
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
@pytest.mark.parametrize("kind", ["zip", "xz", "zst"])
def test_a_file_that_expands_a_thousandfold_is_streamed(kind, tmp_path):
    """A row and 400 MB of empty lines in less than 1 MB."""
    path = tmp_path / f"bomb.csv.{kind}"
    with ExitStack() as stack:
        if kind == "zip":
            archive = stack.enter_context(zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED))
            file = stack.enter_context(archive.open("x.csv", "w"))
        elif kind == "xz":
            file = stack.enter_context(lzma.open(path, "w", preset=0))
        else:
            file = stack.enter_context(pa.CompressedOutputStream(str(path), "zstd"))
        file.write(b"a,b\n1,2\n")
        for _ in range(400):
            file.write(b"\n" * 2**20)
    assert path.stat().st_size < 10**6
    printed = subprocess.run([sys.executable, "-c", BOMB, path], capture_output=True, text=True, timeout=300)
    assert printed.returncode == 0, printed.stderr
    assert int(printed.stdout) < 300_000  # kB, of which 150,000 are imports


# Censored values


CENSORED = "id,il6,tnf,age\n" + "".join(
    f"s{i},{'<0.5' if i % 3 == 0 else i / 8},{'ND' if i % 5 else i},{20 + i}\n" for i in range(40)
)


def test_censored_values_are_an_error_with_counts_and_an_example_for_each_column(holding, refused):
    il6, tnf = sum(i % 3 == 0 for i in range(40)), sum(i % 5 > 0 for i in range(40))
    for memory in ("1GB", 0):
        refused(
            lambda memory=memory: standout.read(holding(CENSORED), ids="id", memory=memory),
            "rows.csv, lines 2 to 41: censored values in 2 columns",
            f"'il6' ({il6}, such as '<0.5'), 'tnf' ({tnf}, such as 'ND')", "Give `censored='missing'`",
            kind=NotNumbersError,
        )  # fmt: skip


@pytest.mark.parametrize("memory", ["1GB", 0])
def test_censored_values_are_missing_values_where_that_is_asked_for(memory, holding):
    path = holding(CENSORED)
    source = standout.read(path, ids="id", censored="missing", memory=memory)
    expected = pd.read_csv(path, na_values=["<0.5", "ND"])[["il6", "tnf", "age"]]
    assert source.names == ("il6", "tnf", "age")
    np.testing.assert_array_equal(np.concatenate(list(source.blocks(7))), expected.to_numpy())
    kept = standout.read(path, ids="id", censored="missing", missing="drop_rows", memory=memory)
    np.testing.assert_array_equal(np.concatenate(list(kept.blocks(7))), expected.dropna().to_numpy())


@quiet
def test_censored_values_are_missing_values_in_a_table_with_decimal_commas(holding):
    path = holding("il6;tnf;state\n1,5;<0,5;ND\n3,5;1,25;SD\nND;2,5;ND\n5,5;3;ND\n")
    expected = pd.read_csv(path, sep=";", decimal=",", na_values=["<0,5", "ND"])[["il6", "tnf"]]
    for memory in ("1GB", 0):
        source = standout.read(path, censored="missing", label="state", memory=memory)
        np.testing.assert_array_equal(np.concatenate(list(source.blocks(3))), expected.to_numpy())
        assert source.labels.tolist() == ["ND", "SD", "ND", "ND"]
    assert standout.read(path, censored="missing").names == ("il6", "tnf")


@quiet
def test_censored_values_that_first_occur_late_in_a_file_are_an_error_or_missing(holding, refused):
    lines = ["a,b,c"] + ["1.250000000000000000,2,"] * 110_000  # two chunks
    lines[109_000], lines[109_005] = "1,< 0.1,", "1,>1000,5"
    path = holding("\n".join(lines))
    refused(lambda: list(standout.read(path, memory=0).blocks(999)), "censored values in 1 column: 'b' (2, such as",
            kind=NotNumbersError)  # fmt: skip
    found = np.concatenate(list(standout.read(path, censored="missing", memory=0).blocks(999)))
    assert np.flatnonzero(np.isnan(found[:, 1])).tolist() == [108_999, 109_004] and found[109_004, 2] == 5


@pytest.mark.parametrize(
    "value",
    ["<LOD", "< 0.5", ">1000", "ND", "n.d.", "BDL", "<LLOQ", "BLQ", "≤2", "LOD", "OOR <", "not detected", "<0,5"],
)
def test_the_usual_spellings_are_recognised(value, holding):
    path = holding(f"x;y\n1;2\n{value};3\n{value};3\n3;4\n")
    with pytest.raises(NotNumbersError, match=r"censored values in 1 column: 'x' \(2, such as"):
        standout.read(path)
    assert np.isnan(standout.read(path, censored="missing").array[:, 0]).tolist() == [False, True, True, False]


@quiet
@pytest.mark.parametrize(
    "values", [["<18", "18-65", ">65"], ["ND", "SD", "MN"], ["<50", ">=50", "<50"], ["5 mg", "<1 mg"]]
)
def test_classes_and_codes_without_numbers_are_labels(values, holding):
    path = holding("x,what\n" + "".join(f"{i},{value}\n" for i, value in enumerate(values)))
    assert standout.read(path).names == ("x",)
    assert standout.read(path, label="what", censored="missing").labels.tolist() == values


def test_a_label_column_keeps_its_text_where_censored_values_are_missing(holding):
    text = "state,x,y\nND,1,2\nSD,ND,3\nMN,3,ND\nND,4,5\nND,4,5\n"
    source = standout.read(holding(text), label="state", censored="missing")
    assert source.labels.tolist() == ["ND", "SD", "MN", "ND", "ND"]
    assert np.isnan(source.array).sum() == 2
