"""Writes versions of a Delta table, as the one coordinator that may.

It writes with one handle, which it updates before each write. Each finding of that update is handled before anything
is written:

1. A newer marker: another coordinator leads. Raise LostLead.
2. The transaction itself: it is already written. Do nothing.
3. Rows that another writer has changed: the totals no longer follow from the transactions. Raise DivergenceError. The
   next start raises it too, until ``txtopo repair`` has resolved it.
4. A version that changed no row, for example a vacuum: continue.

Code that keeps what it has read from the table compares the version of the handle before it uses it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TypeVar

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from state.delta.log.damage import state_failure
from state.delta.log.entries import foreign_change
from state.delta.log.location import Location
from state.delta.log.ownership import WORLD_ERRORS, Fence
from state.delta.log.sync import sync_files, sync_log, sync_version
from txtopo.errors import DivergenceError, FailedException, StateFailure
from txtopo.failpoints import reach

__all__ = ["NextVersion", "TableWriter"]

WRITE_TRIES_MAX = 10
"""The maximum number of tries of one write if other writers take its version."""

T = TypeVar("T")


class TableWriter:
    """One coordinator's handle of a table, which has seen its marker, and what it knows of the table's versions."""

    def __init__(self, location: Location, table: DeltaTable, fence: Fence) -> None:
        self.location = location
        self.table = table
        self.fence = fence
        self.own_version = table.version()
        """The last version that this coordinator has made, by its marker or by a write."""
        self.writes = 0
        """The number of writes since the last upkeep."""
        self._seen_version = table.version()
        self._foreign_change: str | None = None

    def tries(self, txid: int) -> Iterator[NextVersion]:
        """Yield a context to write the next version in, until one lands; yield none if the transaction is visible.

        Raises:
            LostLead: a newer epoch has opened the table; nothing was written.
            DivergenceError: somebody else has changed rows; nothing was written.
            FailedException: other writers were faster each time.
        """
        for _ in range(WRITE_TRIES_MAX):
            if self.is_visible(txid):
                # Another coordinator's write, or one of ours whose answer was lost: it may not be synced yet.
                self.make_durable()
                return
            self.refuse_foreign_change(txid)
            version = NextVersion(self, txid)
            yield version
            if version.has_landed:
                return
        raise self.overtaken(txid)

    def is_visible(self, txid: int) -> bool:
        """Update the handle, check the fence, and return whether the transaction is already written."""
        with self.failing("its table cannot be read", txid):
            self.advance()
        last = self.fence.last_txid(self.table)
        return last is not None and last >= txid

    def advance(self) -> None:
        """Update the handle, check the fence, and look at the versions of other writers."""
        self.table.update_incremental()
        self.fence.check(self.table)
        self.see_others()

    def see_others(self) -> None:
        """Look at the handle's versions that this coordinator has not seen yet."""
        if self.table.version() != self._seen_version:
            self._foreign_change = self._foreign_change or self.changed_since(self.own_version)
            self._seen_version = self.table.version()

    def changed_since(self, version: int | None) -> str | None:
        """Describe a change of rows by somebody else since a version; None: since the last transaction."""
        return foreign_change(self.location, self.table, version)

    @contextlib.contextmanager
    def staging(self, txid: int) -> Iterator[None]:
        """Stage a transaction's write in this context.

        What would refuse the write refuses it now, and not only when it is made visible: then no table of the group is
        written.
        """
        self.is_visible(txid)
        self.refuse_foreign_change(txid)
        with self.failing("a write cannot be staged", txid):
            yield

    def refuse_foreign_change(self, txid: int) -> None:
        """Raise a DivergenceError if somebody else has changed rows."""
        if self._foreign_change is not None:
            last = self.fence.last_txid(self.table)
            raise DivergenceError(
                f"state {self.fence.state!r}: somebody else has changed the table at {self.location.address} "
                f"({self._foreign_change}) since its last transaction, {last}; nothing of transaction {txid} was "
                "written to it. Only txtopo may write to it; 'txtopo repair' undoes or accepts the change",
                txid=txid,
            )

    def landed(self, version: int) -> None:
        """Take note of a version that this coordinator has written on top of rows that it knew."""
        self.own_version = self._seen_version = version
        self._foreign_change = None
        self.see_others()
        self.writes += 1

    def compacted(self, version: int) -> None:
        """Take note of a compaction by this coordinator: it leaves other writers' changes unresolved."""
        if self._foreign_change is None:
            self.own_version = self._seen_version = version

    def make_durable(self) -> None:
        """Sync the table's files and the log entries since the last checkpoint."""
        if self.location.folder is None:
            return
        with self.failing("its last writes may not survive a power loss"):
            table = self.fresh_handle()
            sync_files(self.location.paths_of(table, table.file_uris()))
            sync_log(self.location.folder)

    def reading(self, read: Callable[[], T]) -> T:
        """Return the result of ``read`` on the handle's version or, if that can no longer be read, on the latest one.

        Another writer may have moved the rows to other files, and removed those that the handle knows.
        """
        with self.failing("its table cannot be read"):
            try:
                return read()
            except (FailedException, *WORLD_ERRORS):
                # With the same version, the second try would fail in the same way.
                version = self.table.version()
                self.advance()
                if self.table.version() == version:
                    raise
                return read()

    def fresh_handle(self) -> DeltaTable:
        """Return a new handle of the latest version."""
        try:
            return self.location.handle()
        except TableNotFoundError as error:
            raise DivergenceError(
                f"state {self.fence.state!r}: its table at {self.location.address} is missing; restore it, "
                "or start again from a new coordinator state",
            ) from error
        except WORLD_ERRORS as error:
            raise self.failure("its table cannot be opened", error) from error

    @contextlib.contextmanager
    def failing(self, what: str, txid: int | None = None) -> Iterator[None]:
        """Raise errors of delta-rs and the file system as a StateFailure that says what failed."""
        try:
            yield
        except WORLD_ERRORS as error:
            raise self.failure(what, error, txid) from error

    def failure(self, what: str, error: Exception, txid: int | None = None) -> StateFailure:
        """Return the error for a failure of the table, with the damaged file if one is found."""
        return state_failure(f"{self._where()}: {what}", error, self.location.folder, self.table, txid=txid)

    def overtaken(self, txid: int | None) -> StateFailure:
        """Return the error for a write whose version was taken in every try."""
        return StateFailure(f"{self._where()}: other writers were faster {WRITE_TRIES_MAX} times", txid=txid)

    def _where(self) -> str:
        return f"state {self.fence.state!r} at {self.location.address}"


class NextVersion:
    """The context of a write of the version after the handle's. If that version is taken, nothing has landed.

    1. A crash before the write leaves the table as it was. New data files are then part of no version; upkeep removes
       them.
    2. A crash after it leaves the transaction visible, and the coordinator state without it: recovery looks at the
       table, and finishes the group.
    3. A power failure before the sync may lose the version again. So the group counts only after it, and a coordinator
       that finds a transaction visible without having written it syncs the table first (see :meth:`TableWriter.tries`).

    Raises:
        LostLead: the writer that took the version was a newer coordinator.
        FailedException: the write failed for another reason.
    """

    def __init__(self, writer: TableWriter, txid: int) -> None:
        self.before = writer.table.version()
        """The version that the write is based on."""
        self.has_landed = False
        self._writer = writer
        self._txid = txid
        self._files = set(writer.table.file_uris())

    def __enter__(self) -> None:
        reach("delta.write.checked")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        writer, version = self._writer, self.before + 1
        if error is None:
            # If the write has landed and only this fails, the next try finds the transaction.
            try:
                writer.table.update_incremental()
            except WORLD_ERRORS as failure:
                error = failure
        if isinstance(error, WORLD_ERRORS):
            self._look_again(error)
            return True
        if error is not None:
            return False
        reach("delta.write.landed")
        folder = writer.location.folder
        if folder is not None:
            new_files = writer.location.paths_of(writer.table, set(writer.table.file_uris()) - self._files)
            with writer.failing("it was written, but may not survive a power loss", self._txid):
                sync_version(folder, version, new_files)
        writer.landed(version)
        self.has_landed = True
        return True

    def _look_again(self, error: Exception) -> None:
        """Open the table again after the write has raised.

        If there is a new version, it may be another writer's, or our own, whose answer was lost: the next try looks for
        the transaction.
        """
        writer = self._writer
        writer.table = writer.fresh_handle()
        writer.fence.check(writer.table)
        writer.see_others()
        if writer.table.version() == self.before:
            raise writer.failure("its table could not be written", error, self._txid) from error
