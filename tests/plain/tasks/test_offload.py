"""Offloading: slow calls in threads of their own, and their ends in the loop's thread."""

import threading
import time

from tests.waiting import DEADLINE_SECS
from txtopo.plain.tasks.offload import Offloading


def finish(offloading):
    """Do as the loop does until every call has ended."""
    end = time.monotonic() + DEADLINE_SECS
    while offloading.under_way and time.monotonic() < end:
        offloading.run_done()


def test_in_order_and_in_the_loops_thread():
    """The calls of a task run one after another, those of another beside them; each end comes where it is asked for."""
    offloading = Offloading()
    seen, threads, go = [], set(), threading.Event()
    offloading.submit(1, go.wait, lambda done: seen.append(("first", done.result())))
    offloading.submit(1, lambda: 7, lambda done: seen.append(("second", done.result())))
    offloading.submit(2, go.set, lambda _done: threads.add(threading.get_ident()))
    assert offloading.under_way == 3
    finish(offloading)
    assert seen == [("first", True), ("second", 7)]
    assert threads == {threading.get_ident()}
    assert (offloading.under_way, offloading.run_done()) == (0, False)
    offloading.close()


def test_what_has_not_begun_is_dropped():
    """After close a call that waits for another one is not begun."""
    offloading = Offloading()
    begun, go = threading.Event(), threading.Event()
    offloading.submit(1, lambda: (begun.set(), go.wait()), lambda _done: None)
    offloading.submit(1, lambda: 1 // 0, lambda _done: None)
    begun.wait()
    offloading.close()
    go.set()
    finish(offloading)
    assert offloading.under_way == 0
