"""Every example runs and draws a picture."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib import pyplot as plt
from matplotlib.image import imread

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("plot_*.py"))


def check(picture):
    image = imread(picture)
    assert image.shape[0] > 200 and image.std() > 0.05


@pytest.mark.parametrize("example", EXAMPLES[:-1], ids=lambda path: path.stem)
def test_the_example_draws_a_picture(example, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(example), str(tmp_path / "picture.png")])
    plt.switch_backend("Agg")
    runpy.run_path(str(example), run_name="__main__")
    plt.close("all")
    capsys.readouterr()
    check(tmp_path / "picture.png")


def test_an_example_runs_from_the_command_line(tmp_path):
    command = [sys.executable, "-W", "error::UserWarning", str(EXAMPLES[-1]), str(tmp_path / "picture.png")]
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    check(tmp_path / "picture.png")
