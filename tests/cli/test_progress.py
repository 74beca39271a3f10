"""What is shown of a run: the rate, the window on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io

import attrs
import pytest
from rich.console import Console

from txtopo.cli.live import LiveDisplay
from txtopo.cli.plain import PlainLines
from txtopo.cli.rate import TupleRate
from txtopo.monitor.report import Progress, RunReport

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


def test_the_rate_is_that_of_the_last_seconds():
    """What was committed long ago does not count."""
    rate = TupleRate()
    assert rate.per_second == 0.0
    for second in range(21):
        rate.add(attrs.evolve(PROGRESS, elapsed_secs=float(second), tuples=min(second, 10) * 100))
        if second == 10:
            assert rate.per_second == pytest.approx(100)
    assert rate.per_second == 0.0
    assert rate.history[9] == "█"
    assert rate.history[-1] == " "


def test_a_terminal_shows_every_phase_of_the_window():
    """Each transaction of the window has a cell; counts, the next transaction, rate and replays are there."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, color_system=None)
    with LiveDisplay(console, 32) as display:
        assert "starting Spark" in out.getvalue()
        display.update(PROGRESS)
        display._live.refresh()
        display.finish(REPORT)
    shown = out.getvalue()
    for text in (
        "words 1:05",
        "█" * 24 + "·" * 8,
        "■ 4 committing  ■ 6 waiting  ■ 12 processing  ■ 2 ready",
        "30 transactions, 40 with those of earlier runs",
        "transaction 41 is in its commit phase",
        "30,000",
        "of 33 attempts",
    ):
        assert text in shown


def test_elsewhere_lines_are_plain_and_rare(capsys):
    """Snapshots that come within two seconds are one line; the first and the last line always come."""
    with PlainLines() as display:
        for _ in range(50):
            display.update(PROGRESS)
        display.stopping()
        display.update(PROGRESS)
        display.finish(REPORT)
    first, snapshot, news, last = capsys.readouterr().out.splitlines()
    assert first == "starting Spark …"
    assert snapshot == (
        "words:   65.0 s, 30 committed (the last is 40), 4 committing, 6 waiting, 12 processing, 2 ready, "
        "30000 tuples (462/s), 3 replays"
    )
    assert news == "stopping: what commits just now is committed; Ctrl-C again ends at once"
    assert last == (
        "words: done in 3.0 s: the spout is exhausted; 30 transactions committed, the last is 40; "
        "30,000 tuples (10,000/s); 3 replays"
    )
