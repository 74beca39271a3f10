"""Drawings of a topology's graph: a tree for the terminal, a flowchart for Mermaid or Graphviz, and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from rich.text import Text
from rich.tree import Tree

from txtopo.api.data.fields import Fields
from txtopo.api.data.tuples import DEFAULT_STREAM
from txtopo.api.state import State
from txtopo.text.secrecy import without_secrets
from txtopo.topology.plans.description import address_of, described, fields_text, shown_class_of, states_of
from txtopo.topology.plans.plan import Edge, Phase, Plan, PlannedComponent

_PHASE_STYLES = {Phase.PROCESSING: "yellow", Phase.COMMIT: "green"}


def draw_text(plan: Plan) -> Tree:
    """Return the graph: each phase with its components, each component with inputs, outputs and states."""
    tree = Tree(Text.assemble((plan.topology_id, "bold"), (f"  {summary_of(plan)}", "dim")))
    for phase, title in PHASE_TITLES.items():
        components = plan.of_phase(phase)
        if components:
            branch = tree.add(Text(title, _PHASE_STYLES[phase]))
            for component in components:
                _add_component(branch, plan, component)
    if plan.states:
        branch = tree.add(Text("states", "cyan"))
        for name, state in plan.states.items():
            node = branch.add(Text.assemble((name, "bold"), f"  {state_text(state)}"))
            if address_of(state):
                node.add(Text.assemble(("in ", "dim"), address_of(state)))
    if plan.references:
        branch = tree.add(Text("references", "cyan"))
        for name, reference in plan.references.items():
            node = branch.add(Text.assemble((name, "bold"), f"  by {', '.join(reference.key)}"))
            node.add(Text.assemble(("in ", "dim"), without_secrets(reference.address)))
    return tree


def summary_of(plan: Plan) -> str:
    """Say what a replay carries; several kinds of spouts are named."""
    names: dict[str, list[str]] = {}
    for name, semantics in plan.semantics.items():
        names.setdefault(semantics.summary, []).append(name)
    if len(names) == 1:
        return "; ".join(names)
    return "; ".join(f"{', '.join(names_of_stream)}: {summary}" for summary, names_of_stream in names.items())


def _add_component(branch: Tree, plan: Plan, component: PlannedComponent) -> None:
    head = Text.assemble((component.id, "bold"), f"  {title_of(component)}", (f"  {shown_class_of(component)}", "dim"))
    node = branch.add(head)
    for edge in plan.inputs(component.id):
        node.add(Text.assemble(("from ", "dim"), edge.source, (f"  {edge_text(plan, edge)}", "dim")))
    for stream, fields in component.streams.items():
        note = "" if plan.outputs(component.id, stream) else "  no subscriber"
        node.add(Text.assemble(("emits ", "dim"), stream_text(stream, fields), (note, "yellow")))
    states = states_of(plan, component)
    if states:
        node.add(Text.assemble(("keeps ", "dim"), (", ".join(states), "cyan")))


_DOT_COLORS = {Phase.PROCESSING: "goldenrod", Phase.COMMIT: "forestgreen"}


def draw_dot(plan: Plan) -> str:
    """Return a ``digraph`` in Graphviz's language, with a cluster for each phase."""
    return "\n".join(_dot_lines(plan))


def _dot_lines(plan: Plan) -> Iterator[str]:
    yield f"digraph {_dot_quoted(plan.topology_id)} {{"
    yield '  rankdir=LR; fontname="sans-serif"; node [shape=box, fontname="sans-serif"];'
    yield '  edge [fontname="sans-serif", fontsize=10];'
    for phase, title in PHASE_TITLES.items():
        components = plan.of_phase(phase)
        if components:
            yield f"  subgraph {_dot_quoted(f'cluster_{phase.value}')} {{"
            yield f"    label={_dot_quoted(title)}; color={_DOT_COLORS[phase]};"
            yield from (f"    {_dot_node(component)}" for component in components)
            yield "  }"
    for name, state in plan.states.items():
        label = _dot_quoted(name, state_text(state), address_of(state))
        yield f"  {_dot_quoted(f'state {name}')} [shape=cylinder, label={label}];"
    for edge in plan.edges:
        fields = plan.by_id[edge.source].streams[edge.stream]
        label = _dot_quoted(edge_text(plan, edge), stream_text(edge.stream, fields))
        yield f"  {_dot_quoted(edge.source)} -> {_dot_quoted(edge.target)} [label={label}];"
    for component in plan.of_phase(Phase.COMMIT):
        for state_name in states_of(plan, component):
            yield f"  {_dot_quoted(component.id)} -> {_dot_quoted(f'state {state_name}')} [style=dashed, dir=none];"
    yield "}"


def _dot_node(component: PlannedComponent) -> str:
    peripheries = 2 if component.is_committer else 1
    label = _dot_quoted(component.id, title_of(component))
    return f"{_dot_quoted(component.id)} [label={label}, peripheries={peripheries}];"


def _dot_quoted(*lines: str) -> str:
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"') for line in lines if line)
    return '"' + "\\n".join(escaped) + '"'


def draw_mermaid(plan: Plan) -> str:
    """Return a ``flowchart LR`` for Markdown pages, with a subgraph for each phase."""
    return "\n".join(_mermaid_lines(plan))


def _mermaid_lines(plan: Plan) -> Iterator[str]:
    names = {component.id: f"c{index}" for index, component in enumerate(plan.components)}
    states = {state: f"s{index}" for index, state in enumerate(plan.states)}
    yield "flowchart LR"
    for phase, title in PHASE_TITLES.items():
        components = plan.of_phase(phase)
        if components:
            yield f"  subgraph {phase.value}_phase[{_mermaid_quoted(title)}]"
            yield from (f"    {_mermaid_node(names[component.id], component)}" for component in components)
            yield "  end"
    yield from (
        f"  {states[name]}[({_mermaid_quoted(name, state_text(state), address_of(state))})]"
        for name, state in plan.states.items()
    )
    for edge in plan.edges:
        fields = plan.by_id[edge.source].streams[edge.stream]
        label = _mermaid_quoted(edge_text(plan, edge), stream_text(edge.stream, fields))
        yield f"  {names[edge.source]} -->|{label}| {names[edge.target]}"
    for component in plan.of_phase(Phase.COMMIT):
        for state in states_of(plan, component):
            yield f"  {names[component.id]} -.- {states[state]}"


def _mermaid_node(name: str, component: PlannedComponent) -> str:
    label = _mermaid_quoted(component.id, title_of(component))
    return f"{name}[[{label}]]" if component.is_committer else f"{name}[{label}]"


def _mermaid_quoted(*lines: str) -> str:
    escaped = (
        line.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
        for line in lines
        if line
    )
    return f'"{"<br/>".join(escaped)}"'


def draw_json(plan: Plan) -> str:
    """Return components, edges and states as one JSON object."""
    return json.dumps(described(plan), indent=2, ensure_ascii=False)


PHASE_TITLES: Mapping[Phase, str] = {
    Phase.PROCESSING: "processing phase: works ahead, many transactions at once",
    Phase.COMMIT: "commit phase: one transaction after another, in txid order",
}
"""The phases in the order of the data flow."""


def title_of(component: PlannedComponent) -> str:
    """Return a component's kind and its number of tasks."""
    kind = component.kind.value
    tasks = "1 task" if component.tasks == 1 else f"{component.tasks} tasks"
    return f"{f'committer, {kind}' if component.is_committer else kind}, {tasks}"


def stream_text(stream: str, fields: Fields) -> str:
    """Return a stream's name and fields; the name of the default stream is left out."""
    text = f"({fields_text(fields)})"
    return text if stream == DEFAULT_STREAM else f"{stream} {text}"


def edge_text(plan: Plan, edge: Edge) -> str:
    """Return an edge's grouping, its stream unless it is the default one, and a note if tuples stay in their task."""
    parts = [f"{edge.grouping} grouping"]
    if edge.stream != DEFAULT_STREAM:
        parts.append(f"stream {edge.stream}")
    if not edge.grouping.moves(plan.by_id[edge.source].tasks, plan.by_id[edge.target].tasks):
        parts.append("in the same task")
    return ", ".join(parts)


def state_text(state: State) -> str:
    """Return a state's class, kind and fields."""
    if not len(state.key):
        return f"{type(state).__name__}, {state.kind.value}: ({fields_text(state.value)})"
    fields = f"({fields_text(state.key)}) to ({fields_text(state.value)})"
    return f"{type(state).__name__}, {state.kind.value}: {fields}"
