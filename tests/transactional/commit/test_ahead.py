"""The commit phases of the next group run beside the writes of a group: what they see, and what becomes of them."""

import logging
import operator
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from spouts import MemoryTransactionalSpout
from state import DeltaExpiringRows, DeltaRows, DeltaState, MemoryState, read_table
from state.memory import OpenedMemoryState
from tests.budgets import examples
from tests.topologies import committing, values_in
from tests.waiting import DEADLINE_SECS
from txtopo import BatchBolt, Config, FailedException, Fields, ICommitter, RunReport, Topology
from txtopo.api.components.planned import NEVER
from txtopo.api.data.utc import datetime_at
from txtopo.api.values import StateKind
from txtopo.assembly.threads import ThreadPools
from txtopo.attempts import TransactionAttempt
from txtopo.columnar.progress_probe import ProgressProbe, current_probe
from txtopo.engine.runner import run_with
from txtopo.errors import StalledCommit, StateFailure, StopError
from txtopo.failpoints import armed
from txtopo.testing.inline import inline_environment
from txtopo.testing.simulation.threads import Writes
from txtopo.transactional.commit.ahead import Ahead
from txtopo.transactional.commit.phases import GroupOutcome
from txtopo.transactional.core.actions import AssignedAttempt
from txtopo.transactional.tasks.factory import TaskFactory, prototypes_of

ALONE = Config(group_transactions_max=1)
"""Each transaction is a group."""


class Late(ThreadPools):
    """Threads that make writes once all phases have run that can run before."""

    def write(self, work: Callable[[], None]) -> Future[None]:
        return Writes(work, lambda: False)

    def wait(self, writing: Future[None], secs: float) -> None:
        writing.exception()

    def wait_in_phases(self, writing: Future[None]) -> None:
        writing.exception()


def run(topology: Topology, config: Config = ALONE, threads: type[ThreadPools] | None = ThreadPools) -> RunReport:
    """Run a topology with phases ahead, or without if there are no threads for it."""
    made = attrs.evolve(inline_environment(), runs_ahead=threads is not None)
    if threads is not None:
        made = attrs.evolve(made, make_threads=lambda jobs_max: threads(jobs_max, steps_max=1))
    return run_with(topology, config, made)


class Unpaused(ThreadPools):
    """Threads that don't pause before another try."""

    def sleep(self, duration_secs: float, until: Sequence[Future[None]] = ()) -> None:
        pass


class Steps:
    """What has happened; whoever waits for a step goes on when it has."""

    def __init__(self) -> None:
        self.reached: list[str] = []
        self._news = threading.Condition()

    def reach(self, step: str) -> None:
        with self._news:
            self.reached.append(step)
            self._news.notify_all()

    def wait_for(self, step: str) -> None:
        with self._news:
            assert self._news.wait_for(lambda: step in self.reached, DEADLINE_SECS), (step, self.reached)


STEPS = Steps()
"""Bolts are pickled, so they find it here."""


@pytest.fixture(autouse=True)
def steps() -> Steps:
    STEPS.__init__()
    return STEPS


class Sum(BatchBolt, ICommitter):
    """Adds up numbers, under one key or each under its own."""

    def __init__(self, *, is_of_each: bool = False) -> None:
        self.is_of_each = is_of_each

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.state, self.txid, self.numbers = context.state("sums"), attempt.txid, []

    def execute(self, tuple: Any) -> None:
        self.numbers.append(tuple["n"])

    def finish_batch(self) -> None:
        STEPS.reach(f"phase {self.txid}")
        for number in self.numbers:
            self.state.update(number if self.is_of_each else "all", lambda old, n=number: (old or 0) + n)
        STEPS.reach(f"{self.txid} has put")


class Watched(OpenedMemoryState):
    """A state that nobody may use beside its writes, some of which wait for a step, by their transaction."""

    waits_for: ClassVar[dict[int, str]] = {}
    fails = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._busy = threading.Lock()

    def multi_get(self, keys: Sequence[Any]) -> Any:
        assert self._busy.acquire(blocking=False), "somebody reads beside a write"
        try:
            return super().multi_get(keys)
        finally:
            self._busy.release()

    def publish(self, txid: int, note: Any) -> None:
        with self._busy:
            if txid in self.waits_for:
                STEPS.wait_for(self.waits_for[txid])
            if self.fails:
                raise StateFailure("out of reach")
            super().publish(txid, note)
            STEPS.reach(f"published {txid}")


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> type[Watched]:
    monkeypatch.setattr("state.memory.OpenedMemoryState", Watched)
    monkeypatch.setattr(Watched, "waits_for", {})
    monkeypatch.setattr(Watched, "fails", False)
    return Watched


def sums() -> MemoryState:
    return MemoryState(Fields("k"), Fields("n"))


def numbers(count: int) -> MemoryTransactionalSpout:
    return MemoryTransactionalSpout([[n] for n in range(count)], Fields("n"), 1)


def test_phases_run_beside_writes(watched: type[Watched], steps: Steps) -> None:
    """Transaction 1 is published only when the phase of 2 has put what goes on from what 1 has put."""
    watched.waits_for, state = {1: "2 has put"}, sums()
    run(committing(numbers(20), Sum(), sums=state))
    assert values_in(state) == {"all": sum(range(20))}
    assert steps.reached.index("2 has put") < steps.reached.index("published 1")
    assert [each for each in steps.reached if each.startswith("phase")] == [f"phase {n}" for n in range(1, 21)]


def test_what_only_the_state_knows_is_waited_for(watched: type[Watched], steps: Steps) -> None:
    """A key that the group has not put is read when the group is published, and not beside its writes."""
    watched.waits_for, state = {1: "phase 2"}, sums()
    run(committing(numbers(20), Sum(is_of_each=True), sums=state))
    assert values_in(state) == {n: n for n in range(20)}
    order = [steps.reached.index(each) for each in ("phase 2", "published 1", "2 has put")]
    assert order == sorted(order)


def test_writes_that_fail(watched: type[Watched], steps: Steps) -> None:
    """The run stops with their error; of what has run beside them, nothing is written, and the next run goes on."""
    watched.waits_for, watched.fails, state = {1: "2 has put"}, True, sums()
    with pytest.raises(StopError, match="could not be written in 5 tries"):
        run(committing(numbers(20), Sum(), sums=state), threads=Unpaused)
    assert values_in(state) == {}
    assert "published 2" not in steps.reached


class Flaky(Sum):
    """Fails once."""

    def finish_batch(self) -> None:
        super().finish_batch()
        if self.txid == 3 and STEPS.reached.count("phase 3") <= 2:
            raise FailedException("not now")


def test_a_phase_that_fails_ahead(watched: type[Watched], steps: Steps) -> None:
    """It fails once more in its group, and is then replayed as always; nothing of it stays."""
    watched.waits_for, state = {2: "phase 3"}, sums()
    report = run(committing(numbers(20), Flaky(), sums=state))
    assert values_in(state) == {"all": sum(range(20))}
    assert (report.failures, steps.reached.count("phase 3")) == (1, 3)


def test_what_was_begun_is_of_the_same_attempts() -> None:
    """It goes on in a group that begins with them, once, and is dropped if one was replayed since."""
    state = sums()
    plan = committing(numbers(3), Sum(), sums=state).plan
    factory = TaskFactory(plan, Config(), prototypes_of(plan))
    ahead = Ahead(factory, {"sums": state.open("t", "sums", "life", 1)}, Late(1), 8)
    first, replayed = (AssignedAttempt(TransactionAttempt(2, attempt), None, NEVER) for attempt in (1, 2))
    written = GroupOutcome((TransactionAttempt(1, 1),), {})
    taken = []
    for group in ([replayed], [first], [first]):
        if len(taken) < 2:
            ahead.write(lambda: None, written, {2: (first, list)}.get, ProgressProbe())
        taken.append(ahead.take(group))
    assert [each and each.finished for each in taken] == [None, [first.attempt], None]


class Hanging(Sum):
    """Comes to no end."""

    def finish_batch(self) -> None:
        STEPS.reach(f"phase {self.txid}")
        if self.txid == 2:
            STEPS.wait_for("the test is over")


def test_a_phase_that_hangs_ahead(watched: type[Watched], steps: Steps) -> None:
    """The run stops, and names its transaction; the group before it is written."""
    watched.waits_for = {1: "phase 2"}
    with pytest.raises(StalledCommit) as stalled:
        run(committing(numbers(20), Hanging(), sums=sums()), Config(group_transactions_max=1, message_timeout_secs=0.5))
    steps.reach("the test is over")
    assert (stalled.value.component, stalled.value.txid) == ("count", 2)


def test_the_durable_steps_are_the_same(tmp_path: Path) -> None:
    """A crash, or another coordinator, meets the steps of one group after the other, with phases ahead or without."""
    found = []
    for threads in (None, Late):
        reached: list[str] = []
        state = DeltaState(tmp_path / str(len(found)) / "sums", Fields("k: string"), Fields("n: long"))
        with armed(lambda name, to=reached: to.append(name) if name.startswith(("group.", "table.")) else None):
            run(committing(numbers(9), Sum(), sums=state), threads=threads)
        found.append(reached)
    assert found[0] == found[1]
    assert found[0].count("group.decide.before") == 9


def test_a_slow_write_is_no_phase_that_hangs(
    watched: type[Watched], steps: Steps, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While nothing follows, a write may take longer than the timeout: of that is warned, and it is no phase's time."""
    watched.waits_for, state = {1: "warned"}, sums()
    filtered = caplog.handler.emit

    def emit(record: logging.LogRecord) -> None:
        if record.getMessage().startswith("the writes of a commit group have taken more"):
            steps.reach("warned")
        filtered(record)

    monkeypatch.setattr(caplog.handler, "emit", emit)
    stop = threading.Timer(DEADLINE_SECS / 4, steps.reach, ("warned",))  # the run waits for its write, also to stop
    stop.start()
    report = run(committing(numbers(1), Sum(), sums=state), Config(message_timeout_secs=0.5))
    stop.cancel()
    assert values_in(state) == {"all": 0}
    assert report.step_secs["commit phases"] < report.step_secs["table writes"] / 2


class Looking(Late):
    """Threads that look where the phases are when the writes are made that one has waited for."""

    def wait_in_phases(self, writing: Future[None]) -> None:
        super().wait_in_phases(writing)
        Noticing.waited.append(current_probe().position())


class Noticing(OpenedMemoryState):
    """A state that looks where the phases are when one reads it."""

    waited: ClassVar[list[Any]] = []
    read: ClassVar[list[Any]] = []

    def multi_get(self, keys: Sequence[Any]) -> Any:
        self.read.append(current_probe().position())
        return super().multi_get(keys)


def test_a_phase_that_has_waited_has_its_whole_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a wait for writes is progress: they may have taken almost as long as a phase may do nothing."""
    monkeypatch.setattr("state.memory.OpenedMemoryState", Noticing)
    run(committing(numbers(20), Sum(is_of_each=True), sums=sums()), threads=Looking)
    assert Noticing.waited
    assert not set(Noticing.waited) & set(Noticing.read)


class Operations(BatchBolt, ICommitter):
    """Does what its tuples say, and adds up what it reads."""

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.state, self.rows, self.due = context.state("kept"), context.state("rows"), context.state("due")
        self.told = []

    def execute(self, tuple: Any) -> None:
        self.told.append(tuple.values[1:])

    def finish_batch(self) -> None:
        for what, key, n in self.told:
            if what == "update":
                self.state.update(key, lambda old, n=n: (old or 0) + n)
            elif what == "remove":
                self.state.multi_remove([key])
            elif what == "reduce":
                self.state.multi_reduce({key: n}, operator.add)
            elif what == "put":
                self.state.multi_put({key: n, "a": n})
            elif what == "before":
                at, found = self.state.rows_before(pa.table({"k": list("abc")}), Fields("n: long"))
                self.rows.append(sorted(zip(map("abc".__getitem__, at), found["n"].to_pylist(), strict=True)))
            elif what == "due":
                self.due.append([(key, datetime_at(max(self.due.taken_until() or 0, n) + 1))])
            elif what == "take":
                taken = self.due.take_expired(n).sort_by([("at", "ascending"), ("k", "ascending")])
                self.rows.append([(row, self.due.rows_held()) for row in taken["k"].to_pylist()])
            else:
                found = self.state.multi_get([key, "a"]) if what == "get" else [self.state.get(key)]
                self.rows.append([(key, -1 if each is None else each.value) for each in found])


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["update", "get", "get one", "remove", "reduce", "put", "before", "due", "take"]),
        st.sampled_from("abc"),
        st.integers(0, 9),
    ),
    min_size=2,
    max_size=24,
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "opaque", "plain", "delta", "vectors"])
def test_what_phases_see(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What they read and what they leave is the same as if each began when the one before is written."""

    @settings(max_examples=examples(30))
    @given(OPERATIONS, st.integers(1, 4), st.integers(1, 4))
    def holds(told: list[tuple[str, str, int]], each: int, group: int) -> None:
        folder = tmp_path_factory.mktemp("ahead")
        found = [seen(folder / str(threads), threads, told, each, group, kind) for threads in (None, Late, ThreadPools)]
        assert found[1] == found[2] == found[0]

    holds()


def seen(
    folder: Path, threads: type[ThreadPools] | None, told: Sequence[Any], each: int, group: int, kind: str
) -> tuple[Any, Any]:
    """Return what the phases have read, in order, and the values that they have left."""
    key, value = Fields("k: string"), Fields("n: long")
    kinds = {"opaque": StateKind.OPAQUE, "plain": StateKind.NON_TRANSACTIONAL}
    state: Any = MemoryState(key, value, kinds.get(kind, StateKind.TRANSACTIONAL))
    if kind in {"delta", "vectors"}:
        state = DeltaState(folder / "kept", key, value, deletion_vectors=kind == "vectors")
    spout = MemoryTransactionalSpout([list(row) for row in told], Fields("what", "k", "n"), each)
    rows = DeltaRows(folder / "rows", Fields("k: string", "n: long"))
    due = DeltaExpiringRows(folder / "due", Fields("k: string", "at: timestamp"), expires="at")
    run(committing(spout, Operations(), kept=state, rows=rows, due=due), Config(group_transactions_max=group), threads)
    read = read_table(folder / "rows").sort_by([("txid", "ascending"), ("k", "ascending")]).to_pylist()
    left = (
        state.snapshot().sort_by("k").select(["k", "n"]).to_pylist()
        if kind in {"delta", "vectors"}
        else values_in(state)
    )
    return read, left
