"""A fork's table of every kind has the rows, the statistics and the properties of the original's version."""

import datetime as dt
from collections import Counter

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from state import DeltaExpiringRows, DeltaRows, DeltaState, StateKind, read_table
from tests.object_server import object_store
from tests.state.delta.delta_tables import LARGE, sized
from tests.state.delta.expiring import expiring_tables
from tests.state.delta.rows import rows_tables
from txtopo import Fields
from txtopo.api.values import OpaqueValue, stored_value
from txtopo.errors import DivergenceError
from txtopo.files.objects import ObjectFolder
from txtopo.testing.conformance.state import COUNT, WORD
from txtopo.transactional.commit.write_buffer import group_state

OWNER = ("fork", "s", "own life", 1)


def rows(path, txid=None) -> Counter:
    return Counter(tuple(row.values()) for row in read_table(path, txid).to_pylist())


@rows_tables.PARTITIONS
def test_a_table_of_rows(tmp_path, partition_by):
    """Also a partitioned one, whose partitions are replaced on both sides."""
    declared = DeltaRows(tmp_path / "t", rows_tables.FIELDS, partition_by=partition_by)
    state = rows_tables.opened(tmp_path, partition_by=partition_by)
    for txid in (1, 2, 3):
        rows_tables.put(state, (txid, ("append", [("a", txid), ("b b", txid), ("ü", txid)])))
    fork = declared.moved(str(tmp_path / "fork"))
    fork.fork(declared.address, 2, *OWNER)
    assert rows(tmp_path / "fork") == rows(tmp_path / "t", 2)
    opened = fork.open(*OWNER)
    replaced = pa.table({"day": ["b b"], "n": [70]})
    how = "replace_partitions" if partition_by else "append"
    rows_tables.put(opened, (3, (how, replaced)))
    kept = [row for row in rows(tmp_path / "t", 2).elements() if not partition_by or row[0] != "b b"]
    assert rows(tmp_path / "fork") == Counter([*kept, ("b b", 70, 3)])
    assert rows(tmp_path / "fork", 2) == rows(tmp_path / "t", 2)


def test_rows_that_expire(tmp_path):
    """Those that were taken stay so, and the others are taken once, in each table."""
    declared = DeltaExpiringRows(tmp_path / "t", expiring_tables.FIELDS, "end")
    state = expiring_tables.opened(tmp_path)

    def take(opened, txid, until, *appended):
        group = group_state(opened)
        view = group.begin(txid)
        view.append(expiring_tables.some(*appended))
        taken = expiring_tables.held(view.take_expired(expiring_tables.us(until)))
        view.finish()
        opened.write(txid, group.writes())
        return taken

    take(state, 1, 0, ("a", 1), ("b", 5), ("c", 9))
    assert take(state, 2, 3, ("d", 6)) == [("a", 1)]
    assert take(state, 3, 7) == [("b", 5), ("d", 6)]
    fork = declared.moved(str(tmp_path / "fork"))
    fork.fork(declared.address, 2, *OWNER)
    opened = fork.open(*OWNER)
    assert expiring_tables.held(read_table(tmp_path / "fork")) == [("b", 5), ("c", 9), ("d", 6)]
    assert take(opened, 3, 5) == [("b", 5)]
    assert take(opened, 4, 20) == [("c", 9), ("d", 6)]


def test_an_opaque_state_keeps_what_was_before(tmp_path):
    """A transaction that runs again in the fork counts from the previous value, as it would in the original."""
    declared = DeltaState(tmp_path / "t", WORD, COUNT, StateKind.OPAQUE)
    state = declared.open("first", "s", "life", 1)
    for txid in (1, 2, 3):
        state.write(txid, {"a": OpaqueValue(txid, txid * 10, (txid - 1) * 10 or None)})
    fork = declared.moved(str(tmp_path / "fork"))
    fork.fork(declared.address, 2, *OWNER)
    assert fork.open(*OWNER).multi_get(["a"]) == [OpaqueValue(2, 20, 10)]


def test_the_log_says_of_the_files_what_it_said(tmp_path):
    """Numbers of rows, bounds and nulls, so that readers can skip files as before; and the table's properties."""
    fields = Fields("n: long", "day: date", "at: timestamp", "is_new: boolean", "tags: array<string>", "mean: double")
    declared = DeltaState(tmp_path / "t", Fields("word: string"), fields, StateKind.NON_TRANSACTIONAL)
    state = sized(declared, **LARGE).open("first", "s", "life", 1)
    at = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    for txid, word in enumerate(("ä" * 50, "b", "\U0001f600"), 1):
        value = (txid, dt.date(2026, 1, txid), at, True, ["x"], 0.5) if txid > 1 else (None,) * 6
        state.write(txid, {word: stored_value(StateKind.NON_TRANSACTIONAL, txid, value)})
    DeltaTable(tmp_path / "t").alter.set_table_properties({"delta.logRetentionDuration": "interval 7 days"})
    fork = declared.moved(str(tmp_path / "fork"))
    fork.fork(declared.address, 3, *OWNER)

    def said(path):
        actions = pa.table(DeltaTable(path).get_add_actions(flatten=True))
        return actions.drop_columns(["modification_time"]).to_pylist()

    def properties(path):
        return {k: v for k, v in DeltaTable(path).metadata().configuration.items() if k.startswith("delta.")}

    assert sorted(map(str, said(tmp_path / "fork"))) == sorted(map(str, said(tmp_path / "t")))
    assert rows_text(tmp_path / "fork") == rows_text(tmp_path / "t")
    assert properties(tmp_path / "fork") == {"delta.logRetentionDuration": "interval 7 days"}


def rows_text(path):
    return sorted(map(str, read_table(path).to_pylist()))


@pytest.mark.slow
def test_tables_in_object_stores_are_forked(tmp_path):
    """From a folder into a bucket, within that, and back: each has the rows then, and files of its own."""
    pytest.importorskip("obstore")
    with object_store() as server:
        origin = DeltaState(tmp_path / "t", WORD, COUNT, storage_options=server.options)
        table = origin.open("first", "s", "life", 1)
        table.write(1, {"a": stored_value(StateKind.TRANSACTIONAL, 1, 1)})
        table.write(2, {"a": stored_value(StateKind.TRANSACTIONAL, 2, 2)})
        table.close()
        for place in ("s3://bucket/one", "s3://bucket/two", str(tmp_path / "three")):
            before, origin = origin, origin.moved(place)
            origin.fork(str(before.address), 1, *OWNER)
            assert read_table(place, storage_options=server.options).to_pylist() == [{"word": "a", "n": 1, "txid": 1}]
        ObjectFolder("s3://bucket", tuple(server.options.items())).delete_all("one")
        assert read_table("s3://bucket/two", storage_options=server.options).num_rows == 1


def test_what_cannot_be_forked(tmp_path):
    """A path that is in use, and what is no table of a state."""
    declared = DeltaState(tmp_path / "t", WORD, COUNT)
    declared.open("first", "s", "life", 1).write(1, {})
    fork = declared.moved(str(tmp_path / "fork"))
    (tmp_path / "fork").mkdir()
    (tmp_path / "fork" / "mine").touch()
    with pytest.raises(DivergenceError, match="it contains mine"):
        fork.fork(declared.address, 1, *OWNER)
    with pytest.raises(DivergenceError, match="was not made by txtopo"):
        declared.moved(str(tmp_path / "other")).fork(str(tmp_path / "nowhere"), 1, *OWNER)
