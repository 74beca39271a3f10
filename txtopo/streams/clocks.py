"""The clocks of streams: what the steps below one must know of it, and the steps that clocks are."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from committers import EventClock, EventTime
from txtopo.api.components.groupings import Grouping, GroupingKind
from txtopo.api.data.tuples import DEFAULT_STREAM
from txtopo.errors import ConfigError
from txtopo.row_wise.steps import Select
from txtopo.streams.graph import Graph, Port, Source, Step, parts_of


@attrs.frozen
class Clock:
    """The clock of a stream: its step, the field with the event time, and how long late rows are waited for."""

    step: Step
    time: str
    lateness: dt.timedelta
    settings: Mapping[str, Any]
    """Those of an ``EventTime`` of what it reads, for the clock of a join."""
    ahead_max: dt.timedelta | None
    """How far a time may be ahead of its transaction."""
    is_lost: bool = False
    """Whether the stream has the event time no more; another field may have its name."""


def clock_step(graph: Graph, verb: str, base: str, clock_id: str, inputs: Sequence[Port], **settings: Any) -> Step:
    """Add the step of a clock; ``settings`` has the component, or what makes it."""
    return graph.add(
        Step(
            verb=verb,
            base=base,
            name=clock_id,
            inputs=tuple(inputs),
            streams={DEFAULT_STREAM: EventClock.output_fields},
            by=Grouping(GroupingKind.GLOBAL),
            is_committer=True,
            parallelism=1,
            states={clock_id: EventClock.state(graph.internal(clock_id))},
            **settings,
        )
    )


def clock_of_both(graph: Graph, name: str, clocks: Sequence[Clock]) -> Step:
    """Return the clock of a join, which goes with the slower stream: that of both, if they have the same.

    It reads what both clocks read. A stream below one may have less of it: of a union it is one component, though the
    clock waits for the slowest of several, and a filter may pass on nothing for long.
    """
    if clocks[0].step is clocks[1].step:
        return clocks[0].step
    ahead_max = clocks[0].ahead_max
    if ahead_max != clocks[1].ahead_max:
        raise ConfigError(
            f"one stream of {name!r} has ahead_max={ahead_max}, the other {clocks[1].ahead_max}, and a join has one "
            "clock; give event_time() of both the same ahead_max="
        )
    clock_id = f"{name}-clock"
    settings: dict[Port, Mapping[str, Any]] = {}
    for own in clocks:
        for port in parts_of(own.step.inputs[0]):
            has_another = any(port.step is each.step and own.settings != settings[each] for each in settings)
            settings[_again(graph, port) if has_another else port] = own.settings  # a component has one time
    at_end = all(own.step.component.at_end for own in clocks)

    def clock(sources: Callable[[Port], Sequence[Source]]) -> EventClock:
        times = {source: EventTime(**settings[port]) for port in settings for source, _ in sources(port)}
        return EventClock(clock_id, sources=times, ahead_max=ahead_max, close_at_end=at_end)

    return clock_step(graph, "join", name, clock_id, [*settings], make=clock)


def by_source(graph: Graph, port: Port) -> Port:
    """Return a stream with a component for each of its sources, so that a clock waits for the slowest of these.

    What row-wise steps make of a union, they make of each source then; branches of one source are put together.
    """
    parts = [_again(graph, part) if part.step.verb == "union" else part for part in _by_source(graph, port)]
    return port if parts == parts_of(port) else _together(graph, parts, port.step.base)


def _by_source(graph: Graph, port: Port) -> Sequence[Port]:
    made = port.step
    if len(_sources(port)) == 1:
        return [port]
    graph.taken.add(made)
    if made.is_row_wise:
        parts = (attrs.evolve(made, inputs=(part,), base=part.step.base) for part in _by_source(graph, made.inputs[0]))
        return [Port(graph.add(part)) for part in parts]
    branches: dict[frozenset[Step], list[Port]] = {}
    for part in (each for branch in made.inputs for each in _by_source(graph, branch)):
        branches.setdefault(_sources(part), []).append(part)
    return [_together(graph, of_one, of_one[0].step.base) for of_one in branches.values()]


def _sources(port: Port) -> frozenset[Step]:
    """Return the steps above row-wise ones and unions."""
    if not port.step.is_row_wise and port.step.verb != "union":
        return frozenset({port.step})
    return frozenset().union(*map(_sources, port.step.inputs))


def _together(graph: Graph, ports: Sequence[Port], base: str) -> Port:
    if len(ports) == 1:
        return ports[0]
    streams = {DEFAULT_STREAM: ports[0].fields.with_attempt()}
    return Port(graph.add(Step(verb="union", base=base, inputs=tuple(ports), streams=streams)))


def _again(graph: Graph, port: Port) -> Port:
    """Return a stream as that of another component."""
    streams = {DEFAULT_STREAM: port.fields.with_attempt()}
    same = Select({name: name for name in port.fields})
    return Port(graph.add(Step(verb="select", base=port.step.base, inputs=(port,), streams=streams, component=same)))
