"""``ApplyChanges``: applies the change events of a database to a keyed table, whatever the order in which they come."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from committers.inputs import Inputs, field_mistakes
from committers.waiting import WaitingTuples
from state import DeltaState
from txtopo import BatchBolt, BatchOutputCollector, Fields, ICommitter, TopologyContext, TransactionAttempt, Tuple
from txtopo.api.arguments import checked_arguments
from txtopo.api.data.types import python_values
from txtopo.api.map_state import joined_columns
from txtopo.columnar.conversion import cast_rows
from txtopo.errors import InputError

__all__ = ["ApplyChanges"]


@attrs.frozen
class _Change:
    """One event of a key: its values, None if it deletes the row, and the value fields that it leaves as they are."""

    sequence: tuple[Any, ...]
    values: tuple[Any, ...] | None
    in_grave: tuple[Any, ...]
    """What is remembered of it if it deletes the row."""
    unchanged: Sequence[int] = ()

    @property
    def grave(self) -> Any:
        """What is remembered of it as the value of a state."""
        return self.in_grave if len(self.in_grave) > 1 else self.in_grave[0]

    def after(self, before: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        """Return the values after the event, given those before it."""
        if self.values is None or not self.unchanged or before is None:
            return self.values
        values = list(self.values)
        for position in self.unchanged:
            values[position] = before[position]
        return tuple(values)


_sequence_of = operator.attrgetter("sequence")


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
        time: a ``timestamp`` of the event, if tombstones are to be forgotten.

    Raises:
        FieldsError: two fields have the same name, or one has no type.
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
    ) -> None:
        self._state_name, self._tombstones_name = state, tombstones
        self._key, self._values, self._sequence = key, values, sequence
        self._deleted, self._unchanged, self._time = deleted, unchanged, time
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
        return DeltaState(path, self._key, self._grave, **options)

    @property
    def _grave(self) -> Fields:
        if self._time is None or self._time in self._sequence:
            return self._sequence
        return self._sequence + Fields(f"{self._time}: timestamp")

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
        self._table = context.state(self._state_name)
        self._graves = context.state(self._tombstones_name)
        self._tuples = WaitingTuples(self._fields, context.this_component_id)
        self._changes: dict[Any, list[_Change]] = {}

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
        before = zip(keys, self._table.values_before(keys), self._graves.values_before(keys), strict=True)
        for key, row, grave in before:
            last = self._applied(key, row, grave)
            if last is None:
                continue
            applied += 1
            if last.values is not None:
                rows[key] = last.values + last.sequence
                if grave is not None:
                    risen.append(key)
                continue
            graves[key] = last.grave
            if row is not None:
                gone.append(key)
        for state, values, removed in ((self._table, rows, gone), (self._graves, graves, risen)):
            if values:
                state.multi_put(values)
            if removed:
                state.multi_remove(removed)
        self.context.count("applied", applied)
        self.context.count("deleted", len(gone))

    def __getstate__(self) -> dict[str, Any]:
        """Take the tuples that wait before the object moves to the commit phase."""
        if "_changes" in self.__dict__:
            self._make_columns()
        return self.__dict__

    def _applied(self, key: Any, row: Any, grave: Any) -> _Change | None:
        """Return the latest event of a key, with all of its values; None if the tables know a later one."""
        width = len(self._values)
        values = None if row is None else row[:width]
        known = None if row is None else row[width:]
        if row is None and grave is not None:
            known = grave[: len(self._sequence)] if isinstance(grave, tuple) else (grave,)
        last = None
        # Sorting keeps the order of equal ones.
        for change in sorted(self._changes[key], key=_sequence_of):
            if known is None or change.sequence >= known:
                known, values = change.sequence, change.after(values)
                last = attrs.evolve(change, values=values)
        return last

    def _make_columns(self) -> None:
        """Take the tuples that wait."""
        rows = self._tuples.take()
        if rows is not None:
            self._take(rows)

    def _take(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Keep the events of each key that may count."""
        for name in (*self._key, *self._sequence):
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
            strict=True,
        )
        positions = {name: position for position, name in enumerate(self._values)}
        changes = self._changes
        for key, sequence, values, grave, is_deleted, unchanged in every:
            left = [positions[name] for name in unchanged or () if name in positions]
            change = _Change(sequence, None if is_deleted else values, grave, left)
            if self._unchanged is not None:
                changes.setdefault(key, []).append(change)
            elif key not in changes or sequence >= changes[key][0].sequence:
                changes[key] = [change]
