"""Array files with damaged bytes give a source or a clear error, in little memory."""

import tracemalloc

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import zarr
from scipy import io as scipy_io
from scipy import sparse

import standout
from conftest import NAMES
from standout.errors import StandoutError

ROWS = np.arange(60.0).reshape(12, 5)


def mutated(rng, whole):
    """Return bytes with some parts overwritten, deleted, inserted or set to extreme values."""
    found = bytearray(whole)
    for _ in range(rng.integers(1, 4)):
        place, length = int(rng.integers(len(found) + 1)), int(rng.integers(1, 9))
        match rng.integers(5):
            case 0:
                found[place : place + 1] = rng.bytes(1)
            case 1:
                del found[place:]
            case 2:
                found[place:place] = rng.bytes(length)
            case 3:
                del found[place : place + length]
            case _:
                found[place : place + 8] = rng.choice([b"\xff" * 8, b"\x00" * 8, b"99999999"])
    return bytes(found)


def zipped(path):
    store = zarr.storage.ZipStore(path, mode="w")
    zarr.create_array(store, data=ROWS, chunks=(4, 2))
    store.close()


def with_labels(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("rows", data=ROWS, chunks=(4, 2), compression="gzip")
        file["label"] = np.array(["a", "b", "c"] * 4, dtype="S1")


def labelled(rows):
    obs = pd.DataFrame({"c": pd.Categorical(["a", "b"] * 6)}, index=[f"cell{i}" for i in range(12)])
    return anndata.AnnData(rows, obs=obs, var=pd.DataFrame(index=list(NAMES)))


SEEDS = {
    "a.npy": lambda path: np.save(path, ROWS),
    "a.npz": lambda path: np.savez(path, rows=ROWS, labels=np.arange(12), names=np.array(NAMES)),
    "packed.npz": lambda path: np.savez_compressed(path, rows=ROWS),
    "sparse.npz": lambda path: sparse.save_npz(path, sparse.csr_array(ROWS), compressed=False),
    "a.h5": with_labels,
    "a.h5ad": lambda path: labelled(ROWS).write_h5ad(path),
    "csr.h5ad": lambda path: labelled(sparse.csr_matrix(ROWS)).write_h5ad(path),
    "a.mtx": lambda path: scipy_io.mmwrite(path, sparse.coo_array(ROWS)),
    "dense.mtx": lambda path: scipy_io.mmwrite(path, ROWS),
    "a.zarr": zipped,
    "two.zarr": lambda path: zarr.create_array(path, data=ROWS, chunks=(4, 2), zarr_format=2),
    "three.zarr": lambda path: zarr.create_array(path, data=ROWS, chunks=(4, 2), zarr_format=3),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SEEDS)
def test_damaged_bytes_give_a_source_or_a_clear_error_within_64_MB(tmp_path, name):
    path, results = tmp_path / name, []
    SEEDS[name](path)
    parts = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    whole = {part: part.read_bytes() for part in parts}
    tracemalloc.start()
    try:
        for seed in range(30):
            rng = np.random.default_rng([seed, *name.encode()])
            # In a directory, every second mutation is in the array metadata.
            meta = [part for part in parts if part.name in (".zarray", "zarr.json")]
            part = meta[0] if meta and seed % 2 else parts[rng.integers(len(parts))]
            part.write_bytes(mutated(rng, whole[part]))
            results.append(rows_or_error(path))
            part.write_bytes(whole[part])
        assert tracemalloc.get_traced_memory()[1] < 64e6
    finally:
        tracemalloc.stop()
    refused = [result for result in results if isinstance(result, str)]
    assert len(refused) > 10 and all(name in text and "\n" not in text for text in refused)
    assert rows_or_error(path) == 12


def rows_or_error(path):
    """Return the number of rows, or the error message."""
    held = path.suffix == ".mtx" or path.name == "sparse.npz"
    try:
        for memory in ("1MB",) if held else ("1MB", 0):
            source = standout.read(path, memory=memory)
            seen = sum(len(block) for block in source.blocks(5))
            if hasattr(source, "take"):
                source.take(np.array([source.n_rows - 1, 0]))
                source.columns(0, 1)
            assert seen == source.n_rows
    except StandoutError as error:
        return str(error)
    return seen
