"""Plain topologies that tests run on Spark: their components are imported by the workers."""

import os
import time
from pathlib import Path

from tests.workers.holding import hold
from txtopo import BasicBolt, Fields, PlainTopology, RichBolt, Spout, TopologyBuilder

SENTENCES = ("the cow jumped over the moon", "an apple a day keeps the doctor away", "four score and seven years ago")


class Sentences(Spout):
    """Emits so many sentences a task, and each again until it is acked."""

    output_fields = Fields("sentence", "number")

    def __init__(self, count):
        self._count = count

    def open(self, config, context, collector):
        print("sentences begin")
        self._collector = collector
        self._next = 0
        self._again = []

    def next_tuple(self):
        if self._again:
            self._emit(self._again.pop())
        elif self._next < self._count:
            self._next += 1
            self._emit(self._next - 1)

    def fail(self, message_id):
        self._again.append(message_id)

    def is_exhausted(self):
        return self._next == self._count and not self._again

    def _emit(self, number):
        self._collector.emit((SENTENCES[number % len(SENTENCES)], number), message_id=number)


class Split(BasicBolt):
    """Splits a sentence."""

    output_fields = Fields("word")

    def execute(self, tuple, collector):
        for word in tuple["sentence"].split():
            collector.emit((word,))


class Sink(RichBolt):
    """A bolt that knows its context and collector."""

    def prepare(self, config, context, collector):
        self._context = context
        self._collector = collector


class Count(Sink):
    """Counts words, and writes its counts into a folder at the end."""

    def __init__(self, folder):
        self._folder = folder
        self._counts = {}

    def execute(self, tuple):
        if not self._counts:
            print("the first word")
        self._counts[tuple["word"]] = self._counts.get(tuple["word"], 0) + 1
        self._collector.ack(tuple)

    def cleanup(self):
        lines = "".join(f"{word} {count}\n" for word, count in self._counts.items())
        (self._folder / f"{self._context.this_task_id}-{os.getpid()}").write_text(lines)


class Broken(Sink):
    """Emits values that do not fit its field for every tuple; or raises an exception, if it is given no values."""

    output_fields = Fields("one")

    def __init__(self, values):
        self._values = values

    def execute(self, tuple):
        if self._values:
            self._collector.emit(self._values)
        raise ValueError(f"cannot work on {tuple[0]!r}")


class Slow(Sink):
    """Takes its time for each tuple; which process a task is stands in a file that tests look at."""

    def __init__(self, secs, folder):
        self._secs = secs
        self._folder = folder

    def prepare(self, config, context, collector):
        super().prepare(config, context, collector)
        written = self._folder / f"writing-{context.this_task_index}"
        written.write_text(str(os.getpid()))
        written.rename(self._folder / f"pid-{context.this_task_index}")  # so that nobody reads half of it

    def execute(self, tuple):
        if tuple.source_component != "__system":
            time.sleep(self._secs)
        self._collector.ack(tuple)


class Holds(Sink):
    """Keeps Python's interpreter lock for its first tuple, as a bad regular expression does."""

    def __init__(self, secs):
        self._secs = secs

    def execute(self, tuple):
        hold(self._secs)
        self._secs = 0.0
        self._collector.ack(tuple)


def word_count(folder: Path, count: int) -> PlainTopology:
    """Return a word count of two tasks a component."""
    builder = TopologyBuilder("word-count")
    builder.set_spout("sentences", Sentences(count), 2)
    builder.set_bolt("split", Split(), 2).shuffle_grouping("sentences")
    builder.set_bolt("count", Count(folder), 2).fields_grouping("split", Fields("word"))
    return builder.build()


def _of_ten_sentences(name: str, bolt: RichBolt) -> PlainTopology:
    builder = TopologyBuilder(name)
    builder.set_spout("sentences", Sentences(10))
    builder.set_bolt(name, bolt).shuffle_grouping("sentences")
    return builder.build()


def broken(*values: object) -> PlainTopology:
    """Return a topology whose bolt has a bug; given values, it is that it emits them."""
    return _of_ten_sentences("broken", Broken(values))


def holds(secs: float) -> PlainTopology:
    """Return a topology whose bolt keeps the interpreter for so long."""
    return _of_ten_sentences("holds", Holds(secs))


def slow(folder: Path, secs: float, count: int = 10**9) -> PlainTopology:
    """Return a topology with a slow bolt of two tasks."""
    builder = TopologyBuilder("slow")
    builder.set_spout("sentences", Sentences(count), 2)
    slow = builder.set_bolt("slow", Slow(secs, folder), 2).shuffle_grouping("sentences")
    slow.add_configuration("topology.tick.tuple.freq.secs", 0.25)
    return builder.build()
