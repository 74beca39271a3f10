"""What is shown of a run: the rate, the pending transactions on a terminal, plain lines elsewhere."""

import io
import re

import attrs
import pytest
from rich.console import Console

from txtopo.assembly.report import Progress, RunReport
from txtopo.cli.display.lines import ProgressLines
from txtopo.cli.display.live import LiveDisplay
from txtopo.cli.display.rate import TupleRate
from txtopo.cli.display.wording import activity
from txtopo.transactional.core.readings import Reading, ReadingKind

PROGRESS = Progress(
    topology_id="words",
    committed_txid=40,
    processing=12,
    processed=6,
    committing=4,
    ready=2,
    first_uncommitted_status="committing",
    transactions=30,
    dead_letters=0,
    tuples=30_000,
    failures=3,
    elapsed_secs=65.0,
)

READINGS = (
    Reading("clock", "late", ReadingKind.COUNT, 1_200),
    Reading("clock", "watermark", ReadingKind.TIME, 90),
    Reading("clock", "watermark", ReadingKind.TIME, 91, "p1"),
)

REPORT = RunReport(
    topology_id="words",
    reason="the spout is exhausted",
    committed_txid=40,
    transactions=30,
    dead_letters=0,
    attempts=33,
    tuples=30_000,
    failures=3,
    processing_secs=4.0,
    commit_secs=1.0,
    elapsed_secs=3.0,
)


def test_the_recent_rate_is_that_of_the_last_seconds():
    """What was committed long ago counts for the average alone."""
    rate = TupleRate()
    assert (rate.recent, rate.average) == (0.0, 0.0)
    for second in range(41):
        rate.add(attrs.evolve(PROGRESS, elapsed_secs=float(second), tuples=min(second, 20) * 100))
        if second == 20:
            assert (rate.recent, rate.average) == (pytest.approx(100), pytest.approx(100))
    assert (rate.recent, rate.average) == (0.0, pytest.approx(50))
    assert rate.history[19] == "█"
    assert rate.history[-1] == " "


@pytest.mark.parametrize(
    ("changes", "secs_left"),
    [
        ({}, None),
        ({"total": 100}, pytest.approx(60 * 65 / 30)),
        ({"total": 40}, 0),
        ({"total": 100, "transactions": 0}, None),
        ({"total": 100, "dead_letters": 10}, pytest.approx(60 * 65 / 40)),
    ],
)
def test_the_time_left_follows_from_what_this_run_did(changes, secs_left):
    """Transactions of earlier runs say nothing of how fast this one is; nothing is told before one is done."""
    rate = TupleRate()
    rate.add(attrs.evolve(PROGRESS, **changes))
    assert rate.secs_left == secs_left


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ready": 0}, "planning the first transactions"),
        (
            {"ready": 5, "first_uncommitted_status": "ready"},
            "5 transactions planned; transaction 1 waits to be processed",
        ),
        ({"processing": 4}, "processing the first 4 transactions"),
        (
            {"processing": 4, "processed": 6, "first_uncommitted_status": "processing"},
            "6 processed, waiting for transaction 1, which is in its processing phase",
        ),
        ({"processed": 6, "committing": 1}, "committing the first transaction"),
    ],
)
def test_what_goes_on_before_the_first_commit(changes, words):
    """Whoever waits for the first commit is told what it waits for."""
    nothing = {"processing": 0, "processed": 0, "committing": 0, "ready": 0, "first_uncommitted_status": ""}
    assert activity(attrs.evolve(PROGRESS, **{**nothing, "committed_txid": 0, **changes})) == words


def test_more_are_pending_than_may_be():
    """As after a restart with a lower limit: the bar has all of them, in their proportion."""
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system="standard")
    with LiveDisplay(console, 6) as display:
        display.update(PROGRESS)
        display._live.refresh()
    (*_, bar) = [line for line in console.file.getvalue().splitlines() if "pending" in line]
    assert [len(each) for each in re.findall("█+", bar)] == [4, 6, 12, 2]


def test_a_terminal_shows_every_phase():
    """Each pending transaction has a cell; counts, the next transaction, rate and failures are there."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, color_system=None)
    with LiveDisplay(console, 32) as display:
        display.stage("starting Spark")
        assert "starting Spark …" in out.getvalue()
        display.update(attrs.evolve(PROGRESS, transactions=0))
        display._live.refresh()
        assert "nothing yet: committing the first 4 transactions" in out.getvalue()
        display.update(
            attrs.evolve(PROGRESS, total=160, last_failure="transaction 31: no  luck\nat all", readings=READINGS)
        )
        display._live.refresh()
        display.finish(attrs.evolve(REPORT, spout_rows={"spout.bad-records": 3}))
    shown = out.getvalue()
    for text in (
        "words 1:05",
        "█" * 24 + "·" * 8,
        "■ 4 committing  ■ 6 waiting  ■ 12 processing  ■ 2 ready",
        "30 transactions, 40 with those of earlier runs",
        "transaction 41 is in its commit phase",
        "25 % of about 160, about 4:20 left",
        "clock  late 1,200, watermark 1970-01-01 00:01:30 UTC",
        "30,000   462/s, recently 462/s",
        "the last failure: transaction 31: no luck at all",
        "failures       3  of 33 attempts",
        "spout.bad-records       3  rows written by the spout itself",
    ):
        assert text in shown


def test_elsewhere_lines_are_plain_and_rare(capsys):
    """Snapshots that come within ten seconds are one line; the first and the last line always come."""
    with ProgressLines() as display:
        display.stage("starting Spark")
        for _ in range(50):
            display.update(attrs.evolve(PROGRESS, total=160, readings=READINGS))
        display.stopping()
        display.update(PROGRESS)
        display.finish(attrs.evolve(REPORT, spout_rows={"spout.bad-records": 3}))
    first, snapshot, news, last = capsys.readouterr().out.splitlines()
    assert first == "starting Spark …"
    assert snapshot == (
        "words:   65.0 s, 30 committed (the last is 40, 25 % of about 160), 4 committing, 6 waiting, 12 processing, "
        "2 ready, 30,000 tuples (462/s, recently 462/s), about 4:20 left, "
        "clock: late 1,200, watermark 1970-01-01 00:01:30 UTC, 3 failures"
    )
    assert news == "stopping: the commit in progress is finished; Ctrl-C again stops immediately"
    assert last == (
        "words: done in 3.0 s: the spout is exhausted; 30 transactions committed, the last is 40; "
        "30,000 tuples (10,000/s); 3 failures; 3 rows in spout.bad-records"
    )


def test_the_first_plain_line_says_what_goes_on(capsys):
    """A line comes as soon as transactions have begun, and tells why one of them failed."""
    with ProgressLines() as display:
        display.update(attrs.evolve(PROGRESS, transactions=0, first_uncommitted_status=""))
        assert capsys.readouterr().out == ""
        display.update(attrs.evolve(PROGRESS, transactions=0, committing=0, last_failure="transaction 41: no luck"))
    assert capsys.readouterr().out == (
        "words:   65.0 s, going on after transaction 40: 6 processed, waiting for transaction 41, which is in its commit "
        "phase, 3 failures, the last failure: transaction 41: no luck\n"
    )
