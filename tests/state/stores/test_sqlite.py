"""Tests of the embedded store."""

import errno
import fcntl
import os
import shutil
import signal
import sqlite3
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from state.stores.holder import Holder
from state.stores.sqlite import SqliteStore
from tests.full_disk import no_file_larger_than
from tests.processes import python
from txtopo.api.store import Delete, Put, Store
from txtopo.errors import AlreadyRunning, ConfigError, LostLead, StopError
from txtopo.files.places import file_name
from txtopo.testing.conformance.store import StoreConformance, StorePlace, holding_process


class SqliteStorePlace(StorePlace):
    def __init__(self, path) -> None:
        self.path = path
        self.opening = f"from state.stores.sqlite import SqliteStore; store = SqliteStore({os.fspath(path)!r})"

    def open(self) -> Store:
        return SqliteStore(self.path)

    def usurp(self, topology_id: str, holder: Store) -> None:
        # What a lock cannot help against: somebody tidies up the lock file of a running topology.
        lock_path(self.path, topology_id).unlink()


class TestSqliteStore(StoreConformance):
    @pytest.fixture
    def place(self, tmp_path) -> StorePlace:
        return SqliteStorePlace(tmp_path / "folder" / "store.db")


def lock_path(path, topology_id):
    return path.with_name(f"{path.name}.{file_name(topology_id)}.lock")


def test_it_is_one_durable_file(tmp_path):
    """Every write is synced to the disk before it returns; any SQLite program can look at it."""
    store = SqliteStore(tmp_path / "store.db")
    store.take_lead("a", "test").write([Put("a/x", b"v")])
    assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    with sqlite3.connect(tmp_path / "store.db") as other:
        assert other.execute("SELECT path, value FROM node").fetchall() == [("a/x", b"v")]
    store.close()


def test_what_a_write_costs_does_not_depend_on_what_else_is_there(tmp_path):
    """A group of transactions writes as many bytes beside a long list of points as beside a short one."""

    def written(points_bytes: int, note_bytes: int) -> int:
        with closing(SqliteStore(tmp_path / f"{points_bytes}-{note_bytes}.db")) as store:
            lead = store.take_lead("a", "test")
            lead.write([Put("a/format", b"-" * 30), Put("a/points", b"-" * points_bytes)])
            for txid in range(50):
                lead.write([Put(f"a/metadata/{txid + 1:020d}", b"-" * 60)])
                done = [Put("a/committed", b"-" * 500), Delete(f"a/metadata/{txid:020d}")]
                lead.write([*done, Put("a/group", b"-" * note_bytes)])
            return store._wal.stat().st_size  # SQLite takes 1,000 pages into the database at a time, and this is fewer

    assert written(36 * 40, 2_500) <= 1.05 * written(40, 2_500)
    assert written(36 * 40, 9_000) <= 1.05 * written(40, 9_000)


def test_same_file_by_another_name_is_the_same_store(tmp_path):
    """A link to the file does not lead around the lock."""
    store = SqliteStore(tmp_path / "store.db")
    store.take_lead("a", "test")
    (tmp_path / "link.db").symlink_to(tmp_path / "store.db")
    other = SqliteStore(tmp_path / "link.db")
    with pytest.raises(AlreadyRunning):
        other.take_lead("a", "test")
    store.close()
    other.close()


def test_epoch_bumped_behind_its_back_fences(tmp_path):
    """The epoch is compared in the transaction that writes, so a lead that only believes is refused."""
    store = SqliteStore(tmp_path / "store.db")
    lead = store.take_lead("a", "test")
    with sqlite3.connect(tmp_path / "store.db") as other:
        other.execute("UPDATE lead SET epoch = 7")
    with pytest.raises(LostLead, match=r"'a', epoch 1, is lost: epoch 7"):
        lead.write([Put("a/x", b"v")])
    assert (lead.is_held(), store.read("a/x")) == (False, None)
    store.close()


def test_wiped_epoch_fences(tmp_path):
    """A lead whose epoch is gone from the store writes nothing, and says that the store was wiped."""
    store = SqliteStore(tmp_path / "store.db")
    lead = store.take_lead("a", "test")
    with sqlite3.connect(tmp_path / "store.db") as other:
        other.execute("DELETE FROM lead")
    with pytest.raises(LostLead, match="wiped"):
        lead.write([Put("a/x", b"v")])
    store.close()


@pytest.mark.slow
def test_forked_child_does_not_keep_the_lead(tmp_path):
    """A child process that was forked from the holder and outlives it does not hold the lead."""
    program = """
import os, sys, threading
from state.stores.sqlite import SqliteStore
lead = SqliteStore(sys.argv[1]).take_lead("a", "parent")
child = os.fork()
if child == 0:
    print(os.getpid(), lead.is_held(), flush=True)
threading.Event().wait()
"""
    with python("-c", program, tmp_path / "store.db") as parent:
        child, is_held = parent.stdout.readline().split()
        store = SqliteStore(tmp_path / "store.db")
        try:
            with pytest.raises(AlreadyRunning, match=f"'parent', process {parent.pid}"):
                store.take_lead("a", "second")
            parent.kill()
            assert (is_held, store.take_lead("a", "second").epoch) == ("False", 2)
        finally:
            os.kill(int(child), signal.SIGKILL)
    store.close()


@pytest.mark.slow
def test_stopped_holder_still_holds(tmp_path):
    """A holder that only stands still (SIGSTOP) is alive: no one else gets the lead."""
    place = SqliteStorePlace(tmp_path / "store.db")
    store = place.open()
    with holding_process(place, "a", "sleeping") as (process, _):
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(AlreadyRunning, match="'sleeping'"):
            store.take_lead("a", "second")
    store.close()


def test_holder_stopped_while_it_writes_is_named(tmp_path):
    """Whoever comes while the holder has the file locked for a write is told of the holder, not of the lock."""
    holding = SqliteStore(tmp_path / "store.db")
    holding.take_lead("a", "holder of a")
    with closing(sqlite3.connect(tmp_path / "store.db")) as writing:
        writing.execute("BEGIN IMMEDIATE")
        other = SqliteStore(tmp_path / "store.db")
        with pytest.raises(AlreadyRunning, match="holder of a"):
            other.take_lead("a", "another one")
        other.close()
        holding.close()


class Impatient(SqliteStore):
    """Waits for nobody for long."""

    busy_secs = 0.05


def test_file_that_stays_locked_is_told(tmp_path):
    """A write that another process keeps from being made ends with an error that says what to do."""
    store = Impatient(tmp_path / "store.db")
    with closing(sqlite3.connect(tmp_path / "store.db")) as writing:
        writing.execute("BEGIN IMMEDIATE")
        with pytest.raises(StopError, match=r"store\.db stays locked by another process: .* is stopped or hangs"):
            store.take_lead("a", "test")
    store.take_lead("a", "test")
    store.close()


def test_lock_without_a_name_is_refused(tmp_path):
    """A lock whose file holds no name is refused all the same."""
    store = SqliteStore(tmp_path / "store.db")
    store.take_lead("a", "test")
    lock_path(tmp_path / "store.db", "a").write_bytes(b'{"owner": ')
    with pytest.raises(AlreadyRunning, match="left no name"):
        store.take_lead("a", "second")
    store.close()


def test_a_lock_on_a_full_disk_is_not_kept(tmp_path):
    """Who can't write its name into the lock file has no lead, and the next one of the same process gets it."""
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        with no_file_larger_than(0), pytest.raises(StopError, match=r"\.lock cannot be written: the disk is full"):
            store.take_lead("t", "first")
        store.take_lead("t", "second").release()


def test_a_full_disk_that_sqlite_calls_an_error(tmp_path, monkeypatch):
    """SQLite has no word of its own for a log that can't grow."""
    full = os.statvfs_result([4096, 4096, 100, 0, 0, 100, 100, 100, 0, 255])
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        lead = store.take_lead("t", "me")
        monkeypatch.setattr(os, "statvfs", lambda _path: full)
        with (
            no_file_larger_than(4096),
            pytest.raises(StopError, match=r"store\.db cannot be written: the disk is full"),
        ):
            lead.write([Put("t/a", b"x" * 100_000)])
        lead.write([Put("t/a", b"x" * 100_000)])
        lead.release()


def test_a_read_only_disk_that_sqlite_calls_an_error(tmp_path, monkeypatch):
    """As on the second start after the disk's first failure."""
    (tmp_path / "store.db").mkdir()  # a file that can't be opened
    read_only = os.statvfs_result([4096, 4096, 100, 100, 100, 100, 100, 100, os.ST_RDONLY, 255])
    monkeypatch.setattr(os, "statvfs", lambda _path: read_only)
    with pytest.raises(StopError, match=r"store\.db cannot be written: the file system is read-only \(unable to open"):
        SqliteStore(tmp_path / "store.db")


def test_a_disk_that_turns_read_only(tmp_path, monkeypatch):
    """As its kernel makes it after an error, while files are open: it is named, and the lead is given up all the same."""

    def refused(*_arguments, **_options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with closing(SqliteStore(tmp_path / "store.db")) as store:
        lead = store.take_lead("t", "first")
        with monkeypatch.context() as patched, no_file_larger_than(0):
            patched.setattr(os, "open", refused)
            patched.setattr(os, "ftruncate", refused)
            with pytest.raises(StopError, match=r"store\.db cannot be written: the file system is read-only \("):
                lead.write([Put("t/a", b"x" * 100_000)])
            lead.release()
        store.take_lead("t", "second").release()


def test_lock_file_that_is_removed_while_it_is_locked(tmp_path, monkeypatch):
    """The lead is held by the file that the next process finds, not by one that is gone."""
    path = lock_path(tmp_path / "store.db", "a")

    def lock_and_lose(descriptor, how):
        monkeypatch.undo()
        fcntl.flock(descriptor, how)
        path.unlink()

    with closing(SqliteStore(tmp_path / "store.db")) as store:
        monkeypatch.setattr(fcntl, "flock", lock_and_lose)
        store.take_lead("a", "first")
        with pytest.raises(AlreadyRunning, match="'first'"):
            store.take_lead("a", "second")


@pytest.mark.parametrize(
    ("name", "how"), [("store.db", "removed"), ("store.db", "replaced"), ("store.db-wal", "removed")]
)
def test_file_that_is_no_longer_in_place(tmp_path, name, how):
    """Nothing is written to a file that nobody would find again."""
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        lead = store.take_lead("a", "test")
        (tmp_path / name).rename(tmp_path / "before")
        if how == "replaced":
            shutil.copy(tmp_path / "before", tmp_path / name)
        with pytest.raises(StopError, match="was removed or replaced"):
            lead.write([Put("a/x", b"v")])


def test_name_of_a_dead_holder_is_overwritten(tmp_path):
    """What a dead holder left in the lock file is in nobody's way."""
    store = SqliteStore(tmp_path / "store.db")
    dead = Holder("dead", 2**22 + 1, "here", "machine", "1", "t" * 5000)
    lock_path(tmp_path / "store.db", "a").write_bytes(dead.to_bytes())
    store.take_lead("a", "living")
    with pytest.raises(AlreadyRunning, match="'living'"):
        store.take_lead("a", "second")
    store.close()


@pytest.mark.slow
def test_only_one_of_many_gets_the_lead(tmp_path):
    """Of processes that ask at once, on a file that none of them has seen, one gets the lead."""
    program = """
import sys
from state.stores.sqlite import SqliteStore
from txtopo.errors import AlreadyRunning
sys.stdin.readline()
try:
    epoch = SqliteStore(sys.argv[1]).take_lead("a", sys.argv[2]).epoch
    print("leads", epoch, flush=True)
except AlreadyRunning:
    print("refused", flush=True)
sys.stdin.readline()
"""
    processes = [
        python("-c", program, tmp_path / "store.db", f"process {number}", stdin=subprocess.PIPE) for number in range(3)
    ]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = sorted(process.stdout.readline().strip() for process in processes)
    for process in processes:
        process.communicate("end\n")
    assert answers == ["leads 1"] + ["refused"] * 2


@pytest.mark.slow
def test_two_topologies_write_from_two_processes(tmp_path):
    """Leads of two topologies in one file write at once, each waiting for the other's transaction."""
    program = """
import sys
from state.stores.sqlite import SqliteStore
from txtopo.api.store import Put
store = SqliteStore(sys.argv[1])
lead = store.take_lead(sys.argv[2], "test")
for number in range(50):
    lead.write([Put(f"{sys.argv[2]}/{number}", b"v")])
print("done", flush=True)
"""

    def write(topology_id):
        with python("-c", program, tmp_path / "store.db", topology_id) as process:
            return process.stdout.readline()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(write, "ab")) == ["done\n"] * 2
    store = SqliteStore(tmp_path / "store.db")
    assert [len(store.children(topology_id)) for topology_id in "ab"] == [50, 50]
    store.close()


@pytest.mark.parametrize("topology_id", ["", "a/b", "/", "\ud800", "x" * 2000])
def test_bad_topology_id_is_refused(tmp_path, topology_id):
    """A topology id that cannot be a part of a path is refused before anything is made for it."""
    store = SqliteStore(tmp_path / "store.db")
    with pytest.raises(ConfigError, match="topology id"):
        store.take_lead(topology_id, "test")
    assert not list(tmp_path.glob("*.lock"))
    store.close()


def test_other_file_is_refused(tmp_path):
    """A file that is no SQLite database is named in the error, and stays as it is."""
    (tmp_path / "notes.txt").write_text("these are notes, not a database" * 50)
    with pytest.raises(StopError, match=r"notes\.txt is damaged, or another file"):
        SqliteStore(tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text().startswith("these are notes")


def test_folder_that_cannot_be_made_is_refused(tmp_path):
    """A path below a file is an error that names it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StopError, match=r"file/store\.db cannot be read or written"):
        SqliteStore(tmp_path / "file" / "store.db")


def test_circle_of_links_is_refused(tmp_path):
    """So is a file, or a folder above it, that is a link to itself."""
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for path in (tmp_path / "circle", tmp_path / "circle" / "store.db"):
        with pytest.raises(StopError, match="cannot be read or written"):
            SqliteStore(path)


def test_later_format_is_refused(tmp_path):
    """A store that a later txtopo has written is left alone, and the version that reads it is named."""
    SqliteStore(tmp_path / "store.db").close()
    with closing(sqlite3.connect(tmp_path / "store.db")) as other, other:
        other.execute("INSERT INTO format VALUES (99, '7.5.0')")
        other.execute("PRAGMA user_version = 99")
    with pytest.raises(StopError, match=r"format 99, .*up to 9.*: 7\.5\.0 or newer"):
        SqliteStore(tmp_path / "store.db")


def test_closed_store_says_so(tmp_path):
    """Use after close() is an error that names the file."""
    store = SqliteStore(tmp_path / "store.db")
    lead = store.take_lead("a", "test")
    store.close()
    assert not lead.is_held()
    with pytest.raises(StopError, match=r"store\.db"):
        lead.write([Put("a/x", b"v")])
