"""A watch: what a place is busy with, readable from another thread at no cost to the work.

Counting every tuple would cost more than many bolts do. So the work leaves its iterator in description, and whoever
wants to know whether it gets on looks at where the iterator stands.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sized
from typing import Any

from txtopo.attempts import TransactionAttempt


class ProgressProbe:
    """Where the work of one place stands."""

    def __init__(self) -> None:
        self.attempt: TransactionAttempt | None = None
        """The attempt that is being worked on."""
        self.tuples = 0
        """Tuples taken, chunk by chunk."""
        self.steps = 0
        """Tasks finished, and chunks emitted."""
        self.rows: Iterator[Any] | None = None
        """The rows of the chunk that is being taken."""
        self.waiting: Sized = ()
        """The rows that an emitter has emitted since its last chunk."""

    def position(self) -> tuple[Any, ...]:
        """Return what changes when the work gets on."""
        rows = self.rows
        left = operator.length_hint(rows) if rows is not None else 0
        return self.attempt, self.tuples, self.steps, left, len(self.waiting)
