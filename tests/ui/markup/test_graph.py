"""The graph's picture: layers from the spout down, edges beside boxes, loops."""

import itertools
import re
from typing import Any

import pytest

from tests.ui.answers import Answers
from tests.ui.as_json import of_json
from txtopo.ui.markup.graph import graph_svg as typed_graph_svg

graph_svg = of_json(typed_graph_svg)


def boxes(svg: str) -> dict[str, tuple[float, float, float, float]]:
    """Return the left, upper, right and lower border of each box by its title."""
    pattern = r'<title>([^<]*)</title><rect x="([\d.-]+)" y="([\d.]+)" width="(\d+)" height="([\d.]+)"'
    found = re.findall(pattern, svg)
    return {name: (float(x), float(y), float(x) + float(w), float(y) + float(h)) for name, x, y, w, h in found}


def chain(*edges: tuple[str, str]) -> dict[str, Any]:
    names = list(dict.fromkeys(name for edge in edges for name in edge))
    one = {
        "kind": "bolt",
        "class": "",
        "tasks": 1,
        "phase": None,
        "committer": False,
        "states": [],
        "isFailing": False,
    }
    return {
        "topology": "t",
        "components": [{**one, "id": name} for name in names],
        "edges": [{"source": a, "target": b, "stream": "default", "grouping": "all"} for a, b in edges],
        "states": {},
    }


def test_each_component_is_below_those_that_it_takes_from():
    """The longest way counts; a state is below its committer; no box covers another."""
    found = boxes(graph_svg(Answers().graph()))
    order = ["spout", "split", "count", "bucketize", "buckets"]
    assert [name for name in sorted(found, key=lambda name: found[name][1]) if name in order] == order
    assert found["word-counts"][1] > found["count"][3]
    places = list(found.values())
    for at, (left, top, right, bottom) in enumerate(places):
        for other in places[at + 1 :]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top


def test_long_edge_passes_beside_the_boxes():
    """Its straight parts lie in no box of the layers that it passes."""
    svg = graph_svg(chain(("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")))
    ways = re.findall(r"([\d.]+) [\d.]+V", svg)
    assert ways
    for x in map(float, ways):
        assert not any(left < x < right for name, (left, _, right, _) in boxes(svg).items() if name in {"b", "c"})


def test_loop():
    """A plain topology may have one; it is drawn, and each component has its box."""
    svg = graph_svg(chain(("a", "b"), ("b", "c"), ("c", "b")))
    assert set(boxes(svg)) == {"a", "b", "c"}
    assert svg.count('class="edge"') == 3


def test_long_names_are_cut_and_told_whole_as_titles():
    """A box has room for 25 characters; the middle goes, for names often differ at their ends."""
    svg = graph_svg(chain(("a" * 40 + "1", "a" * 40 + "2")))
    assert f"<title>{'a' * 40}2</title>" in svg
    assert f">{'a' * 12}…{'a' * 11}1<" in svg
    assert f">{'a' * 12}…{'a' * 11}2<" in svg


@pytest.mark.slow
def test_two_hundred_components():
    """Whatever their shape: a long chain with an edge from the first to each, a wide fan, many chains."""
    names = [f"component-{n}" for n in range(200)]
    chained = [*itertools.pairwise(names), *((names[0], name) for name in names[2:])]
    fan = [(names[0], name) for name in names[1:]]
    chains = [pair for n in range(20) for pair in itertools.pairwise([names[0], *names[1 + n :: 20]])]
    for edges in (chained, fan, chains):
        places = list(boxes(graph_svg(chain(*edges))).values())
        assert len(places) == 200
        for (left, top, right, bottom), other in itertools.combinations(places, 2):
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
