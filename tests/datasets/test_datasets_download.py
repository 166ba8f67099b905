"""Without files the data are downloaded from OpenML, checked and cached; offline, the error names the files to give."""

import contextlib
import csv
import importlib.util
import socket
import urllib.request

import numpy as np
import pytest
from sklearn.utils import Bunch

import published
from experiments.data import load_cifar10, load_mnist
from standout.datasets import fetch
from standout.datasets.mice import load_mice
from standout.errors import DataMissingError, OutputError, StandoutError
from standout.io.source import watching

NAMES = {load_mnist: "mnist_784, version 1", load_cifar10: "CIFAR_10, version 1", load_mice: "miceprotein, version 4"}


@pytest.fixture
def home(monkeypatch, tmp_path):
    """An empty data directory of scikit-learn, and no other directory to search."""
    monkeypatch.delenv("STANDOUT_DATA", raising=False)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def through_proxy(monkeypatch):
    """Return a function that redirects every connection to a local port."""

    def use(port):
        for name in ("no_proxy", "NO_PROXY", "HTTPS_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        monkeypatch.setattr(urllib.request, "_opener", None)  # the current opener uses the old proxy

    return use


@pytest.fixture
def offline(through_proxy):
    with socket.socket() as taken:  # bound, but not listening
        taken.bind(("127.0.0.1", 0))
        through_proxy(taken.getsockname()[1])
        yield


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("load", "files"),
    [
        (load_mnist, ("train-images-idx3-ubyte", "t10k-labels-idx1-ubyte", "mnist_6_9.npz")),
        (load_cifar10, ("cifar-10-python.tar.gz", "cifar-10-batches-py", "cifar10_frogs_gray_6000.npz")),
        (load_mice, ("Data_Cortex_Nuclear.csv",)),
    ],
)
def test_offline_the_error_names_the_files_and_directories(home, tmp_path, refused, load, files):
    message = ("not found in", str(tmp_path), str(home), "OpenML", NAMES[load], "refused", "Give a directory", *files)
    refused(lambda: load(tmp_path), *message, "as data_dir", "STANDOUT_DATA", kind=DataMissingError)
    with pytest.raises(FileNotFoundError):
        load()


def test_a_server_that_does_not_answer_times_out(home, monkeypatch, through_proxy, refused):
    monkeypatch.setattr(fetch, "_TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        through_proxy(server.getsockname()[1])
        refused(load_mice, "miceprotein, version 4", "timed out", kind=DataMissingError)
    assert socket.getdefaulttimeout() is None


@pytest.mark.usefixtures("home", "offline")
def test_a_download_reports_progress(monkeypatch):
    monkeypatch.setattr(fetch, "_INTERVAL", 0.05)
    watched, given = [], []
    with watching(watched.append), contextlib.suppress(DataMissingError):
        load_mice()
    with contextlib.suppress(DataMissingError):
        load_mice(progress=given.append)
    for progress in (watched, given):  # scikit-learn retries after half a second
        assert len(progress) > 3 and {one.what for one in progress} == {"miceprotein from OpenML"}


@pytest.mark.usefixtures("offline")
def test_a_data_directory_that_cannot_be_created_is_named(monkeypatch, tmp_path, refused):
    monkeypatch.delenv("STANDOUT_DATA", raising=False)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "file" / "home"))
    refused(load_mice, "cache", "SCIKIT_LEARN_DATA", kind=StandoutError)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("load", [load_mnist, load_cifar10, load_mice])
def test_a_cache_that_is_a_file_is_named(home, refused, load):
    home.mkdir()
    (home / "standout").write_text("in the way")
    refused(load, "cache", str(home / "standout"), "SCIKIT_LEARN_DATA", kind=OutputError)


@pytest.mark.parametrize("load", [load_mnist, load_cifar10, load_mice])
@pytest.mark.parametrize(
    "answer",
    [
        {"data": np.zeros((2, 784))},
        {"data": np.zeros((2, 784)), "target": None},
        {"data": np.zeros((2, 784)), "target": np.array(["six", "nine"]), "feature_names": []},
    ],
)
def test_a_malformed_response_of_openml_is_refused(home, monkeypatch, refused, load, answer):
    monkeypatch.setattr(fetch, "_fetch", lambda _: Bunch(**answer))
    message = (f"OpenML ({NAMES[load]})", "malformed", "Give a directory")
    refused(load, *message, kind=DataMissingError)
    assert not list((home / "standout").iterdir())


def mice_on_openml(path, home, leave_out=()):
    """Publish the csv as OpenML does: quoted names, question marks, and columns that are not features."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        header, *rows = csv.reader(file)
    rows = [row for i, row in enumerate(rows) if i not in leave_out]
    flags = dict.fromkeys(("Genotype", "Treatment", "Behavior"), "is_ignore")
    flags |= {"MouseID": "is_row_identifier", "class": "is_target"}
    values = {name: ",".join(sorted({f"'{row[header.index(name)]}'" for row in rows})) for name in flags}
    attributes = [
        {"name": name, "kind": f"{{{values[name]}}}" if name in flags else "numeric", "flag": flags.get(name)}
        for name in header
    ]
    written = [
        [f"'{cell}'" if name in flags else cell or "?" for name, cell in zip(header, row, strict=True)] for row in rows
    ]
    published.on_openml(home, "miceprotein", 4, attributes, written)


@pytest.mark.data
@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("with_pandas", [True, False])
def test_the_mice_of_openml_equal_those_of_the_csv_and_are_cached(real_data, home, monkeypatch, tmp_path, with_pandas):
    if not with_pandas:
        monkeypatch.setattr(
            fetch, "find_spec", lambda name: None if name == "pandas" else importlib.util.find_spec(name)
        )
    path = real_data("Data_Cortex_Nuclear.csv")
    mice_on_openml(path, home)
    found, known = load_mice(), load_mice(path.parent)
    for name in ("proteins", "names", "mouse", "label", "row_ids"):
        np.testing.assert_array_equal(getattr(found, name), getattr(known, name))
    assert found.source.startswith("miceprotein_openml.csv (sha256 ")
    (home / "openml").rename(tmp_path / "gone")
    np.testing.assert_array_equal(load_mice().proteins, known.proteins)


@pytest.mark.data
@pytest.mark.usefixtures("offline")
def test_a_wrong_download_is_refused_and_not_cached(real_data, home, refused):
    mice_on_openml(real_data("Data_Cortex_Nuclear.csv"), home, leave_out=[3])
    refused(load_mice, "miceprotein of OpenML", "rows: 1079, not 1080")
    assert not list((home / "standout").iterdir())
    for name in ("1.gz", "1/it.arff.gz"):
        arff = home / "openml" / "openml.org" / "data" / "v1" / "download" / name
        arff.write_bytes(arff.read_bytes()[:-1000])
    refused(load_mice, "could not be downloaded from OpenML", kind=DataMissingError)
