"""The threads of a real run."""

import threading

from txtopo.assembly.threads import Role, ThreadPools

SECS = 60.0


def test_what_is_done_aside_waits_for_nothing_else() -> None:
    """Each of many spouts that wait for their sources has a thread."""
    threads, all_wait = ThreadPools(1), threading.Barrier(20)

    def wait() -> None:
        all_wait.wait(SECS)

    asides = [threads.aside(wait) for _ in range(all_wait.parties)]
    for aside in asides:
        aside.result(SECS)
    threads.shut_down(lambda: None, lambda: None)


def test_the_end_lets_the_feed_do_its_last_aside() -> None:
    """The feed is in the middle of a request when the run ends: what it begins aside is done, and ends with it."""
    threads, is_ending, done = ThreadPools(1), threading.Event(), list[str]()

    def request() -> None:
        is_ending.wait(SECS)
        threads.aside(lambda: done.append("waited"))

    threads.submit(Role.FEED, request)
    threads.shut_down(is_ending.set, lambda: None)
    assert done == ["waited"]
    assert threads.take(0.0) == ()
