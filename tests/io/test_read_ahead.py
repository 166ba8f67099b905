"""Reading ahead gives the same items, never more than two too early, and leaves no thread and no open file behind."""

import subprocess
import sys
import threading
import time
import tracemalloc

import h5py
import numpy as np
import pytest

import standout
from standout._moments import Moments
from standout.io.source import ahead


def readers():
    """Return the reader threads that do not end."""
    found = [thread for thread in threading.enumerate() if thread.name.startswith("standout-reader")]
    for thread in found:
        thread.join(timeout=30)
    return [thread for thread in found if thread.is_alive()]


class Items:
    """An iterator that remembers how many were asked for, by whom, and whether it was closed."""

    def __init__(self, count=10, error=None):
        self.count, self.error = count, error
        self.asked, self.closed, self.threads = 0, False, set()

    def __iter__(self):
        try:
            for item in range(self.count):
                self.asked += 1
                self.threads.add(threading.current_thread().name)
                yield item
            if self.error is not None:
                raise self.error
        finally:
            self.closed = True


def test_items_come_in_order_and_are_fetched_by_another_thread():
    items = Items()
    assert list(ahead(iter(items))) == list(range(10))
    assert items.closed and threading.current_thread().name not in items.threads and not readers()


def test_at_most_two_items_are_fetched_ahead():
    items = Items()
    for item in ahead(iter(items)):
        time.sleep(0.005)
        assert item + 1 <= items.asked <= item + 3


def test_an_error_comes_in_its_turn():
    found, items = [], Items(3, ValueError("the disk is gone"))
    with pytest.raises(ValueError, match="the disk is gone"):
        found.extend(ahead(iter(items)))
    assert found == [0, 1, 2] and not readers()


@pytest.mark.parametrize("stop", [GeneratorExit, ValueError, KeyboardInterrupt])
def test_a_caller_who_stops_early_leaves_nothing_behind(stop):
    items = Items()
    blocks = ahead(iter(items))
    next(blocks)
    with pytest.raises(stop):
        blocks.throw(stop)
    assert items.closed and items.asked <= 3 and not readers()


IN_THE_GARBAGE_COLLECTOR = """
import threading
from standout.io.source import ahead
blocks = ahead(iter(range(10)))
next(blocks)
with threading._shutdown_locks_lock:
    blocks.close()
"""


@pytest.mark.skipif(not hasattr(threading, "_shutdown_locks_lock"), reason="this Python joins threads without a lock")
def test_the_garbage_collector_may_close_it_while_a_thread_starts():
    # A thread that starts holds this lock, and garbage is collected there as anywhere: joining the reader would hang.
    subprocess.run([sys.executable, "-c", IN_THE_GARBAGE_COLLECTOR], check=True, timeout=60)


def test_a_fit_that_fails_in_the_middle_of_a_file_leaves_no_thread(tmp_path, refused):
    rows = np.ones((50_000, 5))
    rows[30_000, 2] = np.nan
    np.save(tmp_path / "a.npy", rows)
    refused(lambda: Moments.of(standout.read(tmp_path / "a.npy", memory=0)), "1 NaN")
    assert not readers()


@pytest.mark.parametrize("kind", ["npy", "h5"])
def test_blocks_and_what_is_read_ahead_stay_within_the_memory_given(tmp_path, kind):
    rows = np.random.default_rng(0).normal(size=(16_000, 600))  # 77 MB
    if kind == "npy":
        np.save(tmp_path / "a.npy", rows)
    else:
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.create_dataset("x", data=rows, chunks=(1_500, 600))  # 7 MB
    expected = np.cov(rows.T, ddof=0)
    del rows
    source = standout.read(tmp_path / f"a.{kind}", memory="70MB")
    tracemalloc.start()
    found = Moments.of(source)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 70e6 + 2 * 8 * 600**2  # the sums, and their mirror image's worth of room
    np.testing.assert_allclose(found.covariance(), expected, rtol=1e-10, atol=1e-12)
