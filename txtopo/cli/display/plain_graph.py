"""The graph of a plain topology, as a tree, a diagram or JSON."""

from __future__ import annotations

import json

from rich.text import Text
from rich.tree import Tree

from txtopo.api.data.tuples import DEFAULT_STREAM
from txtopo.cli.display.graph import stream_text
from txtopo.topology.plans.description import described_plain
from txtopo.topology.plans.plain_plan import PlainComponent, PlainKind, PlainPlan
from txtopo.topology.plans.plan import Edge


def draw_plain_text(plan: PlainPlan) -> Tree:
    """Return the graph: each component with its inputs and outputs."""
    tree = Tree(Text.assemble((plan.topology_id, "bold"), ("  plain: every tuple tree is tracked", "dim")))
    for component in plan.components:
        node = tree.add(
            Text.assemble((component.id, "bold"), f"  {_title(component)}", (f"  {_class(component)}", "dim"))
        )
        for edge in plan.edges:
            if edge.target == component.id:
                node.add(Text.assemble(("from ", "dim"), edge.source, (f"  {_edge_text(edge)}", "dim")))
        for stream, fields in component.streams.items():
            note = "" if plan.outputs(component.id, stream) else "  nobody takes it"
            node.add(Text.assemble(("emits ", "dim"), stream_text(stream, fields), (note, "yellow")))
    return tree


def draw_plain_mermaid(plan: PlainPlan) -> str:
    """Return the graph as a Mermaid flowchart."""
    names = {component.id: f"c{number}" for number, component in enumerate(plan.components)}
    lines = ["flowchart LR"]
    for component in plan.components:
        left, right = ("([", "])") if component.kind is PlainKind.SPOUT else ("[", "]")
        lines.append(f'    {names[component.id]}{left}"{_escaped(component.id)}<br/>{_title(component)}"{right}')
    lines += [f'    {names[e.source]} -- "{_escaped(_edge_text(e))}" --> {names[e.target]}' for e in plan.edges]
    return "\n".join(lines)


def draw_plain_dot(plan: PlainPlan) -> str:
    """Return the graph in Graphviz' language."""
    lines = [f"digraph {json.dumps(plan.topology_id)} {{", "    rankdir=LR;", "    node [shape=box];"]
    for component in plan.components:
        shape = "oval" if component.kind is PlainKind.SPOUT else "box"
        label = json.dumps(f"{component.id}\n{_title(component)}")
        lines.append(f"    {json.dumps(component.id)} [shape={shape}, label={label}];")
    for edge in plan.edges:
        label = json.dumps(_edge_text(edge))
        lines.append(f"    {json.dumps(edge.source)} -> {json.dumps(edge.target)} [label={label}];")
    return "\n".join([*lines, "}"])


def draw_plain_json(plan: PlainPlan) -> str:
    """Return the graph as JSON."""
    return json.dumps(described_plain(plan), indent=2)


def _title(component: PlainComponent) -> str:
    tasks = "1 task" if len(component.tasks) == 1 else f"{len(component.tasks)} tasks"
    return f"{component.kind.value}, {tasks}"


def _class(component: PlainComponent) -> str:
    return type(component.component).__name__


def _edge_text(edge: Edge) -> str:
    stream = "" if edge.stream == DEFAULT_STREAM else f", stream {edge.stream}"
    return f"{edge.grouping} grouping{stream}"


def _escaped(text: str) -> str:
    return text.replace('"', "#quot;")
