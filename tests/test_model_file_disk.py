"""Model files: files that are not models, models that cannot be saved, and paths that cannot be written."""

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp

import joblib
import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError

from helpers import OptionalPackage
from model_files import X, Y, fitted
from standout._dpca import DPCA
from standout._kernel_dpca import KernelDPCA
from standout._model_file import header, load, save
from standout.errors import ModelFileError, OutputError

pd = OptionalPackage("pandas")


@pytest.fixture
def model_file(tmp_path):
    return save(fitted("plain"), tmp_path / "model.standout")


def test_an_error_names_the_type_of_a_file_that_is_not_a_model(tmp_path, refused):
    model = fitted("plain")
    kinds = {
        "": "it is empty",
        "a,b\n1,2\n": "a text file",
        "x,y\n1,2\n": "a text file",
        "größe;gewicht\n": "a text file",
        b"\x00\x01\x02": "not a model",
        b"\x89HDF\r\n\x1a\n": "HDF5",
        b"PAR1\x15": "parquet",
    }
    for number, (content, words) in enumerate(kinds.items()):
        path = tmp_path / str(number)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        refused(lambda path=path: load(path), str(path), words, kind=ModelFileError)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        (tmp_path / "pickle").write_bytes(pickle.dumps(model, protocol))
        refused(lambda: load(tmp_path / "pickle"), "is a pickle file", "never loaded", kind=ModelFileError)
    joblib.dump(model, tmp_path / "joblib")
    refused(lambda: load(tmp_path / "joblib"), "is a joblib file", "never loaded", kind=ModelFileError)
    for method in ("zlib", "gzip", "bz2", "xz"):
        joblib.dump(model, tmp_path / "packed", compress=(method, 3))
        refused(lambda: load(tmp_path / "packed"), "compressed with", "never loaded", kind=ModelFileError)
    np.savez(tmp_path / "other.npz", components=model.components_)
    np.save(tmp_path / "other.npy", model.components_)
    refused(
        lambda: load(tmp_path / "other.npz"), "zip archive that is not a model", "standout.save", kind=ModelFileError
    )
    refused(lambda: header(tmp_path / "other.npz"), "zip archive", kind=ModelFileError)
    refused(lambda: load(tmp_path / "other.npy"), "an array", kind=ModelFileError)


def test_loading_a_pickle_executes_nothing(tmp_path):
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "sprung",))

    (tmp_path / "trap").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ModelFileError, match="pickle"):
        load(tmp_path / "trap")
    assert not (tmp_path / "sprung").exists()


def test_a_missing_or_unreadable_file_is_an_error(model_file, refused, monkeypatch):
    folder = model_file.parent
    refused(
        lambda: load(folder / "modle.standout"), "no such file", "Did you mean", "model.standout", kind=ModelFileError
    )
    refused(lambda: load(folder / "runs" / "x"), "no such file", "Neither", "runs", kind=ModelFileError)
    refused(lambda: load(folder), "a directory", kind=ModelFileError)
    refused(lambda: load("/dev/null"), "not a file", kind=ModelFileError)
    refused(lambda: load(model_file / "x"), "Not a directory", kind=ModelFileError)
    refused(lambda: load(folder / ("x" * 999)), "too long", kind=ModelFileError)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    assert type(load("model.standout")) is type(load("~/model.standout")) is DPCA


@pytest.fixture
def closed():
    """Give a directory with a model, neither of which the user may touch (permissions do not bind root)."""
    folder, user = Path(mkdtemp()), os.geteuid()
    save(fitted("plain"), folder / "model").chmod(0)
    folder.chmod(0o555)
    if user == 0:
        os.seteuid(65534)
    yield folder
    os.seteuid(user)
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_missing_permissions_are_an_error(closed, refused):
    refused(lambda: load(closed / "model"), str(closed), "no permission to read", kind=ModelFileError)
    refused(lambda: save(fitted("plain"), closed / "other"), str(closed), "no permission to write", kind=OutputError)


def test_an_invalid_output_path_is_an_error(tmp_path, refused):
    model = fitted("plain")
    refused(lambda: save(model, tmp_path), "a directory", kind=OutputError)
    refused(lambda: save(model, tmp_path / "no" / "model"), "there is no directory", kind=OutputError)


ON_A_SMALL_DISK = """
import subprocess, sys, numpy as np
from pathlib import Path
from tempfile import mkdtemp
from standout import CPCA
from standout.errors import OutputError
from standout import load, save
place = Path(sys.argv[1])
rows = np.random.default_rng(0).normal(size=(99, 9))
small, large = CPCA(1).fit(rows), CPCA(9).fit(rows * range(1, 10), background=rows)
save(small, place / "model")
for _ in ("full", "read-only"):
    try:
        save(large, place / "model")
    except OutputError as error:
        print(error)
    assert [path.name for path in place.iterdir()] == ["model"] and load(place / "model").n_components == 1
    subprocess.run(["mount", "-o", "remount,ro", place], check=True)
"""


def test_a_full_or_read_only_disk_leaves_the_old_file_intact(tmp_path):
    mounted = 'mount -t tmpfs -o size=16k tmpfs "$1" || exit 77; exec "$0" -W ignore -c "$2" "$1"'
    command = ["unshare", "-Urm", "sh", "-c", mounted, sys.executable, str(tmp_path), ON_A_SMALL_DISK]
    if shutil.which("unshare") is None or subprocess.run([*command[:2], "true"], capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here")
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if found.returncode == 77:
        pytest.skip("a small disk cannot be mounted here")
    assert found.returncode == 0, found.stderr
    full, read_only = found.stdout.splitlines()
    assert "the disk is full. Make room" in full and "write" in read_only


def test_an_interrupt_while_writing_leaves_the_old_file_intact(model_file, monkeypatch):
    before = model_file.read_bytes()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(fitted("cPCA"), model_file)
    assert model_file.read_bytes() == before and list(model_file.parent.iterdir()) == [model_file]


def test_a_model_that_cannot_be_saved_is_an_error_with_a_remedy(tmp_path, refused):
    def kept(estimator, **named):
        return lambda: save(estimator, tmp_path / "m", **named)

    class Mine(DPCA):
        pass

    by_function = KernelDPCA(kernel=lambda a, b: a @ b.T).fit(X, background=Y)
    refused(kept(by_function), "kernel", "cannot hold a function", "Use one of")
    drawn = DPCA(random_state=np.random.default_rng(0)).fit(X, background=Y)
    refused(kept(drawn), "random_state", "Generator", "set_params(random_state=0)")
    series = DPCA(mix=pd.Series([0.5, 0.5])).fit(X, background=[Y, Y])
    refused(kept(series), "mix", "Series", "set_params")
    refused(kept(DPCA(mix=np.array([1, 1], dtype="g")).fit(X, background=[Y, Y])), "mix", "an array of type")
    refused(kept(fitted("plain").set_params(n_components=0)), "n_components=0")
    refused(kept(fitted("plain").set_params(graph=sparse.eye_array(3))), "graph")
    refused(kept(PCA().fit(X)), "PCA", "DPCA")
    refused(kept(Mine().fit(X, background=Y)), "Mine")
    refused(kept(fitted("plain"), about={"when": pd.Timestamp(0)}), "about")
    refused(kept(fitted("plain"), about=[1]), "about")
    refused(kept(fitted("plain"), about={"x": np.nan}), "about")
    broken = fitted("plain")
    broken.components_[0, 0] = np.nan
    refused(kept(broken), "not finite")
    for estimator in (DPCA(), DPCA().partial_fit(background=Y)):
        with pytest.raises(NotFittedError, match=r"Call fit"):
            save(estimator, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []
    assert save(drawn.set_params(random_state=0), tmp_path / "m").exists()


def test_a_loaded_model_needs_no_optional_package(model_file):
    code = (
        "import sys\n"
        "for name in ('pandas', 'polars', 'matplotlib', 'pyarrow', 'h5py', 'zarr', 'anndata', 'click', 'plotly'):\n"
        "    sys.modules[name] = None\n"
        "from standout._model_file import header, load\n"
        "print(load(sys.argv[1]).summary(), header(sys.argv[1])['estimator'])"
    )
    found = subprocess.run([sys.executable, "-c", code, model_file], capture_output=True, text=True, timeout=60)
    assert found.stdout.strip() == f"{fitted('plain').summary()} DPCA", found.stderr
