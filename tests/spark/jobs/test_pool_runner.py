"""Real-time mode on Spark: in resident workers that die, hang, print, and hold all slots."""

import logging
import os
import re
import signal
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spouts import MemoryTransactionalSpout
from state import MemoryState
from tests.acceptance.topologies import (
    CountTuples,
    counts_of,
    make_data,
    read_total,
    read_words,
    words_topology,
)
from txtopo import (
    BasicBolt,
    Config,
    DataFrameBolt,
    Fields,
    RunReport,
    TransactionalTopologyBuilder,
    run,
)
from txtopo.errors import ConfigError

REAL_TIME = {"topology.processing.mode": "real-time"}
ROWS = 40


class Misbehaving(BasicBolt):
    """Passes tuples on; the first time that a transaction comes, or each time, it does something else, too."""

    output_fields = Fields("attempt", "n")

    def __init__(self, marks: Path, what: str, txid: int, *, always: bool = False) -> None:
        self.marks = marks
        self.what = what
        self.txid = txid
        self.always = always

    def execute(self, tuple, collector):
        if tuple.attempt.txid == self.txid and self._is_due():
            if self.what == "dies":
                os._exit(1)
            elif self.what == "stands still":
                os.kill(os.getpid(), signal.SIGSTOP)
            elif self.what == "hangs":
                threading.Event().wait(600)
            else:
                print(f"a line of {tuple['n']}")
                logging.getLogger("mine").warning("a record of %d", tuple["n"])
        collector.emit(tuple.values)

    def _is_due(self) -> bool:
        mark = self.marks / str(self.txid)
        is_first = not mark.exists()
        mark.touch()
        return is_first or self.always


def run_one(bolt: BasicBolt, **settings) -> tuple[RunReport, int]:
    """Run a topology with a bolt in workers; return its report, and how many tuples were counted."""
    total = MemoryState()
    builder = TransactionalTopologyBuilder("one", "spout", MemoryTransactionalSpout(range(ROWS), Fields("n"), 1))
    builder.set_bolt("bolt", bolt, 2).shuffle_grouping("spout")
    builder.set_committer_bolt("count", CountTuples()).global_grouping("bolt")
    builder.set_state("total", total)
    report = run(builder.build(), Config(REAL_TIME, **settings))
    return report, total.get("n").value


@pytest.mark.parametrize("layout", ["auto", "spread"])
def test_same_tables(spark: SparkSession, tmp_path: Path, layout: str) -> None:
    """Totals are exact, whether transactions run whole in a worker or are shuffled between workers."""
    data = make_data(2, 60)
    report = run(words_topology(tmp_path, data), Config(REAL_TIME, layout=layout))
    assert (read_words(tmp_path), report.failures) == (counts_of(data), 0)
    assert read_total(tmp_path) == sum(counts_of(data).values())


def test_the_simplest_topology(spark: SparkSession) -> None:
    """Where no grouping moves tuples, a transaction that is spread is one stage, which each worker answers in part."""
    total = MemoryState()
    builder = TransactionalTopologyBuilder(
        "simplest", "spout", MemoryTransactionalSpout(range(ROWS), Fields("n"), 9), 2
    )
    builder.set_committer_bolt("count", CountTuples(), 2).shuffle_grouping("spout")
    builder.set_state("total", total)
    report = run(builder.build(), Config(REAL_TIME, layout="spread"))
    assert (report.failures, report.tuples, total.get("n").value) == (0, ROWS, ROWS)


def test_a_worker_that_dies(spark: SparkSession, tmp_path: Path) -> None:
    """It costs the attempt that it was in; another worker starts in its place."""
    report, counted = run_one(Misbehaving(tmp_path, "dies", 7))
    assert (report.transactions, report.failures, counted) == (ROWS, 1, ROWS)


@pytest.mark.long
def test_a_worker_that_stands_still(spark: SparkSession, tmp_path: Path) -> None:
    """It counts as dead after some seconds of silence, and what it held goes to the others."""
    report, counted = run_one(Misbehaving(tmp_path, "stands still", 7))
    assert (report.transactions, report.failures, counted) == (ROWS, 1, ROWS)


def test_missing_slots_are_said_within_seconds(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With the remedy; the workers that have a slot do the work meanwhile."""
    with caplog.at_level(logging.WARNING, "txtopo.workers"):
        report, counted = run_one(Misbehaving(tmp_path, "hangs", 7), workers=3, message_timeout_secs=12)
    assert (report.transactions, counted) == (ROWS, ROWS)
    said = [record.getMessage() for record in caplog.records]
    assert any(re.search(r"[012] of 3 workers have started.*lower topology\.workers", line) for line in said), said


def test_a_transaction_that_kills_each_worker(spark: SparkSession, tmp_path: Path) -> None:
    """It runs alone, uses up its own tries, and is skipped; no restart of a worker is allowed, and none counts."""
    report, counted = run_one(
        Misbehaving(tmp_path, "dies", 7, always=True),
        transaction_max_attempts=2,
        transaction_max_attempts_policy="SKIP",
        dead_letter_path=str(tmp_path / "dead"),
        worker_max_restarts=0,
    )
    assert (report.dead_letters, counted) == (1, ROWS - 1)


def test_a_call_that_never_returns(spark: SparkSession, tmp_path: Path) -> None:
    """After the message timeout its worker is ended, and another one tries the transaction."""
    report, counted = run_one(Misbehaving(tmp_path, "hangs", 7), message_timeout_secs=10)
    assert (report.transactions, counted) == (ROWS, ROWS)
    assert report.failures >= 1


def test_output_of_workers(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What user code prints and logs is logged once in the driver, with its origin, before its transaction commits."""
    with caplog.at_level(logging.INFO, "txtopo.user"):
        run_one(Misbehaving(tmp_path, "prints", 7))
    lines = [record.getMessage() for record in caplog.records if record.name == "txtopo.user"]
    assert len(lines) == 2
    assert all("component 'bolt'" in line and "txid 7" in line for line in lines)


class Doubled(DataFrameBolt):
    """Never runs."""

    output_fields = Fields("attempt", "n: long")

    def transform(self, frame, context=None):
        return frame


def test_components_on_dataframes_are_refused() -> None:
    """Spark SQL would wait for slots that the workers hold; nothing is started or written."""
    spout = MemoryTransactionalSpout(range(3), Fields("n: long"), 1)
    builder = TransactionalTopologyBuilder("frames", "spout", spout)
    builder.set_bolt("doubled", Doubled()).shuffle_grouping("spout")
    with pytest.raises(ConfigError, match=r"'doubled' runs on DataFrames.*choose micro-batch"):
        run(builder.build(), Config(REAL_TIME))


@pytest.mark.parametrize("name", ["spark.speculation", "spark.python.worker.killOnIdleTimeout"])
def test_settings_that_break_workers_are_refused(name: str, tmp_path: Path) -> None:
    """A worker must run once, and as long as the run."""
    with pytest.raises(ConfigError, match=name):
        run(words_topology(tmp_path, make_data(1, 1)), Config(REAL_TIME | {name: "true"}))
    assert not list(tmp_path.iterdir())
