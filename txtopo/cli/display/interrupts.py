"""Ctrl-C: stops immediately while Spark starts, cleanly during the run, and immediately the second time.

An immediate stop is ``os._exit``. It is safe: a transactional topology resumes after a stop at any moment, and what was
pending in a plain one is never acked. It is needed, because a JVM that is still starting outlives this process if
Python runs its normal clean-up.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn, Self

from txtopo.cli.command import EXIT_INTERRUPTED
from txtopo.errors import TxtopoError

RESUMED = "interrupted; the same command resumes this run"

Handler = Callable[[int, FrameType | None], object]


class Interrupts:
    """Handles Ctrl-C around a run; the run's handlers request its stop.

    A signal handler calls ``on_stop`` at the first Ctrl-C, so it must only set a flag. An immediate stop prints
    ``farewell``.
    """

    def __init__(self, on_stop: Callable[[], None], farewell: str = RESUMED) -> None:
        self._on_stop = on_stop
        self._farewell = farewell
        self._is_main = threading.current_thread() is threading.main_thread()
        self._before = signal.getsignal(signal.SIGINT)
        self._is_wrapped = False
        self._is_asked = False

    def __enter__(self) -> Self:
        """Make Ctrl-C stop immediately until the run has handlers of its own."""
        if self._is_main:
            signal.signal(signal.SIGINT, lambda *_: _end(self._farewell))
        return self

    def __exit__(self, _kind: object, error: BaseException | None, *_: object) -> None:
        """Restore the former handler; exit immediately if a second Ctrl-C interrupted the stop."""
        if self._is_asked and error is not None and not isinstance(error, TxtopoError):
            _end(self._farewell)
        if self._is_main:
            signal.signal(signal.SIGINT, self._before)

    def wrap_handlers(self) -> None:
        """Wrap the run's handlers, which are installed by now. Repeated calls do nothing."""
        if self._is_main and not self._is_wrapped:
            self._is_wrapped = True
            for number in (signal.SIGINT, signal.SIGTERM):
                ask_to_stop = signal.getsignal(number)
                if callable(ask_to_stop):
                    signal.signal(number, self._wrapped(ask_to_stop))

    def _wrapped(self, ask_to_stop: Handler) -> Handler:
        def handle(number: int, frame: FrameType | None) -> None:
            if self._is_asked and number == signal.SIGINT:
                _end(self._farewell)
            self._is_asked = True
            ask_to_stop(number, frame)
            self._on_stop()

        return handle


def _end(farewell: str) -> NoReturn:
    # Standard output, because standard error is a pipe to one of our threads while Spark starts.
    os.write(1, f"\n{farewell}\n".encode())
    os._exit(EXIT_INTERRUPTED)
