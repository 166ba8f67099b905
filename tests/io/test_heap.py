"""Damaged heaps of text in HDF5 files are errors, where HDF5 itself does not return.

Every case runs in a child process with a limit of time, so that a hang or a crash fails the test instead of ending it.
"""

import struct
import subprocess
import sys
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest

import standout
from standout.io.heap import HeapCheckedFile, open_checked

ROWS = np.arange(60.0).reshape(12, 5)
READ = """
import sys, resource, standout
from standout.errors import StandoutError
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
try:
    source = standout.read(sys.argv[1])
    print(source.n_rows, source.names, source.row_ids)
except StandoutError as error:
    print("refused:", error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def in_child(path):
    """Read a file in a child process; return what it prints, and its peak memory in bytes."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", READ, path], capture_output=True, text=True)
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


@pytest.mark.parametrize("name", ["a.h5", "a.h5ad", "a.loom"])
@pytest.mark.parametrize(
    ("index", "size"), [(0, 0), (1, 2**64 - 16), (1, 2**64 - 20)], ids=["no free space", "size", "padded size"]
)
def test_a_heap_in_which_hdf5_would_loop_is_an_error_within_seconds(tmp_path, name, index, size):
    write(tmp_path / name)
    content = bytearray((tmp_path / name).read_bytes())
    places = [place for place, found in heaps(content) if (found > 0) == (index > 0)]
    for place in places:
        struct.pack_into("<H6xQ", content, place, index, size)
    assert places
    (tmp_path / name).write_bytes(content)
    text, _ = in_child(tmp_path / name)
    assert text.startswith("refused:") and name in text and "heap of text is damaged" in text


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


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_texts_of_intact_files_are_those_that_h5py_reads(tmp_path, libver):
    texts = ["", "a", "größe", "GCOL", "x" * 5000, *map(str, range(3000))]
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        file["texts"] = texts
        file.create_dataset("chunks", data=texts, chunks=(100,), compression="gzip", dtype=h5py.string_dtype())
        file["texts"].attrs["many"] = texts[:200]
    with open_checked(tmp_path / "a.h5") as root:
        for name in ("texts", "chunks"):
            assert root[name].asstr()[...].tolist() == texts
        assert root["texts"].attrs["many"].tolist() == texts[:200]


def test_heaps_are_checked_with_lengths_of_4_bytes_too(tmp_path):
    plist = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    plist.set_sizes(8, 4)
    with h5py.File(h5py.h5f.create(bytes(tmp_path / "a.h5"), h5py.h5f.ACC_TRUNC, plist)) as file:
        file["texts"] = ["one", "two"]
    with open_checked(tmp_path / "a.h5") as root:
        assert root["texts"].asstr()[...].tolist() == ["one", "two"]
    content = bytearray((tmp_path / "a.h5").read_bytes())
    struct.pack_into("<I", content, content.index(b"GCOL\x01") + 16 + 8, 2**32 - 16)
    (tmp_path / "a.h5").write_bytes(content)
    with (
        HeapCheckedFile(tmp_path / "a.h5") as file,
        h5py.File(file) as root,
        pytest.raises(OSError, match=r"Can't|heap"),
    ):
        root["texts"][...]


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
