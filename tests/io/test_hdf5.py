"""Damaged and hostile HDF5 files are errors, where HDF5 itself crashes, does not return or reads other files.

Every case runs in a child process with a limit of time, so that a hang or a crash fails the test instead of ending it.
"""

import os
import re
import signal
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest

import standout

ROWS = np.arange(60.0).reshape(12, 5)
READ = """
import sys, resource, standout
from standout.errors import StandoutError
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
try:
    source = standout.read(sys.argv[1], key=sys.argv[2] if len(sys.argv) > 2 else None)
    print(source.n_rows, source.names, source.row_ids, source.rows(0, 1))
except StandoutError as error:
    print("refused:", error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def in_child(path, *key):
    """Read a file in a child process; return what it prints, and its peak memory in bytes."""
    command = [sys.executable, "-W", "ignore", "-c", READ, path, *key]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (done.returncode, done.stderr)
    *text, peak = done.stdout.splitlines()
    return "\n".join(text), 1024 * int(peak)


def write(path, **how):
    if path.suffix == ".h5ad":
        obs = pd.DataFrame(index=[f"cell{i}" for i in range(12)])
        anndata.AnnData(ROWS, obs=obs, var=pd.DataFrame(index=list("abcde"))).write_h5ad(path)
        return
    with h5py.File(path, "w", **how) as file:
        if path.suffix == ".loom":
            file["matrix"], file["row_attrs/Gene"], file["col_attrs/CellID"] = (
                ROWS.T,
                list("abcde"),
                list("abcdefghijkl"),
            )
            return
        file["rows"] = ROWS
        file["names"] = list("abcde")
        file["rows"].attrs["unit"] = "volt"


def heaps(content):
    """Yield the place of every object of every heap of text, and its index."""
    start = content.find(b"GCOL\x01")
    while start >= 0:
        size, place = int.from_bytes(content[start + 8 : start + 16], "little"), start + 16
        while place + 16 <= start + size:
            index, length = struct.unpack_from("<H6xQ", content, place)
            yield place, index
            place += 16 + -(-length // 8) * 8 if index else max(length, 1)
        start = content.find(b"GCOL\x01", start + size)


LOOPS = {"no free space": (0, 0), "size": (1, 2**64 - 16), "padded size": (1, 2**64 - 20)}


@pytest.mark.parametrize("name", ["a.h5", "a.h5ad", "a.loom"])
def test_a_heap_in_which_hdf5_would_loop_is_an_error_within_seconds(tmp_path, name):
    write(tmp_path / name)
    content, paths = (tmp_path / name).read_bytes(), []
    for damage, (index, size) in LOOPS.items():
        damaged = bytearray(content)
        places = [place for place, found in heaps(damaged) if (found > 0) == (index > 0)]
        for place in places:
            struct.pack_into("<H6xQ", damaged, place, index, size)
        assert places
        paths.append(tmp_path / f"{damage} {name}")
        paths[-1].write_bytes(damaged)
    with ThreadPoolExecutor() as pool:  # each waits for the limit of time
        printed = list(pool.map(in_child, paths))
    for path, (text, _) in zip(paths, printed, strict=True):
        assert text.startswith("refused:") and path.name in text and "crashes or does not return" in text


@pytest.mark.parametrize("name", ["a.h5", "a.h5ad", "a.loom"])
def test_a_text_that_claims_to_be_longer_than_the_file_is_an_error_in_little_memory(tmp_path, name):
    write(tmp_path / name)
    _, usual = in_child(tmp_path / name)
    with h5py.File(tmp_path / name) as file:
        texts = {"a.h5": "names", "a.h5ad": "var/_index", "a.loom": "row_attrs/Gene"}
        place = file[texts[name]].id.get_offset()
    content = bytearray((tmp_path / name).read_bytes())
    struct.pack_into("<I", content, place + 16, 1_500_000_000)
    (tmp_path / name).write_bytes(content)
    text, peak = in_child(tmp_path / name)
    assert text.startswith("refused:") and name in text and "longer than the file" in text
    assert peak < usual + 64e6


def test_chunks_of_text_that_claim_to_be_longer_than_the_file_are_an_error(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["rows"] = ROWS
        file.create_dataset("names", data=list("abcde"), chunks=(5,), dtype=h5py.string_dtype())
        place = file["names"].id.get_chunk_info(0).byte_offset
    content = bytearray((tmp_path / "a.h5").read_bytes())
    struct.pack_into("<I", content, place, 2**32 - 8)
    (tmp_path / "a.h5").write_bytes(content)
    text, _ = in_child(tmp_path / "a.h5")
    assert text.startswith("refused:") and "longer than the file" in text


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_unusual_but_intact_files_are_read(tmp_path, libver):
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        file.create_dataset("g/rows", ROWS.shape, float, chunks=(2, 5), maxshape=(None, 5), compression="lzf")
        file["g/rows"][:4] = ROWS[:4]  # the other chunks are not stored
        file["g/label"] = ["größe", "", "x" * 5000] * 4
        file["table"] = np.zeros(3, [("a", "f8"), ("b", "i4")])
        file["flags"] = h5py.Empty("f4")
        file["g/back"] = file["/"]
        file["g/loop"] = h5py.SoftLink("/g/loop")
        file["elsewhere"] = h5py.ExternalLink("nothing.h5", "/rows")  # is not needed, and not followed
        file.attrs["many"] = ["", *map(str, range(3000))]
    source = standout.read(tmp_path / "a.h5", label="label")
    np.testing.assert_array_equal(source.rows(0, 12), np.vstack([ROWS[:4], np.zeros((8, 5))]))
    assert source.labels.tolist() == ["größe", "", "x" * 5000] * 4


def test_a_file_of_which_the_process_that_inspects_it_dies_is_an_error_and_the_next_one_is_read(tmp_path):
    from standout.io.hdf5 import _inspector

    write(tmp_path / "a.h5")
    assert standout.read(tmp_path / "a.h5").n_rows == 12
    os.kill(_inspector._child.pid, signal.SIGSTOP)
    os.kill(_inspector._child.pid, signal.SIGKILL)
    with pytest.raises(standout.errors.InputError, match="crashes or does not return"):
        standout.read(tmp_path / "a.h5")
    assert standout.read(tmp_path / "a.h5").n_rows == 12


def test_files_are_read_where_no_process_can_be_started(tmp_path):
    write(tmp_path / "a.h5")
    code = f"import sys; sys.executable = ''; import standout; print(standout.read({str(tmp_path / 'a.h5')!r}).n_rows)"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert done.stdout == "12\n", done.stderr


def test_a_fork_and_its_parent_inspect_files_in_processes_of_their_own(tmp_path):
    write(tmp_path / "a.h5")
    code = f"""
import os, standout
rows = [standout.read({str(tmp_path / "a.h5")!r}).n_rows]
child = os.fork()
rows += [standout.read({str(tmp_path / "a.h5")!r}).n_rows for _ in range(20)]
if child:
    assert os.waitpid(child, 0)[1] == 0
    print(set(rows))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "{12}\n", done.stderr


# Data in other files


def test_a_virtual_array_of_itself_is_an_error(tmp_path):
    layout = h5py.VirtualLayout(shape=(12, 5), dtype=float)
    layout[:] = h5py.VirtualSource(".", "rows", shape=(12, 5))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_virtual_dataset("rows", layout)
    text, _ = in_child(tmp_path / "a.h5")  # HDF5 overflows the stack
    assert text.startswith("refused:") and "/rows refers to ." in text


@pytest.mark.parametrize("kind", ["fifo", "absolute", "parent", "missing", "virtual", "link"])
def test_virtual_arrays_refer_to_plain_arrays_in_the_same_directory_or_are_an_error(tmp_path, kind):
    (tmp_path / "here").mkdir()
    write(tmp_path / "other.h5")
    with h5py.File(tmp_path / "here" / "linked.h5", "w") as file:
        file["rows"] = h5py.ExternalLink("../other.h5", "/rows")
    os.mkfifo(tmp_path / "here" / "fifo.h5")
    names = {"fifo": "fifo.h5", "absolute": str(tmp_path / "other.h5"), "parent": "../other.h5", "link": "linked.h5"}
    name = names.get(kind, f"{kind}.h5")
    layout = h5py.VirtualLayout(shape=(12, 5), dtype=float)
    layout[:] = h5py.VirtualSource(name, "rows", shape=(12, 5))
    for path in ("virtual.h5", "a.h5"):
        with h5py.File(tmp_path / "here" / path, "w") as file:
            file.create_virtual_dataset("rows", layout)
    text, _ = in_child(tmp_path / "here" / "a.h5")
    assert text.startswith("refused:") and f"/rows refers to {name}" in text


@pytest.mark.parametrize("target", ["secret", "fifo"])
def test_arrays_that_are_stored_in_another_file_are_an_error(tmp_path, target):
    (tmp_path / "secret").write_bytes(bytes(60))
    os.mkfifo(tmp_path / "fifo")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("rows", (12, 5), "u1", external=[(str(tmp_path / target), 0, 60)])
    text, _ = in_child(tmp_path / "a.h5")
    assert text.startswith("refused:") and "/rows is stored in another file" in text and "Copy the data" in text


@pytest.mark.parametrize(("name", "key"), [("a.h5ad", "X"), ("a.loom", "matrix"), ("a.mat", "X"), ("a.h5", "matrix")])
def test_links_to_other_files_are_not_followed(tmp_path, name, key):
    with h5py.File(tmp_path / "private.h5", "w") as file:
        file["own"], file["rows"] = ROWS, ROWS + 1
    if name in ("a.h5", "a.mat"):
        with h5py.File(tmp_path / name, "w") as file:
            file["rows"] = ROWS
    else:
        write(tmp_path / name)
    with h5py.File(tmp_path / name, "a") as file:
        file["own"] = ROWS  # an array of that name, which is here too
        if key in file:
            del file[key]
        file[key] = h5py.ExternalLink("private.h5", "/own")
    text, _ = in_child(tmp_path / name, *(["rows"] if name == "a.h5" else []))
    if name == "a.h5":
        assert text.startswith("12 None None [[0.")
    else:
        assert text.startswith("refused:") and f"{key!r} is a link to another file" in text


def test_a_virtual_dataset_is_read_from_its_own_files(tmp_path):
    write(Path(tmp_path / "source.h5"))
    layout = h5py.VirtualLayout(shape=(12, 5), dtype=float)
    layout[:] = h5py.VirtualSource("source.h5", "rows", shape=(12, 5))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_virtual_dataset("rows", layout)
        file["names"] = list("abcde")
    source = standout.read(tmp_path / "a.h5")
    assert source.names == tuple("abcde")
    np.testing.assert_array_equal(source.rows(0, 12), ROWS)


@pytest.mark.parametrize("size", [0, 2])
def test_a_checksummed_chunk_that_claims_to_be_shorter_than_its_checksum_is_an_error(tmp_path, size):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file.create_dataset("rows", data=np.arange(60.0).reshape(12, 5), chunks=(2, 1), fletcher32=True)
    content = bytearray(path.read_bytes())
    [node] = [found.start() for found in re.finditer(b"TREE\x01\x00", bytes(content))]  # the index of the chunks
    struct.pack_into("<I", content, node + 24, size)
    path.write_bytes(content)
    text, _ = in_child(path)
    assert text.startswith("refused:") and "a.h5" in text
