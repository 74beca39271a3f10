"""A Delta table opened by the one coordinator that writes to it: what keyed tables and tables of rows share."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

import attrs
import pyarrow as pa
from pyroaring import BitMap64

from state.delta.log.data_files import DataFile, DataFolder, Sizes, files_in, needed_in, with_stats
from state.delta.log.entries import actions_of, entry_path, log_entries
from state.delta.log.growth import growth_of, lacking, vectors_turned
from state.delta.log.location import LOG_FOLDER
from state.delta.log.own_entries import RememberedLog
from state.delta.log.ownership import WORLD_ERRORS, Numbers
from state.delta.log.put import Change
from state.delta.log.vectors import has_vectors
from state.delta.merging import Ended, Merging, Policy
from state.delta.read.foreign import foreign_change
from state.delta.read.history import FoundTable
from state.delta.table import kept_version
from state.delta.upkeep.past import TablePast
from state.delta.upkeep.rounds import LogUpkeep
from state.delta.upkeep.schedule import Upkeep
from state.delta.writer import Head, TableWriter
from txtopo.api.state import (
    CanBeRepaired,
    Executors,
    GrowsColumns,
    History,
    KeepsHistory,
    OpenedState,
    State,
    UsesExecutors,
)
from txtopo.api.writes import Writes
from txtopo.columnar.rows_by_time import BEFORE_ALL
from txtopo.errors import LostLead, StateAccessError
from txtopo.failpoints import durable_step, reach


class OpenedDeltaTable(OpenedState, UsesExecutors, KeepsHistory, CanBeRepaired, GrowsColumns):
    """A Delta table opened by one coordinator, whose marker is written; subclasses say what a write consists of."""

    def __init__(  # noqa: PLR0913, PLR0917 - what its kind makes of it
        self, declared: State, writer: TableWriter, schema: pa.Schema, sizes: Sizes, upkeep: Upkeep, policy: Policy
    ) -> None:
        self.declared = declared
        self._location = writer.location
        self._writer = writer
        self._data = DataFolder(writer.location, sizes)
        self._schema = schema
        past = TablePast(RememberedLog.of(writer.location, writer.own_entries), writer.fence)
        self._log_upkeep = LogUpkeep(past, upkeep)
        self._merging = Merging(self._data, schema, policy)
        self._executors: Executors | None = None
        self._driver_rows_max = 0
        self._prepared: Any = None
        """The last note that this coordinator has made, whose files it has just written."""

    @abstractmethod
    def _make(self, txid: int, values: Writes) -> Any:
        """Write the files of a write, durably, and return its note, which may be announced before they are durable."""

    @abstractmethod
    def _change(self, txid: int, note: Any) -> Change:
        """Return what a note changes on top of the head; DivergenceError if it was computed from another."""

    def _landed(self, note: Any) -> None:
        """Take note that the head is a version that ``note`` made; None: by upkeep, which moves rows only."""

    @property
    def _head(self) -> Head:
        return self._writer.head

    @property
    def identity(self) -> str:
        """Delta's id of the table."""
        return self._writer.identity

    @property
    def last_txid(self) -> int | None:
        """The txid of the last write, whoever has made it; None before the first."""
        writer = self._writer
        if writer.is_newest:
            return self._head.last_txid
        return Numbers.of(writer.fresh_handle(), writer.fence.owner.application).txid

    @property
    def version(self) -> int:
        """The last version that this coordinator has made, by its marker or by a write."""
        return self._head.own_version

    def use_executors(self, executors: Executors, driver_rows_max: int) -> None:
        """Use the executors for groups with more than ``driver_rows_max`` rows."""
        self._executors = executors
        self._driver_rows_max = driver_rows_max

    def keep_history(self, history: History) -> None:
        """Keep what a history names; see :meth:`KeepsHistory.keep_history`."""
        self._log_upkeep.keep(history)

    def prepare(self, txid: int, values: Writes) -> Any:
        """Write the data files of a write where no reader of the table sees them; see :meth:`OpenedState.prepare`.

        A crash before the note is recorded leaves files that no version names; upkeep removes them.

        Raises:
            DivergenceError: somebody else has changed rows.
        """
        with self._writer.failing("a write cannot be prepared", txid):
            note = self._make(txid, values)
            if note is not self._prepared:
                self._announce(txid, note)
        self._writer.refuse_foreign_change(txid)
        reach("delta.prepared")
        return note

    def _announce(self, txid: int, note: Any) -> None:
        """Take a note for that of the prepared write, and begin to write its log entry."""
        self._prepared = note
        self._writer.draft(self._change(txid, note))

    def publish(self, txid: int, note: Any) -> None:
        """Make a prepared write of any epoch visible, in one Delta write; see :meth:`OpenedState.publish`.

        A crash before the put leaves the note on record, and one after it a transaction in the table: either way
        recovery publishes the note again, and this looks for the transaction first.
        """
        writer = self._writer
        if not writer.has(txid) and note != self._prepared:  # it may have been prepared long ago
            missing = self._data.missing(needed_in(note, self._head.files))
            if missing is not None:
                raise writer.divergence(txid, f"the write of transaction {txid} needs {missing}; nothing was written")
        change = writer.put(txid, lambda: self._change(txid, note))
        if change is not None:
            self._note(change)
            self._landed(note)

    def _put(self, change: Change) -> bool:
        """Put the version after the head; see :meth:`TableWriter.put_next`."""
        is_put = self._writer.put_next(change)
        if is_put:
            self._note(change)
        return is_put

    def _note(self, change: Change) -> None:
        rows_grown = None if change.txid is None else change.rows_grown
        self._log_upkeep.written(self._writer.removed_by(change), rows_grown)

    def write(self, txid: int, values: Writes) -> None:
        """Write the values in one Delta write; without values, only record the txid; see :meth:`OpenedState.write`.

        Raises:
            DivergenceError: somebody else has changed rows; nothing was written.
        """
        self.publish(txid, self.prepare(txid, values))

    def clean_up(self) -> None:
        """Remove what dead writers and drivers have left unfinished; what a crash leaves, the next call removes."""
        with self._writer.failing("what is left of earlier runs cannot be removed"):
            self._data.remove_waiting()
            self._writer.remove_drafts()
            with contextlib.suppress(LostLead):  # the next write raises it
                self._remove_undecided()

    def _remove_undecided(self) -> None:
        """Remove the data files of groups that a dead coordinator has prepared, and that were never decided.

        They are of transactions that the table does not have, and newer than the last version of another coordinator:
        what a roll-back has undone is older. No version from that one on has them. A newer coordinator writes files
        after its marker, and the folder is listed before the look that would see that.
        """
        writer = self._writer
        entries = log_entries(self._location, self._head.version)
        before = next((entry.version for entry in entries if entry.epoch != writer.fence.epoch), None)
        if before is None:
            return
        versions = {item.path: item.modified_secs for item in self._location.folder.list(LOG_FOLDER)}
        since_secs = versions.get(entry_path(before))
        undecided = [] if since_secs is None else self._data.left_by_groups(self._head.last_txid or 0, since_secs)
        if not undecided:
            return
        writer.refresh()
        needed = {file.place for file in self._head.files.values()}
        for version in range(before, self._head.version + 1):
            needed.update(unquote(added["path"]) for added in actions_of(self._location, version, "add"))
        for path in undecided:
            if path not in needed:
                self._location.folder.delete(path)

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all rows (key fields, value fields, txid) as of transaction ``txid`` or the latest.

        Transactions that were written together can only be seen together: it is as of the last Delta write up to it.
        """
        return FoundTable.of(self._location).rows(txid, is_exact=False)

    def roll_back(self, txid: int | None) -> None:
        """Write a version that equals the one of transaction ``txid``; see :meth:`CanBeRepaired.roll_back`.

        It takes the old version's files into the table again, without copying. delta-rs' ``restore`` neither respects
        the fence nor carries application transactions.

        An older coordinator, paused in its upkeep, may remove one of those files meanwhile: of that window,
        :mod:`state.delta.upkeep` leaves one deletion. So they are looked for once more when the version is put, and if
        one is gone, the table goes back to the version before, unless that has rows of somebody else: they would count
        as the transaction's. A crash between the two leaves a table that lacks the file; what reads it names the file.
        """
        writer = self._writer
        for _ in writer.tries(txid):
            writer.refresh()
            # An earlier repair may have written this version and died before it had synced it.
            is_undisturbed, head = self._is_undisturbed(), self._head
            if (head.last_txid or 0) == (txid or 0) and is_undisturbed:
                writer.make_durable()
                return
            version, files = self._as_of(txid)
            if not self._restore(txid, version, files):
                continue
            missing = self._data.missing(file for file in files.values() if not file.is_in(head.files))
            if missing is None:
                return
            is_back = is_undisturbed and self._restore(head.last_txid, head.version, head.files)
            raise StateAccessError(
                f"the table at {self._location.address} cannot return to transaction {txid}: it needs {missing}, since "
                "it began to return; "
                + (f"it is at transaction {head.last_txid} again" if is_back else "return to an earlier transaction"),
                txid=txid,
            )

    def record_turn(self, txid: int) -> None:
        """Mark that the topology has gone back to a transaction; see :meth:`CanBeRepaired.record_turn`."""
        for _ in self._writer.tries(txid):
            self._writer.refresh()
            if self._put(Change(turn=txid)):
                return

    def _restore(self, txid: int | None, version: int, files: Mapping[str, DataFile]) -> bool:
        """Put a version that equals ``version``, which has ``files``, as of a transaction; see :meth:`_put`."""
        table, now = self._writer.table, self._head.files  # in this order: it may look, and find other files
        expired_until, ttl = self._expiry_as_of(version)
        missing = {path: file for path, file in files.items() if not file.is_in(now)}
        with_statistics = with_stats(self._location.handle(version), missing, table) if missing else ()
        added = list(self._data.counted(with_statistics).values())
        if not has_vectors(table.metadata().configuration):  # they have been turned off since
            added = self._data.without_vectors(added, pa.schema(table.schema()))
        removed = [file for file in now.values() if not file.is_in(files)]
        return self._put(Change(added, removed, taken=expired_until, ttl=ttl, txid=txid or 0, restored=version))

    def _as_of(self, txid: int | None) -> tuple[int, dict[str, DataFile]]:
        """Return the version of a transaction and its files; None: the one before all transactions."""
        if not txid:
            return 0, {}
        version = kept_version(self._location, self._head.version, txid, self.declared.partition_by)
        if version is None:
            where = self._location.address
            raise StateAccessError(f"the table at {where} no longer keeps its version of transaction {txid}", txid=txid)
        return version

    def _expiry_as_of(self, version: int) -> tuple[int | None, int | None]:
        """Return up to when expired rows were taken out in a version, and how long keys live; None if there is none."""
        if not version or not self.declared.expires:
            return BEFORE_ALL if self.declared.expires else None, None
        numbers = Numbers.of(self._location.handle(version), self._writer.fence.owner.application)
        return numbers.taken_until, numbers.ttl

    def adopt(self) -> None:
        """Record the last transaction again, on top of foreign writes; see :meth:`CanBeRepaired.adopt`."""
        writer = self._writer
        for _ in writer.tries():
            writer.refresh()
            if self._is_undisturbed():
                writer.make_durable()
                return
            # A crash before the put leaves the foreign rows refused, as they were; after it, the next repair finds the
            # table undisturbed.
            writer.accept_change()
            if self._put(Change(txid=self._head.last_txid or 0)):
                return

    def _is_undisturbed(self) -> bool:
        """Whether nobody else has changed rows since the last transaction."""
        return foreign_change(self._location, self._head.version, None) is None

    def grow(self) -> None:
        """Make the table as it is declared, in what can be had; see :meth:`GrowsColumns.grow`."""
        for growth in (self._new_columns, self._turned_vectors):
            self._grow(growth)

    def _grow(self, growth: Callable[[], Change | None]) -> None:
        writer = self._writer
        for _ in writer.tries():
            change = writer.reading(growth)
            if change is None:
                return
            # A crash before this leaves the table as it was, and the next start does it; one after it leaves a table
            # that has the columns already.
            with durable_step("table.grow"):
                is_put = self._put(change)
            if is_put:
                self._landed(None)
                return

    def _new_columns(self) -> Change | None:
        """Return the change that adds the columns that the fields have and the table lacks; None if it has them all."""
        table = self._writer.table
        if not lacking(table, self._schema, self.declared.partition_by):
            return None
        # The files are added once more, with their numbers of rows alone: bounds without the new columns' would tell
        # readers that the files have no rows where these are null.
        return Change(list(self._head.files.values()), is_of_rows=False, metadata=growth_of(table, self._schema))

    def _turned_vectors(self) -> Change | None:
        """Return the change that makes the table for deletion vectors or for none, as declared; None if it is so."""
        table, is_on = self._writer.table, self.declared.deletion_vectors
        if has_vectors(table.metadata().configuration) == is_on:
            return None
        marked = [] if is_on else [file for file in self._head.files.values() if file.vector is not None]
        added = self._data.without_vectors(marked, pa.schema(table.schema()))
        return Change(added, marked, is_of_rows=False, metadata=vectors_turned(table, is_on=is_on))

    @property
    def is_upkeep_due(self) -> bool:
        """Whether there is upkeep to do; see :attr:`OpenedState.is_upkeep_due`."""
        return self._log_upkeep.is_due(self._head.rows) or self._merging.is_due(self._head.files)

    def maintain(self) -> None:
        """Put files that were merged, and begin to merge others and to look after the log, if that is due.

        Both go on beside the next writes; a failure is raised by a later call. A crash at any moment leaves the rows as
        they are: no step changes those of the newest version.
        """
        writer, log_upkeep = self._writer, self._log_upkeep
        is_log_due = log_upkeep.is_due(self._head.rows)
        if self._head.foreign_change is not None:  # the next write refuses it
            return
        try:
            self._put_merged()
            self._merging.begin(self._head.files, self._gone_until, is_upkeep_due=is_log_due)
            if not is_log_due:
                log_upkeep.delete_removed(self._files_needed, writer.is_head)
                return
            log_upkeep.end()
            self._tell_retentions()
        except WORLD_ERRORS as error:
            writer.fence.check(writer.fresh_handle())
            raise writer.failure("upkeep failed", error) from error
        log_upkeep.begin(self._head.version, self._files_needed())

    def _files_needed(self) -> set[str]:
        """Return the paths of the files of the head, and of those of a write that is prepared."""
        files = [*self._head.files.values(), *files_in(self._prepared or {})]
        return {place for file in files for place in file.places}

    def _tell_retentions(self) -> None:
        metadata = self._writer.metadata
        lacking = self._log_upkeep.schedule.retentions(metadata["configuration"])
        if lacking:
            configuration = {**metadata["configuration"], **lacking}
            change = Change(is_of_rows=False, metadata=[{"metaData": {**metadata, "configuration": configuration}}])
            # A crash before this leaves it for later, and one after it a table that says so. It is not the head if
            # others were faster: the next round sees to it.
            if self._put(change):
                self._landed(None)

    @property
    def _gone_until(self) -> int:
        """The time up to which rows have expired that nobody asks for any more, so that merged files lack them."""
        return self._head.taken

    def _put_merged(self) -> None:
        """Put the files that were merged, if they are.

        A crash before the put leaves new files that no version names, and one after it the old ones, which the version
        no longer has: vacuum removes both, each when its retention is over.
        """
        writer = self._writer
        # If somebody has removed what it was to read, and moved the rows before, there is nothing to put.
        ended = writer.reading(lambda: self._merging.ended(self._head.files, self._gone_until, self._dead))
        if ended is None:
            return
        change = ended.change
        for _ in writer.tries():
            metadata = [] if change.is_of_rows else [{"metaData": writer.metadata}]
            if self._put(attrs.evolve(change, metadata=metadata)):
                self._moved(ended)
                return
            if not all(file.is_in(self._head.files) for file in change.removed):
                return  # somebody has moved their rows

    def _moved(self, ended: Ended) -> None:  # noqa: ARG002 - what it is to those that hold rows
        """Take note that the head has files that were merged."""
        self._landed(None)

    def _dead(self, file: DataFile) -> BitMap64:
        return self._data.dead(file)

    def close(self) -> None:
        """Wait until its log is looked after; what is being merged is in vain."""
        self._writer.discard_draft()
        self._merging.close()
        self._log_upkeep.close()
