"""Suspicious tables on the command line: the warnings, and the options that they name."""

import numpy as np
import pandas as pd
import pytest

from commands import quiet

GENES = ["ACTB", "GAPDH", "TP53", "EGFR", "MYC", "KRAS"]


@pytest.fixture
def tables():
    rng = np.random.default_rng(0)
    return {
        name: pd.DataFrame(rng.normal(size=(n, 6)), columns=GENES) for name, n in (("patients", 60), ("controls", 50))
    }


@pytest.fixture
def sides(tmp_path):
    return [tmp_path / "patients.csv", "-b", tmp_path / "controls.csv"]


def write(folder, tables, **options):
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False, **options)


@quiet
@pytest.mark.parametrize("command", ["fit", "report", "compare", "test"])
def test_every_command_names_a_batch_column_and_how_to_leave_it_out(tables, tmp_path, done, sides, command):
    write(tmp_path, {name: table.assign(batch=i) for i, (name, table) in enumerate(tables.items())})
    options = {
        "report": ["-o", tmp_path / "page.html"],
        "test": ["--permutations", "19", "--bootstrap", "5", "-o", tmp_path / "page.html"],
    }.get(command, [])
    result = done(command, *sides, *options)
    assert "'batch' (disjoint ranges in target and background)" in result.out + result.err
    assert "--drop batch" in result.out + result.err
    if command in ("report", "test"):
        assert "disjoint ranges in target and background" in (tmp_path / "page.html").read_text()
    dropped = done(command, *sides, *options, "--drop", "batch")
    assert "disjoint" not in dropped.out + dropped.err


@quiet
def test_a_finding_is_in_the_json_and_shown_with_quiet(tables, tmp_path, done, sides):
    write(tmp_path, {name: table.assign(nr=range(len(table))) for name, table in tables.items()})
    assert any("'nr' (sorted in row order)" in text for text in done("fit", *sides, "--json").json["model"]["notes"])
    assert "'nr' (sorted in row order)" in done("fit", *sides, "--quiet").out


@quiet
def test_the_same_file_given_twice_is_reported_with_the_count(tables, tmp_path, done):
    write(tmp_path, tables)
    same = done("fit", tmp_path / "patients.csv", "-b", tmp_path / "patients.csv").out
    assert "background: all 60 rows are also in the target" in same


@quiet
def test_transposed_files_are_refused_and_read_with_transpose(tables, tmp_path, done, stopped, sides):
    frames = {name: table.set_axis([f"{name}{i}" for i in range(len(table))]).T for name, table in tables.items()}
    for name, frame in frames.items():
        frame.to_csv(tmp_path / f"{name}.csv", index_label="gene")
    stopped("fit", *sides, match=r"Use --transpose\.")
    turned = done("fit", *sides, "--transpose", "--json").json["model"]["components"]
    write(tmp_path, tables)
    plain = done("fit", *sides, "--json").json["model"]["components"]
    assert [one["ratio"] for one in turned] == pytest.approx([one["ratio"] for one in plain])


@quiet
def test_a_transposed_file_can_be_embedded_and_its_code_can_be_run(tables, tmp_path, done, sides):
    for name, table in tables.items():
        table.set_axis([f"{name}{i}" for i in range(len(table))]).T.to_csv(tmp_path / f"{name}.csv", index_label="gene")
    model, scores = tmp_path / "model.standout", tmp_path / "scores.csv"
    done("fit", *sides, "--transpose", "-o", model, "--scores", scores)
    done("embed", model, sides[0], "--transpose", "-o", tmp_path / "again.csv")
    again, first = pd.read_csv(tmp_path / "again.csv"), pd.read_csv(scores)
    np.testing.assert_allclose(again.filter(like="dpca"), first.filter(like="dpca")[: len(again)], rtol=1e-9)
