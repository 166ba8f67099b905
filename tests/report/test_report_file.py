"""The report is one self-contained file in which text is escaped; a failed report leaves the old file unchanged."""

import base64
import hashlib
import html
import os
import re
import sys
from functools import partial

import numpy as np
import pytest

from reports import HOSTILE, hostile, written
from standout._dpca import DPCA
from standout._moments import Moments
from standout._report import figures
from standout._report.report import _script_json, report
from standout.errors import MissingExtraError, OutputError, RowsNeededError

pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")


@pytest.fixture
def write(tmp_path):
    return partial(written, tmp_path / "report.html")


@pytest.fixture
def fitted(data):
    return DPCA(3).fit(data.target, background=data.background)


def test_text_from_the_data_is_never_markup(write, data):
    page = hostile(write, data)
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"img", "b", "iframe", "object"} and len(page.all("script")) == 3
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert all(link["href"].startswith("#") for link in page.all("a"))
    shown = "".join(page.words)
    assert all(shown.count(text) >= 2 for text in HOSTILE)


def test_text_is_escaped_for_plotly(write, data):
    page = hostile(write, data)
    for found in page.scores["sets"][: len(HOSTILE)]:
        assert not set("<>$%\n") & set(found["label"])
    labels = {html.unescape(found["label"]) for found in page.scores["sets"]}
    assert set(HOSTILE) <= labels
    assert not set("<>&") & set(page.scripts[0])


def test_arrays_labels_and_json_are_encoded_for_the_page():
    assert figures.packed(np.array([1.0, 2.0])) == {"dtype": "f4", "bdata": "AACAPwAAAEA="}
    assert figures.packed(np.array([1e-40, 1e-40]))["dtype"] == "f8"
    assert figures._literal("<b>5 % & $x$</b>") == "&lt;b&gt;5 &#37; &amp; &#36;x&#36;&lt;/b&gt;"
    assert _script_json({"name": "</script><!--"}) == r'{"name":"\u003c/script\u003e\u003c!--"}'


def test_a_file_name_that_is_not_valid_text_does_not_fail_the_report(write, data, fitted):
    assert "caf" in write(fitted, data.target, data.background, command="standout report caf\udce9.csv").text


def test_the_page_loads_nothing_and_its_policy_forbids_loading(write, data, fitted):
    page = write(fitted, data.target, data.background)
    assert [attributes["href"] for attributes in page.all("link")] == ["data:,"]
    assert not any("src" in attributes for _, attributes in page.elements)
    style = re.search(r"<style>(.*?)</style>", page.source, re.DOTALL)[1]
    assert "url(" not in style and "@import" not in style
    policy = next(meta["content"] for meta in page.all("meta") if "http-equiv" in meta)
    assert policy.startswith("default-src 'none'") and "unsafe-eval" not in policy
    for script in page.scripts[1:]:
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy


def test_the_page_is_complete_and_accessible(write, data, fitted):
    page = write(fitted, data.target, data.background, title="A title")
    assert page.source.startswith("<!doctype html>") and page.all("html") == [{"lang": "en"}]
    assert page.all("noscript") and len(page.all("h1")) == 1
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert [link["href"][1:] for link in page.all("a")] == [one["id"] for one in page.all("section") if "id" in one]
    assert all(one["aria-labelledby"] in ids for one in page.all("section"))
    plots = [one for one in page.all("div") if "plot" in one.get("class", "").split()]
    assert len(plots) == 3 and all(one["role"] == "img" and one["aria-label"] for one in plots)
    assert {f"figure-{name}" for name in page.figures} <= set(ids)
    assert all("scope" in cell for cell in page.all("th")) and len(page.all("caption")) == len(page.tables)


def test_a_report_that_fails_leaves_the_old_file_unchanged(tmp_path, data, fitted, refused):
    path = tmp_path / "report.html"
    path.write_text("old")
    refused(lambda: report(fitted, data.target, path=path, labels=["a"]), "target: labels", "200 rows")
    refused(lambda: report(fitted, data.target, path=path, ids=["a"]), "target: ids", "200 rows")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["report.html"]
    report(fitted, data.target, path=path)
    assert path.stat().st_size > 1e6 and os.listdir(tmp_path) == ["report.html"]


def test_wrong_arguments_are_refused(tmp_path, data, fitted, refused):
    path = tmp_path / "report.html"
    both = {"a": data.background, "b": data.background}
    refused(lambda: report("model", data.target, path=path), "models", "str", "not a standout estimator")
    refused(lambda: report({}, data.target, path=path), "models", "dict is empty")
    refused(lambda: report({"x": 3}, data.target, path=path), "models['x']", "int")
    refused(lambda: report(fitted, None, path=path), "target", kind=RowsNeededError)
    refused(lambda: report(fitted, Moments.of(data.target), path=path), "target", "rows", kind=RowsNeededError)
    refused(
        lambda: report(fitted, data.target, both, path=path, background_labels={"c": ["x"]}),
        "background_labels", "'c'",
    )  # fmt: skip
    refused(lambda: report(fitted, data.target, path=tmp_path / "no" / "r.html"), "no directory", kind=OutputError)
    refused(lambda: report(fitted, data.target, path=tmp_path), "is a directory", kind=OutputError)
    assert os.listdir(tmp_path) == []


def test_a_background_given_as_moments_is_not_drawn_and_the_report_states_it(write, data, fitted):
    page = write(fitted, data.target, Moments.of(data.background))
    assert [found["label"] for found in page.scores["sets"]] == ["target"]
    assert "Background was given as moments, so it has no rows to draw." in page.text


@pytest.mark.parametrize(("module", "package"), [("plotly.offline", "plotly"), ("jinja2", "jinja2")])
def test_without_its_packages_the_error_names_the_extra(monkeypatch, tmp_path, data, fitted, refused, module, package):
    from standout._report.report import templates

    if package == "jinja2":
        pytest.importorskip("plotly")  # the error would be about plotly
    templates.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    path = tmp_path / "report.html"
    refused(
        lambda: report(fitted, data.target, path=path), f"need {package}", "standout[report]", kind=MissingExtraError
    )
    assert not path.exists()
