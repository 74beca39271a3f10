"""Ctrl-C during a run: the first one stops in good order, the second one ends at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

from txtopo.cli.command import EXIT_INTERRUPTED

SHOW_CURSOR = "\x1b[?25h"


class Interrupts:
    """Wraps the run's own handlers, which ask it to stop.

    The run puts its handlers back when it ends, and so takes these out, too.

    Args:
        on_stop: called at the first signal.
    """

    def __init__(self, on_stop: Callable[[], None]) -> None:
        self._on_stop = on_stop
        self._is_installed = False
        self._is_asked = False

    def install(self) -> None:
        """Wrap the handlers that are set now; call it often, it does so once."""
        if self._is_installed or threading.current_thread() is not threading.main_thread():
            return
        self._is_installed = True
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._wrap(signal.getsignal(number)))

    def _wrap(
        self, ask_to_stop: Callable[[int, FrameType | None], object] | int | None
    ) -> Callable[[int, FrameType | None], None]:
        def handle(number: int, frame: FrameType | None) -> None:
            if self._is_asked and number == signal.SIGINT:
                if sys.stdout.isatty():
                    os.write(sys.stdout.fileno(), f"{SHOW_CURSOR}\n".encode())
                # Nothing is lost: a run that is ended at any moment is gone on with by the next one.
                os._exit(EXIT_INTERRUPTED)
            self._is_asked = True
            if callable(ask_to_stop):
                ask_to_stop(number, frame)
            self._on_stop()

        return handle
