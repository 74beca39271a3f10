"""Watched spouts and bolts: the ledger sees every emit, ack and failure, and the schedule makes them fail.

A token travels with the values of each tuple, in an additional field that components never see.
"""

from __future__ import annotations

import enum
import random
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence, Set as AbstractSet
from concurrent.futures import Future
from typing import Any

import attrs
import cloudpickle

from txtopo.api.components.bolt import BasicBolt, RichBolt
from txtopo.api.components.collector import OutputCollector, SpoutOutputCollector
from txtopo.api.components.groupings import CustomStreamGrouping
from txtopo.api.components.optional import call_if_there
from txtopo.api.components.spout import Spout
from txtopo.api.data.fields import Fields
from txtopo.api.data.tuples import DEFAULT_STREAM, Tuple, Tuples, TupleSource
from txtopo.config import Config
from txtopo.errors import AnchorError, FailedException
from txtopo.plain.tasks.offload import Offloading
from txtopo.plain.tasks.task import Observer
from txtopo.plain.trees.tuples import SETTLED
from txtopo.plain.worker import Worker
from txtopo.testing.simulation.fabric import BrokenError, Process
from txtopo.testing.simulation.plain.ledger import Account, Ledger, Root
from txtopo.testing.simulation.schedule import Schedule
from txtopo.testing.simulation.sources import Outside
from txtopo.topology.plans.assignment import Assignment
from txtopo.topology.plans.plain_plan import SYSTEM, PlainComponent, PlainKind, PlainPlan

FIELD = "__simulated"
"""The field of the tokens."""


class Fault(enum.Enum):
    """A kind of fault, with its name on the command line."""

    KILLS = "kills"
    ERRORS = "errors"
    PAUSES = "pauses"
    LINKS = "links"
    LOSSES = "losses"
    DOUBLES = "doubles"
    FAILURES = "failures"
    CLOCKJUMPS = "clockjumps"


class Surroundings(Schedule):
    """A schedule as its processes see it: what they ask of the world around them, and tell it."""

    plan: PlainPlan
    config: Config
    assignment: Assignment
    prototypes: Mapping[str, bytes]
    spout_tasks: AbstractSet[int]
    outside: Outside
    ledger: Ledger

    @abstractmethod
    def clock(self) -> float:
        """Return the time, in seconds."""

    @abstractmethod
    def may_emit(self) -> bool:
        """Whether spouts may still emit roots."""

    @abstractmethod
    def call_ends(self) -> bool:
        """Draw whether a slow call ends now."""

    @abstractmethod
    def source_of(self, source: TupleSource) -> TupleSource:
        """Return a tuple's source as components know it: without the field for tokens."""


class WatchedProcess:
    """What the watched components of one process of a worker ask."""

    def __init__(self, world: Surroundings, process: Process) -> None:
        self.world = world
        self.ledger = world.ledger
        self.account = Account(process.generation)
        self._process = process

    def generations_of(self, tasks: Sequence[int]) -> list[int]:
        """Return the generations of tasks' workers, as this process knows them: a frame goes to these."""
        worker_of = self.world.assignment.worker_of
        here, directory = self._process.number, self._process.directory
        of_task = [worker_of[task] for task in tasks]
        return [self.account.generation if number == here else directory[number].generation for number in of_task]

    def step(self, where: str) -> None:
        """Draw whether the component raises an exception here."""
        if self.world.strikes(Fault.ERRORS, where, "of worker", self._process.number):
            self.account.is_broken = True
            raise BrokenError("a simulated error")

    def fails(self, where: str) -> bool:
        """Draw whether a bolt fails a tuple here, or a slow call fails."""
        return self.world.strikes(Fault.FAILURES, where, "of worker", self._process.number)

    def make_worker(self) -> Worker:
        """Make the worker of the process."""
        world, process = self.world, self._process

        def make_object(component: str) -> object:
            made = cloudpickle.loads(world.prototypes[component])
            world.outside.stand_in(made)
            return watched(world.plan.by_id[component], made, self)

        return Worker(
            world.plan,
            world.assignment,
            process.number,
            world.config,
            {**process.directory.generations, process.number: process.generation},
            make_object=make_object,
            send=process.send,
            clock=world.clock,
            rng=random.Random(world.random.getrandbits(64)),  # noqa: S311 - a schedule is repeatable
            observer=CollectorObserver(self),
            offloading=SimulatedOffloading(self, world.spout_tasks),
        )


def with_tokens(plan: PlainPlan) -> PlainPlan:
    """Return a plan whose streams have a field for tokens."""
    components = [
        attrs.evolve(component, streams={name: fields + Fields(FIELD) for name, fields in component.streams.items()})
        for component in plan.components
    ]
    edges = [
        attrs.evolve(edge, grouping=attrs.evolve(edge.grouping, custom=_Blind(edge.grouping.custom)))
        if edge.grouping.custom is not None
        else edge
        for edge in plan.edges
    ]
    return attrs.evolve(plan, components=tuple(components), edges=tuple(edges))


class _Blind(CustomStreamGrouping):
    def __init__(self, custom: CustomStreamGrouping) -> None:
        self._custom = custom

    def prepare(self, context: Any, stream: str, target_tasks: Sequence[int]) -> None:
        call_if_there(self._custom, "prepare", context, stream, target_tasks)

    def choose_tasks(self, source_task: int, values: Sequence[Any]) -> Sequence[int]:
        return self._custom.choose_tasks(source_task, values[:-1])


def watched(component: PlainComponent, made: Any, process: WatchedProcess) -> Any:
    """Return a component's object, wrapped so that the ledger sees what it does."""
    return (_WatchedSpout if component.kind is PlainKind.SPOUT else _WatchedBolt)(made, process)


class CollectorObserver(Observer):
    """Watches the collectors of a worker's tasks."""

    def __init__(self, process: WatchedProcess) -> None:
        self._process = process

    def watched_bolt(self, task: int, collector: OutputCollector) -> OutputCollector:
        """Return a collector that tells the ledger what a bolt emits and settles."""
        return _WatchedBoltCollector(task, collector, self._process)

    def watched_spout(self, collector: SpoutOutputCollector) -> SpoutOutputCollector:
        """Return a collector that tells the ledger what a spout emits."""
        return _WatchedSpoutCollector(collector, self._process)


class SimulatedOffloading(Offloading):
    """Slow calls of components, which end some time later with a result or an error.

    Calls of spouts read, and are made when they end. Calls of bolts are not made, because they write to the outside.
    """

    def __init__(self, process: WatchedProcess, spout_tasks: Collection[int]) -> None:
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
            self._process.account.acked = None  # another turn begins
            on_done(done)
        return has_run


def _write_nothing() -> None:
    pass


def _with_token(values: Sequence[Any], token: int) -> Any:
    return values if isinstance(values, (str, bytes)) else (*values, token)


class _WatchedSpoutCollector(SpoutOutputCollector):
    def __init__(self, watched: SpoutOutputCollector, process: WatchedProcess) -> None:
        self._watched = watched
        self._process = process

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM, message_id: Any = None) -> list[int]:
        """Emit a tuple with its token."""
        return self._emit(values, message_id, lambda sent, root: self._watched.emit(sent, stream, root))

    def emit_direct(
        self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM, message_id: Any = None
    ) -> None:
        """Emit a tuple with its token to one task."""

        def send(sent: Any, root: Root | None) -> list[int]:
            self._watched.emit_direct(task, sent, stream, root)
            return [task]

        self._emit(values, message_id, send)

    def pending_count(self) -> int:
        """Return how many roots are pending."""
        return self._watched.pending_count()

    def report_error(self, error: BaseException) -> None:
        """Report an error."""
        self._watched.report_error(error)

    def _emit(self, values: Sequence[Any], message_id: Any, send: Callable[[Any, Root | None], list[int]]) -> list[int]:
        process = self._process
        ledger = process.ledger
        token = ledger.token()
        root = None if message_id is None else ledger.begin(message_id)
        tasks = send(_with_token(values, token), root)
        if root is not None:
            ledger.sent_root(process.account, root, token, tasks, process.generations_of(tasks))
        process.step("after a spout has emitted")
        return tasks


class _WatchedBoltCollector(OutputCollector):
    """A watched collector of a bolt; many at once go one by one, so that a death may come between any two."""

    def __init__(self, task: int, watched: OutputCollector, process: WatchedProcess) -> None:
        self._task = task
        self._watched = watched
        self._process = process
        self._account = process.account

    def emit(
        self, values: Sequence[Any], anchors: Tuple | Sequence[Tuple] | None = None, stream: str = DEFAULT_STREAM
    ) -> list[int]:
        """Emit a tuple with its token."""
        return self._emit(values, anchors, lambda sent: self._watched.emit(sent, anchors, stream))

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        anchors: Tuple | Sequence[Tuple] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit a tuple with its token to one task."""

        def send(sent: Any) -> list[int]:
            self._watched.emit_direct(task, sent, anchors, stream)
            return [task]

        self._emit(values, anchors, send)

    def ack(self, tuple: Tuple) -> None:
        """Ack a tuple."""
        self._record_settled(tuple, "acked")  # before the ack, which marks the tuple as settled
        self._watched.ack(tuple)
        self._process.ledger.tuple_acked(self._account, tuple)
        self._process.step("after a bolt has acked")

    def fail(self, tuple: Tuple) -> None:
        """Fail a tuple."""
        self._record_settled(tuple, "failed")
        self._watched.fail(tuple)
        self._process.ledger.tuple_failed(self._account, tuple)

    def reset_timeout(self, tuple: Tuple) -> None:
        """Begin the timeouts of a tuple's roots again."""
        self._watched.reset_timeout(tuple)
        self._process.ledger.renewed(self._account, tuple)

    def report_error(self, error: BaseException) -> None:
        """Report an error."""
        self._watched.report_error(error)

    def _emit(self, values: Sequence[Any], anchors: Any, send: Callable[[Any], list[int]]) -> list[int]:
        process, account, ledger = self._process, self._account, self._process.ledger
        token = ledger.token()
        try:
            tasks = send(_with_token(values, token))
        except AnchorError:
            ledger.anchored_late(account, self._task, values, _listed(anchors))
            raise
        if anchors is not None:
            ledger.sent(account, _listed(anchors), token, tasks, process.generations_of(tasks))
        if account.acked is not None:
            ledger.emitted_after_ack(account, self._task, values, _listed(anchors))
        process.step("after a bolt has emitted")
        return tasks

    def _record_settled(self, tuple: Tuple, what: str) -> None:
        if tuple.roots is SETTLED:  # type: ignore[attr-defined] # of a TreeTuple
            self._process.ledger.settled_again(self._account, self._task, tuple, what)


def _listed(anchors: Any) -> Sequence[Any]:
    return () if anchors is None else [anchors] if isinstance(anchors, Tuple) else anchors


class _WatchedSpout(Spout):
    """A watched spout; methods that are not defined here are the user's own."""

    def __init__(self, spout: Spout, process: WatchedProcess) -> None:
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
        self._process.ledger.root_acked(self._process.account, message_id)
        self._spout.ack(message_id.message_id)

    def fail(self, message_id: Root) -> None:
        self._process.ledger.root_failed(self._process.account, message_id)
        self._spout.fail(message_id.message_id)


class _WatchedBolt(RichBolt):
    """A watched rich or basic bolt; ``collector`` is a rich one's at ``prepare``, a basic one's at ``execute``."""

    def __init__(self, bolt: RichBolt | BasicBolt, process: WatchedProcess) -> None:
        self._bolt: Any = bolt
        self._process = process
        self._source_of = process.world.source_of
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
        process.account.acked = None  # another turn begins
        is_tick = tuples[0].source.component == SYSTEM
        if not is_tick:
            for each in tuples:
                token = each.values[-1]
                each.values = each.values[:-1]
                each.source = self._source_of(each.source)
                process.ledger.received(process.account, each, token, self._task)
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
