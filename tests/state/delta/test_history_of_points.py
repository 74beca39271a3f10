"""What a table keeps of its past while it is written: all that is recent, and the versions of points."""

from __future__ import annotations

import json
import os
import time
import types

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import state.delta.writer
from state import DeltaState, TransactionalValue, read_table
from state.delta.log.data_files import DATA_FOLDER, files_of
from state.delta.log.entries import read_entry
from state.delta.log.kept import KeptLog
from state.delta.log.location import Location
from tests.state.delta.delta_tables import hold_no_rows, maintain
from txtopo import Fields
from txtopo.api.state import History

RECENT_SECS = 300
BEGAN_SECS = time.time() - 24 * 3600  # delta-rs forgets the removals of the week before today


class Life:
    """A table that a transaction is written to every so many seconds, by a clock of its own."""

    def __init__(self, monkeypatch, path, *, recent_secs=RECENT_SECS, epoch=1, **options):
        hold_no_rows(monkeypatch)
        clock = types.SimpleNamespace(time=lambda: self.now_secs, clock_gettime=lambda _clock: self.now_secs)
        monkeypatch.setattr(state.delta.writer, "time", clock)
        self.now_secs = BEGAN_SECS
        self.path = path
        self.declared = DeltaState(path, Fields("id: long"), Fields("n: long"), **options)
        self.opened = self.declared.open("topology", "s", "life", epoch)
        self.recent_secs = recent_secs
        self.points: list[int] = []
        self._dated: set[str] = set()
        self.date()

    def date(self):
        """Let the files that are new be of now."""
        for file in [*(self.path / "_delta_log").iterdir(), *(self.path / DATA_FOLDER).iterdir()]:
            if str(file) not in self._dated:
                self._dated.add(str(file))
                os.utime(file, (self.now_secs,) * 2)

    def write(self, txid, *, every_secs=10):
        """Write a transaction, which puts its number into the keys of its last digits, and do the upkeep."""
        self.now_secs += every_secs
        self.opened.write(txid, {key: TransactionalValue(txid, txid) for key in (txid % 7, txid % 3)})
        self.date()

    def maintain(self, later_secs=0):
        """Do the upkeep that is due, as of some time later; wait for it."""
        self.now_secs += later_secs
        self.opened.keep_history(History(tuple(self.points), self.recent_secs, 168, self.now_secs))
        if self.opened.is_upkeep_due:
            maintain(self.opened)
        self.date()

    def versions(self):
        """Return the versions that can be opened."""
        return KeptLog.of(Location.resolve(str(self.path), None)).versions()

    def txid_of(self, version):
        """Return the transaction that a version has made visible; None if none."""
        entry = read_entry(Location.resolve(str(self.path), None), version)
        return None if entry is None else entry.txid

    def run(self, txids, *, point_every=20, every_secs=10):
        """Write transactions, of which some are points; return the rows after each."""
        rows = {}
        for txid in txids:
            self.write(txid, every_secs=every_secs)
            if txid % point_every == 0:
                self.points.append(txid)
            rows[txid] = sorted_rows(read_table(self.path))
            self.maintain()
        return rows


def sorted_rows(rows: pa.Table) -> pa.Table:
    return rows.sort_by("id").combine_chunks()


def files(path):
    return {file.name for file in (path / DATA_FOLDER).iterdir()}


@pytest.mark.parametrize("deletion_vectors", [False, True])
def test_what_is_recent_and_the_points_stay(tmp_path, monkeypatch, deletion_vectors):
    """They are read and returned to; the rest is gone, files and log, while the table is written."""
    life = Life(monkeypatch, tmp_path / "t", deletion_vectors=deletion_vectors)
    rows = life.run(range(1, 201))
    life.maintain(61)
    recent = {txid for txid in rows if (200 - txid) * 10 + 61 <= RECENT_SECS}
    kept = life.declared.table().kept(range(201))
    assert kept >= {0, *life.points, *recent}
    assert len(kept) <= len(life.points) + (RECENT_SECS + 2 * 60) // 10 + 50
    for txid in (*life.points, *recent):
        assert sorted_rows(read_table(life.path, txid)).equals(rows[txid]), txid
    life.maintain(RECENT_SECS + 61)
    assert life.declared.table().kept(range(201)) == {0, *life.points}
    life.points = life.points[-2:]
    life.maintain(61)
    assert life.declared.table().kept(range(201)) == {0, 180, 200}
    live = {place for version in (*life.versions(),) for place in places(life.path, version)}
    assert files(life.path) == {name.rpartition("/")[2] for name in live}
    life.opened.roll_back(180)
    assert sorted_rows(read_table(life.path)).equals(rows[180])


def places(path, version):
    location = Location.resolve(str(path), None)
    return {place for file in files_of(location, location.handle(version)).values() for place in file.places}


@pytest.mark.parametrize("deletion_vectors", [False, True])
def test_readers_that_have_opened_a_version_read_it_to_its_end(tmp_path, monkeypatch, deletion_vectors):
    """For as long as is recent, whatever is removed meanwhile; and a version that was the newest just before, too."""
    life = Life(monkeypatch, tmp_path / "t", deletion_vectors=deletion_vectors)
    life.run(range(1, 60))
    life.maintain(61)
    held = DeltaTable(life.path)
    rows = pa.table(held.scan(columns=["id"])).sort_by("id")
    for txid in range(60, 60 + RECENT_SECS // 10 - 1):
        life.write(txid)
        life.maintain()
    assert pa.table(held.scan(columns=["id"])).sort_by("id").equals(rows)


def test_a_table_that_is_idle_becomes_small(tmp_path, monkeypatch):
    """What is no longer recent goes although nothing is written, and then there is nothing to do any more."""
    life = Life(monkeypatch, tmp_path / "t")
    life.run(range(1, 100))
    for _ in range(8):
        life.maintain(61)
    assert life.declared.table().kept(range(100)) == {0, 20, 40, 60, 80, 99}
    before = {path: path.stat().st_mtime_ns for path in life.path.rglob("*")}
    for _ in range(3):
        life.maintain(61)
    assert {path: path.stat().st_mtime_ns for path in life.path.rglob("*")} == before
    life.points = []
    life.maintain(61)
    assert life.declared.table().kept(range(100)) == {0, 99}
    assert life.declared.table().foreign_change(None) is None


def test_a_start_compares_what_came_after_the_last_transaction(tmp_path, monkeypatch):
    """Its entry stays, and those of starts since, however old they are."""
    life = Life(monkeypatch, tmp_path / "t")
    life.run(range(1, 30))
    for epoch in (2, 3, 4):
        life.opened = life.declared.open("topology", "s", "life", epoch)
        for _ in range(8):
            life.maintain(61)
        assert life.declared.table().foreign_change(None) is None
    life.run(range(30, 40))
    assert life.declared.table().kept(range(40)) >= {0, 20, 29, 39}


def test_turns_stay_known(tmp_path, monkeypatch):
    """A start with coordinator state of before a turn learns how far back it went, long after."""
    life = Life(monkeypatch, tmp_path / "t")
    rows = life.run(range(1, 50))
    life.opened = life.declared.open("topology", "s", "life", 2)
    life.opened.roll_back(40)
    life.opened.note_turn(40)
    life.points = [20, 40]
    life.opened = life.declared.open("topology", "s", "life", 3)
    life.run(range(41, 140))
    life.maintain(RECENT_SECS + 61)
    table = life.declared.table()
    assert [table.undone_to(epoch) for epoch in (1, 2)] == [40, None]
    assert [table.turned_to(epoch) for epoch in (1, 2)] == [40, None]
    assert table.kept(range(140)) == {0, *life.points, 139}
    for txid in (20, 40):
        assert sorted_rows(read_table(life.path, txid)).equals(rows[txid])
    life.opened.roll_back(20)
    assert sorted_rows(read_table(life.path)).equals(rows[20])


def test_a_successor_goes_on_with_the_points(tmp_path, monkeypatch):
    """What it was not there for, it finds in the log."""
    life = Life(monkeypatch, tmp_path / "t")
    rows = life.run(range(1, 90))
    life.opened.close()
    life.opened = life.declared.open("topology", "s", "life", 2)
    life.run(range(90, 180), point_every=1000)
    life.maintain(61)
    assert life.declared.table().kept(range(180)) >= {0, 20, 40, 60, 80, 179}
    assert sorted_rows(read_table(life.path, 60)).equals(rows[60])


def test_every_version_of_a_week(tmp_path, monkeypatch):
    """A state's ``vacuum_retention_hours`` keeps every version that long, whatever is recent."""
    life = Life(monkeypatch, tmp_path / "t", vacuum_retention_hours=168)
    life.run(range(1, 60), point_every=1000)
    life.maintain(RECENT_SECS + 61)
    assert life.declared.table().kept(range(60)) == {*range(60)}


@pytest.mark.parametrize("deletion_vectors", [False, True])
def test_others_leave_points_whole(tmp_path, monkeypatch, deletion_vectors):
    """delta-rs' vacuum, clean-up of the log and checkpoint, each at its defaults."""
    life = Life(monkeypatch, tmp_path / "t", deletion_vectors=deletion_vectors)
    rows = life.run(range(1, 90))
    life.maintain(RECENT_SECS + 61)
    for _ in range(2):
        table = DeltaTable(life.path)
        table.create_checkpoint()
        table.cleanup_metadata()
        for full in (False, True):
            table.vacuum(dry_run=False, full=full)
        life.date()
        for txid in (20, 40, 60, 80, 89):
            assert sorted_rows(read_table(life.path, txid)).equals(rows[txid])
        rows |= life.run(range(90, 91))
        life.maintain(61)
    assert life.declared.table().kept(range(90)) >= {0, 20, 40, 60, 80}


def test_a_checkpoint_is_small(tmp_path, monkeypatch):
    """It has what is live, and removals of files that are still there; and it is named with its size."""
    life = Life(monkeypatch, tmp_path / "t")
    life.run(range(1, 200), point_every=1000)
    life.maintain(RECENT_SECS + 61)
    life.write(200)
    life.maintain(61)
    version = DeltaTable(life.path).version()
    rows = pq.read_table(life.path / "_delta_log" / f"{version:020d}.checkpoint.parquet")
    removed = [row["path"] for row in rows["remove"].to_pylist() if row]
    assert {path.removeprefix("_data/") for path in removed} <= files(life.path)
    named = json.loads((life.path / "_delta_log" / "_last_checkpoint").read_text())
    assert (named["version"], named["size"]) == (version, rows.num_rows)
