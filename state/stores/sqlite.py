"""The embedded store: one SQLite file, no server.

The file holds the values and each topology's epoch. The operating system decides which process leads: a lead is
an ``flock`` on a small lock file beside the database, which the kernel frees when its holder dies. If the lock fails
(somebody removes the lock file), the epoch still fences, because it is compared in the same transaction that writes.

Keep the file on a local disk: neither SQLite's write-ahead log nor ``flock`` is reliable on a network file system.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import itertools
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path

from state.stores.holder import GRACE_SECS, Holder, loss, refusal
from state.stores.paths import checked_changes, checked_path, checked_topology_id
from txtopo.api.arguments import checked_arguments
from txtopo.api.store import Change, Delete, Lead, Put, Store
from txtopo.errors import ConfigError, StopError
from txtopo.files.durable import FULL, READ_ONLY, is_read_only, make_folder, paths_in, sync_path, why_not_written
from txtopo.files.formats import COORDINATOR_STATE, Format, refuse_other
from txtopo.files.places import file_name

_SCHEMA = """
CREATE TABLE IF NOT EXISTS node (path TEXT PRIMARY KEY NOT NULL, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lead (topology_id TEXT PRIMARY KEY NOT NULL, epoch INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS format (number INTEGER PRIMARY KEY NOT NULL, needs TEXT NOT NULL);
"""
"""``format`` has the first version of txtopo that reads a format, for those that do not; the file's is its
``user_version``.

Values are in the index of their paths itself, where of a large one at most a quarter of a page is beside others. In a
table with row ids, each time that a group replaced its note the list of points had to move to another page: with 36
points, a group wrote 7 pages for 4.
"""
_POLL_SECS = 0.01
"""How often a file that is locked is tried again."""
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_LOG_BYTES = 64 << 10
"""What a write-ahead log and its index need at least."""

_ASIDE = "before-repair-"


class SqliteStore(Store):
    """A store in one SQLite file; safe to use from several threads.

    Args:
        path: the file; it and its parent folders are created if they do not exist.

    Raises:
        StopError: the file cannot be opened, or is not a store of txtopo.
    """

    busy_secs = 30.0
    """How long it waits for the file: writers have it for milliseconds, so who keeps it was stopped in the midst."""

    @checked_arguments
    def __init__(self, path: str | os.PathLike[str]) -> None:
        if "\0" in os.fspath(path):
            raise ConfigError(f"path is {path!r}, and no path has a null character")
        self.path = Path(os.path.realpath(path))  # Path.resolve raises an error of its own for a circle of links
        self._lock = threading.RLock()
        self._leads: list[SqliteLead] = []
        self._wal = self.path.with_name(f"{self.path.name}-wal")
        self._identity: os.stat_result | None = None
        with _naming_errors(self.path):
            make_folder(self.path.parent)
            self._connection = sqlite3.connect(
                self.path, timeout=self.busy_secs, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare()
                self._identity = self.path.stat()
            except BaseException:
                self._connection.close()
                raise

    def read(self, path: str) -> bytes | None:
        """Return the value at ``path``, or None."""
        with self._lock, _naming_errors(self.path):
            row = self._connection.execute("SELECT value FROM node WHERE path = ?", (checked_path(path),)).fetchone()
        return row[0] if row else None

    def children(self, path: str) -> list[str]:
        """Return the sorted names directly below ``path`` (``""``: the topology ids)."""
        with self._lock, _naming_errors(self.path):
            if path:
                query = "SELECT path FROM node WHERE path > ? AND path < ?"
                rows = self._connection.execute(query, _below(checked_path(path))).fetchall()
            else:
                rows = self._connection.execute("SELECT path FROM node").fetchall()
        start = len(path) + 1 if path else 0
        return sorted({other[start:].split("/", 1)[0] for (other,) in rows})

    def take_lead(self, topology_id: str, owner: str, epoch_min: int = 1) -> SqliteLead:
        """Take the lead of a topology, and increment its epoch; see :meth:`Store.take_lead`."""
        checked_topology_id(topology_id)
        # The lock first: a process that is refused must not raise the epoch, which would fence the leader.
        lock_path = self.path.with_name(f"{self.path.name}.{file_name(topology_id)}.lock")
        with _naming_errors(lock_path):
            lock = _take_lock(lock_path, topology_id, Holder.of_this_process(owner))
        try:
            with self._transaction() as connection:
                connection.execute(
                    "INSERT INTO lead VALUES (?, ?) "
                    "ON CONFLICT (topology_id) DO UPDATE SET epoch = max(epoch + 1, excluded.epoch)",
                    (topology_id, epoch_min),
                )
                epoch = self._stored_epoch(topology_id)
        except BaseException:
            lock.free()
            raise
        assert epoch is not None, "the epoch was written in this transaction"
        lead = SqliteLead(self, topology_id, epoch, lock)
        with self._lock:
            self._leads.append(lead)
        return lead

    def close(self) -> None:
        """Release the leads that were taken here, and close the file."""
        with self._lock:
            for lead in self._leads:
                lead.release()
            self._connection.close()

    def _prepare(self) -> None:
        self._switch_to_wal()
        # With NORMAL, a power failure may undo the last transactions in a write-ahead log.
        self._connection.execute("PRAGMA synchronous = FULL")
        if self._has_format():
            return  # without a write, which would wait for a process that was stopped in the middle of its own
        with self._transaction() as connection:
            for statement in _SCHEMA.strip().splitlines():
                connection.execute(statement)
            # In this transaction: another process may have made it since this one opened the file.
            if not self._has_format():
                newest = (COORDINATOR_STATE.number, COORDINATOR_STATE.needs)
                connection.execute("INSERT INTO format VALUES (?, ?)", newest)
                connection.execute(f"PRAGMA user_version = {COORDINATOR_STATE.number}")

    def _has_format(self) -> bool:
        """Return whether the file has a format; not if it is new. Raise a StopError if it is another one than ours."""
        stored_format = self._format()
        if stored_format.number:
            refuse_other(f"the store {self.path}", stored_format, COORDINATOR_STATE)
        return stored_format.number > 0

    def _format(self) -> Format:
        (number,) = self._connection.execute("PRAGMA user_version").fetchone()
        if number <= COORDINATOR_STATE.number:
            return Format(number, "")
        names = self._connection.execute("SELECT name FROM sqlite_master WHERE name = 'format'").fetchone()
        query = "SELECT needs FROM format WHERE number = ?"
        row = None if names is None else self._connection.execute(query, (number,)).fetchone()
        return Format(number, row[0] if row else "the one that wrote it")

    def _switch_to_wal(self) -> None:
        # SQLite's busy timeout does not apply to this statement: if several processes open a new file at the same
        # time, all but one immediately get an error that it is locked.
        deadline = time.monotonic() + self.busy_secs
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if not _is_locked_out(error) or time.monotonic() > deadline:
                    raise
                threading.Event().wait(_POLL_SECS)
            else:
                return

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _naming_errors(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                # As late as possible: COMMIT succeeds on files that were removed before it.
                self._check_in_place()
                self._connection.execute("COMMIT")
            except BaseException:
                # After some errors, a full disk for example, SQLite has rolled back by itself.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _check_in_place(self) -> None:
        if self._identity is None:  # the file is still being created
            return
        try:
            is_in_place = os.path.samestat(self.path.stat(), self._identity) and self._wal.exists()
        except FileNotFoundError:
            is_in_place = False
        if not is_in_place:
            raise StopError(
                f"the coordinator state {self.path} was removed or replaced while the topology runs; nothing more is "
                "written. Restore the folder and start again; if it is lost, 'txtopo repair' shows what can be done"
            )

    def _write(self, lead: SqliteLead, changes: Sequence[Change]) -> None:
        with self._transaction() as connection:
            stored = self._stored_epoch(lead.topology_id)
            if not lead.is_locked() or stored != lead.epoch:
                raise loss(lead.topology_id, lead.epoch, stored)
            for change in changes:
                match change:
                    case Put(path, value):
                        connection.execute("INSERT OR REPLACE INTO node VALUES (?, ?)", (path, value))
                    case Delete(path):
                        connection.execute("DELETE FROM node WHERE path = ?", (path,))
                        connection.execute("DELETE FROM node WHERE path > ? AND path < ?", _below(path))

    def _stored_epoch(self, topology_id: str) -> int | None:
        with self._lock, _naming_errors(self.path):
            query = "SELECT epoch FROM lead WHERE topology_id = ?"
            row = self._connection.execute(query, (topology_id,)).fetchone()
        return row[0] if row else None


class SqliteLead(Lead):
    """The lead of a topology in a SQLite store; made by :meth:`SqliteStore.take_lead`."""

    def __init__(self, store: SqliteStore, topology_id: str, epoch: int, lock: _FileLock) -> None:
        self.topology_id = topology_id
        self._store = store
        self._epoch = epoch
        self._lock = lock

    @property
    def epoch(self) -> int:
        """The epoch: one more than that of the last lead, unless a higher one was requested."""
        return self._epoch

    def write(self, changes: Sequence[Change]) -> None:
        """Apply all changes in order, in one SQL transaction; see :meth:`Lead.write`."""
        self._store._write(self, checked_changes(self.topology_id, changes))  # noqa: SLF001  # one module, two sides

    def is_held(self) -> bool:
        """Whether this lead still holds the lock, and no later lead was taken."""
        return self.is_locked() and self._store._stored_epoch(self.topology_id) == self._epoch  # noqa: SLF001

    def is_locked(self) -> bool:
        """Whether this lead still locks the lock file."""
        return self._lock.descriptor is not None

    def release(self) -> None:
        """Give up the lead; a second call does nothing."""
        self._lock.free()


def damage_of_store(path: Path) -> str | None:
    """Describe why the file of a store can't be read; None if it can, or if there is none.

    All of it is read, because SQLite finds most damage only where it looks.
    """
    if not path.exists():
        return None
    with _naming_errors(path), contextlib.closing(sqlite3.connect(path, timeout=SqliteStore.busy_secs)) as connection:
        try:
            (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            verdict = str(error)
    return None if verdict == "ok" else " ".join(verdict.split())


def set_damaged_store_aside(path: Path, owner: str) -> Path:
    """Rename the files of a damaged store; return where the database is now.

    Args:
        path: the database.
        owner: who does it, for whoever finds the leads held meanwhile.

    Raises:
        AlreadyRunning: a topology whose coordinator state is in the store is running.
    """
    with contextlib.ExitStack() as stack:
        for lock_path in paths_in(path.parent, f"{glob.escape(path.name)}.*.lock"):
            name = lock_path.name.removeprefix(f"{path.name}.").removesuffix(".lock").rpartition("-")[0]
            with _naming_errors(lock_path):
                stack.callback(_take_lock(lock_path, name, Holder.of_this_process(owner)).free)
        used_names = {each.name for each in paths_in(path.parent, f"{glob.escape(path.name)}*.{_ASIDE}*")}
        number = next(n for n in itertools.count(1) if not any(name.endswith(f"{_ASIDE}{n}") for name in used_names))
        # The database first: after a crash here, SQLite removes what is left beside a database that is missing.
        for suffix in ("", "-wal", "-shm"):
            file = path.with_name(f"{path.name}{suffix}")
            with _naming_errors(file), contextlib.suppress(FileNotFoundError):
                file.rename(file.with_name(f"{file.name}.{_ASIDE}{number}"))
        sync_path(path.parent)
        return path.with_name(f"{path.name}.{_ASIDE}{number}")


class _FileLock:
    """A lock file that this process has locked."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor: int | None = descriptor
        _LOCKS.add(self)

    def free(self) -> None:
        """Unlock it. The file stays, because after a removal two processes could lock two different files."""
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is not None:
            # Before the lock is free: afterwards this would erase the record of the next holder. A disk that has turned
            # read-only keeps the record, which says nothing once the lock is free.
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
            os.close(descriptor)

    def forget(self) -> None:
        """Close it in a forked child, which must not keep its parent's lock alive."""
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is not None:
            os.close(descriptor)


_LOCKS: weakref.WeakSet[_FileLock] = weakref.WeakSet()


def _forget_locks() -> None:
    for lock in list(_LOCKS):
        lock.forget()


os.register_at_fork(after_in_child=_forget_locks)


def _take_lock(path: Path, topology_id: str, holder: Holder) -> _FileLock:
    """Lock a file and write the holder to it; raise AlreadyRunning if another process holds the lock."""
    # The kernel frees a lock shortly after its holder was killed, and a holder writes its record shortly after it has
    # locked. So one refusal says little.
    deadline = time.monotonic() + GRACE_SECS
    while True:
        # O_CLOEXEC: a program that this process starts would otherwise keep the lock beyond its death.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            current_holder = Holder.from_bytes(_content(descriptor))
            os.close(descriptor)
            if time.monotonic() > deadline:
                raise refusal(topology_id, current_holder) from None
            threading.Event().wait(_POLL_SECS)
            continue
        if _is_file(descriptor, path):
            try:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, holder.to_bytes(), 0)
            except OSError:
                os.close(descriptor)  # this process would hold the lock, without a name, for as long as it lives
                raise
            return _FileLock(descriptor)
        os.close(descriptor)


def _content(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def _is_file(descriptor: int, path: Path) -> bool:
    # Between open and flock, another process may have removed and recreated the file.
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


def _below(path: str) -> tuple[str, str]:
    """Return the exclusive bounds of all paths below ``path``; "0" is the character after "/"."""
    return f"{path}/", f"{path}0"


def _is_locked_out(error: Exception) -> bool:
    return _kind(error) == sqlite3.SQLITE_BUSY


def _is_damage(error: Exception) -> bool:
    return _kind(error) in _DAMAGE


def _why_not_written(path: Path, error: Exception) -> str | None:
    """Return what is wrong with the disk, which SQLite may call an I/O error, or a file that can't be opened."""
    if _kind(error) == sqlite3.SQLITE_FULL:
        return FULL
    why = why_not_written(error)
    if why is not None:
        return why
    if is_read_only(path.parent):
        return READ_ONLY
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return None
    return FULL if disk.f_bavail * disk.f_frsize < _LOG_BYTES else None


def _kind(error: Exception) -> int:
    # The lowest byte is the kind of error. Errors that do not come from SQLite have no code.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@contextlib.contextmanager
def _naming_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        if _is_locked_out(error):
            raise StopError(
                f"the store {path} stays locked by another process: a process that was about to "
                "write to it is stopped or hangs. Let it continue or end it, and start again"
            ) from error
        if _is_damage(error):
            raise StopError(
                f"the store {path} is damaged, or another file: {error}; restore it from the same backup as the "
                "tables, or run 'txtopo repair', which puts it aside and rebuilds what was in it from the journal"
            ) from error
        if (why := _why_not_written(path, error)) is not None:
            raise StopError(
                f"the store {path} cannot be written: {why} ({error}); mend that and start again"
            ) from error
        raise StopError(
            f"the store {path} cannot be read or written: {error}; check that it is on a local disk with free space, "
            "that this process has write permission, and that it is a store of txtopo"
        ) from error
