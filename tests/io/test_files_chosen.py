"""Rows and columns of a table are selected by value and name, whatever the spelling of numbers."""

import os

import numpy as np
import pandas as pd
import pytest
import zarr

import standout
from conftest import NAMES
from standout.errors import ColumnError, FeatureError, InputError, StandoutWarning


@pytest.mark.parametrize("memory", ["1GB", 0])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_whole_number_matches_its_float_spelling(kind, memory, data, tmp_path):
    frame = pd.DataFrame(data.target, columns=list(NAMES)).assign(
        c2=np.where(np.arange(200) % 9, np.arange(200) % 3, np.nan)
    )
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    for wanted in ("1", 1, "1.0", "1e0"):
        source = standout.read(tmp_path / f"a.{kind}", where={"c2": wanted}, memory=memory)
        np.testing.assert_array_equal(np.concatenate(list(source.blocks(50))), data.target[frame.c2 == 1])


@pytest.mark.parametrize("memory", ["1GB", 0])
def test_an_exact_match_takes_precedence_over_equal_numbers(memory, tmp_path, refused):
    def kept(*labels, where):
        rows = "".join(f"{i},{label}\n" for i, label in enumerate(labels))
        (tmp_path / "a.csv").write_text("x,c\n" + rows)
        return np.concatenate(list(standout.read(tmp_path / "a.csv", where={"c": where}, memory=memory).blocks(9)))

    with pytest.warns(StandoutWarning, match=r"'1\.10' .* '1\.1'.*[Nn]ame"):
        assert kept("1.10", "1.1", "2", where="1.1").tolist() == [[1]]
    assert kept("1.10", "1.1", "2", where=["1.1", "1.10"]).tolist() == [[0], [1]]
    assert kept("a", "1.0", "TRUE", where=["1", "True"]).tolist() == [[1], [2]]
    assert kept("9007199254740993", "9007199254740992.0", "x", where="9007199254740992").tolist() == [[1]]
    for labels, where in ((("3_1", "x"), "31"), (("WT", "x"), "wt"), (("nan x", "1e"), "1")):
        refused(lambda labels=labels, where=where: kept(*labels, where=where), "no row has", repr(where))


def test_a_number_with_two_spellings_in_one_file_is_an_error(tmp_path, refused):
    lines = ["x,c"] + ["1.250000000000000000,1.0"] * 110_000 + ["1,1"]  # two chunks
    (tmp_path / "a.csv").write_text("\n".join(lines))
    refused(lambda: list(standout.read(tmp_path / "a.csv", where={"c": 1}).blocks(9)), "'1.0'", "'1'", "Name")
    both = standout.read(tmp_path / "a.csv", where={"c": ["1", "1.0"]})
    assert both.n_rows == 110_001


def test_only_stars_and_question_marks_are_wildcards(tmp_path, refused):
    (tmp_path / "a.csv").write_text("x1,x2,x[12],y,z\n1,2,3,4,5\n6,7,8,9,10\n")

    def names(**how):
        return standout.read(tmp_path / "a.csv", **how).names

    assert names(columns="x[12]") == ("x[12]",)
    assert names(columns="x[*") == ("x[12]",) and names(columns="x?") == ("x1", "x2")
    assert names(drop=["x[12]", "x?"]) == ("y", "z") and names(drop="x[1?]") == ("x1", "x2", "y", "z")
    (tmp_path / "a.csv").write_text("x1,x2,y\n1,2,3\n6,7,8\n")
    refused(lambda: names(columns=["y", "x[12]"]), "'x[12]'", kind=FeatureError)
    with pytest.raises(ColumnError) as error:
        names(drop=["y", "x[12]"])
    assert error.value.argument == "drop" and error.value.column == "x[12]"


def test_devices_and_named_pipes_are_errors_instead_of_being_read_for_ever(tmp_path):
    os.mkfifo(tmp_path / "a.csv")
    (tmp_path / "b.csv").symlink_to("/dev/zero")
    (tmp_path / "a.zarr").mkdir()
    zarr.create_array(tmp_path / "a.zarr", data=np.ones((4, 2)), chunks=(2, 2), overwrite=True)
    os.mkfifo(tmp_path / "a.zarr" / "c" / "1" / "1")
    for name in ("a.csv", "b.csv", "a.zarr"):
        with pytest.raises(InputError, match="a device or a named pipe"):
            standout.read(tmp_path / name)
