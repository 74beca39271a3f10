"""The coordinator: events in, actions out, through one method. This is its theory of operation.

Overview
========
A stream is cut into transactions 1, 2, 3 and so on. Their processing phases overlap; their commit phases run strictly
in order. The coordinator decides which transactions begin, which are processed together, which commit together, which
are replayed, and when to stop. It decides nothing else, and it has no effects: it takes events through ``handle`` and
returns a list of actions. The run loop carries them out and answers with more events. The coordinator has no clock
(``Ticked`` carries the time), no threads and no randomness, so the same events give the same actions, and a simulator
can run 100,000 schedules of crashes against this very class.

Every event is handled in two steps. ``_take_in`` applies it: it moves transactions by the table in ``transitions`` and
decides nothing. Then ``_advance`` looks at the resulting state and does everything that is possible now: stop, commit
a group, ask the spout, start jobs. What is possible depends on the state alone, not on the events that led to it, so
no combination of events can be forgotten. Commits come first because they make room for new transactions.

Pending transactions
====================
The transactions that are begun and not yet committed are *pending*: consecutive, without a gap, at most
``limits.pending_max``. That bounds everything else: attempts in flight, metadata in memory, results that wait for
their turn. The spout's coordinator is asked for several transactions at once, but for one request at a time, because
each transaction's metadata continues from the one before.

The metadata of a repeatable spout is durable before any of its tuples is emitted: ``SaveMetadata`` precedes the
``Process`` that needs it, and the run loop does actions in order. A crash between the two leaves a transaction that is
begun but was never processed; the next coordinator finds its metadata and uses it for the same transaction.

Jobs
====
A job has a fixed cost, so one job processes several consecutive transactions that are ready. No transaction waits for
a job to fill up: a single ready one makes a job of one. The job sizer sets the maximum. Each attempt is answered
individually (``Processed``, ``Failed``); an attempt without an answer when its job ends has failed.

When a job is lost, it is unknown which transaction is to blame: one of the job, or one of another job that the same
executor worked for. So each transaction of a lost job is a *suspect*: it runs in a separate job, and no other job is
in flight beside it. If that is lost, no other transaction can have been the cause, but the cluster can: a connection
between two executors that breaks loses whatever is tried. So the loss is *unproven*, and another transaction is tried
next. The loss of a suspect counts as its own failure if another transaction was processed just before it and another
one is processed after it. If there is no other one to try, it counts at once. Several losses in a row, with a growing
pause between them, stop the run: then the fault is Spark's and not a transaction's. Jobs that were in flight together
are lost together, which is one loss.

The first loss of a transaction makes it a suspect and never counts, even if it was alone. A connection that breaks
while a suspect runs counts as one of its tries, for nothing tells it from a transaction that ends its executor. So if
others can be tried, one break, however long it lasts, costs one suspect one try at most.

1. Jobs 4 and 5 hold transactions 7 and 8. Transaction 7 ends the process of the executor, and both jobs are lost.
2. Transaction 7 runs alone, and its job is lost. Then 8 runs, alone as well, and is processed: the cluster works.
3. Transaction 7 is lost again, and 9 is processed: its first failure. With two tries at most, 7 is given up when it is
   lost once more, and 10 is processed.
4. If it was a connection that had broken, 8 is lost like 7, and so are 9 and 10. Nobody is to blame, nothing is given
   up, and the run stops after ``job_failures_max`` losses, or goes on as soon as one is processed.

In real-time mode a job is not lost as a whole: its attempts are spread over workers that answer them one by one, and
only the attempt that a worker died in is lost (``AttemptLost``). It is treated as a lost job of its own; the other
attempts of its job go on.

Commit groups
=============
As soon as the lowest uncommitted transaction is processed, it commits together with the processed ones that directly
follow it: group commit, as in databases. One group is in flight. Its commit phases run one after another in txid order,
then its Delta writes are made together. If one fails, those before it commit, it is replayed, and those after it
*return*: they remain processed, with the same attempt, and join a later group.

1. Transactions 4, 5 and 6 are processed and commit as group 2.
2. The commit phase of 5 raises FailedException. The run loop writes 4, answers ``Committed(4)``, ``Failed(5)``, and
   then ``GroupEnded(2)``.
3. 4 is no longer pending. 5 is ready again. 6, whose turn did not come, is still processed.
4. 5 is processed again, and group 3 holds 5 and 6: the work of 6 was not lost.

A group that wrote rows again which it did not touch costs as much with a few transactions as with many. The next one
then gathers transactions for a while (``GroupEnded.gather_ms``), until it is full or no further one can come. So
answers come later, and nothing that is decided waits.

Attempts and late answers
=========================
Each try at a transaction is an attempt with its own number, which only rises, even across crashes, because its high
bits are the epoch. One attempt of a transaction is live, and only its answers count. (Storm drops the live attempt when
an older one fails late; txtopo does not.)

1. Attempt 7:1 is processing when its timeout passes. It fails, and 7:2 starts in a new job.
2. The executor of 7:1 resumes and reports that 7:1 has failed, or was processed.
3. 7:1 is not the live attempt of 7, so nothing changes; 7:2 continues.

``Committed`` must never be late: a durable write can't be taken back. So if an attempt is committed that is not live or
not next in order, that is a bug of txtopo and stops the run.

Replays of repeatable and of opaque spouts
==========================================
A *repeatable* spout emits the same batch for the same metadata. If transaction N fails, only N is replayed. Results of
later transactions remain valid, because they do not depend on how often N was tried.

An *opaque* spout emits each transaction from where the one before ended, and may emit different tuples each time. The
end of N is known only after N was emitted. Four rules follow:

- One job is in flight, and the spout is not asked for new transactions while one of those before them is not yet
  processed. Metadata comes with ``Processed``, not before.
- The failure of N rolls back N and all later ones: they are no longer pending, and their txids are begun again. Attempt
  numbers continue, which is why ``Tries`` outlives its transaction.
- A job whose transactions were rolled back is useless. It is cancelled once no attempt in it is live.
- The spout may answer after the transaction that its answer continues from was rolled back:

  1. Transaction 3 is processed, and the spout is asked for 4.
  2. The commit phase of 3 fails: 3 is no longer pending.
  3. The spout answers with a 4 that begins where the former 3 ended. The next 3 may end elsewhere, so this answer is
     stale: it is dropped, and the spout is asked again.

In a topology of *both* kinds, the same rules hold for the order of jobs, but what has begun is kept. A transaction
begins with the range of each repeatable spout and the partitions of each opaque one, which is durable before it is
emitted. A roll-back of N takes it and all later ones back to that: they stay pending and wait for a job again. Their
repeatable parts stay as they were planned, for the spouts have gone on from there. The opaque parts are cut anew; one
may turn out to be empty. An answer of the spouts that comes after a roll-back counts for the same reason, but for
what it says of the source: that may have more again.

  1. Transactions 3 and 4 begin with the orders 20 to 30 and 30 to 40, and with what the partitions of clicks have.
  2. Both are processed. The commit phase of 3 fails, and a broker of clicks is away now.
  3. 3 and 4 are emitted again. They have the same orders; 3 has no clicks, and 4 begins with those that 3 had.

Giving up
=========
By default, a transaction is tried without limit. With a limit, a transaction that has failed that often by its own
fault is *dead*. It waits until the transactions before it are committed. Then, depending on the policy, the run stops
(WAIT), or its dead letter is written at its place in the commit order (SKIP) and the next ones go on. A dead letter
that can't be written is tried again; that is no further failure of the transaction. An opaque transaction that failed
before its end was known can't be skipped, nor can the one that ends a bounded source, which nothing would end again.
Outages, of a source or of what its records need, count for themselves: after as many, the run stops with either policy.

Timeouts
========
Each live attempt has a deadline, which progress renews. The effect of a missed deadline depends on the status:

- *Processing*: the whole job is cancelled and all of its attempts fail, since a job can only be cancelled as a whole.
  If the work was still running, no harm is done: its answers are late and its results are dropped. A job that no
  executor has begun has no deadline: it waits for executors, and no transaction is to blame for that. The first
  ``Progressed`` or answer for one of its attempts says that it was begun.
- *Processed*: no work is running that could be cancelled, so the deadline has no effect.
- *Committing*: the attempt can't be cancelled and replayed, because user code may still be running and write later.
  ``AbandonCommit`` makes the run loop stop the run if commit phases are still running; if Delta writes are running, it
  waits, because those end or raise. Progress of one transaction renews the whole group, because the others wait for it.

Activation
==========
While it is deactivated, the spout is not asked for transactions. Those that have begun, or begin by an answer that was
asked for before, are processed, committed and replayed as always, until none is pending. Only the transactions of an
opaque spout that are rolled back meanwhile have to begin again, and wait.

Recovery and stop
=================
``Recovered`` is the first event: the epoch, the last committed transaction, and the transactions that are begun. The
results of an earlier coordinator's processing phases are gone, so each of these starts a new attempt in the new epoch.

A stop is recorded first and takes effect when no group is in flight: the group in flight is committed, and nothing new
begins. An error takes precedence over a plain stop, and the first error wins. ``Fenced`` does not wait for the group: a
coordinator that has lost the lead must stop at once, and the group now belongs to its successor. After ``Stop`` every
event is ignored, so late answers of threads do no harm.

1. Group 9 is being written when another coordinator takes the lead.
2. The next write of group 9 is refused. The run loop passes ``Fenced``, perhaps with other events after it.
3. The events after ``Fenced`` are ignored, the run stops, and the successor finishes group 9 or drops it.

Facts
=====
``facts`` tells what the last call has done to transactions: which answers counted, which attempts failed, returned or
were rolled back. No decision depends on them. The ``record`` of the run keeps them, and the actions carried out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, assert_never

import attrs

from txtopo.api.components.planned import BeginReason
from txtopo.attempts import TransactionAttempt
from txtopo.errors import InternalError, JobFailure, PoisonTransaction
from txtopo.transactional.core import actions, events
from txtopo.transactional.core.jobs_in_flight import JobsInFlight
from txtopo.transactional.core.limits import GiveUpPolicy, Limits
from txtopo.transactional.core.pending import Pending
from txtopo.transactional.core.record.fact_collector import FactCollector
from txtopo.transactional.core.record.facts import Fact, Trouble
from txtopo.transactional.core.record.history import HistoryEvent
from txtopo.transactional.core.transactions import Transaction
from txtopo.transactional.core.transitions import LIVE, Status, Trigger


class Coordinator:
    """Holds the state of one topology's transactions and makes every decision about them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._epoch = 0
        self._now_ms = 0
        self._pending = Pending(limits)
        self._jobs = JobsInFlight(limits)
        self._group: int | None = None
        self._gather_until_ms = 0
        self._next_group_id = 1
        self._is_active = True
        self._source = events.SourceStatus.READY
        self._source_asked = False
        self._source_answer_is_stale = False
        self._stopping: actions.Stop | None = None
        self._stopped = False
        self._facts = FactCollector()
        self._actions: list[actions.Action] = []
        """What to do about the events of this call."""
        self._is_cluster_well = True
        """Whether something was processed since the last loss."""
        self._may_be_unproven = False
        """Whether some loss may be unproven: to look for it with each answer would be a third of the core's work."""

    # Interface.

    def handle(self, *happened: events.Event, at_secs: float = 0.0) -> list[actions.Action]:
        """Apply one or several events, and return the actions to carry out, in order.

        Pass events that arrive together in one call: all transactions that a job has processed can then commit in one
        group. ``at_secs`` is the moment of the facts, on the run's clock; no decision depends on it.
        """
        self._facts.begin(at_secs)
        if self._stopped:
            return []
        self._actions = []
        for event in happened:
            self._take_in(event)
            if isinstance(event, events.Fenced):
                break  # ignore the events after it, as if they had arrived after Stop
        self._advance()
        return self._actions

    @property
    def pending(self) -> Mapping[int, Transaction]:
        """The begun, uncommitted transactions by txid, for checks and displays; do not change them."""
        return MappingProxyType(self._pending.by_txid)

    @property
    def committed(self) -> int:
        """The last committed transaction."""
        return self._pending.committed.txid

    @property
    def jobs(self) -> Mapping[int, tuple[int, ...]]:
        """The txids of each job in flight, by job id."""
        return MappingProxyType(self._jobs.txids)

    @property
    def facts(self) -> Sequence[Fact]:
        """What has happened to transactions in the last call of :meth:`handle`, in order."""
        return self._facts.facts

    def metadata_of(self, txid: int) -> Any:
        """Return the metadata of a pending transaction, or of the last committed one."""
        return self._pending.known(txid).metadata

    @property
    def transaction_us(self) -> int | None:
        """A transaction's share of a job's time in microseconds, for the topology's next run; None if unknown."""
        return self._jobs.transaction_us

    @property
    def is_committing(self) -> bool:
        """Whether a commit group, or a dead letter, is in flight."""
        return self._group is not None

    @property
    def has_stopped(self) -> bool:
        """Whether ``Stop`` was returned."""
        return self._stopped

    # Applying events.

    def _take_in(self, event: events.Event) -> None:  # noqa: C901, PLR0912 - one case per event
        match event:
            case events.Recovered():
                self._recover(event)
            case events.MetadataCreated():
                self._begin(event)
            case events.Progressed():
                self._progressed(event)
            case events.Processed():
                self._processed(event)
            case events.Failed():
                self._failed(event)
            case events.JobEnded():
                self._jobs.learn(event.job_id, event.elapsed_ms)
                self._facts.of_run(HistoryEvent.JOB_ENDED, job_id=event.job_id)
                self._end_job(event.job_id, "its job ended without an answer for it")
            case events.JobLost():
                self._lose_job(event)
            case events.AttemptLost():
                self._lose_attempt(event)
            case events.Committed():
                self._commit(event)
            case events.GroupEnded():
                self._end_group(event)
            case events.Ticked():
                self._now_ms = max(self._now_ms, event.now_ms)
                self._expire()
            case events.Deactivated():
                self._is_active = False
            case events.Activated():
                self._is_active = True
            case events.StopRequested():
                self._stop(actions.StopReason.REQUESTED)
            case events.RuleBroken():
                self._break_rule(event)
            case events.Fenced():
                self._group = None  # do not wait for its end: it belongs to the successor
                self._stop_by(event.error)
            case _:
                assert_never(event)

    def _recover(self, event: events.Recovered) -> None:
        assert self._epoch == 0, "a coordinator recovers once"
        assert event.epoch > 0, "an epoch is counted from 1"
        self._epoch = event.epoch
        self._now_ms = event.now_ms
        self._jobs = JobsInFlight(self.limits, event.transaction_us)
        self._pending = Pending(self.limits, event.committed)
        for metadata in event.begun:
            self._pending.begin(metadata)
        self._facts.begun(HistoryEvent.RECOVERED, event.begun)

    def _begin(self, event: events.MetadataCreated) -> None:
        self._source_asked = False
        if self._source_answer_is_stale:  # it continues from a transaction that was rolled back in the meantime
            self._source_answer_is_stale = False
            event = events.MetadataCreated(
                event.begun if self.limits.spout.keeps_begun else (), events.SourceStatus.READY
            )
        self._source = event.source
        for transaction in event.begun:
            self._pending.begin(transaction)
        self._facts.begun(HistoryEvent.BEGUN, event.begun)
        if event.begun and self.limits.spout.keeps_begun:
            self._do(actions.SaveMetadata(event.begun))

    def _progressed(self, event: events.Progressed) -> None:
        live = self._pending.live(event.attempts)
        if any(transaction.status is Status.COMMITTING for transaction in live):
            # Commit phases run one after another, so the others wait for this one.
            live += self._pending.of_status(Status.COMMITTING)
        for transaction in live:
            self._record_begun(transaction.job_id)
            self._renew(transaction)

    def _record_begun(self, job_id: int | None) -> None:
        """Let the time of a job's attempts run from now on, if this is the first that is heard of it."""
        if job_id is not None and self._jobs.record_begun(job_id):
            for txid in self._jobs.txids[job_id]:
                if self._pending.is_processing(txid, job_id):
                    self._renew(self._pending.by_txid[txid])

    def _processed(self, event: events.Processed) -> None:
        transaction = self._pending.by_txid.get(event.attempt.txid)
        if transaction is None or not transaction.is_live(event.attempt) or transaction.status is not Status.PROCESSING:
            return  # a late answer, see "Attempts and late answers"
        self._record_begun(transaction.job_id)
        transaction.move(Trigger.PROCESSED)
        transaction.tuples = event.tuples
        self._facts.processed(event)
        transaction.metadata = self.limits.spout.metadata_after(transaction.metadata, event.metadata)
        transaction.tries.is_unproven = False
        self._jobs.lost_in_a_row = 0  # Spark can run jobs, so earlier losses are not "in a row" any more
        self._is_cluster_well = True
        self._end_waits(is_proof=True)

    def _end_waits(self, *, is_proof: bool) -> None:
        """Let transactions whose loss is unproven be tried again; with a proof, those losses count that are charged."""
        if not self._may_be_unproven:
            return
        for transaction in [each for each in self._pending if each.tries.is_unproven]:
            transaction.tries.is_unproven = False
            transaction.tries.failures += is_proof and transaction.tries.is_charged
            # One that is tried again, because all losses were unproven, is judged when that attempt has ended.
            if transaction.status is Status.READY:
                self._give_up_if_due(transaction)
        self._may_be_unproven = any(tries.is_unproven for tries in self._pending.tries.values())

    def _failed(self, event: events.Failed) -> None:
        for transaction in self._pending.live([event.attempt]):
            if transaction.status is Status.WRITING_DEAD_LETTER:
                # Writing the dead letter failed; that is no further failure of the transaction.
                self._facts.trouble(transaction, HistoryEvent.FAILED, event.error)
                transaction.move(Trigger.FAIL)
                continue
            self._record_begun(transaction.job_id)
            if event.is_outage:
                transaction.tries.outages += 1
            else:
                transaction.tries.failures += 1
            self._end_waits(is_proof=False)  # or a transaction that fails for ever would be waited for
            was_processed = transaction.status is not Status.PROCESSING
            if event.metadata is not None:
                transaction.metadata = self.limits.spout.metadata_after(transaction.metadata, event.metadata)
            was_emitted = was_processed or event.metadata is not None
            self._fail(transaction, event, was_emitted=was_emitted)

    def _break_rule(self, event: events.RuleBroken) -> None:
        """Stop the run; end the attempt with the reason, which the end of its job would not know."""
        self._stop_by(event.error, event.attempt)
        for transaction in self._pending.live(() if event.attempt is None else [event.attempt]):
            component = getattr(event.error, "component", None)
            self._facts.trouble(transaction, HistoryEvent.FAILED, str(event.error), component)
            transaction.move(Trigger.FAIL)

    def _fail(self, transaction: Transaction, event: events.Failed, *, was_emitted: bool = False) -> None:
        transaction.tries.error = event.error
        transaction.tries.failed_attempts += 1
        # A run that stops for an error reports only that.
        is_counted = self._stopping is None or self._stopping.error is None
        trouble = Trouble(
            self._facts.at_secs,
            HistoryEvent.FAILED,
            (event.attempt.txid,),
            (event.attempt,),
            cpu_secs=event.cpu_secs,
            component=event.component,
            reason=event.error,
            times=transaction.tries.failed_attempts if is_counted else 0,
            is_logged=event.is_logged,
        )
        self._facts.tell(trouble)
        transaction.move(Trigger.FAIL)
        self._give_up_if_due(transaction, was_emitted=was_emitted)
        # A given-up transaction stays pending until its turn to end; only later ones may have to begin again.
        is_given_up = transaction.status is Status.DEAD
        first = self.limits.spout.roll_back_from(transaction.txid, is_given_up=is_given_up)
        if first is not None:
            self._roll_back(first, transaction.txid)

    def _give_up_if_due(self, transaction: Transaction, *, was_emitted: bool = False) -> None:
        """Give up a transaction that is ready and has failed as often as it may."""
        tries, tries_max = transaction.tries, self.limits.tries_max
        gives_up = tries_max is not None and max(tries.failures, tries.outages) >= tries_max
        # Nobody would end event time again: what its last windows hold would never be said.
        can_skip = (
            self.limits.spout.can_skip(was_emitted=was_emitted) and transaction.planned.turn is not BeginReason.END
        )
        can_skip = can_skip and tries.failures >= tries.outages
        if gives_up and (can_skip or self.limits.give_up_policy is GiveUpPolicy.WAIT):
            self._facts.trouble(transaction, HistoryEvent.GIVEN_UP)
            transaction.move(Trigger.GIVE_UP)
        elif gives_up:
            self._stop(actions.StopReason.FAILED, self._poison(transaction))

    def _roll_back(self, first_txid: int, failed_txid: int) -> None:
        for transaction in [each for each in self._pending if each.txid >= first_txid]:
            if transaction.txid != failed_txid:
                self._facts.trouble(
                    transaction, HistoryEvent.ROLLED_BACK, f"it follows transaction {failed_txid}, which failed"
                )
            if transaction.status is Status.PROCESSING:
                self._jobs.record_rolled_back(transaction.job_id)
            if self.limits.spout.keeps_begun:
                transaction.roll_back()
            else:
                self._pending.forget(transaction)
        self._source_answer_is_stale = self._source_asked
        # It was exhausted after the transactions that were rolled back.
        if self._source is events.SourceStatus.EXHAUSTED:
            self._source = events.SourceStatus.READY

    def _lose_job(self, event: events.JobLost) -> None:
        self._facts.of_run(HistoryEvent.JOB_LOST, job_id=event.job_id)
        if self._jobs.is_expected(event.job_id) and not self._is_to_blame(event.job_id):
            self._jobs.record_lost(event.job_id)
        self._end_job(event.job_id, event.error)
        self._stop_if_lost_too_often(event.error)

    def _lose_attempt(self, event: events.AttemptLost) -> None:
        for transaction in self._pending.live([event.attempt]):
            job_id = transaction.job_id
            if transaction.status is Status.PROCESSING and job_id is not None:
                if not self._is_to_blame(job_id):
                    self._jobs.record_lost(job_id)
                self._fail_job(job_id, (transaction.txid,), event.error)
                self._stop_if_lost_too_often(event.error)

    def _stop_if_lost_too_often(self, error: str) -> None:
        lost = self._jobs.lost_in_a_row
        if lost > self.limits.job_failures_max:
            message = f"Spark lost {lost} jobs in a row; fix the cause below, then start again"
            self._stop(actions.StopReason.FAILED, JobFailure(message, cause=error))

    def _is_to_blame(self, job_id: int) -> bool:
        """Whether a lost job is the fault of one transaction, a suspect that has failed before.

        While others can still prove it, that is unknown. With bounded tries that transaction will be given up, so the
        loss must not stop the run.
        """
        transaction = self._pending.by_txid.get(self._jobs.txids[job_id][0])
        failed_before = transaction is not None and transaction.tries.is_suspect and transaction.tries.failures > 0
        return failed_before and not self._pending.has_witness() and self.limits.tries_max is not None

    def _end_job(self, job_id: int, error: str) -> None:
        self._fail_job(job_id, self._jobs.end(job_id), error)

    def _fail_job(self, job_id: int, txids: tuple[int, ...], error: str) -> None:
        """Fail attempts of a job that are still processing; blame a suspect, which had nothing beside it."""
        for txid in txids:
            if not self._pending.is_processing(txid, job_id):
                continue
            transaction = self._pending.by_txid[txid]
            tries = transaction.tries
            tries.not_before_ms = self._now_ms + self._jobs.pause_ms
            # Of one that was no suspect, another one may be at fault.
            tries.is_unproven = tries.is_suspect and self._pending.has_witness()
            self._may_be_unproven |= tries.is_unproven
            tries.failures += tries.is_suspect and not tries.is_unproven
            tries.is_charged = self._is_cluster_well
            tries.is_suspect = True
            self._is_cluster_well = False
            assert transaction.attempt is not None, "what is processing has an attempt"
            self._fail(transaction, events.Failed(transaction.attempt, error))

    def _commit(self, event: events.Committed) -> None:
        history_event, tuples = HistoryEvent.COMMITTED, []
        for attempt in event.attempts:
            transaction = self._pending.first
            if transaction is None or not transaction.is_live(attempt):
                raise InternalError(f"{attempt} committed out of turn, after {self.committed}")
            if transaction.status is Status.WRITING_DEAD_LETTER:  # which is alone in its group
                history_event = HistoryEvent.DEAD_LETTER_WRITTEN
            tuples.append(transaction.tuples)
            transaction.move(Trigger.COMMITTED)
            self._pending.commit(transaction)
        if event.attempts:
            self._facts.committed(history_event, event.attempts, tuple(tuples), event.measures)
            self._do(actions.CleanUp(self.committed))

    def _end_group(self, event: events.GroupEnded) -> None:
        if event.group_id != self._group:
            raise InternalError(f"commit group {event.group_id} ended, {self._group} is in flight")
        for transaction in self._pending.of_status(Status.COMMITTING, Status.WRITING_DEAD_LETTER):
            self._facts.trouble(transaction, HistoryEvent.RETURNED)
            transaction.move(Trigger.RETURN)
        self._facts.of_run(HistoryEvent.GROUP_ENDED, group_id=event.group_id, measures=event.measures)
        self._group = None
        self._gather_until_ms = self._now_ms + event.gather_ms

    def _expire(self) -> None:
        expired = [t for t in self._pending if t.attempt and t.deadline_ms <= self._now_ms]
        if self._group is not None and any(t.status is Status.COMMITTING for t in expired):
            self._do(actions.AbandonCommit(self._group))
            for transaction in self._pending.of_status(Status.COMMITTING):
                self._renew(transaction)  # ask once per timeout, not at every tick: a long Delta write may continue
        error = f"no progress for {self.limits.timeout_ms / 1000:g} s"
        processing = {t.job_id for t in expired if t.status is Status.PROCESSING and t.job_id}
        for job_id in sorted(filter(self._jobs.was_begun, processing)):
            # Spark cancels whole jobs only. The job stays in flight until the run loop reports its end.
            self._cancel(job_id)
            self._fail_job(job_id, self._jobs.txids.get(job_id, ()), error)

    def _do(self, action: actions.Action) -> None:
        self._actions.append(action)

    def _cancel(self, job_id: int) -> None:
        if self._jobs.cancel(job_id):
            self._do(actions.CancelJob(job_id))

    # Decisions.

    def _advance(self) -> None:
        if self._epoch == 0:  # not recovered yet, so nothing is known that could be decided on
            return
        self._look_for_end()
        if self._stopping is not None:
            self._finish(self._stopping)
            return
        self._commit_next()
        self._ask_source()
        self._process_next()

    def _look_for_end(self) -> None:
        first = self._pending.first
        if first is not None and first.status is Status.DEAD and self.limits.give_up_policy is GiveUpPolicy.WAIT:
            self._stop(actions.StopReason.FAILED, self._poison(first))
        elif self.limits.until is not None and self.committed >= self.limits.until:
            self._stop(actions.StopReason.UNTIL)
        elif self._source is events.SourceStatus.EXHAUSTED and not self._pending and not self._source_asked:
            self._stop(actions.StopReason.EXHAUSTED)

    def _stop(self, reason: actions.StopReason, error: Exception | None = None) -> None:
        if self._stopping is None or (self._stopping.error is None and error is not None):
            self._stopping = actions.Stop(reason, error)

    def _stop_by(self, error: Exception, attempt: TransactionAttempt | None = None) -> None:
        """Stop for an error that is no attempt's failure, perhaps found in an attempt."""
        self._facts.stopped(error, attempt)
        self._stop(actions.StopReason.FAILED, error)

    def _finish(self, stop: actions.Stop) -> None:
        if self._group is not None:
            return  # the group in flight is committed first
        for job_id in self._jobs.txids:
            self._cancel(job_id)
        self._stopped = True
        self._do(stop)

    def _commit_next(self) -> None:
        if self._group is not None:
            return
        first = self._pending.first
        if first is not None and first.status is Status.DEAD:
            first.begin_attempt(self._epoch, Trigger.WRITE_DEAD_LETTER)
            (given_up,) = _assigned([first])
            self._group = self._take_group_id()
            self._do(actions.DeadLetter(self._group, given_up, first.tries.failures, first.tries.error))
            return
        group = self._pending.group()
        if group and not self._is_gathering(group):
            for transaction in group:
                transaction.move(Trigger.COMMIT)
                self._renew(transaction)
            self._group = self._take_group_id()
            failures = [transaction.tries.error for transaction in group]
            pairs = zip(_assigned(group), failures, strict=True)
            self._do(actions.Commit(self._group, tuple(attrs.evolve(attempt, failure=why) for attempt, why in pairs)))

    def _is_gathering(self, group: Sequence[Transaction]) -> bool:
        """Whether a group waits for further transactions."""
        is_open = self._is_active and self._source is not events.SourceStatus.EXHAUSTED
        return self._now_ms < self._gather_until_ms and self._pending.may_grow(group, is_open=is_open)

    def _ask_source(self) -> None:
        if not self._is_active:
            return
        last = self._pending.last_begun
        count = self._pending.end - last.txid
        unknown = self.limits.spout.unknown
        if unknown:
            if self.limits.give_up_policy is GiveUpPolicy.WAIT:
                unknown |= {Status.DEAD}  # it is not skipped, and its end may be unknown
            if self._pending.of_status(*unknown):
                return  # the spout's coordinator does not know what is left until the emitters have emitted these
        count = self.limits.spout.begun_max(count, self.limits.job_transactions_max)
        if count > 0 and self._source is not events.SourceStatus.EXHAUSTED and not self._source_asked:
            self._source_asked = True
            self._do(actions.CreateMetadata(last.txid + 1, count, last.metadata, last.planned))

    def _process_next(self) -> None:
        for job_id in self._jobs.useless(self._pending.is_processing):
            self._cancel(job_id)
        if not self._jobs.have_begun:
            self._jobs.prepare_for(len(self._pending.of_status(Status.READY)))
        # Two jobs of an opaque spout would both continue from the same transaction.
        jobs_max = self.limits.spout.jobs_max(self.limits.jobs_max)
        while len(self._jobs.txids) < jobs_max:
            size = self._jobs.transactions_max
            job = self._pending.job(self._now_ms, size)
            if not job:
                return
            is_suspect = job[0].tries.is_suspect
            if self._jobs.has_suspect or (is_suspect and self._jobs.txids):
                return  # a suspect's job is the only one in flight
            job_id = self._jobs.start([transaction.txid for transaction in job], of_suspect=is_suspect)
            for transaction in job:
                transaction.begin_attempt(self._epoch, Trigger.START)
                transaction.job_id = job_id
                self._renew(transaction)
            self._do(actions.Process(job_id, _assigned(job), self.metadata_of(job[0].txid - 1)))

    # Helpers.

    def _take_group_id(self) -> int:
        self._next_group_id += 1
        return self._next_group_id - 1

    def _renew(self, transaction: Transaction) -> None:
        transaction.deadline_ms = self._now_ms + self.limits.timeout_ms

    def _poison(self, transaction: Transaction) -> PoisonTransaction:
        tries = transaction.tries
        advice = f"or set it aside with 'txtopo skip MODULE {transaction.txid}', as the policy SKIP does by itself"
        if tries.outages > tries.failures:
            return PoisonTransaction(
                f"something that it needs did not answer {tries.outages} times, the maximum of "
                "topology.transaction.max.attempts; nothing of it is skipped: start again when there is an answer",
                txid=transaction.txid,
                cause=tries.error,
            )
        if transaction.planned.turn is BeginReason.END:
            advice = "as it can't be skipped: it ends event time"
        elif self.limits.give_up_policy is GiveUpPolicy.SKIP:
            advice = "as it can't be skipped: the end of its batch is unknown"
        elif not self.limits.spout.can_skip(was_emitted=False):
            # Only a run learns where its batch ends.
            advice = "or let topology.transaction.max.attempts.policy = SKIP set it aside"
        return PoisonTransaction(
            f"it failed {tries.failures} times, the maximum of topology.transaction.max.attempts; "
            f"fix its cause and start again, {advice}",
            txid=transaction.txid,
            cause=tries.error,
        )


def _assigned(transactions: Iterable[Transaction]) -> tuple[actions.AssignedAttempt, ...]:
    assigned = []
    for transaction in transactions:
        assert transaction.status in LIVE, "actions contain only live attempts"
        assert transaction.attempt is not None, "a live status has an attempt"
        assigned.append(actions.AssignedAttempt(transaction.attempt, transaction.metadata, transaction.planned))
    return tuple(assigned)
