"""Files of an experiment: reproducible JSON, valid figures, and a self-contained page."""

import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from experiments import EXPERIMENTS, run
from experiments.record import Picture, Plan, Record, Spread, Table, as_markdown, as_rows, as_text, table_from
from experiments.run import Outcome, attempt, chosen, reproduce, write_index
from experiments.write import write
from standout.errors import OutputError
from standout.plot._style import pyplot

TABLE = Table(
    "sizes",
    "Sizes",
    ("what", "size", "count"),
    (("a <b>", Spread((0.1, 0.2, 0.3)), 3), ("c", float("nan"), None)),
    "So.",
)


def drawing():
    figure, axes = pyplot().subplots(figsize=(3, 2))
    axes.plot([0, 1], [0, 1], marker="o")
    axes.set(xlabel="x", ylabel="y")
    return figure


def record(**changes):
    content = {
        "name": "lines", "title": "Lines <script>", "claim": "They are straight.", "findings": ("They are & stay.",),
        "settings": {"seeds": [0, 1], "weight": 0.5, "reduced": False, "shrinkage": None},
        "numbers": {"third": 1 / 3, "none": float("nan"), "spread": Spread((0.25, 0.75)), "count": np.int64(4)},
        "times": {"seconds": 1.5},
        "tables": (TABLE,),
        "pictures": (Picture("slope", "A slope", "It goes up.", drawing),),
    }  # fmt: skip
    return Record(**{**content, **changes})


def test_numbers_survive_a_round_trip_through_json(tmp_path):
    files = write(record(), tmp_path)
    text = files["numbers"].read_text(encoding="utf-8")
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not valid JSON"))
    assert found["numbers"]["third"] == 1 / 3 and found["numbers"]["none"] is None and found["numbers"]["count"] == 4
    assert found["numbers"]["spread"] == {"mean": 0.5, "low": 0.25, "high": 0.75, "values": [0.25, 0.75]}
    assert found["times"] == {"seconds": 1.5} and "seconds" not in json.dumps(found["numbers"])
    assert found["settings"]["seeds"] == [0, 1]
    assert found["versions"]["numpy"] == np.__version__ and "openblas" in found["versions"]["BLAS"].lower()
    assert set(found["versions"]) >= {"standout", "python", "numpy", "scipy", "scikit-learn"}
    keys = [list(part) for part in (found, found["numbers"], found["settings"])]
    assert keys == [sorted(part) for part in keys]


def test_a_table_read_from_json_equals_the_printed_table(tmp_path):
    files = write(record(), tmp_path)
    found = json.loads(files["numbers"].read_text(encoding="utf-8"))["tables"]["sizes"]
    again = table_from("sizes", found)
    assert as_text(again) == as_text(TABLE) and as_markdown(again) == as_markdown(TABLE)
    assert as_rows(TABLE) == [["a <b>", "0.20 (0.10 to 0.30)", "3"], ["c", "–", "–"]]


def test_writing_twice_gives_the_same_bytes(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        write(record(), folder)
    names = sorted(path.name for path in first.iterdir())
    assert names == ["lines-slope.png", "lines-slope.svg", "lines.html", "lines.json"]
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_figures_open_in_both_formats(tmp_path):
    files = write(record(), tmp_path)
    with Image.open(files["slope.png"]) as image:
        image.load()
        assert image.size == (420, 280) and len(np.unique(np.asarray(image.convert("L")))) > 5
    svg = ElementTree.parse(files["slope.svg"]).getroot()
    assert svg.tag == "{http://www.w3.org/2000/svg}svg" and len(list(svg.iter())) > 20


class Reader(HTMLParser):
    """Collect the text, tags and links of a page."""

    def __init__(self, text):
        super().__init__()
        self.words, self.tags, self.addresses = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data):
        self.words.append(data.strip())


def test_the_page_is_self_contained(tmp_path):
    files = write(record(), tmp_path)
    page = Reader(files["page"].read_text(encoding="utf-8"))
    for text in ("Lines <script>", "They are & stay.", "a <b>", "0.20 (0.10 to 0.30)", "A slope", "It goes up.", "So."):
        assert text in page.words
    assert any("They are straight." in words for words in page.words)
    assert {"seeds", "0, 1", "0.5", "no", "none", "numpy", np.__version__} <= set(page.words)
    assert "script" not in page.tags
    assert all(address.startswith("data:") for address in page.addresses)
    image = next(address for address in page.addresses if address.startswith("data:image/png"))
    assert len(image) > files["slope.png"].stat().st_size


def test_a_figure_that_fails_leaves_existing_files_unchanged(tmp_path):
    write(record(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    broken = Picture("slope", "A slope", "", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write(record(findings=("Other.",), pictures=(broken,)), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_missing_directory_is_rejected(tmp_path, refused):
    refused(lambda: write(record(), tmp_path / "none"), "no directory", kind=OutputError)


def test_a_failing_experiment_does_not_stop_the_others(tmp_path, monkeypatch):
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "cache"))
    monkeypatch.delenv("STANDOUT_DATA", raising=False)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", offline)
    (tmp_path / "out").mkdir()
    failed = attempt("digits", Plan(seeds=(0,), reduced=True), tmp_path / "out")
    assert failed.record is None and "could not be downloaded" in str(failed.error)
    assert not list((tmp_path / "out").iterdir())
    fine = Outcome("mice", record(), write(record(), tmp_path / "out"))
    page = Reader(write_index([failed, fine], tmp_path / "out").read_text(encoding="utf-8"))
    assert "lines.html" in page.addresses and "They are & stay." in page.words
    assert any("Give a directory that holds" in words for words in page.words)


def offline(*_, **__):
    raise OSError("there is no network")


def test_an_unknown_name_is_rejected_with_a_list_of_names(refused):
    refused(lambda: chosen("digts"), "'digts'", "Did you mean 'digits'?", "'mice'", "'all'")
    assert chosen("all") == tuple(EXPERIMENTS)


def test_a_missing_package_is_reported_before_any_work(tmp_path, monkeypatch):
    from standout.errors import MissingExtraError

    def missing():
        raise MissingExtraError("plots need matplotlib. Install it with: pip install 'standout[plot]'")

    monkeypatch.setattr(run, "pyplot", missing)
    monkeypatch.setattr("experiments.digits.digits", lambda _: pytest.fail("it was run"))
    [outcome] = reproduce("digits", Plan(embedded=True), tmp_path)
    assert isinstance(outcome.error, MissingExtraError)


def test_numbers_of_a_table_are_formatted_for_reading():
    cells = (0.12345, -0.0001, 12, "text", float("inf"), 3.2e8)
    [row] = as_rows(Table("t", "T", ("a",) * 6, (cells,), digits=3))
    assert row == ["0.123", "0.000", "12", "text", "inf", "3.2e+08"]
    assert re.fullmatch(
        r"T\na +b\nlong +1\.00\nNote\.", as_text(Table("t", "T", ("a", "b"), (("long", 1.0),), "Note."))
    )
