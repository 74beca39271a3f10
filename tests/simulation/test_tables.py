"""Simulated tables keep the contract of states that ship, and refuse what those refuse."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest

from committers import ReduceCommitter
from spouts import MemoryTransactionalSpout
from state import DeltaExpiringRows, DeltaState, MemoryState
from state.delta.keyed.folding import Reducer
from tests.bolts import Collecting
from tests.topologies import committing
from txtopo import Config, Fields
from txtopo.api.state import State
from txtopo.api.values import StateKind
from txtopo.errors import FieldsError
from txtopo.testing import run_inline
from txtopo.testing.conformance.expiring import (
    EXPIRING_FIELDS,
    EXPIRING_KEY,
    EXPIRING_VALUE,
    ExpiringKeysConformance,
    ExpiringRowsConformance,
)
from txtopo.testing.conformance.state import COUNT, WORD, StateConformance, StatePlace
from txtopo.testing.simulation.schedules import make_subject, run_schedules
from txtopo.testing.simulation.tables.state import SimulatedState
from txtopo.testing.simulation.tables.table import SimulatedTable


class SimulatedPlace(StatePlace):
    """A table, whatever it is declared as."""

    def __init__(self) -> None:
        self._table = SimulatedTable("simulated", _see_nothing)

    def state(self, key: Fields = WORD, value: Fields = COUNT, kind: StateKind = StateKind.TRANSACTIONAL) -> State:
        return SimulatedState(MemoryState(key, value, kind), self._table)


def _see_nothing(*_: object) -> None:
    pass


class TestSimulatedKeys(StateConformance):
    test_the_state_pickles = None  # it stays in the process
    test_forking = None  # the world of a fork says of what it is one
    test_what_does_not_fit_is_seen = None  # nobody declares a state anew in a schedule
    test_setting_aside = None  # nor begins a topology anew

    @pytest.fixture
    def place(self) -> StatePlace:
        return SimulatedPlace()


class TestSimulatedKeysThatExpire(ExpiringKeysConformance):
    test_a_key_stays_until_it_is_told = None  # no schedule changes the time to live

    @pytest.fixture
    def declare(self, tmp_path: Path) -> Callable[[dt.timedelta], State]:
        table = SimulatedTable("simulated", _see_nothing)
        return lambda ttl: SimulatedState(
            DeltaState(tmp_path, EXPIRING_KEY, EXPIRING_VALUE, ttl=ttl, clock="clock"), table
        )


class TestSimulatedRowsThatExpire(ExpiringRowsConformance):
    test_the_state_pickles = None

    @pytest.fixture
    def declared(self, tmp_path: Path) -> State:
        of = DeltaExpiringRows(tmp_path, EXPIRING_FIELDS, expires="ends", key=("word",))
        return SimulatedState(of, SimulatedTable("simulated", _see_nothing))


class Put(Collecting):
    def __init__(self, key, value):
        super().__init__()
        self.key, self.value = key, value

    def finish_batch(self):
        self.state.put(self.key, self.value)


@pytest.mark.parametrize(("key", "value"), [("a", "text"), ("a", 1.5), ("a", 2**63), (5, 1), (None, 1), (["a"], 1)])
def test_what_the_table_refuses(key, value, tmp_path):
    """A key or value that a run refuses is refused in a simulation, in the same words."""
    state = DeltaState(tmp_path / "words", Fields("word: string"), Fields("n: long"))
    topology = committing(MemoryTransactionalSpout([["a"]], Fields("word"), 1), Put(key, value), words=state)
    refusals = []
    for run in (run_inline, make_subject):
        with pytest.raises(FieldsError) as refused:
            run(topology)
        refusals.append(str(refused.value))
    assert refusals[0] == refusals[1]


class Snapshot(Collecting):
    def finish_batch(self):
        before = self.state.snapshot().to_pylist() if self.attempt.txid > 1 else []
        self.state.put(self.words[0], sum(row["n"] for row in before) + self.attempt.txid)


def test_a_snapshot_has_the_columns_of_the_table(tmp_path):
    """A bolt that reads the table in its commit phase is given in a simulation what a run gives it."""
    state = DeltaState(tmp_path / "words", Fields("word: string"), Fields("n: long"))
    topology = committing(MemoryTransactionalSpout([["a"], ["b"], ["c"]], Fields("word"), 1), Snapshot(), words=state)
    rows = make_subject(topology).oracle.as_of("words", 3)
    run_inline(topology, Config(group_transactions_max=1))
    assert {key: row.value for key, row in rows.items()} == {
        row["word"]: row["n"] for row in state.snapshot().to_pylist()
    }


def test_groups_are_folded_as_in_a_run(tmp_path, monkeypatch):
    """By the code that folds Delta's tables: if it loses a transaction of a group, a schedule finds that."""
    fold = Reducer.fold

    def lossy(self, parts, *rest):
        return fold(self, parts[1:] if len({part.txid for part in parts}) > 1 else parts, *rest)

    spout = MemoryTransactionalSpout([[word, 1] for word in "abacabadabacab"], Fields("word: string", "n: long"), 2)
    state = DeltaState(tmp_path / "words", Fields("word: string"), Fields("n: long"))
    topology = committing(spout, ReduceCommitter("words", "word", "n"), words=state)
    assert run_schedules(make_subject(topology), range(1, 6), processes=1).failures == ()
    monkeypatch.setattr(Reducer, "fold", lossy)
    (failure,) = run_schedules(make_subject(topology), range(1, 6), processes=1).failures
    assert failure.violation.startswith("each version is as if every transaction had run once (promise 8)")
