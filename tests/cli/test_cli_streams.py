"""Standard input and output of commands, in real pipes, and sheets of workbooks."""

import io
import os
import pty
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest

import standout
from commands import fitted, frame, quiet
from conftest import NAMES

STANDOUT = [sys.executable, "-m", "standout"]


@pytest.fixture
def piped(tmp_path, monkeypatch, capfdbinary, entry_point):
    """Return a function that runs a command with a pipe as standard input and checks that no temporary file is left."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    def run(*arguments, given=b"", code=0):
        reading, writing = os.pipe()
        writer = threading.Thread(target=feed, args=(writing, given))
        writer.start()
        with open(reading) as stdin, monkeypatch.context() as replaced:
            replaced.setattr(sys, "stdin", stdin)
            found = entry_point([str(argument) for argument in arguments])
        writer.join()
        shown = capfdbinary.readouterr()
        assert found == code, shown.err.decode()
        assert list(temporary.iterdir()) == []
        return shown

    return run


def feed(pipe, content):
    with suppress(BrokenPipeError), os.fdopen(pipe, "wb") as file:  # a command that is refused does not read it
        file.write(content)


@pytest.fixture
def model(files, piped):
    piped("fit", files / "target.csv", "-b", files / "background.csv", "-o", files / "m.standout")
    return files / "m.standout"


def parquet(table):
    table.to_parquet(file := io.BytesIO(), index=False)
    return file.getvalue()


def arrow(table):
    table.to_feather(file := io.BytesIO())
    return file.getvalue()


def compressed(table):
    table.to_csv(file := io.BytesIO(), index=False, compression="gzip")
    return file.getvalue()


GIVEN = {
    "csv": lambda table: table.to_csv(index=False).encode(),
    "tsv": lambda table: table.to_csv(index=False, sep="\t").encode(),
    "csv.gz": compressed,
    "parquet": parquet,
    "feather": arrow,
}


@quiet
@pytest.mark.shows("standard input", "accepted", "names", "out of core")
@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("memory", ["256MB", "0"])
def test_fit_reads_standard_input(kind, memory, data, tmp_path, piped):
    frame(data.background).to_csv(tmp_path / "controls.csv", index=False)
    given = GIVEN[kind](frame(data.target))
    piped("fit", "-", "-b", "controls.csv", "--memory", memory, "-o", "m.standout", given=given)
    model, expected = standout.load(tmp_path / "m.standout"), fitted(data, n_components=2)
    np.testing.assert_allclose(model.ratios_, expected.ratios_, rtol=1e-12)
    assert tuple(model.feature_names_in_) == NAMES


@quiet
@pytest.mark.shows("standard input", "groups")
def test_standard_input_can_be_split_by_label_with_groups(data, tmp_path, piped):
    whole = pd.concat([frame(data.target).assign(state="ill"), frame(data.background).assign(state="well")])
    whole = whole.assign(who=np.arange(len(whole)) // 4)
    given = whole.to_csv(index=False).encode()
    piped("fit", "-", "--by", "state", "-b", "well", "--groups", "who", "-o", "m.standout", given=given)
    whole.to_csv(tmp_path / "all.csv", index=False)
    piped("fit", "all.csv", "--by", "state", "-b", "well", "--groups", "who", "-o", "file.standout")
    model, expected = (standout.load(tmp_path / name) for name in ("m.standout", "file.standout"))
    assert model.noise_edge_ == expected.noise_edge_ and model.ratios_.tolist() == expected.ratios_.tolist()


@quiet
def test_embed_in_a_pipe_writes_the_table_alone_to_standard_output(data, model, files, piped):
    given = frame(data.target).to_csv(index=False).encode()
    done = piped("embed", model, "-", "-o", "-", given=given)
    found = pd.read_csv(io.BytesIO(done.out))
    expected = standout.load(model).transform(frame(data.target))
    np.testing.assert_allclose(found.filter(like="dpca"), expected, rtol=1e-9, atol=1e-9)
    assert f"{len(data.target)} rows" in done.err.decode()
    binary = piped("embed", model, "-", "-o", "-.parquet", given=given).out
    np.testing.assert_allclose(pd.read_parquet(io.BytesIO(binary)).filter(like="dpca"), expected, rtol=1e-9, atol=1e-9)
    array = np.load(io.BytesIO(piped("denoise", model, "-", "-o", "-.npy", given=given).out))
    np.testing.assert_allclose(array, standout.load(model).denoise(frame(data.target)), rtol=1e-9, atol=1e-9)


@quiet
def test_two_commands_can_be_joined_by_a_pipe(data, model, tmp_path, files):
    target = files / "target.csv"
    shown = (
        f"{' '.join(STANDOUT)} denoise {model} {target} -o - | {' '.join(STANDOUT)} embed {model} - -o - | head -n 3"
    )
    done = subprocess.run(shown, shell=True, capture_output=True, text=True, timeout=120)
    assert len(done.stdout.splitlines()) == 3 and "Traceback" not in done.stderr


@quiet
def test_fit_writes_model_scores_or_report_to_standard_output(data, files, piped, tmp_path):
    sides = [files / "target.csv", "-b", files / "background.csv"]
    done = piped("fit", *sides, "-o", "-")
    (tmp_path / "piped.standout").write_bytes(done.out)
    piped("fit", *sides, "-o", "plain.standout", "--scores", "scores.csv")
    model, plain = (standout.load(tmp_path / f"{name}.standout") for name in ("piped", "plain"))
    np.testing.assert_array_equal(model.components_, plain.components_)
    assert "noise edge" in done.err.decode()
    scores = piped("fit", *sides, "--scores", "-").out
    assert scores == (tmp_path / "scores.csv").read_bytes()
    page = piped("report", *sides, "-o", "-").out
    assert page.lstrip()[:15].lower() == b"<!doctype html>" and page.rstrip().endswith(b"</html>")


def test_bad_uses_of_standard_input_and_output_are_refused_in_one_line(files, model, piped):
    def refused(*arguments, given=b"a,b\n1,2\n", match):
        done = piped(*arguments, given=given, code=2)
        text = done.err.decode()
        assert match in text and text.count("\n") == 1 and done.out == b"", text

    target, background = files / "target.csv", files / "background.csv"
    refused("fit", "-", "-b", "-", match="Standard input (-) can be one of the inputs only")
    refused("embed", model, "-", "-", "-o", "-", match="Standard input (-) can be one of the inputs only")
    refused("fit", "-", "-b", background, given=b"", match="standard input is empty")
    refused(
        "fit", "-", "-b", background, given=b"\x89PNG\r\n\x1a\n\0\0", match="target: standard input: this is a binary"
    )
    refused(
        "fit", "-", "-b", background, given=b"a,b\n1,x\n2,3\n3,4\n", match="target: standard input, line 2: column 'b'"
    )
    refused("fit", "-", "-b", background, given=parquet(frame(np.ones((9, 5))))[:-9], match="target: standard input")
    refused("fit", "-", "-b", background, "--checkpoint", "c", match="--checkpoint is of no use")
    refused("fit", target, "-b", background, "--scores", "-", "--json", match="--scores - and --json both write")
    refused("fit", target, "-b", background, "--scores", "-", "-o", "-", match="--scores: - is also --output")
    refused("embed", model, target, "-o", "-.html", match="-.html is not a type for standard output. Use -, or -.csv")


@pytest.mark.parametrize("name", ["fit", "embed"])
def test_binary_output_to_a_terminal_is_refused(files, model, name):
    words = {"fit": ["fit", files / "target.csv", "-b", files / "background.csv", "-o", "-"],
             "embed": ["embed", model, files / "target.csv", "-o", "-.parquet"]}[name]  # fmt: skip
    ours, theirs = pty.openpty()
    done = subprocess.run([*STANDOUT, *map(str, words)], stdout=theirs, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 2 and "a terminal cannot show binary data" in done.stderr


def test_a_terminal_as_standard_input_is_refused(files):
    ours, theirs = pty.openpty()
    words = [*STANDOUT, "fit", "-", "-b", str(files / "background.csv")]
    done = subprocess.run(words, stdin=theirs, capture_output=True, text=True, timeout=120)
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 2 and "standard input is the terminal" in done.stderr


def test_nothing_is_written_to_standard_output_by_a_command_that_fails(files, model, piped):
    bad = frame(np.ones((3000, 5))).to_csv(index=False) + "1,2,3,4,five\n"
    done = piped("embed", model, "-", "-o", "-", "--memory", "0", given=bad.encode(), code=2)
    assert done.out == b"" and "line 3002" in done.err.decode()


@quiet
def test_sheets_of_a_workbook_are_target_and_backgrounds(data, tmp_path, done, stopped):
    pytest.importorskip("openpyxl", reason="openpyxl is not installed: workbooks are left out")
    path = tmp_path / "book.xlsx"
    with pd.ExcelWriter(path) as writer:
        frame(data.target).to_excel(writer, sheet_name="Patients", index=False)
        frame(data.background[:150]).to_excel(writer, sheet_name="Controls", index=False)
        frame(data.background[150:]).to_excel(writer, sheet_name="Other clinic", index=False)
    sheets = [f"{path}::Patients", "-b", f"{path}::Controls", "-b", f"{path}::Other clinic"]
    result = done("fit", *sheets, "--json", "-o", tmp_path / "m.standout").json
    expected = standout.DPCA(2).fit(
        frame(data.target), background=[frame(data.background[:150]), frame(data.background[150:])]
    )
    assert [each["ratio"] for each in result["model"]["components"]] == pytest.approx(expected.ratios_.tolist())
    assert [each["role"] for each in result["data"]] == ["target", "background 'Controls'", "background 'Other clinic'"]
    done("embed", tmp_path / "m.standout", f"{path}::Controls", "-o", tmp_path / "scores.csv")
    assert len(pd.read_csv(tmp_path / "scores.csv")) == 150
    stopped("fit", path, "-b", path, "--key", "Sham", match="no sheet 'Sham'.*'Patients', 'Controls'")
    stopped("fit", *sheets, "--scores", path, match=r"--scores: unsupported file type")


@quiet
def test_options_of_text_files_are_options_of_commands(data, tmp_path, done, stopped):
    for name, rows in (("target", data.target), ("background", data.background)):
        text = frame(rows).rename(columns={"a": "größe"}).astype(object)
        text.loc[3, "b"] = "<LOD"
        (tmp_path / f"{name}.csv").write_bytes(("Study 7\n" + text.to_csv(index=False)).encode("latin-1"))
    sides = [tmp_path / "target.csv", "-b", tmp_path / "background.csv"]
    stopped("fit", *sides, match="give --encoding cp1252")
    stopped("fit", *sides, "--encoding", "cp1252", match="Give --header 2")
    stopped(
        "fit", *sides, "--encoding", "cp1252", "--header", "2", match="'b' .1, such as '<LOD'.*Give --censored missing"
    )
    every = ["--encoding", "cp1252", "--header", "2", "--censored", "missing"]
    stopped("fit", *sides, *every, match="1 NaN.*--missing")
    assert (
        done("fit", *sides, *every, "--missing", "drop_rows", "--json").json["data"][0]["rows"] == len(data.target) - 1
    )
