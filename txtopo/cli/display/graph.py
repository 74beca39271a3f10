"""Drawings of a topology's graph: a tree for the terminal, a flowchart for Mermaid or Graphviz, and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from rich.text import Text
from rich.tree import Tree

from txtopo.api.data.fields import Fields
from txtopo.api.data.tuples import DEFAULT_STREAM
from txtopo.api.state import State
from txtopo.text.secrecy import without_secrets
from txtopo.text.words import count_of
from txtopo.topology.plans.description import (
    address_of,
    described,
    described_plain,
    fields_text,
    shown_class_of,
    states_of,
)
from txtopo.topology.plans.plain_plan import PlainComponent, PlainKind, PlainPlan
from txtopo.topology.plans.plan import Edge, Phase, Plan, PlannedComponent

AnyPlan = Plan | PlainPlan
AnyComponent = PlannedComponent | PlainComponent

PHASE_TITLES: Mapping[Phase, str] = {
    Phase.PROCESSING: "processing phase: works ahead, many transactions at once",
    Phase.COMMIT: "commit phase: one transaction after another, in txid order",
}
"""The phases in the order of the data flow."""

_PHASE_STYLES = {Phase.PROCESSING: "yellow", Phase.COMMIT: "green"}


def draw_text(plan: AnyPlan) -> Tree:
    """Return the graph: each phase with its components, each component with inputs, outputs and states."""
    summary = summary_of(plan) if isinstance(plan, Plan) else "plain: every tuple tree is tracked"
    tree = Tree(Text.assemble((plan.topology_id, "bold"), (f"  {summary}", "dim")))
    for phase, components in _phases(plan):
        branch = tree if phase is None else tree.add(Text(PHASE_TITLES[phase], _PHASE_STYLES[phase]))
        for component in components:
            _add_component(branch, plan, component)
    if not isinstance(plan, Plan):
        return tree
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
    return "; ".join(f"{', '.join(own)}: {summary}" for summary, own in names.items())


def _add_component(branch: Tree, plan: AnyPlan, component: AnyComponent) -> None:
    shown = shown_class_of(component)
    node = branch.add(Text.assemble((component.id, "bold"), f"  {title_of(component)}", (f"  {shown}", "dim")))
    for edge in plan.edges:
        if edge.target == component.id:
            node.add(Text.assemble(("from ", "dim"), edge.source, (f"  {edge_text(plan, edge)}", "dim")))
    for stream, fields in component.streams.items():
        suffix = "" if plan.outputs(component.id, stream) else "  no subscriber"
        node.add(Text.assemble(("emits ", "dim"), stream_text(stream, fields), (suffix, "yellow")))
    states = _states_of(plan, component)
    if states:
        node.add(Text.assemble(("keeps ", "dim"), (", ".join(states), "cyan")))


_DOT_COLORS = {Phase.PROCESSING: "goldenrod", Phase.COMMIT: "forestgreen"}


def draw_dot(plan: AnyPlan) -> str:
    """Return a ``digraph`` in Graphviz's language, with a cluster for each phase."""
    return "\n".join(_dot_lines(plan))


def _dot_lines(plan: AnyPlan) -> Iterator[str]:
    yield f"digraph {_dot_quoted(plan.topology_id)} {{"
    yield '  rankdir=LR; fontname="sans-serif"; node [shape=box, fontname="sans-serif"];'
    yield '  edge [fontname="sans-serif", fontsize=10];'
    for phase, components in _phases(plan):
        if phase is not None:
            yield f"  subgraph {_dot_quoted(f'cluster_{phase.value}')} {{"
            yield f"    label={_dot_quoted(PHASE_TITLES[phase])}; color={_DOT_COLORS[phase]};"
        yield from (f"    {_dot_node(component)}" for component in components)
        if phase is not None:
            yield "  }"
    for name, state in _states(plan).items():
        label = _dot_quoted(name, state_text(state), address_of(state))
        yield f"  {_dot_quoted(f'state {name}')} [shape=cylinder, label={label}];"
    for edge in plan.edges:
        yield f"  {_dot_quoted(edge.source)} -> {_dot_quoted(edge.target)} [label={_dot_quoted(*_label(plan, edge))}];"
    for component in plan.components:
        for state_name in _states_of(plan, component):
            yield f"  {_dot_quoted(component.id)} -> {_dot_quoted(f'state {state_name}')} [style=dashed, dir=none];"
    yield "}"


def _dot_node(component: AnyComponent) -> str:
    shape = {"committer": "peripheries=2", "spout": "shape=oval"}.get(_role(component), "peripheries=1")
    return f"{_dot_quoted(component.id)} [label={_dot_quoted(component.id, title_of(component))}, {shape}];"


def _dot_quoted(*lines: str) -> str:
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"') for line in lines if line)
    return '"' + "\\n".join(escaped) + '"'


def draw_mermaid(plan: AnyPlan) -> str:
    """Return a ``flowchart LR`` for Markdown pages, with a subgraph for each phase."""
    return "\n".join(_mermaid_lines(plan))


def _mermaid_lines(plan: AnyPlan) -> Iterator[str]:
    names = {name: f"c{index}" for index, name in enumerate(plan.by_id)}
    states = {state: f"s{index}" for index, state in enumerate(_states(plan))}
    yield "flowchart LR"
    for phase, components in _phases(plan):
        if phase is not None:
            yield f"  subgraph {phase.value}_phase[{_mermaid_quoted(PHASE_TITLES[phase])}]"
        yield from (f"    {_mermaid_node(names[component.id], component)}" for component in components)
        if phase is not None:
            yield "  end"
    yield from (
        f"  {states[name]}[({_mermaid_quoted(name, state_text(state), address_of(state))})]"
        for name, state in _states(plan).items()
    )
    for edge in plan.edges:
        yield f"  {names[edge.source]} -->|{_mermaid_quoted(*_label(plan, edge))}| {names[edge.target]}"
    for component in plan.components:
        for state in _states_of(plan, component):
            yield f"  {names[component.id]} -.- {states[state]}"


def _mermaid_node(name: str, component: AnyComponent) -> str:
    left, right = {"committer": ("[[", "]]"), "spout": ("([", "])")}.get(_role(component), ("[", "]"))
    return f"{name}{left}{_mermaid_quoted(component.id, title_of(component))}{right}"


def _mermaid_quoted(*lines: str) -> str:
    escaped = (
        line.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
        for line in lines
        if line
    )
    return f'"{"<br/>".join(escaped)}"'


def draw_json(plan: AnyPlan) -> str:
    """Return components, edges and states as one JSON object."""
    graph = described(plan) if isinstance(plan, Plan) else described_plain(plan)
    return json.dumps(graph, indent=2, ensure_ascii=False)


def _phases(plan: AnyPlan) -> Iterator[tuple[Phase | None, Sequence[AnyComponent]]]:
    """Yield the phases that have components; all components, if the topology is plain."""
    if isinstance(plan, PlainPlan):
        yield None, plan.components
        return
    for phase in PHASE_TITLES:
        components = plan.of_phase(phase)
        if components:
            yield phase, components


def _states(plan: AnyPlan) -> Mapping[str, State]:
    return plan.states if isinstance(plan, Plan) else {}


def _states_of(plan: AnyPlan, component: AnyComponent) -> Sequence[str]:
    return states_of(plan, component) if isinstance(plan, Plan) and isinstance(component, PlannedComponent) else ()


def _role(component: AnyComponent) -> str:
    if isinstance(component, PlannedComponent):
        return "committer" if component.is_committer else ""
    return "spout" if component.kind is PlainKind.SPOUT else ""


def title_of(component: AnyComponent) -> str:
    """Return a component's kind and its number of tasks."""
    kind = component.kind.value
    tasks = component.tasks if isinstance(component, PlannedComponent) else len(component.tasks)
    return f"{f'committer, {kind}' if _role(component) == 'committer' else kind}, {count_of(tasks, 'task')}"


def stream_text(stream: str, fields: Fields) -> str:
    """Return a stream's name and fields; the name of the default stream is left out."""
    text = f"({fields_text(fields)})"
    return text if stream == DEFAULT_STREAM else f"{stream} {text}"


def _label(plan: AnyPlan, edge: Edge) -> tuple[str, str]:
    return edge_text(plan, edge), stream_text(edge.stream, plan.by_id[edge.source].streams[edge.stream])


def edge_text(plan: AnyPlan, edge: Edge) -> str:
    """Return an edge's grouping, its stream unless it is the default one, and a note if tuples stay in their task."""
    parts = [f"{edge.grouping} grouping"]
    if edge.stream != DEFAULT_STREAM:
        parts.append(f"stream {edge.stream}")
    if isinstance(plan, Plan) and not edge.grouping.moves(plan.by_id[edge.source].tasks, plan.by_id[edge.target].tasks):
        parts.append("in the same task")
    return ", ".join(parts)


def state_text(state: State) -> str:
    """Return a state's class, kind and fields."""
    if not len(state.key):
        return f"{type(state).__name__}, {state.kind.value}: ({fields_text(state.value)})"
    fields = f"({fields_text(state.key)}) to ({fields_text(state.value)})"
    return f"{type(state).__name__}, {state.kind.value}: {fields}"
