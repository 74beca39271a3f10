"""Tables of states that are made for deletion vectors: who reads and writes them, and what everybody sees."""

import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import polars as pl
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from state import DeltaState, read_table
from state.delta.log.entries import entry_path
from state.delta.log.growth import metadata_of
from tests.crashes import dying
from tests.state.delta.delta_tables import maintain
from tests.state.delta.spark_session import ids_where, rows_at
from tests.state.delta.vector_tables import mark_dead
from tests.transactional.recovery.altered_tables import put_entry, with_properties
from txtopo import Fields
from txtopo.api.values import TransactionalValue
from txtopo.errors import ConfigError, FailedException, LostLead, StateAccessError
from txtopo.transactional.recovery.tables import growing

WAYS = ("whole", "files")


def declared(path: Path, *, deletion_vectors: bool = True, **options) -> DeltaState:
    return DeltaState(path, Fields("id: long"), Fields("n: long"), deletion_vectors=deletion_vectors, **options)


def opened(path: Path, epoch: int = 1, **options):
    return declared(path, **options).open("topology", "s", "life", epoch)


def values(txid: int, *ids: int) -> dict[int, TransactionalValue]:
    return {n: TransactionalValue(txid, n * txid) for n in ids}


def rows_of(path: Path, txid: int | None = None) -> dict[int, int]:
    found = read_table(path, txid)
    return dict(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True))


def ids_below(bound: int):
    return lambda rows: pc.less(rows["id"], bound)


def test_a_new_table_has_the_feature_and_no_other(tmp_path: Path) -> None:
    """Readers that know deletion vectors need know nothing else."""
    opened(tmp_path)
    protocol = DeltaTable(tmp_path).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert protocol.reader_features == ["deletionVectors"]
    assert sorted(protocol.writer_features or ()) == ["appendOnly", "deletionVectors", "invariants"]
    assert DeltaTable(tmp_path).metadata().configuration["delta.enableDeletionVectors"] == "true"


def test_a_table_without_has_the_protocol_of_all(tmp_path: Path) -> None:
    """Nobody is asked for more than it needs."""
    opened(tmp_path, deletion_vectors=False)
    protocol = DeltaTable(tmp_path).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)


@pytest.mark.parametrize("is_made_for", [True, False])
def test_a_table_of_the_other_sort_is_refused(tmp_path: Path, is_made_for: bool) -> None:
    """One sentence says which of the two it is, and nothing is written."""
    opened(tmp_path, deletion_vectors=is_made_for).write(1, values(1, 1))
    before = DeltaTable(tmp_path).version()
    text = (
        "it has deletion vectors, which the state does not declare; 'txtopo evolve MODULE' turns them off, or add "
        "deletion_vectors=True"
        if is_made_for
        else "it has no deletion vectors, which the state declares; 'txtopo evolve MODULE' turns them on, or leave out "
        "deletion_vectors=True"
    )
    with pytest.raises(ConfigError, match=f"state 's': the table at {tmp_path} can't be opened: {text}"):
        opened(tmp_path, 2, deletion_vectors=not is_made_for)
    description = declared(tmp_path, deletion_vectors=not is_made_for).table().describe()
    assert description is not None
    assert (description.misfit, description.alteration) == (text, None)
    assert DeltaTable(tmp_path).version() == before


@pytest.mark.parametrize("is_declared", [True, False])
def test_what_others_turn_on_is_theirs(tmp_path: Path, is_declared: bool) -> None:
    """A table for which somebody else has turned vectors on is refused, whatever the state declares."""
    opened(tmp_path, deletion_vectors=False).write(1, values(1, 1))
    DeltaTable(tmp_path).alter.set_table_properties({"delta.enableDeletionVectors": "true"})
    with pytest.raises(ConfigError, match=r"deletion vectors|'deletionVectors'"):
        opened(tmp_path, 2, deletion_vectors=is_declared)
    description = declared(tmp_path, deletion_vectors=False).table().describe()
    assert description is not None
    assert "'deletionVectors'" in str(description.alteration)


def test_what_others_turn_off_is_taken_back(tmp_path: Path) -> None:
    """A table that has lost the feature that its state declares is refused, and a repair gives it again."""
    opened(tmp_path).write(1, values(1, 1, 2, 3))
    mark_dead(tmp_path, 2, ids_below(2), epoch=2)
    before = DeltaTable(tmp_path).protocol()
    table = DeltaTable(tmp_path)
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    put_entry(table, {"protocol": protocol}, with_properties(table, enableDeletionVectors="false"))
    with pytest.raises(ConfigError, match="the table feature 'deletionVectors' no more"):
        opened(tmp_path, 3)
    made = declared(tmp_path).table()
    description = made.describe()
    assert description is not None
    assert "'deletionVectors' no more" in str(description.alteration)
    made.take_back(4)
    assert DeltaTable(tmp_path).protocol() == before
    opened(tmp_path, 5).write(3, values(3, 7))
    assert rows_of(tmp_path) == {2: 2, 3: 3, 7: 21}


def test_a_table_is_rewritten_without_any(tmp_path: Path) -> None:
    """A write on top of dead rows, by a coordinator that has looked and by one that has just come, and upkeep."""
    opened(tmp_path, upkeep_every_writes=1, files_max=1).write(1, values(1, *range(10)))
    assert mark_dead(tmp_path, 2, ids_below(4), epoch=2) == 4
    assert mark_dead(tmp_path, 3, ids_below(6), epoch=3) == 2
    state = opened(tmp_path, 4)
    assert [value and value.value for value in state.multi_get([3, 5, 6])] == [None, None, 6]
    state.write(4, values(4, 5, 6))
    maintain(state)
    assert rows_of(tmp_path) == {5: 20, 6: 24, 7: 7, 8: 8, 9: 9}
    assert rows_of(tmp_path, 3) == {n: n for n in range(6, 10)}
    assert rows_of(tmp_path, 2) == {n: n for n in range(4, 10)}
    assert rows_of(tmp_path, 1) == {n: n for n in range(10)}


def test_a_column_is_added_beside_dead_rows(tmp_path: Path) -> None:
    """The files are in the version once more, and their vectors with them."""
    opened(tmp_path).write(1, values(1, 1, 2, 3))
    mark_dead(tmp_path, 2, ids_below(2), epoch=2)
    wider = DeltaState(
        tmp_path, Fields("id: long"), Fields("n: long", "m: long"), schema_evolution="add", deletion_vectors=True
    )
    state = wider.open("topology", "s", "life", 3)
    state.grow()
    assert rows_of(tmp_path) == {2: 2, 3: 3}
    assert pl.scan_delta(str(tmp_path)).collect().sort("id")["id"].to_list() == [2, 3]
    state.write(3, {4: TransactionalValue(3, (1, 2))})
    assert rows_of(tmp_path) == {2: 2, 3: 3, 4: 1}


def test_a_roll_back_over_vectors(tmp_path: Path) -> None:
    """Back to each of the transactions: the dead rows are those of that time, the file the same."""
    state = opened(tmp_path)
    state.write(1, values(1, *range(10)))
    for txid, bound in ((2, 3), (3, 5), (4, 9)):
        mark_dead(tmp_path, txid, ids_below(bound), epoch=txid)
    for epoch, (txid, bound) in enumerate(((3, 5), (2, 3), (1, 0)), 10):
        opened(tmp_path, epoch).roll_back(txid)
        assert rows_of(tmp_path) == {n: n for n in range(bound, 10)}
    assert len(DeltaTable(tmp_path).file_uris()) == 1
    opened(tmp_path, 20).roll_back(None)
    assert rows_of(tmp_path) == {}


def test_the_log_says_what_readers_need(tmp_path: Path) -> None:
    """A removal has the vector that the file had, and an addition the number of all rows without tight bounds."""
    opened(tmp_path).write(1, values(1, 1, 2, 3))
    mark_dead(tmp_path, 2, ids_below(2), epoch=2)
    mark_dead(tmp_path, 3, ids_below(3), epoch=3)
    actions = [json.loads(line) for line in (tmp_path / entry_path(DeltaTable(tmp_path).version())).open()]
    (removed,) = (action["remove"] for action in actions if "remove" in action)
    (added,) = (action["add"] for action in actions if "add" in action)
    assert [each["deletionVector"]["cardinality"] for each in (removed, added)] == [1, 2]
    assert json.loads(added["stats"]) == {"numRecords": 3, "tightBounds": False}
    assert metadata_of(DeltaTable(tmp_path))["configuration"]["delta.enableDeletionVectors"] == "true"


def test_a_start_removes_no_vectors(tmp_path: Path) -> None:
    """Neither names nor times tell whose they are: a copy of a table has the times at which it was made."""
    opened(tmp_path).write(1, values(1, *range(10)))
    for txid in range(2, 6):
        mark_dead(tmp_path, txid, ids_below(txid), epoch=txid)
    for file in (tmp_path / "_data").iterdir():
        os.utime(file, (time.time() + 60,) * 2)
    opened(tmp_path, 6).clean_up()
    for txid in range(1, 6):
        assert rows_of(tmp_path, txid) == {n: n for n in range(0 if txid == 1 else txid, 10)}


@pytest.mark.parametrize("damage", ["gone", "cut", "other"])
def test_a_damaged_vector_is_named(tmp_path: Path, damage: str) -> None:
    """Whoever reads the table is told which file it is; nobody sees dead rows."""
    opened(tmp_path).write(1, values(1, *range(10)))
    mark_dead(tmp_path, 2, ids_below(2), epoch=2)
    (file,) = (tmp_path / "_data").glob("*.bin")
    content = file.read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(content[:-9] if damage == "cut" else content[:-9] + bytes(9))
    for read in (lambda: read_table(tmp_path), lambda: opened(tmp_path, 3).multi_get([1, 5])):
        with pytest.raises((StateAccessError, FailedException)) as failure:
            read()
        assert file.name in str(failure.value)


def turned(path: Path, epoch: int, *, on: bool):
    """Open a table as ``txtopo evolve`` does, which turns vectors on or off."""
    state = growing(declared(path, deletion_vectors=on)).open("topology", "s", "life", epoch)
    state.grow()
    return state


def test_they_are_turned_on(tmp_path: Path) -> None:
    """By one version that changes no row; the run goes on, and so does whoever goes back to before it."""
    state = opened(tmp_path, deletion_vectors=False)
    state.write(1, values(1, *range(10)))
    turned(tmp_path, 2, on=True)
    protocol = DeltaTable(tmp_path).protocol()
    assert (protocol.reader_features, protocol.min_writer_version) == (["deletionVectors"], 7)
    version = DeltaTable(tmp_path).version()
    turned(tmp_path, 3, on=True)
    assert DeltaTable(tmp_path).version() == version + 1, "its marker"
    mark_dead(tmp_path, 2, ids_below(4), epoch=4)
    state = opened(tmp_path, 5)
    state.write(3, values(3, 4))
    assert rows_of(tmp_path) == {4: 12} | {n: n for n in range(5, 10)}
    state.roll_back(1)
    assert rows_of(tmp_path) == {n: n for n in range(10)}
    assert declared(tmp_path).table().foreign_change(None) is None


def test_they_are_turned_off(tmp_path: Path) -> None:
    """Every reader reads the table again, and earlier versions are still read, gone back to, and forked."""
    opened(tmp_path / "t").write(1, values(1, *range(10)))
    for txid, bound in ((2, 2), (3, 4)):
        mark_dead(tmp_path / "t", txid, ids_below(bound), epoch=txid)
    state = turned(tmp_path / "t", 4, on=False)
    table = DeltaTable(tmp_path / "t")
    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 2)
    assert not [name for name in table.metadata().configuration if "ector" in name]
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [*range(4, 10)]
    assert [rows_of(tmp_path / "t", txid) for txid in (1, 2, 3)] == [{n: n for n in range(b, 10)} for b in (0, 2, 4)]
    made = declared(tmp_path / "t", deletion_vectors=False)
    assert made.table().kept(range(4)) == {0, 1, 2, 3}
    assert made.table().foreign_change(None) is None
    state.write(4, values(4, 1))
    for txid, bound in ((2, 2), (3, 4)):
        fork = declared(tmp_path / f"fork-{txid}", deletion_vectors=False)
        fork.fork(str(tmp_path / "t"), txid, "side", "s", "other", 1)
        fork.open("side", "s", "other", 1).write(9, values(9, 11))
        rows = DeltaTable(tmp_path / f"fork-{txid}").to_pyarrow_table()
        assert sorted(rows["id"].to_pylist()) == [*range(bound, 10), 11]
    state.roll_back(2)
    assert sorted(DeltaTable(tmp_path / "t").to_pyarrow_table()["id"].to_pylist()) == [*range(2, 10)]
    assert rows_of(tmp_path / "t", 2) == {n: n for n in range(2, 10)}
    state.write(3, values(3, 2))
    assert rows_of(tmp_path / "t")[2] == 6
    turned(tmp_path / "t", 6, on=True)
    mark_dead(tmp_path / "t", 5, ids_below(6), epoch=7)
    assert rows_of(tmp_path / "t") == {n: n for n in range(6, 10)}


@pytest.mark.few(3)
@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("point", ["table.grow.before", "delta.write.landed", "table.grow.after"])
def test_a_death_while_they_are_turned(tmp_path: Path, point: str, on: bool) -> None:
    """Before it the table is as it was, after it as declared; the next one does what is left."""
    opened(tmp_path, deletion_vectors=not on).write(1, values(1, *range(10)))
    if not on:
        mark_dead(tmp_path, 2, ids_below(2), epoch=2)
    before = rows_of(tmp_path)
    with dying(point):
        turned(tmp_path, 3, on=on)
    assert rows_of(tmp_path) == before
    turned(tmp_path, 4, on=on).clean_up()
    assert rows_of(tmp_path) == before
    opened(tmp_path, 5, deletion_vectors=on).write(3, values(3, 4))
    assert rows_of(tmp_path) == before | {4: 12}


@pytest.mark.parametrize("on", [True, False])
def test_they_are_turned_during_a_run(tmp_path: Path, on: bool) -> None:
    """What is decided is published first, though its files are of the other sort; who ran before writes nothing more."""
    running = opened(tmp_path, deletion_vectors=not on)
    running.write(1, values(1, *range(10)))
    note = json.loads(json.dumps(running.prepare(2, values(2, 4))))
    state = growing(declared(tmp_path, deletion_vectors=on)).open("topology", "s", "life", 2)
    state.publish(2, note)
    state.grow()
    with pytest.raises(LostLead):
        running.write(3, values(3, 5))
    assert rows_of(tmp_path) == {n: n for n in range(10)} | {4: 8}
    opened(tmp_path, 3, deletion_vectors=on).write(3, values(3, 4))
    assert rows_of(tmp_path) == {n: n for n in range(10)} | {4: 12}
    assert rows_of(tmp_path, 2)[4] == 8


@pytest.mark.long
def test_spark_reads_one_that_was_turned(spark: ProcessPoolExecutor, tmp_path: Path) -> None:
    """On, off, and on again: Spark's Delta reads each version with the protocol of it."""
    opened(tmp_path).write(1, values(1, *range(10)))
    mark_dead(tmp_path, 2, ids_below(2), epoch=2)
    with_vectors = DeltaTable(tmp_path).version()
    turned(tmp_path, 3, on=False)
    assert spark.submit(ids_where, tmp_path, ["true"]).result() == [[*range(2, 10)]]
    found = spark.submit(rows_at, tmp_path, with_vectors).result()
    assert sorted(row["id"] for row in found) == [*range(2, 10)]
    turned(tmp_path, 4, on=True)
    mark_dead(tmp_path, 3, ids_below(5), epoch=5)
    assert spark.submit(ids_where, tmp_path, ["true"]).result() == [[*range(5, 10)]]
