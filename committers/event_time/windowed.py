"""Aggregates of windows of event time: each said once when it closes, or kept up to date in a table."""

from __future__ import annotations

import datetime as dt
import os
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from committers.aggregates.aggregate import Aggregate
from committers.aggregates.aggregation import Aggregation, merged_rows
from committers.aggregates.fields import fields_of
from committers.event_time.timed import AHEAD, EXPIRES, LATE, UNTIMED, TimedCommitter
from committers.event_time.times import TIMESTAMP, in_known_years, micros_in, micros_of, timestamps
from committers.event_time.windows import END, START, Window, sessions, with_windows
from state import DeltaExpiringRows, DeltaState
from txtopo import Fields, OutputFieldsDeclarer
from txtopo.api.abilities import DescribesFolds
from txtopo.api.arguments import checked_arguments
from txtopo.api.data.tuples import DEFAULT_STREAM
from txtopo.api.reduction import Combiner, Reductions
from txtopo.columnar.conversion import cast_rows
from txtopo.columnar.key_index import key_ids
from txtopo.columnar.reducing import ordered
from txtopo.columnar.rows_by_time import BEFORE_ALL, not_over
from txtopo.columnar.selection import rows_at
from txtopo.errors import FieldsError


class WindowedCommitter(TimedCommitter, DescribesFolds):
    """Reduces rows to partial aggregates by key and window; subclasses say where these go.

    Args:
        state: the name of the state in ``builder.set_state``.
        clock: the component id of the clock.
        time: the field with the event time, a ``timestamp``.
        window: the kind of windows.
        aggregates: the name of each result, and how it is computed. A field needs a type in one of them.
        key: the key fields, each with a type; without any, there is one window at a time for all rows.
        lateness: how long a window is kept open after the watermark has passed its end.
        late_rows: the fields of whole late rows; None: what is late is emitted as aggregates.

    Raises:
        FieldsError: two columns have the same name, a field has no type, or sessions have no key.
    """

    @checked_arguments
    def __init__(  # noqa: PLR0913 - what to aggregate, by what, when
        self,
        state: str,
        *,
        clock: str,
        time: str,
        window: Window,
        aggregates: Mapping[str, Aggregate],
        key: Fields | None = None,
        lateness: dt.timedelta = dt.timedelta(),
        late_rows: Fields | None = None,
    ) -> None:
        bounds = Fields(f"{START}: timestamp", f"{END}: timestamp")
        aggregates = dict(aggregates)
        self._key = key or Fields()
        self._late_rows = late_rows
        extra = late_rows or Fields()
        wrong = [name for name in (*self._key, *aggregates, *extra) if name in {START, END, EXPIRES}]
        if wrong:
            raise FieldsError(f"a {type(self).__name__} has a column {wrong[0]!r} of its own; give yours another name")
        every = (
            self._key,
            Fields(f"{time}: timestamp"),
            *(aggregate.inputs for aggregate in aggregates.values()),
            extra,
        )
        types = {
            name: kind
            for fields in every
            for name, kind in zip(fields.names, fields.types, strict=True)
            if kind is not None
        }
        untyped = [name for fields in every for name in fields if name not in types]
        if untyped:
            raise FieldsError(
                f"field {untyped[0]!r} has no type; write '{untyped[0]}: long' or another Spark type, in the key, in "
                "one of the aggregates, or in late_rows"
            )
        if window.merges:
            self._check_sessions()
        self._aggregation = Aggregation(self._key + bounds, aggregates).typed(pa.schema(types))
        self._window = window
        names = dict.fromkeys(
            [*self._key, *(name for aggregate in aggregates.values() for name in aggregate.inputs), *extra]
        )
        inputs = fields_of(pa.schema({name: types[name] for name in names}))
        kept_open = micros_of(lateness, f"lateness of a {type(self).__name__}", may_be_zero=True)
        # A row at the watermark is in time, and at the very end of a session belongs to it: so the watermark must be
        # past the end, while it need only reach that of other windows. Sessions expire by their last rows, from which
        # the watermark is to be away: by another gap, too.
        super().__init__(state, clock, time, inputs, kept_open + window.merges + window.gap)

    @abstractmethod
    def _check_sessions(self) -> None:
        """Raise a FieldsError if the windows can't be sessions."""

    @abstractmethod
    def fold(self, partials: pa.Table) -> None:
        """Take partial aggregates that are in time."""

    def _declare_refused(self, declarer: OutputFieldsDeclarer) -> None:
        late = self._refused_fields()
        declarer.declare_stream(LATE, late.with_attempt())
        untimed = [name for name in late if name not in {START, END}]
        declarer.declare_stream(UNTIMED, late.subset(untimed).with_attempt())

    def _refused_fields(self) -> Fields:
        """Return the fields of what is late."""
        if self._late_rows is None:
            return fields_of(self._aggregation.result_schema)
        return self._inputs.subset(self._late_rows.names) + Fields(f"{START}: timestamp", f"{END}: timestamp")

    def combiner(self) -> Combiner | None:
        """Return how a batch becomes partial aggregates; None if late rows must stay whole until they are known."""
        return super().combiner() if self._late_rows is None else None

    @property
    def folds(self) -> Mapping[str, Mapping[str, str]]:
        """What each column of the state is made of, in words."""
        return {self._state_name: self._aggregation.definition}

    @property
    def grouped_by(self) -> Fields:
        """The fields of the key: one task must have all rows of a key."""
        return self._key

    @property
    def keys(self) -> Sequence[str]:
        """The key's columns."""
        return self._key.names

    def reduced(self, rows: pa.Table, times: pa.ChunkedArray) -> pa.Table:
        """Return the partial aggregates of rows by key and window; null windows for rows without a time.

        Rows of sessions have the window that they would have alone: by this one they are late or not. If late rows
        stay whole, these are the rows themselves, once for each of their windows.
        """
        starts = ends = pa.nulls(rows.num_rows, TIMESTAMP)
        if not times.null_count:
            starts, ends = map(timestamps, self._window.panes(micros_in(times)))
        elif times.null_count < rows.num_rows:
            is_timed = times.is_valid()
            bounds = map(timestamps, self._window.panes(micros_in(times.drop_null())))
            starts, ends = (pc.replace_with_mask(starts, is_timed.combine_chunks(), each) for each in bounds)
        ahead = rows[AHEAD]
        if self._late_rows is not None:
            row_fields = self._inputs.subset(self._unlike_windows(self._inputs))
            full_rows = cast_rows(rows.select(row_fields.names), row_fields.arrow_schema(), "late_rows")
            full_rows = full_rows.append_column(START, starts).append_column(END, ends).append_column(AHEAD, ahead)
            return self._closing(self._divided(full_rows))
        inputs = [name for name in self._unlike_windows(self._inputs) if name in self._aggregation.inputs]
        timed = rows.select(inputs).append_column(START, starts).append_column(END, ends)
        lifted = self._aggregation.lifted(timed)
        panes = self._by_window(lifted.append_column(AHEAD, ahead))
        windows = self._divided(panes)
        return self._closing(panes if windows is panes else self._by_window(windows))

    @staticmethod
    def _unlike_windows(names: Iterable[str]) -> list[str]:
        """Return the columns of rows without an event time that has the name of one of a window's, which is added."""
        return [name for name in names if name not in {START, END}]

    def _divided(self, panes: pa.Table) -> pa.Table:
        return panes if self._window.merges else self._window.widened(panes, self.keys)

    def _by_window(self, partials: pa.Table) -> pa.Table:
        """Return partial aggregates merged to one for each key and window, and each time that is ahead."""
        names = [*self._aggregation.partial_fields.names, AHEAD]
        if partials[AHEAD].null_count == partials.num_rows:
            merged = self._aggregation.merged(partials)
            return merged.append_column(AHEAD, pa.nulls(merged.num_rows, TIMESTAMP))
        keys = [*self._aggregation.key, AHEAD]
        return merged_rows(partials.select(names), keys, self._aggregation.reductions).select(names)

    def _merged(self, rows: pa.Table) -> pa.Table:
        """Return partial aggregates merged to one for each key and window; whole rows as they are."""
        return rows if self._late_rows is not None else self._closing(self._by_window(rows))

    def add(self, rows: pa.Table) -> None:
        """Take rows that are in time."""
        if self._window.merges:
            rows = self._window.widened(rows, self.keys)
        partials = self._aggregation.merged(rows) if self._late_rows is None else self._aggregation.partials(rows)
        self.fold(self._closing(partials))

    def refused(self, rows: pa.Table, stream: str) -> pa.Table:
        """Return rows that do not count, or their results by window."""
        if self._late_rows is None:
            rows = self._aggregation.results(self._aggregation.merged(rows))
        return rows.select([name for name in self._refused_fields() if stream == LATE or name not in {START, END}])

    def _closing(self, windows: pa.Table) -> pa.Table:
        """Return rows of windows, cut to the years that Python knows, with the time by which they expire.

        It is their end, or that of the last row of a session.
        """
        for name in (START, END):
            windows = windows.set_column(windows.column_names.index(name), name, in_known_years(windows[name]))
        if not self._window.merges:
            return windows.append_column(EXPIRES, windows[END])
        lasts = pc.subtract(windows[END].cast(pa.int64()), self._window.gap)
        return windows.append_column(EXPIRES, in_known_years(lasts))


class WindowCommitter(WindowedCommitter):
    """Aggregates the rows of each window of event time by key, and emits each window once, when it closes.

    Transaction N closes a window when the watermark after N has reached the window's end plus the lateness, or has
    passed it if the windows are sessions, to which a row at their very end still belongs. What N itself brings for it
    is in it. What a later transaction brings for it is late as a whole: it is emitted on the stream ``late``, and
    changes nothing. So what a window has said never changes, however often transactions are replayed.

    A row of a session is late if the session that it would be alone has closed, or if it touches one of its key that
    has: no session that is said touches another one.

    *You* subscribe it to the stream by ``fields_grouping`` on fields of the key, and to an :class:`EventClock` by
    ``all_grouping``; give its state, from :meth:`state`, to ``builder.set_state``; and put what it emits into a table
    by an :class:`AppendCommitter` below it.
    *txtopo* guarantees that each row counts in exactly the windows that it belongs to, or is late in them, once.

    It emits the key, ``window_start``, ``window_end`` and the aggregates, as columns: closed windows on the default
    stream; on ``late`` what came too late, or is further ahead than the clock allows; and on ``untimed``, without the
    two times, the rows whose event time is null.

    It counts ``closed`` windows and the rows that it emits on ``late`` and ``untimed``; the gauge ``open_rows`` is the
    number of partial aggregates of open windows, at least one for each, and of sessions that a row may still touch.

    At a restart the settings may change. With another size, windows that are open close as they were, beside those of
    the new size. With another gap, rows that came before keep the old one, sessions that touch are one, and what was
    late stays so; with a larger one, open sessions are said later by the difference. Another lateness holds for open
    windows, too; what was closed stays closed. For sessions instead of other windows, or the other way round, take
    another state.

    Args:
        state: the name of the state of open windows in ``builder.set_state``.
        clock: the component id of the clock.
        time: the field with the event time, a ``timestamp``.
        window: the kind of windows.
        aggregates: the name of each result, and how it is computed. A field needs a type in one of them.
        key: the key fields, each with a type; without any, there is one window at a time for all rows.
        lateness: how long a window is kept open after the watermark has passed its end.
        late_rows: the fields of rows that are late or untimed, to emit these whole: a late row comes once for each
            window that it is late for, with the window's times. Then no batch is reduced before the commit phase, so
            every row goes to the coordinator. None: what is late or untimed is emitted as aggregates.

    Raises:
        FieldsError: two columns have the same name, a field has no type, or sessions have no key.
    """

    def _check_sessions(self) -> None:
        if not len(self._key):
            raise FieldsError("sessions are those of a key; give the WindowCommitter one")

    def state(self, path: str | os.PathLike[str], **options: Any) -> DeltaExpiringRows:
        """Return the state of open windows, a table of their partial aggregates; ``options`` are the table's."""
        columns = self._aggregation.partial_fields.append(pa.field(EXPIRES, TIMESTAMP))
        return DeltaExpiringRows(
            path, fields_of(columns), EXPIRES, key=self.keys if self._window.merges else (), **options
        )

    def results(self) -> Fields:
        """Return the fields of a closed window, as for the table that they are appended to."""
        return fields_of(self._aggregation.result_schema)

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the three streams."""
        declarer.declare(self.results().with_attempt())
        self._declare_refused(declarer)

    def fold(self, partials: pa.Table) -> None:
        """Append partial aggregates to the open windows: nothing is read, and nothing is looked up."""
        self._state.append(partials)

    def changes_what_was_said(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Return for each row whether it touches a session that was said. None is before it, or it would be late."""
        if not self._window.merges:
            return super().changes_what_was_said(rows)
        emitted = self._state.rows_of(rows.select(self.keys))
        emitted = emitted.filter(pc.is_null(emitted[START]))
        ids = key_ids(pa.concat_tables([rows.select(self.keys), emitted.select(self.keys)]), self.keys)
        ends = np.full(len(ids), BEFORE_ALL)
        np.maximum.at(ends, ids[rows.num_rows :], micros_in(emitted[END]))
        return micros_in(rows[START]) <= ends[ids[: rows.num_rows]]

    def expire(self, until: int) -> None:
        """Emit the windows that end up to a time."""
        rows = self._state.take_expired(until)
        if rows.num_rows and self._window.merges:
            rows = self._ended(rows.filter(pc.is_valid(rows[START])), until)
        if rows.num_rows:
            merged = self._aggregation.merged(rows.drop_columns([EXPIRES]))
            # A table as of the past has its rows in other runs, and a replay must emit the same.
            merged = rows_at(merged, ordered(merged.select(list(self._aggregation.key))).to_numpy())
            if self._window.merges:
                self._keep_ends(merged, until)
            self.context.count("closed", merged.num_rows)
            self.emit(self._aggregation.results(merged), DEFAULT_STREAM)
        self.context.gauge("open_rows", self._state.rows_held())

    def _keep_ends(self, emitted: pa.Table, until: int) -> None:
        """Keep the ends of sessions for as long as a row that is in time may touch them, in rows without a start."""
        values = {name: emitted[name] for name in (*self.keys, END)} | {EXPIRES: emitted[END]}
        columns = [*self._aggregation.partial_fields, pa.field(EXPIRES, TIMESTAMP)]
        rows = pa.table(
            [values.get(column.name, pa.nulls(emitted.num_rows, column.type)) for column in columns], pa.schema(columns)
        )
        self._state.append(not_over(rows, EXPIRES, until))

    def _ended(self, rows: pa.Table, until: int) -> pa.Table:
        """Return the parts of sessions that are over, as rows of whole sessions; put back what the others have."""
        going_on = self._state.rows_of(rows.select(self.keys))
        every = pa.concat_tables([rows, going_on.filter(pc.is_valid(going_on[START]))])
        every = with_windows(every, *sessions(every, self.keys))
        # The last row may be one that is not over, also after the end by this gap, if it came with a smaller one.
        ids, lasts = key_ids(every, [*self.keys, START]), np.full(every.num_rows, BEFORE_ALL)
        np.maximum.at(lasts, ids, np.maximum(micros_in(every[EXPIRES]), micros_in(every[END]) - self._window.gap))
        lasts = lasts[ids][: rows.num_rows]
        rows = every.slice(0, rows.num_rows).drop_columns([EXPIRES]).append_column(EXPIRES, timestamps(lasts))
        is_over = lasts <= until
        if not is_over.all():
            # One row for each session, or one that never ends would be taken and put back with all its rows.
            key = [*self._aggregation.key, EXPIRES]
            self._state.append(merged_rows(rows.filter(pa.array(~is_over)), key, self._aggregation.reductions))
        return rows.filter(pa.array(is_over))


class WindowUpdateCommitter(WindowedCommitter):
    """Aggregates the rows of each window of event time by key into a keyed table, which each transaction updates.

    So readers see a window before it closes: Structured Streaming's output mode *update*. What comes for a window that
    has closed is late as a whole, by the rule of a :class:`WindowCommitter`: it is emitted on the stream ``late``, and
    changes nothing. A window that has closed stays in the table; nobody removes it.

    *You* subscribe it to the stream by ``fields_grouping`` on fields of the key, and to an :class:`EventClock` by
    ``all_grouping``, and give its state, from :meth:`state`, to ``builder.set_state``.
    *txtopo* guarantees that each row counts in exactly the windows that it belongs to, or is late in them, once.

    The table's key is that of the rows, ``window_start`` and ``window_end``; its values are folded as those of a
    :class:`~committers.ReduceCommitter` with several aggregates: a ``Mean`` named ``price`` fills ``price_sum`` and
    ``price_count``, a ``First`` or ``Last`` named ``opening`` fills ``opening`` and ``opening_at``. A null in a key
    raises a ``FieldsError``: keys of a table never are null. It emits ``late`` and ``untimed`` only, as a
    :class:`WindowCommitter` does.

    At a restart the size and the lateness may change: windows of the former size stay as they are, and more lateness
    opens windows again.

    Args:
        state: the name of the state in ``builder.set_state``.
        clock: the component id of the clock.
        time: the field with the event time, a ``timestamp``.
        window: the kind of windows; not sessions, whose start and end change as they grow.
        aggregates: the name of each result, and how it is computed. A field needs a type in one of them.
        key: the key fields, each with a type; without any, there is one window at a time for all rows.
        lateness: how long a window is kept open after the watermark has passed its end.
        late_rows: the fields of rows that are late or untimed, to emit these whole: a late row comes once for each
            window that it is late for, with the window's times. Then no batch is reduced before the commit phase, so
            every row goes to the coordinator. None: what is late or untimed is emitted as aggregates.

    Raises:
        FieldsError: two columns have the same name, a field has no type, or the windows are sessions.
    """

    def _check_sessions(self) -> None:
        raise FieldsError(
            "a session's start and end change as it grows, so it has no row to update; give a WindowCommitter the "
            "sessions"
        )

    def state(self, path: str | os.PathLike[str], **options: Any) -> DeltaState:
        """Return the table of windows; ``options`` are the table's."""
        return DeltaState(path, *self._aggregation.table_fields, **options)

    def results(self, rows: pa.Table) -> pa.Table:
        """Return the results that rows of the table show: key, window, and one column for each aggregate."""
        return self._aggregation.results(rows)

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the two streams."""
        self._declare_refused(declarer)

    def fold(self, partials: pa.Table) -> None:
        """Fold partial aggregates into the windows of the table."""
        reductions = Reductions(tuple(self._aggregation.reductions.items()))
        self._state.multi_reduce(partials.drop_columns([EXPIRES]), reductions)

    def taken_until(self) -> int | None:
        """Return None: nothing is taken out of the table."""
        return None

    def expire(self, until: int) -> None:
        """Leave the windows in the table."""
