"""What follows when a bolt, a spout or a transaction fails: promises 4, 6, 7, 13 and 14, on Spark."""

import logging
import pathlib
import threading
import time

import pytest
from pyspark.sql import SparkSession

from spouts import MemoryTransactionalSpout
from state import DeltaState, read_table
from tests.acceptance.topologies import CountTuples
from tests.bolts import Pass
from tests.waiting import DEADLINE_SECS
from txtopo import (
    BatchBolt,
    Config,
    FailedException,
    Fields,
    ICommitter,
    ReportedFailedException,
    Topology,
    TransactionalTopologyBuilder,
    run,
)
from txtopo.api.components.bolt import Bolt
from txtopo.errors import FieldsError, PoisonTransaction, StalledCommit, StateAccessError, UserCodeError

DATA = {0: [[f"w{i}"] for i in range(40)]}


class Broken(Pass):
    def execute(self, tuple, collector):
        if tuple["word"] == "w13":
            raise ZeroDivisionError("seven by nothing")
        collector.emit(tuple.values)


class Poison(Pass):
    def execute(self, tuple, collector):
        if tuple["word"] == "w13":
            raise FailedException("this one never works")
        collector.emit(tuple.values)


class Reported(Pass):
    def execute(self, tuple, collector):
        if tuple[0].txid == 2 and tuple[0].attempt == 1:
            raise ReportedFailedException("look at this")
        collector.emit(tuple.values)


class Slow(Pass):
    """Sleeps beyond the timeout in the first attempt of transaction 2."""

    def execute(self, tuple, collector):
        if tuple[0].txid == 2 and tuple[0].attempt == 1:
            time.sleep(1_000)
        collector.emit(tuple.values)


class SlowButSteady(BatchBolt):
    """Takes longer than the timeout, getting on all the time."""

    output_fields = Fields("attempt", "word")

    def execute(self, tuple):
        time.sleep(0.5)
        self.collector.emit(tuple.values)


GOES_ON = threading.Event()
"""Set: the committer that stalls goes on."""


class StallingCommitter(CountTuples):
    def finish_batch(self):
        if self.attempt.txid == 2:
            GOES_ON.wait()
        super().finish_batch()


class TooEarly(CountTuples):
    def execute(self, tuple):
        self.state.get("n")


class WrongType(CountTuples):
    def finish_batch(self):
        self.state.put("n", "many")


class WrongWidth(Pass):
    def execute(self, tuple, collector):
        collector.emit((tuple[0], 1, 2))


class Leaky(Pass):
    """Would show what an earlier attempt or another task left behind in its object."""

    def __init__(self):
        self.seen = []

    def execute(self, tuple, collector):
        self.seen.append(tuple[0])
        assert set(self.seen) == {tuple[0]}
        if tuple[0].attempt == 1 and tuple[0].txid % 3 == 0:
            raise FailedException("first attempt")
        collector.emit(tuple.values)


def topology(output: pathlib.Path, bolt: Bolt | None = None, committer: Bolt | None = None, take: int = 4) -> Topology:
    spout = MemoryTransactionalSpout(DATA, Fields("word"), take)
    builder = TransactionalTopologyBuilder("errors", "spout", spout, 1)
    builder.set_bolt("bolt", bolt or Pass(), 2).shuffle_grouping("spout")
    builder.set_bolt("sum", committer or CountTuples(), 1).global_grouping("bolt")
    builder.set_state("total", DeltaState(output / "total", key=Fields("k: string"), value=Fields("n: long")))
    return builder.build()


def total(output: pathlib.Path) -> int:
    values = read_table(output / "total").column("n").to_pylist()
    return values[0] if values else 0


def test_bug_in_a_bolt(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """Promise 4: another exception names component, txid, attempt and traceback; nothing of it is written."""
    with pytest.raises(UserCodeError, match="seven by nothing") as raised:
        run(topology(tmp_path, Broken()), Config(max_spout_pending=1))
    error = raised.value
    assert (error.component, error.txid) == ("bolt", 4)
    assert error.attempt is not None
    assert "in execute" in str(error.cause)
    assert total(tmp_path) == 12


def test_poison_waits(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """Promise 6: after max attempts the run stops and says so; what is before it is committed."""
    config = Config(transaction_max_attempts=3, max_spout_pending=8)
    with pytest.raises(PoisonTransaction, match="this one never works") as raised:
        run(topology(tmp_path, Poison()), config)
    assert raised.value.txid == 4
    assert total(tmp_path) == 12


def test_poison_is_skipped(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """Promise 6: with SKIP the transaction goes to the dead-letter table; committed + dead-lettered = input."""
    config = Config({"topology.transaction.max.attempts": 3, "topology.transaction.max.attempts.policy": "SKIP"})
    report = run(topology(tmp_path, Poison()), config)
    assert (report.transactions, report.dead_letters, report.committed_txid) == (9, 1, 10)
    assert total(tmp_path) == 36
    letters = read_table(tmp_path / "dead_letters").to_pylist()
    assert [letter["transaction"] for letter in letters] == [4]
    assert "this one never works" in letters[0]["error"]
    assert letters[0]["tries"] == 3
    assert "12" in letters[0]["metadata"]


def test_reported_failure(spark: SparkSession, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    """Promise 4: a ReportedFailedException shows in the error log, and its transaction is replayed."""
    report = run(topology(tmp_path, Reported()))
    assert total(tmp_path) == 40
    assert report.failures == 1
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert any("look at this" in message and "txid 2" in message for message in errors)


@pytest.mark.long
def test_timeout(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """Promise 7: an attempt without progress fails after the timeout, and the next one goes through."""
    report = run(topology(tmp_path, Slow()), Config(message_timeout_secs=6, max_spout_pending=4))
    assert total(tmp_path) == 40
    assert report.attempts > report.transactions
    assert report.elapsed_secs < 500


@pytest.mark.long
def test_slow_work_is_not_timed_out(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """Promise 7: work that takes longer than the timeout renews it as long as it gets on, tuple by tuple."""
    report = run(topology(tmp_path, SlowButSteady(), take=18), Config(message_timeout_secs=8), until=2)
    assert report.failures == 0
    assert report.attempts == report.transactions == 2


@pytest.mark.long
def test_timeout_in_the_commit_phase(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """Promise 7: a commit phase that stalls stops the run, which says where; nothing is written late; the next resumes."""
    GOES_ON.clear()
    with pytest.raises(StalledCommit, match="no progress for 20 s") as raised:
        run(topology(tmp_path, committer=StallingCommitter()), Config(message_timeout_secs=20))
    error = raised.value
    assert (error.component, error.txid) == ("sum", 2)
    assert "GOES_ON.wait()" in str(error)
    stalled = [thread for thread in threading.enumerate() if thread.name == "txtopo-commit" and thread.is_alive()]
    before = total(tmp_path)
    GOES_ON.set()
    for thread in stalled:
        thread.join(DEADLINE_SECS)
        assert not thread.is_alive()
    assert total(tmp_path) == before < 40
    run(topology(tmp_path))
    assert total(tmp_path) == 40


def test_bug_names_are_checked_early(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """Promise 13: a state that is read in the processing phase is an error that says so."""
    with pytest.raises(StateAccessError, match="commit phase only"):
        run(topology(tmp_path, committer=TooEarly()))
    assert total(tmp_path) == 0


def test_value_of_the_wrong_type(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """A value that does not fit the state's fields is an error; nothing is written, and the run can go on."""
    with pytest.raises(FieldsError, match="many") as raised:
        run(topology(tmp_path, committer=WrongType()))
    assert (raised.value.component, raised.value.txid) == ("sum", 1)
    assert total(tmp_path) == 0
    run(topology(tmp_path))
    assert total(tmp_path) == 40


def test_tuple_of_the_wrong_width(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """Promise 17: a tuple that does not fit its stream's fields names component and fields."""
    with pytest.raises(FieldsError, match="3 values were emitted") as raised:
        run(topology(tmp_path, WrongWidth()))
    assert raised.value.component == "bolt"


def test_fresh_objects(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """Promise 14: each attempt gets a fresh bolt in each task; a failed attempt leaves nothing behind."""
    report = run(topology(tmp_path, Leaky()))
    assert total(tmp_path) == 40
    assert report.failures == 3


def test_local_classes(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """Bolts that are defined in a function, with lambdas inside, travel too."""
    double = lambda n: 2 * n

    class Local(BatchBolt, ICommitter):
        def prepare(self, config, context, collector, attempt):
            self.state = context.state("total")
            self.n = 0

        def execute(self, tuple):
            self.n += double(1)

        def finish_batch(self):
            self.state.update("n", lambda old: (old or 0) + self.n)

    run(topology(tmp_path, committer=Local()))
    assert total(tmp_path) == 80
