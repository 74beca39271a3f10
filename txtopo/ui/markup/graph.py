"""The graph of a topology as SVG: components in layers, from the spout at the top down to the states.

A small version of Sugiyama's method: the layer of a component is the longest way to it; an edge that passes layers
gets a place in each of them, so that it passes beside their boxes, not behind; a few sweeps put each box near its
neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import attrs

from txtopo.inspect.run.drawing import Component, Graph
from txtopo.text.words import count_of, cut_inside
from txtopo.ui.markup.elements import Markup, joined, tag
from txtopo.ui.markup.plots import short

_BOX, _ROW, _GAP, _LEVEL, _EDGE = 210, 17, 34, 62, 8
"""Widths and heights: of a box, of a line of text in it, between boxes, between layers, at the borders."""
_LANE = 26
"""The width that an edge takes where it passes a layer."""
_ROW_MAX = 24 * (_BOX + _GAP)
"""The width of a row of boxes."""
_SWEEPS = 6
_NAME_MAX, _LABEL_MAX = 25, 30
_STATE = "state "
"""Before the names of states among the nodes: a component may have the same name."""


@attrs.define(eq=False)
class _Node:
    """A box, or without lines of text the place where an edge passes a layer."""

    name: str
    layer: int
    style: str = ""
    lines: Sequence[str] = ()
    title: str = ""
    x: float = 0.0
    y: float = 0.0
    height: float = attrs.field(
        default=attrs.Factory(lambda node: len(node.lines) * _ROW + 14 if node.lines else 0, takes_self=True)
    )

    @property
    def width(self) -> int:
        return _BOX if self.lines else _LANE


@attrs.frozen
class _Edge:
    """The nodes that an edge passes, from its source to its target, and its label."""

    way: tuple[_Node, ...]
    label: str
    style: str


def graph_svg(graph: Graph) -> Markup:
    """Return the SVG of a graph in the form of ``/api/v1/topology/SLUG/graph``."""
    nodes = {node.name: node for node in _nodes(graph)}
    layers: list[list[_Node]] = [[] for _ in range(1 + max(node.layer for node in nodes.values()))]
    for node in nodes.values():
        layers[node.layer].append(node)
    edges = [
        _Edge(_way(nodes[source], nodes[target], layers), label, style)
        for source, target, label, style in _links(graph)
        if source in nodes and target in nodes
    ]
    _order(layers, edges)
    width, height = _place(layers)
    parts = [*map(_line, edges), *map(_label, edges), *(_box(node) for node in nodes.values())]
    heads = tag(
        "marker",
        tag("path", d="M0 0L8 4L0 8z", class_="arrow"),
        id="arrow",
        viewBox="0 0 8 8",
        refX=8,
        refY=4,
        markerWidth=7,
        markerHeight=7,
        orient="auto",
    )
    names = ", ".join(str(component.id) for component in graph.components)
    return tag(
        "svg",
        tag("defs", heads),
        parts,
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        width=f"{width:.0f}",
        height=f"{height:.0f}",
        role="img",
        class_="graph",
        aria_label=f"Graph of {graph.topology}: {names}. The table below has the same.",
    )


def _links(graph: Graph) -> Iterator[tuple[str, str, str, str]]:
    """The edges as source, target, label and style; a loop of a plain topology is drawn, too."""
    for edge in graph.edges:
        stream = "" if edge.stream == "default" else f"{edge.stream}: "
        yield edge.source, edge.target, f"{stream}{edge.grouping}", "edge"
    for component in graph.components:
        for state in component.states:
            if state in graph.states:
                yield component.id, _STATE + state, "", "edge keeps"


def _nodes(graph: Graph) -> Iterator[_Node]:
    layer_of = _layers(graph)
    for component in graph.components:
        name, phase = component.id, component.phase
        bad = " bad" if component.is_failing else ""
        style = f"box {phase or 'plain'}{' committer' if component.committer else ''}{bad}"
        yield _Node(name, layer_of[name], style, [name, *component_lines(component)], name)
    for state, about in graph.states.items():
        keepers = [layer_of[c.id] for c in graph.components if state in c.states]
        kind = f"{about.kind or ''} state".strip()
        yield _Node(_STATE + state, 1 + max(keepers, default=max(layer_of.values())), "box state", [state, kind], state)


def component_lines(component: Component) -> list[str]:
    """Return what a component's box says below its name: kind and tasks, tuples, failures."""
    counts = component.counts
    kind = "committer" if component.committer else component.kind
    lines = [f"{kind}, {count_of(component.tasks, 'task')}"]
    emitted = sum((counts.out or {}).values()) or None if counts.emitted is None else counts.emitted
    moved = [f"{short(count)} {word}" for count, word in ((counts.in_, "in"), (emitted, "out")) if count is not None]
    if moved:
        lines.append(" → ".join(moved))
    if counts.queued:
        lines.append(f"{short(counts.queued)} queued")
    if counts.failed:
        lines.append(f"{short(counts.failed)} failed{'' if component.is_failing else ' earlier'}")
    return lines


def _layers(graph: Graph) -> dict[str, int]:
    """The longest way to each component. As many rounds as components: a loop does not turn for ever."""
    layer_of = {component.id: 0 for component in graph.components}
    for _ in layer_of:
        for edge in graph.edges:
            if edge.source in layer_of and edge.target in layer_of:
                below = min(layer_of[edge.source] + 1, len(layer_of) - 1)
                layer_of[edge.target] = max(layer_of[edge.target], below)
    used = sorted(set(layer_of.values()))  # a loop may have left layers empty
    return {name: used.index(layer) for name, layer in layer_of.items()}


def _way(first: _Node, last: _Node, layers: Sequence[list[_Node]]) -> tuple[_Node, ...]:
    """Return the nodes that an edge passes; give it a place in each layer between its ends."""
    between = [_Node("", layer) for layer in range(first.layer + 1, last.layer)]
    for place in between:
        layers[place.layer].append(place)
    return (first, *between, last)


def _order(layers: list[list[_Node]], edges: Sequence[_Edge]) -> None:
    """Sort each layer by the middle of its nodes' neighbours in the layer before, down and up in turn."""
    above: dict[_Node, list[_Node]] = {}
    below: dict[_Node, list[_Node]] = {}
    for edge in edges:
        for upper, lower in zip(edge.way, edge.way[1:], strict=False):
            below.setdefault(upper, []).append(lower)
            above.setdefault(lower, []).append(upper)
    position = {node: at for layer in layers for at, node in enumerate(layer)}
    for sweep in range(_SWEEPS):
        neighbours, ordered = (above, layers) if sweep % 2 == 0 else (below, layers[::-1])

        def middle(node: _Node, near: Mapping[_Node, Sequence[_Node]] = neighbours) -> float:
            found = [position[neighbour] for neighbour in near.get(node, ())]
            return sum(found) / len(found) if found else position[node]

        for layer in ordered:
            layer.sort(key=middle)
            position.update((node, at) for at, node in enumerate(layer))


def _place(layers: Sequence[Sequence[_Node]]) -> tuple[float, float]:
    """Give each node its middle and its upper border; return the width and the height of all.

    A layer that is too wide has several rows: edges pass behind the boxes of the upper ones.
    """
    rows_of = [list(_rows(layer)) for layer in layers]
    width, y = max(_width(row) for rows in rows_of for row in rows) + 2 * _EDGE, float(_EDGE)
    for layer, rows in zip(layers, rows_of, strict=True):
        top = y
        for row in rows:
            x, height = (width - _width(row)) / 2, max(node.height for node in row)
            for node in row:
                node.x, node.y = x + node.width / 2, y + (height - node.height) / 2
                x += node.width + _GAP
            y += height + _GAP
        for node in layer:
            if not node.lines:
                node.y, node.height = top, y - _GAP - top  # an edge goes straight down beside the boxes
        y += _LEVEL - _GAP
    return max(width, _BOX + 150), y - _LEVEL + _EDGE


def _width(row: Sequence[_Node]) -> float:
    return sum(node.width for node in row) + _GAP * (len(row) - 1)


def _rows(layer: Sequence[_Node]) -> Iterator[Sequence[_Node]]:
    """Divide a layer into rows of about the same number of nodes, in order."""
    size = -(-len(layer) // math.ceil(_width(layer) / _ROW_MAX))
    return (layer[at : at + size] for at in range(0, len(layer), size))


def _box(node: _Node) -> Markup:
    left = node.x - _BOX / 2
    rows = (
        tag(
            "text",
            cut_inside(line, _NAME_MAX),
            x=f"{node.x:.1f}",
            y=f"{node.y + 20 + at * _ROW:.1f}",
            class_=_row_style(at, line),
        )
        for at, line in enumerate(node.lines)
    )
    radius = 14 if "state" in node.style else 4
    shape = tag("rect", x=f"{left:.1f}", y=f"{node.y:.1f}", width=_BOX, height=node.height, rx=radius)
    return tag("g", tag("title", node.title), shape, rows, class_=node.style)


def _row_style(at: int, line: str) -> str:
    return "name" if at == 0 else "failures" if line.endswith(" failed") else "about"


def _line(edge: _Edge) -> Markup:
    start = edge.way[0]
    path = f"M{start.x:.1f} {start.y + start.height:.1f}"
    for upper, lower in zip(edge.way, edge.way[1:], strict=False):
        y, end = upper.y + upper.height, lower.y
        path += f"C{upper.x:.1f} {y + _LEVEL / 2:.1f} {lower.x:.1f} {end - _LEVEL / 2:.1f} {lower.x:.1f} {end:.1f}"
        if not lower.lines:
            path += f"V{end + lower.height:.1f}"
    return tag("path", d=path, class_=edge.style, marker_end=None if "keeps" in edge.style else "url(#arrow)")


def _label(edge: _Edge) -> Markup:
    upper, lower = edge.way[0], edge.way[1] if len(edge.way) > 1 else edge.way[0]
    x, y = (upper.x + lower.x) / 2 + 7, (upper.y + upper.height + lower.y) / 2 + 4
    text = tag("text", cut_inside(edge.label, _LABEL_MAX), x=f"{x:.1f}", y=f"{y:.1f}", class_="grouping")
    return joined(tag("g", tag("title", edge.label), text)) if edge.label else Markup()
