"""Remembers the results of jobs of earlier schedules, so that thousands of schedules need not run the same bolts again.

A schedule tests coordinators, recovery and tables. Its processing phases mostly repeat those of other schedules: the
same attempt of the same transaction in the same layout. So once an attempt has been run twice with exactly the same
result, to the byte, its reports are *reused*. The emitters still emit for it, and their tuples are compared.

Attempts of later epochs differ only in the epoch in their number. If two of them had the same result except for that
number, they count as the same attempt, and an attempt of a third epoch reuses the result with its own number instead of
theirs. The attempts of the first epoch are remembered separately, because bolts that fail on purpose look for the
numbers 1, 2 and 3. If a bolt turns out to depend on the epoch, each attempt is identified by its whole number from then
on.

The failpoints at which faults strike an attempt are drawn before its job begins (see :class:`Passage`). So the same
faults strike whether the attempt is run or reused, and in whatever order partitions work. A reused attempt fails where
its first fault strikes, as it would if it were run.

A job is run if an attempt has not been seen twice, if an emitter emits something else, and every 32nd time anyway. If a
run ever differs from the remembered result, the topology's bolts depend on more than their batch, and nothing is
remembered any more.

So the same seed makes the same schedule, whatever is remembered.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import attrs
import pyarrow as pa

from txtopo.api.collector import BatchOutputCollector
from txtopo.api.spout import Emitter
from txtopo.api.tuples import DEFAULT_STREAM
from txtopo.attempts import FIRST_EPOCH, TransactionAttempt, epoch_and_try
from txtopo.errors import FailedException
from txtopo.topology.output import OutputOrigin
from txtopo.transactional.jobs.inline_runner import run_stages
from txtopo.transactional.jobs.layout import PartitionAssignment
from txtopo.transactional.jobs.stage_run import Job, Report
from txtopo.transactional.tasks.batch_run import CarriedBolt
from txtopo.transactional.tasks.factory import TaskFactory
from txtopo.transactional.tasks.state_handle import attempt_origin

RUN_ALL_THE_SAME = 32
"""Of this many jobs, or commit groups, whose results could be reused, one is run anyway."""

PARTS_MAX = 50_000
"""The maximum number of remembered attempts."""

STRUCK = "the simulator told it to fail"
"""The message of a fault in the user's code."""

P = TypeVar("P", bound="Remembered")

Emitted = tuple[int | None, Any, str]
"""One call of a collector: the target task, the values or columns, and the stream."""


@attrs.frozen(eq=False)
class Emission:
    """An emitter's share of a batch."""

    attempt: TransactionAttempt
    metadata: Any
    task: int
    calls: list[Emitted]

    def is_repeated_by(self, task_factory: TaskFactory, attempt: TransactionAttempt) -> bool:
        """Let the emitter emit again, perhaps for another attempt; return whether its tuples are the same."""
        listening = _Listening(None)
        task_factory.emitter(self.task).emit_batch(attempt, self.metadata, listening)
        return self.is_same(Emission(attempt, self.metadata, self.task, listening.calls))

    def is_same(self, other: Emission) -> bool:
        """Whether two emitters have emitted the same values of the same types, each for its own attempt."""
        return (
            self.task == other.task
            and len(self.calls) == len(other.calls)
            and all(
                _are_same(call, self.attempt, other_call, other.attempt)
                for call, other_call in zip(self.calls, other.calls, strict=True)
            )
        )


@attrs.frozen
class Point:
    """A failpoint in the user's code, with its component and task."""

    failpoint: str
    component: str
    task: int | None


Step = Point | Emission
"""A failpoint that was reached, or an emission."""


@attrs.define(eq=False)
class Passage:
    """An attempt's steps through the user's code in one job or commit phase, and the faults that will strike it there.

    Args:
        faults: the failpoints at which they strike, by their order of arrival, from 0.
        strike: called with the failpoint's name when a fault strikes.
    """

    faults: tuple[int, ...] = ()
    strike: Callable[[str], None] = lambda _: None
    steps: list[Step] = attrs.field(factory=list)
    struck: int = 0
    """The number of faults that have struck."""
    _reached: int = 0

    def reach(self, point: Point) -> None:
        """Reach a failpoint; raise FailedException if a fault strikes there."""
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
    """One attempt of a job, which is independent of everything else, and its result without faults."""

    attempt: TransactionAttempt
    steps: tuple[Step, ...]
    reports: tuple[Report, ...]
    is_spread: bool
    is_known: bool = False
    """Whether it has had the same result twice."""
    points: tuple[Point, ...] = attrs.field(init=False)
    """The failpoints among its steps."""
    _emissions: list[tuple[int, Emission]] = attrs.field(factory=list, init=False)
    """The emissions among its steps, each with the number of failpoints before it."""
    size: int = attrs.field(init=False)
    """The size of the bolts that it carries, in bytes."""
    _renamed: dict[TransactionAttempt, tuple[Report, ...]] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        points: list[Point] = []
        for step in self.steps:
            if isinstance(step, Point):
                points.append(step)
            else:
                self._emissions.append((len(points), step))
        self.points = tuple(points)
        self.size = sum(len(bolt.state) for report in self.reports for bolt in report.carried)

    @property
    def has_failed(self) -> bool:
        """Whether it has failed without a fault."""
        return any(report.failure is not None for report in self.reports)

    @property
    def is_in_memory(self) -> bool:
        """Whether it has spilled nothing to a file, as it does if other attempts of its job carry much."""
        return all(report.staged is None for report in self.reports)

    def is_same(self, other: Part) -> bool:
        """Whether two runs have had the same result."""
        return (
            len(self.steps) == len(other.steps)
            and all(map(_is_same_step, self.steps, other.steps))
            and self.reports_of(other.attempt) == other.reports
        )

    def can_be_told(self, passage: Passage) -> bool:
        """Whether its result with a passage's faults is certain.

        In a spread layout, the other partitions continue after one has failed, and it is unknown which failpoints they
        reach.
        """
        faults = sum(fault < len(self.points) for fault in passage.faults)
        if faults == 0:
            return True
        return faults == 1 or not self.is_spread

    def emits_the_same(self, task_factory: TaskFactory, passage: Passage, attempt: TransactionAttempt) -> bool:
        """Let the emitters emit again up to the first fault; return whether their tuples are the same."""
        passed = passage.faults[0] if passage.faults else len(self.points)
        return all(
            emission.is_repeated_by(task_factory, attempt)
            for points_before, emission in self._emissions
            if points_before <= passed
        )

    def told(self, passage: Passage, attempt: TransactionAttempt) -> tuple[Report, ...]:
        """Return the reports for another attempt; if a fault strikes, only the report of the failure."""
        if not passage.faults or passage.faults[0] >= len(self.points):
            return self.reports_of(attempt)
        passage.strike(self.points[passage.faults[0]].failpoint)
        return (self.failing(passage, attempt),)

    def failing(self, passage: Passage, attempt: TransactionAttempt) -> Report:
        """Return the report of the failure at the first fault."""
        point = self.points[passage.faults[0]]
        error = FailedException(STRUCK, **attempt_origin(point.component, attempt))
        return Report(attempt, tallies={}, tuples_emitted=0, tasks_finished=0, failure=error)

    def reports_of(self, attempt: TransactionAttempt) -> tuple[Report, ...]:
        """Return the reports of another attempt: with its number instead of this one's."""
        if attempt == self.attempt:
            return self.reports
        renamed = self._renamed.get(attempt)
        if renamed is None:
            before, after = pickled_number(self.attempt), pickled_number(attempt)
            renamed = self._renamed[attempt] = tuple(_renamed(each, attempt, before, after) for each in self.reports)
        return renamed


def _renamed(report: Report, attempt: TransactionAttempt, before: bytes, after: bytes) -> Report:
    carried = [CarriedBolt(bolt.component, bolt.task, bolt.state.replace(before, after)) for bolt in report.carried]
    return attrs.evolve(report, attempt=attempt, carried=tuple(carried))


@functools.lru_cache(maxsize=1_000)
def pickled_number(attempt: TransactionAttempt) -> bytes:
    """Return the pickled form of an attempt's number in a later epoch, which has more than four bytes."""
    # A number of this length is pickled as LONG1, its length and its bytes; the last byte of the pickle is STOP. Bolts
    # are pickled with the number in this form, so it can be replaced in their bytes.
    pickled = pickle.dumps(attempt.attempt, protocol=5)
    return pickled[pickled.index(pickle.LONG1) : -1]


def _is_same_step(one: Step, other: Step) -> bool:
    if isinstance(one, Emission) and isinstance(other, Emission):
        return one.is_same(other)
    return one == other


def _are_same(one: Emitted, attempt: TransactionAttempt, other: Emitted, other_attempt: TransactionAttempt) -> bool:
    (task, values, stream), (other_task, other_values, other_stream) = one, other
    if task != other_task or stream != other_stream or type(values) is not type(other_values):
        return False
    if not isinstance(values, tuple):
        return bool(values.equals(other_values))
    if values[:1] == (attempt,) and other_values[:1] == (other_attempt,):
        values, other_values = values[1:], other_values[1:]
    return values == other_values and [*map(type, values)] == [*map(type, other_values)]


class Reaching:
    """Receives the failpoints that spout and bolts reach."""

    def __init__(self) -> None:
        self._passages: Passages = {}

    @contextlib.contextmanager
    def on_the_way(self, passages: Passages) -> Iterator[None]:
        """Within the context, attribute failpoints to the attempts of a job or a commit group."""
        self._passages = passages
        try:
            yield
        finally:
            self._passages = {}

    def reach(self, failpoint: str) -> None:
        """Record a failpoint; raise FailedException if a fault strikes there."""
        origin = OutputOrigin.running[threading.get_ident()]
        assert origin.attempt is not None, "spout and bolts work for an attempt there"
        self._passages[origin.attempt].reach(Point(failpoint, origin.component, origin.task))


class Remembered(Protocol):
    """A result that can be remembered: of a part of a job, or of the commit phases of a group."""

    is_known: bool
    """Whether two runs had this result."""

    @property
    def attempt(self) -> TransactionAttempt:
        """The attempt; of a group, the first one."""

    def is_same(self, other: Any) -> bool:
        """Whether two runs had the same result, except for the numbers of their attempts."""


PartKey = Hashable
"""Identifies a part: the partitions of its tasks, the attempt, perhaps without its epoch, and its metadata."""


@attrs.frozen(eq=False)
class Learned:
    """The new parts of a memory, to be sent to the memory of another process."""

    is_on: bool
    knows_epochs: bool
    parts: Mapping[PartKey, Remembered]


class JobMemory:
    """Remembers the results of attempts and commit groups (see ``commits``) for all schedules of a topology.

    If ``is_on`` is false, it remembers nothing, and every job and every commit phase is run.
    """

    def __init__(self, *, is_on: bool = True) -> None:
        self.told = 0
        """The number of attempts whose results were reused."""
        self.groups_told = 0
        """The number of groups whose commit phases were reused."""
        self.is_on = is_on
        self._parts: dict[PartKey, Remembered] = {}
        self._learned: dict[PartKey, Remembered] = {}
        self.knows_epochs = False
        """Whether attempts are identified by their whole number, because bolts depend on it."""
        self._told_or_due = Counter[type]()

    def run(self, job: Job, task_factory: ListeningTaskFactory, passages: Passages) -> Sequence[Report]:
        """Return the reports of a job: reused ones of its known attempts, and those of a run of the others.

        The spout must not be opaque: its emitters may emit something else each time. The passages are still without
        steps.
        """
        known = self._known_parts(job, task_factory, passages) if self.is_on else {}
        self.told += len(known)
        reports = [report for attempt, part in known.items() for report in part.told(passages[attempt], attempt)]
        left = tuple(each for each in job.attempts if each[0] not in known)
        if left:
            reports += self._run(attrs.evolve(job, attempts=left), task_factory, passages)
        return reports

    def _run(self, job: Job, task_factory: ListeningTaskFactory, passages: Passages) -> list[Report]:
        with task_factory.heard(passages):
            ran = run_stages(job, [task_factory] * job.layout.partitions, lambda sent: sent)
        reports = [*map(_as_it_travels, ran)]
        if self.is_on:
            for key, (attempt, _) in zip(self._keys(job), job.attempts, strict=True):
                own = tuple(report for report in reports if report.attempt == attempt)
                part = Part(attempt, tuple(passages[attempt].steps), own, _is_spread(job))
                self._compare(key, part, passages[attempt])
        return reports

    def take_learned(self) -> Learned:
        """Return the parts that were learned since the last call."""
        learned, self._learned = self._learned, {}
        return Learned(self.is_on, self.knows_epochs, learned)

    def learn(self, learned: Learned) -> None:
        """Add the parts that the memory of another process has learned."""
        if learned.knows_epochs and not self.knows_epochs:
            self._know_epochs()
        if learned.knows_epochs == self.knows_epochs:
            for key, part in learned.parts.items():
                self.remember(key, part)
        if not learned.is_on:
            self.forget_all()
        self._learned.clear()

    def _known_parts(
        self, job: Job, task_factory: ListeningTaskFactory, passages: Passages
    ) -> dict[TransactionAttempt, Part]:
        """Return the reusable parts of a job; in a spread layout all or none, because they share partitions."""
        known = {}
        for key, (attempt, _) in zip(self._keys(job), job.attempts, strict=True):
            part = self.known(key, Part)
            if part is not None and part.can_be_told(passages[attempt]):
                known[attempt] = part
        if not known or (_is_spread(job) and len(known) < len(job.attempts)):
            return {}
        # Beyond the limit, a run would spill bolts to files, which reuse does not do.
        if self.is_due(Part) or sum(part.size for part in known.values()) > job.report_bytes_max:
            return {}
        try:
            # The emitters must be as a run of the job would find them, so they forget committed transactions first.
            task_factory.cleanup_before(job.committed)
            are_same = all(
                part.emits_the_same(task_factory, passages[attempt], attempt) for attempt, part in known.items()
            )
        except Exception:  # noqa: BLE001 - the user's emitter may raise anything; the run that follows shows it
            return {}
        return known if are_same else {}

    def _compare(self, key: PartKey, part: Part, passage: Passage) -> None:
        """Remember the result of an attempt, or compare its failure with the one that reuse would report."""
        # A first result with a failure of its own is not remembered. Nor is a spilled one: whether an attempt spills
        # depends on the others of its job.
        if passage.struck == 0:
            if part.is_in_memory and not (part.has_failed and key not in self._parts):
                self.remember(key, part)
            return
        before = self.known(key, Part)
        if before is not None and before.can_be_told(passage):
            failure = next(report for report in part.reports if report.failure is not None)
            if _words(failure) != _words(before.failing(passage, part.attempt)):
                self.forget_all()

    def known(self, key: PartKey, kind: type[P]) -> P | None:
        """Return the result that two runs had under a key; None if there is none."""
        part = self._parts.get(key)
        return part if isinstance(part, kind) and part.is_known else None

    def is_due(self, kind: type) -> bool:
        """Whether a known result is to be run anyway, as one in :data:`RUN_ALL_THE_SAME` of each kind is."""
        self._told_or_due[kind] += 1
        return self._told_or_due[kind] % RUN_ALL_THE_SAME == 0

    def remember(self, key: PartKey, part: Remembered) -> None:
        """Remember the result of a run, and compare it with the one before."""
        before = self._parts.get(key)
        if before is None:
            if self.is_on and len(self._parts) < PARTS_MAX:
                self._parts[key] = self._learned[key] = part
        elif before.is_same(part):
            # Under a key without the epoch, two runs of one epoch prove nothing about other epochs. A part that another
            # process has sent as known has passed this already.
            is_another = part.is_known or before.attempt != part.attempt or self.is_whole_number(part.attempt)
            if is_another and not before.is_known:
                before.is_known = True
                self._learned[key] = before
        elif before.attempt == part.attempt:  # not even the very same attempt repeats its result
            self.forget_all()
        else:  # only the epoch is another one
            self._know_epochs()

    def _know_epochs(self) -> None:
        """From now on, identify each attempt by its whole number, because a bolt depends on its epoch."""
        self.knows_epochs = True
        self._parts.clear()
        self._learned.clear()

    def _keys(self, job: Job) -> Iterator[PartKey]:
        """Yield the key of each attempt of a job; it includes the partitions that the tasks are spread over."""
        partitions = job.layout.partitions
        for index, (attempt, metadata) in enumerate(job.attempts):
            place = (partitions, index % partitions) if _is_spread(job) else None
            yield place, attempt.txid, self.number_of(attempt), repr(metadata)

    def number_of(self, attempt: TransactionAttempt) -> int:
        """Return the number that identifies an attempt."""
        return attempt.attempt if self.is_whole_number(attempt) else -epoch_and_try(attempt.attempt)[1]

    def is_whole_number(self, attempt: TransactionAttempt) -> bool:
        """Whether an attempt is identified by its number including the epoch."""
        return self.knows_epochs or attempt.epoch == FIRST_EPOCH

    def forget_all(self) -> None:
        """Remember nothing from now on, because a result depends on more than its key."""
        self.is_on = False
        self._parts.clear()
        self._learned.clear()


def _is_spread(job: Job) -> bool:
    return any(stage.assignment is not PartitionAssignment.BY_TRANSACTION for stage in job.layout.stages)


def _words(report: Report) -> str:
    return repr(report.failure) + str(report.failure)


def _as_it_travels(report: Report) -> Report:
    """Return a report as it arrives from an executor: pickling loses a failure's traceback."""
    if report.failure is None:
        return report
    return attrs.evolve(report, failure=pickle.loads(pickle.dumps(report.failure)))  # noqa: S301 - our own bytes


class _Listening(BatchOutputCollector):
    """Records the tuples that an emitter emits, and passes them on."""

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
    """Records each batch that an emitter emits."""

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
    """A task factory whose emitters can be recorded."""

    _passages: Passages | None = attrs.field(default=None, init=False)

    @contextlib.contextmanager
    def heard(self, passages: Passages) -> Iterator[None]:
        """Within the context, record emissions as steps of the attempts' passages."""
        self._passages = passages
        try:
            yield
        finally:
            self._passages = None

    def emitter(self, task: int) -> Any:
        """Return the emitter of a spout task, recorded within :meth:`heard`."""
        emitter = TaskFactory.emitter(self, task)
        return emitter if self._passages is None else _ListeningEmitter(emitter, task, self._passages)
