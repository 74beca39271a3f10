"""What a table keeps of its past while it is written: all that is recent, and the versions of points."""

from __future__ import annotations

import contextlib
import json
import os
import time
import types

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import state.delta.upkeep
import state.delta.writer
from state import DeltaExpiringRows, DeltaState, TransactionalValue, read_table
from state.delta.log.data_files import DATA_FOLDER, files_of
from state.delta.log.entries import read_entry
from state.delta.log.kept import KeptLog
from state.delta.log.location import Location
from tests.state.delta.delta_tables import hold_no_rows, maintain
from tests.state.delta.expiring.expiring_tables import FIELDS, held, put
from tests.variants import variants
from txtopo import Fields
from txtopo.api.state import History
from txtopo.errors import FailedException
from txtopo.files.folder import LocalFolder

RECENT_SECS = 300
BEGAN_SECS = time.time() - 24 * 3600  # delta-rs forgets the removals of the week before today


class Life:
    """A table that a transaction is written to every so many seconds, by a clock of its own."""

    def __init__(self, monkeypatch, path, *, recent_secs=RECENT_SECS, epoch=1, **options):
        hold_no_rows(monkeypatch)
        clock = types.SimpleNamespace(time=lambda: self.now_secs, clock_gettime=lambda _clock: self.now_secs)
        monkeypatch.setattr(state.delta.writer, "time", clock)
        self.now_secs = BEGAN_SECS
        self.txid = 0
        self.path = path
        self.declared = self._declare(**options)
        self.opened = self.declared.open("topology", "s", "life", epoch)
        self.recent_secs = recent_secs
        self.rewind_hours = 168
        self.points: list[int] = []
        self._dated: set[str] = set()
        self.date()

    def _declare(self, **options):
        return DeltaState(self.path, Fields("id: long"), Fields("n: long"), **options)

    def date(self):
        """Let the files that are new be of now."""
        for file in [*(self.path / "_delta_log").iterdir(), *(self.path / DATA_FOLDER).iterdir()]:
            if str(file) not in self._dated:
                self._dated.add(str(file))
                os.utime(file, (self.now_secs,) * 2)

    def write(self, txid, *, every_secs=10):
        """Write a transaction, which puts its number into the keys of its last digits, and do the upkeep."""
        self.now_secs += every_secs
        self._write(txid)
        self.txid = txid
        self.date()

    def _write(self, txid):
        self.opened.write(txid, {key: TransactionalValue(txid, txid) for key in keys_of(txid)})

    def maintain(self, later_secs=0):
        """Do the upkeep that is due, as of some time later; wait for it."""
        self.now_secs += later_secs
        self.opened.keep_history(History(tuple(self.points), self.recent_secs, self.rewind_hours, self.now_secs))
        if self.opened.is_upkeep_due:
            with contextlib.suppress(FailedException):  # of the round before: a run goes on, too
                maintain(self.opened)
        self.date()

    def versions(self):
        """Return the versions that can be opened."""
        return KeptLog.of(Location.resolve(str(self.path), None)).versions()

    def txid_of(self, version):
        """Return the transaction that a version has made visible; None if none."""
        entry = read_entry(Location.resolve(str(self.path), None), version)
        return None if entry is None else entry.txid

    def run(self, txids, *, point_every=20):
        """Write transactions, of which some are points."""
        for txid in txids:
            self.write(txid)
            if txid % point_every == 0:
                self.points.append(txid)
            self.maintain()

    def check(self, *txids):
        """Check that the table has the rows as of some transactions."""
        for txid in txids:
            assert sorted_rows(read_table(self.path, txid)) == rows_after(txid), txid


class LifeOfRowsThatExpire(Life):
    """Of a table as committers have for what they remember for a while."""

    def _declare(self, **options):
        return DeltaExpiringRows(self.path, FIELDS, "end", **options)

    def _write(self, txid):
        put(self.opened, (txid, [("k", 10 * txid + 100)], 10 * txid))


def keys_of(txid):
    return {txid % 7, txid % 3}


def rows_after(txid):
    """Return the rows of a table that all transactions up to one have written."""
    last = {key: each for each in range(1, txid + 1) for key in keys_of(each)}
    return sorted((key, each, each) for key, each in last.items())


def sorted_rows(rows: pa.Table):
    return sorted(zip(*rows.to_pydict().values(), strict=True))


def files(path):
    return {file.name for file in (path / DATA_FOLDER).iterdir()}


@pytest.mark.few(1)
@pytest.mark.parametrize("deletion_vectors", [False, True])
def test_what_is_recent_and_the_points_stay(tmp_path, monkeypatch, deletion_vectors):
    """They are read and returned to; the rest is gone, files and log, while the table is written."""
    life = Life(monkeypatch, tmp_path / "t", deletion_vectors=deletion_vectors)
    life.run(range(1, 101))
    life.maintain(61)
    recent = {txid for txid in range(1, 101) if (100 - txid) * 10 + 61 <= RECENT_SECS}
    kept = life.declared.table().kept(range(101))
    assert kept >= {0, *life.points, *recent}
    assert len(kept) <= len(life.points) + (RECENT_SECS + 2 * 60) // 10 + 50
    life.check(*life.points, *recent)
    life.maintain(RECENT_SECS + 61)
    assert life.declared.table().kept(range(101)) == {0, *life.points}
    life.points = life.points[-2:]
    life.maintain(61)
    assert life.declared.table().kept(range(101)) == {0, 80, 100}
    live = {place for version in (*life.versions(),) for place in places(life.path, version)}
    assert files(life.path) <= {name.rpartition("/")[2] for name in live}
    life.opened.roll_back(80)
    assert sorted_rows(read_table(life.path)) == rows_after(80)


def test_tables_of_committers_are_bounded_as_others(tmp_path, monkeypatch):
    """What a committer remembers for a while has no week of its own."""
    life = LifeOfRowsThatExpire(monkeypatch, tmp_path / "t")
    for txid in range(1, 100):
        life.write(txid)
        if txid % 20 == 0:
            life.points.append(txid)
        life.maintain()
    life.maintain(RECENT_SECS + 61)
    life.maintain(61)
    assert life.declared.table().kept(range(100)) == {0, *life.points, 99}
    assert held(read_table(life.path, 40)) == [("k", 10 * txid + 100) for txid in range(31, 41)]
    live = {place for version in life.versions() for place in places(life.path, version)}
    assert {f"{DATA_FOLDER}/{name}" for name in files(life.path)} <= live


def places(path, version):
    location = Location.resolve(str(path), None)
    return {place for file in files_of(location, location.handle(version)).values() for place in file.places}


@pytest.mark.slow
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
    life.run(range(1, 60))
    for _ in range(8):
        life.maintain(61)
    assert life.declared.table().kept(range(60)) == {0, 20, 40, 59}
    before = {path: path.stat().st_mtime_ns for path in life.path.rglob("*")}
    for _ in range(3):
        life.maintain(61)
    assert {path: path.stat().st_mtime_ns for path in life.path.rglob("*")} == before
    life.points = []
    life.maintain(61)
    assert life.declared.table().kept(range(60)) == {0, 59}
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


@pytest.mark.slow
def test_turns_stay_known(tmp_path, monkeypatch):
    """A start with coordinator state of before a turn learns how far back it went, long after."""
    life = Life(monkeypatch, tmp_path / "t")
    life.run(range(1, 50))
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
    life.check(20, 40)
    life.opened.roll_back(20)
    assert sorted_rows(read_table(life.path)) == rows_after(20)


def test_a_successor_goes_on_with_the_points(tmp_path, monkeypatch):
    """What it was not there for, it finds in the log."""
    life = Life(monkeypatch, tmp_path / "t")
    life.run(range(1, 50))
    life.opened.close()
    life.opened = life.declared.open("topology", "s", "life", 2)
    life.run(range(50, 100), point_every=1000)
    life.maintain(61)
    assert life.declared.table().kept(range(100)) >= {0, 20, 40, 99}
    life.check(40)


@pytest.mark.slow
def test_every_version_of_a_week(tmp_path, monkeypatch):
    """A state's ``vacuum_retention_hours`` keeps every version that long, whatever is recent."""
    life = Life(monkeypatch, tmp_path / "t", vacuum_retention_hours=168)
    life.run(range(1, 60), point_every=1000)
    life.maintain(RECENT_SECS + 61)
    assert life.declared.table().kept(range(60)) == {*range(60)}


@pytest.mark.slow
@pytest.mark.parametrize("deletion_vectors", [False, True])
def test_others_leave_points_whole(tmp_path, monkeypatch, deletion_vectors):
    """delta-rs' vacuum, clean-up of the log and checkpoint, each at its defaults."""
    life = Life(monkeypatch, tmp_path / "t", deletion_vectors=deletion_vectors)
    life.run(range(1, 90))
    life.maintain(RECENT_SECS + 61)
    for _ in range(2):
        table = DeltaTable(life.path)
        table.create_checkpoint()
        table.cleanup_metadata()
        for full in (False, True):
            table.vacuum(dry_run=False, full=full)
        life.date()
        life.check(20, 40, 60, 80, 89)
        life.run(range(90, 91))
        life.maintain(61)
    assert life.declared.table().kept(range(90)) >= {0, 20, 40, 60, 80}


@pytest.mark.slow
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


def test_properties_say_how_long_others_keep_what_points_need(tmp_path, monkeypatch):
    """Where that is longer than Delta's defaults, or than what the table has; and no property is made shorter."""
    path = tmp_path / "t"
    life = Life(monkeypatch, path)
    life.rewind_hours = 31 * 24
    life.run(range(1, 10))
    named = {"delta.logRetentionDuration", "delta.deletedFileRetentionDuration"}
    told = lambda: {name: DeltaTable(path).metadata().configuration.get(name) for name in named}
    assert told() == dict.fromkeys(named, "interval 744 hours")
    for hours in (168, 24):
        life.rewind_hours = hours
        life.maintain(61)
        life.write(hours)
    assert told() == dict.fromkeys(named, "interval 744 hours")
    assert life.declared.table().look().alteration is None


@pytest.mark.parametrize("every", variants(20, slow=[4], long=[1]))
def test_nothing_that_is_promised_is_ever_gone(tmp_path, monkeypatch, every):
    """After any single deletion, as a crash there leaves the table, each point and the newest version is whole."""
    life = Life(monkeypatch, tmp_path / "t", deletion_vectors=True)
    delete, steps = LocalFolder.delete, []

    def looking(folder, path):
        delete(folder, path)
        steps.append(path)
        promised = {*life.points, *range(max(1, life.txid - 20), life.txid + 1)}
        if len(steps) % every == 0 and life.txid:
            assert life.declared.table().kept(promised) == promised
            life.check(min(promised))

    monkeypatch.setattr(LocalFolder, "delete", looking)
    for first in range(1, 100, 9):
        life.run(range(first, first + 9), point_every=9)
        life.points = life.points[-3:]
    assert len(steps) > 100
    life.maintain(RECENT_SECS + 61)
    life.check(life.points[0])


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 2, 10, 40, 60])
def test_a_deletion_that_dies(tmp_path, monkeypatch, at):
    """The next coordinator finds all that is promised, and removes the rest."""
    life = Life(monkeypatch, tmp_path / "t")
    life.run(range(1, 30))
    steps = []

    def dying(folder, path):
        steps.append(path)
        if len(steps) == at:
            raise OSError("the disk is gone")
        delete(folder, path)

    delete = LocalFolder.delete
    with monkeypatch.context() as patch:
        patch.setattr(LocalFolder, "delete", dying)
        life.now_secs += 2 * RECENT_SECS
        life.run(range(30, 70))
    assert len(steps) > at
    life.opened = life.declared.open("topology", "s", "life", 2)
    assert life.declared.table().kept(range(70)) >= {0, 20, 40, 60, 69}
    for _ in range(8):
        life.maintain(61)
    assert life.declared.table().kept(range(70)) == {0, 20, 40, 60, 69}
    life.check(20)
    live = {place for version in life.versions() for place in places(life.path, version)}
    assert {f"{DATA_FOLDER}/{name}" for name in files(life.path)} <= live


def test_a_paused_coordinator_deletes_nothing_that_its_successor_needs(tmp_path, monkeypatch):
    """It comes back with the points that it knew: the successor has gone back to one of them, and on."""
    life = Life(monkeypatch, tmp_path / "t")
    life.run(range(1, 70))
    old, look = life.opened, state.delta.upkeep._Deletion.look
    paused = []

    def pausing(deletion):
        look(deletion)
        if not paused:
            paused.append(deletion)
            life.opened = life.declared.open("topology", "s", "life", 2)
            life.opened.roll_back(40)
            life.points = [20, 40]

    monkeypatch.setattr(state.delta.upkeep._Deletion, "look", pausing)
    monkeypatch.setattr(state.delta.upkeep, "_LOOK_SECS", -1)
    life.now_secs += RECENT_SECS + 61
    old.keep_history(History((20, 60), RECENT_SECS, 168, life.now_secs))
    maintain(old)
    assert paused
    assert sorted_rows(read_table(life.path)) == rows_after(40)
    life.run(range(41, 60))
    life.maintain(RECENT_SECS + 61)
    life.check(20, 40)
