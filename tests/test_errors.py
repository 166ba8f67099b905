"""Warnings that are suppressed in one thread."""

import threading
import warnings

import pytest

from standout.errors import OverfitWarning, warn_user, without_warnings


def test_overlapping_threads_suppress_only_their_own_warnings():
    """The blocks overlap and end in the order in which they began, which ``catch_warnings`` does not survive."""
    first_inside, second_inside, first_ended = threading.Event(), threading.Event(), threading.Event()

    def first():
        with without_warnings():
            first_inside.set()
            second_inside.wait(10)
            warn_user("first", OverfitWarning)
        first_ended.set()

    def second():
        first_inside.wait(10)
        with without_warnings():
            second_inside.set()
            first_ended.wait(10)
            warn_user("second", OverfitWarning)

    filters = list(warnings.filters)
    threads = [threading.Thread(target=each) for each in (first, second)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for each in threads:
            each.start()
        second_inside.wait(10)
        warn_user("outside", OverfitWarning)
        for each in threads:
            each.join()
    assert [str(each.message) for each in caught] == ["outside"]
    assert warnings.filters == filters
    with pytest.warns(OverfitWarning, match="after"):
        warn_user("after", OverfitWarning)
