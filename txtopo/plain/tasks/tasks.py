"""The tasks of spouts and bolts in a worker, each with its object, its collector and what it counts."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import attrs

from txtopo.api.bolt import BasicBolt, RichBolt
from txtopo.api.context import BoltEvent, SpoutEvent
from txtopo.api.fields import Fields
from txtopo.api.spout import Spout
from txtopo.api.tuples import Tuple, TupleSource
from txtopo.config import Config, component_config
from txtopo.errors import FailedException, ReportedFailedException, TxtopoError
from txtopo.plain.tasks.collectors import BasicCollector, BoltCollector, Emitting, OutputStream, SpoutCollector
from txtopo.plain.tasks.context import PlainTaskContext
from txtopo.plain.tasks.errors import ErrorReporter, blamed
from txtopo.plain.tasks.latency import LatencyHistogram
from txtopo.plain.tasks.metrics import Counts
from txtopo.plain.tasks.offload import Offloading
from txtopo.plain.tasks.outbox import Outbox
from txtopo.plain.tasks.queues import TaskQueue
from txtopo.plain.trees.pending import PendingRoots
from txtopo.plain.trees.tuples import TreeTuple
from txtopo.topology.assignment import Assignment
from txtopo.topology.groupings import chooser
from txtopo.topology.plain_plan import (
    SYSTEM,
    SYSTEM_TASK,
    TICK_STREAM,
    PlainComponent,
    PlainKind,
    PlainPlan,
)
from txtopo.topology.plan import Edge

EXECUTED_AT_ONCE_MAX = 512
"""Tuples that a task executes before another task, or the network, has its turn."""

TURN_SECS = 0.05
"""How long its turn may be: then a slow bolt ends it. What arrives meanwhile waits in sockets."""

CHECKED_MAX = 64
"""Tuples that a quick bolt executes before it looks at the clock; if that takes a millisecond, after each."""

WEIGHED_SECS = 0.001
"""After how long what a task has emitted in its turn is weighed: in less, it can't have filled more than some MB."""


class Observer:
    """Watches a worker; by default, it only keeps whose turn it is."""

    current: tuple[str, int] | None = None
    """The component and task whose code runs, for any thread to read; None: no task's does."""

    def turn(self, component: str, task: int) -> None:
        """Learn that the code of a task runs from now on."""
        self.current = component, task

    def no_turn(self) -> None:
        """Learn that no task's code runs any more."""
        self.current = None

    def looked(self) -> None:
        """Learn that some time has passed; called several times a second."""

    def watch(self, task: int, collector: BoltCollector | SpoutCollector) -> None:
        """Learn of the collector of a task, before anybody uses it; its functions may be replaced by others."""


@attrs.frozen
class Surroundings:
    """What all tasks of a worker share.

    Args:
        plan: the plan.
        assignment: where tasks are.
        worker: the number of this worker.
        config: the configuration of the topology.
        outbox: takes what is sent.
        queues: those of the bolts' tasks in this worker.
        sources: where tuples come from, by the numbers of tasks and streams.
        clock: tells the time, in seconds.
        rng: draws ids, and shuffles.
        make_object: makes a task's object, given the component's id.
        offloading: runs slow calls of tasks.
        observer: watches the tasks.
        is_full: weighs what waits here; returns whether it is so much that whoever emits is to end its turn.
    """

    plan: PlainPlan
    assignment: Assignment
    worker: int
    config: Config
    outbox: Outbox
    queues: Mapping[int, TaskQueue]
    sources: Sequence[TupleSource]
    clock: Callable[[], float]
    rng: random.Random
    make_object: Callable[[str], Any]
    offloading: Offloading
    observer: Observer
    is_full: Callable[[], bool]


def tuple_sources(plan: PlainPlan) -> list[TupleSource]:
    """Return where tuples may come from: every stream of every task, and ticks. Numbers are the same in all workers."""
    return [
        *(
            TupleSource(component.id, stream, task, fields)
            for component in plan.components
            for task in component.tasks
            for stream, fields in component.streams.items()
        ),
        TupleSource(SYSTEM, TICK_STREAM, SYSTEM_TASK, Fields("rate_secs")),
    ]


class Task(ABC):
    """A task of a spout or bolt.

    Args:
        around: what it shares with the other tasks of the worker.
        component: its component.
        task: its id.
    """

    def __init__(self, around: Surroundings, component: PlainComponent, task: int) -> None:
        self.component = component
        self.id = task
        self._observer = around.observer
        self.config = component_config(around.config, component.configuration)
        self.errors = ErrorReporter(
            component.id,
            task,
            around.clock,
            around.config.error_throttle_interval_secs,
            around.config.max_error_report_per_interval,
        )
        self.emitting = Emitting(component.id, task, {}, around.outbox, around.rng.getrandbits, self.errors)
        self.context = PlainTaskContext(
            around.plan, component, task, self.config, self.emitting.hooks, around.offloading, self.user_code
        )
        with self.user_code():
            self.emitting = attrs.evolve(self.emitting, streams=self._streams(around), hooks=self.emitting.hooks)

    @property
    @abstractmethod
    def counts(self) -> Counts:
        """What the task has counted."""

    @abstractmethod
    def close(self) -> None:
        """Let the object, and the hooks, let go of what they hold."""

    @contextmanager
    def user_code(self) -> Iterator[None]:
        """Run the user's code outside of a pass' turns: it is known as the task's, and what it raises names the task.

        Raises:
            UserCodeError: it raised an exception that is not one of txtopo's.
        """
        self._observer.turn(self.component.id, self.id)
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the user's code
            raise self.blamed(error) from None
        finally:
            self._observer.no_turn()

    def blamed(self, error: Exception) -> TxtopoError:
        """Return an exception of the user's code as one that names the component and the task."""
        return blamed(error, self.component.id, self.id)

    def close_hooks(self) -> None:
        """Tell the hooks that the run ends."""
        for hook in self.emitting.hooks:
            hook.cleanup()

    def _streams(self, around: Surroundings) -> Mapping[str, OutputStream]:
        return {name: self._stream(around, name) for name in self.component.streams}

    def _stream(self, around: Surroundings, name: str) -> OutputStream:
        fields = self.component.streams[name]
        number = around.sources.index(TupleSource(self.component.id, name, self.id, fields))
        source = around.sources[number]
        edges = around.plan.outputs(self.component.id, name)
        direct = {task for edge in edges if edge.grouping.is_direct for task in around.plan.by_id[edge.target].tasks}
        return OutputStream(
            name=name,
            fields=fields,
            source=source,
            number=number,
            choices=[self._choice(around, edge, fields) for edge in edges if not edge.grouping.is_direct],
            direct_tasks=frozenset(direct) if name in self.component.direct_streams else None,
        )

    def _choice(self, around: Surroundings, edge: Edge, fields: Any) -> Any:
        tasks = around.plan.by_id[edge.target].tasks
        local = [task for task in tasks if around.assignment.worker_of[task] == around.worker]
        return chooser(edge, fields, self.id, tasks, local, self.context, around.rng)


class BoltTask(Task):
    """A task of a rich bolt or a basic bolt. Its object is prepared at once."""

    def __init__(self, around: Surroundings, component: PlainComponent, task: int) -> None:
        super().__init__(around, component, task)
        self.queue = around.queues[task]
        self.collector = BoltCollector(self.emitting)
        around.observer.watch(task, self.collector)
        self._executed = 0
        self._clock = around.clock
        self._is_full = around.is_full
        self._unchecked = 1
        with self.user_code():
            self._bolt: Any = around.make_object(component.id)
            if component.kind is PlainKind.BASIC_BOLT:
                self._execute = self._basic(self._bolt)
                self._bolt.prepare(self.config, self.context)
            else:
                bolt: RichBolt = self._bolt
                self._execute = bolt.execute
                bolt.prepare(self.config, self.context, self.collector)
                self._execute = bolt.execute  # prepare() may have set another one

    def run(self) -> int:
        """Execute some of the tuples that wait, and return how many it executed.

        Raises:
            UserCodeError: the bolt raised an exception other than a FailedException.
        """
        clock = self._clock
        weighed_at = checked_at = clock()
        end = checked_at + TURN_SECS
        taken = self.queue.take(EXECUTED_AT_ONCE_MAX)
        waiting, done = iter(taken), 0
        while done < len(taken):
            self._run_some(islice(waiting, self._unchecked))
            done += self._unchecked
            now = clock()
            self._unchecked = min(2 * self._unchecked, CHECKED_MAX) if now - checked_at < WEIGHED_SECS else 1
            checked_at = now
            if now >= end:
                break
            if now - weighed_at >= WEIGHED_SECS:
                if self._is_full():
                    break
                weighed_at = now
        if done < len(taken):
            self.queue.give_back(taken[done:])
        executed = min(done, len(taken))
        self._executed += executed
        return executed

    def _run_some(self, waiting: Iterator[TreeTuple]) -> None:
        execute, hooks = self._execute, self.emitting.hooks
        while True:
            current: TreeTuple | None = None
            try:
                if hooks:
                    for current in waiting:
                        execute(current)
                        self._tell_executed(current)
                else:
                    for current in waiting:
                        execute(current)
                break
            except FailedException as error:
                self._failed(current, error)
            except Exception as error:  # noqa: BLE001 - the user's code
                raise self.blamed(error) from None

    @property
    def counts(self) -> Counts:
        """What the task has counted."""
        return attrs.evolve(self.collector.counts(), executed=self._executed)

    def close(self) -> None:
        """Clean the bolt up."""
        with self.user_code():
            self._bolt.cleanup()
            self.close_hooks()

    def _basic(self, bolt: BasicBolt) -> Callable[[Tuple], None]:
        collector = BasicCollector(self.collector)
        call, ack = bolt.execute, self.collector.ack

        def execute(tuple: Tuple) -> None:
            collector.anchor = tuple
            call(tuple, collector)
            ack(tuple)

        return execute

    def _failed(self, tuple: Tuple | None, error: FailedException) -> None:
        assert tuple is not None, "only execute() raises it"
        if isinstance(error, ReportedFailedException):
            self.errors.report(error)
        self.collector.fail(tuple)

    def _tell_executed(self, tuple: Tuple) -> None:
        for hook in self.emitting.hooks:
            hook.executed(BoltEvent(tuple, self.id))


class SpoutTask(Task):
    """A task of a spout. Its object is opened when the topology is first active."""

    def __init__(self, around: Surroundings, component: PlainComponent, task: int) -> None:
        super().__init__(around, component, task)
        config = around.config
        self.pending = PendingRoots(config.message_timeout_secs if config.enable_message_timeouts else None)
        self.latencies = LatencyHistogram()
        self._clock = around.clock
        self.collector = SpoutCollector(
            self.emitting, self.pending, around.assignment.ackers_of(around.worker), around.clock, self._acked_at_once
        )
        around.observer.watch(task, self.collector)
        self._acked = self._failed = 0
        self._is_open = self._is_active = False
        with self.user_code():
            self._spout: Spout = around.make_object(component.id)

    @property
    def counts(self) -> Counts:
        """What the task has counted."""
        return attrs.evolve(self.collector.counts(), acked=self._acked, failed=self._failed)

    @property
    def is_done(self) -> bool:
        """Whether the spout emits nothing new any more, and nothing is pending."""
        with self.user_code():
            return self._is_open and not self.pending and self._spout.is_exhausted()

    def lag(self) -> int | None:
        """Return how many records the spout is behind the end of its source; None if it does not know."""
        if not self._is_open:
            return None
        with self.user_code():
            return self._spout.lag()

    def set_active(self, *, is_active: bool) -> None:
        """Open the spout if it is active for the first time, and tell it if that changes."""
        with self.user_code():
            if is_active and not self._is_open:
                self._is_open = True
                self._spout.open(self.config, self.context, self.collector)
            if is_active != self._is_active:
                self._is_active = is_active
                if is_active:
                    self._spout.activate()
                elif self._is_open:
                    self._spout.deactivate()

    def next_tuple(self) -> bool:
        """Ask the spout for tuples, and return whether it emitted any."""
        emitted = self.collector.emitted
        before = emitted()
        try:
            self._spout.next_tuple()
        except Exception as error:  # noqa: BLE001 - the user's code
            raise self.blamed(error) from None
        return emitted() != before

    def ack(self, roots: Sequence[int]) -> None:
        """Tell the spout that roots were acked; those that are not pending any more are ignored."""
        now, hooks = self._clock(), self.emitting.hooks
        settle, add = self.pending.settle, self.latencies.add
        with self.user_code():
            tell_spout = self._spout.ack
            for root in roots:
                pending = settle(root)
                if pending is not None:
                    latency = now - pending.emitted_at
                    add(latency)
                    self._acked += 1
                    if hooks:
                        self._tell("spout_acked", pending.message_id, latency)
                    tell_spout(pending.message_id)

    def fail(self, roots: Sequence[int]) -> None:
        """Tell the spout that roots failed; those that are not pending any more are ignored."""
        for root in roots:
            pending = self.pending.settle(root)
            if pending is not None:
                self._fail(pending.message_id, self._clock() - pending.emitted_at)

    def expire(self) -> list[int]:
        """Fail the roots whose timeout has passed, and return them."""
        now = self._clock()
        expired = self.pending.expire(now)
        for _, pending in expired:
            self._fail(pending.message_id, now - pending.emitted_at)
        return [root for root, _ in expired]

    def close(self) -> None:
        """Close the spout, if it was ever opened."""
        with self.user_code():
            if self._is_open:
                self._spout.close()
            self.close_hooks()

    def _fail(self, message_id: Any, latency: float) -> None:
        with self.user_code():
            self._failed += 1
            self._tell("spout_failed", message_id, latency)
            self._spout.fail(message_id)

    def _acked_at_once(self, message_id: Any) -> None:
        self._acked += 1
        self._tell("spout_acked", message_id, None)
        self._spout.ack(message_id)

    def _tell(self, method: str, message_id: Any, latency: float | None) -> None:
        for hook in self.emitting.hooks:
            getattr(hook, method)(SpoutEvent(message_id, self.id, latency))
