"""The pending transactions, which are begun and not committed, and the choice of those of a job and of a commit group.

They are consecutive, without a gap, above the last committed one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from txtopo.api.components.planned import NEVER
from txtopo.attempts import TransactionAttempt
from txtopo.errors import InternalError
from txtopo.transactional.core.events import TransactionMetadata
from txtopo.transactional.core.limits import Limits
from txtopo.transactional.core.transactions import Transaction, Tries
from txtopo.transactional.core.transitions import Status

NOTHING = TransactionMetadata(0, None, NEVER)
"""In place of the last committed transaction before there is one."""


def pending_end(committed: int, limits: Limits) -> int:
    """Return the highest txid that may begin or be processed while ``committed`` is the last committed one."""
    end = committed + limits.pending_max
    return end if limits.until is None else min(end, limits.until)


class Pending:
    """The pending transactions, after ``committed``, the last committed one."""

    def __init__(self, limits: Limits, committed: TransactionMetadata = NOTHING) -> None:
        self.committed = committed
        self.by_txid: dict[int, Transaction] = {}
        self._limits = limits
        self.tries: dict[int, Tries] = {}
        """Also of those that were rolled back, whose attempts are counted on."""

    def __iter__(self) -> Iterator[Transaction]:
        """Go through them in order."""
        return iter(self.by_txid.values())

    def __len__(self) -> int:
        return len(self.by_txid)

    @property
    def first(self) -> Transaction | None:
        """The lowest uncommitted one."""
        return self.by_txid.get(self.committed.txid + 1)

    @property
    def last_begun(self) -> Transaction | TransactionMetadata:
        """The last one, or the committed one if there is none."""
        return self.known(self.committed.txid + len(self.by_txid))

    @property
    def end(self) -> int:
        """The highest txid that may begin or be processed now."""
        return pending_end(self.committed.txid, self._limits)

    def known(self, txid: int) -> Transaction | TransactionMetadata:
        """Return a pending transaction, or the last committed one."""
        return self.committed if txid == self.committed.txid else self.by_txid[txid]

    def live(self, attempts: Iterable[TransactionAttempt]) -> list[Transaction]:
        """Return the transactions of those of some attempts that are live."""
        candidates = ((self.by_txid.get(attempt.txid), attempt) for attempt in attempts)
        return [transaction for transaction, attempt in candidates if transaction and transaction.is_live(attempt)]

    def of_status(self, *statuses: Status) -> list[Transaction]:
        """Return those of some statuses."""
        return [transaction for transaction in self.by_txid.values() if transaction.status in statuses]

    def is_processing(self, txid: int, job_id: int) -> bool:
        """Return whether a transaction is being processed in a job."""
        transaction = self.by_txid.get(txid)
        return transaction is not None and transaction.job_id == job_id and transaction.status is Status.PROCESSING

    def begin(self, metadata: TransactionMetadata) -> None:
        """Add the next transaction."""
        last = self.last_begun.txid
        if metadata.txid != last + 1:
            raise InternalError(f"transaction {metadata.txid} begun after {last}")
        tries = self.tries.setdefault(metadata.txid, Tries())
        self.by_txid[metadata.txid] = Transaction(metadata.txid, metadata.metadata, metadata.planned, tries)

    def forget(self, transaction: Transaction) -> None:
        """Take the last one out, which has to begin again."""
        del self.by_txid[transaction.txid]

    def commit(self, transaction: Transaction) -> None:
        """Take the first one out: it is the last committed one now."""
        self.committed = TransactionMetadata(transaction.txid, transaction.metadata, transaction.planned)
        del self.by_txid[transaction.txid]
        self.tries.pop(transaction.txid, None)

    def job(self, now_ms: int, transactions_max: int) -> list[Transaction]:
        """Return the transactions of the next job: the lowest ready one and the ready ones that directly follow it.

        - Transactions beyond the bound of pending ones wait; an earlier run with a higher bound may have begun them.
        - A transaction whose job was lost runs in a separate job.
        - One whose loss is unproven waits for others; if all losses are, the one that was lost first is tried again
          first.
        - All see the same versions of reference tables, so a process goes from one version to the next once.
        - No transaction is chosen after one whose end the spout must know first.
        """
        job: list[Transaction] = []
        unproven: list[Transaction] = []
        has_witness = False
        end = self.end
        for transaction in self.by_txid.values():
            is_ready = transaction.status is Status.READY and transaction.txid <= end
            if is_ready and transaction.tries.is_unproven:
                unproven.append(transaction)
                is_ready = False
            has_witness |= is_ready
            fits = is_ready and transaction.tries.not_before_ms <= now_ms and not (job and transaction.tries.is_suspect)
            fits = fits and not (job and transaction.planned.references != job[0].planned.references)
            if fits:
                job.append(transaction)
                if transaction.tries.is_suspect or len(job) >= transactions_max:
                    return job
            elif job:
                return job
            # Later transactions of an opaque spout begin where this one ends, so none can start before it.
            elif transaction.status in self._limits.spout.unknown:
                return []
        if unproven and not has_witness:
            first = min(unproven, key=lambda transaction: (transaction.tries.not_before_ms, transaction.txid))
            return [first] if first.tries.not_before_ms <= now_ms else []
        return job

    def has_witness(self) -> bool:
        """Return whether one is ready; if it is processed, the loss of another one is not the fault of Spark.

        Not one that follows another whose end the spout must know first.
        """
        for transaction in self.by_txid.values():
            if transaction.txid > self.end:
                return False
            if transaction.status is Status.READY:
                return True
            if transaction.status in self._limits.spout.unknown:
                return False
        return False

    def group(self) -> list[Transaction]:
        """Return the next commit group: consecutive processed transactions, starting at the lowest uncommitted one."""
        group: list[Transaction] = []
        for transaction in self.by_txid.values():
            if transaction.status is not Status.PROCESSED or len(group) == self._limits.group_transactions_max:
                break
            group.append(transaction)
        return group

    def may_grow(self, group: Sequence[Transaction], *, is_open: bool) -> bool:
        """Return whether others may join a group that waits: some are pending, or may begin while ``is_open``."""
        if len(group) == self._limits.group_transactions_max:
            return False
        return len(group) < len(self) or (is_open and self.last_begun.txid < self.end)
