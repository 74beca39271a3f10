"""A log that has its newest versions, and of older ones those of points alone."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from state import DeltaState, TransactionalValue, read_table
from state.delta.log.entries import kept_entries, undone_to
from state.delta.log.kept import KeptLog
from state.delta.log.location import Location
from tests.state.delta.read.test_readers_during_upkeep import held_readers
from txtopo import Fields
from txtopo.errors import StateAccessError

VECTORS = pytest.mark.parametrize("deletion_vectors", [False, True])


def declared(path, deletion_vectors=False):
    return DeltaState(path, Fields("id: long"), Fields("n: long"), deletion_vectors=deletion_vectors)


def leave(path, *points):
    """Leave the versions of points, and what comes after the last one."""
    for version in points:
        DeltaTable(path, version=version).create_checkpoint()
    for file in (path / "_delta_log").glob("*.json"):
        if int(file.stem) < max(points) and int(file.stem) not in points:
            file.unlink()


def filled(path, txids, *, deletion_vectors=False):
    """Return a table in which the id 1 has the number of each transaction in turn; its version is one more."""
    opened = declared(path, deletion_vectors).open("topology", "s", "life", 1)
    for txid in txids:
        opened.write(txid, {1: TransactionalValue(txid, txid), txid + 10: TransactionalValue(txid, 0)})
    return opened


def log_of(path):
    return KeptLog.of(Location.resolve(str(path), None).folder)


def shown(path, txid):
    rows = read_table(path, txid)
    return dict(zip(rows["id"].to_pylist(), rows["n"].to_pylist(), strict=True))[1]


@pytest.mark.slow
@VECTORS
def test_the_versions_of_points_are_kept(tmp_path, deletion_vectors):
    """They are read, by number too, compared and returned to; those in between are not, and nothing else is shown."""
    path = tmp_path / "t"
    filled(path, range(1, 11), deletion_vectors=deletion_vectors)
    stray = (path / "_delta_log" / f"{6:020d}.json").read_bytes()
    leave(path, 4, 7, 10)
    (path / "_delta_log" / f"{6:020d}.json").write_bytes(stray)  # as a crash in a deletion leaves it
    assert log_of(path).versions() == [4, 7, 10, 11]
    table = declared(path, deletion_vectors).table()
    assert table.kept(range(12)) == {txid for txid in range(12) if table.is_kept(txid)} == {0, 3, 6, 9, 10}
    assert [shown(path, txid) for txid in (3, 6, 9, 10)] == [3, 6, 9, 10]
    for txid in (4, 5, 7, 8):
        with pytest.raises(StateAccessError, match="lies between two points"):
            read_table(path, txid)
        assert read_table(path, txid, nearest=True).equals(read_table(path, txid // 3 * 3))
        with pytest.raises(StateAccessError, match="is no longer kept"):  # what was written in between is not known
            declared(path, deletion_vectors).open_as_of("topology", "s", txid)
    assert declared(path, deletion_vectors).open_as_of("topology", "s", 6).last_txid == 6
    with pytest.raises(StateAccessError, match="no longer keeps its version"):
        read_table(path, 2)
    opened = declared(path, deletion_vectors).open("topology", "s", "life", 2)
    opened.roll_back(6)
    opened.write(7, {1: TransactionalValue(7, 77)})
    assert [shown(path, txid) for txid in (3, 6, 7)] == [3, 6, 77]
    assert table.kept(range(12)) == {txid for txid in range(12) if table.is_kept(txid)} == {0, 3, 6, 7}


def test_the_first_version_needs_no_checkpoint(tmp_path):
    """Those after it need none either; an entry that is left without all before it is no version."""
    path = tmp_path / "t"
    filled(path, range(1, 4))
    assert log_of(path).versions() == [0, 1, 2, 3, 4]
    entries = {version: (path / "_delta_log" / f"{version:020d}.json").read_bytes() for version in range(5)}
    leave(path, 3)
    assert log_of(path).versions() == [3, 4]
    for version, versions in ((1, [3, 4]), (0, [0, 1, 3, 4])):
        (path / "_delta_log" / f"{version:020d}.json").write_bytes(entries[version])
        assert log_of(path).versions() == versions


@pytest.mark.slow
def test_every_reader_opens_a_point(tmp_path):
    """With the entry beside its checkpoint, a version needs no other before it."""
    path = tmp_path / "t"
    filled(path, range(1, 11))
    before = {version: pa.table(DeltaTable(path, version=version).scan(columns=["id"])).num_rows for version in (4, 7)}
    leave(path, 4, 7, 10)
    for version in (4, 7):
        for name, read in held_readers(path, version).items():
            assert read().num_rows == before[version], name


def test_turns_are_known_over_a_gap(tmp_path):
    """The versions that restored another one are there, and if one is not, the table no longer knows."""
    path = tmp_path / "t"
    filled(path, range(1, 7)).roll_back(3)
    for epoch in (2, 3):
        filled_again = declared(path).open("topology", "s", "life", epoch)
        filled_again.write(4 if epoch == 2 else 9, {})
    location = Location.resolve(str(path), None)
    latest = DeltaTable(path).version()
    leave(path, 3, 8, latest)
    txid_of = lambda entry: None if entry.restored is None else entry.txid
    assert [undone_to(kept_entries(location, latest), latest, epoch, 8, txid_of) for epoch in (0, 1, 2)] == [
        3,
        None,
        None,
    ]
    assert [undone_to(kept_entries(location, latest), latest, epoch, 7, txid_of) for epoch in (0, 1, 2)] == [
        0,
        None,
        None,
    ]


def test_a_gap_is_no_damage(tmp_path):
    """What is told of a table that can't be read is not that old versions are gone."""
    path = tmp_path / "t"
    filled(path, range(1, 11))
    leave(path, 4, 10)
    (path / "_delta_log" / f"{11:020d}.json").write_text("{")
    with pytest.raises(StateAccessError, match=f"{11:020d}.json is damaged"):
        read_table(path)
