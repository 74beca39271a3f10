"""Peers: what people write by hand today, each at its best tuning; and the limit, one plain Spark job.

Most people write ``foreachBatch`` with delta-spark's ``MERGE``; an expert aggregates in Spark, collects by Arrow, and
lets delta-rs merge. The limit reads all files in one job into Parquet files, without transactions and state.
"""

import time
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.harness.benchmarks.inputs import SCHEMA, Rows, check_delta, check_totals
from tests.harness.benchmarks.measuring import Contender, Sample
from tests.harness.benchmarks.outcome import Role


class Peer(Protocol):
    """Merges batches of words into a Delta table, each once."""

    name: str
    needs_delta_jars: bool

    def create(self, spark: SparkSession, table: Path) -> None:
        """Make the table, as version 0."""

    def merge(self, frame: DataFrame, batch_id: int) -> None:
        """Merge a batch, in one version of the table."""


def stream_contender(
    spark: SparkSession, peer: Peer, source: Path, rows: Rows, batches: int, files: int = 1
) -> Contender:
    """Return a peer as a contender, in batches a second from the third one on: the first two start the stream.

    There must be at least 4 batches, of ``files`` files each.
    """

    def run(folder: Path) -> Sample:
        peer.create(spark, folder / "words")
        ends: list[float] = []

        def merge(frame: DataFrame, batch_id: int) -> None:
            peer.merge(frame, batch_id)
            ends.append(time.perf_counter())

        stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files).parquet(str(source))
        writer = stream.writeStream.foreachBatch(merge).option("checkpointLocation", str(folder / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
        check_delta(peer.name, folder / "words", rows.totals(batches))
        # From the end of the second batch: the first ones start the query and compile its plans.
        return Sample({"": (len(ends) - 2) / (ends[-1] - ends[1])})

    return Contender(peer.name, Role.PEER, run, needs_delta_jars=peer.needs_delta_jars)


def start_stream(spark: SparkSession, peer: Peer, source: Path, checkpoint: Path) -> StreamingQuery:
    """Start a stream that takes all files there are, again and again, as fast as it can."""
    stream = spark.readStream.schema(SCHEMA).parquet(str(source))
    writer: DataStreamWriter = stream.writeStream.foreachBatch(peer.merge)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime="0 seconds").start()


class MergePeer:
    """Merges by Spark; each row records the batch that changed it last, so that a batch counts once."""

    name = "foreachBatch + MERGE"
    needs_delta_jars = True

    def create(self, spark: SparkSession, table: Path) -> None:
        self._spark = spark
        self._table = str(table)
        spark.createDataFrame([], "word string, n long, txid long").write.format("delta").save(self._table)

    def merge(self, frame: DataFrame, batch_id: int) -> None:
        from delta import DeltaTable  # as that peer does; whoever has no delta-spark leaves it out

        sums = frame.groupBy("word").agg(F.sum("n").alias("n")).withColumn("txid", F.lit(batch_id).cast("long"))
        merger = DeltaTable.forPath(self._spark, self._table).alias("t").merge(sums.alias("s"), "t.word = s.word")
        update = merger.whenMatchedUpdate("t.txid < s.txid", {"n": "t.n + s.n", "txid": "s.txid"})
        update.whenNotMatchedInsertAll().execute()


_APPLICATION = "peer"
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class DeltaRsPeer:
    """Merges in the driver's process; the log records the last batch, so that each counts once."""

    name = "foreachBatch + delta-rs"
    needs_delta_jars = False

    def create(self, spark: SparkSession, table: Path) -> None:
        del spark
        self._table = DeltaTable.create(str(table), pa.schema([("word", pa.string()), ("n", pa.int64())]))

    def merge(self, frame: DataFrame, batch_id: int) -> None:
        """Merge a batch, unless the table has it."""
        merge_rows(self._table, frame.groupBy("word").agg(F.sum("n").alias("n")).toArrow(), batch_id)


def merge_rows(table: DeltaTable, rows: pa.Table, batch_id: int) -> None:
    """Add the rows' numbers to a table, in one delta-rs ``MERGE``, unless it has that batch.

    Each word is once in ``rows``, and ``batch_id`` only rises. The table's handle is brought up to date afterwards.
    """
    last = table.transaction_version(_APPLICATION)
    if last is not None and last >= batch_id:
        return
    merger = table.merge(
        rows,
        "t.word = s.word",
        source_alias="s",
        target_alias="t",
        commit_properties=CommitProperties(app_transactions=[Transaction(_APPLICATION, batch_id)]),
        post_commithook_properties=_NO_HOOKS,
    )
    merger.when_matched_update({"n": "t.n + s.n"}).when_not_matched_insert_all().execute()
    table.update_incremental()


LIMIT = "one plain Spark job"


def limit_contender(spark: SparkSession, source: Path, rows: Rows, transactions: int) -> Contender:
    """Return the limit as a contender, in transactions a second."""

    def run(folder: Path) -> Sample:
        started = time.perf_counter()
        sums = spark.read.schema(SCHEMA).parquet(str(source)).groupBy("word").agg(F.sum("n").alias("n"))
        sums.write.parquet(str(folder / "words"))
        secs = time.perf_counter() - started
        check_totals(LIMIT, pq.read_table(folder / "words"), rows.totals(transactions))
        return Sample({"": transactions / secs})

    return Contender(LIMIT, Role.LIMIT, run)
