"""Where a print goes: from executors, the commit phase and the coordinator, to one logger."""

import logging
import os
import pathlib

import pytest
from pyspark.sql import SparkSession

from spouts import MemoryTransactionalSpout
from state import MemoryState
from tests.bolts import Collecting
from txtopo import BatchBolt, FailedException, Fields, TransactionalTopologyBuilder, run
from txtopo.attempts import TransactionAttempt

logger = logging.getLogger("mine")


class Talks(BatchBolt):
    output_fields = Fields("attempt", "word")

    def __init__(self, killed: pathlib.Path):
        self.killed = killed

    def prepare(self, config, context, collector, attempt):
        print("prepared")

    def execute(self, tuple):
        self.collector.emit((self.attempt, tuple["word"]))

    def finish_batch(self):
        if self.attempt == TransactionAttempt(1, 1):
            print("will fail")
            raise FailedException("on purpose")
        if self.attempt.txid == 2 and not self.killed.exists():
            self.killed.touch()
            print("last words")
            os._exit(9)
        logger.info("finished")


class Commits(Collecting):
    def finish_batch(self):
        print("commits", len(self.words))
        self.state.put("last", self.attempt.txid)


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


@pytest.fixture
def kept(monkeypatch):
    handler, ours = Kept(), logging.getLogger("txtopo.user")
    monkeypatch.setattr(ours, "handlers", [handler])
    monkeypatch.setattr(ours, "level", logging.INFO)
    ours.manager._clear_cache()
    yield handler
    ours.manager._clear_cache()


def test_prints_of_all_attempts_arrive_once(spark: SparkSession, tmp_path, kept, capsys):
    """Those of an attempt that fails and of one whose worker dies too; each with its place, before the commit."""
    spout = MemoryTransactionalSpout([["cat"], ["dog"], ["cat"]], Fields("word"), 1)
    builder = TransactionalTopologyBuilder("talks", "spout", spout, 1)
    builder.set_bolt("talks", Talks(tmp_path / "killed"), 1).shuffle_grouping("spout")
    builder.set_committer_bolt("commits", Commits(), 1).global_grouping("talks")
    builder.set_state("words", MemoryState(key=Fields("word"), value=Fields("seen")))
    assert run(builder.build(), spark=spark).transactions == 3
    told: dict[tuple[int, int], list[str]] = {}
    for record in kept.records:
        text = record.getMessage().partition("] ")[2]
        told.setdefault((record.txid, record.attempt), []).append(f"{record.component} {text}")
    last = {txid: max(attempt for of, attempt in told if of == txid) for txid in (1, 2, 3)}
    for txid, attempt in last.items():
        assert told.pop((txid, attempt)) == ["talks prepared", "talks finished", "commits commits 1"]
    assert "talks will fail" in told[1, 1]
    assert sum(lines == ["talks prepared", "talks last words"] for lines in told.values()) == 1
    assert "commits" not in capsys.readouterr().out
