"""The world of one schedule: the moves that it makes with coordinators."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from typing import Any

import attrs

from state.memory import MemoryState
from txtopo.api.data.fields import Fields
from txtopo.api.state import State
from txtopo.api.values import Key
from txtopo.assembly.environment import Environment
from txtopo.config import Config
from txtopo.errors import (
    DivergenceError,
    FailedException,
    PoisonTransaction,
    StopError,
    TxtopoError,
)
from txtopo.failpoints import armed
from txtopo.journal.entries import JournalHeader
from txtopo.testing.checkers import AttemptChecker, CoreChecker, Oracle, TableChecker, Version, require
from txtopo.testing.simulation.checks import Checks
from txtopo.testing.simulation.commands import Commands
from txtopo.testing.simulation.disasters import Disasters, Scene
from txtopo.testing.simulation.durable import Durable
from txtopo.testing.simulation.faults import FORK, OF_WORKERS, UPKEEP, CrashError, Fault
from txtopo.testing.simulation.lives import Lives
from txtopo.testing.simulation.process import (
    ObservedCoordinator,
    Process,
    SimulatedJournal,
    SimulatedRunner,
)
from txtopo.testing.simulation.schedule import Kinds, Log, Simulated
from txtopo.testing.simulation.tables.disk import Disk
from txtopo.testing.simulation.tables.table import SimulatedTable
from txtopo.testing.simulation.threads import Clock
from txtopo.topology.plans.plan import Plan
from txtopo.topology.topology import TransactionalTopology
from txtopo.transactional.core.actions import AssignedAttempt, StopReason
from txtopo.transactional.core.coordinator import Coordinator
from txtopo.transactional.core.limits import Limits
from txtopo.transactional.core.spout_policy import policy_of
from txtopo.transactional.jobs.job_runner import JobRunner
from txtopo.transactional.tasks.factory import TaskFactory, prototypes_of

Invariant = Callable[[Mapping[str, Mapping[Key, Any]]], None]

MOVES_WITHOUT_FAULTS_MAX = 4_000
"""Moves within which everything must be committed once the faults stop; some dozens for each transaction."""
IDLE_MOVES_MAX = 500
"""Moves, half a minute of simulated time, after which an endless source that gives nothing has no more for now."""
STEPS_MS = (5, 20, 60, 200)
EAGER = 0.1
FORK_MOVES_MAX = 40
"""How many moves others make at most between two steps of a fork."""
PAUSED_REWINDS = 4
"""How much more often the topology goes back while a process is paused, which matters for what that deletes later."""
WAITING = 0.1
"""How probable it is that time passes though something could be done."""


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


class World(Scene):
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
        self._moves = 0
        self._active_move = 0
        """The last move in which an attempt was emitted or a transaction was committed."""
        self._lives = Lives.drawn(self, kinds, 0 if subject.oracle is None else subject.oracle.transactions)
        self._disasters = Disasters(self, self._lives, self._plan)
        self.durable = Durable(self._plan.topology_id, self._table)
        self.processes: list[Process] = []
        self.acting: list[Process] = []
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
        self._plan = attrs.evolve(self._plan, states=states)
        self._topology = TransactionalTopology(self._plan)
        self._commands = Commands(self._plan, self.durable, self._checks, self.random, self.log)

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
        for process in self.processes:
            vars(process).clear()
        vars(self).clear()

    # What processes ask and tell.

    def is_eager(self) -> bool:
        """Draw whether work runs the moment it is submitted, as it may on a thread."""
        return self.random.random() < EAGER

    def lose_job(self, *, is_done: bool) -> None:
        """Lose a job, perhaps, before its work or after it."""
        self._disasters.lose_job(is_done=is_done)

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

    # What faults ask.

    @property
    def can_fork(self) -> bool:
        """Whether a fork may be made: of a topology whose rows are known, at a point."""
        can = self._forks_left > 0 and not self._is_in_fork and self._begins_alike and not self._lives.skip
        return can and not self.durable.is_going_back and bool(self._checks.promised())

    def fork(self, *, is_beside: bool) -> None:
        """Make a fork at a point, and let it live to its end in a world of its own; see :meth:`Scene.fork`."""
        self._forks_left -= 1
        log = self._log_of_fork if self.is_logged else None
        world = World(self._subject, self.random.getrandbits(32), self._kinds, self._only, log)
        world._forks_left = self._forks_left
        is_made, self._is_in_fork = False, is_beside
        with self._acting(Process(self, 0)):
            is_made = self._commands.fork(world._commands)
        self._is_in_fork = False
        if is_made:
            world._live_on(self)

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

    def go_on(self, moves: int, *, paused_too: bool) -> None:
        """Make moves; see :meth:`Scene.go_on`."""
        for _ in range(moves):
            if self._checks.violation is not None or self._is_finished(paused_too=paused_too):
                return
            self._move()

    # Moves.

    def _end_faults(self) -> None:
        self.has_faults = False
        self.log("the faults end")
        self._disasters.end()

    def _move(self) -> None:
        running = [process for process in self.processes if not process.is_over and not process.is_paused]
        if not running:
            self.start()
            return
        process = self.random.choice(running)
        with self._acting(process):
            if self.has_faults:
                self._disasters.strike_between()
            if not process.is_running:  # a fault has killed it
                return
            waits = self.random.random() < WAITING
            if waits or not process.work(self.random.choice, self._disasters.strike_answers):
                self._let_time_pass(process)
            self._look_for_end(process)

    def _stop_dried_up(self) -> None:
        """Request a stop of every process, because an endless source gives nothing more."""
        self.log("the source gives nothing more")
        self.has_dried_up = True
        self._active_move = self._moves
        for process in self.processes:
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

    def start(self) -> None:
        """Start one more process, or let the topology go back instead."""
        process = Process(self, len(self.processes) + 1)
        self.processes.append(process)
        if self._goes_back():
            with self._acting(process):
                paused = self._disasters.paused > 0
                process.rewind(
                    self._plan.topology_id,
                    self.durable.store(),
                    lambda coordinator_state: self._commands.go_back(coordinator_state, beside_paused=paused),
                )
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
        tries = PAUSED_REWINDS if self._disasters.paused else 1
        return can and any(self.strikes(Fault.REWINDS, "before a start") for _ in range(tries))

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
        if failpoint.startswith(FORK) and self._is_in_fork:  # others go on meanwhile
            self.go_on(self.random.randrange(FORK_MOVES_MAX), paused_too=True)
        if self.has_faults:
            self._disasters.strike_at(failpoint)

    # The end.

    def _settled(self) -> None:
        if self.durable.has_committed_input:
            self._active_move = self._moves
        self._checks.settled()

    def _is_finished(self, *, paused_too: bool = True) -> bool:
        for process in self.processes:
            if not process.is_over and (paused_too or not process.is_paused):
                return False
        return bool(self.processes) and self._is_complete()

    def _is_complete(self) -> bool:
        oracle = self._subject.oracle
        if oracle is not None and self._begins_alike:
            return self.durable.committed == oracle.transactions
        return self.has_dried_up or any(
            process.reason in {StopReason.EXHAUSTED, StopReason.UNTIL} for process in self.processes
        )

    def _check_end(self) -> None:
        is_cut_anew = self._plan.is_cut_by_input and not self._repeats and not self._lives.skip
        self._checks.input(self._subject.oracle, is_cut_anew=is_cut_anew)
        if not self.clock.stands_still and self._lives.faults:
            self._keep_up_at_the_end()

    def _keep_up_at_the_end(self) -> None:
        """Let one more coordinator do the upkeep while two periods pass, and check that nothing else is left."""
        process = Process(self, len(self.processes) + 1)
        history = self._lives.histories[0]
        self.has_faults = False
        with self._acting(process):
            process.rewind(
                self._plan.topology_id,
                self.durable.store(),
                lambda coordinator_state: self._commands.keep_up(coordinator_state, process, self.clock, history),
            )
        self._checks.gone(history[1])

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
