"""The plots and the graph, each with its numbers as a table."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from txtopo.inspect.run.drawing import Graph
from txtopo.inspect.timeline.series import Line, Plots
from txtopo.text.words import moment, number
from txtopo.ui.markup.elements import Child, Markup, tag
from txtopo.ui.markup.graph import graph_svg
from txtopo.ui.markup.plots import Plot
from txtopo.ui.views.tables import none, table

_LINES_MAX = 12
"""The lines of a plot; a topology may have hundreds of components."""

_SHORTEST = 60
"""The values that a plot has room for at least."""


def plots_part(plots: Plots) -> Markup:
    """Return a figure for each plot."""
    span = {"data_until": plots.until, "data_last": plots.is_last}
    if not plots.at or not plots.plots:
        yet, then = (
            "nothing measured yet: a run takes a sample each second",
            "nothing was measured then, or it is kept no longer",
        )
        return tag("div", none(yet if plots.is_last else then), **span)
    first = min(_first_value(line) for plot in plots.plots for line in plot.lines.values())
    first = max(0, min(first, len(plots.at) - _SHORTEST))
    at = plots.at[first:]
    figures = (
        Plot(plot.title, plot.unit, at, _shown(plot.lines, first), len(plot.lines), plot.name).figure()
        for plot in plots.plots
    )
    return tag("div", figures, class_="plots", **span)


def _shown(lines: Mapping[str, Line], first: int) -> dict[str, Line]:
    """Return lines from a step on: the ones with the largest values, if they are too many for a picture."""
    largest = heapq.nlargest(_LINES_MAX, lines, key=lambda name: sum(abs(each) for each in lines[name] if each))
    return {name: line[first:] for name, line in lines.items() if name in largest}


def _first_value(line: Line) -> int:
    """Return from where on a line has values: a run that is a minute old need not look like a stroke at the border."""
    return next((at for at, value in enumerate(line) if value is not None), len(line))


def graph_part(graph: Graph) -> Markup:
    """Return the graph and a table of its components."""
    if not graph.components:
        return none(graph.why or "the graph of this run is unknown")
    drawing = tag(
        "div", graph_svg(graph), class_="wide", tabindex=0, role="region", aria_label="Graph", id="graph-frame"
    )
    legend = [("processing", "processing phase"), ("commit", "commit phase"), ("state", "state")]
    keys = [tag("li", tag("span", class_=f"swatch {style}"), words) for style, words in legend]
    is_plain = graph.is_plain
    return tag("div", None if is_plain else tag("ul", keys, class_="key"), drawing, _components(graph))


def _components(graph: Graph) -> Markup:
    is_plain = graph.is_plain
    middle = ("queued", "acked", "executed") if is_plain else ("phase",)
    heads = ("component", "kind", *middle, "tasks", "in", "out", "failed", "takes", "last error")
    rows = []
    for component in graph.components:
        counts = component.counts
        out = [[f"{stream} {number(given)}", tag("br")] for stream, given in (counts.out or {}).items()]
        inputs = [
            [f"{edge.source}{'' if edge.stream == 'default' else ' ' + edge.stream}, {edge.grouping}", tag("br")]
            for edge in graph.edges
            if edge.target == component.id
        ]
        about: list[Child] = (
            [number(each) for each in (counts.queued, counts.acked, counts.executed)] if is_plain else [component.phase]
        )
        kind = [
            f"committer, {component.kind}" if component.committer else component.kind,
            component.class_ and tag("small", component.class_),
        ]
        moved = (number(counts.in_), out or number(counts.emitted), number(counts.failed))
        error = component.last_error and tag(
            "span", component.last_error, class_="reason" if component.is_failing else "past"
        )
        when = component.last_failed_at and tag("small", f" {moment(component.last_failed_at)}")
        rows.append([component.id, kind, *about, component.tasks, *moved, inputs, [error, when]])
    return table(heads, rows)
