"""What every drawing of a graph says about components, edges and states."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from txtopo.api.fields import Fields
from txtopo.api.state import State
from txtopo.api.tuples import DEFAULT_STREAM
from txtopo.api.types import ddl_name
from txtopo.topology.plan import Edge, Phase, Plan, PlannedComponent
from txtopo.topology.probe import find_state_mistakes

PHASE_TITLES: Mapping[Phase, str] = {
    Phase.PROCESSING: "processing phase: works ahead, many transactions at once",
    Phase.COMMIT: "commit phase: one transaction after another, in txid order",
}
"""The phases in the order that data takes."""


def title_of(component: PlannedComponent) -> str:
    """Return how a component is run, and by how many tasks."""
    kind = component.kind.value
    tasks = "1 task" if component.tasks == 1 else f"{component.tasks} tasks"
    return f"{f'committer, {kind}' if component.is_committer else kind}, {tasks}"


def class_of(component: PlannedComponent) -> str:
    """Return the name of a component's class; empty where that is one of txtopo's own wrappers."""
    name = type(component.component).__name__
    return "" if name.startswith("_") else name


def fields_text(fields: Fields) -> str:
    """Return fields as they are declared."""
    pairs = zip(fields.names, fields.types, strict=True)
    return ", ".join(name if kind is None else f"{name}: {ddl_name(kind)}" for name, kind in pairs)


def stream_text(stream: str, fields: Fields) -> str:
    """Return a stream with its fields; the default stream goes without a name."""
    text = f"({fields_text(fields)})"
    return text if stream == DEFAULT_STREAM else f"{stream} {text}"


def edge_text(plan: Plan, edge: Edge) -> str:
    """Return an edge's grouping, the stream where it is not the default one, and whether tuples travel."""
    parts = [f"{edge.grouping} grouping"]
    if edge.stream != DEFAULT_STREAM:
        parts.append(f"stream {edge.stream}")
    if not edge.grouping.moves(plan.by_id[edge.source].tasks, plan.by_id[edge.target].tasks):
        parts.append("in the same task")
    return ", ".join(parts)


def state_text(state: State) -> str:
    """Return what a state keeps."""
    if not len(state.key):
        return f"{type(state).__name__}, {state.kind.value}: ({fields_text(state.value)})"
    fields = f"({fields_text(state.key)}) to ({fields_text(state.value)})"
    return f"{type(state).__name__}, {state.kind.value}: {fields}"


def address_of(state: State) -> str:
    """Return where a state's table lies; empty for a state that has none."""
    return str(getattr(state, "path", ""))


def states_of(plan: Plan, component: PlannedComponent) -> list[str]:
    """Return the names of the states that a component asks for in its ``prepare``.

    It asks for a state if the graph would have a mistake without it.
    """
    if component.phase is Phase.PROCESSING:
        return []
    alone = tuple(c if c is component else attrs.evolve(c, phase=Phase.PROCESSING) for c in plan.components)
    return [
        name
        for name in plan.states
        if any(find_state_mistakes(attrs.evolve(plan, components=alone, states=_without(plan.states, name))))
    ]


def _without(states: Mapping[str, State], name: str) -> dict[str, State]:
    return {each: state for each, state in states.items() if each != name}
