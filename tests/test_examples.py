"""Every example runs from the command line and draws a figure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("plot_*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_draws_a_figure(example, tmp_path):
    figure = tmp_path / "figure.png"
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(example), str(figure)],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    from matplotlib.image import imread

    image = imread(figure)
    assert image.shape[0] > 200 and image.std() > 0.05
