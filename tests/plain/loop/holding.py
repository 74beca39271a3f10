"""A worker in a process of its own, one pass of which keeps Python's interpreter lock: ``python -m tests.plain.loop.holding``."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from itertools import takewhile

from txtopo.plain.loop.process import WorkerJob, run_worker
from txtopo.plain.loop.watcher import NO_TASK
from txtopo.plain.transport.messages import Welcome

TASK = 3


def hold(secs: float) -> None:
    """Take processor time for so long in one call of C, which lets no other thread run."""
    end = time.monotonic() + secs
    deque(takewhile(end.__gt__, iter(time.monotonic, None)), maxlen=0)


class Holding:
    """A body whose first pass does not let go of the interpreter; then it is done.

    Args:
        secs: for how long.
        mark: marks the task that it is in.
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

    is_idle = is_done

    def set_active(self, *, is_active: bool) -> None: ...

    def set_throttled(self, *, is_throttled: bool) -> None: ...

    def receive(self, frame: bytes) -> None: ...

    def worker_replaced(self, worker: int, dead: int, successor: int) -> None: ...

    def close(self) -> None: ...

    def status(self) -> None: ...

    def idle_secs(self) -> float:
        return 0.1

    def queued_bytes(self) -> int:
        return 0

    def pending(self) -> int:
        return 0

    def acked(self) -> int:
        return 0

    def busy_with(self) -> str:
        return ""


def main() -> None:
    """Run a worker, told by arguments: its job, the driver's port, the secret, and for how long it holds."""
    job, port, secret, secs = sys.argv[1:]

    def make_body(_welcome: Welcome, _send: Callable[[int, bytes], None], mark: Callable[[int], None]) -> Holding:
        return Holding(float(secs), mark)

    driver = ("127.0.0.1", int(port))
    run_worker(WorkerJob(0, int(job), bytes.fromhex(secret), driver, None, 1 << 20), make_body)


if __name__ == "__main__":
    main()
