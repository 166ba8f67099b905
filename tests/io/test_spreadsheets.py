"""Sheets of a workbook: names, sheets, dates, titles, formulas, gaps, and errors with row numbers."""

import subprocess
import sys
import tracemalloc
import zipfile
from contextlib import suppress
from datetime import date, datetime

import numpy as np
import pandas as pd
import pytest

import standout
from conftest import NAMES
from standout._dpca import DPCA
from standout.errors import FeatureWarning, InputError, NotNumbersError, StandoutWarning
from standout.io.stream import Stream

openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed: workbooks are left out")
xlsxwriter = pytest.importorskip("xlsxwriter", reason="xlsxwriter is not installed: it writes the workbooks")
quiet = pytest.mark.filterwarnings("ignore::standout.errors.FeatureWarning")


@pytest.fixture
def book(tmp_path):
    """Return a function that writes sheets, each a list of rows, with xlsxwriter."""

    def write(name="book.xlsx", **sheets):
        path = tmp_path / name
        with xlsxwriter.Workbook(path, {"default_date_format": "yyyy-mm-dd"}) as workbook:
            for title, rows in sheets.items():
                sheet = workbook.add_worksheet(title)
                for number, row in enumerate(rows):
                    sheet.write_row(number, 0, row)
        return path

    return write


def rows(source):
    return np.concatenate(list(source.blocks(64))).tolist()


@pytest.mark.shows("xlsx", "accepted", "names", "out of core")
@pytest.mark.parametrize("engine", ["openpyxl", "xlsxwriter"])
def test_a_workbook_gives_the_model_of_the_array_it_holds(data, tmp_path, engine):
    paths = [tmp_path / "target.xlsx", tmp_path / "background.xlsx"]
    for path, values in zip(paths, data, strict=True):
        pd.DataFrame(values + 0.25, columns=list(NAMES)).to_excel(path, engine=engine)
    expected = DPCA(2).fit(data.target + 0.25, background=data.background + 0.25)
    model = DPCA(2).fit(paths[0], background=paths[1])
    np.testing.assert_array_equal(model.components_, expected.components_)
    assert tuple(model.feature_names_in_) == NAMES
    streams = [standout.read(path, memory=0) for path in paths]
    assert all(isinstance(stream, Stream) for stream in streams)
    streamed = DPCA(2).fit(streams[0], background=streams[1])
    np.testing.assert_allclose(streamed.components_, expected.components_, rtol=1e-12, atol=1e-12)


@pytest.mark.shows("xlsx", "groups")
def test_sheets_are_chosen_by_key_or_after_the_path(data, tmp_path):
    path = tmp_path / "book.xlsx"
    target = pd.DataFrame(data.target, columns=list(NAMES)).assign(who=np.arange(len(data.target)) // 4)
    controls = pd.DataFrame(data.background, columns=list(NAMES)).assign(who=np.arange(len(data.background)) // 4)
    with pd.ExcelWriter(path) as writer:
        target.to_excel(writer, sheet_name="Patients", index=False)
        controls[:200].to_excel(writer, sheet_name="Controls", index=False)
        controls[200:].to_excel(writer, sheet_name="Other clinic", index=False)
    parts = {"Controls": data.background[:200], "Other clinic": data.background[200:]}
    expected = DPCA(2).fit(data.target, background=parts, groups=target["who"].to_numpy(), background_groups={
        "Controls": controls["who"].to_numpy()[:200], "Other clinic": controls["who"].to_numpy()[200:]})  # fmt: skip
    given = [standout.read(path, key=key, groups="who") for key in ("Patients", *parts)]
    model = DPCA(2).fit(given[0], background=dict(zip(parts, given[1:], strict=True)))
    np.testing.assert_allclose(model.ratios_, expected.ratios_, rtol=1e-12)
    assert model.noise_edge_ == pytest.approx(expected.noise_edge_, rel=1e-12)
    named = DPCA(2, features="common").fit(f"{path}::Patients", background=[f"{path}::{name}" for name in parts])
    assert tuple(named.feature_names_in_) == (*NAMES, "who")


def test_without_a_key_the_first_sheet_is_read_and_the_others_are_named(book, refused):
    path = book(First=[["a", "b"], [1, 2]], Second=[["a", "b"], [3, 4]])
    with pytest.warns(StandoutWarning, match=r"2 sheets \('First', 'Second'\), and the first one is read.*`key`"):
        assert rows(standout.read(path)) == [[1, 2]]
    assert rows(standout.read(path, key="Second")) == [[3, 4]]
    assert rows(standout.read(f"{path}::Second", key="First")) == [[3, 4]]
    refused(lambda: standout.read(path, key="second"), "no sheet 'second'", "Did you mean 'Second'?", "Use one of")


@pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
def test_the_key_after_a_path_works_for_arrays_too(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.ones((3, 2)), b=np.zeros((4, 2)))
    assert standout.read(f"{tmp_path / 'x.npz'}::b").n_rows == 4
    (tmp_path / "odd::name.csv").write_text("a,b\n1,2\n")  # a file of that name comes first
    assert rows(standout.read(tmp_path / "odd::name.csv")) == [[1, 2]]


def test_dates_and_text_describe_rows_and_booleans_are_numbers(book):
    table = [["id", "day", "time", "x", "ok"],
             ["s1", date(2024, 5, 1), datetime(2024, 5, 1, 12, 30), 1.5, True],
             ["s2", date(2024, 5, 2), None, -2, False]]  # fmt: skip
    with pytest.warns(FeatureWarning, match="'day', 'time'"):
        source = standout.read(book(Sheet1=table), ids="id")
    assert source.names == ("x", "ok") and rows(source) == [[1.5, 1], [-2, 0]]
    assert source.about("day").tolist() == ["2024-05-01", "2024-05-02"]
    assert source.about("time").tolist() == ["2024-05-01T12:30:00", None]


@quiet
def test_a_title_is_an_error_that_names_the_header_and_header_reads_it(tmp_path, refused):
    workbook = openpyxl.Workbook()
    sheet = workbook.active
    sheet["B2"] = "Cytokines, pg/ml (batch 7, 8)"
    sheet.merge_cells("B2:E2")
    for number, row in enumerate([["id", "il6", "tnf", "day"], ["s1", 1, 2.5, "x, y"], ["s2", 3, 4, None]], 4):
        for column, value in enumerate(row, 2):
            sheet.cell(number, column, value)
    workbook.save(path := tmp_path / "book.xlsx")
    refused(lambda: standout.read(path), "sheet 'Sheet': row 2 has a single value, and row 4 has 4", "Give `header=4`")
    for memory in ("1GB", 0):
        source = standout.read(path, header=4, ids="id", memory=memory)
        assert source.names == ("il6", "tnf") and rows(source) == [[1, 2.5], [3, 4]]
        assert source.row_ids.tolist() == ["s1", "s2"]


def test_empty_rows_and_columns_after_the_table_are_not_read(tmp_path):
    workbook = openpyxl.Workbook()
    sheet = workbook.active
    for row in [["a", "b", None, "  "], [1, 2], [], [3, 4, None, ""], [None, " "], []]:
        sheet.append(row)
    sheet.cell(50, 9).number_format = "0.00"  # a cell with a format, but no value
    workbook.save(path := tmp_path / "book.xlsx")
    for memory in ("1GB", 0):
        assert rows(standout.read(path, memory=memory)) == [[1, 2], [3, 4]]


def test_formulas_have_the_values_that_were_calculated(tmp_path):
    path = tmp_path / "book.xlsx"
    with xlsxwriter.Workbook(path) as workbook:
        sheet = workbook.add_worksheet()
        sheet.write_row(0, 0, ["x", "twice"])
        for row in (1, 2, 3):
            sheet.write_number(row, 0, row)
            sheet.write_formula(row, 1, f"=2*A{row + 1}", value=2 * row)
    assert rows(standout.read(path)) == [[1, 2], [2, 4], [3, 6]]


@pytest.mark.parametrize("memory", ["1GB", 0])
def test_text_in_a_numeric_column_is_an_error_with_its_row(book, refused, memory):
    table = [["id", "x", "y"], *(["s", i, i / 2] for i in range(99))]

    def found(row, value, **options):
        changed = [list(each) for each in table]
        changed[row - 1][2] = value
        return lambda: standout.read(book(Sheet1=changed), memory=memory, ids="id", **options)

    refused(found(37, "2 g"), "book.xlsx, sheet 'Sheet1', row 37: column 'y'", "'2 g'", kind=NotNumbersError)
    refused(found(37, "#DIV/0!"), "row 37: column 'y' is numeric, but '#DIV/0!'", kind=NotNumbersError)
    refused(
        found(37, "<LOD"), "rows 2 to 100: censored values in 1 column: 'y' (1, such as '<LOD')", kind=NotNumbersError
    )
    assert np.isnan(np.concatenate(list(found(37, "<LOD", censored="missing")().blocks(99)))[35, 1])
    assert np.isnan(np.concatenate(list(found(37, "#N/A")().blocks(99)))[35, 1])
    assert rows(found(37, "18.0")())[35] == [35, 18]  # a number stored as text


@quiet
def test_values_outside_the_table_are_an_error_with_their_row(book, refused):
    path = book(Sheet1=[["a", "b"], [1, 2], [3, 4, None, "see Tom"]])
    refused(lambda: standout.read(path), "row 3: 4 values, but the header names 2 columns", "Give every row")


def test_genes_in_rows_are_read_with_transpose(data, tmp_path):
    frame = pd.DataFrame(data.target.T, index=list(NAMES), columns=[f"s{i}" for i in range(len(data.target))])
    frame.to_excel(tmp_path / "genes.xlsx", index_label="gene")
    source = standout.read(tmp_path / "genes.xlsx", transpose=True)
    assert source.names == NAMES and source.row_ids.tolist() == list(frame.columns)
    np.testing.assert_array_equal(source.rows(0, len(data.target)), data.target)


def test_a_directory_of_workbooks_is_one_table_and_lock_files_are_skipped(book, tmp_path):
    book("1.xlsx", Sheet1=[["a", "b"], [1, 2]])
    book("2.xlsx", Sheet1=[["a", "b"], [3, 4]])
    (tmp_path / "~$2.xlsx").write_bytes(b"lock")
    assert rows(standout.read(tmp_path)) == [[1, 2], [3, 4]]


def test_damaged_encrypted_and_empty_workbooks_are_errors(book, tmp_path, refused):
    whole = book(Sheet1=[["a", "b"], *([i, i] for i in range(500))]).read_bytes()
    path = tmp_path / "bad.xlsx"
    for content, words in (
        (b"", "the file is empty"), (b"a,b\n1,2\n", "cannot be read as an Excel workbook"),
        (whole[: len(whole) // 2], "cannot be read as an Excel workbook"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "an encrypted or an old (.xls) workbook"),
    ):  # fmt: skip
        path.write_bytes(content)
        refused(lambda: standout.read(path), "bad.xlsx", words)
    refused(lambda: standout.read(book(Sheet1=[])), "the file is empty", "Give a table")
    refused(lambda: standout.read(book(Sheet1=[["a", "b"]])), "names, but no rows", "Give a table with rows")
    refused(lambda: standout.read(book(Sheet1=[["a", "a"], [1, 2]])), "1 duplicate column name: 'a'", "Rename")


def test_a_workbook_damaged_anywhere_is_read_or_refused(book):
    path = book(Sheet1=[["a", "b"], *([i, i / 3] for i in range(30))])
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(60):
        spoilt = bytearray(whole)
        for place in rng.integers(0, len(whole), size=3):
            spoilt[place] = rng.integers(0, 256)
        path.write_bytes(spoilt)
        with suppress(InputError):
            list(standout.read(path, memory=0).blocks(7))


def far_cell(path):
    """Write a workbook with values in its first and in its last cell, as Excel's Solver leaves behind."""
    with xlsxwriter.Workbook(path) as workbook:
        sheet = workbook.add_worksheet()
        sheet.write_row(0, 0, ["a", "b"])
        sheet.write_row(1, 0, [1, 2])
        sheet.write(2**20 - 1, 2**14 - 1, "forgotten")


LIMITED = """
import sys, standout
try:
    standout.read(sys.argv[1])
except standout.errors.InputError as error:
    print(error)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_a_value_in_the_last_cell_of_a_sheet_is_an_error_and_takes_no_memory(tmp_path):
    far_cell(tmp_path / "far.xlsx")
    printed = subprocess.run(
        [sys.executable, "-c", LIMITED, tmp_path / "far.xlsx"], capture_output=True, text=True, timeout=300
    )
    assert printed.returncode == 0, printed.stderr
    assert "row 1048576: 16384 values, but the header names 2 columns" in printed.stdout
    assert int(printed.stdout.split()[-1]) < 300_000  # kB


def test_text_parts_that_expand_beyond_a_limit_are_refused(book, tmp_path, refused):
    path = tmp_path / "bomb.xlsx"
    with zipfile.ZipFile(book(Sheet1=[["a"], [1]])) as plain, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bomb:
        for part in plain.namelist():
            bomb.writestr(part, plain.read(part))
        with bomb.open("xl/bomb.xml", "w", force_zip64=True) as file:
            for _ in range(600):
                file.write(bytes(2**20))
    refused(lambda: standout.read(path), "its text and formats take more than 512 MB", "Convert the sheet to csv")


def test_parts_that_expand_to_more_than_the_archive_claims_are_refused_in_little_memory(book, tmp_path, refused):
    path = tmp_path / "bomb.xlsx"
    with zipfile.ZipFile(book(Sheet1=[["a"], [1]])) as plain, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bomb:
        for part in plain.namelist():
            bomb.writestr(part, bytes(2**28) if part == "xl/styles.xml" else plain.read(part))
    content = path.read_bytes().replace((2**28).to_bytes(4, "little"), (1500).to_bytes(4, "little"))
    path.write_bytes(content)
    with zipfile.ZipFile(path) as archive:
        assert archive.getinfo("xl/styles.xml").file_size == 1500
    tracemalloc.start()
    try:
        refused(lambda: standout.read(path), "bomb.xlsx", "larger than its archive claims")
        assert tracemalloc.get_traced_memory()[1] < 64e6
    finally:
        tracemalloc.stop()


def test_without_openpyxl_the_error_names_the_extra(book, tmp_path):
    path = book(Sheet1=[["a", "b"], [1, 2]])
    code = f"import sys; sys.modules['openpyxl'] = None\nimport standout\nstandout.read({str(path)!r})"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "pip install 'standout[excel]'" in printed.stderr
