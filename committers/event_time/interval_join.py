"""``IntervalJoin``: joins the rows of two streams by key whose event times are near each other, exactly once.

The state has the rows of both streams that may still match, one expiring table for both sides: a left row until the
watermark has passed its time plus ``upper``, a right one until it has passed its time less ``lower``. Then whatever
could match it is late. A transaction finds its pairs in three steps:

1. It looks up the kept rows of the other side by the keys of its own rows.
2. Of its own rows and those, it finds the pairs in sorted arrays: new left rows with all right ones, kept left rows
   with new right ones. Two kept rows have met before.
3. It appends its own rows. So each pair is found by the transaction that brings the later of the two.

Whether a row has a partner depends on its key and time alone. A row that matches when it comes says so in a column; for
those kept that match later, a *match* with their key and time is appended, since nothing in an expiring table changes.
It expires with them: what expires without either has no partner. A row that comes at the time of a match has the same
partners, because they are kept for as long as such a row is not late.
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

from committers.aggregates.fields import fields_of
from committers.event_time.clock import EventClock, clock_mistakes
from committers.event_time.join_streams import (
    AT,
    LEFT,
    MATCH,
    MATCHED,
    NAMES,
    RIGHT,
    SIDE,
    SIDES,
    UNTIL,
    JoinStream,
    Layout,
    TwoStreamCommitter,
    in_own_order,
    of_side,
)
from committers.event_time.pairs import Timed, pairs
from committers.event_time.timed import EXPIRES, LATE, UNTIMED, ClockedCommitter, with_ahead
from committers.event_time.times import MICROS_MAX, micros_in, timestamps
from committers.waiting import WaitingTuples
from state import DeltaExpiringRows
from txtopo import BatchOutputCollector, Fields, OutputFieldsDeclarer, TopologyContext, TransactionAttempt
from txtopo.api.abilities import Inputs
from txtopo.api.arguments import checked_arguments
from txtopo.api.data.tuples import DEFAULT_STREAM
from txtopo.api.data.utc import MICROS_MIN, MICROSECOND
from txtopo.columnar.key_index import key_ids
from txtopo.columnar.progress_probe import current_probe
from txtopo.columnar.rows_by_time import are_over
from txtopo.columnar.selection import rows_at
from txtopo.errors import ConfigError

_OUTER: Mapping[str, Sequence[int]] = {"inner": (), "left": (LEFT,), "full": SIDES}


class IntervalJoin(TwoStreamCommitter, ClockedCommitter):
    """Joins each row of one stream with the rows of another that have its key, and a time near its own.

    A right row matches a left one if their keys are equal, no part of them null, and its event time is at least the
    left one's plus ``lower`` and at most that plus ``upper``. Both bounds belong to it.

    A row is late if its time is before the watermark after the transaction before: its partners may be gone. What is
    late, or further ahead than the clock allows, is emitted on the stream ``left_late`` or ``right_late``, with the
    fields of its stream, and a row whose event time is null on ``left_untimed`` or ``right_untimed``; none of these is
    joined. All others are kept for as long as a row that is not late may match them.

    It emits joined rows, :meth:`joined`, as columns: the fields of the left stream, then those of the right one. Fields
    of the key that have the same name come once.

    It counts ``joined`` rows, rows ``without_partner``, and the rows that it emits on the other streams; the gauge
    ``kept`` is the number of rows in its state.

    *You* subscribe it to both streams by ``fields_grouping`` on their keys, and to an :class:`EventClock` of both by
    ``all_grouping``; and give its state, from :meth:`state`, to ``builder.set_state``. All bolts below it run in the
    commit phase, so put expensive work above it, and name only fields that are needed below.
    *txtopo* guarantees that each pair is emitted once, and each row without a partner once: when the watermark has
    passed the last time at which one could have come.

    At a restart the interval may change: it holds for pairs with rows that come later; kept rows go when they would
    have gone. For another kind of join, take another state.

    Args:
        state: the name of the state of kept rows in ``builder.set_state``.
        clock: the component id of the clock.
        left: the left stream.
        right: the right stream; it may be the same.
        lower: how far the right time is after the left one, at least; negative: at most so far before it.
        upper: how far the right time is after the left one, at most.
        how: ``"inner"``: pairs; ``"left"``: left rows without a partner, too, with nulls in its place; ``"full"``:
            those of both streams.

    Raises:
        ConfigError: ``upper`` is less than ``lower``, or a stream has no event time.
        FieldsError: the keys have different types, or two fields have the same name.
    """

    @checked_arguments
    def __init__(  # noqa: PLR0913 - what to join, when, and how
        self,
        state: str,
        *,
        clock: str,
        left: JoinStream,
        right: JoinStream,
        lower: dt.timedelta,
        upper: dt.timedelta,
        how: Literal["inner", "left", "full"] = "inner",
    ) -> None:
        for stream in (left, right):
            if stream.time is None:
                raise ConfigError(
                    f"an IntervalJoin joins by event time; write time='…' in the JoinStream of {stream.source!r}"
                )
        if upper < lower:
            raise ConfigError(f"upper of an IntervalJoin is {upper}, less than lower, which is {lower}")
        self._layout = Layout((left, right), _OUTER[how])
        self._lower, self._upper = (
            min(max(each // MICROSECOND, MICROS_MIN - MICROS_MAX), MICROS_MAX - MICROS_MIN) for each in (lower, upper)
        )
        # Rows at the watermark are in time, so it must be past their times.
        super().__init__(state, clock, lateness=1)
        self._state_names = (state,)

    def state(self, path: str | os.PathLike[str], **options: Any) -> DeltaExpiringRows:
        """Return the state of kept rows, a table with those of both streams; ``options`` are the table's."""
        layout = self._layout
        return DeltaExpiringRows(path, fields_of(layout.schema), UNTIL, key=(SIDE, *layout.keys), **options)

    def joined(self) -> Fields:
        """Return the fields of joined rows, as for the table that they are appended to."""
        return self._layout.joined_fields

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the five streams."""
        declarer.declare(self.joined().with_attempt())
        for side, kind in itertools.product(SIDES, (LATE, UNTIMED)):
            declarer.declare_stream(_stream(side, kind), self._layout.sides[side].fields.with_attempt())

    def input_mistakes(self, inputs: Inputs) -> Iterator[str]:
        """Return what is wrong with the clock, the streams that it lacks, and the fields that these lack."""
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
        super().prepare(config, context, collector, attempt)
        self._tuples_of = [
            WaitingTuples(side.inputs, context.this_component_id, side.time) for side in self._layout.sides
        ]

    def _take(self, side: int, rows: pa.Table) -> None:
        self._wait_for(
            self._layout.waiting(side, *with_ahead(rows, self._layout.sides[side].time or "", self.context.planned_at))
        )

    @property
    def keys(self) -> Sequence[str]:
        """The key's columns."""
        return self._layout.keys

    def _merged(self, rows: pa.Table) -> pa.Table:
        return rows

    def _refuse(self, rows: pa.Table, stream: str) -> None:
        for side in SIDES:
            of_this_side = of_side(rows, side)
            if of_this_side.num_rows:
                super()._refuse(of_this_side, _stream(side, stream))

    def refused(self, rows: pa.Table, stream: str) -> pa.Table:
        """Return rows of a side as its stream has them."""
        side = next(side for side in SIDES if stream.startswith(NAMES[side]))
        return self._layout.stream_rows(side, rows, EXPIRES)

    def add(self, rows: pa.Table) -> None:
        """Emit the pairs that rows have with one another and with kept ones, and keep the rows."""
        new = [self._waiting_rows(of_side(rows, side), side) for side in SIDES]
        kept = self._partners(new)
        every = [pa.concat_tables([new[side], kept[side]]).combine_chunks() for side in SIDES]
        has_matched = self._emit_pairs(every, [each.num_rows for each in new])
        waiting = []
        for side in SIDES:
            flags, of_kept = np.split(has_matched[side], [new[side].num_rows])
            if side in self._layout.outer:
                waiting.append(self._matches(side, kept[side], of_kept))
                at = new[side].schema.get_field_index(MATCHED[side])
                new[side] = new[side].set_column(at, MATCHED[side], pa.array(flags))
            waiting.append(self._still_matching(new[side], side))
        self._state.append(pa.concat_tables(waiting))

    def _waiting_rows(self, rows: pa.Table, side: int) -> pa.Table:
        """Return rows of a transaction in the columns of the state."""
        times = micros_in(rows[EXPIRES])
        reach = self._upper if side == LEFT else -self._lower
        until = timestamps(np.clip(times + reach, MICROS_MIN, MICROS_MAX))
        columns = {name: rows[name] for name in rows.column_names}
        return self._layout.filled(columns | {AT: rows[EXPIRES], UNTIL: until}, rows.num_rows)

    def _partners(self, new: Sequence[pa.Table]) -> list[pa.Table]:
        """Return the kept rows of each side that have a key of a new row of the other."""
        keys = [_with_side(self._with_key(new[side]).select(self.keys), RIGHT - side) for side in SIDES]
        partners = in_own_order(self._state.rows_of(pa.concat_tables(keys)))
        return [of_side(partners, side) for side in SIDES]

    def _with_key(self, rows: pa.Table) -> pa.Table:
        """Return the rows that may have partners: no part of their key is null."""
        return rows.filter(pa.array(self._has_key(rows)))

    def _has_key(self, rows: pa.Table) -> Any:
        return np.logical_and.reduce([rows[name].is_valid().to_numpy() for name in self.keys])

    def _emit_pairs(self, every: Sequence[pa.Table], new: Sequence[int]) -> list[Any]:
        """Emit all pairs but those of kept rows, given how many rows are new; return which rows have one."""
        left, right = self._timed(every)
        shown = [self._layout.shown(side, every[side]) for side in SIDES]
        has_matched = [np.zeros(each.num_rows, dtype=bool) for each in every]
        of_kept = pairs(left.after(new[LEFT]), right.first(new[RIGHT]), self._lower, self._upper)
        matches = itertools.chain(
            pairs(left.first(new[LEFT]), right, self._lower, self._upper),
            ((lefts + new[LEFT], rights) for lefts, rights in of_kept),
        )
        for lefts, rights in matches:
            has_matched[LEFT][lefts] = has_matched[RIGHT][rights] = True
            current_probe().step()  # a key with many rows on both sides has pairs for minutes
            self.context.count("joined", len(lefts))
            self.emit(self._layout.joined(rows_at(shown[LEFT], lefts), rows_at(shown[RIGHT], rights)), DEFAULT_STREAM)
        return has_matched

    def _timed(self, every: Sequence[pa.Table]) -> list[Timed]:
        """Return each side's rows as numbers of their keys, and their times; keys with a null are equal to none."""
        count = every[LEFT].num_rows
        ids = key_ids(pa.concat_tables([each.select(self.keys) for each in every]), self.keys)
        timed = []
        for side, side_ids in zip(SIDES, (ids[:count], ids[count:]), strict=True):
            numbers = np.where(self._has_key(every[side]), side_ids, len(ids) + side)
            timed.append(Timed(numbers, micros_in(every[side][AT])))
        return timed

    def _matches(self, side: int, kept: pa.Table, has_matched: Any) -> pa.Table:
        """Return matches of kept rows that have matched for the first time, one for each key and time."""
        is_first = has_matched & ~kept[MATCHED[side]].to_numpy()
        rows = kept.filter(pa.array(is_first)).select([*self.keys, AT, UNTIL])
        rows = rows.group_by(rows.column_names).aggregate([])
        if rows.num_rows:
            matches = self._state.rows_of(_with_side(rows.select(self.keys), side + MATCH))
            rows = rows.filter(pa.array(~self._are_matched(rows, matches)))
        columns = {name: rows[name] for name in rows.column_names}
        columns[SIDE] = pa.array(np.full(rows.num_rows, side + MATCH, np.int8))
        return self._layout.filled(columns, rows.num_rows)

    def _are_matched(self, rows: pa.Table, matches: pa.Table) -> Any:
        """Return for each row whether there is a match of its key and time."""
        names = [*self.keys, AT]
        ids = key_ids(pa.concat_tables([rows.select(names), matches.select(names)]), names)
        return np.isin(ids[: rows.num_rows], ids[rows.num_rows :])

    def _still_matching(self, rows: pa.Table, side: int) -> pa.Table:
        """Return the rows that others may match that come later; emit the others that have no partner."""
        until = self._state.taken_until()
        if until is not None:
            is_over = are_over(rows, UNTIL, until)
            self._emit_alone(rows.filter(is_over), side)
            rows = rows.filter(pc.invert(is_over))
        return rows if side in self._layout.outer else self._with_key(rows)

    def _emit_alone(self, rows: pa.Table, side: int, matches: pa.Table | None = None) -> None:
        """Emit rows of a side that have no partner, if the join emits such rows."""
        if side not in self._layout.outer:
            return
        rows = rows.filter(pc.invert(rows[MATCHED[side]]))
        if matches is not None and matches.num_rows:
            rows = in_own_order(rows.filter(pa.array(~self._are_matched(rows, matches))))
        if rows.num_rows:
            self.context.count("without_partner", rows.num_rows)
            self.emit(self._layout.alone(side, rows), DEFAULT_STREAM)

    def expire(self, until: int) -> None:
        """Forget rows that nothing can match any more; emit those that had no partner."""
        rows = self._state.take_expired(until)
        for side in self._layout.outer:
            self._emit_alone(of_side(rows, side), side, of_side(rows, side + MATCH))
        self.context.gauge("kept", self._state.rows_held())


def _stream(side: int, kind: str) -> str:
    return f"{NAMES[side]}_{kind}"


def _with_side(keys: pa.Table, side: int) -> pa.Table:
    """Return keys with the number of a side before them."""
    return keys.add_column(0, SIDE, pa.array(np.full(keys.num_rows, side, np.int8)))
