"""Attempts: one try at a transaction.

Attempt numbers only ever rise for a txid, across crashes and leaders too. The upper part of a number is
the epoch, which a coordinator counts up once when it starts; the lower part counts the tries within that
epoch. So no attempt needs a durable write of its own, and every attempt of a later leader is above every
attempt of an earlier one. In the first epoch, 1, attempts are plainly 1, 2, 3 and so on.
"""

from __future__ import annotations

import attrs

ATTEMPTS_PER_EPOCH_BITS = 32
"""Low bits of an attempt number, which count the tries within one epoch."""

FIRST_EPOCH = 1
"""The epoch of the first coordinator that ever leads a topology."""

FIRST_TXID = 1
"""The txid of a topology's first transaction."""


@attrs.frozen(order=True, repr=False, cache_hash=True)  # it is the key of many things
class TransactionAttempt:
    """One try at the transaction ``txid``; ``attempt`` only ever rises for a txid."""

    txid: int
    attempt: int

    @property
    def epoch(self) -> int:
        """The epoch of the coordinator that made this attempt."""
        return epoch_and_try(self.attempt)[0]

    def __str__(self) -> str:
        return f"transaction {self.txid}, {attempt_words(self.attempt)}"

    def __repr__(self) -> str:
        epoch, tries = epoch_and_try(self.attempt)
        return f"TransactionAttempt(txid={self.txid}, attempt={tries}, epoch={epoch})"

    def __reduce__(self) -> tuple[type[TransactionAttempt], tuple[int, int]]:
        return TransactionAttempt, (self.txid, self.attempt)  # a third of attrs' time: it travels with every bolt


def attempt_number(epoch: int, tries_before: int) -> int:
    """Return the number of the attempt after ``tries_before`` others in ``epoch``."""
    assert epoch >= FIRST_EPOCH, "epochs are counted from 1"
    assert 0 <= tries_before < (1 << ATTEMPTS_PER_EPOCH_BITS) - 1, "the tries of an epoch fit its bits"
    return ((epoch - FIRST_EPOCH) << ATTEMPTS_PER_EPOCH_BITS) + tries_before + 1


def epoch_and_try(number: int) -> tuple[int, int]:
    """Return the epoch of an attempt number, and which try within that epoch it is, from 1."""
    return (number >> ATTEMPTS_PER_EPOCH_BITS) + FIRST_EPOCH, number & ((1 << ATTEMPTS_PER_EPOCH_BITS) - 1)


def attempt_words(number: int) -> str:
    """Return an attempt number as it is shown to people: ``attempt 1, epoch 3``."""
    epoch, tries = epoch_and_try(number)
    return f"attempt {tries}, epoch {epoch}"
