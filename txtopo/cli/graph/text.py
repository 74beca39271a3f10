"""A graph as a tree in the terminal."""

from __future__ import annotations

from rich.text import Text
from rich.tree import Tree

from txtopo.cli.graph.model import (
    PHASE_TITLES,
    address_of,
    class_of,
    edge_text,
    state_text,
    states_of,
    stream_text,
    title_of,
)
from txtopo.topology.plan import Phase, Plan, PlannedComponent

_PHASE_STYLES = {Phase.PROCESSING: "yellow", Phase.COMMIT: "green"}


def draw_text(plan: Plan) -> Tree:
    """Return the graph: each phase with its components, each component with inputs, outputs and states."""
    tree = Tree(Text.assemble((plan.topology_id, "bold"), (f"  {plan.semantics.summary}", "dim")))
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
    return tree


def _add_component(branch: Tree, plan: Plan, component: PlannedComponent) -> None:
    head = Text.assemble((component.id, "bold"), f"  {title_of(component)}", (f"  {class_of(component)}", "dim"))
    node = branch.add(head)
    for edge in plan.inputs(component.id):
        node.add(Text.assemble(("from ", "dim"), edge.source, (f"  {edge_text(plan, edge)}", "dim")))
    for stream, fields in component.streams.items():
        taken = "" if plan.outputs(component.id, stream) else "  nobody takes it"
        node.add(Text.assemble(("emits ", "dim"), stream_text(stream, fields), (taken, "yellow")))
    states = states_of(plan, component)
    if states:
        node.add(Text.assemble(("keeps ", "dim"), (", ".join(states), "cyan")))
