"""``ApplyChanges``: applies the change events of a database to a keyed table, whatever the order in which they come."""

from __future__ import annotations

import operator
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from committers.changes import CHANGES, DIFF, TableChanges
from committers.inputs import Inputs, field_mistakes
from committers.versions import INTERVALS, REPEAT, Change, Version, VersionId, Versions, sequence_of
from committers.waiting import WaitingTuples
from state import DeltaState
from txtopo import (
    BatchBolt,
    BatchOutputCollector,
    Fields,
    ICommitter,
    OutputFieldsDeclarer,
    TopologyContext,
    TransactionAttempt,
    Tuple,
)
from txtopo.api.arguments import check_positive, checked_arguments
from txtopo.api.data.types import ddl_name, python_values
from txtopo.api.map_state import MapState, joined_columns
from txtopo.api.state import State
from txtopo.columnar.conversion import cast_rows
from txtopo.errors import ConfigError, InputError

__all__ = ["ApplyChanges"]

_TIME = pa.timestamp("us", tz="UTC")

_PARTS = operator.attrgetter(*(field.name for field in attrs.fields(Change)))

_EARLIER, _UNKNOWN = 0, (None, None, 0, None)
"""The transaction and the intervals of a version that was there before there was a history."""


class ApplyChanges(BatchBolt, ICommitter):
    """Applies change events to a keyed table: the row of a key is that of its latest event, or none if that deletes it.

    Events are ordered by their ``sequence``, not by when they come: one that is older than what the table knows of its
    key changes nothing. Of events with an equal sequence the later transaction's counts, and in a transaction the one
    that comes last; so an event that comes twice counts once.

    What was deleted is remembered in a table of its own, :meth:`tombstones`, so that an older event does not bring it
    back, and readers of the table see rows only. With ``ttl`` and a clock, a tombstone is forgotten when the watermark
    is that much later than the event's ``time``: an event that comes even later brings its row back.

    An event may leave fields as they are, which it names in ``unchanged``: they keep the value of the event before it.
    If that one comes later it is outdated, and its value is lost, so let the events of a key with such fields come in
    order, as Debezium's do.

    With ``history``, a second table has every version of each row, see :meth:`history`: a type 2 slowly changing
    dimension. A version that comes late takes its place between the two that it belongs between. To find it, the table
    of tombstones then remembers the ``versions_max`` latest versions of every key, deleted or not. An event that is
    older than these changes no table; it counts as ``too_old``. Events with an equal sequence are one version in a
    transaction; one that comes in a later transaction ends the version before.

    The stream ``changes`` has what a transaction changes in the table: rows as they were before with ``diff`` -1, and
    as they are after with 1, for a ``ReduceCommitter`` with ``diff``. It costs nothing if nobody reads it.

    It counts the keys for which events were ``applied``, and the rows that were ``deleted``.

    *You* subscribe it by ``fields_grouping`` on the key, and give both states to ``builder.set_state``.
    *txtopo* guarantees that the table is what sorting all events of all transactions so far would make, wherever they
    were cut.

    Args:
        state: the name of the table's state in ``builder.set_state``.
        tombstones: the name of the state of what was deleted.
        key: the key fields, each with a type.
        values: the other fields of a row, each with a type.
        sequence: the field or fields that order the events of a key, each with a type that has an order.
        deleted: the boolean field that is true if an event deletes the row; None: no event does.
        unchanged: the field with the names of the ``values`` that an event leaves as they are, an ``array<string>``.
        time: a ``timestamp`` of the event, if tombstones are to be forgotten, or there is a history.
        history: the name of the state of all versions; None: there is no such table.
        versions_max: of how many versions of a key events may come out of order, with a history.

    Raises:
        FieldsError: two fields have the same name, or one has no type.
        ConfigError: there is a history and no ``time``, or ``versions_max`` is below 1.
    """

    @checked_arguments
    def __init__(  # noqa: PLR0913 - what an event consists of
        self,
        state: str,
        tombstones: str,
        *,
        key: Fields,
        values: Fields,
        sequence: Fields,
        deleted: str | None = None,
        unchanged: str | None = None,
        time: str | None = None,
        history: str | None = None,
        versions_max: int = 100,
    ) -> None:
        check_positive("versions_max", versions_max)
        if history is not None and time is None:
            raise ConfigError(
                "a history says when a version was valid; name the field with the time of events: time='at'"
            )
        self._state_name, self._tombstones_name = state, tombstones
        self._key, self._values, self._sequence = key, values, sequence
        self._deleted, self._unchanged, self._time = deleted, unchanged, time
        self._history_name, self._versions_max = history, versions_max
        self._times = [] if history is None else [time]
        fields = key + values + sequence
        if time is not None and time not in fields:
            fields += Fields(f"{time}: timestamp")
        for name, kind in ((deleted, "boolean"), (unchanged, "array<string>")):
            if name is not None:
                fields += Fields(f"{name}: {kind}")
        self._fields, self._schema = fields, fields.arrow_schema()

    def state(self, path: str | os.PathLike[str], **options: Any) -> DeltaState:
        """Return the table: key, values and sequence; ``options`` are the table's."""
        return DeltaState(path, self._key, self._values + self._sequence, **options)

    def tombstones(self, path: str | os.PathLike[str], **options: Any) -> DeltaState:
        """Return the table of what was deleted: key, sequence, time; ``options`` are the table's, such as ``ttl``."""
        trail = Fields() if self._history_name is None else self._trail
        return DeltaState(path, self._key, self._grave + trail, **options)

    def history(self, path: str | os.PathLike[str], **options: Any) -> DeltaState:
        """Return the table of all versions, by key, sequence and ``repeat``; ``options`` are the table's.

        ``valid_from`` is the time of the event that made the version, ``valid_to`` that of the next event of its key,
        which may be a delete; null: it is the latest. The table had the version as its row after the transactions from
        ``from_txid`` up to the one before ``to_txid``. If both are equal, a later version was there before, or came in
        the same transaction. That of a row from before there was a history is 0, and it has no ``valid_from``.

        Raises:
            ConfigError: the committer was made without ``history``.
        """
        if self._history_name is None:
            raise ConfigError("this ApplyChanges keeps no history; name its state: history='versions'")
        return DeltaState(path, self._key + self._sequence + REPEAT, self._values + INTERVALS, **options)

    @property
    def _grave(self) -> Fields:
        """What is remembered of the latest event of a key."""
        if self._time is None or self._time in self._sequence:
            return self._sequence
        return self._sequence + Fields(f"{self._time}: timestamp")

    @property
    def _trail(self) -> Fields:
        """What is remembered of versions."""
        sequence = pa.struct(self._sequence.arrow_schema())
        parts = [
            ("sequence", sequence),
            ("repeat", pa.int64()),
            ("txid", pa.int64()),
            ("time", _TIME),
            ("deleted", pa.bool_()),
        ]
        return Fields(f"versions: {ddl_name(pa.list_(pa.struct(parts)))}", "is_whole: boolean")

    def changes(self) -> Fields:
        """Return the fields of the stream of changes: those of the table, and ``diff``."""
        return self._key + self._values + self._sequence + Fields(f"{DIFF}: long")

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the stream of changes."""
        declarer.declare_stream(CHANGES, self.changes().with_attempt())

    def output_mistakes(self, streams: Collection[str], states: Mapping[str, State]) -> Iterator[str]:
        """Return why its changes can't be read."""
        state = states.get(self._state_name)
        if CHANGES in streams and state is not None and state.time_to_live is not None:
            yield (
                f"has the stream {CHANGES!r}, but the keys of state {self._state_name!r} expire, which it would not "
                "tell; leave out the ttl, or do not subscribe to it"
            )

    def input_mistakes(self, inputs: Inputs) -> Iterator[str]:
        """Return the fields that a stream lacks."""
        return field_mistakes(self._schema.names, inputs)

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Start with no events."""
        self._txid = attempt.txid
        self._table = context.state(self._state_name)
        self._graves = context.state(self._tombstones_name)
        self._tells = CHANGES in context.this_targets
        self._tuples = WaitingTuples(self._fields, context.this_component_id)
        self._changes: dict[Any, list[Change]] = {}

    def execute(self, tuple: Tuple) -> None:
        """Take one event."""
        if self._tuples.add(tuple):
            self._make_columns()

    def execute_batch(self, batch: pa.RecordBatch) -> None:
        """Take events as columns."""
        self._make_columns()
        self._take(cast_rows(batch.select(self._schema.names), self._schema, "a change"))

    def finish_batch(self) -> None:
        """Apply the events to the tables."""
        self._make_columns()
        keys = list(self._changes)
        if not keys:
            return
        rows: dict[Any, Any] = {}
        graves: dict[Any, Any] = {}
        gone, risen, applied = [], [], 0
        told = TableChanges(self._key, self._values + self._sequence)
        before = list(zip(keys, self._table.values_before(keys), self._graves.values_before(keys), strict=True))
        for key, row, grave in before:
            last = self._applied(key, row, grave)
            if last is None:
                continue
            applied += 1
            if self._tells:
                told.add(key, row, None if last.values is None else last.values + last.sequence)
            if last.values is not None:
                rows[key] = last.values + last.sequence
                if grave is not None:
                    risen.append(key)
                continue
            graves[key] = last.grave
            if row is not None:
                gone.append(key)
        if self._history_name is not None:
            graves, risen = self._keep_versions(before), []
        _write(self._table, rows, gone)
        _write(self._graves, graves, risen)
        if self._tells:
            told.emit(self.collector)
        self.context.count("applied", applied)
        self.context.count("deleted", len(gone))

    def __getstate__(self) -> dict[str, Any]:
        """Take the tuples that wait before the object moves to the commit phase."""
        if "_changes" not in self.__dict__:
            return self.__dict__
        self._make_columns()
        # 10,000 objects of a class are pickled in 24 ms, through Python, and plain tuples in 9.
        moving = {key: list(map(_PARTS, own)) for key, own in self._changes.items()}
        return {**self.__dict__, "_changes": moving}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make changes again of what has moved."""
        self.__dict__.update(state)
        if "_changes" in state:
            self._changes = {key: [Change(*parts) for parts in own] for key, own in state["_changes"].items()}

    def _applied(self, key: Any, row: Any, grave: Any) -> Change | None:
        """Return the latest event of a key, with all of its values; None if the tables know a later one."""
        width = len(self._values)
        values = None if row is None else row[:width]
        known = None if row is None else row[width:]
        if row is None and grave is not None:
            known = grave[: len(self._sequence)] if isinstance(grave, tuple) else (grave,)
        last = None
        # Sorting keeps the order of equal ones.
        for change in sorted(self._changes[key], key=sequence_of):
            if known is None or change.sequence >= known:
                known, values = change.sequence, change.after(values)
                # A new one for each change would take a sixth of a transaction.
                last = change if values is change.values else attrs.evolve(change, values=values)
        return last

    def _keep_versions(self, before: Iterable[tuple[Any, Any, Any]]) -> dict[Any, Any]:
        """Place the events of keys in the history; return what is remembered of keys whose versions have changed.

        ``before`` has the rows of keys, and what was remembered of them.
        """
        history = self.context.state(self._history_name or "")
        every = {key: self._versions_of(row, grave) for key, row, grave in before}
        wanted = [
            (key, version)
            for key, versions in every.items()
            for version in dict.fromkeys(versions.needed(self._changes[key]))
        ]
        while wanted:
            found = history.values_before([self._of_version(*each) for each in wanted])
            missing = []
            for (key, version), row in zip(wanted, found, strict=True):
                if row is not None:
                    every[key].rows[version] = row
                    missing += [(key, each) for each in every[key].repeated(version)]
            wanted = missing
        rows: dict[Any, Any] = {}
        remembered = {}
        for key, versions in every.items():
            versions.place(self._changes[key], self._txid)
            for version in versions.changed:
                row = versions.rows[version]
                if row is not None:
                    rows[self._of_version(key, version)] = row
            if versions.changed:
                remembered[key] = self._remembered(versions)
        _write(history, rows, ())
        self.context.count("too_old", sum(each.too_old for each in every.values()))
        return remembered

    def _versions_of(self, row: Any, grave: Any) -> Versions:
        """Return what the tables know of a key's versions: the latest alone where nothing else is remembered."""
        width, own = len(self._values), len(self._sequence)
        if grave is not None and grave[-2] is not None:
            latest = [
                Version(
                    tuple(each["sequence"].values()), *(each[name] for name in ("repeat", "txid", "time", "deleted"))
                )
                for each in grave[-2]
            ]
            return Versions(latest, grave[-1])
        if row is not None:
            version = Version(row[width:], 0, _EARLIER, None, False)
            return Versions([version], False, {version.id: row[:width] + _UNKNOWN})
        return Versions([] if grave is None else [Version(grave[:own], 0, _EARLIER, None, True)], grave is None)

    def _remembered(self, versions: Versions) -> tuple[Any, ...]:
        versions.forget(self._versions_max)
        latest = versions.latest[-1]
        trail = [
            {
                "sequence": dict(zip(self._sequence, each.sequence, strict=True)),
                "repeat": each.repeat,
                "txid": each.txid,
                "time": each.time,
                "deleted": each.is_deleted,
            }
            for each in versions.latest
        ]
        own = latest.sequence if len(self._grave) == len(self._sequence) else (*latest.sequence, latest.time)
        return (*own, trail, versions.is_whole)

    def _of_version(self, key: Any, version: VersionId) -> tuple[Any, ...]:
        """Return the key of a version in the history."""
        sequence, repeat = version
        return (*(key if len(self._key) > 1 else (key,)), *sequence, repeat)

    def _make_columns(self) -> None:
        """Take the tuples that wait."""
        rows = self._tuples.take()
        if rows is not None:
            self._take(rows)

    def _take(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Keep the events of each key that may count."""
        for name in (*self._key, *self._sequence, *self._times):
            if rows.column(name).null_count:
                raise InputError(
                    f"{self.context.this_component_id!r} got a change whose {name!r} is null, so it has no place among "
                    "the others; filter such events, or send them elsewhere, in a bolt before it"
                )
        columns = {name: python_values(rows.column(name)) for name in self._schema.names}
        nothing = [None] * rows.num_rows
        keys = joined_columns([columns[name] for name in self._key])
        every = zip(
            keys,
            *(
                list(zip(*(columns[name] for name in names), strict=True))
                for names in (self._sequence, self._values, self._grave)
            ),
            columns.get(self._deleted or "", nothing),
            columns.get(self._unchanged or "", nothing),
            columns.get(self._time or "", nothing),
            strict=True,
        )
        positions = {name: position for position, name in enumerate(self._values)}
        changes = self._changes
        for key, sequence, values, grave, is_deleted, unchanged, time in every:
            left = [positions[name] for name in unchanged or () if name in positions]
            change = Change(sequence, None if is_deleted else values, grave, time, left)
            if self._unchanged is not None or self._history_name is not None:
                changes.setdefault(key, []).append(change)
            elif key not in changes or sequence >= changes[key][0].sequence:
                changes[key] = [change]


def _write(state: MapState, values: Mapping[Any, Any], removed: Sequence[Any]) -> None:
    if values:
        state.multi_put(values)
    if removed:
        state.multi_remove(removed)
