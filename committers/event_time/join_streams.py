"""The two streams of an :class:`IntervalJoin`, and the columns in which rows of both wait for their partners."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from committers.aggregates.fields import fields_of
from committers.event_time.clock import Watermark
from committers.event_time.timed import AHEAD, EXPIRES
from committers.event_time.times import TIMESTAMP
from committers.inputs import field_mistakes, stream_name
from committers.waiting import WaitingTuples
from state.delta.columns import is_key_type, no_equality
from txtopo import BatchBolt, Fields, Tuple
from txtopo.api.abilities import DescribesFolds, Inputs
from txtopo.api.arguments import checked_arguments
from txtopo.api.data.tuples import DEFAULT_STREAM
from txtopo.api.data.types import python_values
from txtopo.columnar.conversion import cast_rows
from txtopo.columnar.reducing import ordered
from txtopo.columnar.selection import rows_at
from txtopo.errors import FieldsError

LEFT, RIGHT = 0, 1
SIDES = (LEFT, RIGHT)

NAMES = ("left", "right")
"""The names of the sides."""

MATCH = 2
"""Added to a side for a row that says of the side's rows of a key and a time that they have matched."""

SIDE, AT, UNTIL = "side", "at", "until"
"""Columns of the state: the side, the event time, and the last time at which a partner may have its own."""

MATCHED = ("matched_left", "matched_right")
"""Columns of the state: whether a row of a side has matched when it came, if rows without a partner are emitted."""


class JoinStream:
    """A stream of an :class:`IntervalJoin` or a :class:`StreamJoin`.

    Args:
        source: the id of the component.
        key: the field or fields of the key, which are among ``fields``.
        time: the field with the event time, a ``timestamp``; a ``StreamJoin`` needs none if it forgets no rows.
        fields: the fields to pass on, each with a type.
        rename: the names of fields in joined rows that differ from their own.
        stream: the component's stream.

    Raises:
        FieldsError: a field of the key, or one to rename, is not among ``fields``; a field has no type, or one of the
            key a type that keys cannot have.
    """

    @checked_arguments
    def __init__(  # noqa: PLR0913 - the last two have defaults
        self,
        source: str,
        *,
        key: str | Sequence[str],
        time: str | None = None,
        fields: Fields,
        rename: Mapping[str, str] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        self.source, self.stream, self.time, self.fields = source, stream, time, fields
        self.key = (key,) if isinstance(key, str) else tuple(key)
        for name in (*self.key, *(rename or {})):
            fields.index(name)
        self.schema = fields.arrow_schema()
        for name in self.key:
            if not is_key_type(self.schema.field(name).type):
                raise no_equality(name, self.schema.field(name).type)
        self.inputs = fields if time is None or time in fields else fields + Fields(f"{time}: timestamp")
        self.shown = {name: (rename or {}).get(name, name) for name in fields}
        """The name of each field in joined rows."""

    @property
    def is_time_shown(self) -> bool:
        """Whether the event time is one of the fields, as a ``timestamp``: then it need not be kept twice."""
        return self.time is not None and self.time in self.fields and self.schema.field(self.time).type == TIMESTAMP

    @property
    def payload(self) -> Sequence[str]:
        """The fields that are neither of the key nor the event time."""
        return [name for name in self.fields if name not in self.key and not (name == self.time and self.is_time_shown)]


@attrs.frozen
class Layout:
    """The columns of rows that wait for partners: both sides have the same, and null in those of the other.

    Args:
        sides: the left and the right stream.
        outer: the sides whose rows are emitted without a partner, too.
    """

    sides: tuple[JoinStream, JoinStream]
    outer: Sequence[int]

    def __attrs_post_init__(self) -> None:
        """Raise a FieldsError if the keys differ, or two fields of joined rows have the same name."""
        kinds = [[side.schema.field(name).type for name in side.key] for side in self.sides]
        if kinds[LEFT] != kinds[RIGHT] or not kinds[LEFT]:
            keys = (side.fields.subset(side.key) for side in self.sides)
            raise FieldsError(
                f"the keys of the two streams must have the same types, not {' and '.join(map(str, keys))}"
            )
        for name in [name for name in self.sides[RIGHT].shown.values() if name in self.sides[LEFT].shown.values()]:
            if name not in self.common:
                raise FieldsError(
                    f"both streams have a field {name!r}; give one of them another name in the joined rows: "
                    f"rename={{{name!r}: 'other_{name}'}}"
                )

    @property
    def definition(self) -> str:
        """What kept rows are of, in words: how they are joined, and by which fields."""
        how = ("an inner", "a left", "a full")[len(self.outer)]
        return f"rows of {how} join by {' and '.join(', '.join(side.key) for side in self.sides)}"

    def sides_of(self, component: str, stream: str) -> list[int]:
        """Return the side that a stream is; both, if it is joined with itself."""
        return [side for side in SIDES if (self.sides[side].source, self.sides[side].stream) == (component, stream)]

    def stream_mistakes(self, inputs: Inputs) -> Iterator[str]:
        """Return the streams that a join lacks or does not know, and the fields that its streams lack."""
        for side in self.sides:
            source = side.source, side.stream
            if source in inputs:
                yield from field_mistakes(side.inputs, {source: inputs[source]})
            else:
                grouping = f".fields_grouping({side.source!r}, Fields({', '.join(map(repr, side.key))}))"
                yield f"joins {stream_name(*source)}, but does not subscribe to it; add {grouping}"
        for source in inputs.keys() - {(side.source, side.stream) for side in self.sides}:
            yield f"subscribes to {stream_name(*source)}, which is neither its left stream nor its right one"

    @property
    def common(self) -> Sequence[str]:
        """The fields of the key that have the same name in joined rows, which have them once."""
        left, right = self.sides
        named = ((left.shown[ours], right.shown[theirs]) for ours, theirs in zip(left.key, right.key, strict=True))
        return [ours for ours, theirs in named if ours == theirs]

    @property
    def keys(self) -> Sequence[str]:
        """The columns of the key."""
        return [f"key_{name}" for name in self.sides[LEFT].key]

    @property
    def schema(self) -> pa.Schema:
        """The columns of the state."""
        left = self.sides[LEFT]
        fields = [pa.field(SIDE, pa.int8())]
        fields += [pa.field(f"key_{name}", left.schema.field(name).type) for name in left.key]
        fields += [pa.field(AT, TIMESTAMP), pa.field(UNTIL, TIMESTAMP)]
        fields += [pa.field(MATCHED[side], pa.bool_()) for side in self.outer]
        for side in SIDES:
            fields += [self.sides[side].schema.field(name).with_name(column) for name, column in self._payload(side)]
        return pa.schema(fields)

    @functools.cached_property
    def joined_fields(self) -> Fields:
        """The fields of joined rows: those of the left stream, then those of the right one."""
        return fields_of(pa.schema([field for side in SIDES for field in self._shown_schema(side)]))

    def waiting(self, side: int, rows: pa.Table, times: pa.ChunkedArray) -> pa.Table:
        """Return rows of a stream, which have a column ``AHEAD``, too, as rows that wait, by their event time."""
        stream = self.sides[side]
        fitted = cast_rows(rows.select(stream.fields.names), stream.schema, f"a row of {stream.source!r}")
        columns = {SIDE: pa.array(np.full(rows.num_rows, side, np.int8))}
        columns |= {column: fitted[name] for name, column in zip(stream.key, self.keys, strict=True)}
        columns |= {column: fitted[name] for name, column in self._payload(side)}
        waiting = self.filled(columns, rows.num_rows).drop_columns([AT, UNTIL])
        return waiting.append_column(EXPIRES, times).append_column(AHEAD, rows[AHEAD])

    def filled(self, columns: Mapping[str, pa.ChunkedArray | pa.Array], count: int) -> pa.Table:
        """Return columns of the state with those that are missing, which are null."""
        schema = self.schema
        return pa.table([columns.get(field.name, pa.nulls(count, field.type)) for field in schema], schema)

    def stream_rows(self, side: int, rows: pa.Table, time: str = AT) -> pa.Table:
        """Return rows of a side with the fields of their stream; ``time`` is the column with the event time."""
        stream = self.sides[side]
        columns = dict(zip(stream.key, self.keys, strict=True)) | dict(self._payload(side))
        if stream.time is not None and stream.is_time_shown:
            columns[stream.time] = time
        return rows.select([columns[name] for name in stream.fields]).rename_columns(stream.fields.names)

    def shown(self, side: int, rows: pa.Table) -> pa.Table:
        """Return rows of a side with the names that they have in joined rows."""
        return self.stream_rows(side, rows).rename_columns(list(self.sides[side].shown.values()))

    def joined(self, left: pa.Table, right: pa.Table) -> pa.Table:
        """Return pairs of rows, in the same order, as joined rows."""
        right = right.drop_columns(list(self.common))
        return pa.table([*left.columns, *right.columns], names=[*left.column_names, *right.column_names])

    def alone(self, side: int, rows: pa.Table) -> pa.Table:
        """Return rows of a side as joined rows without a partner."""
        shown = self.shown(side, rows)
        names = self.joined_fields
        return pa.table(
            [
                shown[field.name] if field.name in shown.column_names else pa.nulls(rows.num_rows, field.type)
                for field in names.arrow_schema()
            ],
            names=names.names,
        )

    def _payload(self, side: int) -> Iterator[tuple[str, str]]:
        """Yield the fields of a side that have separate columns, and these."""
        return ((name, f"{NAMES[side]}_{name}") for name in self.sides[side].payload)

    def _shown_schema(self, side: int) -> Iterator[pa.Field]:
        stream = self.sides[side]
        for name, shown in stream.shown.items():
            if side == LEFT or shown not in self.common:
                yield stream.schema.field(name).with_name(shown)


def in_own_order(rows: pa.Table) -> pa.Table:
    """Return kept rows in an order that depends on nothing but them.

    A table as of the past has its rows in other runs, so a replay finds them in another order, and must emit the same.
    """
    names = [field.name for field in rows.schema if not pa.types.is_nested(field.type)]
    columns = rows.select(names)
    for field in rows.schema:
        if pa.types.is_nested(field.type):  # Arrow does not sort by these
            columns = columns.append_column(field.name, pa.array(list(map(repr, python_values(rows[field.name])))))
    return rows_at(rows, ordered(columns).to_numpy())


def of_side(rows: pa.Table, side: int) -> pa.Table:
    """Return the rows of a side."""
    return rows.filter(pc.equal(rows[SIDE], pa.scalar(side, pa.int8())))


class TwoStreamCommitter(BatchBolt, DescribesFolds):
    """A committer that takes the rows of both streams, tuples or columns, and the watermark of its clock."""

    _clock: Any
    """The clock's component id; None where nothing is forgotten."""
    _watermark: Watermark | None
    _layout: Layout
    _state_names: Sequence[str]
    _tuples_of: list[WaitingTuples]
    """The tuples of each side that are no columns yet."""

    @property
    def folds(self) -> Mapping[str, Mapping[str, str]]:
        """What the states are made of, in words."""
        return {name: {"": self._layout.definition} for name in self._state_names}

    @property
    def grouped_by(self) -> Mapping[tuple[str, str], Sequence[Fields]]:
        """The fields of the key, by stream: one task must have all rows of a key, of both streams."""
        sides = self._layout.sides
        streams = [(side.source, side.stream) for side in sides]
        return {
            stream: [sides[side].fields.subset(sides[side].key) for side in self._layout.sides_of(*stream)]
            for stream in streams
        }

    @abstractmethod
    def _take(self, side: int, rows: pa.Table) -> None:
        """Take rows of a side."""

    def execute(self, tuple: Tuple) -> None:
        """Take a row of a stream, or the watermark."""
        if tuple.source_component == self._clock:
            self._watermark = Watermark.of(tuple)
            return
        for side in self._layout.sides_of(tuple.source_component, tuple.source.stream):
            if self._tuples_of[side].add(tuple):
                self._make_columns()

    def execute_batch(self, batch: pa.RecordBatch) -> None:
        """Take rows of a stream as columns."""
        source = self.context.source
        for side in self._layout.sides_of(source.component, source.stream):
            self._take(side, pa.Table.from_batches([batch]))

    def _make_columns(self) -> None:
        for side in SIDES:
            rows = self._tuples_of[side].take()
            if rows is not None:
                self._take(side, rows)
