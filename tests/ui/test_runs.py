"""The page of a real run in a real browser: it moves, fails, gets stuck, is killed, starts again, and is audited."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.processes import python
from tests.ui.test_page import COLOURS
from tests.waiting import wait_for
from txtopo.engine.page import PAGE_FILE

pytestmark = [pytest.mark.long, pytest.mark.slow]

RUN_SECS = 180.0
STUCK = 40
"""The transaction that waits for a file."""

PACED = """
import os, time
from committers import ReduceCommitter
from spouts import MemoryTransactionalSpout
from state import DeltaState
from txtopo import BasicBolt, FailedException, Fields, TransactionalTopologyBuilder
from txtopo.attempts import epoch_and_try

class Check(BasicBolt):
    output_fields = Fields("attempt", "name: string", "n: long")

    def execute(self, tuple, collector):
        txid, (_, number) = tuple.attempt.txid, epoch_and_try(tuple.attempt.attempt)
        if txid == 7 and number == 1:
            raise FailedException("no price for '<script>hit=1</script>'")
        while txid == 40 and not os.path.exists("go"):
            time.sleep(0.05)
        collector.emit((tuple.attempt, f"<i>{tuple['n'] % 3}</i>", 1))

def topology(output: str = "out"):
    rows = [[number] for number in range(4_000)]
    builder = TransactionalTopologyBuilder("paced", "numbers", MemoryTransactionalSpout(rows, Fields("n: long"), 10))
    builder.set_bolt("check", Check(), 1).shuffle_grouping("numbers")
    builder.set_bolt("count", ReduceCommitter("counts", key="name", value="n"), 1).fields_grouping("check", Fields("name"))
    builder.set_state("counts", DeltaState(output + "/counts", key=Fields("name: string"), value=Fields("n: long")))
    return builder.build()
"""


@contextmanager
def run(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the topology with a page; give the process, which leads a group, and the page's address."""
    values = (
        "max_spout_pending=8",
        "spark_master=local[2]",
        "message_timeout_secs=600",
        "topology.job.transactions.max=1",
    )
    command = ["-u", "-m", "txtopo", "run", "paced", "--ui", *(f"--set={value}" for value in values)]
    process = python(*command, cwd=folder, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("page: http://127.0.0.1:"), line
        yield process, line.removeprefix("page: ").strip()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def pages_end(tmp_path) -> Iterator[None]:
    """A page outlives a run that is killed, for ten minutes: end it with the test."""
    yield
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            if b"--beside-a-run" in (process / "cmdline").read_bytes() and (process / "cwd").samefile(tmp_path):
                os.kill(int(process.name), signal.SIGTERM)


def committed(browser) -> int:
    """Return how far the header says that the run is."""
    text = browser.text("[data-key=committed] .value").replace(",", "")
    return int(text) if text.isdecimal() else 0


def test_a_run_from_its_start_to_its_audit(tmp_path, browser, pages_end):
    """The page shows what fails and why, what is stuck and in what, that the run is killed and goes on, and that it is exact."""
    (tmp_path / "paced.py").write_text(PACED)
    with run(tmp_path) as (process, address):
        browser.open(address)
        wait_for("something stuck", lambda: is_stuck(browser), RUN_SECS)
        failed_and_stuck(browser)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        browser.says("killed", "#header .status")
        browser.picture("run-killed")
    with run(tmp_path) as (process, address):
        assert address.split("?")[0] == f"{browser.driver.current_url.split('/t/')[0]}/", "the page is the same"
        browser.says("running", "#header .status", RUN_SECS)
        wait_for("the second run", lambda: browser.rows() and browser.script("return gantt.runs.length") == 2, RUN_SECS)
        (tmp_path / "go").touch()
        wait_for("transaction 60", lambda: committed(browser) >= 60, RUN_SECS)
        browser.script("gantt.all()")
        browser.picture("run-again")
        assert {1, 2} == set(browser.script("return gantt.rows.map(row => row.epoch)"))
        states_and_checks(browser)
        browser.driver.get("about:blank")
        process.send_signal(signal.SIGINT)
        process.wait(RUN_SECS)
        wait_for("the end of the page, with its run", lambda: not any(tmp_path.rglob(PAGE_FILE)))


def is_stuck(browser) -> bool:
    """Whether the transaction that waits for a file is the first in line, and has been for some seconds."""
    waited = re.search(r"for (\d+\.\d) s", browser.text("[data-key='first in line']"))
    return waited is not None and float(waited[1]) > 3 and committed(browser) == STUCK - 1


def failed_and_stuck(browser) -> None:
    """Transaction 7 has failed once, in red, with its reason; the first in line is stuck in a component that is named."""
    browser.says("no price for '<script>hit=1</script>'", "[data-key=failures]")
    browser.says("waits for component 'check'", "[data-key='first in line']")
    stuck = int(browser.text("[data-key='first in line'] .value"))
    assert stuck == STUCK
    browser.picture("run-stuck")
    browser.script("gantt.pick(7)")
    assert browser.script(COLOURS, 7, "failed") > 1
    browser.says("Attempt 1 failed in check", "#panel")
    browser.script("gantt.pick(arguments[0])", stuck)
    assert browser.script(COLOURS, stuck, "processing") > 1
    browser.script("location.hash = 'errors'")
    browser.says("no price for '<script>hit=1</script>'", "#errors")
    browser.says("transaction 7, attempt 1", "#errors")
    browser.picture("run-errors")
    browser.script("location.hash = 'timeline'")


def states_and_checks(browser) -> None:
    """A key is looked up, with what would be HTML in it; an audit and a replay say that all is well."""
    browser.script("location.hash = 'states'")
    browser.says("counts", "#states")
    browser.find("#states details summary").click()
    browser.find("#states input[name=key]").send_keys("<i>1</i>")
    browser.find("#states .lookup button").click()
    browser.says("<i>1</i>", "#states .answer")
    for view in ("plots", "graph", "settings"):
        browser.script("location.hash = arguments[0]", view)
        browser.says(
            {"plots": "memory of the driver", "graph": "fields(name)", "settings": "max_spout_pending"}[view],
            f"#{view}",
        )
        browser.picture(f"run-{view}", whole=True)
    browser.find("#audit").click()
    wait_for("an audit", lambda: browser.all("#check .good"), RUN_SECS)
    browser.picture("run-audit")
    base = browser.driver.current_url.split("#")[0]
    browser.open(f"{base}/tx/7")
    browser.says("transaction 7: committed")
    browser.find("#replay-7").click()
    wait_for("a replay", lambda: browser.all("#check .good"), RUN_SECS)
    browser.picture("run-replay", whole=True)
    browser.open(base)
