"""Attempts: one try at a transaction.

Attempt numbers only ever rise for a txid, across crashes and leaders too. The upper part of a number is
the epoch, which a coordinator counts up once when it starts; the lower part counts within the epoch. So
no attempt needs a durable write of its own, and every attempt of a later leader is above every attempt of
an earlier one.
"""

from __future__ import annotations

import attrs

ATTEMPTS_PER_EPOCH_BITS = 32
"""Low bits of an attempt number, which count within one epoch."""

FIRST_TXID = 1
"""The txid of a topology's first transaction."""


@attrs.frozen(order=True)
class TransactionAttempt:
    """One try at the transaction ``txid``; ``attempt`` only ever rises for a txid."""

    txid: int
    attempt: int

    @property
    def epoch(self) -> int:
        """The epoch of the coordinator that made this attempt."""
        return self.attempt >> ATTEMPTS_PER_EPOCH_BITS

    def __str__(self) -> str:
        return f"{self.txid}:{self.attempt}"


def first_attempt_number(epoch: int) -> int:
    """Return the lowest attempt number of ``epoch``."""
    assert epoch >= 0, "epochs are counted up from 0"
    return (epoch << ATTEMPTS_PER_EPOCH_BITS) + 1
