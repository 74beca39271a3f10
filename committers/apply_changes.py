"""``ApplyChanges``: applies the change events of a database to a keyed table, whatever the order in which they come."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from committers.changes import CHANGES, DIFF, emit_changes, emit_expired
from committers.inputs import field_mistakes
from committers.spill import ReducingCommitter
from committers.versions import DELETED, INTERVALS, NUMBER, REPEAT, REPEATS, TIME, TXID, Line, left_as_is, placed
from committers.waiting import WaitingTuples
from state import DeltaState
from txtopo import BatchOutputCollector, Fields, OutputFieldsDeclarer, TopologyContext, TransactionAttempt, Tuple
from txtopo.api.abilities import ChecksTables, DescribesFolds, Inputs
from txtopo.api.arguments import check_positive, checked_arguments
from txtopo.api.data.types import ddl_name
from txtopo.api.map_state import MapState, RowChanges
from txtopo.api.state import State
from txtopo.columnar.conversion import cast_array, cast_rows
from txtopo.columnar.equality import same_rows
from txtopo.columnar.folding import places
from txtopo.columnar.key_index import Mask, Positions, are_equal
from txtopo.columnar.reducing import ordered
from txtopo.columnar.rows_file import read_rows_file
from txtopo.columnar.selection import rows_at
from txtopo.errors import ConfigError, FieldsError, InputError

_TIME = pa.timestamp("us", tz="UTC")

_EARLIER = 0
"""The transaction of a version that was there before there was a history."""

_REMEMBERED = {NUMBER: pa.int64(), REPEATS: pa.int64(), TXID: pa.int64(), TIME: _TIME, DELETED: pa.bool_()}
"""What a line has before the sequence."""


class ApplyChanges(ReducingCommitter, DescribesFolds, ChecksTables):
    """Applies change events to a keyed table: the row of a key is that of its latest event, or none if that deletes it.

    Events are ordered by their ``sequence``, not by when they come: one that is older than what the table knows of its
    key changes nothing. Of events with an equal sequence the later transaction's counts, and in a transaction the one
    that comes last; so an event that comes twice counts once.

    What was deleted is remembered in a separate table, :meth:`tombstones`, so that an older event does not bring it
    back, and readers of the table see rows only. With ``ttl`` and a clock, a tombstone is forgotten when the watermark
    is that much later than the event's ``time``: an event that comes even later brings its row back.

    An event may leave fields as they are, which it names in ``unchanged``: they keep the value of the event before it.
    If that one comes later it is outdated, and its value is lost, so let the events of a key with such fields come in
    order, as Debezium's do.

    With ``history``, a second table has every version of each row, see :meth:`history`: a type 2 slowly changing
    dimension. A version that comes late takes its place between the two that it belongs between. To find it, the table
    of tombstones then remembers the ``versions_max`` latest versions of every key, deleted or not. An event that is
    older than these changes no table; it counts as ``too_old``. Events with an equal sequence are one version in a
    transaction; one that comes in a later transaction ends the version before, unless it says the same.

    The stream ``changes`` has what a transaction changes in the table: rows as they were before with ``diff`` -1, and
    as they are after with 1, for a ``ReduceCommitter`` with ``diff``. It costs nothing if nobody reads it. Rows of a
    :meth:`state` with a ``ttl``, which has no history, are told with -1, and removed, by the first transaction that
    finds them expired.

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
        FieldsError: two fields have the same name, one has no type, or one of the sequence has no order.
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
        self._row_schema = (key + values + sequence).arrow_schema()
        for field in sequence.arrow_schema():
            if pa.types.is_nested(field.type):
                raise FieldsError(f"field {field.name!r} is {ddl_name(field.type)}, which has no order")

    @property
    def folds(self) -> Mapping[str, Mapping[str, str]]:
        """What the table is made of, in words."""
        return {self._state_name: {"": f"the latest rows by {', '.join(self._sequence)}"}}

    @property
    def grouped_by(self) -> Fields:
        """The fields of the key: one task must have all rows of a key, of which it finds the latest."""
        return self._key

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

        If versions that have ended expire, and what is remembered does, too, *you* let no three transactions bring a
        key the same sequence: the last version would not be found once the others are gone, and stay open.

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
        """Declare the stream of changes, unless a field has the name of its ``diff``."""
        if DIFF not in self._row_schema.names:
            declarer.declare_stream(CHANGES, self.changes().with_attempt())

    def input_mistakes(self, inputs: Inputs) -> Iterator[str]:
        """Return the fields that a stream lacks."""
        return field_mistakes(self._schema.names, inputs)

    def table_mistakes(self, inputs: Inputs, states: Mapping[str, State]) -> Iterator[str]:
        """Return the state beside a history whose rows expire: a version would not end, or be gone before it does."""
        del inputs
        for name in (self._state_name, self._history_name) if self._history_name is not None else ():
            ttl = states[name].time_to_live if name in states else None
            if ttl is not None and (name == self._state_name or ttl.field != "valid_to"):
                yield (
                    f"keeps a history, whose versions end by events alone, but state {name!r} has a ttl; leave it out, "
                    "or give the history one by time='valid_to', for versions that have ended"
                )

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Start with no events."""
        self._begin()
        self._table = context.state(self._state_name)
        self._graves = context.state(self._tombstones_name)
        self._tells = CHANGES in context.this_targets
        self._tuples = WaitingTuples(self._fields, context.this_component_id)

    def execute(self, tuple: Tuple) -> None:
        """Take one event."""
        if self._tuples.add(tuple):
            self._make_columns()

    def execute_batch(self, batch: pa.RecordBatch) -> None:
        """Take events as columns."""
        self._make_columns()
        self._take(pa.Table.from_batches([batch]))

    def _make_columns(self) -> None:
        """Take the tuples that wait."""
        rows = self._tuples.take()
        if rows is not None:
            self._take(rows)

    def _take(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        events = cast_rows(rows.select(self._schema.names), self._schema, "a change")
        for name in (*self._key, *self._sequence, *self._times):
            if events[name].null_count:
                raise InputError(
                    f"{self.context.this_component_id!r} got a change whose {name!r} is null, so it has no place among "
                    "the others; filter such events, or send them elsewhere, in a bolt before it"
                )
        self._wait_for(events)

    def _merged(self, rows: pa.Table) -> pa.Table:
        if self._unchanged is not None or self._history_name is not None:
            return rows
        events = self._in_order(rows)
        return events.rows.filter(pa.array(events.is_last))

    def _in_order(self, rows: pa.Table) -> _Events:
        rows = rows_at(rows, ordered(rows.select([*self._key, *self._sequence])).to_numpy())
        keys = rows.select(list(self._key))
        is_last = np.ones(rows.num_rows, dtype=bool)
        is_last[:-1] = ~are_equal(keys.slice(0, rows.num_rows - 1), keys.slice(1))
        return _Events(rows.combine_chunks(), is_last)

    def __getstate__(self) -> dict[str, Any]:
        """Take what waits before the object moves to the commit phase; spill many events to a file."""
        if "_rows" in self.__dict__:
            self._make_columns()
            self._reduce_to_move(list(self._key))
        return super().__getstate__()

    def finish_batch(self) -> None:
        """Apply the events to the tables."""
        self._make_columns()
        rows = [*self._rows, *map(read_rows_file, self._files)]
        if rows:
            self._apply(self._in_order(pa.concat_tables(rows)))
        if self._tells:
            emit_expired(self.collector, self.context, self._table, lambda rows: rows)

    def _apply(self, events: _Events) -> None:
        last = events.rows.filter(pa.array(events.is_last))
        keys = last.select(list(self._key))
        row = _RowsBefore.of(self._table, keys, self._values + self._sequence)
        grave = _RowsBefore.of(self._graves, keys, self._sequence)
        is_new = self._are_new(events, row, grave)
        is_applied = is_new[events.is_last]
        values = last if self._unchanged is None else self._filled(events.of(is_new), row, is_applied)
        shown = [*values.select(list(self._values)).columns, *last.select(list(self._sequence)).columns]
        after = pa.Table.from_arrays([*keys.columns, *shown], schema=self._row_schema)
        is_put, is_deleted = is_applied & ~self._are_deleted(last), is_applied & self._are_deleted(last)
        if self._history_name is not None:
            self._keep_versions(events, keys, row)
        else:
            risen = keys.filter(pa.array(is_put & grave.is_there))
            self._graves.put_rows(last.select([*self._key, *self._grave]).filter(pa.array(is_deleted)), risen)
        is_gone = is_deleted & row.is_there
        is_there = is_put.copy()
        is_there[is_put] = self._table.put_rows(after.filter(pa.array(is_put)), keys.filter(pa.array(is_gone)))
        if self._tells:
            before = pa.Table.from_arrays([*keys.columns, *row.values.columns], schema=self._row_schema)
            # What has no new event stays as it was.
            emit_changes(
                self.collector, RowChanges(before, after, row.is_there & is_applied, is_there), lambda rows: rows
            )
        self.context.count("applied", int(is_applied.sum()))
        self.context.count("deleted", int(is_gone.sum()))

    def _are_deleted(self, events: pa.Table) -> Mask:
        """Return which events delete their rows."""
        if self._deleted is None:
            return np.zeros(events.num_rows, dtype=bool)
        is_deleted: Mask = pc.fill_null(events[self._deleted], fill_value=False).to_numpy()
        return is_deleted

    def _are_new(self, events: _Events, row: _RowsBefore, grave: _RowsBefore) -> Mask:
        """Return which events are not older than what the tables know of their keys."""
        is_known = row.is_there | grave.is_there
        if not is_known.any():
            return np.ones(len(events.is_last), dtype=bool)
        number = events.numbers
        is_ge = np.ones(len(number), dtype=bool)
        for name in reversed(list(self._sequence)):
            older: Any = pc.if_else(pa.array(row.is_there), row.values[name], grave.values[name]).take(pa.array(number))
            newer = events.rows[name]
            is_same = same_rows(pa.table([newer], [name]), pa.table([older], [name]))
            is_greater = pc.fill_null(pc.greater(newer, older), fill_value=False).to_numpy()
            if pa.types.is_floating(newer.type):  # NaN is the largest, as where events are put in order
                is_greater |= pc.is_nan(newer).to_numpy()
            is_ge = (is_greater & ~is_same) | (is_same & is_ge)
        return is_ge | ~is_known[number]

    def _filled(self, events: _Events, row: _RowsBefore, is_applied: Mask) -> pa.Table:
        """Return the values that events leave, for each key; those of a key without events mean nothing.

        A field that an event leaves as it is has the value of the event before it; of one after a delete, or of the
        first one without a row, its own.

        Args:
            events: those that are new.
            row: what the table has of all keys.
            is_applied: which of them have events.
        """
        count, ends = events.rows.num_rows, np.flatnonzero(events.is_last)
        starts, is_deleted = np.append(0, ends[:-1] + 1), self._are_deleted(events.rows)
        has_before = np.roll(~is_deleted, 1)
        has_before[np.roll(events.is_last, 1)] = row.is_there[is_applied]
        columns = []
        for name, is_left in self._are_left(events.rows).items():
            source = left_as_is(is_left & ~is_deleted & has_before)[ends]
            source = np.where(source < starts, count + np.flatnonzero(is_applied), source)
            every = pa.chunked_array([*events.rows[name].chunks, *row.values[name].chunks], row.values[name].type)
            at = np.zeros(len(is_applied), dtype=np.int64)
            at[is_applied] = source
            columns.append(every.take(pa.array(at)))
        return pa.table(columns, names=list(self._values))

    def _are_left(self, events: pa.Table) -> dict[str, Mask]:
        """Return for each value which events leave it as it is."""
        if self._unchanged is None:
            return {}
        lists: Any = events[self._unchanged].combine_chunks()
        names, owners = pc.list_flatten(lists), pc.list_parent_indices(lists).to_numpy()
        masks = {name: np.zeros(events.num_rows, dtype=bool) for name in self._values}
        for name, is_left in masks.items():
            is_left[owners[pc.fill_null(pc.equal(names, name), fill_value=False).to_numpy(zero_copy_only=False)]] = True
        return masks

    def _keep_versions(self, events: _Events, keys: pa.Table, row: _RowsBefore) -> None:
        """Place events in the history, and remember the keys whose versions have changed; ``row`` is in the table."""
        grave = _RowsBefore.of(self._graves, keys, self._grave + self._trail)
        known, is_whole = self._known_versions(keys, row, grave)
        rows, count = events.rows, events.rows.num_rows
        txids, times = np.full(count, self.attempt.txid), cast_array(rows[self._time or ""], _TIME)
        repeats = self._next_repeats(keys, rows, events.numbers)
        line = self._line(rows, events.numbers, repeats, txids, times, self._are_deleted(rows))
        values, find = rows.select(list(self._values)), functools.partial(self._of_versions, keys, row)
        changes = placed(known, is_whole, line, values, self._are_left(rows), find)
        names = list(self._key + self._sequence + REPEAT + self._values + INTERVALS)
        columns = [*keys.take(changes.rows[NUMBER]).columns, *changes.rows.columns[1:]]
        self.context.state(self._history_name or "").put_rows(pa.table(columns, names=names))
        self._graves.put_rows(self._remembered(changes.line, keys, is_whole))
        self.context.count("too_old", changes.too_old)

    def _line(self, rows: pa.Table, *remembered: Any) -> pa.Table:
        """Return versions as of a line: the sequence of rows, and what is remembered of them."""
        sequence = [rows[name] for name in self._sequence]
        schema = pa.schema([*_REMEMBERED.items(), *self._sequence.arrow_schema()])
        return pa.table([*remembered, *sequence], names=schema.names).cast(schema)

    def _known_versions(self, keys: pa.Table, row: _RowsBefore, grave: _RowsBefore) -> tuple[pa.Table, Mask]:
        """Return what the tables know of versions, and for each key whether these are all that it has ever had.

        Where nothing is remembered it is the latest one alone: the row, or what deleted it before there was a history.
        """
        trails = grave.values["versions"].combine_chunks()
        sequence, *remembered = pc.list_flatten(trails).flatten()
        of_trails = pa.table(sequence.flatten(), names=list(self._sequence))
        lines = [self._line(of_trails, pc.list_parent_indices(trails), *remembered)]
        is_alone = trails.is_null().to_numpy(zero_copy_only=False)
        is_shown, is_buried = is_alone & row.is_there, is_alone & grave.is_there & ~row.is_there
        lines.append(self._line(row.values.filter(pa.array(is_shown)), *self._open(keys, row, is_shown)))
        at = np.flatnonzero(is_buried)
        zeros, deleted = np.full(len(at), _EARLIER), np.ones(len(at), dtype=bool)
        lines.append(self._line(grave.values.take(at), at, zeros, zeros, pa.nulls(len(at), _TIME), deleted))
        is_whole: Any = grave.values["is_whole"]
        return pa.concat_tables(lines), np.where(
            is_alone, ~is_shown & ~is_buried, pc.fill_null(is_whole, fill_value=False).to_numpy()
        )

    def _open(self, keys: pa.Table, row: _RowsBefore, is_in: Mask) -> tuple[Any, ...]:
        """Return the versions that rows are: those of their sequences that have not ended, if there was a history.

        What was remembered of their keys is forgotten, but not the rows. Where one was deleted, there is a gap.
        """
        number = np.flatnonzero(is_in)
        sequence, zeros = row.values.take(number), np.zeros(len(number), np.int64)
        repeats = self._next_repeats(keys, sequence, number)
        last = self._line(sequence, number, repeats - 1, zeros, pa.nulls(len(number), _TIME), zeros.astype(bool))
        stored = self._in_history(keys, last)
        is_open = stored.is_there & stored.values["to_txid"].is_null().to_numpy()
        txids = np.where(is_open, pc.fill_null(stored.values["from_txid"], _EARLIER).to_numpy(), _EARLIER)
        times = pc.if_else(pa.array(txids != _EARLIER), stored.values["valid_from"], None).cast(_TIME)
        return number, repeats - is_open, txids, times, zeros.astype(bool)

    def _next_repeats(self, keys: pa.Table, sequence: pa.Table, number: Positions) -> Positions:
        """Return for each version of a key and sequence the first ``repeat`` above all that the history has.

        That has them for ever, also of keys that are forgotten. Where one was deleted, there is a gap.
        """
        repeats, missed = np.zeros(len(number), np.int64), np.zeros(len(number), np.int64)
        at, repeat = np.arange(len(number)), 0
        while len(at):
            zeros = np.zeros(len(at), np.int64)
            sought = self._line(
                sequence.take(at), number[at], zeros + repeat, zeros, pa.nulls(len(at), _TIME), zeros.astype(bool)
            )
            is_there = self._in_history(keys, sought).is_there
            repeats[at[is_there]], missed[at] = repeat + 1, np.where(is_there, 0, missed[at] + 1)
            at, repeat = at[missed[at] <= 1], repeat + 1
        return repeats

    def _in_history(self, keys: pa.Table, versions: pa.Table) -> _RowsBefore:
        """Return what the history has of versions."""
        names = list(self._key + self._sequence + REPEAT)
        columns = [*keys.take(versions[NUMBER]).columns, *versions.select([*self._sequence, REPEATS]).columns]
        history = self.context.state(self._history_name or "")
        return _RowsBefore.of(history, pa.table(columns, names=names), self._values + INTERVALS)

    def _of_versions(self, keys: pa.Table, row: _RowsBefore, versions: pa.Table) -> tuple[Mask, pa.Table]:
        """Return what the history has of versions; of one from before there was a history, what the table has."""
        stored, number = self._in_history(keys, versions), versions[NUMBER].to_numpy()
        is_first = (versions[TXID].to_numpy() == _EARLIER) & (versions[REPEATS].to_numpy() == 0)
        is_earlier = is_first & row.is_there[number] & ~stored.is_there
        if not is_earlier.any():
            return stored.is_there, stored.values
        current = row.values.select(list(self._values)).take(number)
        current = current.append_column("from_txid", pa.array(np.full(len(number), _EARLIER)))
        columns = {
            name: pc.if_else(pa.array(is_earlier), current[name] if name in current.column_names else None, column)
            for name, column in zip(stored.values.column_names, stored.values.columns, strict=True)
        }
        return stored.is_there | is_earlier, pa.table(columns)

    def _remembered(self, line: Line, keys: pa.Table, is_whole: Mask) -> pa.Table:
        """Return what is remembered of the versions of keys, of each the latest ones."""
        starts, ends = np.flatnonzero(~line.has_before), np.flatnonzero(~line.has_next) + 1
        first_kept, number = np.maximum(starts, ends - self._versions_max), line.numbers_in(NUMBER)[starts]
        rows = line.rows.filter(pa.array(np.arange(line.rows.num_rows) >= np.repeat(first_kept, ends - starts)))
        sequence = rows.select(list(self._sequence)).combine_chunks().to_struct_array().combine_chunks()
        parts = [sequence, *(rows[name].combine_chunks() for name in (REPEATS, TXID, TIME, DELETED))]
        trails = pa.StructArray.from_arrays(parts, names=["sequence", "repeat", "txid", "time", "deleted"])
        lists = pa.ListArray.from_arrays(np.append(0, np.cumsum(ends - first_kept)).astype(np.int32), trails)
        latest = line.rows.take(ends - 1)
        sequence_names = [*self._sequence, *([TIME] if len(self._grave) > len(self._sequence) else [])]
        is_whole = is_whole[number] & (first_kept == starts)
        columns = [*keys.take(number).columns, *latest.select(sequence_names).columns, lists, pa.array(is_whole)]
        return pa.table(columns, names=list(self._key + self._grave + self._trail))


@attrs.frozen(eq=False)
class _Events:
    """Events by key and sequence.

    Args:
        rows: they.
        is_last: which are the last ones of their keys.
    """

    rows: pa.Table
    is_last: Mask

    @property
    def numbers(self) -> Positions:
        """The number of each one's key, from 0."""
        numbers: Positions = np.cumsum(self.is_last) - self.is_last
        return numbers

    def of(self, is_in: Mask) -> _Events:
        """Return some of them, among which is the last one of each key that has any."""
        return self if is_in.all() else _Events(self.rows.filter(pa.array(is_in)), self.is_last[is_in])


@attrs.frozen(eq=False)
class _RowsBefore:
    """What a table had of some keys before the transaction.

    Args:
        is_there: which of them it had.
        values: the values of each one; null for the others.
    """

    is_there: Mask
    values: pa.Table

    @staticmethod
    def of(state: MapState, keys: pa.Table, values: Fields) -> _RowsBefore:
        """Look keys up."""
        positions, rows = state.rows_before(keys, values)
        is_there = np.zeros(keys.num_rows, dtype=bool)
        is_there[positions] = True
        return _RowsBefore(is_there, rows.take(places(positions, keys.num_rows)))
