"""Structured Streaming: windows and deduplication below a watermark, with states in RocksDB, appended to Delta."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as F

from tests.harness.benchmarks.event_time import orders as orders_of
from tests.harness.benchmarks.event_time.doubled import WITHIN_SECS
from tests.harness.benchmarks.event_time.events import DELAY_SECS, WINDOW_SECS
from tests.harness.benchmarks.event_time.files import FILES

STREAMING = "Structured Streaming"

_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Without a batch after the last rows, the windows that those have closed are never emitted.
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}


def windows_of(stream: DataFrame) -> DataFrame:
    """Return the windows' counts and totals by key."""
    timed = stream.withWatermark("at", f"{DELAY_SECS} seconds")
    counts = timed.groupBy("key", F.window("at", f"{WINDOW_SECS} seconds").alias("w"))
    sums = counts.agg(F.count("*").alias("events"), F.sum("value").alias("total"))
    return sums.select("key", F.col("w.start").alias("start"), "events", "total")


def once_each(stream: DataFrame) -> DataFrame:
    """Return each id once."""
    return stream.withWatermark("at", f"{WITHIN_SECS} seconds").dropDuplicatesWithinWatermark(["id"])


def joined(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """Return each order with each payment that comes within its time."""
    waiting = [
        each.withWatermark(at, f"{orders_of.DELAY_SECS} seconds")
        for each, at in ((orders, "at"), (payments, "paid_at"))
    ]
    within = f"paid_at BETWEEN at AND at + INTERVAL {orders_of.WITHIN_SECS} SECONDS"
    return waiting[0].join(waiting[1], F.expr(f"id = order AND {within}")).select(*orders_of.JOINED)


Read = Callable[[Path, str], DataFrame]
"""Returns a stream of files, with a schema."""


def stream_into_delta(
    spark: SparkSession, make: Callable[[Read], DataFrame], folder: Path, batches_skipped: int
) -> float:
    """Stream all transactions into the Delta table ``folder / "table"``, and return the events a second.

    The first batches, which start the query and compile its plans, and the last one, which brings no events and closes
    windows, are not counted.
    """
    session = spark.newSession()  # its settings are its own
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)

    def read(source: Path, schema: str) -> DataFrame:
        return session.readStream.schema(schema).option("maxFilesPerTrigger", FILES).parquet(str(source))

    writer = make(read).writeStream.format("delta").outputMode("append")
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    started = query.start(str(folder / "table"))
    started.awaitTermination()
    return _rate([each for each in started.recentProgress if each["numInputRows"]], batches_skipped)


def _rate(batches: Sequence[Any], skipped: int) -> float:
    """Return the events a second from the end of the skipped batches to that of the last one."""
    start, end = (_end_secs(batches[index]) for index in (skipped - 1, -1))
    return float(sum(each["numInputRows"] for each in batches[skipped:]) / (end - start))


def _end_secs(progress: Any) -> float:
    begun = dt.datetime.fromisoformat(progress["timestamp"]).timestamp()
    return begun + float(progress["durationMs"]["triggerExecution"]) / 1000
