"""Structured Streaming over a folder of Parquet files, with ``foreachBatch`` into a peer's table."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.harness.benchmarks.inputs.checking import check_delta
from tests.harness.benchmarks.inputs.files import SCHEMA
from tests.harness.benchmarks.inputs.rows import Rows
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
