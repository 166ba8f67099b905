"""Cubes of height × width × bands: pixels are rows in the order of the image, bands are features."""

import h5py
import numpy as np
import pandas as pd
import pytest
import zarr
from scipy import io as scipy_io

import standout
from standout._dpca import DPCA

HEIGHT, WIDTH, BANDS = 31, 17, 5


@pytest.fixture(scope="module")
def cube():
    return np.random.default_rng(0).normal(size=(HEIGHT, WIDTH, BANDS))


def write_h5(path, cube, **how):
    with h5py.File(path, "w") as file:
        file.create_dataset("scene", data=cube, **how)


def write_matlab(path, cube):
    with h5py.File(path, "w", userblock_size=512) as file:
        file.create_dataset("scene", data=cube.T, chunks=(2, 5, 7)).attrs["MATLAB_class"] = np.bytes_("double")
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")


FORMATS = {
    "npy": (".npy", np.save, True),
    "npy, F order": (".npy", lambda path, cube: np.save(path, np.asfortranarray(cube)), False),
    "npz": (".npz", lambda path, cube: np.savez(path, scene=cube), True),
    "npz, packed": (".npz", lambda path, cube: np.savez_compressed(path, scene=cube), True),
    "npz, F order": (".npz", lambda path, cube: np.savez(path, scene=np.asfortranarray(cube)), False),
    "h5": (".h5", write_h5, True),
    "h5, chunks": (".h5", lambda path, cube: write_h5(path, cube, chunks=(4, 5, 2), compression="gzip"), True),
    "zarr": (".zarr", lambda path, cube: zarr.create_array(path, data=cube, chunks=(4, 5, 2)), True),
    "mat 5": (".mat", lambda path, cube: scipy_io.savemat(path, {"scene": cube}), False),
    "mat 7.3": (".mat", write_matlab, True),
}


@pytest.mark.shows("cube (H × W × bands)", "accepted", "out of core")
@pytest.mark.parametrize("kind", FORMATS)
def test_pixels_are_rows_in_the_order_of_the_image(tmp_path, cube, kind, refused):
    suffix, write, in_blocks = FORMATS[kind]
    path = tmp_path / f"scene{suffix}"
    write(path, cube)
    flat = cube.reshape(-1, BANDS)
    for memory in ("256MB", 0):
        if memory == 0 and not in_blocks:
            refused(lambda: standout.read(path, cube=True, memory=0), path.name, "must fit in memory")
            continue
        source = standout.read(path, cube=True, memory=memory)
        assert (source.n_rows, source.n_features) == (HEIGHT * WIDTH, BANDS)
        np.testing.assert_array_equal(np.concatenate(list(source.blocks(64))), flat)
        assert source.row_ids.tolist() == list(range(HEIGHT * WIDTH))
        if hasattr(source, "columns"):
            np.testing.assert_array_equal(source.rows(20, 83), flat[20:83])
            np.testing.assert_array_equal(source.columns(1, 3), flat[:, 1:3])
    refused(lambda: standout.read(path), path.name, "(31, 17, 5)", "cube=True")


@pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
def test_scores_are_put_back_into_the_image(tmp_path, cube):
    scene, rng = cube.copy(), np.random.default_rng(1)
    scene[3:9, 4:8, 2] += 20 * rng.normal(size=(6, 4))  # an area in which one band varies
    scene[0, :5, 1] = np.nan  # pixels without a measurement
    np.save(tmp_path / "scene.npy", scene)
    np.save(tmp_path / "dark.npy", rng.normal(size=(20, 30, BANDS)))
    target = standout.read(tmp_path / "scene.npy", cube=True, missing="drop_rows")
    model = DPCA(1).fit(target, background=standout.read(tmp_path / "dark.npy", cube=True))
    image = np.full(HEIGHT * WIDTH, np.nan)
    image[target.row_ids.astype(int)] = model.transform(target)[:, 0]
    image = image.reshape(HEIGHT, WIDTH)
    assert np.isnan(image).sum() == 5 and np.isnan(image[0, :5]).all()
    row, column = np.unravel_index(np.nanargmax(np.abs(image - np.nanmean(image))), image.shape)
    assert 3 <= row < 9 and 4 <= column < 8


@pytest.mark.shows("cube (H × W × bands)", "names", "groups")
def test_images_in_the_same_file_describe_pixels(tmp_path, cube):
    truth, mask = np.arange(HEIGHT * WIDTH).reshape(HEIGHT, WIDTH) % 4, np.zeros((HEIGHT, WIDTH), bool)
    mask[2:12, 3:9] = True
    names = [f"{450 + 50 * i} nm" for i in range(BANDS)]
    np.savez(tmp_path / "a.npz", scene=cube, truth=truth, mask=mask, names=names)
    scipy_io.savemat(tmp_path / "a.mat", {"scene": cube, "truth": truth, "mask": mask})
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["scene"], file["truth"], file["mask"], file["names"] = cube, truth, mask, names
    for name in ("a.npz", "a.mat", "a.h5"):
        where = {"mask": 1 if name == "a.mat" else True}
        source = standout.read(tmp_path / name, cube=True, label="truth", groups="truth", where=where)
        np.testing.assert_array_equal(source.rows(0, 60), cube[mask])
        assert source.labels.astype(int).tolist() == source.groups.astype(int).tolist() == truth[mask].tolist()
        assert source.row_ids.tolist() == np.flatnonzero(mask).tolist()
        assert source.names == (None if name == "a.mat" else tuple(names))


@pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
def test_the_command_line_reads_cubes(tmp_path, cube, done):
    np.save(tmp_path / "scene.npy", cube)
    np.save(tmp_path / "dark.npy", np.random.default_rng(1).normal(size=(20, 30, BANDS)))
    scores = tmp_path / "scores.csv"
    found = done("fit", tmp_path / "scene.npy", "-b", tmp_path / "dark.npy", "--cube", "--scores", scores, "--json")
    assert found.json["model"]["components"]
    assert pd.read_csv(scores)["pixel"][: HEIGHT * WIDTH].tolist() == list(range(HEIGHT * WIDTH))


def test_cube_is_refused_where_it_does_not_apply(tmp_path, cube, refused):
    np.save(tmp_path / "flat.npy", cube[0])
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,4\n")
    np.savez(tmp_path / "two.npz", a=cube, b=cube)
    refused(lambda: standout.read(tmp_path / "flat.npy", cube=True), "(17, 5)", "Leave `cube` out")
    refused(lambda: standout.read(tmp_path / "a.csv", cube=True), "a.csv", "`cube` is for .npy")
    refused(lambda: standout.read(tmp_path / "two.npz", cube=True), "2 three-dimensional numeric arrays", "`key`")
    refused(lambda: standout.read(cube, cube=True), "`cube` is for files", "array.reshape(-1, array.shape[-1])")
    refused(lambda: standout.read(tmp_path / "flat.npy", cube=True, transpose=True), "`cube` and `transpose`")
    assert standout.read(tmp_path / "two.npz", cube=True, key="b").n_rows == HEIGHT * WIDTH
    np.save(tmp_path / "huge.npy", cube)
    whole = (tmp_path / "huge.npy").read_bytes().replace(b"(31, 17, 5), }" + b" " * 9, b"(31, 1717171717, 5), } ")
    (tmp_path / "huge.npy").write_bytes(whole)
    refused(lambda: standout.read(tmp_path / "huge.npy", cube=True), "truncated", "claims")
