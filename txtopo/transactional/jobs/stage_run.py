"""The processing phase of a job, stage by stage, in one partition. Independent of Spark.

Everything that leaves a stage is an *item*: a shuffle message for a later stage, or a report for the driver. A report
may hold a failure, which fails its own attempt and no other in the job.
"""

from __future__ import annotations

import contextlib
import functools
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from txtopo.api.components.planned import metadata_of
from txtopo.attempts import TransactionAttempt
from txtopo.columnar.progress_probe import ProgressProbe
from txtopo.columnar.rows_file import replaying
from txtopo.errors import BucketUnreachable, FailedException, RuleError, TxtopoError
from txtopo.files.folder import Folder
from txtopo.topology.plans.plan import SPOUTS, Phase, PlannedComponent
from txtopo.topology.spout_semantics import Emissions, Emitted
from txtopo.topology.user_code.blame import user_code
from txtopo.topology.user_code.output import ended
from txtopo.transactional.core.actions import AssignedAttempt
from txtopo.transactional.jobs.layout import Layout
from txtopo.transactional.tasks.batch_run import BatchRun, CarriedBolt, ShuffleMessage, everything
from txtopo.transactional.tasks.collector import TaskCollector
from txtopo.transactional.tasks.edge_tally import EdgeTally
from txtopo.transactional.tasks.factory import TaskFactory
from txtopo.transactional.tasks.fingerprint import Fingerprints


@attrs.frozen
class Job:
    """A job as it is sent to every partition."""

    job_id: int
    attempts: tuple[AssignedAttempt, ...]
    """In txid order."""
    previous_metadata: Any
    """The metadata of the transaction before, from which an opaque spout continues."""
    committed: int
    """The last committed txid."""
    layout: Layout
    staging: Folder
    """The folder for carried bolts that are too large to report in memory."""
    report_bytes_max: int
    """Maximum size of the carried bolts that one partition reports in memory, in bytes."""


@attrs.frozen
class StagedBolts:
    """A file of carried bolts that were too large to report in memory."""

    folder: Folder
    path: str
    spans: tuple[tuple[str, int, int, int], ...]
    """(component, task, start, end) of each bolt's pickled state in the file."""

    def load(self) -> list[CarriedBolt]:
        """Read the bolts back; if a bucket does not have them, the transaction is processed again."""
        with replaying("read"):
            content = self.folder.get(self.path)
        return [CarriedBolt(component, task, content[start:end]) for component, task, start, end in self.spans]

    def remove(self) -> None:
        """Remove the file; if a bucket can't be reached, it stays until the run ends."""
        with contextlib.suppress(BucketUnreachable):
            self.folder.delete(self.path)


@attrs.frozen
class Report:
    """The results of one stage in one partition for one attempt."""

    attempt: TransactionAttempt
    tallies: Mapping[int, EdgeTally]
    tuples_emitted: int
    tasks_finished: int
    carried: tuple[CarriedBolt, ...] = ()
    staged: StagedBolts | None = None
    has_staged: bool = False
    """Whether a task may have left files of its own in the staging folder."""
    emitted: Mapping[str, Emitted] = attrs.field(factory=dict)
    """The metadata that the emitters of each opaque spout returned, by its id."""
    failure: TxtopoError | None = None
    fingerprints: Fingerprints = attrs.field(factory=dict)
    cpu_secs: float = attrs.field(default=0.0, eq=False)
    """CPU time since this partition's previous report."""


Item = ShuffleMessage | Report
PartitionItem = tuple[int, Item]
"""The partition that an item goes to, and the item."""


class StageRun:
    """One stage of a job, in one partition."""

    def __init__(
        self, task_factory: TaskFactory, job: Job, stage_index: int, partition: int, probe: ProgressProbe | None = None
    ) -> None:
        self._task_factory = task_factory
        task_factory.staging = job.staging
        self._plan = task_factory.plan
        self._job = job
        self._layout = job.layout
        self._stage_index = stage_index
        self._stage = job.layout.stages[stage_index]
        self._partition = partition
        self._probe = probe or ProgressProbe()
        self._index_of = {attempt.attempt: index for index, attempt in enumerate(job.attempts)}
        self._components = [self._plan.by_id[name] for name in self._stage.components]
        self._outbox: list[PartitionItem] = []
        self._runs: dict[TransactionAttempt, BatchRun] = {}
        self.failures: dict[TransactionAttempt, TxtopoError] = {}
        """The failures of attempts in this partition."""
        self._emissions: Mapping[str, Emissions] = {
            name: semantics.emissions(metadata_of(job.previous_metadata, name))
            for name, semantics in self._plan.semantics.items()
        }
        self.bytes_left = job.report_bytes_max
        """The bytes of carried bolts that this partition may still report in memory."""
        self._cpu_secs = 0.0

    def run(self, items: Iterable[Item]) -> Iterator[PartitionItem]:
        """Run the stage on the items sent to this partition; yield those that leave it, or are for later stages."""
        self.clean_up()
        for item in items:
            if isinstance(item, ShuffleMessage) and self._is_for_this_stage(item):
                yield from self.receive(item)
            else:
                yield self._partition, item
        for index in range(len(self._job.attempts)):
            yield from self.finish(index)

    def receive(self, message: ShuffleMessage) -> list[PartitionItem]:
        """Let this stage's tasks execute the tuples of a message; return the shuffle messages that follow from it."""
        self._guard(message.attempt, functools.partial(_receive, message))
        return self._take_outbox()

    def finish(self, index: int) -> Iterator[PartitionItem]:
        """Finish one of the job's attempts, and yield its shuffle messages and its report; call this in txid order."""
        assigned = self._job.attempts[index]
        attempt = assigned.attempt
        self._emit(index, assigned)
        self._guard(attempt, self._finish)
        yield from self._take_outbox()
        # The report needs the tasks, so they are closed after it. A partition without a task of this attempt has
        # nothing to report but a failure.
        report = self._report(index, attempt)
        ended(attempt)
        if report.tasks_finished or report.failure is not None:
            yield self._partition, report
        run = self._runs.pop(attempt, None)
        if run is not None:
            run.close()

    def close(self) -> None:
        """Release the attempts that have not ended: nobody waits for them any more."""
        while self._runs:
            attempt, run = self._runs.popitem()
            run.close()
            ended(attempt)

    def clean_up(self) -> None:
        """Call the emitters' ``cleanup_before``; if one fails, fail all attempts of the job in this partition."""
        try:
            for spout in self._plan.spouts:
                with user_code(spout.id, self._job.attempts[0].attempt):
                    self._task_factory.cleanup_before(spout.id, self._job.committed)
        except (FailedException, RuleError) as error:
            self.failures.update({attempt.attempt: error for attempt in self._job.attempts})

    def _is_for_this_stage(self, message: ShuffleMessage) -> bool:
        return self._plan.edges[message.edge].target in self._stage.components

    def _emit(self, index: int, assigned: AssignedAttempt) -> None:
        # Opaque ones first: if a repeatable one fails, it is known all the same where they end.
        for spout in sorted(self._plan.spouts, key=lambda spout: not self._plan.semantics[spout.id].emits_in_turn):
            if spout.id not in self._stage.components:
                continue
            for task in range(spout.tasks):
                if self._is_here(index, task):
                    self._guard(assigned.attempt, functools.partial(self._emit_share, spout, task, assigned))

    def _emit_share(self, spout: PlannedComponent, task: int, assigned: AssignedAttempt, run: BatchRun) -> None:
        semantics, emissions = self._plan.semantics[spout.id], self._emissions[spout.id]
        # Where a transaction begins follows from how the one before ended, which is unknown if it failed.
        if semantics.emits_in_turn and any(attempt.txid < run.attempt.txid for attempt in self.failures):
            raise FailedException(f"transaction {run.attempt.txid} follows one that failed")
        if not assigned.planned.has_input_of(spout.id, assigned.metadata):
            return  # its metadata is that of the transaction before, whose tuples it would emit again

        def emit(collector: TaskCollector) -> Emitted | None:
            emitter = self._task_factory.emitter(spout, task)
            metadata = metadata_of(assigned.metadata, spout.id)
            return emissions.emit(emitter, (task, spout.tasks), run.attempt, metadata, collector)

        emitted = run.emit(spout, task, emit)
        emissions.emitted(run.attempt, emitted)
        skipped = semantics.skipped(emitted)
        if skipped:
            run.tracer.skip(spout.id, skipped)

    def _finish(self, run: BatchRun) -> None:
        """Finish the components of the processing phase; those of the commit phase only execute tuples here."""
        for component in self._components:
            if component.phase is Phase.PROCESSING and component.kind not in SPOUTS:
                run.finish(component)

    def _report(self, index: int, attempt: TransactionAttempt) -> Report:
        run = self._runs.get(attempt)
        carried: list[CarriedBolt] = []
        if run is not None and attempt not in self.failures:
            self._guard(attempt, lambda run: carried.extend(run.carry()))
        failure = self.failures.get(attempt)
        staged = None
        if failure is None:
            size = sum(len(bolt.state) for bolt in carried)
            # What is too large for the driver goes to a file: topology.received.bytes.max bounds its memory.
            if size > self.bytes_left:
                try:
                    staged = self._put_aside(attempt, carried)
                except FailedException as error:
                    failure = self.failures[attempt] = error
                carried = []
            else:
                self.bytes_left -= size
        cpu_secs, self._cpu_secs = self._cpu_secs, 0.0
        return Report(
            attempt=attempt,
            cpu_secs=cpu_secs,
            tallies={} if run is None else run.tallies,
            tuples_emitted=0 if run is None else run.tuples_emitted,
            tasks_finished=sum(self._is_here(index, task) for c in self._components for task in range(c.tasks)),
            carried=tuple(carried) if failure is None else (),
            staged=staged,
            has_staged=run is not None and run.has_staged,
            emitted=self._emitted_of(attempt),
            failure=failure,
            fingerprints={} if run is None or failure is not None else run.tracer.fingerprints(),
        )

    def _emitted_of(self, attempt: TransactionAttempt) -> Mapping[str, Emitted]:
        metadata = {name: emissions.metadata_of(attempt) for name, emissions in self._emissions.items()}
        return {name: emitted for name, emitted in metadata.items() if emitted is not None}

    def _put_aside(self, attempt: TransactionAttempt, carried: list[CarriedBolt]) -> StagedBolts:
        # Spark may run a task twice; the random part keeps the files of the two runs apart.
        path = f"{attempt.txid}-{attempt.attempt}-{self._stage_index}-{self._partition}-{uuid.uuid4().hex}.bolts"
        spans, position = [], 0
        for bolt in carried:
            spans.append((bolt.component, bolt.task, position, position + len(bolt.state)))
            position += len(bolt.state)
        with replaying("written"):
            self._job.staging.put(path, b"".join(bolt.state for bolt in carried), is_durable=False)
        return StagedBolts(self._job.staging, path, tuple(spans))

    def _guard(self, attempt: TransactionAttempt, work: Callable[[BatchRun], None]) -> None:
        """Do some work for an attempt unless it has failed; a failure fails only this attempt.

        Any other exception is a bug or the process's end, and fails the Spark task.
        """
        if attempt in self.failures:
            return
        began = time.thread_time()
        try:
            work(self._run_of(attempt))
        except (FailedException, RuleError) as error:
            self.failures[attempt] = error
        finally:
            self._cpu_secs += time.thread_time() - began

    def _run_of(self, attempt: TransactionAttempt) -> BatchRun:
        run = self._runs.get(attempt)
        if run is None:
            index = self._index_of[attempt]
            run = self._runs[attempt] = BatchRun(
                self._task_factory,
                attempt,
                self._job.attempts[index].planned,
                is_local=everything if self._is_whole_here(index) else functools.partial(self._is_local, index),
                send=self._send,
                probe=self._probe,
            )
        return run

    def _send(self, message: ShuffleMessage) -> None:
        target = self._plan.by_id[self._plan.edges[message.edge].target]
        self._outbox.append((self._partition_for(target, message), message))

    def _partition_for(self, target: PlannedComponent, message: ShuffleMessage) -> int:
        return partition_for(self._layout, target, self._index_of[message.attempt], message.task)

    def _take_outbox(self) -> list[PartitionItem]:
        outbox, self._outbox = self._outbox, []
        return outbox

    def _is_whole_here(self, transaction_index: int) -> bool:
        return not self._layout.is_spread and self._is_here(transaction_index, 0)

    def _is_local(self, transaction_index: int, component: str, task: int) -> bool:
        return component in self._stage.components and self._is_here(transaction_index, task)

    def _is_here(self, transaction_index: int, task: int) -> bool:
        return self._stage.partition(transaction_index, task, self._layout.partitions) == self._partition


def _receive(message: ShuffleMessage, run: BatchRun) -> None:
    run.receive(message)


def partition_for(layout: Layout, target: PlannedComponent, transaction_index: int, task: int) -> int:
    """Return the partition that a shuffle message goes to; any partition will do for input of Spark SQL."""
    stage = layout.stage_of(target.id)
    if stage is None:
        return (transaction_index + task) % layout.partitions
    return layout.stages[stage].partition(transaction_index, task, layout.partitions)
