"""The steps of a flow, and how they become components of a builder.

A step that holds something has a *name* from the start: given, or made of what it makes and of its source, never of a
count. So a step that is added, removed or moved changes no name of another, and with it no table and no state.

Row-wise steps hold nothing. Those that follow each other, with nobody else in between, become one bolt when the
topology is built; it is named after what it feeds.
"""

from __future__ import annotations

import copy
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from committers import EventClock
from spouts.bad_records import WithBadRecords
from txtopo import Fields, OutputFieldsDeclarer, TransactionalTopology, TransactionalTopologyBuilder
from txtopo.api.components.groupings import Grouping, GroupingKind
from txtopo.api.data.tuples import DEFAULT_STREAM
from txtopo.api.state import CanBeForked, State
from txtopo.errors import ConfigError, FieldsError, TopologyError, TxtopoError, UnusedStreamWarning
from txtopo.journal.ending import METADATA_DIR
from txtopo.row_wise.bolt import RowsBolt
from txtopo.row_wise.steps import RowStep, Select
from txtopo.text.suggestions import did_you_mean
from txtopo.topology.user_code.place import Place

INTERNAL = "_internal"
"""The folder, below the output, of the tables that steps keep for themselves."""

_RESERVED = (INTERNAL, METADATA_DIR, "_delta_log")
"""Folders that may be below the output."""

ANY = Grouping(GroupingKind.LOCAL_OR_SHUFFLE)
"""The grouping of a step that takes any row in any task."""

Source = tuple[str, str]
"""A component's id and one of its streams."""


@attrs.frozen
class Port:
    """A stream of a step."""

    step: Step
    stream: str = DEFAULT_STREAM

    @property
    def fields(self) -> Fields:
        """The stream's fields, without the attempt."""
        if self.stream not in self.step.streams:
            streams = ", ".join(f"[{stream!r}]" for stream in self.step.streams)
            raise FieldsError(f"{self.step.name!r} emits nothing" + (f" but {streams}" if streams else ""))
        return self.step.streams[self.stream].without_attempt()


@attrs.define(eq=False, kw_only=True)
class Step:
    """One step.

    Args:
        verb: what the user has called.
        base: what names of the steps below begin with.
        streams: the fields of what it emits.
        name: the id of its component; empty for row-wise steps and unions, which have none of their own.
        component: the component; a row-wise step; None for a union.
        make: makes the component, if it needs the ids of its sources, which are known only when all is built.
        taking: makes the component that takes some fields of its input, in the order of its own.
        by: how its inputs are grouped.
        clock: the step of the clock that it is told the watermark by.
        states: the states that it declares, by name.
        references: the reference tables that it reads, by name.
        is_sink: whether it does something by itself: all others are there for what takes them.
    """

    verb: str
    base: str
    inputs: tuple[Port, ...] = ()
    streams: Mapping[str, Fields] = attrs.field(factory=dict)
    name: str = ""
    component: Any = None
    make: Callable[[Callable[[Port], Sequence[Source]]], Any] | None = None
    taking: Callable[[Sequence[str]], Any] | None = None
    by: Grouping | Sequence[Grouping] = ANY
    clock: Step | None = None
    is_committer: bool = False
    parallelism: int | None = None
    states: Mapping[str, State] = attrs.field(factory=dict)
    references: Mapping[str, Any] = attrs.field(factory=dict)
    is_sink: bool = False
    bad: tuple[str, ...] = ()
    """The table of a source's bad records, which is no state."""
    needs: tuple[Step, ...] = ()
    """Steps that must be there, although nothing of them is read: those whose tables are looked up."""
    made_of: Mapping[str, Sequence[tuple[int | str, str]]] = attrs.field(factory=dict)
    """Of its fields and columns that are no fields of its inputs by the same name, what they are made of: the number of
    an input, or the name of a table or reference, and a field of it."""
    is_opaque: bool = False
    """Whether nobody knows what its fields are made of."""
    place: Place = attrs.field(factory=Place.here)

    @property
    def is_row_wise(self) -> bool:
        """Whether it is a step of rows."""
        return isinstance(self.component, RowStep)

    def place_text(self) -> str:
        """Return where it was written, and what is there."""
        return f"{self.place}: {self.place.text or self.verb}"

    def check_tables(self, states: Mapping[str, State]) -> None:
        """Raise a TopologyError if one of its tables among a topology's states is there with other columns.

        Columns that a table lacks can be added, which the run says; it also looks where a look takes a server.
        """
        for name, state in ((name, states[name]) for name in self.states):
            table = state.table()
            if state.home is None or table is None:
                continue
            try:
                table_kind = table.describe()
            except TxtopoError:  # of which the run says more
                continue
            if table_kind is not None and table_kind.misfit is not None and not table_kind.lacks:
                raise self.place.says(f"{self.verb}: table {name!r} is there, at {state.address}; {table_kind.misfit}")

    @property
    def before(self) -> Iterator[Step]:
        """The steps that it needs."""
        yield from (port.step for port in self.inputs)
        yield from self.needs
        if self.clock is not None:
            yield self.clock


@attrs.define(eq=False)
class Graph:
    """The steps of a flow, in the order in which they were said.

    Args:
        topology_id: the topology's name.
        output: the folder, or the address in an object store, with all tables.
        parallelism: the number of tasks of every component, except for clocks.
        moved: whether tables are below ``output`` that were declared elsewhere.
        storage_options: those of tables that are given none.
    """

    topology_id: str
    output: str | os.PathLike[str]
    parallelism: int
    steps: list[Step] = attrs.field(factory=list)
    moved: bool = attrs.field(default=False, kw_only=True)
    storage_options: Mapping[str, str] | None = attrs.field(default=None, kw_only=True, repr=False)  # may hold secrets
    untaken: dict[Any, Place] = attrs.field(factory=dict)
    """Aggregates that nothing has taken, which are no steps yet, with their lines."""
    taken: set[Step] = attrs.field(factory=set)
    """Steps that are taken, also if by others in their place: a join may go by a clock of its own."""

    def add(self, step: Step) -> Step:
        """Add a step; raise a TopologyError if one of its names is another's."""
        names = [(kind, name) for kind in ("step", "table", "folder") for name in _names(step, kind) if name]
        for kind, name in reversed(names):
            if kind != "folder":
                self._check_name(kind, name)
        for kind, name in names:
            namesake = next((each for each in self.steps if name in _names(each, kind)), None)
            if namesake is not None:
                way = "name=…, or say both in one agg()" if kind == "step" else "another name, or union() them"
                raise TopologyError(
                    f"{kind} {name!r} is there already, of {namesake.place_text()}; give one of both {way}"
                )
        step.states = {name: state.in_store(self.storage_options) for name, state in step.states.items()}
        self.steps.append(step)
        return step

    @staticmethod
    def _check_name(kind: str, name: str) -> None:
        if any(character in name for character in "/\\\n\0") or name in {".", "..", *_RESERVED}:
            raise ConfigError(
                f"{name!r} is no name of a {kind}: it is a folder's name, and {' and '.join(_RESERVED)} are taken"
            )

    def table(self, name: str) -> str:
        """Return where a table is."""
        return f"{os.fspath(self.output).rstrip('/')}/{name}"

    def internal(self, name: str) -> str:
        """Return where a table is that a step keeps for itself."""
        return self.table(f"{INTERNAL}/{name}")

    def placed(self, name: str, state: State) -> State:
        """Return a state with its table where it is to be."""
        if not self.moved:
            return state
        if not isinstance(state, CanBeForked):
            raise ConfigError(f"state {name!r}, a {type(state).__name__}, is not tried out; run the flow")
        return state.moved(self.internal(name))

    def placed_spout(self, step: Step) -> Any:
        """Return a step's spout, with its table of bad records where it is to be."""
        spout = step.component
        if not self.moved or not isinstance(spout, WithBadRecords) or spout.dead_letter is None:
            return spout
        spout = copy.copy(spout)
        spout.dead_letter = self.internal(f"{step.name}-bad")
        return spout

    def builder(self) -> TransactionalTopologyBuilder:
        """Return a new builder with all that was said so far."""
        return _Building(self).builder

    def build(self) -> TransactionalTopology:
        """Return the topology; see :meth:`Flow.build`."""
        self._warn()
        building = _Building(self)
        try:
            topology = building.builder.build()
        except TopologyError as error:
            raise self._located(error) from error
        for step in self.used():
            step.check_tables(topology.plan.states)
        return attrs.evolve(topology, places=building.places)

    def used(self) -> set[Step]:
        """Return the steps that do something, those that one of them needs, and the sources."""
        return self.needed_for(step for step in self.steps if step.is_sink or not step.inputs)

    def needed_for(self, steps: Iterable[Step]) -> set[Step]:
        """Return steps and all that they need."""
        needed = {*steps}
        for step in reversed(self.steps):  # inputs come first, so one pass is enough
            if step in needed:
                needed.update(step.before)
        return needed

    def _warn(self) -> None:
        used = {before for step in self.steps for before in step.before} | self.taken
        unused = [(step.verb, step.place) for step in self.steps if step not in used and not step.is_sink]
        for verb, place in [*unused, *(("agg", place) for place in self.untaken.values())]:
            text = f"{place}: nothing takes what {verb} makes; append it to a table, or leave it out"
            warnings.warn_explicit(text, UnusedStreamWarning, place.file, place.line)

    def _located(self, error: TopologyError) -> TopologyError:
        """Return a mistake that the builder has found, with the line of the step that it names."""
        lines = []
        for line in str(error).split("\n"):
            named = re.search(r"'([^']*)'", line)
            step = next((each for each in self.steps if named and named[1] in {each.name, *each.states}), None)
            lines.append(line if step is None else str(step.place.says(line)))
        return TopologyError("\n".join(lines))


def parts_of(port: Port) -> Sequence[Port]:
    """Return the streams that a stream is: that of a union is several."""
    if port.step.verb != "union":
        return [port]
    return [each for part in port.step.inputs for each in parts_of(part)]


def port_of(step: Step, stream: str) -> Port:
    """Return a stream of a step; raise a FieldsError if it makes none of that name."""
    if stream in step.streams.get(DEFAULT_STREAM, ()):
        raise FieldsError(f"{stream!r} is a field, and no other stream; write {stream!r}, or pl.col({stream!r})")
    if stream not in step.streams:
        streams = [repr(each) for each in step.streams if each != DEFAULT_STREAM]
        has = f"it has {', '.join(streams)}" if streams else "ask the step that makes it, before the steps below it"
        raise FieldsError(f"{step.verb} makes no stream {stream!r}{did_you_mean(stream, step.streams)}; {has}")
    return Port(step, stream)


def streams_of(component: Any) -> Mapping[str, Fields]:
    """Return the fields of each stream that a component declares."""
    declarer = OutputFieldsDeclarer()
    component.declare_output_fields(declarer)
    return declarer.streams


def _names(step: Step, kind: str) -> Iterable[str | None]:
    if kind == "folder":
        return [state.address for state in step.states.values()]
    return [step.name] if kind == "step" else [*step.states, *step.bad]


class _Building:
    """Declares the steps of a flow to a builder."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        used = graph.used()
        self._steps = [step for step in graph.steps if step in used]
        self._consumers: dict[Step, list[Step]] = {}
        for step in self._steps:
            for port in step.inputs:
                self._consumers.setdefault(port.step, []).append(step)
        self._chains: dict[Step, str] = {}
        self.places: dict[str, str] = {}
        """Where each component was written."""
        self._ids = {step.name for step in self._steps}
        spouts = [step for step in self._steps if not step.inputs]
        if not spouts:
            raise TopologyError("the flow has no source; begin with flow.source('name', spout)")
        if not any(step.is_sink for step in self._steps):
            raise TopologyError("the flow writes nothing; end a stream with append('table') or another sink")
        first, *more_spouts = spouts
        self.builder = TransactionalTopologyBuilder(
            graph.topology_id,
            first.name,
            graph.placed_spout(first),
            first.parallelism or graph.parallelism,
            output=graph.output,
        )
        for spout in more_spouts:
            self.builder.add_spout(spout.name, graph.placed_spout(spout), spout.parallelism or graph.parallelism)
        for step in self._steps:
            if step.name and step.inputs:
                self._declare(step)
        self.places |= {spout.name: spout.place_text() for spout in spouts}
        # What users look for comes first.
        states = {name: state for step in self._steps for name, state in step.states.items()}
        for name in sorted(states, key=lambda name: f"/{INTERNAL}/" in (states[name].address or "")):
            self.builder.set_state(name, graph.placed(name, states[name]))
        for name, reference in {name: each for s in self._steps for name, each in s.references.items()}.items():
            self.builder.set_reference(name, reference)

    def _declare(self, step: Step) -> None:
        component, inputs = step.component if step.make is None else step.make(self.sources), step.inputs
        if step.taking is not None and (selected := self._selected(*inputs)) is not None:
            component, inputs = step.taking(selected[1]), (selected[0],)
        add = self.builder.set_committer_bolt if step.is_committer else self.builder.set_bolt
        self.places[step.name] = step.place_text()
        declarer = add(step.name, component, step.parallelism or self._graph.parallelism)
        by = [step.by] * len(inputs) if isinstance(step.by, Grouping) else step.by
        subscribed = {
            source: grouping
            for port, grouping in zip(inputs, by, strict=True)
            for source in self.sources(port)  # a stream that is joined with itself comes once
        }
        for (component_id, stream), grouping in subscribed.items():
            declarer.subscribe(component_id, stream, grouping)
        if step.clock is not None:
            declarer.all_grouping(step.clock.name)

    def _selected(self, port: Port) -> tuple[Port, Sequence[str]] | None:
        """Return what steps that only select take, and which fields; None if there are none, or a bolt does so anyway.

        A bolt for them alone cost an eighth of a job that joins 60 rows in each transaction, and appends them.
        """
        first, names = port, port.fields.names
        while isinstance(select := port.step.component, Select) and len(self._consumers[port.step]) == 1:
            names, (port,) = tuple(select.names[name] for name in names), port.step.inputs
        is_alone = not port.step.is_row_wise or len(self._consumers[port.step]) > 1
        return (port, names) if is_alone and port is not first else None

    def sources(self, port: Port) -> Sequence[Source]:
        """Return the streams of components that a stream of a step is."""
        step = port.step
        if step.is_row_wise:
            return [(self._chain(step), DEFAULT_STREAM)]
        if not step.name:
            return list(dict.fromkeys(source for each in step.inputs for source in self.sources(each)))
        return [(step.name, port.stream)]

    def _chain(self, last: Step) -> str:
        """Return the id of the bolt of row-wise steps that ends with one; declare it first."""
        if last in self._chains:
            return self._chains[last]
        chain = [last]
        while (before := chain[-1].inputs[0].step).is_row_wise and len(self._consumers[before]) == 1:
            chain.append(before)
        chain.reverse()
        (port,) = chain[0].inputs
        sources = self.sources(port)
        name = self._chains[last] = self._chain_name(last)
        self.places[name] = " and ".join(dict.fromkeys(map(Step.place_text, chain)))
        bolt = RowsBolt(port.fields, [step.component for step in chain])
        declarer = self.builder.set_bolt(name, bolt, self._graph.parallelism)
        for component_id, stream in sources:
            declarer.local_or_shuffle_grouping(component_id, stream)
        return name

    def _named_consumers(self, step: Step) -> Iterator[Step]:
        """Yield what takes what a step makes, also behind unions, which are nothing by themselves."""
        for each in self._consumers.get(step, []):
            if each.name or each.is_row_wise:
                yield each
            else:
                yield from self._named_consumers(each)

    def _chain_name(self, last: Step) -> str:
        consumers = list(self._named_consumers(last))
        clock = next((consumer for consumer in consumers if isinstance(consumer.component, EventClock)), None)
        first = next((consumer.name for consumer in consumers if consumer.name), "")
        # What a clock of several sources has seen is kept by their ids, so this one is of the source alone.
        name = f"{last.base}-timed" if clock is not None else f"{first or last.base}-rows"
        while name in self._ids:
            name += "-rows"
        self._ids.add(name)
        return name
