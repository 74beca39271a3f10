"""Threads of a bolt's own, at work beside the one that calls the bolt."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

THREADS = 4
"""How many the bolt has."""


def work_beside_own_threads(work: Callable[[int], None]) -> None:
    """Call ``work`` with each number below ``THREADS`` in a thread of its own, and with ``THREADS`` here.

    What one of them raises is raised here.
    """
    with ThreadPoolExecutor(THREADS) as pool:
        done = [pool.submit(work, thread) for thread in range(THREADS)]
        work(THREADS)
        for each in done:
            each.result()
