"""Whole runs over Kafka: killed, without a broker for a while, with lost records, in the simulator."""

import contextlib
import itertools
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from confluent_kafka import Producer

from state import MemoryState, StateKind, read_table
from tests.budgets import examples
from tests.cli.look.test_audit import audited
from tests.processes import python
from tests.spouts.kafka.in_memory import OpaqueInMemory, TransactionalInMemory
from tests.spouts.kafka.run_clicks import FIELDS, counting_clicks
from tests.variants import variants
from tests.waiting import DEADLINE_SECS, wait_for
from txtopo import Fields
from txtopo.errors import ConfigError, StateAccessError
from txtopo.servers.kafka import KafkaBroker, KafkaTopics
from txtopo.testing import MemoryLog
from txtopo.testing.simulation.schedules import make_subject, run_schedules

_numbers = itertools.count()
PAGES = 7


@attrs.define(eq=False)
class Clicks:
    """What was produced to a topic, and what the tables must say of it."""

    broker: KafkaTopics
    topic: str
    made: int = 0
    pages: dict[str, tuple[int, int]] = attrs.field(factory=dict)
    bad: list[bytes] = attrs.field(factory=list)

    def produce(self, records: int, partition: int, **options) -> None:
        self.broker.produce(self.topic, [self._next() for _ in range(records)], partition, **options)

    def produce_bad(self, partition: int) -> None:
        value = b"nonsense %d" % len(self.bad)
        self.bad.append(value)
        self.broker.produce(self.topic, [value], partition)

    def abort(self, records: int, partition: int) -> None:
        """Produce records in a transaction that is aborted."""
        settings = {"bootstrap.servers": self.broker.servers, "transactional.id": f"abort-{self.topic}", "log_level": 3}
        producer = Producer(settings)
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(self.topic, json.dumps({"page": "aborted", "bytes": 1}).encode(), partition=partition)
        producer.flush()
        producer.abort_transaction()

    def _next(self) -> bytes:
        page, size = f"/{self.made % PAGES}", self.made % 1_000
        self.made += 1
        clicks, total = self.pages.get(page, (0, 0))
        self.pages[page] = (clicks + 1, total + size)
        return json.dumps({"page": page, "bytes": size}).encode()


def pages_in(output: Path) -> dict[str, tuple[int, int]]:
    rows = read_table(output / "pages").to_pylist()
    return {row["page"]: (row["clicks"], row["bytes"]) for row in rows}


def bad_in(output: Path) -> list[bytes]:
    return sorted(read_table(output / "bad").column("value").to_pylist())


def child_of(clicks: Clicks, output: Path, kind: str, end: str, failpoint: str = "") -> subprocess.Popen:
    """Start a run: to the end of what is there, an endless one, or one to a failpoint."""
    command = ["-m", "tests.spouts.kafka.run_clicks", clicks.broker.servers, clicks.topic, output, kind, end]
    return python(*command, failpoints=failpoint, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def endless_child(clicks: Clicks, output: Path, kind: str) -> Iterator[subprocess.Popen]:
    with child_of(clicks, output, kind, "endless") as child:
        try:
            yield child
        finally:
            child.kill()


def wait_until_counted(clicks: Clicks, output: Path, child: subprocess.Popen) -> None:
    """Wait until a run has counted all that was produced."""

    def is_counted() -> bool:
        assert child.poll() is None, "the run has ended"
        try:
            return pages_in(output) == clicks.pages
        except (ConfigError, StateAccessError):  # no table yet
            return False

    wait_for(f"{clicks.pages} are counted", is_counted)


@pytest.fixture
def clicks(kafka):
    topic = f"runs-{next(_numbers)}"
    kafka.create_topic(topic, 2)
    return Clicks(kafka, topic)


SAVES = {"transactional": "metadata.save.after=kill", "opaque": "group.commit.after=kill"}
"""Where a kill is first: where metadata is saved before, or with, the commit."""

KILLS = (
    "spout.emit=kill:5",
    "group.decide.after=kill",
    "delta.write.landed=kill:2",
    "table.write.before=kill:2",
    "group.commit.before=kill",
    "bolt.finish=kill:5",
    "group.journal.after=kill",
)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "every"), variants(("transactional", 3), long=[("transactional", 1), ("opaque", 1)]))
def test_killed_at_each_step(kafka, clicks, tmp_path, kind, every):
    """Transactions, aborted ones, bad records and new partitions meanwhile: every total is what was produced."""
    for number, failpoint in list(enumerate((SAVES[kind], *KILLS)))[::every]:
        partitions = 2 + number // 3
        if number % 3 == 0 and number:
            kafka.add_partitions(clicks.topic, partitions)
        for partition in range(partitions):
            clicks.produce(17, partition)
            clicks.produce_bad(partition)
        clicks.produce(8, number % partitions, transactional_id=f"{clicks.topic}-commit")
        clicks.abort(5, number % partitions)
        assert child_of(clicks, tmp_path, kind, "end", failpoint).wait(DEADLINE_SECS) == -signal.SIGKILL, failpoint
    clicks.produce(10, 0)
    assert child_of(clicks, tmp_path, kind, "end").wait(DEADLINE_SECS) == 0
    assert pages_in(tmp_path) == clicks.pages
    assert bad_in(tmp_path) == sorted(clicks.bad)
    assert audited(tmp_path).findings == []


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("kind", variants("transactional", long=["opaque"]))
def test_a_broker_that_is_gone_for_a_while(kafka, tmp_path, kind):
    """A run waits for it, however it went, and goes on."""
    del kafka  # which skips if a broker can't be had
    with KafkaBroker(tmp_path / "kafka") as broker:
        broker.create_topic("clicks", 2)
        clicks, output = Clicks(broker, "clicks"), tmp_path / "out"
        clicks.produce(20, 0)
        with endless_child(clicks, output, kind) as child:
            wait_until_counted(clicks, output, child)
            for end in (broker.kill, broker.stop):
                clicks.produce(30, 1)
                end()
                broker.start()
                clicks.produce(25, 0)
                wait_until_counted(clicks, output, child)
            child.send_signal(signal.SIGTERM)
            assert child.wait(DEADLINE_SECS) == 0
        assert audited(output).findings == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", [TransactionalInMemory, pytest.param(OpaqueInMemory, marks=pytest.mark.slow)])
def test_simulated(kind):
    """Crashes, zombies, lost and repeated answers at every step: every version of the table is exact."""
    world = MemoryLog()
    world.create_topic("clicks", 2)
    for partition in (0, 1):
        for number in range(4):
            values = [json.dumps({"page": f"/{number}", "bytes": each}).encode() for each in range(3)]
            world.append("clicks", values, partition)
            world.skip("clicks", 5, partition)  # the marker of a transaction, and one that was aborted
    spout = kind(world, "clicks", FIELDS, batch_records_max=7, until_end=True)
    state_kind = StateKind.OPAQUE if kind is OpaqueInMemory else StateKind.TRANSACTIONAL
    state = MemoryState(Fields("page"), Fields("clicks", "bytes"), state_kind)
    result = run_schedules(make_subject(counting_clicks(spout, state)), range(1, 1 + examples(80)), processes=1)
    assert [failure.violation for failure in result.failures] == []
    assert result.schedules == examples(80)
    assert len(result.faults) >= min(10, examples(80) // 4)
