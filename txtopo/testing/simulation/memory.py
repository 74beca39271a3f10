"""What the jobs of earlier schedules came to: thousands of schedules need not run the same bolts on the same batch.

A schedule is about coordinators, recovery and tables; its processing phases mostly repeat what other schedules have
run: the same attempt of the same transaction in the same layout. So an attempt is *told again* once it has been run
twice and came to the very same both times, to the byte: the emitters emit for it as always, and what they emit is
compared; its reports are those of before.

At which of its failpoints faults strike an attempt is drawn before its job begins (see :class:`Passage`). So the same
faults strike whether it is run or told, and whatever the order that slots work in. An attempt that is told fails where
the first one strikes, as one that is run does.

Where an attempt has not been seen twice, where an emitter emits something else, and now and then in any case, the job
is run. If what is run ever differs from what was remembered, the topology's bolts depend on something else than their
batch, and nothing is remembered any more.

So the same seed makes the same schedule, whatever is remembered.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from txtopo.api.collector import BatchOutputCollector
from txtopo.api.spout import Emitter
from txtopo.api.tuples import DEFAULT_STREAM
from txtopo.attempts import TransactionAttempt
from txtopo.errors import FailedException
from txtopo.processing.inline_runner import run_stages
from txtopo.processing.layout import SlotAssignment
from txtopo.processing.stage_run import Job, Report
from txtopo.tasks.factory import TaskFactory
from txtopo.tasks.state_handle import attempt_origin
from txtopo.tasks.user_output import OutputOrigin

RUN_ALL_THE_SAME = 32
"""Of so many jobs that could be told, one is run all the same."""

PARTS_MAX = 50_000
"""Attempts that are remembered at most."""

STRUCK = "the simulator told it to fail"
"""What a fault says that strikes the user's code."""

Emitted = tuple[int | None, Any, str]
"""One call of a collector: the task that was named, values or columns, and the stream."""


@attrs.frozen(eq=False)
class Emission:
    """An emitter's share of a batch."""

    attempt: TransactionAttempt
    metadata: Any
    task: int
    calls: list[Emitted]

    def is_repeated_by(self, task_factory: TaskFactory) -> bool:
        """Let the emitter emit once more; return whether it was the same."""
        listening = _Listening(None)
        task_factory.emitter(self.task).emit_batch(self.attempt, self.metadata, listening)
        return _are_same(self.calls, listening.calls)


@attrs.frozen
class Point:
    """A failpoint in the user's code, and whose code that is."""

    failpoint: str
    component: str
    task: int | None


Step = Point | Emission
"""A failpoint that was reached, or an emission."""


@attrs.define(eq=False)
class Passage:
    """An attempt's way through the user's code in one job, and the faults that wait for it there.

    Args:
        faults: at which of the failpoints that it reaches they strike, counted from 0.
        strike: is told of each that does, by the failpoint's name.
    """

    faults: tuple[int, ...] = ()
    strike: Callable[[str], None] = lambda _: None
    steps: list[Step] = attrs.field(factory=list)
    struck: int = 0
    """How many have struck."""
    _reached: int = 0

    def reach(self, point: Point) -> None:
        """Come by a failpoint; raise FailedException if a fault strikes there."""
        self.steps.append(point)
        self._reached += 1
        if self._reached - 1 in self.faults:
            self.struck += 1
            self.strike(point.failpoint)
            raise FailedException(STRUCK)


Passages = Mapping[TransactionAttempt, Passage]
"""The passages of a job's attempts."""


@attrs.define(eq=False)
class Part:
    """One attempt of a job, which nothing outside of it can change, and what it came to where no fault struck it."""

    attempt: TransactionAttempt
    steps: tuple[Step, ...]
    reports: tuple[Report, ...]
    is_spread: bool
    is_known: bool = False
    """Whether it has come to the same twice."""
    points: tuple[Point, ...] = attrs.field(init=False)
    """The failpoints among its steps."""
    size: int = attrs.field(init=False)
    """Bytes of the bolts that it carries."""

    def __attrs_post_init__(self) -> None:
        self.points = tuple(step for step in self.steps if isinstance(step, Point))
        self.size = sum(len(bolt.state) for report in self.reports for bolt in report.carried)

    @property
    def is_memorable(self) -> bool:
        """Whether it can be told again: it has ended in good order or with a failure, and left nothing in a file."""
        return bool(self.steps) and all(
            report.staged is None and (report.failure is None or isinstance(report.failure, FailedException))
            for report in self.reports
        )

    def is_same(self, other: Part) -> bool:
        """Whether two runs have come to the same."""
        return (
            len(self.steps) == len(other.steps)
            and all(map(_is_same_step, self.steps, other.steps))
            and [*map(_words, self.reports)] == [*map(_words, other.reports)]
        )

    def can_be_told(self, passage: Passage) -> bool:
        """Whether it is certain what it comes to with a passage's faults.

        In a spread layout the other slots go on when one has failed, and what they come by then nobody knows.
        """
        faults = sum(fault < len(self.points) for fault in passage.faults)
        if faults == 0:
            return True
        return all(report.failure is None for report in self.reports) and (faults == 1 or not self.is_spread)

    def emits_the_same(self, task_factory: TaskFactory, passage: Passage) -> bool:
        """Let the emitters emit once more, as far as no fault strikes before; return whether it was the same."""
        left = passage.faults[0] if passage.faults else len(self.points)
        for step in self.steps:
            if isinstance(step, Emission):
                if not step.is_repeated_by(task_factory):
                    return False
            elif left == 0:
                break
            else:
                left -= 1
        return True

    def told(self, passage: Passage) -> tuple[Report, ...]:
        """Return the reports once more; where a fault strikes, that of the failure."""
        if not passage.faults or passage.faults[0] >= len(self.points):
            return self.reports
        passage.strike(self.points[passage.faults[0]].failpoint)
        return (self.failing(passage),)

    def failing(self, passage: Passage) -> Report:
        """Return what is reported when the first fault strikes."""
        point = self.points[passage.faults[0]]
        error = FailedException(STRUCK, **attempt_origin(point.component, self.attempt))
        return Report(self.attempt, tallies={}, tuples_emitted=0, tasks_finished=0, failure=error)


def _words(report: Report) -> tuple[Report, str]:
    """Return what two reports are compared by: errors are equal if they say the same."""
    return attrs.evolve(report, failure=None), _error_words(report)


def _error_words(report: Report) -> str:
    return repr(report.failure) + str(report.failure)


def _is_same_step(one: Step, other: Step) -> bool:
    if isinstance(one, Emission) and isinstance(other, Emission):
        return (one.task, one.attempt) == (other.task, other.attempt) and _are_same(one.calls, other.calls)
    return one == other


def _are_same(ones: Sequence[Emitted], others: Sequence[Emitted]) -> bool:
    """Whether the same was emitted, to the types of the values."""
    if len(ones) != len(others):
        return False
    for (task, values, stream), (other_task, other_values, other_stream) in zip(ones, others, strict=True):
        if task != other_task or stream != other_stream or type(values) is not type(other_values):
            return False
        if isinstance(values, tuple):
            if values != other_values or [*map(type, values)] != [*map(type, other_values)]:
                return False
        elif not values.equals(other_values):
            return False
    return True


class Reaching:
    """Where failpoints of spout and bolts arrive.

    Args:
        strike: is told of those of commit phases; raises FailedException if a fault strikes.
    """

    def __init__(self, strike: Callable[[str], None]) -> None:
        self._strike = strike
        self._passages: Passages = {}

    @contextlib.contextmanager
    def in_job(self, passages: Passages) -> Iterator[None]:
        """Within the context, let the attempts of a job come by failpoints."""
        self._passages = passages
        try:
            yield
        finally:
            self._passages = {}

    def reach(self, failpoint: str) -> None:
        """Let a fault strike, if it does."""
        origin = OutputOrigin.running[threading.get_ident()]
        passage = None if origin.attempt is None else self._passages.get(origin.attempt)
        if passage is None:
            self._strike(failpoint)
        else:
            passage.reach(Point(failpoint, origin.component, origin.task))


PartKey = Hashable
"""What a part is remembered by: where its tasks run, the attempt and its metadata."""


@attrs.frozen(eq=False)
class Learned:
    """What a memory has learned; it travels to that of another process."""

    is_on: bool
    parts: Mapping[PartKey, Part]


class JobMemory:
    """Remembers the attempts of jobs, for all schedules of a topology.

    Args:
        is_on: whether it does; otherwise every job is run.
    """

    def __init__(self, *, is_on: bool = True) -> None:
        self.told = 0
        """Attempts that were told again."""
        self._parts: dict[PartKey, Part] = {}
        self._learned: dict[PartKey, Part] = {}
        self._is_on = is_on
        self._known = 0

    def run(self, job: Job, task_factory: ListeningTaskFactory, passages: Passages) -> Sequence[Report]:
        """Run a job to its end, or tell again what its attempts came to; those that are not known are run.

        Args:
            job: the job; not of an opaque spout, whose emitters may emit something else each time.
            task_factory: makes the tasks' objects.
            passages: the ways of its attempts, at their beginning.
        """
        known = self._known_parts(job, task_factory, passages) if self._is_on else {}
        self.told += len(known)
        reports = [report for attempt, part in known.items() for report in part.told(passages[attempt])]
        left = tuple(each for each in job.attempts if each[0] not in known)
        if left:
            reports += self._run(attrs.evolve(job, attempts=left), task_factory, passages)
        return reports

    def _run(self, job: Job, task_factory: ListeningTaskFactory, passages: Passages) -> list[Report]:
        """Run a job, and remember it."""
        with task_factory.heard(passages):
            ran = run_stages(job, [task_factory] * job.layout.slots, lambda sent: sent)
        reports = [*map(_as_it_travels, ran)]
        if self._is_on:
            for key, (attempt, _) in zip(_keys(job), job.attempts, strict=True):
                own = tuple(report for report in reports if report.attempt == attempt)
                part = Part(attempt, tuple(passages[attempt].steps), own, _is_spread(job))
                self._compare(key, part, passages[attempt])
        return reports

    def take_learned(self) -> Learned:
        """Return what was learned since this was asked last."""
        learned, self._learned = self._learned, {}
        return Learned(self._is_on, learned)

    def learn(self, learned: Learned) -> None:
        """Take over what the memory of another process has learned."""
        for key, part in learned.parts.items():
            self._remember(key, part)
        if not learned.is_on:
            self._forget_all()
        self._learned.clear()

    def _known_parts(
        self, job: Job, task_factory: ListeningTaskFactory, passages: Passages
    ) -> dict[TransactionAttempt, Part]:
        """Return the parts of a job that can be told; in a spread layout all or none, for they share their slots."""
        known = {}
        for key, (attempt, _) in zip(_keys(job), job.attempts, strict=True):
            part = self._parts.get(key)
            if part is not None and part.is_known and part.can_be_told(passages[attempt]):
                known[attempt] = part
        if not known or (_is_spread(job) and len(known) < len(job.attempts)):
            return {}
        self._known += 1
        if self._known % RUN_ALL_THE_SAME == 0 or sum(part.size for part in known.values()) > job.report_bytes_max:
            return {}
        try:
            task_factory.cleanup_before(job.committed)
            are_same = all(part.emits_the_same(task_factory, passages[attempt]) for attempt, part in known.items())
        except Exception:  # noqa: BLE001 - whatever the user's emitter raises; the run that follows shows it
            return {}
        return known if are_same else {}

    def _compare(self, key: PartKey, part: Part, passage: Passage) -> None:
        """Remember what an attempt came to, and see that it is what it came to before."""
        if passage.struck == 0:
            if part.is_memorable:
                self._remember(key, part)
            return
        before = self._parts.get(key)
        if before is not None and before.is_known and before.can_be_told(passage):
            failures = [_error_words(report) for report in part.reports if report.failure is not None]
            if failures[:1] != [_error_words(before.failing(passage))]:
                self._forget_all()

    def _remember(self, key: PartKey, part: Part) -> None:
        before = self._parts.get(key)
        if before is None:
            if self._is_on and len(self._parts) < PARTS_MAX:
                self._parts[key] = self._learned[key] = part
        elif not before.is_same(part):
            self._forget_all()
        elif not before.is_known:
            before.is_known = True
            self._learned[key] = before

    def _forget_all(self) -> None:
        self._is_on = False
        self._parts.clear()
        self._learned.clear()


def _keys(job: Job) -> Iterator[PartKey]:
    """Yield what each attempt of a job is remembered by; which slots its tasks are spread over is part of it."""
    slots = job.layout.slots
    for index, (attempt, metadata) in enumerate(job.attempts):
        place = (slots, index % slots) if _is_spread(job) else None
        yield place, attempt, repr(metadata)


def _is_spread(job: Job) -> bool:
    return any(stage.assignment is not SlotAssignment.BY_TRANSACTION for stage in job.layout.stages)


def _as_it_travels(report: Report) -> Report:
    """Return a report as it arrives from another process: a failure has left its traceback there."""
    if report.failure is None:
        return report
    return attrs.evolve(report, failure=pickle.loads(pickle.dumps(report.failure)))  # noqa: S301 - our own bytes


class _Listening(BatchOutputCollector):
    """Notes what an emitter emits, and hands it on."""

    def __init__(self, to: BatchOutputCollector | None) -> None:
        self.calls: list[Emitted] = []
        self._to = to

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        self.calls.append((None, tuple(values), stream))
        if self._to is not None:
            self._to.emit(values, stream)

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        self.calls.append((task, tuple(values), stream))
        if self._to is not None:
            self._to.emit_direct(task, values, stream)

    def emit_batch(self, batch: pa.RecordBatch, stream: str = DEFAULT_STREAM) -> None:
        self.calls.append((None, batch, stream))
        if self._to is not None:
            self._to.emit_batch(batch, stream)


class _ListeningEmitter(Emitter):
    """Notes each batch that an emitter emits."""

    def __init__(self, emitter: Emitter, task: int, passages: Passages) -> None:
        self._emitter = emitter
        self._task = task
        self._passages = passages

    def emit_batch(self, attempt: TransactionAttempt, metadata: Any, collector: BatchOutputCollector) -> None:
        listening = _Listening(collector)
        self._passages[attempt].steps.append(Emission(attempt, metadata, self._task, listening.calls))
        self._emitter.emit_batch(attempt, metadata, listening)


@attrs.define(eq=False)
class ListeningTaskFactory(TaskFactory):
    """A task factory whose emitters can be listened to."""

    _passages: Passages | None = attrs.field(default=None, init=False)

    @contextlib.contextmanager
    def heard(self, passages: Passages) -> Iterator[None]:
        """Within the context, make emissions steps of the attempts' passages."""
        self._passages = passages
        try:
            yield
        finally:
            self._passages = None

    def emitter(self, task: int) -> Any:
        """Return the emitter of a spout task; one that is listened to, if somebody listens."""
        emitter = TaskFactory.emitter(self, task)
        return emitter if self._passages is None else _ListeningEmitter(emitter, task, self._passages)
