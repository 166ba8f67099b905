"""Spark: two local cores that read parquet and accumulate moments, against a fit in memory on two BLAS threads."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import standout
from benchmarks.measure import Result, interleaved, seconds
from standout._dpca import DPCA

_ROWS, _COLUMNS, _FILES = 400_000, 200, 8


def _write(folder: Path, seed: int) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(seed)
    path = folder / str(seed)
    path.mkdir()
    scale = np.linspace(1, 2, _COLUMNS) ** seed
    for number in range(_FILES):
        rows = rng.standard_normal((_ROWS // _FILES, _COLUMNS)) * scale + 1.0
        columns = {f"f{i}": rows[:, i] for i in range(_COLUMNS)}
        pq.write_table(pa.table(columns), path / f"{number}.parquet", compression="none", use_dictionary=False)
    return path


@contextlib.contextmanager
def _session(cores: int) -> Iterator[object]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(standout.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    )
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "4",
        # One file is one partition.
        "spark.sql.files.openCostInBytes": "128m",
    }
    session = SparkSession.builder.master(f"local[{cores}]").config(map=options).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()


def spark() -> list[Result]:
    """A fit on two Spark cores against a fit in memory, and against reading and counting rows in Spark."""
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        target, background = (_write(Path(name), seed) for seed in (0, 1))
        with _session(2) as session:
            frames = [session.read.parquet(str(path)) for path in (target, background)]
            x, y = (np.concatenate([_rows(file) for file in sorted(path.iterdir())]) for path in (target, background))

            def on_spark() -> DPCA:
                return DPCA(2).fit(frames[0], background=frames[1])

            def in_memory() -> DPCA:
                with threadpool_limits(2):
                    return DPCA(2).fit(x, background=y)

            difference = float(np.abs(on_spark().components_ - in_memory().components_).max())
            ratio, ours, theirs = interleaved(on_spark, in_memory, pairs=5)
            transfer = seconds(lambda: [_transferred(frame) for frame in frames])
    size = f"2 × {_ROWS:,} × {_COLUMNS}"
    note = f"{ours:.2f} s against {theirs:.2f} s; reading and transfer to Python alone take {transfer:.2f} s"
    return [
        Result(f"Spark, {size}, two cores that read parquet, against the fit in memory", ratio, "×", "-", True, note),
        Result("the same, components against those in memory", difference, "", "≤ 1e-10", difference <= 1e-10),
    ]


def _rows(path: Path) -> np.ndarray:
    import pyarrow.parquet as pq

    return pq.read_table(path).to_pandas().to_numpy()


def _transferred(frame) -> int:
    """Transfer the rows from Spark to Python and count them."""

    def count(batches):
        import pyarrow as pa

        yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})

    return sum(row["rows"] for row in frame.mapInArrow(count, "rows long").collect())


CASES = {"spark": spark}
