"""Forks by user code: a child of this process that comes back from user code ends there.

``os.fork()`` in a component copies the whole process, with its sockets and what it is about to write. A child that ends
by ``os._exit`` or ``exec`` does no harm, and multiprocessing's children do so. One that returns, raises an exception or
calls ``sys.exit`` would go on as a second worker, or as a second driver: it would answer on the same sockets and write
the same tables.

So a child that was forked below our code gets a trace function, which ends it as soon as our code goes on. This costs
nothing but in such a child.
"""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any

_OURS = ("txtopo", "committers", "spouts", "state")
"""The packages that call user code."""

_ENDS_ITSELF = "multiprocessing.popen_fork"
"""The module whose children never return."""


def end_children_that_return() -> None:
    """Let each child that user code forks from now on end where it would go on with our code."""
    os.register_at_fork(after_in_child=_set_trap)


def _set_trap() -> None:
    forked = frame = sys._getframe(1)  # noqa: SLF001 - no other way to the frames
    while not _is_ours(frame):
        if frame.f_globals.get("__name__") == _ENDS_ITSELF or frame.f_back is None:
            return
        frame = frame.f_back
    trapped, code = frame, forked.f_code
    where = f"{code.co_qualname} ({code.co_filename}, line {forked.f_lineno})"

    def end(_frame: FrameType, event: str, argument: Any) -> Any:
        error = argument[1] if event == "exception" else None
        if isinstance(error, SystemExit) and isinstance(error.code, int | None):
            os._exit(error.code or 0)
        os.write(2, f"a child that {where} forked came back from there, and is ended: let it call os._exit\n".encode())
        os._exit(1)

    def look(called: FrameType, event: str, argument: Any) -> Any:
        if called.f_back is trapped:  # a loop in C, such as map(), has not ended yet
            end(called, event, argument)

    trapped.f_trace, trapped.f_trace_opcodes = end, True  # not only at its next line, which may be far
    sys.settrace(look)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in _OURS
