"""The report in a real browser: it draws, text does not run, the controls work. Skipped without chromium."""

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
from functools import partial
from importlib.metadata import version

import numpy as np
import pandas as pd
import pytest

from conftest import whole_numbers
from reports import HOSTILE, close, hostile, written
from standout._display import number
from standout._dpca import DPCA

pytestmark = [
    pytest.mark.xdist_group("report"),  # one set of pages for all of them
    pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning"),
]

_HELPERS = """
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const texts = (plot) => [...plot.querySelectorAll(".hoverlayer text")].map((text) => text.textContent);
const panels = [...document.querySelectorAll("[id^=panel-]")];
const out = {};
for (let i = 0; i < 300 && !document.documentElement.dataset.drawn; i++) await wait(50);
"""
_READ_TEXT = """
out.hover = [];
for (let curve = 0; curve < panels[0]._fullData.length; curve++) {
  Plotly.Fx.hover(panels[0], [{ curveNumber: curve, pointNumber: 0 }]);
  await wait(120);
  out.hover.push(texts(panels[0]).join("|"));
}
out.title = document.title;
out.drawn = document.documentElement.dataset.drawn;
out.fetched = performance.getEntriesByType("resource").map((entry) => entry.name);
out.unexpected = document.querySelectorAll("img, .js-plotly-plot a[href], .hoverlayer b").length;
out.buttons = [...document.querySelectorAll("[data-set]")].map((button) => button.title);
out.ticks = [...panels[1].querySelectorAll(".ytick text")].map((text) => text.textContent);
"""
_USE_CONTROLS = """
const visible = () => panels.map((panel) => panel._fullData.map((trace) => trace.visible));
const area = panels[0].querySelector(".nsewdrag"), box = area.getBoundingClientRect();
const { xaxis, yaxis } = panels[0]._fullLayout, trace = panels[0]._fullData[2];
const place = { clientX: box.left + xaxis.c2p(trace.x[0]), clientY: box.top + yaxis.c2p(trace.y[0]) };
area.dispatchEvent(new MouseEvent("mousemove", { ...place, bubbles: true }));
await wait(300);
out.pointed = panels.map((panel) => texts(panel).join("|"));
const entry = document.querySelector("[data-set='1']");
entry.click();
await wait(100);
[out.hidden, out.pressed] = [visible(), entry.getAttribute("aria-pressed")];
entry.click();
await wait(100);
out.shown = visible();
entry.dispatchEvent(new MouseEvent("dblclick"));
await wait(100);
out.alone = visible();
const choice = document.querySelector("select[data-panel='0'][data-axis='x']");
choice.value = "2";
choice.dispatchEvent(new Event("change"));
await wait(200);
[out.x, out.name] = [Array.from(panels[0]._fullData[2].x), panels[0]._fullLayout.xaxis.title.text];
out.cloud = document.querySelectorAll("[data-title^=Share], .modebar-btn--logo").length;
out.failed = !document.getElementById("drawing-error").hidden;
"""
_MEASURE = """
out.types = [...new Set(panels.flatMap((panel) => panel._fullData.map((trace) => trace.type)))];
out.points = panels.map((panel) => panel._fullData.reduce((sum, trace) => sum + trace._length, 0));
out.refused = document.querySelectorAll(".no-webgl").length;
out.webgl = Boolean(document.createElement("canvas").getContext("webgl"));
out.width = [document.documentElement.clientWidth, document.documentElement.scrollWidth];
out.columns = new Set(panels.map((panel) => panel.getBoundingClientRect().left)).size;
"""
_COLLECT = """
(async () => {
  const results = {};
  for (const frame of document.querySelectorAll("iframe")) {
    let found = null;
    for (let i = 0; i < 600 && !found; i++) {
      await new Promise((done) => setTimeout(done, 50));
      found = frame.contentDocument && frame.contentDocument.getElementById("result");
    }
    results[frame.name] = found ? JSON.parse(found.textContent) : "no answer";
  }
  document.body.innerHTML = "<pre id=result></pre>";
  document.getElementById("result").textContent = JSON.stringify(results);
})();
"""


def driven(source, code):
    """Return a page with one more script, which its policy (if any) allows."""
    script = (
        f"(async () => {{ let result; try {{ result = await (async () => {{ {_HELPERS} {code} return out; }})(); }}"
        "catch (error) { result = String(error.stack); } const pre = document.createElement('pre'); pre.id = 'result';"
        "pre.textContent = JSON.stringify(result); document.body.append(pre); })();"
    )
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    source = source.replace("script-src ", f"script-src 'sha256-{allowed}' ", 1)
    return source.replace("</body>", f"<script>{script}</script></body>")


def browse(program, pages, folder):
    """Open pages in frames of one chromium; return the result of each script, and the console messages."""
    frames = []
    for name, (source, code, width) in pages.items():
        (folder / f"{name}.html").write_text(driven(source, code), encoding="utf-8")
        frames.append(
            f'<iframe name="{name}" src="{name}.html" style="width:{width}px;height:900px;border:0"></iframe>'
        )
    index = folder / "index.html"
    index.write_text(f"<!doctype html><body>{''.join(frames)}<script>{_COLLECT}</script>", encoding="utf-8")
    done = subprocess.run(
        [
            program, "--headless=new", "--no-sandbox", "--enable-unsafe-swiftshader", "--allow-file-access-from-files",
            "--hide-scrollbars", "--virtual-time-budget=60000", f"--user-data-dir={folder / 'profile'}",
            "--window-size=1300,3000", "--enable-logging=stderr", "--dump-dom", index.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    result = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.DOTALL)
    assert result, done.stderr[-2000:]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line and "GPU stall" not in line]
    return json.loads(html.unescape(result[1])), console


def crowd():
    """Return a model, 12,000 rows, and labels and names that are too long for a narrow page."""
    rng = np.random.default_rng(0)
    names = [f"{'a_name_without_a_place_to_break_' * 3}{i}" for i in range(3)]
    target = pd.DataFrame(rng.normal(size=(6000, 3)) * [1, 3, 1], columns=names)
    background = pd.DataFrame(rng.normal(size=(6000, 3)), columns=names)
    model = DPCA(2).fit(target, background=background)
    return (model, target, background), [f"{'long_' * 30}{i % 25}" for i in range(6000)]


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What a real browser shows of three reports; it is started once for all tests."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
    if program is None:
        pytest.skip("no chromium was found: install it (on Debian: apt-get install chromium) to test reports in it")
    folder, data = tmp_path_factory.mktemp("browser"), whole_numbers()

    write = partial(written, folder / "report.html")
    fitted = DPCA(3).fit(data.target, background=data.background)
    arguments, labels = crowd()
    # Without its policy, so that only the escaping protects the page.
    harm = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", hostile(write, data).source)
    use = write(fitted, data.target, data.background, labels=np.arange(200) % 2).source
    long = {"title": "x" * 300, "command": "y" * 300, "notes": ["z" * 300], "labels": labels}
    pages = {
        "text": (harm, _READ_TEXT, 1200),
        "use": (use, _USE_CONTROLS, 1200),
        "narrow": (write(*arguments, **long).source, _MEASURE, 380),
    }
    found, console = browse(program, pages, folder)
    return {**found, "console": console}


def test_the_console_of_the_browser_is_empty(seen):
    found = seen["console"]
    if int(version("plotly").partition(".")[0]) < 7:  # the browser's advice to plotly
        found = [line for line in found if "Canvas2D: Multiple readback" not in line]
    assert found == []


def test_in_a_browser_hostile_text_is_shown_and_does_not_run(seen):
    found = seen["text"]
    assert found["title"] == HOSTILE[1] + HOSTILE[0]
    assert found["drawn"] == "3" and found["fetched"] == [] and found["unexpected"] == 0

    def joined(text):  # browsers omit line separators in drawn text
        return re.sub("[\u2028\u2029]", "", text)

    hovers = [joined(text) for text in found["hover"]]
    for text in map(joined, HOSTILE):
        assert any(hover.count(text) == 2 for hover in hovers), (text, hovers)  # as id and as label
    assert set(HOSTILE) <= set(found["buttons"]) and "<!-- <script>" in found["ticks"]


def test_in_a_browser_the_legend_the_axes_and_the_pointer_work(seen, data):
    found, fitted = seen["use"], DPCA(3).fit(data.target, background=data.background)
    assert [text.startswith("row 2") for text in found["pointed"]] == [True, True]  # the same row in both panels
    assert found["hidden"] == [[True, True, False]] * 2 and found["pressed"] == "false"
    assert found["shown"] == [[True, True, True]] * 2 and found["alone"] == [[False, False, True]] * 2
    close(found["x"], fitted.transform(data.target)[1::2, 2])
    assert found["name"] == f"dpca2 (ratio {number(fitted.ratios_[2])})"
    assert found["cloud"] == 0 and found["failed"] is False


def test_in_a_browser_many_points_are_drawn_by_webgl(seen):
    found = seen["narrow"]
    assert found["points"] == [12_000] * 2 and found["refused"] == 0
    assert found["types"] == (["scattergl"] if found["webgl"] else ["scatter"])


def test_a_narrow_page_has_one_column_and_does_not_scroll_sideways(seen):
    assert seen["narrow"]["width"] == [380, 380] and seen["narrow"]["columns"] == 1
