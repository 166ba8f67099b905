"""Large files: resident memory of a fit, and its time against a bare pass over the file."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np

from benchmarks.measure import Result, at_most, interleaved

_GB = 10**9
# Limit in megabytes of resident memory of the whole process, including the interpreter and its libraries.
_LIMIT = 1000


def _write_npy(path: Path, size: int, columns: int, seed: int) -> None:
    """Write in blocks, not through a memory map: child processes inherit the peak of their parent."""
    rng = np.random.default_rng(seed)
    block = rng.standard_normal((5_000, columns)) + 1.0
    n_blocks = size // block.nbytes
    with path.open("wb") as file:
        head = {"descr": "<f8", "fortran_order": False, "shape": (n_blocks * len(block), columns)}
        np.lib.format.write_array_header_1_0(file, head)
        for _ in range(n_blocks):  # repeated rows: the time of a fit does not depend on the values
            file.write(block.data)


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


# Print the peak memory at exit: the peak that the system reports for a child is at least that of its parent.
_PRINT_PEAK = """
import atexit, runpy, sys

def peak():
    with open("/proc/self/status") as status:
        found = next(line.split()[1] for line in status if line.startswith("VmHWM"))
    print(int(found) / 1024, file=sys.stderr)

atexit.register(peak)
"""
_COMMAND = """
runpy.run_module("standout", run_name="__main__")
"""


def _run(code: str, *arguments: str) -> tuple[float, str, float]:
    """Run a script and return its seconds, its output and its peak resident megabytes."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", _PRINT_PEAK + code, *arguments],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return time.perf_counter() - start, done.stdout, float(done.stderr.split()[-1])


def _case(what: str, write: Callable[[Path], None], suffix: str, bare: str) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        target, background = (Path(folder) / f"{name}{suffix}" for name in ("target", "background"))
        write(target)
        background.symlink_to(target)
        seconds, _, memory = _run(_COMMAND, "fit", str(target), "-b", str(background), "--quiet")
        plain, _, _ = _run(bare, str(target), str(background))
        size = target.stat().st_size / _GB
    ratio = seconds / plain
    return [
        Result(f"{what}, `standout fit` of two such files: peak resident memory", memory, "MB", f"≤ {_LIMIT} MB",
               memory <= _LIMIT, f"{2 * size:.1f} GB read"),
        Result("the same, time against a bare pass", ratio, "×", "", True, f"{seconds:.1f} s against {plain:.1f} s"),
    ]  # fmt: skip


# A bare pass: parse every block and discard it.
_BARE_CSV = """
import sys
from pyarrow import csv
for path in sys.argv[1:]:
    for batch in csv.open_csv(path):
        pass
"""


def csv() -> list[Result]:
    """A csv of 2 GB, through the command line."""
    return _case("csv of 2 GB × 100 features", lambda path: _write_csv(path, 2 * _GB, 100, 0), ".csv", _BARE_CSV)


# Each script prints its seconds without imports. The bare loop reads into one buffer and multiplies with the same BLAS
# in blocks of the same size.
_SETUP = """
import sys, time
import numpy as np
from scipy.linalg import blas
import sklearn.decomposition
import standout
from standout.io.source import block_rows
"""
_OURS = """
start = time.perf_counter()
standout.DPCA(2).fit(sys.argv[1], background=sys.argv[2] if len(sys.argv) > 2 else None)
print(time.perf_counter() - start)
"""
_BARE = """
start = time.perf_counter()
for path in sys.argv[1:]:
    with open(path, "rb", buffering=0) as file:
        np.lib.format.read_magic(file)
        width = np.lib.format.read_array_header_1_0(file)[0][1]
        rows, total = np.empty((block_rows(width), width)), np.zeros((width, width), order="F")
        while size := file.readinto(rows.reshape(-1).view("u1").data):
            total = blas.dsyrk(1.0, rows[: size // (8 * width)].T, beta=1.0, c=total, lower=1, overwrite_c=1)
print(time.perf_counter() - start)
"""
_PEER = """
start = time.perf_counter()
sklearn.decomposition.IncrementalPCA(2).fit(np.load(sys.argv[1], mmap_mode="r"))
print(time.perf_counter() - start)
"""
_EMBED = """
standout.save(standout.DPCA(2).fit(np.load(sys.argv[1], mmap_mode="r")[:5000]), sys.argv[2])
print(0.0)
"""


def _cold(code: str, *paths: Path) -> tuple[float, float]:
    """Run a script on files that are not in the page cache; return its seconds and peak resident megabytes."""
    for path in paths:
        if path.exists():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    _, output, peak = _run(_SETUP + code, *map(str, paths))
    return float(output), peak


def _in_turn(number: int, *paths: Path) -> tuple[tuple[float, float], tuple[float, float]]:
    """Time the fit and the bare loop in alternating order: the second may profit from a cache outside this machine."""
    codes = (_OURS, _BARE) if number % 2 == 0 else (_BARE, _OURS)
    first, second = (_cold(code, *paths) for code in codes)
    return (first, second) if number % 2 == 0 else (second, first)


def npy(size: int = 10 * _GB, columns: int = 500, pairs: int = 2) -> list[Result]:
    """Two npy files of 10 GB, against a bare loop over both; a tenth of one against scikit-learn's IncrementalPCA."""
    with tempfile.TemporaryDirectory() as folder:
        target, background, tenth = (Path(folder) / f"{name}.npy" for name in ("target", "background", "tenth"))
        for seed, (path, part) in enumerate(((target, size), (background, size), (tenth, size // 10))):
            _write_npy(path, part, columns, seed)
        runs = [_in_turn(number, target, background) for number in range(pairs)]
        peers = [(_cold(_OURS, tenth)[0], _cold(_PEER, tenth)[0]) for _ in range(pairs)]
        embedded = _embedded(target, Path(folder))
        read = (target.stat().st_size + background.stat().st_size) / _GB
    ours, bare = (float(np.median([run[side][0] for run in runs])) for side in (0, 1))
    through = float(np.median([theirs[0] / mine[0] for mine, theirs in runs]))
    memory = max(mine[1] for mine, _ in runs)
    faster = float(np.median([theirs / mine for mine, theirs in peers]))
    mine, theirs = np.median(peers, axis=0)
    what = f"npy, 2 × {size / _GB:.0f} GB × {columns} features on disk"
    return [
        Result(f"{what}: throughput of a fit against a bare readinto + dsyrk loop", through, "×", "≥ 0.8 ×",
               through >= 0.8, f"{read / ours:.2f} GB/s against {read / bare:.2f} GB/s"),
        Result("the same, peak resident memory of the process", memory, "MB", "≤ 300 MB", memory <= 300,
               f"{read:.1f} GB read"),
        Result("a tenth of the target alone, against IncrementalPCA over a memory map", faster, "× faster", "≥ 4 ×",
               faster >= 4, f"{mine:.1f} s against {theirs:.1f} s"),
        Result(f"`standout embed` of {size / _GB:.0f} GB to npy: peak resident memory", embedded, "MB", "≤ 300 MB",
               embedded <= 300),
    ]  # fmt: skip


def _embedded(rows: Path, folder: Path) -> float:
    """Return the peak resident megabytes of ``standout embed`` from file to file."""
    _cold(_EMBED, rows, folder / "model.standout")
    names = (folder / "model.standout", rows, "-o", folder / "scores.npy", "--quiet")
    return _run(_COMMAND, "embed", *map(str, names))[2]


def hdf5(cells: int = 20_000, genes: int = 30_000) -> list[Result]:
    """Files of HDF5: reading them against reading them without the process that inspects them first."""
    import anndata
    import h5py
    import pandas as pd
    from scipy import sparse

    import standout
    from standout.io import hdf5

    rng = np.random.default_rng(0)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        with h5py.File(f"{folder}/rows.h5", "w") as file:
            file["rows"] = rng.normal(size=(250_000, 100))
            file["names"] = [f"f{i}" for i in range(100)]
        names = [pd.DataFrame(index=[f"{kind}{i}" for i in range(n)]) for kind, n in (("c", cells), ("g", genes))]
        counts = sparse.random(cells, genes, density=0.03, format="csr", dtype=np.float32, random_state=rng)
        anndata.AnnData(counts, obs=names[0], var=names[1]).write_h5ad(f"{folder}/counts.h5ad")
        with h5py.File(f"{folder}/counts.loom", "w") as file:
            file.create_dataset("matrix", data=rng.poisson(1, (2_000, cells)).astype("f4"), chunks=(64, 64))
            file["row_attrs/Gene"], file["col_attrs/CellID"] = list(names[1].index[:2_000]), list(names[0].index)
        for path in map(Path(folder).joinpath, ("rows.h5", "counts.h5ad", "counts.loom")):

            def read(path: Path = path) -> None:
                standout.read(path, memory="2GB")

            def unchecked(path: Path = path) -> None:
                with patch.object(hdf5._inspector, "inspect", return_value={"external": []}):
                    standout.read(path, memory="2GB")

            size = f"{path.suffix[1:]} of {path.stat().st_size / 1e6:.0f} MB"
            what = f"{size}: `read`, against reading without inspecting the file first"
            results.append(at_most(what, interleaved(read, unchecked, 31), 1.05))
    return results


CASES = {"csv": csv, "npy": npy, "hdf5": hdf5}
