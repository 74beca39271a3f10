"""Garbage collection while transactions run: seldom, and not of what was there before.

A commit group makes a hundred thousand tuples that are no garbage. With Python's own thresholds its collector
looks through all of them, and through every module that is loaded, again and again: a quarter of the time of a
small transaction, in the driver as in the executors.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator

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
    before = gc.get_threshold()
    with _frozen():
        gc.set_threshold(*_THRESHOLDS)
        try:
            yield
        finally:
            gc.set_threshold(*before)


@contextlib.contextmanager
def collected_when_told() -> Iterator[Callable[[], None]]:
    """Let this process look for garbage within the context only when the function that it yields is called.

    That looks through what was made since the last call, and never again through what it leaves. Afterwards all is
    looked through as before, as :func:`seldom_collected` does.
    """
    was_enabled = gc.isenabled()
    with _frozen():
        gc.disable()
        try:
            yield _collect_new
        finally:
            if was_enabled:
                gc.enable()


def _collect_new() -> None:
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def _frozen() -> Iterator[None]:
    is_callers = gc.get_freeze_count() > _FROZEN_AT_START
    gc.freeze()
    try:
        yield
    finally:
        if not is_callers:
            gc.unfreeze()
