"""Files that change while in use, full disks, and threads that share a source."""

import threading

import numpy as np
import pandas as pd
import pytest
import zarr
from scipy import sparse

import standout
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import OutputError, StandoutWarning
from standout.io import checkpoint, matrix
from standout.io.source import select_columns


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(3000, 20))


def as_csv(rows, path, order=1):
    pd.DataFrame(rows, columns=[f"f{i}" for i in range(rows.shape[1])]).iloc[:, ::order].to_csv(path, index=False)


def as_parquet(rows, path):
    pd.DataFrame(rows, columns=[f"f{i}" for i in range(rows.shape[1])]).to_parquet(path)


def as_zarr(rows, path):
    zarr.create_array(path, data=rows, chunks=(500, 20), overwrite=True)


CHANGES = {
    "npy, more rows": (".npy", lambda rows, path: np.save(path, np.vstack([rows, rows + 100]))),
    "npy, another shape": (".npy", lambda rows, path: np.save(path, rows.reshape(1500, 40))),
    "csv, columns in another order": (".csv", lambda rows, path: as_csv(rows, path, -1)),
    "parquet": (".parquet", lambda rows, path: as_parquet(rows + 1, path)),
    "zarr, other numbers": (".zarr", lambda rows, path: as_zarr(rows + 1, path)),
}
WRITERS = {".npy": lambda rows, path: np.save(path, rows), ".csv": as_csv, ".parquet": as_parquet, ".zarr": as_zarr}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kept", [False, True])
def test_a_file_that_changes_after_opening_is_an_error_and_is_not_saved(rows, tmp_path, change, kept, refused):
    suffix, spoil = CHANGES[change]
    path = tmp_path / f"rows{suffix}"
    WRITERS[suffix](rows, path)
    given = {"checkpoint": tmp_path / "kept"} if kept else {}
    source = standout.read(path, memory=0, **given)
    spoil(rows, path)
    refused(lambda: Moments.of(source), str(path), "has changed since it was opened")
    refused(lambda: DPCA(1).fit(source), str(path), "has changed since it was opened")
    again = Moments.of(standout.read(path, memory=0, **given))
    assert again.rows == Moments.of(path).rows
    np.testing.assert_array_equal(again.mean, Moments.of(standout.read(path, memory=0)).mean)


def test_a_file_that_changes_during_a_pass_is_an_error(rows, tmp_path, refused):
    path = tmp_path / "rows.npy"
    np.save(path, rows)
    source = standout.read(path, memory=0)
    blocks = source.blocks(500)
    next(blocks)
    np.load(path, mmap_mode="r+")[-1] += 1
    refused(lambda: list(blocks), str(path), "has changed since it was opened")


def test_a_wide_file_that_changes_between_reads_of_columns_is_an_error(tmp_path, refused, monkeypatch):
    monkeypatch.setattr(matrix, "_READ_BYTES", 2**16)
    path, rows = tmp_path / "wide.npy", np.random.default_rng(0).normal(size=(50, 2000))
    np.save(path, rows)
    source = standout.read(path, memory=0)
    np.testing.assert_array_equal(source.columns(0, 10), rows[:, :10])
    np.save(path, rows + 1)
    refused(lambda: source.columns(1000, 1010), str(path), "has changed since it was opened")


def test_threads_that_read_different_columns_do_not_interfere(tmp_path, monkeypatch):
    monkeypatch.setattr(matrix, "_READ_BYTES", 2**16)
    path, rows = tmp_path / "wide.npy", np.random.default_rng(0).normal(size=(50, 2000))
    np.save(path, rows)
    source = standout.read(path, memory=0)
    report = matrix.report

    def other_thread(*_):  # another thread reads other columns in between
        monkeypatch.setattr(matrix, "report", report)
        thread = threading.Thread(target=source.columns, args=(1500, 1600))
        thread.start()
        thread.join()

    monkeypatch.setattr(matrix, "report", other_thread)
    np.testing.assert_array_equal(source.columns(600, 700), rows[:, 600:700])


@pytest.mark.parametrize("every", [0.0, 1e9], ids=["every block", "at the end"])
def test_a_fit_continues_when_its_checkpoint_cannot_be_written(rows, tmp_path, every, monkeypatch, remedy):
    np.save(tmp_path / "rows.npy", rows)
    monkeypatch.setattr(checkpoint, "_INTERVAL", every)
    monkeypatch.setattr(checkpoint, "_SHARE", 1e9)
    source = standout.read(tmp_path / "rows.npy", memory=0, checkpoint=tmp_path / "kept")

    def full(*_):
        raise OutputError("checkpoint: it could not be written: the disk is full. Make room, or choose another path.")

    monkeypatch.setattr(checkpoint.CheckpointFile, "save", full)
    with pytest.warns(StandoutWarning, match="continues without a checkpoint: .* disk is full") as reported:
        found = Moments.of(source)
    assert len(reported) == 1
    remedy(reported[0].message)
    np.testing.assert_allclose(found.covariance(), np.cov(rows.T, ddof=0), rtol=1e-12, atol=1e-14)


def test_a_checkpoint_is_valid_only_for_its_columns_of_a_file_without_names(rows, tmp_path, refused):
    np.save(tmp_path / "rows.npy", rows)
    source = standout.read(tmp_path / "rows.npy", memory=0, checkpoint=tmp_path / "kept")
    Moments.of(select_columns(source, np.array([0, 1])))
    refused(lambda: Moments.of(select_columns(source, np.array([2, 3]))), "checkpoint", "features")


def test_matrix_free_reads_dense_rows_in_the_calling_thread_and_agrees_with_sparse_rows(rows, tmp_path):
    seen = []

    class Watched(type(standout.read(rows))):
        def blocks(self, size):
            seen.append(threading.current_thread())
            yield from super().blocks(size)

    rows[:, 3] *= 3
    background = np.random.default_rng(1).normal(size=(2000, 20))
    model = DPCA(1, solver="matrix_free").fit(Watched(rows), background=Watched(background))
    assert set(seen) == {threading.current_thread()}
    other = DPCA(1, solver="matrix_free").fit(sparse.csr_array(rows), background=sparse.csr_array(background))
    assert model.ratios_ == pytest.approx(other.ratios_, rel=1e-8)
