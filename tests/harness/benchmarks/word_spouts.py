"""The spouts that are measured: words tuple by tuple, record batches, Parquet files."""

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
    """Begins transactions up to a number of them; the metadata is the txid.

    Args:
        transactions: the last one.
        begun_at: learns when each was begun, seconds since the epoch.
    """

    def __init__(self, transactions: int, begun_at: dict[int, float] | None = None) -> None:
        self._transactions = transactions
        self._begun = 0
        self._begun_at = {} if begun_at is None else begun_at

    def resume(self, txid: int, metadata: Any) -> None:
        """Go on behind the last transaction begun."""
        self._begun = txid

    def initialize_transaction(self, txid: int, previous_metadata: Any) -> int:
        """Begin the next transaction."""
        self._begun = txid
        self._begun_at[txid] = time.time()
        return txid

    def is_exhausted(self) -> bool:
        """Whether the last transaction is begun."""
        return self._begun >= self._transactions


class ClockCoordinator(NumberedCoordinator):
    """Begins a transaction when the clock says so.

    Args:
        transactions: the last one.
        interval_secs: time between two.
        available_at: learns when each became available, seconds since the epoch.
    """

    def __init__(self, transactions: int, interval_secs: float, available_at: dict[int, float]) -> None:
        super().__init__(transactions)
        self._available_at = available_at
        self._interval_secs = interval_secs

    def is_ready(self) -> bool:
        """Whether the next transaction is available by now; the first question starts the clock."""
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
        """Emit this task's share."""
        emit = collector.emit
        for word in self._words.share(metadata, self._task):
            emit((attempt, word))


class WordSpout(TransactionalSpout):
    """Draws words.

    Args:
        words: what it draws.
        transactions: how often.
        interval_secs: time between two transactions; None: all are available at once.
    """

    output_fields = Fields("attempt", "word")

    def __init__(self, words: DrawnWords, transactions: int, interval_secs: float | None = None) -> None:
        self._words = words
        self._transactions = transactions
        self._interval_secs = interval_secs
        self.begun_at: dict[int, float] = {}
        """When each transaction was begun; with an interval, when it became available. In the driver only."""

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        """Return a coordinator that counts, or goes by the clock."""
        if self._interval_secs is None:
            return NumberedCoordinator(self._transactions, self.begun_at)
        return ClockCoordinator(self._transactions, self._interval_secs, self.begun_at)

    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> Emitter:
        """Return an emitter of a task's share."""
        return WordEmitter(self._words, context.this_task_index)


class BatchEmitter(Emitter):
    """Emits the rows of a transaction as record batches."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def emit_batch(self, attempt: TransactionAttempt, metadata: int, collector: BatchOutputCollector) -> None:
        """Emit all rows."""
        for batch in self._rows.batch(metadata).to_batches(max_chunksize=100_000):
            collector.emit_batch(batch)


class BatchSpout(TransactionalSpout):
    """Emits rows that are Arrow columns already.

    Args:
        rows: what it emits.
        transactions: how many.
    """

    output_fields = Fields("attempt", "word: string", "n: long")

    def __init__(self, rows: Rows, transactions: int) -> None:
        self._rows = rows
        self._transactions = transactions

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        """Return a coordinator that counts."""
        return NumberedCoordinator(self._transactions)

    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> Emitter:
        """Return an emitter of all rows."""
        return BatchEmitter(self._rows)


class FileSpout(DataFrameSpout):
    """Lets Spark read some Parquet files for a transaction.

    Args:
        folder: where they lie, see :func:`tests.harness.benchmarks.inputs.files.write_files`.
        transactions: how many there are.
        files: files of a transaction.
    """

    output_fields = Fields("attempt", "word: string", "n: long")

    def __init__(self, folder: Path, transactions: int, files: int) -> None:
        self._folder = str(folder)
        self._transactions = transactions
        self._files = files

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        """Return a coordinator that counts."""
        return NumberedCoordinator(self._transactions)

    def read(self, spark: SparkSession, metadata: int) -> DataFrame:
        """Return a transaction's rows."""
        paths = [f"{self._folder}/{name}" for name in file_names(metadata, self._files)]
        return spark.read.schema(SCHEMA).parquet(*paths)
