"""The mice are the published data: a table with other properties is refused, one with other bytes raises a warning."""

import numpy as np
import pandas as pd
import pytest

from standout.datasets.mice import load_mice
from standout.errors import StandoutWarning

FILE = "Data_Cortex_Nuclear.csv"


@pytest.fixture(autouse=True)
def no_other_directory(monkeypatch, tmp_path):
    """Search no directory but the one that a test gives."""
    monkeypatch.delenv("STANDOUT_DATA", raising=False)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "home"))


@pytest.fixture
def path(real_data):
    return real_data(FILE)


@pytest.fixture
def lines(path):
    return path.read_text(encoding="utf-8-sig").splitlines()


@pytest.fixture
def with_lines(tmp_path):
    """Return a function that writes lines to a table and returns the call that loads it."""

    def write(*lines):
        (tmp_path / FILE).write_text("\n".join(lines), encoding="utf-8")
        return lambda: load_mice(tmp_path)

    return write


def with_cell(line, column, value):
    """Return a line with another value in this column."""
    cells = line.split(",")
    cells[column] = value
    return ",".join(cells)


@pytest.mark.parametrize(
    ("content", "header"),
    [
        (b"", "it is empty"),
        (b"\n\n", "it is empty"),
        (b"MouseID;DYRK1A_N;class\n309_1;0.5;c-CS-m\n", "its header begins with 'MouseID;DYRK1A_N;class'"),
        (b"MouseID\tDYRK1A_N\tclass\n309_1\t0.5\tc-CS-m\n", r"its header begins with 'MouseID\tDYRK1A_N\tclass'"),
        (b"<html>" + 500 * b"x", "its header begins with '<html>xx"),
        (b"MouseID,A_N,MouseID,class\n1_1,2,1_1,x\n", "its header begins with 'MouseID,A_N,MouseID,class'"),
    ],
)
def test_the_error_for_a_table_without_the_columns_shows_its_header(tmp_path, refused, content, header):
    (tmp_path / FILE).write_bytes(content)
    refused(lambda: load_mice(tmp_path), FILE, header, "'MouseID'", "77 proteins", "'class'")
    with pytest.raises(ValueError, match=FILE) as error:
        load_mice(tmp_path)
    assert "x" * 50 not in str(error.value)


def test_the_error_for_a_table_without_proteins_or_rows_counts_them(tmp_path, refused):
    (tmp_path / FILE).write_text("MouseID,class\n309_1,c-CS-m\n")
    refused(lambda: load_mice(tmp_path), "rows: 1, not 1080", "proteins: 0, not 77")
    (tmp_path / FILE).write_text("MouseID,ARC_N,class\n")
    refused(lambda: load_mice(tmp_path), "rows: 0, not 1080", "proteins: 1, not 77")
    (tmp_path / FILE).write_bytes(b"\xff\xfe\x00")
    refused(lambda: load_mice(tmp_path), FILE, "not the table")


@pytest.mark.data
class TestRealData:
    def test_the_mice_equal_those_that_pandas_reads(self, path):
        found, table = load_mice(path.parent), pd.read_csv(path, encoding="utf-8-sig")
        np.testing.assert_array_equal(found.proteins, table.iloc[:, 1:78].to_numpy(float))
        assert found.names == tuple(table.columns[1:78]) and found.row_ids.tolist() == table["MouseID"].tolist()
        assert found.label.tolist() == table["class"].tolist()
        assert found.proteins.shape == (1080, 77) and np.isnan(found.proteins).sum() == 1396
        assert len(set(found.mouse)) == 72 and found.mouse[0] == "309"
        twins = [found.proteins[:, found.names.index(name)] for name in ("ARC_N", "pS6_N")]
        np.testing.assert_array_equal(*twins)
        assert found.source == "Data_Cortex_Nuclear.csv (sha256 5ec490ae48bf)"

    def test_rows_are_selected_by_class(self, path, refused):
        mice = load_mice(path.parent)
        chosen = mice.rows("t-SC-s", "t-CS-s")
        assert chosen.proteins.shape == (135 + 105, 77) and set(chosen.label) == {"t-SC-s", "t-CS-s"}
        assert (np.isnan(chosen.proteins).sum(axis=1) == 43).sum() == 3
        np.testing.assert_array_equal(chosen.proteins, mice.proteins[np.isin(mice.label, ["t-SC-s", "t-CS-s"])])
        refused(lambda: mice.rows("t-SC-x"), "'t-SC-x'", "Did you mean")

    def test_a_modified_or_truncated_table_is_refused(self, lines, with_lines, refused):
        header, first, *rest = lines
        refused(with_lines(*lines[:-1]), "rows: 1079, not 1080")
        refused(with_lines(*lines[:-1], lines[-1][:200]), "line 1081 has", "fields, the header 82")
        refused(with_lines(*lines[:-1], lines[-1].replace("t-SC-s", "t-SC-m")), "rows of each class", "'t-SC-m': 136")
        refused(with_lines(*lines[:-1], lines[-1].replace("J3295_15", "other_15")), "rows of each mouse: [1, 14, 15]")
        refused(with_lines(header, with_cell(first, 1, ""), *rest), "missing values: 1397, not 1396")
        refused(with_lines(header, with_cell(first, 1, "?"), *rest), "could not convert", "'?'")
        refused(with_lines(header.replace("pS6_N", "pS7_N"), *lines[1:]), "ARC_N equal to pS6_N: False")
        refused(with_lines(header.replace("MouseID", "Mouse"), *lines[1:]), "'Mouse,DYRK1A_N,", "'MouseID'")

    @pytest.mark.parametrize("value", ["inf", "-inf", "1e999"])
    def test_an_infinite_value_is_refused(self, lines, with_lines, refused, value):
        refused(with_lines(lines[0], with_cell(lines[1], 1, value), *lines[2:]), "infinite values: 1, not 0")

    def test_duplicate_names_are_refused(self, lines, with_lines, refused):
        header, first, second, *rest = lines
        refused(with_lines(with_cell(header, 2, "DYRK1A_N"), *lines[1:]), "duplicate names: ['DYRK1A_N'], not []")
        refused(with_lines(header, first, with_cell(second, 0, "309_1"), *rest), "duplicate names: ['309_1'], not []")

    def test_a_mouse_with_two_classes_is_refused(self, lines, with_lines, refused):
        table = [line.split(",") for line in lines]
        table[1][-1], table[-1][-1] = table[-1][-1], table[1][-1]  # as many rows of each class as before
        changed = with_lines(*(",".join(cells) for cells in table))
        refused(changed, "mice of several classes: ['309', 'J3295'], not []")

    def test_other_bytes_than_the_published_ones_raise_a_warning(self, path, lines, with_lines, tmp_path, remedy):
        def loaded_with_warning(load):
            with pytest.warns(StandoutWarning, match=rf"{FILE}: not the published file.*5ec490ae48bf") as caught:
                found = load()
            (warning,) = caught
            remedy(warning.message)
            assert warning.filename == __file__
            return found

        far = loaded_with_warning(with_lines(lines[0], with_cell(lines[1], 1, "99999"), *lines[2:]))
        assert far.proteins[0, 0] == 99999 and "5ec490ae48bf" not in far.source
        same = loaded_with_warning(with_lines(*lines, ""))  # without the byte order mark, but with the published values
        np.testing.assert_array_equal(same.proteins, load_mice(path.parent).proteins)
        (tmp_path / FILE).write_bytes(path.read_bytes())
        assert load_mice(tmp_path).source == load_mice(path.parent).source
