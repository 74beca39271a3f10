"""What lets a topology go on that stands still: a transaction set aside, newer versions of reference tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import attrs

from txtopo.api.components.planned import BeginReason
from txtopo.api.reference import SeenVersion
from txtopo.assembly.feed.references import References
from txtopo.assembly.start import begun_journal, journal_header, recovered_alone
from txtopo.assembly.storage import states_of
from txtopo.assembly.threads import ThreadPools
from txtopo.attempts import TransactionAttempt, attempt_number, transactions_words
from txtopo.config import Config
from txtopo.errors import StopError
from txtopo.failpoints import durable_step
from txtopo.journal.entries import DEAD_LETTERS
from txtopo.topology.plans.plan import Plan
from txtopo.transactional.commit.entries import input_ranges
from txtopo.transactional.commit.groups import GroupCommitter
from txtopo.transactional.core.actions import AssignedAttempt, DeadLetter
from txtopo.transactional.core.events import Fenced, RuleBroken, TransactionMetadata
from txtopo.transactional.core.spout_policy import policy_of
from txtopo.transactional.recovery.recover import RecoveredRun
from txtopo.transactional.tasks.factory import TaskFactory


@attrs.frozen
class SetAside:
    """A transaction that is to be set aside."""

    transaction: TransactionMetadata
    ranges: Mapping[str, tuple[Any, Any]]
    """Its input, (start, end) by partition; empty if the spout does not report it."""
    table: str
    """Where its dead letter goes."""


def skip(plan: Plan, config: Config, txid: int, reason: str, agree: Callable[[SetAside], None]) -> None:
    """Set the first transaction that is not committed aside, as the policy SKIP does, while the topology doesn't run.

    Args:
        plan: the topology's.
        config: its configuration, whatever its policy.
        txid: the transaction.
        reason: what its dead letter gives as the error.
        agree: is told what will be done before anything is, and raises StopError if that is not to be.

    Raises:
        StopError: it is not the first one that is not committed, or can't be skipped; nothing was written.
    """
    settings = {"topology.transaction.max.attempts.policy": "SKIP", "topology.transaction.max.attempts": 1}
    config = config.with_settings(settings)
    states = states_of(plan, config)
    with ExitStack() as stack:
        task_factory = TaskFactory(plan, config, {})
        stack.callback(task_factory.close)
        coordinator_state, recovered = recovered_alone(plan, config, states, stack)
        transaction = _to_skip(plan, recovered, txid)
        ranges = input_ranges(plan.spouts, transaction.metadata, recovered.committed.metadata)
        agree(SetAside(transaction, ranges, str(states[DEAD_LETTERS].address)))
        header = journal_header(plan, config, states, recovered, coordinator_state)
        journal = begun_journal(header, plan, config, list, stack)  # one entry cuts nothing
        threads = ThreadPools(1)
        stack.callback(threads.shut_down, lambda: None, lambda: None)
        committer = GroupCommitter(
            task_factory,
            recovered.states,
            coordinator_state,
            recovered.committed,
            threads=threads,
            journal=journal,
        )
        attempt = TransactionAttempt(txid, attempt_number(coordinator_state.epoch, 0))
        given_up = AssignedAttempt(attempt, transaction.metadata, transaction.planned)
        for event in committer.write_dead_letter(DeadLetter(0, given_up, 0, reason)):
            if isinstance(event, (Fenced, RuleBroken)):
                raise event.error
        committer.flush()


def replan(plan: Plan, config: Config, agree: Callable[[Sequence[SeenVersion]], None]) -> None:
    """Let transactions that are begun and not committed see the newest versions of the topology's reference tables.

    The topology must not be running. The journal and the audit know which version each was planned with first.

    Args:
        plan: the topology's.
        config: its configuration.
        agree: is told the new versions of one of the transactions before anything is done, and raises StopError if it
            is not to be; not called if there is nothing to do.
    """
    with ExitStack() as stack:
        coordinator_state, recovered = recovered_alone(plan, config, states_of(plan, config), stack)
        again = References(plan.references).again(recovered.begun)
        if not again:
            return
        agree(again[0].planned.references)
        # A crash before this leaves what was planned, and the command can be run again; the one write changes all.
        with durable_step("references.replan"):
            coordinator_state.save_metadata(again)


def _to_skip(plan: Plan, recovered: RecoveredRun, txid: int) -> TransactionMetadata:
    committed = recovered.committed.txid
    if txid <= committed:
        raise StopError(f"transaction {txid} is committed or set aside already; nothing was written", txid=txid)
    if txid > committed + 1:
        before = transactions_words(committed + 1, txid - 1)
        raise StopError(
            f"it is not the first that is not committed: commit {before} with 'txtopo run MODULE --until {txid - 1}', "
            "or set aside what keeps that from its end; nothing was written",
            txid=txid,
        )
    if not policy_of(plan.kinds).can_skip(was_emitted=False):
        raise StopError(
            "only a run learns where its batch ends, as it is one of an opaque spout; nothing was written: run with "
            f"--until {txid} and topology.transaction.max.attempts.policy = SKIP, which sets it aside if it is no bug",
            txid=txid,
        )
    found = next((transaction for transaction in recovered.begun if transaction.txid == txid), None)
    if found is None:
        raise StopError("it has not begun; nothing was written", txid=txid)
    if found.planned.turn is BeginReason.END:
        raise StopError("it can't be skipped: it ends event time; nothing was written", txid=txid)
    return found
