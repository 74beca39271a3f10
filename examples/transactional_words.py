"""Storm's TransactionalWords: counts how often each word occurs, and how many words occur 0-9, 10-19 … times.

Run it with ``txtopo run examples.transactional_words``; ``--set input=DIR`` reads other text. Kill it at
any moment and run it again: it resumes where it was, and both tables end up as if nothing had happened.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from rich.console import Console

from examples.text_files import all_files, standard_library_sources
from examples.words_report import print_report
from spouts import FilesTransactionalSpout
from state import DeltaState
from txtopo import (
    BasicBolt,
    BasicOutputCollector,
    BatchBolt,
    BatchOutputCollector,
    Config,
    Fields,
    TopologyContext,
    TransactionalTopology,
    TransactionalTopologyBuilder,
    Tuple,
)

OUTPUT = "txtopo-data/transactional-words"
BUCKET_SIZE = 10

_WORD = re.compile(r"\w+")


class SplitAndCount(BatchBolt):
    """Counts the words in a task's part of a batch, so that few tuples travel to the committer."""

    output_fields = Fields("attempt", "word: string", "count: long")

    def prepare(self, config: Any, context: TopologyContext, collector: BatchOutputCollector, attempt: Any) -> None:
        """Start with no words."""
        self.counts: Counter[str] = Counter()

    def execute(self, tuple: Tuple) -> None:
        """Count the words of one line."""
        self.counts.update(map(str.lower, _WORD.findall(tuple["line"])))

    def finish_batch(self) -> None:
        """Emit each word with its count."""
        for word, count in self.counts.items():
            self.collector.emit((self.attempt, word, count))


class CountUpdater(BatchBolt):
    """Adds a batch's counts to the words' totals: a committer."""

    output_fields = Fields("attempt", "word: string", "new: long", "old: long")

    def prepare(self, config: Any, context: TopologyContext, collector: BatchOutputCollector, attempt: Any) -> None:
        """Get the words' totals."""
        self.totals = context.state("word-counts")
        self.counts: Counter[str] = Counter()

    def execute(self, tuple: Tuple) -> None:
        """Add the count from one task; runs in the processing phase."""
        self.counts[tuple["word"]] += tuple["count"]

    def finish_batch(self) -> None:
        """Update all totals of the batch, and emit the new and old total of each word."""

        def add(word: Any, old: int | None) -> int:
            return (old or 0) + self.counts[word]

        totals = self.totals.multi_update(list(self.counts), add)
        for (word, count), new in zip(self.counts.items(), totals, strict=True):
            self.collector.emit((self.attempt, word, new, new - count))


class Bucketize(BasicBolt):
    """Emits the bucket that a word enters and the bucket that it leaves; runs in the commit phase too."""

    output_fields = Fields("attempt", "bucket: long", "delta: long")

    def execute(self, tuple: Tuple, collector: BasicOutputCollector) -> None:
        """Compare the buckets of one word's new and old total; an old total of 0 means a new word."""
        new, old = tuple["new"] // BUCKET_SIZE, tuple["old"] // BUCKET_SIZE
        if tuple["old"] == 0:
            collector.emit((tuple.attempt, new, 1))
        elif new != old:
            collector.emit((tuple.attempt, new, 1))
            collector.emit((tuple.attempt, old, -1))


class BucketUpdater(BatchBolt):
    """Counts the words in each bucket: a committer below a committer."""

    def prepare(self, config: Any, context: TopologyContext, collector: BatchOutputCollector, attempt: Any) -> None:
        """Get the buckets."""
        self.buckets = context.state("buckets")
        self.deltas: Counter[int] = Counter()

    def execute(self, tuple: Tuple) -> None:
        """Gather how a bucket changes."""
        self.deltas[tuple["bucket"]] += tuple["delta"]

    def finish_batch(self) -> None:
        """Update the buckets, and remove empty ones."""

        def add(bucket: Any, old: int | None) -> int:
            return (old or 0) + self.deltas[bucket]

        counts = self.buckets.multi_update(list(self.deltas), add)
        self.buckets.multi_remove([b for b, count in zip(self.deltas, counts, strict=True) if count == 0])


def topology(
    input: str | None = None, output: str = OUTPUT, parallelism: int = 4, batch_bytes: int = 64 * 1024
) -> TransactionalTopology:
    """Return the topology; the input is a folder of UTF-8 text, or by default Python's standard library."""
    files = standard_library_sources() if input is None else all_files(input)
    spout = FilesTransactionalSpout(files, Fields("line: string"), "text", batch_bytes=batch_bytes)
    builder = TransactionalTopologyBuilder("transactional-words", "spout", spout, parallelism)
    builder.set_bolt("split", SplitAndCount(), parallelism).shuffle_grouping("spout")
    builder.set_committer_bolt("count", CountUpdater(), parallelism).fields_grouping("split", Fields("word"))
    builder.set_bolt("bucketize", Bucketize(), parallelism).none_grouping("count")
    builder.set_committer_bolt("buckets", BucketUpdater(), parallelism).fields_grouping("bucketize", Fields("bucket"))
    count = Fields("count: long")
    builder.set_state("word-counts", DeltaState(f"{output}/word_counts", key=Fields("word: string"), value=count))
    builder.set_state("buckets", DeltaState(f"{output}/buckets", key=Fields("bucket: long"), value=count))
    return builder.build()


def config() -> Config:
    """Return the default configuration for ``txtopo run``: at most 32 pending transactions."""
    return Config(max_spout_pending=32)


def show_results(console: Console, output: str) -> None:
    """Print the most common words, a chart of the buckets, and the paths of the tables."""
    print_report(console, output, BUCKET_SIZE)
