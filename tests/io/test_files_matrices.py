"""Array files give the models of their arrays, on disk and in memory, with names and metadata."""

import gzip
import io
import pickle
import warnings

import anndata
import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import zarr
from numpy.lib import format as npy
from scipy import io as scipy_io
from scipy import sparse

import standout
from conftest import NAMES
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import InputError, NonFiniteError
from standout.io.matrix import SequentialMatrix
from standout.io.missing import handle_missing
from standout.io.source import RowSource, select_columns, watching
from standout.io.stream import SparseInMemory, TableInMemory

noise = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")


def npy_version(rows, path, version):
    with path.open("wb") as file:
        npy.write_array(file, rows, version=version)


def h5(rows, path, **how):
    with h5py.File(path, "w") as file:
        file.create_dataset("rows", data=rows, maxshape=(None, None) if how else None, **how)


def zarray(rows, path, version, store=None, **how):
    zarr.create_array(store or path, data=rows, zarr_format=version, **{"chunks": (64, 2), **how})


def zipped(rows, path):
    store = zarr.storage.ZipStore(path, mode="w")
    zarray(rows, path, 3, store=store)
    store.close()


def annotated(rows, **obs):
    obs = pd.DataFrame(obs, index=[f"cell{i}" for i in range(rows.shape[0])])
    return anndata.AnnData(rows, obs=obs, var=pd.DataFrame(index=list(NAMES)))


def h5ad(rows, path, **how):
    annotated(rows).write_h5ad(path, **how)


def h5ad_zarr(rows, path, version):
    with anndata.settings.override(zarr_write_format=version), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr warns about the strings of anndata
        annotated(rows).write_zarr(path)


def mtx_gz(rows, path):
    plain = io.BytesIO()
    scipy_io.mmwrite(plain, sparse.coo_array(rows))
    path.write_bytes(gzip.compress(plain.getvalue()))


# format → (suffix, writer). Files of the second table must fit in memory.
FORMATS = {
    "npy 1": (".npy", lambda rows, path: npy_version(rows, path, (1, 0))),
    "npy 2": (".npy", lambda rows, path: npy_version(rows, path, (2, 0))),
    "npy 3": (".npy", lambda rows, path: npy_version(rows, path, (3, 0))),
    "npy, F order": (".npy", lambda rows, path: np.save(path, np.asfortranarray(rows))),
    "npy, big-endian": (".npy", lambda rows, path: np.save(path, rows.astype(">f8"))),
    "npy, half": (".npy", lambda rows, path: np.save(path, rows.astype("f2"))),
    "npy, bytes": (".npy", lambda rows, path: np.save(path, rows.astype("u1"))),
    "npy, long": (".npy", lambda rows, path: np.save(path, rows.astype("g"))),
    "npz": (".npz", lambda rows, path: np.savez(path, rows=rows)),
    "npz, F order": (".npz", lambda rows, path: np.savez(path, rows=np.asfortranarray(rows))),
    "npz, packed": (".npz", lambda rows, path: np.savez_compressed(path, rows=rows)),
    "h5": (".h5", h5),
    "h5, chunks": (".hdf5", lambda rows, path: h5(rows, path, chunks=(37, 2), compression="gzip")),
    "h5, big-endian": (".h5", lambda rows, path: h5(rows.astype(">i4"), path)),
    "zarr 2": (".zarr", lambda rows, path: zarray(rows, path, 2)),
    "zarr 3": (".zarr", lambda rows, path: zarray(rows, path, 3)),
    "zarr 3, shards": (".zarr", lambda rows, path: zarray(rows, path, 3, chunks=(10, 1), shards=(50, 5))),
    "zarr, zip": (".zarr", zipped),
    "h5ad": (".h5ad", h5ad),
    "h5ad, packed": (".h5ad", lambda rows, path: h5ad(rows, path, compression="gzip")),
    "h5ad, CSR": (".h5ad", lambda rows, path: h5ad(sparse.csr_matrix(rows), path, compression="gzip")),
    "h5ad, CSR of bytes": (".h5ad", lambda rows, path: h5ad(sparse.csr_array(rows.astype("u1")), path)),
    "anndata in zarr 2": (".zarr", lambda rows, path: h5ad_zarr(sparse.csr_matrix(rows), path, 2)),
    "anndata in zarr 3": (".zarr", lambda rows, path: h5ad_zarr(rows, path, 3)),
}
HELD = {
    "npz, sparse": (".npz", lambda rows, path: sparse.save_npz(path, sparse.csr_array(rows))),
    "npz, sparse by columns": (".npz", lambda rows, path: sparse.save_npz(path, sparse.csc_matrix(rows))),
    "npz, coordinates": (".npz", lambda rows, path: sparse.save_npz(path, sparse.coo_array(rows))),
    "npz, packed, F order": (".npz", lambda rows, path: np.savez_compressed(path, rows=np.asfortranarray(rows))),
    "h5ad, CSC": (".h5ad", lambda rows, path: h5ad(sparse.csc_matrix(rows), path)),
    "mtx": (".mtx", lambda rows, path: scipy_io.mmwrite(path, sparse.coo_array(rows))),
    "mtx, dense": (".mtx", lambda rows, path: scipy_io.mmwrite(path, rows)),
    "mtx, packed": (".mtx.gz", mtx_gz),
}


@pytest.fixture(params=FORMATS | HELD)
def kind(request):
    return request.param


@pytest.fixture
def saved(tmp_path):
    def write(rows, kind, name="rows"):
        ending, writer = (FORMATS | HELD)[kind]
        path = tmp_path / f"{name}{ending}"
        writer(rows, path)
        return path

    return write


@pytest.fixture
def on_disk(tmp_path):
    """Return a function that writes rows in a format and opens them on disk."""

    def write(rows, kind, **how):
        ending, writer = FORMATS[kind]
        path = tmp_path / f"{kind}{ending}"
        writer(rows, path)
        return standout.read(path, memory=0, **how)

    return write


def test_a_file_of_any_format_gives_the_model_of_its_array(data, kind, saved):
    paths = [saved(rows, kind, name) for rows, name in zip(data, ("target", "background"), strict=True)]
    model = DPCA().fit(paths[0], background=str(paths[1]))
    plain = DPCA().fit(data.target, background=data.background)
    np.testing.assert_allclose(model.ratios_, plain.ratios_, rtol=1e-12)
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(model.transform(paths[0]), plain.transform(data.target), rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("kind", FORMATS)
def test_on_disk_and_in_memory_agree(data, kind, saved):
    paths = [saved(rows, kind, name) for rows, name in zip(data, ("target", "background"), strict=True)]
    sources = [standout.read(path, memory=0) for path in paths]
    assert all(isinstance(source, SequentialMatrix) for source in sources)
    model = DPCA().fit(sources[0], background=sources[1])
    held = DPCA().fit(paths[0], background=paths[1])
    np.testing.assert_allclose(model.ratios_, held.ratios_, rtol=1e-12)
    np.testing.assert_allclose(model.components_, held.components_, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(model.transform(sources[0]), held.transform(paths[0]), rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("step", [1, 7, 64, 1000])
def test_blocks_of_any_size_are_the_rows_in_order(data, kind, step, on_disk):
    source = on_disk(data.target, kind)
    blocks = list(source.blocks(step))
    assert max(map(len, blocks)) <= step
    assert np.array_equal(np.concatenate(blocks), data.target)
    assert source.n_rows == 200 and source.n_features == 5


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind != "npz, packed"])
def test_any_rows_and_columns_can_be_read_from_disk(data, kind, on_disk):
    source = on_disk(data.target, kind)
    assert isinstance(source, RowSource)
    index = np.array([150, 3, 3, 199, 0, 4])
    assert np.array_equal(source.take(index), data.target[index])
    assert np.array_equal(source.take(np.array([], dtype=np.intp)), data.target[:0])
    assert np.array_equal(source.rows(17, 90), data.target[17:90])
    for start, stop in [(0, 2), (2, 5), (1, 2), (0, 5)]:
        assert np.array_equal(source.columns(start, stop), data.target[:, start:stop])
    turned = source.select(np.array([4, 0, 2]))
    assert np.array_equal(turned.columns(0, 2), data.target[:, [4, 0]])
    assert np.array_equal(turned.take(index), data.target[index][:, [4, 0, 2]])
    assert np.array_equal(turned.select(np.array([2, 0])).rows(0, 9), data.target[:9, [2, 4]])
    assert np.array_equal(source.select(np.array([1, 3, 2])).columns(0, 3), data.target[:, [1, 3, 2]])


def test_small_reads_give_the_same_values(data, on_disk, monkeypatch):
    monkeypatch.setattr("standout.io.matrix._READ_BYTES", 1000)
    monkeypatch.setattr("standout.io.matrix.GAP_BYTES", 16)
    monkeypatch.setattr("standout.io.matrix._SPARSE_BYTES", 100)
    index = np.array([150, 3, 199, 0, 4])
    for kind in ("npy 1", "npy, F order", "h5, chunks", "zarr 3", "h5ad, CSR"):
        source = on_disk(data.target, kind)
        assert np.array_equal(source.take(index), data.target[index]), kind
        assert np.array_equal(source.columns(1, 4), data.target[:, 1:4]), kind
        assert np.array_equal(source.select(np.array([4, 0])).columns(0, 2), data.target[:, [4, 0]]), kind
        assert np.array_equal(np.concatenate(list(source.blocks(30))), data.target), kind


@noise
@pytest.mark.parametrize("kind", ["npy 1", "npy, F order", "npz", "h5, chunks", "zarr 2", "zarr, zip"])
def test_solvers_that_need_rows_read_them_from_disk(wide, kind, saved):
    sources = [standout.read(saved(rows, kind, str(i)), memory=0) for i, rows in enumerate(wide)]
    model = DPCA().fit(sources[0], background=sources[1])
    plain = DPCA().fit(wide.target, background=wide.background)
    assert model.solver_ == plain.solver_ == "span"
    np.testing.assert_allclose(model.ratios_, plain.ratios_, rtol=1e-12)


@noise
def test_a_sequential_file_is_solved_from_its_moments(wide, saved):
    sources = [standout.read(saved(rows, "npz, packed", str(i)), memory=0) for i, rows in enumerate(wide)]
    assert not isinstance(sources[0], RowSource)
    assert DPCA().fit(sources[0], background=sources[1]).solver_ != "span"


def test_sparse_files_stay_sparse(data, kind, saved):
    rows = data.target * (data.target > 30)
    source = standout.read(saved(rows, kind))
    is_sparse = any(word in kind for word in ("sparse", "coordinates", "CS", "zarr 2", "mtx")) and "dense" not in kind
    assert isinstance(source, SparseInMemory if is_sparse and kind != "zarr 2" else TableInMemory)
    assert np.array_equal(np.concatenate(list(source.blocks(50))), rows)


def test_progress_is_reported_as_a_share(data, on_disk):
    for kind in ("npy 1", "npz, packed", "h5, chunks", "zarr 3", "h5ad, CSR"):
        reported = []
        with watching(reported.append):
            source = on_disk(data.target, kind)
            list(source.blocks(50))
        shares = [progress.share for progress in reported]
        assert len(shares) >= 4 and shares == sorted(shares) and shares[-1] == 1.0, kind
        assert reported[-1].rows == 200 and reported[-1].what == source.path.name
    with watching(reported.append):
        standout.read(source.path)
    assert reported[-1].share == 1.0


class Described:
    """The same rows with names, labels and subjects, in every format that can store them."""

    labels = np.array(["stim", "ctrl"] * 100, dtype=object)
    subjects = np.arange(200) // 10

    @classmethod
    def npz(cls, rows, path):
        np.savez(path, rows=rows, names=np.array(NAMES), label=cls.labels.astype(str), subject=cls.subjects)

    @classmethod
    def packed(cls, rows, path):
        np.savez_compressed(path, rows=rows, names=np.array(NAMES), label=cls.labels.astype("S"), subject=cls.subjects)

    @classmethod
    def hdf5(cls, rows, path):
        with h5py.File(path, "w") as file:
            group = file.create_group("all/data")
            group["rows"], group["subject"] = rows, cls.subjects
            group["label"], group["feature_names"] = cls.labels, list(NAMES)

    @classmethod
    def attribute(cls, rows, path):
        with h5py.File(path, "w") as file:
            file["rows"], file["label"], file["subject"] = rows, cls.labels, cls.subjects
            file["rows"].attrs["names"] = list(NAMES)

    @classmethod
    def zarr(cls, rows, path):
        group = zarr.open_group(path, mode="w", zarr_format=3)
        group.create_array("rows", data=rows).attrs["columns"] = list(NAMES)
        group.create_array("label", shape=(200,), dtype=str)[:] = cls.labels
        group.create_array("subject", data=cls.subjects)

    @classmethod
    def h5ad(cls, rows, path):
        annotated(sparse.csr_matrix(rows), label=pd.Categorical(cls.labels), subject=cls.subjects).write_h5ad(path)


DESCRIBED = {".npz": Described.npz, "2.npz": Described.packed, ".h5": Described.hdf5, ".hdf5": Described.attribute,
             ".zarr": Described.zarr, ".h5ad": Described.h5ad}  # fmt: skip


@pytest.fixture(params=DESCRIBED)
def described(request, tmp_path, data):
    path = tmp_path / f"described{request.param}"
    DESCRIBED[request.param](data.target, path)
    return path


@pytest.mark.parametrize("memory", [0, "1MB"])
def test_metadata_columns_are_read_and_select_rows(data, described, memory):
    source = standout.read(
        described, label="label", groups="subject", where={"label": "ctrl"}, columns=["c", "a*"], memory=memory
    )
    assert np.array_equal(np.concatenate(list(source.blocks(30))), data.target[1::2][:, [2, 0]])
    assert source.names == ("c", "a")
    assert source.labels.tolist() == ["ctrl"] * 100
    assert source.groups.tolist() == Described.subjects[1::2].tolist()
    assert source.account.rows == 100 and source.account.features == 2
    blocks = list(source.table_blocks(30))
    assert max(len(block.numbers) for block in blocks) <= 30
    assert np.concatenate([block.about["subject"] for block in blocks]).tolist() == source.groups.tolist()
    assert {"label", "subject"} <= set(source.aside)
    if isinstance(source, RowSource):
        assert np.array_equal(source.take(np.array([99, 7])), data.target[1::2][[99, 7]][:, [2, 0]])
        assert np.array_equal(source.rows(5, 9), data.target[1::2][5:9][:, [2, 0]])
        assert np.array_equal(source.columns(1, 2), data.target[1::2][:, [0]])


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, sparse.csc_array])
def test_an_anndata_in_memory_is_read_with_the_same_options(data, form):
    adata = annotated(form(data.target), label=pd.Categorical(Described.labels), subject=Described.subjects)
    for given in (adata, adata[:, :]):
        source = standout.read(given, label="label", groups="subject", where={"label": "ctrl"}, columns=["c", "a"])
        assert np.array_equal(source.rows(0, 100), data.target[1::2][:, [2, 0]])
        assert source.groups.tolist() == Described.subjects[1::2].tolist()
        assert source.row_ids[:2].tolist() == ["cell1", "cell3"]
    assert isinstance(standout.read(adata), TableInMemory if form is np.asarray else SparseInMemory)


def test_rows_are_selected_by_numbers_and_by_several_conditions(data, described):
    source = standout.read(described, where={"subject": [3, "4", 5.0], "label": "stim"}, drop="e", memory=0)
    assert np.array_equal(np.concatenate(list(source.blocks(7))), data.target[30:60:2, :4])


def test_a_feature_used_as_metadata_is_not_a_feature(data, described):
    for memory in (0, "1MB"):
        source = standout.read(described, label="b", memory=memory)
        assert source.labels.tolist() == data.target[:, 1].tolist()
        assert source.names == ("a", "c", "d", "e")
        assert np.array_equal(next(iter(source.blocks(200))), data.target[:, [0, 2, 3, 4]])


@noise
def test_one_file_can_hold_target_and_background(data, described):
    both = {side: standout.read(described, where={"label": side}, memory=0) for side in ("stim", "ctrl")}
    model = DPCA().fit(both["stim"], background=both["ctrl"])
    plain = DPCA().fit(data.target[::2], background=data.target[1::2])
    np.testing.assert_allclose(model.ratios_, plain.ratios_, rtol=1e-12)
    assert list(model.feature_names_in_) == list(NAMES)


@noise
def test_groups_of_a_file_are_counted(described):
    assert Moments.of(standout.read(described, groups="subject", memory=0)).units == 20


@pytest.mark.filterwarnings("ignore:.*missing='mean'` filled:standout.errors.StandoutWarning")
def test_missing_values_are_handled_in_files_on_disk(data, saved):
    rows = data.target.copy()
    rows[3, 1] = rows[8, 1] = np.nan
    path = saved(rows, "h5, chunks")
    filled = standout.read(path, missing="mean", memory=0)
    expected = np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows)
    np.testing.assert_allclose(np.concatenate(list(filled.blocks(33))), expected, rtol=1e-14)
    kept = standout.read(path, missing="drop_rows", memory=0)
    assert kept.account.rows_left_out == 2 and np.array_equal(next(iter(kept.blocks(500))), np.delete(rows, [3, 8], 0))
    with pytest.raises(NonFiniteError, match="2 NaN"):
        DPCA().fit(standout.read(path, memory=0), background=data.background)
    assert handle_missing(standout.read(saved(rows, "npz")), "drop_features", "target").n_features == 4


def test_layers_and_raw_are_read_by_key(tmp_path, data):
    adata = annotated(data.target)
    adata.raw = adata.copy()
    adata.layers["counts"] = sparse.csr_matrix(data.target * 2)
    adata.X = data.target * 3
    path = tmp_path / "layers.h5ad"
    adata[:, :4].copy().write_h5ad(path)
    for given in (path, adata[:, :4], anndata.read_h5ad(path, backed="r")):
        for memory in (0, "1MB"):
            found = {
                key: standout.read(given, key=key, memory=memory).rows(0, 200)
                for key in ("X", "counts", "layers/counts", "raw", None)
            }
            assert np.array_equal(found["raw"], data.target)
            assert np.array_equal(found["counts"], 2 * data.target[:, :4])
            assert np.array_equal(found["counts"], found["layers/counts"])
            assert np.array_equal(found["X"], 3 * data.target[:, :4]) and np.array_equal(found["X"], found[None])


def test_row_ids_are_obs_names(tmp_path, data):
    h5ad(data.target, tmp_path / "a.h5ad")
    for memory in (0, "1MB"):
        assert standout.read(tmp_path / "a.h5ad", memory=memory).row_ids[:2].tolist() == ["cell0", "cell1"]


def test_only_requested_obs_columns_are_read(tmp_path, data):
    annotated(data.target, a=Described.labels, b=Described.labels).write_h5ad(tmp_path / "a.h5ad")
    with h5py.File(tmp_path / "a.h5ad", "a") as file:  # a column that cannot be read
        del file["obs/b"]
    source = standout.read(tmp_path / "a.h5ad", label="a", memory=0)
    assert source.labels[1] == "ctrl" and len(list(source.table_blocks(100))) == 2
    with pytest.raises(InputError, match=r"a\.h5ad"):
        standout.read(tmp_path / "a.h5ad", label="b").about("b")


@pytest.mark.parametrize("memory", [0, "1MB"])
@pytest.mark.parametrize("form", ["h5ad", "zarr", "memory"])
def test_obs_columns_are_available_and_read_on_demand(tmp_path, data, form, memory, recwarn):
    obs = {
        "kind": pd.Categorical(Described.labels), "day": Described.subjects, "dose": Described.subjects / 4,
        "late": Described.subjects > 9, "who": [f"m{i}" for i in range(200)],
        "times": pd.array([1, None] * 100, dtype="Int64"),
    }  # fmt: skip
    given = annotated(data.target, **obs)
    path = tmp_path / f"cells.{form}"
    if form != "memory":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zarr warns about the strings of anndata
            getattr(given, f"write_{form}")(path)
    recwarn.clear()
    source = standout.read(given if form == "memory" else path, where={"kind": "stim"}, memory=memory)
    assert source.aside == ("kind", "obs_names", "day", "dose", "late", "who", "times")
    about = next(iter(source.table_blocks(200))).about
    for name in ("kind", "day", "dose", "late", "who"):
        assert about[name].tolist() == given.obs[name][::2].tolist()
    assert set(about["times"]) == {1} and not recwarn.list


def test_an_h5ad_in_memory_reads_other_obs_columns_on_demand(tmp_path, data):
    annotated(data.target, a=Described.labels, b=Described.subjects).write_h5ad(tmp_path / "a.h5ad")
    source = standout.read(tmp_path / "a.h5ad", label="a")
    with h5py.File(tmp_path / "a.h5ad", "a") as file:
        file["obs/b"][:] = 7
    again = pickle.loads(pickle.dumps(source))
    assert isinstance(source, TableInMemory)
    assert set(source.about("b")) == {7} and set(again.about("b")) == {7} and again.labels[1] == "ctrl"
    (tmp_path / "a.h5ad").unlink()
    assert set(source.about("b")) == {7}  # read once


def test_a_zipped_zarr_and_a_pyarrow_table_are_read(data, tmp_path):
    with zarr.storage.ZipStore(tmp_path / "rows.zarr.zip", mode="w") as store:
        zarr.create_array(store, data=data.target)
    np.testing.assert_array_equal(standout.read(tmp_path / "rows.zarr.zip").rows(0, 200), data.target)
    table = pa.table({name: data.target[:, i] for i, name in enumerate(NAMES)})
    assert standout.read(table).names == NAMES
    np.testing.assert_array_equal(standout.read(table).rows(0, 200), data.target)


def test_views_of_a_stream_do_not_read_it_in_advance(data, tmp_path):
    frame = pd.DataFrame(data.target, columns=NAMES).assign(who="x")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    passes = []
    with watching(passes.append):
        stream = standout.read(standout.read(tmp_path / "rows.csv", groups="who", memory=0))
        view = select_columns(stream, np.array([3, 0]))
        assert passes == [] and view.names == ("d", "a")
        assert list(view.groups) == ["x"] * len(data.target)
    assert passes
