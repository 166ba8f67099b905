"""The experiments from the command line: ``python -m experiments``."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from experiments.__main__ import main
from experiments.digits import digits
from experiments.record import Plan

ROOT = Path(__file__).parents[2]


@pytest.fixture
def entry_point():
    return main


@pytest.fixture
def without_data(tmp_path, monkeypatch):
    """Run without a data directory, a cache or a network."""
    monkeypatch.delenv("STANDOUT_DATA", raising=False)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "cache"))

    def offline(*_, **__):
        raise OSError("there is no network")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", offline)


def test_an_experiment_prints_its_tables_and_findings_and_writes_its_files(done, without_data, tmp_path):
    shown = done("digits", "--embedded", "--quick", "--seeds", 1, "-o", tmp_path / "out").out
    assert (
        shown.startswith("Digits over tiles: a substitute")
        and "Not the paper's data" in shown
        and "Reduced size" in shown
        and "dPCA by ratio (exact)" in shown
        and "\n- dPCA" in shown
    )
    names = {path.name for path in (tmp_path / "out").iterdir()}
    pictures = {f"digits-{name}.{kind}" for name in ("scores", "weights", "patterns") for kind in ("png", "svg")}
    assert names == {"digits.json", "digits.html", *pictures}
    assert all(name in shown for name in names)
    facts = json.loads((tmp_path / "out" / "digits.json").read_text(encoding="utf-8"))
    assert facts["settings"]["seeds"] == [0] and facts["settings"]["embedded"] is True
    assert f"{facts['numbers']['ari']['ratio_exact']['0.5']['mean']:.2f}" in shown
    _looks_like_a_page(tmp_path / "out" / "digits.html", tmp_path)


def _looks_like_a_page(page, folder):
    """Open a page in chromium, if installed, and check that it is not blank."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        return
    shot = folder / "page.png"
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--screenshot={shot}",
               "--window-size=1200,1600", f"--user-data-dir={folder / 'profile'}", page.as_uri()]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120, env={**os.environ, "HOME": str(folder)})
    with Image.open(shot) as image:
        colors = image.convert("RGB").getcolors(maxcolors=1 << 24)
    assert len(colors) > 100


def test_missing_data_gives_an_error_with_the_files_and_the_options(stopped, without_data, tmp_path):
    line = stopped("digits", "--quick", "-o", tmp_path / "out", match="MNIST was not found")
    assert "train-images-idx3-ubyte" in line and "--data-dir" in line and "--embedded" in line


def test_an_unknown_experiment_is_rejected(cli):
    result = cli("frogs")
    assert result.code == 2 and "'frogs'" in result.err and "optimality" in result.err


def test_an_output_directory_that_cannot_be_created_is_rejected_before_the_work(stopped, tmp_path):
    (tmp_path / "file").write_text("kept")
    stopped("digits", "--embedded", "-o", tmp_path / "file" / "out", match="--out")


def test_all_continues_after_a_failure_and_reports_it_at_the_end(cli, without_data, monkeypatch, tmp_path):
    # Two of all experiments, for speed: the first has no data, and the second must still run.
    monkeypatch.setattr("experiments.run.EXPERIMENTS", {"mice": "Proteins of mice", "digits": "Digits"})
    monkeypatch.setattr(
        "experiments.digits.digits", lambda plan: digits(Plan(plan.seeds[:1], reduced=True, embedded=True))
    )
    result = cli("all", "--quick", "-o", tmp_path / "out", "--json")
    assert result.code == 2
    assert "standout: mice did not run" in result.err and "--embedded" in result.err
    assert list(result.json["experiments"]) == ["digits"] and list(result.json["failed"]) == ["mice"]
    written = json.loads((tmp_path / "out" / "digits.json").read_text(encoding="utf-8"))
    assert result.json["experiments"]["digits"]["numbers"] == written["numbers"]
    assert result.json["files"]["index"].endswith("index.html")
    index = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert 'href="digits.html"' in index and "Failed: " in index


def test_an_internal_error_in_one_of_all_has_its_own_exit_code(cli, without_data, monkeypatch, tmp_path):
    monkeypatch.setattr("experiments.run.EXPERIMENTS", {"digits": "Digits", "mice": "Proteins of mice"})
    monkeypatch.setattr("experiments.digits.digits", lambda plan: plan.seeds / 0)
    result = cli("all", "--quick", "-o", tmp_path / "out")
    assert result.code == 1
    assert "digits did not run" in result.err and "mice did not run" in result.err and "--debug" in result.err
    assert (tmp_path / "out" / "index.html").is_file()


def test_an_output_file_that_cannot_be_written_is_rejected_before_the_work(stopped, tmp_path):
    (tmp_path / "out" / "digits.json").mkdir(parents=True)
    began = time.monotonic()
    stopped("digits", "--embedded", "--quick", "-o", tmp_path / "out", match="digits.json is a directory")
    assert time.monotonic() - began < 5  # the experiment itself takes longer


def test_it_runs_as_a_module():
    command = [sys.executable, "-m", "experiments", "--help"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert found.returncode == 0 and found.stdout.startswith("Usage: python -m experiments"), found.stderr


def test_help_has_examples_and_describes_every_option(done):
    for flag in ("-h", "--help"):
        shown = done(flag).out
        assert shown.startswith("Usage: python -m experiments") and "Examples:\n  python -m experiments digits" in shown
    lines = shown.split("Examples:")[0].splitlines()
    bare = [line for line in lines if re.fullmatch(r"\s+-{1,2}[\w-]+( [A-Z|]+)?\s*", line)]
    after = {line: lines[lines.index(line) + 1] for line in bare}
    assert all(text.startswith(" " * 10) for text in after.values()), after


def test_the_package_has_no_experiments_and_no_such_command():
    assert not (ROOT / "src" / "standout" / "experiments").exists()
    found = subprocess.run([sys.executable, "-m", "standout", "--help"], capture_output=True, text=True, timeout=120)
    assert found.returncode == 0 and "reproduce" not in found.stdout
