"""DataFrame spouts and bolts, between each other and between Python bolts."""

import time
from collections import Counter

import pytest
from pyspark.sql import SparkSession, functions as F

from committers import ReduceCommitter
from spouts import DataFrameSpout
from state import MemoryState
from tests.spark.ranges import Ranges
from tests.topologies import values_in
from txtopo import BatchBolt, Config, DataFrameBolt, FailedException, Fields, TransactionalTopologyBuilder, run
from txtopo.errors import TopologyError

ROWS = 600
STEP = 100


class Numbers(DataFrameSpout):
    output_fields = Fields("attempt", "k: long", "v: string")

    def coordinator(self, config, context):
        return Ranges(ROWS, STEP)

    def read(self, spark, metadata):
        return spark.range(*metadata).selectExpr("id % 7 AS k", "concat('v', id) AS v")


class CountByKey(DataFrameBolt):
    output_fields = Fields("attempt", "k: long", "n: long")

    def transform(self, frame):
        return frame.groupBy("attempt", "k").agg(F.count("*").alias("n"))


class SumByKey(DataFrameBolt):
    output_fields = Fields("attempt", "k: long", "n: long")

    def transform(self, frame):
        return frame.groupBy("attempt", "k").agg(F.sum("n").alias("n"))


class WrongColumns(CountByKey):
    def transform(self, frame):
        return frame.groupBy("attempt", "k").count()


class PythonCount(BatchBolt):
    output_fields = Fields("attempt", "k: long", "n: long")

    def prepare(self, config, context, collector, attempt):
        self.counts: Counter[int] = Counter()

    def execute(self, tuple):
        self.counts[tuple["k"]] += 1
        if tuple["k"] == 3 and self.attempt.txid == 2 and self.attempt.attempt == 1:
            raise FailedException("once")

    def finish_batch(self):
        for k, n in self.counts.items():
            self.collector.emit((self.attempt, k, n))


EXPECTED = dict(Counter(i % 7 for i in range(ROWS)))


def counts() -> MemoryState:
    return MemoryState(Fields("k: long"), Fields("n: long"))


def add_sum(builder: TransactionalTopologyBuilder, source: str, state: MemoryState) -> None:
    builder.set_bolt("sum", ReduceCommitter("counts", "k", "n"), 2).fields_grouping(source, Fields("k"))
    builder.set_state("counts", state)


@pytest.mark.long
@pytest.mark.parametrize("shape", ["frames", "frame to python", "python to frame"])
def test_frames(spark: SparkSession, shape: str) -> None:
    """DataFrames go on as DataFrames, become tuples, and are made of tuples; a failure replays its own."""
    state = counts()
    builder = TransactionalTopologyBuilder("frames", "spout", Numbers(), 1)
    if shape == "frames":
        builder.set_bolt("count", CountByKey()).shuffle_grouping("spout")
        builder.set_bolt("again", SumByKey()).shuffle_grouping("count")
        add_sum(builder, "again", state)
    elif shape == "frame to python":
        builder.set_bolt("count", PythonCount(), 3).fields_grouping("spout", Fields("k"))
        add_sum(builder, "count", state)
    else:
        builder.set_bolt("count", PythonCount(), 3).shuffle_grouping("spout")
        builder.set_bolt("again", SumByKey()).shuffle_grouping("count")
        add_sum(builder, "again", state)
    report = run(builder.build(), Config(max_spout_pending=8))
    assert values_in(state) == EXPECTED
    assert report.transactions == ROWS // STEP
    assert report.failures == (0 if shape == "frames" else 1)


class SmallNumbers(Numbers):
    """Has other types than its fields, as have the counts below it."""

    output_fields = Fields("attempt", "k: long", "price: decimal(10,2)", "tags: array<string>")

    def read(self, spark, metadata):
        return spark.range(*metadata).selectExpr("CAST(id % 7 AS INT) AS k", "7S AS price", "array() AS tags")


class CountAsInt(CountByKey):
    def transform(self, frame):
        assert [kind for _, kind in frame.dtypes[1:]] == ["bigint", "decimal(10,2)", "array<string>"]
        return frame.groupBy("attempt", "k").agg(F.count("*").cast("int").alias("n"))


def test_types_are_widened(spark: SparkSession) -> None:
    """Columns get the types of their fields, of a spout as of a bolt."""
    state = counts()
    builder = TransactionalTopologyBuilder("frames", "spout", SmallNumbers(), 1)
    builder.set_bolt("count", CountAsInt()).shuffle_grouping("spout")
    add_sum(builder, "count", state)
    run(builder.build())
    assert values_in(state) == EXPECTED


def test_wrong_columns(spark: SparkSession) -> None:
    """A transform() whose columns are not its output fields is refused by name, and the run stops."""
    builder = TransactionalTopologyBuilder("frames", "spout", Numbers(), 1)
    builder.set_bolt("count", WrongColumns()).shuffle_grouping("spout")
    add_sum(builder, "count", counts())
    with pytest.raises(TopologyError, match="'count'") as raised:
        run(builder.build())
    assert raised.value.component == "count"


class OneRange(Ranges):
    def is_exhausted(self):
        return self.end > 0


class SlowNumbers(Numbers):
    """Takes longer to read than an attempt may make no progress; each of its Spark tasks does not."""

    output_fields = Fields("attempt", "k: long", "n: long")

    def coordinator(self, config, context):
        return OneRange(ROWS, STEP)

    def read(self, spark, metadata):
        def slow(batches):
            for batch in batches:
                time.sleep(1.2)  # this is what a slow source does
                yield batch

        frame = spark.range(0, 16, numPartitions=16).selectExpr("id AS k", "id AS n")
        return frame.mapInArrow(slow, frame.schema)


@pytest.mark.long
def test_spark_sql_renews_the_timeout(spark: SparkSession) -> None:
    """Promise 7: work in Spark SQL renews the timeout while its tasks get on, though no code of ours runs there."""
    state = counts()
    builder = TransactionalTopologyBuilder("slow", "spout", SlowNumbers(), 1)
    add_sum(builder, "spout", state)
    report = run(builder.build(), Config(message_timeout_secs=8))
    assert values_in(state) == {n: n for n in range(16)}
    assert (report.attempts, report.failures) == (1, 0)
