"""Waiting for conditions, never for time to pass."""

import time
from collections.abc import Callable
from typing import Any

DEADLINE_SECS = 240.0


def wait_for(what: str, condition: Callable[[], Any], secs: float = DEADLINE_SECS) -> Any:
    """Wait until a condition is true; return its value."""
    deadline = time.monotonic() + secs
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {secs:g} s: {what}"
        time.sleep(0.02)
    return value
