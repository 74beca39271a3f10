"""The page of totals of totals in a real browser: who reads whose changes is drawn."""

from pathlib import Path

import pytest

from committers import AppendCommitter, Count, ReduceCommitter, Sum
from spouts import MemoryTransactionalSpout
from state import DeltaRows
from tests.ui.answers import Answers
from tests.ui.runs import run_topology
from tests.ui.stub import stub_server
from txtopo import Fields, TransactionalTopologyBuilder
from txtopo.files.places import folder_at
from txtopo.files.records import to_json
from txtopo.inspect.backend import FolderBackend
from txtopo.inspect.run.slugs import slug_of

pytestmark = pytest.mark.slow

EDGES = """
const boxes = [...document.querySelectorAll('svg.graph g.box')].map(g => [g.querySelector('title').textContent, g.querySelector('rect')]);
const touched = (path, length) => {
  const p = path.getPointAtLength(length).matrixTransform(path.getScreenCTM());
  return boxes.filter(([, rect]) => {
    const r = rect.getBoundingClientRect();
    return p.x >= r.left && p.x <= r.right && p.y >= r.top - 1 && p.y <= r.bottom + 1;
  }).map(([name]) => name)[0];
};
return [...document.querySelectorAll('svg.graph path.edge:not(.keeps)')].map(path =>
  [touched(path, 0), touched(path, path.getTotalLength()), getComputedStyle(path).stroke !== 'none']);
"""
"""The boxes that each edge between components begins and ends at, and whether it has a colour."""

LABELS = """
const boxes = [...document.querySelectorAll('svg.graph g.box rect')].map(rect => rect.getBoundingClientRect());
return [...document.querySelectorAll('svg.graph text.grouping')].map(text => {
  const own = text.getBoundingClientRect();
  const hidden = boxes.some(r => own.left < r.right && own.right > r.left && own.top < r.bottom && own.bottom > r.top);
  return [text.parentNode.querySelector('title').textContent, hidden];
});
"""
"""What is written beside edges, and whether a box hides some of it."""


class OfARun(Answers):
    """An invented run, but the graph of a real one."""

    def __init__(self, graph: object) -> None:
        super().__init__()
        self._graph = graph

    def graph(self):
        return self._graph


def graph_of_a_chain(folder: Path) -> object:
    """Run three levels of totals and a log of the last one's changes; return the graph that the page is given."""
    rows = [[f"i{n % 5}", f"s{n % 3}", n] for n in range(12)]
    fields = Fields("item: string", "shop: string", "price: long")
    builder = TransactionalTopologyBuilder("chain", "rows", MemoryTransactionalSpout({0: rows}, fields, 4))
    items = ReduceCommitter("items", Fields("item: string", "shop: string"), values={"sum": Sum("price: long")})
    shops = ReduceCommitter(
        "shops", Fields("shop: string"), values={"n": Count(), "all": Sum("sum: long")}, diff="diff"
    )
    sizes = ReduceCommitter("sizes", Fields("n: long"), values={"shops": Count()}, diff="diff")
    builder.set_committer_bolt("items", items).fields_grouping("rows", Fields("item", "shop"))
    builder.set_committer_bolt("shops", shops).fields_grouping("items", Fields("shop"), "changes")
    builder.set_committer_bolt("sizes", sizes).fields_grouping("shops", Fields("n"), "changes")
    builder.set_bolt("log", AppendCommitter("log")).shuffle_grouping("sizes", "changes")
    for name, each in (("items", items), ("shops", shops), ("sizes", sizes)):
        builder.set_state(name, each.state(folder / name))
    builder.set_state("log", DeltaRows(folder / "log", sizes.changes()))
    run_topology(builder.build())
    backend = FolderBackend(folder_at(folder))
    try:
        return to_json(backend.graph(slug_of("chain")))
    finally:
        backend.close()


def test_edges_of_changes(tmp_path: Path, browser) -> None:
    """Each table that reads another's changes has an arrow from it, labelled with the stream and its grouping."""
    with stub_server(OfARun(graph_of_a_chain(tmp_path))) as server:
        browser.open(f"{server.address}/t/words#graph")
        browser.says("sizes", "#graph")
        assert sorted(browser.script(EDGES)) == [
            ["items", "shops", True],
            ["rows", "items", True],
            ["shops", "sizes", True],
            ["sizes", "log", True],
        ]
        assert sorted(browser.script(LABELS)) == [
            ["changes: fields(n)", False],
            ["changes: fields(shop)", False],
            ["changes: shuffle", False],
            ["fields(item, shop)", False],
        ]
        browser.picture("graph-changes")
        browser.driver.get("about:blank")
