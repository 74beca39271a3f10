"""The graph of a topology, with what each component has done."""

from __future__ import annotations

from typing import Any

from txtopo.engine.timeline.records import COMPONENT
from txtopo.transactional.core.history import first_line
from txtopo.ui.answers.facts import Facts
from txtopo.ui.answers.failures import components_failed_at, groups_of, is_current
from txtopo.ui.answers.header import counts_of


def graph(facts: Facts) -> dict[str, Any]:
    """Return components, edges and states, each component with its counts since the run began and its last error.

    Raises:
        ConfigError: they can't be read.
    """
    if facts.run is None:
        facts.timeline.check("run")
        why = "no run has recorded its graph here"
        kind = "plain" if facts.is_plain else "transactional"
        return {"topology": facts.id, "kind": kind, "components": [], "edges": [], "states": {}, "why": why}
    described = facts.run.graph
    samples = facts.timeline.last(COMPONENT)
    emitted = {name: counts_of(row) for name, row in samples.items()}
    last_errors: dict[str, str] = {}
    failures: dict[str, int] = {}
    for group in groups_of(facts):
        last_errors.setdefault(group["component"], first_line(group["first"]))
        failures[group["component"]] = failures.get(group["component"], 0) + group["count"]
    failed_at = components_failed_at(facts)
    edges = list(described.get("edges", ()))
    components = []
    for each in described.get("components", ()):
        counts = emitted.get(each["id"], {})
        tasks = each["tasks"]
        own = counts.get("emitted")
        components.append(
            {
                "id": each["id"],
                "kind": each["kind"],
                "class": each["class"],
                "tasks": len(tasks) if isinstance(tasks, list) else tasks,
                "phase": each.get("phase"),
                "committer": each.get("committer", False),
                "streams": each["streams"],
                "states": each.get("states", []),
                "counts": {
                    "in": _taken(each["id"], edges, described, emitted),
                    "out": {} if own is None or len(each["streams"]) != 1 else {next(iter(each["streams"])): own},
                    "emitted": own,
                    "executed": counts.get("executed"),
                    "acked": counts.get("acked"),
                    "failed": counts.get("failed") if facts.is_plain else failures.get(each["id"], 0),
                    "queued": counts.get("queued"),
                },
                "lastError": last_errors.get(each["id"]),
                "lastFailedAt": failed_at.get(each["id"]),
                "isFailing": is_current(facts, failed_at.get(each["id"])),
            }
        )
    return {
        "topology": facts.id,
        "kind": facts.run.kind,
        "components": components,
        "edges": edges,
        "states": described.get("states", {}),
        "why": "",
    }


def _taken(component: str, edges: list[Any], described: Any, emitted: dict[str, dict[str, Any]]) -> float | None:
    """Return how many tuples a component got; None if a source has several streams, which are not counted apart."""
    streams = {each["id"]: each["streams"] for each in described["components"]}
    sources = [edge["source"] for edge in edges if edge["target"] == component]
    found = [
        emitted.get(source, {}).get("emitted") if len(streams.get(source, ())) == 1 else None for source in sources
    ]
    return None if not found or None in found else sum(each for each in found if each is not None)
