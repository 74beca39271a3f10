"""The world of one schedule of a plain topology: the moves of the schedule, and what must hold at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import ClassVar

import attrs
import cloudpickle

from txtopo.api.data.tuples import TupleSource
from txtopo.config import Config
from txtopo.errors import TopologyError
from txtopo.plain.frames import decode
from txtopo.plain.worker import TIMERS_SECS, Worker
from txtopo.settings.setting import TopologyKind
from txtopo.testing.checkers import Violation, require
from txtopo.testing.simulation.fabric import STEP_SECS, Fabric, Process
from txtopo.testing.simulation.plain.ledger import Account, Ledger
from txtopo.testing.simulation.plain.watching import Fault, Surroundings, WatchedProcess, with_tokens
from txtopo.testing.simulation.schedule import Kinds, Log, Simulated
from txtopo.testing.simulation.sources import Outside, check_sources
from txtopo.topology.plans.assignment import assign
from txtopo.topology.plans.plain_plan import PlainPlan
from txtopo.topology.topology import PlainTopology
from txtopo.workers.broken_links import LINK_SECS
from txtopo.workers.events import StopAsked

ROOTS = 12
"""Roots that the spouts of a schedule emit; many short schedules find more than a few long ones."""
TIMEOUT_SECS = 4
"""The message timeout of a schedule, in simulated time, whatever the topology's is."""
STEPS_MIN = 20
STEPS_MAX = 200
"""Steps in which faults strike."""
STEPS_WITHOUT_FAULTS = 4_000
ROOTS_WITHOUT_FAULTS = 200
"""Roots of the schedule without faults. It is long, because a bolt may be wrong only now and then, and runs once."""
TIMEOUTS_MAX = 20
"""Message timeouts within which bolts must have settled the inputs that they hold, if they ever do."""
QUIET_TIMEOUTS = 3
"""Message timeouts without a message to an acker, after which ackers must have forgotten everything."""
TREE_BYTES_MAX = 200
"""Memory of a tree in an acker: its numbers as objects, without the bits of generations."""
WORKERS_MAX = 4
MAY_BE_LEFT = ("trees in ackers", "queued tuples")
"""What may be left when a run ends: an acker keeps a message that comes after its root was settled as a tree; and ticks
are queued."""

RATES = {
    Fault.KILLS: 0.01,
    Fault.ERRORS: 0.004,
    Fault.PAUSES: 0.008,
    Fault.LINKS: 0.008,
    Fault.LOSSES: 0.02,
    Fault.DOUBLES: 0.02,
    Fault.FAILURES: 0.03,
    Fault.CLOCKJUMPS: 0.01,
}
"""The middle rate of each kind, where it can strike; a schedule draws its own around it."""

MOVING = (Fault.KILLS, Fault.PAUSES, Fault.LINKS, Fault.CLOCKJUMPS)
"""The kinds that strike between two moves; the others strike where a process asks."""


@attrs.frozen(slots=False)
class PlainSubject(Simulated):
    """A simulated plain topology, whose spouts emit up to ``roots`` roots in a schedule.

    The schedules set its message timeout, and draw its pending roots and workers.
    """

    topology: PlainTopology
    config: Config = attrs.field(factory=Config)
    roots: int = ROOTS
    plan: PlainPlan = attrs.field(init=False, repr=False)
    prototypes: dict[str, bytes] = attrs.field(init=False, repr=False)
    warnings: list[str] = attrs.field(factory=list, init=False, repr=False)
    kinds: ClassVar[Kinds] = tuple(Fault)
    _sources: dict[tuple[str, int], TupleSource] = attrs.field(factory=dict, init=False, repr=False)

    @plan.default
    def _plan(self) -> PlainPlan:
        return with_tokens(self.topology.plan.limited(self.config.of_kind(TopologyKind.PLAIN)))

    @prototypes.default
    def _frozen_components(self) -> dict[str, bytes]:
        return {component.id: cloudpickle.dumps(component.component) for component in self.plan.components}

    @cached_property
    def components(self) -> dict[int, str]:
        """The component of each task."""
        return {task: component.id for component in self.plan.components for task in component.tasks}

    @cached_property
    def spout_tasks(self) -> frozenset[int]:
        """The tasks of spouts."""
        return frozenset(task for spout in self.plan.spouts for task in spout.tasks)

    def world(self, seed: int, kinds: Kinds, only: frozenset[int] | None = None, log: Log | None = None) -> PlainWorld:
        """Return a schedule; see :class:`PlainWorld`."""
        return PlainWorld(self, seed, kinds, only, log)

    def source_of(self, source: TupleSource) -> TupleSource:
        """Return a tuple's source as components know it: without the field for tokens."""
        key = (source.stream, source.task)
        found = self._sources.get(key)
        if found is None:
            fields = source.fields.subset(source.fields.names[:-1])
            found = self._sources[key] = attrs.evolve(source, fields=fields)
        return found


def make_plain_subject(
    topology: PlainTopology, config: Config, roots: int = ROOTS, log: Log | None = None
) -> PlainSubject:
    """Run a topology once without faults, and return it.

    Raises:
        ConfigError: a spout reads from a broker.
        TopologyError: its spouts emit nothing, so there is nothing to simulate.
        Violation: a bolt acks, fails or anchors its inputs wrongly.
        Exception: the topology fails without a fault.
    """
    check_sources(topology.plan)
    subject = PlainSubject(topology, config, roots)
    world = subject.world(0, (), log=log)
    world.run()
    if not world.ledger.tuples:
        raise TopologyError(
            f"the spouts of {topology.id!r} emit nothing in a simulated run, so there is nothing to check; spouts that "
            "read from the outside need an input, or one that stands in for them"
        )
    if world.assignment.is_acking:
        for bolt, count in world.unsettled.items():
            subject.warnings.append(
                f"{bolt} had {count} unsettled inputs when their roots had timed out without faults; that "
                "is right for a join or a window that waits for more, and wrong if nothing more has to come"
            )
    return subject


class PlainWorld(Surroundings):
    """One schedule of a plain topology; see :meth:`Simulated.world` for the arguments."""

    def __init__(
        self,
        subject: PlainSubject,
        seed: int,
        kinds: Sequence[Fault] = tuple(Fault),
        only: frozenset[int] | None = None,
        log: Log | None = None,
    ) -> None:
        super().__init__(seed, only, log)
        self.subject = subject
        self.plan = subject.plan
        self.prototypes = subject.prototypes
        self._is_faultless = not kinds
        self._roots_max = max(subject.roots, ROOTS_WITHOUT_FAULTS) if self._is_faultless else subject.roots
        self.config = Config(
            {
                **subject.config.given,
                "topology.message.timeout.secs": TIMEOUT_SECS,
                "topology.max.spout.pending": self.random.choice([1, 2, 4, 8]),
            }
        ).of_kind(TopologyKind.PLAIN)
        workers = self.random.randint(2, WORKERS_MAX)
        self.assignment = assign(self.plan, workers, self.config.acker_executors)
        self.ledger = Ledger(
            self.clock,
            TIMEOUT_SECS if self.config.enable_message_timeouts else None,
            self.assignment.is_acking,
            subject.components,
            None if log is None else self.log,
        )
        self.unsettled = Counter[str]()
        """By bolt, how many inputs it has not settled at the end, though their roots have timed out."""
        self.spout_tasks = subject.spout_tasks
        self.outside = Outside(self.clock)
        drawn = self.draw_rates(kinds, RATES)
        self._moving = [kind for kind in MOVING if kind in drawn]
        self._has_lost = False
        """Whether a frame was lost or came twice: then a root may stay pending until its timeout."""
        self._is_asked_to_stop = False
        self._may_end_early = self.random.random() < 0.5  # noqa: PLR2004
        """Whether workers report that nothing happens any more, so that the driver ends the run once all is done."""
        self._watched: dict[int, WatchedProcess] = {}
        """By generation."""
        self._workers: dict[int, Worker] = {}
        """By generation."""
        self._fabric = Fabric(
            workers,
            self.random,
            self._make_body,
            log=self.log if self.is_logged else None,
            arrive=self._receive,
            on_stop=self._check_stopped,
        )
        self.ledger.dead = self._fabric.dead

    def run(self) -> None:
        """Make moves while faults strike, and then run until nothing is left to do; see :meth:`Schedule.run`."""
        try:
            self._run()
        except Exception:
            self._judge()
            raise

    def _run(self) -> None:
        self._fabric.begin()
        steps = STEPS_WITHOUT_FAULTS if self._is_faultless else self.random.randrange(STEPS_MIN, STEPS_MAX)
        for _ in range(steps):
            if self._fabric.is_over:
                break
            self._fabric.now += STEP_SECS
            if self._moving:
                self._draw_fault()
            self._fabric.step()
            self._judge()
        self._end_faults()
        if not self._fabric.is_over:
            self._come_to_an_end()

    def _judge(self) -> None:
        if self.ledger.violation is not None:
            raise self.ledger.violation from None

    def dissolve(self) -> None:
        """Drop all references; see :meth:`Schedule.dissolve`."""
        for process in self._fabric.by_generation.values():
            vars(process).clear()
        vars(self._fabric).clear()
        vars(self).clear()

    def clock(self) -> float:
        """Return the time, in seconds."""
        return self._fabric.now

    def now(self) -> str:
        """Return the time."""
        return f"{self._fabric.now:9.3f} s"

    # -- what processes ask and tell

    def may_emit(self) -> bool:
        """Whether spouts may still emit roots; none do once the faults have stopped."""
        return self.has_faults and self.ledger.emitted < self._roots_max

    def call_ends(self) -> bool:
        """Draw whether a slow call ends now."""
        return not self.has_faults or self.random.random() < 0.3  # noqa: PLR2004 - some passes later

    def source_of(self, source: TupleSource) -> TupleSource:
        """Return a tuple's source without the field for tokens."""
        return self.subject.source_of(source)

    # -- what the fabric asks

    def _make_body(self, process: Process) -> Worker:
        self._watched[process.generation] = WatchedProcess(self, process)
        worker = self._workers[process.generation] = self._watched[process.generation].make_worker()
        return worker

    def _check_stopped(self, process: Process) -> None:
        """Unless a stop was requested, check that all roots of a worker that is told to stop are settled."""
        left = self._workers[process.generation].left()
        left = {name: count for name, count in left.items() if count and name not in MAY_BE_LEFT}
        if left and not self._is_asked_to_stop:
            raise Violation(f"the run has ended by itself while worker {process.number} has {left}")

    # -- faults

    def _draw_fault(self) -> None:
        if not self._fabric.processes:
            return
        process = self.random.choice(self._fabric.processes)
        for kind in self._moving:
            if not self.strikes(kind, "worker", process.number):
                continue
            match kind:
                case Fault.KILLS:
                    self._fabric.kill(process)
                case Fault.PAUSES:
                    self._fabric.pause(process)
                case Fault.LINKS:
                    self._fabric.break_link(process)
                case _:
                    self._fabric.let_pass(self.random.choice([TIMERS_SECS, 1, TIMEOUT_SECS / 2, TIMEOUT_SECS]))
            return

    def _receive(self, process: Process, sender: int, frame: bytes) -> None:
        """Let a frame arrive once, twice or never."""
        where = ("a frame of generation", sender, "to", process.generation)
        if self.strikes(Fault.LOSSES, *where):
            self._has_lost = True
            return
        if self.is_logged:
            self.log(f"a frame of generation {sender} comes to {process.generation}: {len(frame)} bytes")
        process.receive(sender, frame)
        if self.strikes(Fault.DOUBLES, *where):
            self._has_lost = True
            # One copy may be acked before the other, so the ledger judges such roots by nothing that is open.
            for columns in decode(frame).tuples:
                for values in columns.values:
                    self.ledger.doubled(values[-1])
            process.receive(sender, frame)

    # -- the end

    def _end_faults(self) -> None:
        self.has_faults = False
        self._fabric.end_faults()
        self.log("faults end")

    def _come_to_an_end(self) -> None:
        """Run until nothing is left to do, check that nothing is left in maps and queues, and stop."""
        if self._fabric.cut:
            if not self._rest():
                return
            self._fabric.let_pass(2 * LINK_SECS)  # then one end of each broken link has been replaced
        for secs in (0.0, TIMEOUT_SECS / 4):  # by the second time, a tick has come to bolts that settle inputs on ticks
            self._fabric.let_pass(secs)
            if not self._rest():
                return
            self._check_at_rest()
        self._check_trees()
        self._let_timeouts_pass()
        self._check_nothing_left()
        self.unsettled = self.ledger.unsettled_by(self._accounts())
        self._is_asked_to_stop = True
        self._fabric.handle(StopAsked(wait_secs=0))
        require(not self._rest(), "a run that is asked to stop ends")

    def _check_at_rest(self) -> None:
        self.ledger.check_forgotten(self._accounts())
        if not self._has_lost:
            self.ledger.check_at_rest(self._accounts())

    def _let_timeouts_pass(self) -> None:
        """Let timeouts pass until nothing is left, or until what is left is a violation."""
        quiet, heard = 0, self._acker_messages()
        for _ in range(TIMEOUTS_MAX):
            if quiet == QUIET_TIMEOUTS or not self._left():
                return
            self._let_timeout_pass()
            before, heard = heard, self._acker_messages()
            quiet = quiet + 1 if heard == before else 0

    def _acker_messages(self) -> int:
        return sum(self._workers[number].acker_messages() for number in self._living())

    def _let_timeout_pass(self) -> None:
        for secs in (TIMEOUT_SECS / 2, TIMEOUT_SECS / 2 + TIMERS_SECS):  # in between, bolts act on their ticks
            self._fabric.let_pass(secs)
            self._rest()
        for account in self._accounts():
            self.ledger.check_in_time(account)

    def _check_trees(self) -> None:
        """Check that ackers hold as much for a large tree as for a small one."""
        bound = TREE_BYTES_MAX + len(self._workers)
        for generation in self._living():
            fits = self._workers[generation].tree_bytes_max() <= bound
            require(fits, f"a tree takes {bound} bytes at most in an acker")

    def _check_nothing_left(self) -> None:
        """Check that all maps and queues are empty; without timeouts, roots may wait for ever."""
        if self.ledger.timeout_secs is not None:
            for worker, left in self._left().items():
                raise Violation(f"at the end, worker {worker} still has {left}")

    def _left(self) -> dict[int, dict[str, int]]:
        """Return what is left in each worker's maps and queues, without the empty ones."""
        left = {self._workers[number].number: self._workers[number].left() for number in self._living()}
        full = {number: {name: size for name, size in sizes.items() if size} for number, sizes in left.items()}
        return {number: sizes for number, sizes in full.items() if sizes}

    def _rest(self) -> bool:
        goes_on = self._fabric.rest(may_end=self._may_end_early)
        self._judge()
        return goes_on

    def _living(self) -> Iterator[int]:
        """Yield the generations that live and were welcomed."""
        return (process.generation for process in self._fabric.processes if process.body is not None)

    def _accounts(self) -> list[Account]:
        return [self._watched[generation].account for generation in self._living()]
