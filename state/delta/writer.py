"""Writes versions of a Delta table, as the one coordinator that may.

The writer knows the table's *head* from its own last write: a value that a look or a put replaces. A quiet table is not
read at all: the next version is put after the head, which fails if anybody has written since (see
:mod:`state.delta.log.put`). Then the writer *looks*, and handles each finding before it tries again:

1. A newer marker: another coordinator leads. Raise LostLead.
2. The transaction itself: it is already written. Make it durable.
3. Rows that another writer has changed: the totals no longer follow from the transactions. Raise DivergenceError. The
   next start raises it too, until ``txtopo repair`` has resolved it.
4. A version that changed no row, for example a vacuum: write on top of it.

The handle of delta-rs, which reads rows, may lag behind the head. It is updated when rows must be read.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from state.delta.log.damage import state_failure, unsupported
from state.delta.log.data_files import DATA_FOLDER, DataFile, DataFolder, files_of
from state.delta.log.entries import entries_from, entry_path, log_entries
from state.delta.log.growth import metadata_of
from state.delta.log.location import LOG_FOLDER, Location
from state.delta.log.own_entries import OwnEntries
from state.delta.log.ownership import WORLD_ERRORS, Fence, Numbers
from state.delta.log.put import Change, refuse_unknown, tries
from state.delta.log.sync import CHECKPOINT, sync_files, sync_log
from state.delta.read.foreign import change_since
from state.delta.upkeep.past import Removed
from state.delta.upkeep.schedule import ENTRIES_SECS, log_secs
from txtopo.columnar.rows_by_time import BEFORE_ALL
from txtopo.errors import ConfigError, DivergenceError, FailedException, StateFailure
from txtopo.failpoints import reach
from txtopo.files.durable import why_not_written
from txtopo.files.folder import Draft, LocalFolder

_KNOWN_SECS = ENTRIES_SECS / 2
"""How long the head is taken for known at most. Later, others may have written the next version, and removed its entry
from the log, behind a checkpoint; then a put would not notice it."""

_DRAFTED_MS = 1000
"""How old a draft of an entry may be, whose time is the draft's."""

_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""It goes on while the machine sleeps. It may not while a virtual machine is stopped; then the time of day jumps."""

T = TypeVar("T")


@attrs.frozen(eq=False)
class Head:
    """The last version of a table that its coordinator has written or seen.

    Args:
        version: its number.
        own_version: the last version that this coordinator has made, by its marker or by a write.
        followed: a version since which it knows of each change of rows by somebody else: that of its marker, mostly.
        foreign_change: a change of rows by somebody else since ``own_version``, in words; None if there is none.
        files: its data files, by path.
        rows: how many there are.
        last_txid: the last transaction; None before the first.
        taken: the time up to which expired rows are taken out, in µs since 1970 UTC.
        ttl: how long keys live that expire, in µs, as the table has it on record; None if it has not.
        metadata: its ``metaData``, if that has changed since a handle was updated.
        known_at: when it was the newest version last, by two clocks.
        known_secs: how long that is known from then on: less than entries of the log stay.
    """

    version: int
    own_version: int
    followed: int
    foreign_change: str | None = None
    files: Mapping[str, DataFile] = attrs.field(factory=dict)
    rows: int = 0
    last_txid: int | None = None
    taken: int = BEFORE_ALL
    ttl: int | None = None
    metadata: Mapping[str, Any] | None = None
    known_at: tuple[float, float] = (0.0, 0.0)
    known_secs: float = 0.0

    @property
    def is_known(self) -> bool:
        """Whether no later version can have been made, and its entry removed, since this one was looked up."""
        return all(abs(now - then) <= self.known_secs for now, then in zip(_now(), self.known_at, strict=True))

    def after(self, change: Change, known_at: tuple[float, float]) -> Head:
        """Return the next version, which the coordinator has made of this one by a change."""
        files = {**self.files}
        for file in change.removed:
            del files[file.path]
        files.update((file.path, file.without_bounds()) for file in change.added)
        return Head(
            self.version + 1,
            self.version + 1,
            self.followed,
            files=files,
            rows=self.rows + change.rows_grown,
            last_txid=self.last_txid if change.txid is None else change.txid,
            taken=self.taken if change.taken is None else change.taken,
            ttl=self.ttl if change.ttl is None else change.ttl,
            metadata=next((action["metaData"] for action in change.metadata if "metaData" in action), self.metadata),
            known_at=known_at,
            known_secs=self.known_secs,
        )


@attrs.frozen(eq=False)
class _Drafted:
    """A draft of the entry of a version, with its time in milliseconds since 1970, and what the version changes."""

    version: int
    time_ms: int
    change: Change
    draft: Draft

    def is_of(self, version: int, change: Change, now_ms: int) -> bool:
        """Whether it is the entry that a version needs now."""
        return abs(now_ms - self.time_ms) <= _DRAFTED_MS and (self.version, self.change) == (version, change)


class TableWriter:
    """Knows a table's head, and puts the version after it: the only way to write to the table; made by :meth:`open`.

    It owns the head, a handle to read with, and the draft of the next entry. It never says what a version changes, and
    neither counts what was written nor removes what no version needs any more.
    """

    def __init__(self, location: Location, table: DeltaTable, fence: Fence, partition_by: Sequence[str]) -> None:
        self.location = location
        self.fence = fence
        self.identity = str(table.metadata().id)
        """Delta's id of the table."""
        version = table.version()
        self.head = Head(version, version, version)
        self.own_entries = OwnEntries()
        self._folder = location.folder
        self._partition_by = partition_by
        self._handle = table
        self._looked_with: DeltaTable | None = None
        """The handle of the last look."""
        self._drafted: _Drafted | None = None

    @classmethod
    def open(cls, location: Location, table: DeltaTable, fence: Fence, partition_by: Sequence[str]) -> TableWriter:
        """Write the marker, durably, and return its writer; ``table`` is a handle of the table.

        Raises:
            LostLead: a newer epoch has opened the table.
            ConfigError: the table asks more of a writer than txtopo gives, or its file system has no hard links.
            FailedException: other writers were faster for a minute.
        """
        writer = cls(location, table, fence, partition_by)
        if location.root is not None:
            (location.root / DATA_FOLDER).mkdir(exist_ok=True)
        newest = next(log_entries(location, writer.head.version), None)
        if newest is None or not newest.is_own:
            # Others may not have synced what the marker is put on top of. Later it is no longer told from our own.
            writer.refresh()
            elsewhere = next((file.path for file in writer.head.files.values() if file.is_elsewhere), None)
            if elsewhere is not None:
                raise writer.divergence(
                    writer.head.last_txid,
                    f"the table at {location.address} has the file {elsewhere} of another table, which may delete it, "
                    "as a shallow clone has. Copy that table's folder instead",
                )
            writer.make_durable()
        for _ in writer.tries():
            # Another Delta write that has taken the version may be the marker of a newer coordinator.
            writer.refresh()
            # A crash before this leaves the table to whoever had it, and one after it a marker of a coordinator that
            # never wrote: it keeps older ones out, and the next one has a higher epoch.
            if writer._put(Change()):
                # Versions before the marker that a dead writer has not synced: a power failure could take them back.
                if location.root is not None:
                    sync_log(location.root)
                writer.accept_change()
                break
        return writer

    @property
    def table(self) -> DeltaTable:
        """A handle of the head, to read with."""
        if self._handle.version() != self.head.version:
            self.refresh()
        return self._handle

    @property
    def is_newest(self) -> bool:
        """Whether nobody has written a version after the head."""
        version = self.head.version
        return [item.path for item in entries_from(self.location, version)] == [entry_path(version)]

    def is_head(self) -> bool:
        """Whether the head is surely the newest version, by one look; False while one is put, in another thread."""
        return self.head.is_known and self._folder.size(entry_path(self.head.version + 1)) is None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The table's ``metaData`` as it is, for the log."""
        return self.head.metadata or metadata_of(self._handle)  # nobody has changed it since the last look

    def refresh(self) -> None:
        """Read what others have written, and check the fence; the head is then the table's newest version.

        Raises:
            LostLead: a newer epoch has opened the table.
            ConfigError: the table now asks more of a writer than txtopo gives, or of a reader than delta-rs does.
            DivergenceError: it is another table, or was restored from a copy.
            FailedException: others were faster for a minute.
        """
        for _ in self.tries():
            if self._has_refreshed():
                break

    def _has_refreshed(self) -> bool:
        """Look once; return False if somebody has meanwhile moved the rows of the version that was looked at."""
        table, known_at, head = self._handle, _now(), self.head
        with self.failing("its table cannot be read"):
            try:
                table.update_incremental()
            except WORLD_ERRORS:
                table = self._handle = self.fresh_handle()
            version = table.version()
            self._refuse_another(table)
            if version == head.version and table is self._looked_with:  # what is known of the head is all there is
                self.head = attrs.evolve(head, known_at=known_at)
                return True
            # Before the first look no files are known, and an empty table has no vectors.
            files_known = (head.version, head.files) if head.files else None
            files = files_of(self.location, table, self._partition_by, files_known)
            files = DataFolder(self.location).counted(files.values(), head.files)
            if version > head.version:
                both = {version: files} if self._looked_with is None else {head.version: head.files, version: files}
                change = change_since(self.location, version, head.version, both, pa.schema(table.schema()))
                head = attrs.evolve(head, foreign_change=head.foreign_change or change, metadata=None)
        self.fence.check(table)
        configuration = table.metadata().configuration
        refuse_unknown(self.location.address, table.protocol(), configuration, table.schema().to_json())
        # What the next version stands on must not be lost without it: others may not have synced theirs.
        if version > head.version and not self._are_synced(files.values(), version):
            return False
        numbers, rows = Numbers.of(table, self.fence.owner.application), sum(file.live for file in files.values())
        self.head = attrs.evolve(
            head,
            version=version,
            files=files,
            rows=rows,
            last_txid=numbers.txid,
            taken=numbers.taken_until,
            ttl=numbers.ttl,
            known_at=known_at,
            known_secs=min(_KNOWN_SECS, log_secs(configuration) / 2),
        )
        self._looked_with = table
        return True

    def _refuse_another(self, table: DeltaTable) -> None:
        """Raise a DivergenceError if what is in the table's place is not what this coordinator has opened."""
        if str(table.metadata().id) != self.identity:
            why = "is another one than was opened"
        elif (version := table.version()) < self.head.version:
            why = f"ends with version {version}, but had version {self.head.version}: it was restored from a copy"
        else:
            return
        raise DivergenceError(
            f"state {self.fence.owner.state!r}: the table at {self.location.address} {why}; nothing was written. Run "
            "'txtopo repair'"
        )

    def has(self, txid: int) -> bool:
        """Whether a transaction is written, as far as this coordinator knows."""
        return self.head.last_txid is not None and self.head.last_txid >= txid

    def put(self, txid: int, change: Callable[[], Change]) -> Change | None:
        """Write a transaction, and return what that has changed: what ``change`` returns for the head.

        If it is visible already, it is made durable, and None is returned: another coordinator may have written it, or
        its answer was lost.

        1. A crash before the put leaves the table as it was. The data files are part of no version yet: the note that
           names them is published again.
        2. A crash after it leaves the transaction visible. Whoever publishes the note again finds it.
        3. A power failure during the put may lose the version, even if others have seen it: the note is published
           again.

        Raises:
            LostLead: a newer epoch has opened the table; nothing was written, or nothing that counts.
            DivergenceError: somebody else has changed rows; as above.
            FailedException: it failed, or other writers were faster for a minute.
        """
        if not self.head.is_known:
            self._handle = self.fresh_handle()  # the old one would take another table's versions for those to come
            self.refresh()
        for _ in self.tries(txid):
            if self.has(txid):
                break
            self.refuse_foreign_change(txid)
            entry = change()
            if self.put_next(entry):
                return entry
        self.make_durable()
        return None

    def tries(self, txid: int | None = None) -> Iterator[None]:
        """Yield before each try of a write whose version others may take; see :func:`~state.delta.log.put.tries`."""
        return tries(self.location, self.fence.owner.state, txid)

    def draft(self, change: Change) -> None:
        """Begin to write the entry that makes a transaction visible, before it may have its name.

        So it reaches the disk while the group is decided: from the decision to the name it takes 0.14 ms, and not 0.77
        on a disk that is free, or 5 on a busy one. If it is another entry in the end, the draft is in vain. A crash
        leaves it for :meth:`remove_drafts`.
        """
        self.discard_draft()
        if isinstance(self._folder, LocalFolder):
            version, time_ms = self.head.version + 1, int(time.time() * 1000)
            draft = self._folder.drafted(entry_path(version), self.fence.entry(change, version, time_ms))
            self._drafted = _Drafted(version, time_ms, change, draft)

    def discard_draft(self) -> None:
        """Remove the draft of an entry that was not put."""
        drafted, self._drafted = self._drafted, None
        if drafted is not None:
            drafted.draft.discard()

    def put_next(self, change: Change) -> bool:
        """Put the version after the head; if that is taken, look, and return False.

        It returns False, too, if it was worked out for an earlier head, and removes files that the head has no more.

        Raises:
            DivergenceError: somebody else has changed rows, and it is no roll-back; nothing was written.
        """
        # A look while the change was worked out may have found either.
        if change.restored is None:
            self.refuse_foreign_change(change.txid)
        if not all(file.is_in(self.head.files) for file in change.removed):
            return False
        before = self.head.version
        reach("delta.write.checked")
        try:
            is_put = self._put(change)
        except OSError as error:
            # Whether it was put is not known. If there is no new version it was not; otherwise the next try looks for
            # the transaction.
            self.refresh()
            if self.head.version == before:
                raise self.failure("its table could not be written", error, change.txid) from error
            return False
        if not is_put:
            self.refresh()
            return False
        reach("delta.write.landed")
        return True

    def _put(self, change: Change) -> bool:
        # The step that makes a write visible. A crash before it leaves data files that no version names, for vacuum;
        # one after it a draft at most, for remove_drafts(): what follows is memory.
        known_at = _now()
        if not self._put_entry(change):
            return False
        if not self.head.is_known and not self._counts(self.head.version + 1):
            return False
        self.head = self.head.after(change, known_at)
        return True

    def _put_entry(self, change: Change) -> bool:
        """Put the next version's entry if there is none, by its draft if there is one; return whether it was put."""
        drafted, version, now_ms = self._drafted, self.head.version + 1, int(time.time() * 1000)
        if drafted is not None and drafted.is_of(version, change, now_ms):
            self._drafted = None
            with contextlib.suppress(FileNotFoundError):  # an older coordinator has removed it
                return drafted.draft.put_if_absent()
        self.discard_draft()
        entry = self.fence.entry(change, version, now_ms)
        is_put = self._folder.put_if_absent(entry_path(version), entry)
        if is_put and self.location.root is None:
            self.own_entries.keep(entry_path(version), entry)
        return is_put

    def removed_by(self, change: Change) -> Removed:
        """Return what a change, of which the head was made, has removed that none of its files needs any more."""
        removed = {file.place for file in change.removed if file.path not in self.head.files}
        vectors = {place for file in change.removed for place in file.places[1:]}
        if vectors:  # one file may have those of several data files
            vectors.difference_update(place for file in self.head.files.values() for place in file.places)
        return Removed(self.head.version, int(time.time() * 1000), (*removed, *vectors))

    def _counts(self, version: int) -> bool:
        """Whether an entry that was put long after the last look counts; if not, look.

        1. Old looks at the table, and is paused, longer than entries of the log stay.
        2. Others make the version that old is about to make, and later ones, make a checkpoint, and remove the entries
           before it.
        3. Old puts its entry: there is none of that number. It lies below the checkpoint, where it changes nothing.

        The third step needs a checkpoint of that version or a later one. It may have been made after the put, too: then
        the look tells.
        """
        entries = list(self._folder.list(LOG_FOLDER, f"{version:020d}"))
        checkpoints = [item.modified_secs for item in entries if CHECKPOINT in item.path]
        if not checkpoints:
            return True
        # A crash before this leaves the entry, which goes with the rest of the log.
        if any(item.path == entry_path(version) and item.modified_secs > min(checkpoints) for item in entries):
            self._folder.delete(entry_path(version))
        self.own_entries.clear()
        self._handle = self.fresh_handle()
        self.refresh()
        return False

    def refuse_foreign_change(self, txid: int | None) -> None:
        """Raise a DivergenceError if somebody else has changed rows; ``txid`` is None for upkeep."""
        if self.head.foreign_change is not None:
            what = "nothing" if txid is None else f"nothing of transaction {txid}"
            raise self.divergence(
                txid,
                f"somebody else has changed the table at {self.location.address} ({self.head.foreign_change}) since "
                f"its last transaction, {self.head.last_txid}; {what} was written to it. Only txtopo may write to it. "
                "'txtopo repair' undoes the change, and 'txtopo repair --accept-foreign-writes' accepts it",
            )

    def accept_change(self) -> None:
        """Take the head for what it is to be, although somebody else has changed rows."""
        self.head = attrs.evolve(self.head, foreign_change=None, followed=self.head.version)

    def make_durable(self) -> None:
        """Sync the table's files and the log entries since the last checkpoint.

        For a version whose writer may have died between its put and the sync of the folder.
        """
        if not self._are_synced(self.head.files.values(), self.head.version):
            self.refresh()

    def _are_synced(self, files: Iterable[DataFile], version: int) -> bool:
        """Sync a version's files and the log; return False if some are gone, whose rows a later version has moved."""
        root = self.location.root
        if root is None:
            return True
        with self.failing("its last writes may not survive a power loss"):
            try:
                sync_files(root / place for place in {place for file in files for place in file.places})
            except FileNotFoundError:
                if self._folder.size(entry_path(version + 1)) is None:
                    raise
                return False
            sync_log(root)
        return True

    def remove_drafts(self) -> None:
        """Remove what writers have left that died before a file had its name."""
        if isinstance(self._folder, LocalFolder):
            for below in (DATA_FOLDER, LOG_FOLDER):
                self._folder.remove_drafts(below)

    def reading(self, read: Callable[[], T]) -> T:
        """Return ``read`` of the head, or of the newest version if another writer has moved its rows and files."""
        try:
            return read()
        except (FailedException, *WORLD_ERRORS):
            with self.failing("its table cannot be read"):
                # With the same version, the second try would fail in the same way.
                version = self.head.version
                self.refresh()
                if self.head.version == version:
                    raise
                return read()

    def fresh_handle(self) -> DeltaTable:
        """Return a new handle of the latest version."""
        try:
            return self.location.handle()
        except TableNotFoundError as error:
            raise DivergenceError(
                f"state {self.fence.owner.state!r}: its table at {self.location.address} is missing; restore it, "
                "or start again from a new coordinator state"
            ) from error
        except WORLD_ERRORS as error:
            advice = unsupported(error)
            if advice is not None:  # it stays so, however often it is tried
                raise ConfigError(f"{self._where()}: its table cannot be read: {advice}") from error
            raise self.failure("its table cannot be opened", error) from error

    @contextlib.contextmanager
    def failing(self, problem: str, txid: int | None = None) -> Iterator[None]:
        """Raise errors of delta-rs and the file system as a StateFailure that says what failed."""
        try:
            yield
        except WORLD_ERRORS as error:
            raise self.failure(problem, error, txid) from error

    def failure(self, problem: str, error: Exception, txid: int | None = None) -> StateFailure:
        """Return the error for a failure of the table, with the damaged file if one is found, or the disk's fault."""
        why = why_not_written(error)
        problem = problem if why is None else f"{why}, so it cannot be written"
        table = None
        with contextlib.suppress(*WORLD_ERRORS):  # an older handle would accuse files that have gone since
            table = self.location.handle()
        return state_failure(f"{self._where()}: {problem}", error, self.location.root, table, txid=txid)

    def divergence(self, txid: int | None, problem: str) -> DivergenceError:
        """Return the error for a table on which a transaction can't be written."""
        return DivergenceError(f"state {self.fence.owner.state!r}: {problem}", txid=txid)

    def _where(self) -> str:
        return f"state {self.fence.owner.state!r} at {self.location.address}"


def _now() -> tuple[float, float]:
    return time.clock_gettime(_BOOT_CLOCK), time.time()
