"""Offloading: slow input and output of a bolt in a thread of its own, so that the worker's loop waits for nobody."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

POLL_SECS = 0.005
"""How often the loop looks for what has ended, while something is under way."""


class Offloading:
    """The calls that the tasks of one worker have under way. Those of a task run one after another.

    *on_done* runs in the loop's thread, so a bolt needs no locks.
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
            on_done: is given its result or exception, as a future that is done.
        """
        pool = self._pools.get(task)
        if pool is None:
            pool = self._pools[task] = ThreadPoolExecutor(1, thread_name_prefix=f"txtopo-task-{task}")
        self.under_way += 1
        future: Future[Any] = pool.submit(call)
        future.add_done_callback(lambda done: self._done.put(lambda: on_done(done)))

    def run_done(self) -> bool:
        """Run ``on_done`` of the calls that have ended; return whether there were any."""
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

    def wait(self) -> None:
        """Wait for every call that is under way, and run its ``on_done``: the worker ends."""
        while self.under_way:
            on_done = self._done.get()
            self.under_way -= 1
            on_done()

    def close(self) -> None:
        """Let the threads go; calls that have not begun are dropped."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
