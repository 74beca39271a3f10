"""The histories of transactions: of those that the coordinator has, and of the last committed ones."""

from __future__ import annotations

from collections import deque

import attrs

from txtopo.attempts import TransactionAttempt
from txtopo.transactional.core.history import History, HistoryEntry, HistoryEvent
from txtopo.transactional.core.transactions import GroupMoment, Transaction, Tries
from txtopo.transactional.core.transitions import Status

COMMITTED_KEPT = 256
"""The number of committed transactions whose histories are kept."""


@attrs.frozen
class CommittedGroup:
    """The common part of the histories of a group's transactions."""

    group: GroupMoment
    at_ms: int


class Histories:
    """Tells the histories of transactions; keeps the last ``COMMITTED_KEPT`` committed ones for it."""

    def __init__(self, *, saves_metadata: bool) -> None:
        self._saves_metadata = saves_metadata
        self._committed: deque[tuple[Transaction, TransactionAttempt, int | None, CommittedGroup]] = deque(
            maxlen=COMMITTED_KEPT
        )

    def note_committed(self, transaction: Transaction, attempt: TransactionAttempt, group: CommittedGroup) -> None:
        """Keep a transaction that is about to move to its end; its metadata is dropped then, so it is small."""
        self._committed.append((transaction, attempt, transaction.job_id, group))

    def of_pending(self, transaction: Transaction, group: GroupMoment) -> History:
        """Return the history of a transaction that is not committed yet."""
        moments = transaction.moments(
            reached=transaction.status,
            attempt=transaction.attempt,
            job_id=transaction.job_id,
            group=group,
            saves_metadata=self._saves_metadata,
        )
        return _history(transaction.txid, moments, transaction.tries)

    def of_other(self, txid: int, tries: Tries | None) -> History:
        """Return the history of a committed transaction, or of one rolled back, of which only its ``tries`` are left.

        A call walks through the committed ones.
        """
        for transaction, attempt, job_id, ended in self._committed:
            if transaction.txid == txid:
                was_given_up = job_id is None  # a dead letter is in no job
                moments = transaction.moments(
                    reached=Status.WRITING_DEAD_LETTER if was_given_up else Status.COMMITTING,
                    attempt=attempt,
                    job_id=job_id,
                    group=ended.group,
                    saves_metadata=self._saves_metadata,
                )
                moments.append(HistoryEntry(ended.at_ms, HistoryEvent.COMMITTED, None if was_given_up else attempt))
                return _history(txid, moments, transaction.tries)
        return _history(txid, [], tries)


def _history(txid: int, moments: list[HistoryEntry], tries: Tries | None) -> History:
    if tries is None or tries.log is None:
        return History(txid, tuple(moments))
    return History(txid, (*tries.log.entries, *moments), tries.log.left_out)
