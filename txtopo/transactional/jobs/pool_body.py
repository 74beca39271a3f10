"""What a worker does in real-time mode: the calls that the pool gives it, one at a time, in one thread.

Of what a worker could do next it does, in this order: computes something for the commit phase, which others wait for;
executes the tuples of other workers; finishes an attempt in a later stage; begins the next attempt, of the lowest
transaction that it holds. So what has begun ends before more begins, and a worker never waits inside a call, neither
for the driver nor for another worker.

Shuffles
========
A stage sends its shuffle messages straight to the slot that executes them, in *frames*, one sender's to one receiver in
order. They are executed as they come. The last frame of an attempt, stage and slot *ends its input*: a later stage
finishes an attempt in its slot once it has the last frames of all slots for the stage before. That is enough: what
earlier stages have sent came before it on the same channel.

Frames may come before the job does, since the driver and the other workers speak on channels of their own; then they
wait. Frames of a job that this worker has forgotten are dropped: the numbers of jobs only rise, so a frame with a
number up to that of the last job that is not here comes too late.
"""

from __future__ import annotations

import heapq
import itertools
import pickle
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, assert_never

import attrs
import cloudpickle

from txtopo.columnar.progress_probe import ProgressProbe
from txtopo.failpoints import reach
from txtopo.network.channel import Backlog
from txtopo.topology.user_code.output import renewed
from txtopo.transactional.jobs.pool import Answered, Assign, Call, Compute, Drop, Dropped, FromBody, Place, ToBody
from txtopo.transactional.jobs.stage_run import Job, PartitionItem, Report, StageRun
from txtopo.transactional.tasks.batch_run import ShuffleMessage
from txtopo.transactional.tasks.factory import TaskFactory

FRAME_BYTES = 1 << 18
"""A frame is sent once its messages are about this large."""

IDLE_SECS = 10.0
"""Nothing happens here that no frame or assignment tells, so any time will do."""


@attrs.frozen
class Frame:
    """Shuffle messages from one stage and slot to the slots of one worker."""

    job: int
    source: Place
    number: int
    """Counted from 0, for its job, sending slot and receiving worker; a frame that came before is not taken again."""
    messages: tuple[tuple[int, ShuffleMessage], ...]
    """(Slot, message)."""
    is_last: bool
    """Whether it ends the input from its source."""


@attrs.frozen
class Computed:
    """What became of a call of the commit phase."""

    value: Any = None
    error: str | None = None


@attrs.define(eq=False)
class _RunningJob:
    number: int
    job: Job
    workers: tuple[int, ...]
    """By slot, its worker; empty if each attempt is whole in its call."""
    slots: set[int]
    """Those that are here."""
    runs: dict[tuple[int, int], StageRun] = attrs.field(factory=dict)
    """By stage and slot."""
    left: int = 0
    """Calls here that are not answered."""
    input_ends: dict[Place, set[int]] = attrs.field(factory=lambda: defaultdict(set))
    """By place here that waits for its input, the slots whose last frames have come."""
    sent: dict[tuple[int, int], int] = attrs.field(factory=lambda: defaultdict(int))
    """By slot here and receiving worker, how many frames were sent."""
    received: dict[int, int] = attrs.field(factory=lambda: defaultdict(int))
    """By sending slot, how many frames were received."""


class PoolBody:
    """The work of one worker; see :class:`txtopo.workers.process.Body`.

    ``send`` sends a frame to another worker, ``tell`` says something to the pool, and ``flush`` returns once the
    driver has everything that this process has printed. At most ``memory_max`` bytes of frames wait in memory.
    """

    def __init__(  # noqa: PLR0913 - a body depends on that many parts
        self,
        worker: int,
        task_factory: TaskFactory,
        *,
        send: Callable[[int, bytes], None],
        tell: Callable[[FromBody], None],
        flush: Callable[[], None],
        probe: ProgressProbe,
        memory_max: int,
    ) -> None:
        self._worker = worker
        self._task_factory = task_factory
        self._send = send
        self._tell = tell
        self._flush = flush
        self._probe = probe
        self._jobs: dict[int, _RunningJob] = {}
        self._newest = -1
        """The highest number of a job with shuffles that has come."""
        self._memory_max = memory_max
        self._computes: deque[Compute] = deque()
        self._frames = Backlog(memory_max)
        self._early: dict[int, Backlog] = {}
        """By job that has not come yet, its frames."""
        self._ready: deque[Call] = deque()
        """Places of later stages that have all of their input."""
        self._next: Call | None = None
        """The attempt that begins next: the pool was told so, and blames it if this worker dies."""
        self._calls: list[tuple[int, int, Call]] = []
        """The others, as a heap: the lowest transaction first, as (txid, number of the call, call)."""
        self._numbers = itertools.count()
        self._is_throttled = False

    # What the process asks of every body.

    def set_active(self, *, is_active: bool) -> None:
        """Do nothing: the coordinator decides what begins."""

    def set_throttled(self, *, is_throttled: bool) -> None:
        """Begin no further attempt, or begin them again."""
        self._is_throttled = is_throttled

    def run_pass(self) -> bool:
        """Do the next piece of work; return whether there was one."""
        if self._computes:
            self._compute(self._computes.popleft())
        elif self._frames:
            self._take(pickle.loads(self._frames.popleft()))  # noqa: S301 - of a worker that knows the run's secret
        elif self._ready:
            self._finish(*self._ready.popleft())
        elif self._next is not None and not self._is_throttled:
            self._finish(*self._next)
        else:
            return False
        return True

    def idle_secs(self) -> float:
        """Return how long there is nothing to do unless something arrives."""
        return IDLE_SECS

    def hear(self, message: ToBody) -> None:
        """Take what the pool says."""
        match message:
            case Assign():
                self._begin(message)
            case Compute():
                self._computes.append(message)
            case Drop(number):
                self._forget(number)
                self._tell(Dropped(number, self._next))
            case _:
                assert_never(message)

    def receive(self, data: bytes) -> None:
        """Take a frame of another worker."""
        number = int.from_bytes(data[:8], "big")
        if number in self._jobs:
            self._frames.append(data[8:])
        elif number > self._newest:
            self._early.setdefault(number, Backlog(self._memory_max // 4)).append(data[8:])

    def worker_replaced(self, worker: int, dead: int, successor: int) -> None:
        """Forget the jobs that shuffle through a dead worker, before anything is sent to its successor."""
        del dead, successor
        for running in list(self._jobs.values()):
            if worker in running.workers:
                self._forget(running.number)

    def queued_bytes(self) -> int:
        """Return how many bytes of frames wait."""
        return self._frames.bytes + sum(early.bytes for early in self._early.values())

    def is_done(self) -> bool:
        """Return False: the driver ends the workers of a transactional topology."""
        return False

    def is_idle(self) -> bool:
        """Return False, as a worker that may get a call at any time."""
        return False

    def pending(self) -> int:
        """Return how many calls wait or are under way."""
        return len(self._computes) + sum(running.left for running in self._jobs.values())

    def acked(self) -> int:
        """Return 0: there are no roots."""
        return 0

    def busy_with(self) -> str:
        """Name what runs; called in another thread."""
        attempt = self._probe.attempt
        return "a call" if attempt is None else f"transaction {attempt.txid}"

    def status(self) -> None:
        """Return nothing: the coordinator knows what is pending."""

    def close(self) -> None:
        """Forget all jobs, and close the emitters."""
        for number in list(self._jobs):
            self._forget(number)
        self._frames.close()
        for early in self._early.values():
            early.close()
        self._task_factory.close()

    def job_ids(self) -> list[int]:
        """Return the coordinator's ids of the jobs that are running; may be called in any thread."""
        return [running.job.job_id for running in list(self._jobs.values())]

    # Jobs.

    def _begin(self, assign: Assign) -> None:
        running = self._jobs.get(assign.job)
        if running is None:
            job: Job = pickle.loads(assign.content)  # noqa: S301 - from our driver
            running = self._jobs[assign.job] = _RunningJob(assign.job, job, assign.workers, set())
        stages = len(running.job.layout.stages)
        for slot in dict.fromkeys(slot for slot, _ in assign.calls):
            running.slots.add(slot)
            for stage in range(stages):
                running.runs[stage, slot] = StageRun(self._task_factory, running.job, stage, slot, self._probe)
            # Only the first stage has emitters, and their ``cleanup_before`` comes before anything is emitted.
            running.runs[0, slot].clean_up()
        running.left += stages * len(assign.calls)
        for slot, index in assign.calls:
            txid = running.job.attempts[index].attempt.txid
            heapq.heappush(self._calls, (txid, next(self._numbers), (assign.job, Place(0, slot, index))))
        if self._next is None:
            self._choose_next()
        if assign.workers:
            # Another worker may have heard of the job first, and its frames have come before it. The pool numbers jobs
            # in order and tells each worker in order: so frames of a lower number are of jobs that have ended, and
            # those of a higher one may still be for this worker.
            self._newest = max(self._newest, assign.job)
            for number in [number for number in self._early if number <= self._newest]:
                early = self._early.pop(number)
                while early and number == assign.job:
                    self._frames.append(early.popleft())
                early.close()

    def _forget(self, number: int) -> None:
        running = self._jobs.pop(number, None)
        if running is not None:
            for run in running.runs.values():
                run.close()
            self._calls = [entry for entry in self._calls if entry[2][0] != number]
            heapq.heapify(self._calls)
            self._ready = deque(call for call in self._ready if call[0] != number)
            if self._next is not None and self._next[0] == number:
                self._choose_next()
            renewed()  # the bound on what threads print that work for no attempt

    def _choose_next(self) -> None:
        self._next = heapq.heappop(self._calls)[2] if self._calls else None

    def _finish(self, number: int, place: Place) -> None:
        running = self._jobs[number]
        reports: list[Report] = []
        self._task_factory.staging = running.job.staging
        self._pass_on(
            running, place, self._parted(running.runs[place.stage, place.slot].finish(place.attempt), reports)
        )
        # Before the answer, so that what an attempt prints is logged before it commits.
        self._flush()
        if self._next == (number, place):
            self._choose_next()
        reach("pool.answer")
        self._tell(Answered(number, place, pickle.dumps(reports, 5) if reports else b"", self._next))
        reach("pool.answered")
        running.left -= 1
        if not running.left:
            self._forget(number)

    # Shuffles.

    @staticmethod
    def _parted(items: Iterable[PartitionItem], reports: list[Report]) -> Iterator[tuple[int, ShuffleMessage]]:
        """Yield the shuffle messages with their slots, and add the reports to the list."""
        for slot, item in items:
            if isinstance(item, Report):
                reports.append(item)
            else:
                yield slot, item

    def _pass_on(self, running: _RunningJob, source: Place, messages: Iterable[tuple[int, ShuffleMessage]]) -> None:
        """Send the messages of a finished stage, and then end the next one's input."""
        self._distribute(running, source, messages)
        if source.stage + 1 < len(running.job.layout.stages):
            for worker in dict.fromkeys(running.workers):
                if worker == self._worker:
                    self._end_input(running, source)
                else:
                    self._send_frame(running, source, worker, (), is_last=True)

    def _distribute(self, running: _RunningJob, source: Place, messages: Iterable[tuple[int, ShuffleMessage]]) -> None:
        """Send messages to other workers, and execute those for slots that are here."""
        waiting: dict[int, list[tuple[int, ShuffleMessage]]] = defaultdict(list)
        sizes: dict[int, int] = defaultdict(int)
        for_own_tasks: deque[tuple[int, ShuffleMessage]] = deque()
        for slot, message in messages:
            if slot in running.slots:
                for_own_tasks.append((slot, message))
                continue
            worker = running.workers[slot]
            waiting[worker].append((slot, message))
            sizes[worker] += len(message.encoded)
            if sizes[worker] > FRAME_BYTES:
                self._send_frame(running, source, worker, waiting.pop(worker))
                del sizes[worker]
        for worker, messages_of_worker in waiting.items():
            self._send_frame(running, source, worker, messages_of_worker)
        while for_own_tasks:
            self._execute(running, source.attempt, *for_own_tasks.popleft())

    def _send_frame(
        self,
        running: _RunningJob,
        source: Place,
        worker: int,
        messages: Iterable[tuple[int, ShuffleMessage]],
        *,
        is_last: bool = False,
    ) -> None:
        number = running.sent[source.slot, worker]
        running.sent[source.slot, worker] += 1
        frame = Frame(running.number, source, number, tuple(messages), is_last)
        self._send(worker, running.number.to_bytes(8, "big") + pickle.dumps(frame, 5))

    def _take(self, frame: Frame) -> None:
        running = self._jobs.get(frame.job)
        if running is None or frame.number < running.received[frame.source.slot]:
            return  # forgotten since it came, or received before
        assert frame.number == running.received[frame.source.slot], "frames of one sender come in order"
        running.received[frame.source.slot] += 1
        for slot, message in frame.messages:
            self._execute(running, frame.source.attempt, slot, message)
        if frame.is_last:
            self._end_input(running, frame.source)

    def _execute(self, running: _RunningJob, index: int, slot: int, message: ShuffleMessage) -> None:
        """Execute a message in its stage, and send on what follows."""
        stage = running.job.layout.stage_of(self._task_factory.plan.edges[message.edge].target)
        assert stage is not None, "DataFrame components are refused in this mode"
        self._task_factory.staging = running.job.staging
        followed = running.runs[stage, slot].receive(message)
        if followed:
            self._distribute(running, Place(stage, slot, index), self._parted(followed, []))

    def _end_input(self, running: _RunningJob, source: Place) -> None:
        for slot in running.slots:
            place = Place(source.stage + 1, slot, source.attempt)
            ended = running.input_ends[place]
            ended.add(source.slot)
            if len(ended) == running.job.layout.partitions:
                del running.input_ends[place]
                self._ready.append((running.number, place))

    # The commit phase.

    def _compute(self, call: Compute) -> None:
        try:
            function, item = pickle.loads(call.content)  # noqa: S301 - from our driver
            outcome = Computed(function(item))
            content = cloudpickle.dumps(outcome)
        except Exception as error:  # noqa: BLE001 - the driver decides what follows from it
            content = cloudpickle.dumps(Computed(error=f"{type(error).__name__}: {error}"))
        self._flush()
        self._tell(Answered(call.job, Place(0, 0, call.index), content, self._next))
