"""Every interleaving of two coordinators that run the commit protocol: their steps, crashes, stops and wake-ups.

The coordinators are production code: :func:`recover`, :class:`GroupCommitter`, :class:`CoordinatorState`. The store is a
MemoryStore, the tables are the simulator's, which refuse a write as Delta does: a version that was not looked at is
taken, and a look at a newer marker ends the writer.

Each coordinator is a thread that waits before each of its durable steps. A *schedule* is a sequence of moves: start the
second coordinator, let one make its next step, or kill one. The search visits every state that any schedule reaches,
once, by depth first. After each end a third coordinator runs alone, and finishes what is left.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import attrs

from spouts import MemoryTransactionalSpout
from state.memory import MemoryState
from state.stores.memory import MemoryPlace, MemoryStore
from tests.bolts import Take
from txtopo import Config, Fields, ICommitter, TransactionalTopologyBuilder
from txtopo.api.components.planned import Planned
from txtopo.api.state import OpenedState
from txtopo.api.values import TransactionalValue
from txtopo.attempts import TransactionAttempt
from txtopo.errors import LostLead, TxtopoError
from txtopo.failpoints import ProcessDeath, armed
from txtopo.testing.checkers import Version
from txtopo.testing.simulation.tables.state import SimulatedState
from txtopo.testing.simulation.tables.table import SimulatedTable
from txtopo.transactional.commit.groups import GroupCommitter
from txtopo.transactional.commit.phases import GroupOutcome
from txtopo.transactional.core.actions import AssignedAttempt, Commit
from txtopo.transactional.core.events import Committed, TransactionMetadata
from txtopo.transactional.recovery.coordinator_state import CoordinatorState
from txtopo.transactional.recovery.recover import recover
from txtopo.transactional.tasks.factory import TaskFactory, prototypes_of

TABLES = ("one", "two")
TOPOLOGY = "explored"
CRASHES_MAX = 2

DECLARED = MemoryState(Fields("name"), Fields("history"))
_KEY = "history"


@attrs.frozen
class Result:
    """What the processing phase of an attempt left: nothing."""

    fingerprints: Mapping[str, Any] = attrs.field(factory=dict)

    def load(self) -> Sequence[Any]:
        return ()


class _OneThread:
    """The threads of a coordinator that never waits: one, which makes a group's steps one after another."""

    def now_secs(self) -> float:
        return 0.0

    def sleep(self, duration_secs: float) -> None:
        pass

    def commit_phases(self) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def together(self, steps: Sequence[Callable[[], None]]) -> None:
        for step in steps:
            step()


class Nothing(Take, ICommitter):
    """The topology's only bolt; its commit phase is made up in :meth:`World._run_phases`."""

    def finish_batch(self):
        pass


class BrokenPromise(AssertionError):
    """A schedule has ended wrongly."""


class Process:
    """A coordinator, as a thread that makes one durable step at a time."""

    def __init__(self, run: Callable[[], None], observe: Callable[[], int]) -> None:
        self.steps = 0
        self.seen = 0
        """A hash of what it saw while it recovered: all that its later steps depend on."""
        self.is_over = False
        self.error: BaseException | None = None
        self._observe = observe
        self._is_recovered = False
        self._is_dead = False
        self._go, self._stopped = _closed(), _closed()
        self._thread = threading.Thread(target=self._main, args=(run,), daemon=True)
        self._thread.start()
        self._stopped.acquire()

    def step(self) -> None:
        """Let it go on until its next durable step."""
        self._go.release()
        self._stopped.acquire()

    def kill(self) -> None:
        """Let it die where it waits."""
        self._is_dead = True
        self.step()
        self._thread.join()

    def reach(self, name: str) -> None:
        """Wait before a step; called in the process' thread."""
        if self._is_dead:
            raise ProcessDeath
        if name.endswith(".after"):
            self._is_recovered = self._is_recovered or name == "recovery.confirm.after"
            return
        self._wait()
        self.steps += 1
        if not self._is_recovered:
            self.seen = hash((self.seen, self._observe()))

    def _wait(self) -> None:
        self._stopped.release()
        self._go.acquire()
        if self._is_dead:
            raise ProcessDeath

    def _main(self, run: Callable[[], None]) -> None:
        try:
            self._wait()
            run()
        except BaseException as error:  # noqa: BLE001 - the schedule judges it
            self.error = error
        self.is_over = True
        self._stopped.release()


def _closed() -> threading.Lock:
    """Return a lock that is held: one thread waits for it, and another one lets it go on. Semaphores are slower."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class World:
    """What outlives the coordinators, and the coordinators."""

    def __init__(self, factory: TaskFactory, groups: int) -> None:
        self._factory = factory
        self._groups = groups
        self.place = MemoryPlace()
        self.tables = {name: SimulatedTable(name, self._check_version) for name in TABLES}
        self.processes: list[Process] = []
        self.crashes = 0
        self.committed = 0

    def start(self) -> None:
        """Start a coordinator; the store takes the lead from the one before, as if that had lost its connection."""
        self.processes.append(Process(self._coordinate, self._hash))

    def reach(self, name: str) -> None:
        """Pass a failpoint on to the process whose thread reaches it."""
        thread = threading.current_thread()
        for process in self.processes:
            if process._thread is thread:
                process.reach(name)

    def key(self) -> tuple[Any, ...]:
        """Identify the state: durable values, and where each process is and what it knows."""
        of_processes = tuple(None if process.is_over else (process.steps, process.seen) for process in self.processes)
        return self._hash(), of_processes, self.crashes

    def moves(self) -> list[str]:
        """Return the moves that can be made."""
        live = [str(at) for at, process in enumerate(self.processes) if not process.is_over]
        moves = [f"step {at}" for at in live]
        if self.crashes < CRASHES_MAX:
            moves += [f"kill {at}" for at in live]
        return [*moves, "start"] if len(self.processes) < 2 else moves

    def make(self, move: str) -> None:
        """Make a move."""
        what, _, at = move.partition(" ")
        match what:
            case "start":
                self.start()
            case "step":
                self.processes[int(at)].step()
            case "kill":
                self.crashes += 1
                self.processes[int(at)].kill()
        for process in self.processes:
            if process.error is not None and not isinstance(process.error, (ProcessDeath, LostLead)):
                raise BrokenPromise(f"a coordinator ended with {process.error!r}") from process.error

        shown = min(len(self._history(table.newest)) for table in self.tables.values())
        committed = self._committed()
        if not self.committed <= committed <= shown:
            raise BrokenPromise(f"{committed} are committed after {self.committed}, and the tables show {shown}")
        self.committed = committed

    def _committed(self) -> int:
        return CoordinatorState(MemoryStore(self.place), None, TOPOLOGY).committed().txid

    def finish(self) -> None:
        """Run a coordinator alone to its end, and check what it leaves."""
        self.start()
        last = self.processes[-1]
        while not last.is_over:
            self.make(f"step {len(self.processes) - 1}")
        if last.error is not None:
            raise BrokenPromise(f"the last coordinator ended with {last.error!r}")
        one, two = (self._history(table.newest) for table in self.tables.values())
        if one != two or [txid for txid, _ in one] != list(range(1, self._groups + 1)):
            raise BrokenPromise(f"the tables ended with {one} and {two}")
        if self._committed() != self._groups:
            raise BrokenPromise(f"the coordinator state ended at {self._committed()}")

    def close(self) -> None:
        """End all threads."""
        for process in self.processes:
            if not process.is_over:
                process.kill()

    def _coordinate(self) -> None:
        self.place.forget_holder(TOPOLOGY)
        states = {name: SimulatedState(DECLARED, table) for name, table in self.tables.items()}
        lead = MemoryStore(self.place).take_lead(TOPOLOGY, "test")
        coordinator_state = CoordinatorState(MemoryStore(self.place), lead, TOPOLOGY)
        recovered = recover(TOPOLOGY, states, coordinator_state, contextlib.ExitStack())
        committer = GroupCommitter(
            self._factory,
            recovered.states,
            coordinator_state,
            recovered.committed,
            threads=_OneThread(),
            journal=None,
            run_phases=self._run_phases,
        )
        begun = {each.txid for each in recovered.begun}
        for txid in range(recovered.committed.txid + 1, self._groups + 1):
            if txid not in begun:
                coordinator_state.save_metadata([TransactionMetadata(txid, txid, Planned(txid))])
            attempt = TransactionAttempt(txid, lead.epoch)
            group = Commit(txid, (AssignedAttempt(attempt, txid, Planned(txid)),))
            events = committer.commit(group, {attempt: Result()}, None)
            if not isinstance(events[0], Committed):
                raise events[0].error
        coordinator_state.flush()

    def _run_phases(
        self, _factory: Any, states: Mapping[str, OpenedState], group: Sequence[AssignedAttempt], *_: Any
    ) -> GroupOutcome:
        """Append the attempt to the history in each table: another coordinator's attempt would show."""
        attempt = group[0].attempt
        writes = {}
        for name, state in states.items():
            (stored,) = state.multi_get([_KEY])
            history = (*(stored.value if stored is not None else ()), (attempt.txid, attempt.attempt))
            writes[name] = {_KEY: TransactionalValue(attempt.txid, history)}
        return GroupOutcome((attempt,), writes, fingerprints={attempt: {}})

    def _check_version(self, name: str, before: Version, version: Version) -> None:
        """What a table has once shown, it shows for ever; and no other table shows another attempt's write."""
        old, new = self._history(before), self._history(version)
        if new[: len(old)] != old:
            raise BrokenPromise(f"table {name!r} showed {old}, and then {new}")
        for table in self.tables.values():
            other = self._history(table.newest)
            length = min(len(other), len(new))
            if other[:length] != new[:length]:
                raise BrokenPromise(f"table {name!r} shows {new}, and table {table.name!r} {other}")

    @staticmethod
    def _history(version: Version) -> tuple[tuple[int, int], ...]:
        stored = version.rows.get(_KEY)
        return () if stored is None else stored.value

    def _hash(self) -> int:
        tables = ((t.newest.number, t.newest.epoch, self._history(t.newest)) for t in self.tables.values())
        # The incarnation is drawn, so it differs from one schedule to the next.
        values = sorted(item for item in self.place.values.items() if not item[0].endswith("/incarnation"))
        return hash((tuple(values), self.place.epochs.get(TOPOLOGY), *tables))


@contextlib.contextmanager
def _world(factory: TaskFactory, groups: int) -> Iterator[World]:
    world = World(factory, groups)
    with armed(world.reach):
        try:
            world.start()
            yield world
        finally:
            world.close()


def explore(groups: int) -> int:
    """Visit every state; return their number.

    Raises:
        BrokenPromise: a schedule broke a promise; a note names its moves.
    """
    spout = MemoryTransactionalSpout({0: [["a"]]}, Fields("word"), 1)
    builder = TransactionalTopologyBuilder(TOPOLOGY, "spout", spout, 1)
    builder.set_committer_bolt("nothing", Nothing()).global_grouping("spout")
    for name in TABLES:
        builder.set_state(name, SimulatedState(DECLARED, SimulatedTable(name, lambda *_: None)))
    plan = builder.build().plan
    factory = TaskFactory(plan, Config(), prototypes_of(plan))
    seen: set[tuple[Any, ...]] = set()
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        schedule = waiting.pop()
        try:
            with _world(factory, groups) as world:
                for move in schedule:
                    world.make(move)
                # Straight on through states that are new; their other moves wait.
                while (key := world.key()) not in seen:
                    seen.add(key)
                    moves = world.moves()
                    if not moves:
                        world.finish()
                        break
                    waiting += [(*schedule, move) for move in moves[1:]]
                    schedule = (*schedule, moves[0])
                    world.make(moves[0])
        except (BrokenPromise, TxtopoError) as error:
            error.add_note(f"moves: {', '.join(schedule)}")
            raise
    factory.close()
    return len(seen)
