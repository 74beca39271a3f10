"""What a kind of spout asks of the order of transactions: the core's half of spout semantics.

A *repeatable* spout emits the same tuples whenever it is given the same metadata. So its metadata is made durable
first, and from then on transactions are independent of each other until they commit.

An *opaque* spout emits each transaction from where the one before ended, perhaps other tuples each time. So its
metadata is known only when a batch has been emitted, transactions are emitted in turn, and the failure of N rolls
back N and all later ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import attrs

from txtopo.core.transitions import Status


class SpoutPolicy(ABC):
    """The decisions about transactions that depend on the kind of spout. Stateless and pure."""

    repeats: ClassVar[bool]
    """Whether every attempt of a transaction emits the same, so its metadata is saved before the first one."""
    unknown: ClassVar[frozenset[Status]]
    """Statuses in which nobody knows yet where a transaction ends: while it has one, no later one may start."""

    @abstractmethod
    def metadata_after(self, begun: Any, emitted: Any) -> Any:
        """Return a transaction's metadata after its batch was emitted, given that from before and what it reports."""

    @abstractmethod
    def can_skip(self, *, was_emitted: bool) -> bool:
        """Whether a transaction can be given up, and later ones still know where to begin."""

    @abstractmethod
    def roll_back_from(self, txid: int, *, is_given_up: bool) -> int | None:
        """Return the first transaction that the failure of ``txid`` takes out of the window; None: none."""

    @abstractmethod
    def begun_max(self, room: int, job_transactions_max: int) -> int:
        """Return how many transactions may begin at once, with ``room`` for so many in the window."""

    @abstractmethod
    def jobs_max(self, configured: int) -> int:
        """Return how many jobs may be in flight, at most as many as are configured."""


@attrs.frozen
class _Repeatable(SpoutPolicy):
    """The metadata says all: transactions are processed side by side, and each fails alone."""

    repeats = True
    unknown = frozenset()

    def metadata_after(self, begun: Any, emitted: Any) -> Any:
        del emitted
        return begun

    def can_skip(self, *, was_emitted: bool) -> bool:
        del was_emitted
        return True

    def roll_back_from(self, txid: int, *, is_given_up: bool) -> int | None:
        del txid, is_given_up
        return None

    def begun_max(self, room: int, job_transactions_max: int) -> int:
        del job_transactions_max
        return room

    def jobs_max(self, configured: int) -> int:
        return configured


@attrs.frozen
class _Opaque(SpoutPolicy):
    """Each transaction goes on from the one before: one job at a time, and a failure takes all later ones along."""

    repeats = False
    unknown = frozenset({Status.READY, Status.PROCESSING})

    def metadata_after(self, begun: Any, emitted: Any) -> Any:
        del begun
        return emitted

    def can_skip(self, *, was_emitted: bool) -> bool:
        return was_emitted  # else nobody knows where its batch ends

    def roll_back_from(self, txid: int, *, is_given_up: bool) -> int | None:
        return txid + 1 if is_given_up else txid

    def begun_max(self, room: int, job_transactions_max: int) -> int:
        return min(room, job_transactions_max)  # what one job takes: the next ones begin where it has ended

    def jobs_max(self, configured: int) -> int:
        del configured
        return 1


REPEATABLE = _Repeatable()
OPAQUE = _Opaque()
