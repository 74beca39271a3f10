"""A graph as JSON, for programs."""

from __future__ import annotations

import json
from typing import Any

from txtopo.cli.graph.model import address_of, class_of, fields_text, states_of
from txtopo.topology.plan import Plan


def draw_json(plan: Plan) -> str:
    """Return components, edges and states as one JSON object."""
    graph: dict[str, Any] = {
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
    }
    return json.dumps(graph, indent=2, ensure_ascii=False)
