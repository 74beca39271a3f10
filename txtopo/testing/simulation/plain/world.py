"""The world of one schedule of a plain topology: the network between its workers, and the moves of the schedule."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, assert_never

import attrs
import cloudpickle

from txtopo.api.data.tuples import TupleSource
from txtopo.config import Config, TopologyKind
from txtopo.errors import TopologyError
from txtopo.plain.frames import decode
from txtopo.plain.worker import LOOK_SECS
from txtopo.testing.checkers import Violation, require
from txtopo.testing.simulation.plain.driver import Driver
from txtopo.testing.simulation.plain.ledger import Ledger
from txtopo.testing.simulation.plain.process import Fault, Process, Surroundings
from txtopo.testing.simulation.plain.watching import with_tokens
from txtopo.testing.simulation.schedule import Kinds, Log, Simulated
from txtopo.testing.simulation.sources import Outside, check_sources
from txtopo.topology.plans.assignment import assign
from txtopo.topology.plans.plain_plan import PlainPlan
from txtopo.topology.topology import PlainTopology
from txtopo.workers.events import StopAsked, Ticked
from txtopo.workers.peer_directory import Arrival
from txtopo.workers.supervisor import LINK_SECS, SILENCE_SECS, RunPhase

ROOTS = 12
"""Roots that the spouts of a schedule emit; many short schedules find more than a few long ones."""
TIMEOUT_SECS = 4
"""The message timeout of a schedule, in simulated time, whatever the topology's is."""
STEP_SECS = 0.01
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
ROUNDS_MAX = 2_000
"""Rounds, each of every worker, within which nothing is left to do once the faults stop."""
TREE_BYTES_MAX = 200
"""Memory of a tree in an acker: its numbers as objects, without the bits of incarnations."""
WORKERS_MAX = 4
HEARS = (0.02, 0.05, 0.15, 0.3)
"""How often a worker reads the driver's messages; drawn for each schedule. With a low one, workers know different peers
for long."""
MAY_BE_LEFT = ("trees in ackers", "queued tuples")
"""What may be left when a run ends: an acker keeps a message that comes after its root was settled as a tree; and ticks
are queued."""
RETRY = 0.3
"""How probable it is that Spark restarts the task of a dead worker without telling the driver."""


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
        return {each.id: cloudpickle.dumps(each.component) for each in self.plan.components}

    @cached_property
    def components(self) -> dict[int, str]:
        """The component of each task."""
        return {task: each.id for each in self.plan.components for task in each.tasks}

    @cached_property
    def spout_tasks(self) -> frozenset[int]:
        """The tasks of spouts."""
        return frozenset(task for each in self.plan.spouts for task in each.tasks)

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
        for bolt, count in world.held.items():
            subject.warnings.append(
                f"{bolt} still held {count} inputs when their roots had timed out in the schedule without faults; that "
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
        self._workers = self.random.randint(2, WORKERS_MAX)
        self.assignment = assign(self.plan, self._workers, self.config.acker_executors)
        self._now = 0.0
        self.ledger = Ledger(
            self.clock,
            TIMEOUT_SECS if self.config.enable_message_timeouts else None,
            self.assignment.is_acking,
            subject.components,
            None if log is None else self.log,
        )
        self.held = Counter[str]()
        """By bolt, how many inputs it holds at the end, though their roots have timed out."""
        self.spout_tasks = subject.spout_tasks
        self.outside = Outside(self.clock)
        drawn = self.draw_rates(kinds, RATES)
        self._moving = [kind for kind in MOVING if kind in drawn]
        self._has_lost = False
        """Whether a frame was lost or came twice: then a root may stay pending until its timeout."""
        self._driver = Driver(self, self._workers)
        self._is_asked_to_stop = False
        self._may_end_early = self.random.random() < 0.5  # noqa: PLR2004
        """Whether workers report that nothing happens any more, so that the driver ends the run once all is done."""
        self._hears = self.random.choice(HEARS)
        self.processes = []
        self._incarnations: dict[int, Process] = {}
        self._links: dict[tuple[int, int], deque[bytes]] = {}
        """By the incarnations of sender and receiver, the frames in transit."""
        self._cut: set[tuple[int, int]] = set()
        """The links that are broken: what is sent on them is lost."""
        self._unnoticed: list[tuple[int, tuple[int, int]]] = []
        """The ends of broken links, each with its link, that are about to notice it."""

    def run(self) -> None:
        """Make moves while faults strike, and then run until nothing is left to do; see :meth:`Schedule.run`."""
        self._driver.begin()
        steps = STEPS_WITHOUT_FAULTS if self._is_faultless else self.random.randrange(STEPS_MIN, STEPS_MAX)
        for _ in range(steps):
            if self._driver.is_over:
                break
            self._step()
        self._end_faults()
        if not self._driver.is_over:
            self._come_to_an_end()

    def dissolve(self) -> None:
        """Drop all references; see :meth:`Schedule.dissolve`."""
        for process in self.processes:
            vars(process).clear()
        vars(self).clear()

    def clock(self) -> float:
        """Return the time, in seconds."""
        return self._now

    def now(self) -> str:
        """Return the time."""
        return f"{self._now:9.3f} s"

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

    def welcomed(self, process: Process) -> None:
        """Record a process that knows its incarnation."""
        self._incarnations[process.life.incarnation] = process
        self.log(f"worker {process.number} begins as incarnation {process.life.incarnation}")

    def send(self, sender: int, receiver: int, frame: bytes) -> None:
        """Put a frame in transit, or lose it with its link."""
        if (sender, receiver) in self._cut:
            return
        link = self._links.get((sender, receiver))
        if link is None:
            link = self._links[sender, receiver] = deque()
        link.append(frame)

    def stopped(self, process: Process) -> None:
        """End a worker that was told to stop; unless a stop was requested, check that all its roots are settled."""
        left = {} if process.worker is None else process.worker.left()
        left = {name: count for name, count in left.items() if count and name not in MAY_BE_LEFT}
        if left and not self._is_asked_to_stop:
            raise Violation(f"the run has ended by itself while worker {process.number} has {left}")
        self.end_process(process, None)

    def end_process(self, process: Process, error: Exception | None) -> None:
        """End a process, cleanly or by an error; Spark reports the end of its job or starts the job again."""
        if not process.is_alive:
            return
        process.is_alive = False
        self.processes.remove(process)
        again = error is not None and self.has_faults and self.random.random() < RETRY
        self._driver.process_ended(process, error, again=again)

    # -- faults

    def _draw_fault(self) -> None:
        if not self.processes:
            return
        process = self.random.choice(self.processes)
        for kind in self._moving:
            if not self.strikes(kind, "worker", process.number):
                continue
            match kind:
                case Fault.KILLS:
                    self._kill(process)
                case Fault.PAUSES:
                    process.wakes_at = self._now + self.random.choice([0.5, 2, SILENCE_SECS + 2, 4 * SILENCE_SECS])
                case Fault.LINKS:
                    self._break_link(process)
                case _:
                    self._let_pass(self.random.choice([LOOK_SECS, 1, TIMEOUT_SECS / 2, TIMEOUT_SECS]))
            return

    def _kill(self, process: Process) -> None:
        """Kill a process; of the frames that it has sent on a link, the first ones arrive."""
        for (sender, _), frames in self._links.items():
            if sender == process.life.incarnation:
                # From the end: a broken connection loses the last frames, never one in the middle.
                for _ in range(self.random.randint(0, len(frames)) if self.random.random() < 0.5 else 0):  # noqa: PLR2004
                    frames.pop()
        self.end_process(process, RuntimeError("killed"))

    def _break_link(self, sender: Process) -> None:
        """Break the link to another process; of the frames on it, the first ones arrive."""
        receivers = [each for each in self.processes if each is not sender and each.life.incarnation >= 0]
        if sender.life.incarnation < 0 or not receivers:
            return
        link = sender.life.incarnation, self.random.choice(receivers).life.incarnation
        self._cut.add(link)
        frames = self._links.get(link, deque())
        for _ in range(self.random.randint(0, len(frames))):
            frames.pop()
        self._unnoticed.append((link[1], link))  # who reads always notices, who sends perhaps
        if self.random.random() < 0.5:  # noqa: PLR2004
            self._unnoticed.append((link[0], link))

    def _notice(self) -> bool:
        """Let one end of a broken link notice it; return whether one has."""
        for each in self._unnoticed:
            end, (sender, receiver) = each
            process = self._incarnations[end]
            if process.is_alive and process.wakes_at is not None:
                continue
            if process.is_alive and end == receiver and process.directory.judge(sender, receiver) is Arrival.EARLY:
                continue  # not read yet
            self._unnoticed.remove(each)
            if end == receiver:
                self._links.pop((sender, receiver), None)
            if process.is_alive:
                process.lose_link(sender if end == receiver else receiver)
            return True
        return False

    # -- moves

    def _step(self) -> None:
        self._now += STEP_SECS
        if self._moving:
            self._draw_fault()
        if self.random.random() < 0.3 or not self.processes:  # noqa: PLR2004 - here and below: how often each is drawn
            self._driver.run()
        if self.processes:
            process = self.random.choice(self.processes)
            if self._is_awake(process):
                self._move(process)

    def _is_awake(self, process: Process) -> bool:
        """Whether a process is not paused; while one is, time passes."""
        if process.wakes_at is None:
            return True
        if self._now < process.wakes_at:
            if self.random.random() < 0.2:  # noqa: PLR2004
                self._let_pass(0.5)
            return False
        process.wakes_at = None
        self.log(f"worker {process.number}, incarnation {process.life.incarnation}, goes on")
        return True

    def _move(self, process: Process) -> None:
        """Let a process run a pass, deliver a frame, read the driver's message or send a heartbeat."""
        chance = self.random.random()
        if chance < 0.5:  # noqa: PLR2004
            process.run_pass()
        if chance > 0.3 and self._links:  # noqa: PLR2004
            self._deliver(self.random.choice(list(self._links)))
        if (chance < self._hears or process.worker is None) and process.is_alive:
            process.obey()
        if chance > 0.95 and process.is_alive:  # noqa: PLR2004
            process.beat()
        if self._unnoticed and chance < 0.1:  # noqa: PLR2004
            self._notice()

    def _deliver(self, link: tuple[int, int]) -> bool:
        """Deliver the next frame of a link, or drop frames that the receiver finds stale; return whether it did."""
        sender, receiver = link
        process = self._incarnations.get(receiver)
        if receiver in self.ledger.dead and (process is None or not process.is_alive):
            del self._links[link]
            return False
        if process is None or not process.is_alive or process.wakes_at is not None or not self._links[link]:
            return False
        match process.directory.judge(sender, receiver):
            case Arrival.READ:
                self._receive(process, sender, self._links[link].popleft())
            case Arrival.STALE:
                del self._links[link]
            case Arrival.EARLY:
                return False
            case verdict:
                assert_never(verdict)
        return True

    def _receive(self, process: Process, sender: int, frame: bytes) -> None:
        """Let a frame arrive once, twice or never."""
        where = ("a frame of incarnation", sender, "to", process.life.incarnation)
        if self.strikes(Fault.LOSSES, *where):
            self._has_lost = True
            return
        if self.is_logged:
            self.log(f"a frame of incarnation {sender} comes to {process.life.incarnation}: {len(frame)} bytes")
        process.receive(sender, frame)
        if self.strikes(Fault.DOUBLES, *where):
            self._has_lost = True
            # One copy may be acked before the other, so the ledger judges such roots by nothing that is open.
            for columns in decode(frame).tuples:
                for values in columns.values:
                    self.ledger.doubled(values[-1])
            process.receive(sender, frame)

    def _let_pass(self, secs: float) -> None:
        """Advance the clock; every process that is not paused sends heartbeats meanwhile."""
        while secs > 0:
            # In steps below the limit of silence: only a paused process may seem dead.
            step = min(secs, SILENCE_SECS / 2)
            secs -= step
            self._now += step
            for process in self.processes:
                if process.wakes_at is None or process.wakes_at <= self._now:
                    process.beat()
            self._driver.hear_all()
            self._driver.handle(Ticked())

    # -- the end

    def _end_faults(self) -> None:
        self.has_faults = False
        self.log("faults end")
        for process in self.processes:
            process.wakes_at = None

    def _come_to_an_end(self) -> None:
        """Run until nothing is left to do, check that nothing is left in maps and queues, and stop."""
        if self._cut:
            if not self._rest():
                return
            self._let_pass(2 * LINK_SECS)  # then one end of each broken link has been replaced
        for secs in (0.0, TIMEOUT_SECS / 4):  # by the second time, a tick has come to bolts that settle inputs on ticks
            self._let_pass(secs)
            if not self._rest():
                return
            self._check_at_rest()
        self._check_trees()
        self._let_timeouts_pass()
        self._check_nothing_left()
        self.held = self.ledger.held_by(process.life for process in self.processes)
        self._is_asked_to_stop = True
        self._driver.handle(StopAsked(wait_secs=0))
        require(not self._rest(), "a run that is asked to stop ends")

    def _check_at_rest(self) -> None:
        self.ledger.check_forgotten(process.life for process in self.processes)
        if not self._has_lost:
            self.ledger.check_at_rest([process.life for process in self.processes])

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
        return sum(process.worker.acker_messages() for process in self.processes if process.worker is not None)

    def _let_timeout_pass(self) -> None:
        for secs in (TIMEOUT_SECS / 2, TIMEOUT_SECS / 2 + LOOK_SECS):  # in between, bolts act on their ticks
            self._let_pass(secs)
            self._rest()
        for process in self.processes:
            self.ledger.check_in_time(process.life)

    def _check_trees(self) -> None:
        """Check that ackers hold as much for a large tree as for a small one."""
        bound = TREE_BYTES_MAX + len(self._incarnations)
        for process in self.processes:
            worker = process.worker
            require(
                worker is None or worker.tree_bytes_max() <= bound, f"a tree takes {bound} bytes at most in an acker"
            )

    def _check_nothing_left(self) -> None:
        """Check that all maps and queues are empty; without timeouts, roots may wait for ever."""
        if self.ledger.timeout_secs is not None:
            for worker, left in self._left().items():
                raise Violation(f"at the end, worker {worker} still has {left}")

    def _left(self) -> dict[int, dict[str, int]]:
        """Return what is left in each worker's maps and queues, without the empty ones."""
        left = {p.number: p.worker.left() for p in self.processes if p.worker is not None}
        return {number: some for number, each in left.items() if (some := {k: v for k, v in each.items() if v})}

    def _rest(self) -> bool:
        """Deliver everything, and run until no process does anything; return whether the run goes on."""
        for _ in range(ROUNDS_MAX):
            is_working = self._notice()
            while self._driver.run():
                is_working = True
            for process in list(self.processes):
                while process.is_alive and process.obey():
                    is_working = True
                is_working |= process.is_alive and process.run_pass()
            for link in list(self._links):
                while link in self._links and self._deliver(link):
                    is_working = True
            is_ending = self._may_end_early or self._driver.phase is not RunPhase.WORKING
            if not is_working and not (is_ending and self._settle_supervisor()):
                return not self._driver.is_over
        raise Violation(f"all comes to rest within {ROUNDS_MAX} rounds once the faults stop")

    def _settle_supervisor(self) -> bool:
        """Let workers report twice, since two equal reports show that one is idle; return whether the driver acted."""
        before = self._driver.phase
        for _ in range(2):
            for process in self.processes:
                process.beat()
            while self._driver.run():
                pass
        return self._driver.phase is not before or any(process.from_driver for process in self.processes)
