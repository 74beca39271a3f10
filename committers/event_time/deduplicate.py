"""``Deduplicate``: passes on the first row of each key within a time, exactly once."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from committers.event_time.timed import AHEAD, EXPIRES, LATE, UNTIMED, TimedCommitter
from committers.event_time.times import micros_of
from state import DeltaExpiringRows
from state.delta.columns import is_key_type, no_equality
from txtopo import Fields, OutputFieldsDeclarer
from txtopo.api.abilities import KeepsByKey
from txtopo.api.arguments import checked_arguments
from txtopo.api.data.tuples import DEFAULT_STREAM
from txtopo.api.data.types import ddl_name
from txtopo.columnar.conversion import cast_rows
from txtopo.errors import FieldsError

ALIKE = ":alike"
"""The column of the number of rows that are alike in all fields."""

FIRST_AT = "first_at"
"""The column of the state with the event time of a key's first row: when it is forgotten follows from ``within``."""


class Deduplicate(TimedCommitter, KeepsByKey):
    """Passes on the first row of each key, and drops the others that come within a time.

    A key is remembered until the watermark has reached the event time of its first row plus ``within``. Of the rows of
    one transaction, the first is the one with the smallest event time, and among equal times the smallest by all its
    fields, so that it is the same row whoever replays the transaction. What comes so late that its key may have been
    forgotten is emitted on the stream ``late`` instead, as is what is further ahead than the clock allows, and a row
    whose event time is null on ``untimed``.

    It counts rows that it has ``passed`` on, those that it has dropped because they ``repeated`` a key, keys that are
    ``forgotten``, and the rows that it emits on ``late`` and ``untimed``. The gauge ``remembered`` is the number of
    keys that it remembers.

    *You* subscribe it to the stream by ``fields_grouping`` on the key, and to an :class:`EventClock` by
    ``all_grouping``, and give its state, from :meth:`state`, to ``builder.set_state``. All bolts below it run in the
    commit phase, so put expensive work above it, and name only fields that are needed below.
    *txtopo* guarantees that each row is passed on, dropped, late or untimed, once.

    At a restart ``within`` may change: it holds for the keys that are remembered, too; what was forgotten stays
    forgotten, and a row that is no newer is late.

    Args:
        state: the name of the state of remembered keys in ``builder.set_state``.
        clock: the component id of the clock.
        time: the field with the event time, a ``timestamp``.
        key: the field or fields of the key.
        within: how long after its first row a key is remembered, in event time.
        fields: the fields to pass on, each with a type, among them those of the key and the event time.

    Raises:
        FieldsError: a field of the key, or the event time, is not among ``fields``; a field has no type; one of the
            key has a type that keys cannot have; or rows cannot be ordered by a field.
    """

    @checked_arguments
    def __init__(  # noqa: PLR0913 - what to pass on, by what, for how long
        self, state: str, *, clock: str, time: str, key: str | Sequence[str], within: dt.timedelta, fields: Fields
    ) -> None:
        self._key = (key,) if isinstance(key, str) else tuple(key)
        for name in (*self._key, time):
            fields.index(name)
        if EXPIRES in fields:
            raise FieldsError(f"a Deduplicate has a column {EXPIRES!r} of its own; give yours another name")
        if FIRST_AT in self._key:
            raise FieldsError(
                f"the state of a Deduplicate has a column {FIRST_AT!r} of its own; give your key another name"
            )
        self._schema = fields.arrow_schema()
        for field in self._schema:
            if field.name in self._key and not is_key_type(field.type):
                raise no_equality(field.name, field.type)
            if not _has_order(field.type):
                raise FieldsError(
                    f"field {field.name!r} is {ddl_name(field.type)}, which has no order, but of rows of one time a "
                    "Deduplicate passes on the smallest by all fields; make it a string, such as JSON, in a bolt above"
                )
        # A key expires by its first row's time, from which the watermark is to be away: by another ``within``, too.
        super().__init__(state, clock, time, fields, lateness=micros_of(within, "within of a Deduplicate"))

    def state(self, path: str | os.PathLike[str], **options: Any) -> DeltaExpiringRows:
        """Return the state of remembered keys; ``options`` are the table's."""
        columns = self._inputs.subset(self._key) + Fields(f"{FIRST_AT}: timestamp")
        return DeltaExpiringRows(path, columns, FIRST_AT, key=self._key, **options)

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the three streams."""
        fields = self._inputs.with_attempt()
        declarer.declare(fields)
        declarer.declare_stream(LATE, fields)
        declarer.declare_stream(UNTIMED, fields)

    @property
    def grouped_by(self) -> Fields:
        """The fields of the key: one task must have all rows of a key, of which the first passes."""
        return self._inputs.subset(self._key)

    @property
    def keys(self) -> Sequence[str]:
        """The key's columns."""
        return self._key

    def reduced(self, rows: pa.Table, times: pa.ChunkedArray) -> pa.Table:
        """Return rows that are alike in all fields once, with their number."""
        fitted = cast_rows(rows.select(self._inputs.names), self._schema, "a row to deduplicate")
        fitted = fitted.append_column(EXPIRES, times)
        ones = pa.array(np.ones(rows.num_rows, dtype=np.int64))
        return self._merged(fitted.append_column(AHEAD, rows[AHEAD]).append_column(ALIKE, ones))

    def _merged(self, rows: pa.Table) -> pa.Table:
        """Return rows that are alike in all fields once, in the order of key, time and the other fields.

        Others of one key stay, since the first may be late and the second not: only the commit phase knows.
        """
        payload = [name for name in self._inputs if name not in (*self._key, self._time)]
        order = [*self._key, self._time, *payload]
        rows = rows.sort_by([(name, "ascending") for name in order])
        first = np.flatnonzero(_begins(rows, (*order, AHEAD)))
        if len(first) == rows.num_rows:
            return rows
        alike = np.add.reduceat(rows[ALIKE].to_numpy(), first)
        return rows.take(first).drop_columns([ALIKE]).append_column(ALIKE, pa.array(alike))

    def add(self, rows: pa.Table) -> None:
        """Pass on the rows whose keys are not remembered, and remember these."""
        first = rows.filter(pa.array(_begins(rows, self._key)))  # they are still in the order of _merged()
        new = first.filter(pc.invert(self._state.holds(first.select(self._key))))
        self.context.count("passed", new.num_rows)
        self.context.count("repeated", pc.sum(rows[ALIKE]).as_py() - new.num_rows)
        if new.num_rows:
            self._state.append(new.select([*self._key, EXPIRES]).rename_columns([*self._key, FIRST_AT]))
            self.emit(new.select(self._inputs.names), DEFAULT_STREAM)

    def refused(self, rows: pa.Table, stream: str) -> pa.Table:
        """Return rows that are not looked at: each as often as it came."""
        del stream
        times = rows[ALIKE].to_numpy()
        refused_rows = rows.select(self._inputs.names)
        return refused_rows if (times == 1).all() else refused_rows.take(np.repeat(np.arange(len(times)), times))

    def expire(self, until: int) -> None:
        """Forget keys."""
        expired = self._state.take_expired(until)
        self.context.count("forgotten", expired.num_rows)
        self.context.gauge("remembered", self._state.rows_held())


def _has_order(kind: pa.DataType) -> bool:
    """Return whether Arrow sorts by columns of a type."""
    if pa.types.is_struct(kind):
        return all(_has_order(field.type) for field in kind)
    return not pa.types.is_nested(kind)


def _begins(rows: pa.Table, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return for each row whether it differs from the one before it in some columns."""
    begins = np.ones(rows.num_rows, dtype=bool)
    if any(pa.types.is_nested(rows.schema.field(name).type) for name in names):  # Arrow does not compare them
        return begins
    begins[1:] = False
    for name in names:
        after, before = rows[name][1:], rows[name][:-1]
        begins[1:] |= pc.fill_null(pc.not_equal(after, before), False).to_numpy()
        begins[1:] |= pc.not_equal(after.is_valid(), before.is_valid()).to_numpy()
    return begins
