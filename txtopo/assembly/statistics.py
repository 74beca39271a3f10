"""What a run counts, and the three ways it is shown: as progress, in snapshots and in the report at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from txtopo.assembly.parts import Parts
from txtopo.assembly.report import Progress, RunReport
from txtopo.assembly.snapshot import Snapshot, TransactionSnapshot
from txtopo.attempts import TransactionAttempt
from txtopo.errors import TxtopoError
from txtopo.topology.builders.checks import OWN_PREFIX
from txtopo.topology.user_code.output import OutputOrigin
from txtopo.transactional.core.actions import StopReason
from txtopo.transactional.core.limits import GiveUpPolicy
from txtopo.transactional.core.measures import Measures
from txtopo.transactional.core.readings import Readings
from txtopo.transactional.core.record.facts import Fact, Trouble
from txtopo.transactional.core.record.history import HistoryEvent, first_line
from txtopo.transactional.core.record.record import Record
from txtopo.transactional.core.transactions import Transaction
from txtopo.transactional.core.transitions import Status
from txtopo.transactional.tasks.failures import FailureLog

PROGRESS_SECS = 0.1
"""How often a run reports its progress: a display that is drawn more often shows no more."""

SNAPSHOT_SECS = 1.0
"""How often a run writes its snapshot: ``txtopo explain`` shows what was a second ago."""

SNAPSHOT_TRANSACTIONS_MAX = 100
"""Maximum number of transactions in a snapshot: the lowest uncommitted ones."""

SNAPSHOT_READINGS_MAX = 100
"""Maximum number of readings in a snapshot."""


class PhaseTimes:
    """How long jobs and commit groups have lasted, by the moments of their facts; one that has not ended, until now."""

    def __init__(self) -> None:
        self._jobs: dict[int | None, float] = {}
        """When each of those in flight began, by its id."""
        self._groups: dict[int | None, float] = {}
        self._processing_secs = self._commit_secs = 0.0

    def add(self, fact: Fact) -> None:
        """Add the time of a job or group that has ended."""
        match fact.what:
            case HistoryEvent.PROCESSING:
                self._jobs[fact.job_id] = fact.at_secs
            case HistoryEvent.JOB_ENDED | HistoryEvent.JOB_LOST:
                self._processing_secs += fact.at_secs - self._jobs.pop(fact.job_id, fact.at_secs)
            case HistoryEvent.COMMITTING | HistoryEvent.WRITING_DEAD_LETTER:
                self._groups[fact.group_id] = fact.at_secs
            case HistoryEvent.GROUP_ENDED:
                self._commit_secs += fact.at_secs - self._groups.pop(fact.group_id, fact.at_secs)

    def processing_secs(self, now_secs: float) -> float:
        """Return the time of all jobs, summed over those that overlap."""
        return self._processing_secs + sum(now_secs - began for began in self._jobs.values())

    def commit_secs(self, now_secs: float) -> float:
        """Return the time of all commit groups, dead letters included."""
        return self._commit_secs + sum(now_secs - began for began in self._groups.values())


class RunStatistics:
    """Counts what a run does, and shows it. Only the run loop's thread may use it."""

    def __init__(self, parts: Parts, record: Record, now_secs: float) -> None:
        self._parts = parts
        self._record = record
        self._core = parts.coordinator
        self._started = now_secs
        self._reported = now_secs - PROGRESS_SECS
        self._published = now_secs - SNAPSHOT_SECS
        self._times = PhaseTimes()
        self._executor_secs = 0.0
        self._failures = FailureLog()
        self._transactions = self._dead_letters = self._attempts = self._tuples = 0
        self._rows_put: Counter[str] = Counter()
        self._emitted: Counter[str] = Counter()
        self._emitted_on: Counter[tuple[str, str]] = Counter()
        self._step_secs: dict[str, float] = {}
        self._readings = Readings()

    def add(self, fact: Fact) -> None:
        """Count what a fact says, and log it if it is a failure."""
        match fact.what:
            case HistoryEvent.PROCESSING:
                self._attempts += len(fact.txids)
            case HistoryEvent.COMMITTED:
                self._transactions += len(fact.txids)
                self._tuples += sum(fact.tuples)
            case HistoryEvent.DEAD_LETTER_WRITTEN:
                self._dead_letters += 1
            case HistoryEvent.FAILED if isinstance(fact, Trouble) and fact.times:
                self._failures.add(fact)
        self._times.add(fact)
        self._executor_secs += fact.cpu_secs
        if fact.measures is not None:
            self._add(fact.measures)

    def _add(self, measures: Measures) -> None:
        self._rows_put.update({name: write.rows for name, write in measures.writes.items()})
        self._emitted.update(measures.emitted)
        self._emitted_on.update(measures.emitted_on)
        for step, secs in measures.step_secs.items():
            self._step_secs[step] = self._step_secs.get(step, 0.0) + secs
        self._readings.add(measures.readings)

    def show(self, now_secs: float) -> None:
        """Report the progress and write a snapshot, each if it is due."""
        if now_secs - self._reported >= PROGRESS_SECS:
            self._reported = now_secs
            self.report_progress()
        if now_secs - self._published >= SNAPSHOT_SECS:
            self._published = now_secs
            self.publish()

    def report_progress(self) -> None:
        """Report the progress, due or not."""
        if self._parts.on_progress is None:
            return
        statuses = [transaction.status for transaction in self._core.pending.values()]
        first = self._core.pending.get(self._core.committed + 1)
        last = self._failures.last
        self._parts.on_progress(
            Progress(
                topology_id=self._parts.topology_id,
                committed_txid=self._core.committed,
                processing=statuses.count(Status.PROCESSING),
                processed=statuses.count(Status.PROCESSED),
                committing=statuses.count(Status.COMMITTING) + statuses.count(Status.WRITING_DEAD_LETTER),
                ready=statuses.count(Status.READY),
                first_uncommitted_status=first.status.value if first is not None else "",
                transactions=self._transactions,
                dead_letters=self._dead_letters,
                tuples=self._tuples,
                failures=self._failures.failures,
                elapsed_secs=self._elapsed_secs(),
                last_failure=self._failures.last_reason,
                last_failure_txid=last.attempt.txid if last is not None else None,
                last_failure_times=last.times if last is not None else 0,
                total=self._total(),
                attempts=self._attempts,
                lags=self._parts.feed.lags,
                readings=self._readings.listed(),
                emitted=dict(self._emitted),
                emitted_on=dict(self._emitted_on),
            )
        )

    def publish(self, end: StopReason | Exception | None = None) -> None:
        """Write a snapshot of the run for ``txtopo explain``; ``end`` is why the run has ended, if it has."""
        if self._parts.snapshots is not None:
            self._parts.snapshots.write(self._snapshot(end))

    def report(self, reason: StopReason) -> RunReport:
        """Return the result of the run."""
        now_secs = self._parts.threads.now_secs()
        return RunReport(
            topology_id=self._parts.topology_id,
            reason=reason.value,
            committed_txid=self._core.committed,
            transactions=self._transactions,
            dead_letters=self._dead_letters,
            attempts=self._attempts,
            tuples=self._tuples,
            failures=self._failures.failures,
            processing_secs=self._times.processing_secs(now_secs),
            commit_secs=self._times.commit_secs(now_secs),
            elapsed_secs=self._elapsed_secs(),
            executor_secs=self._executor_secs,
            step_secs=dict(self._step_secs),
            last_failure=self._failures.last_reason,
            spout_rows={name: rows for name, rows in self._rows_put.items() if name.startswith(OWN_PREFIX)},
            readings=self._readings.listed(),
        )

    def _snapshot(self, end: StopReason | Exception | None) -> Snapshot:
        core = self._core
        running = OutputOrigin.running.copy().values()  # a copy, because other threads change it
        components = dict(self._parts.runner.at_work())
        # The driver knows exactly what runs in it; what executors report may be a while old.
        components |= {origin.attempt: origin.component for origin in running if origin.attempt is not None}
        first = core.committed + 1
        shown = range(first, min(first + len(core.pending), first + SNAPSHOT_TRANSACTIONS_MAX))
        ended, failed_txid = "", None
        if isinstance(end, StopReason):
            ended = end.value
        elif end is not None:
            ended = f"{type(end).__name__}: {first_line(end.message if isinstance(end, TxtopoError) else str(end))}"
            failed_txid = getattr(end, "txid", None)
        return Snapshot(
            now_ms=round(self._elapsed_secs() * 1000),
            timeout_ms=core.limits.timeout_ms,
            committed=core.committed,
            last_begun=core.committed + len(core.pending),
            tries_max=core.limits.tries_max,
            skips=core.limits.give_up_policy is GiveUpPolicy.SKIP,
            transactions=tuple(self._transaction_snapshot(core.pending[txid], components) for txid in shown),
            ended=ended,
            failed_txid=failed_txid,
            failed_component=getattr(end, "component", None),
            readings=self._readings.listed()[:SNAPSHOT_READINGS_MAX],
        )

    def _transaction_snapshot(
        self, transaction: Transaction, components: Mapping[TransactionAttempt, str]
    ) -> TransactionSnapshot:
        attempt, core = transaction.attempt, self._core
        metadata, previous = core.metadata_of(transaction.txid), core.metadata_of(transaction.txid - 1)
        return TransactionSnapshot(
            txid=transaction.txid,
            status=transaction.status.value,
            progress_ms=max(0, transaction.deadline_ms - core.limits.timeout_ms),
            component=None if attempt is None else components.get(attempt),
            history=self._record.history(transaction.txid).abridged(),
            ranges=self._parts.committer.input_ranges(metadata, previous),
            references=transaction.planned.references,
        )

    def _elapsed_secs(self) -> float:
        return self._parts.threads.now_secs() - self._started

    def _total(self) -> int | None:
        ends = (self._parts.feed.total, self._core.limits.until)
        return min((end for end in ends if end is not None), default=None)
