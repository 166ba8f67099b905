"""Run workers, and restart them after a crash or a hang."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Seconds of processor time for one file. Reading an intact one takes milliseconds.
SECONDS = 10
# Real time is longer on a busy machine: a process that waits longer than this multiple has hung, too.
PATIENCE = 30
CLASSES = ("refused", "equal", "changed", "unclear", "exception", "crash", "hang", "memory")
ROOT = Path(__file__).parent.parent


@dataclass
class Tally:
    """What became of the mutations of one kind."""

    kind: str
    sealed: bool
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str, str]] = field(default_factory=list)  # index, class, details

    def add(self, index: int, found: str, details: str) -> None:
        """Count an outcome; all but refusals and readable files are failures, and so are undetected changes."""
        self.counts[found] += 1
        if found not in ("refused", "equal", "changed") or (found == "changed" and self.sealed):
            self.failures.append((index, found, details))


def fuzz(
    counts: dict[str, int], seed: int = 0, start: int = 0, keep: str | None = None, seconds: float = SECONDS
) -> list[Tally]:
    """Damage and read ``counts`` files of each kind, from mutation ``start`` on, in one worker at a time."""
    from fuzz.kinds import FAULTS, KINDS

    tallies = {name: Tally(name, (KINDS | FAULTS)[name].sealed) for name in counts}
    jobs = [[name, seed, start, start + count] for name, count in counts.items()]
    while jobs:
        name, index, found, details = None, None, "crash", "before the first file"
        for name, index, found, details in _work(jobs, keep, seconds):
            if index is None:  # this kind begins
                while jobs[0][0] != name:
                    jobs.pop(0)
                continue
            tallies[name].add(index, found, details)
            jobs[0][2] = index + 1
        if found not in ("crash", "hang"):
            break
        if index is None:
            raise RuntimeError(f"{jobs[0][0]}: the worker ended before the first file: {details}")
    return list(tallies.values())


def _work(jobs: Sequence[Any], keep: str | None, seconds: float) -> Iterator[tuple[str, int | None, str, str]]:
    """Run one worker: yield its results, and a last one if it crashed or hung."""
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryFile("w+") as errors:
        worker = subprocess.Popen(
            [sys.executable, "-m", "fuzz.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            text=True, env=environment, cwd=ROOT,
        )  # fmt: skip
        assert worker.stdin is not None
        worker.stdin.write(json.dumps({"jobs": jobs, "keep": keep, "seconds": seconds}))
        worker.stdin.close()
        lines: queue.Queue[str | None] = queue.Queue()
        reader = threading.Thread(target=_forward, args=(worker.stdout, lines), daemon=True)
        reader.start()
        name, index = jobs[0][0], None
        try:
            # The first files of a kind take the time to import packages, too.
            while (line := _next(lines, worker.pid, seconds if index is not None else 10 * seconds)) is not None:
                name, index, found, details = json.loads(line)
                yield name, index, found, details
                start, stop = next(job[2:] for job in jobs if job[0] == name)
                index = start if index is None else index + 1
                index = index if index < stop else None
            if worker.wait() != 0:
                yield name, index, "crash", f"exit code {worker.returncode}: {_last(errors)}"
        except queue.Empty:
            yield name, index, "hang", _last(errors)
        finally:
            worker.kill()
            worker.wait()
            reader.join()


def _next(lines: queue.Queue[str | None], pid: int, seconds: float) -> str | None:
    """Return the next line of a worker, or raise queue.Empty if it takes too long."""
    begin, used = time.monotonic(), _processor_time(pid)
    while True:
        try:
            return lines.get(timeout=1)
        except queue.Empty:
            if _processor_time(pid) - used > seconds or time.monotonic() - begin > PATIENCE * seconds:
                raise


def _processor_time(pid: int) -> float:
    """Return the seconds of processor time of a process."""
    with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _forward(stream: Any, lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)
    stream.close()


def _last(errors: Any) -> str:
    """Return where the worker was, from its traceback: the innermost frames."""
    errors.seek(0)
    frames = [line.strip() for line in errors if line.startswith("  File")]
    return " < ".join(frame.replace("File ", "").split("/")[-1] for frame in frames[:4])
