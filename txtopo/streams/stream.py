"""Streams, their groups and windows: what can be said of them, and which step each word makes."""
# ruff: noqa: SLF001 - the classes of this file are one thing, and what they tell each other is nobody else's

from __future__ import annotations

import datetime as dt
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import attrs
import pyarrow as pa

from committers import (
    AppendCommitter,
    ApplyChanges,
    Deduplicate,
    EventClock,
    LookupJoin,
    ReduceCommitter,
    ReplaceCommitter,
    WindowCommitter,
    WindowUpdateCommitter,
)
from committers.aggregates.aggregate import Aggregate
from committers.aggregates.aggregation import Aggregation
from committers.aggregates.fields import fields_of
from committers.changes import CHANGES, DIFF
from committers.event_time import TimerCommitter, Window
from committers.event_time.durations import Duration, duration, optional_duration
from committers.event_time.timed import ClockedCommitter
from committers.event_time.times import TIMESTAMP
from committers.event_time.windows import END, START, window_name, window_of
from committers.groups import GroupsBolt
from state import DeltaRows, DeltaState, read_table
from txtopo import BasicBolt, Fields
from txtopo.api.abilities import KeepsByKey
from txtopo.api.arguments import check_options, check_positive
from txtopo.api.components.bolt import Bolt, ICommitter
from txtopo.api.components.groupings import Grouping, GroupingKind
from txtopo.api.data.fields import ATTEMPT_FIELD
from txtopo.api.data.tuples import DEFAULT_STREAM
from txtopo.api.data.types import ddl_name
from txtopo.api.reference import Reference
from txtopo.api.state import State
from txtopo.api.values import ROWS_KINDS
from txtopo.errors import ConfigError, FieldsError, TopologyError
from txtopo.row_wise.steps import Filter, FunctionStep, RowStep, Select, WithColumns
from txtopo.streams.clocks import Clock, by_source, clock_step
from txtopo.streams.graph import ANY, Graph, Port, Step, parts_of, port_of, streams_of
from txtopo.streams.joins import Side, StreamsJoined, pairs_of
from txtopo.streams.rows import HasFields, Names, RowVerbs
from txtopo.streams.shown import Preview, preview_of
from txtopo.streams.verbs import Verbs, step
from txtopo.text.suggestions import did_you_mean
from txtopo.topology.plans.description import fields_text
from txtopo.topology.user_code.place import Place


class Outputs(HasFields):
    """What a step makes besides."""

    @abstractmethod
    def _stream_named(self, stream: str) -> Stream:
        """Return another stream of the step."""

    @step
    def __getitem__(self, stream: str) -> Stream:
        """Return another stream of the step that has made this one."""
        return self._stream_named(stream)

    @property
    @step
    def late(self) -> Stream:
        """What came too late for this step: of ``distinct`` and of windows."""
        return self._stream_named("late")

    @property
    @step
    def untimed(self) -> Stream:
        """The rows without an event time: of ``distinct`` and of windows."""
        return self._stream_named("untimed")

    @property
    @step
    def bad(self) -> Stream:
        """The records that do not fit the fields: of a source with ``bad=``."""
        return self._stream_named("bad-records")


class Stream(RowVerbs["Stream"], Outputs):
    """Rows with the same fields. Each method returns another stream, or ends this one in a table.

    A method that is wrong raises a :class:`~txtopo.errors.TopologyError` with the line that says it.
    """

    def __init__(
        self,
        graph: Graph,
        port: Port,
        clock: Clock | None = None,
        *,
        is_changes: bool = False,
        together: Collection[str] = (),
    ) -> None:
        self._graph, self._port, self._clock = graph, port, clock
        self._is_changes = is_changes and DIFF in port.fields
        self._together = frozenset(together)
        """Fields by which groups are whole: all rows with a value of one come in the same transaction."""

    @property
    def fields(self) -> Fields:
        """The stream's fields, with their types."""
        return self._output().fields

    def _output(self) -> Port:
        """Return what other steps take."""
        return self._port

    @step
    def preview(self, rows: int = 10, *, transactions: int = 5, secs: float = 10.0) -> Preview:
        """Run all that makes the stream in this process, without Spark, and return its first rows; it writes nothing.

        Args:
            rows: how many rows at most.
            transactions: of how many transactions of the sources.
            secs: when to stop at the latest; sooner if the sources have nothing more.
        """
        check_positive("rows", rows)
        check_positive("transactions", transactions)
        return preview_of(self._graph, self._output(), rows, transactions=transactions, secs=secs)

    @step
    def union(self, *others: Stream) -> Stream:
        """Put the rows of several streams with the same fields together."""
        for other in others:
            if not isinstance(other, Stream):
                raise ConfigError(f"{other!r} is no stream; write union(stream, …)")
            self._same_flow(other._graph)
            if _kinds(other.fields) != _kinds(self.fields):
                ours, theirs = (fields_text(stream.fields) for stream in (self, other))
                raise FieldsError(f"one stream has {ours}, another {theirs}; give both the same fields")
        streams, ports = [self], {*parts_of(self._output())}
        for other in others:  # one that is there already comes a second time by a separate step
            more_ports = {*parts_of(other._output())}
            streams.append(other._ordered_as(self) if more_ports & ports or other.fields != self.fields else other)
            ports |= more_ports
        bases = list(dict.fromkeys(stream._base for stream in streams))
        clock = self._clock if all(stream._clock == self._clock for stream in streams) else None
        parts: dict[str, Any] = {"inputs": tuple(stream._output() for stream in streams), "base": "-and-".join(bases)}
        parts["streams"] = {DEFAULT_STREAM: self.fields.with_attempt()}
        is_changes = any(stream._is_changes for stream in streams)
        return self._step("union", clock_after=clock, is_changes=is_changes, **parts)

    # Time, keys and own components.

    @step
    def event_time(  # noqa: PLR0913 - those of an EventClock
        self,
        field: str,
        *,
        delay: Duration,
        lateness: Duration = dt.timedelta(),
        partition: str | None = None,
        idle_after: Duration | None = None,
        ahead_max: Duration | None = None,
        close_at_end: bool = False,
        name: str | None = None,
    ) -> Stream:
        """Give the stream a clock, an :class:`~committers.EventClock`, which all steps below know.

        Args:
            field: the field with the event time, a ``timestamp``.
            delay: how long after the largest event time an earlier one may still come.
            lateness: how long windows are kept open after that, and keys of ``distinct`` remembered.
            partition: the field with the row's source partition: the slowest one counts.
            idle_after: how long a source, or a partition, may be silent until the others do not wait for it.
            ahead_max: how far a time may be ahead of the time at which its transaction was planned.
            close_at_end: whether the end of a source that ends closes all windows, for good.
            name: the clock's name; None: that of the source with ``-clock``.
        """
        kind = self._type(field)
        if not pa.types.is_timestamp(kind):
            raise FieldsError(f"field {field!r} is {ddl_name(kind)}; an event time is a timestamp")
        self._refuse_changes()
        if partition is not None:
            self._field(partition)
        clock_id = name or f"{self._base}-clock"
        settings: dict[str, Any] = {
            "time": field,
            "delay": duration(delay, "delay"),
            "partition": partition,
            "idle_after": optional_duration(idle_after, "idle_after"),
        }
        ahead = optional_duration(ahead_max, "ahead_max")
        clock = EventClock(clock_id, **settings, ahead_max=ahead, close_at_end=close_at_end)
        port = by_source(self._graph, self._output())
        added = clock_step(self._graph, "event_time", self._base, clock_id, [port], component=clock)
        return Stream(self._graph, port, Clock(added, field, duration(lateness, "lateness"), settings, ahead))

    @step
    def distinct(self, key: Names, *, within: Duration | None = None, name: str | None = None) -> Stream:
        """Pass on the first row of each key within a time: a :class:`~committers.Deduplicate`.

        Args:
            key: the field or fields of the key.
            within: how long after its first row a key is remembered, in event time; None: the clock's ``lateness``.
            name: the step's name; None: that of the source with ``-distinct``.
        """
        clock, keys = self._timed("distinct"), self._keys(key)
        span = clock.lateness if within is None else duration(within, "within")
        if not span:
            raise ConfigError("how long is a key remembered? write distinct(…, within='1h'), or event_time(lateness=…)")
        name = name or f"{self._base}-distinct"
        unique = Deduplicate(name, clock=clock.step.name, time=clock.time, key=keys, within=span, fields=self.fields)
        states = {name: unique.state(self._graph.internal(name))}
        return self._commit("distinct", name, unique, states, keys=keys, clock=clock, clock_after=clock, is_sink=False)

    @step
    def join(  # noqa: PLR0913 - with what, by what, when, and what comes of it
        self,
        other: Stream | Table,
        on: Names | Mapping[str, str],
        *,
        values: Fields | Sequence[str] | None = None,
        lower: Duration = dt.timedelta(),
        upper: Duration | None = None,
        ttl: Duration | None = None,
        rename: Mapping[str, str] | None = None,
        how: Literal["inner", "left", "full"] = "inner",
        name: str | None = None,
    ) -> Stream:
        """Join each row with the row of its key in a table, or with those of another stream.

        With a table it is a :class:`~committers.LookupJoin`: a row sees the version of a reference that its transaction
        was planned with, or a table of the flow as the transaction before has left it.

        With a stream and ``upper`` it is an :class:`~committers.IntervalJoin`, on a clock of both: rows that are near
        in time. ``stream["left_late"]`` and the like are what was too late. Without ``upper`` it is a
        :class:`~committers.StreamJoin`, which keeps both streams: :meth:`select` what is needed before. A left one
        makes a stream of changes, which takes a row without a partner back when the first one comes.

        Args:
            other: a table of the flow, as ``upsert`` returns it; a reference, of ``flow.reference``; or a stream.
            on: the field or fields of the key; a mapping if a stream has other names: ``{"id": "order"}``.
            values: the fields of the table to add; those of a reference with types; None: all of a table of the flow.
            lower: how far the other stream's time is after this one's, at least; negative: at most so far before it.
            upper: how far it is after this one's, at most.
            ttl: without ``upper``, how long after its event time a row of a stream is kept; None: for ever.
            rename: other names for some of the fields that are added.
            how: ``"inner"``; ``"left"``: rows without a partner, too; ``"full"``: also those of the other stream.
            name: the step's name; None: that of the source, ``-join-`` and that of the other.
        """
        keys, other_keys = pairs_of(on)
        keys = list(self._keys(keys))
        if isinstance(other, Table):
            if upper is not None or ttl is not None or how == "full":
                raise ConfigError("a table has no times: leave out upper= and ttl=, and take how='inner' or 'left'")
            self._same_flow(other.graph)
            return self._lookup_join(other, keys, values, name, rename=rename or {}, how=how)
        self._same_flow(other._graph)
        if values is not None:
            raise ConfigError("values= is for tables; select() the other stream's fields before")
        if upper is None and duration(lower, "lower"):
            raise ConfigError("how near are both in time, at most? write join(…, lower=…, upper='1h')")
        if upper is not None and ttl is not None:
            raise ConfigError("with upper=, rows are kept for as long as that says; leave out ttl=")
        if self._is_changes or other._is_changes:
            raise TopologyError("a stream of changes is joined with tables only; join before group_by(…)")
        within = None if upper is None else (duration(lower, "lower"), duration(upper, "upper"))
        join = StreamsJoined(name or f"{self._base}-join-{other._base}", how, within, optional_duration(ttl, "ttl"))
        left, right = self._alone(), other._alone()
        other_keys = list(right._keys(other_keys))
        clocks = [stream._timed("join") if join.is_by_time else None for stream in (left, right)]
        is_grouped_twice = left._output() == right._output() and keys != other_keys
        if is_grouped_twice:  # a component is grouped in one way
            right = right._ordered_as(right)
        sides = [
            Side(stream._output(), own, clock, names)
            for stream, own, clock, names in zip((left, right), (keys, other_keys), clocks, (None, rename), strict=True)
        ]
        port = Port(join.step(self._graph, sides))
        return Stream(self._graph, port, is_changes=within is None and how == "left")

    def _lookup_join(
        self,
        other: Table,
        keys: Sequence[str],
        values: Any,
        name: str | None,
        *,
        rename: Mapping[str, str],
        **more: Any,
    ) -> Stream:
        added = other.values if values is None else values
        if other.reference is None and added is not None:
            added = other.values.subset(list(added))
        if not isinstance(added, Fields) or not len(added):
            raise FieldsError("which fields of the reference are added? write values=Fields('name: string')")
        if len(keys) != len(other.key):
            raise FieldsError(f"the key of {other.name!r} is {', '.join(other.key)}; on= names a field for each")
        key_fields = self.fields.subset(keys)
        if isinstance(other.key, Fields) and key_fields.types != other.key.types:
            raise FieldsError(
                f"the key of {other.name!r} is {fields_text(other.key)}, but on= names {fields_text(key_fields)}; "
                "cast it before, with_columns(…)"
            )
        both = next((each for each in added if rename.get(each, each) in self.fields), None)
        if both is not None:
            raise FieldsError(
                f"the stream has a field {rename.get(both, both)!r}, too; give that of {other.name!r} another name: "
                f"rename={{{both!r}: '{other.name}_{both}'}}"
            )
        place: dict[str, Any] = {"state" if other.reference is None else "reference": other.name}
        join = LookupJoin(keys, fields=self.fields, values=added, rename=rename, **place, **more)
        parts: dict[str, Any] = {"is_sink": False, "is_committer": other.reference is None}
        parts["references"] = {} if other.reference is None else {other.name: other.reference}
        parts["needs"] = () if other.made_by is None else (other.made_by,)
        parts["made_of"] = {rename.get(each, each): [(other.name, each)] for each in added}
        parts |= {"streams": streams_of(join), "clock_after": self._clock, "is_changes": self._is_changes}
        return self._commit("join", name or f"{self._base}-join-{other.name}", join, {}, **parts)

    def _alone(self) -> Stream:
        """Return the stream as one of one component, which a union is not."""
        return self if self._output().step.verb != "union" else self._ordered_as(self)

    @step
    def group_by(self, *keys: str) -> Grouped:
        """Group by the fields of a key; none: all rows are one group, for windows."""
        return Grouped(self, self._keys(keys) if keys else ())

    @step
    def through(self, name: str, bolt: Bolt, *, by: Names = (), states: Mapping[str, State] | None = None) -> Stream:
        """Send the rows through any bolt or committer; ``stream["late"]`` is another stream of it.

        Args:
            name: the bolt's component id.
            bolt: the bolt; each of its streams has typed fields.
            by: the field or fields by which it is grouped; none: any task gets any row.
            states: the states that it asks for, by name; the timers of a :class:`~committers.TimerCommitter` are kept
                without. A committer of event time is told the watermark by the stream's clock, whose id it names.
        """
        grouped_by = bolt.grouped_by if isinstance(bolt, KeepsByKey) else None
        key, keys = [*grouped_by] if isinstance(grouped_by, Fields) else [], self._keys(by) if by else ()
        # A key that is no field is made by a class of the user's, who knows what it is made of.
        if key and {*key} <= {*self.fields} and not (keys and {*keys} <= {*key}):
            raise TopologyError(
                f"{type(bolt).__name__} keeps something for each {', '.join(key)}, so one task must have all its rows; "
                f"write through({name!r}, …, by={key!r})"
            )
        streams = streams_of(bolt)
        for stream, fields in streams.items():
            if None in fields.without_attempt().types:
                raise FieldsError(f"{type(bolt).__name__} emits {fields} on {stream!r}; give each field a type")
        parts: dict[str, Any] = {"keys": keys or None, "streams": streams, "base": name, "is_opaque": True}
        parts["is_committer"] = isinstance(bolt, ICommitter) and not isinstance(bolt, BasicBolt)
        if isinstance(bolt, TimerCommitter):
            states = {bolt.timers_name: bolt.timers_state(self._graph.internal(bolt.timers_name)), **(states or {})}
        if isinstance(bolt, TimerCommitter | ClockedCommitter):
            parts["clock"] = self._timed("through")
        return self._commit("through", name, bolt, states or {}, is_changes=self._is_changes, **parts)

    # Tables.

    @step
    def append(self, table: str, **options: Any) -> None:
        """Append the rows to a table of the output, once each.

        Args:
            table: the table's name.
            options: those of a :class:`~state.DeltaRows`.
        """
        check_options(DeltaRows, options)
        self._sink("append", table, DeltaRows(self._graph.table(table), self.fields, **options))

    @step
    def replace(self, table: str, partition: Names, **options: Any) -> None:
        """Replace each partition of a table that occurs in a transaction by the transaction's rows.

        Args:
            table: the table's name.
            partition: the field or fields of its partitions.
            options: those of a :class:`~state.DeltaRows`.
        """
        keys = self._keys(partition)
        check_options(DeltaRows, options)
        state = DeltaRows(self._graph.table(table), self.fields, partition_by=keys, **options)
        self._commit("replace", f"replace-{table}", ReplaceCommitter(table), {table: state})

    @step
    def to(self, name: str, state: State) -> None:
        """Append the rows to any state of rows.

        Args:
            name: the state's name.
            state: the state; its fields are those of the stream.
        """
        if state.kind not in ROWS_KINDS:
            raise ConfigError(
                f"a {type(state).__name__} keeps a value for each key; group_by(…).agg(…) has such values, or use "
                "apply_changes(…)"
            )
        _check_fields(state, self.fields, "the stream")
        self._sink("to", name, state)

    @step
    def apply_changes(  # noqa: PLR0913 - those of ApplyChanges
        self,
        table: str,
        *,
        key: Names,
        sequence: Names,
        deleted: str | None = None,
        unchanged: str | None = None,
        time: str | None = None,
        ttl: Duration | None = None,
        history: str | None = None,
        **options: Any,
    ) -> Table:
        """Keep the latest row of each key in a table, as :class:`~committers.ApplyChanges` does.

        Args:
            table: the table's name.
            key: the field or fields of the key.
            sequence: the field or fields by which a row is later than another.
            deleted: the boolean field that is true if a row deletes that of its key.
            unchanged: the field with the names of the fields that a row leaves as they are.
            time: the row's ``timestamp``, for a history; None: the event time.
            ttl: how long after its event time it is remembered that a row was deleted; None: for ever.
            history: the name of a table of the output with every version of each row, and when it was valid.
            options: those of a :class:`~state.DeltaState`.
        """
        keys, order = self._keys(key), self._keys(sequence)
        check_options(DeltaState, options)
        clock = self._clock if ttl is None else self._timed("apply_changes")
        if time is None and clock is not None and not clock.is_lost and (ttl is not None or history is not None):
            time = clock.time
        for name, kind in ((deleted, pa.bool_()), (unchanged, pa.list_(pa.string())), (time, TIMESTAMP)):
            if name is not None and self._type(name) != kind:
                raise FieldsError(f"field {name!r} is {ddl_name(self._type(name))}, not {ddl_name(kind)}")
        if DIFF in self.fields:
            raise FieldsError(f"changes of the table have a field {DIFF!r} of their own; give yours another name")
        special = {*keys, *order, *(self._field(each) for each in (deleted, unchanged) if each is not None)}
        parts: dict[str, Any] = {"deleted": deleted, "unchanged": unchanged, "time": time, "history": history}
        values = [name for name in self.fields if name not in special]
        for part, names in (("key", keys), ("values", values), ("sequence", order)):
            parts[part] = self.fields.subset(names)
        graves = f"{table}-deleted"
        applying = ApplyChanges(table, graves, **parts)
        state = applying.state(self._graph.table(table), **options)
        keeping, needs = self._kept_for("apply_changes", ttl)
        states = {table: state, graves: applying.tombstones(self._graph.internal(graves), **keeping)}
        if history is not None:
            states[history] = applying.history(self._graph.table(history))
        stream = self._commit("apply_changes", f"apply-{table}", applying, states, keys=keys, needs=needs)
        return stream._table(table, state)

    # What the methods are made of.

    def _stream_named(self, stream: str) -> Stream:
        return Stream(self._graph, port_of(self._output().step, stream), is_changes=stream == CHANGES)

    @property
    def _base(self) -> str:
        return self._output().step.base

    def _timed(self, verb: str) -> Clock:
        self._refuse_changes()
        clock = self._clock
        if clock is None and self._output().step.verb == "union":
            raise TopologyError(
                f"the streams of this union have no clock in common; write union() before event_time() and {verb}()"
            )
        if clock is None:
            kinds = zip(self.fields, self.fields.types, strict=True)
            field = next((name for name, kind in kinds if pa.types.is_timestamp(kind)), "at")
            raise TopologyError(f"the stream has no clock; write .event_time({field!r}, delay='30s') before {verb}()")
        if clock.time not in self.fields:
            raise FieldsError(
                f"the event time {clock.time!r} is no field any more; keep it, or do {verb}() before the step that "
                f"drops it; the fields are {', '.join(self.fields)}"
            )
        if clock.is_lost:
            raise FieldsError(
                f"{clock.time!r} is another field than the event time by which {clock.step.name!r} goes, which was "
                f"dropped; keep that, and give this one another name, or do {verb}() before"
            )
        self._graph.taken.add(clock.step)
        return clock

    def _kept_for(self, verb: str, ttl: Any) -> tuple[Mapping[str, Any], Sequence[Step]]:
        """Return how long a table keeps its keys, as its options, and the steps that it needs for that."""
        if ttl is None:
            return {}, ()
        clock = self._timed(verb)
        return {"ttl": duration(ttl, "ttl"), "clock": clock.step.name}, (clock.step,)

    def _refuse_changes(self) -> None:
        if self._is_changes:
            raise TopologyError(
                "a stream of changes has no event time, because what a window or distinct() has passed on is not taken "
                "back; group_by(…).agg(…) it"
            )

    def _same_flow(self, other: Graph) -> None:
        if other is not self._graph:
            raise TopologyError(f"both are of different flows, {self._graph.topology_id!r} and {other.topology_id!r}")

    def _ordered_as(self, model: Stream) -> Stream:
        return self._rows(Select({name: name for name in model.fields}))

    def _rows(self, rows_step: RowStep) -> Stream:
        clock, together = self._clock, self._together
        match rows_step:
            case WithColumns():
                changed = {value.name for value in rows_step.values}
                if clock is not None and clock.time in changed and not clock.is_lost:
                    raise FieldsError(
                        f"it changes {clock.time!r}, the event time by which {clock.step.name!r} goes; do so before "
                        "event_time(), or give it another name"
                    )
                together -= changed
            case Select():
                self._check_diff(rows_step)
                if clock is not None:
                    new = next((new for new, old in rows_step.names.items() if old == clock.time), None)
                    clock = attrs.evolve(clock, time=new or clock.time, is_lost=clock.is_lost or new is None)
                together = frozenset(new for new, old in rows_step.names.items() if old in together)
            case FunctionStep():
                together = frozenset()
        fields = rows_step.fields_after(self.fields)
        if ATTEMPT_FIELD in fields:
            raise FieldsError(
                f"each tuple has a field {ATTEMPT_FIELD!r} of its own, the attempt; give yours another name"
            )
        streams = {DEFAULT_STREAM: fields.with_attempt()}
        flags: dict[str, Any] = {"clock_after": clock, "is_changes": self._is_changes, "together": together}
        return self._step(rows_step.verb, component=rows_step, streams=streams, **flags)

    def _check_diff(self, select: Select) -> None:
        """Raise a FieldsError if changes lose what tells rows that are taken back from others."""
        before = self._output().step
        while self._is_changes and select.names.get(DIFF) != DIFF:
            if isinstance(before.component, Filter) and DIFF in before.component.condition.fields:
                return
            if not before.is_row_wise:
                raise FieldsError(
                    f"{DIFF!r} says whether a row of changes is taken back, -1, or added, 1; keep it, or "
                    "filter('diff > 0') before"
                )
            before = before.inputs[0].step

    def _sink(self, verb: str, name: str, state: State) -> None:
        places = [self.fields.index(each) for each in state.value]  # the table may have them in another order

        def taking(names: Sequence[str]) -> AppendCommitter:
            return AppendCommitter(name, [names[place] for place in places])

        named = f"{'write' if verb == 'to' else verb}-{name}"
        self._commit(verb, named, AppendCommitter(name), {name: state}, taking=taking)

    def _table(self, name: str, state: State) -> Table:
        return Table(self._graph, name, state.key, state.value, self._port.step)

    def _commit(  # noqa: PLR0913 - what a step is
        self,
        verb: str,
        name: str,
        committer: Bolt,
        states: Mapping[str, State],
        *,
        keys: Sequence[str] | None = None,
        clock: Clock | None = None,
        **more: Any,
    ) -> Stream:
        """Add a committer; by ``keys`` if there are any, in one task if there are none of them."""
        by = ANY if keys is None else _by(self.fields, keys)
        streams = {DEFAULT_STREAM: Fields(), **streams_of(committer)}
        parts = {"component": committer, "states": states, "by": by, "streams": streams, "clock": clock and clock.step}
        return self._step(verb, name=name, **{"is_committer": True, "is_sink": True, **parts, **more})

    def _step(
        self,
        verb: str,
        *,
        clock_after: Clock | None = None,
        is_changes: bool = False,
        together: Collection[str] = (),
        **settings: Any,
    ) -> Stream:
        settings.setdefault("inputs", (self._output(),))
        settings.setdefault("base", self._base)
        port = Port(self._graph.add(Step(verb=verb, **settings)))
        return Stream(self._graph, port, clock_after, is_changes=is_changes, together=together)


class Grouped(Verbs):
    """A stream by a key, and by windows of event time if ``window`` has said so; ``agg`` makes a row of each group."""

    def __init__(self, stream: Stream, keys: Sequence[str], windowing: _Windowing | None = None) -> None:
        self._stream, self._keys, self._windowing = stream, tuple(keys), windowing

    @step
    def window(
        self, window: Window | Duration, *, lateness: Duration | None = None, name: str | None = None
    ) -> Grouped:
        """Divide it by windows of event time.

        Args:
            window: the windows' size, or one of ``Tumbling``, ``Sliding``, ``Sessions``, ``Days``, ``Hours``.
            lateness: how long a window is kept open after its end; None: that of the clock.
            name: the step's name; None: made of the source's, the key's and the window's.
        """
        if self._windowing is not None:
            raise ConfigError("it is divided by windows already; agg() these, and take larger windows of the result")
        clock, stream = self._stream._timed("window"), self._stream
        late = clock.lateness if lateness is None else duration(lateness, "lateness")
        kind = window_of(window)
        keys = f"-by-{'-'.join(self._keys)}" if self._keys else ""
        return Grouped(stream, self._keys, _Windowing(name or f"{stream._base}{keys}-{window_name(kind)}", kind, late))

    @step
    def agg(self, *unnamed: Aggregate, **aggregates: Aggregate) -> Aggregated:
        """Reduce each group to one row: ``agg(orders=Count(), revenue=Sum("price"))``; each has a name."""
        if unnamed:
            raise FieldsError(f"{type(unnamed[0]).__name__} has no name; write for example agg(orders=Count())")
        if not self._keys and self._windowing is None:
            raise FieldsError("totals need a key; write group_by('field'), or a window of all rows")
        checked = _checked(self._stream.fields, self._keys, aggregates)
        return Aggregated(self._stream, self._keys, checked, self._windowing)


@attrs.frozen
class _Windowing:
    """Windows of event time: the name of their step, their kind, and how long they are kept open."""

    name: str
    window: Window
    lateness: dt.timedelta


class Aggregated(Stream):
    """A row for each group, which a table keeps, or a stream has once the group is whole.

    Groups of windows are whole when they close; groups of closed windows by ``window_start`` or ``window_end`` at once,
    because all of these close together. Totals of a key are never whole: a table has them, and its ``changes``.
    """

    def __init__(
        self, source: Stream, keys: Sequence[str], aggregates: Mapping[str, Aggregate], windowing: _Windowing | None
    ) -> None:
        self._source, self._key, self._aggregates, self._windowing = source, keys, aggregates, windowing
        self._graph, self._clock, self._is_changes = source._graph, None, False
        self._whole: Port | None = None
        self._together = source._together & {*keys}
        if windowing is None:
            self._aggregation = Aggregation(source.fields.subset(keys), aggregates)
        else:
            self._windows = WindowCommitter(windowing.name, **self._window_settings(windowing))
            self._together = frozenset() if windowing.window.merges else frozenset({START, END})
        self._graph.untaken[self] = Place.here()

    @property
    def fields(self) -> Fields:
        """The fields of a row: the key, the window if there is one, and the results."""
        return fields_of(self._aggregation.result_schema) if self._windowing is None else self._windows.results()

    @property
    def _base(self) -> str:
        keyed = f"{self._source._base}-by-{'-'.join(self._key)}"
        return keyed if self._windowing is None else self._windowing.name

    def _output(self) -> Port:
        """Return the groups that are whole; their step is made when they are first taken as a stream."""
        self._graph.untaken.pop(self, None)
        if self._whole is None:
            name, source = self._base, self._source
            parts: dict[str, Any] = {"keys": self._key, "base": name, "is_sink": False, "made_of": self._made_of}
            if self._windowing is not None:
                states = {name: self._windows.state(self._graph.internal(name))}
                stream = source._commit("agg", name, self._windows, states, clock=source._timed("window"), **parts)
            elif self._together:
                stream = source._commit("agg", name, GroupsBolt(self._aggregation), {}, is_committer=False, **parts)
            else:
                raise TopologyError(
                    "totals change with each transaction, so they are no stream; write .upsert('table'), whose .changes"
                    " are one"
                )
            self._whole = stream._port
        return self._whole

    @step
    def upsert(self, table: str, **options: Any) -> Table:
        """Keep the row of each group in a table of the output, windows also before they close.

        The table has what an aggregate must know to go on: of a ``Mean`` named ``price`` the columns ``price_sum`` and
        ``price_count``, of a ``Last`` named ``opening`` also ``opening_at``. :meth:`Table.read` returns the results.

        Args:
            table: the table's name.
            options: those of a :class:`~state.DeltaState`. With a ``ttl``, such as ``"7d"``, a key is forgotten so long
                after the time in its row, by the stream's clock.
        """
        keeping = self._keeping(table)
        check_options(DeltaState, options)
        keeping_time, needs = self._source._kept_for("upsert", options.get("ttl"))
        state = keeping.state(self._graph.table(table), **{**options, **keeping_time})
        return self._keep("upsert", table, keeping, state, needs)._table(table, state)

    @step
    def to(self, name: str, state: State) -> None:
        """Keep the row of each group in any keyed state; or append closed windows to any state of rows.

        Args:
            name: the state's name.
            state: the state; its fields are the key and what a table of :meth:`upsert` has.
        """
        if state.kind in ROWS_KINDS:
            super().to(name, state)
            return
        keeping = self._keeping(name)
        table = keeping.state(self._graph.table(name))
        _check_fields(state, table.key + table.value, "the table of these groups")
        self._keep("to", name, keeping, state)

    def _window_settings(self, windowing: _Windowing) -> dict[str, Any]:
        clock = self._source._timed("window")
        parts = {
            "clock": clock.step.name,
            "time": clock.time,
            "window": windowing.window,
            "lateness": windowing.lateness,
        }
        return {**parts, "aggregates": self._aggregates, "key": self._source.fields.subset(self._key)}

    def _keeping(self, state: str) -> ReduceCommitter | WindowUpdateCommitter:
        if self._windowing is not None:
            return WindowUpdateCommitter(state, **self._window_settings(self._windowing))
        key = self._source.fields.subset(self._key)
        if DIFF in self._aggregates:
            raise FieldsError(f"changes of totals have a field {DIFF!r} of their own; give the aggregate another name")
        return ReduceCommitter(state, key, values=self._aggregates, diff=DIFF if self._source._is_changes else "")

    def _keep(self, verb: str, name: str, keeping: Bolt, state: State, needs: Sequence[Step] = ()) -> Stream:
        self._graph.untaken.pop(self, None)
        clock = None if self._windowing is None else self._source._timed("window")
        parts: dict[str, Any] = {"keys": self._key, "clock": clock, "needs": needs, "made_of": self._made_of}
        return self._source._commit(
            verb, f"{'write' if verb == 'to' else verb}-{name}", keeping, {name: state}, **parts
        )

    @property
    def _made_of(self) -> Mapping[str, Sequence[tuple[int, str]]]:
        """The fields that results, and the columns of tables for them, are made of."""
        origins: dict[str, Sequence[tuple[int, str]]] = {
            name + suffix: [(0, each) for each in aggregate.inputs]
            for name, aggregate in self._aggregates.items()
            for suffix in ("", *aggregate.suffixes)
        }
        if self._windowing is not None:
            origins |= {name: [(0, self._source._timed("window").time)] for name in (START, END)}
        return origins


@attrs.frozen(repr=False)
class Table(Outputs):
    """A keyed table of a flow, or one that it only reads: streams are joined with it, and its changes are a stream."""

    graph: Graph
    name: str
    key: Fields | Sequence[str]
    values: Fields
    made_by: Step | None = None
    reference: Reference | None = None

    @property
    def fields(self) -> Fields:
        """Those of the key and the values; of a reference only its key is known."""
        return (self.key if isinstance(self.key, Fields) else Fields(*self.key)) + self.values

    @property
    @step
    def changes(self) -> Stream:
        """What each transaction changes in the table: each key's row, with ``diff``, -1 before and 1 after.

        ``changes.group_by(…).agg(…)`` are totals of totals: what has changed is taken back first. One of the aggregates
        is a ``Count()``: how many keys there are.
        """
        return self._stream_named(CHANGES)

    @step
    def read(self, **options: Any) -> pa.Table:
        """Return the rows that the table of a run has now: of totals and windows the key and each aggregate's result.

        Args:
            options: those of :func:`~state.read_table`.
        """
        if self.made_by is None:
            raise TopologyError(f"{self.name!r} is only read by the flow; read it as what it is")
        options = {"storage_options": self.made_by.states[self.name].storage_options, **options}
        rows, committer = read_table(self.graph.table(self.name), **options), self.made_by.component
        return committer.results(rows) if isinstance(committer, ReduceCommitter | WindowUpdateCommitter) else rows

    def _stream_named(self, stream: str) -> Stream:
        if self.made_by is None:
            raise TopologyError(f"{self.name!r} is only read, so it has no stream {stream!r}")
        return Stream(self.graph, port_of(self.made_by, stream), is_changes=stream == CHANGES)


def _checked(fields: Fields, keys: Sequence[str], aggregates: Mapping[str, Aggregate]) -> Mapping[str, Aggregate]:
    """Return aggregates with the types of the fields that they read."""
    if not aggregates:
        raise FieldsError("it aggregates nothing; write for example agg(orders=Count())")
    schema = fields.arrow_schema()
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise ConfigError(f"{name}={aggregate!r} is no aggregate; write for example {name}=Sum('price')")
        for field, kind in zip(aggregate.inputs, aggregate.inputs.types, strict=True):
            if field not in fields:
                near = did_you_mean(field, fields) or f"; the fields are {', '.join(fields)}"
                how = "" if field.isidentifier() else f"; an expression comes before: with_columns(x={field!r})"
                raise FieldsError(f"{name}: there is no field {field!r}{how or near}")
            if kind is not None and kind != schema.field(field).type:
                found_type = ddl_name(schema.field(field).type)
                raise FieldsError(f"{name}: field {field!r} is {found_type}, not {ddl_name(kind)}")
        if name in keys:
            raise FieldsError(f"{name!r} is a field of the key; give the aggregate another name")
    typed = {name: aggregate.typed(schema) for name, aggregate in aggregates.items()}
    Aggregation(fields.subset(keys), typed)  # raises if types do not go together
    return typed


def _by(fields: Fields, keys: Sequence[str]) -> Grouping:
    return Grouping(GroupingKind.FIELDS, fields=fields.subset(keys)) if keys else Grouping(GroupingKind.GLOBAL)


def _kinds(fields: Fields) -> Mapping[str, pa.DataType | None]:
    return dict(zip(fields, fields.types, strict=True))


def _check_fields(state: State, fields: Fields, what: str) -> None:
    """Raise a FieldsError if a state has other fields than what is put into it, in whatever order."""
    declared, given = state.key + state.value, _kinds(fields)
    types = _kinds(declared)
    if types.keys() != given.keys() or any(kind is not None and kind != given[name] for name, kind in types.items()):
        raise FieldsError(
            f"the {type(state).__name__} has {fields_text(declared)}, but {what} has {fields_text(fields)}; declare it "
            "so, or select() what it has"
        )
