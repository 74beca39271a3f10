"""The run loop: carries out the core's actions, and reports their results to the core.

One thread owns the core: it takes events from a queue, passes them to the core, and carries out the actions in order.
Other threads do slow work and answer with events: one asks the spout, one commits, and one per job in flight waits for
Spark.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import assert_never

import attrs

from txtopo.assembly.cancelled_jobs import CancelledJobs
from txtopo.assembly.parts import Parts
from txtopo.assembly.report import RunReport
from txtopo.assembly.statistics import RunStatistics
from txtopo.assembly.threads import Role
from txtopo.attempts import TransactionAttempt
from txtopo.columnar.progress_probe import ProgressProbe
from txtopo.errors import (
    FailedException,
    InternalError,
    JobFailure,
    PoisonTransaction,
    RuleError,
    StalledCommit,
    StopError,
    TxtopoError,
)
from txtopo.failpoints import durable_step
from txtopo.files.durable import wait_for_descriptor
from txtopo.text.secrecy import without_secrets
from txtopo.topology.user_code.output import OutputOrigin
from txtopo.transactional.core import actions, events
from txtopo.transactional.core.actions import AssignedAttempt
from txtopo.transactional.core.record.facts import Fact, carried_out
from txtopo.transactional.core.record.record import Record
from txtopo.transactional.core.transitions import Status
from txtopo.transactional.jobs.jobs import Processing
from txtopo.transactional.jobs.stage_run import Report
from txtopo.transactional.tasks.batch_run import CarriedBolt
from txtopo.transactional.tasks.failures import failed

logger = logging.getLogger("txtopo")

KEEP_UP_SECS = 60.0
"""How often the tables are looked after while nothing is committed."""

TICK_SECS = 0.02
"""The interval of the core's clock."""

IDLE_SECS = 0.1
"""The same while no transaction is pending: nothing can be late then."""

FLUSH_SECS = 0.05
"""How long it waits for another write to go with that a group is committed, before it has one of its own: if that came
at once, a transaction that follows after 20 ms would wait for two syncs."""

POLL_SECS = 1.0
"""How often the run loop looks for cancelled jobs that do not end."""

_WITH_MARK = (actions.SaveMetadata, actions.Commit, actions.DeadLetter)
"""The actions that write to the coordinator state, and with that that the group before is committed."""

_STACK_FRAMES_MAX = 12
"""Maximum number of stack frames in the error of a stalled thread."""


class _Results:
    """The results of attempts that are processed, until their commit or until they are dropped.

    The threads of jobs bring them, and the one that commits takes them.
    """

    def __init__(self) -> None:
        self._by_attempt: dict[TransactionAttempt, Processing] = {}
        self._waiting: dict[int, AssignedAttempt] = {}
        """The last attempt of each transaction that was processed, if phases run ahead; it may be replayed since."""
        self._lock = threading.Lock()

    def keep(self, outcomes: Sequence[Processing]) -> None:
        """Keep some, before the core is told of them: the commit that answers looks them up."""
        with self._lock:
            self._by_attempt.update({outcome.attempt: outcome for outcome in outcomes})

    def of(self, attempts: Iterable[TransactionAttempt]) -> dict[TransactionAttempt, Processing]:
        """Return those of some attempts, all of which are kept."""
        with self._lock:
            return {attempt: self._by_attempt[attempt] for attempt in attempts}

    def wait(self, assigned: AssignedAttempt) -> None:
        """Take note of a transaction's live attempt, which is processed and waits for its commit."""
        with self._lock:
            self._waiting[assigned.attempt.txid] = assigned

    def following(self, txid: int) -> tuple[AssignedAttempt, Callable[[], Sequence[CarriedBolt]]] | None:
        """Return a transaction that waits for its commit, as far as is known; see :data:`Following`."""
        with self._lock:
            assigned = self._waiting.get(txid)
            result = None if assigned is None else self._by_attempt.get(assigned.attempt)
        return None if assigned is None or result is None else (assigned, result.load)

    def drop(self, is_dropped: Callable[[TransactionAttempt], bool] = lambda _: True) -> None:
        """Drop some, or all, with what they have spilled."""
        with self._lock:
            dropped = [self._by_attempt.pop(attempt) for attempt in list(self._by_attempt) if is_dropped(attempt)]
            self._waiting = {txid: own for txid, own in self._waiting.items() if not is_dropped(own.attempt)}
        # Outside the lock: removing files takes time, and jobs wait for the lock.
        for result in dropped:
            for staged in result.staged:
                staged.remove()


class RunLoop:
    """Runs one topology from recovery to its stop."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._threads = parts.threads
        self._core = parts.coordinator
        self._observer = parts.observer
        self._results = _Results()
        self._commit_probe = ProgressProbe()
        self._commit_position: tuple[object, ...] = ()
        self._started = self._threads.now_secs()
        self._ticked = self._started - TICK_SECS
        self._kept_up = self._started
        self._committed_at: float | None = None
        """When the last group was committed, if no write has begun since with which that goes."""
        self._record = Record(self._started)
        self._statistics = RunStatistics(parts, self._record, self._started)
        self._stop: actions.Stop | None = None
        self._is_active = True
        self._cancelled_jobs = CancelledJobs()
        self._polled_at = self._started

    def set_active(self, *, is_active: bool) -> None:
        """Let transactions begin or not, from now or from the start; safe to call from another thread."""
        self._is_active = is_active
        self._threads.post((events.Activated() if is_active else events.Deactivated(),))

    def request_stop(self) -> None:
        """Request an orderly stop; safe to call from a signal handler or another thread."""
        self._threads.post((events.StopRequested(),))

    @property
    def is_running(self) -> bool:
        """Whether the core has not returned ``Stop`` yet."""
        return self._stop is None

    def run(self, recovered: events.Recovered) -> RunReport:
        """Run from ``recovered``, the first event, until the core returns ``Stop``; raise the error that stopped it."""
        try:
            self.start(recovered)
            while self.is_running:
                self.step()
        finally:
            self.shut_down()
        return self.end()

    def start(self, recovered: events.Recovered) -> None:
        """Pass the first event to the core."""
        # The core asks for transactions as soon as it gets the first event, and posted events come only after it.
        before = [] if self._is_active else [events.Deactivated()]
        self._observer.began(self._record, self._parts.runner.executors_lost)
        self._handle(*before, attrs.evolve(recovered, now_ms=self._now_ms()))

    def step(self) -> None:
        """Tick if that is due; then wait for posted events, up to the next tick, and handle them."""
        self._tick()
        is_idle = not self._core.pending and self._committed_at is None
        posted = self._threads.take(IDLE_SECS if is_idle else TICK_SECS)
        if posted:
            self._handle(*posted)

    def end(self) -> RunReport:
        """Return the result of a run whose core has returned ``Stop``; raise the error that stopped it, if any."""
        assert self._stop is not None, "the core has returned Stop"
        self._statistics.report_progress()
        error = self._stop.error or self._take_late()
        self._statistics.publish(self._stop.reason if error is None else error)
        if error is not None:
            self._add_history(error)
            raise error
        self._parts.coordinator_state.record_transaction_us(self._core.transaction_us)
        # Without it, the next start publishes the last group again, which does nothing.
        with contextlib.suppress(TxtopoError):
            self._parts.coordinator_state.flush()
        self._parts.feed.finish(self._core.committed)
        return self._statistics.report(self._stop.reason)

    def _add_history(self, error: Exception) -> None:
        """Add to an error the history of its transaction, if it is more than a single attempt, and the input."""
        if isinstance(error, TxtopoError) and error.txid is not None:
            history = self._record.history(error.txid)
            is_long = isinstance(error, (StalledCommit, PoisonTransaction))
            story = []
            if history.has_trouble_besides(str(error)) or (is_long and history.entries):
                story.append(str(history))
            if error.txid in self._core.pending:
                before = self._core.metadata_of(error.txid - 1)
                ranges = self._parts.committer.input_ranges(self._core.metadata_of(error.txid), before)
                story += [f"its input: {partition}: {start} to {end}" for partition, (start, end) in ranges.items()]
            error.story = "\n".join(story) or None

    # The loop.

    def _handle(self, *happened: events.Event) -> None:
        _log("event", happened)
        to_do = self._core.handle(*happened, at_secs=self._threads.now_secs())
        for fact in self._core.facts:
            self._record_fact(fact)
        _log("action", to_do)
        for action in to_do:
            # After an error skip the later actions: a Process must not run whose SaveMetadata is not durable.
            try:
                self._carry_out(action)
            except StopError as error:
                self._handle(events.Fenced(error))
                return
            except RuleError as error:
                self._handle(events.RuleBroken(error))
                return
        if any(isinstance(action, _WITH_MARK) for action in to_do):
            self._committed_at = None
        elif any(isinstance(event, events.Committed) for event in happened):
            self._committed_at = self._threads.now_secs()
        # Only after the core has decided which attempts are live.
        for event in happened:
            self._forget(event)

    def _record_fact(self, fact: Fact) -> None:
        self._record.add(fact)
        self._statistics.add(fact)
        self._observer.recorded(fact)

    def _carry_out(self, action: actions.Action) -> None:
        match action:
            case actions.CreateMetadata():
                committed = self._core.committed  # read here, because only this thread may look at the core
                self._submit(Role.FEED, lambda: [self._parts.feed.create(action, committed)])
            case actions.SaveMetadata():
                # A crash before this leaves nothing of these transactions: the spout is asked for them again. After it
                # they have begun, and each later attempt, of this coordinator or the next, emits from this metadata.
                with durable_step("metadata.save"):
                    self._parts.coordinator_state.save_metadata(action.begun)
                self._record_fact(carried_out(self._threads.now_secs(), action))
            case actions.Process():
                self._record_fact(carried_out(self._threads.now_secs(), action))
                committed = self._core.committed
                self._cancelled_jobs.began(action.job_id, [assigned.attempt for assigned in action.attempts])
                self._submit(Role.JOB, lambda: self._process(action, committed))
            case actions.CancelJob():
                self._cancel_job(action.job_id)
            case actions.Commit():
                self._record_fact(carried_out(self._threads.now_secs(), action))
                self._parts.coordinator_state.record_transaction_us(self._core.transaction_us)
                self._submit(Role.COMMIT, functools.partial(self._commit, action))
            case actions.DeadLetter():
                self._record_fact(carried_out(self._threads.now_secs(), action))
                self._submit(Role.COMMIT, functools.partial(self._commit, action))
            case actions.AbandonCommit():
                self._abandon_commit()
            case actions.CleanUp():  # what a crash leaves of it is in the run's staging folder
                self._results.drop(lambda attempt: attempt.txid <= action.txid)
                self._parts.planner.clean_up(action.txid)
            case actions.Stop():
                self._stop = action
            case _:
                assert_never(action)

    def _abandon_commit(self) -> None:
        """Raise StalledCommit if a commit phase makes no progress; only log a warning if a Delta write takes long."""
        thread = self._threads.abandon_commit()
        timeout_secs = self._core.limits.timeout_ms / 1000
        if thread is None:
            logger.warning("the writes of a commit group have taken more than %g s so far", timeout_secs)
            return
        origin, attempt = OutputOrigin.running.get(thread), self._commit_probe.attempt
        raise StalledCommit(
            f"a commit phase made no progress for {timeout_secs:g} s (topology.message.timeout.secs), so the run "
            "stops. Nothing of this transaction was written, and the next run resumes with it. The thread's stack:",
            component=None if origin is None else origin.component,
            txid=None if attempt is None else attempt.txid,
            attempt=None if attempt is None else attempt.attempt,
            cause=_stack_of(thread),
        )

    def _tick(self) -> None:
        now = self._threads.now_secs()
        if now - self._ticked >= TICK_SECS:
            self._ticked = now
            # Before Ticked: progress renews the deadline that the tick would find missed.
            self._look_at_commit()
            late = self._take_late()
            if late is not None:
                self._handle(events.RuleBroken(late))
            self._handle(events.Ticked(self._now_ms()))
            self._tell_of_busy_jobs()
            self._statistics.show(now)
            self._flush(now)
            self._keep_up(now)

    def _flush(self, now: float) -> None:
        """Make durable that a group is committed, if no write follows with which that goes."""
        if self._committed_at is not None and now - self._committed_at >= FLUSH_SECS:
            self._committed_at = None
            self._submit(Role.COMMIT, self._parts.committer.flush)

    def _keep_up(self, now: float) -> None:
        """Have the tables looked after now and then while nothing is committed; otherwise each group sees to it."""
        if now - self._kept_up < KEEP_UP_SECS or not self._parts.committer.has_upkeep_by_time:
            return
        self._kept_up = now
        if not any(transaction.status is Status.COMMITTING for transaction in self._core.pending.values()):
            self._submit(Role.COMMIT, self._parts.committer.keep_up)

    def _take_late(self) -> TxtopoError | None:
        """Return an error of a user's thread that acted after its batch was over; None if there is no new one."""
        return self._parts.late.popleft() if self._parts.late else None

    def _look_at_commit(self) -> None:
        position = self._commit_probe.position()
        if position != self._commit_position:
            self._commit_position = position
            committing = [t.attempt for t in self._core.pending.values() if t.status is Status.COMMITTING]
            self._handle(events.Progressed(tuple(attempt for attempt in committing if attempt is not None)))

    def _forget(self, event: events.Event) -> None:
        """Drop the result of an attempt that is not live, so that late answers do not fill the memory."""
        if isinstance(event, (events.Processed, events.Failed)):
            transaction = self._core.pending.get(event.attempt.txid)
            if transaction is None or transaction.attempt != event.attempt:
                self._results.drop(lambda attempt: attempt == event.attempt)
            elif isinstance(event, events.Processed) and self._parts.committer.runs_ahead:
                self._results.wait(AssignedAttempt(event.attempt, transaction.metadata, transaction.planned))

    # Other threads.

    def _submit(self, role: Role, work: Callable[[], list[events.Event]]) -> None:
        self._threads.submit(role, functools.partial(self._in_thread, work))

    def _in_thread(self, work: Callable[[], list[events.Event]]) -> None:
        """Do work in another thread; whatever it raises becomes an event that stops the run."""
        wait_for_descriptor(self._threads.sleep)
        try:
            answers = work()
        except StopError as error:
            answers = [events.Fenced(error)]
        except TxtopoError as error:
            answers = [events.RuleBroken(error)]
        except Exception as error:  # noqa: BLE001 - user code may have raised it
            logger.error("a thread of the run failed\n%s", without_secrets(traceback.format_exc()))  # noqa: TRY400
            bug = InternalError(f"a thread of the run failed: {type(error).__name__}: {error}")
            bug.__cause__ = error
            answers = [events.Fenced(bug)]
        self._threads.post(tuple(answers))

    def _process(self, action: actions.Process, committed: int) -> list[events.Event]:
        attempts = tuple(assigned.attempt for assigned in action.attempts)
        job = self._parts.planner.job(action, committed)
        started = self._threads.now_secs()
        judging = self._parts.planner.judging(job)

        def on_answer(reports: Sequence[Report], lost: Mapping[TransactionAttempt, str]) -> None:
            answers = self._keep(judging.take(reports, lost))
            self._threads.post((*answers, *(events.AttemptLost(attempt, error) for attempt, error in lost.items())))

        try:
            reports = self._parts.runner.run(job, lambda: self._threads.post((events.Progressed(attempts),)), on_answer)
            answers = self._keep(judging.finish(reports))
        except JobFailure as error:
            return [events.JobLost(action.job_id, str(error))]
        finally:
            self._cancelled_jobs.ended(action.job_id)
        elapsed_ms = int((self._threads.now_secs() - started) * 1000)
        return [*answers, events.JobEnded(action.job_id, elapsed_ms)]

    def _keep(self, outcomes: Sequence[Processing]) -> list[events.Event]:
        self._results.keep(outcomes)
        return [_answer(outcome) for outcome in outcomes]

    def _commit(self, action: actions.Commit | actions.DeadLetter) -> list[events.Event]:
        committer = self._parts.committer
        if isinstance(action, actions.DeadLetter):
            return committer.write_dead_letter(action)
        results = self._results.of(assigned.attempt for assigned in action.group)
        return committer.commit(action, results, self._commit_probe, self._results.following)

    # The end.

    def shut_down(self) -> None:
        """End all work; the commit work in progress runs to its end unless it was abandoned."""
        self._threads.shut_down(self._cancel_jobs, self._tell_of_busy_jobs)
        self._results.drop()

    def _cancel_jobs(self) -> None:
        for job_id in list(self._core.jobs):
            self._cancel_job(job_id)

    def _cancel_job(self, job_id: int) -> None:
        self._cancelled_jobs.cancelled(job_id, self._threads.now_secs())
        self._parts.runner.cancel(job_id)

    def _tell_of_busy_jobs(self) -> None:
        now = self._threads.now_secs()
        if now - self._polled_at >= POLL_SECS:
            self._polled_at = now
            for text in self._cancelled_jobs.overdue(now, self._parts.runner.at_work()):
                logger.warning("%s", text)

    def _now_ms(self) -> int:
        return int((self._threads.now_secs() - self._started) * 1000)


def _log(kind: str, instructions: Iterable[object]) -> None:
    """Log events or actions for those who look for a bug; what user code has quoted may be a secret."""
    if logger.isEnabledFor(logging.DEBUG):
        for each in instructions:
            logger.debug("%s %s", kind, without_secrets(str(each)))


def _stack_of(thread: int) -> str:
    """Return a thread's stack, innermost call last; an empty string if the thread has ended."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - there is no public API for it
    return "" if frame is None else "".join(traceback.format_stack(frame)[-_STACK_FRAMES_MAX:]).rstrip()


def _answer(outcome: Processing) -> events.Event:
    match outcome.failure:
        case None:
            return events.Processed(outcome.attempt, outcome.metadata, tuples=outcome.tuples, cpu_secs=outcome.cpu_secs)
        case FailedException() as failure:
            return failed(outcome.attempt, failure, outcome.metadata, outcome.cpu_secs)
        case error:
            return events.RuleBroken(error, outcome.attempt)
