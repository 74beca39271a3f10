"""A plain model of the world round a coordinator: what is durable, what is under way, and what must hold.

It carries out actions as a run loop would, at once, and answers when it is told to. Nothing in it is clever: what
is durable is a list of commits and a dictionary of metadata. Each check names the promise it keeps.

A repeatable source makes metadata that is different each time it is made, so that a second metadata for one
txid shows. An opaque source is a row of numbers: an attempt goes from a start in the row to an end, which is its
metadata; whatever commits must start where the one before it ended.
"""

from collections.abc import Iterable
from typing import Any, assert_never

import attrs

from txtopo.api.components.planned import NEVER, Planned
from txtopo.attempts import TransactionAttempt
from txtopo.errors import JobFailure, LostLead, PoisonTransaction
from txtopo.testing.checkers import AttemptChecker, CoreChecker, validate
from txtopo.transactional.core.actions import (
    AbandonCommit,
    Action,
    AssignedAttempt,
    CancelJob,
    CleanUp,
    Commit,
    CreateMetadata,
    DeadLetter,
    Process,
    SaveMetadata,
    Stop,
    StopReason,
)
from txtopo.transactional.core.coordinator import Coordinator
from txtopo.transactional.core.events import (
    Activated,
    AttemptLost,
    Committed,
    Event,
    Failed,
    Fenced,
    GroupEnded,
    JobEnded,
    JobLost,
    MetadataCreated,
    Processed,
    Recovered,
    SourceStatus,
    Ticked,
    TransactionMetadata,
)
from txtopo.transactional.core.limits import GiveUpPolicy, Limits
from txtopo.transactional.core.spout_policy import MIXED, SpoutPolicy
from txtopo.transactional.core.transitions import Status

UNKNOWN = "where it ends is not known"
REPEATS, EMITTED = "repeatable", "opaque"
"""The spouts of a topology of both kinds."""
ERROR = "told to fail"
LETTER_ERROR = "the letter was told to fail"

PAUSE_MS = 500
STEPS_MAX = 100
STEPS_EACH_MAX = 20
"""Steps within which a world without faults ends: some to recover and pause, and some for each transaction."""


@attrs.frozen
class Span:
    """Where an attempt at an opaque transaction begins and ends in the row of numbers."""

    start: int
    end: int


@attrs.define(eq=False)
class Job:
    """A job under way, and the attempts it has not answered for."""

    unanswered: list[TransactionAttempt]


@attrs.define(eq=False)
class Group:
    """A commit group or a dead letter under way, and what is still to be told of it once it has run."""

    group_id: int
    attempts: tuple[TransactionAttempt, ...]
    metadata: dict[TransactionAttempt, Any]
    is_letter: bool
    to_tell: list[Event] | None = None


@attrs.define(eq=False)
class Question:
    """What the source was asked, and how it stood then, which is what it answers by."""

    asked: CreateMetadata
    is_exhausted: bool


class World:
    """What surrounds one coordinator after another.

    Args:
        total: transactions (repeatable) or numbers (opaque) that the source has; of both kinds, as many of each.
        spout: the policy of its kind, or of both.
    """

    def __init__(self, total: int, spout: SpoutPolicy) -> None:
        self.total = total
        self.spout = spout
        self.now_ms = 0
        self.epoch = 0
        # Durable.
        self.metadata: dict[int, Any] = {}
        self.committed: list[TransactionAttempt] = []
        self.committed_metadata: Any = None
        # Known to the checks only.
        self.highest: dict[int, TransactionAttempt] = {}
        self.emitted: dict[TransactionAttempt, Span] = {}
        self.planned: dict[int, Planned] = {}
        self.made = 0
        self.is_finished = False
        self.attempts = AttemptChecker(spout)
        self._lead(Limits(1, 1, 1, 1, 1))

    def _lead(self, limits: Limits) -> None:
        self.core = Coordinator(limits)
        self.checker = CoreChecker(self.attempts, self.attempts.spout, limits.timeout_ms)
        self.jobs: dict[int, Job] = {}
        self.group: Group | None = None
        self.question: Question | None = None
        self.past: list[Event] = []
        self.unsaid: list[TransactionAttempt] = []
        self.processed: set[TransactionAttempt] = set()
        self.kept: set[int] = set()
        self.committed_before = len(self.committed)
        self.has_asked_to_stop = False
        self.actions_max: int | None = None
        self.has_crashed = False

    # What a test does.

    @property
    def is_running(self) -> bool:
        """Whether a coordinator takes events."""
        return not self.core.has_stopped and not self.has_crashed

    def start(self, limits: Limits, more: int = 0) -> None:
        """Crash, if something runs, and let a new coordinator take the lead.

        Args:
            limits: its bounds.
            more: what the source has gained meanwhile.
        """
        self._lead(limits)
        self.total += more
        self.is_finished = False
        self.epoch += 1
        last = len(self.committed)
        begun = [
            TransactionMetadata(txid, self.metadata[txid], self.planned[txid])
            for txid in sorted(self.metadata)
            if txid > last
        ]
        planned = self.planned.get(last, NEVER)
        self.tell(
            Recovered(
                self.epoch, TransactionMetadata(last, self.committed_metadata, planned), tuple(begun), self.now_ms
            )
        )

    def tell(self, event: Event) -> None:
        """Hand an event in, check the coordinator, and carry out what it says."""
        if isinstance(event, (Processed, Failed, AttemptLost, JobEnded, JobLost)):
            self.past.append(event)
        self._note(event)
        self.checker.hear(self.core, [event])
        actions = self.core.handle(event)
        self.checker.see(self.core, actions)
        assert not any(isinstance(action, Stop) for action in actions[:-1]), "nothing comes behind a stop"
        for index, action in enumerate(actions):
            if index == self.actions_max:
                self._crash_in(action)
                return
            self._carry_out(action)

    def lose_lead(self, limits: Limits, events: int) -> None:
        """Let another coordinator lead; the one before goes on for a while, and then finds it out (promise 11)."""
        zombie, jobs = self.core, list(self.jobs.values())
        attempts = [attempt for job in jobs for attempt in job.unanswered][:events]
        self.start(limits)
        for attempt in attempts:
            zombie.handle(Processed(attempt, self._emitted_by(attempt)))  # what it says to that, nobody carries out
            validate(zombie)
        error = LostLead("another coordinator leads")
        actions = zombie.handle(Fenced(error))
        stops = [action for action in actions if isinstance(action, Stop)]
        assert len(stops) == 1, "it stops at once"
        is_known = stops[0].error is error or isinstance(stops[0].error, JobFailure | PoisonTransaction)
        assert is_known, "it says why, or what it waited for its group's end with"
        assert all(isinstance(action, (Stop, CancelJob)) for action in actions), "and does nothing more"
        assert zombie.handle(Ticked(self.now_ms + 10_000)) == [], "for ever"

    def tell_too_late(self, event: Event) -> None:
        """Hand in what can't count any more (promise 3)."""
        actions = self.core.handle(event)
        validate(self.core)
        assert actions == [], "late and doubled answers change nothing"

    def answer_source(self, count: int, status: SourceStatus) -> None:
        """Begin up to ``count`` of the transactions asked for, as the source stood when it was asked."""
        question = self.question
        assert question is not None, "the source was asked"
        self.question = None
        if question.is_exhausted:
            self.tell(MetadataCreated((), SourceStatus.EXHAUSTED))
            return
        first = question.asked.first_txid
        count = min(count, question.asked.count)
        if self.spout.keeps_begun:
            count = min(count, self.total - first + 1)
            if first + count > self.total:
                status = SourceStatus.EXHAUSTED
        before_ms = question.asked.previous_planned.at_ms
        self.planned |= {txid: Planned(before_ms + 1 + txid - first) for txid in range(first, first + count)}
        begun = [
            TransactionMetadata(txid, self._make(txid), self.planned[txid]) for txid in range(first, first + count)
        ]
        self.tell(MetadataCreated(tuple(begun), status))

    def answer(self, job: Job, index: int, *, fails: bool, knows_metadata: bool = False) -> None:
        """Answer for one of the attempts of a job."""
        attempt = job.unanswered.pop(index)
        metadata = self._emitted_by(attempt)
        if fails:
            self.tell(Failed(attempt, ERROR, metadata if knows_metadata else None))
        else:
            self.tell(Processed(attempt, metadata))

    def lose(self, job: Job, index: int) -> None:
        """Lose an attempt with its worker; its job goes on."""
        self.tell(AttemptLost(job.unanswered.pop(index), ERROR))

    def end_job(self, job_id: int, *, is_lost: bool) -> None:
        """End a job; what it has not answered for may come late."""
        self.unsaid += self.jobs.pop(job_id).unanswered
        self.tell(JobLost(job_id, ERROR) if is_lost else JobEnded(job_id))

    def commit(self, count: int, *, fails: bool, gather_ms: int = 0) -> None:
        """Run the group: its first ``count`` attempts are durable at once; the next one fails, if told to."""
        group = self.group
        assert group is not None, "a group is under way"
        assert group.to_tell is None, "it runs once"
        done = group.attempts[:count]
        for attempt in done:
            self._make_durable(attempt, group)
        group.to_tell = [Committed(done)] if done else []
        if fails and count < len(group.attempts):
            group.to_tell.append(Failed(group.attempts[count], LETTER_ERROR if group.is_letter else ERROR))
        group.to_tell.append(GroupEnded(group.group_id, gather_ms))

    def tell_of_group(self) -> None:
        """Hand in what comes next of a group that has run."""
        group = self.group
        assert group is not None, "a group is under way"
        assert group.to_tell, "it has run"
        event = group.to_tell.pop(0)
        if isinstance(event, GroupEnded):
            self.group = None
        self.tell(event)

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass."""
        self.now_ms += duration_ms
        self.tell(Ticked(self.now_ms))

    def go_well(self, choice: int = 0) -> None:
        """Take one step without a fault: answer something that was asked, or let time pass if nothing was.

        Args:
            choice: which of all that is under way is answered for.
        """
        under_way: list[Question | Group | int] = [*self.jobs]
        under_way += [each for each in (self.question, self.group) if each is not None]
        if not under_way:
            self.pass_time(PAUSE_MS)
            return
        match under_way[choice % len(under_way)]:
            case Question() as question:
                self.answer_source(question.asked.count, SourceStatus.READY)
            case Group() as group:
                if group.to_tell is None:
                    self.commit(len(group.attempts), fails=False)
                self.tell_of_group()
            case job_id if self.jobs[job_id].unanswered:
                self.answer(self.jobs[job_id], 0, fails=False)
            case job_id:
                self.end_job(job_id, is_lost=False)

    def finish(self, limits: Limits) -> None:
        """Go on without any faults, and see that all is committed within a bounded number of steps."""
        self.actions_max = None
        if self.is_running:
            self.tell(Activated())
        for _ in range(STEPS_MAX + STEPS_EACH_MAX * self.total):
            if self.is_finished:
                return
            if self.is_running:
                self.go_well()
            else:
                self.start(limits)
        raise AssertionError(f"it does not come to an end; {self.committed} of {self.total} are committed")

    # What the coordinator says.

    def _crash_in(self, action: Action) -> None:
        """Crash before an action; of a save in several steps, the first ones may be durable."""
        self.has_crashed = True
        if isinstance(action, SaveMetadata):
            self._save(action.begun[: self.now_ms % (len(action.begun) + 1)])

    def _carry_out(self, action: Action) -> None:
        match action:
            case CreateMetadata():
                self._ask(action)
            case SaveMetadata():
                self._save(action.begun)
            case Process():
                self._process(action)
            case CancelJob():
                held = self.jobs[action.job_id].unanswered
                is_of_use = any(self._is_processing(attempt) for attempt in held)
                assert self.core.has_stopped or not is_of_use, "nothing of use is stopped"
            case Commit():
                self._start_group(action.group_id, action.group)
                for each in action.group:
                    assert each.attempt in self.processed, "only what is processed commits"
            case DeadLetter():
                self._start_group(action.group_id, (action.given_up,), is_letter=True)
                self._write_dead_letter(action)
            case AbandonCommit():
                assert self.group is not None, "there is something to abandon"
                assert self.group.group_id == action.group_id, "it is what runs"
            case CleanUp():
                assert action.txid <= len(self.committed), "nothing is forgotten that may be asked for again"
            case Stop():
                self._check_stop(action)
            case _:
                assert_never(action)

    def _ask(self, action: CreateMetadata) -> None:
        assert self.question is None, "one question at a time"
        assert 1 <= action.count <= self.core.limits.pending_max, "it asks for no more than may be pending"
        assert action.previous_planned == self.planned.get(action.first_txid - 1, NEVER), "it goes on from that time"
        end = self._end_of(action.previous_metadata)
        if not self.spout.repeats:
            assert end != UNKNOWN, "the chain of metadata has no hole"
        if self.spout.keeps_begun:
            assert action.first_txid == len(self.metadata) + 1, "it goes on behind what is durable"
            before = self.metadata.get(action.first_txid - 1)
            assert _planned_in(action.previous_metadata) == _planned_in(before), "from its metadata"
        self.question = Question(
            action, action.first_txid > self.total if self.spout.keeps_begun else end == self.total
        )

    def _save(self, begun: Iterable[TransactionMetadata]) -> None:
        for each in begun:
            assert self.spout.keeps_begun, "nothing of an opaque transaction is known beforehand"
            assert each.txid not in self.metadata, "metadata never changes (promise 2)"
            self.metadata[each.txid] = each.metadata

    def _process(self, action: Process) -> None:
        end = self._end_of(action.previous_metadata)
        for assigned in action.attempts:
            attempt = assigned.attempt
            self._rise(attempt)
            assert assigned.planned == self.planned[attempt.txid], "when it was planned never changes"
            if self.spout.keeps_begun:
                assert assigned.metadata == self.metadata[attempt.txid], "it is durable before (promise 2)"
            else:
                assert assigned.metadata == UNKNOWN, "it is begun anew"
            if self.spout.repeats:
                assert attempt.txid not in self.kept, "what was processed keeps its work (promise 5)"
            else:
                assert end != UNKNOWN, "the chain of metadata has no hole"
                start, end = end, min(self.total, end + 1 + (attempt.txid + attempt.attempt) % 3)
                self.emitted[attempt] = Span(start, end)
        if self.spout.keeps_begun:
            before = self.metadata.get(action.attempts[0].attempt.txid - 1)
            assert _planned_in(action.previous_metadata) == _planned_in(before), "a job goes on from the one before"
        self.jobs[action.job_id] = Job([assigned.attempt for assigned in action.attempts])

    def _start_group(self, group_id: int, group: tuple[AssignedAttempt, ...], *, is_letter: bool = False) -> None:
        assert self.group is None, "commit phases never overlap (promise 1)"
        assert len(group) <= self.core.limits.group_transactions_max, "a group is bounded"
        metadata = {each.attempt: each.metadata for each in group}
        assert all(each.planned == self.planned[each.attempt.txid] for each in group), "as it was processed"
        self.group = Group(group_id, tuple(metadata), metadata, is_letter)

    def _write_dead_letter(self, action: DeadLetter) -> None:
        limits = self.core.limits
        self._rise(action.given_up.attempt)
        assert limits.give_up_policy is GiveUpPolicy.SKIP, "the policy says so"
        assert limits.tries_max is not None, "tries are bounded"
        assert action.tries >= limits.tries_max, "it was tried as often as allowed"
        assert action.error != LETTER_ERROR, "its error is the transaction's own"

    def _check_stop(self, stop: Stop) -> None:
        limits = self.core.limits
        match stop.reason:
            case StopReason.EXHAUSTED:
                self._check_complete()
                self.is_finished = True
            case StopReason.UNTIL:
                assert limits.until is not None, "an end was asked for"
                assert len(self.committed) == max(limits.until, self.committed_before), "all of it, no more"
            case StopReason.REQUESTED:
                assert self.has_asked_to_stop, "someone asked for it"
            case StopReason.FAILED:
                self._check_failure(stop.error)
            case _:
                assert_never(stop.reason)

    def _check_failure(self, error: Exception | None) -> None:
        limits = self.core.limits
        assert isinstance(error, (PoisonTransaction, JobFailure)), "nothing else goes wrong here"
        if isinstance(error, PoisonTransaction):
            assert limits.tries_max is not None, "tries are bounded"
            assert not self.spout.repeats or limits.give_up_policy is GiveUpPolicy.WAIT, "or it is skipped"
            if limits.give_up_policy is GiveUpPolicy.WAIT:
                assert error.txid == len(self.committed) + 1, "what is before it has committed (promise 6)"

    def _check_complete(self) -> None:
        """Nothing is lost: all that the source has is committed or in a dead letter (promises 6 and 16)."""
        if not self.spout.repeats:
            assert self._end_of(self.committed_metadata) == self.total
        if self.spout.keeps_begun:
            assert len(self.committed) == self.total

    # Leaves.

    def _make(self, txid: int) -> Any:
        self.made += 1
        planned = f"{txid}, made as {self.made}"
        if self.spout is MIXED:
            return {REPEATS: planned, EMITTED: UNKNOWN}
        return planned if self.spout.repeats else UNKNOWN

    def _emitted_by(self, attempt: TransactionAttempt) -> Any:
        if self.spout.repeats:
            return None
        end = self.emitted[attempt].end
        return {EMITTED: end} if self.spout is MIXED else end

    def _end_of(self, metadata: Any) -> Any:
        """Return the number that an opaque transaction ended before."""
        return (metadata[EMITTED] if isinstance(metadata, dict) else metadata) or 0

    def _rise(self, attempt: TransactionAttempt) -> None:
        highest = self.highest.get(attempt.txid)
        assert highest is None or attempt > highest, "attempts rise, across crashes too (promise 3)"
        assert attempt.epoch == self.epoch, "an attempt tells its epoch"
        self.highest[attempt.txid] = attempt

    def _make_durable(self, attempt: TransactionAttempt, group: Group) -> None:
        assert attempt.txid == len(self.committed) + 1, "each commits once, in order (promise 1)"
        metadata = group.metadata[attempt]
        if self.spout.keeps_begun:
            assert _planned_in(metadata) == _planned_in(self.metadata[attempt.txid]), "it never changes (promise 2)"
        if not self.spout.repeats:
            span = Span(self._end_of(self.committed_metadata), self._end_of(metadata))
            tried = self.emitted.items()
            own = {each for each, _ in tried if each == attempt or (group.is_letter and each.txid == attempt.txid)}
            assert span in {self.emitted[each] for each in own}, "it goes from the end of the one before to its own"
        self.committed.append(attempt)
        self.committed_metadata = metadata

    def _is_processing(self, attempt: TransactionAttempt) -> bool:
        return self.is_live(attempt) and self.core.pending[attempt.txid].status is Status.PROCESSING

    def is_live(self, attempt: TransactionAttempt) -> bool:
        """Whether an attempt's answers count, as the coordinator sees it."""
        transaction = self.core.pending.get(attempt.txid)
        return transaction is not None and transaction.attempt == attempt

    def _note(self, event: Event) -> None:
        """Keep in mind which live attempts have been answered for."""
        if isinstance(event, Processed) and self._is_processing(event.attempt):
            self.processed.add(event.attempt)
            self.kept.add(event.attempt.txid)
        elif isinstance(event, Failed) and self.is_live(event.attempt):
            self.processed.discard(event.attempt)
            self.kept.discard(event.attempt.txid)


def _planned_in(metadata: Any) -> Any:
    """Return what a repeatable transaction has begun with."""
    return metadata[REPEATS] if isinstance(metadata, dict) else metadata
