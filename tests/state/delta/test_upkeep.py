"""Upkeep of the folder that txtopo writes data files into: what is needed stays, what is not goes in time."""

import json
import os
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyroaring import BitMap64

import state.delta.log.data_files
import state.delta.upkeep.past
import state.delta.upkeep.rounds
import state.delta.upkeep.schedule
import state.delta.writer
from state import DeltaRows, DeltaState, TransactionalValue, read_table
from state.delta.log.data_files import DATA_FOLDER
from state.delta.log.location import Location
from state.delta.table import kept_version
from state.delta.upkeep.past import Removed, TablePast
from state.delta.upkeep.rounds import LogUpkeep
from state.delta.upkeep.schedule import ENTRIES_SECS, Upkeep, log_secs
from tests.state.delta.delta_tables import LARGE, all_of, fold, maintain, scheduled, sized
from tests.state.delta.inline_executors import InlineExecutors
from tests.state.delta.rows.rows_tables import put
from tests.state.delta.vector_tables import mark_dead
from tests.waiting import DEADLINE_SECS
from txtopo import FailedException, Fields
from txtopo.api.state import History
from txtopo.api.writes import RowsMode, TransactionRows
from txtopo.errors import LostLead, StateAccessError
from txtopo.files.folder import LocalFolder

DAY_SECS = 24 * 3600
OFTEN = {"upkeep_every_writes": 1, "vacuum_retention_hours": 7 * 24}


def tidied(declared):
    """Return a declared table that each round of upkeep cleans up."""
    return scheduled(declared, clean_up_checkpoints=1)


def wait_days(monkeypatch, days):
    """Let the clock that files are judged by stand so many days later."""
    later = types.SimpleNamespace(time=lambda: time.time() + days * DAY_SECS)
    for each in (state.delta.upkeep.schedule, state.delta.upkeep.past):
        monkeypatch.setattr(each, "time", later)


def write_days_ago(monkeypatch, path, days, write):
    """Write to a table, so that files and log say that it was so many days ago."""
    secs, before = time.time() - days * DAY_SECS, {*path.rglob("*")}
    with monkeypatch.context() as patch:
        patch.setattr(state.delta.writer, "time", types.SimpleNamespace(**{**vars(time), "time": lambda: secs}))
        write()
    for file in {*path.rglob("*")} - before:
        os.utime(file, (secs, secs))


def data_files(path):
    return {file.name for file in (path / DATA_FOLDER).iterdir()}


def age(path):
    """Make all data files as if they had been written long ago."""
    for file in (path / DATA_FOLDER).iterdir():
        os.utime(file, (time.time() - 90 * DAY_SECS,) * 2)


def keyed(path, epoch=1, clean_up_checkpoints=1):
    declared = DeltaState(path, Fields("k: string"), Fields("n: long"), **OFTEN)
    state = scheduled(declared, clean_up_checkpoints=clean_up_checkpoints).open("topology", "s", "life", epoch)
    state.use_executors(InlineExecutors(), 0)
    return state


def test_a_checkpoint_is_durable_before_log_entries_are_removed(tmp_path, monkeypatch):
    """A power failure takes back either the checkpoint or nothing that is needed without it."""
    synced, at_clean_up = set(), []
    sync = os.fsync

    def noting(descriptor):
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    monkeypatch.setattr(
        state.delta.upkeep.rounds._CleanUp, "refresh", lambda _clean_up: at_clean_up.append(set(synced))
    )
    opened = keyed(tmp_path)
    opened.write(1, {})
    maintain(opened)
    assert {"00000000000000000002.checkpoint.parquet", "_last_checkpoint", "_delta_log"} <= at_clean_up[0]


@pytest.mark.slow
def test_replaced_files_and_orphans_go_after_the_retention(tmp_path, monkeypatch):
    """Delta's vacuum leaves them alone, so upkeep removes what the log has let go of, or was never told of."""
    state = keyed(tmp_path)
    for txid in (1, 2, 3):
        state.write(txid, fold(state, (txid, {"a": 1, "b": 1})))
        maintain(state)
    orphans = {Path(file.path).name for file in fold(state, (4, {"a": 1})).added}
    live = {Path(uri).name for uri in DeltaTable(tmp_path).file_uris()}
    assert len(data_files(tmp_path)) == 3 * len(live) + len(orphans)
    DeltaTable(tmp_path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert len(data_files(tmp_path)) == 3 * len(live) + len(orphans)
    outside = tmp_path / "part-orphan.parquet"
    outside.touch()
    os.utime(outside, (0, 0))
    wait_days(monkeypatch, 8)
    state.write(4, {})
    maintain(state)
    assert (data_files(tmp_path), outside.exists()) == (live, False)
    assert read_table(tmp_path).sort_by("k").to_pydict() == {"k": ["a", "b"], "n": [3, 3], "txid": [3, 3]}


def test_what_was_replaced_since_stays(tmp_path, monkeypatch):
    """However old a file is, it stays for the retention from the moment that it is taken out."""
    state = keyed(tmp_path)
    for txid in (1, 2):
        state.write(txid, fold(state, (txid, {"a": 1})))
        age(tmp_path)
    before = data_files(tmp_path)
    maintain(state)
    assert data_files(tmp_path) == before
    assert read_table(tmp_path, 1).to_pydict() == {"k": ["a"], "n": [1], "txid": [1]}
    wait_days(monkeypatch, 8)
    state.write(3, {})
    maintain(state)
    assert len(data_files(tmp_path)) == 1
    assert read_table(tmp_path).to_pydict() == {"k": ["a"], "n": [2], "txid": [2]}


def test_what_was_compacted_after_the_checkpoint_stays(tmp_path):
    """Upkeep compacts after it has made its checkpoint, and what that takes out is in the log alone."""
    table = tidied(DeltaRows(tmp_path, Fields("n: long"), files_max=1, **OFTEN))
    state = table.open("topology", "s", "life", 1)
    for txid in (1, 2, 3):
        state.write(txid, state.write_rows([TransactionRows(txid, pa.table({"n": [txid]}), RowsMode.APPEND)]))
    age(tmp_path)
    before = data_files(tmp_path)
    maintain(state)
    assert len(DeltaTable(tmp_path).file_uris()) == 1
    assert data_files(tmp_path) > before
    assert sorted(read_table(tmp_path, 2)["n"].to_pylist()) == [1, 2]


@pytest.mark.slow
def test_checkpoints_cost_no_more_the_more_is_kept(tmp_path):
    """A write pays for 20 of the files that are kept at most, whether a hundred are or thousands."""
    opened, writes = keyed(tmp_path, clean_up_checkpoints=20), 80
    for txid in range(1, writes + 1):
        opened.write(txid, {"a": TransactionalValue(txid, 1)})
        maintain(opened)
    removals = [
        pl.read_parquet(path)["remove"].struct.field("path").count()
        for path in (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    ]
    assert max(removals) >= writes - 5
    assert sum(removals) <= 20 * writes


@pytest.mark.parametrize("kind", ["keyed", "rows"])
def test_prepared_files_stay(tmp_path, monkeypatch, kind):
    """What a prepared write is to put in stays, however old it is."""
    if kind == "keyed":
        state = keyed(tmp_path)
        state.write(1, {})
        note = state.prepare(2, fold(state, (2, {"a": 1})))
    else:
        state = DeltaRows(tmp_path, Fields("n: long"), **OFTEN).open("topology", "s", "life", 1)
        state.write(1, state.write_rows([]))
        note = state.prepare(2, state.write_rows([TransactionRows(2, pa.table({"n": [1]}), RowsMode.APPEND)]))
    wait_days(monkeypatch, 8)
    maintain(state)
    state.publish(2, note)
    assert read_table(tmp_path)["n"].to_pylist() == [1]


@pytest.mark.few(1)
@pytest.mark.parametrize("is_vacuumed", [False, True])
def test_the_versions_that_are_kept(tmp_path, monkeypatch, is_vacuumed):
    """Asked for all at once, a table keeps what it keeps if asked one by one: after a vacuum, and after a roll-back."""
    declared = tidied(DeltaState(tmp_path / "t", Fields("k: string"), Fields("n: long"), **OFTEN))
    opened = declared.open("topology", "s", "life", 1)
    for txid in range(1, 9):
        opened.write(txid, {f"k{txid % 3}": TransactionalValue(txid, txid)})
    if is_vacuumed:
        age(tmp_path / "t")
        wait_days(monkeypatch, 60)
        maintain(opened)
        for version in range(3):
            (tmp_path / "t" / "_delta_log" / f"{version:020d}.json").unlink(missing_ok=True)
    opened.write(9, {"new": TransactionalValue(9, 9)})
    table, txids = declared.table(), range(12)
    kept = {0, *range(8 if is_vacuumed else 1, 10)}
    assert table.kept(txids) == kept == {txid for txid in txids if table.is_kept(txid)}
    opened.write(10, {"later": TransactionalValue(10, 10)})
    opened.roll_back(8)
    opened.write(9, {"again": TransactionalValue(9, 9)})
    assert table.kept(txids) == kept == {txid for txid in txids if table.is_kept(txid)}


@pytest.mark.slow
@pytest.mark.parametrize(("vacuum_days", "rewind_days", "is_kept"), [(7, 7, False), (7, 80, True), (80, 7, True)])
def test_a_longer_history_is_kept(tmp_path, monkeypatch, vacuum_days, rewind_days, is_kept):
    """The longer one of vacuum's retention and ``topology.rewind.hours`` keeps log entries and files that the other and
    Delta's defaults would let go."""
    often = {"upkeep_every_writes": 1, "vacuum_retention_hours": vacuum_days * 24}
    declared = tidied(DeltaState(tmp_path / "t", Fields("k: string"), Fields("n: long"), **often))
    opened = declared.open("topology", "s", "life", 1)
    opened.keep_history(all_of(rewind_days * 24))
    for txid in range(1, 6):
        opened.write(txid, {"k": TransactionalValue(txid, txid)})
        maintain(opened)
    for file in [*(tmp_path / "t" / DATA_FOLDER).iterdir(), *(tmp_path / "t" / "_delta_log").iterdir()]:
        os.utime(file, (time.time() - 60 * DAY_SECS,) * 2)
    opened.write(6, {"k": TransactionalValue(6, 6)})
    wait_days(monkeypatch, 15)
    maintain(opened)
    kept = set(range(7)) if is_kept else {0, 6}
    assert declared.table().kept(range(7)) == kept


@pytest.mark.slow
@pytest.mark.parametrize("asked_by", ["vacuum_retention_hours", "topology.rewind.hours"])
@pytest.mark.parametrize("is_outside", [False, True])
def test_what_was_removed_stays_longer_than_checkpoints_know_of_it(tmp_path, monkeypatch, asked_by, is_outside):
    """Delta's checkpoints forget it after a week. The versions of a longer retention can still be read, and rolled back
    to, wherever their files are and however old."""
    path, hours = tmp_path / "t", 30 * 24
    schedule = {**OFTEN, "vacuum_retention_hours": hours} if asked_by == "vacuum_retention_hours" else OFTEN
    declared = tidied(sized(DeltaState(path, Fields("k: string"), Fields("n: long"), **schedule), file_rows=1, **LARGE))
    opened = declared.open("topology", "s", "life", 1)
    if asked_by == "topology.rewind.hours":
        opened.keep_history(all_of(hours))
    write = lambda txid, keys: lambda: opened.write(txid, {key: TransactionalValue(txid, txid) for key in keys})
    write_days_ago(monkeypatch, path, 90, write(1, "kl"))
    first = data_files(path)
    write_days_ago(monkeypatch, path, 50, write(2, "k"))
    too_old = first - {Path(uri).name for uri in DeltaTable(path).file_uris()}
    if is_outside:  # somebody moves the rows out of the folder
        write_days_ago(monkeypatch, path, 45, DeltaTable(path).optimize.compact)
    for txid, days, keys in [(3, 20, "m"), (4, 15, "klm"), (5, 10, "k")]:
        write_days_ago(monkeypatch, path, days, write(txid, keys))
        write_days_ago(monkeypatch, path, days, lambda: maintain(opened))
    write(6, "k")()
    maintain(opened)
    assert declared.table().kept(range(7)) == {0, 2, 3, 4, 5, 6}
    assert (len(too_old), too_old & data_files(path)) == (1, set())
    assert read_table(path, 3).sort_by("k")["n"].to_pylist() == [2, 1, 3]
    opened.roll_back(3)
    assert read_table(path).sort_by("k")["n"].to_pylist() == [2, 1, 3]


def test_the_log_is_still_cleaned_of_what_is_too_old(tmp_path):
    """Behind a checkpoint that is itself too old, so that every later version can be read."""
    declared = tidied(DeltaState(tmp_path / "t", Fields("k: string"), Fields("n: long"), upkeep_every_writes=1))
    opened = declared.open("topology", "s", "life", 1)
    opened.keep_history(all_of(40 * 24))
    log = tmp_path / "t" / "_delta_log"
    for txid in range(1, 6):
        opened.write(txid, {"k": TransactionalValue(txid, txid)})
        if txid == 3:
            maintain(opened)
            for file in log.iterdir():
                os.utime(file, (time.time() - 60 * DAY_SECS,) * 2)
    maintain(opened)
    assert declared.table().kept(range(6)) == {0, 3, 4, 5}
    assert read_table(tmp_path / "t", 4)["n"].to_pylist() == [4]
    assert not (log / f"{1:020d}.json").exists()


def test_turns_are_looked_up_once_a_round(tmp_path, monkeypatch):
    """However many versions go: delta-rs reads the log for it, so the end of a run would wait for minutes."""
    looked, own_turns = [], TablePast.own_turns
    monkeypatch.setattr(TablePast, "own_turns", lambda past: looked.append(past) or own_turns(past))
    declared = tidied(DeltaState(tmp_path / "t", Fields("k: string"), Fields("n: long"), upkeep_every_writes=1))
    opened = declared.open("topology", "s", "life", 1)
    opened.keep_history(all_of(40 * 24))
    for txid in range(1, 8):
        opened.write(txid, {"k": TransactionalValue(txid, txid)})
    maintain(opened)
    looked.clear()
    log = tmp_path / "t" / "_delta_log"
    for file in log.iterdir():
        os.utime(file, (time.time() - 60 * DAY_SECS,) * 2)
    opened.write(8, {"k": TransactionalValue(8, 8)})
    maintain(opened)
    assert not any((log / f"{version:020d}.json").exists() for version in range(1, 6))
    assert len(looked) == 1


def test_the_versions_before_a_column_was_added(tmp_path):
    """The files are added once more with the column: one that is gone since is missing in the versions before, too."""
    path = tmp_path / "t"
    opened = DeltaState(path, Fields("k: string"), Fields("n: long"), **OFTEN).open("topology", "s", "life", 1)
    opened.write(1, {"k": TransactionalValue(1, 1)})
    opened.write(2, {"k": TransactionalValue(2, 2)})
    opened.write(3, {})
    (file,) = DeltaTable(path).file_uris()
    declared = DeltaState(path, Fields("k: string"), Fields("n: long", "m: long"), schema_evolution="add")
    opened = declared.open("topology", "s", "life", 2)
    opened.grow()
    opened.write(4, {"k": TransactionalValue(4, (4, 4))})
    Path(file).unlink()
    table = declared.table()
    assert table.kept(range(5)) == {txid for txid in range(5) if table.is_kept(txid)} == {0, 1, 4}


def vector_files(path):
    return {name for name in data_files(path) if name.startswith("deletion_vector_")}


def marked(path, *bounds):
    """Make a table of ten ids in one file, whose dead rows each transaction after the first extends to a bound."""
    declared = tidied(DeltaState(path, Fields("id: long"), Fields("n: long"), deletion_vectors=True, **OFTEN))
    opened = declared.open("topology", "s", "life", 1)
    opened.write(1, {n: TransactionalValue(1, n) for n in range(10)})
    for txid, bound in enumerate(bounds, 2):
        mark_dead(path, txid, lambda rows, bound=bound: pc.less(rows["id"], bound), epoch=txid)
    return declared


@pytest.mark.slow
def test_vectors_go_with_the_versions_that_need_them(tmp_path, monkeypatch):
    """Those of the newest version stay for ever, older ones for the retention, and what nobody needs goes."""
    declared = marked(tmp_path, 2, 4, 6)
    opened = declared.open("topology", "s", "life", 10)
    opened._data.put_vectors([BitMap64([1])])
    age(tmp_path)
    before = vector_files(tmp_path)
    opened.write(5, {})
    maintain(opened)
    assert (len(before), len(before - vector_files(tmp_path))) == (4, 1)  # of no version: it is as old as it looks
    assert declared.table().kept(range(6)) == {0, 1, 2, 3, 4, 5}
    assert read_table(tmp_path, 2)["id"].to_pylist() == [*range(2, 10)]
    DeltaTable(tmp_path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    wait_days(monkeypatch, 8)
    opened.write(6, {})
    maintain(opened)
    (left,) = vector_files(tmp_path)
    assert declared.table().kept(range(7)) == {0, 1, 4, 5, 6}  # the first has the same file, without a vector
    assert sorted(read_table(tmp_path)["id"].to_pylist()) == [6, 7, 8, 9]
    opened.write(7, {n: TransactionalValue(7, n) for n in (0, 6, 7, 8, 9)})  # the file's last live rows
    wait_days(monkeypatch, 16)
    opened.write(8, {})
    maintain(opened)
    assert vector_files(tmp_path) == set(), left
    assert sorted(read_table(tmp_path)["id"].to_pylist()) == [0, 6, 7, 8, 9]


def test_a_version_whose_vector_is_gone_is_not_kept(tmp_path):
    """The file is there, but not its dead rows: no command offers the version, and a roll-back refuses it."""
    declared = marked(tmp_path, 2, 4)
    opened = declared.open("topology", "s", "life", 10)
    opened.write(4, {0: TransactionalValue(4, 0)})
    (old,) = {file.vector.place for file in files_as_of(declared, tmp_path, 2)}
    (tmp_path / old).unlink()
    table = declared.table()
    assert table.kept(range(5)) == {0, 1, 3, 4}
    assert [table.is_kept(txid) for txid in range(1, 5)] == [True, False, True, True]
    with pytest.raises(StateAccessError, match="no longer keeps its version of transaction 2"):
        opened.roll_back(2)
    with pytest.raises(StateAccessError, match="cannot be read"):
        read_table(tmp_path, 2)


def files_as_of(declared, path, txid):
    location = Location.resolve(str(path), None)
    found = kept_version(location, location.handle().version(), txid, ())
    assert found is not None
    return found[1].values()


@pytest.mark.parametrize("by", ["successor", "somebody"])
def test_vectors_that_are_taken_in_again_meanwhile_stay(tmp_path, monkeypatch, by):
    """No vector is deleted that a successor's roll-back, or somebody's RESTORE, has in the table again."""
    declared = marked(tmp_path, 2, 4, 6)
    old = declared.open("topology", "s", "life", 10)
    old.write(5, {0: TransactionalValue(5, 0)})
    wait_days(monkeypatch, 8)

    def take_in():
        if by == "successor":
            declared.open("topology", "s", "life", 11).roll_back(3)
        else:
            location = Location.resolve(str(tmp_path), None)
            DeltaTable(tmp_path).restore(kept_version(location, location.handle().version(), 3, ())[0])

    meanwhile(monkeypatch, "removed_since", take_in)
    maintain(old)
    assert sorted(read_table(tmp_path)["id"].to_pylist()) == [*range(4, 10)]


def meanwhile(monkeypatch, function, act):
    """Let somebody act when the upkeep under way has asked the table something, the first time."""
    call, done = getattr(TablePast, function), []

    def calling(*arguments):
        result = call(*arguments)
        result = list(result) if isinstance(result, Iterator) else result
        if not done:
            done.append(function)
            act()
        return result

    monkeypatch.setattr(TablePast, function, calling)


@pytest.mark.parametrize("moment", ["old_outside", "removed_since", "sync"])
def test_a_coordinator_without_the_lead_removes_nothing(tmp_path, monkeypatch, moment):
    """Paused in its upkeep at any moment, it leaves the files that its successor takes in again by a roll-back."""
    old = keyed(tmp_path)
    for txid in (1, 2, 3):
        old.write(txid, {"k": TransactionalValue(txid, txid)})
    wait_days(monkeypatch, 8)

    meanwhile(monkeypatch, moment, lambda: keyed(tmp_path, epoch=2).roll_back(1))
    maintain(old)
    assert read_table(tmp_path).to_pydict() == {"k": ["k"], "n": [1], "txid": [1]}
    with pytest.raises(LostLead):
        old.write(4, {})


@pytest.mark.parametrize("days", [8.1, 7.9])
def test_a_pause_between_two_deletions(tmp_path, monkeypatch, days):
    """A coordinator that has lost its lead meanwhile deletes no second file; also if the clock was put back."""
    old, delete = keyed(tmp_path), LocalFolder.delete
    for txid in (1, 2, 3):
        old.write(txid, {"k": TransactionalValue(txid, txid)})
    wait_days(monkeypatch, 8)
    before = data_files(tmp_path)

    def paused(folder, path):
        delete(folder, path)
        keyed(tmp_path, epoch=2)
        wait_days(monkeypatch, days)

    monkeypatch.setattr(LocalFolder, "delete", paused)
    maintain(old)
    assert len(before - data_files(tmp_path)) == 1
    with pytest.raises(LostLead):
        old.write(4, {})


@pytest.mark.parametrize("txids", [(1,), (1, 2), (2, 1, 3)])
def test_what_is_taken_in_again_meanwhile_stays(tmp_path, monkeypatch, txids):
    """Also by somebody else's RESTORE, which a repair may adopt, and by several in a row. The rest goes."""
    opened = keyed(tmp_path)
    for txid in (1, 2, 3, 4):
        opened.write(txid, {"k": TransactionalValue(txid, txid)})
    wait_days(monkeypatch, 8)
    last = DeltaTable(tmp_path).version()

    def restore():
        for txid in txids:
            DeltaTable(tmp_path).restore(last - 4 + txid)

    meanwhile(monkeypatch, "removed_since", restore)
    before = data_files(tmp_path)
    maintain(opened)
    assert read_table(tmp_path)["n"].to_pylist() == [txids[-1]]
    assert len(before - data_files(tmp_path)) == 3 - len(txids)


def test_writes_go_on_while_the_log_is_looked_after(tmp_path, monkeypatch):
    """A checkpoint takes longer the longer the log is, and no transaction waits for it."""
    reached, may_go_on = threading.Event(), threading.Event()
    make_checkpoint = DeltaTable.create_checkpoint

    def wait_and_make(table):
        reached.set()
        assert may_go_on.wait(DEADLINE_SECS)
        make_checkpoint(table)

    monkeypatch.setattr(DeltaTable, "create_checkpoint", wait_and_make)
    state = keyed(tmp_path)
    for txid in (1, 2, 3):
        state.write(txid, fold(state, (txid, {"a": 1})))
        state.maintain()
        assert reached.wait(DEADLINE_SECS)
    assert read_table(tmp_path).to_pydict() == {"k": ["a"], "n": [3], "txid": [3]}
    may_go_on.set()
    state.close()
    assert json.loads((tmp_path / "_delta_log" / "_last_checkpoint").read_text())["version"] == 2  # the marker's is 1


@pytest.mark.parametrize("version", [3, 5])
def test_an_entry_that_was_put_too_late_goes(tmp_path, version):
    """Whoever put it may have died before it could be removed; where it has a protocol, it is a version by itself."""
    declared = DeltaRows(tmp_path, Fields("id: long"), upkeep_every_writes=100)
    opened = declared.open("topology", "s", "life", 1)
    for txid in range(1, 7):
        put(opened, (txid, ("append", pa.table({"id": [txid]}))))
    log = tmp_path / "_delta_log"
    late = (log / f"{0:020d}.json").read_bytes() + b"\n" + (log / f"{version:020d}.json").read_bytes()
    DeltaTable(tmp_path, version=6).create_checkpoint()
    for number in range(6):
        (log / f"{number:020d}.json").unlink()
    (log / f"{version:020d}.json").write_bytes(late)
    assert DeltaTable(tmp_path, version=version).to_pyarrow_dataset().to_table().num_rows == 1
    again = DeltaRows(tmp_path, Fields("id: long"), upkeep_every_writes=1).open("topology", "s", "life", 2)
    put(again, (7, ("append", pa.table({"id": [7]}))))
    maintain(again)
    names = {path.name for path in log.glob("*.json")}
    assert names == {f"{number:020d}.json" for number in range(6, DeltaTable(tmp_path).version() + 1)}
    assert sorted(read_table(tmp_path, 5)["id"].to_pylist()) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("lost", [None, 2])
def test_entries_before_a_checkpoint_stay(tmp_path, lost):
    """Whether they are versions, or one before them is lost: only what came too late goes."""
    opened = DeltaRows(tmp_path, Fields("id: long"), upkeep_every_writes=1).open("topology", "s", "life", 1)
    for txid in range(1, 5):
        put(opened, (txid, ("append", pa.table({"id": [txid]}))))
    log = tmp_path / "_delta_log"
    DeltaTable(tmp_path).create_checkpoint()
    if lost is not None:
        (log / f"{lost:020d}.json").unlink()
    before = {*log.glob("*.json")}
    for _ in range(2):
        maintain(opened)
        put(opened, (opened.last_txid + 1, ("append", pa.table({"id": [9]}))))
    assert before <= {*log.glob("*.json")}


def test_a_failed_checkpoint_is_told_and_made_later(tmp_path, monkeypatch):
    """It changes no rows, so the run goes on, and tries again after a later write."""
    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_checkpoint", failing(OSError("the disk is full")))
        state = keyed(tmp_path)
        state.write(1, fold(state, (1, {"a": 1})))
        maintain(state)
    state.write(2, fold(state, (2, {"a": 1})))
    with pytest.raises(FailedException, match="the disk is full"):
        state.maintain()
    maintain(state)
    assert (tmp_path / "_delta_log" / "_last_checkpoint").exists()
    assert read_table(tmp_path)["n"].to_pylist() == [2]


def failing(error):
    def fail(_table):
        raise error

    return fail


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_checkpoint_that_is_named_late(tmp_path, monkeypatch, is_removed):
    """Others may make later checkpoints before it is named, and remove it: no reader is sent to what is gone."""
    log = tmp_path / "_delta_log"
    make_checkpoint = DeltaTable.create_checkpoint

    def make_late(table):
        monkeypatch.setattr(DeltaTable, "create_checkpoint", make_checkpoint)
        make_checkpoint(table)
        new = keyed(tmp_path, epoch=2)
        for txid in (2, 3):
            new.write(txid, {"k": TransactionalValue(txid, txid)})
        DeltaTable(tmp_path).create_checkpoint()
        for version in range(table.version() + is_removed):
            for file in log.glob(f"{version:020d}.*"):
                file.unlink()

    old = keyed(tmp_path)
    old.write(1, {"k": TransactionalValue(1, 1)})
    monkeypatch.setattr(DeltaTable, "create_checkpoint", make_late)
    old.maintain()
    old.close()
    assert not (log / "_last_checkpoint").exists()
    assert DeltaTable(tmp_path).version() == 5
    assert pl.read_delta(str(tmp_path))["n"].to_list() == [3]


def recent(hours=None, secs=300, rewind_hours=168, now_secs=1_800_000_000):
    """Return a schedule of a run that keeps what is recent."""
    return Upkeep(vacuum_retention_hours=hours, history=History((), secs, rewind_hours, now_secs))


def test_the_longer_time_counts():
    """Of what a run and a table ask for, and for the log no less than a late put may take."""
    assert [recent(hours).files_secs for hours in (None, 168, 200)] == [300, 168 * 3600, 200 * 3600]
    assert recent(168, secs=10**6).files_secs == 10**6
    assert [recent(secs=secs).entries_secs({}) for secs in (60, 300)] == [ENTRIES_SECS, 300]
    ever = Upkeep(history=History((), None, 1_000, 0.0))
    assert (ever.files_secs, ever.entries_secs({})) == (None, 1_000 * 3600)
    assert ever.entries_secs({LOG_RETENTION: "interval 90 days"}) == 90 * DAY_SECS, "what the table says is obeyed"


LOG_RETENTION, FILE_RETENTION = "delta.logRetentionDuration", "delta.deletedFileRetentionDuration"


@pytest.mark.parametrize(
    ("rewind_hours", "own", "lacks"),
    [
        (168, {}, set()),
        (169, {}, {FILE_RETENTION}),
        (720, {}, {FILE_RETENTION}),
        (721, {}, {LOG_RETENTION, FILE_RETENTION}),
        (721, {LOG_RETENTION: "interval 721 hours"}, {FILE_RETENTION}),
        (24, {LOG_RETENTION: "interval 23 hours", FILE_RETENTION: "INTERVAL 1 DAY"}, {LOG_RETENTION}),
        (24, {LOG_RETENTION: "a month"}, {LOG_RETENTION}),
    ],
)
def test_properties_that_are_too_short(rewind_hours, own, lacks):
    """Those of just the time are not, whatever Delta takes where there are none."""
    assert recent(rewind_hours=rewind_hours).retentions(own) == dict.fromkeys(lacks, f"interval {rewind_hours} hours")


@pytest.mark.parametrize(
    ("interval", "secs"),
    [
        ("interval 2 days", 172_800),
        ("INTERVAL 2 DAYS", 172_800),
        (" 1 week ", 604_800),
        ("Interval 5 Minutes", 300),
        ("2 months", 0),
        ("interval", 0),
    ],
)
def test_intervals_of_properties(interval, secs):
    """They are read as Delta writes and reads them; one that is not understood promises nothing."""
    assert log_secs({LOG_RETENTION: interval}) == secs


def test_a_file_that_no_version_names_stays_for_a_day(tmp_path):
    """Another process may be about to publish it, however short the time is that versions are kept."""
    opened = DeltaState(tmp_path, Fields("k: string"), Fields("n: long"), upkeep_every_writes=1)
    opened = opened.open("topology", "s", "life", 1)
    opened.write(1, {"k": TransactionalValue(1, 1)})
    now, ages = time.time(), {"young.parquet": 23, "old.parquet": 25}
    for name, hours in ages.items():
        (tmp_path / DATA_FOLDER / name).touch()
        os.utime(tmp_path / DATA_FOLDER / name, (now - hours * 3600,) * 2)
    opened.keep_history(History((), 300, 168, now))
    opened.write(2, {"k": TransactionalValue(2, 2)})
    maintain(opened)
    assert data_files(tmp_path) & {*ages} == {"young.parquet"}


def test_a_removal_that_is_forgotten_meanwhile_deletes_nothing_younger(tmp_path):
    """So many are in memory that a write forgets the oldest while a deletion has looked at it: the next one is young."""
    deleted = []

    class Past(TablePast):
        def __init__(self):
            self.is_local = True

        def clock_secs(self):
            return 1000.0

        def delete(self, path):
            deleted.append(path)

    upkeep = LogUpkeep(Past(), Upkeep(history=History((), 300, 1, 1000.0)))
    upkeep._cleaned_up = state.delta.upkeep.rounds._CleanedUp(1000.0, version=100_000)
    removals = (Removed(version, 900_000 if version else 1, (str(version),)) for version in range(20_000))
    for _ in range(state.delta.upkeep.rounds._REMOVED_MAX):
        upkeep.written(next(removals), None)
    upkeep.delete_removed(set, lambda: upkeep.written(next(removals), None) is None)
    upkeep.end()
    upkeep.close()
    assert deleted == []
