"""The topology of the cluster's runs: the bolts of the example transactional words, below a spout of invented lines."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import attrs

from examples.transactional_words import BUCKET_SIZE, Bucketize, BucketUpdater, CountUpdater, SplitAndCount
from spouts import TransactionalSpout
from state import DeltaState
from txtopo import Fields, Topology, TransactionalTopologyBuilder
from txtopo.api.spout import Coordinator, Emitter

LARGE_TRANSACTIONS = 3
"""The number of large transactions at the start. Each is too large for one place, and the spout waits after each, so
that it has a job to itself.
"""

_LARGE_LINES = 24_000
_SMALL_LINES = 20
_LINE_WORDS = 4
_WORDS = [f"w{number}" for number in range(400)]
_TASKS = 2


@attrs.frozen
class Lines:
    """The input, the same wherever it is computed."""

    transactions: int

    def of_task(self, txid: int, task: int) -> list[str]:
        count = (_LARGE_LINES if txid <= LARGE_TRANSACTIONS else _SMALL_LINES) // _TASKS
        words = random.Random(f"{txid} {task}").choices(_WORDS, k=count * _LINE_WORDS)
        return [" ".join(words[start : start + _LINE_WORDS]) for start in range(0, len(words), _LINE_WORDS)]

    def word_counts(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for txid in range(1, self.transactions + 1):
            for task in range(_TASKS):
                counts.update(word for line in self.of_task(txid, task) for word in line.split())
        return counts

    def buckets(self) -> Counter[int]:
        """Return how many words occur 0-9, 10-19 … times."""
        return Counter(count // BUCKET_SIZE for count in self.word_counts().values())


@attrs.define(eq=False)
class LinesCoordinator(Coordinator):
    """Begins as many transactions as there are."""

    transactions: int
    begun: int = 0
    rests: bool = False

    def initialize_transaction(self, txid, previous_metadata):
        self.begun = txid
        self.rests = txid <= LARGE_TRANSACTIONS
        return txid

    def is_ready(self):
        rests, self.rests = self.rests, False
        return not rests

    def resume(self, txid, metadata):
        self.begun = txid

    def is_exhausted(self):
        return self.begun >= self.transactions


@attrs.define(eq=False)
class LinesEmitter(Emitter):
    """Emits a task's lines."""

    lines: Lines
    task: int

    def emit_batch(self, attempt, metadata, collector):
        for line in self.lines.of_task(metadata, self.task):
            collector.emit((attempt, line))


class LinesSpout(TransactionalSpout):
    output_fields = Fields("attempt", "line: string")

    def __init__(self, lines: Lines) -> None:
        self.lines = lines

    def coordinator(self, config, context):
        return LinesCoordinator(self.lines.transactions)

    def emitter(self, config, context):
        return LinesEmitter(self.lines, context.this_task_index)


def topology_of(lines: Lines, output: Path) -> Topology:
    """Return spout → split → count (committer) → bucketize → buckets (committer)."""
    builder = TransactionalTopologyBuilder("cluster", "spout", LinesSpout(lines), _TASKS)
    builder.set_bolt("split", SplitAndCount(), _TASKS).shuffle_grouping("spout")
    builder.set_committer_bolt("count", CountUpdater(), _TASKS).fields_grouping("split", Fields("word"))
    builder.set_bolt("bucketize", Bucketize(), _TASKS).none_grouping("count")
    builder.set_committer_bolt("buckets", BucketUpdater(), _TASKS).fields_grouping("bucketize", Fields("bucket"))
    count = Fields("count: long")
    builder.set_state("word-counts", DeltaState(output / "word_counts", key=Fields("word: string"), value=count))
    builder.set_state("buckets", DeltaState(output / "buckets", key=Fields("bucket: long"), value=count))
    return builder.build()
