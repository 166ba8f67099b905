"""Files larger than memory should need: resident memory of the whole command, and its time against a bare pass."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.measure import Result

_GB = 10**9
# Resident memory of the whole process, the interpreter and its libraries among it.
_LIMIT = 1000


def _write_npy(path: Path, size: int, columns: int, seed: int) -> None:
    """Write in blocks, not through a map: the peak of a process is handed on to those it starts."""
    rng = np.random.default_rng(seed)
    block = rng.standard_normal((20_000, columns)) + 1.0
    n_blocks = size // block.nbytes
    with path.open("wb") as file:
        head = {"descr": "<f8", "fortran_order": False, "shape": (n_blocks * len(block), columns)}
        np.lib.format.write_array_header_1_0(file, head)
        for _ in range(n_blocks):
            file.write((block * rng.uniform(0.5, 1.5)).tobytes())


def _write_csv(path: Path, size: int, columns: int, seed: int) -> None:
    import pyarrow as pa
    from pyarrow import csv

    rng = np.random.default_rng(seed)
    names = [f"f{i}" for i in range(columns)]
    block = np.round(rng.standard_normal((10_000, columns)), 6)
    batch = pa.RecordBatch.from_arrays([pa.array(column) for column in block.T], names=names)
    with csv.CSVWriter(path, batch.schema) as writer:
        while path.stat().st_size < size:
            writer.write_batch(batch)


def _run(arguments: list[str]) -> tuple[float, float]:
    """Return seconds and peak resident megabytes of a process of its own."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, f"{arguments} failed"
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def _case(what: str, write: Callable[[Path], None], suffix: str, bare: str) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        target, background = (Path(folder) / f"{name}{suffix}" for name in ("target", "background"))
        write(target)
        background.symlink_to(target)
        command = ["-m", "standout", "fit", str(target), "-b", str(background), "--quiet"]
        seconds, memory = _run(command)
        plain, _ = _run(["-c", bare, str(target), str(background)])
        size = target.stat().st_size / _GB
    ratio = seconds / plain
    return [
        Result(f"{what}, `standout fit` of two such files: peak resident memory", memory, "MB", f"≤ {_LIMIT} MB",
               memory <= _LIMIT, f"{2 * size:.1f} GB read"),
        Result("the same, time against a bare pass", ratio, "×", "", True, f"{seconds:.1f} s against {plain:.1f} s"),
    ]  # fmt: skip


# A bare pass: parse every block and throw it away; read every block and add up its products.
_BARE_CSV = """
import sys
from pyarrow import csv
for path in sys.argv[1:]:
    for batch in csv.open_csv(path):
        pass
"""
_BARE_NPY = """
import sys
import numpy as np
for path in sys.argv[1:]:
    shape = np.load(path, mmap_mode="r").shape
    total = np.zeros((shape[1], shape[1]))
    with open(path, "rb") as file:
        np.lib.format.read_magic(file); np.lib.format.read_array_header_1_0(file)
        while len(block := np.fromfile(file, dtype=np.float64, count=4096 * shape[1])):
            block = block.reshape(-1, shape[1]); total += block.T @ block
"""


def csv() -> list[Result]:
    """A csv of 2 GB, through the command line."""
    return _case("csv of 2 GB × 100 features", lambda path: _write_csv(path, 2 * _GB, 100, 0), ".csv", _BARE_CSV)


def npy() -> list[Result]:
    """An npy of 10 GB, through the command line."""
    return _case("npy of 10 GB × 200 features", lambda path: _write_npy(path, 10 * _GB, 200, 0), ".npy", _BARE_NPY)


CASES = {"csv": csv, "npy": npy}
