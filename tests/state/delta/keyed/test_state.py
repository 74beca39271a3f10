"""DeltaState: the conformance class, and what is Delta's own: staging, crashes, history, upkeep."""

import datetime
import json
import signal
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, strategies as st

from state.delta.keyed.state import DeltaState, read_table
from state.delta.read.reading import key_mask
from tests.processes import python
from tests.state.delta.delta_tables import (
    INCARNATION,
    LARGE,
    MANY_FILES,
    NAME,
    TOPOLOGY,
    NotedDeltaState,
    counted,
    maintain,
    merge,
    opened,
    sized,
)
from tests.variants import variants
from tests.waiting import DEADLINE_SECS
from txtopo.api.data.fields import Fields
from txtopo.api.state import State
from txtopo.api.values import OpaqueValue, StateKind, TransactionalValue
from txtopo.errors import (
    ConfigError,
    DivergenceError,
    FieldsError,
    LostLead,
    StateAccessError,
)
from txtopo.testing.conformance.state import COUNT, WORD, StateConformance, StatePlace, rows_of


class DeltaPlace(StatePlace):
    declared = DeltaState

    def __init__(self, path: Path, sizes: Mapping[str, int] | None = None, **options: int) -> None:
        self.path = path
        self.sizes = sizes or {}
        self.options = options

    def state(self, key: Fields = WORD, value: Fields = COUNT, kind: StateKind = StateKind.TRANSACTIONAL) -> State:
        return sized(self.declared(self.path, key, value, kind, **self.options), **self.sizes)

    def take_away(self) -> bool:
        for file in self.path.rglob("*.parquet"):
            file.unlink()
        return True


class TestDeltaState(StateConformance):
    @pytest.fixture
    def place(self, tmp_path: Path) -> StatePlace:
        return DeltaPlace(tmp_path / "out" / "counts")


@pytest.mark.slow
class TestDeltaStateWithASmallCache(StateConformance):
    """The same promises when the table is too large to be cached, and upkeep runs after every write."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> StatePlace:
        return DeltaPlace(tmp_path / "counts", cached_keys_max=1, upkeep_every_writes=1, files_max=1)


class TestDeltaStateWithoutRowsInMemory(StateConformance):
    """The same promises when every write replaces the touched files alone."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> StatePlace:
        return DeltaPlace(tmp_path / "counts", LARGE)


class NotedPlace(DeltaPlace):
    declared = NotedDeltaState


class TestDeltaStateWithRowsInNotes(StateConformance):
    """The same promises when a write is decided by its rows, and its files are written when it is published."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> StatePlace:
        return NotedPlace(tmp_path / "counts")


# What else may lie at the path


def test_a_relative_path_is_resolved_when_it_is_opened(tmp_path, monkeypatch):
    """The table of a relative path lies below the working directory of the one who opens it."""
    monkeypatch.chdir(tmp_path)
    state = DeltaState("out/counts", WORD, COUNT)
    assert state.home == "out"
    state.open(TOPOLOGY, NAME, INCARNATION, 1).write(1, counted(1, a=1))
    monkeypatch.chdir("/")
    assert read_table(tmp_path / "out" / "counts").to_pylist() == [{"word": "a", "n": 1, "txid": 1}]


def test_home_is_the_folder_above():
    """The topology's files lie beside its tables."""
    assert DeltaState("/data/counts", WORD, COUNT).home == "/data"
    assert DeltaState("file:///data/counts", WORD, COUNT).home == "/data"
    assert DeltaState("s3://bucket/counts", WORD, COUNT).home == "s3://bucket"


def test_a_delta_table_of_others_is_refused(path):
    """A Delta table that txtopo did not make is neither written nor changed."""
    write_deltalake(path, pa.table({"word": ["a"], "n": [1], "txid": [1]}))
    with pytest.raises(DivergenceError, match="not made by txtopo"):
        opened(path)
    assert DeltaTable(path).version() == 0


def test_a_folder_of_others_is_refused(path):
    """A folder that holds something else is left as it is."""
    path.mkdir()
    (path / "letter.txt").write_text("dear")
    with pytest.raises(DivergenceError, match=r"letter\.txt"):
        opened(path)
    assert [file.name for file in path.iterdir()] == ["letter.txt"]


def test_what_a_crash_left_of_the_first_write_is_no_obstacle(path):
    """A table whose making was cut short is made."""
    (path / "_delta_log").mkdir(parents=True)
    (path / "_delta_log" / "_commit_4711.json.tmp").write_text("{")
    opened(path).write(1, counted(1, a=1))
    assert rows_of(opened(path, 2)) == [("a", 1, 1)]


@pytest.mark.parametrize(
    "changed",
    [
        (WORD, Fields("n: int"), StateKind.TRANSACTIONAL),
        (WORD, Fields("m: long"), StateKind.TRANSACTIONAL),
        (Fields("letter: string"), COUNT, StateKind.TRANSACTIONAL),
        (WORD, COUNT, StateKind.OPAQUE),
        (WORD, COUNT, StateKind.NON_TRANSACTIONAL),
    ],
    ids=repr,
)
def test_a_table_of_other_columns_or_kind_is_refused(path, changed):
    """The error says what is expected, what is found, how far the table has got, and what to do."""
    opened(path).write(9, counted(9, a=1))
    with pytest.raises(DivergenceError, match="last transaction is 9") as refusal:
        DeltaState(path, *changed).open(TOPOLOGY, NAME, INCARNATION, 2)
    assert "another path" in str(refusal.value)


def test_a_state_named_epoch_is_refused(path):
    """The fence has that name, so a state cannot have it."""
    with pytest.raises(ConfigError, match="rename"):
        DeltaState(path, WORD, COUNT).open(TOPOLOGY, "epoch", INCARNATION, 1)
    assert not path.exists()


@pytest.mark.parametrize(
    "options",
    [
        {"cached_keys_max": 0},
        {"upkeep_every_writes": 0},
        {"files_max": 0},
        {"vacuum_retention_hours": 24},
    ],
    ids=repr,
)
def test_options_out_of_range_are_refused(path, options):
    """A wrong option is found when the state is declared."""
    with pytest.raises(ConfigError):
        DeltaState(path, WORD, COUNT, **options)


@pytest.mark.parametrize(("key", "value"), [(Fields("word"), COUNT), (WORD, Fields("n"))])
def test_fields_without_types_are_refused(path, key, value):
    """Every column of a table needs a type."""
    with pytest.raises(FieldsError, match="no type"):
        DeltaState(path, key, value)


KEY_COLUMNS = {
    "a": st.sampled_from(["x", "y", "z'", "é"]),
    "b": st.integers(-2, 2),
    "c": st.booleans(),
}


@given(
    rows=st.lists(st.tuples(*KEY_COLUMNS.values()), max_size=20),
    wanted=st.lists(st.tuples(*KEY_COLUMNS.values()), max_size=8, unique=True),
    width=st.integers(1, 3),
)
def test_rows_are_found_by_any_number_of_key_columns(rows, wanted, width):
    """The mask is true exactly for the rows whose key is wanted."""
    names, types = list(KEY_COLUMNS)[:width], [pa.string(), pa.int64(), pa.bool_()][:width]

    def as_table(keys):
        columns = [pa.array([key[i] for key in keys], kind) for i, kind in enumerate(types)]
        return pa.Table.from_arrays(columns, names=names)

    expected = [row[:width] in {key[:width] for key in wanted} for row in rows]
    assert key_mask(as_table(rows), as_table(wanted)).to_pylist() == expected


# History


def test_what_a_table_holds_can_be_read_without_its_topology(path):
    """A path is enough to read a state, as of any transaction, keys and values only."""
    state = DeltaState(path, Fields("word: string", "day: date"), COUNT, StateKind.OPAQUE)
    writer = state.open(TOPOLOGY, NAME, INCARNATION, 1)
    for txid in (1, 2):
        kept = OpaqueValue(txid, txid * 10, (txid - 1) * 10)
        writer.write(txid, {("a", pa.scalar(0, pa.date32()).as_py()): kept})
    assert read_table(path).select(["word", "n", "txid"]).to_pylist() == [{"word": "a", "n": 20, "txid": 2}]
    assert read_table(path, 1)["n"].to_pylist() == [10]
    assert read_table(path).column_names == ["word", "day", "n", "txid"]


def test_what_is_no_state_cannot_be_read(path):
    """A path without a table gets an error that says so, and so does a transaction of a table that has none."""
    with pytest.raises(ConfigError, match="not a table of a txtopo state"):
        read_table(path)
    write_deltalake(path, pa.table({"n": [1]}))
    with pytest.raises(ConfigError, match="is of no state, so its rows have no transactions: read it without a txid"):
        read_table(path, 1)


def test_a_table_of_a_plain_topology_is_read_as_it_is(path):
    """Its sinks and dead letters are at least once, so their rows have no txid."""
    rows = {"topic": ["t"], "value": [b"v"], "timestamp": [datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)]}
    write_deltalake(path, pa.table(rows))
    assert read_table(path).to_pylist() == [{name: values[0] for name, values in rows.items()}]


def test_history_that_is_gone_is_refused(path):
    """A snapshot whose log or files were removed is an error that says so, never another one's rows."""
    state = opened(path)
    for txid in range(1, 6):
        state.write(txid, counted(txid, a=txid))
    held = {Path(file).name for file in DeltaTable(path).file_uris()}
    for file in (path / "_data").iterdir():
        if file.name not in held:
            file.unlink()
    with pytest.raises(StateAccessError, match="vacuumed"):
        state.snapshot(3)
    DeltaTable(path).create_checkpoint()
    for version in range(DeltaTable(path).version()):
        (path / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(StateAccessError, match="no longer keeps"):
        state.snapshot(3)
    assert rows_of(state) == [("a", 5, 5)]


# Upkeep


def test_checkpoints_are_made_and_keep_the_txids(path):
    """Every so many writes the log gets a checkpoint, from which fence and txid are read as before."""
    state = opened(path, 4, upkeep_every_writes=3)
    for txid in range(1, 8):
        state.write(txid, counted(txid, a=txid))
        maintain(state)
    assert len(list((path / "_delta_log").glob("*.checkpoint.parquet"))) == 2
    assert opened(path, 4).last_txid == 7
    with pytest.raises(LostLead):
        opened(path, 3)


def test_compaction_keeps_rows_txids_and_the_cache(path):
    """Many files become few; nothing else changes, and no value is read again."""
    state = opened(path, 1, MANY_FILES, upkeep_every_writes=6, files_max=2)
    for txid in range(1, 7):
        state.write(txid, counted(txid, **{f"w{txid}": txid}))
        state.multi_get(["w1"])
    assert len(DeltaTable(path).file_uris()) > 2
    before = rows_of(state)
    merge(state)
    assert len(DeltaTable(path).file_uris()) == 1
    assert (rows_of(state), state.last_txid) == (before, 6)
    assert state._cache._version == DeltaTable(path).version()
    state.write(7, counted(7, w1=70))
    assert state.multi_get(["w1", "w6"]) == [TransactionalValue(7, 70), TransactionalValue(6, 6)]


# Crashes

_CRASHING = """
import json, os, sys
from state.delta.keyed.state import DeltaState
from txtopo.api.values import TransactionalValue
from txtopo.api.data.fields import Fields

state = DeltaState(sys.argv[1], Fields("word: string"), Fields("n: long"))
state = state.open("counting", "counts", "first-life", 1)
print("ready", flush=True)
for txid in range(state.last_txid or 1, 1_000_000):
    values = {f"w{i}": TransactionalValue(txid, txid) for i in range(200)}
    note = state.prepare(txid, values)
    print("prepared", txid, json.dumps(note), flush=True)
    state.publish(txid, note)
    print("published", txid, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("lines", variants(7, slow=[2, 12]))
def test_a_killed_process_leaves_whole_writes(path, lines):
    """Killed at any moment, each write is there whole or not at all, and what was prepared can be published."""
    child = python("-c", _CRASHING, path)
    said = [child.stdout.readline().strip() for _ in range(lines)]
    child.send_signal(signal.SIGKILL)
    said += child.stdout.read().splitlines()
    child.wait(DEADLINE_SECS)
    prepared = [line.split(maxsplit=2) for line in said if line.startswith("prepared") and line.endswith("}")]
    published = [int(line.split()[1]) for line in said if line.startswith("published")]
    state = opened(path, 2)
    last = state.last_txid or 0
    txid, note = int(prepared[-1][1]), json.loads(prepared[-1][2])
    assert max(published, default=0) <= last <= txid
    assert {row[1:] for row in rows_of(state)} <= {(last, last)}
    state.publish(txid, note)
    assert {row[1:] for row in rows_of(state)} == {(txid, txid)}
    state.clean_up()
    assert not list(path.rglob(".draft-*"))
