"""DeltaState and those who write its table, too: a coordinator that has lost its lead, and others."""

import errno
import os
import shutil
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from state.delta.keyed.state import read_table
from tests.state.delta.delta_tables import MANY_FILES, counted, merge, opened, reread
from tests.state.delta.inline_executors import InlineExecutors
from txtopo.api.reduction import Reduction
from txtopo.api.values import TransactionalValue
from txtopo.api.writes import TransactionRows
from txtopo.errors import (
    DivergenceError,
    FailedException,
    LostLead,
)
from txtopo.failpoints import armed
from txtopo.testing.conformance.state import rows_of

# The fence


@pytest.mark.few(5)
@pytest.mark.parametrize("way", ["whole", "files", "marker", "prepared", "upkeep"])
@pytest.mark.parametrize("moment", ["before", "between"])
def test_a_zombie_writes_nothing(path, way, moment):
    """Whatever a coordinator without its lead writes, and whatever it has seen before, it stops."""
    zombie = opened(path, 1, MANY_FILES if way in {"files", "upkeep"} else None, upkeep_every_writes=1, files_max=1)
    zombie.write(1, counted(1, a=1, b=1))
    zombie.write(2, counted(2, c=2))
    note = zombie.prepare(3, counted(3, a=5))

    def lead(name="delta.write.checked"):
        # The new leader's marker may come between the zombie's look at the table and its write.
        if name == "delta.write.checked" and DeltaTable(path).version() == before:
            opened(path, 2)

    before = DeltaTable(path).version()
    values = {} if way == "marker" else counted(3, a=5)
    deeds = {"upkeep": lambda: merge(zombie), "prepared": lambda: zombie.publish(3, note)}
    deed = deeds.get(way, lambda: zombie.write(3, values))
    if moment == "before":
        lead()
    with pytest.raises(LostLead), armed(lead):
        deed()
    assert DeltaTable(path).version() == before + 1
    assert rows_of(opened(path, 3)) == [("a", 1, 1), ("b", 1, 1), ("c", 2, 2)]


@pytest.mark.parametrize("way", ["whole", "files"])
def test_a_write_never_moves_behind_another_one(path, way):
    """Rows that somebody adds between our look at the table and our write are never doubled: ours fails."""
    state = opened(path, sizes=MANY_FILES if way == "files" else None)
    state.write(1, counted(1, a=1))
    with pytest.raises(DivergenceError, match="WRITE made version"), armed(then_append(path, "delta.write.checked")):
        state.write(2, counted(2, x=2))
    assert read_table(path).num_rows == 2
    assert state.last_txid == 1


@pytest.mark.parametrize("other", [1, 3])
def test_of_two_that_open_a_table_at_once_the_newer_leads(path, other):
    """Another marks the table after one has looked at the fence: markers never fall, so the older one is refused."""
    opened(path, 1)

    def mark_first(name):
        if name == "folder.drafted" and not marked:
            marked.append(name)
            opened(path, other)

    marked = []
    with nullcontext() if other == 1 else pytest.raises(LostLead), armed(mark_first):
        opened(path, 2)
    opened(path, 3)


# Other writers


def test_rows_changed_by_another_writer_stop_the_run(path):
    """What was computed from values that another writer has changed since is not written."""
    state = opened(path)
    state.write(1, counted(1, a=1))
    assert state.multi_get(["a"]) == [TransactionalValue(1, 1)]
    DeltaTable(path).update({"n": "100"})
    with pytest.raises(DivergenceError, match="UPDATE"):
        state.write(2, counted(2, a=2))
    assert rows_of(state) == [("a", 100, 1)]
    again = opened(path, 2)
    assert again.multi_get(["a"]) == [TransactionalValue(1, 100)]
    again.write(2, counted(2, a=101))
    assert rows_of(again) == [("a", 101, 2)]


def then_append(path, point):
    """Return a handler that has somebody append a row when a failpoint is reached, once."""
    done = []

    def handler(name):
        if name == point and not done:
            done.append(name)
            rows = pa.table({"word": ["x"], "n": [2], "txid": [1]}, schema=pa.schema(DeltaTable(path).schema()))
            write_deltalake(path, rows, mode="append")

    return handler


@pytest.mark.parametrize("way", ["rows", "files", "prepared", "upkeep"])
def test_a_change_right_behind_our_own_write_is_not_taken_for_ours(path, way):
    """Whatever lands behind our Delta write, before the next one, is somebody else's: the next write says so."""
    state = opened(path, upkeep_every_writes=1, files_max=1)
    if way == "upkeep":
        state = opened(path, 2, MANY_FILES, upkeep_every_writes=1, files_max=1)
        for txid in (1, 2):
            state.write(txid, counted(txid, **{f"w{txid}": txid}))
    append = then_append(path, "delta.write.landed")
    if way == "upkeep":
        with armed(append):
            merge(state)
    elif way == "files":
        state.use_executors(InlineExecutors(), 0)
        with armed(append):
            state.write(2, state.fold([TransactionRows(2, pa.table({"word": ["a"], "n": [10]}))], Reduction.SUM))
    else:
        note = state.prepare(2, counted(2, a=10))
        with armed(append):
            state.publish(2, reread(note) if way == "prepared" else note)
    with pytest.raises(DivergenceError, match="WRITE made version"):
        state.write(3, counted(3, b=1))
    assert state.last_txid == 2


@pytest.mark.parametrize("way", ["rows", "marker"])
def test_a_write_that_landed_but_raised_is_durable(path, monkeypatch, way):
    """The answer to a Delta write may be lost: if the write is there it counts, so it is synced like any other."""
    state = opened(path)
    note = state.prepare(1, {} if way == "marker" else counted(1, a=1))
    synced = set()
    sync, link = os.fsync, os.link

    def unanswered(*places):
        link(*places)
        raise OSError(errno.EIO, "the answer was lost")

    def noting(descriptor):
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink())
        sync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", unanswered)
        patched.setattr(os, "fsync", noting)
        state.publish(1, note)
    assert rows_of(state) == ([] if way == "marker" else [("a", 1, 1)])
    table = DeltaTable(path)
    log = path / "_delta_log"
    assert {log / f"{table.version():020d}.json", log, path, *map(Path, table.file_uris())} <= synced
    state.write(2, counted(2, a=2))
    assert rows_of(state) == [("a", 2, 2)]


@pytest.mark.parametrize(
    ("number", "why"), [(errno.ENOSPC, "the disk is full"), (errno.EROFS, "the file system is read-only")]
)
def test_a_write_that_did_not_land_is_a_failure(path, monkeypatch, number, why):
    """The error says where and why, and once the fault is over, the same write is made."""
    state = opened(path)
    note = state.prepare(1, counted(1, a=1))

    def on_a_bad_disk(*_arguments, **_options):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", on_a_bad_disk)
        with pytest.raises(FailedException, match=rf"{why}, so it cannot be written\n.*{os.strerror(number)}"):
            state.publish(1, note)
    state.publish(1, note)
    assert rows_of(state) == [("a", 1, 1)]


def test_versions_that_change_no_row_are_harmless(path):
    """Somebody may compact and vacuum the table by hand; the run goes on."""
    state = opened(path, sizes=MANY_FILES)
    for txid in range(1, 4):
        state.write(txid, counted(txid, **{f"w{txid}": txid}))
    assert state.multi_get(["w1"]) == [TransactionalValue(1, 1)]
    other = DeltaTable(path)
    other.optimize.compact()
    other.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert DeltaTable(path).version() > state.version
    state.write(4, counted(4, w1=4))
    assert state.multi_get(["w1", "w2"]) == [TransactionalValue(4, 4), TransactionalValue(2, 2)]


@pytest.mark.parametrize("way", ["one key", "many keys", "folded", "folded by executors"])
def test_files_that_were_compacted_and_removed_are_not_missed(path, way):
    """Rows that a run has not read yet are read from wherever somebody has put them since."""
    for epoch in (1, 2):
        opened(path, epoch, MANY_FILES).write(epoch, counted(epoch, **{f"w{epoch}": epoch}))
    state = opened(path, 3, MANY_FILES, cached_keys_max=1)
    assert state.multi_get(["w9"]) == [None]  # it has seen the files
    DeltaTable(path).optimize.compact()
    for file in (path / "_data").iterdir():
        file.unlink()
    if way == "one key":
        assert state.multi_get(["w1"]) == [TransactionalValue(1, 1)]
    elif way == "many keys":
        assert state.multi_get(["w1", "w2"]) == [TransactionalValue(1, 1), TransactionalValue(2, 2)]
    else:
        if way == "folded by executors":
            state.use_executors(InlineExecutors(), 0)
        parts = [TransactionRows(3, pa.table({"word": ["w1"], "n": [10]}))]
        state.write(3, state.fold(parts, Reduction.SUM))
        assert rows_of(state) == [("w1", 11, 3), ("w2", 2, 2)]


def test_a_table_that_is_gone_stops_the_run(path):
    """A table that was removed under a running topology is not made anew."""
    state = opened(path)
    state.write(1, counted(1, a=1))
    shutil.rmtree(path)
    with pytest.raises((DivergenceError, FailedException)):
        state.write(2, counted(2, a=2))
    with pytest.raises(DivergenceError, match="gone"):
        _ = state.last_txid
    assert not path.exists() or not list(path.rglob("*.json"))
