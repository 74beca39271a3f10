"""The spouts of the measured topologies: words tuple by tuple, record batches, and Parquet files."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spouts import Coordinator, Emitter
from tests.harness.benchmarks.inputs.files import SCHEMA, file_names
from tests.harness.benchmarks.inputs.rows import DrawnWords, Rows
from txtopo import (
    BatchOutputCollector,
    DataFrameSpout,
    Fields,
    TopologyContext,
    TransactionalSpout,
    TransactionAttempt,
)


class NumberedCoordinator(Coordinator):
    """Begins a fixed number of transactions; the metadata is the txid.

    Args:
        transactions: the last txid.
        begun_at: takes the time at which each was begun, in seconds since the epoch.
    """

    def __init__(self, transactions: int, begun_at: dict[int, float] | None = None) -> None:
        self._transactions = transactions
        self._begun = 0
        self._begun_at = {} if begun_at is None else begun_at

    def resume(self, txid: int, metadata: Any) -> None:
        self._begun = txid

    def initialize_transaction(self, txid: int, previous_metadata: Any) -> int:
        self._begun = txid
        self._begun_at[txid] = time.time()
        return txid

    def is_exhausted(self) -> bool:
        return self._begun >= self._transactions


class ClockCoordinator(NumberedCoordinator):
    """Begins a transaction when the clock says so.

    Args:
        transactions: the last txid.
        interval_secs: the time between two.
        available_at: takes the time at which each was due, in seconds since the epoch.
    """

    def __init__(self, transactions: int, interval_secs: float, available_at: dict[int, float]) -> None:
        super().__init__(transactions)
        self._available_at = available_at
        self._interval_secs = interval_secs

    def is_ready(self) -> bool:
        """Whether the next transaction is due; the first call starts the clock."""
        if not self._available_at:
            start = time.time()
            self._available_at |= {n: start + n * self._interval_secs for n in range(1, self._transactions + 1)}
        return time.time() >= self._available_at[self._begun + 1]


class WordEmitter(Emitter):
    """Emits the words of a transaction, tuple by tuple."""

    def __init__(self, words: DrawnWords, task: int) -> None:
        self._words = words
        self._task = task

    def emit_batch(self, attempt: TransactionAttempt, metadata: int, collector: BatchOutputCollector) -> None:
        emit = collector.emit
        for word in self._words.share(metadata, self._task):
            emit((attempt, word))


class WordSpout(TransactionalSpout):
    """Emits drawn words; a transaction is due every ``interval_secs``, or at once if that is None."""

    output_fields = Fields("attempt", "word")

    def __init__(self, words: DrawnWords, transactions: int, interval_secs: float | None = None) -> None:
        self._words = words
        self._transactions = transactions
        self._interval_secs = interval_secs
        self.begun_at: dict[int, float] = {}
        """When each transaction was begun; with an interval, when it was due. Filled in the driver only."""

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        if self._interval_secs is None:
            return NumberedCoordinator(self._transactions, self.begun_at)
        return ClockCoordinator(self._transactions, self._interval_secs, self.begun_at)

    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> Emitter:
        return WordEmitter(self._words, context.this_task_index)


class BatchEmitter(Emitter):
    """Emits the rows of a transaction as record batches."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def emit_batch(self, attempt: TransactionAttempt, metadata: int, collector: BatchOutputCollector) -> None:
        for batch in self._rows.batch(metadata).to_batches(max_chunksize=100_000):
            collector.emit_batch(batch)


class BatchSpout(TransactionalSpout):
    """Emits rows that are Arrow columns already."""

    output_fields = Fields("attempt", "word: string", "n: long")

    def __init__(self, rows: Rows, transactions: int) -> None:
        self._rows = rows
        self._transactions = transactions

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        return NumberedCoordinator(self._transactions)

    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> Emitter:
        return BatchEmitter(self._rows)


class FileSpout(DataFrameSpout):
    """Lets Spark read ``files`` Parquet files a transaction, as ``inputs.files.write_files`` wrote them."""

    output_fields = Fields("attempt", "word: string", "n: long")

    def __init__(self, folder: Path, transactions: int, files: int) -> None:
        self._folder = str(folder)
        self._transactions = transactions
        self._files = files

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        return NumberedCoordinator(self._transactions)

    def read(self, spark: SparkSession, metadata: int) -> DataFrame:
        """Return a transaction's rows."""
        paths = [f"{self._folder}/{name}" for name in file_names(metadata, self._files)]
        return spark.read.schema(SCHEMA).parquet(*paths)
