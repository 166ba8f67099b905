"""The loaders read every published form of the data and reject other files with a clear error."""

import gzip
import io
import os
import pickle
import tarfile

import numpy as np
import pytest
from PIL import Image
from sklearn.utils import Bunch

import published
from experiments.data import Images, load_cifar10, load_mnist
from experiments.data.cifar10 import _CIFAR10, CLASSES, gray
from experiments.data.mnist import _MNIST
from standout.datasets.mice import load_mice

IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
BATCHES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch")


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch, tmp_path):
    """Use no directory other than the one given by the test."""
    monkeypatch.delenv("STANDOUT_DATA", raising=False)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "home"))


@pytest.fixture(scope="module")
def mnist():
    return published.mnist()


@pytest.fixture(scope="module")
def idx_files(mnist, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mnist")
    images, labels = mnist
    for name, array in zip(IDX, (images[:60000], labels[:60000], images[60000:], labels[60000:]), strict=True):
        (folder / name).write_bytes(published.idx(array))
    return folder


@pytest.fixture(scope="module")
def cifar10():
    """Airplanes and trucks only: 2000 of them in each batch, all black but for a few pixels."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, size=(12000, 31), dtype=np.uint8)
    parts = [rng.permutation(np.repeat([0, 9], count)) for count in (5000, 1000)]
    return pixels, np.concatenate(parts).astype(np.uint8)


def planes(pixels):
    whole = np.zeros((len(pixels), 3072), np.uint8)
    whole[:, ::100] = pixels
    return whole


def luma(colours):
    """Convert planes to grey as pillow does."""
    rgb = colours.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).reshape(-1, 32, 3)
    return np.asarray(Image.fromarray(rgb).convert("L")).reshape(-1, 32, 32)


@pytest.fixture(scope="module")
def archive(cifar10, tmp_path_factory):
    path = tmp_path_factory.mktemp("cifar10") / "cifar-10-python.tar.gz"
    pixels, labels = cifar10
    with tarfile.open(path, "w:gz", compresslevel=1) as out:
        for number, name in reversed(list(enumerate(BATCHES))):  # the archive is unordered
            part = slice(2000 * number, 2000 * (number + 1))
            content = published.python2_batch(planes(pixels[part]), labels[part].tolist())
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            out.addfile(member, io.BytesIO(content))
    return path


def linked(files, folder, name=str):
    for path in files.iterdir():
        os.symlink(path, folder / name(path.name))
    return folder


@pytest.mark.parametrize("name", [str, lambda name: name.replace("-idx", ".idx")], ids=["-idx", ".idx"])
def test_idx_files_give_their_arrays(mnist, idx_files, tmp_path, name):
    found = load_mnist(linked(idx_files, tmp_path, name))
    np.testing.assert_array_equal(found.images, mnist[0])
    np.testing.assert_array_equal(found.labels, mnist[1])
    assert found.is_test.tolist() == [False] * 60000 + [True] * 10000
    assert found.source.startswith(name(IDX[0]) + " (sha256 ") and str(tmp_path) not in found.source


def test_compressed_idx_files_are_read_and_selected_digits_keep_their_order(mnist, idx_files, tmp_path):
    for path in idx_files.iterdir():
        (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 1))
    found = load_mnist(tmp_path, digits=[9, 3])
    chosen = (mnist[1] == 3) | (mnist[1] == 9)
    np.testing.assert_array_equal(found.images, mnist[0][chosen])
    np.testing.assert_array_equal(found.labels, mnist[1][chosen])
    assert found.is_test.sum() == 1010 + 1009


def test_idx_files_that_are_not_mnist_are_rejected(mnist, idx_files, tmp_path, refused):
    def with_file(name, content):
        (tmp_path / name).unlink()
        (tmp_path / name).write_bytes(content)
        return lambda: load_mnist(tmp_path)

    linked(idx_files, tmp_path)
    images, labels = (idx_files / IDX[2]).read_bytes(), (idx_files / IDX[3]).read_bytes()
    refused(with_file(IDX[2], images[:-1]), IDX[2], "7839999 bytes", "7840000")
    refused(with_file(IDX[2], labels), IDX[2], "00000801", "00000803")
    refused(with_file(IDX[2], b""), IDX[2], "nothing")
    refused(with_file(IDX[2], published.idx(mnist[0][:9000])), IDX[2], "9000 images", "10000 labels")
    refused(with_file(IDX[2], published.idx(np.zeros((10000, 20, 20), np.uint8))), "different sizes, 28×28 and 20×20")
    refused(with_file(IDX[0], published.idx(np.zeros((60000, 20, 20), np.uint8))), "(70000, 20, 20)", "(n, 28, 28)")
    with_file(IDX[0], (idx_files / IDX[0]).read_bytes())
    with_file(IDX[2], images)
    other = np.repeat(
        np.arange(10, dtype=np.uint8), 1000
    )  # the counts of fashion-mnist, whose files have the same names
    refused(with_file(IDX[3], published.idx(other)), "1000 test images of label 0", "5923 and 980")
    (tmp_path / IDX[3]).unlink()
    refused(lambda: load_mnist(tmp_path), IDX[0], "but not", IDX[3])


def test_a_truncated_compressed_idx_file_is_rejected(idx_files, tmp_path, refused):
    linked(idx_files, tmp_path)
    (tmp_path / IDX[3]).unlink()
    (tmp_path / f"{IDX[3]}.gz").write_bytes(gzip.compress((idx_files / IDX[3]).read_bytes())[:-100])
    refused(lambda: load_mnist(tmp_path), f"{IDX[3]}.gz", "cannot be unpacked")


@pytest.mark.parametrize("form", ["archive", "directory", "files"])
def test_python_batches_give_the_grey_photographs_of_any_class(cifar10, archive, tmp_path, form):
    folder = archive.parent
    if form != "archive":
        with tarfile.open(archive) as packed:
            packed.extractall(tmp_path, filter="data")
        folder = tmp_path if form == "directory" else tmp_path / "cifar-10-batches-py"
    found = load_cifar10(folder, photographs="truck")
    chosen = cifar10[1] == 9
    np.testing.assert_array_equal(found.images, luma(planes(cifar10[0][chosen])))
    assert set(found.labels) == {9} and found.is_test.tolist() == [False] * 5000 + [True] * 1000
    assert "test_batch (sha256 " in found.source or found.source.startswith("cifar-10-python.tar.gz (sha256 ")


def test_gray_is_luma_to_the_last_bit():
    colours = np.random.default_rng(1).integers(0, 256, size=(200, 3072), dtype=np.uint8)
    np.testing.assert_array_equal(gray(colours), luma(colours))
    exact = colours.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) @ np.array([0.299, 0.587, 0.114])
    assert np.abs(gray(colours) - exact).max() < 0.51


def test_a_batch_pickled_by_python_3_is_read(cifar10, tmp_path):
    for number, name in enumerate(BATCHES):
        part = slice(2000 * number, 2000 * (number + 1))
        batch = {"data": planes(cifar10[0][part]), "labels": cifar10[1][part].tolist()}
        (tmp_path / name).write_bytes(pickle.dumps(batch, protocol=3 + number % 3))
    found = load_cifar10(tmp_path, photographs="airplane")
    np.testing.assert_array_equal(found.images, luma(planes(cifar10[0][cifar10[1] == 0])))


class Mischief:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_pickle_cannot_run_code(tmp_path, refused):
    for name in BATCHES:
        (tmp_path / name).write_bytes(pickle.dumps({"data": Mischief(str(tmp_path / "done")), "labels": []}))
    refused(lambda: load_cifar10(tmp_path), "data_batch_1", "unexpected reference to", "mkdir")
    assert not (tmp_path / "done").exists()


@pytest.mark.parametrize(
    "pickled",
    [
        b"cos\nmkdir\n(S'{}'\ntR.",
        b"(S'{}'\nios\nmkdir\n.",
        b"(cos\nmkdir\nS'{}'\no.",
        b"\x80\x04\x8c\x02os\x8c\x05mkdir\x93\x8c\x04{}\x85R.",
        b"\x80\x04\x8c\x05numpy\x8c\x16ndarray.__subclasses__\x93)R.",
        b"\x80\x04\x8c\x05numpy\x8c\x0fload.__globals__\x93.",
        b'cbuiltins\neval\n(S\'__import__("os").mkdir("{}")\'\ntR.',
        b"P0\n.",
    ],
    ids=["global", "instance", "object", "stack global", "dotted name", "dotted global", "eval", "persistent id"],
)
def test_no_way_to_name_a_function_in_a_pickle_runs_it(tmp_path, monkeypatch, refused, pickled):
    monkeypatch.chdir(tmp_path)
    for name in BATCHES:
        (tmp_path / name).write_bytes(pickled.replace(b"{}", b"done"))
    refused(lambda: load_cifar10(tmp_path), "data_batch_1 is not a python batch")
    assert not (tmp_path / "done").exists()


def test_batches_that_are_not_cifar10_are_rejected(tmp_path, archive, refused):
    def with_batches(content):
        for name in BATCHES:
            (tmp_path / name).write_bytes(content)
        return lambda: load_cifar10(tmp_path)

    few = published.python2_batch(np.zeros((20, 3072), np.uint8), [6] * 20)
    refused(with_batches(few), "100 training and 20 test images of label 6", "5000 and 1000")
    refused(with_batches(few[:5000]), "data_batch_1", "truncated")
    refused(with_batches(b"<html>"), "data_batch_1 is not a python batch")
    refused(with_batches(pickle.dumps({"data": "none", "labels": [6]})), "data are str", "(n, 3072) of uint8")
    refused(with_batches(published.python2_batch(np.zeros((20, 99), np.uint8), [6] * 20)), "(20, 99) of uint8")
    for labels, found in ((3, "()"), ([[6], [6]], "(2, 1)"), (["a", "b"], "<U1"), ([6.5, 6.0], "float64")):
        wrong = pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": labels})
        refused(with_batches(wrong), "data_batch_1: labels of shape", found, "one whole number for each")
    (tmp_path / "test_batch").unlink()
    refused(lambda: load_cifar10(tmp_path), "but not 'test_batch'")
    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / archive.name).write_bytes(archive.read_bytes()[:-50_000])
    refused(lambda: load_cifar10(cut), archive.name, "cannot be unpacked")


@pytest.mark.parametrize("load", [load_mnist, load_cifar10, load_mice])
def test_a_given_directory_must_exist(load, monkeypatch, tmp_path, refused):
    refused(lambda: load(tmp_path / "typo"), "data_dir", "there is no directory", "typo")
    monkeypatch.setenv("STANDOUT_DATA", str(tmp_path / "other"))
    refused(lambda: load(tmp_path), "STANDOUT_DATA", "there is no directory", "other")
    (tmp_path / "other").write_text("in the way")
    refused(lambda: load(tmp_path), "STANDOUT_DATA", "other is a file, not a directory")
    refused(lambda: load(tmp_path / "other"), "data_dir", "other is a file, not a directory")


def test_unknown_classes_and_digits_are_rejected(refused, tmp_path):
    refused(lambda: load_mnist(tmp_path, digits=[6, 10]), "digits", "(6, 10)")
    refused(lambda: load_mnist(tmp_path, digits=[]), "digits", "()")
    for digits in ([[6]], np.array([[6, 9]]), np.array(6), "6", [6.0], [True], 6.5, 10, [None], {6: 9}.values):
        refused(lambda digits=digits: load_mnist(tmp_path, digits=digits), "digits: ", "whole numbers 0 to 9")
    refused(lambda: load_cifar10(tmp_path, photographs="frogs"), "'frogs'", "Did you mean 'frog'?")


def prepared(folder, counts=(5918, 5949, 958, 1009), **other):
    labels = np.repeat([6, 9, 6, 9], counts)
    arrays = {
        "images": published.numbered(len(labels), 28),
        "labels": labels,
        "is_test": np.arange(len(labels)) > 11866,
    }
    np.savez(folder / "mnist_6_9.npz", **arrays | other)
    return lambda: load_mnist(folder)


def test_a_prepared_file_is_checked(tmp_path, refused):
    assert prepared(tmp_path)().images.shape == (13834, 28, 28)
    refused(prepared(tmp_path, (5918, 5949, 957, 1009)), "mnist_6_9.npz", "957 test images of label 6", "958")
    refused(prepared(tmp_path, images=np.zeros((13834, 784), np.uint8)), "(13834, 784)", "(n, 28, 28)")
    refused(prepared(tmp_path, labels=np.repeat([1, 9, 1, 9], (5918, 5949, 958, 1009))), "of label 1", "0 and 0")
    np.savez(tmp_path / "mnist_6_9.npz", pictures=np.zeros(3))
    refused(lambda: load_mnist(tmp_path), "holds 'pictures', but not 'images'")
    prepared(tmp_path)
    whole = (tmp_path / "mnist_6_9.npz").read_bytes()
    for content in (whole[:5000], b"", b"not a zip", whole[:3000] + b"x" * 500 + whole[3500:]):
        (tmp_path / "mnist_6_9.npz").write_bytes(content)
        refused(lambda: load_mnist(tmp_path), "mnist_6_9.npz", "cannot be read as an npz file")


@pytest.mark.parametrize("name", ["labels", "is_test"])
def test_labels_that_are_not_one_integer_per_image_are_rejected(tmp_path, refused, name):
    for wrong in (np.array(6), np.full((13834, 1), 6), np.full(13834, "six"), np.full(13834, 6.0), np.full(5, 6)):
        found = f"{name} of shape {wrong.shape} and type {wrong.dtype}"
        refused(prepared(tmp_path, **{name: wrong}), "mnist_6_9.npz", found, "one whole number for each")


def test_frogs_without_a_batch_for_each_are_rejected(tmp_path, refused):
    frogs, number = published.numbered(6000, 32), np.repeat(np.arange(1, 7), 1000)

    def with_batch(batch):
        np.savez(tmp_path / "cifar10_frogs_gray_6000.npz", images=frogs, batch=batch)
        return lambda: load_cifar10(tmp_path)

    assert with_batch(number)().is_test.sum() == 1000
    for wrong in (np.array(6), number[:, None], number[1:], number.astype(str), number.astype(float)):
        refused(with_batch(wrong), "gray_6000.npz: batch of shape", f"{wrong.shape} and type {wrong.dtype}", "whole")


def test_a_single_digit_can_be_selected(tmp_path):
    whole = prepared(tmp_path)()
    for nine in (9, np.int64(9), [9], np.array([9]), iter((9,))):
        found = load_mnist(tmp_path, digits=nine)
        np.testing.assert_array_equal(found.images, whole.images[whole.labels == 9])


def test_digits_missing_from_a_prepared_file_are_read_from_idx_files_in_the_same_directory(
    mnist, idx_files, tmp_path, refused
):
    prepared(tmp_path)
    refused(lambda: load_mnist(tmp_path, digits=[3, 6]), "mnist_6_9.npz", "holds the digits 6, 9, but not 3")
    linked(idx_files, tmp_path)
    assert load_mnist(tmp_path, digits=[6]).source.startswith("mnist_6_9.npz")
    np.testing.assert_array_equal(load_mnist(tmp_path, digits=[3]).images, mnist[0][mnist[1] == 3])


def test_the_given_directory_takes_precedence_over_the_environment(tmp_path, monkeypatch):
    for name, value in (("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        prepared(tmp_path / name, images=np.full((13834, 28, 28), value, np.uint8))
    (tmp_path / "none").mkdir()
    monkeypatch.setenv("STANDOUT_DATA", str(tmp_path / "two"))
    assert load_mnist(tmp_path / "one").images.max() == 1
    assert load_mnist(tmp_path / "none").images.max() == load_mnist().images.max() == 2


def test_selecting_labels_keeps_the_order():
    some = Images(np.arange(4, dtype=np.uint8).reshape(4, 1, 1), np.array([6, 9, 1, 6]), np.arange(4) > 2, "a file")
    kept = some.only([6, 1])
    assert kept.images.ravel().tolist() == [0, 2, 3] and kept.is_test.tolist() == [False, False, True]
    assert kept.labels.tolist() == [6, 1, 6] and kept.source == "a file"


def test_the_digits_of_openml_are_the_images_in_the_order_of_the_idx_files(tmp_path, monkeypatch, refused):
    images, labels = published.mnist()
    bunch = Bunch(data=images.reshape(70000, 784), target=labels.astype(str).astype(object))
    _MNIST.keep(bunch, tmp_path)
    found = load_mnist(tmp_path)
    np.testing.assert_array_equal(found.images, images)
    np.testing.assert_array_equal(found.labels, labels)
    assert found.is_test.tolist() == [False] * 60000 + [True] * 10000
    (tmp_path / "mnist_openml.npz").unlink()
    refused(lambda: _MNIST.keep(Bunch(data=bunch.data, target=bunch.target[::-1]), tmp_path), "of label 0")
    refused(lambda: _MNIST.keep(Bunch(data=bunch.data[:, 1:], target=bunch.target), tmp_path), "783 features")
    column = Bunch(data=bunch.data, target=bunch.target[:, None])
    refused(lambda: _MNIST.keep(column, tmp_path), "mnist_784 of OpenML: labels of shape (70000, 1)")
    assert not list(tmp_path.iterdir())


def test_the_photographs_of_openml_are_converted_to_grey_and_cached_for_every_class(tmp_path, refused):
    labels = np.concatenate([np.arange(50000), np.arange(10000)]) % 10
    planes = np.zeros((60000, 3072), np.uint8)
    planes[:, 1023], planes[:, 2047] = labels * 25, 100  # the last pixel: red, green
    _CIFAR10.keep(Bunch(data=planes, target=labels.astype(str).astype(object)), tmp_path)
    for number in (6, 9):
        found = load_cifar10(tmp_path, photographs=CLASSES[number])
        assert found.images.shape == (6000, 32, 32) and found.is_test.sum() == 1000
        assert set(found.images[:, -1, -1]) == {round(0.299 * 25 * number + 58.7)} and not found.images[:, :-1].any()
    (tmp_path / "cifar10_gray_openml.npz").unlink()
    refused(lambda: _CIFAR10.keep(Bunch(data=planes[1:], target=labels[1:]), tmp_path), "label 0", "5000 and")
    refused(lambda: _CIFAR10.keep(Bunch(data=planes[:, 1:], target=labels), tmp_path), "(60000, 3071)")
    assert not list(tmp_path.iterdir())


@pytest.mark.data
class TestRealData:
    def test_the_sixes_and_nines_are_all_there(self, real_data):
        found = load_mnist(real_data("mnist_6_9.npz").parent, digits=[6, 9])
        assert found.images.shape == (13834, 28, 28) and found.images.dtype == np.uint8
        assert (found.labels == 6).sum() == 6876 and (found.labels == 9).sum() == 6958
        assert found.source == "mnist_6_9.npz (sha256 274323c6824f)"

    def test_all_frogs_are_loaded_and_no_other_class(self, real_data, refused):
        folder = real_data("cifar10_frogs_gray_6000.npz").parent
        found = load_cifar10(folder)
        assert found.images.shape == (6000, 32, 32) and found.is_test.sum() == 1000
        assert set(found.labels) == {CLASSES.index("frog")}
        assert found.source == "cifar10_frogs_gray_6000.npz (sha256 7a5edc32acb2)"
        if not any((folder / name).exists() for name in ("cifar-10-batches-py", "cifar-10-python.tar.gz")):
            refused(lambda: load_cifar10(folder, photographs="cat"), "holds frogs, but no cat")
