"""The explorer: from the fitted model to the first view, the dial, and memory of server and page."""

from __future__ import annotations

import multiprocessing
import shutil
import time
import warnings

import numpy as np

from benchmarks.measure import Result, _resident, _status, extra_megabytes
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
        DPCA().fit(target[:50], background=background[:50])  # warm up
        began = time.perf_counter()
        DPCA().fit(target, background=background)
        fit = time.perf_counter() - began
        began = time.perf_counter()
        exploration = _opened(target, background)
        start = time.perf_counter() - began
        began = time.perf_counter()
        exploration.stops("dpca", (0,))
        path = time.perf_counter() - began
        times = []
        for stop in range(1, len(exploration.stops("dpca", (0,)).values)):
            view = View("dpca", stop, 0, 1, (0,))
            began = time.perf_counter()
            exploration.points(view), exploration.describe(view)
            times.append(time.perf_counter() - began)
        dial = float(np.median(times))
        note = f"first view after {start:.1f} s, all stops after {path:.1f} s more; one fit takes {fit:.2f} s"
        rows.append(Result(f"explorer, {name}: one move of the dial", 1e3 * dial, "ms", "≤ 100 ms", dial <= 0.1, note))
        what = f"explorer, {name}: first view and all stops, after the data are in memory"
        limit = 5 * fit + 3
        rows.append(Result(what, start + path, "s", f"≤ {limit:.0f} s (5 fits and 3 s)", start + path <= limit))
        del exploration
    memory = extra_megabytes(_small, _opened)
    limit = 2 * sum(part.nbytes for part in _small()) / 2**20
    what = "explorer, 10,000 × 500: memory of the server above the data"
    rows.append(Result(what, memory, "MB", f"≤ {limit:.0f} MB (twice the data)", memory <= limit))
    return [*rows, *_page()]


def _serve(pipe) -> None:
    """Serve the largest number of rows, and send the address; at the end the peak memory above that of the data."""
    warnings.simplefilter("ignore")
    _opened(*_data(200, 50))  # import everything before measuring
    data = _data(*SIZES["200,000 × 50"])
    before = _resident()
    with Explorer(Exploration(*data)) as explorer:
        pipe.send(explorer.url)
        pipe.recv()
        pipe.send((_status("VmHWM") - before) / 1024)


def _page() -> list[Result]:
    """Return the memory of the browser with one page and of the server with ten, at 200,000 rows."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return []
    from playwright.sync_api import sync_playwright

    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(theirs,))
    server.start()
    url = ours.recv()
    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        began = time.perf_counter()
        for number in range(_TABS):
            page = browser.new_page()
            page.goto(url)
            page.wait_for_selector("html[data-ready=true]", timeout=300_000)
            if number == 0:
                heap = page.evaluate("performance.memory.usedJSHeapSize") / 2**20
                first = time.perf_counter() - began
        ours.send("stop")
        extra = ours.recv()
        browser.close()
    server.join()
    limit = 2 * sum(part.nbytes for part in _data(*SIZES["200,000 × 50"])) / 2**20
    note = f"ready after {first:.1f} s"
    what = "the same with ten tabs: memory of the server above the data"
    return [
        Result("the page at 200,000 × 50: JavaScript heap", heap, "MB", "≤ 500 MB", heap <= 500, note),
        Result(what, extra, "MB", f"≤ {limit:.0f} MB (twice the data)", extra <= limit),
    ]


CASES = {"explorer": explorer}
