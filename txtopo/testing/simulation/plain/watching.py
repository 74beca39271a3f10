"""Watching: spouts and bolts whose every emit, ack and failure the ledger sees, and that fail when a schedule says so.

A token travels with the values of each tuple, in a field that the plan gets for it and that components never see.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import attrs

from txtopo.api.bolt import BasicBolt, RichBolt
from txtopo.api.fields import Fields
from txtopo.api.groupings import CustomStreamGrouping
from txtopo.api.optional import call_if_there
from txtopo.api.spout import Spout
from txtopo.api.tuples import DEFAULT_STREAM, Tuple, TupleSource
from txtopo.errors import AnchorError, FailedException
from txtopo.plain.tasks.collectors import BoltCollector, SpoutCollector
from txtopo.plain.tasks.offload import Offloading
from txtopo.plain.tasks.task import Observer
from txtopo.plain.trees.tuples import SETTLED
from txtopo.testing.simulation.plain.ledger import Ledger, Life, Root
from txtopo.topology.plain_plan import SYSTEM, PlainComponent, PlainKind, PlainPlan

FIELD = "__simulated"
"""The field that tokens travel in."""


class Around(Protocol):
    """What watched components ask of the process that they are in."""

    ledger: Ledger
    life: Life

    def incarnations_of(self, tasks: Sequence[int]) -> list[int]:
        """Return the incarnations that tasks are in, as far as this process knows."""

    def may_emit_root(self) -> bool:
        """Whether spouts may still emit."""

    def step(self, where: str) -> None:
        """Reach a place in a component's code; an exception strikes it there."""

    def failure(self, where: str) -> bool:
        """Draw whether a bolt fails a tuple here, or a slow call fails."""

    def source_of(self, source: TupleSource) -> TupleSource:
        """Return where a tuple comes from, as components know it."""

    def call_ends(self) -> bool:
        """Draw whether a slow call ends now."""


def with_tokens(plan: PlainPlan) -> PlainPlan:
    """Return a plan whose streams have a field for tokens."""
    components = [
        attrs.evolve(each, streams={name: fields + Fields(FIELD) for name, fields in each.streams.items()})
        for each in plan.components
    ]
    edges = [
        attrs.evolve(edge, grouping=attrs.evolve(edge.grouping, custom=_Blind(edge.grouping.custom)))
        if edge.grouping.custom is not None
        else edge
        for edge in plan.edges
    ]
    return attrs.evolve(plan, components=tuple(components), edges=tuple(edges))


class _Blind(CustomStreamGrouping):
    """A grouping of the user's, which sees no tokens."""

    def __init__(self, custom: CustomStreamGrouping) -> None:
        self._custom = custom

    def prepare(self, context: Any, stream: str, target_tasks: Sequence[int]) -> None:
        call_if_there(self._custom, "prepare", context, stream, target_tasks)

    def choose_tasks(self, source_task: int, values: Sequence[Any]) -> Sequence[int]:
        return self._custom.choose_tasks(source_task, values[:-1])


def watched(component: PlainComponent, made: Any, around: Around) -> Any:
    """Return a component's object as one that the ledger sees."""
    match component.kind:
        case PlainKind.SPOUT:
            return _WatchedSpout(made, around)
        case PlainKind.RICH_BOLT:
            return _WatchedRichBolt(made, around)
        case PlainKind.BASIC_BOLT:
            return _WatchedBasicBolt(made, around)


class CollectorObserver(Observer):
    """Puts a watch on the collectors of a worker's tasks."""

    def __init__(self, around: Around) -> None:
        self._around = around

    def watch(self, task: int, collector: BoltCollector | SpoutCollector) -> None:
        """Replace the functions of a collector by watched ones."""
        if isinstance(collector, SpoutCollector):
            _watch_spout(collector, self._around)
        else:
            _watch_bolt(task, collector, self._around)


class SimulatedOffloading(Offloading):
    """Slow calls of components: they end some time later, well or by an error.

    Those of spouts are made when they end: they read. Those of bolts are not: what they would write is out of the
    simulator's world.

    Args:
        around: the process that they are in.
        spout_tasks: the tasks of spouts.
    """

    def __init__(self, around: Around, spout_tasks: Collection[int]) -> None:
        super().__init__()
        self._around = around
        self._spout_tasks = spout_tasks
        self._calls: list[tuple[Callable[[], Any], Callable[[Future[Any]], None]]] = []

    def submit(self, task: int, call: Callable[[], Any], on_done: Callable[[Future[Any]], None]) -> None:
        """Let a call begin."""
        self.under_way += 1
        self._calls.append((call if task in self._spout_tasks else _write_nothing, on_done))

    def run_done(self) -> bool:
        """Let some calls end."""
        has_run = False
        while self._calls and self._around.call_ends():
            call, on_done = self._calls.pop(0)
            self.under_way -= 1
            done: Future[Any] = Future()
            if self._around.failure("a slow call"):
                done.set_exception(OSError("the simulated call failed"))
            else:
                try:
                    done.set_result(call())
                except Exception as error:  # noqa: BLE001 - the user's code, which is told of it
                    done.set_exception(error)
            has_run = True
            self._around.life.acked = None  # another turn begins
            on_done(done)
        return has_run


def _write_nothing() -> None:
    pass


def _with_token(values: Sequence[Any], token: int) -> Any:
    return values if isinstance(values, (str, bytes)) else (*values, token)


def _watch_spout(collector: SpoutCollector, around: Around) -> None:
    emit, emit_direct, ledger = collector.emit, collector.emit_direct, around.ledger

    def watched_emit(values: Sequence[Any], stream: str = DEFAULT_STREAM, message_id: Any = None) -> list[int]:
        token = ledger.token()
        root = None if message_id is None else ledger.begin(message_id)
        tasks = emit(_with_token(values, token), stream, root)
        if root is not None:
            ledger.sent_root(around.life, root, token, tasks, around.incarnations_of(tasks))
        around.step("after a spout has emitted")
        return tasks

    def watched_emit_direct(
        task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM, message_id: Any = None
    ) -> None:
        token = ledger.token()
        root = None if message_id is None else ledger.begin(message_id)
        emit_direct(task, _with_token(values, token), stream, root)
        if root is not None:
            ledger.sent_root(around.life, root, token, [task], around.incarnations_of([task]))

    collector.emit, collector.emit_direct = watched_emit, watched_emit_direct


def _watch_bolt(task: int, collector: BoltCollector, around: Around) -> None:  # noqa: C901 - a closure a method
    emit, emit_direct, ledger = collector.emit, collector.emit_direct, around.ledger
    ack, fail, reset_timeout = collector.ack, collector.fail, collector.reset_timeout
    life, this_task = around.life, task

    def watched_emit(values: Sequence[Any], anchors: Any = None, stream: str = DEFAULT_STREAM) -> list[int]:
        token = ledger.token()
        try:
            tasks = emit(_with_token(values, token), anchors, stream)
        except AnchorError:
            ledger.anchored_late(life, this_task, values, _listed(anchors))
            raise
        if anchors is not None:
            ledger.sent(life, _listed(anchors), token, tasks, around.incarnations_of(tasks))
        if life.acked is not None:
            ledger.emitted_after_ack(life, this_task, values, _listed(anchors))
        around.step("after a bolt has emitted")
        return tasks

    def watched_emit_direct(
        task: int, values: Sequence[Any], anchors: Any = None, stream: str = DEFAULT_STREAM
    ) -> None:
        token = ledger.token()
        try:
            emit_direct(task, _with_token(values, token), anchors, stream)
        except AnchorError:
            ledger.anchored_late(life, this_task, values, _listed(anchors))
            raise
        if anchors is not None:
            ledger.sent(life, _listed(anchors), token, [task], around.incarnations_of([task]))
        if life.acked is not None:
            ledger.emitted_after_ack(life, this_task, values, _listed(anchors))

    def watched_ack(tuple: Tuple) -> None:
        if tuple.roots is SETTLED:  # type: ignore[attr-defined] # of a TreeTuple
            ledger.settled_again(life, this_task, tuple, "acked")
        ack(tuple)
        ledger.tuple_acked(life, tuple)
        around.step("after a bolt has acked")

    def watched_fail(tuple: Tuple) -> None:
        if tuple.roots is SETTLED:  # type: ignore[attr-defined] # of a TreeTuple
            ledger.settled_again(life, this_task, tuple, "failed")
        fail(tuple)
        ledger.tuple_failed(life, tuple)

    def watched_reset_timeout(tuple: Tuple) -> None:
        reset_timeout(tuple)
        ledger.renewed(life, tuple)

    collector.emit, collector.emit_direct = watched_emit, watched_emit_direct
    collector.ack, collector.fail, collector.reset_timeout = watched_ack, watched_fail, watched_reset_timeout


def _listed(anchors: Any) -> Sequence[Any]:
    return () if anchors is None else [anchors] if isinstance(anchors, Tuple) else anchors


class _WatchedSpout(Spout):
    """A spout that the ledger sees; what it does not define here, the user's does."""

    def __init__(self, spout: Spout, around: Around) -> None:
        self._spout = spout
        self._around = around
        self.open = spout.open  # type: ignore[method-assign]
        self.activate = spout.activate  # type: ignore[method-assign]
        self.deactivate = spout.deactivate  # type: ignore[method-assign]
        self.is_exhausted = spout.is_exhausted  # type: ignore[method-assign]
        self.close = spout.close  # type: ignore[method-assign]

    def next_tuple(self) -> None:
        if self._around.may_emit_root():
            self._spout.next_tuple()

    def ack(self, message_id: Root) -> None:
        self._around.ledger.root_acked(self._around.life, message_id)
        self._spout.ack(message_id.message_id)

    def fail(self, message_id: Root) -> None:
        self._around.ledger.root_failed(self._around.life, message_id)
        self._spout.fail(message_id.message_id)


class _Receiving:
    """Takes the token off a tuple that arrives."""

    def __init__(self, around: Around) -> None:
        self._around = around
        self._task = 0

    def take(self, tuple: Tuple) -> None:
        self._around.life.acked = None  # another turn begins
        if tuple.source.component != SYSTEM:
            token = tuple.values[-1]
            tuple.values = tuple.values[:-1]
            tuple.source = self._around.source_of(tuple.source)
            self._around.ledger.received(self._around.life, tuple, token, self._task)
        self._around.step("in a bolt")
        if tuple.source.component != SYSTEM and self._around.failure("a bolt"):
            raise FailedException("a simulated failure")


class _WatchedRichBolt(RichBolt, _Receiving):
    """A rich bolt that the ledger sees."""

    def __init__(self, bolt: RichBolt, around: Around) -> None:
        _Receiving.__init__(self, around)
        self._bolt = bolt
        self.cleanup = bolt.cleanup  # type: ignore[method-assign]

    def prepare(self, config: Mapping[str, Any], context: Any, collector: Any) -> None:
        self._task = context.this_task_id
        self._bolt.prepare(config, context, collector)

    def execute(self, tuple: Tuple) -> None:
        self.take(tuple)
        self._bolt.execute(tuple)


class _WatchedBasicBolt(BasicBolt, _Receiving):
    """A basic bolt that the ledger sees."""

    def __init__(self, bolt: BasicBolt, around: Around) -> None:
        _Receiving.__init__(self, around)
        self._bolt = bolt
        self.cleanup = bolt.cleanup  # type: ignore[method-assign]

    def prepare(self, config: Mapping[str, Any], context: Any) -> None:
        self._task = context.this_task_id
        self._bolt.prepare(config, context)

    def execute(self, tuple: Tuple, collector: Any) -> None:
        self.take(tuple)
        self._bolt.execute(tuple, collector)
        if self._around.failure("a bolt that has emitted"):
            raise FailedException("a simulated failure")
