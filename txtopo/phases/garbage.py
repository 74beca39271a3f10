"""Garbage collection while transactions run: seldom, and not of what was there before.

A commit group makes a hundred thousand tuples that are no garbage. With Python's own thresholds its collector
looks through all of them, and through every module that is loaded, again and again: a quarter of the time of a
small transaction, in the driver as in the executors.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

_THRESHOLDS = (50_000, 20, 50)
"""Objects made before the young are looked through; and how often that is before the older ones are."""


def collect_seldom() -> None:
    """Let this process look for garbage seldom from now on, and never among what there is now."""
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


@contextlib.contextmanager
def seldom_collected() -> Iterator[None]:
    """Let this process look for garbage seldom within the context."""
    before = gc.get_threshold()
    collect_seldom()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
