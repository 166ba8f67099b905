"""Shared fixtures: a small pair of datasets, checks of error messages, the real data, and the command line."""

import json
import os
import re
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import settings
from scipy import sparse

import standout
from standout._moments import Moments
from standout.errors import InputError, StandoutError
from standout.io.source import Source

# Machines are shared and noisy: a test that takes long has not failed.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

NAMES = ("a", "b", "c", "d", "e")

# A message ends with what to do: an instruction at the start of its last sentence or after , : ; or a bracket.
_INSTRUCTIONS = (
    "add|ask|bring|call|check|choose|collect|convert|divide|drop|evaluate|fit|give|install|judge|leave|load|make|multiply|"
    "name|pass|rename|request|reshape|start|use"
)
_REMEDY = re.compile(rf"(^|[,:;(] )({_INSTRUCTIONS})\b", re.IGNORECASE)


class Data(NamedTuple):
    """A target whose third feature varies more than in the background; both are whole numbers from 0 to 60."""

    target: np.ndarray
    background: np.ndarray


def whole_numbers(m=200, n=300, seed=0):
    rng = np.random.default_rng(seed)
    mix = np.eye(5) + 0.3 * rng.normal(size=(5, 5))
    target = rng.normal(size=(m, 5)) * [1, 1, 3, 1, 1] @ mix
    background = rng.normal(size=(n, 5)) @ mix
    return Data(np.clip(np.round(2 * target) + 30, 0, 60), np.clip(np.round(2 * background) + 25, 0, 60))


class OneShot(Source):
    """A source that yields blocks of a fixed size, once."""

    def __init__(self, rows, names=None, step=7):
        self._array, self.names, self.step = np.asarray(rows), names, step
        self.n_features = self._array.shape[1]
        self.read = 0

    def blocks(self, rows):
        self.read += 1
        assert self.read == 1, "a source that can be read only once was read twice"
        step = min(self.step, rows)
        for start in range(0, len(self._array), step):
            yield self._array[start : start + step]


class OnCluster(Source):
    """A source that returns its moments and refuses to yield rows."""

    is_local = False

    def __init__(self, rows, names=None):
        self._rows, self.names, self.n_features = rows, names, rows.shape[1]

    def blocks(self, _rows):
        raise AssertionError("rows were fetched from a source that computes its moments")

    def moments(self, weights=None, groups=None, *, names=None, role="data"):
        return Moments.of(self._rows, weights=weights, groups=groups, names=names or self.names, role=role)


def memory_map(rows, folder):
    path = folder / f"{uuid4()}.npy"
    np.save(path, rows)
    return np.load(path, mmap_mode="r")


def read_only(rows):
    rows = rows.copy()
    rows.flags.writeable = False
    return rows


def sliced(rows):
    roomy = np.full((2 * len(rows), 3 * rows.shape[1]), -99.0)
    roomy[::2, ::3] = rows
    return roomy[::2, ::3]


def pandas(rows, names=NAMES, **options):
    import pandas as pd

    return pd.DataFrame(rows, columns=names, **options)


def polars(rows):
    import polars as pl

    return pl.DataFrame(rows, schema=NAMES)


def unlike_columns(rows):
    import pandas as pd

    kinds = ("int64", "float32", "Int64", "Float64", "uint8")
    return pd.DataFrame({name: pd.array(rows[:, i], dtype=kinds[i]) for i, name in enumerate(NAMES)})


def unlike_polars_columns(rows):
    import polars as pl

    return polars(rows).cast({"a": pl.Int8, "d": pl.Float32})


DTYPES = ["f2", "f4", "f8", "g", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">f8", ">f4", ">i2", "<i8"]
KINDS = {
    **{dtype: (lambda rows, _, dtype=dtype: rows.astype(dtype)) for dtype in DTYPES},
    "objects": lambda rows, _: rows.astype(object),
    "F order": lambda rows, _: np.asfortranarray(rows),
    "negative strides": lambda rows, _: rows[::-1, ::-1].copy()[::-1, ::-1],
    "sliced": lambda rows, _: sliced(rows),
    "read-only": lambda rows, _: read_only(rows),
    "list": lambda rows, _: rows.tolist(),
    "tuple of arrays": lambda rows, _: tuple(rows),
    "memory map": memory_map,
    "memory map of bytes": lambda rows, folder: memory_map(rows.astype("u1"), folder),
    "pandas": lambda rows, _: pandas(rows),
    "pandas, numbered columns": lambda rows, _: pandas(rows, names=None),
    "pandas, odd index": lambda rows, _: pandas(rows, index=["x"] * len(rows)),
    "pandas, unlike columns": lambda rows, _: unlike_columns(rows),
    "polars": lambda rows, _: polars(rows),
    "polars, unlike columns": lambda rows, _: unlike_polars_columns(rows),
    "csr_matrix": lambda rows, _: sparse.csr_matrix(rows),
    "csc_matrix": lambda rows, _: sparse.csc_matrix(rows),
    "csr_array": lambda rows, _: sparse.csr_array(rows),
    "csc_array": lambda rows, _: sparse.csc_array(rows),
    "coo_array": lambda rows, _: sparse.coo_array(rows),
    "csr of bytes": lambda rows, _: sparse.csr_array(rows.astype("u1")),
    "read": lambda rows, _: standout.read(rows),
    "one-shot source": lambda rows, _: OneShot(rows),
    "one row at a time": lambda rows, _: OneShot(rows, step=1),
}


@pytest.fixture
def data():
    return whole_numbers()


@pytest.fixture
def wide():
    """Fewer rows than features."""
    rng = np.random.default_rng(1)
    return Data(rng.normal(size=(12, 40)) * np.where(np.arange(40) == 7, 5.0, 1.0), rng.normal(size=(15, 40)))


@pytest.fixture
def remedy():
    """Return a check that a message (or the error or warning that holds it) ends with what to do."""

    def check(found):
        text = str(getattr(found, "value", found)).strip()
        last = re.split(r"(?<=[.?!])\s+(?=[A-Z])", text)[-1]
        assert _REMEDY.search(last), f"does not end with what to do: {text!r}"

    return check


@pytest.fixture
def refused(remedy):
    """Return a check that a call raises an error with these words, in this order, and a remedy at the end."""

    def check(call, *words, kind=InputError):
        with pytest.raises(kind, match="(?s)" + ".*".join(map(re.escape, words))) as error:
            call()
        assert isinstance(error.value, StandoutError)
        remedy(error)

    return check


@pytest.fixture(scope="session")
def real_data():
    """Return a function that finds a file in STANDOUT_DATA or skips the test."""
    folder = os.environ.get("STANDOUT_DATA")

    def find(name):
        if folder and (Path(folder) / name).is_file():
            return Path(folder) / name
        return pytest.skip(f"{name} was not found: set STANDOUT_DATA to the directory that holds it")

    return find


class Result:
    """The result of a command: its exit code, stdout and stderr."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def entry_point():
    """Return the entry point that the fixtures below run: arguments to exit code."""
    pytest.importorskip("click")
    from standout.cli import main

    return main


@pytest.fixture
def cli(capsys, entry_point):
    """Run a command in this process."""

    def run(*arguments):
        code = entry_point([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        return Result(code, shown.out, shown.err)

    return run


@pytest.fixture
def done(cli):
    """Run a command that must succeed."""

    def run(*arguments):
        result = cli(*arguments)
        assert result.code == 0, result.err
        return result

    return run


@pytest.fixture
def holding(tmp_path):
    """Return a function that writes a file."""

    def write(content, name="rows.csv"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture
def files(data, tmp_path):
    """A target with ids and labels, and a background, as csv."""
    target = pandas(data.target)
    target.insert(0, "id", [f"r{i}" for i in range(len(target))])
    target["kind"] = np.where(np.arange(len(target)) % 3 == 0, "one", "two")
    target.to_csv(tmp_path / "target.csv", index=False)
    pandas(data.background).to_csv(tmp_path / "background.csv", index=False)
    return tmp_path


@pytest.fixture
def one_file(data, tmp_path):
    """Target and two backgrounds in one file, distinguished by a column."""
    import pandas as pd

    parts = {"ill": data.target, "sham": data.background[:140], "rest": data.background[140:]}
    frames = [pandas(rows).assign(state=name) for name, rows in parts.items()]
    whole = pd.concat(frames).sample(frac=1, random_state=0)
    whole.to_csv(tmp_path / "all.csv", index=False)
    return tmp_path / "all.csv"


@pytest.fixture
def stopped(cli, remedy, tmp_path):
    """Check that a command ends with one line on stderr and exit code 2, and leaves every file unchanged."""

    def check(*arguments, match):
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        result = cli(*arguments)
        assert result.code == 2, (result.code, result.err)
        assert result.out == ""
        line = result.err.strip()
        assert line.startswith("standout: ") and "\n" not in line, line
        assert re.search(match, line), line
        if "--help'" not in line:
            remedy(line)
        after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        assert after == before
        return line

    return check
