"""How a command that serves until it is stopped hears of that."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def stop_asked() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C and SIGTERM set; a second Ctrl-C interrupts at once."""
    stop = threading.Event()

    def ask(number: int, _frame: object) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
