"""The explorer in a real browser: all controls at two widths, all exports and addresses. Skipped without chromium."""

import json
import re
import shutil
import subprocess
import sys
from urllib.parse import unquote, urlsplit

import numpy as np
import pandas as pd
import pytest

from standout import explore

pytest.importorskip("starlette")
playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium was not found: install it to test the explorer in a browser"),
    pytest.mark.xdist_group("browser"),
    pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning"),
]
HOSTILE = "<img src=x onerror=document.title='owned'>"


def tables(folder, seed=0):
    """Write a target with a group of 40 rows, and two backgrounds, as csv files."""
    rng = np.random.default_rng(seed)
    names = [*(f"gene{i}" for i in range(11)), HOSTILE]
    target = rng.normal(size=(200, 12)) * np.r_[6, 4, np.ones(10)]
    target[:40, 3:6] += 4
    frame = pd.DataFrame(target.round(6), columns=names)
    frame["kind"] = ["case"] * 40 + ["rest"] * 159 + [HOSTILE]
    frame["id"] = [f"s{i}" for i in range(199)] + [HOSTILE]
    frame.to_csv(folder / "target.csv", index=False)
    for number, rows in ((1, 300), (2, 150)):
        other = pd.DataFrame((rng.normal(size=(rows, 12)) * np.r_[6, 4, np.ones(10)]).round(6), columns=names)
        other.to_csv(folder / f"background{number}.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """The command line, in a process of its own."""
    folder = tables(tmp_path_factory.mktemp("explore"))
    words = [
        "explore",
        "target.csv",
        "-b",
        "background1.csv",
        "-b",
        "background2.csv",
        "--label",
        "kind",
        "--ids",
        "id",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "standout", *words, "--no-browser", "--port", "0", "--quiet"],
        cwd=folder, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    line = process.stdout.readline()
    yield folder, re.search(r"http://\S+", line).group()
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as engine:
        # WebGL without a graphics card, and only for what needs it.
        options = ["--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
        options += ["--disable-gpu-compositing", "--no-sandbox"]
        opened = engine.chromium.launch(executable_path=CHROMIUM, args=options)
        yield opened
        opened.close()


# For what does not depend on the layout.
at_one_width = pytest.mark.parametrize("window", [1400], indirect=True, ids=["wide"])


@pytest.fixture(scope="module", params=[1400, 800], ids=["wide", "narrow"])
def window(request, browser):
    """One window for all tests of a width: loading a page again takes half the time."""
    context = browser.new_context(viewport={"width": request.param, "height": 950}, accept_downloads=True)
    yield context.new_page()
    context.close()


@pytest.fixture
def page(window, started):
    """A page whose errors and foreign requests fail the test."""
    errors, host = [], urlsplit(started[1]).netloc
    listeners = {
        "console": lambda message: errors.append(message.text) if message.type == "error" else None,
        "pageerror": lambda error: errors.append(str(error)),
        "request": lambda sent: errors.append(sent.url) if urlsplit(sent.url).netloc not in (host, "") else None,
    }
    for event, listener in listeners.items():
        window.on(event, listener)
    load(window, started[1])
    yield window
    for event, listener in listeners.items():
        window.remove_listener(event, listener)
    assert errors == []


def load(page, url):
    """Load a page; an address that differs from the last one in its fragment only is loaded as well."""
    if page.url == "about:blank":
        page.goto(url)
    else:
        page.evaluate("(url) => { history.replaceState(null, '', url); history.scrollRestoration = 'manual'; }", url)
        page.reload()
    page.wait_for_selector("html[data-ready=true]", timeout=60_000)


def state(page):
    return json.loads(unquote(urlsplit(page.url).fragment))


def wait_text(page, selector, pattern):
    script = "([selector, pattern]) => new RegExp(pattern).test(document.querySelector(selector).textContent)"
    page.wait_for_function(script, arg=[selector, pattern], timeout=60_000)
    return page.text_content(selector)


def coordinates(page, name, trace):
    """Coordinates of a trace of a plot."""
    script = """([name, trace]) => {
      const found = document.getElementById(`${name}-plot`).data.find((each) => each.name === trace);
      return [Array.from(found.x), Array.from(found.y)];
    }"""
    return np.array(page.evaluate(script, [name, trace]), dtype=float)


def set_dial(page, name, stop):
    page.eval_on_selector(
        f"#{name}-range", "(range, stop) => { range.value = stop; range.dispatchEvent(new Event('input')); }", stop
    )
    page.wait_for_function(
        "([name, stop]) => JSON.parse(decodeURIComponent(location.hash.slice(1)))[name].stop === stop", arg=[name, stop]
    )


def lasso(page, name, low, high):
    """Draw a lasso around the part of a plot between two shares of its width."""
    page.locator(f"#{name}-plot").scroll_into_view_if_needed()
    box = page.locator(f"#{name}-plot .nsewdrag").bounding_box()
    at = [(low, 0.02), (high, 0.02), (high, 0.98), (low, 0.98), (low, 0.05)]
    points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in at]
    page.mouse.move(*points[0])
    page.mouse.down()
    for point in points[1:]:
        page.mouse.move(*point, steps=5)
    page.mouse.up()


def test_it_opens_with_pca_and_dpca_and_the_verdict_of_the_library(page):
    assert page.input_value("#left-method") == "pca" and page.input_value("#right-method") == "dpca"
    assert wait_text(page, "#verdict-headline", "stand").startswith("May stand out")
    assert page.title().startswith("What is specific to target.csv")
    assert page.locator("#left-plot canvas").count() and page.locator("#right-plot canvas").count()
    assert HOSTILE in page.text_content("#legend")
    assert page.locator("img").count() == 0  # names are text


def test_the_dial_moves_the_points_and_the_ratios(page):
    wait_text(page, "#right-value", "automatic")
    before, title = coordinates(page, "right", "case"), page.text_content("#right-plot .xtitle")
    set_dial(page, "right", 30)
    wait_text(page, "#right-value", r"shrinkage \d")
    page.wait_for_function("(title) => document.querySelector('#right-plot .xtitle').textContent !== title", arg=title)
    page.wait_for_selector("#right-plot[data-stop='30']")
    after = coordinates(page, "right", "case")
    assert not np.allclose(before, after)
    assert np.corrcoef(before[0], after[0])[0, 1] > 0.8  # the axis did not flip
    assert page.locator("#right-marks .mark").count() >= 1
    page.click("#right-auto")
    wait_text(page, "#right-value", "automatic")
    page.wait_for_function("(title) => document.querySelector('#right-plot .xtitle').textContent === title", arg=title)
    page.wait_for_selector("#right-plot[data-stop='0']")
    np.testing.assert_allclose(coordinates(page, "right", "case"), before)


def test_a_lasso_shows_why_and_a_second_one_is_compared(page):
    wait_text(page, "#right-value", "automatic")
    scores = coordinates(page, "right", "case")[0].mean()
    side = (0.62, 0.99) if scores > 0 else (0.01, 0.38)
    other = (0.01, 0.38) if scores > 0 else (0.62, 0.99)
    lasso(page, "right", *side)
    assert "rows" in wait_text(page, "#count-a", r"\d+ of 200 rows")
    assert "The selection" in wait_text(page, "#conclusion", "hold")
    first = page.text_content("#effects tbody tr th")
    assert first in ("gene3", "gene4", "gene5")
    rings = coordinates(page, "left", "selection a")
    assert rings.shape[1] == state_count(page, "a")
    page.check("input[name=which][value=b]")
    lasso(page, "right", *other)
    wait_text(page, "#count-b", r"\d+ of 200 rows")
    wait_text(page, "#conclusion", "Selection B: ")
    assert "selection B" in page.text_content("#effects p")
    page.click("#clear")
    wait_text(page, "#count-a", "no rows")
    assert state(page)["a"] is None and page.locator("#effects tbody tr").count() == 0


def state_count(page, which):
    return int(re.match(r"[\d,]+", page.text_content(f"#count-{which}")).group().replace(",", ""))


def test_hovering_a_row_rings_it_in_the_other_view(page):
    wait_text(page, "#right-value", "automatic")
    place = page.evaluate("""() => {
      const plot = document.getElementById("left-plot");
      const box = plot.querySelector(".nsewdrag").getBoundingClientRect();
      const trace = plot.data.find((each) => each.name === "case");
      const { xaxis, yaxis } = plot._fullLayout;
      return [box.left + xaxis.c2p(trace.x[0]), box.top + yaxis.c2p(trace.y[0])];
    }""")
    page.mouse.move(*place)
    page.mouse.move(place[0] + 1, place[1])
    page.wait_for_function("() => document.getElementById('right-plot').data.at(-1).x.length === 1")


def test_a_background_can_be_switched_off_and_the_last_one_not(page):
    wait_text(page, "#right-value", "automatic")
    before = page.text_content("#right-plot .xtitle")
    page.uncheck("[data-on='1']")
    page.wait_for_function("(title) => document.querySelector('#right-plot .xtitle').textContent !== title", arg=before)
    assert state(page)["on"] == [0]
    assert page.is_disabled("[data-on='0']")
    page.check("[data-on='1']")
    page.wait_for_function("(title) => document.querySelector('#right-plot .xtitle').textContent === title", arg=before)


@at_one_width
def test_a_test_can_be_cancelled_and_run_to_its_verdict(page):
    wait_text(page, "#right-value", "automatic")
    set_dial(page, "right", 41)
    page.fill("#permutations", "99999")
    page.click("#test-start")
    wait_text(page, "#test-state", "%|start")
    page.click("#test-cancel")
    wait_text(page, "#test-state", "cancelled")
    page.fill("#permutations", "99")
    page.click("#test-start")
    wait_text(page, "#test-state", "done")
    assert page.is_enabled("#test-start")  # again, with more permutations
    assert wait_text(page, "#verdict-headline", "Stands out").startswith("Stands out")
    assert "Permutation test" in page.text_content("#test-summary")


@at_one_width
def test_files_and_pictures_are_downloaded(page, tmp_path):
    starts = {
        "[data-export='scores.csv']": b'"dataset",',
        "[data-export='scores.parquet']": b"PAR1",
        "[data-export='report.html']": b"<!doctype html>",
        "[data-export='model.standout']": b"PK",
        "[data-picture='svg']": b"<svg",
        "[data-picture='png']": b"\x89PNG",
    }
    for button, start in starts.items():
        with page.expect_download() as got:
            page.click(button)
        got.value.save_as(tmp_path / "file")
        content = (tmp_path / "file").read_bytes()
        assert content.lower().startswith(start.lower()) and len(content) > 2000, button


@at_one_width
def test_exported_code_and_command_give_the_numbers_on_the_screen(page, started, tmp_path):
    folder, _ = started
    wait_text(page, "#right-value", "automatic")
    set_dial(page, "right", 20)
    value = wait_text(page, "#right-value", r"shrinkage 0\.\d+")
    page.wait_for_selector("#right-plot[data-stop='20']")
    wait_text(page, "#python", r"shrinkage=0\.")
    wait_text(page, "#command", r"--shrinkage 0\.")
    script = page.text_content("#python") + f"\nimport numpy\nnumpy.save({str(tmp_path / 'scores.npy')!r}, scores)\n"
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], cwd=folder, check=True, capture_output=True)
    shown = np.concatenate([coordinates(page, "right", name) for name in ("case", "rest")], axis=1)
    expected = np.load(tmp_path / "scores.npy")[:199].T
    np.testing.assert_allclose(shown, expected, atol=1e-5)
    command = page.text_content("#command")
    done = subprocess.run(
        f"{sys.executable} -m {command} --json", cwd=folder, shell=True, check=True, capture_output=True
    )
    found = json.loads(done.stdout)["model"]
    assert value.split()[1] == f"{found['shrinkage']:.3g}"


@at_one_width
def test_the_address_holds_the_whole_state(page, started):
    wait_text(page, "#right-value", "automatic")
    page.select_option("#left-method", "cpca")
    page.select_option("#right-x", "1")
    page.select_option("#right-y", "2")
    page.select_option("#colour", "")
    set_dial(page, "right", 12)
    lasso(page, "right", 0.5, 0.99)
    wait_text(page, "#conclusion", "hold")
    page.uncheck("input[aria-label='show background2']")
    zoom = (
        "Plotly.relayout('right-plot', { 'xaxis.range': [-1.5, 2], 'yaxis.range': [-3, 4] })"  # as its zoom tool does
    )
    page.evaluate(zoom)
    address, count = page.url, page.text_content("#count-a")
    points, conclusion = coordinates(page, "right", "target"), page.text_content("#conclusion")
    load(page, address)
    wait_text(page, "#conclusion", "hold")
    assert page.url == address
    assert page.text_content("#count-a") == count and page.text_content("#conclusion") == conclusion
    np.testing.assert_allclose(coordinates(page, "right", "target"), points)
    assert page.evaluate("document.getElementById('right-plot').layout.xaxis.range") == [-1.5, 2]
    page.select_option("#right-y", "3")
    assert state(page)["right"]["zoom"] is None
    assert page.input_value("#left-method") == "cpca" and not page.is_checked("input[aria-label='show background2']")


@at_one_width
def test_an_address_that_was_cut_or_changed_opens_as_a_new_one(page, started):
    for fragment in ("%7B%22left", "nothing", "%7B%22left%22%3A%7B%22method%22%3A%22x%22%7D%2C%22on%22%3A%5B99%5D%7D"):
        load(page, f"{started[1]}#{fragment}")
        assert page.input_value("#left-method") == "pca" and state(page)["on"] == [0, 1]


def test_the_keyboard_is_enough(page):
    wait_text(page, "#right-value", "automatic")
    page.focus("#right-range")
    page.keyboard.press("ArrowLeft")
    wait_text(page, "#right-value", r"shrinkage [\d.]+$")
    page.focus("#by-fields summary")
    page.keyboard.press("Enter")
    page.focus("#x-low")
    page.keyboard.type("0")
    page.keyboard.press("Enter")
    wait_text(page, "#count-a", r"\d+ of 200 rows")
    wait_text(page, "#conclusion", "hold")
    page.focus("#label-value")
    page.keyboard.type("case")
    page.focus("#label-form button")
    page.keyboard.press("Enter")
    wait_text(page, "#conclusion", "chosen by label")
    reached = set()
    page.focus(".skip")
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.dataset.export || ''"))
    wanted = {
        "colour",
        "left-method",
        "right-method",
        "right-range",
        "right-auto",
        "test-start",
        "clear",
        "scores.csv",
        "model.standout",
    }
    assert wanted <= reached


def test_every_control_has_a_name(page):
    unnamed = page.evaluate("""() => {
      const named = (each) => each.labels?.length || each.textContent.trim() || each.getAttribute("aria-label");
      const controls = [...document.querySelectorAll("button, input, select, progress, [role=img]")];
      return controls.filter((each) => !named(each)).map((each) => each.outerHTML);
    }""")
    assert unnamed == []


def test_reduced_motion_and_the_dark_theme_are_respected(browser, started):
    context = browser.new_context(reduced_motion="reduce", color_scheme="dark", viewport={"width": 1400, "height": 950})
    opened = context.new_page()
    load(opened, started[1])
    wait_text(opened, "#right-value", "automatic")
    frames = opened.evaluate("""async () => {
      let count = 0;
      const plot = document.getElementById("right-plot");
      plot.on("plotly_afterplot", () => count++);
      const range = document.getElementById("right-range");
      range.value = 25;
      range.dispatchEvent(new Event("input"));
      await new Promise((done) => setTimeout(done, 1500));
      return count;
    }""")
    assert frames <= 3
    colours = """() => {
      const plot = document.getElementById("right-plot");
      return [plot.layout.paper_bgcolor, plot.data.find((each) => each.name === "background2").marker.color];
    }"""
    assert opened.evaluate(colours) == ["#1c232b", "#dadce0"]
    opened.emulate_media(color_scheme="light")
    opened.wait_for_function("document.getElementById('right-plot').layout.paper_bgcolor === '#ffffff'")
    assert opened.evaluate(colours) == ["#ffffff", "#5f6368"]
    context.close()


def test_ten_tabs_work_at_the_same_time(browser, started):
    context = browser.new_context(viewport={"width": 400, "height": 300}, reduced_motion="reduce")
    tabs = [context.new_page() for _ in range(10)]
    for tab in tabs:  # without waiting for the one before
        tab.goto(started[1], wait_until="commit")
    for tab in tabs:
        tab.wait_for_selector("html[data-ready=true]", timeout=120_000)
    for number, tab in enumerate(tabs):
        set_dial(tab, "right", 10 + number)
    for number, tab in enumerate(tabs):
        tab.wait_for_selector(f"#right-plot[data-stop='{10 + number}']", timeout=120_000)
        assert tab.is_hidden("#lost") and tab.text_content("#right-message") == ""
    context.close()


def test_a_lost_connection_is_shown_and_ends(browser, tmp_path):
    rng = np.random.default_rng(0)
    target, background = rng.normal(size=(60, 4)), rng.normal(size=(80, 4))
    with explore(target, background, open_browser=False) as opened:
        page = browser.new_page()
        load(page, opened.url)
        page.context.set_offline(True)
        page.select_option("#right-method", "cpca")
        page.wait_for_selector("#lost:not([hidden])")
        page.context.set_offline(False)
        page.wait_for_selector("#lost", state="hidden", timeout=10_000)
        wait_text(page, "#right-value", "alpha")
        page.close()
