"""The points of a table and of several together: which there are, and what is asked for between them."""

import pytest
from deltalake import DeltaTable

from state import ShownPoints, TransactionalValue, read_points, read_table
from state.delta.log.entries import read_entry
from state.delta.log.location import Location
from state.delta.read.points import GroupWrites
from tests.state.delta.log.test_kept import declared, filled, leave
from tests.state.delta.read.test_consistent import Tables
from txtopo.errors import ConfigError, StateAccessError
from txtopo.failpoints import armed


def txids(found: ShownPoints) -> tuple[list[int], int, int]:
    return [point.txid for point in found.points], found.since.txid, found.last.txid


def leave_transactions(path, application, *wanted):
    """Leave the versions of transactions, and what comes after the last one."""
    made = {}
    for version in range(DeltaTable(path).version(), -1, -1):
        entry = read_entry(Location.resolve(str(path), None), version)
        if entry is not None and entry.txid is not None:
            made.setdefault(entry.txid, version)
    leave(path, *(made[txid] for txid in wanted))


@pytest.mark.slow
def test_the_points_of_a_table(tmp_path):
    """Before the first clean-up each commit group is one; then those that are left, with the times of their writes."""
    path = tmp_path / "t"
    filled(path, range(1, 11)).close()
    assert txids(read_points(path)) == ([], 0, 10)
    leave(path, 4, 7, 9)
    found = read_points(path)
    assert txids(found) == ([3, 6], 8, 10)
    written = [read_entry(Location.resolve(str(path), None), txid + 1).written_ms for txid in (3, 6, 8, 10)]
    assert [each.written_ms for each in (*found.points, found.since, found.last)] == written
    for txid in (3, 6, 8, 9, 10):
        assert read_table(path, txid).num_rows == txid + 1
    with pytest.raises(
        StateAccessError, match=r"between two points of .*, 3, written \d{4}-.* UTC and 6, written \d{4}-"
    ):
        read_table(path, 4)
    with pytest.raises(StateAccessError, match=r"between two points of .*, 6, written .* and 8, written "):
        read_table(path, 7)
    with pytest.raises(StateAccessError, match=r"the oldest that it keeps is as of transaction 3, written \d{4}-"):
        read_table(path, 2)


@pytest.mark.slow
def test_of_many_versions_only_the_wanted_one_is_opened(tmp_path, monkeypatch):
    """To open one takes as long as to read a hundred of the log's entries, which say what is sought."""
    path, opened, handle = tmp_path / "t", [], Location.handle
    filled(path, range(1, 40)).close()
    monkeypatch.setattr(
        Location, "handle", lambda location, version=None: opened.append(version) or handle(location, version)
    )
    assert read_table(path, 20).num_rows == 21
    assert opened == [None, 21]


@pytest.mark.slow
@pytest.mark.parametrize("held", [(), (4,), (4, 5), (7,)])
def test_versions_whose_files_are_gone_are_no_points(tmp_path, held):
    """Though the log still has their entries, which stay for minutes: only those of points among them are, and are read."""
    path = tmp_path / "t"
    filled(path, range(1, 11)).close()
    for version in held:
        DeltaTable(path, version=version).create_checkpoint()
    kept = {uri for version in (*held, 8, 9, 10, 11) for uri in DeltaTable(path, version=version).file_uris()}
    for file in (path / "_data").glob("*.parquet"):
        if not any(uri.endswith(file.name) for uri in kept):
            file.unlink()
    found = read_points(path)
    assert txids(found) == ([version - 1 for version in held if version != 7], 6 if held == (7,) else 7, 10)
    for txid in (*(point.txid for point in found.points), *range(found.since.txid, 11)):
        assert read_table(path, txid).num_rows == txid + 1


@pytest.mark.slow
def test_points_after_a_table_went_back(tmp_path):
    """Those above are void, however often it went back, and before and after the log was cleaned."""
    path = tmp_path / "t"
    filled(path, range(1, 11)).close()
    leave(path, 3, 5, 7, 9)
    opened = declared(path).open("topology", "s", "life", 2)
    opened.roll_back(6)
    opened.write(7, {1: TransactionalValue(7, 77)})
    assert txids(read_points(path)) == ([2, 4], 6, 7)
    opened.roll_back(4)
    opened.write(5, {1: TransactionalValue(5, 55)})
    assert txids(read_points(path)) == ([2], 4, 5)
    leave_transactions(path, "topology/s", 2, 4, 5)  # that of 4 is what the table went back by
    assert txids(read_points(path)) == ([2], 4, 5)
    assert (read_table(path, 2).num_rows, read_table(path, 4).num_rows) == (3, 5)
    opened.roll_back(0)
    assert txids(read_points(path)) == ([], 0, 0)


def test_after_a_table_could_not_go_back(tmp_path):
    """It is at its last transaction again, and all before that are as they were, whatever is asked."""
    path = tmp_path / "t"
    filled(path, range(1, 5)).close()
    before = {txid: read_table(path, txid).sort_by("id") for txid in range(1, 5)}
    needed = {*DeltaTable(path, version=2).file_uris()} - {*DeltaTable(path).file_uris()}
    aside = [(path / file, tmp_path / f"{number}") for number, file in enumerate(needed)]

    def move(name):
        for place, other in aside if name == "delta.write.checked" else ():
            place.rename(other) if place.exists() else other.rename(place)

    opened = declared(path).open("topology", "s", "life", 2)
    with armed(move), pytest.raises(StateAccessError, match="at transaction 4 again"):
        opened.roll_back(1)
    opened.close()
    assert {txid: read_table(path, txid).sort_by("id") for txid in range(1, 5)} == before
    table = declared(path).table()
    assert (table.kept(range(5)), table.undone_to(1), txids(read_points(path))) == ({0, 1, 2, 3, 4}, 4, ([], 0, 4))
    first = path / "_delta_log" / f"{7:020d}.json"
    entry = first.read_bytes()
    leave(path, 3, 8)
    first.write_bytes(entry)  # that of a turn stays
    assert (table.kept(range(5)), txids(read_points(path))) == ({0, 2, 4}, ([2], 4, 4))
    assert read_table(path, 2).sort_by("id") == before[2]


@pytest.fixture
def tables(tmp_path):
    """Two tables, of which y is written by each fifth transaction; the points are 4, 8 and 11, the last one is 13."""
    found = Tables(tmp_path)
    journal = found.lead(1, 0)
    for txid in range(1, 14):
        names = "xy" if txid % 5 == 0 else "x"
        found.enter(journal, txid, txid, *names)
        for name in names:
            found.opened[name].write(txid, {"k": TransactionalValue(txid, txid)})
    leave_transactions(tmp_path / "x", "t/x", 4, 8, 11)
    leave_transactions(tmp_path / "y", "t/y", 5, 10)
    return found


@pytest.mark.slow
def test_the_points_of_several_tables(tables):
    """A table that a point's group has not written has the version before there; or none, if there was no write yet."""
    assert txids(read_points(tables.folder)) == ([4, 8], 11, 13)
    assert tables.seen(4) == (4, {"x": [4], "y": []})
    assert tables.seen(8) == (8, {"x": [8], "y": [5]})
    assert [tables.seen(txid) for txid in (11, 12, 13)] == [(txid, {"x": [txid], "y": [10]}) for txid in (11, 12, 13)]
    assert [tables.seen(txid, nearest=True)[0] for txid in (4, 5, 7, 8, 9, 10, 11)] == [4, 4, 4, 8, 8, 8, 11]
    assert tables.seen(10, nearest=True) == (8, {"x": [8], "y": [5]})
    for txid, before, after in ((5, 4, 8), (7, 4, 8), (9, 8, 11), (10, 8, 11)):
        with pytest.raises(
            StateAccessError, match=f"between two points of .*, {before}, written .* and {after}, written"
        ):
            tables.seen(txid)
    for options in ({}, {"nearest": True}):
        with pytest.raises(
            StateAccessError, match="no longer keep their versions as of transaction 3; the oldest point is 4,"
        ):
            tables.seen(3, **options)
    assert tables.seen(6, states=["y"]) == (6, {"y": [5]})
    with pytest.raises(ConfigError, match="there is no journal"):
        read_points(tables.folder / "elsewhere")


@pytest.mark.slow
def test_a_journal_that_begins_with_the_oldest_point(tables):
    """Its first header says what each table had then."""
    journal = tables.folder / "_txtopo" / "journal" / "t"
    (file,) = journal.iterdir()
    header, *entries = file.read_text().splitlines(keepends=True)
    for begin, states, points in ((4, '{"x":4,"y":null}', [4, 8]), (8, '{"x":8,"y":5}', [8])):
        cut = header.replace('"committed":0', f'"committed":{begin}').replace('{"x":null,"y":null}', states)
        assert cut != header
        file.write_text(cut + "".join(entries[begin:]))
        assert txids(read_points(tables.folder)) == (points, 11, 13)
        assert tables.seen(8) == (8, {"x": [8], "y": [5]})
        assert read_table(tables.folder / "y", 8)["n"].to_pylist() == [5]


def test_what_was_written_between():
    """At the ends of groups exactly."""
    writes = GroupWrites(4, 2, (5, 9), (6, 12))
    assert [writes.has_none(2, txid) for txid in (2, 4, 5)] == [True, True, False]
    assert [writes.has_none(6, txid) for txid in (6, 8, 9, 12)] == [True, True, False, False]
    assert (writes.has_none(12, 20), writes.has_none(3, 4), writes.has_none(0, 1)) == (True, False, False)


def test_they_are_listed_by_the_command(command_line, tables):
    """Of a folder and of a table, oldest first."""
    told = command_line("state", str(tables.folder), "--points").stdout.splitlines()
    assert [line.split(",")[0] for line in told] == ["4", "8", "11", "13"]
    assert "and then each commit group up to" in told[2]
    told = command_line("state", str(tables.folder / "x"), "--points").stdout.splitlines()
    assert [line.split(",")[0] for line in told] == ["4", "8", "11", "13"]
    assert all(" written 20" in line for line in told)
