"""The pictures of the page in README and guide: screenshots of a real run.

``python -m tests.docs.pictures`` runs a topology of orders, some of which have no price yet, opens its page in Chromium
and writes what it sees into ``docs/pictures``. It takes about a minute on a quiet machine. Look at what it has written.
``cluster.png`` is what ``tests/ui/test_cluster.py`` calls ``cluster-leader-killed``.
"""

import pathlib
import signal
import tempfile

from tests.processes import ROOT, python
from tests.ui import browser
from tests.ui.browser import Browser, chromium
from tests.waiting import wait_for

PICTURES = ROOT / "docs" / "pictures"
SECS = 300.0
COMMITTED_MIN = 1500
WIDTH, HEIGHT, PLOTS_HEIGHT = 1200, 840, 612
FAILED_IN_VIEW = """
const {from, to} = gantt.view, at = from + (to - from) / 2;
return gantt.rows.some(row => row.outcome === FAILED && row.ended > at && row.ended < at + (to - from) / 5);
"""

ORDERS = """
import time
from committers import AppendCommitter, ReduceCommitter
from spouts import MemoryTransactionalSpout
from state import DeltaRows, DeltaState
from txtopo import BasicBolt, FailedException, Fields, TransactionalTopologyBuilder
from txtopo.attempts import epoch_and_try

class Price(BasicBolt):
    output_fields = Fields("attempt", "item: string", "price: long")

    def execute(self, tuple, collector):
        number, (_, again) = tuple["number"], epoch_and_try(tuple.attempt.attempt)
        if number % 971 == 0 and again == 1:
            raise FailedException(f"no price for item {number % 97} yet")
        time.sleep(0.002)
        collector.emit((tuple.attempt, f"item {number % 97}", number % 13))

def topology(output: str = "shop"):
    rows = [[number] for number in range(100_000)]
    spout = MemoryTransactionalSpout(rows, Fields("number: long"), 10)
    builder = TransactionalTopologyBuilder("orders", "orders", spout, 2)
    builder.set_bolt("price", Price(), 2).shuffle_grouping("orders")
    builder.set_bolt("total", ReduceCommitter("totals", key="item", value="price"), 2).fields_grouping("price", Fields("item"))
    builder.set_bolt("book", AppendCommitter("sales"), 1).global_grouping("price")
    price = Fields("price: long")
    builder.set_state("totals", DeltaState(output + "/totals", key=Fields("item: string"), value=price))
    builder.set_state("sales", DeltaRows(output + "/sales", Fields("item: string", "price: long")))
    return builder.build()
"""


def main() -> None:
    """Run the topology, and take the pictures."""
    browser.PICTURES = PICTURES
    with tempfile.TemporaryDirectory() as folder, chromium() as window:
        (pathlib.Path(folder) / "orders.py").write_text(ORDERS)
        settings = ("spark_master=local[2]", "max_spout_pending=24", "topology.job.transactions.max=4")
        command = ["-u", "-m", "txtopo", "run", "orders", "--ui", *(f"--set={setting}" for setting in settings)]
        process = python(*command, cwd=folder)
        try:
            assert process.stdout is not None
            take(window, process.stdout.readline().removeprefix("page: ").strip())
        finally:
            process.send_signal(signal.SIGINT)  # its page ends with it, which a kill would leave behind
            process.communicate()


def take(window: Browser, address: str) -> None:
    """Take the three pictures."""
    window.open(address, width=WIDTH, height=HEIGHT)
    wait_for("some transactions", lambda: committed(window) >= COMMITTED_MIN, SECS)
    window.script("gantt.secs = 1.5")
    wait_for("a failure in view", lambda: window.script(FAILED_IN_VIEW), SECS)
    window.picture("timeline")
    failed = window.script(
        "return gantt.rows.findLast(row => row.outcome === FAILED && gantt.rowsOf(row.txid).length > 1).txid"
    )
    window.open(f"{window.driver.current_url.partition('#')[0]}/tx/{failed}", width=WIDTH, height=HEIGHT)
    window.says("committed", "h2")
    window.picture("transaction")
    window.driver.back()
    window.open(f"{window.driver.current_url.partition('#')[0]}#plots", width=WIDTH, height=PLOTS_HEIGHT, dark=True)
    window.says("memory", "#plots")
    window.script(
        "document.getElementById('secs').value = '60'; document.getElementById('secs').dispatchEvent(new Event('change'))"
    )
    window.script("document.querySelector('nav').scrollIntoView()")
    wait_for("a minute", lambda: "60" in window.find("#plots-part").get_attribute("data-part"))
    window.script("return new Promise(done => setTimeout(done, 1500))")
    window.picture("plots")


def committed(window: Browser) -> int:
    """Return how far the header says that the run is."""
    text = window.text("[data-key=committed] .value").replace(",", "")
    return int(text) if text.isdecimal() else 0


if __name__ == "__main__":
    main()
