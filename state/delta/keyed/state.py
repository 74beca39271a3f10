"""``DeltaState``: keyed state in a Delta table, written by delta-rs without Spark."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, assert_never

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from state.delta.declared import DeclaredDeltaTable
from state.delta.keyed.cache import CachedTable, TableCache
from state.delta.keyed.folding import Reducer, TooManyKeys
from state.delta.keyed.ranges import RangeTask, fold_on_executors
from state.delta.keyed.segments import Segments
from state.delta.keyed.writing import FileWrites, RowWrites
from state.delta.log.data_files import DataFile, DataFolder, fitted
from state.delta.log.location import Location
from state.delta.log.put import Change
from state.delta.log.vectors import has_vectors
from state.delta.merging import Ended, Policy
from state.delta.opened_table import OpenedDeltaTable
from state.delta.read.foreign import stale
from state.delta.read.history import read_table
from state.delta.read.past import Change as PastChange, PastDeltaTable
from state.delta.schema import TXID_FIELD, DeclaredKeys, RowFormat, checked_fields, with_txids
from state.delta.upkeep.schedule import Upkeep
from state.delta.writer import TableWriter
from txtopo.api.arguments import check_positive, checked_arguments
from txtopo.api.data.fields import Fields
from txtopo.api.data.types import ddl_name
from txtopo.api.data.utc import micros_at
from txtopo.api.reduction import Folding
from txtopo.api.state import Executors, ExpiresKeys, FindsRows, HoldsRows, NotesRows, OpenedState, SchemaEvolution
from txtopo.api.time_to_live import TimeToLive
from txtopo.api.values import Key, StateKind, StateValue
from txtopo.api.writes import KeyedWrites, PreparedWrites, Reducible, RowsFile, TransactionRows, Writes, by_key
from txtopo.columnar.conversion import python_rows
from txtopo.columnar.hashing import PARTS
from txtopo.columnar.key_index import Positions
from txtopo.columnar.rows_by_time import BEFORE_ALL
from txtopo.columnar.rows_file import read_rows_file, rows_of_note, rows_to_note, schema_of
from txtopo.errors import ConfigError, FieldsError, StateFailure
from txtopo.files.durable import in_background

__all__ = ["DeltaState", "OpenedDeltaState", "PastDeltaState", "read_table"]

R = TypeVar("R")

_TIME_TYPE = pa.timestamp("us", tz="UTC")


class DeltaState(DeclaredKeys, DeclaredDeltaTable):
    """A keyed state in a Delta table, with the columns of key fields, value fields and txid.

    The table of an opaque state also has the previous value of each value field.

    *You* must not write to the table with anything else; anybody may read it.
    *txtopo* guarantees that each transaction counts exactly once in it.

    Args:
        path: the table's path, absolute or relative to the working directory of the coordinator, or an address in an
            object store, which needs the extra ``object-store``. The table is created when the state is first opened.
        key: the key fields, each with a type: string, an integer, boolean, decimal, date, timestamp, binary.
        value: the value fields, each with a type.
        kind: the kind of state. An opaque state with several value fields does not accept values whose fields are all
            null.
        storage_options: options for the object store, as delta-rs has them.
        cached_keys_max: the maximum number of keys that the coordinator has as Python values. Those of a larger table
            are made of its rows when they are read. Rows are in memory up to ``topology.state.bytes.max``, and in
            temporary files beyond it.
        upkeep_every_writes: the number of writes between two checkpoints of the log, at least: the more is kept, the
            rarer they are.
        files_max: small files are combined when that saves at least this many files.
        vacuum_retention_hours: how long unreferenced data files are kept, in hours, at least 168; None (the default):
            as long as ``topology.history.recent.secs`` says, or forever if it is none.
        ttl: how long after its time a key expires; None: never. For transaction N, a key has expired if its time plus
            ``ttl`` is at or before the watermark after transaction N-1: it has no value then, and what N puts or folds
            is its first. A key without a time stays. The table must be made with a ``ttl``; how long it is may change
            at a restart, and what has expired stays so.
        clock: the name of the state of an ``EventClock``, which has the watermark.
        time: the value field with a key's time, a ``timestamp``, for which a committer keeps the maximum; by default
            the only field of that type.
        schema_evolution: ``"add"``: when a run begins, the table gets the value fields that it lacks, and earlier
            rows have nulls there. By default they are refused; ``txtopo evolve`` adds them once.
        deletion_vectors: whether a new table is made for deletion vectors, which few old readers understand: Spark with
            Delta, polars from version 2 on, DuckDB, and delta-rs by ``scan`` and ``QueryBuilder`` do; others refuse it.

    Expired rows go away when upkeep merges their file, at the latest once they are most of it. Until then readers may
    see them; ``read_table(path, live=True)`` leaves them out.

    Raises:
        ConfigError: an option is out of range, or ``ttl`` comes without a clock or for a state that is not
            transactional.
        FieldsError: two fields have the same name, a field has no type or a type that keys cannot have, or the time of
            a key is no ``timestamp``.
    """

    @checked_arguments
    def __init__(  # noqa: PLR0913  each has a default, and is named
        self,
        path: str | os.PathLike[str],
        key: Fields,
        value: Fields,
        kind: StateKind = StateKind.TRANSACTIONAL,
        *,
        storage_options: Mapping[str, str] | None = None,
        cached_keys_max: int = 1_000_000,
        upkeep_every_writes: int = 50,
        files_max: int = 32,
        vacuum_retention_hours: int | None = None,
        ttl: dt.timedelta | None = None,
        clock: str | None = None,
        time: str | None = None,
        schema_evolution: SchemaEvolution | None = None,
        deletion_vectors: bool = False,
    ) -> None:
        checked_fields(key, value, kind, typed=True)
        upkeep = Upkeep(upkeep_every_writes, files_max, vacuum_retention_hours)
        super().__init__(path, storage_options, upkeep, schema_evolution)
        check_positive("cached_keys_max", cached_keys_max)
        self.key = key
        self.value = value
        self.kind = StateKind(kind)
        self.cached_keys_max = cached_keys_max
        self.deletion_vectors = deletion_vectors
        if ttl is not None:
            if self.kind is not StateKind.TRANSACTIONAL:
                raise ConfigError(
                    f"a DeltaState of kind {self.kind.value!r} has a ttl, but only the keys of a transactional state "
                    "expire; make it StateKind.TRANSACTIONAL"
                )
            self.expires = _time_of(value, time)
            self.time_to_live = TimeToLive(ttl, clock or "", self.expires)
        elif clock is not None or time is not None:
            raise ConfigError("a DeltaState has a clock or a time, but no ttl; write for example ttl=timedelta(days=1)")

    def open_as_of(self, topology_id: str, name: str, txid: int) -> PastDeltaState:
        """Open the table as of a transaction; see :class:`KeepsVersions`."""
        return PastDeltaState(self, topology_id, self._location(), name, txid)

    def _schema(self) -> pa.Schema:
        return self.format("").schema()

    def _opened(self, writer: TableWriter) -> OpenedDeltaState:
        return OpenedDeltaState(self, writer, self.upkeep)

    def __repr__(self) -> str:
        return f"DeltaState({self.path!r}, key={self.key}, value={self.value}, kind={self.kind})"


def _time_of(value: Fields, time: str | None) -> str:
    """Return the field with a key's time: the given one, or the only timestamp."""
    if time is None:
        names = [name for name, kind in zip(value.names, value.types, strict=True) if kind == _TIME_TYPE]
        if len(names) != 1:
            raise FieldsError(
                f"a state with a ttl has the timestamps {', '.join(names)}; name the one by which keys expire: time='…'"
                if names
                else "a state with a ttl has no time; add a value field such as 'at: timestamp'"
            )
        return names[0]
    kind = value.types[value.index(time)]
    if kind != _TIME_TYPE:
        raise FieldsError(f"field {time!r} is {ddl_name(kind)}; keys expire by a timestamp")
    return time


class Reading(Protocol):
    """Does what reads a table, and says what it means if that fails."""

    def __call__(self, read: Callable[[], R], /) -> R:
        """Return the result of ``read``."""


class ReadsKeys(OpenedState, ExpiresKeys):
    """An opened keyed table.

    Args:
        rows: the format of its rows.
        cache: of what it has.
        source: returns which version that is.
        reading: does what reads it.
    """

    def __init__(self, rows: RowFormat, cache: TableCache, source: Callable[[], CachedTable], reading: Reading) -> None:
        self._rows = rows
        self._cache = cache
        self._source = source
        self._reading = reading

    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the value of each key; see :meth:`OpenedState.multi_get`."""
        return self._reading(lambda: self._cache.multi_get(self._source(), keys))

    def check(self, values: KeyedWrites) -> None:
        """Raise a ``FieldsError`` if a key or value does not fit."""
        self._rows.check(values)

    def expired_rows(self, until: int) -> pa.Table:
        """Return the rows of keys whose time is at or before another one; see :class:`ExpiresKeys`."""
        return with_txids(
            self._reading(lambda: self._cache.mirror.of(self._source()).over(self.declared.expires, until))
        )


class OpenedDeltaState(ReadsKeys, OpenedDeltaTable, FindsRows, HoldsRows, NotesRows):
    """A Delta table of keys and values opened by one coordinator; made by :meth:`DeltaState.open`."""

    def __init__(self, declared: DeltaState, writer: TableWriter, upkeep: Upkeep) -> None:
        rows = declared.format(writer.fence.owner.state)
        cache = TableCache(rows, DataFolder(writer.location, declared.sizes), declared.cached_keys_max)
        options = {
            "time": declared.expires,
            "kept": lambda portions: cache.mirror.held.kept(portions),  # noqa: PLW0108 - loading replaces what is held
            "held": lambda file: cache.mirror.held.rows_of(file.path),
        }
        has_vectors = declared.deletion_vectors
        sizes = declared.sizes
        policy = Policy.of_tiers(sizes, **options) if has_vectors else Policy.of_bins(upkeep.files_max, **options)
        OpenedDeltaTable.__init__(self, declared, writer, rows.schema(), sizes, upkeep, policy)
        ReadsKeys.__init__(self, rows, cache, lambda: writer.head, writer.reading)
        self._reducer = Reducer(rows, declared.expires)
        self._txid_before = writer.head.last_txid
        """The last transaction when it began, or when keys expired otherwise than for a transaction."""
        self._hold: Callable[[Segments], None] | None = None
        self._cached: pa.Table | None = None
        """What the prepared write makes of the rows in memory, and its rows, if their values are to be cached."""
        self._noted_bytes_max = 0
        self._noted: tuple[Any, Any] = None, None
        """The last note with rows, and the write that it is of; or, once its files are there, the note with them."""

    def reducible_rows(self, values: Reducible, reduction: Folding) -> Reducible | None:
        """Return ``values`` as rows to fold if a transactional state folds them in columns; otherwise None."""
        if isinstance(values, RowsFile):
            if self._executors is not None and self._location.root is not None:
                return values if self._reducer.takes(schema_of(values), reduction) else None
            return self._reducer.reducible(read_rows_file(values), reduction)
        return self._reducer.reducible(values, reduction)

    def rows_to_put(self, txid: int, values: KeyedWrites) -> pa.Table:
        """Return what a transaction puts and removes as rows for :meth:`fold`."""
        return self._rows.fit(txid, values, with_previous=False).table

    def rows_among(self, keys: pa.Table) -> tuple[Positions, pa.Table]:
        """Return the rows of those of some keys that exist as of this coordinator's last write."""
        at, rows = self._writer.reading(lambda: self._cache.mirror.of(self._head).found_among(keys))
        return at, with_txids(rows)

    def rows_as_kept(self, rows: pa.Table) -> pa.Table | None:
        """Return rows of key and value fields as they are kept; None if they don't fit."""
        return self._reducer.as_kept(rows)

    def fold(self, parts: Sequence[TransactionRows], reduction: Folding | None) -> Writes | None:
        """Return the writes that fold the rows into the table as of this coordinator's last write."""
        executors = self._executors
        rows_max = None if executors is None or self._location.root is None else self._driver_rows_max

        try:
            folded = self._reducer.fold(parts, reduction, self.rows_among, rows_max)
        except TooManyKeys:
            assert executors is not None, "only then there is a maximum"
            assert reduction is not None, "it is of rows to reduce"
            return self._folded_on_executors(executors, parts, reduction)
        return None if folded is None else RowWrites(folded, is_by_key=reduction is None, until=parts[-1].until)

    def _folded_on_executors(
        self, executors: Executors, parts: Sequence[TransactionRows], reduction: Folding
    ) -> Writes | None:
        def fold() -> FileWrites | None:
            template = RangeTask(
                self._data,
                (0, PARTS),
                tuple(self._head.files.values()),
                tuple(parts),
                self._reducer,
                reduction,
                group=f"{parts[0].txid}-{parts[-1].txid}",
            )
            written = self._on_head(parts[0].txid)
            return fold_on_executors(executors, template, written, with_vectors=self.declared.deletion_vectors)

        try:
            return self._writer.reading(fold)
        except StateFailure as error:
            raise self._writer.failure("its rows cannot be read by the executors", error) from error

    @property
    def rewritten_bytes(self) -> int:
        """How much the last prepared write writes again; see :attr:`OpenedState.rewritten_bytes`."""
        return FileWrites.of_note(self._prepared).rewritten_bytes if self._prepared else 0

    def expired_until(self, watermark: dt.datetime | None) -> int:
        """Return the time up to which keys have expired for the last write; see :meth:`ExpiresKeys.expired_until`."""
        ttl, former = self.declared.time_to_live, self._head.ttl
        if ttl is not None and former is not None and former != ttl.micros:
            self._live_on(ttl.micros, None if watermark is None else micros_at(watermark) - former)
        return self._head.taken

    def _live_on(self, ttl: int, until: int | None) -> None:
        """Record that keys live longer or shorter from now on; what had expired by then stays so.

        That may be more than had expired for the last write: the clock has gone on without one. A crash before the
        put leaves the table as it was, and the next coordinator does it.
        """
        writer = self._writer
        for _ in writer.tries():
            expired_until = until if until is not None and until > self._head.taken else None
            if self._put(Change(taken=expired_until, ttl=ttl)):
                self._txid_before = self._head.last_txid
                self._landed(None)
                return

    @property
    def _gone_until(self) -> int:
        # What has expired by a former time to live is on record before a transaction has found it so, which tells those
        # keys to whoever reads the changes of the table. That may have been recorded by a coordinator that has died.
        return BEFORE_ALL if self._head.last_txid == self._txid_before else self._head.taken

    def why_not_adopted(self) -> str | None:
        """Name a key that somebody else has put once more; see :meth:`CanBeRepaired.why_not_adopted`."""
        rows = self._writer.reading(lambda: self._cache.mirror.of(self._head).rows)
        counts = rows.group_by(list(self._rows.key)).aggregate([([], "count_all")])
        twice = counts.filter(pc.greater(counts["count_all"], 1)).drop_columns(["count_all"]).slice(0, 1)
        return f"a key would be there more than once, such as {python_rows(twice)[0]}" if twice.num_rows else None

    def hold_rows(self, bytes_max: int) -> None:
        """Hold rows in so much memory, and begin to load them; see :class:`HoldsRows`."""
        self._cache.load_in_background(self._head, bytes_max)

    def note_rows(self, bytes_max: int) -> None:
        """Put the rows of small writes into their notes; see :class:`NotesRows`."""
        self._noted_bytes_max = bytes_max

    def close(self) -> None:
        """Clear the caches, and wait until its log is looked after."""
        super().close()
        self._cache.clear()

    def _make(self, txid: int, values: Writes) -> Any:
        writes = self._as_writes(txid, values)
        self._hold = self._cached = None
        if isinstance(writes, FileWrites):
            return writes.note()
        if not writes.rows.num_rows:
            return self._on_head(txid).note()
        self._cached = writes.rows if writes.is_by_key and self._cache.keeps_writes else None
        if writes.rows.nbytes <= self._noted_bytes_max:
            note = {**self._on_head(txid).note(), "rows": rows_to_note(writes.rows), "until": writes.until}
            self._noted = note, writes
            return note
        return self._writer.reading(lambda: self._made(txid, writes, with_vectors=self.declared.deletion_vectors))

    def _announce(self, txid: int, note: Any) -> None:
        if "rows" not in note:  # otherwise its files are not known before it is published
            super()._announce(txid, note)

    def publish(self, txid: int, note: Any) -> None:
        """Make a prepared write visible; see :meth:`OpenedDeltaTable.publish`.

        If its note has the rows, their files are written now. A crash before the put leaves them, and recovery removes
        them and writes others: the note says all that is needed.
        """
        if "rows" in note and not self._writer.has(txid):
            note = self._with_files(txid, note)
        super().publish(txid, note)

    def _with_files(self, txid: int, note: Any) -> Any:
        """Write the files of a note with rows, on top of the head, and return the note with them."""
        noted, writes = self._noted
        with_vectors = self.declared.deletion_vectors
        if note is not noted:  # another coordinator has made it, and the table is to grow once the group is finished
            self._hold = self._cached = None
            self._refuse_stale(txid, note)
            self._remove_undecided()
            writes = RowWrites(fitted(rows_of_note(note["rows"]), self._schema), until=note["until"])
            with_vectors = with_vectors and has_vectors(self._writer.table.metadata().configuration)
        if isinstance(writes, RowWrites):
            with self._writer.failing("a write cannot be prepared", txid):
                writes = self._writer.reading(lambda: self._made(txid, writes, with_vectors=with_vectors))
            self._noted = note, writes  # for the next try
        return writes

    def _made(self, txid: int, writes: RowWrites, *, with_vectors: bool) -> Any:
        """Write rows, and what becomes of the files that they touch: which rows are dead, or the others once more."""
        keys, data, files = list(self._rows.key), self._data, self._head.files
        gone = writes.rows.select(keys)
        gone = gone.filter(pc.is_null(writes.rows[TXID_FIELD])) if writes.rows_removed else gone.slice(0, 0)
        replacement = self._cache.mirror.of(self._head).replaced(writes.rows, with_vectors=with_vectors)
        removed = [files[path] for path in replacement.dead]
        turned = [file for file in removed if file.path not in replacement.stay]
        vectors_put: Callable[[], list[DataFile]] = (
            in_background(lambda: data.with_dead(turned, replacement.dead)) if turned else list
        )

        def announce(added: list[DataFile]) -> None:
            still_there = vectors_put()
            self._hold = lambda segments: segments.replace(replacement, added, still_there)
            announced = attrs.evolve(
                self._on_head(txid),
                added=[*added, *still_there],
                removed=removed,
                without=data.put_each(f"removed-{txid}", [(gone, None)]),
                rows_put=writes.rows.num_rows,
                until=writes.until,
            )
            self._announce(txid, announced.note())

        data.put_each(f"keys-{txid}", [(replacement.rows, None)], announce)
        return self._prepared

    def _on_head(self, first_txid: int) -> FileWrites:
        """Return a write of nothing that is computed from the rows of the head."""
        return FileWrites([], [], 0, first_txid, self._head.version, self._head.last_txid or 0)

    def _as_writes(self, txid: int, values: Writes) -> RowWrites | FileWrites:
        match values:
            case RowWrites() | FileWrites():
                return values
            case Mapping() | PreparedWrites():
                until = values.until if isinstance(values, KeyedWrites) else None
                return RowWrites(self._rows.fit(txid, by_key(values)).table, is_by_key=True, until=until)
            case _:
                assert_never(values)

    def _refuse_stale(self, txid: int, note: Any) -> None:
        head = self._head
        reason = stale(self._location, head.version, head.last_txid, note, head.followed)
        if reason is not None:
            raise self._writer.divergence(
                txid,
                f"the write of transaction {txid} to the table at {self._location.address} was {reason}; nothing was "
                "written. Run 'txtopo repair'",
            )

    def _change(self, txid: int, note: Any) -> Change:
        writer = self._writer
        self._refuse_stale(txid, note)
        write = FileWrites.of_note(note)
        change = writer.reading(lambda: write.change(txid, self._data, self._rows, self._head.files))
        ttl = self.declared.time_to_live
        return change if ttl is None or self._head.ttl is not None else attrs.evolve(change, ttl=ttl.micros)

    def _moved(self, ended: Ended) -> None:
        """Take note that the head has files that were merged."""
        if ended.has_expired:
            self._cache.forget_values()  # it has those that are gone
        self._cache.moved(self._head.version, lambda segments: segments.merge_all(ended.puts))

    def _dead(self, file: DataFile) -> BitMap64:
        """Return the positions of the dead rows of one of the head's files."""
        return self._cache.dead(self._head, file)

    def _landed(self, note: Any) -> None:
        version = self._head.version
        if note is None or not (note["touched"] or FileWrites.of_note(note).added):
            self._cache.moved(version)
        elif note == self._prepared:
            # Its values are made now, when the write is visible already: that takes longer than to write them. What it
            # makes of the rows in memory was worked out for one version; a look-up may have read a later one since.
            values = None if self._cached is None else self._rows.read_written(self._cached)
            self._cache.written(version, values, self._hold if note["version"] == version - 1 else None)
        else:
            self._cache.clear()
        self._hold = self._cached = None


def _shown(value: StateValue | None) -> str:
    return "gone" if value is None else repr(value.value)


class PastDeltaState(ReadsKeys, PastDeltaTable):
    """A keyed table as of the past; made by :meth:`DeltaState.open_as_of`."""

    def __init__(self, declared: DeltaState, topology_id: str, location: Location, name: str, txid: int) -> None:
        rows = declared.format(name)
        PastDeltaTable.__init__(self, declared, topology_id, location, name, rows.schema(), txid)
        cache = TableCache(rows, DataFolder(location, declared.sizes), declared.cached_keys_max)
        ReadsKeys.__init__(self, rows, cache, lambda: self, self.reading)

    def expired_until(self, watermark: dt.datetime | None = None) -> int:  # noqa: ARG002 - it was recorded
        """Return the time up to which keys have expired in this version; see :class:`ExpiresKeys`."""
        return self.taken_until()

    def _is_comparable(self, txid: int, last: int) -> bool:
        # A value says if a later transaction has put it anew, or none can have.
        return self._rows.kind is not StateKind.NON_TRANSACTIONAL or txid == last

    def _put_now(self, txid: int, writes: Writes, recorded: pa.Table) -> pa.Table:  # noqa: ARG002 - a key has one row
        put = KeyedWrites.of(self._rows.kind, txid, by_key(writes))
        values = {key: put[key] for key, put_by in zip(put.keys_put, put.txids, strict=True) if put_by == txid}
        return self._rows.fit(txid, values).table

    def _difference(self, change: PastChange) -> str | None:
        recorded, replayed, txid = self._rows.read(change.then), self._rows.read(change.now), change.txid
        for key, value in recorded.items():
            if key not in replayed:
                return f"key {key!r} was {_shown(value)}, but is not put now"
            # By repr(): NaN then equals itself, and 1 differs from 1.0.
            if repr(replayed[key]) != repr(value):
                return f"key {key!r} was {_shown(value)}, but is {_shown(replayed[key])} now"
        new_keys = [key for key in replayed if key not in recorded]
        for key, stored in zip(new_keys, self.multi_get(new_keys), strict=True):
            is_later = change.may_be_removed if stored is None else getattr(stored, "txid", 0) > txid
            if not is_later:
                return f"key {key!r} is {_shown(replayed[key])} now, but was not put then"
        removed = [key for key, value in by_key(change.writes).items() if value is None]
        for key, stored in zip(removed, self.multi_get(removed), strict=True):
            if stored is not None and getattr(stored, "txid", 0) <= txid:
                return f"key {key!r} is removed now, but was {_shown(stored)} then"
        return None
