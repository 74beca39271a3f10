"""Chooses the transactions of the next job and of the next commit group. Pure functions of the coordinator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from txtopo.transactional.core.limits import Limits
from txtopo.transactional.core.transactions import Transaction
from txtopo.transactional.core.transitions import Status


def pending_end(committed: int, limits: Limits) -> int:
    """Return the highest txid that may begin or be processed while ``committed`` is the last committed one."""
    end = committed + limits.pending_max
    return end if limits.until is None else min(end, limits.until)


def choose_job(
    pending: Mapping[int, Transaction], committed: int, now_ms: int, limits: Limits, transactions_max: int
) -> list[Transaction]:
    """Return the transactions of the next job: the lowest ready one and the ready ones that directly follow it.

    - Transactions beyond the bound of pending ones wait; an earlier run with a higher bound may have begun them.
    - A transaction whose job was lost runs in a job of its own.
    - No transaction is chosen after one whose end the spout must know first.
    """
    job: list[Transaction] = []
    end = pending_end(committed, limits)
    for transaction in _in_order(pending, committed):
        is_due = transaction.status is Status.READY and transaction.tries.not_before_ms <= now_ms
        fits = is_due and not (job and transaction.tries.is_suspect)
        if fits and transaction.txid <= end:
            job.append(transaction)
            if transaction.tries.is_suspect or len(job) >= transactions_max:
                return job
        elif job:
            return job
        # Later transactions of an opaque spout begin where this one ends, so none can start before it.
        elif transaction.status in limits.spout.unknown:
            return []
    return job


def choose_group(pending: Mapping[int, Transaction], committed: int, limits: Limits) -> list[Transaction]:
    """Return the next commit group: consecutive processed transactions, starting at the lowest uncommitted one."""
    group: list[Transaction] = []
    for transaction in _in_order(pending, committed):
        if transaction.status is not Status.PROCESSED or len(group) == limits.group_transactions_max:
            break
        group.append(transaction)
    return group


def _in_order(pending: Mapping[int, Transaction], committed: int) -> Iterable[Transaction]:
    txid = committed + 1
    while (transaction := pending.get(txid)) is not None:
        yield transaction
        txid += 1
