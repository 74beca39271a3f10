"""A progress probe: what a slot is busy with, readable from another thread at no cost to the work.

Counting every tuple would cost more than many bolts do. So the work leaves its iterator in description, and whoever
wants to know whether it gets on looks at where the iterator stands.
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
    """Where the work of one slot stands."""

    def __init__(self) -> None:
        self.attempt: TransactionAttempt | None = None
        """The attempt that is being worked on."""
        self.tuples = 0
        """Tuples taken, chunk by chunk."""
        self.steps = 0
        """Tasks finished, chunks emitted, and what a state has done of work that takes long."""
        self.rows: Iterator[Any] | None = None
        """The rows of the chunk, or the values of a state, that are being taken."""
        self.waiting: Sized = ()
        """The rows that an emitter has emitted since its last chunk."""

    def step(self) -> None:
        """Note that the work gets on; from any thread."""
        self.steps += 1

    def position(self) -> tuple[Any, ...]:
        """Return what changes when the work gets on."""
        rows = self.rows
        left = operator.length_hint(rows) if rows is not None else 0
        return self.attempt, self.tuples, self.steps, left, len(self.waiting)

    @contextlib.contextmanager
    def in_sight(self, items: Iterable[T]) -> Iterator[Iterator[T]]:
        """Make an iterator over items whose length is known, and show how far it is."""
        before = self.rows
        self.rows = iterator = iter(items)
        try:
            yield iterator
        finally:
            self.rows = before
            self.steps += 1

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Let :func:`current_probe` return this probe, in this thread."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


def current_probe() -> ProgressProbe:
    """Return the probe of what this thread works on; one that nobody looks at if there is none.

    For work below an interface that knows of no probe, as a state's is.
    """
    probe = _current.get(None)
    return ProgressProbe() if probe is None else probe
