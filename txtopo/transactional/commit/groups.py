"""Commits a group: runs its commit phases, prepares its writes, decides it, and publishes it.

1. The commit phases run in memory, one after another.
2. Each state *prepares* its write, and the journal gets its entry; all of that at the same time. It is durable, and no
   reader of a table sees it; or all of it is in the note that follows, as small writes of keyed tables are in real-time
   mode.
3. The coordinator state records the group's note, which *decides* the group.
4. Each state *publishes* its write, in one atomic step per state.
5. The group counts as committed. The next write of the coordinator state makes that durable.

Before step 3 the group never was: a crash leaves files that nobody refers to. After it the group will be finished,
either here or by the recovery of the next leader, from the note alone. If the outcome of a step is unknown, the step is
repeated: publishing what is visible already does nothing.

In a bucket the commit phases of the next group run beside steps 2 to 5; see :mod:`~txtopo.transactional.commit.ahead`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import attrs

from txtopo.api.state import KeepsHistory, OpenedState
from txtopo.api.values import stored_value
from txtopo.api.writes import Writes, put_and_removed
from txtopo.attempts import TransactionAttempt
from txtopo.columnar.progress_probe import ProgressProbe
from txtopo.errors import DivergenceError, FailedException, StopError, TxtopoError
from txtopo.failpoints import durable_step
from txtopo.files.durable import wait_for_descriptor
from txtopo.journal.entries import DEAD_LETTERS, JournalEntry
from txtopo.text.secrecy import without_secrets
from txtopo.transactional.commit.ahead import Ahead, AheadThreads, Following
from txtopo.transactional.commit.entries import input_ranges, journal_entry
from txtopo.transactional.commit.gathering import Gathering
from txtopo.transactional.commit.phases import GroupOutcome, RunCommitPhases, run_commit_phases
from txtopo.transactional.commit.point_keeper import PointKeeper
from txtopo.transactional.commit.tries import state_failure_below, tries
from txtopo.transactional.core.actions import AssignedAttempt, Commit, DeadLetter
from txtopo.transactional.core.events import Committed, Event, Fenced, GroupEnded, RuleBroken
from txtopo.transactional.core.measures import Measures, StateWrite, TransactionInput
from txtopo.transactional.recovery.coordinator_state import CommittedMark, CoordinatorState, Group
from txtopo.transactional.recovery.recover import marks_after
from txtopo.transactional.tasks.batch_run import CarriedBolt
from txtopo.transactional.tasks.factory import TaskFactory
from txtopo.transactional.tasks.failures import failed
from txtopo.transactional.tasks.fingerprint import Fingerprints, joined

logger = logging.getLogger("txtopo")

GroupWrites = Mapping[str, Writes]

_Spans = dict[str, tuple[float, float]]
"""From when to when a step of each state took, in seconds."""


class CommitThreads(AheadThreads, Protocol):
    """What a committer needs of the threads of a run."""

    def now_secs(self) -> float:
        """Return seconds of a clock that never goes back."""

    def sleep(self, duration_secs: float) -> None:
        """Pause before the next try."""

    def commit_phases(self) -> AbstractContextManager[object]:
        """Return the context of a group's commit phases, which ends before anything is written."""

    def together(self, steps: Sequence[Callable[[], None]]) -> None:
        """Run steps, at the same time if possible; raise the first error once all have ended."""


class Journal(Protocol):
    """What a committer needs of a journal."""

    def enter(self, entry: JournalEntry) -> bytes | None:
        """Append an entry; durable on return, or once what is returned is decided with the entry's group."""

    def decided(self) -> None:
        """Hear that the group of the last entry is decided."""


class Result(Protocol):
    """What an attempt's processing phase has left."""

    @property
    def fingerprints(self) -> Fingerprints:
        """The fingerprints of its components."""

    def load(self) -> Sequence[CarriedBolt]:
        """Return the bolts that its commit phase continues with."""


def _nothing(_txid: int) -> None:
    """Say that no transaction waits for its commit."""


class GroupCommitter:
    """Commits groups, one at a time.

    ``committed`` is the mark at the start. ``keeping`` keeps the points; None: none are. ``on_written`` is called with
    the names of the states that a group has written, once all of them are visible. The phases of as many of the next
    transactions as ``ahead_max`` run beside a group's writes.
    """

    def __init__(  # noqa: PLR0913 - committing depends on that many parts
        self,
        task_factory: TaskFactory,
        states: Mapping[str, OpenedState],
        coordinator_state: CoordinatorState,
        committed: CommittedMark,
        *,
        threads: CommitThreads,
        journal: Journal | None,
        run_phases: RunCommitPhases = run_commit_phases,
        keeping: PointKeeper | None = None,
        on_written: Callable[[Collection[str]], None] | None = None,
        ahead_max: int = 0,
    ) -> None:
        self._states = states
        self._of_phases = {name: state for name, state in states.items() if name != DEAD_LETTERS}
        """The states that commit phases see."""
        self._ahead = Ahead(task_factory, self._of_phases, threads, ahead_max) if ahead_max else None
        self.runs_ahead = self._ahead is not None
        self._on_written = on_written
        self._step_secs: dict[str, float] = {}
        """The time of each step of the group so far, in seconds."""
        self._task_factory = task_factory
        self._coordinator_state = coordinator_state
        self._committed = committed
        self._threads = threads
        self._now_secs = threads.now_secs
        self._journal = journal
        self._run_phases = run_phases
        self._gather_ms = 0
        self._gathering = Gathering(states)
        self._keeping = keeping

    def input_ranges(self, metadata: Any, previous: Any) -> dict[str, tuple[Any, Any]]:
        """Return the input of a transaction that is not committed, by partition; see :func:`input_ranges`."""
        return input_ranges(self._task_factory.plan.spouts, metadata, previous)

    def commit(
        self,
        action: Commit,
        results: Mapping[TransactionAttempt, Result],
        probe: ProgressProbe,
        following: Following = _nothing,
    ) -> list[Event]:
        """Commit a group up to the first failure, and return the resulting events."""
        events: list[Event] = []
        with self._ending(events, action.group_id):
            outcome = self._run_commit_phases(action.group, results, probe)
            if outcome.finished:
                fingerprints = {a: joined([results[a].fingerprints, outcome.fingerprints[a]]) for a in outcome.finished}
                finished = action.group[: len(outcome.finished)]

                def write() -> None:
                    entry = self._write(finished, outcome.writes, fingerprints)
                    emitted, emitted_on = _emitted(fingerprints.values())
                    measures = attrs.evolve(entry, emitted=emitted, emitted_on=emitted_on, readings=outcome.readings)
                    events.append(Committed(outcome.finished, measures=measures))
                    self._maintain()

                if self._ahead is None:
                    write()
                else:
                    self._ahead.write(write, outcome, following, probe, self._in_phases)
            events += _failure_events(outcome)
        return events

    def write_dead_letter(self, action: DeadLetter) -> list[Event]:
        """Write a dead letter at its place in the commit order, and return the resulting events."""
        given_up = action.given_up
        assert DEAD_LETTERS in self._states, "the policy SKIP has a dead-letter state"
        kind, txid = self._states[DEAD_LETTERS].declared.kind, given_up.attempt.txid
        error = action.error.encode(errors="backslashreplace").decode()  # a quoted name of a file may be no UTF-8
        given_up = self._discreet(attrs.evolve(given_up, failure=error))
        letter = (given_up.attempt.attempt, action.tries, json.dumps(given_up.metadata), given_up.failure)
        events: list[Event] = []
        with self._ending(events, action.group_id):
            writes: GroupWrites = {DEAD_LETTERS: {txid: stored_value(kind, txid, letter)}}
            measures = self._write((given_up,), writes, None)
            events.append(Committed((given_up.attempt,), measures=measures))
            self._maintain()
        return events

    @contextlib.contextmanager
    def _ending(self, events: list[Event], group_id: int) -> Iterator[None]:
        """Append the events that end a group, whatever error stops the run: the core must not wait for the group."""
        try:
            yield
        except StopError as error:
            if isinstance(error, DivergenceError):
                error.message += f"; the coordinator state is at transaction {self._committed.txid}"
            events.append(Fenced(error))
        except TxtopoError as error:
            events.append(RuleBroken(error))
        step_secs, self._step_secs = self._step_secs, {}
        events.append(GroupEnded(group_id, self._gather_ms, measures=Measures(step_secs=step_secs)))

    def _run_commit_phases(
        self, group: Sequence[AssignedAttempt], results: Mapping[TransactionAttempt, Result], probe: ProgressProbe
    ) -> GroupOutcome:
        """Run the commit phases of a group; if a table can't be read, try again.

        The results of the processing phase are kept, so nothing is processed again. The fault is the table's, so no
        transaction counts as failed. If some transactions finished before the failure, they are written first.
        """
        outcome = None
        # User code may have caught the StateFailure and raised an error of its own: the failure of the outcome then has
        # it as its cause. If txtopo itself read the table, after the last transaction, it is raised as it is.
        what_now = "nothing of this transaction was written; start again when it can be"
        for attempt in tries(self._threads.sleep, group[0].attempt.txid, "read or written", what_now):
            with attempt, self._in_phases():
                phases = None if self._ahead is None else self._ahead.take(group)
                run = self._run_phases if phases is None else functools.partial(run_commit_phases, started=phases)
                outcome = run(self._task_factory, self._of_phases, group, lambda a: results[a].load(), probe)
                failure = state_failure_below(outcome.failure)
                if failure is not None and outcome.finished:
                    outcome = attrs.evolve(outcome, failed=None, failure=None)  # the rest returns, for the next group
                elif failure is not None:
                    raise failure
        assert outcome is not None, "the last try either succeeds or raises"
        return outcome

    @contextlib.contextmanager
    def _in_phases(self) -> Iterator[None]:
        with self._timed("commit phases"), self._threads.commit_phases():
            yield

    def _write(
        self,
        group: Sequence[AssignedAttempt],
        writes: GroupWrites,
        fingerprints: Mapping[TransactionAttempt, Fingerprints] | None,
    ) -> Measures:
        first, last = group[0].attempt.txid, group[-1].attempt.txid
        metadata, planned = group[-1].metadata, group[-1].planned
        if self._keeping is not None:
            self._keeping.record_standing()
        notes: dict[str, Any] = dict.fromkeys(writes)
        # A crash in these steps leaves data files that no note names, which upkeep or the next recovery removes; and an
        # entry in the journal of transactions that never were, unless it rides in the decision. A last entry counts
        # only if the tables have its transactions, and the next leader's part of the journal goes on from the committed
        # mark.
        prepared: _Spans = {}
        published: _Spans = {}
        steps = [
            functools.partial(self._prepare, prepared, notes, name, last, values) for name, values in writes.items()
        ]
        inputs: Sequence[TransactionInput] = ()
        tail: list[bytes] = []
        if self._journal is not None:
            shown = [self._discreet(attempt) for attempt in group]
            entry = journal_entry(self._task_factory.plan.spouts, shown, self._committed.metadata, writes, fingerprints)
            # First, because the last step needs no other thread, and the group waits longest for a table.
            steps.insert(0, functools.partial(self._enter, self._journal, entry, tail))
            inputs = [
                TransactionInput(transaction.ranges, transaction.planned.references)
                for transaction in entry.transactions
            ]
        with self._timed("preparing"):
            self._threads.together(steps)
        # From here on the group is finished, whoever leads. A crash after this leaves states that have it and others
        # that have not: the next leader publishes each from its note, which does nothing where it is visible already.
        with self._timed("deciding"), durable_step("group.decide"):
            self._coordinator_state.decide(
                Group(first, last, tuple(writes), metadata, tuple(self._states), notes=notes, planned=planned), *tail
            )
        if self._journal is not None:
            self._journal.decided()
        with self._timed("table writes"):
            self._threads.together(
                [functools.partial(self._publish, published, name, last, notes[name]) for name in writes]
            )
        # In memory only: a crash before the next write leaves the note above the committed mark, and every state
        # published. The next leader publishes them again, which makes sure that they are durable, and sets the mark.
        marks = marks_after(self._committed, self._states, set(writes), last)
        self._committed = CommittedMark(last, metadata, marks, planned)
        self._coordinator_state.commit(self._committed, first)
        self._gather_ms = self._gathering.after_write(writes)
        if self._keeping is not None:
            self._keeping.record_committed(last)
        if self._on_written is not None:
            self._on_written(writes.keys())
        versions = {name: self._states[name].version for name in writes}
        return Measures(
            {
                name: StateWrite(prepared[name], published[name], *put_and_removed(values), versions[name])
                for name, values in writes.items()
            },
            inputs,
        )

    def _discreet(self, assigned: AssignedAttempt) -> AssignedAttempt:
        """Return an attempt whose failure may be read by anybody."""
        if not assigned.failure:
            return assigned
        return attrs.evolve(assigned, failure=without_secrets(assigned.failure, self._task_factory.config))

    def _prepare(self, spans: _Spans, notes: dict[str, Any], name: str, txid: int, values: Writes) -> None:
        began = self._now_secs()
        what_now = "nothing of this group is written; start again when it is writable"
        for attempt in tries(self._threads.sleep, txid, "prepared", what_now, self._states[name].declared.retry_secs):
            with attempt, durable_step("table.prepare"):
                notes[name] = self._states[name].prepare(txid, values)
        spans[name] = began, self._now_secs()

    def _enter(self, journal: Journal, entry: JournalEntry, tail: list[bytes]) -> None:
        with durable_step("group.journal"):
            wait_for_descriptor(self._threads.sleep)
            riding = journal.enter(entry)
            if riding is not None:
                tail.append(riding)

    def _publish(self, spans: _Spans, name: str, txid: int, note: Any) -> None:
        began = self._now_secs()
        # If a write was made and only its answer was lost, the next try finds the transaction and does nothing.
        what_now = "start again when it is writable, and recovery will finish the group"
        for attempt in tries(self._threads.sleep, txid, "written", what_now, self._states[name].declared.retry_secs):
            with attempt, durable_step("table.write"):
                self._states[name].publish(txid, note)
        spans[name] = began, self._now_secs()

    def flush(self) -> list[Event]:
        """Make durable that the last group is committed, if no other group follows that would do so."""
        self._coordinator_state.flush()
        return []

    @property
    def has_upkeep_by_time(self) -> bool:
        """Whether :meth:`keep_up` may have something to do."""
        is_bounded = self._keeping is not None and self._keeping.is_recent_kept
        return is_bounded and any(isinstance(state, KeepsHistory) for state in self._states.values())

    def keep_up(self) -> list[Event]:
        """Let the states do the upkeep that has become due by time, while no group is committed."""
        self._maintain()
        return []

    def _maintain(self) -> None:
        """Let the states do their upkeep. A crash in it leaves the rows as they are; it runs again later.

        Log entries that are too old go in it. The durable mark may name a version as old as that, if nothing was
        written for as long, and the next start compares the log from there on. So the mark becomes durable before.
        """
        with self._timed("upkeep"):
            if self._keeping is not None:
                self._keeping.tell(self._states.values())
            if any(state.is_upkeep_due for state in self._states.values()):
                self._coordinator_state.flush()
            for state in self._states.values():
                # The group is committed, and the upkeep runs again later: its failure need not stop the run.
                try:
                    with durable_step("table.maintain"):
                        state.maintain()
                except FailedException as error:
                    why = without_secrets(str(error))
                    logger.warning("maintenance of a table failed; it will run again after a later group: %s", why)

    def _timed(self, step: str) -> _Timed:
        return _Timed(self._step_secs, step, self._now_secs)


class _Timed:
    """Adds up the time spent in its context. A class and not a generator, because groups enter it for every step."""

    __slots__ = ("_now_secs", "_started", "_step", "_step_secs")

    def __init__(self, step_secs: dict[str, float], step: str, now_secs: Callable[[], float]) -> None:
        self._step_secs = step_secs
        self._step = step
        self._now_secs = now_secs

    def __enter__(self) -> None:
        self._started = self._now_secs()

    def __exit__(self, *error: object) -> None:
        step, step_secs = self._step, self._step_secs
        step_secs[step] = step_secs.get(step, 0.0) + self._now_secs() - self._started


def _emitted(fingerprints: Iterable[Fingerprints]) -> tuple[dict[str, int], dict[tuple[str, str], int]]:
    """Return the tuples that each component emitted, and those on each stream but the default one."""
    emitted: dict[str, int] = {}
    emitted_on: dict[tuple[str, str], int] = {}
    for by_component in fingerprints:
        for component, fingerprint in by_component.items():
            emitted[component] = emitted.get(component, 0) + fingerprint.tuples
            for stream, tuples in fingerprint.streams.items():
                emitted_on[component, stream] = emitted_on.get((component, stream), 0) + tuples
    return emitted, emitted_on


def _failure_events(outcome: GroupOutcome) -> list[Event]:
    if outcome.failed is None:
        return []
    match outcome.failure:
        case FailedException() as failure:
            return [failed(outcome.failed, failure)]
        case StopError() as error:
            return [Fenced(error)]
        case error:
            assert error is not None, "a failed attempt has a failure"
            return [RuleBroken(error, outcome.failed)]
