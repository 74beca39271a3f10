"""A source that is away for a minute: the others go on, and nothing of it is lost or doubled."""

import datetime as dt
import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from committers import EventClock
from spouts import Coordinator, MemoryTransactionalSpout
from spouts.kafka import OpaqueKafkaSpout, TransactionalKafkaSpout
from state import DeltaState
from tests.acceptance.test_several_spouts import Count, counts, transactions
from tests.waiting import wait_for
from txtopo import Config, Fields, TransactionalTopologyBuilder
from txtopo.errors import TxtopoError
from txtopo.servers.kafka import KafkaBroker
from txtopo.testing import run_inline

AWAY_SECS = 60
START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
TIMED = Fields("word: string", "at: timestamp")
MINUTE = dt.timedelta(minutes=1)


class Ticking(MemoryTransactionalSpout):
    """Has a row each tenth of a second, which is an hour ahead of the other source."""

    def __init__(self) -> None:
        super().__init__([[f"t{n}", START + 60 * MINUTE + n * MINUTE] for n in range(5_000)], TIMED, 1)

    def coordinator(self, config: Any, context: Any) -> Coordinator:
        return _Ticks(super().coordinator(config, context))


class _Ticks(Coordinator):
    def __init__(self, rows: Coordinator) -> None:
        self._rows, self._begun_at = rows, 0.0

    def resume(self, txid: int, metadata: Any) -> None:
        self._rows.resume(txid, metadata)

    def is_ready(self) -> bool:
        return time.monotonic() - self._begun_at > 0.1

    def initialize_transaction(self, txid: int, previous_metadata: Any) -> Any:
        self._begun_at = time.monotonic()
        return self._rows.initialize_transaction(txid, previous_metadata)


class Ending(Count):
    """Ends the run when the test is over."""

    def __init__(self, over: Path) -> None:
        self.over = over

    def finish_batch(self) -> None:
        if self.over.exists():
            raise ValueError("the test is over")
        super().finish_batch()


class Run:
    """A run of both sources in a thread."""

    def __init__(self, root: Path, spout: Any) -> None:
        self.root, self.errors = root, list[TxtopoError]()
        builder = TransactionalTopologyBuilder("away", "ticks", Ticking())
        builder.add_spout("topic", spout)
        clock = EventClock("clock", time="at", delay=MINUTE, skew_max=30 * MINUTE)
        builder.set_committer_bolt("clock", clock).global_grouping("ticks").global_grouping("topic")
        builder.set_state("clock", clock.state(root / "out" / "clock"))
        count = builder.set_committer_bolt("count", Ending(root / "over"))
        count.global_grouping("ticks").global_grouping("topic")
        builder.set_state("counts", DeltaState(root / "out" / "counts", Fields("key: string"), Fields("n: long")))
        self._topology = builder.build()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            run_inline(self._topology, Config(max_spout_pending=2, group_transactions_max=2))
        except TxtopoError as error:
            self.errors.append(error)

    def count(self, source: str) -> int:
        """Return how many rows of a source are committed."""
        assert not self.errors, self.errors
        is_there = (self.root / "out" / "counts" / "_delta_log" / f"{0:020}.json").exists()
        return sum(key.startswith(source) for key in counts(self.root / "out")) if is_there else 0

    def end(self) -> None:
        (self.root / "over").touch()
        self._thread.join()


@pytest.mark.long
@pytest.mark.parametrize("is_opaque", [False, True], ids=["repeatable", "opaque"])
def test_a_broker_that_is_stopped(kafka: KafkaBroker, tmp_path: Path, is_opaque: bool) -> None:
    """The other source goes on, though it is ahead of what the topic may still have; then all of the topic comes.

    An opaque spout goes on without what it can't read. What was planned of a repeatable one must be read, so its
    broker goes away while nothing is.
    """
    topic = f"away-{is_opaque}"
    kafka.create_topic(topic, 2)

    def produce(numbers: range) -> None:
        for part in (0, 1):
            rows = [{"word": f"k{n}", "at": (START + dt.timedelta(seconds=n)).isoformat()} for n in numbers]
            kafka.produce(topic, [json.dumps(row).encode() for row in rows[part::2]], part)

    first, last = (400, 400) if is_opaque else (20, 40)
    produce(range(first))
    make = OpaqueKafkaSpout if is_opaque else TransactionalKafkaSpout
    run = Run(tmp_path, make(kafka.servers, topic, TIMED, batch_records_max=1))
    try:
        wait_for("the topic", lambda: run.count("topic") >= (4 if is_opaque else first))
        kafka.signal(signal.SIGSTOP)
        began, ticks = time.monotonic(), run.count("ticks")
        try:
            wait_for("the other source", lambda: run.count("ticks") > ticks + 20)
            wait_for("a minute", lambda: time.monotonic() - began > AWAY_SECS)
        finally:
            kafka.signal(signal.SIGCONT)
        produce(range(first, last))
        wait_for("all of the topic", lambda: run.count("topic") == last)
    finally:
        run.end()
    assert ["the test is over" in str(error) for error in run.errors] == [True]
    found = counts(tmp_path / "out")
    assert {key for key in found if key.startswith("topic")} == {f"topic k{n}" for n in range(last)}
    assert set(found.values()) == {1}
    planned = [transaction.planned for transaction in transactions(tmp_path / "out")]
    assert any(each.without == ("topic",) for each in planned), "the topic was not waited for"
    assert any(each.ahead == ("ticks",) for each in planned), "the ticks waited while the topic had input"
