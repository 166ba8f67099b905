"""Helpers for the tests of the report: a parsed page, and hostile text."""

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

from helpers import OptionalPackage
from standout._dpca import DPCA
from standout._report.report import report
from standout.io.stream import ReadSummary

pd = OptionalPackage("pandas")

HOSTILE = (
    "</script><script>document.title='run'</script>",
    "<img src=x onerror=\"document.title='run'\">",
    "<!-- <script>",
    "a\u2028b\u2029c",
    "$\\frac{1}{2}$ %{x} &lt;b&gt; <b>bold</b>",
    "<a href=\"javascript:document.title='run'\">link</a>",
    "{{ 7*7 }}{% raw %} \" onclick='x' `",
)
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """A parsed page: elements, text, tables, and the data of its script."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.source = Path(path).read_text(encoding="utf-8")
        self.elements, self.words, self.tables, self.scripts = [], [], [], []
        self._open = []
        self.feed(self.source)
        assert self._open == [], "elements are left open"
        self.text = re.sub(r"\s+", " ", " ".join(self.words))
        data = json.loads(self.scripts[0])
        self.scores, self.figures = data["scores"], data["figures"]

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("th", "td"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, text):
        if self._open[-1:] == ["script"]:
            self.scripts.append(text)
        elif self._open[-1:] != ["style"]:
            self.words.append(text)
            if "td" in self._open[-2:] or "th" in self._open[-2:]:
                self.tables[-1][-1][-1] += text.strip()

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def table(self, first):
        """Return the rows of the table with this first heading."""
        return next(table for table in self.tables if table[0][0] == first)

    def points(self, panel, component):
        """Return the drawn coordinates by the name of their set."""
        sets = self.scores["sets"]
        columns = self.scores["panels"][panel]["coordinates"]
        return {found["label"]: unpacked(own[component]) for found, own in zip(sets, columns, strict=True)}


def unpacked(typed):
    return np.frombuffer(base64.b64decode(typed["bdata"]), dtype=f"<{typed['dtype']}")


def written(path, *arguments, **named):
    """Write a report and read it back."""
    assert report(*arguments, path=path, **named) == path
    return Page(path)


def close(found, expected):
    """Compare with the precision of float32."""
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


def hostile(write, data):
    names = [f"{HOSTILE[i]}{i}" for i in range(5)]
    target, background = (pd.DataFrame(rows, columns=names) for rows in data)
    parts = {HOSTILE[0]: background[:100], HOSTILE[1]: background[100:]}
    model = DPCA(3).fit(target, background=parts)
    labels = [HOSTILE[i % len(HOSTILE)] for i in range(200)]
    return write(
        {HOSTILE[5]: model, HOSTILE[1]: DPCA(1).fit(target)}, target, parts, labels=labels, ids=labels,
        title=HOSTILE[1] + HOSTILE[0], command=HOSTILE[0], code=HOSTILE[2], notes=HOSTILE,
        accounts=[ReadSummary(HOSTILE[0], 1, 1, aside=HOSTILE)],
    )  # fmt: skip
