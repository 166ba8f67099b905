"""Sparse matrices from the arrays of a file: what scipy would follow out of bounds is refused.

Every case runs in a child process, so that a crash fails the test instead of ending it.
"""

import subprocess
import sys
from io import BytesIO

import numpy as np
import pytest
from scipy import sparse

from model_files import npy, sealed, taken_apart
from standout import DPCA, read, save
from standout.io.memory import SPARSE_PARTS, sparse_from_parts

POINTERS = [0, 2, 4, 6, 8, 5_000_000, -5]


def parts_of(matrix):
    return {name: getattr(matrix, name) for name in SPARSE_PARTS[matrix.format]}


@pytest.mark.parametrize("form", list(SPARSE_PARTS))
@pytest.mark.parametrize("seed", range(5))
def test_valid_parts_give_the_matrix(form, seed):
    rng = np.random.default_rng(seed)
    matrix = sparse.random_array((6, 8), density=0.3 * (seed > 0), random_state=rng).asformat(form)
    found = sparse_from_parts(form, parts_of(matrix), matrix.shape)
    np.testing.assert_array_equal(found.toarray(), matrix.toarray())


@pytest.mark.parametrize(
    ("form", "changed"),
    [
        ("csr", {"indptr": np.array(POINTERS)}),
        ("csr", {"indptr": np.array([0, 2, 4, 6, 8, 10, -1])}),
        ("csr", {"indptr": np.array([0, 2, 4, 6, 8, 10])}),
        ("csr", {"indptr": np.array([1, 2, 4, 6, 8, 10, 12])}),
        ("csr", {"indptr": np.array([0, 4, 2, 6, 8, 10, 12])}),
        ("csr", {"indices": np.full(12, 8)}),
        ("csr", {"indices": np.full(12, -1)}),
        ("csr", {"indices": np.zeros(11, dtype=int)}),
        ("csr", {"indices": np.zeros(12)}),
        ("csr", {"data": np.zeros(12, dtype="U1")}),
        ("csc", {"indptr": np.array([0, 0, 0, 0, 0, 0, 0, 99, -1])}),
        ("coo", {"row": np.full(12, 6)}),
        ("coo", {"col": np.full(12, -9)}),
        ("coo", {"row": np.zeros(3, dtype=int)}),
        ("dia", {"offsets": np.array([10**9])}),
        ("bsr", {"indptr": np.array(POINTERS)}),
    ],
)
def test_indices_outside_the_matrix_are_refused(form, changed):
    base = sparse.csr_array((np.ones(12), np.tile([0, 3], 6), np.arange(0, 13, 2)), shape=(6, 8)).asformat(form)
    with pytest.raises(ValueError, match="sparse matrix"):
        sparse_from_parts(form, {**parts_of(base), **changed}, base.shape)


def in_child(code, *arguments):
    """Run code in another process and return what it printed; a crash fails."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return done.stdout


LOAD = """
import sys, standout
from standout.errors import StandoutError
try:
    model = standout.load(sys.argv[1])
    print("loaded")
except StandoutError as error:
    print("refused:", error)
"""


@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "dok", "lil"])
def test_a_graph_with_pointers_outside_the_data_is_refused(tmp_path, form):
    rng = np.random.default_rng(0)
    graph = sparse.csr_array(np.eye(6, k=1) + np.eye(6, k=-1))
    model = DPCA(graph=graph).fit(rng.normal(size=(90, 6)), background=rng.normal(size=(90, 6)))
    path = save(model, tmp_path / "model.standout")
    head, members = taken_apart(path)
    name = next(name for name in members if "indptr" in name)
    members[name] = npy(np.array(POINTERS, dtype=np.load(BytesIO(members[name])).dtype))
    replaced = _replace(head, "csr_array", f"{form}_array")
    path.write_bytes(sealed(replaced, members))
    assert in_child(LOAD, path).startswith("refused:")


def _replace(value, old, new):
    if isinstance(value, dict):
        return {key: _replace(item, old, new) for key, item in value.items()}
    if isinstance(value, list):
        return [_replace(item, old, new) for item in value]
    return new if value == old else value


READ = """
import sys, standout
from standout.errors import StandoutError
try:
    source = standout.read(sys.argv[1])
    print(sum(len(block) for block in source.blocks(2)))
except StandoutError as error:
    print("refused:", error)
"""


@pytest.mark.parametrize("form", ["csr", "csc", "bsr"])
def test_a_sparse_npz_with_pointers_outside_the_data_is_refused(tmp_path, form):
    matrix = sparse.csr_array((np.ones(12), np.tile([0, 3], 6), np.arange(0, 13, 2)), shape=(6, 6)).asformat(form)
    sparse.save_npz(tmp_path / "good.npz", matrix)
    with np.load(tmp_path / "good.npz") as stored:
        parts = dict(stored)
    parts["indptr"] = np.array(POINTERS, dtype=parts["indptr"].dtype)
    np.savez(tmp_path / "bad.npz", **parts)
    assert in_child(READ, tmp_path / "good.npz").strip() == "6"
    assert in_child(READ, tmp_path / "bad.npz").startswith("refused:")


def test_all_formats_of_npz_are_read(tmp_path):
    matrix = sparse.random_array((6, 8), density=0.4, random_state=np.random.default_rng(0))
    for form in SPARSE_PARTS:
        sparse.save_npz(tmp_path / f"{form}.npz", matrix.asformat(form))
        found = read(tmp_path / f"{form}.npz")
        np.testing.assert_allclose(found.rows(0, 6), matrix.toarray())
