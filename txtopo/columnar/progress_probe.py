"""A progress probe: shows another thread the progress of a partition's work, at no cost to the work.

Counting every tuple would cost more than many bolts do. So the work publishes its iterator, and the observer reads how
many items it has left.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterable, Iterator, Sized
from contextvars import ContextVar
from typing import Any, TypeVar

from txtopo.attempts import TransactionAttempt

T = TypeVar("T")

_current: ContextVar[ProgressProbe] = ContextVar("txtopo_probe")


class ProgressProbe:
    """The progress of one partition's work."""

    # No lock: the observer only looks whether anything has changed, so a torn view or a lost count does no harm.
    def __init__(self) -> None:
        self.attempt: TransactionAttempt | None = None
        self.tuples = 0
        """The number of executed tuples, as of the last whole chunk."""
        self.steps = 0
        """The number of finished tasks, emitted chunks, and steps of a state's long operations."""
        self.rows: Iterator[Any] | None = None
        """The iterator over the chunk's rows, or a state's values, in progress."""
        self.waiting: Sized = ()
        """The rows that an emitter has emitted since its last chunk."""

    def step(self) -> None:
        """Record progress; may be called in any thread."""
        self.steps += 1

    def position(self) -> tuple[Any, ...]:
        """Return a value that changes whenever the work makes progress."""
        rows = self.rows  # read once: the working thread may replace it at any moment
        rows_left = operator.length_hint(rows) if rows is not None else 0
        return self.attempt, self.tuples, self.steps, rows_left, len(self.waiting)

    @contextlib.contextmanager
    def in_sight(self, items: Iterable[T]) -> Iterator[Iterator[T]]:
        """Publish an iterator over items of known length as the work in progress."""
        before = self.rows
        self.rows = iterator = iter(items)
        try:
            yield iterator
        finally:
            self.rows = before
            self.steps += 1

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make :func:`current_probe` return this probe in this thread."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


def current_probe() -> ProgressProbe:
    """Return the probe of this thread's work, for code that is passed none; a new one that nobody reads without one."""
    probe = _current.get(None)
    return ProgressProbe() if probe is None else probe
