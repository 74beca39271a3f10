"""The world of one schedule: the moves that it makes with coordinators, and the faults that strike them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from typing import Any

import attrs

from spouts.opaque_memory import OpaqueMemoryTransactionalSpout
from state.delta.upkeep.schedule import ENTRIES_SECS
from state.memory import MemoryState
from txtopo.api.data.fields import Fields
from txtopo.api.state import State, StateTable
from txtopo.api.values import Key
from txtopo.assembly.environment import Environment
from txtopo.config import Config
from txtopo.errors import (
    DivergenceError,
    FailedException,
    JobFailure,
    PoisonTransaction,
    StateAccessError,
    StopError,
    TxtopoError,
)
from txtopo.failpoints import ProcessDeath, armed
from txtopo.files.places import folder_at
from txtopo.fork.fork import Fork, ForkPoints, ForkSubject, fill
from txtopo.fork.forking import begun_after, state_of
from txtopo.journal.entries import JournalHeader, JournalPart
from txtopo.journal.journal import counting_parts
from txtopo.journal.search import EnteredGroup
from txtopo.testing.checkers import AttemptChecker, CoreChecker, Oracle, TableChecker, Version, require
from txtopo.testing.simulation.checks import Checks
from txtopo.testing.simulation.durable import Durable
from txtopo.testing.simulation.faults import ANSWERING, FORK, MOVING, OF_WORKERS, UPKEEP, CrashError, Fault, is_at
from txtopo.testing.simulation.history import Disk
from txtopo.testing.simulation.lives import TIMEOUT_MS, Lives
from txtopo.testing.simulation.process import (
    ObservedCoordinator,
    Process,
    SimulatedJournal,
    SimulatedRunner,
    Surroundings,
)
from txtopo.testing.simulation.schedule import Kinds, Log, Simulated
from txtopo.testing.simulation.tables import SimulatedStateTable, SimulatedTable
from txtopo.testing.simulation.threads import Clock, Delivery
from txtopo.topology.plans.plan import Plan
from txtopo.topology.topology import TransactionalTopology
from txtopo.transactional.commit.keeping import Keeping
from txtopo.transactional.core.actions import AssignedAttempt, StopReason
from txtopo.transactional.core.coordinator import Coordinator
from txtopo.transactional.core.events import JobEnded, JobLost, Processed
from txtopo.transactional.core.limits import Limits
from txtopo.transactional.core.spout_policy import policy_of
from txtopo.transactional.jobs.job_runner import JobRunner
from txtopo.transactional.recovery.coordinator_state import CoordinatorState
from txtopo.transactional.recovery.divergence import CoordinatorRecord
from txtopo.transactional.recovery.operations.diagnosis import RepairSubject
from txtopo.transactional.recovery.operations.repair import carry_out
from txtopo.transactional.recovery.operations.rewind import Past
from txtopo.transactional.recovery.plans import GoTo, recorded_plan
from txtopo.transactional.recovery.values import copy_of, source_in
from txtopo.transactional.tasks.factory import TaskFactory, prototypes_of

Invariant = Callable[[Mapping[str, Mapping[Key, Any]]], None]

MOVES_WITHOUT_FAULTS_MAX = 4_000
"""Moves within which everything must be committed once the faults stop; some dozens for each transaction."""
IDLE_MOVES_MAX = 500
"""Moves, half a minute of simulated time, after which an endless source that gives nothing has no more for now."""
PERIOD_SECS = 61
"""How often what nobody needs is looked for, and a second."""
UNNAMED_SECS = 25 * 3600
"""After so long files go that no version names."""
STEPS_MS = (5, 20, 60, 200)
EAGER = 0.1
OFFERED = 0.5
"""How probable it is that a rewind goes to a transaction that is still there although nobody has promised it."""
UPKEEP_PAUSES = 10
"""How much more often than elsewhere a process is paused in its upkeep."""
FORK_MOVES_MAX = 40
"""How many moves others make at most between two steps of a fork."""
PAUSED_REWINDS = 4
"""How much more often the topology goes back while a process is paused, which matters for what that deletes later."""
WAITING = 0.1
"""How probable it is that time passes though something could be done."""
PROCESSES_MAX = 40


@attrs.frozen
class Subject(Simulated):
    """A simulated transactional topology, and what is known about it before the first schedule.

    Args:
        topology: its states are replaced by simulated ones.
        until: the last txid to commit; None for all.
        invariant: must raise if the tables do not fit together; see the command ``txtopo simulate``.
        oracle: the result of a run without faults; None in that run itself.
        is_timed: whether the tables depend on the times at which transactions are planned. These times are then the
            same in every schedule, because they could not be compared with the oracle's otherwise.
        dries_up: whether a schedule ends when its source gives nothing more. An endless opaque source needs this: it
            may cut its input into other transactions each time, so no txid is the last one. So does one that begins
            transactions without input when it is quiet.
        is_real_time: whether transactions are processed in real-time mode.
    """

    topology: TransactionalTopology
    until: int | None = None
    invariant: Invariant | None = None
    oracle: Oracle | None = None
    dries_up: bool = False
    is_timed: bool = False
    is_real_time: bool = False
    prototypes: dict[str, bytes] = attrs.field(
        default=attrs.Factory(lambda self: prototypes_of(self.topology.plan), takes_self=True)
    )
    """The pickled components, the same in every schedule."""

    @property
    def kinds(self) -> Kinds:
        """All kinds of fault in its mode."""
        return tuple(fault for fault in Fault if self.is_real_time or fault not in OF_WORKERS)

    def world(self, seed: int, kinds: Kinds, only: frozenset[int] | None = None, log: Log | None = None) -> World:
        """Return a schedule; see :class:`World`."""
        return World(self, seed, kinds, only, log)


class World(Surroundings):
    """One schedule of a transactional topology; see :meth:`Simulated.world` for the arguments."""

    def __init__(
        self,
        subject: Subject,
        seed: int,
        kinds: Sequence[Fault] | None = None,
        only: frozenset[int] | None = None,
        log: Log | None = None,
    ) -> None:
        super().__init__(seed, only, log)
        kinds = subject.kinds if kinds is None else kinds
        self.clock = Clock(stands_still=subject.is_timed)
        self.timeout_ms = TIMEOUT_MS
        self.on_version: Callable[[str, Version], None] | None = None
        """Called with the name and the new version of a table."""
        self.has_failures = False
        """Whether a transaction failed without a fault."""
        self.has_dried_up = False
        """Whether an endless source has given all that it had."""
        self.is_real_time = subject.is_real_time
        self._subject = subject
        self._kinds = kinds
        self._is_in_fork = False
        """Whether a fork is being made, while others may make moves."""
        self._forks_left = 2
        """How many forks may be made of this topology; those of forks have one less."""
        self._may_dry_up = subject.oracle is None or subject.dries_up
        self._plan = subject.topology.plan
        self._repeats = policy_of(self._plan.kinds).repeats
        self._begins_alike = self._repeats and self._plan.is_cut_by_input
        """Whether the same transactions begin in every schedule."""
        self._paused = 0
        self._moves = 0
        self._active_move = 0
        """The last move in which an attempt was emitted or a transaction was committed."""
        self._lives = Lives.drawn(self, kinds, 0 if subject.oracle is None else subject.oracle.transactions)
        self._faults = self._lives.faults
        self._striking: dict[str, list[Fault]] = {}
        """By failpoint, the kinds that can strike there."""
        self._moving = [fault for fault in self._faults if fault in MOVING]
        self._answering = [fault for fault in self._faults if fault in ANSWERING]
        self.durable = Durable(self._plan.topology_id, self._table)
        self._processes: list[Process] = []
        self.acting: list[Process] = []
        """A stack: the last process is acting, inside failpoints of the others, which are paused."""
        # Tables may differ from the oracle's if transactions are given up, or if others begin.
        oracle = subject.oracle if self._begins_alike and not self._lives.skip else None
        self._checks = Checks(
            self._plan,
            self.durable,
            TableChecker(oracle, subject.invariant),
            AttemptChecker(policy_of(self._plan.kinds)),
            self._lives.histories,
            self.clock.wall_secs,
        )
        states = {name: self.durable.state(name, state) for name, state in self._plan.states.items()}
        self._topology = TransactionalTopology(attrs.evolve(self._plan, states=states))

    def run(self) -> None:
        """Make moves until all is committed; see :meth:`Schedule.run`."""
        fault_moves = self._lives.fault_moves(self.random)
        with armed(self._reach):
            while not self._is_finished():
                self._moves += 1
                if self._moves > fault_moves and self.has_faults:
                    self._end_faults()
                require(
                    self._moves < fault_moves + MOVES_WITHOUT_FAULTS_MAX,
                    "once faults stop, everything commits within a bound of moves",
                )
                self._move()
                if self._checks.violation is not None:  # raised here: the code under test may have swallowed it
                    raise self._checks.violation
                if self._may_dry_up and self._moves > self._active_move + IDLE_MOVES_MAX and not self.has_faults:
                    self._stop_dried_up()
        self._check_end()

    def dissolve(self) -> None:
        """Drop all references; see :meth:`Schedule.dissolve`."""
        for process in self._processes:
            vars(process).clear()
        vars(self).clear()

    # What faults do.

    def _strike_at(self, fault: Fault, failpoint: str) -> None:
        """Strike, perhaps, at a failpoint: raise, or let something else happen first."""
        can_strike = {Fault.PAUSES: self.can_pause, Fault.FORKS: self.can_fork}
        if not can_strike.get(fault, True) or not self.strikes(fault, "at", failpoint):
            return
        match fault:
            case Fault.CRASHES:
                self.kill_current()
            case Fault.PAUSES:
                self.pause_current()
            case Fault.FORKS:
                self.fork(is_beside=False)
            case Fault.STOREERRORS:
                raise StopError("the simulator told the store not to answer")
            case Fault.TABLEERRORS:
                raise FailedException("the simulator told the table not to answer")
            case Fault.DEADWORKERS:
                raise ProcessDeath
            case _:
                raise FailedException("the simulator told it to fail")

    def _strike_between(self, fault: Fault) -> None:
        """Strike, perhaps, before the next move."""
        process = self.moving
        can_strike = {
            Fault.LOSTLEADS: self.can_pause,
            Fault.SLOWWORK: bool(process.threads.works),
            Fault.OTHERTUPLES: self.can_switch,
            Fault.AGES: self.can_age,
            Fault.FORKS: self.can_fork,
        }
        if not can_strike.get(fault, True) or not self.strikes(fault, MOVING[fault]):
            return
        match fault:
            case Fault.CRASHES:
                self.kill(process)
            case Fault.LOSTLEADS:
                self.take_lead_away()
            case Fault.CLOCKJUMPS:
                self.clock.now_ms += self.random.randrange(2 * self.timeout_ms)
            case Fault.SLOWWORK:  # the run loop reads a later clock while work waits
                self.clock.now_ms += self.random.randrange(self.timeout_ms)
                process.tick()
            case Fault.STOPREQUESTS:
                process.request_stop()
            case Fault.AGES:
                self.age()
            case Fault.FORKS:
                self.fork(is_beside=True)
            case _:
                self.switch_partition()

    def _answer(self, fault: Fault, delivery: Delivery, job_id: int) -> None:
        """Strike, perhaps, at the answers of a job: change the delivery, or add another one."""
        if not self.strikes(fault, "of job", job_id):
            return
        match fault:
            case Fault.LATEANSWERS:
                delivery.due_ms = self.clock.now_ms + self.random.randrange(3 * self.timeout_ms)
            case Fault.LOSTANSWERS:
                # Some event must end the job: the thread of a real job ends when the job is cancelled.
                delivery.events = (JobLost(job_id, "its answers were lost"),)
                delivery.due_ms = self.clock.now_ms + 2 * self.timeout_ms
            case _:
                events = tuple(event for event in delivery.events if isinstance(event, (Processed, JobEnded)))
                due_ms = self.clock.now_ms + self.random.randrange(2 * self.timeout_ms)
                self.moving.threads.deliveries.append(Delivery(events, None, due_ms))

    @property
    def moving(self) -> Process:
        """The process that is acting."""
        return self.acting[-1]

    @property
    def can_pause(self) -> bool:
        """Whether another process may start beside this one."""
        is_paused = self._paused > 0
        return self.has_faults and not is_paused and len(self._processes) < PROCESSES_MAX

    @property
    def can_switch(self) -> bool:
        """Whether the spout's partitions can be switched."""
        return bool(self._switchable)

    @property
    def _switchable(self) -> list[OpaqueMemoryTransactionalSpout]:
        spouts = (spout.component for spout in self._plan.spouts)
        return [spout for spout in spouts if isinstance(spout, OpaqueMemoryTransactionalSpout)]

    def kill_current(self) -> None:
        """Kill the acting process."""
        self.kill(self.moving)
        raise CrashError

    def kill(self, process: Process) -> None:
        """Kill a process; its lead becomes free, as the system frees an flock."""
        process.die()
        self.durable.free_lead()

    def pause_current(self) -> None:
        """Pause the acting process, let others work for a while, and resume it."""
        process = self.moving
        process.is_paused = True
        self._paused += 1
        # Without its lead a successor can start, and the process is a zombie when it resumes:
        # 1. it has passed a check, such as that of a table's fence; 2. it is paused; 3. a successor takes the lead and
        # writes; 4. it resumes behind the check.
        self.durable.free_lead()
        for _ in range(self.random.randrange(1, 80)):
            if self._is_finished(paused_too=False):
                break
            self._move()
            if self._checks.violation is not None:
                break
        process.is_paused = False
        self._paused -= 1
        if process.is_over:
            raise CrashError

    def take_lead_away(self) -> None:
        """Free the lead behind its holder's back, and let another process take it."""
        self.durable.free_lead()
        self._start()

    def switch_partition(self) -> None:
        """Switch a partition of the source off or on."""
        spout = self.random.choice(self._switchable)
        partition = self.random.choice(list(spout.rows.lengths()))
        spout.set_disabled(partition, self.random.choice((True, False)))

    @property
    def can_age(self) -> bool:
        """Whether tables are the same however much time passes."""
        return not self._subject.is_timed

    def age(self) -> None:
        """Let much time pass."""
        secs = self._lives.age_secs(self.random)
        self.log(f"{secs} s pass")
        self.clock.aged_secs += secs

    def is_eager(self) -> bool:
        """Draw whether work runs the moment it is submitted, as it may on a thread."""
        return self.random.random() < EAGER

    def lose_job(self, *, is_done: bool) -> None:
        """Lose a job, perhaps, before its work or after it."""
        if self.strikes(Fault.LOSTJOBS, "after it was done" if is_done else "before it was done"):
            raise JobFailure("the simulator lost the job")
        if not is_done and self.strikes(Fault.DEADEXECUTORS, "with this job and all that wait"):
            self.moving.threads.lose_jobs()
            raise JobFailure("the simulator killed an executor")

    def emits(self, process: Process, assigned: AssignedAttempt) -> None:
        """Check that the metadata of an attempt is durable before the attempt emits."""
        if assigned.planned.has_input:
            self._active_move = self._moves
        if self.durable.has_epoch(process.epoch):  # a zombie may emit anything: fences refuse its writes
            self._checks.emits(assigned)

    def failed(self, txids: set[int], struck: int) -> None:
        """Check the failed transactions of a job, in which ``struck`` faults have struck."""
        self.has_failures |= bool(txids) and struck == 0
        oracle = self._subject.oracle
        # Only where user code never fails by itself is each failure a fault's.
        if oracle is not None and not oracle.has_failures and self._repeats:
            self._checks.fail_alone(txids, struck)

    def now(self) -> str:
        """Return the time, and the process that acts."""
        return f"{self.clock.now_ms:>7} ms  process {self.acting[-1].number if self.acting else 0}"

    # Forks.

    @property
    def can_fork(self) -> bool:
        """Whether a fork may be made: of a topology whose rows are known, at a point."""
        can = self._forks_left > 0 and not self._is_in_fork and self._begins_alike and not self._lives.skip
        return can and not self.durable.is_going_back and bool(self._checks.promised())

    def fork(self, *, is_beside: bool) -> None:
        """Make a fork at a point, as ``txtopo fork`` does, and let it live to its end in a world of its own.

        Args:
            is_beside: whether others go on while it is made, and may die and go back; else somebody is in an upkeep.
        """
        self._forks_left -= 1
        log = self._log_of_fork if self.is_logged else None
        world = World(self._subject, self.random.getrandbits(32), self._kinds, self._only, log)
        world._forks_left = self._forks_left
        is_made, self._is_in_fork = False, is_beside
        with self._acting(Process(self, 0)):
            is_made = self._make_fork(world)
        self._is_in_fork = False
        if is_made:
            world._live_on(self)

    def _make_fork(self, fork: World) -> bool:
        """Make a fork; return False if it is refused."""
        topology_id, durable = self._plan.topology_id, self.durable
        values = copy_of(durable.store(), topology_id)
        assert values is not None, "nobody writes meanwhile"
        origin = self._repair_subject()
        state = state_of(origin, values)
        parts, committed = durable.journal(), state.committed()
        points = [point.txid for point in self._checks.promised()]
        wanted = self.random.choice(points)
        found = ForkPoints.of(origin, committed.txid, points)
        point, obstacles = found.find(wanted)
        with self._checks.keeping():
            require(
                point is not None and point.txid == wanted, f"each point can be forked at: not {wanted}, {obstacles}"
            )
        assert point is not None, "it was required"
        counting = counting_parts(parts, lambda entry: entry.last <= committed.txid)
        groups = [EnteredGroup(part.header, entry) for part in counting for entry in part.entries]
        begun, is_all = begun_after(self._plan, point, lambda _last, _first: reversed(groups), state)
        source = source_in(values)
        if source and not is_all:
            return False
        self.log(f"forks at {wanted}")
        for name, each in fork.durable.states.items():
            each.origin = durable.tables[name]
        names = {name: name for name in fork.durable.states}
        to = GoTo.beside(point, committed)
        made = Fork(topology_id, f"fork of {point.incarnation}", topology_id, txid=wanted, tables=names, plan=to)
        subject = ForkSubject(made, folder_at("/nowhere"), origin, to, fork.durable.states, begun, source)
        store = fork.durable.store()
        coordinator_state = CoordinatorState(store, store.take_lead(topology_id, "the simulator"), topology_id)
        try:
            fill(subject, coordinator_state, lambda header: fork.durable.begin_journal(header, fork._checks.journal))
        except StateAccessError as error:
            with self._checks.keeping():
                is_kept = wanted in {each.txid for each in self._checks.promised()}
                require(not is_kept, f"a point stays while a fork is made at it: {error}")
            raise FailedException(str(error)) from error
        finally:
            store.close()
        return True

    def _come_to_fork(self) -> None:
        """Let others make moves while a fork is made."""
        for _ in range(self.random.randrange(FORK_MOVES_MAX) if self._is_in_fork else 0):
            if self._checks.violation is not None or self._is_finished():
                return
            self._move()

    def _live_on(self, origin: World) -> None:
        """Live to the end, as a fork; what strikes is counted among what strikes its origin."""
        self.clock.follow(origin.clock)
        self.struck, self._drawn = origin.struck, origin._drawn
        try:
            with origin.keeping():
                self.run()
        finally:
            origin._drawn = self._drawn
        self.dissolve()

    def _log_of_fork(self, text: str) -> None:
        assert self._log is not None, "there is a log"
        self._log(f"fork  {text}")

    # Moves.

    def _end_faults(self) -> None:
        self.has_faults = False
        self.log("the faults end")
        for spout in self._switchable:  # the checks at the end expect the input of every partition
            for partition in spout.rows.lengths():
                spout.set_disabled(partition, False)

    def _move(self) -> None:
        running = [process for process in self._processes if not process.is_over and not process.is_paused]
        if not running:
            self._start()
            return
        process = self.random.choice(running)
        with self._acting(process):
            if self.has_faults:
                for fault in self._moving:
                    self._strike_between(fault)
            if not process.is_running:  # a fault has killed it
                return
            waits = self.random.random() < WAITING
            if waits or not process.work(self.random.choice, self._post):
                self._let_time_pass(process)
            self._look_for_end(process)

    def _stop_dried_up(self) -> None:
        """Request a stop of every process, because an endless source gives nothing more."""
        self.log("the source gives nothing more")
        self.has_dried_up = True
        self._active_move = self._moves
        for process in self._processes:
            if process.is_running:
                with self._acting(process):
                    process.request_stop()
                    self._look_for_end(process)

    def _let_time_pass(self, process: Process) -> None:
        self.clock.now_ms += self.random.choice(STEPS_MS)
        process.tick()

    def _look_for_end(self, process: Process) -> None:
        if process.is_over:
            return
        reason = process.end()
        if reason is not None:
            self.log(f"ends: {reason.value}")

    def _start(self) -> None:
        process = Process(self, len(self._processes) + 1)
        self._processes.append(process)
        if self._goes_back():
            with self._acting(process):
                process.rewind(self._plan.topology_id, self.durable.store(), self._go_back)
            return
        with self._acting(process):
            config = self._lives.config(self.random, is_real_time=self.is_real_time)
            self.log(f"starts with at most {config.max_spout_pending} pending transactions")
            process.begin(self._topology, config, self._environment(process), self._subject.until)
            if self.durable.has_epoch(process.epoch):  # then recovery is over, and nothing may be half-written
                self._settled()
            self._look_for_end(process)

    def _goes_back(self) -> bool:
        """Draw whether the topology goes back, as it must if that was begun."""
        if self.durable.is_going_back:
            return True
        can = self._begins_alike and not self._lives.skip and self.has_faults and bool(self._checks.promised())
        tries = PAUSED_REWINDS if self._paused else 1
        return can and any(self.strikes(Fault.REWINDS, "before a start") for _ in range(tries))

    def _go_back(self, coordinator_state: CoordinatorState) -> None:
        """Go back to a point as ``txtopo rewind`` does, or go on with that."""
        subject = self._repair_subject()
        plan = recorded_plan(coordinator_state)
        if plan is None:
            points = [point.txid for point in self._checks.promised()]
            if not points:  # the last one has aged out meanwhile
                return
            past = Past.of(subject, CoordinatorRecord.of(coordinator_state, 0))
            if self._paused or self.random.random() < OFFERED:
                offered = (point.txid for point in past.standing[1:] if point.txid)
                points = [txid for txid in offered if txid not in points] or points
            # The oldest one is deleted next, perhaps by who is paused.
            wanted = min(points) if self._paused else self.random.choice(points)
            point, reasons = past.nearest(wanted)
            with self._checks.keeping():
                require(point.txid == wanted, f"each point can be gone back to: not {wanted}, {reasons}")
            plan = past.plan(point, 1)
            self.log(f"goes back to {wanted}")
        assert isinstance(plan, GoTo), "nothing else is planned"
        attempts = self._checks.attempts
        known = attempts.metadata
        attempts.metadata = {txid: each for txid, each in known.items() if txid <= plan.txid}
        carry_out(subject, coordinator_state, plan)

    def _repair_subject(self) -> RepairSubject:
        plan, states = self._plan, self._topology.plan.states
        return _Subject(plan.topology_id, plan.kinds, states, folder_at("/nowhere"), {}, durable=self.durable)

    def _environment(self, process: Process) -> Environment:
        @contextlib.contextmanager
        def make_runner(plan: Plan, config: Config, prototypes: dict[str, bytes]) -> Iterator[JobRunner]:
            runner = SimulatedRunner(self, process, lambda: TaskFactory(plan, config, prototypes))
            yield runner
            runner.close()  # not in a `finally`: a process that dies closes nothing

        def make_coordinator(limits: Limits) -> Coordinator:
            checker = CoreChecker(self._checks.attempts, policy_of(self._plan.kinds), limits.timeout_ms)
            return ObservedCoordinator(limits, checker, self.log if self.is_logged else None)

        def make_journal(header: JournalHeader) -> SimulatedJournal:
            process.epoch = header.epoch
            return self.durable.begin_journal(header, self._checks.journal)

        return Environment(
            make_runner=make_runner,
            make_threads=lambda _: process.threads,
            make_coordinator=make_coordinator,
            make_store=self.durable.store,
            make_prototypes=lambda _: self._subject.prototypes,
            make_journal=make_journal,
            make_dead_letters=self._dead_letters,
            runs_ahead=self.runs_ahead,
        )

    def _post(self, delivery: Delivery, job_id: int) -> None:
        for fault in self._answering:
            self._answer(fault, delivery, job_id)

    def keeping(self) -> AbstractContextManager[None]:
        """Record a violation even if the code under test swallows it as an error of user code."""
        return self._checks.keeping()

    @contextlib.contextmanager
    def _acting(self, process: Process) -> Iterator[None]:
        """Put a process on the stack of acting ones, and swallow the errors that may end it."""
        self.acting.append(process)
        try:
            yield
        except CrashError:
            self.log("dies")
        except (StopError, FailedException, PoisonTransaction) as error:
            # No fault may part coordinator state and tables, but who has been paused finds a way back half-way.
            if isinstance(error, DivergenceError) and not self.durable.is_going_back:
                self._checks.violated(error)
            # Not the message, which may name process ids: the log of a seed is the same each time.
            self.log(f"ends: {type(error).__name__}")
            if not process.is_over:
                process.die()
        except TxtopoError as error:
            self._checks.violated(error)
        finally:
            self.acting.pop()

    def _reach(self, failpoint: str) -> None:
        if not self.acting:
            return
        if self.acting[-1].is_over:  # a dead process takes no further step, whatever its `finally` blocks try
            raise CrashError
        if failpoint == "group.commit.after":  # tables and coordinator state are both written
            self._settled()
        if failpoint.startswith(FORK):
            self._come_to_fork()
        self._strike(failpoint)

    def _strike(self, failpoint: str) -> None:
        if self.has_faults:
            striking = self._striking.get(failpoint)
            if striking is None:
                striking = [fault for fault in self._faults if is_at(fault, failpoint)]
                self._striking[failpoint] = striking
            for fault in striking:
                # What is deleted is of no matter until somebody has gone back to it meanwhile.
                for _ in range(UPKEEP_PAUSES if (fault, failpoint) == (Fault.PAUSES, UPKEEP) else 1):
                    self._strike_at(fault, failpoint)

    # The end.

    def _settled(self) -> None:
        if self.durable.has_committed_input:
            self._active_move = self._moves
        self._checks.settled()

    def _is_finished(self, *, paused_too: bool = True) -> bool:
        for process in self._processes:
            if not process.is_over and (paused_too or not process.is_paused):
                return False
        return bool(self._processes) and self._is_complete()

    def _is_complete(self) -> bool:
        oracle = self._subject.oracle
        if oracle is not None and self._begins_alike:
            return self.durable.committed == oracle.transactions
        return self.has_dried_up or any(
            process.reason in {StopReason.EXHAUSTED, StopReason.UNTIL} for process in self._processes
        )

    def _check_end(self) -> None:
        is_cut_anew = self._plan.is_cut_by_input and not self._repeats and not self._lives.skip
        self._checks.input(self._subject.oracle, is_cut_anew=is_cut_anew)
        if self.can_age and self._faults:
            self._keep_up_at_the_end()

    def _keep_up_at_the_end(self) -> None:
        """Let one more coordinator do the upkeep while two periods pass, and check that nothing else is left."""
        process = Process(self, len(self._processes) + 1)
        recent_secs, hours = self._lives.histories[0]
        durable = self.durable

        def keep_up(coordinator_state: CoordinatorState) -> None:
            keeping = Keeping(
                coordinator_state, durable.committed, self.clock.wall_secs, recent_secs=recent_secs, rewind_hours=hours
            )
            states = [
                durable.states[name].open(durable.topology_id, name, table.incarnation, process.epoch)
                for name, table in durable.tables.items()
                if table.incarnation is not None
            ]
            for secs in (0, *[max(recent_secs, ENTRIES_SECS) + PERIOD_SECS] * 2, UNNAMED_SECS):
                self.clock.aged_secs += secs
                keeping.tell(states)
                for state in states:
                    state.maintain()
                while process.threads.works:
                    process.threads.do(process.threads.works[0])

        self.has_faults = False
        with self._acting(process):
            process.rewind(durable.topology_id, durable.store(), keep_up)
        self._checks.gone(hours)

    # Tables.

    def _table(self, name: str) -> SimulatedTable:
        disk = Disk(self.clock.wall_secs, functools.partial(self._reach, UPKEEP), self._checks.past)
        return SimulatedTable(name, self._on_version, disk=disk, make_thread=self._thread)

    def _thread(self) -> Executor:
        return self.moving.threads.beside()

    def _on_version(self, name: str, before: Version, version: Version) -> None:
        if self.is_logged:
            self.log(f"table {name!r}: version {version.number}, txid {version.txid}, epoch {version.epoch}")
        if self.on_version is not None:
            self.on_version(name, version)
        self._checks.written(name, before, version)

    def _dead_letters(self, _path: Any, key: Fields, value: Fields) -> State:
        return self.durable.state("dead-letters", MemoryState(key, value))


@attrs.frozen
class _Subject(RepairSubject):
    """The topology, for who goes back."""

    durable: Durable = attrs.field(kw_only=True)

    def around(self, txids: Iterable[int]) -> list[JournalPart]:
        """Return its journal, which is small."""
        del txids
        return self.durable.journal()

    def tables(self) -> dict[str, StateTable]:
        """Return its tables, which only who goes back looks at."""
        return {name: SimulatedStateTable(self.durable.tables[name], self.topology_id) for name in self.states}
