"""The few calls of LAPACK that the library makes up itself."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg
from scipy.linalg import lapack
from threadpoolctl import threadpool_info, threadpool_limits

from helpers import quiet
from standout._blas import SMALL_WORK, n_above, rank_tolerance, threads_for
from standout._dpca import DPCA
from standout._moments import Moments


def symmetric(values, seed):
    """Return a symmetric matrix with these eigenvalues."""
    turn = linalg.qr(np.random.default_rng(seed).normal(size=(len(values),) * 2))[0]
    return (turn * values) @ turn.T


@given(
    values=st.lists(st.integers(-50, 50), min_size=1, max_size=30),
    threshold=st.integers(-50, 50),
    seed=st.integers(0, 99),
)
def test_eigenvalues_above_a_threshold_are_counted(values, threshold, seed):
    matrix = symmetric(np.array(values, dtype=float), seed)
    before = matrix.copy()
    assert n_above(matrix, threshold + 0.5) == sum(value > threshold + 0.5 for value in values)
    np.testing.assert_array_equal(matrix, before)


def test_two_by_two_pivots_are_counted():
    matrix = np.kron(np.eye(4), [[0.0, 3.0], [3.0, 0.0]])  # no pivot of one row is possible
    assert n_above(matrix, 0.0) == 4
    assert n_above(matrix, 3.5) == 0
    assert n_above(matrix, -3.5) == 8


@pytest.mark.parametrize(("n_rows", "rank"), [(50, 20), (700, 699), (900, 450)])
@pytest.mark.parametrize("decades", [0, 6])
def test_the_rank_of_a_gram_matrix_is_the_number_of_its_eigenvalues_above_rounding(n_rows, rank, decades):
    rng = np.random.default_rng(rank)
    rows = rng.normal(size=(n_rows, rank)) @ (
        np.logspace(0, -decades / 2, rank)[:, None] * rng.normal(size=(rank, 2000))
    )
    gram = rows @ rows.T
    threshold = rank_tolerance(n_rows) * linalg.eigvalsh(gram, subset_by_index=[n_rows - 1, n_rows - 1])[0]
    assert n_above(gram, threshold) == (linalg.eigvalsh(gram) > threshold).sum() == rank


def threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_only_small_work_is_limited_to_one_thread():
    with threadpool_limits(2):
        with threads_for(SMALL_WORK / 2):
            assert set(threads()) == {1}
            with threads_for(1.0):
                assert set(threads()) == {1}
            assert set(threads()) == {1}
        assert set(threads()) == {2}
        with threads_for(SMALL_WORK * 2):
            assert set(threads()) == {2}


@quiet
@pytest.mark.parametrize(("n_features", "expected"), [(900, {1}), (1100, {2})])
def test_factorisations_and_eigenproblems_of_up_to_1000_features_run_on_one_thread(n_features, expected, monkeypatch):
    rng, called = np.random.default_rng(0), {}
    target, background = (Moments.of(rng.normal(size=(rows, n_features))) for rows in (1500, 2500))

    def recorded(routine):
        def call(*args, **options):
            called.setdefault(routine.__name__, set()).update(threads())
            return routine(*args, **options)

        return call

    for name in ("dpotrf", "dpocon", "dgeqp3", "dsygst", "dsyevr"):
        monkeypatch.setattr(lapack, name, recorded(getattr(lapack, name)))
    with threadpool_limits(2):
        DPCA(2).fit(target, background=background)
        DPCA(n_features // 2, shrinkage=None).fit(target, background=background)
        assert set(threads()) == {2}
    assert len(called) == 5 and set().union(*called.values()) == expected


@quiet
def test_moments_of_up_to_1000_features_give_the_same_bits_on_any_number_of_threads():
    rng = np.random.default_rng(0)
    target, background = (Moments.of(rng.normal(size=(rows, 700))) for rows in (900, 1500))
    found = []
    for count in (1, 2):
        with threadpool_limits(count):
            found.append([DPCA(k).fit(target, background=background).components_ for k in (2, 60)])
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


def test_an_exception_restores_the_thread_limit():
    with threadpool_limits(2):
        with pytest.raises(ZeroDivisionError), threads_for(1.0):
            raise ZeroDivisionError
        assert set(threads()) == {2}


@quiet
def test_concurrent_fits_agree_and_restore_the_thread_limit():
    rng = np.random.default_rng(0)
    pairs = [(rng.normal(size=(60, 8)), rng.normal(size=(90, 8))) for _ in range(8)]
    expected = [DPCA().fit(x, background=y).ratios_ for x, y in pairs]
    found = [None] * len(pairs)

    def work(i):
        for _ in range(30):
            found[i] = DPCA().fit(pairs[i][0], background=pairs[i][1]).ratios_

    with threadpool_limits(2):
        workers = [threading.Thread(target=work, args=(i,)) for i in range(len(pairs))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert set(threads()) == {2}
    np.testing.assert_array_equal(found, expected)


FITS_IN_THREADS = """
import numpy as np
from concurrent.futures import ThreadPoolExecutor
from threadpoolctl import threadpool_info
from standout import Moments
from standout._blas import threads_for

def threads():
    return sorted({library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"})

rows = np.random.default_rng(0).normal(size=(20_000, 60))

def limited(_):
    with threads_for(0.0):
        return threads()

assert threads() == [2], threads()
with threads_for(0.0):  # the main thread comes first, and others must be heard after it
    assert threads() == [1]
assert threads() == [2]
with ThreadPoolExecutor(4) as pool:
    assert list(pool.map(limited, range(40))) == [[1]] * 40
    for _ in range(20):
        list(pool.map(lambda _: Moments.of(rows), range(7)))
    assert threads() == [2], "the limit stays while the pool is there"
assert threads() == [2], "the limit stays"
"""
ROUTES = """
import hashlib
import warnings

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from standout import CPCA, DPCA, KernelDPCA, held_out_ratio, permutation_test, stability

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)


def show(name, *arrays):
    print(name, hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest())


def fitted(name, estimator, target, background):
    model = estimator.fit(target, background=background)
    show(name, model.ratios_, model.components_, model.mean_, model.transform(target[:50]))


narrow = rng.normal(size=(1000, 150)) * np.linspace(2, 1, 150), rng.normal(size=(2000, 150))
small = rng.normal(size=(300, 40)) * np.linspace(2, 1, 40), rng.normal(size=(500, 40))
wide = rng.normal(size=(60, 5000)) + rng.normal(size=(60, 1)), rng.normal(size=(70, 5000))
thin = [sparse.random_array((n, 400), density=0.05, random_state=n, format="csr") for n in (500, 5000)]
for name, estimator in {
    "dense": DPCA(3), "all": DPCA(None), "shrunk": DPCA(3, shrinkage="oas"), "cpca": CPCA(2, alpha=1.0),
}.items():
    fitted(name, estimator, *narrow)
for solver in ("lanczos", "gsvd", "matrix_free"):
    fitted(solver, DPCA(3, solver=solver), *small)
fitted("span", DPCA(3), *wide)
fitted("wide cpca", CPCA(2, alpha=1.0), *wide)
fitted("sparse", DPCA(3, solver="matrix_free"), *thin)
fitted("sparse shrunk", DPCA(3, solver="matrix_free", shrinkage="oas"), *thin)
model = KernelDPCA(2).fit(small[0][:60], background=small[1][:70])
show("kernel", model.ratios_, model.transform(small[0]))
show("permutation", permutation_test(*small, n_permutations=19, random_state=0).null)
show("wide permutation", permutation_test(*wide, n_permutations=9, random_state=0).null)
found = held_out_ratio(*small, n_components=2, random_state=0)
show("held out", found.ratios, found.low)
found = stability(*small, n_bootstrap=5, random_state=0)
show("stability", found.low)
with threadpool_limits(1):
    fitted("large, limited", DPCA(3), *(rng.normal(size=(n, 300)) for n in (900, 3100)))
"""


def test_documented_reproducible_fits_are_bitwise_equal_on_one_and_two_threads():
    printed = []
    for threads in "12":
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        done = subprocess.run([sys.executable, "-c", ROUTES], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout.splitlines())
    assert printed[0] == printed[1] and len(printed[0]) == 17


def test_the_last_concurrent_fit_restores_the_thread_limit():
    # A separate process, because a test may already have set a limit in this one.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", FITS_IN_THREADS], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
