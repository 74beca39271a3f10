"""Joins of two streams as steps: within a time, or without a bound."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import attrs

from committers import IntervalJoin, JoinStream, StreamJoin
from txtopo.api.components.groupings import Grouping, GroupingKind
from txtopo.errors import ConfigError
from txtopo.streams.clocks import Clock, clock_of_both
from txtopo.streams.graph import Graph, Port, Source, Step, streams_of


@attrs.frozen
class Side:
    """A stream that is joined with another.

    Args:
        port: the stream, which is that of one component.
        keys: the fields of the key.
        clock: its clock, if the join goes by time.
        names: other names of its fields in joined rows.
    """

    port: Port
    keys: Sequence[str]
    clock: Clock | None
    names: Mapping[str, str] | None

    def at(self, sources: Callable[[Port], Sequence[Source]]) -> JoinStream:
        """Return the side as a join has it, given the components that streams are of."""
        ((component_id, stream),) = sources(self.port)
        time = None if self.clock is None else self.clock.time
        fields = self.port.fields
        return JoinStream(component_id, stream=stream, key=self.keys, time=time, fields=fields, rename=self.names)


@attrs.frozen
class StreamsJoined:
    """Two streams, joined.

    Args:
        name: the name of the step.
        how: which rows are emitted.
        within: how far the right time is after the left one, at least and at most; None: there is no bound.
        ttl: without a bound, how long after its event time a row is kept; None: for ever.
    """

    name: str
    how: Literal["inner", "left", "full"]
    within: tuple[dt.timedelta, dt.timedelta] | None
    ttl: dt.timedelta | None

    @property
    def is_by_time(self) -> bool:
        """Whether both streams need a clock."""
        return self.within is not None or self.ttl is not None

    def step(self, graph: Graph, sides: Sequence[Side]) -> Step:
        """Add the step of the join, and of a clock for it."""
        if self.within is None and self.how == "full":
            raise ConfigError("a full join needs a bound in time: write upper='1h', or take how='inner' or 'left'")
        clocks = [side.clock for side in sides if side.clock is not None]
        clock = clock_of_both(graph, self.name, clocks) if self.is_by_time else None

        def joining(sources: Callable[[Port], Sequence[Source]]) -> IntervalJoin | StreamJoin:
            left, right = (side.at(sources) for side in sides)
            return self._component(left, right, clock)

        # The ids of the sources are known when all is built; nothing but them depends on that.
        join = joining(lambda port: [(str(port.step.name or id(port.step)), port.stream)])
        return graph.add(
            Step(
                verb="join",
                name=self.name,
                base=self.name,
                inputs=tuple(side.port for side in sides),
                by=[Grouping(GroupingKind.FIELDS, fields=side.port.fields.subset(side.keys)) for side in sides],
                make=joining,
                is_committer=True,
                clock=clock,
                states=self._states(join, graph),
                streams=streams_of(join),
                made_of={
                    (side.names or {}).get(field, field): [(index, field)]
                    for index, side in enumerate(sides)
                    for field in side.port.fields
                },
            )
        )

    def _component(self, left: JoinStream, right: JoinStream, clock: Step | None) -> IntervalJoin | StreamJoin:
        parts: dict[str, Any] = {"left": left, "right": right, "how": self.how, "clock": clock and clock.name}
        if self.within is None:
            return StreamJoin(*self._tables, ttl=self.ttl, **parts)
        lower, upper = self.within
        return IntervalJoin(self.name, lower=lower, upper=upper, **parts)

    @property
    def _tables(self) -> tuple[str, str]:
        return f"{self.name}-left", f"{self.name}-right"

    def _states(self, join: IntervalJoin | StreamJoin, graph: Graph) -> Mapping[str, Any]:
        if isinstance(join, IntervalJoin):
            return {self.name: join.state(graph.internal(self.name))}
        left, right = self._tables
        return {left: join.left_table(graph.internal(left)), right: join.right_table(graph.internal(right))}


def pairs_of(on: str | Sequence[str] | Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the fields of the key on the left side, and on the right one."""
    pairs = on if isinstance(on, Mapping) else {each: each for each in ((on,) if isinstance(on, str) else on)}
    return list(pairs), list(pairs.values())
