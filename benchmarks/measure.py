"""Measurement on shared machines: medians over interleaved pairs, and peak memory in a separate process."""

from __future__ import annotations

import gc
import multiprocessing
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Result:
    """One row of the table."""

    what: str
    value: float
    unit: str
    limit: str
    holds: bool
    note: str = ""


# BLAS threads keep spinning after their work. numpy and scipy have separate pools, so wait until the pool used by the
# previous measurement is idle.
_IDLE = 0.2


def seconds(work: Callable[[], object]) -> float:
    time.sleep(_IDLE)
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(ours: Callable[[], object], theirs: Callable[[], object], pairs: int = 7) -> tuple[float, float, float]:
    """Return the median of ours/theirs over interleaved pairs, and the median seconds of each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours(), theirs()  # warm up: thread pools, imports, page faults
        gc.collect()
        times = np.array([(seconds(ours), seconds(theirs)) for _ in range(pairs)])
    return float(np.median(times[:, 0] / times[:, 1])), *np.median(times, axis=0)


def at_most(what: str, ratio: tuple[float, float, float], limit: float, note: str = "") -> Result:
    note = f"{_time(ratio[1])} against {_time(ratio[2])}{'; ' + note if note else ''}"
    return Result(what, ratio[0], "×", f"≤ {limit:g} ×", ratio[0] <= limit, note)


def at_least(what: str, ratio: tuple[float, float, float], limit: float, note: str = "") -> Result:
    """Return the row of a speed-up: their time over ours."""
    note = f"{_time(ratio[1])} against {_time(ratio[2])}{'; ' + note if note else ''}"
    return Result(what, 1 / ratio[0], "× faster", f"≥ {limit:g} ×", 1 / ratio[0] >= limit, note)


def _time(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def _resident() -> int:
    """Return the resident kilobytes, and reset the recorded peak (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def _peak_of(make: Callable[[], tuple], work: Callable[..., object], pipe) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Import everything and start the thread pools on a small problem before measuring.
        data = make()
        work(*(part[:200].copy() for part in data))
        before = _resident()
        work(*data)
    pipe.send(_status("VmHWM") - before)


def extra_megabytes(make: Callable[[], tuple], work: Callable[..., object]) -> float:
    """Return the peak resident memory above that of the input, in megabytes."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_peak_of, args=(make, work, theirs))
    process.start()
    kilobytes = ours.recv()
    process.join()
    return kilobytes / 1024
