"""What a flow becomes, as a text."""

from __future__ import annotations

from txtopo import TransactionalTopology
from txtopo.text.words import count_of
from txtopo.topology.plans.description import described


def explained(topology: TransactionalTopology) -> str:
    """Return the components of a topology by phase: the class, what feeds each, and the tables that it uses."""
    plan = described(topology.plan)
    counts = count_of(len(plan["components"]), "component"), count_of(len(plan["states"]), "table")
    lines = [f"{plan['topology']}: {', '.join(counts)}"]
    for phase in ("processing", "commit"):
        lines.append(f"{phase} phase")
        for component in plan["components"]:
            if component["phase"] != phase:
                continue
            feeds = [
                (edge["source"] if edge["stream"] == "default" else f"{edge['source']}.{edge['stream']}")
                + f" ({edge['grouping']})"
                for edge in plan["edges"]
                if edge["target"] == component["id"]
            ]
            tables = [plan["states"][name]["path"] for name in component["states"]]
            line = f"  {component['id']}: {component['class']}"
            line += f" ← {', '.join(feeds)}" if feeds else ""
            lines.append(line + (f" → {', '.join(tables)}" if tables else ""))
    return "\n".join(lines)
