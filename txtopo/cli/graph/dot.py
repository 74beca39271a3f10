"""A graph in the language of Graphviz."""

from __future__ import annotations

from collections.abc import Iterator

from txtopo.cli.graph.model import PHASE_TITLES, address_of, edge_text, state_text, states_of, stream_text, title_of
from txtopo.topology.plan import Phase, Plan, PlannedComponent

_COLORS = {Phase.PROCESSING: "goldenrod", Phase.COMMIT: "forestgreen"}


def draw_dot(plan: Plan) -> str:
    """Return a ``digraph`` with a cluster for each phase."""
    return "\n".join(_lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    yield f"digraph {_quoted(plan.topology_id)} {{"
    yield '  rankdir=LR; fontname="sans-serif"; node [shape=box, fontname="sans-serif"];'
    yield '  edge [fontname="sans-serif", fontsize=10];'
    for phase, title in PHASE_TITLES.items():
        components = plan.of_phase(phase)
        if components:
            yield f"  subgraph {_quoted(f'cluster_{phase.value}')} {{"
            yield f"    label={_quoted(title)}; color={_COLORS[phase]};"
            yield from (f"    {_node(component)}" for component in components)
            yield "  }"
    for name, state in plan.states.items():
        label = _quoted(name, state_text(state), address_of(state))
        yield f"  {_quoted(f'state {name}')} [shape=cylinder, label={label}];"
    for edge in plan.edges:
        fields = plan.by_id[edge.source].streams[edge.stream]
        label = _quoted(edge_text(plan, edge), stream_text(edge.stream, fields))
        yield f"  {_quoted(edge.source)} -> {_quoted(edge.target)} [label={label}];"
    for component in plan.of_phase(Phase.COMMIT):
        for kept in states_of(plan, component):
            yield f"  {_quoted(component.id)} -> {_quoted(f'state {kept}')} [style=dashed, dir=none];"
    yield "}"


def _node(component: PlannedComponent) -> str:
    peripheries = 2 if component.is_committer else 1
    label = _quoted(component.id, title_of(component))
    return f"{_quoted(component.id)} [label={label}, peripheries={peripheries}];"


def _quoted(*lines: str) -> str:
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"') for line in lines if line)
    return '"' + "\\n".join(escaped) + '"'
