"""Plain topologies that tests run on Spark: their components are imported by the workers."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.plain.loop.holding import hold
from txtopo import (
    BasicBolt,
    BasicOutputCollector,
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

SENTENCES = ("the cow jumped over the moon", "an apple a day keeps the doctor away", "four score and seven years ago")


class Sentences(Spout):
    """Emits so many sentences a task, and each again until it is acked."""

    output_fields = Fields("sentence", "number")

    def __init__(self, count: int) -> None:
        self._count = count

    def open(self, config: Mapping[str, Any], context: TopologyContext, collector: SpoutOutputCollector) -> None:
        """Begin at the first."""
        del config, context
        print("sentences begin")
        self._collector = collector
        self._next = 0
        self._again: list[int] = []

    def next_tuple(self) -> None:
        """Emit a sentence that failed, or the next one."""
        if self._again:
            self._emit(self._again.pop())
        elif self._next < self._count:
            self._next += 1
            self._emit(self._next - 1)

    def fail(self, message_id: int) -> None:
        """Emit it again."""
        self._again.append(message_id)

    def is_exhausted(self) -> bool:
        """Whether all were emitted."""
        return self._next == self._count and not self._again

    def _emit(self, number: int) -> None:
        self._collector.emit((SENTENCES[number % len(SENTENCES)], number), message_id=number)


class Split(BasicBolt):
    """Splits a sentence; fails each so-many-th once."""

    output_fields = Fields("word")

    def __init__(self, failing_every: int = 0) -> None:
        self._failing_every = failing_every

    def prepare(self, config: Mapping[str, Any], context: TopologyContext) -> None:
        """Nothing has failed yet."""
        del config, context
        self._failed: set[int] = set()

    def execute(self, tuple: Tuple, collector: BasicOutputCollector) -> None:
        """Emit the words."""
        number = tuple["number"]
        if self._failing_every and number % self._failing_every == 1 and number not in self._failed:
            self._failed.add(number)
            raise FailedException("as asked for")
        for word in tuple["sentence"].split():
            collector.emit((word,))


class Count(RichBolt):
    """Counts words, and writes its counts into a folder at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def prepare(self, config: Mapping[str, Any], context: TopologyContext, collector: OutputCollector) -> None:
        """Nothing is counted yet."""
        del config
        self._has_printed = False
        self._task = context.this_task_id
        self._collector = collector
        self._counts: dict[str, int] = {}

    def execute(self, tuple: Tuple) -> None:
        """Count a word."""
        if not self._has_printed:
            self._has_printed = True
            print("the first word")
        self._counts[tuple["word"]] = self._counts.get(tuple["word"], 0) + 1
        self._collector.ack(tuple)

    def cleanup(self) -> None:
        """Write what was counted."""
        lines = "".join(f"{word} {count}\n" for word, count in self._counts.items())
        (self._folder / f"{self._task}-{os.getpid()}").write_text(lines)


class Broken(RichBolt):
    """Emits values that do not fit its field for every tuple; or raises an exception, if it is given no values."""

    output_fields = Fields("one")

    def __init__(self, values: Sequence[object]) -> None:
        self._values = values

    def prepare(self, config: Mapping[str, Any], context: TopologyContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Fail as a bug does."""
        if self._values:
            self._collector.emit(self._values)
        raise ValueError(f"cannot work on {tuple[0]!r}")


class Slow(RichBolt):
    """Takes its time for each tuple, and keeps what it has seen in a file that tests look at."""

    def __init__(self, secs: float, folder: Path) -> None:
        self._secs = secs
        self._folder = folder

    def prepare(self, config: Mapping[str, Any], context: TopologyContext, collector: OutputCollector) -> None:
        """Say which process this is."""
        del config
        self._collector = collector
        (self._folder / f"pid-{context.this_task_index}").write_text(str(os.getpid()))

    def execute(self, tuple: Tuple) -> None:
        """Wait, and ack."""
        if tuple.source_component != "__system":
            time.sleep(self._secs)
        self._collector.ack(tuple)


def word_count(folder: Path, count: int, *, failing_every: int = 0) -> PlainTopology:
    """Return a word count of two tasks a component."""
    builder = TopologyBuilder("word-count")
    builder.set_spout("sentences", Sentences(count), 2)
    builder.set_bolt("split", Split(failing_every), 2).shuffle_grouping("sentences")
    builder.set_bolt("count", Count(folder), 2).fields_grouping("split", Fields("word"))
    return builder.build()


def broken(*values: object) -> PlainTopology:
    """Return a topology whose bolt has a bug; given values, it is that it emits them."""
    builder = TopologyBuilder("broken")
    builder.set_spout("sentences", Sentences(10))
    builder.set_bolt("broken", Broken(values)).shuffle_grouping("sentences")
    return builder.build()


class Holds(RichBolt):
    """Keeps Python's interpreter lock for its first tuple, as a bad regular expression does."""

    def __init__(self, secs: float) -> None:
        self._secs = secs

    def prepare(self, config: Mapping[str, Any], context: TopologyContext, collector: OutputCollector) -> None:
        """It has held nothing yet."""
        del config, context
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Hold, and ack."""
        hold(self._secs)
        self._secs = 0.0
        self._collector.ack(tuple)


def holds(secs: float) -> PlainTopology:
    """Return a topology whose bolt keeps the interpreter for so long."""
    builder = TopologyBuilder("holds")
    builder.set_spout("sentences", Sentences(10))
    builder.set_bolt("holds", Holds(secs)).shuffle_grouping("sentences")
    return builder.build()


def slow(folder: Path, secs: float, count: int = 10**9) -> PlainTopology:
    """Return a topology with a slow bolt of two tasks."""
    builder = TopologyBuilder("slow")
    builder.set_spout("sentences", Sentences(count), 2)
    slow = builder.set_bolt("slow", Slow(secs, folder), 2).shuffle_grouping("sentences")
    slow.add_configuration("topology.tick.tuple.freq.secs", 0.25)
    return builder.build()
