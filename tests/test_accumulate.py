"""Products while a thread reads ahead: the same sums, on threads that sleep while they wait."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from standout._accumulate import scatter_adder
from standout._blas import add_scatter
from standout._moments import Moments
from standout.errors import InputError
from standout.io.read import read
from standout.io.source import Source, select_columns


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def whole_numbers(rows, columns, seed=0):
    """Numbers whose products add up without rounding, in whatever order."""
    return np.random.default_rng(seed).integers(-50, 50, size=(rows, columns)).astype(float)


@pytest.mark.parametrize("columns", [1, 2, 119, 240, 500, 1001, 2001])
@pytest.mark.parametrize("order", ["C", "F"])
def test_only_the_lower_triangle_of_the_product_is_added(columns, order):
    rows = np.asarray(whole_numbers(300, columns), order=order)
    total = np.zeros((columns, columns), order="F")
    with threadpool_limits(2), scatter_adder(10**9, columns, reads_ahead=True) as add:
        assert (add is add_scatter) == (columns > 2000)
        for _ in range(2):
            assert add(total, rows) is total
    np.testing.assert_array_equal(total, np.tril(2 * rows.T @ rows))


@pytest.mark.parametrize("columns", [1, 2, 100, 240])
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_multiply_parts_of_the_rows_of_narrow_arrays(columns, threads):
    rows, total = whole_numbers(301, columns), np.zeros((columns, columns), order="F")
    with threadpool_limits(threads), scatter_adder(10**9, columns, reads_ahead=False) as add:
        assert add is not add_scatter and blas_threads() == {1}
        for part in (rows, rows[:2], rows[:1]):
            assert add(total, part) is total
    expected = rows.T @ rows + rows[:2].T @ rows[:2] + rows[:1].T @ rows[:1]
    np.testing.assert_array_equal(total, np.tril(expected))
    with threadpool_limits(1), scatter_adder(10**9, columns, reads_ahead=False) as add:
        assert add is add_scatter


def test_moments_of_a_narrow_array_on_two_threads_are_those_on_one():
    rows = (np.random.default_rng(1).normal(size=(30_000, 90)) + 1e3).astype(np.float32)
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            found.append(Moments.of(rows))
            double = Moments.of(rows.astype(np.float64))
        np.testing.assert_array_equal(found[-1].scatter, double.scatter)  # in float32 as in float64
    np.testing.assert_allclose(found[1].scatter, found[0].scatter, rtol=1e-12, atol=1e-9)
    np.testing.assert_array_equal(found[1].mean, found[0].mean)


def test_sums_do_not_depend_on_the_number_of_threads():
    rows, totals = np.random.default_rng(0).normal(size=(2000, 700)), []
    for threads in (1, 2, 3, 5):
        total = np.zeros((700, 700), order="F")
        with threadpool_limits(threads), scatter_adder(10**9, 700, reads_ahead=True) as add:
            totals.append(add(total, rows))
    for total in totals[1:]:
        np.testing.assert_array_equal(total, totals[0])


@pytest.mark.parametrize(("rows", "ahead"), [(10**9, False), (10, True)])
def test_small_work_and_work_without_a_reader_thread_goes_to_blas(rows, ahead):
    with threadpool_limits(2), scatter_adder(rows, 500, ahead) as add:
        assert add is add_scatter


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
def test_a_bad_value_in_a_file_raises_the_same_error_as_in_an_array(tmp_path, bad, remedy):
    rows = np.random.default_rng(0).normal(size=(9000, 400))
    rows[[10, 8000], 3] = bad
    np.save(tmp_path / "rows.npy", rows)
    with threadpool_limits(2), pytest.raises(InputError) as in_file:
        Moments.of(read(tmp_path / "rows.npy", memory=0))
    with pytest.raises(InputError) as in_memory:
        Moments.of(rows)
    assert type(in_file.value) is type(in_memory.value)
    assert remedy(str(in_file.value)) == remedy(str(in_memory.value))


def test_a_failing_product_raises_and_restores_the_thread_limit():
    with threadpool_limits(2):
        with pytest.raises(ValueError, match="broadcast"), scatter_adder(10**9, 500, reads_ahead=True) as add:
            add(np.zeros((400, 400), order="F"), np.ones((10, 500)))
        assert blas_threads() == {2}
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("standout-product")]


class Watched(Source):
    """A source that looks at the threads of BLAS while it is read."""

    n_features, n_rows, reads_ahead = 300, 9000, True

    def __init__(self):
        self.table, self.seen = whole_numbers(self.n_rows, self.n_features), set()

    def blocks(self, rows):
        for start in range(0, self.n_rows, rows):
            self.seen |= blas_threads()
            yield self.table[start : start + rows]


def test_blas_uses_one_thread_while_a_stream_is_summed_and_all_threads_afterwards():
    source = Watched()
    with threadpool_limits(2):
        found = Moments.of(select_columns(source, np.arange(300)))
        assert blas_threads() == {2}
    assert source.seen == {1}
    centred = source.table - source.table.mean(axis=0)
    np.testing.assert_allclose(found.scatter, centred.T @ centred, rtol=0, atol=1e-9 * centred.size)


@pytest.mark.parametrize("memory", [0, "8MB"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_file_and_its_array_have_the_same_moments(tmp_path, weighted, memory):
    rng = np.random.default_rng(1)
    table = rng.normal(size=(8000, 400)) @ rng.normal(size=(400, 400)) + 1e3
    weights = rng.uniform(0.5, 2, size=8000) if weighted else None
    np.save(tmp_path / "table.npy", table)
    with threadpool_limits(2):
        found = Moments.of(read(tmp_path / "table.npy", memory=memory), weights=weights)
        expected = Moments.of(table, weights=weights)
    scale = np.sqrt(np.outer(*[np.diagonal(expected.scatter)] * 2))
    assert (np.abs(found.scatter - expected.scatter) / scale).max() < 1e-13
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-14)
