"""What a coordinator has put itself in the log of a table in an object store."""

from collections import Counter

from state.delta.log.entries import entry_path
from state.delta.log.location import Location
from state.delta.log.own_entries import OwnEntries, RememberedLog
from tests.object_server import ObjectStore


def test_own_entries_are_not_asked_for(bucket_server: ObjectStore) -> None:
    """They are remembered until they are deleted, or until another table is in the place of the one that has them."""
    location = Location.resolve("s3://bucket/t", bucket_server.options)
    entries = OwnEntries()
    log = RememberedLog.of(location, entries)
    assert isinstance(log, RememberedLog)
    paths = [entry_path(version) for version in range(3)]
    for number, path in enumerate(paths):
        location.folder.put(path, b"%d" % number)
        entries.keep(path, b"%d" % number)
    with bucket_server.counting() as asked:
        assert [log.folder.get(path) for path in paths] == [b"0", b"1", b"2"]
    assert asked == Counter()
    log.folder.delete(paths[0])
    assert [entries.get(path) for path in paths] == [None, b"1", b"2"]
    log.confirm(paths[2])
    assert entries.get(paths[1]) == b"1"
    location.folder.put(paths[2], b"another table's")
    log.confirm(paths[2])
    assert [entries.get(path) for path in paths] == [None, None, None]
    assert log.folder.get(paths[2]) == b"another table's"


def test_memory_is_bounded() -> None:
    """The oldest are forgotten, by their bytes and by their number."""
    entries = OwnEntries()
    for number in range(40):
        entries.keep(f"{number}", bytes(1 << 20))
    assert (entries.get("0"), entries.get("39")) == (None, bytes(1 << 20))
    for number in range(3_000):
        entries.keep(f"small-{number}", b"1")
    assert (entries.get("39"), entries.get("small-0"), entries.get("small-2999")) == (None, None, b"1")


def test_a_table_on_a_disk_is_read() -> None:
    """There a file is no request."""
    location = Location.resolve("/t", None)
    assert RememberedLog.of(location, OwnEntries()) is location
