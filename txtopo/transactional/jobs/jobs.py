"""Turns a ``Process`` action into a job, and the job's reports into results for the core."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from txtopo.api.components.planned import metadata_of
from txtopo.attempts import TransactionAttempt
from txtopo.columnar.rows_file import remove_rows_files
from txtopo.errors import FailedException, InternalError, TupleTreeFailure, TxtopoError
from txtopo.files.folder import Folder
from txtopo.topology.plans.plan import DATAFRAMES, Phase, Plan
from txtopo.transactional.core.actions import AssignedAttempt, Process
from txtopo.transactional.core.limits import Limits
from txtopo.transactional.jobs.layout import Layout, lay_spread, lay_together, runs_together
from txtopo.transactional.jobs.stage_run import Job, Report, StagedBolts
from txtopo.transactional.tasks.batch_run import CarriedBolt
from txtopo.transactional.tasks.edge_tally import total
from txtopo.transactional.tasks.fingerprint import Fingerprint, Fingerprints, joined


@attrs.frozen
class Processing:
    """The result of an attempt's processing phase."""

    attempt: TransactionAttempt
    tuples: int
    carried: tuple[CarriedBolt, ...]
    staged: tuple[StagedBolts, ...]
    metadata: Any
    """The metadata from the emitters' reports; None if it was known before, or if the emitters failed."""
    failure: TxtopoError | None
    cpu_secs: float
    """CPU time in the executors, without Spark's code."""
    fingerprints: Fingerprints
    """In a spread layout tuples arrive in any order, so only the spout's fingerprint has a checksum."""

    def load(self) -> list[CarriedBolt]:
        """Return the bolts that continue in the commit phase; read them from their files if they were spilled."""
        return [*self.carried, *(bolt for staged in self.staged for bolt in staged.load())]


SMALL_TUPLES_MAX = 20_000
"""One partition processes a transaction of up to this many tuples faster than a shuffle would spread it."""


class JobPlanner:
    """Creates jobs and evaluates their reports.

    ``layout`` is ``auto``, ``together`` or ``spread``. ``received_bytes_max`` bounds the carried bolts that wait in the
    driver, in bytes, shared by the pending transactions; larger ones go to files in ``staging``.
    ``has_edge_tallies``: whether to compare sent and received tuples.
    """

    def __init__(  # noqa: PLR0913 - the settings of one object
        self,
        plan: Plan,
        limits: Limits,
        *,
        slots: int,
        layout: str,
        staging: Folder,
        received_bytes_max: int,
        has_edge_tallies: bool,
    ) -> None:
        self._plan = plan
        self._slots = slots
        self._layout = layout
        self._staging = staging
        self._staged: set[int] = set()
        """The transactions whose tasks may have left files of their own there."""
        self._has_edge_tallies = has_edge_tallies
        self._bytes_max = received_bytes_max // (limits.pending_max * slots)
        """Maximum size of the carried bolts that one partition reports in memory, in bytes per transaction of a job."""
        self._tuples: int | None = None

    def job(self, action: Process, committed: int) -> Job:
        """Return the job for an action, in the layout that suits it."""
        return Job(
            job_id=action.job_id,
            attempts=action.attempts,
            previous_metadata=action.previous_metadata,
            committed=committed,
            layout=self._choose_layout(action.attempts),
            staging=self._staging,
            report_bytes_max=self._bytes_max * len(action.attempts),
        )

    def clean_up(self, txid: int) -> None:
        """Remove the rows files of transactions up to ``txid``, which are committed."""
        committed = {number for number in self._staged if number <= txid}
        if committed:
            self._staged -= committed
            remove_rows_files(self._staging, lambda file_txid: file_txid <= txid)

    def judge(self, job: Job, reports: Iterable[Report]) -> list[Processing]:
        """Return the result of each attempt of a job, in txid order."""
        return self.judging(job).finish(reports)

    def judging(self, job: Job) -> AttemptJudge:
        """Return what judges the attempts of a job as their reports come."""

        def record_size(tuples_max: int) -> None:
            self._tuples = tuples_max

        judge = functools.partial(self._judge_attempt, job.layout)
        return AttemptJudge(job, judge, record_size, in_order=self._plan.emits_in_turn)

    def _choose_layout(self, attempts: tuple[AssignedAttempt, ...]) -> Layout:
        if not runs_together(self._plan) or self._layout == "spread":
            return self._spread
        # Judged by the largest transaction of the last job. Until one has ended, small jobs are spread.
        is_small = self._tuples is not None and self._tuples <= SMALL_TUPLES_MAX
        if self._layout == "together" or len(attempts) >= self._slots or is_small:
            return lay_together(self._plan, min(self._slots, len(attempts)))
        return self._spread

    @functools.cached_property
    def _spread(self) -> Layout:
        return lay_spread(self._plan, self._slots)

    def _judge_attempt(
        self, layout: Layout, attempt: TransactionAttempt, reports: Sequence[Report], previous: Any
    ) -> Processing:
        if any(report.has_staged for report in reports):
            self._staged.add(attempt.txid)
        failure = _worst([report.failure for report in reports if report.failure is not None])
        if failure is None:
            failure = self._find_gap(layout, attempt, reports)
        metadata = None
        # If no opaque spout failed, its batch has an end, and a later transaction may continue from it.
        blamed = None if failure is None else self._plan.semantics.get(failure.component or "")
        if blamed is None or not blamed.emits_in_turn:
            metadata = self._metadata_after(previous, reports)
        return Processing(
            attempt=attempt,
            tuples=sum(report.tuples_emitted for report in reports),
            carried=tuple(bolt for report in reports for bolt in report.carried),
            staged=tuple(report.staged for report in reports if report.staged is not None),
            metadata=metadata,
            failure=failure,
            cpu_secs=sum(report.cpu_secs for report in reports),
            fingerprints=self._fingerprints(layout, reports),
        )

    def _metadata_after(self, previous: Any, reports: Sequence[Report]) -> dict[str, Any] | None:
        """Return the metadata of each opaque spout after a transaction; None if all of it was known before."""
        after = {
            name: semantics.metadata_after(
                metadata_of(previous, name), [report.emitted[name] for report in reports if name in report.emitted]
            )
            for name, semantics in self._plan.semantics.items()
        }
        return {name: metadata for name, metadata in after.items() if metadata is not None} or None

    def _fingerprints(self, layout: Layout, reports: Sequence[Report]) -> Fingerprints:
        together = joined(report.fingerprints for report in reports)
        if len(layout.stages) == 1:
            return together
        commit_phase = [c.id for c in self._plan.of_phase(Phase.COMMIT) if c.streams]
        return {  # components that got tuples in any order may emit in any order in the commit phase, too
            **dict.fromkeys(commit_phase, Fingerprint(0, None)),
            **{
                name: fingerprint if name in self._plan.semantics else attrs.evolve(fingerprint, checksum=None)
                for name, fingerprint in together.items()
            },
        }

    def _find_gap(self, layout: Layout, attempt: TransactionAttempt, reports: Sequence[Report]) -> TxtopoError | None:
        # The counts differ only by a bug of txtopo: a partition that failed or was lost has failed the attempt already.
        expected = sum(self._plan.by_id[name].tasks for stage in layout.stages for name in stage.components)
        finished = sum(report.tasks_finished for report in reports)
        origin: dict[str, Any] = {"txid": attempt.txid, "attempt": attempt.attempt}
        if finished != expected:
            return InternalError(f"{finished} tasks reported, {expected} were planned", **origin)
        if not self._has_edge_tallies:
            return None
        for edge, tally in total(report.tallies for report in reports).items():
            planned = self._plan.edges[edge]
            ends = {self._plan.by_id[name].kind for name in (planned.source, planned.target)}
            if not tally.agrees and not ends & DATAFRAMES:  # Spark SQL counts nothing, and needs not
                return TupleTreeFailure(
                    f"{planned.source!r} sent {tally.sent} tuples to {planned.target!r}, which received "
                    f"{tally.received} or different ones: a part of the job ran twice and emitted different tuples",
                    **origin,
                )
        return None


@attrs.define(eq=False)
class AttemptJudge:
    """Judges the attempts of one job, each as soon as its reports are complete.

    An opaque transaction's metadata continues from the one before, so its attempts are judged ``in_order``: one whose
    reports come early waits for those before it.
    """

    _job: Job
    _judge: Callable[[TransactionAttempt, Sequence[Report], Any], Processing]
    _record: Callable[[int], None]
    """Takes the number of tuples of the job's largest transaction, at its end."""
    _in_order: bool = attrs.field(kw_only=True)
    _left: dict[TransactionAttempt, list[Report]] = attrs.field(
        default=attrs.Factory(lambda self: {each.attempt: [] for each in self._job.attempts}, takes_self=True)
    )
    """The reports of the attempts that are neither judged nor lost, in txid order."""
    _previous: Any = attrs.field(default=attrs.Factory(lambda self: self._job.previous_metadata, takes_self=True))
    _tuples_max: int = 0

    def take(self, reports: Iterable[Report], lost: Iterable[TransactionAttempt] = ()) -> list[Processing]:
        """Take all reports of some attempts, and attempts that are lost; return the results, in txid order."""
        for attempt in lost:
            self._left.pop(attempt, None)
        for report in reports:
            self._left[report.attempt].append(report)
        return self._judge_left(is_over=False)

    def finish(self, reports: Iterable[Report]) -> list[Processing]:
        """Take the last reports; an attempt without any has failed."""
        outcomes = self.take(reports) + self._judge_left(is_over=True)
        self._record(self._tuples_max)
        return outcomes

    def _judge_left(self, *, is_over: bool) -> list[Processing]:
        outcomes = []
        for attempt, reports in list(self._left.items()):
            if reports or is_over:
                del self._left[attempt]
                outcomes.append(self._judge(attempt, reports, self._previous))
                self._previous = outcomes[-1].metadata
                self._tuples_max = max(self._tuples_max, outcomes[-1].tuples)
            elif self._in_order:
                break
        return outcomes


def _worst(failures: Sequence[TxtopoError]) -> TxtopoError | None:
    """Return the failure to report: one that stops the run takes precedence over one that is replayed."""
    for failure in failures:
        if not isinstance(failure, FailedException):
            return failure
    return failures[0] if failures else None
