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

_FROZEN_AT_START = gc.get_freeze_count()
"""Objects that nobody has frozen but Python itself, as 3.12 does."""


def collect_seldom() -> None:
    """Let this process look for garbage seldom from now on, and never among what there is now."""
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


@contextlib.contextmanager
def seldom_collected() -> Iterator[None]:
    """Let this process look for garbage seldom within the context.

    What there was before it is looked through again afterwards, unless the caller has frozen it himself.
    """
    before, is_callers = gc.get_threshold(), gc.get_freeze_count() > _FROZEN_AT_START
    collect_seldom()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not is_callers:
            gc.unfreeze()
