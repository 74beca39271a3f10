"""Offloading: slow calls of a task run in a thread of its own, so that the worker's loop does not wait."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

POLL_SECS = 0.005
"""How often the loop looks for calls that have ended."""


class Offloading:
    """The slow calls of a worker's tasks. Those of one task run one after another.

    ``on_done`` runs in the loop's thread, so a bolt needs no locks.
    """

    def __init__(self) -> None:
        self._pools: dict[int, ThreadPoolExecutor] = {}
        self._done: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.under_way = 0
        """Calls whose ``on_done`` has not run."""

    def submit(self, task: int, call: Callable[[], T], on_done: Callable[[Future[T]], None]) -> None:
        """Run a call in the thread of a task.

        Args:
            task: the task's id.
            call: the call.
            on_done: is called with a future that has its result or exception.
        """
        pool = self._pools.get(task)
        if pool is None:
            pool = self._pools[task] = ThreadPoolExecutor(1, thread_name_prefix=f"txtopo-task-{task}")
        self.under_way += 1
        future: Future[Any] = pool.submit(call)
        future.add_done_callback(lambda done: self._done.put(lambda: on_done(done)))

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
