"""A worker: the spout, bolt and acker tasks of one process, and the loop that calls them, one pass at a time.

A worker knows no clock, no thread and no socket. Its caller (a Spark task, an in-process cluster, the simulator) must:

1. Call :meth:`Worker.run_pass` again at once if it returns True; otherwise after :meth:`Worker.idle_secs`, or as soon
   as a frame arrives.
2. Give each frame of another worker to :meth:`Worker.receive`, in the order in which that worker sent them.
3. Deliver each frame that the worker sends to the present generation of its receiver, or drop it. A lost frame is
   safe: its roots time out.
4. Call :meth:`Worker.worker_replaced` for each death of another worker, in the order of the successors' numbers, and
   before it gives the worker any frame of the successor.
5. End the process if a method raises. Another generation starts the tasks afresh.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, assert_never

import attrs

from txtopo.config import Config
from txtopo.plain.frames import Frame, decode, encode
from txtopo.plain.tasks.bolts import BoltTask, Ticks, bolt_task
from txtopo.plain.tasks.metrics import Counts, LatencyHistogram
from txtopo.plain.tasks.offload import POLL_SECS, Offloading
from txtopo.plain.tasks.outbox import Outbox
from txtopo.plain.tasks.queues import TaskQueue
from txtopo.plain.tasks.spouts import SpoutExecutor, SpoutTask
from txtopo.plain.tasks.task import Observer, Shared, tuple_sources
from txtopo.plain.trees.acker import Outcome
from txtopo.plain.trees.ackers import Ackers
from txtopo.topology.plans.assignment import ACKER, Assignment
from txtopo.topology.plans.plain_plan import PlainKind, PlainPlan

TIMERS_SECS = 0.25
"""How often a worker fails roots whose timeout has passed, and sends ticks."""

SPILL_FACTOR = 2
"""Queues go to files at this many watermarks. Spouts pause at one; what comes on top descends from earlier roots."""


@attrs.frozen
class Watermark:
    """How many bytes of tuples may wait in a worker's memory, in the queues of its tasks and in its outbox."""

    queues: Mapping[int, TaskQueue]
    outbox: Outbox
    bytes: int

    def is_full(self) -> bool:
        """Return whether more than the watermark waits, including what this pass has emitted."""
        return self.outbox.memory_bytes() + self.queued_bytes() > self.bytes

    def queued_bytes(self) -> int:
        """Return about how many bytes the queued tuples take, in memory and in files."""
        return sum(queue.memory_bytes() + queue.file_bytes for queue in self.queues.values())

    def spill(self) -> None:
        """Write queues to files, those with the most bytes first, until the others fit into memory."""
        sizes = {queue: queue.memory_bytes() for queue in self.queues.values()}
        bytes_left, most = sum(sizes.values()), SPILL_FACTOR * self.bytes
        while bytes_left > most and sizes:
            longest = max(sizes, key=sizes.__getitem__)
            bytes_left -= sizes.pop(longest)
            longest.spill()
            bytes_left += longest.memory_bytes()


@attrs.frozen
class WorkerStatus:
    """What reports say about a worker."""

    worker: int
    counts: tuple[tuple[str, Counts], ...]
    """For each task, its component and its counts."""
    pending: int
    latencies: LatencyHistogram
    """Complete latencies of acked roots."""
    tracked: int
    """Trees in the ackers."""
    reported_errors: int
    last_error: str
    lag: tuple[tuple[str, int], ...] = ()
    """For each spout task that knows it: its component, and the records between it and the end of its source."""
    queued: tuple[tuple[str, int], ...] = ()
    """For each bolt's task, its component and the tuples that wait for it in memory."""


class Worker:
    """The tasks of one worker.

    Args:
        plan: the whole topology.
        assignment: which worker has which tasks.
        worker: the number of this worker.
        config: the configuration, as it is for plain topologies.
        generations: for each worker, its present generation, counted over the whole run. Lower numbers that are not
            among them belong to dead generations.
        make_object: makes a task's object, given the component's id.
        send: takes the number of another worker and a frame for it.
        clock: returns the time, in seconds.
        rng: draws ids, and shuffles.
        observer: observes the tasks; None: only records whose turn it is.
        offloading: runs slow calls of tasks; None: in threads.

    Raises:
        UserCodeError: a task's object cannot be made or prepared.
    """

    def __init__(  # noqa: PLR0913 - everything that it depends on
        self,
        plan: PlainPlan,
        assignment: Assignment,
        worker: int,
        config: Config,
        generations: Mapping[int, int],
        *,
        make_object: Callable[[str], Any],
        send: Callable[[int, bytes], None],
        clock: Callable[[], float],
        rng: random.Random,
        observer: Observer | None = None,
        offloading: Offloading | None = None,
    ) -> None:
        self.number = worker
        self._send = send
        executors = [executor for executor in assignment.executors_of(worker) if executor.component != ACKER]
        spouts = [executor for executor in executors if plan.by_id[executor.component].kind is PlainKind.SPOUT]
        self._unprepared = [executor for executor in executors if executor not in spouts]
        """The executors of bolts, until the bolts are prepared."""
        sources = tuple_sources(plan)
        self._queues = {task: TaskQueue(sources) for executor in self._unprepared for task in executor.tasks}
        self._outbox = Outbox(
            self._queues, assignment.worker_of, tuple(assignment.worker_of[task] for task in assignment.acker_tasks)
        )
        self._watermark = Watermark(self._queues, self._outbox, config.worker_watermark_bytes)
        self._shared = Shared(
            plan=plan,
            assignment=assignment,
            worker=worker,
            config=config,
            outbox=self._outbox,
            queues=self._queues,
            sources=sources,
            clock=clock,
            rng=rng,
            make_object=make_object,
            offloading=offloading or Offloading(),
            observer=observer or Observer(),
            is_full=self._watermark.is_full,
        )
        self._known = max(generations.values())
        """The highest generation that this worker knows of."""
        self._early: deque[Frame] = deque()
        """Frames whose senders knew of a higher one; see :meth:`receive`."""
        self._set_bits(generations)
        now = self._timers_at = clock()
        self._ackers = Ackers(assignment.ackers_of(worker), generations.values(), config.message_timeout_secs, now)
        self._bolts: list[BoltTask] = []
        self._ticks: list[Ticks] = []
        self._spouts = [
            SpoutExecutor([SpoutTask(self._shared, plan.by_id[spout.component], task) for task in spout.tasks])
            for spout in spouts
        ]
        self._spout_tasks = {task.id: task for executor in self._spouts for task in executor.tasks}
        self._is_active = self._is_throttled = False

    def set_active(self, *, is_active: bool) -> None:
        """Activate or deactivate the spouts. The first activation prepares the bolts and opens the spouts."""
        if is_active:
            self._prepare_bolts()
        self._is_active = is_active
        for task in self._spout_tasks.values():
            task.set_active(is_active=is_active)

    def hear(self, message: Any) -> None:
        """Called with what the owner of the workers says; in a plain topology it says nothing."""
        raise AssertionError(f"nobody says {message!r}")

    def receive(self, data: bytes) -> None:
        """Called with a frame of another worker.

        The frame waits here if its sender knew of a death that this worker does not know of yet. Otherwise:

        1. Worker 0 dies, and worker 1 learns of it. The successor of 0 emits a root to 1.
        2. Worker 1 sends a tuple of that root to worker 2, which acks it, to the worker 0 that has died.
        3. Worker 2 learns of the death. The ack is lost, and the root waits for its timeout.

        Raises:
            UserCodeError: a value in it does not unpickle; the error names the component that emitted it.
            ValueError: it is not a frame.
        """
        self._early.append(decode(data, self._shared.sources))
        self._take_known()

    def worker_replaced(self, worker: int, dead: int, successor: int) -> None:
        """Called when generation ``dead`` of another worker has died, and ``successor`` follows.

        Tuples that wait to be sent to it are dropped: their roots fail with all others that touched it.
        """
        self._outbox.drop(worker)
        self._set_bits({worker: successor})
        self._known = max(self._known, successor)
        self._take_known()
        self._ackers.worker_died(dead)

    def run_pass(self) -> bool:
        """Give every task one turn, and send what they emitted; return whether any did; errors raise UserCodeError."""
        has_worked, observer = False, self._shared.observer
        # Bolts first: they work off what waits before spouts add to it.
        for bolt in self._bolts:
            if bolt.queue:
                observer.turn(bolt.component.id, bolt.id)
                bolt.run()
                bolt.output.deliver()  # the bolts behind it work on that in this pass
                has_worked = True
        if self._is_active:
            for executor in self._spouts:
                has_worked |= executor.run(self._shared, is_throttled=self._is_throttled)
        observer.no_turn()
        has_worked |= self._shared.offloading.run_done()  # before the flush, which sends what these calls emit
        has_worked |= self._flush()
        now = self._shared.clock()
        self._watermark.spill()
        if now >= self._timers_at:
            self._timers_at = now + TIMERS_SECS
            observer.timers_ran()
            has_worked |= self._run_timers(now)
        return has_worked

    def idle_secs(self) -> float:
        """Return for how long there is nothing to do unless a frame arrives."""
        waits = [executor.wait_secs for executor in self._spouts] if self._is_active else []
        if self._shared.offloading.under_way:
            waits.append(POLL_SECS)
        return min([TIMERS_SECS, *(wait for wait in waits if wait is not None)])

    def set_throttled(self, *, is_throttled: bool) -> None:
        """Stop calling the spouts, because a worker is above its watermark, or call them again."""
        self._is_throttled = is_throttled

    def is_done(self) -> bool:
        """Return whether all spout tasks are exhausted, with nothing pending."""
        return all(task.is_done for task in self._spout_tasks.values())

    def is_idle(self) -> bool:
        """Return whether nothing waits to be executed or sent."""
        return (
            self._outbox.is_empty
            and not self._shared.offloading.under_way
            and not self._early
            and not any(self._queues.values())
            and not any(task.collector.inits for task in self._spout_tasks.values())
        )

    def offloaded(self) -> int:
        """Return how many slow calls are under way."""
        return self._shared.offloading.under_way

    def pending(self) -> int:
        """Return how many roots are pending."""
        return sum(len(task.pending) for task in self._spout_tasks.values())

    def acked(self) -> int:
        """Return how many roots were acked; 0 without ackers."""
        is_acking = self._shared.assignment.is_acking
        return sum(task.counts.acked for task in self._spout_tasks.values()) if is_acking else 0

    def queued_bytes(self) -> int:
        """Return about how many bytes the queued tuples take, in memory and in files."""
        return self._watermark.queued_bytes()

    def busy_with(self) -> str:
        """Return the task that has its turn, in words for people; called in another thread."""
        current = self._shared.observer.current
        return "" if current is None else f"task {current[1]} of {current[0]!r}"

    def status(self) -> WorkerStatus:
        """Return what reports say about this worker."""
        tasks = [*self._bolts, *self._spout_tasks.values()]
        spouts = self._spout_tasks.values()
        return WorkerStatus(
            worker=self.number,
            counts=(
                *((task.component.id, task.counts) for task in tasks),
                *([(ACKER, Counts(executed=self.acker_messages()))] if self._shared.assignment.is_acking else []),
            ),
            pending=self.pending(),
            latencies=LatencyHistogram.sum(task.latencies for task in spouts),
            tracked=len(self._ackers),
            reported_errors=sum(task.errors.reported for task in tasks),
            last_error=next((task.errors.last for task in tasks if task.errors.last), ""),
            lag=tuple((task.component.id, lag) for task in spouts if (lag := task.lag()) is not None),
            queued=tuple((task.component.id, len(self._queues[task.id])) for task in self._bolts),
        )

    def left(self) -> dict[str, int]:
        """Return the size of each map and queue that must be empty once all roots are settled."""
        columns = [column for column in self._outbox.columns if column.values]
        outbox = (columns, self._outbox.acks, self._outbox.masks, self._outbox.failed, self._outbox.reset)
        return {
            "pending roots": self.pending(),
            "roots that no acker was told of": sum(len(task.collector.inits) for task in self._spout_tasks.values()),
            "trees in ackers": len(self._ackers),
            "settled roots that no spout was told of": self._ackers.untold,
            "queued tuples": sum(map(len, self._queues.values())) + sum(q.file_bytes for q in self._queues.values()),
            "unsent tuples, acks and failures": sum(map(len, outbox)),
            "frames that wait for news of a death": len(self._early),
        }

    def acker_messages(self) -> int:
        """Return how many messages for ackers there were: acks from bolts here, all others for ackers here."""
        return self._ackers.messages + sum(bolt.collector.acks_told() for bolt in self._bolts)

    def tree_bytes_max(self) -> int:
        """Return how many bytes of memory the largest tree of an acker takes; 0 if there is none."""
        return self._ackers.tree_bytes_max()

    def close(self) -> None:
        """Close the spouts, and clean the bolts up."""
        for task in [*self._spout_tasks.values(), *self._bolts]:
            task.close()
        self._shared.offloading.close()
        for queue in self._queues.values():
            queue.close()

    def _prepare_bolts(self) -> None:
        shared = self._shared
        executors, self._unprepared = self._unprepared, []
        for executor in executors:
            tasks = [bolt_task(shared, shared.plan.by_id[executor.component], task) for task in executor.tasks]
            self._bolts.extend(tasks)
            every_secs = tasks[0].config["topology.tick.tuple.freq.secs"]
            if every_secs is not None:
                self._ticks.append(Ticks(tasks, every_secs, shared.clock() + every_secs, len(shared.sources) - 1))

    def _set_bits(self, generations: Mapping[int, int]) -> None:
        for task, worker in self._shared.assignment.worker_of.items():
            if worker in generations:  # tuples from here to here need no bit: they die with their acks
                self._outbox.set_bit(task, 0 if worker == self.number else 1 << generations[worker])

    def _take_known(self) -> None:
        # Only from the front: a frame must not overtake an earlier one of its sender (rule 2 above).
        while self._early and self._early[0].known <= self._known:
            self._take(self._early.popleft())

    def _take(self, frame: Frame) -> None:
        if frame.tuples:
            self._prepare_bolts()  # an inactive topology prepares no bolts, but executes the tuples that are under way
        for columns in frame.tuples:
            self._queues[columns.task].put(columns)
        self._ackers.ack(*frame.acks)
        self._ackers.fail(frame.failed)
        self._ackers.reset(frame.reset)

    def _flush(self) -> bool:
        """Send tuples, acks and failures of the tasks; return whether there were any."""
        for task in self._spout_tasks.values():
            # Before the acks: an ack without an init takes the slower way, over the early trees.
            self._ackers.init(task.collector.inits, task.id)
            task.collector.inits.clear()
        frames = self._outbox.take_frames()
        for worker, frame in frames.items():
            if worker == self.number:
                self._take(frame)
            else:
                frame.known = self._known
                self._send(worker, encode(frame, self._shared.sources))
        return bool(frames) | self._settle()

    def _settle(self) -> bool:
        settled = self._ackers.take_settled()
        for number, outcome, roots in settled:
            task = self._spout_tasks[number]
            match outcome:
                case Outcome.ACKED:
                    task.ack(roots)
                case Outcome.FAILED:
                    task.fail(roots)
                case Outcome.RESET:
                    task.reset_timeouts(roots)
                case _:
                    assert_never(outcome)
        return bool(settled)

    def _run_timers(self, now: float) -> bool:
        """Fail the roots whose timeout has passed, and send the ticks that are due; return whether it did either."""
        expired = [root for task in self._spout_tasks.values() for root in task.expire()]
        self._ackers.forget(expired)
        self._ackers.rotate_if_due(now)
        sent = [ticks.send(now) for ticks in self._ticks]
        return any(sent) or bool(expired)
