"""The bolts and spouts of Storm's tests of plain topologies."""

from __future__ import annotations

from collections import Counter

from txtopo import BasicBolt, Fields, RichBolt, Spout, TopologyBuilder


class WordCounter(BasicBolt):
    output_fields = Fields("word", "count")

    def prepare(self, config, context):
        self.counts = Counter()

    def execute(self, tuple, collector):
        word = tuple[0]
        self.counts[word] += 1
        collector.emit([word, self.counts[word]])


class GlobalCount(BasicBolt):
    output_fields = Fields("global-count")

    def prepare(self, config, context):
        self.count = 0

    def execute(self, tuple, collector):
        self.count += 1
        collector.emit([self.count])


class Words(Spout):
    """Emits nothing, and has no end."""

    output_fields = Fields("word")

    def next_tuple(self):
        pass


class Acking(RichBolt):
    """Keeps the collector; subclass it."""

    def prepare(self, config, context, collector):
        self.collector = collector


class AckBolt(Acking):
    def execute(self, tuple):
        self.collector.ack(tuple)


class Identity(Acking):
    output_fields = Fields("val")

    def execute(self, tuple):
        self.collector.emit(tuple.values, tuple)
        self.collector.ack(tuple)


class Branch(Acking):
    """Emits so many tuples for each."""

    output_fields = Fields("num")

    def __init__(self, branches):
        self.branches = branches

    def execute(self, tuple):
        for number in range(self.branches):
            self.collector.emit([number], tuple)
        self.collector.ack(tuple)


class Aggregate(Acking):
    """Emits one tuple for so many, anchored to all of them."""

    output_fields = Fields("num")

    def __init__(self, number):
        self.number = number

    def prepare(self, config, context, collector):
        super().prepare(config, context, collector)
        self.held = []

    def execute(self, tuple):
        self.held.append(tuple)
        if len(self.held) == self.number:
            self.collector.emit([1], self.held)
            for each in self.held:
                self.collector.ack(each)
            self.held = []


class AckEveryOther(Acking):
    """Acks the first, third, fifth tuple … and forgets the others."""

    def prepare(self, config, context, collector):
        super().prepare(config, context, collector)
        self.is_odd = False

    def execute(self, tuple):
        self.is_odd = not self.is_odd
        if self.is_odd:
            self.collector.ack(tuple)


def chain(spout: Spout, *bolts: RichBolt | BasicBolt):
    """Return a topology in which each bolt takes what the one before emits."""
    builder = TopologyBuilder("chain")
    builder.set_spout("0", spout)
    for number, bolt in enumerate(bolts, start=1):
        builder.set_bolt(str(number), bolt).shuffle_grouping(str(number - 1))
    return builder.build()
