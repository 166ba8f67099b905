"""Small fits run BLAS on one thread, and leave the number of threads as they found it."""

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
