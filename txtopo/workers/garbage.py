"""Less frequent garbage collection while transactions run, which skips objects that existed before.

A commit group creates 100,000 live tuples. With Python's default thresholds, the collector traverses all of them and
every loaded module again and again, which takes 25 % of the time of a small transaction, in driver and executors.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator

from txtopo.workers.process_wide import until_the_last

_THRESHOLDS = (50_000, 20, 50)
"""The thresholds of the three generations, as for :func:`gc.set_threshold`."""

_FROZEN_AT_START = gc.get_freeze_count()
"""The number of objects that Python itself has frozen, as 3.12 does: with more, the caller has frozen some."""


def collect_seldom() -> None:
    """Make this process collect garbage seldom from now on, and never among the objects that exist now."""
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


@until_the_last
@contextlib.contextmanager
def seldom_collected() -> Iterator[None]:
    """Make this process collect garbage seldom within the context.

    Afterwards objects from before the context are collected again, unless the caller had frozen objects already.
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
    """Make this process collect garbage within the context only when the yielded function is called.

    A call collects among the objects created since the last call, and freezes the rest. Afterwards collection is as
    before, as for :func:`seldom_collected`.
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
    # unfreeze() releases all frozen objects, the caller's among them, so it is called only if there are none of those.
    is_callers = gc.get_freeze_count() > _FROZEN_AT_START
    gc.freeze()
    try:
        yield
    finally:
        if not is_callers:
            gc.unfreeze()
