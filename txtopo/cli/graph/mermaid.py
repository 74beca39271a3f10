"""A graph as a Mermaid flowchart: for Markdown pages."""

from __future__ import annotations

from collections.abc import Iterator

from txtopo.cli.graph.model import PHASE_TITLES, address_of, edge_text, state_text, states_of, stream_text, title_of
from txtopo.topology.plan import Phase, Plan, PlannedComponent


def draw_mermaid(plan: Plan) -> str:
    """Return a ``flowchart LR`` with a subgraph for each phase."""
    return "\n".join(_lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    names = {component.id: f"c{index}" for index, component in enumerate(plan.components)}
    states = {state: f"s{index}" for index, state in enumerate(plan.states)}
    yield "flowchart LR"
    for phase, title in PHASE_TITLES.items():
        components = plan.of_phase(phase)
        if components:
            yield f"  subgraph {phase.value}_phase[{_quoted(title)}]"
            yield from (f"    {_node(names[component.id], component)}" for component in components)
            yield "  end"
    yield from (
        f"  {states[name]}[({_quoted(name, state_text(state), address_of(state))})]"
        for name, state in plan.states.items()
    )
    for edge in plan.edges:
        fields = plan.by_id[edge.source].streams[edge.stream]
        label = _quoted(edge_text(plan, edge), stream_text(edge.stream, fields))
        yield f"  {names[edge.source]} -->|{label}| {names[edge.target]}"
    for component in plan.of_phase(Phase.COMMIT):
        for state in states_of(plan, component):
            yield f"  {names[component.id]} -.- {states[state]}"


def _node(name: str, component: PlannedComponent) -> str:
    label = _quoted(component.id, title_of(component))
    return f"{name}[[{label}]]" if component.is_committer else f"{name}[{label}]"


def _quoted(*lines: str) -> str:
    escaped = (
        line.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
        for line in lines
        if line
    )
    return f'"{"<br/>".join(escaped)}"'
