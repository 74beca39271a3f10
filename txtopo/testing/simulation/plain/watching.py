"""Watched spouts and bolts: the ledger sees every emit, ack and failure, and the schedule makes them fail.

A token travels with the values of each tuple, in an additional field that components never see.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import attrs

from txtopo.api.bolt import BasicBolt, RichBolt
from txtopo.api.collector import OutputCollector
from txtopo.api.fields import Fields
from txtopo.api.groupings import CustomStreamGrouping
from txtopo.api.optional import call_if_there
from txtopo.api.spout import Spout
from txtopo.api.tuples import DEFAULT_STREAM, Tuple, Tuples
from txtopo.errors import AnchorError, FailedException
from txtopo.plain.tasks.collectors import BoltCollector, SpoutCollector
from txtopo.plain.tasks.offload import Offloading
from txtopo.plain.tasks.task import Observer
from txtopo.plain.trees.tuples import SETTLED
from txtopo.testing.simulation.plain.ledger import Root
from txtopo.topology.plain_plan import SYSTEM, PlainComponent, PlainKind, PlainPlan

if TYPE_CHECKING:
    from txtopo.testing.simulation.plain.process import Process

FIELD = "__simulated"
"""The field of the tokens."""


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
    """Hides the tokens from a user's grouping."""

    def __init__(self, custom: CustomStreamGrouping) -> None:
        self._custom = custom

    def prepare(self, context: Any, stream: str, target_tasks: Sequence[int]) -> None:
        call_if_there(self._custom, "prepare", context, stream, target_tasks)

    def choose_tasks(self, source_task: int, values: Sequence[Any]) -> Sequence[int]:
        return self._custom.choose_tasks(source_task, values[:-1])


def watched(component: PlainComponent, made: Any, process: Process) -> Any:
    """Return a component's object, wrapped so that the ledger sees what it does."""
    return (_WatchedSpout if component.kind is PlainKind.SPOUT else _WatchedBolt)(made, process)


class CollectorObserver(Observer):
    """Watches the collectors of a worker's tasks."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def watch(self, task: int, collector: BoltCollector | SpoutCollector) -> None:
        """Replace the functions of a collector by watched ones."""
        if isinstance(collector, SpoutCollector):
            _watch_spout(collector, self._process)
        else:
            _watch_bolt(task, collector, self._process)


class SimulatedOffloading(Offloading):
    """Slow calls of components, which end some time later with a result or an error.

    Calls of spouts read, and are made when they end. Calls of bolts are not made, because they write to the outside.
    """

    def __init__(self, process: Process, spout_tasks: Collection[int]) -> None:
        super().__init__()
        self._process = process
        self._spout_tasks = spout_tasks
        self._calls: list[tuple[Callable[[], Any], Callable[[Future[Any]], None]]] = []

    def submit(self, task: int, call: Callable[[], Any], on_done: Callable[[Future[Any]], None]) -> None:
        """Queue a call."""
        self.under_way += 1
        self._calls.append((call if task in self._spout_tasks else _write_nothing, on_done))

    def run_done(self) -> bool:
        """End some calls, and hand over their results."""
        has_run = False
        while self._calls and self._process.world.call_ends():
            call, on_done = self._calls.pop(0)
            self.under_way -= 1
            done: Future[Any] = Future()
            if self._process.fails("a slow call"):
                done.set_exception(OSError("the simulated call failed"))
            else:
                try:
                    done.set_result(call())
                except Exception as error:  # noqa: BLE001 - the result of the user's call, as on a real thread
                    done.set_exception(error)
            has_run = True
            self._process.life.acked = None  # another turn begins
            on_done(done)
        return has_run


def _write_nothing() -> None:
    pass


def _with_token(values: Sequence[Any], token: int) -> Any:
    return values if isinstance(values, (str, bytes)) else (*values, token)


def _watch_spout(collector: SpoutCollector, process: Process) -> None:
    emit, emit_direct, ledger = collector.emit, collector.emit_direct, process.ledger

    def watch(values: Sequence[Any], message_id: Any, send: Callable[[Any, Root | None], list[int]]) -> list[int]:
        token = ledger.token()
        root = None if message_id is None else ledger.begin(message_id)
        tasks = send(_with_token(values, token), root)
        if root is not None:
            ledger.sent_root(process.life, root, token, tasks, process.incarnations_of(tasks))
        process.step("after a spout has emitted")
        return tasks

    def watched_emit(values: Sequence[Any], stream: str = DEFAULT_STREAM, message_id: Any = None) -> list[int]:
        return watch(values, message_id, lambda sent, root: emit(sent, stream, root))

    def watched_emit_direct(
        task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM, message_id: Any = None
    ) -> None:
        watch(values, message_id, lambda sent, root: emit_direct(task, sent, stream, root) or [task])

    collector.emit, collector.emit_direct = watched_emit, watched_emit_direct


def _watch_bolt(this_task: int, collector: BoltCollector, process: Process) -> None:  # noqa: C901 - a closure a method
    emit, emit_direct, ledger = collector.emit, collector.emit_direct, process.ledger
    ack, fail, reset_timeout = collector.ack, collector.fail, collector.reset_timeout
    life = process.life

    def watch(values: Sequence[Any], anchors: Any, send: Callable[[Any], list[int]]) -> list[int]:
        token = ledger.token()
        try:
            tasks = send(_with_token(values, token))
        except AnchorError:
            ledger.anchored_late(life, this_task, values, _listed(anchors))
            raise
        if anchors is not None:
            ledger.sent(life, _listed(anchors), token, tasks, process.incarnations_of(tasks))
        if life.acked is not None:
            ledger.emitted_after_ack(life, this_task, values, _listed(anchors))
        process.step("after a bolt has emitted")
        return tasks

    def watched_emit(values: Sequence[Any], anchors: Any = None, stream: str = DEFAULT_STREAM) -> list[int]:
        return watch(values, anchors, lambda sent: emit(sent, anchors, stream))

    def watched_emit_direct(
        task: int, values: Sequence[Any], anchors: Any = None, stream: str = DEFAULT_STREAM
    ) -> None:
        watch(values, anchors, lambda sent: emit_direct(task, sent, anchors, stream) or [task])

    def watched_ack(tuple: Tuple) -> None:
        note_settled(tuple, "acked")  # before the ack, which marks the tuple as settled
        ack(tuple)
        ledger.tuple_acked(life, tuple)
        process.step("after a bolt has acked")

    def watched_fail(tuple: Tuple) -> None:
        note_settled(tuple, "failed")
        fail(tuple)
        ledger.tuple_failed(life, tuple)

    def note_settled(tuple: Tuple, what: str) -> None:
        if tuple.roots is SETTLED:  # type: ignore[attr-defined] # of a TreeTuple
            ledger.settled_again(life, this_task, tuple, what)

    def watched_reset_timeout(tuple: Tuple) -> None:
        reset_timeout(tuple)
        ledger.renewed(life, tuple)

    collector.emit, collector.emit_direct = watched_emit, watched_emit_direct
    collector.ack, collector.fail, collector.reset_timeout = watched_ack, watched_fail, watched_reset_timeout
    # Many at once are emitted and acked one by one, so that a death may come between any two of them.
    collector.emit_batch = functools.partial(OutputCollector.emit_batch, collector)
    collector.ack_batch = functools.partial(OutputCollector.ack_batch, collector)


def _listed(anchors: Any) -> Sequence[Any]:
    return () if anchors is None else [anchors] if isinstance(anchors, Tuple) else anchors


class _WatchedSpout(Spout):
    """A watched spout; methods that are not defined here are the user's own."""

    def __init__(self, spout: Spout, process: Process) -> None:
        self._spout = spout
        self._process = process
        self.open = spout.open  # type: ignore[method-assign]
        self.activate = spout.activate  # type: ignore[method-assign]
        self.deactivate = spout.deactivate  # type: ignore[method-assign]
        self.is_exhausted = spout.is_exhausted  # type: ignore[method-assign]
        self.close = spout.close  # type: ignore[method-assign]

    def next_tuple(self) -> None:
        if self._process.world.may_emit():
            self._spout.next_tuple()

    def ack(self, message_id: Root) -> None:
        # The root is the message id inside the worker; the user's spout receives its own one.
        self._process.ledger.root_acked(self._process.life, message_id)
        self._spout.ack(message_id.message_id)

    def fail(self, message_id: Root) -> None:
        self._process.ledger.root_failed(self._process.life, message_id)
        self._spout.fail(message_id.message_id)


class _WatchedBolt(RichBolt):
    """A watched rich or basic bolt; ``collector`` is a rich one's at ``prepare``, a basic one's at ``execute``."""

    def __init__(self, bolt: RichBolt | BasicBolt, process: Process) -> None:
        self._bolt: Any = bolt
        self._process = process
        self._source_of = process.world.subject.source_of
        self._task = 0
        self.cleanup = bolt.cleanup  # type: ignore[method-assign]

    def prepare(self, config: Mapping[str, Any], context: Any, *collector: Any) -> None:
        self._task = context.this_task_id
        self._bolt.prepare(config, context, *collector)

    def execute_batch(self, tuples: Tuples) -> None:
        is_tick = self._receive(tuples)
        if not is_tick and self._process.fails("a bolt"):
            raise FailedException("a simulated failure")
        self._bolt.execute_batch(Tuples(list(tuples)))  # without the tokens among the values

    def _receive(self, tuples: Sequence[Tuple]) -> bool:
        """Begin a turn, and note who received what; return whether the tuples are ticks."""
        process = self._process
        process.life.acked = None  # another turn begins
        is_tick = tuples[0].source.component == SYSTEM
        if not is_tick:
            for each in tuples:
                token = each.values[-1]
                each.values = each.values[:-1]
                each.source = self._source_of(each.source)
                process.ledger.received(process.life, each, token, self._task)
        process.step("in a bolt")
        return is_tick

    def execute(self, tuple: Tuple, *collector: Any) -> None:
        process = self._process
        is_tick = self._receive([tuple])
        if not is_tick and process.fails("a bolt"):
            raise FailedException("a simulated failure")
        self._bolt.execute(tuple, *collector)
        # Only a basic bolt may fail here: a rich one may have acked its input already.
        if collector and process.fails("a bolt that has emitted"):
            raise FailedException("a simulated failure")
