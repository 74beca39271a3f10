"""The word-count workload that txtopo and its peers run: the same tuples, so the same totals."""

from __future__ import annotations

import pathlib
import random
from collections import Counter

from spouts import Coordinator, Emitter
from state import DeltaState
from txtopo import BatchBolt, Fields, ICommitter, Topology, TransactionalSpout, TransactionalTopologyBuilder

KEYS = 10_000
WORDS = [f"w{i}" for i in range(KEYS)]


def words_of(txid: int, tuples: int) -> list[str]:
    """Return the words of one transaction: the same for the same txid."""
    return random.Random(txid).choices(WORDS, k=tuples)


def expected(transactions: int, tuples: int) -> Counter[str]:
    """Return the totals that everyone must come to."""
    totals: Counter[str] = Counter()
    for txid in range(1, transactions + 1):
        totals.update(words_of(txid, tuples))
    return totals


class GeneratedCoordinator(Coordinator):
    """Begins transactions up to a number of them."""

    def __init__(self, transactions: int) -> None:
        self._transactions = transactions
        self._begun = 0

    def resume(self, txid, metadata):
        self._begun = txid

    def initialize_transaction(self, txid, previous_metadata):
        self._begun = txid
        return txid

    def is_exhausted(self):
        return self._begun >= self._transactions


class GeneratedEmitter(Emitter):
    """Emits the words of a transaction, tuple by tuple."""

    def __init__(self, tuples: int) -> None:
        self._tuples = tuples

    def emit_batch(self, attempt, metadata, collector):
        emit = collector.emit
        for word in words_of(metadata, self._tuples):
            emit((attempt, word))


class GeneratedSpout(TransactionalSpout):
    """Generates words."""

    output_fields = Fields("attempt", "word")

    def __init__(self, transactions: int, tuples: int) -> None:
        self._transactions = transactions
        self._tuples = tuples

    def coordinator(self, config, context):
        return GeneratedCoordinator(self._transactions)

    def emitter(self, config, context):
        return GeneratedEmitter(self._tuples)


class PartialCount(BatchBolt):
    """Counts words per batch, tuple by tuple."""

    output_fields = Fields("attempt", "word", "n")

    def prepare(self, config, context, collector, attempt):
        self.counts: dict[str, int] = {}

    def execute(self, tuple):
        word = tuple[1]
        self.counts[word] = self.counts.get(word, 0) + 1

    def finish_batch(self):
        for word, n in self.counts.items():
            self.collector.emit((self.attempt, word, n))


class AddCounts(BatchBolt, ICommitter):
    """Adds partial counts to the table."""

    def prepare(self, config, context, collector, attempt):
        self.state = context.state("words")
        self.counts: dict[str, int] = {}

    def execute(self, tuple):
        word = tuple[1]
        self.counts[word] = self.counts.get(word, 0) + tuple[2]

    def finish_batch(self):
        counts = self.counts
        self.state.multi_update(list(counts), lambda word, old: (old or 0) + counts[word])


def topology(output: pathlib.Path, transactions: int, tuples: int) -> Topology:
    """Return generated words → partial count (fused) → keyed committer into Delta."""
    builder = TransactionalTopologyBuilder("small", "spout", GeneratedSpout(transactions, tuples), 1)
    builder.set_bolt("partial", PartialCount(), 1).shuffle_grouping("spout")
    builder.set_committer_bolt("count", AddCounts(), 2).fields_grouping("partial", Fields("word"))
    builder.set_state("words", DeltaState(output / "words", key=Fields("word: string"), value=Fields("n: long")))
    return builder.build()
