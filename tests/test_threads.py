"""Small fits run BLAS on one thread, and leave the number of threads as they found it."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from standout import DPCA
from standout.blas import SMALL_WORK, threads_for


def threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_only_small_work_is_kept_on_one_thread():
    with threadpool_limits(2):
        with threads_for(SMALL_WORK / 2):
            assert set(threads()) == {1}
            with threads_for(1.0):
                assert set(threads()) == {1}
            assert set(threads()) == {1}
        assert set(threads()) == {2}
        with threads_for(SMALL_WORK * 2):
            assert set(threads()) == {2}


def test_a_failure_inside_lifts_the_limit():
    with threadpool_limits(2):
        with pytest.raises(ZeroDivisionError), threads_for(1.0):
            raise ZeroDivisionError
        assert set(threads()) == {2}


@pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
def test_fits_in_several_threads_at_once_agree_and_leave_no_limit_behind():
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
from standout.blas import threads_for

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


def test_the_last_fit_out_lifts_the_limit_whichever_thread_it_is_in():
    # A process of its own, because in this one a test may have set a limit already.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", FITS_IN_THREADS], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
