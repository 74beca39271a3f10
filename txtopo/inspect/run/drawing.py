"""The graph of a topology, with what each component has done."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from txtopo.api.data.tuples import DEFAULT_STREAM
from txtopo.engine.timeline.records import COMPONENT, STREAM, OfComponent
from txtopo.files.records import from_json, in_camel_case
from txtopo.inspect.run.failures import components_failed_at, groups_of, is_current
from txtopo.inspect.run.header import counts_of
from txtopo.inspect.run.known import KnownRun
from txtopo.inspect.run.status import Counts
from txtopo.inspect.timeline.series import last_number
from txtopo.transactional.core.record.history import first_line


@attrs.frozen(field_transformer=in_camel_case)
class Flow(Counts):
    """What a component has counted, how many tuples it has got, and what it has emitted by stream."""

    in_: float | None = None
    out: Mapping[str, float] | None = None


@attrs.frozen(field_transformer=in_camel_case)
class Component:
    """A component of a graph."""

    id: str
    kind: str = ""
    class_: str = ""
    tasks: int = 0
    phase: str | None = None
    committer: bool = False
    streams: Mapping[str, str] = attrs.field(factory=dict)
    states: Sequence[str] = ()
    counts: Flow = Flow()
    last_error: str | None = None
    last_failed_at: float | None = None
    is_failing: bool = False


@attrs.frozen(field_transformer=in_camel_case)
class Edge:
    """An edge of a graph."""

    source: str
    stream: str
    target: str
    grouping: str


@attrs.frozen(field_transformer=in_camel_case)
class GraphState:
    """A state in a graph."""

    class_: str = ""
    kind: str = ""
    key: str = ""
    value: str = ""
    path: str = ""


@attrs.frozen(field_transformer=in_camel_case)
class Graph:
    """The graph of a topology; ``why`` it has no components."""

    topology: str
    kind: str = "transactional"
    components: Sequence[Component] = ()
    edges: Sequence[Edge] = ()
    states: Mapping[str, GraphState] = attrs.field(factory=dict)
    why: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether it is a plain topology's."""
        return self.kind == "plain"


def graph(known: KnownRun) -> Graph:
    """Return components with counts and last error, edges and states; raise ConfigError if they can't be read."""
    if known.run is None:
        known.timeline.check("run")
        why = "no run has recorded its graph here"
        return Graph(known.id, "plain" if known.is_plain else "transactional", why=why)
    described = known.run.graph
    edges = [from_json(each, Edge) for each in described.get("edges", ())]
    states = {name: from_json(each, GraphState) for name, each in described.get("states", {}).items()}
    flows = _flows(known, described, edges)
    last_errors = {group.component: first_line(group.first) for group in reversed(groups_of(known))}
    failed_at = components_failed_at(known)
    components = []
    for each in described.get("components", ()):
        name, tasks = each["id"], each["tasks"]
        component = Component(
            name,
            kind=each["kind"],
            class_=each["class"],
            tasks=len(tasks) if isinstance(tasks, list) else tasks,
            phase=each.get("phase"),
            committer=each.get("committer", False),
            streams=each["streams"],
            states=each.get("states", []),
            counts=flows[name],
            last_error=last_errors.get(name),
            last_failed_at=failed_at.get(name),
            is_failing=is_current(known, failed_at.get(name)),
        )
        components.append(component)
    return Graph(known.id, known.run.kind, components, edges, states)


def _flows(known: KnownRun, described: Mapping[str, Any], edges: Sequence[Edge]) -> dict[str, Flow]:
    """Return what each component has received and emitted since the run began."""
    given = _given(known, described)
    emitted = {name: counts_of(row) for name, row in known.timeline.last(COMPONENT).items()}
    failures: Counter[str] = Counter()
    for group in groups_of(known):
        failures[group.component] += group.count
    flows = {}
    for name in (each["id"] for each in described.get("components", ())):
        counts = emitted.get(name, {})
        if not known.is_plain:
            counts = {**counts, "failed": failures[name]}
        flows[name] = Flow(in_=_received(name, edges, given), out=given.get(name, {}), **counts)
    return flows


def _received(component: str, edges: Sequence[Edge], given: Mapping[str, Mapping[str, float]]) -> float | None:
    """Return how many tuples a component got; None if it takes none, or no run has counted them."""
    counts = [given.get(edge.source, {}).get(edge.stream) for edge in edges if edge.target == component]
    counted = [count for count in counts if count is not None]
    return sum(counted) if counted else None


def _given(known: KnownRun, described: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    totals = known.timeline.last(COMPONENT)
    if not totals:
        return {}
    by_stream = {name: last_number(row, 0) or 0.0 for name, row in known.timeline.last(STREAM).items()}
    counts_of_component = {}
    for component in described["components"]:
        counts = {stream: by_stream.get(json.dumps([component["id"], stream]), 0.0) for stream in component["streams"]}
        if DEFAULT_STREAM in counts:
            counts[DEFAULT_STREAM] = (last_number(totals.get(component["id"]), OfComponent.EMITTED) or 0.0) - sum(
                counts.values()
            )
        counts_of_component[component["id"]] = counts
    return counts_of_component
