"""Chooses the transactions of the next job and of the next commit group. Pure functions of the coordinator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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
    - One whose loss is unproven waits for others; if all losses are, the one that was lost first is tried again first.
    - All see the same versions of reference tables, so a process goes from one version to the next once.
    - No transaction is chosen after one whose end the spout must know first.
    """
    job: list[Transaction] = []
    unproven: list[Transaction] = []
    has_witness = False
    end = pending_end(committed, limits)
    for transaction in _in_order(pending, committed):
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
        elif transaction.status in limits.spout.unknown:
            return []
    if unproven and not has_witness:
        first = min(unproven, key=lambda transaction: (transaction.tries.not_before_ms, transaction.txid))
        return [first] if first.tries.not_before_ms <= now_ms else []
    return job


def witnesses(pending: Mapping[int, Transaction], committed: int, limits: Limits) -> list[Transaction]:
    """Return the ready transactions; if one is processed, the loss of another one is not the fault of Spark.

    None follow one whose end the spout must know first.
    """
    found = []
    for transaction in _in_order(pending, committed):
        if transaction.txid > pending_end(committed, limits):
            break
        if transaction.status is Status.READY:
            found.append(transaction)
        if transaction.status in limits.spout.unknown:
            break
    return found


def choose_group(pending: Mapping[int, Transaction], committed: int, limits: Limits) -> list[Transaction]:
    """Return the next commit group: consecutive processed transactions, starting at the lowest uncommitted one."""
    group: list[Transaction] = []
    for transaction in _in_order(pending, committed):
        if transaction.status is not Status.PROCESSED or len(group) == limits.group_transactions_max:
            break
        group.append(transaction)
    return group


def may_grow(
    group: Sequence[Transaction], pending: Mapping[int, Transaction], committed: int, limits: Limits, *, is_open: bool
) -> bool:
    """Whether further transactions may join a group that waits: some are pending, or may begin while ``is_open``."""
    if len(group) == limits.group_transactions_max:
        return False
    return len(group) < len(pending) or (is_open and committed + len(pending) < pending_end(committed, limits))


def _in_order(pending: Mapping[int, Transaction], committed: int) -> Iterable[Transaction]:
    txid = committed + 1
    while (transaction := pending.get(txid)) is not None:
        yield transaction
        txid += 1
