"""Dask: worker processes that read their own chunks, against a fit in memory on as many BLAS threads."""

from __future__ import annotations

import contextlib
import gc
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.measure import Result, _status, at_least, at_most, interleaved, seconds
from standout._dpca import DPCA

_ROWS, _COLUMNS, _CHUNKS = 400_000, 400, 16
# Limit for the client: a few features × features matrices per dataset, and Dask's bookkeeping.
_CLIENT_MEGABYTES = 60


def _write(folder: Path, seed: int) -> list[Path]:
    rng = np.random.default_rng(seed)
    paths = [folder / f"{seed}-{number}.npy" for number in range(_CHUNKS)]
    scale = np.linspace(1, 2, _COLUMNS) ** seed
    for path in paths:
        np.save(path, rng.standard_normal((_ROWS // _CHUNKS, _COLUMNS)) * scale + 1.0)
    return paths


def _collection(paths: list[Path]):
    import dask
    import dask.array as da

    shape = (_ROWS // _CHUNKS, _COLUMNS)
    load = dask.delayed(np.load)
    return da.concatenate([da.from_delayed(load(path), shape, dtype=np.float64) for path in paths])


@contextlib.contextmanager
def _cluster(workers: int) -> Iterator[None]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(workers)
        yield


def _fit(target: list[Path], background: list[Path]) -> Callable[[], DPCA]:
    return lambda: DPCA(2).fit(_collection(target), background=_collection(background))


def _grown(work: Callable[[], object]) -> float:
    """Return the growth of the resident memory of this process, in megabytes."""
    work()
    gc.collect()
    before = _status("VmRSS")
    work()
    return (_status("VmRSS") - before) / 1024


def _in_memory(target: list[Path], background: list[Path]) -> Callable[[], None]:
    x, y = (np.concatenate([np.load(path) for path in paths]) for paths in (target, background))

    def fit() -> None:
        with threadpool_limits(2):
            DPCA(2).fit(x, background=y)

    return fit


def dask() -> list[Result]:
    """Two single-threaded workers against the fit in memory on two BLAS threads; two workers against one."""
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        paths = [_write(Path(name), seed) for seed in (0, 1)]
        on_workers = _fit(*paths)
        with _cluster(2):
            grown = _grown(on_workers)
            against = interleaved(on_workers, _in_memory(*paths), pairs=5)
        scaling = _scaling(on_workers)
    size = f"2 × {_ROWS:,} × {_COLUMNS}"
    return [
        at_most(f"Dask, {size}, two workers that read npy chunks, against the fit in memory", against, 1.3),
        Result("the same, growth of the client's resident memory", grown, "MB", f"≤ {_CLIENT_MEGABYTES} MB",
               grown <= _CLIENT_MEGABYTES, f"the data are {2 * _ROWS * _COLUMNS * 8 / 1e6:.0f} MB"),
        at_least("the same, two workers against one", scaling, 1.5),
    ]  # fmt: skip


def seconds_by_workers(counts: tuple[int, ...] = (1, 2), repeats: int = 3) -> dict[str, list[float]]:
    """Return the best wall time of a fit on clusters with these numbers of single-threaded workers."""
    found = []
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work = _fit(*(_write(Path(name), seed) for seed in (0, 1)))
        for workers in counts:
            with _cluster(workers):
                work()
                found.append(min(seconds(work) for _ in range(repeats)))
    return {"size": list(counts), "seconds": found}


def _scaling(work: Callable[[], object], pairs: int = 3) -> tuple[float, float, float]:
    """Return the time on two workers over that on one, on alternating clusters."""
    times = []
    for _ in range(pairs):
        pair = []
        for workers in (2, 1):
            with _cluster(workers):
                work()
                pair.append(seconds(work))
        times.append(pair)
    table = np.array(times)
    return float(np.median(table[:, 0] / table[:, 1])), *np.median(table, axis=0)


CASES = {"dask": dask}
