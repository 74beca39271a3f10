"""Kafka: a backlog of messages counted by key into Delta, beside Spark's source; and a trickle of messages."""

import functools
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession, functions as F

from committers import ReduceCommitter
from spouts.kafka import TransactionalKafkaSpout
from state import DeltaState
from tests.harness.benchmarks.inputs import DrawnWords, check_delta, check_totals
from tests.harness.benchmarks.log_times import LogWatch, visible_at
from tests.harness.benchmarks.measuring import Bench, Contender, Sample, measure
from tests.harness.benchmarks.outcome import Outcome, Role, Target, Unit
from tests.harness.benchmarks.peers import MergePeer
from tests.harness.benchmarks.topologies import STATE, application
from tests.harness.benchmarks.txtopo_contender import MODES, TXTOPO
from tests.harness.benchmarks.workloads.latency import (
    INTERVAL_SECS,
    LEFT_OUT,
    arrivals_of,
    latency_contenders,
    latency_sample,
)
from txtopo import (
    ArrowBatchBolt,
    Config,
    Fields,
    Progress,
    RunReport,
    TransactionalTopology,
    TransactionalTopologyBuilder,
    run,
)
from txtopo.files.places import folder_at
from txtopo.journal.folders import find_journal
from txtopo.journal.journal import counting_entries, read_journal
from txtopo.servers.kafka import KafkaBroker

MESSAGES = 2_000_000
PARTITIONS = 4
BATCH = 10_000
"""Messages of a batch of foreachBatch, and of a transaction that is compared with it."""
BACKLOG_BATCH = 200_000
"""Messages of a transaction where only the backlog matters."""
WORDS = DrawnWords(tuples=BATCH)
VALUE = b"x" * 92
"""With a key of up to five bytes and what the log adds, about 100 bytes."""
BATCHES, BATCHES_MIN = 12, 4

TRICKLE = 100
"""Messages that arrive at each interval of the trickle."""

SPARK_BATCH = "Spark's source, batch read and count"
LATENCY = "latency, without Kafka"
SMALL = f"{TXTOPO}, {BATCH:,} a transaction"


class CountKeys(ArrowBatchBolt):
    """Counts the keys of each record batch."""

    output_fields = Fields("attempt", "word: string", "n: long")

    def execute(self, batch: pa.RecordBatch) -> None:
        counts = pc.value_counts(batch["key"])
        self.collector.emit_batch(
            pa.RecordBatch.from_arrays([counts.field("values"), counts.field("counts")], names=["word", "n"])
        )


def counted(servers: str, topic: str, output: Path, batch: int, *, until_end: bool = True) -> TransactionalTopology:
    """Return keys of messages → counts of each chunk → reduce."""
    spout = TransactionalKafkaSpout(
        servers, topic, Fields("key: string"), batch_records_max=batch // PARTITIONS, until_end=until_end
    )
    builder = TransactionalTopologyBuilder("kafka", "spout", spout, PARTITIONS)
    builder.set_bolt("count", CountKeys(), PARTITIONS).local_or_shuffle_grouping("spout")
    builder.set_committer_bolt("reduce", ReduceCommitter(STATE, "word", "n"), 2).fields_grouping(
        "count", Fields("word")
    )
    builder.set_state(STATE, DeltaState(output / STATE, key=Fields("word: string"), value=Fields("n: long")))
    return builder.build()


def kafka(bench: Bench) -> Outcome:
    """Measure messages a second through a keyed count into Delta."""
    with KafkaBroker(bench.work / "kafka", heap_mb=384) as broker:
        measured = measure(lambda each: _contenders(each, broker), bench)
    return Outcome(
        workload="kafka",
        title=f"messages of 100 bytes in {PARTITIONS} partitions, counted by key into Delta",
        unit=Unit("messages/s"),
        lines=measured.lines,
        targets=(Target(TXTOPO, SPARK_BATCH, 1.3), Target(SMALL, MergePeer.name, 20)),
        phases=measured.phases,
        notes=(
            "txtopo's figure is for all messages from start to stop, foreachBatch's from its third batch on",
            "Spark's batch read takes the whole range at once, counts it and writes Parquet, without any state",
            "the broker runs on the same cores",
        ),
    )


def kafka_latency(bench: Bench) -> Outcome:
    """Measure how long a few messages take to become visible, beside the same pace without Kafka."""
    with KafkaBroker(bench.work / "kafka", heap_mb=384) as broker:
        measured = measure(lambda each: _trickles(each, broker), bench)
    return Outcome(
        workload="kafka_latency",
        title=f"{TRICKLE} messages every {INTERVAL_SECS * 1000:.0f} ms, available → visible in Delta",
        unit=Unit("ms", is_lower_better=True),
        lines=measured.lines,
        targets=(Target(f"{TXTOPO} p50", f"{LATENCY} p50", 1.3, is_at_most=True),),
        phases=measured.phases,
        notes=(
            "messages are available when the broker has acknowledged all of an arrival",
            f"{LATENCY}: txtopo in the workload latency, whose spout draws its words itself",
            LEFT_OUT,
        ),
    )


def _trickles(bench: Bench, broker: KafkaBroker) -> Sequence[Contender]:
    arrivals = arrivals_of(bench)

    def ours(mode: str, folder: Path) -> Sample:
        topic = f"trickle-{time.time_ns()}"
        broker.create_topic(topic, PARTITIONS)
        topology = counted(broker.servers, topic, folder, BATCH, until_end=False)
        trickle = _Trickle(broker, topic, arrivals)

        def stop_at_end(progress: Progress) -> None:
            if progress.tuples and not trickle.is_alive() and trickle.is_visible(folder / STATE):
                signal.raise_signal(signal.SIGTERM)

        trickle.start()
        with LogWatch(folder / STATE) as watch:
            report = run(topology, MODES[mode], spark=bench.spark, on_progress=stop_at_end)
        check_delta(TXTOPO, folder / STATE, DrawnWords(TRICKLE).totals(arrivals))
        return trickle.sample(folder, topology, report, watch.seen)

    without = next(contender for contender in latency_contenders(bench) if contender.role is Role.TXTOPO)
    both = [Contender(mode, Role.TXTOPO, functools.partial(ours, mode)) for mode in MODES]
    return [*both, Contender(LATENCY, Role.LIMIT, without.run)]


class _Trickle(Thread):
    """Produces some messages at each interval, all of an arrival to one partition."""

    def __init__(self, broker: KafkaBroker, topic: str, arrivals: int) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._topic = topic
        self._arrivals = arrivals
        self._available: list[float] = []

    def run(self) -> None:
        """Produce all arrivals, each when it is due."""
        producer = Producer({"bootstrap.servers": self._broker.servers, "linger.ms": 0})
        words, pause, start = DrawnWords(TRICKLE), Event(), time.time()
        for number in range(self._arrivals):
            keys = words.share(number + 1, 0)
            pause.wait(max(0.0, start + (number + 1) * INTERVAL_SECS - time.time()))
            for key in keys:
                producer.produce(self._topic, VALUE, key.encode(), partition=number % PARTITIONS)
            producer.flush()
            self._available.append(time.time())

    def is_visible(self, table: Path) -> bool:
        """Return whether the table has all messages."""
        rows = pa.table(DeltaTable(str(table)).scan(columns=["n"]))
        return bool(pc.sum(rows["n"]).as_py() == self._arrivals * TRICKLE)

    def sample(
        self, folder: Path, topology: TransactionalTopology, report: RunReport, seen: Mapping[int, float]
    ) -> Sample:
        """Return how long each arrival took, by the transactions that took it and the versions that were seen."""
        journal = find_journal(folder_at(folder / "_txtopo"), topology.plan.topology_id)
        ends = [
            (transaction.txid, transaction.input)
            for entry in counting_entries(read_journal(journal), lambda _entry: True)
            for transaction in entry.transactions
        ]
        taken_by = []
        for number in range(self._arrivals):
            name, last = f"{self._topic}-{number % PARTITIONS}", (number // PARTITIONS + 1) * TRICKLE
            taken_by.append(next(txid for txid, ranges in ends if name in ranges and ranges[name][1] >= last))
        visible = visible_at(folder / STATE, application(topology.plan.topology_id), 1, max(taken_by), seen)
        return latency_sample(np.array(self._available), visible[np.array(taken_by) - 1], report)


def _messages(bench: Bench) -> int:
    return bench.times(MESSAGES // BATCH, BATCHES_MIN) * BATCH


def _contenders(bench: Bench, broker: KafkaBroker) -> Sequence[Contender]:
    transactions = _messages(bench) // BATCH
    topic = f"messages-{transactions}"
    _fill(broker, topic, transactions)
    batches = bench.times(BATCHES, BATCHES_MIN)
    few = f"few-{batches}"
    _fill(broker, few, batches)
    totals = WORDS.totals(transactions)

    def ours(name: str, batch: int) -> Contender:
        def once(folder: Path) -> Sample:
            report = run(counted(broker.servers, topic, folder, batch), Config(), spark=bench.spark)
            check_delta(name, folder / STATE, totals)
            return Sample({"": transactions * BATCH / report.elapsed_secs}, report)

        return Contender(name, Role.TXTOPO, once)

    def batch_read(folder: Path) -> Sample:
        started = time.perf_counter()
        source = bench.spark.read.format("kafka").options(**_options(broker, topic)).load()
        source.groupBy(F.col("key").cast("string").alias("word")).agg(F.count("*").alias("n")).write.parquet(
            str(folder / "words")
        )
        secs = time.perf_counter() - started
        check_totals(SPARK_BATCH, pq.read_table(folder / "words"), totals)
        return Sample({"": transactions * BATCH / secs})

    return [
        ours(TXTOPO, BACKLOG_BATCH),
        ours(SMALL, BATCH),
        Contender(SPARK_BATCH, Role.LIMIT, batch_read),
        Contender(
            MergePeer.name, Role.PEER, lambda folder: _foreach_batch(bench.spark, broker, few, batches, folder), True
        ),
    ]


def _options(broker: KafkaBroker, topic: str) -> dict[str, str]:
    """Return the options of Spark's source; more records a poll than the default make it quicker."""
    return {
        "kafka.bootstrap.servers": broker.servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "kafka.max.poll.records": "20000",
    }


def _foreach_batch(spark: SparkSession, broker: KafkaBroker, topic: str, batches: int, folder: Path) -> Sample:
    peer = MergePeer()
    peer.create(spark, folder / "words")
    ends: list[float] = []

    def merge(frame: DataFrame, batch_id: int) -> None:
        peer.merge(frame.select(F.col("key").cast("string").alias("word"), F.lit(1).cast("long").alias("n")), batch_id)
        ends.append(time.perf_counter())

    stream = spark.readStream.format("kafka").options(**_options(broker, topic), maxOffsetsPerTrigger=str(BATCH)).load()
    writer = stream.writeStream.foreachBatch(merge).option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    check_delta(peer.name, folder / "words", WORDS.totals(batches))
    return Sample({"": (len(ends) - 2) * BATCH / (ends[-1] - ends[1])})


def _fill(broker: KafkaBroker, topic: str, transactions: int) -> None:
    """Produce the words of some transactions to a topic, unless it exists."""
    if topic in broker.admin().list_topics(timeout=10).topics:
        return
    broker.create_topic(topic, PARTITIONS)
    for txid in range(1, transactions + 1):
        keys = WORDS.batch(txid)["word"].to_pylist()
        broker.produce(topic, [(key.encode(), VALUE) for key in keys], txid % PARTITIONS, batch_size=1_000_000)
