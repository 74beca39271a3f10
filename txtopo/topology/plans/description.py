"""A topology's graph as data, for ``txtopo show --format json`` and for the page; and as a text."""

from __future__ import annotations

from typing import Any

from txtopo.api.abilities import DescribesSteps
from txtopo.api.data.fields import Fields
from txtopo.api.data.types import ddl_name
from txtopo.api.state import State
from txtopo.text.secrecy import without_secrets
from txtopo.text.words import count_of
from txtopo.topology.plans.plain_plan import PlainComponent, PlainPlan
from txtopo.topology.plans.plan import Plan, PlannedComponent


def described(plan: Plan) -> dict[str, Any]:
    """Return components, edges and states of a transactional topology, as JSON."""
    return {
        "topology": plan.topology_id,
        "components": [
            {
                "id": component.id,
                "kind": component.kind.value,
                "class": class_of(component),
                "tasks": component.tasks,
                "phase": component.phase.value,
                "committer": component.is_committer,
                "streams": {stream: fields_text(fields) for stream, fields in component.streams.items()},
                "states": states_of(plan, component),
            }
            for component in plan.components
        ],
        "edges": [
            {"source": edge.source, "stream": edge.stream, "target": edge.target, "grouping": str(edge.grouping)}
            for edge in plan.edges
        ],
        "states": {
            name: {
                "class": type(state).__name__,
                "kind": state.kind.value,
                "key": fields_text(state.key),
                "value": fields_text(state.value),
                "path": address_of(state),
            }
            for name, state in plan.states.items()
        },
        "references": {
            name: {"key": list(reference.key), "path": without_secrets(reference.address)}
            for name, reference in plan.references.items()
        },
    }


def explained(plan: Plan) -> str:
    """Return a text of a topology's components by phase: the class, what feeds each, and the tables that it uses."""
    graph = described(plan)
    counts = count_of(len(graph["components"]), "component"), count_of(len(graph["states"]), "table")
    lines = [f"{graph['topology']}: {', '.join(counts)}"]
    for phase in ("processing", "commit"):
        lines.append(f"{phase} phase")
        for component, planned in zip(graph["components"], plan.components, strict=True):
            if component["phase"] != phase:
                continue
            feeds = [
                (edge["source"] if edge["stream"] == "default" else f"{edge['source']}.{edge['stream']}")
                + f" ({edge['grouping']})"
                for edge in graph["edges"]
                if edge["target"] == component["id"]
            ]
            tables = [graph["states"][name]["path"] for name in component["states"]]
            line = f"  {component['id']}: {shown_class_of(planned)}"
            line += f" ← {', '.join(feeds)}" if feeds else ""
            lines.append(line + (f" → {', '.join(tables)}" if tables else ""))
    return "\n".join(lines)


def described_plain(plan: PlainPlan) -> dict[str, Any]:
    """Return components and edges of a plain topology, as JSON."""
    return {
        "topology": plan.topology_id,
        "kind": "plain",
        "components": [
            {
                "id": component.id,
                "kind": component.kind.value,
                "class": type(component.component).__name__,
                "parallelism": component.parallelism,
                "tasks": list(component.tasks),
                "streams": {name: fields_text(fields) for name, fields in component.streams.items()},
            }
            for component in plan.components
        ],
        "edges": [
            {"source": e.source, "stream": e.stream, "target": e.target, "grouping": str(e.grouping)}
            for e in plan.edges
        ],
    }


def class_of(component: PlannedComponent | PlainComponent) -> str:
    """Return the name of a component's class; empty if it is one of txtopo's wrappers."""
    name = type(component.component).__name__
    return "" if name.startswith("_") else name


def shown_class_of(component: PlannedComponent | PlainComponent) -> str:
    """Return the name of a component's class, with the steps that it does if it tells them."""
    bolt = component.component
    return class_of(component) + (
        f" ({', '.join(bolt.verbs)})" if isinstance(bolt, DescribesSteps) and bolt.verbs else ""
    )


def fields_text(fields: Fields) -> str:
    """Return fields as they are declared."""
    pairs = zip(fields.names, fields.types, strict=True)
    return ", ".join(name if kind is None else f"{name}: {ddl_name(kind)}" for name, kind in pairs)


def address_of(state: State) -> str:
    """Return the path of a state's table, without secrets; empty for a state without one."""
    return without_secrets(str(getattr(state, "path", "")))


def states_of(plan: Plan, component: PlannedComponent) -> list[str]:
    """Return the names of the states that a component gets in its ``prepare``."""
    return [name for name in plan.states if name in plan.requested_states.get(component.id, ())]
