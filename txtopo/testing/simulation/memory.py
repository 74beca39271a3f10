"""What the jobs of earlier schedules came to: thousands of schedules need not run the same bolts on the same batch.

A schedule is about coordinators, recovery and tables; its processing phases mostly repeat what other schedules have
run: the same attempt of the same transaction in the same layout. So a job is *told again* once it has been run twice
and came to the very same both times, to the byte: the emitters emit for it as always, and what they emit is compared;
every failpoint of the spout and the bolts is reached again in its order, so the same faults strike; the reports are
those of before. Where a fault strikes, the job goes on as it did when one struck there before. Where that has not
been seen twice, where an emitter emits something else, and now and then in any case, the job is run. If what is run
ever differs from what was remembered, the topology's bolts depend on something else than their batch, and nothing
is remembered any more.

So the same seed makes the same schedule, whatever is remembered.
"""

from __future__ import annotations

import contextlib
import pickle
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import attrs
import pyarrow as pa

from txtopo.api.collector import BatchOutputCollector
from txtopo.api.spout import Emitter
from txtopo.api.tuples import DEFAULT_STREAM
from txtopo.attempts import TransactionAttempt
from txtopo.errors import FailedException
from txtopo.processing.inline_runner import run_stages
from txtopo.processing.layout import SlotAssignment
from txtopo.processing.stage_run import Job, Report, StageRun
from txtopo.tasks.factory import TaskFactory

RUN_ALL_THE_SAME = 32
"""Of so many parts that are known, one is run all the same."""

PARTS_MAX = 50_000
"""Parts that are remembered at most."""

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


Step = str | Emission
"""A failpoint that was reached, or an emission."""


@attrs.define(eq=False)
class Part:
    """Some attempts of a job that nothing outside of them can change, and what they came to."""

    steps: tuple[Step, ...]
    struck: tuple[int, ...]
    """The steps at which faults struck, by their position."""
    reports: tuple[Report, ...]
    is_known: bool = False
    """Whether it has come to the same twice."""

    @property
    def size(self) -> int:
        """Bytes of the bolts that it carries."""
        return sum(len(bolt.state) for report in self.reports for bolt in report.carried)

    @property
    def is_memorable(self) -> bool:
        """Whether it can be told again: it has ended in good order or with a failure, and left nothing in a file."""
        return all(
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


def _words(report: Report) -> tuple[Report, str]:
    """Return what two reports are compared by: errors are equal if they say the same."""
    return attrs.evolve(report, failure=None), repr(report.failure) + str(report.failure)


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
        strike: is told of each failpoint; raises FailedException if a fault strikes.
    """

    def __init__(self, strike: Callable[[str], None]) -> None:
        self._strike = strike
        self._drawn: deque[FailedException | None] = deque()
        self._steps: list[Step] | None = None
        self._struck: list[int] = []

    @contextlib.contextmanager
    def heard(self, steps: list[Step], struck: list[int]) -> Iterator[None]:
        """Within the context, note failpoints in ``steps`` and faults in ``struck``, those drawn before first."""
        self._steps, self._struck = steps, struck
        try:
            yield
        finally:
            self._steps = None
            self._drawn.clear()

    def reach(self, failpoint: str) -> None:
        """Let a fault strike, unless it was drawn already whether one does."""
        if self._steps is None:
            self._strike(failpoint)
            return
        self._steps.append(failpoint)
        error = self._drawn.popleft() if self._drawn else self._struck_by(failpoint)
        if error is not None:
            self._struck.append(len(self._steps) - 1)
            raise error

    def draw(self, failpoint: str) -> bool:
        """Draw whether a fault strikes at a failpoint that a run would reach next."""
        error = self._struck_by(failpoint)
        self._drawn.append(error)
        return error is not None

    def forget_drawn(self) -> None:
        """Go on behind the failpoints that were drawn: the job was told, not run."""
        self._drawn.clear()

    def _struck_by(self, failpoint: str) -> FailedException | None:
        try:
            self._strike(failpoint)
        except FailedException as error:
            return error
        return None


PartKey = tuple[Hashable, tuple[int, ...]]
"""What a part is remembered by: its attempts, and the steps at which faults struck."""


@attrs.frozen(eq=False)
class Learned:
    """What a memory has learned; it travels to that of another process."""

    is_on: bool
    parts: Mapping[PartKey, Part]


class JobMemory:
    """Remembers the parts of jobs, for all schedules of a topology.

    Args:
        is_on: whether it does; otherwise every job is run.
    """

    def __init__(self, *, is_on: bool = True) -> None:
        self.told = 0
        """Parts of jobs that were told again."""
        self._parts: dict[PartKey, Part] = {}
        self._learned: dict[PartKey, Part] = {}
        self._is_on = is_on
        self._known = 0

    def run(self, job: Job, task_factory: ListeningTaskFactory, reaching: Reaching) -> Sequence[Report]:
        """Run a job to its end, or tell again what it came to; each of its parts by itself.

        Args:
            job: the job; not of an opaque spout, whose emitters may emit something else each time.
            task_factory: makes the tasks' objects.
            reaching: is told of failpoints, and hears those that are reached.
        """
        return [report for due in _due(job, task_factory) for report in self._part(due, task_factory, reaching).reports]

    def _part(self, due: DuePart, task_factory: ListeningTaskFactory, reaching: Reaching) -> Part:
        """Tell a part again, or run it."""
        part = self._told(due, task_factory, reaching) if self._is_on else None
        if part is not None:
            self.told += 1
            return part
        steps: list[Step] = []
        struck: list[int] = []
        with task_factory.heard(steps), reaching.heard(steps, struck):
            reports = tuple(map(_as_it_travels, due.run()))
        part = Part(tuple(steps), tuple(struck), reports)
        if self._is_on and part.is_memorable:
            self._remember((due.key, part.struck), part)
        return part

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

    def _told(self, due: DuePart, task_factory: ListeningTaskFactory, reaching: Reaching) -> Part | None:
        """Return a part as it was before; None if it must be run, with the faults drawn so far."""
        if self._known_part(due.key, ()) is None:
            return None
        self._known += 1
        if self._known % RUN_ALL_THE_SAME == 0:
            return None
        try:
            due.prepare()
            part = self._told_part(due.key, task_factory, reaching)
        except Exception:  # noqa: BLE001 - whatever the user's emitter raises; the run that follows shows it
            return None
        if part is None or not due.take(part.size):
            return None
        reaching.forget_drawn()
        return part

    def _told_part(self, key: Hashable, task_factory: ListeningTaskFactory, reaching: Reaching) -> Part | None:
        """Take the steps of a part; None if something is not as it was, or a fault strikes where none did before."""
        part = self._known_part(key, ())
        position = 0
        while part is not None and position < len(part.steps):
            step = part.steps[position]
            if isinstance(step, Emission):
                if not step.is_repeated_by(task_factory):
                    return None
            elif reaching.draw(step):
                part = self._known_part(key, (*part.struck, position))
            position += 1
        return part

    def _known_part(self, key: Hashable, struck: tuple[int, ...]) -> Part | None:
        part = self._parts.get((key, struck))
        return part if part is not None and part.is_known else None

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


class DuePart(Protocol):
    """A part of a job whose turn it is."""

    @property
    def key(self) -> Hashable:
        """What it is remembered by, together with the faults that strike in it."""

    def prepare(self) -> None:
        """Do what is done before it in any case; whatever it raises, a run raises again."""

    def take(self, size: int) -> bool:
        """Return whether so many bytes of bolts may be reported in memory, and count them."""

    def run(self) -> Iterable[Report]:
        """Run it."""


@attrs.frozen(eq=False)
class _Transaction:
    """One transaction, which runs whole in one slot."""

    stage: StageRun
    index: int
    key: Hashable

    def prepare(self) -> None:
        """Do nothing: the slot was cleaned up."""

    def take(self, size: int) -> bool:
        """Count bytes of the slot's."""
        fits = size <= self.stage.bytes_left
        self.stage.bytes_left -= size * fits
        return fits

    def run(self) -> Iterator[Report]:
        """Run its tasks, one stage of them."""
        for _, report in self.stage.finish(self.index):
            assert isinstance(report, Report), "nothing leaves the slot"
            yield report


@attrs.frozen(eq=False)
class _Whole:
    """A whole job, whose transactions run in turn in each slot."""

    job: Job
    task_factory: ListeningTaskFactory
    key: Hashable

    def prepare(self) -> None:
        """Clean up, as each stage does."""
        self.task_factory.cleanup_before(self.job.committed)

    def take(self, size: int) -> bool:
        """Count bytes of the job's."""
        return size <= self.job.report_bytes_max

    def run(self) -> Iterable[Report]:
        """Run its stages."""
        return run_stages(self.job, [self.task_factory] * self.job.layout.slots, lambda sent: sent)


def _due(job: Job, task_factory: ListeningTaskFactory) -> Iterator[DuePart]:
    """Yield the parts of a job in the order they run in."""
    keys = [(attempt, repr(metadata)) for attempt, metadata in job.attempts]
    slots = job.layout.slots
    if [stage.assignment for stage in job.layout.stages] != [SlotAssignment.BY_TRANSACTION]:
        yield _Whole(job, task_factory, (slots, *keys))
        return
    for slot in range(slots):
        stage = StageRun(task_factory, job, 0, slot)
        stage.clean_up()
        for index in range(slot, len(keys), slots):
            has_failed = keys[index][0] in stage.failures  # as the slot could not clean up
            yield _Transaction(stage, index, (*keys[index], has_failed))


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

    def __init__(self, emitter: Emitter, task: int, steps: list[Step]) -> None:
        self._emitter = emitter
        self._task = task
        self._steps = steps

    def emit_batch(self, attempt: TransactionAttempt, metadata: Any, collector: BatchOutputCollector) -> None:
        listening = _Listening(collector)
        self._steps.append(Emission(attempt, metadata, self._task, listening.calls))
        self._emitter.emit_batch(attempt, metadata, listening)


@attrs.define(eq=False)
class ListeningTaskFactory(TaskFactory):
    """A task factory whose emitters can be listened to."""

    _steps: list[Step] | None = attrs.field(default=None, init=False)

    @contextlib.contextmanager
    def heard(self, steps: list[Step]) -> Iterator[None]:
        """Note emissions in ``steps`` within the context."""
        self._steps = steps
        try:
            yield
        finally:
            self._steps = None

    def emitter(self, task: int) -> Any:
        """Return the emitter of a spout task; one that is listened to, if somebody listens."""
        emitter = TaskFactory.emitter(self, task)
        return emitter if self._steps is None else _ListeningEmitter(emitter, task, self._steps)
