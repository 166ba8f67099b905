"""Damaged, foreign and hostile array files give an error of one line with a remedy, and run no code."""

import gzip
import os
import pickle
import shutil
import struct
import sys
import tempfile
import zipfile
from pathlib import Path

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
from standout.errors import ColumnError, InputError, MissingExtraError, NotNumbersError, StandoutError

ROWS = np.arange(60.0).reshape(12, 5)


@pytest.fixture
def rejected(refused, tmp_path):
    """Return a check that a file gives an error of one line with its name, these words and a remedy."""

    def check(path, *words, kind=InputError, **how):
        refused(lambda: standout.read(path, role="target", **how), "target: ", path.name, *words, kind=kind)
        with pytest.raises(StandoutError) as error:
            standout.read(path, **how)
        assert "\n" not in str(error.value)

    return check


def adata(rows=ROWS, **obs):
    obs = pd.DataFrame(obs, index=[f"cell{i}" for i in range(rows.shape[0])])
    return anndata.AnnData(rows, obs=obs, var=pd.DataFrame(index=list(NAMES)))


def with_shape(path, old, new):
    path.write_bytes(path.read_bytes().replace(old, new))
    return path


@pytest.mark.parametrize("ending", [".npy", ".npz", ".h5", ".hdf5", ".h5ad", ".zarr", ".mtx", ".mtx.gz"])
def test_empty_files_and_foreign_bytes_are_errors(tmp_path, rejected, ending):
    path = tmp_path / f"a{ending}"
    path.touch()
    rejected(path, "empty", "Give an intact copy")
    path.write_bytes(b"id,a,b\n1,2,3\n" * 99)
    rejected(path)


@pytest.mark.parametrize("ending", [".npy", ".npz", ".h5", ".h5ad", ".mtx"])
def test_a_truncated_file_is_an_error(tmp_path, rejected, ending):
    path = tmp_path / f"a{ending}"
    rows = np.arange(6000.0).reshape(1200, 5)
    writers = {
        ".npy": lambda: np.save(path, rows),
        ".npz": lambda: np.savez(path, rows),
        ".h5": lambda: h5py.File(path, "w").create_dataset("a", data=rows).file.close(),
        ".h5ad": lambda: adata(rows).write_h5ad(path),
        ".mtx": lambda: scipy_io.mmwrite(path, rows),
    }
    writers[ending]()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    rejected(path, "ive an intact copy")


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path, data):
    np.save(tmp_path / "a.npy", data.target)
    np.save(tmp_path / "b.npy", np.asfortranarray(data.target))
    for name in ("a.npy", "b.npy"):
        source = standout.read(tmp_path / name, memory=0)
        blocks = source.blocks(100)
        next(blocks)
        os.truncate(tmp_path / name, 400)
        with pytest.raises(InputError, match=f"{name}.*(shorter|has changed)"):
            list(blocks)
        with pytest.raises(InputError, match=f"{name}.*shorter"):  # a direct read, without a check of the file
            source.rows(100, 200)


def test_impossible_sizes_are_errors_before_memory_is_allocated(tmp_path, rejected):
    np.save(tmp_path / "a.npy", ROWS)
    rejected(
        with_shape(tmp_path / "a.npy", b"(12, 5), }" + b" " * 14, b"(999999999999999, 5), } "), "truncated", "claims"
    )
    (tmp_path / "a.mtx").write_text("%%MatrixMarket matrix coordinate real general\n999999999999 5 1\n1 1 1\n")
    rejected(tmp_path / "a.mtx", "claims 999,999,999,999 rows")
    (tmp_path / "b.mtx").write_text("%%MatrixMarket matrix coordinate real general\n9 5 99999999999\n1 1 1\n")
    rejected(tmp_path / "b.mtx", "claims 99,999,999,999 entries")
    (tmp_path / "c.mtx").write_text("%%MatrixMarket matrix array real general\n99999999 99999999\n1\n")
    rejected(tmp_path / "c.mtx")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", shape=(10**15, 5), chunks=(64, 5), dtype="f8")
    rejected(tmp_path / "a.h5", "claims 40,000,000,000,000,000 bytes")
    zarr.create_array(tmp_path / "a.zarr", shape=(10**15, 5), chunks=(64, 5), dtype="f8")
    rejected(tmp_path / "a.zarr", "claims")
    adata().write_h5ad(tmp_path / "a.h5ad")
    with h5py.File(tmp_path / "a.h5ad", "a") as file:
        del file["X"]
        group = file.create_group("X")
        group["data"], group["indices"], group["indptr"] = [1.0], [0], [0, 1]
        group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [10**15, 5]})
    rejected(tmp_path / "a.h5ad", "claims 1,000,000,000,000,000 rows")
    matrix = sparse.coo_array(ROWS)
    np.savez(tmp_path / "a.npz", format=b"coo", shape=[10**15, 5], data=matrix.data, row=matrix.row, col=matrix.col)
    rejected(tmp_path / "a.npz", "claims")


class Trap:
    """A pickle that creates a directory when loaded."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_pickles_are_never_loaded(tmp_path, rejected):
    sprung = tmp_path / "sprung"
    trap = np.array([[Trap(sprung), 1.0]], dtype=object)
    np.save(tmp_path / "a.npy", trap, allow_pickle=True)
    np.savez(tmp_path / "a.npz", trap)
    np.savez(tmp_path / "b.npz", rows=ROWS, labels=np.array([Trap(sprung)] * 12, dtype=object))
    rejected(tmp_path / "a.npy", "Python objects", "pickles", kind=NotNumbersError)
    rejected(tmp_path / "a.npz", "Python objects", "pickles", kind=NotNumbersError)
    rejected(tmp_path / "b.npz", "labels", label="labels", kind=ColumnError)
    assert standout.read(tmp_path / "b.npz").n_rows == 12
    for name, how in (
        ("filter.zarr", {"filters": [{"id": "pickle"}]}),
        ("compressor.zarr", {"compressor": {"id": "pickle"}}),
    ):
        zarr.create_array(tmp_path / name, data=ROWS[:2], chunks=(2, 5), zarr_format=2, compressors=None)
        meta = (tmp_path / name / ".zarray").read_text()
        key = next(iter(how))
        now = str(how[key]).replace("'", '"')
        assert f'"{key}": null' in meta
        (tmp_path / name / ".zarray").write_text(meta.replace(f'"{key}": null', f'"{key}": {now}'))
        (tmp_path / name / "0.0").write_bytes(pickle.dumps(Trap(sprung)))
        rejected(tmp_path / name, "pickle")
    assert not sprung.exists()
    with pytest.raises(StandoutError):
        standout.read(trap_in_anndata(tmp_path, sprung), label="c")
    assert not sprung.exists()
    pickle.loads(pickle.dumps(Trap(sprung)))
    assert sprung.exists(), "the trap itself works"


def trap_in_anndata(tmp_path, sprung):
    root = zarr.open_group(tmp_path / "anndata.zarr", mode="w", zarr_format=2, attributes={"encoding-type": "anndata"})
    root.create_array("X", data=ROWS[:2], compressors=None)
    for name, size in (("obs", 2), ("var", 5)):
        table = root.create_group(name, attributes={"_index": "_index", "column-order": ["c"]})
        for column in ("_index", "c"):
            table.create_array(column, data=np.arange(size), compressors=None)
    column = tmp_path / "anndata.zarr" / "obs" / "c"
    meta = (column / ".zarray").read_text()
    (column / ".zarray").write_text(meta.replace('"filters": null', '"filters": [{"id": "pickle"}]'))
    (column / "0").write_bytes(pickle.dumps(Trap(sprung)))
    return tmp_path / "anndata.zarr"


@pytest.mark.parametrize(
    ("array", "words", "kind"),
    [
        (np.arange(5.0), ("(5,)", "Reshape"), InputError),
        (np.zeros((2, 3, 4)), ("(2, 3, 4)", "Reshape"), InputError),
        (np.array(7.0), ("()", "Reshape"), InputError),
        (np.zeros((2, 3), dtype=complex), ("complex", "imaginary"), NotNumbersError),
        (np.array([["a", "b"]]), ("type text", "not numbers"), NotNumbersError),
        (np.zeros((2, 3), dtype="M8[s]"), ("datetime64", "not numbers"), NotNumbersError),
        (np.zeros(3, dtype=[("x", "f8"), ("y", "i4")]), ("structured array", "'x', 'y'"), NotNumbersError),
        (np.zeros((0, 3)), ("no rows",), InputError),
        (np.zeros((3, 0)), ("no features",), InputError),
    ],
)
def test_arrays_that_are_not_two_dimensional_and_numeric_are_errors(tmp_path, rejected, array, words, kind):
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", array)
    rejected(tmp_path / "a.npy", *words, kind=kind)
    rejected(tmp_path / "a.npz", "arr_0", *words, kind=kind)
    if array.dtype.kind not in "UM" and array.dtype.names is None and array.size:
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["a"] = array
        zarr.create_array(tmp_path / "a.zarr", data=array)
        rejected(tmp_path / "a.h5", *words, kind=kind)
        rejected(tmp_path / "a.zarr", *words, kind=kind)


def test_a_wrong_key_is_an_error_that_lists_the_arrays(tmp_path, rejected):
    np.savez(tmp_path / "a.npz", counts=ROWS, other=ROWS, labels=np.arange(12))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["run/counts"], file["run/other"], file["run/labels"] = ROWS, ROWS, np.arange(12)
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    for name in ("counts", "other"):
        group.create_array(f"run/{name}", data=ROWS)
    for name, folder in (("a.npz", ""), ("a.h5", "run/"), ("a.zarr", "run/")):
        rejected(tmp_path / name, "2 two-dimensional numeric arrays", "`key`", f"{folder}counts (12, 5)")
        rejected(tmp_path / name, "'run/count'", f"Did you mean '{folder}counts'", "Choose", key="run/count")
        assert standout.read(tmp_path / name, key=f"/{folder}counts").n_rows == 12
    rejected(tmp_path / "a.npz", "(12,)", "Reshape", key="labels")
    np.save(tmp_path / "a.npy", ROWS)
    rejected(tmp_path / "a.npy", "key='x'", "Leave `key` out", key="x")


def test_hdf5_files_of_other_programs_are_errors_that_name_the_program(tmp_path, rejected):
    with h5py.File(tmp_path / "empty.h5", "w") as file:
        file.create_group("nothing")
    rejected(tmp_path / "empty.h5", "no two-dimensional numeric array", "Give")
    with h5py.File(tmp_path / "frame.h5", "w") as file:  # as pandas writes it; its writer needs pytables
        file.create_group("df").attrs["pandas_type"] = "frame"
        file["df/block0_values"] = ROWS
    rejected(tmp_path / "frame.h5", "pandas", "read_hdf(path, 'df')")
    with h5py.File(tmp_path / "10x.h5", "w") as file:
        for name in ("data", "indices", "indptr"):
            file[f"matrix/{name}"] = [0, 1]
    rejected(tmp_path / "10x.h5", "sparse matrix (matrix)", "the program that wrote it")
    adata().write_h5ad(tmp_path / "a.h5ad")
    shutil.copy(tmp_path / "a.h5ad", tmp_path / "b.h5")
    rejected(tmp_path / "b.h5", "h5ad", "Rename")


def test_an_incomplete_h5ad_is_an_error(tmp_path, rejected):
    path = tmp_path / "a.h5ad"
    whole = adata()
    whole.layers["counts"] = ROWS
    whole.write_h5ad(path)
    rejected(path, "no layers/count.", "Did you mean 'layers/counts'", "'X', 'layers/counts'", key="count")
    rejected(path, "no raw/X", "Use `key` with one of 'X'", key="raw")
    for part, words in (("X", ("no X", "`key`", "'layers/counts'")), ("var", ("no var",)), ("obs", ("no obs",))):
        with h5py.File(path, "a") as file:
            del file[part]
        rejected(path, *words)
    adata().write_h5ad(path)
    with h5py.File(path, "a") as file:
        del file["X"]
        file.create_group("X")
    rejected(path, "neither an array nor a sparse matrix")
    old = tmp_path / "old.h5ad"
    with h5py.File(old, "w") as file:
        file["X"], file["obs"], file["var"] = ROWS, np.zeros(12, dtype=[("a", "f8")]), np.zeros(5, dtype=[("a", "f8")])
    rejected(old, "before 0.7", "Convert")


def test_duplicate_gene_names_are_an_error_with_a_remedy(tmp_path, rejected, refused):
    twice = adata()
    twice.var_names = ["a", "b", "c", "d", "a"]
    twice.write_h5ad(tmp_path / "a.h5ad")
    rejected(tmp_path / "a.h5ad", "duplicate var_names: 'a'", "var_names_make_unique")
    refused(lambda: standout.read(twice, role="target"), "target", "var_names_make_unique")


def test_sparse_indices_out_of_range_are_errors(tmp_path, rejected):
    path = tmp_path / "a.h5ad"
    for part, value in (("indices", 5), ("indices", -1), ("indptr", 10**6), ("indptr", -7)):
        adata(sparse.csr_matrix(ROWS)).write_h5ad(path)
        with h5py.File(path, "a") as file:
            file["X"][part][4] = value
        rejected(path, "damaged")
    matrix = sparse.csr_matrix(ROWS)
    matrix.indices[3] = 70
    sparse.save_npz(tmp_path / "a.npz", matrix)
    rejected(tmp_path / "a.npz", "damaged")
    adata(sparse.csc_matrix(ROWS)).write_h5ad(path)
    with h5py.File(path, "a") as file:
        file["X"]["indices"][4] = 99
    rejected(path, "damaged")


def test_formats_without_blocks_report_the_memory_they_need(tmp_path, rejected):
    adata(sparse.csc_matrix(ROWS)).write_h5ad(tmp_path / "a.h5ad")
    scipy_io.mmwrite(tmp_path / "a.mtx", ROWS)
    sparse.save_npz(tmp_path / "a.npz", sparse.csr_array(ROWS))
    np.savez_compressed(tmp_path / "b.npz", np.asfortranarray(ROWS))
    for name, remedy in (("a.h5ad", "CSR"), ("a.mtx", "CSR"), ("a.npz", "CSR"), ("b.npz", "C order")):
        rejected(tmp_path / name, "must fit in memory", "memory='1MB'", remedy, memory=100)
        assert standout.read(tmp_path / name, memory="1MB").n_rows == 12


def test_unknown_columns_are_errors_that_list_the_columns(tmp_path, rejected, refused):
    np.save(tmp_path / "a.npy", ROWS)
    rejected(tmp_path / "a.npy", "columns='a'", "no names", columns="a")
    rejected(tmp_path / "a.npy", "label column 'x'", "no metadata columns", label="x", kind=ColumnError)
    adata(condition=["stim", "ctrl"] * 6).write_h5ad(tmp_path / "a.h5ad")
    rejected(
        tmp_path / "a.h5ad", "groups column 'conditon'", "Did you mean 'condition'", groups="conditon", kind=ColumnError
    )
    rejected(
        tmp_path / "a.h5ad",
        "'Stim' in column 'condition'",
        "Did you mean 'stim'",
        "'stim', 'ctrl'",
        where={"condition": "Stim"},
    )
    rejected(tmp_path / "a.h5ad", "'z*'", columns="z*")
    rejected(tmp_path / "a.h5ad", "no features are left", drop="*")
    both = {"condition": "stim", "obs_names": "cell1"}
    rejected(tmp_path / "a.h5ad", "no row meets all conditions", where=both)


def names_in(kind, path, names):
    if kind == "npz":
        np.savez(path, X=ROWS, names=names)
    elif kind == "h5":
        with h5py.File(path, "w") as file:
            file["X"], file["names"] = ROWS, names.tolist()
    else:
        group = zarr.open_group(path, mode="w")
        group.create_array("X", data=ROWS)
        text = names.dtype.kind in "UO"
        group.create_array("names", shape=names.shape, dtype=str if text else names.dtype)[...] = names


@pytest.mark.parametrize("kind", ["npz", "h5", "zarr"])
def test_invalid_feature_names_are_errors_and_not_ignored(tmp_path, rejected, kind):
    path = tmp_path / f"a.{kind}"
    for names, found in (
        (np.array(NAMES[:4]), "(4,) for 5 features"),
        (np.array([NAMES]), "its shape is (1, 5)"),
        (np.arange(5), "int64"),
    ):
        names_in(kind, path, names)
        rejected(path, "'names' should hold feature names", found, "one text", ".astype(str)")
    names_in(kind, path, np.array(NAMES))
    assert standout.read(path).names == NAMES
    names_in(kind, path, np.array([f"row {i}" for i in range(12)]))  # one for each row: metadata
    source = standout.read(path, ids="names")
    assert source.names is None and source.row_ids[11] == "row 11"


def test_feature_names_stored_as_python_objects_are_errors(tmp_path, rejected):
    frame = pd.DataFrame(ROWS, columns=list(NAMES))
    for name in ("names", "feature_names", "columns", "features"):
        np.savez(tmp_path / "a.npz", X=frame.values, **{name: np.array(frame.columns, dtype=object)})
        rejected(
            tmp_path / "a.npz", f"{name!r} should hold feature names", "pickles", ".astype(str)", kind=NotNumbersError
        )
    np.savez(
        tmp_path / "b.npz", X=ROWS, features=ROWS[:, :2], other=np.array([None, {}])
    )  # a 2-D array does not hold names
    assert standout.read(tmp_path / "b.npz", key="X").n_features == 5


def test_an_obs_column_of_the_wrong_length_is_an_error(tmp_path, rejected):
    adata(condition=np.arange(12)).write_h5ad(tmp_path / "a.h5ad")
    with h5py.File(tmp_path / "a.h5ad", "a") as file:
        del file["obs/condition"]
        file["obs"].create_dataset("condition", data=np.arange(11)).attrs.update(file["var/_index"].attrs)
        file["obs/condition"].attrs["encoding-type"] = "array"
    rejected(tmp_path / "a.h5ad", "11 values of obs for 12 rows", where={"condition": 3})


@pytest.mark.parametrize(
    ("ending", "package", "extra"), [(".h5", "h5py", "io"), (".zarr", "zarr", "io"), (".h5ad", "anndata", "anndata")]
)
def test_a_missing_package_is_named_with_its_extra(tmp_path, refused, monkeypatch, ending, package, extra):
    path = tmp_path / f"a{ending}"
    path.write_bytes(b"anything")
    for module in [name for name in sys.modules if name.startswith(package) or name.endswith(("hdf5", "zarr", "h5ad"))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    refused(lambda: standout.read(path), path.name, package, f"standout[{extra}]", kind=MissingExtraError)


def test_gzip_is_an_error_for_binary_formats(tmp_path, rejected):
    np.save(tmp_path / "a.npy", ROWS)
    (tmp_path / "a.npy.gz").write_bytes(gzip.compress((tmp_path / "a.npy").read_bytes()))
    rejected(tmp_path / "a.npy.gz", "Give the uncompressed file")


def test_a_file_without_read_permission_is_an_error(rejected):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        paths = [Path(folder) / name for name in ("a.npy", "a.npz", "a.h5", "a.h5ad", "a.mtx")]
        np.save(paths[0], ROWS)
        np.savez(paths[1], ROWS)
        with h5py.File(paths[2], "w") as file:
            file["a"] = ROWS
        adata().write_h5ad(paths[3])
        scipy_io.mmwrite(paths[4], ROWS)
        for path in paths:
            path.chmod(0)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            for path in paths:
                rejected(path, "permission")
        finally:
            if root:
                os.seteuid(0)


def test_other_files_in_an_npz_archive_are_ignored(tmp_path):
    np.savez(tmp_path / "a.npz", ROWS)
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("README.txt", "hello")
    assert standout.read(tmp_path / "a.npz").n_rows == 12


def test_a_zarr_archive_with_a_member_that_expands_too_much_is_an_error(tmp_path, refused):
    store = zarr.storage.ZipStore(tmp_path / "a.zarr", mode="w")
    zarr.create_array(store, data=ROWS)
    store.close()
    with zipfile.ZipFile(tmp_path / "a.zarr") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for name in members:
        with zipfile.ZipFile(tmp_path / "bomb.zarr", "w", zipfile.ZIP_DEFLATED) as archive:
            for other, content in members.items():
                archive.writestr(other, content + bytes(300_000_000) * (other == name))
        refused(lambda: standout.read(tmp_path / "bomb.zarr"), "bomb.zarr", name, "expands", "the unpacked directory")
        claimed = (
            (tmp_path / "bomb.zarr")
            .read_bytes()
            .replace(struct.pack("<I", 300_000_000 + len(members[name])), struct.pack("<I", len(members[name])))
        )
        (tmp_path / "bomb.zarr").write_bytes(claimed)
        refused(lambda: standout.read(tmp_path / "bomb.zarr"), "bomb.zarr", name, "larger than its archive claims")


def test_a_sparse_npz_whose_header_claims_more_than_its_member_holds_is_an_error(tmp_path, rejected):
    sparse.save_npz(tmp_path / "a.npz", sparse.csr_array(ROWS), compressed=False)
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["data.npy"] = members["data.npy"].replace(b"(59,), }" + b" " * 13, b"(999999999999999,), }")
    assert b"999999999999999" in members["data.npy"]
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    rejected(tmp_path / "a.npz", "data.npy is shorter than its header claims")


@pytest.mark.parametrize("memory", ["1MB", 0])
def test_chunks_of_no_rows_are_an_error(tmp_path, memory):
    zarr.create_array(tmp_path / "a.zarr", data=ROWS, chunks=(4, 2), zarr_format=2)
    with_shape(tmp_path / "a.zarr" / ".zarray", b"4,\n    2", b"0,\n    2")
    assert zarr.open(tmp_path / "a.zarr", mode="r").chunks == (0, 2)
    with pytest.raises(InputError, match=r"a\.zarr.*cannot be read as Zarr.*give an intact copy"):
        list(standout.read(tmp_path / "a.zarr", memory=memory).blocks(5))
