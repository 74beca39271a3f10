"""Small topologies that the acceptance tests run: importable, for Spark's workers import them too."""

import os
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

from spouts.memory import MemoryTransactionalSpout
from state.delta.keyed.state import DeltaState
from txtopo import (
    BasicBolt,
    BatchBolt,
    FailedException,
    Fields,
    ICommitter,
    Topology,
    TransactionalTopologyBuilder,
)
from txtopo.api.state import State

WORDS = ("cat", "dog", "apple", "banana", "chicken", "zebra", "mango")


def make_data(partitions: int, rows: int, seed: int = 7) -> dict[int, list[list[str]]]:
    """Return rows of words for each partition, of different lengths."""
    rng = random.Random(seed)
    return {p: [[rng.choice(WORDS) + str(rng.randrange(5))] for _ in range(rows + 3 * p)] for p in range(partitions)}


def counts_of(data: Mapping[int, list[list[str]]]) -> Counter[str]:
    """Return what the word counts must be."""
    return Counter(row[0] for rows in data.values() for row in rows)


class CountTuples(BatchBolt, ICommitter):
    """Counts all tuples, in the state ``total`` under the key ``n``."""

    def prepare(self, config, context, collector, attempt):
        self.state = context.state("total")
        self.n = 0

    def execute(self, tuple):
        self.n += 1

    def finish_batch(self):
        self.state.update("n", lambda old: (old or 0) + self.n)


class Flaky:
    """Raises FailedException now and then: how often is read from a file, so that workers see it too."""

    where: str = ""
    probability: float = 0.0

    def maybe_fail(self) -> None:
        if self.probability and random.SystemRandom().random() < self.probability:
            raise FailedException(f"{type(self).__name__} fails in {self.where}")


class Identity(BasicBolt, Flaky):
    output_fields = Fields("attempt", "word")

    def __init__(self, probability: float = 0.0) -> None:
        self.probability = probability
        self.where = "execute"

    def execute(self, tuple, collector):
        self.maybe_fail()
        collector.emit(tuple.values)


class Partial(BatchBolt, Flaky):
    """Counts words in a batch."""

    output_fields = Fields("attempt", "word", "n")

    def __init__(self, probability: float = 0.0) -> None:
        self.probability = probability
        self.where = "finish_batch"

    def prepare(self, config, context, collector, attempt):
        self.counts: Counter[str] = Counter()

    def execute(self, tuple):
        self.counts[tuple["word"]] += 1

    def finish_batch(self):
        self.maybe_fail()
        for word, n in self.counts.items():
            self.collector.emit((self.attempt, word, n))


class CountWords(BatchBolt, ICommitter, Flaky):
    """Adds partial counts to a state, and emits each word's new and old count."""

    output_fields = Fields("attempt", "word", "new", "old")

    def __init__(self, probability: float = 0.0) -> None:
        self.probability = probability
        self.where = "the commit phase"

    def prepare(self, config, context, collector, attempt):
        self.state = context.state("words")
        self.counts: Counter[str] = Counter()

    def execute(self, tuple):
        self.counts[tuple["word"]] += tuple["n"]

    def finish_batch(self):
        for word, n in self.counts.items():
            stored = self.state.get(word)
            old = stored.value if stored is not None else 0
            new = self.state.update(word, lambda value, n=n: (value or 0) + n)
            assert new == old + n
            self.collector.emit((self.attempt, word, new, old))
        self.maybe_fail()


class SumDeltas(BatchBolt, ICommitter, Flaky):
    """Below a committer: adds up by how much all counts grew."""

    def __init__(self, probability: float = 0.0) -> None:
        self.probability = probability
        self.where = "a committer below a committer"

    def prepare(self, config, context, collector, attempt):
        self.state = context.state("total")
        self.grown = 0

    def execute(self, tuple):
        self.grown += tuple["new"] - tuple["old"]

    def finish_batch(self):
        self.maybe_fail()
        self.state.update("all", lambda old: (old or 0) + self.grown)


def counting(
    spout: Any,
    words: State,
    tasks: int = 1,
    *,
    spout_tasks: int | None = None,
    probability: float = 0.0,
    topology_id: str = "words",
) -> Topology:
    """Return spout → partial → count (committer), which writes the state ``words``."""
    builder = TransactionalTopologyBuilder(topology_id, "spout", spout, spout_tasks or tasks)
    builder.set_bolt("partial", Partial(probability), tasks).shuffle_grouping("spout")
    builder.set_committer_bolt("count", CountWords(probability), tasks).fields_grouping("partial", Fields("word"))
    builder.set_state("words", words)
    return builder.build()


def words_topology(
    output: str | os.PathLike[str],
    data: Mapping[int, list[list[str]]],
    *,
    parallelism: int = 2,
    take: int = 4,
    probability: float = 0.0,
    topology_id: str = "words",
    committer: CountWords | None = None,
) -> Topology:
    """Return spout → identity → partial → count (committer) → sum (committer)."""
    spout = MemoryTransactionalSpout(data, Fields("word"), take)
    builder = TransactionalTopologyBuilder(topology_id, "spout", spout, parallelism)
    builder.set_bolt("identity", Identity(probability / 20), parallelism).shuffle_grouping("spout")
    builder.set_bolt("partial", Partial(probability), parallelism).none_grouping("identity")
    committer = committer or CountWords(probability)
    builder.set_committer_bolt("count", committer, parallelism).fields_grouping("partial", Fields("word"))
    builder.set_bolt("sum", SumDeltas(probability), 1).global_grouping("count")
    builder.set_state("words", DeltaState(f"{output}/words", key=Fields("word: string"), value=Fields("n: long")))
    builder.set_state("total", DeltaState(f"{output}/total", key=Fields("name: string"), value=Fields("n: long")))
    return builder.build()


def read_words(output: str | os.PathLike[str]) -> dict[str, int]:
    """Return the words table as a dictionary, checking that each word stands once."""
    from state.delta.keyed.state import read_table

    table: Any = read_table(f"{output}/words").to_pydict()
    assert len(set(table["word"])) == len(table["word"])
    return dict(zip(table["word"], table["n"], strict=True))


def read_total(output: str | os.PathLike[str]) -> int:
    """Return the total."""
    from state.delta.keyed.state import read_table

    table: Any = read_table(f"{output}/total").to_pydict()
    assert table["name"] == ["all"]
    return int(table["n"][0])
