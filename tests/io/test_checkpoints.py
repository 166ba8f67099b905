"""A killed fit resumes from its checkpoint to the same bits; a checkpoint of other data is an error."""

import os
import subprocess
import sys
import textwrap

import h5py
import numpy as np
import pandas as pd
import pytest
import zarr

import standout
from standout._accumulate import Accumulator
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import OutputError
from standout.io import checkpoint

NAMES = [f"f{i}" for i in range(6)]


def table(rows=600, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(rows, 6)) * [1, 2, 3, 1, 1, 1] + 5, columns=NAMES)
    frame["subject"] = [f"s{i // 40}_{i % 2}" for i in range(rows)]
    frame["state"] = np.where(rng.uniform(size=rows) < 0.8, "on", "off")
    return frame


def as_npz(frame, path):
    np.savez_compressed(path, x=frame[NAMES].to_numpy(), names=NAMES, subject=frame["subject"].to_numpy("U"),
                        state=frame["state"].to_numpy("U"))  # fmt: skip


def as_hdf5(frame, path):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=frame[NAMES].to_numpy(), chunks=(50, 6)).attrs["names"] = NAMES
        for column in ("subject", "state"):
            file[column] = frame[column].to_list()


def as_zarr(frame, path):
    root = zarr.create_group(path, zarr_format=2)
    root.create_array("x", data=frame[NAMES].to_numpy(), chunks=(70, 6)).attrs["names"] = NAMES
    for column in ("subject", "state"):
        root.create_array(column, data=frame[column].to_numpy("U8"))


def as_folder(frame, path):
    path.mkdir()
    for number, start in enumerate((0, 130, 131, 400)):
        stop = (130, 131, 400, len(frame))[number]
        frame[start:stop].to_csv(path / f"{number}.csv", index=False)


def as_comments(frame, path):
    lines = frame.to_csv(index=False).splitlines()
    path.write_text("# run 7\n" + "\n# paused\n".join(lines))


# name → writer
KINDS = {
    "rows.csv.xz": lambda frame, path: frame.to_csv(path, index=False),
    "rows.csv.zip": lambda frame, path: frame.to_csv(path, index=False),
    "utf-16.csv": lambda frame, path: frame.to_csv(path, index=False, encoding="utf-16"),
    "comments.csv": as_comments,
    "rows.xlsx": lambda frame, path: frame.to_excel(path, index=False),
    "rows.csv": lambda frame, path: frame.to_csv(path, index=False),
    "rows.csv.gz": lambda frame, path: frame.to_csv(path, index=False),
    "folder": as_folder,
    "rows.parquet": lambda frame, path: frame.to_parquet(path, row_group_size=110, index=False),
    "rows.feather": lambda frame, path: frame.to_feather(path, chunksize=90),
    "rows.npz": as_npz,
    "rows.h5": as_hdf5,
    "rows.zarr": as_zarr,
}


@pytest.fixture(params=KINDS)
def path(request, tmp_path):
    KINDS[request.param](table(), tmp_path / request.param)
    return tmp_path / request.param


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Divide small files into many blocks and batches, and save after each block."""
    monkeypatch.setattr(checkpoint, "_INTERVAL", 0.0)
    monkeypatch.setattr(checkpoint, "_SHARE", 1e9)
    monkeypatch.setattr(checkpoint, "block_rows_of", lambda _: 64)
    monkeypatch.setattr("standout.io.memory.block_rows_of", lambda _: 64)
    monkeypatch.setattr("standout.io.tables.block_rows", lambda _: 50)
    monkeypatch.setattr("standout.io.csv.TextFile.chunk_bytes", 4000)
    monkeypatch.setattr("standout.io.csv._SKIP_BYTES", 1000)


class Killed(BaseException):
    """Ends a pass like a kill."""


@pytest.fixture
def added(monkeypatch):
    """Count the accumulated blocks; with ``dies_at`` set, the pass ends before that block."""

    class Count:
        blocks, dies_at = 0, None

    plain = Accumulator.add

    def add(self, *given):
        if Count.blocks == Count.dies_at:
            raise Killed
        Count.blocks += 1
        return plain(self, *given)

    monkeypatch.setattr(Accumulator, "add", add)
    return Count


def same_bits(one, other):
    for name in ("mean", "scatter"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert (one.weight, one.weight_squared, one.rows) == (other.weight, other.weight_squared, other.rows)
    assert (one.groups, one.names) == (other.groups, other.names)


HOW = {
    "plain": {},
    "some rows, with groups": {"where": {"state": "on"}, "groups": "subject", "groups_match": "^[^_]+"},
    "some columns": {"columns": ["f4", "f0", "f2"]},
}


@pytest.mark.filterwarnings("ignore::standout.errors.FeatureWarning")
@pytest.mark.parametrize("how", HOW)
def test_a_pass_killed_at_any_block_resumes_to_the_same_bits(path, tmp_path, added, how):
    undisturbed = Moments.of(standout.read(path, memory=0, **HOW[how]))
    whole = added.blocks
    kept = {"memory": 0, "checkpoint": tmp_path / "a.checkpoint", **HOW[how]}
    for dies_at in (0, 1, 4, whole - 1, whole):
        added.blocks, added.dies_at = 0, dies_at
        try:
            found = Moments.of(standout.read(path, **kept))
        except Killed:
            assert dies_at < whole
            added.dies_at = None
            found = Moments.of(standout.read(path, **kept))
            assert added.blocks == whole  # none was added twice
        same_bits(found, undisturbed)
        (tmp_path / "a.checkpoint").unlink()


@pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
@pytest.mark.parametrize("missing", ["auto", "mean"])
def test_passes_with_weights_and_missing_values_resume_to_the_same_bits(tmp_path, added, missing):
    frame = table()
    frame.loc[::7, "f3"] = np.nan
    frame.to_csv(tmp_path / "a.csv", index=False)
    weights = np.random.default_rng(1).integers(0, 4, size=600)
    how = {"memory": 0, "missing": missing, "groups": "subject"}
    undisturbed = Moments.of(standout.read(tmp_path / "a.csv", **how), weights=weights)
    added.blocks, added.dies_at = 0, 5
    source = standout.read(tmp_path / "a.csv", **how, checkpoint=tmp_path / "c")
    with pytest.raises(Killed):
        Moments.of(source, weights=weights)
    added.dies_at = None
    same_bits(Moments.of(standout.read(tmp_path / "a.csv", **how, checkpoint=tmp_path / "c"), weights=weights),
              undisturbed)  # fmt: skip


@pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
def test_a_background_with_another_column_order_resumes(tmp_path, added):
    target, background = table(), table(500, seed=1)[[*NAMES[::-1], "subject", "state"]]
    target.to_csv(tmp_path / "t.csv", index=False)
    background.to_csv(tmp_path / "b.csv", index=False)

    def fitted(**kept):
        return DPCA(2).fit(standout.read(tmp_path / "t.csv", memory=0),
                           background=standout.read(tmp_path / "b.csv", memory=0, **kept))  # fmt: skip

    undisturbed = fitted()
    added.blocks, added.dies_at = 0, 13  # the target has ten blocks
    with pytest.raises(Killed):
        fitted(checkpoint=tmp_path / "c")
    added.dies_at = None
    model = fitted(checkpoint=tmp_path / "c")
    np.testing.assert_array_equal(model.components_, undisturbed.components_)
    np.testing.assert_array_equal(model.ratios_, undisturbed.ratios_)


def test_a_finished_checkpoint_replaces_the_pass(tmp_path, added):
    np.save(tmp_path / "a.npy", table()[NAMES].to_numpy())
    first = Moments.of(standout.read(tmp_path / "a.npy", memory=0, checkpoint=tmp_path / "c"))
    added.blocks, added.dies_at = 0, 0
    source = standout.read(tmp_path / "a.npy", memory=0, checkpoint=tmp_path / "c")
    same_bits(Moments.of(source), first)
    assert source.n_rows == 600


@pytest.mark.filterwarnings("ignore::standout.errors.FeatureWarning")
def test_a_resumed_pass_keeps_its_block_size_when_memory_changes(path, tmp_path, added, monkeypatch):
    undisturbed = Moments.of(standout.read(path, memory=0))
    added.blocks, added.dies_at = 0, 4
    with pytest.raises(Killed):
        Moments.of(standout.read(path, memory=0, checkpoint=tmp_path / "c"))
    added.dies_at = None
    monkeypatch.setattr(checkpoint, "block_rows_of", lambda _: 100)
    monkeypatch.setattr("standout.io.matrix.BLOCK_BYTES", 600)
    monkeypatch.setattr("standout.io.csv.TextFile.chunk_bytes", 3000)
    monkeypatch.setattr("standout.io.tables.block_rows", lambda _: 33)
    same_bits(Moments.of(standout.read(path, memory=1, checkpoint=tmp_path / "c")), undisturbed)


@pytest.fixture
def half_done(tmp_path, added):
    """A function that resumes a killed pass."""
    np.save(tmp_path / "a.npy", table()[NAMES].to_numpy())
    added.dies_at = 4

    def go_on(weights=None, **how):
        source = standout.read(tmp_path / "a.npy", role="target", memory=0, checkpoint=tmp_path / "c", **how)
        return Moments.of(source, role="target", weights=weights)

    with pytest.raises(Killed):
        go_on()
    added.dies_at = None
    return go_on


def test_a_checkpoint_of_other_data_is_an_error_and_stays_unchanged(half_done, tmp_path, refused):
    kept = (tmp_path / "c").read_bytes()
    refused(lambda: half_done(weights=np.ones(600)), "target: the checkpoint", "other data", "weights")
    os.utime(tmp_path / "a.npy", ns=(1, 1))
    refused(half_done, "target: the checkpoint", str(tmp_path / "c"), "other data", "files", "delete the file")
    np.save(tmp_path / "a.npy", np.ones((3, 6)))
    refused(half_done, "other data", "files")
    table().to_csv(tmp_path / "b.csv", index=False)
    refused(lambda: standout.read(tmp_path / "b.csv", drop=["subject", "state"], memory=0, checkpoint=tmp_path / "c"),
            "other data", "files, options")  # fmt: skip
    assert (tmp_path / "c").read_bytes() == kept


def test_a_damaged_checkpoint_is_an_error_and_stays_unchanged(half_done, tmp_path, refused):
    whole = (tmp_path / "c").read_bytes()
    for place in (len("standout checkpoint 2") + 3, 60, 200, len(whole) - 300, len(whole) - 1):
        broken = bytearray(whole)
        broken[place] ^= 4
        (tmp_path / "c").write_bytes(broken)
        refused(half_done, "target: the checkpoint", "damaged or truncated", "delete the file")
        assert (tmp_path / "c").read_bytes() == broken
    for damaged in (whole[:-1], whole + b"x", whole[:300], whole[:30]):
        (tmp_path / "c").write_bytes(damaged)
        refused(half_done, "damaged or truncated")
    (tmp_path / "c").write_bytes(whole.replace(b"checkpoint 2", b"checkpoint 3"))
    refused(half_done, "another version")
    (tmp_path / "c").write_bytes(whole)
    assert half_done().rows == 600


def test_a_checkpoint_that_cannot_be_written_is_an_error_before_any_work(tmp_path, refused, added):
    np.save(tmp_path / "a.npy", table()[NAMES].to_numpy())
    added.dies_at = 0

    def read(path, data=tmp_path / "a.npy"):
        return lambda: standout.read(data, memory=0, checkpoint=path)

    refused(read(tmp_path), "checkpoint", "is a directory", kind=OutputError)
    refused(read(tmp_path / "no" / "c"), "checkpoint", "no directory", kind=OutputError)
    (tmp_path / "notes.txt").write_text("dear diary")
    refused(read(tmp_path / "notes.txt"), "notes.txt", "is not a checkpoint")
    assert (tmp_path / "notes.txt").read_text() == "dear diary"
    refused(read(tmp_path / "c", np.ones((3, 2))), "`checkpoint` is for files", "ndarray")


def test_saving_takes_at_most_its_share_of_the_time(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", table(6400)[NAMES].to_numpy())
    clock, saves = [0.0], []
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(checkpoint, "_INTERVAL", 30.0)
    monkeypatch.setattr(checkpoint, "_SHARE", 0.02)
    plain = Accumulator.add

    def add(*given):  # every block takes ten seconds
        clock[0] += 10.0
        return plain(*given)

    def save(_self, header, _arrays):  # every save takes one
        saves.append((clock[0], header["position"]["rows"]))
        clock[0] += 1.0

    monkeypatch.setattr(Accumulator, "add", add)
    monkeypatch.setattr(checkpoint.CheckpointFile, "save", save)
    Moments.of(standout.read(tmp_path / "a.npy", memory=0, checkpoint=tmp_path / "c"))
    times = np.array([when for when, _ in saves[:-1]])
    assert times[0] == 30.0 and (np.diff(times) >= 50).all() and len(times) > 10
    assert saves[-1][1] == 6400


def test_the_command_line_writes_one_checkpoint_for_each_dataset(tmp_path, done, stopped, added):
    for name, rows in (("target", 600), ("rest", 500), ("sham", 400)):
        np.save(tmp_path / f"{name}.npy", table(rows, seed=rows)[NAMES].to_numpy() * (1 + (rows > 500)))
    command = ["fit", tmp_path / "target.npy", "-b", tmp_path / "rest.npy", "-b", tmp_path / "sham.npy", "--json"]
    plain = done(*command, "--memory", "0").json["model"]
    kept = tmp_path / "kept" / "here"
    assert done(*command, "--memory", "0", "--checkpoint", kept).json["model"] == plain
    assert sorted(p.name for p in kept.iterdir()) == ["0-target.checkpoint", "1-rest.checkpoint", "2-sham.checkpoint"]
    added.blocks, added.dies_at = 0, 0
    assert done(*command, "--memory", "0", "--checkpoint", kept).json["model"] == plain
    os.utime(tmp_path / "sham.npy", ns=(1, 1))
    stopped(
        *command,
        "--memory",
        "0",
        "--checkpoint",
        kept,
        match="2-sham.checkpoint belongs to other data.*--checkpoint, or",
    )
    stopped(*command, "--memory", "0", "--checkpoint", tmp_path / "rest.npy", match="--checkpoint.*rest.npy")


KILLER = """
import os, random, signal, sys, time
from pathlib import Path
import numpy as np
import standout
from standout import DPCA
from standout._accumulate import Accumulator
from standout.io import checkpoint

folder, kept = Path(sys.argv[1]), Path(sys.argv[1]) / "kept"
checkpoint._INTERVAL, checkpoint._SHARE, checkpoint._STALE = 0.0, 1e9, 0.0
plain = Accumulator.add

def slow(*given):
    time.sleep(0.004)
    return plain(*given)

def fitted(**how):
    sources = [standout.read(folder / f"{name}.npy", memory=0, **{k: kept / name for k in how}) for name in "tb"]
    model = DPCA(3).fit(sources[0], background=sources[1])
    return np.vstack([model.components_, model.patterns_, np.diag(model.ratios_) @ model.components_]).tobytes()

def life():
    # Fit with checkpoints in a child process.
    child = os.fork()
    if child == 0:
        Accumulator.add = slow
        (folder / "draft").write_bytes(fitted(checkpoint=True))
        (folder / "draft").replace(folder / "result")
        os._exit(0)
    return child

expected, kills, finished = fitted(), 0, 0
random.seed(7)
while kills < 10 or not finished:
    child = life()
    if kills < 10:
        time.sleep(random.uniform(0.0, 0.25))
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    kills += os.WIFSIGNALED(status)
    if (folder / "result").exists():
        assert (folder / "result").read_bytes() == expected, "other bits"
        (folder / "result").unlink()
        finished += 1
        assert sorted(p.name for p in kept.iterdir()) == ["b", "t"], "a temporary file was left"
        if kills < 10:
            for name in "tb":
                (kept / name).unlink()
    else:
        for name in "tb":  # checkpoints are complete at any time
            standout.read(folder / f"{name}.npy", memory=0, checkpoint=kept / name)
print(kills, finished)
"""


def test_a_fit_killed_ten_times_at_random_gives_the_same_bits(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "t.npy", rng.normal(size=(120_000, 24)) * np.linspace(1, 3, 24) + 3)
    np.save(tmp_path / "b.npy", rng.normal(size=(150_000, 24)) + 3)
    (tmp_path / "kept").mkdir()
    alone = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", textwrap.dedent(KILLER), str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, env=alone, check=False)
    assert run.returncode == 0, run.stderr
    kills, finished = map(int, run.stdout.split())
    assert kills == 10 and finished >= 1
