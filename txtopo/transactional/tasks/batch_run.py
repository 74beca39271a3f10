"""A batch run: the tasks of one attempt in one partition, and the tuples between them.

There are three uses. A Spark task that holds whole transactions runs all tasks of the processing phase in one batch
run. If a transaction is spread over Spark tasks, each stage is a batch run that sends shuffle messages to the next
stage. And the commit phase is a batch run of the bolts that were carried over from the processing phase.
"""

from __future__ import annotations

import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from txtopo.api.components.groupings import GroupingKind
from txtopo.api.components.planned import Planned
from txtopo.attempts import TransactionAttempt
from txtopo.columnar.chunks import Chunk, decode, source_of
from txtopo.columnar.hashing import mix
from txtopo.columnar.progress_probe import ProgressProbe
from txtopo.errors import TxtopoError
from txtopo.failpoints import reach
from txtopo.topology.plans.plan import ComponentKind, Edge, Phase, PlannedComponent
from txtopo.topology.user_code.blame import user_code
from txtopo.transactional.core.readings import Readings
from txtopo.transactional.tasks.bolt_tasks import BoltTask, task_type
from txtopo.transactional.tasks.collector import TaskCollector, task_collector
from txtopo.transactional.tasks.context import StateViews, TaskContext
from txtopo.transactional.tasks.edge_tally import EdgeTally
from txtopo.transactional.tasks.factory import TaskFactory
from txtopo.transactional.tasks.fingerprint import Tracer
from txtopo.transactional.tasks.routing import Router

_TO_SEVERAL = {GroupingKind.ALL, GroupingKind.CUSTOM}
"""The groupings that may pass one tuple to several tasks."""


@attrs.frozen
class ShuffleMessage:
    """A chunk that one partition sends to another."""

    attempt: TransactionAttempt
    edge: int
    source_task: int
    task: int
    tag: int
    tuples: int
    encoded: bytes


@attrs.frozen
class CarriedBolt:
    """A bolt of the commit phase that received tuples in the processing phase."""

    component: str
    task: int
    state: bytes


IsLocal = Callable[[str, int], bool]
"""Returns whether a component's task runs in this partition."""


def everything(_component: str, _task: int) -> bool:
    """Return True: every task runs in this partition."""
    return True


class BatchRun:
    """The tasks of one attempt in one partition.

    ``is_local`` decides which tasks run here, and ``send`` sends the tuples for others away. ``views`` are None in the
    processing phase. In the commit phase ``carried`` holds the pickled bolts of the processing phase, by component and
    task.
    """

    def __init__(  # noqa: PLR0913 - a run depends on that many parts
        self,
        task_factory: TaskFactory,
        attempt: TransactionAttempt,
        planned: Planned,
        *,
        is_local: IsLocal = everything,
        send: Callable[[ShuffleMessage], None] | None = None,
        views: StateViews | None = None,
        carried: Mapping[tuple[str, int], bytes] | None = None,
        probe: ProgressProbe | None = None,
    ) -> None:
        self.attempt = attempt
        self._planned = planned
        self.tallies: dict[int, EdgeTally] = defaultdict(EdgeTally)
        self.tuples_emitted = 0
        self.tracer = Tracer()
        self._task_factory = task_factory
        self._plan = task_factory.plan
        self._is_local = is_local
        self._send = send
        self._views = views
        self.readings = Readings()
        self._carried = dict(carried or {})
        self._probe = probe or ProgressProbe()
        self._tasks: dict[tuple[str, int], BoltTask] = {}
        self._contexts: list[TaskContext] = []
        self._routers: dict[tuple[int, int], Router] = {}
        self._chunks_sent = 0
        self._pending: deque[tuple[Edge, int, Chunk]] = deque()
        self._failure: TxtopoError | None = None

    def emit(self, spout: PlannedComponent, task: int, emit: Callable[[TaskCollector], Any]) -> Any:
        """Let a spout task emit its share, process it, and return what ``emit`` returns; raise what has failed."""

        def forward(chunk: Chunk, _direct: int | None) -> None:
            self.tuples_emitted += len(chunk)
            self._distribute(spout, task, chunk, _direct)
            self._process_pending()

        collector = task_collector(spout, task, self.attempt, forward, self._task_factory.record_late)
        self._probe.attempt = self.attempt
        self._probe.waiting = collector
        try:
            with user_code(spout.id, self.attempt, task):
                reach("spout.emit")
                result = emit(collector)
                collector.flush()
        finally:
            collector.close()
        collector.refuse_rest()
        self._raise_failure()  # the emitter may have swallowed the error of a bolt that its tuples went to
        return result

    def receive(self, message: ShuffleMessage) -> None:
        """Decode a shuffle message from another partition and process its tuples."""
        edge = self._plan.edges[message.edge]
        fields = self._plan.by_id[edge.source].streams[edge.stream]
        source = source_of(edge.source, edge.stream, message.source_task, fields)
        chunk = decode(message.encoded, source, self.attempt)
        self._count_received(edge, len(chunk), message.tag)
        self._pending.append((edge, message.task, chunk))
        self._process_pending()
        self._raise_failure()

    def finish(self, component: PlannedComponent) -> None:
        """Finish the batch in each of a component's tasks in this partition; all of its inputs must have arrived."""
        for task in range(component.tasks):
            if self._is_local(component.id, task) and self._has_work(component, task):
                self._probe.attempt = self.attempt
                self._task(component, task).finish()
                self._probe.steps += 1
                self._process_pending()
                self._raise_failure()

    def _has_work(self, component: PlannedComponent, task: int) -> bool:
        """Whether a task must finish its batch: always, unless it may be left out and got no tuple."""
        key = (component.id, task)
        return not component.is_left_out_without_tuples or key in self._tasks or key in self._carried

    def carry(self) -> list[CarriedBolt]:
        """Return the bolts of the commit phase that received tuples in this partition."""
        carried = []
        for (name, index), task in self._tasks.items():
            if self._plan.by_id[name].phase is Phase.COMMIT:
                state = task.carry()
                if state is not None:
                    carried.append(CarriedBolt(name, index, state))
        return carried

    @property
    def has_staged(self) -> bool:
        """Whether a task of the attempt may have left a file in the staging folder."""
        return any(context.has_staged for context in self._contexts)

    def close(self) -> None:
        """Release all tasks now: reference cycles with this object would keep their memory until the next gc."""
        for task in self._tasks.values():
            task.collector.close()
        for context in self._contexts:
            context.end(self.attempt, self._task_factory.record_late)
        self._contexts.clear()
        self._tasks.clear()
        self._routers.clear()
        self._pending.clear()

    def _distribute(self, component: PlannedComponent, task: int, chunk: Chunk, direct: int | None) -> None:
        """Route a chunk to every subscriber of its stream; send parts for other partitions, queue the rest."""
        self.tracer.trace(component.id, task, chunk)
        edges = self._plan.outputs(component.id, chunk.source.stream)
        if len(edges) == 1 and edges[0].grouping.kind not in _TO_SEVERAL:
            chunk.is_shared = False  # the collector's copies go to one task, which needs none of its own
        for edge in edges:
            router = self._router(edge, component, task)
            if direct is None:
                routed = router.route(chunk, self.attempt, self._planned.at)
            elif edge.grouping.kind is GroupingKind.DIRECT:
                router.check_task(direct)
                routed = [(direct, chunk)]
            else:
                routed = []
            for target, part in routed:
                self._dispatch(edge, task, target, part)

    def _dispatch(self, edge: Edge, source_task: int, target: int, part: Chunk) -> None:
        # A shuffle message's tag covers its content, which differs if Spark runs a sender again that is not
        # deterministic; see edge_tally. A local chunk never leaves this run, so its number is enough.
        self._chunks_sent += 1
        way = (edge.index << 40) ^ (source_task << 20) ^ target
        tally = self.tallies[edge.index]
        tally.sent += len(part)
        if self._is_local(edge.target, target):
            tag = mix(way ^ (self._chunks_sent << 56))
            self._count_received(edge, len(part), tag)
            self._pending.append((edge, target, part))
        else:
            assert self._send is not None, "a partition that can't send messages holds every task"
            encoded = part.encode()
            tag = mix(mix(way) ^ zlib.crc32(encoded))
            self._send(ShuffleMessage(self.attempt, edge.index, source_task, target, tag, len(part), encoded))
        tally.sent_ids ^= tag

    def _count_received(self, edge: Edge, tuples: int, tag: int) -> None:
        tally = self.tallies[edge.index]
        tally.received += tuples
        tally.received_ids ^= tag

    def _process_pending(self) -> None:
        """Let tasks execute the queued chunks. Keep a failure, because the user's emitter may swallow the exception."""
        try:
            while self._pending and self._failure is None:
                edge, target, chunk = self._pending.popleft()
                self._task(self._plan.by_id[edge.target], target).execute(chunk)
                self._probe.tuples += len(chunk)
        except TxtopoError as error:
            self._failure = error
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _task(self, component: PlannedComponent, task: int) -> BoltTask:
        existing = self._tasks.get((component.id, task))
        if existing is None:
            existing = self._tasks[(component.id, task)] = self._make_task(component, task)
        return existing

    def _make_task(self, component: PlannedComponent, task: int) -> BoltTask:
        assert component.kind not in {ComponentKind.SPOUT, ComponentKind.DATAFRAME_BOLT}, "only Python bolts have tasks"

        def forward(chunk: Chunk, direct: int | None) -> None:
            self._distribute(component, task, chunk, direct)

        context = TaskContext(
            self._plan,
            component,
            task,
            self._views,
            self._task_factory.staging,
            planned=self._planned,
            readings=None if self._views is None else self.readings,
            record_write=self._task_factory.record_write,
        )
        self._contexts.append(context)
        collector = task_collector(component, task, self.attempt, forward, self._task_factory.record_late)
        carried = self._carried.pop((component.id, task), None)
        return task_type(component)(
            self._task_factory, component, self.attempt, context, collector, self._probe, carried
        )

    def _router(self, edge: Edge, component: PlannedComponent, task: int) -> Router:
        router = self._routers.get((edge.index, task))
        if router is None:
            is_custom = edge.grouping.custom is not None
            context = None
            if is_custom:
                write = self._task_factory.record_write
                context = TaskContext(
                    self._plan, component, task, self._views, planned=self._planned, record_write=write
                )
            router = self._routers[(edge.index, task)] = Router(self._plan, edge, task, context)
        return router
