"""Results of the explorer: computed once, shared by threads, bounded in memory, and the same when computed again."""

import gc
import threading
import time
import weakref

import numpy as np
import pytest

from standout import DPCA, KernelDPCA
from standout._explore.results import Results, array_bytes
from standout._explore.session import Exploration

pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")


def together(count, work):
    """Run the work in threads that start at the same time, and return what they raise."""
    gate, raised = threading.Barrier(count), []

    def run(number):
        gate.wait()
        try:
            work(number)
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return raised


def test_threads_that_ask_at_the_same_time_share_one_computation():
    results, calls, found = Results(1e6), [], []

    def compute():
        calls.append(1)
        time.sleep(0.05)
        return np.ones(3)

    assert together(10, lambda _: found.append(results.once("key", compute))) == []
    assert len(calls) == 1 and all(each is found[0] for each in found)


def test_the_least_recently_used_results_are_dropped_from_memory():
    results, alive = Results(1e6), {}

    def ask(name):
        def compute():
            values = np.zeros(30_000)  # 240 kB
            alive[name] = weakref.ref(values)
            return values

        results.once(name, compute)

    for name in "abcd":
        ask(name)
    ask("a")  # used again
    ask("e")
    gc.collect()
    assert [name for name in alive if alive[name]() is not None] == ["a", "c", "d", "e"]
    ask("b")
    assert alive["b"]() is not None


def test_a_result_that_is_larger_than_the_limit_is_kept_alone():
    results, calls = Results(1000), []
    for _ in range(3):
        results.once("large", lambda: calls.append(1) or np.zeros(10_000))
    assert len(calls) == 1


def test_an_error_is_raised_in_all_threads_that_wait_and_is_not_kept():
    results = Results(1e6)

    def fail():
        time.sleep(0.05)
        raise ValueError("no")

    assert [str(error) for error in together(5, lambda _: results.once("key", fail))] == ["no"] * 5
    assert results.once("key", lambda: 7) == 7


def test_the_size_counts_every_array_once():
    class Thing:
        pass

    thing, values = Thing(), np.zeros(100)
    thing.first, thing.again, thing.itself, thing.rest = values, values, thing, ({"x": np.zeros(50)}, "text", Thing)
    assert array_bytes(thing) == 1200


@pytest.mark.parametrize("estimator", [DPCA(2), KernelDPCA(2, n_landmarks=20)], ids=["linear", "random landmarks"])
def test_answers_are_the_same_if_nothing_can_be_kept(estimator):
    rng = np.random.default_rng(0)
    target, background = rng.normal(size=(80, 12)), rng.normal(size=(90, 12))
    target[:20, 2] += 4
    kept, dropped = (Exploration(target, background, estimator=estimator) for _ in range(2))
    dropped.results.limit = 0
    region = [[-1e9, -1e9], [0.1, -1e9], [0.1, 1e9], [-1e9, 1e9]]

    def answers(exploration, number=0):
        view = exploration.view(exploration.default_method, 0, 0, 1, [0])
        other = exploration.view("cpca", 3 + number % 4, 0, 1, [0])
        selection = {"kind": "region", **vars(view), "on": [0], "points": region}
        return [
            exploration.points(view), exploration.points(other), str(exploration.describe(view)),
            str(exploration.compare(selection)), str(exploration.check(selection)),
        ]  # fmt: skip

    expected = {number: answers(kept, number) for number in range(4)}
    found = {}
    assert together(8, lambda number: found.update({number: answers(dropped, number)})) == []
    assert all(found[number] == expected[number % 4] for number in range(8))


def test_a_long_session_keeps_a_bounded_amount():
    rng = np.random.default_rng(0)
    exploration = Exploration(rng.normal(size=(2000, 5)), rng.normal(size=(2000, 5)))
    exploration.results.limit = 2e6
    for edge in np.linspace(-1, 1, 60):
        region = [[edge, -1e9], [1e9, -1e9], [1e9, 1e9], [edge, 1e9]]
        for y in (0, 1):
            view = {"method": "dpca", "stop": 0, "x": 0, "y": y, "on": [0]}
            exploration.compare({"kind": "region", **view, "points": region})
    kept = exploration.results
    assert set(kept._sizes) == set(kept._found)
    assert sum(array_bytes(each.result()) for each in kept._found.values()) <= sum(kept._sizes.values()) <= 2e6
