"""Of which fields of its sources each column of a flow's tables is made."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from txtopo.streams.graph import Graph, Step
from txtopo.topology.topology import ColumnSources


def columns_of(graph: Graph) -> ColumnSources:
    """Return by table and column the fields that its values are made of, each of a source or a reference.

    What only decides which rows come, such as a condition or the keys of a join, is not among them. A function of the
    user's may use all fields of the rows that it is given, so what it returns is made of all.
    """
    used = graph.used()
    makers = {name: step for step in graph.steps if step in used for name in step.states}

    def joined(parts: Iterable[frozenset[tuple[str, str]]]) -> frozenset[tuple[str, str]]:
        return frozenset().union(*parts)

    @cache
    def sources(step: Step, field: str) -> frozenset[tuple[str, str]]:
        if not step.inputs:
            return frozenset({(step.name, field)})
        if step.is_row_wise:
            (port,) = step.inputs
            return joined(sources(port.step, each) for each in step.component.made_of(port.fields).get(field, ()))
        if step.is_opaque:
            return joined(sources(port.step, each) for port in step.inputs for each in port.fields)
        if field in step.made_of:
            return joined(origin(step, *each) for each in step.made_of[field])
        return joined(sources(port.step, field) for port in step.inputs if field in port.fields)

    def origin(step: Step, source: int | str, field: str) -> frozenset[tuple[str, str]]:
        if isinstance(source, int):
            return sources(step.inputs[source].step, field)
        return sources(makers[source], field) if source in makers else frozenset({(source, field)})

    return {
        name: {column: sources(step, column) for column in (*step.states[name].key, *step.states[name].value)}
        for name, step in makers.items()
    }
