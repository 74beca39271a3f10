"""A worker in a process of its own, one pass of which keeps Python's interpreter lock: ``python -m tests.workers.holding``."""

import sys
import time
from collections import deque
from collections.abc import Callable
from itertools import takewhile
from typing import Any

from txtopo.workers.messages import Welcome
from txtopo.workers.process import Links, WorkerJob, run_worker
from txtopo.workers.watcher import NO_TASK

TASK = 3


def hold(secs: float) -> None:
    """Take processor time for so long in one call of C, which lets no other thread run."""
    end = time.monotonic() + secs
    deque(takewhile(end.__gt__, iter(time.monotonic, None)), maxlen=0)


class Idle:
    """A body that has nothing to do."""

    def set_active(self, *, is_active: bool) -> None: ...

    def set_throttled(self, *, is_throttled: bool) -> None: ...

    def hear(self, data: bytes) -> None: ...

    def receive(self, frame: bytes) -> None: ...

    def worker_replaced(self, worker: int, dead: int, successor: int) -> None: ...

    def close(self) -> None: ...

    def status(self) -> Any: ...

    def run_pass(self) -> bool:
        return False

    def is_done(self) -> bool:
        return True

    def is_idle(self) -> bool:
        return self.is_done()

    def idle_secs(self) -> float:
        return 0.1

    def queued_bytes(self) -> int:
        return 0

    pending = acked = queued_bytes

    def busy_with(self) -> str:
        return ""


class Holding(Idle):
    """A body whose first pass keeps the interpreter; then it is done.

    Args:
        secs: for how long.
        mark: marks the task that has its turn.
    """

    def __init__(self, secs: float, mark: Callable[[int], None]) -> None:
        self._secs = secs
        self._mark = mark
        self._has_held = False

    def run_pass(self) -> bool:
        if self._has_held:
            return False
        self._mark(TASK)
        hold(self._secs)
        self._mark(NO_TASK)
        self._has_held = True
        return True

    def is_done(self) -> bool:
        return self._has_held


def main() -> None:
    """Run a worker, told by arguments: its job, the driver's port, the secret, and for how long it holds."""
    job, port, secret, secs = sys.argv[1:]

    def make_body(_welcome: Welcome, links: Links) -> Holding:
        return Holding(float(secs), links.record_task)

    driver = ("127.0.0.1", int(port))
    run_worker(WorkerJob(0, int(job), bytes.fromhex(secret), driver, None, 1 << 20), make_body)


if __name__ == "__main__":
    main()
