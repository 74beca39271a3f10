"""The measured topologies: words into a keyed Delta table; and their spouts: words one by one, record batches, files."""

from __future__ import annotations

import time
from array import array
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as F

from committers import AppendCommitter, ReduceCommitter
from spouts import Coordinator, Emitter, FilesTransactionalSpout
from state import DeltaRows, DeltaState
from tests.harness.benchmarks.inputs import SCHEMA, DrawnWords, Rows, file_names
from txtopo import (
    BatchBolt,
    BatchOutputCollector,
    DataFrameBolt,
    DataFrameSpout,
    Fields,
    ICommitter,
    Topology,
    TopologyContext,
    TransactionalSpout,
    TransactionalTopologyBuilder,
    TransactionAttempt,
    Tuple,
)

STATE = "words"
"""The name of the state, and of its table's folder."""


def application(topology_id: str) -> str:
    """Return the application id under which a table's log records txids."""
    return f"{topology_id}/{STATE}"


class NumberedCoordinator(Coordinator):
    """Begins a fixed number of transactions; the metadata is the txid.

    Args:
        transactions: the last txid.
        available_at: takes the time at which each was begun, or was due, in seconds since the epoch, in their order.
        interval_secs: the time between two that are due; None: each is begun as soon as it is asked for.
    """

    def __init__(
        self, transactions: int, available_at: array[float] | None = None, interval_secs: float | None = None
    ) -> None:
        self._transactions = transactions
        self._begun = 0
        self._available_at = array("d") if available_at is None else available_at
        self._interval_secs = interval_secs

    def resume(self, txid: int, metadata: Any) -> None:
        self._begun = txid

    def initialize_transaction(self, txid: int, previous_metadata: Any) -> int:
        self._begun = txid
        if len(self._available_at) < txid:
            self._available_at.append(time.time())
        return txid

    def is_ready(self) -> bool:
        """Whether the next transaction is due; the first call starts the clock."""
        if self._interval_secs is None:
            return True
        if not self._available_at:
            start = time.time()
            self._available_at.extend(start + n * self._interval_secs for n in range(1, self._transactions + 1))
        return time.time() >= self._available_at[self._begun]

    def is_exhausted(self) -> bool:
        return self._begun >= self._transactions


class WakingCoordinator(NumberedCoordinator):
    """One that need not be asked again and again whether the next transaction is due."""

    def wait_ready(self, secs: float) -> bool:
        """Wait until it is due, or so long."""
        if self._begun >= len(self._available_at):
            return False
        left = self._available_at[self._begun] - time.time()
        time.sleep(max(0.0, min(secs, left)))
        return left <= secs


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
    """Emits drawn words; a transaction is due every ``interval_secs``, or at once if that is None.

    Its coordinator is asked whether one is, or ``wakes`` whoever waits.
    """

    output_fields = Fields("attempt", "word")

    def __init__(
        self, words: DrawnWords, transactions: int, interval_secs: float | None = None, *, wakes: bool = False
    ) -> None:
        self._kind = WakingCoordinator if wakes else NumberedCoordinator
        self._words = words
        self._transactions = transactions
        self._interval_secs = interval_secs
        self.begun_at = array("d")
        """When each transaction was begun; with an interval, when it was due. Filled in the driver only.

        A long run is measured with it, so it takes 8 bytes for each: a dictionary took 100 MB for a million.
        """

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        return self._kind(self._transactions, self.begun_at, self._interval_secs)

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
    """Emits rows that are Arrow columns already; a transaction is due every ``interval_secs``, or at once."""

    output_fields = Fields("attempt", "word: string", "n: long")

    def __init__(self, rows: Rows, transactions: int, interval_secs: float | None = None) -> None:
        self._rows = rows
        self._transactions = transactions
        self._interval_secs = interval_secs
        self.begun_at = array("d")
        """As in :class:`WordSpout`; with an interval, of all transactions from the first one on."""

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        return NumberedCoordinator(self._transactions, self.begun_at, self._interval_secs)

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


class PartialCount(BatchBolt):
    """Counts words per batch, tuple by tuple."""

    output_fields = Fields("attempt", "word", "n")

    def prepare(
        self, config: Mapping[str, Any], context: TopologyContext, collector: BatchOutputCollector, attempt: Any
    ) -> None:
        self.counts: dict[str, int] = defaultdict(int)

    def execute(self, tuple: Tuple) -> None:
        _, word = tuple.values
        self.counts[word] += 1

    def finish_batch(self) -> None:
        for word, n in self.counts.items():
            self.collector.emit((self.attempt, word, n))


class AddCounts(BatchBolt, ICommitter):
    """Adds the words' counts to the table."""

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.state = context.state(STATE)
        self.counts: dict[str, int] = defaultdict(int)

    def execute(self, tuple: Tuple) -> None:
        _, word, n = tuple.values
        self.counts[word] += n

    def finish_batch(self) -> None:
        counts = self.counts
        self.state.multi_update(list(counts), lambda word, old: (old or 0) + counts[word])


class AddOnes(AddCounts):
    """Adds one for each word, straight from the spout."""

    def execute(self, tuple: Tuple) -> None:
        _, word = tuple.values
        self.counts[word] += 1


class CountByReduce(ReduceCommitter):
    """A ready-made committer that adds one for each tuple."""

    def execute(self, tuple: Tuple) -> None:
        self.fold(tuple[1], 1)


class SumByWord(DataFrameBolt):
    """Sums by word and transaction, in Spark SQL."""

    output_fields = Fields("attempt", "word: string", "n: long")

    def transform(self, frame: DataFrame) -> DataFrame:
        return frame.groupBy("attempt", "word").agg(F.sum("n").alias("n"))


def fused(
    output: Path,
    spout: WordSpout,
    parallelism: int = 1,
    committers: int = 1,
    *,
    is_ready_made: bool = False,
    deletion_vectors: bool = False,
) -> Topology:
    """Return drawn words → partial count (fused with the emitter) → committer, hand-written or ready-made.

    One task of the committer is enough where transactions run whole: a second one needs a grouping, but uses no more
    cores.
    """
    builder = TransactionalTopologyBuilder("fused", "spout", spout, parallelism)
    builder.set_bolt("partial", PartialCount(), parallelism).shuffle_grouping("spout")
    committer = ReduceCommitter(STATE, "word", "n") if is_ready_made else AddCounts()
    builder.set_committer_bolt("count", committer, committers).fields_grouping("partial", Fields("word"))
    return _into_table(builder, output, deletion_vectors=deletion_vectors)


def appended(output: Path, spout: WordSpout) -> Topology:
    """Return drawn words → partial count → rows, appended to a table without keys."""
    builder = TransactionalTopologyBuilder("appended", "spout", spout, 1)
    builder.set_bolt("partial", PartialCount()).shuffle_grouping("spout")
    builder.set_committer_bolt("append", AppendCommitter(STATE, Fields("word", "n"))).global_grouping("partial")
    builder.set_state(STATE, DeltaRows(output / STATE, Fields("word: string", "n: long")))
    return builder.build()


def shuffled(
    output: Path, words: DrawnWords, transactions: int, parallelism: int = 2, *, is_ready_made: bool = False
) -> Topology:
    """Return drawn words → committer, with a fields grouping of every tuple."""
    spout = WordSpout(words, transactions)
    builder = TransactionalTopologyBuilder("shuffled", "spout", spout, parallelism)
    committer = CountByReduce(STATE, "word", "word") if is_ready_made else AddOnes()
    builder.set_committer_bolt("count", committer, parallelism).fields_grouping("spout", Fields("word"))
    return _into_table(builder, output)


def from_files(output: Path, spout: FileSpout, parallelism: int = 2) -> Topology:
    """Return Parquet files → sums in Spark SQL → reduce, with Spark reading the files."""
    builder = TransactionalTopologyBuilder("from-files", "spout", spout, 1)
    builder.set_bolt("sum", SumByWord()).shuffle_grouping("spout")
    return _reduced(builder, "sum", output, parallelism)


def from_files_combined(output: Path, spout: FileSpout, parallelism: int = 2) -> Topology:
    """Return Parquet files → reduce, with Spark reading the files and combining their rows."""
    builder = TransactionalTopologyBuilder("from-files", "spout", spout, 1)
    return _reduced(builder, "spout", output, parallelism)


def from_files_by_arrow(output: Path, folder: Path, files: int, parallelism: int = 2) -> Topology:
    """Return Parquet files → reduce, with Arrow reading ``files`` of them a transaction in the spout's tasks."""
    spout = FilesTransactionalSpout(folder, Fields("word: string", "n: long"), batch_bytes=2**40, batch_files_max=files)
    builder = TransactionalTopologyBuilder("from-files", "spout", spout, parallelism)
    return _reduced(builder, "spout", output, parallelism)


def big_state(output: Path, spout: BatchSpout, *, is_reduced: bool, deletion_vectors: bool = False) -> Topology:
    """Return record batches → a reduce, or a committer with ``multi_update``, into a table of many keys."""
    builder = TransactionalTopologyBuilder("big-state", "spout", spout, 1)
    if is_reduced:
        return _reduced(builder, "spout", output, 2, deletion_vectors=deletion_vectors)
    builder.set_committer_bolt("count", AddCounts(), 2).fields_grouping("spout", Fields("word"))
    return _into_table(builder, output, deletion_vectors=deletion_vectors)


def _reduced(
    builder: TransactionalTopologyBuilder,
    source: str,
    output: Path,
    parallelism: int,
    *,
    deletion_vectors: bool = False,
) -> Topology:
    reduce = ReduceCommitter(STATE, "word", "n")
    builder.set_committer_bolt("reduce", reduce, parallelism).fields_grouping(source, Fields("word"))
    return _into_table(builder, output, deletion_vectors=deletion_vectors)


def _into_table(builder: TransactionalTopologyBuilder, output: Path, *, deletion_vectors: bool = False) -> Topology:
    fields = {"key": Fields("word: string"), "value": Fields("n: long")}
    table = DeltaState(output / STATE, **fields, deletion_vectors=deletion_vectors)
    builder.set_state(STATE, table)
    return builder.build()
