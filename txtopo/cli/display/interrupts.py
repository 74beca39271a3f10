"""Ctrl-C: at once while Spark starts; in good order while the run goes on; at once the second time.

Ending at once is ``os._exit``. It is safe, for a run that ends at any moment is gone on with by the next one;
and it is needed, for a JVM that is just starting outlives us if Python tidies up beneath it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import NoReturn, Self

from txtopo.cli.command import EXIT_INTERRUPTED
from txtopo.errors import TxtopoError

SHOW_CURSOR = "\x1b[?25h"

Handler = Callable[[int, FrameType | None], object]


class Interrupts:
    """Handles Ctrl-C round a run, whose own handlers ask it to stop.

    Args:
        on_stop: called when a stop in good order is asked for; by a signal handler, so it only notes it.
    """

    def __init__(self, on_stop: Callable[[], None]) -> None:
        self._on_stop = on_stop
        self._is_main = threading.current_thread() is threading.main_thread()
        self._before = signal.getsignal(signal.SIGINT)
        self._is_wrapped = False
        self._is_asked = False

    def __enter__(self) -> Self:
        """End at once from here on; until the run has handlers of its own."""
        if self._is_main:
            signal.signal(signal.SIGINT, lambda *_: _end())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put the former handler back; end at once if Ctrl-C came again while the run was stopping."""
        if self._is_asked and error is not None and not isinstance(error, TxtopoError):
            _end()
        if self._is_main:
            signal.signal(signal.SIGINT, self._before)

    def wrap_handlers(self) -> None:
        """Wrap the handlers of the run, which are set now; call it often, it does so once."""
        if self._is_main and not self._is_wrapped:
            self._is_wrapped = True
            for number in (signal.SIGINT, signal.SIGTERM):
                ask_to_stop = signal.getsignal(number)
                if callable(ask_to_stop):
                    signal.signal(number, self._wrapped(ask_to_stop))

    def _wrapped(self, ask_to_stop: Handler) -> Handler:
        def handle(number: int, frame: FrameType | None) -> None:
            if self._is_asked and number == signal.SIGINT:
                _end()
            self._is_asked = True
            ask_to_stop(number, frame)
            self._on_stop()

        return handle


def _end() -> NoReturn:
    # Not to standard error: while Spark starts, that is a pipe which a thread of ours reads.
    show_cursor = SHOW_CURSOR if sys.stdout.isatty() else ""
    os.write(1, f"{show_cursor}\ninterrupted; the same command goes on where this run was\n".encode())
    os._exit(EXIT_INTERRUPTED)
