"""``DeltaTransactionalSpout``: the rows of a Delta table, and those that are appended to it.

Metadata names the files of a transaction, so that every attempt reads the same ones::

    {"table": id of the table,
     "snapshot": the version whose files come first; null with ``starting_version``,
     "files": [what is needed to read each, …],
     "versions": [the version of each, …],
     "start": [version, number of the first file among those of the version], "next": [where the next one begins]}
"""

from __future__ import annotations

import itertools
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import attrs
import pyarrow as pa
from deltalake import DeltaTable

from spouts.delta.files import FEED, InputFile
from spouts.delta.keyed import InputStep, KeyedVersions
from spouts.delta.table import Entry, InputTable
from state.delta.log.data_files import DataFolder
from state.delta.log.kept import KeptLog
from state.delta.log.location import Location
from state.delta.log.ownership import WORLD_ERRORS, Owner
from txtopo.api.arguments import check_positive, check_secs, checked_arguments
from txtopo.api.components.collector import BatchOutputCollector
from txtopo.api.components.context import TopologyContext
from txtopo.api.components.spout import Coordinator, Emitter, Lag, Metadata, TransactionalSpout
from txtopo.api.data.fields import Fields
from txtopo.api.data.types import ddl_name
from txtopo.api.dataset import Dataset
from txtopo.api.values import KEYED_KINDS
from txtopo.attempts import TransactionAttempt
from txtopo.errors import ConfigError, FailedException, FieldsError, InputError, SourceFailure
from txtopo.text.native import native_text


@attrs.frozen(order=True)
class _Place:
    """A place among the files: the number of a file among those of a version."""

    version: int
    index: int = 0


class DeltaTransactionalSpout(TransactionalSpout):
    """Emits the rows of a Delta table, then those that each later version appends; in columns.

    A transaction holds one or several files, in the order of versions. What moves rows to other files and changes none,
    such as ``OPTIMIZE``, is left out. Deletion vectors and partition columns are read; a column that was added to the
    table later is null in older rows.

    *You* keep the table's files until transactions that hold them are committed, and its log until the spout has read
    it: a vacuum, or a clean-up of the log, removes them. A table of another topology of txtopo is such a table, too;
    each of its commit groups is a version, and never split.

    *txtopo* guarantees that each row belongs to exactly one transaction, over any number of runs.

    Args:
        path: the table's path or address.
        fields: the columns to emit, with the types that they have in the table; None: all, which the table is opened
            for at once.
        starting_version: the version whose appended rows come first; None: all rows of the version that is the newest
            when the first transaction begins, then what is appended after it.
        as_of_txid: the transaction of the topology that writes the table as of which all rows come first, in place of
            the newest version; then what is appended or changed after it. One that ends a commit group, and is kept.
        changes: what to do about a version that updates or deletes rows, or overwrites the table: ``"refuse"`` it,
            which stops the run; ``"skip"`` it, with the rows that it adds; or ``"emit"`` what changes, from the table's
            change data feed, or by comparing the versions of a table of txtopo. The fields may then be those of the
            feed, too: ``_change_type`` ("insert", "delete", "update_preimage", "update_postimage") and
            ``_commit_version``; rows that were there are inserts.
        batch_bytes: the maximum number of bytes in a transaction, as they are stored; a file is never split.
        batch_files_max: the maximum number of files in a transaction.
        watch: whether to go on with later versions. The run then ends only by ``run(…, until=…)``, SIGINT or SIGTERM;
            without it, at the version that is the newest when it starts.
        poll_secs: with ``watch``, the seconds between two looks for later versions.
        storage_options: options for a table in an object store, as for delta-rs.

    Raises:
        FieldsError: a field has no type.
        ConfigError: another argument is wrong.
    """

    @checked_arguments
    def __init__(  # noqa: PLR0913 - all but two by name
        self,
        path: str | os.PathLike[str],
        fields: Fields | None = None,
        *,
        starting_version: int | None = None,
        as_of_txid: int | None = None,
        changes: Literal["refuse", "skip", "emit"] = "refuse",
        batch_bytes: int = 16 * 1024 * 1024,
        batch_files_max: int = 256,
        watch: bool = False,
        poll_secs: float = 1.0,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        for what, number in (("batch_bytes", batch_bytes), ("batch_files_max", batch_files_max)):
            check_positive(what, number)
        if starting_version is not None and starting_version < 0:
            raise ConfigError(f"starting_version is {starting_version}; versions begin with 0")
        if starting_version is not None and as_of_txid is not None:
            raise ConfigError("give starting_version or as_of_txid, not both: each says what comes first")
        check_secs("poll_secs", poll_secs)
        location = Location.resolve(os.fspath(path), storage_options)
        if fields is None:
            schema = pa.schema(InputTable(location, pa.schema([]), changes).newest().schema())
            if changes == "emit":
                schema = pa.schema([*schema, *map(pa.field, FEED, FEED.values())])
            fields = Fields(*(f"{field.name}: {ddl_name(field.type)}" for field in schema))
        self.values = fields.with_attempt().without_attempt()
        """The fields after the attempt."""
        untyped = [name for name, kind in zip(self.values.names, self.values.types, strict=True) if kind is None]
        if untyped:
            raise FieldsError(f"field {untyped[0]!r} has no type; give it that of the table's column")
        self.output_fields = self.values.with_attempt()
        self.table = InputTable(location, self.values.arrow_schema(), changes)
        self.starting_version = starting_version
        self.as_of_txid = as_of_txid
        self.batch_bytes = batch_bytes
        self.batch_files_max = batch_files_max
        self.poll_secs = poll_secs if watch else None

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        """Return the coordinator."""
        del config, context
        return _DeltaCoordinator(self)

    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> Emitter:
        """Return the emitter of every n-th file from ``this_task_index`` on, where n is the number of tasks."""
        del config
        return _DeltaEmitter(
            self.table, context.this_task_index, len(context.component_tasks(context.this_component_id))
        )

    def datasets(self, partitions: Collection[str]) -> Mapping[str, Dataset]:
        """Return the table."""
        del partitions
        return {"": Dataset.at(self.table.location.address)}

    def input_ranges(self, metadata: Metadata, previous_metadata: Metadata) -> Mapping[str, tuple[Any, Any]] | None:
        """Return the versions that the transaction took, each end with the number of the file in it."""
        del previous_metadata
        return {metadata["table"]: (metadata["start"], metadata["next"])} if metadata["files"] else {}


_Read = InputFile | InputStep

_Part = tuple[_Place, Sequence[_Read]]
"""What is read together, and the place after it."""


class _DeltaCoordinator(Coordinator):
    def __init__(self, spout: DeltaTransactionalSpout, now_secs: Callable[[], float] = time.monotonic) -> None:
        self._spout = spout
        self._table = spout.table
        self._now_secs = now_secs
        self._identity = ""
        self._owner: Owner | None = None
        self._snapshot: int | None = None
        self._place = _Place(0)
        self._ahead: deque[_Part] = deque()
        """What is known from the place on."""
        self._unread = 0
        """The version that is read next."""
        self._turns: list[tuple[int, int]] = []
        """How often the table's topology has gone back since the place, by the log as it was when that was gone to."""
        self._keyed: KeyedVersions | None = None
        """The versions of a keyed table whose changes are read, at the one before that."""
        self._end: int | None = None
        """The version at which a run without ``watch`` ends."""
        self._polled_secs: float | None = None
        self._former: Entry | None = None
        """What was read last of the log, of a table that is the one to read."""
        self._is_begun = False
        """Whether a transaction has something of the table."""

    def resume(self, txid: int, metadata: Metadata) -> None:
        """Begin where the last transaction has ended, or with the newest version."""
        del txid
        table = self._table.newest()
        self._owner, self._is_begun = Owner.of(table), metadata is not None
        self._end = table.version() if self._spout.poll_secs is None else None
        if metadata is not None:
            self._table.check_identity(table, metadata["table"])
            self._identity, self._snapshot = metadata["table"], metadata["snapshot"]
            self._go_to(_Place(*metadata["next"]), table)
            return
        self._identity, first = str(table.metadata().id), self._spout.starting_version
        if first is not None and first > table.version() + 1:
            raise ConfigError(
                f"starting_version is {first}; the newest version of the table at {self._table.location.address} is "
                f"{table.version()}"
            )
        as_of = self._spout.as_of_txid
        snapshot = int(table.version()) if as_of is None else self._table.version_as_of(table, as_of)
        self._snapshot = snapshot if first is None else None
        self._go_to(_Place(snapshot if first is None else first), table, is_begun=False)

    def rewind(self, txid: int, metadata: Metadata, undone: Sequence[Metadata]) -> bool:
        """Check that what later transactions took is still there, but for what is not read any more."""
        table = self._table.newest()
        if metadata is not None:
            self._table.check_identity(table, metadata["table"])
            self._unread_at(metadata["next"][0], metadata["snapshot"], table)
        turns = self._table.turns(table, min((each["start"][0] for each in undone), default=0))
        lost = self._table.missing(
            [
                file
                for each in undone
                for read, version in zip(each["files"], each.get("versions") or itertools.repeat(-1), strict=False)
                if not any(restored < version < turn for restored, turn in turns)
                for file in _read_of(read).files
            ]
        )
        if lost is not None:
            raise InputError(
                f"transactions after {txid} took the file {lost} of the table at {self._table.location.address}, and "
                "it is gone; go back to a later transaction, or put it back"
            )
        return True

    def is_ready(self) -> bool:
        """Whether a file is known that no transaction has."""
        if not self._ahead:
            self._read_ahead()
        return bool(self._ahead)

    def is_exhausted(self) -> bool:
        """Whether all versions up to the end are taken."""
        return self._end is not None and not self.is_ready() and self._unread > self._end

    def initialize_transaction(self, txid: int, previous_metadata: Metadata) -> Metadata:
        """Take the files that come next."""
        del txid
        if previous_metadata is not None and _Place(*previous_metadata["next"]) != self._place:
            self._go_to(_Place(*previous_metadata["next"]))
        start, size, count = self._place, 0, 0
        files: list[dict[str, Any]] = []
        versions: list[int] = []
        while self._is_more_ready(is_begun=bool(files)):
            place, part = self._ahead[0]
            size, count = size + sum(read.size for read in part), count + sum(len(read.files) for read in part)
            if files and (size > self._spout.batch_bytes or count > self._spout.batch_files_max):
                break
            self._ahead.popleft()
            self._place = place
            files += [read.metadata for read in part]
            versions += [place.version if place.index else place.version - 1] * len(part)
        self._is_begun = True
        return {
            "table": self._identity,
            "snapshot": self._snapshot,
            "files": files,
            "versions": versions,
            "start": list(attrs.astuple(start)),
            "next": list(attrs.astuple(self._place)),
        }

    def _is_more_ready(self, *, is_begun: bool) -> bool:
        try:
            return self.is_ready()
        except FailedException:
            if not is_begun:
                raise
            return False  # what the transaction has already would be in none; the next look tells of the failure

    def lag(self) -> Lag:
        """Return the files that are known and that no transaction has."""
        reads = [read for _, part in self._ahead for read in part]
        return Lag(files=sum(len(read.files) for read in reads), bytes=sum(read.size for read in reads))

    def _unread_at(self, version: int, snapshot: int | None, table: DeltaTable, *, is_begun: bool = True) -> int:
        """Return the version to read next; see :meth:`InputTable.past_turns`."""
        if version != snapshot:
            unread = self._table.past_turns(table, version, is_begun=is_begun)
            return unread + (unread == snapshot)  # whose rows are there
        # Its rows count, not how they came there: it may be the one that went back.
        self._table.past_turns(table, version + 1)
        return version

    def _go_to(self, place: _Place, table: DeltaTable | None = None, *, is_begun: bool = True) -> None:
        self._place = place
        table = table or self._table.newest()
        self._unread = self._unread_at(place.version, self._snapshot, table, is_begun=is_begun)
        self._turns = self._table.turns(table, place.version + (place.version == self._snapshot))
        self._keyed = None
        self._ahead.clear()
        self._polled_secs = None

    def _read_ahead(self) -> None:
        """Read versions until one has files, or until there is none."""
        polled_secs, now_secs = self._polled_secs, self._now_secs()
        if polled_secs is not None and now_secs < polled_secs + (self._spout.poll_secs or 0.0):
            return
        self._polled_secs = now_secs
        while not self._ahead and (self._end is None or self._unread <= self._end):
            for past, turn in self._turns:  # which are in the order of their versions
                self._unread = turn + 1 if self._unread == past + 1 else self._unread
            version = self._unread
            reads = self._reads_of(version)
            if reads is None:
                return
            first = self._place.index if self._place.version == version else 0
            # What a commit group of txtopo has written is read together, so that a reader sees no half of one.
            parts = [reads] if self._owner is not None and version != self._snapshot else [[read] for read in reads]
            places = [*(_Place(version, index) for index in range(1, len(parts))), _Place(self._unread)]
            self._ahead.extend((place, part) for place, part in list(zip(places, parts, strict=False))[first:] if part)
            self._polled_secs = None

    def _reads_of(self, version: int) -> Sequence[_Read] | None:
        """Return what is read of a version, and go to the next one; None if it is not there yet."""
        owner = self._owner
        is_keyed = owner is not None and owner.kind in KEYED_KINDS
        if version == self._snapshot:
            files = self._table.snapshot(self._identity, version)
            table = self._table.newest()
            if not self._is_begun and self._table.turns(table, version + 1) != self._turns:
                self.resume(0, None)  # it went back since it was opened: nobody has what that took back
                return []
            self._unread = self._table.past_turns(table, version + 1)
            if is_keyed and owner is not None and owner.expires:
                return self._keyed_at(version).visible(files)
            return files
        entry = self._next_entry(version)
        if entry is not None and entry.restored is not None and self._goes_past(version):
            return []
        if is_keyed and self._table.changes == "emit":
            return self._steps_to(version, entry)
        if entry is None:
            if self._table.is_next(version):
                return None
            raise self._table.versions_gone(version)
        self._unread = version + 1
        return self._table.added(entry, is_own=owner is not None)

    def _next_entry(self, version: int) -> Entry | None:
        """Return what a version does, None if it has no entry; refuse another table, or columns that do not fit.

        Another table is known by the entry before: its log may be as long, or longer.
        """
        entry = self._table.entry(version)
        former = self._table.entry(version - 1) if version else None
        if former is None or former != self._former or (entry is not None and entry.has_schema):
            self._table.check_identity(self._table.newest(), self._identity)
        self._former = entry or former
        return entry

    def _goes_past(self, turn: int) -> bool:
        """Return whether a version that went back, which is new since the place was gone to, is not the one to read."""
        table = self._table.newest()
        self._unread = self._unread_at(turn, self._snapshot, table)
        self._turns = self._table.turns(table, self._unread)
        return self._unread != turn

    def _steps_to(self, version: int, entry: Entry | None) -> Sequence[_Read] | None:
        """Return what a version of a keyed table changes, or the first one that is left after it."""
        keyed = self._keyed
        if keyed is None or keyed.version != version - 1:
            keyed = self._keyed_at(version - 1)
        if entry is not None:
            step = keyed.next(entry.actions)
        else:
            if self._table.is_next(version):
                return None
            earlier, keyed = keyed, self._later(keyed)
            step = earlier.to(keyed)
        self._keyed, self._unread = keyed, keyed.version + 1
        return [] if step is None else [step]

    def _keyed_at(self, version: int) -> KeyedVersions:
        """Return the versions of a keyed table from one on; -1: from before the first."""
        location = self._table.location
        try:
            versions = KeyedVersions.at(location, location.handle(max(0, version)))
        except WORLD_ERRORS as error:
            raise self._table.versions_gone(version + 1) from error
        return versions if version >= 0 else versions.before_all()

    def _later(self, keyed: KeyedVersions) -> KeyedVersions:
        """Return the first version that is left after one, if all that it replaces is still there."""
        location = self._table.location
        later = next((version for version in KeptLog.of(location.folder).versions() if version > keyed.version), None)
        if later is None or self._table.missing([InputFile(file) for file in keyed.files.values()]) is not None:
            raise self._table.versions_gone(keyed.version + 1)
        self._table.past_turns(location.handle(later), keyed.version + 1)
        return self._keyed_at(later)


@attrs.frozen(eq=False)
class _DeltaEmitter(Emitter):
    table: InputTable
    task: int
    tasks: int

    def emit_batch(self, attempt: TransactionAttempt, metadata: Metadata, collector: BatchOutputCollector) -> None:
        del attempt
        folder = DataFolder(self.table.location)
        for step in map(_read_of, metadata["files"][self.task :: self.tasks]):
            where = f"the file {step.files[0].file.place} of the table at {self.table.location.address}"
            try:
                for rows in step.portions(folder, self.table.schema):
                    for batch in rows.to_batches():
                        collector.emit_batch(batch)
            except FileNotFoundError as error:
                raise InputError(
                    f"{where} is gone: a vacuum has removed it before its transaction was committed; put it back, or "
                    "keep files longer (delta.deletedFileRetentionDuration)"
                ) from error
            except pa.ArrowException as error:
                raise InputError(f"{where} can't be read", cause=native_text(error)) from error
            except OSError as error:
                raise SourceFailure(f"{where} can't be read now", cause=native_text(error)) from error


def _read_of(metadata: Mapping[str, Any]) -> _Read:
    return (InputStep if "before" in metadata else InputFile).from_metadata(metadata)
