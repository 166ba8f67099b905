"""Measuring on shared machines: interleaved pairs, medians of ratios, peak memory in a process of its own."""

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


# BLAS threads go on spinning for a while after their work; numpy and scipy have a pool each, and a
# measurement must not pay for the pool that the other side has left running.
_IDLE = 0.2


def seconds(work: Callable[[], object]) -> float:
    time.sleep(_IDLE)
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(ours: Callable[[], object], theirs: Callable[[], object], pairs: int = 7) -> tuple[float, float, float]:
    """Return the median of ours/theirs over interleaved pairs, and the median seconds of both."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours(), theirs()  # warm up: thread pools, imports, page faults
        gc.collect()
        times = np.array([(seconds(ours), seconds(theirs)) for _ in range(pairs)])
    return float(np.median(times[:, 0] / times[:, 1])), *np.median(times, axis=0)


def at_most(what: str, ratio: tuple[float, float, float], limit: float, note: str = "") -> Result:
    told = f"{_time(ratio[1])} against {_time(ratio[2])}{'; ' + note if note else ''}"
    return Result(what, ratio[0], "×", f"≤ {limit:g} ×", ratio[0] <= limit, told)


def at_least(what: str, ratio: tuple[float, float, float], limit: float, note: str = "") -> Result:
    """The peer's time over ours."""
    told = f"{_time(ratio[1])} against {_time(ratio[2])}{'; ' + note if note else ''}"
    return Result(what, 1 / ratio[0], "× faster", f"≥ {limit:g} ×", 1 / ratio[0] >= limit, told)


def _time(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def _resident() -> int:
    """Resident kilobytes now, with the record of the peak started anew (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def _peak_of(make: Callable[[], tuple], work: Callable[..., object], pipe) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Import everything and start the thread pools on something small before the count begins.
        data = make()
        work(*(part[:200].copy() for part in data))
        before = _resident()
        work(*data)
    pipe.send(_status("VmHWM") - before)


def extra_megabytes(make: Callable[[], tuple], work: Callable[..., object]) -> float:
    """Return how far the peak of resident memory rises above what holds the input."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_peak_of, args=(make, work, theirs))
    process.start()
    kilobytes = ours.recv()
    process.join()
    return kilobytes / 1024
