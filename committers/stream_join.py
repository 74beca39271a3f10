"""``StreamJoin``: joins two streams by key without a bound in time, each pair once.

Each side's rows are kept in a table, by which they are looked up in columns. A transaction joins its new left rows with
all right ones, and the kept left rows with its new right ones, and then keeps its own. So each pair is found by the
transaction that brings the later of the two. In a left join, a kept left row has been emitted alone if and only if no
right row of its key is kept: that is taken back when the first one comes.

If rows are forgotten, the right ones that a kept left row has met may be gone. So a left row is kept with the
transaction in which it was emitted alone; and a row of its own beside those of a key, which is forgotten with the last
of them, says in which transaction they have met.
"""

from __future__ import annotations

import datetime as dt
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from committers.changes import DIFF
from committers.event_time.clock import EventClock, Watermark, clock_mistakes
from committers.event_time.join_streams import LEFT, RIGHT, SIDES, JoinStream, Layout, TwoStreamCommitter, in_own_order
from committers.event_time.pairs import Positions, Timed, pairs
from committers.event_time.timed import is_last_task, no_watermark
from committers.event_time.times import MICROS_MAX, event_times, in_known_years, micros_in, micros_of, timestamps
from committers.waiting import WaitingTuples
from state import DeltaExpiringRows
from txtopo import BatchOutputCollector, Fields, ICommitter, OutputFieldsDeclarer, TopologyContext, TransactionAttempt
from txtopo.api.abilities import Inputs
from txtopo.api.arguments import checked_arguments
from txtopo.api.data.utc import MICROS_MIN
from txtopo.columnar.conversion import cast_rows
from txtopo.columnar.key_index import key_ids
from txtopo.columnar.rows_file import rows_of_bytes, rows_to_bytes
from txtopo.columnar.selection import rows_at
from txtopo.errors import ConfigError

UNTIL = "until"
"""The column of a table with the event time at which a row is forgotten; the end of time if none is."""

ALONE, MET = "alone_txid", "met_txid"
"""Columns of the table of left rows, in a left join that forgets: the transaction in which a row was emitted alone, and
that in which those that were emitted alone before have met a partner, of a row that says that of a key."""


class StreamJoin(TwoStreamCommitter, ICommitter):
    """Joins each row of one stream with all rows of another that have its key, whenever they come.

    It emits joined rows, :meth:`joined`, as columns: the fields of the left stream, then those of the right one. Fields
    of the key that have the same name come once. A null in a key equals nothing.

    A left join emits a left row with nulls if it has no partner, and takes that back when the first one comes: its rows
    have the field ``diff``, 1 for a row that comes and -1 for one that is taken back, as a ``ReduceCommitter`` with
    ``diff`` reads them.

    Both streams are kept for ever, each in a table that anybody may read; with ``ttl`` a row is forgotten when the
    watermark of the clock has passed its event time by that much. A row that comes later than that is joined with what
    is still kept, and not kept itself; one without an event time is never forgotten. What was emitted stays so, when a
    row of it is forgotten. The rows that are kept are in the coordinator's memory or its temporary files, so keep only
    the fields that are needed below.

    It counts ``joined`` rows; the gauge ``kept`` is the number of rows in its tables.

    *You* subscribe it to both streams by ``fields_grouping`` on their keys, with a ``ttl`` also to an
    :class:`EventClock` of both by ``all_grouping``; and give its tables, from :meth:`left_table` and
    :meth:`right_table`, to ``builder.set_state``. All bolts below it run in the commit phase.
    *txtopo* guarantees that each pair is emitted once, in the transaction of the later of the two.

    Args:
        left_state: the name of the state of the left rows in ``builder.set_state``.
        right_state: the name of the state of the right rows.
        left: the left stream, with a ``time`` if there is a ``ttl``.
        right: the right stream, likewise; it may be the same.
        how: ``"inner"``: pairs; ``"left"``: left rows without a partner, too, with nulls in its place.
        ttl: how long after its event time a row is forgotten; None: never. The table of left rows of a left join has
            two more columns then, and rows with a ``met_txid`` that are none of the stream.
        clock: the component id of the clock, if there is a ``ttl``.

    Raises:
        ConfigError: only one of ``ttl`` and ``clock`` is given, or a stream lacks its time for it.
        FieldsError: the keys have different types, or two fields have the same name.
    """

    @checked_arguments
    def __init__(  # noqa: PLR0913 - what to join, how, and for how long
        self,
        left_state: str,
        right_state: str,
        *,
        left: JoinStream,
        right: JoinStream,
        how: Literal["inner", "left"] = "inner",
        ttl: dt.timedelta | None = None,
        clock: str | None = None,
    ) -> None:
        self._state_names = (left_state, right_state)
        self._layout = Layout((left, right), (LEFT,) if how == "left" else ())
        self._is_left = how == "left"
        self._ttl = None if ttl is None else micros_of(ttl, "ttl of a StreamJoin")
        self._clock = clock
        if (ttl is None) != (clock is None):
            raise ConfigError("a StreamJoin has either both ttl= and clock=, the id of an EventClock, or neither")
        for stream in (left, right) if ttl is not None else ():
            if stream.time is None:
                raise ConfigError(
                    f"the rows of {stream.source!r} are forgotten by their event time; write time='…' in its JoinStream"
                )
        self._keeps_met = self._is_left and ttl is not None

    def left_table(self, path: str | os.PathLike[str], **options: Any) -> DeltaExpiringRows:
        """Return the state of left rows: the fields of their stream; ``options`` are the table's."""
        return self._table(LEFT, path, options)

    def right_table(self, path: str | os.PathLike[str], **options: Any) -> DeltaExpiringRows:
        """Return the state of right rows, as :meth:`left_table` does."""
        return self._table(RIGHT, path, options)

    def _table(self, side: int, path: str | os.PathLike[str], options: Mapping[str, Any]) -> DeltaExpiringRows:
        return DeltaExpiringRows(path, self._kept_fields(side), UNTIL, key=self._layout.sides[side].key, **options)

    def _kept_fields(self, side: int) -> Fields:
        fields = self._layout.sides[side].fields + Fields(f"{UNTIL}: timestamp")
        return fields + Fields(f"{ALONE}: long", f"{MET}: long") if self._keeps_met and side == LEFT else fields

    def joined(self) -> Fields:
        """Return the fields of joined rows, as for the table that they are appended to."""
        fields = self._layout.joined_fields
        return fields + Fields(f"{DIFF}: long") if self._is_left else fields

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the stream of joined rows."""
        declarer.declare(self.joined().with_attempt())

    def input_mistakes(self, inputs: Inputs) -> Iterator[str]:
        """Return what is wrong with the clock, the streams that it lacks, and the fields that these lack."""
        if self._clock is not None:
            yield from clock_mistakes(self._clock, inputs)
        yield from self._layout.stream_mistakes(
            {each: fields for each, fields in inputs.items() if fields != EventClock.output_fields}
        )

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Start with no rows."""
        self._states = [context.state(name) for name in self._state_names]
        self._watermark: Watermark | None = None
        self._tuples_of = [
            WaitingTuples(self._inputs(side), context.this_component_id, self._time(side)) for side in SIDES
        ]
        self._rows: list[list[pa.Table]] = [[], []]

    def _time(self, side: int) -> str | None:
        return None if self._ttl is None else self._layout.sides[side].time

    def _inputs(self, side: int) -> Fields:
        stream = self._layout.sides[side]
        return stream.fields if self._ttl is None else stream.inputs

    def _take(self, side: int, rows: pa.Table) -> None:
        stream, time = self._layout.sides[side], self._time(side)
        fitted = cast_rows(rows.select(stream.fields.names), stream.schema, f"a row of {stream.source!r}")
        until = np.full(rows.num_rows, MICROS_MAX)
        if time is not None and self._ttl is not None:
            times = in_known_years(event_times(rows, time))
            last = micros_in(pc.fill_null(times, timestamps(until[:1])[0]))
            until = np.clip(np.minimum(last, MICROS_MAX - self._ttl) + self._ttl, MICROS_MIN, MICROS_MAX)
        self._rows[side].append(fitted.append_column(UNTIL, timestamps(until)))

    def finish_batch(self) -> None:
        """Emit the pairs of the batch's rows with one another and with kept ones, and keep the rows."""
        self._make_columns()
        new = [self._concatenated(side) for side in SIDES]
        keyed = [self._with_key(side, new[side]) for side in SIDES]
        partners = [self._partners_of(side, keyed[RIGHT - side]) for side in SIDES]
        lonely = self._lonely(partners[LEFT]) if self._keeps_met else None
        if self._keeps_met:
            partners[LEFT] = self._of_stream(partners[LEFT])
        every = [pa.concat_tables([keyed[side], partners[side]]).combine_chunks() for side in SIDES]
        ids = self._key_ids(every)
        has_partner = self._emit_pairs(every, ids, [each.num_rows for each in keyed])
        if self._is_left:
            without_key = self._without_key(new[LEFT])
            self._emit_alone(pa.concat_tables([keyed[LEFT].filter(pa.array(~has_partner)), without_key]), 1)
            if lonely is None:
                self._emit_alone(self._first_met(partners[LEFT], ids[LEFT][keyed[LEFT].num_rows :]), -1)
            else:
                self._emit_alone(lonely, -1)
        if lonely is not None:
            keyed[LEFT] = self._marked(keyed[LEFT], has_partner, lonely)
        for side in SIDES:
            if keyed[side].num_rows:
                self._keep(side, keyed[side])
        if is_last_task(self.context):
            self._forget()
            self.context.gauge("kept", sum(state.rows_held() for state in self._states))

    def _concatenated(self, side: int) -> pa.Table:
        schema = self._layout.sides[side].schema.append(pa.field(UNTIL, pa.timestamp("us", tz="UTC")))
        parts = [rows.cast(schema) for rows in self._rows[side]]
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def _with_key(self, side: int, rows: pa.Table) -> pa.Table:
        """Return the rows that may have partners: no part of their key is null."""
        for name in self._layout.sides[side].key:
            if rows[name].null_count:
                rows = rows.filter(rows[name].is_valid())
        return rows

    def _without_key(self, rows: pa.Table) -> pa.Table:
        is_null = [rows[name].is_null().to_numpy() for name in self._layout.sides[LEFT].key]
        return rows.filter(pa.array(np.logical_or.reduce(is_null)))

    def _partners_of(self, side: int, new: pa.Table) -> pa.Table:
        """Return the kept rows of a side that have a key of some rows of the other one."""
        keys = new.select(list(self._layout.sides[RIGHT - side].key))
        if not keys.num_rows:
            return self._kept_fields(side).arrow_schema().empty_table()
        return in_own_order(self._states[side].rows_of(self._named(side, keys)))

    def _named(self, side: int, keys: pa.Table) -> pa.Table:
        """Return keys with the names that a side has for them."""
        return keys.rename_columns(list(self._layout.sides[side].key))

    def _key_ids(self, every: Sequence[pa.Table]) -> Sequence[Positions]:
        """Return for each side a number of each row's key, the same for equal keys on both sides."""
        sides = self._layout.sides
        keys = [self._named(LEFT, every[side].select(list(sides[side].key))) for side in SIDES]
        ids = key_ids(pa.concat_tables(keys), list(sides[LEFT].key))
        return np.split(ids, [every[LEFT].num_rows])

    def _emit_pairs(self, every: Sequence[pa.Table], ids: Sequence[Positions], new: Sequence[int]) -> Any:
        """Emit all pairs but those of kept rows, given how many rows are new; return which new left ones have one."""
        sides = self._layout.sides
        left, right = (Timed(numbers, np.zeros(len(numbers), np.int64)) for numbers in ids)
        shown = [
            each.select(side.fields.names).rename_columns(list(side.shown.values()))
            for side, each in zip(sides, every, strict=True)
        ]
        has_partner = np.zeros(new[LEFT], dtype=bool)
        of_kept = pairs(left.after(new[LEFT]), right.first(new[RIGHT]), 0, 0)
        for lefts, rights in itertools.chain(
            pairs(left.first(new[LEFT]), right, 0, 0), ((lefts + new[LEFT], rights) for lefts, rights in of_kept)
        ):
            has_partner[lefts[lefts < new[LEFT]]] = True
            self.context.count("joined", len(lefts))
            self._emit(self._layout.joined(rows_at(shown[LEFT], lefts), rows_at(shown[RIGHT], rights)), 1)
        return has_partner

    def _first_met(self, rows: pa.Table, ids: Positions) -> pa.Table:
        """Return those of kept left rows with new partners that had none before: no right row of their key is kept.

        ``ids`` has a number of each row's key, which is looked up once.
        """
        if not rows.num_rows:
            return rows
        _, first, key_numbers = np.unique(ids, return_index=True, return_inverse=True)
        keys = rows_at(rows.select(list(self._layout.sides[LEFT].key)), first)
        had_partner = self._states[RIGHT].holds(self._named(RIGHT, keys)).to_numpy(zero_copy_only=False)
        return rows.filter(pa.array(~had_partner[key_numbers]))

    def _of_stream(self, rows: pa.Table) -> pa.Table:
        return rows.filter(rows[MET].is_null()).drop_columns([ALONE, MET])

    def _lonely(self, rows: pa.Table) -> pa.Table:
        """Return those of kept left rows with new partners that were emitted alone, and have met none since."""
        if not rows.num_rows:
            return self._of_stream(rows)
        ids = key_ids(rows, list(self._layout.sides[LEFT].key))
        met = np.full(int(ids.max()) + 1, -1)
        np.maximum.at(met, ids, rows[MET].fill_null(-1).to_numpy())
        return self._of_stream(rows.filter(pa.array(rows[ALONE].fill_null(-1).to_numpy() > met[ids])))

    def _marked(self, rows: pa.Table, has_partner: Any, met: pa.Table) -> pa.Table:
        """Return new left rows with what was emitted of them, and a row for each key whose rows have met a partner."""
        txid = np.full(rows.num_rows, self.attempt.txid)
        alone = rows.append_column(ALONE, pa.array(txid, mask=has_partner)).append_column(
            MET, pa.nulls(rows.num_rows, pa.int64())
        )
        keys, schema = list(self._layout.sides[LEFT].key), self._kept_fields(LEFT).arrow_schema()
        last = met.group_by(keys, use_threads=False).aggregate([(UNTIL, "max")])
        columns = {**{name: last[name] for name in keys}, UNTIL: last[f"{UNTIL}_max"]}
        columns[MET] = pa.array(np.full(last.num_rows, self.attempt.txid))
        nulls = {field.name: pa.nulls(last.num_rows, field.type) for field in schema}
        met_rows = pa.table([columns.get(field.name, nulls[field.name]) for field in schema], schema)
        return pa.concat_tables([alone.cast(schema), met_rows])

    def _emit_alone(self, rows: pa.Table, diff: int) -> None:
        left = self._layout.sides[LEFT]
        shown = rows.select(left.fields.names).rename_columns(list(left.shown.values()))
        columns = [
            shown[field.name] if field.name in shown.column_names else pa.nulls(rows.num_rows, field.type)
            for field in self._layout.joined_fields.arrow_schema()
        ]
        self._emit(pa.table(columns, names=self._layout.joined_fields.names), diff)

    def _emit(self, rows: pa.Table, diff: int) -> None:
        if self._is_left:
            rows = rows.append_column(DIFF, pa.array(np.full(rows.num_rows, diff)))
        for batch in rows.combine_chunks().to_batches():
            self.collector.emit_batch(batch)

    def _keep(self, side: int, rows: pa.Table) -> None:
        """Keep rows that are not to be forgotten yet."""
        state = self._states[side]
        expired_until = None if self._ttl is None else state.taken_until()
        if expired_until is not None:
            rows = rows.filter(pa.array(micros_in(rows[UNTIL]) > expired_until))
        if rows.num_rows:
            state.append(rows)

    def _forget(self) -> None:
        """Forget the rows whose time has passed; the last of all tasks does it, when the others have joined theirs."""
        if self._clock is None:
            return
        if self._watermark is None:
            raise no_watermark(self._clock, self.context)
        # Rows without a time stay when a clock closes at the end of its sources.
        if self._watermark.after is not None:
            for state in self._states:
                state.take_expired(min(self._watermark.after, MICROS_MAX - 1))

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__
        if "_rows" in state:
            self._make_columns()
            state = {**state, "_rows": [[rows_to_bytes(row) for row in rows] for rows in self._rows]}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_rows" in state:
            self._rows = [[rows_of_bytes(row) for row in rows] for rows in state["_rows"]]
