"""MATLAB files of version 5 and 7.3: what scipy and h5py read, names and labels, and errors for everything else."""

import struct
import tracemalloc
import zlib

import h5py
import numpy as np
import pytest
from scipy import io as scipy_io
from scipy import sparse

import standout
from standout._dpca import DPCA
from standout.errors import InputError, NotNumbersError, StandoutError
from standout.io.matrix import OnDisk
from standout.io.stream import SparseInMemory

NAMES = ("a", "bb", "c", "d", "e")
REFERENCE = h5py.special_dtype(ref=h5py.Reference)


def cells(texts):
    """Return texts as a cell array."""
    found = np.empty((len(texts), 1), dtype=object)
    found[:, 0] = texts
    return found


def save_73(path, **variables):
    """Write variables as MATLAB does in version 7.3: a header of 512 bytes, HDF5, axes in reverse order."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in variables.items():
            if sparse.issparse(value):
                value = value.tocsc()
                group = file.create_group(name)
                group["data"], group["ir"] = value.data, value.indices.astype("u8")
                group["jc"] = value.indptr.astype("u8")
                group.attrs["MATLAB_class"], group.attrs["MATLAB_sparse"] = np.bytes_("double"), value.shape[0]
            elif value.dtype == object:
                codes = [np.frombuffer(str(text).encode("utf-16le"), "u2")[:, None] for text in value.ravel()]
                links = np.empty(value.T.shape, dtype=REFERENCE)
                for i, code in enumerate(codes):
                    item = file.create_dataset(f"#refs#/{name}{i}", data=code)
                    item.attrs["MATLAB_class"] = np.bytes_("char")
                    links.ravel()[i] = item.ref
                item = file.create_dataset(name, data=links, dtype=REFERENCE)
                item.attrs["MATLAB_class"] = np.bytes_("cell")
            else:
                item = file.create_dataset(name, data=value.T, chunks=True, compression="gzip")
                kinds = {"f8": "double", "f4": "single", "b1": "logical"}
                item.attrs["MATLAB_class"] = np.bytes_(kinds.get(value.dtype.str[1:], value.dtype.name))
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")
    return path


def save_5(path, compress=True, **variables):
    scipy_io.savemat(path, variables, do_compression=compress)
    return path


BOTH = pytest.mark.parametrize(
    "save",
    [
        pytest.param(save_5, marks=pytest.mark.shows("MATLAB .mat (v5)", "accepted", "names", "groups")),
        pytest.param(save_73, marks=pytest.mark.shows("MATLAB .mat (v7.3)", "accepted", "names", "groups")),
    ],
)


@BOTH
def test_the_only_matrix_is_read_with_its_names_and_the_columns_that_describe_rows(tmp_path, data, save, refused):
    subjects, state = np.arange(200) // 2, cells([f"s{i % 3}" for i in range(200)])
    path = save(tmp_path / "a.mat", X=data.target, subject=subjects[None, :].astype(float), state=state,
                names=cells(NAMES))  # fmt: skip
    source = standout.read(path, groups="subject", label="state", drop="bb", where={"state": ["s0", "s2"]})
    kept = np.arange(200) % 3 != 1
    np.testing.assert_array_equal(source.rows(0, 200), data.target[kept][:, [0, 2, 3, 4]])
    assert source.names == ("a", "c", "d", "e")
    assert source.groups.tolist() == subjects[kept].tolist()
    assert source.labels.tolist() == state.ravel()[kept].tolist()
    background = save(tmp_path / "b.mat", X=data.background[:, ::-1], names=cells(NAMES[::-1]))
    plain = DPCA(2).fit(data.target, background=data.background)
    np.testing.assert_allclose(DPCA(2).fit(path, background=background).ratios_, plain.ratios_, rtol=1e-10)
    refused(lambda: standout.read(path, key="Y"), "no array 'Y'", "`key`", "X (200, 5)")


@BOTH
def test_one_of_several_matrices_is_chosen_with_key(tmp_path, data, save, refused):
    path = save(tmp_path / "a.mat", X=data.target, Y=data.background, n=np.array([[3.0]]))
    refused(lambda: standout.read(path), "a.mat", "2 two-dimensional numeric arrays", "'X (200, 5)', 'Y (300, 5)'")
    np.testing.assert_array_equal(standout.read(path, key="Y").rows(0, 300), data.background)


@BOTH
@pytest.mark.parametrize("dtype", ["f4", "i2", "u1", "i8", "bool"])
def test_every_numeric_class_is_read(tmp_path, save, dtype):
    rows = np.random.default_rng(0).integers(0, 2, size=(7, 4)).astype(dtype)
    np.testing.assert_array_equal(standout.read(save(tmp_path / "a.mat", X=rows)).rows(0, 7), rows)


@BOTH
def test_a_sparse_matrix_stays_sparse(tmp_path, save):
    rows = sparse.random_array((90, 40), density=0.1, random_state=np.random.default_rng(0), format="csc")
    source = standout.read(save(tmp_path / "a.mat", X=rows))
    assert isinstance(source, SparseInMemory)
    np.testing.assert_array_equal(source.sparse().toarray(), rows.toarray())


@BOTH
def test_a_single_row_or_feature_is_read_if_there_is_no_matrix(tmp_path, save):
    assert standout.read(save(tmp_path / "a.mat", x=np.arange(5.0)[:, None])).n_rows == 5
    path = save(tmp_path / "b.mat", X=np.ones((5, 2)), y=np.arange(5.0)[:, None])
    assert standout.read(path, key="y").n_features == 1


@pytest.mark.shows("MATLAB .mat (v7.3)", "out of core")
def test_version_73_is_read_in_blocks_and_version_5_must_fit_in_memory(tmp_path, data, refused):
    source = standout.read(save_73(tmp_path / "a.mat", X=data.target), memory=0)
    assert isinstance(source, OnDisk)
    np.testing.assert_array_equal(np.concatenate(list(source.blocks(64))), data.target)
    np.testing.assert_array_equal(source.columns(1, 3), data.target[:, 1:3])
    path = save_5(tmp_path / "b.mat", X=data.target)
    refused(lambda: standout.read(path, memory=10), "b.mat", "must fit in memory", "-v7.3")


def test_files_of_another_writer_of_version_73_are_read(tmp_path, data):
    hdf5storage = pytest.importorskip("hdf5storage", reason="hdf5storage is not installed: it writes the file")
    path = tmp_path / "a.mat"
    hdf5storage.savemat(str(path), {"X": data.target, "label": np.arange(200)}, format="7.3", oned_as="column")
    source = standout.read(path, label="label")
    np.testing.assert_array_equal(source.rows(0, 200), data.target)
    assert source.labels.tolist() == list(range(200))


def test_text_in_cells_is_read_as_by_scipy(tmp_path):
    texts = ["", "a", "four", "fives", "Größe µm", "日本", " x ", "y" * 99]
    for compress in (True, False):
        path = save_5(tmp_path / "a.mat", compress, z=np.ones((3, 3, 3)), X=np.ones((8, 2)), label=cells(texts))
        found = ["".join(each.ravel()).rstrip() for each in scipy_io.loadmat(path)["label"].ravel()]
        assert standout.read(path, label="label").labels.tolist() == found


def test_names_in_a_character_matrix_are_read(tmp_path, data):
    path = save_5(tmp_path / "a.mat", X=data.target, names=np.array(["a ", "bb", "c ", "d ", "e "]))
    assert standout.read(path).names == NAMES


@BOTH
def test_structures_complex_numbers_and_text_are_not_read_as_rows(tmp_path, save, refused):
    if save is save_5:
        path = save(tmp_path / "a.mat", s={"X": np.ones((3, 2))})
        refused(lambda: standout.read(path), "a.mat", "no two-dimensional numeric array")
        path = save(tmp_path / "b.mat", X=np.ones((3, 2)) * 1j)
        refused(lambda: standout.read(path), "complex", kind=NotNumbersError)
    path = save(tmp_path / "c.mat", X=cells(["a", "b"]))
    refused(lambda: standout.read(path), "c.mat", kind=InputError)
    path = save(tmp_path / "d.mat", X=np.ones((3, 2)), names=cells(["a", "b", "c", "d"]))
    refused(lambda: standout.read(path), "names", "feature names")


@BOTH
def test_cells_that_are_not_text_are_an_error_only_if_they_are_requested(tmp_path, data, save, refused):
    if save is save_73:
        path = save(tmp_path / "a.mat", X=data.target, trials=cells(["a"] * 200))
        with h5py.File(path, "a") as file:
            file["#refs#/trials7"].attrs["MATLAB_class"] = np.bytes_("double")
    else:
        path = save(tmp_path / "a.mat", X=data.target, trials=cells([np.eye(2)] * 200))
    assert standout.read(path).aside == ()
    refused(lambda: standout.read(path, label="trials").labels, "a.mat", "not text")


def test_damaged_files_are_errors(tmp_path, data, refused):
    path = tmp_path / "a.mat"
    for save in (save_5, save_73):
        save(path, X=np.random.default_rng(0).normal(size=(300, 5)))
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        refused(lambda: standout.read(path), "a.mat", "intact copy")
        path.write_bytes(whole[:100])
        refused(lambda: standout.read(path), "a.mat")
    for text in (b"", b"1,2,3\n" * 99, bytes(200)):
        path.write_bytes(text)
        refused(lambda: standout.read(path), "a.mat")
    with h5py.File(path, "w") as file:
        file.create_dataset("X", shape=(10**9, 10**9), chunks=(64, 64), dtype="f8")
    refused(lambda: standout.read(path), "claims", "intact copy")
    path = save_73(path, X=sparse.csc_array(np.eye(4)))
    with h5py.File(path, "a") as file:
        file["X/ir"][...] = 10**9
    refused(lambda: standout.read(path), "a.mat", "intact copy")
    with h5py.File(path, "a") as file:
        file["X"].attrs["MATLAB_sparse"] = 10**15
    refused(lambda: standout.read(path), "claims", "intact copy")


def damaged(rng, whole):
    """Return bytes with a part overwritten, deleted or inserted."""
    place, length = int(rng.integers(128, len(whole))), int(rng.integers(1, 9))
    part = [rng.bytes(length), b"\xff" * 8, b"", whole[place : place + 8] + rng.bytes(length)][rng.integers(4)]
    return whole[:place] + part + whole[place + (8 if rng.integers(2) else len(part)) :]


@pytest.mark.parametrize("kind", ["numbers and cells", "packed", "sparse", "cube"])
def test_damaged_bytes_give_a_source_or_a_clear_error_within_64_mb(tmp_path, kind):
    rows = np.arange(60.0).reshape(12, 5) + 0.5
    cube = kind == "cube"
    held = {"X": {"sparse": sparse.csc_array(rows), "cube": rows.reshape(4, 3, 5)}.get(kind, rows)}
    if kind in ("numbers and cells", "packed"):
        held |= {"names": cells(NAMES), "label": cells(list("abcdefghijkl")), "y": np.arange(12.0)}
    path = save_5(tmp_path / "a.mat", kind == "packed", **held)
    whole, results = path.read_bytes(), []
    tracemalloc.start()
    try:
        for seed in range(150):
            path.write_bytes(damaged(np.random.default_rng(seed), whole))
            try:
                source = standout.read(path, memory="1MB", cube=cube)
                results.append(sum(len(block) for block in source.blocks(5)) == source.n_rows)
                [source.about(name) for name in source.aside]
            except StandoutError as error:
                results.append(str(error))
        assert tracemalloc.get_traced_memory()[1] < 64e6
    finally:
        tracemalloc.stop()
    refused = [result for result in results if result is not True]
    assert len(refused) > 30 and all("a.mat" in text and "\n" not in text for text in refused)
    path.write_bytes(whole)
    assert standout.read(path, cube=cube).n_rows == 12


def element(kind, body):
    return struct.pack("<II", kind, len(body)) + body + bytes(-len(body) % 8)


def array_element(shape, values, name=b"X"):
    """Return a double array of version 5, whose header may claim any shape."""
    flags = element(6, struct.pack("<II", 6, 0))
    header = flags + element(5, struct.pack(f"<{len(shape)}i", *shape)) + element(1, name)
    return element(14, header + element(9, np.asarray(values, "f8").tobytes()))


HEADER = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"


@pytest.mark.parametrize("shape", [(2**31 - 1, 2**31 - 1), (10**6, 5), (-1, 5), (3, 7)])
@pytest.mark.parametrize("compress", [False, True])
def test_shapes_that_a_file_cannot_hold_are_errors(tmp_path, refused, shape, compress):
    body = array_element(shape, np.ones(10))
    body = struct.pack("<II", 15, len(zlib.compress(body))) + zlib.compress(body) if compress else body
    (tmp_path / "a.mat").write_bytes(HEADER + body)
    refused(lambda: standout.read(tmp_path / "a.mat"), "a.mat")


def test_nested_cells_do_not_crash_the_reader(tmp_path, refused):
    body = array_element((1, 1), [1.0])
    for _ in range(20_000):
        flags = element(6, struct.pack("<II", 1, 0)) + element(5, struct.pack("<ii", 5, 1)) + element(1, b"names")
        body = element(14, flags + body)
    (tmp_path / "a.mat").write_bytes(HEADER + array_element((3, 5), np.ones(15)) + body)
    refused(lambda: standout.read(tmp_path / "a.mat"), "a.mat")


def test_fewer_texts_than_the_shape_of_a_cell_array_claims_are_errors(tmp_path, refused):
    def cell_array(name, claimed, texts):
        start = element(6, struct.pack("<II", 1, 0)) + element(5, struct.pack("<ii", claimed, 1)) + element(1, name)
        text = element(6, struct.pack("<II", 4, 0)) + element(5, struct.pack("<ii", 1, 1)) + element(1, b"")
        return element(14, start + b"".join(element(14, text + element(16, letter)) for letter in texts))

    body = HEADER + array_element((3, 5), np.ones(15))
    path = tmp_path / "a.mat"
    path.write_bytes(body + cell_array(b"names", 5, [b"a", b"b", b"c", b"d", b"e"]))
    assert standout.read(path).names == ("a", "b", "c", "d", "e")
    path.write_bytes(body + cell_array(b"names", 5, [b"a", b"b", b"c"]))
    refused(lambda: standout.read(path), "a.mat", "names has 3 values instead of 5")
    path.write_bytes(body + cell_array(b"kind", 3, [b"a", b"b"]))
    refused(lambda: standout.read(path, label="kind").labels, "a.mat", "kind has 2 values instead of 3")
