"""A table of rows: each transaction's rows are in it once, in whatever way they are written."""

import pickle
import threading
import time
from collections import Counter

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings, strategies as st

from state import DeltaRows
from tests.budgets import examples
from tests.state.delta.delta_tables import maintain, reread
from tests.state.delta.inline_executors import InlineExecutors
from tests.state.delta.rows.rows_tables import FIELDS, PARTITIONS, WAYS, opened, put, rows, some_executors, writes_of
from tests.waiting import DEADLINE_SECS
from txtopo.api.values import StateKind
from txtopo.columnar.rows_file import write_rows_file
from txtopo.errors import (
    FieldsError,
    StateFailure,
)
from txtopo.files.folder import LocalFolder


@WAYS
@PARTITIONS
def test_appends_of_a_group(tmp_path, large, partition_by) -> None:
    """All rows of all tasks of all transactions of a group are in the table, each with its txid, in one version."""
    state = opened(tmp_path, partition_by=partition_by, executors=some_executors(large))
    version = DeltaTable(tmp_path / "t").version()
    one = pa.table({"n": [7, 8], "day": ["b", "b"]})
    writes = put(
        state,
        (1, ("append", [("a", 1), ("a", 1)]), ("append", one)),
        (3, ("append", one.to_batches()[0])),
    )
    assert rows(tmp_path) == {("a", 1, 1): 2, ("b", 7, 1): 1, ("b", 8, 1): 1, ("b", 7, 3): 1, ("b", 8, 3): 1}
    assert (len(writes), writes.rows_removed) == (6, 0)
    assert DeltaTable(tmp_path / "t").version() == version + 1
    assert state.last_txid == 3
    put(state, (4, ("append", [("c", 1)])))
    assert rows(tmp_path, 3) == rows(tmp_path) - Counter([("c", 1, 4)])


@WAYS
def test_an_applied_transaction_adds_nothing(tmp_path, large) -> None:
    """Promise 8: the same group again, a part of it again, by this coordinator or the next, changes nothing."""
    group = [(1, ("append", [("a", 1)])), (2, ("append", [("b", 2)]))]
    for epoch in (1, 2):
        state = opened(tmp_path, epoch=epoch, executors=some_executors(large))
        put(state, *group)
        assert rows(tmp_path) == {("a", 1, 1): 1, ("b", 2, 2): 1}
        put(state, group[1])
        assert not put(state, group[0])
    put(state, group[1], (3, ("append", [("c", 3)])))
    assert rows(tmp_path) == {("a", 1, 1): 1, ("b", 2, 2): 1, ("c", 3, 3): 1}


def test_a_transaction_without_rows_writes_nothing(tmp_path) -> None:
    """No rows are no write; a transaction may be noted alone."""
    state = opened(tmp_path)
    nothing = pa.table({"day": pa.array([], pa.string()), "n": pa.array([], pa.int64())})
    assert not writes_of(state, (1, ("append", []), ("append", nothing)))
    state.write(2, {})
    assert (state.last_txid, rows(tmp_path)) == (2, Counter())


@WAYS
def test_rows_in_a_file(tmp_path, large) -> None:
    """Rows that lie in a file, in whatever order and by whatever names, are put as all others are."""
    state = opened(tmp_path, partition_by="day", executors=some_executors(large))
    table = pa.table({"x": ["a", "b", "a"] * 50, "y": pa.array(range(150), pa.int64())})
    for keys in ((), ("x",)):
        file = write_rows_file(LocalFolder(tmp_path), f"1-{len(keys)}", table, keys)
        put(state, (len(keys) + 1, ("append", file)))
    turned = write_rows_file(LocalFolder(tmp_path), "3", table.rename_columns(["day", "n"]).select(["n", "day"]), ())
    put(state, (3, ("append", turned)))
    assert rows(tmp_path) == Counter(
        (x, y, txid) for x, y in zip(*table.to_pydict().values(), strict=True) for txid in (1, 2, 3)
    )
    with pytest.raises(FieldsError, match="columns"):
        put(state, (4, ("append", write_rows_file(LocalFolder(tmp_path), "4", table.select(["x"]), ()))))


MODEL_GROUPS = st.lists(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from(["append", "replace_partitions"]),
                st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=5),
            ),
            max_size=3,
        ),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.slow
@WAYS
@settings(max_examples=examples(15), deadline=None)
@given(MODEL_GROUPS)
def test_any_groups(tmp_path_factory, large, groups) -> None:
    """Whatever the groups, the rows are those that a plain list has, transaction by transaction."""
    path, model, txid = tmp_path_factory.mktemp("rows"), Counter(), 0
    state = opened(path, partition_by="day", executors=some_executors(large), upkeep_every_writes=1, files_max=1)
    for group in groups:
        transactions, before = [], model
        for puts in group:
            txid += 1
            transactions.append((txid, *puts))
            gone = {day for how, own in puts for day, _ in own if how == "replace_partitions"}
            model = Counter({row: count for row, count in model.items() if row[0] not in gone})
            model += Counter((day, n, txid) for _, own in puts for day, n in own)
        writes = put(state, *transactions)
        assert sum(model.values()) == sum(before.values()) + len(writes) - writes_removed(writes)
        assert rows(path) == model
        maintain(state)
        assert rows(path) == model


def writes_removed(writes) -> int:
    return getattr(writes, "rows_removed", 0)


def test_a_replacement_that_the_next_coordinator_publishes(tmp_path) -> None:
    """The note of a prepared write says which partitions it replaces."""
    state = opened(tmp_path, partition_by="day")
    put(state, (1, ("append", [("a", 1), ("b", 1)])))
    note = reread(state.prepare(2, writes_of(state, (2, ("replace_partitions", [("a", 2)])))))
    opened(tmp_path, partition_by="day", epoch=2).publish(2, note)
    assert rows(tmp_path) == {("a", 2, 2): 1, ("b", 1, 1): 1}


def test_a_replacement_finds_files_that_were_moved_meanwhile(tmp_path) -> None:
    """Files are looked for when the write is made: whoever has put a partition's rows elsewhere doubles none."""
    state = opened(tmp_path, partition_by="day")
    for txid in (1, 2):
        put(state, (txid, ("append", [("a", txid), ("b", txid)])))
    writes = writes_of(state, (3, ("replace_partitions", [("a", 3)])))
    DeltaTable(tmp_path / "t").optimize.compact()
    state.write(3, writes)
    assert rows(tmp_path) == {("a", 3, 3): 1, ("b", 1, 1): 1, ("b", 2, 2): 1}


@pytest.mark.slow
@PARTITIONS
def test_small_files_are_put_together(tmp_path, partition_by) -> None:
    """Many small files become few, partition by partition; rows and txids stay, and large files are left alone."""
    state = opened(tmp_path, partition_by=partition_by, upkeep_every_writes=1, files_max=6)
    for txid in range(1, 15):
        put(state, (txid, ("append", [("ab"[txid % 2], txid), ("c d%", 0)])))
        maintain(state)
    table = DeltaTable(tmp_path / "t")
    assert len(table.file_uris()) <= 6 + 3
    assert table.metadata().partition_columns == list(partition_by)
    assert rows(tmp_path) == Counter(
        row for txid in range(1, 15) for row in [("ab"[txid % 2], txid, txid), ("c d%", 0, txid)]
    )
    assert rows(tmp_path, 3) == Counter(
        row for txid in range(1, 4) for row in [("ab"[txid % 2], txid, txid), ("c d%", 0, txid)]
    )
    assert state.version == table.version()
    assert DeltaRows(tmp_path / "t", FIELDS, partition_by=partition_by).table().foreign_change(None) is None


def test_large_groups_are_shared_out(tmp_path) -> None:
    """The executors share the rows evenly, whatever partitions they are of."""
    executors = InlineExecutors(slots=3)
    state = opened(tmp_path, partition_by="day", executors=executors, sizes={"file_rows": 100})
    put(state, (1, ("append", [("a", n) for n in range(1000)])))
    assert [len(items) for items in executors.calls] == [10]
    actions = pa.table(DeltaTable(tmp_path / "t").get_add_actions()).to_pylist()
    assert [action["num_records"] for action in actions] == [100] * 10
    assert rows(tmp_path) == Counter(("a", n, 1) for n in range(1000))
    assert not list((tmp_path / "t" / "_txtopo").iterdir())


def test_the_state_pickles(tmp_path) -> None:
    """A declared table pickles, for it is sent along with its topology."""
    state = DeltaRows(tmp_path / "t", FIELDS, partition_by="day")
    again = pickle.loads(pickle.dumps(state))
    assert (again.value, again.kind, again.partition_by) == (FIELDS, StateKind.ROWS, ("day",))
    assert (again.home, again.address) == (str(tmp_path), str(tmp_path / "t"))


def test_partitions_are_put_side_by_side(tmp_path, monkeypatch) -> None:
    """The puts of a group wait for each other's disk or store together, and its files are those of its rows."""
    meet, put_alone = threading.Barrier(4), LocalFolder.put_new

    def puts_together(*args, **options):
        meet.wait(DEADLINE_SECS)
        put_alone(*args, **options)

    state = opened(tmp_path, partition_by=("day",))
    monkeypatch.setattr(LocalFolder, "put_new", puts_together)
    writes = writes_of(state, (1, ("append", [(day, n) for n, day in enumerate("abcdefgh")])))
    state.write(1, writes)
    assert rows(tmp_path) == Counter((day, n, 1) for n, day in enumerate("abcdefgh"))
    assert [file.partition["day"] for file in writes.added] == [*"abcdefgh"]


def test_a_put_that_fails_ends_those_beside_it(tmp_path, monkeypatch) -> None:
    """If one of many puts fails, the write fails with its error, and no more are begun than were under way."""
    begun, put_alone = [], LocalFolder.put_new

    def fails(folder, path, content, **options):
        begun.append(path)
        if len(begun) == 3:
            raise OSError(28, "No space left on device")
        if len(begun) > 3:
            time.sleep(0.005)  # the disk is slow, so whoever waits for the puts hears of the error before they are over
        put_alone(folder, path, content, **options)

    state = opened(tmp_path, partition_by=("day",))
    monkeypatch.setattr(LocalFolder, "put_new", fails)
    with pytest.raises(StateFailure, match="the disk is full"):
        state.write(1, writes_of(state, (1, ("append", [(str(n), n) for n in range(2_000)]))))
    assert len(begun) < 2_000
    monkeypatch.undo()
    put(state, (1, ("append", [("a", 1)])))
    assert rows(tmp_path) == {("a", 1, 1): 1}


@WAYS
@PARTITIONS
def test_many_rows_go_to_several_files(tmp_path, large, partition_by) -> None:
    """A group writes no file of more rows than a file has, and each row once."""
    executors = some_executors(large)
    state = opened(tmp_path, partition_by=partition_by, executors=executors, sizes={"file_rows": 2})
    many = [("ab"[number % 2], number) for number in range(9)]
    put(state, (1, ("append", many[:4])), (2, ("append", many[4:])))
    assert rows(tmp_path) == Counter((*each, 1 if each in many[:4] else 2) for each in many)
    actions = pa.table(DeltaTable(tmp_path / "t").get_add_actions()).to_pylist()
    assert max(action["num_records"] for action in actions) == 2
    assert len(actions) < 9
