"""Bolts that do right by their inputs, in every way that is usual, and bolts that do not."""

import collections
import itertools

from txtopo import BasicBolt, Fields, PlainTopology, RichBolt, Spout, TopologyBuilder


class Numbers(Spout):
    """Emits numbers, and each again until it is acked."""

    output_fields = Fields("n")

    def open(self, config, context, collector):
        self.collector = collector
        self.numbers = itertools.count()
        self.again = []

    def next_tuple(self):
        number = self.again.pop() if self.again else next(self.numbers)
        self.collector.emit((number,), message_id=number)

    def fail(self, message_id):
        self.again.append(message_id)


class Bolt(RichBolt):
    """Keeps what most of them need; subclass it."""

    output_fields = Fields("n")

    def prepare(self, config, context, collector):
        self.collector = collector
        self.seen = 0
        self.kept = []

    def pass_on(self, tuple):
        self.collector.emit(tuple.values, tuple)
        self.collector.ack(tuple)


class Ticked(Bolt):
    """Has a tick each second; subclass it."""

    def component_configuration(self):
        return {"topology.tick.tuple.freq.secs": 1}

    def is_tick(self, tuple):
        return tuple.source_component == "__system"


# Bolts that are wrong.


class Forgets(Bolt):
    """Forgets every fifth ack."""

    def execute(self, tuple):
        self.seen += 1
        self.collector.emit(tuple.values, tuple)
        if self.seen % 5:
            self.collector.ack(tuple)


class AcksTwice(Bolt):
    """Acks every third input twice."""

    def execute(self, tuple):
        self.seen += 1
        self.pass_on(tuple)
        if self.seen % 3 == 0:
            self.collector.ack(tuple)


class EmitsAnchoredLate(Bolt):
    """Acks, then emits anchored."""

    def execute(self, tuple):
        self.collector.ack(tuple)
        self.collector.emit(tuple.values, tuple)


class AcksBatchFirst(Bolt):
    """Holds three, acks them, then emits their sum, unanchored."""

    def execute(self, tuple):
        self.kept.append(tuple)
        if len(self.kept) == 3:
            for each in self.kept:
                self.collector.ack(each)
            self.collector.emit((sum(each["n"] for each in self.kept),))
            self.kept = []


class Keeps(Bolt):
    """Acks all but every fifth input, which it keeps for ever: it may wait for something."""

    def execute(self, tuple):
        self.seen += 1
        if self.seen % 5:
            self.collector.ack(tuple)
        else:
            self.kept.append(tuple)


# Bolts that are right.


class Passes(Bolt):
    """Emits, then acks."""

    def execute(self, tuple):
        self.pass_on(tuple)


class Unanchored(Bolt):
    """Emits what may get lost, then acks."""

    def execute(self, tuple):
        self.collector.emit(tuple.values)
        self.collector.ack(tuple)


class Catches(Bolt):
    """Fails what it could not emit, whatever the error is."""

    def execute(self, tuple):
        try:
            self.pass_on(tuple)
        except Exception:  # noqa: BLE001 - as users write it
            self.collector.fail(tuple)


class TickWindow(Ticked):
    """Holds until a tick, emits the sum anchored to all of them, then acks."""

    def execute(self, tuple):
        if not self.is_tick(tuple):
            self.kept.append(tuple)
        elif self.kept:
            self.collector.emit((sum(each["n"] for each in self.kept),), self.kept)
            for each in self.kept:
                self.collector.ack(each)
            self.kept = []


class Fails(Bolt):
    """Fails some inputs."""

    def execute(self, tuple):
        self.seen += 1
        if self.seen % 7:
            self.pass_on(tuple)
        else:
            self.collector.fail(tuple)


class Recent(BasicBolt):
    """Writes each input, and keeps the last few to look at."""

    output_fields = None

    def prepare(self, config, context):
        self.last = collections.deque(maxlen=5)

    def execute(self, tuple, collector):
        self.last.append(tuple)


WRONG = {
    Forgets: "has neither acked nor failed",
    AcksTwice: "again: it had acked or failed it before",
    EmitsAnchoredLate: "which it had acked or failed before",
    AcksBatchFirst: "after it had acked",
}
"""What the finding says."""

RIGHT = (Passes, Unanchored, Catches, TickWindow, Fails, Recent)


def topology(name: str = "Passes") -> PlainTopology:
    """Return a topology of a spout, the bolt of that name in two tasks, and one that takes what it emits."""
    builder = TopologyBuilder("judged")
    builder.set_spout("numbers", Numbers(), 2)
    kind = globals()[name]
    builder.set_bolt("judged", kind(), 2).shuffle_grouping("numbers")
    if kind.output_fields is not None:
        builder.set_bolt("last", Recent()).shuffle_grouping("judged")
    return builder.build()
