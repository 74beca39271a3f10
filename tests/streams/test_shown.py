"""What a flow shows in a notebook, and that a cell that was interrupted can be run again."""

import os
import signal
import threading

import pytest

from committers import ReduceCommitter
from spouts import FilesTransactionalSpout
from spouts.memory import MemoryTransactionalSpout
from state import DeltaReference, MemoryState, read_table
from tests.streams.flows import ORDER, memory, ran
from tests.waiting import wait_for
from txtopo import Fields
from txtopo.errors import TopologyError, TxtopoError
from txtopo.streams import Count, Flow, Mean, Sum
from txtopo.testing import run_inline

ROWS = [(number, "Cork", None, number, True) for number in range(9)]


@pytest.fixture
def flow(tmp_path):
    return Flow("shown", tmp_path / "out")


@pytest.mark.slow
def test_a_preview(flow, tmp_path):
    """Rows of a stream with all that makes it, tables of totals too; nothing is written, and the flow goes on."""
    orders = flow.source("orders", memory(ROWS)).filter("price > 1")
    totals = orders.group_by("shop").agg(orders=Count(), paid=Sum("price")).upsert("totals")
    assert [row["price"] for row in orders.preview(3).rows.to_pylist()] == [2, 3, 4]
    assert totals.changes.preview().rows.num_rows == 7
    shown = orders.select("shop", "price").preview(1)
    assert repr(shown) == "shop  price\nCork  2"
    assert shown._repr_html_() == "<table><tr><th>shop</th><th>price</th></tr><tr><td>Cork</td><td>2</td></tr></table>"
    assert not (tmp_path / "out").exists()
    assert ran(flow, "totals")[0] == [{"shop": "Cork", "orders": 7, "paid": 35}]


@pytest.mark.slow
def test_a_preview_of_a_source_that_goes_on(flow, tmp_path):
    """It stops after its time, and leaves the table of bad records alone."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id": 1}\n{"id": "x"}\n')
    spout = FilesTransactionalSpout(tmp_path / "in", Fields("id: long"), "json", watch=True, settle_secs=0)
    numbers = flow.source("numbers", spout, bad="unreadable")
    assert numbers.preview(secs=60).rows.to_pylist() == [{"id": 1}]
    assert numbers.bad.select("text").preview(secs=60).rows.to_pylist() == [{"text": '{"id": "x"}'}]
    assert not (tmp_path / "out").exists()


class Letters(MemoryTransactionalSpout):
    """Has a ``dead_letter`` that is no table of bad records."""

    dead_letter = "a topic"

    def emitter(self, config, context):
        """Return the emitter, for this very topic."""
        assert self.dead_letter == "a topic"
        return super().emitter(config, context)


@pytest.mark.slow
def test_a_preview_of_a_spout_with_an_attribute_of_that_name(flow):
    """Only the table of bad records is elsewhere; what a spout of the user's has stays."""
    numbers = flow.source("numbers", Letters([(1,), (2,)], Fields("n: long"), 5))
    assert numbers.preview().rows.to_pylist() == [{"n": 1}, {"n": 2}]


def test_a_preview_of_what_can_not_be_tried(flow):
    """A state that is nowhere else is not written by a preview; a step that emits nothing has none."""
    orders = flow.source("orders", memory(ROWS))
    state = MemoryState(Fields("shop: string"), Fields("n: long"))
    counts = ReduceCommitter("kept", Fields("shop: string"), values={"n": Count()})
    kept = orders.through("kept", counts, by="shop", states={"kept": state})
    with pytest.raises(TopologyError, match="preview: state 'kept', a MemoryState, is not tried out; run the flow"):
        kept["changes"].preview()
    with pytest.raises(TopologyError, match=r"filter: 'kept' emits nothing but \['changes'\]"):
        kept.filter("n > 1")


def test_html(flow):
    """A flow shows its steps, fields and tables, also before it is whole; a stream its fields."""
    orders = flow.source("orders", memory(ROWS))
    shops = orders.filter("price > 1").group_by("shop").agg(n=Count())
    assert "<td>orders</td>" in flow._repr_html_()
    shops.upsert("totals")
    assert "upsert-totals" in flow._repr_html_()
    assert "out/totals" in flow._repr_html_()
    assert shops._repr_html_() == "<table><tr><th>field</th><th>type</th></tr><tr><td>shop</td><td>string</td></tr><tr><td>n</td><td>bigint</td></tr></table>"  # fmt: skip
    assert repr(orders) == "Stream(id: bigint, shop: string, at: timestamp, price: bigint, paid: boolean)"


def test_a_table(flow):
    """So does a table of totals, and a reference, of which only the key is known."""
    totals = flow.source("orders", memory(ROWS)).group_by("shop").agg(mean=Mean("price")).upsert("totals")
    assert repr(totals) == "Table(shop: string, mean_sum: bigint, mean_count: bigint)"
    names = flow.reference("names", DeltaReference("names", key="id"))
    assert repr(names) == "Table(id)"
    assert names._repr_html_() == "<table><tr><th>field</th><th>type</th></tr><tr><td>id</td><td></td></tr></table>"


def test_a_cell_that_is_interrupted(tmp_path):
    """SIGINT ends a run in order; the cell, run again, says the same flow, which goes on."""
    folder, totals = tmp_path / "in", tmp_path / "out" / "totals"
    folder.mkdir()

    def cell(*, watch):
        spout = FilesTransactionalSpout(folder, ORDER, "json", watch=watch, settle_secs=0)
        flow = Flow("cell", tmp_path / "out")
        flow.source("orders", spout).group_by("shop").agg(n=Count()).upsert("totals")
        return run_inline(flow.build())

    def has_a_row():
        try:
            return read_table(totals).num_rows == 1
        except TxtopoError:  # it is not there yet
            return False

    def interrupt():
        (folder / "a.json").write_text('{"id": 1, "shop": "Cork"}\n')
        try:
            wait_for("the first row", has_a_row)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    other = threading.Thread(target=interrupt)
    other.start()
    assert cell(watch=True).transactions == 1
    other.join()
    (folder / "b.json").write_text('{"id": 2, "shop": "Cork"}\n')
    assert cell(watch=False).transactions == 1
    assert read_table(totals)["n"].to_pylist() == [2]
