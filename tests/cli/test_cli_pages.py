"""The commands compare, report, demo and completion, and the help pages."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from commands import fitted, quiet

pytest.importorskip("click")


@quiet
def test_compare_shows_all_methods(data, files, done):
    result = done("compare", files / "target.csv", "-b", files / "background.csv", "--label", "kind", "--ids", "id",
                  "-o", files / "compare.html", "--json")  # fmt: skip
    views = {view["name"]: view for view in result.json["views"]}
    assert next(iter(views)) == "PCA" and list(views)[-2:] == ["dPCA by ratio", "dPCA by signal"]
    assert any(name.startswith("cPCA, alpha") for name in views)
    ratios = [component["ratio"] for component in views["dPCA by ratio"]["model"]["components"]]
    np.testing.assert_allclose(ratios, fitted(data).ratios_)
    values, _ = np.linalg.eigh(np.cov(data.target.T, ddof=0))
    assert views["PCA"]["share"] == pytest.approx(values[-2:].sum() / values.sum())
    assert all(view["share"] <= views["PCA"]["share"] + 1e-12 for view in views.values())
    page = (files / "compare.html").read_text(encoding="utf-8")
    assert all(name.split(",")[0] in page for name in views)
    assert "dPCA by signal" in done("compare", files / "target.csv", "-b", files / "background.csv").out


def test_report_writes_a_html_page(files, done):
    done("report", files / "target.csv", "-b", files / "background.csv", "--label", "kind", "-o", files / "r.html")
    page = (files / "r.html").read_text(encoding="utf-8")
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "standout report" in page and "standout.read(" in page and "noise" in page.lower()


def test_demo_writes_files_for_the_commands_that_it_prints(tmp_path, done, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = done("demo").out
    assert "ARI" in shown and "dPCA" in shown
    assert [path.name for path in tmp_path.iterdir()] == ["standout-demo"]
    written = {path.name for path in (tmp_path / "standout-demo").iterdir()}
    assert written == {"target.csv", "background.csv", "demo.png", "report.html"}
    with Image.open(tmp_path / "standout-demo" / "demo.png") as image:
        pixels = np.asarray(image.convert("RGB"))
    assert min(pixels.shape[:2]) > 200 and len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20
    commands = [line.split()[1:] for line in shown.splitlines() if line.startswith("  standout ")]
    assert len(commands) == 2
    for command in commands:
        few = ["--permutations", "19", "--bootstrap", "5"] if command[0] == "test" else []
        done(*command, *few)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_every_shell(done, shell):
    assert "_STANDOUT_COMPLETE" in done("completion", shell).out


def test_completion_completes():
    variables = {**os.environ, "_STANDOUT_COMPLETE": "bash_complete", "COMP_WORDS": "standout fi", "COMP_CWORD": "1"}
    printed = subprocess.run(
        [sys.executable, "-m", "standout"], env=variables, capture_output=True, text=True, timeout=60
    )
    assert "plain,fit" in printed.stdout


COMMANDS = ["fit", "test", "embed", "denoise", "info", "compare", "report", "demo", "completion"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(done, command):
    for flag in ("-h", "--help"):
        shown = done(command, flag).out
        assert shown.startswith(f"Usage: standout {command}") and f"Examples:\n  standout {command}" in shown
    assert command in done("--help").out


def test_every_option_has_a_help_text(done):
    for command in COMMANDS:
        lines = done(command, "--help").out.split("Examples:")[0].splitlines()
        bare = [line for line in lines if re.fullmatch(r"\s+-{1,2}[\w-]+( [A-Z|]+)?\s*", line)]
        after = {line: lines[lines.index(line) + 1] for line in bare}
        assert all(text.startswith(" " * 10) for text in after.values()), after
