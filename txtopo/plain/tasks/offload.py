"""Offloading: slow calls of a task run in a separate thread, and the worker's loop does not wait for them."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

POLL_SECS = 0.005
"""How often the loop looks for calls that have ended: the end of a call does not wake it up."""


class Offloading:
    """Runs the slow calls of a worker's tasks, those of one task one after another."""

    def __init__(self) -> None:
        self._pools: dict[int, ThreadPoolExecutor] = {}
        self._done: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.under_way = 0
        """Calls whose ``on_done`` has not run."""

    def submit(self, task: int, call: Callable[[], T], on_done: Callable[[Future[T]], None]) -> None:
        """Run a call in the thread of a task, then ``on_done(future)`` in the loop's, so that bolts need no locks."""
        pool = self._pools.get(task)
        if pool is None:
            pool = self._pools[task] = ThreadPoolExecutor(1, thread_name_prefix=f"txtopo-task-{task}")
        self.under_way += 1
        future: Future[Any] = pool.submit(call)
        # The callback runs in the pool's thread, so it only queues on_done.
        future.add_done_callback(lambda future: self._done.put(lambda: on_done(future)))

    def run_done(self) -> bool:
        """Run ``on_done`` of the calls that have ended; return whether any have."""
        has_run = False
        while self.under_way:
            try:
                on_done = self._done.get_nowait()
            except queue.Empty:
                break
            self.under_way -= 1
            has_run = True
            on_done()
        return has_run

    def close(self) -> None:
        """Drop the calls that have not begun, and let the threads end."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
