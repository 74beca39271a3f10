"""The measured topologies: words into a keyed Delta table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, functions as F

from committers import ReduceCommitter
from spouts import FilesTransactionalSpout
from state import DeltaState
from tests.harness.benchmarks.inputs.rows import DrawnWords, TouchedKeys
from tests.harness.benchmarks.word_spouts import BatchSpout, FileSpout, WordSpout
from txtopo import (
    BatchBolt,
    BatchOutputCollector,
    DataFrameBolt,
    Fields,
    ICommitter,
    Topology,
    TopologyContext,
    TransactionalTopologyBuilder,
    TransactionAttempt,
    Tuple,
)

STATE = "words"
"""The name of the state, and of its table's folder."""


def application(topology_id: str) -> str:
    """Return the application id under which a table's log records txids."""
    return f"{topology_id}/{STATE}"


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
    output: Path, spout: WordSpout, parallelism: int = 1, committers: int = 1, *, is_ready_made: bool = False
) -> Topology:
    """Return drawn words → partial count (fused with the emitter) → committer, hand-written or ready-made.

    One task of the committer is enough where transactions run whole: a second one needs a grouping, but uses no more
    cores.
    """
    builder = TransactionalTopologyBuilder("fused", "spout", spout, parallelism)
    builder.set_bolt("partial", PartialCount(), parallelism).shuffle_grouping("spout")
    committer = ReduceCommitter(STATE, "word", "n") if is_ready_made else AddCounts()
    builder.set_committer_bolt("count", committer, committers).fields_grouping("partial", Fields("word"))
    return _into_table(builder, output)


def shuffled(
    output: Path, words: DrawnWords, transactions: int, parallelism: int = 2, *, is_ready_made: bool = False
) -> Topology:
    """Return drawn words → committer, with a fields grouping of every tuple."""
    spout = WordSpout(words, transactions)
    builder = TransactionalTopologyBuilder("shuffled", "spout", spout, parallelism)
    committer = CountByReduce(STATE, "word", "word") if is_ready_made else AddOnes()
    builder.set_committer_bolt("count", committer, parallelism).fields_grouping("spout", Fields("word"))
    return _into_table(builder, output)


def from_files(output: Path, spout: FileSpout, *, has_frame_bolt: bool, parallelism: int = 2) -> Topology:
    """Return Parquet files → (sums in Spark SQL →) reduce, with Spark reading the files."""
    builder = TransactionalTopologyBuilder("from-files", "spout", spout, 1)
    source = "spout"
    if has_frame_bolt:
        builder.set_bolt("sum", SumByWord()).shuffle_grouping("spout")
        source = "sum"
    return _reduced(builder, source, output, parallelism)


def from_files_by_arrow(output: Path, folder: Path, files: int, parallelism: int = 2) -> Topology:
    """Return Parquet files → reduce, with Arrow reading ``files`` of them a transaction in the spout's own tasks."""
    spout = FilesTransactionalSpout(folder, Fields("word: string", "n: long"), batch_bytes=2**40, batch_files_max=files)
    builder = TransactionalTopologyBuilder("from-files", "spout", spout, parallelism)
    return _reduced(builder, "spout", output, parallelism)


def big_state(output: Path, keys: TouchedKeys, transactions: int, *, is_reduced: bool) -> Topology:
    """Return record batches → a reduce, or a committer with ``multi_update``, into a table of many keys."""
    spout = BatchSpout(keys, transactions)
    builder = TransactionalTopologyBuilder("big-state", "spout", spout, 1)
    if is_reduced:
        return _reduced(builder, "spout", output, 2)
    builder.set_committer_bolt("count", AddCounts(), 2).fields_grouping("spout", Fields("word"))
    return _into_table(builder, output)


def _reduced(builder: TransactionalTopologyBuilder, source: str, output: Path, parallelism: int) -> Topology:
    reduce = ReduceCommitter(STATE, "word", "n")
    builder.set_committer_bolt("reduce", reduce, parallelism).fields_grouping(source, Fields("word"))
    return _into_table(builder, output)


def _into_table(builder: TransactionalTopologyBuilder, output: Path) -> Topology:
    table = DeltaState(output / STATE, key=Fields("word: string"), value=Fields("n: long"))
    builder.set_state(STATE, table)
    return builder.build()
