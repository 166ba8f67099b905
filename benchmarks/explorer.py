"""The explorer: from the fitted model to the first view, the dial, and memory of server and page."""

from __future__ import annotations

import shutil
import time
import warnings

import numpy as np

from benchmarks.measure import Result, _status, extra_megabytes
from standout._dpca import DPCA
from standout._explore.launch import Explorer
from standout._explore.session import Exploration, View

SIZES = {"10,000 × 500": (10_000, 500), "200,000 × 50": (200_000, 50), "2,000 × 20,000": (2_000, 20_000)}
_TABS = 10


def _data(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    target, background = rng.standard_normal((2, rows, columns))
    target[: rows // 5, :10] += 2
    return target, background


def _small() -> tuple[np.ndarray, np.ndarray]:
    return _data(*SIZES["10,000 × 500"])


def _opened(target: np.ndarray, background: np.ndarray) -> Exploration:
    exploration = Exploration(target, background)
    exploration.describe(View("dpca", 0, 0, 1, (0,)))
    exploration.points(View("dpca", 0, 0, 1, (0,)))
    exploration.points(View("pca", 0, 0, 1, (0,)))
    return exploration


def explorer() -> list[Result]:
    """Start, dial and memory at three sizes; the browser at the largest number of rows."""
    rows = []
    warnings.simplefilter("ignore")
    for name, size in SIZES.items():
        target, background = _data(*size)
        DPCA(5).fit(target, background=background)  # warm up
        began = time.perf_counter()
        DPCA(5).fit(target, background=background)
        fit = time.perf_counter() - began
        began = time.perf_counter()
        exploration = _opened(target, background)
        start = time.perf_counter() - began
        began = time.perf_counter()
        exploration.stops("dpca", (0,))
        path = time.perf_counter() - began
        times = []
        for stop in range(1, len(exploration.stops("dpca", (0,)).values)):
            began = time.perf_counter()
            view = View("dpca", stop, 0, 1, (0,))
            exploration.points(view), exploration.describe(view)
            times.append(time.perf_counter() - began)
        dial = float(np.median(times))
        note = f"first view after {start:.1f} s, all stops after {path:.1f} s more; one fit takes {fit:.2f} s"
        rows.append(Result(f"explorer, {name}: one move of the dial", 1e3 * dial, "ms", "≤ 100 ms", dial <= 0.1, note))
        del exploration
    memory = extra_megabytes(_small, _opened)
    limit = 2 * sum(part.nbytes for part in _small()) / 2**20
    what = "explorer, 10,000 × 500: memory of the server above the data"
    rows.append(Result(what, memory, "MB", f"≤ {limit:.0f} MB (twice the data)", memory <= limit))
    return [*rows, *_page()]


def _page() -> list[Result]:
    """Return the memory of the browser with one page, and the time of ten pages, at 200,000 rows."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return []
    from playwright.sync_api import sync_playwright

    exploration = Exploration(*_data(*SIZES["200,000 × 50"]))
    with Explorer(exploration) as explorer, sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        pages, began = [], time.perf_counter()
        heap = 0.0
        for number in range(_TABS):
            page = browser.new_page()
            page.goto(explorer.url)
            page.wait_for_selector("html[data-ready=true]", timeout=300_000)
            pages.append(page)
            if number == 0:
                heap = page.evaluate("performance.memory.usedJSHeapSize") / 2**20
                first = time.perf_counter() - began
        resident = _status("VmRSS") / 1024
        browser.close()
    what = "the page at 200,000 × 50: JavaScript heap"
    return [
        Result(what, heap, "MB", "≤ 500 MB", heap <= 500, f"ready after {first:.1f} s"),
        Result("the same with ten tabs: resident memory of the server", resident, "MB", "≤ 2000 MB", resident <= 2000),
    ]


CASES = {"explorer": explorer}
