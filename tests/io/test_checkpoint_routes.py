"""Checkpoints that are shared, damaged, given twice or not used."""

import subprocess
import sys

import h5py
import numpy as np
import pytest

import standout
from standout._accumulate import Accumulator
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import StandoutWarning
from standout.io import checkpoint
from standout.io.checkpoint import CheckpointFile


@pytest.fixture
def files(tmp_path):
    """Two npy files, t and b."""
    rng = np.random.default_rng(0)
    for name, rows in (("t", 600), ("b", 500)):
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(rows, 6)) * np.arange(1, 7) + 3)
    return tmp_path


@pytest.fixture
def saved_often(monkeypatch):
    monkeypatch.setattr(checkpoint, "_INTERVAL", 0.0)
    monkeypatch.setattr(checkpoint, "_SHARE", 1e9)
    monkeypatch.setattr(checkpoint, "block_rows_of", lambda _: 64)


def source(folder, name, kept=None, **how):
    return standout.read(folder / f"{name}.npy", role=name, memory=0, checkpoint=folder / (kept or name), **how)


@pytest.mark.usefixtures("saved_often")
def test_a_checkpoint_replaced_during_a_read_is_not_mixed_with_the_new_one(files, monkeypatch):
    expected = Moments.of(np.load(files / "t.npy"))
    versions, save = [], CheckpointFile.save

    def noting(self, *given):
        save(self, *given)
        versions.append(self.path.read_bytes())

    monkeypatch.setattr(CheckpointFile, "save", noting)
    Moments.of(source(files, "t"))
    early, late = versions[2], versions[6]
    header = CheckpointFile._header

    def and_then_another(self, *given):  # another process saves after the header was read
        found = header(self, *given)
        (files / "draft").write_bytes(late)
        (files / "draft").replace(files / "t")
        return found

    monkeypatch.setattr(CheckpointFile, "_header", and_then_another)
    read = source(files, "t")
    (files / "t").write_bytes(early)
    found = Moments.of(read)
    assert found.rows == 600
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-13)
    np.testing.assert_allclose(found.scatter, expected.scatter, rtol=1e-12, atol=1e-9)


WORKER = """
import sys
from pathlib import Path
import numpy as np
import standout
from standout import Moments
from standout.io import checkpoint

folder = Path(sys.argv[1])
checkpoint._INTERVAL, checkpoint._SHARE, checkpoint.block_rows_of = 0.0, 1e9, lambda _: 16
for i in range(12):
    found = Moments.of(standout.read(folder / "t.npy", memory=0, checkpoint=folder / f"t{i}"))
    print(found.rows, found.scatter.tobytes().hex())
"""


def test_processes_that_share_a_checkpoint_all_get_the_right_bits(files):
    command = [sys.executable, "-c", WORKER, str(files)]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [run.communicate(timeout=120) for run in runs]
    assert all(run.returncode == 0 for run in runs), [err[-900:] for _, err in outputs]
    lines = {line for out, _ in outputs for line in out.splitlines()}
    assert len(lines) == 1
    rows = np.load(files / "t.npy")
    count, scatter = lines.pop().split()
    expected = np.cov(rows.T, ddof=0) * 600
    assert int(count) == 600
    np.testing.assert_allclose(np.frombuffer(bytes.fromhex(scatter)).reshape(6, 6), expected, rtol=1e-10, atol=1e-8)


def test_only_temporary_files_of_the_same_checkpoint_are_removed(files):
    for name in (".t[0].12345678.part", ".t0.12345678.part"):
        (files / name).write_bytes(b"half")
    CheckpointFile(files / "t[0]", (), None).sweep(before=2**40)
    assert sorted(path.name for path in files.glob(".*")) == [".t0.12345678.part"]


def test_a_temporary_file_that_disappears_is_ignored(files, monkeypatch):
    monkeypatch.setattr("pathlib.Path.glob", lambda *_: [files / "no longer exists"])
    CheckpointFile(files / "t", (), None).sweep(before=2**40)


def test_one_checkpoint_for_two_datasets_is_an_error_before_rows_are_read(files, refused, monkeypatch):
    monkeypatch.setattr(Accumulator, "add", lambda *_: pytest.fail("rows were read"))
    target, other = source(files, "t"), source(files, "b", kept="t")
    refused(lambda: DPCA(2).fit(target, background=other), "background: the checkpoint", "/t is that of the target")
    several = {"one": source(files, "b"), "two": source(files, "b")}
    refused(lambda: DPCA(2).fit(target, background=several), "background 'two'", "/b is that of the background 'one'")


def test_a_checkpoint_that_is_not_a_path_is_an_error(files, refused):
    for wrong in (5, b"c", True):
        refused(lambda given=wrong: standout.read(files / "t.npy", checkpoint=given), "checkpoint=", "not a path")


def test_empty_and_truncated_checkpoints_differ_from_other_files(files, refused):
    (files / "t").touch()
    refused(lambda: source(files, "t"), "the checkpoint", "is empty", "delete the file")
    for start in (b"stand", b"standout checkpoint ", b"standout checkpoint 2\n"):
        (files / "t").write_bytes(start)
        refused(lambda: source(files, "t"), "damaged or truncated" if start[-1:] != b" " else "delete the file")
    (files / "t").write_bytes(b"dear diary")
    refused(lambda: source(files, "t"), "is not a checkpoint")


def test_a_checkpoint_is_valid_only_for_its_groups_pattern(tmp_path, refused):
    lines = [f"s{i % 5}_{i % 2},{i}.5,{i * i % 7}" for i in range(200)]
    (tmp_path / "t.csv").write_text("\n".join(["who,a,b", *lines]))

    def moments(pattern):
        how = {"groups": "who", "groups_match": pattern, "memory": 0, "checkpoint": tmp_path / "c"}
        return Moments.of(standout.read(tmp_path / "t.csv", **how))

    assert moments("^[^_]+").groups == {f"s{i}" for i in range(5)}
    refused(lambda: moments("[^_]+$"), "other data: different options.")


def unused(warned, remedy, *words):
    """Check the warnings about checkpoints that are not used, and return how many there are."""
    found = [w for w in warned if "is not used" in str(w.message)]
    for one in found:
        assert one.category is StandoutWarning and one.filename == __file__
        assert all(text in str(one.message) for text in words)
        remedy(one.message)
    return len(found)


def test_a_file_in_memory_warns_that_its_checkpoint_is_not_used(files, remedy):
    with pytest.warns(StandoutWarning) as warned:
        found = Moments.of(standout.read(files / "t.npy", role="target", checkpoint=files / "c"))
    assert unused(warned, remedy, "target: the checkpoint", str(files / "c"), "memory") == 1
    assert found.rows == 600 and not (files / "c").exists()


def test_rows_selected_by_label_warn_that_the_checkpoint_is_not_used(files, remedy):
    rows = np.load(files / "t.npy")
    with h5py.File(files / "x.h5", "w") as file:
        file["x"], file["state"] = rows, ["on", "off"] * 300
    read = standout.read(files / "x.h5", label="state", memory=0, checkpoint=files / "c")
    with pytest.warns(StandoutWarning) as warned:
        DPCA(2, background_label="off").fit(read)
    assert unused(warned, remedy, "X: the checkpoint", "background_label", "`where`") == 1
    assert not (files / "c").exists()


@pytest.mark.parametrize(("rows", "solver"), [(600, "matrix_free"), (4, "auto"), (600, "span")])
def test_solvers_that_need_rows_warn_that_the_checkpoint_is_not_used(files, remedy, rows, solver):
    rng = np.random.default_rng(1)
    width = 6 if rows > 6 else 20
    for name in "tb":
        np.save(files / f"{name}.npy", rng.normal(size=(rows, width)))
    with pytest.warns(StandoutWarning) as warned:
        DPCA(2, solver=solver).fit(source(files, "t"), background=source(files, "b"))
    assert unused(warned, remedy, "the checkpoint", "repeatedly") == 2
    assert not (files / "t").exists()


def test_a_fit_that_uses_its_checkpoints_does_not_warn(files, recwarn, remedy):
    DPCA(2).fit(source(files, "t"), background=source(files, "b"))
    assert unused(recwarn, remedy) == 0 and (files / "t").exists() and (files / "b").exists()
