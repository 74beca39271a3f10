"""The topology of the soak: a table of words, one below it of how many words have which count, and one of changes."""

import datetime as dt
import json
import random
from collections import Counter
from typing import Any

import attrs

from committers import AppendCommitter
from spouts.kafka import OpaqueKafkaSpout, TransactionalKafkaSpout
from spouts.memory import MemoryTransactionalSpout
from spouts.opaque_memory import OpaqueMemoryTransactionalSpout
from state import DeltaRows
from state.delta.keyed.state import DeltaState
from tests.harness.spark_cluster.standalone import settings_on
from txtopo import (
    BasicBolt,
    BatchBolt,
    Config,
    FailedException,
    Fields,
    ICommitter,
    Topology,
    TransactionalTopologyBuilder,
)
from txtopo.api.components.spout import OpaquePartitionedEmitter
from txtopo.api.values import StateKind
from txtopo.failpoints import ENVIRONMENT
from txtopo.servers.kafka import KafkaBroker

TOPOLOGY_ID, SPOUT = "soak", "spout"
BUCKET_SIZE = 10
FAILING = 0.004
"""The probability that a task fails where it can; about one attempt in twenty fails."""

TIMES_FROM = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
"""The first event time."""

DELAY = dt.timedelta(seconds=30)
"""How much earlier than the largest event time so far another one may be, and is in time."""

IDLE_AFTER = dt.timedelta(seconds=1)
"""How long a partition is silent until it is not waited for: less than a process takes to start."""

TOO_FAR = dt.datetime(2200, 1, 1, tzinfo=dt.UTC)
"""An event time that no clock believes."""

_WORDS = [f"w{number}" for number in range(60)]
_STEP_SECS = 8
_PARTITIONS = 2
_TAKE = 3
TASKS = 2

TOUCHED = 1_000
"""How many keys a transaction touches in a table of many."""


@attrs.frozen
class Setup:
    """One round, as a process of the topology receives it in JSON.

    Args:
        output: the folder of the tables, or their address in a bucket.
        scratch: the folder of what a process leaves on the disk.
        seed: decides on the input, and on which attempts fail.
        transactions: how many the input makes; an opaque spout makes more of it.
        opaque: whether a replay carries other tuples.
        inline: whether it runs without Spark.
        hosts: the ZooKeeper servers of coordinator state; empty for another store.
        kafka: the Kafka brokers of the input; empty for input in memory.
        worker_failpoints: what is armed in Spark's Python workers.
        timed: whether the words have event times, and windows count them.
        idle: whether the clock goes by partition, one of which soon falls silent, and is not waited for then.
        real_time: whether it runs in real-time mode.
        master: the URL of a standalone cluster; empty for Spark in the driver's process.
        keys: how many keys a table with deletion vectors has, if that is what the round is about.
    """

    output: str
    seed: int
    transactions: int
    scratch: str = ""
    opaque: bool = False
    inline: bool = False
    hosts: str = ""
    kafka: str = ""
    worker_failpoints: str = ""
    timed: bool = False
    idle: bool = False
    real_time: bool = False
    master: str = ""
    keys: int = 0


def data_of(setup: Setup) -> dict[int, list[list[Any]]]:
    """Return the rows of each partition; one has fewer of them."""
    rng = random.Random(setup.seed)
    lengths = [setup.transactions * _TAKE - 2 * _TAKE * partition for partition in range(_PARTITIONS)]
    if setup.idle:
        lengths[-1] = 2 * _TAKE
    if setup.timed:
        return {
            partition: [
                [rng.choice(_WORDS[:3]), _time_of(number, rng), *([f"p{partition}"] if setup.idle else [])]
                for number in range(length)
            ]
            for partition, length in enumerate(lengths)
        }
    return {partition: [[rng.choice(_WORDS)] for _ in range(length)] for partition, length in enumerate(lengths)}


def _time_of(number: int, rng: random.Random) -> dt.datetime | None:
    """Return the event time of a partition's row: in about its order, and now and then late, too far ahead or none."""
    draw = rng.random()
    if draw < 0.03:
        return None
    if draw < 0.06:
        return TOO_FAR
    behind = rng.uniform(180, 600) if draw < 0.15 else rng.uniform(0, 1.5 * DELAY.total_seconds())
    return TIMES_FROM + dt.timedelta(milliseconds=round(1000 * (number * _STEP_SECS - behind)))


def fields_of(setup: Setup) -> Fields:
    """Return the fields of the rows."""
    return Fields("word: string", *(["at: timestamp"] * setup.timed), *(["part: string"] * setup.idle))


def batches_of(setup: Setup) -> list[list[str]]:
    """Return the words of each transaction, as the repeatable spout cuts them."""
    data = data_of(setup)
    starts = range(0, setup.transactions * _TAKE, _TAKE)
    return [[row[0] for rows in data.values() for row in rows[start : start + _TAKE]] for start in starts]


@attrs.frozen
class Flaw:
    """Lets some attempts fail: the same ones for the same seed."""

    seed: int

    def maybe_fail(self, where: str, attempt) -> None:
        if random.Random(f"{self.seed} {where} {attempt.txid} {attempt.attempt}").random() < FAILING:
            raise FailedException(f"{where} was drawn to fail")


class Pass(BasicBolt):
    """Passes on what it gets, unless it fails."""

    def __init__(self, flaw: Flaw, fields: Fields, where: str = "pass") -> None:
        self.output_fields = fields.with_attempt()
        self.flaw = flaw
        self.where = where

    def execute(self, tuple, collector):
        self.flaw.maybe_fail(self.where, tuple.attempt)
        collector.emit(tuple.values)


class CountBatch(BatchBolt):
    output_fields = Fields("attempt", "word: string", "count: long")

    def __init__(self, flaw: Flaw) -> None:
        self.flaw = flaw

    def prepare(self, config, context, collector, attempt):
        self.counts: Counter[str] = Counter()

    def execute(self, tuple):
        self.counts[tuple["word"]] += 1

    def finish_batch(self):
        self.flaw.maybe_fail("count batch", self.attempt)
        for word, count in self.counts.items():
            self.collector.emit((self.attempt, word, count))


class CountWords(BatchBolt, ICommitter):
    output_fields = Fields("attempt", "new: long", "old: long")

    def __init__(self, flaw: Flaw) -> None:
        self.flaw = flaw

    def prepare(self, config, context, collector, attempt):
        self.words = context.state("words")
        self.counts: Counter[str] = Counter()

    def execute(self, tuple):
        self.counts[tuple["word"]] += tuple["count"]

    def finish_batch(self):
        totals = self.words.multi_update(list(self.counts), lambda word, old: (old or 0) + self.counts[word])
        for new, count in zip(totals, self.counts.values(), strict=True):
            self.collector.emit((self.attempt, new, new - count))
        self.flaw.maybe_fail("count words", self.attempt)


class Bucketize(BasicBolt):
    """Emits which bucket a word enters and which it leaves; runs in the commit phase."""

    output_fields = Fields("attempt", "bucket: long", "delta: long")

    def execute(self, tuple, collector):
        for bucket, delta in moves(tuple["old"], tuple["new"]):
            collector.emit((tuple.attempt, bucket, delta))


class CountBuckets(BatchBolt, ICommitter):
    """Below a committer: counts the words of each bucket, and removes empty buckets."""

    def __init__(self, flaw: Flaw) -> None:
        self.flaw = flaw

    def prepare(self, config, context, collector, attempt):
        self.buckets = context.state("buckets")
        self.deltas: Counter[int] = Counter()

    def execute(self, tuple):
        self.deltas[tuple["bucket"]] += tuple["delta"]

    def finish_batch(self):
        totals = self.buckets.multi_update(list(self.deltas), lambda bucket, old: (old or 0) + self.deltas[bucket])
        self.buckets.multi_remove([bucket for bucket, left in zip(self.deltas, totals, strict=True) if left == 0])
        self.flaw.maybe_fail("count buckets", self.attempt)


def moves(old: int, new: int) -> list[tuple[int, int]]:
    """Return the change of each bucket when a word's count goes from ``old``, 0 for a new word, to ``new``."""
    if old == 0:
        return [(new // BUCKET_SIZE, 1)]
    if old // BUCKET_SIZE != new // BUCKET_SIZE:
        return [(new // BUCKET_SIZE, 1), (old // BUCKET_SIZE, -1)]
    return []


class FickleSpout(OpaqueMemoryTransactionalSpout):
    """Takes another number of rows at each attempt."""

    def __init__(self, data, fields: Fields, take: int, seed: int) -> None:
        super().__init__(data, fields, take)
        self.seed = seed

    def emitter(self, config, context):
        return FickleEmitter(self.rows, self.take_per_batch, self.seed)


@attrs.define(eq=False)
class FickleEmitter(OpaquePartitionedEmitter):
    """Emits the next rows of a partition."""

    rows: object
    take: int
    seed: int

    def emit_batch(self, attempt, collector, partition, previous_metadata):
        start = previous_metadata[1] if previous_metadata is not None else 0
        draw = random.Random(f"{self.seed} {partition} {attempt.txid} {attempt.attempt}")
        end = min(self.rows.lengths()[partition], start + draw.randint(1, self.take))
        if end <= start:
            return None
        self.rows.emit(attempt, partition, start, end, collector)
        return [start, end]


def topic_of(setup: Setup) -> str:
    """Return the topic of a round, which holds the rows of each partition in a partition of its own."""
    return f"soak-{setup.seed}"


def fill_topic(setup: Setup, broker: KafkaBroker) -> None:
    broker.create_topic(topic_of(setup), _PARTITIONS)
    names = list(fields_of(setup))
    for partition, rows in data_of(setup).items():
        records = [dict(zip(names, row, strict=True)) for row in rows]
        values = [json.dumps(record, default=dt.datetime.isoformat).encode() for record in records]
        broker.produce(topic_of(setup), values, partition)


def spout_of(setup: Setup):
    fields = fields_of(setup)
    if setup.kafka:
        kind = OpaqueKafkaSpout if setup.opaque else TransactionalKafkaSpout
        return kind(setup.kafka, topic_of(setup), fields, batch_records_max=_TAKE, until_end=True)
    if setup.opaque:
        return FickleSpout(data_of(setup), fields, _TAKE, setup.seed)
    return MemoryTransactionalSpout(data_of(setup), fields, _TAKE)


def words_topology(setup: Setup) -> Topology:
    """Return spout → pass → count batch → count words (committer) → bucketize → count buckets and moves (committers)."""
    flaw = Flaw(setup.seed)
    builder = TransactionalTopologyBuilder(TOPOLOGY_ID, SPOUT, spout_of(setup), TASKS)
    builder.set_bolt("pass", Pass(flaw, fields_of(setup)), TASKS).shuffle_grouping(SPOUT)
    builder.set_bolt("count-batch", CountBatch(flaw), TASKS).none_grouping("pass")
    builder.set_committer_bolt("count", CountWords(flaw), TASKS).fields_grouping("count-batch", Fields("word"))
    builder.set_bolt("bucketize", Bucketize(), TASKS).none_grouping("count")
    builder.set_committer_bolt("buckets", CountBuckets(flaw), 1).global_grouping("bucketize")
    builder.set_committer_bolt("append", AppendCommitter("moves"), TASKS).none_grouping("bucketize")
    kind = StateKind.OPAQUE if setup.opaque else StateKind.TRANSACTIONAL
    upkeep: dict[str, Any] = {"upkeep_every_writes": 3, "files_max": 3}  # so that a short run comes to it
    builder.set_state("moves", DeltaRows(f"{setup.output}/moves", Fields("bucket: long", "delta: long"), **upkeep))
    for name, key in (("words", "word: string"), ("buckets", "bucket: long")):
        path = f"{setup.output}/{name}"
        state = DeltaState(path, Fields(key), Fields("count: long"), kind, deletion_vectors=name == "words", **upkeep)
        builder.set_state(name, state)
    return builder.build()


def config_of(setup: Setup) -> Config:
    """Return a configuration that makes many small groups, and a session that leaves nothing outside the output."""
    scratch = f"{setup.scratch}/spark"
    settings = {
        "topology.max.spout.pending": 12,
        "topology.group.transactions.max": 4,
        "topology.spark.master": "local[2]",
        "spark.local.dir": scratch,
        "spark.driver.defaultJavaOptions": f"-Djava.io.tmpdir={scratch}",
        f"spark.executorEnv.{ENVIRONMENT}": setup.worker_failpoints,  # theirs are not the driver's
    }
    if setup.keys:
        settings["topology.driver.rows.max"] = TOUCHED
        settings["topology.message.timeout.secs"] = 600  # a machine that many others use folds a million keys slowly
    if setup.real_time:
        settings["topology.processing.mode"] = "real-time"
    if setup.master:
        settings |= settings_on(setup.master, scratch)
    if setup.hosts:
        settings["topology.state.store"] = "zookeeper"
        settings["transactional.zookeeper.servers"] = setup.hosts
        settings["transactional.zookeeper.root"] = f"/soak-{setup.seed}"
        settings["transactional.zookeeper.session.timeout.secs"] = 2
    return Config(settings)
