"""Storm's word count: a plain topology that fully processes every sentence, at least once.

Run it with ``txtopo run examples.word_count``. With ``--set failing=1``, 1 % of the sentences fail, and come again.
Kill one of its Python workers while it runs: the sentences that it had in flight fail at once and come again. ``txtopo
show examples.word_count`` draws it.

A sentence is fully processed when its counts are in the table, which is written every half second (``flush_secs``). So
that is the complete latency that the run prints, however few sentences are pending.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from rich.console import Console

from committers import DeltaUpsertBolt
from txtopo import (
    BasicBolt,
    BasicOutputCollector,
    Config,
    FailedException,
    Fields,
    OutputCollector,
    PlainTopology,
    RichBolt,
    Spout,
    SpoutOutputCollector,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)

SENTENCES = (
    "the cow jumped over the moon",
    "an apple a day keeps the doctor away",
    "four score and seven years ago",
    "snow white and the seven dwarfs",
    "i am at two with nature",
)
"""Storm's sentences."""

OUTPUT = "txtopo-data/word-count"


class Sentences(Spout):
    """Emits ``count`` sentences, and each again after a failure."""

    output_fields = Fields("sentence", "number")

    def __init__(self, count: int) -> None:
        self._count = count

    def open(self, config: Any, context: TopologyContext, collector: SpoutOutputCollector) -> None:
        """Begin with this task's first sentence: task i of n emits every n-th sentence from i on."""
        self._collector = collector
        self._numbers = iter(range(context.this_task_index, self._count, len(context.component_tasks("sentences"))))
        self._again: list[int] = []
        self._is_at_end = False

    def next_tuple(self) -> None:
        """Emit a sentence that failed, or the next one."""
        number = self._again.pop() if self._again else next(self._numbers, None)
        if number is None:
            self._is_at_end = True
        else:
            self._collector.emit((SENTENCES[number % len(SENTENCES)], number), message_id=number)

    def fail(self, message_id: int) -> None:
        """Emit the sentence again."""
        self._again.append(message_id)

    def is_exhausted(self) -> bool:
        """Whether all sentences were emitted, and none waits to be emitted again."""
        return self._is_at_end and not self._again


class Split(BasicBolt):
    """Splits sentences into words: a basic bolt anchors and acks by itself."""

    output_fields = Fields("word")

    def __init__(self, failing: float) -> None:
        self._failing = failing

    def prepare(self, config: Any, context: TopologyContext) -> None:
        """Seed the random failures, so that every run has the same."""
        self._random = random.Random(context.this_task_id)  # noqa: S311 - it only fails sentences

    def execute(self, tuple: Tuple, collector: BasicOutputCollector) -> None:
        """Emit the words of one sentence, or fail it."""
        if self._random.random() * 100 < self._failing:
            raise FailedException("this sentence fails, as was asked for")
        for word in tuple["sentence"].split():
            collector.emit((word,))


class Count(RichBolt):
    """Counts each word, in memory, and emits how often it has seen it."""

    output_fields = Fields("word", "count")

    def prepare(self, config: Any, context: TopologyContext, collector: OutputCollector) -> None:
        """Begin at zero; so does the successor of a worker that dies."""
        self._collector = collector
        self._counts: dict[str, int] = {}

    def execute(self, tuple: Tuple) -> None:
        """Count one word; its count is anchored, so the sentence is acked when the count is in the table."""
        word = tuple["word"]
        self._counts[word] = self._counts.get(word, 0) + 1
        self._collector.emit((word, self._counts[word]), tuple)
        self._collector.ack(tuple)


def topology(
    sentences: int = 20_000, failing: float = 0.0, parallelism: int = 2, output: str = OUTPUT
) -> PlainTopology:
    """Return the topology; ``failing`` percent of the sentences fail, and ``output`` is the table of the counts."""
    builder = TopologyBuilder("word-count")
    builder.set_spout("sentences", Sentences(sentences), parallelism)
    builder.set_bolt("split", Split(failing), parallelism).shuffle_grouping("sentences")
    builder.set_bolt("count", Count(), parallelism).fields_grouping("split", Fields("word"))
    sink = DeltaUpsertBolt(output, Fields("word: string"), Fields("count: long"), version="count", flush_secs=0.5)
    builder.set_bolt("counts", sink).global_grouping("count")
    return builder.build()


def config() -> Config:
    """Return its configuration: two workers."""
    return Config({"topology.workers": 2})


def show_results(console: Console, output: str) -> None:
    """Print the most frequent words."""
    if not Path(output).exists():
        return
    rows = pa.table(DeltaTable(output).scan()).to_pylist()
    rows.sort(key=lambda row: (-row["count"], row["word"]))
    console.print(", ".join(f"{row['word']} {row['count']:,}" for row in rows[:5]))
