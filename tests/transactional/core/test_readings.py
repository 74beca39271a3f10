"""What components count and measure: only committed transactions show, in the report, in metrics and in explain."""

import datetime as dt
from pathlib import Path

import attrs
import pytest

from spouts import MemoryTransactionalSpout
from state import DeltaRows
from tests.cli.conftest import command_line
from tests.engine.test_metrics import PROGRESS
from txtopo import BatchBolt, Config, FailedException, Fields, ICommitter, RunReport, TransactionalTopologyBuilder
from txtopo.engine.metrics import RunMetrics
from txtopo.errors import StateAccessError
from txtopo.testing.context import PlainContext
from txtopo.testing.inline import run_inline
from txtopo.transactional.core.readings import Reading, ReadingKind

__all__ = ["command_line"]

AT = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


class Counting(BatchBolt, ICommitter):
    """Counts tuples and measures; fails once in each transaction, and always in one, after it has done so."""

    def __init__(self, stuck: int = 0, *, is_early: bool = False) -> None:
        self.stuck, self.is_early = stuck, is_early

    def prepare(self, config, context, collector, attempt):
        self.tuples = 0

    def execute(self, tuple):
        if self.is_early:
            self.context.count("early")
        self.tuples += 1

    def finish_batch(self):
        self.context.count("tuples", self.tuples)
        self.context.gauge("txid", self.attempt.txid)
        self.context.gauge("newest", AT + self.attempt.txid * dt.timedelta(hours=1), of="part")
        self.context.state("rows").append([(self.tuples,)])
        if self.attempt.attempt & 0xFFFF <= 1 or self.attempt.txid == self.stuck:
            raise FailedException("once")


def run_counting(output: Path, committer: Counting, group: int = 2) -> RunReport:
    builder = TransactionalTopologyBuilder(
        "counting", "spout", MemoryTransactionalSpout(list("abcde"), Fields("word"), 2)
    )
    builder.set_committer_bolt("counting", committer, 2).shuffle_grouping("spout")
    builder.set_state("rows", DeltaRows(output / "rows", Fields("n: long")))
    return run_inline(builder.build(), Config(group_transactions_max=group, transaction_max_attempts=3))


@pytest.mark.parametrize("group", [1, 4])
def test_readings(tmp_path: Path, group: int) -> None:
    """Counts of tasks and transactions add up, the last gauge stays, and those of failed attempts never were."""
    assert run_counting(tmp_path, Counting(), group=group).readings == (
        Reading("counting", "tuples", ReadingKind.COUNT, 5),
        Reading("counting", "txid", ReadingKind.GAUGE, 3),
        Reading("counting", "newest", ReadingKind.TIME, (AT + dt.timedelta(hours=3)).timestamp(), "part"),
    )


def test_explain(tmp_path: Path, command_line) -> None:
    """Explain says what the run has counted and measured so far, and that it's not of the transaction alone."""
    with pytest.raises(Exception, match="once"):
        run_counting(tmp_path, Counting(stuck=3))
    for txid in ("1", "3"):
        explained = command_line("explain", str(tmp_path), txid).stdout
        assert explained.endswith(
            "  measured  in the run so far, not in this transaction alone\n"
            "            counting: tuples 4, txid 2\n"
            "            counting 'part': newest 2026-03-01 14:00:00 UTC\n"
        )


def test_too_early(tmp_path: Path) -> None:
    """In the processing phase, whose attempts may be many, nothing is counted."""
    with pytest.raises(StateAccessError, match=r"count\(\) was called outside of a commit phase"):
        run_counting(tmp_path, Counting(is_early=True))


def test_metrics() -> None:
    """A count is a counter and a gauge a gauge, by component and name."""
    readings = (
        Reading("clock", "watermark", ReadingKind.TIME, 1.5e9, "p"),
        Reading("windows", "late", ReadingKind.COUNT, 7),
    )
    metrics = RunMetrics("t")
    metrics.progressed(attrs.evolve(PROGRESS, readings=readings))
    text = metrics.text().decode()
    assert 'txtopo_component_count_total{component="windows",name="late",topology="t"} 7.0' in text
    assert 'txtopo_component_gauge{component="clock",name="watermark",of="p",topology="t"} 1.5e+09' in text


def test_context_of_a_test() -> None:
    """A PlainContext keeps what it is told."""
    context = PlainContext()
    context.count("n")
    context.count("n", 2)
    context.gauge("g", 1.0, of="p")
    assert (context.counts, context.gauges) == ({"n": 3}, {("g", "p"): 1.0})
