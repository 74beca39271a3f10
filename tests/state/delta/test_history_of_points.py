"""What a table keeps of its past while it is written: all that is recent, and the versions of points."""

import contextlib
import json
from collections import Counter

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import state.delta.upkeep.rounds
import state.delta.writer
from state import read_table
from state.delta.log.data_files import DATA_FOLDER
from state.delta.read.history import look_up
from tests.journals import entered
from tests.state.delta.delta_tables import LARGE, maintain, merge_at_once
from tests.state.delta.expiring.expiring_tables import held
from tests.state.delta.table_life import (
    LIVES,
    RECENT_SECS,
    Life,
    LifeOfRowsThatExpire,
    files,
    places,
    rows_after,
    sorted_rows,
)
from tests.variants import variants
from txtopo.api.state import History
from txtopo.errors import LostLead, StateAccessError
from txtopo.files.folder import LocalFolder
from txtopo.journal.ending import METADATA_DIR
from txtopo.journal.entries import JournalHeader, JournalTable
from txtopo.journal.folders import find_journal
from txtopo.journal.writer import JournalWriter
from txtopo.transactional.recovery.points import KeptPoints


@pytest.mark.slow
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


@pytest.mark.slow
def test_writes_that_no_checkpoint_was_made_for_go_in_time(tmp_path, monkeypatch):
    """Where so much is kept that the last writes are not worth one, they go, too, once nothing more is written."""
    life = Life(monkeypatch, tmp_path / "t", upkeep={"kept_per_version": 1}, upkeep_every_writes=1)
    life.run(range(1, 13), point_every=1)
    life.run([13], point_every=100)
    life.maintain(RECENT_SECS + 61)  # now time alone leaves nothing more to remove
    checkpoints = {*(life.path / "_delta_log").glob("*.checkpoint.parquet")}
    life.run([14], point_every=100)
    assert {*(life.path / "_delta_log").glob("*.checkpoint.parquet")} == checkpoints
    life.maintain(RECENT_SECS + 61)
    assert life.declared.table().kept(range(15)) == {0, *range(1, 13), 14}


@pytest.mark.slow
@pytest.mark.parametrize("deletion_vectors", variants(False, long=[True]))
def test_files_go_as_soon_as_nobody_needs_them(tmp_path, monkeypatch, deletion_vectors):
    """Not only at the next clean-up, which comes each minute: what is there is of the newest, recent and kept versions."""
    life = Life(monkeypatch, tmp_path / "t", deletion_vectors=deletion_vectors)
    needed: dict[int, set[str]] = {}
    for txid in range(1, 120):
        life.write(txid, every_secs=6)
        if txid % 25 == 0:
            life.points.append(txid)
        life.maintain()
        newest = life.opened.version
        needed[txid] = {place.rpartition("/")[2] for place in places(life.path, newest)}
        # The newest of before the recent time was the newest when that began.
        recent = {each for each in needed if (txid - each) * 6 <= RECENT_SECS + 6}
        if txid > 60:
            assert files(life.path) <= set().union(*(needed[each] for each in {*recent, *life.points}))
    life.check(*life.points, *(each for each in recent if (txid - each) * 6 < RECENT_SECS))


@pytest.mark.slow
@pytest.mark.parametrize("by", ["a newer coordinator", "a pause"])
def test_who_may_not_lead_any_more_deletes_nothing(tmp_path, monkeypatch, by):
    """A newer one may have taken an old file into the table again; so a look comes first."""
    life = Life(monkeypatch, tmp_path / "t")
    life.run(range(1, 60))
    life.maintain(61)
    before = files(life.path)
    if by == "a newer coordinator":
        newer = life.declared.open("topology", "s", "life", 2)
        newer.roll_back(36)
    life.now_secs += 30 if by == "a newer coordinator" else 150
    life.opened.keep_history(History((), RECENT_SECS, 168, life.now_secs))
    upkeep = life.opened._log_upkeep
    upkeep.schedule = attrs.evolve(upkeep.schedule, clean_up_secs=10_000)
    with contextlib.suppress(LostLead):
        maintain(life.opened)
    assert files(life.path) >= before


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("deletion_vectors", variants(True, long=[False]))
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


@pytest.mark.slow
def test_a_point_is_read_while_the_log_has_versions_whose_files_are_gone(tmp_path, monkeypatch):
    """Its rows were moved before the next write, and the files that has removed go before the log forgets the move."""
    merge_at_once(monkeypatch)
    life = Life(monkeypatch, tmp_path / "t", sizes=LARGE | {"tier_files": 2}, deletion_vectors=True)
    for txid in range(1, 51):
        life.run([txid], point_every=4)
        life.check(*(point for point in life.points if 290 <= (txid - point) * 10 <= 400))


@pytest.mark.slow
def test_a_table_is_empty_as_of_points_before_its_first_write(tmp_path, monkeypatch):
    """Others were written before, as the journal shows; without it nobody knows, and so it is between later points."""
    life = Life(monkeypatch, tmp_path / "t")
    life.run(range(5, 50))
    life.maintain(RECENT_SECS + 61)
    with pytest.raises(StateAccessError, match="no longer keeps its version as of transaction 3"):
        read_table(life.path, 3)
    tables, states = {"s": JournalTable("t", life.opened.identity)}, {"s": None, "other": None}
    header = JournalHeader("topology", "life", 1, {"spout": "repeatable"}, 0, None, tables, states)
    writer = JournalWriter(find_journal(LocalFolder(tmp_path / METADATA_DIR), "topology"), header, 1 << 40)
    for txid in range(1, 50):
        writer.enter(entered(txid, txid, 1, "other" if txid < 5 else "s"))
    for is_near in (False, True):
        assert read_table(life.path, 3, nearest=is_near).num_rows == 0
    assert look_up(life.path, ["1"], txid=3).found == 0
    with pytest.raises(StateAccessError, match="no longer keeps its version as of transaction 7"):
        read_table(life.path, 7)


@pytest.mark.slow
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


@pytest.mark.slow
def test_what_was_before_the_last_transaction_goes_although_a_start_has_followed(tmp_path, monkeypatch):
    """No checkpoint was made of it as the newest version; it gets one."""
    life = Life(monkeypatch, tmp_path / "t")
    for txid in range(1, 30):
        life.write(txid)
    life.opened = life.declared.open("topology", "s", "life", 2)
    life.date()
    for _ in range(8):
        life.maintain(61)
    assert [life.txid_of(version) for version in life.versions()] == [29, None]


@pytest.mark.slow
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
    life.opened.record_turn(40)
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


def test_a_turn_by_a_clock_that_was_ahead(tmp_path, monkeypatch):
    """A start learns of it, although it seems to be later than the versions that followed; they have no point before."""
    life = Life(monkeypatch, tmp_path / "t")
    for txid in range(1, 4):
        life.write(txid)
    life.opened = life.declared.open("topology", "s", "life", 2)
    life.opened.roll_back(2)
    life.opened.record_turn(2)
    life.date()
    life.now_secs -= 7200
    life.opened = life.declared.open("topology", "s", "life", 3)
    for txid in range(3, 9):
        life.write(txid, every_secs=100)
        life.maintain()
    life.maintain(RECENT_SECS + 61)
    table = life.declared.table()
    assert table.kept(range(9)) == {0, 8}
    assert [table.undone_to(1), table.turned_to(1)] == [2, 2]


@pytest.mark.slow
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
@pytest.mark.parametrize("kind", LIVES)
def test_others_leave_points_whole(tmp_path, monkeypatch, kind):
    """delta-rs' vacuum, clean-up of the log and checkpoint, each at its defaults."""
    life = LIVES[kind](monkeypatch, tmp_path / "t")
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


@pytest.mark.slow
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
    assert life.declared.table().describe().alteration is None


@pytest.mark.parametrize("every", variants(slow=[9], long=[1]))
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


@pytest.mark.slow
def test_a_paused_coordinator_deletes_nothing_that_its_successor_needs(tmp_path, monkeypatch):
    """It comes back with the points that it knew: the successor has gone back to one of them, and on."""
    life = Life(monkeypatch, tmp_path / "t")
    life.run(range(1, 70))
    old, look = life.opened, state.delta.upkeep.rounds._CleanUp.refresh
    paused = []

    def pausing(clean_up):
        look(clean_up)
        if not paused:
            paused.append(clean_up)
            life.opened = life.declared.open("topology", "s", "life", 2)
            life.opened.roll_back(40)
            life.points = [20, 40]

    monkeypatch.setattr(state.delta.upkeep.rounds._CleanUp, "refresh", pausing)
    life.now_secs += RECENT_SECS + 61
    old.keep_history(History((20, 60), RECENT_SECS, 168, life.now_secs))
    maintain(old)
    assert paused
    assert sorted_rows(read_table(life.path)) == rows_after(40)
    life.run(range(41, 60))
    life.maintain(RECENT_SECS + 61)
    life.check(20, 40)


@pytest.mark.slow
def test_requests_do_not_grow_with_the_points(tmp_path, monkeypatch):
    """A round of upkeep lists and reads as often, however much is kept; each thing that goes is one deletion."""
    life = Life(monkeypatch, tmp_path / "t")
    requests = Counter()
    for name in ("put", "put_new", "put_if_absent", "get", "get_range", "list", "names", "delete", "size"):
        method = getattr(LocalFolder, name)

        def counting(folder, *arguments, _name="list" if name == "names" else name, _method=method, **options):
            requests[_name] += 1
            return _method(folder, *arguments, **options)

        monkeypatch.setattr(LocalFolder, name, counting)
    seen = []
    for first in (1, 11, 21, 31):
        life.run(range(first, first + 9), point_every=2)
        life.maintain(RECENT_SECS + 61)
        life.write(first + 9)
        before = {*life.path.rglob("*")}
        requests.clear()
        life.maintain(61)
        deleted = before - {*life.path.rglob("*")}
        seen.append({name: count for name, count in requests.items() if name != "delete"})
        assert requests["delete"] == len(deleted)
    assert seen == [{"list": 8, "get": 8, "put_if_absent": 1, "put": 1}] * 4


@pytest.mark.parametrize("name", ["left.parquet", "deletion_vector_23bec54b-97ff-41aa-915c-9d0e0b7a4d2e.bin"])
def test_what_a_dead_group_has_left_goes_while_nothing_is_written(tmp_path, monkeypatch, name):
    """Its files are in no version and in no removal: their age alone makes them nobody's."""
    life = Life(monkeypatch, tmp_path / "t", upkeep={"trust_secs": -1})
    life.run(range(1, 5))
    left = life.path / DATA_FOLDER / name
    left.write_bytes(b"")
    life.date()
    for secs in (RECENT_SECS, RECENT_SECS):
        life.maintain(secs)
    assert left.exists()
    life.maintain(25 * 3600)
    assert not left.exists()


@pytest.mark.parametrize("recent_secs", [1, RECENT_SECS])
@pytest.mark.parametrize("kind", LIVES)
def test_what_stands_may_become_a_point(tmp_path, monkeypatch, kind, recent_secs):
    """However late, and whatever was merged since: its version stays whole, as recent ones do, until another follows."""
    merge_at_once(monkeypatch)
    life = LIVES[kind](monkeypatch, tmp_path / "t", recent_secs=recent_secs, files_max=1, upkeep_every_writes=3)
    kept, merged = KeptPoints(), 0

    def maintain_after(secs):
        nonlocal kept
        kept = kept.standing(life.txid, int((life.now_secs + secs) * 1000))
        life.points = [point.txid for point in kept.points]
        life.maintain(secs)

    def write():
        maintain_after(0)  # as at a decision: what was the last one until now may be a point
        life.write(life.txid + 1, every_secs=1)
        maintain_after(0)

    write()
    for _ in range(2):
        # A clean-up comes just before a slot ends, and not until the files are deleted that were merged at its begin.
        life.now_secs = (life.now_secs // 300 + 2) * 300 - 10
        maintain_after(0)
        maintain_after(14)
        for _ in range(2):
            write()
        for _ in range(31):
            maintain_after(10)
        merged += life.txid_of(DeltaTable(life.path).version()) is None
        write()
        maintain_after(1)
        life.check(*life.points)
    assert len(life.points) > 2
    assert merged or kind.startswith("keyed")


@pytest.mark.parametrize("kind", LIVES)
def test_a_start_takes_nothing_from_points_although_the_clock_was_put_back(tmp_path, monkeypatch, kind):
    """Their files have later times than the last version, as those have that a dead group has left."""
    life = LIVES[kind](monkeypatch, tmp_path / "t")
    life.run(range(1, 25), point_every=6)
    life.now_secs -= 3600
    life.write(25)
    life.declared.open("topology", "s", "life", 2).clean_up()
    life.check(*life.points, 25)
