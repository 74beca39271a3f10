"""Interrupts a user's code that makes no progress in the commit phase.

Python can't stop a thread, but it can raise an exception in it as soon as it runs Python code again. So a
loop is left; a call that never returns to Python is not, and shows in the log each time the timeout passes.
"""

from __future__ import annotations

import ctypes
import threading
from types import TracebackType

from txtopo.errors import TimeoutFailure


class Interruptible:
    """A stretch of code in one thread that another thread may interrupt with a TimeoutFailure.

    Nothing outside the stretch is ever interrupted: an exception that comes too late is taken back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread_id: int | None = None

    def __enter__(self) -> None:
        with self._lock:
            assert self._thread_id is None, "one thread at a time"
            self._thread_id = threading.get_ident()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._thread_id is not None:
            try:
                with self._lock:
                    _raise_in(threading.get_ident(), None)
                    self._thread_id = None
            except TimeoutFailure:  # it came just here: the work is done, so it is too late
                continue

    def interrupt(self) -> None:
        """Raise a TimeoutFailure in the stretch, if one is under way."""
        with self._lock:
            if self._thread_id is not None:
                _raise_in(self._thread_id, TimeoutFailure)


def _raise_in(thread_id: int, kind: type[BaseException] | None) -> None:
    exception = ctypes.py_object(kind) if kind is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), exception)
