"""The order of transactions that a kind of spout requires: the core's part of spout semantics.

A *repeatable* spout always emits the same tuples for the same metadata. So its metadata is made durable first, and
from then on transactions are independent of each other until they commit.

An *opaque* spout emits each transaction from where the one before ended, and may emit different tuples each time. So
its metadata is known only after a batch was emitted, transactions are emitted one after another, and the failure of N
rolls back N and all later ones.

In a topology of both kinds, a transaction has a part of each. What it begins with is made durable first, as of a
repeatable spout: a roll-back keeps the repeatable parts as they were planned, and only the opaque ones are emitted anew
from where the transaction before ends now.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import attrs

from txtopo.transactional.core.transitions import Status


class SpoutPolicy(ABC):
    """The decisions about transactions that depend on the kind of spout. Stateless and pure."""

    repeats: ClassVar[bool]
    """Whether every attempt of a transaction emits the same tuples."""
    keeps_begun: ClassVar[bool]
    """Whether a transaction keeps what it has begun with: that is saved before the first attempt, and outlives a
    roll-back."""
    unknown: ClassVar[frozenset[Status]]
    """Statuses in which a transaction's end is unknown: while it has one of them, no later one may start."""

    @abstractmethod
    def metadata_after(self, begun: Any, emitted: Any) -> Any:
        """Return a transaction's metadata after its batch was emitted."""

    @abstractmethod
    def can_skip(self, *, was_emitted: bool) -> bool:
        """Return whether a transaction can be given up so that later ones still know where to begin."""

    @abstractmethod
    def roll_back_from(self, txid: int, *, is_given_up: bool) -> int | None:
        """Return the first transaction that has to begin again if ``txid`` fails; None for none."""

    @abstractmethod
    def begun_max(self, room: int, job_transactions_max: int) -> int:
        """Return the maximum number of transactions to begin at once, given ``room`` for that many pending ones."""

    @abstractmethod
    def jobs_max(self, configured: int) -> int:
        """Return the maximum number of jobs in flight; never more than ``configured``."""


@attrs.frozen
class _Repeatable(SpoutPolicy):
    """The metadata determines the batch: transactions are processed in parallel, and each fails alone."""

    repeats = keeps_begun = True
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
    """Each transaction continues from the one before: one job at a time, and a failure rolls back all later ones."""

    repeats = keeps_begun = False
    unknown = frozenset({Status.READY, Status.PROCESSING})

    def metadata_after(self, begun: Any, emitted: Any) -> Any:
        del begun
        return emitted

    def can_skip(self, *, was_emitted: bool) -> bool:
        return was_emitted  # otherwise the end of its batch is unknown

    def roll_back_from(self, txid: int, *, is_given_up: bool) -> int | None:
        return txid + 1 if is_given_up else txid

    def begun_max(self, room: int, job_transactions_max: int) -> int:
        return min(room, job_transactions_max)  # one job's worth: later transactions begin where this job ends

    def jobs_max(self, configured: int) -> int:
        del configured
        return 1


@attrs.frozen
class _Mixed(_Opaque):
    """The opaque part of a transaction ties it to the one before; the repeatable part stays as it was planned."""

    keeps_begun = True

    def metadata_after(self, begun: Any, emitted: Any) -> Any:
        return {**begun, **emitted}


REPEATABLE = _Repeatable()
OPAQUE = _Opaque()
MIXED = _Mixed()

_POLICIES: Mapping[frozenset[str], SpoutPolicy] = {
    frozenset({"repeatable"}): REPEATABLE,
    frozenset({"opaque"}): OPAQUE,
    frozenset({"repeatable", "opaque"}): MIXED,
}
"""By the names that coordinator state and journal have for the kinds of spouts."""


def policy_of(kinds: Mapping[str, str]) -> SpoutPolicy:
    """Return the policy of a topology, given the kind of each of its spouts."""
    return _POLICIES[frozenset(kinds.values())]
