"""Waiting for conditions, never for time to pass."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

DEADLINE_SECS = 120.0


def until(condition: Callable[[], object], what: str) -> None:
    """Return when a condition holds; fail when it does not in time."""
    deadline = time.monotonic() + DEADLINE_SECS
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        threading.Event().wait(0.01)
