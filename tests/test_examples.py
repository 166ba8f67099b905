"""Every example of the gallery runs without warnings, draws one picture, and states what not to conclude.

Tutorials run when the site is built; here it is checked that each is a whole analysis.
"""

import ast
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot as plt

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*/plot_*.py"))
every_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)


def pixels(figure):
    figure.set_dpi(50)
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[..., :3]


def test_the_gallery_has_at_least_sixteen_examples():
    assert len(EXAMPLES) >= 16


@pytest.mark.docs
@every_example
def test_the_example_draws_one_picture(example, monkeypatch, capsys):
    plt.switch_backend("Agg")
    plt.close("all")
    monkeypatch.setattr(plt, "show", lambda: None)
    runpy.run_path(str(example), run_name="__main__")
    figures = plt.get_fignums()
    assert len(figures) == 1
    image = pixels(plt.figure(figures[0]))
    plt.close("all")
    assert image.shape[0] > 100
    # Some of the picture is not paper, and it has more than two colours.
    assert (image != 255).any(axis=-1).mean() > 0.01 and len(np.unique(image.reshape(-1, 3), axis=0)) > 20
    assert "Warning" not in capsys.readouterr().err


@every_example
def test_the_example_has_a_title_a_story_and_a_caution(example):
    text = example.read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(text))
    title, rule, story = re.fullmatch(r"([^\n]+)\n(=+)\n\n(.+)", docstring, re.DOTALL).groups()
    assert len(title) == len(rule)
    assert 3 <= len(re.findall(r"[.?](?:\s|$)", story)) <= 5
    assert text.count("\nplt.show()\n") == 1
    code, caution = text.split("\n# %%\n# What not to conclude\n# --------------------\n")
    assert "plt.show()" in code and len(caution) > 200


@every_example
def test_the_example_links_to_a_page_that_exists(example):
    pages = re.findall(r":doc:`/([^`]+)`", example.read_text(encoding="utf-8"))
    sources = [ROOT / "docs" / f"{page}.md" for page in pages if not page.startswith("gallery/")]
    assert sources and all(source.exists() for source in sources), pages
    shown = [ROOT / "examples" / f"{page.removeprefix('gallery/')}.py" for page in pages if page.startswith("gallery/")]
    assert all(other in EXAMPLES for other in shown)


def test_every_example_has_a_place_in_the_gallery():
    configuration = (ROOT / "docs" / "conf.py").read_text(encoding="utf-8")
    listed = ast.literal_eval(re.search(r"\nGALLERY = (\{.*?\n\})\n", configuration, re.DOTALL)[1])
    placed = {ROOT / "examples" / section / f"plot_{name}.py" for section, names in listed.items() for name in names}
    assert placed == set(EXAMPLES)


@pytest.mark.parametrize("tutorial", sorted((ROOT / "tutorials").glob("plot_*.py")), ids=lambda path: path.stem)
def test_a_tutorial_goes_from_the_data_to_a_tested_sentence_and_its_limits(tutorial):
    text = tutorial.read_text(encoding="utf-8")
    headings = re.findall(r"^# (.+)\n# -{3,}$", text, re.MULTILINE)
    assert headings[-2:] == ["The sentence", "What not to conclude"]
    assert "Is it real?" in headings
    assert "standout.assess(" in text or "standout.anndata.test(" in text
    assert text.partition("# What not to conclude\n")[2].count("\n# * **") >= 4
